"""Random steps in whose capture another thread reads, computes or draws: the threads meet at each line of the step.

Later calls, which are replays where the capture was kept, leave what the plain function leaves, and no random number is
drawn twice.
"""

import queue
import random
import threading
from collections.abc import Callable

import numpy as np
import pytest

from monolect import JitError, Tensor, jit
from tests.strategies import often

FEW = often(4, 333)
LINES = ("add", "add", "row", "draw", "draw", "state draws", "both", "meet", "meet")
FOREIGN = ("read", "part", "compute", "draw", "draw late", "other", "realize")


def bits(n: int) -> Tensor:
    return Tensor.randint(-(2**63), 2**63, (n,))


def foreign(what: str, s: Tensor, t: Tensor, row: Tensor, drawn: list[Tensor]) -> None:
    """What the other thread does."""
    try:
        if what == "read":
            s.tolist()
        elif what == "part":
            (row * 2).tolist()
        elif what == "compute":
            s.realize(t)
        elif what == "realize":
            (s * 2 + 1).realize()
        elif what == "other":
            (Tensor([1.0]) + 1).realize()
        else:
            drawn.append(bits(2) if what == "draw late" else bits(2).realize())
    except JitError:
        pass  # a value of a step under capture


def trajectory(seed: int, wrap: Callable) -> tuple[list, list[int]]:
    """The states after each call of the step of a seed, and all numbers that were drawn."""
    Tensor.manual_seed(seed)
    r = random.Random(seed)
    plan = [(r.choice(LINES), r.choice(FOREIGN)) for _ in range(r.randrange(2, 6))]
    s, t = Tensor(np.zeros(4)), Tensor(np.ones((2, 3)))
    row, drawn, states = t[0], [bits(1)], []
    asked, done = queue.SimpleQueue(), queue.SimpleQueue()  # a step does not depend on them

    def serve() -> None:
        while what := asked.get():
            foreign(what, s, t, row, drawn)
            done.put(None)

    def step(x: Tensor) -> list[Tensor]:
        out = [x * 1]
        for line, what in plan:
            if line == "add":
                s.assign(s * 0.5 + x)
            elif line == "row":
                row.copy_(row + 1)
            elif line == "draw":
                out.append(bits(3))
            elif line == "state draws":
                t[1] = bits(3).double() * 0
            elif line == "both":
                s.assign(s + row.sum())
            else:
                asked.put(what)
                done.get()
        return out

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        call = wrap(step)
        for k in range(4):
            drawn += call(Tensor(np.full(4, float(k))))[1:]
            states.append((s * 1, t * 1))
    finally:
        asked.put(None)
        thread.join()
    return [u.tolist() for pair in states for u in pair], [n for u in drawn for n in u.tolist()]


def differs(seed: int) -> bool:
    """Whether the captured step of a seed leaves other values than the plain one, or a number is drawn twice."""
    (plain, some), (captured, others) = trajectory(seed, lambda f: f), trajectory(seed, jit)
    if any(len({*numbers}) < len(numbers) for numbers in (some, others)):
        return True
    return not all(np.allclose(a, b) for a, b in zip(plain, captured, strict=True))


def test_steps_agree_whatever_another_thread_does_in_their_capture(start: int) -> None:
    for seed in range(start, start + FEW):
        assert not differs(seed), f"the step of seed {seed}"


PLANTED = {
    "a capture keeps a state that another thread computed": ("monolect.tensor.tensor.note_computed", lambda t: None),
    "a capture keeps draws that another thread took along": (
        "monolect.tensor.random.State._note_owner",
        lambda state: None,
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[name])
    assert any(differs(seed) for seed in range(60))
