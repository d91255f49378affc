"""Methods that share values and memory with NumPy and, through DLPack, with other libraries."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from monolect.base.errors import ArgumentError, DeviceError
from monolect.base.numpy import np
from monolect.runtime.replay.in_progress import refuse_while_capturing
from monolect.tensor.base import DeviceLike, TensorBase, as_device
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.elementwise import REFLECTED

ARRAY_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")  # later ones only add names to the first


def _dlpack() -> ModuleType:
    """Import the DLPack module at its first use, because its C structures take long to define."""
    from monolect.runtime import dlpack  # imported at its first use

    return dlpack


if TYPE_CHECKING:
    from monolect.tensor.base import Shared


@guard_methods
class ExchangeMixin(TensorBase):
    """Methods by which NumPy and DLPack read a Tensor, and `from_dlpack`. A base class of Tensor."""

    __slots__ = ()

    def __array__(self, dtype: np.dtype | type | str | None = None, copy: bool | None = None) -> np.ndarray:
        values = self.numpy()
        return values if dtype is None and not copy else np.array(values, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Return a Tensor for an operator whose left operand is a NumPy array or number. Other NumPy functions are
        applied to the values as arrays. `method` is the method of `ufunc` that is called, such as "__call__".

        >>> import numpy as np
        >>> x = Tensor([1.0, 2.0])
        >>> (np.float64(3) * x).tolist(), np.exp2(x)
        ([3.0, 6.0], array([2., 4.], dtype=float32))
        """
        operator = REFLECTED.get(ufunc.__name__)
        if operator and method == "__call__" and not options and not isinstance(inputs[0], TensorBase):
            return getattr(self, operator)(inputs[0])
        return getattr(ufunc, method)(*(x.numpy() if isinstance(x, TensorBase) else x for x in inputs), **options)

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """Return the namespace of the array API standard, `monolect.array_api`.

        Raises ArgumentError for another `api_version` than those that it implements.

        >>> Tensor([1.0]).__array_namespace__() is monolect.array_api
        True
        """
        if api_version is not None and api_version not in ARRAY_API_VERSIONS:
            expected = "one of " + ", ".join(ARRAY_API_VERSIONS)
            raise ArgumentError("a version of the array API", expected=expected, found=repr(api_version))
        return import_module("monolect.array_api")  # a higher layer, imported at its first use

    def to_device(self, device: DeviceLike, /, *, stream: object = None) -> Self:
        """Return this tensor on another device, by the name of the array API; `stream` must be None.

        Raises DeviceError for an unknown device, ArgumentError for a stream.

        >>> Tensor([1.0]).to_device("python").device
        'python'
        """
        if stream is not None:
            raise ArgumentError("to_device: stream", expected="None", found=repr(stream))
        return self.to(device)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device as DLPack's (type, number). Raises DeviceError for a device that cannot share its
        memory.
        """
        return _dlpack().device_of(self.device)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule of this tensor's memory, for `np.from_dlpack(t)` and `torch.from_dlpack(t)`.

        Nothing is copied, except with copy=True, to the host as `dl_device`, and for memory in reverse order, which
        raises ArgumentError with copy=False. Any other `dl_device` than the tensor's own raises DeviceError. `stream`
        is the consumer's stream of work and `max_version` the newest version that it reads, by DLPack's protocol.

        >>> import numpy as np
        >>> t = Tensor([1, 2, 3])
        >>> np.from_dlpack(t)[0] = 7
        >>> t.tolist()
        [7, 2, 3]
        """
        refuse_while_capturing("sharing the memory of a tensor", self._uop)
        here = self.__dlpack_device__()
        there = dl_device or here
        if there != here and (there != _dlpack().HOST or copy is False):
            raise DeviceError("memory that is elsewhere", expected=f"DLPack device {here}", found=there)
        t = self.to("cpu") if there != here else self.clone() if copy else self
        u = t._value()
        if _dlpack().is_flipped(u):
            if copy is False:
                raise ArgumentError("memory in reverse order is copied", expected="copy=None", found="copy=False")
            u = self._wrap(u).clone()._value()
        return _dlpack().share(u, max_version, stream)

    @classmethod
    def from_dlpack(cls, ext_tensor: Shared, *, device: DeviceLike | None = None, copy: bool | None = None) -> Self:
        """Return a Tensor on the memory of another library's tensor, so later writes of that library are visible.

        It copies if `copy` is True, or if it is None and the strides are not those of a row-major array with permuted,
        flipped or repeated axes. With False, a necessary copy raises ArgumentError, as does an `ext_tensor` without
        DLPack. `device`: the device of the result; None is that of the memory. Raises DeviceError for memory of another
        device.

        >>> import numpy as np
        >>> a = np.zeros(3, np.int64)
        >>> t = Tensor.from_dlpack(a)
        >>> a[1] = 5
        >>> t.tolist()
        [0, 5, 0]
        """
        return cls._wrap(_dlpack().borrow(ext_tensor, None if device is None else as_device(device), copy))


__all__ = ["ExchangeMixin"]
