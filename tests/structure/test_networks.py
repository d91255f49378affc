"""Rows that are sorted by a network: one kernel, whole vectors, as many comparisons as the network has."""

import numpy as np
import pytest

from monolect import Tensor, jit
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.graphs import bitonic_sort as network
from monolect.graphs.bitonic_sort import Block, Sorting
from monolect.ir.uop import toposort
from monolect.pipeline import lower_kernel
from monolect.runtime.profile import Recorder


def program(n: int, dtype: str = "int32", rows: int = 1, for_places: bool = False):
    s = Sorting(rows, n, getattr(dtypes, dtype), False, for_places, n)
    return lower_kernel(network.kernel(s, network.block_of(n, 16, 16), "null"), Device["null"].target)


def compared(linear) -> int:
    """Vectors that comparisons of keys take."""
    return sum(u.shape[0] for u in linear.src if u.op == "CMPLT" and u.src[0].dtype is dtypes.int32)


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_a_block_stays_in_registers(bits):
    n = 1 << bits
    block = network.block_of(n, 16, 16)
    lin = program(n)
    ops = [u.op for u in lin.src]
    assert not {"RANGE", "BUFFER"} & set(ops) and ops.count("LOAD") == ops.count("STORE") == 1
    lane_steps = (block.lanes.bit_length() - 1) * block.lanes.bit_length() // 2
    mirrored = block.lanes.bit_length() - 1  # of these the first of each merge is between vectors as well
    steps = bits * (bits + 1) // 2
    assert compared(lin) == (lane_steps - mirrored) * block.rows + (steps - lane_steps + mirrored) * block.rows // 2
    assert ops.count("PERMUTE") == 1


def test_longer_rows_are_merged_in_local_memory():
    lin = program(6 * 256)
    local = [u for u in lin.src if u.op == "BUFFER"]
    assert [u.shape for u in local] == [(6 * 256,)], "blocks that are not there are not sorted"
    assert sum(u.op == "RANGE" for u in lin.src) <= 20


def test_rows_are_shared_out():
    lin = program(100, rows=1000)
    assert lin.arg.threads > 1 and sum(u.op == "RANGE" for u in lin.src) == 1
    assert program(1000).arg.threads == 1


def test_values_alone_take_one_word_places_two_where_keys_are_wide():
    for dtype, for_places, words in (
        ("float32", False, 1),
        ("float32", True, 1),
        ("int64", False, 1),
        ("int64", True, 2),
    ):
        assert sum(u.op == "BUFFER" for u in program(1000, dtype, for_places=for_places).src) == words


@pytest.mark.sweep
@pytest.mark.parametrize("shape", [(256,), (1000,), (20, 50)])
def test_a_captured_sort_is_one_launch(shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    step = jit(lambda t: t.sort()[0])
    t = Tensor(x).realize()
    for _ in range(3):
        got = step(t)
    with Recorder() as kernels:
        got = step(t)
    np.testing.assert_array_equal(got.numpy(), np.sort(x, -1))
    assert len(kernels) == 1


def test_network_of_blocks_has_no_pair_outside():
    k = network.kernel(Sorting(1, 20, dtypes.int32, False, False, 20), Block(2, 2), "null")
    (memory,) = (u for u in toposort(k) if u.op == "BUFFER")
    assert memory.shape == (20,)
