"""Render the matrix units of Apple GPUs (SIMD-group matrices) as Metal functions.

What it does not do: it does not say which elements a lane holds (`base.matrix_units`). bfloat16 needs Metal 3.1.
Source: Apple, "Metal Shading Language Specification", SIMD-group matrix functions.
"""

from __future__ import annotations

from collections.abc import Mapping

from monolect.base.dtype import DType, dtypes
from monolect.base.target import MatrixUnit

_MATRIX = {dtypes.float16: "half", dtypes.bfloat16: "bfloat", dtypes.float32: "float"}


def function(u: MatrixUnit, stored: Mapping[DType, str]) -> str:
    """Return the Metal function of a unit; `stored` gives the type of operand elements by dtype."""
    lines = []
    for x, d in zip("abc", (u.a, u.b, u.acc), strict=True):
        lines.append(f"  simdgroup_matrix<{_MATRIX[d]}, 8, 8> m{x};")
        for i in range(2):
            e = f"{x}[{i}]" if d.name != "bfloat16" else f"as_type<bfloat>({x}[{i}])"
            lines.append(f"  m{x}.thread_elements()[{i}] = {e};")
    types = ", ".join(f"vec<{stored[d]}, 2> {x}" for x, d in zip("abc", (u.a, u.b, u.acc), strict=True))
    return "\n".join([
        f"vec<float, 2> {u.name}({types}) {{",
        *lines,
        "  simdgroup_multiply_accumulate(mc, ma, mb, mc);",
        "  return vec<float, 2>(mc.thread_elements()[0], mc.thread_elements()[1]);",
        "}",
    ])  # fmt: skip


__all__ = ["function"]
