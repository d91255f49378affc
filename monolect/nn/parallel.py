"""Train on several devices: data, tensor and pipeline parallel, sharded parameters, ring attention.

What it is for: a model that is written for one device trains on several, without a change of its code. The tensors stay
the same objects, so an optimizer is made after the move, and its state is where the parameters are.
What it is not: a launcher. The devices may belong to one process or to many (`monolect.distributed`).

Source: names and methods follow ZeRO (Rajbhandari et al., 2020), Megatron-LM (Shoeybi et al., 2019) and ring attention
(Liu et al., 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from monolect.base.dtype import accumulator, promote
from monolect.base.errors import ArgumentError, DTypeError
from monolect.graphs.attention import MASKED_SCORE
from monolect.ir.layout import pairs_of
from monolect.nn.layers.linear import Linear
from monolect.nn.module import Module
from monolect.nn.state import all_tensors
from monolect.tensor.base import DeviceLike, as_device
from monolect.tensor.devices.mesh import Mesh
from monolect.tensor.tensor import Tensor


def move(model: object, to: Callable[[Tensor], Tensor]) -> None:
    """Give each tensor of `model` the value and the devices of `to(tensor)`; parameters stay leaves.

    `to` must keep the shape. Raises ArgumentError otherwise; then nothing changes.

    >>> layer = nn.Linear(2, 2)
    >>> nn.parallel.move(layer, lambda t: t.replicate(("cpu", "cpu:1")))
    >>> layer.weight.device, layer.weight.requires_grad
    (('cpu', 'cpu:1'), True)
    """
    tensors = {id(t): (name, t) for name, t in all_tensors(model).items()}
    moved = [(name, t, to(t.detach())) for name, t in tensors.values()]
    for name, t, value in moved:
        if value.shape != t.shape:
            raise ArgumentError(f"move: another shape of {name}", expected=t.shape, found=value.shape)
    if moved:
        moved[0][2].realize(*(value for _, _, value in moved[1:]))
    for _, t, value in moved:
        t.uop = value.uop


def replicate(model: object, devices: Sequence[DeviceLike]) -> None:
    """Move all tensors of `model` to `devices`, whole on each: data parallel, for inputs that are divided.

    >>> model = nn.Linear(2, 1)
    >>> nn.parallel.replicate(model, ("cpu", "cpu:1"))
    >>> model(Tensor.ones(4, 2).shard(("cpu", "cpu:1"))).shard_axis
    0
    """
    move(model, lambda t: t.replicate(devices))


def shard(model: object, devices: Sequence[DeviceLike], over: str | None = None) -> None:
    """Divide each tensor of `model` over `devices` along its first axis that divides; others are whole on each.

    A layer gathers its parameters when it uses them. Gradients and the state of optimizers are divided as the
    parameters are (ZeRO stage 3). `over`: the axis of a Mesh to divide over; what its other axes divide stays.

    >>> model = nn.Linear(3, 4)
    >>> nn.parallel.shard(model, ("cpu", "cpu:1"))
    >>> model.weight.shard_axis, model.bias.shard_axis
    (0, 0)
    """
    mesh = None if over is None else _mesh(devices, over)
    n = len(devices) if mesh is None else mesh.shape[mesh.names.index(over)]

    def divided(t: Tensor) -> Tensor:
        taken = {} if mesh is None else _axes(t, mesh)
        axis = next((a for a, m in enumerate(t.shape) if m % n == 0 and m and a not in taken.values()), None)
        return on_mesh(t, devices, axis, over)

    move(model, divided)


def on_mesh(t: Tensor, devices: Sequence[DeviceLike], axis: int | None, over: str | None = None) -> Tensor:
    """Return `t` with `axis` divided over `devices`, or whole on each if it is None.

    `over`: the axis of the Mesh `devices` that divides `axis`; what its other axes divide stays. Raises ArgumentError
    if `devices` is no Mesh with that axis.

    >>> mesh = Mesh(("data", "model"), (2, 2), ("cpu", "cpu:1", "cpu:2", "cpu:3"))
    >>> t = nn.parallel.on_mesh(Tensor.ones(4, 6), mesh, 0, "data")
    >>> mesh.axes_of(nn.parallel.on_mesh(t, mesh, 1, "model"))
    {'data': 0, 'model': 1}
    """
    if over is None:
        return t.replicate(devices) if axis is None else t.shard(devices, axis)
    mesh = _mesh(devices, over)
    axes = {name: a for name, a in _axes(t, mesh).items() if name != over}
    return t.shard(mesh, axes if axis is None else {**axes, over: axis})


def _mesh(devices: Sequence[DeviceLike], over: str) -> Mesh:
    """Return `devices`, a Mesh with the axis `over`. Raises ArgumentError for any other."""
    if not isinstance(devices, Mesh) or over not in devices.names:
        raise ArgumentError("an axis of a mesh", expected=f"a Mesh with the axis {over!r}", found=devices)
    return devices


def _axes(t: Tensor, mesh: Mesh) -> dict[str, int]:
    """Return which axis of `t` each axis of `mesh` divides; {} for a tensor elsewhere."""
    return mesh.axes_of(t) if t.device == tuple(mesh) else {}


def tensor_parallel(layers: Sequence[Module], devices: Sequence[DeviceLike], over: str | None = None) -> None:
    """Divide Linear layers in pairs: the first of a pair by its outputs, the second by its inputs, so that only the
    result of the second is added up over the devices.

    Modules that are no Linear stay where they are. `over`: the axis of a Mesh to divide over; what its other axes
    divide stays. Raises ArgumentError for an odd number of Linear layers.

    >>> first, second = nn.Linear(4, 8), nn.Linear(8, 4)
    >>> nn.parallel.tensor_parallel([first, nn.ReLU(), second], ("cpu", "cpu:1"))
    >>> first.weight.shard_axis, second.weight.shard_axis
    (0, 1)
    >>> second(first(Tensor.ones(2, 4)).relu()).shard_axis is None
    True
    """
    linear = [m for m in layers if isinstance(m, Linear)]
    if len(linear) % 2:
        raise ArgumentError("tensor_parallel", expected="pairs of Linear layers", found=f"{len(linear)} layers")
    for first, second in zip(linear[::2], linear[1::2], strict=True):
        move(first, lambda t: on_mesh(t, devices, 0, over))
        move(second, lambda t: on_mesh(t, devices, 1 if t.ndim == 2 else None, over))


def ring_attention(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    """Return `softmax(query @ key.T * scale) @ value` of long sequences that the devices divide: (..., L, E), (..., S,
    E), (..., S, Ev) -> (..., L, Ev), divided as `query` is.

    All operands are divided along axis -2 over the same devices. A device keeps its queries and takes one part of the
    keys and values after the other from its neighbour, so it never holds more than two parts; gradients keep all of
    them. The default scale is 1 / sqrt(E). `is_causal`: query i sees the keys 0 to i; then L equals S. Scores and sums
    are float32 at least; the result has the dtype of `value`. Raises ArgumentError for operands that are not divided
    so, or into unequal parts, and DTypeError for integers.

    >>> q = Tensor.ones(1, 4, 8).shard(("cpu", "cpu:1"), 1)
    >>> nn.parallel.ring_attention(q, q, q, is_causal=True).shard_axis
    1
    """
    _check_ring(query, key, value, is_causal)
    n = _parts_along(key, key.ndim - 2)
    q, k, v = (_blocks(t, n) for t in (query, key, value))
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    wide = accumulator(promote(query.dtype, key.dtype))
    rows = Tensor.arange(query.shape[-2]).reshape(n, -1, 1)
    columns = Tensor.arange(key.shape[-2]).reshape(n, 1, -1)
    total: _Attended | None = None
    for _ in range(n):
        scores = q.matmul(k.transpose(-2, -1), dtype=wide) * factor
        block = _attended((rows >= columns).where(scores, MASKED_SCORE) if is_causal else scores, v)
        total = block if total is None else _merged(total, block)
        k, v = (t.roll(1, -3).shard(t.device, t.shard_axis) for t in (k, v))
        columns = columns.roll(1, 0)
    assert total is not None
    return total.out.cast(value.dtype).reshape(*query.shape[:-1], value.shape[-1])


class _Attended(NamedTuple):
    """Attention to some of the keys: `out` (..., L, Ev), and for each query (..., L, 1) the largest score `top` and the
    sum `weight` of the exponentials of the scores minus it.
    """

    out: Tensor
    top: Tensor
    weight: Tensor


def _attended(scores: Tensor, v: Tensor) -> _Attended:
    """Return the attention with `scores` (..., L, S) to the values `v` (..., S, Ev): one kernel of three results, which
    stores no scores.
    """
    top = scores.detach().amax(-1, keepdim=True).contiguous()
    e = (scores - top).exp()
    weight = e.sum(-1, keepdim=True).contiguous()
    return _Attended((e / weight).matmul(v, dtype=scores.dtype).contiguous(), top, weight)


def _merged(a: _Attended, b: _Attended) -> _Attended:
    """Return the attention to the keys of both, in memory of its own, so that the memory of both is free again."""
    top = a.top.maximum(b.top)
    of_a, of_b = a.weight * (a.top - top).exp(), b.weight * (b.top - top).exp()
    weight = of_a + of_b
    out = a.out * (of_a / weight) + b.out * (of_b / weight)
    return _Attended(out.contiguous(), top.contiguous(), weight.contiguous())


def _check_ring(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> None:
    """Check that the operands of ring attention are divided into equal parts along axis -2 over the same devices."""
    if not all(t.dtype.is_float for t in (query, key, value)):
        names = [t.dtype.name for t in (query, key, value)]
        raise DTypeError("ring_attention needs floats", expected="float dtypes", found=names)
    expected = "tensors on the same devices, divided along axis -2 into equal parts"
    for name, t in (("query", query), ("key", key), ("value", value)):
        is_divided = t.ndim > 1 and isinstance(t.device, tuple) and t.device == query.device
        n = _parts_along(t, t.ndim - 2) if is_divided else 1
        if n < 2 or t.shape[-2] % n or n != _parts_along(query, query.ndim - 2):
            found = f"{name} of shape {t.shape} on {t.device}, divided along {t.shard_axis}"
            raise ArgumentError("ring_attention", expected=expected, found=found)
    if key.shape[-2] != value.shape[-2] or (is_causal and query.shape[-2] != key.shape[-2]):
        found = f"{query.shape[-2]}, {key.shape[-2]} and {value.shape[-2]}"
        expected = "as many keys as values" + (", and as many queries" if is_causal else "")
        raise ArgumentError("ring_attention: sequence lengths", expected=expected, found=found)


def _parts_along(t: Tensor, axis: int) -> int:
    """Return the number of parts into which the devices of `t` divide `axis`."""
    return prod(count for count, a in pairs_of(t.shard_axis, len(t.device)) if a == axis)


def _blocks(t: Tensor, n: int) -> Tensor:
    """Return `t` (..., L, E) as (..., n, L / n, E), a block for each part."""
    return t.reshape(*t.shape[:-2], n, t.shape[-2] // n, t.shape[-1])


class Pipeline(Module):
    """Stages of a model, each on a device of its own: pipeline parallel.

    The batch is cut into micro-batches along axis 0. A device computes one while the next device computes the one
    before; gradients go back in the same way. A stage must not mix the elements of a batch, as BatchNorm does.
    Raises ArgumentError unless there is one device a stage, and at least one micro-batch.

    >>> model = nn.parallel.Pipeline([nn.Linear(4, 8), nn.Linear(8, 2)], ("cpu", "cpu:1"), micro_batches=2)
    >>> model(Tensor.ones(6, 4)).device
    'cpu:1'
    """

    def __init__(self, stages: Sequence[Module], devices: Sequence[DeviceLike], micro_batches: int = 4) -> None:
        if len(stages) != len(devices) or not stages:
            raise ArgumentError("Pipeline: stages", expected="one device a stage", found=f"{len(devices)} devices")
        if micro_batches.__class__ is not int or micro_batches < 1:
            raise ArgumentError("Pipeline: micro_batches", expected="an int of at least 1", found=repr(micro_batches))
        self.stages, self.micro_batches = list(stages), micro_batches
        self._devices = [as_device(d) for d in devices]
        for stage, device in zip(self.stages, self._devices, strict=True):
            move(stage, lambda t, device=device: t.to(device))  # type: ignore[misc]

    def forward(self, x: Tensor) -> Tensor:
        """Return the result of the last stage, on its device; `x` may be on any device."""
        parts = x.split(-(-x.shape[0] // self.micro_batches))
        for stage, device in zip(self.stages, self._devices, strict=True):
            parts = tuple([stage(p.to(device)) for p in parts])
        first, *others = parts
        return first.cat(*others) if others else first


__all__ = ["Pipeline", "move", "on_mesh", "replicate", "ring_attention", "shard", "tensor_parallel"]
