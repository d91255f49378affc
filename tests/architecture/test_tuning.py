"""The numbers by which actions are chosen are in one table, or are facts of a target."""

import ast
from pathlib import Path

import pytest

from monolect.optimize import tuning

ROOT = Path(tuning.__file__).parent
# Rules of legality, and search: their numbers are not the heuristic's. Everything in actions/ is allowed.
ALLOWED = {"tuning.py", "apply.py", "search/beam.py"}
FILES = sorted(p for p in ROOT.rglob("*.py") if "actions" not in p.parts)


def numbers(tree: ast.Module) -> list[str]:
    """The module and class constants whose value holds a number."""
    scopes = [tree, *(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))]
    out = []
    for line in [line for scope in scopes for line in scope.body if isinstance(line, ast.Assign | ast.AnnAssign)]:
        targets = line.targets if isinstance(line, ast.Assign) else [line.target]
        names = [t.id for t in targets if isinstance(t, ast.Name) and t.id.isupper()]
        values = [v.value for v in ast.walk(line) if isinstance(v, ast.Constant)]
        out += names if any(isinstance(v, int | float) and not isinstance(v, bool) for v in values) else []
    return out


@pytest.mark.parametrize("file", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_numeric_constants_outside_the_table(file):
    found = numbers(ast.parse(file.read_text(encoding="utf-8")))
    if str(file.relative_to(ROOT)) not in ALLOWED:
        assert found == [], "monolect/optimize/tuning.py has the numbers, base/target.py the facts of machines"


def test_files_that_need_no_permission_have_none():
    assert all(numbers(ast.parse((ROOT / name).read_text(encoding="utf-8"))) for name in ALLOWED)


def test_each_row_is_the_constant_of_its_name():
    for name, constant in tuning.TABLE.items():
        assert getattr(tuning, name) is constant.value, name
        assert constant.name == name and constant.unit and constant.why and constant.measured


def test_each_constant_is_read():
    trees = [ast.parse(p.read_text(encoding="utf-8")) for p in FILES if p.name != "tuning.py"]
    read = {n.id for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Name)}
    assert [name for name in tuning.TABLE if name not in read] == []
