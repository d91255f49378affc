"""Find the rule, pass or action that changes the result of a program: `monolect bisect FILE.py`.

The result of a program is its exit status and its printed text, or, with --outputs, its exit status and the arrays in
the files that it writes. Floating-point numbers are equal up to --rtol; all other text must be identical. The program
runs as it is, and with all names switched off that DISABLE allows. If the two results differ, the actions are bisected
for the shortest list of names that gives the second result when it is switched off; then the passes, then the rules.
The last name of the list is printed for each kind. Actions, passes and rules that run late are switched off first,
because they change less of the compilation.

Each run is a process of its own, with COMPILE_CACHE=0. Neither result is assumed to be the right one.
"""

import argparse
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from monolect.base.errors import ArgumentError, FileFormatError
from monolect.base.settings import settings
from monolect.cli.explain import split_location
from monolect.cli.where import rules
from monolect.interop.safetensors import safe_load
from monolect.pipeline import PIPELINE, check_disabled

KINDS = ("action", "pass", "rule")
NUMBER = re.compile(r"[-+]?(?:\d+\.\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+|\binf\b|\bnan\b)", re.IGNORECASE)


class Candidate(NamedTuple):
    """A rule, pass or action that can be switched off."""

    kind: str
    name: str
    text: str
    where: str


class Result(NamedTuple):
    """The result of a run. `last_error` is the last line of standard error, which is not compared."""

    status: int
    printed: str
    arrays: Mapping[str, np.ndarray]
    last_error: str


class Program:
    """Run a program repeatedly. `outputs` are files of arrays that it writes; they are compared instead of its printed
    text.
    """

    def __init__(self, file: str, arguments: Sequence[str], outputs: Sequence[str], rtol: float, timeout: float):
        self.command = [sys.executable, file, *arguments]
        self.outputs, self.rtol, self.timeout = outputs, rtol, timeout
        self.runs = 0
        self.cached: dict[str, Result] = {}

    def without(self, off: Sequence[str]) -> Result:
        """Return the result with the names `off` switched off; each set of names runs once."""
        names = ",".join(sorted({*settings.disabled, *off}))
        if names not in self.cached:
            self.cached[names] = self.run(names)
        return self.cached[names]

    def run(self, names: str) -> Result:
        """Run the program with DISABLE=names. Raises ArgumentError for a timeout, or if it does not write its
        `outputs`.
        """
        self.runs += 1
        environment = {**os.environ, "DISABLE": names, "COMPILE_CACHE": "0"}
        before = {file: _written_at(file) for file in self.outputs}
        try:
            done = subprocess.run(self.command, env=environment, capture_output=True, text=True, timeout=self.timeout)
        except subprocess.TimeoutExpired:
            expected = f"an end within {self.timeout:g} seconds (--timeout)"
            raise ArgumentError("the program runs too long", expected=expected, found=f"DISABLE={names}") from None
        lines = done.stderr.strip().splitlines()
        arrays: dict[str, np.ndarray] = {}
        for file in self.outputs if done.returncode == 0 else ():
            if _written_at(file) in (None, before[file]):
                raise ArgumentError("--outputs", expected="a file that each run writes", found=file)
            arrays |= _arrays(file)
        return Result(done.returncode, "" if self.outputs else done.stdout, arrays, lines[-1] if lines else "")

    def difference(self, a: Result, b: Result) -> str:
        """Return a text on the first difference of two results, "" if they are equal."""
        if a.status != b.status:
            return f"exit status {_status(a)} or {_status(b)}"
        if a.arrays.keys() != b.arrays.keys():
            return f"arrays {sorted(a.arrays)} or {sorted(b.arrays)}"
        for name, x in a.arrays.items():
            if found := _array_difference(x, b.arrays[name], self.rtol):
                return f"{name}: {found}"
        lines = a.printed.splitlines(), b.printed.splitlines()
        for k, (p, q) in enumerate(zip(*lines, strict=False), 1):
            if not _same_line(p, q, self.rtol):
                return f"line {k}: {p.strip()!r} or {q.strip()!r}"
        return "" if len(lines[0]) == len(lines[1]) else f"{len(lines[0])} or {len(lines[1])} lines"


def add_options(parser: argparse.ArgumentParser, title: str) -> None:
    """Add the options of `monolect bisect` to `parser`. `title` is the command's name, which this module ignores."""
    text = "compare the arrays in these files (.npy, .npz, .safetensors) that each run writes, not the printed text"
    parser.add_argument("--outputs", action="append", default=[], metavar="FILE", help=text)
    text = "relative tolerance of floats, times the largest number of the line or array; 0 compares exactly"
    parser.add_argument("--rtol", type=float, default=1e-4, help=text)
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="time limit of each run")
    parser.add_argument("--skip", default="", metavar="NAMES", help="names to leave on, separated by commas")
    parser.add_argument("--only", choices=KINDS, help="switch off only rules, passes or actions")
    parser.add_argument("program", metavar="FILE.py", help="the program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to the program")


def command(options: argparse.Namespace) -> None:
    """Bisect the program of the command line and print the rules, passes or actions that change its result."""
    program = program_at(options.program, options.arguments, options.outputs, options.rtol, options.timeout)
    bisect(program, list(filter(None, options.skip.split(","))), (options.only,) if options.only else KINDS)


def bisect(program: Program, skipped: Sequence[str] = (), kinds: Sequence[str] = KINDS) -> None:
    """Print the candidate of each of `kinds` ("action", "pass", "rule") that changes the program's result when it is
    switched off. The names in `skipped` stay on. Raises ArgumentError if two equal runs differ.
    """
    check_disabled(skipped)
    off = {*skipped, *settings.disabled}
    every = [c for c in candidates() if c.kind in kinds and c.name not in off]
    default = program.without(())
    if change := program.difference(default, program.run(settings.DISABLE)):
        raise ArgumentError("two runs of the program differ", expected="the same result in each run", found=change)
    plain = program.without([c.name for c in every])
    change = program.difference(default, plain)
    if not change:
        print(f"the result is the same with all {len(every)} of {', '.join(kinds)} switched off; {program.runs} runs")
        return
    print(f"with all, or with {len(every)} of {', '.join(kinds)} switched off: {change}")
    groups = [[c for c in every if c.kind == kind] for kind in kinds]
    named = [found for group in groups if (found := _first(program, plain, group))]
    # some results change only if several kinds are off
    for k, found in enumerate(named or [_first(program, plain, every)]):
        c, alone = found[-1], not program.difference(program.without([found[-1].name]), plain)
        more = "" if alone else ", together with others before it"
        print(f"{'also ' if k else 'found'}: {c.kind} {c.name}: {c.text}  ({c.where}){more}")
        if k == 0:
            names = ",".join([c.name] if alone else [x.name for x in found])
    print(f"{program.runs} runs; DISABLE={names} switches it off")


def candidates() -> list[Candidate]:
    """Return all that can be switched off: actions, then passes, then rules, and in each kind the last to run first."""
    out = [
        Candidate("action" if family == "actions" else "rule", name, text, where)
        for family, name, text, where, needed in rules()
        if needed == "-"
    ]
    out += [Candidate("pass", p.name, p.why, "monolect/pipeline.py") for p in PIPELINE if p.optional]
    return sorted(reversed(out), key=lambda c: KINDS.index(c.kind))


def _first(program: Program, plain: Result, group: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return the shortest prefix of `group` that gives the result `plain` when it is switched off; () if the whole
    group does not give it.

    The last candidate of the prefix is the one that changes the result.
    """

    def is_plain(n: int) -> bool:
        off = [c.name for c in group[:n]]
        same = not program.difference(program.without(off), plain)
        what = "the second result" if same else "not the second"
        print(f"  {len(off):3} of {len(group)} off, up to {off[-1]}: {what}", flush=True)
        return same

    low, high = 0, len(group)
    if not group or not is_plain(high):
        return ()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_plain(middle) else (middle, high)
    return group[:high]


# ---- results ---------------------------------------------------------------------------------------------------------
def _status(r: Result) -> str:
    return f"{r.status} ({r.last_error})" if r.status and r.last_error else str(r.status)


def _written_at(file: str) -> int | None:
    return os.stat(file).st_mtime_ns if os.path.exists(file) else None


def _arrays(file: str) -> dict[str, np.ndarray]:
    """Return the arrays of a .npy, .npz or .safetensors file, by name. Raises FileFormatError for other files."""
    try:
        if file.endswith(".safetensors"):
            return {f"{file} {name}": t.numpy() for name, t in safe_load(file).items()}
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {file: found}
        return {f"{file} {name}": found[name] for name in found.files}
    except (OSError, ValueError, EOFError) as error:
        raise FileFormatError("cannot read an output", expected="arrays", found=f"{file}: {error}") from None


def _array_difference(a: np.ndarray, b: np.ndarray, rtol: float) -> str:
    """Return a text on the difference of two arrays, "" if equal; floats are equal up to `rtol` times the largest
    magnitude.
    """
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{list(a.shape)} or {b.dtype}{list(b.shape)}"
    if a.dtype.kind in "biu":
        n = int((a != b).sum())
        return f"{n} elements differ" if n else ""
    x, y = a.astype(np.float64), b.astype(np.float64)
    largest = max((float(np.abs(v[np.isfinite(v)]).max(initial=0)) for v in (x, y)), default=0.0)
    if np.allclose(x, y, rtol, rtol * largest, equal_nan=True):
        return ""
    finite = np.isfinite(x) & np.isfinite(y)
    return f"differs by up to {np.abs(x - y)[finite].max(initial=0):g}, or in what is finite"


def _same_line(a: str, b: str, rtol: float) -> bool:
    if a == b:
        return True
    if NUMBER.sub("", a) != NUMBER.sub("", b):
        return False
    pairs = [(float(x), float(y)) for x, y in zip(NUMBER.findall(a), NUMBER.findall(b), strict=True)]
    largest = max((abs(x) for pair in pairs for x in pair if math.isfinite(x)), default=0.0)
    return all(
        x == y or (x != x and y != y) or math.isclose(x, y, rel_tol=rtol, abs_tol=rtol * largest) for x, y in pairs
    )


def program_at(location: str, arguments: Sequence[str], outputs: Sequence[str], rtol: float, timeout: float) -> Program:
    """Return the Program of FILE.py or FILE.py:LINE. Raises ArgumentError if there is no such file."""
    return Program(split_location(location)[0], arguments, outputs, rtol, timeout)


__all__ = ["Candidate", "KINDS", "Program", "Result", "add_options", "bisect", "candidates", "command", "program_at"]
