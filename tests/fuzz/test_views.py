"""Random programs of views, writes, computed values and captured steps beside PyTorch.

Each name is a Tensor of ours and one of PyTorch's: bases, views of views, computed values. Writes go through any name,
reads realise some names in between, captured steps read and write names around them and in their arguments. After each
program all names agree. Computed values are made contiguous in PyTorch: the strides of a computed value are row-major
here, so `reshape` of one is always a view.
"""

import io
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import ArgumentError, MonolectError, Tensor, dtypes, function, jit
from tests.strategies import often


class Program:
    """The names of a program, and its actions. Each action takes three small numbers."""

    def __init__(self) -> None:
        self.names: list[tuple[Any, Any]] = []
        self.steps: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
        self.overlapping: set[int] = set()  # names of windows that may overlap: PyTorch leaves writes to them open
        for shape in ((3, 4), (6,), (2, 2, 3)):
            values = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
            self.add(Tensor(values.copy()), torch.from_numpy(values.copy()))

    def add(self, ours: Any, theirs: Any, source: int | None = None) -> None:
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert ours.is_contiguous() == theirs.is_contiguous()
        strides = [pair for n, *pair in zip(ours.shape, ours.stride(), theirs.stride(), strict=True) if n > 1]
        assert all(a == b for a, b in strides) or not theirs.numel()
        if source in self.overlapping:
            self.overlapping.add(len(self.names))
        self.names.append((ours, theirs))

    def pick(self, a: int) -> tuple[int, Any, Any]:
        i = len(self.names) - 1 - a * a // 41 % len(self.names)  # recent ones more often
        return i, *self.names[i]

    # ---- views -------------------------------------------------------------------------------------------------------
    def view(self, a: int, b: int, c: int) -> None:
        i, x, t = self.pick(a)
        makes = [lambda v: v.detach(), lambda v: v.unsqueeze(c % (t.ndim + 1)), lambda v: v.reshape(-1)]
        if t.ndim:
            d, n = c % t.ndim, t.shape[c % t.ndim]

            def windows(v: Any) -> Any:
                return v.unfold(d, 1 + n // 2, 1 + c % 2)

            makes += [
                lambda v: v[t.shape[0] // 2],
                lambda v: v[..., : 1 + c % t.shape[-1]],
                lambda v: v[::2],
                lambda v: v.narrow(d, n // 3, n - n // 3),
                lambda v: v.split(2, d)[-1],
                lambda v: v.unbind(d)[0],
                lambda v: v.permute(*reversed(range(t.ndim))),
                lambda v: v.transpose(0, d),
                lambda v: v.movedim(0, -1),
                lambda v: v.squeeze(),
                lambda v: v.flatten(d),
                windows,
                lambda v: v.reshape(t.shape[::-1]),
                lambda v: v[None, :, ..., None],
                lambda v: v.contiguous(),
            ]
            if t.shape[d] == 1:
                makes.append(lambda v: v.expand(*(3 if k == d else -1 for k in range(t.ndim))))
        if t.ndim >= 2:
            makes += [lambda v: v.diagonal(0, 0, t.ndim - 1), lambda v: v[0, 1:], lambda v: v.mT, lambda v: v[:, 0]]
        if not t.numel():
            return
        make = makes[b % len(makes)]
        new = make(t)
        self.add(make(x), new[...] if new is t else new, i)  # `flatten` and `contiguous` of PyTorch may return `t`
        if t.ndim and make is windows:
            self.overlapping.add(len(self.names) - 1)

    def rearrange(self, a: int, b: int, c: int) -> None:
        """Change the shape of a name in place; its base and its views keep theirs."""
        _, x, t = self.pick(a)
        changes: list[Callable[[Any], Any]] = [lambda v: v.unsqueeze_(c % (t.ndim + 1)), lambda v: v.squeeze_()]
        if t.ndim:
            d = c % t.ndim
            changes += [lambda v: v.transpose_(0, d), lambda v: v.swapaxes_(d, -1), lambda v: v.swapdims_(-1, d)]
            changes.append(lambda v: v.squeeze_(d))
        if t.ndim <= 2:
            changes.append(lambda v: v.t_())
        change = changes[b % len(changes)]
        assert change(x) is x
        assert x.shape == tuple(change(t).shape)

    # ---- values ------------------------------------------------------------------------------------------------------
    def compute(self, a: int, b: int, c: int) -> None:
        _, x, t = self.pick(a)
        _, y, u = self.pick(c)
        makes: list[Callable[[Any, Any], Any]] = [
            lambda v, w: v * 1.0,
            lambda v, w: v + 1,
            lambda v, w: v.clone(),
            lambda v, w: v.sum(),
            lambda v, w: v - w.sum(),
        ]
        if t.shape == u.shape:
            makes += [lambda v, w: v + w, lambda v, w: v * 2 - w]
        if t.ndim:
            makes += [lambda v, w: v.flip(0), lambda v, w: v.sum(0), lambda v, w: v.cumsum(0)]
        make = makes[b % len(makes)]
        self.add(make(x, y), _row_major(make(t, u)))

    def read(self, a: int, b: int, c: int) -> None:
        i, _, _ = self.pick(a)
        self.check(i)

    def realize(self, a: int, b: int, c: int) -> None:
        self.pick(a)[1].realize(self.pick(b)[1])

    # ---- writes ------------------------------------------------------------------------------------------------------
    def write(self, a: int, b: int, c: int) -> None:
        i, x, t = self.pick(a)
        _, y, u = self.pick(c)
        if i in self.overlapping:
            return

        def augmented(v: Any, w: Any) -> None:
            v += w.sum() - 3

        def doubled(v: Any, w: Any) -> None:
            v *= -1

        def less(v: Any, w: Any) -> None:
            v -= v * 2

        def keyed(v: Any, w: Any) -> None:
            v[0] = w.sum()

        def sliced(v: Any, w: Any) -> None:
            v[..., 1:] = v[..., :-1] + 1

        def masked(v: Any, w: Any) -> None:
            v[v > 2] = -1.0

        def zeroed(v: Any, w: Any) -> None:
            v.zero_()

        def listed(v: Any, w: Any) -> None:
            v[[0, -1]] = 7.0

        writes: list[Callable[[Any, Any], None]] = [
            augmented,
            doubled,
            less,
            masked,
            zeroed,
            lambda v, w: v.fill_(c),
            lambda v, w: v.copy_(v * 2 + 1),
            lambda v, w: v.copy_(w.sum()),
        ]
        if t.ndim:
            writes += [keyed, sliced, listed]
        if t.shape == u.shape:
            writes += [lambda v, w: v.copy_(w)]
        write = writes[b % len(writes)]
        if write in (masked, zeroed) and not _is_distinct(t):  # PyTorch warns, or writes
            return
        try:
            write(t, u.clone())
        except RuntimeError as error:
            assert "single memory location" in str(error) or "expanded" in str(error), error
            with pytest.raises(ArgumentError):
                write(x, y)
            return
        if c % 2 and t.shape == u.shape and b % len(writes) == len(writes) - 1:
            x.assign(y)
        else:
            write(x, y)

    # ---- steps -------------------------------------------------------------------------------------------------------
    def step(self, a: int, b: int, c: int) -> None:
        """A captured step or a traced function. Later actions call it again."""
        i, x, t = self.pick(a)
        k, y, u = self.pick(c)
        if i in self.overlapping or k in self.overlapping or not _is_distinct(t):
            return

        def assigning(v: Any, w: Any) -> Callable[..., Any]:
            def f(z: Any) -> Any:
                v.copy_(v * 2 - w.sum())
                return v.sum() + z

            return f

        def adding(v: Any, w: Any) -> Callable[..., Any]:
            def f(z: Any) -> Any:
                nonlocal v
                before = w.sum()
                v += 1
                return w.sum() - before + z

            return f

        makes: list[Callable[[Any, Any], Callable[..., Any]]] = [
            lambda v, w: lambda z: v.sum() * 2 + w.sum() + z,
            lambda v, w: lambda z: v * 1.0 + z,
            lambda v, w: lambda z: (v + z).reshape(-1)[0] * 3,
            lambda v, w: lambda z: _realized(v.sum() + z) * 2 + w.sum(),
            assigning,
            adding,
        ]
        if t.ndim:
            makes.append(lambda v, w: lambda z: v.flip(0).sum(0) + z)
        make = makes[b % len(makes)]
        wrap = jit if make is makes[3] else (jit, function)[c % 2]  # a traced function realises nothing
        self.steps.append((wrap(make(x, y)), make(t, u)))
        self.call(len(self.steps) - 1, 0, c)

    def call(self, a: int, b: int, c: int) -> None:
        if self.steps:
            ours, theirs = self.steps[a % len(self.steps)]
            z = Tensor(float(c % 5), dtype=dtypes.float64)
            try:
                result = theirs(torch.tensor(z.item(), dtype=torch.float64))
            except IndexError:  # a name without axes now
                with pytest.raises(MonolectError):
                    ours(z)
                return
            self.add(ours(z), _row_major(result))

    def argument(self, a: int, b: int, c: int) -> None:
        """A name as the argument of a step, which reads it or writes to it."""
        i, x, t = self.pick(a)
        if i in self.overlapping or not _is_distinct(t):
            return
        if b % 2:
            self.add(READS(x), _row_major(READS.function(t)))
        else:
            self.add(WRITES(x), _row_major(WRITES.function(t)))

    def pickled(self, a: int, b: int, c: int) -> None:
        """All names come from one file, where the program saves and loads."""
        if a % 4 == 0:
            ours, theirs = zip(*self.names, strict=True)
            torch.save(theirs, file := io.BytesIO())
            file.seek(0)
            self.names = list(zip(pickle.loads(pickle.dumps(ours)), torch.load(file), strict=True))
            self.steps.clear()  # these know the names before

    # ---- agreement ---------------------------------------------------------------------------------------------------
    def check(self, i: int) -> None:
        ours, theirs = self.names[i]
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=f"name {i}")


def _realized(x: Any) -> Any:
    return x.realize() if isinstance(x, Tensor) else x


def _row_major(t: torch.Tensor) -> torch.Tensor:
    return t.clone(memory_format=torch.contiguous_format)


def _is_distinct(t: torch.Tensor) -> bool:
    """Whether no two elements share memory."""
    return all(n == 1 or s for n, s in zip(t.shape, t.stride(), strict=True))


@jit
def READS(x: Any) -> Any:  # noqa: N802
    return x * 2 - x.sum()


@jit
def WRITES(x: Any) -> Any:  # noqa: N802
    x.copy_(x + 1)
    return x * 1.0


ACTIONS = [
    *(Program.view,) * 6,
    *(Program.rearrange,) * 2,
    *(Program.compute,) * 3,
    *(Program.write,) * 6,
    *(Program.read,) * 2,
    Program.realize,
    *(Program.step,) * 2,
    *(Program.call,) * 3,
    *(Program.argument,) * 2,
    Program.pickled,
]
SMALL = st.integers(0, 40)


@settings(max_examples=often(30, 1000))
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), SMALL, SMALL, SMALL), min_size=4, max_size=24))
def test_names_agree_with_pytorch(actions: list) -> None:
    program = Program()
    for action, a, b, c in actions:
        action(program, a, b, c)
    for i in range(len(program.names)):
        program.check(i)


def _fails(seed: int) -> bool:
    """Whether the program of a seed differs from PyTorch's."""
    rng, program = random.Random(seed), Program()
    try:
        for _ in range(24):
            rng.choice(ACTIONS)(program, *(rng.randrange(41) for _ in range(3)))
        for i in range(len(program.names)):
            program.check(i)
    except (AssertionError, MonolectError, pytest.fail.Exception):
        return True
    return False


def _first_node(window: Any) -> Any:
    window.node = window.node or window.make(window.parent._uop)
    return window.node


def _cut(t: Any) -> tuple[Any, Any]:
    return Tensor(t), lambda u: u


PLANTED: dict[str, tuple[str, Any]] = {
    "a view keeps its first node": ("monolect.tensor.view.Window.current", _first_node),
    "a view takes the new axes of its base": ("monolect.tensor.view.Window.parent", property(lambda w: w._parent)),
    "a write does not reach the base": ("monolect.tensor.tensor.target_of", _cut),
    "pending values are part of a step": ("monolect.capture.recording.realize_dependencies", lambda *_: None),
}


# seeds that are tried before all others
FOUND_BY = {"pending values are part of a step": 344}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[name])
    assert any(map(_fails, (FOUND_BY.get(name, 0), *range(100))))


def test_seeds_that_find_faults_find_none_where_none_is_planted() -> None:
    assert not any(map(_fails, {*range(10), *FOUND_BY.values()}))
