"""C: the language's table, and the kernel signature of native devices. Vectors are those of GCC and Clang.

What it does not do: include a header, or call a library. The code is freestanding.
"""

from __future__ import annotations

from monolect.backend.common import c_style
from monolect.backend.common.c_language import Language
from monolect.backend.common.c_style import C_NATIVE, Renderer
from monolect.backend.common.shaped import local_places
from monolect.ir.uop import UOp

NATIVE = C_NATIVE
MOST_LANES = 16
_BASES = {
    "f16": ("_Float16", 2), "f32": ("float", 4), "f64": ("double", 8), "i8": ("signed char", 1), "i16": ("short", 2),
    "i32": ("int", 4), "i64": ("long long", 8), "u8": ("unsigned char", 1), "u16": ("unsigned short", 2),
    "u32": ("unsigned int", 4), "u64": ("unsigned long long", 8),
}  # fmt: skip
_TYPES = {
    "bool": "_Bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float32": "f32", "float64": "f64",
}  # fmt: skip
# apart from the kernels: few calls of them run, and inside every kernel they would take long to compile
_GATED = {
    "load": "static __attribute__((noinline)) {t} load_{t}(const {e}* p, {m} c, {t} x) {{\n"
    "  for (int i = 0; i < {n}; i++) if (c[i]) x[i] = p[i];\n  return x;\n}}\n",
    "store": "static __attribute__((noinline)) void store_{t}({e}* p, {m} c, {t} x) {{\n"
    "  for (int i = 0; i < {n}; i++) if (c[i]) p[i] = x[i];\n}}\n",
}


def _typedefs(bases: dict[str, tuple[str, int]]) -> str:
    """Names for the types, their vectors, and vectors that lie anywhere in memory."""
    out = []
    for t, (c, size) in bases.items():
        out.append(f"typedef {c} {t};")
        n = 2
        while n <= MOST_LANES:
            out.append(f"typedef {t} {t}x{n} __attribute__((vector_size({n * size})));")
            out.append(f"typedef {t} {t}x{n}_at __attribute__((vector_size({n * size}), aligned({size}), may_alias));")
            n *= 2
    return "\n".join(out) + "\n"


def _multiply_adds() -> str:
    """Multiply-adds that round once; the compiler makes one instruction of the lanes of a vector."""
    out = []
    for t, builtin in (("f32", "fmaf"), ("f64", "fma")):
        n = 1
        while n <= MOST_LANES:
            v, x = (t, "{0}") if n == 1 else (f"{t}x{n}", "{0}[i]")
            one = f"{x.format('c')} = __builtin_{builtin}({', '.join(map(x.format, 'abc'))});"
            loop = f"for (int i = 0; i < {n}; i++) " if n > 1 else ""
            out.append(f"static inline __attribute__((always_inline)) {v} fma_{v}({v} a, {v} b, {v} c) {{")
            out.append(f"  {loop}{one}\n  return c;\n}}")
            n *= 2
    return "\n".join(out) + "\n"


def language(has_half: bool) -> Language:
    """C, with or without a type for float16."""
    bases = {t: c for t, c in _BASES.items() if t != "f16" or has_half}
    return Language(
        name="c",
        types=_TYPES | ({"float16": "f16"} if has_half else {}),
        suffixes={"float32": "f", "int64": "LL", "uint64": "ULL", "uint32": "U"},
        index="i64",
        lanes=MOST_LANES,
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
        atomic_add={"": "{e} = {sum}"},  # one thread owns the kernel's whole target
        kernel="void {name}(const i64* args, i64 thread) {{",
        ids={"thread0": "thread"},
        header=_typedefs(bases) + _multiply_adds(),
    )


class CRenderer(Renderer):
    """One function; its arguments are taken from a table of slots."""

    def signature(self) -> str:
        head = super().signature()
        for u in self.params:
            v, t = self.buffers[u], self.lang.stored(u.dtype)
            if u.arg.name is None:
                self.line(f"{t}* const {v} = ({t}*)args[{u.arg.slot}];")
            else:
                self.line(f"const i64 {v} = args[{u.arg.slot}];")
        n_bytes, self.places_of_local = local_places(self.program)
        if n_bytes:
            self.line(f"char* const local = (char*)args[-1] + thread * {n_bytes};")
        return head

    def local_buffer(self, u: UOp, v: str, n: int) -> None:
        t = self.lang.stored(u.dtype)
        self.line(f"{t}* const {v} = ({t}*)(local + {self.places_of_local[u]});")


def render_module(kernels: list[tuple[str, UOp]], has_half: bool = True) -> str:
    """One source file with a function for each (name, LINEAR)."""
    return c_style.render_module(kernels, language(has_half), CRenderer)


__all__ = ["NATIVE", "render_module"]
