"""Predict a training step of a Llama-like model on a cluster that is not there.

    python examples/simulate_llm.py --size 7b --mesh data=64,model=8 --shard
    python examples/simulate_llm.py --size 70b --mesh data=512,model=8 --shard --context 4096

`data` divides the batch, `model` the heads of attention, the hidden units and the vocabulary; `--shard` also divides
parameters, gradients and the optimizer's state over `data`. Parameters are bfloat16; Adam keeps float32 copies of them
and its two means. Nothing is computed, and no parameter has memory: the mesh is of null devices.
"""

import argparse
import time
from math import prod
from typing import NamedTuple

from monolect import Mesh, Tensor, dtypes, nn
from monolect.distributed import Prediction, simulate
from monolect.optim import Adam


class Size(NamedTuple):
    """The sizes of a model; `groups`: heads of keys and values."""

    layers: int
    width: int
    hidden: int
    heads: int
    groups: int
    vocabulary: int


# Touvron et al., "Llama 2", 2023, appendix A.2.1, and the released configurations.
SIZES = {
    "tiny": Size(layers=2, width=32, hidden=64, heads=4, groups=2, vocabulary=64),
    "7b": Size(layers=32, width=4096, hidden=11008, heads=32, groups=32, vocabulary=32000),
    "70b": Size(layers=80, width=8192, hidden=28672, heads=64, groups=8, vocabulary=32000),
}


class Block(nn.Module):
    """Causal attention with rotated positions, and a gated layer, each added to its input.

    One product makes queries, keys and values: for each group its queries, then its key and value. So heads are divided
    over devices by groups, and the gradient of the input is summed over the devices once.
    """

    def __init__(self, s: Size):
        self.groups, self.queries, per_head = s.groups, s.heads // s.groups, s.width // s.heads
        self.before, self.between = nn.RMSNorm(s.width), nn.RMSNorm(s.width)
        self.qkv = nn.Linear(s.width, s.groups * (self.queries + 2) * per_head, bias=False)
        self.out = nn.Linear(s.width, s.width, bias=False)
        self.gates = nn.Linear(s.width, 2 * s.hidden, bias=False)
        self.down = nn.Linear(s.hidden, s.width, bias=False)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """(batch, n, width) to the same shape."""
        batch, n, width = x.shape
        h = self.qkv(self.before(x)).reshape(batch, n, self.groups, self.queries + 2, -1).permute(0, 2, 3, 1, 4)
        q, k, v = h[:, :, :-2], h[:, :, -2:-1], h[:, :, -1:]  # (batch, groups, queries or 1, n, per head)
        h = rotated(q, turns).scaled_dot_product_attention(rotated(k, turns), v, is_causal=True)
        x = x + self.out(h.permute(0, 3, 1, 2, 4).reshape(batch, n, width))
        h = self.gates(self.between(x)).reshape(batch, n, -1, 2)
        return x + self.down(h[..., 0].silu() * h[..., 1])


def rotated(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate the pairs (element i, element i + half) of the last axis by the angles of their positions."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    cos, sin = turns
    return (a * cos - b * sin).cat(a * sin + b * cos, dim=-1)


class Model(nn.Module):
    """An embedding of tokens, blocks, and the scores of the next token."""

    def __init__(self, s: Size):
        self.token = nn.Embedding(s.vocabulary, s.width)
        self.scores = nn.Linear(s.width, s.vocabulary, bias=False)
        self.blocks, self.last = [Block(s) for _ in range(s.layers)], nn.RMSNorm(s.width)
        self.per_head = s.width // s.heads

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, n) tokens to (batch, n, vocabulary) scores."""
        x = self.token(tokens).contiguous()  # looked up once, not by each reader
        rates = 10000.0 ** -(Tensor.arange(self.per_head // 2) * 2.0 / self.per_head)
        angles = Tensor.arange(tokens.shape[1]).reshape(-1, 1) * rates
        turns = angles.cos().cast(x.dtype), angles.sin().cast(x.dtype)
        for block in self.blocks:
            x = block(x, turns)
        return self.scores(self.last(x))


class WideAdam(Adam):
    """Adam whose state is float32: a copy of each parameter, which is the one that is stepped, and the two means."""

    slots = ("mean", "square", "copy")

    def _initial(self, slot, p, group):
        wide = p.detach().float()
        return (wide if slot == "copy" else wide * 0).realize()

    def _change(self, p, grad, state, now):
        new = state["copy"] - super()._change(state["copy"], grad.float(), state, now)
        state["copy"].assign(new)
        return p.float() - new


def divide(model: Model, mesh: Mesh, is_sharded: bool) -> None:
    """Move the model to the mesh: tensor parallel over `model`, and over `data` if `is_sharded`."""
    nn.parallel.move(model, lambda t: t.cast(dtypes.bfloat16).replicate(mesh))
    if "model" in mesh.names:
        for b in model.blocks:
            for by_outputs in (b.qkv, b.gates):
                nn.parallel.move(by_outputs, lambda t: nn.parallel.on_mesh(t, mesh, 0, "model"))
            for by_inputs in (b.out, b.down):
                nn.parallel.move(by_inputs, lambda t: nn.parallel.on_mesh(t, mesh, 1, "model"))
        nn.parallel.move(model.scores, lambda t: nn.parallel.on_mesh(t, mesh, 0, "model"))
    if is_sharded:
        nn.parallel.shard(model, mesh, "data")


def predict(size: Size, axes: dict[str, int], is_sharded: bool, batch: int, context: int, hardware: str) -> Prediction:
    """Return the costs of a step on null devices. `batch`: sequences of each part of the axis `data`."""
    mesh = Mesh(tuple(axes), tuple(axes.values()), [f"null:{k}" for k in range(prod(axes.values()))])
    model = Model(size)
    divide(model, mesh, is_sharded)
    optimizer = WideAdam(model.parameters())
    tokens = Tensor.zeros(batch * axes.get("data", 1), context + 1, dtype=dtypes.int32)
    tokens = (tokens.shard(mesh, {"data": 0}) if "data" in axes else tokens.replicate(mesh)).realize()

    def step(tokens: Tensor) -> Tensor:
        optimizer.zero_grad()
        scores = model(tokens[:, :-1]).reshape(-1, size.vocabulary)
        loss = scores.float().cross_entropy(tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return simulate(step, tokens, hardware=hardware)


def main(arguments: list[str] | None = None) -> Prediction:
    """Print and return the prediction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="7b", choices=SIZES)
    parser.add_argument("--mesh", default="data=8", help="axes of the mesh and their lengths: data=64,model=8")
    parser.add_argument("--shard", action="store_true", help="divide parameters and optimizer state over `data`")
    parser.add_argument("--batch", type=int, default=1, help="sequences of each part of `data`")
    parser.add_argument("--context", type=int, default=4096, help="tokens of a sequence")
    parser.add_argument("--hardware", default="h100")
    a = parser.parse_args(arguments)
    axes = {name: int(n) for name, _, n in (part.partition("=") for part in a.mesh.split(","))}
    begin = time.perf_counter()
    found = predict(SIZES[a.size], axes, a.shard, a.batch, a.context, a.hardware)
    print(found)
    print(f"  predicted in {time.perf_counter() - begin:.1f} s")
    return found


if __name__ == "__main__":
    main()
