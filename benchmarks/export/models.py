"""Steps to export: a net for digits, ResNet-18, an LSTM, a decoder of GPT-2's size with a growing cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from examples.digits import Net
from examples.gpt2 import GPT2
from monolect import Context, Tensor, Variable, jit, nn

Step = Callable[..., Any]


class Case(NamedTuple):
    """A step made for a device, the arguments of one call, and the sizes that some calls bind."""

    name: str
    make: Callable[[str], Step]
    arguments: tuple[np.ndarray, ...]
    outputs: tuple[tuple[int, ...], ...]  # shapes, of float32
    size: Variable | None = None
    sizes: Sequence[int] = ()

    def call(self, step: Step, n: int, device: str, arguments: Sequence[np.ndarray] | None = None) -> list[np.ndarray]:
        """The results of the call with the `n`th size."""
        given = [Tensor(a, device=device) for a in arguments or self.arguments]
        if self.size is None:
            back = step(*given)
        else:
            with self.size.bind(self.sizes[n % len(self.sizes)]):
                back = step(*given)
        return [t.numpy() for t in (back if isinstance(back, tuple) else (back,))]


def _random(shape: tuple[int, ...], scale: float, device: str, seed: int) -> Tensor:
    x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) * np.float32(scale)
    return Tensor(x, device=device).realize()


def on(device: str, make: Callable[[], Any]) -> Any:
    """What `make` makes with that device as the default, with the same random numbers each time."""
    with Context(DEVICE=device):
        Tensor.manual_seed(0)
        return make()


# ---- nets for images -------------------------------------------------------------------------------------------------
class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, into: int, width: int, stride: int) -> None:
        self.first, self.norm = nn.Conv2d(into, width, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(width)
        self.second, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.skip = nn.Conv2d(into, width, 1, stride=stride, bias=False) if stride > 1 or into != width else None
        self.norm3 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """The same number of features, or `width` of them at half the size."""
        y = self.norm2(self.second(self.norm(self.first(x)).relu()))
        return (y + (x if self.skip is None else self.norm3(self.skip(x)))).relu()


class ResNet(nn.Module):
    """ResNet-18."""

    def __init__(self, widths: Sequence[int] = (64, 128, 256, 512), classes: int = 1000) -> None:
        self.stem, self.norm = nn.Conv2d(3, widths[0], 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(widths[0])
        self.blocks, into = [], widths[0]
        for stage, width in enumerate(widths):
            self.blocks += [Block(into, width, 2 if stage else 1), Block(width, width, 1)]
            into = width
        self.head = nn.Linear(into, classes)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        x = self.norm(self.stem(x)).relu().max_pool2d(3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def _of(model: Callable[[], nn.Module]) -> Callable[[str], Step]:
    def make(device: str) -> Step:
        made: Any = on(device, model)
        made.eval()
        return jit(lambda image: made(image))

    return make


def digits(batch: int = 16) -> Case:
    """The net for digits."""
    image = np.random.default_rng(0).standard_normal((batch, 1, 8, 8), dtype=np.float32)
    return Case("digits", _of(lambda: Net(8)), (image,), ((batch, 10),))


def resnet(size: int = 224, widths: Sequence[int] = (64, 128, 256, 512)) -> Case:
    """ResNet-18, one image."""
    image = np.random.default_rng(0).standard_normal((1, 3, size, size), dtype=np.float32)
    return Case("ResNet-18", _of(lambda: ResNet(widths)), (image,), ((1, 1000),))


# ---- sequences -------------------------------------------------------------------------------------------------------
def lstm(into: int = 128, width: int = 256) -> Case:
    """One step of an LSTM, whose state stays in the step."""

    def make(device: str) -> Step:
        w, u = _random((into, 4 * width), into**-0.5, device, 1), _random((width, 4 * width), width**-0.5, device, 2)
        b = _random((4 * width,), 0.1, device, 3)
        hidden, cell = (_random((1, width), 0.5, device, k) for k in (4, 5))

        @jit
        def step(x: Tensor) -> Tensor:
            i, f, g, o = (x @ w + hidden @ u + b).split(width, dim=1)
            cell.assign(f.sigmoid() * cell + i.sigmoid() * g.tanh())
            hidden.assign(o.sigmoid() * cell.tanh())
            return hidden * 1

        return step

    x = np.random.default_rng(0).standard_normal((1, into), dtype=np.float32)
    return Case("LSTM step", make, (x,), ((1, width),))


def gpt2(layers: int = 12, d: int = 768, heads: int = 12, vocabulary: int = 50257, positions: int = 1024) -> Case:
    """The next token's logits, by the model of `examples/gpt2.py`, whose cache of keys and values grows."""
    sizes = {"n_layer": layers, "n_head": heads, "n_embd": d, "n_positions": positions, "vocab_size": vocabulary}
    place = Variable("place", 0, positions - 1)

    def make(device: str) -> Step:
        model = on(device, lambda: GPT2(sizes))
        return jit(lambda index: model(index.reshape(1, 1), place))

    index = np.array([17], np.int32)
    return Case("GPT-2 decode", make, (index,), ((1, vocabulary),), place, range(min(positions, 512)))


SMALL = (
    digits(2),
    resnet(32, (8, 16, 16, 32)),
    lstm(8, 16),
    gpt2(2, 32, 4, 64, 16),
)
LARGE = (digits(), resnet(), lstm(), gpt2())

__all__ = ["LARGE", "SMALL", "Case", "digits", "gpt2", "lstm", "on", "resnet"]
