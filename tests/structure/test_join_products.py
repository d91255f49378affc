"""Sums of many short products are one product of operands stored one after another; others stay as they are."""

import numpy as np
import pytest

from monolect import Tensor
from monolect.command.forms import kernel_of
from monolect.ir.uop import toposort


def products(data, n, rows=32, m=64, k=64):
    xs, gs = ([Tensor(data(rows, s)) for _ in range(n)] for s in (m, k))
    wanted = sum(x.numpy().T.astype(np.float64) @ g.numpy() for x, g in zip(xs, gs, strict=True))
    terms = [x.T @ g for x, g in zip(xs, gs, strict=True)]
    return terms, wanted


def added(terms):
    out = terms[0]
    for t in terms[1:]:
        out = out + t
    return out


def sums(kernels):
    return sum(k.ir["REDUCE"] for k in kernels)


@pytest.mark.sweep
@pytest.mark.parametrize("n, wanted_sums", [(8, 1), (20, 1), (100, 2)])
def test_many_short_products_are_one(check, data, n, wanted_sums):
    terms, wanted = products(data, n)
    assert sums(check(added(terms), wanted, atol=1e-3)) == wanted_sums, (
        "no more pieces in one than are stored one by one"
    )


def test_what_else_is_added_stays(check, data):
    terms, wanted = products(data, 10)
    b = data(64, 64)
    assert sums(check(added([*terms[:3], Tensor(b), *terms[3:]]), wanted + b, atol=1e-3)) == 1


@pytest.mark.sweep
@pytest.mark.parametrize(
    "n, sizes",
    [(4, dict()), (9, dict(m=16, k=16)), (9, dict(rows=300))],
    ids=["few", "of small results", "of many rows"],
)
def test_products_that_gain_nothing_stay_apart(structure, data, n, sizes):
    terms, _ = products(data, n, **sizes)
    assert sums(structure(added(terms))) == n


def test_products_of_which_somebody_reads_a_part_of_the_sum_stay_apart(check, data):
    terms, wanted = products(data, 10)
    first = added(terms[:5])
    part = sum(t.numpy().astype(np.float64) for t in terms[:5])
    assert sums(check((added([first, *terms[5:]]), first), (wanted, part), atol=1e-3)) == 10


@pytest.mark.sweep
@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_the_weight_of_a_recurrence_gets_one_product(structure, data, cell):
    """Of each step come one product for the next state and one for its gradient; the weight has a single one."""
    d, steps = 64, 10
    w = Tensor(data((1 if cell == "rnn" else 4) * d, d), requires_grad=True)
    x = Tensor(data(32, steps, w.shape[0]))
    h = c = None
    for t in range(steps):
        g = x[:, t] if h is None else x[:, t] + h.linear(w)
        if cell == "rnn":
            h = g.tanh()
        else:
            i, f, o, z = (g[:, k * d : k * d + d] for k in range(4))
            new = i.sigmoid() * z.tanh()
            c = new if c is None else f.sigmoid() * c + new
            h = o.sigmoid() * c.tanh()
    h.sum().backward()
    weight = [
        u for k in structure(w.grad) for u in toposort(k.sink) if u.op == "REDUCE" and _rows(u) == 32 * (steps - 1)
    ]
    assert len(weight) == 1


def _rows(u):
    return int(np.prod([r.src[0].value for r in u.src[1:]]))


def test_a_step_is_right(data):
    import torch

    w, x = data(64, 64) * np.float32(0.1), data(32, 12, 64)
    ours, theirs = Tensor(w, requires_grad=True), torch.from_numpy(w).requires_grad_()
    h, k, xs, ts = Tensor(np.zeros((32, 64), np.float32)), torch.zeros(32, 64), Tensor(x), torch.from_numpy(x)
    for t in range(12):
        h, k = (xs[:, t] + h.linear(ours)).tanh(), (ts[:, t] + k @ theirs.T).tanh()
    (h * h).sum().backward()
    (k * k).sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=2e-4, atol=2e-4)


def test_sums_of_a_number_times_tensors_stay(check, data):
    xs = [data(33, 5) for _ in range(9)]
    check(added([(Tensor(x) * 2).sum(1) for x in xs]), sum(x.astype(np.float64).sum(1) * 2 for x in xs))


@pytest.mark.sweep
@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "RMSprop"])
def test_scalars_that_updates_share_have_a_kernel_of_their_own(data, optimizer):
    """Beside loops they would keep threads from sharing those out."""
    import monolect
    from monolect.runtime import profile

    ws = [Tensor(data(300, 300), requires_grad=True) for _ in range(2)]
    o = getattr(monolect.nn.optim, optimizer)(ws, lr=1e-3)
    (ws[0] @ ws[1]).sum().backward()
    with profile.Recorder() as kernels:
        o.step()
    for k in kernels:
        stores = [u for u in toposort(kernel_of(k.call)) if u.op == "STORE"]
        loops = {u.op == "END" for u in kernel_of(k.call).src if u.op in ("END", "STORE")}
        assert len(loops) == 1 and stores
