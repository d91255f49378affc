"""A saved step does in another process what it did here, and a file that is not what was written is refused."""

import ctypes
import enum
import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monolect import (
    ArgumentError,
    Context,
    DeviceError,
    FileFormatError,
    GradientError,
    JitError,
    Tensor,
    Variable,
    dtypes,
    jit,
    native_function,
    nn,
)
from monolect.backend.c import compile as c_compile
from monolect.backend.registry import Device
from monolect.capture.files import loaded, saved
from monolect.ir.text import parse

needs_compiler = pytest.mark.skipif(bool(c_compile.missing()), reason=c_compile.missing() or "-")
LOADER = """
import pickle, sys
import numpy as np
from monolect import Tensor, jit
from monolect.runtime import profile
step = jit.load(sys.argv[1])
out = [step(Tensor(x)).numpy() for x in pickle.load(sys.stdin.buffer)]
compilers = {"llvmlite", "monolect.pipeline", "monolect.schedule.partition"}
compilers &= sys.modules.keys()
tensors = {k: t.numpy() for k, t in step.tensors.items()}
sys.stdout.buffer.write(pickle.dumps((compilers, profile.counts["schedules"], out, tensors)))
"""


def elsewhere(path: Path, inputs: list[np.ndarray]) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """The results of a saved step in a process with an empty cache, and its tensors afterwards."""
    looks = {"VERIFY": "0", "CHECK_BOUNDS": "0"}
    environment = {**os.environ, **looks, "MONOLECT_CACHE": str(path.parent / "empty")}
    command = [sys.executable, "-c", LOADER, str(path)]
    compiling = {"llvmlite", "monolect.pipeline", "monolect.schedule.partition"}  # the pipeline names every pass
    for allowed in (compiling, set()):  # the first one compiles the kernels
        run = subprocess.run(command, input=pickle.dumps(inputs), capture_output=True, env=environment)
        assert run.returncode == 0, run.stderr.decode()
        compilers, n_scheduled, results, tensors = pickle.loads(run.stdout)
        assert compilers <= allowed and n_scheduled == 0
    return results, tensors


def training_step() -> tuple[nn.Sequential, object]:
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = nn.optim.Adam(model.parameters(), lr=0.05)

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def test_a_training_step_goes_on_in_another_process(tmp_path: Path) -> None:
    model, step = training_step()
    xs = [np.random.default_rng(k).standard_normal((16, 3)).astype(np.float32) for k in range(6)]
    for x in xs[:3]:
        step(Tensor(x))
    path = tmp_path / "train.step"
    step.save(path, model.state_dict())
    losses, state = elsewhere(path, xs[3:])
    want = [step(Tensor(x)).numpy() for x in xs[3:]]
    np.testing.assert_array_equal(losses, want)
    for name, t in model.state_dict().items():
        np.testing.assert_array_equal(state[name], t.numpy(), err_msg=name)


def test_weights_that_are_packed_once(tmp_path: Path) -> None:
    w = Tensor(np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)).realize()
    step = jit(lambda x: (x @ w).relu() @ w)
    x = np.random.default_rng(1).standard_normal((64, 256)).astype(np.float32)
    want = step(Tensor(x)).numpy()
    step.save(tmp_path / "packed.step")
    (got,), _ = elsewhere(tmp_path / "packed.step", [x])
    np.testing.assert_array_equal(got, want)


@pytest.fixture(autouse=True)
def without_looking() -> Iterator[None]:
    """Another process takes programs from its cache, unless a setting looks at the compiler."""
    with Context(VERIFY=0, CHECK_BOUNDS=0):
        yield


def test_any_tree_static_arguments_and_shared_tensors(tmp_path: Path) -> None:
    bias = Tensor([10.0, 20.0]).realize()

    @jit
    def step(p: tuple, *, scale: float) -> dict:
        a, n, *_ = p
        return {
            "out": [a * scale + bias + n, (n,)],
            "view": bias.reshape(2, 1),
            "text": "t",
            3: (None, True, b"b", -0.0),
        }

    more = {"kind": dtypes.float32, b"b": [float("inf")], 1: None}
    step((Tensor([1.0, 2.0]), 3, more), scale=2.0)
    step((Tensor([1.0, 2.0, 3.0])[:2], 4, more), scale=2.0)
    step.save(tmp_path / "tree.step", {"bias": bias})
    loaded = jit.load(tmp_path / "tree.step", {"bias": bias})
    got = loaded((Tensor([1.0, 1.0]), 3, more), scale=2.0)
    assert got["out"][0].tolist() == [15.0, 25.0] and (got["out"][1], got["text"]) == ((3,), "t")
    assert repr(got[3]) == "(None, True, b'b', -0.0)"
    assert loaded((Tensor([1.0, 1.0]), 4, more), scale=2.0)["out"][0].tolist() == [16.0, 26.0]
    bias.assign(Tensor([0.0, 0.0]))
    got = loaded((Tensor([1.0, 1.0]), 3, more), scale=2.0)
    assert got["out"][0].tolist() == [5.0, 5.0] and got["view"].tolist() == [[0.0], [0.0]]
    with pytest.raises(JitError, match="not captured for these arguments") as e:
        loaded((Tensor([1.0, 1.0]), 5, more), scale=2.0)
    assert "float32[2]" in str(e.value) and "scale=2.0" in str(e.value)
    with Context(TRAINING=1), pytest.raises(JitError, match="other settings") as e:
        loaded((Tensor([1.0, 1.0]), 3, more), scale=2.0)
    assert "TRAINING=0" in e.value.expected and "TRAINING=1" in e.value.found
    own = jit.load(tmp_path / "tree.step")
    assert own((Tensor([1.0, 1.0]), 3, more), scale=2.0)["out"][0].tolist() == [15.0, 25.0], "the values of the save"


def test_symbolic_sizes_and_the_same_tensor_twice(tmp_path: Path) -> None:
    n = Variable("n_saved", 1, 4)
    step = jit(lambda a, b: (a[:n] * b[:n]).contiguous())
    x, y = Tensor([1.0, 2.0, 3.0, 4.0]), Tensor([2.0, 2.0, 2.0, 2.0])
    with n.bind(3):
        step(x, y)
        step(x, x)
    step.save(tmp_path / "n.step")
    loaded = jit.load(tmp_path / "n.step")
    with n.bind(2):
        assert loaded(y, x).tolist() == [2.0, 4.0] and loaded(x, x).tolist() == [1.0, 4.0]


def test_random_numbers_go_on_from_the_state_of_the_process(tmp_path: Path) -> None:
    step = jit(lambda x: x + Tensor.rand(3))
    x = Tensor([0.0, 0.0, 0.0])
    step(x)
    step.save(tmp_path / "random.step")
    loaded = jit.load(tmp_path / "random.step")
    Tensor.manual_seed(5)
    want = [step(x).tolist() for _ in range(3)]
    Tensor.manual_seed(5)
    assert [loaded(x).tolist(), step(x).tolist(), loaded(x).tolist()] == want


def test_a_loaded_step_is_saved_again_as_it_is_now(tmp_path: Path) -> None:
    count = Tensor([0.0]).realize()

    @jit
    def step(x: Tensor) -> Tensor:
        count.assign(count + x)
        return count * 1

    step(Tensor([1.0])), step(Tensor([1.0]))
    step.save(tmp_path / "a.step", {"count": count})
    again = jit.load(tmp_path / "a.step")
    assert again(Tensor([5.0])).item() == 7.0 and count.item() == 2.0
    again.save(tmp_path / "b.step", again.tensors)
    assert jit.load(tmp_path / "b.step")(Tensor([1.0])).item() == 8.0
    given = Tensor([100.0]).realize()
    third = jit.load(tmp_path / "b.step", {"count": given})
    assert third(Tensor([1.0])).item() == 101.0 and given.item() == 101.0


def test_only_what_is_around_now_is_saved(tmp_path: Path) -> None:
    scale = 2.0

    @jit
    def step(x: Tensor) -> Tensor:
        return x * scale

    assert step(Tensor([1.0])).item() == 2.0
    scale = 3.0
    assert step(Tensor([1.0])).item() == 3.0
    step.save(tmp_path / "now.step")
    assert jit.load(tmp_path / "now.step")(Tensor([1.0])).item() == 3.0


def test_debug_shows_what_runs(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    step = jit(lambda x: (x @ x).sum())
    x = Tensor(np.ones((8, 8), np.float32))
    step(x)
    step.save(tmp_path / "a.step")
    with Context(DEBUG=2):
        assert jit.load(tmp_path / "a.step")(x).item() == 512.0
    assert "buffers" in capsys.readouterr().err


# ---- files that are not what was written -----------------------------------------------------------------------------
@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    w = Tensor(np.ones((4, 4), np.float32)).realize()
    step = jit(lambda x: x @ w)
    with Context(VERIFY=0, CHECK_BOUNDS=0):
        step(Tensor(np.ones((2, 4), np.float32)))
    path = tmp_path_factory.mktemp("saved") / "whole.step"
    step.save(path)
    return path


def test_every_truncation_is_refused(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    for n in {*range(0, 120), *range(120, len(data), 397), len(data) - 1}:
        path = tmp_path / "cut.step"
        path.write_bytes(data[:n])
        with pytest.raises(FileFormatError) as e:
            jit.load(path)
        assert e.value.expected is not None and e.value.found is not None
    path.write_bytes(data + b"x")
    with pytest.raises(FileFormatError, match="not whole"):
        jit.load(path)


def test_every_flipped_bit_is_refused(whole: Path, tmp_path: Path) -> None:
    data = bytearray(whole.read_bytes())
    path = tmp_path / "flipped.step"
    for k, at in enumerate([*range(64), *range(64, len(data), 211)]):
        data[at] ^= 1 << k % 8
        path.write_bytes(data)
        with pytest.raises(FileFormatError):
            jit.load(path)
        data[at] ^= 1 << k % 8
    path.write_bytes(data)
    assert jit.load(path)(Tensor(np.ones((2, 4), np.float32))).tolist() == [[4.0] * 4] * 2


def test_a_failed_save_leaves_the_old_file(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.step"
    path.write_bytes(b"old")
    step = jit(lambda x: x + 1)
    step(Tensor([1.0]))

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        step.save(path)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["old.step"]


def test_another_format(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "FORMAT", saved.FORMAT + 1)
    with pytest.raises(FileFormatError, match="another format") as e:
        jit.load(whole)
    assert (e.value.expected, e.value.found) == (saved.FORMAT + 1, saved.FORMAT)


def test_a_file_of_another_target_loads(whole: Path) -> None:
    """It holds no code: a process with another thread count lowers the kernels for that."""
    threads = "2" if os.environ.get("THREADS") == "1" else "1"
    environment = {**os.environ, "THREADS": threads, "VERIFY": "0", "CHECK_BOUNDS": "0"}
    code = """import sys, numpy as np
from monolect import Tensor, jit
from monolect.backend.registry import Device
step = jit.load(sys.argv[1])
print(Device["cpu"].target.key, step(Tensor(np.ones((2, 4), np.float32))).tolist())"""
    run = subprocess.run([sys.executable, "-c", code, str(whole)], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    key, _, out = run.stdout.strip().partition(" [[")
    assert key != Device["cpu"].target.key and out == "4.0, 4.0, 4.0, 4.0], [4.0, 4.0, 4.0, 4.0]]"


@pytest.mark.sweep
@needs_compiler
@pytest.mark.parametrize("default", ["of the file", "of who loads it"])
@pytest.mark.parametrize("pair", [("cpu", "c"), ("c", "cpu"), ("cpu", "cpu")], ids=" to ".join)
def test_a_step_of_one_device_runs_on_the_other(tmp_path: Path, pair: tuple[str, str], default: str) -> None:
    """A state, a constant, a result that is a view, random numbers and a symbolic size, on both devices."""
    one, other = pair
    n = Variable("n_moved", 1, 8)
    rows = np.arange(32, dtype=np.float32).reshape(8, 4)  # sums of these are exact
    w = Tensor(np.arange(12, dtype=np.float32).reshape(4, 3), device=one).realize()
    total = Tensor(np.zeros(3, np.float32), device=one).realize()

    @jit
    def step(x: Tensor) -> dict:
        total.assign(total + (x[:n] @ w).sum(0))
        drawn = Tensor.rand(2, 3, device=one)
        return {"total": total * 1, "w": w.reshape(3, 4), "drawn": drawn, "rows": (x[:n] * 2).contiguous()}

    def calls(f: Any, device: str) -> list[Any]:
        Tensor.manual_seed(3)
        out = []
        for size in (3, 8):
            with n.bind(size):
                got = f(Tensor(rows, device=device))
                out += [got["total"].numpy(), got["w"].numpy(), got["drawn"].numpy(), got["rows"].numpy()]
                assert {t.device for t in got.values()} == {device}
        return out

    with n.bind(2):
        step(Tensor(rows, device=one))
        step(Tensor(rows, device=one))
    step.save(tmp_path / "a.step", {"w": w, "total": total})
    with Context(DEVICE=one if default == "of the file" else other):
        loaded = jit.load(tmp_path / "a.step", device=other)
        assert {name: t.device for name, t in loaded.tensors.items()} == {
            "w": other, "total": other, f"random/{other}": other
        }  # fmt: skip
        got = calls(loaded, other)
    want = calls(step, one)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    again = jit.load(tmp_path / "a.step", {"w": Tensor.zeros(4, 3, device=other).contiguous()}, device=other)
    with n.bind(1):
        assert not again(Tensor(rows, device=other))["w"].numpy().any()


def test_a_device_that_no_file_is_for(whole: Path) -> None:
    for device in ("python", "disk:/etc/passwd", 'c", addrspace="REG'):
        with pytest.raises(DeviceError, match="jit.load: device") as e:
            jit.load(whole, device=device)
        assert (e.value.expected, e.value.found) == (("cpu", "c"), device)


@needs_compiler
def test_a_tensor_of_another_device_does_not_fit(whole: Path) -> None:
    with pytest.raises(ArgumentError, match="tensor 0") as e:
        jit.load(whole, {"0": Tensor.zeros(4, 4)}, device="c")
    assert (e.value.expected, e.value.found) == ("float32 (4, 4) on c", "float32 (4, 4) on cpu")


def test_tensors_that_do_not_fit(tmp_path: Path) -> None:
    w = Tensor([1.0, 2.0]).realize()
    step = jit(lambda x: x * w)
    step(Tensor([1.0, 1.0]))
    step.save(tmp_path / "w.step", {"w": w})
    with pytest.raises(ArgumentError, match="tensor w"):
        jit.load(tmp_path / "w.step", {"w": Tensor([1.0])})
    with pytest.raises(ArgumentError, match="jit.load: tensors"):
        jit.load(tmp_path / "w.step", {"v": Tensor([1.0, 2.0])})


@dataclass
class Pair:
    a: Tensor
    n: int


class Kind(enum.IntEnum):
    A = 1


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "no.step"
    step = jit(lambda x, o=None: x + 1)
    with pytest.raises(JitError, match="once it is captured"):
        step.save(path)
    step(Tensor([1.0]), object())
    with pytest.raises(JitError, match="an argument.1. of a step that is saved") as e:
        step.save(path)
    assert "dtype or Tensor" in e.value.expected and "object" in e.value.found
    pair = jit(lambda p: Pair(p.a + 1, p.n))
    pair(Pair(Tensor([1.0]), 1))
    with pytest.raises(JitError, match="an argument.0. of a step that is saved") as e:
        pair.save(path)
    assert "Pair" in e.value.found
    kind = jit(lambda x: [x + 1, Kind.A])
    kind(Tensor([1.0]))
    with pytest.raises(JitError, match="a result.1. of a step that is saved"):
        kind.save(path)
    python = jit(lambda x: x + 1)
    python(Tensor([1.0], device="python"))
    with pytest.raises(DeviceError, match="cannot be saved") as e:
        python.save(path)
    assert e.value.found == "python"
    twice = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(lambda buffers, thread: None)
    native = jit(lambda x: native_function(twice, x, out=((1,), "float32")) + 1)
    native(Tensor([1.0]))
    with pytest.raises(JitError, match="address of this process"):
        native.save(path)
    assert not path.exists()


def test_a_step_that_runs_nothing(tmp_path: Path) -> None:
    """Its results are views of its arguments, and constants."""
    three = Tensor([3.0]).realize()
    step = jit(lambda x: (x[1:], x.reshape(2, 1), three))
    step(Tensor([1.0, 2.0]))
    step.save(tmp_path / "views.step")
    loaded = jit.load(tmp_path / "views.step")
    for k in (4.0, 5.0, 6.0):
        assert [t.tolist() for t in loaded(Tensor([1.0, k]))] == [[k], [[1.0], [k]], [3.0]]


def leaf_of(x: Tensor) -> Tensor:
    x = x.detach()
    x.requires_grad = True
    return x


def routed(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that are chosen by a division of places, which an intermediate holds as indices."""
    x = leaf_of(x)
    values, places = (x @ x.T).reshape(-1).topk(3)
    rows = x[places // x.shape[0]]
    (rows * rows * values.unsqueeze(1)).sum().backward()
    return rows, x.grad


def moved_leaf(x: Tensor) -> tuple[Tensor, Tensor]:
    x = leaf_of(x)
    y = x.transpose(0, 1)
    (y * 2).sum().backward()
    return y, x.grad


STEPS = {
    "sort": lambda x: tuple(x.sort(0)),
    "argsort": lambda x: x.argsort(1),
    "kthvalue": lambda x: tuple(x.kthvalue(2, 0)),
    "routed": routed,
    "view of a leaf": moved_leaf,
    "sum of no rows": lambda x: x + x[:0].sum(0),
    "products of no terms": lambda x: x[:0].T @ x[:0] + 1,
    "results without elements": lambda x: (x[:0] - (x[:0] * 2).mean(1, keepdim=True), x.sum()),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", STEPS)
def test_steps_that_sort_choose_and_have_no_elements(name: str, tmp_path: Path) -> None:
    step = jit(STEPS[name])
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    step(Tensor(-x))
    step.save(tmp_path / "kept.step")
    got, want = jit.load(tmp_path / "kept.step")(Tensor(x)), step(Tensor(x))
    for g, w in zip(*((t if isinstance(t, tuple) else (t,)) for t in (got, want)), strict=True):
        np.testing.assert_array_equal(g.numpy(), w.numpy())


def test_gradients_of_a_loaded_step(tmp_path: Path) -> None:
    """As of the step it was saved from: it adds to one where a call before it was saved did, and its results have no
    graph.
    """
    w = Tensor([1.0, 2.0], requires_grad=True)

    @jit
    def step(x: Tensor) -> Tensor:
        loss = (x * w).sum()
        loss.backward()
        return loss

    step(Tensor([1.0, 1.0]))
    step.save(tmp_path / "grad.step", {"w": w})
    step(Tensor([1.0, 1.0]))
    step.save(tmp_path / "adds.step", {"w": w})
    loaded, adds = jit.load(tmp_path / "grad.step"), jit.load(tmp_path / "adds.step", {"w": w})
    w.grad = None
    for k in (1.0, 2.0, 3.0):
        adds(Tensor([1.0, 1.0]))
        assert w.grad.tolist() == [k, k]
    w = loaded.tensors["w"]
    for k in (1.0, 2.0, 3.0):
        loss = loaded(Tensor([1.0, k]))
        assert w.grad.tolist() == [1.0, k]
        with pytest.raises(GradientError, match="result of a jitted step"):
            (loss * w).sum().backward()
        with pytest.raises(JitError, match="finds gradients that it was not captured for"):
            loaded(Tensor([1.0, k]))
        assert w.grad.tolist() == [1.0, k]
        w.grad = None


def test_a_leaf_of_a_loaded_step_is_a_leaf(tmp_path: Path) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    step = jit(lambda x: (w * x).sum())
    step(Tensor([1.0, 1.0]))
    step.save(tmp_path / "leaf.step", {"w": w})
    loaded = jit.load(tmp_path / "leaf.step")
    found, other = loaded.tensors["w"], Tensor([1.0, 1.0], requires_grad=True)
    for k in (1.0, 2.0):
        ((found * 3).sum() + (other * 2).sum()).backward()
        assert (found.grad.tolist(), other.grad.tolist()) == ([3.0 * k] * 2, [2.0 * k] * 2)
    nn.optim.SGD([found], lr=0.5).step()
    assert loaded(Tensor([1.0, 1.0])).item() == 3.0 - 6.0


def test_a_saved_step_is_no_part_of_another(tmp_path: Path) -> None:
    double, path = jit(lambda x: x * 2), tmp_path / "double.step"
    double(Tensor([1.0]))
    double.save(path)
    loaded = jit.load(path)
    assert [loaded(Tensor([k])).item() for k in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]
    with pytest.raises(JitError, match="a saved step is called inside a jitted function"):
        jit(lambda x: loaded(x) + 1)(Tensor([1.0]))


def parts(path: Path) -> tuple[dict[str, Any], list[str], bytes]:
    """The JSON, the graphs and the arrays of a file."""
    data = path.read_bytes()
    _, _, n_json, n_text, _, _ = saved.HEADER.unpack_from(data)
    body = data[saved.HEADER.size :]
    texts = body[n_json : n_json + n_text].decode().rstrip("\n").split(saved.NEXT)
    return json.loads(body[:n_json]), texts, body[n_json + n_text :]


def keys(data: Any) -> Any:
    """What is stored under which names, without the values."""
    if isinstance(data, dict):
        return {k: keys(v) for k, v in sorted(data.items())}
    return [keys(data[0])] if isinstance(data, list) and data else type(data).__name__


def test_what_is_stored_is_what_the_number_of_the_format_says(tmp_path: Path) -> None:
    w = Tensor([1.0, 2.0]).realize()
    step = jit(lambda x: (x * w, w.assign(w + x).sum())[0])
    step(Tensor([1.0, 2.0])), step(Tensor([1.0, 2.0]))
    step.save(tmp_path / "a.step")
    head, (text,), _ = parts(tmp_path / "a.step")
    step_node = parse(text)
    graph = (step_node.op, step_node.arg._fields, [u.op for u in step_node.src])
    stored = (keys(head), graph, saved.MAGIC, saved.HEADER.format, saved.ALIGN, saved.NEXT)
    digest = hashlib.blake2b(repr(stored).encode(), digest_size=8).hexdigest()
    assert (saved.FORMAT, digest) == (16, "b0564f95a39eb5eb"), "stored otherwise: count FORMAT on, note the digest"


def test_a_step_that_is_saved_again_keeps_its_names(tmp_path: Path) -> None:
    total = Tensor([0.0])

    @jit
    def add(x: Tensor) -> Tensor:
        total.assign(total + x)
        return total * 1

    for _ in range(2):
        add(Tensor([1.0]))
    add.save(tmp_path / "first", {"total": total})
    jit.load(tmp_path / "first").save(tmp_path / "again")
    loaded = jit.load(tmp_path / "again", {"total": Tensor([5.0])})
    assert loaded(Tensor([2.0])).item() == 7.0


@pytest.mark.parametrize("part", [slice(None), slice(0, 2)])
def test_what_a_step_returns_as_it_is_and_that_changed_since_is_not_saved(tmp_path: Path, part: slice) -> None:
    w = Tensor([1.0, 2.0, 3.0])
    step = jit(lambda x: (x + 1, w[part]))
    step(Tensor([1.0]))
    w.assign(w * 10)
    with pytest.raises(JitError, match="once it is captured"):
        step.save(tmp_path / "a.step")
    wanted = step(Tensor([1.0]))[1].tolist()
    step.save(tmp_path / "a.step")
    assert jit.load(tmp_path / "a.step")(Tensor([1.0]))[1].tolist() == wanted == [10.0, 20.0, 30.0][part]
