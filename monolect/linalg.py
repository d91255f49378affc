"""Functions of linear algebra, by the names of torch.linalg; written by `make surface`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from monolect.base.absent import hint
from monolect.functions.products import matmul
from monolect.functions.reductions import norm
from monolect.functions.shapes import diagonal

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(hint("linalg", name))


__all__ = ["diagonal", "matmul", "norm"]
