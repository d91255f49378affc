"""Numbers that differ each time a program runs, as inputs of it.

What it is for: a number of the user's is a constant of the kernels, which is best where it stays the same. One that
does not, such as a learning rate that falls, would make another program at each step. So where a batch has been planned
for some numbers already, those that differed become inputs, and one plan serves all.
What it is not: it says nothing about integers, whose values decide about indices and shapes.

Invariant: a batch with inputs in place of numbers computes the same operations on the same values.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from monolect.base.dtype import dtypes
from monolect.base.numpy import np
from monolect.ir.rewrite.normal import is_mark
from monolect.ir.uop import UOp, substitute_all
from monolect.runtime.buffer import from_numpy, is_realized

ENOUGH = 4  # plans of one program for different numbers
MOST_PROGRAMS = 256  # that are known by what is left of them without their numbers
_DTYPES = (dtypes.float32, dtypes.float64)
_programs: OrderedDict[tuple, _Program] = OrderedDict()


class _Program:
    """The last numbers of a program, in the order of its structure; which differed so far; how often some did."""

    __slots__ = ("n", "numbers", "varied")

    def __init__(self, numbers: list[UOp]) -> None:
        self.numbers, self.varied, self.n = numbers, set[int](), 1


def with_inputs(batch: list[UOp], shape: tuple, dev: str) -> list[UOp] | None:
    """`batch`, which has no plan, with inputs in place of numbers that differ each time; None where none do. `shape`:
    its `structure`.
    """
    numbers = [x for x in shape if _is_number(x)]
    if not numbers:
        return None
    key = (dev, *[x.dtype if _is_number(x) else x for x in shape])
    program = _programs.get(key)
    if program is None:
        _programs[key] = _Program(numbers)
        if len(_programs) > MOST_PROGRAMS:
            _programs.popitem(last=False)
        return None
    _programs.move_to_end(key)
    differ = {i for i, (a, b) in enumerate(zip(program.numbers, numbers, strict=True)) if a is not b}
    program.numbers, program.n = numbers, program.n + bool(differ)
    program.varied |= differ
    if not program.varied or program.n < ENOUGH:
        return None
    inputs = {u: from_numpy(np.array(u.value, u.dtype.numpy), dev) for u in (numbers[i] for i in program.varied)}
    new = list(substitute_all(tuple(batch), inputs))
    return None if any(is_realized(u) for u in new) else new


def _is_number(x: Any) -> bool:
    if x.__class__ is not UOp or x.op != "CONST" or x.dtype not in _DTYPES:
        return False
    return isinstance(x.value, float) and not is_mark(x)
