"""Results of a call that is replayed: values it computes, Tensors it was given, and views of either.

What it is for: a captured step and a `@function` run the user's code once. Code that returns a Tensor from outside, or
a view of one, returns that Tensor, or a view of it, at every call, as Python does.
Invariant: a description holds no Tensor of the call it was made from, but those from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from monolect.tensor.tensor import Tensor
from monolect.tensor.tree import flatten, unflatten
from monolect.tensor.view import Path, given_along, path_of, root_of


class Leaf(NamedTuple):
    """A Tensor of a result. `value`: the number of the value that is computed for it, -1 for none. `root`: the Tensor
    that it is, or that it is a view of, as the caller names it; None for a value of its own. `of`: the number of the
    value that it is a view of, else -1. `path`: how the view is made.
    """

    value: int
    root: Any = None
    of: int = -1
    path: Path = ()


def described(
    found: Sequence[Tensor], others: Sequence[Tensor], name: Callable[[Tensor], Any]
) -> tuple[list[Tensor], tuple[Leaf, ...]]:
    """The Tensors to compute, each once, and a leaf for each of `found`. `others` are computed anyway: their numbers
    follow. `name`: of a Tensor from outside, else None.

    A view has a value, too: a saved step has no other. So has a Tensor that two of `found` are views of.
    """
    known = {id(t) for t in others}
    roots = [name(t) for t in found]
    new = {id(t): t for t, root in zip(found, roots, strict=True) if root is None}
    bases = [b for t in new.values() if t._is_view and name(b := root_of(t)) is None]
    shared = [b for b, n in zip(bases, [sum(x is b for x in bases) for b in bases], strict=True) if n > 1]
    own = new | {id(t): t for t in (*shared, *(t for t in found if t._is_view))}
    own = {k: t for k, t in own.items() if k not in known}
    values = [*own.values()]
    numbers = {id(t): k for k, t in enumerate((*values, *others))}
    leaves = []
    for t, root in zip(found, roots, strict=True):
        if root is not None:
            leaves.append(Leaf(numbers.get(id(t), -1), root))
            continue
        base, path = path_of(t)
        if not path:
            leaves.append(Leaf(numbers[id(t)]))
        elif (root := name(base)) is not None:
            leaves.append(Leaf(numbers[id(t)], root, -1, path))
        else:
            leaves.append(Leaf(numbers[id(t)], None, numbers.get(id(base), -1), path if id(base) in numbers else ()))
    return values, tuple(leaves)


def results(leaves: Sequence[Leaf], values: Sequence[Tensor], given: Callable[[Any], Tensor]) -> Iterator[Tensor]:
    """The Tensors of a result. `given`: the Tensor from outside of that name."""
    views: dict[int, Tensor] = {}  # by their value: one that is returned twice is one
    for value, root, of, path in leaves:
        if path and value not in views:
            views[value] = given_along(values[of] if root is None else given(root), path)
        yield views[value] if path else values[value] if root is None else given(root)


def put_back(tree: Any, instead: Mapping[int, Tensor]) -> Any:
    """`tree` with other Tensors: `instead` has them by the identity of those that go. A view of one that goes becomes a
    view of the other.
    """
    found: list[Tensor] = []
    flatten(tree, found)
    paths = {id(t): path_of(t) for t in found}
    new = {k: given_along(instead[id(root)], path) for k, (root, path) in paths.items() if id(root) in instead}
    return unflatten(tree, iter([new.get(id(t), t) for t in found])) if new else tree


__all__ = ["Leaf", "described", "put_back", "results"]
