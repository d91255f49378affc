"""`monolect report`: the batch of a line as one file, and what running that file finds."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from monolect import MonolectError
from monolect.base.errors import ArgumentError, FileFormatError, VerifyError
from monolect.cli import main
from monolect.cli.report import read, replay, report
from monolect.ir.uop import UOp, build, const
from tests.unit import planted

PROGRAM = """
import sys
import numpy as np
from monolect import Tensor, Variable, dtypes, jit

x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
w = Tensor(np.ones((4, 5), np.float32))
y = (x @ w).tanh() + 1  # line 8
total = y.sum(0)
print(total.tolist())  # line 10
state = Tensor.zeros(4).contiguous().realize()
state[1:3] = total[:2]
print(state.tolist())  # line 13
n = Variable("n", 1, 4)
with n.bind(3):
    print(x[:, :n].sum(1).tolist())  # line 16


@jit
def step(v):
    return (v * 3).cast(dtypes.bfloat16)  # line 21


print(step(x).tolist(), step(x).tolist())
print(Tensor.rand(5, seed=None).shape if False else Tensor.rand(5).tolist())  # line 25
print(sys.argv[1:])
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "program.py").write_text(PROGRAM)
    return str(tmp_path / "program.py")


def tripled(u: UOp) -> UOp | None:
    """The fault: a hyperbolic tangent plus 1 is plus 3."""
    one = u.op == "ADD" and u.dtype.kind == "f" and u.src[1] is const(1.0, u.dtype)
    return build("ADD", u.src[0], const(3.0, u.dtype)) if one else None


@pytest.mark.sweep
@pytest.mark.parametrize("line", [8, 10, 13, 16, 21, 25])
def test_a_line_is_run_again_from_the_file(line: int, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = os.path.join(os.path.dirname(program), "bug.ir")
    assert main(["report", f"{program}:{line}", "-o", file, "--", "given"]) == 0
    assert "['given']" in capsys.readouterr().out
    assert main(["report", file]) == 0
    out = capsys.readouterr().out
    assert f"line: program.py:{line}" in out and "agrees with the interpreter, has the bits of the report" in out
    assert main(["run", file, "--to", "order"]) == 0 and "# after order" in capsys.readouterr().out


def test_another_process_runs_it(program: str, tmp_path: Path) -> None:
    report(f"{program}:8", (), str(tmp_path / "bug.ir"))
    command = [sys.executable, "-m", "monolect", "report", str(tmp_path / "bug.ir")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "has the bits of the report" in done.stdout


def test_a_wrong_number_is_found(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "bug.ir")
    monkeypatch.setenv("CHECK_BOUNDS", "0")
    with monkeypatch.context() as fault:
        planted.forget_programs(fault)
        planted.plant(fault, "simplify_loops", tripled)
        report(f"{program}:8", (), file)
        assert "differs from the interpreter at" in capsys.readouterr().out
        with pytest.raises(VerifyError, match="not that of the tensor graph"):
            replay(file)
    capsys.readouterr()
    planted.forget_programs(monkeypatch)
    replay(file)  # a compiler without the fault
    assert "agrees with the interpreter, has other bits than the report" in capsys.readouterr().out


def test_the_batch_that_fails_is_reported(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "bug.ir")

    def failing(u: UOp) -> UOp | None:
        if tripled(u) is not None:
            raise VerifyError("planted", expected="nothing", found="a fault")
        return None

    with monkeypatch.context() as fault:
        planted.forget_programs(fault)
        planted.plant(fault, "simplify_loops", failing)
        report(program, (), file)
        assert "the program failed: planted" in capsys.readouterr().err
        with pytest.raises(VerifyError, match="planted"):
            replay(file)
        assert "failed there: planted" in capsys.readouterr().out
    replay(file)
    assert "agrees with the interpreter" in capsys.readouterr().out


def test_inputs_may_be_left_out(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "bug.ir")
    report(f"{program}:8", (), file, with_data=False)
    assert read(file).inputs == [None, None]
    replay(file)
    assert "has the bits of the report" in capsys.readouterr().out


def test_a_line_that_computes_nothing(program: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no batch came from there"):
        report(f"{program}:2", (), str(tmp_path / "bug.ir"))
    with pytest.raises(ArgumentError, match="no such program"):
        report(f"{program}x:2", (), str(tmp_path / "bug.ir"))
    assert not (tmp_path / "bug.ir").exists()


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("#! device", "#! advice"),
        ("#! input 1 ", "#! input 2 "),
        ("#! input 1 ", "#! input 1 x"),
        ("#! input 1 ", "#! output 1 "),
        ('#! settings {"', '#! settings {"x'),
        ("#! settings {", "#! settings [{"),
        ("f32[5]", "f32[6]"),
        ("TUPLE", "GROUP"),
        ("slot=1", "slot=7"),
        ('#! device "cpu"', '#! device "gpus"'),
    ],
)
def test_a_damaged_file_is_refused(old: str, new: str, program: str, tmp_path: Path) -> None:
    file = tmp_path / "bug.ir"
    report(f"{program}:8", (), str(file))
    text = file.read_text().replace("#! settings {", '#! settings {"NOOPT": 1, ').replace(", }", "}")
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(MonolectError):
        replay(str(file))


def test_files_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "bug.ir").write_bytes(b"\xff\xfe")
    for name in ("bug.ir", "none.ir"):
        with pytest.raises(FileFormatError, match="not a report"):
            read(str(tmp_path / name))


def test_mutations_raise_errors_of_monolect(program: str, tmp_path: Path) -> None:
    file, rng = tmp_path / "bug.ir", random.Random(0)
    report(f"{program}:13", (), str(file))
    text = file.read_text()
    for _ in range(150):
        lines = text.splitlines()
        k = rng.randrange(len(lines))
        at = rng.randrange(len(lines[k]) + 1)
        lines[k] = lines[k][:at] + rng.choice(["", "0", "x", '"', "%3", "{", " "]) + lines[k][at + rng.randrange(3) :]
        file.write_text("\n".join(lines))
        try:
            replay(str(file))
        except MonolectError:
            continue
