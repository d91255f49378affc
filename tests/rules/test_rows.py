"""Each row of a rule over kernels, of legalisation and of actions fires, and keeps what is computed.

Rows of `algebra` are tested in test_algebra.py, those of `decompose` in test_tables.py, identities in test_named.py.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest

from monolect import ActionError, Context, Tensor, dtypes
from monolect.ir.check.interp import evaluate
from monolect.ir.ops import BufferArg, KernelInfo
from monolect.ir.rewrite.named_rules import Row, recorded
from monolect.ir.text import parse
from monolect.ir.uop import UOp, build, const, idx, node, shape_source
from monolect.lower.reduce import lower_reduce
from monolect.optimize.actions.plan import ROWS as ACTION_ROWS
from monolect.optimize.actions.plan import LoopPlan, row_name
from monolect.optimize.apply import apply_actions, choose_actions
from monolect.pipeline import FAMILIES, schedule
from monolect.rules.algebra import ALGEBRA, simplify
from monolect.rules.decompose import DECOMPOSE
from monolect.rules.legalize import ROWS, legalize
from monolect.rules.loops.concat import read_at_once, stored_apart
from monolect.rules.loops.concat_boundaries import split_seams
from monolect.rules.loops.reductions import simplify_loops
from monolect.rules.transcendental import LN2, LOG2E
from monolect.schedule.callify import over_params
from tests.passes import test_actions, test_before_after, test_workgroup_actions
from tests.passes.conftest import assert_same_meaning, target
from tests.rules.identities import CASES as IDENTITY_CASES
from tests.rules.test_algebra import EXAMPLES
from tests.rules.test_named import IN_PARTS
from tests.rules.test_tables import BOOL, F16, F32, F64, GRAPHS, I32, both_sides, less, load, operand, param, reduction

TARGET = target(native_dtypes=frozenset((F32, F64, I32)))
Pass = Callable[[UOp], UOp]


# ---- kernels ---------------------------------------------------------------------------------------------------------
def loop(k: int, n: int, kind: str = "LOOP") -> UOp:
    return node("RANGE", (idx(n),), (k, kind))


def kernel(value: Tensor) -> UOp:
    """The last kernel of a program, as the scheduler leaves it."""
    sink, _, _ = over_params([value.uop])
    return simplify(schedule(list(sink.src), "cpu", 1 << 20).linear.src[-1].src[0], TARGET)


def whole(*shape: int) -> Tensor:
    return Tensor(np.arange(math.prod(shape), dtype=np.float32).reshape(shape) % 7)


def joined(n: int, size: int) -> Tensor:
    return Tensor.cat(*[whole(2, size) * (k + 1) for k in range(n)], dim=1)


def window() -> UOp:
    """Running sums as a window that slides over a padded row."""
    i, j = loop(0, 6), loop(1000, 6, "REDUCE")
    inside = build("CMPLT", idx(4), i + j)
    return reduction("ADD", inside, load(1, i + j + -5), i, j)


def running(d: dtypes = F32) -> UOp:
    i, j = loop(0, 6), loop(1000, 6, "REDUCE")
    return reduction("ADD", less(j, i + 1), load(1, j, d=d), i, j, d)


def bins() -> UOp:
    i, j = loop(0, 20), loop(1000, 20, "REDUCE")
    place = build("CAST", load(2, j, 20), arg=dtypes.index)
    r = node("REDUCE", (build("WHERE", node("CMPEQ", (place, i)), load(1, j, 20), const(0, I32)), j), ("ADD", ()))
    out = node("INDEX", (node("PARAM", (shape_source((20,)),), load(0, i, 20).src[0].src[0].arg), i))
    return node("SINK", (node("END", (node("STORE", (out, r)), i)),), KernelInfo())


def repeated() -> UOp:
    i, j = loop(0, 6), loop(1000, 5, "REDUCE")
    return reduction("ADD", const(True, BOOL), load(1, i), i, j)


def products() -> UOp:
    i, j = loop(0, 6), loop(1000, 6, "REDUCE")
    return reduction("ADD", const(True, BOOL), load(1, j, d=F32) * load(2, i, d=F32), i, j, F32)


def of_case(pass_: str, name: str) -> tuple[Pass, Callable[[], UOp]]:
    run, before, _ = test_before_after.CASES[pass_, name]
    return run, lambda: parse(before)


def first_case(pass_: str) -> list[tuple[Pass, Callable[[], UOp]]]:
    return [of_case(p, name) for p, name in test_before_after.CASES if p == pass_]


def loops(sink: UOp) -> UOp:
    return simplify_loops(sink, TARGET)


KERNELS: dict[str, list[tuple[Pass, Callable[[], UOp]]]] = {
    "flat_memory": first_case("simplify"),
    "store_each_step": first_case("stored_apart"),
    "store_each_piece": [(stored_apart, lambda: kernel(joined(9, 3) + 1))],
    "loop_each_piece": [(stored_apart, lambda: kernel(joined(9, 64) + 1))],
    "read_rows_at_once": [*first_case("read_at_once"), (read_at_once, lambda: kernel(whole(9, 8).roll(5, 0) + 1))],
    "loop_each_side": [*first_case("split_seams"), (split_seams, lambda: kernel(whole(9, 8)))],
    "reduce_repeats": [(loops, repeated)],
    "reduce_counts": first_case("simplify_loops"),
    "reduce_picks": first_case("simplify_loops"),
    "reduce_scans": [(loops, running), (loops, lambda: running(I32))],
    "reduce_slides": [(loops, window)],
    "reduce_tallies": first_case("simplify_loops"),
    "reduce_bins": [(loops, bins)],
    "carry_in_double": [(loops, running)],
    "sum_of_products": [(lower_reduce, products)],
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", KERNELS)
def test_a_rule_over_kernels_fires_and_keeps_the_meaning(name: str) -> None:
    fired = 0
    for run, made in KERNELS[name]:
        before = made()
        with recorded() as found:
            after = run(before)
        if name not in [n for n, _, _ in found]:
            continue
        fired += 1
        assert_same_meaning(after, before)
        if name != "flat_memory":
            with Context(DISABLE=name), recorded() as off:
                other = run(before)
            assert name not in [n for n, _, _ in off]
            assert_same_meaning(other, before)
    assert fired, f"no kernel fires {name}"


# ---- legalisation ----------------------------------------------------------------------------------------------------
SINGLE = frozenset((F32, F64))


def elements(d: dtypes) -> UOp:
    return node("BUFFER", (shape_source((6,)),), BufferArg(0, d, "cpu"))


NARROW: dict[str, UOp] = {
    "narrow_and_back": node("CAST", (node("CAST", (param(F16),), F32),), F16),
    "cast_through_single": node("CAST", (param(F16),), I32),
    "widen_by_bits": node("CAST", (param(F16),), F32),
    "narrow_by_bits": node("CAST", (param(F32),), F16),
    "narrow_of_bool": node("CAST", (param(BOOL),), F16),
    "round_to_odd": node("CAST", (param(F64),), dtypes.bfloat16),
    "op_in_single": node("ADD", (param(F16), param(F16, 1))),
    "exp_in_single": build("EXP2", param(F16) * LOG2E),
    "log_in_single": build("LOG2", param(F16)) * LN2,
    "cos_in_single": node("SIN", (node("SUB", (const(math.pi / 2, F16), param(F16))),)),
    "abs_in_single": node("MAX", (param(F16), node("NEG", (param(F16),)))),
}
OF_TWO_NODES = {"exp_in_single": np.exp, "log_in_single": np.log, "cos_in_single": np.cos}  # computed as one


@pytest.mark.parametrize("name", NARROW)
def test_a_legalisation_fires_and_keeps_the_value(name: str) -> None:
    u = NARROW[name]
    with recorded() as found:
        v = legalize(u, SINGLE)
    assert v is not None and name in [n for n, _, _ in found]
    for seed in range(3):
        if name not in OF_TWO_NODES:
            np.testing.assert_array_equal(*(a.astype(np.float64) for a in both_sides(u, v, seed)))
            continue
        x = operand(param(F16), np.random.default_rng(seed))
        with np.errstate(all="ignore"):
            want = OF_TWO_NODES[name](x.astype(np.float64)).astype(np.float16)
        np.testing.assert_allclose(evaluate(v, {param(F16): x}), want, rtol=1e-3)
    if not ROWS.rows[name].needed:
        with Context(DISABLE=name), recorded() as off:
            legalize(u, SINGLE)
        assert name not in [n for n, _, _ in off]


def test_a_reduction_of_narrow_floats_is_one_in_single() -> None:
    r = loop(0, 6, "REDUCE")
    u = node("REDUCE", (load(0, r, d=F16), r), ("ADD", ()))
    with recorded() as found:
        v = legalize(u, SINGLE)
    assert [n for n, _, _ in found][-1] == "reduce_in_single"
    assert v is not None and v.src[0].op == "REDUCE" and v.src[0].dtype is F32

    def stored(x: UOp) -> UOp:
        return node("SINK", (node("STORE", (load(1, idx(0), 1, F16).src[0], x)),), KernelInfo())

    assert_same_meaning(stored(v), stored(u))


# ---- actions ---------------------------------------------------------------------------------------------------------
LAST: dict[str, tuple[str, list[tuple]]] = {  # the action that is meant is the last one
    "SPLIT_LOOP": ("map", [("SPLIT", 0, (2, "LOOP", False))]),
    "SPLIT_REDUCE": ("row sums", [("SPLIT", 1, (4, "REDUCE", False))]),
    "SPLIT_THREAD": ("map", [("SPLIT", 0, (2, "THREAD", True))]),
    "SPLIT_GROUP_REDUCE": ("row sums", [("SPLIT", 1, (4, "GROUP_REDUCE", False))]),
    "SPLIT_UPCAST": ("map", [("SPLIT", 1, (4, "UPCAST", False))]),
    "SPLIT_UNROLL": ("row sums", [("SPLIT", 1, (4, "UNROLL", False))]),
    "PADTO": ("odd matmul", [("PADTO", 0, 4)]),
    "SWAP": ("transpose", [("SWAP", 0, 1)]),
    "PEEL": ("pad", [("PEEL", 0, (1, 1))]),
    "PACK": ("matmul", [("PACK", 0, None)]),
    "BOUND": ("masked attention", [("BOUND", None, None)]),
    "NONTEMPORAL": ("map", [("SPLIT", 1, (4, "UPCAST", False)), ("NONTEMPORAL", 0, None)]),
    "PREFETCH": ("map", [("SPLIT", 1, (4, "UPCAST", False)), ("PREFETCH", 0, 64)]),
    "NOLOCALS": ("map", [("NOLOCALS", None, None)]),
    "TC": ("product of bfloat16", [("SPLIT", 1, (4, "UPCAST", False)), ("TC", None, "pairs")]),
    "SPLIT_GLOBAL": ("map", [("SPLIT", 0, (2, "GLOBAL", False))]),
    "SPLIT_LOCAL": ("map", [("SPLIT", 0, (2, "LOCAL", False))]),
}
OF_WORKGROUPS = frozenset(("SPLIT_GLOBAL", "SPLIT_LOCAL"))


def acted(plan: LoopPlan, action: tuple) -> bool:
    """Whether the action is legal, on any axis where it names none."""
    op, axis, arg = action
    axes = [None] if op == "NOLOCALS" else range(len(plan.axes)) if axis is None else [axis]
    for k in axes:
        try:
            plan.act((op, k, arg))
        except ActionError:
            continue
        return True
    return False


@pytest.mark.parametrize("name", LAST)
def test_an_action_keeps_results_and_is_refused_when_it_is_off(name: str) -> None:
    program, actions = LAST[name]
    made = test_workgroup_actions if name in OF_WORKGROUPS else test_actions
    machine = test_workgroup_actions.GPU if name in OF_WORKGROUPS else test_actions.TARGET
    sink, arrays, wanted = made.made(program)
    plan = LoopPlan(sink, machine)
    assert all(acted(plan, a) for a in actions)
    assert row_name(plan.actions[-1]) == name
    done = apply_actions(sink, tuple(plan.actions), machine)
    if made is test_workgroup_actions:
        made.check(program, done)
    else:
        got = [a.copy() for a in arrays]
        made.run(done, got, f"test/{program}/{name}")
        for p in made.written(sink):
            k = p.arg.slot
            np.testing.assert_array_equal(got[k].view(p.dtype.numpy), wanted[k].view(p.dtype.numpy))
    with Context(DISABLE=name):
        other = LoopPlan(sink, machine)
        for a in plan.actions[:-1]:
            other.act(a)
        with pytest.raises(ActionError, match=f"{name} is switched off") as caught:
            other.act(plan.actions[-1])
        assert f"found: {name}" in str(caught.value)
        assert apply_actions(sink, tuple(plan.actions), machine) is apply_actions(sink, tuple(other.actions), machine)
        named = node("SINK", sink.src, (sink.arg or KernelInfo())._replace(actions=tuple(plan.actions)))
        assert choose_actions(named, machine).arg.actions == tuple(other.actions)


# ---- all of them -----------------------------------------------------------------------------------------------------
COVERED = {
    *IDENTITY_CASES, *IN_PARTS, *EXAMPLES, *KERNELS, *NARROW, "reduce_in_single", *LAST,
    *(d.name for op in GRAPHS for d in DECOMPOSE[op]),  # test_tables.py fails for one that no graph reaches
}  # fmt: skip


def uncovered(rows: dict[str, Row]) -> set[str]:
    return set(rows) - COVERED


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_every_row_has_a_case_that_fires_it(family) -> None:
    assert uncovered(family.rows) == set()


def test_a_row_without_a_case_is_found() -> None:
    assert uncovered(ACTION_ROWS.rows | {"planted": Row("planted", "1 is 2")}) == {"planted"}
    assert {r.name for r in ALGEBRA} <= COVERED
