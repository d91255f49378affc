"""Cases of the passes for devices with workgroups, or without masked stores: device_axes, control.

The texts are graphs (`ir.text`), so numbers and comments in them do not matter. `after` None: the pass changes nothing.
"""

from typing import Any

from monolect.lower.control import control
from monolect.lower.gpu.device_axes import device_axes
from tests.passes.conftest import target

TARGET = target(workgroups=True, max_local=256, local_bytes=1024, branches=True)

# (pass, case): (what to run, before, after)
CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["device_axes", "groups and lanes"] = (
    lambda s: device_axes(s, TARGET),
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (6, idx)
%4 = RANGE idx[] %3 (0, "GLOBAL")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOCAL")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %8
%12 = LOAD f32[] %11
%13 = STORE void[] %9 %12
%14 = END void[] %13 %4 %7
%15 = SINK void[] %14 KernelInfo(name="map_24")
""",
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (6, idx)
%4 = SPECIAL idx[] %3 "gidx0"
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = SPECIAL idx[] %5 "lidx0"
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %8
%12 = LOAD f32[] %11
%13 = STORE void[] %9 %12
%14 = SINK void[] %13 KernelInfo(name="map_24")
""",
)

CASES["device_axes", "a sum shared by lanes"] = (
    lambda s: device_axes(s, TARGET),
    """
%0 = CONST idx[] (6, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[6] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "GLOBAL")
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (192, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[192] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = CONST idx[] (32, idx)
%9 = MUL idx[] %3 %8
%10 = CONST idx[] (8, idx)
%11 = RANGE idx[] %10 (1, "REDUCE")
%12 = CONST idx[] (4, idx)
%13 = MUL idx[] %11 %12
%14 = ADD idx[] %9 %13
%15 = RANGE idx[] %12 (2, "GROUP_REDUCE")
%16 = ADD idx[] %14 %15
%17 = INDEX f32[] %7 %16
%18 = LOAD f32[] %17
%19 = REDUCE f32[] %18 %11 %15 ("ADD", ())
%20 = STORE void[] %4 %19
%21 = END void[] %20 %3
%22 = SINK void[] %21 KernelInfo(name="sum_6_r32")
""",
    """
%0 = CONST idx[] (6, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[6] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = SPECIAL idx[] %0 "gidx0"
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (4, idx)
%6 = STACK idx[1] %5
%7 = BUFFER f32[4] %6 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%8 = SPECIAL idx[] %5 "lidx0"
%9 = INDEX f32[] %7 %8
%10 = CONST idx[] (192, idx)
%11 = STACK idx[1] %10
%12 = PARAM f32[192] %11 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%13 = CONST idx[] (8, idx)
%14 = RANGE idx[] %13 (1, "REDUCE")
%15 = MUL idx[] %14 %5
%16 = CONST idx[] (32, idx)
%17 = MUL idx[] %3 %16
%18 = ADD idx[] %15 %17
%19 = ADD idx[] %18 %8
%20 = INDEX f32[] %12 %19
%21 = LOAD f32[] %20
%22 = REDUCE f32[] %21 %14 ("ADD", ())
%23 = STORE void[] %9 %22
%24 = BARRIER void[] %23
%25 = AFTER f32[4] %7 %24
%26 = RANGE idx[] %5 (3, "REDUCE")
%27 = INDEX f32[] %25 %26
%28 = LOAD f32[] %27
%29 = REDUCE f32[] %28 %26 ("ADD", ())
%30 = CONST idx[] (1, idx)
%31 = CMPLT b1[] %8 %30
%32 = STORE void[] %4 %29 %31
%33 = SINK void[] %32 KernelInfo(name="sum_6_r32")
""",
)

CASES["device_axes", "a copy shared by lanes, in steps"] = (
    lambda s: device_axes(s, TARGET),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOCAL")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOCAL")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = BUFFER f32[8] %1 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%11 = RANGE idx[] %3 (6, "LOCAL")
%12 = MUL idx[] %11 %5
%13 = RANGE idx[] %5 (7, "UPCAST")
%14 = ADD idx[] %12 %13
%15 = INDEX f32[] %10 %14
%16 = CONST idx[] (32, idx)
%17 = STACK idx[1] %16
%18 = PARAM f32[32] %17 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%19 = RANGE idx[] %5 (4, "REDUCE")
%20 = MUL idx[] %19 %0
%21 = ADD idx[] %20 %12
%22 = ADD idx[] %21 %13
%23 = INDEX f32[] %18 %22
%24 = LOAD f32[] %23
%25 = STORE void[] %15 %24
%26 = END void[] %25 %11 %13
%27 = AFTER f32[8] %10 %26
%28 = RANGE idx[] %3 (5, "REDUCE")
%29 = MUL idx[] %28 %5
%30 = ADD idx[] %7 %29
%31 = INDEX f32[] %27 %30
%32 = LOAD f32[] %31
%33 = CONST idx[] (16, idx)
%34 = STACK idx[1] %33
%35 = PARAM f32[16] %34 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%36 = MUL idx[] %4 %0
%37 = MUL idx[] %19 %3
%38 = ADD idx[] %36 %37
%39 = ADD idx[] %38 %28
%40 = INDEX f32[] %35 %39
%41 = LOAD f32[] %40
%42 = MUL f32[] %32 %41
%43 = REDUCE f32[] %42 %19 %28 ("ADD", ())
%44 = STORE void[] %9 %43
%45 = END void[] %44 %4 %7
%46 = SINK void[] %45 KernelInfo(name="sum_2x4_r8")
""",
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (4, idx)
%4 = SPECIAL idx[] %3 "lidx0"
%5 = CONST idx[] (2, idx)
%6 = SPECIAL idx[] %5 "lidx1"
%7 = MUL idx[] %6 %3
%8 = ADD idx[] %4 %7
%9 = INDEX f32[] %2 %8
%10 = BUFFER f32[8] %1 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%11 = RANGE idx[] %3 (4, "REDUCE")
%12 = BARRIER void[] %11
%13 = AFTER f32[8] %10 %12
%14 = RANGE idx[] %3 (7, "UPCAST")
%15 = CONST idx[] (-1, idx)
%16 = MUL idx[] %4 %15
%17 = CONST idx[] (-4, idx)
%18 = MUL idx[] %6 %17
%19 = ADD idx[] %16 %18
%20 = MAX idx[] %19 %15
%21 = MUL idx[] %20 %17
%22 = ADD idx[] %14 %21
%23 = INDEX f32[] %13 %22
%24 = CONST idx[] (32, idx)
%25 = STACK idx[1] %24
%26 = PARAM f32[32] %25 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%27 = MUL idx[] %11 %0
%28 = ADD idx[] %27 %14
%29 = ADD idx[] %28 %21
%30 = INDEX f32[] %26 %29
%31 = LOAD f32[] %30
%32 = STORE void[] %23 %31
%33 = END void[] %32 %14
%34 = BARRIER void[] %33
%35 = AFTER f32[8] %10 %34
%36 = RANGE idx[] %5 (5, "REDUCE")
%37 = MUL idx[] %36 %3
%38 = ADD idx[] %37 %4
%39 = INDEX f32[] %35 %38
%40 = LOAD f32[] %39
%41 = CONST idx[] (16, idx)
%42 = STACK idx[1] %41
%43 = PARAM f32[16] %42 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%44 = MUL idx[] %11 %5
%45 = ADD idx[] %44 %36
%46 = MUL idx[] %6 %0
%47 = ADD idx[] %45 %46
%48 = INDEX f32[] %43 %47
%49 = LOAD f32[] %48
%50 = MUL f32[] %40 %49
%51 = REDUCE f32[] %50 %11 %36 ("ADD", ())
%52 = STORE void[] %9 %51
%53 = SINK void[] %52 KernelInfo(name="sum_2x4_r8")
""",
)

CASES["device_axes", "lanes that share a sum, then use it"] = (
    lambda s: device_axes(s, TARGET),
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (3, idx)
%4 = RANGE idx[] %3 (0, "GLOBAL")
%5 = CONST idx[] (8, idx)
%6 = MUL idx[] %4 %5
%7 = CONST idx[] (4, idx)
%8 = RANGE idx[] %7 (1, "LOCAL")
%9 = ADD idx[] %6 %8
%10 = CONST idx[] (2, idx)
%11 = RANGE idx[] %10 (4, "LOOP")
%12 = MUL idx[] %11 %7
%13 = ADD idx[] %9 %12
%14 = INDEX f32[] %2 %13
%15 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%16 = RANGE idx[] %7 (2, "GROUP_REDUCE")
%17 = ADD idx[] %6 %16
%18 = RANGE idx[] %10 (5, "REDUCE")
%19 = MUL idx[] %18 %7
%20 = ADD idx[] %17 %19
%21 = INDEX f32[] %15 %20
%22 = LOAD f32[] %21
%23 = REDUCE f32[] %22 %16 %18 ("ADD", ())
%24 = PARAM f32[24] %1 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%25 = INDEX f32[] %24 %13
%26 = LOAD f32[] %25
%27 = MUL f32[] %23 %26
%28 = STORE void[] %14 %27
%29 = END void[] %28 %4 %8 %11
%30 = SINK void[] %29 KernelInfo(name="sum_3x8_r8")
""",
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (4, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = SPECIAL idx[] %5 "lidx0"
%8 = ADD idx[] %6 %7
%9 = CONST idx[] (3, idx)
%10 = SPECIAL idx[] %9 "gidx0"
%11 = CONST idx[] (8, idx)
%12 = MUL idx[] %10 %11
%13 = ADD idx[] %8 %12
%14 = INDEX f32[] %2 %13
%15 = STACK idx[1] %5
%16 = BUFFER f32[4] %15 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%17 = INDEX f32[] %16 %7
%18 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%19 = RANGE idx[] %3 (5, "REDUCE")
%20 = MUL idx[] %19 %5
%21 = ADD idx[] %20 %7
%22 = ADD idx[] %21 %12
%23 = INDEX f32[] %18 %22
%24 = LOAD f32[] %23
%25 = REDUCE f32[] %24 %19 ("ADD", ())
%26 = STORE void[] %17 %25
%27 = BARRIER void[] %26
%28 = AFTER f32[4] %16 %27
%29 = RANGE idx[] %5 (6, "REDUCE")
%30 = INDEX f32[] %28 %29
%31 = LOAD f32[] %30
%32 = REDUCE f32[] %31 %29 ("ADD", ())
%33 = PARAM f32[24] %1 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%34 = INDEX f32[] %33 %13
%35 = LOAD f32[] %34
%36 = MUL f32[] %32 %35
%37 = STORE void[] %14 %36
%38 = END void[] %37 %4
%39 = SINK void[] %38 KernelInfo(name="sum_3x8_r8")
""",
)

CASES["device_axes", "a target without workgroups"] = (
    lambda s: device_axes(s, target()),
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (6, idx)
%4 = RANGE idx[] %3 (0, "GLOBAL")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOCAL")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %8
%12 = LOAD f32[] %11
%13 = STORE void[] %9 %12
%14 = END void[] %13 %4 %7
%15 = SINK void[] %14 KernelInfo(name="map_24")
""",
    None,
)

CASES["control", "a gated store"] = (
    lambda s: control(s, TARGET),
    """
%0 = CONST idx[] (5, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[5] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (8, idx)
%4 = CONST f32[] (1.0, f32)
%5 = RANGE idx[] %3 (0, "LOOP")
%6 = INDEX f32[] %2 %5
%7 = CMPLT b1[] %5 %0
%8 = STORE void[] %6 %4 %7
%9 = END void[] %8 %5
%10 = LINEAR void[] %0 %1 %2 %3 %4 %5 %6 %7 %8 %9 KernelInfo(name="map_5")
""",
    """
%0 = CONST idx[] (5, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[5] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (8, idx)
%4 = CONST f32[] (1.0, f32)
%5 = RANGE idx[] %3 (0, "LOOP")
%6 = INDEX f32[] %2 %5
%7 = CMPLT b1[] %5 %0
%8 = IF void[] %7 tag=8
%9 = STORE void[] %6 %4
%10 = ENDIF void[] %8
%11 = END void[] %10 %5
%12 = LINEAR void[] %0 %1 %2 %3 %4 %5 %6 %7 %8 %9 %10 %11 KernelInfo(name="map_5")
""",
)

CASES["control", "a store without a gate"] = (
    lambda s: control(s, TARGET),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST f32[] (1.0, f32)
%4 = RANGE idx[] %0 (0, "LOOP")
%5 = INDEX f32[] %2 %4
%6 = STORE void[] %5 %3
%7 = END void[] %6 %4
%8 = LINEAR void[] %0 %1 %2 %3 %4 %5 %6 %7 KernelInfo(name="map_8")
""",
    None,
)
