"""LLVM IR text to native object bytes, and the facts about this processor that code is generated for.

What it is for: the one place that talks to LLVM. Code generation only: the IR arrives vectorised and scheduled, and
LLVM's IR passes were measured to cost more time than code generation and to gain nothing on it.

What it does not do: optimise IR, cache objects (the caller does, under `Compiler.key`), or load them (`elf` does).
LLVM ends the process on valid IR that cannot be selected for the target and on inline assembly that does not assemble;
nothing in Python can catch that.

Invariant: two compilers with equal keys produce equal bytes for equal IR. The key is made from the very strings that
LLVM is given, and computing it imports no LLVM: a process whose objects all come from a cache never pays for that.
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
from monolect.backend.common.pages import note_compiler
from monolect.base.errors import CompileError

# Linux's name of a processor flag -> LLVM's name of the feature. A flag that is not here does not change code.
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
NEEDED: Final = "no LLVM for the device cpu: pip install llvmlite, or DEVICE=c where a C compiler is"
# the ops that LLVM has instructions for
LLVM_NATIVE: Final = frozenset(
    ("RECIP", "TRUNC", "CAST", "ADD", "MUL", "MAX", "MOD", "IDIV", "CMPLT", "CMPNE", "XOR", "OR", "AND", "SHR", "SHL",
     "WHERE", "NEG", "SUB", "DIV", "CMPGT", "CMPGE", "CMPLE", "CMPEQ", "NOT", "SQRT", "MULACC", "BITCAST", "ABS")
)  # fmt: skip
# of those, what an x86-64 processor has with a feature: without it LLVM would call a library
NEEDING: Final = {"fma": "MULACC", "sse4.1": "TRUNC"}
SCALING: Final = frozenset(("avx512f", "avx512vl"))  # with these also LDEXP
_DEFAULT_CACHES: Final = {1: 32 << 10, 2: 1 << 20, 3: 8 << 20}


def native_ops(machine: str, features: tuple[str, ...]) -> frozenset[str]:
    """The ops that LLVM has instructions for on such a processor."""
    native = LLVM_NATIVE | {"LDEXP"} if SCALING <= set(features) else LLVM_NATIVE
    return native - {op for feature, op in NEEDING.items() if machine == "x86_64" and feature not in features}


class HostFeatures(NamedTuple):
    """What code for this processor may assume. Cache sizes are those one core sees; `l3_bytes` is shared by cores."""

    machine: str  # "x86_64" or "aarch64"
    features: tuple[str, ...]  # LLVM's names, in the order of the tables above
    vector_bytes: int
    n_vector_registers: int
    multiply_adds: int  # of whole vectors, that start in a cycle
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    n_cores: int  # cores this process may run on

    @property
    def cpu(self) -> str:
        """LLVM's processor name: always the baseline. Host names lie under virtual machines; the features do not."""
        return _BASELINES.get(self.machine, "")


@functools.cache
def host_features() -> HostFeatures:
    """Facts about this processor, read once: /proc and /sys where they exist, the architecture's baseline otherwise."""
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
    """Machine name and LLVM features: all that a compiler's key needs, without the slower reads."""
    raw = os.uname().machine.lower() if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "").lower()
    machine = _MACHINE_NAMES.get(raw, raw)
    flags = _processor_flags()
    return machine, tuple(name for flag, name in _FEATURE_NAMES.get(machine, {}).items() if flag in flags)


def _processor_flags() -> frozenset[str]:
    """Flags of the first processor; empty where the system has no /proc/cpuinfo."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:  # stop at the first match: the whole file is slow to make on large machines
                if line.startswith(("flags", "Features")):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()


def _multiply_adds(vector_bytes: int, l1d_bytes: int) -> int:
    """How many of whole vectors start in a cycle. AMD's first processors with vectors of 512 bits (Zen 4) have units of
    256; the next ones have not, and a larger first cache. Only AMD's have sse4a.
    """
    return 1 if vector_bytes == 64 and l1d_bytes <= 32 << 10 and "sse4a" in _processor_flags() else 2


def _cache_sizes() -> dict[int, int]:
    """Bytes of the data or unified cache at each level, of processor 0."""
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
    """Why there is no LLVM, or ""."""
    return "" if _llvm_version() != "absent" else NEEDED


@functools.cache
def _llvm_version() -> str:
    """Version of llvmlite, and the size of its library, which tells builds against different LLVMs apart.

    Read from its files: the interpreter's own metadata lookup costs more than loading a cached kernel.
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
    """Compiles LLVM IR text for one machine. Several threads may compile at the same time.

    Defaults to this machine. `machine` ("x86_64", "aarch64") and `features` (LLVM's names) aim it elsewhere; `triple`,
    `cpu` and `abi` say for which system, processor and calls where these are not Linux, any, and LLVM's own.
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
        # Always ELF, whatever the system's own format is: the loader reads no other.
        self.triple = triple or f"{self.machine}-unknown-linux-gnu"
        self._abi = abi
        self._cpu = cpu or _BASELINES.get(self.machine, "")
        self._feature_string = ",".join("+" + name for name in self.features)
        if self.machine == "aarch64" and sys.platform in ("darwin", "win32"):
            self._feature_string += ",+reserve-x18"  # these systems keep that register for themselves
        self._idle: defaultdict[int, list[Any]] = defaultdict(list)  # target machines by level, in no thread's hands

    @functools.cached_property
    def key(self) -> str:
        """Everything but the IR that the object at the default `opt` depends on. Imports no LLVM."""
        return self.key_at(2)

    def key_at(self, opt: int) -> str:
        """As `key`, for objects compiled with that `opt`."""
        return f"llvm {_llvm_version()} {self.triple} {self._cpu} {self._feature_string} pic small {self._abi}O{opt}"

    def compile(self, ir: str, opt: int = 2) -> bytes:
        """Object file of a module. `opt` is the code generator's level: 0 compiles glue fastest, 2 is for kernels.

        Raises `CompileError` with LLVM's message and the offending line when the IR does not parse or verify.
        """
        return self._emit(ir, opt, is_object=True)

    def assembly(self, ir: str, opt: int = 2) -> str:
        """Assembly text of a module, for people to read."""
        return self._emit(ir, opt, is_object=False).decode()

    def _emit(self, ir: str, opt: int, is_object: bool) -> bytes:
        is_text = self.machine == "nvptx64"  # of PTX, which nobody parses here
        if (
            not self._is_native and not is_text and _INLINE_ASSEMBLY.search(ir)
        ):  # LLVM would abort: the binding has no parser for it
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
        """A new target machine, and what a module for it begins with."""
        llvm = _llvm(self._is_native)
        try:
            target = llvm.Target.from_triple(self.triple)
        except RuntimeError as error:
            raise CompileError(f"LLVM has no target for {self.triple}: {error}") from error
        target_machine = target.create_target_machine(
            cpu=self._cpu, features=self._feature_string, opt=opt, reloc="pic", codemodel="small", abiname=self._abi
        )
        # The layout must be known before the text is read: it decides the alignment of accesses that state none.
        return (
            target_machine,
            f'target datalayout = "{target_machine.target_data}"\ntarget triple = "{self.triple}"\n',
        )


def _explain(message: str, ir: str, n_header_lines: int) -> str:
    """LLVM's message with the line number of the caller's text, and that line."""
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
    """The LLVM binding, with the targets it needs initialised."""
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise CompileError(f"{missing() or NEEDED} ({error})") from error
    if is_native:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()  # inline assembly
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    some_function = ctypes.CDLL(llvm.ffi.lib._name).LLVMPY_DisposeString
    note_compiler(ctypes.cast(some_function, ctypes.c_void_p).value or 0)
    return llvm
