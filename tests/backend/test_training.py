"""Training gives the losses of PyTorch on every device that computes; so does the demo, those of the CPU.

One that is absent says why.
"""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import torch

from monolect import Context, Tensor, nn
from tests.backend.test_ops_suite import devices

RNG = np.random.default_rng(0)
X = RNG.standard_normal((16, 20)).astype(np.float32)
Y = RNG.integers(0, 5, 16)
W1, W2 = (RNG.standard_normal(shape).astype(np.float32) * 0.3 for shape in ((20, 32), (32, 5)))
STEPS = 5


def losses_of_pytorch() -> list[float]:
    w1, w2 = (torch.tensor(w, requires_grad=True) for w in (W1, W2))
    optimizer, out = torch.optim.Adam([w1, w2], lr=0.01), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy((torch.tensor(X) @ w1).relu() @ w2, torch.tensor(Y))
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


@pytest.mark.sweep
@pytest.mark.parametrize("device", [*devices(slow=()), "python:gpu"])
def test_training_gives_the_losses_of_pytorch(device):
    x, y = Tensor(X, device=device), Tensor(Y, device=device)
    w1, w2 = (Tensor(w, device=device, requires_grad=True) for w in (W1, W2))
    optimizer, out = nn.optim.Adam([w1, w2], lr=0.01), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = ((x @ w1).relu() @ w2).cross_entropy(y)
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    assert out[-1] < out[0]
    np.testing.assert_allclose(out, losses_of_pytorch(), rtol=1e-4)


def losses_of_the_demo(device: str) -> list[float]:
    """Of the first batches of examples/digits.py: its model, its step."""
    spec = spec_from_file_location("digits", Path(__file__).parents[2] / "examples/digits.py")
    demo = module_from_spec(spec)
    spec.loader.exec_module(demo)
    with Context(DEVICE=device):
        Tensor.manual_seed(0)
        data = demo.Data(None)
        model = demo.Net(data.x.shape[-1])
        step = demo.make_step(model, nn.optim.Adam(model.parameters(), lr=demo.LEARNING_RATE))
        batches = [(data.x[i : i + 8], data.y[i : i + 8]) for i in range(0, 8 * STEPS, 8)]
        return [step(Tensor(x), Tensor(y))[0].item() for x, y in batches]


@pytest.mark.sweep
@pytest.mark.parametrize("device", [d for d in devices() if d.values != ("cpu",)])
def test_the_demo_has_the_losses_of_the_cpu(device):
    got = losses_of_the_demo(device)
    assert len(set(got)) == STEPS
    np.testing.assert_allclose(got, losses_of_the_demo("cpu"), rtol=1e-4)
