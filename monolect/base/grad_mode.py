"""Define no_grad and its relatives: blocks and functions whose results have no graph for gradients.

They are the setting GRAD of the thread, which captured steps depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, TypeVar

from monolect.base.settings import Held, hold, release, settings

F = TypeVar("F", bound=Callable[..., Any])


class _Mode(ContextDecorator):
    """Set GRAD to `_value` for a `with` block or a decorated function. It may be entered again while it is active."""

    _value = 0

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        mode: Any = super().__new__(cls)
        if function is None:
            return mode
        mode.__init__()
        return mode(function)

    def __init__(self) -> None:
        self._held: list[Held] = []

    def __enter__(self) -> None:
        self._held.append(hold("GRAD", self._value))

    def __exit__(self, *exc_info: object) -> None:
        release(self._held.pop())

    def __call__(self, function: F) -> F:
        return self._resumed(function) if isgeneratorfunction(function) else super().__call__(function)

    def _resumed(self, function: Any) -> Any:
        """Return the generator function `function` with its body inside of the block, and its caller outside."""

        @wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            resume: Callable[..., Any] = made.send
            given: Any = None
            while True:
                try:
                    with self:
                        value = resume(given)
                except StopIteration as e:
                    return e.value
                try:
                    given, resume = (yield value), made.send
                except BaseException as e:
                    given, resume = e, made.throw

        return generator


class no_grad(_Mode):  # noqa: N801
    """For a `with` block or a decorated function: results have no graph, and leaves may be written to in place.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> with no_grad():
    ...     w -= 0.25
    ...     y = w * 2
    >>> _ = (y * w).sum().backward()
    >>> w.tolist(), w.grad.tolist()  # y counts as a constant
    ([0.75], [1.5])
    """


class enable_grad(_Mode):  # noqa: N801
    """For a `with` block or a decorated function inside of `no_grad`: results have a graph again.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> with no_grad(), enable_grad():
    ...     y = w * 2
    >>> _ = y.sum().backward()
    >>> w.grad.tolist()
    [2.0]
    """

    _value = 1


class set_grad_enabled(_Mode):  # noqa: N801
    """Set, from the call on, whether results have a graph; as a `with` block or decorator, for the block or function.

    >>> with set_grad_enabled(False):
    ...     is_grad_enabled()
    False
    """

    def __new__(cls, mode: bool) -> Any:
        return object.__new__(cls)

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self._value, self._outside = int(mode), [settings.GRAD]
        setattr(settings, "GRAD", self._value)  # noqa: B010 - a property for type checkers

    def _take_back(self) -> None:
        """Undo what the construction set; the second time do nothing."""
        if self._outside:
            setattr(settings, "GRAD", self._outside.pop())  # noqa: B010

    def __enter__(self) -> None:
        self._take_back()
        super().__enter__()

    def __call__(self, function: F) -> F:
        self._take_back()
        return super().__call__(function)


class inference_mode(_Mode):  # noqa: N801
    """For a `with` block or a decorated function: as `no_grad`, or, with `mode` False, as `enable_grad`.

    >>> with inference_mode():
    ...     is_grad_enabled()
    False
    """

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        made: Any = object.__new__(cls)
        if isinstance(mode, bool | int):
            return made
        made.__init__()
        return made(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self._value = int(not mode)


def is_grad_enabled() -> bool:
    """Return whether results have a graph for gradients.

    >>> is_grad_enabled()
    True
    """
    return bool(settings.GRAD)


__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled"]
