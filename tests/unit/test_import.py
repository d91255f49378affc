"""What `import monolect` brings, and what comes when it is first used."""

import math
import subprocess
import sys

import monolect


def printed(code: str) -> str:
    """What a fresh process prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_program_that_captures_nothing_waits_for_no_capture() -> None:
    late = {"monolect.nn", "monolect.capture.jit", "monolect.tensor.kernel", "numpy", "tempfile"}
    code = "import sys; before = {*sys.modules}; import monolect; print(*sorted({*sys.modules} - before))"
    assert {"monolect.ir", "monolect.tensor", *late}.isdisjoint(printed(code).split())
    loaded = printed(code.replace("import monolect;", "from monolect import Tensor;")).split()
    assert "monolect.tensor.tensor" in loaded and late.isdisjoint(loaded)


def test_every_public_name_is_listed_and_found() -> None:
    found = printed("import monolect as m; print({*m.__all__} - {*dir(m)}, [getattr(m, n) for n in m.__all__])")
    assert found.startswith("set() ")
    assert monolect.jit is vars(monolect)["jit"], "the second time it is an attribute as any other"


def test_element_types_and_numbers_have_their_names_here() -> None:
    for name in "bfloat16 bool double float float16 float32 half int int64 long short uint8".split():
        assert getattr(monolect, name) is getattr(monolect.dtypes, name), name
    assert monolect.zeros(2, dtype=monolect.long).dtype is monolect.int64
    assert (monolect.inf, monolect.pi) == (math.inf, math.pi) and monolect.nan != monolect.nan
    assert monolect.Tensor([1])[monolect.newaxis].shape == (1, 1)
    assert {"float", "int", "bool"}.isdisjoint(monolect.__all__), "a star import must not hide those of Python"


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    assert not hasattr(monolect, "jitt")
