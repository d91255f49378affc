"""Kernels written in the dialect, and native functions: what they compute, in captures too, and what is refused."""

import ctypes

import numpy as np
import pytest

from monolect import Tensor, custom_kernel, dtypes, function, grad, jit, native_function
from monolect.backend.registry import Device
from monolect.base.errors import ArgumentError, CompileError, DeviceError, GradientError, VerifyError
from monolect.command.forms import kernel_of
from monolect.ir.ops import BufferArg, KernelInfo
from monolect.ir.rewrite.normal import within
from monolect.ir.uop import build, idx, node, shape_source
from monolect.pipeline import lower_kernel
from monolect.runtime import profile
from monolect.runtime.realize.execute import plans

POINTERS = ctypes.POINTER(ctypes.POINTER(ctypes.c_float))
NATIVE = ctypes.CFUNCTYPE(None, POINTERS, ctypes.c_int64)


def loop(k, n, kind="LOOP"):
    return build("RANGE", idx(n), arg=(k, kind))


def sink(*stores, name="mine"):
    return build("SINK", *stores, arg=KernelInfo(name))


def row_sums_and_squares(rows, columns):
    """A kernel of two results: the sum of each row, and each element squared."""

    def kernel(sums, squares, x):
        i, j = loop(0, rows), loop(1000, columns, "REDUCE")
        total = build("REDUCE", build("LOAD", build("INDEX", x, i * columns + j)), j, arg=("ADD", ()))
        k = loop(1, rows * columns)
        value = build("LOAD", build("INDEX", x, k))
        return sink(
            build("END", build("STORE", build("INDEX", sums, i), total), i),
            build("END", build("STORE", build("INDEX", squares, k), value * value), k),
        )

    return kernel


@pytest.mark.parametrize("device", ["cpu", "python", "c"])
def test_a_kernel_with_two_results(device: str) -> None:
    if why := Device.present()[device]:
        pytest.skip(f"{device}: {why}")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    out = [((3,), "float32"), ((3, 4), "float32")]
    sums, squares = custom_kernel(row_sums_and_squares(3, 4), Tensor(x, device=device), out=out)
    np.testing.assert_allclose((sums + 1).numpy(), x.sum(1) + 1)
    np.testing.assert_allclose(squares.numpy(), x * x)


def doubled(n):
    def kernel(out, x):
        i = loop(0, n)
        value = build("LOAD", build("INDEX", x, i)) * 2.0
        return sink(build("END", build("STORE", build("INDEX", out, i), value), i))

    return kernel


def with_vectors(out, x):
    """Three times the eight elements of x, which wait in local memory, backwards; the first 21."""
    flat = build("RESHAPE", shape_source(range(8)), shape_source((2, 4)))
    memory = node("BUFFER", (shape_source((8,)),), BufferArg(0, x.dtype, None, "LOCAL"))
    i = loop(0, 3)
    filled = node(
        "AFTER", (memory, node("STORE", (node("INDEX", (memory, flat)), node("LOAD", (node("INDEX", (x, flat)),)))))
    )
    value = node("LOAD", (node("INDEX", (filled, flat)),))
    turned = node("INDEX", (value, shape_source((1, 0)), shape_source((3, 2, 1, 0))))
    low, high = (node("INDEX", (turned, shape_source((k,)))) for k in (0, 1))
    again = build("RESHAPE", node("STACK", (low, high)), shape_source((2, 4)))
    store = node("STORE", (node("INDEX", (out, i * 8 + flat)), again, build("CMPLT", i * 8 + flat, idx(21))))
    return sink(build("END", store, i))


@pytest.mark.parametrize("device", ["cpu", "python", "c"])
def test_a_kernel_written_with_vectors(device: str) -> None:
    """Elements of values are picked by constants, places are proven block by block; equal kernels have results of any
    shape.
    """
    if why := Device.present()[device]:
        pytest.skip(f"{device}: {why}")
    x = np.arange(8, dtype=np.float32)
    for shape in ((21,), (3, 7), (21, 1)):
        got = custom_kernel(with_vectors, Tensor(x, device=device), out=(shape, "float32"))
        np.testing.assert_array_equal(got.numpy(), np.tile(x[::-1], 3)[:21].reshape(shape))


def test_a_kernel_between_methods_alone_and_captured() -> None:
    def f(x):
        return custom_kernel(doubled(4), x.flip(0) + 1, out=((2, 2), "float32")).sum(0)

    step = jit(f)
    for k in range(4):
        x = np.arange(4, dtype=np.float32) + k
        want = ((x[::-1] + 1) * 2).reshape(2, 2).sum(0)
        np.testing.assert_allclose(f(Tensor(x)).numpy(), want)
        np.testing.assert_allclose(step(Tensor(x)).numpy(), want)


def test_a_kernel_runs_once_for_all_its_results_and_is_planned_once() -> None:
    out = [((3,), "float32"), ((3, 4), "float32")]
    kernel = row_sums_and_squares(3, 4)
    planned = []
    for k in range(2):
        results = custom_kernel(kernel, Tensor(np.full((3, 4), k, np.float32)), out=out)
        with profile.Recorder() as ran:
            results[0].realize(results[1])
        assert len(ran) == 1
        planned.append(len(plans))
    assert planned[0] == planned[1]


def test_actions_of_the_users_are_kept() -> None:
    def kernel(out, x):
        i = loop(0, 4)
        store = build("STORE", build("INDEX", out, i), build("LOAD", build("INDEX", x, i)))
        return build("SINK", build("END", store, i), arg=KernelInfo("plain", actions=()))

    def loops(kernel):
        with profile.Recorder() as ran:
            custom_kernel(kernel, Tensor([1.0, 2.0, 3.0, 4.0]), out=((4,), "float32")).realize()
        program = lower_kernel(kernel_of(ran[0].call), Device["cpu"].target)
        return sum(u.op == "RANGE" for u in program.src)

    assert loops(kernel) == 1 and loops(doubled(4)) == 0  # left to the optimizer, it is one vector


def test_a_derivative_comes_from_function() -> None:
    x = Tensor([1.0, 2.0, 3.0])
    make = lambda t: custom_kernel(doubled(3), t, out=((3,), "float32"))  # noqa: E731
    with pytest.raises(GradientError, match="opaque kernel has no derivative"):
        grad(lambda t: make(t + 1).sum())(x)
    with_gradient = function(make, gradient=lambda inputs, grads: grads[0] * 2)
    assert grad(lambda t: (with_gradient(t) * t).sum())(x).tolist() == [4.0, 8.0, 12.0]


# ---- code in the target's language -----------------------------------------------------------------------------------
def with_text(text, n=37):
    def kernel(out, x, y):
        i = loop(0, n)
        operands = tuple(build("LOAD", build("INDEX", p, i)) for p in (x, y))
        value = node("CUSTOM", operands, (text, dtypes.float32, True)) + 1.0
        return sink(build("END", build("STORE", build("INDEX", out, i), value), i))

    return kernel


TEXTS = {
    "cpu": "call float @llvm.copysign.f32(float {0}, float {1})",
    "c": "__builtin_copysignf({0}, {1})",
    "opencl": "copysign({0}, {1})",
    "webgpu": "(abs({0}) * sign({1}))",
}


@pytest.mark.parametrize("device", TEXTS)
def test_code_of_the_users_in_the_language_of_the_target(device: str) -> None:
    if why := Device.present()[device]:
        pytest.skip(f"{device}: {why}")
    x, y = np.random.default_rng(3).standard_normal((2, 37)).astype(np.float32)
    inputs = Tensor(x, device=device), Tensor(y, device=device)
    got = custom_kernel(with_text(TEXTS[device]), *inputs, out=((37,), "float32")).numpy()
    np.testing.assert_allclose(got, np.copysign(x, y) + 1, rtol=1e-5)


@pytest.mark.parametrize(
    "text", ["fadd float {0}, {2}", "fadd float {0}, {name}", "fadd float {0", "no such thing {0}"]
)
def test_code_that_is_none_is_refused_and_the_device_goes_on(text: str) -> None:
    x = Tensor(np.ones(37, np.float32))
    with pytest.raises(CompileError):
        custom_kernel(with_text(text), x, x, out=((37,), "float32")).numpy()
    good = custom_kernel(with_text("fadd float {0}, {1}"), x, x, out=((37,), "float32"))
    assert good.tolist() == [3.0] * 37


# ---- refused kernels -------------------------------------------------------------------------------------------------
def beyond(out, x):
    i = loop(0, 4)
    return sink(build("END", build("STORE", build("INDEX", out, i), build("LOAD", build("INDEX", x, i))), i))


def to_input(out, x):
    i = loop(0, 3)
    return sink(
        build("END", build("STORE", build("INDEX", out, i), build("LOAD", build("INDEX", x, i))), i),
        build("END", build("STORE", build("INDEX", x, i), build("LOAD", build("INDEX", out, i))), i),
    )


def nothing_stored(out, x):
    return sink()


def open_loop(out, x):
    i = loop(0, 3)
    return sink(build("STORE", build("INDEX", out, i), build("LOAD", build("INDEX", x, i))))


def wrong_stage(out, x):
    return sink(node("LINEAR", ()))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (beyond, "not proven to stay inside"),
        (to_input, "stores to its input"),
        (nothing_stored, "without a store to each result"),
        (open_loop, "RANGE that is used outside"),
        (wrong_stage, "is not allowed at stage KERNEL"),
        (lambda out, x: doubled(3)(out, node("PARAM", x.src, x.arg._replace(slot=7))), "not given"),
    ],
)
def test_a_kernel_that_breaks_a_rule_is_refused(kernel, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        custom_kernel(kernel, Tensor([1.0, 2.0, 3.0]), out=((3,), "float32"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(out=3), "out"),
        (dict(out=[]), "out"),
        (dict(out=((0,), "float32")), "shape of a result"),
        (dict(out=((3,), "float32"), inputs=[[1.0]]), "an input"),
        (dict(out=((3,), "float32"), kernel=lambda *_: 3), "returns no kernel"),
        (dict(out=((3,), "float32"), kernel=lambda out: out), "takes other buffers"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, message: str) -> None:
    arguments = {"kernel": doubled(3), "inputs": [Tensor([1.0, 2.0, 3.0])], **arguments}
    with pytest.raises(ArgumentError, match=message):
        custom_kernel(arguments["kernel"], *arguments["inputs"], out=arguments["out"])


# ---- native code -----------------------------------------------------------------------------------------------------
@NATIVE
def add_one(buffers, thread):
    for i in range(3):
        buffers[0][i] = buffers[1][i] + 1 + thread


@pytest.mark.parametrize("code", [add_one, ctypes.cast(add_one, ctypes.c_void_p).value], ids=["pointer", "address"])
def test_native_code_alone_and_captured(code) -> None:
    step = jit(lambda x: native_function(code, x * 2, out=((3,), "float32")) - 1)
    for k in range(4):
        x = np.arange(3, dtype=np.float32) + k
        np.testing.assert_allclose(native_function(code, Tensor(x), out=((3,), "float32")).numpy(), x + 1)
        np.testing.assert_allclose(step(Tensor(x)).numpy(), x * 2)


@pytest.mark.parametrize("bad", [0, -5, True, None, print, "f"], ids=repr)
def test_what_is_no_native_code_is_refused(bad) -> None:
    with pytest.raises(ArgumentError, match="no machine code"):
        native_function(bad, Tensor([1.0]), out=((1,), "float32"))


def test_native_code_needs_a_device_of_this_processor() -> None:
    x = Tensor([1.0, 2.0, 3.0], device="python")
    with pytest.raises(DeviceError, match="does not run this processor's code"):
        native_function(add_one, x, out=((3,), "float32")).numpy()


@pytest.mark.parametrize("d", [np.uint64, np.int64, np.int8])
def test_a_place_from_memory_is_refused_unless_it_is_compared(d) -> None:
    """A cast to an index wraps, and so do sums: a bound from one side is not one from both."""

    def picked(place):
        def kernel(out, x, j):
            i = loop(0, 2)
            v = build("LOAD", build("INDEX", j, i))
            value = build("LOAD", build("INDEX", x, place(v)))
            return sink(build("END", build("STORE", build("INDEX", out, i), value), i))

        numbers = np.array([np.iinfo(d).max, np.iinfo(d).min], d)
        return custom_kernel(kernel, Tensor(np.arange(16, dtype=np.float32)), Tensor(numbers), out=((2,), "float32"))

    def cast(v):
        return build("CAST", v, arg=dtypes.index)

    unchecked = [
        cast,
        lambda v: build("WHERE", cast(v) < 15, cast(v), idx(15)),
        lambda v: cast(v + v),
    ]
    for place in unchecked:
        with pytest.raises(VerifyError, match="is not proven to stay inside"):
            picked(place)
    assert picked(lambda v: build("WHERE", within(cast(v), 0, 16), cast(v), idx(15))).tolist() == (
        [15.0, 0.0] if d is np.uint64 else [15.0, 15.0]
    )
