"""Define layers that drop elements or channels while training.

`inplace` is accepted for PyTorch's sake: the result is the same, and the input is not changed.
"""

from __future__ import annotations

from monolect.base.errors import ArgumentError
from monolect.nn.module import Module
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class _Drop(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False):
        if not 0.0 <= p <= 1.0:
            raise ArgumentError(f"{type(self).__name__}: p", expected="a probability, 0 to 1", found=p)
        self.p = p

    def extra_repr(self) -> str:
        """Return the probability as text."""
        return f"p={self.p}"


@guard_methods
class Dropout(_Drop):
    """Set elements to zero with probability `p` while training, and scale the others. See `Tensor.dropout`.

    >>> Dropout(0.5).eval()(Tensor([1.0])).tolist()
    [1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.dropout(self.p, training=self.training)


@guard_methods
class Dropout1d(_Drop):
    """Drop channels of (N, C, L) or (C, L) while training. See `Tensor.dropout1d`.

    >>> Dropout1d(1.0)(Tensor.ones(1, 2, 3)).sum().item()
    0.0
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.dropout1d(self.p, training=self.training)


@guard_methods
class Dropout2d(_Drop):
    """Drop channels of (N, C, H, W) while training. See `Tensor.dropout2d`.

    >>> Dropout2d(1.0)(Tensor.ones(1, 2, 3, 3)).sum().item()
    0.0
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.dropout2d(self.p, training=self.training)


@guard_methods
class Dropout3d(_Drop):
    """Drop channels of (N, C, D, H, W) or (C, D, H, W) while training. See `Tensor.dropout3d`.

    >>> Dropout3d(1.0)(Tensor.ones(1, 2, 3, 3, 3)).sum().item()
    0.0
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.dropout3d(self.p, training=self.training)


@guard_methods
class AlphaDropout(_Drop):
    """Drop elements to the limit of `SELU` while training, keeping mean and variance. See `Tensor.alpha_dropout`.

    >>> AlphaDropout().eval()(Tensor([1.0])).tolist()
    [1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.alpha_dropout(self.p, training=self.training)


@guard_methods
class FeatureAlphaDropout(_Drop):
    """Drop channels of (N, C, ...) as `AlphaDropout` drops elements. See `Tensor.feature_alpha_dropout`.

    >>> FeatureAlphaDropout().eval()(Tensor.ones(1, 2, 3)).sum().item()
    6.0
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.feature_alpha_dropout(self.p, training=self.training)


__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]
