"""Learn handwritten digits: train, save, load, and look at the kernels.

    python examples/digits.py                    scikit-learn's 1,797 digits of 8x8, a fifth of them held out
    python examples/digits.py --mnist FOLDER     the real MNIST files (idx, gzip or not)

Prints the held-out accuracy of the trained model and of a fresh one that loaded its saved weights, the kernels of one
step, and of the slowest one the line of this file that made it, its formula and what was done to its loops.
"""

import time

STARTED = time.perf_counter()  # before the imports: the times at the end are what a user waits for

import argparse  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Callable  # noqa: E402

import numpy as np  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: E402

from monolect import Tensor, jit, nn  # noqa: E402
from monolect.cli.kernel_page import explain_kernel  # noqa: E402
from monolect.interop.safetensors import safe_load, safe_save  # noqa: E402
from monolect.runtime import profile  # noqa: E402

NEXT = """
next, with .venv/bin in PATH where make set it up
  monolect explain examples/digits.py:46    the kernels of a line, down to their IR and the generated code
  DEBUG=2 python examples/digits.py         each kernel as it runs: buffers, time, GFLOP/s
  python examples/gpt2.py --tokens 20       GPT-2's size, with random weights or those of a folder
  docs/tour/README.md                       seven short lessons, from a Tensor to the command buffer"""

BATCH = 64
LEARNING_RATE = 0.005
EPOCHS = {"digits": 20, "mnist": 2}
SHIFTED = 0.7  # the part of the images that moves by a pixel at each showing


class Net(nn.Module):
    """Two convolutions, each followed by a pool, and a linear layer: (N, 1, side, side) -> (N, 10)."""

    def __init__(self, side: int):
        self.first = nn.Conv2d(1, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 64, 3, padding=1)
        self.out = nn.Linear(64 * (side // 4) ** 2, 10)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of ten classes."""
        x = self.first(x).relu().max_pool2d(2)
        x = self.second(x).relu().max_pool2d(2)
        return self.out(x.flatten(1))


class Data:
    """Images (N, 1, side, side) and labels (N,), for training and held out."""

    def __init__(self, mnist: str | None):
        if mnist is not None:
            self.x, self.y = nn.datasets.mnist_from_folder(mnist, "train")
            self.held_x, self.held_y = nn.datasets.mnist_from_folder(mnist, "test")
            return
        images, labels = nn.datasets.load_digits()
        order = np.random.default_rng(0).permutation(len(images))  # the same split at each run
        held, rest = np.split(order, [-(-len(order) // 5)])
        self.x, self.y = images[rest], labels[rest]
        self.held_x, self.held_y = images[held], labels[held]

    def batches(self, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
        """One epoch: whole batches in random order, most images moved by up to a pixel."""
        order = rng.permutation(len(self.x))
        count = len(order) // BATCH
        return [self._batch(i, rng) for i in np.split(order[: count * BATCH], count)]

    def _batch(self, index: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        side = self.x.shape[-1]
        moves = rng.integers(0, 3, (2, len(index)))
        moves[:, rng.random(len(index)) >= SHIFTED] = 1
        rows, columns = moves[:, :, None] + np.arange(side)
        framed = np.pad(self.x[index, 0], ((0, 0), (1, 1), (1, 1)))
        x = framed[np.arange(len(index))[:, None, None], rows[:, :, None], columns[:, None, :]]
        return np.ascontiguousarray(x[:, None]), self.y[index]


def make_step(model: Net, optimizer: nn.optim.Optimizer) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """One training step, captured when it first runs and replayed from then on."""

    @jit
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        logits = model(x)
        loss = logits.cross_entropy(y)
        correct = (logits.argmax(1) == y).float().mean()
        loss.backward()
        loss.realize(correct, *optimizer.schedule_step())
        return loss, correct

    return step


def learning_rate(epoch: int, epochs: int) -> float:
    """Constant for the first half, then down toward zero."""
    return LEARNING_RATE * min(1.0, 2.0 * (1.0 - epoch / epochs))


def train(model: Net, data: Data, epochs: int, seed: int) -> tuple[Callable[..., tuple[Tensor, Tensor]], float]:
    """Train `model`; returns the step, and the seconds from the start of the program to the end of the first one."""
    rng = np.random.default_rng(seed)
    optimizer = nn.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    step = make_step(model, optimizer)
    first = 0.0
    columns = (
        TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  accuracy {task.fields[accuracy]:6.2%}"),
    )  # fmt: skip
    with Progress(*columns) as progress:
        task = progress.add_task("", total=epochs * (len(data.x) // BATCH), loss=0.0, accuracy=0.0)
        for epoch in range(epochs):
            optimizer.lr = learning_rate(epoch, epochs)
            for x, y in data.batches(rng):
                loss, correct = step(Tensor(x), Tensor(y))
                progress.update(task, advance=1, loss=loss.item(), accuracy=correct.item())
                first = first or time.perf_counter() - STARTED
    return step, first


def accuracy(model: Net, data: Data) -> float:
    """The part of the held-out images that `model` classifies right, in percent."""
    right = 0
    for i in range(0, len(data.held_x), 1000):
        guess = model(Tensor(data.held_x[i : i + 1000])).argmax(1).numpy()
        right += int((guess == data.held_y[i : i + 1000]).sum())
    return 100.0 * right / len(data.held_y)


def reloaded(model: Net, side: int, path: str) -> Net:
    """A fresh model with the weights of `model`, by way of the safetensors file `path`."""
    safe_save(model.state_dict(), path)
    fresh = Net(side)
    fresh.load_state_dict(safe_load(path))
    print(
        f"saved {len(model.state_dict())} tensors to {path} ({os.path.getsize(path):,} bytes), loaded into a new model"
    )
    return fresh


def show_kernels(step: Callable[..., tuple[Tensor, Tensor]], data: Data) -> None:
    """The kernels of one more step, and a page on the slowest of them."""
    x, y = data.batches(np.random.default_rng(0))[0]
    with profile.Recorder() as kernels:
        step(Tensor(x), Tensor(y))
    print("\nkernels of one step\n" + profile.kernel_table(kernels))
    slowest = max(kernels, key=lambda k: k.time_ns)
    print("\nthe slowest kernel\n" + explain_kernel(slowest, brief=True))


def main() -> int:
    """Run the demo; 0 unless the loaded model differs from the trained one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", metavar="FOLDER", help="train on the MNIST files in this folder")
    parser.add_argument("--epochs", type=int, help="passes over the training images")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and shifts")
    parser.add_argument("--save", metavar="FILE", help="where to keep the weights (otherwise they are deleted)")
    options = parser.parse_args()
    Tensor.manual_seed(options.seed)
    data = Data(options.mnist)
    side = data.x.shape[-1]
    print(f"{len(data.x):,} images of {side}x{side} to learn from, {len(data.held_x):,} held out")
    model = Net(side)
    epochs = options.epochs or EPOCHS["mnist" if options.mnist else "digits"]
    step, first = train(model, data, epochs, options.seed)
    show_kernels(step, data)
    with tempfile.TemporaryDirectory() as folder:
        before = accuracy(model, data)
        after = accuracy(reloaded(model, side, options.save or os.path.join(folder, "digits.safetensors")), data)
    print(f"\nheld-out accuracy {before:.2f} % as trained, {after:.2f} % as loaded")
    total = time.perf_counter() - STARTED
    print(f"held-out accuracy {before:.2f} %, first step {first:.2f} s, total {total:.2f} s")
    print(NEXT)
    return 0 if before == after else 1


if __name__ == "__main__":
    sys.exit(main())
