"""Operands of wgmma by boxes (TMA): what becomes one, on `python:gpu`, on the stand-in for CUDA and over its driver.

What this does not show: that the hardware's copies and counters do what the stand-in's do, nor how fast they are.
"""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from monolect import Context, Tensor, dtypes, jit
from monolect.backend import registry
from monolect.backend.base import launching
from monolect.backend.common.launch import bytes_at_launch, local_bytes, tensor_maps, workgroup_local_layout
from monolect.backend.cuda import render as cuda
from monolect.backend.cuda.runtime import CudaDevice
from monolect.backend.python.interpret import Kernel
from monolect.backend.python.runtime import GPU
from monolect.base.errors import ActionError, DeviceError, InternalError, VerifyError
from monolect.base.matrix_units import HOPPER, Cores, runs
from monolect.ir.check.prove import check_bounds
from monolect.ir.check.verify import verify
from monolect.ir.digest import digest
from monolect.ir.ops import BufferArg, Stage, TmaCopyArg
from monolect.ir.rewrite.normal import TRUE
from monolect.ir.text import parse, show
from monolect.ir.uop import UOp, idx, node, shape_source
from monolect.optimize.actions.pack import packs
from monolect.optimize.blocks.choice import block_of
from monolect.optimize.blocks.tma_boxes import BoxBlock
from monolect.pipeline import lower_kernel
from monolect.runtime.realize.execute import plans
from tests.backend.standin.boxes import encoded
from tests.backend.standin.device import Cuda, missing
from tests.backend.standin.driver import CUresult
from tests.backend.test_cuda import driver  # noqa: F401  (a fixture)
from tests.backend.workgroup_kernels import kernel, kernels, param
from tests.structure.test_warp_units import numbers, plan_of

needs_compiler = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
F16, BF16, I8, E4M3 = dtypes.float16, dtypes.bfloat16, dtypes.int8, dtypes.fp8e4m3
MODEL = GPU._replace(units=HOPPER, local_bytes=227 << 10, n_registers=255, bulk_copies=True)
CUDA = cuda.target(90)._replace(units=HOPPER, n_units=4)
# what is multiplied, boxes in the program, blocks in turns
PROGRAMS = {
    "rows times columns": (F16, lambda a, b: a @ b, (128, 256), (256, 128), 8, 4),
    "a linear layer": (BF16, lambda a, b: (a @ b.T + 1).relu(), (100, 192), (72, 192), 6, 3),
    "turned": (F16, lambda a, b: a.T @ b.T, (256, 128), (64, 256), 8, 4),
    "bytes": (I8, lambda a, b: a.int() @ b.T.int(), (128, 512), (64, 512), 8, 4),
    "floats of 8 bits": (E4M3, lambda a, b: a.float() @ b.T.float(), (128, 512), (64, 512), 8, 4),
    "columns that overhang a panel": (F16, lambda a, b: (a @ b) * 2, (100, 256), (256, 72), 8, 4),
    "batches": (F16, lambda a, b: a @ b, (2, 128, 128), (2, 128, 64), 4, 2),
    "as many steps as blocks": (F16, lambda a, b: a @ b, (128, 192), (192, 128), 6, 3),
    "several panels": (BF16, lambda a, b: a @ b, (256, 512), (512, 512), 20, 4),
    "one operand by the lanes": (F16, lambda a, b: a @ b, (256, 512), (512, 260), 4, 4),
    "a matrix by itself": (F16, lambda a, b: a @ a.T + b, (128, 256), (1, 1), 8, 4),
}


@cache
def example(name: str) -> tuple[list[np.ndarray], np.ndarray]:
    """The arguments of a program's kernel, and what it must give."""
    d, f, *shapes, _, _ = PROGRAMS[name]
    arrays = [numbers(d, *shape, seed=k) for k, shape in enumerate(shapes)]
    return kernel(MODEL, f, *arrays)[1], f(*(Tensor(x, device="python") for x in arrays)).numpy()


def made(name: str, target) -> UOp:
    """The program."""
    d, f, *shapes, _, _ = PROGRAMS[name]
    (sink,) = kernels(target, f, *(numbers(d, *shape) for shape in shapes))
    return lower_kernel(sink, target)


def boxes(linear: UOp) -> list[UOp]:
    return [u for u in linear.src if u.op == "TMACOPY"]


# ---- lane by lane ----------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_copied_by_boxes_is_right(name):
    linear, (arrays, want) = made(name, MODEL), example(name)
    verify(linear, Stage.PROGRAM)
    assert boxes(linear) and parse(show(linear)) is linear
    for backwards in (False, True):
        out = np.zeros_like(want)
        Kernel(linear, "test", backwards).run([x.ctypes.data for x in (out, *arrays)])
        np.testing.assert_array_equal(out, want)


def test_each_pass_keeps_the_meaning():
    with Context(VERIFY=2, CHECK_BOUNDS=1):
        made("batches", MODEL)


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_box_that_ends_beyond_local_memory_is_refused(beyond):
    to = node("BUFFER", (shape_source((12,)),), BufferArg(0, F16, None, "LOCAL"))
    first = node("RANGE", (idx(2),), (0, "REDUCE")) * 4 + beyond
    box = TmaCopyArg(0, (1, 8), (8, 8), (4, 2), 2)
    u = node("TMACOPY", (node("INDEX", (to, first)), param(1, 64, F16), idx(0), TRUE, idx(0), idx(0)), box)
    if not beyond:
        check_bounds(u)
    else:
        with pytest.raises(VerifyError, match="TMACOPY"):
            check_bounds(u)


# ---- which are -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_choice_falls_on_boxes(name):
    linear = made(name, CUDA)
    *_, n, turns = PROGRAMS[name]
    assert len(boxes(linear)) == n and {u.arg.n_buffers for u in boxes(linear)} == {turns}


@pytest.mark.parametrize(("f", "shapes"), [
    (lambda a, b: a @ b.T, ((128, 200), (128, 200))),  # 16 steps at once: lines of 32 bytes
    (lambda a, b: a @ b, ((128, 258), (258, 132))),  # lines that begin anywhere
    (lambda a, b: a.conv2d(b, padding=1), ((4, 64, 16, 16), (64, 64, 3, 3))),  # under a gate
    (lambda a, b: (a + 1) @ b, ((128, 64), (64, 128))),  # computed; and a single step
])  # fmt: skip
def test_what_fits_no_box_is_copied_by_the_lanes(f, shapes):
    arrays = [numbers(F16, *shape, seed=k) for k, shape in enumerate(shapes)]
    linears = [lower_kernel(sink, CUDA) for sink in kernels(CUDA, f, *arrays)]
    assert not any(boxes(linear) for linear in linears)


def test_what_fits_no_box_says_why():
    plan = plan_of(CUDA, lambda a, b: a @ b, numbers(F16, 256, 512), numbers(F16, 512, 260))
    (boxed,) = (u for u in plan.packs if isinstance(block_of(plan, u, plan.packs[u]), BoxBlock))
    (other,) = (u for u in plan.packs if u is not boxed)
    assert plan.packs[boxed] == 4 > plan.packs[other]
    with pytest.raises(ActionError, match="strides of 16 bytes"):
        BoxBlock(plan, other, 2)
    for turns in (5, 9):
        with pytest.raises(ActionError, match="1 to 4 buffers"):
            block_of(plan, boxed, turns)
    assert {a[0][2] for a in packs(plan)} == {None, 2, 3, 4}


def test_panels_are_lines_of_128_bytes():
    plain, turned = Cores(5000, 0, False, True), Cores(5000, 0, True, True)
    assert [plain.offset(r, k, 2) for r, k in ((0, 63), (1, 0), (9, 17), (0, 64))] == [63, 64, 593, 5000]
    assert [turned.offset(r, k, 2) for r, k in ((63, 0), (0, 1), (17, 9), (64, 0))] == [63, 64, 593, 5000]
    assert plain.offset(1, 127, 1) == 255
    # no run of columns crosses a panel, so that a place is linear in it
    for u in HOPPER:
        assert u.a.itemsize == 1 or not any(r.axis == 1 and r.at < 6 < r.at + r.n_bits for r in runs(u.maps[2])), u.name


# ---- as source -------------------------------------------------------------------------------------------------------
def run(device: Cuda, linear: UOp, arrays, want) -> np.ndarray:
    """What the stand-in computes."""
    (program,) = device.compile([("test", f"{digest(linear)}{id(device)}", linear)])
    held = [registry.Device["python"].from_array(x) for x in (np.zeros_like(want), *arrays)]
    commands = device.encode(*launching((program, tuple(range(len(held))))))
    for k, x in enumerate(held):
        commands.bind(k, x.address)
    commands.launch()
    return held[0].view(want.dtype)[: want.size].reshape(want.shape)


@pytest.mark.sweep
@needs_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_source_does_what_it_should(name):
    """On the stand-in, whose boxes are swizzled as the manual says, and arrive as late as they may, or at once."""
    linear, (arrays, want) = made(name, CUDA), example(name)
    np.testing.assert_array_equal(run(Cuda("test"), linear, arrays, want), want)


@pytest.mark.sweep
@needs_compiler
@pytest.mark.parametrize(("words", "changed", "message"), [
    ("bulk_copies", {"wait": ""}, "a box is in flight at the end"),
    ("bulk_copies", {"wait": "boxes_wait({v}, {step} + 1);"}, "a wait for boxes never ends"),
    ("bulk_copies", {"copy": "copy_box({to}, {map}, {v} + {turn}, {n} + 16, {gate}, {at});"}, "never ends"),
    ("bulk_copies", {"copy": "copy_box({to} + 8, {map}, {v} + {turn}, {n}, {gate}, {at});"}, "not aligned"),
    ("memory_units", {"panels": "core_matrices({p}, 128, 1024)"}, ""),
])  # fmt: skip
def test_what_is_wrong_shows(words, changed, message):
    name = "rows times columns"
    linear, (arrays, want) = made(name, CUDA), example(name)
    device = Cuda("test")
    device.language = replace(device.language, **{words: getattr(device.language, words)._replace(**changed)})
    if message:
        with pytest.raises(InternalError, match=message):
            run(device, linear, arrays, want)
    else:
        assert not np.array_equal(run(device, linear, arrays, want), want)


def test_lanes_publish_only_what_they_store():
    texts = {n: cuda.render_module([("k", made(n, CUDA))], 90).split(" k(", 1)[1] for n in PROGRAMS}
    assert "publish();" not in texts["several panels"] and "publish();" in texts["one operand by the lanes"]
    for text in texts.values():
        before = text[: text.index("wgmma_begin();")]
        assert before.index("boxes_wait(") < before.rindex("__syncthreads();")
        assert len(re.findall(r"const __grid_constant__ tensor_map map\d", text)) == len(
            set(re.findall("map[0-9]", text))
        )


def test_a_map_says_what_lies_where():
    linear = made("batches", CUDA)
    left, right = tensor_maps(linear.src)
    assert (left.slot, left.sizes, left.strides, left.dtype) == (1, (128, 128, 2), (256, 32768), "float16")
    places, end = workgroup_local_layout(linear.src)
    assert end == 4 * 8192 and all(at % 1024 == 0 for at in places.values())
    assert local_bytes(linear.src) == end + 1024 and bytes_at_launch(linear.src, end) == end
    assert left.box == (64, 64, 1) and right.box == (64, 64, 1) and right.sizes == (64, 128, 2)


# ---- over the driver -------------------------------------------------------------------------------------------------
@pytest.fixture
def gpu(driver):  # noqa: F811
    """A GPU that is not there, and no plan that launches on another one."""
    plans.clear()
    return driver


def product(seed: int):
    return [numbers(F16, 512, 512, seed=seed + k) for k in range(2)]


@needs_compiler
def test_the_launch_makes_the_maps(gpu):
    """Of the addresses of the moment: once each, also for graphs, which are told."""

    @jit
    def step(x, y):
        return x @ y + y @ x

    for k in range(3):  # launched, made a graph, told
        a, b = product(k)
        x, y = a.astype(np.float32), b.astype(np.float32)
        got = step(Tensor(a, device="cuda"), Tensor(b, device="cuda")).numpy()
        np.testing.assert_allclose(got.astype(np.float32), x @ y + y @ x, rtol=2e-3, atol=1)
    assert any("copy_box(" in p.source for p in registry.Device["cuda"].programs.values())
    assert gpu.calls["cuGraphInstantiate"] >= 1
    held = [Tensor(v, device="cuda").realize() for v in product(9)]
    step(*held).numpy()
    calls = gpu.calls["cuTensorMapEncodeTiled"]
    step(*held).numpy()
    assert gpu.calls["cuTensorMapEncodeTiled"] == calls


@needs_compiler
def test_maps_come_back_from_the_disk(gpu):
    a, b = product(0)
    with Context(COMPILE_CACHE=1, VERIFY=0, CHECK_BOUNDS=0):
        (Tensor(a, device="cuda") @ Tensor(b, device="cuda")).realize()
        programs = registry.Device["cuda"].programs
        (key, program), *_ = ((k, p) for k, p in programs.items() if p.entry.maps)
        assert CudaDevice().lookup(key).entry.maps == program.entry.maps


@needs_compiler
def test_a_map_that_the_driver_refuses_names_the_kernel(gpu):
    a, b = (Tensor(x, device="cuda").realize() for x in product(0))
    gpu.fail["cuTensorMapEncodeTiled"] = CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(DeviceError, match=r"cuda, kernel sum_512x512_r512: cuTensorMapEncodeTiled"):
        (a @ b).realize()


@pytest.mark.parametrize("row", [
    (2, 8, (64, 64), (128,), (64, 8)), (2, 0, (64, 64), (130,), (64, 8)), (2, 0, (64, 64), (128,), (64, 257)),
    (2, 0, (64, 64), (128,), (128, 8)), (1, 0, (64, 64), (128, 256), (64, 8)),
])  # fmt: skip
def test_the_driver_that_is_not_there_refuses_what_nvidias_does(row):
    assert len(encoded(2, 4096, (64, 64), (128,), (64, 8))) == 128
    with pytest.raises(AssertionError):
        encoded(*row)
