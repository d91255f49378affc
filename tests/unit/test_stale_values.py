"""Each step is called again after one thing around it was changed: what it returns is what the plain function does.

A case is a generator: first it gives the function, then it changes something at each turn.
"""

import collections
import enum
import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from monolect import JitError, Tensor, function, jit

Case = Iterator[Callable[[Tensor], Tensor] | None]
CASES: list[Callable[[], Case]] = []


def case(f: Callable[[], Case]) -> Callable[[], Case]:
    CASES.append(f)
    return f


def a_module(name: str) -> types.ModuleType:
    m = sys.modules[name] = types.ModuleType(name)
    m.k = 2.0
    return m


@case
def inherited_attr() -> Case:
    class A:
        k = 2.0

    class B(A):
        pass

    b = B()
    yield lambda x: x * b.k
    A.k = 3.0
    yield
    B.k = 4.0
    yield
    b.k = 5.0
    yield
    del b.k
    yield
    del B.k
    yield


@case
def mro_change() -> Case:
    class A:
        def f(self, x):
            return x * 2

    class C:
        def f(self, x):
            return x * 7

    class B(A):
        pass

    b = B()
    yield lambda x: b.f(x)
    B.__bases__ = (C,)
    yield
    b.__class__ = C
    yield


@case
def class_change() -> Case:
    class A:
        k = 2.0

    class C:
        k = 7.0

    class H:
        pass

    h = H()
    h.a = A()
    yield lambda x: x * h.a.k
    h.a.__class__ = C
    yield


@case
def getattr_magic() -> Case:
    class A:
        def __init__(s):
            s.__dict__["d"] = {"k": 2.0}

        def __getattr__(s, n):
            try:
                return s.__dict__["d"][n]
            except KeyError:
                raise AttributeError(n) from None

    a = A()
    yield lambda x: x * a.k
    a.d["k"] = 3.0
    yield
    a.__dict__["k"] = 9.0
    yield


@case
def getattribute_magic() -> Case:
    class A:
        k = 2.0
        store = {"z": 1.0}

        def __getattribute__(s, n):
            if n == "k":
                return object.__getattribute__(s, "store")["z"]
            return object.__getattribute__(s, n)

    a = A()
    yield lambda x: x * a.k
    A.store["z"] = 3.0
    yield


@case
def data_descriptor_store() -> Case:
    class D:
        def __init__(s):
            s.vals = weakref.WeakKeyDictionary()

        def __get__(s, i, o):
            return s.vals.get(i, 2.0)

        def __set__(s, i, v):
            s.vals[i] = v

    class A:
        k = D()

    a = A()
    yield lambda x: x * a.k
    a.k = 3.0
    yield


@case
def weak() -> Case:
    class A:
        k = 2.0

    a = A()
    r = weakref.ref(a)

    def f(x):
        t = r()
        return x * (t.k if t is not None else 100.0)

    yield f
    a.k = 3.0
    yield
    del a
    yield


@case
def weakproxy() -> Case:
    class A:
        k = 2.0

    a = A()
    p = weakref.proxy(a)
    yield lambda x: x * p.k
    a.k = 3.0
    yield


@case
def weakdict() -> Case:
    class A:
        k = 2.0

    a, d = A(), weakref.WeakValueDictionary()
    d["a"] = a
    yield lambda x: x * d["a"].k
    a.k = 3.0
    yield
    b = A()
    b.k = 9.0
    d["a"] = b
    yield


@case
def ordered_order() -> Case:
    d = collections.OrderedDict(a=2.0, b=5.0)
    yield lambda x: x * next(iter(d.values()))
    d.move_to_end("a")
    yield


@case
def dict_order() -> Case:
    d = dict(a=2.0, b=5.0)
    yield lambda x: x * list(d.values())[0]
    d["a"] = d.pop("a")
    yield


@case
def np_obj_array() -> Case:
    a = np.array([2.0, "s"], dtype=object)
    yield lambda x: x * a[0]
    a[0] = 7.0
    yield


@case
def np_reshape_inplace() -> Case:
    a = np.arange(6.0)
    yield lambda x: x * a.shape[0]
    a.shape = (2, 3)
    yield


@case
def np_dtype_inplace() -> Case:
    a = np.zeros(4, np.float32)
    yield lambda x: x * a.dtype.itemsize
    a.dtype = np.int16
    yield


@case
def partialmethod() -> Case:
    class A:
        def g(s, x, k=1.0):
            return x * k

        h = functools.partialmethod(g, k=2.0)

    a = A()
    yield lambda x: a.h(x)
    A.h = functools.partialmethod(A.g, k=3.0)
    yield
    A.g = lambda s, x, k: x * k * 10
    A.h = functools.partialmethod(A.g, k=3.0)
    yield


@case
def singledispatch() -> Case:
    @functools.singledispatch
    def g(k, x):
        return x * 2

    yield lambda x: g(3, x)
    g.register(int, lambda k, x: x * k)
    yield


@case
def enum_attr() -> Case:
    class E(enum.Enum):
        A = 1

        def __init__(s, v):
            s.k = 2.0

    h = E.A
    yield lambda x: x * h.k
    h.k = 3.0
    yield


@case
def meta_class() -> Case:
    class M(type):
        @property
        def k(c):
            return c._k

    class A(metaclass=M):
        _k = 2.0

    yield lambda x: x * A.k
    A._k = 3.0
    yield
    M.k = property(lambda c: c._k * 10)
    yield


@case
def meta_attr() -> Case:
    class M(type):
        k = 2.0

    class A(metaclass=M):
        pass

    yield lambda x: x * A.k
    M.k = 3.0
    yield


@case
def meta_call() -> Case:
    class M(type):
        f = 2.0

        def __call__(c, *a):
            o = super().__call__(*a)
            o.k *= M.f
            return o

    class A(metaclass=M):
        def __init__(s):
            s.k = 1.0

    yield lambda x: x * A().k
    M.f = 5.0
    yield


@case
def frozenset_sub() -> Case:
    class S(frozenset):
        pass

    s = S((1,))
    s.k = 2.0
    yield lambda x: x * s.k
    s.k = 3.0
    yield


@case
def module_attr() -> Case:
    m = a_module("probe_mod")

    def f(x):
        import probe_mod

        return x * probe_mod.k

    yield f
    m.k = 3.0
    yield
    m2 = types.ModuleType("probe_mod")
    m2.k = 9.0
    sys.modules["probe_mod"] = m2
    yield


@case
def from_import() -> Case:
    m = a_module("probe_mod2")

    def f(x):
        from probe_mod2 import k

        return x * k

    yield f
    m.k = 3.0
    yield


@case
def importlib() -> Case:
    import importlib

    m = a_module("probe_mod3")

    def f(x):
        return x * importlib.import_module("probe_mod3").k

    yield f
    m.k = 3.0
    yield


@case
def sysmodules() -> Case:
    m = a_module("probe_mod4")

    def f(x):
        return x * sys.modules["probe_mod4"].k

    yield f
    m.k = 3.0
    yield


@case
def sys_argv() -> Case:
    yield lambda x: x * len(sys.argv)
    sys.argv.append("x")
    yield
    sys.argv.pop()
    yield


@case
def all_of_an_object() -> Case:
    h = types.SimpleNamespace(k1=2.0)
    yield lambda x: x * sum(vars(h).values())
    h.k1 = 3.0
    yield
    h.k2 = 3.0
    yield


@case
def typing_alias() -> Case:
    h = types.SimpleNamespace(t=list[int])
    yield lambda x: x * (2.0 if h.t == list[int] else 3.0)
    h.t = list[float]
    yield


@case
def tensor_subclass() -> Case:
    class T(Tensor):
        scale = 2.0

    t = T([1.0, 1.0])
    yield lambda x: x * t.scale + t
    T.scale = 3.0
    yield
    t.scale = 4.0
    yield
    t.assign(t * 5)
    yield


@case
def wrapped_class_decorator() -> Case:
    class Deco:
        def __init__(s, f):
            functools.update_wrapper(s, f)
            s.f = f
            s.k = 2.0

        def __call__(s, x):
            return s.f(x) * s.k

    @Deco
    def g(x):
        return x * 1.0

    yield lambda x: g(x)
    g.k = 3.0
    yield
    g.f = lambda x: x * 100
    yield


@case
def event() -> Case:
    e = threading.Event()
    yield lambda x: x * (2.0 if e.is_set() else 5.0)
    e.set()
    yield


@case
def method_of_an_enum() -> Case:
    scale = [2.0]

    class E(enum.Enum):
        A = 1

        def scaled(self, x):
            return x * scale[0]

    yield lambda x: E.A.scaled(x)
    scale[0] = 3.0
    yield


@pytest.mark.sweep
@pytest.mark.parametrize("wrap", [jit, function, lambda f: jit(function(f))], ids=["jit", "function", "both"])
@pytest.mark.parametrize("made", CASES, ids=lambda f: f.__name__)
def test_a_change_is_seen(made, wrap) -> None:
    steps = made()
    plain = next(steps)
    wrapped = wrap(plain)
    while True:
        for _ in range(3):
            x = Tensor(np.array([1.0, 2.0], np.float32))
            assert wrapped(x).tolist() == plain(x).tolist()
        try:
            next(steps)
        except StopIteration:
            return


def test_an_expression_of_a_step_that_stands_outside_too_follows_what_it_reads() -> None:
    y = Tensor(np.array([1.0, 2.0], np.float32)).realize()
    outside = y * 2
    step = jit(lambda: y * 2)
    assert step().tolist() == [2.0, 4.0]
    y.assign(y + 1)
    assert step().tolist() == [4.0, 6.0] == step().tolist() and outside.tolist() == [2.0, 4.0]
    y.assign(y + 1)
    assert step().tolist() == [6.0, 8.0]


def test_a_value_outside_that_a_step_reads_stays_what_it_was() -> None:
    y = Tensor(np.array([1.0, 2.0], np.float32)).realize()
    outside = y * 2
    step = jit(lambda x: x + outside)
    for k in range(3):
        x = Tensor(np.array([k, k], np.float32))
        assert step(x).tolist() == [2.0 + k, 4.0 + k]
        y.assign(y + 1)


class Scaled(Tensor):
    scale = 2.0

    def scaled(self):
        return self * self.scale


@pytest.mark.parametrize("wrap", [jit, function], ids=["jit", "function"])
def test_an_argument_of_a_class_of_its_own_keeps_it(wrap) -> None:
    step, x = wrap(lambda t: t.scaled()), Scaled([1.0, 2.0])
    assert step(x).tolist() == [2.0, 4.0] == step(x).tolist()
    x.scale = 3.0
    assert step(x).tolist() == [3.0, 6.0]
    del x.scale
    assert step(x).tolist() == [2.0, 4.0]
    Scaled.scale = 5.0
    assert step(x).tolist() == [5.0, 10.0]
    Scaled.scale = 2.0


@pytest.mark.filterwarnings("ignore::monolect.CaptureWarning")
@pytest.mark.parametrize(
    "shows",
    [
        lambda x, s: s,
        lambda x, s: (s, x + 1),
        lambda x, s: s.detach(),
        lambda x, s: s.T,
        lambda x, s: s[1],
        lambda x, s: (s.reshape(4), x * 2),
        lambda x, s: s.expand(2, 2, 2),
    ],
)
def test_a_result_that_only_shows_what_is_outside_follows_it(shows) -> None:
    held = Tensor([[1.0, 2.0], [3.0, 4.0]])
    step, x = jit(lambda x: shows(x, held)), Tensor([1.0])
    news = [None, lambda: held.assign(held * 2), lambda: held.assign(held.flip(0)), lambda: held.__setitem__(1, 7.0)]
    for change in (*news, None):
        if change is not None:
            change()
        found, wanted = step(x), shows(x, held)
        if not isinstance(found, tuple):
            found, wanted = (found,), (wanted,)
        assert [t.tolist() for t in found] == [t.tolist() for t in wanted]


def test_a_state_that_another_tensor_shares_is_no_argument_to_assign():
    """The step reads the tensor that it names, not another one of the same buffer."""
    state = Tensor(np.array([5.0, 3.0], np.float32)).realize()
    shown = Tensor(state)

    @jit
    def step(x: Tensor) -> Tensor:
        x[:] = x * 2
        return x.assign(state) + 1

    assert step(Tensor(np.zeros(2, np.float32)).realize()).tolist() == [6.0, 4.0]
    with pytest.raises(JitError, match="also reaches from outside"):
        step(state)
    assert state.tolist() == shown.tolist() == [5.0, 3.0]
    assert step(shown).tolist() == [6.0, 4.0]  # another tensor


@pytest.mark.sweep
@pytest.mark.parametrize(
    "change", [lambda t: t.fill_(5.0), lambda t: t.copy_(t + 5.0), lambda t: t.realize().fill_(5.0)]
)
@pytest.mark.parametrize(
    ("made", "write"),
    [
        (lambda a: Tensor(0.0), lambda a, x: x.relu()),
        (lambda a: Tensor(0.0), lambda a, x: x.reshape(1, 3).tril()),
        (lambda a: Tensor.zeros(3), lambda a, x: x + Tensor.zeros(3)),
        (lambda a: a * 2, lambda a, x: x + a * 2),
    ],
)
def test_what_a_step_writes_is_not_a_tensor_outside_that_has_the_same_value(made, write, change) -> None:
    a = Tensor([1.0, 2.0, 3.0]).realize()
    outside = made(a)
    step = jit(lambda x: write(a, x))
    for k in range(4):
        x = Tensor([-1.0 - k, 1.0, 2.0 * k])
        assert step(x).tolist() == write(a, x).tolist()
        if k == 1:
            change(outside)


def test_a_number_outside_that_a_step_reads_is_bound_anew() -> None:
    rate = Tensor(0.5)
    step = jit(lambda x: x.relu() * rate)
    for k in range(5):
        assert step(Tensor([-1.0, 2.0])).tolist() == [0.0, 2.0 * (0.5 + k)]
        rate += 1.0
    assert len(step.captures) == 1 and step.usual is not None


def test_numbers_outside_leave_a_step_on_its_device() -> None:
    held = Tensor(False), Tensor(0.0)
    step = jit(lambda x: ((x != 0).tril(), x.relu() + held[1]))
    for k in range(3):
        x = Tensor([[float(k), 1.0]], device="python")
        below, positive = step(x)
        assert below.device == positive.device == "python"
        assert below.tolist() == [[k > 0, False]] and positive.tolist() == [[k, 1.0]]
