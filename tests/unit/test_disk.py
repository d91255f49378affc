"""Files as tensors: mapped, sliced without being read, and refused with a reason when they cannot be."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from monolect import DeviceError, FileFormatError, IndexRangeError, JitError, ShapeError, Tensor, dtypes, jit
from monolect.backend.registry import Device


def test_slices_of_a_file(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 256, 4096, dtype=np.uint8)
    path = tmp_path / "bytes"
    data.tofile(path)
    t = Tensor.from_file(path)
    assert (t.device, t.shape, t.dtype) == (f"disk:{path}", (4096,), dtypes.uint8)
    np.testing.assert_array_equal(t[100:200].to("cpu").numpy(), data[100:200])
    words = t[64 : 64 + 4 * 100].bitcast(dtypes.float32).to("cpu").numpy()
    np.testing.assert_array_equal(words.view(np.uint32), data[64:464].view(np.uint32))
    odd = t[3 : 3 + 8 * 10].bitcast(dtypes.int64).to("cpu").numpy()
    np.testing.assert_array_equal(odd, np.frombuffer(data[3:83].tobytes(), np.int64))


def test_a_slice_does_not_read_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    size = 64 << 30
    with open(path, "wb") as f:
        f.truncate(size)
        f.seek(size // 2)
        f.write(b"monolect")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    t = Tensor.from_file(path)
    assert bytes(t[size // 2 : size // 2 + 8].to("cpu").numpy()) == b"monolect"
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 256 << 10


def test_what_cannot_be_mapped(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="cannot map"):
        Tensor.from_file(tmp_path / "missing")
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(FileFormatError, match="cannot map"):
        Tensor.from_file(empty)


def test_a_disk_computes_nothing() -> None:
    with pytest.raises(DeviceError, match="computes nothing"):
        Device[f"disk:{os.devnull}"].alloc(16)
    with pytest.raises(DeviceError, match="needs a path"):
        Device["disk"]


# ---- writing ---------------------------------------------------------------------------------------------------------
def test_a_tensor_moved_to_a_path_is_that_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    x = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    t = (Tensor(x).T * 2).to(f"disk:{path}")
    assert (t.device, t.shape, t.dtype) == (f"disk:{path}", (7, 5), dtypes.float32)
    np.testing.assert_array_equal(np.fromfile(path, np.float32).reshape(7, 5), x.T * 2)
    np.testing.assert_array_equal((t + 1).to("cpu").numpy(), x.T * 2 + 1)
    np.testing.assert_array_equal(t.to(dtypes.int32).numpy(), (x.T * 2).astype(np.int32))
    assert os.listdir(tmp_path) == ["out"]


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    old = Tensor([1, 2, 3]).to(f"disk:{path}")
    new = (old + 1).to(f"disk:{path}")
    assert (old.tolist(), new.tolist()) == ([1, 2, 3], [2, 3, 4])
    assert np.fromfile(path, np.int64).tolist() == [2, 3, 4]


def test_assignments_change_the_bytes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    want = np.arange(24, dtype=np.uint8)
    want.tofile(path)
    t = Tensor.from_file(path)

    def agree() -> None:
        np.testing.assert_array_equal(np.fromfile(path, np.uint8), want.reshape(-1))
        np.testing.assert_array_equal(t.numpy(), want)

    t[2:4] = 77
    want[2:4] = 77
    agree()
    t[10:14].assign(Tensor([1, 2, 3, 4], dtype=dtypes.uint8))
    want[10:14] = [1, 2, 3, 4]
    agree()
    t[0:8] = t[4:12]  # parts of one file that overlap
    want[0:8] = want[4:12].copy()
    agree()
    table = t.reshape(4, 6)
    table[1:3, 2:5] = Tensor([5, 6, 7])
    want.reshape(4, 6)[1:3, 2:5] = [5, 6, 7]
    agree()
    t.assign(Tensor(want[::-1].copy()))
    want[:] = want[::-1].copy()
    agree()


def test_what_was_computed_from_a_file_keeps_its_values(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    np.arange(4, dtype=np.uint8).tofile(path)
    t = Tensor.from_file(path)
    doubled, other = t.to("cpu") * 2, Tensor.from_file(path).cast(dtypes.int32)
    t[1] = 50
    assert (doubled.tolist(), other.tolist(), t.tolist()) == ([0, 2, 4, 6], [0, 1, 2, 3], [0, 50, 2, 3])


def test_what_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    np.arange(4, dtype=np.uint8).tofile(path)
    t = Tensor.from_file(path)
    with pytest.raises(FileFormatError, match="cannot write"):
        Tensor([1.0]).to(f"disk:{tmp_path}/missing/out")
    with pytest.raises(ShapeError, match="without elements"):
        Tensor.zeros(0).to(f"disk:{path}")
    with pytest.raises(ShapeError):
        t[0:3] = Tensor([1, 2])
    with pytest.raises(IndexRangeError, match="needs a view"):
        t[::2] = 1
    with pytest.raises(DeviceError, match="not made in a file"):
        Tensor.zeros(3, device=f"disk:{path}")
    with pytest.raises(JitError, match="inside a jitted function"):
        jit(lambda x: x.to(f"disk:{path}"))(Tensor([1.0]))
    os.truncate(path, 3)
    with pytest.raises(FileFormatError, match="changed its size"):
        t[0] = 1
    path.unlink()
    with pytest.raises(FileFormatError, match="cannot write"):
        t[0] = 1
    assert os.listdir(tmp_path) == []
