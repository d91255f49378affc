"""Run passes on text IR, from any pass to any pass: `monolect run`.

A file holds a tensor graph (TUPLE of values), a kernel (SINK), a program (LINEAR), a schedule (TUPLE after a LINEAR) or
a step (FUNCTION with StepInfo). Without --from, the first pass that takes such IR is the first to run. Without --to,
the last pass of the same section is the last; for a graph, the last of all.

With --inputs, the IR after the last pass is run on arrays by the interpreter of its stage.

A graph becomes a schedule, whose kernels go through the kernel passes inside `lower`; --kernels prints these passes for
each kernel, too. A kernel goes through its own passes, down to machine code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from monolect.backend.registry import Device
from monolect.base.errors import ArgumentError, FileFormatError, IRError
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.cli.arrays import read_inputs, run_on, show_arrays
from monolect.command.forms import calls_in, items_of, kernel_of, once_of, program_of
from monolect.ir.check.verify import verify
from monolect.ir.ops import StepInfo
from monolect.ir.rewrite.calls import is_body
from monolect.ir.text import parse, show
from monolect.ir.uop import UOp, toposort
from monolect.pipeline import BEFORE_PARAMS, COMMAND, GRAPH, KERNEL, MACHINE, PIPELINE, Pass, run_pass
from monolect.runtime.realize.lowering import searched
from monolect.runtime.realize.plan import schedule_step, target_of

SECTIONS = (GRAPH, (*KERNEL, *MACHINE), COMMAND)


def add_options(parser: argparse.ArgumentParser, title: str) -> None:
    """Add the options of `monolect run` to `parser`. `title` is the command's name, which this module ignores."""
    parser.add_argument("file", help="text IR; - reads standard input")
    names = ", ".join(row.name for row in PIPELINE)
    parser.add_argument("--from", dest="first", metavar="PASS", default="", help=f"one of {names}")
    parser.add_argument("--to", dest="last", metavar="PASS", default="", help="the last pass to run")
    parser.add_argument("--device", default=settings.DEVICE, help="the device to compile for")
    text = "run the IR after the last pass on arrays: SLOT=FILE.npy, VARIABLE=NUMBER"
    parser.add_argument("--inputs", nargs="*", metavar="SLOT=FILE", help=text)
    parser.add_argument("--outputs", default="", metavar="FOLDER", help="write the results there, as .npy files")
    parser.add_argument("--kernels", action="store_true", help="print the kernels of a graph after each pass, too")


def command(options: argparse.Namespace) -> None:
    """Print the IR after each pass from `options.first` to `options.last`."""
    device = Device.canonical(options.device)
    ir = parse(_read(options.file))
    rows = _between(ir, options.first, options.last)
    target = target_of(device)
    verify(ir, rows[0].reads)
    for row in rows:
        if row in COMMAND and ir.op == "TUPLE":
            ir = schedule_step(ir, device)
        if row.name == "choose":
            (ir,) = searched([ir], device)
        if row in GRAPH[BEFORE_PARAMS:] and ir.op == "FUNCTION":
            ir = ir.src[0]
        if row.name == "lower" and options.kernels:
            _kernels(ir, target)
        before, ir = ir, run_pass(row, ir, target)
        print(f"# after {row.name}: {'unchanged' if ir is before else row.why}\n{show(ir)}\n")
    if options.inputs is not None:
        show_arrays(run_on(ir, read_inputs(options.inputs)), options.outputs)


def _kernels(step: UOp, target: Target) -> None:
    """Print each distinct kernel of a step after each of its passes."""
    program = program_of(step)
    calls = [c for c in (*once_of(program), *calls_in(items_of(program))) if c.op == "CALL"]
    for k, kernel in enumerate(dict.fromkeys(map(kernel_of, calls))):
        if kernel.op != "SINK":
            continue
        ir = kernel
        for row in (*KERNEL, *MACHINE):
            ir = run_pass(row, ir, target)
            print(f"# kernel {k} after {row.name}: {row.why}\n{show(ir)}\n")


def _section(ir: UOp) -> Sequence[Pass]:
    """Return the passes that take IR of this form. Raises IRError for a graph that calls a kernel."""
    if ir.op == "TUPLE" and not any(u.op == "AFTER" and u.src[1:] and u.src[1].op == "LINEAR" for u in ir.src):
        own = toposort(*ir.src, stop=is_body)
        if any(u.op == "CALL" for u in own):  # `callify` makes an input of its result, and leaves it out
            expected = "a graph of ops alone, or the kernel that is called, as a file of its own"
            raise IRError(
                "a graph that calls a kernel, as the sort of short rows does", expected=expected, found="CALL"
            )
        return GRAPH[BEFORE_PARAMS:] if any(u.op == "PARAM" and u.arg.name is None for u in own) else GRAPH
    if ir.op == "TUPLE" or (ir.op == "FUNCTION" and isinstance(ir.arg, StepInfo)):
        return COMMAND
    return GRAPH[BEFORE_PARAMS:] if ir.op == "FUNCTION" else SECTIONS[1]


def _between(ir: UOp, first: str, last: str) -> Sequence[Pass]:
    names = [row.name for row in PIPELINE]
    for name in (first, last):
        if name and name not in names:
            raise ArgumentError("not a pass", expected="one of " + ", ".join(names), found=name)
    mine = _section(ir)
    start = next(row for row in PIPELINE if row.name == (first or mine[0].name))
    section = next(rows for rows in SECTIONS if start in rows)
    possible = [*GRAPH, *COMMAND] if section in (GRAPH, COMMAND) else [*section]
    order = [row.name for row in possible]
    end = last or possible[-1].name
    if end not in order or order.index(end) < order.index(start.name):
        raise ArgumentError(
            "--from is later than --to", expected="the order " + ", ".join(order), found=(start.name, end)
        )
    return possible[order.index(start.name) : order.index(end) + 1]


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise FileFormatError("cannot read text IR", expected="a readable file", found=f"{file}: {error}") from None
    except UnicodeDecodeError as error:
        raise FileFormatError("not text IR", expected="UTF-8 text", found=f"{file}: {error}") from None


__all__ = ["add_options", "command"]
