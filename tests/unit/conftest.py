"""What the unit tests share: with TENSOR_TESTS=interp the reference interpreter computes tensors, not the compiler.

That tells a wrong graph from a wrong kernel: `TENSOR_TESTS=interp pytest tests/unit/test_tensor_*.py`.
"""

import os

import numpy as np

from monolect.ir.interp import evaluate
from monolect.ir.uop import UOp, toposort
from monolect.runtime.buffer import from_numpy, to_numpy
from monolect.tensor import tensor


def _interpret(uops: list[UOp]) -> list[UOp]:
    env = {u: to_numpy(u) for u in toposort(*uops) if u.op == "BUFFER" and u.storage is not None}
    return [from_numpy(np.ascontiguousarray(v), "cpu") for v in evaluate(uops, env)]


if os.environ.get("TENSOR_TESTS") == "interp":
    tensor.realize = _interpret
