"""Layers against torch.nn: results, gradients of inputs and weights, both modes, state dicts in both directions."""

from typing import Any

import numpy as np
import pytest
import torch

from monolect import Tensor, nn
from tests.unit.torch_oracle import compare, translated

rng = np.random.default_rng(2)


def array(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def layer(name: str, *args: Any, **options: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    return name, args, options


L, I, V = array(2, 4, 6), array(2, 4, 5, 6), array(1, 4, 4, 5, 3)  # noqa: E741
SQUARE, KEYS, TOKENS = array(3, 2, 8), array(5, 2, 8), np.array([[1, 2, 2], [6, 1, 0]])
HIDDEN = np.triu(np.ones((3, 3), bool), 1)
PADDING = np.zeros((2, 5), bool)
PADDING[0, -1] = True

# a layer, and what it is called with
WEIGHTED: list[tuple[tuple[str, tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]] = [
    (layer("Linear", 6, 3), (L,)),
    (layer("Linear", 6, 3, bias=False), (L,)),
    (layer("Bilinear", 6, 4, 3), (array(2, 6), array(2, 4))),
    (layer("Conv1d", 4, 6, 3, padding="same", padding_mode="circular"), (L,)),
    (layer("Conv2d", 4, 6, 3, 2, (2, 1), padding_mode="reflect", groups=2), (I,)),
    (layer("Conv2d", 4, 6, (3, 2), dilation=2, padding="same", padding_mode="replicate"), (I,)),
    (layer("Conv3d", 4, 2, 2, padding=1, bias=False), (V,)),
    (layer("ConvTranspose1d", 4, 6, 3, 2, 1, 1), (L,)),
    (layer("ConvTranspose2d", 4, 6, 3, 2, groups=2, dilation=2, bias=False), (I,)),
    (layer("ConvTranspose3d", 4, 2, 2, stride=2), (V,)),
    (layer("BatchNorm1d", 4), (L,)),
    (layer("BatchNorm1d", 6, momentum=None), (array(7, 6),)),
    (layer("BatchNorm2d", 4, track_running_stats=False), (I,)),
    (layer("BatchNorm3d", 4, affine=False, momentum=0.3), (V,)),
    (layer("InstanceNorm1d", 4), (L,)),
    (layer("InstanceNorm2d", 4, affine=True, track_running_stats=True), (I,)),
    (layer("InstanceNorm3d", 4, affine=True, track_running_stats=True, momentum=0.3), (V,)),
    (layer("LayerNorm", (5, 6)), (I,)),
    (layer("LayerNorm", 6, bias=False), (L,)),
    (layer("RMSNorm", 6), (L,)),
    (layer("GroupNorm", 2, 4), (I,)),
    (layer("PReLU"), (L,)),
    (layer("PReLU", 4, 0.1), (I,)),
    (layer("Embedding", 7, 3, padding_idx=2), (TOKENS,)),
    (layer("Embedding", 7, 3, scale_grad_by_freq=True), (TOKENS,)),
    (layer("EmbeddingBag", 7, 3), (TOKENS,)),
    (layer("EmbeddingBag", 7, 3, mode="max", padding_idx=1), (TOKENS.flatten(), np.array([0, 2, 2]))),
    (layer("RNNCell", 6, 3), (array(2, 6), array(2, 3))),
    (layer("RNNCell", 6, 3, nonlinearity="relu", bias=False), (array(6),)),
    (layer("LSTMCell", 6, 3), (array(2, 6), [array(2, 3), array(2, 3)])),
    (layer("LSTMCell", 6, 3), (array(2, 6),)),
    (layer("GRUCell", 6, 3), (array(2, 6), array(2, 3))),
    (layer("GRUCell", 6, 3, bias=False), (array(6),)),
    (layer("MultiheadAttention", 8, 2), (SQUARE, KEYS, KEYS, PADDING)),
    (layer("MultiheadAttention", 8, 2, bias=False, add_zero_attn=True, add_bias_kv=True), (SQUARE, KEYS, KEYS)),
    (layer("MultiheadAttention", 8, 4, kdim=3, vdim=5), (SQUARE, array(4, 2, 3), array(4, 2, 5))),
    (layer("MultiheadAttention", 8, 2, batch_first=True), (SQUARE, SQUARE, SQUARE, None, True, HIDDEN[:2, :2], False)),
    (layer("LinearCrossEntropyLoss", 6, 4, bias=True), (array(3, 6), np.array([1, 3, 0]))),
    (layer("TransformerEncoderLayer", 8, 2, 12, 0.0), (SQUARE,)),
    (layer("TransformerEncoderLayer", 8, 2, 12, 0.0, "gelu", norm_first=True, bias=False), (SQUARE, HIDDEN)),
    (layer("TransformerDecoderLayer", 8, 2, 12, 0.0), (SQUARE, KEYS, HIDDEN)),
    (layer("TransformerDecoderLayer", 8, 2, 12, 0.0, norm_first=True, batch_first=True),
     (array(2, 3, 8), array(2, 5, 8), HIDDEN, None, None, PADDING)),
    (layer("Transformer", 8, 2, 2, 1, 12, 0.0), (KEYS, SQUARE)),
]  # fmt: skip


def pair(spec: tuple[str, tuple[Any, ...], dict[str, Any]]) -> tuple[Any, Any]:
    """The layer of both libraries in float64, with the weights of theirs."""
    name, args, options = spec
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **options).double()
    ours = getattr(nn, name)(*args, **options).double()
    return loaded(ours, theirs), theirs


def loaded(ours: Any, theirs: torch.nn.Module) -> Any:
    ours.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    return ours


def call(module: Any, args: list[Any]) -> Any:
    return module(*(tuple(a) if isinstance(a, list) else a for a in args))


# Evaluation differs for running statistics, and takes another path in PyTorch's attention.
EVALUATED = ("BatchNorm", "InstanceNorm", "MultiheadAttention", "TransformerEncoderLayer", "Transformer")
CASES = [(s, a, m) for s, a in WEIGHTED for m in ("train", "eval") if m == "train" or s[0].startswith(EVALUATED)]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(("spec", "args", "mode"), CASES, ids=[f"{s[0]}{s[1]}{s[2]} {m}" for s, _, m in CASES])
def test_layers_with_weights(
    spec: tuple[str, tuple[Any, ...], dict[str, Any]], args: tuple[Any, ...], mode: str
) -> None:
    ours, theirs = pair(spec)
    assert [k for k, _ in ours.named_parameters()] == [k for k, _ in theirs.named_parameters()]
    assert [k for k, _ in ours.named_buffers()] == [k for k, _ in theirs.named_buffers()]
    ours.train(mode == "train")
    theirs.train(mode == "train")
    leaves: list[Any] = []
    both = [translated(a, leaves) for a in args]
    leaves += zip(ours.parameters(), theirs.parameters(), strict=True)
    compare(call(ours, [a for a, _ in both]), call(theirs, [b for _, b in both]), leaves)
    state, other = ours.state_dict(), theirs.state_dict()
    assert list(state) == list(other)  # also after running statistics have moved
    for name, t in other.items():
        np.testing.assert_allclose(state[name].numpy(), t.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in state.items()})


def test_running_statistics_over_batches() -> None:
    for spec, shape in (
        (layer("BatchNorm1d", 4, momentum=None), (5, 4)),
        (layer("InstanceNorm1d", 4, track_running_stats=True), (2, 4, 5)),
    ):
        ours, theirs = pair(spec)
        for _ in range(3):
            x = array(*shape)
            ours(Tensor(x)).realize()
            theirs(torch.tensor(x))
        for name, t in theirs.state_dict().items():
            np.testing.assert_allclose(ours.state_dict()[name].numpy(), t.numpy(), rtol=1e-9, err_msg=name)


def test_transposed_convolution_to_a_size() -> None:
    ours, theirs = pair(layer("ConvTranspose2d", 4, 2, 3, stride=3))
    for size in ((15, 18), (16, 19), (17, 20)):
        y, t = ours(Tensor(I), output_size=size), theirs(torch.tensor(I), output_size=size)
        np.testing.assert_allclose(y.numpy(), t.detach().numpy(), rtol=1e-9)


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


# ---- layers without weights ------------------------------------------------------------------------------------------
PLAIN: list[tuple[tuple[str, tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]] = [
    *((layer(n), (I,)) for n in (
        "ReLU", "ReLU6", "LeakyReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "Tanh", "Tanhshrink", "Sigmoid",
        "LogSigmoid", "Hardsigmoid", "Hardswish", "Hardtanh", "Hardshrink", "Softshrink", "Softplus", "Softsign",
        "Softmax2d", "Identity", "Flatten")),
    (layer("LeakyReLU", 0.2), (L,)), (layer("ELU", 0.3), (L,)), (layer("CELU", 0.5), (L,)),
    (layer("GELU", approximate="tanh"), (L,)), (layer("Hardtanh", -0.3, 0.4), (L,)),
    (layer("Softplus", 2.0, 1.0), (L,)),
    (layer("Hardshrink", 0.3), (L,)), (layer("Softshrink", 0.3), (L,)), (layer("Threshold", 0.1, 5.0), (L,)),
    (layer("GLU"), (L,)), (layer("GLU", 1), (L,)),
    *((layer(n, d), (L,)) for n in ("Softmax", "LogSoftmax", "Softmin") for d in (1, -1)),
    (layer("Flatten", 2), (I,)), (layer("Unflatten", 1, (2, 2)), (I,)),
    *((layer(f"MaxPool{n}d", 2, 1), (x,)) for n, x in ((1, L), (2, I), (3, V))),
    (layer("MaxPool2d", 2, return_indices=True, ceil_mode=True), (I,)),
    *((layer(f"AvgPool{n}d", 2, 1, 1), (x,)) for n, x in ((1, L), (2, I), (3, V))),
    (layer("AvgPool2d", 2, count_include_pad=False, divisor_override=3), (I,)),
    *((layer(f"AdaptiveAvgPool{n}d", 3), (x,)) for n, x in ((1, L), (2, I), (3, V))),
    *((layer(f"AdaptiveMaxPool{n}d", 2), (x,)) for n, x in ((1, L), (2, I), (3, V))),
    *((layer(f"LPPool{n}d", 2, 2), (x,)) for n, x in ((1, L), (2, I), (3, V))),
    *((layer(f"{k}Pad{n}d", p), (x,)) for k in ("Zero", "Reflection", "Replication", "Circular")
      for n, x, p in ((1, L, (2, 1)), (2, I, (1, 2, 0, 3)), (3, V, 1))),
    *((layer(f"ConstantPad{n}d", 1, 2.5), (x,)) for n, x in ((1, L), (2, I), (3, V))),
    (layer("ZeroPad2d", (-1, 2, 0, -2)), (I,)),
    (layer("Upsample", scale_factor=2), (I,)), (layer("Upsample", (7, 3), mode="bilinear"), (I,)),
    (layer("UpsamplingNearest2d", scale_factor=2), (I,)), (layer("UpsamplingBilinear2d", (7, 9)), (I,)),
    (layer("PixelShuffle", 2), (I,)), (layer("PixelUnshuffle", 2), (array(1, 2, 4, 6),)),
    (layer("ChannelShuffle", 2), (I,)), (layer("Unfold", 2, padding=1), (I,)),
    (layer("Fold", (5, 6), 2, stride=2, padding=1), (array(2, 8, 12),)),
    (layer("LocalResponseNorm", 2, alpha=0.5), (I,)),
    (layer("CosineSimilarity"), (L, L + 1)), (layer("PairwiseDistance", keepdim=True), (L, L + 1)),
    (layer("Softmax"), (L,)), (layer("Dropout", 0.0), (L,)), (layer("RReLU", 0.2, 0.2), (L,)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
@pytest.mark.parametrize(("spec", "args"), PLAIN, ids=[f"{s[0]}{s[1]}{s[2]}" for s, _ in PLAIN])
def test_layers_without_weights(spec: tuple[str, tuple[Any, ...], dict[str, Any]], args: tuple[Any, ...]) -> None:
    name, settings, options = spec
    ours, theirs = getattr(nn, name)(*settings, **options), getattr(torch.nn, name)(*settings, **options)
    assert not ours.state_dict() and not ours.parameters() and repr(ours).startswith(name)
    leaves: list[Any] = []
    both = [translated(a, leaves) for a in args]
    # PyTorch's gradients of these hold 1 / 6 and 1 / alpha in float32
    rtol = 1e-7 if name in ("Hardsigmoid", "CELU") else 1e-9
    compare(ours(*(a for a, _ in both)), theirs(*(b for _, b in both)), leaves, rtol)


def test_unpooling_layers() -> None:
    for n, x in ((1, L), (2, I), (3, V)):
        out = []
        for library, t in ((nn, Tensor(x)), (torch.nn, torch.tensor(x))):
            values, indices = getattr(library, f"MaxPool{n}d")(2, return_indices=True)(t)
            out.append(getattr(library, f"MaxUnpool{n}d")(2)(values, indices, output_size=x.shape))
        np.testing.assert_array_equal(out[0].numpy(), out[1].numpy())


def test_random_layers() -> None:
    x = Tensor.ones(4, 6, 3)
    for name in ("Dropout", "Dropout1d", "Dropout2d", "AlphaDropout", "FeatureAlphaDropout"):
        drop = getattr(nn, name)(0.5)
        assert drop.eval()(x).equal(x)
        assert not drop.train()(x).equal(x)
    assert not nn.Dropout3d(0.5)(x.unsqueeze(3)).equal(x.unsqueeze(3))
    assert nn.FractionalMaxPool2d(2, output_ratio=0.5)(Tensor.ones(1, 6, 8)).shape == (1, 3, 4)
    assert nn.FractionalMaxPool3d(2, output_size=2, return_indices=True)(Tensor.ones(1, 6, 8, 4))[1].shape == (
        1,
        2,
        2,
        2,
    )
    draw = rng.random((1, 1, 2))
    args = (2, 3, None, True)
    ours = nn.FractionalMaxPool2d(*args, _random_samples=Tensor(draw))
    theirs = torch.nn.FractionalMaxPool2d(*args, _random_samples=torch.tensor(draw))
    image = array(1, 1, 7, 7)
    compare(ours(Tensor(image)), theirs(torch.tensor(image)), [])


# ---- losses ----------------------------------------------------------------------------------------------------------
X, Y = array(4, 5), array(4, 5)
SIGNS = np.where(X > 0, 1, -1)
CLASSES, SHARES = np.array([0, 4, 2, 2]), rng.random((4, 5))
LOSSES: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
    ("L1Loss", {}, (X, Y)), ("MSELoss", {}, (X, Y)), ("SmoothL1Loss", {"beta": 0.3}, (X, Y)),
    ("HuberLoss", {"delta": 0.3}, (X, Y)),
    ("CrossEntropyLoss", {"ignore_index": 2, "label_smoothing": 0.1}, (X, CLASSES)),
    ("NLLLoss", {"ignore_index": 2}, (X, CLASSES)), ("BCELoss", {}, (SHARES, SHARES[::-1].copy())),
    ("BCEWithLogitsLoss", {}, (X, SHARES)), ("KLDivLoss", {"log_target": True}, (X, Y)),
    ("PoissonNLLLoss", {"full": True}, (X, SHARES)), ("GaussianNLLLoss", {"full": True}, (X, Y, SHARES)),
    ("HingeEmbeddingLoss", {"margin": 0.3}, (X, SIGNS)), ("MarginRankingLoss", {"margin": 0.3}, (X, Y, SIGNS)),
    ("CosineEmbeddingLoss", {"margin": 0.3}, (X, Y, SIGNS[:, 0])), ("TripletMarginLoss", {"swap": True}, (X, Y, X + Y)),
    ("TripletMarginWithDistanceLoss", {"margin": 0.3}, (X, Y, X + Y)), ("SoftMarginLoss", {}, (X, SIGNS)),
    ("MultiLabelMarginLoss", {}, (X, np.array([[3, 0, -1, 1, 2]] * 4))),
    ("MultiLabelSoftMarginLoss", {}, (X, SHARES)), ("MultiMarginLoss", {"margin": 0.3, "p": 2}, (X, CLASSES)),
    ("CTCLoss", {}, (array(6, 2, 5), np.array([[1, 2], [3, 3]]), np.array([6, 5]), np.array([2, 1]))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "args"), LOSSES, ids=[row[0] for row in LOSSES])
@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_losses(name: str, options: dict[str, Any], args: tuple[Any, ...], reduction: str) -> None:
    ours, theirs = (getattr(library, name)(**options, reduction=reduction) for library in (nn, torch.nn))
    leaves: list[Any] = []
    first = [translated(args[0], leaves)]
    rest = [translated(a, [], False) for a in args[1:]]
    both = first + rest
    if name == "CTCLoss":
        both[0] = both[0][0].log_softmax(-1), both[0][1].log_softmax(-1)
    compare(ours(*(a for a, _ in both)), theirs(*(b for _, b in both)), leaves)
    assert ours.parameters() == []


def test_weights_of_losses_are_buffers() -> None:
    w = rng.random(5)
    for name in ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss"):
        ours, theirs = getattr(nn, name)(weight=Tensor(w)), getattr(torch.nn, name)(weight=torch.tensor(w))
        compare(ours(Tensor(X), Tensor(CLASSES)), theirs(torch.tensor(X), torch.tensor(CLASSES)), [])
        assert list(ours.state_dict()) == list(theirs.state_dict()) == ["weight"]
        assert len(ours.requires_grad_().parameters()) == 0
