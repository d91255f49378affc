"""Small whole programs beside PyTorch in float64: decoding with a cache, experts that are chosen by score, beam search,
a sum over alignments, sampling of images, a filter, a Fourier transform, a sparse product. Values and gradients, on
several devices, captured, saved and loaded, without the optimizer.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, function, jit
from tests.strategies import often

FEW = often(2, 166)
MODES = ("eager", "jit", "saved", "saved", "NOOPT", "c", "python", "THREADS", "function")
Made = tuple[Callable[..., list[Any]], list[np.ndarray]]  # a program of (library, arrays...), and its arrays


class Ours:
    """The few names that differ between the libraries."""

    einsum, where = Tensor.einsum, Tensor.where
    cat = staticmethod(lambda xs, axis: Tensor.cat(*xs, dim=axis))
    stack = staticmethod(lambda xs, axis: Tensor.stack(*xs, dim=axis))
    pad = staticmethod(lambda x, widths, value=0.0: x.pad(widths, value=value))
    ints = staticmethod(lambda a, like: Tensor(np.asarray(a, np.int64), device=like.device))
    full = staticmethod(lambda shape, value, like: Tensor.full(shape, value, dtype=like.dtype, device=like.device))
    arange = staticmethod(lambda n, like: Tensor.arange(n, device=like.device))


class Theirs:
    einsum, where = torch.einsum, torch.where
    cat, stack = torch.cat, torch.stack
    pad = staticmethod(lambda x, widths, value=0.0: torch.nn.functional.pad(x, widths, value=value))
    ints = staticmethod(lambda a, like: torch.tensor(np.asarray(a, np.int64)))
    full = staticmethod(lambda shape, value, like: torch.full(shape, value, dtype=like.dtype))
    arange = staticmethod(lambda n, like: torch.arange(n))


def decoding(r: Random, rng: np.random.Generator) -> Made:
    """Attention of a prompt, then of one token at a time over what the cache holds."""
    b, h, d, prompt, n = r.randint(1, 2), r.choice((1, 2)), r.choice((2, 4, 8)), r.randint(1, 5), r.randint(1, 3)
    total, is_written = prompt + n, r.random() < 0.5

    def f(L: Any, x: Any, w: Any, out: Any) -> list[Any]:
        k = v = L.full((b, h, total, d), 0.0, x)
        results, at = [], 0
        for m in (prompt, *[1] * n):
            parts = (x[:, at : at + m] @ w).reshape(b, m, 3, h, d).permute(2, 0, 3, 1, 4)
            if is_written:
                k, v = k + 0, v + 0
                k[:, :, at : at + m] = parts[1]
                v[:, :, at : at + m] = parts[2]
            else:
                k, v = (c + L.pad(p, (0, 0, at, total - at - m)) for c, p in ((k, parts[1]), (v, parts[2])))
            seen = L.arange(total, x).reshape(1, -1) <= (L.arange(m, x) + at).reshape(-1, 1)
            scores = L.where(seen, parts[0] @ k.transpose(-1, -2) * d**-0.5, L.full((1,), -1e30, x))
            y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, m, h * d) @ out
            results.append(x[:, at : at + m] + y)
            at += m
        return [L.cat(results, 1), results[-1]]

    return f, [rng.normal(size=s) for s in ((b, total, h * d), (h * d, 3 * h * d), (h * d, h * d))]


def experts(r: Random, rng: np.random.Generator) -> Made:
    """Tokens in the order of the experts that they chose, added back by place; and loads that are counted."""
    n, d, e, k = r.choice((1, 4, 9, 24)), r.choice((3, 8)), r.choice((2, 5)), r.randint(1, 2)

    def f(L: Any, x: Any, gate: Any, w: Any) -> list[Any]:
        p = (x @ gate).softmax(-1)
        value, chosen = p.topk(k, -1)
        flat = chosen.reshape(-1)
        order = flat.argsort(dim=0, stable=True)
        tokens = L.arange(n, x).reshape(n, 1).expand(n, k).reshape(-1)[order]
        y = L.einsum("nd,ndh->nh", x[tokens], w[flat[order]]).tanh() * value.reshape(-1)[order].unsqueeze(1)
        load = (flat.unsqueeze(1) == L.arange(e, x)).sum(0)
        return [L.full((n, d), 0.0, x).index_add(0, tokens, y), (p.mean(0) * load).sum(), load]

    return f, [rng.normal(size=s) for s in ((n, d), (d, e), (e, d, d))]


def beams(r: Random, rng: np.random.Generator) -> Made:
    k, v, d, n = r.choice((1, 2, 4)), r.choice((5, 9)), r.choice((3, 8)), r.randint(1, 3)

    def f(L: Any, emb: Any, w: Any, u: Any) -> list[Any]:
        h, token = L.full((k, d), 0.0, emb), L.ints(np.zeros(k), emb)
        score = -1e3 * (L.arange(k, emb) > 0).to(emb.dtype)
        path = token.unsqueeze(1)
        for _ in range(n):
            h = (h @ w + emb[token]).tanh()
            every = (score.unsqueeze(1) + (h @ u).log_softmax(-1)).reshape(-1)
            score, at = every.topk(k, -1)
            token, h = at % v, h[at // v]
            path = L.cat([path[at // v], token.unsqueeze(1)], 1)
        return [score, h, path]

    return f, [rng.normal(size=s) for s in ((v, d), (d, d), (d, v))]


def alignments(r: Random, rng: np.random.Generator) -> Made:
    b, n, c, s = r.choice((1, 3)), r.randint(1, 6), r.choice((3, 6)), r.randint(1, 3)
    labels = np.zeros((b, 2 * s + 1), int)
    labels[:, 1::2] = rng.integers(1, c, (b, s))
    skips = np.zeros(labels.shape)
    skips[:, 2:] = (labels[:, 2:] != labels[:, :-2]) & (labels[:, 2:] != 0)
    p, low = 2 * s + 1, -1e4

    def f(L: Any, x: Any) -> list[Any]:
        at = L.ints(labels, x).unsqueeze(1).expand(b, n, p)
        terms, may_skip = x.log_softmax(-1).gather(2, at), L.ints(skips, x) > 0
        none = L.full((1, 1), low, x)
        a = L.where((L.arange(p, x) < 2).reshape(1, p), terms[:, 0], none)
        for k in range(1, n):
            one, two = L.pad(a, (1, 0), low)[:, :p], L.pad(a, (2, 0), low)[:, :p]
            a = L.stack([a, one, L.where(may_skip, two, none)], 0).logsumexp(0) + terms[:, k]
        return [a, -a[:, -2:].logsumexp(1)]

    return f, [rng.normal(size=(b, n, c))]


def sampling(r: Random, rng: np.random.Generator) -> Made:
    """Bilinear samples of images by one index into all of their rows."""
    b, c, h, w, n = r.choice((1, 2)), r.choice((1, 3)), r.choice((2, 5)), r.choice((3, 8)), r.choice((1, 7, 12))

    def f(L: Any, image: Any, place: Any) -> list[Any]:
        rows = image.permute(0, 2, 3, 1).reshape(b * h * w, c)
        y, x = place[..., 0] * h, place[..., 1] * w
        y0, x0 = y.detach().floor(), x.detach().floor()
        out: Any = 0.0
        for dy in (0, 1):
            for dx in (0, 1):
                weight = (y - y0 if dy else 1 - y + y0) * (x - x0 if dx else 1 - x + x0)
                at = (y0 + dy).clamp(0, h - 1).long() * w + (x0 + dx).clamp(0, w - 1).long()
                at = (at + L.arange(b, image).reshape(b, 1) * (h * w)).reshape(-1)
                out = out + rows[at].reshape(b, n, c) * weight.unsqueeze(-1)
        return [out, out.mean(1)]

    return f, [rng.normal(size=(b, c, h, w)), rng.uniform(-0.2, 1.2, (b, n, 2))]


def filtering(r: Random, rng: np.random.Generator) -> Made:
    b, d, n = r.choice((1, 3)), r.choice((2, 4)), r.randint(1, 4)

    def f(L: Any, move: Any, look: Any, seen: Any) -> list[Any]:
        unit = (L.arange(d, seen).reshape(d, 1) == L.arange(d, seen)).to(seen.dtype)
        x, p, out = L.full((b, d, 1), 0.0, seen), unit.expand(b, d, d), []
        for k in range(n):
            x, p = move @ x, move @ p @ move.transpose(0, 1) + unit * 0.1
            gain = p @ look.transpose(0, 1) / (look @ p @ look.transpose(0, 1) + 0.3)
            x = x + gain * (seen[:, k].reshape(b, 1, 1) - look @ x)
            p = (unit - gain @ look) @ p
            out.append(x)
        return [L.cat(out, -1), p]

    return f, [rng.normal(size=(d, d)) * 0.4, rng.normal(size=(1, d)), rng.normal(size=(b, n))]


def transform(r: Random, rng: np.random.Generator) -> Made:
    b, n, is_sliced = r.choice((1, 3)), 2 ** r.randint(1, 5), r.random() < 0.5

    def f(L: Any, re: Any, im: Any) -> list[Any]:
        n = re.shape[-1]
        if n == 1:
            return [re, im]
        half = [
            x[..., i::2] if is_sliced else x.reshape(*x.shape[:-1], n // 2, 2)[..., i] for i in (0, 1) for x in (re, im)
        ]
        (a, b), (c, d) = f(L, *half[:2]), f(L, *half[2:])
        angle = L.arange(n // 2, re).to(re.dtype) * (-2 * np.pi / n)
        c, d = c * angle.cos() - d * angle.sin(), c * angle.sin() + d * angle.cos()
        return [L.cat([a + c, a - c], -1), L.cat([b + d, b - d], -1)]

    return f, [rng.normal(size=(b, n)), rng.normal(size=(b, n))]


def sparse(r: Random, rng: np.random.Generator) -> Made:
    """Steps of a graph network; some have no edges, or no columns."""
    n, edges, c, steps = r.choice((2, 7, 16)), r.choice((0, 1, 30)), r.choice((0, 1, 8)), r.randint(1, 3)
    rows, columns = rng.integers(0, n, (2, edges))

    def f(L: Any, weight: Any, x: Any) -> list[Any]:
        y, to, of = x, L.ints(rows, x), L.ints(columns, x)
        for _ in range(steps):
            y = L.full((n, c), 0.0, x).index_add(0, to, weight.unsqueeze(1) * y[of]).tanh() + x * 0.1
        return [y, y.sum(0), (y.transpose(0, 1) @ y).sum() + weight.sum()]

    return f, [rng.normal(size=edges), rng.normal(size=(n, c))]


MODELS = (decoding, experts, beams, alignments, sampling, filtering, transform, sparse)


def gradients_too(f: Callable[..., list[Any]], L: Any, weights: list[Any], xs: tuple[Any, ...]) -> list[Any]:
    leaves = [x.detach() for x in xs]
    for x in leaves:
        x.requires_grad = True
    out = f(L, *leaves)
    total: Any = sum(((y * w.to(y.dtype)).sum() for y, w in zip(out[1:], weights[1:], strict=True)), 0.0)
    (total + (out[0] * weights[0].to(out[0].dtype)).sum()).backward()
    return [*out, *(x.grad for x in leaves)]


@settings(max_examples=FEW, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.integers(0, 2**32 - 1))
@example(664)  # a captured step with an operand of no elements
def test_models(seed: int) -> None:
    r = Random(seed)
    model, mode = r.choice(MODELS), r.choice(MODES)
    f, arrays = model(r, np.random.default_rng(r.randrange(2**31)))
    theirs = tuple(torch.from_numpy(a) for a in arrays)
    weights = [np.random.default_rng(k).uniform(0.5, 1.5, y.shape) for k, y in enumerate(f(Theirs, *theirs))]
    wanted = gradients_too(f, Theirs, [torch.tensor(w) for w in weights], theirs)
    device = mode if mode in ("c", "python") else None
    xs, ws = ([Tensor(a.astype(np.float32), device=device).realize() for a in a_s] for a_s in (arrays, weights))

    def step(ws: list[Tensor], *xs: Tensor) -> list[Tensor]:
        return gradients_too(f, Ours, ws, xs)

    run: Any = function(step) if mode == "function" else step
    if mode in ("jit", "saved"):
        run = jit(step)
        run(ws, *((x * 0.5).realize() for x in xs))
    with tempfile.TemporaryDirectory() as folder:
        if mode == "saved":
            run.save(Path(folder) / "model.step")
            run = jit.load(Path(folder) / "model.step")
        with Context(NOOPT=int(mode == "NOOPT"), **({"THREADS": r.choice((1, 3, 8))} if mode == "THREADS" else {})):
            got = run(ws, *xs)
            got[0].realize(*got[1:])
    for k, (g, w) in enumerate(zip(got, wanted, strict=True)):
        want = w.detach().numpy()
        message = f"{model.__name__}, {mode}, output {k}"
        tolerance = 2e-4 * max((np.abs(want).max() if want.size else 0), 1e-2)
        np.testing.assert_allclose(g.numpy(), want, rtol=0, atol=tolerance, err_msg=message)
