"""All caches of the compiler at once, damaged and shared: another process computes the same, or compiles anew."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import numpy as np
from monolect import Tensor, jit
w = Tensor(np.arange(96 * 96, dtype=np.float32).reshape(96, 96) / 9216).realize()
def block(x):
    for _ in range(2):
        x = ((x @ w).softmax(1) @ w).contiguous()
        x = (x - x.mean(1, keepdim=True)).contiguous()
    return x.sum(0).cumsum(0)
step = jit(block)
x = Tensor(np.linspace(0, 1, 48 * 96, dtype=np.float32).reshape(48, 96)).realize()
step(x)
print(np.round(step(x).numpy().astype(np.float64), 3).sum())
"""


def start(folder: Path) -> subprocess.Popen:
    environment = {**os.environ, "MONOLECT_CACHE": str(folder), "PYTHONWARNINGS": "error", "VERIFY": "0"}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def printed(process: subprocess.Popen) -> str:
    out, complaints = process.communicate(timeout=300)
    assert process.returncode == 0 and not complaints, complaints
    return out


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder that eight processes filled at once, and what each of them printed."""
    folder = tmp_path_factory.mktemp("caches")
    (text,) = {printed(p) for p in [start(folder) for _ in range(8)]}
    assert {"cpu", "schedules", "hoist"} <= {p.name for p in folder.iterdir()}
    return folder, text


def entries(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "exchanged"])
def test_a_damaged_cache_is_made_again(filled: tuple[Path, str], damage: str) -> None:
    folder, text = filled
    rng = random.Random(damage)
    found = entries(folder)
    contents = [p.read_bytes() for p in found]
    for p, data in zip(found, contents, strict=True):
        at = rng.randrange(len(data))
        flipped = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        other = rng.choice(contents)
        p.write_bytes({"truncated": data[:at], "flipped": flipped, "emptied": b"", "exchanged": other}[damage])
    assert printed(start(folder)) == text
    assert printed(start(folder)) == text, "what was made again is read"


def test_processes_killed_at_work_leave_caches_that_work(tmp_path: Path, filled: tuple[Path, str]) -> None:
    for seconds in (0.5, 1.0, 1.5):
        process = start(tmp_path)
        try:
            process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    assert printed(start(tmp_path)) == filled[1]
