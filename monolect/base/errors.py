"""Define every error that monolect raises on purpose, as one tree of classes.

What it is for: a user can catch all errors of monolect with one class, or one kind with the builtin class.
What it is not: it knows no tensors and no IR; callers pass the texts. Errors of Python's own protocols
stay builtin: those of a missing attribute, method or file.
Invariant: each class derives from `MonolectError` and from the builtin class that a Python program would expect. Each
message can say what was expected, what was found, and which line of the user's program is the cause.

    MonolectError
    ├── ShapeError         ValueError     sizes do not fit together
    ├── DTypeError         TypeError      an element type that is not allowed here
    ├── DeviceError        ValueError     a device that is unknown, absent, or mixed with another
    ├── DistributedError   RuntimeError   processes of a job that differ, or do not answer
    ├── AxisError          IndexError     an axis outside the tensor's dimensions, or named twice
    │   └── AxisTypeError  TypeError      an axis that is no integer
    ├── IndexRangeError    IndexError     an index outside its axis
    ├── SettingError       ValueError     an unknown setting or a bad value for one
    ├── ArgumentError      ValueError     any other argument that makes no sense
    ├── GradientError      RuntimeError   a derivative that does not exist or was not asked for
    ├── JitError           RuntimeError   a captured step that cannot be captured or replayed
    ├── ExportError        RuntimeError   a captured step that cannot be written as a program of its own
    ├── IRError            ValueError     a malformed node; has `op`
    │   └── VerifyError                   a graph that breaks the rules of its stage
    ├── ParseError         ValueError     text IR that does not parse
    ├── ActionError        ValueError     an optimizer action that is not legal here
    ├── CompileError       RuntimeError   a target's compiler refused the generated program
    ├── ObjectFileError    ValueError     native object code that cannot be loaded
    ├── FileFormatError    ValueError     a data file that is corrupt, truncated or of another format
    ├── MissingExtraError  ImportError    an optional dependency that is not installed
    ├── AllocationError    MemoryError    a buffer that does not fit in the device's memory
    └── InternalError      RuntimeError   monolect broke its own rules: please report it

Two warnings (UserWarning) report something that works but costs more than necessary: CaptureWarning and CacheWarning.
"""

from collections.abc import Iterable

from monolect.base.origin import provenance


def user_line() -> tuple[str, int]:
    """Return file and line of the user's program that is running now; ("", 0) if only monolect is running."""
    file, number, _ = provenance()
    return file, number


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the text "KNOWN (did you mean that?)" for the known name most similar to `name`; "" if there is none."""
    from difflib import get_close_matches  # imported late: it takes 2 ms, and only errors need it

    found = get_close_matches(name, list(known), n=1)
    return f"{found[0]} (did you mean that?)" if found else ""


class MonolectError(Exception):
    """Root of the tree: `message` says what went wrong; `expected`, `found` and `line` (file, number) say the rest.

    The line is taken from the running program when it is not given. The source text of the line is read only when
    the error is printed, so an error that is caught and dropped costs no file access.
    """

    def __init__(
        self,
        message: str,
        *,
        expected: object = None,
        found: object = None,
        line: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.expected = expected
        self.found = found
        self.line = user_line() if line is None else line

    def describe(self) -> str:
        """Return the message with expected and found, but without the user's line."""
        parts = [self.message]
        if self.expected is not None:
            parts.append(f"  expected: {self.expected}")
        if self.found is not None:
            parts.append(f"  found: {self.found}")
        return "\n".join(parts)

    def __str__(self) -> str:
        parts = [self.describe()]
        file, number = self.line
        if file:
            import linecache  # imported late: it takes 1 ms, and only errors need it

            parts.append(f"  at {file}:{number}: {linecache.getline(file, number).strip()}".rstrip(": "))
        return "\n".join(parts)


class ShapeError(MonolectError, ValueError):
    """Sizes do not fit together.

    >>> Tensor.ones(2, 3) + Tensor.ones(2, 4)
    Traceback (most recent call last):
    monolect.base.errors.ShapeError: ...
    >>> (Tensor.ones(2, 3) + Tensor.ones(2, 1)).shape
    (2, 3)
    """


class DTypeError(MonolectError, TypeError):
    """An element type that is unknown or not allowed here.

    >>> Tensor([1.5, 2.5]) << 1
    Traceback (most recent call last):
    monolect.base.errors.DTypeError: ...
    >>> (Tensor([1, 2]) << 1).tolist()
    [2, 4]
    """


class DistributedError(MonolectError, RuntimeError):
    """Processes of a job that do not run the same program, a process that does not answer, or a job of one process."""


class DeviceError(MonolectError, ValueError):
    """A device that is unknown, absent on this machine, or mixed with another in one operation.

    >>> Tensor([1], device="cpuu")
    Traceback (most recent call last):
    monolect.base.errors.DeviceError: ...
    >>> Tensor([1], device="cpu").tolist()
    [1]
    """


class AxisError(MonolectError, IndexError):
    """An axis outside the tensor's dimensions, or one that is named twice.

    >>> Tensor.ones(2, 3).sum(axis=2)
    Traceback (most recent call last):
    monolect.base.errors.AxisError: ...
    >>> Tensor.ones(2, 3).sum(axis=-1).tolist()
    [3.0, 3.0]
    """


class AxisTypeError(AxisError, TypeError):
    """An axis that is no integer, such as a bool: `x.sum(True)` may mean `keepdim`, `x.sort(True)` `descending`.

    >>> Tensor([3, 1, 2]).sort(True)
    Traceback (most recent call last):
    monolect.base.errors.AxisTypeError: ...
    >>> Tensor([3, 1, 2]).sort(descending=True).values.tolist()
    [3, 2, 1]
    """


class IndexRangeError(MonolectError, IndexError):
    """An index outside its axis.

    >>> Tensor([1, 2, 3])[3]
    Traceback (most recent call last):
    monolect.base.errors.IndexRangeError: ...
    >>> Tensor([1, 2, 3])[-1].item()
    3
    """


class SettingError(MonolectError, ValueError):
    """An unknown setting, or a value that a setting does not allow.

    `monolect settings` lists all of them.

    >>> Context(DEBUG=9)
    Traceback (most recent call last):
    monolect.base.errors.SettingError: ...
    >>> with Context(DEBUG=0):
    ...     Tensor([1]).tolist()
    [1]
    """


class ArgumentError(MonolectError, ValueError):
    """An argument that makes no sense and has no class of its own (a negative stride, an unknown mode).

    >>> Tensor([1.0, 2.0]).pad((1, 1), mode="mirror")
    Traceback (most recent call last):
    monolect.base.errors.ArgumentError: ...
    >>> Tensor([1.0, 2.0]).pad((1, 1), mode="reflect").tolist()
    [2.0, 1.0, 2.0, 1.0]
    """


class GradientError(MonolectError, RuntimeError):
    """A derivative that does not exist or was not asked for.

    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).backward()  # not a scalar
    Traceback (most recent call last):
    monolect.base.errors.GradientError: ...
    >>> _ = (x * x).sum().backward()
    >>> x.grad.tolist()
    [2.0, 4.0]
    """


class JitError(MonolectError, RuntimeError):
    """A step that cannot be captured, or a replay whose arguments differ from what was captured.

    >>> jit(lambda x: x * 2 if x.sum().item() > 0 else x)(Tensor([1.0]))
    Traceback (most recent call last):
    monolect.base.errors.JitError: ...
    >>> jit(lambda x: (x.sum() > 0).where(x * 2, x))(Tensor([1.0])).tolist()
    [2.0]
    """


class ExportError(MonolectError, RuntimeError):
    """A captured step that cannot be written as a program without monolect; the message names the cause.

    >>> w = Tensor([1.0, 2.0], requires_grad=True)
    >>> step = jit(lambda x: (w * x).sum().backward())
    >>> _ = step(Tensor([1.0, 1.0]))
    >>> step.export("never")
    Traceback (most recent call last):
    monolect.base.errors.ExportError: ...
    >>> returned = jit(lambda x: x * 2)
    >>> returned(Tensor([1.0])).tolist()  # a step that returns what it computes has all it needs
    [2.0]
    """


class IRError(MonolectError, ValueError):
    """A node that breaks the row of its op in the op table. `op` names the op."""

    def __init__(
        self,
        message: str,
        *,
        op: object = None,
        expected: object = None,
        found: object = None,
        line: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(message, expected=expected, found=found, line=line)
        self.op = op


class VerifyError(IRError):
    """A graph that breaks the rules of its stage: a foreign op, a disagreeing dtype or shape, an unproven index."""


class ParseError(MonolectError, ValueError):
    """Text IR that does not parse; the message holds the line and column of the text."""


class ActionError(MonolectError, ValueError):
    """An optimizer action that is not legal on this kernel; the message says why."""


class CompileError(MonolectError, RuntimeError):
    """A target's compiler refused the generated program; the message holds its diagnostics."""


class ObjectFileError(MonolectError, ValueError):
    """Native object code that cannot be loaded: an unknown relocation, a missing symbol, another machine."""


class FileFormatError(MonolectError, ValueError):
    """A data file that is corrupt, truncated or of another format than its name says."""


class MissingExtraError(MonolectError, ImportError):
    """An optional dependency that is not installed; the message contains the `pip install` command for it."""

    def __init__(self, package: str, extra: str, *, line: tuple[str, int] | None = None) -> None:
        message = f"the package '{package}' is not installed; install it with: pip install 'monolect[{extra}]'"
        super().__init__(message, line=line)
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[object, ...]:
        # Worker processes send errors back. Pickling an exception calls its class with `args`, here the message alone.
        return (type(self), (self.package, self.extra), self.__dict__)


class AllocationError(MonolectError, MemoryError):
    """A buffer that does not fit in the device's memory; the message says how many bytes were requested."""


class CaptureWarning(UserWarning):
    """A jitted step that is captured again at each call, because it changes a Python value that it reads.

    Wrong: `self.n += 1` inside of the step. Right: a Tensor that the step assigns, or an argument.
    """


class CacheWarning(UserWarning):
    """A cache folder or entry that is not used, because another user owns it or may write to it.

    Caches hold machine code. Wrong: `MONOLECT_CACHE=/tmp/shared` with mode 0777. Right: a folder of your own.
    """


class InternalError(MonolectError, RuntimeError):
    """monolect broke one of its own rules. This is a bug: please report it with the message and the text IR."""


__all__ = [
    "ActionError",
    "AllocationError",
    "ArgumentError",
    "AxisError",
    "CacheWarning",
    "CaptureWarning",
    "CompileError",
    "DTypeError",
    "DeviceError",
    "ExportError",
    "FileFormatError",
    "GradientError",
    "IRError",
    "IndexRangeError",
    "InternalError",
    "JitError",
    "MissingExtraError",
    "MonolectError",
    "ObjectFileError",
    "ParseError",
    "SettingError",
    "ShapeError",
    "VerifyError",
    "user_line",
]
