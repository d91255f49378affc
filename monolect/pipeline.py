"""Define the order of the compiler's passes (PIPELINE), and run, verify and trace them.

Each row gives the stages that a pass reads and leaves, the ops that it removes, the passes that must run before it, and
the reason for its position. The rows are checked at import. VERIFY=1 verifies the IR after every pass. VERIFY=2 also
interprets kernels before and after each pass (`runtime.realize.verified` compares the results of programs).
CHECK_BOUNDS=1 proves every index once the final loops are known. TRACE=passes times each pass, and TRACE=ir prints the
IR that it changed.

Passes know no device: the capabilities of a target reach them as data (`base.target`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from monolect.backend.common.programs import ProgramDevice
from monolect.backend.registry import Device
from monolect.base.errors import InternalError, SettingError, VerifyError, nearest
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.command.check import check as check_step
from monolect.command.passes import COMMAND, Pass
from monolect.ir.check.custom_kernels import has_axes
from monolect.ir.check.prove import check_bounds
from monolect.ir.check.validate import validate
from monolect.ir.check.verify import verify
from monolect.ir.ops import KernelInfo, ProgramInfo, Stage
from monolect.ir.rewrite.identities import IDENTITIES
from monolect.ir.rewrite.index import as_sums
from monolect.ir.rewrite.named_rules import Family
from monolect.ir.text import show
from monolect.ir.uop import UOp, node, nodes_of, toposort
from monolect.lower import reduce
from monolect.lower.blocked_sums import fold_sums
from monolect.lower.cold_paths import branch_cold_paths
from monolect.lower.control import control
from monolect.lower.demote import demote_registers
from monolect.lower.expand import expand
from monolect.lower.gpu.device_axes import device_axes
from monolect.lower.linearize import linearize
from monolect.lower.matrix_products import matrix_units
from monolect.lower.peel_last import peel_last
from monolect.lower.reduce import lower_reduce
from monolect.lower.select import select
from monolect.lower.software_pipeline import ahead
from monolect.optimize.actions import plan as actions
from monolect.optimize.apply import apply, apply_actions, choose_actions
from monolect.optimize.merge import merge_ranges
from monolect.rules import algebra, decompose, flat, legalize
from monolect.rules.algebra import simplify
from monolect.rules.loops import concat as joined
from monolect.rules.loops import concat_boundaries as seams
from monolect.rules.loops import reductions as loops
from monolect.rules.loops.concat import read_at_once, stored_apart
from monolect.rules.loops.concat_boundaries import split_seams
from monolect.rules.loops.reductions import simplify_loops
from monolect.schedule.callify import callify
from monolect.schedule.materialize import own_targets
from monolect.schedule.order import order, partition, strip_markers
from monolect.schedule.result import Schedule, schedule_of
from monolect.schedule.rewrites.closed_forms import closed_forms
from monolect.schedule.rewrites.join_parts import join_parts
from monolect.schedule.rewrites.join_products import join_products
from monolect.schedule.rewrites.masked_sums import masked_sums
from monolect.schedule.rewrites.shard import shard
from monolect.schedule.rewrites.split_reductions import split_reductions
from monolect.schedule.rewrites.split_scatters import split_scatters
from monolect.schedule.rewrites.split_softmax import split_softmax

T, K, P, C = Stage.TENSOR, Stage.KERNEL, Stage.PROGRAM, Stage.COMMAND


def _each(rewrite: Callable[[list[UOp]], list[UOp]]) -> Callable[[UOp, Target], UOp]:
    """Turn a rewrite of a list of values into a pass on the TUPLE of the values."""
    return lambda values, target: node("TUPLE", tuple(rewrite([*values.src])))


def _loops(rewrite: Callable[[UOp, Target], UOp]) -> Callable[[UOp, Target], UOp]:
    """Turn a rewrite of loops into a pass that skips kernels whose axis types the user wrote."""
    return lambda sink, target: sink if has_axes(nodes_of(sink)) else rewrite(sink, target)


def _scratch_bytes(target: Target) -> int:
    """Return the bytes of scratch memory of a thread, for rows between loops of a kernel; 0 with workgroups."""
    return 0 if target.workgroups else target.local_bytes


MOVEMENTS = ("PERMUTE", "FLIP", "EXPAND", "PAD", "SHRINK", "IOTA")

# fmt: off
GRAPH: tuple[Pass, ...] = (  # a batch of values: TUPLE to TUPLE, then to CALLs
    Pass("shard",            T, T, _each(shard), ("REPLICATED",), (), "a value on several devices becomes one value a device and copies, so later passes see one device only"),
    Pass("callify",          T, T, lambda v, t: callify(v), (), ("shard",), "inputs become PARAMs, so equal steps are equal keys of the schedule cache"),
    Pass("strip_markers",    T, T, _each(strip_markers), (), ("callify",), "a requested marker and the value below it share one buffer"),
    Pass("own_targets",      T, T, _each(own_targets), (), ("strip_markers",), "a partial assign needs a private buffer before partition chooses buffers"),
    Pass("closed_forms",     T, T, _each(closed_forms), (), ("own_targets",), "a running sum of ones must be an index before masked_sums looks for masks", optional=True),
    Pass("masked_sums",      T, T, lambda v, t: _each(lambda roots: masked_sums(roots, _scratch_bytes(t)))(v, t), (), ("closed_forms",), "the counts of values that are not finite are separate kernels, which partition creates", optional=True),
    Pass("join_parts",       T, T, _each(join_parts), (), ("own_targets",), "partition would store each padded part in full, so the parts are concatenated before it", optional=True),
    Pass("join_products",    T, T, _each(join_products), (), ("own_targets",), "partition would give each product a kernel, so products are joined before it", optional=True),
    Pass("split_scatters",   T, T, _each(split_scatters), (), ("own_targets",), "partition allocates the tables; own_targets has settled which value owns a target", optional=True),
    Pass("split_reductions", T, T, _each(split_reductions), (), ("own_targets",), "partition fuses reductions, so parallel parts must exist before it", optional=True),
    Pass("split_softmax",    T, T, lambda v, t: _each(lambda roots: split_softmax(roots, _scratch_bytes(t)))(v, t), (), ("own_targets",), "partition keeps a row of scores in local memory if it fits, so longer rows are cut before it", optional=True),
    Pass("partition",        T, C, lambda v, t: partition(v, t.name, _scratch_bytes(t)), (*MOVEMENTS, "CONTIGUOUS", "DETACH", "CONTIGUOUS_BACKWARD"), ("masked_sums", "join_parts", "join_products", "split_scatters", "split_reductions", "split_softmax"), "one walk chooses buffers and fusion, and turns movement into index arithmetic"),
    Pass("order",            C, C, lambda s, t: order(s), ("GROUP",), ("partition",), "the order follows from the dependencies between kernels, which partition finds"),
)
BEFORE_PARAMS = 2  # passes of GRAPH; the others take a batch over PARAMs, which `callify` leaves
KERNEL: tuple[Pass, ...] = (  # each kernel, when it is in no cache: SINK to LINEAR
    Pass("simplify",       K, K, simplify, (), ("partition",), "the algebra rules run on the smallest form of a kernel"),
    Pass("stored_apart",   K, K, _loops(lambda s, t: stored_apart(s, own_loops=not t.workgroups)), (), ("simplify",), "an output loop that only selects among concatenated pieces becomes a store per piece, before loop rules see its condition", optional=True),
    Pass("split_seams",    K, K, _loops(lambda s, t: split_seams(s)), (), ("stored_apart",), "loops over concatenated scratch rows are split at the concat boundary, which removes conditions before loops are simplified", optional=True),
    Pass("read_at_once",   K, K, _loops(lambda s, t: read_at_once(s)), (), ("split_seams",), "the remaining selections between concatenated rows become one load", optional=True),
    Pass("simplify_loops", K, K, simplify_loops, (), ("read_at_once",), "loops that only count, pick or extend a running sum are removed before loops are costed", optional=True),
    Pass("merge_ranges",   K, K, merge_ranges, (), ("simplify_loops",), "fewer, longer loops before tiling", optional=True),
    Pass("choose",         K, K, choose_actions, (), ("merge_ranges",), "the only pass that chooses: splits, order, threads, vectors; on the loops that are left"),
    Pass("apply",          K, K, apply, (), ("choose",), "loops are what the actions make of them before they become lanes"),
    Pass("device_axes",    K, K, device_axes, (), ("apply",), "lanes of a workgroup share sums through memory, so they must not become loops or shape"),
    Pass("expand",         K, K, lambda s, t: expand(s), (), ("device_axes",), "vector ranges become shape while reductions are still one node"),
    Pass("peel_last",      K, K, lambda s, t: s if t.workgroups else peel_last(s), (), ("expand",), "expand turns masks of the last vector into conditions; where lanes are threads, masks cost nothing", optional=True),
    Pass("fold_sums",      K, K, lambda s, t: s if t.workgroups else fold_sums(s), (), ("peel_last",), "the number of values per accumulator is known once the last iteration is peeled", optional=True),
    Pass("lower_reduce",   K, K, lambda s, t: lower_reduce(s), (), ("fold_sums",), "accumulators have the lanes that expand made"),
    Pass("ahead",          K, K, lambda s, t: ahead(s), (), ("lower_reduce",), "pipelining needs the loops that lower_reduce makes, and registers of their shape", optional=True),
    Pass("demote_registers", K, K, demote_registers, (), ("ahead",), "the indexed registers are known once loops and accumulators are final"),
    Pass("matrix_units",   K, K, matrix_units, (), ("demote_registers",), "a product of tiles is a pattern of casts and sums, which select would decompose"),
    Pass("select",         K, K, select, (), ("matrix_units",), "decompositions are elementwise, so loops, accumulators and shapes must be final"),
    Pass("seldom",         K, K, branch_cold_paths, (), ("select",), "the branch for rare lanes encloses the decomposed value that select makes", optional=True),
    Pass("linearize",      K, P, lambda s, t: linearize(as_sums(s)), ("SINK",), ("seldom",), "the graph becomes a list after the last rewrite of the graph"),
    Pass("control",        P, P, control, (), ("linearize",), "a branch has a position in a list, but none in a graph"),
)
MACHINE: tuple[Pass, ...] = (  # each program: LINEAR to PROGRAM
    Pass("render",         P, P, lambda s, t: render(s, t), (), ("control",), "the program becomes text of the target's language after the last rewrite"),
    Pass("compile",        P, P, lambda s, t: compile_program(s, t), (), ("render",), "the text becomes machine code, if the device has a compiler that returns it"),
)
PIPELINE: tuple[Pass, ...] = (*GRAPH, *KERNEL, *MACHINE, *COMMAND)
# fmt: on


def check_order(*sections: Sequence[Pass]) -> None:
    """Check that names are unique, `after` is satisfied and stages fit within each section. Raises InternalError."""
    seen: dict[str, Pass] = {}
    stage = sections[0][0].reads
    for row in (row for rows in sections for row in rows):
        stage = row.reads if any(row is rows[0] for rows in sections) else stage
        if row.name in seen:
            raise InternalError("two passes of one name", found=row.name)
        missing = [a for a in row.after if a not in seen]
        if missing:
            raise InternalError(f"pass {row.name} comes too early", expected=f"after {missing}", found=list(seen))
        if row.reads != stage:
            raise InternalError(f"pass {row.name} reads another stage", expected=stage, found=row.reads)
        stage = row.leaves
        seen[row.name] = row


check_order(GRAPH, KERNEL, MACHINE, COMMAND)


FAMILIES: tuple[Family, ...] = (  # families of rules and actions, in the order in which they apply to a program
    IDENTITIES, flat.ROWS, algebra.ROWS, joined.ROWS, seams.ROWS, loops.ROWS, actions.ROWS, reduce.ROWS, legalize.ROWS, decompose.ROWS,
)  # fmt: skip


def needed() -> dict[str, str]:
    """Return all names of rules, passes and actions, each with the reason why it cannot be switched off ("" if it can)."""
    rows = {row.name: row.needed for family in FAMILIES for row in family.rows.values()}
    return rows | {row.name: "" if row.optional else "no other pass does its lowering" for row in PIPELINE}


def check_disabled(names: Sequence[str]) -> None:
    """Check names in DISABLE. Raises SettingError for an unknown name, or one that cannot be switched off."""
    known = needed()
    for name in names:
        if name not in known:
            hint = nearest(name, known) or "a name that `monolect rules` or `monolect passes` prints"
            raise SettingError("DISABLE names no rule, pass or action", expected=hint, found=name)
        if known[name]:
            expected = "a row that `monolect rules` or `monolect passes` gives no reason for"
            raise SettingError(f"cannot be switched off: {known[name]}", expected=expected, found=name)


def check_stop_after() -> None:
    """Check that STOP_AFTER is empty or names a pass. Raises SettingError."""
    if settings.STOP_AFTER and settings.STOP_AFTER not in (names := [p.name for p in PIPELINE]):
        expected = nearest(settings.STOP_AFTER, names) or "one of " + ", ".join(names)
        raise SettingError("STOP_AFTER names no pass", expected=expected, found=settings.STOP_AFTER)


def lower_kernel(sink: UOp, target: Target, first: str = "", last: str = "") -> UOp:
    """Run the kernel passes from `first` to `last` (default: all) on a kernel: from a SINK to a LINEAR."""
    names = [p.name for p in KERNEL]
    start = names.index(first) if first else 0
    stop = names.index(last) if last else len(names) - 1
    for row in KERNEL[start : stop + 1]:
        sink = run_pass(row, sink, target)
        if settings.STOP_AFTER == row.name:
            break
    return sink


def ready_kernel(sink: UOp, target: Target) -> UOp:
    """Return a kernel as it is when its actions are chosen, for reports: without tracing and verification."""
    for row in KERNEL:
        if row.name == "choose":
            break
        if row.name not in settings.disabled:
            sink = row.run(sink, target)
    return sink


def render(linear: UOp, target: Target) -> UOp:
    """Return PROGRAM(LINEAR, SOURCE) of a LINEAR, rendered separately; devices compile several programs together."""
    info = linear.arg if isinstance(linear.arg, KernelInfo) else KernelInfo()
    device = Device[target.name]
    if isinstance(device, ProgramDevice):
        source = device.render([(SYMBOL, linear)])
    else:
        (program,) = device.compile([(info.name, f"render/{info.name}", linear)])
        source = program.source
    return node("PROGRAM", (linear, node("SOURCE", (), source)), ProgramInfo(info.name, threads=info.threads))


def compile_program(program: UOp, target: Target) -> UOp:
    """Return the PROGRAM with its BINARY, or the same PROGRAM if the compiler of the device returns no machine code."""
    device = Device[target.name]
    code = device.build(program.src[1].arg)[1] if isinstance(device, ProgramDevice) else b""
    return node("PROGRAM", (*program.src[:2], node("BINARY", (), code)), program.arg) if code else program


def inspect_program(linear: UOp, target: Target) -> None:
    """Run `render` and `compile` on one program, if a setting prints, dumps or stops after these passes.

    Raises SettingError if STOP_AFTER names one of them.
    """
    if settings.DUMP or settings.tracing & {"passes", "ir"} or settings.STOP_AFTER in [row.name for row in MACHINE]:
        for row in MACHINE:
            linear = run_pass(row, linear, target)
            if settings.STOP_AFTER == row.name:
                raise nothing_to_run()


SYMBOL = "kernel"  # name of the function in a program that is rendered separately
NO_TARGET = Target("any", frozenset())  # argument of passes that need no target


def schedule(roots: Sequence[UOp], device: str, local_bytes: int = 0) -> Schedule:
    """Return the schedule of values whose inputs are PARAMs, for the device of that name.

    `local_bytes`: scratch memory of a thread of the device.
    """
    return schedule_of(scheduled(node("TUPLE", tuple(roots)), Target(device, frozenset(), local_bytes=local_bytes)))


def scheduled(values: UOp, target: Target) -> UOp:
    """Run the graph passes after `callify` on a TUPLE of values. Raises SettingError if STOP_AFTER names one."""
    check_stop_after()
    for row in GRAPH[BEFORE_PARAMS:]:
        values = run_pass(row, values, target)
        if settings.STOP_AFTER == row.name:
            raise nothing_to_run()
    return values


def nothing_to_run() -> SettingError:
    """Return the error for running a program while STOP_AFTER names a pass."""
    expected = "'' to run a program, or `monolect run` to look at one"
    return SettingError("STOP_AFTER leaves nothing to run", expected=expected, found=settings.STOP_AFTER)


# Function that runs a LINEAR on arguments by slot: arrays and values of Variables. The runtime sets it.
interpret_program: Callable[[UOp, dict[int, Any]], None] | None = None


def run_pass(row: Pass, ir: UOp, target: Target) -> UOp:
    """Run a pass, with the tracing and verification of the settings; a pass in DISABLE is skipped."""
    if row.name in settings.disabled:
        return ir
    tracing = settings.tracing
    if not tracing and not settings.checks_passes and not settings.DUMP and not settings.CHECK_BOUNDS:
        return row.run(ir, target)
    start = time.perf_counter_ns()
    out = row.run(ir, target)
    elapsed = time.perf_counter_ns() - start
    if settings.checks_passes:
        verify(out, row.leaves, row.removes)
        if row.name == "dependencies":
            check_step(out)
    if settings.CHECK_BOUNDS and (row.name == "apply" or (row.name == "device_axes" and out is not ir)):
        _check_bounds(row, ir, out)
    _report(row, ir, out, elapsed)
    if settings.VERIFY == 2 and row in KERNEL:
        runner = partial(_run_in_order, target) if interpret_program is not None else None
        skipped = validate(row.name, ir, out, runner)
        if skipped and "passes" in tracing:
            print(f"       {row.name:15} not interpreted: {skipped}", file=sys.stderr)
    return out


def _check_bounds(row: Pass, before: UOp, after: UOp) -> None:
    """Prove the indices in the result of a pass; the error says whether they were unproven before the pass, too."""
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
    """Run a kernel of any stage in an interpreter of programs; a graph is first lowered to a LINEAR by the passes."""
    assert interpret_program is not None
    if ir.op != "LINEAR":
        is_applied = isinstance(ir.arg, KernelInfo) and ir.arg.is_applied
        nest = ir if is_applied else apply_actions(ir, (), target)  # without actions it still orders the loops
        nest = device_axes(nest, target)  # lanes are no loops
        ir = linearize(as_sums(lower_reduce(expand(nest))))
    interpret_program(ir, args)


def _report(row: Pass, before: UOp, after: UOp, elapsed_ns: int) -> None:
    """Print or dump the result of a pass, as TRACE and DUMP ask."""
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
    """Return the rows of PIPELINE as plain data, for `monolect passes`."""
    return [
        {"name": p.name, "reads": p.reads.name, "leaves": p.leaves.name, "removes": p.removes, "why": p.why}
        for p in PIPELINE
    ]


__all__ = [
    "BEFORE_PARAMS",
    "FAMILIES",
    "GRAPH",
    "KERNEL",
    "MACHINE",
    "PIPELINE",
    "check_disabled",
    "check_order",
    "check_stop_after",
    "compile_program",
    "inspect_program",
    "lower_kernel",
    "needed",
    "nothing_to_run",
    "passes",
    "render",
    "run_pass",
    "schedule",
    "scheduled",
]
