"""Cases of the passes that turn an arranged kernel into a program: expand, lower_reduce, linearize.

The texts are graphs (`ir.text`), so numbers and comments in them do not matter. `after` None: the pass changes nothing.
"""

from typing import Any

from monolect.lower.blocked_sums import fold_sums
from monolect.lower.expand import expand
from monolect.lower.linearize import linearize
from monolect.lower.peel_last import peel_last
from monolect.lower.reduce import lower_reduce
from tests.passes.conftest import target

TARGET = target()


# (pass, case): (what to run, before, after)
CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["expand", "an output range"] = (
    expand,
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
%13 = CONST f32[] (1.0, f32)
%14 = ADD f32[] %12 %13
%15 = STORE void[] %9 %14
%16 = END void[] %15 %4 %7
%17 = SINK void[] %16 KernelInfo()
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
%13 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%14 = INDEX f32[4] %13 %11
%15 = LOAD f32[4] %14
%16 = CONST f32[] (1.0, f32)
%17 = ADD f32[4] %15 %16
%18 = STORE void[] %12 %17
%19 = END void[] %18 %4
%20 = SINK void[] %19 KernelInfo()
""",
)

CASES["expand", "lanes of a reduction"] = (
    expand,
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
%9 = RANGE idx[] %8 (0, "REDUCE")
%10 = CONST idx[] (4, idx)
%11 = MUL idx[] %9 %10
%12 = RANGE idx[] %10 (1, "GROUP_REDUCE")
%13 = ADD idx[] %11 %12
%14 = INDEX f32[] %7 %13
%15 = LOAD f32[] %14
%16 = REDUCE f32[] %15 %9 %12 ("ADD", ())
%17 = STORE void[] %4 %16
%18 = SINK void[] %17 KernelInfo()
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
%9 = RANGE idx[] %8 (0, "REDUCE")
%10 = CONST idx[] (4, idx)
%11 = MUL idx[] %9 %10
%12 = CONST idx[] (3, idx)
%13 = STACK idx[4] %3 %0 %8 %12
%14 = ADD idx[4] %11 %13
%15 = INDEX f32[4] %7 %14
%16 = LOAD f32[4] %15
%17 = REDUCE f32[4] %16 %9 ("ADD", ())
%18 = REDUCE f32[1] %17 ("ADD", (0,))
%19 = STACK idx[0]
%20 = RESHAPE f32[] %18 %19
%21 = STORE void[] %4 %20
%22 = SINK void[] %21 KernelInfo()
""",
)

CASES["expand", "a load along the axis that is contiguous"] = (
    expand,
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (3, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (8, idx)
%6 = MUL idx[] %4 %5
%7 = CONST idx[] (2, idx)
%8 = RANGE idx[] %7 (1, "UPCAST")
%9 = CONST idx[] (4, idx)
%10 = MUL idx[] %8 %9
%11 = ADD idx[] %6 %10
%12 = RANGE idx[] %9 (2, "UPCAST")
%13 = ADD idx[] %11 %12
%14 = INDEX f32[] %2 %13
%15 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%16 = MUL idx[] %4 %7
%17 = ADD idx[] %16 %8
%18 = CONST idx[] (6, idx)
%19 = MUL idx[] %12 %18
%20 = ADD idx[] %17 %19
%21 = INDEX f32[] %15 %20
%22 = LOAD f32[] %21
%23 = STORE void[] %14 %22
%24 = END void[] %23 %4 %8 %12
%25 = SINK void[] %24 KernelInfo()
""",
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (3, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (8, idx)
%6 = MUL idx[] %4 %5
%7 = CONST idx[] (0, idx)
%8 = CONST idx[] (1, idx)
%9 = CONST idx[] (2, idx)
%10 = STACK idx[4] %7 %8 %9 %3
%11 = ADD idx[4] %6 %10
%12 = STACK idx[2] %7 %8
%13 = STACK idx[2] %9 %8
%14 = RESHAPE idx[2,1] %12 %13
%15 = CONST idx[] (4, idx)
%16 = MUL idx[2,1] %14 %15
%17 = ADD idx[2,4] %11 %16
%18 = INDEX f32[2,4] %2 %17
%19 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%20 = MUL idx[] %4 %9
%21 = ADD idx[2] %20 %12
%22 = STACK idx[2] %15 %8
%23 = RESHAPE idx[4,1] %10 %22
%24 = CONST idx[] (6, idx)
%25 = MUL idx[4,1] %23 %24
%26 = ADD idx[4,2] %21 %25
%27 = INDEX f32[4,2] %19 %26
%28 = LOAD f32[4,2] %27
%29 = PERMUTE f32[2,4] %28 (1, 0)
%30 = STORE void[] %18 %29
%31 = END void[] %30 %4
%32 = SINK void[] %31 KernelInfo()
""",
)

CASES["expand", "a gated store along the axis that is contiguous"] = (
    expand,
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (3, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (2, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "UPCAST")
%8 = ADD idx[] %6 %7
%9 = CONST idx[] (4, idx)
%10 = RANGE idx[] %9 (2, "UPCAST")
%11 = CONST idx[] (6, idx)
%12 = MUL idx[] %10 %11
%13 = ADD idx[] %8 %12
%14 = INDEX f32[] %2 %13
%15 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%16 = CONST idx[] (8, idx)
%17 = MUL idx[] %4 %16
%18 = MUL idx[] %7 %9
%19 = ADD idx[] %17 %18
%20 = ADD idx[] %19 %10
%21 = INDEX f32[] %15 %20
%22 = CONST f32[] (0.0, f32)
%23 = CONST idx[] (5, idx)
%24 = CMPLT b1[] %8 %23
%25 = LOAD f32[] %21 %22 %24
%26 = CONST f32[] (1.0, f32)
%27 = ADD f32[] %25 %26
%28 = STORE void[] %14 %27 %24
%29 = END void[] %28 %4 %7 %10
%30 = SINK void[] %29 KernelInfo()
""",
    """
%0 = CONST idx[] (24, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[24] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (3, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (2, idx)
%6 = MUL idx[] %4 %5
%7 = CONST idx[] (0, idx)
%8 = CONST idx[] (1, idx)
%9 = STACK idx[2] %7 %8
%10 = ADD idx[2] %6 %9
%11 = STACK idx[4] %7 %8 %5 %3
%12 = CONST idx[] (4, idx)
%13 = STACK idx[2] %12 %8
%14 = RESHAPE idx[4,1] %11 %13
%15 = CONST idx[] (6, idx)
%16 = MUL idx[4,1] %14 %15
%17 = ADD idx[4,2] %10 %16
%18 = INDEX f32[4,2] %2 %17
%19 = PARAM f32[24] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%20 = CONST idx[] (8, idx)
%21 = MUL idx[] %4 %20
%22 = ADD idx[4] %21 %11
%23 = STACK idx[2] %5 %8
%24 = RESHAPE idx[2,1] %9 %23
%25 = MUL idx[2,1] %24 %12
%26 = ADD idx[2,4] %22 %25
%27 = INDEX f32[2,4] %19 %26
%28 = CONST f32[] (0.0, f32)
%29 = ADD idx[2,1] %6 %24
%30 = CONST idx[] (5, idx)
%31 = CMPLT b1[2,1] %29 %30
%32 = LOAD f32[2,4] %27 %28 %31
%33 = CONST f32[] (1.0, f32)
%34 = ADD f32[2,4] %32 %33
%35 = PERMUTE f32[4,2] %34 (1, 0)
%36 = CMPLT b1[2] %10 %30
%37 = STORE void[] %18 %35 %36
%38 = END void[] %37 %4
%39 = SINK void[] %38 KernelInfo()
""",
)

CASES["lower_reduce", "a sum"] = (
    lower_reduce,
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (16, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[16] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = MUL idx[] %3 %0
%9 = RANGE idx[] %0 (1000, "REDUCE")
%10 = ADD idx[] %8 %9
%11 = INDEX f32[] %7 %10
%12 = LOAD f32[] %11
%13 = REDUCE f32[] %12 %9 ("ADD", ())
%14 = STORE void[] %4 %13
%15 = END void[] %14 %3
%16 = SINK void[] %15 KernelInfo()
""",
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = STACK idx[0]
%6 = BUFFER f32[] %5 BufferArg(slot=0, dtype=f32, device=None, addrspace="REG")
%7 = CONST idx[] (16, idx)
%8 = STACK idx[1] %7
%9 = PARAM f32[16] %8 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%10 = MUL idx[] %3 %0
%11 = RANGE idx[] %0 (1001, "REDUCE")
%12 = ADD idx[] %10 %11
%13 = INDEX f32[] %9 %12
%14 = LOAD f32[] %13
%15 = AFTER f32[] %6 %3
%16 = CONST f32[] (0.0, f32)
%17 = STORE void[] %15 %16
%18 = AFTER f32[] %6 %17 %11
%19 = LOAD f32[] %18
%20 = ADD f32[] %14 %19
%21 = STORE void[] %6 %20
%22 = END void[] %21 %11
%23 = AFTER f32[] %6 %22
%24 = LOAD f32[] %23
%25 = STORE void[] %4 %24
%26 = END void[] %25 %3
%27 = SINK void[] %26 KernelInfo()
""",
)

CASES["lower_reduce", "a long sum, part by part"] = (
    lambda s: lower_reduce(fold_sums(s)),
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (521, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[521] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = RANGE idx[] %5 (0, "REDUCE")
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
%5 = STACK idx[0]
%6 = BUFFER f32[] %5 BufferArg(slot=2, dtype=f32, device=None, addrspace="REG")
%7 = BUFFER f32[] %5 BufferArg(slot=1, dtype=f32, device=None, addrspace="REG")
%8 = CONST idx[] (521, idx)
%9 = STACK idx[1] %8
%10 = PARAM f32[521] %9 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = CONST idx[] (5, idx)
%12 = RANGE idx[] %11 (3, "REDUCE")
%13 = CONST idx[] (128, idx)
%14 = MUL idx[] %12 %13
%15 = CONST idx[] (-521, idx)
%16 = ADD idx[] %14 %15
%17 = CONST idx[] (-128, idx)
%18 = MAX idx[] %16 %17
%19 = CONST idx[] (-1, idx)
%20 = MUL idx[] %18 %19
%21 = RANGE idx[] %20 (4, "REDUCE")
%22 = ADD idx[] %14 %21
%23 = INDEX f32[] %10 %22
%24 = LOAD f32[] %23
%25 = AFTER f32[] %7 %12
%26 = CONST f32[] (0.0, f32)
%27 = STORE void[] %25 %26
%28 = AFTER f32[] %7 %27 %21
%29 = LOAD f32[] %28
%30 = ADD f32[] %24 %29
%31 = STORE void[] %7 %30
%32 = END void[] %31 %21
%33 = AFTER f32[] %7 %32
%34 = LOAD f32[] %33
%35 = STORE void[] %6 %26
%36 = AFTER f32[] %6 %35 %12
%37 = LOAD f32[] %36
%38 = ADD f32[] %34 %37
%39 = STORE void[] %6 %38
%40 = END void[] %39 %12
%41 = AFTER f32[] %6 %40
%42 = LOAD f32[] %41
%43 = STORE void[] %4 %42
%44 = SINK void[] %43 KernelInfo()
""",
)

CASES["lower_reduce", "a last step that is masked"] = (
    lambda s: lower_reduce(peel_last(s)),
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (3, idx)
%6 = RANGE idx[] %5 (0, "REDUCE")
%7 = CONST idx[] (2, idx)
%8 = MUL idx[] %6 %7
%9 = STACK idx[2] %3 %0
%10 = ADD idx[2] %8 %9
%11 = CONST idx[] (5, idx)
%12 = CMPLT b1[2] %10 %11
%13 = STACK idx[1] %11
%14 = PARAM f32[5] %13 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%15 = INDEX f32[2] %14 %10
%16 = CONST f32[] (0.0, f32)
%17 = LOAD f32[2] %15 %16 %12
%18 = CONST f32[] (-inf, f32)
%19 = WHERE f32[2] %12 %17 %18
%20 = REDUCE f32[2] %19 %6 ("MAX", ())
%21 = REDUCE f32[1] %20 ("MAX", (0,))
%22 = STACK idx[0]
%23 = RESHAPE f32[] %21 %22
%24 = STORE void[] %4 %23
%25 = SINK void[] %24 KernelInfo()
""",
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (2, idx)
%6 = STACK idx[1] %5
%7 = BUFFER f32[2] %6 BufferArg(slot=0, dtype=f32, device=None, addrspace="REG")
%8 = CONST idx[] (5, idx)
%9 = STACK idx[1] %8
%10 = PARAM f32[5] %9 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = RANGE idx[] %5 (1, "REDUCE")
%12 = MUL idx[] %11 %5
%13 = STACK idx[2] %3 %0
%14 = ADD idx[2] %12 %13
%15 = INDEX f32[2] %10 %14
%16 = LOAD f32[2] %15
%17 = CONST idx[] (4, idx)
%18 = ADD idx[2] %13 %17
%19 = CMPLT b1[2] %18 %8
%20 = INDEX f32[2] %10 %18
%21 = CONST f32[] (0.0, f32)
%22 = LOAD f32[2] %20 %21 %19
%23 = CONST f32[] (-inf, f32)
%24 = WHERE f32[2] %19 %22 %23
%25 = STORE void[] %7 %24
%26 = AFTER f32[2] %7 %25 %11
%27 = LOAD f32[2] %26
%28 = MAX f32[2] %16 %27
%29 = STORE void[] %7 %28
%30 = END void[] %29 %11
%31 = AFTER f32[2] %7 %30
%32 = LOAD f32[2] %31
%33 = REDUCE f32[1] %32 ("MAX", (0,))
%34 = STACK idx[0]
%35 = RESHAPE f32[] %33 %34
%36 = STORE void[] %4 %35
%37 = SINK void[] %36 KernelInfo()
""",
)

CASES["lower_reduce", "two that share a loop"] = (
    lower_reduce,
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (4, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[4] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = RANGE idx[] %5 (1000, "REDUCE")
%9 = INDEX f32[] %7 %8
%10 = LOAD f32[] %9
%11 = REDUCE f32[] %10 %8 ("ADD", ())
%12 = STORE void[] %4 %11
%13 = PARAM f32[1] %1 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%14 = INDEX f32[] %13 %3
%15 = REDUCE f32[] %10 %8 ("MAX", ())
%16 = STORE void[] %14 %15
%17 = SINK void[] %12 %16 KernelInfo()
""",
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = STACK idx[0]
%6 = BUFFER f32[] %5 BufferArg(slot=0, dtype=f32, device=None, addrspace="REG")
%7 = CONST idx[] (4, idx)
%8 = STACK idx[1] %7
%9 = PARAM f32[4] %8 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%10 = RANGE idx[] %7 (1001, "REDUCE")
%11 = INDEX f32[] %9 %10
%12 = LOAD f32[] %11
%13 = CONST f32[] (0.0, f32)
%14 = STORE void[] %6 %13
%15 = AFTER f32[] %6 %14 %10
%16 = LOAD f32[] %15
%17 = ADD f32[] %12 %16
%18 = STORE void[] %6 %17
%19 = END void[] %18 %10
%20 = AFTER f32[] %6 %19
%21 = LOAD f32[] %20
%22 = STORE void[] %4 %21
%23 = PARAM f32[1] %1 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%24 = INDEX f32[] %23 %3
%25 = BUFFER f32[] %5 BufferArg(slot=1, dtype=f32, device=None, addrspace="REG")
%26 = CONST f32[] (-inf, f32)
%27 = STORE void[] %25 %26
%28 = AFTER f32[] %25 %27 %10
%29 = LOAD f32[] %28
%30 = MAX f32[] %12 %29
%31 = STORE void[] %25 %30
%32 = END void[] %31 %10
%33 = AFTER f32[] %25 %32
%34 = LOAD f32[] %33
%35 = STORE void[] %24 %34
%36 = SINK void[] %22 %35 KernelInfo()
""",
)

CASES["lower_reduce", "one that needs the other"] = (
    lower_reduce,
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (4, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[4] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = RANGE idx[] %5 (1000, "REDUCE")
%9 = INDEX f32[] %7 %8
%10 = LOAD f32[] %9
%11 = REDUCE f32[] %10 %8 ("MAX", ())
%12 = ADD f32[] %10 %11
%13 = REDUCE f32[] %12 %8 ("ADD", ())
%14 = STORE void[] %4 %13
%15 = SINK void[] %14 KernelInfo()
""",
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = STACK idx[0]
%6 = BUFFER f32[] %5 BufferArg(slot=1, dtype=f32, device=None, addrspace="REG")
%7 = BUFFER f32[] %5 BufferArg(slot=0, dtype=f32, device=None, addrspace="REG")
%8 = CONST idx[] (4, idx)
%9 = STACK idx[1] %8
%10 = PARAM f32[4] %9 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = RANGE idx[] %8 (1001, "REDUCE")
%12 = INDEX f32[] %10 %11
%13 = LOAD f32[] %12
%14 = CONST f32[] (-inf, f32)
%15 = STORE void[] %7 %14
%16 = AFTER f32[] %7 %15 %11
%17 = LOAD f32[] %16
%18 = MAX f32[] %13 %17
%19 = STORE void[] %7 %18
%20 = END void[] %19 %11
%21 = AFTER f32[] %7 %20
%22 = LOAD f32[] %21
%23 = RANGE idx[] %8 (1002, "REDUCE")
%24 = INDEX f32[] %10 %23
%25 = LOAD f32[] %24
%26 = ADD f32[] %22 %25
%27 = CONST f32[] (0.0, f32)
%28 = STORE void[] %6 %27
%29 = AFTER f32[] %6 %28 %23
%30 = LOAD f32[] %29
%31 = ADD f32[] %26 %30
%32 = STORE void[] %6 %31
%33 = END void[] %32 %23
%34 = AFTER f32[] %6 %33
%35 = LOAD f32[] %34
%36 = STORE void[] %4 %35
%37 = SINK void[] %36 KernelInfo()
""",
)

CASES["lower_reduce", "an unrolled step"] = (
    lower_reduce,
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = CONST idx[] (4, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[4] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = CONST idx[] (2, idx)
%9 = RANGE idx[] %8 (0, "REDUCE")
%10 = MUL idx[] %9 %8
%11 = RANGE idx[] %8 (1, "UNROLL")
%12 = ADD idx[] %10 %11
%13 = INDEX f32[] %7 %12
%14 = LOAD f32[] %13
%15 = REDUCE f32[] %14 %9 %11 ("ADD", ())
%16 = STORE void[] %4 %15
%17 = SINK void[] %16 KernelInfo()
""",
    """
%0 = CONST idx[] (1, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (0, idx)
%4 = INDEX f32[] %2 %3
%5 = STACK idx[0]
%6 = BUFFER f32[] %5 BufferArg(slot=0, dtype=f32, device=None, addrspace="REG")
%7 = CONST idx[] (4, idx)
%8 = STACK idx[1] %7
%9 = PARAM f32[4] %8 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%10 = CONST idx[] (2, idx)
%11 = RANGE idx[] %10 (2, "REDUCE")
%12 = MUL idx[] %11 %10
%13 = ADD idx[] %12 %0
%14 = INDEX f32[] %9 %13
%15 = LOAD f32[] %14
%16 = INDEX f32[] %9 %12
%17 = LOAD f32[] %16
%18 = CONST f32[] (0.0, f32)
%19 = STORE void[] %6 %18
%20 = AFTER f32[] %6 %19 %11
%21 = LOAD f32[] %20
%22 = ADD f32[] %17 %21
%23 = ADD f32[] %15 %22
%24 = STORE void[] %6 %23
%25 = END void[] %24 %11
%26 = AFTER f32[] %6 %25
%27 = LOAD f32[] %26
%28 = STORE void[] %4 %27
%29 = SINK void[] %28 KernelInfo()
""",
)

CASES["linearize", "a nest"] = (
    linearize,
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
%10 = STACK idx[1] %3
%11 = PARAM f32[4] %10 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%12 = INDEX f32[] %11 %4
%13 = LOAD f32[] %12
%14 = STORE void[] %9 %13
%15 = END void[] %14 %4 %7
%16 = SINK void[] %15 KernelInfo()
""",
    """
%0 = CONST idx[] (12, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[12] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (4, idx)
%4 = CONST idx[] (3, idx)
%5 = STACK idx[1] %3
%6 = PARAM f32[4] %5 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%7 = RANGE idx[] %3 (0, "LOOP")
%8 = MUL idx[] %7 %4
%9 = INDEX f32[] %6 %7
%10 = LOAD f32[] %9
%11 = RANGE idx[] %4 (1, "LOOP")
%12 = ADD idx[] %8 %11
%13 = INDEX f32[] %2 %12
%14 = STORE void[] %13 %10
%15 = END void[] %14 %11
%16 = END void[] %15 %7
%17 = LINEAR void[] %0 %1 %2 %3 %4 %5 %6 %7 %8 %9 %10 %11 %12 %13 %14 %15 %16 KernelInfo()
""",
)

CASES["linearize", "an accumulator"] = (
    linearize,
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = STACK idx[0]
%6 = BUFFER f32[] %5 BufferArg(slot=0, dtype=f32, device=None, addrspace="REG")
%7 = CONST idx[] (16, idx)
%8 = STACK idx[1] %7
%9 = PARAM f32[16] %8 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%10 = MUL idx[] %3 %0
%11 = RANGE idx[] %0 (1001, "REDUCE")
%12 = ADD idx[] %10 %11
%13 = INDEX f32[] %9 %12
%14 = LOAD f32[] %13
%15 = AFTER f32[] %6 %3
%16 = CONST f32[] (0.0, f32)
%17 = STORE void[] %15 %16
%18 = AFTER f32[] %6 %17 %11
%19 = LOAD f32[] %18
%20 = ADD f32[] %14 %19
%21 = STORE void[] %6 %20
%22 = END void[] %21 %11
%23 = AFTER f32[] %6 %22
%24 = LOAD f32[] %23
%25 = STORE void[] %4 %24
%26 = END void[] %25 %3
%27 = SINK void[] %26 KernelInfo()
""",
    """
%0 = CONST idx[] (4, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[4] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST f32[] (0.0, f32)
%4 = CONST idx[] (16, idx)
%5 = STACK idx[1] %4
%6 = PARAM f32[16] %5 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%7 = STACK idx[0]
%8 = BUFFER f32[] %7 BufferArg(slot=0, dtype=f32, device=None, addrspace="REG")
%9 = RANGE idx[] %0 (0, "LOOP")
%10 = INDEX f32[] %2 %9
%11 = MUL idx[] %9 %0
%12 = AFTER f32[] %8 %9
%13 = STORE void[] %12 %3
%14 = RANGE idx[] %0 (1001, "REDUCE")
%15 = ADD idx[] %11 %14
%16 = INDEX f32[] %6 %15
%17 = LOAD f32[] %16
%18 = AFTER f32[] %8 %13 %14
%19 = LOAD f32[] %18
%20 = ADD f32[] %17 %19
%21 = STORE void[] %8 %20
%22 = END void[] %21 %14
%23 = AFTER f32[] %8 %22
%24 = LOAD f32[] %23
%25 = STORE void[] %10 %24
%26 = END void[] %25 %9
%27 = LINEAR void[] %0 %1 %2 %3 %4 %5 %6 %7 %8 %9 %10 %11 %12 %13 %14 %15 %16 %17 %18 %19 %20 %21 %22 %23 %24 %25 %26 KernelInfo()
""",
)
