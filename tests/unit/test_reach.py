"""What a traced or captured function reads around it: a change anywhere is seen, and what cannot be is refused."""

import array
import collections
import contextvars
import ctypes
import dataclasses
import datetime
import functools
import io
import logging
import operator
import os
import queue
import random
import secrets
import subprocess
import sys
import time
import types
from random import uniform
from time import perf_counter_ns as tick
from typing import NamedTuple

import numpy as np
import pytest
import torch

from monolect import Tensor, function, grad, jit, nn
from monolect.base.errors import CaptureWarning, JitError
from monolect.capture.environment.dependencies import Dependencies


def vector(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


class Slotted:
    __slots__ = ("__weakref__", "k")


class Plain:
    def __init__(self) -> None:
        self._k = 2.0

    @property
    def hidden(self) -> float:
        return self._k

    def __call__(self, x: Tensor) -> Tensor:
        return x * self._k


@dataclasses.dataclass
class Config:
    k: float = 2.0


class Classy:
    k = 2.0

    @staticmethod
    def scaled(x: Tensor) -> Tensor:
        return x * TABLE["k"]


TABLE = {"k": 2.0}
_source = "k = 2.0\ndef scaled(x):\n    return x * k\ndef other(x):\n    return x * 3.0\n"


def a_module() -> types.ModuleType:
    """A module of the user's own, as an import makes it."""
    module = types.ModuleType("a_module_of_the_users")
    exec(_source, vars(module))
    sys.modules[module.__name__] = module
    return module


def slotted() -> Slotted:
    s = Slotted()
    s.k = 2.0
    return s


def default_list(x: Tensor, ks: list[float] = [2.0]) -> Tensor:  # noqa: B006
    return x * ks[0]


def defaults(k: float) -> None:
    default_list.__defaults__[0][0] = k


def setter(holder, name="k"):
    return lambda k: setattr(holder, name, k)


def at(holder, key):
    return lambda k: holder.__setitem__(key, k)


class Dynamic:
    """Attributes that come from a dict, whatever their names."""

    def __init__(self) -> None:
        self.data = {"k": 2.0}

    def __getattr__(self, name: str) -> float | None:
        return self.__dict__["data"].get(name)


class Rows(list):
    k = 2.0


class Whole(int):
    pass


class Own(np.ndarray):
    pass


class Named(Tensor):
    k: float


def of_two(x: Tensor) -> Tensor:
    return x * of_two.k


def of_three(x: Tensor) -> Tensor:
    return x * 3.0


of_two.k = 2.0
WHERE = contextvars.ContextVar("where", default=2.0)
ENVIRONMENT = "MONOLECT_TEST_OF_REACH"


def in_environment(k: float) -> None:
    os.environ[ENVIRONMENT] = str(k)


def box(value) -> types.SimpleNamespace:
    return types.SimpleNamespace(k=value)


def made_by(d: collections.defaultdict, k: float) -> None:
    """`d` is empty, and makes `k` of a name that it lacks."""
    d.clear()
    d.default_factory = lambda: k


def put_alone(q: queue.Queue, k: float) -> None:
    while not q.empty():
        q.get()
    q.put(k)


def fill(q: queue.Queue | queue.SimpleQueue, k: float) -> None:
    """`q` has `k` items."""
    while not q.empty():
        q.get()
    for _ in range(int(k)):
        q.put(0.0)


def through_memory(name: str):
    """What shows bytes, or has attributes beside its items."""
    a, c, view = np.array([2.0, 0.0]), ctypes.c_float(2.0), array.array("f", [2.0])
    t, rows, dynamic, later = torch.tensor([2.0]), Rows([1.0]), Dynamic(), types.SimpleNamespace(k0=2.0)
    named, whole, f = Named([1.0]), [Whole(2)], types.FunctionType(of_two.__code__, globals())
    big = np.full(100_000, 2.0, np.float32)[::3]
    in_environment(2.0)
    own, record, factory = np.array([2.0, 0.0]).view(Own), np.zeros(1, [("k", "f4")])[0], collections.defaultdict(int)
    recent, waiting, waiting_in_c = box(collections.deque(maxlen=2)), queue.Queue(), queue.SimpleQueue()
    p = torch.tensor([2.0], requires_grad=True)
    return {
        "an array of a class of its own": (lambda x: x * float(own[0]), at(own, 0)),
        "a record": (lambda x: x * float(record["k"]), at(record, "k")),
        "the limit of a deque": (
            lambda x: x * recent.k.maxlen,
            lambda k: setattr(recent, "k", collections.deque(maxlen=int(k))),
        ),
        "the factory of a dict": (lambda x: x * factory["k"], lambda k: made_by(factory, k)),
        "a queue": (lambda x: x * waiting.queue[0], lambda k: put_alone(waiting, k)),
        "the size of a queue": (lambda x: x * waiting.qsize(), lambda k: fill(waiting, k)),
        "the size of a queue in C": (lambda x: x * waiting_in_c.qsize(), lambda k: fill(waiting_in_c, k)),
        "a parameter of PyTorch's": (lambda x: x * float(p.detach()[0]), lambda k: p.data.fill_(k)),
        "an array": (lambda x: x * float(a[0]), at(a, 0)),
        "a part of a large array": (lambda x: x * float(big[7]), at(big, 7)),
        "an array that is read in place": (lambda x: x * Tensor(a[:1].astype("f4")), at(a, 0)),
        "a number in C": (lambda x: x * c.value, setter(c, "value")),
        "an array of Python's": (lambda x: x * view[0], at(view, 0)),
        "a tensor of PyTorch's": (lambda x: x * float(t[0]), at(t, 0)),
        "a list with attributes": (lambda x: x * rows.k, setter(rows)),
        "an attribute by __getattr__": (lambda x: x * dynamic.k, at(dynamic.data, "k")),
        "a computed name": (lambda x: x * getattr(later, f"k{0}"), setter(later, "k0")),
        "attrgetter": (lambda x, get=operator.attrgetter("k0"): x * get(later), setter(later, "k0")),
        "a tensor with attributes": (lambda x: x * named.k, setter(named)),
        "a number of a class of its own": (lambda x: x * whole[0], lambda k: at(whole, 0)(Whole(k))),
        "an attribute of a function": (of_two, setter(of_two)),
        "the code of a function": (
            lambda x: f(x),
            lambda k: setattr(f, "__code__", (of_two if k == 2.0 else of_three).__code__),
        ),
        "a context variable": (lambda x: x * WHERE.get(), WHERE.set),
        "the environment": (lambda x: x * float(os.environ[ENVIRONMENT]), in_environment),
        "the environment by a function": (lambda x: x * float(os.getenv(ENVIRONMENT, "")), in_environment),
        "globals": (lambda x: x * globals()["TABLE"]["k"], at(TABLE, "k")),
        "a library's number": (lambda x: x * sys.a_number_of_the_tests, setter(sys, "a_number_of_the_tests")),
    }[name]


def through_module(name: str):
    m = a_module()
    return {
        "a function": (m.scaled, setter(m)),
        "its function": (lambda x: m.scaled(x), setter(m)),
        "its number": (lambda x: x * m.k, setter(m)),
        "another function": (lambda x: m.scaled(x), lambda k: setattr(m, "scaled", m.other)),
    }[name]


def linear() -> nn.Linear:
    layer = nn.Linear(1, 1, bias=False)
    layer.weight.assign(vector(2.0).reshape(1, 1))
    return layer


def child_replaced():
    class Model(nn.Module):
        def __init__(self) -> None:
            self.layer = linear()

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * TABLE["k"] / 2.0

    m = Model()

    def change(k: float) -> None:
        m.layer = linear()
        m.layer.weight.assign(vector(k).reshape(1, 1))

    return m, change


def cases(name: str):
    """(a function that multiplies by 2, what makes it multiply by a number)."""
    ks, nested, d = [2.0], {"a": [{"b": 2.0}]}, {"k": 2.0}
    c, s, p, slot, counted = Config(), types.SimpleNamespace(k=2.0), Plain(), slotted(), {1, 2}
    user, queue, ts = collections.UserDict(k=2.0), collections.deque([2.0]), [vector(2.0)]
    layer, part = linear(), functools.partial(lambda d, x: x * d["k"], d)
    empty, classy = types.SimpleNamespace(), Classy()
    table = {
        "a list": (lambda x: x * ks[0], at(ks, 0)),
        "a list that grows": (lambda x: x * (len(ks) + 1), lambda k: ks.append(0.0)),
        "the end of a list": (lambda x: x * ks[-1], lambda k: ks.append(k)),
        "a dict": (lambda x: x * d["k"], at(d, "k")),
        "deep inside": (lambda x: x * nested["a"][0]["b"], at(nested["a"][0], "b")),
        "a set": (lambda x: x * len(counted), lambda k: counted.add(3)),
        "a deque": (lambda x: x * queue[0], at(queue, 0)),
        "a mapping": (lambda x: x * user["k"], at(user, "k")),
        "a list of tensors": (lambda x: x * ts[0], lambda k: ts.__setitem__(0, vector(k))),
        "a global": (lambda x: x * TABLE["k"], at(TABLE, "k")),
        "a dataclass": (lambda x: x * c.k, setter(c)),
        "a dataclass as a tuple": (lambda x: x * dataclasses.astuple(c)[0], setter(c)),
        "a namespace": (lambda x: x * s.k, setter(s)),
        "getattr": (lambda x: x * getattr(s, "k"), setter(s)),  # noqa: B009
        "vars": (lambda x: x * vars(s)["k"], setter(s)),
        "what was not there": (lambda x: x * getattr(empty, "k", 2.0), setter(empty)),
        "a property": (lambda x: x * p.hidden, setter(p, "_k")),
        "an object that is called": (p, setter(p, "_k")),
        "slots": (lambda x: x * slot.k, setter(slot)),
        "a class": (lambda x: x * Classy.k, setter(Classy)),
        "the class of an object": (lambda x: x * classy.k, setter(Classy)),
        "a static method": (lambda x: Classy.scaled(x), at(TABLE, "k")),
        "a default": (default_list, defaults),
        "a partial": (part, at(d, "k")),
        "a bound method in C": (lambda x, get=d.get: x * get("k"), at(d, "k")),
        "a parameter": (lambda x: layer(x), lambda k: setattr(layer, "weight", vector(k).reshape(1, 1))),
        "a layer": child_replaced(),
    }
    if name in table:
        return table[name]
    return through_memory(name) if name in MEMORY.split("|") else through_module(name)


MEMORY = (
    "an array|a part of a large array|an array that is read in place|a number in C|an array of Python's|"
    "a tensor of PyTorch's|a list with attributes|an attribute by __getattr__|a computed name|attrgetter|"
    "a tensor with attributes|a number of a class of its own|an attribute of a function|the code of a function|"
    "an array of a class of its own|a record|the limit of a deque|the factory of a dict|a queue|the size of a queue|"
    "the size of a queue in C|a parameter of PyTorch's|"
    "a context variable|the environment|the environment by a function|globals|a library's number"
)
NAMES = """a list|a list that grows|the end of a list|a dict|deep inside|a set|a deque|a mapping|a list of tensors
a global|a dataclass|a dataclass as a tuple|a namespace|getattr|vars|what was not there|a property
an object that is called|slots|a class|the class of an object|a static method|a default|a partial
a bound method in C|a parameter|a layer|a function|its function|its number|another function"""


@pytest.mark.sweep
@pytest.mark.parametrize("wrap", [jit, function])
@pytest.mark.parametrize("name", [*NAMES.replace("\n", "|").split("|"), *MEMORY.split("|")])
def test_what_changed_is_seen(name: str, wrap) -> None:
    f, change = cases(name)
    if name in MEMORY.split("|"):
        change(2.0)
    g, x = wrap(f), vector(1.0).reshape(1, 1).realize()
    try:
        assert [g(x).item() for _ in range(3)] == [2.0, 2.0, 2.0]
        n = len(getattr(g, "captures", ()) or g.traces)
        assert n == 1 or (n == 0 and wrap is function), "of one it is traced at each call what reads memory in place"
        change(3.0)
        assert [g(x).item() for _ in range(3)] == [3.0, 3.0, 3.0]
    finally:
        change(2.0)
        TABLE["k"], Classy.k, default_list.__defaults__[0][0] = 2.0, 2.0, 2.0
        os.environ.pop(ENVIRONMENT, None)


ARGUMENTS = {
    "a namespace": (lambda: types.SimpleNamespace(k=2.0), lambda x, a: x * a.k, lambda a: setattr(a, "k", 3.0)),
    "slots": (slotted, lambda x, a: x * a.k, lambda a: setattr(a, "k", 3.0)),
    "an object": (Plain, lambda x, a: a(x), lambda a: setattr(a, "_k", 3.0)),
    "a tensor in an object": (
        lambda: types.SimpleNamespace(k=vector(2.0)),
        lambda x, a: x * a.k,
        lambda a: setattr(a, "k", vector(3.0)),
    ),
    "a set": (lambda: {1, 2}, lambda x, a: x * len(a), lambda a: a.add(3)),
    "an array": (lambda: np.array([2.0, 0.0]), lambda x, a: x * float(a[0]), lambda a: a.__setitem__(0, 3.0)),
    "a list with attributes": (lambda: Rows([1.0]), lambda x, a: x * a.k, lambda a: setattr(a, "k", 3.0)),
    "a number in C": (lambda: ctypes.c_float(2.0), lambda x, a: x * a.value, lambda a: setattr(a, "value", 3.0)),
    "an array's memory": (lambda: np.array([2.0], "f4"), lambda x, a: x * Tensor(a), lambda a: a.__setitem__(0, 3.0)),
}


@pytest.mark.parametrize("wrap", [jit, function])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_count_by_what_they_hold(name: str, wrap) -> None:
    make, f, change = ARGUMENTS[name]
    g, a, same = wrap(f), make(), make()
    assert [g(vector(1.0), a).item() for _ in range(3)] == [2.0, 2.0, 2.0]
    change(a)
    assert [g(vector(1.0), a).item() for _ in range(3)] == [3.0, 3.0, 3.0]
    assert g(vector(1.0), same).item() == 2.0


@dataclasses.dataclass
class Scale:
    x: Tensor

    def by_table(self) -> Tensor:
        return self.x * TABLE["k"]


class ScaleOfTuple(NamedTuple):
    x: Tensor

    def by_table(self) -> Tensor:
        return self.x * TABLE["k"]


@pytest.mark.parametrize("kind", [Scale, ScaleOfTuple])
def test_code_of_arguments_is_read(kind) -> None:
    f = jit(lambda a: a.by_table())
    try:
        assert [f(kind(vector(1.0))).item() for _ in range(3)] == [2.0] * 3 and len(f.captures) == 1
        TABLE["k"] = 3.0
        assert [f(kind(vector(1.0))).item() for _ in range(3)] == [3.0] * 3
    finally:
        TABLE["k"] = 2.0


@pytest.mark.parametrize("kind", [int, float])
def test_numbers_of_a_class_of_their_own_are_told_apart(kind) -> None:
    own = type("Own", (kind,), {})
    f = jit(lambda x, a: x * a)
    assert [f(vector(1.0), own(k)).item() for k in (2, 3, 2)] == [2.0, 3.0, 2.0] and len(f.captures) == 2


def test_what_came_after_the_step_was_made_is_seen() -> None:
    class Model:
        def __init__(self) -> None:
            self.step = jit(self.scaled)
            self.k = 2.0

        def scaled(self, x: Tensor) -> Tensor:
            return x * self.k

    m = Model()
    assert [m.step(vector(1.0)).item() for _ in range(3)] == [2.0] * 3
    m.k = 3.0
    assert [m.step(vector(1.0)).item() for _ in range(3)] == [3.0] * 3


INSTALLED = """
from monolect import jit
K = 2.0
def made(wrap, ks):
    return wrap(lambda x: x * ks[0] * K / 2.0)
class Model:
    k = 2.0
    @jit
    def scaled(self, x):
        return x * self.k
"""


def test_the_package_of_a_step_is_read_where_it_is_installed(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "a_package_of_steps.py").write_text(INSTALLED)
    monkeypatch.syspath_prepend(folder)
    package = __import__("a_package_of_steps")
    for wrap in (jit, function):
        ks, package.K = [2.0], 2.0
        f = package.made(wrap, ks)
        assert [f(vector(1.0)).item() for _ in range(2)] == [2.0] * 2
        ks[0] = 3.0
        assert f(vector(1.0)).item() == 3.0
        package.K = 4.0
        assert f(vector(1.0)).item() == 6.0
    m = package.Model()
    assert m.scaled(vector(1.0)).item() == 2.0
    m.k = 3.0
    assert m.scaled(vector(1.0)).item() == 3.0


def test_zeros_and_kinds_of_numbers_are_told_apart() -> None:
    f = jit(lambda x, a: Tensor(a) / x)
    with np.errstate(divide="ignore"):
        assert [f(vector(0.0), a).item() for a in (1.0, -1.0)] == [np.inf, -np.inf]
    g = jit(lambda x, a: x.copysign(Tensor(a)) if hasattr(x, "copysign") else x * a)
    assert [np.signbit(g(vector(1.0), a).item()) for a in (0.0, -0.0, 0.0, np.float32(-0.0))] == [
        False,
        True,
        False,
        True,
    ]
    h = jit(lambda x, a: x + (1 if a is True else 2))
    assert [h(vector(0.0), a).item() for a in (1, True, 1.0, 1)] == [2.0, 1.0, 2.0, 2.0]
    nan = jit(lambda x, a: x)
    for _ in range(3):
        nan(vector(0.0), float("nan"))
    assert len(nan.captures) == 1


@pytest.mark.parametrize("wrap", [jit, function])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: types.SimpleNamespace(y=x * 2),
        lambda x: (x * 2, {x * 3}),
        lambda x: [x * 2, lambda: x * 3],
        lambda x: (x * 2, map(lambda k: x * k, [2])),
        lambda x: {"a": x * 2, "b": np.arange(3)},
        lambda x: (x * 2, (y for y in [x])),
    ],
)
def test_results_that_no_later_call_could_make_are_refused(make, wrap) -> None:
    with pytest.raises(JitError, match="returns what a later call could not make") as e:
        wrap(make)(vector(1.0))
    assert "expected: Tensors, numbers and texts" in str(e.value) and e.value.line[0] == __file__


def test_generators_and_coroutines_are_refused() -> None:
    def generator(x: Tensor):
        yield x

    async def coroutine(x: Tensor) -> Tensor:
        return x

    made = []
    for f in (generator, lambda x: made.append(coroutine(x)) or made[0]):
        with pytest.raises(JitError, match="could not make"):
            jit(f)(vector(1.0))
    made[0].close()


def test_what_is_returned_keeps_its_class_and_objects_that_were_given_are_those() -> None:
    class Rows(list):
        pass

    class Point(tuple):
        pass

    o = Plain()
    f = jit(lambda x, o: (collections.OrderedDict(a=x * 2), Rows([x]), Point((x, 1)), o, int, np.float32(1.5)))
    for i in range(3):
        d, rows, point, same, kind, number = f(vector(i), o)
        assert [type(d), type(rows), type(point)] == [collections.OrderedDict, Rows, Point]
        assert same is o and kind is int and number == 1.5 and d["a"].item() == 2 * i == 2 * rows[0].item()


def test_an_argument_that_the_function_changes_is_refused() -> None:
    def grow(d: dict) -> Tensor:
        d["y"] = d["x"] * 2
        return d["x"] + 1

    def replace(xs: list) -> Tensor:
        xs[0] = xs[0] * 2
        return xs[0]

    def store(o: Plain, x: Tensor) -> Tensor:
        o.last = x * 2
        return x + 1

    for call in (
        lambda: jit(grow)({"x": vector(1.0)}),
        lambda: jit(replace)([vector(1.0)]),
        lambda: jit(store)(Plain(), vector(1.0)),
    ):
        with pytest.raises(JitError, match="changes an argument"):
            call()


def test_what_a_step_leaves_around_it_is_left_at_each_call() -> None:
    out, o = [], types.SimpleNamespace()

    @jit
    def step(x: Tensor) -> Tensor:
        out.append(x * 2)
        o.last = x * 3
        return x + 1

    with pytest.warns(CaptureWarning, match="changes '(out|last)'"):
        for i in range(4):
            assert step(vector(i)).item() == i + 1 and o.last.item() == 3 * i
    assert [t.item() for t in out] == [0.0, 2.0, 4.0, 6.0]


def test_a_parameter_that_is_frozen_stays_as_it_is() -> None:
    a, b = (Tensor(np.ones(2, np.float32), requires_grad=True) for _ in range(2))
    optimizer = nn.optim.SGD([a, b], lr=0.5)

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (x * a * b).sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(vector(1.0, 1.0))
    a.requires_grad = False
    frozen, moving = a.tolist(), b.tolist()
    step(vector(1.0, 1.0))
    assert a.tolist() == frozen and b.tolist() != moving


def test_whether_an_argument_wants_a_gradient_is_part_of_the_signature() -> None:
    f = jit(lambda x: x * (3 if x.requires_grad else 2))
    x, leaf = vector(1.0), vector(1.0).requires_grad_()
    assert [f(x).item() for _ in range(3)] == [2.0] * 3
    assert [f(leaf).item(), f(x).item(), f(leaf).item()] == [3.0, 2.0, 3.0]


def test_no_instance_is_kept_by_what_is_known_of_it() -> None:
    import gc
    import weakref

    class Model:
        __slots__ = ("__weakref__", "k")

        @jit
        def scaled(self, x: Tensor) -> Tensor:
            return x * self.k

    m = Model()
    m.k = 2.0
    assert [m.scaled(vector(1.0)).item() for _ in range(3)] == [2.0, 2.0, 2.0]
    m.k = 3.0
    assert m.scaled(vector(1.0)).item() == 3.0
    gone = weakref.ref(m)
    del m
    gc.collect()
    assert gone() is None


def test_code_of_libraries_is_not_read() -> None:
    reached = Dependencies((lambda x: np.linalg.norm(x) + dataclasses.astuple(x)[0],))
    assert not reached.contents and all(isinstance(name, str) for _, name, _ in reached.entries)
    assert {name for _, name, _ in reached.entries} <= {"norm", "astuple"}


def a_generator_of_numbers():
    yield from (1.0, 2.0)


ITERATORS = {
    "list": iter([1.0, 2.0]),
    "generator": a_generator_of_numbers(),
    "map": map(float, "12"),
    "zip": zip("a", "b", strict=True),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_is_refused_wherever_it_stands(name: str) -> None:
    it = ITERATORS[name]
    holder = types.SimpleNamespace(it=it)
    for f, args in ((lambda x, i: x * next(i), (it,)), (lambda x: x * next(it), ()), (lambda x: next(holder.it), ())):
        with pytest.raises(JitError, match="reads an iterator"):
            jit(f)(vector(1.0), *args)
    numbers = iter([1.0, 2.0])
    assert [function(lambda x: x * next(numbers))(vector(1.0)).item() for _ in range(2)] == [1.0, 2.0], "traced again"


def test_a_file_is_no_iterator(tmp_path) -> None:
    with open(tmp_path / "log", "w") as log:
        step = jit(lambda x: (print("captured", file=log), x * 2)[1])
        assert [step(vector(i)).item() for i in range(3)] == [0.0, 2.0, 4.0]
    assert (tmp_path / "log").read_text() == "captured\n"


def draws():
    generator, of_numpy, of_python = np.random.default_rng(0), np.random.RandomState(0), random.Random(0)
    return {
        "a module": lambda x: x * random.random(),
        "a function of a module": lambda x: x * uniform(1, 2),
        "a module imported inside": importing,
        "a module of NumPy": lambda x: x * float(np.random.rand()),
        "a generator of NumPy": lambda x: x * float(generator.random()),
        "an old generator of NumPy": lambda x: x * float(of_numpy.rand()),
        "a generator": lambda x: x * of_python.random(),
        "a generator as an argument": lambda x, g=of_python: x * g.random(),
    }


def importing(x):
    import random

    return x * random.random()


@pytest.mark.parametrize("name", draws())
def test_numbers_drawn_outside_of_tensors_are_refused(name: str) -> None:
    f = draws()[name]
    with pytest.raises(JitError, match="draws random numbers"):
        jit(f)(vector(1.0))
    assert len({function(f)(vector(1.0)).item() for _ in range(3)}) == 3, "traced at each call"


ASKS = {
    "a clock": lambda x: x * (time.time_ns() % 1000003),
    "a clock by another name": lambda x: x * tick(),
    "a date": lambda x: x * datetime.datetime.now().microsecond,
    "random bits": lambda x: x * int.from_bytes(os.urandom(3), "little"),
    "secrets": lambda x: x * secrets.randbelow(1 << 20),
    "a generator that is made inside": lambda x: x * float(np.random.default_rng().random()),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", ASKS)
def test_what_is_asked_of_the_system_is_refused_where_it_is_asked(name: str) -> None:
    f = ASKS[name]
    with pytest.raises(JitError, match="calls what differs at each call") as e:
        jit(f)(vector(1.0))
    assert e.value.line == (__file__, f.__code__.co_firstlineno) and sys.getprofile() is None
    assert len({(time.sleep(0.001), function(f)(vector(1.0)).item())[1] for _ in range(5)}) > 1, "traced at each call"


def test_asking_that_is_not_done_or_done_by_a_library_is_no_harm() -> None:
    log, messages = logging.getLogger("a step"), io.StringIO()
    log.addHandler(logging.StreamHandler(messages))
    step = jit(lambda x, slow: x * time.time() if slow else (log.warning("captured"), x * 2)[1])
    assert [step(vector(i), False).item() for i in range(3)] == [0.0, 2.0, 4.0]
    assert messages.getvalue() == "captured\n"


def test_random_numbers_of_numpy_are_found_before_numpy_has_imported_them() -> None:
    code = """
import sys
import numpy as np
from monolect import JitError, Tensor, jit
assert "numpy.random" not in sys.modules, "NumPy imports them when they are named"
try:
    jit(lambda x: x * float(np.random.rand()))(Tensor([1.0]))
except JitError as e:
    assert "draws random numbers" in str(e)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_generator_that_does_not_draw_is_no_harm() -> None:
    g = np.random.default_rng(0)
    step = jit(lambda x: x * 2 if g is not None else np.random.rand())
    assert [step(vector(i)).item() for i in range(3)] == [0.0, 2.0, 4.0] and len(step.captures) == 1


def test_what_a_derivative_of_the_users_reads_counts() -> None:
    scale = {"k": 7.0}
    f = function(lambda x: x * 2, gradient=lambda inputs, grads: grads[0] * scale["k"])
    step = jit(lambda x: grad(lambda y: f(y).sum())(x))
    for k in (7.0, 9.0, 7.0):
        scale["k"] = k
        assert step(vector(1.0)).item() == step(vector(2.0)).item() == k
