"""Compile LLVM IR text to object files, and detect the features of this processor.

What it is for: the only module that calls LLVM. It runs code generation only: the IR is already vectorized and
scheduled, and LLVM's IR passes take more time than code generation and gain nothing (measured).

What it does not do: optimize IR, cache objects (the caller does, under `Compiler.key`), or load them (`elf` does).
LLVM ends the process on valid IR that cannot be selected for the target, and on inline assembly that does not assemble;
Python code cannot catch that.

Invariant: two compilers with equal keys produce equal bytes for equal IR. The key is made from the strings that LLVM
gets. Computing it does not import LLVM, so a process whose objects all come from a cache does not pay for the import.
"""

import ctypes
import functools
import importlib.util
import os
import re
import sys
from collections import defaultdict
from typing import Any, Final, NamedTuple

from monolect.backend.common.llvm.calls import Calls
from monolect.backend.common.pages import register_compiler_library
from monolect.base.errors import CompileError
from monolect.base.target import Target, known_core

# Linux's name of a processor flag -> LLVM's name of the feature. Other flags do not change code.
_X86_FEATURES: Final[dict[str, str]] = {
    "pni": "sse3",
    "ssse3": "ssse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "popcnt": "popcnt",
    "cx16": "cx16",
    "lahf_lm": "sahf",
    "abm": "lzcnt",
    "bmi1": "bmi",
    "bmi2": "bmi2",
    "movbe": "movbe",
    "3dnowprefetch": "prfchw",
    "aes": "aes",
    "pclmulqdq": "pclmul",
    "sha_ni": "sha",
    "adx": "adx",
    "gfni": "gfni",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
    "avx": "avx",
    "f16c": "f16c",
    "fma": "fma",
    "avx2": "avx2",
    "avx_vnni": "avxvnni",
    "avx512f": "avx512f",
    "avx512cd": "avx512cd",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "amx_tile": "amx-tile",
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
    "amx_fp16": "amx-fp16",
}
_ARM_FEATURES: Final[dict[str, str]] = {
    "asimd": "neon",
    "atomics": "lse",
    "crc32": "crc",
    "aes": "aes",
    "sha2": "sha2",
    "asimdrdm": "rdm",
    "asimdhp": "fullfp16",
    "asimdfhm": "fp16fml",
    "asimddp": "dotprod",
    "fcma": "complxnum",
    "jscvt": "jsconv",
    "lrcpc": "rcpc",
    "bf16": "bf16",
    "i8mm": "i8mm",
    "sve": "sve",
    "sve2": "sve2",
}
_BASELINES: Final = {"x86_64": "x86-64", "aarch64": "generic"}
_FEATURE_NAMES: Final = {"x86_64": _X86_FEATURES, "aarch64": _ARM_FEATURES}
_MACHINE_NAMES: Final = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}
_INLINE_ASSEMBLY: Final = re.compile(r"\basm\s+(?:sideeffect|alignstack|inteldialect|unwind|\")")
MISSING_LLVM: Final = "no LLVM for the device cpu: pip install llvmlite, or set DEVICE=c if there is a C compiler"
# ops that have an instruction in LLVM IR
LLVM_NATIVE: Final = frozenset(
    ("RECIP", "TRUNC", "CAST", "ADD", "MUL", "MAX", "MOD", "IDIV", "CMPLT", "CMPNE", "XOR", "OR", "AND", "SHR", "SHL",
     "WHERE", "NEG", "SUB", "DIV", "CMPGT", "CMPGE", "CMPLE", "CMPEQ", "NOT", "SQRT", "MULACC", "BITCAST", "ABS")
)  # fmt: skip
FEATURE_OPS: Final = {"fma": "MULACC", "sse4.1": "TRUNC"}  # x86-64: without the feature LLVM would call a library
LDEXP_FEATURES: Final = frozenset(("avx512f", "avx512vl"))  # with both of them LDEXP is native, too
_DEFAULT_CACHES: Final = {1: 32 << 10, 2: 1 << 20, 3: 8 << 20}  # level -> bytes, if the system does not tell


def native_ops(machine: str, features: tuple[str, ...]) -> frozenset[str]:
    """Return the ops that LLVM compiles to instructions on a processor of that machine with these features."""
    native = LLVM_NATIVE | {"LDEXP"} if LDEXP_FEATURES <= set(features) else LLVM_NATIVE
    return native - {op for feature, op in FEATURE_OPS.items() if machine == "x86_64" and feature not in features}


class HostFeatures(NamedTuple):
    """Features that code for this processor can use. Cache sizes are those of one core; cores share `l3_bytes`."""

    machine: str  # "x86_64" or "aarch64"
    features: tuple[str, ...]  # LLVM's names, in the order of the tables above
    vector_bytes: int
    n_vector_registers: int
    multiply_adds: int  # multiply-adds of whole vectors that start in a cycle
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    n_cores: int  # cores this process may run on

    @property
    def cpu(self) -> str:
        """LLVM's name of the processor: always the baseline, as host names are wrong in virtual machines."""
        return _BASELINES.get(self.machine, "")


@functools.cache
def host_features() -> HostFeatures:
    """Return the features of this processor, from /proc and /sys; without these, the architecture's baseline."""
    machine, features = _host()
    vector_bytes = 64 if "avx512f" in features else 32 if "avx2" in features else 16
    caches = _cache_sizes()
    return HostFeatures(
        machine=machine,
        features=features,
        vector_bytes=vector_bytes,
        n_vector_registers=32 if vector_bytes == 64 or machine == "aarch64" else 16,
        multiply_adds=_multiply_adds(vector_bytes, caches[1]),
        l1d_bytes=caches[1],
        l2_bytes=caches[2],
        l3_bytes=caches[3],
        n_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )


@functools.cache
def _host() -> tuple[str, tuple[str, ...]]:
    """Return (machine name, LLVM features), which suffices for a compiler's key and needs no slow reads of /sys."""
    raw = os.uname().machine.lower() if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "").lower()
    machine = _MACHINE_NAMES.get(raw, raw)
    flags = _processor_flags()
    return machine, tuple(name for flag, name in _FEATURE_NAMES.get(machine, {}).items() if flag in flags)


def _processor_flags() -> frozenset[str]:
    """Return the flags of the first processor; none on systems without /proc/cpuinfo."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:  # stop at the first match: generating the whole file is slow on large machines
                if line.startswith(("flags", "Features")):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()


def _multiply_adds(vector_bytes: int, l1d_bytes: int) -> int:
    """Return how many multiply-adds of whole vectors start in a cycle."""
    core = known_core(_processor_flags(), vector_bytes, l1d_bytes)
    return core.multiply_adds if core is not None else Target._field_defaults["multiply_adds"]


def _cache_sizes() -> dict[int, int]:
    """Return the bytes of the data or unified cache of processor 0, by level."""
    sizes = dict(_DEFAULT_CACHES)
    base = "/sys/devices/system/cpu/cpu0/cache/index"
    for index in range(8):
        try:
            level, kind, size = (_read(f"{base}{index}/{name}") for name in ("level", "type", "size"))
        except OSError:
            break
        match = re.fullmatch(r"(\d+)([KMG]?)", size)
        if kind != "Instruction" and match and level.isdecimal():
            sizes[int(level)] = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]
    return sizes


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def missing() -> str:
    """Return how to install LLVM, or "" if it is installed."""
    return "" if _llvm_version() != "absent" else MISSING_LLVM


@functools.cache
def _llvm_version() -> str:
    """Return the version of llvmlite and the size of its library, which differs between builds with different LLVMs.

    It reads llvmlite's files, since Python's lookup of package metadata takes longer than loading a cached kernel.
    """
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return "absent"
    folder = os.path.dirname(spec.origin)
    try:
        match = re.search(r"version_version = '([^']+)'", _read(os.path.join(folder, "_version.py")))
        binding = os.path.join(folder, "binding")
        size = sum(entry.stat().st_size for entry in os.scandir(binding) if "llvmlite" in entry.name)
        if match:
            return f"{match[1]}/{size}"
    except OSError:
        pass
    from importlib.metadata import version

    return version("llvmlite")


class Compiler:
    """A compiler of LLVM IR text for one machine. Several threads may compile at the same time.

    The default is this machine. `machine` ("x86_64", "aarch64", ...) and `features` (LLVM's names) select another one.
    `triple` defaults to Linux, `cpu` to the baseline, and `abi` to LLVM's default calling convention.
    """

    def __init__(
        self,
        machine: str | None = None,
        features: tuple[str, ...] | None = None,
        triple: str = "",
        cpu: str = "",
        abi: str = "",
    ) -> None:
        host_machine, native_features = _host()
        self.machine = machine or host_machine
        self._is_native = self.machine == host_machine
        self.features = features if features is not None else native_features if self._is_native else ()
        # always ELF, on every system, since the loader reads no other format
        self.triple = triple or f"{self.machine}-unknown-linux-gnu"
        self._abi = abi
        self._cpu = cpu or _BASELINES.get(self.machine, "")
        self._feature_string = ",".join("+" + name for name in self.features)
        if self.machine == "aarch64" and sys.platform in ("darwin", "win32"):
            self._feature_string += ",+reserve-x18"  # these systems reserve the register x18
        # optimization level -> (target machine, header of modules) pairs that no thread uses now
        self._idle: defaultdict[int, list[Any]] = defaultdict(list)

    @functools.cached_property
    def key(self) -> str:
        """Key of all that an object at the default `opt` depends on, except the IR. It does not import LLVM."""
        return self.key_at(2)

    def key_at(self, opt: int) -> str:
        """Return the `key` of objects that are compiled at level `opt`."""
        return f"llvm {_llvm_version()} {self.triple} {self._cpu} {self._feature_string} pic small {self._abi}O{opt}"

    def compile(self, ir: str, opt: int = 2) -> bytes:
        """Compile a module to an object file.

        `opt` is the level of the code generator: 0 compiles fastest, 2 is for kernels. Raises CompileError with LLVM's
        message and the line if the IR does not parse or verify.
        """
        return self._emit(ir, opt, is_object=True)

    def assembly(self, ir: str, opt: int = 2) -> str:
        """Compile a module to assembly text, for people to read."""
        return self._emit(ir, opt, is_object=False).decode()

    def _emit(self, ir: str, opt: int, is_object: bool) -> bytes:
        is_text = self.machine == "nvptx64"  # the output is PTX text, so LLVM does not assemble inline assembly
        # LLVM would abort: llvmlite initializes only the parser of native assembly
        if not self._is_native and not is_text and _INLINE_ASSEMBLY.search(ir):
            raise CompileError(f"inline assembly of {self.machine} can only be compiled on such a machine")
        try:
            target_machine, header = self._idle[opt].pop()
        except IndexError:
            target_machine, header = self._target_machine(opt)
        try:
            return _calls().emit(target_machine, header + ir, is_object)
        except RuntimeError as error:
            raise CompileError(_explain(str(error), ir, n_header_lines=2)) from None
        finally:
            self._idle[opt].append((target_machine, header))

    def _target_machine(self, opt: int) -> tuple[Any, str]:
        """Return a new target machine, and the lines with which its modules begin: data layout and triple."""
        llvm = _llvm(self._is_native)
        try:
            target = llvm.Target.from_triple(self.triple)
        except RuntimeError as error:
            raise CompileError(f"LLVM has no target for {self.triple}: {error}") from error
        target_machine = target.create_target_machine(
            cpu=self._cpu, features=self._feature_string, opt=opt, reloc="pic", codemodel="small", abiname=self._abi
        )
        # LLVM needs the layout before it parses the text: it sets the alignment of accesses that do not state one.
        return (
            target_machine,
            f'target datalayout = "{target_machine.target_data}"\ntarget triple = "{self.triple}"\n',
        )


def _explain(message: str, ir: str, n_header_lines: int) -> str:
    """Return LLVM's message with the line number in `ir`, and the text of that line.

    LLVM counts `n_header_lines` more.
    """
    match = re.search(r"<string>:(\d+):(\d+): (?:error: )?([^\n]*)", message)
    if not match:
        return f"LLVM refused the program: {message.strip()}"
    number = int(match[1]) - n_header_lines
    lines = ir.splitlines()
    text = lines[number - 1] if 0 < number <= len(lines) else ""
    return f"LLVM refused the program at line {number}, column {match[2]}: {match[3]}\n{text}"


@functools.cache
def _calls() -> Calls:
    return Calls(_llvm(True).ffi)


@functools.cache
def _llvm(is_native: bool) -> Any:
    """Import llvmlite and initialize the native target, or all targets. Raises CompileError if it is not installed."""
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise CompileError(f"{missing() or MISSING_LLVM} ({error})") from error
    if is_native:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()  # inline assembly
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    some_function = ctypes.CDLL(llvm.ffi.lib._name).LLVMPY_DisposeString
    register_compiler_library(ctypes.cast(some_function, ctypes.c_void_p).value or 0)
    return llvm


__all__ = ["Compiler", "HostFeatures", "LLVM_NATIVE", "host_features", "missing", "native_ops"]
