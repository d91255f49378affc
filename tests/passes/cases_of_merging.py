"""Cases of merge_ranges, loops that become one or two, and of simplify_loops where each iteration becomes a store.

The texts are graphs (`ir.text`), as in `cases_of_loops`.
"""

from typing import Any

from monolect.optimize.merge import merge_ranges
from monolect.rules.loops.concat import stored_apart
from monolect.rules.loops.reductions import simplify_loops
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

CASES["stored_apart", "stacked values"] = (
    lambda s: stored_apart(s, own_loops=True),
    """
%0 = CONST idx[] (12, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[12] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (3, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = CONST idx[] (1, idx)
%11 = CMPLT b1[] %4 %10
%12 = STACK idx[1] %5
%13 = PARAM f32[4] %12 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%14 = INDEX f32[] %13 %7
%15 = LOAD f32[] %14
%16 = CONST idx[] (2, idx)
%17 = CMPLT b1[] %4 %16
%18 = CONST f32[] (2.0, f32)
%19 = MUL f32[] %15 %18
%20 = ADD f32[] %15 %18
%21 = WHERE f32[] %17 %19 %20
%22 = WHERE f32[] %11 %15 %21
%23 = STORE void[] %9 %22
%24 = END void[] %23 %4 %7
%25 = SINK void[] %24 KernelInfo()
""",
    """
%0 = CONST idx[] (12, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[12] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (4, idx)
%4 = RANGE idx[] %3 (1, "LOOP")
%5 = INDEX f32[] %2 %4
%6 = STACK idx[1] %3
%7 = PARAM f32[4] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = INDEX f32[] %7 %4
%9 = LOAD f32[] %8
%10 = STORE void[] %5 %9
%11 = END void[] %10 %4
%12 = ADD idx[] %4 %3
%13 = INDEX f32[] %2 %12
%14 = CONST f32[] (2.0, f32)
%15 = MUL f32[] %9 %14
%16 = STORE void[] %13 %15
%17 = END void[] %16 %4
%18 = CONST idx[] (8, idx)
%19 = ADD idx[] %4 %18
%20 = INDEX f32[] %2 %19
%21 = ADD f32[] %9 %14
%22 = STORE void[] %20 %21
%23 = END void[] %22 %4
%24 = SINK void[] %11 %17 %23 KernelInfo()
""",
)

CASES["stored_apart", "squares of stacked values"] = (
    lambda s: stored_apart(s, own_loops=True),
    """
%0 = CONST idx[] (12, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[12] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (3, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = CONST idx[] (1, idx)
%11 = CMPLT b1[] %4 %10
%12 = STACK idx[1] %5
%13 = PARAM f32[4] %12 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%14 = INDEX f32[] %13 %7
%15 = LOAD f32[] %14
%16 = CONST idx[] (2, idx)
%17 = CMPLT b1[] %4 %16
%18 = CONST f32[] (2.0, f32)
%19 = MUL f32[] %15 %18
%20 = ADD f32[] %15 %18
%21 = WHERE f32[] %17 %19 %20
%22 = WHERE f32[] %11 %15 %21
%23 = MUL f32[] %22 %22
%24 = STORE void[] %9 %23
%25 = END void[] %24 %4 %7
%26 = SINK void[] %25 KernelInfo()
""",
    """
%0 = CONST idx[] (12, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[12] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (4, idx)
%4 = RANGE idx[] %3 (1, "LOOP")
%5 = INDEX f32[] %2 %4
%6 = STACK idx[1] %3
%7 = PARAM f32[4] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = INDEX f32[] %7 %4
%9 = LOAD f32[] %8
%10 = MUL f32[] %9 %9
%11 = STORE void[] %5 %10
%12 = END void[] %11 %4
%13 = ADD idx[] %4 %3
%14 = INDEX f32[] %2 %13
%15 = CONST f32[] (2.0, f32)
%16 = MUL f32[] %9 %15
%17 = MUL f32[] %16 %16
%18 = STORE void[] %14 %17
%19 = END void[] %18 %4
%20 = CONST idx[] (8, idx)
%21 = ADD idx[] %4 %20
%22 = INDEX f32[] %2 %21
%23 = ADD f32[] %9 %15
%24 = MUL f32[] %23 %23
%25 = STORE void[] %22 %24
%26 = END void[] %25 %4
%27 = SINK void[] %12 %19 %26 KernelInfo()
""",
)

CASES["simplify_loops", "a few values side by side"] = (
    lambda s: simplify_loops(s, TARGET),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (4, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (2, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = CONST idx[] (1, idx)
%11 = CMPLT b1[] %7 %10
%12 = STACK idx[1] %3
%13 = PARAM f32[4] %12 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%14 = INDEX f32[] %13 %4
%15 = LOAD f32[] %14
%16 = PARAM f32[4] %12 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%17 = INDEX f32[] %16 %4
%18 = LOAD f32[] %17
%19 = WHERE f32[] %11 %15 %18
%20 = STORE void[] %9 %19
%21 = END void[] %20 %4 %7
%22 = SINK void[] %21 KernelInfo()
""",
    None,
)

CASES["merge_ranges", "a loop that carries a sum, read as r // 3"] = (
    lambda s: merge_ranges(s, TARGET),
    """
%0 = CONST idx[] (6, idx)
%1 = STACK idx[1] %0
%2 = PARAM i64[6] %1 ParamArg(slot=0, dtype=i64, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX i64[] %2 %3
%5 = STACK idx[0]
%6 = BUFFER i64[] %5 BufferArg(slot=0, dtype=i64, device=None, addrspace="REG")
%7 = CONST idx[] (4, idx)
%8 = STACK idx[1] %7
%9 = PARAM i32[4] %8 ParamArg(slot=1, dtype=i32, addrspace="GLOBAL")
%10 = CONST idx[] (2, idx)
%11 = RANGE idx[] %10 (1001, "REDUCE")
%12 = CONST idx[] (3, idx)
%13 = IDIV idx[] %3 %12
%14 = MUL idx[] %13 %10
%15 = ADD idx[] %11 %14
%16 = INDEX i32[] %9 %15
%17 = LOAD i32[] %16
%18 = PARAM i32[6] %1 ParamArg(slot=2, dtype=i32, addrspace="GLOBAL")
%19 = MUL idx[] %11 %12
%20 = MOD idx[] %3 %12
%21 = ADD idx[] %19 %20
%22 = INDEX i32[] %18 %21
%23 = LOAD i32[] %22
%24 = MUL i32[] %17 %23
%25 = REDUCE i32[] %24 %11 ("ADD", ())
%26 = CAST i64[] %25 i64
%27 = CONST i64[] (0, i64)
%28 = STORE void[] %6 %27
%29 = AFTER i64[] %6 %28 %3
%30 = LOAD i64[] %29
%31 = ADD i64[] %26 %30
%32 = STORE void[] %6 %31
%33 = AFTER i64[] %6 %32
%34 = LOAD i64[] %33
%35 = STORE void[] %4 %34
%36 = END void[] %35 %3
%37 = SINK void[] %36 KernelInfo()
""",
    None,
)

CASES["merge_ranges", "a loop around one that carries a sum, read as r // 3"] = (
    lambda s: merge_ranges(s, TARGET),
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM i64[24] %1 ParamArg(slot=0, dtype=i64, addrspace="GLOBAL")
%3 = CONST idx[] (6, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX i64[] %2 %8
%10 = STACK idx[0]
%11 = BUFFER i64[] %10 BufferArg(slot=0, dtype=i64, device=None, addrspace="REG")
%12 = STACK idx[1] %5
%13 = PARAM i32[4] %12 ParamArg(slot=2, dtype=i32, addrspace="GLOBAL")
%14 = CONST idx[] (2, idx)
%15 = RANGE idx[] %14 (1000, "REDUCE")
%16 = CONST idx[] (3, idx)
%17 = IDIV idx[] %4 %16
%18 = MUL idx[] %17 %14
%19 = ADD idx[] %15 %18
%20 = INDEX i32[] %13 %19
%21 = LOAD i32[] %20
%22 = STACK idx[1] %3
%23 = PARAM i32[6] %22 ParamArg(slot=3, dtype=i32, addrspace="GLOBAL")
%24 = MUL idx[] %15 %16
%25 = MOD idx[] %4 %16
%26 = ADD idx[] %24 %25
%27 = INDEX i32[] %23 %26
%28 = LOAD i32[] %27
%29 = MUL i32[] %21 %28
%30 = REDUCE i32[] %29 %15 ("ADD", ())
%31 = PARAM i32[4] %12 ParamArg(slot=1, dtype=i32, addrspace="GLOBAL")
%32 = INDEX i32[] %31 %7
%33 = LOAD i32[] %32
%34 = MUL i32[] %30 %33
%35 = CAST i64[] %34 i64
%36 = AFTER i64[] %11 %4
%37 = CONST i64[] (0, i64)
%38 = STORE void[] %36 %37
%39 = AFTER i64[] %11 %38 %7
%40 = LOAD i64[] %39
%41 = ADD i64[] %35 %40
%42 = STORE void[] %11 %41
%43 = AFTER i64[] %11 %42
%44 = LOAD i64[] %43
%45 = STORE void[] %9 %44
%46 = END void[] %45 %4 %7
%47 = SINK void[] %46 KernelInfo()
""",
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM i64[24] %1 ParamArg(slot=0, dtype=i64, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (12, idx)
%6 = MUL idx[] %4 %5
%7 = CONST idx[] (3, idx)
%8 = RANGE idx[] %7 (1, "LOOP")
%9 = CONST idx[] (4, idx)
%10 = MUL idx[] %8 %9
%11 = ADD idx[] %6 %10
%12 = RANGE idx[] %9 (2, "LOOP")
%13 = ADD idx[] %11 %12
%14 = INDEX i64[] %2 %13
%15 = STACK idx[0]
%16 = BUFFER i64[] %15 BufferArg(slot=0, dtype=i64, device=None, addrspace="REG")
%17 = STACK idx[1] %9
%18 = PARAM i32[4] %17 ParamArg(slot=2, dtype=i32, addrspace="GLOBAL")
%19 = MUL idx[] %4 %3
%20 = RANGE idx[] %3 (1000, "REDUCE")
%21 = ADD idx[] %19 %20
%22 = INDEX i32[] %18 %21
%23 = LOAD i32[] %22
%24 = CONST idx[] (6, idx)
%25 = STACK idx[1] %24
%26 = PARAM i32[6] %25 ParamArg(slot=3, dtype=i32, addrspace="GLOBAL")
%27 = MUL idx[] %20 %7
%28 = ADD idx[] %8 %27
%29 = INDEX i32[] %26 %28
%30 = LOAD i32[] %29
%31 = MUL i32[] %23 %30
%32 = REDUCE i32[] %31 %20 ("ADD", ())
%33 = PARAM i32[4] %17 ParamArg(slot=1, dtype=i32, addrspace="GLOBAL")
%34 = INDEX i32[] %33 %12
%35 = LOAD i32[] %34
%36 = MUL i32[] %32 %35
%37 = CAST i64[] %36 i64
%38 = AFTER i64[] %16 %4 %8
%39 = CONST i64[] (0, i64)
%40 = STORE void[] %38 %39
%41 = AFTER i64[] %16 %40 %12
%42 = LOAD i64[] %41
%43 = ADD i64[] %37 %42
%44 = STORE void[] %16 %43
%45 = AFTER i64[] %16 %44
%46 = LOAD i64[] %45
%47 = STORE void[] %14 %46
%48 = END void[] %47 %4 %8 %12
%49 = SINK void[] %48 KernelInfo()
""",
)
