"""Cases of boxes of memory that are copied by themselves: device_axes, ahead."""

from typing import Any

from monolect.lower.gpu.device_axes import device_axes
from monolect.lower.software_pipeline import ahead
from tests.passes.cases_of_steps import TURNS

# (pass, case): (what to run, before, after)
CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["device_axes", "boxes that are copied by themselves: between a barrier and what reads them"] = (
    lambda s: device_axes(s, TURNS),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f16[8] %1 ParamArg(slot=0, dtype=f16, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (1, "LOCAL")
%4 = INDEX f16[] %2 %3
%5 = CONST idx[] (24, idx)
%6 = STACK idx[1] %5
%7 = BUFFER f16[24] %6 BufferArg(slot=0, dtype=f16, device=None, addrspace="LOCAL")
%8 = CONST idx[] (5, idx)
%9 = RANGE idx[] %8 (2, "REDUCE")
%10 = CONST idx[] (3, idx)
%11 = MOD idx[] %9 %10
%12 = MUL idx[] %11 %0
%13 = INDEX f16[] %7 %12
%14 = CONST idx[] (72, idx)
%15 = STACK idx[1] %14
%16 = PARAM f16[72] %15 ParamArg(slot=1, dtype=f16, addrspace="GLOBAL")
%17 = CONST b1[] (True, b1)
%18 = CONST idx[] (4, idx)
%19 = MUL idx[] %9 %18
%20 = CONST idx[] (1, idx)
%21 = TMACOPY void[] %13 %16 %11 %17 %19 %20 TmaCopyArg(start=0, strides=(1, 24), sizes=(18, 3), box=(4, 2), n_buffers=3)
%22 = AFTER f16[24] %7 %21
%23 = ADD idx[] %3 %12
%24 = INDEX f16[] %22 %23
%25 = LOAD f16[] %24
%26 = REDUCE f16[] %25 %9 ("ADD", ())
%27 = STORE void[] %4 %26
%28 = END void[] %27 %3
%29 = SINK void[] %28 KernelInfo(name="sum_8_r5")

""",
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f16[8] %1 ParamArg(slot=0, dtype=f16, addrspace="GLOBAL")
%3 = SPECIAL idx[] %0 "lidx0"
%4 = INDEX f16[] %2 %3
%5 = CONST idx[] (24, idx)
%6 = STACK idx[1] %5
%7 = BUFFER f16[24] %6 BufferArg(slot=0, dtype=f16, device=None, addrspace="LOCAL")
%8 = CONST idx[] (5, idx)
%9 = RANGE idx[] %8 (2, "REDUCE")
%10 = CONST idx[] (3, idx)
%11 = MOD idx[] %9 %10
%12 = MUL idx[] %11 %0
%13 = INDEX f16[] %7 %12
%14 = CONST idx[] (72, idx)
%15 = STACK idx[1] %14
%16 = PARAM f16[72] %15 ParamArg(slot=1, dtype=f16, addrspace="GLOBAL")
%17 = CONST b1[] (True, b1)
%18 = CONST idx[] (4, idx)
%19 = MUL idx[] %9 %18
%20 = CONST idx[] (1, idx)
%21 = TMACOPY void[] %13 %16 %11 %17 %19 %20 TmaCopyArg(start=0, strides=(1, 24), sizes=(18, 3), box=(4, 2), n_buffers=3)
%22 = BARRIER void[] %21
%23 = AFTER f16[24] %7 %22
%24 = ADD idx[] %12 %3
%25 = INDEX f16[] %23 %24
%26 = LOAD f16[] %25
%27 = REDUCE f16[] %26 %9 ("ADD", ())
%28 = STORE void[] %4 %27
%29 = SINK void[] %28 KernelInfo(name="sum_8_r5")

""",
)

CASES["ahead", "boxes: all blocks but one before the loop, then what comes two steps later, if anything does"] = (
    ahead,
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f16[8] %1 ParamArg(slot=0, dtype=f16, addrspace="GLOBAL")
%3 = SPECIAL idx[] %0 "lidx0"
%4 = INDEX f16[] %2 %3
%5 = STACK idx[0]
%6 = BUFFER f16[] %5 BufferArg(slot=1, dtype=f16, device=None, addrspace="REG")
%7 = CONST idx[] (24, idx)
%8 = STACK idx[1] %7
%9 = BUFFER f16[24] %8 BufferArg(slot=0, dtype=f16, device=None, addrspace="LOCAL")
%10 = CONST idx[] (5, idx)
%11 = RANGE idx[] %10 (3, "REDUCE")
%12 = CONST idx[] (3, idx)
%13 = MOD idx[] %11 %12
%14 = MUL idx[] %13 %0
%15 = INDEX f16[] %9 %14
%16 = CONST idx[] (72, idx)
%17 = STACK idx[1] %16
%18 = PARAM f16[72] %17 ParamArg(slot=1, dtype=f16, addrspace="GLOBAL")
%19 = CONST b1[] (True, b1)
%20 = CONST idx[] (4, idx)
%21 = MUL idx[] %11 %20
%22 = CONST idx[] (1, idx)
%23 = TMACOPY void[] %15 %18 %13 %19 %21 %22 TmaCopyArg(start=0, strides=(1, 24), sizes=(18, 3), box=(4, 2), n_buffers=3)
%24 = BARRIER void[] %23
%25 = AFTER f16[24] %9 %24
%26 = ADD idx[] %3 %14
%27 = INDEX f16[] %25 %26
%28 = LOAD f16[] %27
%29 = CONST f16[] (0.0, f16)
%30 = STORE void[] %6 %29
%31 = AFTER f16[] %6 %30 %11
%32 = LOAD f16[] %31
%33 = ADD f16[] %28 %32
%34 = STORE void[] %6 %33
%35 = END void[] %34 %11
%36 = AFTER f16[] %6 %35
%37 = LOAD f16[] %36
%38 = STORE void[] %4 %37
%39 = SINK void[] %38 KernelInfo(name="sum_8_r5")

""",
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f16[8] %1 ParamArg(slot=0, dtype=f16, addrspace="GLOBAL")
%3 = SPECIAL idx[] %0 "lidx0"
%4 = INDEX f16[] %2 %3
%5 = STACK idx[0]
%6 = BUFFER f16[] %5 BufferArg(slot=1, dtype=f16, device=None, addrspace="REG")
%7 = CONST f16[] (0.0, f16)
%8 = STORE void[] %6 %7
%9 = CONST idx[] (5, idx)
%10 = RANGE idx[] %9 (3, "REDUCE")
%11 = AFTER f16[] %6 %8 %10
%12 = LOAD f16[] %11
%13 = CONST idx[] (24, idx)
%14 = STACK idx[1] %13
%15 = BUFFER f16[24] %14 BufferArg(slot=0, dtype=f16, device=None, addrspace="LOCAL")
%16 = CONST idx[] (0, idx)
%17 = INDEX f16[] %15 %16
%18 = CONST idx[] (72, idx)
%19 = STACK idx[1] %18
%20 = PARAM f16[72] %19 ParamArg(slot=1, dtype=f16, addrspace="GLOBAL")
%21 = CONST b1[] (True, b1)
%22 = CONST idx[] (1, idx)
%23 = TMACOPY void[] %17 %20 %16 %21 %16 %22 TmaCopyArg(start=0, strides=(1, 24), sizes=(18, 3), box=(4, 2), n_buffers=3)
%24 = INDEX f16[] %15 %0
%25 = CONST idx[] (4, idx)
%26 = TMACOPY void[] %24 %20 %22 %21 %25 %22 TmaCopyArg(start=0, strides=(1, 24), sizes=(18, 3), box=(4, 2), n_buffers=3)
%27 = BARRIER void[] %23 %26 %10
%28 = AFTER f16[24] %15 %27
%29 = CONST idx[] (2, idx)
%30 = ADD idx[] %10 %29
%31 = CONST idx[] (3, idx)
%32 = MOD idx[] %30 %31
%33 = MUL idx[] %32 %0
%34 = INDEX f16[] %28 %33
%35 = CMPLT b1[] %10 %31
%36 = MUL idx[] %10 %25
%37 = ADD idx[] %36 %0
%38 = TMACOPY void[] %34 %20 %32 %35 %37 %22 TmaCopyArg(start=0, strides=(1, 24), sizes=(18, 3), box=(4, 2), n_buffers=3)
%39 = AFTER f16[24] %15 %27 %38
%40 = MOD idx[] %10 %31
%41 = MUL idx[] %40 %0
%42 = ADD idx[] %3 %41
%43 = INDEX f16[] %39 %42
%44 = LOAD f16[] %43
%45 = ADD f16[] %12 %44
%46 = STORE void[] %6 %45
%47 = END void[] %46 %10
%48 = AFTER f16[] %6 %47
%49 = LOAD f16[] %48
%50 = STORE void[] %4 %49
%51 = SINK void[] %50 KernelInfo(name="sum_8_r5")

""",
)
