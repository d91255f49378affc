"""Differentiate functions of tensors with any results, by the names of torch.func: products with Jacobians, Jacobians.

What it is for: `monolect.grad` is for functions whose result is a scalar. Here the function may return containers of
float tensors. Derivatives nest, and mix with `grad`, `vmap` and `backward`.
Invariants: each call runs the function once, on placeholders. The rows of a Jacobian are one graph, not one for each.
Source: a forward derivative is the derivative of a backward one, which is linear in the gradient of the result
(Townsend, "A new trick for calculating Jacobian vector products", 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import Any

from monolect.autograd.gradient import gradients
from monolect.autograd.graph import full
from monolect.base.errors import ArgumentError, DTypeError, GradientError, ShapeError
from monolect.capture.transform import Traced, map_tensors, numbers_of, tensors_in, value_and_grad
from monolect.func.batches import batched
from monolect.ir.placement import axis, device
from monolect.ir.uop import UOp, const, new_buffer
from monolect.runtime.realize.execute import placeholders
from monolect.tensor.tensor import Tensor

Function = Callable[..., Any]


def grad_and_value(func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Function:
    """Return a function that computes (gradient, value) of `func`, or with `has_aux` (gradient, (value, aux)).

    It is `monolect.value_and_grad` with the order of torch.func, and raises the same errors.

    >>> from monolect import func
    >>> g, value = func.grad_and_value(lambda x: x.square().sum())(Tensor([1.0, 2.0]))
    >>> g.tolist(), value.item()
    ([2.0, 4.0], 5.0)
    """
    both = value_and_grad(func, argnums, has_aux)

    @wraps(func)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        value, g = both(*args, **kwargs)
        return g, value

    return derivative


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return (`func(*primals)`, pull): `pull(cotangents)` is the vector-Jacobian product, the gradients of `primals`
    for the gradients `cotangents` of the result.

    `primals` and the result are float tensors, or lists, tuples and dicts of them; `cotangents` has the structure,
    shapes and dtypes of the result. `pull` returns a tuple with a gradient for each argument, also for a single one.
    With `has_aux`, `func` returns (value, aux), and the result is (value, pull, aux). Raises GradientError for tensors
    that are not floats; `pull` raises ArgumentError, ShapeError and DTypeError for other cotangents.

    >>> from monolect import func
    >>> y, pull = func.vjp(lambda x: x.square(), Tensor([1.0, 2.0]))
    >>> (dx,) = pull(Tensor([1.0, 10.0]))
    >>> y.tolist(), dx.tolist()
    ([1.0, 4.0], [2.0, 40.0])
    """
    traced, value, aux = _traced("vjp", func, primals, {}, range(len(primals)), has_aux)

    def pull(cotangents: Any) -> tuple[Any, ...]:
        _check_like("vjp: cotangents", cotangents, value)
        return tuple(traced.bound(traced.gradients(*_weighted(tensors_in(value), tensors_in(cotangents)))))

    out = traced.bound(value)
    return (out, pull, traced.bound(aux)) if has_aux else (out, pull)


def jvp(
    func: Function, primals: tuple[Any, ...], tangents: tuple[Any, ...], *, strict: bool = False, has_aux: bool = False
) -> tuple[Any, ...]:
    """Return (`func(*primals)`, its derivative along `tangents`): the Jacobian-vector product, with the structure of
    the result.

    `tangents` has the structure, shapes and dtypes of the tuple `primals`. With `has_aux`, `func` returns (value, aux),
    and the result is (value, derivative, aux). With `strict`, raises GradientError where a result does not depend on
    `primals`; its derivative is 0 otherwise. Raises GradientError for tensors that are not floats, ArgumentError,
    ShapeError and DTypeError for other tangents.

    >>> from monolect import func
    >>> y, dy = func.jvp(lambda x: x.square(), (Tensor([1.0, 2.0]),), (Tensor([1.0, 10.0]),))
    >>> y.tolist(), dy.tolist()
    ([1.0, 4.0], [2.0, 40.0])
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        found = f"{type(primals).__name__}, {type(tangents).__name__}"
        raise ArgumentError("jvp: primals and tangents", expected="tuples", found=found)
    push = _Push("jvp", func, primals, {}, range(len(primals)), has_aux)
    _check_like("jvp: tangents", tangents, primals)
    along, traced = push.along(tensors_in(tangents), strict), push.traced
    out = traced.bound((push.value, along, push.aux))
    return out if has_aux else out[:2]


def linearize(func: Function, *primals: Any) -> tuple[Any, Function]:
    """Return (`func(*primals)`, push): `push(*tangents)` is the derivative of `func` along `tangents`, as in `jvp`.

    `func` runs once, whatever the number of tangents. Raises the errors of `jvp`.

    >>> from monolect import func
    >>> y, push = func.linearize(lambda x: x.square(), Tensor([1.0, 2.0]))
    >>> push(Tensor([1.0, 0.0])).tolist(), push(Tensor([0.0, 1.0])).tolist()
    ([2.0, 0.0], [0.0, 4.0])
    """
    linear = _Push("linearize", func, primals, {}, range(len(primals)), False)

    def push(*tangents: Any) -> Any:
        _check_like("linearize: tangents", tangents, primals)
        return linear.traced.bound(linear.along(tensors_in(tangents), False))

    return linear.traced.bound(linear.value), push


def jacrev(
    func: Function, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False, chunk_size: int | None = None
) -> Function:
    """Return a function that computes the Jacobian of `func` by the arguments numbered `argnums`, row by row.

    For a result of shape `s` and an argument of shape `x` it has shape `s + x`. Each tensor of a result is replaced by
    the Jacobians of it, in the structure of the argument, in a tuple if `argnums` is one. It costs a backward pass of a
    batch with a sample for each element of the result: use `jacfwd` where the arguments are smaller. With `has_aux`,
    `func` returns (value, aux), and the new function (Jacobian, aux). `chunk_size` is not used. Raises as `vjp`, and
    ArgumentError for wrong `argnums`, and where `func` calls a custom kernel.

    >>> from monolect import func
    >>> func.jacrev(lambda x: x.square())(Tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    wanted = numbers_of(argnums)

    @wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        traced, value, aux = _traced("jacrev", func, args, kwargs, wanted, has_aux)

        def of(y: Tensor) -> Any:
            """Return the Jacobians of one tensor of the result."""
            g = _placeholder(y)
            found = traced.gradients(y.uop, g.uop)
            rows = iter(_for_each_element(tensors_in(found), g))
            found = map_tensors(lambda x: next(rows).reshape(*y.shape, *x.shape), found)
            return found[0] if isinstance(argnums, int) else tuple(found)

        found = traced.bound((map_tensors(of, value), aux))
        return found if has_aux else found[0]

    return jacobian


def jacfwd(
    func: Function,
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
    randomness: str = "error",
) -> Function:
    """Return a function that computes the Jacobian of `func` by the arguments numbered `argnums`, column by column.

    Results and errors are those of `jacrev`. It costs a forward pass of a batch with a sample for each element of the
    arguments. `func` runs once, so `randomness` and `chunk_size` are not used.

    >>> from monolect import func
    >>> func.jacfwd(lambda x: x.square())(Tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    wanted = numbers_of(argnums)

    @wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        push = _Push("jacfwd", func, args, kwargs, wanted, has_aux)
        columns: list[list[Tensor]] = []  # for each tensor of the arguments, those of the results
        for k, x in enumerate(push.rows):
            t = _placeholder(x)
            found = tensors_in(push.along_one(k, t))
            columns.append(
                [
                    c.movedim(0, -1).reshape(*y.shape, *x.shape)
                    for y, c in zip(push.outs, _for_each_element(found, t), strict=True)
                ]
            )
        numbers = iter(range(len(push.outs)))

        def of(y: Tensor) -> Any:
            """Return the Jacobians of one tensor of the result."""
            number = next(numbers)
            parts = iter([column[number] for column in columns])
            tree = [map_tensors(lambda _: next(parts), nodes) for nodes in push.traced.inputs]
            return tree[0] if isinstance(argnums, int) else tuple(tree)

        found = push.traced.bound((map_tensors(of, push.value), push.aux))
        return found if has_aux else found[0]

    return jacobian


def hessian(func: Function, argnums: int | tuple[int, ...] = 0) -> Function:
    """Return a function that computes the second derivatives of `func`: the Jacobian of its Jacobian.

    For a result of shape `s` and an argument of shape `x` it has shape `s + x + x`; for a tuple of `argnums` it is a
    tuple of tuples. Raises the errors of `jacrev`.

    >>> from monolect import func
    >>> func.hessian(lambda x: (x ** 3).sum())(Tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacrev(jacrev(func, argnums), argnums)


# ---- parts -----------------------------------------------------------------------------------------------------------
class _Push:
    """A call of a function whose derivatives along tangents are graphs: `rows` are the gradients of its arguments,
    linear in placeholders for the gradients of its results `outs`.
    """

    def __init__(
        self, name: str, func: Function, args: Sequence[Any], kwargs: Any, wanted: Sequence[int], has_aux: bool
    ):
        self.traced, self.value, self.aux = _traced(name, func, args, kwargs, wanted, has_aux)
        self.outs = tensors_in(self.value)
        self._weights = [_placeholder(y) for y in self.outs]
        self.rows = tensors_in(self.traced.gradients(*_weighted(self.outs, self._weights)))

    def along(self, tangents: Sequence[Tensor], strict: bool) -> Any:
        """Return the derivative of the result along `tangents`, one for each of `rows`, over placeholders."""
        return self._derivative(*_weighted(self.rows, tangents), strict)

    def along_one(self, k: int, tangent: Tensor) -> Any:
        """Return the derivative of the result along `tangent` of row `k`."""
        return self._derivative(*_weighted([self.rows[k]], [tangent]), False)

    def _derivative(self, root: UOp, g: UOp, strict: bool) -> Any:
        nodes = [w.uop for w in self._weights]
        found = gradients(root, g, nodes, cut=True)
        if strict and any(d is None for d in found.values()):
            raise GradientError("jvp: strict", expected="results that depend on the primals", found="one that does not")
        new = iter([full(u.shape, 0, u.dtype) if (d := found[u]) is None else d for u in nodes])
        return map_tensors(lambda _: Tensor(next(new)), self.value)


def _traced(
    name: str, func: Function, args: Sequence[Any], kwargs: Any, wanted: Sequence[int], has_aux: bool
) -> tuple[Traced, Any, Any]:
    """Return (call of `func`, its value, its aux or None). Raises GradientError unless the value has float tensors."""
    if not callable(func):
        raise ArgumentError(f"{name} takes a function", expected="a callable", found=repr(func)[:80])
    traced = Traced(func, args, kwargs, wanted)
    value, aux = traced.value_and_aux() if has_aux else (traced.out, None)
    outs = tensors_in(value)
    if not outs or not all(y.dtype.is_float for y in outs):
        found = ", ".join(y.dtype.name for y in outs) or repr(value)[:80]
        raise GradientError(f"{name}: the result of the function", expected="float tensors", found=found)
    return traced, value, aux


def _weighted(ys: Sequence[Tensor], weights: Sequence[Tensor]) -> tuple[UOp, UOp]:
    """Return (root, gradient of the root) for which the gradients of `ys` are `weights`."""
    if len(ys) == 1:
        return ys[0].uop, weights[0].uop
    first, *others = [(y * w).sum() for y, w in zip(ys, weights, strict=True)]
    for t in others:
        first = first + t
    return first.uop, const(1, first.dtype)


def _placeholder(t: Tensor) -> Tensor:
    """Return a Tensor without a value that has the shape, dtype and device of `t`."""
    buffer = new_buffer(t.shape, t.dtype, device(t.uop), axis(t.uop))
    placeholders.add(buffer)
    return Tensor(buffer)


def _for_each_element(results: Sequence[Tensor], t: Tensor) -> list[Tensor]:
    """Return `results`, graphs over the placeholder `t`, with a leading axis: one for each element of `t`, with 1 for
    this element and 0 for the others.
    """
    n = prod(t.shape)
    basis = Tensor.eye(n, dtype=t.dtype).reshape(n, *t.shape)
    return [Tensor(u) for u in batched([r.uop for r in results], {t.uop: basis.uop}, n)]


def _check_like(what: str, given: Any, like: Any) -> None:
    """Raise ArgumentError, ShapeError or DTypeError unless `given` has the structure, shapes and dtypes of `like`."""
    if map_tensors(lambda _: None, given) != map_tensors(lambda _: None, like):
        raise ArgumentError(what, expected=f"the structure of {type(like).__name__}", found=repr(given)[:80])
    for t, x in zip(tensors_in(given), tensors_in(like), strict=True):
        if t.shape != x.shape:
            raise ShapeError(what, expected=x.shape, found=t.shape)
        if t.dtype is not x.dtype:
            raise DTypeError(what, expected=x.dtype.name, found=t.dtype.name)


__all__ = ["grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp"]
