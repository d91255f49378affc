"""List every rule and action that has a name, its meaning, and the code that applies it: `monolect rules`.

The function that applies a rule is found in the source by the rule's name.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import monolect
from monolect.ir.rewrite.named_rules import Family
from monolect.pipeline import FAMILIES
from monolect.rules.decompose import DECOMPOSE

HEADER = ("family", "name", "meaning", "where", "cannot be switched off because")


@cache
def rules() -> tuple[tuple[str, str, str, str, str], ...]:
    """Return the rows (family, name, meaning, code, reason why it is not optional) of all families, in pipeline
    order.
    """
    out = []
    for family in FAMILIES:
        where = _where(family)
        out += [(family.name, row.name, row.text, where[row.name], row.needed or "-") for row in family.rows.values()]
    return tuple(out)


def _where(family: Family) -> dict[str, str]:
    """Return {rule name: text with the file and the functions in which the name occurs as a string}."""
    found: dict[str, str] = {}
    for module in family.module.split():
        file = Path(module.replace(".", "/")).with_suffix(".py")
        tree = ast.parse((Path(monolect.__file__).parent.parent / file).read_text(encoding="utf-8"))
        for name in family.rows:
            users = [f for f, words in _words(tree) if name in words]
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


__all__ = ["HEADER", "rules"]
