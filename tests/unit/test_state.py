"""State dicts and files: what does not fit, what is damaged, and that nothing half-done remains."""

import gzip
import os
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from monolect import nn
from monolect.base.errors import ArgumentError, DTypeError, FileFormatError, MissingExtraError, ShapeError
from monolect.interop.safetensors import safe_load, safe_save
from monolect.nn.datasets import load_digits, mnist_from_folder, read_idx
from monolect.nn.state import get_parameters, get_state_dict, load_state_dict
from monolect.tensor.tensor import Tensor


class Plain:
    """A model that is no Module."""

    def __init__(self) -> None:
        self.layers = [nn.Linear(2, 3), (Tensor([1.0]), {"deep": Tensor([2.0], requires_grad=True)})]
        self.name = "plain"
        self.itself = self


# ---- by name ---------------------------------------------------------------------------------------------------------
def test_names() -> None:
    model = Plain()
    assert list(get_state_dict(model)) == ["layers.0.weight", "layers.0.bias", "layers.1.0", "layers.1.1.deep"]
    assert list(get_state_dict(Tensor([1.0]), "x")) == ["x"]
    assert len(get_parameters(model)) == 3
    assert len(get_parameters([model.layers[0], model.layers[0]])) == 2


def test_loading_checks_everything_first() -> None:
    model = nn.Linear(2, 2)
    before = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    with pytest.raises(ArgumentError, match="names differ") as e:
        model.load_state_dict({"weight": np.zeros((2, 2), np.float32), "gain": np.zeros(2, np.float32)})
    assert "missing: bias; not expected: gain" in str(e.value)
    with pytest.raises(ShapeError, match="state dict: bias") as e2:
        model.load_state_dict({"weight": np.zeros((2, 2), np.float32), "bias": np.zeros(3, np.float32)})
    assert "expected: (2,)" in str(e2.value) and "found: (3,)" in str(e2.value)
    with pytest.raises(DTypeError, match="state dict: bias"):
        model.load_state_dict({"weight": np.zeros((2, 2), np.float32), "bias": np.zeros(2)})
    for k, v in model.state_dict().items():
        assert (v.numpy() == before[k]).all()
    model.load_state_dict({"bias": np.ones(2, np.float32), "more": np.ones(1)}, strict=False)
    assert model.bias.tolist() == [1.0, 1.0] and (model.weight.numpy() == before["weight"]).all()


def test_loading_leaves_the_source_alone() -> None:
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    load_state_dict(b, a.state_dict())
    assert b.weight.tolist() == a.weight.tolist()
    (b.weight.sum() + b.bias.sum()).backward()
    nn.optim.SGD(b.parameters(), lr=1.0).step()
    assert b.weight.tolist() != a.weight.tolist()


# ---- safetensors -----------------------------------------------------------------------------------------------------
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("dtype", ["float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"])
def test_round_trip_of_storage_dtypes(tmp_path: Path, dtype: str) -> None:
    t = Tensor([1.0, 2.0, 0.5, 4.0]).cast(dtype).reshape(2, 2)
    safe_save({"w": t}, tmp_path / "w.safetensors")
    found = safe_load(tmp_path / "w.safetensors")["w"]
    assert found.dtype is t.dtype and found.tolist() == [[1.0, 2.0], [0.5, 4.0]]


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    t = Tensor([1.0, 2.0]).cast("int4")
    for value in (t, t.numpy()):
        with pytest.raises(DTypeError, match="safe_save"):
            safe_save({"w": value}, tmp_path / "w.safetensors")
    with pytest.raises(ArgumentError, match="safe_save: names"):
        safe_save({"__metadata__": Tensor([1.0])}, tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())


def test_round_trip_of_every_dtype(tmp_path: Path) -> None:
    state = {d: Tensor(np.arange(6).reshape(2, 3) % 2).cast(d) for d in DTYPES} | {"scalar": Tensor(2.5)}
    path = tmp_path / "m.safetensors"
    safe_save(state, path)
    loaded = safe_load(path)
    assert set(loaded) == set(state)
    for k, t in loaded.items():
        assert t.dtype is state[k].dtype and t.shape == state[k].shape
        assert t.tolist() == state[k].tolist()


def test_pytorch_reads_and_writes_the_same_files(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    safe_save({"x": Tensor(x).permute(1, 0), "h": Tensor(x).bfloat16()}, path)
    theirs = safetensors.torch.load_file(path)
    assert (theirs["x"].numpy() == x.T).all() and theirs["h"].dtype == torch.bfloat16
    safetensors.torch.save_file({"y": torch.tensor(x).bfloat16()}, path)
    assert safe_load(path)["y"].float().tolist() == torch.tensor(x).bfloat16().float().tolist()


def test_model_through_a_file(tmp_path: Path) -> None:
    make = lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2)).eval()  # noqa: E731
    a, b, x = make(), make(), Tensor.rand(2, 1, 4, 4)
    safe_save(a.state_dict(), tmp_path / "m.safetensors")
    assert a(x).tolist() != b(x).tolist()
    b.load_state_dict(safe_load(tmp_path / "m.safetensors"))
    assert a(x).tolist() == b(x).tolist()


@pytest.mark.parametrize("damage", ["empty", "truncated", "header", "text", "length"])
def test_damaged_files(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "m.safetensors"
    safe_save({"w": np.arange(1000, dtype=np.float32)}, path)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    path.write_bytes(
        {
            "empty": b"",
            "truncated": data[:-100],
            "header": data[:8] + b"}" + data[9:],
            "text": b"this is not a model" * 10,
            "length": (size + 10**6).to_bytes(8, "little") + data[8:],
        }[damage]
    )
    with pytest.raises(FileFormatError, match="not a whole safetensors file") as e:
        safe_load(path)
    assert "expected:" in str(e.value) and "found:" in str(e.value)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.safetensors"
    safe_save({"w": np.ones(3, np.float32)}, path)
    old = path.read_bytes()

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        safe_save({"w": np.zeros(3, np.float32)}, path)
    with pytest.raises(ArgumentError, match="safe_save: w"):
        safe_save({"w": "not a tensor"}, path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["m.safetensors"]


def test_missing_files_and_a_missing_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError):
        safe_load(tmp_path / "none.safetensors")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingExtraError, match=r"monolect\[safetensors\]"):
        safe_save({"w": np.ones(1)}, tmp_path / "m")


# ---- data sets -------------------------------------------------------------------------------------------------------
def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits as reference

    images, labels = load_digits()
    x, y = reference(return_X_y=True)
    assert (images.reshape(-1, 64) * 16 == x).all() and (labels == y).all()
    assert images.dtype == np.float32 and labels.dtype == np.int64


def idx(a: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{a.ndim}I", 0, 0, 8, a.ndim, *a.shape) + a.tobytes()


@pytest.fixture
def mnist(tmp_path: Path) -> Any:
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28)).astype(np.uint8)
    labels = np.arange(5, dtype=np.uint8)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(labels))
    (tmp_path / "t10k-images.idx3-ubyte.gz").write_bytes(gzip.compress(idx(images[:2])))
    (tmp_path / "t10k-labels.idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels[:2])))
    return tmp_path, images, labels


def test_mnist(mnist: Any) -> None:
    folder, images, labels = mnist
    x, y = mnist_from_folder(folder)
    assert x.shape == (5, 1, 28, 28) and (x[:, 0] * 255 == images).all() and (y == labels).all()
    x, y = mnist_from_folder(folder, "test")
    assert x.shape == (2, 1, 28, 28) and (y == labels[:2]).all()


def test_damaged_mnist(mnist: Any) -> None:
    folder, images, _ = mnist
    path = folder / "train-images-idx3-ubyte"
    for data in (path.read_bytes()[:-1], path.read_bytes() + b"x", path.read_bytes()[:9], b"\x01\x02\x03", b""):
        path.write_bytes(data)
        with pytest.raises(FileFormatError) as e:
            read_idx(path)
        assert "expected:" in str(e.value) and "found:" in str(e.value)
        path.write_bytes(idx(images))
    packed = folder / "t10k-images.idx3-ubyte.gz"
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(FileFormatError, match="damaged gzip"):
        mnist_from_folder(folder, "test")
    path.write_bytes(idx(images[:3]))
    with pytest.raises(FileFormatError, match="MNIST in"):
        mnist_from_folder(folder)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="train-images"):
        mnist_from_folder(folder)
