"""Define the parts into which SPLIT cuts an axis (a RANGE of the original kernel); a part is one loop of a plan."""

from __future__ import annotations

from monolect.ir.uop import UOp


class AxisPart:
    """One part of an axis: one of the loops into which SPLIT cut the RANGE `root` of the original kernel.

    The part has `size` iterations (0: symbolic), each of which advances `stride` elements of the axis, and the axis
    type `type`, such as LOOP or UPCAST. `clipped`: the last iteration of the outer part has fewer iterations of this
    part. `created`: a number that orders the parts made by actions; 0 for the loops that remain of an axis.
    """

    def __init__(self, root: UOp, size: int, stride: int, type: str, clipped: bool = False, created: int = 0):
        self.root, self.size, self.stride, self.type = root, size, stride, type
        self.clipped = clipped  # the last outer iteration runs fewer iterations: the bound depends on the outer part
        self.created = created  # order of creation: the first UPCAST is the vector lane; block loops nest in it
        self.round_robin_with: AxisPart | None = None  # the threads that take the iterations round-robin

    def has_iterations_for(self, n: int) -> bool:
        """Whether the part has at least n iterations; True for a symbolic size."""
        return self.size >= n or not self.size

    @property
    def is_block(self) -> bool:
        """Whether the part is a block loop: the outer part of type LOOP that SPLIT made with `top`. It encloses all
        loops but threads.
        """
        return self.type == "LOOP" and self.created > 0

    @property
    def is_step(self) -> bool:
        """Whether the part is the outer part of type REDUCE that SPLIT made with `top`: a loop over steps of a
        reduction. In each step the lanes of a workgroup copy operands to local memory.
        """
        return self.type == "REDUCE" and self.created > 0


__all__ = ["AxisPart"]
