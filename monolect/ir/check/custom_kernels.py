"""Check kernels that did not come from the compiler's own passes, before they are compiled.

What it is for: kernels that a user writes (`custom_kernel`) and kernels of a file (`runtime/replay/stored.py`). The
compiler trusts its own passes. Other kernels are checked for everything that code generation relies on.
What it is not: a check of what a kernel computes. An admitted kernel may compute nonsense or never finish.

Invariant: an admitted kernel reads and writes only elements of its PARAMs and of its private memory, whatever their
contents are. Any other kernel raises VerifyError or IRError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from monolect.base.dtype import dtypes
from monolect.base.errors import VerifyError
from monolect.base.target import Target
from monolect.ir.bounds import min_max
from monolect.ir.check.prove import check_bounds, is_inside
from monolect.ir.check.verify import verify
from monolect.ir.ops import DECOMPOSED, ELEMENTWISE, INVALID, KernelInfo, ParamArg, Stage
from monolect.ir.placement import is_memory
from monolect.ir.rewrite.calls import stored_slots
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, const, idx, node, shape_source, substitute, toposort

# Ops of scheduled kernels. Custom code, machine code and ops that later passes make are not among them.
SCHEDULED = ELEMENTWISE | DECOMPOSED
SCHEDULED |= frozenset("PARAM BUFFER CONST STACK INDEX LOAD STORE ATOMICADD RANGE END AFTER GROUP SINK REDUCE".split())
SCHEDULED |= frozenset("BITCAST RESHAPE EXPAND PERMUTE".split())  # PERMUTE: sorting networks transpose blocks
_LOOPS = frozenset(("LOOP", "REDUCE"))
_ARGUMENTS: dict[str, frozenset] = {"LOAD": frozenset((None,)), "STORE": frozenset((None, "distinct"))}
_POINTERS = frozenset(("INDEX", "AFTER"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]{0,200}")
_MOST_ELEMENTS = 4096  # elements of one shaped value; a larger one raises VerifyError
CHOSEN = ("LOOP", "REDUCE")  # axis types that the optimizer may change
LAUNCHED = ("GLOBAL", "LOCAL")
_OF_AXES = frozenset(("SPECIAL", "BARRIER", "SHUFFLE", "TMACOPY"))
_NAMES_OF_LANES = re.compile(r"[gl]idx[0-2]")  # names of SPECIALs on a target with workgroups
THREAD = "thread0"  # name of the SPECIAL on a target without workgroups
_INDEX = range(-(1 << 63), 1 << 63)  # values of indices in generated code


def flat_params(operands: Sequence[UOp]) -> list[UOp]:
    """Return the PARAMs that a kernel has for `operands`, in the same order: memory with one axis for a BUFFER, a size
    for a Variable.
    """
    sizes = {b: node("PARAM", b.src, b.arg._replace(slot=k)) for k, b in enumerate(operands) if is_variable(b)}
    by_symbol = {p.arg.symbol: p for p in sizes.values()}
    out = []
    for k, b in enumerate(operands):
        n = count(b.shape)
        if n.__class__ is UOp:
            n = substitute(n, {p: by_symbol.get(p.arg.symbol, p) for p in toposort(n) if is_variable(p)})
        arg = ParamArg(k, b.dtype, b.arg.device, "GLOBAL")
        out.append(sizes.get(b) or node("PARAM", (shape_source((n,)),), arg))
    return out


def is_variable(u: UOp) -> bool:
    """Whether `u` is the PARAM of a Variable (a symbolic size)."""
    return u.op == "PARAM" and u.arg.name is not None


def admit(sink: UOp, params: Iterable[UOp]) -> None:
    """Check that the kernel `sink` keeps the rules of its IR stage, uses only the PARAMs `params`, and accesses no
    element out of bounds.

    Raises VerifyError.
    """
    verify(sink, Stage.KERNEL)
    known = frozenset(params)
    for u in toposort(sink):
        if u.op == "PARAM" and u not in known:
            raise _error("a PARAM that the kernel was not given", u, "its arguments", repr(u))
        if u.op == "INDEX" and not is_memory(u):
            for i, n in zip(u.src[1:], u.src[0].shape, strict=False):
                if not is_inside(i, idx(n)):
                    raise _error("an index of a value that is not proven to be inside", u, f"0 <= index < {n}", repr(i))
        if u.op in ("STORE", "ATOMICADD", "LOAD"):
            _check_access(u)
    check_bounds(sink)


def admit_called(sink: UOp, target: Target) -> None:
    """Check a kernel `sink` that a tensor graph calls: the IR rules and bounds of `admit`, for any PARAMs.

    Also, `target` must support the kernel, and the kernel must store to its first arguments: PARAM 0, 1 and so on.
    Raises VerifyError.
    """
    order = toposort(sink)
    admit(sink, [u for u in order if u.op == "PARAM"])
    check_target(order, target)
    stored = stored_slots(sink)
    if stored != frozenset(range(len(stored))) or not stored:
        raise _error(
            "a kernel that does not store to its first arguments", sink, "PARAM 0, 1 and so on", sorted(stored)
        )


def _check_access(u: UOp) -> None:
    """Check that `u`, a LOAD, STORE or ATOMICADD, accesses memory, and that its other operands are scalars or have the
    shape of the memory.

    Dtypes are not checked here, but by the row of the op. Raises VerifyError.
    """
    memory, others = u.src[0], u.src[1:]
    if not is_memory(memory):
        raise _error(f"{u.op} of a value that is not memory", u, "a PARAM or a BUFFER", repr(memory))
    if any(s.shape not in ((), memory.shape) for s in others):
        raise _error(f"{u.op} of another shape than its memory", u, memory.shape, [s.shape for s in others])


def admit_scheduled(sink: UOp, params: Sequence[UOp]) -> None:
    """Check a kernel `sink` with the PARAMs `params`: the rules of `admit`, and that the scheduler could have written
    the kernel.

    Kernels of the scheduler have only the ops SCHEDULED and no optimizer actions. Raises VerifyError.
    """
    info = sink.arg if sink.arg is not None else KernelInfo()
    plain = isinstance(info, KernelInfo) and isinstance(info.name, str) and isinstance(info.frames, bool)
    if not plain or info != KernelInfo(info.name, frames=info.frames) or not _NAME.fullmatch(info.name):
        raise _error("a kernel of another kind", sink, "a name, and no actions", info)
    for u in toposort(sink):
        if u.op not in SCHEDULED or u.tag is not None:
            raise _error("an op that no schedule has", u, "what the scheduler writes", u.op)
        if u.arg not in _ARGUMENTS.get(u.op, (u.arg,)):
            raise _error(f"an argument of {u.op} that no schedule has", u, sorted(map(str, _ARGUMENTS[u.op])), u.arg)
        _check_node(u)
    admit(sink, params)


def _check_node(u: UOp) -> None:
    """Check that `u`, one node of a kernel, has a form that the scheduler writes. It checks the value of a CONST, the
    type and size of a loop, the op of a REDUCE, that a BUFFER is LOCAL and of constant size, the form of an address,
    and the number of elements of a value. Raises VerifyError.
    """
    if u.op == "CONST" and u.arg[0] is not INVALID and const(*u.arg) is not u:
        raise _error("a constant that is none of its dtype", u, u.dtype.name, repr(u.arg[0]))
    if u.op == "RANGE" and (
        u.arg[1] not in _LOOPS or not is_size(u.src[0], u.arg[1] == "LOOP" and u.src[0].op == "CONST")
    ):
        raise _error("a loop that no schedule has", u, "a number of iterations", repr(u))
    if u.op == "REDUCE" and (u.arg[0] not in ("ADD", "MAX", "MUL") or not isinstance(u.arg[1], tuple)):
        raise _error("a reduction that no schedule has", u, "ADD, MAX or MUL", u.arg)
    if u.op == "BUFFER" and (u.arg.addrspace != "LOCAL" or not all(is_size(n, 1) for n in u.shape)):
        raise _error("memory that no schedule has", u, "LOCAL", u.arg)
    chain = u.src[0] if u.op in _POINTERS and u.src and is_memory(u) else None
    if chain is not None and chain.op not in ("PARAM", "BUFFER", *_POINTERS):
        raise _error("an address that no schedule has", u, "INDEX of a PARAM or a BUFFER", chain.op)
    if not is_memory(u) and prod(n if isinstance(n, int) else _MOST_ELEMENTS + 1 for n in u.shape) > _MOST_ELEMENTS:
        raise _error("a value of too many elements", u, f"at most {_MOST_ELEMENTS}", u.shape)


def has_axes(order: Sequence[UOp]) -> bool:
    """Whether the kernel with the nodes `order` fixes how its loops are run (on lanes, threads or in sequence), so that
    the optimizer must not change this.
    """
    return any(u.op in _OF_AXES or (u.op == "RANGE" and u.arg[1] not in CHOSEN) for u in order)


def check_target(order: Sequence[UOp], target: Target) -> None:
    """Check that `target` supports the loop types, ops and local memory of the kernel with the nodes `order`. WARP and
    CONTRACT ranges are never allowed. Raises VerifyError.
    """
    for u in order:
        if u.op == "RANGE" and u.arg[1] in ("WARP", "CONTRACT"):
            raise _error(f"a {u.arg[1]} range by hand", u, "the action TC, which makes them", u.arg)
        if u.op == "RANGE" and u.arg[1] in LAUNCHED and not target.workgroups:
            raise _lacks(u, f"a {u.arg[1]} range", target)
        if u.op == "RANGE" and u.arg[1] == "THREAD" and target.workgroups:
            raise _error("a THREAD range on a target with workgroups", u, "GLOBAL or LOCAL", target.name)
        if u.op == "SPECIAL" and not (_NAMES_OF_LANES.fullmatch(u.arg) if target.workgroups else u.arg == THREAD):
            if target.workgroups or not _NAMES_OF_LANES.fullmatch(u.arg):
                expected = "gidx0..2, lidx0..2" if target.workgroups else THREAD
                raise _error(f"an unknown SPECIAL on {target.name}", u, expected, u.arg)
            raise _lacks(u, f"SPECIAL {u.arg}", target)
        if u.op in ("BARRIER", "SHUFFLE", "TMACOPY") and not target.workgroups:
            raise _lacks(u, u.op, target)
    local = [u for u in order if u.op == "BUFFER" and u.arg.addrspace == "LOCAL"]
    n_bytes = sum(prod(u.shape) * u.dtype.itemsize for u in local if all(n.__class__ is int for n in u.shape))
    if n_bytes > target.local_bytes > 0:
        expected = f"at most {target.local_bytes} bytes on {target.name}"
        raise _error("more LOCAL memory than the target has", local[0], expected, f"{n_bytes} bytes")


def _lacks(u: UOp, what: str, target: Target) -> VerifyError:
    return _error(f"{what} on a target without workgroups", u, "a target with workgroups, such as a GPU", target.name)


def is_size(n: Any, least: int = 0) -> bool:
    """Whether `n` is a valid size that is at least `least`: an int, or index arithmetic of Variables that cannot
    overflow.
    False for a value of any other type.
    """
    if n.__class__ is int:
        return least <= n and n in _INDEX
    if not isinstance(n, UOp) or n.shape != () or n.dtype is not dtypes.index:
        return False
    leaves = [u for u in toposort(n) if not u.src]
    alone = all(u.op == "CONST" or is_variable(u) for u in leaves)
    bounds = [x for u in toposort(n) if u.dtype.kind == "x" for x in min_max(u)] if alone else []
    exact = alone and all(x.__class__ is int and x in _INDEX for x in bounds)  # `in` would walk to another class
    return exact and bool(min_max(n)[0] >= least)


def _error(what: str, u: UOp, expected: Any, found: Any) -> VerifyError:
    return VerifyError(what, op=u.op, expected=expected, found=found)


__all__ = [
    "admit",
    "admit_called",
    "admit_scheduled",
    "check_target",
    "flat_params",
    "has_axes",
    "is_size",
    "is_variable",
]
