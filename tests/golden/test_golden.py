"""The whole kernel pipeline on tiny programs, pass by pass, compared with what was reviewed.

`make golden` (or --update-golden) writes the files anew; the change is then read as a diff.
"""

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NAMES = sorted(p.stem for p in HERE.glob("*.txt"))


@pytest.fixture(scope="module")
def produced(tmp_path_factory):
    """All cases, produced by one fresh process."""
    folder = tmp_path_factory.mktemp("golden")
    root = str(HERE.parents[1])
    env = os.environ | {"PYTHONPATH": root, "VERIFY": "1", "NOOPT": "", "DEBUG": "0"}
    run = subprocess.run([sys.executable, str(HERE / "cases.py"), str(folder)], env=env, cwd=root, capture_output=True)
    assert run.returncode == 0, run.stderr.decode()
    return {p.stem: p.read_text(encoding="utf-8") for p in sorted(folder.glob("*.txt"))}


def test_the_files_are_the_cases(produced, update_golden):
    if update_golden:
        for p in HERE.glob("*.txt"):
            p.unlink()
        for name, text in produced.items():
            (HERE / f"{name}.txt").write_text(text, encoding="utf-8")
    assert sorted(p.stem for p in HERE.glob("*.txt")) == sorted(produced)
    assert len(produced) <= 12


@pytest.mark.parametrize("name", NAMES)
def test_golden(name, produced):
    wanted = (HERE / f"{name}.txt").read_text(encoding="utf-8")
    if wanted != produced[name]:
        lines = difflib.unified_diff(wanted.splitlines(), produced[name].splitlines(), "reviewed", "now", lineterm="")
        pytest.fail(f"{name}: the pipeline does something else now (`make golden`, then review)\n" + "\n".join(lines))


def test_what_the_goldens_show(produced):
    """What must not change even when the files are rewritten."""
    text = produced
    llvm = {name: t.partition("---- LLVM IR\n")[2].partition("\n---- ")[0] for name, t in text.items()}
    assert "ret void" in llvm["empty"] and "store" not in llvm["empty"]
    assert "data0[0] = 399;" in text["folded-add"]
    assert "i32 399" in llvm["folded-add"] and "add" not in llvm["folded-add"]
    assert "<16 x float>" in text["softmax-rows"] and text["softmax-rows"].count("br label %loop") == 1
    assert '("PADTO", 0, 16)' in text["padded-vector"]
    assert '("PACK", ' in text["blocked-matmul"] and 'addrspace="LOCAL"' in text["blocked-matmul"]
    assert text["blocked-matmul"].count("@llvm.fma.v16f32(") > 16
