"""Matrix units of x86 processors, emulated: each instruction against exact arithmetic and against this processor, and
random products, convolutions, gradients and attention under every unit against integers and float64.
"""

import ctypes
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, Variable, dtypes, jit, nn
from monolect.backend.common.host.elf import load_object
from monolect.backend.common.llvm.compile import Compiler, host_features
from monolect.backend.cpu.emulate import TILE, function
from monolect.backend.cpu.units import BY_NAME, EMULATED
from monolect.backend.registry import Device
from monolect.base.settings import CPU_UNITS
from monolect.runtime import profile
from monolect.runtime.realize.programs import loaded
from tests.strategies import often

VECTORS = ["vdpbf16ps", "vpdpbusd", "vpdpbusd-8"]
TILES = ["tdpbf16ps", "tdpfp16ps", "tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud"]
ELEMENTS = {"bfloat16": "bfloat", "int8": "i8", "uint8": "i8", "float32": "float", "int32": "i32"}
BF16 = dtypes.bfloat16


# ---- instructions ----------------------------------------------------------------------------------------------------
def run(unit, c, a, b, real=False):
    """The instruction on each row of three arrays of bytes: the accumulators after it."""
    row = BY_NAME[unit]
    u = row.unit
    name, definitions = function(row.intrinsic)
    if u.n_tiles:
        types, sizes = [TILE] * 3, "i16 16, i16 64, i16 64, "
    else:
        counts = zip((u.n, u.n * u.k, u.n * u.k), (u.acc, u.a, u.b), strict=True)
        types, sizes = [f"<{n} x {ELEMENTS[d.name]}>" for n, d in counts], ""
    if real:
        name, definitions = f"@llvm.{row.intrinsic}", [f"declare {types[0]} @llvm.{row.intrinsic}({', '.join(types)})"]
    loads = "".join(f"  %v{k} = load {t}, ptr %p{k}, align 1\n" for k, t in enumerate(types))
    operands = ", ".join(f"{t} %v{k}" for k, t in enumerate(types))
    main = f"define void @f(ptr %p0, ptr %p1, ptr %p2) #0 {{\n{loads}  %r = call {types[0]} {name}({sizes}{operands})\n"
    text = [
        *definitions,
        f"{main}  store {types[0]} %r, ptr %p0, align 1\n  ret void\n}}",
        "attributes #0 = {nounwind}\n",
    ]
    image = load_object(Compiler().compile("\n".join(text)))
    f = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(image.address("f"))
    out = c.copy()
    for rows in zip(out, a, b, strict=True):
        f(*(x.ctypes.data for x in rows))
    return out


def floats(rng, exponents, shape, is_short):
    """Bits of random floats with exponents in a range."""
    sign, exponent = rng.integers(0, 2, shape), rng.integers(*exponents, shape)
    if is_short:
        return (sign << 15 | exponent << 7 | rng.integers(0, 1 << 7, shape)).astype(np.uint16)
    return (sign << 31 | exponent << 23 | rng.integers(0, 1 << 23, shape)).astype(np.uint32)


def floats16(rng, exponents, shape):
    """Bits of random float16 numbers with exponents in a range."""
    sign, exponent = rng.integers(0, 2, shape), rng.integers(*exponents, shape)
    return (sign << 15 | exponent << 10 | rng.integers(0, 1 << 10, shape)).astype(np.uint16)


KINDS = {  # exponents of the factors, and of the accumulators
    "sums that cancel": ((115, 140), (100, 150)),
    "subnormal factors": ((0, 130), (0, 30)),
    "results near the smallest normal number": ((55, 70), (0, 3)),
    "any bits": ((0, 256), (0, 256)),
}


def nearest(x):
    """The float32 nearest to a fraction, ties to even; 0 where that is subnormal."""
    if not x:
        return 0.0
    e = abs(x.numerator).bit_length() - x.denominator.bit_length()
    e -= abs(x) < Fraction(2) ** e
    y = round(x / Fraction(2) ** (e - 23)) * Fraction(2) ** (e - 23)
    return float(y) if abs(y) >= Fraction(2) ** -126 else 0.0


def plus(c, x, y):
    """c + x * y of floats in which subnormal ones count as zero, rounded once."""
    c, x, y = (0.0 if abs(v) < 2.0**-126 else v for v in (c, x, y))
    return nearest(Fraction(c) + Fraction(x) * Fraction(y))


def float_operands(kind, n_rows, n_acc, n_factors, seed=0):
    rng, (short, wide) = np.random.default_rng(seed), KINDS[kind]
    a, b = (floats(rng, short, (n_rows, n_factors), True) for _ in range(2))
    return floats(rng, wide, (n_rows, n_acc), False), a, b


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(float)


@pytest.mark.parametrize("kind", list(KINDS)[:3])
def test_pairs_of_bfloat16_are_added_as_the_manual_says(kind):
    c, a, b = float_operands(kind, 20, 16, 32)
    got = run("vdpbf16ps", c, a, b).view(np.float32)
    x, y, acc = widened(a), widened(b), c.view(np.float32).astype(float)
    for i, j in np.ndindex(got.shape):
        upper = plus(acc[i, j], x[i, 2 * j + 1], y[i, 2 * j + 1])
        assert got[i, j] == plus(upper, x[i, 2 * j], y[i, 2 * j]), (hex(c[i, j]), a[i, 2 * j : 2 * j + 2])


@pytest.mark.parametrize("kind", list(KINDS)[:3])
def test_tiles_of_bfloat16_are_added_as_the_manual_says(kind):
    c, a, b = float_operands(kind, 1, 256, 512)
    got = run("tdpbf16ps", c, a, b).view(np.float32).reshape(16, 16)
    x, y, acc = widened(a).reshape(16, 16, 2), widened(b).reshape(16, 16, 2), c.view(np.float32).reshape(16, 16)
    for i, j in np.ndindex(4, 16):
        sums = [0.0, 0.0]
        for t, p in np.ndindex(16, 2):
            sums[p] = plus(sums[p], x[i, t, p], y[t, j, p])
        assert got[i, j] == plus(float(acc[i, j]), plus(sums[0], sums[1], 1.0), 1.0)


@pytest.mark.sweep
@pytest.mark.parametrize("exponents", [(10, 20), (0, 2), (0, 31)], ids=["normal", "subnormal", "any finite"])
def test_tiles_of_float16_are_added_as_the_manual_says(exponents):
    """Subnormal factors count: each is a normal float32."""
    rng = np.random.default_rng(0)
    a, b = (floats16(rng, exponents, (1, 512)) for _ in range(2))
    c = floats(rng, (100, 150), (1, 256), False)
    got = run("tdpfp16ps", c, a, b).view(np.float32).reshape(16, 16)
    x, y = (v.view(np.float16).astype(float).reshape(16, 16, 2) for v in (a, b))
    acc = c.view(np.float32).reshape(16, 16)
    for i, j in np.ndindex(4, 16):
        sums = [0.0, 0.0]
        for t, p in np.ndindex(16, 2):
            sums[p] = plus(sums[p], x[i, t, p], y[t, j, p])
        assert got[i, j] == plus(float(acc[i, j]), plus(sums[0], sums[1], 1.0), 1.0)


@pytest.mark.parametrize("unit", [*VECTORS[1:], *TILES[2:]])
def test_bytes_are_added_modulo_two_to_the_32(unit):
    u, rng = BY_NAME[unit].unit, np.random.default_rng(1)
    n, rows = (256, 3) if u.n_tiles else (u.n, 50)
    c = rng.integers(0, 1 << 32, (rows, n)).astype(np.uint32)
    a, b = (rng.choice([0, 1, 127, 128, 200, 255], (rows, 4 * n)).astype(np.uint8) for _ in range(2))
    got = run(unit, c, a, b)
    x, y = (v.view(d.numpy).astype(np.int64).reshape(rows, -1, 4) for v, d in ((a, u.a), (b, u.b)))
    if u.n_tiles:
        x, y = x.reshape(rows, 16, 16, 4), y.reshape(rows, 16, 16, 4)
    sums = np.einsum("ritp,rtjp->rij", x, y).reshape(rows, n) if u.n_tiles else (x * y).sum(2)
    np.testing.assert_array_equal(got, (c + sums).astype(np.uint32))


def test_tiles_are_loaded_and_stored_at_a_stride():
    load, store = (function(f"x86.{name}.internal") for name in ("tileloadd64", "tilestored64"))
    main = (
        f"define void @f(ptr %p, ptr %q) #0 {{\n  %t = call {TILE} {load[0]}(i16 16, i16 64, ptr %p, i64 80)\n"
        f"  call void {store[0]}(i16 16, i16 64, ptr %q, i64 96, {TILE} %t)\n  ret void\n}}\n"
        "attributes #0 = {nounwind}\n"
    )
    image = load_object(Compiler().compile("\n".join([*load[1], *store[1], main])))
    x, y = np.random.default_rng(2).integers(0, 256, (16, 80)).astype(np.uint8), np.full((16, 96), 77, np.uint8)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(image.address("f"))(x.ctypes.data, y.ctypes.data)
    np.testing.assert_array_equal(y[:, :64], x[:, :64])
    assert (y[:, 64:] == 77).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", VECTORS)
def test_emulated_is_what_this_processor_computes(unit, kind):
    row = BY_NAME[unit]
    if not any(f <= set(host_features().features) for f in row.features):
        pytest.skip(f"this processor has no {unit}")
    if unit == "vdpbf16ps":
        operands = float_operands(kind, 4000, 16, 32)
    else:
        rng, n = np.random.default_rng(3), row.unit.n
        operands = [rng.integers(0, 256, (500, 4 * n)).astype(np.uint8) for _ in range(3)]
    got, wanted = run(unit, *operands), run(unit, *operands, real=True)
    if unit == "vdpbf16ps":
        f, g = got.view(np.float32), wanted.view(np.float32)
        got, wanted = (np.where(np.isnan(f) & np.isnan(g), 0, x) for x in (got, wanted))  # the bits of a NaN may differ
    np.testing.assert_array_equal(got, wanted)


# ---- the device ------------------------------------------------------------------------------------------------------
def test_the_target_has_the_units_and_vectors_of_that_processor():
    own = Device["cpu"].target
    assert set(CPU_UNITS) == {"", *EMULATED}
    for name, (_, vector_bytes, n_registers) in EMULATED.items():
        with Context(EMULATE_UNITS=name):
            target = Device["cpu"].target
        assert (target.vector_bytes, target.n_registers) == (vector_bytes, n_registers)
        assert target.key != own.key and target.units and all(BY_NAME[u.name].unit is u for u in target.units)
        assert any(u.n_tiles for u in target.units) == (name == "amx")
    assert Device["cpu"].target == own


@pytest.mark.sweep
@pytest.mark.parametrize("name", EMULATED)
def test_each_setting_has_kernels_of_its_own(name):
    x, y = (Tensor(np.arange(64 * 64).reshape(64, 64).astype(np.int8)) for _ in range(2))
    wanted = x.numpy().astype(np.int64) @ y.numpy().astype(np.int64)
    for setting in ("", name, ""):
        with Context(EMULATE_UNITS=setting), profile.Recorder() as kernels:
            np.testing.assert_array_equal((x.int() @ y.int()).numpy(), wanted)
        assert any("@emulated" in loaded[k.call.src[0]].source for k in kernels) == bool(setting)


# ---- random products -------------------------------------------------------------------------------------------------
ANY = st.sampled_from([2, 3, 5, 8, 12, 15, 16, 17, 24, 31, 32, 33, 40, 48, 64, 65, 96])
WHOLE = st.sampled_from([16, 32, 64])  # numbers of lanes and words that leave no remainder
FEW = st.sampled_from([2, 3, 4])
TYPES = st.sampled_from(
    [("bfloat16", "bfloat16")] * 3
    + [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")]
    + [("float16", "float16")] * 2
    + [("float32", "float32")]
)
MOST = 6e5  # multiply-adds of one example


class Case:
    """A product as einsum: letters with sizes, dtypes, what is added, and whether operands are parts of larger ones."""

    def __init__(self, spec, sizes, types, bias="none", is_part=False):
        self.spec, self.sizes, self.types, self.bias, self.is_part = spec, sizes, types, bias, is_part

    def __repr__(self):
        return f"Case({self.spec!r}, {self.sizes}, {self.types}, {self.bias!r}, {self.is_part})"

    def operand(self, rng, letters, dtype):
        """(the values, as integers; the Tensor)."""
        shape = [self.sizes[x] for x in letters]
        whole = [shape[0], shape[1] + 3 * self.is_part, *shape[2:]]
        values = rng.integers(0 if dtype == "uint8" else -3, 4, whole)
        t = Tensor(values.astype(getattr(dtypes, dtype).numpy))
        return values[:, : shape[1]], t[:, : shape[1]]

    def check(self):
        """Raises where an element differs: all sums are exact in float32."""
        rng = np.random.default_rng(0)
        (a, x), (b, y) = (
            self.operand(rng, p, d) for p, d in zip(self.spec.split("->")[0].split(","), self.types, strict=True)
        )
        is_int = "int8" in self.types[0]
        out = Tensor.einsum(self.spec, x.int() if is_int else x.float(), y.int() if is_int else y.float())
        wanted = np.einsum(self.spec, a, b, optimize=True)
        shapes = {"row": wanted.shape[-1:], "column": (*wanted.shape[-2:-1], 1), "number": (), "all": wanted.shape}
        if self.bias in shapes:
            more = rng.integers(-9, 9, shapes[self.bias])
            out, wanted = out + Tensor(more.astype(np.int32 if is_int else np.float32)), wanted + more
        np.testing.assert_array_equal(out.numpy().astype(np.int64), wanted, err_msg=repr(self))


@st.composite
def products(draw):
    names, sizes = iter("abcdefghij"), {}
    first = draw(st.sampled_from([ANY, WHOLE, WHOLE]))

    def axes(least, most, first, others):
        """Names of axes: the first has one of the sizes `first`."""
        out = [next(names) for _ in range(draw(st.integers(least, most)))]
        sizes.update((x, draw(others if k else first)) for k, x in enumerate(out))
        return out

    others = ANY if first is ANY else FEW
    rows, columns = axes(1, 2, first, others), axes(1, 2, first, others)
    summed = axes(draw(st.sampled_from([1, 2, 2])), 3, first, others)
    batch = axes(0, draw(st.sampled_from([0, 0, 1])), FEW, FEW)
    assume(np.prod([float(n) for n in sizes.values()]) <= MOST)

    def layout(free):
        orders = [*batch, *free, *draw(st.permutations(summed))], draw(st.permutations([*batch, *free, *summed]))
        return "".join(draw(st.sampled_from(orders)))

    out = draw(st.sampled_from([[*batch, *rows, *columns], draw(st.permutations([*batch, *rows, *columns]))]))
    spec = f"{layout(rows)},{layout(columns)}->{''.join(out)}"
    bias = draw(st.sampled_from(["none", "none", "row", "column", "number", "all"]))
    return Case(spec, sizes, draw(TYPES), bias, draw(st.sampled_from([False, False, True])))


B, H, I8, U8 = ("bfloat16",) * 2, ("float16",) * 2, ("int8",) * 2, ("uint8",) * 2


@settings(max_examples=often(12, 2000))
@given(st.sampled_from(CPU_UNITS), products())
@example("bf16", Case("lck,okc->ol", {"l": 32, "c": 64, "k": 2, "o": 16}, B))
@example("vnni", Case("lck,okc->lo", {"l": 64, "c": 128, "k": 3, "o": 64}, I8))
@example("amx", Case("lck,okc->lo", {"l": 64, "c": 128, "k": 3, "o": 64}, I8))
@example("amx", Case("hlc,hoc->lo", {"h": 3, "l": 32, "c": 64, "o": 48}, B))
@example("amx", Case("hlc,hoc->lo", {"h": 3, "l": 32, "c": 64, "o": 48}, H))
@example("avxvnni", Case("deaf,fcbea->cabd", {"a": 5, "b": 16, "c": 3, "d": 33, "e": 36, "f": 5}, U8, "row"))
def test_products_are_exact_under_every_unit(unit, case):
    with Context(EMULATE_UNITS=unit):
        case.check()


@pytest.mark.sweep
@pytest.mark.parametrize("bias", ["row", "column", "number", "all"])
@pytest.mark.parametrize("unit", CPU_UNITS)
def test_a_sum_of_one_step_of_the_unit_is_added_to_a_bias(unit, bias):
    with Context(EMULATE_UNITS=unit):
        for depth, types in ((32, B), (2, B), (32, H), (64, I8), (4, ("uint8", "int8"))):
            Case("ik,kj->ij", {"i": 32, "k": depth, "j": 32}, types, bias).check()


def test_random_products_meet_the_units():
    """The sizes and layouts that are drawn are not so small that no unit is chosen."""
    found = dict.fromkeys(EMULATED, 0)
    rng = np.random.default_rng(0)
    for k in range(6):
        i, j, c = (int(n) for n in rng.choice([16, 17, 33, 48, 64], 3))
        for unit in EMULATED:
            with Context(EMULATE_UNITS=unit), profile.Recorder() as kernels:
                Case("ick,kcj->ji", {"i": i, "j": j, "c": c, "k": 2 + k % 3}, I8).check()
            found[unit] += any("@emulated" in loaded[x.call.src[0]].source for x in kernels)
    assert all(found.values()), found


# ---- what models are made of -----------------------------------------------------------------------------------------
def whole(*shape, seed=0, high=3):
    """Small integers, and the same in bfloat16."""
    values = np.random.default_rng(seed).integers(-high, high + 1, shape)
    return values.astype(np.float64), Tensor(values.astype(BF16.numpy))


@pytest.mark.sweep
@pytest.mark.parametrize("unit", CPU_UNITS)
def test_a_convolution_with_permuted_weights(unit):
    x, tx = whole(2, 16, 9, 8)
    w, tw = whole(3, 3, 16, 33, seed=1)
    with Context(EMULATE_UNITS=unit):
        got = tx.float().conv2d(tw.float().permute(3, 2, 0, 1), padding=1).numpy()
    rows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    np.testing.assert_array_equal(got, np.einsum("bcijyx,yxco->boij", rows, w))


@pytest.mark.sweep
@pytest.mark.parametrize("unit", CPU_UNITS)
def test_gradients_of_permuted_operands(unit):
    x, tx = whole(2, 3, 32, 20)
    w, tw = whole(48, 60, seed=1)
    g, tg = whole(2, 32, 48, seed=2, high=1)
    tx.requires_grad = tw.requires_grad = True
    with Context(EMULATE_UNITS=unit):
        y = tx.transpose(1, 2).reshape(2, 32, 60).linear(tw)
        (y.float() * tg.float()).sum().backward()
        got = [t.float().numpy() for t in (y, tx.grad, tw.grad)]
    flat = x.transpose(0, 2, 1, 3).reshape(2, 32, 60)
    back = (g @ w).reshape(2, 32, 3, 20).transpose(0, 2, 1, 3)
    wanted = [flat @ w.T, back, np.einsum("blo,bli->oi", g, flat)]
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b.astype(BF16.numpy).astype(np.float32))


@pytest.mark.sweep
@pytest.mark.parametrize("unit", CPU_UNITS)
def test_attention_of_bfloat16(unit):
    """Against the same parameters in float32, whose products no unit here computes."""
    rng = np.random.default_rng(0)
    exact, short = (nn.MultiheadAttention(128, 2, batch_first=True) for _ in range(2))
    for p, q in zip(exact.parameters(), short.parameters(), strict=True):
        values = (rng.standard_normal(p.shape) * 0.1).astype(BF16.numpy)
        p.assign(Tensor(values.astype(np.float32)))
        q.assign(Tensor(values.astype(np.float32)))
    state = {name: p.cast(BF16).realize() for name, p in short.state_dict().items()}
    short.in_proj_weight, short.in_proj_bias = state["in_proj_weight"], state["in_proj_bias"]
    short.out_proj.weight, short.out_proj.bias = state["out_proj.weight"], state["out_proj.bias"]
    x = Tensor(rng.standard_normal((2, 32, 128)).astype(BF16.numpy))
    with Context(EMULATE_UNITS=unit):
        got = short(x, x, x)[0].float().numpy()
    wanted = exact(x.float(), x.float(), x.float())[0].numpy()
    assert np.abs(got - wanted).max() <= 0.03 * np.abs(wanted).max()


@pytest.mark.sweep
@pytest.mark.parametrize("most, unit", [(128, ""), (64, "amx"), (512, "")])
def test_a_symbolic_number_of_rows_by_a_weight_that_is_packed_once(most, unit):
    n = Variable("n", 1, most)
    x, tx = whole(most, 384)
    w, tw = whole(384, 384, seed=1)
    a, b = (t.float().realize() if unit == "" else t for t in (tx, tw))
    step = jit(lambda a: a[:n].float() @ b.float().T)
    with Context(EMULATE_UNITS=unit):
        for rows in (most, most, 1, most // 2 + 1, 17, most):
            with n.bind(rows):
                np.testing.assert_array_equal(step(a).numpy()[:rows], x[:rows] @ w.T)
