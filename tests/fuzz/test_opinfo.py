"""PyTorch's own samples of its operators (OpInfo), for names of methods and functions: values, dtypes, gradients.

A sweep, not part of `make test`. A call that monolect refuses with an error of its own is no failure here; a result
that differs is. The counts are printed with `-s`.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import MonolectError, Tensor, dtypes

DTYPES = {
    torch.float64: dtypes.float64,
    torch.float32: dtypes.float32,
    torch.bfloat16: dtypes.bfloat16,
    torch.float16: dtypes.float16,
    torch.int64: dtypes.int64,
    torch.int32: dtypes.int32,
    torch.uint8: dtypes.uint8,
    torch.int8: dtypes.int8,
    torch.bool: dtypes.bool,
}
MOST_SAMPLES = 60  # of one operator and dtype
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.bfloat16: 4e-2, torch.float16: 4e-3}

# Methods of one name that mean something else, or whose result is arbitrary.
OTHER_MEANING = {
    "__getitem__": "the samples index with masks and lists of lists, covered by the tests of indices",
    "empty": "values are arbitrary",
    "empty_like": "values are arbitrary",
    "bernoulli": "random",
    "multinomial": "random",
    "normal": "random",
    "uniform": "random",
    "rand_like": "random",
    "randint": "random",
    "randint_like": "random",
    "randn": "random",
    "randn_like": "random",
    "nn.functional.dropout": "random",
    "clone": "memory formats of PyTorch",
    "argsort": "PyTorch's order of equal elements is its own",
    "linalg.norm": "of matrices another norm than that of all elements",
    "zero_": "PyTorch refuses it of a leaf",
    "item": "gives a Python number",
    "to": "takes types and devices of PyTorch",
    "arange": "PyTorch converts bounds to an integer dtype first, NumPy and monolect do not",
    "linspace": "as arange",
    "nn.functional.multi_head_attention_forward": "the samples drop at random",
    "T": "a property",
    "mT": "a property",
}
# The index among equal elements is arbitrary: only the values are compared.
OTHER_BOOLS = {  # of a mask PyTorch's `x.where(mask, y)` cannot be told from `mask.where(x, y)`; old results of uint8
    ("where", torch.bool),
    ("any", torch.uint8),
    ("all", torch.uint8),
}
PRECISION = 1e-6  # of PyTorch's own Bessel and Airy functions in float64, relative to the largest element
IMPRECISE = ("special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1", "special.airy_ai")
TIED = ("kthvalue", "median", "nanmedian", "mode", "topk", "sort", "min", "max", "msort", "argsort")


def operators() -> list[Any]:
    """The OpInfos of methods and functions here. Their import takes seconds, so it waits until it is needed."""
    found = pytest.importorskip("torch.testing._internal.common_methods_invocations", reason="expecttest is missing")
    return [
        op
        for op in found.op_db
        if op.name not in OTHER_MEANING
        and not op.name.startswith(("masked.", "sparse.", "fft.", "_refs"))
        and callable(ours(op.name))
    ]


def ours(name: str) -> Any:
    """The function of `monolect.special` or `linalg` of that name, else the method, else another function; or None."""
    path = name.split(".")
    method = None if path[0] in ("special", "linalg") else getattr(Tensor, path[-1], None)
    try:
        return method or attrgetter(name)(monolect)
    except AttributeError:
        return None


def translated(x: Any) -> Any:
    """An argument of PyTorch's as one of monolect's. Raises KeyError for a dtype that monolect lacks."""
    if isinstance(x, torch.Tensor):
        if x.layout is not torch.strided:
            raise KeyError(x.layout)
        bits = x.detach().contiguous()
        if x.dtype is torch.bfloat16:
            return Tensor(bits.view(torch.int16).numpy()).bitcast(dtypes.bfloat16)
        return Tensor(bits.numpy(), dtype=DTYPES[x.dtype])
    if isinstance(x, torch.dtype):
        return DTYPES[x]
    if isinstance(x, torch.Size):
        return tuple(x)
    if isinstance(x, list | tuple):
        return type(x)(translated(y) for y in x)
    if isinstance(x, dict):
        return {k: translated(y) for k, y in x.items()}
    if isinstance(x, complex | torch.memory_format | torch.layout | torch.Generator | torch.device):
        raise KeyError(type(x))
    return x


def tensors(x: Any) -> list[Any]:
    """The tensors in a result, in order."""
    if isinstance(x, torch.Tensor | Tensor):
        return [x]
    return [t for y in x for t in tensors(y)] if isinstance(x, list | tuple) else []


def differs(found: Any, want: Any, tolerance: float) -> str:
    """What is wrong with a tensor of monolect, "" if nothing is."""
    if tuple(found.shape) != tuple(want.shape):
        return f"shape {tuple(found.shape)}, expected {tuple(want.shape)}"
    if DTYPES.get(want.dtype) is not found.dtype:
        return f"dtype {found.dtype}, expected {want.dtype}"
    a, b = (x.double() if x.is_floating_point() else x for x in (torch.tensor(wide(found)), want.detach()))
    if not want.is_floating_point():
        return "" if torch.equal(a, b.to(a.dtype)) else f"{int((a != b).sum())} of {a.numel()} elements"
    scale = float(b[b.isfinite()].abs().max()) if b.isfinite().any() else 1.0
    near = torch.isclose(a, b, rtol=tolerance, atol=tolerance * max(scale, 1e-3), equal_nan=True)
    return "" if bool(near.all()) else f"{int((~near).sum())} of {a.numel()} elements"


def wide(t: Tensor) -> np.ndarray[Any, Any]:
    return (t.cast(dtypes.float64) if t.dtype.is_float else t).numpy()


def samples(op: Any, dtype: torch.dtype) -> Iterator[Any]:
    torch.manual_seed(0)
    is_differentiable = dtype is torch.float64 and op.supports_autograd
    return islice(op.sample_inputs("cpu", dtype, requires_grad=is_differentiable), MOST_SAMPLES)


def outcome(op: Any, sample: Any, dtype: torch.dtype) -> str:
    """ "right", why it was not compared, or "WRONG: ..." of one sample."""
    if (op.name, dtype) in OTHER_BOOLS or sample.kwargs.get("dropout_p"):
        return "not comparable"
    try:
        want = op(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        return "PyTorch refuses"
    try:
        given = translated((sample.input, list(sample.args), dict(sample.kwargs)))
    except (KeyError, TypeError):
        return "not expressible"
    inputs = [t for t in tensors(given) if t.dtype.is_float]
    leaves = [t for t in tensors((sample.input, list(sample.args))) if t.requires_grad]
    try:
        found = call(op.name, *given)
        pairs = list(zip(tensors(found), tensors(want), strict=True))
        if op.name in TIED:
            pairs = pairs[:1]
        wrong = next((w for f, t in pairs if (w := differs(f, t, tolerance(op.name, t.dtype)))), "")
        if wrong:
            return f"WRONG: {wrong}"
        if leaves and len(leaves) == len(inputs) and all(t.requires_grad for _, t in pairs):
            return gradient_outcome(op, sample, inputs, leaves, pairs[0][1], given)
    except (MonolectError, TypeError, ValueError):
        return "refused"
    return "right"


def tolerance(name: str, dtype: torch.dtype) -> float:
    return max(TOLERANCE.get(dtype, 0), PRECISION if name in IMPRECISE else 0)


def call(name: str, first: Any, args: Any, kwargs: Any) -> Any:
    return ours(name)(first, *args, **kwargs)


def gradient_outcome(op: Any, sample: Any, inputs: Any, leaves: Any, want: Any, given: Any) -> str:
    for t in inputs:
        t.requires_grad = True
    result = tensors(call(op.name, *given))[0]
    weight = torch.linspace(0.5, 1.5, max(1, want.numel()), dtype=want.dtype)[: want.numel()].reshape(want.shape)
    expected = torch.autograd.grad((want * weight).sum(), leaves, allow_unused=True)
    (result * Tensor(weight.numpy())).sum().backward()
    for t, e in zip(inputs, expected, strict=True):
        e = torch.zeros(tuple(t.shape), dtype=torch.float64) if e is None else e
        g = Tensor(np.zeros(t.shape)) if t.grad is None else t.grad
        if wrong := differs(g, e, 1e-7):
            return f"WRONG: gradient: {wrong}"
    return "right"


@pytest.mark.slow
def test_samples_of_operators() -> None:
    total: Counter[str] = Counter()
    wrong: list[str] = []
    for op in operators():
        for dtype in (d for d in DTYPES if d in op.supported_dtypes("cpu")):
            for number, sample in enumerate(samples(op, dtype)):
                what = outcome(op, sample, dtype)
                total[what.partition(":")[0]] += 1
                if what.startswith("WRONG"):
                    wrong.append(f"{op.name} {dtype} sample {number}: {what}; {sample.summary()[:300]}")
    print(dict(total))
    assert not wrong, "\n".join(wrong)
    assert total["right"] > 5000
