"""Build graphs of UOps for tensor operations: sorting, products, convolution, attention.

A module is imported at its first use, `graphs.convolution` for example, so that programs start fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monolect.graphs import (
        attention,
        bitonic_sort,
        convolution,
        einsum,
        gather_scatter,
        products,
        radix_sort,
        scans,
        select,
        sort_keys,
        windows,
        winograd,
    )
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'monolect.graphs' has no attribute {name!r}")
        return import_module(f"monolect.graphs.{name}")


__all__ = [
    "attention",
    "bitonic_sort",
    "convolution",
    "einsum",
    "gather_scatter",
    "products",
    "radix_sort",
    "scans",
    "select",
    "sort_keys",
    "windows",
    "winograd",
]
