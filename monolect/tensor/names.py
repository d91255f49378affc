"""What the code of a function names: attributes, variables, modules; by its instructions, for sources may be gone.

What it is for: `tensor/reach.py` looks at what stands under these names, and under no others.
Invariant: what code can reach without one of these names it reaches through what has no name: the items of containers.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Sequence
from typing import Any

_BY_NAME = ("getattr", "hasattr")  # functions that are told a name
_TOLD = frozenset((*_BY_NAME, "setattr", "__getattribute__"))  # and methods
_OF_MODULES = frozenset(("import_module", "__import__", "modules"))  # what is told the name of one
_OF_ALL = frozenset(("globals", "locals", "eval", "exec"))  # and those for which any text may be one


@functools.lru_cache(4096)
def names_in(code: types.CodeType) -> tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]:
    """What a function names, and all that is defined inside it: attributes, global variables, modules it imports.

    Attributes that need not be there, what is stored and texts beside `getattr`, stand there with a question mark, too.
    Where a name is computed, `__dict__` stands for all of them. A module's name begins with a dot for each package up.
    """
    attributes: set[str] = set()
    texts: set[str] = set()
    absent: set[str] = set()
    variables: dict[str, None] = {}
    modules: dict[str, None] = {}
    dotted: set[str] = set()
    codes: list[types.CodeType] = [code]
    for c in codes:
        codes.extend(k for k in c.co_consts if isinstance(k, types.CodeType))
        texts.update(k for k in c.co_consts if isinstance(k, str) and k.isidentifier())
        dotted.update(k for k in c.co_consts if isinstance(k, str) and all(map(str.isidentifier, k.split("."))))
        steps = [*dis.get_instructions(c)]
        for at, step in enumerate(steps):
            if step.opname.endswith(("_ATTR", "_METHOD", "IMPORT_FROM")):
                (absent if step.opname == "STORE_ATTR" else attributes).add(step.argval)
            elif step.opname.endswith(("_GLOBAL", "_NAME")) and not step.opname.startswith("IMPORT"):
                variables[step.argval] = None
                if step.argval in _BY_NAME and not _says_the_name(steps[at + 1 :]):
                    attributes.add("__dict__")
            elif step.opname == "IMPORT_NAME":
                up = "." * steps[at - 2].argval  # so many packages up; after it comes which names are wanted
                modules |= dict.fromkeys((up + step.argval, up or step.argval.partition(".")[0]))
    if "vars" in variables:
        attributes.add("__dict__")
    if not _TOLD.isdisjoint(variables) or not _TOLD.isdisjoint(attributes):
        absent |= texts
    if not _OF_MODULES.isdisjoint(variables) or not _OF_MODULES.isdisjoint(attributes):
        modules |= dict.fromkeys(sorted(dotted))
    if not variables.keys().isdisjoint(_OF_ALL):
        variables |= dict.fromkeys(sorted(texts))
    attributes |= absent.union(f"?{name}" for name in absent)
    return frozenset(attributes), tuple(variables), tuple(modules)


def _says_the_name(steps: Sequence[dis.Instruction]) -> bool:
    """Whether what follows the name of `getattr` is a call of it whose second argument is a text."""
    loads: list[Any] = []
    for step in steps:
        if step.opname in ("CALL", "CALL_FUNCTION"):
            at = len(loads) - (step.arg or 0) + 1
            return step.arg in (2, 3) and at > 0 and isinstance(loads[at], str)
        if step.opname.startswith("LOAD_") and not step.opname.endswith(("_ATTR", "_METHOD")):
            loads.append(step.argval if step.opname == "LOAD_CONST" else None)
        elif not step.opname.endswith(("_ATTR", "PRECALL", "CACHE", "PUSH_NULL", "NOP")):
            return False  # anything that computes
    return False


__all__ = ["names_in"]
