"""The benchmark table of a GPU: monolect beside PyTorch on the same one, each result checked before it is timed.

    python -m benchmarks.gpu                   every row, on `cuda`
    python -m benchmarks.gpu matmul            the rows whose name holds a text
    python -m benchmarks.gpu --device hip      another device; `--small` for sizes that any of them runs in no time
    python -m benchmarks.gpu --markdown FILE   the table, with the machine, into a file

Results are compared with NumPy in float64. Then both take turns: a turn is so many calls, one wait at their end; a cell
is the median of the turns, over the calls. Goals of what moves memory are shares of a copy measured in the same run.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu.rows import Row, checked, expected, rows
from monolect import Context, Tensor, jit
from monolect.backend.registry import Device
from monolect.base.disk.files import write_whole
from monolect.base.dtype import as_dtype

TURNS, TURN_S, MOST_CALLS = 9, 0.05, 200
COPY_BYTES = 1 << 30
TORCH_NAMES = {"cuda": "cuda", "hip": "cuda", "metal": "mps"}  # PyTorch calls AMD's GPUs cuda, too
HEADER = "| work | monolect | PyTorch | of PyTorch | of the copy | Tflop/s | goal |"


class Done(NamedTuple):
    """A row that was measured: seconds of a call, PyTorch's if it is there, what fell short or went wrong."""

    row: Row
    ours: float
    theirs: float | None
    verdict: str


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.gpu", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="parts of names; all rows without")
    parser.add_argument("--device", default="cuda", help="monolect's name of the device")
    parser.add_argument("--small", action="store_true", help="small sizes: does everything run?")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"turns of each library, {TURNS} by default")
    parser.add_argument("--markdown", metavar="FILE", help="write the table")
    return parser.parse_args(given)


def torch_device(name: str) -> tuple[Any, str]:
    """PyTorch and its name of the device; (None, why not) without it."""
    try:
        import torch
    except ImportError:
        return None, "PyTorch is not installed"
    theirs = TORCH_NAMES.get(name.partition(":")[0], "cpu")
    here = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}.get(theirs, lambda: True)()
    return (torch, theirs) if here else (None, f"PyTorch {torch.__version__} has no {theirs}")


def waiting(device: Any) -> Callable[[], None]:
    """What returns when the device has run everything; one without it runs at once."""
    own = getattr(device, "wait", None) or getattr(getattr(device, "memory", None), "wait", None)
    return own or (lambda: None)


def turn(call: Callable[[], Any], wait: Callable[[], None], n: int) -> float:
    """Seconds of a call, of `n` in a row."""
    wait()
    start = time.perf_counter()
    for _ in range(n):
        call()
    wait()
    return (time.perf_counter() - start) / n


def timed(sides: list[tuple[Callable[[], Any], Callable[[], None]]], turns: int) -> list[float]:
    """Seconds of a call of each side, the sides in turns."""
    counts = [max(1, min(MOST_CALLS, int(TURN_S / max(turn(*side, 1), 1e-7)))) for side in sides]
    taken = [[turn(*side, n) for side, n in zip(sides, counts, strict=True)] for _ in range(turns)]
    return [median(column) for column in zip(*taken, strict=True)]


def copy_rate(device: Any, wait: Callable[[], None], n_bytes: int, turns: int) -> float:
    """Bytes a second that a copy on the device reads and writes, the best of some turns."""
    source, target = device.from_array(np.ones(n_bytes, np.uint8)), device.alloc(n_bytes)
    call = lambda: device.copy(target, source, n_bytes)  # noqa: E731
    turn(call, wait, 1)
    return 2 * n_bytes / min(turn(call, wait, 10) for _ in range(turns))


def measure(row: Row, name: str, torch: Any, theirs: str, rate: float, turns: int) -> Done:
    """A row, checked and timed."""
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape, dtype=np.float32) for shape in row.shapes]
    ours = [Tensor(x).cast(as_dtype(row.dtype)).to(name).realize() for x in inputs]
    inputs = [Tensor(x).cast(as_dtype(row.dtype)).float().numpy() for x in inputs]  # as both libraries round them
    want = expected(row, inputs)
    step = jit(row.ours)
    device = Device[name]
    with Context(TF32=int(row.tf32)):
        wrong = differs(row, step(*ours).float().numpy(), want)
        sides = [(lambda: step(*ours), waiting(device))]
        if torch is not None:
            held = [torch.from_numpy(x).to(theirs, getattr(torch, row.dtype)) for x in inputs]
            torch.backends.cuda.matmul.allow_tf32 = row.tf32
            call = lambda: row.theirs(torch, *held)  # noqa: E731
            if differs(row, call().float().cpu().numpy(), want):
                wrong = wrong or "PyTorch's result differs"
            sides.append((call, getattr(torch, theirs).synchronize))
        took = timed(sides, turns)
    us, them = took[0], took[1] if len(took) > 1 else None
    return Done(row, us, them, wrong or verdict(row, us, them, rate))


def differs(row: Row, result: np.ndarray, want: np.ndarray) -> str:
    """How far a result is off, if that is too far."""
    error = np.abs(checked(row, result).astype(np.float64) - want).max() / np.abs(want).max()
    return "" if error <= row.tolerance else f"✗ differs by {error:.1e} of the largest value"


def verdict(row: Row, us: float, them: float | None, rate: float) -> str:
    """Is the goal met?"""
    if row.of == "torch" and them is None:
        return f"{row.goal} of PyTorch: not here"
    got = row.n_bytes / us / rate if row.of == "copy" else (them or 0.0) / us
    return f"{'ok' if got >= row.goal else 'short'}: {row.goal} of {'the copy' if row.of == 'copy' else 'PyTorch'}"


def line(done: Done, rate: float) -> str:
    """A row of the table."""
    row, us, them, goal = done
    cells = [
        row.name,
        f"{us * 1e3:.3f} ms",
        f"{them * 1e3:.3f} ms" if them else "",
        f"{them / us:.2f}" if them else "",
        f"{row.n_bytes / us / rate:.2f}" if row.n_bytes else "",
        f"{row.flops / us / 1e12:.1f}" if row.flops else "",
        goal,
    ]
    return f"| {' | '.join(cells)} |"


def main(given: list[str] | None = None) -> int:
    """Print the table; 1 if a result is wrong or nothing matches, 2 without the device."""
    options = arguments(given)
    target = options.device.partition(":")[0].lower()
    if why := Device.present().get(target, "no such device"):
        print(f"{options.device}: {why}")
        return 2
    picked = [r for r in rows(options.small) if not options.names or any(n in r.name for n in options.names)]
    if not picked:
        print("no such row: " + ", ".join(r.name for r in rows()))
        return 1
    torch, theirs = torch_device(options.device)
    device = Device[options.device]
    rate = copy_rate(device, waiting(device), COPY_BYTES >> 10 if options.small else COPY_BYTES, options.turns)
    beside = f"PyTorch {torch.__version__} on {theirs}" if torch is not None else f"no PyTorch column: {theirs}"
    named = ": ".join(part for part in (options.device, *Device.about(target)) if part)
    text = [
        f"{named}; {platform.platform()}; {beside}; a copy moves {rate / 1e9:.0f} GB/s; "
        f"medians of {options.turns} turns",
        "",
        HEADER,
        "|---" * (HEADER.count("|") - 1) + "|",
    ]
    print("\n".join(text), flush=True)
    is_wrong = False
    for row in picked:
        done = measure(row, options.device, torch, theirs, rate, options.turns)
        is_wrong |= "differs" in done.verdict
        text.append(line(done, rate))
        print(text[-1], flush=True)
    if options.markdown:
        write_whole(options.markdown, [("\n".join(text) + "\n").encode()])
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
