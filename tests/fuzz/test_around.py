"""Random steps that read what is around them in every way that Python has, while it changes, beside plain calls.

Around a step are holders: objects, classes, modules, functions and such. Its lines read attributes of them, also those
that are not there; between the calls attributes are set, added and deleted, and holders exchanged. A step, captured or
traced, gives what its plain function gives, or raises what that raises.
"""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from monolect import Context, Tensor, function, jit
from monolect.capture.environment.dependencies import Dependencies

FEW = max(20, settings().max_examples // 2)
FORMS: dict[str, Any] = {"jit": jit, "function": function}
HOLDERS = """
import argparse, contextlib, functools, inspect, operator, types
class Cls: A = 1.0
class Sub(Cls): pass
class Hidden:
    def __setattr__(self, name, value): object.__setattr__(self, '_' + name, value)
    def __getattr__(self, name): return object.__getattribute__(self, '_' + name)
    def __delattr__(self, name): object.__delattr__(self, '_' + name)
class Slots: __slots__ = ('A', 'B', 'C')
def fn(x): return x
obj, sub, hidden, slots = Cls(), Sub(), Hidden(), Slots()
ns, args, part = types.SimpleNamespace(), argparse.Namespace(), functools.partial(fn)
mod = types.ModuleType('a_module_of_the_tests')
pair = [obj, ns]
def new(): return types.SimpleNamespace(A=7.0, B=8.0)
def caught(o):
    try: return o.A
    except AttributeError: return 10.0
def deep(o): return o.A
def caught_above(o):
    try: return deep(o)
    except AttributeError: return 20.0
def suppressed(o):
    found = 30.0
    with contextlib.suppress(AttributeError): found = o.A
    return found
def counted(names): return len([k for k in names if k in 'ABC'])
def summed(values): return sum(v for k, v in values if k in ('A', 'B', 'C'))
"""
READS = (
    "H.A", "getattr(H, 'A', 2.0)", "getattr(H, 'AB'[x.ndim - 1], 3.0)", "hasattr(H, 'B')", "caught(H)", "suppressed(H)",
    "caught_above(H)", "H.__dict__.get('A', 4.0)", "vars(H).get('B', 5.0)", "summed(vars(H).items())", "pair[0].B",
    "counted(dir(H))", "summed(inspect.getmembers(H))", "operator.attrgetter('B')(H)", "caught(pair[1])",
    "object.__getattribute__(H, 'A')", "functools.reduce(getattr, ['A'], H)", "len(Cls.__subclasses__())",
    "('C' in args)", "summed([(k, getattr(H, k)) for k in dir(H)])", "float(f'{H.A}')", "vars(type(H)).get('A', 6.0)",
    "[vars(c).get('B', 0.0) for c in type(H).__mro__][0]", "len(Cls.__subclasses__())",
)  # fmt: skip
CHANGES = (
    "H.A = N", "H.A = N", "H.B = N", "H.C = N", "del H.A", "del H.B", "Cls.B = N", "del Cls.B", "Sub.A = N",
    "del Sub.A", "H = new()", "pair.reverse()", "pair[0] = H", "vars(H).update(B=N)",
    "pair.append(type('Another', (Cls,), {}))",
)  # fmt: skip
NAMES = ("obj", "sub", "hidden", "slots", "ns", "args", "part", "mod", "fn", "Cls", "Sub")


def program(r: random.Random) -> tuple[str, list[list[str]]]:
    """The source of a step, and what happens before each of its calls. Few holders, so that they meet."""
    names = r.sample(NAMES, 2)
    one = lambda rows: r.choice(rows).replace("H", r.choice(names))  # noqa: E731
    lines = [f"    x = x * 2 + ({one(READS)})" for _ in range(r.randrange(1, 4))]
    begin = [f"{name}.{a} = 1.0" for name in names for a in "AB" if r.random() < 0.7]
    changes = [[one(CHANGES).replace("N", str(r.randrange(2, 6))) for _ in range(r.randrange(3))] for _ in range(5)]
    return "\n".join(["def step(x):", *lines, "    return x * 1.0"]), [begin, *changes]


def differs(seed: int, form: str) -> str | None:
    """What the captured step of a seed gives that the plain one does not."""
    source, changes = program(random.Random(seed))
    worlds: list[dict[str, Any]] = [{"__name__": "a_program_of_the_tests"} for _ in range(2)]
    for world in worlds:
        exec(HOLDERS + source, world)
    step, plain = FORMS[form](worlds[0]["step"]), worlds[1]["step"]
    for n, lines in enumerate(changes):
        for line in lines:
            for world in worlds:
                try:
                    exec(line, world)
                except (AttributeError, TypeError):  # not there, or of a kind that has none
                    pass
        found = [_called(f, float(n)) for f in (step, plain)]
        if found[0] != found[1]:
            return f"call {n}: {found[0]}, not {found[1]}, after {changes[: n + 1]}\n{source}"
        if isinstance(found[1], str):
            return None
    return None


def _called(f: Any, x: float) -> Any:
    try:
        return f(Tensor(np.array([x]))).tolist()
    except (AttributeError, TypeError, ValueError) as error:
        return type(error).__name__


@pytest.mark.sweep
@pytest.mark.parametrize("form", FORMS)
def test_steps_see_what_is_around_them(form: str, start: int) -> None:
    with Context(DEVICE="python"):
        for seed in range(start, start + FEW):
            found = differs(seed, form)
            assert found is None, f"the program of seed {seed}, {form}: {found}"


PLANTED: dict[str, tuple[Any, str, Any]] = {
    "attributes that come are not seen": (Dependencies, "_watch_new_attributes", lambda self, own: None),
    "the attributes of a function are those that are named": (Dependencies, "_reads_all", lambda self: False),
    "no class has classes derived from it": (Dependencies, "_subclasses", lambda self, c: iter(())),
    "the dict of a class is not read": (Dependencies, "_is_data", lambda self, value: False),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[name])
    with Context(DEVICE="python"):
        assert any(differs(seed, "jit") for seed in range(400))
