"""Random steps and `@function`s in each other that fail at a random line, beside PyTorch: a failed call leaves
everything as it was before it, also where the code around it catches the error and goes on.

A level is a row of operations on states, on its argument, on gradients and on names of states, and calls of the level
below, some of which are caught. Each level is plain, captured or traced. The oracle puts back by copies what a failed
call of a level that is not plain changed. Levels reach the states from outside, or in an object that is an argument.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import MonolectError, Tensor, dtypes, function, jit
from monolect.capture import recording

pytestmark = pytest.mark.filterwarnings("ignore::monolect.CaptureWarning")  # names of states change
MANY = max(30, settings().max_examples)
N_STREAM = 4096
OPS = (
    "scale", "add", "part", "draw", "swap", "to argument", "fail", "fail", "call", "call", "caught call", "caught call",
    "loss", "clear", "descend", "freeze", "thaw", "count",
)  # fmt: skip
NAMES = ("u", "v", "a", "row", "w")
LATE = -2  # the failure is in making the capture, after the function ran


class Failed(Exception):
    pass


@functools.cache
def numbers() -> np.ndarray:
    Tensor.manual_seed(5)
    return Tensor.rand(N_STREAM, dtype=dtypes.float64).numpy().copy()


class World:
    """The states of one library."""

    def __init__(self, lib: Any) -> None:
        self.lib, self.n_drawn, self.armed, self.count = lib, 0, -1, 0
        self.u, self.v = self.tensor([1.0, 2.0, 3.0]), self.tensor([0.5, -0.5, 0.25])
        self.a, self.w = self.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), self.tensor([0.5, 1.0, -1.0])
        self.row = self.a[1]
        self.w.requires_grad_(True)

    def tensor(self, values: Any) -> Any:
        return torch.tensor(values, dtype=torch.float64) if self.lib is torch else Tensor(np.array(values, np.float64))

    def rand(self) -> Any:
        if self.lib is not torch:
            return Tensor.rand(3, dtype=dtypes.float64)
        self.n_drawn += 3
        return self.tensor(numbers()[self.n_drawn - 3 : self.n_drawn])

    def operate(self, op: str, x: Any, site: int) -> None:
        if op == "scale":
            self.u *= 0.5
        elif op == "add":
            self.v += x
        elif op == "part":
            self.row += self.u * 0.25
        elif op == "draw":
            self.u.copy_(self.u * 0.5 + self.rand())
        elif op == "swap":
            self.u, self.v = self.v, self.u
        elif op == "to argument":
            x *= 0.5
        elif op == "fail":
            if self.armed == site:
                raise Failed
        elif op == "loss":
            if self.w.requires_grad:
                ((self.w * x.detach()).sum() - self.u.detach().sum()).square().backward()
        elif op == "clear":
            self.w.grad = None
        elif op == "descend":
            if self.w.grad is not None:
                with torch.no_grad():
                    self.w.detach().copy_(self.w.detach() - 0.125 * self.w.grad)
        elif op == "freeze":
            self.w.requires_grad_(False)
        elif op == "thaw":
            self.w.requires_grad_(True)
        else:
            self.count = (self.count + 1) % 2

    def undone(self, f: Callable) -> Callable:
        """What a step is to PyTorch: a function whose failure changes no tensor."""

        def call(*args: Any) -> Any:
            given = [x for x in args if isinstance(x, torch.Tensor)]
            tensors = [self.u, self.v, self.a, self.w, *given]
            before = [(t, t.detach().clone(), t.grad, None if t.grad is None else t.grad.clone()) for t in tensors]
            n_drawn, is_leaf = self.n_drawn, self.w.requires_grad
            try:
                return f(*args)
            except Failed:
                for t, value, grad, of_grad in before:
                    t.detach().copy_(value)
                    t.grad = grad
                    if grad is not None:
                        grad.copy_(of_grad)
                self.n_drawn = n_drawn
                self.w.requires_grad_(is_leaf)
                raise

        return call


def made(world: World, rows: list[list[str]], kinds: list[str], by_argument: bool) -> Callable:
    """Return the outermost level of a program: a function of the argument."""
    wraps: dict[str, Callable] = {"plain": lambda f: f, "jit": jit, "function": function}
    if world.lib is torch:
        wraps = {"plain": lambda f: f, "jit": world.undone, "function": world.undone}

    def level(k: int, below: Any) -> Callable:
        in_trace = "function" in kinds[k:]  # where `backward` is refused

        def run(world: World, x: Any) -> Any:
            for i, op in enumerate(rows[k]):
                if op in ("call", "caught call") and below is not None:
                    with contextlib.suppress(*[Failed] if op == "caught call" else []):
                        world.v.copy_(world.v * 0.5 + below(*([world] if by_argument else []), x * 0.5))
                elif not (in_trace and op in ("loss", "clear")) and not (by_argument and op in ("swap", "count")):
                    world.operate(op, x, 10 * k + i)
            return x * 0.5 + world.u

        return wraps[kinds[k]](run if by_argument else lambda x: run(world, x))

    found: Any = None
    for k in range(len(rows)):
        found = level(k, found)
    return functools.partial(found, world) if by_argument else found


def state(world: World, x: Any) -> list[Any]:
    """Return what a world has, and the argument; the gradient is "not kept" where a replay did not store it."""
    found: list[Any] = [getattr(world, name).detach().numpy().copy() for name in NAMES]
    try:
        found.append(None if world.w.grad is None else world.w.grad.detach().numpy().copy())
    except MonolectError:
        found.append("not kept")
    return [*found, world.w.requires_grad, x.detach().numpy()]


def same(found: Any, wanted: Any) -> bool:
    if isinstance(found, np.ndarray) and isinstance(wanted, np.ndarray):
        return bool(np.allclose(found, wanted, rtol=1e-9, atol=1e-12))
    return found.__class__ is wanted.__class__ and found == wanted or found == "not kept"


def argument(world: World, kind: str, n: int) -> Any:
    return world.u if kind == "state" else world.a[0] if kind == "view" else world.tensor([n, 1.0, 0.5])


def outcome(f: Callable, x: Any) -> Any:
    try:
        return f(x).detach().numpy()
    except Failed:
        return "failed"
    except MonolectError:
        return "refused"


def differs(rows: list[list[str]], kinds: list[str], by_argument: bool, calls: list[tuple[int, str]]) -> str | None:
    """Run a program beside PyTorch; return what first differs. A call that is refused is the last one."""
    numbers()
    Tensor.manual_seed(5)
    ours, theirs = World(Tensor), World(torch)
    f, g = (made(w, rows, kinds, by_argument) for w in (ours, theirs))
    for n, (armed, kind) in enumerate(calls):
        ours.armed = theirs.armed = armed
        x, y = argument(ours, kind, n), argument(theirs, kind, n)
        with fails_late(is_late := armed == LATE and kinds[-1] == "jit"):
            found = outcome(f, x)
        is_last = isinstance(found, str) and (found == "refused" or is_late)
        if is_last and (kinds[-1] == "plain" or not {"swap", "count"}.isdisjoint(sum(rows, []))):
            return None  # a part of it is done
        if not is_last and not same(found, wanted := outcome(g, y)):
            return f"call {n}: {found} for {wanted}"
        for name, a, b in zip((*NAMES, "gradient", "leaf", "argument"), state(ours, x), state(theirs, y), strict=True):
            if isinstance(b, np.ndarray) and not np.abs(b).max() < 1e6:
                return None
            if not same(a, b):
                return f"call {n}: {name} is {a} for {b}"
        if is_last:
            break
    found, wanted = ours.rand().numpy(), theirs.rand().numpy()
    return None if same(found, wanted) else f"{found} is drawn for {wanted}"


@contextlib.contextmanager
def fails_late(is_armed: bool) -> Iterator[None]:
    """In the block no capture can be made, if `is_armed`."""

    def fail(*_: Any) -> None:
        raise Failed

    with pytest.MonkeyPatch.context() as m:
        if is_armed:
            m.setattr(recording, "Capture", fail)
        yield


OPERATION = st.sampled_from(OPS)
ROWS = st.lists(st.lists(OPERATION, min_size=1, max_size=5), min_size=1, max_size=3)
KINDS = st.lists(st.sampled_from(("plain", "jit", "jit", "function")), min_size=3, max_size=3)
SITES = st.sampled_from((-1, -1, -1, LATE, *(10 * k + i for k in range(3) for i in range(5))))
CALLS = st.lists(
    st.tuples(SITES, st.sampled_from(("fresh", "fresh", "fresh", "state", "view"))), min_size=1, max_size=5
)


@settings(max_examples=MANY)
@given(ROWS, KINDS, st.booleans(), CALLS)
def test_a_call_that_fails_changes_nothing(rows, kinds, by_argument, calls):
    assert differs(rows, kinds[: len(rows)], by_argument, calls) is None


FRESH = (-1, "fresh")
PLANTED: dict[str, tuple[tuple, list]] = {
    "a trace that swaps names is used again": (
        ("monolect.capture.function.Function._is_as_before", lambda *_: True),
        [[["swap"]], ["function"], False, [FRESH, FRESH]],
    ),
    "a tensor of an object that is an argument is not from outside": (
        ("monolect.capture.recording.refuse_external_arguments", lambda _: None),
        [[["to argument"]], ["jit"], True, [(-1, "state")]],
    ),
    "drawn numbers stay drawn": (
        ("monolect.tensor.random.snapshot", lambda: lambda: None),
        [[["draw", "fail"]], ["function"], False, [(1, "fresh"), FRESH]],
    ),
    "leaf flags stay changed": (
        ("monolect.capture.function.restore", lambda *_: None),
        [[["freeze", "fail"]], ["function"], False, [(1, "fresh")]],
    ),
    "what a failed part of a capture assigned stays": (
        ("monolect.capture.step.undone_on_failure", contextlib.nullcontext),
        [[["scale", "fail"], ["caught call"]], ["jit", "jit"], False, [(1, "fresh")]],
    ),
    "a gradient stays added to": (
        ("monolect.capture.gradients.note_before", lambda *_: None),
        [[["loss"]], ["jit"], False, [FRESH, (LATE, "fresh")]],
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, program = PLANTED[name]
    assert differs(*program) is None
    monkeypatch.setattr(*fault)
    assert differs(*program) is not None
