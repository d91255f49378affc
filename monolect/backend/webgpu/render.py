"""WGSL: the language's table, and programs as its entry points. Buffers are variables of the module, not parameters.

What is special: memory is made of words of 32 bits. Elements of fewer bits lie packed in words; in registers they are
of 32 bits, cut back after arithmetic. A buffer of packed elements that is written, or one that several lanes add to, is
an array of atomic words: a lane changes its own bits of a word by one atomic XOR, whatever others do to the rest.
What it does not do: rely on what WGSL leaves open: comparisons with nan are of equality, numbers that are not finite
are made at run time, functions are `rules/transcendental.py`'s.

Invariant: one module has any number of kernels, whose variables have names of their own.
"""

from __future__ import annotations

import math
from typing import Any

from monolect.backend.common.c_group import GroupRenderer
from monolect.backend.common.c_language import Language
from monolect.backend.common.c_style import ADD_ALONE, C_NATIVE, CLOSED, OPEN, Place
from monolect.backend.common.c_values import Value
from monolect.backend.common.launch import launch_sizes
from monolect.backend.common.shaped import ordered, register_of
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import CompileError, InternalError
from monolect.ir.ops import INVALID
from monolect.ir.uop import UOp

NATIVE = C_NATIVE
U32 = dtypes.uint32
WORD_BYTES = 4
NOTHING = "nothing"
_CHAINS = {"ADD": ("ADD", "SUB", "MULACC"), "SUB": ("ADD", "SUB", "MULACC"), "MUL": ("MUL",)}
_TYPES = {
    "bool": "bool", "int8": "i32", "int16": "i32", "int32": "i32", "uint8": "u32", "uint16": "u32", "uint32": "u32",
    "float32": "f32",
}  # fmt: skip
_SUFFIXES = {"f32": "f", "f64": "lf", "f16": "h", "i32": "i", "u32": "u", "i64": "li", "u64": "lu"}
_IDS = {f"{k}idx{i}": f"{v}.{c}" for k, v in (("g", "group"), ("l", "lane")) for i, c in enumerate("xyz")}
# not a constant, since constants must be finite
_OF_BITS = "fn {t}_of_bits(x: {u}) -> {t} {{ return bitcast<{t}>(x); }}\n"
# Mesa 22 takes comparisons of what was 32 bits with constants for false
_LONG = "fn long(x: i32) -> i64 { return i64(u64(bitcast<u32>(x) ^ 2147483648u)) - 2147483648li; }\n"
_WIDER = {"i32": "long({x})", "u32": "u64({x})"}
_ADD_FLOAT = (
    "for (var old = atomicLoad({p}); ; ) {{ let seen = atomicCompareExchangeWeak({p}, old, "
    "bitcast<u32>(bitcast<f32>(old) + {x})); if (seen.exchanged) {{ break; }} old = seen.old_value; }}"
)


class WGSL(Language):
    """What is of another kind than in C: no conversions unasked for, `select`, no integers under 32 bits."""

    def is_narrow(self, d: DType) -> bool:
        """Whether a variable has more bits than the values."""
        return d.is_int and d.bits < 32

    def is_packed(self, d: DType) -> bool:
        """Whether several elements share a word of memory."""
        return d.itemsize < WORD_BYTES and self.stored(d) != "f16"

    def literal(self, value: Any, d: DType) -> str:
        if d is dtypes.bool:
            return "true" if value and value is not INVALID else "false"
        if d.name == "float16" and "float16" in self.types and value is not INVALID and not math.isfinite(value):
            return self.cast(self.literal(value, dtypes.float32), dtypes.float32, d, 1)
        return super().literal(value, d)

    def cut(self, x: str, d: DType) -> str:
        """The value that the lowest bits of a variable have as a `d`."""
        return f"({x} & {(1 << d.bits) - 1}u)" if self.type(d) == "u32" else f"extractBits({x}, 0u, {d.bits}u)"

    def cast(self, x: str, s: DType, d: DType, n: int) -> str:
        t = self.type(d)
        if s is dtypes.bool and d.is_float and d.name not in self.types:
            raise InternalError(f"{self.name} converts no bool to {d.name}")
        if self.type(s) in _WIDER and t in ("i64", "u64"):  # the sign is the source's
            x, a = _WIDER[self.type(s)].format(x=x), "i64" if self.type(s) == "i32" else "u64"
        else:
            a = self.type(s)
        out = x if a == t else f"{t}({x})"
        return self.cut(out, d) if self.is_narrow(d) and s is not dtypes.bool and not s.is_float else out

    def bitcast(self, x: str, s: DType, d: DType, n: int) -> str:
        a, b = self.type(s), self.type(d)
        if a == b:
            return x
        if b == "f16":
            return f"f16(unpack2x16float({self.bitcast(x, s, U32, 1)}).x)"
        if a == "f16":
            x, a = f"pack2x16float(vec2<f32>(f32({x}), 0.0f))", "u32"
        if d.is_float and x[0].isdigit():
            return f"{b}_of_bits({x})"
        out = x if a == b else f"bitcast<{b}>({x})"
        return self.cut(out, d) if d.bits < 32 else out

    def compare(self, sign: str, d: DType, n: int, a: str, b: str) -> str:
        if d.is_float and sign == "!=":  # drivers differ on whether nan is unequal, not on whether it is equal
            return f"!({a} == {b})"
        if d is dtypes.bool and sign not in ("==", "!="):
            none, also = (f"!{a}", b) if sign[0] == "<" else (a, f"!{b}")
            return f"({none} {'|' if sign[1:] else '&'} {also})"
        return f"({a} {sign} {b})"

    def select(self, d: DType, n: int, c: str, a: str, b: str) -> str:
        return f"select({b}, {a}, {c})"

    def shift(self, sign: str, x: str, k: str) -> str:
        return f"({x} {sign} {k.rstrip('iul') + 'u' if k[0].isdigit() else f'u32({k})'})"


def language(has_half: bool = False, has_long: bool = True, has_double: bool = True) -> WGSL:
    """WGSL on an adapter with or without `shader-f16`, 64-bit integers and 64-bit floats, which need those."""
    types = dict(_TYPES)
    types |= {"float16": "f16"} if has_half else {}
    types |= {"int64": "i64", "uint64": "u64"} if has_long else {}
    types |= {"float64": "f64"} if has_double and has_long else {}
    bits = {t: u for t, u in (("f32", "u32"), ("f64", "u64")) if t in types.values()}
    return WGSL(
        name="webgpu",
        types=types,
        suffixes={d: _SUFFIXES[t] for d, t in types.items() if d != "bool"},
        wraps=True,
        convert="{t}({x})",
        functions={"SQRT": "sqrt({0})", "TRUNC": "trunc({0})", "FMA": "fma({0}, {1}, {2})"},
        declare="let {v}: {t} = {x};",
        variable="var {v}: {t};",
        loop="for (var {i}: {t} = 0; {i} < {n}; {i}++) {{",
        kernel="@compute @workgroup_size({block})\nfn {name}({params}) {{",
        arguments=("@builtin(workgroup_id) group: vec3<u32>", "@builtin(local_invocation_id) lane: vec3<u32>"),
        barrier="workgroupBarrier(); storageBarrier();",
        ids=_IDS,
        atomic_add={
            "int32": "atomicAdd({p}, bitcast<u32>({x}))",
            "uint32": "atomicAdd({p}, {x})",
            "float32": _ADD_FLOAT,
            "": ADD_ALONE,
        },
        header=("enable f16;\n" if has_half else "")
        + "".join(_OF_BITS.format(t=t, u=u) for t, u in bits.items())
        + (_LONG if has_long else ""),
        index="i64" if has_long else "",
        small_index="i32",
    )


class WGSLRenderer(GroupRenderer):
    """One entry point, and the variables of the module that are its buffers. `number`: of the kernel in the module."""

    lang: WGSL

    def __init__(self, language: WGSL, linear: UOp, name: str, number: int = 0):
        super().__init__(language, linear, name)
        if not self.lang.index:
            expected = "an adapter with 64-bit integers, or smaller tensors"
            raise CompileError(f"{name}: an index needs more than 32 bits", expected=expected)
        self.suffix = f"_{number}" if number else ""
        self.globals: list[str] = []
        self.has_nothing = False  # whether a 0 is needed that no driver can see
        self.atomic_words: set[str] = set()  # buffers whose words several lanes may change
        changed = [u for u in linear.src if u.op in ("STORE", "ATOMICADD") and register_of(u.src[0]) is None]
        self.changed = {
            ordered(u.src[0].src[0])
            for u in changed
            if self.lang.is_packed(d := u.src[1].dtype) or (u.op == "ATOMICADD" and d.name in language.atomic_add)
        }

    # ---- the module --------------------------------------------------------------------------------------------------
    def render(self) -> str:
        body = super().render()
        if self.has_nothing:  # no buffer has 2 GiB, but drivers do not know
            first = next(u for u in self.params if u.arg.name is None)
            size = WORD_BYTES if self.lang.is_packed(first.dtype) else first.dtype.itemsize
            length = f"arrayLength(&{self.buffers[first]}) >> {32 - size.bit_length()}u"
            body = body.replace("{\n", f"{{\n  let {NOTHING}: u32 = {length};\n", 1)
        return "\n".join([f"// {self.function_name}", *self.globals, body])

    def signature(self) -> str:
        sizes, binding = [], 0
        for u in self.params:
            if u.arg.name is not None:
                sizes.append(u)
                continue
            v = self._declared_buffer(u, f"data{u.arg.slot}")
            at = f"@group(0) @binding({binding}) var<storage, read_write>"
            self.globals.append(f"{at} {v}: array<{self._element_type(u)}>;")
            binding += 1
        if sizes:
            fields = ", ".join(f"size{u.arg.slot}: i32" for u in sizes)
            self.globals.append(f"struct Sizes{self.suffix} {{ {fields} }}")
            at = f"@group(0) @binding({binding}) var<uniform>"
            self.globals.append(f"{at} sizes{self.suffix}: Sizes{self.suffix};")
        for u in sizes:
            x = self.lang.cast(f"sizes{self.suffix}.size{u.arg.slot}", dtypes.int32, u.dtype, 1)
            self.vals[u] = Value([self.emit(u.dtype, 1, x)], 1)
        block = ", ".join(map(str, launch_sizes(self.program)[1]))
        params = ", ".join(self.lang.arguments)
        return self.lang.kernel.format(name=self.function_name, params=params, block=block)

    def local_buffer(self, u: UOp, v: str, n: int) -> None:
        v = self._declared_buffer(u, v)
        n = -(-n * u.dtype.itemsize // WORD_BYTES) if self.lang.is_packed(u.dtype) else n
        self.globals.append(f"var<workgroup> {v}: array<{self._element_type(u)}, {n}>;")

    def _declared_buffer(self, u: UOp, v: str) -> str:
        v = self.buffers[u] = v + self.suffix
        if u in self.changed:
            self.atomic_words.add(v)
        return v

    def _element_type(self, u: UOp) -> str:
        if u in self.changed:
            return "atomic<u32>"
        return "u32" if self.lang.is_packed(u.dtype) else self.lang.stored(u.dtype)

    def special(self, u: UOp) -> str:
        return self.lang.cast(super().special(u), U32, u.dtype, 1)

    def _op(self, u: UOp, n: int, *x: str) -> str:
        if u.op == "XOR" and u.dtype is dtypes.bool:
            return f"({x[0]} != {x[1]})"
        return super()._op(u, n, *x)

    def op_add(self, u: UOp, n: int, a: str, b: str) -> str:
        return super().op_add(u, n, self._rounded(u, a), b)

    def op_mul(self, u: UOp, n: int, a: str, b: str) -> str:
        return super().op_mul(u, n, self._rounded(u, a), b)

    def op_sub(self, u: UOp, n: int, a: str, b: str) -> str:
        if u.dtype is dtypes.bool:
            return f"({a} != {b})"
        return super().op_sub(u, n, self._rounded(u, a), b)

    def _rounded(self, u: UOp, a: str) -> str:
        """The first operand of x + 1 - 1 and its like: drivers take both constants together and forget to round."""
        x = u.src[0]
        if not (u.dtype.is_float and u.src[1].op == "CONST" and x.op in _CHAINS[u.op] and x.src[-1].op == "CONST"):
            return a
        uint = U32 if u.dtype.bits == 32 else dtypes.uint64
        self.has_nothing = True
        bits = f"({self.lang.bitcast(a, u.dtype, uint, 1)} ^ {self.lang.cast(NOTHING, U32, uint, 1)})"
        return self.emit(u.dtype, 1, self.lang.bitcast(bits, uint, u.dtype, 1))

    # ---- words of memory ---------------------------------------------------------------------------------------------
    def widest(self, d: DType) -> int:
        return WORD_BYTES // d.itemsize if self.lang.is_packed(d) else 1

    def _word(self, d: DType, p: Place) -> tuple[str, str | int]:
        """The word that an element lies in, and how many bits of it lie before the element."""
        if not self.lang.is_packed(d):
            return f"{p.buffer}[{p.start if self.lang.index == 'i32' else f'u32({p.start})'}]", 0
        per = WORD_BYTES // d.itemsize
        if p.start.isdigit():
            return f"{p.buffer}[{int(p.start) // per}]", int(p.start) % per * d.itemsize * 8
        at = self.emit(U32, 1, f"u32({p.start})")
        return f"{p.buffer}[{at} / {per}u]", self.emit(U32, 1, f"({at} % {per}u) * {8 * d.itemsize}u")

    def _read(self, d: DType, p: Place, word: str) -> str:
        """The word as a value: of `d`, or of bits where elements are packed."""
        if p.buffer not in self.atomic_words:
            return word
        t = "u32" if self.lang.is_packed(d) else self.lang.stored(d)
        return f"atomicLoad(&{word})" if t == "u32" else f"bitcast<{t}>(atomicLoad(&{word}))"

    def _part(self, d: DType, word: str, shift: str | int) -> str:
        """The element that lies so many bits into a word."""
        word = f"bitcast<i32>({word})" if self.lang.stored(d) == "i32" else word
        out = f"extractBits({word}, {shift}{'u' if isinstance(shift, int) else ''}, {8 * d.itemsize}u)"
        return f"({out} != 0u)" if d is dtypes.bool else out

    def _fresh(self, t: str, x: str, gate: str, alt: str) -> str:
        """What memory has now, or `alt` where the gate is closed, as a new variable."""
        self.n += 1
        v = f"v{self.n}"
        if gate == OPEN:
            self.line(self.lang.declare.format(t=t, v=v, x=x))
        else:
            self.line(f"var {v}: {t} = {alt};")
            self.line(f"if ({gate}) {{ {v} = {x}; }}")
        return v

    def _load(self, d: DType, n: int, p: Place) -> str:
        return self._gated(d, p, OPEN, "")

    def _gated(self, d: DType, p: Place, gate: str, alt: str) -> str:
        return self._run(d, p, gate, [alt])[0]

    def _run(self, d: DType, p: Place, gate: str, alts: list[str]) -> list[str]:
        if gate == CLOSED:
            return alts
        word, shift = self._word(d, p)
        if not self.lang.is_packed(d):
            return [self._fresh(self.lang.type(d), self._read(d, p, word), gate, alts[0])]
        w, out = self._fresh("u32", self._read(d, p, word), gate, "0u"), []
        for i, alt in enumerate(alts):
            more = i * d.itemsize * 8
            at = shift + more if isinstance(shift, int) else f"{shift} + {more}u" if more else shift
            x = self.emit(d, 1, self._part(d, w, at))
            out.append(x if gate == OPEN else self.emit(d, 1, self.lang.select(d, 1, gate, x, alt)))
        return out

    def _assign(self, d: DType, p: Place, x: str) -> str:
        return self._store_run(d, p, [x])

    def _store_run(self, d: DType, p: Place, xs: list[str]) -> str:
        word, shift = self._word(d, p)
        if p.buffer not in self.atomic_words:
            return f"{word} = {xs[0]};"
        if not self.lang.is_packed(d):
            return f"atomicStore(&{word}, {self.lang.bitcast(xs[0], d, U32, 1)});"
        n = 8 * d.itemsize
        texts = [self._bits(d, x) for x in xs]
        value = " | ".join(f"({x} << {i * n}u)" if i else x for i, x in enumerate(texts))
        if n * len(xs) == 32:
            return f"atomicStore(&{word}, {value});"
        mask = (1 << n * len(xs)) - 1
        if isinstance(shift, int):
            kept, moved = f"{mask << shift}u", f"(({value}) << {shift}u)"
        else:
            kept, moved = f"({mask}u << {shift})", f"(({value}) << {shift})"
        return f"atomicXor(&{word}, (atomicLoad(&{word}) ^ {moved}) & {kept});"

    def _bits(self, d: DType, x: str) -> str:
        """The bits of a packed element, the others 0."""
        if d is dtypes.bool:
            return f"u32({x})"
        return x if self.lang.type(d) == "u32" else f"(bitcast<u32>({x}) & {(1 << d.bits) - 1}u)"

    def atomic(self, d: DType, p: Place, x: str) -> str:
        if d.name in self.lang.atomic_add:
            return self.lang.atomic_add[d.name].format(p=f"&{self._word(d, p)[0]}", x=x) + ";"
        old = self._load(d, 1, p)
        total = f"({old} | {x})" if d is dtypes.bool else self._wrapping("+", d, 1, old, x)
        return self._assign(d, p, self.emit(d, 1, total))


def render_module(kernels: list[tuple[str, UOp]], lang: WGSL) -> str:
    """One source text with an entry point for each (name, LINEAR)."""
    texts = [WGSLRenderer(lang, linear, name, k).render() for k, (name, linear) in enumerate(kernels)]
    return "\n".join([lang.header, *texts])


__all__ = ["NATIVE", "WGSL", "WGSLRenderer", "language", "render_module"]
