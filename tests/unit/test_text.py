"""The text form: exact round trips, and text that is no graph."""

import random
from math import nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect.base.dtype import dtypes
from monolect.base.errors import IRError, ParseError
from monolect.ir.ops import INVALID, BufferArg, KernelInfo, ParamArg, ProgramInfo
from monolect.ir.text import _Arguments, _plain_record, parse, show, summary
from monolect.ir.uop import NEGATIVE_ZERO, UOp, const, idx, node, shape_source
from tests.strategies import any_graphs, often

B = node("BUFFER", (shape_source((4, 5)),), BufferArg(0, dtypes.float32, "cpu"))
EXAMPLE = """\
%0 = CONST idx[] (4, idx)
%1 = CONST idx[] (5, idx)
%2 = STACK idx[2] %0 %1
%3 = BUFFER f32[4,5] %2 BufferArg(slot=0, dtype=f32, device="cpu")
%4 = REDUCE f32[4,1] %3 ("ADD", (1,))
"""


PIECES = ["", "(", ")", "%", "@", "@x {", "}", "0", " ", "\n", '"', "True", "idx", ",", "-", "[", "é", "inf", "None"]


@settings(max_examples=often(12, 1000))
@given(any_graphs())
def test_round_trip_is_the_same_node(u: UOp) -> None:
    assert parse(show(u)) is u


@given(any_graphs())
def test_show_is_stable(u: UOp) -> None:
    assert show(parse(show(u))) == show(u)


def test_example_reads_as_written() -> None:
    u = node("REDUCE", (B,), ("ADD", (1,)))
    assert show(u) == EXAMPLE
    assert parse(EXAMPLE) is u


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, nan, float("inf"), float("-inf"), 1e-45, 3e38, INVALID])
def test_every_float_constant(value: object) -> None:
    u = const(value, dtypes.float32)
    assert parse(show(u)) is u


def test_zero_and_negative_zero_stay_apart() -> None:
    text = show(node("ADD", (const(0.0, dtypes.float32), const(-0.0, dtypes.float32))))
    u = parse(text)
    assert u.src[0] is not u.src[1] and u.src[1].arg[0] is NEGATIVE_ZERO


def test_records_and_tags() -> None:
    n = node("PARAM", (), ParamArg(1, dtypes.index, name="n", min=1, max=64))
    b = node(
        "BUFFER", (shape_source((n,)),), BufferArg(0, dtypes.bfloat16, ("cpu:0", "cpu:1"), "LOCAL"), ("tag", b"\x00")
    )
    u = node("SINK", (b,), KernelInfo('a "name" # here', (("SPLIT", 0, 4),), 8))
    text = show(u)
    assert parse(text) is u
    assert 'tag=("tag", b"00")' in text and "bf16[%" in text


@pytest.mark.parametrize(
    "text",
    [
        'ParamArg(slot=3, dtype=f32, device="cpu", addrspace="GLOBAL")',
        'ParamArg(slot=12, dtype=idx, device="python:gpu", addrspace="GLOBAL", name="n", min=1, max=99)',
        'BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")',
        "ParamArg(dtype=f32, slot=007)",
        "KernelInfo(fills=True)",
    ],
)
def test_records_of_plain_values_are_read_at_once(text: str) -> None:
    assert (found := _plain_record(text)) is not None
    assert repr(found) == repr(_Arguments(text, 1).read())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "(4, idx)",
        "KernelInfo()",
        "KernelInfo",
        "ParamArg(slot=0)",
        "ParamArg(slot=0, dtype=f32",
        "ParamArg(slot=0, dtype=f32, )",
        "ParamArg(slot=0, dtype=f32) tag=1",
        "ParamArg(slot=0, dtype=f32) # a comment",
        "ParamArg(slot=0, slot=1, dtype=f32)",
        "ParamArg(slot=0, dtype=f32, colour=2)",
        "ParamArg(slot=0, dtype=colour)",
        "ParamArg(slot=-1, dtype=f32)",
        "ParamArg(slot=0.5, dtype=f32)",
        'ParamArg(slot=0, dtype=f32, device="a, b")',
        "ParamArg(slot=0)dtype=f32)",
        "ParamArg (slot=0, dtype=f32)",
        'BufferArg(slot=0, dtype=f32, device=("cpu", "c"))',
    ],
)
def test_other_arguments_are_left_to_the_reader_of_all(text: str) -> None:
    assert _plain_record(text) is None


@pytest.mark.parametrize(
    ("argument", "field"),
    [
        ("ParamArg(slot=True, dtype=f32)", "slot"),
        ("ParamArg(slot=1.0, dtype=f32)", "slot"),
        ('ParamArg(slot=0, dtype=idx, name="n", min=True, max=2)', "min"),
        ("BufferArg(slot=0, dtype=1, device=None)", "dtype"),
        ("KernelInfo(fills=1)", "fills"),
        ("KernelInfo(frozen=(True,))", "frozen"),
        ("StepInfo(n_results=True)", "n_results"),
        ("StepInfo(moves=(True,))", "moves"),
        ("StepInfo(reuse=((1, True),))", "reuse"),
        ("StepInfo(reuse=((1, 2, 3),))", "reuse"),
        ("StepInfo(roles=(1,))", "roles"),
    ],
)
def test_a_field_of_another_type_makes_no_node(argument: str, field: str) -> None:
    """`True == 1 == 1.0`, so such a node would be shared with the right one, in every later program of the process."""
    assert _plain_record(argument) is None
    with pytest.raises(ParseError, match=f"{field} of .* has another type"):
        parse(f"%0 = SINK void[] {argument}\n")


@pytest.mark.parametrize(
    "text",
    [
        "%0 = CONST idx[] (True, idx)",
        "%0 = CONST idx[] (1.0, idx)",
        "%0 = CONST bool[] (1, bool)",
        "%0 = CONST f32[] (1, f32)",
        '%0 = CONST idx[] (4, idx)\n%1 = RANGE idx[] %0 (False, "LOOP")',
        '%0 = CONST idx[] (4, idx)\n%1 = RANGE idx[] %0 (0.0, "LOOP")',
        EXAMPLE + "%5 = PERMUTE f32[1,4] %4 (True, False)",
        EXAMPLE + '%5 = REDUCE f32[4,1] %4 ("ADD", (True,))',
        "%0 = TUPLE void[]\n%1 = GETTUPLE void[] %0 False",
        '%0 = SINK void[] ("kernel", None, 1, (), False, False)',
    ],
)
def test_a_number_of_another_type_makes_no_node(text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)


def test_deep_chains_need_no_recursion() -> None:
    u = B
    for _ in range(10_000):
        u = node("ADD", (u, B))
    assert parse(show(u)) is u
    assert summary(u)["ADD"] == 10_000


STEP = """\
@double {
  %0 = CONST idx[] (4, idx)
  %1 = STACK idx[1] %0
  %2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
  %3 = RANGE idx[] %0 (0, "LOOP")
  %4 = INDEX f32[] %2 %3
  %5 = LOAD f32[] %4
  %6 = ADD f32[] %5 %5
  %7 = STORE void[] %4 %6
  %8 = END void[] %7 %3
  %9 = SINK void[] %8 KernelInfo(name="double")
}
@body {
  %0 = CONST idx[] (4, idx)
  %1 = STACK idx[1] %0
  %2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
  %3 = CALL void[] @double %2
  %4 = LINEAR void[] %3
  %5 = AFTER f32[4] %2 %4
  %6 = TUPLE void[] %5
}
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = BUFFER f32[4] %1 BufferArg(slot=7, dtype=f32, device="cpu")
%3 = FUNCTION void[] @body %2
"""


def test_bodies_are_sections_with_names_of_their_own() -> None:
    u = parse(STEP)
    assert u.op == "FUNCTION" and u.src[0].op == "TUPLE"
    assert show(u) == STEP
    flat = show(u, sections=False)
    assert "@" not in flat and "{" not in flat and parse(flat) is u
    assert show(u.src[0]).startswith("@double {\n") and parse(show(u.src[0])) is u.src[0]


def test_sections_of_one_name_are_told_apart() -> None:
    bodies = [node("SINK", (), KernelInfo("k", threads=n)) for n in (1, 2)]
    u = node("TUPLE", tuple(node("PROGRAM", (b,), ProgramInfo("k")) for b in bodies))
    assert parse(show(u)) is u and "@k {" in show(u) and "@k_1 {" in show(u)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("}\n@body {", "@body {", "line 12: a section inside of a section"),
        ("@body {", "@double {", "line 13: a section defined twice"),
        ("CALL void[] @double", "CALL void[] @triple", "line 17: an unknown source"),
        ("CALL void[] @double", "CALL void[] @body", "line 17: an unknown source"),
        ("FUNCTION void[] @body %2", "FUNCTION void[] %6 %2", "line 25: an unknown source"),
        ("@body {", "}\n@body {", "line 13: not a node"),
        ("@body {", "@none {\n}\n@body {", "line 14: no node in @none"),
    ],
)
def test_malformed_sections(old: str, new: str, message: str) -> None:
    assert old in STEP
    with pytest.raises(ParseError, match=message):
        parse(STEP.replace(old, new, 1))
    with pytest.raises(ParseError, match="@body has no end"):
        parse(STEP[: STEP.rindex("}")])


def test_comments_blank_lines_and_origins() -> None:
    u = node("NEG", (B,))
    u.origin = ("model.py", 12, "neg")
    text = show(u, origins=True)
    assert "# model.py:12 neg" in text
    assert parse("# a comment\n\n  \n" + text.replace("\n", "   # more\n").replace("# model", "# m")) is u
    u.origin = None


def test_names_are_free_and_symbolic_sizes_may_be_left_open() -> None:
    assert parse(EXAMPLE.replace("%3", "%weights")).op == "REDUCE"
    assert parse(EXAMPLE.replace("f32[4,1]", "f32[ ?, 1 ]")).op == "REDUCE"


def test_what_has_no_text_is_refused() -> None:
    with pytest.raises(IRError, match="no text"):
        show(node("INS", (), frozenset()))


# fmt: off
@pytest.mark.parametrize(("old", "new", "message"), [
    ("%3 = BUFFER", "%3 BUFFER", "line 4: not a node"),
    ("f32[4,1]", "f32[4,2]", r"line 5: another dtype or shape(?s:.)*expected: f32\[4,1\](?s:.)*found: f32\[4,2\]"),
    ("f32[4,1]", "f16[4,1]", "line 5: another dtype or shape"),
    ("REDUCE", "REDUSE", "line 5: unknown op"),
    ("%3 (\"ADD\"", "%9 (\"ADD\"", "line 5: an unknown source"),
    ("%4 =", "%3 =", "line 5: a name defined twice"),
    ("(1,))", "(7,))", "line 5: REDUCE: REDUCE axes"),
    ("(1,))", "(1))", "line 5: not an argument"),
    ("(1,))", "(1,)", "line 5: not an argument"),
    ("(1,))", "(1,)) 5", "line 5: not an argument"),
    ("(1,))", "(what,))", "line 5: not an argument"),
    ('("ADD", (1,))', "5", "line 5: an argument that REDUCE cannot have"),
    ('("ADD", (1,))', "", "line 5: an argument that REDUCE cannot have"),
    ("slot=0, ", "", "line 4: BufferArg lacks a field"),
    ("slot=0, ", "slot=0, slot=1, ", "line 4: not an argument"),
    ("slot=0, ", "place=0, ", "line 4: not an argument"),
    ('"cpu"', '"cpu', "line 4: not an argument"),
    ('"cpu"', '"\\q"', "line 4: not an argument"),
    ('"cpu"', 'b"abc"', "line 4: not an argument"),
    ("(5, idx)", "(" * 500 + "5", "line 2: not an argument"),
    ("(5, idx)", "(" + "5" * 5000 + ", idx)", "line 2: not an argument"),
])
# fmt: on
def test_malformed_text(old: str, new: str, message: str) -> None:
    assert old in EXAMPLE
    with pytest.raises(ParseError, match=message):
        parse(EXAMPLE.replace(old, new))


def test_no_node_at_all() -> None:
    with pytest.raises(ParseError, match="line 1: no node"):
        parse("# nothing\n")


@settings(max_examples=often(12, 1000))
@given(any_graphs(), st.integers(0, 2**32))
def test_damaged_text_raises_nothing_but_parse_errors(u: UOp, seed: int) -> None:
    text, rng = list(show(u)), random.Random(seed)
    for _ in range(rng.randrange(1, 6)):
        k = rng.randrange(len(text))
        text[k : k + rng.randrange(3)] = rng.choice(PIECES)
    try:
        parse("".join(text))
    except ParseError as e:
        assert e.message.startswith("line ")


@given(st.text())
def test_any_text_raises_nothing_but_parse_errors(text: str) -> None:
    with pytest.raises(ParseError):
        parse(text)


def test_indices_of_a_loop() -> None:
    r = node("RANGE", (idx(8),), (0, "LOOP"))
    assert show(r).splitlines()[-1] == '%1 = RANGE idx[] %0 (0, "LOOP")'
