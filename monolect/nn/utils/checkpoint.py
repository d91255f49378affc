"""Call parts of a model by the names of torch.utils.checkpoint, which recomputes their values in the backward pass.

What it is for: programs that were written for PyTorch run unchanged.
What it is not: it recomputes nothing. A graph has no values that wait for the backward pass: which of them are stored
and which are computed again follows from what each costs, for the whole program (`schedule/`). So these functions call
what they are given, and results and gradients are those of plain calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from monolect.base.errors import ArgumentError
from monolect.nn.containers import Sequential
from monolect.tensor.guard import guarded

R = TypeVar("R")


@guarded
def checkpoint(
    function: Callable[..., R],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Any = None,
    determinism_check: str = "default",
    debug: bool = False,
    **kwargs: Any,
) -> R:
    """Return `function(*args, **kwargs)`: the compiler itself decides which values it computes again.

    The other keywords are those of PyTorch and have no effect. Raises ArgumentError for what is not callable.

    >>> from monolect.nn.utils.checkpoint import checkpoint
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> _ = checkpoint(lambda x: x * x, x, use_reentrant=False).sum().backward()
    >>> x.grad.tolist()
    [2.0, 4.0]
    """
    if not callable(function):
        raise ArgumentError("checkpoint: function", expected="a callable", found=type(function).__name__)
    return function(*args, **kwargs)


@guarded
def checkpoint_sequential(
    functions: Sequential | Iterable[Callable[..., Any]],
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """Return the result of `functions`, one after the other, for `input`. `segments` and the others have no effect.

    `functions`: a `Sequential`, or functions. Raises ArgumentError for fewer segments than one, and for what is not
    callable.

    >>> from monolect.nn.utils.checkpoint import checkpoint_sequential
    >>> checkpoint_sequential([lambda x: x + 1, lambda x: x * 2], 2, Tensor([1.0])).tolist()
    [4.0]
    """
    if not isinstance(segments, int) or segments < 1:
        raise ArgumentError("checkpoint_sequential: segments", expected="at least 1", found=repr(segments))
    x = input
    for function in functions:
        if not callable(function):
            found = type(function).__name__
            raise ArgumentError("checkpoint_sequential: functions", expected="callables", found=found)
        x = function(x)
    return x


__all__ = ["checkpoint", "checkpoint_sequential"]
