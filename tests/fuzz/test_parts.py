"""Random parts of tensors, read and written in turn, against NumPy, which is told the places that PyTorch finds."""

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Tensor, dtypes, jit
from monolect.base.dtype import to_numpy

Draw = Any
FEW = max(10, settings().max_examples // 5)
SIZES = (0, 1, 2, 3, 5, 8, 17, 33)
TYPES = (dtypes.float32, dtypes.int64, dtypes.uint8, dtypes.bool, dtypes.uint64, dtypes.float16)


def slices(draw: Draw, n: int) -> slice:
    ends = st.none() | st.integers(-n - 2, n + 2)
    return slice(draw(ends), draw(ends), draw(st.sampled_from((None, 1, 2, 3, -1, -2))))


def key(draw: Draw, shape: tuple[int, ...], once: bool) -> list[Any]:
    """One item an axis: a number, a slice, an array; with `once`, no element is named twice."""
    items: list[Any] = []
    for n in shape[: draw(st.integers(0, len(shape)))]:
        arrays = sum(isinstance(i, np.ndarray) for i in items)
        kind = draw(st.sampled_from(("slice", "slice", "number", "array") if n else ("slice",)))
        if kind == "number":
            items.append(draw(st.integers(-n, n - 1)))
        elif kind == "array" and not (once and arrays):
            places = draw(st.lists(st.integers(0, n - 1), max_size=4, unique=once))
            items.append(np.array(places if once or not arrays else places[:1], np.int64).reshape(-1))
        else:
            items.append(slices(draw, n))
    return items


def places(shape: tuple[int, ...], items: list[Any]) -> np.ndarray:
    """Which elements a key names. PyTorch has no negative steps: slices are taken one axis at a time."""
    at = torch.arange(int(np.prod(shape))).reshape(shape)
    rest: list[Any] = []
    for a, i in enumerate(items):
        if isinstance(i, slice):
            at, i = at.index_select(a, torch.tensor([*range(shape[a])[i]], dtype=torch.int64)), slice(None)
        rest.append(torch.from_numpy(i) if isinstance(i, np.ndarray) else i)
    return at[tuple(rest)].numpy() if rest else at.numpy()


def step_of(draw: Draw, shape: tuple[int, ...], d: Any) -> tuple[Any, Any]:
    """(what a step does to a Tensor, what it does to an array): both give what was read, and what was written into."""
    reads, writes = key(draw, shape, False), key(draw, shape, True)
    try:
        of, to = places(shape, reads), places(shape, writes)
    except IndexError:  # arrays that do not broadcast
        reads, of = [], places(shape, [])
        to = places(shape, writes)
    value = np.random.default_rng(0).integers(0, 2 if d.kind == "b" else 9, to.shape).astype(to_numpy(d))
    ours = [[Tensor(i) if isinstance(i, np.ndarray) else i for i in k] for k in (reads, writes)]

    def on_tensor(x: Tensor) -> tuple[Tensor, Tensor]:
        before = x[tuple(ours[0])]
        x = x.clone()
        x[tuple(ours[1])] = Tensor(value)
        return before, x

    def on_array(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        before, x = x.reshape(-1)[of], x.copy().reshape(-1)
        x[to] = value
        return before, x.reshape(shape)

    return on_tensor, on_array


@settings(max_examples=FEW)
@given(st.data())
def test_parts_are_those_of_numpy(data: Any) -> None:
    draw = data.draw
    shape = tuple(draw(st.lists(st.sampled_from(SIZES), max_size=3)))
    d = draw(st.sampled_from(TYPES))
    start = np.random.default_rng(1).integers(0, 2 if d.kind == "b" else 9, shape).astype(to_numpy(d))
    steps = [step_of(draw, shape, d) for _ in range(draw(st.integers(1, 3)))]

    def run(x: Any, which: int) -> tuple[Any, ...]:
        out = []
        for step in steps:
            before, x = step[which](x)
            out += [before, x]
        return tuple(out)

    wanted = run(start, 1)
    late, captured = run(Tensor(start), 0), jit(lambda x: run(x, 0))
    for got in (reversed(late), reversed(captured(Tensor(start))), reversed(captured(Tensor(start)))):
        for g, w in zip(got, reversed(wanted), strict=True):
            np.testing.assert_array_equal(g.numpy(), w)
