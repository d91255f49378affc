"""Cases of `apply` for sums of products: how what is packed lies in local memory, sums for matrix units.

The texts are graphs (`ir.text`), as in `cases_of_loops`.
"""

from typing import Any

from monolect.base.dtype import dtypes
from monolect.base.target import MatrixUnit
from tests.passes.cases_of_loops import act

# (pass, case): (what to run, before, after)
CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

PAIRS = MatrixUnit("pairs", 1, 4, 2, 2, dtypes.bfloat16, dtypes.bfloat16, dtypes.float32)
FOURS = MatrixUnit("fours", 1, 4, 4, 4, dtypes.uint8, dtypes.int8, dtypes.int32)

CASES["apply", "PACK of scalars: the rows of a tile side by side"] = (
    act(("SPLIT", 1, (4, "UPCAST", False)), ("SPLIT", 0, (2, "UPCAST", False)), ("PACK", 0, None)),
    """
%0 = CONST idx[] (128, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[128] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (16, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (8, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = CONST idx[] (96, idx)
%11 = STACK idx[1] %10
%12 = PARAM f32[96] %11 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
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
%0 = CONST idx[] (128, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[128] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (8, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (16, idx)
%6 = MUL idx[] %4 %5
%7 = CONST idx[] (2, idx)
%8 = RANGE idx[] %7 (1, "LOOP")
%9 = CONST idx[] (4, idx)
%10 = MUL idx[] %8 %9
%11 = ADD idx[] %6 %10
%12 = RANGE idx[] %7 (2, "UPCAST")
%13 = MUL idx[] %12 %3
%14 = ADD idx[] %11 %13
%15 = RANGE idx[] %9 (3, "UPCAST")
%16 = ADD idx[] %14 %15
%17 = INDEX f32[] %2 %16
%18 = CONST idx[] (112, idx)
%19 = STACK idx[1] %18
%20 = BUFFER f32[112] %19 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%21 = CONST idx[] (6, idx)
%22 = RANGE idx[] %21 (5, "LOOP")
%23 = MUL idx[] %22 %7
%24 = RANGE idx[] %3 (6, "LOOP")
%25 = CONST idx[] (12, idx)
%26 = MUL idx[] %24 %25
%27 = ADD idx[] %23 %26
%28 = RANGE idx[] %7 (7, "UPCAST")
%29 = ADD idx[] %27 %28
%30 = INDEX f32[] %20 %29
%31 = CONST idx[] (96, idx)
%32 = STACK idx[1] %31
%33 = PARAM f32[96] %32 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%34 = MUL idx[] %22 %5
%35 = MUL idx[] %24 %7
%36 = ADD idx[] %34 %35
%37 = ADD idx[] %36 %28
%38 = INDEX f32[] %33 %37
%39 = LOAD f32[] %38
%40 = STORE void[] %30 %39
%41 = END void[] %40 %22 %24 %28
%42 = AFTER f32[112] %20 %41
%43 = MUL idx[] %4 %25
%44 = ADD idx[] %43 %12
%45 = RANGE idx[] %21 (4, "REDUCE")
%46 = MUL idx[] %45 %7
%47 = ADD idx[] %44 %46
%48 = INDEX f32[] %42 %47
%49 = LOAD f32[] %48
%50 = CONST idx[] (48, idx)
%51 = STACK idx[1] %50
%52 = PARAM f32[48] %51 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%53 = ADD idx[] %10 %15
%54 = MUL idx[] %45 %3
%55 = ADD idx[] %53 %54
%56 = INDEX f32[] %52 %55
%57 = LOAD f32[] %56
%58 = MUL f32[] %49 %57
%59 = REDUCE f32[] %58 %45 ("ADD", ())
%60 = STORE void[] %17 %59
%61 = END void[] %60 %4 %8 %12 %15
%62 = SINK void[] %61 KernelInfo(name="sum_16x8_r6", actions=(("SPLIT", 1, (4, "UPCAST", False)), ("SPLIT", 0, (2, "UPCAST", False)), ("PACK", 0, None)), is_applied=True)
""",
)

CASES["apply", "TC: pairs of a sum in bfloat16"] = (
    act(("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "pairs"), units=(PAIRS,)),
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
%12 = PARAM bf16[24] %11 ParamArg(slot=1, dtype=bf16, addrspace="GLOBAL")
%13 = CONST idx[] (6, idx)
%14 = MUL idx[] %4 %13
%15 = RANGE idx[] %13 (1000, "REDUCE")
%16 = ADD idx[] %14 %15
%17 = INDEX bf16[] %12 %16
%18 = LOAD bf16[] %17
%19 = CAST f32[] %18 f32
%20 = CONST idx[] (48, idx)
%21 = STACK idx[1] %20
%22 = PARAM bf16[48] %21 ParamArg(slot=2, dtype=bf16, addrspace="GLOBAL")
%23 = MUL idx[] %15 %5
%24 = ADD idx[] %7 %23
%25 = INDEX bf16[] %22 %24
%26 = LOAD bf16[] %25
%27 = CAST f32[] %26 f32
%28 = MUL f32[] %19 %27
%29 = REDUCE f32[] %28 %15 ("ADD", ())
%30 = STORE void[] %9 %29
%31 = END void[] %30 %4 %7
%32 = SINK void[] %31 KernelInfo()
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
%14 = CONST idx[] (24, idx)
%15 = STACK idx[1] %14
%16 = PARAM bf16[24] %15 ParamArg(slot=1, dtype=bf16, addrspace="GLOBAL")
%17 = CONST idx[] (6, idx)
%18 = MUL idx[] %4 %17
%19 = CONST idx[] (3, idx)
%20 = RANGE idx[] %19 (3, "REDUCE")
%21 = MUL idx[] %20 %7
%22 = ADD idx[] %18 %21
%23 = RANGE idx[] %7 (4, "CONTRACT")
%24 = ADD idx[] %22 %23
%25 = INDEX bf16[] %16 %24
%26 = LOAD bf16[] %25
%27 = CAST f32[] %26 f32
%28 = CONST idx[] (48, idx)
%29 = STACK idx[1] %28
%30 = PARAM bf16[48] %29 ParamArg(slot=2, dtype=bf16, addrspace="GLOBAL")
%31 = ADD idx[] %9 %11
%32 = CONST idx[] (16, idx)
%33 = MUL idx[] %20 %32
%34 = ADD idx[] %31 %33
%35 = MUL idx[] %23 %5
%36 = ADD idx[] %34 %35
%37 = INDEX bf16[] %30 %36
%38 = LOAD bf16[] %37
%39 = CAST f32[] %38 f32
%40 = MUL f32[] %27 %39
%41 = REDUCE f32[] %40 %20 %23 ("ADD", ())
%42 = STORE void[] %13 %41
%43 = END void[] %42 %4 %8 %11
%44 = SINK void[] %43 KernelInfo(name="sum_4x8_r6", actions=(("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "pairs")), is_applied=True)
""",
)

CASES["apply", "TC: signed by signed bytes, of which one is made unsigned"] = (
    act(("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "fours"), units=(FOURS,)),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM i32[8] %1 ParamArg(slot=0, dtype=i32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX i32[] %2 %8
%10 = CONST idx[] (16, idx)
%11 = STACK idx[1] %10
%12 = PARAM i8[16] %11 ParamArg(slot=1, dtype=i8, addrspace="GLOBAL")
%13 = MUL idx[] %4 %0
%14 = RANGE idx[] %0 (1000, "REDUCE")
%15 = ADD idx[] %13 %14
%16 = INDEX i8[] %12 %15
%17 = LOAD i8[] %16
%18 = CAST i32[] %17 i32
%19 = CONST idx[] (32, idx)
%20 = STACK idx[1] %19
%21 = PARAM i8[32] %20 ParamArg(slot=2, dtype=i8, addrspace="GLOBAL")
%22 = MUL idx[] %14 %5
%23 = ADD idx[] %7 %22
%24 = INDEX i8[] %21 %23
%25 = LOAD i8[] %24
%26 = CAST i32[] %25 i32
%27 = MUL i32[] %18 %26
%28 = REDUCE i32[] %27 %14 ("ADD", ())
%29 = STORE void[] %9 %28
%30 = END void[] %29 %4 %7
%31 = SINK void[] %30 KernelInfo()
""",
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM i32[8] %1 ParamArg(slot=0, dtype=i32, addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (2, "UPCAST")
%8 = ADD idx[] %6 %7
%9 = INDEX i32[] %2 %8
%10 = CONST idx[] (32, idx)
%11 = STACK idx[1] %10
%12 = PARAM i8[32] %11 ParamArg(slot=2, dtype=i8, addrspace="GLOBAL")
%13 = RANGE idx[] %3 (3, "REDUCE")
%14 = CONST idx[] (16, idx)
%15 = MUL idx[] %13 %14
%16 = ADD idx[] %7 %15
%17 = RANGE idx[] %5 (4, "CONTRACT")
%18 = MUL idx[] %17 %5
%19 = ADD idx[] %16 %18
%20 = INDEX i8[] %12 %19
%21 = LOAD i8[] %20
%22 = CAST i32[] %21 i32
%23 = STACK idx[1] %14
%24 = PARAM i8[16] %23 ParamArg(slot=1, dtype=i8, addrspace="GLOBAL")
%25 = MUL idx[] %4 %0
%26 = MUL idx[] %13 %5
%27 = ADD idx[] %25 %26
%28 = ADD idx[] %27 %17
%29 = INDEX i8[] %24 %28
%30 = LOAD i8[] %29
%31 = BITCAST u8[] %30 u8
%32 = CONST u8[] (128, u8)
%33 = XOR u8[] %31 %32
%34 = CAST i32[] %33 i32
%35 = MUL i32[] %22 %34
%36 = REDUCE i32[] %35 %13 %17 ("ADD", ())
%37 = STACK idx[1] %5
%38 = BUFFER i32[4] %37 BufferArg(slot=0, dtype=i32, device=None, addrspace="LOCAL")
%39 = RANGE idx[] %5 (5, "UPCAST")
%40 = INDEX i32[] %38 %39
%41 = ADD idx[] %15 %18
%42 = ADD idx[] %41 %39
%43 = INDEX i8[] %12 %42
%44 = LOAD i8[] %43
%45 = CAST i32[] %44 i32
%46 = CONST i32[] (128, i32)
%47 = MUL i32[] %45 %46
%48 = REDUCE i32[] %47 %13 %17 ("ADD", ())
%49 = STORE void[] %40 %48
%50 = END void[] %49 %39
%51 = AFTER i32[4] %38 %50
%52 = INDEX i32[] %51 %7
%53 = LOAD i32[] %52
%54 = SUB i32[] %36 %53
%55 = STORE void[] %9 %54
%56 = END void[] %55 %4 %7
%57 = SINK void[] %56 KernelInfo(name="sum_2x4_r8", actions=(("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "fours")), is_applied=True)
""",
)
