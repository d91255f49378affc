"""Render programs as text IR for the Python target, which interprets them."""

from monolect.ir.text import show
from monolect.ir.uop import UOp


def render(name: str, linear: UOp) -> str:
    """Return the program as text IR."""
    return f"# {name}\n{show(linear)}"


__all__ = ["render"]
