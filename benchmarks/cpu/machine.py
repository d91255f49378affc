"""What the machine can do, measured with loops of our own: no library's routine stands between.

Each loop is LLVM text for the host's vectors, run on `THREADS` Python threads at once (the call leaves Python's lock):
24 independent chains of multiply-adds on registers; reading 512 MB with 8 running sums; copying 256 MB with plain
stores. The best of many runs counts: a limit is what was reached at least once.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

from benchmarks.cpu.arrays import aligned
from benchmarks.cpu.quiet import Patience, watched
from benchmarks.cpu.worker import THREADS

CHAINS, STREAMS, TURNS = 24, 8, 2_000_000
PATIENCE_S = 5.0  # a limit's


@dataclass(frozen=True)
class Limits:
    """Operations and bytes a second, of all threads together; a copied byte counts twice, as read and as written."""

    flops: dict[str, float]
    read: float
    copy: float

    def bound_s(self, flops: float, unit: str, read: int, written: int) -> float:
        """Seconds below which no program gets that computes and moves this much, where memory is main memory."""
        moving = 2 * written / self.copy + max(0, read - written) / self.read
        return max(flops / self.flops[unit] if unit in self.flops else 0.0, moving)

    def raised(self, before: dict[str, float]) -> Limits:
        """With peaks of arithmetic that an earlier run reached; main memory belongs to all who share the machine."""
        flops = {unit: max(rate, before.get(unit, 0.0)) for unit, rate in self.flops.items()}
        return Limits(flops, self.read, self.copy)

    def __str__(self) -> str:
        peaks = ", ".join(f"{unit} {rate / 1e9:.0f} G" for unit, rate in self.flops.items())
        return f"multiply-adds a second x 2: {peaks}; read {self.read / 1e9:.1f} GB/s; copy {self.copy / 1e9:.1f} GB/s"

    def as_json(self) -> dict:
        return asdict(self)


# unit: (operations an instruction and element of the accumulator, accumulator's elements per 512 bits, types, call)
DOTS = {
    "bf16": ("avx512bf16", 16, 4, "float", "<32 x bfloat>", "@llvm.x86.avx512bf16.dpbf16ps.512"),
    "int8": ("avx512vnni", 16, 8, "i32", "<64 x i8>", "@llvm.x86.avx512.vpdpbusd.512"),
}


def chains(step: str, declaration: str, vector: str, operand: str) -> str:
    """A function that runs `step` on `CHAINS` accumulators, `n` times."""
    phis = "\n".join(f"  %a{i} = phi {vector} [ zeroinitializer, %entry ], [ %b{i}, %loop ]" for i in range(CHAINS))
    steps = "\n".join(step.format(i=i) for i in range(CHAINS))
    total = "\n".join(f"  store volatile {vector} %b{i}, ptr %out" for i in range(CHAINS))
    return f"""
{declaration}
define i64 @run(ptr %p, ptr %out, i64 %n) {{
entry:
  %x = load {operand}, ptr %p
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
{phis}
{steps}
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %n
  br i1 %more, label %loop, label %exit
exit:
{total}
  ret i64 0
}}"""


def multiply_adds(lanes: int) -> str:
    v = f"<{lanes} x float>"
    name = f"@llvm.fma.v{lanes}f32"
    step = f"  %b{{i}} = call {v} {name}({v} %x, {v} %x, {v} %a{{i}})"
    return chains(step, f"declare {v} {name}({v}, {v}, {v})", v, v)


def dots(unit: str) -> str:
    _, lanes, _, element, operand, name = DOTS[unit]
    v = f"<{lanes} x {element}>"
    operand = operand if unit == "bf16" else f"<{lanes} x i32>" if unit == "int8" else operand
    step = f"  %b{{i}} = call {v} {name}({v} %a{{i}}, {operand} %x, {operand} %x)"
    return chains(step, f"declare {v} {name}({v}, {operand}, {operand})", v, operand)


def streaming(lanes: int, copy: bool) -> str:
    """Reads `n` vectors, `STREAMS` a turn; stores them or adds them up."""
    v = f"<{lanes} x float>"
    body = []
    for i in range(STREAMS):
        body.append(f"  %j{i} = add i64 %k, {i}\n  %p{i} = getelementptr inbounds {v}, ptr %p, i64 %j{i}")
        body.append(f"  %x{i} = load {v}, ptr %p{i}")
        if copy:
            body.append(f"  %q{i} = getelementptr inbounds {v}, ptr %out, i64 %j{i}\n  store {v} %x{i}, ptr %q{i}")
        body.append(f"  %b{i} = " + (f"fadd {v} %a{i}, %x{i}" if not copy else f"freeze {v} %a{i}"))
    phis = "\n".join(f"  %a{i} = phi {v} [ zeroinitializer, %entry ], [ %b{i}, %loop ]" for i in range(STREAMS))
    kept = "" if copy else "\n".join(f"  store volatile {v} %b{i}, ptr %out" for i in range(STREAMS))
    return f"""
define i64 @run(ptr %p, ptr %out, i64 %n) {{
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
{phis}
{chr(10).join(body)}
  %k1 = add i64 %k, {STREAMS}
  %more = icmp ult i64 %k1, %n
  br i1 %more, label %loop, label %exit
exit:
{kept}
  ret i64 0
}}"""


class Loop:
    """A compiled `run(p, out, n)` and its rate on all threads."""

    def __init__(self, text: str, features: str) -> None:
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=features, opt=2
        )
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
        self.engine.finalize_object()
        pointer = ctypes.c_void_p
        self.call = ctypes.CFUNCTYPE(ctypes.c_int64, pointer, pointer, ctypes.c_int64)(
            self.engine.get_function_address("run")
        )

    def best_s(self, operands: list[tuple[np.ndarray, np.ndarray]], n: int, runs: int = 15) -> float:
        """Seconds of the fastest of some runs, each on all operands at once."""

        def best(pool: ThreadPoolExecutor) -> float:
            times = []
            for _ in range(runs):
                start = time.perf_counter()
                list(pool.map(lambda pair: self.call(pair[0].ctypes.data, pair[1].ctypes.data, n), operands))
                times.append(time.perf_counter() - start)
            return min(times)

        with ThreadPoolExecutor(len(operands)) as pool:
            return Patience(PATIENCE_S).least_disturbed(lambda: watched(lambda: best(pool)))[0]


def measured(megabytes: int = 256, turns: int = TURNS) -> Limits:
    """The limits, in some two seconds if nobody disturbs. `megabytes` is what each thread reads."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    lanes = 16 if features.get("avx512f") else 8 if features.get("avx2") else 4
    flat, none = (
        features.flatten(),
        [(aligned((64,), np.dtype("f4")), aligned((64,), np.dtype("f4"))) for _ in range(THREADS)],
    )
    for p, _ in none:
        p.fill(0)
    flops = {}
    for unit, text, per_turn in [("f32", multiply_adds(lanes), 2 * lanes)] + [
        (unit, dots(unit), row[1] * row[2]) for unit, row in DOTS.items() if features.get(row[0])
    ]:
        flops[unit] = THREADS * per_turn * CHAINS * turns / Loop(text, flat).best_s(none, turns)
    size = megabytes << 18
    pairs = []
    for _ in range(THREADS):
        pair = aligned((size,), np.dtype("f4")), aligned((size,), np.dtype("f4"))
        for a in pair:
            a.fill(1)
        pairs.append(pair)
    n_bytes = THREADS * size * 4
    read = n_bytes / Loop(streaming(lanes, copy=False), flat).best_s(pairs, size // lanes)
    copy = 2 * n_bytes / Loop(streaming(lanes, copy=True), flat).best_s(pairs, size // lanes)
    return Limits(flops, read, copy)


def description() -> str:
    """The machine in a line."""
    model = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        model = next(
            (row.split(":")[1].strip() for row in info.read_text().splitlines() if row.startswith("model name")), model
        )
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
