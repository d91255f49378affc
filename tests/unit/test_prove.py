"""Proofs of indices: what intervals, linear reasoning and Z3 show, what they must not, and every kernel of a zoo."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor
from monolect.base.dtype import dtypes
from monolect.base.errors import VerifyError
from monolect.ir.check import prove
from monolect.ir.check.interp import evaluate
from monolect.ir.check.prove import accesses, check_bounds, infix, is_inside
from monolect.ir.ops import BufferArg, KernelInfo, ParamArg
from monolect.ir.rewrite.normal import TRUE, less, negate, smaller, within
from monolect.ir.uop import UOp, build, const, idx, node, shape_source, toposort
from monolect.pipeline import schedule
from monolect.runtime.realize.programs import compile_kernels
from monolect.schedule.callify import over_params


def loop(n: Any, number: int = 0) -> UOp:
    return node("RANGE", (idx(n),), (number, "LOOP"))


def variable(name: str, lo: int, hi: int) -> UOp:
    return node("PARAM", (), ParamArg(9, dtypes.index, None, None, name, lo, hi))


def param(n: Any, slot: int = 0) -> UOp:
    return node("PARAM", (shape_source((n,)),), ParamArg(slot, dtypes.float32, "cpu"))


def loaded(n: int = 8) -> UOp:
    """A number read from memory, about which nothing is known."""
    view = node("INDEX", (node("PARAM", (shape_source((n,)),), ParamArg(5, dtypes.int32, "cpu")), loop(n, 7)))
    return build("CAST", node("LOAD", (view,)), arg=dtypes.index)


def proves(index: Any, size: Any, *gates: UOp) -> bool:
    gate = TRUE
    for g in gates:
        gate = build("AND", gate, g)
    return is_inside(idx(index), idx(size), None if gate is TRUE else gate)


def denied(condition: UOp) -> UOp:
    """The node that says that `condition` is false, which no identity replaces."""
    return node("CMPNE", (condition, TRUE))


@pytest.fixture
def no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is proven in these tests is proven without Z3."""
    monkeypatch.setattr(prove, "_SOLVER", False)


# ---- what is proven --------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("no_solver")
class TestWithoutZ3:
    def test_intervals(self) -> None:
        r, s = loop(8), loop(5, 1)
        assert proves(r * 5 + s, 40) and not proves(r * 5 + s, 39)
        assert proves(r * -1 + 7, 8) and not proves(r * -1 + 6, 8)

    def test_a_gate_narrows_one_range(self) -> None:
        r = loop(8)
        assert proves(r * 3 + -6, 12, within(r, 2, 6))
        assert not proves(r * 3 + -6, 12, within(r, 1, 6))
        assert not proves(r * 3 + -6, 12, within(r, 2, 7))

    def test_a_gate_that_never_holds(self) -> None:
        assert proves(loop(8) + 100, 4, less(loop(8), 3), less(idx(5), loop(8)))

    def test_a_gate_on_a_sum(self) -> None:
        r, s = loop(6), loop(3, 1)
        assert proves(r + s + -1, 6, within(r + s + -1, 0, 6))
        assert proves((r + s + -1) * 10 + loop(10, 2), 60, within(r + s + -1, 0, 6))
        assert not proves(r + s + -1, 5, within(r + s + -1, 0, 6))

    def test_a_convolution_with_padding_stride_and_dilation(self) -> None:
        y, x, i, j, c = (loop(n, k) for k, n in enumerate((14, 14, 5, 5, 3)))
        row, col = y * 2 + i * 3 + -2, x * 2 + j + -2
        assert proves(c * 784 + row * 28 + col, 3 * 784, within(row, 0, 28), within(col, 0, 28))
        assert not proves(c * 784 + row * 28 + col, 3 * 784, within(row, 0, 28))

    def test_divisions_and_remainders(self) -> None:
        r = loop(100)
        assert proves(r // 7 * 7 + r % 7, 100)
        assert proves((r // 10 + -2) * 10 + r % 10, 30, within(r // 10, 2, 5))
        assert proves(r + -20, 30, within(r // 10, 2, 5))
        assert not proves(r + -20, 29, within(r // 10, 2, 5))

    def test_loops_whose_bound_depends_on_another(self) -> None:
        t = node("SPECIAL", (idx(4),), "thread0")
        most = build("MAX", idx(-3), t * 3 + -10) * -1  # min(3, 10 - 3 t): ten elements for four threads
        assert proves(t * 3 + loop(most, 1), 10)
        assert not proves(t * 3 + loop(most, 1), 9)

    def test_symbolic_sizes(self) -> None:
        n, m = variable("n", 1, 64), variable("m", 1, 8)
        r, s, t = loop(n), loop(m, 1), loop(5, 2)
        assert proves(r, n) and not proves(r + 1, n)
        assert proves(r * m + s, n * m) and proves((r * m + s) * 5 + t, n * m * 5)
        assert not proves(r * m + s + 1, n * m)
        assert proves(n * -1 + r + n, n)

    def test_quotients_and_remainders_of_a_symbolic_size(self) -> None:
        n = variable("n", 2, 102)
        q, r = (build(op, loop(n * 16), n) for op in ("IDIV", "MOD"))
        rest = loop(3, 1) * 16 + loop(16, 2)
        assert proves(q, 16) and not proves(q, 15) and proves(r * 3 + 2, n * 3) and not proves(r * 3 + 3, n * 3)
        assert proves(q * 3366 + r * 33 + rest, 16 * 3366, less(rest, 33))
        assert not proves(q * 3366 + r * 33 + rest, 16 * 3366, less(rest, 34))
        size = n * 16
        whole = loop(3, 2) * 16 + loop(16, 3) + size - 37
        again = build("MOD", whole, size) + build("IDIV", whole, size) * size
        inside = within(whole, 0, size)
        assert proves(again, size, inside) and proves(loop(33, 1) * size + again, size * 33, inside)
        assert not proves(again, size) and not proves(loop(34, 1) * size + again, size * 33, inside)

    def test_quotient_and_remainder_of_one_size_are_the_whole(self) -> None:
        size = variable("n", 17, 22) * -4 + 89
        whole = loop(16, 2) + loop(2, 3) * 16 + size - 25
        at = build("MOD", whole, size) + build("IDIV", whole, size) * size + (loop(3) - 1) * size
        gates = less(idx(0), loop(3)), within(whole, 0, size)
        assert proves(at, size * 2, *gates) and proves(at * 64 + loop(64, 4), size * 128, *gates)
        assert not proves(at, size * 2 - 1, *gates) and not proves(at + 1, size * 2, *gates)
        assert not proves(at, size * 2, gates[1]) and not proves(at, size * 2, gates[0])

    def test_rows_of_a_size_that_falls(self) -> None:
        size = variable("n", 5, 36) * -1 + 41
        at = loop(33) * size + loop(size, 1)
        assert proves(at, size * 33) and not proves(at + 1, size * 33) and not proves(at, size * 32)

    def test_quotients_of_quotients(self) -> None:
        n, whole = variable("n", 1, 3), build("IDIV", loop(variable("n", 1, 3) * 16896), idx(64))
        q, r = (build(op, whole, n * 8) for op in ("IDIV", "MOD"))
        at = q * 1856 + r * 64 + build("MOD", loop(n * 16896), idx(64))
        assert proves(at, 61248) and not proves(at + 321, 61248) and not proves(at, 60927)

    def test_multiples_of_a_size_leave_its_quotient(self) -> None:
        n, row = variable("n", 2, 18), loop(8)
        at = loop(23, 1) + row * n
        q, r = (build(op, at, n) for op in ("IDIV", "MOD"))
        inside = less(loop(23, 1), n)
        assert proves(q * 23 + r, 184, inside) and not proves(q * 23 + r, 184)
        assert not proves(q * 23 + r, 178, inside) and not proves(q * 24 + r, 184, inside)
        size = n * -2 + 41
        q, r = (build(op, loop(size, 1) + row * size, size) for op in ("IDIV", "MOD"))
        assert proves(q * 37 + r, 37 * 8) and not proves(q * 37 + r + 1, 37 * 8) and not proves(q, 7)
        x = loop(34, 1) + n + row * n * 2
        q, r = (build(op, x, n * 2) for op in ("IDIV", "MOD"))
        gates = less(loop(34, 1), n), less(r, n * 2)
        assert proves(q * 36 + r, 36 * 8, *gates) and not proves(q * 36 + r + 1, 36 * 8, *gates)
        assert proves(q * 36 + r - n, 36 * 8 - n, gates[0]) and not proves(q * 36 + r - n, 36 * 8 - n, gates[1])

    def test_a_loop_in_blocks_of_a_multiple_of_a_size(self) -> None:
        n = variable("n", 2, 7)
        x = loop(n) * 64 + loop(4, 1) * 16 + loop(16, 2)
        q, r = (build(op, x, n * 4) for op in ("IDIV", "MOD"))
        assert proves(q * 28 + r, 448) and not proves(q * 28 + r + 1, 448) and not proves(q, 15)

    @pytest.mark.sweep
    @pytest.mark.parametrize("threads", [2, 3])
    def test_a_loop_that_threads_take_in_turns(self, threads: int) -> None:
        n, thread = variable("n", 1, 1024), node("SPECIAL", (idx(threads),), "thread0")
        turns = build("IDIV", n * 127 + thread * -1 + (threads - 1), idx(threads))
        x = loop(turns) * threads + thread
        q, r = (build(op, x, n) for op in ("IDIV", "MOD"))
        assert proves(q * 1024 + r, 127 * 1024) and proves(r * 127 + q, n * 127)
        assert not proves(q, 126) and not proves(r * 127 + q, n * 127 - 1)

    def test_few_facts_are_found_among_many(self) -> None:
        n = variable("n", 5, 6)
        thread = node("SPECIAL", (idx(2),), "thread0")
        at = loop(n * 8) + build("MOD", idx(-5), n * 8) + (loop(32, 1) + thread * 32) * n * 16
        assert proves(at, n * 1024) and not proves(at + 6, n * 1024)  # 1024 n - 6 at most

    def test_bounds_of_a_quotient_bound_what_is_divided(self) -> None:
        n = variable("n", 2, 10)
        size = n * -16 + 165
        q, r = (build(op, loop(size * 2), size) for op in ("IDIV", "MOD"))
        second = within(q, 1, 2)
        assert proves(n * 16 + r + (q - 1) * size, 165, second) and not proves(n * 16 + r + (q - 1) * size, 165)
        assert proves(loop(size * 2) - size, size, second) and not proves(loop(size * 2), size, second)
        assert proves(loop(size * 2), size, less(q, idx(1))) and not proves(loop(size * 2), size - 1, less(q, idx(1)))

    def test_a_quotient_of_what_is_less_than_the_size_is_0(self) -> None:
        size = variable("n", 1, 3) * -4 + 17
        back = loop(size) * -1 + size - 1
        at = build("IDIV", back, size) * 17 + build("MOD", back, size) - size
        assert proves(at + 17, 17) and not proves(at + 12, 17) and not proves(at + 18, 17)

    def test_clamped_indices(self) -> None:
        i, n = loaded(), variable("n", 1, 64)
        low = build("MAX", i, idx(0))
        assert not proves(low, 10) and not proves(i, 10)
        assert proves(build("MAX", low * -1, idx(-9)) * -1, 10)
        assert proves(build("MAX", low * -1, n * -1 + 1) * -1, n)
        assert proves(build("MAX", low * -1, n * -1 + 1) * -1 + loop(3) * n, n * 3)

    def test_choices(self) -> None:
        r = loop(10)
        assert proves(build("WHERE", less(r, 4), r + 6, r + -4), 10)
        assert not proves(build("WHERE", less(r, 4), r + 6, r + -5), 9)

    def test_loaded_indices_behind_a_gate(self) -> None:
        i = loaded()
        assert proves(i * 4 + loop(4), 40, within(i, 0, 10))
        assert not proves(i * 4 + loop(4), 40, less(i, 10))

    def test_a_comparison_that_is_denied(self) -> None:
        """Such conditions stay where identities are switched off."""
        i, r, s = loaded(), loop(8), loop(9, 1)
        assert proves((r * 10 + i) % 10 + (r * 10 + i) // 10 * 10, 80, denied(less(i, 0)), less(i, 10))
        assert not proves((r * 10 + i) % 10 + (r * 10 + i) // 10 * 10, 80, denied(less(i, 0)), less(i, 11))
        assert proves(r + -3, 5, denied(less(r, 3))) and not proves(r + -3, 5, denied(less(r, 2)))
        assert proves(r + s * -1, 8, denied(less(r, s))) and not proves(r + s * -1, 8, denied(less(r, s + -1)))

    def test_equality(self) -> None:
        i, r = loaded(), loop(10)
        equal = build("CMPNE", build("CMPNE", i, r), TRUE)
        assert proves(i, 10, equal) and not proves(i, 9, equal)


def test_z3_sees_what_is_not_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("z3")
    r, s = loop(10), loop(10, 1)
    either = build("OR", less(r + s, 5), less(r + s, 7))
    assert proves(r + s, 7, either) and not proves(r + s, 6, either)
    square = r * r
    assert proves(square, 26, less(r, 6))
    monkeypatch.setattr(prove, "_SOLVER", False)
    assert not proves(r + s, 7, either)


# ---- what is claimed is true -----------------------------------------------------------------------------------------
@st.composite
def cases(draw: st.DrawFn) -> tuple[UOp, int, list[UOp], list[UOp]]:
    """A random index, size and gates over two or three short loops."""
    loops = [loop(draw(st.integers(1, 5)), k) for k in range(draw(st.integers(2, 3)))]
    number = st.integers(-4, 4)

    def expression(depth: int) -> UOp:
        kind = draw(st.sampled_from(("sum", "sum", "div", "mod", "max")))
        out = idx(draw(number))
        for r in loops:
            out = out + r * draw(number)
        if depth and kind != "sum":
            inner = expression(depth - 1)
            n = draw(st.integers(2, 5))
            extra = {"div": inner // n, "mod": inner % n, "max": build("MAX", inner, idx(draw(number)))}[kind]
            out = out + extra * draw(number)
        return out

    gates = [less(expression(1), draw(st.integers(-3, 8))) for _ in range(draw(st.integers(0, 3)))]
    gates = [denied(g) if draw(st.booleans()) else g for g in gates]
    return expression(2), draw(st.integers(1, 30)), gates, loops


@given(cases(), st.booleans())
def test_a_proven_index_is_inside(case: tuple[UOp, int, list[UOp], list[UOp]], solver: bool) -> None:
    index, size, gates, loops = case
    before, prove._SOLVER = prove._SOLVER, solver
    try:
        proven = proves(index, size, *gates)
    finally:
        prove._SOLVER = before
    if not proven and not solver:
        return
    inside = True
    for values in product(*(range(r.src[0].value) for r in loops)):
        env = dict(zip(loops, values, strict=True))
        at, *on = evaluate((index, *gates), env)
        inside &= not all(on) or 0 <= at < size
    assert inside or not proven
    if solver:
        assert proven == inside, "Z3 decides everything that small"


def numbers_in_memory() -> st.SearchStrategy[int]:
    """Small ones, and those near to where 64 bits end, also once they are multiplied by 2 to 5."""
    ends = st.builds(lambda k, j, d: j * 2**64 // k + d, st.integers(1, 5), st.integers(0, 4), st.integers(-20, 20))
    return st.integers(-40, 40) | (ends | ends.map(lambda x: x + 2**63)).map(lambda x: (x + 2**63) % 2**64 - 2**63)


@st.composite
def cases_from_memory(draw: st.DrawFn) -> tuple[UOp, int, UOp, list[UOp]]:
    """An index made of a number in memory and a loop, a size, and a gate that compares what the index is made of."""
    v = node("PARAM", (), ParamArg(9, dtypes.index, None, None, "v", None, None))
    r, number = loop(4), st.integers(-5, 5)
    line = v * draw(st.integers(1, 5)) + r * draw(number) + draw(number)
    n, most = draw(st.integers(1, 5)), draw(st.integers(1, 30))
    part = draw(st.sampled_from((v, line, v + draw(number), line // n, line % n)))
    index = draw(st.sampled_from((part, part, build("MAX", part, idx(0)), smaller(part, n))))
    if draw(st.booleans()):
        index = build("WHERE", draw(st.sampled_from((v, line))) < n, index, idx(0))
    compared = draw(st.sampled_from((v, line, line)))
    positive = draw(st.sampled_from((negate(less(compared, 0)), denied(less(compared, 0)))))
    gate = draw(
        st.sampled_from((within(compared, 0, most), less(compared, most), positive, positive & less(compared, most)))
    )
    return index, draw(st.sampled_from((most, most // n + 2, 30))), gate, [v, r]


@settings(max_examples=settings().max_examples * 8)
@given(cases_from_memory(), st.lists(numbers_in_memory(), min_size=10, max_size=10))
def test_a_proven_index_that_comes_from_memory_is_inside(case: Any, numbers: list[int]) -> None:
    """Also where index arithmetic overflows."""
    index, size, gate, (v, r) = case
    if not is_inside(index, idx(size), gate, solver=False):
        return
    with np.errstate(over="ignore"):
        for number, k in product(numbers, (0, 3)):
            at, on = evaluate((index, gate), {v: np.int64(number), r: np.int64(k)})
            assert not on or 0 <= at < size, (number, k)


def test_what_a_cast_or_an_overflow_wraps_is_not_proven() -> None:
    """Each is inside as whole numbers are, and not in 64 bits."""
    for d in (dtypes.uint64, dtypes.int64, dtypes.int8):
        read = node("LOAD", (node("INDEX", (node("PARAM", (shape_source((8,)),), ParamArg(5, d, "cpu")), loop(8, 7))),))
        v = build("CAST", read, arg=dtypes.index)
        assert not proves(build("WHERE", v < 15, v, idx(15)), 16)
        assert proves(build("WHERE", within(v, 0, 15), v, idx(15)), 16)
        assert proves(v, 16, within(v, 0, 16)) and proves(v * 4 + loop(4), 64, within(v, 0, 16))
        doubled = build("CAST", build("ADD", read, read), arg=dtypes.index)
        assert not proves(doubled, 200, within(v, 0, 100)) or d.bits == 64
        if d.bits == 64:
            assert not proves(v, 16, less(v * 4, 64), less(-1, v * 4 + loop(4)))
            assert not proves((v * 4 + loop(4)) // 3, 30, less(v * 4 + loop(4) * 2, 64), less(-1, v * 4 + loop(4) * 2))


# ---- kernels ---------------------------------------------------------------------------------------------------------
def kernel(index: UOp, size: Any, *gate: UOp, op: str = "LOAD") -> UOp:
    r = next(u for u in toposort(index) if u.op == "RANGE")
    place = node("INDEX", (param(size, 1), index))
    if op == "LOAD":
        value = node("LOAD", (place, const(0.0, dtypes.float32), *gate)) if gate else node("LOAD", (place,))
        effect = node("STORE", (node("INDEX", (param(r.src[0].value), r)), value))
    else:
        effect = node(op, (place, const(1.0, dtypes.float32), *gate))
    return node("SINK", (node("END", (effect, r)),), KernelInfo("planted"))


@pytest.mark.parametrize("op", ["LOAD", "STORE", "ATOMICADD"])
def test_a_planted_index_is_found(op: str) -> None:
    check_bounds(kernel(loop(8) + 1, 9, op=op))
    with pytest.raises(VerifyError) as e:
        check_bounds(kernel(loop(8) + 1, 8, op=op))
    text = str(e.value)
    for part in ("kernel planted", op, "PARAM 1", "r0 + 1", "r0 < 8", "no gate", "0 <= index < 8", "[1, 8]"):
        assert part in text


def test_the_error_shows_gate_and_line() -> None:
    r = loop(8)
    sink = kernel(r + 1, 8, less(0, r))
    load = next(u for u in toposort(sink) if u.op == "LOAD")
    load.origin = (__file__, 12, "shifted")
    with pytest.raises(VerifyError) as e:
        check_bounds(sink)
    assert "gate r0*-1 < 0" in e.value.message and "shifted" in e.value.message
    assert e.value.line == (__file__, 12)


@pytest.mark.parametrize("is_installed", [True, False])
def test_the_error_says_if_the_solver_is_missing(monkeypatch: pytest.MonkeyPatch, is_installed: bool) -> None:
    monkeypatch.setattr(prove, "find_spec", lambda name: object() if is_installed else None)
    with pytest.raises(VerifyError) as e:
        check_bounds(kernel(loop(8) + 1, 8))
    assert ("pip install z3-solver" in str(e.value)) != is_installed


def test_local_memory_and_several_axes() -> None:
    memory = node("BUFFER", (shape_source((4, 6)),), BufferArg(3, dtypes.float32, None, "LOCAL"))
    i, j = loop(4), loop(6, 1)
    good = node("LOAD", (node("INDEX", (memory, i, j)),))
    assert [(a.index, a.size.value) for a in accesses(good)] == [(i, 4), (j, 6)]
    bad = node("LOAD", (node("INDEX", (memory, i, j + 1)),))
    end = node("END", (node("STORE", (node("INDEX", (param(24), i * 6 + j)), bad)), i, j))
    with pytest.raises(VerifyError, match="BUFFER 3"):
        check_bounds(node("SINK", (end,), KernelInfo("local")))


def test_infix() -> None:
    r, s = loop(8), loop(3, 1)
    assert infix((r * 4 + s) // 3 % 5) == "((r0*4 + r1)//3)%5"
    assert infix(build("AND", less(r, 3), less(s, variable("n", 1, 5)))).count(" and ") == 1


rng = np.random.default_rng(0)


def t(*shape: int) -> Tensor:
    return Tensor(rng.standard_normal(shape).astype(np.float32))


def embedded() -> Tensor:
    w = Tensor(rng.standard_normal((20, 8)).astype(np.float32), requires_grad=True)
    (w[Tensor(np.array([1, 2, 3, 1]))] ** 2).sum().backward()
    return w.grad


def convolved() -> Tensor:
    x = Tensor(rng.standard_normal((2, 3, 12, 12)).astype(np.float32), requires_grad=True)
    y = x.conv2d(t(4, 3, 3, 3), padding=1).relu().max_pool2d(2)
    (y * y).mean().backward()
    return x.grad


INDICES = np.array([0, 3, -1, 5], np.int32)
ZOO: dict[str, Callable[[], Tensor]] = {
    "pad": lambda: t(7, 5).pad((3, 0, 1, 2)) + 1,
    "conv": lambda: t(2, 3, 9, 9).conv2d(t(4, 3, 3, 3), padding=1),
    "conv strided": lambda: t(2, 3, 28, 28).conv2d(t(4, 3, 5, 5), padding=2, stride=2),
    "conv dilated in groups": lambda: t(2, 4, 13, 13).conv2d(t(8, 2, 3, 3), padding=2, dilation=2, groups=2),
    "conv transposed": lambda: t(2, 4, 7, 7).conv_transpose2d(t(4, 3, 3, 3), stride=2, padding=1, output_padding=1),
    "conv backward": convolved,
    "max pool": lambda: t(2, 3, 13, 13).max_pool2d(3, 2, padding=1),
    "average pool": lambda: t(2, 3, 13, 13).avg_pool2d(3, 2, padding=1),
    "cat": lambda: Tensor.cat([t(3, 4), t(5, 4), t(1, 4)], dim=0) * 2,
    "stack": lambda: Tensor.stack([t(3, 4), t(3, 4)], dim=1) + 1,
    "flip": lambda: t(6, 7).flip(0, 1) * 2,
    "roll": lambda: t(6, 7).roll(2, 1) + 1,
    "slices": lambda: t(20, 9)[3:17:2, ::-1] + t(7, 9),
    "tril": lambda: t(9, 9).tril(),
    "diagonal": lambda: t(7, 7).diagonal() * 2,
    "unfold": lambda: t(3, 20).unfold(1, 5, 3).sum(2),
    "gather": lambda: t(6, 7)[Tensor(INDICES)],
    "gather along": lambda: t(6, 7).gather(0, Tensor(np.array([[0, 5], [2, 3]]))),
    "scatter": lambda: t(6, 7).scatter(0, Tensor(np.array([[0, 5], [2, 3]])), t(2, 2)),
    "scatter add": embedded,
    "cumsum": lambda: t(10, 33).cumsum(1),
    "long cumsum": lambda: t(10007).cumsum(0),
    "cumprod": lambda: t(4, 9).cumprod(0),
    "matmul with tails": lambda: t(33, 65) @ t(65, 17),
    "blocked matmul": lambda: t(256, 700) @ t(700, 512),
    "batched matmul": lambda: t(3, 20, 30) @ t(3, 30, 10),
    "threads with a clipped bound": lambda: t(100003) * 2 + 1,
    "rows": lambda: (t(1001, 333) * 2).sum(1),
    "columns": lambda: t(1000, 37).sum(0),
    "all": lambda: t(100001).sum(),
    "softmax": lambda: t(64, 100).softmax(-1),
    "argmax": lambda: t(5, 60).argmax(1),
    "var": lambda: t(50, 77).var(-1),
    "attention": lambda: t(2, 2, 10, 8).scaled_dot_product_attention(t(2, 2, 10, 8), t(2, 2, 10, 8), is_causal=True),
}


@pytest.mark.sweep
@pytest.mark.parametrize("device", ["cpu", "null", "python"])
@pytest.mark.parametrize("name", ZOO)
def test_every_kernel_is_proven(name: str, device: str, no_solver: None) -> None:
    """What the schedule and the optimizer make, without Z3; the null device has other vectors and threads."""
    sink, _, _ = over_params([ZOO[name]().uop])
    kernels = [c.src[0] for c in schedule(list(sink.src), device).linear.src]
    for k in kernels:
        check_bounds(k)
    with Context(CHECK_BOUNDS=1, NOOPT=0):
        compile_kernels(kernels, device)


# ---- integer tensors as indices --------------------------------------------------------------------------------------
def test_reads_out_of_range_are_clamped_and_writes_dropped() -> None:
    x = np.arange(5, dtype=np.float32)
    far = Tensor(np.array([-100, 0, 4, 100], np.int64))
    src = Tensor(np.full(4, 7, np.float32))
    with Context(CHECK_BOUNDS=0):  # which refuses these indices where the user gives them
        read = Tensor(x)[far]
        written = Tensor(x).scatter(0, far, src)
        added = Tensor(x).scatter_add(0, far, src)
    np.testing.assert_array_equal(read.numpy(), [0, 0, 4, 4])
    np.testing.assert_array_equal(written.numpy(), [7, 1, 2, 3, 7])
    np.testing.assert_array_equal(added.numpy(), [7, 1, 2, 3, 11])


def counted(*shape: int) -> UOp:
    """0, 1, 2 and so on, as a block."""
    flat = shape_source(range(np.prod(shape)))
    return build("RESHAPE", flat, shape_source(shape))


def test_blocks_of_counted_places() -> None:
    """What somebody wrote with vectors: elements are loops, those of other axes others."""
    i, block, rows, lanes = loop(3), counted(2, 4), counted(4, 1), counted(1, 4)
    assert is_inside(i * 8 + block, idx(24)) and not is_inside(i * 8 + block, idx(23))
    gate = build("CMPLT", i * 8 + block, idx(20))
    assert is_inside(i * 8 + block, idx(20), gate) and not is_inside(i * 8 + block + 1, idx(20), gate)
    assert is_inside(rows * 4 + lanes, idx(16)) and not is_inside(rows * 4 + lanes, idx(15))
    assert not is_inside(rows + lanes * -1, idx(4)), "a row is not its lane"
    assert is_inside(shape_source((3, 9)) + i, idx(12)) and not is_inside(shape_source((3, 9)) + i, idx(11))


def test_a_clamp_of_what_may_overflow_has_bounds_under_its_gate():
    x = build("CAST", node("PARAM", (), ParamArg(0, dtypes.int64, None, None, "x")), arg=dtypes.index)
    r = build("RANGE", idx(2), arg=(0, "LOOP"))
    negative = build("MAX", build("MAX", r + x * 2, idx(0)) * -1, idx(-1))  # 0 or -1, whatever r + x * 2 wraps to
    assert is_inside(negative * -1 + -1, idx(1), negative < 0)
    assert not is_inside(negative * -1 + -1, idx(1))
    assert not is_inside(negative * -1, idx(1), negative < 0)
    assert not is_inside(r + x * 2 + negative, idx(2), negative < 0)


def test_a_condition_decides_beside_one_that_bounds_what_may_overflow() -> None:
    x, y = (
        build("CAST", node("PARAM", (), ParamArg(k, dtypes.int64, None, None, f"x{k}")), arg=dtypes.index)
        for k in (0, 1)
    )
    at = build("MAX", build("MAX", x * 6 + y, idx(0)) * -1, idx(-11)) * -1  # 0 to 11, whatever x * 6 + y wraps to
    behind = build("AND", within(x, 0, 2), at // 6 * -1 < 0)
    assert is_inside(at - 6, idx(6), behind, solver=False)
    assert not is_inside(at - 7, idx(6), behind, solver=False)
    assert not is_inside(at - 6, idx(6), within(x, 0, 2), solver=False)


def test_a_multiple_of_what_a_gate_bounds_does_not_overflow() -> None:
    x = build("CAST", node("PARAM", (), ParamArg(0, dtypes.int64, None, None, "x")), arg=dtypes.index)
    index = x % 2 + x * 3 // 2 * 6 + loop(2) * 3
    assert is_inside(index, idx(12), within(x, 0, 2), solver=False)
    assert not is_inside(index, idx(10), within(x, 0, 2), solver=False)
    assert not is_inside(index, idx(12), x < 2, solver=False)
    assert not is_inside(
        index, idx(12), within(x * 3 + loop(2), 0, 6), solver=False
    )  # holds where x * 3 overflows, too


def test_a_number_that_is_bounded_from_one_side_alone_may_overflow() -> None:
    x = build("CAST", node("PARAM", (), ParamArg(0, dtypes.int64, None, None, "x")), arg=dtypes.index)
    index = build("MAX", (x + loop(4)) // 2, idx(0))  # 1 where x is 0 and the loop at 3
    assert not is_inside(index, idx(1), x < 1, solver=False)
    assert is_inside(index, idx(2), within(x, 0, 1), solver=False)


def test_a_gate_bounds_a_product_that_may_overflow() -> None:
    """The kernel computes the product of the gate and of the index alike, so the bound holds for what it wraps to."""
    x = build("CAST", node("PARAM", (), ParamArg(0, dtypes.int64, None, None, "x")), arg=dtypes.index)
    r = loop(6)
    behind = build("AND", r * -1 - 1 < x * 6, x * 6 < r * -1 + 24)
    assert is_inside(r + x * 6, idx(24), behind, solver=False)
    assert not is_inside(r + x * 6, idx(23), behind, solver=False)
    assert not is_inside(r + x * 3, idx(24), behind, solver=False)
    assert not is_inside(x, idx(24), behind, solver=False)  # x itself may be far outside


def test_a_condition_with_one_bound_does_not_keep_a_product_from_overflowing() -> None:
    """Twice a number far below zero wraps to a positive one."""
    v = node("PARAM", (), ParamArg(9, dtypes.index, None, None, "v", None, None))
    at = build("WHERE", v < 5, build("MAX", v * 2 // 5, idx(0)), idx(0))
    assert evaluate((at,), {v: np.int64(-6148914691236517206)})[0] > 0
    assert not is_inside(at, idx(1), v < 1, solver=False)
    assert is_inside(at, idx(2), within(v, -3, 1), solver=False)


def test_an_index_that_counts_from_the_end_where_it_is_negative_is_inside_behind_its_gate() -> None:
    """A number below zero has more values than a loop counts, and the sum with a size does not overflow."""
    x = build("CAST", node("PARAM", (), ParamArg(0, dtypes.int64, None, None, "x")), arg=dtypes.index)
    at = build("WHERE", x < 0, x + 3, x)
    assert is_inside(at, idx(3), within(at, 0, 3), solver=False)
    assert not is_inside(at, idx(2), within(at, 0, 3), solver=False)
    assert not is_inside(build("WHERE", x < 0, x - 3, x), idx(3), x < 3, solver=False)  # the smallest number wraps
