"""Jobs of several processes over MPI: values, collectives, training, and what happens when a process fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from monolect import Device, DistributedError, distributed
from monolect.interop.checkpoint import load_checkpoint

MPIEXEC = next((str(p) for p in [Path(sys.executable).with_name("mpiexec")] if p.exists()), shutil.which("mpiexec"))
if not find_spec("mpi4py") or MPIEXEC is None:
    pytest.skip("mpi4py or mpiexec is missing: make test-mpi installs them", allow_module_level=True)
PROGRAMS = Path(__file__).with_name("programs.py")
TIMEOUT_SECONDS = 4  # seconds without a message after which a process gives up


def run(n: int, *program: str) -> subprocess.CompletedProcess[str]:
    """Run a program of `programs.py` on `n` processes of one thread each."""
    settings = {"THREADS": "1", "DISTRIBUTED_TIMEOUT": str(TIMEOUT_SECONDS), "VERIFY": "0", "CHECK_BOUNDS": "0"}
    paths = {"PYTHONPATH": str(PROGRAMS.parents[2])}
    command = [str(MPIEXEC), "-n", str(n), sys.executable, str(PROGRAMS), *program]
    environment = {**os.environ, **settings, **paths}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


# The processes on which `make test` runs a program: three or four if it has a form of its own for more than two.
PROCESSES = {
    "values": 4, "collectives": 4, "states": 4, "random": 4, "ring": 3, "in_place": 3,
    "sums": 2, "seen": 2, "room": 2, "training": 2, "overlap": 2, "pipeline": 2, "compiles": 2, "gathers": 2,
    "numbers": 2, "residual": 2, "schedules": 2,
}  # fmt: skip
JOBS = [
    pytest.param(name, n, marks=[pytest.mark.slow] if n != often else [])
    for name, often in PROCESSES.items()
    for n in sorted({2, often, 4})
]
N_FAILING = [pytest.param(2, marks=pytest.mark.slow), 3]


@pytest.mark.sweep(one_in=2)
@pytest.mark.parametrize(("program", "n"), JOBS)
def test_a_job_computes_what_one_process_does(program: str, n: int) -> None:
    """Half of the programs, each on some processes; `make test-mpi` runs all, each on two and on four."""
    done = run(n, program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("done") == n


@pytest.mark.parametrize("n", N_FAILING)
@pytest.mark.parametrize(
    ("how", "after", "text"),
    [
        ("raises", 5, "an error of one process"),
        ("has other shapes", 1, "the processes run different programs"),
        ("has other shapes", 5, "plans a computation that it sees for the first time"),
        ("ends early", 1, "has ended, while"),
        ("ends early", 5, "has ended, while"),
        ("is killed", 5, "died; the job ends"),
    ],
)
def test_a_job_ends_when_one_process_differs(how: str, after: int, text: str, n: int) -> None:
    start = time.monotonic()
    done = run(n, "fails", how, str(after))
    assert time.monotonic() - start < 10 + TIMEOUT_SECONDS
    assert done.returncode != 0 and text in done.stdout + done.stderr
    if how == "raises":
        assert f"rank {n - 1} of {n} failed" in done.stderr
    assert ("died" in done.stderr) == (how == "is killed")
    if how == "is killed":
        assert f"monolect: rank {n - 1} of " in done.stderr


@pytest.mark.parametrize("n", N_FAILING)
@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("has another size", "the processes run different programs"),
        ("ends early", "has ended, while"),
        ("is killed", "died; the job ends"),
    ],
)
def test_a_job_ends_when_one_process_leaves_a_sum(how: str, text: str, n: int) -> None:
    start = time.monotonic()
    done = run(n, "fails_in_a_sum", how)
    assert time.monotonic() - start < 10 + TIMEOUT_SECONDS
    assert done.returncode != 0 and text in done.stdout + done.stderr
    if how == "ends early":
        assert f"rank {n - 1} has ended" in done.stderr


@pytest.mark.parametrize("n", N_FAILING)
@pytest.mark.parametrize("kind", ["sums", "copies"])
def test_a_job_ends_when_one_process_runs_its_steps_in_another_order(kind: str, n: int) -> None:
    """The messages of both steps have equal sizes: without names, they would be taken for each other."""
    start = time.monotonic()
    done = run(n, "fails_in_order", kind)
    assert time.monotonic() - start < 10
    assert done.returncode != 0 and "the processes run different programs" in done.stderr


def test_a_checkpoint_is_loaded_on_another_number_of_processes(tmp_path: Path) -> None:
    for n, program in ((2, "save"), (4, "load"), (4, "save"), (2, "load")):
        done = run(n, program, str(tmp_path))
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("*.safetensors"))) == 4
    assert load_checkpoint(tmp_path)["columns"].shape == (5, 6)


def test_processes_that_save_other_names_leave_the_earlier_checkpoint(tmp_path: Path) -> None:
    done = run(2, "save_others", str(tmp_path))
    assert done.returncode != 0 and "the processes save different checkpoints" in done.stderr
    assert load_checkpoint(tmp_path)["x"].tolist() == [[1.0, 1.0]] * 4
    assert len(list(tmp_path.iterdir())) == 3


def test_a_program_on_one_process_is_told_how_to_start_more() -> None:
    with pytest.raises(DistributedError, match="mpiexec -n 2"):
        distributed.devices()
    with pytest.raises(DistributedError, match="no process for the device mpi:3"):
        Device["mpi:3"]
