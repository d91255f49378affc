"""List PyTorch's dense names, and which of them monolect has: `monolect torch-parity`.

What it is for: a name is present if it exists here now; the page names a test file in which it occurs. An absent name
has the hint of `base/absent.py`, or says that it is not there yet.
What it is not: it does not import PyTorch. The names are stored in `torch_names`. It does not measure what a test
covers: the sweep over PyTorch's samples (`tests/fuzz/test_opinfo.py`) does.
"""

import argparse
import inspect
import re
from functools import cache
from typing import Any

import monolect
from monolect import Tensor
from monolect.base.absent import ABSENT
from monolect.base.dtype import dtypes
from monolect.cli.surface.generate import NOT_IN_PLACE, PACKAGE
from monolect.cli.surface.torch_names import NAMES

NOT_YET = "not yet"
TESTS = PACKAGE.parent / "tests"
GENERATED = "unit/test_surface.py"  # the test file that compares each generated in-place method with PyTorch's
# Tests that compare methods with PyTorch, in the order in which a name is looked for.
FILES = (
    *(f"unit/test_surface_{x}.py" for x in ("arrangement", "made", "selection", "special", "statistics")),
    *(f"unit/test_tensor_{x}.py" for x in ("elementwise", "index", "movement", "order", "reduce", "sort")),
    *(f"unit/test_{x}.py" for x in ("surface", "linalg", "conv", "loss", "nn", "network", "random", "distributions")),
    *(f"unit/test_{x}.py" for x in ("save_load", "training_tools", "module_tools", "func", "pruned_and_parametrized")),
    "unit/test_tensor_core.py",
    "fuzz/test_views.py",
    "fuzz/edge_rows_of_axes.py",
    "fuzz/edge_rows_of_values.py",
)
SYMBOLS = "used in tests as an operator or by a function of Python"
UNNAMED = "no test has its name"


def _space(name: str) -> Any:
    """Return the object that has the names of the namespace `name`, or None if there is none."""
    known = {"Tensor": Tensor, "Tensor in place": Tensor, "operators of Tensor": Tensor, "monolect": monolect}
    if name in known:
        return known[name]
    if name == "dtypes":
        return dtypes
    owner: Any = monolect
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return owner


@cache
def _words(file: str) -> frozenset[str]:
    path = TESTS / file
    return frozenset(re.findall(r"\w+", path.read_text(encoding="utf-8"))) if path.exists() else frozenset()


def _test_of(space: Any, name: str) -> str:
    """Return the first file of FILES with the word `name`; for a function or an alias, that with the method's name."""
    value = getattr(space, name)
    if name.endswith("_") and not name.startswith("_") and space is Tensor and name not in NOT_IN_PLACE:
        return GENERATED
    own = getattr(inspect.unwrap(value) if callable(value) else value, "__name__", name)
    for n in dict.fromkeys((name, own)):
        for file in FILES:
            if n in _words(file):
                return file
    return SYMBOLS if name.startswith("__") else UNNAMED


def _is_package(space: Any, value: Any) -> bool:
    """Whether `value` in `space` is a package of monolect that has the name of a function of PyTorch and is none."""
    return space is monolect and inspect.ismodule(value) and not callable(value)


def rows(name: str) -> list[tuple[str, bool, str]]:
    """Return (name, whether it is present, its test or why it is absent) for the names of a namespace."""
    space, out = _space(name), []
    others = ABSENT["monolect"].get(name, NOT_YET)  # of a namespace that is absent as a whole
    reasons = ABSENT.get({"Tensor in place": "Tensor", "operators of Tensor": "Tensor"}.get(name, name), {})
    for n in NAMES[name]:
        is_present = space is not None and hasattr(space, n) and not _is_package(space, getattr(space, n))
        out.append((n, is_present, _test_of(space, n) if is_present else reasons.get(n, others)))
    return out


def page() -> str:
    """Return the page of the reference."""
    lines = [
        "# Names of PyTorch",
        "",
        "Written by `make docs`. Dense names of PyTorch 2.13, and what monolect has of them. `monolect torch-parity`",
        "prints a line for each. Left out are sparse, quantised, nested and named tensors, storages, and what PyTorch",
        "keeps private. Each group of present names says in which test file they occur.",
        "",
        "| namespace | present | absent |",
        "| --- | --- | --- |",
    ]
    found = {name: rows(name) for name in NAMES}
    for name, of_it in found.items():
        present = sum(p for _, p, _ in of_it)
        lines.append(f"| {name} | {present} | {len(of_it) - present} |")
    for name, of_it in found.items():
        lines += ["", f"## {name}"]
        groups: dict[tuple[bool, str], list[str]] = {}
        for n, is_present, text in of_it:
            groups.setdefault((not is_present, text), []).append(n)
        for (is_absent, text), names in sorted(groups.items()):
            label = (
                f"Absent: {text}"
                if is_absent
                else "Present, " + (text if text in (UNNAMED, SYMBOLS) else f"named in `tests/{text}`")
            )
            lines += ["", f"{label}: " + ", ".join(f"`{n}`" for n in names)]
    return "\n".join(lines)


def add_options(parser: argparse.ArgumentParser, title: str) -> None:
    """Add the options of `monolect torch-parity`."""
    parser.add_argument("--markdown", action="store_true", help="print the page of the reference")


def command(options: argparse.Namespace) -> None:
    """Print the page, or a line for each name."""
    if options.markdown:
        print(page())
        return
    for name in NAMES:
        for n, is_present, text in rows(name):
            print(f"{name:20}  {n:32}  {'present' if is_present else 'absent':7}  {text}")


__all__ = ["add_options", "command", "page", "rows"]
