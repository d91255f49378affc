"""Random steps that clear, set, add to and use gradients, captured, beside the same in PyTorch: after each call every
gradient is what PyTorch leaves, or raises as one that is not kept. A JitError is right where the step meets a gradient
that is not its own.
"""

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import JitError, Tensor, jit

FEW = max(10, settings().max_examples // 2)
N = 3  # leaves
leaf = st.integers(0, N - 1)
inside = st.one_of(
    st.tuples(st.just("clear"), leaf), st.tuples(st.just("clear"), st.just(N)), st.tuples(st.just("set"), leaf),
    st.tuples(st.just("backward"), st.integers(1, 2**N - 1)), st.tuples(st.just("backward"), st.just(2**N - 1)),
    st.tuples(st.just("update"), leaf), st.tuples(st.just("update"), st.just(N)),
)  # fmt: skip
plans = st.lists(st.lists(inside, min_size=1, max_size=5), min_size=1, max_size=2)
outside = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 1)), st.tuples(st.just("step"), st.integers(0, 1)),
    st.tuples(st.just("step"), st.integers(0, 1)), inside.filter(lambda op: op[0] != "update"),
)  # fmt: skip


def run(op: tuple[str, int], leaves: list[Any], x: Any) -> None:
    """One operation on the gradients of the leaves, Tensors of either library."""
    kind, which = op
    chosen = leaves if which == N else [leaves[which % N]]
    if kind == "backward":
        sum((w * x * (k + 1)).sum() for k, w in enumerate(leaves) if which >> k & 1).backward()
    for w in chosen if kind != "backward" else ():
        if kind == "clear":
            w.grad = None
        elif kind == "set":
            w.grad = x.detach() * 2 + w.detach()
        elif w.grad is not None:
            new = w.detach() - w.grad.detach() * 0.1
            w.assign(new) if isinstance(w, Tensor) else setattr(w, "data", new)


def meets_others(plan: list[tuple[str, int]], leaves: list[Any]) -> bool:
    """Whether the step reads or adds to a gradient that it did not make."""
    foreign = [w.grad is not None for w in leaves]
    for kind, which in plan:
        chosen = range(N) if which == N else [which % N]
        if kind == "backward" and any(f and which >> k & 1 for k, f in enumerate(foreign)):
            return True
        if kind == "update" and any(foreign[k] for k in chosen):
            return True
        if kind in ("clear", "set"):
            for k in chosen:
                foreign[k] = False
    return False


@settings(max_examples=FEW)
@given(plans, st.lists(outside, min_size=2, max_size=8))
def test_gradients_after_replays(plans, program):
    starts = [np.full(2, k + 1, np.float32) for k in range(N)]
    ours = [Tensor(a.copy(), requires_grad=True).realize() for a in starts]
    theirs = [torch.tensor(a, requires_grad=True) for a in starts]

    def made(plan: list[tuple[str, int]]) -> Any:
        def step(x: Tensor) -> Tensor:
            for op in plan:
                run(op, ours, x)
            return x + 1

        return jit(step)

    steps = [made(plan) for plan in plans]
    for kind, which in program:
        x = np.arange(2, dtype=np.float32) + which + 1
        if kind != "step":
            run((kind, which), ours, Tensor(x))
            run((kind, which), theirs, torch.tensor(x))
        else:
            plan = plans[which % len(plans)]
            try:
                steps[which % len(plans)](Tensor(x).realize())
            except JitError:
                assert meets_others(plan, theirs)
                return
            for op in plan:
                run(op, theirs, torch.tensor(x))
        for w, t in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(w.numpy(), t.detach().numpy(), rtol=1e-5)
            try:
                g = w.grad
            except JitError:
                assert t.grad is not None
                continue
            assert (g is None) == (t.grad is None)
            if g is not None:
                np.testing.assert_allclose(g.numpy(), t.grad.numpy(), rtol=1e-5)
