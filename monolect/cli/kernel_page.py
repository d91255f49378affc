"""Describe one kernel on one page for people: `explain_kernel`, for `monolect explain` and the demo.

The page goes from the user's line to the formulas of the kernel, the actions on its loops with their reasons, the
resulting loops, the IR and the generated code.

What it is not: part of a run. The kernel goes through the passes again, which make the same choices; actions that a
BEAM search found are read from its cache.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence

from monolect.backend.common.host.native import NativeDevice
from monolect.backend.common.host.rates import with_rates
from monolect.backend.registry import Device
from monolect.base.target import Target
from monolect.command.forms import is_allreduce, kernel_of, operands_of
from monolect.ir.collective import sum_of
from monolect.ir.ops import KernelInfo
from monolect.ir.placement import memory_of
from monolect.ir.pseudocode import pseudocode
from monolect.ir.rewrite.calls import stored_slots
from monolect.ir.text import show
from monolect.ir.uop import UOp, toposort
from monolect.optimize.actions.plan import ACTIONS, Action, LoopPlan
from monolect.optimize.classes import MEANINGS, classify
from monolect.optimize.cpu.heuristic import choose
from monolect.optimize.weighed import predicted, weighed
from monolect.pipeline import lower_kernel
from monolect.runtime.profile import KernelRun, device_of, how, origin_of, origins
from monolect.runtime.realize.lowering import READY, searched
from monolect.runtime.realize.programs import loaded

# axis type -> its meaning; the optimizer assigns all types except LOOP and REDUCE
_TYPES = {
    "GLOBAL": "workgroups",
    "LOCAL": "lanes of a workgroup",
    "WARP": "lanes of a warp",
    "THREAD": "split over threads",
    "LOOP": "runs in order",
    "REDUCE": "reduces in order",
    "GROUP_REDUCE": "reduces in parallel",
    "UPCAST": "in vectors and registers",
    "UNROLL": "unrolled",
    "CONTRACT": "inside a matrix unit",
}


def explain_kernel(k: KernelRun, runs: Sequence[KernelRun] = (), brief: bool = False, why: bool = False) -> str:
    """Return the page of the kernel `k`, which ran as `runs`; with `brief`, without IR and code; with `why`, with the
    candidates that the heuristic weighed.
    """
    ran = f"ran    {_speed(k, runs or (k,))}"
    if k.call.op != "CALL":
        return "\n".join(["copy", f"moves  {_shape(operands_of(k.call)[1])} {how(k.call)}", ran])
    sink = kernel_of(k.call)
    head = [f"kernel {k.name}", f"from   {origin_of(k.call)}".rstrip(), *_lines(sink), ran]
    if is_allreduce(k.call):
        s = sum_of(sink)
        value = f"{s.n} values {_shape(operands_of(k.call)[0])} by {s.op}, in the order of the ranks"
        return "\n".join([*head, f"adds   {value}", f"moves  {how(k.call)}"])
    if sink.op == "CUSTOMFUNCTION":
        return "\n".join([*head, "native code of the user's"])
    if isinstance(sink.arg, KernelInfo) and sink.arg.fills:
        return "\n".join([*head, "packs blocks of constants for the kernels of its step, once"])
    target = Device[device_of(k.call)].target
    (ready,) = searched([lower_kernel(sink, target, last=READY)], device_of(k.call))
    done = lower_kernel(ready, target, first="choose", last="apply")
    actions = (done.arg or KernelInfo()).actions or ()
    kind = classify(ready)
    out = [head[0], f"class  {kind}: {MEANINGS[kind]}", *head[1:]]
    out += ["buffers", *_buffers(k.call), "computes", _indented(pseudocode(ready))]
    plan = LoopPlan(ready, target)
    out += ["actions", *(_actions(plan, actions, _reasons(ready, actions, target)) or ["  none"])]
    out += ["loops", *_loops(plan)]
    if why:
        is_host = isinstance(Device[device_of(k.call)], NativeDevice)
        out += ["predicted", *predicted(ready, actions, with_rates(target) if is_host else target)]
        out += ["weighed", *weighed(ready, target)]
    if not brief:
        out += ["kernel IR", show(sink), "generated code", loaded[k.call.src[0]].source or "(loaded from the cache)"]
    return "\n".join(out)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _lines(sink: UOp) -> Iterator[str]:
    """Yield the user's source lines that built a kernel, three at most."""
    lines = list(dict.fromkeys((file, number) for file, number, _ in origins(sink)))
    for file, number in sorted(lines[:3]):
        if text := linecache.getline(file, number).strip():
            yield f"  {number}: {text}"


def _speed(k: KernelRun, runs: Sequence[KernelRun]) -> str:
    ns = max(1, min(r.time_ns for r in runs))
    often = f"{len(runs)} times, at best" if len(runs) > 1 else "once,"
    return (
        f"{often} in {ns / 1e3:.1f} us: {k.n_ops} operations, {k.n_bytes} bytes,"
        f" {k.n_ops / ns:.2f} GFLOP/s, {k.n_bytes / ns:.2f} GB/s"
    )


def _shape(u: UOp) -> str:
    """Return the dtype and shape of a buffer as text."""
    return f"{u.dtype.short}[{', '.join(map(str, u.shape))}]"


def _buffers(call: UOp) -> Iterator[str]:
    """Yield a line for each buffer of a kernel: its name in the formulas, dtype, shape, and whether it is read or
    written.
    """
    order = toposort(kernel_of(call))
    written = stored_slots(kernel_of(call))
    read = {memory_of(u.src[0]) for u in order if u.op == "LOAD"}
    for p in sorted((u for u in order if u.op == "PARAM" and u.shape), key=lambda p: p.arg.slot):
        words = [word for word, does in (("read", p in read), ("written", p.arg.slot in written)) if does]
        yield f"  p{p.arg.slot} {_shape(p)} {' and '.join(words)}".rstrip()


def _reasons(ready: UOp, actions: tuple[Action, ...], target: Target) -> list[str]:
    """Return a reason for each action if the cost model chose them; [] if a search or the kernel itself did."""
    if not actions or (ready.arg or KernelInfo()).actions:
        return []
    chosen = LoopPlan(ready, target)
    reasons = choose(chosen)
    return reasons if tuple(chosen.actions) == tuple(actions) else []


def _actions(plan: LoopPlan, actions: tuple[Action, ...], reasons: Sequence[str]) -> list[str]:
    """Return a line for each action with its loop and its reason; applies the actions to `plan`."""
    out = []
    for i, action in enumerate(actions):
        axes = plan.axes
        on_loop = ACTIONS[action[0]].subject == "axis" and isinstance(action[1], int)
        plan.act(action)
        text = f"  {action}"
        if reasons:
            text = f"{text:44}  # {f'r{axes[action[1]].root.arg[0]}: ' if on_loop else ''}{reasons[i]}"
        out.append(text)
    return out


def _loops(plan: LoopPlan) -> Iterator[str]:
    """Yield a line for each loop with the axes that the actions made of it, outer ones first; then the meanings of the
    axis types.
    """
    for root in (*plan.outputs, *plan.reduced):
        parts = sorted((p for p in plan.axes if p.root is root), key=lambda p: -p.stride)
        padded = f", padded to a multiple of {plan.padded[root]}" if root in plan.padded else ""
        parts = [p for p in parts if p.size != 1] or parts[-1:]
        text = " x ".join(f"{p.size or 'n'} {p.type}" for p in parts)
        yield f"  r{root.arg[0]}: {plan.size(root) or 'n'}{padded} = {text}"
    types = dict.fromkeys(p.type for p in plan.axes)
    if types:
        yield "  (" + "; ".join(f"{t}: {_TYPES[t]}" for t in types) + ")"


__all__ = ["explain_kernel"]
