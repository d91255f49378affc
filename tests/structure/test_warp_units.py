"""Products on targets whose warps have matrix units: tiles in local memory and registers, the unit in the loop."""

import re

import numpy as np
import pytest

from monolect import Context, Tensor, dtypes
from monolect.backend.cuda import render as cuda
from monolect.backend.hip import render as hip
from monolect.backend.metal import render as metal
from monolect.backend.python.interpret import Kernel
from monolect.backend.python.runtime import GPU
from monolect.base.dtype import to_numpy
from monolect.base.matrix_units import BY_NAME, HOPPER
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.apply import planned
from monolect.optimize.blocks.choice import block_of
from monolect.optimize.blocks.shared import SharedBlock, bank_cycles
from monolect.pipeline import lower_kernel
from tests.backend.workgroup_kernels import kernel, kernels

F16, BF16, F32, I8, U8 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.int8, dtypes.uint8
TARGETS = {
    "sm_75": cuda.target(75), "sm_80": cuda.target(80), "sm_89": cuda.target(89), "sm_90": cuda.target(90),
    "gfx942": hip.target("gfx942"), "gfx1100": hip.target("gfx1100"), "gfx1201": hip.target("gfx1201"),
    "metal": metal.TARGET,
}  # fmt: skip


def numbers(d, *shape, seed=0):
    low, high = (0, 9) if d.is_unsigned else (-8, 9)
    return np.random.default_rng(seed).integers(low, high, shape).astype(to_numpy(d))


def plan_of(target, f, *arrays) -> LoopPlan:
    (sink,) = kernels(target, f, *arrays)
    return planned(lower_kernel(sink, target, last="merge_ranges"), target)


def unit_of(target, d, m=512, k=512, n=512) -> str:
    acc = F32 if d.is_float else dtypes.int32
    plan = plan_of(target, lambda a, b: a.cast(acc) @ b.cast(acc), numbers(d, m, k), numbers(d, k, n))
    return plan.unit.name if plan.unit else ""


@pytest.mark.parametrize(("target", "d", "name"), [
    ("sm_75", F16, "mma_m16n8k8_f16"), ("sm_75", I8, "mma_m8n8k16_s8"), ("sm_75", BF16, ""),
    ("sm_80", F16, "mma_m16n8k16_f16"), ("sm_80", BF16, "mma_m16n8k16_bf16"), ("sm_80", U8, "mma_m16n8k32_u8"),
    ("sm_89", dtypes.fp8e4m3, "mma_m16n8k32_e4m3"), ("sm_80", dtypes.fp8e4m3, ""), ("sm_90", F32, ""),
    ("sm_90", F16, "wgmma_m64n"), ("sm_90", I8, "wgmma_m64n"), ("sm_90", dtypes.fp8e5m2, "wgmma_m64n"),
    ("gfx942", F16, "mfma_"), ("gfx942", I8, "mfma_"), ("gfx942", U8, ""), ("gfx1100", BF16, "wmma3_16x16x16_bf16"),
    ("gfx1201", dtypes.fp8e5m2, "wmma4_16x16x16_e5m2"), ("metal", F16, "simdgroup_8x8x8_f16"), ("metal", I8, ""),
])  # fmt: skip
def test_the_unit_is_chosen_by_types(target, d, name):
    found = unit_of(TARGETS[target], d)
    assert found.startswith(name) and bool(found) == bool(name)


def test_float32_is_rounded_only_where_that_is_allowed():
    assert not unit_of(TARGETS["sm_80"], F32)
    with Context(TF32=1):
        assert unit_of(TARGETS["sm_80"], F32).endswith("_tf32")


def test_products_that_share_little_use_no_unit():
    assert not unit_of(TARGETS["sm_90"], F16, m=1)
    assert not unit_of(TARGETS["sm_90"], F16, n=2)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_a_large_product_keeps_its_tiles_in_registers(layout):
    """Both operands are copied once a stage, to one of two blocks; a warp's inner loop has nothing but the unit."""
    target = TARGETS["sm_89"]
    a, b = numbers(F16, 1024, 1024), numbers(F16, 1024, 1024)
    turn = [(lambda t: t) if o == "N" else (lambda t: t.T) for o in layout]
    (sink,) = kernels(target, lambda x, y: turn[0](x) @ turn[1](y), a, b)
    linear = lower_kernel(sink, target)
    order = list(linear.src)
    (at,) = (i for i, u in enumerate(order) if u.op == "WMMA")
    start = max(i for i, u in enumerate(order[:at]) if u.op == "RANGE")
    inner = order[start : next(i for i, u in enumerate(order) if i > at and u.op == "END")]
    assert not any(u.op in ("MUL", "MULACC", "CAST") and u.dtype.kind == "f" for u in inner)
    assert sum(u.op == "LOAD" and u.dtype is F16 for u in inner) == 2
    assert sum(u.op == "BARRIER" for u in order) == 1
    assert int(np.prod(order[at].shape)) >= 32  # elements of the sum in each lane: operands are read for several tiles


@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
@pytest.mark.parametrize("d", [F16, I8])
def test_lanes_read_their_operands_without_waiting_for_each_other(layout, d):
    target = TARGETS["sm_89"]
    acc = F32 if d.is_float else dtypes.int32
    turn = [(lambda t: t) if o == "N" else (lambda t: t.T) for o in layout]
    arrays = numbers(d, 1024, 1024), numbers(d, 1024, 1024)
    plan = plan_of(target, lambda x, y: turn[0](x).cast(acc) @ turn[1](y).cast(acc), *arrays)
    assert len(plan.packs) == 2
    for u in plan.packs:
        block = SharedBlock(plan, u)
        places = [at * d.itemsize for at in block._read_offsets(block.dims)]
        assert len(set(places)) == 32 and bank_cycles(places, 4, 32, 4) <= 2


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_products_of_a_unit_that_reads_memory_are_waited_for_together(layout):
    """Of a stage: one wait behind several products, between the same barriers as all that fills local memory."""
    target = TARGETS["sm_90"]._replace(bulk_copies=False)
    a, b = numbers(F16, 1024, 1024), numbers(F16, 1024, 1024)
    turn = [(lambda t: t) if o == "N" else (lambda t: t.T) for o in layout]
    (sink,) = kernels(target, lambda x, y: turn[0](x) @ turn[1](y), a, b)
    linear = lower_kernel(sink, target)
    order = list(linear.src)
    at = [i for i, u in enumerate(order) if u.op == "WMMA"]
    assert len(at) > 1 and all(s.op == "INDEX" for i in at for s in order[i].src[:2])
    between = order[at[0] : at[-1]]
    assert all(u.op in ("WMMA", "INDEX", "STACK", "CONST") or u.dtype.kind == "x" for u in between)
    text = cuda.render_module([("k", linear)], 90).split(" k(", 1)[1]
    assert text.count("wgmma_m64n") % len(at) == 0 and text.count("wgmma_end();") == 1
    tiles = len(re.findall(r"vec<float, \d+> v\d+ = .*;\n +wgmma_pin", text))  # before the products, and after
    assert text.count("wgmma_pin(") == 2 * tiles > 0
    assert text.index("publish();") < text.index("__syncthreads();") < text.index("wgmma_begin();")


@pytest.mark.parametrize(("d", "layout"), [(F16, "NN"), (F16, "NT"), (F16, "TN"), (I8, "NT")])
def test_lanes_fill_core_matrices_without_waiting_for_each_other(d, layout):
    target = TARGETS["sm_90"]
    acc = F32 if d.is_float else dtypes.int32
    turn = [(lambda t: t) if o == "N" else (lambda t: t.T) for o in layout]
    arrays = numbers(d, 1024, 1024), numbers(d, 1024, 1024)
    plan = plan_of(target, lambda x, y: turn[0](x).cast(acc) @ turn[1](y).cast(acc), *arrays)
    assert len(plan.packs) == 2 and plan.unit.from_memory
    for u in plan.packs:
        block = block_of(plan, u)
        v = block._vector(block.dims)
        places = [block._fill_offset(block.dims, lane * v) * d.itemsize for lane in range(32)]
        assert v * d.itemsize == 16 and bank_cycles(places, 16, 32, 4) == 4  # 512 bytes, 128 of them at once


HOPPER_GPU = GPU._replace(units=HOPPER, local_bytes=48 << 10, n_registers=255)
PROGRAMS = {
    "product": (F16, lambda a, b: a @ b, (48, 64), (64, 40)),
    "linear layer": (BF16, lambda a, b: (a @ b.T + 1).relu(), (100, 72), (90, 72)),
    "batches": (F16, lambda a, b: a @ b, (3, 24, 32), (3, 32, 24)),
    "turned": (I8, lambda a, b: a.T.int() @ b.int(), (64, 48), (64, 33)),
    "kept in 16 bits, scaled": (BF16, lambda a, b: (a @ b) * 0.5, (33, 65), (65, 17)),
    "convolution": (F16, lambda x, w: x.conv2d(w, padding=1), (2, 16, 10, 10), (24, 16, 3, 3)),
    "large batches": (BF16, lambda a, b: a @ b, (2, 128, 32), (2, 32, 72)),
    "wide convolution": (BF16, lambda x, w: x.conv2d(w), (1, 16, 10, 16), (64, 16, 3, 3)),
    "a column for all steps": (I8, lambda a, b: a.expand(64, 64).int() @ b.int(), (64, 1), (64, 40)),
    "steps of three": (F16, lambda a, b: a @ b.T, (130, 96), (70, 96)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", [GPU, HOPPER_GPU], ids=["warps", "groups of warps"])
def test_what_is_chosen_is_right(target, name):
    d, f, *shapes = PROGRAMS[name]
    arrays = [numbers(d, *shape, seed=k) for k, shape in enumerate(shapes)]
    sink, operands = kernel(target, f, *arrays)
    linear = lower_kernel(sink, target)
    want = f(*(Tensor(x, device="python") for x in arrays)).numpy()
    for backwards in (False, True):
        out = np.zeros_like(want)
        Kernel(linear, "test", backwards).run([x.ctypes.data for x in (out, *operands)])
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("target", [GPU, HOPPER_GPU], ids=["warps", "groups of warps"])
def test_the_choice_falls_on_units_in_these_programs(target):
    found = {}
    for name, (d, f, *shapes) in PROGRAMS.items():
        plan = plan_of(target, f, *(numbers(d, *shape) for shape in shapes))
        found[name] = plan.unit is not None
    small = ("batches", "kept in 16 bits, scaled", "convolution", "a column for all steps")  # of tiles of 64 rows
    small = () if target is GPU else small
    assert [name for name, used in found.items() if used] == [name for name in PROGRAMS if name not in small]


def test_a_plan_that_is_tried_changes_no_other():
    """Padding of a trial must not reach the plan that it was copied from."""
    (sink,) = kernels(GPU, lambda a, b: a @ b, numbers(F16, 50, 64), numbers(F16, 64, 50))
    plan = LoopPlan(lower_kernel(sink, GPU, last="merge_ranges"), GPU)
    trial = plan.copy()
    trial.act(("PADTO", 0, 16))
    trial.act(("PADTO", 1, 8))
    assert [p.size for p in plan.axes] == [50, 50, 64] and not plan.padded
    trial.act(("TC", 2, ("mma_m16n8k16_f16", 0, 1)))
    assert trial.unit is BY_NAME["mma_m16n8k16_f16"] and plan.unit is None
