"""Programs as entry points of WGSL. Buffers are variables of the module, not parameters.

What is special: memory is made of words of 32 bits. Elements of fewer bits lie packed in words. A buffer of packed
elements that is written, or one that several lanes add to, is an array of atomic words: a lane changes its own bits of
a word by one atomic XOR, whatever others do to the rest. A buffer that is only read and written four neighbours at a
time is an array of vectors. Where a kernel has more buffers than the adapter binds, the smallest are parts of one,
`joined`: the device copies them in and out. What it does not do: trust drivers to round every sum: see `_rounded`.

Invariant: one module has any number of kernels, whose variables have names of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from monolect.backend.common.clike.program import CLOSED, OPEN, Place
from monolect.backend.common.clike.values import Value
from monolect.backend.common.clike.workgroups import is_small
from monolect.backend.common.launch import launch_sizes
from monolect.backend.common.shaped import ordered, register_of
from monolect.backend.webgpu import longs
from monolect.backend.webgpu.language import NATIVE, U32, WGSL, WORD_BYTES, language
from monolect.backend.webgpu.longs import PairRenderer
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import CompileError
from monolect.ir.bounds import size_max
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, toposort

LANES = 4  # of a vector
NOTHING = "nothing"  # a 0 that no driver can see
_CHAINS = {"ADD": ("ADD", "SUB", "MULACC"), "SUB": ("ADD", "SUB", "MULACC"), "MUL": ("MUL",)}


class WGSLRenderer(PairRenderer):
    """One entry point, and the variables of the module that are its buffers.

    `number` is the kernel's in the module; `vectors` names buffers that are arrays of vectors.
    """

    lang: WGSL

    def __init__(self, language: WGSL, linear: UOp, name: str, number: int = 0, vectors: frozenset[str] = frozenset()):
        if not language.index and _is_small_but_for_what_is_read(linear):
            language = replace(language, index=language.small_index)
        super().__init__(language, linear, name)
        if not self.lang.index:
            expected = "an adapter with 64-bit integers, or smaller tensors"
            raise CompileError(f"{name}: an index needs more than 32 bits", expected=expected)
        self.suffix = f"_{number}" if number else ""
        self.globals: list[str] = []
        self.vectors = vectors
        self.accesses: dict[bool, set[str]] = {False: set(), True: set()}  # buffers, by whether they are of a vector
        self.has_nothing = False
        self.joined = joined(self.params, self.lang)
        self.places_of_joined: dict[str, int] = {}  # in words
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
            first = next(u for u in self.params if u.arg.name is None and u not in self.joined)
            size = WORD_BYTES if self.lang.is_packed(first.dtype) else first.dtype.itemsize
            size *= LANES if self.buffers[first] in self.vectors else 1
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
        """Say where in the joined buffer a buffer lies, also to the device."""
        self.atomic_words.add(v)
        self.places_of_joined[v] = self.joined[u] // WORD_BYTES
        stores = any(s.op in ("STORE", "ATOMICADD") and ordered(s.src[0].src[0]) is u for s in self.program)
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
        """The operands of x + 1 - 1, x + y - x and their like: drivers take them for x and y and forget to round."""
        if not u.dtype.is_float:
            return list(xs)
        return [
            self._kept(u.dtype, x) if s.op in _CHAINS[u.op] and _have_common(s, other) else x
            for x, s, other in zip(xs, u.src, u.src[::-1], strict=True)
        ]

    def _kept(self, d: DType, x: str) -> str:
        """The value, with a 0 added to its bits."""
        uint = U32 if d.bits == 32 else dtypes.uint64
        self.has_nothing = True
        bits = f"({self.lang.bitcast(x, d, uint, 1)} ^ {self.lang.cast(NOTHING, U32, uint, 1)})"
        return self.emit(d, 1, self.lang.bitcast(bits, uint, d, 1))

    # ---- words of memory ---------------------------------------------------------------------------------------------
    def widest(self, d: DType) -> int:
        return WORD_BYTES // d.itemsize if self.lang.is_packed(d) else LANES if d.itemsize <= WORD_BYTES else 1

    def _vector_at(self, p: Place) -> str:
        """The vector that lies at a multiple of its size."""
        return f"{p.buffer}[{int(p.start) // LANES if p.start.isdigit() else f'u32({p.start}) / {LANES}u'}]"

    def _of_vector(self, d: DType, p: Place, n: int) -> bool:
        """Whether so many neighbours are a vector of a buffer of vectors; and note that they could be."""
        self.accesses[n == LANES and not self.lang.is_packed(d)].add(p.buffer)
        return p.buffer in self.vectors

    def _word(self, d: DType, p: Place) -> tuple[str, str | int]:
        """The word that an element lies in, and how many bits of it lie before the element."""
        per = WORD_BYTES // d.itemsize if self.lang.is_packed(d) else 1
        if p.start.isdigit():
            return self._at(p, str(int(p.start) // per)), int(p.start) % per * d.itemsize * 8
        if per == 1:
            return self._at(p, p.start if self.lang.index == "i32" else f"u32({p.start})"), 0
        at = self.emit(U32, 1, f"u32({p.start})")
        return self._at(p, f"{at} / {per}u"), self.emit(U32, 1, f"({at} % {per}u) * {8 * d.itemsize}u")

    def _at(self, p: Place, i: str) -> str:
        """The i-th element or word of a buffer, which may be a part of the joined one."""
        if p.buffer not in self.places_of_joined:
            return f"{p.buffer}[{i}]"
        return f"joined{self.suffix}[{i} + {self.places_of_joined[p.buffer]}]"

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
        if self._of_vector(d, p, len(alts)):
            t = f"vec{LANES}<{self.lang.stored(d)}>"
            v = self._fresh(t, self._vector_at(p), gate, f"{t}({', '.join(alts)})")
            return [f"{v}.{c}" for c in "xyzw"]
        if not self.lang.is_packed(d):
            return [self._one(d, element(p, i), gate, alt) for i, alt in enumerate(alts)]
        word, shift = self._word(d, p)
        w, out = self._fresh("u32", self._read(d, p, word), gate, "0u"), []
        for i, alt in enumerate(alts):
            more = i * d.itemsize * 8
            at = shift + more if isinstance(shift, int) else f"{shift} + {more}u" if more else shift
            x = self.emit(d, 1, self._part(d, w, at))
            out.append(x if gate == OPEN else self.emit(d, 1, self.lang.select(d, 1, gate, x, alt)))
        return out

    def _one(self, d: DType, p: Place, gate: str, alt: str) -> str:
        return self._fresh(self.lang.type(d), self._read(d, p, self._word(d, p)[0]), gate, alt)

    def _assign(self, d: DType, p: Place, x: str) -> str:
        return self._store_run(d, p, [x])

    def _store_run(self, d: DType, p: Place, xs: list[str]) -> str:
        if self._of_vector(d, p, len(xs)):
            return f"{self._vector_at(p)} = vec{LANES}<{self.lang.stored(d)}>({', '.join(xs)});"
        if not self.lang.is_packed(d):
            words = [self._word(d, element(p, i))[0] for i in range(len(xs))]
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


def _is_small_but_for_what_is_read(linear: UOp) -> bool:
    """Whether indices need no more than 32 bits. Those read from memory may be anything: they are cut to 32 bits, which
    leaves what is in no tensor outside of all.
    """
    read: set[UOp] = set()
    for u in toposort(*linear.src):
        if u.dtype.kind == "x" and (u.op == "CAST" or not read.isdisjoint(u.src)):
            read.add(u)
        elif not is_small(u):
            return False
    return True


def element(p: Place, i: int) -> Place:
    """The i-th neighbour."""
    return p if not i else p._replace(start=str(int(p.start) + i) if p.start.isdigit() else f"{p.start} + {i}")


def buffer_bytes(u: UOp) -> int:
    """The size of a parameter that is a buffer."""
    return size_max(count(u.shape)) * u.dtype.itemsize


def words(n_bytes: int) -> int:
    """So many bytes as whole words, a vector of them at least: all memory is larger."""
    return max(LANES, -(-n_bytes // WORD_BYTES)) * WORD_BYTES


def joined(params: Sequence[UOp], lang: WGSL) -> dict[UOp, int]:
    """Buffers that a kernel finds as parts of one, and where: the smallest, of what can be made of words."""
    buffers = [u for u in params if u.arg.name is None]
    if len(buffers) <= lang.most_buffers:
        return {}
    of_words = [u for u in buffers if u.dtype.itemsize <= WORD_BYTES and lang.stored(u.dtype) != "f16"]
    out, at = {}, 0
    for u in sorted(of_words, key=buffer_bytes)[: len(buffers) - lang.most_buffers + 1]:
        out[u] = at
        at += words(buffer_bytes(u))
    return out


def _have_common(x: UOp, y: UOp) -> bool:
    """Whether y, or what it is the negative of, is an operand of x, or both have a constant."""
    y = y.src[0] if y.op == "NEG" else y
    return y in x.src or (y.op == "CONST" and any(s.op == "CONST" for s in x.src))


def render_kernel(lang: WGSL, linear: UOp, name: str, number: int = 0) -> str:
    """The text of one kernel: which buffers are arrays of vectors is known when it has been written once."""
    first = WGSLRenderer(lang, linear, name, number)
    text = first.render()
    vectors = first.accesses[True] - first.accesses[False] - first.atomic_words
    return WGSLRenderer(lang, linear, name, number, frozenset(vectors)).render() if vectors else text


def render_module(kernels: list[tuple[str, UOp]], lang: WGSL) -> str:
    """One source text with an entry point for each (name, LINEAR)."""
    texts = [render_kernel(lang, linear, name, k) for k, (name, linear) in enumerate(kernels)]
    more = [longs.FUNCTIONS] if any(longs.MARK in text for text in texts) else []
    return "\n".join([lang.header, *more, *texts])


__all__ = [
    "LANES",
    "NATIVE",
    "WGSL",
    "WORD_BYTES",
    "WGSLRenderer",
    "joined",
    "language",
    "render_kernel",
    "render_module",
    "words",
]
