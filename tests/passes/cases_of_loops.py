"""Cases of the passes that arrange loops: simplify, simplify_loops, optimize.

The texts are graphs (`ir.text`), so numbers and comments in them do not matter. `after` None: the pass changes nothing.
"""

from typing import Any

from monolect.optimize.apply import apply_actions
from monolect.rules.algebra import simplify
from monolect.rules.loops.reductions import simplify_loops
from tests.passes.conftest import target

TARGET = target()


def act(*actions: tuple, **has: Any) -> Any:
    return lambda s: apply_actions(s, actions, TARGET._replace(**has))


# (pass, case): (what to run, before, after)
CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["simplify_loops", "counting"] = (
    lambda s: simplify_loops(s, TARGET),
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM i32[4] %1 ParamArg(slot=0, dtype=i32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX i32[] %2 %3
%5 = CONST idx[] (-1, idx)
%6 = MUL idx[] %3 %5
%7 = RANGE idx[] %0 (1000, "REDUCE")
%8 = ADD idx[] %6 %7
%9 = CONST idx[] (1, idx)
%10 = CMPLT b1[] %8 %9
%11 = CONST i32[] (1, i32)
%12 = CONST i32[] (0, i32)
%13 = WHERE i32[] %10 %11 %12
%14 = REDUCE i32[] %13 %7 ("ADD", ())
%15 = STORE void[] %4 %14
%16 = END void[] %15 %3
%17 = SINK void[] %16 KernelInfo()
""",
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM i32[4] %1 ParamArg(slot=0, dtype=i32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX i32[] %2 %3
%5 = CONST idx[] (1, idx)
%6 = ADD idx[] %3 %5
%7 = CAST i32[] %6 i32
%8 = STORE void[] %4 %7
%9 = END void[] %8 %3
%10 = SINK void[] %9 KernelInfo()
""",
)

CASES["simplify_loops", "picking"] = (
    lambda s: simplify_loops(s, TARGET),
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = RANGE idx[] %0 (1000, "REDUCE")
%6 = CAST i32[] %5 i32
%7 = PARAM i32[4] %1 ParamArg(slot=2, dtype=i32, addrspace="GLOBAL")
%8 = INDEX i32[] %7 %3
%9 = LOAD i32[] %8
%10 = CMPEQ b1[] %6 %9
%11 = PARAM f32[4] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%12 = INDEX f32[] %11 %5
%13 = LOAD f32[] %12
%14 = CONST f32[] (0.0, f32)
%15 = WHERE f32[] %10 %13 %14
%16 = REDUCE f32[] %15 %5 ("ADD", ())
%17 = STORE void[] %4 %16
%18 = END void[] %17 %3
%19 = SINK void[] %18 KernelInfo()
""",
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = PARAM i32[4] %1 ParamArg(slot=2, dtype=i32, addrspace="GLOBAL")
%6 = INDEX i32[] %5 %3
%7 = LOAD i32[] %6
%8 = CAST idx[] %7 idx
%9 = CONST idx[] (-1, idx)
%10 = MUL idx[] %8 %9
%11 = CONST idx[] (1, idx)
%12 = CMPLT b1[] %10 %11
%13 = CMPLT b1[] %8 %0
%14 = AND b1[] %12 %13
%15 = PARAM f32[4] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%16 = CONST idx[] (0, idx)
%17 = MAX idx[] %8 %16
%18 = MUL idx[] %17 %9
%19 = CONST idx[] (-3, idx)
%20 = MAX idx[] %18 %19
%21 = MUL idx[] %20 %9
%22 = INDEX f32[] %15 %21
%23 = LOAD f32[] %22
%24 = CONST f32[] (0.0, f32)
%25 = WHERE f32[] %14 %23 %24
%26 = STORE void[] %4 %25
%27 = END void[] %26 %3
%28 = SINK void[] %27 KernelInfo()
""",
)

CASES["simplify_loops", "scanning"] = (
    lambda s: simplify_loops(s, TARGET),
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (-1, idx)
%6 = MUL idx[] %3 %5
%7 = RANGE idx[] %0 (1000, "REDUCE")
%8 = ADD idx[] %6 %7
%9 = CONST idx[] (1, idx)
%10 = CMPLT b1[] %8 %9
%11 = PARAM f32[4] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%12 = INDEX f32[] %11 %7
%13 = LOAD f32[] %12
%14 = CONST f32[] (-inf, f32)
%15 = WHERE f32[] %10 %13 %14
%16 = REDUCE f32[] %15 %7 ("MAX", ())
%17 = STORE void[] %4 %16
%18 = END void[] %17 %3
%19 = SINK void[] %18 KernelInfo()
""",
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = STACK idx[0]
%6 = BUFFER f32[] %5 BufferArg(slot=0, dtype=f32, device=None, addrspace="REG")
%7 = PARAM f32[4] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = INDEX f32[] %7 %3
%9 = LOAD f32[] %8
%10 = CONST f32[] (-inf, f32)
%11 = STORE void[] %6 %10
%12 = AFTER f32[] %6 %11 %3
%13 = LOAD f32[] %12
%14 = MAX f32[] %9 %13
%15 = STORE void[] %6 %14
%16 = AFTER f32[] %6 %15
%17 = LOAD f32[] %16
%18 = STORE void[] %4 %17
%19 = END void[] %18 %3
%20 = SINK void[] %19 KernelInfo()
""",
)

CASES["simplify_loops", "a sum of floats is not counted"] = (
    lambda s: simplify_loops(s, TARGET),
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (-2, idx)
%6 = MUL idx[] %3 %5
%7 = RANGE idx[] %0 (1000, "REDUCE")
%8 = ADD idx[] %6 %7
%9 = CONST idx[] (1, idx)
%10 = CMPLT b1[] %8 %9
%11 = PARAM f32[4] %1 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%12 = INDEX f32[] %11 %3
%13 = LOAD f32[] %12
%14 = CONST f32[] (0.0, f32)
%15 = WHERE f32[] %10 %13 %14
%16 = REDUCE f32[] %15 %7 ("ADD", ())
%17 = STORE void[] %4 %16
%18 = END void[] %17 %3
%19 = SINK void[] %18 KernelInfo()
""",
    None,
)

CASES["apply", "SPLIT to UPCAST"] = (
    act(("SPLIT", 0, (4, "UPCAST", False))),
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
%12 = LOAD f32[] %11
%13 = STORE void[] %9 %12
%14 = END void[] %13 %4 %7
%15 = SINK void[] %14 KernelInfo(name="map_8", actions=(("SPLIT", 0, (4, "UPCAST", False)),), is_applied=True)
""",
)

CASES["apply", "SPLIT to THREAD"] = (
    act(("SPLIT", 0, (2, "THREAD", True))),
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
%3 = CONST idx[] (4, idx)
%4 = RANGE idx[] %3 (1, "LOOP")
%5 = CONST idx[] (2, idx)
%6 = SPECIAL idx[] %5 "thread0"
%7 = MUL idx[] %6 %3
%8 = ADD idx[] %4 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %8
%12 = LOAD f32[] %11
%13 = STORE void[] %9 %12
%14 = END void[] %13 %4
%15 = SINK void[] %14 KernelInfo(name="map_8", actions=(("SPLIT", 0, (2, "THREAD", True)),), threads=2, is_applied=True)
""",
)

CASES["apply", "SPLIT of the outer part, which clips the last one"] = (
    act(("SPLIT", 0, (3, "LOOP", True))),
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
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = MUL idx[] %4 %3
%6 = CONST idx[] (-8, idx)
%7 = ADD idx[] %5 %6
%8 = CONST idx[] (-3, idx)
%9 = MAX idx[] %7 %8
%10 = CONST idx[] (-1, idx)
%11 = MUL idx[] %9 %10
%12 = RANGE idx[] %11 (1, "LOOP")
%13 = ADD idx[] %5 %12
%14 = INDEX f32[] %2 %13
%15 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%16 = INDEX f32[] %15 %13
%17 = LOAD f32[] %16
%18 = STORE void[] %14 %17
%19 = END void[] %18 %4 %12
%20 = SINK void[] %19 KernelInfo(name="map_8", actions=(("SPLIT", 0, (3, "LOOP", True)),), is_applied=True)
""",
)

CASES["apply", "PADTO"] = (
    act(("PADTO", 0, 3)),
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
%3 = CONST idx[] (9, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = INDEX f32[] %2 %4
%6 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%7 = INDEX f32[] %6 %4
%8 = CONST f32[] (0.0, f32)
%9 = CMPLT b1[] %4 %0
%10 = LOAD f32[] %7 %8 %9
%11 = STORE void[] %5 %10 %9
%12 = END void[] %11 %4
%13 = SINK void[] %12 KernelInfo(name="map_8", actions=(("PADTO", 0, 3),), is_applied=True)
""",
)

CASES["apply", "SWAP"] = (
    act(("SWAP", 0, 1)),
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
    """
%0 = CONST idx[] (12, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[12] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (3, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = RANGE idx[] %5 (1, "LOOP")
%7 = MUL idx[] %6 %3
%8 = ADD idx[] %4 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[12] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = MUL idx[] %4 %5
%12 = ADD idx[] %11 %6
%13 = INDEX f32[] %10 %12
%14 = LOAD f32[] %13
%15 = STORE void[] %9 %14
%16 = END void[] %15 %4 %6
%17 = SINK void[] %16 KernelInfo(name="map_4x3", actions=(("SWAP", 0, 1),), is_applied=True)
""",
)

CASES["apply", "PACK of a panel"] = (
    act(("SPLIT", 1, (4, "UPCAST", False)), ("PACK", 1, None)),
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
%14 = MUL idx[] %4 %13
%15 = RANGE idx[] %13 (1000, "REDUCE")
%16 = ADD idx[] %14 %15
%17 = INDEX f32[] %12 %16
%18 = LOAD f32[] %17
%19 = CONST idx[] (48, idx)
%20 = STACK idx[1] %19
%21 = PARAM f32[48] %20 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%22 = MUL idx[] %15 %5
%23 = ADD idx[] %7 %22
%24 = INDEX f32[] %21 %23
%25 = LOAD f32[] %24
%26 = MUL f32[] %18 %25
%27 = REDUCE f32[] %26 %15 ("ADD", ())
%28 = STORE void[] %9 %27
%29 = END void[] %28 %4 %7
%30 = SINK void[] %29 KernelInfo()
""",
    """
%0 = CONST idx[] (32, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[32] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (4, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (8, idx)
%6 = MUL idx[] %4 %5
%7 = CONST idx[] (2, idx)
%8 = RANGE idx[] %7 (1, "LOOP")
%9 = MUL idx[] %8 %3
%10 = ADD idx[] %6 %9
%11 = RANGE idx[] %3 (2, "UPCAST")
%12 = ADD idx[] %10 %11
%13 = INDEX f32[] %2 %12
%14 = CONST idx[] (64, idx)
%15 = STACK idx[1] %14
%16 = BUFFER f32[64] %15 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%17 = CONST idx[] (6, idx)
%18 = RANGE idx[] %17 (4, "LOOP")
%19 = MUL idx[] %18 %3
%20 = RANGE idx[] %7 (5, "LOOP")
%21 = CONST idx[] (24, idx)
%22 = MUL idx[] %20 %21
%23 = ADD idx[] %19 %22
%24 = RANGE idx[] %3 (6, "UPCAST")
%25 = ADD idx[] %23 %24
%26 = INDEX f32[] %16 %25
%27 = CONST idx[] (48, idx)
%28 = STACK idx[1] %27
%29 = PARAM f32[48] %28 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%30 = MUL idx[] %18 %5
%31 = MUL idx[] %20 %3
%32 = ADD idx[] %30 %31
%33 = ADD idx[] %32 %24
%34 = INDEX f32[] %29 %33
%35 = LOAD f32[] %34
%36 = STORE void[] %26 %35
%37 = END void[] %36 %18 %20 %24
%38 = AFTER f32[64] %16 %37
%39 = MUL idx[] %8 %21
%40 = ADD idx[] %39 %11
%41 = RANGE idx[] %17 (3, "REDUCE")
%42 = MUL idx[] %41 %3
%43 = ADD idx[] %40 %42
%44 = INDEX f32[] %38 %43
%45 = LOAD f32[] %44
%46 = STACK idx[1] %21
%47 = PARAM f32[24] %46 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%48 = MUL idx[] %4 %17
%49 = ADD idx[] %48 %41
%50 = INDEX f32[] %47 %49
%51 = LOAD f32[] %50
%52 = MUL f32[] %45 %51
%53 = REDUCE f32[] %52 %41 ("ADD", ())
%54 = STORE void[] %13 %53
%55 = END void[] %54 %4 %8 %11
%56 = SINK void[] %55 KernelInfo(name="sum_4x8_r6", actions=(("SPLIT", 1, (4, "UPCAST", False)), ("PACK", 1, None)), is_applied=True)
""",
)

CASES["apply", "a blocked reduction"] = (
    act(("SPLIT", 0, (2, "LOOP", True))),
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (8, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[8] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = RANGE idx[] %5 (1000, "REDUCE")
%9 = INDEX f32[] %7 %8
%10 = LOAD f32[] %9
%11 = REDUCE f32[] %10 %8 ("ADD", ())
%12 = STORE void[] %4 %11
%13 = SINK void[] %12 KernelInfo()
""",
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (8, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[8] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = CONST idx[] (2, idx)
%9 = RANGE idx[] %8 (0, "LOOP")
%10 = CONST idx[] (4, idx)
%11 = MUL idx[] %9 %10
%12 = RANGE idx[] %10 (1, "REDUCE")
%13 = ADD idx[] %11 %12
%14 = INDEX f32[] %7 %13
%15 = LOAD f32[] %14
%16 = REDUCE f32[] %15 %12 ("ADD", ())
%17 = AFTER f32[1] %2 %16
%18 = INDEX f32[] %17 %3
%19 = CONST f32[] (0.0, f32)
%20 = CONST idx[] (-1, idx)
%21 = MUL idx[] %9 %20
%22 = CMPLT b1[] %21 %3
%23 = LOAD f32[] %18 %19 %22
%24 = ADD f32[] %16 %23
%25 = STORE void[] %4 %24
%26 = END void[] %25 %9
%27 = SINK void[] %26 KernelInfo(name="sum_r8", actions=(("SPLIT", 0, (2, "LOOP", True)),), is_applied=True)
""",
)

CASES["apply", "PADTO of a reduction"] = (
    act(("PADTO", 0, 3)),
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (8, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[8] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = RANGE idx[] %5 (1000, "REDUCE")
%9 = INDEX f32[] %7 %8
%10 = LOAD f32[] %9
%11 = REDUCE f32[] %10 %8 ("MAX", ())
%12 = STORE void[] %4 %11
%13 = SINK void[] %12 KernelInfo()
""",
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (9, idx)
%6 = RANGE idx[] %5 (0, "REDUCE")
%7 = CONST idx[] (8, idx)
%8 = CMPLT b1[] %6 %7
%9 = STACK idx[1] %7
%10 = PARAM f32[8] %9 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = INDEX f32[] %10 %6
%12 = CONST f32[] (0.0, f32)
%13 = LOAD f32[] %11 %12 %8
%14 = CONST f32[] (-inf, f32)
%15 = WHERE f32[] %8 %13 %14
%16 = REDUCE f32[] %15 %6 ("MAX", ())
%17 = STORE void[] %4 %16
%18 = SINK void[] %17 KernelInfo(name="max_r8", actions=(("PADTO", 0, 3),), is_applied=True)
""",
)

CASES["simplify", "a negated condition, a negated term, a power of two"] = (
    lambda s: simplify(s, TARGET),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%6 = INDEX f32[] %5 %3
%7 = LOAD f32[] %6
%8 = PARAM f32[8] %1 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%9 = INDEX f32[] %8 %3
%10 = LOAD f32[] %9
%11 = CMPLT b1[] %7 %10
%12 = CONST b1[] (True, b1)
%13 = CMPNE b1[] %11 %12
%14 = NEG f32[] %10
%15 = SUB f32[] %7 %14
%16 = CONST f32[] (4.0, f32)
%17 = DIV f32[] %7 %16
%18 = WHERE f32[] %13 %15 %17
%19 = STORE void[] %4 %18
%20 = END void[] %19 %3
%21 = SINK void[] %20 KernelInfo()
""",
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%6 = INDEX f32[] %5 %3
%7 = LOAD f32[] %6
%8 = PARAM f32[8] %1 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%9 = INDEX f32[] %8 %3
%10 = LOAD f32[] %9
%11 = CMPLT b1[] %7 %10
%12 = CONST f32[] (0.25, f32)
%13 = MUL f32[] %7 %12
%14 = ADD f32[] %7 %10
%15 = WHERE f32[] %11 %13 %14
%16 = STORE void[] %4 %15
%17 = END void[] %16 %3
%18 = SINK void[] %17 KernelInfo()
""",
)

CASES["simplify", "a divisor that is no power of two"] = (
    lambda s: simplify(s, TARGET),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%6 = INDEX f32[] %5 %3
%7 = LOAD f32[] %6
%8 = CONST f32[] (3.0, f32)
%9 = DIV f32[] %7 %8
%10 = STORE void[] %4 %9
%11 = END void[] %10 %3
%12 = SINK void[] %11 KernelInfo()
""",
    None,
)
