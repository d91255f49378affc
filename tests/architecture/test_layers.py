"""What keeps the shape of the code: layers, file sizes, names and docstrings."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "monolect"
MODULES = sorted(PACKAGE.rglob("*.py"))
ALL_FILES = MODULES + [path for folder in ("tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "misc", "engine", "late", "support"}
MAX_LINES = 800


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def is_bad_name(part: str) -> bool:
    """Forbidden words, and anything but lower case words: no digits, no author's abbreviations in capitals."""
    words = set(part.strip("_").split("_"))
    return bool(words & FORBIDDEN_NAMES) or not re.fullmatch(r"[a-z_]+", part)


def test_layers(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == 0, capsys.readouterr().out


def test_every_package_is_in_the_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = set(re.findall(r"monolect\.[a-z_.]+", " ".join(contracts[0]["layers"])))
    found = set()
    for folder in (PACKAGE, PACKAGE / "backend"):
        parts = [path.stem for path in folder.glob("*.py")]
        parts += [path.name for path in folder.iterdir() if (path / "__init__.py").exists()]
        prefix = ".".join(folder.relative_to(ROOT).parts)
        found |= {f"{prefix}.{part}" for part in parts} - {f"{prefix}.__init__", "monolect.backend"}
    assert found <= named


@pytest.mark.parametrize("path", ALL_FILES, ids=name_of)
def test_files_are_short(path):
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_LINES, f"{name_of(path)} has {lines} lines"


NAMES_OF_PYTORCH = frozenset(("nn/utils/", "optim/swa_utils.py"))  # users import them by these names


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_is_named_and_documented(path):
    inside = path.relative_to(PACKAGE).as_posix()
    for known in NAMES_OF_PYTORCH:
        inside = inside.removeprefix(known)
    bad = [part for part in inside.removesuffix(".py").split("/") if part and is_bad_name(part)]
    assert not bad, f"names that say nothing: {bad}"
    assert ast.get_docstring(ast.parse(path.read_text())), "no module docstring"


def test_the_checks_find_what_is_planted():
    assert [is_bad_name(name) for name in ("utils", "string_utils", "expander2", "Tensor")] == [True] * 4
    assert [is_bad_name(name) for name in ("__init__", "tensor_core", "c_style")] == [False] * 3


PLANTED_CONTRACT = """
[tool.importlinter]
root_package = "planted"
[[tool.importlinter.contracts]]
id = "layers"
name = "layers"
type = "layers"
layers = ["planted.high", "planted.left | planted.right", "planted.base", "(planted.absent)"]
"""


@pytest.mark.parametrize(
    ("file", "text", "status"),
    [
        ("high.py", "import planted.left", 0),
        ("base.py", "def f():\n    import planted.high", 1),
        ("left.py", "import planted.right", 1),
    ],
)
def test_the_linter_finds_what_is_planted(file, text, status, tmp_path, monkeypatch, capsys):
    package = tmp_path / "planted"
    package.mkdir()
    for name in ("__init__", "high", "left", "right", "base"):
        (package / f"{name}.py").write_text("")
    (package / file).write_text(text)
    (tmp_path / "pyproject.toml").write_text(PLANTED_CONTRACT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert lint_imports(config_filename=str(tmp_path / "pyproject.toml"), no_cache=True) == status
