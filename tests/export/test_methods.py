"""Steps of many kinds as C and as WebAssembly: what they take and return, and the operations between."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.export.program import Program, build, compilers
from monolect import Context, Device, Tensor, dtypes, jit
from monolect.backend.common.llvm import lld

pytestmark = pytest.mark.slow
COMPILERS = compilers()
NO_NODE = ("" if shutil.which("node") else "no node; install nodejs") or lld.missing("wasm-ld")
WAYS = [
    *(pytest.param(c, march, id=f"{c} {march or 'any'}") for c in COMPILERS for march in ("native", "", "x86-64-v3")),
    pytest.param("wasm", "", marks=pytest.mark.skipif(bool(NO_NODE), reason=NO_NODE)),
]
f = np.float32
RNG = np.random.default_rng(0)
A = np.arange(6, dtype=f).reshape(2, 3)
ROWS = RNG.standard_normal((4, 100)).astype(f)
EDGES = np.array([-1e30, -0.0, np.nan, np.inf, 3.5, 1e-40, -7, 300], f)
BYTES = np.array([-7, 7, 5, -128], np.int8), np.array([2, -3, 0, -1], np.int8)


def there(x: Any) -> Tensor:
    return Tensor(np.asarray(x)).realize()


def counting() -> Any:
    total = there(np.zeros(3, f))

    def step() -> Tensor:
        total.assign(total + 1)
        return total * 2

    return step


def flags() -> Any:
    seen = there(np.array([True, False]))

    def step(x: Tensor) -> Tensor:
        seen.assign(seen ^ x)
        return seen | x

    return step


def only(step: Any) -> Callable[[], Any]:
    return lambda: step


STEPS: dict[str, tuple[Callable[[], Any], tuple, dict]] = {
    "no argument": (counting, (), {}),
    "nested": (only(lambda p, q: [p["a"][0] + p["b"], {"z": q["k"] * 2}]), ({"a": [A], "b": A + 1},), {"q": {"k": A}}),
    "a scalar": (only(lambda x: x + 1), (f(3),), {}),
    "no elements": (only(lambda x, y: (x * 2, y + 1, x.sum())), (np.zeros((0, 3), f), A), {}),
    "any number of arguments": (only(lambda *xs: xs[0] + xs[1]), (A, A), {}),
    "a constant": (only(lambda x: (x + 1, Tensor.full((2,), 3.0))), (A,), {}),
    "bools": (flags, (np.array([True, True]),), {}),
    "8 bits": (only(lambda x: x.cast(dtypes.fp8e4m3).cast(dtypes.float32) * 2), (A,), {}),
    "16 bits": (only(lambda x: x.cast(dtypes.bfloat16) * 2), (A,), {}),
    "sort": (only(lambda x: x.sort(1).values), (ROWS,), {}),
    "topk": (only(lambda x: tuple(x.topk(5))), (ROWS,), {}),
    "cumsum": (only(lambda x: x.cumsum(1)), (ROWS,), {}),
    "softmax": (only(lambda x: x.softmax(1)), (ROWS,), {}),
    "integers": (only(lambda x, y: (x // y, x % y, x << 2, x >> 1)), BYTES, {}),
    "functions": (only(lambda x: (x.exp(), x.log(), x.sin(), x.sqrt(), x.erf(), x.tanh())), (EDGES,), {}),
    "conversions": (only(lambda x: (x.cast(dtypes.int32), x.cast(dtypes.uint8), x.cast(dtypes.int64))), (EDGES,), {}),
    "float64": (only(lambda x: (x.exp(), x.sin(), x.floor(), x.trunc())), (np.linspace(-5, 5, 33),), {}),
    "convolution": (
        only(lambda x, w: x.conv2d(w, padding=1).relu().max_pool2d(2)),
        (RNG.standard_normal((1, 8, 16, 16)).astype(f), RNG.standard_normal((16, 8, 3, 3)).astype(f)),
        {},
    ),
    "scatter": (
        only(lambda x, i: Tensor.zeros(8).scatter_add(0, i, x)),
        (np.ones(20, f), RNG.integers(0, 8, 20)),
        {},
    ),
    "random": (only(lambda x: x.dropout(0.5) + Tensor.randn(3)), (A,), {}),
    "numbers": (only(lambda x: x + 1e-45 + -0.0), (A,), {}),
}


def flat(x: Any) -> list[Any]:
    if isinstance(x, dict | list | tuple):
        return [z for y in (x.values() if isinstance(x, dict) else x) for z in flat(y)]
    return [x]


def tree(x: Any, make: Callable[[Any], Any]) -> Any:
    if isinstance(x, dict):
        return {k: tree(y, make) for k, y in x.items()}
    return type(x)(tree(y, make) for y in x) if isinstance(x, list | tuple) else make(x)


class Node:
    """The module of a folder in node. Each call runs it from the start, with the calls before."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, list[dict[str, tuple[str, str]]]()
        found = re.findall(r'name: "(\w+)", kind: "(\w+)", array: (\w+)', (folder / "model.mjs").read_text())
        self.taken = [p for p in found if p[1] != "output"]
        self.left = [p for p in found if p[1] == "output"]
        (folder / "test.mjs").write_text(
            """
import fs from "node:fs";
import { load } from "./model.mjs";
const { step } = load();
let out;
for (const call of JSON.parse(fs.readFileSync(new URL("calls.json", import.meta.url)))) {
  const given = {};
  for (const [name, [array, text]] of Object.entries(call)) {
    const bytes = Buffer.from(text, "base64");
    given[name] = new globalThis[array](bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
  }
  out = step(given);
}
for (const name in out) out[name] = Buffer.from(out[name].buffer).toString("base64");
fs.writeSync(1, JSON.stringify(out));
"""
        )

    def __call__(self, *values: np.ndarray) -> None:
        given = zip(self.taken, values, strict=False)
        self.calls.append({name: (array, base64.b64encode(x.tobytes()).decode()) for (name, _, array), x in given})
        (self.folder / "calls.json").write_text(json.dumps(self.calls))
        done = subprocess.run(["node", self.folder / "test.mjs"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        for (name, *_), x in zip(self.left, values[len(self.taken) :], strict=True):
            x.reshape(-1).view(np.uint8)[:] = np.frombuffer(base64.b64decode(found[name]), np.uint8)


@pytest.mark.parametrize(("compiler", "march"), WAYS)
@pytest.mark.parametrize("name", STEPS)
def test_steps(name, compiler, march, tmp_path):
    make, args, kwargs = STEPS[name]
    with Context(DEVICE="cpu" if compiler == "wasm" else "c"):
        Tensor.manual_seed(1)
        step = jit(make())
        given, named = tree(args, there), tree(kwargs, there)
        step(*given, **named)
        if compiler == "wasm":
            step.export(tmp_path / "out", target="wasm")
            program: Any = Node(tmp_path / "out")
        else:
            step.export(tmp_path / "out", march=march, threads=Device["c"].target.n_threads)
            build(tmp_path / "out", compiler, f"-O1 -march={march}" if march else "-O1")
            program = Program(tmp_path / "out")
        for _ in range(3):
            want = [t.numpy() for t in flat(step(*given, **named))]
            outs = [np.zeros_like(w) for w in want]
            program(*map(np.asarray, flat([args, kwargs])), *outs)
            for got, w in zip(outs, want, strict=True):
                if march == "native":
                    np.testing.assert_array_equal(got, w)
                else:
                    np.testing.assert_allclose(got.astype(f), w.astype(f), rtol=1e-5, atol=1e-5)
