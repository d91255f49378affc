"""Rows of products, windows, norms, losses, elementwise methods and of tensors that are made. See `edges`."""

import operator
from collections.abc import Callable
from fractions import Fraction
from math import inf, nan
from typing import Any

import numpy as np
import torch

from monolect import Tensor, dtypes, nn
from tests.fuzz.edges import ALL, FLOATS, INTS, OURS, Case, Dice, F, Operand, row, their_dtype


# ---- products --------------------------------------------------------------------------------------------------------
@row("matmul", "mm", "bmm", "mv", "dot", "outer", "tensordot", "linear", "__matmul__")
def _products(d: Dice, name: str) -> Case:
    dtype = d.one(*ALL)
    kind = d.one("small", "plain", "special", "edge")
    m, k, n, b = (d.one(0, 1, 2, 5, 17, 40) for _ in range(4))
    shapes = {
        "mm": ((m, k), (k, n)), "bmm": ((b, m, k), (b, k, n)), "mv": ((m, k), (k,)), "dot": ((k,), (k,)),
        "outer": ((m,), (n,)), "linear": (d.one((m, k), (k,), (b, m, k)), (n, k)),
        "tensordot": ((m, k, n), (k, n, b)),
    }  # fmt: skip
    options = [
        ((k,), (k,)),
        ((m, k), (k,)),
        ((k,), (k, n)),
        ((k,), (b, k, n)),
        ((b, m, k), (k,)),
        ((b, m, k), (k, n)),
        ((m, k), (b, k, n)),
        ((b, m, k), (1, k, n)),
        ((1, m, k), (b, k, n)),
        ((2, 1, m, k), (b, k, n)),
    ]
    s, t = shapes.get(name) or d.rng.choice(options)
    x, y = d.operand(s, dtype, kind), d.operand(t, dtype, kind)
    if name == "tensordot":
        dims = d.one(2, 0, 1, ([1, 2], [0, 1]), ([-1], [1]), ([1], [0]))
        if dims == 1:
            y = d.operand((n, b), dtype, kind)
        own = lambda f: Tensor.tensordot if f is OURS else torch.tensordot  # noqa: E731
        return Case(lambda f, x, y: own(f)(x, y, dims), x, y, text=f"tensordot({dims})")
    if name == "linear" and d.chance():
        return Case(lambda f, x, y, z: f.linear(x, y, z), x, y, d.operand((n,), dtype, kind), text="linear(w, b)")
    return Case(lambda f, x, y: getattr(f, name)(x, y), x, y, text=f"{name}")


@row("einsum")
def _einsum(d: Dice, name: str) -> Case:
    dtype = d.one(*FLOATS[:2], "int64", "float16")
    sizes = {c: d.one(0, 1, 2, 3, 5) for c in "ijkB"}
    eq = d.one(
        "ii",
        "ii->i",
        "ij->ji",
        "ij->",
        "ij,jk",
        "ij,jk->ik",
        "i,j->ij",
        "ij,ij->",
        "...i,...i->...",
        "...i,i",
        "iij->j",
        "i...->...",
        "ij, kj -> ki",
        "i,i",
        "i->",
        "->",
        "i,->i",
        "ijk,ij->k",
        "Bij,Bjk->Bik",
        "kji",
        "ii,i->i",
        "i...,i...->i",
        "...,...->...",
        "ij,jk,ki->",
    )

    def size(c: str) -> int:
        return sizes[c]

    xs = []
    for part in eq.split("->")[0].replace(" ", "").split(","):
        extra = d.one((), (1,), (3,), (2, 1)) if "..." in part else ()
        head, _, tail = part.partition("...")
        xs.append(
            d.operand((*(size(c) for c in head), *extra, *(size(c) for c in tail)), dtype, d.one("small", "plain"))
        )
    return Case(lambda f, *xs: f.einsum(eq, *xs), *xs, text=f"einsum({eq!r})")


# ---- windows ---------------------------------------------------------------------------------------------------------
@row("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv(d: Dice, name: str) -> Case:
    rank, dtype = int(name[-2]), d.one("float64", "float32", "float64", "float16", "bfloat16", "int64", "int32")
    groups = d.one(1, 1, 2, 3)
    cin, cout = groups * d.one(1, 2), groups * d.one(1, 2, 3)
    kernel = tuple(d.one(1, 2, 3, 4) for _ in range(rank))
    stride, dilation = (d.one(1, 2, 3, tuple(d.one(1, 2, 3) for _ in range(rank))) for _ in "sd")
    padding = d.one(0, 1, 2, tuple(d.one(0, 1, 2, 5) for _ in range(rank)))
    shape = (d.one(0, 1, 2), cin, *(d.one(1, 4, 5, 9) for _ in range(rank)))
    shape = shape if d.chance(0.8) else shape[1:]
    kind = d.one("small", "plain")
    x = d.operand(shape, dtype, kind)
    if name.startswith("conv_t"):
        w, out = d.operand((cin, cout // groups, *kernel), dtype, kind), d.one(0, 0, 1)
        return Case(
            lambda f, x, w, b: getattr(f, name)(x, w, b, stride, padding, out, groups, dilation),
            x,
            w,
            d.operand((cout,), dtype, kind),
            text=f"{name}({stride=}, {padding=}, {out=}, {groups=}, {dilation=})",
        )
    w = d.operand((cout, cin // groups, *kernel), dtype, kind)
    padding = d.one(padding, padding, "same", "valid")
    if padding == "same":
        stride = 1
    if d.chance():
        return Case(
            lambda f, x, w: getattr(f, name)(x, w, None, stride, padding, dilation, groups),
            x,
            w,
            text=f"{name}({stride=}, {padding=}, {dilation=}, {groups=})",
        )
    return Case(
        lambda f, x, w, b: getattr(f, name)(x, w, b, stride, padding, dilation, groups),
        x,
        w,
        d.operand((cout,), dtype, kind),
        text=f"{name}(b, {stride=}, {padding=}, {dilation=}, {groups=})",
    )


@row("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
def _pool(d: Dice, name: str) -> Case:
    rank, dtype = (
        int(name[-2]),
        d.one("float64", "float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "int8"),
    )
    kernel = d.one(1, 2, 3, tuple(d.one(1, 2, 3, 4) for _ in range(rank)))
    stride = d.one(None, 1, 2, 3, 5, tuple(d.one(1, 2, 3) for _ in range(rank)))
    ceil = d.chance()
    padding = d.one(0, 0, 1, tuple(d.one(0, 1) for _ in range(rank)))
    shape = (d.one(1, 2), d.one(1, 2), *(d.one(1, 4, 5, 8, 9) for _ in range(rank)))
    shape = shape if d.chance(0.8) else shape[1:]
    kinds = (
        ("small", "plain") if dtype == "float64" else ("small", "plain", "special", "order")
    )  # of several nan PyTorch takes the last
    x = d.operand(shape, dtype, d.one(*kinds) if name.startswith("max") else d.one("small", "plain", "special"))
    if name.startswith("max"):
        dilation = d.one(1, 1, 2, tuple(d.one(1, 2, 3) for _ in range(rank)))
        return Case(
            lambda f, x: (
                getattr(f, name)(x, kernel, stride, padding, dilation, ceil)
                if f is OURS
                else getattr(f, name)(x, kernel, stride, padding, dilation, ceil_mode=ceil)
            ),
            x,
            text=f"{name}({kernel}, {stride}, {padding}, {dilation}, {ceil})",
            values=dilation == 1,
        )  # windows of padding alone
    include, divisor = d.chance(), d.one(None, None, 1, 3, -2)
    if rank == 1:
        return Case(
            lambda f, x: f.avg_pool1d(x, kernel, stride, padding, ceil, include),
            x,
            text=f"{name}({kernel}, {stride}, {padding}, {ceil}, {include})",
        )
    return Case(
        lambda f, x: getattr(f, name)(x, kernel, stride, padding, ceil, include, divisor),
        x,
        text=f"{name}({kernel}, {stride}, {padding}, {ceil}, {include}, {divisor})",
    )


@row(
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
)
def _adaptive(d: Dice, name: str) -> Case:
    rank, dtype = int(name[-2]), d.one("float64", "float32", "float16")
    shape = (d.one(0, 1, 2), d.one(1, 2), *(d.one(1, 4, 6, 8) for _ in range(rank)))
    out = d.one(1, 2, tuple(d.one(1, 2, None) for _ in range(rank)))
    x = d.operand(shape, dtype, d.one("small", "plain") if dtype == "float64" else d.one("small", "plain", "special"))
    return Case(lambda f, x: getattr(f if f is OURS else F, name)(x, out), x, text=f"{name}({out})")


# ---- norms and losses ------------------------------------------------------------------------------------------------
@row("layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm")
def _norms(d: Dice, name: str) -> Case:
    dtype, kind = d.one(*FLOATS), d.one("small", "plain", "special")
    shape = (d.one(0, 1, 2, 3), d.one(2, 4, 6), *(d.one(1, 2, 5) for _ in range(d.rng.randint(0, 2))))
    x, eps = d.operand(shape, dtype, kind), d.one(1e-5, 1e-3, 1.0)
    if name in ("layer_norm", "rms_norm"):
        last = shape[d.rng.randint(0, len(shape) - 1) :]
        w, b = d.operand(last, dtype, "plain"), d.operand(last, dtype, "plain")
        if name == "rms_norm":
            e = d.one(None, eps)
            return Case(lambda f, x, w: f.rms_norm(x, last, w, e), x, w, text=f"rms_norm({last}, w, {e})")
        return Case(
            lambda f, x, w, b: f.layer_norm(x, last, w, b, eps), x, w, b, text=f"layer_norm({last}, w, b, {eps})"
        )
    c = (shape[1],)
    w, b = d.operand(c, dtype, "plain"), d.operand(c, dtype, "plain")
    if name == "group_norm":
        groups = d.one(1, 2, shape[1])
        return Case(
            lambda f, x, w, b: f.group_norm(x, groups, w, b, eps), x, w, b, text=f"group_norm({groups}, w, b, {eps})"
        )
    if name == "instance_norm":
        return Case(
            lambda f, x, w, b: f.instance_norm(x, None, None, w, b, True, 0.1, eps),
            x,
            w,
            b,
            text=f"instance_norm(w, b, {eps})",
        )
    mean, var = d.operand(c, dtype, "plain", leaf=False), d.operand(c, dtype, "unit", leaf=False)
    training, momentum = d.chance(), d.one(0.1, 0.0, 1.0)

    def run(f: Any, x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
        mean, var = mean.clone(), var.clone()
        y = f.batch_norm(x, mean, var, w, b, training, momentum, eps)
        return [y, mean, var]

    return Case(run, x, w, b, mean, var, text=f"batch_norm({training=}, {momentum=}, {eps=})", values=True)


@row(
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "kl_div",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
)
def _losses(d: Dice, name: str) -> Case:
    dtype, shape = d.one(*FLOATS), d.shape()
    how = d.one("mean", "sum", "none")
    kind = d.one("small", "plain", "special")
    if name == "binary_cross_entropy":
        x, y = d.operand(shape, dtype, "unit"), d.operand(shape, dtype, d.one("unit"), leaf=False)
        x.array[d.data.random(x.array.shape) < 0.2] = d.one(0.0, 1.0)
        w = d.operand(d.one(shape, shape[1:], ()), dtype, "unit", leaf=False)
        return Case(
            lambda f, x, y, w: f.binary_cross_entropy(x, y, w, reduction=how),
            x,
            y,
            w,
            text=f"{name}(y, w, {how})",
            values=False,
        )
    if name == "binary_cross_entropy_with_logits":
        x, y = d.operand(shape, dtype, "plain"), d.operand(shape, dtype, "unit")
        w, p = (d.operand(d.one(shape, shape[1:], ()), dtype, "unit", leaf=False) for _ in "wp")
        return Case(
            lambda f, x, y, w, p: f.binary_cross_entropy_with_logits(x, y, w, reduction=how, pos_weight=p),
            x,
            y,
            w,
            p,
            text=f"{name}({how})",
        )
    x, y = d.operand(shape, dtype, kind), d.operand(shape, dtype, kind)
    if name == "kl_div":
        log, how = d.chance(), d.one(how, "batchmean")
        shape = (70000, 1) if d.chance(0.1) else shape
        x, y = d.operand(shape, dtype, d.one("small", "plain")), d.operand(shape, dtype, d.one("small", "plain"))
        if not log:
            y.array[...] = np.where(d.data.random(y.array.shape) < 0.1, d.one(nan, -1.0, 0.0), np.abs(y.array))
        return Case(
            lambda f, x, y: f.kl_div(x, y, reduction=how, log_target=log),
            x,
            y,
            text=f"{name}({how}, {log})",
            values=False,
        )
    if name == "smooth_l1_loss":
        beta = d.one(0.0, 1.0, 0.5, 3.0, 1)
        return Case(
            lambda f, x, y: f.smooth_l1_loss(x, y, reduction=how, beta=beta), x, y, text=f"{name}({how}, {beta})"
        )
    if name == "huber_loss":
        delta = d.one(1.0, 0.5, 3.0)
        return Case(
            lambda f, x, y: f.huber_loss(x, y, reduction=how, delta=delta), x, y, text=f"{name}({how}, {delta})"
        )
    return Case(lambda f, x, y: getattr(f, name)(x, y, reduction=how), x, y, text=f"{name}({how})")


@row("cross_entropy", "nll_loss")
def _classes(d: Dice, name: str) -> Case:
    dtype, how = d.one(*FLOATS), d.one("mean", "sum", "none")
    c = d.one(1, 2, 5, 9)
    rest = d.one((), (), (3,), (2, 2), (0,))
    n, c, rest = (70000, 2, ()) if d.chance(0.05) else (d.one(None, 0, 1, 4, 17), c, rest)
    shape = (c,) if n is None else (n, c, *rest)
    x = d.operand(shape, dtype, d.one("plain", "small", "special"))
    w = d.operand((c,), dtype, d.one("unit", "small"), leaf=False)
    w.array[...] = np.abs(w.array)
    ignore, smoothing = d.one(-100, 0, 1, -1, 255), d.one(0.0, 0.0, 0.1, 1.0)
    if name == "cross_entropy" and d.chance(0.3):
        y = d.operand(shape, dtype, "unit")
        return Case(
            lambda f, x, y, w: f.cross_entropy(x, y, w, reduction=how, label_smoothing=smoothing),
            x,
            y,
            w,
            text=f"{name}(probabilities, w, {how}, {smoothing})",
        )
    kind = d.one("int64", "int64", "uint8")
    y = d.indices(() if n is None else (n, *rest), c, kind)
    if (ignore >= 0 or kind == "int64") and ignore < 256:
        y.array[d.data.random(y.array.shape) < 0.3] = ignore
    weighted = d.chance()
    options: dict[str, Any] = {"ignore_index": ignore, "reduction": how}
    if name == "cross_entropy":
        options["label_smoothing"] = smoothing
    if not weighted:
        return Case(lambda f, x, y: getattr(f, name)(x, y, None, **options), x, y, text=f"{name}(y, {options})")
    return Case(lambda f, x, y, w: getattr(f, name)(x, y, w, **options), x, y, w, text=f"{name}(y, w, {options})")


@row("scaled_dot_product_attention")
def _attention(d: Dice, name: str) -> Case:
    dtype = d.one("float64", "float32", "float16")
    b, h, lq, lk, e, v = d.one(1, 2), d.one(1, 2), d.one(1, 3, 5), d.one(1, 3, 5, 40), d.one(1, 4), d.one(1, 4)
    q, k, x = (
        d.operand((b, h, lq, e), dtype, "plain"),
        d.operand((b, h, lk, e), dtype, "plain"),
        d.operand((b, h, lk, v), dtype, "plain"),
    )
    causal, scale = d.chance(), d.one(None, 1.0, 0.5, 2)
    if d.chance():
        m = d.operand(d.one((lq, lk), (b, 1, lq, lk)), dtype, "plain", leaf=False)
        return Case(
            lambda f, q, k, v, m: f.scaled_dot_product_attention(q, k, v, m, scale=scale),
            q,
            k,
            x,
            m,
            text=f"{name}(mask, {scale=})",
        )
    return Case(
        lambda f, q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale),
        q,
        k,
        x,
        text=f"{name}({causal=}, {scale=})",
    )


# ---- elements --------------------------------------------------------------------------------------------------------
UNARY = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "cos", "cosh", "deg2rad", "erf",
    "erfc", "exp", "exp2", "expm1", "floor", "frac", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2",
    "logical_not", "logit", "logsigmoid", "mish", "nan_to_num", "neg", "rad2deg", "reciprocal", "relu", "relu6",
    "round", "rsqrt", "selu", "sgn", "sigmoid", "sign", "signbit", "silu", "sin", "sinc", "sinh", "softsign", "sqrt",
    "square", "tan", "tanh", "tanhshrink", "trunc", "hardsigmoid", "hardswish", "gelu", "celu", "elu", "softplus",
    "leaky_relu", "hardtanh", "hardshrink", "softshrink", "threshold",
]  # fmt: skip
OPTIONS: dict[str, Callable[[Dice], tuple]] = {
    "logit": lambda d: d.one((), (0.1,), (0.0,)),
    "nan_to_num": lambda d: d.one((), (1.0,), (0.0, 2.0, -2.0), (nan, None, 0.0)),
    "celu": lambda d: d.one((), (0.5,), (2.0,)),
    "elu": lambda d: d.one((), (0.5,), (2.0,)),
    "softplus": lambda d: d.one((), (2.0,), (0.5, 1.0)),
    "leaky_relu": lambda d: d.one((), (0.5,), (0.0,), (-1.0,), (2,)),
    "hardtanh": lambda d: d.one((), (0.0, 6.0), (-0.5, 0.5), (1.0, 1.0), (-3, 2)),
    "hardshrink": lambda d: d.one((), (0.0,), (1.0,)),
    "softshrink": lambda d: d.one((), (0.0,), (1.0,)),
    "threshold": lambda d: d.one((0, 0), (1, 1), (2, 3)),
    "gelu": lambda d: d.one((), ("tanh",)),
    "round": lambda d: d.one((), (), (0,)),
}


def is_huge(*xs: Operand) -> bool:
    """Whether a product may overflow: the order of the factors of a gradient then counts."""
    return any(x.array.dtype.kind == "f" and bool((np.abs(x.array[np.isfinite(x.array)]) > 1e9).any()) for x in xs)


BEYOND = (
    "hardshrink",
    "acosh",
    "logit",
    "softshrink",
    "sgn",
    "msort",
    "hypot",
    "copysign",
)  # the gradients of PyTorch where there is no value are its own


def _options(name: str, args: tuple) -> dict[str, Any]:
    return (
        {"approximate": args[0]}
        if name == "gelu" and args
        else {"decimals": args[0]}
        if name == "round" and args
        else {}
    )


@row(*UNARY)
def _unary(d: Dice, name: str) -> Case:
    x = d.operand(d.shape(), d.one(*ALL), d.one("small", "order", "special", "plain"))
    if name in ("softsign", "tanhshrink") and x.dtype not in FLOATS:
        x = d.operand(d.shape(), x.dtype)
    if name == "nan_to_num" and x.dtype.startswith("fp8"):  # PyTorch has no ends of these
        x = d.operand(d.shape(), "float16", "special")
    if name == "hardtanh" and x.dtype == "bool":
        x = d.operand(d.shape(), "int32")
    if name == "signbit":  # of nan that is left open
        x = d.operand(d.shape(), x.dtype, d.one("small", "plain"))
    args = OPTIONS[name](d) if name in OPTIONS else ()
    named = _options(name, args)
    args = () if named else args

    def call(f: Any, x: Any) -> Any:
        if name == "gelu" and f is not OURS and x.dtype.is_floating_point and x.dtype.itemsize > 1:
            # PyTorch's erf in float32 is off by 1e-4, and its gelu(inf) is nan
            return f.gelu(x.double(), **named).to(x.dtype)
        return getattr(f, name)(x, *args, **named)

    return Case(
        call,
        x,
        text=f"{name}{args}{named}",
        values=name not in BEYOND and not is_huge(x),
    )


BINARY = [
    "add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "atan2", "hypot", "copysign", "maximum",
    "minimum", "logaddexp", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
    "bitwise_and", "bitwise_or", "bitwise_xor", "heaviside", "isclose", "float_power",
    "bitwise_left_shift", "bitwise_right_shift", "rsub",
]  # fmt: skip
MORE: dict[str, Callable[[Dice], dict[str, Any]]] = {
    "add": lambda d: {"alpha": d.one(1, 2, 3, True)},
    "sub": lambda d: {"alpha": d.one(1, 2, 3, True)},
    "div": lambda d: {"rounding_mode": d.one(None, "floor", "trunc")},
    "isclose": lambda d: {"equal_nan": d.chance(), "rtol": d.one(1e-5, 0.0, 0.5), "atol": d.one(1e-8, 0.0, 1.0)},
}
TENSORS_ALONE = (
    "atan2",
    "hypot",
    "copysign",
    "maximum",
    "minimum",
    "logaddexp",
    "heaviside",
    "logical_and",
    "logical_or",
    "logical_xor",
    "isclose",
)


@row(*BINARY)
def _binary(d: Dice, name: str) -> Case | None:
    s = d.shape()
    t = d.one(s, s, s[1:], tuple(d.one(n, 1) for n in s), ())
    dtype = d.one(*ALL)
    other = dtype if d.chance(0.6) or not s or not t else d.one(*ALL)  # a tensor of no axes counts as one here
    other = dtype if "uint64" in (dtype, other) else other
    kind = d.one("small", "order", "special", "edge")
    if name in ("div", "floor_divide", "remainder", "fmod"):
        kind = d.one("small", "edge")  # of infinity they are documented to differ
    if dtype != other and "fp8" in dtype + other:
        kind = "small"
    more = MORE[name](d) if name in MORE else {}
    if kind == "order" and more.get("alpha", 1) > 1:
        kind = "special"  # the product of the largest numbers overflows; PyTorch has fused multiply-adds
    x = d.operand(s, dtype, kind)
    if "shift" in name:
        other = dtype
    if d.chance(0.35) and name not in TENSORS_ALONE:
        v = d.number(dtype)
        v = v.item() if isinstance(v, np.generic) else v
        v = (
            2.0
            if name in ("div", "floor_divide", "remainder", "fmod") and isinstance(v, float) and not np.isfinite(v)
            else v
        )
        if name == "pow" and dtype == "bool" or not isinstance(v, float) and v > 2**63:
            return None
        return Case(
            lambda f, x: getattr(f, name)(x, v, **more), x, text=f"{name}({v!r}, {more})", values=not is_huge(x)
        )
    y = d.operand(t, other, kind)
    if "shift" in name and not dtype.startswith("u"):
        bits = getattr(dtypes, dtype).bits
        y.array = np.clip(y.array, 0, bits - 1 if dtype != "bool" else 1).astype(y.array.dtype)
    return Case(
        lambda f, x, y: getattr(f, name)(x, y, **more),
        x,
        y,
        text=f"{name}(y, {more})",
        # squares of integers overflow in PyTorch's gradient of atan2
        values=name not in BEYOND and not is_huge(x, y) and (name != "atan2" or dtype == other),
    )


SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
         "%": operator.mod, "**": operator.pow, "&": operator.and_, "|": operator.or_, "^": operator.xor}  # fmt: skip


@row("operators")
def _operators(d: Dice, name: str) -> Case:
    sign = d.one(*SIGNS)
    # quotients of infinities, and remainders of quotients beyond the significand, are documented to differ
    x = d.operand(d.shape(), d.one(*ALL), "small" if sign in ("//", "%") else d.one("small", "order"))
    v = d.number(x.dtype)
    v = v.item() if isinstance(v, np.generic) else v
    if sign in ("//", "%") and (isinstance(v, float) and not np.isfinite(v) or v > 2**63 - 1):
        v = 2  # PyTorch computes uint64 here as int64
    if sign == "**" and x.dtype == "bool":
        v = 2  # PyTorch has no power of two bools, and keeps bool beside a Python bool
    if d.chance():
        return Case(lambda f, x: SIGNS[sign](v, x), x, text=f"{v!r} {sign} x")
    return Case(lambda f, x: SIGNS[sign](x, v), x, text=f"x {sign} {v!r}")


@row("clamp", "lerp", "addcmul", "addcdiv", "prelu", "cast")
def _others(d: Dice, name: str) -> Case:
    s, dtype = d.shape(), d.one(*ALL)
    x = d.operand(s, dtype, d.one("small", "order"))
    t = d.one(s, s[1:], ())
    if name == "cast":
        to = d.one(*ALL)
        if getattr(dtypes, dtype).is_float and to in INTS:  # what does not fit is undefined in PyTorch
            x.array[...] = np.where(np.isfinite(x.array), np.abs(x.array) % 100, 0)
        return Case(lambda f, x: f.cast(x, f.dtype(to)), x, text=f"cast({to})")
    if name == "clamp":
        low, high = (d.one(None, d.number(dtype)) for _ in "lh")
        low, high = (v.item() if isinstance(v, np.generic) else v for v in (low, high))
        if d.chance():
            # without gradients: PyTorch gives those of equal bounds to neither
            y, z = d.operand(t, dtype, "order", leaf=False), d.operand(t, dtype, "order", leaf=False)
            return Case(lambda f, x, y, z: f.clamp(x, y, z), x, y, z, text="clamp(y, z)")
        return Case(lambda f, x: f.clamp(x, low, high), x, text=f"clamp({low!r}, {high!r})")
    if name == "prelu":
        w = d.operand(d.one((), (1,), (s[1],)) if len(s) > 1 else (1,), dtype, "plain")
        return Case(lambda f, x, w: f.prelu(x, w), x, w, text="prelu(w)")
    y = d.operand(t, dtype if name == "lerp" or d.chance() or not s or not t else d.one(*FLOATS, *INTS[:5]), "small")
    if name == "lerp":
        if d.chance():
            w = d.one(0, 1, 0.5, 2.0, -1.0, nan)
            return Case(lambda f, x, y: f.lerp(x, y, w), x, y, text=f"lerp(y, {w})")
        return Case(lambda f, x, y, w: f.lerp(x, y, w), x, y, d.operand(t, dtype, "plain"), text="lerp(y, w)")
    v = d.one(1, 2, -1, 0, 0.5) if dtype in FLOATS else d.one(1, 2, -1)
    return Case(
        lambda f, x, y, z: getattr(f, name)(x, y, z, value=v),
        x,
        y,
        d.operand(t, dtype, "small"),
        text=f"{name}(y, z, value={v})",
    )


@row("beyond")
def _beyond(d: Dice, name: str) -> Case:
    """Numbers that the dtype does not hold, beside Python's integers."""
    dtype, op = d.one(*INTS), d.one("**", "<<", ">>", "arange")
    by = d.one(100, 127, 128, 200, 255, 256, 257, 300, 2**15, 2**16 + 1, 2**31, 2**63, 2**64 + 3)
    kind = getattr(dtypes, dtype)

    def exact(values: Any, take: Callable[[int], int]) -> Any:
        return torch.tensor([(take(x) - kind.min) % 2**kind.bits + kind.min for x in values], dtype=their_dtype(dtype))

    if op == "arange":
        n, step = d.rng.randint(0, 5), d.one(1, 100, 2**31, 2**62, -3)
        start = d.one(0, kind.max - 2, 2**62)
        own = lambda: exact(range(start, start + n * step, step), lambda x: x)  # noqa: E731
        return Case(
            lambda f: Tensor.arange(start, start + n * step, step, dtype=kind) if f is OURS else own(),
            text=f"arange({start}, {n}, {step}, {dtype})",
        )
    take: Callable[[int], int] = {
        "**": lambda x: pow(x, by, 2**kind.bits), "<<": lambda x: x << by if by < 64 else 0, ">>": lambda x: x >> by
    }[op]  # fmt: skip
    if op != "**" and d.chance():
        by = d.one(0, 1, kind.bits - 1, kind.bits)
    x = Operand(d.values((6,), dtype, "edge"), dtype, [], False)
    if op == "**":
        return Case(lambda f, x: x**by if f is OURS else exact(x.tolist(), take), x, text=f"x ** {by}")
    return Case(
        lambda f, x: (x << by if op == "<<" else x >> by) if f is OURS else exact(x.tolist(), take),
        x,
        text=f"x {op} {by}",
    )


@row("MultiheadAttention")
def _heads(d: Dice, name: str) -> Case:
    n, q, k = d.one(1, 3), d.one(1, 4), d.one(1, 4, 7)
    operands = [d.operand(s, "float32", "plain", leaf=False) for s in ((n, q, 8), (n, k, 8), (24, 8), (8, 8))]
    hidden = np.triu(np.ones((q, k), bool), 1) if d.chance() else d.data.random(d.one((q, k), (2 * n, q, k))) < 0.4
    padding = d.data.random((n, k)) < 0.4
    causal, padded = d.chance(0.3), d.chance(0.7)
    masks = [np.where(m, -inf, 0.0).astype(np.float32) if d.chance() else m for m in (hidden, padding)]

    def run(f: Any, x: Any, y: Any, w: Any, o: Any) -> Any:
        layer = (nn if f is OURS else torch.nn).MultiheadAttention(8, 2, batch_first=True)
        make = Tensor if f is OURS else torch.from_numpy
        layer.in_proj_weight, layer.out_proj.weight = (
            (w, o) if f is OURS else (torch.nn.Parameter(w.detach()), torch.nn.Parameter(o.detach()))
        )
        mask = None if causal and f is OURS else make(np.triu(np.ones((q, k), bool), 1) if causal else masks[0])
        options = {"attn_mask": mask, "key_padding_mask": make(masks[1]) if padded else None, "need_weights": False}
        return [layer(x, y, y, **options, is_causal=causal and f is OURS)[0]]

    return Case(run, *operands, text=f"MultiheadAttention({causal=}, {padded=}, {masks})", values=False)


# ---- making ----------------------------------------------------------------------------------------------------------
@row("arange", "linspace", "full", "eye")
def _made(d: Dice, name: str) -> Case:
    to = d.one(None, *FLOATS, *INTS[:5])
    if name == "arange":
        whole = d.chance()
        args = tuple(
            d.rng.randint(-9, 9) if whole else d.one(0.0, 0.5, -1.5, 3.0, 7.25, 1e-3)
            for _ in range(d.rng.randint(1, 3))
        )
        if to is not None and to[0] in "iu" and not whole:
            to = None
        return Case(
            lambda f: (Tensor if f is OURS else torch).arange(*args, dtype=f.dtype(to)), text=f"arange{args}, {to}"
        )
    if name == "linspace":
        a, b, n = (d.one(0, 1, -3, 10, 0.5, 1e3) for _ in "ab"), None, d.one(0, 1, 2, 5, 11)
        a, b = map(abs, a) if to is not None and to[0] == "u" else a
        if to is not None and to[0] in "iu" and n > 1:  # PyTorch's float steps may round past a whole number
            first, last = int(a), int(b)
            exact = [int(Fraction(first * (n - 1 - i) + last * i, n - 1)) for i in range(n)]
            return Case(
                lambda f: (
                    Tensor.linspace(a, b, n, dtype=f.dtype(to)) if f is OURS else torch.tensor(exact, dtype=f.dtype(to))
                ),
                text=f"linspace({a}, {b}, {n}, {to})",
            )
        return Case(
            lambda f: (Tensor if f is OURS else torch).linspace(a, b, n, dtype=f.dtype(to)),
            text=f"linspace({a}, {b}, {n}, {to})",
        )
    if name == "full":
        s, v = d.shape(), d.one(0, 1, 2.5, True, -1, nan) if to in (None, *FLOATS) else d.one(0, 1, True, 2.5)
        return Case(
            lambda f: (Tensor if f is OURS else torch).full(s, v, dtype=f.dtype(to)), text=f"full({s}, {v!r}, {to})"
        )
    n, m = d.one(0, 1, 3), d.one(0, 1, 4)
    return Case(lambda f: (Tensor if f is OURS else torch).eye(n, m, dtype=f.dtype(to)), text=f"eye({n}, {m}, {to})")
