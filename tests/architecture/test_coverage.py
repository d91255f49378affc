"""docs/coverage.md: each row names tests that prove it, and they exist, or says `not yet` and what is missing."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/coverage.md"
NAMED = re.compile(r"`(tests/[\w/.-]+\.py)::(\w+)`")
GROUPS = 23, 17, 17, 15  # rows of the tables A to D: none may be lost


@cache
def functions(file: str) -> frozenset[str]:
    path = ROOT / file
    if not path.exists():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))


def tables(text: str) -> list[list[list[str]]]:
    """The cells of each table of the page, without its header."""
    out: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")] if line.startswith("|") else []
        if not cells:
            inside = False
        elif set(line) <= set("|- "):
            out.append([])
            inside = True
        elif inside:
            out[-1].append(cells)
    return out


def problems(cells: list[str]) -> list[str]:
    """What is wrong with a row: the last cell holds its proof."""
    proof = cells[-1]
    found = NAMED.findall(proof)
    out = [f"no such test: {file}::{name}" for file, name in found if name not in functions(file)]
    if not found and "not yet" not in proof:
        out.append("neither a test nor `not yet`")
    if re.fullmatch(r"not yet[.:]?", proof):
        out.append("`not yet` without what is missing")
    return out


TABLES = tables(PAGE.read_text(encoding="utf-8"))
ROWS = [(name, cells) for name, table in zip("ABCD", TABLES, strict=True) for cells in table]


@pytest.mark.parametrize(("table", "cells"), ROWS, ids=[f"{name}: {cells[0][:40]}" for name, cells in ROWS])
def test_each_row_is_proven_or_says_what_is_missing(table, cells):
    assert problems(cells) == []


def test_no_row_is_lost():
    assert tuple(map(len, TABLES)) == GROUPS
    assert all(len(cells) == 3 for _, cells in ROWS), "three cells a row"


def test_the_check_finds_what_is_planted():
    here = "tests/architecture/test_coverage.py"
    assert problems(["x", "y", f"`{here}::test_no_row_is_lost`"]) == []
    assert problems(["x", "y", f"`{here}::test_that_is_not_there`"]) != []
    assert problems(["x", "y", "`tests/absent.py::test_x`"]) != []
    assert problems(["x", "y", "done"]) != [] and problems(["x", "y", "not yet"]) != []
    assert problems(["x", "y", "not yet: needs a second device"]) == []
