"""Format the first error of a compiler as one message: the line number, the reason and the text of that line.

What it is for: compilers of source text, each with its own format of line numbers. What it does not do: raise.
"""

from __future__ import annotations

import re

CLANG = r"<stdin>:(\d+):(?:\d+:)? (?:fatal )?error: ([^\n]*)"  # matches errors of Clang and of GCC
NVRTC = r"kernel\.cu\((\d+)\): (?:catastrophic )?error: ([^\n]*)"
MAX_MESSAGE_CHARS = 2000  # characters; a longer message in which no pattern is found is cut


def compiler_message(compiler: str, message: str, source: str, pattern: str) -> str:
    """Return the text of an error: the compiler's name, and the first match of `pattern` in its `message`.

    The groups of `pattern` are the line number in `source` and the reason. Without a match the text has all of
    `message`, up to MAX_MESSAGE_CHARS.
    Example: `compiler_message("cc", "<stdin>:1:1: error: no", "a", CLANG)` is "cc refused the program at line 1: no"
    and the line "a".
    """
    found = re.search(pattern, message)
    if not found:
        return f"{compiler} refused the program: {message.strip()[:MAX_MESSAGE_CHARS]}"
    number, lines = int(found[1]), source.splitlines()
    text = lines[number - 1] if 0 < number <= len(lines) else ""
    return f"{compiler} refused the program at line {number}: {found[2]}\n{text}"


__all__ = ["CLANG", "NVRTC", "compiler_message"]
