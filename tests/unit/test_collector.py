"""The garbage collector while much is made that stays."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from monolect.base import collector
from monolect.base.collector import MANY, collection_paused


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(collector, "_has_frozen", False)
    was_on, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.unfreeze()
    yield
    (gc.enable if was_on else gc.disable)()
    if frozen:
        gc.freeze()


@pytest.mark.parametrize("is_on", [True, False])
def test_it_is_paused_and_then_as_it_was(is_on):
    (gc.enable if is_on else gc.disable)()
    with collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled() == is_on
    with pytest.raises(ValueError), collection_paused():
        raise ValueError
    assert gc.isenabled() == is_on


def test_many_objects_that_are_left_are_old_at_once_and_still_collected():
    gc.enable()
    with collection_paused():
        cycle: list = [[] for _ in range(MANY + 1)]
        cycle.append(cycle)
    assert any(x is cycle for x in gc.get_objects(generation=2))
    del cycle
    assert gc.collect() > MANY


def test_few_are_as_young_as_any_others():
    gc.enable()
    gc.collect()
    with collection_paused():
        made: list = []
    assert not any(x is made for x in gc.get_objects(generation=2))


def test_what_the_user_froze_stays_frozen():
    gc.enable()
    gc.freeze()
    try:
        n = gc.get_freeze_count()
        with collection_paused():
            made = [[] for _ in range(2 * MANY)]
        assert gc.get_freeze_count() == n and len(made) > MANY
        assert collector._has_frozen  # they are not counted again
    finally:
        gc.unfreeze()


def test_importing_collects_hardly_anything_and_imports_no_more_than_it_needs():
    """Python's modules that only errors, generators of random numbers and clocks need."""
    program = """
import gc, sys
before, found = set(sys.modules), []
gc.callbacks.append(lambda phase, info: found.append(phase))
import monolect
gc.callbacks.clear()
print(len(found), *sorted({"datetime", "linecache", "pickle", "numpy"} & (set(sys.modules) - before)))
"""
    n, *modules = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(n) < 30 and not modules  # 62 where it is not paused
