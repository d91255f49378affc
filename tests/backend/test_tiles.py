"""AMX: code generated for a processor that has it, whatever this one is. The machine code shows the structure. The code
with emulated instructions shows the meaning.
"""

import ctypes
import re

import numpy as np
import pytest

from monolect import Tensor, dtypes
from monolect.backend.common.host.elf import load_object
from monolect.backend.common.llvm.compile import Compiler
from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.backend.common.shaped import thread_local_layout
from monolect.backend.cpu import emulate
from monolect.backend.cpu.render import render_module
from monolect.backend.cpu.units import may_use_tiles, units
from monolect.base.target import Target
from monolect.optimize.apply import apply_actions
from monolect.pipeline import lower_kernel, schedule
from monolect.schedule.callify import over_params

FEATURES = (
    "avx", "fma", "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16",
    "amx-tile", "amx-bf16", "amx-fp16", "amx-int8",
)  # fmt: skip
TARGET = Target(
    name="test", native=LLVM_NATIVE, vector_bytes=64, n_registers=32, n_threads=2,
    l1_bytes=48 << 10, l2_bytes=1 << 20, local_bytes=4 << 20, units=units(FEATURES, 64),
)  # fmt: skip
F16, BF16, I8, U8 = dtypes.float16, dtypes.bfloat16, dtypes.int8, dtypes.uint8
KINDS = {
    "tdpbf16ps": (BF16, BF16), "tdpfp16ps": (F16, F16),
    "tdpbssd": (I8, I8), "tdpbsud": (I8, U8), "tdpbusd": (U8, I8), "tdpbuud": (U8, U8),
}  # fmt: skip
SIZES = [(64, 128, 96), (40, 130, 50), (17, 100, 33)]
LAYOUTS = ["NN", "NT", "TN", "TT"]
OFTEN = [(kind, layout) for kind in ("tdpbf16ps", "tdpfp16ps", "tdpbssd") for layout in LAYOUTS]
ONCE = [(kind, "NN") for kind in ("tdpbsud", "tdpbusd", "tdpbuud")]


def numbers(d, *shape, seed=0):
    low, high = (0, 9) if d is U8 else (-8, 9)
    return np.random.default_rng(seed).integers(low, high, shape).astype(d.numpy)


def product(a, b):
    """The product and the CALL that computes it."""
    t = a.float() @ b.float() if a.dtype.is_float else a.int() @ b.int()
    sink, bound, _ = over_params([t.uop])
    (call,) = schedule(list(sink.src), "cpu", TARGET.local_bytes).linear.src
    return call, bound


def unit_of(linear):
    return {u.arg[0] for u in linear.src if u.op == "WMMA"}


def arguments(call, bound, out):
    """Arrays for the parameters of a kernel, in order: the result has no content yet."""
    return [
        bound[p.arg.slot].storage.view(p.dtype.numpy)[: int(np.prod(p.shape))].copy() if p.op == "PARAM" else out
        for p in call.src[1:]
    ]


def run_emulated(linear, arrays):
    """Compile the text with emulated tiles for this processor; run it for each thread."""
    image = load_object(Compiler().compile(emulate.render_module([("kernel", linear)])))
    n_local = thread_local_layout(linear.src)[0]
    local = np.zeros(n_local * linear.arg.threads + 64, np.uint8)
    table = (ctypes.c_void_p * (len(arrays) + 1))(local.ctypes.data, *(x.ctypes.data for x in arrays))
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(image.address("kernel"))
    for thread in range(linear.arg.threads):
        kernel(ctypes.addressof(table) + 8, thread)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "kind, layout, m, k, n", [(*c, *s) for c in OFTEN for s in SIZES] + [(*c, *SIZES[1]) for c in ONCE]
)
def test_products_of_tiles_mean_what_they_should(kind, layout, m, k, n):
    da, db = KINDS[kind]
    a, b = numbers(da, m, k), numbers(db, k, n, seed=1)
    x = Tensor(a) if layout[0] == "N" else Tensor(a.T.copy()).T
    y = Tensor(b) if layout[1] == "N" else Tensor(b.T.copy()).T
    call, bound = product(x, y)
    linear = lower_kernel(call.src[0], TARGET)
    assert unit_of(linear) == {kind}
    out = np.zeros((m, n), np.float32 if da.is_float else np.int32)
    run_emulated(linear, arguments(call, bound, out))
    np.testing.assert_array_equal(out, a.astype(np.float64) @ b.astype(np.float64))


B = ("PACK", 1, None)  # the right operand; without, each of its elements is brought to its place
ACTIONS = {
    "as they lie": [("TC", 4)],
    "one tile": [("TC", 4), B],
    "two rows of tiles": [("SPLIT", 0, (2, "UPCAST", False)), ("TC", 5), B],
    "two columns of tiles": [("SPLIT", 2, (2, "UPCAST", False)), ("TC", 5), B],
    "steps in a row": [("TC", 4), ("SPLIT", 4, (2, "UNROLL", False)), B],
    "all steps in a row": [("TC", 4), ("SPLIT", 4, (4, "UNROLL", False)), B],
    "blocks of the sum": [("TC", 4), ("SPLIT", 4, (2, "LOOP", True)), B],
    "both packed": [("SPLIT", 0, (2, "UPCAST", False)), ("TC", 5), ("PACK", 0, None), B],
    "more tiles than registers": [
        ("SPLIT", 0, (4, "UPCAST", False)),
        ("SPLIT", 3, (2, "UPCAST", False)),
        ("TC", 6),
        B,
    ],
}


@pytest.mark.sweep
@pytest.mark.parametrize(
    "kind, name",
    [("tdpbf16ps", name) for name in ACTIONS]
    + [(kind, name) for kind in ("tdpfp16ps", "tdpbssd") for name in ("both packed", "one tile")],
)
def test_any_plan_with_tiles_means_the_same(kind, name):
    da, db = KINDS[kind]
    m, k, n = 64, 128 if da.is_float else 256, 32
    a, b = numbers(da, m, k), numbers(db, k, n, seed=1)
    call, bound = product(Tensor(a), Tensor(b))
    actions = [("SPLIT", 1, (16, "UPCAST", False)), ("SPLIT", 0, (16, "UPCAST", False)), *ACTIONS[name]]
    actions = [(*x, kind) if x[0] == "TC" else x for x in actions]
    kernel = apply_actions(lower_kernel(call.src[0], TARGET, last="merge_ranges"), tuple(actions), TARGET)
    linear = lower_kernel(kernel, TARGET, first="device_axes")
    assert unit_of(linear) == {kind}
    out = np.zeros((m, n), np.float32 if da.is_float else np.int32)
    run_emulated(linear, arguments(call, bound, out))
    np.testing.assert_array_equal(out, a.astype(np.float64) @ b.astype(np.float64))
    Compiler("x86_64", FEATURES).compile(render_module([("kernel", linear)]))


@pytest.mark.sweep
@pytest.mark.parametrize("kind, layout", OFTEN + ONCE)
def test_the_inner_loop_is_tiles(kind, layout):
    da, db = KINDS[kind]
    x = Tensor(numbers(da, *((256, 512) if layout[0] == "N" else (512, 256))))
    y = Tensor(numbers(db, *((512, 384) if layout[1] == "N" else (384, 512))))
    call, _ = product(x if layout[0] == "N" else x.T, y if layout[1] == "N" else y.T)
    linear = lower_kernel(call.src[0], TARGET)
    ir = render_module([("kernel", linear)])
    assembly = Compiler("x86_64", FEATURES).assembly(ir)
    blocks = re.split(r"^\.?\w+:.*$|^\tj\w+\t.*$", assembly, flags=re.M)
    hot = max(blocks, key=lambda b: b.count(kind)).split("\n")
    counts = [sum(f"\t{name}\t" in line for line in hot) for name in (kind, "tileloadd", "tilestored")]
    assert counts == [4, 4, 0], "two by two tiles, each operand loaded once, none spilled"
    assert not any("mm" in line.replace("tmm", "") for line in hot), "a vector in the inner loop"
    assert assembly.count("ldtilecfg") >= 1 and "tilerelease" in assembly
    code = Compiler("x86_64", FEATURES).compile(ir)
    assert len(re.findall(rb"\xc4\xe2[\x00-\xff]\x5e[\xc0-\xff]|\xc4\xe2[\x00-\xff]\x5c[\xc0-\xff]", code)) >= 4


def test_tiles_are_asked_for():
    """Units with tiles are there where processor and system allow them."""
    assert [u.name for u in TARGET.units if u.n_tiles] == list(KINDS)
    assert not any(u.n_tiles for u in units(FEATURES[:-3], 64))
    assert may_use_tiles() in (True, False)  # a question to the system, of which no answer harms
