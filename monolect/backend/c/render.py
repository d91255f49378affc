"""Render LINEAR programs as freestanding C, with the vector extensions of GCC and Clang.

It defines the language table of C, the renderer for the device `c`, and the renderer for exported C programs.
What it does not do: the code includes no header and calls no library.
"""

from __future__ import annotations

import re
from collections import Counter

from monolect.backend.common.clike import program as c_style
from monolect.backend.common.clike.language import Language
from monolect.backend.common.clike.program import C_NATIVE, Renderer
from monolect.backend.common.clike.values import Value
from monolect.backend.common.shaped import thread_local_layout
from monolect.command.forms import accesses
from monolect.ir.uop import UOp

NATIVE = C_NATIVE
MAX_LANES = 16  # elements of the widest vector type
INLINE = "static inline __attribute__((always_inline))"
NOINLINE_FUNCTION = (
    "static __attribute__((noinline)) void"  # exported kernels are not inlined, however often they are called
)
_BASES = {
    "f16": ("_Float16", 2), "f32": ("float", 4), "f64": ("double", 8), "i8": ("signed char", 1), "i16": ("short", 2),
    "i32": ("int", 4), "i64": ("long long", 8), "u8": ("unsigned char", 1), "u16": ("unsigned short", 2),
    "u32": ("unsigned int", 4), "u64": ("unsigned long long", 8),
}  # fmt: skip
_TYPES = {
    "bool": "_Bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float32": "f32", "float64": "f64",
}  # fmt: skip
# masked accesses are functions of their own: they run rarely, and inlining them makes compilation slow
_GATED = {
    "load": "static __attribute__((noinline)) {t} load_{t}(const {e}* p, {m} c, {t} x) {{\n"
    "  for (int i = 0; i < {n}; i++) if (c[i]) x[i] = p[i];\n  return x;\n}}\n",
    "store": "static __attribute__((noinline)) void store_{t}({e}* p, {m} c, {t} x) {{\n"
    "  for (int i = 0; i < {n}; i++) if (c[i]) p[i] = x[i];\n}}\n",
}


def _typedefs(bases: dict[str, tuple[str, int]]) -> dict[str, str]:
    """Return typedefs by name: of scalars, of vectors (`f32x4`) and of vectors at any element address (`f32x4_at`)."""
    out = {}
    for t, (c, size) in bases.items():
        out[t] = f"typedef {c} {t};"
        n = 2
        while n <= MAX_LANES:
            v, n_bytes = f"{t}x{n}", n * size
            out[v] = f"typedef {t} {v} __attribute__((vector_size({n_bytes})));"
            out[f"{v}_at"] = f"typedef {t} {v}_at __attribute__((vector_size({n_bytes}), aligned({size}), may_alias));"
            n *= 2
    return out


def _multiply_adds() -> dict[str, str]:
    """Return the fused multiply-add functions by name, for scalars and vectors.

    GCC vectorizes a loop over the lanes, unless -O3 unrolls the loop first. Clang would split that loop, so it gets its
    builtin for vectors.
    """
    out = {}
    for t, builtin in (("f32", "fmaf"), ("f64", "fma")):
        n = 1
        while n <= MAX_LANES:
            v, x = (t, "{0}") if n == 1 else (f"{t}x{n}", "{0}[i]")
            one = f"{x.format('c')} = __builtin_{builtin}({', '.join(map(x.format, 'abc'))});"
            loop = f"for (int i = 0; i < {n}; i++) " if n > 1 else ""
            head = f"{INLINE} {v} fma_{v}({v} a, {v} b, {v} c) {{"
            body = f"  {loop}{one}\n  return c;"
            if n > 1:
                whole = "  return __builtin_elementwise_fma(a, b, c);"
                rolled = "#ifndef __clang__\n#pragma GCC unroll 1\n#endif"
                body = f"#if __has_builtin(__builtin_elementwise_fma)\n{whole}\n#else\n{rolled}\n{body}\n#endif"
            out[f"fma_{v}"] = f"{head}\n{body}\n}}"
            n *= 2
    return out


def _bases(has_half: bool) -> dict[str, tuple[str, int]]:
    return {t: c for t, c in _BASES.items() if t != "f16" or has_half}


def definitions(text: str, has_half: bool = True) -> str:
    """Return the typedefs and functions of the header that `text` uses, directly or through others."""
    known = _typedefs(_bases(has_half)) | _multiply_adds()
    needed: set[str] = set()
    found = set(re.findall(r"\w+", text)) & known.keys()
    while found:
        needed |= found
        found = {w for name in found for w in re.findall(r"\w+", known[name]) if w in known} - needed
    return "".join(f"{known[name]}\n" for name in known if name in needed)


def language(has_half: bool) -> Language:
    """Return the language table of C; without `has_half`, float16 values are stored as their 16 bits."""
    return Language(
        name="c",
        types=_TYPES | ({"float16": "f16"} if has_half else {}),
        suffixes={"float32": "f", "int64": "LL", "uint64": "ULL", "uint32": "U"},
        index="i64",
        lanes=MAX_LANES,
        vector="{t}x{n}",
        build="({v}){{{x}}}",
        wraps=True,  # -fwrapv
        masks=True,
        convert="(({t}){x})",
        convert_vector="__builtin_convertvector({x}, {v})",
        select_vector="(({v})((({i}){c} & ({i}){a}) | (~({i}){c} & ({i}){b})))",
        reinterpret="(((union {{ {a} x; {v} y; }}){{ {x} }}).y)",
        functions={
            "SQRT float32": "__builtin_sqrtf({0})",
            "SQRT float64": "__builtin_sqrt({0})",
            "TRUNC float32": "__builtin_truncf({0})",
            "TRUNC float64": "__builtin_trunc({0})",
            "FMA": "fma_{v}({0}, {1}, {2})",
        },
        lane_functions=frozenset(("SQRT", "TRUNC")),
        load_vector="*(const {t}_at*)({p})",
        store_vector="*({t}_at*)({p}) = {x}",
        load_gated="load_{t}({p}, {c}, {x})",
        store_gated="store_{t}({p}, {c}, {x})",
        on_demand=_GATED,
        declare="const {t} {v} = {x};",
        atomic_add={"": "{e} = {sum}"},  # one thread writes the whole target buffer, so a plain addition is enough
        kernel="void {name}(const i64* args, i64 thread) {{",
        ids={"thread0": "thread"},
        header="\n".join([*_typedefs(_bases(has_half)).values(), *_multiply_adds().values(), ""]),
    )


class CRenderer(Renderer):
    """Renders a kernel of the device `c`: a C function that reads its arguments from a table of 8-byte slots."""

    def signature(self) -> str:
        head = super().signature()
        for u in self.params:
            v, t = self.buffers[u], self.lang.stored(u.dtype)
            if u.arg.name is None:
                self.line(f"{t}* const {v} = ({t}*)args[{u.arg.slot}];")
            else:
                self.line(f"const i64 {v} = args[{u.arg.slot}];")
        n_bytes, self.local_offsets = thread_local_layout(self.program)
        if n_bytes:
            self.line(f"char* const local = (char*)args[-1] + thread * {n_bytes};")
        return head

    def local_buffer(self, u: UOp, v: str, n: int) -> None:
        t = self.lang.stored(u.dtype)
        self.line(f"{t}* const {v} = ({t}*)(local + {self.local_offsets[u]});")


class FunctionRenderer(Renderer):
    """Renders a kernel of an exported C program: a static function with typed parameters in the order of the slots.

    The parameters `thread` and `scratch` (local memory of all threads) follow if the kernel uses them.
    """

    def __init__(self, lang: Language, linear: UOp, name: str):
        super().__init__(lang, linear, name)
        self.access_kinds = accesses(linear)

    def render(self) -> str:
        """Return the text of the function without unused variables, which would cause compiler warnings."""
        lines = super().render().split("\n")
        reads = Counter(w for line in lines for w in re.findall(r"\bv\d+\b", line))
        for i in range(len(lines) - 1, -1, -1):  # backwards: a variable is read only in lines below it
            made = re.match(r" *const \w+ (v\d+) = ", lines[i])
            if made and reads[made[1]] == 1:
                reads.subtract(re.findall(r"\bv\d+\b", lines[i]))
                del lines[i]
        return "\n".join(lines)

    def signature(self) -> str:
        texts = []
        for u in self.params:
            if u.arg.name is None:
                v = self.buffers[u] = f"data{u.arg.slot}"
                const = "const " if self.access_kinds[u.arg.slot] == "read" else ""
                texts.append(f"{const}{self.lang.stored(u.dtype)}* {v}")
            else:
                v = f"size{u.arg.slot}"
                self.vals[u] = Value([v], 1)
                texts.append(f"i64 {v}")
        n_bytes, self.local_offsets = thread_local_layout(self.program)
        has_threads = any(u.op == "SPECIAL" for u in self.program)
        texts += ["i64 thread"] * (has_threads or bool(n_bytes)) + ["char* scratch"] * bool(n_bytes)
        if n_bytes:
            self.line(f"char* const local = scratch + thread * {n_bytes};")
        return f"{NOINLINE_FUNCTION} {self.function_name}({', '.join(texts)}) {{"

    def local_buffer(self, u: UOp, v: str, n: int) -> None:
        t = self.lang.stored(u.dtype)
        self.line(f"{t}* const {v} = ({t}*)(local + {self.local_offsets[u]});")


def render_functions(kernels: list[tuple[str, UOp]], has_half: bool = True) -> tuple[list[str], list[str]]:
    """Return a function for each (name, LINEAR), and the helper functions that they call.

    Helpers are always inlined: compilers warn about parameters that are wider than the processor's vectors.
    """
    rendered = [FunctionRenderer(language(has_half), linear, name) for name, linear in kernels]
    texts = [r.render() for r in rendered]
    shared = dict.fromkeys(f for r in rendered for f in r.functions_used)
    return texts, [f.replace("static __attribute__((noinline))", INLINE) for f in shared]


def render_module(kernels: list[tuple[str, UOp]], has_half: bool = True) -> str:
    """Return one C source with a function for each (name, LINEAR)."""
    return c_style.render_module(kernels, language(has_half), CRenderer)


__all__ = ["NATIVE", "definitions", "render_functions", "render_module"]
