"""What tests of several devices set up alike."""

from collections.abc import Iterator

import pytest

from monolect import Context
from monolect.runtime.realize import execute


@pytest.fixture
def no_plans() -> Iterator[None]:
    """Plans hold the device they were made for: none from before, and none left for the next test."""
    execute.plans.clear()
    yield
    execute.plans.clear()


@pytest.fixture
def compiled_anew(no_plans: None) -> Iterator[None]:
    """No plan and no program of a device that another stands in for."""
    with Context(COMPILE_CACHE=0):
        yield
