"""Movement ops vanish: a chain of any length is index arithmetic inside the kernel that reads through it."""

import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Tensor
from monolect.backend.registry import Device
from monolect.ir.rewrite.normal import linear
from monolect.ir.uop import toposort
from monolect.optimize.apply import choose_actions
from monolect.pipeline import lower_kernel
from monolect.rules.loops.concat import stored_apart
from tests.strategies import often
from tests.structure.conftest import kernels_of


def one_kernel(ks, loads=1):
    assert len(ks) == 1 and ks[0].reads == loads and ks[0].ir["STORE"] == 1 and ks[0].code["IF"] == 0
    return ks[0]


@pytest.mark.sweep
@pytest.mark.parametrize("length", [1, 10, often(130, 200)])  # of 8 views each; Python's limit of calls is 1000
def test_a_chain_of_views_is_no_kernel_of_its_own(check, data, length):
    a = data(6, 8)
    x, w = Tensor(a), a
    for _ in range(length):
        x = x.permute(1, 0).reshape(4, 12).flip(1).reshape(12, 4).permute(1, 0).reshape(2, 24).flip(0).reshape(6, 8)
        w = w.T.reshape(4, 12)[:, ::-1].reshape(12, 4).T.reshape(2, 24)[::-1].reshape(6, 8)
    one_kernel(check(x + 1, w + 1))


def test_a_chain_of_pads_and_slices_is_no_kernel_of_its_own(check, data):
    a = data(6, 8)
    x, w = Tensor(a), a
    for _ in range(10):
        x = x.permute(1, 0).pad((1, 0, 2, 3))[1:9, 1:].flip(0).permute(1, 0).reshape(6, 8)
        w = np.pad(w.T, ((2, 3), (1, 0)))[1:9, 1:][::-1].T.reshape(6, 8)
    one_kernel(check(x + 1, w + 1))


def test_movement_that_undoes_itself_leaves_a_plain_copy(structure, data):
    x = Tensor(data(6, 8))
    plain = structure(x + 1)
    y = x.reshape(8, 6).reshape(2, 24).reshape(6, 8).flip(0).flip(0).permute(1, 0).permute(1, 0)
    assert structure(y + 1)[0].sink is plain[0].sink


def test_views_of_memory_are_not_copied(data):
    a = data(6, 8)
    x = Tensor(a).permute(1, 0).flip(0)[1:4].reshape(3, 6)
    got = x.realize().numpy()
    assert np.array_equal(got, a.T[::-1][1:4])


@st.composite
def chains(draw):
    """A random chain of views: (description, function of a tensor, function of an array)."""
    steps, shape = [], draw(st.sampled_from([(4, 6), (2, 3, 4), (12,), (5, 7), (8, 1, 3)]))
    now = np.arange(int(np.prod(shape))).reshape(shape)
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["permute", "flip", "reshape", "shrink", "expand", "pad"]))
        if kind == "permute":
            arg = tuple(draw(st.permutations(range(now.ndim))))
        elif kind == "flip":
            arg = tuple(k for k in range(now.ndim) if draw(st.booleans()))
        elif kind == "reshape":
            n = now.size
            cut = draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
            arg = draw(st.sampled_from([(n,), (cut, n // cut), (1, cut, n // cut)]))
        elif kind == "shrink":
            arg = tuple((lo := draw(st.integers(0, n - 1)), draw(st.integers(lo + 1, n))) for n in now.shape)
        elif kind == "expand":
            arg = tuple(draw(st.integers(1, 3)) if n == 1 else n for n in now.shape)
        else:
            arg = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in now.shape)
            if now.size > 400:
                continue
        steps.append((kind, arg))
        now = on_array(now, kind, arg)
    return shape, steps


def on_array(a, kind, arg):
    if kind == "permute":
        return a.transpose(arg)
    if kind == "flip":
        return np.flip(a, arg)
    if kind == "reshape":
        return a.reshape(arg)
    if kind == "shrink":
        return a[tuple(slice(lo, hi) for lo, hi in arg)]
    return np.broadcast_to(a, arg) if kind == "expand" else np.pad(a, arg)


def on_tensor(x, kind, arg):
    if kind == "permute":
        return x.permute(arg)
    if kind == "flip":
        return x.flip(arg) if arg else x
    if kind == "reshape":
        return x.reshape(arg)
    if kind == "shrink":
        return x[tuple(slice(lo, hi) for lo, hi in arg)]
    return x.expand(arg) if kind == "expand" else x.pad([p for pair in reversed(arg) for p in pair])


@settings(max_examples=often(12, 1000))
@given(chains())
def test_any_chain_of_views_is_one_load(case):
    """The composition law: views of views are one view, and no index leaves its buffer (CHECK_BOUNDS)."""
    shape, steps = case
    a = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape) + 1
    x, w = Tensor(a), a
    for s in steps:
        x, w = on_tensor(x, *s), on_array(w, *s)
    y = x + 1
    (k,) = kernels_of(y)
    assert k.reads == 1 or (k.reads == 0 and not w.any())  # nothing is read where only padding is left
    np.testing.assert_array_equal(y.numpy(), w + 1)


# ---- pad, cat, flip, stack -------------------------------------------------------------------------------------------
def gates(k):
    """Conditions in front of loads."""
    return [u.src[2] for u in toposort(k.sink) if u.op == "LOAD" and len(u.src) == 3]


def test_a_gate_is_not_asked_by_what_it_does_not_concern(check, data):
    """Windows over a padded image: its border is gated, the numbers of a channel are not."""
    x, mean, var = data(2, 3, 9, 9), data(3), np.abs(data(3)) + 1
    wanted = np.maximum((x - mean[:, None, None]) / np.sqrt(var + 1e-5)[:, None, None], 0)
    padded = np.pad(wanted, ((0, 0), (0, 0), (1, 1), (1, 1)))  # of what is not negative, a zero never wins
    taps = [padded[:, :, i : i + 9 : 2, j : j + 9 : 2] for i in range(3) for j in range(3)]
    y = Tensor(x).realize().batch_norm(Tensor(mean).realize(), Tensor(var).realize()).relu().max_pool2d(3, 2, 1)
    (k,) = check(y, np.max(taps, axis=0))
    assert (k.reads, len(gates(k))) == (3, 1)


def test_pad_is_a_gated_load(check, data):
    a = data(5, 6)
    k = one_kernel(check(Tensor(a).pad((1, 2, 3, 0)), np.pad(a, ((3, 0), (1, 2)))))
    assert len(gates(k)) == 1


def test_pad_and_shrink_back_needs_no_gate(check, data):
    a = data(5, 6)
    k = one_kernel(check(Tensor(a).pad((2, 2, 3, 3))[3:8, 2:8] + 1, a + 1))
    assert gates(k) == []


def test_pad_with_a_value(check, data):
    a = data(5, 6)
    one_kernel(check(Tensor(a).pad((1, 2), value=4.0), np.pad(a, ((0, 0), (1, 2)), constant_values=4)))


@pytest.mark.sweep
@pytest.mark.parametrize(
    "mode, name", [("constant", "constant"), ("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]
)
def test_borders_of_whatever_kind_stand_apart(check, data, mode, name):
    """Between them a padded tensor is a copy: most iterations of either axis ask nothing."""
    a = data(20, 100)
    (k,) = check(Tensor(a).pad((3, 3, 2, 3), mode=mode), np.pad(a, ((2, 3), (3, 3)), name))
    assert [ends for op, _, ends in k.linear.arg.actions if op == "PEEL"] == [(1, 1), (2, 3)]
    assert any(u.op == "LOAD" and len(u.src) == 1 for u in k.linear.src), "a load without a gate"


@pytest.mark.parametrize("parts", [(250, 250, 250, 250), (256, 144), (100, 300), (300,)])
def test_between_the_seams_of_what_is_joined_nothing_is_asked(check, data, parts):
    """Only vectors with a seam inside, and the tail, read two parts by masks."""
    arrays = [data(20, n) for n in parts]
    (k,) = check(Tensor.cat(*map(Tensor, arrays), dim=1) if len(parts) > 1 else Tensor(arrays[0]).roll(100, 1),
                 np.concatenate(arrays, 1) if len(parts) > 1 else np.roll(arrays[0], 100, 1))  # fmt: skip
    ((_, _, sections),) = [a for a in k.linear.arg.actions if a[0] == "PEEL"]
    plain = [u for u in k.linear.src if u.op == "LOAD" and len(u.src) == 1]
    wanted = len(parts) if len(parts) > 1 else 2
    assert len(plain) == wanted, f"a loop without gates for each part: {sections}"


@pytest.mark.parametrize("shape, dims", [((40, 64), (0,)), ((6, 9, 32), (0, 1)), ((6, 9, 32), (1,))])
def test_rolled_rows_are_read_at_a_place_that_is_picked_once(check, data, shape, dims):
    """One load without a mask, where the last axis is not rolled."""
    a = data(*shape)
    (k,) = check(Tensor(a).roll([2] * len(dims), dims), np.roll(a, [2] * len(dims), dims))
    assert [len(u.src) for u in k.linear.src if u.op == "LOAD"] == [1]


def test_rolled_rows_in_a_frame_keep_its_gate(check, data):
    a = data(20, 24)
    rolled = Tensor(a).roll(3, 0).pad((1, 1, 1, 1))
    (k,) = check(rolled, np.pad(np.roll(a, 3, 0), 1))
    assert {len(u.src) for u in k.linear.src if u.op == "LOAD"} <= {1, 3}
    assert len({u.src[0] for u in k.linear.src if u.op == "LOAD"}) == k.code["LOAD"] <= 9, "one read in each part"


def test_sums_of_padded_values(check, data):
    a = data(5, 6)
    one_kernel(check(Tensor(a).pad((1, 2, 3, 0)).exp().sum(0), np.exp(np.pad(a, ((3, 0), (1, 2)))).sum(0)))


def test_cat_reads_each_part_where_it_lies(check, data):
    a, b, c = data(2, 5), data(3, 5), data(1, 5)
    k = one_kernel(check(Tensor(a).cat(Tensor(b), Tensor(c)) * 2, np.concatenate([a, b, c]) * 2), loads=3)
    assert len(gates(k)) == 3
    one_kernel(check(Tensor(a).cat(Tensor(b[:2]), dim=1), np.concatenate([a, b[:2]], 1)), loads=2)


def test_stacked_values_are_computed_once_each(check, data):
    """No loop picks among seven sums: each is stored on its own, in one nest of loops."""
    a = data(8, 40)
    x = Tensor(a)
    wanted = np.stack([a * i + a[:, ::-1] for i in range(2, 9)])
    (k,) = check(Tensor.stack([x * i + x.flip(1) for i in range(2, 9)]), wanted)
    assert k.code["STORE"] == 7 and k.code["WHERE"] == 0 and k.code["LOAD"] == 2


def test_stacked_values_are_told_apart_in_steps_in_proportion_to_their_number(data):
    """Of the choices of each place only what it picks is rebuilt: not all choices for all places."""
    calls = []
    for n in (16, 32, 64):
        x = Tensor(data(8, 40)).realize()
        (k,) = kernels_of(Tensor.stack([x * i + x.flip(1) for i in range(2, 2 + n)]))
        count = Counter()
        sys.setprofile(lambda frame, event, arg, count=count: count.update((event,)))
        try:
            apart = stored_apart(k.sink)
        finally:
            sys.setprofile(None)
        assert len(apart.src) == n
        calls.append(count["call"])
    assert calls[2] - calls[1] <= 2.2 * (calls[1] - calls[0])


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("width", [64, 67])
def test_what_is_stacked_along_a_last_axis_is_shuffled(check, data, n, width):
    """Whole vectors of each piece are read, and stored side by side."""
    arrays = [data(6, width) for _ in range(n)]
    k = one_kernel(check(Tensor.stack([*map(Tensor, arrays)], dim=2), np.stack(arrays, 2)), loads=n)
    lanes = Device["null"].target.lanes(4)
    assert set(vectors(k, "LOAD")) <= {(lanes,), (1, lanes), (lanes, 1)} and k.code["IF"] == 0
    assert all(np.prod(s) == n * lanes for s in vectors(k, "STORE"))


@pytest.mark.parametrize("n", [2, 3])
def test_stacked_values_beside_what_runs_along_the_stack(check, data, n):
    """The loop over what is stacked stays where another store, or a sum, needs it around the others."""
    a, b, c = data(2), data(n, 1), data(n, 1, 40)
    s, z, total = Tensor.stack([Tensor(a) for _ in range(n)]), Tensor(b).clip(-1, 1), Tensor(c).sum(2)
    stacked, rows, sums = np.stack([a] * n), b.clip(-1, 1), c.sum(2)
    check((z, s, s + z), (rows, stacked, stacked + rows))
    check((total, s, s + total), (sums, stacked, stacked + sums))


def test_stack_is_one_kernel(check, data):
    a, b = data(4, 5), data(4, 5)
    one_kernel(check(Tensor(a).stack(Tensor(b), dim=1), np.stack([a, b], 1)), loads=2)


def test_flip_of_a_sum(check, data):
    a = data(4, 5)
    one_kernel(check((Tensor(a).flip(1) + Tensor(a)).sum(1), (a[:, ::-1] + a).sum(1)), loads=2)


def test_strided_slices(check, data):
    a = data(9, 10)
    one_kernel(check(Tensor(a)[1::2, ::-3] + 0.5, a[1::2, ::-3] + 0.5))


def test_repeat_and_roll(check, data):
    a = data(3, 4)
    one_kernel(check(Tensor(a).repeat(2, 3) + 1, np.tile(a, (2, 3)) + 1))
    assert len(check(Tensor(a).roll(1, 0) + 1, np.roll(a, 1, 0) + 1)) == 1


# ---- what is stored along one axis and read along another ------------------------------------------------------------
def vectors(k, op):
    """The shapes of the values that the kernel loads or stores."""
    return [(u if op == "LOAD" else u.src[0]).shape for u in k.linear.src if u.op == op]


def test_a_transpose_turns_squares_in_registers(check, data):
    a = data(64, 48)
    k = one_kernel(check(Tensor(a).T.contiguous(), a.T))
    lanes = Device["null"].target.lanes(4)
    assert vectors(k, "LOAD") == vectors(k, "STORE") == [(lanes, lanes)]
    assert k.code["PERMUTE"] == 1 and k.loops == 2


def test_only_what_lies_the_other_way_is_turned(check, data):
    a, b = data(32, 48), data(48, 32)
    k = one_kernel(check(Tensor(a).T + Tensor(b), a.T + b), loads=2)
    assert k.code["PERMUTE"] == 1


@pytest.mark.parametrize("shape", [(64, 48), (33, 21)])
def test_what_is_stored_in_two_orders_is_turned_for_one(data, shape):
    x = Tensor(a := data(*shape))
    y = (x + 1).contiguous()
    (k,) = kernels_of(y, z := (y.T * 2).contiguous())
    assert k.ir["STORE"] == 2 and k.code["PERMUTE"] >= 1
    assert not [u for u in k.linear.src if u.op in ("LOAD", "STORE") and _is_gathered(u)]
    Tensor.realize(y, z)
    np.testing.assert_array_equal(y.numpy(), a + 1)
    np.testing.assert_array_equal(z.numpy(), (a + 1).T * 2)


def test_wide_numbers_of_a_row_do_not_narrow_its_vectors(data):
    """Indices of 8 bytes, one a row: rows of 4 bytes are whole vectors."""
    x, at = Tensor(data(9, 64)), Tensor(np.array([3, 1, 8, 0, 0, 5]))
    k = one_kernel(kernels_of(x[at]), loads=2)
    assert at.dtype.itemsize == 8 and vectors(k, "STORE")[0][-1] == Device["null"].target.lanes(4)


@pytest.mark.sweep
@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (0, 2, 1, 3), (2, 3, 0, 1)])
@pytest.mark.parametrize("shape", [(2, 16, 4, 16), (3, 5, 7, 9), (1, 3, 20, 20), (2, 4, 33, 17)])
def test_permutes_of_any_shape(check, data, shape, order):
    a = data(*shape)
    k = one_kernel(check(Tensor(a).permute(*order).contiguous(), a.transpose(order)))
    rows = [u for u in k.linear.src if u.op == "LOAD" and _is_gathered(u)]
    assert not rows, "a load that goes element by element"


def _is_gathered(load):
    """Whether the last axis of a shaped load moves by another step than 1."""
    steps = {c for x, c in linear(load.src[0].src[1])[1] if x.shape and x.shape[-1] > 1}
    return bool(steps - {1, -1})


def test_transposes_of_sizes_that_are_no_multiple_of_a_vector(data):
    for n, m in [(1, 7), (3, 40), (17, 5), (100, 33), (129, 65)]:
        for dtype in (np.float32, np.float64, np.int8, np.int16, np.bool_):
            a = (data(n, m) * 50).astype(dtype)
            assert np.array_equal((Tensor(a).T.contiguous()).numpy(), a.T), (n, m, dtype)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_overlapping_windows_are_sums_of_few_terms(structure, data, name, stride):
    """What an element gets is a term for each window it is in; no view of all windows is added up."""
    x = Tensor(data(2, 4, 12, 12)).realize().requires_grad_()
    y = getattr(x, name)(3, stride, 1)
    (y * Tensor(data(*y.shape)).realize()).sum().backward()
    *_, last = structure(x.grad)
    assert "REDUCE" not in last.ir
    windows = 9 if stride == 1 else 4
    assert last.reads <= (2 * windows + 1 if name == "max_pool2d" else windows)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("conv2d", lambda y: y.reshape(2, 4, -1)),
        ("conv2d", lambda y: y.permute(0, 2, 3, 1)),
        ("conv_transpose2d", lambda y: y.reshape(2, -1)),
        ("max_pool2d", lambda y: y.reshape(2, -1)),
    ],
)
def test_a_view_upon_a_result_keeps_its_gradient(structure, data, name, view):
    """A view of a view is one view, from which the gradient goes on to what both are of, not into its formula."""

    def work(view):
        x, w = Tensor(data(2, 8, 12, 12)).realize().requires_grad_(), Tensor(data(8, 8, 3, 3)).realize()
        y = x.max_pool2d(3, 2, 1) if name == "max_pool2d" else getattr(x, name)(w, stride=2, padding=1)
        (view(y) * Tensor(data(*view(y).shape)).realize()).sum().backward()
        return sum(k.iterations for k in structure(x.grad))

    assert work(view) <= work(lambda y: y)


@pytest.mark.sweep
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("left_out", [(), (2,)])
def test_gradients_of_many_parts_are_stored_one_by_one(check, data, size, left_out):
    """Of steps of a recurrence, which each read their own part: none asks which of all it is."""
    x, w = data(6, 8 * size, 32), data(8, 6, size, 32)
    t = Tensor(x).requires_grad_()
    taken = [k for k in range(8) if k not in left_out]
    loss = sum((t[:, k * size : (k + 1) * size].square() * Tensor(w[k])).sum() for k in taken)
    loss = loss + (t[:, size : 2 * size] * Tensor(w[0])).sum()  # one is read twice
    loss.backward()
    wanted = np.zeros_like(x)
    for k in taken:
        at = np.s_[:, k * size : (k + 1) * size]
        wanted[at] = w[k] * 2 * x[at]
    wanted[:, size : 2 * size] += w[0]
    last = check(t.grad, wanted)[-1]
    if size == 1:
        assert last.code["WHERE"] == 0


def test_threads_share_no_blocks_that_overlap(structure, data):
    """Nineteen rows in blocks of sixteen are two shares that both write thirteen of them: others are shared out."""
    k = structure(Tensor(data(7, 13, 11, 17, 19)).permute(4, 2, 0, 1, 3).contiguous())[0]
    merged = lower_kernel(k.sink, Device["null"].target, last="merge_ranges")
    actions = choose_actions(merged, Device["null"].target).arg.actions
    assert [axis for op, axis, arg in actions if op == "SPLIT" and arg[1] == "THREAD"] == [2]


@pytest.mark.sweep
@pytest.mark.parametrize(
    "n, shape, axis", [(12, (20, 64), 1), (70, (4, 8, 16), 1), (9, (5, 3), 1), (30, (100,), 0), (100, (7, 16), 0)]
)
def test_many_joined_pieces_are_stored_one_by_one(check, data, n, shape, axis):
    """No element asks which piece it is of."""
    xs = [data(*shape) for _ in range(n)]
    (k,) = check(Tensor(xs[0]).cat(*map(Tensor, xs[1:]), dim=axis), np.concatenate(xs, axis), rtol=0)
    assert k.code["WHERE"] == 0 and len(k.name) < 40


def test_many_pieces_of_different_sizes_have_loops_of_their_own(check, data):
    xs = [data(6, n) for n in (16, 1, 33, 16, 7, 40, 2, 16, 1, 5, 12)]
    joined = Tensor.cat(*map(Tensor, xs), dim=1)
    wanted = np.concatenate(xs, 1)
    (k,) = check(joined * 2 + 1, wanted * 2 + 1)
    shaped = [u for u in k.linear.src if u.op == "STORE" and u.src[1].shape]
    assert k.code["WHERE"] == 0 and len(shaped) == 8, "each of more than a few elements in vectors of its own"
    check(joined.sum(1), wanted.sum(1))
    check((joined.T.relu(), joined[1:4, 5:90]), (np.maximum(wanted.T, 0), wanted[1:4, 5:90]))


def test_many_stacked_tensors_are_stored_one_by_one(check, data):
    """More than are unrolled along an axis: the gradient of a long recurrence."""
    xs = [data(3, 20) for _ in range(90)]
    (k,) = check(Tensor(xs[0]).stack(*map(Tensor, xs[1:]), dim=1), np.stack(xs, 1), rtol=0)
    assert k.code["WHERE"] == 0


def test_pieces_beside_another_store_over_the_same_loop(check, data):
    xs = [data(8, 64) for _ in range(10)]
    joined, wanted, y = Tensor.cat(*map(Tensor, xs), dim=1), np.concatenate(xs, 1), data(8, 640)
    check((joined + Tensor(y), Tensor(y) * 3), (wanted + y, y * 3))


def test_elements_far_apart_are_stored_together(check, data):
    """What is stacked along the last axis: a loop for each piece would go through all lines of the result again."""
    xs = [data(4, 200) for _ in range(20)]
    (k,) = check(Tensor(xs[0]).stack(*map(Tensor, xs[1:]), dim=2), np.stack(xs, 2), rtol=0)
    assert k.loops <= 3


@pytest.mark.sweep
@pytest.mark.parametrize("perm", [(2, 0, 1), (2, 1, 0), (1, 0, 2), (0, 2, 1), (1, 2, 0)])
@pytest.mark.parametrize("rows, width", [(16, 2), (1, 2), (33, 1), (3, 70)])
def test_many_pieces_of_any_sizes_are_stored_right_in_any_order_of_axes(check, data, perm, rows, width):
    """Loops inside of those over pieces belong to these: shared by all pieces they would have to be around."""
    xs = [data(rows, width, n) for n in (2, 3, 4, 1, 8, 4, 9, 8, 5, 10)]
    wanted = np.concatenate(xs, 2).transpose(perm)
    check(Tensor.cat([Tensor(x) for x in xs], dim=2).permute(*perm).contiguous(), wanted)
    check(Tensor.cat([Tensor(x) * 2 for x in xs], dim=2).permute(*perm) + 1, wanted * 2 + 1)


def test_pieces_of_a_stack_share_loops_with_what_is_stored_beside_it(check, data):
    """Stored apart, they would stand in the inner loop of another store alone, which is no order of loops."""
    a, b = data(128), data(128)
    stack = Tensor(a).realize().stack(Tensor(b).realize(), Tensor(a).realize() * 2, dim=1)
    wanted = np.stack([a, b, a * 2], 1)
    check((stack, stack.T), (wanted, wanted.T))
