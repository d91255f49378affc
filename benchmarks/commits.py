"""The benchmark table of the CPU for two commits of monolect: has a row become slower?

    python -m benchmarks.commits REV                  every row, these sources against those of REV
    python -m benchmarks.commits REV matmul "softmax" a family, or the rows whose name holds a text

Three processes take turns in each round: these sources, those of REV, and those of REV once more as the control. A row
whose object code is equal in both is not timed. A row is slower when in every run its
median time exceeds that of REV by the factor `LIMIT` and by more than the control does; a row that keeps the limit in
a run is not measured again. The exit status is 1 when a row is slower, wrong or failed, or the geometric mean of a
family is above `FAMILY_LIMIT`.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import math
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cpu import machine
from benchmarks.cpu.case import Case
from benchmarks.cpu.families import cases, named
from benchmarks.cpu.measure import ROOT, Bench, Worker


def _elf() -> Any:
    """The reader of object files; older commits have it in another folder."""
    for name in ("monolect.backend.common.host.elf", "monolect.backend.common.elf"):
        with suppress(ModuleNotFoundError):
            return import_module(name)
    raise ModuleNotFoundError("no reader of object files")


LIMIT = 1.04  # ratio of a row's median time to that of the other commit, from which on the row may be slower
FAMILY_LIMIT = 1.02  # ratio of the geometric mean of a family's rows
HEADER_BYTES = 32  # of a cache entry, before the object code
NEW, OLD, CONTROL = "new", "old", "control"


class Ratio(NamedTuple):
    """Median times of one run: that of the new commit by that of the old one, and that of the old one by itself."""

    new: float
    control: float


def is_slower(runs: list[Ratio]) -> bool:
    """Whether every run exceeds the limit and what the control shows of noise."""
    return bool(runs) and all(r.new > LIMIT and r.new > r.control for r in runs)


def code_of(cache: Path) -> Counter[str]:
    """The digests of the loaded sections of all object code in a cache folder: symbols name the compiler's version."""
    entries = (entry.read_bytes()[HEADER_BYTES:] for entry in cache.glob("cpu/*") if entry.is_file())
    return Counter(hashlib.blake2b(loaded(data)).hexdigest() for data in entries if data.startswith(b"\x7fELF"))


def loaded(data: bytes) -> bytes:
    """The sections of an object that a process loads, one after the other."""
    return b"".join(data[s.offset : s.offset + s.size] for s in _elf().parse_object(data).sections if s.is_loaded)


class Commits(Bench):
    """One case by fresh processes of both commits, each with an empty cache of its own."""

    def __init__(self, old: Path, folder: Path, rounds: int, limit_s: float, seed: int) -> None:
        super().__init__([], rounds, limit_s, machine.Limits({"f32": 1.0}, read=1.0, copy=1.0), 0, seed)
        roots = {NEW: ROOT, OLD: old, CONTROL: old}
        self.caches = {name: folder / f"cache-{name}" for name in roots}
        self.workers = {n: Worker("monolect", 0, seed, str(self.caches[n]), root) for n, root in roots.items()}

    def compare(self, case: Case, runs: int) -> tuple[list[Ratio], str]:
        """The runs, none where the object code is equal, and what went wrong in one of the processes."""
        found: list[Ratio] = []
        while len(found) < runs and (not found or is_slower(found)):
            row, ready = self.prepared(case)
            is_equal = code_of(self.caches[NEW]) == code_of(self.caches[OLD])
            if not row.failed and not is_equal:
                self.take_rounds(row, ready)
            self.renew()
            if row.failed:
                return found, "; ".join(f"{name}: {reason}" for name, reason in row.failed.items())
            if is_equal:
                return [], ""
            found.append(Ratio(row.median[NEW] / row.median[OLD], row.median[CONTROL] / row.median[OLD]))
        return found, ""

    def renew(self) -> None:
        """Give the next case new processes and empty caches."""
        for worker in self.workers.values():
            worker.stop()
        for cache in self.caches.values():
            shutil.rmtree(cache, ignore_errors=True)


def sources(revision: str, folder: Path) -> Path:
    """The tree of a commit, under `folder`."""
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder / "old", filter="data")
    return folder / "old"


def line(case: Case, runs: list[Ratio], failure: str) -> str:
    """One row of the table."""
    if failure:
        found = f"failed: {failure}"
    elif not runs:
        found = "equal code"
    else:
        found = "  ".join(f"{r.new:.3f} ({r.control:.3f})" for r in runs) + ("  slower" if is_slower(runs) else "")
    return f"{case.family:12} {case.name:44} {found}"


def main() -> int:
    """Print the rows and the geometric means; 1 where something is slower or failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("revision", help="the commit to compare with")
    parser.add_argument("names", nargs="*", help="families or parts of names; all rows without")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of a run")
    parser.add_argument("--runs", type=int, default=3, help="runs of a row that exceeds the limit")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    parser.add_argument("--limit", type=float, default=60.0, metavar="S", help="seconds a process gets for one answer")
    options = parser.parse_args()
    wanted = named(cases(0, options.seed).values(), options.names)
    is_bad = False
    families: dict[str, list[float]] = {}
    print(f"{machine.description()}; time by that of {options.revision}, the control in parentheses", flush=True)
    with tempfile.TemporaryDirectory(prefix="monolect-commits-") as name:
        folder = Path(name)
        bench = Commits(sources(options.revision, folder), folder, options.rounds, options.limit, options.seed)
        try:
            for case in wanted:
                runs, failure = bench.compare(case, options.runs)
                is_bad |= bool(failure) or (len(runs) >= options.runs and is_slower(runs))
                families.setdefault(case.family, []).append(statistics.median(r.new for r in runs) if runs else 1.0)
                print(line(case, runs, failure), flush=True)
        finally:
            bench.close()
    for family, ratios in families.items():
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        is_bad |= mean > FAMILY_LIMIT
        print(f"{family:12} geometric mean of {len(ratios)} rows: {mean:.3f}")
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
