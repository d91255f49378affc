"""Names of the functions of tensors in `monolect`, which are imported late; written by `make surface`."""

FUNCTIONS = frozenset(
    """
    abs absolute acos acosh adaptive_avg_pool1d adaptive_max_pool1d add addbmm addcdiv addcmul addmm addmv addr adjoint
    all allclose alpha_dropout amax amin aminmax angle any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh
    argmax argmin argsort argwhere asin asinh atan atan2 atanh atleast_1d atleast_2d atleast_3d avg_pool1d baddbmm
    batch_norm bernoulli bilinear binary_cross_entropy_with_logits bincount bitwise_and bitwise_left_shift bitwise_not
    bitwise_or bitwise_right_shift bitwise_xor block_diag bmm broadcast_shapes broadcast_tensors broadcast_to bucketize
    cartesian_prod cat cdist ceil celu chain_matmul channel_shuffle chunk clamp clamp_max clamp_min clip clone
    column_stack combinations concat concatenate conj conj_physical conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d copysign corrcoef cos cosh cosine_embedding_loss cosine_similarity count_nonzero
    cov cross ctc_loss cummax cummin cumprod cumsum cumulative_trapezoid deg2rad detach diag diag_embed diagflat
    diagonal diagonal_scatter diff digamma dist div divide dot dropout dsplit dstack einsum embedding embedding_bag
    empty empty_like eq equal erf erfc erfinv exp exp2 expm1 eye feature_alpha_dropout fix flatten flip fliplr flipud
    float_power floor floor_divide fmax fmin fmod frac frexp from_dlpack from_file from_numpy full full_like gather gcd
    ge ger gradient greater greater_equal group_norm gt hardshrink heaviside hinge_embedding_loss histc histogram hsplit
    hstack hypot i0 index_add index_copy index_fill index_put index_reduce index_select inner instance_norm is_complex
    is_floating_point is_nonzero is_same_size is_signed isclose isfinite isin isinf isnan isneginf isposinf isreal
    kl_div kron kthvalue layer_norm lcm ldexp le lerp less less_equal lgamma linspace log log10 log1p log2 log_softmax
    logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logsumexp lt manual_seed
    margin_ranking_loss masked_fill masked_scatter masked_select matmul matrix_power max max_pool1d max_pool2d
    max_pool3d maximum mean median meshgrid min minimum mm mode moveaxis movedim msort mul multinomial multiply mv
    mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow ne neg negative nextafter nonzero norm normal
    not_equal numel ones ones_like outer pairwise_distance pdist permute pixel_shuffle pixel_unshuffle poisson
    poisson_nll_loss polygamma positive pow prelu prod put quantile rad2deg rand rand_like randint randint_like randn
    randn_like randperm ravel reciprocal relu remainder renorm repeat_interleave reshape rms_norm roll rot90 round
    row_stack rrelu rsqrt rsub scatter scatter_add scatter_reduce searchsorted select select_scatter selu sgn sigmoid
    sign signbit sin sinc sinh slice_scatter softmax sort split split_with_sizes sqrt square squeeze stack std std_mean
    sub subtract sum swapaxes swapdims t take take_along_dim tan tanh tensor_split tensordot threshold tile topk trace
    transpose trapezoid trapz tril tril_indices triplet_margin_loss triu triu_indices true_divide trunc unbind unflatten
    unique unique_consecutive unravel_index unsqueeze vander var var_mean vdot vsplit vstack where xlogy zeros
    zeros_like
    """.split()
)


__all__ = ["FUNCTIONS"]
