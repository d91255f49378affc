"""What shares a kernel: elementwise and reduce chains, row-local normalisations, siblings, matmul with its epilogue."""

import time

import numpy as np
import pytest

from monolect import Context, Tensor, Variable, dtypes, nn
from monolect.ir.bounds import ranges
from monolect.ir.uop import toposort
from monolect.runtime.profile import Recorder
from monolect.runtime.realize.execute import plans
from tests.strategies import often


def softmax(a, axis=-1):
    e = np.exp(a - a.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def sizes(kernel):
    """Iterations of the loops of a kernel's only store, outermost first."""
    (end,) = kernel.sink.src
    return [r.src[0].value for r in end.src[1:]]


# ---- elementwise -----------------------------------------------------------------------------------------------------
def test_an_elementwise_chain_is_one_loop(check, data):
    a, b = data(32, 48), data(32, 48)
    x, y = Tensor(a), Tensor(b)
    (k,) = check(((x * y + 1).exp() - x).relu() / 3, np.maximum(np.exp(a * b + 1) - a, 0) / 3)
    assert k.reads == 2 and k.loops == 1


def test_broadcast_operands_are_read_in_place(check, data):
    a, b, c = data(32, 48), data(48), data(32, 1)
    (k,) = check(Tensor(a) * Tensor(b) + Tensor(c), a * b + c)
    assert k.reads == 3


def test_a_value_used_twice_is_computed_once(structure, data):
    y = (Tensor(data(64)) * 3).exp()
    (k,) = structure(y + y.reshape(64) * 2)
    assert k.ir["EXP2"] == 1 and k.reads == 1


def test_siblings_share_a_kernel(check, data):
    a = data(32, 48)
    x = Tensor(a)
    (k,) = check((x + 1, x * 2, -x), (a + 1, a * 2, -a))
    assert k.reads == 1 and k.ir["STORE"] == 3 and k.loops == 1


def test_an_output_that_another_needs_is_stored_on_the_way(check, data):
    a = data(32, 48)
    y = Tensor(a).exp()
    (k,) = check((y, y + 1), (np.exp(a), np.exp(a) + 1))
    assert k.ir["EXP2"] == 1 and k.reads == 1


def test_constants_are_no_buffers(check, data):
    a = data(8)
    (k,) = check(Tensor(a) + Tensor.ones(8) * 2 + Tensor.full((1,), 0.5), a + 2.5)
    assert k.reads == 1


def test_what_belongs_to_outer_loops_is_computed_there(check, data):
    """A value for each channel is worth no store, and no loop order other than that of memory: the rows wait for it."""
    x, v = data(16, 64, 28, 28), np.abs(data(64)) + 1
    scale = Tensor(v).rsqrt().reshape(1, 64, 1, 1)
    (k,) = check(Tensor(x) * scale, x / np.sqrt(v).reshape(1, 64, 1, 1))
    assert k.ir["STORE"] == 1 and sizes(k) == [16, 64, 28, 28]


def test_what_belongs_to_inner_loops_has_a_kernel_of_its_own(check, data):
    """Columns outside of rows would save that kernel, and read memory across."""
    x, v = data(512, 1000), np.abs(data(1000)) + 1
    first, second = check(Tensor(x) * Tensor(v).rsqrt(), x / np.sqrt(v))
    assert sizes(first) == [1000] and sizes(second) == [512, 1000]


# ---- reductions ------------------------------------------------------------------------------------------------------
def test_a_reduce_fuses_with_what_is_before_and_after(check, data):
    a, b = data(32, 48), data(32)
    (k,) = check(((Tensor(a) * 2).exp().sum(1) + Tensor(b)).relu(), np.maximum(np.exp(a * 2).sum(1) + b, 0), 1e-4)
    assert k.ir["REDUCE"] == 1 and k.ir["STORE"] == 1 and k.loops == 2  # rows, vectors of a row


def test_reductions_over_the_same_ranges_share_kernel_and_loop(check, data):
    a = data(32, 48)
    x = Tensor(a)
    wanted = (a.sum(1), a.max(1), (a * a).sum(1), a.min(1))
    (k,) = check((x.sum(1), x.amax(1), (x * x).sum(1), x.amin(1)), wanted)
    assert k.ir["REDUCE"] == 4 and k.reads == 1 and k.loops == 2


def test_reductions_of_all_elements_share_a_loop(check, data):
    a = data(32, 48)
    x = Tensor(a)
    (k,) = check((x.sum(), x.amax()), (a.sum(), a.max()), 1e-4)
    assert k.loops == 1 and k.reads == 1


def test_mean_and_variance_of_rows(check, data):
    a = data(32, 48)
    v, m = Tensor(a).var_mean(1)
    (k,) = check((v, m), (a.var(1, ddof=1), a.mean(1)))
    assert k.ir["REDUCE"] == 2 and k.loops == 3


def test_sums_of_sums_are_one_kernel(check, data):
    a = data(6, 7, 8)
    (k,) = check(Tensor(a).sum(2).sum(1), a.sum((1, 2)))
    assert k.reads == 1


ROWS = {
    "softmax": (lambda x, w, b: x.softmax(-1), lambda a, w, b: softmax(a), 2, 3),
    "log_softmax": (lambda x, w, b: x.log_softmax(-1), lambda a, w, b: np.log(softmax(a)), 2, 3),
    "layer_norm": (
        lambda x, w, b: x.layer_norm((48,), w, b, 1e-5),
        lambda a, w, b: (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5) * w + b,
        2, 3,
    ),
    "rms_norm": (
        lambda x, w, b: x.rms_norm((48,), w, 1e-5),
        lambda a, w, b: a / np.sqrt((a * a).mean(1, keepdims=True) + 1e-5) * w,
        1, 2,
    ),
    "logsumexp": (lambda x, w, b: x.logsumexp(1), lambda a, w, b: np.log(np.exp(a).sum(1)), 2, 2),
    "softmax of scores": (lambda x, w, b: (x * w + b).softmax(-1), lambda a, w, b: softmax(a * w + b), 2, 3),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", ROWS)
def test_row_chains_are_one_kernel(check, data, name):
    """One loop over the rows; inside it `passes` loops over the columns, of which `reduces` accumulate."""
    ours, theirs, reduces, passes = ROWS[name]
    a, w, b = data(32, 48), data(48), data(48)
    (k,) = check(ours(Tensor(a), Tensor(w), Tensor(b)), theirs(a, w, b), 1e-4)
    assert k.ir["REDUCE"] == reduces and k.ir["STORE"] == 1 and k.loops == 1 + passes


def test_layer_norm_with_mean_and_rstd_is_one_kernel(check, data):
    a = data(32, 48)
    x = Tensor(a)
    mean = x.mean(1, keepdim=True)
    rstd = (((x - mean) ** 2).mean(1, keepdim=True) + 1e-5).rsqrt()
    m, r = a.mean(1, keepdims=True), 1 / np.sqrt(a.var(1, keepdims=True) + 1e-5)
    (k,) = check(((x - mean) * rstd, mean, rstd), ((a - m) * r, m, r))
    assert k.ir["STORE"] == 3 and k.loops == 4


def test_cross_entropy_is_one_kernel(check, data):
    a = data(16, 10)
    y = np.arange(16) % 10
    (k,) = check(Tensor(a).cross_entropy(Tensor(y)), -np.log(softmax(a)[np.arange(16), y]).mean())
    assert k.ir["STORE"] == 1


# ---- products --------------------------------------------------------------------------------------------------------
def test_matmul_with_bias_and_relu_is_one_kernel(check, data):
    a, w, b = data(16, 24), data(24, 32), data(32)
    (k,) = check((Tensor(a) @ Tensor(w) + Tensor(b)).relu(), np.maximum(a @ w + b, 0), 1e-4)
    assert k.ir["REDUCE"] == 1 and k.reads == 3 and k.loops == 2


def test_two_matmuls_are_two_kernels(check, data):
    a, v, w = data(16, 24), data(24, 32), data(32, 8)
    ks = check((Tensor(a) @ Tensor(v)).relu() @ Tensor(w), np.maximum(a @ v, 0) @ w, 1e-4)
    assert len(ks) == 2


def test_transposed_operands_are_not_copied(check, data):
    a, w = data(24, 16), data(32, 24)
    (k,) = check(Tensor(a).T @ Tensor(w).T, a.T @ w.T, 1e-4)
    assert k.reads == 2


def test_conv2d_with_padding_is_one_kernel(check, data):
    x, w, b = data(2, 3, 8, 8), data(4, 3, 3, 3), data(4)
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(p, (3, 3), (2, 3))
    wanted = np.einsum("nchwij,ocij->nohw", windows, w) + b[:, None, None]
    (k,) = check(Tensor(x).conv2d(Tensor(w), Tensor(b), padding=1).relu(), np.maximum(wanted, 0), 1e-4)
    assert k.reads == 3 and k.ir["REDUCE"] == 1


def test_max_pool_is_one_kernel(check, data):
    x = data(2, 3, 8, 8)
    (k,) = check(Tensor(x).max_pool2d(2), x.reshape(2, 3, 4, 2, 4, 2).max((3, 5)))
    assert k.reads == 1


# ---- a training step -------------------------------------------------------------------------------------------------
def test_a_training_step_with_adam(data):
    """Each gradient is one kernel with the update of its parameter as epilogue."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(20, 32), nn.Linear(32, 10)

        def forward(self, x):
            return self.second(self.first(x).relu())

    net = Net()
    optimizer = nn.optim.Adam(net.parameters(), lr=1e-2)
    x, y = Tensor(data(16, 20)).realize(), Tensor(np.arange(16) % 10).realize()

    def step():
        optimizer.zero_grad()
        loss = net(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss.item()

    first = step()
    losses = [step() for _ in range(2)]
    with Context(CHECK_BOUNDS=0), Recorder() as runs:  # which would look at the labels
        losses.append(step())
    losses.append(step())
    before = len(plans)
    losses += [step() for _ in range(5)]
    assert len(plans) == before, "a step like the last one is scheduled again"
    assert losses[-1] < first
    print(len(runs), [r.name for r in runs])
    assert len(runs) <= 11


# ---- long programs ---------------------------------------------------------------------------------------------------
def compile_time(n, seed=0):
    """Seconds of processors to compile a program of `n` ops that is not compiled yet: others may use them meanwhile."""
    x = Tensor(np.zeros(64, np.float32), device="null")
    for k in range(n // 3):
        x = (x * (1.5 + seed) + k).relu()
    start = time.process_time()
    x.realize()
    return time.process_time() - start


def test_a_step_of_adam_divides_once_for_each_weight(data):
    w = Tensor(data(40, 30), requires_grad=True)
    optimizer = nn.optim.Adam([w], lr=1e-2)
    (w * w).sum().backward()
    with Recorder() as kernels:
        optimizer.step()
    nodes = (u for k in kernels for u in toposort(k.call.src[0]) if ranges(u))
    per_weight = [u.op for u in nodes if u.op in ("DIV", "RECIP", "SQRT")]
    assert sorted(per_weight) == ["DIV", "SQRT"]


def test_thousands_of_ops_neither_overflow_nor_slow_down():
    """10,000 in `make test-all`; 4,000 tell time in proportion to the number from time in proportion to its square."""
    compile_time(10)
    n = often(4_000, 10_000)
    half, whole = (min(compile_time(k, seed) for seed in (1, 2)) for k in (n // 2, n))
    assert whole < 3 * half + 0.3, (half, whole)


def test_thousands_of_views():
    """Far more than Python's limit of 1000 nested calls: 2,000 in `make test`, 10,000 in `make test-all`."""
    x = Tensor(np.arange(64, dtype=np.float32))
    for _ in range(often(500, 2_500)):
        x = x.flip(0).reshape(8, 8).permute(1, 0).reshape(64)
    assert np.array_equal((x + 0).numpy(), np.arange(64))


def test_long_programs_compute_right():
    x = Tensor(np.ones(8, np.float32))
    for _ in range(3000):
        x = x * 1.5 - 0.5
    assert np.array_equal(x.numpy(), np.ones(8))


def test_a_sum_of_a_thousand_tensors():
    xs = [Tensor(np.full(4, k, np.int32)).realize() for k in range(1000)]
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    assert total.tolist() == [499500] * 4


def test_dtypes_of_counts(structure, data):
    """Summing bools needs no buffer of integers."""
    (k,) = structure((Tensor(data(32, 48)) > 0).sum(1))
    assert k.reads == 1 and k.ir["STORE"] == 1
    assert (Tensor(data(4)) > 0).sum().dtype is dtypes.int64


def test_several_results_of_a_long_product_are_computed_from_its_buffer(check, data):
    """A long sum is cut into blocks, which need the kernel's only store; a short one is computed where it is used."""
    a, b, m = data(4096, 24), data(4096, 24), data(24, 24)
    for n, stores in ((4096, [1, 2]), (512, [1, 2]), (128, [2])):
        g, want = Tensor(a[:n]).T @ Tensor(b[:n]), a[:n].T @ b[:n]
        ks = check((g * 0.1 + Tensor(m), g * 3 - Tensor(m)), (want * 0.1 + m, want * 3 - m), atol=1e-3)
        assert [k.ir["STORE"] for k in ks] == stores
    g, want = Tensor(a).T @ Tensor(b), a.T @ b
    assert len(check(g * 0.1 + Tensor(m), want * 0.1 + m, atol=1e-3)) == 1


def test_equal_masks_join_no_kernels(check, data):
    """What stacks two values and what stacks two others have a mask alone in common, and loops of their own."""
    a, b, c, d = data(100), data(100), data(77), data(77)
    ks = check(
        (Tensor.stack(Tensor(a), Tensor(b)), Tensor.stack(Tensor(c), Tensor(d))), (np.stack((a, b)), np.stack((c, d)))
    )
    assert len(ks) == 2


def test_a_number_that_both_read_joins_no_kernels_of_other_loops(check, data):
    """Of the gradient of a bias and the update of a weight, which have the size of a step in common: the sum keeps its
    vectors along the rows that it adds. Loops that are the same become one.
    """
    g, b, w, step = data(50, 40), data(40), data(40, 30), data(1)
    t = Tensor(step).realize().reshape(())
    sums, weight = b - step * g.sum(0), w - step * w
    assert len(check((Tensor(b) - t * Tensor(g).sum(0), Tensor(w) - t * Tensor(w)), (sums, weight), atol=1e-5)) == 2
    assert len(check((Tensor(b) * t, Tensor(b[::-1].copy()) + t), (b * step, b[::-1] + step))) == 1


def test_long_rows_are_added_up_in_a_kernel_of_their_own(check, data):
    """Some rows stream side by side into the only store; what makes several results of the sum reads it again."""
    for n, m, stores in ((512, 1024, [1, 2]), (512, 128, [2]), (64, 1024, [2])):
        g, b = data(n, m), data(m)
        s, want = Tensor(g).sum(0), g.sum(0)
        ks = check((s * 0.1 + Tensor(b), s * s + Tensor(b)), (want * 0.1 + b, want * want + b), atol=1e-3, rtol=1e-4)
        assert [k.ir["STORE"] for k in ks] == stores
    g = data(512, 1024)
    assert len(check(Tensor(g).mean(0), g.mean(0), atol=1e-5)) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_what_a_kernel_no_longer_reads_is_no_operand(first: int) -> None:
    """The elements of `x * 0 + 1` are those of a tensor of ones, so both have the same kernel, which takes no `x`."""
    x, n = Tensor([2, 3]).realize(), Variable("n", 1, 4)
    ones = Tensor.full((2,), 1, dtype=x.dtype).contiguous()
    for shown, want in (([x * 0 + 1, ones], [[1, 1], [1, 1]]), ([x * 0 + n, x * n], [[3, 3], [6, 9]])):
        with n.bind(3):
            shown[first].realize(shown[1 - first])
        assert [t.tolist() for t in shown] == want
