"""Find the actions of kernels for BEAM=n, from the cache or by a search; show progress and a summary.

What it is not: the search itself is in `optimize.search.beam`, timing in `runtime.search.bench`. The heuristic's choice
stays for a device whose programs cannot be sent to another process (`backend.base.Portable`), and for a kernel whose
search fails.

Invariant: a search changes no result and raises nothing. Its result is cached by the kernel, the target, the sizes of
its caches, the compiler's version and the width, and is checked before use. A search that failed, for example for lack
of memory, causes a warning and is not cached: this process does not repeat it, another process does.
"""

from __future__ import annotations

import ast
import os
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from monolect.backend.base import Portable
from monolect.base.disk.cache import DiskCache
from monolect.base.disk.version import compiler_version
from monolect.base.errors import ActionError, DeviceError, MonolectError
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.check.custom_kernels import has_axes
from monolect.ir.digest import digest
from monolect.ir.ops import KernelInfo
from monolect.ir.uop import UOp, node, toposort
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.apply import kernel_name
from monolect.optimize.cpu.heuristic import choose
from monolect.optimize.search.beam import Found, search
from monolect.optimize.search.moves import Move, replay
from monolect.runtime.realize.locks import running
from monolect.runtime.search.bench import ProcessBench
from monolect.runtime.search.bench_buffers import fits
from monolect.runtime.search.worker_pool import close_shared_pool, shared_pool

cache = DiskCache("search", measured=True)
known: dict[str, Move] = {}  # by key: actions that this process found or read
failed: set[UOp] = set()  # kernels whose search failed in this process


def tuned(sinks: Sequence[UOp], device: Any) -> list[UOp]:
    """Return kernels that are ready for `choose`, each with the actions that a search found in its KernelInfo.

    They are unchanged if the programs of `device` cannot be sent to another process, and on Windows.
    """
    if not isinstance(device, Portable) or sys.platform == "win32":  # `selectors` waits for pipes on POSIX only
        return list(sinks)
    with running.lock, ProgressBar(len(sinks)) as shown:
        return [_tuned(s, device, shown) for s in sinks]


def _tuned(sink: UOp, device: Any, shown: ProgressBar) -> UOp:
    """Return the kernel with the actions of a search in its KernelInfo; unchanged if its actions are fixed, or if the
    heuristic shall choose them.
    """
    info = sink.arg or KernelInfo()
    if info.actions is not None or info.frozen:  # frozen: the kernels that pack and read constants need one plan
        return sink
    if has_axes(toposort(sink)):
        return sink
    actions = _actions(sink, device, shown)
    return sink if actions is None else node("SINK", sink.src, info._replace(actions=actions))


def _actions(sink: UOp, device: Any, shown: ProgressBar) -> Move | None:
    """Return the actions for a kernel; None to leave them to the heuristic."""
    target = device.target
    caches = (
        target.l1_bytes,
        target.l2_bytes,
        target.l3_bytes,
    )  # processors of one target key may share a cache folder
    setting_key = f"{settings.BEAM}/{settings.TF32}{settings.switches}"
    key = f"{digest(sink)}/{target.key}/{caches}/{compiler_version()}/{setting_key}"
    found = known.get(key)
    if found is None:
        found = read(cache.get(key), sink, target)
    if found is None and sink not in failed:
        found = _search(sink, device, shown)
        if found is None:
            failed.add(sink)
        else:
            cache.put(key, repr(found).encode())
    if found is not None:
        known[key] = found
        if "actions" in settings.tracing:
            what = kernel_name(LoopPlan(sink, target))
            print("".join(f"  {what}: {a}  # found by BEAM={settings.BEAM}\n" for a in found), end="", file=sys.stderr)
    return found


def read(entry: bytes | None, sink: UOp, target: Target) -> Move | None:
    """Return the actions of a cache entry; None for a missing or corrupt entry. For actions that are no longer legal,
    return the heuristic's.
    """
    if entry is None:
        return None
    try:
        actions = ast.literal_eval(entry.decode())
        replay(sink, target, actions)
    except ActionError:
        return heuristic(sink, target)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return tuple(actions)


def heuristic(sink: UOp, target: Target) -> Move:
    """Return the actions that the heuristic chooses."""
    plan = LoopPlan(sink, target)
    choose(plan)
    return tuple(plan.actions)


def _search(sink: UOp, device: Any, shown: ProgressBar) -> Move | None:
    """Search actions for a kernel; return None and warn if that fails. A kernel whose buffers are too large gets the
    heuristic's actions.
    """
    start, target = time.perf_counter(), device.target
    what = kernel_name(LoopPlan(sink, target))
    if not fits(sink):
        return heuristic(sink, target)
    shown.kernel(what)
    try:
        bench = ProcessBench(shared_pool(device.name, target, n_cores()), shown.step)
        try:
            found = search(sink, target, heuristic(sink, target), settings.BEAM, bench, shown.text)
        finally:
            bench.close()
        if found.n_rounds == 0:  # even the heuristic's plan could not be timed
            why = "; ".join(f"{f.kind}: {f.text}" for f in bench.failures)
            raise DeviceError(
                "the heuristic's plan cannot be timed, so there is no search",
                expected="a candidate that runs",
                found=why,
            )
    except Exception as error:  # includes errors of the compiler: the program runs with the heuristic's actions
        why = f", please report: {type(error).__name__}: {error}"
        if isinstance(error, MonolectError):
            why = f": {error.describe()}"
        warnings.warn(f"BEAM: {what} keeps the heuristic's actions{why}", RuntimeWarning, stacklevel=2)
        return None
    except BaseException:
        close_shared_pool()  # Ctrl-C: a worker may have sent half of an answer
        raise
    _summary(what, found, bench, time.perf_counter() - start)
    return found.actions


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _summary(what: str, found: Found, bench: ProcessBench, seconds: float) -> None:
    """Print a line about a search for DEBUG=3; warn about candidates with wrong results."""
    wrong = [f for f in bench.failures if f.kind == "wrong"]
    if "actions" in settings.tracing:
        gain = f"{1 / found.ratio:.2f} times as fast as the heuristic's" if found.ratio < 1 else "the heuristic's stay"
        text = f"  {what}: searched {seconds:.1f} s, {found.n_rounds} rounds, {bench.n_timed} timed,"
        print(f"{text} {len(bench.failures)} failed: {gain}", file=sys.stderr)
        for f in bench.failures:
            print(f"    {f.kind}: {f.text.splitlines()[0] if f.text else ''} {f.actions}", file=sys.stderr)
    if wrong:
        text = "; ".join(f"{f.actions}: {f.text}" for f in wrong[:3])
        message = f"BEAM: {len(wrong)} plans of {what} change its result, please report: {text}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


class ProgressBar:
    """A progress bar of the searches; it shows nothing without a terminal or with PROGRESS=0."""

    def __init__(self, n_kernels: int):
        self.n_kernels, self.n = n_kernels, 0
        self.bar: Progress | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def kernel(self, name: str) -> None:
        """Show that the search of the next kernel begins."""
        self.n += 1
        if self.bar is None and settings.PROGRESS and sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[best]}"))
            console = Console(stderr=True, no_color=bool(settings.NO_COLOR))
            self.bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
            self.bar.start()
            self.bar.add_task("", best="")
        if self.bar is not None:
            text = f"search {self.n}/{self.n_kernels} {name}"
            self.bar.update(self.bar.task_ids[0], description=text, completed=0, best="")

    def step(self, done: int, total: int) -> None:
        """Show that `done` of the `total` steps of a round are done."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=done, total=total)

    def text(self, best: str) -> None:
        """Show the best result at the end of a round."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], best=best)


__all__ = ["ProgressBar", "heuristic", "n_cores", "read", "tuned"]
