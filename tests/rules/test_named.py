"""Each row of a named rule fires, and keeps the meaning; a row without a case fails."""

import ast
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import monolect
from monolect import Context
from monolect.ir.check.arrays import storage
from monolect.ir.check.interp import evaluate, run_kernel
from monolect.ir.ops import KernelInfo
from monolect.ir.rewrite.identities import FORMS, IDENTITIES, JOINED
from monolect.ir.rewrite.named_rules import recorded
from monolect.ir.uop import UOp, build, const, idx, node, toposort
from monolect.pipeline import FAMILIES, PIPELINE, needed
from tests.rules.identities import CASES, F32, MEMORY, X, gated, loop
from tests.strategies import assert_same, edge_values, index_graphs, normal_form, range_grid, tensor_graphs

ROOT = Path(monolect.__file__).parent
DRAWS = 24


def bound(us: list[UOp], rng: np.random.Generator) -> dict[UOp, Any]:
    """Values of all leaves: each loop goes through its iterations, arrays have edge values among random ones."""
    order = toposort(*us)
    env: dict[UOp, Any] = {}
    for p in order:
        if p.op == "PARAM" and p.arg.min is not None:
            env[p] = np.int64(rng.integers(p.arg.min, p.arg.max + 1))
        elif p.op in ("PARAM", "BUFFER"):
            pick = rng.choice(np.array([*edge_values(p.dtype), *range(10)], object), p.shape)
            env[p] = np.array(pick, storage(p.dtype))
    loops = sorted((u for u in order if u.op == "RANGE"), key=lambda u: u.arg[0])
    for k, r in enumerate(loops):
        n = r.src[0].value if r.src[0].op == "CONST" else int(env[r.src[0]])
        env[r] = np.arange(n).reshape((-1,) + (1,) * (len(loops) - k - 1))
    return env


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_an_identity_fires_and_keeps_the_value(name: str) -> None:
    rng = np.random.default_rng(len(name))
    fired = 0
    for _ in range(DRAWS):
        op, src, arg = CASES[name](rng)
        with recorded() as found:
            after = build(op, *src, arg=arg)
        before = node(op, src, arg)
        told = [(n, b, a) for n, b, a in found if name in n.split(JOINED)]
        fired += bool(told)
        assert after.dtype is before.dtype
        for n, b, a in [*told, (name, before, after)]:
            reduced = {r for r in b.src[1:] if r.op == "RANGE"} if b.op == "REDUCE" else set()
            env = {k: v for k, v in bound([b, a], rng).items() if k not in reduced}
            want, got = evaluate([b, a], env)
            shape = np.broadcast_shapes(want.shape, got.shape)
            assert_same(np.broadcast_to(got, shape), np.broadcast_to(want, shape), f"{n}: {b} {a}")
        with Context(DISABLE=name if not IDENTITIES.rows[name].needed else ""), recorded() as off:
            build(op, *src, arg=arg)
        assert IDENTITIES.rows[name].needed or not any(name in n.split(JOINED) for n, _, _ in off)
    assert fired, f"no draw fires {name}"


def effect(n: int, gate: UOp | None = None) -> UOp:
    """A kernel that stores one value in each of n iterations."""
    r = loop(1, n)
    place = node("INDEX", (MEMORY, idx(3)))
    return build("END", node("STORE", (place, const(2.0, F32)) + ((gate,) if gate is not None else ())), r)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_an_effect_in_a_loop_happens_in_its_iterations(n: int) -> None:
    with recorded() as found:
        end = effect(n)
    assert [name for name, _, _ in found] == ["end_in_loops"]
    memory = np.zeros(13, np.float32)
    run_kernel(node("SINK", (end,), KernelInfo()), {MEMORY: memory})
    assert memory[3] == (2.0 if n else 0.0)


def test_a_store_behind_an_open_gate_is_a_store() -> None:
    true = const(True, monolect.dtypes.bool)
    index, _, _ = gated(MEMORY, X, const(0.0, F32), true)
    with recorded() as found:
        u = build("STORE", index, const(1.0, F32), true)
    assert len(u.src) == 2 and [name for name, _, _ in found] == ["gate_true"]


IN_PARTS = {"end_in_loops"}  # tested above


def test_every_identity_has_a_case() -> None:
    assert set(CASES) | IN_PARTS == set(IDENTITIES.rows)
    assert set(IDENTITIES.rows) >= FORMS


def allowed_names() -> Counter[str]:
    """The identities that the code names."""
    out: Counter[str] = Counter()
    for file in ("ir/rewrite/index.py", "ir/rewrite/normal.py"):
        for call in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "allowed":
                out.update(
                    x.value for x in ast.walk(call) if isinstance(x, ast.Constant) and x.value in IDENTITIES.rows
                )
                strings = [x.value for a in call.args for x in ast.walk(a) if isinstance(x, ast.Constant)]
                assert all(s in IDENTITIES.rows or s == "x" for s in strings if isinstance(s, str)), strings
    return out


def test_the_code_names_each_identity_and_no_other() -> None:
    assert set(allowed_names()) == set(IDENTITIES.rows)


@given(index_graphs(), st.sampled_from([n for n, row in IDENTITIES.rows.items() if not row.needed] + [""]))
def test_index_expressions_keep_their_value_without_any_identity(u: UOp, name: str) -> None:
    """With one identity off, or all of them."""
    with Context(DISABLE=name) if name else Context(SIMPLIFY=0):
        v = normal_form(u)
    before, after = evaluate([u, v], range_grid(node("SINK", (u, loop(0, 4), loop(1, 6), loop(2, 5)))))
    np.testing.assert_array_equal(*np.broadcast_arrays(before, after))


@given(tensor_graphs(), st.integers(0, 9))
def test_tensors_keep_their_value_without_identities(u: UOp, seed: int) -> None:
    with Context(SIMPLIFY=0):
        v = normal_form(u)
    env = bound([u], np.random.default_rng(seed))
    assert_same(*reversed(evaluate([u, v], env)))


# ---- all rows --------------------------------------------------------------------------------------------------------
def test_names_are_words_and_unique() -> None:
    names = [row.name for family in FAMILIES for row in family.rows.values()] + [p.name for p in PIPELINE]
    assert max(Counter(names).values()) == 1
    assert all(name.isidentifier() for name in names)
    assert set(needed()) == set(names)
    for family in FAMILIES:
        assert all(row.text and row.text != row.name for row in family.rows.values()), family.name
