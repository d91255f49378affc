"""Cases of kernels by hand: memory of several axes, registers at an index, types of axes."""

from typing import Any

from monolect.lower.demote import demote_registers
from monolect.optimize.apply import apply_actions
from monolect.optimize.merge import merge_ranges
from monolect.rules.algebra import simplify
from monolect.rules.loops.reductions import simplify_loops
from tests.passes.conftest import target

TARGET = target()
CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["simplify", "memory of several axes"] = (
    lambda s: simplify(s, TARGET),
    """
%0 = CONST idx[] (6, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[6] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (3, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = STACK idx[2] %3 %5
%11 = BUFFER f32[2,3] %10 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%12 = INDEX f32[] %11 %4 %7
%13 = PARAM f32[6] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%14 = INDEX f32[] %13 %8
%15 = LOAD f32[] %14
%16 = STORE void[] %12 %15
%17 = AFTER f32[2,3] %11 %16
%18 = INDEX f32[] %17 %4 %7
%19 = LOAD f32[] %18
%20 = STORE void[] %9 %19
%21 = END void[] %20 %4 %7
%22 = SINK void[] %21 KernelInfo()
""",
    """
%0 = CONST idx[] (6, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[6] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (3, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = BUFFER f32[6] %1 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%11 = INDEX f32[] %10 %8
%12 = PARAM f32[6] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%13 = INDEX f32[] %12 %8
%14 = LOAD f32[] %13
%15 = STORE void[] %11 %14
%16 = AFTER f32[6] %10 %15
%17 = INDEX f32[] %16 %8
%18 = LOAD f32[] %17
%19 = STORE void[] %9 %18
%20 = END void[] %19 %4 %7
%21 = SINK void[] %20 KernelInfo()
""",
)

CASES["demote_registers", "at an index"] = (
    lambda s: demote_registers(s, TARGET),
    """
%0 = CONST idx[] (6, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[6] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (2, idx)
%6 = STACK idx[1] %5
%7 = BUFFER f32[2] %6 BufferArg(slot=0, dtype=f32, device=None, addrspace="REG")
%8 = MOD idx[] %3 %5
%9 = INDEX f32[] %7 %8
%10 = PARAM f32[6] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %3
%12 = LOAD f32[] %11
%13 = STORE void[] %9 %12
%14 = AFTER f32[2] %7 %13
%15 = INDEX f32[] %14 %8
%16 = LOAD f32[] %15
%17 = STORE void[] %4 %16
%18 = END void[] %17 %3
%19 = SINK void[] %18 KernelInfo(name="k", actions=(), is_applied=True)
""",
    """
%0 = CONST idx[] (6, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[6] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (2, idx)
%6 = STACK idx[1] %5
%7 = BUFFER f32[2] %6 BufferArg(slot=1, dtype=f32, device=None, addrspace="LOCAL")
%8 = MOD idx[] %3 %5
%9 = INDEX f32[] %7 %8
%10 = PARAM f32[6] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %3
%12 = LOAD f32[] %11
%13 = STORE void[] %9 %12
%14 = AFTER f32[2] %7 %13
%15 = INDEX f32[] %14 %8
%16 = LOAD f32[] %15
%17 = STORE void[] %4 %16
%18 = END void[] %17 %3
%19 = SINK void[] %18 KernelInfo(name="k", actions=(), is_applied=True)
""",
)

CASES["apply", "types of axes by hand"] = (
    lambda s: apply_actions(s, (), TARGET),
    """
%0 = CONST idx[] (6, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[6] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "THREAD")
%5 = CONST idx[] (3, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "UPCAST")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[6] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %8
%12 = LOAD f32[] %11
%13 = STORE void[] %9 %12
%14 = END void[] %13 %4 %7
%15 = SINK void[] %14 KernelInfo()
""",
    """
%0 = CONST idx[] (6, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[6] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (3, idx)
%4 = RANGE idx[] %3 (1, "UPCAST")
%5 = CONST idx[] (2, idx)
%6 = SPECIAL idx[] %5 "thread0"
%7 = MUL idx[] %6 %3
%8 = ADD idx[] %4 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[6] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %8
%12 = LOAD f32[] %11
%13 = STORE void[] %9 %12
%14 = END void[] %13 %4
%15 = SINK void[] %14 KernelInfo(name="map_2x3", actions=(), threads=2, is_applied=True)
""",
)

CASES["merge_ranges", "loops of one type, which a user wrote"] = (
    lambda s: merge_ranges(s, TARGET),
    """
%0 = CONST idx[] (6, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[6] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "UPCAST")
%5 = CONST idx[] (3, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "UPCAST")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[6] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %8
%12 = LOAD f32[] %11
%13 = STORE void[] %9 %12
%14 = END void[] %13 %4 %7
%15 = SINK void[] %14 KernelInfo()
""",
    None,
)

CASES["simplify_loops", "a running sum along an axis by hand"] = (
    lambda s: simplify_loops(s, TARGET),
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "UPCAST")
%4 = INDEX f32[] %2 %3
%5 = RANGE idx[] %0 (100, "REDUCE")
%6 = CONST idx[] (1, idx)
%7 = ADD idx[] %3 %6
%8 = CMPLT b1[] %5 %7
%9 = PARAM f32[4] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%10 = INDEX f32[] %9 %5
%11 = LOAD f32[] %10
%12 = CONST f32[] (0.0, f32)
%13 = WHERE f32[] %8 %11 %12
%14 = REDUCE f32[] %13 %5 ("ADD", ())
%15 = STORE void[] %4 %14
%16 = END void[] %15 %3
%17 = SINK void[] %16 KernelInfo()
""",
    None,
)
