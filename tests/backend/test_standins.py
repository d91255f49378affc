"""CUDA, HIP and Metal source, run on this processor: the suite of ops, and kernels with workgroups.

The stand-ins are devices of the registry for these tests only. `standin/device.py` says what this shows and what not.
"""

from dataclasses import replace

import numpy as np
import pytest

from monolect import Context, Tensor
from monolect.backend import registry
from monolect.backend.base import Program, launching
from monolect.backend.common.clike.workgroups import GroupRenderer, runs
from monolect.backend.common.host import memory
from monolect.backend.cuda import render as cuda
from monolect.base.errors import DTypeError, InternalError
from monolect.ir.check.verify import verify
from monolect.ir.digest import digest
from monolect.ir.ops import Stage
from monolect.ir.uop import idx
from monolect.optimize.apply import apply_actions
from monolect.pipeline import lower_kernel
from tests.backend import test_ops_suite as suite
from tests.backend.modules_of_ops import (  # noqa: F401
    test_bits,
    test_casts,
    test_corners,
    test_elementwise,
    test_narrow_floats,
    test_reductions,
    test_sums_by_place,
)
from tests.backend.standin.device import LAUNCH, ROWS, Cuda, missing
from tests.backend.workgroup_kernels import CASES, kernels, param, reversed_in_groups, split
from tests.passes.test_workgroup_actions import LARGER

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
NAMES = tuple(ROWS)
# Metal has no 64-bit floats
DTYPES = {name: [d for d in suite.DTYPES if name != "standin-metal" or d.name != "float64"] for name in NAMES}


@pytest.fixture(scope="module", autouse=True)
def standins():
    registry.TARGETS.update(ROWS)
    yield
    for name in ROWS:
        del registry.TARGETS[name]
        registry.Device._open.pop(name, None)


@pytest.fixture(params=NAMES)
def device(request, monkeypatch):
    monkeypatch.setattr(suite, "DTYPES", DTYPES[request.param])
    return request.param


@pytest.mark.sweep
@pytest.mark.parametrize("name", NAMES)
def test_programs_as_one_module(name):
    suite.check_programs_as_one_module(name)


def test_metal_refuses_to_compute_in_64_bit_floats():
    x = Tensor(np.ones(5), device="standin-metal")
    assert x.numpy().tolist() == [1.0] * 5
    with pytest.raises(DTypeError, match="metal does not compute"):
        (x + 1).realize()


@pytest.mark.sweep
@pytest.mark.parametrize("name", NAMES)
def test_kernels_of_several_workgroups(name):
    """Tiles in local memory, rows shared by lanes, squares that are turned: as the optimizer plans them."""
    with Context(DEVICE=name):
        results = [program() for program in LARGER.values()]
        results[0].realize(*results[1:])
    for title, result in zip(LARGER, results, strict=True):
        assert result.device == name
        np.testing.assert_array_equal(result.numpy(), LARGER[title]().numpy(), err_msg=title)


# ---- workgroups ------------------------------------------------------------------------------------------------------
def load(device, *programs):
    """Programs of LINEARs, compiled as one module."""
    for lin in programs:
        verify(lin, Stage.PROGRAM)
    return registry.Device[device].compile([("test", digest(lin), lin) for lin in programs])


def run(device, program, *args):
    """Run a program on arrays."""
    commands = registry.Device[device].encode(*launching((program, tuple(range(len(args))))))
    for k, a in enumerate(args):
        commands.bind(k, a.ctypes.data)
    commands.launch()


def aligned(array):
    """The array at a multiple of 64."""
    out = memory.alloc(array.nbytes).view(array.dtype)[: array.size].reshape(array.shape)
    out[...] = array
    return out


@pytest.mark.sweep
@pytest.mark.parametrize("name", NAMES)
def test_kernels_for_workgroups(name):
    target = registry.Device[name].target
    programs = load(name, *(case.program(target) for case in CASES.values()))
    for program, (title, case) in zip(programs, CASES.items(), strict=True):
        out = aligned(case.out)
        run(name, program, out, *(aligned(a) for a in case.arrays))
        np.testing.assert_allclose(out, case.want, rtol=1e-4, atol=1e-4, err_msg=title)


def test_neighbours_move_at_once_where_the_address_is_proven():
    target = registry.Device["standin-cuda"].target
    texts = {}
    for name in ("elementwise", "half the element", "every third", "matmul"):
        texts[name] = GroupRenderer(cuda.language(80), CASES[name].program(target), "k").render()
    assert texts["elementwise"].count("load_wide<4>") == texts["elementwise"].count("store_wide<4>") == 1
    assert texts["half the element"].count("load_wide<4>") == 2 and "store_wide<8>" in texts["half the element"]
    assert "_wide" not in texts["every third"]
    assert texts["matmul"].count("load_wide<4>(data1") == 2  # two rows, four steps of the sum at once
    assert texts["matmul"].count("load_wide<4>(data2") == 4 and texts["matmul"].count("store_wide<4>(data0") == 2
    assert all("long long" not in text.split("{", 1)[1] for text in texts.values())  # addresses need 32 bits


@pytest.mark.parametrize("case", [
    ([0, 1, 2, 3], 0, 0, 4, [(0, 4)]),
    ([0, 1, 2, 3], 2, 4, 4, [(0, 2), (2, 2)]),
    ([0, 1, 2, 3], 0, 6, 4, [(0, 2), (2, 2)]),
    ([1, 2, 3, 4, 5], 0, 8, 4, [(1, 1), (2, 2), (4, 2)]),
    ([1, 2, 3, 4], 3, 4, 4, [(1, 4)]),
    ([-4, -3, -2, -1, 7], 0, 4, 2, [(-4, 2), (-2, 2), (7, 1)]),
    ([0, 1], 0, 5, 4, [(0, 1), (1, 1)]),
])  # fmt: skip
def test_runs(case):
    *given, want = case
    assert runs(*given) == want


# ---- what the stand-in finds -----------------------------------------------------------------------------------------
def test_a_barrier_that_is_missing_shows():
    (program,) = load("standin-hip", reversed_in_groups(has_barrier=False))
    case = CASES["reversed"]
    run("standin-hip", program, out := aligned(case.out), *case.arrays)
    assert not np.array_equal(out, case.want)


def test_copies_that_nobody_waits_for_show():
    """A copy that goes on by itself is made when its lane waits for it: a kernel that does not has other numbers."""
    target = registry.Device["standin-cuda"].target
    a, b = (np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % k for k in (7, 5))
    (sink,) = kernels(target, lambda x, y: x @ y, a, b)
    sink = lower_kernel(sink, target, last="merge_ranges")
    actions = (split(2, 4, "REDUCE", True), split(1, 8, "LOCAL"), split(0, 8, "LOCAL"), split(2, 8, "GLOBAL", True),
               split(0, 8, "GLOBAL", True), ("PACK", 0, 2), ("PACK", 1, 2))  # fmt: skip
    linear = lower_kernel(apply_actions(sink, actions, target), target, first="device_axes")
    device = Cuda("standin-cuda")
    found = []
    for wait in ("copies_done();", ""):
        copies = device.language.async_copies._replace(wait=wait)
        device.language = replace(device.language, async_copies=copies)
        (program,) = device.compile([("test", f"{digest(linear)}{wait}", linear)])
        assert program.source.count("copy_async<") >= 2
        found.append(aligned(np.zeros((64, 64), np.float32)))
        commands = device.encode(*launching((program, (0, 1, 2))))
        for k, x in enumerate((found[-1], aligned(a), aligned(b))):
            commands.bind(k, x.ctypes.data)
        commands.launch()
    np.testing.assert_array_equal(found[0], a @ b)
    assert not np.array_equal(found[1], a @ b)


@pytest.mark.sweep
@pytest.mark.parametrize("n, k, m", [(8, 31, 32), (40, 97, 64), (5, 40, 8), (64, 3, 64)])
def test_copies_to_offsets_known_only_at_run_time_go_through_registers(n, k, m):
    """The offsets of a lane's elements are quotients: a product of a sum of two stacked products."""
    rng = np.random.default_rng(0)
    x, w, last = (rng.integers(-2, 3, s).astype(np.float32) for s in ((n, k), (k, m), (m, 8)))
    target = cuda.target(90)
    sinks = kernels(target, lambda x, w, a: Tensor.stack(x @ w, x @ w * 2.0).tanh().sum(0).tanh() @ a, x, w, last)
    for source in (cuda.render_module([("k", lower_kernel(sink, target))], 90) for sink in sinks):
        assert ("copies_done();" in source) == ("void copies_done()" in source), "a function that is not defined"
    y = Tensor(x, device="standin-cuda") @ Tensor(w, device="standin-cuda")
    z = Tensor.stack(y, y * 2.0).tanh().sum(0).tanh() @ Tensor(last, device="standin-cuda")
    exact = (x @ w).astype(np.float64)
    wanted = np.tanh(np.tanh(exact) + np.tanh(2 * exact)) @ last
    np.testing.assert_allclose(z.numpy(), wanted, rtol=1e-5, atol=1e-4)


def test_lanes_that_meet_different_barriers_are_an_error():
    device = registry.Device["standin-cuda"]
    source = """
extern "C" __global__ void k_1(float* a) { if (threadIdx.x < 2) __syncthreads(); a[0] = 1; }
"""
    library, _ = device.library(source + LAUNCH.format(name="k_1", has_barrier="true"))
    out = np.zeros(4, np.float32)
    program = Program("k_1", (library.run_k_1, [idx(1)] * 3, [idx(4), idx(1), idx(1)], [param(0, 4)], []), 1)
    with pytest.raises(InternalError, match="different barriers"):
        run("standin-cuda", program, out)


def test_a_wide_access_that_is_not_aligned_is_an_error():
    device = registry.Device["standin-metal"]
    (program,) = load("standin-metal", CASES["elementwise"].program(device.target))
    out, x = aligned(CASES["elementwise"].out), aligned(np.zeros(4100, np.float32))
    with pytest.raises(InternalError, match="not aligned"):
        run("standin-metal", program, out, x[1:])
