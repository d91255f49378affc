"""Print the tables that the compiler consists of: `monolect ops`, `passes`, `rules`, `devices`, `modules` and others.

What it is for: each table is defined once, in the code. Here it is printed, or written as a page of the reference. On a
terminal, columns wrap at words. Otherwise each row is one line, for `grep` and files.
"""

import argparse
import importlib
import shutil
import sys
import textwrap
from collections.abc import Sequence

import monolect.base.settings
from monolect.backend.registry import TARGETS, Device
from monolect.base.disk.version import COMPILED
from monolect.base.errors import ArgumentError
from monolect.base.settings import TABLE, settings
from monolect.cli import glossary
from monolect.cli.devices import rows
from monolect.cli.where import RULES_HEADER, find, modules, rules
from monolect.ir.ops import ROWS, Row
from monolect.optimize.actions.plan import ACTIONS
from monolect.optimize.tuning import TABLE as TUNING
from monolect.pipeline import PIPELINE
from monolect.rules.accuracy import MAX_ULP, RUNNING_ULP, Bound

LONG = 18  # characters; a wider table column is wrapped
LEAST = 24  # characters per wrapped column; with less room, its text is printed below the row
Cells = Sequence[Sequence[object]]


def add_options(parser: argparse.ArgumentParser, title: str) -> None:
    """Add the options of the table `title`."""
    if title == "where":
        parser.add_argument("word", nargs="?", default="", help="such as winograd, PREFETCH or 'fast path'")
        parser.set_defaults(markdown=False)
        return
    parser.add_argument("--markdown", action="store_true", help="print a page of the reference")
    if title == "ops":
        parser.add_argument("name", nargs="?", help="an op, such as ADD")


def command(options: argparse.Namespace) -> None:
    """Print the table that the command names."""
    _PRINTERS[options.title](options)


def _print_table(options: argparse.Namespace, header: Sequence[str], cells: Cells) -> None:
    """Print rows as aligned columns, the last one not padded, or as a Markdown page of the reference."""
    texts = [[str(cell) for cell in row] for row in cells]
    if options.markdown:
        print(f"# {options.title.capitalize()}\n\nWritten by `make docs`, out of the table in the code.\n")
        lines = [list(header), ["---"] * len(header)] + [[cell.replace("|", "\\|") for cell in row] for row in texts]
        print("\n".join("| " + " | ".join(line) + " |" for line in lines))
        return
    if sys.stdout.isatty():
        _print_wrapped(header, texts)
        return
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    for line in [list(header), *texts]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_wrapped(header: Sequence[str], texts: Sequence[Sequence[str]]) -> None:
    """Print a table as wide as the terminal, with long columns wrapped at words, or below their row if too narrow.

    `rich` respects NO_COLOR.
    """
    console = importlib.import_module("rich.console").Console(highlight=False)
    escape = importlib.import_module("rich.markup").escape
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    long = [k for k, width in enumerate(widths) if width > LONG]
    left = console.width - sum(width + 2 for k, width in enumerate(widths) if k not in long)
    below = long if left < LEAST * len(long) else []
    table = importlib.import_module("rich.table").Table(box=None, pad_edge=False, header_style="bold")
    for k, name in enumerate(header):
        if k not in below:
            table.add_column(name, style="cyan" if k == 0 else None, overflow="fold", no_wrap=k not in long)
    for line in texts:
        table.add_row(*[escape(cell) for k, cell in enumerate(line) if k not in below])
    if not below:
        console.print(table)
        return
    pad = importlib.import_module("rich.padding").Padding
    for line in texts:
        cells = [line[k].ljust(widths[k]) for k in range(len(line)) if k not in below]
        console.print("[cyan]" + escape("  ".join(cells).rstrip()) + "[/]", no_wrap=True, overflow="fold", crop=False)
        for k in below:
            if line[k] not in ("", "-"):
                name = "" if k == len(line) - 1 else f"{header[k]}: "
                console.print(pad(escape(name + line[k]), (0, 0, 0, 4)))


def _arity(row: Row) -> str:
    if row.hi is None:
        return f"{row.lo}+"
    return str(row.lo) if row.lo == row.hi else f"{row.lo}-{row.hi}"


def _stages(row: Row) -> str:
    return " ".join(stage.name or "" for stage in row.stages)


def _ops(options: argparse.Namespace) -> None:
    if options.name is None:
        cells = [(r.name, _arity(r), r.arg, _stages(r), " ".join(sorted(r.traits)), r.prose) for r in ROWS.values()]
        _print_table(options, ("op", "sources", "arg", "stages", "traits", "meaning"), cells)
        return
    row = ROWS.get(options.name.upper())
    if row is None:
        raise ArgumentError("unknown op", expected="one of " + ", ".join(ROWS), found=options.name)
    # a compiled lambda has no name
    rules = [getattr(rule, "__name__", "<lambda>").strip("_") for rule in (row.dtype, row.shape)]
    facts = [("op", row.name), ("sources", _arity(row)), ("arg", row.arg), ("dtype rule", rules[0])]
    facts += [("shape rule", rules[1]), ("stages", _stages(row)), ("traits", " ".join(sorted(row.traits)) or "-")]
    facts += [("on values", "NumPy" if row.meaning else "-"), ("meaning", row.prose)]
    _print_table(options, ("fact", "value"), facts)


def _passes(options: argparse.Namespace) -> None:
    cells = [
        (p.name, p.reads.name, p.leaves.name, " ".join(p.removes) or "-", " ".join(p.after) or "-",
         "optional" if p.optional else "-", p.why)
        for p in PIPELINE
    ]  # fmt: skip
    _print_table(options, ("pass", "reads", "leaves", "removes", "after", "DISABLE", "why here"), cells)


def _rules(options: argparse.Namespace) -> None:
    _print_table(options, RULES_HEADER, rules())


def _actions(options: argparse.Namespace) -> None:
    cells = [
        (form, kind.subject or "kernel", "yes" if kind.is_final else "-", " ".join(kind.moves) or "-", text)
        for kind in ACTIONS.values()
        for form, text in kind.forms
    ]
    _print_table(options, ("action", "acts on", "only final ones follow", "moves of a search", "meaning"), cells)


def _accuracy(options: argparse.Namespace) -> None:
    cells: Cells = [(n, *b) for n, b in MAX_ULP.items()] + [(n, ulp, "-") for n, ulp in RUNNING_ULP.items()]
    _print_table(options, ("function", *(f"{d}, ULP" for d in Bound._fields)), cells)


def _devices(options: argparse.Namespace) -> None:
    if options.markdown:  # the reference does not depend on the devices of this machine
        modules = [(name, importlib.import_module(module)) for name, (module, _) in TARGETS.items()]
        meanings = [(module.__doc__ or "").partition("\n\n")[0].replace("\n", " ") for _, module in modules]
        page = [(name, module.__name__, text) for (name, module), text in zip(modules, meanings, strict=True)]
        _print_table(options, ("device", "module", "meaning"), page)
        return
    header = ("device", "status", "default", "dtypes", "matrix units", "compiler", "driver", "note")
    marks = {Device.default: "yes"}
    cells = [(r.name, r.status, marks.get(r.name, ""), r.dtypes, r.units, r.compiler, r.driver, r.note) for r in rows()]
    _print_table(options, header, [[cell or "-" for cell in row] for row in cells])
    text = "Floats of 8 and 16 bits work everywhere; those in () or not named are kept in memory and computed in f32."
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else len(text)
    print(textwrap.fill(text, width))
    if COMPILED:
        print("monolect itself: nodes and scheduler compiled by mypyc")


def _where(options: argparse.Namespace) -> None:
    terms = glossary.found(options.word) if options.word else []
    if terms:
        _print_table(options, ("term", "modules", "meaning"), [(t.name, " ".join(t.where), t.meaning) for t in terms])
        print()
    _print_table(options, ("location", "name", "meaning"), find(options.word, bool(terms)))


def _modules(options: argparse.Namespace) -> None:
    cells = [
        (f"`{folder}/`" if folder and not name else "", f"`{name}`" if name else "", text)
        for folder, name, text in modules()
    ]
    _print_table(options, ("folder", "module", "meaning"), cells)


def _glossary(options: argparse.Namespace) -> None:
    cells = [(t.name, t.meaning, " ".join(f"`{w}`" for w in t.where), ", ".join(t.others)) for t in glossary.TERMS]
    _print_table(options, ("term", "meaning", "modules", "other words"), cells)


def _settings(options: argparse.Namespace) -> None:
    # The reference does not depend on this process, so it has no column of current values.
    now = [] if options.markdown else ["value"]
    cells = []
    for row in TABLE:
        values = [getattr(settings, row.name) for _ in now] + [row.default]
        shown = ["-" if value == "" else value for value in values]
        cells.append([row.name, *shown, row.expected(), row.layer, row.meaning])
    _print_table(options, ["setting", *now, "default", "allowed", "layer", "meaning"], cells)
    if options.markdown:
        words = (monolect.base.settings.__doc__ or "").rpartition("\n\n")
        print("\n## Words of TRACE\n\n" + words[0].rpartition("\n\n")[2] + f"\n\n{words[2].rstrip()}")


def _tuning(options: argparse.Namespace) -> None:
    cells = [
        (f"`{c.name}`" if options.markdown else c.name, c.value, c.unit, c.why, c.measured) for c in TUNING.values()
    ]
    _print_table(options, ("constant", "value", "unit", "why", "measured on"), cells)


_PRINTERS = {
    "ops": _ops, "passes": _passes, "rules": _rules, "actions": _actions, "accuracy": _accuracy, "devices": _devices,
    "settings": _settings, "modules": _modules, "glossary": _glossary, "where": _where, "tuning": _tuning,
}  # fmt: skip


__all__ = ["add_options", "command"]
