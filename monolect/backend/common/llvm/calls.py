"""Compile LLVM IR text to object files by direct calls of LLVM, which several threads can make at the same time.

What it is for: llvmlite admits one thread at a time, because its users share one context. LLVM itself only needs a
context and a target machine for each thread; here every call has its own context. The interpreter lock is released
while LLVM parses the text and generates code. It is held in the other calls, which take less time than reacquiring it.

What it does not do: initialize targets or make target machines, which llvmlite does. It uses llvmlite's prototypes.

Invariant: no LLVM object that is made here outlives the call, and llvmlite's own context is not used.
"""

from __future__ import annotations

import ctypes
from typing import Any


class Calls:
    """The functions of llvmlite's library, which its module `ffi` has loaded."""

    def __init__(self, ffi: Any):
        self._long, self._short = ctypes.CDLL(ffi.lib._name), ctypes.PyDLL(ffi.lib._name)
        self._declared = ffi.lib
        self.create_context = self._function("ContextCreate")
        self.dispose_context = self._function("ContextDispose")
        self.parse = self._function("ParseAssembly", is_long=True)
        self.is_broken = self._function("VerifyModule")
        self.dispose_module = self._function("DisposeModule")
        self.emit_to_memory = self._function("TargetMachineEmitToMemory", is_long=True)
        self.start_of = self._function("GetBufferStart")
        self.size_of = self._function("GetBufferSize")
        self.dispose_memory = self._function("DisposeMemoryBuffer")
        self.dispose_string = self._function("DisposeString")

    def _function(self, name: str, is_long: bool = False) -> Any:
        """Return a function with llvmlite's prototype and without its lock; `is_long` releases the interpreter lock."""
        declared = getattr(self._declared, f"LLVMPY_{name}")
        found = (self._long if is_long else self._short)[f"LLVMPY_{name}"]
        found.argtypes, found.restype = declared.argtypes, declared.restype
        return found

    def emit(self, target_machine: Any, ir: str, is_object: bool) -> bytes:
        """Compile a module that declares its data layout and triple; return the object file or the assembly text.

        Raises RuntimeError with LLVM's message if the text does not parse or verify. Two calls at the same time must
        not use the same target machine.
        """
        message = ctypes.c_char_p()
        context = self.create_context()
        module = memory = None
        try:
            module = self.parse(context, ir.encode(), ctypes.byref(message))
            if module and not self.is_broken(module, ctypes.byref(message)):  # LLVM aborts on an invalid module
                memory = self.emit_to_memory(target_machine, module, int(is_object), ctypes.byref(message))
            if not memory:
                raise RuntimeError((message.value or b"").decode(errors="replace"))
            return ctypes.string_at(self.start_of(memory), self.size_of(memory))
        finally:
            if message:
                self.dispose_string(message)
            if memory:
                self.dispose_memory(memory)
            if module:
                self.dispose_module(module)
            self.dispose_context(context)


__all__ = ["Calls"]
