"""Methods for convolution and its transpose over one, two or three axes: arguments, checks, bias.

What it is for: one n-dimensional path, `graphs.convolution`, serves six methods.

Invariant: outputs have PyTorch's shapes. An input without the batch axis gives an output without it.
Source: names, defaults and shapes of torch.nn.functional.
"""

from __future__ import annotations

from typing import Any, Self

from monolect import graphs
from monolect.autograd import graph as g
from monolect.base.errors import ArgumentError, ShapeError
from monolect.graphs.windows import Ints, as_ints, check_windows, leading_windows, refuse_symbolic
from monolect.ir.uop import UOp
from monolect.runtime.replay.in_progress import is_external_state
from monolect.tensor.base import PerAxis, TensorBase, node_of
from monolect.tensor.guard import guard_methods
from monolect.tensor.neural.pool import PoolMixin


# ---- arguments -------------------------------------------------------------------------------------------------------
def _padding(padding: Any, n: int, kernel: Ints, stride: Ints, dilation: Ints, name: str) -> tuple[Ints, Ints]:
    """Return the numbers of elements added before and after each of n spatial axes.

    `padding`: an int, n ints, "valid" (none) or "same" (the output is as long as the input). `kernel`, `stride` and
    `dilation` have an int for each axis. Raises ArgumentError, which names the method `name`, for another `padding`,
    and for "same" with a stride other than 1.
    """
    if padding == "valid":
        return (0,) * n, (0,) * n
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ArgumentError(f"{name}: padding 'same'", expected="stride 1", found=f"stride {stride}")
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    if isinstance(padding, str):
        raise ArgumentError(f"{name}: padding", expected="an int, ints, 'same' or 'valid'", found=repr(padding))
    p = as_ints(padding, n, f"{name}: padding", 0)
    return p, p


def _check_weight(weight: UOp, channels: int, n: int, groups: int, name: str) -> None:
    """Check the shape of a convolution's weight, (out, channels / groups, n kernel axes), for `channels` input
    channels.

    Raises ArgumentError unless `groups` is an int of at least 1. Raises ShapeError if the weight has another rank or
    number of input channels, or if `groups` does not divide its output channels. `name` is the method in messages.
    """
    if not isinstance(groups, int) or groups < 1:
        raise ArgumentError(f"{name}: groups", expected="an int of at least 1", found=repr(groups))
    if len(weight.shape) != n + 2:
        raise ShapeError(f"{name}: weight", expected=f"(out, in / groups, {n} kernel axes)", found=weight.shape)
    if weight.shape[1] * groups != channels:
        grouped = "" if groups == 1 else f" = {groups} groups * {weight.shape[1]}"
        expected = f"{weight.shape[1] * groups} channels{grouped}, as the weight is {weight.shape}"
        raise ShapeError(f"{name}: the input does not fit the weight", expected=expected, found=f"{channels} channels")
    if weight.shape[0] % groups:
        expected = f"output channels divisible by {groups} groups"
        raise ShapeError(f"{name}: output channels", expected=expected, found=weight.shape[0])


@guard_methods
class ConvMixin(PoolMixin):
    """Methods of Tensor for convolution and, inherited, pooling.

    Every method returns a lazy tensor; windows are views, not copies.
    """

    __slots__ = ()

    def _batched(self, n: int, name: str) -> tuple[UOp, bool]:
        """Return (input, batched): self with a batch axis before channels and n spatial axes, and whether it had one.

        A missing batch axis gets size 1. Raises ShapeError, which names the method `name`, for another rank.
        """
        x = self._uop
        if len(x.shape) not in (n + 1, n + 2):
            raise ShapeError(f"{name}: rank of the input", expected=f"(batch, channels, {n} axes)", found=x.shape)
        return (x, True) if len(x.shape) == n + 2 else (g.reshape(x, (1, *x.shape)), False)

    def _with_bias(self, y: UOp, batched: bool, bias: TensorBase | None, name: str) -> Self:
        """Return the output `y` as a tensor plus `bias`, of shape (channels,), without the batch axis if the input had
        none: then `batched` is False.

        `bias` None adds nothing. Raises ShapeError, which names the method `name`, for another shape of `bias`.
        """
        if not batched:
            y = g.reshape(y, y.shape[1:])
        out = self._wrap(y)
        if bias is None:
            return out
        channels = y.shape[1] if batched else y.shape[0]
        b = node_of(self, bias, name)
        if b.shape != (channels,):
            raise ShapeError(f"{name}: bias", expected=(channels,), found=b.shape)
        rank = len(y.shape) - batched
        return out + bias.reshape(channels, *(1,) * (rank - 1))

    def _conv(
        self, n: int, weight: TensorBase, bias: TensorBase | None, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> Self:
        """Return the convolution over n axes; the other arguments are those of the public methods, such as `conv2d`.

        `stride`, `padding` and `dilation` are an int or n ints, `padding` also "valid" or "same". `bias` may be None.
        """
        name = f"conv{n}d"
        x, batched = self._batched(n, name)
        w = node_of(self, weight, name)
        _check_weight(w, x.shape[1], n, groups, name)
        strides, dilations = as_ints(stride, n, f"{name}: stride", 1), as_ints(dilation, n, f"{name}: dilation", 1)
        before, after = _padding(padding, n, w.shape[2:], strides, dilations, name)
        c = graphs.convolution.ConvGeometry(before, after, strides, dilations, groups)
        outs = check_windows(graphs.convolution.padded(x, c), w.shape[2:], strides, dilations, name)
        axes = range(2, 2 + n)
        weight_cached = not weight.requires_grad and is_external_state(w)
        y = leading_windows(
            graphs.convolution.convolve(g.padded_to_max(x, 0, axes), w, c, weight_cached=weight_cached), axes, outs
        )
        return self._with_bias(y, batched, bias, name)

    def conv1d(
        self,
        weight: TensorBase,
        bias: TensorBase | None = None,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
    ) -> Self:
        """Return the convolution over one axis: (N, Cin, L) with weight (Cout, Cin / groups, K) -> (N, Cout, L').

        `bias` has shape (Cout,); None adds nothing. `padding` is an int, 'valid' or 'same' (stride 1 only). The batch
        axis may be missing. Raises ShapeError for shapes that do not fit, ArgumentError for other values.

        >>> Tensor([[[1.0, 2.0, 3.0]]]).conv1d(Tensor([[[1.0, 1.0]]])).tolist()
        [[[3.0, 5.0]]]
        """
        return self._conv(1, weight, bias, stride, padding, dilation, groups)

    def conv2d(
        self,
        weight: TensorBase,
        bias: TensorBase | None = None,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
    ) -> Self:
        """Return the convolution over two axes: (N, Cin, H, W) with weight (Cout, Cin / groups, Kh, Kw) -> (N, Cout,
        H', W').

        `bias` has shape (Cout,); None adds nothing. `padding` is an int, one int for each axis, 'valid' or 'same'
        (stride 1 only); `stride` and `dilation` are an int or one for each axis. The batch axis may be missing. float16
        and bfloat16 are accumulated in float32. Raises ShapeError for shapes that do not fit, ArgumentError for other
        values of `stride`, `padding`, `dilation` and `groups`.

        >>> Tensor.ones(1, 1, 4, 4).conv2d(Tensor.ones(2, 1, 3, 3), padding=1).shape
        (1, 2, 4, 4)
        """
        return self._conv(2, weight, bias, stride, padding, dilation, groups)

    def conv3d(
        self,
        weight: TensorBase,
        bias: TensorBase | None = None,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
    ) -> Self:
        """Return the convolution over three axes: (N, Cin, D, H, W) with weight (Cout, Cin / groups, Kd, Kh, Kw) -> (N,
        Cout, D', H', W').

        `bias` has shape (Cout,); None adds nothing. `padding` is an int, one int for each axis, 'valid' or 'same'
        (stride 1 only); `stride` and `dilation` are an int or one for each axis. The batch axis may be missing. Raises
        ShapeError for shapes that do not fit, ArgumentError for other values.

        >>> Tensor.ones(1, 1, 2, 2, 2).conv3d(Tensor.ones(1, 1, 2, 2, 2)).tolist()
        [[[[[8.0]]]]]
        """
        return self._conv(3, weight, bias, stride, padding, dilation, groups)

    def _conv_transpose(
        self,
        n: int,
        weight: TensorBase,
        bias: TensorBase | None,
        stride: Any,
        padding: Any,
        extra: Any,
        groups: int,
        dilation: Any,
    ) -> Self:
        """Return the transposed convolution over n axes; its arguments are those of the public methods.

        These are `conv_transpose2d` and its relatives. `extra` is their `output_padding`, and `bias` may be None.
        Raises ShapeError or ArgumentError for values that do not fit.
        """
        name = f"conv_transpose{n}d"
        x, batched = self._batched(n, name)
        w = node_of(self, weight, name)
        if len(w.shape) != n + 2 or w.shape[0] != x.shape[1] or groups < 1 or x.shape[1] % groups:
            expected = f"({x.shape[1]}, out channels / groups, {n} kernel axes), channels divisible by {groups} groups"
            raise ShapeError(f"{name}: weight", expected=expected, found=w.shape)
        s, d = as_ints(stride, n, f"{name}: stride", 1), as_ints(dilation, n, f"{name}: dilation", 1)
        p, e = as_ints(padding, n, f"{name}: padding", 0), as_ints(extra, n, f"{name}: output_padding", 0)
        if any(a >= max(b, c) for a, b, c in zip(e, s, d, strict=True)):
            raise ArgumentError(f"{name}: output_padding", expected="less than stride or dilation", found=e)
        refuse_symbolic(x.shape[2:], name, "int sizes")
        # equivalent to a convolution of the input with zeros between its elements and around it
        dilated = tuple((m - 1) * a + 1 + b for m, a, b in zip(x.shape[2:], s, e, strict=True))
        border = tuple(b * (k - 1) - a for a, b, k in zip(p, d, w.shape[2:], strict=True))
        wide = tuple(m + 2 * a for m, a in zip(dilated, border, strict=True))
        sizes = check_windows(wide, w.shape[2:], (1,) * n, d, name)
        # Geometry of the convolution from the result to the input.
        c = graphs.convolution.ConvGeometry(p, tuple(a - b for a, b in zip(p, e, strict=True)), s, d, groups)
        y = graphs.convolution.convolve_back(x, w, c, sizes)
        return self._with_bias(y, batched, bias, name)

    def conv_transpose1d(
        self,
        weight: TensorBase,
        bias: TensorBase | None = None,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        output_padding: PerAxis = 0,
        groups: int = 1,
        dilation: PerAxis = 1,
    ) -> Self:
        """Return the transpose of `conv1d`: (N, Cin, L) with weight (Cin, Cout / groups, K) -> (N, Cout, L').

        `stride`, `padding` and `dilation` are those of the convolution that is transposed. `output_padding` is added at
        the end of the axis and is less than the stride or the dilation. Raises ShapeError for shapes that do not fit,
        ArgumentError for other values.

        >>> Tensor([[[1.0, 2.0]]]).conv_transpose1d(Tensor([[[1.0, 10.0]]])).tolist()
        [[[1.0, 12.0, 20.0]]]
        """
        return self._conv_transpose(1, weight, bias, stride, padding, output_padding, groups, dilation)

    def conv_transpose2d(
        self,
        weight: TensorBase,
        bias: TensorBase | None = None,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        output_padding: PerAxis = 0,
        groups: int = 1,
        dilation: PerAxis = 1,
    ) -> Self:
        """Return the transpose of `conv2d`: (N, Cin, H, W) with weight (Cin, Cout / groups, Kh, Kw) -> (N, Cout, H',
        W').

        This is the gradient of `conv2d` with respect to its input; `bias`, `stride`, `padding` and `dilation` are those
        of `conv2d`, except that `padding` is no string. `output_padding` is added at the end of each axis and is less
        than the stride or the dilation. Raises ShapeError for shapes that do not fit, ArgumentError for other values.

        >>> Tensor.ones(1, 1, 2, 2).conv_transpose2d(Tensor.ones(1, 1, 2, 2), stride=2).shape
        (1, 1, 4, 4)
        """
        return self._conv_transpose(2, weight, bias, stride, padding, output_padding, groups, dilation)

    def conv_transpose3d(
        self,
        weight: TensorBase,
        bias: TensorBase | None = None,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        output_padding: PerAxis = 0,
        groups: int = 1,
        dilation: PerAxis = 1,
    ) -> Self:
        """Return the transpose of `conv3d`: (N, Cin, D, H, W) with weight (Cin, Cout / groups, Kd, Kh, Kw) -> (N, Cout,
        D', H', W').

        `stride`, `padding` and `dilation` are those of the convolution that is transposed. `output_padding` is added at
        the end of each axis and is less than the stride or the dilation. Raises ShapeError for shapes that do not fit,
        ArgumentError for other values.

        >>> Tensor.ones(1, 1, 1, 1, 2).conv_transpose3d(Tensor.ones(1, 1, 1, 1, 2)).tolist()
        [[[[[1.0, 2.0, 1.0]]]]]
        """
        return self._conv_transpose(3, weight, bias, stride, padding, output_padding, groups, dilation)


__all__ = ["ConvMixin"]
