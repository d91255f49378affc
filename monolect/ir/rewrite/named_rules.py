"""Register named rewrite rules that are plain code, switch them off, and report when one fires.

What it is for: a module of such rules has a `Family` of rows. Its code calls `is_on(name)` before it applies a rule,
and passes the result through `fired`. So `DISABLE`, `TRACE=rules` and tests work as they do for patterns
(`ir.rewrite.pattern`), which need no such calls.
What it is not: the rules themselves or their order.

Invariant: a name is in one row of one family. Without a listener `fired` costs one comparison.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from monolect.base.errors import InternalError
from monolect.base.settings import settings, watchers
from monolect.ir.uop import UOp

T = TypeVar("T")
Callback = Callable[[str, Any, Any], None]


class Row(NamedTuple):
    """A rule that is plain code: its name, its text (a sentence or formula for people), and `needed`, the reason why it
    cannot be switched off ("" if it can).
    """

    name: str
    text: str
    needed: str = ""


class Family:
    """A named group of rules that are plain code; `rows` maps the name of each rule to its Row.

    `module`: names, separated by spaces, of the modules that apply the rules. Raises InternalError for a name that is
    used twice. It is for rules that are not patterns: `is_on` and `fired` refer to a rule by its name in `rows`.
    """

    def __init__(self, name: str, module: str, *rows: Row):
        self.name, self.module = name, module
        self.rows = {row.name: row for row in rows}
        if len(self.rows) != len(rows):
            raise InternalError(f"family {name}: a name used twice", expected="unique names", found=[*self.rows])


class Listener:
    """A holder of `callback(rule name, before, after)`, which is called for each rule that fires; None if nothing
    listens.
    The only instance is `listener`; `fired` calls the callback.
    """

    callback: Callback | None = None


listener = Listener()


def is_on(name: str) -> bool:
    """Whether the rule `name` is switched on: the setting DISABLE does not name it."""
    return name not in settings.disabled


def fired(name: str, before: UOp, after: T) -> T:
    """Report to the listener that rule `name` turned node `before` into `after`, and return `after`."""
    if listener.callback is not None:
        listener.callback(name, before, after)
    return after


@contextmanager
def recorded() -> Iterator[list[tuple[str, Any, Any]]]:
    """Yield a list to which each rule that fires in the `with` block appends (rule name, node before, node after)."""
    found: list[tuple[str, Any, Any]] = []
    before, listener.callback = listener.callback, lambda *what: found.append(what)
    _tell()
    try:
        yield found
    finally:
        listener.callback = before
        _tell()


def _tell() -> None:
    """Call `watchers`, the functions that run when settings change, because some of them also depend on the
    listener.
    """
    for watcher in watchers:
        watcher()


_printed: set[str] = set()


def _print(name: str, before: Any, after: Any) -> None:
    """Print that rule `name` turned `before` into `after`. A line is printed only once, because passes rebuild the same
    nodes.
    """
    from monolect.ir.pseudocode import brief  # imported only to print

    left, right = (brief(u) if isinstance(u, UOp) else str(u) for u in (before, after))
    text = f"       rule {name}: {left}  =>  {right}"
    if text not in _printed:
        _printed.add(text)
        print(text, file=sys.stderr)


def _follow_trace() -> None:
    """Make `_print` the listener if the setting TRACE has the word "rules" and there is no other listener; otherwise
    stop `_print` from listening.
    """
    if "rules" in settings.tracing:
        if listener.callback is None:
            _printed.clear()
            listener.callback = _print
    elif listener.callback is _print:
        listener.callback = None


watchers.insert(0, _follow_trace)
_follow_trace()


__all__ = ["Family", "Listener", "Row", "fired", "is_on", "listener", "recorded"]
