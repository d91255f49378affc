"""The `monolect` command: prints the tables the compiler is made of.

What it is for: `monolect ops|settings` show the one table that states each fact. What it is not: it holds no facts and
no compiler logic; it reads the tables. Invariant: nobody imports it.
"""

import argparse
import sys
from collections.abc import Sequence

from monolect.base.errors import ArgumentError, MonolectError
from monolect.base.settings import TABLE, settings
from monolect.ir.ops import ROWS, Row

Rows = Sequence[Sequence[object]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status. Errors of monolect's own tree are printed, without a traceback."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except MonolectError as error:
        print(f"monolect: {error.describe()}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
        sys.stderr.close()
        return 0
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="monolect", description="Print the tables the compiler is made of.")
    commands = parser.add_subparsers(required=True, metavar="command")
    ops = _add(commands, "ops", _ops, "the op table, or all about one op")
    ops.add_argument("name", nargs="?", help="an op, such as ADD")
    _add(commands, "settings", _settings, "every setting, its value now and its meaning")
    return parser


def _add(commands, name: str, run, text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.add_argument("--markdown", action="store_true", help="print a Markdown page")
    command.set_defaults(run=run, title=name)
    return command


def _print_table(options: argparse.Namespace, header: Sequence[str], rows: Rows) -> None:
    """Print rows as aligned columns, the last one ragged, or as a page of the reference."""
    texts = [[str(cell) for cell in row] for row in rows]
    if options.markdown:
        print(f"# {options.title.capitalize()}\n\nWritten by `make docs`, out of the table in the code.\n")
        lines = [list(header), ["---"] * len(header)] + [[cell.replace("|", "\\|") for cell in row] for row in texts]
        print("\n".join("| " + " | ".join(line) + " |" for line in lines))
        return
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    for line in [list(header), *texts]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


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
        raise ArgumentError(f"unknown op {options.name}", expected="one of " + ", ".join(ROWS), found=options.name)
    rules = (row.dtype.__name__.strip("_"), row.shape.__name__.strip("_"))
    facts = [("op", row.name), ("sources", _arity(row)), ("arg", row.arg), ("dtype rule", rules[0])]
    facts += [("shape rule", rules[1]), ("stages", _stages(row)), ("traits", " ".join(sorted(row.traits)) or "-")]
    facts += [("on values", "NumPy" if row.meaning else "-"), ("meaning", row.prose)]
    _print_table(options, ("fact", "value"), facts)


def _settings(options: argparse.Namespace) -> None:
    # A page of the reference holds what is true everywhere, so the value of this process stays out of it.
    now = [] if options.markdown else ["value"]
    cells = []
    for row in TABLE:
        values = [getattr(settings, row.name) for _ in now] + [row.default]
        shown = ["-" if value == "" else value for value in values]
        cells.append([row.name, *shown, row.expected(), row.layer, row.meaning])
    _print_table(options, ["setting", *now, "default", "allowed", "layer", "meaning"], cells)
