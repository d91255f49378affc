"""Render programs as text IR for the null target."""

from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.ir.text import show
from monolect.ir.uop import UOp

NATIVE = LLVM_NATIVE


def render(name: str, linear: UOp) -> str:
    """Return the program as text IR."""
    return f"# {name}\n{show(linear)}"


__all__ = ["NATIVE", "render"]
