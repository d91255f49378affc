"""Write a planned step as C: `model.c` and `model.h`. Each launch is a call, each kernel a function of the C renderer.

What it is for: readable text for any C11 compiler with vector extensions (gcc, clang). What it is not: it renders no
kernels (`backend/c/render`) and plans nothing (`layout`).
Invariant: every name comes from `Names`; every text of the user passes through `comment`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from monolect.backend.base import Call
from monolect.backend.c.render import definitions, language, render_functions
from monolect.base.dtype import DType
from monolect.base.target import Target
from monolect.command.forms import accesses, buffer_bytes
from monolect.export.data import MAGIC
from monolect.export.layout import ARENA, PREPARED, RAW, STATES, STORED, WEIGHTS, Kernel, Location, Model
from monolect.export.names import Names, comment
from monolect.export.sizes import bytes_text, factor_of, shape_text
from monolect.export.step import Parameter
from monolect.ir.ops import KernelInfo
from monolect.ir.pseudocode import pseudocode
from monolect.ir.uop import toposort
from monolect.pipeline import lower_kernel
from monolect.runtime.realize.lowering import READY

TEMPLATES = Path(__file__).parent / "templates"
MAX_STATIC_BYTES = 4 << 20  # bytes of a static array; `init` allocates a larger segment, in huge pages
MAX_NAMED_BYTES = 1 << 31  # bytes of a segment whose offsets are enum constants (ints); larger ones use numbers
MAX_LINES = 14  # lines of formulas in a kernel's comment; more are counted only
_TYPES = {"float32": "float", "float64": "double", "bool": "uint8_t"}
FIRST_CHECK = 16  # error code of the first check; lower codes are those of TEXTS


def stored_type(d: DType) -> str:
    """Return the C type of a dtype in the header; floats without a C type are unsigned integers with their bits."""
    return _TYPES.get(d.name) or f"{'int' if d.kind == 'i' else 'uint'}{8 * d.itemsize}_t"


class Source:
    """Write the C text of one model. All its functions have the prefix `name`."""

    def __init__(self, model: Model, target: Target, has_half: bool, name: str, names: Names, identity: int,
                 is_array: bool) -> None:  # fmt: skip
        self.model, self.target, self.has_half, self.name, self.names = model, target, has_half, name, names
        self.identity, self.is_array, self.lang = identity, is_array, language(has_half)
        shared = any(g.lanes for g in model.groups) or any(c.program.n_threads > 1 for c in model.calls)
        self.n_threads = model.n_threads if shared else 1
        self.by_slot = {p.slot: p for p in model.parameters}
        self.sizes = size_names(model)
        self.offsets: dict[tuple[str, int], tuple[str, str]] = {}  # (segment, offset) -> (C name, type)
        self.parts: list[str] = []  # functions that threads run in parallel

    # ---- the header --------------------------------------------------------------------------------------------------
    def header(self) -> str:
        """Return the text of the header `NAME.h`, where NAME is `name`."""
        name, m = self.name, self.model
        rows = [row for p in m.parameters for row in self._row(p)] or [" * no parameters"]
        notes = [f" * {comment(note)}." for note in m.notes]
        does = [f"reads the weights from the file {name}.weights"] * self.has_file
        does += ["sets the states to what they were when the step was exported"] * bool(m.n_bytes[STATES])
        init = f"/* Prepares the step: {', and '.join(does) or 'there is nothing to load'}. Call it before the first"
        init += " step, and again to start over." if m.n_bytes[STATES] else " step."
        return "\n".join([
            f"/* {name}: a step of monolect as C. One call at a time: memory is the program's own. */",
            f"#ifndef {name}_h", f"#define {name}_h", "#include <stddef.h>", "#include <stdint.h>", "",
            "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
            init, f" * Returns 0, or a code for {name}_error. */",
            f"int {name}_init({'const char *weights_file' if self.has_file else 'void'});", "",
            "/* One step. Arrays are stored row by row, do not overlap, and have these shapes:", *rows, *notes,
            f" * Returns 0, or a code for {name}_error. */",
            f"int {name}_step({self.declared()});", "",
            "/* The text of an error code. */", f"const char *{name}_error(int code);", "",
            "#ifdef __cplusplus", "}", "#endif", "#endif", "",
        ])  # fmt: skip

    @property
    def has_data(self) -> bool:
        """Whether there are weights or states."""
        return self.model.stored_bytes > 0

    @property
    def has_file(self) -> bool:
        """Whether `init` reads a weights file."""
        return self.has_data and not self.is_array

    def _row(self, p: Parameter) -> Iterator[str]:
        origin = f", named `{comment(p.origin)}` in Python" if p.origin != p.name else ""
        if p.kind == "size":
            least, most, m = bounds(self.model, p)
            step = f", a multiple of {m}" if m > 1 else ""
            yield f" *   {p.name}: a size, {least} to {most}{step}{origin}"
        else:
            what = {"input": "input", "update": "input; the step overwrites it with its new value", "output": "output"}[
                p.kind
            ]
            bits = "" if p.dtype.name in _TYPES or p.dtype.is_int else f" (bits of {p.dtype.name})"
            yield f" *   {p.name}{shape_text(p.shape, self.sizes)}: {what}{bits}{origin}"

    def declared(self) -> str:
        """Return the parameters of the step as a C parameter list."""
        return ", ".join(map(self._declared, self.model.parameters)) or "void"

    @staticmethod
    def _declared(p: Parameter) -> str:
        t = "int64_t " if p.kind == "size" else f"{stored_type(p.dtype)} *"
        return f"{'const ' if p.kind == 'input' else ''}{t}{p.name}"

    # ---- the source --------------------------------------------------------------------------------------------------
    def source(self) -> str:
        """Return the text of the source file `NAME.c`, where NAME is `name`."""
        m = self.model
        texts, shared = render_functions([(k.name, k.linear) for k in m.kernels], self.has_half)
        kernels = [f"{self._about(k)}{text}" for k, text in zip(m.kernels, texts, strict=True)]
        once = [self._call(c, 0, t) for c in m.once for t in range(c.program.n_threads)]
        step = self._step()
        body = "\n".join([*shared, *kernels, *once, step, *self.parts])
        threads, large = self.n_threads > 1, not all(map(self.is_static, m.n_bytes))
        return "\n".join([
            f"/* {self.name}: a step of monolect, as C11 with vectors of gcc and clang. See {self.name}.h.",
            " * To be compiled with -ffp-contract=off -fwrapv -fno-strict-aliasing, as the Makefile does. */",
            *(["#define _DEFAULT_SOURCE"] if threads or large else []),
            f'#include "{self.name}.h"', "#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>",
            *(["#include <pthread.h>", "#include <sched.h>", "#include <stdatomic.h>"] if threads else []),
            *(["#ifdef __linux__", "#include <sys/mman.h>", "#endif"] if large else []), "",
            "#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__", "#error weights and constants are little-endian", "#endif",
            '#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are arguments of functions of this file alone */', "",
            "/* ---- types: vectors, and vectors at any address ---- */",
            definitions(body + " i64 ", self.has_half),
            *self._memory(),
            "/* ---- kernels ---- */", *shared, *kernels,
            *([f"enum {{ THREADS = {self.n_threads} }};", (TEMPLATES / "pool.c").read_text()] if threads else []),
            *self.parts,
            "/* ---- the program ---- */", self._init(once), step, self._errors(),
        ])  # fmt: skip

    def _about(self, k: Kernel) -> str:
        """Return a C comment with the formulas that a kernel computes."""
        info = k.sink.arg
        if isinstance(info, KernelInfo) and info.fills:
            lines = ["copies weights into the blocks that kernels read"]
        else:
            text = pseudocode(lower_kernel(k.sink, self.target, last=READY))
            lines = re.sub(r"\bp(\d+)\b", r"data\1", text).splitlines()
        if len(lines) > MAX_LINES:
            lines = [*lines[: MAX_LINES - 1], f"... {len(lines) - MAX_LINES + 1} more lines"]
        given, named = ({u.arg.slot for u in us if u.op == "PARAM"} for us in (k.linear.src, toposort(k.sink)))
        if blocks := sorted(given - named):
            lines.append(f"in blocks: {_data(sorted(named - given))} as {_data(blocks)}")
        return "".join(f"{'/*' if i == 0 else ' *'} {comment_line(x)}\n" for i, x in enumerate(lines)) + " */\n"

    # ---- memory ------------------------------------------------------------------------------------------------------
    def _memory(self) -> list[str]:
        m = self.model
        out = ["/* ---- memory ---- */"]
        if self.is_array and self.has_data:
            out.append(f"extern const uint32_t {self.name}_weights[]; /* then the states */")
        what = {WEIGHTS: "weights that steps read", RAW: "weights that only init reads",
                STATES: "states that a step leaves to the next one", PREPARED: "weights that init has packed",
                ARENA: "intermediate buffers, which share memory where their lifetimes do not overlap"}  # fmt: skip
        for segment, n in m.n_bytes.items():
            if n == 0:
                continue
            out.append(f"/* {what[segment]}: {n} bytes */")
            if segment in (WEIGHTS, RAW) and self.is_array:
                start = f"(const unsigned char *){self.name}_weights + {m.n_bytes[WEIGHTS] if segment == RAW else 0}"
                out.append(f"static const unsigned char *const {segment} = {start};")
            elif self.is_static(segment):
                out.append(f"static _Alignas(64) unsigned char {segment}[{n}];")
            else:
                out.append(f"static unsigned char *{segment};")
            rows = sorted((at, *row) for (s, at), row in self.offsets.items() if s == segment)
            if rows:
                out += ["enum {", *(f"  {name} = {at}, /* {comment_line(text)} */" for at, name, text in rows), "};"]
        if m.scratch_bytes:
            out += ["/* local memory of kernels */", f"static _Alignas(64) char scratch[{m.scratch_bytes}];"]
        large = [(TEMPLATES / "taken.c").read_text()] * (not all(map(self.is_static, m.n_bytes)))
        return [*out, "static int is_ready;", "", *large]

    def is_static(self, segment: str) -> bool:
        """Whether a segment is a static array of the program; `init` allocates the others."""
        return self.model.n_bytes[segment] <= MAX_STATIC_BYTES or (self.is_array and segment in (WEIGHTS, RAW))

    def address(self, location: Location, offset: int, type_text: str) -> str:
        """Return the C expression of the address `offset` bytes after `location`, with a named offset if possible."""
        at = location.at + offset
        if self.model.n_bytes[location.segment] >= MAX_NAMED_BYTES:
            return f"({location.segment} + {at}u)"
        key = location.segment, at
        if key not in self.offsets:
            is_planned = location.segment == ARENA and location.name == ARENA
            name = self.names.new(f"t{len(self.offsets)}" if is_planned else f"at_{location.name}")
            self.offsets[key] = name, type_text
        return f"({location.segment} + {self.offsets[key][0]})"

    def operand(self, position: int, offset: int, dtype: DType, const: bool, n: int) -> str:
        """Return the C expression of an operand of a kernel: the address `offset` bytes after buffer number `position`,
        or a size. `const`: whether the kernel only reads the operand; `n`: its elements, for a comment.
        """
        p = self.by_slot.get(position)
        t = self.lang.stored(dtype)
        location = self.model.locations[position]
        if p is None:
            const = const or location.segment in (WEIGHTS, RAW)
            return f"({'const ' if const else ''}{t} *){self.address(location, offset, f'{dtype.name}[{n}]')}"
        name = f"call.{p.name}" if self.n_threads > 1 else p.name
        if p.kind == "size":
            m = factor_of(self.model.params[position])
            return name if m == 1 else f"{name} / {m}"
        if stored_type(dtype) == stored_type(p.dtype) and dtype.name in ("float32", "float64"):
            size = dtype.itemsize
            if offset % size == 0:
                return f"{name} + {offset // size}" if offset else name
        of = "const " if const or p.kind == "input" else ""
        start = f"(({of}char *){name} + {offset})" if offset else name
        return f"({of}{t} *){start}"

    # ---- calls -------------------------------------------------------------------------------------------------------
    def _call(self, c: Call, scratch: int, thread: int | str) -> str:
        """Return the C call of one launch for one thread; `scratch` is the byte offset of its local memory."""
        k = next(k for k in self.model.kernels if k.name == c.program.entry)
        how, args = accesses(k.linear), []
        for u in sorted((u for u in k.linear.src if u.op == "PARAM"), key=lambda u: u.arg.slot):
            position, offset = c.operands[u.arg.slot]
            args.append(self.operand(position, offset, u.dtype, how[u.arg.slot] == "read", _elements(u)))
        n_bytes = c.program.local_bytes
        if n_bytes or any(u.op == "SPECIAL" for u in k.linear.src):
            args.append(str(thread))
        if n_bytes:
            args.append(f"scratch + {scratch}" if scratch else "scratch")
        return f"  {c.program.entry}({', '.join(args)});"

    def _groups(self) -> Iterator[str]:
        """Yield the launches of a step, in order, as C statements."""
        m = self.model
        for group in m.groups:
            if group.lanes:
                lanes = [(t, lane) for t, lane in enumerate(group.lanes) if lane]
                cases = []
                for t, lane in lanes:
                    calls = [f"    {self._call(m.calls[i], m.scratch[i], part)}" for i, part in lane]
                    cases += [f"    case {t}:", *calls, "      break;"]
                yield self._parallel(["  switch (thread) {", *cases, "    default: break;", "  }"], len(group.lanes))
                continue
            for i in group.calls:
                c = m.calls[i]
                if c.program.n_threads > 1:
                    yield self._parallel([self._call(c, m.scratch[i], "thread")], c.program.n_threads)
                else:
                    yield self._call(c, m.scratch[i], 0)

    def _parallel(self, lines: Sequence[str], n: int) -> str:
        name = self.names.new(f"part{len(self.parts)}")
        self.parts.append("\n".join([f"static void {name}(i64 thread) {{", *lines, "}", ""]))
        return f"  parallel({name}, {n});"

    def _step(self) -> str:
        m, name = self.model, self.name
        lines = [f"  if (!is_ready) return {NOT_READY};"]
        for k, p in enumerate(p for p in m.parameters if p.kind == "size"):
            least, most, factor = bounds(m, p)
            off = f" || {p.name} % {factor}" if factor > 1 else ""
            lines.append(
                f"  if ({p.name} < {least} || {p.name} > {most}{off}) return {FIRST_CHECK + len(m.checks) + k};"
            )
        if self.n_threads > 1:
            lines += [f"  call.{p.name} = {p.name};" for p in m.parameters]
            fields = [f"  {self._declared(p)};" for p in m.parameters]
            self.parts.append(
                "\n".join(["/* the parameters of this call */", "static struct {", *fields, "} call;", ""])
            )
        used = "\n".join(calls := [*self._groups()])
        copies = [self._copy(*c) for c in m.copies]
        checks = [line for k in range(len(m.checks)) for line in self._check(k)]
        unused = [f"  (void){p.name};" for p in m.parameters if self.n_threads < 2 and p.kind != "size"
                  and not re.search(rf"\b{p.name}\b", used + "\n".join(copies + checks))]  # fmt: skip
        return "\n".join(
            [
                f"int {name}_step({self.declared()}) {{",
                *lines,
                *unused,
                *calls,
                *copies,
                *checks,
                "  return 0;",
                "}",
                "",
            ]
        )

    def _bytes(self, slot: int) -> str:
        return bytes_text(self.model.params[slot], self.sizes)

    def _copy(self, to: int, source: int) -> str:
        a, b = (self._start(k) for k in (to, source))
        return f"  memcpy({a}, {b}, {self._bytes(source)});"

    def _start(self, slot: int) -> str:
        p = self.by_slot.get(slot)
        if p is not None:
            return p.name
        u = self.model.params[slot]
        return self.address(self.model.locations[slot], 0, f"{u.dtype.name}[{_elements(u)}]").strip("()")

    def _check(self, k: int) -> Iterator[str]:
        check, least, greatest = self.model.checks[k]
        t = stored_type(self.model.params[least].dtype)
        low, high = (f"*(const {t} *)({self._start(s)})" for s in (least, greatest))
        yield f"  if ({low} < {check.first} || {high} >= {check.n}) return {FIRST_CHECK + k};"

    # ---- init, errors ------------------------------------------------------------------------------------------------
    def _init(self, once: Sequence[str]) -> str:
        m, name = self.model, self.name
        lines = []
        for segment, n in m.n_bytes.items():
            if n and not self.is_static(segment):
                lines.append(f"  if (!{segment} && !({segment} = taken({n}u))) return {NO_MEMORY};")
        if self.has_file:
            lines += [
                "  /* a head of 64 bytes: which model it is, and the bytes of weights and states that follow */",
                "  uint64_t head[8];", '  FILE *file = fopen(weights_file, "rb");', f"  if (!file) return {NO_FILE};",
                "  int whole = fread(head, sizeof head, 1, file) == 1;",
                f"  whole = whole && head[0] == 0x{MAGIC:x}u && head[1] == 0x{self.identity:x}u;",
            ]  # fmt: skip
            parts = [(s, m.n_bytes[s]) for s in STORED if m.n_bytes[s]]
            lines += [f"  whole = whole && fread({s}, 1, {n}u, file) == {n}u;" for s, n in parts]
            lines += ["  whole = whole && fgetc(file) == EOF;", "  fclose(file);", f"  if (!whole) return {BAD_FILE};"]
        elif states := m.n_bytes[STATES]:
            start = m.stored_bytes - states
            lines.append(f"  memcpy(states, (const unsigned char *){name}_weights + {start}, {states});")
        if self.n_threads > 1:
            lines.append(f"  if (!is_ready && !pool_start()) return {NO_MEMORY};")
        lines += [*once, *(["  free(raw);", "  raw = NULL;"] if not self.is_static(RAW) else [])]
        head = "const char *weights_file" if self.has_file else "void"
        return "\n".join([f"int {name}_init({head}) {{", *lines, "  is_ready = 1;", "  return 0;", "}", ""])

    def _errors(self) -> str:
        rows = [f'    case {code}: return "{quoted(text)}";' for code, text in error_texts(self.model).items()]
        return "\n".join([
            f"const char *{self.name}_error(int code) {{", "  switch (code) {", *rows,
            '    default: return "unknown code";', "  }", "}", "",
        ])  # fmt: skip


NO_FILE, BAD_FILE, NO_MEMORY, NOT_READY = 1, 2, 3, 4
TEXTS = {
    NO_FILE: "the file of weights cannot be opened",
    BAD_FILE: "the file of weights is damaged, or of another model",
    NO_MEMORY: "out of memory",
    NOT_READY: "init was not called, or failed",
}


def error_texts(model: Model) -> dict[int, str]:
    """Return the text of each error code."""
    texts = {0: "no error", **TEXTS}
    for k, (check, *_) in enumerate(model.checks):
        texts[FIRST_CHECK + k] = f"{check.name}: an index outside of {check.first} to {check.n - 1}"
    for k, p in enumerate(p for p in model.parameters if p.kind == "size"):
        least, most, factor = bounds(model, p)
        step = f", a multiple of {factor}" if factor > 1 else ""
        texts[FIRST_CHECK + len(model.checks) + k] = f"{p.name} is outside of {least} to {most}{step}"
    return texts


def size_names(model: Model) -> dict[tuple, str]:
    """Return for the symbol of each Variable the C expression of its PARAM's value."""
    out = {}
    for p in model.parameters:
        if p.kind == "size":
            u = model.params[p.slot]
            m = factor_of(u)
            out[u.arg.symbol] = p.name if m == 1 else f"({p.name} / {m})"
    return out


def bounds(model: Model, p: Parameter) -> tuple[int, int, int]:
    """Return (minimum, maximum, multiple) of a size parameter."""
    arg = model.params[p.slot].arg
    m = factor_of(model.params[p.slot])
    return arg.min * m, arg.max * m, m


def comment_line(text: str) -> str:
    """Return `text` as a line of a C comment, with its indentation."""
    return " " * (len(text) - len(text.lstrip())) + comment(text)


def quoted(text: str) -> str:
    """Return a text for use between quotes in C."""
    return comment(text).replace('"', "'")


def _data(slots: Sequence[int]) -> str:
    return ", ".join(f"data{k}" for k in slots)


def _elements(u: Any) -> int:
    return buffer_bytes(u) // u.dtype.itemsize


__all__ = ["FIRST_CHECK", "TEMPLATES", "Source", "bounds", "error_texts", "quoted", "size_names", "stored_type"]
