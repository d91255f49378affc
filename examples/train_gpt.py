"""Train a small GPT on the bytes of a text, on one device or over a mesh of devices.

    python examples/train_gpt.py                                  one device; the text is this folder's sources
    python examples/train_gpt.py --mesh data=2,model=2            four devices of this process
    mpiexec -n 4 python examples/train_gpt.py --mesh data=2,model=2    four processes

`data` divides the batch, `model` the heads of attention and the hidden units; `--shard` also divides parameters,
gradients and the optimizer's state over `data`. Prints the loss, which is the same for every mesh up to rounding, and
the steps a second.
"""

import argparse
import time
from math import prod
from pathlib import Path

import numpy as np

from monolect import Mesh, Tensor, distributed, jit, nn

BYTES = 256  # a token is a byte


class Block(nn.Module):
    """Causal attention and two linear layers, each added to its input."""

    def __init__(self, width: int, heads: int):
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in "qkv")
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, n, width) to the same shape."""
        batch, n, width = x.shape
        h = self.before(x)
        q, k, v = (f(h).reshape(batch, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        h = q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(batch, n, width)
        x = x + self.out(h)
        return x + self.down(self.up(self.between(x)).gelu())


class GPT(nn.Module):
    """Embeddings of bytes and positions, blocks, and the scores of the next byte."""

    def __init__(self, width: int, heads: int, layers: int, context: int):
        self.token, self.position = nn.Embedding(BYTES, width), nn.Embedding(context, width)
        self.blocks = [Block(width, heads) for _ in range(layers)]
        self.last, self.scores = nn.LayerNorm(width), nn.Linear(width, BYTES)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, n) bytes to (batch, n, 256) scores."""
        x = self.token(tokens) + self.position(Tensor.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.scores(self.last(x))


def mesh_of(text: str) -> Mesh:
    """The mesh of a text such as "data=2,model=2", on the processes of the job or on devices of this one."""
    axes = {name: int(n) for name, _, n in (part.partition("=") for part in text.split(","))}
    n = prod(axes.values())
    devices = distributed.devices() if distributed.size() > 1 else ("cpu", *(f"cpu:{k}" for k in range(1, n)))
    return Mesh(tuple(axes), tuple(axes.values()), devices)


def divide(model: GPT, mesh: Mesh, is_sharded: bool) -> None:
    """Move the model to the mesh: tensor parallel over `model`, and over `data` if `is_sharded`."""
    nn.parallel.replicate(model, mesh)
    if "model" in mesh.names:
        for b in model.blocks:
            nn.parallel.tensor_parallel([b.q, b.out, b.up, b.down], mesh, "model")
            for f in (b.k, b.v):
                nn.parallel.move(f, lambda t: nn.parallel.on_mesh(t, mesh, 0, "model"))
    if is_sharded:
        nn.parallel.shard(model, mesh, "data")


def main(arguments: list[str] | None = None) -> float:
    """Train, and return the last loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", help="a file to learn; without it, the sources of this folder")
    parser.add_argument("--mesh", help="axes of the mesh and their lengths: data=2,model=2")
    parser.add_argument("--shard", action="store_true", help="divide parameters and optimizer state over `data`")
    for name, n in {"steps": 50, "batch": 8, "context": 64, "width": 128, "heads": 4, "layers": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=n)
    a = parser.parse_args(arguments)

    files = [Path(a.text)] if a.text else sorted(Path(__file__).parent.glob("*.py"))
    text = np.frombuffer(b"".join([f.read_bytes() for f in files]), np.uint8)
    mesh = mesh_of(a.mesh) if a.mesh else None
    Tensor.manual_seed(1)
    model, rng = GPT(a.width, a.heads, a.layers, a.context), np.random.default_rng(1)
    if mesh is not None:
        divide(model, mesh, a.shard)
    optimizer = nn.optim.AdamW(model.parameters(), lr=1e-3)

    @jit
    def step(tokens: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(tokens[:, :-1]).reshape(-1, BYTES).cross_entropy(tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    loss, begin = 0.0, time.perf_counter()
    for k in range(a.steps):
        starts = rng.integers(0, len(text) - a.context - 1, a.batch)
        tokens = Tensor(np.stack([text[s : s + a.context + 1] for s in starts]).astype(np.int64))
        if mesh is not None:
            tokens = tokens.shard(mesh, {"data": 0}) if "data" in mesh.names else tokens.replicate(mesh)
        result = step(tokens)
        if k == 2:
            begin = time.perf_counter()  # the first steps are compiled
        if k % 10 == 0 or k == a.steps - 1:
            loss = result.item()
            if distributed.rank() == 0:
                print(f"step {k}: loss {loss:.4f}")
    if distributed.rank() == 0 and a.steps > 3:
        print(f"{(a.steps - 3) / (time.perf_counter() - begin):.1f} steps a second")
    return loss


if __name__ == "__main__":
    main()
