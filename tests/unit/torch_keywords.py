"""Keywords that PyTorch's functions and methods take: from its own messages, docstrings and signatures."""

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch

from monolect.cli.surface.torch_names import NAMES

SPACES: dict[str, Any] = {
    "Tensor": torch.Tensor,
    "Tensor in place": torch.Tensor,
    "monolect": torch,
    "nn.functional": torch.nn.functional,
    "special": torch.special,
    "linalg": torch.linalg,
}


class _Nothing:
    """No function takes it."""


def _listed(f: Callable[..., Any]) -> list[str]:
    """Return the parameter lists that the message of an impossible call names; none where there is only one."""
    try:
        f(*[_Nothing()] * 20, no_such_name=1)
    except Exception as e:
        return re.findall(r"^ \* \((.*)\)$", str(e), re.M)
    return []


def _refuses_its_value(f: Callable[..., Any]) -> bool:
    """Whether `f` refuses a wrong `out` because of its value, after 0 to 5 tensors."""
    x = torch.zeros(2)
    for n in range(6):
        try:
            f(*[x] * n, out=_Nothing())
        except Exception as e:
            if re.search(r"'out' must be|Tensor out\b|tuple of Tensors out", str(e)):
                return True
    return False


def _is_unknown(f: Callable[..., Any], word: str) -> bool:
    """Whether `f` says after 0 to 5 tensors that it takes no keyword `word`, which its docstring has."""
    x = torch.zeros(2)
    for n in range(6):
        try:
            f(*[x] * n, **{word: _Nothing()})
        except Exception as e:
            if f"unexpected keyword argument '{word}'" in str(e) or "takes no keyword arguments" in str(e):
                return True
    return False


def _documented(f: Callable[..., Any]) -> list[str]:
    """Return the parameter lists of the first lines of the docstring."""
    lines = (getattr(f, "__doc__", None) or "").strip().splitlines()
    found = (re.match(r"^\s*(?:\.\. (?:function|method):: )?[\w.]+\((.*?)\)\s*(?:->.*)?$", line) for line in lines)
    return [m[1] for m in found if m and "tensor(" not in m[1]]


def _words(parameters: str) -> Iterator[str]:
    """Generate the names in a list of parameters, with or without types and defaults."""
    depth, part = 0, ""
    for c in (*parameters, ","):
        depth += (c in "([") - (c in ")]")
        if c != "," or depth > 0:
            part += c
            continue
        name = part.partition("=")[0].partition(":")[0].split()
        part = ""
        if name and re.fullmatch(r"\*{0,2}[A-Za-z_]\w*", name[-1]) and not name[-1].startswith("*"):
            yield name[-1]


@cache
def keywords(space: str, name: str) -> frozenset[str]:
    """Return the names of the parameters of PyTorch's `name`: of all overloads, without `self`."""
    f: Any = getattr(SPACES[space], name)
    if not callable(f) or isinstance(f, type):
        return frozenset()
    is_method = space.startswith("Tensor")
    if inspect.isfunction(f):
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        own = [p for p in inspect.signature(inspect.unwrap(f)).parameters.values() if p.kind not in kinds]
        if own and [p.name for p in own] != ["self"]:
            return frozenset(p.name for p in own) - {"self"}
    bound = getattr(torch.zeros(2), name) if is_method else f
    listed = _listed(bound)
    found = {w for text in listed or _documented(f) for w in _words(text)}
    if not listed:
        found = {w for w in found if not _is_unknown(bound, w)}
    if not listed and not is_method and _refuses_its_value(f):
        found.add("out")
    return frozenset(found - {"self", "True", "False"})


def taking_out(space: str) -> list[str]:
    """Return the functions of `space` that take `out`."""
    return [n for n in NAMES[space] if "out" in keywords(space, n)]


__all__ = ["SPACES", "keywords", "taking_out"]
