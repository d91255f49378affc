"""`monolect.save` and `load`: nested state dicts come back equal; another file is an error that says what to do."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import ArgumentError, DTypeError, FileFormatError, Tensor, nn, optim
from monolect.interop.nested import STRUCTURE
from monolect.interop.safetensors import safe_load, safe_save
from monolect.optim import lr_scheduler


def plain(x: Any) -> Any:
    """`x` with (dtype, values) for its tensors and arrays."""
    if isinstance(x, Tensor | np.ndarray):
        a = x.numpy() if isinstance(x, Tensor) else x
        return str(a.dtype), a.shape, a.tobytes()
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return type(x)(map(plain, x)) if isinstance(x, list | tuple) else x


NESTED: dict[str, Any] = {
    "a tensor": Tensor([1.0, 2.0]),
    "an array": np.arange(6, dtype=np.int16).reshape(2, 3),
    "a number": 3,
    "nothing": {},
    "shapes": [Tensor(2.5), Tensor.zeros(0, 3), Tensor.ones(1, 1, 2), Tensor(True)],
    "lazy, view, leaf": (Tensor([1.0]) * 2, Tensor([[1, 2], [3, 4]])[:, 1], Tensor([1.0], requires_grad=True)),
    "plain values": {"x": [1, -(2**70), 0.1, float("inf"), -0.0, True, None, "\u00e9\n"], "empty": [[], (), {}]},
    "keys": {3: Tensor([1]), 2.5: 1, True: 2, None: 3, "": Tensor([4])},
    "tuples": ((1, (Tensor([2]),)), [(3,)]),
    "names with dots": {"a.b": Tensor([1]), "a": {"b": Tensor([2])}, "a.b'": Tensor([3])},
    "lookalikes": [{"tensor": "x"}, {"dict": [[1, 2]]}, {"tuple": [1]}],
    "bfloat16 and others": [
        Tensor([1.5, -2.0]).cast(d) for d in ("bfloat16", "float16", "fp8e4m3", "float8_e8m0fnu", "uint16")
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", NESTED)
def test_what_is_saved_comes_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / "saved"
    monolect.save(NESTED[name], path)
    found = monolect.load(path)
    assert plain(found) == plain(NESTED[name])
    if isinstance(found, dict):
        assert list(found) == list(NESTED[name])
    file = io.BytesIO()
    monolect.save(NESTED[name], file)
    assert file.getvalue() == path.read_bytes()
    file.seek(0)
    assert plain(monolect.load(file, weights_only=True)) == plain(found)


def test_numbers_of_numpy_become_those_of_python(tmp_path: Path) -> None:
    monolect.save({np.int64(3): np.float32(1.5), "b": np.bool_(True)}, tmp_path / "x")
    assert monolect.load(str(tmp_path / "x")) == {3: 1.5, "b": True}


def test_training_goes_on_from_a_file(tmp_path: Path) -> None:
    def made() -> tuple[nn.Module, Any, Any]:
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        optimizer = optim.Adam(model.parameters(), lr=0.1)
        return model, optimizer, lr_scheduler.StepLR(optimizer, 2)

    def step(model: Any, optimizer: Any, schedule: Any) -> float:
        loss = (model(Tensor(np.arange(12.0, dtype=np.float32).reshape(4, 3))) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.item()

    first = made()
    for _ in range(3):
        step(*first)
    parts = ("model", "optimizer", "schedule")
    monolect.save({n: x.state_dict() for n, x in zip(parts, first, strict=True)}, tmp_path / "checkpoint")
    second, found = made(), monolect.load(tmp_path / "checkpoint")
    for n, x in zip(parts, second, strict=True):
        x.load_state_dict(found[n])
    # operands of memory made in another order may be added in another order
    np.testing.assert_allclose([step(*first) for _ in range(3)], [step(*second) for _ in range(3)], rtol=1e-5)


def test_the_state_dict_of_an_optimizer_of_pytorch(tmp_path: Path) -> None:
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    theirs = torch.optim.SGD([w], lr=0.25, momentum=0.5)
    (w * w).sum().backward()
    theirs.step()
    state = theirs.state_dict()
    state["state"] = {k: {n: v.numpy() for n, v in d.items()} for k, d in state["state"].items()}
    monolect.save(state, tmp_path / "x")
    found = monolect.load(tmp_path / "x")
    assert found["param_groups"] == state["param_groups"] and plain(found) == plain(state)
    ours = optim.SGD([Tensor(w.detach().numpy().copy(), requires_grad=True)], lr=1.0, momentum=0.5)
    ours.load_state_dict(found)
    assert ours.lr == 0.25


def test_other_libraries_read_the_tensors_and_their_files_are_read(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    path = tmp_path / "x"
    monolect.save({"model": {"0.weight": Tensor([1.0])}, "steps": [Tensor([2]), 7]}, path)
    assert sorted(load_file(path)) == sorted(safe_load(path)) == ["model.0.weight", "steps.0"]
    save_file({"w": np.ones(2)}, path, {"format": "np"})
    assert monolect.load(path, "python")["w"].device == "python" and list(monolect.load(path)) == ["w"]
    safe_save({"w": Tensor([1.0])}, path)
    assert monolect.load(path)["w"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("obj", "error", "text"),
    [
        (nn.Linear(1, 1), ArgumentError, "state_dict"), ({"a": [object()]}, ArgumentError, "a.0"),
        ({"a": {(1, 2): 3}}, ArgumentError, "a key of a"), ([{1, 2}], ArgumentError, "found: set"),
        (b"bytes", ArgumentError, "found: bytes"), ([Tensor([1]).cast("int4")], DTypeError, "int4"),
        ({"a": np.array(["text"])}, DTypeError, "the format lacks"),
    ],
)  # fmt: skip
def test_what_cannot_be_saved_leaves_the_old_file(obj: Any, error: type, text: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    monolect.save([1], path)
    with pytest.raises(error, match=text):
        monolect.save(obj, path)
    assert monolect.load(path) == [1] and list(tmp_path.iterdir()) == [path]


def test_a_list_that_holds_itself_is_an_error(tmp_path: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ArgumentError, match="save"):
        monolect.save(loop, tmp_path / "x")


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_file_of_torch_save_is_refused_with_what_to_do(is_zip: bool, tmp_path: Path) -> None:
    path = tmp_path / "x"
    torch.save({"w": torch.ones(2)}, path, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(FileFormatError, match="torch.load") as caught:
        monolect.load(path)
    assert ("zip" if is_zip else "pickle") in str(caught.value.found)
    state = {n: t.numpy() for n, t in torch.load(path, weights_only=True).items()}
    monolect.save(state, path)
    assert monolect.load(path)["w"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("text", [
    "", "{", "7 8", '{"tensor":"absent"}', '{"tensor":[1]}', '{"dict":3}', '{"dict":[[1]]}', '{"dict":[[[1],2]]}',
    '{"other":1}', "{}", '{"tensor":"w","dict":[]}', '{"tuple":3}', "[" * 100000,
])  # fmt: skip
def test_wrong_files(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    safe_save({"w": Tensor([1.0])}, path, {STRUCTURE: text})
    with pytest.raises(FileFormatError, match="cannot be read"):
        monolect.load(path)
    data = path.read_bytes()
    for wrong in (b"", data[:20], data[:-1], data + b"x", b"text of another kind"):
        with pytest.raises(FileFormatError, match="safetensors"):
            monolect.load(io.BytesIO(wrong))
    with pytest.raises(FileNotFoundError):
        monolect.load(tmp_path / "absent")


def test_a_nan_and_the_text_of_the_structure(tmp_path: Path) -> None:
    path = tmp_path / "x"
    monolect.save({"a": float("nan"), "w": Tensor([1.0])}, path)
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["__metadata__"] == {STRUCTURE: '{"dict":[["a",NaN],["w",{"tensor":"w"}]]}'}
    assert np.isnan(monolect.load(path)["a"])
