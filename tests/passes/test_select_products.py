"""Of a sum of two products one is rounded: which one must not depend on the order in which nodes happened to be made."""

from itertools import permutations

import pytest

from monolect.ir import normal  # noqa: F401  (fills in the simplifiers)
from monolect.ir.digest import digest
from monolect.ir.text import parse
from monolect.ir.uop import UOp, node
from monolect.lower.select import select
from tests.passes.conftest import target

KERNEL = """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%4 = CONST idx[] (0, idx)
%5 = CONST idx[] (1, idx)
%6 = CONST idx[] (2, idx)
%7 = INDEX f32[] %3 %4
%8 = INDEX f32[] %3 %5
%9 = INDEX f32[] %3 %6
%10 = LOAD f32[] %7
%11 = LOAD f32[] %8
%12 = LOAD f32[] %9
%13 = MUL f32[] %10 %11
%14 = MUL f32[] %11 %12
%15 = INDEX f32[] %2 %4
%16 = ADD f32[] %13 %14
%17 = STORE void[] %15 %16
%18 = SINK void[] %17 KernelInfo()
"""


def with_sum(sink: UOp, operands: tuple[UOp, ...]) -> UOp:
    store = sink.src[0]
    return node("SINK", (node("STORE", (store.src[0], node("ADD", operands))),), sink.arg)


def test_either_order_of_the_products_is_one_program():
    sink = parse(KERNEL)
    one, other = (with_sum(sink, p) for p in permutations(sink.src[0].src[1].src))
    assert one is not other and digest(one) == digest(other)
    assert digest(select(one, target())) == digest(select(other, target()))


@pytest.mark.parametrize("turned", [False, True])
def test_one_of_two_products_is_a_multiply_add(turned):
    sink = parse(KERNEL)
    operands = sink.src[0].src[1].src
    out = select(with_sum(sink, operands[::-1] if turned else operands), target()).src[0].src[1]
    assert out.op == "MULACC" and out.src[2].op == "MUL"
