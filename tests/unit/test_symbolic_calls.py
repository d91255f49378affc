"""Precompiled functions, layers, random numbers and files over symbolic sizes."""

import numpy as np
import pytest
import torch

from monolect import Context, JitError, ShapeError, Tensor, Variable, function, grad, jit, nn

LENGTH, WIDTH = 8, 4


def weights(n=3):
    return [np.random.default_rng(k).standard_normal((WIDTH, WIDTH)).astype(np.float32) * 0.3 for k in range(n)]


def inputs():
    return np.random.default_rng(9).standard_normal((LENGTH, WIDTH)).astype(np.float32)


def expected(x, ws):
    """The model in PyTorch, on a leaf: (last activations, sum of the attended rows of all layers)."""
    h, total = x, 0
    for w in map(torch.tensor, ws):
        attended = (h @ h.T).softmax(-1) @ h
        h, total = (attended @ w).tanh(), total + attended.sum(0)
    return h, total


def model(n, ws):
    @function(precompile=True)
    def block(h, w):
        attended = (h @ h.T).softmax(-1) @ h
        return (attended @ w).tanh(), attended.sum(0)

    def run(x):
        h, total = x[:n], 0
        for w in ws:
            h, part = block(h, w)
            total = total + part
        return h, total, h * 2, h[:1], h.sum()

    return run


@pytest.mark.sweep
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "captured"])
def test_a_precompiled_block_takes_every_size(wrap):
    n, x = Variable("n", 1, LENGTH), inputs()
    f = wrap(model(n, [Tensor(w).realize() for w in weights()]))
    for size in (3, 8, 1, 5, 5, 2):
        with n.bind(size):
            found = [t.numpy() for t in f(Tensor(x).realize())]
        h, total = (t.numpy() for t in expected(torch.tensor(x[:size]), weights()))
        for got, want in zip(found, (h, total, h * 2, h[:1], h.sum()), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.sweep
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "captured"])
def test_its_gradient_takes_every_size(wrap):
    n, x = Variable("n", 1, LENGTH), inputs()
    run = model(n, [Tensor(w).realize() for w in weights()])
    f = wrap(grad(lambda x: run(x)[0].square().sum()))
    for size in (4, 7, 4, 8):
        with n.bind(size):
            found = f(Tensor(x).realize()).numpy()
        leaf = torch.tensor(x, requires_grad=True)
        expected(leaf[:size], weights())[0].square().sum().backward()
        np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.sweep
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "captured"])
def test_a_precompiled_block_has_a_growing_cache(wrap):
    at = Variable("at", 0, LENGTH - 1)

    @function(precompile=True)
    def block(h, cache, w):
        cache[at : at + 1] = h @ w
        keys = cache[: at + 1]
        return ((h @ keys.T).softmax(-1) @ keys).tanh()

    layers = [(Tensor.zeros(LENGTH, WIDTH).contiguous().realize(), Tensor(w).realize()) for w in weights()]

    def step(h):
        for cache, w in layers:
            h = block(h, cache, w)
        return h

    f = wrap(step)
    known = [torch.zeros(0, WIDTH) for _ in layers]
    for t in range(LENGTH):
        h = torch.full((1, WIDTH), 0.1 * t + 0.1)
        with at.bind(t):
            found = f(Tensor(h.numpy())).numpy()
        for k, w in enumerate(map(torch.tensor, weights())):
            known[k] = torch.cat([known[k], h @ w])
            h = ((h @ known[k].T).softmax(-1) @ known[k]).tanh()
        np.testing.assert_allclose(found, h.numpy(), rtol=1e-5, atol=1e-6)
    if f is not step:
        assert len(f.captures) == 1


def test_a_captured_step_that_reads_values_of_todays_size_is_refused():
    n = Variable("n", 1, LENGTH)
    step = jit(lambda x: (x[:n] * 2).realize() + 1)
    with n.bind(3), pytest.raises(JitError, match="symbolic size"):
        step(Tensor(inputs()).realize())


# ---- layers ----------------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "captured"])
@pytest.mark.parametrize("along", ["batch", "sequence"])
def test_multi_head_attention(along, wrap):
    n, x = Variable("n", 2, 6), np.random.default_rng(0).standard_normal((6, 6, 6)).astype(np.float32)
    layer, peer = nn.MultiheadAttention(6, 2, batch_first=True), torch.nn.MultiheadAttention(6, 2, batch_first=True)
    layer.load_state_dict({k: Tensor(v.detach().numpy()) for k, v in peer.state_dict().items()})
    cut = (lambda x, n: x[:n]) if along == "batch" else (lambda x, n: x[:2, :n])
    f = wrap(lambda x: layer(cut(x, n), cut(x, n), cut(x, n))[0])
    for size in (3, 6, 2):
        with n.bind(size):
            found = f(Tensor(x).realize()).numpy()
        part = cut(torch.tensor(x), size)
        np.testing.assert_allclose(found, peer(part, part, part)[0].detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "captured"])
def test_batch_norm_in_training(wrap):
    n, x = Variable("n", 2, 6), np.random.default_rng(0).standard_normal((6, 3, 5)).astype(np.float32)
    layer, peer = nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    f = wrap(lambda x: layer(x[:n]))
    for size in (3, 6, 2):
        with n.bind(size):
            found = f(Tensor(x).realize()).numpy()
        np.testing.assert_allclose(found, peer(torch.tensor(x[:size])).detach().numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(layer.running_var.numpy(), peer.running_var.numpy(), rtol=1e-5)
        np.testing.assert_allclose(layer.running_mean.numpy(), peer.running_mean.numpy(), rtol=1e-5, atol=1e-7)


def test_batch_norm_of_perhaps_one_value_is_refused():
    n = Variable("n", 1, 6)
    with n.bind(3), pytest.raises(ShapeError, match="batch_norm in training"):
        nn.BatchNorm1d(4)(Tensor.ones(6, 4)[:n])


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_norms_over_an_axis_named_by_its_variable(norm):
    n, x = Variable("n", 2, 6), np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    for size in (3, 6):
        for shape in (n, [n]):
            with n.bind(size):
                found = getattr(Tensor(x)[:, :n], norm)(shape).numpy()
            want = getattr(torch.nn.functional, norm)(torch.tensor(x[:, :size]), [size])
            np.testing.assert_allclose(found, want.numpy(), rtol=1e-4, atol=1e-5)


# ---- random numbers --------------------------------------------------------------------------------------------------
def test_random_numbers_of_symbolic_shape():
    n = Variable("n", 1, 1000)
    for draw in (lambda: Tensor.rand(n), lambda: Tensor.randn(2, n)[0], lambda: Tensor.randint(0, 9, (n,)).float()):
        drawn = []
        for size in (1000, 7, 1000):
            with n.bind(size):
                drawn.append(draw().numpy())
                assert drawn[-1].shape == (size,)
        assert len(np.unique(drawn[0])) > 8 and not np.array_equal(drawn[0], drawn[2])
    with n.bind(1000):
        assert abs(Tensor.randn(n, 100).numpy().std() - 1) < 0.02
        assert abs(Tensor.randn(n, 100, dtype="float64").numpy().mean()) < 0.02


def test_draws_of_symbolic_shape_share_no_numbers_with_later_ones():
    n = Variable("n", 1, 500)
    with n.bind(500):
        first, second = Tensor.rand(n), Tensor.rand(500)
        both = np.concatenate([first.numpy(), second.numpy()])
    assert len(np.unique(both)) > 990  # 24 bits a number: few of 1000 coincide


def test_dropout_over_a_symbolic_size():
    n = Variable("n", 1, 4000)
    step = jit(lambda x: x[:n].dropout(0.25))
    x = Tensor.ones(4000).realize()
    with Context(TRAINING=1):
        for size in (4000, 1000, 4000):
            with n.bind(size):
                found = step(x).numpy()
            assert found.shape == (size,) and abs((found == 0).mean() - 0.25) < 0.05
            np.testing.assert_allclose(found[found != 0], 1 / 0.75, rtol=1e-6)


def test_initial_weights_need_known_sizes():
    n = Variable("n", 1, 4)
    with n.bind(3), pytest.raises(ShapeError, match="kaiming_uniform: size"):
        Tensor.kaiming_uniform(n, 4)


# ---- shapes ----------------------------------------------------------------------------------------------------------
def test_reshape_infers_a_size_beside_symbolic_ones():
    n, m = Variable("n", 1, 6), Variable("m", 1, 6)
    x = Tensor(np.arange(6 * 6 * 4).reshape(6, 6, 4))
    with n.bind(3), m.bind(2):
        part = x[:n, :m]
        assert part.reshape(n, m, 2, -1).numpy().shape == (3, 2, 2, 2)
        assert part.reshape(m, -1, 4).numpy().shape == (2, 3, 4)
        assert part.reshape(-1, 2).numpy().shape == (12, 2)
        np.testing.assert_array_equal(part.reshape(n, -1).numpy(), x.numpy()[:3, :2].reshape(3, -1))
