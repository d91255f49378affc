"""Values that move between devices: LOAD is the copy."""

import numpy as np
import pytest

from monolect import DeviceError, Tensor

A = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(("here", "there"), [("cpu", "python"), ("python", "cpu")])
def test_a_copy_to_another_device(here, there):
    x = Tensor(A, device=here)
    moved = (x * 2).to(there)
    assert moved.device == there and moved.uop.op == "LOAD"
    assert (moved.T + 1).tolist() == (A * 2).T.__add__(1).tolist()
    assert (moved.to(here) + x).tolist() == (A * 3).tolist()


def test_values_of_two_devices_do_not_mix():
    with pytest.raises(DeviceError, match="operands live on different devices"):
        Tensor(A, device="cpu") + Tensor(A, device="python")
