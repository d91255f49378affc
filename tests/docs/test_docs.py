"""What the documentation says is true: pages and docstrings are executed, the reference is what `make docs` writes."""

import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monolect
from monolect.capture.jit import Jit
from monolect.cli import main
from monolect.interop import safetensors
from tests.docs.pages import BLOCK, FLAGS, blocks, run_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "HACKING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXECUTED = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]
FOUND = pkgutil.walk_packages(monolect.__path__, "monolect.")
MODULES = sorted(m.name for m in FOUND if not m.name.endswith("__main__"))
REFERENCE = ("ops", "passes", "rules", "actions", "accuracy", "settings", "devices", "modules", "glossary")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_state_is_as_pytorch_has_it():
    """The examples of the page on semantics that say so, with PyTorch's tensors."""
    torch = pytest.importorskip("torch")
    text = (ROOT / "docs/semantics.md").read_text(encoding="utf-8")
    _, section = text.split("executed with PyTorch's `tensor` as `Tensor`, too.\n", 1)
    (_, source), *_ = blocks(section)
    exec(compile(source, "semantics.md", "exec"), {"Tensor": torch.tensor})


@pytest.mark.parametrize("page", EXECUTED, ids=name_of)
def test_page_runs(page, tmp_path):
    """In a process of its own, as a reader would run it; nothing is left of what ran before."""
    environment = {**os.environ, "PYTHONWARNINGS": "error::RuntimeWarning"}
    command = [sys.executable, str(ROOT / "tests/docs/pages.py"), str(page)]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_pages_that_must_be_executed_are():
    names = {name_of(page) for page in EXECUTED}
    assert {"README.md", "docs/semantics.md"} <= names
    tour = [name_of(page) for page in PAGES if page.parent.name == "tour" and page.name[0].isdigit()]
    assert len(tour) >= 5 and set(tour) <= names
    assert [int(Path(name).name.partition("-")[0]) for name in tour] == list(range(1, len(tour) + 1))


def test_lessons_are_short():
    for page in (ROOT / "docs/tour").glob("[0-9]*.md"):
        assert len(page.read_text(encoding="utf-8").splitlines()) <= 100, name_of(page)


@pytest.mark.parametrize("module", ["monolect", *MODULES])
def test_docstring_examples(module):
    """With the public names at hand, as a reader has them."""
    code = importlib.import_module(module)
    names = {name: getattr(monolect, name) for name in monolect.__all__} | {"np": np} | vars(code)
    assert doctest.testmod(code, globs=names, optionflags=FLAGS).failed == 0


OF_A_LAYER = ("forward", "extra_repr")  # the example is that of the class


def public() -> Iterator[tuple[str, Any]]:
    """All that a program reaches by name: functions, classes but for errors, their methods and properties."""
    nn = monolect.nn
    found = [(name, getattr(space, name)) for space in (monolect, nn) for name in space.__all__]
    for space in (nn.optim, nn.state, nn.datasets, safetensors):
        own = [name for name, value in vars(space).items() if getattr(value, "__module__", None) == space.__name__]
        found += [(name, getattr(space, name)) for name in own if name[0] != "_"]
    for name, value in [*found, ("Jit", Jit)]:
        if inspect.isfunction(value):
            yield name, value
        elif not inspect.ismodule(value):
            cls = value if isinstance(value, type) else type(value)
            if issubclass(cls, Exception):
                continue
            yield name, cls
            for of_it in [x for x in dir(cls) if x[0] != "_"]:
                member = inspect.getattr_static(cls, of_it)
                member = getattr(member, "__func__", getattr(member, "fget", member))
                if inspect.isfunction(member) and not (issubclass(cls, nn.Module) and of_it in OF_A_LAYER):
                    yield f"{name}.{of_it}", member


def test_all_that_is_public_has_an_example_that_is_executed():
    named = [(name, x) for name, x in public() if str(sys.modules[x.__module__].__file__).endswith(".py")]
    modules = {x.__module__ for _, x in named}
    assert modules <= {"monolect", *MODULES}, "the examples of these are executed"
    tests = [test for module in modules for test in doctest.DocTestFinder().find(sys.modules[module])]
    executed = {test.docstring for test in tests if test.examples}
    assert [name for name, x in named if x.__doc__ not in executed] == []
    assert len(named) > 500


@pytest.mark.parametrize("table", REFERENCE)
def test_reference_is_current(table, capsys):
    assert main([table, "--markdown"]) == 0
    written = (ROOT / f"docs/reference/{table}.md").read_text(encoding="utf-8")
    assert written == capsys.readouterr().out, "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_a_wrong_page_is_found(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("One.\n```python\nx = 1\n```\nTwo.\n```python\n>>> x + 1\n3\n```\n")
    assert [line for line, _ in blocks(page.read_text())] == [3, 7]
    assert run_page(page) == 1
    assert "page.md" in capsys.readouterr().out
    page.write_text("```python\nassert False\n```\n")
    with pytest.raises(AssertionError):
        run_page(page)
