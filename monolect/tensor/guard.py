"""Turn Python errors inside Tensor methods into errors of monolect's tree at the user's line.

What it is for: a method checks the values of arguments of the right type. An argument of a wrong type (None for a
tensor, a str for a number) fails somewhere inside. `guarded` names the method, its signature and the cause.
What it is not: it checks nothing, and costs one Python call. The hottest operators check their operand themselves.
Invariant: an error that arguments cause in a guarded method is a MonolectError; the original is its `__cause__`. An
error inside the compiler is no argument's fault: it becomes an InternalError.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

from monolect.base.errors import ArgumentError, DTypeError, InternalError, IRError, MonolectError, ShapeError
from monolect.base.origin import innermost_folder, is_from_user, provenance

F = TypeVar("F", bound=Callable[..., Any])
FAILURES = (TypeError, AttributeError, ValueError, LookupError, ArithmeticError, AssertionError, RecursionError)
COMPILER = frozenset(("rules", "schedule", "optimize", "lower", "command", "backend"))  # folders that see no arguments
UNGUARDED = frozenset(  # names: cheap operators that check their operand, and methods that compute
    "__new__ __init_subclass__ __class_getitem__ __getattr__ __hash__ __repr__ __len__ __bool__ __int__"
    " __float__ __index__ __array__ __array_ufunc__ __add__ __radd__ __mul__ __rmul__ __sub__ __rsub__ __truediv__"
    " __rtruediv__ __neg__ __lt__ __gt__ __le__ __ge__ __eq__ __ne__ __getitem__ realize numpy tolist item"
    " numel dim size element_size".split()
)


def guarded(f: F, name: str = "") -> F:
    """Wrap `f` so that Python errors such as TypeError and ValueError (FAILURES) become an ArgumentError that shows the
    signature of `f`.

    An IRError becomes a DTypeError if it is about the dtype of an operand, else a ShapeError, and a Python error inside
    the compiler an InternalError. Other errors of monolect's tree pass, and those of the user's code. `name` is the
    method's name in messages; by default that of `f`, or of its class for `__init__` and `forward`.
    """
    owner = f.__qualname__.partition(".")[0]
    name = name or (owner if f.__name__ in ("__init__", "forward") else f.__name__)

    @wraps(f)
    def method(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except FAILURES as e:
            if isinstance(e, MonolectError):
                if e.__class__ is not IRError:
                    raise
                kind = DTypeError if "operand must be" in e.message else ShapeError
                raise kind(f"{provenance()[2]}: {e.message}", expected=e.expected, found=e.found) from e
            if e.__traceback__ is None or e.__traceback__.tb_next is None:
                raise  # the call does not match the signature: Python's own message is best
            if (folder := innermost_folder(e.__traceback__)) in COMPILER:
                expected, found = "no error in the compiler; please report this", f"{type(e).__name__}: {e}"
                raise InternalError(f"{name}: a bug in monolect/{folder}", expected=expected, found=found) from e
            if is_from_user(e.__traceback__.tb_next):
                raise  # a function of the user's failed, such as the `gradient` of a @function
            from inspect import signature  # takes 10 ms to import, and only errors need it

            expected = f"{name}{signature(f)}"
            raise ArgumentError(f"{name}: bad argument", expected=expected, found=str(e)) from e

    # provenance reports this name
    method.__code__ = method.__code__.replace(co_name=f.__name__)  # type: ignore[attr-defined]
    return method  # type: ignore[return-value]


def guard_methods(cls: type) -> type:
    """Class decorator: replace each method that `cls` defines by its `guarded` form, whose Python errors become errors
    of monolect, and return `cls`.

    Private methods and those in UNGUARDED, such as `__add__`, `item` and `numpy`, stay as they are.
    """
    for name, value in list(vars(cls).items()):
        if name in UNGUARDED or (name.startswith("_") and not name.startswith("__")):
            continue
        if isinstance(value, FunctionType):
            setattr(cls, name, guarded(value))
        elif isinstance(value, classmethod):
            setattr(cls, name, classmethod(guarded(value.__func__)))
        elif isinstance(value, staticmethod):
            setattr(cls, name, staticmethod(guarded(value.__func__)))
    return cls


__all__ = ["guard_methods", "guarded"]
