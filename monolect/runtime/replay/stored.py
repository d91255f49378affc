"""Write a step as text, and read and check such text from an untrusted file.

    FUNCTION(TUPLE(results, new versions, states...), PARAM...)      arg StepInfo

What it is for: `step.save` writes a step in the form that the pass `join` returns; `jit.load` gets a step that can be
planned, compiled and run like one that was captured. The role of each PARAM is in its StepInfo; programs, bytes,
offsets and dependencies are derived after reading.
What it is not: the file around the text, with arrays and trees of arguments (`capture/files/saved.py`).

Invariant: a step that was read touches only its own memory, and writes no argument and no constant. Text that violates
this raises a MonolectError before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monolect.base.dtype import dtypes
from monolect.base.errors import FileFormatError, JitError
from monolect.command.forms import buffer_bytes, is_size, items_of, kernel_of, program_of
from monolect.command.rewrites.in_place import same_elements
from monolect.ir.bounds import at_most
from monolect.ir.check.custom_kernels import admit_scheduled, flat_params, is_variable
from monolect.ir.check.custom_kernels import is_size as is_plain_size
from monolect.ir.check.verify import verify
from monolect.ir.ops import ROLES, BufferArg, ParamArg, Stage, StepInfo
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.calls import stored_slots
from monolect.ir.rewrite.normal import count
from monolect.ir.text import parse, show
from monolect.ir.uop import UOp, idx, node, shape_source, toposort
from monolect.runtime.binding import BY
from monolect.runtime.buffer import VIEWS

_GIVEN = ("argument", "old", "size", "result")  # roles of PARAMs that each call supplies, in the order of slots
_HOLDS = frozenset(("argument", "old", "state", "read", "constant"))  # roles of PARAMs with a value before the step


# ---- writing ---------------------------------------------------------------------------------------------------------
def write(step: UOp, params: Sequence[UOp]) -> str:
    """Return the joined step `step`, applied to the PARAMs `params`, as text. Raises JitError for a step with copies,
    loops or native functions, which cannot be saved.
    """
    for c in items_of(program_of(step)):
        if c.op != "CALL":
            raise JitError("a step that cannot be saved", expected="kernels of one device", found=c.op)
        if kernel_of(c).op == "CUSTOMFUNCTION":
            expected = "a step without native functions"
            raise JitError("native code is at an address of this process", expected=expected, found=kernel_of(c).arg)
    return show(node("FUNCTION", (step.src[0], *params), step.arg), sections=False)


# ---- reading ---------------------------------------------------------------------------------------------------------
def read(text: str, device: str) -> UOp:
    """Parse and check `text`, a step as `write` returns it; return the step, a FUNCTION applied to its PARAMs.
    `device`: name of the device of its memory.

    Raises ParseError, VerifyError or FileFormatError for a text that is no step, or for a step that could touch other
    memory.
    """
    step = parse(text)
    _Reader(step, device).check()
    return step


class _Reader:
    """A checker of one parsed step, whose memory is on `device`; each method raises FileFormatError or VerifyError for
    a violation.
    """

    def __init__(self, step: UOp, device: str):
        info, self.device = step.arg, device
        if step.op != "FUNCTION" or step.src[0].op != "TUPLE" or not isinstance(info, StepInfo):
            raise damaged("the graph of a step", "FUNCTION(TUPLE, PARAM...) with StepInfo", step)
        self.params, self.outs, self.info = step.src[1:], step.src[0].src, info
        roles = info.roles
        if roles.__class__ is not tuple or len(roles) != len(self.params) or any(r not in ROLES for r in roles):
            raise damaged("the roles of a step", f"{len(self.params)} of {ROLES}", roles)
        first = [r for r in roles if r in _GIVEN]
        if [*roles[: len(first)]] != sorted(first, key=_GIVEN.index):
            raise damaged("the roles of a step", "arguments, old versions, sizes, results, then the others", roles)
        self._check_info()
        self.stored: set[UOp] = set()
        linears = {u.src[1] for u in self.outs if u.op == "AFTER" and len(u.src) == 2}
        behind = all(len(u.src) == 2 for u in self.outs if u.op == "AFTER")
        if len(linears) > 1 or not behind or any(u.op != "LINEAR" for u in linears):
            raise damaged("the program of a step", "one LINEAR", linears)
        self.items = linears.pop().src if linears else ()

    def _check_info(self) -> None:
        """Check the fields of the step's StepInfo against its PARAMs and values.
        It checks that slots are in range, that results, new versions and states are as many as the values, and that a
        result has as many bytes as the argument whose memory it may take. Raises FileFormatError.
        """
        info, n = self.info, len(self.params)
        moves = _integers("moves", info.moves, n)
        _integers("shared", info.shared, n)
        pairs = [tuple([index(k, n) for k in _pair(p)]) for p in _tuple(info.reuse)]
        states = self.info.roles.count("state")
        if index(info.n_results, len(self.outs) + 1) + len(moves) + states != len(self.outs):
            raise damaged("the values of a step", "results, new versions, states", len(self.outs))
        role = self.info.roles
        if any(role[k] not in ("argument", "old") for k in moves) or sorted(
            k for k, r in enumerate(role) if r == "old"
        ) != sorted(k for k in moves if role[k] == "old"):
            raise damaged("the states of a step", "arguments, and each old version once", moves)
        same = all(
            (role[r], role[a]) == ("result", "argument")
            and buffer_bytes(self.params[r]) == buffer_bytes(self.params[a])
            and all(x.__class__ is int for x in self.params[r].shape)
            for r, a in pairs
        )
        if not same or len({a for _, a in pairs}) != len(pairs) or len({r for r, _ in pairs}) != len(pairs):
            raise damaged("results over arguments", "as many bytes, each argument once", info.reuse)
        if info.is_replayed is not True:
            raise damaged("a step", "one that is replayed", info.is_replayed)

    def check(self) -> None:
        """Raise FileFormatError or VerifyError if a PARAM, kernel launch, result or state of the step is not valid, or
        if a kernel could touch other memory.
        """
        self._check_memory()
        self.holds = {p for p, r in zip(self.params, self.info.roles, strict=True) if r in _HOLDS}
        for item in self.items:
            self._check_item(item)
        roles = self.info.roles
        if missing := [p for p, r in zip(self.params, roles, strict=True) if r == "result" and p not in self.stored]:
            raise damaged("a result that no kernel stores", "each result", missing)
        n, moves = self.info.n_results, self.info.moves
        for k, u in enumerate(self.outs):
            self._check_value(u, k >= n + len(moves))
        for k, u in zip(moves, self.outs[n:], strict=False):
            if (u.shape, u.dtype) != (self.params[k].shape, self.params[k].dtype):
                raise damaged("a state of another kind than before", repr(self.params[k]), repr(u))
        states = [p for p, r in zip(self.params, roles, strict=True) if r == "state"]
        if [memory_of(u) for u in self.outs[n + len(moves) :]] != states:
            raise damaged("the states of a step", "each, in the order of the slots", self.outs[n + len(moves) :])

    def _check_memory(self) -> None:
        """Check that each PARAM of the step is a size or memory of the device at its own slot, and that all Variables
        are PARAMs of the step.
        Raises FileFormatError.
        """
        sizes = [p for p, r in zip(self.params, self.info.roles, strict=True) if r == "size"]
        symbols = {v.arg.symbol for v in sizes if _is_plain_variable(v)}
        if len({name for name, *_ in symbols}) != len(sizes):
            raise damaged("the sizes of a step", "Variables of different names", sizes)
        for k, p in enumerate(self.params):
            if p in sizes:
                if p.arg.slot != k:
                    raise damaged("a size of a step", f"slot {k}", p)
                continue
            same = node("PARAM", (shape_source(p.shape),), ParamArg(k, p.dtype, self.device, "GLOBAL"))
            if p is not same or p.dtype.kind in "vx" or not all(map(is_plain_size, p.shape)):
                raise damaged(f"PARAM {k} of a step", f"memory of {self.device}, of that slot", p)
            if not all(n.__class__ is int for n in p.shape) and self.info.roles[k] != "result":
                raise damaged(f"PARAM {k} of a step", "a shape of numbers", p.shape)
        every = (*self.params, *self.outs, *(b for c in self.items for b in c.src[1:]), *self.items)
        if unknown := [u for u in toposort(*every) if is_variable(u) and u.arg.symbol not in symbols]:
            raise damaged("a Variable that is no size of the step", [v.arg.name for v in sizes], unknown[0])

    def _check_item(self, call: UOp) -> None:
        """Check that `call` launches a legal kernel that reads values stored before and writes only results, states and
        intermediates.
        Raises FileFormatError or VerifyError.
        """
        if call.op != "CALL" or call.arg is not None or call.src[0].op != "SINK":
            raise damaged("an item of a step", "CALL of a kernel", call)
        sink, operands = call.src[0], call.src[1:]
        for b in operands:
            self._check_operand(b)
        admit_scheduled(sink, flat_params(operands))
        stored = {operands[k] for k in stored_slots(sink)}
        for b in stored:
            role = self.info.roles[b.arg.slot] if b.op == "PARAM" else ""
            if role not in ("", "result", "state"):
                raise damaged(
                    "a kernel that writes memory which is not its step's", "results, states, intermediates", b
                )
        twice = [(i, k) for i in _slots_in_indices(sink) for k in stored_slots(sink) if operands[i] is operands[k]]
        if moving := [pair for pair in twice if not same_elements(sink, *pair)]:
            raise damaged(
                "a kernel that stores to elements used in its indices",
                "indices that do not change while it runs",
                moving,
            )
        needed = [b for b in operands if not is_size(b) and 0 not in b.shape]
        if empty := [b for b in needed if b not in self.holds and b not in stored]:
            raise damaged("a kernel that reads what no kernel stored", "an earlier store", empty)
        self.holds |= stored
        self.stored |= stored

    def _check_operand(self, b: UOp) -> None:
        """Check that `b`, an operand of a kernel, is a PARAM of the step or a well-formed BUFFER.
        Raises FileFormatError.
        """
        if b.op == "PARAM":
            if b in self.params:
                return
        elif b.op == "BUFFER" and b.arg.__class__ is BufferArg and b.arg.slot.__class__ is int and b.arg.slot >= 0:
            same = node("BUFFER", (shape_source(b.shape),), BufferArg(b.arg.slot, b.dtype, self.device))
            if b is same and b.dtype.kind != "v" and all(map(is_plain_size, b.shape)):  # also of indices
                return
        raise damaged("an operand of a kernel", "memory of the step", b)

    def _check_value(self, u: UOp, is_state: bool) -> None:
        """Check that `u`, a result or the new version of a state, is a view of a PARAM; the view is inside an AFTER
        exactly if the program stores the PARAM.

        `is_state`: whether the PARAM must be a state that is updated in place; if false, it must not be one. Raises
        FileFormatError or VerifyError.
        """
        written = u.op == "AFTER"
        view = u.src[0] if written else u
        verify(view, Stage.TENSOR)
        base = view
        while base.op in VIEWS:
            _check_view(base)
            base = base.src[0]
        symbolic = not all(n.__class__ is int for n in base.shape)
        known = base in self.params and (self.info.roles[base.arg.slot] == "state") is is_state and not is_size(base)
        if not known or written is not (base in self.stored) or (symbolic and view is not base):
            raise damaged("a result of a step", "a view of a result, an argument or a constant", repr(u))


def _check_view(u: UOp) -> None:
    """Check bounds of the view `u` that the IR verifier does not check if sizes are symbolic. Raises
    FileFormatError.
    """
    old, new = u.src[0].shape, u.shape
    inside = all(map(is_plain_size, new))
    if u.op == "SHRINK":
        rows = zip(u.src[1].sizes, new, old, strict=True)
        inside = inside and all(is_plain_size(o) and at_most(idx(o) + idx(n), s) for o, n, s in rows)
    if u.op == "RESHAPE":
        inside = inside and count(old) == count(new)
    if not inside or u.tag is not None:
        raise damaged("a view of a step", f"inside of {old}", repr(u))


def _slots_in_indices(sink: UOp) -> set[int]:
    """Return the slots of the PARAMs whose elements the kernel `sink` uses in indices. No iteration may change these
    elements.
    """
    below = toposort(*(u for u in toposort(sink) if u.dtype.kind == "x"))
    memories = [memory_of(u.src[0]) for u in below if u.op == "LOAD"]
    return {p.arg.slot for p in memories if p.op == "PARAM"}


def _is_plain_variable(u: UOp) -> bool:
    """Return whether `u` is a PARAM of the form that the class Variable makes."""
    if u.op != "PARAM" or u.src or u.dtype is not dtypes.index or u.arg.addrspace is not None:
        return False
    name, least, most = u.arg.symbol
    base, _, multiple = (name if isinstance(name, str) else "").partition(BY)
    named = base.isidentifier() and (not multiple or multiple.isdecimal())
    return named and least.__class__ is int and most.__class__ is int and -(1 << 62) <= least <= most < 1 << 62


def _tuple(x: Any) -> tuple:
    """Return `x` if it is a tuple; raise FileFormatError otherwise."""
    if x.__class__ is not tuple:
        raise damaged("a list of a step", "a tuple", x)
    return tuple(x)


def _pair(x: Any) -> tuple:
    """Return `x` if it is a tuple of two elements; raise FileFormatError otherwise."""
    if len(_tuple(x)) != 2:
        raise damaged("a list of a step", "pairs", x)
    return tuple(x)


def _integers(what: str, numbers: Any, below: int) -> tuple[int, ...]:
    """Return `numbers` if it is a tuple of different ints n with 0 <= n < `below`; raise FileFormatError otherwise.
    `what` names the tuple in the message.
    """
    found = tuple([index(n, below) for n in _tuple(numbers)])
    if len({*found}) != len(found):
        raise damaged(what, "each number once", found)
    return found


def index(n: Any, below: int) -> int:
    """Return `n` if it is an int with 0 <= n < `below`; raise FileFormatError otherwise."""
    if n.__class__ is not int or not 0 <= n < below:
        raise damaged("a number of a step", f"0 <= number < {below}", n)
    return int(n)


def damaged(what: str, expected: Any, found: Any) -> FileFormatError:
    """Return (not raise) the FileFormatError for a part of a file, named `what` in the message, that differs from the
    form that `step.save` writes.
    `expected` and `found` are used only in the error.
    """
    return FileFormatError(what, expected=expected, found=str(found)[:200])


__all__ = ["damaged", "index", "read", "write"]
