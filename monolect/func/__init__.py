"""Transform functions of tensors: gradients, Jacobians, maps over samples, by the names of torch.func.

>>> from monolect import Tensor, func
>>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
>>> func.vmap(func.grad(lambda row: row.prod()))(x).tolist()
[[2.0, 1.0], [4.0, 3.0]]
"""

from typing import TYPE_CHECKING, NoReturn

from monolect.base.absent import hint
from monolect.capture.transform import grad
from monolect.func.derivatives import grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from monolect.func.models import functional_call, replace_all_batch_norm_modules_, stack_module_state
from monolect.func.vectorized import vmap

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(hint("func", name))


def __dir__() -> list[str]:
    return __all__
