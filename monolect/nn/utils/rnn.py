"""Join sequences of different lengths to one tensor with padding, and take them apart, as torch.nn.utils.rnn does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from monolect.base.absent import hint
from monolect.base.errors import ArgumentError, ShapeError
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor


@guarded
def pad_sequence(
    sequences: Tensor | Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Return `sequences` of shapes (length, ...) as one tensor of shape (longest, n, ...), with `padding_value` in the
    rest.

    With `batch_first` the shape is (n, longest, ...). The padding is at the end, or at the beginning for
    `padding_side` "left". Raises ArgumentError for no sequences and another side, ShapeError for shapes that differ
    after the first axis.

    >>> pad_sequence([Tensor([1, 2]), Tensor([3])], batch_first=True).tolist()
    [[1, 2], [3, 0]]
    """
    if padding_side not in ("left", "right"):
        raise ArgumentError("pad_sequence: padding_side", expected="'left' or 'right'", found=repr(padding_side))
    given = list(sequences.unbind(0) if isinstance(sequences, Tensor) else sequences)
    if not given:
        raise ArgumentError("pad_sequence", expected="at least one sequence", found="none")
    shapes = [t.shape for t in given]
    if any(not s or s[1:] != shapes[0][1:] for s in shapes):
        raise ShapeError("pad_sequence", expected="sequences (length, ...) with the same other axes", found=shapes)
    longest = max(s[0] for s in shapes)
    rest = (0, 0) * (len(shapes[0]) - 1)
    sides = [(longest - s[0], 0) if padding_side == "left" else (0, longest - s[0]) for s in shapes]
    padded = [t.pad((*rest, *side), value=padding_value) for t, side in zip(given, sides, strict=True)]
    return padded[0].stack(*padded[1:], dim=0 if batch_first else 1)


@guarded
def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """Return the sequences, of `lengths`, that `pad_sequence` joined with the padding at the end.

    `lengths` is a vector; a tensor is computed at the call. Raises ShapeError for another number of lengths,
    ArgumentError for a length that the tensor does not have.

    >>> [t.tolist() for t in unpad_sequence(Tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)]
    [[1, 2], [3]]
    """
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    known = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    if len(known) != rows.shape[0]:
        raise ShapeError("unpad_sequence: lengths", expected=f"{rows.shape[0]} lengths", found=f"{len(known)}")
    if any(not 0 <= n <= rows.shape[1] for n in known):
        raise ArgumentError("unpad_sequence: lengths", expected=f"from 0 to {rows.shape[1]}", found=known)
    return [row[:n] for row, n in zip(rows.unbind(0), known, strict=True)]


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(hint("nn.utils.rnn", name))


__all__ = ["pad_sequence", "unpad_sequence"]


def __dir__() -> list[str]:
    return __all__
