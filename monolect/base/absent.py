"""Say what to use instead of names of PyTorch that monolect does not have.

What it is for: `x.stride()` or `monolect.fft` raise an AttributeError with a hint, and `hasattr` is False. The page of
names (`monolect torch-parity`) has the same texts.
Invariant: a name that exists has no effect here; rows of ABSENT may stay when a name comes.
"""

from typing import Any, NoReturn

_COMPLEX = "complex numbers are out of scope; keep real and imaginary parts as two tensors"
_FACTORS = "factorisations and solvers of matrices are out of scope; use numpy.linalg on x.numpy()"
_MEMORY = "a lazy tensor has no storage or pointers of its own; use reshape, permute, unfold or contiguous()"
_LAYOUT = "a compiler chooses the layout in memory; leave memory_format out"
_DRAWN = "random numbers come from monolect.random and Tensor.rand, randn, uniform, normal; assign them by x.copy_(...)"
_SPECTRA = "Fourier transforms are out of scope; use numpy.fft on x.numpy()"

# (namespaces, names, hint)
_ROWS: tuple[tuple[str, str, str], ...] = (
    (
        "Tensor monolect dtypes",
        "cdouble cfloat chalf complex imag polar view_as_complex view_as_real complex32 complex64 complex128"
        " __complex__",
        _COMPLEX,
    ),
    (
        "Tensor monolect linalg",
        "cholesky cholesky_ex cholesky_inverse cholesky_solve cond det eig eigh eigvals eigvalsh geqrf"
        " householder_product inv inv_ex inverse ldl_factor ldl_factor_ex ldl_solve lobpcg logdet lstsq lu lu_factor"
        " lu_factor_ex lu_solve lu_unpack matrix_exp matrix_rank nuclear_norm orgqr ormqr pca_lowrank pinv pinverse qr"
        " slogdet solve solve_ex solve_triangular svd svd_lowrank svdvals tensorinv tensorsolve triangular_solve",
        _FACTORS,
    ),
    ("Tensor monolect", "istft stft", _SPECTRA),
    ("monolect", "fft", _SPECTRA),
    (
        "Tensor monolect",
        "as_strided as_strided_scatter data_ptr empty_permuted empty_strided new_empty_strided"
        " storage storage_offset untyped_storage",
        _MEMORY,
    ),
    ("Tensor", "as_strided_ resize_ set_", "a tensor keeps its elements; write x = x.reshape(...) or x = x[...]"),
    ("Tensor", "__delitem__", "a tensor keeps its shape; select the other elements by x[mask]"),
    ("Tensor", "apply_ map_ map2_", "compose methods of all elements, or write a custom_kernel"),
    ("Tensor", "is_ipu cuda ipu xpu", "the device is x.device; move a tensor by x.to(device)"),
    ("monolect", "set_default_dtype set_default_device", "pass dtype= and device=; DEVICE is a setting (Context)"),
    ("monolect", "compile", "monolect.jit"),
    ("monolect", "Size", "a shape is a tuple"),
    ("monolect", "device", "a device is a str, such as 'cpu' or 'cuda:1'"),
    ("monolect", "cuda", "`monolect devices` prints the devices; x.device names that of a tensor"),
    ("monolect", "set_num_threads get_num_threads", "the number of threads is the setting THREADS"),
    ("monolect", "set_printoptions", "print x.numpy() under numpy.printoptions"),
    ("monolect", "distributions", "write the log probability and the entropy as expressions of tensors"),
    ("monolect", "utils", "monolect.data has DataLoader and datasets, monolect.nn.utils.checkpoint has checkpoint"),
    (
        "monolect",
        "FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ShortTensor CharTensor ByteTensor"
        " BoolTensor",
        "monolect.tensor(data, dtype=...), and monolect.empty(sizes, dtype=...)",
    ),
    ("monolect", "get_default_dtype", "a Python float becomes float32, an int int64; pass dtype= for others"),
    ("monolect", "get_rng_state set_rng_state initial_seed", "keep a Generator, or a key of monolect.random.key"),
    ("monolect", "is_autocast_enabled", "pass the dtype to the function, or read that of the result"),
    ("monolect", "channels_last channels_last_3d contiguous_format preserve_format", _LAYOUT),
    ("monolect", "backends", "the settings of monolect are those of monolect.Context"),
    ("monolect", "use_deterministic_algorithms", "results are the same in each run; no setting is needed"),
    ("monolect nn.functional", "relu_ sigmoid_ tanh_ exp_ leaky_relu_ elu_ selu_ celu_ hardtanh_", "x.{0}_()"),
    ("monolect", "fake_quantize_per_tensor_affine", "x + (quantized - x).detach() passes the gradient of x"),
    ("Tensor", "is_cuda is_mps is_cpu", "the device is x.device, a str such as 'cpu'"),
    ("Tensor", "is_sparse is_quantized is_nested is_mkldnn layout", "each tensor is dense"),
    ("Tensor", "new", "x.new_empty(sizes), x.new_tensor(data)"),
    ("Module", "type", "module.to(dtype)"),
    ("Module", "to_empty share_memory", "memory is allocated where values are computed"),
    ("nn", "DataParallel SyncBatchNorm", "monolect.nn.parallel divides batches and parameters over devices"),
    ("nn", "LazyLinear LazyConv1d LazyConv2d LazyConv3d LazyBatchNorm1d LazyBatchNorm2d", "give the sizes"),
    ("nn", "parameter modules", "the classes are those of monolect.nn"),
    ("autograd", "Variable", "monolect.Tensor; gradients flow to those with requires_grad=True"),
    ("autograd", "detect_anomaly set_detect_anomaly", "errors name the line of a value; find nan by x.isnan()"),
    ("autograd", "functional", "monolect.func has jacrev, jacfwd, hessian, vjp and jvp"),
    ("autograd", "backward", "call backward of each output, with retain_graph=True before the last"),
    ("autograd", "Function", "use @monolect.function(gradient=...)"),
    ("Tensor", "grad_fn", "a tensor has no list of functions; monolect explain shows its graph"),
    ("Tensor", "index", "x[indices]"),
    ("Tensor", "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_", _DRAWN),
    ("dtypes", "float8_e4m3fn float8_e5m2", "dtypes.fp8e4m3 and dtypes.fp8e5m2"),
    ("nn", "GRU LSTM RNN", "recurrent layers over a sequence are out of scope; loop over a cell"),
    ("func", "functionalize", "a function of tensors is traced to a graph without writes; call it under jit"),
    ("func", "rearrange", "x.reshape(...) and x.permute(...)"),
    ("func", "debug_unwrap", "a function under vmap gets tensors of one sample; it runs once, so print their shapes"),
    (
        "nn.utils.parametrizations",
        "orthogonal",
        "factorisations of matrices are out of scope; use nn.init.orthogonal_ and a penalty on w.T @ w - 1",
    ),
    (
        "nn.utils.rnn",
        "PackedSequence pack_padded_sequence pack_sequence pad_packed_sequence",
        "recurrent layers over a sequence are out of scope; loop over a cell, and mask steps after the end by where",
    ),
    (
        "Module",
        "register_backward_hook register_full_backward_hook register_full_backward_pre_hook",
        "call register_hook of the values in forward, or of the parameters",
    ),
    ("nn.utils.prune", "PruningContainer", "prune the parameter again: what is left is pruned further"),
    ("optim", "SparseAdam", "there are no sparse gradients here; use optim.Adam"),
    ("Tensor", "__complex__", _COMPLEX),
    ("Tensor", "resize_as_ record_stream pin_memory share_memory_", _MEMORY),
)  # fmt: skip

ABSENT: dict[str, dict[str, str]] = {}
for _spaces, _names, _hint in _ROWS:
    for _space in _spaces.split():
        ABSENT.setdefault(_space, {}).update(
            {_name: _hint.format(_name.rstrip("_") or _name) for _name in _names.split()}
        )


def hint(namespace: str, name: str) -> str:
    """Return the text of the AttributeError for `name` in `namespace`, such as "Tensor" or "nn.functional"."""
    owner = (
        namespace
        if namespace in ("Tensor", "Module")
        else f"module 'monolect.{namespace}'".replace("monolect.monolect", "monolect")
    )
    text = f"{owner} has no attribute {name!r}"
    instead = ABSENT.get(namespace, {}).get(name)
    return text if instead is None else f"{text}; {instead}"


class AbsentName:
    """An attribute of a class that raises AttributeError with a hint, so that `hasattr` is False."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __get__(self, instance: Any, owner: Any = None) -> NoReturn:
        raise AttributeError(self.text)


def mark_absent(cls: Any, namespace: str) -> None:
    """Give the class `cls` an AbsentName for each absent name of `namespace` that it does not have. `dir` of an
    instance does not list them.
    """
    hidden = {name for name in ABSENT[namespace] if not hasattr(cls, name)}
    for name in hidden:
        setattr(cls, name, AbsentName(hint(namespace, name)))
    cls.__dir__ = lambda self: [name for name in object.__dir__(self) if name not in hidden]


__all__ = ["ABSENT", "AbsentName", "hint", "mark_absent"]
