"""Store the dense names of PyTorch 2.13, by namespace: the list that the surface of monolect is compared with.

What it is for: `monolect torch-parity` and the generator of functions and in-place forms read it, so neither imports
PyTorch. Left out are sparse, quantised, nested and named tensors, storages, compilers, and what PyTorch keeps private.
"""

# namespace of monolect -> names of PyTorch there
NAMES: dict[str, tuple[str, ...]] = {
    "Tensor": tuple(
        """
H T abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr adjoint all allclose amax amin aminmax
angle any arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere as_strided
as_strided_scatter asin asinh atan atan2 atanh backward baddbmm bernoulli bfloat16 bincount bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm bool broadcast_to byte cdouble
ceil cfloat chalf char cholesky cholesky_inverse cholesky_solve chunk clamp clamp_max clamp_min clip clone
conj conj_physical contiguous copysign corrcoef cos cosh count_nonzero cov cpu cross cummax cummin cumprod
cumsum deg2rad det detach device diag diag_embed diagflat diagonal diagonal_scatter diff digamma dim dist div
divide dot double dsplit dtype eig element_size eq equal erf erfc erfinv exp exp2 expand expand_as expm1 fix
flatten flip fliplr flipud float float_power floor floor_divide fmax fmin fmod frac frexp gather gcd ge geqrf
ger grad greater greater_equal gt half hardshrink heaviside histc histogram hsplit hypot i0 igamma igammac
imag index index_add index_copy index_fill index_put index_reduce index_select inner int inverse is_complex
is_contiguous is_floating_point is_ipu is_nonzero is_same_size is_signed isclose isfinite isinf isnan isneginf
isposinf isreal istft item kron kthvalue lcm ldexp le lerp less less_equal lgamma log log10 log1p log2
log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not logical_or logical_xor logit
logsumexp long lstsq lt lu lu_solve mH mT masked_fill masked_scatter masked_select matmul matrix_exp
matrix_power max maximum mean median min minimum mm mode moveaxis movedim msort mul multinomial multiply mv
mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow nbytes ndim ndimension ne neg negative
nelement new_empty new_empty_strided new_full new_ones new_tensor new_zeros nextafter nonzero nonzero_static
norm not_equal numel numpy orgqr ormqr outer permute pinverse polygamma positive pow prelu prod put qr
quantile rad2deg ravel real reciprocal relu remainder renorm repeat repeat_interleave requires_grad
requires_grad_ reshape reshape_as roll rot90 round rsqrt scatter scatter_add scatter_reduce select
select_scatter sgn shape short sigmoid sign signbit sin sinc sinh size slice_scatter slogdet softmax solve
sort split split_with_sizes sqrt square squeeze std stft stride sub subtract sum sum_to_size svd swapaxes
swapdims t take take_along_dim tan tanh tensor_split tile to tolist topk trace transpose triangular_solve tril
triu true_divide trunc type type_as unbind unflatten unfold unique unique_consecutive unsqueeze var vdot view
view_as vsplit where xlogy
""".split()
    ),
    "Tensor in place": tuple(
        """
abs_ absolute_ acos_ acosh_ add_ addbmm_ addcdiv_ addcmul_ addmm_ addmv_ addr_ arccos_ arccosh_ arcsin_
arcsinh_ arctan2_ arctan_ arctanh_ asin_ asinh_ atan2_ atan_ atanh_ baddbmm_ bernoulli_ bitwise_and_
bitwise_left_shift_ bitwise_not_ bitwise_or_ bitwise_right_shift_ bitwise_xor_ cauchy_ ceil_ clamp_ clamp_max_
clamp_min_ clip_ conj_physical_ copy_ copysign_ cos_ cosh_ cumprod_ cumsum_ deg2rad_ digamma_ div_ divide_ eq_
erf_ erfc_ erfinv_ exp2_ exp_ expm1_ exponential_ fill_ fill_diagonal_ fix_ float_power_ floor_ floor_divide_
fmod_ frac_ gcd_ ge_ geometric_ greater_ greater_equal_ gt_ heaviside_ hypot_ i0_ igamma_ igammac_ index_add_
index_copy_ index_fill_ index_put_ index_reduce_ lcm_ ldexp_ le_ lerp_ less_ less_equal_ lgamma_ log10_ log1p_
log2_ log_ log_normal_ logical_and_ logical_not_ logical_or_ logical_xor_ logit_ lt_ masked_fill_
masked_scatter_ mul_ multiply_ mvlgamma_ nan_to_num_ ne_ neg_ negative_ nextafter_ normal_ not_equal_
polygamma_ pow_ put_ rad2deg_ random_ reciprocal_ relu_ remainder_ renorm_ round_ rsqrt_ scatter_ scatter_add_
scatter_reduce_ sgn_ sigmoid_ sign_ sin_ sinc_ sinh_ sqrt_ square_ squeeze_ sub_ subtract_ swapaxes_ swapdims_
t_ tan_ tanh_ transpose_ tril_ triu_ true_divide_ trunc_ uniform_ unsqueeze_ xlogy_ zero_
""".split()
    ),
    "operators of Tensor": tuple(
        """
__abs__ __add__ __and__ __array__ __bool__ __complex__ __contains__ __deepcopy__ __delitem__ __dir__
__dlpack__ __dlpack_device__ __eq__ __float__ __floordiv__ __format__ __ge__ __getitem__ __gt__ __hash__
__iadd__ __iand__ __ifloordiv__ __ilshift__ __imod__ __imul__ __index__ __int__ __invert__ __ior__ __ipow__
__irshift__ __isub__ __iter__ __itruediv__ __ixor__ __le__ __len__ __lshift__ __lt__ __matmul__ __mod__
__mul__ __ne__ __neg__ __or__ __pos__ __pow__ __radd__ __rand__ __reversed__ __rfloordiv__ __rlshift__
__rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__ __rxor__
__setitem__ __sub__ __truediv__ __xor__
""".split()
    ),
    "monolect": tuple(
        """
abs absolute acos acosh adaptive_avg_pool1d adaptive_max_pool1d add addbmm addcdiv addcmul addmm addmv addr
adjoint all allclose alpha_dropout amax amin aminmax angle any arange arccos arccosh arcsin arcsinh arctan
arctan2 arctanh argmax argmin argsort argwhere as_strided as_strided_scatter as_tensor asarray asin asinh atan
atan2 atanh atleast_1d atleast_2d atleast_3d avg_pool1d baddbmm bartlett_window batch_norm bernoulli bilinear
binary_cross_entropy_with_logits bincount binomial bitwise_and bitwise_left_shift bitwise_not bitwise_or
bitwise_right_shift bitwise_xor blackman_window block_diag bmm broadcast_shapes broadcast_tensors broadcast_to
bucketize can_cast cartesian_prod cat cdist ceil celu chain_matmul channel_shuffle cholesky cholesky_inverse
cholesky_solve chunk clamp clamp_max clamp_min clip clone column_stack combinations complex concat concatenate
conj conj_physical constant_pad_nd conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
copysign corrcoef cos cosh cosine_embedding_loss cosine_similarity count_nonzero cov cross ctc_loss cummax
cummin cumprod cumsum cumulative_trapezoid deg2rad det detach diag diag_embed diagflat diagonal
diagonal_scatter diff digamma dist div divide dot dropout dsplit dstack eig einsum embedding embedding_bag
empty empty_like empty_permuted empty_strided enable_grad eq equal erf erfc erfinv exp exp2 expm1 eye
feature_alpha_dropout feature_dropout finfo fix flatten flip fliplr flipud float_power floor floor_divide fmax
fmin fmod frac frexp frobenius_norm from_dlpack from_file from_numpy frombuffer full full_like gather gcd ge
geqrf ger gradient greater greater_equal group_norm gt hamming_window hann_window hardshrink heaviside
hinge_embedding_loss histc histogram histogramdd hsplit hstack hypot i0 igamma igammac iinfo imag index_add
index_copy index_fill index_put index_reduce index_select inference_mode inner instance_norm inverse
is_complex is_floating_point is_grad_enabled is_nonzero is_same_size is_signed is_tensor isclose isfinite isin
isinf isnan isneginf isposinf isreal istft kaiser_window kl_div kron kthvalue layer_norm lcm ldexp le lerp
less less_equal lgamma linspace load lobpcg log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp
logdet logical_and logical_not logical_or logical_xor logit logspace logsumexp lstsq lt lu lu_solve lu_unpack
manual_seed margin_ranking_loss masked_fill masked_scatter masked_select matmul matrix_exp matrix_power max
max_pool1d max_pool2d max_pool3d maximum mean median meshgrid min minimum mm mode moveaxis movedim msort mul
multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow ne neg negative
nextafter no_grad nonzero nonzero_static norm normal not_equal nuclear_norm numel ones ones_like orgqr ormqr
outer pairwise_distance pca_lowrank pdist permute pinverse pixel_shuffle pixel_unshuffle poisson
poisson_nll_loss polar polygamma positive pow prelu prod promote_types put qr quantile rad2deg rand rand_like
randint randint_like randn randn_like randperm ravel real reciprocal relu remainder renorm repeat_interleave
reshape result_type rms_norm roll rot90 round row_stack rrelu rsqrt rsub save scalar_tensor scatter
scatter_add scatter_reduce searchsorted select select_scatter selu set_grad_enabled sgn sigmoid sign signbit
sin sinc sinh slice_scatter slogdet softmax solve sort split split_with_sizes sqrt square squeeze stack std
std_mean stft sub subtract sum svd svd_lowrank swapaxes swapdims t take take_along_dim tan tanh tensor
tensor_split tensordot threshold tile topk trace transpose trapezoid trapz triangular_solve tril tril_indices
triplet_margin_loss triu triu_indices true_divide trunc unbind unflatten unique unique_consecutive
unravel_index unsqueeze vander var var_mean vdot view_as_complex view_as_real vsplit vstack where xlogy zeros
zeros_like
""".split()
    ),
    "nn.functional": tuple(
        """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
adaptive_max_pool3d affine_grid alpha_dropout avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear
binary_cross_entropy binary_cross_entropy_with_logits celu channel_shuffle conv1d conv2d conv3d
conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity cross_entropy
ctc_loss dropout dropout1d dropout2d dropout3d elu embedding embedding_bag feature_alpha_dropout fold
fractional_max_pool2d fractional_max_pool3d gaussian_nll_loss gelu glu grid_sample group_norm gumbel_softmax
hardshrink hardsigmoid hardswish hardtanh hinge_embedding_loss huber_loss instance_norm interpolate kl_div
l1_loss layer_norm leaky_relu linear linear_cross_entropy local_response_norm log_softmax logsigmoid lp_pool1d
lp_pool2d lp_pool3d margin_ranking_loss max_pool1d max_pool2d max_pool3d max_unpool1d max_unpool2d
max_unpool3d mish mse_loss multi_head_attention_forward multi_margin_loss multilabel_margin_loss
multilabel_soft_margin_loss nll_loss normalize one_hot pad pairwise_distance pdist pixel_shuffle
pixel_unshuffle poisson_nll_loss prelu relu relu6 rms_norm rrelu scaled_dot_product_attention selu sigmoid
silu smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink softsign tanh tanhshrink threshold
triplet_margin_loss triplet_margin_with_distance_loss unfold upsample upsample_bilinear upsample_nearest
""".split()
    ),
    "special": tuple(
        """
airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u
chebyshev_polynomial_v chebyshev_polynomial_w digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammainc
gammaincc gammaln hermite_polynomial_h hermite_polynomial_he i0 i0e i1 i1e laguerre_polynomial_l
legendre_polynomial_p log1p log_ndtr log_softmax logit logsumexp modified_bessel_i0 modified_bessel_i1
modified_bessel_k0 modified_bessel_k1 multigammaln ndtr ndtri polygamma psi round scaled_modified_bessel_k0
scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w sinc softmax spherical_bessel_j0 xlog1py xlogy
zeta
""".split()
    ),
    "linalg": tuple(
        """
cholesky cholesky_ex cond cross det diagonal eig eigh eigvals eigvalsh householder_product inv inv_ex
ldl_factor ldl_factor_ex ldl_solve lstsq lu lu_factor lu_factor_ex lu_solve matmul matrix_exp matrix_norm
matrix_power matrix_rank multi_dot norm pinv qr slogdet solve solve_ex solve_triangular svd svdvals tensorinv
tensorsolve vander vecdot vector_norm
""".split()
    ),
    "nn": tuple(
        """
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveLogSoftmaxWithLoss AdaptiveMaxPool1d
AdaptiveMaxPool2d AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool2d AvgPool3d BCELoss BCEWithLogitsLoss
BatchNorm1d BatchNorm2d BatchNorm3d Bilinear CELU CTCLoss ChannelShuffle CircularPad1d CircularPad2d
CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d
ConvTranspose3d CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss Dropout Dropout1d Dropout2d Dropout3d
ELU Embedding EmbeddingBag FeatureAlphaDropout Flatten Fold FractionalMaxPool2d FractionalMaxPool3d GELU GLU
GRU GRUCell GaussianNLLLoss GroupNorm Hardshrink Hardsigmoid Hardswish Hardtanh HingeEmbeddingLoss HuberLoss
Identity InstanceNorm1d InstanceNorm2d InstanceNorm3d KLDivLoss L1Loss LPPool1d LPPool2d LPPool3d LSTM
LSTMCell LayerNorm LeakyReLU Linear LinearCrossEntropyLoss LocalResponseNorm LogSigmoid LogSoftmax MSELoss
MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d Mish Module ModuleDict
ModuleList MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss MultiheadAttention NLLLoss PReLU
PairwiseDistance ParameterDict ParameterList PixelShuffle PixelUnshuffle PoissonNLLLoss RMSNorm RNN RNNCell
RReLU ReLU ReLU6 ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d
ReplicationPad3d SELU Sequential SiLU Sigmoid SmoothL1Loss SoftMarginLoss Softmax Softmax2d Softmin Softplus
Softshrink Softsign Tanh Tanhshrink Threshold Transformer TransformerDecoder TransformerDecoderLayer
TransformerEncoder TransformerEncoderLayer TripletMarginLoss TripletMarginWithDistanceLoss Unflatten Unfold
Upsample UpsamplingBilinear2d UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d
""".split()
    ),
    "nn.init": tuple(
        """
constant_ dirac_ eye_ kaiming_normal_ kaiming_uniform_ normal_ ones_ orthogonal_ sparse_ trunc_normal_
uniform_ xavier_normal_ xavier_uniform_ zeros_
""".split()
    ),
    "nn.utils": tuple(
        """
clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ fusion get_total_norm parameters_to_vector parametrize
prune rnn skip_init spectral_norm stateless vector_to_parameters weight_norm
""".split()
    ),
    "nn.utils.fusion": tuple(
        "fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights".split()
    ),
    "nn.utils.parametrizations": ("orthogonal", "spectral_norm", "weight_norm"),
    "nn.utils.parametrize": tuple(
        """
ParametrizationList cached is_parametrized register_parametrization remove_parametrizations
transfer_parametrizations_and_params type_before_parametrizations
""".split()
    ),
    "nn.utils.prune": tuple(
        """
BasePruningMethod CustomFromMask Identity L1Unstructured LnStructured PruningContainer RandomStructured
RandomUnstructured custom_from_mask global_unstructured identity is_pruned l1_unstructured ln_structured
random_structured random_unstructured remove
""".split()
    ),
    "autograd": ("Function", "backward", "grad"),
    "func": tuple(
        """
debug_unwrap functional_call functionalize grad grad_and_value hessian jacfwd jacrev jvp linearize rearrange
replace_all_batch_norm_modules_ stack_module_state vjp vmap
""".split()
    ),
    "optim": tuple(
        """
ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam Optimizer RAdam RMSprop Rprop SGD
SparseAdam
""".split()
    ),
    "optim.lr_scheduler": tuple(
        """
ChainedScheduler ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR ExponentialLR LRScheduler
LambdaLR LinearLR MultiStepLR MultiplicativeLR OneCycleLR PolynomialLR ReduceLROnPlateau SequentialLR StepLR
""".split()
    ),
    "fft": tuple(
        """
fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft irfft2
irfftn rfft rfft2 rfftfreq rfftn
""".split()
    ),
    "dtypes": tuple(
        """
bfloat16 bool complex128 complex32 complex64 float16 float32 float4_e2m1fn_x2 float64 float8_e4m3fn
float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu int16 int32 int64 int8 uint16 uint32 uint64 uint8
""".split()
    ),
}

# namespace -> functions of PyTorch there that take `out=`
TAKES_OUT: dict[str, tuple[str, ...]] = {
    "monolect": tuple(
        """
abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr all amax amin aminmax angle any arange
arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort asin asinh atan atan2 atanh baddbmm
bernoulli bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm bucketize
cat ceil chain_matmul cholesky cholesky_inverse cholesky_solve clamp clamp_max clamp_min clip column_stack
complex concat concatenate conj_physical copysign cos cosh cross cummax cummin cumprod cumsum deg2rad diag
diff digamma div divide dot dstack empty eq erf erfc erfinv exp exp2 expm1 eye fix float_power floor
floor_divide fmax fmin fmod frac frexp full gather gcd ge geqrf ger greater greater_equal gt hardshrink
heaviside histc histogram hstack hypot i0 igamma igammac index_add index_copy index_reduce index_select inner
inverse isin isneginf isposinf kron kthvalue lcm ldexp le lerp less less_equal lgamma linspace log log10 log1p
log2 logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logspace logsumexp
lstsq lt lu_solve lu_unpack masked_select matmul matrix_power max maximum mean median min minimum mm mode
msort mul multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum ne neg negative
nextafter nonzero norm normal not_equal nuclear_norm ones orgqr ormqr outer polar polygamma pow prod qr
quantile rad2deg rand randint randn randperm reciprocal remainder renorm round row_stack rsqrt scatter
searchsorted sgn sigmoid sign signbit sin sinc sinh slice_scatter slogdet solve sort sqrt square stack std sub
subtract sum svd take take_along_dim tan tanh tensordot topk triangular_solve tril triu true_divide trunc var
vdot vstack where xlogy zeros
""".split()
    ),
    "nn.functional": tuple(
        """
gelu hardshrink linear logsigmoid normalize softplus softshrink
""".split()
    ),
    "special": tuple(
        """
airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u
chebyshev_polynomial_v chebyshev_polynomial_w digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammainc
gammaincc gammaln hermite_polynomial_h hermite_polynomial_he i0 i0e i1 i1e laguerre_polynomial_l
legendre_polynomial_p log1p log_ndtr logit logsumexp modified_bessel_i0 modified_bessel_i1 modified_bessel_k0
modified_bessel_k1 multigammaln ndtr ndtri polygamma psi round scaled_modified_bessel_k0
scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w sinc spherical_bessel_j0 xlog1py xlogy zeta
""".split()
    ),
    "linalg": tuple(
        """
cholesky cholesky_ex cond cross det eig eigh eigvals eigvalsh householder_product inv inv_ex ldl_factor
ldl_factor_ex ldl_solve lstsq lu lu_factor lu_factor_ex lu_solve matmul matrix_norm matrix_power matrix_rank
multi_dot norm pinv qr slogdet solve solve_ex solve_triangular svd svdvals tensorinv tensorsolve vecdot
vector_norm
""".split()
    ),
}

__all__ = ["NAMES", "TAKES_OUT"]
