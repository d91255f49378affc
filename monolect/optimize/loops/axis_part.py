"""Define the part of an axis that one loop of a plan runs over."""

from __future__ import annotations

from monolect.ir.uop import UOp


class AxisPart:
    """One loop of a split axis: `size` iterations, each worth `stride` elements of the axis. Size 0 is symbolic."""

    def __init__(self, root: UOp, size: int, stride: int, type: str, clipped: bool = False, created: int = 0):
        self.root, self.size, self.stride, self.type = root, size, stride, type
        self.clipped = clipped  # the last outer iteration runs fewer iterations: the bound depends on the outer part
        self.created = created  # order of creation: the first UPCAST is the vector lane; block loops nest in it
        self.round_robin_with: AxisPart | None = None  # the threads that take the iterations round-robin

    def has_iterations_for(self, n: int) -> bool:
        """Whether the loop has at least n iterations; True for a symbolic size."""
        return self.size >= n or not self.size

    @property
    def is_block(self) -> bool:
        """True for a LOOP that SPLIT took from the top of an output or reduction axis: it encloses the other loops."""
        return self.type == "LOOP" and self.created > 0

    @property
    def is_step(self) -> bool:
        """True for a reduction loop that SPLIT took from the top: a step through blocks of a workgroup's memory."""
        return self.type == "REDUCE" and self.created > 0


__all__ = ["AxisPart"]
