"""Move tensors to other devices: to several at once, sharded or whole on each, and to files.

What it is for: `shard`, `replicate`, and the two ops that both are made of, `copy` and `replicated`. Writing to
`disk:path`, which is a device, is here too: results that must outlast the process, or do not fit into memory at once.
`Tensor.from_file` reads.
What it is not: lazy for files. A write happens at the call. A new file appears as a whole or not at all. An assignment
writes into the file in place, so a process that dies in the middle leaves part of it.
Invariant: a lazy tensor that reads the file has the values from before a later write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from monolect.autograd import sharding
from monolect.autograd.graph import broadcast_to, cast
from monolect.backend.registry import DISK_PREFIX, is_on_disk, maker_of
from monolect.base.disk.files import write_whole
from monolect.base.dtype import DType, as_dtype, dtypes, is_dtype
from monolect.base.errors import DeviceError, FileFormatError, IndexRangeError, ShapeError
from monolect.base.numpy import np
from monolect.ir.placement import axis as axis_of
from monolect.ir.uop import UOp, build, toposort
from monolect.runtime.buffer import base_of, is_realized, open_disk, to_numpy, with_storage
from monolect.runtime.realize.execute import realize
from monolect.runtime.replay.in_progress import refuse_while_capturing
from monolect.tensor.base import DeviceLike, DTypeLike, TensorBase, as_device
from monolect.tensor.guard import guard_methods


def as_devices(devices: Any) -> tuple[str, ...]:
    """Return the canonical names of several devices.

    Raises DeviceError for fewer than two devices, one listed twice, or an unknown one.
    """
    names: tuple[str, ...] = as_device(tuple(devices))
    return names


@guard_methods
class DevicesMixin(TensorBase):
    """Methods that move a tensor to several devices. Operators on it compute on all of them, each on its part."""

    __slots__ = ()

    def to(
        self, *args: DTypeLike | DeviceLike | None, device: DeviceLike | None = None, dtype: DTypeLike | None = None
    ) -> Self:
        """Return this tensor on another device, in another dtype, or both, as `to("cpu")`, `to(dtypes.float16)`.

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
            if is_dtype(a) or (isinstance(a, str) and isinstance(getattr(dtypes, a, None), DType)):
                dtype = a
            elif a is not None:
                device = a
        u = self._uop if dtype is None else cast(self._uop, as_dtype(dtype))
        if is_on_disk(device):
            return self._wrap(written_file(u, as_device(device, may_be_file=True)))
        if device is not None and (target := as_device(device)) != self.device:
            u = sharding.moved(u, target, None)
        return self if u is self._uop else self._wrap(u)

    def cpu(self) -> Self:
        """Return this tensor on the device `cpu`.

        >>> Tensor([1.0], device="python").cpu().device
        'cpu'
        """
        return self.to("cpu")

    @property
    def shard_axis(self) -> int | None:
        """The axis along which the devices share this tensor; None if each has all of it, or there is one device.

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

    def shard(self, devices: Sequence[DeviceLike], axis: int = 0) -> Self:
        """Return this tensor with `axis` divided over several devices.

        The shape is unchanged. Parts are equal, but the last ones are shorter or empty where the axis does not divide.
        Raises AxisError for a missing axis, and DeviceError for unknown devices or an axis of symbolic size.

        >>> x = Tensor.ones(4, 6).shard(("cpu", "cpu:1"))
        >>> (x @ Tensor.ones(6, 2)).shard_axis
        0
        """
        a, names = self._axis(axis), as_devices(devices)
        if self._uop.shape[a].__class__ is not int:
            raise DeviceError("shard", expected=f"axis {a} of a constant size", found=self.shape)
        return self._wrap(sharding.sharded(self._uop, names, a))

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


def written_file(u: UOp, device: str) -> UOp:
    """Write the elements of `u` in row-major order to the file behind `device`, and return the BUFFER that maps the
    file.

    Raises FileFormatError if the file cannot be written, ShapeError for no elements, JitError in a captured step.
    """
    refuse_while_capturing("writing a file", u)
    path = device.removeprefix(DISK_PREFIX)
    if 0 in u.shape:
        raise ShapeError(
            "a tensor without elements cannot be written to a file", expected="one element or more", found=u.shape
        )
    (found,) = realize([u])
    array = to_numpy(found)
    try:
        write_whole(path, [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data])
    except OSError as error:
        raise FileFormatError(f"cannot write {path}: {error}", expected="a path in a writable folder") from None
    return with_storage(array.shape, u.dtype, device, open_disk(device).storage)


def write(target: UOp, value: UOp) -> None:
    """Store `value`, broadcast and converted, into `target`, a view of a mapped file.

    Raises FileFormatError if the file changed its size or cannot be written, IndexRangeError for a slice with steps,
    JitError in a captured step.
    """
    refuse_while_capturing("writing to a file", target)
    base = base_of(target)
    if not is_realized(base):
        raise IndexRangeError("a write to a part of a file needs a view", expected="slices of step 1", found=base.op)
    path = str(base.arg.device).removeprefix(DISK_PREFIX)
    (value,) = realize([broadcast_to(cast(value, target.dtype), target.shape)])
    array = to_numpy(value)
    if base_of(value).arg.device == base.arg.device:  # both are parts of one file and may overlap
        array = array.copy()
    try:
        memory = np.memmap(path, dtype=np.uint8, mode="r+")
    except (OSError, ValueError) as error:
        raise FileFormatError(f"cannot write {path}: {error}", expected="a writable, non-empty file") from None
    if (expected := base.storage.view(np.uint8).size) != memory.size:
        raise FileFormatError(f"{path} changed its size", expected=f"{expected} bytes", found=memory.size)
    to_numpy(target, memory)[...] = array
    memory.flush()


def is_pending(u: UOp, device: Any) -> bool:
    """Whether `u` is not yet computed and reads the file behind `device`."""
    return not is_realized(u) and any(s.op == "BUFFER" and s.arg.device == device for s in toposort(u))


__all__ = ["DevicesMixin", "compute_device", "is_pending", "write", "written_file"]
