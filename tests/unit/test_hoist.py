"""Weights of a captured step are packed once: same results, no copying in the step, never stale."""

from collections.abc import Callable

import numpy as np
import pytest

from monolect import Context, Tensor, jit, nn
from monolect.backend.common import memory
from monolect.backend.registry import Device
from monolect.ir.bounds import min_max
from monolect.ir.ops import KernelInfo
from monolect.ir.uop import UOp, node, toposort
from monolect.pipeline import lower_kernel
from monolect.runtime import hoist, profile
from monolect.runtime.callify import callify
from monolect.runtime.jit import Capture
from monolect.schedule.order import schedule
from tests.unit.test_prologue import WRITES

Program = Callable[[Tensor, Tensor], Tensor]


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def own(a: np.ndarray) -> Tensor:
    """A tensor with memory of its own."""
    return Tensor(a).clone().realize()


def capture_of(f: jit) -> Capture:
    return next(iter(f.captures.values()))[0]


def packs(f: jit) -> list[str]:
    """The kernels of the prologue that pack."""
    prologue = capture_of(f).prologue
    return [p.name for p, _, _ in prologue.launches if p.name.startswith("pack")] if prologue is not None else []


PROGRAMS: dict[str, tuple[Program, tuple[int, ...], tuple[int, ...]]] = {
    "A B": (lambda x, w: x @ w, (64, 256), (256, 256)),
    "A B transposed": (lambda x, w: x @ w.T, (77, 131), (517, 131)),
    "batches": (lambda x, w: x @ w, (3, 65, 200), (3, 200, 300)),
    "with an epilogue": (lambda x, w: ((x @ w) * 2 + w[0]).relu(), (64, 256), (256, 256)),
    "conv 3x3": (lambda x, w: x.conv2d(w, padding=1), (1, 64, 7, 7), (64, 64, 3, 3)),
    "conv of odd sizes": (lambda x, w: x.conv2d(w, padding=1), (2, 13, 11, 9), (37, 13, 3, 3)),
    "conv of stride 2": (lambda x, w: x.conv2d(w, padding=3, stride=2), (1, 3, 30, 30), (64, 3, 7, 7)),
    "conv in groups": (lambda x, w: x.conv2d(w, groups=2), (2, 16, 12, 12), (48, 8, 3, 3)),
    "conv transposed": (lambda x, w: x.conv_transpose2d(w, stride=2), (1, 24, 9, 9), (24, 40, 3, 3)),
}


PACKED = ("A B", "A B transposed", "conv 3x3")  # whatever the cost model thinks of the others


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_packing_at_every_replay(name: str) -> None:
    program, x, w = PROGRAMS[name]
    x, w = own(array(*x)), own(array(*w))
    with Context(HOIST=0):
        plain = jit(lambda x: program(x, w))
        wanted = [plain(x).numpy() for _ in range(2)][1]
    with Context(CHECK_BOUNDS=1, VERIFY=1):
        f = jit(lambda x: program(x, w))
        f(x)
    assert not packs(plain)
    assert len(packs(f)) == 1 or name not in PACKED, "one weight is packed, once"
    for _ in range(2):
        np.testing.assert_allclose(f(x).numpy(), wanted, rtol=1e-4, atol=1e-4 * float(np.abs(wanted).max()))


def frozen(out: Tensor, *weights: Tensor) -> UOp:
    """The last kernel of a program, with these tensors named constant."""
    sink, buffers, _ = callify([out.uop])
    call = schedule(list(sink.src), "null", 1 << 20).linear.src[-1]
    constant = {buffers.index(w.uop) for w in weights}
    slots = tuple(k for k, b in enumerate(call.src[1:]) if b.op == "PARAM" and b.arg.slot in constant)
    assert slots
    return node("SINK", call.src[0].src, KernelInfo(frozen=slots))


@pytest.mark.parametrize("name", PACKED)
def test_no_copy_is_left_in_the_step(name: str) -> None:
    program, x, w = PROGRAMS[name]
    target = Device["null"].target._replace(local_bytes=1 << 22)
    x, w = own(array(*x)), own(array(*w))
    kernel = frozen(program(x, w), w)
    main = lower_kernel(kernel, target)
    fill = lower_kernel(hoist.filling(kernel), target)
    plain = lower_kernel(node("SINK", kernel.src, KernelInfo()), target)
    local, kept = ([u for u in toposort(k) if u.op == "BUFFER" and u.arg.addrspace == "LOCAL"] for k in (plain, main))
    assert len(kept) == len(local) - 1
    loads = {u.src[0].src[0] for u in toposort(main) if u.op == "LOAD" and u.src[0].op == "INDEX"}
    params = {u.arg.slot for v in loads for u in toposort(v) if u.op == "PARAM"}
    assert not params.intersection(kernel.arg.frozen), "the weights themselves are read no more"
    assert not any(u.op in ("MUL", "MULACC", "ADD") and u.dtype.is_float for u in toposort(fill)), "only copies"


def test_a_kept_block_is_as_large_as_the_weights() -> None:
    x, w = own(array(1, 64, 14, 14)), own(array(128, 64, 3, 3))
    kernel = frozen(x.conv2d(w, padding=1), w)
    (block,) = hoist.kept_blocks(kernel, "cpu")
    assert w.nbytes <= block.n_bytes <= 1.1 * w.nbytes
    assert hoist.kept_blocks(node("SINK", kernel.src, KernelInfo()), "cpu") == ()


def test_half_precision_is_widened_in_what_is_kept() -> None:
    x, w = own(array(64, 256).astype(np.float16)), own(array(256, 256).astype(np.float16))
    (block,) = hoist.kept_blocks(frozen(x @ w, w), "cpu")
    assert 2 * w.nbytes <= block.n_bytes <= 2.2 * w.nbytes
    f = jit(lambda x: x @ w)
    with Context(CHECK_BOUNDS=1, VERIFY=1):
        f(x)
    wanted = x.numpy().astype(np.float32) @ w.numpy().astype(np.float32)
    for _ in range(2):
        np.testing.assert_allclose(f(x).numpy(), wanted, rtol=2e-3, atol=2e-3 * float(np.abs(wanted).max()))
    assert packs(f)


def test_blocks_larger_than_local_memory_are_kept() -> None:
    """What is kept lies in main memory."""
    from monolect.optimize.apply import kept_blocks, planned

    x, w = own(array(1, 64, 14, 14)), own(array(128, 64, 3, 3))
    kernel = frozen(x.conv2d(w, padding=1), w)
    target = Device["null"].target._replace(local_bytes=64 << 10)
    assert w.nbytes > target.local_bytes
    assert len(kept_blocks(planned(lower_kernel(kernel, target, last="merge_ranges"), target))) == 1


@pytest.mark.parametrize(
    ("what", "x", "w", "asked"),
    [
        ("few rows", (1, 512, 7, 7), (512, 512, 3, 3), True),
        ("rows of a product", (96, 768), (768, 3072), True),
        ("weights that the second cache holds", (1, 64, 7, 7), (64, 64, 3, 3), False),
        ("rows that memory is too slow for", (16, 100), (100, 20000), False),
        ("many passes over each panel", (256, 768), (768, 2304), True),
        ("rows that come from far away, too", (16, 512, 7, 7), (512, 512, 3, 3), False),
    ],
)
def test_passes_over_a_block_ask_for_their_share_of_the_next(what, x, w, asked) -> None:
    from monolect.optimize.apply import kept_blocks, planned

    target = Device["cpu"].target._replace(streams=True, l2_bytes=1 << 20, n_threads=2)
    x, w = own(array(*x)), own(array(*w))
    kernel = frozen(x.conv2d(w, padding=1) if len(w.shape) == 4 else x @ w, w)
    plan = planned(lower_kernel(kernel, target, last="merge_ranges"), target)
    (block,) = kept_blocks(plan).values()
    assert plan.flags.get(block.load) == ("next" if asked else None)
    assert block.has_next or not asked
    fetches = [u.src[0] for u in toposort(lower_kernel(kernel, target)) if u.op == "FETCH"]
    assert bool(fetches) == asked
    for place in fetches:  # each step of each pass another line, up to the end of the block after the last
        low, high = min_max(place.src[1])
        assert 0 < low <= high < 2 * block.kept_bytes // 4


def test_weights_are_packed_once_where_rows_would_be_at_each_call() -> None:
    from monolect.optimize.apply import kept_blocks, planned

    target = Device["cpu"].target._replace(streams=True, l2_bytes=1 << 20, n_threads=2)
    x, w = own(array(256, 768)), own(array(2304, 768))
    plan = planned(lower_kernel(frozen(x @ w.T, w), target, last="merge_ranges"), target)
    (block,) = kept_blocks(plan).values()
    assert block.kept_bytes >= w.nbytes
    assert list(plan.packs) == [block.load]


def test_weights_that_stream_beside_few_rows_are_not_packed_once() -> None:
    from monolect.optimize.apply import kept_blocks, planned

    target = Device["cpu"].target._replace(streams=True, l2_bytes=1 << 20, n_threads=2)
    x, w = own(array(16, 2048)), own(array(2048, 2048))
    assert not kept_blocks(planned(lower_kernel(frozen(x @ w, w), target, last="merge_ranges"), target))


@pytest.mark.parametrize("write", WRITES)
def test_packed_weights_are_never_stale(write: Callable[[Tensor, float], None]) -> None:
    x, w = own(array(32, 64)), Tensor.full((64, 64), 1.0).contiguous().realize()
    f = jit(lambda x: x @ w.T)
    f(x)
    assert packs(f)
    for value in (2.0, 3.0):
        write(w, value)
        for _ in range(2):
            wanted = x.numpy() @ np.full((64, 64), value, np.float32)
            np.testing.assert_allclose(f(x).numpy(), wanted, rtol=1e-4, atol=1e-3)


def test_what_others_can_write_to_at_the_capture_is_packed_at_every_replay() -> None:
    a = array(64, 64)
    x, w = own(array(32, 64)), Tensor(a)
    f = jit(lambda x: x @ w.T)
    for value in (1.0, 2.0, 3.0):
        a[:] = value
        np.testing.assert_allclose(f(x).numpy(), x.numpy() @ a.T, rtol=1e-4, atol=1e-3)
    assert capture_of(f).prologue is None


def test_equal_uses_share_their_blocks() -> None:
    x, w = own(array(32, 64)), own(array(64, 64) / 8)

    def step(x: Tensor) -> Tensor:
        for _ in range(3):
            x = (x @ w.T).relu()
        return x

    f = jit(step)
    f(x)
    assert len(packs(f)) == 1
    wanted = x.numpy()
    for _ in range(3):
        wanted = np.maximum(wanted @ w.numpy().T, 0)
    np.testing.assert_allclose(f(x).numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_results_of_the_prologue_are_packed_once_too() -> None:
    x, w = own(array(32, 64)), own(array(64, 64))
    f = jit(lambda x: x @ (w / w.square().sum(1, keepdim=True).sqrt()).contiguous().realize().T)
    f(x)
    assert packs(f)
    with profile.Recorder():
        f(x)
    with profile.Recorder() as kernels:
        got = f(x).numpy()
    assert len(kernels) == 1
    a = w.numpy()
    np.testing.assert_allclose(got, x.numpy() @ (a / np.linalg.norm(a, axis=1, keepdims=True)).T, rtol=1e-4, atol=1e-4)


def test_what_is_read_once_a_call_is_not_packed() -> None:
    for w in (own(array(512, 512)), own(array(512, 512)).T):
        f = jit(lambda x, w=w: x @ w)
        f(own(array(1, 512)))
        assert not packs(f)


def test_weights_that_a_step_updates_are_state() -> None:
    layer = nn.Linear(64, 64)
    optimizer = nn.optim.SGD(layer.parameters(), lr=0.1)

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = own(array(32, 64))
    losses = [step(x).item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    assert not packs(step)


def test_a_dropped_capture_frees_its_blocks() -> None:
    x, w = own(array(32, 512)), own(array(512, 512))
    base = memory.stats().used_bytes
    for _ in range(3):
        f = jit(lambda x: x @ w.T)
        f(x)
        f(x)
        assert memory.stats().used_bytes >= base + w.nbytes
        del f
        assert memory.stats().used_bytes < base + w.nbytes


def test_a_damaged_cache_entry_is_a_miss() -> None:
    assert hoist.read(None) is None and hoist.read(b"\xff[") is None and hoist.read(b"[[1]]") is None
    assert hoist.read(b"[[1, 64]]") == (hoist.Kept(1, 64),)
