"""Module: names of its parts, buffers, hooks, moves to dtypes and devices; the containers; Parameter."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import ArgumentError, AxisError, DTypeError, GradientError, ShapeError, Tensor, jit, nn


def fill(model: Any, library: Any, tensor: Any) -> Any:
    """Give `model`, of either library, its parts."""
    model.first = library.Linear(3, 4)
    model.blocks = library.ModuleList([library.Linear(4, 4), library.Sequential(library.ReLU(), library.Linear(4, 2))])
    model.heads = library.ModuleDict({"a": library.Linear(2, 2), "b": library.Identity()})
    model.scales = library.ParameterList([tensor([1.0, 2.0]), tensor([3.0])])
    model.shifts = library.ParameterDict({"x": tensor([0.5])})
    model.norm = library.BatchNorm1d(2)
    return model


def forward(self: Any, x: Any) -> Any:
    x = self.blocks[1](self.blocks[0](self.first(x)))
    x = self.heads["b"](self.heads["a"](x)) * self.scales[0] + self.scales[1] + self.shifts["x"]
    return self.norm(x)


class Net(nn.Module):
    forward = forward


class TorchNet(torch.nn.Module):
    forward = forward


def both() -> tuple[Any, Any]:
    return fill(Net(), nn, Tensor), fill(TorchNet(), torch.nn, torch.tensor)


def test_a_model_has_the_names_of_pytorch() -> None:
    ours, theirs = both()
    for names in ("named_parameters", "named_buffers", "named_modules"):
        for options in ({}, {"prefix": "model"}):
            found, want = ([n for n, _ in getattr(m, names)(**options)] for m in (ours, theirs))
            skipped = [n for n in want if n not in found]
            # PyTorch counts containers of a model as its modules; ours are the same
            assert found == want, (names, skipped)
    assert [n for n, _ in ours.named_parameters(recurse=False)] == []
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert type(ours.get_submodule("blocks.1.1")).__name__ == "Linear" and ours.get_submodule("") is ours
    assert ours.get_parameter("scales.1") is ours.scales[1] and ours.get_buffer("norm.running_mean").shape == (2,)
    for method in (ours.get_submodule, ours.get_parameter, ours.get_buffer):
        with pytest.raises(ArgumentError, match="get_"):
            method("blocks.7.weight")


def test_a_model_computes_and_trains_as_that_of_pytorch() -> None:
    ours, theirs = both()
    ours.double().load_state_dict({k: v.numpy() for k, v in theirs.double().state_dict().items()})
    x = np.random.default_rng(0).standard_normal((5, 3))
    y, t = ours(Tensor(x)), theirs(torch.tensor(x))
    np.testing.assert_allclose(y.numpy(), t.detach().numpy(), rtol=1e-9, atol=1e-12)
    (y * y * y).sum().backward()
    (t * t * t).sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-7, atol=1e-9)
    ours.zero_grad(set_to_none=False)
    assert all(not p.grad.numpy().any() for p in ours.parameters())
    ours.zero_grad()
    assert all(p.grad is None for p in ours.parameters())


# ---- registering -----------------------------------------------------------------------------------------------------
def test_registered_names() -> None:
    m = nn.Module()
    m.register_buffer("kept", Tensor([1.0]))
    m.register_buffer("lost", Tensor([2.0]), persistent=False)
    m.register_buffer("absent", None)
    m.register_parameter("weight", nn.Parameter([3.0]))
    m.add_module("act", nn.ReLU())
    outer = nn.Sequential(m)
    assert list(outer.state_dict()) == ["0.weight", "0.kept"]
    assert [n for n, _ in outer.named_buffers()] == ["0.kept", "0.lost"]
    assert [n for n, _ in outer.named_parameters()] == ["0.weight"]
    outer.requires_grad_(False).requires_grad_()
    assert [n for n, _ in outer.named_parameters()] == ["0.weight"]
    outer.load_state_dict({"0.kept": np.array([5.0], np.float32), "0.weight": np.array([6.0], np.float32)})
    assert m.kept.item() == 5.0 and m.lost.item() == 2.0
    assert outer.half().get_submodule("0").lost.dtype.name == "float16"
    m.register_buffer("lost", Tensor([2.0]))
    assert "0.lost" in outer.state_dict()
    assert nn.Module.buffer_names == ()
    for name in ("", "a.b", "forward", 3):
        with pytest.raises(ArgumentError, match="register_buffer: name"):
            m.register_buffer(name, Tensor([1.0]))
    for call in (lambda: m.register_parameter("w", 1.0), lambda: m.register_module("w", Tensor.relu)):
        with pytest.raises(DTypeError):
            call()


def test_a_module_that_is_set_on_a_container_is_a_layer() -> None:
    """`add_module` and `setattr` on a Sequential, ModuleList or ModuleDict do what they do in PyTorch."""

    def built(lib: Any) -> list[Any]:
        nn = lib.nn

        class Block(nn.Sequential):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.act = nn.Linear(2, 3, bias=False), nn.ReLU()

        plain = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        plain.add_module("2", nn.Linear(3, 1))
        setattr(plain, "0", nn.Linear(2, 3, bias=False))
        plain.last = nn.Linear(1, 4, bias=False)
        named = nn.Sequential()
        named.add_module("a", nn.Linear(2, 3))
        named.add_module("b", nn.Linear(3, 5))
        rows = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
        setattr(rows, "1", nn.Linear(2, 7))
        table = nn.ModuleDict({"a": nn.Linear(1, 1)})
        table.b = nn.Linear(1, 2)
        x = lib.ones(1, 2)
        shapes = [tuple(m(x).shape) for m in (plain, named, Block(), getattr(plain, "0"), rows[1])]
        return [
            *shapes,
            len(plain),
            len(rows),
            list(table),
            *(list(m.state_dict()) for m in (plain, named, rows, table)),
        ]

    assert built(monolect) == built(torch)


def test_names_and_parameters_are_in_the_order_of_torch() -> None:
    def names(lib: Any) -> list[Any]:
        class Outer(lib.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner, self.norm = lib.nn.Linear(1, 1), lib.nn.LayerNorm(1)
                self.register_buffer("scale", lib.ones(1))
                self.weight = lib.nn.Parameter(lib.ones(1))

        outer = Outer()
        kept = outer.load_state_dict({"scale": lib.ones(1), "new": lib.ones(1)}, strict=False)
        return [list(outer.state_dict()), [n for n, _ in outer.named_parameters()], *map(list, kept)]

    assert names(monolect) == names(torch)


def test_next_of_parameters_is_the_first() -> None:
    layer = nn.Linear(2, 1)
    assert next(layer.parameters()) is layer.weight and next(iter(layer.parameters())) is layer.weight
    both = layer.parameters()
    assert [next(both), next(both)][1] is layer.bias and len(both) == 2
    with pytest.raises(StopIteration):
        next(both)
    assert layer.to("cpu", non_blocking=True) is layer and Tensor([1.0]).to("cpu", non_blocking=True).tolist() == [1.0]


def test_absent_names_say_what_to_use() -> None:
    for absent, words in (
        (lambda: monolect.autograd.backward, "retain_graph=True"),
        (lambda: monolect.autograd.Function, "gradient="),
        (lambda: monolect.device("cpu"), "a device is a str"),
        (lambda: Tensor([1.0]).grad_fn, "monolect explain"),
    ):
        with pytest.raises(AttributeError, match=words):
            absent()


def test_parameters() -> None:
    p = nn.Parameter(np.ones(3, np.float32))
    assert isinstance(p, nn.Parameter) and isinstance(p, Tensor) and p.requires_grad
    assert not isinstance(p * 2, nn.Parameter) and isinstance(nn.Parameter([1.0], requires_grad=False), nn.Parameter)
    assert not isinstance(Tensor([1.0]), nn.Parameter)
    with pytest.raises(GradientError):
        nn.Parameter([1, 2])


# ---- hooks -----------------------------------------------------------------------------------------------------------
def test_hooks_run_in_order_and_replace_values() -> None:
    seen: list[str] = []
    out = []
    for library, x in ((nn, Tensor([1.0])), (torch.nn, torch.tensor([1.0]))):
        m = library.Identity()
        m.register_forward_pre_hook(lambda m, args: seen.append("pre"))
        m.register_forward_pre_hook(lambda m, args: args[0] + 1, prepend=True)
        last = m.register_forward_hook(lambda m, args, y: y * 10)
        m.register_forward_hook(lambda m, args, kwargs, y: y + len(kwargs), with_kwargs=True)
        first, second = m(x).item(), None
        last.remove()
        last.remove()
        second = m(x).item()
        out.append((first, second))
    assert out == [(20.0, 2.0)] * 2 and seen == ["pre"] * 4
    m = nn.Linear(1, 1)
    m.register_forward_pre_hook(lambda m, args, kwargs: (args, kwargs | {"x": Tensor([[2.0]])}), with_kwargs=True)
    assert m(x=Tensor([[0.0]])).item() == nn.Sequential(nn.Linear(1, 1))[0].forward.__func__(m, Tensor([[2.0]])).item()
    assert list(m.state_dict()) == ["weight", "bias"] and len(list(m.modules())) == 1
    with pytest.raises(DTypeError, match="hook"):
        m.register_forward_hook(3)


def test_hooks_of_captured_steps_and_of_copies() -> None:
    m = nn.Linear(2, 2)
    plain = m(Tensor.ones(3, 2)).sum().item()
    hook = m.register_forward_hook(lambda m, args, y: y * 2)
    step = jit(lambda x: m(x).sum())
    assert [step(Tensor.ones(3, 2)).item() for _ in range(3)] == [2 * plain] * 3
    n = copy.deepcopy(m)
    hook.remove()
    assert step(Tensor.ones(3, 2)).item() == plain and n(Tensor.ones(3, 2)).sum().item() == 2 * plain
    assert n.weight is not m.weight


# ---- moves -----------------------------------------------------------------------------------------------------------
def test_moves_to_dtypes_and_devices() -> None:
    m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = m.parameters()
    m(Tensor.ones(3, 2)).sum().backward()
    assert m.double() is m and m[0].weight is before[0]
    assert [t.dtype.name for t in m.state_dict().values()] == ["float64"] * 6 + ["int64"]
    assert all(p.grad is None and p.requires_grad for p in m.parameters())
    m(Tensor.ones(3, 2, dtype="float64")).sum().backward()
    assert m[0].weight.grad.dtype.name == "float64"
    assert m.bfloat16()[0].weight.dtype.name == "bfloat16" and m.float()[0].weight.dtype.name == "float32"
    assert m.to("python", "float16")[0].weight.device == "python"
    assert m.to(Tensor([1.0]))[0].weight.device == "cpu" and m[0].weight.dtype.name == "float32"
    assert m.to(device="python").cpu()[1].running_mean.device == "cpu"
    with pytest.raises(DTypeError, match=r"Module\.to"):
        m.to("int32")


def test_layers_are_made_in_a_dtype_and_on_a_device() -> None:
    made = {"dtype": "float64", "device": "python"}
    layers = [
        nn.Linear(2, 2, **made), nn.Bilinear(2, 2, 2, **made), nn.Conv1d(2, 2, 1, **made), nn.BatchNorm1d(2, **made),
        nn.ConvTranspose2d(2, 2, 1, **made), nn.InstanceNorm2d(2, affine=True, track_running_stats=True, **made),
        nn.LayerNorm(2, **made), nn.RMSNorm(2, **made), nn.GroupNorm(1, 2, **made), nn.PReLU(**made),
        nn.Embedding(3, 2, 1, **made), nn.EmbeddingBag(3, 2, **made), nn.LSTMCell(2, 2, **made),
        nn.GRUCell(2, 2, **made), nn.RNNCell(2, 2, **made), nn.MultiheadAttention(2, 1, add_bias_kv=True, **made),
        nn.TransformerEncoderLayer(2, 1, 2, **made), nn.TransformerDecoderLayer(2, 1, 2, **made),
        nn.Transformer(2, 1, 1, 1, 2, **made), nn.GroupedQueryAttention(4, 2, 1, **made),
        nn.LinearCrossEntropyLoss(2, 2, **made),
    ]  # fmt: skip
    for m in layers:
        for name, t in m.state_dict().items():
            assert t.device == "python", (type(m).__name__, name)
            assert t.dtype.name == ("int64" if name == "num_batches_tracked" else "float64")


def test_apply_and_summary() -> None:
    seen: list[str] = []
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU()))
    assert model.apply(lambda m: seen.append(type(m).__name__)) is model
    assert seen == ["Linear", "ReLU", "Sequential", "Sequential"]
    lines = model.summary().splitlines()
    assert lines[2].split() == ["0", "Linear", "9", "weight", "(3,", "2),", "bias", "(3,)"] and lines[-1].split() == [
        "total",
        "9",
    ]


# ---- containers ------------------------------------------------------------------------------------------------------
def test_lists_of_modules() -> None:
    m = nn.Sequential(nn.ReLU(), nn.Tanh())
    m.insert(1, nn.Sigmoid()).extend([nn.Identity()])
    assert [type(x).__name__ for x in m] == ["ReLU", "Sigmoid", "Tanh", "Identity"]
    assert type(m.pop(1)).__name__ == "Sigmoid" and len(m) == 3
    m[0] = nn.GELU()
    del m[-1]
    m += [nn.SiLU()]
    assert [type(x).__name__ for x in m + [nn.ELU()]] == ["GELU", "Tanh", "SiLU", "ELU"]
    assert isinstance(nn.ModuleList([nn.ReLU()])[:1], nn.ModuleList)
    for bad in (lambda: m[3], lambda: m.pop(-4), lambda: m.__setitem__(3, nn.ReLU())):
        with pytest.raises(AxisError, match="layer"):
            bad()
    with pytest.raises(DTypeError, match="a layer"):
        m[0] = 3


def test_sequential_with_names() -> None:
    m = nn.Sequential({"fc": nn.Linear(2, 3), "act": nn.ReLU()})
    assert list(m.state_dict()) == ["fc.weight", "fc.bias"] and m.act is m[1] and m[:1].fc is m.fc
    m.append(nn.Linear(3, 1))
    assert list(m.state_dict())[-1] == "2.bias" and m(Tensor.ones(1, 2)).shape == (1, 1)
    del m[0]
    assert [n for n, _ in m.named_children()] == ["act", "2"]
    assert not hasattr(m, "fc") and "fc" in repr(nn.Sequential({"fc": nn.ReLU()}))
    assert copy.deepcopy(m).act is not m.act
    del m[:1]
    assert [n for n, _ in m.named_children()] == ["2"]


def test_dicts_of_modules_and_parameters() -> None:
    m = nn.ModuleDict([("a", nn.ReLU()), ("b", nn.Linear(2, 2))])
    assert "a" in m and list(m) == ["a", "b"] and len(m) == 2 and isinstance(m.pop("a"), nn.ReLU)
    m.update({"c": nn.Tanh()})
    assert [k for k, _ in m.items()] == ["b", "c"] and list(m.state_dict()) == ["b.weight", "b.bias"]
    with pytest.raises(ArgumentError, match="ModuleDict: name"):
        m["z"]
    with pytest.raises(ArgumentError, match="ModuleDict: name"):
        m["a.b"] = nn.ReLU()
    with pytest.raises(DTypeError, match="ModuleDict"):
        m["z"] = 1
    with pytest.raises(NotImplementedError, match="ModuleDict"):
        m(Tensor([1.0]))
    m.clear()
    assert not m.parameters()
    p = nn.ParameterDict({"x": Tensor([1.0]), "y": nn.Parameter([2.0])})
    assert len(p.parameters()) == 2 and list(p.keys()) == ["x", "y"] and len(list(p.values())) == 2
    q = nn.ParameterList([Tensor([1.0]), [2.0]]).append(Tensor([1, 2]))
    assert len(q.parameters()) == 2 and [t.shape for t in q] == [(1,), (1,), (2,)]
    q[0] = Tensor([7.0])
    assert q[-3].item() == 7.0 and q[0].requires_grad
    with pytest.raises(AxisError, match="ParameterList"):
        q[3]
    with pytest.raises(DTypeError, match="ParameterList"):
        q.append("text")


def _containers(lib: Any, tensor: Any) -> list[Any]:
    """Return containers that have a parameter and a buffer of their own, in either library."""
    made = [
        lib.Sequential(lib.Linear(2, 2), lib.ReLU()), lib.ModuleList([lib.Linear(2, 2)]),
        lib.ModuleDict({"a": lib.Linear(2, 2)}), lib.ParameterList([lib.Parameter(tensor([1.0]))]),
        lib.ParameterDict({"a": lib.Parameter(tensor([1.0]))}),
    ]  # fmt: skip
    for c in made:
        c.scale = lib.Parameter(tensor([2.0]))
        c.register_buffer("seen", tensor([3.0]))
    return made


def test_tensors_of_a_container_itself_are_in_its_state() -> None:
    """A subclass of Sequential that has a parameter is trained and saved with it."""
    for ours, theirs in zip(_containers(nn, Tensor), _containers(torch.nn, torch.tensor), strict=True):
        names = {n for n, _ in theirs.named_parameters()}
        assert {n for n, _ in ours.named_parameters()} == names and [n for n, _ in ours.named_buffers()] == ["seen"]
        assert set(ours.state_dict()) == set(theirs.state_dict())
        assert len(ours) == len(theirs) and "scale" not in repr(ours)
        ours.load_state_dict({n: t.detach().numpy() for n, t in theirs.state_dict().items()})
        again = copy.deepcopy(ours)
        again.scale.detach().fill_(5.0)
        assert ours.scale.tolist() == [2.0] and again.state_dict()["scale"].tolist() == [5.0]
    named = nn.Sequential({"first": nn.Linear(1, 1, bias=False)})
    named.scale = nn.Parameter(Tensor([2.0]))
    assert list(named.state_dict()) == ["scale", "first.weight"] and named.first is named[0]


REFUSED: list[tuple[Any, Any, str]] = [
    (lambda: nn.ZeroPad2d((1, 2)), ArgumentError, "padding"),
    (lambda: nn.Conv1d(1, 1, 1, padding_mode="mirror"), ArgumentError, "padding_mode"),
    (lambda: nn.ConvTranspose1d(1, 1, 1, padding_mode="reflect"), ArgumentError, "padding_mode"),
    (lambda: nn.ConvTranspose1d(1, 1, 2, 2)(Tensor.ones(1, 1, 4), (11,)), ArgumentError, "output_size"),
    (lambda: nn.RNNCell(1, 1, nonlinearity="gelu"), ArgumentError, "nonlinearity"),
    (lambda: nn.GRUCell(2, 1)(Tensor.ones(3)), ShapeError, "GRUCell"),
    (lambda: nn.Embedding(3, 2, sparse=True), ArgumentError, "sparse"),
    (lambda: nn.EmbeddingBag(3, 2, padding_idx=3), ArgumentError, "padding_idx"),
    (lambda: nn.Embedding(3, 2, _weight=Tensor.ones(2, 2)), ShapeError, "weight"),
    (lambda: nn.FractionalMaxPool2d(2), ArgumentError, "output_size"),
    (lambda: nn.Softmax2d()(Tensor([1.0])), ShapeError, "Softmax2d"),
    (lambda: nn.RotaryEmbedding(3), ArgumentError, "even"),
    (lambda: nn.RotaryEmbedding(4)(Tensor.ones(2, 3)), ShapeError, "RotaryEmbedding"),
    (lambda: nn.GroupedQueryAttention(8, 4, 3), ArgumentError, "heads"),
    (lambda: nn.TransformerEncoderLayer(4, 2, activation="tanh"), ArgumentError, "activation"),
    (lambda: nn.Transformer(4, 2, 1, 1, 4)(Tensor.ones(2, 1, 4), Tensor.ones(2, 1, 3)), ShapeError, "Transformer"),
    (lambda: nn.InstanceNorm1d(2)(Tensor.ones(2)), ShapeError, "InstanceNorm1d: rank"),
    (lambda: nn.ReflectionPad1d(1)(Tensor.ones(3)), ShapeError, "ReflectionPad1d: rank"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "match"), REFUSED, ids=[f"{i}: {r[2]}" for i, r in enumerate(REFUSED)])
def test_refused(call: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_gradients_that_are_not_finite_are_set_to_zero() -> None:
    model = nn.Linear(1, 1)
    model.weight.grad = Tensor([[float("inf")]])
    model.zero_grad(set_to_none=False)
    assert model.weight.grad.tolist() == [[0.0]]


def test_a_tensor_that_forward_keeps_is_no_state() -> None:
    def program(lib: Any, jit: Any = lambda f: f) -> list[Any]:
        class Attention(lib.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.query = lib.nn.Linear(3, 3)
                self.weights = None
                self.register_buffer("n_calls", lib.zeros(1))

            def forward(self, x: Any) -> Any:
                self.weights = self.query(x).softmax(-1)
                self.largest = self.weights.amax()
                if self.training:
                    self.n_calls += 1
                if not hasattr(self, "first"):
                    self.register_buffer("first", lib.ones(2))
                return self.weights @ x.mT

        model = lib.nn.Sequential(Attention())
        call = jit(model)
        for rows in (2, 2, 4, 4):
            call(lib.ones(rows, 3))
        saved = copy.deepcopy(model.state_dict())
        call(lib.ones(5, 3))
        missing, unexpected = model.load_state_dict(saved)
        return [list(saved), list(missing), list(unexpected), [n for n, _ in model.named_parameters()]]

    assert program(monolect) == program(torch)

    class Own(nn.Module):
        def __init__(self) -> None:
            self.table = Tensor([1.0])

    class Builds(nn.Module):
        def forward(self) -> None:
            self.own = Own()

    builds = Builds()
    builds()
    assert list(builds.state_dict()) == ["own.table"]  # `own` was made in a call, but was not called itself
    other = nn.Sequential(nn.Linear(2, 2))
    other.scale = Tensor([2.0])  # set outside of a call: state, as any tensor of an object
    assert "scale" in other.state_dict()
