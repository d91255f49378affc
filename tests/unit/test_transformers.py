"""Attention and transformers against torch.nn: results, weights of keys, gradients, both modes, state dicts."""

from typing import Any

import numpy as np
import pytest
import torch

from monolect import Tensor, nn
from tests.unit.torch_oracle import Spec, check_layer, compare, layer, pair, text

rng = np.random.default_rng(2)


def array(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


SQUARE, KEYS = array(3, 2, 8), array(5, 2, 8)
HIDDEN = np.triu(np.ones((3, 3), bool), 1)
PADDING = np.zeros((2, 5), bool)
PADDING[0, -1] = True

# a layer, and what it is called with
CASES: list[tuple[Spec, tuple[Any, ...]]] = [
    (layer("MultiheadAttention", 8, 2), (SQUARE, KEYS, KEYS, PADDING)),
    (layer("MultiheadAttention", 8, 2, bias=False, add_zero_attn=True, add_bias_kv=True), (SQUARE, KEYS, KEYS)),
    (layer("MultiheadAttention", 8, 4, kdim=3, vdim=5), (SQUARE, array(4, 2, 3), array(4, 2, 5))),
    (layer("MultiheadAttention", 8, 2, batch_first=True), (SQUARE, SQUARE, SQUARE, None, True, HIDDEN[:2, :2], False)),
    (layer("TransformerEncoderLayer", 8, 2, 12, 0.0), (SQUARE,)),
    (layer("TransformerEncoderLayer", 8, 2, 12, 0.0, "gelu", norm_first=True, bias=False), (SQUARE, HIDDEN)),
    (layer("TransformerDecoderLayer", 8, 2, 12, 0.0), (SQUARE, KEYS, HIDDEN)),
    (layer("TransformerDecoderLayer", 8, 2, 12, 0.0, norm_first=True, batch_first=True),
     (array(2, 3, 8), array(2, 5, 8), HIDDEN, None, None, PADDING)),
    (layer("Transformer", 8, 2, 2, 1, 12, 0.0), (KEYS, SQUARE)),
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(("spec", "args"), CASES, ids=[text(s) for s, _ in CASES])
def test_layers(spec: Spec, args: tuple[Any, ...]) -> None:
    check_layer(spec, args)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(("spec", "args"), [CASES[0], CASES[4], CASES[-1]], ids=lambda x: str(x)[:20])
def test_evaluation_takes_another_path_in_pytorch(spec: Spec, args: tuple[Any, ...]) -> None:
    check_layer(spec, args, training=False)


def test_weights_of_attention() -> None:
    ours, theirs = pair(layer("MultiheadAttention", 8, 2, batch_first=True))
    x = array(2, 3, 8)
    for options in (
        {"is_causal": True, "attn_mask": HIDDEN},
        {"average_attn_weights": False},
        {"attn_mask": array(3, 3)},
    ):
        mine = {k: Tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        other = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        found, want = ours(*[Tensor(x)] * 3, **mine), theirs(*[torch.tensor(x)] * 3, **other)
        compare(found, want, [])
    assert ours(*[Tensor(x)] * 3, need_weights=False)[1] is None
    compare(ours(*[Tensor(x[0])] * 3), theirs(*[torch.tensor(x[0])] * 3), [])


def test_grouped_queries_and_rotary_positions() -> None:
    model = nn.GroupedQueryAttention(8, 4, 2, rotary_base=None).double()
    x, t = Tensor(array(2, 5, 8)), torch.tensor
    p = {k: t(v.numpy()) for k, v in model.state_dict().items()}
    heads = [(t(x.numpy()) @ p[f"{n}_proj.weight"].T).reshape(2, 5, -1, 2).transpose(1, 2) for n in "qkv"]
    want = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
    want = want.transpose(1, 2).flatten(2) @ p["o_proj.weight"].T
    np.testing.assert_allclose(model(x, is_causal=True).numpy(), want.numpy(), rtol=1e-9)
    turn, q = nn.RotaryEmbedding(6, 100.0), array(1, 4, 6)
    angles = (np.arange(4)[:, None] + 2) * 100.0 ** (-np.arange(3) / 3)
    pairs = (q[..., :3] + 1j * q[..., 3:]) * np.exp(1j * angles)
    np.testing.assert_allclose(turn(Tensor(q), 2).numpy(), np.concatenate([pairs.real, pairs.imag], -1), rtol=1e-12)
    whole = nn.GroupedQueryAttention(8, 4, 2)
    x = Tensor(array(1, 5, 8).astype(np.float32))
    np.testing.assert_allclose(whole(x, offset=7).numpy(), whole(x).numpy(), atol=1e-5)  # only distances count
