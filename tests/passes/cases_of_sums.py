"""Cases of the passes around reductions and registers: choose, peel_last, fold_sums, demote_registers, matrix_units."""

from typing import Any

from monolect.lower.blocked_sums import fold_sums
from monolect.lower.demote import demote_registers
from monolect.lower.matrix_products import matrix_units
from monolect.lower.peel_last import peel_last
from monolect.optimize.apply import choose_actions
from tests.passes.cases_of_products import PAIRS
from tests.passes.conftest import target

TARGET = target()
WITH_UNITS = TARGET._replace(units=(PAIRS,))
CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["peel_last", "a last step that is masked"] = (
    peel_last,
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
%5 = CONST idx[] (5, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[5] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = CONST idx[] (2, idx)
%9 = RANGE idx[] %8 (0, "REDUCE")
%10 = MUL idx[] %9 %8
%11 = STACK idx[2] %3 %0
%12 = ADD idx[2] %10 %11
%13 = INDEX f32[2] %7 %12
%14 = LOAD f32[2] %13
%15 = REDUCE f32[2] %14 %9 ("MAX", ()) tag="peeled"
%16 = CONST idx[] (4, idx)
%17 = ADD idx[2] %11 %16
%18 = CMPLT b1[2] %17 %5
%19 = INDEX f32[2] %7 %17
%20 = CONST f32[] (0.0, f32)
%21 = LOAD f32[2] %19 %20 %18
%22 = CONST f32[] (-inf, f32)
%23 = WHERE f32[2] %18 %21 %22
%24 = MAX f32[2] %15 %23 tag="peeled"
%25 = REDUCE f32[1] %24 ("MAX", (0,))
%26 = STACK idx[0]
%27 = RESHAPE f32[] %25 %26
%28 = STORE void[] %4 %27
%29 = SINK void[] %28 KernelInfo()
""",
)

CASES["peel_last", "no condition"] = (
    peel_last,
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
    None,
)

CASES["fold_sums", "a long sum"] = (
    fold_sums,
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
%5 = CONST idx[] (521, idx)
%6 = STACK idx[1] %5
%7 = PARAM f32[521] %6 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%8 = CONST idx[] (5, idx)
%9 = RANGE idx[] %8 (0, "REDUCE")
%10 = CONST idx[] (128, idx)
%11 = MUL idx[] %9 %10
%12 = CONST idx[] (-521, idx)
%13 = ADD idx[] %11 %12
%14 = CONST idx[] (-128, idx)
%15 = MAX idx[] %13 %14
%16 = CONST idx[] (-1, idx)
%17 = MUL idx[] %15 %16
%18 = RANGE idx[] %17 (1, "REDUCE")
%19 = ADD idx[] %11 %18
%20 = INDEX f32[] %7 %19
%21 = LOAD f32[] %20
%22 = REDUCE f32[] %21 %18 ("ADD", ())
%23 = REDUCE f32[] %22 %9 ("ADD", ())
%24 = STORE void[] %4 %23
%25 = SINK void[] %24 KernelInfo()
""",
)

CASES["fold_sums", "a short sum"] = (
    fold_sums,
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
    None,
)

CASES["choose", "a sum"] = (
    lambda s: choose_actions(s, TARGET),
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
%3 = RANGE idx[] %0 (0, "LOOP")
%4 = INDEX f32[] %2 %3
%5 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%6 = INDEX f32[] %5 %3
%7 = LOAD f32[] %6
%8 = STORE void[] %4 %7
%9 = END void[] %8 %3
%10 = SINK void[] %9 KernelInfo(actions=(("SPLIT", 0, (8, "UPCAST", False)),))
""",
)

CASES["choose", "actions that are named"] = (
    lambda s: choose_actions(s, TARGET),
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
%10 = SINK void[] %9 KernelInfo(name="k", actions=(("SPLIT", 0, (2, "UPCAST", False)),))
""",
    None,
)

CASES["demote_registers", "whole"] = (
    lambda s: demote_registers(s, TARGET),
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
    None,
)

CASES["matrix_units", "pairs of a sum in bfloat16"] = (
    lambda s: matrix_units(s, WITH_UNITS),
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
%11 = CONST idx[] (0, idx)
%12 = CONST idx[] (1, idx)
%13 = CONST idx[] (3, idx)
%14 = STACK idx[4] %11 %12 %7 %13
%15 = ADD idx[4] %10 %14
%16 = INDEX f32[4] %2 %15
%17 = STACK idx[1] %3
%18 = BUFFER f32[4] %17 BufferArg(slot=0, dtype=f32, device=None, addrspace="REG")
%19 = CONST idx[] (24, idx)
%20 = STACK idx[1] %19
%21 = PARAM bf16[24] %20 ParamArg(slot=1, dtype=bf16, addrspace="GLOBAL")
%22 = CONST idx[] (6, idx)
%23 = MUL idx[] %4 %22
%24 = RANGE idx[] %13 (4, "REDUCE")
%25 = MUL idx[] %24 %7
%26 = ADD idx[] %23 %25
%27 = STACK idx[2] %11 %12
%28 = ADD idx[2] %26 %27
%29 = INDEX bf16[2] %21 %28
%30 = LOAD bf16[2] %29
%31 = CAST f32[2] %30 f32
%32 = CONST idx[] (48, idx)
%33 = STACK idx[1] %32
%34 = PARAM bf16[48] %33 ParamArg(slot=2, dtype=bf16, addrspace="GLOBAL")
%35 = CONST idx[] (16, idx)
%36 = MUL idx[] %24 %35
%37 = ADD idx[] %9 %36
%38 = MUL idx[2] %27 %5
%39 = ADD idx[2] %37 %38
%40 = STACK idx[2] %3 %12
%41 = RESHAPE idx[4,1] %14 %40
%42 = ADD idx[4,2] %39 %41
%43 = INDEX bf16[4,2] %34 %42
%44 = LOAD bf16[4,2] %43
%45 = CAST f32[4,2] %44 f32
%46 = MUL f32[4,2] %31 %45
%47 = REDUCE f32[4,1] %46 ("ADD", (1,))
%48 = RESHAPE f32[4] %47 %17
%49 = AFTER f32[4] %18 %4 %8
%50 = CONST f32[] (0.0, f32)
%51 = STORE void[] %49 %50
%52 = AFTER f32[4] %18 %51 %24
%53 = LOAD f32[4] %52
%54 = ADD f32[4] %48 %53
%55 = STORE void[] %18 %54
%56 = END void[] %55 %24
%57 = AFTER f32[4] %18 %56
%58 = LOAD f32[4] %57
%59 = STORE void[] %16 %58
%60 = END void[] %59 %4 %8
%61 = SINK void[] %60 KernelInfo(name="sum_4x8_r6", actions=(("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "pairs")), is_applied=True)
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
%11 = CONST idx[] (0, idx)
%12 = CONST idx[] (1, idx)
%13 = CONST idx[] (3, idx)
%14 = STACK idx[4] %11 %12 %7 %13
%15 = ADD idx[4] %10 %14
%16 = INDEX f32[4] %2 %15
%17 = STACK idx[1] %3
%18 = BUFFER f32[4] %17 BufferArg(slot=0, dtype=f32, device=None, addrspace="REG")
%19 = CONST idx[] (24, idx)
%20 = STACK idx[1] %19
%21 = PARAM bf16[24] %20 ParamArg(slot=1, dtype=bf16, addrspace="GLOBAL")
%22 = CONST idx[] (6, idx)
%23 = MUL idx[] %4 %22
%24 = RANGE idx[] %13 (4, "REDUCE")
%25 = MUL idx[] %24 %7
%26 = ADD idx[] %23 %25
%27 = STACK idx[2] %11 %12
%28 = ADD idx[2] %26 %27
%29 = INDEX bf16[2] %21 %28
%30 = LOAD bf16[2] %29
%31 = CONST idx[] (48, idx)
%32 = STACK idx[1] %31
%33 = PARAM bf16[48] %32 ParamArg(slot=2, dtype=bf16, addrspace="GLOBAL")
%34 = CONST idx[] (16, idx)
%35 = MUL idx[] %24 %34
%36 = ADD idx[] %9 %35
%37 = MUL idx[2] %27 %5
%38 = ADD idx[2] %36 %37
%39 = STACK idx[2] %3 %12
%40 = RESHAPE idx[4,1] %14 %39
%41 = ADD idx[4,2] %38 %40
%42 = INDEX bf16[4,2] %33 %41
%43 = LOAD bf16[4,2] %42
%44 = AFTER f32[4] %18 %4 %8
%45 = CONST f32[] (0.0, f32)
%46 = STORE void[] %44 %45
%47 = AFTER f32[4] %18 %46 %24
%48 = LOAD f32[4] %47
%49 = WMMA f32[4] %30 %43 %48 ("pairs", 1)
%50 = STORE void[] %18 %49
%51 = END void[] %50 %24
%52 = AFTER f32[4] %18 %51
%53 = LOAD f32[4] %52
%54 = STORE void[] %16 %53
%55 = END void[] %54 %4 %8
%56 = SINK void[] %55 KernelInfo(name="sum_4x8_r6", actions=(("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "pairs")), is_applied=True)
""",
)

CASES["matrix_units", "a target without units"] = (
    lambda s: matrix_units(s, TARGET),
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
%11 = CONST idx[] (0, idx)
%12 = CONST idx[] (1, idx)
%13 = CONST idx[] (3, idx)
%14 = STACK idx[4] %11 %12 %7 %13
%15 = ADD idx[4] %10 %14
%16 = INDEX f32[4] %2 %15
%17 = STACK idx[1] %3
%18 = BUFFER f32[4] %17 BufferArg(slot=0, dtype=f32, device=None, addrspace="REG")
%19 = CONST idx[] (24, idx)
%20 = STACK idx[1] %19
%21 = PARAM bf16[24] %20 ParamArg(slot=1, dtype=bf16, addrspace="GLOBAL")
%22 = CONST idx[] (6, idx)
%23 = MUL idx[] %4 %22
%24 = RANGE idx[] %13 (4, "REDUCE")
%25 = MUL idx[] %24 %7
%26 = ADD idx[] %23 %25
%27 = STACK idx[2] %11 %12
%28 = ADD idx[2] %26 %27
%29 = INDEX bf16[2] %21 %28
%30 = LOAD bf16[2] %29
%31 = CAST f32[2] %30 f32
%32 = CONST idx[] (48, idx)
%33 = STACK idx[1] %32
%34 = PARAM bf16[48] %33 ParamArg(slot=2, dtype=bf16, addrspace="GLOBAL")
%35 = CONST idx[] (16, idx)
%36 = MUL idx[] %24 %35
%37 = ADD idx[] %9 %36
%38 = MUL idx[2] %27 %5
%39 = ADD idx[2] %37 %38
%40 = STACK idx[2] %3 %12
%41 = RESHAPE idx[4,1] %14 %40
%42 = ADD idx[4,2] %39 %41
%43 = INDEX bf16[4,2] %34 %42
%44 = LOAD bf16[4,2] %43
%45 = CAST f32[4,2] %44 f32
%46 = MUL f32[4,2] %31 %45
%47 = REDUCE f32[4,1] %46 ("ADD", (1,))
%48 = RESHAPE f32[4] %47 %17
%49 = AFTER f32[4] %18 %4 %8
%50 = CONST f32[] (0.0, f32)
%51 = STORE void[] %49 %50
%52 = AFTER f32[4] %18 %51 %24
%53 = LOAD f32[4] %52
%54 = ADD f32[4] %48 %53
%55 = STORE void[] %18 %54
%56 = END void[] %55 %24
%57 = AFTER f32[4] %18 %56
%58 = LOAD f32[4] %57
%59 = STORE void[] %16 %58
%60 = END void[] %59 %4 %8
%61 = SINK void[] %60 KernelInfo(name="sum_4x8_r6", actions=(("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "pairs")), is_applied=True)
""",
    None,
)
