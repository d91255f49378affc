"""monolect: a tensor library and compiler. One dialect represents tensor graphs, kernels and command buffers.

>>> from monolect import Tensor
>>> (Tensor([1.0, 2.0]) * 2 + 1).tolist()
[3.0, 5.0]
"""

from importlib import import_module
from math import e, inf, nan, pi  # noqa: F401
from typing import TYPE_CHECKING, Any

from monolect.base import settings as _settings
from monolect.base.collector import collection_paused
from monolect.base.errors import (
    ActionError,
    AllocationError,
    ArgumentError,
    AxisError,
    CacheWarning,
    CaptureWarning,
    CompileError,
    DeviceError,
    DistributedError,
    DTypeError,
    ExportError,
    FileFormatError,
    GradientError,
    IndexRangeError,
    InternalError,
    IRError,
    JitError,
    MissingExtraError,
    MonolectError,
    ObjectFileError,
    ParseError,
    SettingError,
    ShapeError,
    VerifyError,
)
from monolect.base.names import FUNCTIONS as _FUNCTIONS
from monolect.base.settings import Context

if TYPE_CHECKING:
    from builtins import bool as _bool

    from monolect import amp, array_api, autograd, data, func, linalg, nn, optim, random, special
    from monolect.amp.autocast import autocast
    from monolect.backend.registry import Device
    from monolect.base.dtype import DType as _DType
    from monolect.base.dtype import dtypes
    from monolect.base.grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
    from monolect.capture.function import function
    from monolect.capture.jit import jit
    from monolect.capture.transform import grad, value_and_grad
    from monolect.func.vectorized import vmap
    from monolect.functions import *  # noqa: F403
    from monolect.interop.nested import load, save
    from monolect.tensor.base import Data, DeviceLike, DTypeLike
    from monolect.tensor.devices.mesh import Mesh
    from monolect.tensor.draws.generator import Generator
    from monolect.tensor.kernel import custom_kernel, native_function
    from monolect.tensor.tensor import Tensor
    from monolect.tensor.variable import Variable

    # the element types of `dtypes`, where PyTorch has them
    bfloat16: _DType
    bool: _DType
    double: _DType
    float: _DType
    float16: _DType
    float32: _DType
    float64: _DType
    half: _DType
    int: _DType
    int16: _DType
    int32: _DType
    int64: _DType
    int8: _DType
    long: _DType
    short: _DType
    uint16: _DType
    uint32: _DType
    uint64: _DType
    uint8: _DType

    def tensor(
        data: Data, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: _bool = False
    ) -> Tensor:
        """Return a Tensor with a copy of `data`: the package `monolect.tensor` is also this function."""


__version__ = "0.1.0"
__all__ = [
    "Context", "Device", "Generator", "Mesh", "Tensor", "Variable", "custom_kernel", "dtypes", "function", "grad",
    "jit", "native_function", "amp", "array_api", "autocast", "autograd", "data", "enable_grad", "func",
    "inference_mode", "is_grad_enabled", "linalg", "load", "nn", "no_grad", "optim", "random", "save",
    "set_grad_enabled", "special", "tensor", "value_and_grad", "vmap",
    "ActionError", "AllocationError", "ArgumentError", "AxisError", "CacheWarning", "CaptureWarning", "CompileError",
    "DTypeError", "DeviceError", "DistributedError", "ExportError", "FileFormatError", "GradientError", "IRError",
    "IndexRangeError", "InternalError", "JitError", "MissingExtraError", "MonolectError", "ObjectFileError",
    "ParseError", "SettingError", "ShapeError", "VerifyError",
]  # fmt: skip


def _check_names(names: list[str]) -> None:
    """Check that DISABLE may have `names`. Raises SettingError."""
    from monolect.pipeline import check_disabled  # imported only for DISABLE: it imports the whole compiler

    check_disabled(names)


_settings.check_names = _check_names
if _settings.settings.DISABLE:
    _check_names(_settings.settings.DISABLE.split(","))


_GRAD_MODES = ("enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled")
# Name -> module that it is imported from at its first use, so that `import monolect` is fast.
_LATE = {
    "Device": "monolect.backend.registry",
    "Mesh": "monolect.tensor.devices.mesh",
    "Generator": "monolect.random",
    "Tensor": "monolect.tensor.tensor",
    "custom_kernel": "monolect.tensor.kernel",
    "dtypes": "monolect.base.dtype",
    "function": "monolect.capture.function",
    "grad": "monolect.capture.transform",
    "jit": "monolect.capture.jit",
    "load": "monolect.interop.nested",
    "save": "monolect.interop.nested",
    "native_function": "monolect.tensor.kernel",
    "value_and_grad": "monolect.capture.transform",
    "vmap": "monolect.func.vectorized",
    "Variable": "monolect.tensor.variable",
    "autocast": "monolect.amp.autocast",
    **dict.fromkeys(_GRAD_MODES, "monolect.base.grad_mode"),
}
# Element types that have their names here, too. They are not in __all__: `bool`, `float` and `int` are those of Python
# after `from monolect import *`.
_DTYPES = frozenset(
    "bfloat16 bool double float float16 float32 float64 half int int16 int32 int64 int8 long short uint16 uint32 uint64"
    " uint8".split()
)
_NUMBERS = ("e", "inf", "nan", "newaxis", "pi")  # as in PyTorch and NumPy
newaxis = None
# modules that are imported at their first use
_SPACES = frozenset(
    ("amp", "array_api", "autograd", "data", "func", "linalg", "nn", "optim", "random", "special", "tensor")
)


if not TYPE_CHECKING:  # a type checker reads the imports above, and reports other names

    def __getattr__(name: str) -> Any:
        with collection_paused():
            found = _found(name)
        globals()[name] = found  # later uses do not call __getattr__
        return found

    def _found(name: str) -> Any:
        """Return the object of a name that is imported late: a row of _LATE, a module, or a function of tensors."""
        if name in _LATE:
            return getattr(import_module(_LATE[name]), name)
        if name in _DTYPES:
            return getattr(import_module("monolect.base.dtype").dtypes, name)
        if name in _SPACES:
            return import_module(f"monolect.{name}")
        if name in _FUNCTIONS:
            return getattr(import_module("monolect.functions"), name)
        raise AttributeError(import_module("monolect.base.absent").hint("monolect", name))


def __dir__() -> list[str]:
    return sorted({*__all__, *_DTYPES, *_NUMBERS, *_FUNCTIONS, *(name for name in globals() if name.startswith("__"))})
