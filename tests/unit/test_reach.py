"""What a traced or captured function reads around it: a change anywhere is seen, and what cannot be is refused."""

import collections
import dataclasses
import functools
import random
import sys
import types
from random import uniform

import numpy as np
import pytest

from monolect import Tensor, function, grad, jit, nn
from monolect.base.errors import CaptureWarning, JitError
from monolect.tensor.reach import Reach


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
    return table[name] if name in table else through_module(name)


NAMES = """a list|a list that grows|the end of a list|a dict|deep inside|a set|a deque|a mapping|a list of tensors
a global|a dataclass|a dataclass as a tuple|a namespace|getattr|vars|what was not there|a property
an object that is called|slots|a class|the class of an object|a static method|a default|a partial
a bound method in C|a parameter|a layer|a function|its function|its number|another function"""


@pytest.mark.parametrize("wrap", [jit, function])
@pytest.mark.parametrize("name", NAMES.replace("\n", "|").split("|"))
def test_what_changed_is_seen(name: str, wrap) -> None:
    f, change = cases(name)
    g, x = wrap(f), vector(1.0).reshape(1, 1).realize()
    try:
        assert [g(x).item() for _ in range(3)] == [2.0, 2.0, 2.0]
        n = len(getattr(g, "captures", ()) or g.traces)
        assert n == 1
        change(3.0)
        assert [g(x).item() for _ in range(3)] == [3.0, 3.0, 3.0]
    finally:
        change(2.0)
        TABLE["k"], Classy.k, default_list.__defaults__[0][0] = 2.0, 2.0, 2.0


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
    reached = Reach((lambda x: np.linalg.norm(x) + dataclasses.astuple(x)[0],))
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
        with pytest.raises(JitError, match="reaches an iterator"):
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
    with pytest.raises(JitError, match="draws numbers"):
        jit(f)(vector(1.0))
    assert len({function(f)(vector(1.0)).item() for _ in range(3)}) == 3, "traced at each call"


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
