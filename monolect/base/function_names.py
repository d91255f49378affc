"""Names of the functions of tensors in `monolect`, which are imported late; written by `make surface`."""

FUNCTIONS = frozenset(
    """
    abs absolute acos acosh adaptive_avg_pool1d adaptive_max_pool1d add addcdiv addcmul all allclose amax amin any
    arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort asin asinh atan atan2 atanh
    avg_pool1d batch_norm bernoulli binary_cross_entropy_with_logits bitwise_and bitwise_left_shift bitwise_not
    bitwise_or bitwise_right_shift bitwise_xor bmm broadcast_to cat ceil celu chunk clamp clamp_max clamp_min clip clone
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d copysign cos cosh count_nonzero cummax
    cummin cumprod cumsum deg2rad detach diagonal div divide dot dropout einsum embedding empty empty_like eq equal erf
    erfc exp exp2 expm1 eye fix flatten flip float_power floor floor_divide fmod frac from_dlpack from_file from_numpy
    full full_like gather ge greater greater_equal group_norm gt hardshrink heaviside hypot index_add index_copy
    index_fill index_select instance_norm is_floating_point isclose isfinite isinf isnan kl_div kthvalue layer_norm le
    lerp less less_equal linspace log log10 log1p log2 log_softmax logaddexp logcumsumexp logical_and logical_not
    logical_or logical_xor logit logsumexp lt manual_seed masked_fill matmul max max_pool1d max_pool2d max_pool3d
    maximum mean median meshgrid min minimum mm moveaxis movedim msort mul multinomial multiply mv nan_to_num narrow ne
    neg negative norm normal not_equal numel ones ones_like outer permute pow prelu prod put quantile rad2deg rand
    rand_like randint randint_like randn randn_like randperm reciprocal relu remainder repeat_interleave reshape
    rms_norm roll rot90 round rsqrt rsub scatter scatter_add selu sgn sigmoid sign signbit sin sinc sinh softmax sort
    split sqrt square squeeze stack std std_mean sub subtract sum swapaxes swapdims t take take_along_dim tan tanh
    tensordot threshold tile topk transpose tril triu true_divide trunc unbind unflatten unsqueeze var var_mean where
    zeros zeros_like
    """.split()
)


__all__ = ["FUNCTIONS"]
