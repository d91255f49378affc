"""Saved steps that an enemy wrote: what could touch memory of others is refused before anything is compiled."""

# ruff: noqa: E501  (one row a case)

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monolect import Context, DeviceError, FileFormatError, JitError, MonolectError, Tensor, VerifyError, jit
from monolect.capture.files import saved
from monolect.runtime.realize import programs
from tests.strategies import often
from tests.unit import saved_mutations as mutations

Edit = Callable[[str], str]


@pytest.fixture(autouse=True)
def without_looking() -> Iterator[None]:
    with Context(VERIFY=0, CHECK_BOUNDS=0):
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("stored")
    with Context(VERIFY=0, CHECK_BOUNDS=0):
        return [path for path, _ in mutations.saved_steps(folder)]


PRODUCT, STATE, GATHER, SYMBOLIC, MOVING, TRAINING = range(6)


def line(pattern: str, new: str) -> Edit:
    """The first line that holds `pattern`, with that replaced."""

    def edit(text: str) -> str:
        assert re.search(pattern, text), text
        return re.sub(pattern, new, text, count=1)

    return edit


def entry(new: Any, *keys: Any) -> Edit:
    """The JSON with another value there."""

    def edit(text: str) -> str:
        data = json.loads(text)
        x = data
        for k in keys[:-1]:
            x = x[k]
        assert repr(x[keys[-1]]) != repr(new)
        x[keys[-1]] = new
        return json.dumps(data)

    return edit


def info(old: str, new: str) -> Edit:
    """The StepInfo with `old` replaced; without `old`, with `new` before its last field."""

    def edit(text: str) -> str:
        start = text.index("StepInfo(")
        assert (old or "is_replayed") in text[start:], text[start:]
        return text[:start] + text[start:].replace(old or "is_replayed", new if old else f"{new}, is_replayed", 1)

    return edit


# 0 <= 2x < 8 holds for x = 1 << 63, modulo 1 << 64; x is then far outside
DOUBLED = """
%g0 = CONST idx[] (2, idx)
%g1 = MUL idx[] %12 %g0
%g2 = CMPLT b1[] %g1 %6
%g3 = CMPLT b1[] %18 %g1
%g4 = AND b1[] %g2 %g3
%g5 = CONST f32[] (0.0, f32)
%g6 = INDEX f32[] %8 %12
%24 = LOAD f32[] %g6 %g5 %g4
""".strip()
GRAPHS: dict[str, tuple[int, Edit, type[MonolectError], str]] = {
    "a read behind the end": (STATE, line(r"%65 = ADD idx\[\] %6 %37", "%65 = ADD idx[] %6 %7"), VerifyError, "inside"),
    "a longer loop": (STATE, line(r"RANGE idx\[\] %7 \(1000", "RANGE idx[] %3 (1000"), VerifyError, "inside"),
    "a larger PARAM": (STATE, line(r"(%5 = PARAM f32)\[8\] %4", r"%l = CONST idx[] (1000, idx)\n%s = STACK idx[1] %l\n\1[1000] %s"), MonolectError, "another shape"),
    "a gather without its upper bound": (GATHER, line(r"MUL idx\[\] %21 %18", "MUL idx[] %19 %18"), VerifyError, "inside"),
    "a gather without its lower bound": (GATHER, line(r"MAX idx\[\] %16 %13", "WHERE idx[] %14 %15 %12"), VerifyError, "inside"),
    "a bound of another number": (GATHER, line(r"\(-7, idx\)", "(-8, idx)"), VerifyError, "inside"),
    "a bound that overflows": (GATHER, line(r"\(8, idx\)", f"({(1 << 63) - 1}, idx)"), MonolectError, ""),
    "a place in a value": (GATHER, line(r"%25 = STORE void\[\] %5 %24", "%v = STACK f32[2] %24 %24\n%w = INDEX f32[] %v %22\n%25 = STORE void[] %5 %w"), VerifyError, "value"),
    "a gate that overflows": (GATHER, line(r"%24 = LOAD f32\[\] %23", DOUBLED), VerifyError, "inside"),
    "a store to an argument": (GATHER, line(r"CALL void\[\] %27 %2 %9 %31", "CALL void[] %27 %31 %9 %2"), MonolectError, ""),
    "a store to an argument of that size": (PRODUCT, line(r"CALL void\[\] %49 %3 %34 %31", "CALL void[] %49 %32 %34 %31"), FileFormatError, "not its step's"),
    "code of the user's": (GATHER, line(r"%25 = STORE void\[\] %5 %24", '%c = CUSTOM f32[] ("system()", f32, True)\n%25 = STORE void[] %5 %c'), VerifyError, "no schedule"),
    "registers as memory": (GATHER, line(r'slot=0, dtype=f32, device="cpu", addrspace="GLOBAL"', 'slot=0, dtype=f32, device="cpu", addrspace="REG"'), VerifyError, "not given"),
    "a vector into one element": (GATHER, line(r"%25 = STORE void\[\] %5 %24", "%v = STACK f32[2] %24 %24\n%25 = STORE void[] %5 %v"), MonolectError, "shape"),
    "another dtype into memory": (GATHER, line(r"%25 = STORE void\[\] %5 %24", "%v = CAST f64[] %24 f64\n%25 = STORE void[] %5 %v"), MonolectError, "dtype"),
    "actions of its own": (GATHER, line(r"KernelInfo\(\)", "KernelInfo(actions=())"), VerifyError, "another kind"),
    "code in a name": (GATHER, line(r"KernelInfo\(\)", 'KernelInfo(name="k */ x")'), VerifyError, "another kind"),
    "threads of its own": (GATHER, line(r"KernelInfo\(\)", "KernelInfo(threads=99)"), VerifyError, "another kind"),
    "a constant that is none": (PRODUCT, line(r"\(0\.0, f32\)", '("x", f32)'), MonolectError, ""),
    "a smaller result": (GATHER, line(r"(%2 = PARAM f32)\[6\] %1", r"%l = CONST idx[] (2, idx)\n%s = STACK idx[1] %l\n\1[2] %s"), MonolectError, "another shape"),
    "memory of another device": (GATHER, line(r'(slot=2, dtype=f32, device=)"cpu"', r'\1"disk:/etc/passwd"'), FileFormatError, "PARAM 2"),
    "an intermediate of another device": (STATE, line(r'(BufferArg\(slot=1, dtype=f32, device=)"cpu"', r'\1"disk:/etc/passwd"'), FileFormatError, "an operand"),
    "an intermediate in the arena": (STATE, line(r"BufferArg\(slot=1", "BufferArg(slot=-1"), FileFormatError, "an operand"),
    "a slot of another number": (GATHER, line(r'slot=2, dtype=f32, device="cpu"', 'slot=9, dtype=f32, device="cpu"'), FileFormatError, "PARAM 2"),
    "a slot twice": (PRODUCT, line(r"FUNCTION void\[\] %55 %32 %3 %34", "FUNCTION void[] %55 %32 %32 %34"), FileFormatError, "PARAM 1"),
    "a PARAM of no step": (GATHER, line(r"CALL void\[\] %27 %2 %9 %31", "CALL void[] %27 %3 %9 %31"), FileFormatError, "an operand"),
    "an operand that waits": (PRODUCT, line(r"%50 = CALL void\[\] %49 %3 %34 %31", "%a = AFTER f32[] %31 %35\n%50 = CALL void[] %49 %3 %34 %a"), FileFormatError, "an operand"),
    "a result that nobody stores": (GATHER, line(r"LINEAR void\[\] %32", "LINEAR void[]"), FileFormatError, "no kernel stores"),
    "an item that is no kernel": (GATHER, line(r"LINEAR void\[\] %32", "LINEAR void[] %27"), FileFormatError, "an item"),
    "items that run once": (PRODUCT, line(r"%51 = LINEAR void\[\] %35 %50", '%o = LINEAR void[] %35 "once"\n%51 = LINEAR void[] %o %50'), FileFormatError, "an item"),
    "two programs": (STATE, line(r"%76 = AFTER f32\[4\] %63 %74", "%b = LINEAR void[] %30 %40 %64\n%76 = AFTER f32[4] %63 %b"), FileFormatError, "the program"),
    "a program that is no list": (GATHER, line(r"%34 = AFTER f32\[6\] %2 %33", "%34 = AFTER f32[6] %2 %32"), MonolectError, ""),
    "a result of another step": (GATHER, line(r"%35 = TUPLE void\[\] %34", '%b = BUFFER f32[6] %1 BufferArg(slot=77, dtype=f32, device="cpu")\n%35 = TUPLE void[] %b'), FileFormatError, "a result"),
    "a result that computes": (GATHER, line(r"%35 = TUPLE void\[\] %34", "%b = ADD f32[6] %2 %2\n%35 = TUPLE void[] %b"), FileFormatError, "a result"),
    "a result before it is stored": (GATHER, line(r"%35 = TUPLE void\[\] %34", "%35 = TUPLE void[] %2"), FileFormatError, "a result"),
    "a result in memory of a state": (STATE, line(r"TUPLE void\[\] %75 %76", "TUPLE void[] %76 %76"), FileFormatError, "a result"),
    "an argument that is written, it says": (PRODUCT, line(r"%54 = RESHAPE f32\[4,2\] %32 %53", "%r = RESHAPE f32[4,2] %32 %53\n%54 = AFTER f32[4,2] %r %51"), FileFormatError, "a result"),
    "a state that is not written": (STATE, line(r"LINEAR void\[\] %30 %40 %64 %73", "LINEAR void[] %30 %40 %73"), FileFormatError, "a result"),
    "a state of another PARAM": (STATE, line(r"TUPLE void\[\] %75 %76", "TUPLE void[] %75 %75"), FileFormatError, "a result"),
    "states in another order": (MOVING, line(r"(TUPLE void\[\] %\d+ %\d+ %\d+ %\d+) (%\d+) (%\d+)", r"\1 \3 \2"), FileFormatError, "the states"),
    "a state without a value": (STATE, line(r"TUPLE void\[\] %75 %76", "TUPLE void[] %75"), FileFormatError, "the values"),
    "a size that no call gives": (SYMBOLIC, line(r'name="n_saved"', 'name="n_other"'), MonolectError, ""),
    "a size of larger bounds": (SYMBOLIC, lambda t: t.replace("max=4", "max=4000"), VerifyError, "inside"),
    "a size whose bound is a text": (SYMBOLIC, line("min=1", 'min="GLOBAL"'), MonolectError, ""),
    "a size of another slot": (SYMBOLIC, line(r"slot=1, dtype=idx", "slot=3, dtype=idx"), FileFormatError, "a size"),
    "no step": (GATHER, line(r"%36 = FUNCTION .*", "%36 = TUPLE void[] %34"), FileFormatError, "the graph"),
    "a step without roles": (GATHER, line(r" StepInfo\(.*\)", " KernelInfo()"), MonolectError, ""),
    "a role that is none": (STATE, info('"state"', '"owner"'), FileFormatError, "the roles"),
    "a role too few": (STATE, info(', "state"', ""), FileFormatError, "the roles"),
    "roles in another order": (STATE, info('"argument", "result"', '"result", "argument"'), FileFormatError, "the roles"),
    "an argument as a constant": (STATE, info('"argument"', '"constant"'), FileFormatError, "the roles"),
    "an argument as a state": (STATE, info('"argument"', '"state"'), FileFormatError, "the roles"),
    "an argument as an old version": (STATE, info('"argument"', '"old"'), FileFormatError, "the states"),
    "a result as an argument": (GATHER, info('"argument", "result"', '"argument", "argument"'), FileFormatError, "not its step's"),
    "a state as a constant": (STATE, info('"state"), n_results=1', '"constant"), n_results=2'), FileFormatError, "not its step's"),
    "memory as a size": (SYMBOLIC, info('"argument"', '"size"'), FileFormatError, "the sizes"),
    "a size as an argument": (SYMBOLIC, info('"size"', '"argument"'), FileFormatError, "PARAM 1"),
    "more results than values": (STATE, info("n_results=1", "n_results=99"), FileFormatError, "a number"),
    "fewer results than values": (PRODUCT, info("n_results=2", "n_results=1"), FileFormatError, "the values"),
    "a truth value as a number": (STATE, info("n_results=1", "n_results=True"), MonolectError, "n_results of StepInfo"),
    "a number behind the end": (STATE, info("", "moves=(99,)"), FileFormatError, "a number"),
    "a number below zero": (STATE, info("", "moves=(-1,)"), FileFormatError, "a number"),
    "a number twice": (STATE, info("", "moves=(0, 0)"), FileFormatError, "once"),
    "a number as a list": (STATE, info("", "moves=0"), MonolectError, "moves of StepInfo"),
    "a constant that moves": (PRODUCT, info("n_results=2", "n_results=1, moves=(2,)"), FileFormatError, "the states"),
    "a state of another kind": (PRODUCT, info("n_results=2", "n_results=1, moves=(0,)"), FileFormatError, "another kind"),
    "results over arguments": (STATE, info("", "reuse=((1, 0),)"), FileFormatError, "over arguments"),
    "a result over a constant": (PRODUCT, info("", "reuse=((1, 2),)"), FileFormatError, "over arguments"),
    "a result over an argument twice": (PRODUCT, info("", "reuse=((1, 0), (1, 0))"), FileFormatError, "over arguments"),
    "no pairs": (PRODUCT, info("", "reuse=((1, 0, 0),)"), MonolectError, "reuse of StepInfo"),
    "a shared constant behind the end": (PRODUCT, info("", "shared=(3,)"), FileFormatError, "a number"),
    "a step that runs once": (PRODUCT, info("is_replayed=True", "is_replayed=False"), FileFormatError, "a step"),
}  # fmt: skip
HEADS: dict[str, tuple[int, Edit, type[MonolectError], str]] = {
    "another device": (STATE, entry("disk:/etc/passwd", "device"), DeviceError, "another device"),
    "an argument as a state in place": (STATE, entry([0], "steps", 0, "in_place"), FileFormatError, "a state"),
    "a state twice": (MOVING, entry([[0], [0]], "steps", 0, "moves"), FileFormatError, "each once"),
    "an argument for a tensor": (MOVING, entry([0, [1]], "steps", 0, "moves"), FileFormatError, "a state"),
    "a state too few": (STATE, entry([], "steps", 0, "in_place"), FileFormatError, "cannot be read"),
    "a tensor behind the end": (STATE, entry([[1]], "steps", 0, "in_place"), FileFormatError, "a number"),
    "an array behind the end": (PRODUCT, entry([1], "steps", 0, "constants"), FileFormatError, "a number"),
    "a truth value for an array": (PRODUCT, entry([False], "steps", 0, "constants"), FileFormatError, "a number"),
    "a smaller state": (STATE, entry([["f32", [2]]], "arrays"), MonolectError, ""),
    "a state of another dtype": (STATE, entry([["f16", [8]]], "arrays"), FileFormatError, ""),
    "an array of no size": (STATE, entry([["f32", [-4]]], "arrays"), FileFormatError, "array"),
    "arrays behind the end": (STATE, entry([["f32", [1 << 40]]], "arrays"), FileFormatError, "arrays"),
    "a value that is none": (STATE, entry({"object": "os.system"}, "steps", 0, "results"), FileFormatError, "value"),
    "a result of a value that is not there": (STATE, entry({"tensor": 1}, "steps", 0, "results"), FileFormatError, "a number"),
    "a result that is no tensor of the step": (STATE, entry({"tensor": {"given": [7]}}, "steps", 0, "results"), FileFormatError, "a number"),
    "a result that is no argument": (STATE, entry({"tensor": {"given": 7}}, "steps", 0, "results"), FileFormatError, "a number"),
    "a gradient of no tensor": (STATE, entry([[[7], [0]]], "steps", 0, "shared"), FileFormatError, "a number"),
    "a sum with a gradient that is kept": (TRAINING, entry([[1]], "steps", 0, "dropped"), FileFormatError, "the gradients"),
    "settings of no kind": (STATE, entry(["x"], "steps", 0, "steering"), FileFormatError, "settings"),
    "no steps": (STATE, entry(7, "steps"), FileFormatError, "cannot be read"),
    "nesting without end": (STATE, lambda t: "[" * 100_000, FileFormatError, "cannot be read"),
}  # fmt: skip


def test_a_case_of_every_step_is_a_file_that_loads(files: list[Path]) -> None:
    for path in files:
        _, text, _ = mutations.read(path)
        assert mutations.with_columns(text.decode()).encode() == text
        jit.load(path)


@pytest.mark.sweep
@pytest.mark.parametrize("what", [*GRAPHS, *HEADS])
def test_what_an_enemy_changed_is_refused(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    k, edit, kind, words = GRAPHS.get(what) or HEADS[what]
    head, text, arrays = mutations.read(files[k])
    if what in GRAPHS:
        text = mutations.with_columns(edit(text.decode())).encode()
    else:
        head = edit(head.decode()).encode()
    mutations.write(tmp_path / "changed.step", head, text, arrays)
    compiled: list[Any] = []
    if what in GRAPHS:
        monkeypatch.setattr(programs, "compile_kernels", lambda *a: compiled.append(a))
    with pytest.raises(kind) as e:
        jit.load(tmp_path / "changed.step")
    assert words in str(e.value), e.value
    assert e.value.expected is not None and e.value.found is not None
    assert not compiled, "refused before anything is compiled"


def test_random_changes_never_end_the_process(tmp_path: Path) -> None:
    """Hundreds of files, loaded and called in a process of its own; arguments lie between guards."""
    n = often(200, 500)
    seed = int.from_bytes(os.urandom(3), "little")
    print("seed", seed)
    command = [sys.executable, mutations.__file__, str(tmp_path), str(seed), str(n)]
    run = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "VERIFY": "0", "CHECK_BOUNDS": "0"}
    )
    last = (tmp_path / "last").read_text() if (tmp_path / "last").exists() else ""
    assert run.returncode == 0, f"seed and number {last}: {run.stderr[-2000:]}"
    counts = json.loads(run.stdout)
    assert sum(counts.values()) == n and min(counts["ran"], counts["FileFormatError"]) > n // 25


def test_a_store_at_several_indices_is_saved(tmp_path: Path) -> None:
    """Each index is held on its own axis, so the joined index cannot overflow."""
    x = Tensor(np.zeros((3, 4), np.float32))
    i, far = Tensor(np.array([0, 1])), Tensor(np.array([2**62, -(2**63)]))

    def put(i: Tensor, j: Tensor) -> Tensor:
        y = x + 0
        y[i, j] = 1.0
        return y

    step = jit(put)
    step(i, far)
    step.save(tmp_path / "a.step")
    loaded = jit.load(tmp_path / "a.step")
    for j in (Tensor(np.array([3, 0])), far):
        np.testing.assert_array_equal(loaded(i, j).numpy(), step(i, j).numpy())


def test_a_step_that_no_reader_would_take_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise VerifyError("an index is not proven to be inside", expected="0..3", found="8")

    step = jit(lambda x: x + 1)
    step(Tensor([1.0]))
    monkeypatch.setattr(saved.stored, "read", refuse)
    with pytest.raises(JitError, match="cannot be saved") as e:
        step.save(tmp_path / "a.step")
    assert "proven to stay inside" in e.value.expected and not (tmp_path / "a.step").exists()


def test_an_index_may_be_updated_where_it_is_read_and_nowhere_else(tmp_path: Path) -> None:
    i = Tensor(np.array([0, 1, 2, 3])).realize()

    def update(x: Tensor) -> Tensor:
        out = x[i] + 1
        i.assign((i + 1) % 4)
        return out

    step, x = jit(update), Tensor(np.arange(4, dtype=np.float32))
    step(x), step(x)
    step.save(tmp_path / "a.step")
    assert jit.load(tmp_path / "a.step")(x).tolist() == step(x).tolist() == [3.0, 4.0, 1.0, 2.0]
    head, text, arrays = mutations.read(tmp_path / "a.step")
    store = re.search(r"%\d+ = STORE void\[\] (%\d+) (%\d+)\n", text.decode())
    assert store is not None
    places = re.search(rf"{store[1]} = INDEX i64\[\] (%\d+) (%\d+)", text.decode())
    assert places is not None
    other = f"%z = CONST idx[] (0, idx)\n{store[1]} = INDEX i64[] {places[1]} %z"
    text = mutations.with_columns(text.decode().replace(places[0], other)).encode()
    mutations.write(tmp_path / "b.step", head, text, arrays)
    with pytest.raises(FileFormatError, match="used in its indices"):
        jit.load(tmp_path / "b.step")


def test_a_file_holds_no_pickle_and_no_code(files: list[Path]) -> None:
    for path in files:
        head, text, _ = mutations.read(path)
        json.loads(head)
        assert text.decode().isprintable() or set(text.decode()) <= set(map(chr, (10, 12, *range(32, 127))))
        assert b"\x7fELF" not in path.read_bytes() and b"\x80\x05" not in path.read_bytes()
