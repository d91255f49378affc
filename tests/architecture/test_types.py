"""What users see of the types: public signatures name them, packages list no imports, and a type checker finds them."""

import importlib.util
import inspect
import re
import types
from pathlib import Path

import pytest

import monolect
from monolect import Tensor, Variable, nn
from monolect.base.names import FUNCTIONS as OF_TENSORS
from monolect.capture.function import Function
from monolect.capture.step import Jit, Method

ROOT = Path(__file__).resolve().parents[2]
USES = ROOT / "tests" / "types" / "uses.py"
OPERATORS = re.compile(
    r"__(r|i)?(add|sub|mul|truediv|floordiv|mod|pow|matmul|and|or|xor|(get|set)item|[lg][te]|eq|ne)__"
)
# Parameters of type Any, and why no other type is right.
ANY = {
    "Module.forward": "a subclass takes what it wants",
    "Module.__call__": "a type checker takes the types of `forward`",
}
CLASSES = [
    Tensor, Variable, monolect.Context, Jit, Method, Function, type(monolect.jit),
    *(x for m in (nn, nn.optim) for x in map(m.__dict__.get, m.__all__) if inspect.isclass(x)),
]  # fmt: skip
FUNCTIONS = [
    f for m in (monolect, nn.state) for f in (getattr(m, n) for n in m.__all__) if isinstance(f, types.FunctionType)
]


def is_public(name):
    return not name.startswith("_") or name in ("__init__", "__call__") or OPERATORS.fullmatch(name)


def untyped(f):
    """The parameters of a function that name no type, or Any alone."""
    parameters = list(inspect.signature(inspect.unwrap(f)).parameters.values())
    unnamed = (inspect.Parameter.empty, "Any")
    return [p.name for p in parameters if p.annotation in unnamed and p.name not in ("self", "cls")]


def methods_of(cls):
    for name in dir(cls):
        getattr(cls, name, None)  # imports the methods that are imported late
    for base in cls.__mro__:
        if base.__module__.startswith("monolect"):
            for name, f in vars(base).items():
                f = getattr(f, "__func__", f)
                if is_public(name) and isinstance(f, types.FunctionType):
                    yield f"{base.__name__}.{name}", f


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_parameters_of_public_methods_have_types(cls):
    found = {name: untyped(f) for name, f in methods_of(cls) if name not in ANY}
    assert {name: p for name, p in found.items() if p} == {}


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_parameters_of_public_functions_have_types(f):
    assert untyped(f) == []


def test_planted_parameters_are_found():
    def planted(a: "Any", b, c: "int", *args: "Any", self=None):  # noqa: F821
        pass

    assert untyped(planted) == ["a", "b", "args"]
    assert is_public("__radd__") and is_public("sum") and not is_public("__reduce__")


@pytest.mark.parametrize("module", [monolect, nn, nn.optim, nn.state], ids=lambda m: m.__name__)
def test_packages_list_their_public_names_alone(module):
    assert {n for n in dir(module) if not n.startswith("__")} == {
        *module.__all__,
        *((*OF_TENSORS, *monolect._DTYPES, *monolect._NUMBERS) if module is monolect else ()),
    }


def test_the_package_says_that_it_has_types():
    assert (ROOT / "monolect" / "py.typed").exists()


def uses():
    spec = importlib.util.spec_from_file_location("uses", USES)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_a_type_checker_accepts_runs():
    uses().main()


def test_a_type_checker_finds_the_types():
    api = pytest.importorskip("mypy.api", reason="mypy is not installed; `make check` runs it")
    out, errors, status = api.run(["--config-file", str(ROOT / "pyproject.toml"), str(USES)])
    assert status == 0, out + errors


@pytest.mark.parametrize(
    "family", ["conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"]
)
def test_methods_of_a_family_differ_in_the_number_of_axes_alone(family: str) -> None:
    signatures = [inspect.signature(getattr(Tensor, f"{family}{n}d")) for n in (1, 2, 3)]
    assert signatures[0] == signatures[1] == signatures[2]
