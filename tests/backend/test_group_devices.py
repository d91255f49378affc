"""Devices with workgroups and memory of their own: programs by hand, memory, caches, errors, whole programs.

The suite of ops (`test_ops_suite.py`) has the ops one by one. A device that is absent is skipped, and says why.
"""

import json
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

from monolect import Context, Tensor, jit
from monolect.backend.base import launching
from monolect.backend.registry import TARGETS, Device
from monolect.base.disk.cache import DiskCache
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import AllocationError, CompileError, DeviceError, DTypeError, JitError
from monolect.ir.ops import BufferArg, KernelInfo, ParamArg
from monolect.ir.uop import UOp, build, const, idx, node, shape_source, toposort
from monolect.rules.formula import cast
from tests.backend import test_ops_suite as suite
from tests.backend.workgroup_kernels import CASES
from tests.passes.test_workgroup_actions import LARGER
from tests.unit import test_variable as symbolic

F32, I32 = dtypes.float32, dtypes.int32
NAMES = ("opencl", "webgpu")


@pytest.fixture(params=NAMES)
def device(request):
    missing = Device.present()[request.param]
    if missing:
        pytest.skip(f"{request.param}: {missing}")
    return request.param


# ---- making and running programs -------------------------------------------------------------------------------------
def param(slot: int, *shape, dtype: DType = F32) -> UOp:
    return node("PARAM", (shape_source(shape),), ParamArg(slot, dtype, None))


def variable(slot: int, name: str, hi: int) -> UOp:
    return node("PARAM", (shape_source(()),), ParamArg(slot, dtypes.index, None, None, name, 0, hi))


def local(slot: int, n: int, dtype: DType = F32) -> UOp:
    return node("BUFFER", (shape_source((n,)),), BufferArg(slot, dtype, None, "LOCAL"))


def special(name: str, n) -> UOp:
    return node("SPECIAL", (idx(n),), name)


def at(memory: UOp, i) -> UOp:
    return node("INDEX", (memory, idx(i)))


def load(view: UOp, *rest: UOp) -> UOp:
    return node("LOAD", (view, *rest))


def store(view: UOp, value: UOp, *gate: UOp) -> UOp:
    return node("STORE", (view, value, *gate))


def after(memory: UOp, *effects: UOp) -> UOp:
    return node("AFTER", (memory, *effects))


def barrier(*effects: UOp) -> UOp:
    return node("BARRIER", effects)


def linear(*roots: UOp) -> UOp:
    return node("LINEAR", tuple(toposort(*roots)), KernelInfo("test"))


def run(device: str, lin: UOp, *args) -> list[np.ndarray]:
    """The buffers after the program; ints are values of Variables."""
    dev = Device[device]
    (program,) = dev.compile([("test", f"test{id(lin)}", lin)])
    memory = [a if isinstance(a, int) else dev.from_array(a) for a in args]
    commands = dev.encode(*launching((program, tuple(range(len(args))))))
    for k, m in enumerate(memory):
        commands.bind(k, m if isinstance(m, int) else m.address)
    commands.launch()
    return [m.view(a.dtype) for m, a in zip(memory, args, strict=True) if not isinstance(a, int)]


def test_a_device_that_is_not_there_is_an_error_that_names_those_that_are(device):
    with pytest.raises(DeviceError, match=f"{device}:0"):
        Tensor([1.0], device=f"{device}:99").realize()


# ---- workgroups ------------------------------------------------------------------------------------------------------
def test_a_program_without_specials_is_one_work_item(device):
    a = np.arange(4, dtype=np.int32)
    added = node("ATOMICADD", (at(param(0, 1, dtype=I32), 0), load(at(param(1, 4, dtype=I32), 3))))
    out, _ = run(device, linear(added), np.zeros(1, np.int32), a)
    assert out.tolist() == [3]


def test_groups_reverse_their_lanes_in_local_memory(device):
    g, i = special("gidx0", 4), special("lidx0", 8)
    memory = local(0, 8)
    filled = store(at(memory, i), load(at(param(1, 32), g * 8 + i)))
    value = load(at(after(memory, barrier(filled)), i * -1 + 7))
    a = np.arange(32, dtype=np.float32)
    out, _ = run(device, linear(store(at(param(0, 32), g * 8 + i), value)), np.zeros(32, np.float32), a)
    np.testing.assert_array_equal(out, a.reshape(4, 8)[:, ::-1].ravel())


def test_a_sum_in_halves_meets_a_barrier_after_each(device):
    g, i = special("gidx0", 3), special("lidx0", 16)
    memory = local(0, 16)
    place = after(memory, barrier(store(at(memory, i), load(at(param(1, 48), g * 16 + i)))))
    for half in (8, 4, 2, 1):
        total = load(at(place, i)) + load(at(place, i + half), const(0.0, F32), build("CMPLT", i, idx(half)))
        place = after(memory, barrier(store(at(place, i), total, build("CMPLT", i, idx(half)))))
    out = store(at(param(0, 3), g), load(at(place, 0)), build("CMPLT", i, idx(1)))
    a = np.arange(48, dtype=np.float32)
    (got, _) = run(device, linear(out), np.zeros(3, np.float32), a)
    np.testing.assert_array_equal(got, a.reshape(3, 16).sum(1))


def test_three_dimensions_of_groups_and_lanes(device):
    gs = [special(f"gidx{k}", n) for k, n in enumerate((2, 3, 4))]
    ls = [special(f"lidx{k}", n) for k, n in enumerate((5, 2, 3))]
    flat = idx(0)
    for s in (*gs, *ls):
        flat = flat * s.src[0] + s
    n = 2 * 3 * 4 * 5 * 2 * 3
    (out,) = run(device, linear(store(at(param(0, n, dtype=I32), flat), cast(flat, I32))), np.zeros(n, np.int32))
    np.testing.assert_array_equal(out, np.arange(n))


def test_how_many_groups_there_are_may_depend_on_a_variable(device):
    n = variable(1, "long", 10)  # a name that is a word of the language
    g = special("gidx0", n)
    lin = linear(store(at(param(0, 10, dtype=I32), g), cast(g + n, I32)))
    for k in (0, 3, 10):
        (out,) = run(device, lin, np.full(10, -1, np.int32), k)
        assert out.tolist() == [i + k for i in range(k)] + [-1] * (10 - k)


ADDED = [dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64, dtypes.float32, dtypes.float64, dtypes.int8,
         dtypes.uint8, dtypes.int16, dtypes.uint16]  # fmt: skip


def test_lanes_of_all_groups_add_to_the_same_places(device):
    added = [d for d in ADDED if d in Device[device].target.atomics]
    assert {dtypes.int32, dtypes.uint32, F32} <= set(added)
    g, i = special("gidx0", 16), special("lidx0", 8)
    gate = build("CMPLT", i, idx(6))
    adds = [
        node("ATOMICADD", (at(param(k, 4, dtype=d), (g + i) % 4), cast(i + 1, d), gate)) for k, d in enumerate(added)
    ]
    got = run(device, linear(*adds), *(np.full(4, 1, d.numpy) for d in added))
    want = np.ones(4, np.int64)
    for a in range(16):
        for b in range(6):
            want[(a + b) % 4] += b + 1
    for out, d in zip(got, added, strict=True):
        np.testing.assert_array_equal(out, want.astype(d.numpy), err_msg=d.name)


def test_lanes_add_in_local_memory(device):
    i = special("lidx0", 64)
    memory = local(0, 1)
    cleared = barrier(store(at(memory, 0), const(0.0, F32), build("CMPLT", i, idx(1))))
    added = barrier(node("ATOMICADD", (at(after(memory, cleared), 0), cast(i, F32))))
    out = store(at(param(0, 64), i), load(at(after(memory, added), 0)))
    (got,) = run(device, linear(out), np.zeros(64, np.float32))
    np.testing.assert_array_equal(got, np.full(64, 2016))


@pytest.mark.parametrize("name", CASES)
def test_kernels_for_workgroups(device, name):
    """Plans by hand: groups and lanes, padding, shared sums, tiles."""
    case, target = CASES[name], Device[device].target
    out, *_ = run(device, case.program(target), case.out, *case.arrays)
    np.testing.assert_allclose(out.reshape(case.want.shape), case.want, rtol=1e-4, atol=1e-4)


def test_kernels_of_several_workgroups(device):
    """Tiles and padded rows in local memory, sums shared by lanes, squares that are turned: as it is planned."""
    with Context(DEVICE=device, COMPILE_CACHE=0):
        results = [program() for program in LARGER.values()]
        results[0].realize(*results[1:])
    for title, result in zip(LARGER, results, strict=True):
        np.testing.assert_array_equal(result.numpy(), LARGER[title]().numpy(), err_msg=title)


# ---- limits and errors -----------------------------------------------------------------------------------------------
def test_limits_are_errors_that_name_kernel_device_and_remedy(device):
    dev = Device[device]
    i = special("lidx0", 2 * dev.target.max_local)
    with pytest.raises(CompileError, match=rf"(?s)wide: too many lanes.*on {device}: fewer LOCAL axes"):
        dev.compile([("wide", "wide", linear(store(at(param(0, 4), 0), cast(i, F32))))])
    memory = local(0, dev.target.local_bytes)
    with pytest.raises(CompileError, match=rf"(?s)big: too much local memory.*bytes on {device}"):
        dev.compile([("big", "big", linear(store(at(memory, 0), const(1.0, F32))))])
    assert Tensor([1.0, 2.0], device=device).sum().item() == 3


def test_a_dtype_that_the_device_does_not_compute_in_is_an_error(device, monkeypatch):
    dev = Device[device]
    target = dev.target._replace(native_dtypes=dev.target.native_dtypes - {dtypes.float64})
    monkeypatch.setattr(dev, "target", target)
    x = Tensor(np.arange(5.0), device=device)
    assert x.dtype is dtypes.float64
    with pytest.raises(DTypeError, match=rf"(?s){device} does not compute.*t.float\(\).*float64"):
        (x * 2.125).realize()
    np.testing.assert_array_equal(x.flip(0).contiguous().numpy(), np.arange(5.0)[::-1])  # its bits can be moved


def test_a_buffer_larger_than_the_device_has_is_an_error_and_the_device_goes_on(device):
    dev = Device[device]
    with pytest.raises(AllocationError, match=rf"(?s){device} has no memory for 2\d{{13}} bytes.*smaller batches"):
        dev.alloc(2 * 10**13)
    assert Tensor([1.0, 2.0], device=device).sum().item() == 3


def test_a_forked_process_is_told_that_it_has_no_device(device):
    code = """
import os, sys
from monolect import DeviceError, Tensor
x = Tensor([1.0, 2.0], device=sys.argv[1])
assert (x + 1).tolist() == [2, 3]
child = os.fork()
if not child:
    try:
        (x + 2).realize()
    except DeviceError as error:
        os._exit(0 if "before a fork" in str(error) else 1)
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0 and (x + 3).tolist() == [4, 5]
"""
    assert (
        subprocess.run([sys.executable, "-W", "ignore", "-c", code, device], check=False, timeout=120).returncode == 0
    )


# ---- caches ----------------------------------------------------------------------------------------------------------
def test_programs_are_kept_on_disk_and_a_damaged_entry_is_a_miss(device):
    module, cls = TARGETS[device]
    opened = getattr(import_module(module), cls)
    first = opened(device)
    g = special("gidx0", 7)
    lin = linear(store(at(param(0, 7, dtype=I32), g), cast(g, I32)))
    first.compile([("kept", "kept on disk", lin)])
    second = opened(device)
    second.compile = None  # a cached program needs no renderer
    found = second.lookup("kept on disk")
    assert found is not None and found.name == "kept" and second.lookup("kept on disk") is found
    memory = second.from_array(np.zeros(7, np.int32))
    commands = second.encode(*launching((found, (0,))))
    commands.bind(0, memory.address)
    (ns,) = commands.launch_timed()
    assert ns > 0 and memory.view(np.int32).tolist() == list(range(7))
    entry = f"kernel/{first.target.key}/kept on disk"
    info = json.loads(DiskCache(device).get(entry))
    for damage in (b"{", json.dumps(info | {"code": "none"}).encode(), json.dumps(info | {"symbol": "g"}).encode(),
                   json.dumps(info | {"groups": ["nonsense"]}).encode()):  # fmt: skip
        DiskCache(device).put(entry, damage)
        assert opened(device).lookup("kept on disk") is None, damage
    DiskCache(device).put(entry, json.dumps(info).encode())
    DiskCache(device).put(f"code/{first.target.key}/{info['code']}", b"no binary")
    assert opened(device).lookup("kept on disk") is None
    with Context(COMPILE_CACHE=0):
        assert opened(device).lookup("kept on disk") is None


def test_programs_as_one_module(device):
    suite.check_programs_as_one_module(device)


def test_values_go_from_device_to_device(device, tmp_path):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = Tensor(a, device=device)
    assert x.device == device and (x + 1).to("cpu").device == "cpu"
    np.testing.assert_array_equal((x + 1).to("cpu").T.numpy(), (a + 1).T)
    y = (Tensor(a) * 2)[1:].to(device) + x[1:]
    np.testing.assert_array_equal(y.numpy(), a[1:] * 3)
    np.testing.assert_array_equal((x.to("cpu") + 1).to(device).to("python").sum(0).numpy(), (a + 1).sum(0))
    np.testing.assert_array_equal(Tensor.full((2,), 3.0, device=device).to("cpu").numpy(), [3, 3])
    (tmp_path / "f").write_bytes(a.tobytes())
    kept = Tensor.from_file(tmp_path / "f")
    np.testing.assert_array_equal(kept[16:48].to(device).bitcast(F32).numpy(), a.ravel()[4:])
    w = Tensor(a, requires_grad=True)
    (w.to(device) * x).sum().backward()
    assert w.grad.device == "cpu"
    np.testing.assert_array_equal(w.grad.numpy(), a)
    with pytest.raises(DeviceError):
        (x + Tensor(a)).realize()


def test_every_half_is_converted_exactly_and_floats_round_to_the_nearest(device):
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    wide = halves.astype(np.float32)
    np.testing.assert_array_equal(Tensor(halves, device=device).float().numpy(), wide)
    between = (wide[:-1] + wide[1:]) / 2  # ties
    special = np.array([65519.99, 65520, 1e9, -1e9, 2.9e-8, 2.98023224e-8, 3e-8, np.inf, -np.inf, -0.0], np.float32)
    floats = np.concatenate([between, np.nextafter(between, np.float32(9e9)), special])
    with np.errstate(over="ignore"):
        want = floats.astype(np.float16)
    np.testing.assert_array_equal(Tensor(floats, device=device).half().numpy().view(np.uint16), want.view(np.uint16))
    assert np.isnan(Tensor(np.array([np.nan], np.float32), device=device).half().numpy()).all()


def test_intermediates_are_parts_of_one_buffer(device):
    rng = np.random.default_rng(3)
    a = rng.standard_normal((33, 17)).astype(np.float32)
    x = Tensor(a, device=device)
    y = ((x @ x.T).contiguous() + 1).contiguous().sum(0).contiguous() * 2
    np.testing.assert_allclose(y.numpy(), ((a @ a.T) + 1).sum(0) * 2, rtol=1e-5)
    from monolect.runtime.realize.execute import plans

    plan = next(p for p in reversed(plans.values()) if p.device == device)
    align = Device[device].target.align_bytes
    assert any(plan.offsets) and all(o % align == 0 for o in plan.offsets)


@pytest.mark.parametrize("title", ["slice", "two kernels", "product"])
def test_one_plan_for_every_value_of_a_size(device, title):
    ours, theirs = symbolic.PROGRAMS[title]
    x = Tensor(symbolic.X, device=device).realize()
    for n in (3, 8, 1):
        with symbolic.N.bind(n):
            np.testing.assert_allclose(ours(x).numpy(), theirs(symbolic.X, n), rtol=1e-5)


def test_a_step_is_replayed_with_its_state(device):
    total = Tensor(np.zeros(4, np.float32), device=device).realize()

    @jit
    def step(x):
        total.assign(total + x)
        return total * 2 + x

    want, held = np.zeros(4, np.float32), []
    for k in range(5):
        a = np.full(4, k, np.float32)
        out = step(Tensor(a, device=device))
        want = want + a
        np.testing.assert_array_equal(out.numpy(), want * 2 + a)
        held.append((total + 0, want))  # a graph that holds the state of now
    for t, then in held:
        np.testing.assert_array_equal(t.numpy(), then)
    np.testing.assert_array_equal(total.numpy(), want)


def test_a_copy_between_devices_cannot_be_captured(device):
    @jit
    def step(x):
        return x.to("cpu") + 1

    with pytest.raises(JitError, match="copy between devices"):
        step(Tensor([1.0], device=device))
