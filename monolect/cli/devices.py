"""List every target, whether it works here, and what would enable it: `monolect devices`.

What it is for: no device is missing without a reason. A small program runs on every device that is present. For a
target without a device here, a kernel is compiled if its compiler is present. What it is not: a test of devices; `make
test-targets` is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from monolect.backend.cuda import compile as nvrtc
from monolect.backend.cuda import ptx
from monolect.backend.cuda import render as cuda
from monolect.backend.hip import amdgcn
from monolect.backend.hip import compile as clang
from monolect.backend.hip import render as hip
from monolect.backend.metal import render as metal
from monolect.backend.registry import Device
from monolect.base.dtype import ALL, dtypes
from monolect.base.errors import MonolectError
from monolect.base.target import Target
from monolect.ir.uop import UOp
from monolect.pipeline import lower_kernel, schedule
from monolect.schedule.callify import over_params
from monolect.tensor.tensor import Tensor

INTS = frozenset(d for d in ALL if d.is_int or d.kind in "b")  # dtypes printed as one word, "ints"
VALUES = [1.0, 2.0, 3.0]  # input of the small program


class Way(NamedTuple):
    """A compiler and a function that compiles kernels for a target that has no device here."""

    compiler: str
    output: str
    target: Target
    compile: Callable[[list[tuple[str, UOp]]], object]


def ways(name: str) -> list[Way]:
    """Return the ways to compile for the target `name`, the best first; [] if there is none."""
    if name == "cuda":
        return [
            Way(
                f"NVRTC {nvrtc.version()}",
                "machine code for sm_90a",
                cuda.target(90),
                lambda kernels: nvrtc.Compiler("90a").compile(cuda.render_module(kernels, 90)),
            ),
            Way(
                "LLVM of llvmlite",
                "PTX for sm_80",
                ptx.target(80),
                lambda kernels: ptx.compiler("80").assembly(ptx.render_module(kernels)),
            ),
        ]
    if name == "hip":
        return [
            Way(
                clang.find(),
                "a code object for gfx942",
                hip.target("gfx942"),
                lambda kernels: clang.Compiler("gfx942").compile(hip.render_module(kernels, "gfx942")),
            ),
            Way(
                "LLVM of llvmlite",
                "an object for gfx942",
                amdgcn.TARGET,
                lambda kernels: amdgcn.compiler("gfx942").compile(amdgcn.render_module(kernels)),
            ),
        ]
    return [Way("", "source", metal.TARGET, metal.render_module)] if name == "metal" else []


class Row(NamedTuple):
    """One target. `status` is "ran", "compiled", "rendered", "opens" or "no"; `note` says why, and what would help."""

    name: str
    status: str
    dtypes: str = "-"  # native dtypes; in parentheses those stored as such and computed in float32
    units: str = "-"  # operand dtypes of its matrix units
    driver: str = ""
    compiler: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        """Driver, compiler and note in one line."""
        named = [f"{what} {name}" for what, name in (("driver", self.driver), ("compiler", self.compiler)) if name]
        return "; ".join([*named, *([self.note] if self.note else [])]) or "-"


def rows() -> list[Row]:
    """Return a Row for every target of the registry."""
    return [_compiled(name, why) if why else _present(name) for name, why in Device.present().items()]


def _present(name: str) -> Row:
    driver, compiler = Device.about(name)
    row = Row(name, "opens", driver=driver, compiler=compiler)
    if name == "disk":
        return row._replace(note="files as buffers: `disk:/path`")
    try:
        row = _of_target(row, Device[name].target)
        got = (Tensor(VALUES, device=name) * 2 + 1).tolist()
    except MonolectError as error:
        return row._replace(status="no", note=" ".join(error.describe().split()))
    except Exception as error:  # a driver may raise any error; the other rows are still printed
        return row._replace(status="no", note=f"{type(error).__name__}: {' '.join(str(error).split())}")
    if name == "null":
        return row._replace(status="compiled", note="runs nothing")
    if got != [2 * x + 1 for x in VALUES]:
        return row._replace(status="no", note=f"its results are wrong: {got}")
    return row._replace(status="ran")


def _compiled(name: str, why: str) -> Row:
    """Return the Row of a target without a device here: the kernel compiled for it, and the reason why it did not
    run.
    """
    row = Row(name, "no", note=why)
    for way in ways(name):
        row = _of_target(row, way.target)
        try:
            way.compile(_kernel(way.target))
        except MonolectError as error:
            row = row._replace(note=f"{row.note}; {error.message}")
            continue
        status = "compiled" if way.compiler else "rendered"
        return row._replace(status=status, compiler=way.compiler, note=f"{way.output}; {row.note}")
    return row


def _of_target(row: Row, target: Target) -> Row:
    native = ["ints", *(d.short for d in ALL if d in target.native_dtypes and d.is_float)]
    missing = sorted(d.short for d in (INTS | {dtypes.float64}) - target.native_dtypes)
    converted = sorted(d.short for d in target.cast_dtypes)
    words = [*native, *(f"({name})" for name in converted), *(f"no {name}" for name in missing)]
    pairs = dict.fromkeys((u.a.short, u.b.short) for u in target.units)
    units = " ".join(a if a == b else f"{a}*{b}" for a, b in pairs)
    return row._replace(dtypes=" ".join(words), units=units or "-")


def _kernel(target: Target) -> list[tuple[str, UOp]]:
    sink, _, _ = over_params([(Tensor.empty(64) * 2 + 1).uop])
    (call,) = schedule(list(sink.src), "null", 0).linear.src
    return [("kernel", lower_kernel(call.src[0], target))]


__all__ = ["Row", "Way", "rows", "ways"]
