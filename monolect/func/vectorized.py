"""Map a function of one sample over the samples of tensors: `vmap`, with the signature of torch.func.

What it is for: the function runs once, on placeholders for one sample; its graph gets a leading axis
(`func/batches.py`). So gradients by sample and batches of Jacobians are one graph, not one for each sample.
Invariant: row k of a result is what the function returns for row k of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from monolect.base.errors import ArgumentError, AxisError, ShapeError
from monolect.capture.captured import run_checks
from monolect.capture.transform import map_tensors, tensors_in
from monolect.func.batches import batched
from monolect.ir.placement import axis, device
from monolect.ir.uop import UOp, new_buffer, toposort
from monolect.runtime.realize.execute import placeholders
from monolect.runtime.replay.in_progress import changes, checks_under_way
from monolect.tensor import random as random_state
from monolect.tensor.tensor import Tensor

Dims = Any  # an int, None, or containers of these
_RANDOMNESS = ("error", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: Dims = 0,
    out_dims: Dims = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that calls `func` for each sample of its arguments, and stacks the results.

    Samples are the parts of tensors along the axes `in_dims`: an int for all arguments, or a tuple with an int, None
    (each sample gets the whole tensor), or containers of these for each argument; keyword arguments are whole. Results
    of shapes `s` have the axis of samples at `out_dims`, an int or containers of ints.

    `func` runs once and may not read values, write to tensors from outside, or call custom kernels. With `randomness`
    "error" it may draw no random numbers, with "same" all samples have the same; for different ones map over the keys
    of `random.split`. `chunk_size` is not used. Raises ArgumentError for other `randomness` and for what `func` may
    not do, JitError where it reads values, AxisError for an axis that a tensor does not have, ShapeError for different
    numbers of samples.

    >>> from monolect import func
    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> func.vmap(lambda row: row / row.sum())(x).shape, func.vmap(Tensor.dot)(x, x).tolist()
    ((2, 2), [5.0, 25.0])
    >>> func.vmap(func.grad(lambda w, row: (w * row).square().sum()), in_dims=(None, 0))(Tensor([1.0, 1.0]), x).tolist()
    [[2.0, 8.0], [18.0, 32.0]]
    """
    if not callable(func):
        raise ArgumentError("vmap takes a function", expected="a callable", found=repr(func)[:80])
    if randomness not in _RANDOMNESS:
        expected = "'error' or 'same'; for different numbers, map over the keys of random.split(key, n)"
        raise ArgumentError("vmap: randomness", expected=expected, found=repr(randomness))

    @wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        batch = _Batch()
        dims = in_dims if isinstance(in_dims, tuple | list) else (in_dims,) * len(args)
        if len(dims) != len(args):
            raise ArgumentError("vmap: in_dims", expected=f"one for each of {len(args)} arguments", found=repr(in_dims))
        inner = [_paired(batch.sample, a, d) for a, d in zip(args, dims, strict=True)]
        if batch.n is None:
            raise ArgumentError("vmap", expected="a tensor with an axis of samples", found="none")
        out = batch.called(func, inner, kwargs, randomness == "same")
        return _paired(lambda t, d: t.movedim(0, d), batch.results(out), out_dims)

    return mapped


def _paired(f: Callable[[Tensor, int], Tensor], tree: Any, dims: Dims) -> Any:
    """Return `tree` with `f(tensor, dim)` for each of its tensors; those with the dim None stay.

    `dims` is one int or None for all of `tree`, or the same containers with one for each part.
    """
    if dims is None:
        return tree
    if isinstance(dims, int):
        return map_tensors(lambda t: f(t, dims), tree)
    if isinstance(dims, dict) and isinstance(tree, dict) and dims.keys() == tree.keys():
        return {k: _paired(f, v, dims[k]) for k, v in tree.items()}
    if isinstance(dims, tuple | list) and isinstance(tree, tuple | list) and len(dims) == len(tree):
        parts = [_paired(f, v, d) for v, d in zip(tree, dims, strict=True)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    raise ArgumentError("vmap: dims", expected="an int, None, or the containers of the value", found=repr(dims)[:80])


class _Batch:
    """The samples of one call: `values` maps the node of each of the tensors `samples` to all `n` of them."""

    def __init__(self) -> None:
        self.values: dict[UOp, UOp] = {}
        self.n: int | None = None
        self.samples: list[Tensor] = []

    def sample(self, t: Tensor, dim: int) -> Tensor:
        """Return a placeholder for one sample of `t`, whose samples are along the axis `dim`."""
        if not -t.ndim <= dim < t.ndim:
            raise AxisError("vmap: in_dims", expected=f"an axis of {t.shape}", found=dim)
        rows = t.movedim(dim, 0)
        if self.n is not None and rows.shape[0] != self.n:
            raise ShapeError("vmap: samples", expected=f"{self.n}, as of the first tensor", found=rows.shape[0])
        self.n = rows.shape[0]
        buffer = new_buffer(rows.shape[1:], t.dtype, device(rows.uop), axis(rows.uop))
        placeholders.add(buffer)
        self.values[buffer] = rows.uop
        self.samples.append(Tensor(buffer))
        return self.samples[-1]

    def called(self, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], may_draw: bool) -> Any:
        """Return `func(*args, **kwargs)` for the placeholders, and check the indices that it computes.

        Raises ArgumentError where it writes to a tensor from outside, or draws random numbers and not `may_draw`.
        """
        before = random_state.drawn()
        with changes.seen() as seen, changes.inside():
            seen.checks = []
            out = func(*args, **kwargs)
        if not may_draw and random_state.drawn() != before:
            expected = "randomness='same', or a function without random numbers"
            raise ArgumentError("vmap: the function draws random numbers", expected=expected)
        own = {id(t) for t in (*tensors_in(out), *self.samples)}
        for t, u in seen.alive():
            if id(t) not in own and not self.values.keys().isdisjoint(toposort(t.uop)):
                t.uop = u
                raise ArgumentError(
                    "vmap: a write to a tensor from outside", expected="a function that returns its values"
                )
        if seen.checks:
            self._check([check for check, *_ in seen.checks], [t.uop for _, *both in seen.checks for t in both])
        return out

    def _check(self, checks: list[Any], ends: list[UOp]) -> None:
        """Check that the indices of all samples are in range; `ends` has the least and the greatest for each check."""
        assert self.n is not None
        rows = [Tensor(u) for u in batched(ends, self.values, self.n)]
        found = [t.max() if k % 2 else t.min() for k, t in enumerate(rows)]
        if not changes.captures:
            found[0].realize(*found[1:])
            run_checks(checks, found)
        elif (collected := checks_under_way()) is not None:
            collected += zip(checks, found[::2], found[1::2], strict=True)

    def results(self, out: Any) -> Any:
        """Return `out` for all samples: its tensors have a leading axis."""
        found = tensors_in(out)
        if not found or self.n is None:
            raise ArgumentError("vmap: the function returns tensors", expected="a tensor", found=repr(out)[:80])
        new = iter(batched([t.uop for t in found], self.values, self.n))
        return map_tensors(lambda _: Tensor(next(new)), out)


__all__ = ["vmap"]
