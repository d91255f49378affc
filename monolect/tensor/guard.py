"""What Tensor methods raise for arguments of a wrong kind: an error of monolect's tree, at the user's line.

What it is for: a method checks what can be wrong with values it understands; an argument that is nothing of the kind
(None for a tensor, a text for a number) fails somewhere inside. `guarded` names the method, its signature, the cause.
What it is not: it checks nothing, and costs one Python call; the hottest operators check their operand themselves.
Invariant: what a guarded method raises for its arguments is a MonolectError; the original is kept as its cause.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from monolect.base.errors import ArgumentError, IRError, MonolectError, ShapeError
from monolect.base.origin import provenance

FAILURES = (TypeError, AttributeError, ValueError, LookupError, ArithmeticError, AssertionError, RecursionError)
UNGUARDED = frozenset(  # cheap operators that check their operand, and the methods that compute
    "__new__ __init_subclass__ __class_getitem__ __getattr__ __hash__ __repr__ __len__ __bool__ __int__"
    " __float__ __index__ __array__ __array_ufunc__ __add__ __radd__ __mul__ __rmul__ __sub__ __rsub__ __truediv__"
    " __rtruediv__ __neg__ __lt__ __gt__ __le__ __ge__ __eq__ __ne__ __getitem__ realize numpy tolist item"
    " numel dim size element_size".split()
)


def guarded(f: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """`f`, which raises an error of monolect's tree when its arguments make it fail."""
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
                raise ShapeError(f"{provenance()[2]}: {e.message}", expected=e.expected, found=e.found) from e
            if e.__traceback__ is None or e.__traceback__.tb_next is None:
                raise  # the call itself does not fit the signature: Python's own message says it best
            from inspect import signature  # costs 10 ms to import, and only errors need it

            expected = f"{name}{signature(f)}"
            raise ArgumentError(f"{name}: bad argument", expected=expected, found=str(e)) from e

    # the name that provenance reports
    method.__code__ = method.__code__.replace(co_name=f.__name__)  # type: ignore[attr-defined]
    return method


def guard_methods(cls: type) -> type:
    """Class decorator: guard the methods `cls` defines, other than private, cheap and computing ones."""
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
