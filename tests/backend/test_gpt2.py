"""GPT-2 of examples/gpt2.py writes the tokens of the same model in PyTorch on every device that computes, from a folder
as Hugging Face has it, and as a stored step.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tokenizers.decoders import ByteLevel

from benchmarks.generate import PROMPT, TorchWriter, model_of
from examples.gpt2 import TRANSPOSED, Bytes, Writer, load
from monolect import Context, Tensor, jit
from monolect.interop.safetensors import safe_save
from tests.backend.test_ops_suite import devices

CONFIG = {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 48, "vocab_size": 300}
EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt2.py"
TEXT = "A tensor is a block of numbers. A kernel is a loop over them. "


PROMPTS = (PROMPT, PROMPT[:1], PROMPT * 2)


@pytest.mark.sweep
@pytest.mark.parametrize("device", devices(slow=()))
def test_the_tokens_are_those_of_pytorch(device: str) -> None:
    """A prompt on each device, which compiles the model for its length; prompts of three lengths on the CPU."""
    check_tokens(device, PROMPTS if device == "cpu" else PROMPTS[:1])


@pytest.mark.slow
@pytest.mark.parametrize("device", devices(slow=()))
def test_prompts_of_several_lengths(device: str) -> None:
    check_tokens(device, PROMPTS)


def check_tokens(device: str, prompts: tuple[list[int], ...]) -> None:
    with Context(DEVICE=device):
        model = model_of(CONFIG)
        writer = Writer(model, CONFIG["n_positions"], temperature=0)
        for prompt in prompts:
            found = [*writer.write(prompt, 10)]
            assert found == TorchWriter(model, CONFIG).write(prompt, 10) and len({*found}) > 5
    assert len(writer.prefill.captures) == len(prompts) and len(writer.decode.captures) == 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model as Hugging Face stores it: names with a prefix, some weights as (inputs, outputs), masks among them."""
    state = {
        f"transformer.{name}": t.T.contiguous() if name.endswith(TRANSPOSED) else t
        for name, t in model_of(CONFIG).state_dict().items()
    }
    state["transformer.h.0.attn.bias"] = Tensor.ones(1, 1, 48, 48)
    safe_save(state, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_folder_gives_the_model_and_its_text(folder: Path) -> None:
    model, config = load(str(folder))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompt = tokenizer.encode("A tensor is").ids
    expected = TorchWriter(model_of(CONFIG), config).write(prompt, 8)
    assert [*Writer(model, config["n_positions"], temperature=0).write(prompt, 8)] == expected

    command = [sys.executable, EXAMPLE, folder, "--tokens", "8", "--temperature", "0", "--save", folder / "step.saved"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == tokenizer.decode([*prompt, *expected]) + "\n"
    assert (folder / "step.saved").exists()


def test_a_stored_step_goes_on_where_the_program_was(tmp_path: Path) -> None:
    writer = Writer(model_of(CONFIG), CONFIG["n_positions"], temperature=0)
    whole = TorchWriter(writer.model, CONFIG).write(PROMPT, 12)
    assert [*writer.write(PROMPT, 6)] == whole[:6]
    writer.decode.save(tmp_path / "step.saved")
    for device in ("cpu", "c"):
        step = jit.load(tmp_path / "step.saved", device=device)
        token, found = Tensor([[whole[5]]], device=device), []
        for past in range(len(PROMPT) + 5, len(PROMPT) + 11):
            with writer.past.bind(past):
                token = step(token)
            found.append(token.item())
        assert found == whole[6:]


def test_sampling_follows_the_seed_and_the_temperature() -> None:
    model = model_of(CONFIG)

    def text(seed: int, temperature: float, top: int = 40) -> list[int]:
        Tensor.manual_seed(seed)
        return [*Writer(model, CONFIG["n_positions"], temperature, top).write(PROMPT, 10)]

    likeliest = text(0, 0)
    assert text(1, 0.8) == text(1, 0.8) != text(2, 0.8)
    assert text(1, 1e-4) == likeliest == text(2, 1.0, top=1)


def test_draws_have_the_probabilities_of_the_softmax() -> None:
    writer = Writer(model_of(CONFIG), CONFIG["n_positions"], temperature=0.5, top=3)
    logits = np.tile(np.float32([0.3, -1.0, 0.9, 0.1, -2.0]), (20000, 1))
    Tensor.manual_seed(0)
    counts = np.bincount(writer.choose(Tensor(logits)).numpy()[:, 0], minlength=5) / len(logits)
    p = np.exp(np.float64([0.3, -np.inf, 0.9, 0.1, -np.inf]) / 0.5)
    np.testing.assert_allclose(counts, p / p.sum(), atol=0.012)


def test_a_model_without_a_tokenizer_writes_bytes() -> None:
    assert Bytes().decode(Bytes().encode(TEXT)) == TEXT
