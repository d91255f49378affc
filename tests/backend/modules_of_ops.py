"""The suite of ops, many programs a test: for devices that take long for each. `make test-all` runs it.

A module that imports these has a fixture `device`, the name of one.
"""

import pytest

from tests.backend import test_ops_suite as suite


@pytest.mark.slow
@pytest.mark.parametrize("op", suite.OPS)
def test_elementwise(op, device):
    suite.test_elementwise(op, device)


@pytest.mark.slow
def test_casts(device):
    for d in suite.DTYPES:
        suite.test_casts_between_all_dtypes(d, device)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["ADD", "MAX", "MUL"])
def test_reductions(op, device):
    for d in suite.DTYPES:
        suite.test_reductions(op, d, device)


@pytest.mark.slow
def test_corners(device):
    for d in suite.INTEGERS:
        suite.test_division_by_zero_is_zero_and_the_smallest_wraps(device, d)
        suite.test_shifts_outside_of_the_bits(device, d)
    suite.test_division_rounds_down_and_the_remainder_has_the_sign_of_the_divisor(device)
    suite.test_a_maximum_of_nan_is_nan_and_of_nothing_special_is_right(device)


@pytest.mark.slow
def test_bits(device):
    for d in suite.DTYPES:
        if d.kind != "b":
            suite.test_bitcasts(device, d)
    suite.test_bitcast_between_sizes(device)


@pytest.mark.slow
def test_sums_by_place(device):
    for d in suite.DTYPES:
        if d.bits > 8 or not d.is_float:
            suite.test_sums_by_place(device, d)


@pytest.mark.slow
def test_narrow_floats(device):
    for d in suite.NARROW:
        suite.test_narrow_floats_are_storage(device, d)
