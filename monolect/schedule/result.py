"""What scheduling gives. It stands alone so that a process which finds its schedules on disk imports no scheduler."""

from __future__ import annotations

from typing import NamedTuple

from monolect.ir.uop import UOp


class Schedule(NamedTuple):
    """`linear` is LINEAR(CALL(SINK, buffers...), ...); `outputs` the buffer of each requested value."""

    linear: UOp
    outputs: tuple[UOp, ...]
