"""Attributes that a captured step reads, in whatever way, are seen when they change; others may change at no cost."""

import copy
import dataclasses
import random
import re
import warnings

import numpy as np
import pytest

from monolect import CaptureWarning, Tensor, function, jit, nn
from tests.strategies import often

# Each way to read the attribute A of `self`: an expression, and what else the class body and the module hold.
WAYS = {
    "an attribute": ("self.A", "", ""),
    "a method": ("self.read_A()", "def read_A(self): return self.A", ""),
    "a method of a method": (
        "self.first_A()",
        "def first_A(self): return self.read_A()\ndef read_A(self): return self.A",
        "",
    ),
    "a property": ("self.prop_A", "@property\ndef prop_A(self): return self.A", ""),
    "getattr": ("getattr(self, 'A')", "", ""),
    "getattr with a default": ("getattr(self, 'A', 0.0)", "", ""),
    "getattr, computed": ("getattr(self, ''.join(NAME_A))", "", "NAME_A = list('A')"),
    "getattr, renamed": ("get_A(self, NAME_A)", "", "get_A = getattr; NAME_A = 'A'"),
    "getattr, handed on": ("functools.reduce(getattr, ['A'], self)", "", "import functools"),
    "a computed method": (
        "getattr(self, ''.join(NAME_A))()",
        "def read_A(self): return self.A",
        "NAME_A = ['read', '_', 'A']",
    ),
    "vars": ("vars(self)['A']", "", ""),
    "vars, renamed": ("vars_A(self)['A']", "", "vars_A = vars"),
    "__dict__": ("self.__dict__['A']", "", ""),
    "__getattribute__": ("object.__getattribute__(self, 'A')", "", ""),
    "attrgetter": ("operator.attrgetter('A')(self)", "", "import operator"),
    "attrgetter of a path": ("attrgetter('me.A')(self)", "", "from operator import attrgetter"),
    "attrgetter, computed": ("attrgetter(NAME_A)(self)", "", "from operator import attrgetter\nNAME_A = 'A'"),
    "attrgetter, renamed": ("ag_A(self)", "", "from operator import attrgetter as made\nag_A = made('A')"),
    "attrgetter class, renamed": ("ag_A('A')(self)", "", "from operator import attrgetter as ag_A"),
    "methodcaller": ("operator.methodcaller('read_A')(self)", "def read_A(self): return self.A", "import operator"),
    "an f-string": ("float(f'{self.A}')", "", ""),
    "format": ("float('{0.A}'.format(self))", "", ""),
    "format, kept": ("float(TEXT_A.format(s=self))", "", "TEXT_A = '{s.A}'"),
    "a lambda": ("(lambda s: s.A)(self)", "", ""),
    "a comprehension": ("[self.A for _ in range(1)][0]", "", ""),
    "a function": ("helper_A(self)", "", "def helper_A(o): return o.A"),
    "a way back": ("self.me.me.A", "", ""),
    "a pattern": (
        "pattern_A(self)",
        "",
        "def pattern_A(o):\n    match o:\n        case object(A=v): return v",
    ),
    "a pattern by place": (
        "pattern_A(self)",
        "__match_args__ = ('A',)",
        "def pattern_A(o):\n    match o:\n        case Model(v): return v",
    ),
    "a copy": ("copy.copy(self).A", "", "import copy"),
    "eval": ("eval('self.A')", "", ""),
    "inspect": ("inspect.getattr_static(self, 'A')", "", "import inspect"),
    "members": ("dict(inspect.getmembers(self))['A']", "", "import inspect"),
    "another object": ("Other_A(self).v", "", "class Other_A:\n    def __init__(self, o): self.v = o.A"),
    "one more by type": ("type(self)(self).kept_A", "", ""),
    "one more by __class__": ("self.__class__(self).kept_A", "", ""),
    "one more by a cell": ("self.make_A()", "def make_A(self): return __class__(self).kept_A", ""),
    "one more by a class method": ("self.make_A(self)", "@classmethod\ndef make_A(cls, o): return cls(o).kept_A", ""),
    "one more by type, renamed": ("kind_A(self)(self).kept_A", "", "kind_A = type"),
    "super": (
        "self.up_A()",
        "def up_A(self): return super().base_A()",
        "class Base_A:\n    __slots__ = ()\n    def base_A(self): return self.A",
    ),
}
SPECIAL = {  # one of each in a class
    "text": ("float(str(self))", "def __str__(self): return str(self.A)", ""),
    "text in an f-string": ("float(f'{self!r}')", "def __repr__(self): return str(self.A)", ""),
    "format of an object": ("float(f'{self:x}')", "def __format__(self, s): return str(self.A)", ""),
    "an item": ("self[0]", "def __getitem__(self, i): return self.A", ""),
    "a call": ("self()", "def __call__(self): return self.A", ""),
    "a sum": ("(self + 1)", "def __add__(self, k): return self.A + k", ""),
    "any name": ("self.nowhere", "def __getattr__(self, name): return vars(self)['A']", ""),
}
EVERY = {  # ways in which code may read, or set, any attribute: all of them count
    "getattr, computed", "getattr, renamed", "getattr, handed on", "vars", "vars, renamed", "__dict__",
    "attrgetter, computed", "attrgetter class, renamed", "format", "format, kept", "a pattern by place", "a copy",
    "eval", "inspect", "members", "one more by type", "one more by __class__", "one more by a cell",
    "one more by a class method", "one more by type, renamed", "any name", "a computed method",
}  # fmt: skip
KINDS = ("plain", "layer", "slots")
ALL = {**WAYS, **SPECIAL}
NO_DICT = ("vars", "vars, renamed", "__dict__", "any name", "inspect")  # what objects with slots lack


def model(kind: str, attributes: dict[str, str]):
    """An object whose jitted `step` reads each attribute in the way that is given, and two that it does not read."""
    n = sorted(attributes)
    bodies, modules, reads = [], [], []
    for a in n:
        for part, out in zip(ALL[attributes[a]], (reads, bodies, modules), strict=True):
            out.append(re.sub(r"\bA\b|(?<=_)A\b", a, part))
    bases = ["nn.Module"] * (kind == "layer") + re.findall(r"class (Base_\w)", "\n".join(modules))
    names = [*n, *(f"kept_{a}" for a in n), "count", "log", "me"]
    body = [f"__slots__ = {(*names, '__weakref__')!r}"] if kind == "slots" else []
    body += ["def __init__(self, other=None):", "    self.me, self.count, self.log = self, 0.0, []"]
    body += [f"    self.{a} = {k + 2.0} if other is None else other.{a}" for k, a in enumerate(n)]
    body += [f"    if other is not None: self.kept_{a} = other.{a}" for a in n]
    body += ["@jit", "def step(self, x):", f"    return x * ({' + 3 * '.join(reads)})"]
    body += ["def fit(self):", "    self.count += 1.0", "    self.log.append(self.count)"]
    lines = [
        *modules,
        f"class Model({', '.join(bases)}):",
        *("    " + line for b in ("\n".join(body), *bodies) for line in b.split("\n")),
    ]
    names_of = {"jit": jit, "nn": nn, "__name__": "a_program_of_the_tests"}
    exec("\n".join(lines), names_of)
    return names_of["Model"]()


def check(kind: str, attributes: dict[str, str]) -> None:
    """Every change of what is read is seen, and none of the others is captured for."""
    m, x = model(kind, attributes), Tensor(np.array([1.0], np.float32)).realize()
    plainly = lambda: m.step.function(m, x).item()  # noqa: E731
    for _ in range(3):
        assert m.step(x).item() == plainly()
        m.fit()
    unread = not any(w in EVERY for w in attributes.values())
    if unread:
        assert len(m.step.captures) == 1, (kind, attributes)
    for a in attributes:
        for k in range(2):
            setattr(m, a, getattr(m, a) + 10.0 + k)
            assert m.step(x).item() == plainly(), (kind, attributes, a)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ALL)
def test_each_way_to_read_an_attribute_is_seen(way: str, kind: str) -> None:
    if kind == "slots" and way in NO_DICT:
        pytest.skip("objects with slots have no dict")
    check(kind, {"a": way})


def test_several_ways_together() -> None:
    for seed in range(often(10, 200)):
        rng = random.Random(seed)
        kind = rng.choice(KINDS)
        ways = [w for w in WAYS if not (kind == "slots" and w in NO_DICT)]
        attributes = dict(zip("abc", rng.sample(ways, rng.randint(1, 3)), strict=False))
        attributes |= {"z": rng.choice([*SPECIAL][:-1])} if rng.random() < 0.3 else {}
        print("seed", seed, kind, attributes)
        check(kind, attributes)


class Counting:
    names = [2.0]

    def __init__(self) -> None:
        self.scale, self.epoch, self.best, self.losses, self.seen = 2.0, 0, None, [], {}

    @jit
    def step(self, x: Tensor) -> Tensor:
        return x * self.scale

    @classmethod
    def fresh(cls) -> Tensor:
        return cls().scale

    def computed(self, x: Tensor) -> Tensor:
        return x * getattr(self, "nam" + "es"[: len(self.names) + 1])[0]


class Layer(nn.Module):
    def __init__(self) -> None:
        self.scale, self.epoch, self.best, self.losses, self.seen = 2.0, 0, None, [], {}
        self.layers = []

    @jit
    def step(self, x: Tensor) -> Tensor:
        return self(x) + sum((p.sum() for p in self.parameters()), Tensor([0.0]))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Holder:
    """An object around a step that is no method of it."""

    def __init__(self) -> None:
        self.scale, self.epoch, self.best, self.losses, self.seen = 2.0, 0, None, [], {}
        self.step = jit(self.scaled)

    def scaled(self, x: Tensor) -> Tensor:
        return x * self.scale


class Derived(Counting):
    def __init__(self) -> None:
        super().__init__()
        self.epoch = len(self.losses)

    @jit
    def step(self, x: Tensor) -> Tensor:
        return super().step(x)


UNREAD = {
    "a counter": lambda m, k: setattr(m, "epoch", k + 1),
    "a log": lambda m, k: m.losses.append(float(k)),
    "a log of texts": lambda m, k: m.losses.append(str(k)),
    "a dict": lambda m, k: m.seen.update({k: "text"}),
    "what was None": lambda m, k: setattr(m, "best", float(k)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("kind", [Counting, Layer, Holder, Derived])
@pytest.mark.parametrize("name", UNREAD)
def test_what_no_code_of_the_step_reads_may_change(name: str, kind: type) -> None:
    m, x = kind(), Tensor([1.0]).realize()
    for k in range(4):
        assert m.step(x).item() == 2.0
        UNREAD[name](m, k)
    assert len(m.step.captures) == 1
    m.scale = 3.0
    assert m.step(x).item() == 3.0


def test_a_parameter_that_comes_into_a_log_of_a_layer_is_seen() -> None:
    x, w = Tensor([1.0]).realize(), Tensor([5.0], requires_grad=True)
    for change in (
        lambda m: m.losses.append(w),
        lambda m: setattr(m, "best", w),
        lambda m: m.seen.update(a=w),
        lambda m: setattr(m, "new", w),
        lambda m: m.layers.append(Layer()),
    ):
        m = Layer()
        assert [m.step(x).item() for _ in range(3)] == [2.0] * 3
        change(m)
        assert m.step(x).item() == (2.0 if m.layers else 7.0)


def test_a_list_of_a_class_under_a_computed_name_is_seen() -> None:
    m, x = Counting(), Tensor([1.0]).realize()
    step = jit(m.computed)
    try:
        assert [step(x).item() for _ in range(3)] == [2.0] * 3
        Counting.names[0] = 3.0
        assert step(x).item() == 3.0
    finally:
        Counting.names[0] = 2.0


def test_what_a_constructor_reads_counts_where_the_step_makes_an_object() -> None:
    table = [1.0]

    @dataclasses.dataclass
    class Config:
        k: float
        scaled: float = 0.0

        def __post_init__(self) -> None:
            self.scaled = self.k * table[0]

    class Made:
        def __new__(cls) -> "Made":
            made = object.__new__(cls)
            made.scaled = 2.0 * table[0]
            return made

        def __getstate__(self) -> None:
            return None

    made, config, x = Made(), Config(2.0), Tensor([1.0]).realize()
    for make in (
        lambda x: x * Config(2.0).scaled,
        lambda x: x * dataclasses.replace(config, k=2.0).scaled,
        lambda x: x * type(config)(2.0).scaled,
        lambda x: x * config.__class__(2.0).scaled,
        lambda x: x * copy.copy(made).scaled,
    ):
        table[0] = 1.0
        step = jit(make)
        assert [step(x).item() for _ in range(3)] == [2.0] * 3
        table[0] = 2.0
        assert step(x).item() == 4.0


def trainer(optimizer: type = nn.optim.Adam):
    """A class as programs have it: a model, an optimizer, a log."""

    class Trainer:
        def __init__(self) -> None:
            self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).realize()
            self.opt = optimizer(self.model.parameters())
            self.losses, self.epoch = [], 0

        @jit
        def step(self, x: Tensor) -> Tensor:
            self.opt.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            self.opt.step()
            return loss

        def fit(self, x: Tensor, n: int) -> None:
            for _ in range(n):
                self.losses.append(self.step(x).item())
                self.epoch += 1

    return Trainer()


def test_a_trainer_with_a_log_is_captured_once_for_each_size() -> None:
    t, full, rest = trainer(), Tensor.ones(4, 4).realize(), Tensor.ones(3, 4).realize()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            t.fit(full, 3)
            t.fit(rest, 1)
    assert len(t.step.captures) == 2 and len(t.losses) == 16


CHANGES = {
    "a number": ("self.seen_so_far += 1", "seen_so_far"),
    "a list": ("self.kept.append(x * 2)", "kept"),
    "a list in a private attribute": ("self._hidden.append(1.0)", "_hidden"),
    "what was not there": ("self.last = x * 2", "last"),
    "a global": ("TOTAL.append(1)", "TOTAL"),
    "an optimizer": ("self.opt._groups = (*self.opt._groups, ())", "opt"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", CHANGES)
def test_the_warning_names_what_the_user_called_it(name: str) -> None:
    line, called = CHANGES[name]
    names_of = {"jit": jit, "nn": nn, "Tensor": Tensor, "TOTAL": [], "__name__": "a_program_of_the_tests"}
    exec(
        "class Model:\n"
        " def __init__(self):\n"
        "  self.seen_so_far, self.kept, self._hidden = 0, [], []\n"
        "  self.opt = nn.optim.SGD([Tensor([1.0], requires_grad=True)])\n"
        " @jit\n"
        f" def step(self, x):\n  {line}\n  self.opt.zero_grad()\n  return x * 2",
        names_of,
    )
    m = names_of["Model"]()
    with pytest.warns(CaptureWarning, match=f"changes '{called}', which it reads"):
        for _ in range(4):
            m.step(Tensor([1.0])).realize()


@pytest.mark.sweep
@pytest.mark.parametrize(
    "write", [lambda s: s.assign(4.0), lambda s: s.fill_(4.0), lambda s: s.copy_(Tensor([4.0]).sum())]
)
@pytest.mark.parametrize(
    "step",
    [
        lambda s, x: x.relu() + s * x,
        lambda s, x: (x + 1.0) * (s + 1),
        lambda s, x: x * (s > 0),
        lambda s, x: x + s.sum() * 2 + 3,
    ],
)
def test_a_number_outside_is_not_one_that_the_step_writes(step, write) -> None:
    def run(wrap):
        s, zero = Tensor(0.0), Tensor(1.0)
        f = wrap(lambda x: step(s, x))
        rows = [f(Tensor([1.0, 2.0])).tolist()]
        zero.assign(9.0)
        rows.append(f(Tensor([1.0, 2.0])).tolist())
        write(s)
        rows += [f(Tensor([1.0, 2.0])).tolist() for _ in range(2)]
        s += 1
        return [*rows, f(Tensor([1.0, 2.0])).tolist()]

    assert run(jit) == run(lambda f: f)


def test_an_expression_of_the_step_is_not_a_tensor_that_is_equal() -> None:
    weight = Tensor([1.0, 2.0]).realize()
    later = weight + 1
    step = jit(lambda x: (weight + 1) * x)
    assert step(Tensor(1.0)).tolist() == [2.0, 3.0]
    later.assign(later * 0)
    assert step(Tensor(1.0)).tolist() == [2.0, 3.0] and later.tolist() == [0.0, 0.0]


def test_a_number_that_changes_at_each_call_is_captured_twice() -> None:
    rate, weight = Tensor(0.5), Tensor([1.0, 2.0]).realize()
    step = jit(lambda x: weight.assign(weight - x * (rate + 1)).sum())
    wanted = 3.0
    captures = set()
    for k in range(8):
        wanted -= 2 * (rate.item() + 1)
        assert step(Tensor(1.0)).item() == wanted
        captures |= {*step.captures}
        rate.fill_(k / 4)
    assert len(captures) <= 2 and len(step.captures) == 1


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::monolect.CaptureWarning")
@pytest.mark.parametrize("wrap", [jit, function, lambda f: function(f, precompile=True), lambda f: jit(function(f))])
def test_a_counter_that_goes_round(wrap) -> None:
    class Counter:
        n = 0

    def run(wrap):
        counter, seen, total = Counter(), [], Tensor([1.0]).realize()

        def step(x):
            counter.n = (counter.n + 1) % 3
            seen.append(counter.n)
            if len(seen) > 1:
                seen.clear()
            return total.assign(total * 0.5 + x * counter.n) + len(seen)

        step = wrap(step)
        return [step(Tensor([1.0])).item() for _ in range(9)]

    assert run(wrap) == run(lambda f: f)


@pytest.mark.filterwarnings("ignore::monolect.CaptureWarning")  # of another device: captured when it changes
def test_a_number_that_changes_beside_a_step_of_another_device() -> None:
    factor, x = Tensor(1.5), Tensor([1.0, 2.0], device="python").realize()
    step = jit(lambda x: x * factor + 1)
    for k in range(4):
        factor.fill_(float(k))
        assert step(x).tolist() == [k + 1.0, 2.0 * k + 1]
