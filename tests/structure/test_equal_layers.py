"""Kernels that are made of the same are built once, and are those that each would be built as alone."""

import numpy as np
import pytest

from monolect import Tensor, Variable
from monolect.pipeline import schedule
from monolect.schedule import ranges
from monolect.schedule.callify import over_params
from monolect.schedule.kernels import KernelBuilder, Known
from monolect.schedule.order import buffers_of
from monolect.schedule.partition import Partition

LAYERS = 4


def data(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)).realize()


def residual() -> list[Tensor]:
    x = data(32, 64)
    for _ in range(LAYERS):
        x = x + (x.layer_norm((64,)) @ data(64, 256)).gelu() @ data(256, 64)
    return [x]


def attention() -> list[Tensor]:
    x = data(2, 16, 64)
    for _ in range(LAYERS):
        q, k, v = (x.linear(data(64, 64)) for _ in range(3))
        x = x + q.scaled_dot_product_attention(k, v, is_causal=True)
    return [x]


def training() -> list[Tensor]:
    weights = [data(16, 16, 3, 3).requires_grad_() for _ in range(LAYERS)]
    x = data(2, 16, 8, 8)
    for w in weights:
        x = x + x.conv2d(w, padding=1).relu()
    (x * x).mean().backward()
    return [x, *(w.grad for w in weights)]


def recurrence() -> list[Tensor]:
    """Each step reads its own part; what all steps gave is joined."""
    x, h, w = data(8, LAYERS, 16), data(8, 16), data(16, 16)
    steps = []
    for t in range(LAYERS):
        h = (x[:, t] + h.linear(w)).tanh()
        steps.append(h)
    return [Tensor.stack(steps, dim=1), h.sum()]


def gathered() -> list[Tensor]:
    index = Tensor(np.arange(8)).realize()
    x = data(8, 16)
    for _ in range(LAYERS):
        x = x + data(8, 16)[index].softmax(1) @ data(16, 16)
    return [x, x.argmax(1), x.sort(1)[0]]


def symbolic() -> list[Tensor]:
    n = Variable("rows_of_layers", 1, 8)
    x = data(8, 16)[:n]
    for _ in range(LAYERS):
        x = (x @ data(16, 16)).relu() + data(16)
    return [x]


@pytest.mark.sweep
@pytest.mark.parametrize("program", [residual, attention, training, recurrence, gathered, symbolic])
@pytest.mark.parametrize("local_bytes", [0, 1 << 20])
def test_a_kernel_known_by_what_it_is_made_of_is_the_one_that_would_be_built(program, local_bytes):
    sink, _, _ = over_params([t.uop for t in program()])
    part = Partition(list(sink.src), "null", local_bytes).run()
    buffers = buffers_of(part)
    known: Known = {}
    for k, kernel in enumerate(part.kernels):
        if kernel is not None:
            assert KernelBuilder(part, k, buffers, known).build() == KernelBuilder(part, k, buffers, {}).build()
    if program is residual:
        assert 2 * len(known) <= sum(kernel is not None for kernel in part.kernels)


def test_nothing_is_remembered_when_a_schedule_is_done():
    sink, _, _ = over_params([t.uop for t in residual()])
    schedule(list(sink.src), "null")
    assert ranges.flatten.cache_info().currsize == ranges.reshape_index.cache_info().currsize == 0
