"""Turn float constants that differ from run to run into inputs, so that one plan serves all their values.

What it is for: a number of the user's is a constant in the kernels, which is fastest while it does not change. A number
that changes, such as a decaying learning rate, would need another plan at each step. After a batch has been planned for
MIN_PLANS different sets of numbers, the numbers that differed become inputs.
What it is not: it does not treat integers, whose values determine indices and shapes.

Invariant: a batch with inputs for numbers computes the same operations on the same values.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from monolect.base.dtype import dtypes
from monolect.base.numpy import np
from monolect.ir.rewrite.normal import is_mark
from monolect.ir.uop import UOp, substitute_all
from monolect.runtime.buffer import from_numpy, is_realized

MIN_PLANS = 4  # plans of one program for different numbers; from this one on the numbers become inputs
MAX_PROGRAMS = 256  # programs in `_programs`; beyond it the least recently used one is dropped
_DTYPES = (dtypes.float32, dtypes.float64)
_programs: OrderedDict[tuple, _Numbers] = OrderedDict()  # by the key of a batch with dtypes instead of numbers


class _Numbers:
    """The float constants of one program.

    `numbers`: the last ones, in the order of the batch's key. `varied`: indices of those that have differed so far.
    `n`: how many sets of numbers were seen.
    """

    __slots__ = ("n", "numbers", "varied")

    def __init__(self, numbers: list[UOp]) -> None:
        self.numbers, self.varied, self.n = numbers, set[int](), 1


def with_inputs(batch: list[UOp], batch_key: tuple, dev: str) -> list[UOp] | None:
    """Return `batch`, which has no plan, with an input BUFFER for each number that differs between runs; None if it
    stays as it is.

    `batch_key`: the key of the batch, from `callify.structure`.
    """
    numbers = [x for x in batch_key if _is_number(x)]
    if not numbers:
        return None
    key = (dev, *[x.dtype if _is_number(x) else x for x in batch_key])
    program = _programs.get(key)
    if program is None:
        _programs[key] = _Numbers(numbers)
        if len(_programs) > MAX_PROGRAMS:
            _programs.popitem(last=False)
        return None
    _programs.move_to_end(key)
    differ = {i for i, (a, b) in enumerate(zip(program.numbers, numbers, strict=True)) if a is not b}
    program.numbers, program.n = numbers, program.n + bool(differ)
    program.varied |= differ
    if not program.varied or program.n < MIN_PLANS:
        return None
    inputs = {u: from_numpy(np.array(u.value, u.dtype.numpy), dev) for u in (numbers[i] for i in program.varied)}
    new = list(substitute_all(tuple(batch), inputs))
    return None if any(is_realized(u) for u in new) else new


def _is_number(x: Any) -> bool:
    """Return whether the item `x` of a batch's key is a float CONST that may become an input."""
    if x.__class__ is not UOp or x.op != "CONST" or x.dtype not in _DTYPES:
        return False
    return isinstance(x.value, float) and not is_mark(x)


__all__ = ["MIN_PLANS", "with_inputs"]
