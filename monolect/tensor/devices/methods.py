"""Move tensors to other devices: to several at once, sharded or whole on each, and to files.

What it is for: `shard`, `replicate`, and the two ops of the specification, `copy` and `replicated`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from monolect.autograd import sharding
from monolect.autograd.graph import cast
from monolect.backend.registry import is_on_disk, maker_of
from monolect.base.dtype import DType, as_dtype, dtypes, is_dtype
from monolect.base.errors import ArgumentError, DeviceError
from monolect.ir.layout import Layout, axes_of, is_layout, mapped
from monolect.ir.placement import axis as axis_of
from monolect.ir.uop import build
from monolect.tensor.base import DeviceLike, DTypeLike, TensorBase, as_device
from monolect.tensor.devices.files import written_file
from monolect.tensor.devices.mesh import Mesh, ShardAxis
from monolect.tensor.guard import guard_methods


def as_devices(devices: Any) -> tuple[str, ...]:
    """Return the canonical names of several devices.

    Raises DeviceError for fewer than two devices, one listed twice, or an unknown one.
    """
    names: tuple[str, ...] = devices.devices if isinstance(devices, Mesh) else as_device(tuple(devices))
    return names


@guard_methods
class DevicesMixin(TensorBase):
    """Methods that move a tensor to several devices. Operators on it compute on all of them, each on its part."""

    __slots__ = ()

    def to(
        self,
        *args: DTypeLike | DeviceLike | TensorBase | None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        copy: bool = False,
        non_blocking: bool = False,
    ) -> Self:
        """Return this tensor on another device, in another dtype, or both, as `to("cpu")`, `to(dtypes.float16)`, or as
        another tensor is: `to(other)`. With `copy` the result is never this tensor. `non_blocking` has no effect.

        On several devices the result is whole on each, as by `replicate`. The device `disk:path` is a file: the whole
        file is written at once, and the result is a mapping of it. Raises FileFormatError where the file cannot be
        written, DeviceError for an unknown device.

        >>> Tensor([1.5, 2.5]).to(dtypes.int32).tolist()
        [1, 2]
        >>> Tensor([1.0]).to("python").device
        'python'
        """
        a: Any
        for a in args:
            if isinstance(a, TensorBase):
                device, dtype = a.device, a.dtype
            elif is_dtype(a) or (isinstance(a, str) and isinstance(getattr(dtypes, a, None), DType)):
                dtype = a
            elif a is not None:
                device = a
        u = self._uop if dtype is None else cast(self._uop, as_dtype(dtype))
        if is_on_disk(device):
            return self._wrap(written_file(u, as_device(device, may_be_file=True)))
        if device is not None and (target := as_device(device)) != self.device:
            u = sharding.moved(u, target, None)
        return (self.clone() if copy else self) if u is self._uop else self._wrap(u)

    def cpu(self) -> Self:
        """Return this tensor on the device `cpu`.

        >>> Tensor([1.0], device="python").cpu().device
        'cpu'
        """
        return self.to("cpu")

    @property
    def shard_axis(self) -> Layout:
        """The axis along which the devices share this tensor; None if each has all of it, or there is one device.

        On a mesh: a tuple of pairs (number of parts, axis or None), see `Mesh.axes_of`.

        >>> Tensor.ones(2, 4).shard(("cpu", "cpu:1"), 1).shard_axis
        1
        """
        return axis_of(self._uop)

    def copy(self, devices: DeviceLike) -> Self:
        """Return this tensor on another device; on several, each gets a part of axis 0.

        The shape is unchanged. Parts are equal, but the last ones are shorter or empty where the axis does not divide.
        Raises DeviceError for unknown devices, and for a tensor without axes.

        >>> t = Tensor([1.0, 2.0, 3.0, 4.0]).copy(("cpu", "cpu:1"))
        >>> t.device, t.shard_axis, t.sum().item()
        (('cpu', 'cpu:1'), 0, 10.0)
        """
        return self._wrap(sharding.copied(self._uop, as_device(devices)))

    def replicated(self, axis: int) -> Self:
        """Return element 0 of `axis`, whose elements must be equal. Where each device has one of them, the result is
        whole on each device and nothing moves.

        Raises AxisError for a missing axis, and DeviceError where a device has several of the elements.

        >>> Tensor.ones(2, 3).copy(("cpu", "cpu:1")).replicated(0).shape
        (3,)
        """
        return self._wrap(build("REPLICATED", self._uop, arg=self._axis(axis)))

    def shard(self, devices: Sequence[DeviceLike], axis: ShardAxis = 0) -> Self:
        """Return this tensor with `axis` divided over several devices.

        Over a Mesh, `axis` may be a dict from names of its axes to axes of this tensor, or a sequence with an axis or
        None for each of its axes; each device has all of an axis that no name maps to. The `shard_axis` of another
        tensor gives the division of that tensor. The shape is unchanged. Parts are equal, but the last ones are shorter
        or empty where the axis does not divide. Only the elements that a device lacks move. Raises AxisError for a
        missing axis, DeviceError for unknown devices or an axis of symbolic size, and ArgumentError for names that are
        not the mesh's.

        >>> x = Tensor.ones(4, 6).shard(("cpu", "cpu:1"))
        >>> (x @ Tensor.ones(6, 2)).shard_axis
        0
        >>> x.roll(1, 0).shard(x.device, x.shard_axis).shard_axis  # a row moves from each device to the next
        0
        """
        layout = self._layout_on(devices, axis)
        names = as_devices(devices)
        for a in axes_of(layout):
            if self._uop.shape[a].__class__ is not int:
                raise DeviceError("shard", expected=f"axis {a} of a constant size", found=self.shape)
        return self._wrap(sharding.moved(self._uop, names, layout))

    def _layout_on(self, devices: Any, axis: ShardAxis) -> Layout:
        """Return the layout over `devices` that `axis` says; its axes may be negative. Raises ArgumentError if it says
        none, as the axes of a mesh for other devices.
        """
        if axis is None or isinstance(axis, int):
            return None if axis is None else self._axis(axis)
        if is_layout(axis, len(devices), len(self._uop.shape)):
            return axis  # type: ignore[return-value]
        if not isinstance(devices, Mesh):
            raise ArgumentError("shard: axes of a mesh", expected="a Mesh as the devices", found=type(devices).__name__)
        axes: Any = axis
        return mapped(devices.layout(axes), len(devices), lambda a, _: self._axis(a))

    def replicate(self, devices: Sequence[DeviceLike]) -> Self:
        """Return this tensor whole on each of several devices. Raises DeviceError for unknown devices.

        >>> Tensor.ones(3).replicate(("cpu", "cpu:1")).device
        ('cpu', 'cpu:1')
        """
        return self._wrap(sharding.replicated(self._uop, as_devices(devices)))


def compute_device(device: Any) -> Any:
    """Return the device that computes a value to be assigned to a tensor on `device`: None, the default device, for a
    file; for a tuple of devices the first of them, or `cpu` if they are of several processes; else `device`.
    """
    return maker_of(device) if isinstance(device, tuple) else None if is_on_disk(device) else device


__all__ = ["DevicesMixin", "compute_device"]
