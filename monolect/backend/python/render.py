"""Python: programs are interpreted, so rendering only prints them."""

from monolect.ir.text import show
from monolect.ir.uop import UOp


def render(name: str, linear: UOp) -> str:
    """The program as text IR."""
    return f"# {name}\n{show(linear)}"
