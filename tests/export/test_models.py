"""Exported models of ordinary size: the bits of the device `c`, near the device `cpu`."""

import numpy as np
import pytest

from benchmarks.export.models import LARGE, SMALL
from benchmarks.export.program import Program, build, compilers

COMPILERS = compilers()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not COMPILERS, reason="no C compiler: install gcc or clang")]


@pytest.mark.parametrize("case", [*SMALL, *LARGE], ids=lambda c: f"{c.name} {c.outputs[0][1]}")
@pytest.mark.parametrize("compiler", COMPILERS)
def test_bits(case, compiler, tmp_path):
    step, other = case.make("c"), case.make("cpu")
    case.call(step, 0, "c")
    case.call(other, 0, "cpu")
    step.export(tmp_path / "out", march="native")
    build(tmp_path / "out", compiler, "-O2 -march=native")
    program, out = Program(tmp_path / "out"), np.zeros(case.outputs[0], np.float32)
    results = []
    for n in range(1, 4):
        program(*case.arguments, *([case.sizes[n]] if case.size else []), out)
        np.testing.assert_array_equal(out, case.call(step, n, "c")[0])
        results.append(out.copy())
        want = case.call(other, n, "cpu")[0]
        np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5 * abs(want).max())
    program.init()  # from the start again
    for n, want in enumerate(results, 1):
        program(*case.arguments, *([case.sizes[n]] if case.size else []), out)
        np.testing.assert_array_equal(out, want)
