"""Each library behind the same three words: `prepare` a case, call it, read the result.

`prepare` gives a function without arguments that makes one call and waits until its result is there. Every library is
asked the way its own users would: compiled where it compiles, no gradients recorded unless the case takes steps.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import monolect
from benchmarks.cpu.case import Case, Program, listed
from monolect.runtime import profile

Call = Callable[[], Any]
PROFILED_CALLS, PROFILED_LINES = 5, 8


class Peer:
    """A library whose programs take its module and its tensors."""

    module = ""
    words = ""  # the library whose programs serve where a case has none of this one's name
    closes_over = False  # its compiled functions tell what they are given from what they hold: a case's constants

    def __init__(self, name: str) -> None:
        self.name = name
        self.library = importlib.import_module(self.module)

    def program(self, case: Case) -> Program:
        """The case in this library's words."""
        return case.programs[self.name if self.name in case.programs else self.words]

    def tensor(self, array: np.ndarray) -> Any:
        raise NotImplementedError

    def array(self, tensor: Any) -> np.ndarray:
        return np.asarray(tensor)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def prepare(self, case: Case, arrays: list[np.ndarray]) -> Call:
        program, library = self.program(case), self.library
        tensors = [self.tensor(a) for a in arrays]
        if case.steps:
            return program(library, self.compiled, *tensors)
        n_fed = len(tensors) - (case.constants if self.closes_over else 0)
        given, held = tensors[:n_fed], tensors[n_fed:]
        call = self.compiled(lambda *args: program(library, *args, *held))
        if case.rotation == 1:
            return lambda: call(*given)
        fixed = tensors[: -case.rotation]
        turns = itertools.cycle(tensors[-case.rotation :])
        return lambda: call(*fixed, next(turns))


class NumPy(Peer):
    module = "numpy"

    def tensor(self, array: np.ndarray) -> np.ndarray:
        return array


class Monolect(Peer):
    module = "monolect"
    closes_over = True  # HOIST=0 computes with them at every call, as if they were given

    def tensor(self, array: np.ndarray) -> Any:
        return monolect.Tensor(array).realize()

    def array(self, tensor: Any) -> np.ndarray:
        return tensor.numpy()

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return monolect.jit(function)

    def profile(self, call: Call) -> str:
        """Where the time of a call goes, by kernel. Each is timed on its own, so together they take longer."""
        runs = []
        for _ in range(PROFILED_CALLS):
            with profile.Recorder() as kernels:
                call()
            runs.append(list(kernels))
        quickest = min(runs, key=lambda kernels: sum(k.time_ns for k in kernels))
        alike: dict[tuple[str, str], list[profile.KernelRun]] = {}
        for k in quickest:
            alike.setdefault((k.name, profile.origin_of(k.call)), []).append(k)
        total_ns = sum(k.time_ns for k in quickest)
        lines = []
        for (name, origin), group in alike.items():
            ns = sum(k.time_ns for k in group)
            rate = sum(k.n_ops for k in group) / max(1, ns)
            lines.append(
                (ns, f"{ns / total_ns:7.1%} {ns / 1e3:9.1f} us {len(group):3} x {name:30} {rate:6.1f} G/s {origin}")
            )
        lines.sort(reverse=True)
        head = f"    {len(quickest)} kernels, {total_ns / 1e6:.2f} ms"
        return "\n".join([head, *["    " + text for _, text in lines[:PROFILED_LINES]]])


class Torch(Peer):
    module = "torch"

    def tensor(self, array: np.ndarray) -> Any:
        if array.dtype.name == "bfloat16":
            return self.library.from_numpy(array.view(np.int16)).view(self.library.bfloat16)
        return self.library.from_numpy(array)

    def array(self, tensor: Any) -> np.ndarray:
        tensor = tensor.detach()
        return (tensor.float() if tensor.dtype == self.library.bfloat16 else tensor).numpy()


class TorchCompile(Torch):
    words = "torch"

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.library.compiler.reset()
        return self.library.compile(function)


class Jax(Peer):
    module = "jax"

    def tensor(self, array: np.ndarray) -> Any:
        return self.library.numpy.asarray(array)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        call, wait = self.library.jit(function), self.library.block_until_ready
        return lambda *args: wait(call(*args))


class Tinygrad(Peer):
    """Where installed. Its methods are named as ours in most cases."""

    module = "tinygrad"
    words = "monolect"

    def tensor(self, array: np.ndarray) -> Any:
        return self.library.Tensor(array).realize()

    def array(self, tensor: Any) -> np.ndarray:
        return tensor.numpy()

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        device = self.library.Device[self.library.Device.DEFAULT]
        call = self.library.TinyJit(lambda *args: function(*args).realize())

        def synchronised(*args: Any) -> Any:
            result = call(*args)
            device.synchronize()
            return result

        return synchronised


class OnnxRuntime(Peer):
    """Operands are ready in its own values; results lie in memory that it recycles."""

    module = "onnxruntime"

    def prepare(self, case: Case, arrays: list[np.ndarray]) -> Call:
        ort, program = self.library, self.program(case)
        graph_builder = importlib.import_module("benchmarks.cpu.onnx_graph")
        arguments = arrays[: case.n_arguments(arrays)]
        n_fed = len(arguments) - case.constants
        g = graph_builder.Graph()
        inputs = [g.input(a) for a in arguments[:n_fed]]
        result = program(g, *inputs, *[g.constant(a) for a in arguments[n_fed:]])
        names = [value.name for value in listed(result)]
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 2, 3
        model = g.model(listed(result)).SerializeToString()
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        values = [ort.OrtValue.ortvalue_from_numpy(a) for a in arrays]
        fed = [value.name for value in inputs]
        feeds = [dict(zip(fed, values, strict=False))]
        if case.rotation > 1:
            feeds = [dict(zip(fed, [*values[: n_fed - 1], w], strict=True)) for w in values[n_fed - 1 :]]
        turns = itertools.cycle(feeds)
        return lambda: session.run_with_ort_values(names, next(turns))

    def array(self, tensor: Any) -> np.ndarray:
        return tensor.numpy()


PEERS: dict[str, type[Peer]] = {
    "monolect": Monolect,
    "torch": Torch,
    "torch.compile": TorchCompile,
    "jax": Jax,
    "ort": OnnxRuntime,
    "numpy": NumPy,
    "tinygrad": Tinygrad,
}


def installed(name: str) -> bool:
    """Can the library be imported? It is not imported to find out."""
    return importlib.util.find_spec(PEERS[name].module) is not None


def speaks(name: str, case: Case) -> bool:
    """Is the case written in the library's words?"""
    return name in case.programs or PEERS[name].words in case.programs
