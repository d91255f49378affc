"""The rules of the op table where a node is built, verified or run: legal graphs get their meaning, others an error."""

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect import Context, Tensor, custom_kernel, dtypes, function, grad, jit
from monolect.backend.registry import Device
from monolect.base.errors import CompileError, DeviceError, IRError, ParseError, VerifyError
from monolect.cli import main
from monolect.ir.check.interp import evaluate
from monolect.ir.check.verify import verify
from monolect.ir.ops import BufferArg, LoadArg, ParamArg, Stage
from monolect.ir.placement import axis
from monolect.ir.text import parse, show
from monolect.ir.uop import UOp, build, const, idx, node, shape_source, substitute
from monolect.pipeline import schedule
from monolect.runtime.realize import programs
from monolect.runtime.realize.execute import plans
from monolect.tensor.variable import Variable
from tests.unit.hand_kernels import EIGHT, F32, PROCESSORS, at, in_groups, load, loop, on, part, run, sink, tensor

FOUR = ("a", "b", "c", "d")


# ---- STORE and LOAD --------------------------------------------------------------------------------------------------
PLACE = node("BUFFER", (shape_source((2, 3)),), BufferArg(0, F32, "cpu"))


@pytest.mark.parametrize("op", ["STORE", "ATOMICADD"])
def test_a_store_has_the_dtype_and_the_shape_of_its_place(op: str) -> None:
    for shape in ((), (3,), (1, 3), (2, 1), (2, 3)):
        node(op, (PLACE, node("BUFFER", (shape_source(shape),), BufferArg(1, F32, "cpu"))))
    for shape in ((2,), (6,), (3, 3), (1, 2, 3), (2, 3, 1)):
        with pytest.raises(IRError, match="another shape than the memory") as e:
            node(op, (PLACE, node("BUFFER", (shape_source(shape),), BufferArg(1, F32, "cpu"))))
        assert e.value.expected == "(2, 3)" and e.value.found == str(shape)
    with pytest.raises(IRError, match="another dtype than the memory") as e:
        node(op, (PLACE, const(1, dtypes.int32)))
    assert (e.value.expected, e.value.found) == ("float32", "int32")
    with pytest.raises(IRError, match="no condition"):
        node(op, (PLACE, const(1.0, F32), const(1, dtypes.int32)))


def test_a_load_has_an_alternative_of_its_dtype_and_a_gate() -> None:
    with pytest.raises(IRError, match="another dtype than the memory"):
        node("LOAD", (PLACE, const(1, dtypes.int32), const(True, dtypes.bool)))
    with pytest.raises(IRError, match="no condition"):
        node("LOAD", (PLACE, const(1.0, F32), const(1.0, F32)))


def test_a_kind_of_store_that_does_not_exist() -> None:
    with pytest.raises(IRError, match="unknown kind of store"):
        node("STORE", (PLACE, const(1.0, F32)), "twice")


def test_address_spaces_are_known_by_name() -> None:
    for wrong in ("SHARED", "", 3):
        with pytest.raises(IRError, match="unknown address space") as e:
            node("BUFFER", (shape_source((2,)),), BufferArg(0, F32, "cpu", wrong))
        assert e.value.expected == "one of GLOBAL, LOCAL, REG"
        with pytest.raises(IRError, match="unknown address space"):
            node("PARAM", (shape_source((2,)),), ParamArg(0, F32, "cpu", wrong))
        with pytest.raises(IRError, match="unknown address space"):
            node("LOAD", (PLACE,), LoadArg("cpu", wrong))


def test_text_that_breaks_a_rule_does_not_parse() -> None:
    text = show(node("STORE", (PLACE, const(1.0, F32))))
    for old, new in (("(1.0, f32)", "(1, i32)"), ("CONST f32", "CONST i32"), ('"cpu")', '"cpu", addrspace="TEXTURE")')):
        text = text.replace(old, new) if old != "CONST f32" else text.replace("CONST f32", "CONST i32")
        with pytest.raises(ParseError):
            parse(text)


def test_a_kernel_that_stores_integers_into_floats_is_refused_where_it_is_built() -> None:
    def kernel(out, x):
        i = loop(0, 4)
        value = build("CAST", build("LOAD", build("INDEX", x, i)), arg=dtypes.int32)
        return sink(build("END", build("STORE", build("INDEX", out, i), value), i))

    with pytest.raises(IRError, match="another dtype"):
        custom_kernel(kernel, tensor([1, 2, 3, 4]), out=((4,), "float32"))


def test_more_values_than_their_place_has_are_refused() -> None:
    t = tensor(np.zeros(4)).realize()
    with pytest.raises(IRError, match="another shape than the memory"):
        node("STORE", (part(t.uop, 1, 2), tensor(np.arange(6)).uop))


@st.composite
def stores(draw):
    """(shape of the target, of the value, of the gate or None)."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))

    def broadcast():
        n = draw(st.integers(0, len(shape)))
        return tuple(1 if draw(st.booleans()) else s for s in shape[len(shape) - n :])

    return shape, broadcast(), broadcast() if draw(st.booleans()) else None


@given(stores(), st.sampled_from(["STORE", "ATOMICADD"]), st.integers(0, 99))
def test_a_broadcast_value_is_stored_everywhere(case, op: str, seed: int) -> None:
    shape, of_value, of_gate = case
    rng = np.random.default_rng(seed)
    a, v = (rng.integers(-9, 9, s).astype(np.float32) for s in (shape, of_value))
    g = np.ones((), bool) if of_gate is None else rng.random(of_gate) < 0.5
    gate = () if of_gate is None else (Tensor(g).uop,)
    t = Tensor(a).realize()
    u = node("AFTER", (t.uop, node(op, (t.uop, Tensor(v).uop, *gate))))
    want = np.where(g, v if op == "STORE" else a + v, a)
    np.testing.assert_array_equal(Tensor._wrap(u).numpy(), want)
    np.testing.assert_array_equal(t.numpy(), a)


@given(stores(), st.integers(0, 99))
def test_the_gradient_of_a_broadcast_value(case, seed: int) -> None:
    shape, of_value, of_gate = case
    rng = np.random.default_rng(seed)
    w = rng.integers(-9, 9, shape).astype(np.float32)
    g = np.ones(shape, bool) if of_gate is None else rng.random(of_gate) < 0.5
    t = Tensor(np.zeros(shape, np.float32)).realize()
    gate = () if of_gate is None else (Tensor(g).uop,)

    def loss(v):
        return (Tensor._wrap(node("AFTER", (t.uop, node("STORE", (t.uop, v.uop, *gate))))) * Tensor(w)).sum()

    got = grad(loss)(Tensor(np.zeros(of_value, np.float32))).numpy()
    full = np.broadcast_to(np.where(g, w, 0), shape)
    lead = full.reshape((-1, *shape[len(shape) - len(of_value) :])).sum(0)
    axes = tuple(k for k, n in enumerate(of_value) if n == 1)
    np.testing.assert_allclose(got, lead.sum(axes, keepdims=True).reshape(of_value))


def test_a_load_with_a_gate_is_a_choice_as_it_is_in_a_kernel() -> None:
    u = tensor(np.arange(4)).uop
    limit = build("EXPAND", build("RESHAPE", const(2.0, F32), shape_source((1,))), shape_source((4,)))
    loaded = node("LOAD", (u, build("MUL", u, u), build("CMPLT", u, limit)))
    assert Tensor._wrap(loaded).tolist() == [0.0, 1.0, 4.0, 9.0]
    b = node("BUFFER", (shape_source((4,)),), BufferArg(0, F32, "cpu"))
    asked = substitute(loaded, {u: b})
    np.testing.assert_array_equal(evaluate(asked, {b: np.arange(4, dtype=np.float32)}), [0, 1, 4, 9])


@pytest.mark.parametrize("device", [None, "cpu", "c", "python"])
def test_a_load_with_a_gate_broadcasts_and_copies(device) -> None:
    x, alt, gate = tensor(np.arange(4)), tensor([7]), Tensor(np.array([[True], [False]]))
    arg = None if device is None else LoadArg(device, "GLOBAL")
    if device is not None and (why := Device.present()[device]):
        pytest.skip(f"{device}: {why}")

    def chosen(x, alt):
        return Tensor._wrap(node("LOAD", (x.uop, alt.uop, gate.uop), arg))

    assert chosen(x, alt).tolist() == [[0, 1, 2, 3], [7, 7, 7, 7]]
    assert (chosen(x * 2, alt + 1) + 1).tolist() == [[1, 3, 5, 7], [9, 9, 9, 9]]
    if device is None:
        step = jit(lambda x: chosen(x, alt) + 0)
        for k in range(4):
            assert step(tensor(np.arange(4) + k)).tolist() == [[k, k + 1, k + 2, k + 3], [7] * 4]


def test_the_gradient_of_a_load_with_a_gate() -> None:
    gate, w = Tensor(np.array([[True], [False]])), tensor(np.arange(8).reshape(2, 4))

    def loss(x, alt):
        return (Tensor._wrap(node("LOAD", (x.uop, alt.uop, gate.uop))) * w).sum()

    dx, dalt = grad(loss, argnums=(0, 1))(tensor(np.ones(4)), tensor([1]))
    assert dx.tolist() == [0, 1, 2, 3] and dalt.tolist() == [22]


def test_a_load_with_an_alternative_and_no_gate_reads() -> None:
    x = tensor([1, 2])
    loaded = Tensor._wrap(node("LOAD", (x.uop, const(0.0, F32))))
    assert loaded.tolist() == [1, 2]
    dx, dalt = grad(lambda x, a: Tensor._wrap(node("LOAD", (x.uop, a.uop))).sum(), argnums=(0, 1))(x, tensor(0))
    assert dx.tolist() == [1, 1] and dalt.item() == 0


def test_an_input_that_is_a_result_is_copied_element_by_element() -> None:
    p = node("PARAM", (shape_source((2, 3)),), ParamArg(0, F32, "cpu", "GLOBAL"))
    (call,) = schedule([p], "cpu").linear.src
    (store,) = (u for u in call.src[0].src[0].src if u.op == "STORE")
    assert store.src[1].op == "LOAD" and store.src[1].src[0].src[0].arg.slot == 1


# ---- REDUCE ----------------------------------------------------------------------------------------------------------
def test_a_reduce_is_along_axes_or_along_ranges() -> None:
    r = loop(0, 3, "REDUCE")
    with pytest.raises(IRError, match="along axes and ranges"):
        node("REDUCE", (PLACE, r), ("ADD", (0,)))


@pytest.mark.parametrize("actions", [None, ()])
@pytest.mark.parametrize("device", [*PROCESSORS, "python:gpu"])
def test_a_reduce_along_axes_in_a_kernel(device: str, actions) -> None:
    def kernel(out, x):
        v = node("REDUCE", (load(x, build("STACK", *map(idx, range(8)))),), ("ADD", (0,)))
        i = loop(0, 8)
        return sink(build("END", build("STORE", build("INDEX", out, i), build("INDEX", v, idx(0))), i), actions=actions)

    assert run(device, kernel, np.arange(1, 9, dtype=np.float32), (8,)).tolist() == [36.0] * 8


@pytest.mark.sweep
@pytest.mark.parametrize("device", PROCESSORS)
@pytest.mark.parametrize("shape", [(1,), (3,), (17,), (2, 3), (3, 1, 5), (2, 3, 4)])
def test_reductions_along_any_axes_in_a_kernel(device: str, shape: tuple) -> None:
    rng, n = np.random.default_rng(0), prod(shape)
    subsets = [c for k in range(1, len(shape) + 1) for c in itertools.combinations(range(len(shape)), k)]
    for axes, op, dtype in itertools.product(subsets, ("ADD", "MAX", "MUL"), ("float32", "int8")):
        a = rng.integers(-2, 3, n).astype(dtype)
        kept = tuple(1 if k in axes else s for k, s in enumerate(shape))
        m = prod(kept)

        def kernel(out, x, axes=axes, op=op, kept=kept, m=m):
            flat = build("RESHAPE", shape_source(range(n)), shape_source(shape))
            v = node("REDUCE", (load(x, flat),), (op, axes))
            i = loop(0, 3)
            place = i * m + build("RESHAPE", shape_source(range(m)), shape_source(kept))
            return sink(build("END", node("STORE", (at(out, place), v)), i))

        want = {"ADD": np.add, "MAX": np.maximum, "MUL": np.multiply}[op].reduce(a.reshape(shape), axes, a.dtype)
        np.testing.assert_array_equal(run(device, kernel, a, (3, m), dtype), np.tile(want.ravel(), (3, 1)))


@pytest.mark.parametrize("device", PROCESSORS)
def test_a_sum_of_stacked_values_may_stand_in_any_loop(device: str) -> None:
    """The elements come from two loads, not from a load of several: the loop around is left to the optimizer."""

    def kernel(out, x):
        i = loop(0, 16)
        v = node("REDUCE", (node("STACK", (load(x, i), load(x, i + 16))),), ("MAX", (0,)))
        return sink(node("END", (node("STORE", (at(out, i), at(v, idx(0)))), i)))

    x = np.random.default_rng(0).standard_normal(32).astype(np.float32)
    np.testing.assert_array_equal(run(device, kernel, x, (16,)), x.reshape(2, 16).max(0))


def test_an_element_of_a_value_is_picked_by_a_constant() -> None:
    def kernel(where):
        def made(out, x):
            i = loop(0, 8)
            v = load(x, build("STACK", *map(idx, range(8))))
            return sink(node("END", (node("STORE", (at(out, i), at(v, where(i)))), i)))

        return made

    x = np.arange(8, dtype=np.float32)
    for device in PROCESSORS:
        assert run(device, kernel(lambda i: idx(3)), x, (8,)).tolist() == [3.0] * 8
    for device in ("cpu", "c"):
        with pytest.raises(CompileError, match="known only at run time"):
            run(device, kernel(lambda i: i), x, (8,))


# ---- FUNCTION, CALL, GETTUPLE ----------------------------------------------------------------------------------------
X4 = node("PARAM", (shape_source((4,)),), ParamArg(0, F32, "cpu", "GLOBAL"))
TWICE = node("TUPLE", (X4 * 2.0,))


@pytest.mark.parametrize("op", ["FUNCTION", "CALL"])
def test_arguments_are_those_that_the_body_has_params_for(op: str) -> None:
    right = Tensor._wrap(node("GETTUPLE", (node(op, (TWICE, tensor(np.arange(4)).uop)),), 0))
    assert right.shape == (4,) and right.tolist() == [0, 2, 4, 6]
    for args, what in (((), "missing"), ((tensor(np.arange(5)),), "shape"), ((Tensor(np.arange(4)),), "dtype")):
        with pytest.raises(IRError, match=what) as e:
            node(op, (TWICE, *(t.uop for t in args)))
        assert e.value.expected is not None and e.value.found is not None


def test_the_index_of_an_element() -> None:
    call = node("FUNCTION", (TWICE, tensor(np.arange(4)).uop))
    for wrong in (1, 3, -1, None, True):
        with pytest.raises(IRError, match="GETTUPLE index"):
            node("GETTUPLE", (call,), wrong)
    with pytest.raises(IRError, match="packs no values"):
        node("GETTUPLE", (X4,), 0)


def test_a_size_that_is_an_argument_is_in_the_shape_of_the_result() -> None:
    n = node("PARAM", (), ParamArg(0, dtypes.index, None, None))
    x = node("PARAM", (shape_source((n,)),), ParamArg(1, F32, "cpu", "GLOBAL"))
    body = node("TUPLE", (x * 2.0, node("REDUCE", (x,), ("ADD", (0,)))))
    call = node("FUNCTION", (body, idx(3), tensor([1, 2, 3]).uop))
    doubled, total = (node("GETTUPLE", (call,), k) for k in (0, 1))
    assert doubled.shape == (3,) and total.shape == (1,)
    assert Tensor._wrap(doubled).tolist() == [2, 4, 6] and Tensor._wrap(total).tolist() == [6]
    with pytest.raises(IRError, match="another shape"):
        node("FUNCTION", (body, idx(4), tensor([1, 2, 3]).uop))


def test_variables_in_shapes_of_arguments() -> None:
    n, m = Variable("n", 1, 4), Variable("m", 1, 4)
    x = tensor(np.arange(4))
    f = function(lambda t: t * 2)
    with n.bind(3):
        assert f(x[:n]).tolist() == [0, 2, 4]
    p = node("PARAM", (shape_source((n.uop,)),), ParamArg(0, F32, "cpu", "GLOBAL"))
    body = node("TUPLE", (p * 2.0,))
    node("FUNCTION", (body, x[:n].uop))
    with pytest.raises(IRError, match="another shape"):
        node("FUNCTION", (body, x[:m].uop))


def test_a_kernel_is_called_with_as_much_memory_as_it_has() -> None:
    def body(n):
        out, x = (node("PARAM", (shape_source((n,)),), ParamArg(k, F32, "cpu", "GLOBAL")) for k in (0, 1))
        i = loop(0, n)
        return sink(node("END", (node("STORE", (at(out, i), load(x, i) * 2.0)), i)))

    out, x = Tensor.empty(2, 2).uop, tensor(np.arange(4)).realize()
    call = node("CALL", (body(4), out, x.uop))
    assert Tensor._wrap(node("AFTER", (out, call))).tolist() == [[0, 2], [4, 6]]
    with pytest.raises(IRError, match="argument 0 of another shape"):
        node("CALL", (body(5), out, x.uop))
    with pytest.raises(IRError, match="argument is missing"):
        node("CALL", (body(4), out))


# ---- the shard axis --------------------------------------------------------------------------------------------------
def sharded(*shape):
    return node("BUFFER", (shape_source(shape),), BufferArg(0, F32, FOUR))


def reshaped(u, *shape):
    return node("RESHAPE", (u, shape_source(shape)))


def test_a_buffer_is_divided_among_its_devices() -> None:
    assert axis(sharded(8, 3)) == 0
    assert axis(sharded(3)) == 0  # the last device has no element
    with pytest.raises(IRError, match="the layout of memory on several devices"):
        sharded()
    for divided, shown in ((1, 1), (None, None)):
        b = node("BUFFER", (shape_source((6, 4)),), BufferArg(0, F32, FOUR, "GLOBAL", divided))
        assert axis(b) == shown
    for wrong in (2, -1, "a"):
        with pytest.raises(IRError, match="the layout of memory on several devices"):
            node("BUFFER", (shape_source((6, 4)),), BufferArg(0, F32, FOUR, "GLOBAL", wrong))
    x = node("BUFFER", (shape_source((6,)),), BufferArg(0, F32, "a"))
    assert axis(node("LOAD", (x,), LoadArg(("a", "b"), "GLOBAL"))) == 0
    assert axis(node("LOAD", (x,), LoadArg(FOUR, "GLOBAL"))) == 0  # of 2, 2, 2 and 0 elements
    with pytest.raises(DeviceError, match="LOAD to several devices"):
        axis(node("LOAD", (node("BUFFER", (shape_source(()),), BufferArg(1, F32, "a")),), LoadArg(FOUR, "GLOBAL")))


def test_a_reshape_keeps_the_shard_boundary_or_says_which_copy_to_write() -> None:
    x = sharded(32)
    for shape, want in (((4, 8), 0), ((8, 4), 0), ((1, 32), 1), ((1, 4, 8), 1), ((32, 1), 0)):
        assert axis(reshaped(x, *shape)) == want
    turned = node("PERMUTE", (sharded(8, 3),), (1, 0))
    assert axis(reshaped(turned, 3, 4, 2)) == 1
    for u in (reshaped(x, 2, 16), reshaped(x, 1, 2, 16), reshaped(turned, 24), reshaped(turned, 3, 2, 4)):
        with pytest.raises(DeviceError, match="RESHAPE moves the shard boundary") as e:
            axis(u)
        assert 'LOAD of it with LoadArg(device="a"' in str(e.value.expected)
    copied = node("LOAD", (x,), LoadArg("a", "GLOBAL"))
    assert axis(reshaped(copied, 2, 16)) is None


def test_movement_along_the_shard_axis_is_refused() -> None:
    x = sharded(8, 3)
    offset, whole = shape_source((0, 0)), shape_source((8, 4))
    assert axis(node("FLIP", (x,), (False, True))) == 0
    assert axis(node("PAD", (x, offset, whole))) == 0
    assert axis(node("SHRINK", (x, offset, shape_source((8, 2))))) == 0
    wrong = (
        node("FLIP", (x,), (True, False)),
        node("PAD", (x, offset, shape_source((12, 3)))),
        node("SHRINK", (x, offset, shape_source((4, 3)))),
    )
    for u in wrong:
        with pytest.raises(DeviceError, match=f"{u.op} moves the shard boundary"):
            axis(u)


def test_operands_along_different_axes_take_that_of_the_largest() -> None:
    square, rows = sharded(4, 4), node("PERMUTE", (sharded(4, 1),), (1, 0))
    assert axis(node("ADD", (square, node("PERMUTE", (square,), (1, 0))))) == 0  # the first of equals
    assert axis(node("ADD", (rows, square))) == axis(node("ADD", (square, rows))) == 0


# ---- BINARY and GROUP ------------------------------------------------------------------------------------------------
def binary(data=b"abc"):
    return Tensor._wrap(node("BINARY", (), data))


def test_a_binary_is_its_bytes() -> None:
    x = binary()
    assert x.shape == (3,) and x.dtype is dtypes.uint8 and bytes(x.numpy()) == b"abc"
    assert (binary() + 1).tolist() == [98, 99, 100]
    assert binary()[Tensor([2, 0])].tolist() == [99, 97]
    assert binary(b"\x00\x00\x80\x3f\x00\x00\x00\x40").bitcast("float32").tolist() == [1.0, 2.0]
    assert binary(b"").tolist() == [] and Tensor.cat(binary(b""), binary()).tolist() == [97, 98, 99]
    with Context(VERIFY=2):
        assert (binary() * 2).tolist() == [194, 196, 198]


@pytest.mark.parametrize("device", [*PROCESSORS, "python:1"])
def test_a_binary_on_a_device(device: str) -> None:
    with on(device):
        assert (binary() + 1).tolist() == [98, 99, 100] and binary().to("python").tolist() == [97, 98, 99]


def test_what_is_assigned_to_a_binary_is_its_own() -> None:
    data = bytes(range(1, 129))
    for first in (False, True):
        x = binary(data)
        if first:
            x.realize()
        x[0] = 77
        assert x.tolist()[:2] == [77, 2] and binary(data).tolist() == list(data) and data[0] == 1


def test_a_binary_in_functions_and_steps() -> None:
    add = lambda x: x + binary()  # noqa: E731
    for f in (jit(add), function(add), function(add, precompile=True)):
        for k in range(4):
            assert f(Tensor(np.full(3, k, np.uint8))).tolist() == [97 + k, 98 + k, 99 + k]


def test_a_group_of_stores_is_all_of_them() -> None:
    t = tensor(np.zeros(4)).realize()

    def store(k):
        return node("STORE", (part(t.uop, k, 1), tensor([7 + k]).uop))

    for settings in ({}, {"VERIFY": 2}, {"DEVICE": "python"}):
        with Context(**settings):
            assert Tensor._wrap(node("AFTER", (t.uop, node("GROUP", (store(0), store(2)))))).tolist() == [7, 0, 9, 0]
    inner = node("GROUP", (store(2), node("GROUP", (store(3),))))
    assert Tensor._wrap(node("AFTER", (t.uop, store(0), inner))).tolist() == [7, 0, 9, 10]
    assert t.tolist() == [0, 0, 0, 0]


def test_a_group_of_stores_in_steps_and_gradients() -> None:
    t = tensor(np.zeros(4)).realize()

    def f(q):
        one = node("STORE", (part(t.uop, 3, 1), tensor([5]).uop))
        return Tensor._wrap(node("AFTER", (t.uop, node("GROUP", (node("STORE", (part(t.uop, 1, 2), q.uop)), one)))))

    step = jit(lambda q: f(q) + 0)
    for k in range(4):
        assert step(tensor([k, k + 1])).tolist() == [0, k, k + 1, 5]
    assert grad(lambda q: (f(q) * tensor([1, 2, 3, 4])).sum())(tensor([1, 1])).tolist() == [2, 3]


def test_a_tensor_waits_for_writes_alone() -> None:
    t = tensor(np.zeros(4)).realize()
    u = node("AFTER", (t.uop, node("GROUP", (node("BARRIER"),))))
    with pytest.raises(IRError, match="a tensor does not wait for this|not allowed at stage TENSOR"):
        Tensor._wrap(u).tolist()


# ---- masks -----------------------------------------------------------------------------------------------------------
def test_a_mask_times_a_value_keeps_what_is_not_finite() -> None:
    x, j = tensor([1, 2, 3, np.inf, np.nan]), Tensor.arange(5)
    sums = ((j.reshape(5, 1) >= j.reshape(1, 5)).float() * x.reshape(1, 5)).sum(1)
    mask = (j.reshape(5, 1) == Tensor([0, 2]).reshape(1, 2)).float()
    for got in (sums, (x.reshape(5, 1) * mask).sum(0), (x.reshape(5, 1) * mask.realize()).sum(0)):
        assert np.isnan(got.numpy()).all()


# ---- IR from outside -------------------------------------------------------------------------------------------------
def outside(out, x):
    i = loop(0, 4)
    return sink(node("END", (node("STORE", (at(out, i), load(x, i + 1))), i)))


def guarded(out, x):
    i = loop(0, 4)
    value = node("LOAD", (at(x, i + 1), const(0.0, F32), build("CMPLT", i + 1, idx(4))))
    return sink(node("END", (node("STORE", (at(out, i), value)), i)))


def params(n):
    return tuple(node("PARAM", (shape_source((n,)),), ParamArg(k, F32, "cpu", "GLOBAL")) for k in (0, 1))


def test_a_kernel_from_outside_is_proven_before_a_cache_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list = []
    monkeypatch.setattr(programs, "compile_kernels", lambda *a: asked.append(a))
    n_plans = len(plans)
    x = tensor(np.arange(4)).realize()
    with pytest.raises(VerifyError, match="not proven to stay inside"):
        custom_kernel(outside, x, out=((4,), "float32"))
    out = Tensor.empty(4).uop
    by_hand = node("AFTER", (out, node("CALL", (parse(show(outside(*params(4)))), out, x.uop))))
    with pytest.raises(VerifyError, match="not proven to stay inside"):
        Tensor._wrap(by_hand).realize()
    assert not asked and len(plans) == n_plans


def test_a_kernel_from_outside_that_is_guarded_runs() -> None:
    x, out = tensor(np.arange(4)).realize(), Tensor.empty(4).uop
    assert custom_kernel(guarded, x, out=((4,), "float32")).tolist() == [1, 2, 3, 0]
    call = node("CALL", (parse(show(guarded(*params(4)))), out, x.uop))
    assert Tensor._wrap(node("AFTER", (out, call))).tolist() == [1, 2, 3, 0]


def test_a_call_by_hand_stores_to_its_first_arguments() -> None:
    out, x = params(4)
    i = loop(0, 4)
    kernel = sink(node("END", (node("STORE", (at(x, i), load(out, i))), i)))
    a, b = Tensor.empty(4).uop, tensor(np.arange(4)).realize()
    with pytest.raises(VerifyError, match="first arguments"):
        Tensor._wrap(node("AFTER", (a, node("CALL", (kernel, a, b.uop))))).realize()


def test_a_call_by_hand_is_held_to_the_target() -> None:
    a, b = Tensor.empty(8).uop, tensor(EIGHT).realize()
    kernel = in_groups(*params(8))
    with pytest.raises(VerifyError, match="without workgroups"):
        Tensor._wrap(node("AFTER", (a, node("CALL", (kernel, a, b.uop))))).realize()


def test_text_is_proven_before_a_search_runs_it(tmp_path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "kernel.ir"
    file.write_text(show(outside(*params(4))))
    with Context(BEAM=1):
        assert main(["run", str(file), "--from", "choose", "--to", "apply"]) != 0
    assert "not proven to stay inside" in capsys.readouterr().err
    with Context(CHECK_BOUNDS=0):  # without a search nothing runs
        assert main(["run", str(file), "--from", "choose", "--to", "apply"]) == 0


def test_rows_hold_where_a_graph_is_verified() -> None:
    u = node("STORE", (PLACE, const(1.0, F32)))
    verify(u, Stage.TENSOR)
    wrong = UOp()
    wrong.op, wrong.src, wrong.arg, wrong.tag = "STORE", (PLACE, const(1, dtypes.int32)), None, None
    wrong.dtype, wrong.shape = dtypes.void, ()
    wrong._min_max = wrong._ranges = wrong._placement = wrong._linear = wrong._sizes = wrong.origin = None
    wrong.serial = 0
    with pytest.raises(VerifyError, match="another dtype than the memory"):
        verify(wrong, Stage.TENSOR)
