"""Names of C and texts in its comments, out of names and texts of the user's.

Invariant: a name is an identifier of C and C++ that no header, no keyword and no other name of the program has,
whatever it is made from; a text ends no comment and begins no line.
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
LONGEST = 48  # characters of a name that is made from a text


class Names:
    """The names of one program, each given once."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self.taken = {*taken}

    def new(self, text: str, instead: str = "x") -> str:
        """A name like `text`; like `instead` where that has no letter."""
        name = identifier(text, instead)
        n, first = 1, name
        while name in self.taken:
            n += 1
            name = f"{first}x{n}" if first.endswith("_") else f"{first}_{n}"
        self.taken.add(name)
        return name


def identifier(text: str, instead: str = "x") -> str:
    """An identifier like `text`. Those with capitals alone are names of macros, those with two low lines in a row of
    the compiler: neither is given.
    """
    name = re.sub(r"[^A-Za-z0-9]+", "_", text)[:LONGEST].strip("_")
    if not re.search(r"[A-Za-z]", name):
        name = f"{instead}_{name}".rstrip("_")
    if name[0].isdigit():
        name = f"{instead}_{name}"
    if name in KEYWORDS or not re.search(r"[a-z]", name) or re.fullmatch(r"u?int[0-9a-z_]*_t|[fiu]\d+.*", name):
        name += "_"
    return name


def comment(text: str) -> str:
    """A text as part of a comment of one line, in ASCII."""
    text = "".join(c if c.isascii() and c.isprintable() and c not in "\\?" else "." for c in text)
    return text.replace("*/", "* /").replace("/*", "/ *").strip()


__all__ = ["Names", "comment", "identifier"]
