"""The documents name what is there: ARCHITECTURE.md every folder, in the order of the layers."""

import re
import tomllib
from pathlib import Path

import pytest

from monolect.cli.glossary import TERMS
from monolect.cli.where import LAYERS, modules

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "ARCHITECTURE.md"
FOLDERS = sorted(str(path.parent.relative_to(ROOT / "monolect")) for path in (ROOT / "monolect").rglob("*/__init__.py"))
FILES = ("pipeline.py", "special.py", "linalg.py")  # modules that are in no folder
MOST_MODULES = 12  # in a folder: more do not fit one look


def named() -> list[str]:
    """The paths in the first column of the page's table; a row may hold some that belong together."""
    cells = re.findall(r"^\| (`[^|]*`) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [name.rstrip("/") for name in re.findall(r"`([a-z_/]+(?:/|\.py))`", " ".join(cells))]


@pytest.mark.parametrize("folder", FOLDERS)
def test_architecture_names_every_folder(folder: str) -> None:
    assert named().count(folder) == 1, f"give {folder}/ one row in ARCHITECTURE.md, in its layer"


def test_architecture_names_nothing_else() -> None:
    assert set(named()) == {*FOLDERS, *FILES}


def test_architecture_follows_the_layers() -> None:
    order = [LAYERS.index(name.partition("/")[0]) for name in named()]
    assert order == sorted(order)


def test_the_layers_are_those_of_the_contract() -> None:
    """From high to low there, with siblings in a row."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    rows = [re.findall(r"monolect\.([a-z_]+)", row) for row in reversed(contract)]
    level = {name: k for k, row in enumerate(rows) for name in row}
    assert [level[name.removesuffix(".py")] for name in LAYERS] == sorted(level[n.removesuffix(".py")] for n in LAYERS)


def test_architecture_is_short() -> None:
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_are_small(folder: str) -> None:
    mine = [f for f in (ROOT / "monolect" / folder).glob("*.py") if not f.name.startswith("__")]
    assert len(mine) <= MOST_MODULES


def test_every_module_has_a_row() -> None:
    rows = [f"{folder}/{name}" if folder else name for folder, name, text in modules() if name and text]
    files = {str(f.relative_to(ROOT / "monolect").with_suffix("")) for f in (ROOT / "monolect").rglob("*.py")}
    assert len(set(rows)) == len(rows) and set(rows) == {f for f in files if "__" not in f}


def test_the_glossary_names_modules() -> None:
    named = {path for term in TERMS for path in term.where}
    assert [path for path in sorted(named) if not (ROOT / "monolect" / path).exists()] == []
