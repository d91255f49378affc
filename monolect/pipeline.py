"""The order of the compiler, as a value: read PIPELINE and you have read what happens to a program.

Each row says what the pass reads and leaves, which ops are gone after it, what must have run before, and why it stands
where it does. The rows are checked at import; with VERIFY=1 the IR is verified after every pass, with VERIFY=2 it is also
interpreted before and after (and `runtime.verified` compares what programs wrote). CHECK_BOUNDS=1 proves every index once loops are what they will be. TRACE=passes times each
pass, TRACE=ir prints what it changed.

Passes know no device: what a target can do reaches them as data (`base.target`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from monolect.base.errors import InternalError, SettingError, VerifyError, nearest
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.ops import KernelInfo, Stage
from monolect.ir.prove import check_bounds
from monolect.ir.text import show
from monolect.ir.uop import UOp, toposort
from monolect.ir.validate import validate
from monolect.ir.verify import verify
from monolect.lower.ahead import ahead
from monolect.lower.control import control
from monolect.lower.device_axes import device_axes
from monolect.lower.expand import expand
from monolect.lower.linearize import linearize
from monolect.lower.reduce import lower_reduce
from monolect.lower.select import select
from monolect.optimize.apply import apply_actions, optimize
from monolect.optimize.merge import merge_ranges
from monolect.rules.algebra import simplify
from monolect.rules.loops import simplify_loops

T, K, P, C = Stage.TENSOR, Stage.KERNEL, Stage.PROGRAM, Stage.COMMAND


class Pass(NamedTuple):
    """One row. `run` takes (ir, target); graph passes are run by `schedule` and the runtime, kernel passes here."""

    name: str
    reads: Stage
    leaves: Stage
    run: Callable[[UOp, Target], UOp] | None
    removes: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    why: str = ""


MOVEMENTS = ("PERMUTE", "FLIP", "EXPAND", "PAD", "SHRINK", "IOTA")

# fmt: off
PIPELINE: tuple[Pass, ...] = (
    # the graph: run by runtime.callify and schedule.order
    Pass("callify",        T, T, None, ("BUFFER",), (), "inputs become PARAMs, so equal steps are equal keys of the schedule cache"),
    Pass("shard",          T, T, None, (), ("callify",), "per-device graphs must look like single-device ones to all that follows; several devices are refused"),
    Pass("own_targets",    T, T, None, (), ("shard",), "a partial assign needs a buffer of its own before buffers are decided"),
    Pass("masked_sums",    T, T, None, (), ("own_targets",), "counts of values that are not finite need kernels of their own: partition gives them"),
    Pass("join_parts",     T, T, None, (), ("own_targets",), "partition stores padded parts in full: those of one value must be one before"),
    Pass("join_products",  T, T, None, (), ("own_targets",), "partition gives each product a kernel or none: what is one product must be one before"),
    Pass("split_scatters", T, T, None, (), ("own_targets",), "partition gives each part's table memory; who owns a target must be known"),
    Pass("split_reductions", T, T, None, (), ("own_targets",), "partition fuses what it finds: loops to share out must be there before"),
    Pass("split_softmax",  T, T, None, (), ("own_targets",), "partition keeps a row of scores in local memory where it fits: it must be cut before"),
    Pass("partition",      T, K, None, (*MOVEMENTS, "CONTIGUOUS", "DETACH", "CONTIGUOUS_BACKWARD"), ("masked_sums", "join_parts", "join_products", "split_scatters", "split_reductions", "split_softmax"), "one walk decides buffers and fusion, and turns movement into index arithmetic"),
    Pass("order",          K, K, None, (), ("partition",), "needs the kernels' dependencies"),
    Pass("plan_memory",    K, K, None, (), ("order",), "lifetimes are known once the order is"),
    # each kernel, when it is in no cache
    Pass("simplify",       K, K, simplify, (), ("partition",), "named rules, on the smallest form of the kernel"),
    Pass("simplify_loops", K, K, simplify_loops, (), ("simplify",), "a loop that counts, picks or accumulates along another needs no loop: before loops are costed"),
    Pass("merge_ranges",   K, K, merge_ranges, (), ("simplify_loops",), "fewer, longer loops before tiling"),
    Pass("optimize",       K, K, optimize, (), ("merge_ranges",), "the only pass that chooses: splits, order, threads, vectors"),
    Pass("device_axes",    K, K, device_axes, (), ("optimize",), "lanes of a workgroup share sums through memory: they must be no loops, nor shape, when those are made"),
    Pass("expand",         K, K, lambda s, t: expand(s), (), ("device_axes",), "vector ranges become shape while reductions are still one node"),
    Pass("lower_reduce",   K, K, lambda s, t: lower_reduce(s, not t.workgroups), (), ("expand",), "accumulators need the lanes that expand made"),
    Pass("ahead",          K, K, lambda s, t: ahead(s), (), ("lower_reduce",), "a step ahead of a loop needs the loop, which lower_reduce makes, and registers of its shape"),
    Pass("select",         K, K, select, (), ("ahead",), "decompositions are of values: loops, accumulators and shapes must be what they will be"),
    Pass("linearize",      K, P, lambda s, t: linearize(s), ("SINK",), ("select",), "graph to list, after the last rewrite"),
    Pass("control",        P, P, control, (), ("linearize",), "a branch has a place in a list, none in a graph"),
    # the program: run by the device
    Pass("render",         P, P, None, (), ("control",), "text or machine code, by the target"),
    Pass("launch",         P, C, None, (), ("render",), "a schedule's programs as one command buffer"),
)
# fmt: on


def check_order(rows: Sequence[Pass]) -> None:
    """Names unique, `after` satisfied, stages fit. Raises InternalError naming the pass."""
    seen: dict[str, Pass] = {}
    stage = rows[0].reads
    for row in rows:
        if row.name in seen:
            raise InternalError("two passes of one name", found=row.name)
        missing = [a for a in row.after if a not in seen]
        if missing:
            raise InternalError(f"pass {row.name} stands too early", expected=f"after {missing}", found=list(seen))
        if row.reads != stage:
            raise InternalError(f"pass {row.name} reads another stage", expected=stage, found=row.reads)
        stage = row.leaves
        seen[row.name] = row


check_order(PIPELINE)
KERNEL_PASSES: tuple[Pass, ...] = tuple(p for p in PIPELINE if p.run is not None)


def check_stop_after() -> None:
    """Raises SettingError when STOP_AFTER names no pass."""
    if settings.STOP_AFTER and settings.STOP_AFTER not in (names := [p.name for p in PIPELINE]):
        expected = nearest(settings.STOP_AFTER, names) or "one of " + ", ".join(names)
        raise SettingError("STOP_AFTER names no pass", expected=expected, found=settings.STOP_AFTER)


def lower_kernel(sink: UOp, target: Target, first: str = "", last: str = "") -> UOp:
    """Run the kernel passes on `sink`, from pass `first` to pass `last` (default: all): SINK to LINEAR."""
    names = [p.name for p in KERNEL_PASSES]
    start = names.index(first) if first else 0
    stop = names.index(last) if last else len(names) - 1
    for row in KERNEL_PASSES[start : stop + 1]:
        sink = run_pass(row, sink, target)
        if settings.STOP_AFTER == row.name:
            break
    return sink


# Runs a LINEAR on arguments by slot: arrays, and the values of Variables. The runtime, which knows devices, sets it.
interpret_program: Callable[[UOp, dict[int, Any]], None] | None = None


def run_pass(row: Pass, ir: UOp, target: Target) -> UOp:
    """One pass, traced and verified as the settings ask."""
    assert row.run is not None
    tracing = settings.tracing
    if not tracing and not settings.checks_passes and not settings.DUMP and not settings.CHECK_BOUNDS:
        return row.run(ir, target)
    start = time.perf_counter_ns()
    out = row.run(ir, target)
    elapsed = time.perf_counter_ns() - start
    if settings.checks_passes:
        verify(out, row.leaves, row.removes)
    if settings.CHECK_BOUNDS and (row.name == "optimize" or (row.name == "device_axes" and out is not ir)):
        _check_bounds(row, ir, out)
    _report(row, ir, out, elapsed)
    if settings.VERIFY == 2:
        runner = partial(_run_in_order, target) if interpret_program is not None else None
        skipped = validate(row.name, ir, out, runner)
        if skipped and "passes" in tracing:
            print(f"       {row.name:15} not interpreted: {skipped}", file=sys.stderr)
    return out


def _check_bounds(row: Pass, before: UOp, after: UOp) -> None:
    """Prove the indices that a pass leaves; an error says whether the pass made them."""
    try:
        check_bounds(after)
    except VerifyError as error:
        try:
            check_bounds(before)
        except VerifyError:
            error.message += f"\n  before and after pass {row.name}"
        else:
            error.message += f"\n  after pass {row.name}, not before"
        raise


def _run_in_order(target: Target, ir: UOp, args: dict[int, Any]) -> None:
    """Run a kernel of any stage step by step: what is still a graph is first made a list, by the passes as they stand."""
    assert interpret_program is not None
    if ir.op != "LINEAR":
        seen = isinstance(ir.arg, KernelInfo) and ir.arg.actions is not None
        nest = ir if seen else apply_actions(ir, (), target)  # the optimizer decides the order of loops, always
        nest = device_axes(nest, target)  # lanes are no loops
        ir = linearize(lower_reduce(expand(nest)))
    interpret_program(ir, args)


def _report(row: Pass, before: UOp, after: UOp, elapsed_ns: int) -> None:
    tracing = settings.tracing
    if "passes" in tracing:
        sizes = f"{len(toposort(before)):5} -> {len(toposort(after)):5} nodes"
        print(f"  pass {row.name:15} {elapsed_ns / 1e6:8.3f} ms  {sizes}", file=sys.stderr)
    if "ir" in tracing:
        text = "(unchanged)" if before is after else show(after)
        print(f"--- after {row.name}\n{text}", file=sys.stderr)
    if settings.DUMP:
        os.makedirs(settings.DUMP, exist_ok=True)
        number = [p.name for p in PIPELINE].index(row.name)
        path = os.path.join(settings.DUMP, f"{number:02}-{row.name}.ir")
        with open(path, "a", encoding="utf-8") as f:
            f.write(show(after) + "\n")


def passes() -> list[dict[str, Any]]:
    """The rows as plain data, for `monolect passes`."""
    return [
        {"name": p.name, "reads": p.reads.name, "leaves": p.leaves.name, "removes": p.removes, "why": p.why}
        for p in PIPELINE
    ]
