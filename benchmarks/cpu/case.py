"""What a row of the table is: one program in each library's words, its inputs, its reference, its target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Program = Callable[..., Any]
Inputs = Callable[[np.random.Generator], list[np.ndarray]]

PYTORCH = ("torch", "torch.compile")
COMPILERS = (*PYTORCH, "jax", "ort")
PEERS = (*COMPILERS, "numpy", "tinygrad")


@dataclass(frozen=True)
class Target:
    """At least `ratio` times as fast as the fastest of `over`."""

    ratio: float
    over: tuple[str, ...] = PEERS


BEST = (Target(1.0),)


@dataclass(frozen=True)
class Case:
    """A row. `programs[library](namespace, *tensors)` is the program in the words of a library.

    The namespace is the library's module; for ONNX Runtime it is a builder of graphs, whose last `constants` inputs are
    constants of the graph. Of the inputs the last `rotation` take turns as the last argument, one a call, so that they
    come from memory. With `steps`, `programs[library](namespace, compiled, *tensors)` is called once and gives a step
    without arguments, and the results of the first `steps` steps are checked. A program may give several tensors.
    """

    name: str
    family: str
    inputs: Inputs
    programs: dict[str, Program]
    exact: Program | None = None  # the reference, in float64; the NumPy program where there is none
    targets: tuple[Target, ...] = BEST
    tolerance: float = 1e-4  # of the largest expected value
    flops: float = 0.0
    unit: str = "f32"  # whose peak bounds `flops`
    moved: tuple[int, int] | None = None  # bytes read and written; by default those of inputs and results
    constants: int = 0
    rotation: int = 1
    steps: int = 0
    quick: bool = False

    def reference(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The results in float64 (integers stay what they are), one list for all that a call or step gives."""
        wide = [a if a.dtype.kind in "iub" else a.astype(np.float64) for a in arrays[: self.n_arguments(arrays)]]
        return listed((self.exact or self.programs["numpy"])(np, *wide))

    def n_arguments(self, arrays: list[np.ndarray]) -> int:
        return len(arrays) - self.rotation + 1

    def bytes_moved(self, arrays: list[np.ndarray], results: list[np.ndarray]) -> tuple[int, int]:
        """(read, written) by one call; float64 results stand for values of the first input's type."""
        if self.moved is not None:
            return self.moved
        item = arrays[0].dtype.itemsize
        written = sum(r.size * (item if r.dtype == np.float64 else r.dtype.itemsize) for r in results)
        return sum(a.nbytes for a in arrays[: self.n_arguments(arrays)]), written


def listed(result: Any) -> list[Any]:
    """One result or several as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]


def normal(*shapes: tuple[int, ...], dtype: Any = np.float32) -> Inputs:
    """Inputs of these shapes, normally distributed."""
    return lambda rng: [rng.standard_normal(shape, dtype=np.float32).astype(dtype, copy=False) for shape in shapes]


def same(program: Program, *libraries: str) -> dict[str, Program]:
    """The libraries that say a program alike."""
    return dict.fromkeys(libraries, program)
