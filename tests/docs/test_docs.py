"""What the documentation says is true: pages and docstrings are executed, the reference is what `make docs` writes."""

import doctest
import importlib
import linecache
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import monolect
from monolect import Tensor
from monolect.cli import main
from monolect.cli.api import PAGES as API
from monolect.cli.api import markdown, public
from tests.docs.pages import BLOCK, FLAGS, blocks, run_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "HACKING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXECUTED = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]
LONG = ("add-an-op", "fix-a-wrong-rule", "bisect")  # pages that take 10 s; `make test` runs one of them
FOUND = pkgutil.walk_packages(monolect.__path__, "monolect.")
MODULES = sorted(m.name for m in FOUND if not m.name.endswith("__main__"))
REFERENCE = ("ops", "passes", "rules", "actions", "accuracy", "settings", "devices", "tuning", "modules", "glossary")
REFERENCE += ("torch-parity",)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_state_is_as_pytorch_has_it():
    """The examples of the page on semantics that say so, with PyTorch's tensors."""
    torch = pytest.importorskip("torch")
    text = (ROOT / "docs/semantics.md").read_text(encoding="utf-8")
    _, section = text.split("executed with PyTorch's `tensor` as `Tensor`, too.\n", 1)
    (_, source), *_ = blocks(section)
    exec(compile(source, "semantics.md", "exec"), {"Tensor": torch.tensor})


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[pytest.mark.sweep] if p.stem in LONG else []) for p in EXECUTED],
    ids=[name_of(p) for p in EXECUTED],
)
def test_page_runs(page, tmp_path):
    """In a process of its own, as a reader would run it; nothing is left of what ran before."""
    environment = {**os.environ, "PYTHONWARNINGS": "error::RuntimeWarning"}
    command = [sys.executable, str(ROOT / "tests/docs/pages.py"), str(page)]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_pages_that_must_be_executed_are():
    names = {name_of(page) for page in EXECUTED}
    assert {"README.md", "docs/index.md", "docs/quickstart.md", "docs/from-pytorch.md", "docs/semantics.md"} <= names
    assert {f"docs/how-to/{name}.md" for name in ("add-an-op", "add-an-action", "fix-a-wrong-rule")} <= names
    tour = [name_of(page) for page in PAGES if page.parent.name == "tour" and page.name[0].isdigit()]
    assert len(tour) >= 5 and set(tour) <= names
    assert [int(Path(name).name.partition("-")[0]) for name in tour] == list(range(1, len(tour) + 1))


def test_lessons_are_short():
    for page in (ROOT / "docs/tour").glob("[0-9]*.md"):
        assert len(page.read_text(encoding="utf-8").splitlines()) <= 100, name_of(page)


@pytest.mark.parametrize("module", ["monolect", *MODULES])
def test_docstring_examples(module):
    """With the public names at hand, as a reader has them.

    Each docstring gets a debugger, which asks for the state of every file whose lines Python remembers.
    """
    linecache.clearcache()
    code = importlib.import_module(module)
    names = {name: getattr(monolect, name) for name in monolect.__all__} | {"np": np, "monolect": monolect}
    if not module.startswith("monolect.functions"):  # its `round` and `sum` are not those of the examples
        names |= vars(code)
    assert doctest.testmod(code, globs=names, optionflags=FLAGS).failed == 0


def test_all_that_is_public_has_an_example_that_is_executed():
    public_names = [(e.name, e.value) for e in public() if e.page != "errors"]
    named = [(name, x) for name, x in public_names if str(sys.modules[x.__module__].__file__).endswith(".py")]
    modules = {x.__module__ for _, x in named}
    assert modules <= {"monolect", *MODULES}, "the examples of these are executed"
    tests = [test for module in modules for test in doctest.DocTestFinder().find(sys.modules[module])]
    executed = {test.docstring for test in tests if test.examples}
    assert [name for name, x in named if x.__doc__ not in executed] == []
    assert len(named) > 500


def test_every_public_name_is_on_a_page_of_the_api(capsys):
    """With its docstring, but for what each layer and optimizer inherits."""
    entries = list(public())
    assert {e.page for e in entries} == set(API) == {p.stem for p in (ROOT / "docs/reference/api").glob("[a-z]*.md")}
    for name in API:
        assert main(["api", name, "--markdown"]) == 0
        text = capsys.readouterr().out.replace(r"\*", "*").replace("&lt;", "<")
        assert " at 0x" not in text
        for e in entries:
            if e.page == name:
                assert (f"### {e.name}\n" in text) == (not e.inherited), e.name
                assert e.text.partition("\n")[0] in text, e.name
    inherited = {e.name.rpartition(".")[2] for e in entries if e.inherited}
    own = {e.name for e in entries if not e.inherited}
    assert all({f"Module.{x}", f"Optimizer.{x}"} & own for x in inherited)
    assert (
        set(monolect.__all__)
        - {"amp", "array_api", "autograd", "data", "func", "linalg", "nn", "optim", "random", "special"}
        <= own
    )
    assert {f"Tensor.{x}" for x in dir(Tensor) if x[0] != "_" and callable(getattr(Tensor, x, None))} <= own


def test_a_docstring_as_markdown():
    text = "Return r*H < w*2 of `a*b`.\n\n    a table\n\nMore.\n>>> 2 * 3\n6\n"
    blocks = ["Return r\\*H &lt; w\\*2 of `a*b`.", "```text\na table\n```", "More.", "```pycon\n>>> 2 * 3\n6\n\n```"]
    assert markdown(text) == "\n\n".join(blocks)


def test_api_prints_a_name(capsys):
    assert main(["api", "Tensor.sum"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Tensor.sum(dim=None, keepdim=False") and ">>> Tensor([[1, 2], [3, 4]]).sum(dim=0)" in out
    assert main(["api", "softmax"]) == 0  # the method, by its last part
    assert "Tensor.softmax(" in capsys.readouterr().out
    assert main(["api"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 350
    assert main(["api", "softma"]) == 1
    assert "Tensor.softmax" in capsys.readouterr().err
    assert main(["api", "--markdown"]) == 1
    assert "expected: monolect, tensor, functions, nn" in capsys.readouterr().err


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


def test_every_decision_is_listed():
    listed = re.findall(r"\]\((\d{4}-.*?\.md)\)", (ROOT / "docs/adr/README.md").read_text(encoding="utf-8"))
    assert listed == sorted(page.name for page in (ROOT / "docs/adr").glob("[0-9]*.md"))


def test_a_wrong_page_is_found(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("One.\n```python\nx = 1\n```\nTwo.\n```python\n>>> x + 1\n3\n```\n")
    assert [line for line, _ in blocks(page.read_text())] == [3, 7]
    assert run_page(page) == 1
    assert "page.md" in capsys.readouterr().out
    page.write_text("```python\nassert False\n```\n")
    with pytest.raises(AssertionError):
        run_page(page)
