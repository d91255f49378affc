"""Cases of `read_at_once` and `seldom`: choices between rows as one load, and kernels that have none."""

from typing import Any

from monolect.lower.cold_paths import branch_cold_paths
from monolect.rules.loops.concat import read_at_once
from tests.passes.conftest import target

CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["read_at_once", "rows moved round by two, and one added"] = (
    read_at_once,
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (6, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = CONST idx[] (2, idx)
%11 = CMPLT b1[] %4 %10
%12 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, device="cpu", addrspace="GLOBAL")
%13 = CONST idx[] (16, idx)
%14 = ADD idx[] %8 %13
%15 = INDEX f32[] %12 %14
%16 = CONST f32[] (0.0, f32)
%17 = LOAD f32[] %15 %16 %11
%18 = CONST idx[] (-8, idx)
%19 = ADD idx[] %8 %18
%20 = INDEX f32[] %12 %19
%21 = CONST idx[] (-1, idx)
%22 = MUL idx[] %4 %21
%23 = CMPLT b1[] %22 %21
%24 = LOAD f32[] %20 %16 %23
%25 = WHERE f32[] %11 %17 %24
%26 = CONST f32[] (1.0, f32)
%27 = ADD f32[] %25 %26
%28 = STORE void[] %9 %27
%29 = END void[] %28 %4 %7
%30 = SINK void[] %29 KernelInfo()
""",
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (6, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, device="cpu", addrspace="GLOBAL")
%11 = CONST idx[] (2, idx)
%12 = CMPLT b1[] %4 %11
%13 = CONST idx[] (0, idx)
%14 = WHERE idx[] %12 %0 %13
%15 = ADD idx[] %8 %14
%16 = CONST idx[] (-8, idx)
%17 = ADD idx[] %15 %16
%18 = INDEX f32[] %10 %17
%19 = LOAD f32[] %18
%20 = CONST f32[] (1.0, f32)
%21 = ADD f32[] %19 %20
%22 = STORE void[] %9 %21
%23 = END void[] %22 %4 %7
%24 = SINK void[] %23 KernelInfo()
""",
)

CASES["read_at_once", "rows moved round by one, times the rows"] = (
    read_at_once,
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (6, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = CONST idx[] (1, idx)
%11 = CMPLT b1[] %4 %10
%12 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, device="cpu", addrspace="GLOBAL")
%13 = CONST idx[] (20, idx)
%14 = ADD idx[] %8 %13
%15 = INDEX f32[] %12 %14
%16 = CONST f32[] (0.0, f32)
%17 = LOAD f32[] %15 %16 %11
%18 = CONST idx[] (-4, idx)
%19 = ADD idx[] %8 %18
%20 = INDEX f32[] %12 %19
%21 = CONST idx[] (-1, idx)
%22 = MUL idx[] %4 %21
%23 = CONST idx[] (0, idx)
%24 = CMPLT b1[] %22 %23
%25 = LOAD f32[] %20 %16 %24
%26 = WHERE f32[] %11 %17 %25
%27 = INDEX f32[] %12 %8
%28 = LOAD f32[] %27
%29 = MUL f32[] %26 %28
%30 = STORE void[] %9 %29
%31 = END void[] %30 %4 %7
%32 = SINK void[] %31 KernelInfo()
""",
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (6, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, device="cpu", addrspace="GLOBAL")
%11 = INDEX f32[] %10 %8
%12 = LOAD f32[] %11
%13 = CONST idx[] (1, idx)
%14 = CMPLT b1[] %4 %13
%15 = CONST idx[] (0, idx)
%16 = WHERE idx[] %14 %0 %15
%17 = ADD idx[] %8 %16
%18 = CONST idx[] (-4, idx)
%19 = ADD idx[] %17 %18
%20 = INDEX f32[] %10 %19
%21 = LOAD f32[] %20
%22 = MUL f32[] %12 %21
%23 = STORE void[] %9 %22
%24 = END void[] %23 %4 %7
%25 = SINK void[] %24 KernelInfo()
""",
)

CASES["seldom", "a kernel without a rare branch"] = (
    lambda u: branch_cold_paths(u, target()),
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (6, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, device="cpu", addrspace="GLOBAL")
%11 = INDEX f32[] %10 %8
%12 = LOAD f32[] %11
%13 = CONST f32[] (1.0, f32)
%14 = ADD f32[] %12 %13
%15 = STORE void[] %9 %14
%16 = END void[] %15 %4 %7
%17 = SINK void[] %16 KernelInfo()
""",
    None,
)
