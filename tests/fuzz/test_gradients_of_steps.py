"""Random steps that clear, set, add to and use gradients, captured, beside the same in PyTorch: after each call every
gradient is what PyTorch leaves, whoever made it. Only one that was not looked at after the first calls may raise as
not kept.
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
    st.tuples(st.just("scale"), leaf), st.tuples(st.just("part"), leaf), st.tuples(st.just("zero"), leaf),
)  # fmt: skip
plans = st.lists(st.lists(inside, min_size=1, max_size=5), min_size=1, max_size=2)
outside = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 1)), st.tuples(st.just("step"), st.integers(0, 1)),
    st.tuples(st.just("step"), st.integers(0, 1)), inside.filter(lambda op: op[0] != "update"),
    st.tuples(st.just("hold"), leaf), st.tuples(st.just("share"), leaf),
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
        elif w.grad is not None and kind == "scale":
            w.grad *= 0.5
        elif w.grad is not None and kind == "zero":
            w.grad.zero_()
        elif w.grad is not None and kind == "part":
            w.grad[0] = w.grad[1] + 1
        elif w.grad is not None:
            new = w.detach() - w.grad.detach() * 0.1
            w.assign(new) if isinstance(w, Tensor) else setattr(w, "data", new)


@settings(max_examples=FEW)
@given(plans, st.lists(outside, min_size=2, max_size=8), st.one_of(st.just(0), st.integers(0, 7)))
def test_gradients_after_replays(plans, program, first_look):
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
    held: list[tuple[Tensor, torch.Tensor]] = []
    for k, (kind, which) in enumerate(program):
        x = np.arange(2, dtype=np.float32) + which + 1
        if kind == "hold":  # a gradient that is added to is the same tensor
            if k >= first_look and theirs[which].grad is not None and isinstance(ours[which]._grad, Tensor):
                held.append((ours[which].grad, theirs[which].grad))
        elif kind == "share":  # a gradient in memory of another tensor
            held.append((Tensor(np.zeros((2, 2), np.float32)), torch.zeros(2, 2)))
            ours[which].grad, theirs[which].grad = held[-1][0][1], held[-1][1][1]
        elif kind != "step":
            run((kind, which), ours, Tensor(x))
            run((kind, which), theirs, torch.tensor(x))
        else:
            plan = plans[which % len(plans)]
            try:
                steps[which % len(plans)](Tensor(x).realize())
            except JitError as e:
                assert first_look and "a gradient that was not kept" in str(e)
                return
            for op in plan:
                run(op, theirs, torch.tensor(x))
        for mine, other in held:
            np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-5)
        for w, t in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(w.numpy(), t.detach().numpy(), rtol=1e-5)
            if k < first_look:
                continue
            try:
                g = w.grad
            except JitError:
                assert t.grad is not None and first_look
                continue
            assert (g is None) == (t.grad is None)
            if g is not None:
                np.testing.assert_allclose(g.numpy(), t.grad.numpy(), rtol=1e-5)
