"""Turn a command table into Python functions of native code: a call binds addresses, runs the table and returns.

What it is for: a step of microseconds is one call from Python. Through ctypes, that call and the binding of its
arguments cost more than the kernels; CPython calls a built-in function (METH_FASTCALL) in about 30 ns.
What it does not do: check arguments or start threads.

Invariant: all addresses are in their slots before another Python thread can run: the interpreter lock is held until
then, and in `run_held` during the whole call.
"""

import ctypes
import functools
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

from monolect.backend.common.host.elf import load_object

_FASTCALL: Final = 0x80  # METH_FASTCALL, a flag of PyMethodDef: the function is called as f(self, items, count)
_SYMBOLS: Final = ("PyBytes_AsString", "PyLong_AsLongLong", "PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef")

# `self` is a bytes object of 8-byte words: pool, table, number of commands, slots, number of items n, n + 1 starts, and
# then pairs (slot, offset). Starts index words from the first start on. The pairs from start i to start i + 1 belong to
# item i: address i plus the offset is stored in the slot.
_DECLARED: Final = """
declare ptr @PyBytes_AsString(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare void @run_commands(ptr, ptr, i64)
declare void @none()
"""
_ENTRY: Final = """
define ptr @NAME(ptr %self, ptr %items, i64 %count) {
entry:
  %block = call ptr @PyBytes_AsString(ptr %self)
  %pool = load ptr, ptr %block, align 8
  %table.p = getelementptr i64, ptr %block, i64 1
  %table = load ptr, ptr %table.p, align 8
  %commands.p = getelementptr i64, ptr %block, i64 2
  %commands = load i64, ptr %commands.p, align 8
  %slots.p = getelementptr i64, ptr %block, i64 3
  %slots = load ptr, ptr %slots.p, align 8
  %numbers.p = getelementptr i64, ptr %block, i64 4
  %numbers = load i64, ptr %numbers.p, align 8
  %starts = getelementptr i64, ptr %block, i64 5
  %fewer = icmp slt i64 %count, %numbers
  %n = select i1 %fewer, i64 %count, i64 %numbers
  br label %items.next
items.next:
  %i = phi i64 [0, %entry], [%i.next, %bindings.next]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %bind, label %run
bind:
  %item.p = getelementptr ptr, ptr %items, i64 %i
  %item = load ptr, ptr %item.p, align 8
  %value = call i64 @PyLong_AsLongLong(ptr %item)
  %i.next = add i64 %i, 1
  %start.p = getelementptr i64, ptr %starts, i64 %i
  %end.p = getelementptr i64, ptr %starts, i64 %i.next
  %start = load i64, ptr %start.p, align 8
  %end = load i64, ptr %end.p, align 8
  br label %bindings.next
bindings.next:
  %k = phi i64 [%start, %bind], [%k.next, %binding]
  %inside = icmp slt i64 %k, %end
  br i1 %inside, label %binding, label %items.next
binding:
  %binding.p = getelementptr i64, ptr %starts, i64 %k
  %slot = load i64, ptr %binding.p, align 8
  %offset.p = getelementptr i64, ptr %binding.p, i64 1
  %offset = load i64, ptr %offset.p, align 8
  %here = add i64 %value, %offset
  %slot.p = getelementptr i64, ptr %slots, i64 %slot
  store i64 %here, ptr %slot.p, align 8
  %k.next = add i64 %k, 2
  br label %bindings.next
run:
  BEFORE
  call void @run_commands(ptr %pool, ptr %table, i64 %commands)
  AFTER
  call void @Py_IncRef(ptr @none)
  ret ptr @none
}
"""


_FREE: Final = "%thread = call ptr @PyEval_SaveThread()", "call void @PyEval_RestoreThread(ptr %thread)"


def _source() -> str:
    """Return the LLVM IR of `run`, which releases the interpreter lock while commands run, and of `run_held`."""
    run = _ENTRY.replace("NAME", "run").replace("BEFORE", _FREE[0]).replace("AFTER", _FREE[1])
    return _DECLARED + run + _ENTRY.replace("NAME", "run_held").replace("BEFORE", "").replace("AFTER", "")


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


@functools.cache
def methods(run_address: int, cached_compile: Callable[[str], bytes]) -> list[_MethodDef]:
    """Return the PyMethodDefs of `run` and `run_held`, compiled and loaded once per process."""
    externals = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _SYMBOLS}
    image = load_object(cached_compile(_source()), {**externals, "run_commands": run_address, "none": id(None)})
    doc = b"Bind the first buffers to these addresses, and run."
    return [_MethodDef(name.encode(), image.address(name), _FASTCALL, doc) for name in ("run", "run_held")]


_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
_new_function.restype = ctypes.py_object


def python_functions(
    run_address: int,
    pool: int,
    table: int,
    n_commands: int,
    slots: int,
    bindings: Sequence[Sequence[tuple[int, int]]],
    cached_compile: Callable[[str], bytes],
) -> tuple[Any, Any]:
    """Return the functions `run` and `run_held` of a command table at address `table`.

    `run(*addresses)` stores address i plus an offset into a slot, for each (slot, offset) in `bindings[i]`. It ignores
    further addresses, and then runs the table. `run_held` does the same and keeps the interpreter lock, for tables that
    take microseconds.

    `run_address` is the address of the pool's `run_commands`. The caller keeps table and slots alive.
    """
    starts = [len(bindings) + 1]
    for p in bindings:
        starts.append(starts[-1] + 2 * len(p))
    pairs = [word for p in bindings for pair in p for word in pair]
    block = array("q", [pool, table, n_commands, slots, len(bindings), *starts, *pairs])
    run, held = (
        _new_function(ctypes.addressof(m), block.tobytes(), None) for m in methods(run_address, cached_compile)
    )
    return run, held


__all__ = ["methods", "python_functions"]
