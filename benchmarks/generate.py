"""Tokens a second of examples/gpt2.py and of the same model in PyTorch, in turns in one process.

    python -m benchmarks.generate [--layers 12] [--width 768] [--tokens 64] [--rounds 5] [--device cpu]

Both keep keys and values in memory that was allocated once, and take the likeliest token. The tokens are compared
before anything is timed. PyTorch runs without torch.compile: its compiler recompiles as the cache grows.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from examples.gpt2 import GPT2, SIZE, Writer
from monolect import Context, Tensor

PROMPT = [*b"A tensor is"]
PAUSE_S = 0.3  # seconds until the idle threads of the library before no longer spin


def model_of(config: dict[str, Any], seed: int = 0) -> GPT2:
    """A model of that size whose random weights keep values of order one, so that the likeliest token changes."""
    rng, model = np.random.default_rng(seed), GPT2(config)
    state = {}
    for name, t in model.state_dict().items():
        noise = rng.standard_normal(t.shape, dtype=np.float32)
        if t.ndim == 1:
            values = noise * np.float32(0.1) + np.float32("ln_" in name and name.endswith("weight"))
        else:
            deviation = 0.2 if name.startswith("w") else 2 * t.shape[1] ** -0.5
            values = noise * np.float32(deviation)
        state[name] = Tensor(values)
    model.load_state_dict(state)
    return model


class TorchWriter:
    """The model in PyTorch, with the weights of ours."""

    def __init__(self, model: GPT2, config: dict[str, Any]) -> None:
        self.config = config
        self.p = {name: torch.tensor(t.numpy()) for name, t in model.state_dict().items()}
        kept = (1, config["n_head"], config["n_positions"], config["n_embd"] // config["n_head"])
        self.caches = [(torch.zeros(kept), torch.zeros(kept)) for _ in range(config["n_layer"])]

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """A layer's normalisation over the last axis."""
        return F.layer_norm(x, x.shape[-1:], self.p[f"{name}.weight"], self.p[f"{name}.bias"])

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """A layer's product and bias."""
        return F.linear(x, self.p[f"{name}.weight"], self.p[f"{name}.bias"])

    def next(self, tokens: torch.Tensor, past: int) -> torch.Tensor:
        """The likeliest token (1, 1) after `tokens` (1, n), which are those from number `past` on."""
        n, heads = tokens.shape[1], self.config["n_head"]
        x = self.p["wte.weight"][tokens] + self.p["wpe.weight"][past : past + n]
        for layer, (keys, values) in enumerate(self.caches):
            qkv = self.linear(self.norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn.c_attn")
            q, k, v = (t.view(1, n, heads, -1).transpose(1, 2) for t in qkv.chunk(3, -1))
            keys[:, :, past : past + n], values[:, :, past : past + n] = k, v
            k, v = keys[:, :, : past + n], values[:, :, : past + n]
            out = F.scaled_dot_product_attention(q, k, v, is_causal=n > 1).transpose(1, 2).reshape(1, n, -1)
            x = x + self.linear(out, f"h.{layer}.attn.c_proj")
            hidden = F.gelu(self.linear(self.norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc"), approximate="tanh")
            x = x + self.linear(hidden, f"h.{layer}.mlp.c_proj")
        return F.linear(self.norm(x[:, -1], "ln_f"), self.p["wte.weight"]).argmax(-1, keepdim=True)

    @torch.inference_mode()
    def write(self, prompt: list[int], count: int) -> list[int]:
        """`count` tokens that follow the prompt."""
        out = [self.next(torch.tensor([prompt]), 0)]
        for past in range(len(prompt), len(prompt) + count - 1):
            out.append(self.next(out[-1], past))
            out[-1].item()  # as one who prints each token
        return [int(t.item()) for t in out]


def main() -> None:
    """Read the command line, compare, then time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=SIZE["n_layer"])
    parser.add_argument("--width", type=int, default=SIZE["n_embd"])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    config = SIZE | {"n_layer": args.layers, "n_embd": args.width, "n_head": max(args.width // 64, 1)}
    with Context(DEVICE=args.device):
        model = model_of(config)
        ours = Writer(model, config["n_positions"], temperature=0)
        theirs = TorchWriter(model, config)
        writers: dict[str, Callable[[], list[int]]] = {
            f"monolect {args.device}": lambda: list(ours.write(PROMPT, args.tokens)),
            "PyTorch": lambda: theirs.write(PROMPT, args.tokens),
        }
        found = {name: write() for name, write in writers.items()}
        if len({tuple(t) for t in found.values()}) != 1:
            sys.exit(f"different tokens: {found}")
        rates: dict[str, list[float]] = {name: [] for name in writers}
        for _ in range(args.rounds):
            for name, write in writers.items():
                time.sleep(PAUSE_S)
                began = time.perf_counter()
                write()
                rates[name].append(args.tokens / (time.perf_counter() - began))
    for name, rate in rates.items():
        print(f"{name:16} {median(rate):7.1f} tokens a second   {' '.join(f'{r:.1f}' for r in rate)}")
    print(f"ratio {median(a / b for a, b in zip(*rates.values(), strict=True)):.3f}")


if __name__ == "__main__":
    main()
