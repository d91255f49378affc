"""A residual stream is stored by the product that ends it: every layer has the same kernels, from the first one on."""

import numpy as np

from monolect import Tensor
from monolect.pipeline import schedule
from monolect.schedule.callify import over_params


def kernels(layers: int) -> tuple[int, int]:
    """How many kernels so many layers are, and how many different ones."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Tensor:
        return Tensor(rng.standard_normal(shape).astype(np.float32)).realize()

    x = weight(32, 64)
    for _ in range(layers):
        up, down, bias = weight(64, 256), weight(256, 64), weight(64)
        x = x + ((x.layer_norm((64,)) @ up).relu() @ down + bias)
    sink, _, _ = over_params([x.uop])
    calls = schedule(list(sink.src), "cpu").linear.src
    return len(calls), len({c.src[0] for c in calls})


def test_every_layer_has_the_same_kernels():
    (few, kinds), (many, same) = kernels(3), kernels(9)
    assert many == 3 * few and kinds == same == 3
