"""What cannot be exported is an error that names it and says what to do, and leaves no folder."""

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monolect import ArgumentError, CompileError, ExportError, FileFormatError, Tensor, jit, native_function
from monolect.backend.common.llvm import lld
from monolect.capture.files import saved
from monolect.cli import main
from monolect.command.forms import items_of, program_of, with_program
from monolect.export import c_program, wasm
from monolect.ir.uop import node


def double() -> Any:
    step = jit(lambda x: x * 2)
    step(Tensor([1.0, 2.0]).realize())
    return step


@pytest.fixture
def folder(tmp_path):
    """Where nothing may be left."""
    yield tmp_path / "out"
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("out")]


# ---- steps -----------------------------------------------------------------------------------------------------------
def test_a_step_that_was_not_called(folder):
    with pytest.raises(ExportError, match="nothing to export"):
        jit(lambda x: x * 2).export(folder)


def test_one_of_several_captures(tmp_path):
    step = double()
    step(Tensor([1.0, 2.0, 3.0]).realize())
    with pytest.raises(ArgumentError, match=r"0: \(float32\[2\]\); 1: \(float32\[3\]\)"):
        step.export(tmp_path / "out")
    with pytest.raises(ArgumentError, match="capture"):
        step.export(tmp_path / "out", capture=2)
    step.export(tmp_path / "out", capture=1)
    assert "x[3]: input" in (tmp_path / "out" / "model.h").read_text()


@pytest.mark.parametrize("kind", ["left", "added to"])
def test_gradients(kind, folder):
    w = Tensor([1.0, 2.0], requires_grad=True)
    step = jit(lambda x: (w * x).sum().backward())
    if kind == "added to":
        (w * 2).sum().backward()
    step(Tensor([1.0, 2.0]).realize())
    with pytest.raises(ExportError, match="no gradients(.|\n)*clears gradients at its start"):
        step.export(folder)


def test_native_code(folder):
    @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.POINTER(ctypes.c_float)), ctypes.c_int64)
    def code(buffers, thread):
        buffers[0][0] = buffers[1][0] + 1

    step = jit(lambda x: native_function(code, x, out=((1,), "float32"), name="mine") * 2)
    step(Tensor([1.0, 2.0]).realize())
    with pytest.raises(ExportError, match=r"CUSTOMFUNCTION(.|\n)*or call it from the program(.|\n)*mine"):
        step.export(folder)


@pytest.mark.parametrize("other", ["python", "python:gpu"])
def test_several_devices(other, folder):
    step = jit(lambda x: ((x * 2).to(other) + 1).to("cpu") * 3)
    step(Tensor([1.0, 2.0], device="cpu").realize())
    with pytest.raises(ExportError, match=r"several devices(.|\n)*copy them before the call"):
        step.export(folder)


def test_a_file_as_memory(folder, tmp_path):
    (tmp_path / "bytes").write_bytes(bytes(range(16)))
    file = Tensor.from_file(str(tmp_path / "bytes"))
    step = jit(lambda x: x + file.to("cpu"))
    step(Tensor(np.ones(16, np.uint8), device="cpu").realize())
    with pytest.raises(ExportError, match=r"a file as memory(.|\n)*realize\(\) before(.|\n)*bytes"):
        step.export(folder)


def test_another_device(folder):
    step = jit(lambda x: x * 2)
    step(Tensor([1.0, 2.0], device="python").realize())
    with pytest.raises(ExportError, match=r"another device(.|\n)*cpu or c(.|\n)*python"):
        step.export(folder)


def test_a_loop_of_the_host(folder):
    step = double()
    (c,) = step.captures.values()
    linear = items_of(program_of(c.capture.step))
    r = node("RANGE", (node("CONST", (), (3, linear[0].src[1].src[0].src[0].dtype)),), (0, "LOOP"))
    c.capture.step = with_program(c.capture.step, [r, *linear, node("END", (linear[-1], r))])
    with pytest.raises(ExportError, match=r"a loop of the host \(RANGE\)"):
        step.export(folder)


def test_what_changed_since_the_capture(folder):
    base = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    view = base[0]
    step = jit(lambda x: x + view)
    step(Tensor([1.0, 2.0]).realize())
    base.assign(base * 2).realize()
    try:
        step.export(folder)
    except ExportError as e:
        assert "nothing to export" in e.message
    else:
        os.rename(folder, folder.parent / "fine")


# ---- options ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("options", "message"), [
    ({"target": "rust"}, "target"),
    ({"weights": "zip"}, "weights"),
    ({"march": "x86-64-v5"}, "did you mean"),
    ({"march": "native; rm"}, "march"),
    ({"threads": 0}, "threads"),
    ({"threads": 1000}, "threads"),
    ({"name": "int"}, "name"),
    ({"name": "a/b"}, "name"),
    ({"name": "$(shell rm)"}, "name"),
    ({"name": "main"}, "name"),
    ({"name": ""}, "name"),
    ({"target": "wasm", "threads": 2}, "one thread"),
    ({"target": "wasm", "march": "native"}, "no march"),
])  # fmt: skip
def test_options(options, message, folder):
    with pytest.raises(ArgumentError, match=message):
        double().export(folder, **options)


def test_a_folder_with_files_stays(tmp_path):
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(ArgumentError, match="folder"):
        double().export(tmp_path)
    with pytest.raises(ArgumentError, match="folder"):
        double().export(tmp_path / "mine")
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


# ---- limits ----------------------------------------------------------------------------------------------------------
def with_weights() -> Any:
    w = Tensor(np.arange(64, dtype=np.float32)).realize()
    step = jit(lambda x: x + w)
    step(Tensor(np.zeros(64, np.float32)).realize())
    return step


def test_an_array_that_is_too_large(folder, monkeypatch):
    monkeypatch.setattr(c_program, "MAX_ARRAY_BYTES", 255)
    with pytest.raises(ExportError, match=r"--weights file(.|\n)*256 bytes"):
        with_weights().export(folder, weights="array")


def test_more_than_webassembly_addresses(folder, monkeypatch):
    monkeypatch.setattr(wasm, "MAX_BYTES", wasm.ROOM_BYTES + 256)
    with pytest.raises(ExportError, match=r"--target c(.|\n)*bytes"):
        with_weights().export(folder, target="wasm")


def test_no_linker(folder, monkeypatch):
    monkeypatch.setattr(lld.shutil, "which", lambda name: None)
    with pytest.raises(CompileError, match="no wasm-ld on the PATH; install lld"):
        with_weights().export(folder, target="wasm")


# ---- files -----------------------------------------------------------------------------------------------------------
def test_a_folder_is_there_whole_or_not(folder, monkeypatch):
    calls = []

    def failing(handle):
        calls.append(handle)
        if len(calls) == 3:
            raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="no space"):
        double().export(folder)


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "out").mkdir()
    double().export(tmp_path / "out")
    assert (tmp_path / "out" / "model.c").exists()


def test_a_saved_step_of_an_older_version(tmp_path: Path, monkeypatch, capsys):
    step = double()
    monkeypatch.setattr(saved, "FORMAT", saved.FORMAT - 1)
    step.save(tmp_path / "a.step")
    monkeypatch.undo()
    with pytest.raises(FileFormatError, match="another format"):
        jit.load(tmp_path / "a.step")
    for file, message in ((tmp_path / "a.step", "another format"), (tmp_path / "absent", "cannot read")):
        assert main(["export", str(file), "-o", str(tmp_path / "out")]) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_loaded_step_keeps_names(tmp_path):
    w = Tensor([1.0, 2.0]).realize()
    step = jit(lambda image: image * w)
    step(Tensor([1.0, 2.0]).realize())
    step.save(tmp_path / "a.step", {"layer.w": w})
    assert main(["export", str(tmp_path / "a.step"), "-o", str(tmp_path / "out")]) == 0
    assert "(const float *image, float *out)" in (tmp_path / "out" / "model.h").read_text()
    assert "at_layer_w = 0" in (tmp_path / "out" / "model.c").read_text()
