"""`monolect explain FILE.py[:LINE]`: runs a program, and shows each kernel from the user's line to the generated code.

What it is for: the way of one value on one page: the line, the kernel's IR, its loops, the actions that were chosen,
the code. What it is not: a profiler of a whole run; each kernel is shown once, however often it ran.
Invariant: the program runs as `python FILE.py` would run it, apart from the disk cache, which holds no source text.
"""

import os
import re
import runpy
import sys
from collections.abc import Sequence

from monolect.backend.registry import Device
from monolect.base.errors import ArgumentError
from monolect.base.settings import Context
from monolect.ir.ops import KernelInfo
from monolect.ir.uop import UOp, toposort
from monolect.runtime import profile
from monolect.runtime.lowering import lower


def explain(place: str, arguments: Sequence[str]) -> None:
    """Run the program at `place` and print its kernels, or those of one line. Raises ArgumentError without any."""
    file, line = split_place(place)
    kernels = [k for k in recorded(file, arguments) if line is None or line in lines_of(k.call, file)]
    if not kernels:
        raise ArgumentError(
            "no kernel came from there",
            expected=f"a line that computes something in {file}",
            found=f"line {line}" if line else "a program that realizes nothing",
        )
    for number, k in enumerate(kernels):
        print(("\n" if number else "") + profile.explain_kernel(k))
        print("actions\n" + "\n".join(f"  {a}" for a in actions_of(k) or ("none",)))


def split_place(place: str) -> tuple[str, int | None]:
    """FILE.py:12 as (file, 12). Raises ArgumentError when there is no such file."""
    found = re.fullmatch(r"(.+):(\d+)", place)
    file, line = (found[1], int(found[2])) if found else (place, None)
    if not os.path.isfile(file):
        raise ArgumentError("no such program", expected="FILE.py or FILE.py:LINE", found=place)
    return file, line


def recorded(file: str, arguments: Sequence[str]) -> list[profile.KernelRun]:
    """The distinct kernels that running `file` runs, in order."""
    argv, path = list(sys.argv), list(sys.path)
    sys.argv = [file, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    try:
        with Context(COMPILE_CACHE=0), profile.Recorder() as runs:
            try:
                runpy.run_path(file, run_name="__main__")
            except SystemExit:
                pass  # a program may end with sys.exit(main())
            sys.stdout.flush()
            return list({k.call.src[0]: k for k in reversed(runs)}.values())[::-1]
    finally:
        sys.argv, sys.path = argv, path


def lines_of(call: UOp, file: str) -> set[int]:
    """The lines of `file` that made a kernel."""
    same = os.path.abspath(file)
    return {u.origin[1] for u in toposort(call.src[0]) if u.origin is not None and os.path.abspath(u.origin[0]) == same}


def actions_of(kernel: profile.KernelRun) -> tuple:
    """The optimizer actions of a kernel, chosen again: it is the same choice, and what was searched is known."""
    devices = [b.arg.device for b in kernel.call.src[1:] if b.arg.device is not None]
    (out,) = lower([kernel.call.src[0]], str(devices[0]) if devices else Device.default, last="optimize")
    info = out.arg if isinstance(out.arg, KernelInfo) else KernelInfo()
    return info.actions or ()
