"""Cases of the passes for devices with workgroups, or without masked stores: device_axes, control.

The texts are graphs (`ir.text`), so numbers and comments in them do not matter. `after` None: the pass changes nothing.
"""

from typing import Any

from monolect.ir import normal  # noqa: F401  (fills in the simplifiers)
from monolect.lower.control import control
from monolect.lower.device_axes import device_axes
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
