"""A program that no launcher started is rank 0 of 1, also without mpi4py."""

from __future__ import annotations

import pytest

from monolect import DistributedError, distributed
from monolect.backend.registry import Device


def test_a_program_alone_needs_no_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device.device_class("mpi"), "missing", staticmethod(lambda: "mpi4py: install it"))
    for name in distributed._LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    assert (distributed.rank(), distributed.size()) == (0, 1)
    with pytest.raises(DistributedError, match="mpi4py: install it"):
        distributed.devices()
    monkeypatch.setenv("PMI_SIZE", "2")  # started by mpiexec: two programs that know nothing of each other
    for call in (distributed.rank, distributed.size):
        with pytest.raises(DistributedError, match="mpi4py: install it"):
            call()
