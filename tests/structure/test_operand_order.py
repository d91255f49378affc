"""The operands of sums and products are ordered by structure: the graph of a program is the same whichever of its nodes
the process still has from an earlier program.
"""

import gc
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Tensor, nn
from monolect.ir.rewrite.operand_order import compare
from monolect.ir.text import show
from monolect.ir.uop import toposort
from monolect.schedule.callify import over_params
from tests.strategies import tensor_graphs


def text_of(tensors):
    return show(over_params([t.uop for t in tensors])[0])


def assert_graph_stays(program, seeds=3):
    """Build the graph again while random nodes of the first one still exist, so that they are older than the others."""
    tensors = program()
    nodes = toposort(*(t.uop for t in tensors))
    wanted = text_of(tensors)
    for seed in range(seeds):
        kept = random.Random(seed).sample(nodes, len(nodes) // 3)
        tensors = nodes = None
        gc.collect()
        tensors = program()
        nodes = toposort(*(t.uop for t in tensors))
        assert text_of(tensors) == wanted
        del kept


class Weights:
    """Leaves that are equal at each call of a program, without gradients."""

    def __init__(self, data):
        self.data, self.made = data, {}

    def __call__(self, *shapes):
        if shapes not in self.made:
            self.made[shapes] = [Tensor(self.data(*s), requires_grad=True).realize() for s in shapes]
        for t in self.made[shapes]:
            t.grad = None
        return self.made[shapes]


def joined_keys(weights):
    q, k, v, new_k, new_v = weights(*[(1, 12, n, 16) for n in (8, 64, 64, 8, 8)])
    return [q.scaled_dot_product_attention(Tensor.cat(k, new_k, dim=2), Tensor.cat(v, new_v, dim=2))]


def projected_attention(weights):
    x, *ws = weights((2, 24, 16), *[(16, 16)] * 4)
    q, k, v = (x @ w for w in ws[:3])
    return [x + q.scaled_dot_product_attention(k, v, is_causal=True) @ ws[3]]


def block(weights):
    x, a, b, scale = weights((24, 16), (16, 64), (64, 16), (16,))
    y = x + ((x.layer_norm((16,)) * scale) @ a).gelu() @ b
    loss = (y * y.sigmoid()).mean()
    loss.backward()
    return [loss, *(t.grad for t in (x, a, b, scale))]


def gated_cell(weights):
    x, h, c, u, w = weights((5, 12), (5, 12), (5, 12), (12, 48), (12, 48))
    for _ in range(3):
        i, f, g, o = (x @ u + h @ w).split(12, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    loss = (h * c).sum()
    loss.backward()
    return [h, c, u.grad, w.grad]


def residual_convolutions(weights):
    x, a, b = weights((2, 8, 9, 9), (8, 8, 3, 3), (8, 8, 3, 3))
    norm = nn.BatchNorm2d(8)
    y = (norm(x.conv2d(a, padding=1)).relu().conv2d(b, padding=1) + x).relu()
    loss = (y * y).mean()
    loss.backward()
    return [loss, a.grad, b.grad]


def normalised_rows(weights):
    x, y, m = weights((40, 96), (40, 96), (96,))
    e = (x * y + m).exp()
    return [e / e.sum(1, keepdim=True) * y, (x - x.mean(1, keepdim=True)) * (y - y.mean(1, keepdim=True)), x.var(1)]


def losses(weights):
    x, y = weights((12, 30), (12, 30))
    return [(x.softmax(1).log() * y.softmax(1)).sum(), (x @ y.T).logsumexp(1), (x * y).cumsum(1), (x + y).max(0).values]


PROGRAMS = [joined_keys, projected_attention, block, gated_cell, residual_convolutions, normalised_rows, losses]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_graph_does_not_depend_on_the_nodes_that_exist(program, data):
    weights = Weights(data)
    assert_graph_stays(lambda: program(weights))


STEPS = [
    lambda x, y: x * y, lambda x, y: y + x, lambda x, y: (x * 0.5).exp() * y, lambda x, y: x.softmax(-1) * y.tanh(),
    lambda x, y: x.sum(-1, keepdim=True) * y, lambda x, y: (x @ y.T) @ x, lambda x, y: x.maximum(y) - x.mean(0) * y,
    lambda x, y: x.flip(0) * x, lambda x, y: x[:, ::2].repeat(1, 2) + y, lambda x, y: x.cumsum(0) * y.cumsum(1),
    lambda x, y: (x + y).sigmoid() * (x * y).exp(), lambda x, y: x[:3].cat(y[3:] * 2) * x, lambda x, y: y,
]  # fmt: skip


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), min_size=2, max_size=6), st.booleans())
def test_graphs_of_random_programs_do_not_depend_on_them(steps, differentiated):
    leaves = [Tensor(np.ones((6, 8), np.float32), requires_grad=True).realize() for _ in range(2)]

    def program():
        xs = [*leaves]
        for x in leaves:
            x.grad = None
        for f, k in steps:
            xs.append(f(xs[-1], xs[k % len(xs)]))
        out = [xs[-1], xs[-1] * xs[-2]]
        if differentiated:
            (xs[-1] * xs[2]).sum().backward()
            out += [x.grad for x in leaves if x.grad is not None]
        return out

    assert_graph_stays(program, 2)


@settings(max_examples=30)
@given(tensor_graphs(size=14), st.randoms())
def test_the_order_is_total(graph, random):
    nodes = toposort(graph)
    a, b, c = (random.choice(nodes) for _ in range(3))
    assert (compare(a, b) == 0) == (a is b)
    assert compare(a, b) == -compare(b, a)
    if compare(a, b) <= 0 and compare(b, c) <= 0:
        assert compare(a, c) <= 0


def test_loops_and_memory_are_in_the_order_of_their_numbers(data):
    x, y = (Tensor(data(4)).realize() for _ in range(2))
    assert compare(x.uop, y.uop) < 0
    assert (y * x).uop is (x * y).uop
    assert (x * y.exp()).uop.src[0] is x.uop  # a value comes before one that more is computed for
