"""Functions of linear algebra, by the names of torch.linalg; written by `make surface`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from monolect.base.absent import hint
from monolect.functions.products import chain_matmul as multi_dot
from monolect.functions.products import linalg_cross as cross
from monolect.functions.products import linalg_diagonal as diagonal
from monolect.functions.products import linalg_norm as norm
from monolect.functions.products import linalg_vander as vander
from monolect.functions.products import matmul, matrix_norm, matrix_power, vecdot, vector_norm

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(hint("linalg", name))


__all__ = [
    "cross",
    "diagonal",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "multi_dot",
    "norm",
    "vander",
    "vecdot",
    "vector_norm",
]
