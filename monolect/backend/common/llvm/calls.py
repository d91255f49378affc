"""A module of LLVM IR text to an object file, by calls that several threads make at the same time.

What it is for: the binding lets one thread in at a time, because its users share one context. LLVM itself asks for no
more than a context and a target machine for each thread; here every call has a context of its own. The interpreter
lock is free while LLVM reads the text and generates code, and held for the calls between, which are shorter than a
wait for it.

What it does not do: initialise targets or make target machines; the binding does. It uses the binding's prototypes.

Invariant: nothing that is made here outlives the call, and nothing here touches the binding's own context.
"""

from __future__ import annotations

import ctypes
from typing import Any


class Calls:
    """The functions of the binding's library, by way of its module `ffi`."""

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
        """As the binding declares it, without its lock."""
        declared = getattr(self._declared, f"LLVMPY_{name}")
        found = (self._long if is_long else self._short)[f"LLVMPY_{name}"]
        found.argtypes, found.restype = declared.argtypes, declared.restype
        return found

    def emit(self, target_machine: Any, ir: str, is_object: bool) -> bytes:
        """The object file, or the text of the assembly, of a module that names its layout and triple.

        Raises RuntimeError with LLVM's message when the text does not parse or verify. No two calls at a time may have
        the same target machine.
        """
        said = ctypes.c_char_p()
        context = self.create_context()
        module = memory = None
        try:
            module = self.parse(context, ir.encode(), ctypes.byref(said))
            if module and not self.is_broken(module, ctypes.byref(said)):  # LLVM aborts on what breaks its rules
                memory = self.emit_to_memory(target_machine, module, int(is_object), ctypes.byref(said))
            if not memory:
                raise RuntimeError((said.value or b"").decode(errors="replace"))
            return ctypes.string_at(self.start_of(memory), self.size_of(memory))
        finally:
            if said:
                self.dispose_string(said)
            if memory:
                self.dispose_memory(memory)
            if module:
                self.dispose_module(module)
            self.dispose_context(context)
