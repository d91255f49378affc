"""Cases of copies that are made a step ahead of their use, and of what the lanes of a warp hold: ahead, device_axes.

The texts are graphs (`ir.text`), so numbers and comments in them do not matter.
"""

from typing import Any

from monolect.base.matrix_units import BY_NAME
from monolect.ir.uop import toposort
from monolect.lower.gpu.device_axes import device_axes
from monolect.lower.gpu.fragments import fragments
from monolect.lower.software_pipeline import ahead
from tests.passes.conftest import target

TURNS = target(workgroups=True, max_local=256, local_bytes=1024, branches=True)
WARP = TURNS._replace(units=(BY_NAME["mma_m16n8k8_f16"],), warp=32)

# (pass, case): (what to run, before, after)
CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["ahead", "one block of two, of a sum in steps"] = (
    ahead,
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = SPECIAL idx[] %3 "gidx0"
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = SPECIAL idx[] %5 "lidx0"
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = STACK idx[0]
%11 = BUFFER f32[] %10 BufferArg(slot=1, dtype=f32, device=None, addrspace="REG")
%12 = CONST idx[] (12, idx)
%13 = STACK idx[1] %12
%14 = PARAM f32[12] %13 ParamArg(slot=1, dtype=f32, device="cpu", addrspace="GLOBAL")
%15 = CONST idx[] (3, idx)
%16 = RANGE idx[] %15 (6, "REDUCE")
%17 = MUL idx[] %16 %3
%18 = RANGE idx[] %3 (7, "REDUCE")
%19 = ADD idx[] %17 %18
%20 = CONST idx[] (6, idx)
%21 = MUL idx[] %4 %20
%22 = ADD idx[] %19 %21
%23 = INDEX f32[] %14 %22
%24 = LOAD f32[] %23
%25 = CONST idx[] (16, idx)
%26 = STACK idx[1] %25
%27 = BUFFER f32[16] %26 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%28 = CONST idx[] (-1, idx)
%29 = MUL idx[] %7 %28
%30 = MAX idx[] %29 %28
%31 = CONST idx[] (-4, idx)
%32 = MUL idx[] %30 %31
%33 = MOD idx[] %16 %3
%34 = MUL idx[] %33 %0
%35 = ADD idx[] %32 %34
%36 = CONST idx[] (0, idx)
%37 = CONST idx[] (1, idx)
%38 = STACK idx[4] %36 %37 %3 %15
%39 = ADD idx[4] %35 %38
%40 = INDEX f32[4] %27 %39
%41 = CONST idx[] (24, idx)
%42 = STACK idx[1] %41
%43 = PARAM f32[24] %42 ParamArg(slot=2, dtype=f32, device="cpu", addrspace="GLOBAL")
%44 = MUL idx[] %16 %0
%45 = ADD idx[] %44 %32
%46 = ADD idx[4] %45 %38
%47 = INDEX f32[4] %43 %46
%48 = LOAD f32[4] %47 LoadArg(pipelined="registers")
%49 = STORE void[] %40 %48
%50 = BARRIER void[] %49
%51 = AFTER f32[16] %27 %50
%52 = MUL idx[] %18 %5
%53 = ADD idx[] %52 %7
%54 = ADD idx[] %53 %34
%55 = INDEX f32[] %51 %54
%56 = LOAD f32[] %55
%57 = MUL f32[] %24 %56
%58 = CONST f32[] (0.0, f32)
%59 = STORE void[] %11 %58
%60 = AFTER f32[] %11 %59 %16 %18
%61 = LOAD f32[] %60
%62 = ADD f32[] %57 %61
%63 = STORE void[] %11 %62
%64 = END void[] %63 %16 %18
%65 = AFTER f32[] %11 %64
%66 = LOAD f32[] %65
%67 = STORE void[] %9 %66
%68 = SINK void[] %67 KernelInfo(name="sum_2x4_r6", actions=(("SPLIT", 2, (3, "REDUCE", True)), ("SPLIT", 1, (4, "LOCAL", False)), ("SPLIT", 0, (2, "GLOBAL", True)), ("PACK", 1, 2)), is_applied=True)
""",
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = SPECIAL idx[] %3 "gidx0"
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = SPECIAL idx[] %5 "lidx0"
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = STACK idx[0]
%11 = BUFFER f32[] %10 BufferArg(slot=1, dtype=f32, device=None, addrspace="REG")
%12 = CONST f32[] (0.0, f32)
%13 = STORE void[] %11 %12
%14 = CONST idx[] (3, idx)
%15 = RANGE idx[] %14 (6, "REDUCE")
%16 = RANGE idx[] %3 (7, "REDUCE")
%17 = AFTER f32[] %11 %13 %15 %16
%18 = LOAD f32[] %17
%19 = CONST idx[] (12, idx)
%20 = STACK idx[1] %19
%21 = PARAM f32[12] %20 ParamArg(slot=1, dtype=f32, device="cpu", addrspace="GLOBAL")
%22 = MUL idx[] %15 %3
%23 = ADD idx[] %22 %16
%24 = CONST idx[] (6, idx)
%25 = MUL idx[] %4 %24
%26 = ADD idx[] %23 %25
%27 = INDEX f32[] %21 %26
%28 = LOAD f32[] %27
%29 = CONST idx[] (16, idx)
%30 = STACK idx[1] %29
%31 = BUFFER f32[16] %30 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%32 = CONST idx[] (-1, idx)
%33 = MUL idx[] %7 %32
%34 = MAX idx[] %33 %32
%35 = CONST idx[] (-4, idx)
%36 = MUL idx[] %34 %35
%37 = MOD idx[] %15 %3
%38 = MUL idx[] %37 %0
%39 = ADD idx[] %36 %38
%40 = CONST idx[] (0, idx)
%41 = CONST idx[] (1, idx)
%42 = STACK idx[4] %40 %41 %3 %14
%43 = ADD idx[4] %39 %42
%44 = INDEX f32[4] %31 %43
%45 = STACK idx[1] %5
%46 = BUFFER f32[4] %45 BufferArg(slot=2, dtype=f32, device=None, addrspace="REG")
%47 = CONST idx[] (24, idx)
%48 = STACK idx[1] %47
%49 = PARAM f32[24] %48 ParamArg(slot=2, dtype=f32, device="cpu", addrspace="GLOBAL")
%50 = ADD idx[4] %36 %42
%51 = INDEX f32[4] %49 %50
%52 = LOAD f32[4] %51
%53 = STORE void[] %46 %52
%54 = AFTER f32[4] %46 %53 %15
%55 = LOAD f32[4] %54
%56 = STORE void[] %44 %55
%57 = BARRIER void[] %56
%58 = AFTER f32[4] %46 %57
%59 = MUL idx[] %15 %32
%60 = ADD idx[] %59 %32
%61 = CONST idx[] (-2, idx)
%62 = MAX idx[] %60 %61
%63 = CONST idx[] (-8, idx)
%64 = MUL idx[] %62 %63
%65 = ADD idx[] %36 %64
%66 = ADD idx[4] %65 %42
%67 = INDEX f32[4] %49 %66
%68 = LOAD f32[4] %67
%69 = STORE void[] %58 %68
%70 = AFTER f32[16] %31 %57 %69
%71 = MUL idx[] %16 %5
%72 = ADD idx[] %71 %7
%73 = ADD idx[] %72 %38
%74 = INDEX f32[] %70 %73
%75 = LOAD f32[] %74
%76 = MUL f32[] %28 %75
%77 = ADD f32[] %18 %76
%78 = STORE void[] %11 %77
%79 = END void[] %78 %15 %16
%80 = AFTER f32[] %11 %79
%81 = LOAD f32[] %80
%82 = STORE void[] %9 %81
%83 = SINK void[] %82 KernelInfo(name="sum_2x4_r6", actions=(("SPLIT", 2, (3, "REDUCE", True)), ("SPLIT", 1, (4, "LOCAL", False)), ("SPLIT", 0, (2, "GLOBAL", True)), ("PACK", 1, 2)), is_applied=True)
""",
)

CASES["ahead", "a copy that needs no registers goes to the other block at once"] = (
    ahead,
    CASES["ahead", "one block of two, of a sum in steps"][1].replace('"registers"', '"async"'),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = SPECIAL idx[] %3 "gidx0"
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = SPECIAL idx[] %5 "lidx0"
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = STACK idx[0]
%11 = BUFFER f32[] %10 BufferArg(slot=1, dtype=f32, device=None, addrspace="REG")
%12 = CONST f32[] (0.0, f32)
%13 = STORE void[] %11 %12
%14 = CONST idx[] (3, idx)
%15 = RANGE idx[] %14 (6, "REDUCE")
%16 = RANGE idx[] %3 (7, "REDUCE")
%17 = AFTER f32[] %11 %13 %15 %16
%18 = LOAD f32[] %17
%19 = CONST idx[] (12, idx)
%20 = STACK idx[1] %19
%21 = PARAM f32[12] %20 ParamArg(slot=1, dtype=f32, device="cpu", addrspace="GLOBAL")
%22 = MUL idx[] %15 %3
%23 = ADD idx[] %22 %16
%24 = CONST idx[] (6, idx)
%25 = MUL idx[] %4 %24
%26 = ADD idx[] %23 %25
%27 = INDEX f32[] %21 %26
%28 = LOAD f32[] %27
%29 = CONST idx[] (16, idx)
%30 = STACK idx[1] %29
%31 = BUFFER f32[16] %30 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%32 = CONST idx[] (-1, idx)
%33 = MUL idx[] %7 %32
%34 = MAX idx[] %33 %32
%35 = CONST idx[] (-4, idx)
%36 = MUL idx[] %34 %35
%37 = CONST idx[] (0, idx)
%38 = CONST idx[] (1, idx)
%39 = STACK idx[4] %37 %38 %3 %14
%40 = ADD idx[4] %36 %39
%41 = INDEX f32[4] %31 %40
%42 = CONST idx[] (24, idx)
%43 = STACK idx[1] %42
%44 = PARAM f32[24] %43 ParamArg(slot=2, dtype=f32, device="cpu", addrspace="GLOBAL")
%45 = INDEX f32[4] %44 %40
%46 = LOAD f32[4] %45 LoadArg(pipelined="async")
%47 = STORE void[] %41 %46
%48 = BARRIER void[] %47 %15
%49 = AFTER f32[16] %31 %48
%50 = ADD idx[] %15 %38
%51 = MOD idx[] %50 %3
%52 = MUL idx[] %51 %0
%53 = ADD idx[] %36 %52
%54 = ADD idx[4] %53 %39
%55 = INDEX f32[4] %49 %54
%56 = MUL idx[] %15 %32
%57 = ADD idx[] %56 %32
%58 = CONST idx[] (-2, idx)
%59 = MAX idx[] %57 %58
%60 = CONST idx[] (-8, idx)
%61 = MUL idx[] %59 %60
%62 = ADD idx[] %36 %61
%63 = ADD idx[4] %62 %39
%64 = INDEX f32[4] %44 %63
%65 = LOAD f32[4] %64 LoadArg(pipelined="async")
%66 = STORE void[] %55 %65
%67 = AFTER f32[16] %31 %48 %66
%68 = MUL idx[] %16 %5
%69 = ADD idx[] %68 %7
%70 = MOD idx[] %15 %3
%71 = MUL idx[] %70 %0
%72 = ADD idx[] %69 %71
%73 = INDEX f32[] %67 %72
%74 = LOAD f32[] %73
%75 = MUL f32[] %28 %74
%76 = ADD f32[] %18 %75
%77 = STORE void[] %11 %76
%78 = END void[] %77 %15 %16
%79 = AFTER f32[] %11 %78
%80 = LOAD f32[] %79
%81 = STORE void[] %9 %80
%82 = SINK void[] %81 KernelInfo(name="sum_2x4_r6", actions=(("SPLIT", 2, (3, "REDUCE", True)), ("SPLIT", 1, (4, "LOCAL", False)), ("SPLIT", 0, (2, "GLOBAL", True)), ("PACK", 1, 2)), is_applied=True)
""",
)

CASES["ahead", "steps that are padded: the gate is that of the next step"] = (
    ahead,
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = SPECIAL idx[] %3 "gidx0"
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = SPECIAL idx[] %3 "lidx0"
%8 = MUL idx[] %7 %3
%9 = ADD idx[] %6 %8
%10 = CONST idx[] (0, idx)
%11 = CONST idx[] (1, idx)
%12 = STACK idx[2] %10 %11
%13 = ADD idx[2] %9 %12
%14 = INDEX f32[2] %2 %13
%15 = STACK idx[1] %3
%16 = BUFFER f32[2] %15 BufferArg(slot=1, dtype=f32, device=None, addrspace="REG")
%17 = RANGE idx[] %3 (7, "REDUCE")
%18 = MUL idx[] %17 %5
%19 = RANGE idx[] %5 (8, "REDUCE")
%20 = ADD idx[] %18 %19
%21 = CONST idx[] (6, idx)
%22 = CMPLT b1[] %20 %21
%23 = CONST idx[] (12, idx)
%24 = STACK idx[1] %23
%25 = PARAM f32[12] %24 ParamArg(slot=1, dtype=f32, device="cpu", addrspace="GLOBAL")
%26 = MUL idx[] %4 %21
%27 = ADD idx[] %20 %26
%28 = INDEX f32[] %25 %27
%29 = CONST f32[] (0.0, f32)
%30 = LOAD f32[] %28 %29 %22
%31 = CONST idx[] (32, idx)
%32 = STACK idx[1] %31
%33 = BUFFER f32[32] %32 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%34 = CONST idx[] (16, idx)
%35 = MUL idx[] %17 %34
%36 = ADD idx[] %35 %7
%37 = CONST idx[] (3, idx)
%38 = CONST idx[] (5, idx)
%39 = CONST idx[] (7, idx)
%40 = STACK idx[8] %10 %11 %3 %37 %5 %38 %21 %39
%41 = MUL idx[8] %40 %3
%42 = ADD idx[8] %36 %41
%43 = INDEX f32[8] %33 %42
%44 = CONST idx[] (24, idx)
%45 = STACK idx[1] %44
%46 = PARAM f32[24] %45 ParamArg(slot=2, dtype=f32, device="cpu", addrspace="GLOBAL")
%47 = INDEX f32[8] %46 %42
%48 = IDIV idx[8] %40 %3
%49 = ADD idx[8] %18 %48
%50 = CMPLT b1[8] %49 %21
%51 = LOAD f32[8] %47 %29 %50 LoadArg(pipelined="registers")
%52 = STORE void[] %43 %51
%53 = BARRIER void[] %52
%54 = AFTER f32[32] %33 %53
%55 = MUL idx[] %19 %5
%56 = ADD idx[] %35 %55
%57 = ADD idx[] %56 %8
%58 = ADD idx[2] %57 %12
%59 = INDEX f32[2] %54 %58
%60 = LOAD f32[2] %59
%61 = MUL f32[2] %30 %60
%62 = WHERE f32[2] %22 %61 %29
%63 = STORE void[] %16 %29
%64 = AFTER f32[2] %16 %63 %17 %19
%65 = LOAD f32[2] %64
%66 = ADD f32[2] %62 %65
%67 = STORE void[] %16 %66
%68 = END void[] %67 %17 %19
%69 = AFTER f32[2] %16 %68
%70 = LOAD f32[2] %69
%71 = STORE void[] %14 %70
%72 = SINK void[] %71 KernelInfo(name="sum_2x4_r6", actions=(("PADTO", 2, 4), ("SPLIT", 2, (2, "REDUCE", True)), ("SPLIT", 1, (2, "UPCAST", False)), ("SPLIT", 1, (2, "LOCAL", False)), ("SPLIT", 0, (2, "GLOBAL", True)), ("PACK", 1, 2)), is_applied=True)
""",
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = SPECIAL idx[] %3 "gidx0"
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = SPECIAL idx[] %3 "lidx0"
%8 = MUL idx[] %7 %3
%9 = ADD idx[] %6 %8
%10 = CONST idx[] (0, idx)
%11 = CONST idx[] (1, idx)
%12 = STACK idx[2] %10 %11
%13 = ADD idx[2] %9 %12
%14 = INDEX f32[2] %2 %13
%15 = STACK idx[1] %3
%16 = BUFFER f32[2] %15 BufferArg(slot=1, dtype=f32, device=None, addrspace="REG")
%17 = CONST f32[] (0.0, f32)
%18 = STORE void[] %16 %17
%19 = RANGE idx[] %3 (7, "REDUCE")
%20 = RANGE idx[] %5 (8, "REDUCE")
%21 = AFTER f32[2] %16 %18 %19 %20
%22 = LOAD f32[2] %21
%23 = MUL idx[] %19 %5
%24 = ADD idx[] %23 %20
%25 = CONST idx[] (6, idx)
%26 = CMPLT b1[] %24 %25
%27 = CONST idx[] (12, idx)
%28 = STACK idx[1] %27
%29 = PARAM f32[12] %28 ParamArg(slot=1, dtype=f32, device="cpu", addrspace="GLOBAL")
%30 = MUL idx[] %4 %25
%31 = ADD idx[] %24 %30
%32 = INDEX f32[] %29 %31
%33 = LOAD f32[] %32 %17 %26
%34 = CONST idx[] (32, idx)
%35 = STACK idx[1] %34
%36 = BUFFER f32[32] %35 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%37 = CONST idx[] (16, idx)
%38 = MUL idx[] %19 %37
%39 = ADD idx[] %38 %7
%40 = CONST idx[] (3, idx)
%41 = CONST idx[] (5, idx)
%42 = CONST idx[] (7, idx)
%43 = STACK idx[8] %10 %11 %3 %40 %5 %41 %25 %42
%44 = MUL idx[8] %43 %3
%45 = ADD idx[8] %39 %44
%46 = INDEX f32[8] %36 %45
%47 = BUFFER f32[8] %1 BufferArg(slot=2, dtype=f32, device=None, addrspace="REG")
%48 = CONST idx[] (24, idx)
%49 = STACK idx[1] %48
%50 = PARAM f32[24] %49 ParamArg(slot=2, dtype=f32, device="cpu", addrspace="GLOBAL")
%51 = ADD idx[8] %7 %44
%52 = INDEX f32[8] %50 %51
%53 = LOAD f32[8] %52
%54 = STORE void[] %47 %53
%55 = AFTER f32[8] %47 %54 %19
%56 = LOAD f32[8] %55
%57 = STORE void[] %46 %56
%58 = BARRIER void[] %57
%59 = AFTER f32[8] %47 %58
%60 = ADD idx[8] %51 %37
%61 = INDEX f32[8] %50 %60
%62 = IDIV idx[8] %43 %3
%63 = ADD idx[8] %62 %5
%64 = CMPLT b1[8] %63 %25
%65 = LOAD f32[8] %61 %17 %64
%66 = STORE void[] %59 %65
%67 = AFTER f32[32] %36 %58 %66
%68 = MUL idx[] %20 %5
%69 = ADD idx[] %38 %68
%70 = ADD idx[] %69 %8
%71 = ADD idx[2] %70 %12
%72 = INDEX f32[2] %67 %71
%73 = LOAD f32[2] %72
%74 = MUL f32[2] %33 %73
%75 = WHERE f32[2] %26 %74 %17
%76 = ADD f32[2] %22 %75
%77 = STORE void[] %16 %76
%78 = END void[] %77 %19 %20
%79 = AFTER f32[2] %16 %78
%80 = LOAD f32[2] %79
%81 = STORE void[] %14 %80
%82 = SINK void[] %81 KernelInfo(name="sum_2x4_r6", actions=(("PADTO", 2, 4), ("SPLIT", 2, (2, "REDUCE", True)), ("SPLIT", 1, (2, "UPCAST", False)), ("SPLIT", 1, (2, "LOCAL", False)), ("SPLIT", 0, (2, "GLOBAL", True)), ("PACK", 1, 2)), is_applied=True)
""",
)

CASES["device_axes", "a copy ahead has one barrier, and its steps are shape"] = (
    lambda s: device_axes(s, TURNS),
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (0, "GLOBAL")
%5 = CONST idx[] (4, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %3 (1, "LOCAL")
%8 = MUL idx[] %7 %3
%9 = ADD idx[] %6 %8
%10 = RANGE idx[] %3 (4, "UPCAST")
%11 = ADD idx[] %9 %10
%12 = INDEX f32[] %2 %11
%13 = RANGE idx[] %3 (5, "REDUCE")
%14 = MUL idx[] %13 %5
%15 = RANGE idx[] %5 (6, "REDUCE")
%16 = ADD idx[] %14 %15
%17 = CONST idx[] (6, idx)
%18 = CMPLT b1[] %16 %17
%19 = CONST idx[] (32, idx)
%20 = STACK idx[1] %19
%21 = BUFFER f32[32] %20 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%22 = CONST idx[] (16, idx)
%23 = MUL idx[] %13 %22
%24 = RANGE idx[] %22 (7, "LOCAL")
%25 = ADD idx[] %23 %24
%26 = INDEX f32[] %21 %25
%27 = CONST idx[] (24, idx)
%28 = STACK idx[1] %27
%29 = PARAM f32[24] %28 ParamArg(slot=2, dtype=f32, device="cpu", addrspace="GLOBAL")
%30 = INDEX f32[] %29 %25
%31 = CONST f32[] (0.0, f32)
%32 = IDIV idx[] %24 %5
%33 = ADD idx[] %14 %32
%34 = CMPLT b1[] %33 %17
%35 = LOAD f32[] %30 %31 %34 LoadArg(pipelined="registers")
%36 = STORE void[] %26 %35
%37 = END void[] %36 %24
%38 = AFTER f32[32] %21 %37
%39 = ADD idx[] %8 %10
%40 = ADD idx[] %39 %23
%41 = MUL idx[] %15 %5
%42 = ADD idx[] %40 %41
%43 = INDEX f32[] %38 %42
%44 = LOAD f32[] %43
%45 = CONST idx[] (12, idx)
%46 = STACK idx[1] %45
%47 = PARAM f32[12] %46 ParamArg(slot=1, dtype=f32, device="cpu", addrspace="GLOBAL")
%48 = MUL idx[] %4 %17
%49 = ADD idx[] %48 %14
%50 = ADD idx[] %49 %15
%51 = INDEX f32[] %47 %50
%52 = LOAD f32[] %51 %31 %18
%53 = MUL f32[] %44 %52
%54 = WHERE f32[] %18 %53 %31
%55 = REDUCE f32[] %54 %13 %15 ("ADD", ())
%56 = STORE void[] %12 %55
%57 = END void[] %56 %4 %7 %10
%58 = SINK void[] %57 KernelInfo(name="sum_2x4_r6", actions=(("PADTO", 2, 4), ("SPLIT", 2, (2, "REDUCE", True)), ("SPLIT", 1, (2, "UPCAST", False)), ("SPLIT", 1, (2, "LOCAL", False)), ("SPLIT", 0, (2, "GLOBAL", True)), ("PACK", 1, 2)), is_applied=True)
""",
    """
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (2, idx)
%4 = RANGE idx[] %3 (4, "UPCAST")
%5 = SPECIAL idx[] %3 "gidx0"
%6 = CONST idx[] (4, idx)
%7 = MUL idx[] %5 %6
%8 = ADD idx[] %4 %7
%9 = SPECIAL idx[] %3 "lidx0"
%10 = MUL idx[] %9 %3
%11 = ADD idx[] %8 %10
%12 = INDEX f32[] %2 %11
%13 = RANGE idx[] %3 (5, "REDUCE")
%14 = MUL idx[] %13 %6
%15 = RANGE idx[] %6 (6, "REDUCE")
%16 = ADD idx[] %14 %15
%17 = CONST idx[] (6, idx)
%18 = CMPLT b1[] %16 %17
%19 = CONST idx[] (32, idx)
%20 = STACK idx[1] %19
%21 = BUFFER f32[32] %20 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%22 = CONST idx[] (16, idx)
%23 = MUL idx[] %13 %22
%24 = RANGE idx[] %0 (8, "UPCAST")
%25 = MUL idx[] %24 %3
%26 = ADD idx[] %23 %25
%27 = ADD idx[] %26 %9
%28 = INDEX f32[] %21 %27
%29 = CONST idx[] (24, idx)
%30 = STACK idx[1] %29
%31 = PARAM f32[24] %30 ParamArg(slot=2, dtype=f32, device="cpu", addrspace="GLOBAL")
%32 = INDEX f32[] %31 %27
%33 = CONST f32[] (0.0, f32)
%34 = IDIV idx[] %24 %3
%35 = ADD idx[] %14 %34
%36 = CMPLT b1[] %35 %17
%37 = LOAD f32[] %32 %33 %36 LoadArg(pipelined="registers")
%38 = STORE void[] %28 %37
%39 = END void[] %38 %24
%40 = BARRIER void[] %39
%41 = AFTER f32[32] %21 %40
%42 = ADD idx[] %4 %23
%43 = MUL idx[] %15 %6
%44 = ADD idx[] %42 %43
%45 = ADD idx[] %44 %10
%46 = INDEX f32[] %41 %45
%47 = LOAD f32[] %46
%48 = CONST idx[] (12, idx)
%49 = STACK idx[1] %48
%50 = PARAM f32[12] %49 ParamArg(slot=1, dtype=f32, device="cpu", addrspace="GLOBAL")
%51 = MUL idx[] %5 %17
%52 = ADD idx[] %16 %51
%53 = INDEX f32[] %50 %52
%54 = LOAD f32[] %53 %33 %18
%55 = MUL f32[] %47 %54
%56 = WHERE f32[] %18 %55 %33
%57 = REDUCE f32[] %56 %13 %15 ("ADD", ())
%58 = STORE void[] %12 %57
%59 = END void[] %58 %4
%60 = SINK void[] %59 KernelInfo(name="sum_2x4_r6", actions=(("PADTO", 2, 4), ("SPLIT", 2, (2, "REDUCE", True)), ("SPLIT", 1, (2, "UPCAST", False)), ("SPLIT", 1, (2, "LOCAL", False)), ("SPLIT", 0, (2, "GLOBAL", True)), ("PACK", 1, 2)), is_applied=True)
""",
)

CASES["device_axes", "what each lane of a warp holds for a matrix unit"] = (
    lambda s: fragments(s, toposort(s), WARP),
    """
%0 = CONST idx[] (128, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[128] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (8, idx)
%4 = RANGE idx[] %3 (0, "LOCAL")
%5 = MUL idx[] %4 %3
%6 = CONST idx[] (4, idx)
%7 = RANGE idx[] %6 (1, "LOCAL")
%8 = CONST idx[] (2, idx)
%9 = MUL idx[] %7 %8
%10 = ADD idx[] %5 %9
%11 = RANGE idx[] %8 (4, "UPCAST")
%12 = CONST idx[] (64, idx)
%13 = MUL idx[] %11 %12
%14 = ADD idx[] %10 %13
%15 = RANGE idx[] %8 (5, "UPCAST")
%16 = ADD idx[] %14 %15
%17 = INDEX f32[] %2 %16
%18 = PARAM f16[128] %1 ParamArg(slot=1, dtype=f16, device="cpu", addrspace="GLOBAL")
%19 = ADD idx[] %5 %13
%20 = RANGE idx[] %3 (7, "CONTRACT")
%21 = ADD idx[] %19 %20
%22 = INDEX f16[] %18 %21
%23 = LOAD f16[] %22
%24 = CAST f32[] %23 f32
%25 = STACK idx[1] %12
%26 = PARAM f16[64] %25 ParamArg(slot=2, dtype=f16, device="cpu", addrspace="GLOBAL")
%27 = ADD idx[] %9 %15
%28 = MUL idx[] %20 %3
%29 = ADD idx[] %27 %28
%30 = INDEX f16[] %26 %29
%31 = LOAD f16[] %30
%32 = CAST f32[] %31 f32
%33 = MUL f32[] %24 %32
%34 = REDUCE f32[] %33 %20 ("ADD", ())
%35 = STORE void[] %17 %34
%36 = END void[] %35 %4 %7 %11 %15
%37 = SINK void[] %36 KernelInfo(name="sum_16x8_r8", actions=(("TC", 2, ("mma_m16n8k8_f16", 0, 1)),), is_applied=True)
""",
    """
%0 = CONST idx[] (128, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[128] %1 ParamArg(slot=0, dtype=f32, device="cpu", addrspace="GLOBAL")
%3 = CONST idx[] (8, idx)
%4 = RANGE idx[] %3 (0, "LOCAL")
%5 = MUL idx[] %4 %3
%6 = CONST idx[] (4, idx)
%7 = RANGE idx[] %6 (1, "LOCAL")
%8 = CONST idx[] (2, idx)
%9 = MUL idx[] %7 %8
%10 = ADD idx[] %5 %9
%11 = RANGE idx[] %8 (4, "UPCAST")
%12 = CONST idx[] (64, idx)
%13 = MUL idx[] %11 %12
%14 = ADD idx[] %10 %13
%15 = RANGE idx[] %8 (5, "UPCAST")
%16 = ADD idx[] %14 %15
%17 = INDEX f32[] %2 %16
%18 = PARAM f16[128] %1 ParamArg(slot=1, dtype=f16, device="cpu", addrspace="GLOBAL")
%19 = RANGE idx[] %8 (8, "CONTRACT")
%20 = MUL idx[] %19 %12
%21 = ADD idx[] %10 %20
%22 = RANGE idx[] %8 (9, "CONTRACT")
%23 = ADD idx[] %21 %22
%24 = INDEX f16[] %18 %23
%25 = LOAD f16[] %24
%26 = STACK idx[1] %12
%27 = PARAM f16[64] %26 ParamArg(slot=2, dtype=f16, device="cpu", addrspace="GLOBAL")
%28 = CONST idx[] (16, idx)
%29 = MUL idx[] %7 %28
%30 = ADD idx[] %4 %29
%31 = RANGE idx[] %8 (10, "CONTRACT")
%32 = MUL idx[] %31 %3
%33 = ADD idx[] %30 %32
%34 = INDEX f16[] %27 %33
%35 = LOAD f16[] %34
%36 = CONST f32[] (0.0, f32)
%37 = WMMA f32[] %25 %35 %36 %19 %22 %31 %7 %4 %15 %11 ("mma_m16n8k8_f16", 3)
%38 = STORE void[] %17 %37
%39 = END void[] %38 %4 %7 %11 %15
%40 = SINK void[] %39 KernelInfo(name="sum_16x8_r8", actions=(("TC", 2, ("mma_m16n8k8_f16", 0, 1)),), is_applied=True)
""",
)
