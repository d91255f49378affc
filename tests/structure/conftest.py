"""What a structure test counts: the kernels of a program, and in each the nodes of its IR and of its linear program.

Counts are taken for one fixed target, so they do not depend on the machine. `structure(x, ...)` schedules and lowers;
`check(x, wanted)` also runs, and compares values.
"""

from collections import Counter
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest

from monolect import Tensor
from monolect.backend.registry import Device
from monolect.ir.bounds import min_max, ranges
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.uop import UOp, toposort
from monolect.pipeline import lower_kernel, schedule
from monolect.schedule.callify import over_params


class Kernel(NamedTuple):
    """One kernel: `ir` counts the nodes of its SINK, `code` those of its LINEAR."""

    name: str
    ir: Counter
    code: Counter
    sink: UOp
    linear: UOp

    @property
    def loops(self) -> int:
        """RANGEs in the generated code."""
        return self.code["RANGE"]

    @property
    def reads(self) -> int:
        """LOADs of buffers, not of accumulators."""
        return self.ir["LOAD"]

    @property
    def iterations(self) -> int:
        """Iterations of all loops of the nest that `sink` describes, as if none were vectors."""
        return sum(_size(u) for u in toposort(self.sink) if u.op in ("END", "REDUCE"))

    @property
    def work(self) -> int:
        """Operations on floats that the generated code does, of which a vector counts as its lanes."""
        total, nest = 0, [1]
        for u in self.linear.src:
            if u.op == "RANGE":
                nest.append(nest[-1] * min_max(u.src[0])[1])
            elif u.op == "END":
                del nest[len(nest) - len(u.src) + 1 :]
            elif u.op in ELEMENTWISE and any(s.dtype.is_float for s in u.src):
                total += nest[-1] * prod(u.shape)
        return total


def _size(u: UOp) -> int:
    return prod(r.src[0].value for r in {*ranges(u), *u.src[1:]} if r.op == "RANGE")


def kernels_of(*tensors: Tensor, local_bytes: int = 0) -> list[Kernel]:
    """The kernels that computing `tensors` together takes, with so much local memory for each thread."""
    sink, _, _ = over_params([t.uop for t in tensors])
    target = Device["null"].target
    out = []
    for call in schedule(list(sink.src), "null", local_bytes).linear.src:
        k = call.src[0]
        lin = lower_kernel(k, target)
        code = Counter(u.op for u in lin.src)
        out.append(Kernel(lin.arg.name, Counter(u.op for u in toposort(k)), code, k, lin))
    return out


@pytest.fixture
def structure() -> Any:
    """kernels_of."""
    return kernels_of


@pytest.fixture
def check() -> Any:
    """Runs tensors together and compares them with arrays; returns their kernels, counted before."""

    def run(tensors: Any, wanted: Any, rtol: float = 2e-5, atol: float = 1e-5) -> list[Kernel]:
        tensors = tensors if isinstance(tensors, tuple) else (tensors,)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        out = kernels_of(*tensors)
        tensors[0].realize(*tensors[1:])
        for t, w in zip(tensors, wanted, strict=True):
            np.testing.assert_allclose(t.numpy(), w, rtol=rtol, atol=atol)
        return out

    return run


@pytest.fixture
def data() -> Any:
    """Repeatable arrays: data(*shape) of floats."""
    rng = np.random.default_rng(7)
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)
