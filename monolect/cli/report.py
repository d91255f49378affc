"""Write the computation of one line of a program to a file that another machine can run: `monolect report`.

`monolect report PROGRAM.py[:LINE] -o bug.ir` runs the program and stores the first batch that the line built or
realized. Without a line, or if the program fails before it, it stores the batch that failed. The file is text IR, so
`monolect run` shows its passes. Comments hold settings, Variables, inputs, results and the error. `monolect report
bug.ir` runs the file here. It compares sampled elements of the results with the interpreter of the tensor graph, and
the results with those in the file.

What it is not: the program. The Python code around the batch is not in the file.
Invariant: only IR in a file is executed, and it is verified first.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import platform
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from monolect.backend.registry import Device
from monolect.base.disk.files import write_whole
from monolect.base.disk.version import compiler_version
from monolect.base.errors import AllocationError, ArgumentError, FileFormatError, MonolectError, VerifyError
from monolect.base.origin import provenance
from monolect.base.settings import TABLE, Context, settings
from monolect.cli.explain import run_program, split_location
from monolect.command.forms import buffer_bytes
from monolect.ir.check.arrays import Array, storage
from monolect.ir.check.compare import EvaluationOptions, compare_value
from monolect.ir.check.points import Unsupported
from monolect.ir.check.verify import verify
from monolect.ir.text import parse, show
from monolect.ir.uop import UOp, build, substitute, toposort
from monolect.pipeline import GRAPH
from monolect.runtime.binding import bound, value_of, variables
from monolect.runtime.buffer import from_bytes
from monolect.runtime.realize.execute import batches_to, realize
from monolect.runtime.realize.verified import evaluation_options
from monolect.schedule.callify import over_params

_MARK = "#! "  # prefix of a line that is not IR
_MAX_BYTES = 1 << 20  # bytes of one input or result in the file; a larger input is replaced by random numbers
_LEFT_OUT = frozenset(  # settings that do not change values
    ("MONOLECT_CACHE", "DEBUG", "DUMP", "TRACE", "DEVICE", "COMPILE_CACHE")
)


class Report(NamedTuple):
    """A batch, as a TUPLE of values over PARAMs, with its inputs, results and settings."""

    values: UOp
    facts: dict[str, Any]  # "device", "settings", "variables" are used by a replay; others are for people
    inputs: list[bytes | None]  # bytes by slot; None for random numbers
    results: list[bytes]  # b"" for one that is not in the file
    error: str = ""


# ---- a program -------------------------------------------------------------------------------------------------------
def add_options(parser: argparse.ArgumentParser, title: str) -> None:
    """Add the options of `monolect report` to `parser`. `title` is the command's name, which this module ignores."""
    parser.add_argument("location", metavar="FILE.py[:LINE]|BUG.ir", help="a program and a line, or a report to run")
    parser.add_argument("-o", dest="output", metavar="BUG.ir", default="bug.ir", help="the file to write")
    parser.add_argument("--no-data", action="store_true", help="replace the inputs by random numbers")
    parser.usage = "monolect report [-o BUG.ir] [--no-data] FILE.py[:LINE] [-- ARGUMENT ...]"


def command(options: argparse.Namespace) -> None:
    """Write a report, or run one."""
    if is_report(options.location):
        replay(options.location)
    else:
        report(options.location, options.passed_on, options.output, not options.no_data)


def report(location: str, arguments: Sequence[str], file: str, with_data: bool = True) -> None:
    """Run the program FILE.py[:LINE] and write its batch to `file`. Raises ArgumentError if no batch is found."""
    program, line = split_location(location)
    recorder, error = _Recorder(program, line, with_data), ""
    with Context(COMPILE_CACHE=0), batches_to(recorder.see):
        try:
            run_program(program, arguments)
        except Exception as e:
            error = e.describe() if isinstance(e, MonolectError) else f"{type(e).__name__}: {e}"
            print(f"the program failed: {error}", file=sys.stderr)
            recorder.take_last(line is not None)
    if recorder.found is None:
        expected = f"a line of {program} that computes or reads a value"
        raise ArgumentError("no batch came from there", expected=expected, found=error or location)
    found = recorder.found._replace(error=error)
    print(f"{location}: {len(found.values.src)} values of {len(found.inputs)} inputs")
    try:
        results = _replayed(found)
    except MonolectError as e:
        print(f"run again, it fails: {e.describe()}")
        found = found._replace(error=found.error or e.describe())
    else:
        found = found._replace(results=[raw for _, raw in results])
        print("\n".join(_agreement(found, results)))
    write_whole(file, [_written(found).encode()])
    print(f"wrote {file}: `monolect report {file}` runs it, `monolect run {file}` shows its passes")


class _Recorder:
    """Record the first batch that a line of the program built or realized, and remember the batch that ran last."""

    def __init__(self, program: str, line: int | None, with_data: bool) -> None:
        self.program, self.line, self.with_data = os.path.abspath(program), line, with_data
        self.found: Report | None = None
        self.now: tuple[list[UOp], str] | None = None

    def see(self, batch: list[UOp], device: str) -> None:
        """Look at a batch that is about to run."""
        self.now = batch, device
        if self.found is None and self.line is not None and self.line in self._lines(batch):
            self.found = self._taken(batch, device)

    def take_last(self, keep: bool) -> None:
        """Record the batch that ran last; with `keep`, only if none is recorded yet."""
        if self.now is not None and not (keep and self.found is not None):
            self.found = self._taken(*self.now)

    def _lines(self, batch: list[UOp]) -> Iterator[int]:
        """Yield the lines of the program that built the batch, and the line that realizes it."""
        for origin in (provenance(), *(u.origin for u in toposort(*batch) if u.origin is not None)):
            if os.path.abspath(origin[0]) == self.program:
                yield origin[1]

    def _taken(self, batch: list[UOp], device: str) -> Report:
        values, buffers, sizes = over_params(batch, with_calls=True)
        for b in buffers:
            if b.op != "BUFFER":
                raise ArgumentError("this batch cannot be reported", expected="inputs in memory", found=b.op)
        inputs = [_memory(b) if self.with_data and buffer_bytes(b) <= _MAX_BYTES else None for b in buffers]
        facts = {
            "monolect": compiler_version(),
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "line": f"{os.path.basename(self.program)}:{self.line or ''}".rstrip(":"),
            "device": device,
            "settings": {
                row.name: getattr(settings, row.name)
                for row in TABLE
                if getattr(settings, row.name) != row.default and row.name not in _LEFT_OUT
            },
            "variables": {v.arg.name: value_of(v) for v in sizes},
        }
        return Report(values, facts, inputs, [])


def _memory(b: UOp) -> bytes:
    if b.storage is None:  # the batch writes this buffer before it reads it
        return bytes(buffer_bytes(b))
    return bytes(b.storage.view(np.uint8)[: buffer_bytes(b)].tobytes())


# ---- a file ----------------------------------------------------------------------------------------------------------
def replay(file: str) -> None:
    """Run a report and print how its results compare. Raises VerifyError where a result differs from the tensor
    graph's.
    """
    found = read(file)
    facts = {k: v for k, v in found.facts.items() if v}
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    if found.error:
        print(f"failed there: {found.error}")
    results = _replayed(found)
    lines = _agreement(found, results)
    print("\n".join(lines))
    if any("differs from the interpreter" in line for line in lines):
        raise VerifyError("a result is not that of the tensor graph", expected="the interpreter's value", found=file)


def is_report(file: str) -> bool:
    """Whether a path names a report, not a program."""
    return file.endswith(".ir")


def _written(r: Report) -> str:
    lines = [f"{_MARK}{name} {json.dumps(value)}" for name, value in r.facts.items()]
    lines += [f"{_MARK}error {json.dumps(r.error)}"] if r.error else []
    data = [f"{_MARK}input {k} {_coded(raw)}" for k, raw in enumerate(r.inputs)]
    data += [f"{_MARK}result {k} {_coded(raw if len(raw) <= _MAX_BYTES else None)}" for k, raw in enumerate(r.results)]
    return "\n".join(("# A report of monolect.", *lines, show(r.values, origins=True), *data, ""))


def _coded(raw: bytes | None) -> str:
    """Return bytes as compressed base64 text; "random" for None."""
    return "random" if raw is None else base64.b64encode(zlib.compress(raw)).decode()


def read(file: str) -> Report:
    """Return the report in a file. Raises FileFormatError or ParseError for other files."""

    def damaged(found: object) -> FileFormatError:
        return FileFormatError("not a report", expected="a file that `monolect report` wrote", found=f"{file}: {found}")

    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(error) from None
    facts: dict[str, Any] = {}
    data: dict[str, list[bytes | None]] = {"input": [], "result": []}
    for line in text.splitlines():
        if line.startswith(_MARK):
            name, _, rest = line.removeprefix(_MARK).partition(" ")
            try:
                if name not in data:
                    facts[name] = json.loads(rest)
                    continue
                number, _, coded = rest.partition(" ")
                raw = None if coded == "random" else zlib.decompress(base64.b64decode(coded, validate=True))
                if int(number) != len(data[name]):
                    raise ValueError("inputs and results are not in order")
            except (ValueError, zlib.error, RecursionError) as error:
                raise damaged(error) from None
            data[name].append(raw)
    values = parse(text)
    kinds = {"device": str, "settings": dict, "variables": dict}
    if values.op != "TUPLE" or not all(isinstance(facts.get(name), kind) for name, kind in kinds.items()):
        raise damaged(f"{values.op} with {', '.join(facts) or 'nothing'}")
    verify(values, GRAPH[0].reads)
    for slot, p in _inputs(values).items():
        if slot >= len(data["input"]):
            raise damaged(f"no input {slot}")
        if (raw := data["input"][slot]) is not None and len(raw) != buffer_bytes(p):
            raise damaged(f"input {slot} of {len(raw)} bytes")
    return Report(values, facts, data["input"], [raw or b"" for raw in data["result"]], str(facts.pop("error", "")))


# ---- both ------------------------------------------------------------------------------------------------------------
def _replayed(r: Report) -> list[tuple[str, bytes]]:
    """Run the batch; return for each result a sentence on whether the interpreter agrees, and its bytes on this
    machine.
    """
    device = Device.canonical(r.facts["device"])
    params, sizes = _inputs(r.values), variables(r.values)
    raw = {k: _bytes(p, r.inputs[k]) for k, p in params.items()}
    with ExitStack() as stack:
        stack.enter_context(Context(**{**r.facts["settings"], "DEVICE": device}))
        for v in sizes:
            stack.enter_context(bound(v, r.facts["variables"].get(v.arg.name)))
        buffers = {p: from_bytes(raw[k], p.shape, p.dtype, p.arg.device or device) for k, p in params.items()}
        values = substitute(r.values, buffers)
        found = [(u, _memory(_as_buffer(b))) for u, b in zip(r.values.src, realize([*values.src]), strict=True)]
        memory = {p: np.frombuffer(raw[k], storage(p.dtype)) for k, p in params.items()}
        options = evaluation_options([*sizes])
        return [(_against_interpreter(u, b, memory, options), b) for u, b in found]


def _inputs(values: UOp) -> dict[int, UOp]:
    """Return the PARAMs that are buffers, by slot."""
    return {p.arg.slot: p for p in toposort(values) if p.op == "PARAM" and p.arg.name is None}


def _as_buffer(b: UOp) -> UOp:
    """Return a contiguous BUFFER with the elements of a result, which may be a view."""
    return b if b.op == "BUFFER" else realize([build("CONTIGUOUS", b)])[0]


def _bytes(p: UOp, raw: bytes | None) -> bytes:
    """Return the memory of an input: that of the report, or random numbers from -2 to 2 (0 and 1 for integers)."""
    if raw is not None:
        return raw
    kind, n = storage(p.dtype), buffer_bytes(p)
    rng = np.random.default_rng(p.arg.slot)
    try:
        n //= kind.itemsize
        numbers = rng.uniform(-2, 2, n) if kind.kind == "f" else rng.integers(0, 2, n)
        return bytes(numbers.astype(kind).tobytes())
    except (MemoryError, ValueError):
        raise AllocationError("no memory for an input", expected=f"{p.dtype.name} {p.shape}", found=f"{n}") from None


def _against_interpreter(u: UOp, raw: bytes, memory: dict[UOp, Array], options: EvaluationOptions) -> str:
    what = f"{u.dtype.name} {list(u.shape)}"
    try:
        with np.errstate(all="ignore"):
            d = next(iter(compare_value(u, np.frombuffer(raw, storage(u.dtype)), memory, options)), None)
    except Unsupported as why:
        return f"{what} is not compared with the interpreter ({why})"
    if d is None:
        return f"{what} agrees with the interpreter"
    return f"{what} differs from the interpreter at {d.at}: {d.found} here, {d.expected} expected"


def _agreement(r: Report, results: list[tuple[str, bytes]]) -> list[str]:
    """Return a line for each result: how it compares with the interpreter, and with the report's result."""
    out = []
    for k, (text, raw) in enumerate(results):
        known = r.results[k] if k < len(r.results) else b""
        same = (
            "" if not known else ", has the bits of the report" if known == raw else ", has other bits than the report"
        )
        out.append(f"result {k}: {text}{same}")
    return out


__all__ = ["Report", "is_report", "read", "replay", "report"]
