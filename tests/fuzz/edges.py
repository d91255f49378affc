"""Cases of methods of Tensor at their edges, beside PyTorch: a row a method, for `test_edges`.

Operands have axes of size 0 and 1, none at all, repeated, reversed, permuted and sliced elements, every dtype, and the
numbers at the ends of it; arguments are axes of either sign, no axes, every flag, and numbers that the dtype does not
hold. The results of both libraries are compared in shape, dtype and value, and of float64 in gradients. A call that
monolect refuses with an error of its own is right; one that PyTorch refuses has no oracle, but must not end in an error
of Python.

Dtypes that an operation of PyTorch lacks are computed there in a wider one; then values alone are compared.
"""

import random
from collections.abc import Callable
from functools import partial
from math import inf, nan
from typing import Any

import numpy as np
import torch

from monolect import GradientError, MonolectError, Tensor, dtypes

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTS = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
ALL = (*FLOATS, *INTS, "bool", "fp8e4m3", "fp8e5m2")
THEIRS = {"fp8e4m3": torch.float8_e4m3fn, "fp8e5m2": torch.float8_e5m2}
WIDER = {  # where PyTorch lacks the dtype
    "uint16": "int64", "uint32": "int64", "uint64": "int64", "float16": "float32", "bfloat16": "float32",
    "fp8e4m3": "float32", "fp8e5m2": "float32", "bool": "int64", "int8": "int64", "uint8": "int64", "int16": "int64",
}  # fmt: skip
ERROR = {"float64": 1e-9, "float32": 1e-4, "float16": 4e-3, "bfloat16": 4e-2, "fp8e4m3": 0.13, "fp8e5m2": 0.26}
SIZES = (0, 1, 1, 2, 3, 5, 17)
SHAPES = [
    (), (0,), (1,), (2,), (5,), (33,), (3, 0), (0, 4), (1, 1), (1, 6), (4, 1), (3, 5), (2, 3, 4), (1, 3, 1), (2, 0, 3),
    (7, 2, 1),
]  # fmt: skip


def their_dtype(name: str) -> torch.dtype:
    return THEIRS.get(name) or getattr(torch, name)


class Ours:
    """Methods by name, of this library."""

    def __getattr__(self, name: str) -> Any:
        return getattr(Tensor, name)

    def dtype(self, name: str | None) -> Any:
        return None if name is None else getattr(dtypes, name)


class Theirs:
    """The same, of PyTorch, where most are methods and some functions."""

    def __getattr__(self, name: str) -> Any:
        if (own := OWN.get(name)) is not None:
            return own
        for owner in (torch.Tensor, torch.nn.functional, torch):
            if hasattr(owner, name):
                return getattr(owner, name)
        raise AttributeError(name)

    def dtype(self, name: str | None) -> Any:
        return None if name is None else their_dtype(name)


F = torch.nn.functional


def functional(name: str) -> Callable[..., Any]:
    return lambda x, *a, **k: getattr(F, name)(x, *a, **k)


OWN: dict[str, Callable[..., Any]] = {
    "cat": lambda *xs, dim=0: torch.cat(xs, dim),
    "stack": lambda *xs, dim=0: torch.stack(xs, dim),
    "where": lambda c, a, b: torch.where(c, a, b),
    "cast": lambda x, d: x.to(d),
    "one_hot": lambda x, n: F.one_hot(x.long(), n),
    "embedding": lambda x, w: F.embedding(x, w),
    "swish": lambda x, beta=1.0: x * torch.sigmoid(x * beta),
    # PyTorch's mean of infinities is nan in these two
    "std_mean": lambda x, a, keepdim, **k: (torch.std(x, a, keepdim=keepdim, **k), torch.mean(x, a, keepdim)),
    "var_mean": lambda x, a, keepdim, **k: (torch.var(x, a, keepdim=keepdim, **k), torch.mean(x, a, keepdim)),
    "any": lambda x, *a: torch.any(x != 0, *a),  # of uint8 PyTorch gives uint8
    "all": lambda x, *a: torch.all(x != 0, *a),
    "einsum": lambda eq, *xs: torch.einsum(eq, *xs),
    "take": lambda x, i: torch.take(x, i),
    "meshgrid": lambda *xs, indexing="ij": torch.meshgrid(*xs, indexing=indexing),
    "rsub": lambda x, o: torch.rsub(x, o),
    "isclose": lambda x, o, *a, **k: torch.isclose(x, torch.as_tensor(o), *a, **k),
    "fma": lambda x, y, z: x * y + z,
    "adaptive_max_pool2d": functional("adaptive_max_pool2d"),
    "rms_norm": lambda x, s, w=None, eps=None: F.rms_norm(x, [s] if isinstance(s, int) else s, w, eps),
    "layer_norm": lambda x, s, w=None, b=None, eps=1e-5: F.layer_norm(x, [s] if isinstance(s, int) else s, w, b, eps),
    "softmax": lambda x, d=-1, t=None: F.softmax(x, d, dtype=t),
    "log_softmax": lambda x, d=-1, t=None: F.log_softmax(x, d, dtype=t),
    "softmin": lambda x, d=-1: F.softmin(x, d),
    "logsumexp": lambda x, d=None, k=False: torch.logsumexp(x, tuple(range(x.ndim)) if d is None else d, k),
    "take_along_dim": lambda x, i, d: torch.take_along_dim(x, torch.where(i < 0, i + x.shape[d], i), d),
}  # fmt: skip
for _name in (
    "batch_norm", "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "conv1d",
    "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "adaptive_avg_pool1d", "adaptive_max_pool1d",
    "adaptive_avg_pool2d", "pad", "prelu", "gelu", "silu", "softplus", "elu", "celu", "selu", "mish", "relu6",
    "leaky_relu", "hardtanh", "hardsigmoid", "hardswish", "hardshrink", "softshrink", "threshold", "logsigmoid",
    "tanhshrink", "softsign", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "group_norm", "instance_norm",
    "scaled_dot_product_attention", "linear",
):  # fmt: skip
    OWN[_name] = functional(_name)


def in_singles(name: str) -> Callable[..., Any]:
    """A loss of halves that is added up in float32 and rounded once: PyTorch adds halves up in halves."""

    def loss(x: Any, y: Any, *rest: Any, **options: Any) -> Any:
        if x.dtype not in (torch.float16, torch.bfloat16):
            return getattr(F, name)(x, y, *rest, **options)
        wide = [t.float() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in (x, y, *rest)]
        return getattr(F, name)(*wide, **options).to(x.dtype)

    return loss


OWN |= {name: in_singles(name) for name in ("nll_loss", "cross_entropy", "kl_div")}
OURS, THEIR = Ours(), Theirs()


# ---- operands --------------------------------------------------------------------------------------------------------
class Operand:
    """An array in memory, its dtype, and the views that lead from it to the operand."""

    def __init__(self, array: np.ndarray, dtype: str, views: list[tuple[str, tuple]], is_leaf: bool):
        self.array, self.dtype, self.views, self.is_leaf = array, dtype, views, is_leaf

    def ours(self) -> tuple[Tensor, Tensor]:
        base = Tensor(self.array).cast(getattr(dtypes, self.dtype)).realize()
        if self.is_leaf and base.dtype.is_float:
            base.requires_grad = True
        x = base
        for name, args in self.views:
            x = x[args] if name == "[]" else getattr(x, name)(*args)
        return base, x

    def theirs(self, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
        if self.array.dtype == np.uint64 and dtype == "int64":
            base = torch.from_numpy(self.array.astype(np.int64))
        else:
            base = torch.from_numpy(self.array.copy())
            base = base.to(their_dtype(self.dtype)).to(their_dtype(dtype))
        if self.is_leaf and base.is_floating_point():
            base.requires_grad_()
        x = base
        for name, args in self.views:
            if name == "[]":
                for axis, s in enumerate(args):
                    if s.step is not None and s.step < 0:
                        x = x.flip(axis)[(slice(None),) * axis + (slice(None, None, -s.step),)]
                    else:
                        x = x[(slice(None),) * axis + (s,)]
            else:
                x = getattr(x, name)(*args)
        return base, x.contiguous()  # the batch_norm of PyTorch errs where its weights are strided

    def __repr__(self) -> str:
        values = np.array2string(self.array, threshold=60, separator=",").replace("\n", "")
        return f"{self.dtype}{self.array.shape}{values}" + "".join(f".{n}{a}" for n, a in self.views)


class Dice:
    """Random choices of one case."""

    def __init__(self, seed: int):
        self.rng, self.data = random.Random(seed), np.random.default_rng(seed)

    def one(self, *xs: Any) -> Any:
        return self.rng.choice(xs)

    def chance(self, p: float = 0.5) -> bool:
        return self.rng.random() < p

    def shape(self, least: int = 0, most: int = 3) -> tuple[int, ...]:
        return self.rng.choice([s for s in SHAPES if least <= len(s) <= most])

    def rows(self) -> tuple[int, ...]:
        """A shape, now and then of rows so long that the compiler works on them in parts."""
        return (
            self.rng.choice([(5000,), (3, 4097), (4100, 2), (1, 70001), (2, 3, 1500)])
            if self.chance(0.12)
            else self.shape()
        )

    def axis(self, rank: int) -> int:
        return self.rng.randrange(-max(rank, 1), max(rank, 1))

    def axes(self, rank: int) -> Any:
        """None, an axis, several, perhaps none of them."""
        kind = self.rng.randrange(5)
        if kind == 0:
            return None
        if kind <= 2 or not rank:
            return self.axis(rank)
        found = self.rng.sample(range(rank), self.rng.randint(1, rank))
        return tuple(a - rank if self.chance() else a for a in found)

    def number(self, dtype: str) -> Any:
        d = getattr(dtypes, dtype)
        common = [0, 1, -1, 2, 3, 7, True, False, 0.5, -0.0, 2.5, -1.5, np.float32(0.5), np.int8(-3), np.bool_(True)]
        common = [v for v in common if v >= 0] if d.is_unsigned else common
        edge = [nan] if dtype == "fp8e4m3" else [nan, inf, -inf] if d.is_float else [d.min, d.max] if d.is_int else []
        return self.rng.choice([*common, *edge, *edge])

    def values(self, shape: tuple[int, ...], dtype: str, kind: str) -> np.ndarray:
        d = getattr(dtypes, dtype)
        if d is dtypes.bool:
            return self.data.random(shape) < 0.5
        small = self.data.integers(0 if d.is_unsigned else -3, 4, shape)
        if d.is_int:
            if kind in ("edge", "order"):
                some = [d.min, d.max, d.max - 1, d.min + 1, d.max // 2, 1, 0]
                at = self.data.integers(0, len(some), shape)
                mask = self.data.random(shape) < 0.5
                out = np.where(mask, np.array(some, d.numpy)[at], small.astype(d.numpy))
                return out.astype(d.numpy)
            return small.astype(d.numpy)
        wide = np.float64 if dtype == "float64" else np.float32
        if kind == "plain":
            return self.data.standard_normal(shape).astype(wide)
        if kind == "unit":
            return self.data.random(shape).astype(wide)
        x = small.astype(wide)
        if kind in ("special", "order"):
            some = [nan, -0.0, 0.0] if dtype == "fp8e4m3" else [nan, inf, -inf, -0.0, 0.0]  # infinity is none of its
            mask = self.data.random(shape) < self.one(0.1, 0.4)
            x = np.where(mask, np.array(some, wide)[self.data.integers(0, len(some), shape)], x)
        if kind == "order":
            mask = self.data.random(shape) < 0.2
            ends = np.array([float(d.max), float(d.min), 1.0], np.float64)
            if d.max == inf:
                ends = np.array(
                    [{"float64": 1e308, "float32": 3e38, "float16": 65504, "bfloat16": 3e38}.get(dtype, 1.0)] * 2
                    + [2.0**-14]
                )
            x = np.where(mask, ends[self.data.integers(0, 3, shape)].astype(wide), x)
        return x

    def operand(self, shape: tuple[int, ...], dtype: str, kind: str = "small", leaf: bool = True) -> Operand:
        """An operand of that shape, in some layout."""
        views: list[tuple[str, tuple]] = []
        base = list(shape)
        layout = self.one("plain", "plain", "expand", "flip", "permute", "slice", "step", "back")
        if layout == "expand" and shape and kind != "order":
            axes = [i for i in range(len(shape)) if self.chance()]
            base = [1 if i in axes else n for i, n in enumerate(shape)]
            views = [("expand", tuple(shape))]
        elif layout == "flip" and shape:
            views = [("flip", tuple(sorted(self.rng.sample(range(len(shape)), self.rng.randint(1, len(shape))))))]
        elif layout == "permute" and len(shape) > 1:
            order = self.rng.sample(range(len(shape)), len(shape))
            base = [0] * len(shape)
            for i, a in enumerate(order):
                base[a] = shape[i]
            views = [("permute", tuple(order))]
        elif layout in ("slice", "step", "back") and shape:
            step = {"slice": 1, "step": 2, "back": -2}[layout]
            base = [n + 2 if step == 1 else 2 * n for n in shape]
            key = tuple(slice(1, n + 1) if step == 1 else slice(None, None, step) for n in shape)
            views = [("[]", key)]
        return Operand(self.values(tuple(base), dtype, kind), dtype, views, leaf)

    def indices(self, shape: tuple[int, ...], n: int, dtype: str = "int64", least: int = 0) -> Operand:
        array = self.data.integers(least, max(n, 1), shape)
        return Operand(array.astype(dtype), dtype, [], False)


class Case:
    """One call: of both libraries by `call(library, *operands)`."""

    def __init__(
        self, call: Callable[..., Any], *operands: Operand, text: str = "", values: bool = True, error: float = 1.0
    ):
        self.call, self.operands, self.text, self.error = call, operands, text, error
        self.gradient = values


Row = Callable[[Dice], Case | None]
ROWS: dict[str, Row] = {}


def row(*names: str) -> Callable[[Any], Any]:
    def add(f: Any) -> Any:
        for name in names:
            ROWS[name] = partial(f, name=name)
        return f

    return add


# ---- what is compared ------------------------------------------------------------------------------------------------
def tensors(x: Any) -> list[Any]:
    if isinstance(x, torch.Tensor | Tensor):
        return [x]
    return [t for y in x for t in tensors(y)] if isinstance(x, list | tuple) else []


def wide(t: Tensor) -> np.ndarray:
    return (t.cast(dtypes.float64) if t.dtype.is_float else t).numpy()


def has_nan(*xs: Operand) -> bool:
    return any(x.array.dtype.kind == "f" and bool(np.isnan(x.array).any()) for x in xs)


def rounded(values: np.ndarray, name: str) -> np.ndarray:
    """Numbers in a dtype; what is beyond it is infinite, or nan where it has no infinity. PyTorch saturates."""
    near = torch.from_numpy(np.ascontiguousarray(values)).to(their_dtype(name)).double().numpy().reshape(values.shape)
    if not name.startswith("fp8"):
        return near
    most, beyond = (464, nan) if name == "fp8e4m3" else (61440, inf)
    return np.where(np.abs(values) > most, np.copysign(beyond, values), near)


def differs(got: Tensor, want: torch.Tensor, exact_dtype: bool, error: float, scale: float) -> str:
    if tuple(got.shape) != tuple(want.shape):
        return f"shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    name = got.dtype.name
    if exact_dtype and their_dtype(name) != want.dtype:
        return f"dtype {name}, expected {want.dtype}"
    a, b = wide(got), want.detach().double().numpy() if want.is_floating_point() else want.numpy()
    if not got.dtype.is_float or not want.is_floating_point():
        if not exact_dtype:
            with np.errstate(all="ignore"):
                b = b.astype(a.dtype)
        return "" if np.array_equal(a, b) else f"{a.tolist()}, expected {b.tolist()}"
    if not exact_dtype or name.startswith("fp8"):
        b = rounded(b, name)
    if name == "fp8e4m3":  # beyond it PyTorch gives the largest number, this library nan
        b = np.where(np.isnan(a) & (np.abs(b) == 448), nan, b)
    finite = np.abs(b[np.isfinite(b)])
    most = max(scale, float(finite.max()) if finite.size else 0.0, 1e-3)
    tolerance = ERROR[name] * error
    near = np.isclose(a, b, rtol=tolerance, atol=tolerance * min(most, 1e300), equal_nan=True)
    return "" if bool(near.all()) else f"{a.tolist()}, expected {b.tolist()}"


def widened(dtype: str, step: int) -> str:
    return WIDER.get(dtype, dtype) if step else dtype


class Broken(Exception):
    """An error of Python's, from inside."""


def outcome(case: Case) -> str:
    """ "right", why nothing was compared, or what is wrong."""
    want, exact = None, True
    floats = [x.dtype for x in case.operands if getattr(dtypes, x.dtype).is_float]
    for step in range(2):
        exact = not step
        if step and any(x.dtype == "uint64" and x.array.size and x.array.max() > 2**63 - 1 for x in case.operands):
            break
        try:
            leaves = [x.theirs(widened(x.dtype, step)) for x in case.operands]
            want = case.call(THEIR, *(x for _, x in leaves))
            break
        except (
            RuntimeError,
            TypeError,
            ValueError,
            IndexError,
            NotImplementedError,
            OverflowError,
            ZeroDivisionError,
            KeyError,
        ):
            continue
    try:
        ours = [x.ours() for x in case.operands]
        got = case.call(OURS, *(x for _, x in ours))
        for t in tensors(got):
            t.realize()
    except MonolectError:
        return "refused" if want is not None else "both refuse"
    except Exception as error:
        return (
            f"CRASH {type(error).__name__}: {str(error)[:200]} (PyTorch: {'refuses' if want is None else 'computes'})"
        )
    if want is None:
        return "PyTorch refuses"
    pairs = list(zip(tensors(got), tensors(want), strict=False))
    if len(tensors(got)) != len(tensors(want)):
        return f"WRONG {len(tensors(got))} results, expected {len(tensors(want))}"
    scale = max(
        (
            float(np.abs(a[np.isfinite(a)]).max(initial=0))
            for a in (x.array.astype(np.float64) for x in case.operands if x.dtype in FLOATS)
        ),
        default=0.0,
    )
    for g, w in pairs:
        if wrong := differs(g, w, exact, case.error, min(scale, 1e3)):
            return f"WRONG {'' if exact else '(wider) '}{wrong}"
    g, w = pairs[0] if pairs else (None, None)
    if not case.gradient or not pairs or set(floats) != {"float64"} or w.dtype != torch.float64 or not w.requires_grad:
        return "right"
    weight = torch.linspace(0.5, 1.5, max(1, w.numel()), dtype=w.dtype)[: w.numel()].reshape(w.shape)
    theirs = [b for b, _ in leaves if b.requires_grad]
    try:
        expected = torch.autograd.grad((w * weight).sum(), theirs, allow_unused=True)
    except RuntimeError:
        return "right"
    try:
        try:
            (g * Tensor(weight.numpy())).sum().backward()
        except GradientError:  # reaches no leaf: all gradients are 0
            pass
        mine = [b for b, _ in ours if b.requires_grad]
        for b, e, t in zip(mine, expected, theirs, strict=True):
            e = torch.zeros_like(t) if e is None else e
            own = Tensor(np.zeros(b.shape)) if b.grad is None else b.grad
            if wrong := differs(own, e, True, 100.0, min(scale, 1e3)):
                return f"WRONG gradient: {wrong}"
    except MonolectError as error:
        return f"WRONG gradient: {error}"
    except Exception as error:
        return f"CRASH {type(error).__name__} in a gradient: {str(error)[:200]}"
    return "right, gradient too"
