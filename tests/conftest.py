"""What every test stands on: a private cache, the checks switched on, and random examples that can be repeated."""

import ctypes
import gc
import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

# Set before the first import of monolect, which reads the environment once.
_CACHE = tempfile.mkdtemp(prefix="monolect-test-cache-")
os.environ["MONOLECT_CACHE"] = _CACHE
os.environ.setdefault("VERIFY", "1")
os.environ.setdefault("CHECK_BOUNDS", "1")

from hypothesis import HealthCheck, settings  # noqa: E402

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "bounded", deadline=None, max_examples=30, print_blob=True, suppress_health_check=_SLOW_IS_FINE
)
settings.register_profile(
    "thorough", deadline=None, max_examples=1000, print_blob=True, suppress_health_check=_SLOW_IS_FINE
)
settings.load_profile("bounded")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew instead of comparing")
    parser.addoption("--draw", type=int, default=1, help="run one in so many cells of a sweep, drawn by the seed")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # A seed that is chosen here, and not inside hypothesis, can be printed, so that a failure can be repeated. The
    # processes that xdist starts inherit it from the environment: all draw the same cells of sweeps.
    if config.getoption("--hypothesis-seed", None) is None:
        seed = os.environ.setdefault("TEST_SEED", str(random.SystemRandom().randrange(2**32)))
        config.option.hypothesis_seed = seed


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Any:
    """Without collections of garbage: all that is made stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one in `--draw` of the cells of each sweep, after `-m` and `-k` have left out theirs.

    Of a sweep with fewer cells, one is kept in every second run. A sweep whose cells take long, or that each run needs,
    may say `sweep(one_in=n)` instead. Cells that are skipped are not drawn while the sweep has others.
    """
    sweeps: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sweep"):
            sweeps.setdefault(item.nodeid.partition("[")[0], []).append(item)
    dropped: set[pytest.Item] = set()
    for name, cells in sweeps.items():
        if config.option.draw == 1:
            continue
        runnable = [cell for cell in cells if not cell.get_closest_marker("skip")] or cells
        draw = random.Random(f"{config.option.hypothesis_seed} {name}")
        mark = cells[0].get_closest_marker("sweep")
        n = mark.kwargs.get("one_in") if mark else 1
        is_out = n is None and len(runnable) < config.option.draw and draw.random() < 0.5
        kept = [] if is_out else draw.sample(runnable, -(-len(runnable) // (n or config.option.draw)))
        dropped |= {*cells}.difference(kept)
    items[:] = [item for item in items if item not in dropped]
    config.hook.pytest_deselected(items=[*dropped])


def pytest_report_header(config: pytest.Config) -> str:
    drawn = f"; one in {config.option.draw} of the cells of sweeps" if config.option.draw > 1 else ""
    return f"random examples{drawn}: repeat with --hypothesis-seed={config.option.hypothesis_seed}"


@pytest.fixture
def start(request: pytest.FixtureRequest) -> int:
    """The first of the seeds from which a test draws its programs. It follows from `--hypothesis-seed`."""
    return random.Random(request.config.getoption("--hypothesis-seed")).randrange(10**6)


def pytest_unconfigure() -> None:
    shutil.rmtree(_CACHE, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """After the suite of ops: a line for each device: ran, compiled, or why not."""
    reports = [(kind, r) for kind, found in terminalreporter.stats.items() for r in found if hasattr(r, "nodeid")]
    suite = [(kind, r.nodeid) for kind, r in reports if "/test_ops_suite.py::" in r.nodeid]
    if not suite:
        return
    from monolect.cli.devices import rows

    terminalreporter.section("devices")
    for row in rows():
        mine = [kind for kind, test in suite if row.name in test.rpartition("[")[2].rstrip("]").split("-")]
        counts = ", ".join(f"{mine.count(kind)} {kind}" for kind in ("passed", "failed") if mine.count(kind))
        text = f"suite of ops: {counts}; {row.text}" if counts else row.text
        terminalreporter.write_line(f"{row.name:7} {row.status:9} {text}")


@pytest.fixture(scope="session", autouse=True)
def _captured_steps_are_interpreted() -> None:
    """See `tests/interpreted.py`."""
    from tests.interpreted import install

    install()


@pytest.fixture(scope="session", autouse=True)
def whole_text() -> Callable[[Any], str]:
    """Errors do not quote the test: their text ends with the user's line, which in a test may hold the very words that
    are looked for. The fixture is the function that gives the whole text.
    """
    from monolect import MonolectError

    with_source = MonolectError.__str__

    def __str__(self: MonolectError) -> str:
        return re.sub(r"(\n  at [^\n]*?:\d+): [^\n]*$", r"\1", with_source(self))

    MonolectError.__str__ = __str__  # type: ignore[method-assign]
    return with_source


@pytest.fixture(scope="session", autouse=True)
def _a_compiler_keeps_its_pages() -> None:
    """Programs drop a compiler's pages ten times a second while they compile, and then map them again. Tests compile
    all the time: it took one fifteenth of theirs. `tests/unit/test_memory.py` is about the drops.
    """
    from monolect.backend.common import pages

    pages.DROP_EVERY_S = 60.0  # type: ignore[misc]


@pytest.fixture(scope="module", autouse=True)
def _what_was_there_before_is_set_aside() -> None:
    """What stands when a module's first test starts stays for good, as torch, the tests and caches do: half a million
    objects and more. No later collection walks through them, nor does a capture when it looks for all Tensors; so those
    are taken back among the objects that are looked at.
    """
    from monolect.tensor.tensor import live_tensors

    gc.collect()
    tensors = live_tensors()
    gc.freeze()
    for t in tensors:
        ctypes.pythonapi.PyObject_GC_UnTrack(ctypes.py_object(t))
        ctypes.pythonapi.PyObject_GC_Track(ctypes.py_object(t))


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """True when golden files are to be written anew."""
    return bool(request.config.getoption("--update-golden"))
