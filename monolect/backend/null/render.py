"""Null: programs are rendered as text IR."""

from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.ir.text import show
from monolect.ir.uop import UOp

NATIVE = LLVM_NATIVE


def render(name: str, linear: UOp) -> str:
    """The program as text IR."""
    return f"# {name}\n{show(linear)}"
