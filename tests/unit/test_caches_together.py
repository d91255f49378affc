"""All caches of the compiler at once, damaged and shared: another process computes the same, or compiles anew."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

import monolect
from monolect import Context, Tensor, jit
from monolect.backend.registry import Device
from monolect.base.disk import cache, version
from monolect.runtime.realize import execute, programs
from monolect.runtime.realize import schedule_cache as kept
from monolect.runtime.replay import hoist

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
    environment = {
        **os.environ,
        "MONOLECT_CACHE": str(folder),
        "PYTHONWARNINGS": "error",
        "VERIFY": "0",
        "CHECK_BOUNDS": "0",
    }
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


@pytest.mark.sweep
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


# ---- versions --------------------------------------------------------------------------------------------------------
def found_on_disk(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each entry that a step asks the disk for, as a new process would, whether it was there."""
    device, found = Device["cpu"], []
    with monkeypatch.context() as m:
        for place, name in ((execute, "plans"), (hoist, "known"), (device, "programs"), (device, "_modules")):
            m.setattr(place, name, type(getattr(place, name))())
        get = cache.DiskCache.get
        m.setattr(cache.DiskCache, "get", lambda *a: (value := get(*a), found.append(value is not None))[0])
        w = Tensor(np.ones((96, 96), np.float32)).realize()
        step, x = jit(lambda x: (x @ w).softmax(1)), Tensor(np.ones((48, 96), np.float32)).realize()
        for _ in range(2):
            step(x)
    return found


def of_another_compiler(m: pytest.MonkeyPatch) -> None:
    for module in (kept, programs, hoist):
        m.setattr(module, "compiler_version", lambda: "x")


def of_another_llvm(m: pytest.MonkeyPatch) -> None:
    target = Device["cpu"].target
    m.setattr(Device["cpu"], "target", target._replace(key=f"another {target.key}"))


@pytest.mark.sweep
@pytest.mark.parametrize("changed", [of_another_compiler, of_another_llvm])
def test_an_entry_of_another_version_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: Callable[[pytest.MonkeyPatch], None]
) -> None:
    with Context(MONOLECT_CACHE=str(tmp_path), COMPILE_CACHE=1, VERIFY=0, CHECK_BOUNDS=0):
        Device["cpu"].pool  # noqa: B018 its code is known by its text
        assert not any(found_on_disk(monkeypatch))
        assert all(found_on_disk(monkeypatch))
        changed(monkeypatch)
        again = found_on_disk(monkeypatch)
        assert again and (not any(again) if changed is of_another_compiler else not all(again))
        assert all(found_on_disk(monkeypatch))


def test_every_file_that_an_entry_hangs_on_is_part_of_the_version(tmp_path: Path, monkeypatch) -> None:
    root = tmp_path / "monolect"
    copytree(Path(monolect.__file__).parent, root, ignore=lambda _, names: [n for n in names if n.endswith(".so")])
    monkeypatch.setattr(version, "__file__", str(root / "base" / "disk" / "version.py"))
    named = version.compiler_version.__wrapped__
    files = ("__init__.py", "pipeline.py", "rules/algebra.py", "lower/select.py", "backend/cpu/render.py")
    for name in (
        *files,
        "backend/metal/render.py",
        "runtime/realize/schedule_cache.py",
        "runtime/replay/hoist.py",
        "runtime/realize/lowering.py",
        "backend/common/host/elf.py",
    ):
        before = named()
        (root / name).write_text((root / name).read_text() + "\n")
        assert named() != before, name
    before = named()
    (root / "tensor" / "loss.py").write_text("")
    assert named() == before, "a graph is named by what it is, whoever builds it"
