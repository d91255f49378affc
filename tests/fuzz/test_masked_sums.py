"""Sums of masks times values that are not finite, beside PyTorch: nothing that a mask multiplies is lost.

A program is one formula of `FORMULAS` on a mask of `MASKS` and random values with inf, -inf, nan and -0.0 among them,
forward or its gradient, eager, in a jitted step, or without actions. Both libraries run the same lines.
"""

import numpy as np
import pytest
import torch

from monolect import Context, Tensor, jit

SPECIAL = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e30])
N_SEEDS = 60


class Monolect:
    """The few names that differ between the libraries."""

    arange, einsum, where, tensor = Tensor.arange, Tensor.einsum, Tensor.where, Tensor
    stored = staticmethod(Tensor.contiguous)


class Torch:
    arange, einsum, where, tensor = torch.arange, torch.einsum, torch.where, torch.tensor
    stored = staticmethod(torch.clone)


# (library, places i of n, indices, bools) -> mask (n, k), k being the number of rows that the values have
MASKS = {
    "one-hot": lambda t, n, k, at, some: t.arange(k).reshape(1, k) == at.reshape(n, 1),
    "one-hot, shifted": lambda t, n, k, at, some: t.arange(k).reshape(1, k) + 2 == at.reshape(n, 1),
    "one-hot of floats": lambda t, n, k, at, some: t.arange(k).reshape(1, k).float() == at.reshape(n, 1).float() / 2,
    "triangle": lambda t, n, k, at, some: t.arange(k).reshape(1, k) <= t.arange(n).reshape(n, 1),
    "strict triangle": lambda t, n, k, at, some: t.arange(k).reshape(1, k) < t.arange(n).reshape(n, 1),
    "upper triangle": lambda t, n, k, at, some: t.arange(k).reshape(1, k) >= t.arange(n).reshape(n, 1),
    "limits": lambda t, n, k, at, some: t.arange(k).reshape(1, k) < at.reshape(n, 1),
    "triangle of bools": lambda t, n, k, at, some: (
        (t.arange(k).reshape(1, k) <= t.arange(n).reshape(n, 1)) & some[0].reshape(1, k)
    ),
    "one-hot of bools": lambda t, n, k, at, some: (t.arange(k).reshape(1, k) == at.reshape(n, 1)) & some[:, :1],
    "equal places": lambda t, n, k, at, some: t.arange(k).reshape(1, k) == t.arange(n).reshape(n, 1),
    "bools": lambda t, n, k, at, some: some,
    "all": lambda t, n, k, at, some: t.arange(k).reshape(1, k) >= t.arange(n).reshape(n, 1) * 0,
}

# (library, mask (n, k) of floats, x (k,), y (k, r), z (n, k)) -> a tensor
FORMULAS = {
    "sum of rows": lambda t, m, x, y, z: (m * x).sum(1),
    "sum of columns": lambda t, m, x, y, z: (x.reshape(-1, 1) * m.T).sum(0),
    "mean": lambda t, m, x, y, z: (m * x).mean(1),
    "product": lambda t, m, x, y, z: m @ y,
    "product, turned": lambda t, m, x, y, z: y.T @ m.T,
    "einsum": lambda t, m, x, y, z: t.einsum("nk,kr->rn", m, y),
    "gradient of a product": lambda t, m, x, y, z: m.T @ (m @ y),
    "broadcast": lambda t, m, x, y, z: (m.reshape(*m.shape, 1) * y.reshape(1, *y.shape)).sum(1),
    "own values": lambda t, m, x, y, z: (m * z).sum(1),
    "all of it": lambda t, m, x, y, z: (m * x).sum(),
    "rows, then columns": lambda t, m, x, y, z: (m * x).sum(0),
    "of a formula": lambda t, m, x, y, z: (m * (x * 2 + 1)).sum(1) + 1,
    "of a sum": lambda t, m, x, y, z: (m * y.sum(1)).sum(1),
    "negated": lambda t, m, x, y, z: ((1 - m) * x).sum(1),
    "maximum": lambda t, m, x, y, z: (m * x).amax(1),
    "running sum": lambda t, m, x, y, z: (m * x).cumsum(1)[:, -1],
    "chosen": lambda t, m, x, y, z: t.where(m > 0, x, 0.0).sum(1),
    "triangle of what is chosen": lambda t, m, x, y, z: (m * x).tril().sum(1),
    "of a masked product": lambda t, m, x, y, z: (z * m) @ y,
    "repeated": lambda t, m, x, y, z: (
        m.reshape(*m.shape, 1).expand(*m.shape, 4) * x.reshape(1, -1, 1).expand(*m.shape, 4)
    ).sum((1, 2)),
    "in halves": lambda t, m, x, y, z: (m.half() * x.half()).float().sum(1),
    "twice": lambda t, m, x, y, z: m @ (m @ y)[:1].sum(0).reshape(1, -1).expand(m.shape[1], y.shape[1]),
}


def same(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)  # nan and inf where they are in both


def values(rng, *shape):
    """Numbers of which a few, or none, are not finite."""
    out = np.asarray(rng.standard_normal(shape), np.float32)
    few = rng.random(shape) < rng.choice([0.0, 1.5 / max(1, len(out.reshape(-1))), 0.3])
    out[few] = rng.choice(SPECIAL, int(few.sum()))
    return out


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["eager", "jit", "noopt"])
@pytest.mark.parametrize("seed", range(N_SEEDS // 3))
def test_masks_times_values(seed, mode):
    rng = np.random.default_rng([seed, len(mode)])
    for _ in range(2):
        n = int(rng.choice([1, 3, 5, 40]))
        k, r = int(rng.choice([n, 2, 7, 65])), int(rng.choice([1, 3, 8]))
        kind, formula = rng.choice(list(MASKS)), rng.choice(list(FORMULAS))
        at, some = rng.integers(-1, k + 1, n), rng.random((n, k)) < 0.5
        data = [values(rng, *shape) for shape in ((k,), (k, r), (n, k))]
        stored, gradient = rng.random() < 0.25, rng.random() < 0.4 and formula != "maximum"

        def run(t, at, some, *data, kind=kind, formula=formula, n=n, k=k, stored=stored):
            m = MASKS[kind](t, n, k, at, some).float()
            return FORMULAS[formula](t, t.stored(m) if stored else m, *data)

        print(f"seed {seed} {mode}: {formula} of {kind}, {n} x {k} x {r}, {stored=} {gradient=}")
        ours, theirs = [
            (t.tensor(at), t.tensor(some), *(t.tensor(a, requires_grad=gradient) for a in data))
            for t in (Monolect, Torch)
        ]
        with Context(NOOPT=int(mode == "noopt")):
            if mode == "jit" and not gradient:
                step = jit(lambda *args: run(Monolect, *args).realize())
                for _ in range(2):
                    got = step(*ours)
            else:
                got = run(Monolect, *ours)
            wanted = run(Torch, *theirs)
            same(got.numpy() if not gradient else got.detach().numpy(), wanted.detach().numpy())
            if gradient:
                weights = values(rng, *wanted.shape)
                (got * Tensor(weights)).sum().backward()
                (wanted * torch.tensor(weights)).sum().backward()
                for a, b in zip(ours[2:], theirs[2:], strict=True):
                    if b.grad is not None:
                        same(a.grad.numpy(), b.grad.numpy())
