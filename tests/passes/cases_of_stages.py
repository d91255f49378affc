"""Cases of what happens between the loops of a kernel: rows that are joined to others, sums that wait for their last block.

The texts are graphs (`ir.text`), so numbers and comments in them do not matter.
"""

from typing import Any

from monolect.rules.loops import simplify_loops
from tests.passes.cases_of_loops import TARGET, act

CASES: dict[tuple[str, str], tuple[Any, str, str | None]] = {}

CASES["simplify_loops", "a last row that is joined"] = (
    lambda s: simplify_loops(s, TARGET),
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

CASES["simplify_loops", "a first row that is joined"] = (
    lambda s: simplify_loops(s, TARGET),
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

CASES["optimize", "sums that are finished after the last block"] = (
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
%49 = CONST f32[] (0.0, f32)
%50 = CONST idx[] (-1, idx)
%51 = MUL idx[] %27 %50
%52 = CONST idx[] (0, idx)
%53 = CMPLT b1[] %51 %52
%54 = LOAD f32[] %22 %49 %53
%55 = ADD f32[] %48 %54
%56 = STORE void[] %22 %55
%57 = END void[] %56 %27 %15 %17 %20
%58 = AFTER f32[32] %14 %57
%59 = INDEX f32[] %58 %12
%60 = LOAD f32[] %59
%61 = CMPLE b1[] %60 %49
%62 = WHERE f32[] %61 %49 %60
%63 = STORE void[] %13 %62
%64 = END void[] %63 %4 %8 %11
%65 = SINK void[] %64 KernelInfo(name="sum_4x8_r6", actions=(("SPLIT", 2, (3, "LOOP", True)), ("SPLIT", 1, (4, "UPCAST", False))))
""",
)
