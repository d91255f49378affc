"""Prune parameters: a mask of a parameter is 0 where its elements are to be, as in torch.nn.utils.prune.

What it is for: `l1_unstructured(module, "weight", 0.3)` and others. The parameter becomes `weight_orig`, the mask is
the buffer `weight_mask`, and `weight` is their product, computed at each use.
Invariants: `weight_orig` is the same tensor as the parameter was, so optimizers keep it. The names in a state dict are
those of PyTorch. A parameter that is pruned again keeps what it lost: a method sees the elements that are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar

from monolect.base.absent import hint
from monolect.base.errors import ArgumentError, AxisError, ShapeError
from monolect.base.grad_mode import no_grad
from monolect.nn.module import Module
from monolect.nn.utils.computed import compute, computed, parameter, uncompute
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

M = TypeVar("M", bound=Module)
Amount = int | float


@dataclass(frozen=True)
class _Masked:
    """The value of a pruned parameter `name` of a module."""

    name: str

    def __call__(self, module: Any) -> Tensor:
        weight: Tensor = getattr(module, f"{self.name}_orig")
        mask: Tensor = getattr(module, f"{self.name}_mask")
        return weight * mask.cast(weight.dtype)


def _is_masked(module: Module, name: str) -> bool:
    known = computed(module).get(name)
    return known is not None and isinstance(known.fget, _Masked)


class BasePruningMethod:
    """Base class of pruning methods: a subclass has `compute_mask` and the arguments of its `__init__`.

    `PRUNING_TYPE` says which elements `compute_mask` sees of a parameter that was pruned before: "unstructured", a
    vector of those that are left; "structured", the slices of axis `dim` that have some; "global", all.

    >>> from monolect import nn
    >>> from monolect.nn.utils import prune
    >>> class Negative(prune.BasePruningMethod):
    ...     def compute_mask(self, t, default_mask):
    ...         return default_mask * (t >= 0)
    >>> layer = nn.Linear(2, 2)
    >>> _ = Negative.apply(layer, "weight")
    >>> layer.weight.min().item() >= 0
    True
    """

    PRUNING_TYPE: ClassVar[str] = "unstructured"
    dim: int = -1

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the mask, 0 or 1 for each element, of a tensor with the scores `t`; `default_mask` is its mask so far.

        >>> from monolect.nn.utils import prune
        >>> prune.L1Unstructured(1).compute_mask(Tensor([3.0, -1.0, 2.0]), Tensor.ones(3)).tolist()
        [1.0, 0.0, 1.0]
        """
        raise NotImplementedError(f"{type(self).__name__} defines no compute_mask")

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """Return `t` with 0 where the mask for `importance_scores`, by default `t`, is 0.

        >>> from monolect.nn.utils import prune
        >>> prune.L1Unstructured(1).prune(Tensor([3.0, -1.0, 2.0])).tolist()
        [3.0, -0.0, 2.0]
        """
        scores = _checked_scores(importance_scores, t)
        return t * self.compute_mask(scores, t.ones_like() if default_mask is None else default_mask)

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any) -> Self:
        """Prune the parameter `name` of `module` by the method `cls(*args, **kwargs)`, and return this method.

        `importance_scores`, by default the parameter, has its shape. Raises ArgumentError for a module without that
        parameter, ShapeError for other scores; then nothing changes.

        >>> from monolect import nn
        >>> from monolect.nn.utils import prune
        >>> layer = nn.Linear(4, 2)
        >>> _ = prune.L1Unstructured.apply(layer, "weight", amount=3)
        >>> int((layer.weight == 0).sum().item())
        3
        """
        method = cls(*args, **kwargs)
        is_masked = _is_masked(module, name)
        weight = getattr(module, name) if is_masked else parameter("prune", module, name)
        scores = _checked_scores(importance_scores, weight).detach()
        mask = method._added(scores, getattr(module, f"{name}_mask")) if is_masked else method._first(scores)
        module.register_buffer(f"{name}_mask", mask.detach().realize())
        if not is_masked:
            vars(module)[f"{name}_orig"] = weight
            compute(module, name, _Masked(name))
        return method

    def _first(self, scores: Tensor) -> Tensor:
        return self.compute_mask(scores, scores.ones_like())

    def _added(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Return `mask` with what the method prunes of the elements that are left."""
        if self.PRUNING_TYPE == "global":
            return self.compute_mask(scores, mask)
        if self.PRUNING_TYPE == "unstructured":
            return self._of_left(scores.flatten(), mask.flatten(), 0).reshape(*mask.shape)
        if self.PRUNING_TYPE != "structured":
            expected = "'unstructured', 'structured' or 'global'"
            raise ArgumentError("prune: PRUNING_TYPE", expected=expected, found=repr(self.PRUNING_TYPE))
        return self._of_left(scores, mask, self.dim % mask.ndim)

    def _of_left(self, scores: Tensor, mask: Tensor, dim: int) -> Tensor:
        """Prune, along `dim`, the slices of `mask` that have an element left, and return the new mask."""
        is_left = mask.sum([d for d in range(mask.ndim) if d != dim]) != 0 if mask.ndim > 1 else mask != 0
        (left,) = is_left.nonzero(as_tuple=True)
        if left.shape[0] == 0:
            return mask
        new = self.compute_mask(scores.index_select(dim, left), mask.index_select(dim, left)).cast(mask.dtype)
        number = (is_left.cast("int64").cumsum(0) - 1).maximum(0)  # of each slice among those that are left
        return is_left.reshape(-1, *(1,) * (mask.ndim - 1 - dim)).where(new.index_select(dim, number), mask)


def _checked_scores(scores: Tensor | None, t: Tensor) -> Tensor:
    if scores is not None and scores.shape != t.shape:
        raise ShapeError("prune: importance_scores", expected=t.shape, found=scores.shape)
    return t if scores is None else scores


def _least(scores: Tensor, k: int) -> Tensor:
    """Return which elements of the vector `scores` are the `k` least, as bools."""
    return scores.argsort().argsort() < k


class _ByAmount(BasePruningMethod):
    """A method that prunes `amount` of n elements or slices: a number of them, or a float from 0 to 1."""

    def __init__(self, amount: Amount) -> None:
        is_number = isinstance(amount, int | float)
        if not is_number or amount < 0 or (isinstance(amount, float) and amount > 1.0):
            expected = "an int of at least 0, or a float from 0 to 1"
            raise ArgumentError("prune: amount", expected=expected, found=repr(amount))
        self.amount = amount

    def _number_of(self, n: int) -> int:
        """Return the number of `n` elements to prune. Raises ArgumentError for more than `n`."""
        k = self.amount if isinstance(self.amount, int) else round(self.amount * n)
        if k > n:
            raise ArgumentError("prune: amount", expected=f"at most {n}", found=k)
        return k


class _Unstructured(_ByAmount):
    """A method that prunes the elements of the least scores."""

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """See BasePruningMethod.

        >>> from monolect.nn.utils import prune
        >>> prune.L1Unstructured(0.5).compute_mask(Tensor([3.0, -1.0]), Tensor.ones(2)).tolist()
        [1.0, 0.0]
        """
        k = self._number_of(t.numel())
        if k == 0:
            return default_mask
        return default_mask * ~_least(self._scores(t).flatten(), k).reshape(*t.shape)


class _Structured(_ByAmount):
    """A method that prunes the slices, along the axis `dim`, of the least scores."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Amount, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _scores(self, t: Tensor, dim: int) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """See BasePruningMethod.

        >>> from monolect.nn.utils import prune
        >>> prune.LnStructured(1, n=1, dim=0).compute_mask(Tensor([[3.0], [1.0]]), Tensor.ones(2, 1)).tolist()
        [[1.0], [0.0]]
        """
        if t.ndim < 2:
            raise ShapeError("prune: slices of a tensor", expected="at least 2 axes", found=t.shape)
        if not -t.ndim <= self.dim < t.ndim:
            raise AxisError("prune: dim", expected=f"an axis of {t.shape}", found=self.dim)
        dim = self.dim % t.ndim
        k = self._number_of(t.shape[dim])
        if k == 0:
            return default_mask
        return default_mask * ~_least(self._scores(t, dim), k).reshape(-1, *(1,) * (t.ndim - 1 - dim))


class Identity(BasePruningMethod):
    """Prune nothing; the parameter gets the names of a pruned one.

    >>> from monolect.nn.utils import prune
    >>> prune.Identity().prune(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """See BasePruningMethod.

        >>> from monolect.nn.utils import prune
        >>> prune.Identity().compute_mask(Tensor([3.0, 4.0]), Tensor([0.0, 1.0])).tolist()
        [0.0, 1.0]
        """
        return default_mask


class RandomUnstructured(_Unstructured):
    """Prune `amount` random elements.

    >>> from monolect.nn.utils import prune
    >>> int(prune.RandomUnstructured(0.5).prune(Tensor.ones(2, 4)).sum().item())
    4
    """

    def _scores(self, t: Tensor) -> Tensor:
        return t.rand_like()


class L1Unstructured(_Unstructured):
    """Prune the `amount` elements of the least absolute values.

    >>> from monolect.nn.utils import prune
    >>> prune.L1Unstructured(0.5).prune(Tensor([4.0, -3.0, 2.0, -1.0])).tolist()
    [4.0, -3.0, 0.0, -0.0]
    """

    def _scores(self, t: Tensor) -> Tensor:
        return t.abs()


class RandomStructured(_Structured):
    """Prune `amount` random slices along the axis `dim`.

    >>> from monolect.nn.utils import prune
    >>> int(prune.RandomStructured(1, dim=0).prune(Tensor.ones(2, 4)).sum().item())
    4
    """

    def _scores(self, t: Tensor, dim: int) -> Tensor:
        return Tensor.rand(t.shape[dim], device=t.device)


class LnStructured(_Structured):
    """Prune the `amount` slices along the axis `dim` of the least norms of order `n`.

    >>> from monolect.nn.utils import prune
    >>> prune.LnStructured(1, n=2, dim=0).prune(Tensor([[1.0, 2.0], [2.0, 2.0]])).tolist()
    [[0.0, 0.0], [2.0, 2.0]]
    """

    def __init__(self, amount: Amount, n: int | float | str, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor, dim: int) -> Tensor:
        norm: Any = t.norm
        scores: Tensor = norm(self.n, [d for d in range(t.ndim) if d != dim])
        return scores


class CustomFromMask(BasePruningMethod):
    """Prune the elements where `mask` is 0.

    >>> from monolect.nn.utils import prune
    >>> prune.CustomFromMask(Tensor([1, 0])).prune(Tensor([3.0, 4.0])).tolist()
    [3.0, 0.0]
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """See BasePruningMethod.

        >>> from monolect.nn.utils import prune
        >>> prune.CustomFromMask(Tensor([0, 1])).compute_mask(Tensor([3.0, 4.0]), Tensor.ones(2)).tolist()
        [0.0, 1.0]
        """
        if self.mask.shape != default_mask.shape:
            raise ShapeError("prune: mask", expected=default_mask.shape, found=self.mask.shape)
        return default_mask * self.mask.cast(default_mask.dtype)


# ---- functions -------------------------------------------------------------------------------------------------------
@guarded
def identity(module: M, name: str) -> M:
    """Give the parameter `name` of `module` a mask of ones, and return `module`. Raises as `l1_unstructured`.

    >>> from monolect import nn
    >>> from monolect.nn.utils import prune
    >>> sorted(prune.identity(nn.Linear(2, 3), "bias").state_dict())
    ['bias_mask', 'bias_orig', 'weight']
    """
    Identity.apply(module, name)
    return module


@guarded
def random_unstructured(module: M, name: str, amount: Amount) -> M:
    """Prune `amount` random elements of the parameter `name` of `module`, and return `module`. Raises as
    `l1_unstructured`.

    >>> from monolect import nn
    >>> from monolect.nn.utils import prune
    >>> int((prune.random_unstructured(nn.Linear(2, 3), "weight", 0.5).weight == 0).sum().item())
    3
    """
    RandomUnstructured.apply(module, name, amount)
    return module


@guarded
def l1_unstructured(module: M, name: str, amount: Amount, importance_scores: Tensor | None = None) -> M:
    """Prune the `amount` elements with the least absolute values of the parameter `name` of `module`, and return
    `module`.

    `amount` is a number of elements, or a float from 0 to 1, the part of those that are left. `importance_scores`
    replace the values, and have their shape. Raises ArgumentError for a module without that parameter and for other
    amounts, ShapeError for other scores.

    >>> from monolect import nn
    >>> from monolect.nn.utils import prune
    >>> layer = prune.l1_unstructured(nn.Linear(2, 3), "weight", 4)
    >>> int((layer.weight == 0).sum().item()), sorted(layer.state_dict())
    (4, ['bias', 'weight_mask', 'weight_orig'])
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


@guarded
def random_structured(module: M, name: str, amount: Amount, dim: int) -> M:
    """Prune `amount` random slices along the axis `dim` of the parameter `name` of `module`, and return `module`.
    Raises as `ln_structured`.

    >>> from monolect import nn
    >>> from monolect.nn.utils import prune
    >>> int((prune.random_structured(nn.Linear(2, 3), "weight", 1, 0).weight == 0).sum().item())
    2
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


@guarded
def ln_structured(
    module: M, name: str, amount: Amount, n: int | float | str, dim: int, importance_scores: Tensor | None = None
) -> M:
    """Prune the `amount` slices along the axis `dim`, with the least norms of order `n`, of the parameter `name` of
    `module`, and return `module`.

    Raises as `l1_unstructured`, AxisError for another axis, ShapeError for a parameter with one axis.

    >>> from monolect import nn
    >>> from monolect.nn.utils import prune
    >>> int((prune.ln_structured(nn.Linear(2, 3), "weight", 2, n=2, dim=0).weight == 0).sum().item())
    4
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


@guarded
def custom_from_mask(module: M, name: str, mask: Tensor) -> M:
    """Prune the elements of the parameter `name` of `module` where `mask` is 0, and return `module`.

    Raises ArgumentError for a module without that parameter, ShapeError for a mask of another shape.

    >>> from monolect import nn
    >>> from monolect.nn.utils import prune
    >>> prune.custom_from_mask(nn.Linear(2, 1), "weight", Tensor([[0, 1]])).weight[0, 0].item() == 0
    True
    """
    CustomFromMask.apply(module, name, mask)
    return module


@guarded
def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: Mapping[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune `parameters`, pairs of a module and a name, together by `pruning_method(**kwargs)`, as one vector.

    `importance_scores` replace the values of some of them. Raises ArgumentError for a method that is not
    "unstructured", and as `l1_unstructured`.

    >>> from monolect import nn
    >>> from monolect.nn.utils import prune
    >>> a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> prune.global_unstructured([(a, "weight"), (b, "weight")], prune.L1Unstructured, amount=5)
    >>> int(((a.weight == 0).sum() + (b.weight == 0).sum()).item())
    5
    """
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        found = repr(method.PRUNING_TYPE)
        raise ArgumentError("global_unstructured: pruning_method", expected="an 'unstructured' method", found=found)
    pairs = list(parameters)
    given = importance_scores or {}
    weights = [getattr(m, name) for m, name in pairs]
    scores = [_checked_scores(given.get(pair), w) for pair, w in zip(pairs, weights, strict=True)]
    masks = [getattr(m, f"{name}_mask", None) for m, name in pairs]
    known = [w.ones_like() if mask is None else mask for w, mask in zip(weights, masks, strict=True)]
    if not pairs:
        raise ArgumentError("global_unstructured: parameters", expected="at least one pair", found="none")
    first, *others = [s.detach().flatten() for s in scores]
    mask, *rest = [m.detach().flatten() for m in known]
    final = method._added(first.cat(*others), mask.cat(*rest))
    at = 0
    for (m, name), w in zip(pairs, weights, strict=True):
        custom_from_mask(m, name, final[at : at + w.numel()].reshape(*w.shape))
        at += w.numel()


@guarded
def remove(module: M, name: str) -> M:
    """Make the pruned values of the parameter `name` of `module` its values, without a mask, and return `module`.

    The parameter is the tensor that it was before. Raises ArgumentError for a parameter that is not pruned.

    >>> from monolect import nn
    >>> from monolect.nn.utils import prune
    >>> sorted(prune.remove(prune.l1_unstructured(nn.Linear(2, 3), "weight", 4), "weight").state_dict())
    ['bias', 'weight']
    """
    if not _is_masked(module, name):
        raise ArgumentError("prune.remove", expected=f"a module whose {name!r} is pruned", found=repr(module))
    own = vars(module)
    with no_grad():
        own[f"{name}_orig"].assign(getattr(module, name)).realize()
    uncompute(module, name)
    own[name] = own.pop(f"{name}_orig")
    del own[f"{name}_mask"]
    module.buffer_names = tuple(n for n in module.buffer_names if n != f"{name}_mask")
    return module


def is_pruned(module: Module) -> bool:
    """Return whether a parameter of `module`, or of one of its submodules, is pruned.

    >>> from monolect import nn
    >>> from monolect.nn.utils import prune
    >>> layer = nn.Linear(2, 3)
    >>> prune.is_pruned(layer), prune.is_pruned(nn.Sequential(prune.identity(layer, "bias")))
    (False, True)
    """
    return any(_is_masked(m, name) for m in module.modules() for name in computed(m))


__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(hint("nn.utils.prune", name))


def __dir__() -> list[str]:
    return __all__
