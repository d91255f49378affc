"""Define the table of a C-like language: its texts of types, numbers, vectors, functions, kernels and memory.

What it is for: each language is one table for the renderer in `program`. Texts are formats: `{t}` is a type, `{v}` a
vector type or a variable, `{n}` a number of lanes, `{x}` operands, `{p}` an address. A language overrides a method only
if a table cannot express its grammar.

Invariant: vectors have at most `lanes` elements, a power of two; a longer row is several vectors. If comparisons of
vectors give integers (`masks`), a vector of bools is a vector of int32, each with all bits set or none.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from monolect.base.dtype import DType, dtypes
from monolect.base.errors import InternalError
from monolect.ir.ops import INVALID

_UINTS = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


class MemoryUnits(NamedTuple):
    """Texts for matrix units that read their operands from local memory and run asynchronously.

    A product is a call `unit<transposed, transposed>(sum, operand, operand)`.
    """

    functions: str  # definitions of the functions, before the kernels that use them
    operand: str  # an operand at {p} in core-matrix layout; {lead}, {stride}: bytes between core matrices on two axes
    panels: str  # an operand at {p} that is stored in panels; {lead}: bytes between panels
    begin: str  # statement before calls with new sums
    end: str  # statement that waits for all calls
    pin: str  # statement at which the sum {v} is complete: the compiler moves no computation or read of it across
    publish: str  # statement before a barrier after which units read values that lanes stored


class AsyncCopies(NamedTuple):
    """Texts for asynchronous copies from global to local memory that need no registers."""

    functions: str  # definitions of the functions, before the kernels that use them
    copy: str  # statement that copies {n} bytes, 4, 8 or 16, from {p} to {to}, which are aligned to {n} bytes
    wait: str  # statement that waits for all copies of a lane


class BulkCopies(NamedTuple):
    """Texts for asynchronous copies of boxes of a tensor to local memory (TMACOPY), which a tensor map describes."""

    functions: str  # definitions of the functions, before the kernels that use them
    parameter: str  # declaration of a parameter {v} that is a tensor map
    begin: str  # declares barriers {v} of {turns} buffers used round-robin, {n} boxes each; first statement of a kernel
    copy: str  # copies the box at {at} of tensor map {map}, {n} bytes, to {to} if {gate}; {v}, {turn}: its barrier
    wait: str  # waits at {v} for the boxes of step {step}


@dataclass(frozen=True)
class Language:
    """The texts of one language. `types` maps names of dtypes; a float without an entry is the integer of its bits."""

    name: str
    types: Mapping[str, str]
    suffixes: Mapping[str, str]  # of literals, by dtype; "" for dtypes without an entry
    lanes: int = 1  # elements of the widest vector of arithmetic
    vector: str = "{t}{n}"  # type of a vector
    build: str = "({v})({x})"  # a vector of type {v} from scalars
    splat: str = ""  # a vector of type {v} from one scalar, if the language has a shorter form
    wraps: bool = False  # whether overflow of signed integers wraps
    masks: bool = False  # whether comparisons of vectors give integers
    convert: str = "({t}){x}"  # the scalar {x} converted to type {t}
    convert_vector: str = "convert_{v}({x})"
    select_vector: str = "({c} ? {a} : {b})"
    reinterpret: str = "as_{v}({x})"
    # SQRT, TRUNC, FMA, ABS of floats: formats of the operands {0}, {1}, {2} and their type {v}
    functions: Mapping[str, str] = field(default_factory=dict)
    lane_functions: frozenset[str] = frozenset()  # names of functions that take only scalars
    load_vector: str = "vload{n}(0, {p})"
    store_vector: str = "vstore{n}({x}, 0, {p})"
    load_gated: str = ""  # a vector load at {p} in lanes where {c}, of {x} in the others; "": load lane by lane
    store_gated: str = ""  # a vector store of {x} at {p} in lanes where {c}; "": store lane by lane
    # definitions of functions that are written only if used: "load" and "store" of gated vectors, formats of {t}, {n}
    on_demand: Mapping[str, str] = field(default_factory=dict)
    conversions: Mapping[str, str] = field(default_factory=dict)  # "float16 float32" -> format, if a cast is not enough
    wide_bytes: int = 0  # bytes of the widest access of contiguous scalars, and its alignment; 0: one scalar at a time
    wide_lanes: int = 16  # most scalars of such an access
    wide: str = "vec<{t}, {n}>"  # type of its value
    build_wide: str = "vec<{t}, {n}>{{{x}}}"
    load_wide: str = "load_wide<{n}>({p})"
    store_wide: str = "store_wide<{n}>({p}, {x})"
    lane_wide: str = "{v}.e[{i}]"
    declare: str = "{t} {v} = {x};"
    variable: str = "{t} {v};"  # declaration of a variable that is assigned later
    loop: str = "for ({t} {i} = 0; {i} < {n}; {i}++) {{"
    kernel: str = "void {name}({params}) {{"  # {lanes} of a workgroup; {block}: lanes along each dimension
    arguments: tuple[str, ...] = ()  # parameters after those of the program
    pointer: str = "{t}* {v}"  # a parameter that is a buffer
    scalar: str = "const {t} {v}"  # a parameter that is a Variable
    local: str = "{t} {v}[{n}];"  # declaration of local memory, aligned to {align} bytes
    static_local_bytes: int = 0  # local memory that a kernel can declare; more is reserved by the launch; 0: no limit
    local_at_launch: str = ""  # declaration of all local memory that the launch reserves
    local_part: str = ""  # declaration of {v}, the buffer that starts {at} bytes into it
    barrier: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)  # SPECIAL -> expression
    atomic_add: Mapping[str, str] = field(default_factory=dict)  # by dtype; {p} the address, {x} the value
    shuffle: str = ""  # the value {x} of the lane whose number differs from this one's in the bits {bits}
    units: Mapping[str, str] = field(default_factory=dict)  # name of a matrix unit -> definition of its function
    async_copies: AsyncCopies | None = None
    bulk_copies: BulkCopies | None = None
    memory_units: MemoryUnits | None = None  # of matrix units that read their operands from local memory
    header: str = ""  # text before all kernels
    index: str = "long"  # type of loop counters and of indices
    small_index: str = ""  # the type in kernels whose indices fit into 32 bits; "": `index`

    # ---- types -------------------------------------------------------------------------------------------------------
    def type(self, d: DType, n: int = 1) -> str:
        """Return the type of a variable with `n` lanes of dtype `d`."""
        if d.kind == "x":
            t = self.index
        elif d is dtypes.bool and n > 1 and self.masks:
            t = self.types["int32"]
        else:
            t = self.types.get(d.name) or self.types[f"uint{max(8, d.bits)}"]
        return t if n == 1 else self.vector.format(t=t, n=n)

    def stored(self, d: DType, n: int = 1) -> str:
        """Return the type of `n` elements of dtype `d` in memory, where a bool is a byte."""
        return self.type(dtypes.uint8 if d is dtypes.bool else d, n)

    def width(self, lanes: int) -> int:
        """Return the elements of each variable for a row of `lanes`: the widest vector whose size divides it."""
        n = 1
        while n < self.lanes and lanes % (2 * n) == 0:
            n *= 2
        return n

    # ---- numbers -----------------------------------------------------------------------------------------------------
    def literal(self, value: Any, d: DType) -> str:
        """Return the text of the scalar constant `value` of dtype `d`."""
        if value is INVALID:
            value = 0
        if d is dtypes.bool:
            return "1" if value else "0"
        if d.is_float and d.name not in self.types:
            return self.literal(int.from_bytes(_bits(value, d), "little"), _UINTS[max(8, d.bits)])
        if d.is_float:
            if not math.isfinite(value):
                u = dtypes.uint64 if d.bits == 64 else dtypes.uint32 if d.bits == 32 else dtypes.uint16
                bits = self.literal(int.from_bytes(_bits(value, d), "little"), u)
                # the literal of a small integer is an int, and a bit cast needs equal sizes
                return self.bitcast(bits if u.bits > 16 else self.convert.format(t=self.type(u), x=bits), u, d, 1)
            text = repr(float(value))
            if d.name in ("float16", "bfloat16"):
                return self.cast(text + self.suffixes.get("float32", ""), dtypes.float32, d, 1)
            return self._signed(text + self.suffixes.get(d.name, ""))
        name = "int64" if d.kind == "x" and self.index != self.types["int32"] else "int32" if d.kind == "x" else d.name
        suffix = self.suffixes.get(name, "")
        if value == dtypes.int64.min or (value == dtypes.int32.min and d.bits == 32):
            return f"({int(value) + 1}{suffix} - 1{suffix})"
        return self._signed(f"{int(value)}{suffix}")

    @staticmethod
    def _signed(text: str) -> str:
        return f"({text})" if text[0] == "-" else text

    # ---- vectors -----------------------------------------------------------------------------------------------------
    def lane(self, r: str, n: int, i: int) -> str:
        """Return the text of lane `i` of the vector `r` of `n` lanes."""
        return r if n == 1 else f"{r}[{i}]"

    def pick(self, r: str, d: DType, n: int, lanes: Sequence[int]) -> str:
        """Return the text of a vector of some lanes of the vector `r` of `n` lanes; one lane is a scalar."""
        if len(lanes) == 1:
            return self.lane(r, n, lanes[0])
        return self.make(d, [self.lane(r, n, i) for i in lanes])

    def make(self, d: DType, xs: Sequence[str]) -> str:
        """Return the text of a vector of scalars; one scalar is itself."""
        if len(xs) == 1:
            return xs[0]
        v = self.type(d, len(xs))
        if self.splat and all(x == xs[0] for x in xs):
            return self.splat.format(v=v, x=xs[0], n=len(xs))
        return self.build.format(v=v, x=", ".join(xs))

    def mask(self, x: str) -> str:
        """Return the text of a scalar bool as a lane of a vector of bools."""
        if not self.masks:
            return x
        return {"0": "0", "1": "-1"}.get(x) or f"-(int)({x})"

    def is_set(self, x: str) -> str:
        """Return the text of a lane of a vector of bools as a scalar bool."""
        return f"({x} != 0)" if self.masks else x

    # ---- operations --------------------------------------------------------------------------------------------------
    def function(self, name: str, d: DType, n: int, *x: str) -> str:
        """Return the text of the function `name` of floats `x` with `n` lanes; see `functions`."""
        row = self.functions.get(f"{name} {d.name}") or self.functions.get(name)
        if row is None:
            raise InternalError(f"{self.name} has no {name} of {d.name}")
        if n == 1 or name not in self.lane_functions:
            return row.format(*x, v=self.type(d, n))
        return self.make(d, [row.format(*(self.lane(a, n, i) for a in x)) for i in range(n)])

    def compare(self, sign: str, d: DType, n: int, a: str, b: str) -> str:
        """Return the text of a comparison of `n` lanes; that of vectors is a vector of bools."""
        if n > 1 and self.masks and d is dtypes.bool:  # true is -1 in a vector, which reverses the order
            a, b = b, a
        out = f"({a} {sign} {b})"
        if n == 1 or not self.masks or d is dtypes.bool or d.bits == 32:
            return out
        return self.convert_vector.format(v=self.type(dtypes.bool, n), x=out)

    def select(self, d: DType, n: int, c: str, a: str, b: str) -> str:
        """Return the text of `a` in lanes where `c`, and `b` in the others."""
        if n == 1:
            return f"({c} ? {a} : {b})"
        i = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}[d.itemsize]
        i = dtypes.int32 if d is dtypes.bool else i
        if self.masks and d is not dtypes.bool and i is not dtypes.int32:
            c = self.convert_vector.format(v=self.type(i, n), x=c)
        return self.select_vector.format(c=c, a=a, b=b, v=self.type(d, n), i=self.type(i, n))

    def cast(self, x: str, s: DType, d: DType, n: int) -> str:
        """Return the text of `x`, of dtype `s`, converted to `d` by the language's rules; bools are 0 and 1."""
        t = self.type(d, n)
        if n == 1 and (row := self.conversions.get(f"{s.name} {d.name}")):
            return row.format(x=x)
        if n == 1:
            return self.convert.format(t=t, x=x)
        if s is dtypes.bool and self.masks:
            x, s = f"({x} & 1)", dtypes.int32
        return x if self.type(s, n) == t else self.convert_vector.format(v=t, x=x)

    def shift(self, sign: str, x: str, k: str) -> str:
        """Return the text of `x` shifted by `k` bits, fewer than it has; `sign` is "<<" or ">>"."""
        return f"({x} {sign} {k})"

    def bitcast(self, x: str, s: DType, d: DType, n: int) -> str:
        """Return the text of the bits of `x`, of dtype `s`, as dtype `d`."""
        a, b = self.type(s, n), self.type(d, n)
        return x if a == b else self.reinterpret.format(a=a, v=b, x=x)


def _bits(value: float, d: DType) -> bytes:
    """Return the bytes of a float in little-endian order."""
    if d.name == "float16":
        return struct.pack("<e", value)
    if d.name in ("float32", "float64"):
        return struct.pack("<f" if d.bits == 32 else "<d", value)
    return np.array(value, d.numpy).tobytes()


__all__ = ["AsyncCopies", "BulkCopies", "Language", "MemoryUnits"]
