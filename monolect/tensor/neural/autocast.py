"""Cast operands of some methods of Tensor where the setting AUTOCAST names a small float dtype.

Products and convolutions (LOWERED) get operands of that dtype; their sums are float32. Exponentials, sums, norms and
losses (WIDENED) get float32 operands. All other methods compute in the dtypes that they get. float64 stays float64.
Source: the lists of torch.autocast.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from monolect.base.dtype import DType, as_dtype, dtypes
from monolect.base.settings import settings
from monolect.tensor.base import TensorBase
from monolect.tensor.methods.families import LateMethod

LOWERED = frozenset(
    "__matmul__ matmul mm bmm mv dot linear addmm addbmm addmv baddbmm einsum tensordot conv1d conv2d conv3d"
    " conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention".split()
)
WIDENED = frozenset(
    "__pow__ __rpow__ __rtruediv__ acos asin cosh sinh tan erfinv exp expm1 log log10 log1p log2 pow reciprocal rsqrt"
    " softplus softmax softmin log_softmax sum prod cumsum cumprod norm cosine_similarity layer_norm group_norm"
    " cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy"
    " binary_cross_entropy_with_logits".split()
)


def _cast(x: Any, dtype: DType) -> Any:
    """Return `x`, a Tensor or a list or tuple of operands, with floats of at most 32 bits cast to `dtype`."""
    if isinstance(x, TensorBase):
        old = x.dtype
        return x.cast(dtype) if old is not dtype and old.is_float and old.bits <= 32 else x
    return type(x)(_cast(part, dtype) for part in x) if x.__class__ in (list, tuple) else x


def _casting(f: Callable[..., Any], is_lowered: bool) -> Callable[..., Any]:
    @wraps(f)
    def method(*args: Any, **kwargs: Any) -> Any:
        if not settings.AUTOCAST:
            return f(*args, **kwargs)
        dtype = as_dtype(settings.AUTOCAST) if is_lowered else dtypes.float32
        return f(*(_cast(a, dtype) for a in args), **{k: _cast(a, dtype) for k, a in kwargs.items()})

    # provenance reports this name
    method.__code__ = method.__code__.replace(co_name=f.__name__)  # type: ignore[attr-defined]
    return method


def autocasting(cls: Any) -> Any:
    """Class decorator: replace the methods of `cls` in LOWERED and WIDENED by ones that cast, and return `cls`."""
    for names, is_lowered in ((LOWERED, True), (WIDENED, False)):
        for name in names:
            found = next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), None)
            if isinstance(found, LateMethod):
                found.change = partial(_casting, is_lowered=is_lowered)
            elif isinstance(found, classmethod):
                setattr(cls, name, classmethod(_casting(found.__func__, is_lowered)))
            elif found is not None:
                setattr(cls, name, _casting(found, is_lowered))
    return cls


__all__ = ["LOWERED", "WIDENED", "autocasting"]
