"""`monolect run --inputs`: a graph, a kernel and a step on arrays, at every pass that has an interpreter."""

from pathlib import Path

import numpy as np
import pytest

from monolect import Tensor, Variable, jit
from monolect.cli import main
from monolect.ir.text import show
from monolect.ir.uop import node
from monolect.pipeline import COMMAND, GRAPH, KERNEL, schedule
from monolect.schedule.callify import over_params

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.ones((3, 4), np.float32)
WANTED = np.maximum(A @ B, 0) + 1, A.sum(1)


@pytest.fixture
def arrays(tmp_path: Path) -> list[str]:
    np.save(tmp_path / "a.npy", A)
    np.save(tmp_path / "b.npy", B)
    return [f"0={tmp_path / 'a.npy'}", f"1={tmp_path / 'b.npy'}"]


@pytest.fixture
def graph(tmp_path: Path) -> str:
    a, b = Tensor(A).realize(), Tensor(B).realize()
    values = ((a @ b).relu() + 1).uop, a.sum(1).uop
    (tmp_path / "graph.ir").write_text(show(node("TUPLE", values)))
    return str(tmp_path / "graph.ir")


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    sink, _, _ = over_params([((Tensor(A) @ Tensor(B)).relu() + 1).uop])
    (call,) = schedule(list(sink.src), "cpu").linear.src
    (tmp_path / "kernel.ir").write_text(show(call.src[0]))
    return str(tmp_path / "kernel.ir")


def run(tmp_path: Path, *arguments: str) -> list[np.ndarray]:
    """What the command leaves in files, in the order of their names."""
    folder = tmp_path / "out"
    assert main(["run", *arguments, "--outputs", str(folder)]) == 0
    return [np.load(p) for p in sorted(folder.iterdir())]


@pytest.mark.parametrize("last", [row.name for row in GRAPH[:-2]] + [row.name for row in COMMAND])
def test_a_graph_means_the_same_after_every_pass(last: str, graph: str, arrays: list[str], tmp_path: Path) -> None:
    found = run(tmp_path, graph, "--to", last, "--inputs", *arrays)
    for got, want in zip(found, WANTED, strict=True):
        np.testing.assert_allclose(got.reshape(want.shape), want)


@pytest.mark.parametrize("last", [row.name for row in KERNEL if row.name not in ("linearize", "control")])
def test_a_kernel_means_the_same_after_every_pass(last: str, kernel: str, arrays: list[str], tmp_path: Path) -> None:
    inputs = [f"{k}={item.partition('=')[2]}" for k, item in enumerate(arrays, 1)]
    (got,) = run(tmp_path, kernel, "--to", last, "--inputs", *inputs)
    np.testing.assert_allclose(got.reshape(2, 4), WANTED[0])


def test_a_graph_that_calls_a_kernel_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "graph.ir").write_text(show(node("TUPLE", (Tensor(A).realize().sort(1).values.uop,))))
    assert main(["run", str(tmp_path / "graph.ir")]) == 1
    assert "a graph that calls a kernel" in capsys.readouterr().err


def test_a_captured_step_in_text_runs_on_its_memory(tmp_path: Path) -> None:
    total = Tensor([1.0, 2.0]).realize()
    step = jit(lambda x: (total.assign(total + x), x * 2)[1])
    for _ in range(2):
        step(Tensor([1.0, 1.0]))
    ((capture, *_),) = step.captures.values()
    (tmp_path / "step.ir").write_text(show(capture.ready))
    roles = capture.ready.arg.roles
    given = {"argument": [3.0, 4.0], "old": [10.0, 20.0], "state": [10.0, 20.0]}
    inputs = []
    for slot, role in enumerate(roles):
        if role in given:
            np.save(tmp_path / f"{slot}.npy", np.float32(given[role]))
            inputs.append(f"{slot}={tmp_path / f'{slot}.npy'}")
    found = run(tmp_path, str(tmp_path / "step.ir"), "--to", "join", "--inputs", *inputs)
    assert sorted(a.tolist() for a in found) == [[6.0, 8.0], [13.0, 24.0]]


def test_variables_are_given_by_name(tmp_path: Path) -> None:
    n = Variable("n_rows", 1, 3)
    x = Tensor(np.arange(3.0)).realize()
    with n.bind(2):
        (tmp_path / "graph.ir").write_text(show(node("TUPLE", (x[:n].sum().uop,))))
    np.save(tmp_path / "x.npy", np.arange(3.0))
    for k, want in ((1, 0.0), (2, 1.0), (3, 3.0)):
        inputs = [f"0={tmp_path / 'x.npy'}", f"n_rows={k}"]
        (got,) = run(tmp_path, str(tmp_path / "graph.ir"), "--to", "callify", "--inputs", *inputs)
        assert got.item() == want


def test_results_are_printed(graph: str, arrays: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", graph, "--to", "callify", "--inputs", *arrays]) == 0
    assert "# result 1: float32 [2]\n[ 3. 12.]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "--inputs lacks 0"),
        (["0"], "SLOT=FILE.npy"),
        (["0={a}", "0={a}"], "each once"),
        (["n=x"], "--inputs n"),
        (["0=/nowhere/a.npy"], "cannot read an input"),
        (["0={text}", "1={b}"], "cannot read an input"),
        (["0={b}", "1={b}"], "--inputs 0: shape"),
        (["0={doubles}", "1={b}"], "--inputs 0: dtype"),
        (["0={objects}", "1={b}"], "cannot read an input"),
    ],
)
def test_bad_inputs(
    inputs: list[str], message: str, graph: str, arrays: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "doubles.npy", A.astype(np.float64))
    np.save(tmp_path / "objects.npy", np.array([{}], object))
    (tmp_path / "text.npy").write_text("no array")
    files = {name: str(tmp_path / f"{name}.npy") for name in ("a", "b", "doubles", "objects", "text")}
    given = [item.format(**files) for item in inputs]
    assert main(["run", graph, "--to", "callify", "--inputs", *given]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("last", ["partition", "order"])
def test_a_schedule_is_not_run(last: str, graph: str, arrays: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", graph, "--to", last, "--inputs", *arrays]) == 1
    assert "cannot be run on arrays" in capsys.readouterr().err


OUTSIDE = """\
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%4 = RANGE idx[] %0 (0, "LOOP")
%5 = CONST idx[] (5, idx)
%6 = ADD idx[] %4 %5
%7 = INDEX f32[] %3 %6
%8 = LOAD f32[] %7
%9 = INDEX f32[] %2 %4
%10 = STORE void[] %9 %8
%11 = END void[] %10 %4
%12 = SINK void[] %11 KernelInfo()
"""


def test_an_index_outside_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "outside.ir").write_text(OUTSIDE)
    np.save(tmp_path / "x.npy", np.zeros(8, np.float32))
    arguments = ["run", str(tmp_path / "outside.ir"), "--to", "simplify", "--inputs", f"1={tmp_path / 'x.npy'}"]
    assert main(arguments) == 1
    assert "is not proven to stay inside" in capsys.readouterr().err
