"""Names of functions and methods that are imported at their first use; written by `make surface`."""

FUNCTIONS = frozenset(
    """
    abs absolute acos acosh adaptive_avg_pool1d adaptive_max_pool1d add addbmm addcdiv addcmul addmm addmv addr adjoint
    all allclose alpha_dropout amax amin aminmax angle any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh
    argmax argmin argsort argwhere as_tensor asarray asin asinh atan atan2 atanh atleast_1d atleast_2d atleast_3d
    avg_pool1d baddbmm bartlett_window batch_norm bernoulli bilinear binary_cross_entropy_with_logits bincount binomial
    bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman_window block_diag bmm
    broadcast_shapes broadcast_tensors broadcast_to bucketize can_cast cartesian_prod cat cdist ceil celu chain_matmul
    channel_shuffle chunk clamp clamp_max clamp_min clip clone column_stack combinations concat concatenate conj
    conj_physical constant_pad_nd conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d copysign
    corrcoef cos cosh cosine_embedding_loss cosine_similarity count_nonzero cov cross ctc_loss cummax cummin cumprod
    cumsum cumulative_trapezoid deg2rad detach diag diag_embed diagflat diagonal diagonal_scatter diff digamma dist div
    divide dot dropout dsplit dstack einsum embedding embedding_bag empty empty_like eq equal erf erfc erfinv exp exp2
    expm1 eye feature_alpha_dropout feature_dropout finfo fix flatten flip fliplr flipud float_power floor floor_divide
    fmax fmin fmod frac frexp frobenius_norm from_dlpack from_file from_numpy frombuffer full full_like gather gcd ge
    ger gradient greater greater_equal group_norm gt hamming_window hann_window hardshrink heaviside
    hinge_embedding_loss histc histogram histogramdd hsplit hstack hypot i0 igamma igammac iinfo index_add index_copy
    index_fill index_put index_reduce index_select inner instance_norm is_complex is_floating_point is_nonzero
    is_same_size is_signed is_tensor isclose isfinite isin isinf isnan isneginf isposinf isreal kaiser_window kl_div
    kron kthvalue layer_norm lcm ldexp le lerp less less_equal lgamma linspace log log10 log1p log2 log_softmax
    logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logspace logsumexp lt
    manual_seed margin_ranking_loss masked_fill masked_scatter masked_select matmul matrix_power max max_pool1d
    max_pool2d max_pool3d maximum mean median meshgrid min minimum mm mode moveaxis movedim msort mul multinomial
    multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow ne neg negative nextafter nonzero
    nonzero_static norm normal not_equal numel ones ones_like outer pairwise_distance pdist permute pixel_shuffle
    pixel_unshuffle poisson poisson_nll_loss polygamma positive pow prelu prod promote_types put quantile rad2deg rand
    rand_like randint randint_like randn randn_like randperm ravel real reciprocal relu remainder renorm
    repeat_interleave reshape result_type rms_norm roll rot90 round row_stack rrelu rsqrt rsub scalar_tensor scatter
    scatter_add scatter_reduce searchsorted select select_scatter selu sgn sigmoid sign signbit sin sinc sinh
    slice_scatter softmax sort split split_with_sizes sqrt square squeeze stack std std_mean sub subtract sum swapaxes
    swapdims t take take_along_dim tan tanh tensor_split tensordot threshold tile topk trace transpose trapezoid trapz
    tril tril_indices triplet_margin_loss triu triu_indices true_divide trunc unbind unflatten unique unique_consecutive
    unravel_index unsqueeze vander var var_mean vdot vsplit vstack where xlogy zeros zeros_like
    """.split()
)

METHODS = {  # class of methods -> names, separated by spaces
    "monolect.tensor.methods.arrangement.conversions.ConversionsMixin": """
        as_tensor asarray can_cast finfo frombuffer iinfo is_tensor logspace promote_types result_type scalar_tensor
    """,
    "monolect.tensor.methods.arrangement.joins.JoinsMixin": """
        atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod column_stack
        combinations dstack hstack row_stack tril_indices triu_indices unravel_index vstack
    """,
    "monolect.tensor.methods.arrangement.parts.PartsMixin": """
        H __contains__ __reversed__ adjoint constant_pad_nd diag diag_embed diagflat dsplit fliplr flipud hsplit
        is_complex is_nonzero is_same_size is_signed mH ndimension nelement new_empty new_full new_ones new_tensor
        new_zeros ravel repeat_interleave select split_with_sizes sum_to_size tensor_split trace vsplit
    """,
    "monolect.tensor.methods.in_place_forms.arithmetic.ArithmeticForms": """
        add_ addcdiv_ addcmul_ bitwise_and_ bitwise_left_shift_ bitwise_not_ bitwise_or_ bitwise_right_shift_
        bitwise_xor_ div_ divide_ eq_ float_power_ floor_divide_ fmod_ ge_ greater_ greater_equal_ gt_ le_ less_
        less_equal_ logical_and_ logical_not_ logical_or_ logical_xor_ lt_ mul_ multiply_ ne_ neg_ negative_ not_equal_
        pow_ reciprocal_ remainder_ square_ sub_ subtract_ true_divide_
    """,
    "monolect.tensor.methods.in_place_forms.creation.CreationForms": """
        tril_ triu_
    """,
    "monolect.tensor.methods.in_place_forms.elements.ElementsForms": """
        abs_ absolute_ acos_ acosh_ arccos_ arccosh_ arcsin_ arcsinh_ arctan2_ arctan_ arctanh_ asin_ asinh_ atan2_
        atan_ atanh_ ceil_ clamp_ clamp_max_ clamp_min_ clip_ copysign_ cos_ cosh_ deg2rad_ erf_ erfc_ exp2_ exp_ expm1_
        fix_ floor_ frac_ heaviside_ hypot_ lerp_ log10_ log1p_ log2_ log_ logit_ masked_fill_ nan_to_num_ rad2deg_
        round_ rsqrt_ sgn_ sigmoid_ sign_ sin_ sinc_ sinh_ sqrt_ tan_ tanh_ trunc_
    """,
    "monolect.tensor.methods.in_place_forms.indexing.IndexingForms": """
        fill_diagonal_ index_add_ index_copy_ index_fill_ index_put_ index_reduce_ masked_scatter_ put_ scatter_
        scatter_add_ scatter_reduce_
    """,
    "monolect.tensor.methods.in_place_forms.layers.LayersForms": """
        relu_
    """,
    "monolect.tensor.methods.in_place_forms.products.ProductsForms": """
        addbmm_ addmm_ addmv_ addr_ baddbmm_
    """,
    "monolect.tensor.methods.in_place_forms.reductions.ReductionsForms": """
        cumprod_ cumsum_
    """,
    "monolect.tensor.methods.in_place_forms.special_functions.SpecialFunctionsForms": """
        digamma_ erfinv_ i0_ igamma_ igammac_ lgamma_ mvlgamma_ polygamma_ xlogy_
    """,
    "monolect.tensor.methods.in_place_forms.statistics.StatisticsForms": """
        conj_physical_ gcd_ lcm_ ldexp_ nextafter_ renorm_
    """,
    "monolect.tensor.methods.pointwise.bessel.BesselMixin": """
        airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 i0 i0e i1 i1e modified_bessel_i0 modified_bessel_i1
        modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0
    """,
    "monolect.tensor.methods.pointwise.gamma.GammaMixin": """
        digamma lgamma mvlgamma polygamma zeta
    """,
    "monolect.tensor.methods.pointwise.incomplete_gamma.IncompleteGammaMixin": """
        igamma igammac
    """,
    "monolect.tensor.methods.pointwise.normal.NormalMixin": """
        entr erfcx erfinv log_ndtr ndtr ndtri xlog1py xlogy
    """,
    "monolect.tensor.methods.pointwise.numbers.NumbersMixin": """
        angle conj conj_physical fmax fmin frexp gcd isneginf isposinf isreal lcm ldexp logaddexp2 nextafter positive
        real
    """,
    "monolect.tensor.methods.pointwise.polynomials.PolynomialsMixin": """
        chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h
        hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t
        shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w
    """,
    "monolect.tensor.methods.products.added.AddedProductsMixin": """
        addbmm addmm addmv addr baddbmm chain_matmul matrix_power
    """,
    "monolect.tensor.methods.products.norms.NormsMixin": """
        cdist cross dist frobenius_norm ger inner kron linalg_cross linalg_diagonal linalg_norm linalg_vander
        matrix_norm vander vdot vecdot vector_norm
    """,
    "monolect.tensor.methods.scan.ScanMixin": """
        _along _running_extreme cummax cummin cumprod cumsum logcumsumexp
    """,
    "monolect.tensor.methods.selection.counts.CountsMixin": """
        bincount bucketize histc histogram histogramdd isin searchsorted
    """,
    "monolect.tensor.methods.selection.masks.MasksMixin": """
        argwhere masked_scatter masked_select nonzero nonzero_static unique unique_consecutive
    """,
    "monolect.tensor.methods.selection.writes.WritesMixin": """
        diagonal_scatter fill_diagonal index_put index_reduce scatter_reduce select_scatter slice_scatter
    """,
    "monolect.tensor.methods.sort.SortMixin": """
        _checked_count _element_of_rank _flat_elements _largest_number _length _refuse_empty _restored _result _rows
        _sorts_last argsort kthvalue median msort quantile sort topk
    """,
    "monolect.tensor.methods.statistics.differences.DifferencesMixin": """
        cumulative_trapezoid diff gradient trapezoid trapz
    """,
    "monolect.tensor.methods.statistics.samples.SamplesMixin": """
        aminmax corrcoef cov mode nanmean nanmedian nanquantile nansum renorm
    """,
    "monolect.tensor.methods.windows.adaptive.AdaptiveMixin": """
        _adaptive_maxima _adaptive_means _output_sizes adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
        adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    """,
    "monolect.tensor.methods.windows.fold.FoldMixin": """
        channel_shuffle fold im2col pixel_shuffle pixel_unshuffle
    """,
    "monolect.tensor.methods.windows.grid.GridMixin": """
        affine_grid grid_sample
    """,
    "monolect.tensor.methods.windows.interpolate.InterpolateMixin": """
        _new_sizes _resized interpolate upsample upsample_bilinear upsample_nearest
    """,
    "monolect.tensor.methods.windows.signals.SignalsMixin": """
        _window bartlett_window blackman_window hamming_window hann_window kaiser_window
    """,
    "monolect.tensor.methods.windows.unpool.UnpoolMixin": """
        _fractional _lp_pool _max_unpool _starts fractional_max_pool2d fractional_max_pool3d lp_pool1d lp_pool2d
        lp_pool3d max_unpool1d max_unpool2d max_unpool3d
    """,
    "monolect.tensor.neural.alignment.AlignmentMixin": """
        _lengths _padded_targets ctc_loss
    """,
    "monolect.tensor.neural.conv.ConvMixin": """
        _batched _conv _conv_transpose _with_bias conv1d conv2d conv3d conv_transpose1d conv_transpose2d
        conv_transpose3d
    """,
    "monolect.tensor.neural.distance.DistanceMixin": """
        cosine_similarity normalize pairwise_distance pdist
    """,
    "monolect.tensor.neural.drop.DropMixin": """
        _alpha_dropped _drop_channels _kept alpha_dropout dropout1d dropout2d dropout3d feature_alpha_dropout
        feature_dropout gumbel_softmax rrelu
    """,
    "monolect.tensor.neural.gates.GatesMixin": """
        bilinear glu local_response_norm
    """,
    "monolect.tensor.neural.loss.LossMixin": """
        _class_loss _soft_cross_entropy binary_cross_entropy binary_cross_entropy_with_logits cross_entropy huber_loss
        kl_div l1_loss mse_loss nll_loss smooth_l1_loss
    """,
    "monolect.tensor.neural.margins.MarginsMixin": """
        cosine_embedding_loss gaussian_nll_loss hinge_embedding_loss linear_cross_entropy margin_ranking_loss
        multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss poisson_nll_loss soft_margin_loss
        triplet_margin_loss triplet_margin_with_distance_loss
    """,
    "monolect.tensor.neural.norm.NormMixin": """
        _batch_normalized _normalized _trailing _wide batch_norm dropout group_norm instance_norm layer_norm rms_norm
    """,
    "monolect.tensor.neural.pool.PoolMixin": """
        _avg_pool _max_pool _pooled avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d
    """,
    "monolect.tensor.neural.tables.TablesMixin": """
        _bags _renormalize _shares _uses embedding embedding_bag
    """,
}


__all__ = ["FUNCTIONS", "METHODS"]
