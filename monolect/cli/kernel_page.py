"""One kernel on one page, for people: `explain_kernel`.

From the user's line over what the kernel computes, the actions on its loops with their reasons and the loops that they
leave, to its IR and the generated code. Used by `monolect explain` and the demo.

What it is not: part of a run. A kernel is taken through the passes again, which choose the same; what a search found
is known.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence

from monolect.backend.registry import Device
from monolect.base.target import Target
from monolect.command.forms import kernel_of
from monolect.ir.ops import KernelInfo
from monolect.ir.placement import memory_of
from monolect.ir.pseudocode import pseudocode
from monolect.ir.rewrite.calls import stored_slots
from monolect.ir.text import show
from monolect.ir.uop import UOp, toposort
from monolect.optimize.actions.plan import Action, LoopPlan
from monolect.optimize.cpu.heuristic import choose
from monolect.pipeline import lower_kernel
from monolect.runtime.profile import KernelRun, device_of, origin_of, origins
from monolect.runtime.realize.lowering import READY, searched
from monolect.runtime.realize.programs import loaded

# what the types of loops mean; the optimizer gives all but LOOP and REDUCE
_TYPES = {
    "GLOBAL": "workgroups",
    "LOCAL": "lanes of a workgroup",
    "WARP": "lanes of a warp",
    "THREAD": "shared out to threads",
    "LOOP": "runs in order",
    "REDUCE": "adds up in order",
    "GROUP_REDUCE": "adds up side by side",
    "UPCAST": "in vectors and registers",
    "UNROLL": "written out",
    "CONTRACT": "inside a matrix unit",
}


def explain_kernel(k: KernelRun, runs: Sequence[KernelRun] = (), brief: bool = False) -> str:
    """The page of `k`, which ran as `runs`; a brief one leaves out IR and code."""
    sink = kernel_of(k.call)
    head = [
        f"kernel {k.name}",
        f"from   {origin_of(k.call)}".rstrip(),
        *_lines(sink),
        f"ran    {_speed(k, runs or (k,))}",
    ]
    if sink.op == "CUSTOMFUNCTION":
        return "\n".join([*head, "native code of the user's"])
    if isinstance(sink.arg, KernelInfo) and sink.arg.fills:
        return "\n".join([*head, "packs blocks of constants for the kernels of its step, once"])
    target = Device[device_of(k.call)].target
    (ready,) = searched([lower_kernel(sink, target, last=READY)], device_of(k.call))
    done = lower_kernel(ready, target, first="choose", last="apply")
    actions = (done.arg or KernelInfo()).actions or ()
    out = [*head, "buffers", *_buffers(k.call), "computes", _indented(pseudocode(ready))]
    plan = LoopPlan(ready, target)
    out += ["actions", *(_actions(plan, actions, _reasons(ready, actions, target)) or ["  none"])]
    out += ["loops", *_loops(plan)]
    if not brief:
        out += ["kernel IR", show(sink), "generated code", loaded[k.call.src[0]].source or "(loaded from the cache)"]
    return "\n".join(out)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _lines(sink: UOp) -> Iterator[str]:
    """The source of the user's lines behind a kernel, three at most."""
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


def _buffers(call: UOp) -> Iterator[str]:
    """The arguments of a kernel by the names that `computes` gives them."""
    order = toposort(kernel_of(call))
    written = stored_slots(kernel_of(call))
    read = {memory_of(u.src[0]) for u in order if u.op == "LOAD"}
    for p in sorted((u for u in order if u.op == "PARAM" and u.shape), key=lambda p: p.arg.slot):
        words = [word for word, does in (("read", p in read), ("written", p.arg.slot in written)) if does]
        yield f"  p{p.arg.slot} {p.dtype.short}[{', '.join(map(str, p.shape))}] {' and '.join(words)}".rstrip()


def _reasons(ready: UOp, actions: tuple[Action, ...], target: Target) -> list[str]:
    """Why each action, where the cost model and no search chose them; else none."""
    if not actions or (ready.arg or KernelInfo()).actions:
        return []
    chosen = LoopPlan(ready, target)
    reasons = choose(chosen)
    return reasons if tuple(chosen.actions) == tuple(actions) else []


def _actions(plan: LoopPlan, actions: tuple[Action, ...], reasons: Sequence[str]) -> list[str]:
    """A line an action: what it was, of which loop, and why. Acts on the loops of `plan`."""
    out = []
    for i, action in enumerate(actions):
        axes = plan.axes
        on_loop = action[0] in ("SPLIT", "PADTO", "SWAP", "PEEL", "BOUND", "TC") and isinstance(action[1], int)
        plan.act(action)
        text = f"  {action}"
        if reasons:
            text = f"{text:44}  # {f'r{axes[action[1]].root.arg[0]}: ' if on_loop else ''}{reasons[i]}"
        out.append(text)
    return out


def _loops(plan: LoopPlan) -> Iterator[str]:
    """A line a loop of `computes`: the parts the actions made of it, outer ones first; then what the types mean."""
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
