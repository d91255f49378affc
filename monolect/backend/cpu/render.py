"""CPU: the LLVM renderer with the host's function signature; nothing of its own."""

from monolect.backend.common.llvm_ir import LLVM_NATIVE, render_module

NATIVE = LLVM_NATIVE

__all__ = ["NATIVE", "render_module"]
