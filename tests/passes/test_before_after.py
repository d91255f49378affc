"""Each kernel pass on small kernels, as text: what goes in and what comes out. The cases stand beside this file."""

import inspect

import pytest

from monolect.ir.text import parse
from monolect.lower.blocked_sums import fold_sums
from monolect.lower.cold_paths import branch_cold_paths
from monolect.lower.control import control
from monolect.lower.demote import demote_registers
from monolect.lower.expand import expand
from monolect.lower.gpu.device_axes import device_axes
from monolect.lower.linearize import linearize
from monolect.lower.matrix_products import matrix_units
from monolect.lower.peel_last import peel_last
from monolect.lower.reduce import lower_reduce
from monolect.lower.select import select
from monolect.lower.software_pipeline import ahead
from monolect.optimize.apply import apply_actions, choose_actions
from monolect.optimize.merge import merge_ranges
from monolect.pipeline import KERNEL
from monolect.rules.algebra import simplify
from monolect.rules.loops.concat import read_at_once, stored_apart
from monolect.rules.loops.concat_boundaries import split_seams
from monolect.rules.loops.reductions import simplify_loops
from tests.passes import (
    cases_of_boxes,
    cases_of_branches,
    cases_of_devices,
    cases_of_hand,
    cases_of_loops,
    cases_of_merging,
    cases_of_products,
    cases_of_sections,
    cases_of_selection,
    cases_of_stages,
    cases_of_steps,
    cases_of_sums,
    cases_of_tables,
    cases_of_values,
)
from tests.passes.conftest import assert_same_graph, assert_same_meaning

CASES = cases_of_loops.CASES | cases_of_products.CASES | cases_of_tables.CASES | cases_of_devices.CASES
CASES |= cases_of_values.CASES | cases_of_merging.CASES | cases_of_sections.CASES | cases_of_selection.CASES
CASES |= cases_of_stages.CASES | cases_of_steps.CASES | cases_of_boxes.CASES | cases_of_branches.CASES
CASES |= cases_of_hand.CASES | cases_of_sums.CASES


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES, ids=": ".join)
def test_before_and_after(case):
    run, before, after = CASES[case]
    b = parse(before)
    got = run(b)
    if after is None:
        assert got is b
    else:
        assert_same_graph(got, parse(after))


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES, ids=": ".join)
def test_the_meaning_stays(case):
    """Both kernels, run by the interpreter on the same buffers, leave the same values."""
    run, before, after = CASES[case]
    if (
        after is None
        or case[0] in ("linearize", "control")
        or "BARRIER" in after
        or ("WMMA" in after and "LOCAL" in after)
    ):
        return  # a list, or lanes that wait for each other, have no meaning of their own here; the devices run them
    b = parse(before)
    assert_same_meaning(run(b), b)


@pytest.mark.parametrize("name", [p.name for p in KERNEL])
def test_every_kernel_pass_has_cases_and_says_what_it_does(name):
    assert sum(p == name for p, _ in CASES) >= 2
    functions = {"simplify": simplify, "simplify_loops": simplify_loops, "merge_ranges": merge_ranges, "choose": choose_actions, "apply": apply_actions,
                 "device_axes": device_axes, "control": control, "ahead": ahead,
                 "stored_apart": stored_apart, "split_seams": split_seams, "read_at_once": read_at_once, "seldom": branch_cold_paths,
                 "expand": expand, "lower_reduce": lower_reduce, "select": select, "linearize": linearize,
                 "peel_last": peel_last, "fold_sums": fold_sums, "demote_registers": demote_registers, "matrix_units": matrix_units}  # fmt: skip
    prose = inspect.getmodule(functions[name]).__doc__
    assert "Before:" in prose and "After:" in prose
