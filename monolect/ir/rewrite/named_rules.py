"""Rows of named rules, whether each is on, and who hears when one fires.

Purpose: rules that are code. Next to the code there is a `Family` of rows; the code asks `is_on(name)` before it
applies a rule and hands its result through `fired`, so that `DISABLE`, `TRACE=rules` and tests see what patterns show
by themselves (`ir.rewrite.pattern`). The rules themselves, and their order, are elsewhere.

Invariant: a name is in one row of one family; while nobody listens `fired` costs one comparison.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from monolect.base.errors import InternalError
from monolect.base.settings import settings, watchers
from monolect.ir.uop import UOp

T = TypeVar("T")
Heard = Callable[[str, Any, Any], None]


class Row(NamedTuple):
    """One rule: its name, a plain sentence or formula, and why it cannot be switched off, "" where it can."""

    name: str
    text: str
    needed: str = ""


class Family:
    """The rows of one kind of rule, which the module `module` applies. Raises InternalError for a name used twice."""

    def __init__(self, name: str, module: str, *rows: Row):
        self.name, self.module = name, module
        self.rows = {row.name: row for row in rows}
        if len(self.rows) != len(rows):
            raise InternalError(f"family {name}: a name used twice", expected="unique names", found=[*self.rows])


class Listening:
    """`heard(name, before, after)` is told of each rule that fires; None: nobody is."""

    heard: Heard | None = None


listening = Listening()


def is_on(name: str) -> bool:
    """Whether DISABLE leaves this rule on."""
    return name not in settings.disabled


def fired(name: str, before: UOp, after: T) -> T:
    """`after`, which the rule made of `before`: told to who listens."""
    if listening.heard is not None:
        listening.heard(name, before, after)
    return after


@contextmanager
def recorded() -> Iterator[list[tuple[str, Any, Any]]]:
    """A list of (name, before, after) of each rule that fires in the block."""
    found: list[tuple[str, Any, Any]] = []
    before, listening.heard = listening.heard, lambda *what: found.append(what)
    _tell()
    try:
        yield found
    finally:
        listening.heard = before
        _tell()


def _tell() -> None:
    for watcher in watchers:
        watcher()


_printed: set[str] = set()


def _print(name: str, before: Any, after: Any) -> None:
    """One line for each distinct firing: nodes are built again by every pass that changes what is below them."""
    brief = import_module("monolect.ir.pseudocode").brief  # only who looks needs it
    left, right = (brief(u) if isinstance(u, UOp) else str(u) for u in (before, after))
    text = f"       rule {name}: {left}  =>  {right}"
    if text not in _printed:
        _printed.add(text)
        print(text, file=sys.stderr)


def _follow_trace() -> None:
    """Print where TRACE=rules asks for it, unless somebody else listens."""
    if "rules" in settings.tracing:
        if listening.heard is None:
            _printed.clear()
            listening.heard = _print
    elif listening.heard is _print:
        listening.heard = None


watchers.insert(0, _follow_trace)
_follow_trace()
