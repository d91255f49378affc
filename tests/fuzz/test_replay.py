"""Random steps, jitted, against the same steps run plainly: changing arguments, assigned state, kept results."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Tensor, jit

FEW = max(8, settings().max_examples // 3)
SHAPE = (4, 6)

# A step reads the arguments and the state, assigns some of the state, and returns some values.
EXPRESSIONS = [
    lambda a, b, s: a + b, lambda a, b, s: a * s[0], lambda a, b, s: s[0] - s[1], lambda a, b, s: (a + s[1]).relu(),
    lambda a, b, s: a.sum(0, keepdim=True) + s[0], lambda a, b, s: b.flip(0) * 2 + s[1].amax(1, keepdim=True),
    lambda a, b, s: s[0], lambda a, b, s: a @ (b.transpose(0, 1) @ s[0]) * 0.01,
    lambda a, b, s: s[1].cumsum(1) * 0.1 + a,
]  # fmt: skip
expressions = st.integers(0, len(EXPRESSIONS) - 1)


class Step:
    """One random step over two state tensors of its own."""

    def __init__(self, plan: list[tuple[str, int, int]], returned: list[int]):
        self.plan, self.returned = plan, returned
        self.state = [Tensor(np.full(SHAPE, k + 1, np.float32)).realize() for k in range(2)]

    def __call__(self, a: Tensor, b: Tensor) -> Any:
        out = [EXPRESSIONS[k](a, b, self.state) for k in self.returned]
        for kind, which, k in self.plan:
            value = EXPRESSIONS[k](a, b, self.state)
            if kind == "assign":
                self.state[which].assign(value * 0.5)
            else:
                self.state[which][1:3] = value[:2] * 0.5
        for t in (*out, *self.state):
            t.realize()
        return tuple(out)


plans = st.lists(st.tuples(st.sampled_from(["assign", "assign", "slice"]), st.integers(0, 1), expressions), max_size=3)


@settings(max_examples=FEW)
@given(
    plans,
    st.lists(expressions, min_size=1, max_size=3),
    st.integers(0, 99),
    st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_replays_do_what_plain_calls_do(plan, returned, seed, keeps):
    rng = np.random.default_rng(seed)
    plain, replayed = Step(plan, returned), Step(plan, returned)
    fast = jit(replayed.__call__)
    kept: list[tuple[Tensor, np.ndarray]] = []
    for keep in keeps:
        a, b = rng.integers(-3, 4, (2, *SHAPE)).astype(np.float32)
        wanted = plain(Tensor(a), Tensor(b))
        got = fast(Tensor(a), Tensor(b))
        for g, w in zip((*got, *replayed.state), (*wanted, *plain.state), strict=True):
            np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-5, atol=1e-5)
        if keep:
            kept += [(g, np.array(g.numpy())) for g in got if not any(g is s for s in replayed.state)]
        for t, before in kept:
            np.testing.assert_array_equal(t.numpy(), before, err_msg="a result changed after it was returned")


@settings(max_examples=FEW)
@given(plans, st.integers(0, 99))
def test_state_that_was_shared_stays_as_it_was(plan, seed):
    """A snapshot of the old state, taken between replays, keeps its values."""
    rng = np.random.default_rng(seed)
    step = Step(plan, [0])
    fast = jit(step.__call__)
    for _ in range(4):
        snapshots = [(Tensor(s), np.array(s.numpy())) for s in step.state]
        sums = [(s + 1, s.numpy() + 1) for s in step.state]
        a, b = rng.integers(-3, 4, (2, *SHAPE)).astype(np.float32)
        fast(Tensor(a), Tensor(b))
        for t, before in snapshots + sums:
            np.testing.assert_array_equal(t.numpy(), before)
