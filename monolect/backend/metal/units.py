"""The matrices of a SIMD-group, as Metal says them: one function a unit.

What it does not do: say which lane holds what (`base.matrix_units`). That of bfloat16 needs Metal 3.1.
Source: Apple, "Metal Shading Language Specification", SIMD-group matrix functions.
"""

from __future__ import annotations

from collections.abc import Mapping

from monolect.base.dtype import DType, dtypes
from monolect.base.target import MatrixUnit

_MATRIX = {dtypes.float16: "half", dtypes.bfloat16: "bfloat", dtypes.float32: "float"}


def function(u: MatrixUnit, stored: Mapping[DType, str]) -> str:
    """The function of a unit; `stored`: the types in which the language keeps elements."""
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
