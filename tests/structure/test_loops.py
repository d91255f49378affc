"""Loops that need not be: arange, gather, one-hot, scatter and cumulative sums."""

import numpy as np
import pytest

from monolect import Context, Tensor, dtypes
from monolect.backend.registry import Device
from monolect.ir.bounds import size_max
from monolect.ir.check.verify import verify
from monolect.ir.ops import BufferArg, KernelInfo, ParamArg, Stage
from monolect.ir.uop import build, idx, node, shape_source, toposort
from monolect.lower.linearize import linearize
from monolect.optimize.merge import merge_ranges
from monolect.rules.loops.reductions import simplify_loops
from tests.structure.conftest import kernels_of


def positions(rng_high, *shape, seed=3):
    return np.random.default_rng(seed).integers(0, rng_high, shape)


# ---- counting --------------------------------------------------------------------------------------------------------
def test_arange_costs_no_kernel_and_no_loop(check, structure, data):
    a = data(16, 32)
    (k,) = check(Tensor(a) + Tensor.arange(32), a + np.arange(32))
    assert k.reads == 1 and k.ir["STORE"] == 1 and k.ir["RANGE"] == 2 and k.ir["REDUCE"] == 0
    (k,) = structure(Tensor(a) + Tensor.arange(32) * 0.5)
    assert k.loops <= 2


def test_arange_with_steps(check):
    (k,) = check(Tensor.arange(3, 50, 4), np.arange(3, 50, 4))
    assert k.reads == 0 and k.loops == 1


def test_masks_of_positions_are_comparisons(check, data):
    a = data(16, 16)
    (k,) = check(Tensor(a).tril(-1), np.tril(a, -1))
    assert k.reads == 1 and k.ir["STORE"] == 1
    (k,) = check(Tensor.eye(5), np.eye(5))
    assert k.reads == 0


def prefix_sum(t):
    """Cumulative sum by movement alone: tile, trim, windows."""
    n = t.shape[0]
    x = t.pad((n - 1, 0)).reshape(1, 2 * n - 1).expand(n + 1, 2 * n - 1).reshape((n + 1) * (2 * n - 1))
    return x[: 2 * n * n].reshape(n, 2 * n)[:n, :n].sum(-1)


def test_prefix_sum_from_movement_is_one_kernel(check, data):
    a = data(40)
    (k,) = check(prefix_sum(Tensor(a)), a.cumsum())
    assert k.reads == 1 and k.loops == 1


def test_arange_as_a_prefix_sum_has_no_reduction_loop(check):
    (k,) = check(prefix_sum(Tensor(1).reshape(1).expand(50)) - 1, np.arange(50))
    assert k.reads == 0 and k.loops == 1


@pytest.mark.parametrize("axis", (0, 1))
def test_positions_of_a_batch_are_a_formula(check, axis):
    """The formula has the counted axis alone; a view of it moves both."""
    t, a = Tensor.ones(5, 7, dtype=dtypes.int64).cumsum(axis) - 1, np.ones((5, 7), int).cumsum(axis) - 1
    (k,) = check(t, a)
    assert k.reads == 0 and k.ir["REDUCE"] == 0
    check(t[1:3].T.reshape(14), a[1:3].T.reshape(14))


# ---- gather ----------------------------------------------------------------------------------------------------------
def direct(k, loops):
    """A gather that reads the table where the index says: no loop beside those over the output."""
    assert k.reads == 2 and k.loops <= loops and k.code["IF"] == 0


def test_index_by_integers(check, data):
    a, i = data(50, 8), positions(50, 7)
    (k,) = check(Tensor(a)[Tensor(i)], a[i])
    direct(k, 2)
    assert k.ir["REDUCE"] == 0


def test_embedding(check, data):
    a, i = data(50, 8), positions(50, 3, 4)
    (k,) = check(Tensor(i).embedding(Tensor(a)) * 2, a[i] * 2)
    direct(k, 2)


def test_gather(check, data):
    a, i = data(9, 8), positions(9, 5, 8)
    (k,) = check(Tensor(a).gather(0, Tensor(i)), np.take_along_axis(a, i, 0))
    direct(k, 2)


def test_index_with_several_integer_tensors(check, data):
    a, i, j = data(9, 8), positions(9, 6), positions(8, 6, seed=4)
    (k,) = check(Tensor(a)[Tensor(i), Tensor(j)], a[i, j])
    assert k.reads == 3 and k.loops == 0


def test_one_hot_gather_collapses_to_a_direct_load(check, data):
    a, i = data(50), positions(50, 7)
    mask = (Tensor.arange(50).reshape(50, 1) == Tensor(i).reshape(1, 7)).cast(dtypes.float32)
    (k,) = check((Tensor(a).reshape(50, 1) * mask).sum(0), a[i])
    direct(k, 1)


def test_one_hot_gather_of_rows_collapses(check, data):
    a, i = data(50, 8), positions(50, 7)
    mask = (Tensor.arange(50).reshape(1, 50) == Tensor(i).reshape(7, 1)).cast(dtypes.float32)
    count, k = check((mask.reshape(7, 50, 1) * Tensor(a).reshape(1, 50, 8)).sum(1), a[i])
    assert count.iterations <= 50 * 8 + 8 and k.reads == 3 and k.loops <= 2


def test_one_hot_where_collapses(check, data):
    a, i = data(50), positions(50, 7)
    mask = Tensor.arange(50).reshape(1, 50) == Tensor(i).reshape(7, 1)
    (k,) = check(mask.where(Tensor(a).reshape(1, 50), 0.0).sum(1), a[i])
    direct(k, 1)


def test_one_hot_product_collapses(check, data):
    a, i = data(50, 8), positions(50, 7)
    count, k = check(Tensor(i).one_hot(50).cast(dtypes.float32) @ Tensor(a), a[i])
    assert count.iterations <= 50 * 8 + 8 and k.reads == 3 and k.loops <= 2


def places(n):
    return Tensor.arange(n)


MASKED = {  # of a table a (500, 8), whose first column is x, and 70 places at
    "gather": lambda a, x, at: ((places(500).reshape(-1, 1) == at.reshape(1, -1)).float() * x.reshape(-1, 1)).sum(0),
    "rows": lambda a, x, at: (
        (places(500).reshape(1, -1, 1) == at.reshape(-1, 1, 1)).float() * a.reshape(1, 500, 8)
    ).sum(1),
    "product": lambda a, x, at: at.one_hot(500).float() @ a,
    "product of halves": lambda a, x, at: at.one_hot(500).half() @ a.half(),
    "einsum": lambda a, x, at: Tensor.einsum("ij,jk->ki", at.one_hot(500).float(), a),
    "running sum": lambda a, x, at: ((places(500).reshape(-1, 1) >= places(500)).float() * x).sum(1),
    "running mean": lambda a, x, at: ((places(500).reshape(-1, 1) >= places(500)).float() * x).mean(1),
    "running sum of rows": lambda a, x, at: (places(500).reshape(-1, 1) >= places(500)).float() @ a,
    "of integers": lambda a, x, at: ((places(500).reshape(-1, 1) == at.reshape(1, -1)) * x.int().reshape(-1, 1)).sum(0),
    "of floats that were integers": lambda a, x, at: at.one_hot(500).float() @ a.int().float(),
    "of numbers": lambda a, x, at: (at.one_hot(500).float() * (places(500) * 0.5 + 1)).sum(1),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_times_values_is_no_loop_over_both(structure, data, name):
    """Nothing that is masked out is lost either: it is counted once."""
    a = data(500, 8)
    f, at = MASKED[name], positions(500, 70)
    ks = structure(f(Tensor(a), Tensor(a[:, 0].copy()), Tensor(at)))
    assert sum(k.work for k in ks) <= 12 * (500 * 8 + 70 * 8)
    assert sum(steps(k) for k in ks) <= 500 * 8 + 70 * 8 + 500


@pytest.mark.sweep
@pytest.mark.parametrize("name", MASKED)
def test_what_a_mask_multiplies_is_not_lost(data, name):
    """0 * inf is nan; an infinity that is chosen is one."""
    a, at = data(500, 8), np.array([3, 0, -1, 499, 7])
    for row, value in ((3, np.inf), (7, np.nan), (3, np.nan), (499, -np.inf)):
        a[row, 0] = value
        if "integers" in name:
            a = np.nan_to_num(a, posinf=9, neginf=9)
        one_hot, triangle = (np.arange(500) == at[:, None]).astype(np.float32), np.tri(500, dtype=np.float32)
        with np.errstate(invalid="ignore"):
            wanted = {
                "gather": one_hot @ a[:, 0],
                "einsum": (one_hot @ a).T,
                "running sum": triangle @ a[:, 0],
                "running mean": triangle @ a[:, 0] / 500,
                "running sum of rows": triangle @ a,
                "of integers": one_hot @ a[:, 0].astype(np.int32),
                "of floats that were integers": one_hot @ a.astype(np.int32),
                "of numbers": one_hot @ (np.arange(500) * 0.5 + 1),
            }.get(name, one_hot @ a)
        with Context(CHECK_BOUNDS=0):  # an index outside has no mask
            got = MASKED[name](Tensor(a), Tensor(a[:, 0].copy()), Tensor(np.where(at < 0, 500, at))).numpy()
        np.testing.assert_allclose(got, wanted, rtol=3e-3 if "halves" in name else 1e-4, atol=2e-3)


@pytest.mark.parametrize("name", ["of integers", "of floats that were integers", "of numbers"])
def test_what_is_known_to_be_finite_is_not_counted(structure, data, name):
    a = data(500, 8)
    ks = structure(MASKED[name](Tensor(a), Tensor(a[:, 0].copy()), Tensor(positions(500, 70))))
    assert sum(u.op == "CMPNE" and u.src[0].op == "MUL" for k in ks for u in toposort(k.sink)) == 0


def test_an_equality_of_places_that_were_converted_is_that_of_what_they_became(structure):
    """Floats may lie between places, and small integers come again."""
    x, at = Tensor.arange(300).float(), Tensor([2.5, 2.0])
    got = (Tensor.arange(300).float().reshape(1, 300) == at.reshape(2, 1)).where(x, 0.0).sum(1)
    assert got.tolist() == [0.0, 2.0]
    wrapped, at = Tensor.arange(300).cast(dtypes.int8), Tensor([3, 44], dtype=dtypes.int8)
    got = (wrapped.reshape(1, 300) == at.reshape(2, 1)).where(x, 0.0).sum(1)
    assert got.tolist() == [3.0 + 259.0, 44.0]


# ---- scatter ---------------------------------------------------------------------------------------------------------
def test_scatter_add_has_no_loop_over_the_table(check, data):
    a, i, v = data(50), positions(50, 200), data(200)
    wanted = a.copy()
    np.add.at(wanted, i, v)
    ks = check(Tensor(a).scatter_add(0, Tensor(i), Tensor(v)), wanted)
    assert len(ks) == 2, "a copy and the additions"
    assert sum(k.iterations for k in ks) == 250 and ks[1].ir["ATOMICADD"] == 1
    assert ks[0].ir["STORE"] == 1


def test_gradient_of_embedding_has_no_loop_over_the_table(data):
    a, i = data(50, 8), positions(50, 30)
    w = Tensor(a, requires_grad=True)
    (Tensor(i).embedding(w) * 3).sum().backward()
    wanted = np.zeros_like(a)
    np.add.at(wanted, i, 3)
    from tests.structure.conftest import kernels_of

    ks = kernels_of(w.grad)
    assert sum(k.iterations for k in ks) <= 50 * 8 + 30 * 8
    np.testing.assert_array_equal(w.grad.numpy(), wanted)


def steps(k):
    """Iterations of the innermost loops of the generated code, a vector counting as one."""
    total, nest = 0, []
    for u in k.linear.src:
        if u.op == "RANGE":
            nest.append(size_max(u.src[0]) if u.src[0].op != "CONST" else u.src[0].value)
            total = max(total, np.prod(nest))
        elif u.op == "END":
            nest = nest[: len(nest) - len(u.src) + 1]
    return total


# ---- scans -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("shape", "axis", "loops"), [((500,), 0, 1), ((6, 50), 1, 2), ((50, 6), 0, 1), ((3, 20, 4), 1, 2)]
)
def test_cumsum_is_one_scan(check, data, shape, axis, loops):
    a = data(*shape)
    (k,) = check(Tensor(a).cumsum(axis), a.cumsum(axis), 1e-4)
    assert k.reads == 1 and k.loops == loops


@pytest.mark.sweep
@pytest.mark.parametrize(("axis", "sizes"), [(3, [105, 19]), (2, [15, 7, 19]), (1, [3, 5, 133]), (0, [3, 665])])
def test_loops_around_a_scan_are_one_where_they_lie_in_memory_as_one(data, axis, sizes):
    """It starts anew in each iteration of all of them; the loop that carries it stays."""
    a, to = data(3, 5, 7, 19), Device["null"].target
    for method, f in (("cumsum", np.add), ("cumprod", np.multiply)):
        t = getattr(Tensor(a), method)(axis)
        (k,) = kernels_of(t)
        merged = merge_ranges(simplify_loops(k.sink, to), to)
        assert [r.src[0].value for r in merged.src[0].src[1:]] == sizes
        np.testing.assert_allclose(t.numpy(), f.accumulate(a, axis), rtol=1e-4, atol=1e-5)


def test_cumsum_work_is_linear(structure, data):
    def trips(n):
        (k,) = structure(Tensor(data(n)).cumsum(0))
        assert k.loops == 1
        return next(u.src[0].value for u in k.linear.src if u.op == "RANGE")

    assert trips(2048) == 2 * trips(1024)


def test_neighbouring_steps_of_a_scan_are_lanes(structure, data):
    (k,) = structure(Tensor(data(40, 160)).cumsum(1))
    assert k.code["SCAN"] == 1 and steps(k) == 40 * 160 // 16 // 4, "four rows side by side: none waits for another"
    (k,) = structure(*Tensor(data(40, 160)).cummax(1))
    assert k.reads == 1 and k.code["SCAN"] == 2, "one pass over what is read, a maximum and its position"
    (k,) = structure(Tensor(data(41, 160)).cumsum(1))
    assert steps(k) == 41 * 160 // 16, "a number of rows that none divides"
    (k,) = structure(Tensor.empty(4096, 2048).cumsum(1))
    assert steps(k) == 4096 * 2048 // 16 // 2, "one stream from memory, two threads"
    (k,) = structure(Tensor(data(40, 160)).cumsum(0))
    assert k.code["SCAN"] == 0 and steps(k) <= 40 * 160 // 16, "columns are lanes already"


def test_gradients_of_scans_take_linear_work(data):
    from tests.structure.conftest import kernels_of

    for f in (lambda t: t.cumsum(0), lambda t: t.cumprod(0), lambda t: t.cummax(0).values):
        x = Tensor(data(3000), requires_grad=True)
        (f(x) * Tensor(data(3000))).sum().backward()
        assert all(steps(k) <= 3000 for k in kernels_of(x.grad))


def test_cumprod_and_running_maximum(check, data):
    a = data(300) * 0.1 + 1
    (k,) = check(Tensor(a).cumprod(0), a.cumprod(), 1e-4)
    assert k.loops == 1
    v = Tensor(a).cummax(0).values
    (k,) = check(v, np.maximum.accumulate(a))
    assert k.loops == 1


def test_a_scan_of_a_computed_value_is_one_kernel(check, data):
    a, b = data(300), data(300)
    (k,) = check((Tensor(a) * Tensor(b)).exp().cumsum(0) + 1, np.exp(a * b).cumsum() + 1, 1e-4)
    assert k.loops == 1


SCANS = {
    "along both axes": lambda x, f: f(x, 0) + f(x, 1),
    "one after the other": lambda x, f: f(f(x, 0), 1),
    "twice": lambda x, f: f(f(x, 1), 1),
    "backwards": lambda x, f: f(x, 1)[:, ::-1],
    "and their sums": lambda x, f: f(x, 1).sum(0),
    "and their product": lambda x, f: f(x, 1) @ x.T,
    "of a product": lambda x, f: f(x @ x.T, 1),
    "of normalised rows": lambda x, f: f(x - x.sum(1).reshape(-1, 1), 1),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", SCANS)
def test_work_stays_linear_wherever_a_scan_stands(check, data, name):
    a = data(32, 24)
    f = SCANS[name]
    ks = check(f(Tensor(a), lambda t, axis: t.cumsum(axis)), f(a, np.cumsum), 2e-4, 1e-3)
    assert all(steps(k) <= 32 * 32 for k in ks)


# ---- assign ----------------------------------------------------------------------------------------------------------
def test_reads_before_an_assign_see_the_old_value(check, data):
    a = data(6, 6)
    x = Tensor(a.copy())
    y = x * 2
    x[1:3] = 7.0
    w = a.copy()
    w[1:3] = 7
    ks = check((y, x), (a * 2, w))
    assert len(ks) == 2


def test_assign_through_overlapping_views(check, data):
    a = data(9)
    x = Tensor(a.copy())
    x[1:] = x[:-1]
    check(x, np.concatenate([a[:1], a[:-1]]))


def test_a_permutation_of_itself(check, data):
    a, p = data(8), np.array([3, 1, 0, 2, 7, 6, 5, 4])
    x = Tensor(a) + 0
    x[Tensor(p)] = x
    w = a.copy()
    w[p] = a
    check(x, w)
    x = (Tensor(a) + 1).contiguous()
    x[Tensor(p)] = x
    check(x, w + 1)


def test_a_chain_of_slice_assigns_copies_once(check, data):
    a = data(8, 8)
    x = Tensor(a.copy())
    w = a.copy()
    for k in range(4):
        x[k] = float(k)
        w[k] = k
    ks = check(x, w)
    assert len(ks) == 5 and sum(k.reads for k in ks) == 1


def test_aliases_keep_what_they_saw(data):
    a = data(5)
    x = Tensor(a.copy())
    views = []
    w = a.copy()
    for k in range(5):
        views.append((x + 0, w.copy()))
        x[k] = float(k)
        w[k] = k
    for got, wanted in reversed(views):
        np.testing.assert_array_equal(got.numpy(), wanted)
    np.testing.assert_array_equal(x.numpy(), w)


def test_assign_of_all_elements_is_one_kernel(check, data):
    a = data(8)
    x = Tensor(a.copy()).realize()
    x.assign(x * 2 + 1)
    (k,) = check(x, a * 2 + 1)
    assert k.reads == 1


def test_a_scan_starts_anew_in_loops_it_does_not_depend_on(check, data):
    a = data(3, 4)
    check(Tensor(a).cumsum(1) + Tensor(np.ones((5, 3, 4), np.float32)), np.stack([a.cumsum(1) + 1] * 5))
    check(Tensor(a[0]).cumsum(0).reshape(1, 4)[Tensor(np.array([0, 0]))], np.stack([a[0].cumsum()] * 2))


def test_a_scan_beside_a_longer_nest(check, data):
    a = data(3, 4)
    c = Tensor(a).cumsum(1)
    w = a.cumsum(1)
    check((c.reshape(3, 4, 1) + Tensor(np.ones((3, 4, 5), np.float32)), c), (np.repeat(w[..., None], 5, 2) + 1, w))
    c = Tensor(a).cumsum(0)
    check((c + Tensor(np.ones((5, 3, 4), np.float32)), c), (np.stack([a.cumsum(0)] * 5) + 1, a.cumsum(0)))


# ---- extremes --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("method", ["argmax", "argmin"])
def test_position_of_an_extreme_is_two_looks_in_one_kernel(check, data, method, axis):
    a = data(30, 64)
    (k,) = check(getattr(Tensor(a), method)(axis), getattr(a, method)(axis))
    assert k.reads == 1 and k.ir["REDUCE"] == 2 and k.loops <= 3


def test_an_extreme_and_its_position_share_a_pass(check, data):
    a = data(40, 60)
    (k,) = check(tuple(Tensor(a).max(1)), (a.max(1), a.argmax(1)))
    assert k.reads == 1 and k.loops <= 2


# ---- order -----------------------------------------------------------------------------------------------------------
def test_a_long_sort_is_four_passes_of_linear_work(structure, data):
    n = 1 << 16
    ks = structure(*Tensor(data(n)).sort())
    assert len(ks) == 2 + 4 * 4 + 1, "words, zeros; a histogram, its sums, these turned round, the moves; the results"
    assert all(steps(k) <= n for k in ks) and sum(k.ir["ATOMICADD"] for k in ks) == 4
    moves = [k for k in ks if any(u.op == "STORE" and u.arg == "distinct" for u in k.linear.src)]
    assert len(moves) == 4
    for k in moves:  # a word, where its class begins, and how many of it came before, in local memory
        assert k.code["LOAD"] == 3 and k.code["STORE"] == 3 and k.loops == 3


def test_a_few_of_many_are_found_in_one_pass(structure, data):
    n = 1 << 18
    ks = structure(*Tensor(data(n)).topk(5))
    assert sum(steps(k) > n // 64 for k in ks) == 0, "only vectors walk the whole row"
    assert sum(k.iterations >= n for k in ks) == 1


@pytest.mark.sweep
@pytest.mark.parametrize("k, shape", [(20, (50, 200)), (10, (8, 5000)), (50, (2, 32000))])
def test_a_few_dozen_are_taken_one_by_one(structure, data, k, shape):
    """In rows, and in the blocks of long rows: nothing is counted, or moved digit by digit."""
    n = shape[0] * shape[1]
    ks = structure(*Tensor(data(*shape)).topk(k))
    assert sum(x.ir["ATOMICADD"] for x in ks) == 0 and not any(
        u.op == "STORE" and u.arg for x in ks for u in x.linear.src
    )
    assert sum(steps(x) for x in ks) < 2 * n, "vectors of words, as often as there are rounds"


def test_two_sums_into_zeros_copy_nothing(structure, data):
    i = Tensor(positions(50, 30))
    a, b = (Tensor.zeros(50, 8).index_add(0, i, Tensor(data(30, 8) + s)) for s in (0, 1))
    ks = structure(a, b)
    assert len(ks) == 3 and ks[0].reads == 0 and ks[0].ir["STORE"] == 2, "zeros, and an addition each"


def test_a_copy_stands_in_the_only_loop_it_knows_of():
    """Rows of `x` by way of local memory: the copy depends on the innermost of three loops, not on those around it."""
    n = 3

    def param(slot):
        return node("PARAM", (shape_source((n**4,)),), ParamArg(slot, dtypes.float32, "cpu", "GLOBAL"))

    def loop(number):
        return build("RANGE", idx(n), arg=(number, "LOOP"))

    a, b, c, k, j = (loop(number) for number in (0, 1, 2, 17, 3))
    local = node("BUFFER", (shape_source((n,)),), BufferArg(0, dtypes.float32, None, "LOCAL"))
    row = build("LOAD", build("INDEX", param(1), c * n + k))
    copied = build("AFTER", local, build("END", build("STORE", build("INDEX", local, k), row), k))
    value = build("LOAD", build("INDEX", copied, j))
    store = build("STORE", build("INDEX", param(0), ((a * n + b) * n + c) * n + j), value)
    sink = build("SINK", build("END", store, a, b, c, j), arg=KernelInfo("rows"))
    program = linearize(sink)
    verify(program, Stage.PROGRAM)
    order = [u.arg[0] for u in program.src if u.op == "RANGE"]
    assert order == [0, 1, 2, 17, 3]


def test_a_loop_read_by_parts_of_parts_is_loops_of_their_own(structure, data):
    """Channels of a transposed convolution hold the neighbours along two axes: places without remainders, so that
    channels may be lanes.
    """
    d, w = Tensor(data(2, 16, 5, 5)).realize(), Tensor(data(16, 3, 3, 3)).realize()
    conv = next(k for k in structure(d.conv_transpose2d(w, stride=2, padding=1, output_padding=1)) if k.ir["REDUCE"])
    assert conv.ir["IDIV"] + conv.ir["MOD"] > 0
    assert not {u.op for u in toposort(merge_ranges(conv.sink, Device["null"].target))} & {"IDIV", "MOD"}
