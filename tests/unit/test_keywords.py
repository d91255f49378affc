"""Keywords of functions and methods are those of PyTorch and do the same; each missing one has a reason here."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import ArgumentError, GradientError, Tensor, dtypes
from monolect.cli.surface.torch_names import NAMES
from monolect.nn import functional as F
from tests.unit.torch_keywords import SPACES, keywords

OURS: dict[str, Any] = {
    "Tensor": Tensor, "Tensor in place": Tensor, "monolect": monolect, "nn.functional": F,
    "special": monolect.special, "linalg": monolect.linalg,
}  # fmt: skip
# Reason -> keywords that no function here takes, or pairs "function.keyword".
WITHOUT: dict[str, str] = {
    "a tensor has no memory format, layout or pinned memory": "memory_format layout pin_memory",
    "values are computed when they are read, so nothing blocks": "non_blocking",
    "deprecated in PyTorch: reduction= says the same": "size_average reduce _stacklevel",
    "gradients are dense": "sparse sparse_grad",
    "what makes a tensor has no tensor to write to; use copy_": (
        "arange.out empty.out eye.out full.out linspace.out normal.out ones.out rand.out randint.out randn.out"
        " randperm.out zeros.out logspace.out"
    ),
    "integers have no gradient": "randint.requires_grad randint_like.requires_grad randperm.requires_grad",
    "`from` is a word of Python, which PyTorch takes in a dict alone": "random_.from uniform_.from",
    "Python's name of the overload; the argument is positional": (
        "isin.element isin.test_element to.tensor tensor_split.tensor_indices_or_sections view.size where.condition"
        " split.split_size result_type.scalar result_type.scalar1 result_type.scalar2"
    ),
    "PyTorch's documentation has it, PyTorch does not": (
        "matrix_power.A nonzero_static.dtype index_copy.tensor2 index_copy_.tensor"
    ),
    "another name of dim0 and dim1, those of transpose": (
        "swapaxes.axis0 swapaxes.axis1 swapaxes_.axis0 swapaxes_.axis1"
    ),
    "torch.embedding_bag has the operands in the other order; use nn.functional.embedding_bag": "embedding_bag.indices",
    "a file is mapped as bytes": (
        "from_file.device from_file.dtype from_file.filename from_file.shared from_file.size"
    ),
    "a file holds no pickles, and is read as a whole": (
        "save.pickle_module save.pickle_protocol save._use_new_zipfile_serialization load.pickle_module load.mmap"
        " save._disable_byteorder_record"
    ),
    "tuning of one implementation": "linear_cross_entropy.options",
}  # fmt: skip


def _missing() -> dict[str, list[str]]:
    """Return "function.keyword" -> namespaces of the keywords of PyTorch that the function of the same name lacks."""
    out: dict[str, list[str]] = {}
    for space in SPACES:
        for name in NAMES[space]:
            f = getattr(OURS[space], name, None)
            if callable(f) and not isinstance(f, type):
                for word in keywords(space, name) - {*inspect.signature(f).parameters}:
                    out.setdefault(f"{name}.{word}", []).append(space)
    return out


def test_each_keyword_of_pytorch_is_taken_or_has_a_reason() -> None:
    missing, known = _missing(), {w for text in WITHOUT.values() for w in text.split()}
    assert sorted(k for k in missing if k not in known and k.partition(".")[2] not in known) == []
    used = {*missing} | {k.partition(".")[2] for k in missing}
    assert sorted(known - used) == []  # no reason is left over


def test_the_keywords_of_pytorch_are_found() -> None:
    """The sources of the comparison see overloads, builtins, docstrings and functions of Python."""
    assert {"dim", "keepdim", "dtype", "out"} <= keywords("monolect", "sum")
    assert {"dim", "keepdim", "out"} <= keywords("monolect", "argmax") and "correction" in keywords("Tensor", "var")
    assert {"dim", "index", "src", "value", "reduce"} <= keywords("Tensor", "scatter")
    assert {"input", "p", "training", "inplace"} == keywords("nn.functional", "dropout")
    assert {"dims", "a", "b"} <= keywords("monolect", "tensordot") and "shifts" in keywords("Tensor", "roll")
    found = sum(len(keywords(space, n)) for space in SPACES for n in NAMES[space] if hasattr(OURS[space], n))
    assert found > 2000


INPLACE = [n for n in NAMES["nn.functional"] if "inplace" in keywords("nn.functional", n) and hasattr(F, n)]


@pytest.mark.parametrize("name", INPLACE)
def test_inplace_writes_to_the_input(name: str) -> None:
    f, values = getattr(F, name), np.array([[[[[-3.0, -0.5, 0.25, 4.0]]]]] * 3)
    values = values.reshape(
        {"dropout1d": (3, 2, 2), "dropout2d": (3, 1, 2, 2), "dropout3d": (3, 1, 1, 2, 2)}.get(name, (3, 4))
    )
    named = {"training": False} if "training" in inspect.signature(f).parameters else {}
    given = (0.5, -1.0) if name == "threshold" else ()
    x, t = Tensor(values.copy()), torch.tensor(values)
    view = x[1]
    assert f(x, *given, inplace=True, **named) is x
    getattr(torch.nn.functional, name)(t, *given, inplace=True, **named)
    np.testing.assert_allclose(x.numpy(), t.numpy(), rtol=1e-12)
    np.testing.assert_array_equal(view.numpy(), x.numpy()[1])
    with pytest.raises(GradientError, match=name):
        f(Tensor(values, requires_grad=True), *given, inplace=True, **named)
    assert f(Tensor(values), *given, **named).tolist() == x.tolist()


def test_likes_take_requires_grad() -> None:
    x = Tensor([1.0, 2.0])
    made = [x.zeros_like(requires_grad=True), x.full_like(3.0, requires_grad=True), x.new_ones(2, requires_grad=True)]
    made += [x.empty_like(requires_grad=True), x.rand_like(requires_grad=True), x.new_full((2,), 1, requires_grad=True)]
    made += [monolect.ones_like(x, requires_grad=True), monolect.randn_like(x, requires_grad=True)]
    made += [x.new_zeros(2, requires_grad=True), x.new_empty(2, requires_grad=True)]
    assert all(t.requires_grad for t in made) and not x.zeros_like().requires_grad
    _ = (made[1] * x).sum().backward()
    assert made[1].grad.tolist() == [1.0, 2.0]


X = np.array([[0.5, -2.0, 3.0], [1.5, 0.25, -1.0]])
Y = np.array([[1.0, 0.5, 2.0], [0.75, 0.5, 3.0]])
CALLS: dict[str, Any] = {  # functions of (library, tensor, tensor)
    "max of another": lambda lib, x, y: lib.max(x, other=y),
    "min of another": lambda lib, x, y: x.min(other=y),
    "norm": lambda lib, x, y: lib.norm(x, p=1, dim=1, dtype=y.dtype),
    "norm, narrow": lambda lib, x, y: x.float().norm(dtype=y.dtype),
    "std_mean": lambda lib, x, y: lib.std_mean(x, dim=1, unbiased=False, keepdim=True)[0],
    "var_mean": lambda lib, x, y: lib.var_mean(x, 1, False)[0],
    "rsub": lambda lib, x, y: lib.rsub(x, y, alpha=2),
    "softmin": lambda lib, x, y: lib.nn.functional.softmin(x.float(), dim=1, dtype=y.dtype),
    "concatenate": lambda lib, x, y: lib.concatenate((x, y), axis=1),
    "hsplit": lambda lib, x, y: lib.hsplit(x, indices=(1, 2))[1],
    "tensor_split": lambda lib, x, y: x.tensor_split(sections=2, dim=1)[0],
    "vsplit": lambda lib, x, y: x.vsplit(sections=2)[1],
    "scatter": lambda lib, x, y: x.scatter(1, (x > 1).long(), value=7.0),
    "scatter_": lambda lib, x, y: x.clone().scatter_(1, (x > 1).long(), value=7.0),
    "mse": lambda lib, x, y: lib.nn.functional.mse_loss(x, x + y, weight=y),
    "l1": lambda lib, x, y: lib.nn.functional.l1_loss(x, x * y, weight=y, reduction="sum"),
    "huber": lambda lib, x, y: lib.nn.functional.huber_loss(x, x * y, delta=0.5, weight=y),
    "tensordot": lambda lib, x, y: lib.tensordot(a=x, b=y, dims=2),
    "vecdot": lambda lib, x, y: lib.linalg.vecdot(x=x, y=y),
    "one_hot": lambda lib, x, y: lib.nn.functional.one_hot(input=(x > 1).long(), num_classes=2),
    "polynomial": lambda lib, x, y: lib.special.hermite_polynomial_h(x=x, n=3),
    "split": lambda lib, x, y: lib.split(tensor=x, split_size_or_sections=2, dim=1)[0],
    "to": lambda lib, x, y: (x > 0).to(y, copy=True),
    "view": lambda lib, x, y: x.view((x > 1).long().dtype),
    "numpy": lambda lib, x, y: lib.from_numpy(x.numpy(force=True)),
}


@pytest.mark.parametrize("name", CALLS)
def test_keywords_do_what_pytorchs_do(name: str) -> None:
    got, want = CALLS[name](monolect, Tensor(X), Tensor(Y)), CALLS[name](torch, torch.tensor(X), torch.tensor(Y))
    assert got.dtype.name == str(want.dtype).removeprefix("torch.")
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9)


def test_gradients_go_to_the_inputs_that_backward_names() -> None:
    a, b = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0], requires_grad=True)
    _ = (a * b).sum().backward(inputs=[a])
    assert a.grad.tolist() == [3.0, 4.0] and b.grad is None
    _ = (a * b).sum().backward(inputs=b)
    assert b.grad.tolist() == [1.0, 2.0] and a.grad.tolist() == [3.0, 4.0]
    with pytest.raises(GradientError, match="inputs"):
        (a * b).sum().backward(inputs=Tensor([1.0]))
    with pytest.raises(GradientError, match="reaches no leaf"):
        (a * 2).sum().backward(inputs=b)


def test_what_new_keywords_refuse() -> None:
    x = Tensor([[1.0, 2.0]])
    for call in (
        lambda: x.hsplit(2, sections=2),
        lambda: x.tensor_split(),
        lambda: x.scatter(0, Tensor([[0, 0]])),
        lambda: x.mse_loss(x, weight=2.0),
        lambda: x.to(x, copy=True).view(dtypes.int32, dtypes.int8),
    ):
        with pytest.raises(monolect.MonolectError):
            call()
    y = x.to(x, copy=True)
    y[0, 0] = 5.0
    assert x.tolist() == [[1.0, 2.0]] and x.to(x) is x
    with pytest.raises(ArgumentError):
        x.norm("nuc")
