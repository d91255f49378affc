"""The generated surface: files are current, in-place forms and functions do what PyTorch's do, absent names say why."""

import inspect

import numpy as np
import pytest
import torch

import monolect
from monolect import DTypeError, GradientError, ShapeError, Tensor, dtypes, nn
from monolect.base.absent import ABSENT
from monolect.base.names import METHODS
from monolect.cli.surface.generate import NOT_IN_PLACE, PACKAGE, files
from monolect.cli.surface.torch_names import NAMES

FORMS = sorted(n for kind, names in METHODS.items() if "in_place_forms" in kind for n in names.split())
SPACES = {
    "Tensor": (Tensor, torch.Tensor), "Tensor in place": (Tensor, torch.Tensor), "monolect": (monolect, torch),
    "operators of Tensor": (Tensor, torch.Tensor), "nn.functional": (nn.functional, torch.nn.functional),
    "special": (monolect.special, torch.special), "linalg": (monolect.linalg, torch.linalg), "nn": (nn, torch.nn),
}  # fmt: skip


def test_generated_files_are_current() -> None:
    made = files()
    for path, text in made.items():
        assert (PACKAGE / path).read_text(encoding="utf-8") == text, f"{path}: run `make surface`"
    for folder in ("functions", "tensor/methods/in_place_forms"):
        there = {str(f.relative_to(PACKAGE)) for f in (PACKAGE / folder).glob("*.py")}
        assert there == {p for p in made if p.rpartition("/")[0] == folder}


@pytest.mark.parametrize("space", SPACES)
def test_the_stored_names_are_names_of_pytorch(space: str) -> None:
    _, theirs = SPACES[space]
    assert [n for n in NAMES[space] if not hasattr(theirs, n)] == []


@pytest.mark.parametrize("space", ["monolect", "nn.functional", "special", "linalg"])
def test_functions_have_the_parameters_of_their_methods(space: str) -> None:
    ours, _ = SPACES[space]
    found = [(n, getattr(ours, n, None)) for n in NAMES[space]]
    names = [n for n, f in found if inspect.isfunction(f) and f.__module__.startswith("monolect.functions")]
    assert len(names) > {"monolect": 200, "nn.functional": 50, "special": 5, "linalg": 1}[space]
    for n in names:
        of = inspect.signature(getattr(ours, n))
        name = inspect.unwrap(getattr(ours, n)).__name__
        getattr(Tensor, name)  # imports a late method
        method = inspect.getattr_static(Tensor, name)
        method = getattr(method, "fget", method)  # of `real`, a property
        theirs = [*inspect.signature(getattr(method, "__func__", method)).parameters.values()][1:]
        assert {p.name: (p.default, p.kind) for p in theirs}.items() <= {
            p.name: (p.default, p.kind) for p in of.parameters.values()
        }.items(), n


# Positional parameters of PyTorch that older code passes by name, and that change no result.
OF_OLD_CODE = {"size_average", "reduce", "_stacklevel", "inplace", "sparse", "sparse_grad"}


def _parameters(f: object) -> list[str]:
    """Return the names of the parameters that may be positional; none of a builtin or a function of (*args)."""
    try:
        found = inspect.signature(f).parameters.values()  # type: ignore[arg-type]
    except ValueError:
        return []
    return [p.name for p in found if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in OF_OLD_CODE]


@pytest.mark.parametrize("name", [n for n in NAMES["nn.functional"] if hasattr(nn.functional, n)])
def test_functions_of_networks_take_the_arguments_of_pytorch_in_its_order(name: str) -> None:
    here, there = _parameters(getattr(nn.functional, name)), _parameters(getattr(torch.nn.functional, name))
    common = [n for n in here if n in there]
    assert len(common) >= min(2, len(here), len(there)), (here, there)
    assert [here.index(n) for n in common] == [there.index(n) for n in common], (here, there)


def test_unfold_of_images_is_the_function_of_pytorch() -> None:
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    wanted = torch.nn.functional.unfold(torch.tensor(x), 2, 1, 0, 2)
    assert nn.functional.unfold(Tensor(x), 2, 1, 0, 2).tolist() == wanted.tolist()


def test_functions_are_found_listed_and_checked() -> None:
    x = Tensor([[1.0, -2.0], [3.0, 4.0]])
    assert monolect.add(x, 1, alpha=2).tolist() == x.add(1, alpha=2).tolist()
    assert monolect.where(x > 0, x, 0).tolist() == [[1.0, 0.0], [3.0, 4.0]]
    assert monolect.stack([x, x], dim=1).shape == (2, 2, 2) and monolect.cat((x, x), 1).shape == (2, 4)
    assert monolect.zeros(2, 3).shape == (2, 3) and monolect.einsum("ij->ji", x).shape == (2, 2)
    assert monolect.max(x, 1).indices.tolist() == [0, 1] and monolect.special.expit(Tensor(0.0)).item() == 0.5
    assert nn.functional.gelu(Tensor(0.0)).item() == 0.0 and nn.functional.cross_entropy(x, Tensor([0, 1])).shape == ()
    assert {"add", "where", "stack"} <= {*dir(monolect)}
    with pytest.raises(monolect.ArgumentError, match="add: bad argument"):
        monolect.add([1, 2], 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("space", ["Tensor", "monolect", "linalg"])
def test_an_absent_name_says_what_to_use(space: str) -> None:
    ours, _ = SPACES[space]
    x = Tensor([1.0]) if ours is Tensor else ours
    absent = [n for n in ABSENT[space] if not hasattr(x, n)]
    assert absent
    for n in absent:
        with pytest.raises(AttributeError) as caught:
            getattr(x, n)
        assert n in str(caught.value) and str(caught.value).endswith(ABSENT[space][n]), n
        assert getattr(x, n, None) is None
        assert not (ours is Tensor and n in dir(x))
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        monolect.nope  # type: ignore[attr-defined] # noqa: B018
    for module in (nn, nn.functional):
        with pytest.raises(AttributeError, match="has no attribute 'nope'"):
            module.nope  # type: ignore[attr-defined] # noqa: B018


ALIASES = (
    "absolute abs arccos acos arccosh acosh arcsin asin arcsinh asinh arctan atan arctanh atanh greater gt"
    " greater_equal ge less lt less_equal le not_equal ne subtract sub multiply mul divide div true_divide div"
    " moveaxis movedim swapdims transpose swapaxes transpose trapz trapezoid concat cat concatenate cat"
    " row_stack vstack negative neg fix trunc"
).split()


def test_other_names_are_the_same_functions() -> None:
    pairs = [*zip(ALIASES[::2], ALIASES[1::2], strict=True)]
    for other, name in pairs:
        assert inspect.unwrap(getattr(Tensor, other)) is inspect.unwrap(getattr(Tensor, name)), other
        assert inspect.unwrap(getattr(monolect, other)) is inspect.unwrap(getattr(monolect, name)), other


def test_shapes_and_types_of_others() -> None:
    x, y = Tensor([[1, 2, 3]]), Tensor([[1.5], [2.5], [0.5]])
    assert x.view_as(y).shape == x.reshape_as(y).shape == (3, 1) and x.expand_as(x + y).shape == (3, 3)
    assert x.type_as(y).dtype is y.dtype and x.element_size() == 8 and y.element_size() == 4


# ---- in-place forms --------------------------------------------------------------------------------------------------
A = np.array([[0.3, -0.7, 0.9], [0.25, 0.5, -0.4]])
B = np.array([[0.6, 0.8, -0.2], [1.5, 0.9, 0.3]])
I = np.array([[5, -3, 7], [0, 2, 4]])  # noqa: E741
J = np.array([[2, 4, 3], [1, 5, 6]])
MASK = np.array([[True, False, True], [False, True, False]])
ROWS = np.array([1, 0])
WHERE = np.array([[1, 0, 0], [0, 1, 1]])
BINARY = (
    "add sub subtract mul multiply div divide true_divide floor_divide remainder fmod copysign hypot atan2 arctan2 eq"
    " not_equal lt le gt ge less less_equal greater greater_equal ne heaviside logical_and logical_or logical_xor"
    " nextafter fmax fmin xlogy ldexp float_power"
).split()
OF_INTS = "bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift gcd lcm".split()
ARGUMENTS: dict[str, tuple] = {
    **{name: (B,) for name in BINARY},
    **{name: (J,) for name in OF_INTS},
    "bitwise_not": (),
    "addcmul": (B, A),
    "addcdiv": (A, B),
    "pow": (2,),
    "clamp": (-0.2, 0.5),
    "clip": (-0.2, 0.5),
    "clamp_min": (0.1,),
    "clamp_max": (0.1,),
    "lerp": (B, 0.3),
    "cumsum": (1,),
    "cumprod": (1,),
    "index_add": (0, ROWS, B),
    "index_copy": (0, ROWS, B),
    "index_fill": (1, ROWS, 2.5),
    "masked_fill": (MASK, 3.0),
    "put": (ROWS, np.array([7.0, 8.0])),
    "scatter": (1, WHERE, B),
    "scatter_add": (1, WHERE, B),
}
BASES = {name: A + 2 for name in ("acosh", "arccosh")} | {
    name: abs(A) for name in "log log2 log10 sqrt rsqrt logit lgamma digamma xlogy float_power pow".split()
}
OTHERWISE = frozenset(  # forms with tests of their own
    "addbmm_ addmm_ addmv_ addr_ baddbmm_ index_put_ index_reduce_ scatter_reduce_ masked_scatter_ polygamma_ mvlgamma_"
    " renorm_ fill_diagonal_ igamma_ igammac_".split()
)


@pytest.mark.sweep
@pytest.mark.parametrize("form", [f for f in FORMS if f not in OTHERWISE])
def test_a_form_writes_what_pytorchs_writes(form: str) -> None:
    """To a tensor, to a view, and with the gradients of a value that is no leaf."""
    name = form.removesuffix("_")
    arguments, base = ARGUMENTS.get(name, ()), I if name in OF_INTS else BASES.get(name, A)
    mine, other = ([lib(x) if isinstance(x, np.ndarray) else x for x in arguments] for lib in (Tensor, torch.tensor))
    x, t = Tensor(base.copy()), torch.tensor(base)
    view = x[:]  # sees the write
    assert getattr(x, form)(*mine) is x
    getattr(t, form)(*other)
    np.testing.assert_allclose(x.numpy(), t.numpy(), rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(view.numpy(), x.numpy())
    if name in OF_INTS:
        return
    whole, theirs = Tensor(np.stack([base, base])), torch.tensor(np.stack([base, base]))
    getattr(whole[1], form)(*mine)
    getattr(theirs[1], form)(*other)
    np.testing.assert_allclose(whole.numpy(), theirs.numpy(), rtol=1e-12, atol=1e-15)
    a, b = Tensor(base, requires_grad=True), torch.tensor(base, requires_grad=True)
    c, d = a * 2, b * 2
    getattr(c, form)(*mine)
    try:
        getattr(d, form)(*other)
        (d * torch.tensor(B)).sum().backward()
    except RuntimeError:  # PyTorch has no derivative of it
        return
    if getattr(x, name)(*mine).dtype is dtypes.bool or name == "nextafter":  # zeros in PyTorch
        with pytest.raises(GradientError, match="reaches no leaf"):
            (c * Tensor(B)).sum().backward()
        return
    (c * Tensor(B)).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(force=True), rtol=1e-9, atol=1e-12)


def test_every_form_of_pytorch_with_a_method_is_there() -> None:
    methods = [n for n in NAMES["Tensor in place"] if n not in NOT_IN_PLACE and hasattr(Tensor, n.removesuffix("_"))]
    assert sorted(methods) == FORMS


@pytest.mark.parametrize("form", ["add_", "exp_", "clamp_", "masked_fill_"])
def test_what_a_form_refuses(form: str) -> None:
    given = {"add_": (1.5,), "exp_": (), "clamp_": (0.5, 0.7), "masked_fill_": (Tensor([True, False]), 0.5)}[form]
    leaf = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError, match=form):
        getattr(leaf, form)(*given)
    if form != "masked_fill_":
        with pytest.raises(DTypeError, match=form):
            getattr(Tensor([1, 2]), form)(*given)
    with pytest.raises(ShapeError):
        Tensor([1.0, 2.0]).add_(Tensor([[1.0], [2.0]]))
