"""Run the user's kernels: written in the kernel dialect (`custom_kernel`) or as machine code (`native_function`).

What it is for: computations that Tensor methods express poorly. A call is a CALL node, opaque to fusion and gradients.
For a derivative, put it into a `@function(gradient=...)`.
Invariant: a kernel in the dialect is verified before it runs, whatever the settings say. It keeps the rules of its
stage, writes only to its results, and each index is proven to be inside its buffer. Native code is not checked.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

from monolect.autograd.operands import same_device
from monolect.backend.common.host.native import native_functions
from monolect.backend.registry import Device, is_on_disk
from monolect.base.dtype import as_dtype
from monolect.base.errors import ArgumentError, VerifyError
from monolect.ir.check.custom_kernels import admit, check_target, is_variable
from monolect.ir.ops import ParamArg
from monolect.ir.rewrite.calls import stored_slots
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, new_buffer, node, shape_source, toposort
from monolect.tensor.base import DTypeLike, as_device, as_sizes
from monolect.tensor.tensor import Tensor

Result: TypeAlias = "tuple[int | Sequence[int], DTypeLike]"  # (shape, dtype)
Code: TypeAlias = int | Callable[..., Any]  # an address, or a ctypes function pointer
_POINTER: Any = ctypes.CFUNCTYPE(None).__mro__[1]  # base class of all ctypes function pointers


@overload
def custom_kernel(kernel: Callable[..., UOp], *inputs: Tensor, out: Result) -> Tensor: ...
@overload
def custom_kernel(kernel: Callable[..., UOp], *inputs: Tensor, out: list[Result]) -> list[Tensor]: ...
def custom_kernel(kernel: Callable[..., UOp], *inputs: Tensor, out: Result | list[Result]) -> Any:
    """Return the Tensors that one kernel computes; `kernel` writes it in the kernel dialect.

    `out` is (shape, dtype) of the result, or a list of those for several results. A result is undefined until the
    kernel stores it. This function calls `kernel` once, to build the kernel's graph. `kernel` takes a flat PARAM for
    each result, then one for each input, and returns a SINK of stage KERNEL. It uses loops (RANGE, END), INDEX, LOAD,
    STORE, REDUCE and arithmetic.

    The optimizer chooses the schedule, unless the KernelInfo of the SINK names actions. For a kernel that stores
    vectors it chooses only how threads share the loops. A kernel with axis types, SPECIALs or BARRIERs is compiled as
    it is.

    Raises ArgumentError where `kernel` takes another number of arguments or returns no SINK, or `out` is not as above,
    DeviceError for inputs on different devices. Raises VerifyError for a kernel that breaks a rule, stores
    to an input, has an index not proven to be in bounds, or uses features that the device lacks.

    >>> from monolect.ir.ops import KernelInfo
    >>> from monolect.ir.uop import idx
    >>> def twice(out, x):
    ...     i = build("RANGE", idx(3), arg=(0, "LOOP"))
    ...     value = build("LOAD", build("INDEX", x, i)) * 2.0
    ...     store = build("STORE", build("INDEX", out, i), value)
    ...     return build("SINK", build("END", store, i), arg=KernelInfo("twice"))
    >>> custom_kernel(twice, Tensor([1.0, 2.0, 3.0]), out=((3,), "float32")).tolist()
    [2.0, 4.0, 6.0]
    """
    results, device = _results("custom_kernel", inputs, out)
    args = [*results, *(t._uop for t in inputs)]
    params = [_param(k, u, device) for k, u in enumerate(args)]
    try:
        inspect.signature(kernel).bind(*params)
    except TypeError as e:
        expected = f"{len(results)} results and {len(inputs)} inputs as arguments of the function"
        raise ArgumentError("custom_kernel: the function takes other buffers", expected=expected, found=e) from None
    sink = kernel(*params)
    if not isinstance(sink, UOp) or sink.op != "SINK":
        found = sink.op if isinstance(sink, UOp) else repr(sink)[:80]
        raise ArgumentError("custom_kernel: the function returns no kernel", expected="a SINK", found=found)
    _check(sink, params, len(results))
    if not is_on_disk(device):
        check_target(toposort(sink), Device[device].target)
    return _called(sink, results, inputs, out)


@overload
def native_function(code: Code, *inputs: Tensor, out: Result, name: str = "native") -> Tensor: ...
@overload
def native_function(code: Code, *inputs: Tensor, out: list[Result], name: str = "native") -> list[Tensor]: ...
def native_function(code: Code, *inputs: Tensor, out: Result | list[Result], name: str = "native") -> Any:
    """Return the Tensors that the user's machine code computes. It runs on `cpu` and `c`, the devices of this
    processor.

    `code` is the address of a function `void f(void **buffers, int64_t thread)`, or a ctypes function pointer of that
    type. `buffers` holds the results, then the inputs, all contiguous. The function is called with thread 0 when the
    results are computed. `out` is (shape, dtype) of the result, or a list of those for several results. `name` labels
    the code in the IR.

    ctypes prints an exception of a Python callback and does not pass it on; the results then hold the bytes stored so
    far. Raises ArgumentError for a `code` that is no address, an input that is no Tensor or a bad `out`, DeviceError on
    other devices.

    >>> signature = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.POINTER(ctypes.c_float)), ctypes.c_int64)
    >>> def plus_one(buffers, thread):
    ...     buffers[0][0] = buffers[1][0] + 1
    >>> native_function(signature(plus_one), Tensor([41.0]), out=((1,), "float32")).tolist()
    [42.0]
    """
    address = code if isinstance(code, int) else None
    if isinstance(code, _POINTER):
        address = ctypes.cast(code, ctypes.c_void_p).value
    if not address or isinstance(code, bool) or address < 0:
        expected = "the address of a function, or a ctypes function pointer"
        raise ArgumentError("native_function: no machine code", expected=expected, found=repr(code)[:80])
    results, device = _results("native_function", inputs, out)
    key = f"{name}@{address:x}"
    native_functions[key] = (address, code)  # ctypes frees a callback with its last reference
    writes = tuple([_param(k, u, device) for k, u in enumerate(results)])
    return _called(node("CUSTOMFUNCTION", writes, key), results, inputs, out)


def _results(what: str, inputs: Sequence[Any], out: Any) -> tuple[list[UOp], Any]:
    """Return (buffers, device): a new BUFFER for each result that `out` describes, and the device of `inputs`.

    Without inputs the device is the default one. `what` names the function in messages. Raises ArgumentError for an
    input that is no Tensor, for an `out` other than (shape, dtype) or a list of those, and for sizes below 1. Raises
    DeviceError for inputs on different devices.
    """
    for t in inputs:
        if not isinstance(t, Tensor):
            raise ArgumentError(f"{what}: an input", expected="a Tensor", found=repr(t)[:80])
    same_device(*(t._uop for t in inputs))
    device = inputs[0].device if inputs else as_device(None)
    specs = out if isinstance(out, list) else [out]
    if not specs or not all(isinstance(s, tuple) and len(s) == 2 for s in specs):
        raise ArgumentError(f"{what}: out", expected="(shape, dtype), or a list of those", found=repr(out)[:80])
    buffers = []
    for shape, dtype in specs:
        sizes = as_sizes(tuple(shape) if isinstance(shape, tuple | list) else (shape,))
        if not all(isinstance(n, int) and n > 0 for n in sizes):
            raise ArgumentError(f"{what}: shape of a result", expected="sizes above 0", found=sizes)
        buffers.append(new_buffer(sizes, as_dtype(dtype), device))
    return buffers, device


def _param(slot: int, u: UOp, device: Any) -> UOp:
    return node("PARAM", (shape_source((count(u.shape),)),), ParamArg(slot, u.dtype, device, "GLOBAL"))


def _check(sink: UOp, params: list[UOp], n_results: int) -> None:
    admit(sink, [*params, *filter(is_variable, toposort(sink))])
    if inputs := [k for k in stored_slots(sink) if k >= n_results]:
        raise VerifyError("a kernel that stores to its input", op="SINK", expected="a result", found=params[inputs[0]])
    if (stored := stored_slots(sink)) != set(range(n_results)):
        raise VerifyError("a kernel without a store to each result", op="SINK", expected=n_results, found=len(stored))


def _called(body: UOp, results: list[UOp], inputs: Sequence[Tensor], out: Any) -> Any:
    call = node("CALL", (body, *results, *(t._uop for t in inputs)))
    tensors = [Tensor._wrap(build("AFTER", b, call)) for b in results]
    return tensors if isinstance(out, list) else tensors[0]


__all__ = ["custom_kernel", "native_function"]
