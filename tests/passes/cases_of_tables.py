"""Cases of simplify_loops where a sum over earlier elements of a class becomes a table in local memory."""

from typing import Any

from monolect.rules.loops.reductions import simplify_loops
from tests.passes.conftest import target

TARGET = target()
CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["simplify_loops", "ranks within a class"] = (
    lambda s: simplify_loops(s, TARGET),
    """
%0 = CONST idx[] (12, idx)
%1 = STACK idx[1] %0
%2 = PARAM i32[12] %1 ParamArg(slot=0, dtype=i32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (6, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX i32[] %2 %8
%10 = CONST idx[] (-1, idx)
%11 = MUL idx[] %7 %10
%12 = RANGE idx[] %5 (1000, "REDUCE")
%13 = ADD idx[] %11 %12
%14 = CONST idx[] (0, idx)
%15 = CMPLT b1[] %13 %14
%16 = PARAM i32[12] %1 ParamArg(slot=1, dtype=i32, addrspace="GLOBAL")
%17 = ADD idx[] %6 %12
%18 = INDEX i32[] %16 %17
%19 = LOAD i32[] %18
%20 = CONST i32[] (3, i32)
%21 = AND i32[] %19 %20
%22 = INDEX i32[] %16 %8
%23 = LOAD i32[] %22
%24 = AND i32[] %23 %20
%25 = CMPEQ b1[] %21 %24
%26 = AND b1[] %15 %25
%27 = CONST i32[] (1, i32)
%28 = CONST i32[] (0, i32)
%29 = WHERE i32[] %26 %27 %28
%30 = REDUCE i32[] %29 %12 ("ADD", ())
%31 = STORE void[] %9 %30
%32 = END void[] %31 %4 %7
%33 = SINK void[] %32 KernelInfo()
""",
    """
%0 = CONST idx[] (12, idx)
%1 = STACK idx[1] %0
%2 = PARAM i32[12] %1 ParamArg(slot=0, dtype=i32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (6, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX i32[] %2 %8
%10 = CONST idx[] (4, idx)
%11 = STACK idx[1] %10
%12 = BUFFER i32[4] %11 BufferArg(slot=0, dtype=i32, device=None, addrspace="LOCAL")
%13 = AFTER i32[4] %12 %4
%14 = RANGE idx[] %10 (2000, "LOOP")
%15 = INDEX i32[] %13 %14
%16 = CONST i32[] (0, i32)
%17 = STORE void[] %15 %16
%18 = END void[] %17 %14
%19 = AFTER i32[4] %12 %18 %7
%20 = PARAM i32[12] %1 ParamArg(slot=1, dtype=i32, addrspace="GLOBAL")
%21 = INDEX i32[] %20 %8
%22 = LOAD i32[] %21
%23 = CONST i32[] (3, i32)
%24 = AND i32[] %22 %23
%25 = CAST idx[] %24 idx
%26 = INDEX i32[] %19 %25
%27 = LOAD i32[] %26
%28 = CONST i32[] (1, i32)
%29 = ADD i32[] %27 %28
%30 = INDEX i32[] %12 %25
%31 = STORE void[] %30 %29
%32 = AFTER i32[] %29 %31
%33 = SUB i32[] %32 %28
%34 = STORE void[] %9 %33
%35 = END void[] %34 %4 %7
%36 = SINK void[] %35 KernelInfo()
""",
)

CASES["simplify_loops", "running sums of a class"] = (
    lambda s: simplify_loops(s, TARGET),
    """
%0 = CONST idx[] (12, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[12] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (6, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM i32[12] %1 ParamArg(slot=1, dtype=i32, addrspace="GLOBAL")
%11 = RANGE idx[] %5 (1000, "REDUCE")
%12 = ADD idx[] %6 %11
%13 = INDEX i32[] %10 %12
%14 = LOAD i32[] %13
%15 = CONST i32[] (3, i32)
%16 = AND i32[] %14 %15
%17 = INDEX i32[] %10 %8
%18 = LOAD i32[] %17
%19 = AND i32[] %18 %15
%20 = CMPEQ b1[] %16 %19
%21 = CONST idx[] (-1, idx)
%22 = MUL idx[] %7 %21
%23 = ADD idx[] %22 %11
%24 = CONST idx[] (1, idx)
%25 = CMPLT b1[] %23 %24
%26 = AND b1[] %20 %25
%27 = PARAM f32[12] %1 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%28 = INDEX f32[] %27 %12
%29 = LOAD f32[] %28
%30 = CONST f32[] (0.0, f32)
%31 = WHERE f32[] %26 %29 %30
%32 = REDUCE f32[] %31 %11 ("ADD", ())
%33 = STORE void[] %9 %32
%34 = END void[] %33 %4 %7
%35 = SINK void[] %34 KernelInfo()
""",
    """
%0 = CONST idx[] (12, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[12] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (6, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[12] %1 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %8
%12 = LOAD f32[] %11
%13 = CONST idx[] (4, idx)
%14 = STACK idx[1] %13
%15 = BUFFER f32[4] %14 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%16 = AFTER f32[4] %15 %4
%17 = RANGE idx[] %13 (2000, "LOOP")
%18 = INDEX f32[] %16 %17
%19 = CONST f32[] (0.0, f32)
%20 = STORE void[] %18 %19
%21 = END void[] %20 %17
%22 = AFTER f32[4] %15 %21 %7
%23 = PARAM i32[12] %1 ParamArg(slot=1, dtype=i32, addrspace="GLOBAL")
%24 = INDEX i32[] %23 %8
%25 = LOAD i32[] %24
%26 = CONST i32[] (3, i32)
%27 = AND i32[] %25 %26
%28 = CAST idx[] %27 idx
%29 = INDEX f32[] %22 %28
%30 = LOAD f32[] %29
%31 = ADD f32[] %12 %30
%32 = INDEX f32[] %15 %28
%33 = STORE void[] %32 %31
%34 = AFTER f32[] %31 %33
%35 = STORE void[] %9 %34
%36 = END void[] %35 %4 %7
%37 = SINK void[] %36 KernelInfo()
""",
)
