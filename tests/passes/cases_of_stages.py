"""Cases of what happens between the loops of a kernel: rows that are joined to others, sums that wait for their last block.

The texts are graphs (`ir.text`), so numbers and comments in them do not matter.
"""

from typing import Any

from monolect.rules.loops.concat_boundaries import split_seams
from tests.passes.cases_of_loops import act

CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["split_seams", "a last row that is joined"] = (
    split_seams,
    """
%0 = CONST idx[] (16, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[16] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (8, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (2, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = CONST idx[] (5, idx)
%11 = STACK idx[1] %10
%12 = BUFFER f32[5] %11 BufferArg(slot=1, dtype=f32, device=None, addrspace="LOCAL")
%13 = RANGE idx[] %10 (3, "LOOP")
%14 = INDEX f32[] %12 %13
%15 = BUFFER f32[5] %11 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%16 = RANGE idx[] %10 (2, "LOOP")
%17 = INDEX f32[] %15 %16
%18 = PARAM f32[16] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%19 = RANGE idx[] %5 (1000, "REDUCE")
%20 = ADD idx[] %6 %19
%21 = INDEX f32[] %18 %20
%22 = LOAD f32[] %21
%23 = CONST idx[] (4, idx)
%24 = CMPLT b1[] %16 %23
%25 = CONST idx[] (64, idx)
%26 = STACK idx[1] %25
%27 = PARAM f32[64] %26 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%28 = MUL idx[] %4 %3
%29 = MUL idx[] %16 %5
%30 = ADD idx[] %28 %29
%31 = ADD idx[] %30 %19
%32 = INDEX f32[] %27 %31
%33 = CONST f32[] (0.0, f32)
%34 = LOAD f32[] %32 %33 %24
%35 = PARAM f32[16] %1 ParamArg(slot=3, dtype=f32, addrspace="GLOBAL")
%36 = ADD idx[] %6 %29
%37 = ADD idx[] %36 %19
%38 = CONST idx[] (-8, idx)
%39 = ADD idx[] %37 %38
%40 = INDEX f32[] %35 %39
%41 = CONST idx[] (-1, idx)
%42 = MUL idx[] %16 %41
%43 = CONST idx[] (-3, idx)
%44 = CMPLT b1[] %42 %43
%45 = LOAD f32[] %40 %33 %44
%46 = WHERE f32[] %24 %34 %45
%47 = MUL f32[] %22 %46
%48 = REDUCE f32[] %47 %19 ("ADD", ())
%49 = STORE void[] %17 %48
%50 = END void[] %49 %16
%51 = AFTER f32[5] %15 %50
%52 = INDEX f32[] %51 %13
%53 = LOAD f32[] %52
%54 = RANGE idx[] %10 (1001, "REDUCE")
%55 = INDEX f32[] %51 %54
%56 = LOAD f32[] %55
%57 = REDUCE f32[] %56 %54 ("MAX", ())
%58 = SUB f32[] %53 %57
%59 = MUL f32[] %58 %58
%60 = STORE void[] %14 %59
%61 = END void[] %60 %13
%62 = AFTER f32[5] %12 %61
%63 = INDEX f32[] %62 %54
%64 = LOAD f32[] %63
%65 = REDUCE f32[] %64 %54 ("ADD", ())
%66 = RANGE idx[] %10 (1002, "REDUCE")
%67 = CMPLT b1[] %66 %23
%68 = PARAM f32[64] %26 ParamArg(slot=4, dtype=f32, addrspace="GLOBAL")
%69 = ADD idx[] %28 %7
%70 = MUL idx[] %66 %5
%71 = ADD idx[] %69 %70
%72 = INDEX f32[] %68 %71
%73 = LOAD f32[] %72 %33 %67
%74 = PARAM f32[16] %1 ParamArg(slot=5, dtype=f32, addrspace="GLOBAL")
%75 = ADD idx[] %8 %70
%76 = ADD idx[] %75 %38
%77 = INDEX f32[] %74 %76
%78 = MUL idx[] %66 %41
%79 = CMPLT b1[] %78 %43
%80 = LOAD f32[] %77 %33 %79
%81 = WHERE f32[] %67 %73 %80
%82 = INDEX f32[] %62 %66
%83 = LOAD f32[] %82
%84 = MUL f32[] %81 %83
%85 = REDUCE f32[] %84 %66 ("ADD", ())
%86 = MUL f32[] %65 %85
%87 = STORE void[] %9 %86
%88 = END void[] %87 %4 %7
%89 = SINK void[] %88 KernelInfo()
""",
    """
%0 = CONST idx[] (16, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[16] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (8, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (2, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[16] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = RANGE idx[] %5 (1003, "REDUCE")
%12 = ADD idx[] %6 %11
%13 = INDEX f32[] %10 %12
%14 = LOAD f32[] %13
%15 = PARAM f32[16] %1 ParamArg(slot=3, dtype=f32, addrspace="GLOBAL")
%16 = INDEX f32[] %15 %12
%17 = LOAD f32[] %16
%18 = MUL f32[] %14 %17
%19 = REDUCE f32[] %18 %11 ("ADD", ())
%20 = CONST idx[] (4, idx)
%21 = STACK idx[1] %20
%22 = BUFFER f32[4] %21 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%23 = RANGE idx[] %20 (2, "LOOP")
%24 = INDEX f32[] %22 %23
%25 = RANGE idx[] %5 (1000, "REDUCE")
%26 = ADD idx[] %6 %25
%27 = INDEX f32[] %10 %26
%28 = LOAD f32[] %27
%29 = CONST idx[] (64, idx)
%30 = STACK idx[1] %29
%31 = PARAM f32[64] %30 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%32 = MUL idx[] %4 %3
%33 = MUL idx[] %23 %5
%34 = ADD idx[] %32 %33
%35 = ADD idx[] %34 %25
%36 = INDEX f32[] %31 %35
%37 = LOAD f32[] %36
%38 = MUL f32[] %28 %37
%39 = REDUCE f32[] %38 %25 ("ADD", ())
%40 = STORE void[] %24 %39
%41 = END void[] %40 %23
%42 = AFTER f32[4] %22 %41
%43 = RANGE idx[] %20 (1001, "REDUCE")
%44 = INDEX f32[] %42 %43
%45 = LOAD f32[] %44
%46 = REDUCE f32[] %45 %43 ("MAX", ())
%47 = MAX f32[] %19 %46
%48 = SUB f32[] %19 %47
%49 = MUL f32[] %48 %48
%50 = BUFFER f32[4] %21 BufferArg(slot=1, dtype=f32, device=None, addrspace="LOCAL")
%51 = RANGE idx[] %20 (3, "LOOP")
%52 = INDEX f32[] %50 %51
%53 = INDEX f32[] %42 %51
%54 = LOAD f32[] %53
%55 = SUB f32[] %54 %47
%56 = MUL f32[] %55 %55
%57 = STORE void[] %52 %56
%58 = END void[] %57 %51
%59 = AFTER f32[4] %50 %58
%60 = INDEX f32[] %59 %43
%61 = LOAD f32[] %60
%62 = REDUCE f32[] %61 %43 ("ADD", ())
%63 = ADD f32[] %49 %62
%64 = PARAM f32[16] %1 ParamArg(slot=5, dtype=f32, addrspace="GLOBAL")
%65 = INDEX f32[] %64 %8
%66 = LOAD f32[] %65
%67 = MUL f32[] %49 %66
%68 = PARAM f32[64] %30 ParamArg(slot=4, dtype=f32, addrspace="GLOBAL")
%69 = ADD idx[] %32 %7
%70 = RANGE idx[] %20 (1002, "REDUCE")
%71 = MUL idx[] %70 %5
%72 = ADD idx[] %69 %71
%73 = INDEX f32[] %68 %72
%74 = LOAD f32[] %73
%75 = INDEX f32[] %59 %70
%76 = LOAD f32[] %75
%77 = MUL f32[] %74 %76
%78 = REDUCE f32[] %77 %70 ("ADD", ())
%79 = ADD f32[] %67 %78
%80 = MUL f32[] %63 %79
%81 = STORE void[] %9 %80
%82 = END void[] %81 %4 %7
%83 = SINK void[] %82 KernelInfo()
""",
)

CASES["split_seams", "a first row that is joined"] = (
    split_seams,
    """
%0 = CONST idx[] (16, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[16] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (8, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (2, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = CONST idx[] (5, idx)
%11 = STACK idx[1] %10
%12 = BUFFER f32[5] %11 BufferArg(slot=1, dtype=f32, device=None, addrspace="LOCAL")
%13 = RANGE idx[] %10 (3, "LOOP")
%14 = INDEX f32[] %12 %13
%15 = BUFFER f32[5] %11 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%16 = RANGE idx[] %10 (2, "LOOP")
%17 = INDEX f32[] %15 %16
%18 = PARAM f32[16] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%19 = RANGE idx[] %5 (1000, "REDUCE")
%20 = ADD idx[] %6 %19
%21 = INDEX f32[] %18 %20
%22 = LOAD f32[] %21
%23 = CONST idx[] (1, idx)
%24 = CMPLT b1[] %16 %23
%25 = PARAM f32[16] %1 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%26 = MUL idx[] %16 %5
%27 = ADD idx[] %6 %26
%28 = ADD idx[] %27 %19
%29 = INDEX f32[] %25 %28
%30 = CONST f32[] (0.0, f32)
%31 = LOAD f32[] %29 %30 %24
%32 = CONST idx[] (64, idx)
%33 = STACK idx[1] %32
%34 = PARAM f32[64] %33 ParamArg(slot=3, dtype=f32, addrspace="GLOBAL")
%35 = MUL idx[] %4 %3
%36 = ADD idx[] %35 %26
%37 = ADD idx[] %36 %19
%38 = CONST idx[] (-2, idx)
%39 = ADD idx[] %37 %38
%40 = INDEX f32[] %34 %39
%41 = CONST idx[] (-1, idx)
%42 = MUL idx[] %16 %41
%43 = CONST idx[] (0, idx)
%44 = CMPLT b1[] %42 %43
%45 = LOAD f32[] %40 %30 %44
%46 = WHERE f32[] %24 %31 %45
%47 = MUL f32[] %22 %46
%48 = REDUCE f32[] %47 %19 ("ADD", ())
%49 = STORE void[] %17 %48
%50 = END void[] %49 %16
%51 = AFTER f32[5] %15 %50
%52 = INDEX f32[] %51 %13
%53 = LOAD f32[] %52
%54 = RANGE idx[] %10 (1001, "REDUCE")
%55 = INDEX f32[] %51 %54
%56 = LOAD f32[] %55
%57 = REDUCE f32[] %56 %54 ("MAX", ())
%58 = SUB f32[] %53 %57
%59 = MUL f32[] %58 %58
%60 = STORE void[] %14 %59
%61 = END void[] %60 %13
%62 = AFTER f32[5] %12 %61
%63 = INDEX f32[] %62 %54
%64 = LOAD f32[] %63
%65 = REDUCE f32[] %64 %54 ("ADD", ())
%66 = RANGE idx[] %10 (1002, "REDUCE")
%67 = CMPLT b1[] %66 %23
%68 = PARAM f32[16] %1 ParamArg(slot=4, dtype=f32, addrspace="GLOBAL")
%69 = MUL idx[] %66 %5
%70 = ADD idx[] %8 %69
%71 = INDEX f32[] %68 %70
%72 = LOAD f32[] %71 %30 %67
%73 = PARAM f32[64] %33 ParamArg(slot=5, dtype=f32, addrspace="GLOBAL")
%74 = ADD idx[] %35 %7
%75 = ADD idx[] %74 %69
%76 = ADD idx[] %75 %38
%77 = INDEX f32[] %73 %76
%78 = MUL idx[] %66 %41
%79 = CMPLT b1[] %78 %43
%80 = LOAD f32[] %77 %30 %79
%81 = WHERE f32[] %67 %72 %80
%82 = INDEX f32[] %62 %66
%83 = LOAD f32[] %82
%84 = MUL f32[] %81 %83
%85 = REDUCE f32[] %84 %66 ("ADD", ())
%86 = MUL f32[] %65 %85
%87 = STORE void[] %9 %86
%88 = END void[] %87 %4 %7
%89 = SINK void[] %88 KernelInfo()
""",
    """
%0 = CONST idx[] (16, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[16] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (8, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (2, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = PARAM f32[16] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%11 = RANGE idx[] %5 (1003, "REDUCE")
%12 = ADD idx[] %6 %11
%13 = INDEX f32[] %10 %12
%14 = LOAD f32[] %13
%15 = PARAM f32[16] %1 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%16 = INDEX f32[] %15 %12
%17 = LOAD f32[] %16
%18 = MUL f32[] %14 %17
%19 = REDUCE f32[] %18 %11 ("ADD", ())
%20 = CONST idx[] (4, idx)
%21 = STACK idx[1] %20
%22 = BUFFER f32[4] %21 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%23 = RANGE idx[] %20 (2, "LOOP")
%24 = INDEX f32[] %22 %23
%25 = RANGE idx[] %5 (1000, "REDUCE")
%26 = ADD idx[] %6 %25
%27 = INDEX f32[] %10 %26
%28 = LOAD f32[] %27
%29 = CONST idx[] (64, idx)
%30 = STACK idx[1] %29
%31 = PARAM f32[64] %30 ParamArg(slot=3, dtype=f32, addrspace="GLOBAL")
%32 = MUL idx[] %4 %3
%33 = MUL idx[] %23 %5
%34 = ADD idx[] %32 %33
%35 = ADD idx[] %34 %25
%36 = INDEX f32[] %31 %35
%37 = LOAD f32[] %36
%38 = MUL f32[] %28 %37
%39 = REDUCE f32[] %38 %25 ("ADD", ())
%40 = STORE void[] %24 %39
%41 = END void[] %40 %23
%42 = AFTER f32[4] %22 %41
%43 = RANGE idx[] %20 (1001, "REDUCE")
%44 = INDEX f32[] %42 %43
%45 = LOAD f32[] %44
%46 = REDUCE f32[] %45 %43 ("MAX", ())
%47 = MAX f32[] %19 %46
%48 = SUB f32[] %19 %47
%49 = MUL f32[] %48 %48
%50 = BUFFER f32[4] %21 BufferArg(slot=1, dtype=f32, device=None, addrspace="LOCAL")
%51 = RANGE idx[] %20 (3, "LOOP")
%52 = INDEX f32[] %50 %51
%53 = INDEX f32[] %42 %51
%54 = LOAD f32[] %53
%55 = SUB f32[] %54 %47
%56 = MUL f32[] %55 %55
%57 = STORE void[] %52 %56
%58 = END void[] %57 %51
%59 = AFTER f32[4] %50 %58
%60 = INDEX f32[] %59 %43
%61 = LOAD f32[] %60
%62 = REDUCE f32[] %61 %43 ("ADD", ())
%63 = ADD f32[] %49 %62
%64 = PARAM f32[16] %1 ParamArg(slot=4, dtype=f32, addrspace="GLOBAL")
%65 = INDEX f32[] %64 %8
%66 = LOAD f32[] %65
%67 = MUL f32[] %49 %66
%68 = PARAM f32[64] %30 ParamArg(slot=5, dtype=f32, addrspace="GLOBAL")
%69 = ADD idx[] %32 %7
%70 = RANGE idx[] %20 (1002, "REDUCE")
%71 = MUL idx[] %70 %5
%72 = ADD idx[] %69 %71
%73 = INDEX f32[] %68 %72
%74 = LOAD f32[] %73
%75 = INDEX f32[] %59 %70
%76 = LOAD f32[] %75
%77 = MUL f32[] %74 %76
%78 = REDUCE f32[] %77 %70 ("ADD", ())
%79 = ADD f32[] %67 %78
%80 = MUL f32[] %63 %79
%81 = STORE void[] %9 %80
%82 = END void[] %81 %4 %7
%83 = SINK void[] %82 KernelInfo()
""",
)

CASES["apply", "sums that are finished after the last block"] = (
    act(("SPLIT", 2, (3, "LOOP", True)), ("SPLIT", 1, (4, "UPCAST", False))),
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
%28 = CONST f32[] (0.0, f32)
%29 = CMPLE b1[] %27 %28
%30 = WHERE f32[] %29 %28 %27
%31 = STORE void[] %9 %30
%32 = END void[] %31 %4 %7
%33 = SINK void[] %32 KernelInfo()
""",
    """
%0 = CONST idx[] (32, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[32] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (4, idx)
%4 = RANGE idx[] %3 (5, "LOOP")
%5 = CONST idx[] (8, idx)
%6 = MUL idx[] %4 %5
%7 = CONST idx[] (2, idx)
%8 = RANGE idx[] %7 (6, "LOOP")
%9 = MUL idx[] %8 %3
%10 = ADD idx[] %6 %9
%11 = RANGE idx[] %3 (7, "UPCAST")
%12 = ADD idx[] %10 %11
%13 = INDEX f32[] %2 %12
%14 = BUFFER f32[32] %1 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%15 = RANGE idx[] %3 (1, "LOOP")
%16 = MUL idx[] %15 %5
%17 = RANGE idx[] %7 (2, "LOOP")
%18 = MUL idx[] %17 %3
%19 = ADD idx[] %16 %18
%20 = RANGE idx[] %3 (3, "UPCAST")
%21 = ADD idx[] %19 %20
%22 = INDEX f32[] %14 %21
%23 = CONST idx[] (24, idx)
%24 = STACK idx[1] %23
%25 = PARAM f32[24] %24 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%26 = CONST idx[] (3, idx)
%27 = RANGE idx[] %26 (0, "LOOP")
%28 = MUL idx[] %27 %7
%29 = CONST idx[] (6, idx)
%30 = MUL idx[] %15 %29
%31 = ADD idx[] %28 %30
%32 = RANGE idx[] %7 (4, "REDUCE")
%33 = ADD idx[] %31 %32
%34 = INDEX f32[] %25 %33
%35 = LOAD f32[] %34
%36 = CONST idx[] (48, idx)
%37 = STACK idx[1] %36
%38 = PARAM f32[48] %37 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%39 = CONST idx[] (16, idx)
%40 = MUL idx[] %27 %39
%41 = ADD idx[] %40 %18
%42 = ADD idx[] %41 %20
%43 = MUL idx[] %32 %5
%44 = ADD idx[] %42 %43
%45 = INDEX f32[] %38 %44
%46 = LOAD f32[] %45
%47 = MUL f32[] %35 %46
%48 = REDUCE f32[] %47 %32 ("ADD", ())
%49 = AFTER f32[32] %14 %48
%50 = INDEX f32[] %49 %21
%51 = CONST f32[] (0.0, f32)
%52 = CONST idx[] (-1, idx)
%53 = MUL idx[] %27 %52
%54 = CONST idx[] (0, idx)
%55 = CMPLT b1[] %53 %54
%56 = LOAD f32[] %50 %51 %55
%57 = ADD f32[] %48 %56
%58 = STORE void[] %22 %57
%59 = END void[] %58 %27 %15 %17 %20
%60 = AFTER f32[32] %14 %59
%61 = INDEX f32[] %60 %12
%62 = LOAD f32[] %61
%63 = CMPLE b1[] %62 %51
%64 = WHERE f32[] %63 %51 %62
%65 = STORE void[] %13 %64
%66 = END void[] %65 %4 %8 %11
%67 = SINK void[] %66 KernelInfo(name="sum_4x8_r6", actions=(("SPLIT", 2, (3, "LOOP", True)), ("SPLIT", 1, (4, "UPCAST", False))), is_applied=True)
""",
)

CASES["split_seams", "two pieces of rows"] = (
    split_seams,
    """
%0 = CONST idx[] (16, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[16] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (8, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (2, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = CONST idx[] (10, idx)
%11 = RANGE idx[] %10 (1002, "REDUCE")
%12 = CONST idx[] (4, idx)
%13 = CMPLT b1[] %11 %12
%14 = CONST idx[] (64, idx)
%15 = STACK idx[1] %14
%16 = PARAM f32[64] %15 ParamArg(slot=4, dtype=f32, addrspace="GLOBAL")
%17 = MUL idx[] %4 %3
%18 = ADD idx[] %17 %7
%19 = MUL idx[] %11 %5
%20 = ADD idx[] %18 %19
%21 = INDEX f32[] %16 %20
%22 = CONST f32[] (0.0, f32)
%23 = LOAD f32[] %21 %22 %13
%24 = CONST idx[] (96, idx)
%25 = STACK idx[1] %24
%26 = PARAM f32[96] %25 ParamArg(slot=5, dtype=f32, addrspace="GLOBAL")
%27 = CONST idx[] (12, idx)
%28 = MUL idx[] %4 %27
%29 = ADD idx[] %28 %7
%30 = ADD idx[] %29 %19
%31 = CONST idx[] (-8, idx)
%32 = ADD idx[] %30 %31
%33 = INDEX f32[] %26 %32
%34 = CONST idx[] (-1, idx)
%35 = MUL idx[] %11 %34
%36 = CONST idx[] (-3, idx)
%37 = CMPLT b1[] %35 %36
%38 = LOAD f32[] %33 %22 %37
%39 = WHERE f32[] %13 %23 %38
%40 = STACK idx[1] %10
%41 = BUFFER f32[10] %40 BufferArg(slot=1, dtype=f32, device=None, addrspace="LOCAL")
%42 = RANGE idx[] %10 (3, "LOOP")
%43 = INDEX f32[] %41 %42
%44 = BUFFER f32[10] %40 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%45 = RANGE idx[] %10 (2, "LOOP")
%46 = INDEX f32[] %44 %45
%47 = PARAM f32[16] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%48 = RANGE idx[] %5 (1000, "REDUCE")
%49 = ADD idx[] %6 %48
%50 = INDEX f32[] %47 %49
%51 = LOAD f32[] %50
%52 = CMPLT b1[] %45 %12
%53 = PARAM f32[64] %15 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%54 = MUL idx[] %45 %5
%55 = ADD idx[] %17 %54
%56 = ADD idx[] %55 %48
%57 = INDEX f32[] %53 %56
%58 = LOAD f32[] %57 %22 %52
%59 = PARAM f32[96] %25 ParamArg(slot=3, dtype=f32, addrspace="GLOBAL")
%60 = ADD idx[] %28 %54
%61 = ADD idx[] %60 %48
%62 = ADD idx[] %61 %31
%63 = INDEX f32[] %59 %62
%64 = MUL idx[] %45 %34
%65 = CMPLT b1[] %64 %36
%66 = LOAD f32[] %63 %22 %65
%67 = WHERE f32[] %52 %58 %66
%68 = MUL f32[] %51 %67
%69 = REDUCE f32[] %68 %48 ("ADD", ())
%70 = STORE void[] %46 %69
%71 = END void[] %70 %45
%72 = AFTER f32[10] %44 %71
%73 = INDEX f32[] %72 %42
%74 = LOAD f32[] %73
%75 = RANGE idx[] %10 (1001, "REDUCE")
%76 = INDEX f32[] %72 %75
%77 = LOAD f32[] %76
%78 = REDUCE f32[] %77 %75 ("MAX", ())
%79 = SUB f32[] %74 %78
%80 = MUL f32[] %79 %79
%81 = STORE void[] %43 %80
%82 = END void[] %81 %42
%83 = AFTER f32[10] %41 %82
%84 = INDEX f32[] %83 %11
%85 = LOAD f32[] %84
%86 = MUL f32[] %39 %85
%87 = REDUCE f32[] %86 %11 ("ADD", ())
%88 = STORE void[] %9 %87
%89 = END void[] %88 %4 %7
%90 = SINK void[] %89 KernelInfo()
""",
    """
%0 = CONST idx[] (16, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[16] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = CONST idx[] (8, idx)
%4 = RANGE idx[] %3 (0, "LOOP")
%5 = CONST idx[] (2, idx)
%6 = MUL idx[] %4 %5
%7 = RANGE idx[] %5 (1, "LOOP")
%8 = ADD idx[] %6 %7
%9 = INDEX f32[] %2 %8
%10 = CONST idx[] (64, idx)
%11 = STACK idx[1] %10
%12 = PARAM f32[64] %11 ParamArg(slot=4, dtype=f32, addrspace="GLOBAL")
%13 = MUL idx[] %4 %3
%14 = ADD idx[] %13 %7
%15 = CONST idx[] (4, idx)
%16 = RANGE idx[] %15 (1006, "REDUCE")
%17 = MUL idx[] %16 %5
%18 = ADD idx[] %14 %17
%19 = INDEX f32[] %12 %18
%20 = LOAD f32[] %19
%21 = STACK idx[1] %15
%22 = BUFFER f32[4] %21 BufferArg(slot=3, dtype=f32, device=None, addrspace="LOCAL")
%23 = RANGE idx[] %15 (1004, "LOOP")
%24 = INDEX f32[] %22 %23
%25 = BUFFER f32[4] %21 BufferArg(slot=2, dtype=f32, device=None, addrspace="LOCAL")
%26 = RANGE idx[] %15 (1003, "LOOP")
%27 = INDEX f32[] %25 %26
%28 = PARAM f32[16] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%29 = RANGE idx[] %5 (1007, "REDUCE")
%30 = ADD idx[] %6 %29
%31 = INDEX f32[] %28 %30
%32 = LOAD f32[] %31
%33 = PARAM f32[64] %11 ParamArg(slot=2, dtype=f32, addrspace="GLOBAL")
%34 = MUL idx[] %26 %5
%35 = ADD idx[] %13 %34
%36 = ADD idx[] %35 %29
%37 = INDEX f32[] %33 %36
%38 = LOAD f32[] %37
%39 = MUL f32[] %32 %38
%40 = REDUCE f32[] %39 %29 ("ADD", ())
%41 = STORE void[] %27 %40
%42 = END void[] %41 %26
%43 = AFTER f32[4] %25 %42
%44 = INDEX f32[] %43 %23
%45 = LOAD f32[] %44
%46 = RANGE idx[] %15 (1005, "REDUCE")
%47 = INDEX f32[] %43 %46
%48 = LOAD f32[] %47
%49 = REDUCE f32[] %48 %46 ("MAX", ())
%50 = CONST idx[] (6, idx)
%51 = STACK idx[1] %50
%52 = BUFFER f32[6] %51 BufferArg(slot=0, dtype=f32, device=None, addrspace="LOCAL")
%53 = RANGE idx[] %50 (2, "LOOP")
%54 = INDEX f32[] %52 %53
%55 = RANGE idx[] %5 (1000, "REDUCE")
%56 = ADD idx[] %6 %55
%57 = INDEX f32[] %28 %56
%58 = LOAD f32[] %57
%59 = CONST idx[] (96, idx)
%60 = STACK idx[1] %59
%61 = PARAM f32[96] %60 ParamArg(slot=3, dtype=f32, addrspace="GLOBAL")
%62 = CONST idx[] (12, idx)
%63 = MUL idx[] %4 %62
%64 = MUL idx[] %53 %5
%65 = ADD idx[] %63 %64
%66 = ADD idx[] %65 %55
%67 = INDEX f32[] %61 %66
%68 = LOAD f32[] %67
%69 = MUL f32[] %58 %68
%70 = REDUCE f32[] %69 %55 ("ADD", ())
%71 = STORE void[] %54 %70
%72 = END void[] %71 %53
%73 = AFTER f32[6] %52 %72
%74 = RANGE idx[] %50 (1001, "REDUCE")
%75 = INDEX f32[] %73 %74
%76 = LOAD f32[] %75
%77 = REDUCE f32[] %76 %74 ("MAX", ())
%78 = MAX f32[] %49 %77
%79 = SUB f32[] %45 %78
%80 = MUL f32[] %79 %79
%81 = STORE void[] %24 %80
%82 = END void[] %81 %23
%83 = AFTER f32[4] %22 %82
%84 = INDEX f32[] %83 %16
%85 = LOAD f32[] %84
%86 = MUL f32[] %20 %85
%87 = REDUCE f32[] %86 %16 ("ADD", ())
%88 = PARAM f32[96] %60 ParamArg(slot=5, dtype=f32, addrspace="GLOBAL")
%89 = ADD idx[] %63 %7
%90 = RANGE idx[] %50 (1002, "REDUCE")
%91 = MUL idx[] %90 %5
%92 = ADD idx[] %89 %91
%93 = INDEX f32[] %88 %92
%94 = LOAD f32[] %93
%95 = BUFFER f32[6] %51 BufferArg(slot=1, dtype=f32, device=None, addrspace="LOCAL")
%96 = RANGE idx[] %50 (3, "LOOP")
%97 = INDEX f32[] %95 %96
%98 = INDEX f32[] %73 %96
%99 = LOAD f32[] %98
%100 = SUB f32[] %99 %78
%101 = MUL f32[] %100 %100
%102 = STORE void[] %97 %101
%103 = END void[] %102 %96
%104 = AFTER f32[6] %95 %103
%105 = INDEX f32[] %104 %90
%106 = LOAD f32[] %105
%107 = MUL f32[] %94 %106
%108 = REDUCE f32[] %107 %90 ("ADD", ())
%109 = ADD f32[] %87 %108
%110 = STORE void[] %9 %109
%111 = END void[] %110 %4 %7
%112 = SINK void[] %111 KernelInfo()
""",
)
