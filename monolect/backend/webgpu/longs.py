"""Implement 64-bit integers on adapters that lack them, as pairs of 32-bit words, the lower word first.

What it is for: labels, counts and random bits have 64 bits. A pair has the same bytes in memory as the number. Bitwise
ops are those of vectors; all other ops call functions in this file. What it does not do: 64-bit floats.
Invariant: results are those of the op table: arithmetic wraps, a division by 0 is 0, quotients are rounded down.
Source: Knuth, "The Art of Computer Programming" 2, 4.3.1; Warren, "Hacker's Delight".
"""

from __future__ import annotations

from monolect.backend.common.clike.workgroups import GroupRenderer
from monolect.base.dtype import DType
from monolect.ir.uop import UOp

PAIR = "vec2<u32>"
PREFIX = "long_"  # prefix of the names of all functions below
_BITS_64 = (1 << 64) - 1

FUNCTIONS = """\
fn long_of_i32(x: i32) -> vec2<u32> { return vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u)); }
fn long_of_u32(x: u32) -> vec2<u32> { return vec2<u32>(x, 0u); }
fn long_of_bool(x: bool) -> vec2<u32> { return vec2<u32>(select(0u, 1u, x), 0u); }
fn long_is_less(a: vec2<u32>, b: vec2<u32>) -> bool {
  let x = bitcast<i32>(a.y); let y = bitcast<i32>(b.y);
  return x < y || (x == y && a.x < b.x);
}
fn long_is_below(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }
fn long_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
fn long_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}
fn long_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let p = (a.x & 65535u) * (b.x & 65535u);
  let q = (a.x >> 16u) * (b.x & 65535u) + (p >> 16u);
  let r = (a.x & 65535u) * (b.x >> 16u) + (q & 65535u);
  let high = (a.x >> 16u) * (b.x >> 16u) + (q >> 16u) + (r >> 16u);
  return vec2<u32>(a.x * b.x, high + a.x * b.y + a.y * b.x);
}
fn long_shl(a: vec2<u32>, k: u32) -> vec2<u32> {
  if (k == 0u) { return a; }
  if (k >= 32u) { return vec2<u32>(0u, a.x << (k - 32u)); }
  return vec2<u32>(a.x << k, (a.y << k) | (a.x >> (32u - k)));
}
fn long_shr_filled(a: vec2<u32>, k: u32, above: u32) -> vec2<u32> {
  if (k == 0u) { return a; }
  if (k == 32u) { return vec2<u32>(a.y, above); }
  if (k > 32u) { return vec2<u32>((a.y >> (k - 32u)) | (above << (64u - k)), above); }
  return vec2<u32>((a.x >> k) | (a.y << (32u - k)), (a.y >> k) | (above << (32u - k)));
}
fn long_shr_unsigned(a: vec2<u32>, k: u32) -> vec2<u32> { return long_shr_filled(a, k, 0u); }
fn long_shr_signed(a: vec2<u32>, k: u32) -> vec2<u32> {
  return long_shr_filled(a, k, bitcast<u32>(bitcast<i32>(a.y) >> 31u));
}
fn long_parts(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
  if (a.y == 0u && b.y == 0u) { return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u); }
  var q = vec2<u32>(0u, 0u);
  var r = vec2<u32>(0u, 0u);
  for (var k = 64u; k > 0u; k--) {
    let over = r.y >> 31u;
    r = long_shl(r, 1u) | vec2<u32>(long_shr_unsigned(a, k - 1u).x & 1u, 0u);
    q = long_shl(q, 1u);
    if (over != 0u || !long_is_below(r, b)) {
      r = long_sub(r, b);
      q.x = q.x | 1u;
    }
  }
  return vec4<u32>(q, r);
}
fn long_negative(a: vec2<u32>) -> vec2<u32> { return long_sub(vec2<u32>(0u, 0u), a); }
fn long_abs(a: vec2<u32>) -> vec2<u32> { return select(a, long_negative(a), (a.y >> 31u) != 0u); }
fn long_div_unsigned(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (all(b == vec2<u32>(0u, 0u))) { return b; }
  return long_parts(a, b).xy;
}
fn long_mod_unsigned(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (all(b == vec2<u32>(0u, 0u))) { return b; }
  return long_parts(a, b).zw;
}
fn long_div_signed(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (all(b == vec2<u32>(0u, 0u))) { return b; }
  let parts = long_parts(long_abs(a), long_abs(b));
  if (((a.y ^ b.y) >> 31u) == 0u) { return parts.xy; }
  return long_sub(long_negative(parts.xy), long_of_bool((parts.z | parts.w) != 0u));
}
fn long_mod_signed(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (all(b == vec2<u32>(0u, 0u))) { return b; }
  let parts = long_parts(long_abs(a), long_abs(b));
  let r = select(parts.zw, long_negative(parts.zw), (a.y >> 31u) != 0u);
  let turns = ((a.y ^ b.y) >> 31u) != 0u && any(r != vec2<u32>(0u, 0u));
  return select(r, long_add(r, b), turns);
}
fn long_unsigned_to_f32(a: vec2<u32>) -> f32 {
  if (a.y == 0u) { return f32(a.x); }
  let n = countLeadingZeros(a.y);
  let b = long_shl(a, n);
  return f32(b.y | select(0u, 1u, b.x != 0u)) * bitcast<f32>((159u - n) << 23u);
}
fn long_signed_to_f32(a: vec2<u32>) -> f32 {
  let x = long_unsigned_to_f32(long_abs(a));
  return select(x, -x, (a.y >> 31u) != 0u);
}
fn long_of_f32(x: f32) -> vec2<u32> {
  let m = abs(x);
  let high = u32(m * 2.3283064365386963e-10f);
  let a = vec2<u32>(u32(m - f32(high) * 4294967296.0f), high);
  return select(a, long_negative(a), x < 0.0f);
}
fn long_to_index(a: vec2<u32>) -> i32 {
  let low = bitcast<i32>(a.x);
  if (long_of_i32(low).y == a.y && a.x != 2147483648u) { return low; }
  return select(2147483647i, -2147483647i, (a.y >> 31u) != 0u);
}
"""
_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul"}


def literal(value: int) -> str:
    """Return an integer, modulo 2**64, as a literal pair."""
    value &= _BITS_64
    return f"{PAIR}({value & 0xFFFFFFFF}u, {value >> 32}u)"


def compare(sign: str, d: DType, a: str, b: str) -> str:
    """Return the comparison of two pairs by a C operator; `d` decides if it is signed."""
    if sign in ("==", "!="):
        return f"{'all' if sign == '==' else 'any'}({a} {sign} {b})"
    a, b = (a, b) if sign in ("<", ">=") else (b, a)
    return f"{'!' if sign in ('>=', '<=') else ''}long_is_{'below' if d.is_unsigned else 'less'}({a}, {b})"


def cast(x: str, a: str, is_unsigned: bool) -> str:
    """Return the pair `x` converted to the WGSL type `a`: f32, i32 or u32."""
    if a == "f32":
        return f"long_{'un' if is_unsigned else ''}signed_to_f32({x})"
    return f"{x}.x" if a == "u32" else f"bitcast<i32>({x}.x)"


class PairRenderer(GroupRenderer):
    """Renders arithmetic of 64-bit integers as calls of functions on pairs, if the language has no such type."""

    def _wrapping(self, sign: str, d: DType, n: int, a: str, b: str) -> str:
        if self.lang.type(d) != PAIR:
            return super()._wrapping(sign, d, n, a, b)
        return f"long_{_ARITHMETIC[sign]}({a}, {b})"

    def _shifted(self, d: DType, n: int, x: str, k: str, sign: str) -> str:
        if self.lang.type(d) != PAIR:
            return super()._shifted(d, n, x, k, sign)
        name = "shl" if sign == "<<" else "shr_unsigned" if d.is_unsigned else "shr_signed"
        return f"long_{name}({x}, {k}.x)"

    def _divide(self, u: UOp, n: int, a: str, b: str, sign: str) -> str:
        if self.lang.type(u.dtype) != PAIR:
            return super()._divide(u, n, a, b, sign)
        kind = "unsigned" if u.dtype.is_unsigned else "signed"
        return f"long_{'div' if sign == '/' else 'mod'}_{kind}({a}, {b})"


__all__ = ["PAIR", "PairRenderer", "cast", "compare", "literal"]
