"""What keeps imports in order: no cycle, not even of types or of late imports; late imports say why; few are by
name.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "monolect"
# Modules that may import a module of monolect by its name, and what they find so.
BY_NAME = {
    "monolect": "the public names, at their first use",
    "monolect.autograd": "`grad`, a function of tensors, in a layer above",
    "monolect.backend.registry": "devices, from one table",
    "monolect.capture.environment.bytecode": "modules of the user's, to read their code",
    "monolect.capture.step": "the exporter, in a layer above",
    "monolect.cli": "commands, from one table",
    "monolect.graphs": "its own modules, at their first use",
    "monolect.nn": "layers, at their first use",
    "monolect.optim": "optimizers, at their first use",
    "monolect.cli.surface.generate": "classes of methods, whose names it lists",
    "monolect.tensor.methods.families": "families of methods, at their first use",
    "monolect.tensor.methods.exchange": "the namespace of the array API, in a layer above",
    "monolect.cli.tables": "devices, from the table of the registry",
}

Graph = dict[str, set[str]]


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, name: str, is_package: bool, modules: Mapping[str, Path]) -> set[str]:
    """The modules that `name` imports: at its top, in functions, and only for types."""
    found = set()
    for n in ast.walk(tree):
        if isinstance(n, ast.Import):
            found |= {alias.name for alias in n.names}
        elif isinstance(n, ast.ImportFrom):
            base = n.module or ""
            if n.level:
                parts = name.split(".")
                above = parts[: len(parts) - n.level + is_package]
                base = ".".join([*above, base] if base else above)
            for alias in n.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in modules else base)
    return found & modules.keys() - {name}


def import_graph(root: Path, package: str) -> Graph:
    modules = {module_name(p, root): p for p in (root / package).rglob("*.py")}
    return {
        name: imported(ast.parse(p.read_text()), name, p.name == "__init__.py", modules) for name, p in modules.items()
    }


def cycles(graph: Graph) -> list[list[str]]:
    """The sets of two or more modules that import each other: strongly connected components (Tarjan 1972)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(v: str) -> None:
        number[v] = low[v] = len(number)
        stack.append(v)
        for w in sorted(graph[v]):
            if w not in number:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], number[w])
        if low[v] == number[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for v in sorted(graph):
        if v not in number:
            visit(v)
    return found


def late_imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports of monolect inside functions."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for n in ast.walk(function):
                names = [alias.name for alias in n.names] if isinstance(n, ast.Import) else []
                if isinstance(n, ast.ImportFrom):
                    names = ["monolect" if n.level else n.module or ""]
                if any(name.split(".")[0] == "monolect" for name in names):
                    yield n


def unexplained(text: str) -> list[int]:
    """Line numbers of imports of monolect inside functions without a comment that says why: `# imported ...`."""
    if not re.search(r"^ +(from|import) ", text, re.MULTILINE):
        return []
    lines = text.splitlines()

    def is_explained(number: int) -> bool:
        above = number - 2
        while above >= 0 and lines[above].lstrip().startswith(("from ", "import ")):  # a comment above several imports
            above -= 1
        return "# imported " in lines[number - 1] or lines[above].lstrip().startswith("# imported ")

    return [n.lineno for n in late_imports(ast.parse(text)) if not is_explained(n.lineno)]


def imports_by_name(text: str) -> list[int]:
    """Line numbers of calls of `import_module` that may import a module of monolect: not with another constant name."""
    found = []
    for n in ast.walk(ast.parse(text if "import_module" in text or "__import__" in text else "")):
        if isinstance(n, ast.Call) and ast.unparse(n.func).split(".")[-1] in ("import_module", "__import__"):
            name = n.args[0]
            if not isinstance(name, ast.Constant) or str(name.value).split(".")[0] == "monolect":
                found.append(n.lineno)
    return found


def test_no_modules_import_each_other():
    assert cycles(import_graph(ROOT, "monolect")) == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_late_imports_say_why_and_few_are_by_name(path):
    text = path.read_text()
    assert unexplained(text) == [], "imports of monolect inside a function, without the comment `# imported ...`"
    name = module_name(path, ROOT)
    assert imports_by_name(text) == [] or name in BY_NAME


def test_modules_that_import_by_name_do():
    for name in BY_NAME:
        path = ROOT / name.replace(".", "/")
        assert imports_by_name((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from planted import high", [["planted.base", "planted.high"]]),
        ("from .high import x", [["planted.base", "planted.high"]]),
        ("import planted.high", [["planted.base", "planted.high"]]),
        ("def f():\n    from planted.middle import x", [["planted.base", "planted.high", "planted.middle"]]),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planted.high import x",
            [["planted.base", "planted.high"]],
        ),
        ("x = 1", []),
    ],
)
def test_planted_cycles_are_found(text, found, tmp_path):
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "high.py").write_text("from planted.base import y")
    (package / "middle.py").write_text("from planted import high")
    (package / "base.py").write_text(text)
    assert cycles(import_graph(tmp_path, "planted")) == found


def test_planted_late_imports_are_found():
    planted = "def f():\n    import numpy\n    from monolect.ir import uop\n    class A:\n        from . import b\n"
    assert unexplained(planted) == [3, 5]
    assert unexplained("def f():\n    from monolect.ir import uop  # imported only on a miss\n") == []
    assert unexplained("from monolect.ir import uop\n") == []
    assert (
        unexplained("def f():\n    # imported on a miss\n    from monolect import a\n    from monolect import b\n")
        == []
    )
    assert imports_by_name("import_module('monolect.nn')\nimportlib.import_module(x)\n__import__('numpy')") == [1, 2]
