"""The loss of a sequence of classes whose alignment is not known (connectionist temporal classification).

What it is for: the sum over all alignments is a recurrence over time, one step a kernel, in logarithms.
Source: Graves et al. (2006); arguments of torch.nn.functional.ctc_loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from monolect.base.dtype import accumulator
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.tensor.base import TensorBase
from monolect.tensor.guard import guard_methods
from monolect.tensor.neural.loss import reduced

_IMPOSSIBLE = -1e30  # logarithm of the probability of no alignment: finite, so that differences are numbers

Lengths = TensorBase | int | Sequence[int]


@guard_methods
class AlignmentMixin(TensorBase):
    """The method `ctc_loss` of Tensor."""

    __slots__ = ()

    def ctc_loss(
        self,
        targets: TensorBase,
        input_lengths: Lengths,
        target_lengths: Lengths,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
    ) -> Self:
        """Return minus the logarithm of the probability of the targets over all alignments.

        self holds log-probabilities (T, N, C), or (T, C) for one sequence; `targets` are classes (N, S), or all of them
        in one vector. The lengths, (N,), tell how much of each counts. `blank` is the class of no label. 'mean' divides
        each loss by its target length first; `reduction` may also be 'sum' or 'none'. A target without an alignment
        gives inf, or with `zero_infinity` 0. The graph has a step for each of T. The gradient is that of the loss;
        PyTorch's is the same behind a `log_softmax` only. Raises ShapeError for other shapes,
        DTypeError for targets that are no integers, ArgumentError for a `blank` that is no class.

        >>> half = Tensor([[0.5, 0.5], [0.5, 0.5]]).log()
        >>> round(half.ctc_loss(Tensor([1]), 2, 1, reduction="sum").exp().item(), 4)
        1.3333
        """
        if self.ndim not in (2, 3) or self.shape[0] == 0:
            raise ShapeError("ctc_loss: rank of the input", expected="(T, N, C) or (T, C)", found=self.shape)
        self._check_float("ctc_loss")
        if not targets.dtype.is_int:
            raise DTypeError("ctc_loss: targets", expected="integer classes", found=targets.dtype.name)
        x: Any = (self if self.ndim == 3 else self.unsqueeze(1)).cast(accumulator(self.dtype))
        steps, n, c = x.shape
        if not 0 <= blank < c:
            raise ArgumentError("ctc_loss: blank", expected=f"a class, 0 to {c - 1}", found=blank)
        inputs, lengths = self._lengths(input_lengths, n), self._lengths(target_lengths, n)
        labels = self._padded_targets(targets, n, lengths, target_lengths)
        size = labels.shape[1]
        blanks = labels * 0 + blank
        # blank, label, blank, label, ..., blank
        path = (
            blanks.stack(labels, dim=2)
            .flatten(1)
            .cat(blanks[:, :1] if size else blanks.zeros(n, 1, dtype=labels.dtype) + blank, dim=1)
        )
        scores = x.gather(2, path.unsqueeze(0).expand(steps, n, 2 * size + 1))
        at = self._kind.arange(2 * size + 1, device=self.device).unsqueeze(0)
        skips = (path != blank) & (at >= 2) & (path != path.pad((2, 0), value=-1)[:, : 2 * size + 1])
        alpha = (at < 2).where(scores[0], _IMPOSSIBLE).contiguous()
        for t in range(1, steps):
            one, two = (alpha.pad((k, 0), value=_IMPOSSIBLE)[:, : 2 * size + 1] for k in (1, 2))
            new = _log_sum(alpha, one, skips.where(two, _IMPOSSIBLE)) + scores[t]
            alpha = (inputs.unsqueeze(1) > t).where(new.maximum(_IMPOSSIBLE), alpha).contiguous()
        is_last = (at == 2 * lengths.unsqueeze(1)) | (at == 2 * lengths.unsqueeze(1) - 1)
        ends = is_last.where(alpha, _IMPOSSIBLE)
        top = ends.detach().amax(1, keepdim=True)
        loss = -(top.squeeze(1) + (ends - top).exp().sum(1).log())
        loss = (top.squeeze(1) <= 0.5 * _IMPOSSIBLE).where(0.0 if zero_infinity else float("inf"), loss)
        if reduction == "mean":
            loss = loss / lengths.clamp(1)
        loss = loss if self.ndim == 3 or reduction != "none" else loss.squeeze(0)
        return reduced(loss, reduction, "ctc_loss").cast(self.dtype)

    def _lengths(self, lengths: Any, n: int) -> Any:
        """Return `lengths`, a Tensor, an int or ints, as an int64 Tensor (n,). Raises ShapeError for another number."""
        if not isinstance(lengths, TensorBase):
            lengths = self._kind([lengths] if isinstance(lengths, int) else list(lengths), device=self.device)
        if lengths.shape != (n,) and not (n == 1 and lengths.shape == ()):
            raise ShapeError("ctc_loss: lengths", expected=(n,), found=lengths.shape)
        return lengths.reshape(n).long()

    def _padded_targets(self, targets: Any, n: int, lengths: Any, given: Any) -> Any:
        """Return the targets as int64 (n, most of a sequence); `given` are the target lengths of the user's call.

        Raises ShapeError unless `targets` is (n, ...) or a vector.
        """
        if targets.ndim == 2 and targets.shape[0] == n:
            return targets.long()
        if targets.ndim != 1:
            raise ShapeError("ctc_loss: targets", expected=f"({n}, most labels) or a vector", found=targets.shape)
        if n == 1:
            return targets.long().unsqueeze(0)
        most = targets.shape[0] if isinstance(given, TensorBase) else max(given, default=0)
        starts = (lengths.cumsum(0) - lengths).unsqueeze(1)
        at = starts + self._kind.arange(most, device=self.device)
        return targets.long()[at.clamp(max=targets.shape[0] - 1)]


def _log_sum(*terms: Any) -> Any:
    """Return log(exp(a) + exp(b) + ...) of finite terms."""
    top = terms[0].detach()
    for term in terms[1:]:
        top = top.maximum(term.detach())
    total: Any = 0.0
    for term in terms:
        total = total + (term - top).exp()
    return top + total.log()


__all__ = ["AlignmentMixin"]
