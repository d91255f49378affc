"""Define Mesh: devices in a grid whose axes have names, for tensors that are divided along several axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from monolect.base.errors import ArgumentError, DeviceError
from monolect.ir.layout import Layout, layout_of, refined
from monolect.ir.placement import axis as layout_of_node
from monolect.tensor.base import as_device

if TYPE_CHECKING:
    from monolect.tensor.base import DeviceLike, TensorBase

# Axes of a tensor for `shard`: one that all devices divide, one for each axis of a mesh, one by the name of an axis, or
# a layout.
ShardAxis: TypeAlias = "Layout | Sequence[int | None] | Mapping[str, int]"


class Mesh(tuple[str, ...]):
    """A tuple of devices, in row-major order of a grid with named axes. It goes wherever several devices do.

    `names`, `shape`: the name and the length of each axis of the grid. Raises ArgumentError where names, shape and
    devices do not fit together, and DeviceError for an unknown device or one listed twice.

    >>> mesh = Mesh(("data", "model"), (2, 2), ("cpu", "cpu:1", "cpu:2", "cpu:3"))
    >>> x, w = Tensor.ones(4, 6).shard(mesh, {"data": 0}), Tensor.ones(6, 8).shard(mesh, {"model": 1})
    >>> mesh.axes_of(x @ w)
    {'data': 0, 'model': 1}
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    devices: tuple[str, ...]  # their canonical names, in order, as a plain tuple

    def __new__(cls, names: Sequence[str], shape: Sequence[int], devices: Sequence[DeviceLike]) -> Mesh:
        """Return the mesh of `devices`."""
        found = as_device(tuple(devices))
        self = super().__new__(cls, found)
        self.devices = found
        self.names, self.shape = (names,) if isinstance(names, str) else tuple(names), tuple(shape)
        if len({*self.names}) < len(self.names) or len(self.names) != len(self.shape):
            raise ArgumentError("Mesh: names", expected=f"{len(self.shape)} different names", found=self.names)
        if any(n.__class__ is not int or n < 1 for n in self.shape) or prod(self.shape) != len(self):
            raise ArgumentError("Mesh: shape", expected=f"positive ints, {len(self)} in product", found=self.shape)
        return self

    def __reduce__(self) -> tuple[type[Mesh], tuple[Any, ...]]:
        return Mesh, (self.names, self.shape, tuple(self))

    def __repr__(self) -> str:
        return f"Mesh({self.names}, {self.shape}, {tuple(self)})"

    def layout(self, axes: Sequence[int | None] | Mapping[str, int]) -> Layout:
        """Return the layout in which each axis of the mesh divides its axis of `axes` (`ir/layout.py`).

        Raises ArgumentError unless `axes` has an axis or None for each axis of the mesh, or maps names of axes.

        >>> Mesh(("data", "model"), (2, 2), ("cpu", "cpu:1", "cpu:2", "cpu:3")).layout({"model": 1})
        ((2, None), (2, 1))
        """
        if isinstance(axes, Mapping):
            if unknown := [name for name in axes if name not in self.names]:
                raise ArgumentError("Mesh: an axis", expected=f"one of {self.names}", found=unknown[0])
            axes = [axes.get(name) for name in self.names]
        if len(axes) != len(self.shape):
            raise ArgumentError("Mesh: axes", expected=f"one for each of {self.names}", found=tuple(axes))
        return layout_of(zip(self.shape, axes, strict=True))

    def axes_of(self, t: TensorBase) -> dict[str, int]:
        """Return for each axis of the mesh that divides `t` the axis of `t`. Raises DeviceError for a tensor on other
        devices, or on another mesh of these.

        >>> mesh = Mesh(("data", "model"), (2, 2), ("cpu", "cpu:1", "cpu:2", "cpu:3"))
        >>> mesh.axes_of(Tensor.ones(4, 6).shard(mesh, {"model": 1}))
        {'model': 1}
        """
        u = t._uop
        long = [(name, n) for name, n in zip(self.names, self.shape, strict=True) if n > 1]
        axes = None
        if t.device == tuple(self):
            axes = refined(layout_of_node(u), len(self), [n for _, n in long], u.shape)
        if axes is None:
            found = (t.device, layout_of_node(u))
            raise DeviceError("Mesh: a tensor elsewhere", expected=f"one on {self}", found=found)
        return {name: a for (name, _), a in zip(long, axes, strict=True) if a is not None}


__all__ = ["Mesh", "ShardAxis"]
