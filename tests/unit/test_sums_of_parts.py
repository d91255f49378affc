"""Many parts that are padded and added up, by a user or in a gradient, are joined: right for any parts, in memory that
is linear in them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from monolect import Tensor, Variable, jit
from monolect.base.dtype import dtypes
from monolect.ir.check.interp import evaluate
from monolect.ir.uop import toposort
from monolect.runtime.buffer import to_numpy
from monolect.schedule.rewrites.join_parts import join_parts
from tests.strategies import often

N_INTERPRETED, N_COMPILED = often(100, 200), often(4, 12)
Both = Callable[[Any], Any]  # of a Tensor and of a torch.Tensor


# ---- random sums of parts, beside PyTorch ----------------------------------------------------------------------------
def one_part(rng: np.random.Generator, shape: tuple[int, ...]) -> Both:
    """A random view: nested slices, flips, a permutation, a stride, a row."""
    steps: list[Both] = []
    for _ in range(rng.integers(1, 4)):
        kind = rng.choice(["slice", "slice", "flip", "permute", "stride", "row"])
        axis = int(rng.integers(len(shape)))
        n = shape[axis]
        if kind == "slice":
            start = int(rng.integers(n))
            size = int(rng.integers(1, n - start + 1))
            steps.append(lambda t, a=axis, o=start, n=size: t.narrow(a, o, n))
            shape = (*shape[:axis], size, *shape[axis + 1 :])
        elif kind == "flip":
            steps.append(lambda t, a=axis: t.flip(a))
        elif kind == "permute":
            order = [int(k) for k in rng.permutation(len(shape))]
            steps.append(lambda t, o=order: t.permute(*o))
            shape = tuple(shape[k] for k in order)
        elif kind == "stride":
            step = int(rng.integers(1, 4))
            steps.append(lambda t, a=axis, k=step: t[(slice(None),) * a + (slice(None, None, k),)])
            shape = (*shape[:axis], -(-n // step), *shape[axis + 1 :])
        elif len(shape) > 1:
            at = int(rng.integers(n))
            steps.append(lambda t, a=axis, i=at: t[(slice(None),) * a + (i,)])
            shape = (*shape[:axis], *shape[axis + 1 :])

    def part(t: Any) -> Any:
        for step in steps:
            t = step(t)
        return t

    return part


def parts_of(rng: np.random.Generator, shape: tuple[int, ...]) -> list[Both]:
    """Random parts, or those that a loop takes: pieces, windows, rows, boxes of a grid, some of them left out."""
    kind, axis = rng.choice(["any", "pieces", "windows", "rows", "grid"]), int(rng.integers(len(shape)))
    n = shape[axis]
    if kind == "any":
        return [one_part(rng, shape) for _ in range(rng.integers(1, 8))]
    if kind == "windows":
        size = int(rng.integers(1, n + 1))
        out = [lambda t, o=o: t.narrow(axis, o, size) for o in range(n - size + 1)]
    elif kind == "rows":
        out = [lambda t, i=i: t.unbind(axis)[i] for i in range(n)]
    else:
        cuts = [sorted({0, m, *map(int, rng.integers(0, m + 1, 3))}) for m in shape]
        boxes = [[(a, b - a) for a, b in zip(c, c[1:], strict=False)] for c in cuts]
        if kind == "pieces":
            out = [lambda t, o=o, m=m: t.narrow(axis, o, m) for o, m in boxes[axis]]
        else:
            other = (axis + 1) % len(shape)
            if other == axis:
                return [lambda t: t]
            out = [
                lambda t, o=o, m=m, p=p, k=k: t.narrow(axis, o, m).narrow(other, p, k)
                for o, m in boxes[axis]
                for p, k in boxes[other]
            ]
    left_out = rng.random(len(out)) < rng.choice([0.0, 0.3])
    kept = [f for f, gone in zip(out, left_out, strict=True) if not gone]
    return [kept[k] for k in rng.permutation(len(kept))]


def random_sum(seed: int) -> tuple[np.ndarray, Both]:
    """An array, and a function of it that sums up what it makes of parts of it, padded, joined or stored."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(2, 10, rng.integers(1, 4)))
    groups = [(parts_of(rng, shape), int(rng.integers(4)), rng.normal(size=20)) for _ in range(rng.integers(1, 3))]
    width = sum(n for n in shape)

    def f(t: Any) -> Any:
        total = (t**2 * 0.5).sum()
        t = t * 1.5
        for parts, how, weights in groups:
            rows = [(f(t) ** 2 * float(weights[k % 20])).flatten()[:width] for k, f in enumerate(parts)]
            if how == 0 or not rows:
                for r in rows:
                    total = total + (r**2).sum()
            elif how == 1:
                kind = type(t)
                joined = torch.cat(rows) if kind is torch.Tensor else Tensor.cat(rows)
                total = total + (joined**2).sum()
            elif how == 2:
                lines = torch.zeros(9, width, dtype=torch.float64) if isinstance(t, torch.Tensor) else _lines(width)
                for k, r in enumerate(rows):  # some are stored over others
                    lines[int(abs(weights[k % 20]) * 4) % 9, k % 2 : r.shape[0]] = r[k % 2 :]
                total = total + (lines**2).sum()
            else:
                pad = torch.nn.functional.pad if isinstance(t, torch.Tensor) else Tensor.pad
                all_rows = [pad(r, (k, width + len(rows) - k - r.shape[0])) for k, r in enumerate(rows)]
                total = total + (sum(all_rows[1:], all_rows[0]) ** 2).sum()
        return total

    return rng.normal(size=shape), f


def _lines(width: int) -> Tensor:
    return Tensor.zeros(9, width, dtype=dtypes.float64)


def value_and_gradients(x: Any, f: Both, derive: Callable[..., Any], w: Any) -> list[Any]:
    """`f(x)`, its gradient, and that of the gradient times `w`."""
    y = f(x)
    g = derive(y, x)
    return [y, g, derive((g * w).sum(), x)]


def ours(a: np.ndarray, f: Both, w: np.ndarray) -> list[Tensor]:
    def derive(y: Tensor, x: Tensor) -> Tensor:
        x.grad = None
        y.backward(create_graph=True)
        return x.grad

    return value_and_gradients(Tensor(a, requires_grad=True), f, derive, Tensor(w))


def theirs(a: np.ndarray, f: Both, w: np.ndarray) -> list[np.ndarray]:
    def derive(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(y, x, create_graph=True)[0]

    found = value_and_gradients(torch.tensor(a, requires_grad=True), f, derive, torch.tensor(w))
    return [t.detach().numpy() for t in found]


def interpreted(tensors: list[Tensor]) -> list[np.ndarray]:
    roots = [t._uop for t in tensors]
    return evaluate(roots, {u: to_numpy(u) for u in toposort(*roots) if u.op == "BUFFER"})


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["graphs", "kernels"])
def test_random_sums_of_parts(kind: str) -> None:
    for seed in range(N_INTERPRETED if kind == "graphs" else N_COMPILED):
        a, f = random_sum(seed)
        w = np.random.default_rng(seed).normal(size=a.shape)
        got = ours(a, f, w)
        values = interpreted(got) if kind == "graphs" else [t.numpy() for t in got]
        for mine, other in zip(values, theirs(a, f, w), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")


# ---- parts that a loop takes -----------------------------------------------------------------------------------------
def gradient(f: Both, a: np.ndarray) -> np.ndarray:
    x = Tensor(a, requires_grad=True)
    f(x).backward()
    return x.grad.numpy()


def test_parts_of_symbolic_size_and_others() -> None:
    a, n = np.random.default_rng(0).normal(size=(12, 3)), Variable("n", 1, 12)
    w = np.random.default_rng(1).normal(size=(12, 3))

    def f(x: Any, n: Any) -> Any:
        parts = [x[i] * float(i) for i in range(8)]
        c = Tensor(w) if isinstance(x, Tensor) else torch.tensor(w)
        return sum((p**2).sum() for p in parts) + (x[:n] ** 3 * c[:n]).sum() + (x[12 - n :] * c[12 - n :]).sum()

    for size in (1, 7, 12):
        with n.bind(size):
            got = gradient(lambda x: f(x, n), a)
        t = torch.tensor(a, requires_grad=True)
        f(t, size).backward()
        np.testing.assert_allclose(got, t.grad.numpy(), rtol=1e-12)


def test_few_rows_of_a_long_table_are_a_few_pieces() -> None:
    """The gradient was a choice among as many pieces as the table has rows."""
    x = Tensor(np.ones((50_000, 4), np.float32), requires_grad=True)
    sum(((x[i] * float(k)).sum() for k, i in enumerate((3, 77, 1000, 40_000))), Tensor(0.0)).backward()
    assert len(toposort(x.grad._uop)) < 200
    got = x.grad.numpy()
    assert got[[3, 77, 1000, 40_000], 0].tolist() == [0, 1, 2, 3] and got.sum() == 4 * 6


def test_the_gradient_of_a_part_is_a_part_of_the_gradient() -> None:
    """It was a choice between that and zeros for each part before it."""
    xs = [Tensor(np.full((1, 4), k, np.float32), requires_grad=True) for k in range(9)]
    (Tensor.cat(xs) ** 2).sum().backward()
    padded = Tensor(np.ones((1, 4), np.float32), requires_grad=True)
    (padded.pad((1, 2, 3, 4), value=7.0) ** 2).sum().backward()
    for x, wanted in [*((x, 2.0 * k) for k, x in enumerate(xs)), (padded, 2.0)]:
        above = toposort(x.grad._uop, stop=lambda u: u.op == "MUL")
        assert [u.op for u in above if u.op == "WHERE"] == []
        assert x.grad.numpy().tolist() == [[wanted] * 4]


# ---- sums that a user writes -----------------------------------------------------------------------------------------
SPECIAL = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40])


def added(terms: list[Any], how: str) -> Any:
    """Their sum, from the left, from the right, or in pairs."""
    terms = terms[::-1] if how == "right" else [*terms]
    if how == "pairs":
        while len(terms) > 1:
            terms = [sum(terms[k + 1 : k + 2], terms[k]) for k in range(0, len(terms), 2)]
        return terms[0]
    out = terms[0]
    for t in terms[1:]:
        out = t + out if how == "right" else out + t
    return out


def random_boxes(rng: np.random.Generator, shape: tuple[int, ...]) -> list[list[tuple[int, int]]]:
    """(start, end) along each axis: cuts, windows or cells, a few of them left out, or any boxes."""
    axis, kind = int(rng.integers(len(shape))), rng.choice(["cuts", "windows", "cells", "any"])
    whole, n = [(0, m) for m in shape], shape[axis]
    if kind == "any":
        axes = [[(0, m) if rng.random() < 0.3 else ends(rng, m) for m in shape] for _ in range(rng.integers(4, 10))]
        return axes
    if kind == "windows":
        size = int(rng.integers(1, min(4, n) + 1))
        rows = [(at, at + size) for at in range(n - size + 1)]
    else:
        cuts = sorted({0, n, *map(int, rng.integers(0, n + 1, 8))}) if kind == "cuts" else range(n + 1)
        rows = [*zip(cuts, cuts[1:], strict=False)]
    boxes = [[*whole[:axis], row, *whole[axis + 1 :]] for row in rows]
    if kind == "cells" and len(shape) > 1:
        other = (axis + 1) % len(shape)
        boxes = [[*b[:other], (j, j + 1), *b[other + 1 :]] for b in boxes for j in range(shape[other])]
    return [boxes[k] for k in rng.permutation(len(boxes))[:40] if rng.random() < 0.9] or boxes


def ends(rng: np.random.Generator, n: int) -> tuple[int, int]:
    low, high = sorted(map(int, rng.choice(n + 1, 2, replace=False)))
    return low, high


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(60))
def test_a_sum_of_padded_parts_has_the_bits_of_numpy(seed: int) -> None:
    """Also where parts hold -0, which the zeros around others make 0, and where more is added between them."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(2, 12, rng.integers(1, 4)))
    d = rng.choice([np.float32, np.float64, np.int32])
    terms: list[tuple[Tensor, np.ndarray]] = []
    for box in random_boxes(rng, shape):
        a = (rng.normal(size=[high - low for low, high in box]) * 3).astype(d)
        if d is not np.int32 and rng.random() < 0.4:
            a = np.where(rng.random(a.shape) < 0.5, rng.choice(SPECIAL, a.shape), a).astype(d)
        around = [(low, n - high) for (low, high), n in zip(box, shape, strict=True)]
        t = Tensor(a).realize().pad(tuple(n for sides in reversed(around) for n in sides))
        terms.append((t, np.pad(a, around)))
    for _ in range(rng.integers(3)):
        a = (rng.normal(size=shape) * 3).astype(d)
        terms.insert(int(rng.integers(len(terms) + 1)), (Tensor(a).realize(), a))
    how = rng.choice(["left", "right", "pairs"])
    with np.errstate(all="ignore"):
        wanted = added([a for _, a in terms], how)
    got = added([t for t, _ in terms], how).numpy()
    np.testing.assert_array_equal(got, wanted)
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(wanted[number]))


@pytest.mark.parametrize("how", ["left", "right", "pairs"])
@pytest.mark.parametrize("n_others", [0, 1, 2])
def test_disjoint_parts_are_joined_unless_the_order_of_additions_matters(how: str, n_others: int) -> None:
    x = Tensor(np.ones((8, 3), np.float32)).realize()
    terms = [x[k : k + 1].pad((0, 0, k, 7 - k)) for k in range(8)]
    others = [Tensor(np.full((8, 3), 0.1, np.float32)).realize() for _ in range(n_others)]
    u = added([*others[:1], *terms, *others[1:]], how)._uop
    n_tests = sum(v.op == "WHERE" for v in toposort(*join_parts([u])))
    assert n_tests == (7 if n_others < 2 or how != "pairs" else 8), "a choice among 8; or of 7 and zeros, and 1 padded"


# ---- memory ----------------------------------------------------------------------------------------------------------
def recurrent(x: Any, w: Any, steps: int, how: str) -> Any:
    h, out = Tensor.zeros(x.shape[0], x.shape[2]), []
    x = x * 2.0
    rows = x.unbind(1)
    stored = Tensor.zeros(*x.shape)
    for t in range(steps):
        h = ((rows[t] if how == "unbind" else x[:, t]) + h @ w).tanh()
        out.append(h)
        if how == "stored":
            stored[:, t] = h
    if how == "last":
        return h.square().sum()
    if how.startswith("padded"):
        padded = [p.unsqueeze(1).pad((0, 0, t, steps - 1 - t)) for t, p in enumerate(out)]
        return added(padded, how.removeprefix("padded ")).square().sum()
    return (stored if how == "stored" else Tensor.stack(out, dim=1)).square().sum()


def gated(x: Any, w: Any, steps: int, how: str) -> Any:
    n = w.shape[0]
    h = c = Tensor.zeros(x.shape[0], n)
    out = []
    for t in range(steps):
        i, f, o, g = (x[:, t].chunk(4, 1)[k] + h @ w for k in range(4))
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        out.append(h)
    return Tensor.stack(out, dim=1).square().sum()


def split(x: Any, w: Any, steps: int, how: str) -> Any:
    sizes = [1, 3] * (steps // 4)
    parts = (x * 2.0).split(sizes, 1)
    return Tensor.stack([p.tanh().sum(1) for p in parts], dim=1).square().sum()


def windows(x: Any, w: Any, steps: int, how: str) -> Any:
    x = x * 2.0
    return Tensor.stack([x[:, t : t + 2].tanh().sum(1) for t in range(steps - 1)], dim=1).square().sum()


def apart(x: Any, w: Any, steps: int, how: str) -> Any:
    padded = [(x[:, t : t + 1] @ w).tanh().pad((0, 0, t, steps - 1 - t)) for t in range(steps)]
    return added(padded, "left").square().sum()


@pytest.mark.sweep
@pytest.mark.parametrize(
    "f, how",
    [*((recurrent, how) for how in ("index", "unbind", "last", "stored")), (gated, ""), (split, ""), (windows, "")],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_memory_grows_with_the_steps(f: Callable[..., Any], how: str) -> None:
    """Four times the steps took sixteen times the memory."""
    n_bytes = [peak_bytes(f, how, steps, True) for steps in (8, 32)]
    assert n_bytes[1] <= 6 * n_bytes[0]


@pytest.mark.sweep
@pytest.mark.parametrize("f, how", [*((recurrent, f"padded {how}") for how in ("left", "right", "pairs")), (apart, "")])
@pytest.mark.parametrize("backward", [False, True])
def test_memory_of_padded_parts_grows_with_the_steps(f: Callable[..., Any], how: str, backward: bool) -> None:
    """It is where one kernel is too small for all of them that each was stored at full size: 6.6 MB of 256 steps."""
    n_bytes = [peak_bytes(f, how, steps, backward) for steps in (64, 192)]
    assert n_bytes[1] <= 4 * n_bytes[0]


def peak_bytes(f: Callable[..., Any], how: str, steps: int, backward: bool) -> int:
    """The most memory that a step of `f`, or of its gradient, uses."""
    n = 16
    x = Tensor(np.ones((2, steps, n * 4 if f is gated else n), np.float32)).realize()
    w = Tensor(np.full((n, n), 0.01, np.float32)).realize()

    @jit
    def step(x: Tensor, w: Tensor) -> Tensor:
        if not backward:
            return f(x, w, steps, how)
        x = x.detach()
        x.requires_grad = True
        f(x, w, steps, how).backward()
        return x.grad

    step(x, w).realize()
    return int(step.peak_bytes)
