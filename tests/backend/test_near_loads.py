"""Loads of elements that lie near each other: picked from whole vectors, on symbols and then in kernels."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect import Tensor
from monolect.backend.common.llvm.memory import MAX_STORE_RUN, MAX_VECTORS, MemoryRenderer, is_few_vectors
from monolect.backend.common.llvm.program import render_module
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.pipeline import lower_kernel, schedule
from monolect.schedule.callify import over_params


class Memory(MemoryRenderer):
    """Runs what it emits: pointers are numbers of elements, registers lists of elements or of gates."""

    def __init__(self, n, gate=None):
        super().__init__()
        self.known, self.n = {"%p": 0, "%g": gate}, n
        self.read = set()

    def emit(self, text):
        name = f"%v{len(self.known)}"
        if m := re.fullmatch(r"getelementptr inbounds float, ptr (\S+), i64 (-?\d+)", text):
            self.known[name] = self.known[m[1]] + int(m[2])
        elif m := re.fullmatch(r"load <(\d+) x float>, ptr (\S+), align 4", text):
            self.known[name] = self.loaded(self.known[m[2]], [True] * int(m[1]))
        elif m := re.fullmatch(r"call .*\(ptr (\S+), i32 4, <\d+ x i1> (\S+), .*\)", text):
            self.known[name] = self.loaded(self.known[m[1]], self.known[m[2]])
        elif m := re.fullmatch(r"or <\d+ x i1> (\S+), (\S+)", text):
            self.known[name] = [a or b for a, b in zip(self.known[m[1]], self.known[m[2]], strict=True)]
        else:
            m = re.fullmatch(r"shufflevector <(\d+) x (\w+)> (\S+), <\1 x \2> (\S+), <\d+ x i32> <(.*)>", text)
            lanes = [*self.known[m[3]], *self.known.get(m[4], [False] * int(m[1]))]
            assert len(lanes) == 2 * int(m[1])
            picks = [p.split()[1] for p in m[5].split(", ")]
            self.known[name] = [None if p == "poison" else lanes[int(p)] for p in picks]
        return name

    def loaded(self, start, gate):
        self.read |= {start + i for i, g in enumerate(gate) if g}
        return [start + i if g else None for i, g in enumerate(gate)]


def rows(n):
    """Places of n lanes, in a few clusters."""
    places = st.tuples(st.sampled_from([0, 0, 40, 1000]), st.integers(0, MAX_VECTORS * n - 1)).map(sum)
    return st.lists(places, min_size=n, max_size=n).map(lambda row: tuple(e - min(row) for e in row))


ROWS = st.integers(2, 16).flatmap(rows)


@given(ROWS)
def test_each_lane_gets_its_element_and_nothing_beyond_is_read(row):
    if not is_few_vectors(row, False):
        return
    memory = Memory(max(row) + 1)
    assert memory.known[memory._load_shuffled(dtypes.float32, "%p", row, None)] == list(row)
    assert memory.read <= set(range(max(row) + 1))


@given(ROWS, st.data())
def test_closed_gates_keep_memory_closed(row, data):
    if not is_few_vectors(row, True):
        return
    gate = data.draw(st.lists(st.booleans(), min_size=len(row), max_size=len(row)))
    memory = Memory(max(row) + 1, gate)
    got = memory.known[memory._load_shuffled(dtypes.float32, "%p", row, "%g")]
    assert all(e == want for e, want, g in zip(got, row, gate, strict=True) if g)
    assert memory.read == {e for e, g in zip(row, gate, strict=True) if g}


DTYPES = [np.float32, np.float64, np.float16, np.int8, np.int64, np.bool_]


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [2, 3, 4, 5, -2, -3])
@pytest.mark.parametrize("n", [5, 16, 33, 67, 256])
def test_every_few_elements(dtype, step, n):
    a = (np.random.default_rng(n).standard_normal((3, n)) * 50).astype(dtype)
    assert np.array_equal(Tensor(a)[:, ::step].contiguous().numpy(), a[:, ::step])


@pytest.mark.parametrize("times", [2, 3, 4, 5])
@pytest.mark.parametrize("n", [4, 16, 21])
def test_elements_several_times(times, n):
    a = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32)
    x = Tensor(a).reshape(3, n, 1).expand(3, n, times).reshape(3, n * times)
    b = np.random.default_rng(n + 1).standard_normal((3, n * times)).astype(np.float32)
    assert np.array_equal((x * Tensor(b)).numpy(), np.repeat(a, times, 1) * b)


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_rows_side_by_side(parts):
    a = np.random.default_rng(parts).standard_normal((5, parts, 21)).astype(np.float32)
    got = Tensor(a).permute(0, 2, 1).reshape(5, 21 * parts) + 1
    assert np.array_equal(got.numpy(), a.transpose(0, 2, 1).reshape(5, -1) + np.float32(1))


def texts(x):
    """The LLVM text of each kernel of x, for a machine with vectors of 64 bytes."""
    sink, _, _ = over_params([x.uop])
    calls = schedule(list(sink.src), "null").linear.src
    return [render_module([("kernel", lower_kernel(c.src[0], Device["null"].target))]) for c in calls]


@pytest.mark.parametrize("method", ["max_pool2d", "avg_pool2d"])
def test_pools_of_stride_two_load_vectors(method):
    (text,) = texts(getattr(Tensor(np.zeros((2, 4, 32, 32), np.float32)), method)(3, 2, 1))
    assert not re.search(r"load float,", text), "element by element"
    masked = text.count("call <16 x float> @llvm.masked.load")
    assert masked == 2 * 4 + 2 * 3, "gates on the first row, which stands apart, and on the first column of the others"


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint16, dtypes.float16, dtypes.bfloat16, dtypes.float32])
def test_what_a_mask_hides_is_zero_already(dtype):
    (text,) = texts(Tensor(np.zeros((40, 50), np.float32)).cast(dtype).realize().pad(((0, 0), (0, 14))))
    assert "@llvm.masked.load" in text and not re.search(r"select <", text)


def test_gradients_of_pools_load_vectors():
    x = Tensor(np.zeros((2, 4, 64, 64), np.float32), requires_grad=True)
    x.max_pool2d(2).sum().backward()
    assert not any(re.search(r"load float,", text) for text in texts(x.grad)), "element by element"


@pytest.mark.parametrize(("vectors", "convolutions"), [(0.5, 1), (1, 4)])
def test_gradients_of_strided_convolutions_are_convolutions(vectors, convolutions):
    """One where channels of the neighbours are needed to fill vectors, else one for each phase; then whole vectors."""
    channels = int(vectors * Device["cpu"].target.vector_bytes // 4)
    x = Tensor(np.zeros((2, channels, 32, 32), np.float32), requires_grad=True)
    y = x.conv2d(Tensor(np.zeros((16, channels, 3, 3), np.float32)), stride=2, padding=1)
    y.backward(Tensor(np.zeros(y.shape, np.float32)))
    *kernels, shuffle = texts(x.grad)
    assert sum("fma" in t for t in kernels) == convolutions
    assert not re.search(r"load float,", shuffle), "element by element"


def test_closed_vectors_far_from_their_memory_read_the_dummy():
    """A masked load of no lane costs as much as a fault where no memory is: not before a row, which is near."""
    x = Tensor.empty(200_000)
    far, near = x.roll(12345, 0), Tensor.empty(64, 64).pad((1, 1, 1, 1))
    assert all("vector.reduce.or" in t for t in texts(far)) and not any("vector.reduce.or" in t for t in texts(near))


def test_at_most_sixteen_stores_stand_together():
    """The code generator compares each store of a block with each."""
    x, w = Tensor.empty(8, 256, 4, 4), Tensor.empty(512, 256, 3, 3)
    (text,) = texts(x.conv2d(w, stride=2, padding=1))
    assert text.count("store float") >= 64, "not what this test is for"
    blocks = re.split(r"^\w+:$|fence syncscope\(\"singlethread\"\)", text, flags=re.MULTILINE)
    assert max(b.count("  store ") for b in blocks) == MAX_STORE_RUN
