"""Methods that look up rows of a table by number: embeddings, and sums of embeddings in bags.

Source: names, defaults and shapes of torch.nn.functional.
"""

from __future__ import annotations

from typing import Any, Self

from monolect.autograd import graph as g
from monolect.autograd.closed_forms import closed_alone
from monolect.base.dtype import accumulator
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.ir.uop import UOp, build
from monolect.tensor.base import Number, TensorBase
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.index import position

_MODES = ("sum", "mean", "max")
_TINY = 1e-7  # added to the norm that divides a row in a renormalisation


@guard_methods
class TablesMixin(TensorBase):
    """Methods of Tensor whose elements are numbers of rows."""

    __slots__ = ()

    def embedding(
        self,
        weight: TensorBase,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: Number = 2.0,
        scale_grad_by_freq: bool = False,
    ) -> Self:
        """Return the rows of `weight` whose numbers self holds; shape (*self.shape, *weight.shape[1:]).

        The row `padding_idx` gets no gradient. With `max_norm` the rows that are used are first scaled, in `weight`
        itself, to norms of order `norm_type` of at most `max_norm`. With `scale_grad_by_freq` the gradient of a row is
        divided by the number of its uses. Raises DTypeError unless self holds integers, ArgumentError for a
        `padding_idx` that is no row.

        >>> Tensor([1, 0, 1]).embedding(Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
        """
        n = weight.shape[0]
        at = position(self, n, "embedding", wrap=False)
        if max_norm is not None:
            self._renormalize(weight, max_norm, norm_type)
        rows: Any = self._wrap(g.index(weight._uop, at))
        tail = (1,) * (weight.ndim - 1)
        if scale_grad_by_freq:
            rows = self._wrap(_scaled_gradient(rows._uop, self._shares(n).reshape(*self.shape, *tail)._uop))
        if padding_idx is None:
            return rows
        if not -n <= padding_idx < n:
            raise ArgumentError("padding_idx", expected=f"a row of {n}", found=padding_idx)
        is_padding = (self == padding_idx % n).reshape(*self.shape, *tail)
        return is_padding.where(rows.detach(), rows)

    def _uses(self, n: int) -> Any:
        """Return how often each of `n` rows is used: float32, (n,)."""
        flat: Any = self.flatten()
        flat = flat.long()
        ones = self._kind.ones(*flat.shape, device=self.device)
        return self._kind.zeros(n, device=self.device).index_add(0, flat, ones)

    def _shares(self, n: int) -> Any:
        """Return 1 / the number of uses of each of the rows that self names, in the shape of self."""
        return 1.0 / self._uses(n)[self]

    def _renormalize(self, weight: Any, max_norm: float, norm_type: Number) -> None:
        """Scale the rows of `weight` that self names to norms of order `norm_type` of at most `max_norm`."""
        rows = weight.detach().flatten(1)
        norms = rows.norm(norm_type, 1, True)
        is_long = (self._uses(weight.shape[0]).unsqueeze(1) > 0) & (norms > max_norm)
        scaled = is_long.where(rows * (max_norm / (norms + _TINY)), rows)
        weight.assign(scaled.reshape(weight.shape).cast(weight.dtype).realize())

    def embedding_bag(
        self,
        weight: TensorBase,
        offsets: TensorBase | None = None,
        max_norm: float | None = None,
        norm_type: Number = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        *,
        per_sample_weights: TensorBase | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:
        """Return the sum, mean or maximum (`mode`) of the rows of `weight` in each bag: (bags, *weight.shape[1:]).

        A row of self, (bags, n), is a bag; or self is a vector and bag i starts at `offsets`[i], with
        `include_last_offset` up to the last offset. Rows `padding_idx` do not count. `per_sample_weights`, in the shape
        of self, scales the rows of a sum. An empty bag gives zeros. `max_norm`, `norm_type` and `scale_grad_by_freq`
        are those of `embedding`. Raises ArgumentError for other modes and arguments that do not fit, ShapeError for
        other shapes, DTypeError unless self holds integers.

        >>> table = Tensor([[1.0], [2.0], [4.0]])
        >>> Tensor([0, 1, 2]).embedding_bag(table, Tensor([0, 2]), mode="sum").tolist()
        [[3.0], [4.0]]
        """
        if mode not in _MODES:
            raise ArgumentError("embedding_bag: mode", expected="sum, mean or max", found=repr(mode))
        if per_sample_weights is not None and mode != "sum":
            raise ArgumentError("embedding_bag: per_sample_weights", expected="mode='sum'", found=mode)
        if per_sample_weights is not None and per_sample_weights.shape != self.shape:
            raise ShapeError("embedding_bag: per_sample_weights", expected=self.shape, found=per_sample_weights.shape)
        if not self.dtype.is_int:
            raise DTypeError("embedding_bag needs integers", expected="an integer dtype", found=self.dtype.name)
        bags, number, counts = self._bags(offsets, include_last_offset)
        flat: Any = self.flatten()
        if padding_idx is not None:
            counts = counts & (flat != padding_idx % weight.shape[0])
        rows = flat.embedding(weight, None, max_norm, norm_type, scale_grad_by_freq)
        tail = (1,) * (weight.ndim - 1)
        if mode == "max":
            return _maxima(rows, bags, number, counts)
        if per_sample_weights is not None:
            rows = rows * per_sample_weights.flatten().reshape(-1, *tail)
        d, wide = rows.dtype, accumulator(rows.dtype)
        rows = counts.reshape(-1, *tail).where(rows.cast(wide), 0.0)
        zeros = self._kind.zeros(number, *weight.shape[1:], dtype=rows.dtype, device=self.device)
        total = zeros.index_add(0, bags, rows)
        if mode == "sum":
            return total.cast(d)
        sizes = self._kind.zeros(number, dtype=wide, device=self.device).index_add(0, bags, counts.cast(wide))
        return (total / sizes.clamp(1).reshape(-1, *tail)).cast(d)

    def _bags(self, offsets: Any, include_last_offset: bool) -> tuple[Any, int, Any]:
        """Return (the number of the bag of each element of the flattened self, the number of bags, whether each element
        is in a bag).
        """
        if self.ndim == 2:
            if offsets is not None:
                raise ArgumentError("embedding_bag: offsets", expected="None, as each row is a bag", found="a Tensor")
            n, size = self.shape
            bags: Any = self._kind.arange(n, device=self.device).reshape(n, 1).expand(n, size).flatten()
            return bags, n, bags >= 0
        if self.ndim != 1 or offsets is None or offsets.ndim != 1:
            found = (self.shape, None if offsets is None else offsets.shape)
            raise ShapeError("embedding_bag: shapes", expected="(bags, n), or (n,) with offsets (bags,)", found=found)
        number = offsets.shape[0] - include_last_offset
        starts = offsets[:number].unsqueeze(0)
        at = self._kind.arange(self.shape[0], device=self.device).unsqueeze(1)
        bags = (at >= starts).long().sum(1) - 1
        is_inside = bags >= 0  # not before the first offset
        if include_last_offset:
            is_inside = is_inside & (at.squeeze(1) < offsets[-1])
        return bags.clamp(0), number, is_inside


def _maxima(rows: Any, bags: Any, number: int, counts: Any) -> Any:
    """Return the largest of `rows`, (n, ...), that `counts` in each of `number` bags, whose numbers are `bags`; 0 for a
    bag without rows.
    """
    flat = rows.flatten(1)
    if not flat.shape[0]:
        return rows.zeros(number, *rows.shape[1:], dtype=rows.dtype, device=rows.device)
    own = (bags.unsqueeze(0) == bags.arange(number, device=rows.device).unsqueeze(1)) & counts.unsqueeze(0)
    inside = own.unsqueeze(2)
    best = inside.where(flat.detach().unsqueeze(0), rows.dtype.min).argmax(1)
    values = own.any(1, keepdim=True).where(flat.gather(0, best), 0.0)
    return values.reshape(number, *rows.shape[1:])


def _scaled_gradient(rows: UOp, factor: UOp) -> UOp:
    """Return `rows` with a gradient that is multiplied by `factor`."""

    def derivative(d: UOp, y: UOp, rows: UOp, factor: UOp) -> tuple[UOp, None]:
        return build("MUL", d, g.cast(factor, d.dtype)), None

    return closed_alone(rows, (rows, factor), derivative)


__all__ = ["TablesMixin"]
