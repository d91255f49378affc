"""The benchmark table of the CPU: monolect beside its peers, each result checked before it is timed.

    python -m benchmarks.cpu                      every row (some twenty minutes)
    python -m benchmarks.cpu --quick              a representative few, without torch.compile
    python -m benchmarks.cpu matmul "softmax 4"   a family, or the rows whose name holds a text
    python -m benchmarks.cpu --random 10 --seed 3 ten random sizes a family

A ratio above 1 means monolect is faster than the fastest peer. `compile` is its first call, `limit` its share of what
the machine can do. ✗ is a failure, told below its row; ~ marks times that other processes disturbed.
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks.cpu import machine, table
from benchmarks.cpu.families import cases, named
from benchmarks.cpu.measure import Bench, Row
from benchmarks.cpu.peers import PEERS

QUICK_ROUNDS, ROUNDS = 3, 7


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.cpu", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="families or parts of names; all rows without")
    parser.add_argument("--quick", action="store_true", help="a representative few, fewer rounds, no torch.compile")
    parser.add_argument("--rounds", type=int, help=f"rounds, {ROUNDS} by default")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N random sizes a family instead")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10**6, help="of random sizes and inputs")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--libraries", default=",".join(PEERS), help="a comma list of " + ",".join(PEERS))
    parser.add_argument("--limit", type=float, default=60.0, metavar="S", help="seconds a library gets for one answer")
    parser.add_argument(
        "--profile", action="store_true", help="show the kernels of rows that are short of their target"
    )
    parser.add_argument("--json", metavar="FILE", help="write the rows; those in FILE that are not measured now stay")
    parser.add_argument("--markdown", metavar="FILE", help="write the table, of all rows in --json if that is given")
    parser.add_argument("--list", action="store_true", help="name the rows")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list:
    """The cases that the options name."""
    found = list(cases(options.random, options.seed).values())
    if options.quick and not options.names and not options.random:
        found = [case for case in found if case.quick]
    return named(found, options.names)


def main() -> int:
    """Print the table; 1 if nothing matches."""
    options = arguments()
    picked = chosen(options)
    if options.list or not picked:
        print("\n".join(f"{case.family:12} {case.name}" for case in picked) or "no such row; --list names them")
        return 0 if picked else 1
    libraries = [lib for lib in PEERS if lib in options.libraries.split(",")]
    if options.quick or options.no_compile:
        libraries = [lib for lib in libraries if lib != "torch.compile"]
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    about, limits = machine.description(), machine.measured()
    if options.json and (before := table.read_json(options.json)).get("machine") == about:
        limits = limits.raised(before["limits"]["flops"])
    print(f"{about}; seed {options.seed}; {rounds} rounds, medians\n{limits}", flush=True)
    bench = Bench(libraries, rounds, options.limit, limits, options.random, options.seed)
    libraries = list(bench.workers)
    rows: list[Row] = []
    print(table.header(libraries), flush=True)
    try:
        for case in picked:
            rows.append(bench.measure(case, options.profile))
            print(table.line(rows[-1], libraries), flush=True)
            if options.json:
                data = table.write_json(options.json, {"machine": about, "limits": limits.as_json()}, rows[-1:])
    finally:
        bench.close()
    print(table.summary(rows))
    if options.json:
        place = {name: i for i, name in enumerate(cases())}
        rows = [Row(**r) for r in sorted(data["rows"].values(), key=lambda r: place.get(r["name"], len(place)))]
    if options.markdown:
        table.write_markdown(options.markdown, table.markdown(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
