"""Predict the times of the programs of the CPU table for a processor as data, and write them as text.

    python -m tests.optimize.predict TARGET [NAME ...] > FILE

It runs in a process of its own, on a device that runs nothing, under the name of the CPU. A line has the name of a
program, its predicted milliseconds, and the term that limits most of them.
"""

from __future__ import annotations

import sys
from collections import Counter

from benchmarks.cpu.families import cases
from monolect import Context
from monolect.backend.null.runtime import NullDevice
from monolect.backend.registry import Device
from monolect.base.target import Target
from monolect.command.forms import kernel_of
from monolect.ir.ops import KernelInfo
from monolect.ir.uop import UOp, node
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.cpu.heuristic import choose
from monolect.optimize.roofline import Prediction, predict
from monolect.pipeline import lower_kernel
from monolect.runtime import profile
from monolect.runtime.realize import lowering
from tests.optimize.programs import CALLS, call_of_case, forward
from tests.optimize.targets import AMX, ZEN_5, with_threads

# The rates are those measured on these machines: multiply-adds of both threads in a second, and copies of arrays.
TARGETS: dict[str, Target] = {
    "amx": with_threads(AMX, 2)._replace(clock_hz=3.3e9, dram_bytes_per_second=30e9),
    "zen5": with_threads(ZEN_5, 2)._replace(clock_hz=3.7e9, dram_bytes_per_second=40e9),
}
MORE = {
    "matmul 256 A·B": forward(lambda a, b: a @ b, (256, 256), (256, 256)),
    "conv 3x3 (1,512,7,7)->512, weight as an argument": forward(
        lambda x, w: x.conv2d(w, padding=1), (1, 512, 7, 7), (512, 512, 3, 3)
    ),
}


def _not_lowered(sink: UOp, target: Target, first: str = "", last: str = "") -> UOp:
    """Stands in for the lowering of kernels that are to run: none is."""
    return lower_kernel(sink, target, first=first, last=last) if last else node("LINEAR", (), sink.arg or KernelInfo())


def of_kernel(sink: UOp, target: Target) -> Prediction:
    """The prediction for a kernel with the actions that the heuristic chooses."""
    ready = lower_kernel(sink, target, last=lowering.READY)
    plan = LoopPlan(ready, target)
    choose(plan)
    return predict(ready, tuple(plan.actions), target)


def main(name: str, *names: str) -> None:
    """Print a line for each program, or for those in `names`."""
    target = TARGETS[name]._replace(name="cpu")
    device = NullDevice("cpu")
    device.target = target
    Device._open["cpu"] = device
    lowering.lower_kernel = _not_lowered  # type: ignore[assignment]
    known: dict[UOp, Prediction] = {}
    with Context(DEVICE="cpu", COMPILE_CACHE=0, PROGRESS=0):
        for program in names or (*MORE, *cases()):
            run = MORE.get(program) or call_of_case(program)
            for _ in range(CALLS - 1):
                run()
            with profile.Recorder() as runs:
                run()
            seconds: Counter[str] = Counter()
            for k in runs:
                sink = kernel_of(k.call)
                if sink not in known:
                    known[sink] = of_kernel(sink, target)
                seconds[known[sink].limit.name] += known[sink].seconds
            print(f"{program}\t{sum(seconds.values()) * 1e3:.4f}\t{seconds.most_common(1)[0][0]}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
