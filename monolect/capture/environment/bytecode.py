"""What the code of a function names: attributes, variables, modules; by its instructions, for sources may be gone.

What it is for: `capture/environment/dependencies.py` looks at what stands under these names, and under no others.
Invariant: what code can reach without one of these names it reaches through what has no name: the items of containers.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Sequence
from typing import Any

# which argument is the name; -1: the last
_BY_NAME = {"getattr": 1, "hasattr": 1, "attrgetter": 0, "methodcaller": 0, "__getattribute__": -1, "getattr_static": 1}
_TOLD = frozenset((*_BY_NAME, "setattr", "delattr", "__getattribute__", "getattr_static"))
_OF_MODULES = frozenset(("import_module", "__import__", "modules"))  # what is told the name of one
_OF_ALL = frozenset(("globals", "locals", "eval", "exec"))  # and those for which any text may be one
# functions and methods that read attributes whose names the code does not show
_OF_ANY = frozenset(("eval", "exec", "format", "format_map", "getmembers"))
ANY = "*"  # in place of a name that the code computes
ABSENT = "?"  # among attributes: the code may ask for one that is not there, and go on


@functools.lru_cache(4096)
def names_in(code: types.CodeType) -> tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]:
    """What a function names, and all that is defined inside it: attributes, global variables, modules it imports.

    Attributes that need not be there, what is stored and texts beside `getattr`, stand there with a question mark, too;
    ABSENT where code catches exceptions, or leaves a block that may, or asks for attributes by text.
    ANY stands for a computed name, of an attribute of an object or its class; `__dict__` for all of an object's own;
    `__class__` where code may make another object of the class. A module's name begins with a dot for each package up.
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
            elif step.opname == "POP_EXCEPT":
                attributes.add(ABSENT)
            elif step.opname == "MATCH_CLASS":  # after a tuple of names; others are those of `__match_args__`
                attributes.update(steps[at - 1].argval, (ANY, "__dict__") * bool(step.arg))
            elif step.opname == "LOAD_DEREF" and step.argval == "__class__":
                if not any(s.opname.startswith("LOAD_SUPER") for s in steps[at + 1 : at + 3]):  # as of Python 3.12
                    attributes.add("__class__")
            elif step.opname == "IMPORT_NAME":
                up = "." * steps[at - 2].argval  # so many packages up; after it comes which names are wanted
                modules |= dict.fromkeys((up + step.argval, up or step.argval.partition(".")[0]))
            if step.argval in _BY_NAME and not _says_the_name(steps[at + 1 :], _BY_NAME[step.argval]):
                attributes |= {ANY, "__dict__"}
    if not _OF_ANY.isdisjoint(variables.keys() - {"format"}) or not _OF_ANY.isdisjoint(attributes):
        attributes |= {ANY, "__dict__"}
    if not {"vars", "dir"}.isdisjoint(variables) or not {"__getstate__", "__dir__"}.isdisjoint(attributes):
        attributes.add("__dict__")
    if not {"type", "eval", "exec"}.isdisjoint(variables):
        attributes.add("__class__")
    if not _TOLD.isdisjoint(variables) or not _TOLD.isdisjoint(attributes):
        absent |= texts.union(*(k.split(".") for k in dotted))
        attributes.add(ABSENT)
    if not _OF_MODULES.isdisjoint(variables) or not _OF_MODULES.isdisjoint(attributes):
        modules |= dict.fromkeys(sorted(dotted))
    if not variables.keys().isdisjoint(_OF_ALL):
        variables |= dict.fromkeys(sorted(texts))
    attributes |= absent.union(f"?{name}" for name in absent)
    return frozenset(attributes), tuple(variables), tuple(modules)


def _says_the_name(steps: Sequence[dis.Instruction], first: int) -> bool:
    """Whether what follows a function is a call of it whose argument number `first` is a text, and, if that is the
    first one, the others too.
    """
    loads: list[Any] = []
    for step in steps:
        if step.opname in ("CALL", "CALL_FUNCTION"):
            args = loads[len(loads) - (step.arg or 0) :]
            told = args[first:][:1] if first else args
            return len(args) > first and len(args) == step.arg and all(isinstance(x, str) for x in told)
        if step.opname.startswith("LOAD_") and not step.opname.endswith(("_ATTR", "_METHOD")):
            loads.append(step.argval if step.opname == "LOAD_CONST" else None)
        elif not step.opname.endswith(("_ATTR", "PRECALL", "CACHE", "PUSH_NULL", "NOP")):
            return False  # anything that computes
    return False


def parameters(function: Any) -> tuple[str, ...]:
    """The names of a function's arguments, those by keyword alone last; () for a callable without Python code."""
    code = getattr(function, "__code__", None)
    return () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


@functools.cache
def names_of_module(module: str) -> frozenset[str]:
    """Every name and text in the code of a module, its functions included; none where the code is not at hand."""
    loader: Any = getattr(sys.modules[module], "__loader__", None)
    codes = [loader.get_code(module)] if hasattr(loader, "get_code") else []
    found: set[str] = set()
    for code in filter(None, codes):
        parts = [x for k in code.co_consts for x in (k if isinstance(k, tuple) else (k,))]
        found.update(code.co_names, (x for x in parts if isinstance(x, str)))
        codes.extend(k for k in code.co_consts if isinstance(k, types.CodeType))
    return frozenset(found)


__all__ = ["ABSENT", "ANY", "names_in", "names_of_module", "parameters"]
