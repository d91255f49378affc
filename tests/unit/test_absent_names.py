"""Names around a step that come, go, or are read through the dict of what has them: each such change is seen."""

import contextlib
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import pytest

from monolect import Tensor, function, jit, nn

HOLDERS = (
    "an object", "a class", "a derived class", "a namespace", "a module", "a function", "a partial", "a layer",
    "a tensor",
)  # fmt: skip
WRAPS = {"jit": jit, "function": function}


def holder(kind: str) -> Any:
    class Plain:
        pass

    class Derived(Plain):
        pass

    class Layer(nn.Linear):
        pass

    class Named(Tensor):
        pass

    made: dict[str, Callable[[], Any]] = {
        "an object": Plain,
        "a class": lambda: Plain,
        "a derived class": lambda: Derived,
        "a namespace": types.SimpleNamespace,
        "a module": lambda: types.ModuleType("a_module_of_the_tests"),
        "a function": lambda: lambda x: x,
        "a partial": lambda: functools.partial(holder),
        "a layer": lambda: Layer(1, 1),
        "a tensor": lambda: Named([[1.0]]),
    }
    return made[kind]()


def caught(h: Any) -> float:
    try:
        return h.k
    except AttributeError:
        return 2.0


def suppressed(h: Any) -> float:
    found = 2.0
    with contextlib.suppress(AttributeError):
        found = h.k
    return found


def deep(h: Any) -> float:
    return h.k


def above(h: Any) -> float:
    try:
        return deep(h)
    except AttributeError:
        return 2.0


READS: dict[str, Callable[[Any], Any]] = {
    "except": caught,
    "suppress": suppressed,
    "except, further up": above,
    "getattr": lambda h: getattr(h, "k", 2.0),
    "hasattr": lambda h: 2.0 + hasattr(h, "k"),
    "dir": lambda h: 2.0 + ("k" in dir(h)),
    "vars": lambda h: vars(h).get("k", 2.0),
    "__dict__": lambda h: h.__dict__.get("k", 2.0),
    "a loop over vars": lambda h: sum([v for name, v in vars(h).items() if name == "k"], 2.0),
    "members": lambda h: dict(inspect.getmembers(h)).get("k", 2.0),
}


@pytest.mark.sweep
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("kind", HOLDERS)
def test_a_name_that_comes_changes_and_goes_is_seen(kind: str, read: str, wrap: str) -> None:
    h, get, x = holder(kind), READS[read], Tensor([1.0])
    step = WRAPS[wrap](lambda x: x * get(h))
    for change in (None, 3.0, 4.0, None, 5.0):
        if change is not None:
            h.k = change
        elif hasattr(h, "k"):
            del h.k
        assert step(x).item() == get(h), change


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("kind", HOLDERS)
def test_a_value_under_another_name_is_another_one(kind: str, wrap: str) -> None:
    h, x = holder(kind), Tensor([1.0])
    plain = lambda x: x * (getattr(h, "a", 100.0) + 10 * getattr(h, "b", 3.0))  # noqa: E731
    step = WRAPS[wrap](plain)
    for name, other in ("ab", "ba", "ab"):
        setattr(h, name, 5.0)
        if hasattr(h, other):
            delattr(h, other)
        assert step(x).item() == plain(x).item()


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_value_under_another_global_is_another_one(wrap: str) -> None:
    source = """
def step(x):
    try: y = x * a
    except NameError: y = x * 10
    try: return y + b
    except NameError: return y + 100
"""
    world: dict[str, Any] = {"__name__": "a_program_of_the_tests"}
    exec(source, world)
    step, x = WRAPS[wrap](world["step"]), Tensor([1.0])
    for name in "abab":
        world.pop("a", None), world.pop("b", None)
        world[name] = 5.0
        assert step(x).item() == world["step"](x).item()


def test_nothing_and_None_are_told_apart() -> None:
    def f(x: Tensor) -> Tensor:
        return x

    step, x = jit(lambda x: x * (1.0 if getattr(f, "k", 3.0) is None else 2.0)), Tensor([1.0])
    assert step(x).item() == 2.0
    f.k = None  # type: ignore[attr-defined]
    assert step(x).item() == 1.0
    del f.k  # type: ignore[attr-defined]
    assert step(x).item() == 2.0


def test_classes_that_are_derived_are_seen() -> None:
    class Rule:
        factor = 1.0

    class Double(Rule):
        factor = 2.0

    step, x = jit(lambda x: x * sum(rule.factor for rule in Rule.__subclasses__())), Tensor([1.0])
    assert step(x).item() == 2.0
    Double.factor = 3.0
    assert step(x).item() == 3.0
    more = type("More", (Rule,), {"factor": 4.0})
    assert step(x).item() == 7.0 and more in Rule.__subclasses__()


def test_an_attribute_under_a_name_that_getattribute_computes_is_seen() -> None:
    class Hidden:
        def __setattr__(self, name: str, value: float) -> None:
            object.__setattr__(self, "_" + name, value)

        def __getattr__(self, name: str) -> Any:
            return object.__getattribute__(self, "_" + name)

    h = Hidden()
    h.k = 2.0
    step, x = jit(lambda x: x * h.k), Tensor([1.0])
    assert step(x).item() == 2.0
    h.k = 3.0
    assert step(x).item() == 3.0


def test_a_new_attribute_of_an_object_is_no_harm_where_no_code_asks_for_absent_ones() -> None:
    class Trainer:
        factor = 2.0

    trainer = Trainer()
    step = jit(lambda x: x * trainer.factor)
    for n in range(3):
        setattr(trainer, f"log{n}", n)
        assert step(Tensor([1.0])).item() == 2.0
    assert len(step.captures) == 1
