"""Rows of methods that join, order, choose and move elements. See `edges`."""

import operator
from math import inf, nan, prod
from typing import Any

import numpy as np
import torch

from monolect import Tensor
from tests.fuzz.edges import ALL, FLOATS, INTS, OURS, SIZES, Case, Dice, has_nan, row


# ---- reductions ------------------------------------------------------------------------------------------------------
@row("sum", "prod", "mean", "cumsum", "cumprod")
def _sums(d: Dice, name: str) -> Case:
    dtype, shape = d.one(*ALL), d.rows()
    to = d.one(None, None, "float64", "float32", "int64", "int32", "int8", "float16", "bool", "uint8")
    x = d.operand(shape, dtype, d.one("small", "plain", "special", "edge") if to is None else "small")
    if "prod" in name and x.array.dtype.kind == "f" and ("float16" in (dtype, to) or x.array.size > 100):
        x.array = np.sign(x.array)  # where a product overflows beside a zero, the order of its factors counts
    if name.startswith("cum"):
        a = d.axis(len(shape))
        return Case(lambda f, x: getattr(f, name)(x, a, dtype=f.dtype(to)), x, text=f"{name}({a}, dtype={to})")
    a, k = d.axes(len(shape)), d.chance()
    if a is None:
        return Case(lambda f, x: getattr(f, name)(x, dtype=f.dtype(to)), x, text=f"{name}(dtype={to})")
    if name == "prod" and isinstance(a, tuple):
        a = a[0]
    return Case(lambda f, x: getattr(f, name)(x, a, k, dtype=f.dtype(to)), x, text=f"{name}({a}, {k}, dtype={to})")


@row("amax", "amin", "any", "all", "argmax", "argmin", "count_nonzero", "logsumexp")
def _joined(d: Dice, name: str) -> Case:
    dtype, shape = d.one(*ALL), d.rows()
    kind = "order" if name != "logsumexp" else d.one("special", "plain")
    x, a, k = d.operand(shape, dtype, kind), d.axes(len(shape)), d.chance()
    if name in ("argmax", "argmin") and isinstance(a, tuple):
        a = a[0]
    if name == "count_nonzero":
        return Case(lambda f, x: f.count_nonzero(x, a), x, text=f"{name}({a})")
    if a is None:
        return Case(lambda f, x: getattr(f, name)(x), x, text=f"{name}()", values=not has_nan(x))
    return Case(lambda f, x: getattr(f, name)(x, a, k), x, text=f"{name}({a}, {k})", values=not has_nan(x))


@row("max", "min", "median")
def _extremes(d: Dice, name: str) -> Case:
    dtype, shape = d.one(*ALL), d.rows()
    x, k = d.operand(shape, dtype, "order"), d.chance()
    of_all = name != "median" and not has_nan(x)  # which of equal medians, or of several nan, has the gradient is open
    if d.chance(0.3):
        return Case(lambda f, x: getattr(f, name)(x), x, text=f"{name}()", values=of_all)
    a = d.axis(len(shape))
    if name == "median":
        return Case(lambda f, x: [f.median(x, a, k)[0]], x, text=f"{name}({a}, {k})[0]", values=False)
    return Case(lambda f, x: list(getattr(f, name)(x, a, k)), x, text=f"{name}({a}, {k})", values=of_all)


@row("var", "std", "var_mean", "std_mean")
def _spread(d: Dice, name: str) -> Case:
    dtype, shape = d.one(*FLOATS), d.rows()
    x, a, k = d.operand(shape, dtype, d.one("plain", "small", "special")), d.axes(len(shape)), d.chance()
    c = d.one(0, 1, 1, 2, 0.5, 5, 17, 3)
    if name.endswith("_mean"):
        return Case(
            lambda f, x: list(getattr(f, name)(x, a, correction=c, keepdim=k)),
            x, text=f"{name}({a}, correction={c}, keepdim={k})", values=c < 1,
        )  # fmt: skip
    if d.chance(0.2):
        u = d.chance()
        return Case(lambda f, x: getattr(f, name)(x, u), x, text=f"{name}({u})")
    return Case(
        lambda f, x: getattr(f, name)(x, a, correction=c, keepdim=k),
        x, text=f"{name}({a}, correction={c}, keepdim={k})", values=c < 1 and name == "var",
    )  # fmt: skip


@row("norm")
def _norm(d: Dice, name: str) -> Case:
    dtype, shape = d.one(*FLOATS), d.rows()
    p = d.one(0, 1, 2, 3, 0.5, -1, -2, inf, -inf, 1.5, "fro", -0.5, 0.0)
    x, a, k = d.operand(shape, dtype, d.one("plain", "small", "special")), d.axes(len(shape)), d.chance()
    if p == "fro" and a is not None:
        p = 2
    return Case(lambda f, x: f.norm(x, p, a, k) if a is not None else f.norm(x, p), x, text=f"norm({p}, {a}, {k})")


@row("cummax", "cummin", "logcumsumexp")
def _running(d: Dice, name: str) -> Case:
    dtype, shape = d.one(*ALL), d.rows()
    x, a = (
        d.operand(shape, dtype, d.one("special", "plain", "small") if name == "logcumsumexp" else "order"),
        d.axis(len(shape)),
    )
    call = lambda f, x: getattr(f, name)(x, a)  # noqa: E731
    return Case(lambda f, x: list(call(f, x)) if name != "logcumsumexp" else call(f, x), x, text=f"{name}({a})")


@row("softmax", "log_softmax", "softmin")
def _softmax(d: Dice, name: str) -> Case:
    dtype, shape = d.one(*FLOATS), d.rows()
    x, a = d.operand(shape, dtype, d.one("special", "plain", "small", "order")), d.axis(len(shape))
    to = d.one(None, None, "float64", "float32", "float16")
    if name == "softmin":
        return Case(lambda f, x: f.softmin(x, a), x, text=f"{name}({a})")
    return Case(lambda f, x: getattr(f, name)(x, a, f.dtype(to)), x, text=f"{name}({a}, {to})")


# ---- order -----------------------------------------------------------------------------------------------------------
LONG_SHAPES = [(100,), (3, 70), (2, 300), (1500,), (70, 3), (2, 5000)]


@row("sort", "argsort", "topk", "kthvalue", "msort", "quantile")
def _order(d: Dice, name: str) -> Case:
    dtype = d.one(*ALL) if name != "quantile" else d.one("float64", "float32")
    shape = d.rng.choice(LONG_SHAPES) if d.chance(0.25) else d.shape()
    x, a, down = d.operand(shape, dtype, d.one("order", "small")), d.axis(len(shape)), d.chance()
    n = shape[a] if shape else 1
    if name == "msort":
        return Case(lambda f, x: f.msort(x), x, text="msort()", values=False)  # that of PyTorch is not stable
    if name == "sort":
        return Case(lambda f, x: list(f.sort(x, dim=a, descending=down, stable=True)), x, text=f"sort({a}, {down})")
    if name == "argsort":
        return Case(lambda f, x: f.argsort(x, dim=a, descending=down, stable=True), x, text=f"argsort({a}, {down})")
    k = d.rng.randint(0 if shape else 1, n)
    if name == "topk":
        return Case(lambda f, x: [f.topk(x, k, a, down)[0]], x, text=f"topk({k}, {a}, {down})[0]", values=False)
    if name == "kthvalue":
        keep = d.chance()
        return Case(lambda f, x: [f.kthvalue(x, k, a, keep)[0]], x, text=f"kthvalue({k}, {a}, {keep})[0]", values=False)
    q, how, keep = (
        d.one(0.0, 1.0, 0.5, 0.25, 0.99),
        d.one("linear", "lower", "higher", "nearest", "midpoint"),
        d.chance(),
    )
    a = None if d.chance(0.3) else a
    return Case(
        lambda f, x: f.quantile(x, q, a, keep, interpolation=how),
        x,
        text=f"quantile({q}, {a}, {keep}, {how})",
        values=False,
    )


# ---- indices ---------------------------------------------------------------------------------------------------------
@row("gather", "take_along_dim", "scatter", "scatter_add")
def _gathers(d: Dice, name: str) -> Case | None:
    dtype, shape = d.one(*ALL), d.shape(1)
    a = d.axis(len(shape))
    n = shape[a]
    want = tuple(d.rng.randint(0, 4) if i == a % len(shape) else d.rng.randint(0, m) for i, m in enumerate(shape))
    if n == 0 and prod(want):
        return None
    x = d.operand(shape, dtype, d.one("small", "order"))
    kind = d.one("int64", "int64", "int32") if name == "gather" else "int64"
    if name == "gather":
        i = d.indices(want, n, kind)
        return Case(lambda f, x, i: f.gather(x, a, i), x, i, text=f"gather({a}, i)")
    if name == "take_along_dim":
        want = tuple(
            m if i == a % len(shape) else d.one(s, 1, s) for i, (m, s) in enumerate(zip(want, shape, strict=True))
        )
        if n == 0 and prod(want):
            return None
        i = d.indices(want, n, "int64", -n)
        return Case(lambda f, x, i: f.take_along_dim(x, i, a), x, i, text=f"take_along_dim(i, {a})")
    i = d.indices(want, n)
    if name == "scatter":  # each position once
        if n < want[a]:
            return None
        i.array[...] = np.argsort(
            d.data.random(tuple(n if k == a % len(shape) else m for k, m in enumerate(want))), a
        ).take(range(want[a]), a)
    source = tuple(m + d.rng.randint(0, 2) for m in want)
    if d.chance(0.3):
        v = d.one(0, 1, 2.5, True, -1)
        if name == "scatter":
            return Case(lambda f, x, i: f.scatter(x, a, i, v), x, i, text=f"scatter({a}, i, {v!r})")
    s = d.operand(source, dtype, "small")
    return Case(lambda f, x, i, s: getattr(f, name)(x, a, i, s), x, i, s, text=f"{name}({a}, i, s)")


@row("index_select", "index_add", "index_copy", "index_fill")
def _slices(d: Dice, name: str) -> Case | None:
    dtype, shape = d.one(*ALL), d.shape(1)
    a = d.axis(len(shape))
    n, k = shape[a], d.one(0, 1, 2, 3, 6)
    if not n and k:
        return None
    x, i = d.operand(shape, dtype, d.one("small", "order")), d.indices((k,), n)
    if name == "index_select":
        return Case(lambda f, x, i: f.index_select(x, a, i), x, i, text=f"{name}({a}, i)")
    if name == "index_fill":
        v = d.one(0, 1, -1, 2.5, True, -0.0)
        return Case(lambda f, x, i: f.index_fill(x, a, i, v), x, i, text=f"{name}({a}, i, {v!r})")
    if name == "index_copy":
        i.array[...] = d.data.permutation(max(n, k))[:k] % max(n, 1)
        if k > n:
            return None
    s = d.operand(tuple(k if j == a % len(shape) else m for j, m in enumerate(shape)), dtype, "small")
    if name == "index_add":
        alpha = d.one(1, 2, -1, 0, True, 0.5) if dtype in FLOATS else d.one(1, 2, 0)
        return Case(
            lambda f, x, i, s: f.index_add(x, a, i, s, alpha=alpha), x, i, s, text=f"{name}({a}, i, s, {alpha})"
        )
    return Case(lambda f, x, i, s: f.index_copy(x, a, i, s), x, i, s, text=f"{name}({a}, i, s)")


@row("take", "put", "embedding", "one_hot", "masked_fill", "where", "__getitem__", "__setitem__")
def _taken(d: Dice, name: str) -> Case | None:
    dtype, shape = d.one(*ALL), d.shape()
    n = prod(shape)
    if name == "one_hot":
        x = d.indices(shape, 5, d.one(*INTS))
        return Case(lambda f, x: f.one_hot(x, 5), x, text="one_hot(5)")
    if name == "embedding":
        i, w = d.indices(shape, 4), d.operand((4, d.one(0, 1, 3)), d.one(*FLOATS), "special")
        return Case(lambda f, i, w: f.embedding(i, w), i, w, text="embedding(w)")
    x = d.operand(shape, dtype, d.one("small", "order"))
    if name == "masked_fill":
        m = d.operand(d.one(shape, shape[1:], (1,) * len(shape)), "bool")
        v = d.number(dtype)
        return Case(lambda f, x, m: f.masked_fill(x, m, v), x, m, text=f"masked_fill(m, {v!r})")
    if name == "where":
        m, other = d.operand(d.one(shape, shape[1:], (1,) * len(shape)), "bool"), d.one(*ALL)
        if d.chance():
            v = d.number(dtype)
            v = v.item() if isinstance(v, np.generic) else v
            if d.chance():
                return Case(lambda f, m, x: f.where(m, x, v), m, x, text=f"where(m, x, {v!r})")
            return Case(lambda f, m, x: f.where(m, v, x), m, x, text=f"where(m, {v!r}, x)")
        y = d.operand(shape, other, "small")
        return Case(lambda f, m, x, y: f.where(m, x, y), m, x, y, text="where(m, x, y)")
    if name in ("__getitem__", "__setitem__"):
        key = []
        for m in shape:
            lo, hi = sorted((d.rng.randint(-m - 2, m + 2), d.rng.randint(-m - 2, m + 2)))
            options: list[Any] = [
                slice(lo, hi),
                slice(None, None, d.one(1, 2, 3, 10**9)),
                slice(hi, lo),
                slice(lo, None, 2),
                slice(None, hi),
            ]
            if m:
                options += [d.rng.randrange(-m, m), [d.rng.randrange(-m, m) for _ in range(d.one(1, 3))], None]
            key.append(d.rng.choice(options))
        if d.chance(0.3):
            key = key[:-1] if d.chance() else [..., *key]
        keys = tuple(key)
        if sum(isinstance(k, list) for k in keys) > 1:
            keys = tuple(k[:1] if isinstance(k, list) else k for k in keys)
        # PyTorch takes a tensor of no axes as an int
        keys = tuple(
            np.array(k) if isinstance(k, int) and d.chance() or isinstance(k, list) and k and d.chance() else k
            for k in keys
        )

        def part(f: Any) -> tuple:
            make = Tensor if f is OURS else torch.from_numpy
            return tuple(make(k) if isinstance(k, np.ndarray) else k for k in keys)

        if name == "__getitem__":
            return Case(lambda f, x: x[part(f)], x, text=f"x[{keys}]")
        v = d.one(0, 1, -1, 2.5, True)

        def write(f: Any, x: Any) -> Any:
            y = x.clone()
            y[part(f)] = v
            return y

        return Case(write, x, text=f"x[{keys}] = {v}", values=False)
    if not n:
        return None
    k = d.one((), (0,), (1,), (3,), (2, 2))
    i = d.indices(k, n, "int64", -n)
    if name == "take":
        return Case(lambda f, x, i: f.take(x, i), x, i, text="take(i)")
    add = d.chance()
    if not add:
        i.array[...] = (d.data.permutation(max(n, prod(k)))[: prod(k)] % n).reshape(k)
        if prod(k) > n:
            return None
    s = d.operand(k, dtype, "small")
    return Case(lambda f, x, i, s: f.put(x, i, s, add), x, i, s, text=f"put(i, s, {add})")


AUGMENTED = {"+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv,
             "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow, "&=": operator.iand,
             "|=": operator.ior, "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift}  # fmt: skip


@row("copy_", "fill_", "zero_", "augmented", "written")
def _in_place(d: Dice, name: str) -> Case:
    """A write to a view of a copy; the copy is compared."""
    dtype, shape = d.one(*ALL), d.shape()
    sign = d.one(*AUGMENTED)
    is_quotient = name == "augmented" and sign in ("//=", "%=")  # documented to differ at infinities and beyond 2**53
    x, r = d.operand(shape, dtype, "small" if is_quotient else d.one("small", "order"), leaf=False), len(shape)
    views: list[tuple[str, tuple]] = []
    for _ in range(d.rng.randint(0, 2)):
        if r and d.chance():
            views.append(("transpose", (d.axis(r), d.axis(r))))
        elif r:
            views.append(
                ("[]", tuple(d.one(slice(None), slice(0, 1), slice(1, None), slice(None, None, 2)) for _ in range(r)))
            )
    v: Any = d.number(dtype)
    v = v.item() if isinstance(v, np.generic) else v
    if sign in ("//=", "%=") and isinstance(v, float) and not np.isfinite(v):
        v = 2.0
    if sign in ("<<=", ">>="):
        v = d.one(0, 1, 5)
    if dtype == "uint64" and v > 2**63 - 1:
        v = 3  # PyTorch computes uint64 here as int64
    other = d.operand(d.one(shape[1:], (1,) * r, ()), d.one(dtype, dtype, *FLOATS[:3], *INTS[:5]), "small", leaf=False)
    with_tensor = d.chance() and name != "augmented"
    if with_tensor and dtype.startswith("u"):
        other.array[...] = np.abs(other.array)

    def run(f: Any, x: Any, y: Any) -> Any:
        base = x.clone()
        part = base
        for method, args in views:
            part = part[args] if method == "[]" else getattr(part, method)(*args)
        value = y if with_tensor else v
        if name == "zero_":
            part.zero_()
        elif name == "augmented":
            AUGMENTED[sign](part, value)
        elif name == "written":
            part[...] = value
        elif name == "fill_" or not with_tensor:
            part.fill_(v)
        else:
            part.copy_(value)
        return base

    return Case(run, x, other, text=f"x.clone(){views} {name} {sign} {'y' if with_tensor else repr(v)}", values=False)


# ---- movement --------------------------------------------------------------------------------------------------------
@row("pad")
def _pad(d: Dice, name: str) -> Case:
    dtype = d.one(*ALL)
    mode = d.one("constant", "constant", "reflect", "replicate", "circular")
    rank = d.rng.randint(0, 3) if mode == "constant" else d.rng.randint(2, 4)
    shape = tuple(d.one(*SIZES[:-1]) for _ in range(rank))
    axes = d.rng.randint(0, rank) if mode == "constant" else d.rng.randint(1, rank - 1)
    pads = tuple(d.rng.randint(-2, 3) for _ in range(2 * axes))
    x = d.operand(shape, dtype, "small")
    if mode == "constant":
        v = d.one(0, 1, 2.5, -1, True, nan, inf, -0.0) if dtype in FLOATS else d.one(0, 1, -1, True, 3)
        return Case(lambda f, x: f.pad(x, pads, mode, v), x, text=f"pad({pads}, {mode}, {v!r})")
    return Case(lambda f, x: f.pad(x, pads, mode), x, text=f"pad({pads}, {mode})")


MOVED = [
    "roll", "flip", "rot90", "tril", "triu", "diagonal", "repeat", "tile", "repeat_interleave", "unfold", "narrow",
    "split", "chunk", "unbind", "squeeze", "unsqueeze", "flatten", "unflatten", "movedim", "transpose", "expand",
    "permute", "reshape", "T", "mT", "t",
]  # fmt: skip


@row(*MOVED)
def _moved(d: Dice, name: str) -> Case | None:
    dtype, shape = d.one(*ALL), d.shape(0)
    r = len(shape)
    x = d.operand(shape, dtype, "order")
    a, b = d.axis(r), d.axis(r)
    n = shape[a] if r else 1

    def of(*args: Any, **options: Any) -> Case:
        return Case(
            lambda f, x: (lambda y: list(y) if isinstance(y, tuple) else y)(getattr(f, name)(x, *args, **options)),
            x,
            text=f"{name}{args}{options}",
        )

    if name in ("T", "mT"):
        if name == "T" and r != 2:
            return None
        return Case(lambda f, x: getattr(x, name), x, text=name)
    if name == "roll":
        if d.chance(0.3):
            return of(d.rng.randint(-9, 9))
        k = d.rng.randint(1, 3)
        return of(tuple(d.rng.randint(-9, 9) for _ in range(k)), tuple(d.axis(r) for _ in range(k))) if r else None
    if name == "rot90":
        return of(d.rng.randint(-5, 5), tuple(d.rng.sample(range(r), 2))) if r > 1 else None
    if name in ("tril", "triu"):
        return of(d.one(0, 1, -1, 3, -3, 100, -100, 2**40, -(2**40)))
    if name == "diagonal":
        return of(d.rng.randint(-4, 4), a, b)
    if name in ("repeat", "tile"):
        return of(
            *(d.rng.randint(0, 3) for _ in range(r + (d.rng.randint(-1, 1) if name == "tile" else d.rng.randint(0, 1))))
        )
    if name == "repeat_interleave":
        return of(d.rng.randint(0, 3), d.one(None, a) if r else None)
    if name == "unfold":
        return of(a, d.rng.randint(0, n), d.rng.randint(1, 4))
    if name == "narrow":
        s = d.rng.randint(-n, n)
        return of(a, s, d.rng.randint(0, n - s if s >= 0 else -s))
    if name == "split":
        cut = sorted(d.rng.randint(0, n) for _ in range(2))
        return of(d.one(1, 2, 5, [cut[0], cut[1] - cut[0], n - cut[1]]), a)
    if name == "chunk":
        return of(d.rng.randint(1, 7), a)
    if name == "unbind":
        return of(a)
    if name == "squeeze":
        return of(*d.one((), (a,), ((a,),) if r else ()))
    if name == "unsqueeze":
        return of(d.axis(r + 1))
    if name == "flatten":
        return of(a, b) if a % max(r, 1) <= b % max(r, 1) else None
    if name == "unflatten":
        return of(a, d.one((n, 1), (1, -1), (-1, n), (n, -1)))
    if name == "movedim":
        return of(a, b) if d.chance() else of(tuple(range(r)), tuple(d.rng.sample(range(r), r)))
    if name == "transpose":
        return of(a, b)
    if name == "flip":
        return of(*d.one((a,), (tuple(range(r)),), ()))
    if name == "permute":
        return of(*d.rng.sample(range(r), r))
    if name == "expand":
        return of(
            *(d.one(0, 1, 3) for _ in range(d.rng.randint(0, 2))),
            *(d.one(-1, m, 4) if m == 1 else d.one(-1, m) for m in shape),
        )
    if name == "reshape":
        return of(*d.one((-1,), (1, -1), (prod(shape), 1), (prod(shape) // 2, 2) if prod(shape) % 2 == 0 else (-1,)))
    return of()


@row("cat", "stack", "meshgrid")
def _cat(d: Dice, name: str) -> Case:
    shape, n = d.shape(1), d.rng.randint(1, 4)
    if name == "meshgrid":
        xs = [d.operand(d.one((), (0,), (1,), (3,), (4,)), "int32") for _ in range(n)]
        how = d.one("ij", "xy")
        return Case(lambda f, *xs: list(f.meshgrid(*xs, indexing=how)), *xs, text=f"meshgrid({how})")
    a = d.axis(len(shape) + (name == "stack"))
    same, k = d.chance(), d.rng.choice(ALL)
    some = [c for c in ALL if c != "uint64" and not c.startswith("fp8")]  # beside these others are rounded
    xs = [
        d.operand(
            tuple(d.rng.randint(0, 3) if i == a % len(shape) and name == "cat" else m for i, m in enumerate(shape)),
            k if same else d.rng.choice(some),
            "order",
        )
        for _ in range(n)
    ]
    return Case(lambda f, *xs: getattr(f, name)(*xs, dim=a), *xs, text=f"{name}(dim={a})")
