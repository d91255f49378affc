"""Graphs as bytes: what is unpacked is the node that was packed, and bytes that are no graph are a ParseError."""

import marshal
from typing import NamedTuple

import pytest
from hypothesis import given

from monolect.base.dtype import dtypes
from monolect.base.errors import IRError, ParseError
from monolect.ir.binary import pack, unpack
from monolect.ir.ops import INVALID, BufferArg, KernelInfo, ParamArg, TmaCopyArg
from monolect.ir.uop import NAN, NEGATIVE_ZERO, UOp, const, idx, node, shape_source
from tests.strategies import any_graphs


@given(any_graphs())
def test_round_trip_is_the_same_node(u: UOp) -> None:
    assert unpack(pack(u)) is u


@pytest.mark.parametrize("value", [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-300, 0.1, -3.5])
def test_every_float_constant(value: float) -> None:
    u = const(value, dtypes.float32)
    assert unpack(pack(u)) is u


class Move(NamedTuple):
    """A tuple that the op table does not know: it comes back as a tuple, to which it is equal."""

    kind: str
    by: int


@pytest.mark.parametrize(
    "arg",
    [
        None, True, 1, 1.0, 2**80, "a\n\0é", b"\0", (), (1,), (1, (True, (1.0, None))), ("tuple", "dtype"),
        (NEGATIVE_ZERO, 0.0, NAN, INVALID), dtypes.bfloat16, (dtypes.bool, ("invalid", "nan")),
        ParamArg(1, dtypes.float32, "cpu", "GLOBAL"), BufferArg(0, dtypes.int8, ("cpu", "cpu:1")),
        KernelInfo("k", (("SPLIT", 1),), 2, (0, 1), True), TmaCopyArg(0, (1,), (2,), (3,), 4),
    ],
)  # fmt: skip
def test_arguments_come_back_with_their_classes(arg: object) -> None:
    """Some are equal and not the same: whose class is lost has another digest."""
    marked = node("SINK", (), None, arg)
    found = unpack(pack(marked))
    assert found is marked
    fresh = marshal.loads(pack(marked))
    del marked, found
    again = unpack(marshal.dumps(fresh, 4)).tag
    assert repr(again) == repr(arg) and again.__class__ is arg.__class__


def test_other_tuples_come_back_as_tuples() -> None:
    assert unpack(pack(node("SINK", (), None, Move("x", 1)))).tag == ("x", 1)


def test_equal_arguments_of_several_nodes_stay_apart() -> None:
    u = node("SINK", (node("SINK", (), None, (1, "a")), node("SINK", (), None, (True, "b"))), None, 1.0)
    data = pack(u)
    del u
    u = unpack(data)
    assert [repr(s.tag) for s in (*u.src, u)] == ["(1, 'a')", "(True, 'b')", "1.0"]


def test_deep_chains_need_no_recursion() -> None:
    u = node("PARAM", (shape_source((4,)),), ParamArg(0, dtypes.float32))
    for _ in range(3000):
        u = node("NEG", (u,))
    assert unpack(pack(u)) is u


def test_what_cannot_be_kept_is_refused() -> None:
    for arg in (object(), (1, frozenset((2,))), idx(3)):
        with pytest.raises(IRError, match="cannot be serialized"):
            pack(node("SINK", (), None, arg))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"no graph", *(marshal.dumps(x) for x in (
            None, 1, ([], []), ([None], [("NOP", (), 0, 0)]), ([None], [("SINK", (0,), 0, 0)]),
            ([None], [("SINK", (), 0, 1)]), ([("what", 1)], [("SINK", (), 0, 0)]), ([("dtype", "f31")], []),
            ([("ParamArg",)], [("PARAM", (), 0, 0)]), ([[]], [("SINK", (), 0, 0)]), ([None], [("ADD", (), 0, 0)]),
        )),
    ],
)  # fmt: skip
def test_bytes_that_are_no_graph_are_a_parse_error(data: bytes) -> None:
    with pytest.raises(ParseError):
        unpack(data)


def test_what_is_not_whole_is_a_parse_error() -> None:
    data = pack(const(1.0, dtypes.float32) + 2.0)
    for n in range(len(data)):
        with pytest.raises(ParseError):
            unpack(data[:n])
