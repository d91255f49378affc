"""Write a kernel as loops and formulas for people to read: `pseudocode(sink)`.

    for r0 < 64, r1 < 2:
      t1 = sum(r1000 < 3: p1[r0*3 + r1000] * p2[r1000*2 + r1])
      p0[r0*2 + r1] = max(t1, 0.0)

What it is for: to show what a kernel computes. `p0` is the PARAM of slot 0, `r0` the RANGE of id 0. Each line is
executed in each iteration of the loops around it.
What it is not: a format that can be parsed; that is `ir.text`.
Invariant: the length of the text is linear in the size of the graph, because a value that is used again, or is long,
gets a name. An op without a notation is written as a call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from monolect.ir.bounds import ranges
from monolect.ir.ops import ROWS
from monolect.ir.placement import is_memory, memory_of
from monolect.ir.uop import UOp, toposort

Line = tuple[tuple[UOp, ...], str]  # (loops around the line, its text)

# op -> (operator, precedence)
_INFIX = {
    "MUL": ("*", 6), "DIV": (" / ", 6), "IDIV": (" // ", 6), "MOD": (" % ", 6), "ADD": (" + ", 5), "SUB": (" - ", 5),
    "SHL": (" << ", 4), "SHR": (" >> ", 4), "AND": (" & ", 3), "XOR": (" ^ ", 2), "OR": (" | ", 2),
    "CMPLT": (" < ", 1), "CMPNE": (" != ", 1), "CMPGT": (" > ", 1), "CMPGE": (" >= ", 1), "CMPLE": (" <= ", 1),
    "CMPEQ": (" == ", 1),
}  # fmt: skip
_TIGHT = 9  # precedence of names, numbers and calls: they need no parentheses
_SUMS = {"ADD": "sum", "MUL": "product", "MAX": "max"}
_OF_TENSORS = (1 << 32) - 1  # slots above it are BUFFERs of tensors (`ir.uop`)
_MOST_OPERANDS = 6  # operands of one op that `brief` writes; further ones are left out
_LONGEST, _SHORT = 60, 12  # characters; a longer formula gets a name, and so does one over _SHORT that is used twice
_NAMELESS = frozenset(("CONST", "PARAM", "BUFFER", "RANGE", "AFTER", "END", "GROUP", "SINK"))


def pseudocode(sink: UOp) -> str:
    """Return the kernel `sink`, a SINK over its stores, as loops and formulas in text.

    It is meant for scalar IR, before optimizer actions are applied. IR of later stages is written too, but is harder to
    read.
    """
    order = toposort(sink)
    uses = Counter(s for u in order if u.op not in ("PARAM", "BUFFER") for s in u.src)
    texts: dict[UOp, tuple[str, int]] = {}
    lines: list[Line] = []
    around = {s: u.src[1:] for u in order if u.op == "END" for s in _effects(u.src[0])}
    stored = {u.src[1] for u in order if u.op == "STORE"}
    n_names = 0
    for u in order:
        text, binds = _written(u, texts)
        effect = "effect" in ROWS[u.op].traits
        long = (len(text) > _LONGEST and u not in stored) or (len(text) > _SHORT and uses[u] > 1)
        if u.op in _NAMELESS or _is_memory_element(u) or not (effect or long):
            texts[u] = text, binds
            continue
        if effect:
            texts[u] = text, _TIGHT
        else:
            n_names += 1
            texts[u] = f"t{n_names}", _TIGHT
            text = f"t{n_names} = {text}"
        mine = sorted(ranges(u) | frozenset(around.get(u, ())), key=lambda r: r.arg[0])
        lines.append((tuple(mine), text))
    return "\n".join(_nested(lines, texts))


def brief(u: UOp, depth: float = 6) -> str:
    """Return the graph of `u`, of any stage, as a one-line formula with at most `depth` levels; `..` replaces deeper
    nodes.
    """
    return _text_to_depth(u, depth)[0]


class _TextsToDepth(dict[UOp, tuple[str, int]]):
    """An initially empty mapping from node to its (text, precedence); a look-up calls `_text_to_depth` with `depth`.
    `_written` gets it as the texts of a node's sources, so that only sources that are shown are written. A look-up
    stores nothing.
    """

    def __init__(self, depth: float):
        super().__init__()
        self.depth = depth

    def __missing__(self, u: UOp) -> tuple[str, int]:
        return _text_to_depth(u, self.depth)


def _text_to_depth(u: UOp, depth: float) -> tuple[str, int]:
    """Return (text, precedence) of node `u`, written to at most `depth` levels; precedence decides where parentheses
    are needed.
    """
    if u.op == "BUFFER" and u.arg.slot > _OF_TENSORS:
        return f"b{u.arg.slot - _OF_TENSORS}", _TIGHT
    if depth <= 0 and u.src and u.op not in ("PARAM", "BUFFER", "RANGE"):
        return "..", _TIGHT
    step = 0.5 if u.dtype.kind == "x" else 1  # indices are written to twice the depth of values
    texts = _TextsToDepth(depth - step)
    if u.op in ("PERMUTE", "FLIP") or (u.op in ("REDUCE", "SCAN") and len(u.src) == 1):
        name, *more = u.arg if u.op in ("REDUCE", "SCAN") else (u.op.lower(), u.arg)
        return f"{_SUMS.get(name, name)}({texts[u.src[0]][0]}, {', '.join(map(str, more))})", _TIGHT
    if u.op == "END":
        return f"for {_headers(u.src[1:], texts)}: {texts[u.src[0]][0]}", 0
    if len(u.src) > _MOST_OPERANDS:
        shown = ", ".join(texts[s][0] for s in u.src[:_MOST_OPERANDS])
        return f"{u.op.lower()}({shown}, ..)", _TIGHT
    return _written(u, texts)


def _nested(lines: list[Line], texts: dict[UOp, tuple[str, int]], indent: str = "") -> Iterator[str]:
    """Yield the lines of pseudocode in `lines` as text, indented under the headers of their loops.

    Each of `lines` is (loops, text). Adjacent lines share the headers of their common outer loops. `texts`: (text,
    precedence) of each node, for the headers. `indent`: spaces before each line.
    """
    for _, group in groupby(lines, key=lambda line: line[0][:1]):
        here = list(group)
        loops = _common([loops for loops, _ in here])
        if loops or not indent:
            yield indent + (f"for {_headers(loops, texts)}:" if loops else "once:")
            yield from _nested([(mine[len(loops) :], text) for mine, text in here], texts, indent + "  ")
        else:
            yield from (indent + text for _, text in here)


def _common(nests: list[tuple[UOp, ...]]) -> tuple[UOp, ...]:
    """Return the outer loops that all `nests` have in common. A nest is a tuple of RANGEs, outermost first."""
    n = next((i for i, loops in enumerate(zip(*nests, strict=False)) if len(set(loops)) > 1), min(map(len, nests)))
    return nests[0][:n]


def _is_memory_element(u: UOp) -> bool:
    """Whether `u` is an INDEX into memory (a PARAM or BUFFER) rather than into a computed value."""
    return u.op == "INDEX" and is_memory(memory_of(u))


def _effects(u: UOp) -> list[UOp]:
    """Return the effects (such as STOREs) in `u`, the body of an END. The END's loops surround them even if no operand
    depends on these loops.
    """
    return [x for s in u.src for x in _effects(s)] if u.op == "GROUP" else [u]


def _headers(loops: tuple[UOp, ...], texts: dict[UOp, tuple[str, int]]) -> str:
    """Return the headers of the RANGEs `loops` as text, such as `r0 < 64, r1 < 2`. `texts`: (text, precedence) of each
    node.
    """
    return ", ".join(f"{texts[r][0]} < {texts[r.src[0]][0]}" for r in loops)


def _written(u: UOp, texts: dict[UOp, tuple[str, int]]) -> tuple[str, int]:
    """Return (text, precedence) of node `u`. `texts`: (text, precedence) of each of its sources."""
    src = [texts[s][0] for s in u.src]
    if u.op in _INFIX:
        sign, binds = _INFIX[u.op]
        left, right = (f"({texts[s][0]})" if texts[s][1] < binds + i else texts[s][0] for i, s in enumerate(u.src))
        if sign == "*" and u.dtype.kind != "x":
            sign = " * "
        return f"{left}{sign}{right}", binds
    if u.op == "CONST":
        return str(u.value), _TIGHT
    if u.op == "RANGE":
        return f"r{u.arg[0]}", _TIGHT
    if u.op == "PARAM":
        return f"p{u.arg.slot}", _TIGHT
    if u.op == "BUFFER":
        return f"{str(u.arg.addrspace).lower()}{u.arg.slot}", _TIGHT
    if u.op == "INDEX":
        return f"{src[0]}[{', '.join(src[1:])}]", _TIGHT
    if u.op == "STACK":
        return f"[{', '.join(src)}]", _TIGHT
    if u.op == "AFTER":
        return texts[u.src[0]]
    if u.op == "LOAD":
        return (src[0] if len(src) == 1 else f"({src[0]} if {src[2]} else {src[1]})"), _TIGHT
    if u.op == "WHERE":
        return f"({src[1]} if {src[0]} else {src[2]})", _TIGHT
    if u.op == "STORE":
        return f"{src[0]} = {src[1]}" + (f" if {src[2]}" if len(src) > 2 else ""), 0
    if u.op == "REDUCE" and len(u.src) > 1:
        return f"{_SUMS.get(u.arg[0], u.arg[0])}({_headers(u.src[1:], texts)}: {src[0]})", _TIGHT
    if u.op in ("CAST", "BITCAST"):
        return f"{'bits_as_' * (u.op == 'BITCAST')}{u.dtype.short}({src[0]})", _TIGHT
    if u.op == "NEG":
        return f"-{src[0] if texts[u.src[0]][1] == _TIGHT else f'({src[0]})'}", 7
    return f"{u.op.lower()}({', '.join(src)})", _TIGHT


__all__ = ["brief", "pseudocode"]
