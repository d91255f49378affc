"""The kernels of a program do not depend on how operands stand that may stand in any order, so not on which nodes the
process made before: each program here is scheduled as it is, and with such operands the other way round.
"""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Tensor, nn
from monolect.base.disk.hashing import blake2b
from monolect.ir.ops import COMMUTATIVE
from monolect.ir.uop import node, toposort
from monolect.pipeline import schedule
from monolect.schedule.callify import over_params
from tests.strategies import tensor_graphs

LOCAL_BYTES = 4 << 20
SORTED = frozenset(
    ("ADD", "MUL", "MAX", "CMPNE", "AND", "OR")
)  # as `ir.rewrite.normal` does, by the age of the operands


def turned(sink, seed):
    """The graph with some of its factors, terms and the like the other way round."""
    pick, new = random.Random(seed), {}
    for u in toposort(sink):
        src = tuple(new[s] for s in u.src)
        others = u.op in SORTED and u.dtype.kind != "x" and "CONST" not in (s.op for s in u.src)
        new[u] = node(u.op, src[::-1] if others and pick.random() < 0.7 else src, u.arg, u.tag)
    return new[sink]


def kernels(sink):
    """How many there are of each, by all but the order of such operands, and the numbers of buffers and loops."""
    calls = schedule(list(sink.src), "cpu", LOCAL_BYTES).linear.src
    return Counter(name_of(call.src[0]) for call in calls)


def name_of(sink):
    names = {}
    for u in toposort(sink):
        below = [names[s] for s in operands(u)]
        if u.op in COMMUTATIVE or u.op == "SINK":
            below.sort()
        arg = u.arg[1:] if u.op in ("PARAM", "BUFFER", "RANGE") else u.arg
        names[u] = blake2b(b"".join((*below, f"{u.op} {arg!r}".encode())), digest_size=16).digest()
    return names[sink]


def operands(u):
    """The sources; of a sum of places, or of conditions that hold at once, all its terms: they stand in any order."""
    if u.op != "AND" and not (u.op == "ADD" and u.dtype.kind == "x"):
        return u.src
    return [t for s in u.src for t in (operands(s) if s.op == u.op and s.dtype is u.dtype else (s,))]


def assert_kernels_stay(tensors):
    sink, _, _ = over_params([t.uop for t in tensors])
    wanted = kernels(sink)
    for seed in range(3):
        assert kernels(turned(sink, seed)) == wanted


def weights(data, *shapes):
    return [Tensor(data(*s), requires_grad=True).realize() for s in shapes]


def joined_keys(data):
    q, k, v, new_k, new_v = weights(data, *[(1, 12, n, 16) for n in (8, 64, 64, 8, 8)])
    return [q.scaled_dot_product_attention(Tensor.cat(k, new_k, dim=2), Tensor.cat(v, new_v, dim=2))]


def projected_attention(data):
    x, *ws = weights(data, (2, 24, 16), *[(16, 16)] * 4)
    q, k, v = (x @ w for w in ws[:3])
    return [x + q.scaled_dot_product_attention(k, v, is_causal=True) @ ws[3]]


def block(data):
    x, a, b, scale = weights(data, (24, 16), (16, 64), (64, 16), (16,))
    y = x + ((x.layer_norm((16,)) * scale) @ a).gelu() @ b
    loss = (y * y.sigmoid()).mean()
    loss.backward()
    return [loss, *(t.grad for t in (x, a, b, scale))]


def gated_cell(data):
    x, h, c, u, w = weights(data, (5, 12), (5, 12), (5, 12), (12, 48), (12, 48))
    for _ in range(3):
        i, f, g, o = (x @ u + h @ w).split(12, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    loss = (h * c).sum()
    loss.backward()
    return [h, c, u.grad, w.grad]


def residual_convolutions(data):
    x, a, b = weights(data, (2, 8, 9, 9), (8, 8, 3, 3), (8, 8, 3, 3))
    norm = nn.BatchNorm2d(8)
    y = (norm(x.conv2d(a, padding=1)).relu().conv2d(b, padding=1) + x).relu()
    loss = (y * y).mean()
    loss.backward()
    return [loss, a.grad, b.grad]


def normalised_rows(data):
    x, y, m = weights(data, (40, 96), (40, 96), (96,))
    e = (x * y + m).exp()
    return [e / e.sum(1, keepdim=True) * y, (x - x.mean(1, keepdim=True)) * (y - y.mean(1, keepdim=True)), x.var(1)]


def losses(data):
    x, y = weights(data, (12, 30), (12, 30))
    return [(x.softmax(1).log() * y.softmax(1)).sum(), (x @ y.T).logsumexp(1), (x * y).cumsum(1), (x + y).max(0).values]


PROGRAMS = [joined_keys, projected_attention, block, gated_cell, residual_convolutions, normalised_rows, losses]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_kernels_do_not_depend_on_the_order_of_operands(program, data):
    assert_kernels_stay(program(data))


STEPS = [
    lambda x, y: x * y, lambda x, y: y + x, lambda x, y: (x * 0.5).exp() * y, lambda x, y: x.softmax(-1) * y.tanh(),
    lambda x, y: x.sum(-1, keepdim=True) * y, lambda x, y: (x @ y.T) @ x, lambda x, y: x.maximum(y) - x.mean(0) * y,
    lambda x, y: x.flip(0) * x, lambda x, y: x[:, ::2].repeat(1, 2) + y, lambda x, y: x.cumsum(0) * y.cumsum(1),
    lambda x, y: (x + y).sigmoid() * (x * y).exp(), lambda x, y: x[:3].cat(y[3:] * 2) * x, lambda x, y: y,
]  # fmt: skip


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), min_size=2, max_size=6), st.booleans())
def test_kernels_of_random_programs_do_not_depend_on_it(steps, differentiated):
    xs = [Tensor(np.ones((6, 8), np.float32), requires_grad=True) for _ in range(2)]
    for f, k in steps:
        xs.append(f(xs[-1], xs[k % len(xs)]))
    out = [xs[-1], xs[-1] * xs[-2]]
    if differentiated:
        (xs[-1] * xs[2]).sum().backward()
        out += [x.grad for x in xs[:2] if x.grad is not None]
    assert_kernels_stay(out)


@settings(max_examples=30)
@given(tensor_graphs(size=14))
def test_kernels_of_random_graphs_do_not_depend_on_it(graph):
    sink, _, _ = over_params([graph])
    wanted = kernels(sink)
    assert all(kernels(turned(sink, seed)) == wanted for seed in range(2))
