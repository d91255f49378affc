"""The error tree: what each class derives from, what its text says, and whose line it names."""

import pickle
import re
import sys

import pytest

from monolect.base import errors
from monolect.base.errors import IRError, MissingExtraError, MonolectError, ShapeError, VerifyError, user_line

BUILTINS = {
    "ShapeError": ValueError,
    "DTypeError": TypeError,
    "DeviceError": ValueError,
    "DistributedError": RuntimeError,
    "AxisError": IndexError,
    "AxisTypeError": TypeError,
    "IndexRangeError": IndexError,
    "SettingError": ValueError,
    "ArgumentError": ValueError,
    "GradientError": RuntimeError,
    "JitError": RuntimeError,
    "ExportError": RuntimeError,
    "IRError": ValueError,
    "VerifyError": IRError,
    "ParseError": ValueError,
    "ActionError": ValueError,
    "CompileError": RuntimeError,
    "ObjectFileError": ValueError,
    "FileFormatError": ValueError,
    "MissingExtraError": ImportError,
    "AllocationError": MemoryError,
    "InternalError": RuntimeError,
}
CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, MonolectError)]


def test_every_class_is_in_the_tree_with_its_builtin():
    assert {c.__name__ for c in CLASSES} == {*BUILTINS, "MonolectError"}
    for name, builtin in BUILTINS.items():
        assert issubclass(getattr(errors, name), builtin), name
        assert issubclass(getattr(errors, name), MonolectError), name


def test_the_drawing_in_the_docstring_is_the_tree():
    drawn = set(re.findall(r"\b[A-Z]\w+Error\b", errors.__doc__ or "")) - {b.__name__ for b in BUILTINS.values()}
    assert drawn | {"IRError"} == {*BUILTINS, "MonolectError"}


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_says_what_it_means(cls):
    assert len(cls.__doc__) > 30


def test_text_names_expected_found_and_the_line(whole_text):
    error = ShapeError("shapes do not broadcast", expected="(2, 3)", found=(2, 4))  # the line that is named
    first, expected, found, line = whole_text(error).splitlines()
    assert first == "shapes do not broadcast"
    assert expected == "  expected: (2, 3)"
    assert found == "  found: (2, 4)"
    assert re.fullmatch(rf"  at {re.escape(__file__)}:\d+: error = ShapeError\(.*# the line that is named", line)


def test_text_leaves_out_what_is_not_known():
    assert str(ShapeError("bad", line=("", 0))) == "bad"
    assert str(ShapeError("bad", found=0, line=("", 0))) == "bad\n  found: 0"


def test_a_line_without_source_text_is_still_named():
    assert str(ShapeError("bad", line=("<stdin>", 7))) == "bad\n  at <stdin>:7"


def _function_with_file(filename: str):
    scope: dict = {"user_line": user_line, "ShapeError": ShapeError}
    code = "def call(f):\n    return f()\ndef where():\n    return user_line()\n"
    exec(compile(code, filename, "exec"), scope)
    return scope


def test_frames_of_the_package_and_of_generated_functions_are_not_the_users():
    inside = errors.__file__.replace("errors.py", "planted.py")
    for filename in (inside, "<monolect rules>", "<frozen importlib._bootstrap>"):
        file, line = _function_with_file(filename)["where"]()
        assert (file, line) == (__file__, sys._getframe().f_lineno - 1)


def test_frames_of_other_libraries_and_of_a_prompt_are_the_users():
    assert _function_with_file("<stdin>")["where"]() == ("<stdin>", 4)


def test_given_line_is_kept():
    assert MonolectError("x", line=("model.py", 12)).line == ("model.py", 12)


def test_ir_errors_hold_the_op():
    error = VerifyError("bad", op="ADD")
    assert error.op == "ADD"
    assert isinstance(error, IRError)


def test_missing_extra_names_the_line_that_mends_it():
    error = MissingExtraError("pyopencl", "opencl")
    assert "pip install 'monolect[opencl]'" in str(error)
    assert (error.package, error.extra) == ("pyopencl", "opencl")


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_cross_processes_whole(cls):
    error = cls("a", "b") if cls is MissingExtraError else cls("a", expected=1, found=2)
    error.add_note("seen in a worker")
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is cls
    assert str(other) == str(error)
    assert vars(other) == vars(error)


def test_python_can_catch_by_builtin():
    with pytest.raises(ValueError, match="sizes"):
        raise ShapeError("sizes do not fit")
