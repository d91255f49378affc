"""Networks of comparisons: all rows of zeros and ones, blocks of any shape, places, words of several parts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Tensor, jit
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.graphs import bitonic_sort as network
from monolect.graphs.bitonic_sort import Block, Sorting
from monolect.ir.check.prove import check_bounds
from monolect.ir.check.verify import verify
from monolect.ir.ops import Stage
from monolect.ir.uop import build, new_buffer, node
from tests.strategies import often

SHAPES = [Block(2, 2), Block(4, 2), Block(2, 4), Block(4, 4), Block(8, 2)]


def run(
    x: np.ndarray,
    block: Block,
    descending: bool = False,
    for_places: bool = False,
    first: int = 0,
    device: str | None = None,
) -> np.ndarray:
    """The rows of `x` sorted by a network of such blocks."""
    t = Tensor(x, device=device)
    s = Sorting(*x.shape, t.dtype, descending, for_places, first or x.shape[1])
    out = new_buffer((s.rows, s.first), s.result, t.device)
    call = node("CALL", (network.kernel(s, block, t.device), out, t.uop))
    return Tensor._wrap(build("AFTER", out, call)).numpy()


@pytest.mark.sweep
@pytest.mark.parametrize("block", SHAPES, ids=str)
@pytest.mark.parametrize("n", [2, 7, 10])
def test_all_zeros_and_ones(block: Block, n: int) -> None:
    """What sorts these sorts everything (Knuth, 5.3.4, theorem Z)."""
    x = (np.arange(1 << n)[:, None] >> np.arange(n) & 1).astype(np.int32)
    np.testing.assert_array_equal(run(x, block), np.sort(x, 1))


@pytest.mark.sweep
@pytest.mark.parametrize("n_blocks", range(1, 12))
def test_any_number_of_blocks(n_blocks: int) -> None:
    """What is behind the last block is in no pair."""
    for n in (n_blocks * 4, n_blocks * 4 - 1):
        x = np.random.default_rng(n).integers(0, 9, (50, n)).astype(np.int16)
        np.testing.assert_array_equal(run(x, Block(2, 2)), np.sort(x, 1))
        np.testing.assert_array_equal(run(x, Block(2, 2), for_places=True), x.argsort(1, kind="stable"))


@pytest.mark.sweep
@pytest.mark.parametrize("first", [1, 3, 4, 5, 13])
def test_the_first_few(first: int) -> None:
    x = np.random.default_rng(first).permutation(60).reshape(4, 15).astype(np.float32)
    np.testing.assert_array_equal(run(x, Block(2, 2), first=first), np.sort(x, 1)[:, :first])
    np.testing.assert_array_equal(run(x, Block(4, 4), True, True, first), np.argsort(-x, 1)[:, :first])


@settings(max_examples=often(8, 60))
@given(st.data())
def test_random_rows(data: Any) -> None:
    """Values down to the sign of zero, and places, equal elements as they came."""
    dtype = data.draw(st.sampled_from(["bool", "uint8", "int16", "uint32", "int64", "uint64", "float32", "float64"]))
    n, block = data.draw(st.integers(2, 40)), data.draw(st.sampled_from(SHAPES))
    down = data.draw(st.booleans())
    x = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 12, (3, n)).astype(dtype)
    if "float" in dtype:
        x = (x - 5) * np.float32(1e30)
        x[x == x.max()] = np.nan
        x[:, ::2] *= -1
        x = x.astype(dtype)
    key = np.where(np.isnan(x), np.inf, x) if "float" in dtype else x.astype(object)
    ranks = np.unique(key, return_inverse=True)[1].reshape(x.shape)
    want = (-ranks if down else ranks).argsort(1, kind="stable")
    np.testing.assert_array_equal(run(x, block, down, True), want)
    got, want = run(x, block, down), np.take_along_axis(x, want, 1)
    np.testing.assert_array_equal(got, want)
    if "float" in dtype:
        np.testing.assert_array_equal(np.signbit(got[got == got]), np.signbit(want[want == want]))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_kernels_keep_the_rules(dtype: str) -> None:
    for n in (5, 16, 37):
        for for_places in (False, True):
            sink = network.kernel(Sorting(3, n, getattr(dtypes, dtype), True, for_places, n), Block(4, 4), "cpu")
            verify(sink, Stage.KERNEL)
            check_bounds(sink)


def test_blocks() -> None:
    """As many lanes as vectors, or half of them; whole registers for long rows."""
    assert [tuple(network.block_of(n, 16, 16)) for n in (2, 16, 17, 100, 128, 129, 256, 4000)] == [
        (2, 2), (4, 4), (8, 4), (16, 8), (16, 8), (16, 16), (16, 16), (16, 16),
    ]  # fmt: skip
    assert network.block_of(1000, 8, 8) == Block(8, 8)


def test_equal_kernels_have_results_of_any_shape() -> None:
    x = np.array([3, 1], np.int32)
    for shape in ((2,), (2, 1), (1, 2), (2, 1, 1)):
        got = Tensor(x.reshape(shape)).sort(shape.index(2))
        assert got.values.shape == shape and got.values.numpy().ravel().tolist() == [1, 3]
        assert got.indices.shape == shape and got.indices.numpy().ravel().tolist() == [1, 0]


@pytest.mark.sweep
@pytest.mark.parametrize("device", ["python", "c"])
def test_other_devices(device: str) -> None:
    """Lanes that change places, in the language of each."""
    if why := Device.present()[device]:
        pytest.skip(f"{device}: {why}")
    x = np.random.default_rng(5).permutation(22).reshape(2, 11).astype(np.float32)
    for block in (Block(4, 4), Block(2, 4)):
        np.testing.assert_array_equal(run(x, block, device=device), np.sort(x, 1))
        np.testing.assert_array_equal(run(x, block, True, True, 3, device), np.argsort(-x, 1)[:, :3])


def test_a_constant_of_a_kernel_is_no_tensor_of_the_users():
    """The same node may be both: a captured step computes what it reads of tensors, and leaves its kernels alone."""
    held = [Tensor(True), Tensor(False), Tensor(0), Tensor(1.0)]
    step = jit(lambda x: x.sort().values * held[3])
    x = np.array([3, -1, 2, 0, 5, 4, 9, 7, 1], np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(step(Tensor(x)).numpy(), np.sort(x))
