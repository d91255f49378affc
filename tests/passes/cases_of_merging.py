"""Cases of merge_ranges: loops that become one, and loops that become two first.

The texts are graphs (`ir.text`), as in `cases_of_loops`.
"""

from typing import Any

from monolect.ir import normal  # noqa: F401  (fills in the simplifiers)
from monolect.optimize.merge import merge_ranges
from tests.passes.conftest import target

TARGET = target()
CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["merge_ranges", "contiguous"] = (
    lambda s: merge_ranges(s, TARGET),
    """
%0 = CONST idx[] (12, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[12] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (4, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (3, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[12] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %8
%12 = LOAD f32[] %11
%13 = STORE void[] %9 %12
%14 = END void[] %13 %4 %7
%15 = SINK void[] %14 KernelInfo()
""",
    """
%0 = CONST idx[] (12, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[12] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = PARAM f32[12] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%6 = INDEX f32[] %5 %3
%7 = LOAD f32[] %6
%8 = STORE void[] %4 %7
%9 = END void[] %8 %3
%10 = SINK void[] %9 KernelInfo()
""",
)

CASES["merge_ranges", "transposed"] = (
    lambda s: merge_ranges(s, TARGET),
    """
%0 = CONST idx[] (12, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[12] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (4, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (3, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[12] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = MUL idx[] %7 %3
%12 = ADD idx[] %4 %11
%13 = INDEX f32[] %10 %12
%14 = LOAD f32[] %13
%15 = STORE void[] %9 %14
%16 = END void[] %15 %4 %7
%17 = SINK void[] %16 KernelInfo()
""",
    None,
)

CASES["merge_ranges", "channels of a group"] = (
    lambda s: merge_ranges(s, TARGET),
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (6, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[6] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = CONST idx[] (2, idx)
%9 = IDIV idx[] %3 %8
%10 = CONST idx[] (3, idx)
%11 = MUL idx[] %9 %10
%12 = RANGE idx[] %10 (1000, "REDUCE")
%13 = ADD idx[] %11 %12
%14 = INDEX f32[] %7 %13
%15 = LOAD f32[] %14
%16 = REDUCE f32[] %15 %12 ("ADD", ())
%17 = STORE void[] %4 %16
%18 = END void[] %17 %3
%19 = SINK void[] %18 KernelInfo()
""",
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = MUL idx[] %4 %3
%6 = RANGE idx[] %3 (1, "LOOP")
%7 = ADD idx[] %5 %6
%8 = INDEX f32[] %2 %7
%9 = CONST idx[] (6, idx)
%10 = STACK idx[1] %9
%11 = PARAM f32[6] %10 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%12 = CONST idx[] (3, idx)
%13 = MUL idx[] %4 %12
%14 = RANGE idx[] %12 (1000, "REDUCE")
%15 = ADD idx[] %13 %14
%16 = INDEX f32[] %11 %15
%17 = LOAD f32[] %16
%18 = REDUCE f32[] %17 %14 ("ADD", ())
%19 = STORE void[] %8 %18
%20 = END void[] %19 %4 %6
%21 = SINK void[] %20 KernelInfo()
""",
)

CASES["merge_ranges", "a sum over two axes"] = (
    lambda s: merge_ranges(s, TARGET),
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (12, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[12] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = CONST idx[] (4, idx)
%9 = RANGE idx[] %8 (1000, "REDUCE")
%10 = CONST idx[] (3, idx)
%11 = MUL idx[] %9 %10
%12 = RANGE idx[] %10 (1001, "REDUCE")
%13 = ADD idx[] %11 %12
%14 = INDEX f32[] %7 %13
%15 = LOAD f32[] %14
%16 = REDUCE f32[] %15 %9 %12 ("ADD", ())
%17 = STORE void[] %4 %16
%18 = SINK void[] %17 KernelInfo()
""",
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (12, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[12] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = RANGE idx[] %5 (1000, "REDUCE")
%9 = INDEX f32[] %7 %8
%10 = LOAD f32[] %9
%11 = REDUCE f32[] %10 %8 ("ADD", ())
%12 = STORE void[] %4 %11
%13 = SINK void[] %12 KernelInfo()
""",
)
