"""Compilers that are commands of the system.

What it is for: asking one about itself, and what it makes of a source. What it does not do: find one.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence

from monolect.backend.common.diagnostics import CLANG, complaint
from monolect.base.errors import CompileError

TIMEOUT_S = 300


def run(command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    """A command, with `text` as its input. Raises CompileError when it cannot be run or takes too long."""
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{command[0]} could not be run: {error}") from None


def compiled(command: Sequence[str], source: str) -> bytes:
    """The file a compiler makes of a source. Raises CompileError with its message and the line it names."""
    with tempfile.TemporaryDirectory(prefix="monolect-") as folder:
        target = os.path.join(folder, "out")
        done = run([*command, "-", "-o", target], source)
        if done.returncode or not os.path.exists(target):
            name = os.path.basename(command[0])
            raise CompileError(complaint(name, done.stderr or done.stdout, source, CLANG))
        with open(target, "rb") as file:
            return file.read()
