"""Make C identifiers and comment texts from names and texts of the user.

Invariant: a name is an identifier of C and C++ that differs from every keyword, macro of a header and other name of the
program. A text cannot end its comment and contains no line break.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register"
    " restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm typeof"
    " alignas alignof and and_eq bitand bitor bool catch class compl concept const_cast consteval constexpr constinit"
    " co_await co_return co_yield decltype delete dynamic_cast explicit export false friend mutable namespace new"
    " noexcept not not_eq nullptr operator or or_eq private protected public reinterpret_cast requires static_assert"
    " static_cast template this thread_local throw true try typeid typename using virtual wchar_t xor xor_eq"
    " linux unix i386 errno stdin stdout stderr assert main offsetof".split()
)
MAX_NAME = 48  # characters of an identifier; a longer text is cut


class Names:
    """Hand out the identifiers of one program, each once."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self.taken = {*taken}

    def new(self, text: str, instead: str = "x") -> str:
        """Return an unused identifier like `text`, or like `instead` if `text` has no letter."""
        name = identifier(text, instead)
        n, first = 1, name
        while name in self.taken:
            n += 1
            name = f"{first}x{n}" if first.endswith("_") else f"{first}_{n}"
        self.taken.add(name)
        return name


def identifier(text: str, instead: str = "x") -> str:
    """Return an identifier like `text`.

    It never consists of capitals only, as macros do, and never has two underscores in a row, which compilers reserve.
    """
    name = re.sub(r"[^A-Za-z0-9]+", "_", text)[:MAX_NAME].strip("_")
    if not re.search(r"[A-Za-z]", name):
        name = f"{instead}_{name}".rstrip("_")
    if name[0].isdigit():
        name = f"{instead}_{name}"
    if name in KEYWORDS or not re.search(r"[a-z]", name) or re.fullmatch(r"u?int[0-9a-z_]*_t|[fiu]\d+.*", name):
        name += "_"
    return name


def comment(text: str) -> str:
    """Return `text` made safe for a one-line C comment: printable ASCII without comment marks, backslash and `?`."""
    text = "".join(c if c.isascii() and c.isprintable() and c not in "\\?" else "." for c in text)
    return text.replace("*/", "* /").replace("/*", "/ *").strip()


__all__ = ["Names", "comment", "identifier"]
