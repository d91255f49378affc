"""Kernels whose axes a user wrote: types of ranges, SPECIALs, local memory, registers; kept as they are, or refused."""

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monolect import Context, dtypes
from monolect.backend.registry import Device
from monolect.base.errors import ActionError, CompileError, VerifyError
from monolect.ir.uop import build, const, idx, node, shape_source
from monolect.optimize.actions.split import MAX_SHAPED_ELEMENTS
from tests.strategies import COMPILED
from tests.unit.hand_kernels import EIGHT, F32, PROCESSORS, at, in_groups, load, loop, memory, run, sink


# ---- axes by hand ----------------------------------------------------------------------------------------------------
def by_threads(out, x):
    t, i = node("SPECIAL", (idx(4),), "thread0"), loop(0, 2)
    return sink(node("END", (node("STORE", (at(out, t * 2 + i), load(x, t * 2 + i) * 2.0)), i)))


def reversed_in_groups(actions):
    def kernel(out, x):
        i, j = loop(0, 2, "GLOBAL"), loop(1, 4, "LOCAL")
        shared = memory(4, "LOCAL")
        stored = node("STORE", (at(shared, j), load(x, i * 4 + j)))
        got = load(node("AFTER", (shared, node("BARRIER", (stored,)))), idx(3) - j)
        return sink(node("END", (node("STORE", (at(out, i * 4 + j), got)), i, j)), actions=actions)

    return kernel


@pytest.mark.parametrize("device", PROCESSORS)
def test_workgroups_are_refused_where_there_are_none(device: str) -> None:
    def barrier(out, x):
        i = loop(0, 8)
        shared = memory(8, "LOCAL")
        stored = node("STORE", (at(shared, i), load(x, i)))
        got = load(node("AFTER", (shared, node("BARRIER", (stored,)))), i)
        return sink(node("END", (node("STORE", (at(out, i), got)), i)))

    for kernel, what in (
        (in_groups, "SPECIAL [gl]idx0"),
        (reversed_in_groups(()), "GLOBAL range"),
        (barrier, "BARRIER"),
    ):
        with pytest.raises(VerifyError, match=f"{what} on a target without workgroups") as e:
            run(device, kernel, EIGHT, (8,))
        assert e.value.found == device.partition(":")[0] and "workgroups" in str(e.value.expected)


def test_workgroups_by_hand_run_where_they_are() -> None:
    np.testing.assert_array_equal(run("python:gpu", in_groups, EIGHT, (8,)), EIGHT)
    for actions in (None, ()):
        got = run("python:gpu", reversed_in_groups(actions), EIGHT, (8,))
        assert got.tolist() == [3, 2, 1, 0, 7, 6, 5, 4]
    with pytest.raises(VerifyError, match="unknown SPECIAL"):
        run("python:gpu", by_threads, EIGHT, (8,))


@pytest.mark.parametrize("device", PROCESSORS)
def test_threads_by_hand(device: str) -> None:
    np.testing.assert_array_equal(run(device, by_threads, EIGHT, (8,)), EIGHT * 2)

    def alike(out, x):
        t, i = node("SPECIAL", (idx(4),), "thread0"), loop(0, 8)
        value = load(x, i) + build("CAST", t, arg=F32)
        return sink(node("END", (node("STORE", (at(out, i), value)), i)))

    with pytest.raises(VerifyError, match="each thread makes"):
        run(device, alike, EIGHT, (8,))


@pytest.mark.parametrize("device", ["cpu", "c", "python:gpu"])
def test_local_memory_has_a_limit(device: str) -> None:
    def kernel(n):
        def made(out, x):
            i, table = loop(0, 8), memory(n, "LOCAL")
            filled = node("AFTER", (table, node("STORE", (at(table, i), load(x, i)))))
            return sink(node("END", (node("STORE", (at(out, i), load(filled, i))), i)))

        return made

    np.testing.assert_array_equal(run(device, kernel(8), EIGHT, (8,)), EIGHT)
    with pytest.raises(VerifyError, match="more LOCAL memory"):
        run(device, kernel(1 << 26), EIGHT, (8,))


@st.composite
def typed_loops(draw):
    """(sizes and types of output loops, of reductions, the reduction)."""
    sizes = st.sampled_from([1, 2, 3, 4, 8])
    types = st.sampled_from(["LOOP", "GLOBAL", "LOCAL", "THREAD", "UPCAST"])
    out = draw(st.lists(st.tuples(sizes, types), min_size=1, max_size=3))
    reduced = draw(st.lists(st.tuples(sizes, st.sampled_from(["REDUCE", "UNROLL", "GROUP_REDUCE"])), max_size=2))
    return out, reduced, draw(st.sampled_from(["ADD", "MAX"]))


def is_legal(device: str, out, reduced) -> bool:
    """Whether a device has the types of these axes, and enough lanes, elements of a vector and local memory."""

    def size(*types: str) -> int:
        return prod(n for n, t in out + reduced if t in types)

    if device != "python:gpu":
        launched, threads = {t for _, t in out} & {"GLOBAL", "LOCAL"}, [t for _, t in out if t == "THREAD"]
        return not launched and len(threads) < 2 and size("UPCAST", "UNROLL", "GROUP_REDUCE") <= MAX_SHAPED_ELEMENTS
    lanes, target = size("LOCAL", "GROUP_REDUCE"), Device[device].target
    partial_bytes = lanes * size("UPCAST") * 4 if size("GROUP_REDUCE") > 1 else 0
    fits = lanes <= 256 and partial_bytes <= target.local_bytes and size("UPCAST", "UNROLL") <= MAX_SHAPED_ELEMENTS
    return fits and all(t != "THREAD" for _, t in out)


@pytest.mark.sweep
@pytest.mark.parametrize("device", [*PROCESSORS, "python:gpu"])
@COMPILED
@given(case=typed_loops())
@example(case=([(8, "UPCAST")] * 3, [(8, "UNROLL")] * 2, "ADD"))  # a vector of too many elements
@example(case=([(8, "UPCAST")] * 3, [(8, "GROUP_REDUCE")] * 2, "ADD"))  # on a GPU, too much local memory
def test_types_of_axes_by_hand_keep_the_result_or_are_refused(device: str, case) -> None:
    out, reduced, op = case
    a = (np.arange(prod(n for n, _ in out + reduced)) % 17).astype(np.float32)

    def kernel(to, x):
        rs = [loop(k, *r) for k, r in enumerate(out)]
        qs = [loop(100 + k, *r) for k, r in enumerate(reduced)]
        place, source = idx(0), idx(0)
        for r, (n, _) in zip(rs, out, strict=True):
            place = place * n + r
        for r, (n, _) in zip(rs + qs, out + reduced, strict=True):
            source = source * n + r
        v = load(x, source)
        v = node("REDUCE", (v, *qs), (op, ())) if qs else v
        return sink(build("END", build("STORE", at(to, place), build("ADD", v, const(1.0, F32))), *rs))

    shape, axes = tuple(n for n, _ in out), tuple(range(len(out), len(out) + len(reduced)))
    whole = a.reshape([n for n, _ in out + reduced])
    want = {"ADD": np.add, "MAX": np.maximum}[op].reduce(whole, axes) + 1 if axes else whole + 1
    threads = [n for n, t in out if t == "THREAD"]
    legal = is_legal(device, out, reduced)
    try:
        got = run(device, kernel, a, shape)
    except (VerifyError, ActionError):
        assert not legal
    else:
        np.testing.assert_array_equal(got, want)
        assert legal or set(threads) == {1}


def test_actions_on_axes_by_hand_are_refused() -> None:
    with pytest.raises(ActionError, match="whose axis types a user fixed"):
        run("python:gpu", reversed_in_groups((("SPLIT", 0, (2, "UPCAST", False)),)), EIGHT, (8,))


@pytest.mark.parametrize("kind", ["GLOBAL", "LOCAL", "UPCAST", "THREAD"])
def test_a_loop_that_carries_a_sum_has_no_other_type(kind: str) -> None:
    def kernel(out, x):
        r, acc = loop(0, 8, kind), memory((), "REG")
        start = node("STORE", (acc, const(0.0, F32)))
        before = node("AFTER", (acc, start, r))
        total = node("STORE", (before, load(before) + load(x, r)))
        return sink(node("END", (node("STORE", (at(out, r), load(node("AFTER", (acc, total))))), r)))

    device = "python:gpu" if kind in ("GLOBAL", "LOCAL") else "cpu"
    with pytest.raises((VerifyError, ActionError)):
        run(device, kernel, EIGHT, (8,))


@pytest.mark.parametrize("kind", ["WARP", "CONTRACT"])
def test_types_that_only_a_matrix_unit_makes(kind: str) -> None:
    def kernel(out, x):
        r = loop(0, 8, kind)
        return sink(node("END", (node("STORE", (at(out, r), load(x, r))), r)))

    for device in ("cpu", "python:gpu"):
        with pytest.raises(VerifyError, match=f"a {kind} range by hand"):
            run(device, kernel, EIGHT, (8,))


# ---- REG memory ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", [*PROCESSORS, "python:gpu"])
def test_one_register_with_an_index(device: str) -> None:
    def kernel(out, x):
        acc, k, i = memory(1), loop(1, 8), loop(0, 8)
        before = node("AFTER", (acc, node("STORE", (at(acc, idx(0)), const(0.0, F32))), k))
        step = node("STORE", (at(before, idx(0)), load(before, idx(0)) + load(x, k)))
        total = load(node("AFTER", (acc, node("END", (step, k)))), idx(0))
        return sink(node("END", (node("STORE", (at(out, i), total)), i)))

    assert run(device, kernel, EIGHT, (8,)).tolist() == [28.0] * 8


def histogram(rows, n, shape, actions=None):
    """How often each number below prod(shape) is in each row of n, counted in registers of that shape."""

    def kernel(out, x):
        acc, size = memory(shape), prod(shape)
        i, j, q, w = loop(0, rows), loop(1, size), loop(2, n), loop(3, size)
        index = (lambda e: (e,)) if len(shape) == 1 else (lambda e: (e // shape[1], e % shape[1]))
        start = node("STORE", (at(node("AFTER", (acc, i)), *index(j)), const(0.0, F32)))
        before = node("AFTER", (acc, node("END", (start, j)), q))
        found = build("CAST", load(x, i * n + q), arg=dtypes.index)
        e = build("MAX", found, idx(0)) % size
        step = node("STORE", (at(before, *index(e)), load(before, *index(e)) + 1.0))
        counted = node("AFTER", (acc, node("END", (step, q))))
        store = node("STORE", (at(out, i * size + w), load(counted, *index(w))))
        return sink(node("END", (store, i, w)), actions=actions)

    return kernel


@pytest.mark.sweep
@pytest.mark.parametrize("shape", [(6,), (2, 3), (1,), (3, 1)])
@pytest.mark.parametrize("device", [*PROCESSORS, "python:gpu"])
def test_tables_in_registers(device: str, shape: tuple) -> None:
    a = np.random.default_rng(0).integers(0, prod(shape), (64, 20)).astype(np.float32)
    want = np.stack([np.bincount(r.astype(int), minlength=prod(shape)) for r in a])
    np.testing.assert_array_equal(run(device, histogram(64, 20, shape), a, want.shape), want)
    with Context(NOOPT=1, VERIFY=2):
        np.testing.assert_array_equal(run(device, histogram(64, 20, shape), a, want.shape), want)


def test_rows_of_tables_in_registers_are_no_lanes() -> None:
    a = np.random.default_rng(0).integers(0, 6, (8, 20)).astype(np.float32)
    want = np.stack([np.bincount(r.astype(int), minlength=6) for r in a])
    for k, kind in itertools.product(range(4), ("UPCAST", "THREAD", "LOOP")):
        actions = (("SPLIT", k, (2, kind, kind == "THREAD")),)
        try:
            got = run("cpu", histogram(8, 20, (6,), actions), a, want.shape)
        except ActionError:
            assert kind != "LOOP"
        else:
            np.testing.assert_array_equal(got, want)


def test_registers_that_are_too_many() -> None:
    a = np.zeros((1, 2), np.float32)
    with pytest.raises(CompileError, match="indexed registers do not fit"):
        run("cpu", histogram(1, 2, (1 << 26,)), a, (1, 1 << 26))


@pytest.mark.parametrize("device", PROCESSORS)
def test_rows_and_the_whole_of_memory_of_several_axes(device: str) -> None:
    def kernel(out, x):
        table, i = memory((2, 4), "LOCAL"), loop(0, 3)
        flat = build("RESHAPE", shape_source(range(8)), shape_source((2, 4)))
        filled = node("AFTER", (table, node("STORE", (table, load(x, flat)))))
        row = load(filled, idx(1))
        again = node("AFTER", (filled, node("STORE", (at(filled, idx(0)), row))))
        return sink(node("END", (node("STORE", (at(out, i * 8 + flat), load(again))), i)))

    want = np.tile(EIGHT.reshape(2, 4)[[1, 1]], (3, 1, 1))
    np.testing.assert_array_equal(run(device, kernel, EIGHT, (3, 2, 4)), want)


@pytest.mark.parametrize("device", [*PROCESSORS, "python:gpu"])
@pytest.mark.parametrize("space", ["LOCAL", "REG"])
def test_registers_and_memory_that_are_read_as_a_whole_and_by_element(device: str, space: str) -> None:
    def kernel(out, x):
        table, i, row = memory(4, space), loop(0, 3), shape_source(range(4))
        filled = node("AFTER", (table, node("STORE", (table, load(x, row)))))
        doubled = node("AFTER", (table, node("STORE", (filled, build("MUL", load(filled), const(2.0, F32))))))
        return sink(node("END", (node("STORE", (at(out, i), load(doubled, i + 1))), i)))

    np.testing.assert_array_equal(run(device, kernel, EIGHT[:4], (3,)), [2, 4, 6])


def test_a_whole_argument_of_a_kernel() -> None:
    def kernel(out, x):
        return sink(node("STORE", (out, build("ADD", load(x), const(1.0, F32)))))

    for device in PROCESSORS:
        np.testing.assert_array_equal(run(device, kernel, EIGHT, (8,)), EIGHT + 1)
