"""`out=` of the generated functions beside PyTorch: results, views, aliases of inputs, and what is refused."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import ArgumentError, DeviceError, DTypeError, GradientError, ShapeError, Tensor, jit, no_grad
from monolect.cli.surface.torch_names import NAMES, TAKES_OUT
from tests.unit.torch_keywords import taking_out

A = np.array([[0.3, -0.7, 0.9], [0.25, 0.5, -0.4], [0.1, 0.8, 0.6]])
B = np.array([[0.6, 0.8, -0.2], [1.5, 0.9, 0.3], [0.4, 0.2, 0.7]])
I = np.array([[5, 3, 7], [1, 2, 4], [6, 9, 8]])  # noqa: E741
J = np.array([[2, 4, 3], [1, 5, 6], [3, 2, 1]])
MASK = np.array([[True, False, True], [False, True, False], [True, True, True]])
ROWS = np.array([1, 0, 2])
AT = np.array([[1, 0, 0], [0, 1, 1], [2, 2, 2]])
OURS = {
    "monolect": monolect,
    "nn.functional": monolect.nn.functional,
    "special": monolect.special,
    "linalg": monolect.linalg,
}
THEIRS = {"monolect": torch, "nn.functional": torch.nn.functional, "special": torch.special, "linalg": torch.linalg}
# name -> positional arguments; by default A for each required parameter, B for the second one
V, W = A[0], B[0]
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **{n: (I, J) for n in "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm".split()},
    "bitwise_not": (I,), "acosh": (A + 2,), "arccosh": (A + 2,),
    **{n: (abs(A),) for n in "sqrt rsqrt log log2 log10 lgamma digamma logit bernoulli entr gammaln psi ndtri".split()},
    **{n: (abs(A),) for n in "bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1".split()},
    **{n: (abs(A),) for n in "scaled_modified_bessel_k0 scaled_modified_bessel_k1".split()},
    **{n: (abs(A), abs(B)) for n in "xlogy xlog1py float_power igamma igammac gammainc gammaincc".split()},
    "zeta": (abs(A) + 1.5, abs(B)), "pow": (abs(A), 2.5), "lerp": (A, B, 0.25), "clamp": (A, -0.2, 0.5),
    "clip": (A, -0.2, 0.5), "clamp_min": (A, 0.1), "clamp_max": (A, 0.1), "mvlgamma": (A + 3, 2),
    "multigammaln": (A + 3, 2), "polygamma": (1, A + 3), "ldexp": (A, J), "where": (MASK, A, B),
    **{n: (A, 3) for n in [*NAMES["special"]] if "polynomial" in n},
    "addbmm": (A, np.stack([A, B]), np.stack([B, A])),
    "baddbmm": (np.stack([A, B]), np.stack([A, B]), np.stack([B, A])), "bmm": (np.stack([A, B]), np.stack([B, A])),
    "addmm": (A, A, B), "addmv": (V, A, W), "addr": (A, V, W), "mv": (A, W), "dot": (V, W), "vdot": (V, W),
    "ger": (V, W), "outer": (V, W), "cross": (A, B), "matrix_power": (A, 3),
    "bucketize": (A, np.array([-0.5, 0.0, 0.5])), "searchsorted": (np.array([-0.5, 0.0, 0.5]), A),
    **{n: ([A, B],) for n in "cat concat concatenate stack hstack vstack dstack row_stack column_stack".split()},
    "chain_matmul": (A, B, A), "multi_dot": ([A, B, A],), "gather": (A, 1, AT), "take": (A, AT),
    "take_along_dim": (A, AT, 1), "index_select": (A, 0, ROWS), "index_add": (A, 0, ROWS, B),
    "index_copy": (A, 0, ROWS, B), "index_reduce": (A, 0, ROWS, B, "amax"), "scatter": (A, 1, AT[:2], B),
    "heaviside": (A, B), "histogram": (A, 4), "isin": (I, J), "kthvalue": (A, 2, 1), "topk": (A, 2),
    "masked_select": (A, MASK), "multinomial": (abs(A), 1), "quantile": (A, 0.3, 1), "nanquantile": (A, 0.3, 1),
    "renorm": (A, 2.0, 0, 0.8), "slice_scatter": (A, B[:1], 0, 1, 2), "tensordot": (A, B, 1), "linear": (A, B, V),
    "nonzero": (MASK,), "median": (A, 1), "nanmedian": (A, 1), "mode": (A, 1), "max": (A, 1), "min": (A, 1),
    "logsumexp": (A, 1), "cummax": (A, 1), "cummin": (A, 1), "cumsum": (A, 1), "cumprod": (A, 1),
    "logcumsumexp": (A, 1), "norm": (A, 2, 1), "sum": (A, 1), "prod": (A, 1), "mean": (A, 1), "nansum": (A, 1),
    "nanmean": (A, 1), "all": (MASK, 1), "any": (MASK, 1), "amax": (A, 1), "amin": (A, 1), "histc": (A, 7),
    "std": (A, 1), "var": (A, 1), "argmax": (A, 1), "argmin": (A, 1),
}  # fmt: skip
NAMED = {"argsort": {"stable": True}}  # without it PyTorch takes no `out`
RANDOM = frozenset(("bernoulli", "multinomial"))


def _has_out(f: Any) -> bool:
    return (
        inspect.isfunction(f)
        and f.__module__.startswith("monolect.functions")
        and "out" in inspect.signature(f).parameters
    )


CASES = [(space, n) for space in TAKES_OUT for n in TAKES_OUT[space] if _has_out(getattr(OURS[space], n, None))]


def _given(name: str, f: Any) -> tuple[Any, ...]:
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in inspect.signature(f).parameters.values() if p.default is p.empty and p.kind in kinds]
    return (A, B, B + 2)[: len(needed)]


def _as(kind: Any, x: Any) -> Any:
    if isinstance(x, list | tuple):
        return type(x)(_as(kind, y) for y in x)
    return kind(x) if isinstance(x, np.ndarray) else x


def _parts(x: Any) -> list[Any]:
    return [*x] if isinstance(x, tuple) else [x]


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::UserWarning")  # of PyTorch, about its own plans
@pytest.mark.parametrize(("space", "name"), CASES)
def test_out_takes_the_result(space: str, name: str) -> None:
    """In a tensor, in a view of one, and in an input: then other inputs and later reads see the old and new values."""
    ours, theirs = getattr(OURS[space], name), getattr(THEIRS[space], name)
    given = _given(name, ours)
    result = _parts(ours(*_as(Tensor, given)))
    outs = [Tensor.zeros(*r.shape, dtype=r.dtype) for r in result]
    found = ours(*_as(Tensor, given), out=outs[0] if len(outs) == 1 else tuple(outs))
    assert all(f is o for f, o in zip(_parts(found), outs, strict=True))
    if name not in RANDOM:
        want = theirs(*_as(torch.tensor, given))
        filled = [torch.zeros_like(w) for w in _parts(want)]
        theirs(*_as(torch.tensor, given), out=filled[0] if len(filled) == 1 else tuple(filled), **NAMED.get(name, {}))
        for o, w in zip(outs, filled, strict=True):
            np.testing.assert_allclose(o.numpy(), w.numpy(), rtol=1e-9, atol=1e-12)
    bases = [Tensor.zeros(3, *r.shape, dtype=r.dtype) for r in result]
    views = [b[1] for b in bases]
    ours(*_as(Tensor, given), out=views[0] if len(views) == 1 else tuple(views))
    for b, o in zip(bases, outs, strict=True):
        assert b[0].cast("float64").abs().sum().item() == b[2].cast("float64").abs().sum().item() == 0
        if name not in RANDOM:
            np.testing.assert_array_equal(b[1].numpy(), o.numpy())
    for at in range(len(given)):
        mine = [*_as(Tensor, given)]
        x = mine[at]
        if isinstance(x, Tensor) and len(outs) == 1 and x.shape == outs[0].shape and x.dtype is outs[0].dtype:
            seen = x[:] if x.ndim else x
            assert ours(*mine, out=x) is x
            if name not in RANDOM:
                np.testing.assert_array_equal(x.numpy(), outs[0].numpy())
                np.testing.assert_array_equal(seen.numpy(), outs[0].numpy())


# Functions of the same name in PyTorch without `out`, and those with it that have none here.
MADE_BY_CLASS = "arange empty eye full linspace logspace normal ones rand randint randn randperm zeros".split()


@pytest.mark.parametrize("space", TAKES_OUT)
def test_the_functions_that_take_out_are_those_of_pytorch(space: str) -> None:
    assert sorted(TAKES_OUT[space]) == sorted(taking_out(space))
    lacking = [n for n in TAKES_OUT[space] if hasattr(OURS[space], n) and (space, n) not in CASES]
    assert sorted(lacking) == (sorted(MADE_BY_CLASS) if space == "monolect" else [])


def test_what_out_refuses() -> None:
    x, y = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([[1, 2], [3, 4]])
    refused: list[tuple[Any, type[Exception], str]] = [
        (lambda: monolect.add(x, x, out=Tensor.zeros(2)), ShapeError, "shape of the result"),
        (lambda: monolect.sum(x, 1, out=Tensor.zeros(2, 1)), ShapeError, "sum: out"),
        (lambda: monolect.add(x, x, out=y), DTypeError, "int64"),
        (lambda: monolect.mul(y, y, out=y > 0), DTypeError, "bool"),
        (lambda: monolect.exp(x, out=x.detach().requires_grad_()), GradientError, "requires a gradient"),
        (lambda: monolect.exp(x, out=[0.0]), ArgumentError, "a Tensor"),
        (lambda: monolect.sort(x, out=x), ArgumentError, "a tuple of 2 Tensors"),
        (lambda: monolect.add(x, x, out=(x,)), ArgumentError, "a Tensor"),
        (lambda: monolect.exp(x, out=Tensor.zeros(2, 2, device="cpu:1")), DeviceError, "cpu"),
        (lambda: monolect.exp(x, out=Tensor.zeros(2, 1).expand(2, 2)), ArgumentError, "memory"),
    ]  # fmt: skip
    for call, error, text in refused:
        with pytest.raises(error, match=text):
            call()
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]] and y.tolist() == [[1, 2], [3, 4]]
    values, indices = Tensor.zeros(2, 2), Tensor.zeros(2, 2)
    with pytest.raises(DTypeError):
        monolect.sort(x, out=(values, Tensor.zeros(2, 2) > 0))
    assert values.tolist() == [[0.0, 0.0], [0.0, 0.0]]  # a refused call writes nothing
    assert monolect.sort(x, descending=True, out=(values, indices)).indices is indices
    assert indices.tolist() == [[1.0, 0.0], [1.0, 0.0]]  # integers are cast to floats, as in PyTorch


def test_out_is_cast_has_gradients_and_is_captured() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    out = Tensor.zeros(2, dtype="float64")
    assert monolect.mul(x, 3.0, out=out) is out and out.dtype is Tensor([1.0], dtype="float64").dtype
    out.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    with no_grad():
        monolect.neg(x, out=x)
    assert x.tolist() == [-1.0, -2.0] and x.requires_grad

    @jit
    def step(x: Tensor, out: Tensor) -> Tensor:
        return monolect.add(x, out, out=out)

    total = Tensor.zeros(2)
    for _ in range(4):
        step(Tensor([1.0, 2.0]), total)
    assert total.tolist() == [4.0, 8.0]
