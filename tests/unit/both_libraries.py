"""How monolect and PyTorch differ, for programs that are written once and run with both."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from monolect import Tensor, jit, nn
from monolect.capture.step import Jit
from monolect.interop.safetensors import safe_load, safe_save

torch.manual_seed(0)


class Eager:
    """Monolect without `@jit`."""

    nn, SGD, Adam, AdamW, RMSprop = nn, nn.optim.SGD, nn.optim.Adam, nn.optim.AdamW, nn.optim.RMSprop
    stack, cat, where = map(staticmethod, (Tensor.stack, Tensor.cat, Tensor.where))
    cross_entropy = staticmethod(Tensor.cross_entropy)
    save, load = staticmethod(safe_save), staticmethod(safe_load)
    no_grad = contextlib.nullcontext

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state.safetensors"
        self.kept: Any = None  # what a loop makes and is looked at after it

    def tensor(self, values: Any) -> Any:
        return Tensor(np.array(values))

    def leaf(self, values: Any) -> Any:
        return Tensor(np.array(values), requires_grad=True)

    def write(self, tensor: Any, value: Any) -> None:
        tensor.assign(value)

    def step(self, function: Any) -> Any:
        return function

    def reload(self, step: Any, tensors: dict[str, Any]) -> Any:
        """The step from a file to which it was saved."""
        return step

    def layer(self, kind: str, *sizes: int, **values: Any) -> Any:
        """The layer `nn.kind(*sizes)` with these parameters and buffers."""
        layer = getattr(nn, kind)(*sizes)
        for name, array in values.items():
            setattr(layer, name, Tensor(array.copy(), requires_grad=getattr(layer, name).requires_grad))
        return layer

    def set_rate(self, optimizer: Any, rate: float) -> None:
        optimizer.lr = rate

    def state_of(self, optimizer: Any) -> dict[str, Any]:
        return optimizer.state_dict()

    def set_state(self, optimizer: Any, state: dict[str, Any]) -> None:
        optimizer.load_state_dict(state)


class Captured(Eager):
    """Monolect with `@jit`. `steps` are what was captured, in order."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.steps: list[Jit] = []

    def step(self, function: Any) -> Any:
        self.steps.append(jit(function))
        return self.steps[-1]

    def reload(self, step: Any, tensors: dict[str, Any]) -> Any:
        path = self.path.with_suffix(".step")
        step.save(path, tensors)
        return jit.load(path, tensors)

    def counts(self) -> tuple[int, ...]:
        """The captures of each step, those of a method together."""
        return tuple(len(s.captures) + sum(len(m.captures) for m in s._methods.values()) for s in self.steps)


class PyTorch(Eager):
    """The oracle."""

    nn, SGD, Adam, AdamW = torch.nn, torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    RMSprop = torch.optim.RMSprop
    stack, cat, where = staticmethod(torch.stack), staticmethod(torch.cat), staticmethod(torch.where)
    cross_entropy = staticmethod(torch.nn.functional.cross_entropy)
    save, load = staticmethod(safetensors.torch.save_file), staticmethod(safetensors.torch.load_file)
    no_grad = torch.no_grad

    def tensor(self, values: Any) -> Any:
        return torch.tensor(np.array(values))

    def leaf(self, values: Any) -> Any:
        return torch.tensor(np.array(values), requires_grad=True)

    def write(self, tensor: Any, value: Any) -> None:
        with torch.no_grad():
            tensor.copy_(torch.as_tensor(value))

    def layer(self, kind: str, *sizes: int, **values: Any) -> Any:
        layer = getattr(torch.nn, kind)(*sizes).double()
        with torch.no_grad():
            for name, array in values.items():
                getattr(layer, name).copy_(torch.tensor(array))
        return layer

    def set_rate(self, optimizer: Any, rate: float) -> None:
        optimizer.param_groups[0]["lr"] = rate

    def state_of(self, optimizer: Any) -> dict[str, Any]:
        state = optimizer.state_dict()["state"]
        return {f"{i}.{name}": t for i, entries in state.items() for name, t in entries.items()}

    def set_state(self, optimizer: Any, state: dict[str, Any]) -> None:
        entries: dict[int, dict[str, Any]] = {}
        for name, t in state.items():
            i, slot = name.split(".")
            entries.setdefault(int(i), {})[slot] = t.clone()
        optimizer.load_state_dict({**optimizer.state_dict(), "state": entries})
