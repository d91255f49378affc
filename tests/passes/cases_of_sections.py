"""Cases of optimize: loops in sections (PEEL), stores past the caches and loads ahead of time (NONTEMPORAL, PREFETCH).

The texts are graphs (`ir.text`), as in `cases_of_loops`.
"""

from typing import Any

from tests.passes.cases_of_loops import act

# (pass, case): (what to run, before, after)
CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["apply", "NONTEMPORAL and PREFETCH"] = (
    act(("SPLIT", 0, (4, "UPCAST", False)), ("NONTEMPORAL", 0, None), ("PREFETCH", 0, 4096), streams=True),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%6 = INDEX f32[] %5 %3
%7 = LOAD f32[] %6
%8 = STORE void[] %4 %7
%9 = END void[] %8 %3
%10 = SINK void[] %9 KernelInfo()
""",
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "UPCAST")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %8
%12 = LOAD f32[] %11 LoadArg(prefetch_bytes=4096)
%13 = STORE void[] %9 %12 "nontemporal"
%14 = END void[] %13 %4 %7
%15 = SINK void[] %14 KernelInfo(name="map_8", actions=(("SPLIT", 0, (4, "UPCAST", False)), ("NONTEMPORAL", 0, None), ("PREFETCH", 0, 4096)), is_applied=True)
""",
)

CASES["apply", "PREFETCH of rows"] = (
    act(("SPLIT", 1, (4, "UPCAST", False)), ("PREFETCH", 0, ("rows", 2)), streams=True),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = CONST idx[] (5, idx)
%3 = STACK idx[1] %2
%4 = CONST idx[] (40, idx)
%5 = STACK idx[1] %4
%6 = CONST idx[] (24, idx)
%7 = STACK idx[1] %6
%8 = PARAM f32[40] %5 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%9 = RANGE idx[] %2 (0, "LOOP")
%10 = MUL idx[] %9 %0
%11 = RANGE idx[] %0 (1, "LOOP")
%12 = ADD idx[] %10 %11
%13 = INDEX f32[] %8 %12
%14 = PARAM f32[24] %7 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%15 = PARAM u8[5] %3 ParamArg(slot=2, dtype=u8, addrspace="GLOBAL")
%16 = INDEX u8[] %15 %9
%17 = LOAD u8[] %16
%18 = CAST idx[] %17 idx
%19 = MUL idx[] %18 %0
%20 = ADD idx[] %11 %19
%21 = INDEX f32[] %14 %20
%22 = LOAD f32[] %21
%23 = STORE void[] %13 %22
%24 = END void[] %23 %9 %11
%25 = SINK void[] %24 KernelInfo()
""",
    """
%0 = CONST idx[] (40, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[40] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (5, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (8, idx)
%6 = MUL idx[] %4 %5
%7 = CONST idx[] (2, idx)
%8 = RANGE idx[] %7 (1, "LOOP")
%9 = CONST idx[] (4, idx)
%10 = MUL idx[] %8 %9
%11 = ADD idx[] %6 %10
%12 = RANGE idx[] %9 (2, "UPCAST")
%13 = ADD idx[] %11 %12
%14 = INDEX f32[] %2 %13
%15 = CONST idx[] (24, idx)
%16 = STACK idx[1] %15
%17 = PARAM f32[24] %16 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%18 = ADD idx[] %10 %12
%19 = STACK idx[1] %3
%20 = PARAM u8[5] %19 ParamArg(slot=2, dtype=u8, addrspace="GLOBAL")
%21 = INDEX u8[] %20 %4
%22 = LOAD u8[] %21
%23 = CAST idx[] %22 idx
%24 = MUL idx[] %23 %5
%25 = ADD idx[] %18 %24
%26 = INDEX f32[] %17 %25
%27 = LOAD f32[] %26
%28 = STORE void[] %14 %27
%29 = END void[] %28 %4 %8 %12
%30 = CONST idx[] (-1, idx)
%31 = MUL idx[] %4 %30
%32 = CONST idx[] (-2, idx)
%33 = ADD idx[] %31 %32
%34 = CONST idx[] (-4, idx)
%35 = MAX idx[] %33 %34
%36 = MUL idx[] %35 %30
%37 = INDEX u8[] %20 %36
%38 = LOAD u8[] %37
%39 = CAST idx[] %38 idx
%40 = MUL idx[] %39 %5
%41 = ADD idx[] %18 %40
%42 = INDEX f32[] %17 %41
%43 = PREFETCH void[] %42
%44 = END void[] %43 %4 %8 %12
%45 = SINK void[] %29 %44 KernelInfo(name="map_5x8", actions=(("SPLIT", 1, (4, "UPCAST", False)), ("PREFETCH", 0, ("rows", 2))), is_applied=True)
""",
)

CASES["apply", "PEEL"] = (
    act(("PEEL", 0, (1, 1))),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (6, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[6] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = CONST idx[] (-1, idx)
%9 = ADD idx[] %3 %8
%10 = INDEX f32[] %7 %9
%11 = CONST f32[] (0.0, f32)
%12 = CONST idx[] (7, idx)
%13 = CMPLT b1[] %3 %12
%14 = MUL idx[] %3 %8
%15 = CONST idx[] (0, idx)
%16 = CMPLT b1[] %14 %15
%17 = AND b1[] %13 %16
%18 = LOAD f32[] %10 %11 %17
%19 = STORE void[] %4 %18
%20 = END void[] %19 %3
%21 = SINK void[] %20 KernelInfo()
""",
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = CONST f32[] (0.0, f32)
%6 = STORE void[] %4 %5
%7 = CONST idx[] (6, idx)
%8 = RANGE idx[] %7 (1, "LOOP")
%9 = CONST idx[] (1, idx)
%10 = ADD idx[] %8 %9
%11 = INDEX f32[] %2 %10
%12 = STACK idx[1] %7
%13 = PARAM f32[6] %12 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%14 = INDEX f32[] %13 %8
%15 = LOAD f32[] %14
%16 = STORE void[] %11 %15
%17 = END void[] %16 %8
%18 = CONST idx[] (7, idx)
%19 = INDEX f32[] %2 %18
%20 = STORE void[] %19 %5
%21 = SINK void[] %6 %17 %20 KernelInfo(name="map_8", actions=(("PEEL", 0, (1, 1)),), is_applied=True)
""",
)

CASES["apply", "PEEL at a mask"] = (
    act(("SPLIT", 1, (2, "UPCAST", False)), ("PEEL", 1, ("mask", 0))),
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (3, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (8, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = CMPLT b1[] %4 %7
%11 = CONST f32[] (0.0, f32)
%12 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%13 = INDEX f32[] %12 %8
%14 = LOAD f32[] %13
%15 = WHERE f32[] %10 %11 %14
%16 = STORE void[] %9 %15
%17 = END void[] %16 %4 %7
%18 = SINK void[] %17 KernelInfo()
""",
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (3, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (8, idx)
%6 = MUL idx[] %4 %5
%7 = CONST idx[] (2, idx)
%8 = RANGE idx[] %7 (2, "UPCAST")
%9 = ADD idx[] %6 %8
%10 = CONST idx[] (1, idx)
%11 = ADD idx[] %4 %10
%12 = IDIV idx[] %11 %7
%13 = RANGE idx[] %12 (3, "LOOP")
%14 = MUL idx[] %13 %7
%15 = ADD idx[] %9 %14
%16 = INDEX f32[] %2 %15
%17 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%18 = INDEX f32[] %17 %15
%19 = LOAD f32[] %18
%20 = STORE void[] %16 %19
%21 = END void[] %20 %4 %8 %13
%22 = CONST idx[] (-1, idx)
%23 = MUL idx[] %12 %22
%24 = IDIV idx[] %4 %7
%25 = ADD idx[] %23 %24
%26 = ADD idx[] %25 %10
%27 = RANGE idx[] %26 (4, "LOOP")
%28 = MUL idx[] %27 %7
%29 = ADD idx[] %9 %28
%30 = MUL idx[] %12 %7
%31 = ADD idx[] %29 %30
%32 = INDEX f32[] %2 %31
%33 = MUL idx[] %8 %22
%34 = ADD idx[] %4 %33
%35 = CONST idx[] (-2, idx)
%36 = MUL idx[] %27 %35
%37 = ADD idx[] %34 %36
%38 = MUL idx[] %12 %35
%39 = ADD idx[] %37 %38
%40 = CONST idx[] (0, idx)
%41 = CMPLT b1[] %39 %40
%42 = CONST f32[] (0.0, f32)
%43 = INDEX f32[] %17 %31
%44 = LOAD f32[] %43
%45 = WHERE f32[] %41 %42 %44
%46 = STORE void[] %32 %45
%47 = END void[] %46 %4 %8 %27
%48 = MUL idx[] %24 %22
%49 = ADD idx[] %48 %3
%50 = RANGE idx[] %49 (5, "LOOP")
%51 = MUL idx[] %50 %7
%52 = ADD idx[] %9 %51
%53 = MUL idx[] %24 %7
%54 = ADD idx[] %52 %53
%55 = ADD idx[] %54 %7
%56 = INDEX f32[] %2 %55
%57 = STORE void[] %56 %42
%58 = END void[] %57 %4 %8 %50
%59 = SINK void[] %21 %47 %58 KernelInfo(name="map_3x8", actions=(("SPLIT", 1, (2, "UPCAST", False)), ("PEEL", 1, ("mask", 0))), is_applied=True)
""",
)

CASES["apply", "PEEL of a tail"] = (
    act(("PADTO", 0, 3), ("SPLIT", 0, (3, "UPCAST", False)), ("PEEL", 0, (0, 1))),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%6 = INDEX f32[] %5 %3
%7 = LOAD f32[] %6
%8 = STORE void[] %4 %7
%9 = END void[] %8 %3
%10 = SINK void[] %9 KernelInfo()
""",
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (3, idx)
%4 = RANGE idx[] %3 (1, "UPCAST")
%5 = CONST idx[] (2, idx)
%6 = RANGE idx[] %5 (2, "LOOP")
%7 = MUL idx[] %6 %3
%8 = ADD idx[] %4 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %8
%12 = LOAD f32[] %11
%13 = STORE void[] %9 %12
%14 = END void[] %13 %4 %6
%15 = CONST idx[] (6, idx)
%16 = ADD idx[] %4 %15
%17 = INDEX f32[] %2 %16
%18 = INDEX f32[] %10 %16
%19 = CONST f32[] (0.0, f32)
%20 = CMPLT b1[] %4 %5
%21 = LOAD f32[] %18 %19 %20
%22 = STORE void[] %17 %21 %20
%23 = END void[] %22 %4
%24 = SINK void[] %14 %23 KernelInfo(name="map_8", actions=(("PADTO", 0, 3), ("SPLIT", 0, (3, "UPCAST", False)), ("PEEL", 0, (0, 1))), is_applied=True)
""",
)
