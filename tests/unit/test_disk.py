"""Files as tensors: mapped, sliced without being read, and refused with a reason when they cannot be."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from monolect import DeviceError, FileFormatError, Tensor, dtypes
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
