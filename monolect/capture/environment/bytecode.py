"""List the names in the code of a function: attributes, variables, modules. The names are read from bytecode, because
source text may be missing.

What it is for: `capture/environment/dependencies.py` follows these names, and no others.
Invariant: a value that code can reach without one of these names is an item of a container.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Sequence
from importlib import import_module
from typing import Any

# functions that take the name of an attribute: index of that argument; -1: the last
_BY_NAME = {"getattr": 1, "hasattr": 1, "attrgetter": 0, "methodcaller": 0, "__getattribute__": -1, "getattr_static": 1}
_BY_TEXT = frozenset((*_BY_NAME, "setattr", "delattr", "__getattribute__", "getattr_static"))
_IMPORTERS = frozenset(("import_module", "__import__", "modules"))  # names of modules are texts in code that uses these
_GLOBAL_READERS = frozenset(("globals", "locals", "eval", "exec"))  # any text may name a variable in code with these
# functions and methods that read attributes whose names are not in the code
_ANY_READERS = frozenset(("eval", "exec", "format", "format_map", "getmembers"))
ANY = "*"  # an attribute name that the code computes
ABSENT = "?"  # among attributes: the code may read one that is missing, and continue


@functools.lru_cache(4096)
def names_in(code: types.CodeType) -> tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]:
    """Return (names of attributes, names of global variables, names of imported modules) in `code` and in the functions
    nested in it.

    Attributes that may be missing are listed a second time with a question mark in front. These are attributes that are
    stored, and texts in code that calls `getattr` and its like. ABSENT is among the attributes if code has an `except`
    or `with` block, which may catch an AttributeError, or reads attributes by text. ANY means a computed name, of an
    attribute of an object or its class. `__dict__` means all attributes of an object itself. `__class__` means that
    code may make another object of the class. A module's name begins with a dot for each package level up.
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
            elif step.opname == "MATCH_CLASS":  # keywords are a tuple before it, others are in `__match_args__`
                attributes.update(steps[at - 1].argval, (ANY, "__dict__") * bool(step.arg))
            elif step.opname == "LOAD_DEREF" and step.argval == "__class__":
                if not any(s.opname.startswith("LOAD_SUPER") for s in steps[at + 1 : at + 3]):  # from Python 3.12 on
                    attributes.add("__class__")
            elif step.opname == "IMPORT_NAME":
                up = "." * steps[at - 2].argval  # the level of a relative import, pushed two instructions before
                modules |= dict.fromkeys((up + step.argval, up or step.argval.partition(".")[0]))
            if step.argval in _BY_NAME and not _is_literal_call(steps[at + 1 :], _BY_NAME[step.argval]):
                attributes |= {ANY, "__dict__"}
    if not _ANY_READERS.isdisjoint(variables.keys() - {"format"}) or not _ANY_READERS.isdisjoint(attributes):
        attributes |= {ANY, "__dict__"}
    if not {"vars", "dir"}.isdisjoint(variables) or not {"__getstate__", "__dir__"}.isdisjoint(attributes):
        attributes.add("__dict__")
    if not {"type", "eval", "exec"}.isdisjoint(variables):
        attributes.add("__class__")
    if not _BY_TEXT.isdisjoint(variables) or not _BY_TEXT.isdisjoint(attributes):
        absent |= texts.union(*(k.split(".") for k in dotted))
        attributes.add(ABSENT)
    if not _IMPORTERS.isdisjoint(variables) or not _IMPORTERS.isdisjoint(attributes):
        modules |= dict.fromkeys(sorted(dotted))
    if not variables.keys().isdisjoint(_GLOBAL_READERS):
        variables |= dict.fromkeys(sorted(texts))
    attributes |= absent.union(f"?{name}" for name in absent)
    return frozenset(attributes), tuple(variables), tuple(modules)


def _is_literal_call(steps: Sequence[dis.Instruction], first: int) -> bool:
    """Whether `steps`, the instructions that follow the load of a function, call it with a literal string as argument
    number `first`.

    If `first` is 0, all arguments must be strings. False if an argument is computed, so that its value is not known.
    """
    loads: list[Any] = []
    for step in steps:
        if step.opname in ("CALL", "CALL_FUNCTION"):
            args = loads[len(loads) - (step.arg or 0) :]
            texts_of_call = args[first:][:1] if first else args
            return len(args) > first and len(args) == step.arg and all(isinstance(x, str) for x in texts_of_call)
        if step.opname.startswith("LOAD_") and not step.opname.endswith(("_ATTR", "_METHOD")):
            loads.append(step.argval if step.opname == "LOAD_CONST" else None)
        elif not step.opname.endswith(("_ATTR", "PRECALL", "CACHE", "PUSH_NULL", "NOP")):
            return False  # any other instruction computes an argument
    return False


def parameters(function: Any) -> tuple[str, ...]:
    """Return the names of the parameters of `function`, keyword-only ones last; () for a callable without Python
    code.
    """
    code = getattr(function, "__code__", None)
    return () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


@functools.cache
def names_of_module(module: str) -> frozenset[str]:
    """Return every name and string constant in the code of the module named `module`, functions included; empty if its
    code is not available.
    """
    loader: Any = getattr(import_module(module), "__loader__", None)
    codes = [loader.get_code(module)] if hasattr(loader, "get_code") else []
    found: set[str] = set()
    for code in filter(None, codes):
        parts = [x for k in code.co_consts for x in (k if isinstance(k, tuple) else (k,))]
        found.update(code.co_names, (x for x in parts if isinstance(x, str)))
        codes.extend(k for k in code.co_consts if isinstance(k, types.CodeType))
    return frozenset(found)


__all__ = ["ABSENT", "ANY", "names_in", "names_of_module", "parameters"]
