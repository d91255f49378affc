"""Render LINEAR programs as entry points of a WGSL module. Buffers are variables of the module, not parameters.

Memory consists of 32-bit words; elements of fewer bits are packed in words. A buffer of packed elements that is
written, or one that several lanes add to, is an array of atomic words: a lane changes its own bits of a word by one
atomic XOR, which keeps the bits of other lanes. A buffer whose accesses are all of four adjacent elements is an array
of vectors. If a kernel has more buffers than the adapter can bind, the smallest are joined into one buffer; the device
copies them in and out. What it does not do: it does not trust drivers to round every sum; see `_rounded`.

Invariant: a module may have several kernels, whose variables have different names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from monolect.backend.common.clike.program import CLOSED, OPEN, Position
from monolect.backend.common.clike.values import Value
from monolect.backend.common.clike.workgroups import is_small
from monolect.backend.common.launch import launch_sizes
from monolect.backend.common.shaped import register_of, strip_after
from monolect.backend.webgpu import longs
from monolect.backend.webgpu.language import NATIVE, U32, WGSL, WORD_BYTES, language
from monolect.backend.webgpu.longs import PairRenderer
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import CompileError
from monolect.ir.bounds import size_max
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, toposort

LANES = 4  # elements of a vector
HIDDEN_ZERO = "nothing"  # name of a variable that is always 0, which no driver can infer
_CHAINS = {"ADD": ("ADD", "SUB", "MULACC"), "SUB": ("ADD", "SUB", "MULACC"), "MUL": ("MUL",)}


class WGSLRenderer(PairRenderer):
    """Renders one entry point and the module variables of its buffers.

    `number` is the index of the kernel in the module; `vectors` names the buffers that are arrays of vectors.
    """

    lang: WGSL

    def __init__(self, language: WGSL, linear: UOp, name: str, number: int = 0, vectors: frozenset[str] = frozenset()):
        if not language.index and _fits_int32_except_loads(linear):
            language = replace(language, index=language.small_index)
        super().__init__(language, linear, name)
        if not self.lang.index:
            expected = "an adapter with 64-bit integers, or smaller tensors"
            raise CompileError(f"{name}: an index needs more than 32 bits", expected=expected)
        self.suffix = f"_{number}" if number else ""
        self.globals: list[str] = []
        self.vectors = vectors
        self.accesses: dict[bool, set[str]] = {
            False: set(),
            True: set(),
        }  # True -> buffers with accesses of whole vectors, False -> with other accesses
        self.needs_hidden_zero = False
        self.joined = joined_offsets(self.params, self.lang)
        self.joined_word_offsets: dict[str, int] = {}  # joined buffer -> its offset in words
        self.atomic_words: set[str] = set()  # buffers that are arrays of atomic words
        changed = [u for u in linear.src if u.op in ("STORE", "ATOMICADD") and register_of(u.src[0]) is None]
        self.changed = {
            strip_after(u.src[0].src[0])
            for u in changed
            if self.lang.is_packed(d := u.src[1].dtype) or (u.op == "ATOMICADD" and d.name in language.atomic_add)
        }

    # ---- the module --------------------------------------------------------------------------------------------------
    def render(self) -> str:
        body = super().render()
        if self.needs_hidden_zero:  # 0, since no buffer has 2 GiB; drivers cannot infer that
            first = next(u for u in self.params if u.arg.name is None and u not in self.joined)
            size = WORD_BYTES if self.lang.is_packed(first.dtype) else first.dtype.itemsize
            size *= LANES if self.buffers[first] in self.vectors else 1
            length = f"arrayLength(&{self.buffers[first]}) >> {32 - size.bit_length()}u"
            body = body.replace("{\n", f"{{\n  let {HIDDEN_ZERO}: u32 = {length};\n", 1)
        return "\n".join([f"// {self.function_name}", *self.globals, body])

    def signature(self) -> str:
        sizes, binding = [], 0
        for u in self.params:
            if u.arg.name is not None:
                sizes.append(u)
                continue
            v = self._declared_buffer(u, f"data{u.arg.slot}")
            if u in self.joined:
                self._join(u, v)
                continue
            at = f"@group(0) @binding({binding}) var<storage, read_write>"
            self.globals.append(f"{at} {v}: array<{self._element_type(u, v)}>;")
            binding += 1
        if self.joined:
            at = f"@group(0) @binding({binding}) var<storage, read_write>"
            self.globals.append(f"{at} joined{self.suffix}: array<atomic<u32>>;")
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

    def _join(self, u: UOp, v: str) -> None:
        """Give buffer `u`, named `v`, its offset in the joined buffer; a comment in the source tells the device."""
        self.atomic_words.add(v)
        self.joined_word_offsets[v] = self.joined[u] // WORD_BYTES
        stores = any(s.op in ("STORE", "ATOMICADD") and strip_after(s.src[0].src[0]) is u for s in self.program)
        use = "written" if stores else "read"
        self.globals.append(f"// {v} is joined: {u.arg.slot} at {self.joined[u]}, {buffer_bytes(u)} bytes, {use}")

    def local_buffer(self, u: UOp, v: str, n: int) -> None:
        v = self._declared_buffer(u, v)
        n = -(-n // (self.widest(u.dtype) if self.lang.is_packed(u.dtype) or v in self.vectors else 1))
        self.globals.append(f"var<workgroup> {v}: array<{self._element_type(u, v)}, {n}>;")

    def _declared_buffer(self, u: UOp, v: str) -> str:
        v = self.buffers[u] = v + self.suffix
        if u in self.changed:
            self.atomic_words.add(v)
        return v

    def _element_type(self, u: UOp, v: str) -> str:
        if v in self.atomic_words:
            return "atomic<u32>"
        if v in self.vectors:
            return f"vec{LANES}<{self.lang.stored(u.dtype)}>"
        return "u32" if self.lang.is_packed(u.dtype) else self.lang.stored(u.dtype)

    def special(self, u: UOp) -> str:
        return self.lang.cast(super().special(u), U32, u.dtype, 1)

    def _op(self, u: UOp, n: int, *x: str) -> str:
        if u.op == "XOR" and u.dtype is dtypes.bool:
            return f"({x[0]} != {x[1]})"
        return super()._op(u, n, *x)

    def op_add(self, u: UOp, n: int, a: str, b: str) -> str:
        return super().op_add(u, n, *self._rounded(u, a, b))

    def op_mul(self, u: UOp, n: int, a: str, b: str) -> str:
        return super().op_mul(u, n, *self._rounded(u, a, b))

    def op_sub(self, u: UOp, n: int, a: str, b: str) -> str:
        return f"({a} != {b})" if u.dtype is dtypes.bool else super().op_sub(u, n, *self._rounded(u, a, b))

    def _rounded(self, u: UOp, *xs: str) -> list[str]:
        """Return the operands, made opaque where drivers would simplify x + 1 - 1 to x, or x + y - x to y."""
        if not u.dtype.is_float:
            return list(xs)
        return [
            self._opaque(u.dtype, x) if s.op in _CHAINS[u.op] and _may_cancel(s, other) else x
            for x, s, other in zip(xs, u.src, u.src[::-1], strict=True)
        ]

    def _opaque(self, d: DType, x: str) -> str:
        """Return the value `x` XOR the hidden zero, so that drivers cannot simplify across it."""
        uint = U32 if d.bits == 32 else dtypes.uint64
        self.needs_hidden_zero = True
        bits = f"({self.lang.bitcast(x, d, uint, 1)} ^ {self.lang.cast(HIDDEN_ZERO, U32, uint, 1)})"
        return self.emit(d, 1, self.lang.bitcast(bits, uint, d, 1))

    # ---- words of memory ---------------------------------------------------------------------------------------------
    def widest(self, d: DType) -> int:
        return WORD_BYTES // d.itemsize if self.lang.is_packed(d) else LANES if d.itemsize <= WORD_BYTES else 1

    def _vector_at(self, p: Position) -> str:
        """Return the vector at the element `p`, whose index is a multiple of LANES."""
        return f"{p.buffer}[{int(p.start) // LANES if p.start.isdigit() else f'u32({p.start}) / {LANES}u'}]"

    def _is_vector_access(self, d: DType, p: Position, n: int) -> bool:
        """Record an access of `n` adjacent elements at `p`; return whether the buffer is an array of vectors."""
        self.accesses[n == LANES and not self.lang.is_packed(d)].add(p.buffer)
        return p.buffer in self.vectors

    def _word(self, d: DType, p: Position) -> tuple[str, str | int]:
        """Return the word that contains the element `p`, and the element's bit offset in it (int or expression)."""
        per = WORD_BYTES // d.itemsize if self.lang.is_packed(d) else 1
        if p.start.isdigit():
            return self._at(p, str(int(p.start) // per)), int(p.start) % per * d.itemsize * 8
        if per == 1:
            return self._at(p, p.start if self.lang.index == "i32" else f"u32({p.start})"), 0
        at = self.emit(U32, 1, f"u32({p.start})")
        return self._at(p, f"{at} / {per}u"), self.emit(U32, 1, f"({at} % {per}u) * {8 * d.itemsize}u")

    def _at(self, p: Position, i: str) -> str:
        """Return the expression of element or word `i` of a buffer, which may be a part of the joined buffer."""
        if p.buffer not in self.joined_word_offsets:
            return f"{p.buffer}[{i}]"
        return f"joined{self.suffix}[{i} + {self.joined_word_offsets[p.buffer]}]"

    def _read(self, d: DType, p: Position, word: str) -> str:
        """Return the value of a word, loaded atomically if needed: a `d`, or a u32 if elements are packed."""
        if p.buffer not in self.atomic_words:
            return word
        t = "u32" if self.lang.is_packed(d) else self.lang.stored(d)
        return f"atomicLoad(&{word})" if t == "u32" else f"bitcast<{t}>(atomicLoad(&{word}))"

    def _extracted(self, d: DType, word: str, shift: str | int) -> str:
        """Return the element of dtype `d` that begins `shift` bits into a word."""
        word = f"bitcast<i32>({word})" if self.lang.stored(d) == "i32" else word
        out = f"extractBits({word}, {shift}{'u' if isinstance(shift, int) else ''}, {8 * d.itemsize}u)"
        return f"({out} != 0u)" if d is dtypes.bool else out

    def _read_variable(self, t: str, x: str, gate: str, alt: str) -> str:
        """Declare a variable for the value `x` in memory, or `alt` if the gate is closed; return its name."""
        self.n += 1
        v = f"v{self.n}"
        if gate == OPEN:
            self.line(self.lang.declare.format(t=t, v=v, x=x))
        else:
            self.line(f"var {v}: {t} = {alt};")
            self.line(f"if ({gate}) {{ {v} = {x}; }}")
        return v

    def _load(self, d: DType, n: int, p: Position) -> str:
        return self._gated(d, p, OPEN, "")

    def _gated(self, d: DType, p: Position, gate: str, alt: str) -> str:
        return self._run(d, p, gate, [alt])[0]

    def _run(self, d: DType, p: Position, gate: str, alts: list[str]) -> list[str]:
        if gate == CLOSED:
            return alts
        if self._is_vector_access(d, p, len(alts)):
            t = f"vec{LANES}<{self.lang.stored(d)}>"
            v = self._read_variable(t, self._vector_at(p), gate, f"{t}({', '.join(alts)})")
            return [f"{v}.{c}" for c in "xyzw"]
        if not self.lang.is_packed(d):
            return [self._one(d, neighbour(p, i), gate, alt) for i, alt in enumerate(alts)]
        word, shift = self._word(d, p)
        w, out = self._read_variable("u32", self._read(d, p, word), gate, "0u"), []
        for i, alt in enumerate(alts):
            more = i * d.itemsize * 8
            at = shift + more if isinstance(shift, int) else f"{shift} + {more}u" if more else shift
            x = self.emit(d, 1, self._extracted(d, w, at))
            out.append(x if gate == OPEN else self.emit(d, 1, self.lang.select(d, 1, gate, x, alt)))
        return out

    def _one(self, d: DType, p: Position, gate: str, alt: str) -> str:
        return self._read_variable(self.lang.type(d), self._read(d, p, self._word(d, p)[0]), gate, alt)

    def _assign(self, d: DType, p: Position, x: str) -> str:
        return self._store_run(d, p, [x])

    def _store_run(self, d: DType, p: Position, xs: list[str]) -> str:
        if self._is_vector_access(d, p, len(xs)):
            return f"{self._vector_at(p)} = vec{LANES}<{self.lang.stored(d)}>({', '.join(xs)});"
        if not self.lang.is_packed(d):
            words = [self._word(d, neighbour(p, i))[0] for i in range(len(xs))]
            if p.buffer not in self.atomic_words:
                return " ".join(f"{w} = {x};" for w, x in zip(words, xs, strict=True))
            bits = [self.lang.bitcast(x, d, U32, 1) for x in xs]
            return " ".join(f"atomicStore(&{w}, {x});" for w, x in zip(words, bits, strict=True))
        word, shift = self._word(d, p)
        n = 8 * d.itemsize
        texts = [self._bits(d, x) for x in xs]
        value = " | ".join(f"({x} << {i * n}u)" if i else x for i, x in enumerate(texts))
        if n * len(xs) == 32:
            return f"atomicStore(&{word}, {value});"
        mask = (1 << n * len(xs)) - 1
        if isinstance(shift, int):
            bit_mask, shifted = f"{mask << shift}u", f"(({value}) << {shift}u)"
        else:
            bit_mask, shifted = f"({mask}u << {shift})", f"(({value}) << {shift})"
        return f"atomicXor(&{word}, (atomicLoad(&{word}) ^ {shifted}) & {bit_mask});"

    def _bits(self, d: DType, x: str) -> str:
        """Return a packed element as a u32, with zeros in the other bits."""
        if d is dtypes.bool:
            return f"u32({x})"
        return x if self.lang.type(d) == "u32" else f"(bitcast<u32>({x}) & {(1 << d.bits) - 1}u)"

    def atomic(self, d: DType, p: Position, x: str) -> str:
        if d.name in self.lang.atomic_add:
            return self.lang.atomic_add[d.name].format(p=f"&{self._word(d, p)[0]}", x=x) + ";"
        old = self._load(d, 1, p)
        total = f"({old} | {x})" if d is dtypes.bool else self._wrapping("+", d, 1, old, x)
        return self._assign(d, p, self.emit(d, 1, total))


def _fits_int32_except_loads(linear: UOp) -> bool:
    """Whether all indices fit 32 bits, except those read from memory.

    Indices from memory are clamped to 32 bits, so an index outside of its tensor stays outside.
    """
    read: set[UOp] = set()
    for u in toposort(*linear.src):
        if u.dtype.kind == "x" and (u.op == "CAST" or not read.isdisjoint(u.src)):
            read.add(u)
        elif not is_small(u):
            return False
    return True


def neighbour(p: Position, i: int) -> Position:
    """Return the access `i` elements after `p`."""
    return p if not i else p._replace(start=str(int(p.start) + i) if p.start.isdigit() else f"{p.start} + {i}")


def buffer_bytes(u: UOp) -> int:
    """Return the largest size in bytes of a PARAM that is a buffer."""
    return size_max(count(u.shape)) * u.dtype.itemsize


def padded_bytes(n_bytes: int) -> int:
    """Round `n_bytes` up to whole words, and to a vector of words at least; every allocation has that many bytes."""
    return max(LANES, -(-n_bytes // WORD_BYTES)) * WORD_BYTES


def joined_offsets(params: Sequence[UOp], lang: WGSL) -> dict[UOp, int]:
    """Return PARAM -> byte offset in the joined buffer, for the smallest buffers that exceed the adapter's bindings.

    Only dtypes that are stored as words of 32 bits can be joined, not float16 or 64-bit dtypes.
    """
    buffers = [u for u in params if u.arg.name is None]
    if len(buffers) <= lang.most_buffers:
        return {}
    of_words = [u for u in buffers if u.dtype.itemsize <= WORD_BYTES and lang.stored(u.dtype) != "f16"]
    out, at = {}, 0
    for u in sorted(of_words, key=buffer_bytes)[: len(buffers) - lang.most_buffers + 1]:
        out[u] = at
        at += padded_bytes(buffer_bytes(u))
    return out


def _may_cancel(x: UOp, y: UOp) -> bool:
    """Whether y could cancel an operand of x: y or -y is an operand of x, or y and an operand of x are constants."""
    y = y.src[0] if y.op == "NEG" else y
    return y in x.src or (y.op == "CONST" and any(s.op == "CONST" for s in x.src))


def render_kernel(lang: WGSL, linear: UOp, name: str, number: int = 0) -> str:
    """Return the text of one kernel. The first of two passes finds the buffers that can be arrays of vectors."""
    first = WGSLRenderer(lang, linear, name, number)
    text = first.render()
    vectors = first.accesses[True] - first.accesses[False] - first.atomic_words
    return WGSLRenderer(lang, linear, name, number, frozenset(vectors)).render() if vectors else text


def render_module(kernels: list[tuple[str, UOp]], lang: WGSL) -> str:
    """Return one WGSL source with an entry point for each (name, LINEAR)."""
    texts = [render_kernel(lang, linear, name, k) for k, (name, linear) in enumerate(kernels)]
    more = [longs.FUNCTIONS] if any(longs.PREFIX in text for text in texts) else []
    return "\n".join([lang.header, *more, *texts])


__all__ = [
    "LANES",
    "NATIVE",
    "WGSL",
    "WORD_BYTES",
    "WGSLRenderer",
    "joined_offsets",
    "language",
    "render_kernel",
    "render_module",
    "padded_bytes",
]
