"""DLPack both ways: the same memory, its lifetime, dtypes, strides, devices; a captured step sees what others write."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch

from monolect import Tensor, dtypes, jit
from monolect.backend.registry import Device
from monolect.base.errors import ArgumentError, DeviceError, DTypeError
from monolect.runtime import dlpack

HOST = [name for name, why in Device.present().items() if name in ("cpu", "c", "python") and not why]
TORCH = {
    dtypes.bool: torch.bool, dtypes.uint8: torch.uint8, dtypes.int8: torch.int8, dtypes.int16: torch.int16,
    dtypes.int32: torch.int32, dtypes.int64: torch.int64, dtypes.float16: torch.float16,
    dtypes.float32: torch.float32, dtypes.float64: torch.float64, dtypes.bfloat16: torch.bfloat16,
    dtypes.fp8e4m3: torch.float8_e4m3fn, dtypes.fp8e5m2: torch.float8_e5m2,
    dtypes.uint16: torch.uint16, dtypes.uint32: torch.uint32, dtypes.uint64: torch.uint64,
}  # fmt: skip


def address(t: Tensor) -> int:
    return dlpack.base_of(t.realize().uop).storage.address


def own(*shape: int, device: str = "cpu") -> Tensor:
    return Tensor.arange(int(np.prod(shape)), dtype=dtypes.float32, device=device).reshape(*shape).clone().realize()


def test_what_is_in_reverse_order_is_copied():
    """PyTorch ends the process at a stride below 0."""
    t = own(3, 4)
    for view in (t.flip(0), t.T.flip(1), t[1:].flip(0, 1)):
        assert torch.from_dlpack(view).tolist() == np.from_dlpack(view).tolist() == view.tolist()
        with pytest.raises(ArgumentError, match="reverse order"):
            view.__dlpack__(copy=False)


# ---- the same memory -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", HOST)
def test_numpy_and_pytorch_read_and_write_our_memory(device):
    t = own(3, 4, device=device)
    a, b = np.from_dlpack(t), torch.from_dlpack(t)
    assert a.ctypes.data == b.data_ptr() == address(t)
    a[0, 1], b[2, 3] = 70, 80
    assert t.tolist() == a.tolist() == b.tolist() and t.tolist()[0][1] == 70
    assert (t + 1).tolist()[2][3] == 81


@pytest.mark.parametrize("device", HOST)
def test_we_read_the_memory_of_numpy_and_pytorch(device):
    for x in (np.arange(12, dtype=np.float32).reshape(3, 4), torch.arange(12, dtype=torch.float32).reshape(3, 4)):
        t = Tensor.from_dlpack(x, device=device)
        assert t.device == device and address(t) == (x.ctypes.data if isinstance(x, np.ndarray) else x.data_ptr())
        y = t * 2
        x[1, 1] = 50
        assert t.tolist() == x.tolist() and y.tolist()[1][1] == 100


@pytest.mark.parametrize("d", TORCH, ids=lambda d: d.name)
def test_every_dtype_of_the_protocol_goes_both_ways(d):
    t = Tensor([0, 1, 1, 0, 1], dtype=d).clone().realize()
    b = torch.from_dlpack(t)
    assert b.dtype is TORCH[d] and b.data_ptr() == address(t)
    assert b.to(torch.float32).tolist() == [0, 1, 1, 0, 1]
    back = Tensor.from_dlpack(b)
    assert back.dtype is d and address(back) == address(t)
    assert back.cast(dtypes.float32).tolist() == [0, 1, 1, 0, 1]


def test_views_share_the_memory_of_what_they_are_views_of():
    t = own(4, 6)
    for view in (t.T, t[1:3], t[:, 2:5], t[1:, 3:].T, t.reshape(2, 2, 6).permute(2, 0, 1), t[2]):
        b = torch.from_dlpack(view)
        assert b.tolist() == view.tolist()
        assert address(t) <= b.data_ptr() < address(t) + 96
    a = np.from_dlpack(t.T)
    assert a.tolist() == t.T.tolist() and a.strides == (4, 24)
    a = np.from_dlpack(t[0].expand(3, 6))
    assert a.strides == (0, 4) and not a.flags.writeable


def test_what_is_not_computed_yet_is_computed():
    assert np.from_dlpack(own(4) * 2 + 1).tolist() == [1, 3, 5, 7]
    assert np.from_dlpack(Tensor(5.0)).tolist() == 5 and np.from_dlpack(Tensor.zeros(0, 3)).shape == (0, 3)


# ---- strides of others -----------------------------------------------------------------------------------------------
A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
LAYOUTS = {
    "rows": A,
    "permuted": A.transpose(2, 0, 1),
    "flipped": A[::-1, :, ::-1],
    "permuted and flipped": A.transpose(1, 2, 0)[::-1],
    "repeated": np.broadcast_to(A[:, None], (2, 5, 3, 4)).transpose(1, 0, 3, 2),
    "axes of one": A[:, None, :, None],
    "of one value": np.array(5.0, np.float32),
    "empty": A[:, :0],
}
GAPS = {"steps": A[:, ::2], "columns": A[..., 1:3], "not aligned": A.reshape(-1)[1:9]}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_that_are_taken_without_a_copy(layout):
    a = LAYOUTS[layout]
    t = Tensor.from_dlpack(a, copy=False)
    assert t.shape == a.shape and t.tolist() == a.tolist() and (t + 1).tolist() == (a + 1).tolist()
    low = np.lib.array_utils.byte_bounds(a)[0]
    assert not a.size or address(t) == low
    copied = Tensor.from_dlpack(a, copy=True)
    assert copied.tolist() == a.tolist() and (not a.size or address(copied) != low)


@pytest.mark.parametrize("layout", GAPS)
def test_layouts_that_are_copied_are_refused_where_a_copy_is(layout):
    a = GAPS[layout]
    assert Tensor.from_dlpack(a).tolist() == a.tolist()
    with pytest.raises(ArgumentError, match="without a copy") as caught:
        Tensor.from_dlpack(a, copy=False)
    assert "strides" in str(caught.value)


# ---- the protocol ----------------------------------------------------------------------------------------------------
def test_both_versions_of_the_protocol_and_read_only_memory():
    t = own(4)
    assert '"dltensor_versioned"' in repr(t.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(t.__dlpack__()) and t.__dlpack_device__() == (1, 0)
    shared = t[0].expand(4)
    old, new = np.from_dlpack(dlpack.Capsule(shared.__dlpack__())), np.from_dlpack(shared)
    assert old.tolist() == new.tolist() == [0] * 4
    assert old.ctypes.data != address(t) == new.ctypes.data, "the first version cannot say that it is read only"

    class Old:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, stream=None):
            return t.__dlpack__()

    assert address(Tensor.from_dlpack(Old())) == address(t)


def test_memory_that_is_read_only_stays_as_it_is():
    a = np.zeros(16, np.float32)
    a.flags.writeable = False
    t = Tensor.from_dlpack(a)
    assert address(t) == a.ctypes.data
    t.assign(t + 1).realize()
    assert t.tolist() == [1] * 16 and a.tolist() == [0] * 16
    t = Tensor.from_dlpack(a)
    t[2:4] = 5
    assert t.tolist()[2] == 5 and a.tolist() == [0] * 16


def test_copies_that_are_asked_for():
    t = own(4)
    a = np.from_dlpack(t, copy=True)
    a[0] = 9
    assert t.tolist() == [0, 1, 2, 3] and a.ctypes.data != address(t)
    assert np.from_dlpack(t, device="cpu", copy=False).ctypes.data == address(t)


def test_a_capsule_is_taken_once():
    capsule = own(4).__dlpack__()
    np.from_dlpack(dlpack.Capsule(capsule))
    with pytest.raises(ArgumentError, match="taken before"):
        dlpack.description(capsule)


# ---- lifetimes -------------------------------------------------------------------------------------------------------
def test_memory_outlives_the_tensor_that_shared_it():
    t = own(1000)
    a, b, capsule = np.from_dlpack(t), torch.from_dlpack(t), t.__dlpack__()
    del t
    gc.collect()
    others = [own(1000) * 0 for _ in range(8)]
    assert all(o.sum().item() == 0 for o in others)
    want = list(range(1000))
    assert a.tolist() == want and b.tolist() == want
    del a, b
    assert np.from_dlpack(dlpack.Capsule(capsule)).tolist() == want


def test_memory_of_others_outlives_them_and_is_let_go():
    class Owner(np.ndarray):
        pass

    a = np.arange(1000, dtype=np.float32).view(Owner)
    gone = weakref.ref(a)
    t = Tensor.from_dlpack(a)
    view = t.reshape(10, 100)[3]
    del a
    gc.collect()
    assert gone() is not None and view.tolist() == list(range(300, 400))
    del t, view
    gc.collect()
    assert gone() is None


def test_our_memory_is_handed_out_again_when_all_have_let_go():
    t = own(100_000)
    memory = weakref.ref(t.uop.storage)
    a = torch.from_dlpack(t)
    del t
    gc.collect()
    assert memory() is not None
    del a
    gc.collect()
    assert memory() is None


def test_a_capsule_that_nobody_takes_lets_go():
    t = own(100)
    memory = weakref.ref(t.uop.storage)
    capsule = t.__dlpack__(max_version=(1, 0))
    del t, capsule
    gc.collect()
    assert memory() is None


# ---- replay ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_captured_step_reads_what_others_write(library):
    """Also through what is packed once: a weight that is lent is no constant."""
    x = own(64, 256)
    lent = np.ones((256, 256), np.float32) if library == "numpy" else torch.ones(256, 256)
    w = Tensor.from_dlpack(lent)
    step = jit(lambda x: x @ w)
    for k in range(4):
        lent[:] = k
        want = x.numpy().sum(1, keepdims=True) * np.full((1, 256), k)
        np.testing.assert_allclose(step(x).numpy(), want, rtol=1e-4)


def test_a_captured_step_reads_what_is_written_through_what_we_lent():
    x, w = own(64, 256), Tensor.ones(256, 256).clone().realize()
    step = jit(lambda x: x @ w)
    step(x), step(x)
    for k in range(1, 4):
        torch.from_dlpack(w).fill_(k)  # lent and let go between two calls
        want = x.numpy().sum(1, keepdims=True) * np.full((1, 256), k)
        np.testing.assert_allclose(step(x).numpy(), want, rtol=1e-4)


def test_a_captured_step_does_not_write_to_what_is_lent():
    lent = np.zeros(32, np.float32)
    state = Tensor.from_dlpack(lent)

    @jit
    def step():
        state.assign(state + 1)
        return state * 1

    for k in range(1, 4):
        assert step().tolist() == [k] * 32
    assert not lent.any()


# ---- errors ----------------------------------------------------------------------------------------------------------
def test_what_cannot_be_shared_is_refused_with_what_to_do(monkeypatch):
    with pytest.raises(ArgumentError, match="DLPack shares"):
        Tensor.from_dlpack([1, 2])
    for array in (np.array(["a"]), np.array([None])):
        with pytest.raises(ArgumentError, match="does not share"):
            Tensor.from_dlpack(array)
    with pytest.raises(DTypeError, match="does not have") as caught:
        Tensor.from_dlpack(np.zeros(3, np.complex64))
    assert "complex numbers" in str(caught.value)
    unreached = own(3, device="python:gpu")
    monkeypatch.setattr(Device["python:gpu"], "space", "of its own", raising=False)
    with pytest.raises(DeviceError, match="cannot share its memory") as caught:
        np.from_dlpack(unreached)
    assert '.to("cpu")' in str(caught.value)

    class Elsewhere:
        def __dlpack_device__(self):
            return (10, 0)

        def __dlpack__(self, **_):
            raise AssertionError("nobody asks for it")

    with pytest.raises(DeviceError, match="a device that monolect does not have"):
        Tensor.from_dlpack(Elsewhere())
    with pytest.raises(DeviceError, match="elsewhere"):
        own(3).__dlpack__(dl_device=(2, 0))
    with pytest.raises(DeviceError, match="memory of the host"):
        Tensor.from_dlpack(np.zeros(3), device="python:gpu")


def test_jax_shares_in_a_process_of_its_own():
    """JAX has threads, and this process must stay one that can fork."""
    pytest.importorskip("jax")
    code = """
import jax.numpy as jnp, jax, numpy as np
from monolect import Tensor, dtypes
for name in ("float32", "bfloat16", "int32"):
    x = jnp.arange(64, dtype=name).reshape(8, 8)
    t = Tensor.from_dlpack(x, copy=False)
    assert t.dtype.name == name and t.uop.storage.address == x.unsafe_buffer_pointer()
    y = (t + 1).realize()
    z = jax.dlpack.from_dlpack(y)
    assert str(z.dtype) == name and z.tolist() == (x + 1).tolist(), (z, x)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
