"""Cases of `optimize` for sums of products: what is packed, and how it lies in local memory.

The texts are graphs (`ir.text`), as in `cases_of_loops`.
"""

from typing import Any

from monolect.ir import normal  # noqa: F401  (fills in the simplifiers)
from tests.passes.cases_of_loops import act

# (pass, case): (what to run, before, after)
CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["optimize", "PACK of scalars: the rows of a tile side by side"] = (
    act(("SPLIT", 1, (4, "UPCAST", False)), ("SPLIT", 0, (2, "UPCAST", False)), ("PACK", 0, None)),
    """
%0 = CONST idx[] (32, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[32] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (4, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (8, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = CONST idx[] (24, idx)
%11 = STACK idx[1] %10
%12 = PARAM f32[24] %11 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%13 = CONST idx[] (6, idx)
%14 = RANGE idx[] %13 (1000, "REDUCE")
%15 = MUL idx[] %14 %3
%16 = ADD idx[] %4 %15
%17 = INDEX f32[] %12 %16
%18 = LOAD f32[] %17
%19 = CONST idx[] (48, idx)
%20 = STACK idx[1] %19
%21 = PARAM f32[48] %20 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%22 = MUL idx[] %14 %5
%23 = ADD idx[] %7 %22
%24 = INDEX f32[] %21 %23
%25 = LOAD f32[] %24
%26 = MUL f32[] %18 %25
%27 = REDUCE f32[] %26 %14 ("ADD", ())
%28 = STORE void[] %9 %27
%29 = END void[] %28 %4 %7
%30 = SINK void[] %29 KernelInfo()
""",
    """
%0 = CONST idx[] (32, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[32] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (16, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %3 (1, "LOOP")
%8 = CONST idx[] (4, idx)
%9 = MUL idx[] %7 %8
%10 = ADD idx[] %6 %9
%11 = RANGE idx[] %3 (2, "UPCAST")
%12 = CONST idx[] (8, idx)
%13 = MUL idx[] %11 %12
%14 = ADD idx[] %10 %13
%15 = RANGE idx[] %8 (3, "UPCAST")
%16 = ADD idx[] %14 %15
%17 = INDEX f32[] %2 %16
%18 = CONST idx[] (40, idx)
%19 = STACK idx[1] %18
%20 = BUFFER f32[40] %19 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%21 = CONST idx[] (6, idx)
%22 = RANGE idx[] %21 (5, "LOOP")
%23 = MUL idx[] %22 %3
%24 = RANGE idx[] %3 (6, "LOOP")
%25 = CONST idx[] (12, idx)
%26 = MUL idx[] %24 %25
%27 = ADD idx[] %23 %26
%28 = RANGE idx[] %3 (7, "UPCAST")
%29 = ADD idx[] %27 %28
%30 = INDEX f32[] %20 %29
%31 = CONST idx[] (24, idx)
%32 = STACK idx[1] %31
%33 = PARAM f32[24] %32 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%34 = MUL idx[] %22 %8
%35 = MUL idx[] %24 %3
%36 = ADD idx[] %34 %35
%37 = ADD idx[] %36 %28
%38 = INDEX f32[] %33 %37
%39 = LOAD f32[] %38
%40 = STORE void[] %30 %39
%41 = END void[] %40 %22 %24 %28
%42 = AFTER f32[40] %20 %41
%43 = MUL idx[] %4 %25
%44 = ADD idx[] %43 %11
%45 = RANGE idx[] %21 (4, "REDUCE")
%46 = MUL idx[] %45 %3
%47 = ADD idx[] %44 %46
%48 = INDEX f32[] %42 %47
%49 = LOAD f32[] %48
%50 = CONST idx[] (48, idx)
%51 = STACK idx[1] %50
%52 = PARAM f32[48] %51 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%53 = ADD idx[] %9 %15
%54 = MUL idx[] %45 %12
%55 = ADD idx[] %53 %54
%56 = INDEX f32[] %52 %55
%57 = LOAD f32[] %56
%58 = MUL f32[] %49 %57
%59 = REDUCE f32[] %58 %45 ("ADD", ())
%60 = STORE void[] %17 %59
%61 = END void[] %60 %4 %7 %11 %15
%62 = SINK void[] %61 KernelInfo(name="sum_4x8_r6", actions=(("SPLIT", 1, (4, "UPCAST", False)), ("SPLIT", 0, (2, "UPCAST", False)), ("PACK", 0, None)))
""",
)
