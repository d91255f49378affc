"""Define the decorator `jit`. It makes a captured step of a function, or loads a captured step from a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, overload

from monolect.base.errors import JitError
from monolect.capture.step import Donate, Jit, P, R
from monolect.tensor.tensor import Tensor


class Decorator:
    """The decorator `jit`: capture a function at its first call and replay it afterwards; see `Jit`.

    >>> from monolect import Tensor, jit
    >>> double = jit(lambda x: x * 2)
    >>> [double(Tensor([float(i)])).item() for i in range(3)]
    [0.0, 2.0, 4.0]
    """

    @overload
    def __call__(self, function: Callable[P, R], *, donate: Donate = ()) -> Jit[P, R]: ...
    @overload
    def __call__(self, *, donate: Donate = ()) -> Callable[[Callable[P, R]], Jit[P, R]]: ...
    def __call__(self, function: Callable[P, R] | None = None, *, donate: Donate = ()) -> Any:
        """Return `function` as a captured step, a Jit; without a function, return a decorator.

        `donate` names arguments, or gives their positions: results may be written over their memory, and using such a
        tensor after the call raises JitError. Raises JitError for an object that is not callable, ArgumentError for
        arguments that the function lacks.
        """
        if function is None:
            return lambda f: self(f, donate=donate)
        if not callable(function):
            raise JitError("jit takes a function", expected="a callable", found=type(function).__name__)
        return Jit(function, donate=donate)

    @staticmethod
    def load(
        path: str | os.PathLike[str], tensors: Mapping[str, Tensor] | None = None, *, device: str | None = None
    ) -> Jit[..., Any]:
        """Return the step that `step.save` wrote to `path`: it runs without tracing or scheduling.

        The step reads and updates its own tensors, `step.tensors` by name; `tensors` replaces some of them, such as by
        those of a model. `device`: `cpu` or `c`, instead of the device that it was saved on. Random numbers continue
        from this process's state. A file may come from an untrusted source: it holds no code, and its kernels are
        verified and proven. Programs come from the user's cache, or are compiled.

        Raises FileFormatError, ParseError or VerifyError for a file that is damaged, incomplete, of another version, or
        could access memory out of bounds; DeviceError for devices other than `cpu` and `c`; ArgumentError for tensors
        that do not fit. A call raises JitError for arguments of a kind that the step had not been called with when it
        was saved.

        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "double.step")
        >>> double = jit(lambda x: x * 2)
        >>> double(Tensor([1.0])).item()
        2.0
        >>> double.save(path)
        >>> jit.load(path)(Tensor([4.0])).item()
        8.0
        """
        from monolect.capture.files.loaded import load  # imported only to load

        return load(path, tensors, device)


jit = Decorator()


__all__ = ["Decorator", "jit"]
