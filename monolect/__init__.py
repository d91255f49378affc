"""monolect: a tensor library and compiler, from tensors to command buffers in one dialect.

>>> from monolect import Tensor
>>> (Tensor([1.0, 2.0]) * 2 + 1).tolist()
[3.0, 5.0]
"""

from monolect import nn
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.base.errors import (
    ActionError,
    AllocationError,
    ArgumentError,
    AxisError,
    CompileError,
    DeviceError,
    DTypeError,
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
from monolect.base.settings import Context
from monolect.tensor.capture import jit
from monolect.tensor.function import function
from monolect.tensor.tensor import Tensor
from monolect.tensor.transform import grad, value_and_grad
from monolect.tensor.variable import Variable

__version__ = "0.1.0"
__all__ = [
    "Context", "Device", "Tensor", "Variable", "dtypes", "function", "grad", "jit", "nn", "value_and_grad",
    "ActionError", "AllocationError", "ArgumentError", "AxisError", "CompileError", "DTypeError", "DeviceError",
    "FileFormatError", "GradientError", "IRError", "IndexRangeError", "InternalError", "JitError", "MissingExtraError",
    "MonolectError", "ObjectFileError", "ParseError", "SettingError", "ShapeError", "VerifyError",
]  # fmt: skip
