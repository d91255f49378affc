"""Plain technical English: stiff words in names and first sentences, and sentences that begin with a headless What."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "monolect"
FOLDERS = sorted({str(f.parent.relative_to(PACKAGE)) for f in PACKAGE.rglob("*.py")})
NAMES = frozenset(
    "place places placed beside besides stand stands standing anew seldom lonely dear nobody somebody whoever"
    " lie lies lain asks asked gone coming woven".split()
)
STIFF = (
    "places? beside stands? standing stood anew seldom lonely nobody somebody whoever lies? so\\smany in\\sturns dear"
    " mend(?:s|ed)?"
)
PROSE = re.compile(rf"\b({'|'.join(STIFF.split())})\b")
FINE = re.compile(r"\b(in[- ]place|decimal places?|(?:binary|last) places?|takes? place|placeholders?|stand-ins?)\b")
HEADLESS = re.compile(r"(?:^|[.:;!?]\s+)(What|Which|Who|Whose)\b")
FRAME = re.compile(r"\bWhat (?:it|this) (?:is|does|says)(?: not)?(?: for| do)?:")  # labels of a module's docstring


def first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:])\s", " ".join(text.partition("\n\n")[0].split()), maxsplit=1)[0]


def stiff_name(name: str) -> set[str]:
    """The stiff words of an identifier in lower case or in capitals."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
    return set() if "in_place" in "_".join(words) else NAMES.intersection(words)


def defined(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Names that a module of these nodes defines: functions, classes, arguments, variables, attributes of self."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def prose(source: str, nodes: list[ast.AST]) -> Iterator[tuple[int, str, bool]]:
    """(line, text, is it a docstring) of docstrings and runs of comments."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield node.body[0].lineno, text, True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# ----", "# noqa", "# fmt", "# type")):
            yield token.start[0], token.string.lstrip("# "), False


def faults(source: str) -> list[str]:
    """What a source says in stiff words, a line each."""
    nodes = [*ast.walk(ast.parse(source))]
    found = [f"{line}: name {name}" for line, name in defined(nodes) if stiff_name(name)]
    for line, text, is_doc in prose(source, nodes):
        head = FINE.sub("", first_sentence(text) if is_doc else text)
        if word := PROSE.search(head):
            found.append(f"{line}: {word.group(0)!r} in: {head[:90]}")
        plain = " ".join(FRAME.sub("", re.sub(r"`[^`]*`|\"[^\"]*\"", "x", text)).split())
        if HEADLESS.search(plain):
            found.append(f"{line}: a headless sentence in: {text[:90]!r}")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_stay_plain(folder: str) -> None:
    for path in sorted((PACKAGE / folder).glob("*.py")):
        assert not faults(path.read_text(encoding="utf-8")), path.name


def test_the_check_finds_what_is_planted() -> None:
    planted = """
def place_of(x):
    '''Where it stands.'''

def f(beside):
    '''Fine. Which of them do so first.'''
"""
    assert len(faults(planted)) == 4
    plain = """'''Guards.

What it is not: a cache. What it does: it checks.'''

PLACEHOLDER = 1  # updated in place
"""
    assert not faults(plain)
