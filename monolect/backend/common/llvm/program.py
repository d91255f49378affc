"""Render LINEAR programs as LLVM IR text: vectors stay vectors, accumulators become SSA values, no IR pass is needed.

This module walks over a program and its loops. `values` reads and reshapes values, `elementwise` has one method an op,
`memory` loads and stores, `types` writes types and constants. A loop is tested at its end if its bound is known to be
at least one. REG buffers never touch memory: their current values go through phis.

It makes no decision on a kernel: it writes the program that it gets.
Kernel signature: `void name(ptr args, i64 thread)`, args being 8-byte slots: buffer addresses, then scalar Variables.
The slot before the first one holds the address of local memory, `local_bytes` for each thread.
"""

from __future__ import annotations

from typing import NamedTuple

from monolect.backend.common.llvm.compile import LLVM_NATIVE
from monolect.backend.common.llvm.memory import MAX_VECTOR_BYTES, MemoryRenderer
from monolect.backend.common.llvm.types import Value, type_name
from monolect.backend.common.llvm.values import VALUES, is_interleaving
from monolect.backend.common.shaped import register_of, thread_local_layout
from monolect.base.errors import InternalError
from monolect.ir.bounds import min_max
from monolect.ir.placement import is_memory
from monolect.ir.uop import UOp
from monolect.rules.formula import UNLIKELY

_AT_USE = frozenset(("CONST", "STACK", "INDEX", "AFTER", "BUFFER", "GROUP", "EXPAND"))  # ops rendered at each use


class OpenLoop(NamedTuple):
    """A loop whose END is not rendered yet."""

    number: int
    before: str  # the block that enters it
    head: str  # label of its first block
    bound: str
    is_entered: bool  # the bound is at least 1, so it is tested only at the end
    phi_line: int  # number of the line of the phis, which are written at END
    carried: list[tuple[UOp, list[str], list[str]]]  # its accumulators: (REG buffer, registers before, phis)


class Renderer(MemoryRenderer):
    """Renders one kernel as an LLVM function."""

    store_separator = '  fence syncscope("singlethread") acq_rel'
    redirects_closed_loads = True

    def __init__(self, linear: UOp, name: str, vector_bytes: int = MAX_VECTOR_BYTES):
        super().__init__(vector_bytes)
        self.program = linear.src
        self.name = name
        self.block = "entry"
        self.loops: list[OpenLoop] = []
        self.stored = _stored_in_loops(self.program)
        self.fused = _fused_shapes(self.program)
        self.scratch = {"%dummy": 64}  # memory on the stack: name -> bytes

    def render(self) -> str:
        """Return the text of the function."""
        self.local_memory()
        for u in self.program:
            self.instruction(u)
        body = "\n".join(self.lines)
        head = f"define void @{self.name}(ptr %args, i64 %thread) #0 {{\nentry:\n"
        allocas = "".join(f"  {r} = alloca [{n} x i8], align 64\n" for r, n in self.scratch.items())
        fence = "  fence seq_cst\n" if self.has_nontemporal else ""  # only a fence orders non-temporal stores
        return f"{head}{allocas}{body}\n{fence}  ret void\n}}\n"

    def local_memory(self) -> None:
        """Emit the address of each LOCAL buffer in this thread's part of local memory."""
        n_bytes, offsets = thread_local_layout(self.program)
        if not n_bytes:
            return
        slot = self.emit("getelementptr inbounds i64, ptr %args, i64 -1")
        base = self.emit(f"load ptr, ptr {slot}, align 8")
        mine = self.emit(f"mul i64 %thread, {n_bytes}")
        base = self.emit(f"getelementptr inbounds i8, ptr {base}, i64 {mine}")
        for u, at in offsets.items():
            self.vals[u] = Value((), [self.emit(f"getelementptr inbounds i8, ptr {base}, i64 {at}") if at else base])

    def instruction(self, u: UOp) -> None:
        """Render one node of the program; ops of _AT_USE emit nothing here."""
        match u.op:
            case "PARAM":
                slot = self.emit(f"getelementptr inbounds i64, ptr %args, i64 {u.arg.slot}")
                kind = "ptr" if u.arg.name is None else "i64"
                self.vals[u] = Value((), [self.emit(f"load {kind}, ptr {slot}, align 8")])
            case "SPECIAL" if u.arg == "thread0":
                self.vals[u] = Value((), ["%thread"])
            case "RANGE":
                self.open_loop(u)
            case "END":
                self.close_loop()
            case "LOAD":
                self.vals[u] = self.load(u)
            case "STORE":
                self.store(u)
            case "ATOMICADD":
                self.atomic_add(u)
            case "PREFETCH":
                self.prefetch(u.src[0])
            case "REDUCE":
                self.vals[u] = self.reduce(u)
            case "SCAN":
                self.vals[u] = self.scan(u)
            case "PERMUTE":
                if u not in self.fused:
                    self.vals[u] = self.permute(u)
            case "SHRINK":
                self.vals[u] = self.shrink(u)
            case "INDEX" if not is_memory(u):
                self.vals[u] = self.pick(u)
            case "WMMA":
                self.vals[u] = self.multiply(u)
            case "RESHAPE":
                if u not in self.fused:
                    self.reshape(u)  # memoizes splats in this loop; each reader renders the RESHAPE again
            case op if op in VALUES:
                if not self.is_index_arithmetic(u):
                    self.vals[u] = self.elementwise(u)
            case op if op not in _AT_USE:
                raise InternalError(f"the LLVM renderer has no row for {op}")

    def multiply(self, u: UOp) -> Value:
        """Render WMMA; targets with matrix units override this."""
        raise InternalError("the LLVM renderer has no matrix unit", expected="a target's own", found=u.arg)

    def carried_type(self, b: UOp) -> str:
        """Return the LLVM type of each register of the accumulator `b`."""
        return type_name(b.dtype, b.shape[-1] if b.shape else 1)

    # ---- loops -------------------------------------------------------------------------------------------------------
    def open_loop(self, u: UOp) -> None:
        """Render RANGE: open a loop that counts from 0."""
        self.n += 1
        k = self.n
        bound = self.value(u.src[0]).regs[0]
        is_entered = min_max(u.src[0])[0] >= 1
        before, head = self.block, f"loop{k}"
        self.lines += [f"  br label %{head}", f"{head}:", ""]
        phi_line = len(self.lines) - 1
        carried = []
        for b in self.stored[u]:
            if (now := self.accumulators.get(b.arg.slot)) is not None:
                phis = [f"%p{k}_{b.arg.slot}_{j}" for j in range(len(now))]
                carried.append((b, now, phis))
                self.accumulators[b.arg.slot] = phis
        if not is_entered:
            often = ""
            if u.tag == UNLIKELY:
                self.declares.add('!0 = !{!"branch_weights", i32 1, i32 1000}')
                often = ", !prof !0"
            self.lines += [
                f"  %c{k} = icmp slt i64 %i{k}, {bound}",
                f"  br i1 %c{k}, label %body{k}, label %done{k}{often}",
                f"body{k}:",
            ]
        self.block = head if is_entered else f"body{k}"
        self.vals[u] = Value((), [f"%i{k}"])
        self.shared.append({})
        self.n_stores = 0
        self.loops.append(OpenLoop(k, before, head, bound, is_entered, phi_line, carried))

    def close_loop(self) -> None:
        """Render END: increment, test and branch back. Accumulators then have the values of the last iteration."""
        loop = self.loops.pop()
        k, before, head = loop.number, loop.before, loop.head
        self.shared.pop()
        latch = self.block
        self.lines.append(f"  %n{k} = add nuw nsw i64 %i{k}, 1")
        text = [f"  %i{k} = phi i64 [ 0, %{before} ], [ %n{k}, %{latch} ]"]
        for b, starts, phis in loop.carried:
            t = self.carried_type(b)
            for phi, start, last in zip(phis, starts, self.accumulators[b.arg.slot], strict=True):
                text.append(f"  {phi} = phi {t} [ {start}, %{before} ], [ {last}, %{latch} ]")
        self.lines[loop.phi_line] = "\n".join(text)
        if loop.is_entered:
            self.lines += [
                f"  %c{k} = icmp slt i64 %n{k}, {loop.bound}",
                f"  br i1 %c{k}, label %{head}, label %done{k}",
            ]
        else:
            self.lines.append(f"  br label %{head}")
            for b, _, phis in loop.carried:
                self.accumulators[b.arg.slot] = phis
        self.lines.append(f"done{k}:")
        self.block = f"done{k}"
        self.n_stores = 0


def _stored_in_loops(program: tuple[UOp, ...]) -> dict[UOp, list[UOp]]:
    """Return the REG buffers that are stored inside of each loop, by its RANGE."""
    out: dict[UOp, list[UOp]] = {}
    open_: list[UOp] = []
    for u in program:
        if u.op == "RANGE":
            open_.append(u)
            out[u] = []
        elif u.op == "END":
            open_.pop()
        elif u.op == "STORE" and (b := register_of(u.src[0])) is not None:
            for r in open_:
                if b not in out[r]:
                    out[r].append(b)
    return out


def _fused_shapes(program: tuple[UOp, ...]) -> set[UOp]:
    """Return the RESHAPEs and PERMUTEs that are rendered only as part of the nodes that read them."""
    out: set[UOp] = set()
    others: set[UOp] = set()  # nodes with another reader
    for u in program:
        inside = (
            set(u.src[:1]) if is_interleaving(u) else {x for x in u.src[:2] if x.op == "RESHAPE" and u.op == "WMMA"}
        )
        out |= inside | ({u} if is_interleaving(u) else set())
        others |= set(u.src) - inside
    return out - {x for x in others if not is_interleaving(x)}


def render_module(
    kernels: list[tuple[str, UOp]], renderer: type[Renderer] = Renderer, vector_bytes: int = MAX_VECTOR_BYTES
) -> str:
    """Render an LLVM module with a function for each (name, LINEAR), for a processor with vectors of `vector_bytes`."""
    parts, declares = [], set()
    for name, linear in kernels:
        r = renderer(linear, name, vector_bytes)
        parts.append(r.render())
        declares |= r.declares
    return "\n".join([*sorted(declares), *parts, "attributes #0 = { nounwind }", ""])


__all__ = ["LLVM_NATIVE", "Renderer", "render_module"]
