"""Random whole numbers that are counted, not read: running sums and reductions of constants and of comparisons of
positions, along one of several axes, then views and arithmetic of them, as values, places and classes, against NumPy.
"""

from random import Random

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, jit

MANY = max(20, settings().max_examples // 3)
SIZES = (1, 1, 2, 3, 5, 7, 16, 33)
TYPES = (np.int64, np.int64, np.int32, np.int16)
Pair = tuple[Tensor, np.ndarray]


def constant(r: Random, shape: tuple[int, ...]) -> Pair:
    value, dtype = r.choice((1, 1, 1, 2, -3)), r.choice(TYPES)
    array = np.full(shape, value, dtype)
    if r.random() < 0.2:
        return Tensor.ones(*shape) > 0, array > np.iinfo(dtype).min
    return Tensor.full(shape, value, dtype=Tensor(array).dtype), array


def counted(r: Random, shape: tuple[int, ...]) -> Pair:
    """A count along an axis; the other axes repeat it, or count too."""
    axis = r.randrange(len(shape))
    if r.random() < 0.5:
        t, a = constant(r, shape)
        return t.cumsum(axis), a.cumsum(axis, dtype=np.int64)
    n, shift = r.choice(SIZES), r.randint(-2, 2)
    along = tuple(shape[axis] if k == axis else 1 for k in range(len(shape)))
    t = (Tensor.arange(n) < Tensor.arange(shape[axis]).reshape(*along, 1) + shift).expand(*shape, n).sum(-1)
    a = (np.arange(n) < np.arange(shape[axis]).reshape(*along, 1) + shift).sum(-1)
    return t, np.broadcast_to(a, shape)


def viewed(r: Random, x: Pair) -> Pair:
    t, a = x
    axis = r.randrange(a.ndim)
    n = a.shape[axis]
    low = r.randrange(n)
    high, step, k = r.randint(low + 1, n), r.choice((1, 2)), r.choice((-2, 1, 5))
    part = (slice(None),) * axis + (slice(low, high, step),)
    order = tuple(r.sample(range(a.ndim), a.ndim))
    wider = ((0, 0),) * axis + ((1, 2),) + ((0, 0),) * (a.ndim - axis - 1)
    return r.choice(
        (
            lambda: (t[part], a[part]),
            lambda: (t.permute(*order), a.transpose(order)),
            lambda: (t.flip(axis), np.flip(a, axis)),
            lambda: (t.reshape(-1), a.reshape(-1)),
            lambda: (t.unsqueeze(axis), np.expand_dims(a, axis)),
            lambda: (t.unsqueeze(0).expand(2, *a.shape), np.broadcast_to(a, (2, *a.shape))),
            lambda: (t.pad([w for pair in reversed(wider) for w in pair]), np.pad(a, wider)),
            lambda: (t + k, a + k),
            lambda: (t * k, a * k),
            lambda: (t - t.flip(axis), a - np.flip(a, axis)),
            lambda: (t // 3, a // 3),
            lambda: (t.cumsum(axis), a.cumsum(axis)),
        )
    )()


def used(r: Random, x: Pair) -> Pair:
    t, a = x
    table, n = np.arange(50) * 3 - 7, r.choice(SIZES)
    return r.choice(
        (
            lambda: (t, a),
            lambda: (Tensor(table)[t % 50], table[a % 50]),
            lambda: (t.unsqueeze(-1) == Tensor.arange(n), a[..., None] == np.arange(n)),
            lambda: ((t.unsqueeze(-1) < Tensor.arange(n)).sum(-1), (a[..., None] < np.arange(n)).sum(-1)),
            lambda: (t.sum(0), a.sum(0)),
            lambda: (t.amax(-1), a.max(-1)),
        )
    )()


@given(st.integers(0, 2**32 - 1))
@settings(
    max_examples=MANY, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)  # a smaller seed is no simpler program
def test_counted_positions(seed):
    r = Random(seed)
    shape = tuple(r.choice(SIZES) for _ in range(r.randint(1, 3)))
    parts, seeds = r.randint(1, 2), [r.getrandbits(32) for _ in range(2)]
    wanted: list[np.ndarray] = []

    def program() -> list[Tensor]:
        results = []
        for s in seeds[:parts]:
            q = Random(s)
            x = counted(q, shape)
            for _ in range(q.randint(0, 4)):
                x = viewed(q, x)
            t, a = used(q, x)
            results.append(t)
            wanted.append(a)
        return results

    mode = r.choice(("eager", "eager", "jit", "NOOPT"))
    with Context(NOOPT=int(mode == "NOOPT")):
        got = (jit(program) if mode == "jit" else program)()
        for t, a in zip(got, wanted, strict=False):
            np.testing.assert_array_equal(t.numpy(), a)
