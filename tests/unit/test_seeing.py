"""What a user can see of a run: DEBUG lines, the kernel table, estimates, origins, dumps; and what runs share."""

import re
import subprocess
import sys
from inspect import currentframe

import numpy as np
import pytest

from monolect import Context, Tensor, jit
from monolect.backend.common.host.memory import stats
from monolect.backend.registry import Device
from monolect.cli.kernel_page import explain_kernel
from monolect.command.forms import (
    base_of,
    buffer_bytes,
    calls_in,
    is_arena,
    items_of,
    kernel_of,
    operands_of,
    program_of,
)
from monolect.command.passes import joined
from monolect.command.rewrites.memory import plan_memory
from monolect.ir.rewrite import index, normal
from monolect.ir.text import parse
from monolect.ir.uop import UOp, node
from monolect.pipeline import PIPELINE, schedule, scheduled
from monolect.runtime import profile
from monolect.runtime.realize.plan import batch_step
from monolect.runtime.realize.programs import loaded
from monolect.schedule.callify import over_params
from monolect.schedule.result import schedule_of


def array(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, np.float32))


def calls(*tensors: Tensor) -> tuple:
    sink, _, _ = over_params([t.uop for t in tensors])
    return schedule(list(sink.src), "cpu").linear.src


@pytest.mark.parametrize(
    ("tensor", "n_ops", "n_bytes"),
    [
        (lambda: array(64, 32) + 1, 64 * 32, 2 * 64 * 32 * 4),
        (lambda: array(16, 24) @ array(24, 8), 2 * 16 * 24 * 8, 4 * (16 * 24 + 24 * 8 + 16 * 8)),
        (lambda: array(1, 3, 8, 8).conv2d(array(5, 3, 3, 3)), 2 * 5 * 36 * 27, 4 * (3 * 64 + 5 * 27 + 5 * 36)),
        (lambda: array(50).sum(), 50, 4 * 51),
        (lambda: array(50, 8)[Tensor(np.array([7, 0, 49]))], 3, 8 * 3 + 2 * 4 * 3 * 8),
        (lambda: array(50, 8)[10:20] * 2, 80, 2 * 4 * 80),
    ],
    ids=["elementwise", "matmul", "conv", "sum", "rows of a table", "a part"],
)
def test_estimates(tensor, n_ops, n_bytes):
    (call,) = calls(tensor())
    assert profile.estimate(call) == (n_ops, n_bytes)


def test_one_line_a_kernel(capsys):
    x = array(7, 13)
    (x + 1).realize()  # takes along what other tests left to be computed
    with Context(DEBUG=2, NO_COLOR=1):
        (x * 3).sum(1).realize()
    out = capsys.readouterr().err
    (line,) = [line for line in out.splitlines() if "GFLOP/s" in line]
    assert all(part in line for part in ("cpu", "sum_7_r13", "2 buffers", " us", "GB/s")), line
    assert re.search(rf"  test_seeing.py:{test_one_line_a_kernel.__code__.co_firstlineno + 4} sum", line), line
    assert "plan: 1 kernels" in out
    (peak,) = re.findall(r"ran 1 in [0-9.]+ us; host peak ([0-9.]+) MB$", out, re.MULTILINE)
    assert abs(float(peak) - stats().peak_bytes / 1e6) < 0.1


def test_nothing_is_printed_unless_asked_for(capsys):
    (array(7, 14) * 3).sum(1).realize()
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_levels_add_up(capsys):
    seen = {}
    for level in range(6):
        with Context(DEBUG=level, COMPILE_CACHE=0):
            (array(5, 20 + level) * 3).sum(1).realize()
        seen[level] = capsys.readouterr().err
    assert seen[0] == "" and "define void" not in seen[3]
    assert "SPLIT" in seen[3] and "define void" in seen[4]
    assert "pass expand" in seen[5] and "--- after linearize" in seen[5]


def test_dump_writes_each_pass_and_what_it_writes_is_text_ir(tmp_path):
    with Context(DUMP=str(tmp_path), COMPILE_CACHE=0):
        (array(5, 31) * 3).sum(1).realize()
    files = sorted(tmp_path.iterdir())
    assert [f.stem.partition("-")[2] for f in files] == [row.name for row in PIPELINE]
    ops = {f.stem.partition("-")[2]: parse(f.read_text()).op for f in files}
    assert [*ops.items()][:2] == [("shard", "TUPLE"), ("callify", "FUNCTION")]
    assert [*ops.items()][-1] == ("dependencies", "FUNCTION")
    assert (ops["order"], ops["control"]) == ("TUPLE", "LINEAR")


def test_each_rule_that_fires_is_shown_before_and_after(capsys):
    x = array(3, 19)
    with Context(DEBUG=6, COMPILE_CACHE=0):
        (x != 1).logical_not().where(x, x * 2).realize()
        (x[1:].T / 4).cumsum(0).realize()
    lines = [line.strip() for line in capsys.readouterr().err.splitlines() if " rule " in line]
    assert len(lines) == len(set(lines)), "each once"
    assert all("  =>  " in line for line in lines)
    rules = {name: line for line in lines for name in line[5 : line.index(":")].split(" + ")}
    assert {"where_swap", "reduce_scans", "carry_in_double", "index_sum", "gate_lanes"} & rules.keys() >= {"where_swap"}
    assert (
        "(p1[r0*19 + r1] if p1[r0*19 + r1] != 1.0 != True else p1[r0*19 + r1] * 2.0)  =>  (p1[" in rules["where_swap"]
    )
    assert "/ 4.0  =>  p1[" in rules["div_power_of_two"] and rules["div_power_of_two"].endswith(" * 0.25")
    assert "sum(r1000 < 19: (p1[" in rules["reduce_scans"]


def test_nobody_listens_to_rules_unless_asked_to(capsys):
    x = array(3, 23)
    with Context(TRACE="rules", COMPILE_CACHE=0):
        (x * 1 / 4).realize()
    assert "rule mul_one: b" in capsys.readouterr().err
    (x * 1 / 8).realize()
    assert capsys.readouterr().err == "" and index.allowed is None and normal.allowed is None


def test_a_recorder_knows_the_line_and_the_methods():
    x = array(3, 17)
    (x + 1).realize()  # takes along what other tests left to be computed
    with profile.Recorder() as kernels:
        x.exp().sum(0).realize()
    (kernel,) = kernels
    origin = profile.origin_of(kernel.call)
    assert "test_seeing.py:" in origin and "exp" in origin
    table = profile.kernel_table(kernels)
    assert kernel.name in table and "1 kernels" in table
    text = explain_kernel(kernel, [kernel, kernel])
    assert all(part in text for part in ("computes", "kernel IR", "generated code", origin, "2 times, at best in "))
    assert "p1 f32[51] read" in text and "p0 f32[17] written" in text


def test_a_kernel_of_a_gradient_names_the_line_of_the_operation():
    w = array(24, 40).requires_grad_()
    x = array(16, 24)
    here = currentframe().f_lineno
    h = x @ w
    loss = h.softmax(1).square().sum()
    with profile.Recorder() as kernels:
        loss.backward()
        w.grad.realize()
    origins = [profile.origin_of(k.call) for k in kernels]
    assert f"test_seeing.py:{here + 1} __matmul__ backward" in origins[-1]
    assert any(f":{here + 2} " in origin and "softmax backward" in origin for origin in origins)


def test_the_page_of_a_product_says_how_its_loops_were_cut_and_why():
    x, w = array(64, 96), array(96, 128)
    with profile.Recorder() as kernels:
        (x @ w).realize()
    page = explain_kernel(kernels[-1], brief=True)
    assert "p0[r0*128 + r1] = sum(r1000 < 96: p1[r0*96 + r1000] * p2[r1 + r1000*128])" in page
    assert f"({Device['cpu'].target.vector_bytes // 4}, 'UPCAST', False))" in page and "# r1: vector of " in page
    assert "UPCAST: in vectors and registers" in page
    with Context(NOOPT=1):
        assert "\nactions\n  none\nloops\n  r0: 64 = 64 LOOP\n" in explain_kernel(kernels[-1], brief=True)


def test_kernels_without_ir_have_pages_too():
    w = Tensor(np.ones((256, 768), np.float32)).realize()
    step = jit(lambda a: a @ w.T)
    x = array(256, 768).realize()
    with profile.Recorder() as kernels:
        step(x)
        step(x)
    pages = [explain_kernel(k, brief=True) for k in kernels]
    assert any("packs blocks of constants" in page for page in pages if page.startswith("kernel pack"))
    run = profile.KernelRun("half", node("CALL", (node("CUSTOMFUNCTION", (), "half@1"),)), 5, 0, 0)
    assert explain_kernel(run).endswith("native code of the user's")


def test_a_kernel_of_constants_knows_its_line():
    with profile.Recorder() as kernels:
        Tensor.full((3, 41), 7.53125).contiguous().realize()
    assert "test_seeing.py:" in profile.origin_of(kernels[-1].call)


def test_intermediates_with_disjoint_lifetimes_share_storage():
    x, weights = array(32, 32), [array(32, 32) + k for k in range(6)]
    for w in weights:
        w.realize()
        x = (x @ w).relu()
    target = Device["cpu"].target
    values, inputs, _ = over_params([x.uop])
    schedule = scheduled(values, target)
    linear, (result,) = schedule_of(schedule)
    assert len(linear.src) == 6
    step = joined(batch_step(schedule, len(inputs), [result], [], "cpu"), target)

    def bases(step: UOp) -> set[UOp]:
        found = {base_of(u) for c in calls_in(items_of(program_of(step))) for u in operands_of(c)}
        return {b for b in found if b.op == "BUFFER"}

    sizes = [*map(buffer_bytes, bases(step))]
    (arena,) = bases(plan_memory(step, target))
    assert len(sizes) == 5 and is_arena(arena) and buffer_bytes(arena) == 2 * max(sizes)


def test_totals_name_the_most_memory(capsys):
    with Context(DEBUG=1):
        profile.show_totals()
    found = re.search(r"at most ([0-9.]+) MB of host memory", capsys.readouterr().err)
    assert abs(float(found[1]) - stats().peak_bytes / 1e6) < 0.1


ONCE = """
import sys
from monolect import Tensor
t = (Tensor([1.0, 2.0, 5.0]) * 3).sum()
assert t.item() == 24.0
print("llvmlite" in sys.modules)
"""


def test_a_kernel_is_compiled_once_a_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("MONOLECT_CACHE", str(tmp_path))
    monkeypatch.setenv("VERIFY", "0")
    monkeypatch.setenv("CHECK_BOUNDS", "0")
    runs = [subprocess.run([sys.executable, "-c", ONCE], capture_output=True, text=True, check=True) for _ in range(2)]
    assert [run.stdout.strip() for run in runs] == ["True", "False"]


@pytest.mark.sweep
@pytest.mark.parametrize(("level", "shown"), [("2", False), ("3", True)])
def test_how_a_kernel_is_compiled_is_shown_also_where_the_disk_has_it(tmp_path, monkeypatch, level, shown):
    monkeypatch.setenv("MONOLECT_CACHE", str(tmp_path))
    monkeypatch.setenv("VERIFY", "0")
    monkeypatch.setenv("CHECK_BOUNDS", "0")
    program = "from monolect import Tensor; import numpy as np; Tensor(np.ones((99, 64), np.float32)).exp().realize()"
    for debug, asked in (("0", False), (level, shown)):
        monkeypatch.setenv("DEBUG", debug)
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert ("'SPLIT'" in run.stderr) == asked


def test_a_kernel_is_compiled_once_a_process():
    a, b, c = (array(9, 21).realize() for _ in range(3))
    with profile.Recorder() as kernels:
        (a * 5).contiguous().realize((b.T * 5).contiguous())
        (c * 5).contiguous().realize()
    programs = [loaded[k.call.src[0]] for k in kernels if kernel_of(k.call) is kernel_of(kernels[-1].call)]
    assert len(programs) >= 2 and all(p is programs[0] for p in programs)


def test_noopt_applies_no_action():
    with Context(NOOPT=1), profile.Recorder() as kernels:
        a = (array(6, 40) * 3).sum(1).tolist()
    assert a == [120.0] * 6 and "vector" not in loaded[kernels[0].call.src[0]].source
