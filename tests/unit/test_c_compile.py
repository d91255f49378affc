"""The C device: finding a compiler, its errors, its keys, and the source it is given."""

import numpy as np
import pytest

from monolect import Tensor
from monolect.backend.c import compile as c_compile
from monolect.backend.c.compile import Compiler
from monolect.backend.c.render import MAX_LANES, language
from monolect.backend.common.host.elf import load_object
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.base.errors import CompileError
from monolect.base.settings import Context

needs_compiler = pytest.mark.skipif(bool(c_compile.missing()), reason=c_compile.missing() or "-")


# ---- without a compiler ----------------------------------------------------------------------------------------------
def test_a_compiler_that_is_not_there_is_named_with_what_to_do():
    with Context(CC="no-such-compiler"):
        assert "no-such-compiler is not on the PATH" in Device.present()["c"]
        with pytest.raises(CompileError, match="set CC"):
            Compiler()


def test_a_compiler_that_cannot_run_is_an_error(tmp_path):
    bad = tmp_path / "cc"
    bad.write_text("no program")
    bad.chmod(0o755)
    with pytest.raises(CompileError, match="could not be run"):
        Compiler(str(bad))


# ---- with one --------------------------------------------------------------------------------------------------------
@needs_compiler
def test_an_error_names_the_line_and_the_compiler_stays_usable():
    compiler = Compiler()
    with pytest.raises(CompileError, match=r"line 2: .*undeclared") as caught:
        compiler.compile("int f(int x) {\n  return x + y;\n}\n")
    assert str(caught.value).splitlines()[1].strip() == "return x + y;"
    assert load_object(compiler.compile("int f(int x) { return x; }\n")).address("f")


@needs_compiler
def test_equal_source_gives_equal_objects_and_the_key_holds_the_flags():
    a, b = Compiler(), Compiler()
    text = "float f(float x) { return x * 2; }\n"
    assert a.compile(text) == b.compile(text) and a.key == b.key
    b.flags = [*b.flags, "-O0"]
    assert a.key != b.key


@needs_compiler
def test_every_vector_type_of_the_header_is_one():
    lang = language(False)
    checks = []
    for d in (dtypes.int8, dtypes.float32, dtypes.uint64):
        n = MAX_LANES
        size = n * d.itemsize
        checks.append(f'_Static_assert(sizeof({lang.type(d, n)}) == {size}, "size");')
    assert Compiler().compile(lang.header + "\n".join(checks) + "\n")


@needs_compiler
def test_the_source_is_kept_with_the_program_and_calls_no_library():
    x = Tensor(np.arange(1000, dtype=np.float32), device="c")
    (x.exp() / 3).sqrt().realize()
    device = Device["c"]
    sources = [p.source for p in device.programs.values()]
    assert any("for (i64" in s or "f32x" in s for s in sources)
    assert all("#include" not in s and s.startswith(("void ", "typedef ")) for s in sources if s)


@pytest.mark.sweep
@needs_compiler
@pytest.mark.parametrize("n", [1, 3, 16, 31, 100])
def test_rows_of_any_length_are_masked_right(n):
    a = np.random.default_rng(n).standard_normal((7, n)).astype(np.float32)
    x = Tensor(a, device="c")
    np.testing.assert_allclose(x.softmax(-1).numpy(), np.exp(a) / np.exp(a).sum(-1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal((x > 0).numpy(), a > 0)
    np.testing.assert_allclose((x @ x.T).numpy(), a @ a.T, rtol=1e-4, atol=1e-5)


@needs_compiler
def test_a_compiler_is_asked_once_as_long_as_it_does_not_change(monkeypatch, tmp_path):
    """Also in other processes: what it says is on disk."""
    asked, ask = [], c_compile.probe
    monkeypatch.setattr(c_compile, "probe", lambda command: (asked.append(command), ask(command))[1])
    command = tmp_path / "cc"
    command.write_text(f'#!/bin/sh\nexec {c_compile.find()} "$@"\n')
    command.chmod(0o755)
    with Context(MONOLECT_CACHE=str(tmp_path / "cache")):
        first = c_compile.facts.__wrapped__(str(command))
        assert c_compile.facts.__wrapped__(str(command)) == first and len(asked) == 1
        assert first == Compiler().facts
        command.write_text(command.read_text() + "# another build\n")
        assert c_compile.facts.__wrapped__(str(command)) == first and len(asked) == 2
    with Context(COMPILE_CACHE=0):
        assert c_compile.facts.__wrapped__(str(command)) == first and len(asked) == 3
