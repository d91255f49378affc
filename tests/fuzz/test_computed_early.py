"""Gradients through values that are computed, or read, before `backward`: those of the program that reads nothing.

A program is a function of two arrays, then some views of its result; in between the result is computed, or not.
"""

from collections.abc import Callable
from random import Random

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monolect import Tensor, function
from tests.strategies import often

SHAPES = ((4, 4), (2, 4, 4), (1, 2, 4, 4), (2, 1, 4, 4))

FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "product": lambda x, y: x @ y,
    "sort": lambda x, y: (x * y).sort(-1).values,
    "sort of a product": lambda x, y: (x @ y).sort(-1).values,
    "sort of columns": lambda x, y: (x * y).sort(-2).values,
    "topk": lambda x, y: (x @ y).topk(2, -1).values,
    "topk of columns": lambda x, y: (x + y).topk(3, 0 if x.shape[0] > 2 else -2).values,
    "topk of many": lambda x, y: (x @ y).repeat(*[1] * (x.ndim - 2), 1, 40).topk(5, -1).values,
    "one of the first": lambda x, y: (x @ y).topk(2, -2).values.unbind(-2)[1],
    "part of an order": lambda x, y: (x * y).sort(0 if x.shape[0] > 2 else -2).values[..., 1:3],
    "function": lambda x, y: function(lambda x, y: (x * y).sort(-2).values)(x, y),
    "part in a function": lambda x, y: function(lambda x, y: (x * y).topk(3, -2).values[..., 1:])(x, y),
    "median": lambda x, y: (x * y).median(-1, keepdim=True).values,
    "kthvalue": lambda x, y: (x * y).kthvalue(2, -2).values,
    "cummax": lambda x, y: (x * y).cummax(-1).values,
    "logcumsumexp": lambda x, y: (x * y).logcumsumexp(-2),
    "cumprod": lambda x, y: (x * y).cumprod(-2),
    "softmax": lambda x, y: (x @ y).softmax(-2),
    "index_add": lambda x, y: (x * y).index_add(-1, Tensor([1, 1]), y[..., :2]),
    "gather": lambda x, y: (x * y).gather(-1, (x.detach() > 0).long()),
    "attention": lambda x, y: x.scaled_dot_product_attention(y, y, is_causal=True),
    "rows": lambda x, y: (x * y)[..., Tensor([2, 0, 0])],
    "transposed": lambda x, y: (x @ y).transpose(-1, -2),
    "contiguous": lambda x, y: (x @ y).transpose(-1, -2).contiguous(),
    "joined": lambda x, y: Tensor.cat([x * 2, x * y], dim=-1),
}

VIEWS: dict[str, Callable[[Tensor, Random], Tensor]] = {
    "row": lambda t, rng: t.reshape(-1),
    "halves": lambda t, rng: t.reshape(2, -1) if t.numel() % 2 == 0 else t,
    "transpose": lambda t, rng: t.transpose(0, -1),
    "new axis": lambda t, rng: t.unsqueeze(rng.randrange(-1, t.ndim)),
    "flip": lambda t, rng: t.flip(0),
    "part": lambda t, rng: t[..., rng.randrange(t.shape[-1]) :],
    "every other": lambda t, rng: t[..., ::2],
    "repeat": lambda t, rng: t.unsqueeze(0).expand(2, *t.shape),
    "pad": lambda t, rng: t.pad((1, 0)),
    "squeeze": lambda t, rng: t.squeeze(),
}

READS: dict[str, Callable[[Tensor], object]] = {
    "realize": lambda t: t.realize(),
    "numpy": lambda t: t.numpy(),
    "a view": lambda t: t.reshape(-1).realize(),
    "twice what is made of it": lambda t: (t.sum().item(), (t * 2).sum().item(), (t * 3).sum().item()),
}


@settings(max_examples=often(6, 1000))
@given(
    st.sampled_from(SHAPES),
    st.sampled_from(sorted(FUNCTIONS)),
    st.lists(st.sampled_from(sorted(VIEWS)), min_size=1, max_size=3),
    st.sampled_from(sorted(READS)),
    st.integers(0, 9999),
)
def test_values_computed_before_backward_pass_the_same_gradients(
    shape: tuple[int, ...], function: str, views: list[str], read: str, seed: int
) -> None:
    arrays = np.random.default_rng(seed).normal(size=(2, *shape))

    def gradients(is_read: bool) -> list[np.ndarray]:
        x, y = (Tensor(a, requires_grad=True) for a in arrays)
        rng = Random(seed)
        t = FUNCTIONS[function](x, y)
        if is_read:
            READS[read](t)
        for v in views:
            t = VIEWS[v](t, rng)
        (t * (t.detach() + 0.5)).sum().backward()
        return [np.zeros(0) if leaf.grad is None else leaf.grad.numpy() for leaf in (x, y)]

    for got, wanted in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": lambda t: t,
    "first": lambda t: t[..., :1],
    "last": lambda t: t[..., -1:].reshape(-1),
    "row": lambda t: t[:1].squeeze(0) if t.ndim > 1 else t,
    "all but one": lambda t: t.flip(0)[: max(1, t.shape[0] - 1)],
    "transposed": lambda t: t.movedim(0, -1),
    "from the end": lambda t: t.flip(-1)[..., :2],
    "detached": lambda t: t.detach(),
    "detached part": lambda t: t.detach()[..., :2],
}


@settings(max_examples=often(6, 1000))
@given(
    st.sampled_from(SHAPES),
    st.sampled_from(sorted(FUNCTIONS)),
    st.lists(st.sampled_from(sorted(PARTS)), min_size=2, max_size=4),
    st.sampled_from(sorted(VIEWS)),
    st.sampled_from(("a value each", "one value", "a function")),
    st.integers(0, 9999),
)
@example((4, 4), "topk of many", ["detached part", "first"], "every other", "a function", 0)  # merged views
def test_parts_of_one_value_that_are_computed_together_pass_their_own_gradients(
    shape: tuple[int, ...], f: str, parts: list[str], view: str, made: str, seed: int
) -> None:
    arrays = np.random.default_rng(seed).normal(size=(2, *shape))

    def of(x: Tensor, y: Tensor) -> list[Tensor]:
        t = FUNCTIONS[f](x, y)
        return [PARTS[p](FUNCTIONS[f](x, y) if made == "a value each" else t) for p in parts]

    def gradients(is_read: bool) -> list[np.ndarray]:
        x, y = (Tensor(a, requires_grad=True) for a in arrays)
        results = (function(of) if made == "a function" else of)(x, y)
        if is_read:
            Random(seed).choice(results).realize(*results)
        rng = Random(seed)
        terms = [(k + 1) * VIEWS[view](t, rng).square().sum() for k, t in enumerate(results)]
        sum(terms, x.sum() + y.sum()).backward()
        return [leaf.grad.numpy() for leaf in (x, y)]

    for got, wanted in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
