"""What a compiler complained about, as one message: which line, why, and the text of the line.

What it is for: compilers of source text, each with its own way to write a place. What it does not do: raise.
"""

from __future__ import annotations

import re

CLANG = r"<stdin>:(\d+):(?:\d+:)? (?:fatal )?error: ([^\n]*)"  # and GCC's
NVRTC = r"kernel\.cu\((\d+)\): (?:catastrophic )?error: ([^\n]*)"
LONGEST_MESSAGE = 2000


def complaint(compiler: str, message: str, source: str, place: str) -> str:
    """The first error that the pattern `place` finds in the compiler's message: groups are the line and the reason.
    Example: `complaint("cc", "<stdin>:1:1: error: no", "a", CLANG)` is "cc refused the program at line 1: no" and "a".
    """
    found = re.search(place, message)
    if not found:
        return f"{compiler} refused the program: {message.strip()[:LONGEST_MESSAGE]}"
    number, lines = int(found[1]), source.splitlines()
    text = lines[number - 1] if 0 < number <= len(lines) else ""
    return f"{compiler} refused the program at line {number}: {found[2]}\n{text}"
