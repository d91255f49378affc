"""Devices that run CUDA, HIP and Metal source on this processor: a small C++ header stands in for each language.

What it is for: every kernel of these languages is checked by a compiler and run, where there is no such GPU; so is LLVM
IR for workgroups, under a table whose ids and barrier are functions of the host. What it does not show: that the
vendor's compiler takes it (address spaces, attributes), nor anything about speed.
"""

import ctypes
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from monolect.backend.base import Program, unpacked
from monolect.backend.common.clike.language import Language
from monolect.backend.common.clike.program import render_module
from monolect.backend.common.clike.workgroups import GroupRenderer
from monolect.backend.common.host import memory
from monolect.backend.common.launch import check_limits, launch_sizes, tensor_maps
from monolect.backend.common.llvm.compile import Compiler
from monolect.backend.common.llvm.dialect import Dialect, Unit, ids
from monolect.backend.common.llvm.workgroups import render_module as render_llvm
from monolect.backend.cuda import ptx
from monolect.backend.cuda import render as cuda
from monolect.backend.hip import render as hip
from monolect.backend.metal import render as metal
from monolect.base.dtype import ALL, dtypes
from monolect.base.errors import CompileError, InternalError
from monolect.base.matrix_units import BY_NAME, NVIDIA, n_elements
from monolect.base.target import MatrixUnit, Target
from monolect.ir.check.interp import evaluate
from monolect.ir.uop import UOp, idx
from tests.backend.standin.boxes import at_64, encoded
from tests.backend.standin.fragments import emulated, tables
from tests.kept_objects import kept, text_of

HERE = Path(__file__).parent
FLAGS = (
    "-std=c++20 -O1 -w -shared -fPIC -fno-strict-aliasing -ffp-contract=off -fno-math-errno -mf16c -mfma"
    " -U_FORTIFY_SOURCE -x c++"  # its checks end the process when lanes jump between their stacks
).split()
FAILURES = {1: "lanes of a workgroup meet different barriers", 2: "a wide access is not aligned",
    4: "a box is in flight at the end", 8: "a wait for boxes never ends"}  # fmt: skip
LOCAL_AT_LAUNCH = "unsigned char* const local_memory = standin_local;"  # in place of the language's declaration
LAUNCH = """
extern "C" int run_{name}(const long long* args, const unsigned* groups, const unsigned* lanes) {{
  return standin::run<{name}>(args, groups, lanes, {has_barrier});
}}
"""


def compiler() -> str:
    return next((path for name in ("g++", "clang++") if (path := shutil.which(name))), "")


def missing() -> str:
    return "" if compiler() else "no C++ compiler: install g++ or clang++"


class Standin:
    """One language. A program's entry is (function, sizes of the launch, sizes of a workgroup, names of Variables)."""

    missing = staticmethod(missing)
    language: Language
    target: Target
    header: str

    def __init__(self, name: str):
        self.name = name
        self.programs: dict[str, Program] = {}

    alloc = staticmethod(memory.alloc)
    from_array = staticmethod(memory.from_array)
    copy = staticmethod(memory.copy)
    space = memory.HOST

    def lookup(self, key: str):
        return self.programs.get(key)

    def compile(self, kernels):
        kernels = list(kernels)
        for name, _, lin in kernels:
            check_limits(name, lin.src, self.target)
        named = [(f"k_{blake2b(key.encode(), digest_size=8).hexdigest()}", lin) for _, key, lin in kernels]
        library, source = self.build(named)
        for (name, key, lin), (symbol, _) in zip(kernels, named, strict=True):
            entry = (getattr(library, f"run_{symbol}"), *dimensions(lin), params(lin), tensor_maps(lin.src))
            self.programs[key] = Program(name, entry, 1, source)
        return [self.programs[key] for _, key, _ in kernels]

    def build(self, named: list[tuple[str, UOp]]) -> tuple[ctypes.CDLL, str]:
        types = {d: self.language.type(d) for d in ALL if d.kind in "iuf"}
        units = {name: emulated(BY_NAME[name], types) for name in self.language.units}
        language = replace(self.language, header=f'#include "{HERE / self.header}"\n{tables()}\n', units=units)
        language = replace(language, local_at_launch=LOCAL_AT_LAUNCH)
        if language.async_copies is not None:
            language = replace(language, async_copies=language.async_copies._replace(functions=""))
        if language.memory_units is not None:
            language = replace(language, memory_units=language.memory_units._replace(functions=""))
        if language.bulk_copies is not None:
            language = replace(language, bulk_copies=language.bulk_copies._replace(functions=""))
        source = render_module(named, language, GroupRenderer)
        for symbol, lin in named:
            has_barrier = "true" if any(u.op in ("BARRIER", "WMMA", "SHUFFLE") for u in lin.src) else "false"
            source += LAUNCH.format(name=symbol, has_barrier=has_barrier)
        return self.library(source)

    def library(self, source: str, *more: str) -> tuple[ctypes.CDLL, str]:
        """The functions of a source without a header, and the source with it; `more` for the compiler."""
        source = source if source.startswith("#include") else f'#include "{HERE / self.header}"\n{source}'
        command = [compiler(), *FLAGS, "-", *more]
        key = "\n".join([text_of(command[0], *sorted(HERE.glob("*.h"))), *command, source])
        code = self.compiled(command, source) if more else kept(key, lambda: self.compiled(command, source))
        with tempfile.TemporaryDirectory(prefix="monolect-standin-") as folder:
            path = Path(folder, "kernels.so")
            path.write_bytes(code)
            return ctypes.CDLL(str(path)), source

    def compiled(self, command: list[str], source: str) -> bytes:
        """The bytes of the library that a compiler makes of a source."""
        with tempfile.TemporaryDirectory(prefix="monolect-standin-") as folder:
            path = Path(folder, "kernels.so")
            done = subprocess.run([*command, "-o", path], input=source, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CompileError(f"{self.name}: {done.stderr[:3000]}\n{source}")
            return path.read_bytes()

    def encode(self, items, number, programs):
        return Commands(unpacked(items, number, programs)[0], self.execute)

    @staticmethod
    def execute(program: Program, args: list[int]) -> None:
        run(program, args)


class Commands:
    """Calls one after the other, by `execute(program, addresses)`."""

    def __init__(self, calls, execute):
        self.calls, self.execute = calls, execute
        self.values: dict[int, int] = {}

    def bind(self, number: int, address: int) -> None:
        self.values[number] = address

    def launch(self) -> None:
        self.launch_timed()

    def launch_timed(self) -> list[int]:
        out = []
        for call in self.calls:
            given = [self.values[n] + offset for n, offset in call.operands]
            start = time.perf_counter_ns()
            self.execute(call.program, given)
            out.append(time.perf_counter_ns() - start)
        return out


def run(program: Program, args: list[int]) -> None:
    function, groups, lanes, declared, maps = program.entry
    values = {u: args[u.arg.slot] for u in declared}
    sizes = [[int(evaluate(n, values)) for n in side] for side in (groups, lanes)]
    # the kernel takes its parameters in the order of their slots
    _kept, places = at_64([
        encoded(getattr(dtypes, m.dtype).itemsize, args[m.slot] + m.start, m.sizes, m.strides, m.box) for m in maps
    ])  # fmt: skip
    slots = (ctypes.c_longlong * max(1, len(args) + len(maps)))(*(args[u.arg.slot] for u in declared), *places)
    code = function(slots, *((ctypes.c_uint * 3)(*side) for side in sizes))
    if code:
        raise InternalError(
            f"{program.name}: {', '.join(text for bit, text in FAILURES.items() if code & bit)}\n{program.source}"
        )


def params(lin: UOp) -> list[UOp]:
    return sorted((u for u in lin.src if u.op == "PARAM"), key=lambda u: u.arg.slot)


def dimensions(lin: UOp) -> tuple[list[UOp], list[UOp]]:
    """The sizes of the launch and of a workgroup."""
    groups, lanes = launch_sizes(lin.src)
    return groups, [idx(n) for n in lanes]


class Cuda(Standin):
    language, target, header = cuda.language(90), cuda.target(90), "cuda.h"


class Hip(Standin):
    language, target, header = hip.LANGUAGE, hip.TARGET, "hip.h"

    @classmethod
    def of(cls, arch: str) -> "Hip":
        """One with the matrix units of an architecture."""
        device = cls("standin-hip")
        device.language, device.target = hip.language(arch), hip.target(arch)
        return device


class Metal(Standin):
    language, target, header = metal.LANGUAGE, metal.TARGET, "metal.h"


def sides(u: MatrixUnit) -> list[int]:
    """Registers of 32 bits that a lane gives of a, of b and of the sum."""
    return [n_elements(m) * d.itemsize // 4 for m, d in zip(u.maps, (u.a, u.b, u.acc), strict=True)]


def host_unit(u: MatrixUnit) -> Unit:
    """A unit as a function of the host, which takes registers one by one and keeps the sum for a moment."""
    t = "float" if u.acc.is_float else "i32"
    types = ", ".join(t for n, t in zip(sides(u), ("i32", "i32", t), strict=True) for _ in range(n))
    return Unit(
        types=("i32", "i32", t),
        text=f"call i32 @standin_{u.name}({{a}}, {{b}}, {{c}})",
        declare=f"declare i32 @standin_{u.name}({types})",
        result=f"call {t} @standin_{t}(i32 {{i}})",
    )


def host_function(u: MatrixUnit, types: dict) -> str:
    """That function, around the one of `fragments`."""
    kinds = ("int", "int", "float" if u.acc.is_float else "int")
    names = [[f"{x}{i}" for i in range(n)] for x, n in zip("abc", sides(u), strict=True)]
    params = ", ".join(f"{t} {x}" for t, xs in zip(kinds, names, strict=True) for x in xs)
    given = ", ".join(
        f"__builtin_bit_cast(vec<{types[d]}, {n_elements(m)}>, standin::held<{t}, {len(xs)}>{{{{{', '.join(xs)}}}}})"
        for d, m, t, xs in zip((u.a, u.b, u.acc), u.maps, kinds, names, strict=True)
    )
    keep = f"auto sum = {u.name}({given}); __builtin_memcpy(standin_sum, &sum, sizeof sum); return 0;"
    return f'{emulated(u, types)}\nextern "C" int standin_{u.name}({params}) {{ {keep} }}\n'


class Llvm(Standin):
    """LLVM IR: the object of a module, linked to the stand-in."""

    dialect = Dialect(
        name="host",
        triple="",
        ids=ids("i32 @standin_group(i32 {i})", "i32 @standin_lane(i32 {i})"),
        global_space=0,
        local_space=0,
        barrier=("call void @standin_barrier()",),
        shuffle=("call i32 @standin_shuffle(i32 {x}, i32 {bits})",),
        atomics=ptx.DIALECT.atomics,
        declares=(
            "declare i32 @standin_group(i32)", "declare i32 @standin_lane(i32)", "declare void @standin_barrier()",
            "declare i32 @standin_shuffle(i32, i32)", "declare i32 @standin_i32(i32)",
            "declare float @standin_float(i32)",
        ),
        units={u.name: host_unit(u) for u in NVIDIA},
    )  # fmt: skip
    target = ptx.target(90)

    def build(self, named):
        ir = render_llvm(named, self.dialect)
        has_barrier = any(u.op in ("BARRIER", "WMMA", "SHUFFLE") for _, lin in named for u in lin.src)
        return self.linked(ir, {name: len(params(lin)) for name, lin in named}, has_barrier), ir

    @classmethod
    def linked(cls, ir: str, n_params: dict[str, int], has_barrier: bool) -> ctypes.CDLL:
        """The kernels of a module, with the functions that launch them."""
        types = {d: Cuda.language.type(d) for d in ALL if d.kind in "iuf"}
        used = [u for u in NVIDIA if f"@standin_{u.name}(" in ir]
        stub = f'#include "{HERE / "llvm.cpp"}"\n{tables()}\n' + "".join(host_function(u, types) for u in used)
        for name, n in n_params.items():
            stub += f'extern "C" void {name}({", ".join(["long long"] * n)});'
            stub += LAUNCH.format(name=name, has_barrier="true" if has_barrier else "false")
        with tempfile.NamedTemporaryFile(suffix=".o") as file:
            file.write(Compiler().compile(ir))
            file.flush()
            return cls("standin-llvm").library(stub, "-x", "none", file.name)[0]


STANDINS = {"standin-cuda": Cuda, "standin-hip": Hip, "standin-metal": Metal, "standin-llvm": Llvm}
ROWS = {name: (__name__, cls.__name__) for name, cls in STANDINS.items()}
