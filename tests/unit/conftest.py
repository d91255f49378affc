"""What the unit tests of tensors share: with TENSOR_TESTS=interp the reference interpreter stands in for the runtime."""

import os
import sys
import types
from typing import Any

import numpy as np


def _stand_in() -> None:
    from monolect.base.dtype import from_numpy as dtype_of
    from monolect.ir.interp import evaluate
    from monolect.ir.uop import UOp, new_buffer, toposort

    def from_numpy(array: np.ndarray, device: Any) -> UOp:
        u = new_buffer(array.shape, dtype_of(array.dtype), device)
        u.storage = array
        return u

    def realize(uops: list[UOp]) -> list[UOp]:
        env = {u: u.storage for u in toposort(*uops) if u.op == "BUFFER" and u.storage is not None}
        return [from_numpy(np.ascontiguousarray(v), "cpu") for v in evaluate(uops, env)]

    buffer, execute = types.ModuleType("monolect.runtime.buffer"), types.ModuleType("monolect.runtime.execute")
    buffer.from_numpy, buffer.to_numpy = from_numpy, lambda u: u.storage
    execute.realize = realize
    sys.modules["monolect.runtime.buffer"], sys.modules["monolect.runtime.execute"] = buffer, execute


if os.environ.get("TENSOR_TESTS") == "interp":
    _stand_in()
