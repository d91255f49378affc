"""Run compilers that are commands of the system.

What it is for: querying a compiler, and compiling a source with it. What it does not do: find a compiler.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence

from monolect.backend.common.diagnostics import CLANG, compiler_message
from monolect.base.errors import CompileError

TIMEOUT_S = 300  # s; a command that takes longer is an error


def run(command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command with `text` as its input; return its exit status and output.

    Raises CompileError if it cannot be run or takes longer than TIMEOUT_S.
    """
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{command[0]} could not be run: {error}") from None


def compiled(command: Sequence[str], source: str) -> bytes:
    """Compile a source and return the bytes of the output file.

    Raises CompileError with the compiler's first message and the text of the line that it names.
    """
    with tempfile.TemporaryDirectory(prefix="monolect-") as folder:
        target = os.path.join(folder, "out")
        done = run([*command, "-", "-o", target], source)
        if done.returncode or not os.path.exists(target):
            name = os.path.basename(command[0])
            raise CompileError(compiler_message(name, done.stderr or done.stdout, source, CLANG))
        with open(target, "rb") as file:
            return file.read()


__all__ = ["compiled", "run"]
