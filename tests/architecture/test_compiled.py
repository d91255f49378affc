"""The modules that mypyc may compile: the list is true, and what they make is what plain Python makes."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from monolect.base.disk import version
from monolect.base.errors import InternalError

ROOT = Path(__file__).resolve().parents[2]
MODULES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["monolect"]["compiled"]

PROGRAM = """
import numpy as np
from monolect import Tensor
from monolect.backend.registry import Device
from monolect.base.disk.version import COMPILED
from monolect.ir.text import show
from monolect.pipeline import lower_kernel
from monolect.schedule.callify import over_params
from monolect.pipeline import schedule

x, w = Tensor(np.ones((8, 16), np.float32)), Tensor(np.ones((16, 12), np.float32), requires_grad=True)
loss = ((x @ w).softmax(1)[1:, ::2].pad((1, 0)).amax(0) * float("nan")).sum()
loss.backward()
target = Device["cpu"].target
sink, _, _ = over_params([loss.uop, w.grad.uop])
calls = schedule(list(sink.src), "cpu", target.local_bytes).linear.src
kernels = [lower_kernel(c.src[0], target) for c in calls]
print(COMPILED)
for k in kernels:
    print(show(k))
print((x @ w).sum(1).tolist())
"""


def test_the_list_names_modules():
    assert len(set(MODULES)) == len(MODULES) > 0
    assert all((ROOT / (name.replace(".", "/") + ".py")).exists() for name in MODULES)


def test_a_compiled_module_older_than_its_source_is_refused(tmp_path, monkeypatch):
    for folder in (*version.FOLDERS, "base/disk", "autograd"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    source, built = tmp_path / "base/disk/version.py", tmp_path / "base/disk/version.cpython-311.so"
    source.write_text("")
    monkeypatch.setattr(version, "__file__", str(source))
    before = version.compiler_version.__wrapped__()
    built.write_text("")
    os.utime(built, (source.stat().st_mtime + 1,) * 2)
    assert version.compiler_version.__wrapped__() != before  # compiled modules are part of the name
    os.utime(built, (source.stat().st_mtime - 1,) * 2)
    with pytest.raises(InternalError, match="base/disk/version was compiled before its source was edited"):
        version.compiler_version.__wrapped__()


def printed(tree: Path) -> list[str]:
    """What the program prints with the monolect of a tree."""
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0", "COMPILE_CACHE": "0"}
    out = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, cwd=tree, check=False
    )
    assert out.returncode == 0, out.stderr
    return out.stdout.splitlines()


@pytest.mark.slow
def test_a_compiled_build_makes_the_same_programs(tmp_path):
    if importlib.util.find_spec("mypyc") is None or shutil.which("cc") is None:
        pytest.skip("needs mypyc (the extra `compiled`) and a C compiler")
    shutil.copytree(ROOT / "monolect", tmp_path / "monolect", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, tmp_path)
    plain = printed(tmp_path)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    env = {**os.environ, "MONOLECT_COMPILED": "1"}
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)
    compiled = printed(tmp_path)
    assert (plain[0], compiled[0]) == ("False", "True")
    assert len(plain) > 20 and compiled[1:] == plain[1:]
