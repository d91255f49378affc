"""Run a program and show each kernel, from the user's line to the generated code: `monolect explain FILE.py[:LINE]`.

What it is for: the life of one value: a table of the kernels, then a page for each (`cli/kernel_page.py`).
What it is not: a profiler of a whole run; each kernel is shown once, however often it ran.
Invariant: the program runs as `python FILE.py` does, but without the disk cache, which holds no source text.
"""

import argparse
import os
import re
import runpy
import sys
from collections.abc import Sequence

from monolect.base.errors import ArgumentError
from monolect.base.settings import Context
from monolect.cli.kernel_page import explain_kernel
from monolect.ir.uop import UOp
from monolect.runtime import profile


def add_options(parser: argparse.ArgumentParser, title: str) -> None:
    """Add the options of `monolect explain` to `parser`. `title` is the command's name, which this module ignores."""
    parser.add_argument("--why", action="store_true", help="add what the heuristic weighed: candidates and their costs")
    parser.add_argument("--brief", action="store_true", help="leave out the IR and the generated code")
    parser.add_argument("location", metavar="FILE.py[:LINE]", help="the program, and the line whose kernels to show")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to the program")


def command(options: argparse.Namespace) -> None:
    """Run the program and print its kernels."""
    explain(options.location, options.arguments, options.brief, options.why)


def explain(location: str, arguments: Sequence[str], brief: bool = False, why: bool = False) -> None:
    """Run the program FILE.py[:LINE] and print its kernels, or those of one line. Raises ArgumentError for none."""
    file, line = split_location(location)
    kernels = [runs for runs in recorded(file, arguments) if line is None or line in lines_of(runs[0].call, file)]
    if not kernels:
        raise ArgumentError(
            "no kernel came from there",
            expected=f"a line that computes something in {file}",
            found=f"line {line}" if line else "a program that realizes nothing",
        )
    if len(kernels) > 1:
        print(profile.kernel_table([min(runs, key=lambda k: k.time_ns) for runs in kernels]) + "\n")
    print("\n\n".join(explain_kernel(runs[0], runs, brief, why) for runs in kernels))


def split_location(location: str) -> tuple[str, int | None]:
    """Return FILE.py:12 as (file, 12), FILE.py as (file, None). Raises ArgumentError if there is no such file."""
    found = re.fullmatch(r"(.+):(\d+)", location)
    file, line = (found[1], int(found[2])) if found else (location, None)
    if not os.path.isfile(file):
        raise ArgumentError("no such program", expected="FILE.py or FILE.py:LINE", found=location)
    return file, line


def recorded(file: str, arguments: Sequence[str]) -> list[list[profile.KernelRun]]:
    """Run `file` and return the runs of each distinct kernel, in the order of their first runs."""
    with Context(COMPILE_CACHE=0), profile.Recorder() as runs:
        run_program(file, arguments)
        found: dict[UOp, list[profile.KernelRun]] = {}
        for k in runs:
            found.setdefault(k.call.src[0], []).append(k)
        return list(found.values())


def run_program(file: str, arguments: Sequence[str]) -> None:
    """Run `file` as `python FILE.py` does, in this process."""
    argv, path = list(sys.argv), list(sys.path)
    sys.argv = [file, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    try:
        runpy.run_path(file, run_name="__main__")
    except SystemExit:
        pass  # a program may end with sys.exit(main())
    finally:
        sys.argv, sys.path = argv, path
        sys.stdout.flush()


def lines_of(call: UOp, file: str) -> set[int]:
    """Return the lines of `file` that built a kernel."""
    same = os.path.abspath(file)
    return {number for path, number, _ in profile.origins(call.src[0]) if os.path.abspath(path) == same}


__all__ = ["add_options", "command", "explain", "lines_of", "recorded", "run_program", "split_location"]
