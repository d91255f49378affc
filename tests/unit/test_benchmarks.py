"""The pieces of the benchmark table, on tiny inputs and without a clock: does it say what was measured?"""

import os
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from benchmarks import commits
from benchmarks.cpu import arrays, quiet, table
from benchmarks.cpu.case import Case, Target, listed, normal, same
from benchmarks.cpu.families import FAMILIES, attention, cases, conv, matmul, models, movement, narrow, rows, training
from benchmarks.cpu.machine import Limits, measured
from benchmarks.cpu.measure import Bench, Failed, Row
from benchmarks.cpu.peers import PEERS, installed, speaks
from benchmarks.cpu.worker import Mismatch, Session, check
from benchmarks.eager import __main__ as eager
from benchmarks.eager.rows import ROWS as EAGER_ROWS
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.rows import rows as gpu_rows
from benchmarks.host import turns
from benchmarks.host.__main__ import PEERED
from benchmarks.host.turns import agreed

TINY = [
    *[matmul.matmul(5, 7, 3, layout) for layout in ("A·B", "A·Bᵀ", "Aᵀ·B")],
    matmul.matmul(3, 4, 5, batch=(2, 3)),
    *[matmul.skinny(2, layout, 1.0, k=5, n=7, weights=3) for layout in ("W", "Wᵀ")],
    rows.gelu(3, 5),
    rows.softmax(2, 3, 7),
    rows.layer_norm(4, 9),
    rows.rms_norm(4, 9),
    *[rows.reduction(method, 5, 7, dim=dim) for method in ("sum", "mean", "max", "argmax") for dim in (None, 0)],
    conv.conv(2, 3, 9, 4, 3),
    conv.conv(1, 4, 9, 6, 3, 2, 2),
    conv.conv(2, 4, 5, 3, 1),
    conv.pooling(1, 2, 8),
    conv.batch_norm(2, 3, 4),
    attention.causal(1, 2, 6, 4),
    narrow.bfloat(5, 7, 3),
    narrow.int_eight(17, 16, 8),
    movement.cumsum(9),
    movement.transpose(3, 5),
    movement.gather(7, 3, 4),
    movement.scatter_add(7, 3, 9),
    movement.sort(9),
    movement.topk(40, 3),
    models.prefill(5, layers=1, d=8, heads=2, vocabulary=11),
    models.decode(5, layers=1, d=8, heads=2, vocabulary=11),
    models.vit(size=8, patch=4, layers=1, d=8, heads=2, classes=5),
    models.resnet(1, size=32, widths=(4, 6)),
    training.mlp(4, sizes=(6, 5, 10)),
    training.cnn(2, size=20, widths=(3, 4)),
]
LIBRARIES = [name for name in PEERS if name not in ("torch.compile", "tinygrad")]
ROOT = Path(__file__).resolve().parents[2]
LIMITS = Limits({"f32": 1e9}, read=1e9, copy=1e9)


def inputs_of(case):
    return case.inputs(np.random.default_rng(3))


def compute_every_row(library, references):
    """Check each tiny row that the library has words for against a file of references; how many those are."""
    peer = PEERS[library](library)
    wanted = pickle.loads(Path(references).read_bytes())
    spoken = [(case, want) for case, want in zip(TINY, wanted, strict=True) if speaks(library, case)]
    for case, want in spoken:
        inputs = inputs_of(case)
        call = peer.prepare(case, inputs)
        results = [call() for _ in range(case.steps or 1)]
        check([peer.array(r) for result in results for r in listed(result)], want, case.tolerance)
    return len(spoken)


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    """A file with the reference of each tiny row. PyTorch, which some need, is imported here, not in each process."""
    file = tmp_path_factory.mktemp("references") / "wanted"
    file.write_bytes(pickle.dumps([case.reference(inputs_of(case)) for case in TINY]))
    return str(file)


@pytest.mark.sweep
@pytest.mark.parametrize("library", LIBRARIES)
def test_each_library_computes_every_row(library, references):
    """In a process of its own, as in a run: some libraries start threads and watch forks once they are imported."""
    if not installed(library):
        pytest.skip(f"{library} is not installed")
    command = [sys.executable, __file__, library, references]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) >= 10


def test_weights_take_turns():
    case = matmul.skinny(2, "W", 1.0, k=5, n=7, weights=3)
    x, *weights = inputs = case.inputs(np.random.default_rng(0))
    call = PEERS["numpy"]("numpy").prepare(case, inputs)
    for i in range(7):
        np.testing.assert_array_equal(call(), x @ weights[i % 3])
    assert case.bytes_moved(inputs, [x @ weights[0]]) == (x.nbytes + weights[0].nbytes, 4 * 2 * 7)


def test_a_wrong_result_is_refused_with_what_was_expected():
    want = [np.array([1.0, 4.0])]
    assert check([np.array([1.0, 4.00002])], want, 1e-4) == pytest.approx(5e-6)
    for got in (np.array([1.0, 4.1]), np.array([np.nan, 4.0])):
        with pytest.raises(Mismatch, match="expected .* found"):
            check([got], want, 1e-4)
    with pytest.raises(Mismatch, match="expected shapes"):
        check([np.ones((2, 1))], want, 1e-4)


def test_rows_have_names_of_their_own_and_references_of_the_right_kind():
    fixed = [case for module in FAMILIES.values() for case in module.CASES]
    assert len({case.name for case in fixed}) == len(fixed) >= 30
    assert all(case.family in FAMILIES and "monolect" in case.programs for case in fixed)
    assert sum(case.quick for case in fixed) >= 5


def test_random_rows_come_from_their_seed():
    first, again, other = (list(cases(random=5, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    drawn = {name for name, module in FAMILIES.items() if hasattr(module, "random_case")}
    assert {case.family for case in cases(5, 1).values()} == drawn >= {"matmul", "rows", "conv"}


def test_arrays_come_back_aligned(tmp_path):
    made = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((), np.int8), np.ones(5, ml_dtypes.bfloat16)]
    arrays.save(str(tmp_path), "x", made)
    for got, want in zip(arrays.load(str(tmp_path), "x"), made, strict=True):
        assert got.dtype == want.dtype and got.ctypes.data % arrays.ALIGNMENT_BYTES == 0
        np.testing.assert_array_equal(got, want)


def test_limits_are_measured_and_bound_a_program(monkeypatch):
    monkeypatch.setattr("benchmarks.cpu.machine.PATIENCE_S", 0.0)  # other tests keep the processors busy
    limits = measured(megabytes=1, turns=1000)
    assert min(limits.read, limits.copy, *limits.flops.values()) > 0
    assert LIMITS.raised({"f32": 2e9}).flops == {"f32": 2e9} and LIMITS.raised({"int8": 9e9}) == LIMITS
    assert LIMITS.bound_s(5e9, "f32", 0, 0) == 5
    assert LIMITS.bound_s(1e9, "f32", int(3e9), int(2e9)) == 5  # two copied, one read
    assert LIMITS.bound_s(1e9, "unknown", 0, 0) == 0


def test_a_disturbed_measurement_is_repeated(monkeypatch):
    monkeypatch.setattr(quiet, "PAUSE_S", 0.001)
    cores = iter([1.9, 0.8, 0.1, 0.0])
    assert quiet.Patience(10.0).least_disturbed(lambda: ("x", next(cores))) == ("x", 0.1)
    cores = iter([1.9, 0.8, 1.2])
    assert quiet.Patience(1e-9).least_disturbed(lambda: ("x", next(cores))) == ("x", 0.8)
    cores = iter([1.9, 0.8])
    assert quiet.Patience(0.0).least_disturbed(lambda: ("x", next(cores))) == ("x", 1.9)
    others = iter([5.0, 5.0 + 1e9])
    monkeypatch.setattr(quiet, "others_s", lambda: next(others))
    found, busy = quiet.watched(lambda: "x")
    assert found == "x" and busy > 1


def test_a_visit_waits_until_the_threads_of_the_last_one_sleep(monkeypatch):
    waits = iter([True, False, True, False, False])
    looks = []
    monkeypatch.setattr(quiet, "LOOK_S", 0.0)
    monkeypatch.setattr(quiet, "runs", lambda pid: looks.append(pid) or next(waits))
    quiet.settle([1, 2])
    assert looks == [1, 1, 2, 1, 2]
    monkeypatch.setattr(quiet, "LONGEST_SPIN_S", 0.01)
    monkeypatch.setattr(quiet, "runs", lambda pid: True)  # for ever
    quiet.settle([1])


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="no such files on this system")
def test_threads_that_run_and_sleep_are_told_apart():
    assert quiet.runs(os.getpid()) and not quiet.runs(2**30)
    code = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        quiet.settle([process.pid])
        assert not quiet.runs(process.pid)
        process.stdin.close()


def test_processes_answer_fail_and_start_again(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.cpu.measure.PATIENCE_S", 0.0)  # other tests keep the processors busy
    bench = Bench(["monolect", "numpy"], 2, 60, LIMITS, random=1, seed=5)
    try:
        case = next(case for case in cases(1, 5).values() if case.family == "attention")
        row = bench.measure(case)
        assert set(row.median) == {"monolect", "numpy"} and not row.failed
        assert all(len(times) == 2 and min(times) > 0 for times in row.rounds.values())
        wrong = Case("x", "rows", normal((2,)), {}, exact=lambda np, x: np.no_such_function(x))
        assert "no_such_function" in bench.measure(wrong).failed["reference"]
        worker = bench.workers["numpy"]
        with pytest.raises(Failed, match=r"time: expected an answer in 0 s, found none \(stopped\)"):
            worker.ask(0.0, "time", 5.0, 10**9)
        assert worker.process is None
        with pytest.raises(Failed, match="prepare: KeyError"):
            worker.ask(60, "prepare", "no such row", str(tmp_path))
        worker.process.kill()
        with pytest.raises(Failed, match="found that the process ended with -9"):
            worker.ask(60, "time", 0.1, 1)
    finally:
        bench.close()


def test_a_profile_says_where_time_goes():
    peer = PEERS["monolect"]("monolect")
    case = attention.causal(1, 2, 6, 4)
    text = peer.profile(peer.prepare(case, case.inputs(np.random.default_rng(0))))
    head, *lines = text.splitlines()
    assert re.fullmatch(r" +\d+ kernels, [\d.]+ ms", head)
    assert all(" us " in line and "scaled_dot_product_attention" in line for line in lines) and lines


def test_a_program_that_raises_is_a_reason():
    def broken(np, x):
        raise ValueError("expected this, found that")

    session = Session("numpy", 0, 0)
    case = Case("x", "rows", normal((2,)), {"numpy": broken, **same(broken, "monolect")})
    session.cases = {"x": case}
    with pytest.raises(ValueError, match="found that"):
        session.peer.prepare(case, [np.ones(2)])()


def test_the_table_says_what_is_short(tmp_path):
    targets = [[t.ratio, list(t.over)] for t in (Target(1.0), Target(1.5, ("torch",)))]
    good = Row("good", "rows", targets, median={"monolect": 1.0, "torch": 2.0, "jax": 3.0}, bound_s=0.5)
    short = Row("short", "rows", targets, median={"monolect": 1.0, "torch": 1.25, "jax": 0.5})
    stuck = Row("stuck", "conv", targets, median={"torch": 0.002}, failed={"monolect": "expected a, found b"})
    assert good.short_of() == [] and short.short_of() == ["0.50 of jax (1.0)", "1.25 of torch (1.5)"]
    assert table.summary([good, short, stuck]) == "3 rows: 1 ok, 1 short, 1 no result"
    assert "2.00 torch" in table.line(good, ["monolect", "torch"]) and "50 %" in table.line(good, ["monolect"])
    assert "monolect ✗ expected a, found b" in table.line(stuck, ["monolect", "torch"])
    assert [table.duration(s) for s in (1.5, 0.0234, 4.5e-7)] == ["1.50 s", "23.4 ms", "0.45 us"]
    page, data = tmp_path / "page.md", str(tmp_path / "rows.json")
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write_json(data, {}, [good, short])
    kept = table.write_json(data, {}, [stuck])["rows"]
    assert [Row(**kept[name]) for name in ("good", "stuck")] == [good, stuck]
    table.write_markdown(str(page), table.markdown([good, short, stuck]))
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "**0.50 jax**" in text and "- stuck, monolect: expected a, found b" in text


if __name__ == "__main__":
    print(compute_every_row(*sys.argv[1:]))


@pytest.mark.sweep
@pytest.mark.parametrize("name", PEERED)
def test_every_row_of_the_host_gives_all_libraries_the_same_work(name: str) -> None:
    calls = PEERED[name][0]()
    assert {"monolect", "torch"} <= agreed(calls).keys() or "beside" in name
    with pytest.raises(AssertionError):
        agreed({**calls, "wrong": lambda: -1.0})


@pytest.mark.sweep
@pytest.mark.parametrize("name", EAGER_ROWS)
def test_every_row_of_eager_programs_gives_all_libraries_the_same_work(name: str) -> None:
    calls = EAGER_ROWS[name][0]()
    assert {"monolect", "torch"} <= agreed(calls).keys()
    with pytest.raises(AssertionError):
        agreed({**calls, "wrong": lambda: -1.0})


def test_the_table_of_eager_programs_says_what_is_not_installed(monkeypatch, capsys) -> None:
    monkeypatch.setattr(turns, "ROUNDS", 1)
    monkeypatch.setattr(turns, "ROUND_SECONDS", 0.0)
    monkeypatch.setattr(eager, "find_spec", lambda library: None if library == "jax" else library)
    eager.main(["x.sum"])
    head, row, note = capsys.readouterr().out.splitlines()
    assert head.split()[-2:] == ["of", "torch"] and row.startswith("x.sum()") and row.endswith("x")
    assert note == "jax: not installed"


# ---- the table of a GPU, on the processor ----------------------------------------------------------------------------
def test_every_row_of_the_gpu_table_is_right_and_stands_beside_pytorch(tmp_path, capsys):
    path = tmp_path / "table.md"
    assert gpu.main(["--device", "cpu", "--small", "--turns", "1", "--markdown", str(path)]) == 0
    lines = path.read_text().splitlines()
    assert capsys.readouterr().out.splitlines() == lines and "PyTorch" in lines[0] and "GB/s" in lines[0]
    cells = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ") for line in lines[4:]}
    assert list(cells) == [row.name for row in gpu_rows(is_small=True)]
    assert all(len(row) == 7 and row[2].endswith("ms") and row[6].startswith(("ok", "short")) for row in cells.values())


def test_a_wrong_result_is_told_and_fails_the_gpu_table(monkeypatch, capsys):
    (row,) = (r for r in gpu_rows(is_small=True) if r.name == "sum of rows")
    monkeypatch.setattr(gpu, "rows", lambda is_small=False: [replace(row, ours=lambda x: x.sum(1) * 1.001)])
    assert gpu.main(["--device", "cpu", "--small", "--turns", "1"]) == 1
    assert "differs by" in capsys.readouterr().out


def test_the_gpu_table_says_why_there_is_no_device(monkeypatch, capsys):
    monkeypatch.setattr(gpu.Device, "present", lambda: {"cuda": "no CUDA driver"})
    assert gpu.main([]) == 2 and gpu.main(["--device", "abacus"]) == 2
    assert capsys.readouterr().out.splitlines() == ["cuda: no CUDA driver", "abacus: no such device"]
    assert gpu.main(["--device", "cpu", "nothing"]) == 2
    monkeypatch.undo()
    assert gpu.main(["--device", "cpu", "nothing"]) == 1 and "no such row" in capsys.readouterr().out


def test_goals_are_shares_of_a_copy_or_of_pytorch():
    copied, beside = (next(r for r in gpu_rows() if r.of == of) for of in ("copy", "torch"))
    at_rate = copied.n_bytes / 100.0  # seconds at a rate of 100
    assert gpu.verdict(copied, at_rate / 0.91, None, 100.0) == "ok: 0.9 of the copy"
    assert gpu.verdict(copied, at_rate / 0.89, 1e9, 100.0) == "short: 0.9 of the copy"
    assert gpu.verdict(beside, 1.0, 1.1, 100.0) == "ok: 1.0 of PyTorch"
    assert gpu.verdict(beside, 1.1, 1.0, 100.0) == "short: 1.0 of PyTorch"
    assert gpu.verdict(beside, 1.0, None, 100.0) == "1.0 of PyTorch: not here"


def test_a_row_is_slower_only_if_every_run_exceeds_the_limit_and_the_control():
    slow, noise, fine = commits.Ratio(1.05, 1.01), commits.Ratio(1.05, 1.06), commits.Ratio(1.03, 1.0)
    assert commits.is_slower([slow, slow, slow])
    assert not commits.is_slower([slow, noise, slow])
    assert not commits.is_slower([slow, slow, fine])
    assert not commits.is_slower([])


def test_equal_kernels_of_two_processes_have_equal_code_and_others_do_not(tmp_path):
    def code(name, program):
        cache = tmp_path / name
        script = (
            f"import numpy as np; from monolect import Tensor; x = Tensor(np.ones(99, np.float32)); ({program}).numpy()"
        )
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"MONOLECT_CACHE": str(cache), "VERIFY": "0", "CHECK_BOUNDS": "0"},
            check=True,
        )
        return commits.code_of(cache)

    doubled = code("a", "x * 2")
    assert doubled == code("b", "x * 2") and doubled != code("c", "x * 3")
