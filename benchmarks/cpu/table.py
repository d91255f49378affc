"""Rows as text while they are measured, as JSON, and as the table of a Markdown page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.cpu.measure import Row
from benchmarks.cpu.peers import PEERS
from benchmarks.cpu.quiet import DISTURBED_CORES

BEGIN, END = "<!-- table: written by benchmarks/cpu -->", "<!-- end of table -->"
NAME_WIDTH, CELL_WIDTH, BEST_WIDTH = 38, 14, 20


def duration(seconds: float) -> str:
    """Three figures and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1 or unit == "us":
            value = seconds * scale
            return f"{value:.{max(0, 2 - (value >= 10) - (value >= 100))}f} {unit}"
    raise AssertionError("unreachable")


def cell(row: Row, library: str) -> str:
    """A time (with ~ where other processes disturbed it), ✗ for a failure, nothing where there are no words for it."""
    if library not in row.median:
        return "✗" if library in row.failed else ""
    return duration(row.median[library]) + "~" * (row.others.get(library, 0.0) > DISTURBED_CORES)


def verdict(row: Row) -> list[str]:
    """Best peer with the ratio, the targets missed, and the share of what the machine can do."""
    peer = row.best([p for p in row.median if p != "monolect"])
    best = f"{row.ratio(peer):.2f} {peer}" if peer is not None else ""
    if "monolect" not in row.median:
        return [best and f"- {peer}", "no result", ""]
    share = f"{100 * row.bound_s / row.median['monolect']:.0f} %" if row.bound_s else ""
    return [best, "short: " + ", ".join(row.short_of()) if row.short_of() else "ok", share]


def header(libraries: list[str]) -> str:
    return spread("work", [*libraries, "compile"], "best peer", "limit", "target")


def spread(name: str, cells: list[str], best: str, share: str, target: str) -> str:
    """One line of the text table."""
    row = f"{name:{NAME_WIDTH}}" + "".join(f"{c:>{CELL_WIDTH}}" for c in cells)
    return f"{row}{best:>{BEST_WIDTH}}{share:>8}  {target}"


def line(row: Row, libraries: list[str]) -> str:
    """One row of the text table, then a line for each failure."""
    best, target, share = verdict(row)
    compiled = f"{row.first['monolect']:.2f} s" if "monolect" in row.first else ""
    out = [spread(row.name, [*[cell(row, lib) for lib in libraries], compiled], best, share, target)]
    out += [f"    {library} ✗ {' '.join(reason.split())[:300]}" for library, reason in row.failed.items()]
    return "\n".join([*out, row.profile] if row.profile else out)


def summary(rows: list[Row]) -> str:
    """How many rows stand where."""
    without = [row for row in rows if "monolect" not in row.median]
    short = [row for row in rows if row not in without and row.short_of()]
    return f"{len(rows)} rows: {len(rows) - len(short) - len(without)} ok, {len(short)} short, {len(without)} no result"


def read_json(path: str) -> dict[str, Any]:
    """A run, or the rows of several: `write_json` keeps what is not measured anew."""
    file = Path(path)
    return json.loads(file.read_text()) if file.exists() else {"rows": {}}


def write_json(path: str, about: dict[str, Any], rows: list[Row]) -> dict[str, Any]:
    """Put the rows into the file beside those that it has."""
    data = read_json(path)
    data |= about
    data["rows"] |= {row.name: row.as_json() for row in rows}
    Path(path).write_text(json.dumps(data, indent=1, ensure_ascii=False))
    return data


def markdown(rows: list[Row]) -> str:
    """One table a family, with the libraries that ran; a ratio that misses its target is bold."""
    libraries, out = [lib for lib in PEERS if any(lib in row.median | row.failed for row in rows)], []
    for family in dict.fromkeys(row.family for row in rows):
        cells = ["work", *libraries, "compile", "ratio to best peer", "of the limit", "target"]
        out += ["", f"### {family}", "", "| " + " | ".join(cells) + " |", "|" + "---|" * len(cells)]
        for row in (r for r in rows if r.family == family):
            best, target, share = verdict(row)
            compiled = f"{row.first['monolect']:.2f} s" if "monolect" in row.first else ""
            best = f"**{best}**" if target != "ok" else best
            cells = [row.name, *[cell(row, lib) for lib in libraries], compiled, best, share, target]
            out.append("| " + " | ".join(cells) + " |")
        failures = [
            f"- {r.name}, {lib}: {' '.join(why.split())[:200]}"
            for r in rows
            for lib, why in r.failed.items()
            if r.family == family
        ]
        out += ["", *failures] if failures else []
    return "\n".join(out[1:])


def write_markdown(path: str, text: str) -> None:
    """Replace what stands between the two marks; a file without them becomes just the table."""
    file = Path(path)
    before, _, rest = (file.read_text() if file.exists() else "").partition(BEGIN)
    after = rest.partition(END)[2]
    file.write_text(f"{before if rest else ''}{BEGIN}\n{text}\n{END}{after or chr(10)}")
