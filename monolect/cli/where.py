"""Code by words, and the list of all modules: `monolect where WORD`, `monolect modules`.

What it is for: to find the code for a fact. What it is not: a search in the code itself. Nothing is imported: names and
docstrings are read from the source.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import monolect
from monolect.base.errors import ArgumentError

ROOT = Path(monolect.__file__).parent
# from low to high: a module imports only from the layers below its own
LAYERS = (
    "base", "ir", "rules", "autograd", "schedule", "optimize", "lower", "command", "backend", "pipeline.py", "runtime",
    "graphs", "tensor", "capture", "interop", "nn", "export", "cli",
)  # fmt: skip


def modules() -> list[tuple[str, str, str]]:
    """(folder, module, first sentence), layer by layer. The row of a folder has no module; it is before its modules."""
    files = [f for f in ROOT.rglob("*.py") if f.relative_to(ROOT).parts[0] in LAYERS]

    def key(f: Path) -> tuple[int, str, bool, str]:
        return LAYERS.index(f.relative_to(ROOT).parts[0]), str(f.parent), f.name != "__init__.py", f.name

    rows = []
    for f in sorted(files, key=key):
        text = _sentence(ast.get_docstring(ast.parse(f.read_text(encoding="utf-8"))) or "")
        folder = f.parent.relative_to(ROOT).as_posix()
        rows.append(("" if folder == "." else folder, "" if f.name == "__init__.py" else f.stem, text))
    return rows


def places(word: str = "", is_term: bool = False) -> list[tuple[str, str, str]]:
    """(file:line, name, first sentence) of what has `word` in its name, then of what has it in its docstring.

    Without one, every module. Raises ArgumentError where nothing has it, unless it `is_term`, which the glossary has.
    """
    named, told = [], []
    for path in sorted(ROOT.rglob("*.py")):
        for line, name, text in _documented(ast.parse(path.read_text(encoding="utf-8")), path):
            place = f"{path.relative_to(ROOT.parent).as_posix()}:{line}", name, _sentence(text)
            if not word:
                named.append(place) if line == 1 else None
            elif word.lower() in name.lower():
                named.append(place)
            elif word.lower() in text.lower():
                told.append(place)
    if not named and not told and not is_term:
        expected = "a word of a name or a docstring; `grep` finds what only code says"
        raise ArgumentError("no name and no docstring has that word", expected=expected, found=word)
    return named + told


def _documented(tree: ast.Module, path: Path) -> Iterator[tuple[int, str, str]]:
    """(line, name, docstring) of a module and of the classes, functions and methods in it that have one."""
    module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    yield 1, module, ast.get_docstring(tree) or ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.lineno, node.name, ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            methods = [m for m in node.body if isinstance(m, ast.FunctionDef) and not m.name.startswith("__")]
            yield from ((m.lineno, f"{node.name}.{m.name}", ast.get_docstring(m) or "") for m in methods)


def _sentence(text: str) -> str:
    """The first sentence of a docstring, on one line."""
    first = " ".join(text.partition("\n\n")[0].split())
    end = first.find(". ")
    return first if end < 0 else first[: end + 1]
