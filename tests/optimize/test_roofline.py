"""The predicted times of kernels: within twice the times that were measured, on two processors as data."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cpu.families import cases
from monolect.base.dtype import dtypes
from monolect.cli import main
from monolect.ir.ops import ParamArg
from monolect.ir.uop import UOp, build, const, idx, node, shape_source
from monolect.optimize.roofline import predict
from tests.optimize.predict import MORE
from tests.optimize.targets import H100, ZEN_5
from tests.strategies import often

ROOT = Path(__file__).parents[2]
# Milliseconds on an Intel Xeon with AMX, two threads, and the term that limits the program; where the program is not
# limited by arithmetic or memory alone, any of several.
XEON = {
    "matmul 256 A·B": (0.104, "compute"),
    "matmul 512 A·B": (0.804, "compute"),
    "matmul 1024 A·B": (6.30, "compute"),
    "matmul 2048 A·B": (49.5, "compute"),
    "matmul 4096 A·B": (397, "compute"),
    "matmul 1x4096x4096 x·W": (1.13, "DRAM"),
    "matmul 8x4096x4096 x·W": (2.12, "DRAM"),
    "matmul 4096x64x4096 A·B": (6.61, "compute"),
    "matmul bf16 1024": (1.14, "L2"),
    "matmul bf16 2048": (8.36, "L2"),
    "matmul int8 1024": (0.545, "L2"),
    "matmul int8 2048": (5.38, "L2"),
    "gelu(x*a+b)*c 16M": (9.9, "compute"),
    "softmax 4096x4096": (4.7, "DRAM"),
    "layernorm 8192x1024": (1.5, "DRAM"),
    "argmax 16M": (1.5, "DRAM"),
    "cumsum 16M": (6.9, "compute"),
    "transpose 4096": (5.9, "DRAM"),
    "sum 64M": (9.6, "DRAM"),
    "sort 1M": (5.85, "compute"),
    "gather 4096 of 50257x768": (0.553, "L3"),
    "conv 3x3 (32,64,56,56)->64": (22.8, "compute"),
    "conv 1x1 (32,256,56,56)->64": (19.2, "compute"),
    "depthwise 3x3 (32,128,56,56)->128": (2.1, "DRAM"),
    "conv 7x7/2 (32,3,224,224)->64": (23.9, "compute"),
    "conv 3x3 (1,512,7,7)->512, weight as an argument": (2.08, "compute"),
    "attention causal (1,12,1024,64)": (7.3, "compute"),
    "attention causal (4,12,256,64)": (2.4, "compute"),
    "ResNet-18 bs 1": (10.0, "compute"),
    "ResNet-18 bs 16": (153, "compute"),
    "GPT-2 prefill 256": (154, "compute"),
    "GPT-2 decode after 256": (19.4, "L3"),
    "ViT-tiny bs 1": (10.7, "compute"),
    "MLP training bs 128 (784-512-512-10)": (1.77, "compute"),
    "CNN training bs 512 (28x28)": (211, "compute"),
}
MAX_OUTSIDE = 1  # rows of the first machine whose prediction is not within twice the measured time: gelu


def predictions(target: str, *names: str) -> dict[str, tuple[float, str]]:
    """(milliseconds, limit) by program, made by one fresh process."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "NOOPT": "", "DEBUG": "0", "TRACE": "", "DISABLE": "", "BEAM": ""}
    command = [sys.executable, "-m", "tests.optimize.predict", target, *names]
    run = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    rows = [line.split("\t") for line in run.stdout.decode().splitlines()]
    return {name: (float(ms), limit) for name, ms, limit in rows}


def measured_on_first_machine() -> dict[str, float]:
    """Milliseconds by program, from the table that the benchmark wrote."""
    found = {}
    for line in (ROOT / "docs/results/cpu.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 3 and (m := re.fullmatch(r"([0-9.]+) (us|ms)", cells[2])):
            found[cells[1]] = float(m[1]) / (1000 if m[2] == "us" else 1)
    return found


def test_a_machine_that_the_model_was_not_made_for():
    """`make test` predicts every fourth program."""
    names = [*XEON][often(1, 0) :: often(4, 1)]
    found = predictions("amx", *names)
    for name in names:
        (ms, limit), (predicted, by) = XEON[name], found[name]
        assert ms / 2 <= predicted <= ms * 2, f"{name}: {predicted:.3f} ms, measured {ms}"
        assert by == limit, name


def test_the_first_machine():
    """`make test` predicts every fourth program; the one that is outside is not among them."""
    step, measured = often(4, 1), measured_on_first_machine()
    names = [n for n in (*MORE, *cases()) if n in measured][::step]
    assert len(names) >= 50 // step
    found = predictions("zen5", *names)
    outside = [n for n in names if not measured[n] / 2 <= found[n][0] <= measured[n] * 2]
    assert len(outside) <= often(0, MAX_OUTSIDE), {n: (found[n], measured[n]) for n in outside}


def doubled(n: int) -> UOp:
    """The kernel p0[i] = p1[i] * 2 for n elements, before actions are chosen."""
    r = node("RANGE", (idx(n),), (0, "LOOP"))
    to, source = (node("PARAM", (shape_source((n,)),), ParamArg(k, dtypes.float32)) for k in range(2))
    value = build("MUL", node("LOAD", (node("INDEX", (source, r)),)), const(2.0, dtypes.float32))
    store = node("STORE", (node("INDEX", (to, r)), value))
    return node("SINK", (node("END", (store, r)),))


def test_terms_follow_the_rates_of_the_target():
    n = 1 << 26
    slow = predict(doubled(n), (), ZEN_5)
    memory = next(t for t in slow.terms if t.name == "DRAM")
    assert memory.seconds == pytest.approx(3 * 4 * n / ZEN_5.dram_bytes_per_second)  # a store reads its line first
    assert slow.limit.name == "compute"  # no vectors
    wide = predict(doubled(n), (("SPLIT", 0, (16, "UPCAST", False)),), ZEN_5)
    assert wide.limit is not None and wide.limit.name == "DRAM" and wide.seconds == pytest.approx(memory.seconds)
    direct = predict(doubled(n), (("SPLIT", 0, (16, "UPCAST", False)), ("NONTEMPORAL", 0, None)), ZEN_5)
    assert direct.seconds == pytest.approx(memory.seconds * 2 / 3)
    faster = predict(doubled(n), (), ZEN_5._replace(clock_hz=2 * ZEN_5.clock_hz))
    assert faster.sum_of(False) == pytest.approx(slow.sum_of(False) / 2)
    assert [t.name for t in predict(doubled(64), (), ZEN_5).terms] == ["compute"]  # all of it is in the L1 cache


def test_threads_share_arithmetic_and_not_memory():
    n, target = 1 << 26, ZEN_5._replace(n_threads=2)
    one = predict(doubled(n), (), target)
    two = predict(doubled(n), (("SPLIT", 0, (2, "THREAD", True)),), target)
    assert two.sum_of(False) == pytest.approx(one.sum_of(False) / 2)
    assert two.sum_of(True) == one.sum_of(True)


def test_targets_with_workgroups_have_no_prediction():
    assert predict(doubled(1 << 20), (), H100).terms == ()


def test_explain_names_the_limit_at_the_rates_of_this_machine(capsys, tmp_path):
    file = tmp_path / "product.py"
    file.write_text(
        "from monolect import Tensor\nx = Tensor.zeros(256, 256).contiguous().realize()\ny = (x @ x).realize()\n"
    )
    assert main(["explain", "--brief", "--why", f"{file}:3"]) == 0
    page = capsys.readouterr().out.partition("\npredicted\n")[2].partition("\nweighed\n")[0]
    assert re.search(r" us, limited by compute\n", page)
    assert re.search(r"at [0-9.]+ GHz, [0-9.]+ GB/s of memory", page)
