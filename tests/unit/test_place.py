"""Device, address space and shard axis of a node."""

import pytest

from monolect import Tensor, function
from monolect.base.dtype import dtypes
from monolect.base.errors import DeviceError
from monolect.ir.ops import BufferArg, LoadArg
from monolect.ir.placement import addrspace, axis, device
from monolect.ir.uop import UOp, const, idx, node, shape_source

PAIR = ("cpu:0", "cpu:1")


def buffer(shape: tuple, where: object = "cpu", space: str = "GLOBAL") -> UOp:
    return node("BUFFER", (shape_source(shape),), BufferArg(0, dtypes.float32, where, space))


SHARDED = buffer((4, 3), PAIR)
IOTA = node("IOTA", (idx(2),), dtypes.index)


def test_devices() -> None:
    one = const(1.0, dtypes.float32)
    assert device(one) is None
    assert device(node("ADD", (buffer((3,)), one))) == "cpu"
    assert device(SHARDED) == PAIR
    assert device(node("LOAD", (buffer((3,)),), LoadArg("cuda", "GLOBAL"))) == "cuda"
    with pytest.raises(DeviceError, match="different devices"):
        device(node("ADD", (buffer((3,)), buffer((3,), "cuda"))))


def test_what_has_no_device_is_where_the_rest_is() -> None:
    numbers, places = node("CONTIGUOUS", (IOTA,)), node("CAST", (buffer((2,), "c"),), dtypes.index)
    picked = node("INDEX", (numbers, places))
    assert device(numbers) is None and device(picked) == "c"
    assert device(node("AFTER", (numbers, node("STORE", (picked, IOTA))))) == "c"
    assert device(node("INDEX", (buffer((2,), "cuda"), places))) == "cuda"


def test_a_function_is_where_its_arguments_are_whichever_has_a_device() -> None:
    two, x = const(2.0, dtypes.float32), Tensor([1.0, 2.0], device="python")
    assert device(x.uop) == "python" and device(two) is None

    @function(precompile=True)
    def scaled(factor: Tensor, x: Tensor) -> Tensor:
        return x * factor

    y = scaled(Tensor._wrap(two), x)
    assert y.device == "python" and y.tolist() == [2.0, 4.0]


def test_address_spaces() -> None:
    assert addrspace(buffer((3,), space="REG")) == "REG"
    assert addrspace(const(1.0, dtypes.float32)) is None
    assert addrspace(node("ADD", (buffer((3,)), buffer((3,))))) is None
    assert addrspace(node("SHRINK", (buffer((3,)), shape_source((1,)), shape_source((2,))))) == "GLOBAL"


def test_shard_axis_follows_movement() -> None:
    assert axis(buffer((4, 3))) is None
    assert axis(SHARDED) == 0
    assert axis(node("PERMUTE", (SHARDED,), (1, 0))) == 1
    assert axis(node("RESHAPE", (SHARDED, shape_source((4, 3, 1))))) == 0
    assert axis(node("RESHAPE", (node("PERMUTE", (SHARDED,), (1, 0)), shape_source((1, 3, 4))))) == 2
    assert axis(node("RESHAPE", (SHARDED, shape_source((1, 4, 3))))) == 1
    assert axis(node("STACK", (SHARDED, SHARDED))) == 1
    columns = node("PERMUTE", (SHARDED,), (1, 0))
    assert axis(node("INDEX", (columns, idx(1)))) == 0
    assert axis(node("INDEX", (columns, node("RESHAPE", (IOTA, shape_source((2, 1))))))) == 2
    assert axis(node("REDUCE", (SHARDED,), ("ADD", (1,)))) == 0
    assert axis(node("REDUCE", (SHARDED,), ("ADD", (0,)))) is None
    assert axis(node("LOAD", (SHARDED,), LoadArg("cpu:0", "GLOBAL"))) is None


def test_shard_axis_is_counted_from_the_right_in_broadcasts() -> None:
    rows = node("RESHAPE", (SHARDED, shape_source((1, 4, 3))))
    assert axis(node("ADD", (SHARDED, const(1.0, dtypes.float32)))) == 0
    assert axis(node("ADD", (rows, SHARDED))) == 1


def test_a_reshape_that_cuts_the_shards_is_refused() -> None:
    with pytest.raises(DeviceError, match="shard boundary"):
        axis(node("RESHAPE", (node("PERMUTE", (SHARDED,), (1, 0)), shape_source((2, 6)))))


def test_indexing_the_shard_axis_is_refused() -> None:
    with pytest.raises(DeviceError, match="INDEX into the sharded axis"):
        axis(node("INDEX", (SHARDED, idx(1))))


def test_a_stack_lives_where_any_of_its_sources_lives() -> None:
    assert device(node("STACK", (const(1.0, dtypes.float32), node("INDEX", (buffer((3,)), idx(0)))))) == "cpu"
