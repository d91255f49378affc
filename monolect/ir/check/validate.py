"""Check that a kernel computes the same results before and after a pass (translation validation).

What it is for: VERIFY=2. Both forms run on the same random inputs in the reference interpreter. If the order of steps
matters (programs, accumulators, local memory), they run in an interpreter of programs that the caller gives.
What it is not: a proof. Large kernels and target-specific code are skipped.

Invariant: inputs depend only on the kernel's PARAMs, so each form of a kernel is run once and compared with the next.
Floats may differ by rounding: by a small fraction of the largest result, or, where terms cancel, by as much as
perturbed inputs change the result. Integers must be equal, unless they are made of floats: those may differ by as much
as perturbed inputs change them.
Source: Pnueli, Siegel, Singerman, "Translation validation", TACAS 1998; tested here instead of proven.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from monolect.base.dtype import DType
from monolect.base.errors import MonolectError, VerifyError
from monolect.ir.bounds import min_max, ranges
from monolect.ir.check.arithmetics import NOISE_SEEDS, explained, perturbed, unit
from monolect.ir.check.interp import evaluate, run_kernel, storage
from monolect.ir.ops import KernelInfo
from monolect.ir.uop import UOp, idx, toposort

MOST_VISITS = 100_000  # computed elements, or iterations of a program; larger kernels are skipped
UNITS = 4.0  # ulps by which inputs are perturbed, to measure the effect of rounding
TOLERANCE = {64: 1e-9, 32: 1e-4, 16: 3e-2, 8: 0.3}  # bits of the narrowest float -> fraction of the largest result

Arguments = dict[int, Any]  # by slot: an array, or the value of a Variable
Runner = Callable[[UOp, Arguments], None]
Outcome = tuple[str, Arguments]  # (reason why the kernel was skipped or "", contents of its arguments afterwards)

_FOREIGN = frozenset(("INS", "CUSTOM", "CUSTOMFUNCTION", "CALL"))
_last: list[tuple[UOp, Outcome]] = []  # the latest outcome: the result of a pass is the input of the next


def validate(name: str, before: UOp, after: UOp, run_program: Runner | None = None) -> str:
    """Compare the results of a kernel in its form `before` the pass `name` with those of its form `after` the pass.

    Returns "" if the results agree, or the reason why they were not compared. `run_program`: interpreter for kernels
    that must run one iteration at a time; if it is None, such kernels are not compared. Raises VerifyError that names
    the pass and the elements that differ, or if the kernel can no longer be run. `name` is used only in the text of the
    error.
    """
    if before is after:
        return ""
    if isinstance(before.arg, KernelInfo) and before.arg.frozen and not after.arg.frozen:
        return "blocks are filled by one kernel and read by another"
    params = _params(before, after)
    skipped, wanted = _outcome(before, params, run_program)
    if skipped:
        return skipped
    try:
        skipped, found = _outcome(after, params, run_program)
    except MonolectError as e:
        raise VerifyError(f"pass {name}: kernel {_name(after)} cannot be run any more\n{e.describe()}") from e
    if skipped:
        return skipped
    bits = min((u.dtype.bits for u in toposort(before, after) if u.dtype.is_float), default=64)
    for slot, u in params.items():
        if not u.shape:
            continue
        where = _differences(wanted[slot], found[slot], u.dtype, bits)
        if where.size and any(v.dtype.is_float and v.shape for v in params.values()):
            runs = [_run(before, params, run_program, seed)[1][slot] for seed in range(1, NOISE_SEEDS[0] + 1)]
            where = where[~explained(found[slot][where], wanted[slot][where], np.stack(runs)[:, where], u.dtype)]
        if where.size:
            raise _error(name, before, u, where, wanted[slot], found[slot])
    return ""


def _name(ir: UOp) -> str:
    return ir.arg.name if isinstance(ir.arg, KernelInfo) else "kernel"


# ---- running ---------------------------------------------------------------------------------------------------------
def _outcome(ir: UOp, params: dict[int, UOp], run_program: Runner | None) -> Outcome:
    """Return the Outcome of running the kernel `ir`, memoized for the latest kernel.

    The Outcome is (reason why the kernel was not run or "", array of each PARAM by slot after the run). `params`: the
    PARAMs by slot. `run_program`: an interpreter of programs, or None.
    """
    if _last and _last[0][0] is ir and _last[0][1][1].keys() >= params.keys():
        return _last[0][1]
    out = _run(ir, params, run_program)
    _last[:] = [(ir, out)]
    return out


def _run(ir: UOp, params: dict[int, UOp], run_program: Runner | None, noise_seed: int = 0) -> Outcome:
    """Run the kernel `ir` on random inputs. Return the Outcome: (reason why it was not run or "", array of each PARAM
    by slot after the run).

    `params`: the PARAMs by slot. `run_program`: an interpreter for kernels that run one iteration at a time, or None. A
    `noise_seed` other than 0 adds small noise to the float inputs.
    """
    order = toposort(ir)
    ops = {u.op for u in order}
    if foreign := ops & _FOREIGN:
        return f"{', '.join(sorted(foreign))} has no meaning here", {}
    written = {u.src[0].src[0] for u in order if u.op in ("STORE", "ATOMICADD") and u.src[0].src}
    read = {u.src[0].src[0] for u in order if u.op == "LOAD" and u.src[0].src}
    in_steps = bool({"LINEAR", "AFTER", "BUFFER", "WMMA", "SHUFFLE"} & ops or written & read)
    work = _visits(order, in_steps)
    if work > MOST_VISITS:
        return f"{work} elements are too many", {}
    args = _inputs(params, noise_seed)
    if not in_steps:
        run_kernel(ir, {u: args[slot] for slot, u in params.items()})
    elif run_program is None:
        return "there is no interpreter of programs", {}
    else:
        run_program(ir, args)
    return "", args


def _visits(order: list[UOp], in_steps: bool) -> int:
    """Return an estimate of the work of a kernel with the nodes `order`: the most elements that one node computes in
    all iterations.

    If `in_steps`, the kernel runs one iteration at a time, and the result is the most iterations of one node.
    """
    threads = prod(_size(u.src[0]) for u in order if u.op == "SPECIAL")
    most = 1
    for u in order:
        if u.op != "SINK" and u.op != "LINEAR":
            n = prod(_size(r.src[0]) for r in ranges(u))
            if not in_steps and u.op not in ("PARAM", "INDEX"):
                n *= prod(_size(idx(s)) for s in u.shape)
            most = max(most, n)
    return most * threads


def _size(u: UOp) -> int:
    """Return the largest value of the size `u`."""
    return int(min_max(u)[1])


# ---- inputs ----------------------------------------------------------------------------------------------------------
def _params(*irs: UOp) -> dict[int, UOp]:
    """Return a dict from slot to PARAM of all PARAMs in the kernels `irs`."""
    return {u.arg.slot: u for u in toposort(*irs) if u.op == "PARAM"}


def _inputs(params: dict[int, UOp], noise_seed: int) -> Arguments:
    """Return random inputs: an array for each slot of `params`, the same in every run. A `noise_seed` other than 0
    perturbs the floats.
    """
    args: Arguments = {}
    for slot, u in sorted(params.items(), key=lambda t: bool(t[1].shape)):  # Variables first: sizes may depend on them
        rng = np.random.default_rng(slot)
        if u.shape:
            env = {v: args[s] for s, v in params.items() if not v.shape}
            n = prod(s if s.__class__ is int else int(evaluate(s, env)) for s in u.shape)
            a = args[slot] = _random(rng, n, u.dtype)
            if noise_seed and u.dtype.is_float:
                wide = a.astype(np.float64)
                args[slot] = perturbed(noise_seed, a, wide, np.abs(wide) * (UNITS * unit(u.dtype)), u.dtype)
        else:
            lo, hi = min_max(u)
            args[slot] = int(rng.integers(lo, min(hi, lo + 8) + 1))
    return args


def _random(rng: np.random.Generator, n: int, dtype: DType) -> np.ndarray[Any, Any]:
    """Return an array of `n` random values of dtype `dtype` from the generator `rng`.

    They are normally distributed floats, or small integers, some of which are out of bounds as indices.
    """
    if dtype.is_float:
        return rng.standard_normal(n).astype(storage(dtype))
    if dtype.kind == "b":
        return rng.integers(0, 2, n).astype(bool)
    return rng.integers(0 if dtype.min == 0 else -4, 12, n).astype(storage(dtype))


# ---- comparing -------------------------------------------------------------------------------------------------------
def _differences(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], dtype: DType, bits: int) -> np.ndarray[Any, Any]:
    """Return the positions where the arrays `a` and `b`, of dtype `dtype`, differ by more than the tolerance of floats
    of `bits` bits.
    """
    if not dtype.is_float:
        return np.flatnonzero(a != b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x)
    scale = float(np.abs(x[finite]).max(initial=0))
    tolerance = TOLERANCE[bits]
    with np.errstate(all="ignore"):
        near = np.abs(x - y) <= tolerance * max(scale, 1e-3)
    return np.flatnonzero(~(near | (x == y) | (np.isnan(x) & np.isnan(y))))


def _error(name: str, before: UOp, u: UOp, where: Any, a: Any, b: Any) -> VerifyError:
    """Return (not raise) the VerifyError for PARAM `u`, whose elements at positions `where` differ: the array `a`
    before and `b` after the pass `name`.

    `before`: the kernel before the pass.
    """

    def listed(x: Any) -> str:
        more = ", ..." if where.size > 4 else ""
        return ", ".join(f"[{i}] = {x[i]}" for i in where[:4]) + more

    return VerifyError(
        f"pass {name} changes what kernel {_name(before)} computes: "
        f"{where.size} of {a.size} elements of PARAM {u.arg.slot} ({u.dtype.name}) differ",
        op="PARAM",
        expected=f"before {name}: {listed(a)}",
        found=f"after {name}: {listed(b)}",
        line=("", 0),
    )


__all__ = ["MOST_VISITS", "TOLERANCE", "validate"]
