"""What becomes of kernels on a target with workgroups: launches, barriers, local memory, which lanes read what."""

from collections import Counter

import numpy as np
import pytest

from monolect import Tensor
from monolect.backend.python.runtime import GPU
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, idx, substitute, toposort
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.blocks.shared import bank_cycles
from monolect.optimize.cpu.heuristic import Chooser
from monolect.optimize.gpu.tiles import WorkgroupTiles
from monolect.pipeline import lower_kernel, schedule
from monolect.schedule.callify import over_params


def f32(*shape):
    return Tensor(np.zeros(shape, np.float32))


def kernels(out, target=GPU, last="device_axes"):
    """The kernels of a tensor, lowered."""
    sink, _, _ = over_params([out.uop])
    calls = schedule(list(sink.src), "python", 0).linear.src
    return [lower_kernel(c.src[0], target, last=last) for c in calls]


def launch(ir):
    return {u.arg: u.src[0].value for u in toposort(ir) if u.op == "SPECIAL"}


def local_bytes(ir):
    return sum(u.shape[0] * u.dtype.itemsize for u in toposort(ir) if u.op == "BUFFER" and u.arg.addrspace == "LOCAL")


def barriers(out, target=GPU):
    """BARRIERs inside of loops, and outside, of the only kernel's program."""
    (lin,) = kernels(out, target, last="linearize")
    depth, found = 0, Counter()
    for u in lin.src:
        depth += (u.op == "RANGE") - (u.op == "END") * len(u.src[1:])
        if u.op == "BARRIER":
            found[depth > 0] += 1
    return found[True], found[False]


def place(u: UOp, lane: int, ir: UOp) -> int:
    """The element that a lane of the first workgroup accesses first."""
    sizes, at = launch(ir), {}
    for name in sorted(s for s in sizes if s.startswith("lidx")):
        at[name] = lane % sizes[name]
        lane //= sizes[name]
    index = u.src[0].src[1]
    new = {
        x: idx(at.get(x.arg, 0) if x.op == "SPECIAL" else 0) for x in toposort(index) if x.op in ("SPECIAL", "RANGE")
    }
    return substitute(index, new).value


PROGRAMS = {
    "map": lambda: f32(1 << 20) * 2 + 1,
    "odd map": lambda: f32(1001, 1003) * 2,
    "rows": lambda: f32(512, 1000).sum(1),
    "softmax": lambda: f32(512, 1024).softmax(-1),
    "layer norm": lambda: f32(300, 768).layer_norm(768),
    "total": lambda: f32(1 << 20).sum(),
    "columns": lambda: f32(4096, 64).sum(0),
    "batch norm": lambda: f32(8, 64, 28, 28).mean((0, 2, 3)),
    "transpose": lambda: f32(512, 1024).T.contiguous(),
    "matmul": lambda: f32(512, 512) @ f32(512, 512),
    "odd matmul": lambda: f32(333, 257) @ f32(257, 129),
    "matmul of a transpose": lambda: f32(512, 512) @ f32(512, 512).T,
    "vector times matrix": lambda: f32(1, 1024) @ f32(1024, 1024),
    "matrix times vector": lambda: f32(1024, 1024) @ f32(1024, 1),
    "convolution": lambda: f32(4, 32, 28, 28).conv2d(f32(64, 32, 3, 3), padding=1),
    "attention": lambda: f32(1, 4, 128, 32).scaled_dot_product_attention(f32(1, 4, 128, 32), f32(1, 4, 128, 32)),
    "running sums": lambda: f32(512, 512).cumsum(1),
    "five axes": lambda: f32(5, 7, 3, 11, 64).permute(4, 1, 0, 3, 2).contiguous(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_launches_are_within_the_limits_and_fill_the_device(name):
    for ir in kernels(PROGRAMS[name]()):
        sizes = launch(ir)
        lanes = [sizes.get(f"lidx{k}", 1) for k in range(3)]
        groups = [sizes.get(f"gidx{k}", 1) for k in range(3)]
        assert np.prod(lanes) <= GPU.max_local and all(n <= m for n, m in zip(lanes, GPU.max_block, strict=True))
        assert all(n <= m for n, m in zip(groups, GPU.max_grid, strict=True)) and len(sizes) <= 6
        assert local_bytes(ir) <= GPU.local_bytes
        assert np.prod(lanes) >= GPU.warp
        assert not any(u.op == "RANGE" and u.arg[1] in ("GLOBAL", "LOCAL", "GROUP_REDUCE") for u in toposort(ir))


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"running sums", "five axes"}))
def test_neighbouring_lanes_use_neighbouring_memory(name):
    """Lanes 0 and 1 are one element, or one vector, apart in all global memory, or read the same."""
    for ir in kernels(PROGRAMS[name]()):
        for u in toposort(ir):
            if u.op in ("LOAD", "STORE") and u.src[0].src[0].op == "PARAM":
                first, second = (place(u, lane, ir) for lane in (0, 1))
                wide = [r.src[0].value for r in toposort(u) if r.op == "RANGE" and r.arg[1] == "UPCAST"]
                assert second - first in (0, 1, *(w for w in wide if w <= 4)), (u, first, second)


@pytest.mark.parametrize("name", ["transpose", "matmul", "odd matmul", "matmul of a transpose", "convolution"])
def test_lanes_do_not_meet_in_a_bank(name):
    """The lanes of the first warp wait for each other at most once for each word that they need."""
    for ir in kernels(PROGRAMS[name]()):
        for u in toposort(ir):
            if u.op in ("LOAD", "STORE") and memory_of(u.src[0]).op == "BUFFER":
                places = [4 * place(u, lane, ir) for lane in range(GPU.warp)]
                best = -(-len(set(places)) // GPU.local_banks)
                assert bank_cycles(places, 4, GPU.local_banks, 4) <= 4 * best


def test_banks():
    """Lanes side by side, at a stride that meets in one bank, one more than that, all at one place; wide accesses."""
    lanes = range(32)
    assert [bank_cycles([k * s for k in lanes], 4, 32, 4) for s in (4, 128, 132, 0)] == [1, 32, 1, 1]
    assert [bank_cycles([k * s for k in lanes], 16, 32, 4) for s in (16, 128, 144)] == [4, 32, 4]
    assert bank_cycles([k * 2 for k in lanes], 2, 32, 4) == 1


BARRIERS = {  # inside of loops, outside
    "map": (0, 0),
    "rows": (0, 1),  # the lanes of a warp join what they have in registers, then warps meet
    "softmax": (0, 2),
    "transpose": (0, 1),
    "matmul": (1, 0),  # two blocks in turns: while one is read, the other is filled
    "vector times matrix": (0, 1),
}


@pytest.mark.parametrize("name", BARRIERS)
def test_barriers(name):
    assert barriers(PROGRAMS[name]()) == BARRIERS[name]


def test_the_lanes_that_share_a_sum_use_it():
    """A row of softmax is one workgroup of as many lanes, not lanes for the sum times lanes for the row."""
    (ir,) = kernels(f32(512, 1024).softmax(-1))
    assert launch(ir) == {"gidx0": 512, "lidx0": 256}


def test_two_stages_where_one_workgroup_is_too_little():
    parts, total = kernels(f32(1 << 20).sum())
    assert launch(parts) == {"gidx0": 64, "lidx0": 256} and "gidx0" not in launch(total)


def test_tiles_follow_the_device():
    """A larger device gets more workgroups, less local memory smaller steps; both stay within it."""
    one, many = (kernels(f32(512, 512) @ f32(512, 512), GPU._replace(n_units=n))[0] for n in (1, 512))
    n_groups = [launch(ir)["gidx0"] * launch(ir)["gidx1"] for ir in (one, many)]
    assert n_groups[0] < n_groups[1]
    (small,) = kernels(f32(512, 512) @ f32(512, 512), GPU._replace(local_bytes=4096))
    assert 0 < local_bytes(small) <= 4096 < local_bytes(one)


def test_a_tile_costs_less_than_its_neighbours():
    """The estimate: register tiles share operands, lanes beyond the edge and idle units cost."""
    chooser = Chooser(LoopPlan(kernels(f32(1024, 1024) @ f32(1024, 1024), last="merge_ranges")[0], GPU))
    tiles = WorkgroupTiles(chooser, chooser.plan.reduced)
    m, c = chooser.plan.outputs
    assert tiles.sides() == (c, m)

    def cost(lanes, each):
        return tiles.cost(c, m, lanes, each)

    assert cost((16, 16), (4, 4)) < cost((16, 16), (4, 1)) < cost((16, 16), (1, 1))
    assert cost((16, 16), (4, 4)) < cost((4, 4), (4, 4))
    by_columns = []
    for n in (64, 65, 128):
        other = Chooser(LoopPlan(kernels(f32(1024, 1024) @ f32(1024, n), last="merge_ranges")[0], GPU))
        by_columns.append(WorkgroupTiles(other, other.plan.reduced).cost(*other.plan.outputs[::-1], (16, 16), (4, 4)))
    assert by_columns[0] < by_columns[1] == by_columns[2]


OTHERS = {
    "a large one": {"max_local": 1024, "max_block": (1024, 1024, 64), "local_bytes": 48 << 10, "n_units": 132},
    "a tiny one": {"max_local": 16, "max_block": (16, 16, 16), "local_bytes": 1024, "warp": 4, "n_units": 1},
    "no local memory": {"local_bytes": 0},
    "no vectors": {"vector_bytes": 0, "n_registers": 16},
    "narrow grids": {"max_grid": (64, 64, 64)},
    "no limits": {"max_local": 0, "max_block": (), "max_grid": ()},
}


@pytest.mark.sweep
@pytest.mark.parametrize("which", OTHERS)
def test_other_devices_are_kept_within_their_limits(which):
    target = GPU._replace(**OTHERS[which])
    for name, program in PROGRAMS.items():
        for ir in kernels(program(), target):
            sizes = launch(ir)
            lanes = [sizes.get(f"lidx{k}", 1) for k in range(3)]
            groups = [sizes.get(f"gidx{k}", 1) for k in range(3)]
            assert np.prod(lanes) <= (target.max_local or 1 << 20), name
            assert all(n <= m for n, m in zip(lanes, target.max_block, strict=False)), name
            assert all(n <= m for n, m in zip(groups, target.max_grid, strict=False)), name
            assert local_bytes(ir) <= target.local_bytes, name


def test_a_launch_longer_than_one_dimension_has_two():
    """Also where the number of workgroups has no divisors: the axis is padded to whole rows of them."""
    short = GPU._replace(max_grid=(100, 100, 100))
    for n in (1 << 18, 1031 << 10):
        (ir,) = kernels(f32(n) * 2, short)
        sizes = launch(ir)
        assert sizes["lidx0"] == 256 and 1 < sizes["gidx1"] <= 100
        assert n <= sizes["gidx0"] * sizes["gidx1"] * 1024 * sizes.get("gidx2", 1) < 1.3 * n


def test_additions_that_may_meet_run_side_by_side_where_they_are_atomic():
    def scatter(target):
        places = Tensor(np.arange(4096) * 7 % 100)
        ir = kernels(Tensor.zeros(100).scatter_add(0, places, f32(4096)), target)[-1]
        assert any(u.op == "ATOMICADD" for u in toposort(ir))
        return launch(ir)

    assert scatter(GPU) == {"gidx0": 16, "lidx0": 256}
    assert scatter(GPU._replace(atomics=frozenset())) == {}
