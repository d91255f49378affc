"""Interpret steps on NumPy arrays: the reference semantics of a command buffer, in any order that it allows.

What it is for: the oracle of the COMMAND stage. Memory is a byte array for each PARAM and BUFFER, filled with a poison
that is nan in floats. Items (kernel launches and copies) run in sequence, or in a random order that respects AFTER; the
results must be identical to the bit. Loops and branches around items, and copies between devices, are supported.
What it is not: fast, or a definition of packed blocks. Their layout exists only in compiled programs. So a kernel with
packed blocks reads the constants that they were packed from, and a filling kernel stores nothing.

Invariant: the interpreter reads and writes only its own memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from monolect.base.errors import IRError
from monolect.command.forms import (
    buffer_bytes,
    calls_in,
    is_scalar,
    is_size,
    items_of,
    kernel_of,
    once_of,
    operands_of,
    program_of,
    read_operand,
)
from monolect.ir.check.arrays import Array, storage
from monolect.ir.check.interp import evaluate, run_kernel
from monolect.ir.ops import KernelInfo
from monolect.ir.uop import UOp, toposort

POISON = 0xFF  # byte of memory that was not written: nan in floats, -1 in signed integers


class Memory:
    """The memory of an interpreted step: a byte array for each PARAM and BUFFER, made at first use.

    `given`: initial contents of PARAMs, an array by slot. All other memory is filled with POISON at first.
    """

    def __init__(self, given: Mapping[int, Any]) -> None:
        self.given = given
        self.bytes: dict[UOp, Array] = {}
        self.sizes: dict[tuple, int] = {}

    def of(self, base: UOp) -> Array:
        """Return the byte array of `base`, a PARAM or BUFFER."""
        if base not in self.bytes:
            array = self.given.get(base.arg.slot) if base.op == "PARAM" else None
            found = np.full(buffer_bytes(base), POISON, np.uint8)
            if array is not None:
                raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                found[: len(raw)] = raw
            self.bytes[base] = found
        return self.bytes[base]

    def view(self, u: UOp, env: Mapping[UOp, int]) -> Array:
        """Return the elements of the operand `u` as an array that shares the memory. `env`: values of sizes and RANGEs.

        Raises IRError for an operand outside of its memory.
        """
        o = read_operand(u)
        offset = number(o.offset, env)
        n = 0 if 0 in u.shape else buffer_bytes(u)
        raw = self.of(o.base)[offset : offset + n]
        if len(raw) != n:
            raise IRError("an operand outside of its memory", expected=n, found=len(raw), op=u.op)
        return raw.view(storage(u.dtype))


def number(x: Any, env: Mapping[UOp, int]) -> int:
    """Return the value of `x`, an int, a size, a RANGE, or index arithmetic of these. `env`: values of sizes (by PARAM
    or symbol) and RANGEs.
    """
    if x.__class__ is int:
        return int(x)
    names = {p: env[p] if p in env else env[p.arg.symbol] for p in toposort(x) if p.op == "PARAM" or p in env}
    return int(evaluate(x, {p: np.asarray(v) for p, v in names.items()}).reshape(-1)[0])


def run_step(
    step: UOp,
    given: Mapping[int, Any],
    sizes: Mapping[str, int] | None = None,
    order: random.Random | None = None,
    run: Callable[[UOp, dict[int, Array]], None] | None = None,
) -> Memory:
    """Interpret the planned step `step`; return its memory after the run.

    `given`: an array for each slot of a PARAM that holds a value before the step runs. `sizes`: the value of each
    Variable by name. `order`: if given, items run in a random order that AFTER allows. `run`: called as run(kernel,
    arrays by slot) to execute a kernel, instead of the interpreter of kernels.
    """
    memory = Memory(given)
    env: dict[Any, int] = {}
    program = program_of(step)
    for p in toposort(program, stop=lambda u: u.op in ("SINK", "PROGRAM")):
        if is_size(p):
            env[p.arg.symbol] = (sizes or {})[p.arg.name]
    runner = _Runner(memory, env, order, run or _run_kernel)
    runner.block(once_of(program))
    runner.block(items_of(program))
    return memory


class _Runner:
    """An executor of items on `memory`. `env`: the values of sizes by symbol, and of RANGEs by node.

    `order`: if given, items run in a random order that AFTER allows. `run(kernel, arrays by slot)` executes a kernel.
    """

    def __init__(
        self, memory: Memory, env: dict[Any, int], order: random.Random | None, run: Callable[[UOp, Any], None]
    ):
        self.memory, self.env, self.order, self.run = memory, env, order, run

    def block(self, items: Sequence[UOp]) -> None:
        """Run `items`, including the loops and branches among them."""
        left = [*items]
        while left:
            k = next((k for k, u in enumerate(left) if u.op in ("RANGE", "IF")), len(left))
            self.straight(left[:k])
            if k == len(left):
                return
            opened = left[k]
            end = next(e for e in range(k, len(left)) if left[e].op in ("END", "ENDIF") and opened in left[e].src)
            inside = left[k + 1 : end]
            if opened.op == "IF":
                if number(opened.src[0], self.env):
                    self.block(inside)
            else:
                for i in range(number(opened.src[0], self.env)):
                    self.env[opened] = i
                    self.block(inside)
                self.env.pop(opened, None)
            left = left[end + 1 :]

    def straight(self, items: Sequence[UOp]) -> None:
        """Run `items`, which contain no loops, in sequence or, with `order`, in a random order that AFTER allows."""
        calls = [c for c in calls_in(items) if c.op in ("CALL", "STORE")]
        if self.order is None:
            for c in calls:
                self.item(c)
            return
        waits = {c: {a for u in operands_of(c) for a in read_operand(u).after if a in calls} for c in calls}
        while waits:
            ready = [c for c, after in waits.items() if after.isdisjoint(waits)]
            chosen = self.order.choice(ready)
            del waits[chosen]
            self.item(chosen)

    def item(self, c: UOp) -> None:
        """Run `c`, a CALL or a copy."""
        if c.op == "STORE":
            to, source = operands_of(c)
            self.memory.view(to, self.env)[:] = self.memory.view(source, self.env)
            return
        kernel = kernel_of(c)
        if isinstance(kernel.arg, KernelInfo) and kernel.arg.fills:
            return
        args = {
            k: np.asarray(number(read_operand(u).base, self.env)) if is_scalar(u) else self.memory.view(u, self.env)
            for k, u in enumerate(operands_of(c))
        }
        self.run(kernel, args)


def _run_kernel(kernel: UOp, args: dict[int, Array]) -> None:
    """Run `kernel` by the interpreter of kernels. `args`: an array for each slot of a PARAM, which is changed in
    place.
    """
    params = {p.arg.slot: p for p in toposort(kernel) if p.op == "PARAM"}
    run_kernel(kernel, {p: args[k][: _count(p, args, params)] if args[k].shape else args[k] for k, p in params.items()})


def _count(p: UOp, args: Mapping[int, Array], params: Mapping[int, UOp]) -> int:
    """Return the number of elements of the PARAM `p`; a symbolic size is evaluated for the values of Variables in
    `args`.

    `args`: an array or number for each slot; `params`: the PARAM of each slot.
    """
    if not p.shape or p.shape[0].__class__ is int:
        return int(p.shape[0]) if p.shape else 1
    known = {q: args[k] for k, q in params.items() if q.arg.name is not None}
    symbols = {q.arg.symbol: v for q, v in known.items()}
    names = {q: symbols[q.arg.symbol] for q in toposort(p.shape[0]) if q.op == "PARAM"}
    return int(evaluate(p.shape[0], names).reshape(-1)[0])


__all__ = ["Memory", "number", "run_step"]
