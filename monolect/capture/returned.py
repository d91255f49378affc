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
    """A rule to rebuild one Tensor of a call's results.

    `value`: index of its computed value, or -1 if it has none. `root`: if the result is an argument or external Tensor,
    or a view of one, how the caller refers to this Tensor; else None. `of`: if the result is a view of a computed
    value, the index of this value; else -1. `path`: the operations that make the view from its base; () if the result
    is no view.
    """

    value: int
    root: Any = None
    of: int = -1
    path: Path = ()


def describe_results(
    found: Sequence[Tensor], others: Sequence[Tensor], name: Callable[[Tensor], Any]
) -> tuple[list[Tensor], tuple[Leaf, ...]]:
    """Return (Tensors to compute, a Leaf for each of `found`) for the results `found`. Each Tensor to compute is listed
    once.

    `others`: further Tensors that are computed after these, and whose value indices follow. `name(tensor)` returns how
    the caller refers to an argument or external Tensor, and None for any other Tensor. A view has a computed value too,
    which a saved step uses. A base that is not in `found` has one if two of `found` are views of it.
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
    """Yield the Tensors of a call's results, one for each of `leaves`, from the computed `values` of the call.

    `resolve(root)` returns the argument or external Tensor for the `root` of a Leaf.
    """
    views: dict[int, Tensor] = {}  # by value index: a view that is returned twice is one Tensor
    for value, root, of, path in leaves:
        if path and value not in views:
            views[value] = apply_path_or_copy(values[of] if root is None else resolve(root), path)
        yield views[value] if path else values[value] if root is None else resolve(root)


def replace_tensors(tree: Any, replacements: Mapping[int, Tensor]) -> Any:
    """Return `tree`, nested containers, with each Tensor whose id is in `replacements` replaced by the new Tensor
    there.

    A view of such a Tensor is replaced by the same view of the new Tensor.
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
