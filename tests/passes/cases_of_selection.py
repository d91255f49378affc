"""Cases of select: what a target lacks in what it has, and what few elements need."""

from typing import Any

from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.base.dtype import dtypes
from monolect.lower.cold_paths import branch_cold_paths
from monolect.lower.select import select
from tests.passes.conftest import target

TARGET = target()
CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["select", "a product and a sum round one by one"] = (
    lambda s: select(s, TARGET),
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = PARAM f32[4] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%6 = INDEX f32[] %5 %3
%7 = LOAD f32[] %6
%8 = CONST f32[] (2.0, f32)
%9 = MUL f32[] %7 %8
%10 = CONST f32[] (1.0, f32)
%11 = ADD f32[] %9 %10
%12 = STORE void[] %4 %11
%13 = END void[] %12 %3
%14 = SINK void[] %13 KernelInfo()
""",
    None,
)

CASES["select", "an op the target lacks"] = (
    lambda s: select(s, target(native=LLVM_NATIVE - {"CMPGT"})),
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM b1[4] %1 ParamArg(slot=0, dtype=b1, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX b1[] %2 %3
%5 = PARAM f32[4] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%6 = INDEX f32[] %5 %3
%7 = LOAD f32[] %6
%8 = CONST f32[] (2.0, f32)
%9 = CMPGT b1[] %7 %8
%10 = STORE void[] %4 %9
%11 = END void[] %10 %3
%12 = SINK void[] %11 KernelInfo()
""",
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM b1[4] %1 ParamArg(slot=0, dtype=b1, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX b1[] %2 %3
%5 = CONST f32[] (2.0, f32)
%6 = PARAM f32[4] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%7 = INDEX f32[] %6 %3
%8 = LOAD f32[] %7
%9 = CMPLT b1[] %5 %8
%10 = STORE void[] %4 %9
%11 = END void[] %10 %3
%12 = SINK void[] %11 KernelInfo()
""",
)

CASES["select", "arithmetic on halves"] = (
    lambda s: select(s, target(cast_dtypes=frozenset((dtypes.float16,)))),
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f16[4] %1 ParamArg(slot=0, dtype=f16, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f16[] %2 %3
%5 = PARAM f16[4] %1 ParamArg(slot=1, dtype=f16, addrspace="GLOBAL")
%6 = INDEX f16[] %5 %3
%7 = LOAD f16[] %6
%8 = CONST f16[] (1.0, f16)
%9 = ADD f16[] %7 %8
%10 = STORE void[] %4 %9
%11 = END void[] %10 %3
%12 = SINK void[] %11 KernelInfo()
""",
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f16[4] %1 ParamArg(slot=0, dtype=f16, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f16[] %2 %3
%5 = PARAM f16[4] %1 ParamArg(slot=1, dtype=f16, addrspace="GLOBAL")
%6 = INDEX f16[] %5 %3
%7 = LOAD f16[] %6
%8 = CAST f32[] %7 f32
%9 = CONST f32[] (1.0, f32)
%10 = ADD f32[] %8 %9
%11 = CAST f16[] %10 f16
%12 = STORE void[] %4 %11
%13 = END void[] %12 %3
%14 = SINK void[] %13 KernelInfo()
""",
)

CASES["seldom", "what few elements need is done once or not at all"] = (
    lambda u: branch_cold_paths(u, TARGET),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = CONST idx[] (0, idx)
%8 = CONST idx[] (1, idx)
%9 = CONST idx[] (3, idx)
%10 = STACK idx[4] %7 %8 %3 %9
%11 = ADD idx[4] %6 %10
%12 = INDEX f32[4] %2 %11
%13 = CONST f32[] (2.0, f32)
%14 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%15 = INDEX f32[4] %14 %11
%16 = LOAD f32[4] %15
%17 = CMPLT b1[4] %13 %16
%18 = CONST f32[] (0.5, f32)
%19 = MUL f32[4] %16 %18
%20 = TRUNC f32[4] %19
%21 = CONST f32[] (3.0, f32)
%22 = ADD f32[4] %16 %21
%23 = WHERE f32[4] %17 %20 %22 tag="seldom"
%24 = STORE void[] %12 %23
%25 = END void[] %24 %4
%26 = SINK void[] %25
""",
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = CONST idx[] (0, idx)
%8 = CONST idx[] (1, idx)
%9 = CONST idx[] (3, idx)
%10 = STACK idx[4] %7 %8 %3 %9
%11 = ADD idx[4] %6 %10
%12 = INDEX f32[4] %2 %11
%13 = STACK idx[1] %5
%14 = BUFFER f32[4] %13 BufferArg(slot=1, dtype=f32, device=None, addrspace="REG")
%15 = AFTER f32[4] %14 %4
%16 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%17 = INDEX f32[4] %16 %11
%18 = LOAD f32[4] %17
%19 = CONST f32[] (3.0, f32)
%20 = ADD f32[4] %18 %19
%21 = STORE void[] %15 %20
%22 = CONST f32[] (2.0, f32)
%23 = CMPLT b1[4] %22 %18
%24 = BUFFER f32[4] %13 BufferArg(slot=0, dtype=f32, device=None, addrspace="REG")
%25 = AFTER f32[4] %24 %4
%26 = STORE void[] %25 %18
%27 = REDUCE b1[1] %23 ("MAX", (0,))
%28 = STACK idx[0]
%29 = RESHAPE b1[] %27 %28
%30 = CAST idx[] %29 idx
%31 = RANGE idx[] %30 (1, "LOOP") tag="seldom"
%32 = AFTER f32[4] %24 %26 %31
%33 = LOAD f32[4] %32
%34 = CONST f32[] (0.5, f32)
%35 = MUL f32[4] %33 %34
%36 = TRUNC f32[4] %35
%37 = AFTER f32[4] %14 %21 %31
%38 = LOAD f32[4] %37
%39 = WHERE f32[4] %23 %36 %38
%40 = STORE void[] %14 %39
%41 = END void[] %40 %31
%42 = AFTER f32[4] %14 %21 %41
%43 = LOAD f32[4] %42
%44 = STORE void[] %12 %43
%45 = END void[] %44 %4
%46 = SINK void[] %45
""",
)
