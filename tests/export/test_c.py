"""Exported C beside the device `c`: equal bits, whatever a step takes, returns and keeps."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.export.models import digits, gpt2, lstm
from benchmarks.export.program import Program, build, compilers
from benchmarks.generate import PROMPT, TorchWriter, model_of
from examples.gpt2 import SIZE, Writer
from monolect import Tensor, Variable, dtypes, jit

COMPILERS = compilers()
pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler: install gcc or clang")
QUICK = "-O1 -march=native"
ROWS = Variable("rows", 1, 6)
EVEN = Variable("even", 2, 8, multiple_of=2)


@pytest.fixture(params=[pytest.param(c, marks=[pytest.mark.slow] * (k > 0)) for k, c in enumerate(COMPILERS)])
def compiler(request):
    return request.param


def there(x: Any, device: str = "c") -> Tensor:
    return Tensor(np.asarray(x), device=device).realize()


def exported(step: Any, folder: Path, compiler: str = "", flags: str = QUICK, **options: Any) -> Program:
    options = {"march": "native", **options}
    step.export(folder, **options)
    build(folder, compiler, flags)
    return Program(folder, options.get("name", "model"))


# ---- models ----------------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize(
    "case", [pytest.param(lstm(8, 16), marks=pytest.mark.slow), gpt2(1, 16, 2, 32, 8)], ids=lambda c: c.name
)
def test_a_step_that_keeps_state(case, compiler, tmp_path):
    step = case.make("c")
    case.call(step, 0, "c")
    program = exported(step, tmp_path / "out", compiler)
    out = np.zeros(case.outputs[0], np.float32)
    for n in range(1, 5):
        program(*case.arguments, *([case.sizes[n]] if case.size else []), out)
        np.testing.assert_array_equal(out, case.call(step, n, "c")[0])


@pytest.mark.slow
def test_threads(tmp_path):
    case = digits(4)
    step = case.make("c")
    want = case.call(step, 0, "c")[0]
    program = exported(step, tmp_path / "out", threads=3)
    text = (tmp_path / "out" / "model.c").read_text()
    assert "parallel(part" in text and "-pthread" in (tmp_path / "out" / "Makefile").read_text()
    out = np.zeros(case.outputs[0], np.float32)
    for _ in range(50):
        program(*case.arguments, out)
        np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_any_processor_and_an_array_of_weights(tmp_path, compiler):
    model = digits(2)
    net = model.make("cpu")
    want = model.call(net, 0, "cpu")[0]
    program = exported(net, tmp_path / "net", compiler, weights="array")
    assert "raw = (const unsigned char *)model_weights" in (tmp_path / "net" / "model.c").read_text()
    out = np.zeros(model.outputs[0], np.float32)
    program(*model.arguments, out)
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)
    case = lstm(8, 16)
    step = case.make("cpu")
    case.call(step, 0, "cpu")
    program = exported(step, tmp_path / "out", compiler, "-O1", march="", weights="array", name="cell")
    assert sorted(p.suffix for p in (tmp_path / "out").iterdir() if "weights" in p.name) == [".c", ".o"]
    out = np.zeros(case.outputs[0], np.float32)
    for n in range(3):
        program(*case.arguments, out)
        np.testing.assert_allclose(out, case.call(step, n, "cpu")[0], rtol=1e-5, atol=1e-6)
    first = out.copy()
    program.init()
    for _ in range(3):
        program(*case.arguments, out)
    np.testing.assert_array_equal(out, first)


# ---- what a step takes and returns -----------------------------------------------------------------------------------
def test_views_states_and_arguments_among_the_results(tmp_path):
    w, total = there(np.arange(12, dtype=np.float32).reshape(4, 3)), there(np.zeros(3, np.float32))

    @jit
    def step(x, y):
        total.assign(total + (x @ w).sum(0))
        y.assign(y * 2)
        z = (x @ w).relu()
        parts = {"turned": z.T, "part": z[1:, ::2], "wide": z[:1].expand(3, 3)}
        return {"z": z, **parts, "w": w, "x": x, "sum": total, "again": z}

    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    step(there(x), there(np.ones(2, np.float32)))
    program = exported(step, tmp_path / "out")
    shapes = {"z": (2, 3), "turned": (3, 2), "part": (1, 2), "wide": (3, 3), "w": (4, 3), "sum": (3,)}
    header = (tmp_path / "out" / "model.h").read_text()
    assert f"(const float *x, float *y, {', '.join(f'float *{name}' for name in shapes)});" in header
    assert "x is no output: it is an argument" in header and "again is the same as z" in header
    outs = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    for k in range(3):
        y, yt = np.full(2, k + 1, np.float32), there(np.full(2, k + 1, np.float32))
        program(x, y, *outs.values())
        want = step(there(x), yt)
        np.testing.assert_array_equal(y, yt.numpy())
        for name, got in outs.items():
            np.testing.assert_array_equal(got, want[name].numpy(), err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float64"])
def test_types(name, tmp_path):
    dtype = getattr(dtypes, name)

    @jit
    def step(x, y):
        return (x | y, x) if name == "bool" else (x * y + y, (x < y).where(x, y).sum(1))

    rng = np.random.default_rng(0)
    x, y = (
        Tensor(rng.integers(0, 2 if name == "bool" else 9, (3, 40)), device="c").cast(dtype).realize() for _ in "xy"
    )
    step(x, y)
    program = exported(step, tmp_path / "out")
    want = [t.numpy() for t in step(x, y)][: 1 if name == "bool" else 2]
    outs = [np.zeros_like(a) for a in want]
    program(x.numpy(), y.numpy(), *outs)
    for got, a in zip(outs, want, strict=True):
        np.testing.assert_array_equal(got, a)


def test_sizes(tmp_path):
    @jit
    def step(x):
        return (x[: ROWS.uop] * 2).sum(1), x[: ROWS.uop, : EVEN.uop] + 1

    x = np.arange(48, dtype=np.float32).reshape(6, 8)
    with ROWS.bind(2), EVEN.bind(4):
        step(there(x))
    program = exported(step, tmp_path / "out")
    assert "a size, 2 to 8, a multiple of 2" in (tmp_path / "out" / "model.h").read_text()
    for rows, even in ((1, 2), (6, 8), (3, 6)):
        sums, part = np.zeros(6, np.float32), np.zeros(48, np.float32)
        names = [p for p in ("rows", "even") if p]
        order = sorted(names, key=(tmp_path / "out" / "model.h").read_text().index)
        program(x, *({"rows": rows, "even": even}[n] for n in order), sums, part)
        np.testing.assert_array_equal(sums[:rows], (x[:rows] * 2).sum(1))
        np.testing.assert_array_equal(part[: rows * even].reshape(rows, even), x[:rows, :even] + 1)
    for rows, even in ((0, 2), (7, 2), (1, 3), (1, 10)):
        with pytest.raises(RuntimeError, match="is outside of"):
            program(x, *({"rows": rows, "even": even}[n] for n in order), sums, part)


def test_an_index_out_of_range_is_a_code(tmp_path):
    table = there(np.arange(8, dtype=np.float32))
    step = jit(lambda i: table[i] * 1)
    step(there(np.array([1, 2], np.int32)))
    program = exported(step, tmp_path / "out")
    out = np.zeros(2, np.float32)
    program(np.array([7, -8], np.int32), out)
    np.testing.assert_array_equal(out, [7, 0])
    with pytest.raises(RuntimeError, match="index outside of -8 to 7"):
        program(np.array([8, 0], np.int32), out)


def test_random_numbers_go_on_as_they_would(tmp_path):
    Tensor.manual_seed(3)
    step = jit(lambda x: x + Tensor.rand(5, device="c"))
    x = np.zeros(5, np.float32)
    step(there(x)), step(there(x))
    program = exported(step, tmp_path / "out")
    for _ in range(3):
        out = np.zeros(5, np.float32)
        program(x, out)
        np.testing.assert_array_equal(out, step(there(x)).numpy())


@pytest.mark.slow
def test_training(tmp_path):
    from monolect import nn

    Tensor.manual_seed(0)
    w = there(np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32))
    w.requires_grad = True
    optimizer = nn.optim.Adam([w], lr=0.1)

    @jit
    def step(x, y):
        optimizer.zero_grad()
        loss = ((x @ w - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    x, y = (np.random.default_rng(k).standard_normal((3, n)).astype(np.float32) for k, n in ((1, 4), (2, 2)))
    for _ in range(3):
        step(there(x), there(y))
    program = exported(step, tmp_path / "out", tensors={"w": w})
    assert "at_w = " in (tmp_path / "out" / "model.c").read_text()
    for _ in range(4):
        loss = np.zeros((), np.float32)
        program(x, y, loss)
        np.testing.assert_array_equal(loss, step(there(x), there(y)).numpy())


# ---- the program -----------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_the_program_reads_and_writes_files(tmp_path):
    case = gpt2(1, 16, 2, 32, 8)
    step = case.make("c")
    case.call(step, 0, "c")
    step.save(tmp_path / "a.step")
    words = [sys.executable, "-m", "monolect", "export", str(tmp_path / "a.step"), "-o", str(tmp_path / "out")]
    done = subprocess.run([*words, "--march", "native", "--name", "tiny"], capture_output=True, text=True, check=True)
    assert [line.partition(",")[0] for line in done.stdout.splitlines()] == [
        "Makefile", "main.c", "tiny.c", "tiny.h", "tiny.weights",
    ]  # fmt: skip
    build(tmp_path / "out", "", QUICK)
    folder = tmp_path / "out"
    np.tile(case.arguments[0], 4).tofile(folder / "in")
    run = ["./tiny", "index=in", "place=1,2,3,4", "out=logits"]
    done = subprocess.run([*run, "--steps", "4", "--time", "2"], cwd=folder, capture_output=True, text=True, check=True)
    assert "median of 2 steps" in done.stdout
    got = np.fromfile(folder / "logits", np.float32).reshape(4, 1, 32)
    for n in range(4):
        np.testing.assert_array_equal(got[n], case.call(step, n + 1, "c")[0])
    for words, message in (
        (["place=9"], "place is outside of 0 to 7"),
        (["index=absent"], "cannot open the file"),
        (["index="], "cannot open the file"),
        (["place=x"], "numbers with commas"),
        (["other=1"], "not an option"),
        (["--steps", "5"], "the file ends before the array"),
        (["--weights", "in"], "damaged, or of another model"),
        (["--weights", "absent"], "cannot be opened"),
    ):
        done = subprocess.run([*run, *words], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and message in done.stderr, (words, done.stderr)
    assert (
        "missing; usage" in subprocess.run(["./tiny"], cwd=folder, capture_output=True, text=True, check=False).stderr
    )


def test_weights_of_another_model_and_damaged_ones(tmp_path):
    step = lstm(4, 4)
    made = step.make("c")
    step.call(made, 0, "c")
    program = exported(made, tmp_path / "out")
    path = tmp_path / "out" / "model.weights"
    data = path.read_bytes()
    for changed in (b"", data[:-1], data + b"\0", data[:8] + bytes(8) + data[16:], b"x" + data[1:]):
        path.write_bytes(changed)
        with pytest.raises(RuntimeError, match="damaged, or of another model"):
            program.init()
    path.write_bytes(data)
    program.init()


def test_names_of_the_user_s_reach_no_compiler(tmp_path, compiler):
    def step(int, x, **more):  # noqa: A002
        strange = {"a*/ b": int + x, 'c"\n#error': x * 2, "out": more["weights"] * 3, "数": x + 5}
        return strange | {"t0": x + 1, "arena": x + 2, "memcpy": x + 6, "v1": x + 7, "k0_map_4": x + 8}

    step = jit(step)
    a = np.arange(4, dtype=np.float32)
    step(there(a), there(a), weights=there(a + 1))
    program = exported(step, tmp_path / "out", compiler, "-O0")
    outs = [np.zeros(4, np.float32) for _ in range(9)]
    program(a, a, a + 1, *outs)
    # a dict that is returned has its keys in order
    want = {"a*/ b": a + a, 'c"\n#error': a * 2, "out": (a + 1) * 3, "数": a + 5, "t0": a + 1, "arena": a + 2,
            "memcpy": a + 6, "v1": a + 7, "k0_map_4": a + 8}  # fmt: skip
    for got, x in zip(outs, want.values(), strict=True):
        np.testing.assert_array_equal(got, x)


# ---- GPT-2 of the examples -------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize(
    "config",
    [
        {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 48, "vocab_size": 300},
        pytest.param(SIZE, marks=pytest.mark.slow),
    ],
    ids=["small", "124 M"],
)
def test_gpt2_writes_on_where_it_was_exported(config, compiler, tmp_path):
    """Its tokens are those of PyTorch; from a saved step, and from one exported out of that file."""
    writer = Writer(model_of(config), config["n_positions"], temperature=0)
    tokens = TorchWriter(writer.model, config).write(PROMPT, 10)
    assert [*writer.write(PROMPT, 5)] == tokens[:5]
    writer.decode.save(tmp_path / "step.saved")
    step = jit.load(tmp_path / "step.saved", device="c")
    program = exported(jit.load(tmp_path / "step.saved"), tmp_path / "out", compiler, "-O2")
    token, out = Tensor([[tokens[4]]], device="c"), np.array([[tokens[4]]])
    for n in range(5, 10):
        past = len(PROMPT) + n - 1
        with writer.past.bind(past):
            token = step(token)
        program(out.copy(), past, out)
        assert token.item() == out.item() == tokens[n]
