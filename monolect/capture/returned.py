"""Describe and rebuild the results of a replayed call: computed values, Tensors that it was given, and views of either.

What it is for: a captured step and a `@function` run the user's code once. Code that returns an external Tensor, or a
view of one, must return that Tensor, or a view of it, at every call.
Invariant: a description holds no Tensor of the call that it was made from, except external Tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from monolect.tensor.tensor import Tensor
from monolect.tensor.tree import flatten, unflatten
from monolect.tensor.view import Path, apply_path_or_copy, is_row_major, path_of, root_of, with_strides


class Leaf(NamedTuple):
    """How to rebuild one Tensor of a result.

    `value`: index of the computed value, or -1. `root`: the argument or external Tensor that the result is or is a view
    of, as the caller names it; None for a computed value. `of`: index of the computed value that the result is a view
    of, or -1. `path`: the steps that make the view from its base.
    """

    value: int
    root: Any = None
    of: int = -1
    path: Path = ()


def describe_results(
    found: Sequence[Tensor], others: Sequence[Tensor], name: Callable[[Tensor], Any]
) -> tuple[list[Tensor], tuple[Leaf, ...]]:
    """Return the Tensors to compute for the results `found`, each once, and a Leaf for each of `found`.

    `others` are computed anyway; their value indices follow. `name` returns how the caller names an argument or
    external Tensor, and None for any other Tensor. A view has a computed value too, which a saved step uses. A base
    that is not in `found` has one if two of `found` are views of it.
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
        k = numbers[id(t)]
        if path and (root := name(base)) is not None:
            leaves.append(Leaf(k, root, -1, path))
        elif path and id(base) in numbers:
            leaves.append(Leaf(k, None, numbers[id(base)], path))
        elif is_row_major(t):
            leaves.append(Leaf(k))
        else:
            leaves.append(Leaf(k, None, k, with_strides(t)))
    return values, tuple(leaves)


def rebuild_results(
    leaves: Sequence[Leaf], values: Sequence[Tensor], resolve: Callable[[Any], Tensor]
) -> Iterator[Tensor]:
    """Yield the Tensors of a result, one for each of `leaves`, from the computed `values` of the call.

    `resolve` returns the argument or external Tensor for a `Leaf.root`.
    """
    views: dict[int, Tensor] = {}  # by value index: a view that is returned twice is one Tensor
    for value, root, of, path in leaves:
        if path and value not in views:
            views[value] = apply_path_or_copy(values[of] if root is None else resolve(root), path)
        yield views[value] if path else values[value] if root is None else resolve(root)


def replace_tensors(tree: Any, replacements: Mapping[int, Tensor]) -> Any:
    """Return `tree` with Tensors replaced by `replacements` (old id -> new Tensor); a view is made again from the new
    one.
    """
    found: list[Tensor] = []
    flatten(tree, found)
    paths = {id(t): path_of(t) for t in found}
    new = {
        k: apply_path_or_copy(replacements[id(root)], path)
        for k, (root, path) in paths.items()
        if id(root) in replacements
    }
    return unflatten(tree, iter([new.get(id(t), t) for t in found])) if new else tree


__all__ = ["Leaf", "describe_results", "replace_tensors", "rebuild_results"]
