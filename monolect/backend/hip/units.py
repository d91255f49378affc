"""List the matrix units of AMD's architectures, and render each as a HIP C++ function that calls clang's builtin.

What it is for: in the function of a unit, each lane passes its elements of both operands and of the accumulator, and
gets its elements of the new accumulator.
What it does not do: it does not say which elements a lane holds (`base.matrix_units`).
Source: LLVM, "AMDGPU builtins"; AMD, "RDNA4" and "MI300 Instruction Set Architecture".
"""

from __future__ import annotations

from collections.abc import Mapping

from monolect.base.dtype import DType, dtypes
from monolect.base.matrix_units import CDNA2, CDNA3, RDNA3, RDNA4, n_elements
from monolect.base.target import MatrixUnit

_FP8 = {dtypes.fp8e4m3: "fp8", dtypes.fp8e5m2: "bf8"}


def units(arch: str) -> tuple[MatrixUnit, ...]:
    """Return the matrix units of an architecture such as "gfx942", the fastest first; () if it has none."""
    families = {"gfx11": RDNA3, "gfx12": RDNA4, "gfx90a": CDNA2, "gfx94": CDNA3}
    return next((found for name, found in families.items() if arch.startswith(name)), ())


def function(u: MatrixUnit, stored: Mapping[DType, str]) -> str:
    """Return the HIP C++ function of a unit; `stored` gives the C type of operand elements by dtype."""
    held = [n_elements(m) for m in u.maps]
    given = [_operand(u, d, n, stored, x) for d, n, x in zip((u.a, u.b), held, "ab", strict=False)]
    total = "float" if u.acc.is_float else "int"
    types = ", ".join(
        f"vec<{t}, {n}> {x}" for t, n, x in zip((stored[u.a], stored[u.b], total), held, "abc", strict=True)
    )
    acc = f"__builtin_bit_cast({_vector(total, held[2])}, c)"
    return "\n".join([
        f"__device__ vec<{total}, {held[2]}> {u.name}({types}) {{",
        f"  return __builtin_bit_cast(vec<{total}, {held[2]}>, {_call(u, given[0], given[1], acc)});",
        "}",
    ])  # fmt: skip


def _call(u: MatrixUnit, a: str, b: str, c: str) -> str:
    acc, letter = ("f32", "bf16" if u.a is dtypes.bfloat16 else "f16") if u.acc.is_float else ("i32", "i8")
    if u.name.startswith("mfma"):
        kind = {"bf16": "bf16_1k", "f16": "f16", "i8": "_i8"}[letter]
        return f"__builtin_amdgcn_mfma_{acc}_{u.m}x{u.n}x{u.k}{kind}({a}, {b}, {c}, 0, 0, 0)"
    end = "w32" if u.name.startswith("wmma3") else "w32_gfx12"
    if not u.acc.is_float:
        signs = [str(not d.is_unsigned).lower() for d in (u.a, u.b)]
        return f"__builtin_amdgcn_wmma_i32_16x16x16_iu8_{end}({signs[0]}, {a}, {signs[1]}, {b}, {c}, false)"
    kind = f"{_FP8[u.a]}_{_FP8[u.b]}" if u.a in _FP8 else letter
    return f"__builtin_amdgcn_wmma_f32_16x16x16_{kind}_{end}({a}, {b}, {c})"


def _operand(u: MatrixUnit, d: DType, n: int, stored: Mapping[DType, str], x: str) -> str:
    """Return operand `x` of `n` elements as the builtin's type: a vector of 16-bit floats, or bytes packed in words."""
    if d.itemsize == 2:
        t = _vector("short" if d is dtypes.bfloat16 else stored[d], n)
    else:
        t = "long" if u.name.startswith("mfma") else _vector("int", n // 4)
    return f"__builtin_bit_cast({t}, {x})"


def _vector(t: str, n: int) -> str:
    return f"{t} __attribute__((ext_vector_type({n})))"


__all__ = ["function", "units"]
