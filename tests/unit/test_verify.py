"""The verifier: graphs that keep the rules pass, and each broken rule is named."""

import pytest
from hypothesis import given

from monolect.base.dtype import dtypes
from monolect.base.errors import VerifyError
from monolect.ir.check.verify import verify
from monolect.ir.ops import BufferArg, KernelInfo, ParamArg, Stage
from monolect.ir.uop import UOp, build, const, idx, node, shape_source
from tests.strategies import tensor_graphs

B = node("BUFFER", (shape_source((4,)),), BufferArg(0, dtypes.float32, "cpu"))
OUT = node("PARAM", (shape_source((24,)),), ParamArg(0, dtypes.float32))
R, S = (node("RANGE", (idx(n),), (k, "LOOP")) for k, n in enumerate((4, 6)))
ONE = const(1.0, dtypes.float32)
DERIVED = ("_linear", "_min_max", "_placement", "_ranges", "_sizes")
FIELDS = ("op", "src", "arg", "tag", "dtype", "shape", "height", "serial", "origin", "storage", *DERIVED)
STORE = node("STORE", (node("INDEX", (OUT, R * 6 + S)), ONE))


def forge(u: UOp, **fields: object) -> UOp:
    """A node with other fields than its op allows, as only a bug could make one."""
    out = UOp()
    for name in FIELDS:
        setattr(out, name, fields.get(name, getattr(u, name)))
    return out


@given(tensor_graphs())
def test_random_tensor_graphs_pass(u: UOp) -> None:
    verify(u, Stage.TENSOR)


def test_kernel_passes() -> None:
    verify(node("SINK", (node("END", (STORE, R, S)),), KernelInfo()), Stage.KERNEL)


def test_op_of_another_stage() -> None:
    with pytest.raises(VerifyError, match="FLIP: an op that is not allowed at stage KERNEL") as e:
        verify(node("SINK", (node("FLIP", (OUT,), (True,)),)), Stage.KERNEL)
    assert e.value.op == "FLIP"
    with pytest.raises(VerifyError, match="stage TENSOR"):
        verify(R, Stage.TENSOR)


def test_removed_op() -> None:
    u = node("NEG", (node("CONTIGUOUS", (B,)),))
    verify(u, Stage.TENSOR)
    with pytest.raises(VerifyError, match="CONTIGUOUS: an op that an earlier pass removes"):
        verify(u, Stage.TENSOR, removed={"CONTIGUOUS"})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": dtypes.float16}, r"do not follow(?s:.)*expected: f32\[4\](?s:.)*found: f16\[4\]"),
        ({"shape": (5,)}, r"do not follow(?s:.)*found: f32\[5\]"),
        ({"src": (B,)}, "wrong number of sources"),
        ({"src": (B, const(1, dtypes.int32))}, "operand dtypes differ"),
        ({"op": "ADDD"}, "unknown op"),
    ],
)
def test_forged_nodes(fields: dict, message: str) -> None:
    bad = forge(node("ADD", (B, ONE)), **fields)
    with pytest.raises(VerifyError, match=message):
        verify(node("SINK", (bad,)), Stage.TENSOR)


def test_message_shows_the_users_line_and_the_text_around() -> None:
    u = node("FLIP", (B,), (True,))
    u.origin = ("model.py", 12, "permute")
    with pytest.raises(VerifyError) as e:
        verify(node("SINK", (u,)), Stage.KERNEL)
    text = str(e.value)
    assert "made by model.py:12 permute" in text and "at model.py:12" in text
    assert "> %3 = FLIP f32[4] %2 (True,)" in text and "  %2 = BUFFER" in text
    u.origin = None


def test_ranges_used_outside() -> None:
    with pytest.raises(VerifyError, match="RANGE: a RANGE that is used outside"):
        verify(node("SINK", (node("END", (STORE, R)),)), Stage.KERNEL)
    with pytest.raises(VerifyError, match="used outside"):
        verify(node("SINK", (node("END", (STORE, R, S)), node("STORE", (node("INDEX", (OUT, R)), ONE)))), Stage.KERNEL)


def test_loops_that_several_ends_close_nest_alike() -> None:
    """By their numbers: 0 and 1 are around 2 where all three are closed, so 2 is no loop around another 2."""
    a, b, n, other = (node("RANGE", (idx(k),), (i, "LOOP")) for k, i in ((2, 0), (3, 1), (4, 2), (5, 2)))

    def kernel(*closed: tuple[UOp, ...]) -> UOp:
        stores = (node("STORE", (node("INDEX", (OUT, build("ADD", *rs))), ONE)) for rs in closed)
        return node("SINK", tuple(node("END", (s, *rs)) for s, rs in zip(stores, closed, strict=True)))

    verify(kernel((a, b), (a, n)), Stage.KERNEL)
    for ends in (((b, n), (n, other)), ((a, n), (b, n))):
        with pytest.raises(VerifyError, match="END: loop 2 is inside of different loops"):
            verify(kernel(*ends), Stage.KERNEL)


def test_end_closes_ranges_only() -> None:
    with pytest.raises(VerifyError, match="END: END closes what is no loop"):
        verify(node("SINK", (node("END", (STORE, R, S, ONE)),)), Stage.KERNEL)
    with pytest.raises(VerifyError, match="RANGE of no axis type"):
        verify(node("RANGE", (idx(3),), (0, "SIDEWAYS")), Stage.KERNEL)


FIRST, AT = node("INDEX", (OUT, idx(0))), node("INDEX", (OUT, R))
WRITE = node("STORE", (AT, ONE))


@pytest.mark.parametrize("op", ["STORE", "ATOMICADD"])
def test_a_write_depends_on_the_loops_around_it(op: str) -> None:
    alone = node(op, (FIRST, ONE))
    for body in (alone, node("GROUP", (alone, WRITE)), node("END", (alone, S))):
        with pytest.raises(VerifyError, match=f"{op}: a write that may leave its loop"):
            verify(node("SINK", (node("END", (body, R)),)), Stage.KERNEL)
    verify(build("SINK", build("END", alone, R), arg=KernelInfo()), Stage.KERNEL)


def test_an_addition_is_in_the_loops_of_one_end() -> None:
    alone = node("ATOMICADD", (FIRST, ONE))
    verify(node("SINK", (alone,)), Stage.KERNEL)
    with pytest.raises(VerifyError, match="ATOMICADD: an addition that several loops share"):
        verify(node("SINK", (alone, alone)), Stage.KERNEL)


def test_sums_are_carried_through_whole_loops() -> None:
    acc = node("BUFFER", (shape_source(()),), BufferArg(0, dtypes.float32, None, "REG"))
    start = node("STORE", (acc, ONE))

    def kernel(through: UOp, start: UOp = start) -> UOp:
        total = node("ADD", (node("LOAD", (node("AFTER", (acc, start, through)),)), ONE))
        kept = node("LOAD", (node("AFTER", (acc, node("STORE", (acc, total)))),))
        return node("SINK", (node("END", (node("STORE", (AT, kept)), R)),), KernelInfo())

    verify(kernel(R), Stage.KERNEL)
    anew = node("STORE", (node("AFTER", (acc, R * 2)), ONE))
    for wrong in (kernel(R * 2), kernel(R, anew)):
        with pytest.raises(VerifyError, match="AFTER: an accumulator of no loop"):
            verify(wrong, Stage.KERNEL)


# ---- linear programs
END = node("END", (WRITE, R))


def linear(*src: UOp) -> UOp:
    return node("LINEAR", src)


def test_linear_in_order_passes() -> None:
    verify(linear(ONE, R, AT, WRITE, END), Stage.PROGRAM)
    gate = node("CMPLT", (R, idx(2)))
    begin = node("IF", (gate,))
    verify(linear(ONE, R, gate, begin, AT, WRITE, node("ENDIF", (begin,)), END), Stage.PROGRAM)
    both = node("END", (STORE, R, S))
    verify(linear(R, S, *STORE.src[0].src[1:], STORE.src[0], STORE, both), Stage.PROGRAM)


FIRST_IN_R = node("INDEX", (node("AFTER", (OUT, R)), idx(0)))
ADDED = node("ATOMICADD", (FIRST_IN_R, ONE))
USE = node("STORE", (node("INDEX", (OUT, idx(0))), node("LOAD", (AT,))))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ((R, WRITE, AT, END), "STORE: an instruction before its source"),
        ((AT, R, WRITE, END), "INDEX: an instruction before its source"),
        ((R, AT, WRITE), "RANGE: a block that is never closed"),
        ((R, AT, WRITE, WRITE, END), "an instruction listed twice"),
        ((R, AT, END.src[0], END, USE.src[1]), "LOAD: a value used outside its block"),
        ((R, S, STORE.src[0].src[1], STORE.src[0], STORE, node("END", (STORE, S, R))), "does not close the innermost"),
        ((END,), "does not close the innermost"),
        ((FIRST_IN_R, ADDED, R, AT, WRITE, END), "ATOMICADD: a write outside of its loop"),
    ],
)
def test_linear_out_of_order(program: tuple, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(linear(*program), Stage.PROGRAM)


def test_what_a_loop_carries_starts_before_it() -> None:
    inner = node("RANGE", (idx(3),), (1, "LOOP"))
    acc = node("BUFFER", (shape_source(()),), BufferArg(0, dtypes.float32, None, "REG"))
    again = node("AFTER", (acc, inner))
    start = node("STORE", (again, ONE))
    carried = node("AFTER", (acc, start, R))
    total = node("ADD", (node("LOAD", (carried,)), ONE))
    kept = node("STORE", (acc, total))
    in_r, in_inner = node("END", (kept, R)), node("END", (kept, inner))
    right = (ONE, acc, inner, again, start, R, carried, total.src[0], total, kept, in_r, in_inner)
    verify(linear(*right), Stage.PROGRAM)
    wrong = (ONE, acc, R, inner, again, start, carried, total.src[0], total, kept, in_inner, in_r)
    with pytest.raises(VerifyError, match="starts inside the loop it is carried through"):
        verify(linear(*wrong), Stage.PROGRAM)


def test_called_bodies_are_of_their_own_stage() -> None:
    kernel = node("SINK", (node("END", (STORE, R, S)),), KernelInfo())
    memory = node("BUFFER", (shape_source((24,)),), BufferArg(0, dtypes.float32, "cpu"))
    call = node("CALL", (kernel, memory))
    verify(node("LINEAR", (call,)), Stage.COMMAND)
    verify(node("SINK", (call,)), Stage.TENSOR)
    program = node("PROGRAM", (linear(ONE, R, AT, WRITE, END), node("SOURCE", (), "text"), node("BINARY", (), b"")))
    verify(program, Stage.PROGRAM)
    verify(node("LINEAR", (node("CALL", (program, memory)),)), Stage.COMMAND)


def test_deep_graphs_need_no_recursion() -> None:
    u = B
    for _ in range(20_000):
        u = node("ADD", (u, B))
    verify(u, Stage.TENSOR)
