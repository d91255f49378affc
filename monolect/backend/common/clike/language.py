"""A C-like language as a table: how it spells types, numbers, vectors, functions, kernels and memory.

What it is for: one table a language, over one renderer (`c_style`). A text in braces is a format: `{t}` a type, `{n}`
a number of lanes, `{x}` operands, `{p}` an address. What it does not do: anything a table can say; a language overrides
a method only where its grammar is of another kind.

Invariant: vectors have `lanes` elements at most, a power of two; a value of more is several of them. Where comparisons
of vectors give integers (`masks`), a vector of bools is a vector of int32, all bits set or none.
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
    """Matrix units that read their operands from local memory, and work on while the lanes do: statements around calls
    of `unit<turned, turned>(sum, operand, operand)`.
    """

    functions: str  # what the others are, before the kernels that use them
    operand: str  # {p}: where it begins; {lead}, {stride}: bytes from one core matrix to the next
    panels: str  # the same of one that lies in panels; {lead}: bytes from one to the next
    begin: str  # before calls with sums that were just made
    end: str  # waits for all calls
    pin: str  # {v}: a sum that is complete here; no part of it is computed later, nor read before
    publish: str  # before a barrier behind which they read what lanes have stored


class AsyncCopies(NamedTuple):
    """Copies from memory to local memory that need no registers, and go on while the lanes do."""

    functions: str  # what the others are, before the kernels that use them
    copy: str  # {n}: bytes, 4, 8 or 16; {to} and {p}: addresses that they divide
    wait: str  # for all copies of a lane


class BulkCopies(NamedTuple):
    """Boxes of memory that go to local memory by themselves (TMACOPY), told of by tensor maps."""

    functions: str  # what the others are, before the kernels that use them
    parameter: str  # {v}: a tensor map
    begin: str  # {v}: which of {turns} blocks have arrived, each after {n} boxes; before all else
    copy: str  # {to}: an address; {map}; {v}; {turn}; {n}: bytes; {gate}; {at}: where the box begins
    wait: str  # {v}; {step}: the step whose block is waited for


@dataclass(frozen=True)
class Language:
    """One language. `types` maps names of dtypes; a float that is not in it is its bits, an unsigned integer."""

    name: str
    types: Mapping[str, str]
    suffixes: Mapping[str, str]  # of literals, by dtype; "" for those not in it
    lanes: int = 1  # the widest vector of arithmetic
    vector: str = "{t}{n}"  # its type
    build: str = "({v})({x})"  # a vector of type {v} from scalars
    splat: str = ""  # the same from one scalar, where that is shorter
    wraps: bool = False  # signed integers wrap
    masks: bool = False  # comparisons of vectors give integers
    convert: str = "({t}){x}"  # a scalar of another type
    convert_vector: str = "convert_{v}({x})"
    select_vector: str = "({c} ? {a} : {b})"
    reinterpret: str = "as_{v}({x})"
    # SQRT, TRUNC, FMA, ABS of floats: formats of the operands {0}, {1}, {2} and their type {v}
    functions: Mapping[str, str] = field(default_factory=dict)
    lane_functions: frozenset[str] = frozenset()  # those that take scalars only
    load_vector: str = "vload{n}(0, {p})"
    store_vector: str = "vstore{n}({x}, 0, {p})"
    load_gated: str = ""  # the lanes at {p} where {c}, else those of {x}; "": lane by lane
    store_gated: str = ""
    on_demand: Mapping[str, str] = field(
        default_factory=dict
    )  # functions by a word of their calls, formats of {t}, {n}
    conversions: Mapping[str, str] = field(default_factory=dict)  # "float16 float32" -> format, where casts lack them
    wide_bytes: int = 0  # of scalars side by side that are read or written at once, at addresses it divides; 0: none
    wide_lanes: int = 16  # and how many they are at most
    wide: str = "vec<{t}, {n}>"  # their type
    build_wide: str = "vec<{t}, {n}>{{{x}}}"
    load_wide: str = "load_wide<{n}>({p})"
    store_wide: str = "store_wide<{n}>({p}, {x})"
    lane_wide: str = "{v}.e[{i}]"
    declare: str = "{t} {v} = {x};"
    variable: str = "{t} {v};"  # one that is assigned later
    loop: str = "for ({t} {i} = 0; {i} < {n}; {i}++) {{"
    kernel: str = "void {name}({params}) {{"  # {lanes}: of a workgroup; {block}: the same by dimension
    arguments: tuple[str, ...] = ()  # parameters after those of the program
    pointer: str = "{t}* {v}"  # a parameter that is a buffer
    scalar: str = "const {t} {v}"  # a parameter that is a Variable
    local: str = "{t} {v}[{n}];"  # memory of a workgroup, at multiples of {align} bytes
    most_local_bytes: int = 0  # that a kernel has by declaring it, the rest is asked for at the launch; 0: all of it
    local_at_launch: str = ""  # the declaration of that
    local_part: str = ""  # {v}: what lies {at} bytes into it
    barrier: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)  # SPECIAL -> expression
    atomic_add: Mapping[str, str] = field(default_factory=dict)  # by dtype; {p} the address, {x} the value
    shuffle: str = ""  # what the lane has as {x} whose number differs in the bits {bits}
    units: Mapping[str, str] = field(default_factory=dict)  # matrix units: the text of a function of that name
    async_copies: AsyncCopies | None = None
    bulk_copies: BulkCopies | None = None
    memory_units: MemoryUnits | None = None  # how those are used that read their operands from local memory
    header: str = ""  # before all kernels
    index: str = "long"  # of loops and addresses
    small_index: str = ""  # the same in kernels where 32 bits are enough

    # ---- types -------------------------------------------------------------------------------------------------------
    def type(self, d: DType, n: int = 1) -> str:
        """The type of `n` lanes of dtype `d` in a variable."""
        if d.kind == "x":
            t = self.index
        elif d is dtypes.bool and n > 1 and self.masks:
            t = self.types["int32"]
        else:
            t = self.types.get(d.name) or self.types[f"uint{max(8, d.bits)}"]
        return t if n == 1 else self.vector.format(t=t, n=n)

    def stored(self, d: DType, n: int = 1) -> str:
        """The type in memory: a bool is a byte."""
        return self.type(dtypes.uint8 if d is dtypes.bool else d, n)

    def width(self, lanes: int) -> int:
        """Elements of each variable that holds a part of a row of `lanes`: the widest vector that divides it."""
        n = 1
        while n < self.lanes and lanes % (2 * n) == 0:
            n *= 2
        return n

    # ---- numbers -----------------------------------------------------------------------------------------------------
    def literal(self, value: Any, d: DType) -> str:
        """A scalar constant."""
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
                # a literal is an int at least, and sizes must agree
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
        """Lane `i` of a vector of `n`."""
        return r if n == 1 else f"{r}[{i}]"

    def pick(self, r: str, d: DType, n: int, lanes: Sequence[int]) -> str:
        """A vector of some lanes of a vector of `n`, or the one lane."""
        if len(lanes) == 1:
            return self.lane(r, n, lanes[0])
        return self.make(d, [self.lane(r, n, i) for i in lanes])

    def make(self, d: DType, xs: Sequence[str]) -> str:
        """A vector from scalars, or the scalar."""
        if len(xs) == 1:
            return xs[0]
        v = self.type(d, len(xs))
        if self.splat and all(x == xs[0] for x in xs):
            return self.splat.format(v=v, x=xs[0], n=len(xs))
        return self.build.format(v=v, x=", ".join(xs))

    def mask(self, x: str) -> str:
        """A scalar bool as a lane of a vector of bools."""
        if not self.masks:
            return x
        return {"0": "0", "1": "-1"}.get(x) or f"-(int)({x})"

    def is_set(self, x: str) -> str:
        """A lane of a vector of bools as a scalar bool."""
        return f"({x} != 0)" if self.masks else x

    # ---- operations --------------------------------------------------------------------------------------------------
    def function(self, name: str, d: DType, n: int, *x: str) -> str:
        """A function of floats, on vectors too."""
        row = self.functions.get(f"{name} {d.name}") or self.functions.get(name)
        if row is None:
            raise InternalError(f"{self.name} has no {name} of {d.name}")
        if n == 1 or name not in self.lane_functions:
            return row.format(*x, v=self.type(d, n))
        return self.make(d, [row.format(*(self.lane(a, n, i) for a in x)) for i in range(n)])

    def compare(self, sign: str, d: DType, n: int, a: str, b: str) -> str:
        """A comparison; of vectors it gives a vector of bools."""
        if n > 1 and self.masks and d is dtypes.bool:  # a lane that is true is -1
            a, b = b, a
        out = f"({a} {sign} {b})"
        if n == 1 or not self.masks or d is dtypes.bool or d.bits == 32:
            return out
        return self.convert_vector.format(v=self.type(dtypes.bool, n), x=out)

    def select(self, d: DType, n: int, c: str, a: str, b: str) -> str:
        """`a` where `c`, else `b`."""
        if n == 1:
            return f"({c} ? {a} : {b})"
        i = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}[d.itemsize]
        i = dtypes.int32 if d is dtypes.bool else i
        if self.masks and d is not dtypes.bool and i is not dtypes.int32:
            c = self.convert_vector.format(v=self.type(i, n), x=c)
        return self.select_vector.format(c=c, a=a, b=b, v=self.type(d, n), i=self.type(i, n))

    def cast(self, x: str, s: DType, d: DType, n: int) -> str:
        """The value in another type, as the language converts; of bools and to bools as numbers 0 and 1."""
        t = self.type(d, n)
        if n == 1 and (row := self.conversions.get(f"{s.name} {d.name}")):
            return row.format(x=x)
        if n == 1:
            return self.convert.format(t=t, x=x)
        if s is dtypes.bool and self.masks:
            x, s = f"({x} & 1)", dtypes.int32
        return x if self.type(s, n) == t else self.convert_vector.format(v=t, x=x)

    def shift(self, sign: str, x: str, k: str) -> str:
        """`x` moved by `k` bits, fewer than it has."""
        return f"({x} {sign} {k})"

    def bitcast(self, x: str, s: DType, d: DType, n: int) -> str:
        """The same bits as another type."""
        a, b = self.type(s, n), self.type(d, n)
        return x if a == b else self.reinterpret.format(a=a, v=b, x=x)


def _bits(value: float, d: DType) -> bytes:
    """The bytes of a float, the lowest first."""
    if d.name == "float16":
        return struct.pack("<e", value)
    if d.name in ("float32", "float64"):
        return struct.pack("<f" if d.bits == 32 else "<d", value)
    return np.array(value, d.numpy).tobytes()
