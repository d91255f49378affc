"""Spectral norms, padded sequences, calls with other parameters, skipped initialisation, attention by given weights."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import ArgumentError, ShapeError, Tensor, jit, nn, optim
from monolect.nn import utils
from monolect.nn.utils.rnn import pad_sequence, unpad_sequence
from monolect.nn.utils.stateless import functional_call

LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda lib: lib.Linear(4, 3), (2, 4)),
    "convolution": (lambda lib: lib.Conv2d(2, 3, 2), (2, 2, 5, 5)),
    "transposed convolution": (lambda lib: lib.ConvTranspose1d(2, 3, 2), (2, 2, 5)),
}


# ---- spectral norm ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("options", [{}, {"n_power_iterations": 3, "eps": 1e-6}, {"dim": 1}])
def test_spectral_norm_trains_as_in_pytorch(name: str, options: dict[str, Any]) -> None:
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    ours, theirs = make(nn), make(torch.nn)
    assert utils.spectral_norm(ours, **options) is ours
    torch.nn.utils.spectral_norm(theirs, **options)
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    ours.load_state_dict({k: v.detach().numpy().copy() for k, v in theirs.state_dict().items()})
    mine, other = optim.SGD(ours.parameters(), lr=0.05), torch.optim.SGD(theirs.parameters(), lr=0.05)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for _ in range(3):
        mine.zero_grad()
        other.zero_grad()
        (ours(Tensor(x)) ** 2).mean().backward()
        (theirs(torch.tensor(x)) ** 2).mean().backward()
        mine.step()
        other.step()
    for k, v in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[k].numpy(), v.detach().numpy(), rtol=1e-4, atol=1e-5)
    ours.eval(), theirs.eval()
    u = ours.weight_u.tolist()
    y = ours(Tensor(x)).numpy()
    np.testing.assert_allclose(y, theirs(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert ours.weight_u.tolist() == u and len(ours.parameters()) == 2
    np.testing.assert_allclose(copy.deepcopy(ours)(Tensor(x)).numpy(), y, rtol=1e-6)
    assert sorted(utils.remove_spectral_norm(ours).state_dict()) == ["bias", "weight"] and not ours.buffer_names
    np.testing.assert_allclose(ours.train()(Tensor(x)).numpy(), y, rtol=1e-5, atol=1e-6)


def test_spectral_norm_in_a_captured_step_and_its_errors() -> None:
    monolect.manual_seed(1)  # some weights have a sum near 0, of which 1e-5 is less than one rounding
    plain, captured = utils.spectral_norm(nn.Linear(4, 3)), utils.spectral_norm(nn.Linear(4, 3))
    captured.load_state_dict(plain.state_dict())
    x = Tensor(np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32))
    step = jit(lambda x: captured(x).sum())
    for _ in range(4):
        np.testing.assert_allclose(step(x).item(), plain(x).sum().item(), rtol=1e-5)
    np.testing.assert_allclose(captured.weight_u.numpy(), plain.weight_u.numpy(), rtol=1e-5)
    with pytest.raises(ArgumentError, match="'scale'"):
        utils.spectral_norm(nn.Linear(1, 1), "scale")
    with pytest.raises(ArgumentError, match="n_power_iterations"):
        utils.spectral_norm(nn.Linear(1, 1), n_power_iterations=0)
    with pytest.raises(ArgumentError, match="remove_spectral_norm"):
        utils.remove_spectral_norm(nn.Linear(1, 1))


# ---- sequences -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rest", [(), (2,), (2, 3)])
@pytest.mark.parametrize("lengths", [(3, 1, 2), (2,), (0, 2), (0, 0)])
def test_padded_sequences(rest: tuple[int, ...], lengths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal((n, *rest)) for n in lengths]
    ours, theirs = (
        [Tensor(v, requires_grad=True) for v in values],
        [torch.tensor(v, requires_grad=True) for v in values],
    )
    for batch_first in (False, True):
        for side in ("right", "left"):
            got = pad_sequence(ours, batch_first, 7.0, side)
            want = torch.nn.utils.rnn.pad_sequence(theirs, batch_first, 7.0, side)
            np.testing.assert_array_equal(got.numpy(), want.detach().numpy(), strict=True)
        padded = pad_sequence(ours, batch_first)
        for kind in (list(lengths), Tensor(list(lengths))):
            for t, v in zip(unpad_sequence(padded, kind, batch_first), values, strict=True):
                np.testing.assert_array_equal(t.numpy(), v, strict=True)
    (pad_sequence(ours) * 2).sum().backward()
    assert all(t.grad is not None and (t.grad.numpy() == 2).all() for t in ours)
    assert pad_sequence([Tensor([1, 2]), Tensor([3])]).dtype is monolect.dtypes.int64


def test_wrong_sequences() -> None:
    a = Tensor.ones(2, 3)
    with pytest.raises(ArgumentError, match="at least one"):
        pad_sequence([])
    with pytest.raises(ArgumentError, match="padding_side"):
        pad_sequence([a], padding_side="middle")
    for wrong in ([a, Tensor.ones(2, 4)], [Tensor(1.0)], [a, Tensor.ones(2)]):
        with pytest.raises(ShapeError, match="pad_sequence"):
            pad_sequence(wrong)
    with pytest.raises(ShapeError, match="lengths"):
        unpad_sequence(a, [1, 2])
    with pytest.raises(ArgumentError, match="lengths"):
        unpad_sequence(a, [1, 2, 3])


# ---- calls with other tensors ----------------------------------------------------------------------------------------
class Tied(nn.Module):
    """A module with tensors in a list and a dict, and one tensor under two names."""

    def __init__(self) -> None:
        self.first = nn.Linear(2, 2, bias=False)
        self.second = nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight
        self.scales = [Tensor([2.0], requires_grad=True)]
        self.table = {"shift": Tensor([1.0])}

    def forward(self, x: Tensor, factor: float = 1.0) -> Tensor:
        """Return a Tensor that all tensors of the module have a part in."""
        return self.second(self.first(x)) * self.scales[0] * factor + self.table["shift"]


def test_functional_call_is_that_of_pytorch() -> None:
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    ours = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)
    before, weight = ours(Tensor(x)).tolist(), ours[0].weight
    mine, other = Tensor(w, requires_grad=True), torch.tensor(w, requires_grad=True)
    got = functional_call(ours, {"0.weight": mine}, (Tensor(x),))
    want = torch.func.functional_call(theirs, {"0.weight": other}, (torch.tensor(x),))
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    (got**3).sum().backward()
    (want**3).sum().backward()
    np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-2, atol=1e-3)  # type: ignore[union-attr]
    assert ours[0].weight is weight and weight.grad is None and ours(Tensor(x)).tolist() == before


def test_functional_call_replaces_tied_tensors_and_those_in_containers() -> None:
    m, x = Tied(), Tensor([[1.0, 2.0]])
    given = {"first.weight": Tensor([[0.0, 1.0], [1.0, 0.0]]), "scales.0": Tensor([3.0]), "table.shift": Tensor([10.0])}
    assert functional_call(m, given, x, {"factor": 2.0}).tolist() == [[16.0, 22.0]]
    named = {n: t.detach() for n, t in m.state_dict().items()}
    assert functional_call(m, named, (x,), strict=True).tolist() == m(x).tolist()
    with pytest.raises(ArgumentError, match="functional_call"):
        functional_call(m, {"third.weight": x}, x)
    with pytest.raises(ArgumentError, match="missing"):
        functional_call(m, given, x, strict=True)
    weight = m.first.weight
    with pytest.raises(monolect.MonolectError):
        functional_call(m, given, Tensor.ones(3, 3))
    assert m.first.weight is weight and m.second.weight is weight  # also after an error
    m.parts = (Tensor([1.0]),)  # type: ignore[attr-defined]
    with pytest.raises(ArgumentError, match="in a tuple"):
        functional_call(m, {"parts.0": Tensor([2.0])}, x)


def test_skip_init() -> None:
    made = utils.skip_init(nn.Linear, 4, 3, bias=False)
    assert type(made) is nn.Linear and made.weight.shape == (3, 4) and made.weight.requires_grad
    made.load_state_dict({"weight": np.ones((3, 4), np.float32)})
    made(Tensor.ones(1, 4)).sum().backward()
    assert made.weight.grad is not None and made.weight.grad.tolist() == [[1.0] * 4] * 3
    assert utils.skip_init(nn.BatchNorm1d, 2).running_var.tolist() == [1.0, 1.0]
    with pytest.raises(ArgumentError, match="skip_init"):
        utils.skip_init(dict, a=1)  # type: ignore[type-var]


# ---- attention with given weights ------------------------------------------------------------------------------------
def attended(lib: Any, tensor: Any, arrays: dict[str, np.ndarray], options: tuple[str, ...]) -> tuple[Any, ...]:
    """The two results of the function of `lib`, and its tensors by name."""
    t = {k: tensor(v) for k, v in arrays.items()}
    named: dict[str, Any] = {"training": False, "need_weights": "no weights" not in options}
    if "separate" in options:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        named |= dict(zip(names, (t["w"][:6], t["w"][6:12], t["w"][12:]), strict=True), use_separate_proj_weight=True)
    if "padding" in options:
        named["key_padding_mask"] = tensor(np.array([[False] * 3 + [True] * 2, [False] * 5]))
    if "mask" in options:
        named["attn_mask"] = tensor(np.triu(np.ones((4, 5), bool), 2))
    named["average_attn_weights"] = "heads" not in options
    extra = (t["bias_k"], t["bias_v"]) if "biases" in options else (None, None)
    weight = None if "separate" in options else t["w"]
    inputs = (t["q"], t["k"], t["v"], 6, 3, weight, t["b"], *extra, "zeros" in options, 0.25, t["out"], t["bias"])
    return lib.nn.functional.multi_head_attention_forward(*inputs, **named), t


OPTIONS = [
    (),
    ("separate",),
    ("padding", "biases"),
    ("mask", "zeros"),
    ("padding", "mask", "separate", "biases", "zeros"),
]


@pytest.mark.parametrize(
    "options", [*OPTIONS, ("no weights",), ("heads", "mask")], ids=lambda o: " ".join(o) or "plain"
)
def test_attention_with_given_weights_beside_pytorch(options: tuple[str, ...]) -> None:
    rng = np.random.default_rng(0)
    shapes = {"q": (4, 2, 6), "k": (5, 2, 6), "v": (5, 2, 6), "w": (18, 6), "b": (18,), "out": (6, 6), "bias": (6,)}
    shapes |= {"bias_k": (1, 1, 6), "bias_v": (1, 1, 6)}
    arrays = {k: rng.standard_normal(s) for k, s in shapes.items()}

    def ours(a: np.ndarray) -> Tensor:
        return Tensor(a, requires_grad=a.dtype.kind == "f")

    def theirs(a: np.ndarray) -> torch.Tensor:
        return torch.tensor(a, requires_grad=a.dtype.kind == "f")

    (output, weights), given = attended(monolect, ours, arrays, options)
    (want, wanted), others = attended(torch, theirs, arrays, options)
    np.testing.assert_allclose(output.numpy(), want.detach().numpy(), rtol=1e-10, atol=1e-12)
    assert (weights is None) == (wanted is None)
    if wanted is not None:
        np.testing.assert_allclose(weights.numpy(), wanted.detach().numpy(), rtol=1e-10, atol=1e-12)
    (output**2).sum().backward()
    (want**2).sum().backward()
    for name, t in others.items():
        if t.grad is not None:
            np.testing.assert_allclose(given[name].grad.numpy(), t.grad.numpy(), rtol=1e-8, atol=1e-10, err_msg=name)


def test_wrong_arguments_of_attention() -> None:
    f, x, w = nn.functional.multi_head_attention_forward, Tensor.ones(3, 6), Tensor.ones(6, 6)
    with pytest.raises(ShapeError, match="query"):
        f(x, x, x, 4, 2, None, None, None, None, False, 0.0, w, None)
    with pytest.raises(ArgumentError, match="num_heads"):
        f(x, x, x, 6, 4, w, None, None, None, False, 0.0, w, None)
    with pytest.raises(ArgumentError, match="in_proj_weight"):
        f(x, x, x, 6, 2, None, None, None, None, False, 0.0, w, None)
    with pytest.raises(ArgumentError, match="k_proj_weight"):
        f(x, x, x, 6, 2, None, None, None, None, False, 0.0, w, None, use_separate_proj_weight=True, q_proj_weight=w)
    with pytest.raises(ArgumentError, match="static_k"):
        f(x, x, x, 6, 2, w.cat(w, w), None, None, None, False, 0.0, w, None, static_k=x)
