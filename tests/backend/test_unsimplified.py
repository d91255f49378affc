"""SIMPLIFY=0, and all that is optional switched off: samples of the suite of ops, and programs, have equal results."""

import numpy as np
import pytest

from monolect import Context, Tensor, jit, nn
from monolect.pipeline import needed
from tests.backend import test_ops_suite as suite
from tests.passes.test_actions import PROGRAMS

ALL = ",".join(name for name, why in needed().items() if not why)
OFF = [{"SIMPLIFY": 0}, {"DISABLE": ALL}, {"SIMPLIFY": 0, "DISABLE": ALL}]
DEVICES = ["cpu", "python", "python:gpu"]


@pytest.mark.sweep
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", suite.OPS)
def test_elementwise(op, device):
    with Context(**OFF[suite.OPS.index(op) % 3]):
        suite.test_elementwise(op, device)


@pytest.mark.sweep
@pytest.mark.parametrize("device", DEVICES)
def test_what_is_no_elementwise_op(device):
    with Context(SIMPLIFY=0):
        suite.test_division_rounds_down_and_the_remainder_has_the_sign_of_the_divisor(device)
        suite.test_casts_between_all_dtypes(suite.DTYPES[1], device)
        suite.test_bitcast_between_sizes(device)
        suite.test_reductions("ADD", suite.dtypes.float32, device)
        suite.test_reductions("MAX", suite.dtypes.int8, device)
        suite.test_sums_by_place(device, suite.dtypes.float32)


@pytest.mark.sweep
@pytest.mark.parametrize("off", OFF, ids=["raw nodes", "nothing optional", "neither"])
@pytest.mark.parametrize("name", suite.PROGRAMS)
def test_programs(name, off):
    with Context(**off):
        suite.test_programs(name, "cpu")


@pytest.mark.sweep
@pytest.mark.parametrize("off", OFF, ids=["raw nodes", "nothing optional", "neither"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_exact_programs(name, off):
    """Sums of whole numbers: every bit counts."""

    def values():
        out = PROGRAMS[name]()
        return [t.numpy() for t in (out if isinstance(out, list) else [out])]

    want = values()
    with Context(**off):
        got = values()
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL.split(","))
def test_exact_programs_without_one_name(name):
    """It hangs nowhere, either: loops of rewrites end without each of the identities."""
    programs = [PROGRAMS[p] for p in ("matmul", "rows", "scan", "lower triangle", "attention over joined keys")]
    want = [program().numpy() for program in programs]
    with Context(DISABLE=name):
        for program, right in zip(programs, want, strict=True):
            np.testing.assert_array_equal(program().numpy(), right)


def test_a_reduction_over_one_element_beside_a_value_that_is_stored():
    x = np.arange(5, dtype=np.float32)
    with Context(SIMPLIFY=0):
        assert Tensor(x).reshape(5, 1).topk(1, 1).values.tolist() == x.reshape(5, 1).tolist()
        exp = Tensor(x).reshape(5, 1).exp().contiguous()
        both = exp, exp.sum(1) + 1
        both[0].realize(both[1])
    np.testing.assert_allclose(both[0].numpy()[:, 0], np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(both[1].numpy(), np.exp(x) + 1, rtol=1e-6)


def losses():
    """Of three captured steps of training."""
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    for k, p in enumerate(model.parameters()):
        p.assign(Tensor(np.random.default_rng(k).normal(size=p.shape).astype(np.float32)).realize())
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1)

    @jit
    def step(x, y):
        optimizer.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = Tensor(rng.normal(size=(5, 6)).astype(np.float32)), Tensor(rng.integers(0, 3, 5))
    return [step(x, y).item() for _ in range(3)]


def test_training():
    want = losses()
    for off in OFF:
        with Context(**off):
            np.testing.assert_allclose(losses(), want, rtol=1e-5)
