"""Random steps that read containers, queues, arrays and records around them, and change some, beside plain calls.

A step is a few lines over one or two holders. A line reads a holder, by its items or by attributes that its type in C
has, or changes it: appends, rotates, takes from a queue, exchanges tensors. Between the calls others change the
holders in the same ways. A step, captured or traced, gives what its plain function gives.
"""

import re
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from monolect import CaptureWarning, Context, Tensor, function, jit
from monolect.capture.environment import dependencies
from monolect.capture.environment.dependencies import Dependencies
from monolect.capture.environment.guards import QueueSize

FORMS: dict[str, Any] = {"jit": jit, "function": function}
SOURCE = """
import array, queue, types
from collections import OrderedDict, defaultdict, deque
import numpy as np
import torch
from monolect import Tensor
class Own(np.ndarray): pass
def t(n): return Tensor(np.array([n]))
def filled(q):
    for n in range(1, 9): q.put(float(n))
    return q
"""
ARRAY = ("H[0]", "H.strides[0]", "len(H)"), ("H[0] = N", "H = np.repeat(H, 2)[::2]")
TENSORS = ("H[0]", "H[1] * 3"), ("H.reverse()", "H.append(H[0])", "H[0], H[1] = H[1], H[0]")
# how a holder H is made, what reads it, and what changes it by a number N
ROWS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "deque([1.0, 2.0], maxlen=3)": (
        ("H[0]", "len(H)", "H.maxlen", "sum(H)"),
        ("H.append(N)", "H.rotate(1)", "H = deque(H, maxlen=N)"),
    ),
    "defaultdict(int, a=2)": (
        ("H['a']", "len(H)", "H.default_factory()", "H.get('b', 5)", "H['c']"),
        ("H['a'] = N", "H['b'] = N", "H.pop('c', None)", "H.default_factory = lambda: N"),
    ),
    "OrderedDict(a=1.0, b=2.0)": (("[*H.values()][0]",), ("H.move_to_end('a')", "H.move_to_end('b')")),
    "filled(queue.Queue())": (("H.qsize()", "H.get_nowait()"), ("H.put(N)", "H.get_nowait()")),
    "filled(queue.LifoQueue())": (("H.qsize()", "H.get_nowait()"), ("H.put(N)", "H.get_nowait()")),
    "filled(queue.SimpleQueue())": (("H.qsize()",), ("H.put(N)", "H.get_nowait()")),
    "array.array('d', [1.0, 2.0])": (("H[0]", "ord(H.typecode)"), ("H[0] = N", "H = array.array('f', H)")),
    "memoryview(bytearray(8))": (("H[0]", "ord(H.format)", "H.readonly"), ("H[0] = N", "H = H.cast('B').cast('i')")),
    "np.arange(1.0, 3.0)": ARRAY,
    "np.arange(1.0, 3.0).view(Own)": ARRAY,
    "np.zeros(1, [('a', 'f8')])[0]": (("H['a']",), ("H['a'] = N",)),
    "torch.ones(2, dtype=torch.float64, requires_grad=True)": (("float(H.detach().sum())",), ("H.data.fill_(N)",)),
    "[t(1.0), t(2.0)]": TENSORS,
    "deque([t(1.0), t(2.0)])": (TENSORS[0], (*TENSORS[1], "H.rotate(1)")),
    "types.SimpleNamespace(a=t(1.0), b=t(2.0))": (("H.a", "H.b * 3"), ("H.a, H.b = H.b, H.a", "H.a = H.b")),
}


@st.composite
def programs(draw: Any, only: str | None = None) -> tuple[list[str], list[str], list[list[str]]]:
    """Holders by name, the lines of a step, and what happens before each of its calls."""
    kinds = [only] if only else draw(st.lists(st.sampled_from([*ROWS]), min_size=1, max_size=2))
    of = lambda k, rows: st.sampled_from([row.replace("H", f"h{k}") for row in rows])  # noqa: E731
    reads = [of(k, ROWS[kind][0]).map(lambda row: f"x = x * 2 + ({row})") for k, kind in enumerate(kinds)]
    change = st.one_of([of(k, ROWS[kind][1]) for k, kind in enumerate(kinds)])
    numbered = st.tuples(change, st.integers(2, 5)).map(lambda pair: re.sub(r"\bN\b", str(pair[1]), pair[0]))
    lines = draw(st.lists(st.one_of(*reads, *reads, numbered), min_size=1, max_size=4))
    calls = draw(st.lists(st.lists(numbered, max_size=2), min_size=2, max_size=5))
    return [f"h{k} = {kind}" for k, kind in enumerate(kinds)], lines, calls


def differs(program: tuple[list[str], list[str], list[list[str]]], form: str) -> str | None:
    """What the step of a program gives that the plain function does not."""
    with Context(DEVICE="python"), warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        return _difference(*program, FORMS[form])


def _difference(holders: list[str], lines: list[str], calls: list[list[str]], wrap: Any) -> str | None:
    names = ", ".join(line.split(" = ")[0] for line in holders)
    step = "\n    ".join(["def step(x):", f"global {names}", *lines, "return x * 1.0"])
    worlds: list[dict[str, Any]] = [{"__name__": "a_program_of_the_tests"} for _ in range(2)]
    for world in worlds:
        exec("\n".join([SOURCE, *holders, step]), world)
    called = [wrap(worlds[0]["step"]), worlds[1]["step"]]
    for n, changes in enumerate(calls):
        for world in worlds:
            for change in changes:
                _outcome(lambda: exec(change, world))  # noqa: B023
        found = [_outcome(lambda: f(Tensor(np.array([float(n)]))).tolist()) for f in called]  # noqa: B023
        if found[0] != found[1]:
            return f"call {n}: {found[0]}, not {found[1]}"
        if isinstance(found[1], str):
            return None
    return None


def _outcome(f: Any) -> Any:
    try:
        return f()
    except Exception as error:
        return type(error).__name__


@pytest.mark.sweep
@pytest.mark.parametrize("form", FORMS)
@given(program=programs())
def test_steps_see_the_containers_around_them(form: str, program: Any) -> None:
    found = differs(program, form)
    assert found is None, found


PLANTED: dict[str, tuple[str, str, Any, str, Any]] = {
    "attributes in C are not seen": (
        "deque([1.0, 2.0], maxlen=3)", "jit", Dependencies, "_native_attributes", lambda self, x: iter(()),
    ),
    "items of queues are not seen": ("filled(queue.Queue())", "jit", dependencies, "_QUEUES", frozenset()),
    "sizes of queues in C are not seen": (
        "filled(queue.SimpleQueue())", "jit", QueueSize, "__len__", lambda self: 0,
    ),
    "arrays of classes of the user's are objects": (
        "np.arange(1.0, 3.0).view(Own)", "function", dependencies, "_has_buffer", lambda x: False,
    ),
    "records are numbers": ("np.zeros(1, [('a', 'f8')])[0]", "jit", dependencies, "_is_record", lambda x: False),
    "a trace is used again after it exchanged tensors": (
        "deque([t(1.0), t(2.0)])", "function", "monolect.capture.function", "is_", lambda a, b: True,
    ),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, form, where, what, fault = PLANTED[name]
    monkeypatch.setattr(*((where, what) if not isinstance(where, str) else (f"{where}.{what}",)), fault)
    some = settings(max_examples=500, phases=(Phase.generate,), database=None, derandomize=True, deadline=None)
    find(programs(kind), lambda program: differs(program, form) is not None, settings=some)
