"""Pruned, parametrized and fused weights are those of torch.nn.utils: `prune`, `parametrize`, `fusion`."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.utils.fusion
import torch.nn.utils.parametrizations
import torch.nn.utils.parametrize
import torch.nn.utils.prune
import torch.utils.checkpoint

import monolect
from monolect import ArgumentError, AxisError, DTypeError, ShapeError, Tensor, jit, nn, optim
from monolect.nn.utils import fusion, parametrize, prune, remove_weight_norm, weight_norm

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 6)).astype(np.float32)
SCORES = RNG.standard_normal((4, 6)).astype(np.float32)
MASK = (RNG.random((4, 6)) < 0.5).astype(np.float32)


def pair(lib: Any, make: Any = lambda lib: lib.Linear(6, 4)) -> Any:
    """A layer with the same weights in either library."""
    layer = make(lib)
    rng = np.random.default_rng(1)
    state = {k: rng.standard_normal(tuple(v.shape)).astype(np.float32) for k, v in layer.state_dict().items()}
    layer.load_state_dict({k: torch.tensor(v) for k, v in state.items()} if lib is torch.nn else state)
    return layer


def assert_same(ours: nn.Module, theirs: torch.nn.Module, rtol: float = 1e-5) -> None:
    mine, other = ours.state_dict(), theirs.state_dict()
    assert sorted(mine) == sorted(other)
    leaves = [k for k, p in theirs.named_parameters() if p.requires_grad]
    assert sorted(k for k, p in ours.named_parameters() if p.requires_grad) == sorted(leaves)
    assert sorted(k for k, _ in ours.named_buffers()) == sorted(k for k, _ in theirs.named_buffers())
    for k, v in other.items():
        np.testing.assert_allclose(mine[k].numpy(), v.detach().numpy(), rtol=rtol, atol=1e-6)


def assert_trains_alike(ours: nn.Module, theirs: torch.nn.Module) -> None:
    mine, other = optim.SGD(ours.parameters(), lr=0.05), torch.optim.SGD(theirs.parameters(), lr=0.05)
    for _ in range(3):
        mine.zero_grad()
        other.zero_grad()
        (ours(Tensor(X)) ** 2).mean().backward()
        (theirs(torch.tensor(X)) ** 2).mean().backward()
        mine.step()
        other.step()
    assert_same(ours, theirs, rtol=1e-4)
    np.testing.assert_allclose(ours(Tensor(X)).numpy(), theirs(torch.tensor(X)).detach().numpy(), rtol=1e-4, atol=1e-5)


# ---- prune -----------------------------------------------------------------------------------------------------------
# name -> function of (module prune of a library, layer, a library's function that makes a tensor)
PRUNED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "number": lambda p, m, t: p.l1_unstructured(m, "weight", 7),
    "part": lambda p, m, t: p.l1_unstructured(m, name="weight", amount=0.3),
    "nothing": lambda p, m, t: p.l1_unstructured(m, "weight", 0),
    "all": lambda p, m, t: p.l1_unstructured(m, "weight", 1.0),
    "scores": lambda p, m, t: p.l1_unstructured(m, "weight", 7, importance_scores=t(SCORES)),
    "rows": lambda p, m, t: p.ln_structured(m, "weight", amount=0.5, n=2, dim=0),
    "columns": lambda p, m, t: p.ln_structured(m, "weight", 2, n=1, dim=-1, importance_scores=t(SCORES)),
    "greatest": lambda p, m, t: p.ln_structured(m, "weight", 1, n=float("inf"), dim=1),
    "mask": lambda p, m, t: p.custom_from_mask(m, "weight", t(MASK)),
    "identity": lambda p, m, t: p.identity(m, "bias"),
    "twice": lambda p, m, t: p.l1_unstructured(p.l1_unstructured(m, "weight", 0.3), "weight", 0.5),
    "rows, elements": lambda p, m, t: p.l1_unstructured(p.ln_structured(m, "weight", 2, 2, 0), "weight", 3),
    "elements, rows": lambda p, m, t: p.ln_structured(p.l1_unstructured(m, "weight", 9), "weight", 1, 2, 0),
    "rows, columns": lambda p, m, t: p.ln_structured(p.ln_structured(m, "weight", 1, 2, 0), "weight", 2, 2, 1),
    "mask, elements": lambda p, m, t: p.l1_unstructured(p.custom_from_mask(m, "weight", t(MASK)), "weight", 2),
    "both": lambda p, m, t: p.l1_unstructured(p.l1_unstructured(m, "weight", 9), "bias", 2),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", PRUNED)
def test_a_pruned_layer_trains_as_in_pytorch(name: str) -> None:
    ours, theirs = pair(nn), pair(torch.nn)
    known = dict(ours.named_parameters())
    assert PRUNED[name](prune, ours, Tensor) is ours
    PRUNED[name](torch.nn.utils.prune, theirs, torch.tensor)
    assert_same(ours, theirs)
    assert_trains_alike(ours, theirs)
    names = [k.removesuffix("_orig") for k, _ in ours.named_parameters() if k.endswith("_orig")]
    assert prune.is_pruned(nn.Sequential(ours)) and all(vars(ours)[f"{k}_orig"] is known[k] for k in names)
    copied = copy.deepcopy(ours)
    for k in names:
        prune.remove(ours, k)
        torch.nn.utils.prune.remove(theirs, k)
        assert getattr(ours, k) is known[k]
    assert type(ours) is nn.Linear and not prune.is_pruned(ours) and prune.is_pruned(copied)
    assert_same(ours, theirs, rtol=1e-4)


def test_pruned_together() -> None:
    def made(lib: Any, p: Any, t: Any) -> Any:
        a, b = pair(lib), pair(lib, lambda lib: lib.Linear(4, 3))
        p.l1_unstructured(a, "weight", 3)
        pairs = [(a, "weight"), (b, "weight"), (b, "bias")]
        p.global_unstructured(pairs, pruning_method=p.L1Unstructured, amount=0.4)
        p.global_unstructured(pairs, p.L1Unstructured, importance_scores={(a, "weight"): t(SCORES)}, amount=2)
        return lib.Sequential(a, b)

    assert_same(made(nn, prune, Tensor), made(torch.nn, torch.nn.utils.prune, torch.tensor))


def test_random_pruning() -> None:
    layer = pair(nn)
    prune.random_unstructured(layer, "weight", 0.25)
    prune.random_unstructured(layer, "weight", 6)
    assert int((layer.weight_mask == 0).sum().item()) == 12
    layer = prune.random_structured(pair(nn), "weight", 2, dim=1)
    assert sorted(layer.weight_mask.sum(0).tolist()) == [0.0, 0.0, 4.0, 4.0, 4.0, 4.0]


def test_a_method_of_the_user_and_a_captured_step() -> None:
    class Ours(prune.BasePruningMethod):
        def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
            return default_mask * (t > 0)

    class Theirs(torch.nn.utils.prune.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t: Any, default_mask: Any) -> Any:
            return default_mask * (t > 0)

    ours, theirs = pair(nn), pair(torch.nn)
    Ours.apply(ours, "weight")
    Theirs.apply(theirs, "weight")
    assert_same(ours, theirs)
    step = jit(lambda x: ours(x))
    for k in range(4):
        if k == 2:
            prune.l1_unstructured(ours, "weight", 4)
            torch.nn.utils.prune.l1_unstructured(theirs, "weight", 4)
        np.testing.assert_allclose(
            step(Tensor(X)).numpy(), theirs(torch.tensor(X)).detach().numpy(), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda m: prune.l1_unstructured(m, "scale", 1), ArgumentError, "'scale'"),
        (lambda m: prune.l1_unstructured(m, "weight", 1.5), ArgumentError, "1.5"),
        (lambda m: prune.l1_unstructured(m, "weight", -1), ArgumentError, "-1"),
        (lambda m: prune.l1_unstructured(m, "weight", "a"), ArgumentError, "amount"),
        (lambda m: prune.l1_unstructured(m, "weight", 25), ArgumentError, "at most 24"),
        (lambda m: prune.l1_unstructured(m, "weight", 1, Tensor(X)), ShapeError, r"\(4, 6\)"),
        (lambda m: prune.ln_structured(m, "bias", 1, 2, 0), ShapeError, "2 axes"),
        (lambda m: prune.ln_structured(m, "weight", 1, 2, 2), AxisError, r"\(4, 6\)"),
        (lambda m: prune.custom_from_mask(m, "weight", Tensor(X)), ShapeError, r"\(4, 6\)"),
        (lambda m: prune.global_unstructured([(m, "weight")], prune.LnStructured, amount=1, n=2), ArgumentError, "str"),
        (lambda m: prune.global_unstructured([], prune.L1Unstructured, amount=1), ArgumentError, "one pair"),
        (lambda m: prune.remove(m, "weight"), ArgumentError, "'weight' is pruned"),
    ],
)  # fmt: skip
def test_what_cannot_be_pruned(call: Any, error: type, text: str) -> None:
    layer = pair(nn)
    with pytest.raises(error, match=text):
        call(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"] and type(layer) is nn.Linear


# ---- parametrize -----------------------------------------------------------------------------------------------------
def modules_of(lib: Any) -> dict[str, Any]:
    """Parametrizations, of the modules of either library."""

    class Squared(lib.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x * x

    class Double(lib.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x * 2

        def right_inverse(self, y: Any) -> Any:
            return y / 2

    class Product(lib.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any, b: Any) -> Any:
            return a.unsqueeze(-1) * b

        def right_inverse(self, y: Any) -> Any:
            return y[:, 0], y[0] / y[0, 0]

    class Halves(lib.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.repeat(1, 2)

        def right_inverse(self, y: Any) -> Any:
            return y[:, :3]

    return {"squared": Squared, "double": Double, "product": Product, "halves": Halves, "tanh": lib.Tanh}


KINDS = ("squared", "double", "product", "halves", "tanh")
LIBRARIES: tuple[tuple[Any, Any], ...] = ((nn, parametrize), (torch.nn, torch.nn.utils.parametrize))


@pytest.mark.sweep
@pytest.mark.parametrize("second", [None, "double"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_parametrized_layer_trains_as_in_pytorch(kind: str, second: str | None) -> None:
    both = []
    for lib, p in LIBRARIES:
        layer = pair(lib)
        first = layer.weight
        p.register_parametrization(layer, "weight", modules_of(lib)[kind]())
        if second is not None:
            p.register_parametrization(layer, "weight", modules_of(lib)[second]())
        assert p.is_parametrized(layer) and p.is_parametrized(layer, "weight") and not p.is_parametrized(layer, "bias")
        assert p.type_before_parametrizations(layer) is lib.Linear
        if kind not in ("product", "halves"):
            assert layer.parametrizations.weight.original is first
        both.append(layer)
    ours, theirs = both
    assert_same(ours, theirs)
    assert_trains_alike(ours, theirs)
    if kind in ("double", "product"):
        ours.weight, theirs.weight = Tensor(MASK + 1), torch.tensor(MASK + 1)
        assert_same(ours, theirs)
    copied = copy.deepcopy(ours)
    for layer, (_, p) in zip(both, LIBRARIES, strict=True):
        p.remove_parametrizations(layer, "weight")
    assert type(ours) is nn.Linear and not parametrize.is_parametrized(ours) and parametrize.is_parametrized(copied)
    assert_same(ours, theirs, rtol=1e-4)
    assert_trains_alike(ours, theirs)


def test_parametrizations_with_parameters_of_several_tensors_and_of_buffers() -> None:
    for leave in (True, False):
        both = []
        for lib, p in LIBRARIES:
            model = lib.Sequential(pair(lib), lib.BatchNorm1d(4)).eval()
            scale = pair(lib, lambda lib: lib.Linear(6, 6))
            p.register_parametrization(model[0], "weight", scale)
            p.register_parametrization(model[0], "bias", modules_of(lib)["squared"]())
            p.register_parametrization(model[1], "running_var", modules_of(lib)["double"]())
            both.append(model)
        assert_same(*both)
        assert_trains_alike(*both)
        assert not both[0][0].parametrizations.weight[0].training
        for model, (_, p) in zip(both, LIBRARIES, strict=True):
            p.remove_parametrizations(model[0], "weight", leave_parametrized=leave)
            p.remove_parametrizations(model[1], "running_var", leave_parametrized=leave)
            assert p.is_parametrized(model[0], "bias") and not p.is_parametrized(model[1])
        assert_same(*both, rtol=1e-4)


def test_a_parametrized_tensor_is_computed_once_in_cached() -> None:
    calls = []

    class Counted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(x)
            return x * 2

    layer = parametrize.register_parametrization(pair(nn), "weight", Counted())
    calls.clear()
    with parametrize.cached():
        first = layer.weight
        with parametrize.cached():
            assert layer.weight is first
        layer(Tensor(X))
    assert len(calls) == 1 and layer.weight is not first and len(calls) == 2


def test_a_parametrized_layer_in_a_captured_step() -> None:
    layer, plain = (parametrize.register_parametrization(pair(nn), "weight", nn.Tanh()) for _ in range(2))
    mine, other = optim.SGD(layer.parameters(), lr=0.1), optim.SGD(plain.parameters(), lr=0.1)

    def step(layer: nn.Module, optimizer: Any, x: Tensor) -> Tensor:
        optimizer.zero_grad()
        with parametrize.cached():
            loss = (layer(x) ** 2).mean() + layer.weight.sum()
        loss.backward()
        optimizer.step()
        return loss

    captured = jit(lambda x: step(layer, mine, x))
    for k in range(4):
        assert captured(Tensor(X + k)).item() == pytest.approx(step(plain, other, Tensor(X + k)).item(), rel=1e-5)


def test_transferred_parametrizations() -> None:
    both = []
    for lib, p in LIBRARIES:
        source, target = pair(lib), lib.Linear(6, 4)
        for kind in ("product", "double"):
            p.register_parametrization(source, "weight", modules_of(lib)[kind]())
        target.load_state_dict({k: v * 1 for k, v in pair(lib).state_dict().items()})
        assert p.transfer_parametrizations_and_params(source, target) is target
        assert target.parametrizations.weight.original0 is source.parametrizations.weight.original0
        plain = lib.Linear(1, 1)
        assert p.transfer_parametrizations_and_params(lib.Linear(1, 1), plain) is plain and not p.is_parametrized(plain)
        both.append(target)
    assert_same(*both)


class ToDouble(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.double()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda m: parametrize.register_parametrization(m, "scale", nn.Tanh()), ArgumentError, "'scale'"),
        (lambda m: parametrize.register_parametrization(m, "weight", lambda x: x), DTypeError, "a Module"),
        (lambda m: parametrize.register_parametrization(m, "weight", nn.Flatten(0)), ShapeError, "unsafe"),
        (lambda m: parametrize.register_parametrization(m, "weight", ToDouble()), DTypeError, "unsafe"),
        (lambda m: parametrize.remove_parametrizations(m, "weight"), ArgumentError, "parametrized 'weight'"),
    ],
)
def test_what_cannot_be_parametrized(call: Any, error: type, text: str) -> None:
    layer = pair(nn)
    with pytest.raises(error, match=text):
        call(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"] and type(layer) is nn.Linear


def test_errors_of_parametrized_layers() -> None:
    layer = parametrize.register_parametrization(pair(nn), "weight", modules_of(nn)["product"]())
    for wrong, error in ((nn.Flatten(0), ShapeError), (ToDouble(), DTypeError)):
        with pytest.raises(error, match="unsafe"):
            parametrize.register_parametrization(layer, "weight", wrong)
    with pytest.raises(ArgumentError, match="2 originals"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    parametrize.register_parametrization(layer, "weight", ToDouble(), unsafe=True)
    assert layer.weight.dtype is monolect.dtypes.float64


def test_computed_attributes_are_removed_in_any_order() -> None:
    layer = weight_norm(prune.identity(pair(nn), "bias"))
    before = layer(Tensor(X)).numpy()
    prune.remove(layer, "bias")
    assert "weight" not in vars(layer) and type(remove_weight_norm(layer)) is nn.Linear
    np.testing.assert_allclose(layer(Tensor(X)).numpy(), before, rtol=1e-5, atol=1e-6)


def test_names_of_the_modules() -> None:
    assert set(torch.nn.utils.parametrize.__all__) == set(parametrize.__all__)
    assert set(torch.nn.utils.fusion.__all__) == set(fusion.__all__)
    theirs = {
        n for n, x in vars(torch.nn.utils.prune).items() if getattr(x, "__module__", "") == "torch.nn.utils.prune"
    }
    assert {n for n in theirs if n[0] != "_"} - set(prune.__all__) == {"PruningContainer"}
    assert not hasattr(prune, "PruningContainer")
    with pytest.raises(AttributeError, match="prune the parameter again"):
        _ = prune.PruningContainer


# ---- fusion ----------------------------------------------------------------------------------------------------------
FUSED: dict[str, tuple[Any, Any, tuple[int, ...], bool]] = {
    "convolution": (lambda lib: lib.Conv2d(2, 3, 2), lambda lib: lib.BatchNorm2d(3), (2, 2, 5, 5), False),
    "without bias": (lambda lib: lib.Conv1d(2, 3, 2, bias=False), lambda lib: lib.BatchNorm1d(3), (2, 2, 5), False),
    "not affine": (lambda lib: lib.Conv1d(2, 3, 2), lambda lib: lib.BatchNorm1d(3, affine=False), (2, 2, 5), False),
    "transposed": (lambda lib: lib.ConvTranspose1d(2, 3, 2), lambda lib: lib.BatchNorm1d(3), (2, 2, 5), True),
    "linear": (lambda lib: lib.Linear(6, 4), lambda lib: lib.BatchNorm1d(4), (5, 6), False),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_batch_norm(name: str) -> None:
    layer, norm, shape, transpose = FUSED[name]
    both = []
    for lib, f in ((nn, fusion), (torch.nn, torch.nn.utils.fusion)):
        a, b = pair(lib, layer).eval(), norm(lib).eval()
        rng = np.random.default_rng(2)
        state = {
            k: rng.random(tuple(v.shape)).astype(np.float32) + 0.5 for k, v in b.state_dict().items() if "num" not in k
        }
        b.load_state_dict({k: torch.tensor(v) for k, v in state.items()} if lib is torch.nn else state, strict=False)
        fused = f.fuse_linear_bn_eval(a, b) if name == "linear" else f.fuse_conv_bn_eval(a, b, transpose)
        both.append((fused, a, b))
    (ours, a, b), (theirs, *_) = both
    assert_same(ours, theirs)
    x = Tensor(RNG.standard_normal(shape).astype(np.float32))
    np.testing.assert_allclose(ours(x).numpy(), b(a(x)).numpy(), rtol=1e-4, atol=1e-5)
    for left, right in ((a.train(), b), (a.eval(), b.train())):
        with pytest.raises(ArgumentError, match="in evaluation"):
            fusion.fuse_conv_bn_eval(left, right, transpose)


def test_wrong_fusions() -> None:
    with pytest.raises(ShapeError, match="1 or 4"):
        fusion.fuse_linear_bn_eval(pair(nn).eval(), nn.BatchNorm1d(3).eval())
    with pytest.raises(ArgumentError, match="running statistics"):
        fusion.fuse_linear_bn_eval(pair(nn).eval(), nn.BatchNorm1d(4, track_running_stats=False).eval())


# ---- parametrizations by name ----------------------------------------------------------------------------------------
LAYERS: dict[str, Callable[[Any], Any]] = {
    "Linear": lambda lib: lib.Linear(6, 4),
    "Conv2d": lambda lib: lib.Conv2d(6, 4, 3),
    "ConvTranspose2d": lambda lib: lib.ConvTranspose2d(6, 4, 3),
}


def inputs(name: str) -> np.ndarray:
    return RNG.standard_normal((5, 6) if name == "Linear" else (2, 6, 5, 5)).astype(np.float32)


def compared(ours: Any, theirs: Any, x: np.ndarray, rtol: float = 1e-4) -> None:
    """Results and gradients of both layers for `x`, and their state dicts after it."""
    got, want = ours(Tensor(x)), theirs(torch.tensor(x))
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=rtol, atol=1e-5)
    (got * got).sum().backward()
    (want * want).sum().backward()
    grads = {k: p.grad.numpy() for k, p in theirs.named_parameters()}
    for k, p in ours.named_parameters():
        np.testing.assert_allclose(p.grad.numpy(), grads[k], rtol=rtol, atol=2e-4)
    assert_same(ours, theirs, rtol)


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("name", LAYERS)
def test_weight_norm_as_a_parametrization(name: str, dim: int | None) -> None:
    ours, theirs = (pair(lib, LAYERS[name]) for lib in (nn, torch.nn))
    for lib, layer in ((nn, ours), (torch.nn, theirs)):
        assert lib.utils.parametrizations.weight_norm(layer, dim=dim) is layer
    assert_same(ours, theirs)
    compared(ours, theirs, inputs(name))
    for lib, layer in ((nn, ours), (torch.nn, theirs)):
        lib.utils.parametrize.remove_parametrizations(layer, "weight")
    assert_same(ours, theirs)


@pytest.mark.parametrize("name", LAYERS)
def test_spectral_norm_as_a_parametrization(name: str) -> None:
    ours, theirs = (pair(lib, LAYERS[name]) for lib in (nn, torch.nn))
    for lib, layer in ((nn, ours), (torch.nn, theirs)):
        assert lib.utils.parametrizations.spectral_norm(layer, n_power_iterations=2) is layer
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    x = inputs(name)
    compared(ours, theirs, x)  # the vectors change, too
    ours.eval(), theirs.eval()
    ours.zero_grad(), theirs.zero_grad()
    compared(ours, theirs, x)


def test_spectral_norm_of_a_vector_under_jit_and_its_start() -> None:
    layer = nn.utils.parametrizations.spectral_norm(nn.LayerNorm(6))
    with_unit = layer.weight.square().sum().item()
    assert with_unit == pytest.approx(1.0, rel=1e-5)
    wide = nn.utils.parametrizations.spectral_norm(pair(nn))
    largest = np.linalg.svd(wide.parametrizations.weight.original.numpy())[1][0]
    wide.eval()
    np.testing.assert_allclose(
        wide.weight.numpy() * largest, wide.parametrizations.weight.original.numpy(), rtol=2e-2, atol=1e-3
    )
    wide.train()
    step = jit(lambda x: wide(x).sum())
    found = [step(Tensor(X)).item() for _ in range(20)]
    assert found[-1] == pytest.approx(((X @ wide.weight.numpy().T) + wide.bias.numpy()).sum(), rel=1e-3)
    with pytest.raises(ArgumentError, match="n_power_iterations"):
        nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)
    with pytest.raises(ArgumentError, match="spectral_norm"):
        nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2), "absent")


# ---- checkpoint ------------------------------------------------------------------------------------------------------
def test_checkpoint_calls_the_function() -> None:
    out = []
    for lib, m in ((torch.utils.checkpoint, torch), (nn.utils.checkpoint, monolect)):
        w: Any = m.tensor([1.0, -2.0], requires_grad=True)
        y = lib.checkpoint(lambda x, scale: (x * scale).tanh(), w, scale=3.0, use_reentrant=False)
        parts = m.nn.Sequential(m.nn.Tanh(), m.nn.Sigmoid(), m.nn.Tanh())
        z = lib.checkpoint_sequential(parts, 2, y, use_reentrant=False)
        z.sum().backward()
        out.append((z.detach().numpy(), w.grad.numpy()))
    np.testing.assert_allclose(out[1][0], out[0][0], rtol=1e-6)
    np.testing.assert_allclose(out[1][1], out[0][1], rtol=1e-5, atol=1e-6)
    for call, words in (
        (lambda: nn.utils.checkpoint.checkpoint(3, Tensor([1.0])), "checkpoint: function"),  # type: ignore[arg-type]
        (lambda: nn.utils.checkpoint.checkpoint_sequential([abs], 0, Tensor([1.0])), "segments"),
        (lambda: nn.utils.checkpoint.checkpoint_sequential([3], 1, Tensor([1.0])), "functions"),  # type: ignore[list-item]
    ):
        with pytest.raises(ArgumentError, match=words):
            call()


def test_absent_names_of_tools_say_what_to_use() -> None:
    for call, words in (
        (lambda: nn.utils.parametrizations.orthogonal, "orthogonal_"),
        (lambda: nn.utils.rnn.pack_padded_sequence, "loop over a cell"),
        (lambda: nn.Linear(1, 1).register_full_backward_hook, "call register_hook"),
        (lambda: monolect.utils, "nn.utils.checkpoint"),
    ):
        with pytest.raises(AttributeError, match=words):
            call()
    assert not hasattr(nn.Module(), "register_full_backward_hook")
    assert "register_full_backward_hook" not in dir(nn.Module())
