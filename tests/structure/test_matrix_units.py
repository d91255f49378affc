"""Products of narrow numbers: one kernel, the processor's dot products in its inner loop, accumulators in registers."""

import re

import numpy as np
import pytest

from monolect import Tensor, dtypes
from monolect.backend.base import launching
from monolect.backend.common.host.elf import parse_object
from monolect.backend.common.llvm.compile import Compiler
from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.backend.cpu.render import render_module
from monolect.backend.cpu.units import ROWS, units
from monolect.backend.registry import Device
from monolect.base.target import Target
from monolect.ir.uop import toposort
from monolect.pipeline import lower_kernel, schedule
from monolect.schedule.callify import over_params

AVX512 = ("avx", "fma", "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl")
FEATURES = (*AVX512, "avx512vnni", "avx512bf16")
PLAIN = Target(
    name="test", native=LLVM_NATIVE, vector_bytes=64, n_registers=32, n_threads=2,
    l1_bytes=48 << 10, l2_bytes=1 << 20, local_bytes=4 << 20,
)  # fmt: skip
TARGET = PLAIN._replace(units=units(FEATURES, 64))
BF16, I8, U8 = dtypes.bfloat16, dtypes.int8, dtypes.uint8


def numbers(d, *shape, seed=0):
    low, high = (0, 9) if d is U8 else (-8, 9)
    return np.random.default_rng(seed).integers(low, high, shape).astype(d.numpy)


def lowered(t, target=TARGET):
    """The LINEAR of the one kernel that `t` is."""
    sink, _, _ = over_params([t.uop])
    (call,) = schedule(list(sink.src), "cpu", target.local_bytes).linear.src
    return lower_kernel(call.src[0], target)


def inner_loop(linear):
    """The instructions of the last loop that has a WMMA."""
    order = list(linear.src)
    last = max(i for i, u in enumerate(order) if u.op == "WMMA")
    start = max(i for i, u in enumerate(order[:last]) if u.op == "RANGE")
    end = next(i for i, u in enumerate(order) if i > last and u.op == "END")
    return order[start:end]


def hot_block(assembly, instruction):
    """The lines of the block of code in which `instruction` stands most often."""
    blocks = re.split(r"^\.?\w+:.*$|^\tj\w+\t.*$", assembly, flags=re.M)
    return max(blocks, key=lambda b: b.count(instruction)).splitlines()


FORMS = {
    "bfloat16": (BF16, BF16, lambda a, b: a @ b, "vdpbf16ps"),
    "bfloat16 to float32": (BF16, BF16, lambda a, b: a.float() @ b.float(), "vdpbf16ps"),
    "a linear layer": (BF16, BF16, lambda a, b: (a @ b + b[0]).relu(), "vdpbf16ps"),
    "einsum": (BF16, BF16, lambda a, b: Tensor.einsum("ik,kj->ij", a, b), "vdpbf16ps"),
    "bytes to integers": (I8, I8, lambda a, b: a.int() @ b.int(), "vpdpbusd"),
    "a scale after": (I8, I8, lambda a, b: (a.int() @ b.int()).float() * 0.5, "vpdpbusd"),
    "unsigned by signed": (U8, I8, lambda a, b: a.int() @ b.int(), "vpdpbusd"),
    "signed by unsigned": (I8, U8, lambda a, b: a.int() @ b.int(), "vpdpbusd"),
    "unsigned": (U8, U8, lambda a, b: a.int() @ b.int(), "vpdpbusd"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("form", FORMS)
def test_products_use_the_unit(form, layout):
    da, db, product, instruction = FORMS[form]
    m, k, n = 96, 128, 192
    a = Tensor(numbers(da, m, k) if layout[0] == "N" else numbers(da, k, m))
    b = Tensor(numbers(db, k, n) if layout[1] == "N" else numbers(db, n, k))
    linear = lowered(product(a if layout[0] == "N" else a.T, b if layout[1] == "N" else b.T))
    inner = inner_loop(linear)
    steps = [u for u in inner if u.op == "WMMA"]
    assert len(steps) == 4 and not any(u.op in ("MUL", "MULACC") and u.dtype.kind != "x" for u in inner)
    assembly = Compiler("x86_64", FEATURES).assembly(render_module([("kernel", linear)]))
    hot = hot_block(assembly, instruction)
    assert sum(instruction in x for x in hot) == sum(int(np.prod(u.shape)) // 16 for u in steps)
    assert not any("(%rsp" in x for x in hot), "an accumulator left its register"


def test_a_convolution_uses_the_unit():
    x, w = Tensor(numbers(BF16, 1, 16, 12, 12)), Tensor(numbers(BF16, 32, 16, 3, 3))
    assert any(u.op == "WMMA" for u in lowered(x.conv2d(w, padding=1)).src)


@pytest.mark.parametrize("d", [BF16, dtypes.float16, I8])
def test_without_a_unit_operands_are_widened_where_they_are_read(d):
    a, b = Tensor(numbers(d, 96, 128)), Tensor(numbers(d, 128, 192))
    linear = lowered(a.float() @ b.float(), PLAIN)
    assert not any(u.op == "WMMA" for u in linear.src)


@pytest.mark.parametrize("d", [BF16, dtypes.float16])
@pytest.mark.parametrize("form", ["a sum", "a product", "a softmax", "stored"])
def test_conversions_of_short_floats_call_nothing(d, form):
    """Storage of 16 bits, arithmetic of 32: the object asks for no function, such as one that converts a number."""
    a, b = Tensor(numbers(d, 96, 129)), Tensor(numbers(d, 129, 50))
    t = {"a sum": a.sum(), "a product": a @ b, "a softmax": a.softmax(1), "stored": (a.float() * 3 + 1).cast(d)}[form]
    source = render_module([("kernel", lowered(t, Device["cpu"].target))])
    found = parse_object(Device["cpu"].compiler.compile(source)).symbols
    assert [s.name for s in found if s.section == 0 and s.name] == []


def test_few_rows_stream_and_use_no_unit():
    a, b = Tensor(numbers(BF16, 1, 128)), Tensor(numbers(BF16, 128, 192))
    assert not any(u.op == "WMMA" for u in lowered(a @ b).src)


@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize("k", [300, 301])
@pytest.mark.parametrize("d", [BF16, I8])
def test_only_the_last_words_of_a_panel_ask_whether_they_are_inside(d, k, layout):
    """What a matrix unit pairs is copied without a gate, in whole squares where it is turned, but for the last part."""
    a, b = Tensor(numbers(d, 96, k)), Tensor(numbers(d, k, 192) if layout == "NN" else numbers(d, 192, k))
    b = b if layout == "NN" else b.T
    linear = lowered(a.float() @ b.float() if d is BF16 else a.int() @ b.int())
    order = list(linear.src)
    start = next(i for i, u in enumerate(order) if u.op == "WMMA")
    copies = [u.src[1] for u in order[:start] if u.op == "STORE" and u.dtype.kind == "v" and u.src[1].dtype in (d, U8)]
    loads = [u for x in copies for u in toposort(x) if u.op == "LOAD"]
    assert any(len(u.src) == 1 for u in loads) and all(u.shape and u.shape[-1] > 1 for u in loads)
    words = 2 if d is BF16 else 4
    assert any(len(u.src) == 3 for u in loads) == (layout == "NT" or k % words > 0)


def test_rows_of_a_tile_that_are_neighbours_in_memory_are_no_words():
    """Of B the lanes are columns, though rows of A would fill them better: pieces of rows are dear to copy in pairs."""
    linear = lowered(Tensor(numbers(I8, 551, 168)).int() @ Tensor(numbers(I8, 168, 195)).int())
    assert linear.arg.actions[0][:2] == ("PADTO", 1)


@pytest.mark.sweep
@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("m, k, n", [(32, 64, 48), (19, 37, 35), (33, 90, 40)])
def test_interpreted_is_rendered(form, layout, m, k, n):
    """The program with WMMA: run by the interpreter, and by this processor where it has the unit."""
    da, db, product, _ = FORMS[form]
    a = numbers(da, m, k) if layout[0] == "N" else numbers(da, k, m)
    b = numbers(db, k, n, seed=1) if layout[1] == "N" else numbers(db, n, k, seed=1)
    t = product(*(Tensor(x) if o == "N" else Tensor(x).T for x, o in zip((a, b), layout, strict=True)))
    sink, bound, _ = over_params([t.uop])
    (call,) = schedule(list(sink.src), "cpu", TARGET.local_bytes).linear.src
    linear = lower_kernel(call.src[0], TARGET)
    assert any(u.op == "WMMA" for u in linear.src)
    wanted = product(*(Tensor(x, device="python") if o == "N" else Tensor(x, device="python").T
                       for x, o in zip((a, b), layout, strict=True))).numpy()  # fmt: skip
    here = units(Device["cpu"].compiler.features, 64) == TARGET.units and Device["cpu"].target.vector_bytes == 64
    for name in ["python"] + ["cpu"] * here:
        arrays = [bound[p.arg.slot].storage.view(p.dtype.numpy)[: int(np.prod(p.shape))].copy() if p.op == "PARAM"
                  else np.zeros(wanted.shape, wanted.dtype) for p in call.src[1:]]  # fmt: skip
        (program,) = Device[name].compile([("test", f"units/{form}/{layout}/{hash(linear)}", linear)])
        commands = Device[name].encode(*launching((program, tuple(range(len(arrays))))))
        for slot, x in enumerate(arrays):
            commands.bind(slot, x.ctypes.data)
        commands.launch()
        (out,) = [x for p, x in zip(call.src[1:], arrays, strict=True) if p.op != "PARAM"]
        np.testing.assert_array_equal(out, wanted, err_msg=name)


@pytest.mark.parametrize(
    "features, vector_bytes, wanted",
    [
        (AVX512, 64, []),
        ((*AVX512, "avx512bf16"), 64, ["vdpbf16ps"]),
        (FEATURES, 64, ["vdpbf16ps", "vpdpbusd"]),
        (("avx2", "fma", "avxvnni"), 32, ["vpdpbusd-8"]),
        (("neon", "dotprod", "bf16"), 16, ["bfdot", "sdot", "udot"]),
        ((), 16, []),
    ],
)
def test_units_are_those_of_the_features(features, vector_bytes, wanted):
    assert [u.name for u in units(features, vector_bytes)] == wanted


def test_each_row_is_one_instruction_of_its_processor():
    """Every unit's intrinsic is selected for the features that its row names."""
    for row in (r for r in ROWS if not r.unit.n_tiles):
        u = row.unit
        machine, name = ("x86_64", "x86") if row.intrinsic.startswith("x86") else ("aarch64", "aarch64")
        t = {BF16: "bfloat", I8: "i8", U8: "i8", dtypes.float32: "float", dtypes.int32: "i32"}
        acc, a, b = (f"<{k} x {t[d]}>" for k, d in ((u.n, u.acc), (u.n * u.k, u.a), (u.n * u.k, u.b)))
        text = (
            f"declare {acc} @llvm.{row.intrinsic}({acc}, {a}, {b})\n"
            f"define {acc} @f({acc} %x, {a} %y, {b} %z) {{\n"
            f"  %r = call {acc} @llvm.{row.intrinsic}({acc} %x, {a} %y, {b} %z)\n  ret {acc} %r\n}}\n"
        )
        for features in row.features:
            base = AVX512 if "avx512" in " ".join(features) else ("avx2",) if name == "x86" else ("neon",)
            assert u.name.partition("-")[0] in Compiler(machine, (*base, *features)).assembly(text)


@pytest.mark.parametrize("d", [BF16, I8], ids=lambda d: d.name)
@pytest.mark.parametrize("shapes", [((64, 1), (64, 64)), ((64, 64), (1, 64))], ids=["rows", "columns"])
def test_an_operand_of_one_number_a_row_needs_no_unit(d, shapes):
    """A unit reads neighbours along the sum, of which there is one."""
    a, b = (numbers(d, *s, seed=i) for i, s in enumerate(shapes))
    x, y = (Tensor(v).expand(64, 64) for v in (a, b))
    got = x.float() @ y.float() if d is BF16 else x.int() @ y.int()
    wide = [np.broadcast_to(v.astype(np.float64), (64, 64)) for v in (a, b)]
    np.testing.assert_array_equal(got.numpy(), wide[0] @ wide[1])
