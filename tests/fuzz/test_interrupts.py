"""Small stateful programs that are interrupted where Python lets a signal in: after any call, at any turn of a loop.

The last call of a program is interrupted, and perhaps made again. The program is then as it was before that call, or as
after it. Interrupts in blocks that put something back (`except`, `finally`) are left out: Python cannot hold them.
"""

import ast
import dis
import functools
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import monolect
from monolect import JitError, Tensor, dtypes, function, jit
from monolect.runtime.replay import in_progress as capture
from tests.strategies import often

MANY = often(2, 500)
PACKAGE = str(Path(monolect.__file__).parent)
# operations after which Python looks for signals
LOOKING = {dis.opmap[name] for name in ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME") if name in dis.opmap}


class Interrupt(BaseException):
    pass


@functools.cache
def restoring(file: str) -> set[int]:
    """The lines of a file that are in `except`, `finally`, or a destructor."""
    blocks: list[Any] = []
    for n in ast.walk(ast.parse(Path(file).read_text())):
        if isinstance(n, ast.Try):
            blocks += [*n.handlers, *n.finalbody]
        elif isinstance(n, ast.FunctionDef) and n.name in ("__del__", "restore", "put_back", "forget_others"):
            blocks.append(n)
    return {line for b in blocks for line in range(b.lineno, b.end_lineno + 1)}


class Interrupter:
    """Trace a call, count the places where a signal may come in, and raise at number `at`."""

    def __init__(self, at: int) -> None:
        self.at, self.n = at, 0
        self.last: dict[int, int] = {}  # operation that a frame is at, by its id

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        if event == "return":
            self.last.pop(id(frame), None)
        elif event == "opcode":
            last = self.last.get(id(frame), dis.opmap.get("RESUME"))
            self.last[id(frame)] = frame.f_code.co_code[frame.f_lasti]
            if last in LOOKING and not self.restores(frame):
                self.n += 1
                if self.n == self.at:
                    raise Interrupt
        return self

    def restores(self, frame: FrameType | None) -> bool:
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(PACKAGE) and frame.f_lineno in restoring(file):
                return True
            frame = frame.f_back
        return False


def tensor(*values: Any) -> Tensor:
    return Tensor(np.array(values, np.float64)).realize()


class World:
    def __init__(self, kind: str, wrap: Callable) -> None:
        Tensor.manual_seed(3)
        self.u, self.a, self.t = (
            tensor(1.0, 2.0, 3.0),
            tensor([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]),
            tensor(0.25).sum().realize(),
        )
        self.row, self.w, self.x = self.a[1], tensor(0.5, -0.5, 1.0).requires_grad_(), tensor(0.1, 0.2, 0.3)
        self.step = wrap(getattr(self, kind))

    def states(self, x: Tensor) -> Tensor:
        self.u += x
        self.row *= 0.5
        self.t.copy_(self.t + self.u.sum() * 0.1)
        return self.u * self.t

    def draws(self, x: Tensor) -> Tensor:
        self.u.copy_((Tensor.rand(3, dtype=dtypes.float64) < self.u.sigmoid()).where(x, self.u))
        x += 1.0
        return self.u * 1

    def nested(self, x: Tensor) -> Tensor:
        @function
        def inner(y: Tensor) -> Tensor:
            self.u *= 0.5
            self.a[0] = y
            return y + self.u

        return inner(x) + inner(x * 2) + Tensor.rand(3, dtype=dtypes.float64)

    def trains(self, x: Tensor) -> Tensor:
        self.w.grad = None
        ((self.w * x).tanh().sum() - 1).square().backward()
        self.w.assign(self.w.detach() - 0.1 * self.w.grad)  # type: ignore[operator]
        return self.w.detach() * 1

    def adds(self, x: Tensor) -> Tensor:
        (self.w * x).sum().backward()
        x *= 2.0
        self.a.copy_(self.a.roll(1, 0))
        return self.a * 1

    def values(self) -> list[Any]:
        found: list[Any] = [t.tolist() for t in (self.u, self.a, self.t, self.row, self.w, self.x)]
        try:
            found.append(None if self.w.grad is None else self.w.grad.tolist())
        except JitError:
            found.append("not kept")
        return [*found, self.w.requires_grad, Tensor.rand(2, dtype=dtypes.float64).tolist()]


STEPS = ("states", "draws", "nested", "trains", "adds")


@functools.cache
def undisturbed(kind: str, wrap: Callable, n: int) -> list[Any]:
    world = World(kind, wrap)
    for _ in range(n):
        world.step(world.x)
    return world.values()


def played(kind: str, wrap: Callable, n: int, at: int, again: bool = False) -> tuple[list[Any] | None, int]:
    """Return the values after `n` calls, the last one interrupted, or None if it was not; and the number of places."""
    world, interrupter = World(kind, wrap), Interrupter(at)
    for _ in range(n - 1):
        world.step(world.x)
    outer = sys.gettrace()
    sys.settrace(interrupter)
    try:
        world.step(world.x)
    except Interrupt:
        pass
    else:
        return None, interrupter.n
    finally:
        sys.settrace(outer)
    if again:
        world.step(world.x)
    return world.values(), interrupter.n


@functools.cache
def n_places(kind: str, wrap: Callable, n: int) -> int:
    played(kind, wrap, n, -1)  # the first time more is imported, made and remembered
    return played(kind, wrap, n, -1)[1]


def equal(found: Any, wanted: Any) -> bool:
    pairs = zip(found, wanted, strict=True)
    return all("not kept" in (a, b) or a == b or (a and b and np.allclose(a, b)) for a, b in pairs)


def differs(r: random.Random) -> str | None:
    wrap, n, again = r.choice((jit, jit, function)), r.randint(1, 4), r.random() < 0.4
    kind = r.choice(STEPS if wrap is jit else STEPS[:3])
    at = r.randint(1, n_places(kind, wrap, n))
    found, _ = played(kind, wrap, n, at, again)
    if found is None or any(equal(found, undisturbed(kind, wrap, k + again)) for k in (n - 1, n)):
        return None
    return f"{kind} {wrap} call {n}, interrupted at {at}, again: {again}: {found}"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a block that is half made is dropped
def test_an_interrupted_call_is_not_made_or_is_made(start: int) -> None:
    for seed in range(start, start + MANY):
        assert differs(random.Random(seed)) is None, f"the program of seed {seed}"


class Late(list):
    """A list whose `append` is interrupted when it is done, as by a signal."""

    def append(self, x: Any) -> None:
        super().append(x)
        raise Interrupt


def test_an_interrupt_while_a_capture_begins_leaves_none_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrap in (jit, function):
        world, late = World("states", wrap), Late()
        monkeypatch.setattr(capture, "under_way", late)
        with pytest.raises(Interrupt):
            world.step(world.x)
        monkeypatch.undo()
        assert not late and not capture.changes.captures and not capture.changes.enclosing
        assert equal(world.values(), undisturbed("states", wrap, 0))
