"""The table of settings: values from the environment, checks, Context, and what DEBUG and TRACE turn on."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect import Tensor, autocast, enable_grad, is_grad_enabled, jit, no_grad
from monolect.base.errors import SettingError
from monolect.base.settings import BY_NAME, DEBUG_PRESETS, TABLE, TRACE_WORDS, Context, Settings, settings


def test_rows_are_complete():
    assert len(BY_NAME) == len(TABLE)
    for row in TABLE:
        assert row.meaning and row.layer and row.kind in ("int", "str", "flag", "words", "names")
        assert row.check(row.default) == row.default


def test_defaults_without_environment():
    fresh = Settings({})
    assert {row.name: getattr(fresh, row.name) for row in TABLE} == {row.name: row.default for row in TABLE}


def test_environment_is_read():
    fresh = Settings({"DEBUG": "3", "DEVICE": "python", "TRACE": "src, rules", "NO_COLOR": "yes", "THREADS": ""})
    assert (fresh.DEBUG, fresh.DEVICE, fresh.TRACE, fresh.NO_COLOR, fresh.THREADS) == (3, "python", "src,rules", 1, 0)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("DEBUG", "7", "an integer from 0 to 6"),
        ("DEBUG", "yes", "an integer from 0 to 6"),
        ("THREADS", "-1", "an integer of at least 0"),
        ("TRACE", "src,everything", "a comma list of totals, cmds"),
        ("CACHE_LIMIT_MB", "0.5", "an integer of at least 1"),
    ],
)
def test_bad_environment_is_refused(name, text, expected):
    with pytest.raises(SettingError, match=name) as caught:
        Settings({name: text})
    assert f"expected: {expected}" in str(caught.value)
    assert f"found: {text!r}" in str(caught.value)


def test_bad_environment_is_refused_when_python_starts():
    command = [sys.executable, "-c", "import monolect.base.settings"]
    result = subprocess.run(command, env={**os.environ, "VERIFY": "many"}, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "bad value for environment variable VERIFY" in result.stderr


@pytest.mark.parametrize("value", [9, -1, 1.0, "1", None])
def test_bad_values_are_refused_and_change_nothing(value):
    before = settings.DEBUG
    with pytest.raises(SettingError, match="bad value for setting DEBUG"):
        settings.DEBUG = value
    assert settings.DEBUG == before


def test_booleans_are_stored_as_integers():
    with Context(NOOPT=True):
        assert settings.NOOPT == 1 and type(settings.NOOPT) is int


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(SettingError, match=r"unknown setting DEBG\n  expected: DEBUG \(did you mean that\?\)"):
        Context(DEBG=1)
    with pytest.raises(SettingError, match=r"DEBUG \(did you mean"):
        Context(debug=1)
    with pytest.raises(SettingError, match="one of DEBUG, TRACE"):
        Context(qqqqqq=1)
    with pytest.raises(SettingError, match="unknown setting VERFY"):
        settings.VERFY = 1
    with pytest.raises(AttributeError):
        _ = settings.VERFY


def test_context_sets_and_restores_even_after_an_error():
    before = (settings.DEBUG, settings.THREADS)
    with pytest.raises(RuntimeError, match="inside"), Context(DEBUG=2, THREADS=4):
        assert (settings.DEBUG, settings.THREADS) == (2, 4)
        raise RuntimeError("inside")
    assert (settings.DEBUG, settings.THREADS) == before


def test_context_checks_all_before_it_sets_any():
    before = settings.THREADS
    with pytest.raises(SettingError):
        Context(THREADS=4, DEBUG=99)
    assert settings.THREADS == before


def test_contexts_nest_and_one_may_be_entered_twice():
    before = settings.THREADS
    context = Context(THREADS=1)
    with context, Context(THREADS=2), context:
        assert settings.THREADS == 1
    assert settings.THREADS == before


def test_context_decorates_also_a_recursive_function():
    @Context(THREADS=3)
    def count(n: int) -> list[int]:
        return [settings.THREADS] + (count(n - 1) if n else [])

    before = settings.THREADS
    assert count(2) == [3, 3, 3]
    assert settings.THREADS == before


def test_debug_levels_are_presets_of_trace():
    with Context(DEBUG=0, TRACE=""):
        assert settings.tracing == frozenset()
        for level in range(1, 7):
            with Context(DEBUG=level):
                assert settings.tracing == {word for preset in DEBUG_PRESETS[: level + 1] for word in preset}
        with Context(DEBUG=1, TRACE="src"):
            assert settings.tracing == {"totals", "src"}
    assert len(DEBUG_PRESETS) == BY_NAME["DEBUG"].max + 1
    assert {"cmds", "passes", "src", "ir", "rules"} <= set(TRACE_WORDS)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=12))
def test_blocks_that_end_in_any_order_restore_what_was_before_all(turns: list[int]) -> None:
    """As those of several threads do: each turn enters a block, or ends it."""
    makes: list[Callable[[], Any]] = [no_grad, autocast, enable_grad, lambda: Context(GRAD=0, AUTOCAST="float16")]
    before, active = (settings.GRAD, settings.AUTOCAST), dict[int, Any]()
    for k in turns:
        if k in active:
            active.pop(k).__exit__(None, None, None)
        else:
            active[k] = makes[k]()
            active[k].__enter__()
    for block in active.values():
        block.__exit__(None, None, None)
    assert (settings.GRAD, settings.AUTOCAST) == before


def test_an_inner_block_counts_until_it_ends() -> None:
    outer, inner = no_grad(), enable_grad()
    outer.__enter__()
    inner.__enter__()
    outer.__exit__()
    assert settings.GRAD == 1
    with no_grad():
        assert settings.GRAD == 0
    inner.__exit__()
    assert settings.GRAD == 1


def test_modes_belong_to_a_thread() -> None:
    """As in PyTorch: a new thread has a graph and no casts, also where the thread that starts it has none."""
    w = Tensor([1.0, 2.0], requires_grad=True)
    entered, go_on = threading.Event(), threading.Event()
    seen: list[Any] = []
    before = settings.n_unusual

    def other() -> None:
        seen.append((settings.GRAD, settings.AUTOCAST))
        with no_grad(), autocast():
            entered.set()
            go_on.wait(10)
            seen.append((settings.GRAD, settings.AUTOCAST))
        seen.append((settings.GRAD, settings.AUTOCAST))

    with no_grad():
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait(10)
    (w * w).sum().backward()
    y = Tensor.ones(2, 2) @ Tensor.ones(2, 2)
    go_on.set()
    thread.join()
    assert w.grad.tolist() == [2.0, 4.0] and y.dtype.name == "float32"
    assert seen == [(1, ""), (0, "bfloat16"), (1, "")]
    assert settings.n_unusual == before


def test_a_captured_step_follows_the_mode_of_the_thread_that_calls_it() -> None:
    step = jit(lambda x: x * (2 if is_grad_enabled() else 3))
    x = Tensor([1.0])
    with ThreadPoolExecutor(1) as pool:

        def without() -> list[float]:
            with no_grad():
                return [step(x).item() for _ in range(3)]

        assert [step(x).item() for _ in range(3)] == [2.0] * 3
        assert pool.submit(without).result() == [3.0] * 3
        assert pool.submit(lambda: step(x).item()).result() == step(x).item() == 2.0
    assert len(step.captures) == 2


def test_a_block_that_ends_in_another_thread_changes_nothing_there() -> None:
    block = no_grad()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(block.__enter__).result()
        with enable_grad():
            block.__exit__()
            assert settings.GRAD == 1
        assert settings.GRAD == 1
