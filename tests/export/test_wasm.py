"""Exported WebAssembly in node, beside the device `cpu`."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.export.models import SMALL
from monolect import Tensor, Variable, jit
from monolect.backend.common.llvm import lld

MISSING = ("" if shutil.which("node") else "no node; install nodejs") or lld.missing("wasm-ld")
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
ROWS = Variable("wasm_rows", 2, 8, multiple_of=2)


def run(folder: Path, calls: list[dict[str, Any]]) -> list[dict[str, np.ndarray]]:
    """The results of calls of the step, one after the other."""
    given = [
        {k: [x.dtype.name, x.ravel().tolist()] if isinstance(x, np.ndarray) else x for k, x in c.items()} for c in calls
    ]
    (folder / "calls.json").write_text(json.dumps(given))
    (folder / "test.mjs").write_text(
        """
import fs from "node:fs";
import { load } from "./model.mjs";
const kinds = { float32: Float32Array, int32: Int32Array, uint8: Uint8Array, bool: Uint8Array };
const { step, init } = load();
const out = [];
for (const call of JSON.parse(fs.readFileSync(new URL("calls.json", import.meta.url)))) {
  if (call.init) { init(); continue; }
  for (const k in call) if (Array.isArray(call[k])) call[k] = kinds[call[k][0]].from(call[k][1]);
  try {
    const found = { ...step(call), ...call };
    for (const k in found) if (found[k].length !== undefined) found[k] = [...found[k]];
    out.push(found);
  } catch (e) {
    out.push({ error: e.message });
  }
}
fs.writeSync(1, JSON.stringify(out));
"""
    )
    done = subprocess.run(["node", str(folder / "test.mjs")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
def test_models(case, tmp_path):
    step = case.make("cpu")
    case.call(step, 0, "cpu")
    step.export(tmp_path / "out", target="wasm")
    name = {"LSTM step": "x", "GPT-2 decode": "index"}.get(case.name, "image")
    sizes = [{"place": case.sizes[n]} if case.size else {} for n in range(1, 5)]
    found = run(tmp_path / "out", [{name: case.arguments[0], **size} for size in sizes])
    for n, got in enumerate(found, 1):
        want = case.call(step, n, "cpu")[0].ravel()
        np.testing.assert_allclose(got["out"], want, rtol=1e-5, atol=1e-5 * abs(want).max())


def test_names_of_the_user_s(tmp_path):
    step = jit(
        lambda x1, v, entry, base, class_: {"x2": x1 + v, "int": entry * base, "step": class_ + 1, "a'b\n": v * 2}
    )
    a = np.arange(4, dtype=np.float32)
    step(*(Tensor(a + k).realize() for k in range(5)))
    step.export(tmp_path / "out", target="wasm")
    names = ("x1", "v", "entry", "base", "class_")
    (got,) = run(tmp_path / "out", [{name: a + k for k, name in enumerate(names)}])
    assert [got[k] for k in ("x2", "int_", "step_2", "a_b")] == [
        (a + a + 1).tolist(), ((a + 2) * (a + 3)).tolist(), (a + 5).tolist(), ((a + 1) * 2).tolist()
    ]  # fmt: skip


def test_what_a_step_takes_and_returns(tmp_path):
    table, total = Tensor([1.0, 2.0, 4.0, 8.0]).realize(), Tensor.zeros(2).clone().realize()

    @jit
    def step(x, i, y):
        total.assign(total + x[: ROWS.uop].sum(0))
        y.assign(y * 2)
        return {"picked": table[i] * 1, "mask": x.T[:1] > 2, "part": x[: ROWS.uop] * 2, "total": total}

    x, i, y = np.arange(16, dtype=np.float32).reshape(8, 2), np.array([3, -4], np.int32), np.ones(3, np.float32)
    with ROWS.bind(2):
        step(*(Tensor(a).realize() for a in (x, i, y)))
    step.export(tmp_path / "out", target="wasm")
    call = {"x": x, "i": i, "y": y, "wasm_rows": 4}
    bad = [
        {**call, "i": np.array([4, 0], np.int32)},
        {**call, "wasm_rows": 3},
        {**call, "wasm_rows": 10},
        {**call, "x": y},
    ]
    first, second, *wrong, again = run(tmp_path / "out", [call, call, *bad, {"init": 1}, call])
    assert first["picked"] == [8, 1] and first["mask"] == [0, 0, 1, 1, 1, 1, 1, 1] and first["y"] == [2, 2, 2]
    assert first["part"] == (x[:4] * 2).ravel().tolist()
    sums = x[:4].sum(0)
    start = total.numpy()
    assert first["total"] == (start + sums).tolist() and second["total"] == (start + 2 * sums).tolist()
    assert again == first
    errors = [w["error"] for w in wrong]
    assert "index outside of -4 to 3" in errors[0] and "expected a Float32Array of 16" in errors[3]
    weights = tmp_path / "out" / "model.weights"
    weights.write_bytes(weights.read_bytes()[:8] + bytes(8) + weights.read_bytes()[16:])
    done = subprocess.run(["node", str(tmp_path / "out" / "test.mjs")], capture_output=True, text=True, check=False)
    assert done.returncode and "damaged, or of another model" in done.stderr
    assert all("wasm_rows is outside of 2 to 8, a multiple of 2" in e for e in errors[1:3])
