"""Layers against torch.nn: results, gradients of inputs and weights, both modes, state dicts in both directions."""

from typing import Any

import numpy as np
import pytest
import torch

from monolect import MonolectError, Tensor, nn
from tests.unit.torch_oracle import Spec, check_layer, compare, layer, pair, text, translated

rng = np.random.default_rng(2)


def array(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


L, I, V = array(2, 4, 6), array(2, 4, 5, 6), array(1, 4, 4, 5, 3)  # noqa: E741
TOKENS = np.array([[1, 2, 2], [6, 1, 0]])

# a layer, and what it is called with
WEIGHTED: list[tuple[Spec, tuple[Any, ...]]] = [
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
    (layer("AdaptiveLogSoftmaxWithLoss", 8, 12, [3, 7], 2.0, True), (array(4, 8), np.array([0, 6, 11, 3]))),
    (layer("LinearCrossEntropyLoss", 6, 4, bias=True), (array(3, 6), np.array([1, 3, 0]))),
]  # fmt: skip


# Evaluation differs for running statistics.
EVALUATED = ("BatchNorm", "InstanceNorm")
CASES = [(s, a, m) for s, a in WEIGHTED for m in ("train", "eval") if m == "train" or s[0].startswith(EVALUATED)]


@pytest.mark.sweep
@pytest.mark.parametrize(("spec", "args", "mode"), CASES, ids=[f"{text(s)} {m}" for s, _, m in CASES])
def test_layers_with_weights(spec: Spec, args: tuple[Any, ...], mode: str) -> None:
    check_layer(spec, args, mode == "train")


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


# ---- layers without weights ------------------------------------------------------------------------------------------
PLAIN: list[tuple[Spec, tuple[Any, ...]]] = [
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


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
@pytest.mark.parametrize(("spec", "args"), PLAIN, ids=[text(s) for s, _ in PLAIN])
def test_layers_without_weights(spec: Spec, args: tuple[Any, ...]) -> None:
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


@pytest.mark.sweep
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


def test_clusters_of_classes() -> None:
    ours, theirs = pair(layer("AdaptiveLogSoftmaxWithLoss", 8, 12, [3, 7], 2.0))
    x = array(5, 8)
    np.testing.assert_allclose(
        ours.log_prob(Tensor(x)).numpy(), theirs.log_prob(torch.tensor(x)).detach().numpy(), rtol=1e-9
    )
    assert ours.predict(Tensor(x)).tolist() == theirs.predict(torch.tensor(x)).tolist()
    assert ours(Tensor(x[0]), Tensor(5)).output.shape == ()
    for call in (lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 12, [7, 3]), lambda: ours(Tensor(x), Tensor(1))):
        with pytest.raises(MonolectError, match="AdaptiveLogSoftmaxWithLoss"):
            call()
