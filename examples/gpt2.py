"""Write text with GPT-2: read a prompt, keep its keys and values, sample one token after another.

    python examples/gpt2.py FOLDER --prompt "Once upon"   Hugging Face's config.json, model.safetensors, tokenizer.json
    python examples/gpt2.py --prompt "Once upon"          GPT-2's size with random weights; a token is a byte
    python examples/gpt2.py FOLDER --save step.saved      also store the step that writes a token, with all it needs;
                                                          `monolect export step.saved -o out` makes C of it

`--device` chooses where it runs; `--temperature 0` takes the likeliest token. Prints the text and the tokens a second.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from monolect import Context, Tensor, Variable, jit, nn
from monolect.interop.safetensors import safe_load

TRANSPOSED = ("c_attn.weight", "c_fc.weight", "c_proj.weight")  # files hold these as (inputs, outputs)
SIZE = {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024, "vocab_size": 50257}
FIRST = 4  # tokens that are not timed: the steps are compiled there


class Attention(nn.Module):
    """Causal attention that keeps the keys and values of all tokens so far."""

    def __init__(self, config: dict[str, Any]):
        width, self.heads = config["n_embd"], config["n_head"]
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        kept = (1, self.heads, config["n_positions"], width // self.heads)
        self._keys, self._values = (Tensor.zeros(*kept).contiguous().realize() for _ in "kv")

    def forward(self, x: Tensor, past: Any) -> Tensor:
        """(1, n, width), the tokens from number `past` on, to the same shape: n is 1, or `past` is 0."""
        n = x.shape[1]
        q, k, v = (t.reshape(1, n, self.heads, -1).transpose(1, 2) for t in self.c_attn(x).chunk(3, -1))
        self._keys[:, :, past : past + n] = k
        self._values[:, :, past : past + n] = v
        if n == 1:
            k, v = self._keys[:, :, : past + 1], self._values[:, :, : past + 1]
        out = q.scaled_dot_product_attention(k, v, is_causal=n > 1)
        return self.c_proj(out.transpose(1, 2).reshape(1, n, -1))


class MLP(nn.Module):
    """Two linear layers, four times as wide between them."""

    def __init__(self, width: int):
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(1, n, width) to the same shape."""
        return self.c_proj(self.c_fc(x).gelu(approximate="tanh"))


class Block(nn.Module):
    """One layer: attention and MLP, each of a normalised input and added to what came in."""

    def __init__(self, config: dict[str, Any]):
        width, eps = config["n_embd"], config.get("layer_norm_epsilon", 1e-5)
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.attn, self.mlp = Attention(config), MLP(width)

    def forward(self, x: Tensor, past: Any) -> Tensor:
        """See Attention."""
        x = x + self.attn(self.ln_1(x), past)
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """The names of its parameters are those of Hugging Face's files."""

    def __init__(self, config: dict[str, Any]):
        width = config["n_embd"]
        self.wte, self.wpe = nn.Embedding(config["vocab_size"], width), nn.Embedding(config["n_positions"], width)
        self.h = [Block(config) for _ in range(config["n_layer"])]
        self.ln_f = nn.LayerNorm(width, config.get("layer_norm_epsilon", 1e-5))

    def forward(self, tokens: Tensor, past: Any) -> Tensor:
        """The logits (1, vocabulary) of the token after `tokens` (1, n), which are those from number `past` on."""
        x = self.wte(tokens) + self.wpe.weight[past : past + tokens.shape[1]]
        for block in self.h:
            x = block(x, past)
        return self.ln_f(x[:, -1]).linear(self.wte.weight)


class Writer:
    """A model, its tokens and how the next one is chosen."""

    def __init__(self, model: GPT2, positions: int, temperature: float = 0.8, top: int = 40):
        self.model, self.temperature, self.top = model, temperature, top
        self.past = Variable("past", 1, positions - 1)
        self.prefill = jit(lambda tokens: self.choose(model(tokens, 0)))
        self.decode = jit(lambda token: self.choose(model(token, self.past)))

    def choose(self, logits: Tensor) -> Tensor:
        """The next token (1, 1): the likeliest, or one of the likeliest few by chance."""
        if self.temperature == 0:
            return logits.argmax(-1, keepdim=True)
        likeliest, numbers = logits.topk(min(self.top, logits.shape[-1]))
        noise = -(-Tensor.rand(*likeliest.shape).clamp(1e-20).log()).log()  # the largest of p + noise is a draw from p
        return numbers.gather(1, (likeliest / self.temperature + noise).argmax(-1, keepdim=True))

    def write(self, prompt: list[int], count: int) -> Iterator[int]:
        """`count` tokens that follow the prompt."""
        token = self.prefill(Tensor([prompt]))
        yield int(token.item())
        for past in range(len(prompt), len(prompt) + count - 1):
            with self.past.bind(past):
                token = self.decode(token)
            yield int(token.item())


def load(folder: str) -> tuple[GPT2, dict[str, Any]]:
    """The model of a Hugging Face folder, and its config.json."""
    config = json.loads((Path(folder) / "config.json").read_text())
    model = GPT2(config)
    state = {}
    for name, t in safe_load(Path(folder) / "model.safetensors").items():
        name = name.removeprefix("transformer.")
        if not name.endswith((".attn.bias", ".attn.masked_bias", "lm_head.weight")):  # masks, and wte.weight again
            state[name] = t.T.contiguous() if name.endswith(TRANSPOSED) else t
    model.load_state_dict(state)
    return model, config


class Bytes:
    """The tokens of a model without a tokenizer."""

    def encode(self, text: str) -> list[int]:
        return [*text.encode()]

    def decode(self, tokens: list[int]) -> str:
        return bytes(t % 256 for t in tokens).decode(errors="replace")


class Words:
    """The tokens of a tokenizer.json."""

    def __init__(self, path: Path):
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(path))

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text).ids)

    def decode(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens))


def run(args: argparse.Namespace) -> None:
    """Print the prompt and what the model writes after it."""
    model, config = load(args.folder) if args.folder else (GPT2(SIZE), SIZE)
    path = Path(args.folder or "", "tokenizer.json")
    words = Words(path) if args.folder and path.exists() else Bytes()
    tokens = words.encode(args.prompt)
    if not tokens or len(tokens) + args.tokens > config["n_positions"]:
        sys.exit(f"a prompt of 1 to {config['n_positions'] - args.tokens} tokens, please: this one has {len(tokens)}")
    Tensor.manual_seed(args.seed)
    writer, shown, times = Writer(model, config["n_positions"], args.temperature, args.top), "", []
    for token in writer.write(tokens.copy(), args.tokens):
        tokens.append(token)
        text = words.decode(tokens)
        print(text[len(shown) :], end="", flush=True)
        shown = text
        times.append(time.perf_counter())
    print()
    if len(times) > FIRST + 1:
        print(f"{(len(times) - 1 - FIRST) / (times[-1] - times[FIRST]):.1f} tokens a second", file=sys.stderr)
    if args.save:
        writer.decode.save(args.save)
        print(f"stored the step as {args.save}: jit.load gives it back", file=sys.stderr)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="of config.json, model.safetensors, tokenizer.json")
    parser.add_argument("--prompt", default="A tensor is")
    parser.add_argument("--tokens", type=int, default=50, help="how many to write")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top", type=int, default=40, help="choose among that many of the likeliest tokens")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", help="a file for the step that writes a token")
    args = parser.parse_args()
    with Context(DEVICE=args.device):
        run(args)


if __name__ == "__main__":
    main()
