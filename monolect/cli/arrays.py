"""Run IR on NumPy arrays by the interpreters, for `monolect run --inputs`.

What it is for: the meaning of a graph, a kernel or a step after any pass, from the interpreters that are the oracles of
the tests. Two passes, or two machines, are compared by their printed results.
What it is not: it does not run on a device. No native code runs, so text IR from anybody is safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from monolect.base.errors import ArgumentError, FileFormatError, IRError, ShapeError
from monolect.command.forms import program_of
from monolect.command.interp import run_step
from monolect.ir.bounds import size_max
from monolect.ir.check.arrays import Array, storage
from monolect.ir.check.interp import evaluate, run_kernel
from monolect.ir.check.prove import check_bounds
from monolect.ir.ops import StepInfo
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.calls import is_body
from monolect.ir.uop import UOp, toposort
from monolect.schedule.callify import callify

SHOWN = 1000  # elements; a larger result is shortened when printed


def read_inputs(items: Sequence[str]) -> dict[Any, Any]:
    """Parse `0=a.npy` into an array by slot, and `n=5` into the value of a Variable by name.

    Raises ArgumentError for other text, FileFormatError for a file without an array.
    """
    found: dict[Any, Any] = {}
    for item in items:
        name, _, value = item.partition("=")
        key: Any = int(name) if name.isdecimal() else name
        if not value or key in found:
            raise ArgumentError("--inputs", expected="SLOT=FILE.npy or VARIABLE=NUMBER, each once", found=item)
        if isinstance(key, str):
            if not value.isdecimal():
                raise ArgumentError(f"--inputs {name}", expected="a number", found=value)
            found[key] = int(value)
            continue
        try:
            found[key] = np.load(value, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise FileFormatError("cannot read an input", expected="a .npy file", found=f"{value}: {error}") from None
    return found


def run_on(ir: UOp, inputs: Mapping[Any, Any]) -> dict[str, Array]:
    """Run `ir` and return its arrays by name: the results of a graph, or the operands that a kernel or step writes.

    Raises ArgumentError for a missing input or a wrong dtype, ShapeError for a wrong shape, IRError for IR without an
    interpreter, and VerifyError for a kernel whose indices are not proven to be in bounds.
    """
    if ir.op == "FUNCTION" and isinstance(ir.arg, StepInfo):
        return _of_step(ir, inputs)
    order = toposort(ir, stop=lambda u: u.op == "SINK" and u is not ir)
    is_schedule = any(u.op in ("CALL", "LINEAR") for u in order)
    if ir.op == "SINK" and not is_schedule:
        return _of_kernel(ir, order, inputs)
    if ir.op not in ("TUPLE", "FUNCTION") or is_schedule:
        expected = "a graph, a kernel before `linearize`, or a step"
        raise IRError("IR that cannot be run on arrays", expected=expected, found=ir.op, op=ir.op)
    if ir.op == "TUPLE" and any(u.op == "BUFFER" for u in order):
        ir = callify(ir)  # that pass numbers the inputs
    body = ir.src[0] if ir.op == "FUNCTION" else ir
    params = _params(toposort(*body.src, stop=is_body))
    values = evaluate(body.src, {p: _bound(p, inputs) for p in params})
    return {f"result {k}": np.asarray(v) for k, v in enumerate(values)}


def _of_kernel(sink: UOp, order: Sequence[UOp], inputs: Mapping[Any, Any]) -> dict[str, Array]:
    if not any(u.op == "INDEX" and u.shape for u in order):  # the interpreter clips an index to its memory
        check_bounds(sink)
    written = {memory_of(u.src[0]) for u in order if u.op in ("STORE", "ATOMICADD")}
    buffers: dict[UOp, Any] = {}
    for p in _params(order):
        is_output = p in written and p.arg.slot not in inputs
        buffers[p] = np.zeros(_size(p), storage(p.dtype)) if is_output else _bound(p, inputs)
        if p.arg.name is None:
            buffers[p] = buffers[p].reshape(-1)
    run_kernel(sink, buffers)
    return {f"PARAM {p.arg.slot}": buffers[p] for p in sorted(written & buffers.keys(), key=lambda p: p.arg.slot)}


def _of_step(step: UOp, inputs: Mapping[Any, Any]) -> dict[str, Array]:
    params = _params(toposort(program_of(step), stop=lambda u: u.op in ("SINK", "PROGRAM")))
    writes = {k for k, role in enumerate(step.arg.roles) if role in ("result", "state")}
    given = {p.arg.slot: _bound(p, inputs) for p in params if p.arg.slot not in writes or p.arg.slot in inputs}
    sizes = {p.arg.name: given.pop(p.arg.slot) for p in params if p.arg.name is not None}
    memory = run_step(step, given, sizes)
    found = {p.arg.slot: memory.of(p).view(storage(p.dtype)) for p in params if p.arg.slot in writes}
    return {f"PARAM {slot}": found[slot] for slot in sorted(found)}


def _params(order: Iterable[UOp]) -> list[UOp]:
    return sorted((u for u in order if u.op == "PARAM"), key=lambda p: p.arg.slot)


def _size(p: UOp) -> int:
    return prod(size_max(n) if n.__class__ is UOp else n for n in p.shape)


def _bound(p: UOp, inputs: Mapping[Any, Any]) -> Any:
    """Return the array of a PARAM, or the value of a Variable, from `inputs`."""
    key = p.arg.slot if p.arg.name is None else p.arg.name
    if key not in inputs:
        what = f"a Variable in {p.arg.min}..{p.arg.max}" if p.arg.name else f"{p.dtype.name} {p.shape}"
        raise ArgumentError(f"--inputs lacks {key}", expected=what, found=", ".join(map(str, inputs)) or "none")
    if p.arg.name is not None:
        n = inputs[key]
        if not p.arg.min <= n <= p.arg.max:
            raise ArgumentError(f"--inputs {key}", expected=f"{p.arg.min}..{p.arg.max}", found=n)
        return n
    array = inputs[key]
    if array.dtype != storage(p.dtype):
        raise ArgumentError(f"--inputs {key}: dtype", expected=str(storage(p.dtype)), found=str(array.dtype))
    if array.size != _size(p):
        raise ShapeError(f"--inputs {key}: shape", expected=p.shape, found=array.shape)
    return array.reshape(tuple(size_max(n) if n.__class__ is UOp else n for n in p.shape)).copy()


def show_arrays(found: Mapping[str, Array], folder: str) -> None:
    """Print results; with `folder`, also write them there as `.npy` files."""
    for name, array in found.items():
        print(f"# {name}: {array.dtype} {list(array.shape)}")
        with np.printoptions(threshold=SHOWN, precision=9):
            print(array)
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            np.save(Path(folder) / f"{name.replace(' ', '-')}.npy", array)


__all__ = ["read_inputs", "run_on", "show_arrays"]
