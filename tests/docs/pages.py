"""Run the Python of a documentation page: `python tests/docs/pages.py PAGE.md`.

All ```python blocks of a page share one namespace, in order. A block with `>>>` is a doctest: what it prints is
compared. Any other block is run, and its asserts are what it shows. A failure names the page and the line.
"""

import doctest
import re
import sys
from pathlib import Path
from textwrap import dedent

BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(text: str) -> list[tuple[int, str]]:
    """(line of the first statement, source) of each block."""
    return [(text.count("\n", 0, m.start(2)) + 1, dedent(m[2])) for m in BLOCK.finditer(text)]


def run_page(path: Path) -> int:
    """Run the blocks of `path`; the number of examples that failed. Exceptions of plain blocks are passed on."""
    names: dict[str, object] = {"__name__": "__page__"}
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    parser = doctest.DocTestParser()
    for line, source in blocks(path.read_text(encoding="utf-8")):
        if ">>> " in source:
            test = parser.get_doctest(source, names, path.name, str(path), line - 1)
            runner.run(test, clear_globs=False)
            names = test.globs
        else:
            exec(compile("\n" * (line - 1) + source, str(path), "exec"), names)
    return runner.failures


if __name__ == "__main__":
    sys.exit(min(1, sum(run_page(Path(page)) for page in sys.argv[1:])))
