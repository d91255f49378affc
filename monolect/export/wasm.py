"""Write a planned step as WebAssembly: kernels compiled by LLVM, two functions that launch them, and a loader for node.

What it is for: a module linked by wasm-ld. Memory belongs to the module: the segments follow each other after
`__heap_base`, where the loader grows the memory and writes the weights. (As globals they would be zeros in the object
file.) What it is not: it renders no kernels (`backend/cpu`).
Invariant: the operand slots of a launch are stored right before it, so all launches share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from monolect.backend.base import Call
from monolect.backend.cpu import cross_targets
from monolect.base.dtype import DType
from monolect.base.errors import ArgumentError, ExportError
from monolect.capture.step import Jit
from monolect.command.forms import buffer_bytes
from monolect.export.c_program import filled
from monolect.export.c_source import FIRST_CHECK, bounds, error_texts, quoted, size_names
from monolect.export.data import head_of, identity, segment_data
from monolect.export.layout import ALIGN_BYTES, SEGMENTS, STORED, Model, plan
from monolect.export.names import Names
from monolect.export.sizes import IN_JAVASCRIPT, factor_of, size_text
from monolect.export.step import read
from monolect.ir.rewrite.normal import count
from monolect.tensor.tensor import Tensor

MACHINE, SCRATCH = "wasm32", "scratch"
MAX_BYTES = 1 << 32  # bytes that 32-bit addresses reach; larger models raise ExportError
ROOM_BYTES = 1 << 20  # bytes reserved for the module's stack and the operand slots of launches
ARRAYS = {
    "float32": "Float32Array", "float64": "Float64Array", "int8": "Int8Array", "int16": "Int16Array",
    "int32": "Int32Array", "int64": "BigInt64Array", "uint8": "Uint8Array", "uint16": "Uint16Array",
    "uint32": "Uint32Array", "uint64": "BigUint64Array", "bool": "Uint8Array",
}  # fmt: skip


def wasm_files(
    jit: Jit, name: str, tensors: Mapping[str, Tensor], capture: int | None, march: str, n_threads: int, is_array: bool
) -> dict[str, Iterable[Any]]:
    """Return the contents of each file of the WebAssembly program, in parts, by file name. Raises ArgumentError unless
    `march`, `n_threads` and `is_array` are the defaults, ExportError for a step that cannot be exported.
    """
    if march or n_threads != 1 or is_array:
        raise ArgumentError("export: target wasm", expected="no march, one thread, weights in a file")
    target = cross_targets.target(MACHINE)
    names = Names(["init", "step", "copy", "slots", *SEGMENTS])
    model = plan(read(jit, capture, names, target, tensors), target, names)
    _refuse_large(model)
    kernels = [(k.name, k.linear) for k in model.kernels]
    data = segment_data(model)
    number = identity(model, data)
    code = cross_targets.link_for(MACHINE, kernels, _Text(model).text(), ("init", "step"))
    files: dict[str, Iterable[Any]] = {f"{name}.wasm": [code], f"{name}.mjs": [_loader(model, name, number).encode()]}
    if model.stored_bytes:
        files[f"{name}.weights"] = [head_of(model, number), *data]
    return files


def _refuse_large(model: Model) -> None:
    """Raise ExportError for a model that does not fit into a 32-bit address space."""
    rows = dict(model.n_bytes) | {"local memory": model.scratch_bytes}
    rows["arguments and results"] = sum(buffer_bytes(model.params[p.slot]) + 64 for p in model.parameters)
    total = sum(rows.values()) + ROOM_BYTES
    if total > MAX_BYTES:
        largest = max(rows, key=lambda k: rows[k])
        expected = f"at most {MAX_BYTES} bytes: a smaller model, narrower weights, or --target c"
        found = f"{total} bytes, {rows[largest]} of them {largest}"
        raise ExportError("a model that does not fit into WebAssembly's memory", expected=expected, found=found)


def segment_starts(model: Model) -> tuple[dict[str, int], int]:
    """Return the byte offset of each segment after `__heap_base`, and the end of the last one."""
    starts, at = {}, 0
    for segment, n in {**model.n_bytes, SCRATCH: -(-model.scratch_bytes // ALIGN_BYTES) * ALIGN_BYTES}.items():
        starts[segment], at = at, at + n
    return starts, at


# ---- the module ------------------------------------------------------------------------------------------------------
class _Text:
    """Write the LLVM text of the functions `init` and `step`."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.starts, _ = segment_starts(model)
        self.by_slot = {p.slot: p for p in model.parameters}
        self.lines: list[str] = []
        self.n = 0

    def text(self) -> str:
        """Return the LLVM text that is linked with the kernels."""
        m = self.model
        most = max((len(c.operands) for c in (*m.once, *m.calls)), default=0)
        slots = f"@slots = internal global [{1 + most} x i64] zeroinitializer, align 16"
        return "\n".join(["", "@__heap_base = external global i8", slots, COPY, self.init(), self.step(), ""])

    def emit(self, text: str) -> str:
        self.n += 1
        self.lines.append(f"  %v.{self.n} = {text}")  # a dot: no name of a parameter
        return f"%v.{self.n}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def function(self, head: str, lines: Sequence[str]) -> str:
        base = [
            "  %v.heap = ptrtoint ptr @__heap_base to i64",
            "  %v.above = add i64 %v.heap, 63",
            "  %v.base = and i64 %v.above, -64",
        ]
        return "\n".join([f"define {head} {{", *base, *lines, "}"])

    def init(self) -> str:
        """Return the LLVM text of `init`, which runs the calls that depend only on weights."""
        self.lines = []
        for c in self.model.once:
            self.launch(c, 0)
        self.line("ret void")
        return self.function("void @init()", self.lines)

    def step(self) -> str:
        """Return the LLVM text of `step`: checks of sizes, launches, copies, checks of indices."""
        m = self.model
        self.lines = []
        params = ", ".join(f"{'i32' if p.kind == 'size' else 'ptr'} %{p.name}" for p in m.parameters)
        for k, p in enumerate(p for p in m.parameters if p.kind == "size"):
            least, most, factor = bounds(m, p)
            wide = self.emit(f"sext i32 %{p.name} to i64")
            tests = [self.emit(f"icmp slt i64 {wide}, {least}"), self.emit(f"icmp sgt i64 {wide}, {most}")]
            if factor > 1:
                tests.append(self.emit(f"icmp ne i64 {self.emit(f'srem i64 {wide}, {factor}')}, 0"))
            self.refuse(tests, FIRST_CHECK + len(m.checks) + k)
        for c, at in zip(m.calls, m.scratch, strict=True):
            self.launch(c, at)
        for copy in m.copies:
            self.copy(*copy)
        for k, (check, least_slot, greatest_slot) in enumerate(m.checks):
            low, high = (self.index(s) for s in (least_slot, greatest_slot))
            self.refuse(
                [self.emit(f"icmp slt i64 {low}, {check.first}"), self.emit(f"icmp sge i64 {high}, {check.n}")],
                FIRST_CHECK + k,
            )
        self.line("ret i32 0")
        return self.function(f"i32 @step({params})", self.lines)

    def refuse(self, tests: Sequence[str], code: int) -> None:
        """Emit a return of the error code `code` if one of the tests holds."""
        bad = tests[0]
        for test in tests[1:]:
            bad = self.emit(f"or i1 {bad}, {test}")
        self.n += 1
        n = self.n
        self.line(f"br i1 {bad}, label %bad.{n}, label %good.{n}")
        self.lines += [f"bad.{n}:", f"  ret i32 {code}", f"good.{n}:"]

    def address(self, position: int, offset: int) -> str:
        """Emit and return the i64 value of an operand: the address `offset` bytes after buffer number `position`, or a
        size.
        """
        p = self.by_slot.get(position)
        if p is not None and p.kind == "size":
            wide = self.emit(f"sext i32 %{p.name} to i64")
            factor = factor_of(self.model.params[position])
            return wide if factor == 1 else self.emit(f"sdiv i64 {wide}, {factor}")
        if p is None:
            location = self.model.locations[position]
            return self.emit(f"add i64 %v.base, {self.starts[location.segment] + location.at + offset}")
        start = self.emit(f"ptrtoint ptr %{p.name} to i64")
        return self.emit(f"add i64 {start}, {offset}") if offset else start

    def launch(self, c: Call, scratch: int) -> None:
        """Emit one launch: store its operands into the array `@slots`, then call the kernel. `scratch`: byte offset of
        its local memory.
        """
        values = []
        if c.program.local_bytes:
            values.append((0, self.emit(f"add i64 %v.base, {self.starts[SCRATCH] + scratch}")))
        linear = next(k.linear for k in self.model.kernels if k.name == c.program.entry)
        used = {u.arg.slot for u in linear.src if u.op == "PARAM"}
        values += [(1 + k, self.address(*o)) for k, o in enumerate(c.operands) if k in used]
        for slot, value in values:
            self.line(f"store i64 {value}, ptr {self.emit(f'getelementptr i64, ptr @slots, i64 {slot}')}, align 8")
        self.line(f"call void @{c.program.entry}(ptr {self.emit('getelementptr i64, ptr @slots, i64 1')}, i64 0)")

    def pointer(self, slot: int) -> str:
        return self.emit(f"inttoptr i64 {self.address(slot, 0)} to ptr")

    def copy(self, to: int, source: int) -> None:
        """Emit a copy of the bytes of PARAM `source` to PARAM `to`."""
        u = self.model.params[source]
        n = self.elements(count(u.shape))
        n_bytes = self.emit(f"mul i64 {n}, {u.dtype.itemsize}")
        self.line(f"call void @copy(ptr {self.pointer(to)}, ptr {self.pointer(source)}, i64 {n_bytes})")

    def elements(self, n: Any) -> str:
        """Emit and return the i64 value of a size `n`. Raises ExportError for an op without an instruction."""
        if n.__class__ is int or n.op == "CONST":
            return str(n if n.__class__ is int else n.arg[0])
        if n.op == "PARAM":
            p = next(
                p
                for p in self.model.parameters
                if p.kind == "size" and self.model.params[p.slot].arg.symbol == n.arg.symbol
            )
            return self.address(p.slot, 0)
        op = {"ADD": "add", "SUB": "sub", "MUL": "mul", "IDIV": "sdiv", "MOD": "srem"}.get(n.op)
        if op is None:
            raise ExportError("a size without a formula", expected="sums, products, quotients", found=n.op)
        a, b = (self.elements(s) for s in n.src)
        return self.emit(f"{op} i64 {a}, {b}")

    def index(self, slot: int) -> str:
        """Emit a load of the index that a check reads from PARAM `slot`; return it as an i64 value."""
        d: DType = self.model.params[slot].dtype
        x = self.emit(f"load i{d.bits}, ptr {self.pointer(slot)}")
        if d.bits == 64:
            return x
        return self.emit(f"{'zext' if d.is_unsigned else 'sext'} i{d.bits} {x} to i64")


COPY = """
define internal void @copy(ptr %to, ptr %from, i64 %n) {
entry:
  br label %next
next:
  %i = phi i64 [0, %entry], [%more, %byte]
  %left = icmp slt i64 %i, %n
  br i1 %left, label %byte, label %done
byte:
  %p = getelementptr i8, ptr %from, i64 %i
  %q = getelementptr i8, ptr %to, i64 %i
  %x = load i8, ptr %p
  store i8 %x, ptr %q
  %more = add i64 %i, 1
  br label %next
done:
  ret void
}
"""


# ---- the loader ------------------------------------------------------------------------------------------------------
def _loader(model: Model, name: str, number: int) -> str:
    """Return the JavaScript module for node that loads the WebAssembly module."""
    sizes = {
        symbol: text.replace("(", "(s.", 1) if "(" in text else f"s.{text}"
        for symbol, text in size_names(model).items()
    }
    starts, n_bytes = segment_starts(model)
    rows: list[str] = []
    results: list[str] = []
    arguments: list[str] = []
    for p in model.parameters:
        (results if p.kind == "output" else arguments).append(p.name)
        if p.kind == "size":
            rows.append(f'  {{ name: "{p.name}", kind: "size", bytes: 0 }},')
            continue
        u = model.params[p.slot]
        array = ARRAYS.get(p.dtype.name) or {1: "Uint8Array", 2: "Uint16Array"}[p.dtype.itemsize]
        length = f"(s) => {size_text(count(p.shape), sizes, IN_JAVASCRIPT)}"
        shape = "".join(f"[{size_text(n, sizes, IN_JAVASCRIPT)}]" for n in p.shape) or "a number"
        row = f'name: "{p.name}", kind: "{p.kind}", array: {array}, bytes: {buffer_bytes(u)}, length: {length}'
        rows.append(f"  {{ {row} }}, // {shape}")
    errors = [f'  {code}: "{quoted(text)}",' for code, text in error_texts(model).items() if code >= FIRST_CHECK]
    return filled(
        "model.mjs",
        NAME=name,
        RESULTS=", ".join(results),
        ARGUMENTS=", ".join(arguments),
        PARAMETERS="\n".join(rows),
        ERRORS="\n".join(errors),
        SEGMENTS=", ".join(f"[{starts[s]}, {model.n_bytes[s]}]" for s in STORED if model.n_bytes[s]),
        BYTES=str(n_bytes),
        IDENTITY=str(number),
    )


__all__ = ["MAX_BYTES", "wasm_files"]
