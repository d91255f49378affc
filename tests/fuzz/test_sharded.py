"""Programs on sharded tensors compute what they compute on one device, and so do their gradients.

A program is a chain of methods on a few operands. Each operand is on one device, sharded along an axis or over a mesh
of two axes, or whole on each of several devices; the operands of the plain program are on one.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import GradientError, Mesh, Tensor, jit
from tests.strategies import often

DEVICES = ("cpu", "cpu:1", "cpu:2", "cpu:3", "cpu:4", "cpu:5")
ON_A_MESH = ("mesh 0 1", "mesh 1 0", "mesh 0 -", "mesh 1 -", "mesh 2 -", "mesh - 0", "mesh 0 0", "mesh 2 1")
PLACEMENTS = ("one", "other", "whole", "axis 0", "axis 1", "axis 2", *ON_A_MESH)
COUNTS = (2, 3, 4, 6)


def assigned(a: np.ndarray) -> Tensor:
    """A tensor of the values whose assignment is not computed yet."""
    t = Tensor(np.zeros_like(a))
    t[...] = Tensor(a)
    return t


def placed(t: Tensor, how: str, devices: tuple[str, ...]) -> Tensor:
    """The tensor on its devices. Parts may be uneven, or empty."""
    if how == "one":
        return t
    if how == "other":
        return t.to(devices[-1])
    if how in ON_A_MESH and len(devices) > 3:
        axes = [None if a == "-" or int(a) >= t.ndim else int(a) for a in how.split()[1:]]
        return t.shard(Mesh(("a", "b"), (2, len(devices) // 2), devices), axes)
    axis = int(how[-1]) if how.startswith("axis") else None
    if axis is None or axis >= t.ndim:
        return t.replicate(devices)
    return t.shard(devices, axis)


def together(how: list[str]) -> list[str]:
    """The placements with at most one operand on a single device, and all operands on a mesh if one is."""
    how = ["one" if h == "other" and "one" in how else h for h in how]  # one device beside the several
    if set(how).isdisjoint(ON_A_MESH):
        return how
    return [f"mesh {h[-1]} -" if h.startswith("axis") else h for h in how]


Step = Callable[[Tensor, list[Tensor], Random], Tensor]


def like(t: Tensor, others: list[Tensor], rng: Random) -> Tensor:
    """An operand in the shape of `t`: another one that broadcasts to it, or `t`."""
    fitting = [
        o
        for o in others
        if o.ndim <= t.ndim and all(a in (1, b) for a, b in zip(o.shape[::-1], t.shape[::-1], strict=False))
    ]
    return rng.choice(fitting) if fitting else t


def product(t: Tensor, others: list[Tensor], rng: Random) -> Tensor:
    fitting = [o for o in others if o.ndim == 2 and t.ndim and o.shape[0] == t.shape[-1]]
    return t @ rng.choice(fitting) if fitting else t * 0.5


def axis(t: Tensor, rng: Random) -> int:
    return rng.randrange(-t.ndim, t.ndim) if t.ndim else -1


def divided_again(t: Tensor, others: list[Tensor], moved: Tensor, rng: Random) -> Tensor:
    """`moved`, divided over the devices of `t` along an axis, so that each device needs a part of it. Parts of unequal
    sizes do not meet operands on a mesh, which would be an error.
    """
    a = axis(moved, rng)
    if not isinstance(t.device, tuple) or not moved.ndim:
        return moved
    is_on_mesh = any(isinstance(x.shard_axis, tuple) for x in (t, *others))
    return moved if is_on_mesh and moved.shape[a] % len(t.device) else moved.shard(t.device, a)


def between(t: Tensor, rng: Random) -> Tensor:
    """Some rows of `t`, one at least."""
    if not t.ndim:
        return t
    first = rng.randrange(t.shape[0])
    return t[first : rng.randrange(first + 1, t.shape[0] + 1)]


STEPS: dict[str, Step] = {
    "add": lambda t, o, r: t + like(t, o, r),
    "mul": lambda t, o, r: like(t, o, r) * t,
    "sub": lambda t, o, r: like(t, o, r) - t,
    "max": lambda t, o, r: t.maximum(like(t, o, r)),
    "where": lambda t, o, r: (t > 0.1).where(t, like(t, o, r)),
    "tanh": lambda t, o, r: t.tanh(),
    "relu": lambda t, o, r: t.relu(),
    "product": product,
    "sum": lambda t, o, r: t.sum(axis(t, r)) if t.ndim else t,
    "sum of all": lambda t, o, r: t.sum() + t * 0.1,
    "mean": lambda t, o, r: t - t.mean(axis(t, r), keepdim=True) if t.ndim else t,
    "amax": lambda t, o, r: t - t.amax(axis(t, r), keepdim=True) if t.ndim else t,
    "softmax": lambda t, o, r: t.softmax(axis(t, r)) if t.ndim else t,
    "layer norm": lambda t, o, r: t.layer_norm(t.shape[-1]) if t.ndim else t,
    "transpose": lambda t, o, r: t.transpose(axis(t, r), axis(t, r)) if t.ndim > 1 else t,
    "unsqueeze": lambda t, o, r: t.unsqueeze(r.randrange(t.ndim + 1)) if t.ndim < 3 else t,
    "expand": lambda t, o, r: t.unsqueeze(0).expand(2, *t.shape).sum(0),
    "cat": lambda t, o, r: Tensor.cat(t, t * 2, dim=0) if t.ndim else t,
    "stack": lambda t, o, r: Tensor.stack(t, t * 2).sum(0),
    "flatten": lambda t, o, r: t.flatten(),
    "folded": lambda t, o, r: t.reshape(-1, t.shape[-1]) if t.ndim else t,
    "part": lambda t, o, r: t[: r.randrange(1, t.shape[0] + 1)] if t.ndim else t,
    "flip": lambda t, o, r: t.flip(axis(t, r)) if t.ndim else t,
    "cumsum": lambda t, o, r: t.cumsum(axis(t, r)) if t.ndim else t,
    "sort": lambda t, o, r: t.sort(axis(t, r))[0].to(t.device) if t.ndim else t,  # it runs on the first device
    "roll": lambda t, o, r: t.roll(r.randrange(4), axis(t, r)) if t.ndim else t,
    "shifted": lambda t, o, r: divided_again(t, o, t.roll(r.randrange(4), axis(t, r)) if t.ndim else t, r),
    "rows between": lambda t, o, r: divided_again(t, o, between(t, r), r),
    "padded": lambda t, o, r: divided_again(
        t, o, t.pad((0, 0) * (t.ndim - 1) + (r.randrange(3), 2)) if t.ndim else t, r
    ),
    "sum divided": lambda t, o, r: divided_again(t, o, t.sum(0) if t.ndim else t, r),
    "cat divided": lambda t, o, r: divided_again(t, o, Tensor.cat(t, t * 2, t[:1], dim=0) if t.ndim else t, r),
    "square": lambda t, o, r: t.square(),
    "rows by index": lambda t, o, r: t[np.array([r.randrange(t.shape[0]) for _ in range(3)])] if t.ndim else t,
    "detached": lambda t, o, r: t * t.detach(),
}
SHAPES = [
    ((8, 8), (8, 8), (8,)),
    ((4, 8), (8, 4), (4,)),
    ((8, 2, 4), (4, 4), (4,)),
    ((4, 3), (3, 8), (3,)),
    ((16,), (16, 8), ()),
    ((7, 5), (5, 7), (5,)),
    ((3, 2, 5), (5, 3), (1,)),
    ((5,), (5, 9), ()),
    ((4, 1), (1, 5), (1, 1)),
]


@settings(max_examples=often(4, 1000))
@given(
    st.sampled_from(SHAPES),
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6),
    st.lists(st.sampled_from(PLACEMENTS), min_size=3, max_size=3),
    st.sampled_from(COUNTS),
    st.integers(0, 9999),
)
def test_programs_do_not_depend_on_where_their_operands_are(
    shapes: tuple[tuple[int, ...], ...], steps: list[str], where: list[str], n: int, seed: int
) -> None:
    arrays = [np.random.default_rng(seed + k).normal(size=s) for k, s in enumerate(shapes)]

    def run(how: list[str]) -> list[np.ndarray]:
        how = together(how)
        made = [assigned(a) if seed % 2 else Tensor(a) for a in arrays]
        leaves = [placed(t, h, DEVICES[:n]).detach() for t, h in zip(made, how, strict=True)]
        for x in leaves:
            x.requires_grad = True
        rng, t = Random(seed), leaves[0]
        for name in steps:
            t = STEPS[name](t, leaves[1:], rng)
        results = [t.numpy()]
        try:
            t.square().sum().backward()
        except GradientError:
            return results
        for x in leaves:
            if x.grad is not None:
                assert x.grad.device == x.device and x.grad.shard_axis == x.shard_axis
            results.append(np.zeros(x.shape) if x.grad is None else x.grad.numpy())
        return results

    for got, wanted in zip(run(where), run(["one"] * 3), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


@settings(max_examples=often(4, 1000))
@given(
    st.sampled_from(SHAPES),
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    st.lists(st.sampled_from(PLACEMENTS), min_size=4, max_size=4),
    st.sampled_from(COUNTS),
    st.lists(st.sampled_from(("call", "lazy", "alias", "realized", "assigned", "copied")), min_size=3, max_size=7),
    st.integers(0, 9999),
)
def test_captured_steps_do_not_depend_on_where_their_tensors_are(
    shapes: tuple[tuple[int, ...], ...], steps: list[str], where: list[str], n: int, around: list[str], seed: int
) -> None:
    """The step reads two operands, updates the third, and is called between uses of all. The last two have one shape
    and may have parts of equal values.
    """
    arrays = [np.random.default_rng(seed + k).normal(size=s) for k, s in enumerate(shapes)]

    def run(how: list[str], is_captured: bool) -> list[np.ndarray]:
        how = together(how)
        values = [*arrays, np.asarray(arrays[2] * 2)]
        given = [
            placed(assigned(a) if seed % 2 else Tensor(a), h, DEVICES[:n]) for a, h in zip(values, how, strict=True)
        ]
        _, read, state, twin = given

        def step(x: Tensor) -> tuple[Tensor, Tensor]:
            rng, t = Random(seed), x
            for name in steps:
                t = STEPS[name](t, [read, state], rng)
            state.assign(state * 0.5 + t.mean().to(state.device))
            if state.ndim and steps[0] < "m":
                state[rng.randrange(state.shape[0]) :] = t.mean().to(state.device)
            return t, state * 2 + twin

        f = jit(step) if is_captured else step
        results: list[Tensor] = []
        for k, what in enumerate(around):
            if what == "copied":
                twin.assign(state)
            x = placed(Tensor(arrays[0] + k), how[0], DEVICES[:n])
            results += f(x)
            if what == "lazy":
                results += [state * 3, read + 1]
            elif what == "alias":
                results.append(state.detach() * 1)
            elif what == "realized":
                results.append((state + k).realize())
            elif what == "assigned":
                read.assign(read + 1)
        return [t.numpy() for t in (*results, state, read, twin)]

    for got, wanted in zip(run(where, True), run(["one"] * 4, False), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
