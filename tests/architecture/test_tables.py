"""The documents name what is there: ARCHITECTURE.md every module, in the order of the layers."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "ARCHITECTURE.md"
MODULES = sorted(
    str(path.relative_to(ROOT / "monolect"))
    for path in (ROOT / "monolect").rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)
LAYERS = ("base", "ir", "rules", "autograd", "schedule", "optimize", "lower", "command", "backend", "pipeline.py",
          "runtime", "tensor", "interop", "nn", "export", "cli")  # fmt: skip


def named() -> list[str]:
    """The paths in the first column of the page's table; a row may hold two that belong together."""
    cells = re.findall(r"^\| (`[^|]*`) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return re.findall(r"`([a-z_/]+\.py)`", " ".join(cells))


@pytest.mark.parametrize("module", MODULES)
def test_architecture_names_every_module(module):
    assert named().count(module) == 1, f"give {module} one line in ARCHITECTURE.md, in its layer"


def test_architecture_names_nothing_else():
    assert set(named()) <= set(MODULES)


def test_architecture_follows_the_layers():
    places = [LAYERS.index(name.partition("/")[0]) for name in named()]
    assert places == sorted(places)


def test_architecture_is_short():
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= 150
