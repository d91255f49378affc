"""Find code by a word, and list all modules and rules: `monolect where WORD`, `monolect modules`, `monolect rules`.

What it is for: finding the code behind a fact. What it is not: a search in the code itself. Names and docstrings are
parsed from the source files, which are not imported. The function that applies a rule is found in the source by the
rule's name.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import monolect
from monolect.base.errors import ArgumentError
from monolect.ir.rewrite.named_rules import Family
from monolect.pipeline import FAMILIES
from monolect.rules.decompose import DECOMPOSE

ROOT = Path(monolect.__file__).parent
# layers from low to high; a module imports only from its own layer and those below
LAYERS = (
    "base", "ir", "rules", "autograd", "schedule", "optimize", "lower", "command", "backend", "pipeline.py", "runtime",
    "graphs", "tensor", "random.py", "capture", "functions", "special.py", "linalg.py", "array_api", "interop", "optim",
    "amp", "nn", "func", "data", "distributed", "export", "cli",
)  # fmt: skip
RULES_HEADER = ("family", "name", "meaning", "where", "cannot be switched off because")


def modules() -> list[tuple[str, str, str]]:
    """Return (folder, module, first sentence) layer by layer; the row of a folder has module "" and precedes its
    modules.
    """
    files = [f for f in _documented() if f.relative_to(ROOT).parts[0] in LAYERS]

    def key(f: Path) -> tuple[int, str, bool, str]:
        return LAYERS.index(f.relative_to(ROOT).parts[0]), str(f.parent), f.name != "__init__.py", f.name

    rows = []
    for f in sorted(files, key=key):
        _, _, text = _documented()[f][0]
        folder = f.parent.relative_to(ROOT).as_posix()
        rows.append(("" if folder == "." else folder, "" if f.name == "__init__.py" else f.stem, _sentence(text)))
    return rows


def find(word: str = "", is_term: bool = False) -> list[tuple[str, str, str]]:
    """Return (file:line, name, first sentence) of definitions with `word` in the name, then in the docstring.

    Without a word, return every module. Raises ArgumentError for no match, unless the word `is_term` of the glossary.
    """
    named, described = [], []
    for path, found in _documented().items():
        for line, name, text in found:
            row = f"{path.relative_to(ROOT.parent).as_posix()}:{line}", name, _sentence(text)
            if not word:
                named.append(row) if line == 1 else None
            elif word.lower() in name.lower():
                named.append(row)
            elif word.lower() in text.lower():
                described.append(row)
    if not named and not described and not is_term:
        expected = "a word of a name or a docstring; use `grep` to search the code"
        raise ArgumentError("no name and no docstring has that word", expected=expected, found=word)
    return named + described


@cache
def _documented() -> dict[Path, list[tuple[int, str, str]]]:
    """Return (line, name, docstring) of each module and of its classes, functions and methods, by file; "" for no
    docstring. Parsing all files takes a second.
    """
    return {f: [*_definitions(ast.parse(f.read_text(encoding="utf-8")), f)] for f in sorted(ROOT.rglob("*.py"))}


def _definitions(tree: ast.Module, path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield (line, name, docstring) of a module, which is the first, and of its classes, functions and methods."""
    module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    yield 1, module, ast.get_docstring(tree) or ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.lineno, node.name, ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            methods = [m for m in node.body if isinstance(m, ast.FunctionDef) and not m.name.startswith("__")]
            yield from ((m.lineno, f"{node.name}.{m.name}", ast.get_docstring(m) or "") for m in methods)


def _sentence(text: str) -> str:
    """Return the first sentence of a docstring on one line."""
    first = " ".join(text.partition("\n\n")[0].split())
    end = first.find(". ")
    return first if end < 0 else first[: end + 1]


@cache
def rules() -> tuple[tuple[str, str, str, str, str], ...]:
    """Return the rows (family, name, meaning, code, reason why it is not optional) of all families, in pipeline
    order.
    """
    out = []
    for family in FAMILIES:
        where = _code_of(family)
        out += [(family.name, row.name, row.text, where[row.name], row.needed or "-") for row in family.rows.values()]
    return tuple(out)


def _code_of(family: Family) -> dict[str, str]:
    """Return {rule name: text with the file and the functions in which the name occurs as a string}."""
    found: dict[str, str] = {}
    for module in family.module.split():
        file = Path(module.replace(".", "/")).with_suffix(".py")
        tree = ast.parse((Path(monolect.__file__).parent.parent / file).read_text(encoding="utf-8"))
        functions = [*_words(tree)]
        for name in family.rows:
            users = [f for f, words in functions if name in words]
            if users:
                found[name] = "; ".join(filter(None, (found.get(name), f"{file.as_posix()} {', '.join(users)}")))
    found = {name: found.get(name, family.module.replace(".", "/") + ".py") for name in family.rows}
    return found | {d.name: f"{_file(d.rewrite)} {d.rewrite.__name__}" for ds in DECOMPOSE.values() for d in ds}


def _file(f: object) -> str:
    return str(f.__module__).replace(".", "/") + ".py"


def _words(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Yield the name and the string constants of each function."""
    for f in ast.walk(tree):
        if isinstance(f, ast.FunctionDef):
            yield f.name, {x.value for x in ast.walk(f) if isinstance(x, ast.Constant) and isinstance(x.value, str)}


__all__ = ["LAYERS", "ROOT", "RULES_HEADER", "find", "modules", "rules"]
