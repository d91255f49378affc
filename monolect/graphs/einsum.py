"""Parse the formula of einsum, such as "bik,bkj->bij", into one axis name for each axis of each operand and of the
result.

What it is for: all errors about a formula, or about sizes that do not fit the formula, are raised here.
What it is not: it computes nothing.
Invariant: after parsing, each term names each axis of its operand. Each axis under `...` has a name of its own. Axes of
one name have one size, or size 1 if they broadcast.
Source: torch.einsum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from monolect.base.errors import ArgumentError, ShapeError

_DOTS = "..."


class Formula(NamedTuple):
    """A checked formula of einsum, by which `products.einsum` multiplies and sums its operands.

    `terms` has the axis names of each operand, `output` those of the result. Axes under `...` are named "0", "1", ...
    from the right.
    """

    terms: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]

    @staticmethod
    def parse(formula: str, shapes: Sequence[tuple]) -> Formula:
        """Parse `formula` and check it against the shapes of the operands.

        Raises ArgumentError if `formula` has another number of terms than operands, a character that is no letter, or a
        result with unknown or repeated names. Raises ShapeError if a term has another number of axes than its operand,
        or if axes of one name differ in size and none of the sizes is 1.
        """
        compact = formula.replace(" ", "")
        left, arrow, right = compact.partition("->")
        parts = left.split(",")
        if len(parts) != len(shapes):
            raise ArgumentError(
                f'einsum "{formula}": number of operands', expected=f"{len(parts)} operands", found=len(shapes)
            )
        for part in (*parts, right):
            _check_term(formula, part)
        terms = tuple(_names(formula, part, shape) for part, shape in zip(parts, shapes, strict=True))
        _check_sizes(formula, terms, shapes)
        dots = max((sum(c.isdigit() for c in t) for t in terms), default=0)
        return Formula(terms, _output(formula, terms, dots, right if arrow else None))


def _check_term(formula: str, part: str) -> None:
    """Raise ArgumentError unless `part` consists of ASCII letters and at most one `...`.

    `formula`, of which it is a part, is only quoted in the message.
    """
    letters = part.replace(_DOTS, "", 1)
    if not letters.isalpha() and letters or not letters.isascii():
        raise ArgumentError(f'einsum "{formula}": term', expected="letters and at most one ...", found=repr(part))


def _names(formula: str, part: str, shape: tuple) -> tuple[str, ...]:
    """Return one name for each axis of an operand of `shape`, whose term is `part`.

    Axes under `...` are named "0", "1", ... from the right. Raises ShapeError if the operand has another number of axes
    than the term. `formula` is only quoted in the message.
    """
    before, dots, after = part.partition(_DOTS)
    hidden = len(shape) - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        expected = f"{len(before) + len(after)}{' or more' if dots else ''} axes"
        raise ShapeError(
            f'einsum "{formula}": rank of "{part}"', expected=expected, found=f"{len(shape)} axes, {shape}"
        )
    return (*before, *(str(i) for i in reversed(range(hidden))), *after)


def _check_sizes(formula: str, terms: tuple[tuple[str, ...], ...], shapes: Sequence[tuple]) -> None:
    """Raise ShapeError if axes of one name differ in size; size 1 fits any size of another operand.

    `terms`: the axis names of each operand (`_names`). `formula` is quoted in the message.
    """
    sizes: dict[str, object] = {}
    for term, shape in zip(terms, shapes, strict=True):
        own: dict[str, object] = {}
        for c, n in zip(term, shape, strict=True):
            name = "..." if c.isdigit() else c
            if own.setdefault(c, n) != n:  # a repeated name takes a diagonal, which needs equal sizes
                raise ShapeError(f'einsum "{formula}": sizes of {name} in one operand', expected=own[c], found=n)
            if n != 1 and sizes.setdefault(c, n) != n:
                raise ShapeError(f'einsum "{formula}": sizes of {name}', expected=f"{sizes[c]} or 1", found=n)


def _output(formula: str, terms: tuple[tuple[str, ...], ...], dots: int, right: str | None) -> tuple[str, ...]:
    """Return the axis names of the result; without `->` they are the names that occur once, sorted, after those under
    `...`.

    `terms`: the axis names of each operand. `dots`: number of axes under `...`. `right`: the text after `->`, or None.
    Raises ArgumentError if `right` has a name that no operand has, or one name twice. `formula` is only quoted in the
    message.
    """
    every = [c for t in terms for c in t]
    under = tuple(str(i) for i in reversed(range(dots)))
    if right is None:
        once = sorted(c for c in set(every) if every.count(c) == 1 and not c.isdigit())
        return (*under, *once)
    before, found, after = right.partition(_DOTS)
    for c in before + after:
        if c not in every:
            raise ArgumentError(f'einsum "{formula}": result', expected="names of the operands", found=repr(c))
        if (before + after).count(c) > 1:
            raise ArgumentError(f'einsum "{formula}": result', expected="each name once", found=f"{c!r} twice")
    return (*before, *(under if found else ()), *after)


__all__ = ["Formula"]
