"""Inner loops keep their tile in registers and call nothing: no stack traffic, counted in the machine code that LLVM
makes of them, and no symbol of a library, read in the object files.

The code is made for fixed processors, so the counts do not depend on the machine the tests run on.
"""

import re
from typing import NamedTuple

import numpy as np
import pytest

from monolect import Tensor, dtypes
from monolect.backend.common.host.elf import parse_object
from monolect.backend.common.llvm.compile import Compiler, native_ops
from monolect.backend.common.llvm.program import render_module
from monolect.base.target import Target
from monolect.pipeline import lower_kernel, schedule
from monolect.rules.accuracy import MAX_ULP, SMALL_POWER
from monolect.schedule.callify import over_params

AVX2 = ("sse4.1", "sse4.2", "popcnt", "avx", "f16c", "fma", "avx2")
AVX512 = (*AVX2, "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl")
PROCESSORS = {
    "avx512": (Compiler("x86_64", AVX512), 64, 32),
    "avx2": (Compiler("x86_64", AVX2), 32, 16),
    "neon": (Compiler("aarch64", ("neon",)), 16, 32),
}
# and those without multiply-add, without rounding, without narrow floats: what they lack must be no call
CALLING = PROCESSORS | {
    "avx": (Compiler("x86_64", (*AVX2[:4], "f16c")), 32, 16),
    "sse4.1": (Compiler("x86_64", ("sse4.1",)), 16, 16),
    "x86-64": (Compiler("x86_64", ()), 16, 16),
}
WITHOUT_HALF = ("sse4.1", "x86-64")
MULTIPLY_ADD = re.compile(r"^(vfm|fml[as]\b)")
STACK = re.compile(r"%[re]sp|%rbp|\[(sp|x29)\b")


class Loop(NamedTuple):
    """The instructions of a loop without loops inside."""

    code: list[str]

    @property
    def multiply_adds(self) -> int:
        return sum(bool(MULTIPLY_ADD.match(i)) for i in self.code)

    @property
    def on_the_stack(self) -> list[str]:
        return [i for i in self.code if STACK.search(i)]


def loops_of(assembly: str) -> list[Loop]:
    """The innermost loops: from a label to a jump back to it, with no other such jump between."""
    code: list[str] = []
    labels: dict[str, int] = {}
    found: list[tuple[int, int]] = []
    for text in assembly.splitlines():
        text = re.split(r"\s+(?:# |//)", text.strip())[0].replace("\t", " ")
        if m := re.match(r"^(\.L[\w.]+):", text):
            labels[m[1]] = len(code)
        elif text and not text.startswith(".") and not text.endswith(":"):
            m = re.match(r"^(?:j\w+|b[\w.]*|cbn?z|tbn?z)\b.*?(\.L[\w.]+)$", text)
            if m and m[1] in labels:
                found.append((labels[m[1]], len(code)))
            code.append(text)
    inner = [(a, b) for a, b in found if not any((c, d) != (a, b) and a <= c and d <= b for c, d in found)]
    return [Loop(code[a : b + 1]) for a, b in inner]


def module_of(tensors: dict[str, Tensor], processor: str) -> str:
    """LLVM text with the only kernel of each tensor, by name."""
    compiler, vector_bytes, n_registers = CALLING[processor]
    native = native_ops(compiler.machine, compiler.features) - {"LDEXP"}
    target = Target("cpu", native, vector_bytes=vector_bytes, n_registers=n_registers, n_threads=2)
    target = target._replace(l2_bytes=1 << 20, local_bytes=4 << 20, l1_bytes=48 << 10, loads_first=processor == "neon")
    has_half = processor not in WITHOUT_HALF
    target = target._replace(cast_dtypes=frozenset((dtypes.float16,) if has_half else ()))
    kernels = []
    for name, tensor in tensors.items():
        sink, _, _ = over_params([tensor.uop])
        (call,) = schedule(list(sink.src), "null", target.local_bytes).linear.src
        kernels.append((name, lower_kernel(call.src[0], target)))
    return render_module(kernels)


def inner_loops(tensor: Tensor, processor: str) -> list[Loop]:
    """The innermost loops of the only kernel of a tensor."""
    return loops_of(PROCESSORS[processor][0].assembly(module_of({"kernel": tensor}, processor)))


def of(*shape: int) -> Tensor:
    return Tensor(np.zeros(shape, np.float32), device="null")


CASES = {
    "A·B 512": lambda: of(512, 512) @ of(512, 512),
    "A·B 2048": lambda: of(2048, 2048) @ of(2048, 2048),
    "gelu(A·B)": lambda: (of(256, 768) @ of(768, 2304) + of(2304)).gelu(),
    "A·B 1021": lambda: of(1021, 1021) @ of(1021, 1021),
    "A·Bᵀ": lambda: of(512, 512) @ of(512, 512).T,
    "Aᵀ·B": lambda: of(512, 512).T @ of(512, 512),
    "relu(A·B + c)": lambda: (of(256, 300) @ of(300, 200) + of(200)).relu(),
    "8 rows": lambda: of(8, 1024) @ of(1024, 1024),
    "conv 3x3": lambda: of(2, 32, 28, 28).conv2d(of(64, 32, 3, 3), padding=1),
    "conv 1x1": lambda: of(2, 64, 28, 28).conv2d(of(64, 64, 1, 1)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", CASES)
def test_tiles_stay_in_registers(name, processor):
    loop = max(inner_loops(CASES[name](), processor), key=lambda loop: loop.multiply_adds)
    assert loop.multiply_adds >= 8
    assert loop.on_the_stack == []


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("shape", [(512, 512), (197, 192)])
def test_what_is_turned_while_it_is_packed_stays_in_registers(shape, processor):
    """One square of lanes by lanes at a time, however many vectors wide the panel is."""
    loops = [loop for loop in inner_loops(of(*shape) @ of(512, shape[1]).T, processor) if not loop.multiply_adds]
    assert loops
    assert all(loop.on_the_stack == [] for loop in loops)


def test_the_count_sees_spills():
    """Twice the accumulators that there are registers cannot stay in them."""
    n = 40
    regs = "\n".join(f"  %p{i} = getelementptr <16 x float>, ptr %a, i64 {i}" for i in range(n))
    phis = "\n".join(f"  %x{i} = phi <16 x float> [ zeroinitializer, %entry ], [ %y{i}, %loop ]" for i in range(n))
    body = "\n".join(
        f"  %y{i} = call <16 x float> @llvm.fma.v16f32(<16 x float> %x{i}, <16 x float> %v, <16 x float> %v)"
        for i in range(n)
    )
    stores = "\n".join(f"  store <16 x float> %y{i}, ptr %p{i}" for i in range(n))
    text = f"""declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
define void @kernel(ptr %a, i64 %n) {{
entry:
{regs}
  %v = load <16 x float>, ptr %a
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{body}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
{stores}
  ret void
}}
"""
    (loop,) = loops_of(PROCESSORS["avx512"][0].assembly(text))
    assert loop.multiply_adds == n and loop.on_the_stack


# ---- calls -----------------------------------------------------------------------------------------------------------
FUNCTIONS = (*(name for name in MAX_ULP if name not in ("pow", SMALL_POWER)), "softplus", "gelu", "silu", "mish", "elu")
FORMULAS = {name: lambda x, name=name: getattr(x, name)() for name in FUNCTIONS} | {
    "pow": lambda x: x**x,
    "power 2.5": lambda x: x**2.5,
    "modulo": lambda x: x % (x + 1),
    "maximum": lambda x: x.maximum(x + 1),
    "rounded": lambda x: x.floor() + x.ceil() + x.round() + x.trunc(),
    "logaddexp": lambda x: x.logaddexp(x + 1),
}


def called(obj: bytes) -> set[str]:
    """What an object asks of others: a call of the mathematical library is an undefined symbol."""
    return {s.name for s in parse_object(obj).symbols if s.section == 0 and s.name}


FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
PAIRS = [(d, p) for d in FLOATS for p in CALLING if p in PROCESSORS or d in (dtypes.float32, dtypes.float16)]
ONCE = (
    "exp",
    "pow",
    "modulo",
    "maximum",
    "rounded",
)  # in halves; the casts are tested too, and the rest of a formula computes in float32


@pytest.mark.sweep
@pytest.mark.parametrize(("dtype", "processor"), PAIRS, ids=str)
def test_no_function_of_a_library_is_called(dtype, processor):
    """Of every formula in the two floats of C, of a few in the halves; all in `test_no_formula_of_halves_calls`."""
    _check_calls({n: f for n, f in FORMULAS.items() if dtype.bits > 16 or n in ONCE}, dtype, processor)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "processor"), [(d, p) for d, p in PAIRS if d.bits == 16], ids=str)
def test_no_formula_of_halves_calls(dtype, processor):
    _check_calls(FORMULAS, dtype, processor)


def _check_calls(formulas, dtype, processor):
    x = Tensor(np.ones(1003, np.float32), dtype=dtype, device="null")
    module = module_of({f"k{n}": f(x) for n, f in enumerate(formulas.values())}, processor)
    assert module.count("define ") == len(formulas)

    assert called(CALLING[processor][0].compile(module)) == set()


@pytest.mark.parametrize("processor", CALLING)
def test_a_call_of_a_library_is_seen(processor):
    text = """declare float @llvm.exp2.f32(float)
define float @kernel(float %x) {
  %y = call float @llvm.exp2.f32(float %x)
  ret float %y
}
"""
    assert called(CALLING[processor][0].compile(text)) == {"exp2f"}
