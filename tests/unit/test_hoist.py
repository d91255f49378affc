"""Weights of a captured step are packed once: same results, no copying in the step, never stale."""

from collections.abc import Callable

import numpy as np
import pytest

from monolect import Context, Tensor, jit, nn
from monolect.backend.common.host import memory
from monolect.backend.registry import Device
from monolect.command.rewrites.pack_once import filling
from monolect.ir.bounds import min_max
from monolect.ir.ops import KernelInfo
from monolect.ir.uop import UOp, node, toposort
from monolect.pipeline import lower_kernel, schedule
from monolect.runtime import profile
from monolect.runtime.replay import hoist, packing
from monolect.runtime.replay.capture import Capture
from monolect.schedule.callify import over_params
from tests.unit.test_prologue import WRITES, through_a_view, through_a_view_of_a_view

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
    names = [c.src[0].arg.name for c in prologue.items] if prologue is not None else []
    return [name for name in names if name.startswith("pack")]


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


# whatever the cost model thinks of the others, and of convolutions by vectors of 32 bytes
PACKED = ("A B", "A B transposed", *(["conv 3x3"] if Device["cpu"].target.vector_bytes > 32 else []))


@pytest.mark.sweep
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
    sink, buffers, _ = over_params([out.uop])
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
    fill = lower_kernel(filling(kernel), target)
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
    (block,) = hoist.packed_blocks(kernel, Device["null"].target)
    assert w.nbytes <= block.n_bytes <= 1.1 * w.nbytes
    assert hoist.packed_blocks(node("SINK", kernel.src, KernelInfo()), Device["null"].target) == ()


def test_half_precision_is_widened_in_what_is_kept() -> None:
    x, w = own(array(64, 256).astype(np.float16)), own(array(256, 256).astype(np.float16))
    (block,) = hoist.packed_blocks(frozen(x @ w, w), Device["cpu"].target)
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


@pytest.mark.sweep
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

    target = Device["null"].target._replace(streams=True, l2_bytes=1 << 20, n_threads=2)
    x, w = own(array(*x)), own(array(*w))
    kernel = frozen(x.conv2d(w, padding=1) if len(w.shape) == 4 else x @ w, w)
    plan = planned(lower_kernel(kernel, target, last="merge_ranges"), target)
    (block,) = kept_blocks(plan).values()
    assert plan.flags.get(block.load) == ("next" if asked else None)
    assert block.has_next or not asked
    fetches = [u.src[0] for u in toposort(lower_kernel(kernel, target)) if u.op == "PREFETCH"]
    assert bool(fetches) == asked
    for place in fetches:  # each step of each pass another line, up to the end of the block after the last
        low, high = min_max(place.src[1])
        assert 0 < low <= high < 2 * block.kept_bytes // 4


def test_weights_are_packed_once_where_rows_would_be_at_each_call() -> None:
    from monolect.optimize.apply import kept_blocks, planned

    target = Device["null"].target._replace(streams=True, l2_bytes=1 << 20, n_threads=2)
    x, w = own(array(256, 768)), own(array(2304, 768))
    plan = planned(lower_kernel(frozen(x @ w.T, w), target, last="merge_ranges"), target)
    (block,) = kept_blocks(plan).values()
    assert block.kept_bytes >= w.nbytes
    assert list(plan.packs) == [block.load]


def test_weights_that_stream_beside_few_rows_are_not_packed_once() -> None:
    from monolect.optimize.apply import kept_blocks, planned

    target = Device["null"].target._replace(streams=True, l2_bytes=1 << 20, n_threads=2)
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
    assert hoist.read(None) is None and hoist.read(b"\xff[") is None and hoist.read(b"[[1, 64]]") is None
    assert hoist.read(b'[[1, 64, "rows"]]') == (hoist.Packed(1, 64, "rows"),)


# ---- shared copies ---------------------------------------------------------------------------------------------------
def copies(*steps: jit) -> dict[int, int]:
    """The bytes of each packed copy that captures of these steps bind, by address."""
    found = [c for f in steps for captured in f.captures.values() for c in captured.capture.copies.values()]
    return {c.memory.address: c.n_bytes for c in found}


def test_captures_for_several_sizes_share_the_copies_of_a_layout() -> None:
    """Each had its own: 12 batch sizes took 12 times the memory of the weights."""
    a = array(256, 768)
    w = own(a)
    f, g = jit(lambda x: x @ w), jit(lambda x: (x @ w) * 2)
    xs = [own(array(rows, 256)) for rows in (32, 48, 64, 80, 96, 112, 128)]
    for x in 3 * xs:
        for step, factor in ((f, 1), (g, 2)):
            np.testing.assert_allclose(step(x).numpy(), factor * (x.numpy() @ a), rtol=1e-3, atol=1e-3)
    layouts = {b.layout for x in xs for b in hoist.packed_blocks(frozen(x @ w, w), Device["cpu"].target)}
    assert len(f.captures) == 7 and len(copies(f)) >= 1
    assert len(copies(f, g)) <= len(layouts) < 7
    assert packing.packed_bytes() >= sum(copies(f, g).values())


def test_the_last_capture_frees_a_copy() -> None:
    base, w = packing.packed_bytes(), own(array(256, 256))
    f, g = jit(lambda x: x @ w), jit(lambda x: (x @ w) + 1)
    x = own(array(64, 256))
    f(x), g(x)
    assert packing.packed_bytes() == base + sum(copies(f, g).values()) > base
    del f
    assert packing.packed_bytes() == base + sum(copies(g).values()) > base
    w.assign(own(array(256, 256)) * 2).realize()
    g(x)
    assert packing.packed_bytes() == base + sum(copies(g).values()), "the copy of what it was before is gone"
    del g
    assert packing.packed_bytes() == base


@pytest.mark.parametrize("fitting", [0, 1, 2])
def test_packed_weights_are_bounded(fitting: int) -> None:
    side = 512  # 1 MB and some lines
    ws = [own(array(side, side)) for _ in range(3)]
    x = own(array(64, side) / 32)
    f = jit(lambda x: x @ ws[0] @ ws[1] @ ws[2])
    base = packing.packed_bytes()
    limit = (base >> 20) + 2 * fitting if fitting else 0
    with Context(PACK_LIMIT_MB=limit):
        got = [f(x).numpy() for _ in range(2)][1]
    assert len(copies(f)) == fitting + (fitting == 2)
    wanted = x.numpy() @ ws[0].numpy() @ ws[1].numpy() @ ws[2].numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3 * float(np.abs(wanted).max()))


def test_a_copy_of_what_a_tensor_was_before_is_not_written_to() -> None:
    """The first step would read what the second packs of the buffer that both tensors were at first."""
    w = Tensor.full((64, 64), 1.0).contiguous().realize()
    x, v = own(array(32, 64)), Tensor(w)
    first, second = jit(lambda x: x @ w.T), jit(lambda x: x @ v.T)
    v.uop = Tensor.full((64, 64), 9.0).contiguous().realize().uop
    first(x)
    old = w.uop
    w.uop = Tensor.full((64, 64), 2.0).contiguous().realize().uop
    first(x)
    v.uop = old
    for step, value in ((second, 1.0), (first, 2.0), (second, 1.0), (first, 2.0)):
        wanted = x.numpy() @ np.full((64, 64), value, np.float32)
        np.testing.assert_allclose(step(x).numpy(), wanted, rtol=1e-4, atol=1e-3)
    assert len(copies(first, second)) == 2


CALLS = ["few rows", "more rows", "doubled", "other", "other few"]
CHANGES = ["hold", "release", "tie", "swap", "swap", "update", "forget", "forget", *WRITES]
XS = [own(array(rows, 64)) for rows in (32, 48)]


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(12))
def test_shared_copies_are_never_stale(seed: int) -> None:
    """Captures that share copies are called between writes of all kinds, to tensors of one buffer or of two."""
    rng = np.random.default_rng(seed)
    w = Tensor.full((64, 64), 1.0).contiguous().realize()
    ws = [w, Tensor(w)]
    values, held = [1.0, 1.0], {}
    first, second = jit(lambda x: x @ ws[0].T), jit(lambda x: x @ ws[1].T)
    doubled = jit(lambda x: (x @ ws[0].T) * 2)
    update = jit(lambda k: ws[0].assign(ws[0] + k))
    for at in range(2, 40):
        k = int(rng.integers(2))
        action = CALLS[rng.integers(len(CALLS))] if rng.random() < 0.7 else CHANGES[rng.integers(len(CHANGES))]
        if action == "hold":
            held[k] = (ws[k].numpy(), ws[k].uop)
        elif action == "release":
            held.pop(k, None)
        elif action == "tie":
            ws[1].uop, values[1] = ws[0].realize().uop, values[0]
        elif action == "swap":
            (ws[0].uop, ws[1].uop), values = (ws[1].realize().uop, ws[0].realize().uop), values[::-1]
        elif action == "forget":
            (first, second)[k].captures.clear()
        elif action == "update":
            update(Tensor([1.0]))
            values[0] += 1
        elif action in WRITES:
            values[k] = float(at)
            if ws[0].uop is ws[1].uop and action in (through_a_view, through_a_view_of_a_view):
                values[1 - k] = values[k]  # both are the memory that is written to
            action(ws[k], values[k])
        else:
            x = XS[action in ("more rows", "other")]
            step = doubled if action == "doubled" else first if "rows" in action else second
            wanted = values["other" in action] * (2 if step is doubled else 1)
            got = step(x).numpy()
            want = np.broadcast_to(x.numpy().sum(1, keepdims=True) * wanted, got.shape)
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-2 * wanted, err_msg=f"step {at}: {action}")
        if k in held and held[k][1] is ws[k].uop and at % 2:
            values[k] = float(at + 100)
            held[k][0][:] = values[k]
            if ws[0].uop is ws[1].uop:
                values[1 - k] = values[k]
