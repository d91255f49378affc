"""Small stateful programs in which one thing fails: an allocation, a compilation, a launch, a copy, the user's code,
or an interrupt once native code has run. What fails leaves everything as it was before the call, or as after it, and
the program goes on as one that was not disturbed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from monolect import Tensor, jit, nn
from monolect.backend.python.interpret import Kernel
from monolect.backend.registry import Device
from monolect.base.errors import JitError
from monolect.runtime.realize import execute
from monolect.runtime.replay import capture as replays
from monolect.runtime.replay.in_progress import NotKept
from monolect.tensor import random as random_state
from tests.strategies import often

FEW = often(8, 1000)
OPS = ("backward", "update", "norm", "assign", "part", "draw", "rate", "seed", "load", "read", "hold")
STEPS = ("train", "draws", "states", "normed", "left", "parts")
KINDS = ("alloc", "alloc", "copy", "launch", "kernel", "compile", "user", "native", "native")


class Injected(BaseException):
    """As an interrupt it is no Exception."""


class Failed(Exception):
    """As an error."""


class Trouble:
    """What fails: event number `at` of `kind`."""

    kind, at, error = "", -1, Injected

    def event(self, kind: str) -> None:
        if kind == self.kind:
            self.at -= 1
            if self.at == -1:
                raise self.error

    @contextmanager
    def of(self, kind: str, at: int, error: type) -> Iterator[None]:
        self.kind, self.at, self.error = kind, at, error
        if kind == "compile":
            execute.plans.clear()
        try:
            yield
        finally:
            self.kind = ""


trouble = Trouble()


def before(kind: str, f: Callable) -> Callable:
    def called(*args: Any, **kwargs: Any) -> Any:
        trouble.event(kind)
        return f(*args, **kwargs)

    return called


def then(kind: str, f: Callable) -> Callable:
    def called(*args: Any) -> Any:
        f(*args)
        trouble.event(kind)

    return called


@pytest.fixture(autouse=True, scope="module")
def _injected() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as m:
        for name in DEVICES:
            device = Device[name]
            for kind in ("alloc", "copy", "compile"):
                m.setattr(device, kind, before(kind, getattr(device, kind)))
            lookup = device.lookup
            m.setattr(device, "lookup", lambda key, found=lookup: None if trouble.kind == "compile" else found(key))
        for module in (execute, replays):
            m.setattr(module, "run", before("launch", module.run))
        m.setattr(Kernel, "run", then("kernel", Kernel.run))
        made = replays.Capture.__init__

        def capture(self: Any, *args: Any, **kwargs: Any) -> None:
            made(self, *args, **kwargs)
            if self.native is not None:
                self.native = then("native", self.native)
            if self.short is not None:
                self.short = then("native", self.short)

        m.setattr(replays.Capture, "__init__", capture)
        yield


DEVICES = ("cpu", "python")


class World:
    """Tensors that change, and steps that change them."""

    def __init__(self, device: str, kind: str):
        Tensor.manual_seed(0)
        rng = np.random.default_rng(0)
        self.device, self.armed = device, False
        self.x = self.tensor(rng.standard_normal((4, 3)))
        self.w = self.tensor(rng.standard_normal((2, 3))).requires_grad_()
        self.v = self.tensor(rng.standard_normal((2, 3))).requires_grad_()
        self.state, self.late = self.tensor(np.arange(4)), self.tensor(np.zeros(2))
        options = {"SGD": {"momentum": 0.9}, "Adam": {}}[kind]
        self.optimizer = getattr(nn.optim, kind)([self.w], lr=0.1, **options)
        known = self.optimizer.state_dict()
        values = {k: t.numpy() if k.startswith("settings") else t.numpy() * 0 + 0.5 for k, t in known.items()}
        self.saved = {k: Tensor(a, device=device) for k, a in values.items()}
        self.norm = nn.BatchNorm1d(3)
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            t = getattr(self.norm, name)
            setattr(self.norm, name, t.detach().to(device).clone().realize())
        self.steps = {name: jit(getattr(self, name)) for name in STEPS}

    def tensor(self, values: Any) -> Tensor:
        return Tensor(np.asarray(values, np.float32), device=self.device).clone().realize()

    # ---- steps -------------------------------------------------------------------------------------------------------
    def fail(self) -> None:
        if self.armed:
            raise trouble.error

    def train(self, x: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = (x.linear(self.w) * self.v.detach().sum()).square().mean()
        loss.backward()
        self.optimizer.step()
        self.fail()
        return loss

    def draws(self, x: Tensor) -> Tensor:
        self.state.assign(self.state + Tensor.rand(4, device=self.device))
        self.fail()
        return x.dropout(0.5, training=True)

    def states(self, x: Tensor) -> Tensor:
        self.state[1:3] = self.state[:2] + x.sum()
        old = self.state + 1
        self.late.assign(self.late * 2 + self.state[:2])
        old.realize()
        self.fail()
        return old

    def normed(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        self.fail()
        return y

    def left(self, x: Tensor) -> Tensor:
        self.v.grad = self.w.grad = None
        (x.linear(self.v) * self.state.sum()).sum().backward()
        self.fail()
        return x + 1

    def parts(self, x: Tensor) -> Tensor:
        x.assign(x * 2)
        self.v.requires_grad = False
        self.v.assign(self.v + 1)
        self.v.requires_grad = True
        self.fail()
        return x + 1

    # ---- plain calls -------------------------------------------------------------------------------------------------
    def run(self, op: str, k: int) -> None:
        if op in self.steps:
            self.steps[op](self.x)
        elif op == "backward":
            self.w.grad = None
            self.x.linear(self.w).square().sum().backward()
        elif op == "update":
            if self.w._grad.__class__ is not NotKept:
                self.optimizer.step()
        elif op == "norm":
            self.norm(self.x)
        elif op == "assign":
            self.state.assign(self.state + Tensor.rand(4, device=self.device))
        elif op == "part":
            self.state[k % 4] = self.late.sum()
        elif op == "hold":
            self.held = [self.state * 2, self.w.detach() + 1, self.x * 1]
        elif op == "draw":
            self.late = Tensor.rand(2, device=self.device)
        elif op == "rate":
            self.optimizer.lr = k / 100
        elif op == "seed":
            Tensor.manual_seed(k)
        elif op == "load":
            self.optimizer.load_state_dict(self.saved)
        else:
            (self.x, self.state, self.late, self.w)[k % 4].realize()

    def values(self) -> dict[str, Any]:
        found: dict[str, Any] = {"x": self.x, "w": self.w, "v": self.v, "state": self.state, "late": self.late}
        found |= self.optimizer.state_dict() | self.norm.state_dict()
        found = {name: t.numpy().astype(np.float64) for name, t in found.items()}
        for name, t in (("w", self.w), ("v", self.v)):
            found[f"{name} leaf"] = t.requires_grad
            try:
                found[f"{name} grad"] = None if t.grad is None else t.grad.numpy()
            except JitError:
                found[f"{name} grad"] = "not kept"
        random_state.settle()
        for state in random_state.states_of(random_state.tensors()):
            if state.stored.device == self.device:
                found["drawn"] = np.array(state.stored.tolist(), np.float64)
        return found | {"lr": self.optimizer.lr}


def differs(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """The names of what is not equal. A state that nobody drew from yet is as good as none; a gradient that is not kept
    as good as any: a call that is a capture leaves one, and what is read is kept.
    """
    out = []
    for name in a.keys() | b.keys():
        x, y = a.get(name), b.get(name)
        if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
            if not np.allclose(x, y, rtol=1e-5, atol=1e-6):
                out.append(name)
        elif isinstance(x, np.ndarray) or isinstance(y, np.ndarray) or x != y:
            out += [name] * (name != "drawn" and "not kept" not in (str(x), str(y)))
    return out


Program = list[tuple[str, int]]


def undisturbed(device: str, kind: str, program: Program) -> dict[str, Any]:
    world = World(device, kind)
    for op in program:
        world.run(*op)
    return world.values()


@settings(max_examples=FEW, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.integers(0, 2**32 - 1))
def test_what_fails_leaves_everything_as_it_was(seed):
    """The last call of a program fails, and is made again. It is the same as up to three before it."""
    r = Random(seed)
    kind, is_error, looks = r.choice(KINDS), r.random() < 0.5, r.random() < 0.5
    device, optimizer = "python" if kind == "kernel" else r.choice(DEVICES), r.choice(("SGD", "Adam"))
    program = [(r.choice((*OPS, *STEPS)), r.randrange(8)) for _ in range(r.randrange(5))]
    last = r.choice(STEPS if kind in ("user", "native") else (*OPS, *STEPS, *STEPS)), r.randrange(8)
    program += [last] * (1 if kind == "compile" else r.randint(1, 4))
    at = 0 if kind in ("user", "native") else r.choice((0, 0, 0, 1, 1, 2, 4, 7))
    world = World(device, optimizer)
    for op in program[:-1]:
        world.run(*op)
    with trouble.of(kind, at, Failed if is_error else Injected):
        world.armed = kind == "user"
        try:
            world.run(*program[-1])
            has_failed = False
        except (Failed, Injected):
            has_failed = True
        world.armed = False
    if has_failed and kind == "native":
        assert not differs(world.values(), undisturbed(device, optimizer, program))
        return
    if has_failed:
        if looks:
            assert not differs(world.values(), undisturbed(device, optimizer, program[:-1]))
        world.run(*program[-1])
    assert not differs(world.values(), undisturbed(device, optimizer, program))
