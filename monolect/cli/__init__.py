"""The `monolect` command: prints the tables the compiler is made of, runs passes on text IR, and explains programs.

What it is for: `monolect ops|passes|rules|accuracy|devices|settings|modules|glossary` show the one table that states each fact; `run`
takes a kernel through some of the passes; `explain` runs a program and shows its kernels; `where` finds code by words;
`export` writes a saved step as a program of its own.
What it is not: it holds no facts and no compiler logic.
Invariant: nobody imports it, and what `run` prints after a pass is text that `run` reads.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence

import monolect.base.settings
from monolect.backend.registry import TARGETS, Device
from monolect.base.disk.version import COMPILED
from monolect.base.errors import ArgumentError, MonolectError
from monolect.base.settings import TABLE, settings
from monolect.cli import glossary
from monolect.cli.bisect import KINDS, bisect, program_at
from monolect.cli.devices import rows
from monolect.cli.explain import explain
from monolect.cli.export import add_options, export_file
from monolect.cli.report import is_report, replay, report
from monolect.cli.rules import HEADER, rules
from monolect.cli.run import run
from monolect.cli.where import modules, places
from monolect.ir.ops import ROWS, Row
from monolect.pipeline import PIPELINE
from monolect.rules.accuracy import MAX_ULP, RUNNING_ULP, Bound

Cells = Sequence[Sequence[object]]
Command = Callable[[argparse.Namespace], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status. Errors of monolect's own tree are printed, without a traceback."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    own = given.index("--") if given[:1] == ["report"] and "--" in given else len(given)
    options = _parser().parse_args(given[:own])
    options.passed_on = given[own + 1 :]  # argparse takes no options between two groups of positional arguments
    try:
        options.command(options)
        sys.stdout.flush()
    except MonolectError as error:
        print(f"monolect: {error.describe()}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough; nothing is left to say at exit
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    return 0


def _parser() -> argparse.ArgumentParser:
    text = "Print the tables the compiler is made of, run passes on text IR, or show the kernels of a program."
    parser = argparse.ArgumentParser(prog="monolect", description=text)
    commands = parser.add_subparsers(required=True, metavar="command")

    def add(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=command, title=name)
        return made

    tables = {
        "ops": add("ops", _ops, "the op table, or all about one op"),
        "passes": add("passes", _passes, "the order of the compiler"),
        "rules": add("rules", _rules, "every named rule and action: what it says, which code applies it"),
        "accuracy": add("accuracy", _accuracy, "the largest error of each function"),
        "devices": add("devices", _devices, "the devices that are here, and what the others miss"),
        "modules": add("modules", _modules, "every module and what it is for, from low layers to high ones"),
        "glossary": add("glossary", _glossary, "the field's terms, and the modules that do what they name"),
        "settings": add("settings", _settings, "every setting, its value now and its meaning"),
    }
    for table in tables.values():
        table.add_argument("--markdown", action="store_true", help="print a page of the reference")
    tables["ops"].add_argument("name", nargs="?", help="an op, such as ADD")

    where = add("where", _where, "which code is about a word; without one, every module and what it is for")
    where.add_argument("word", nargs="?", default="", help="such as winograd, PREFETCH or 'usual call'")
    where.set_defaults(markdown=False)

    made = add("run", run, "run passes on a file of text IR: a graph, a kernel, a program or a command buffer")
    made.add_argument("file", help="text IR; - reads standard input")
    names = ", ".join(row.name for row in PIPELINE)
    made.add_argument("--from", dest="first", metavar="PASS", default="", help=f"one of {names}")
    made.add_argument("--to", dest="last", metavar="PASS", default="", help="the last pass to run")
    made.add_argument("--device", default=settings.DEVICE, help="the device to compile for")
    text = "run what is left on arrays: SLOT=FILE.npy, VARIABLE=NUMBER"
    made.add_argument("--inputs", nargs="*", metavar="SLOT=FILE", help=text)
    made.add_argument("--outputs", default="", metavar="FOLDER", help="write the results there, as .npy files")
    made.add_argument("--kernels", action="store_true", help="print the kernels of a graph after each pass, too")

    reported = add("report", _report, "write what a line of a program computes to a file, or run such a file")
    reported.add_argument("place", metavar="FILE.py[:LINE]|BUG.ir", help="the program and the line, or a report to run")
    reported.add_argument("-o", dest="output", metavar="BUG.ir", default="bug.ir", help="the file to write")
    reported.add_argument("--no-data", action="store_true", help="random numbers in place of the inputs")
    reported.usage = "monolect report [-o BUG.ir] [--no-data] FILE.py[:LINE] [-- ARGUMENT ...]"
    add_options(add("export", export_file, "write a saved step as C or WebAssembly that needs no monolect"))
    text = "run a program with actions, passes and rules switched off by halves; name the first that changes its result"
    bisected = add("bisect", _bisect, text)
    text = "compare the arrays in these files (.npy, .npz, .safetensors), which each run writes, not what is printed"
    bisected.add_argument("--outputs", action="append", default=[], metavar="FILE", help=text)
    text = "floats that differ by this part of the largest number of the line or array are the same; 0: bits count"
    bisected.add_argument("--rtol", type=float, default=1e-4, help=text)
    bisected.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="of each run")
    bisected.add_argument("--skip", default="", metavar="NAMES", help="names that stay on, with commas between them")
    bisected.add_argument("--only", choices=KINDS, help="switch off only rules, passes or actions")
    bisected.add_argument("program", metavar="FILE.py", help="the program")
    bisected.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to the program")

    explained = add(
        "explain", _explain, "run a program and show its kernels: line, formulas, actions and why, loops, IR, code"
    )
    explained.add_argument("--brief", action="store_true", help="leave out the IR and the generated code")
    explained.add_argument("place", metavar="FILE.py[:LINE]", help="the program, and the line whose kernels to show")
    explained.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to the program")
    return parser


# ---- tables ----------------------------------------------------------------------------------------------------------
def _print_table(options: argparse.Namespace, header: Sequence[str], cells: Cells) -> None:
    """Print rows as aligned columns, the last one ragged, or as a page of the reference."""
    texts = [[str(cell) for cell in row] for row in cells]
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
    _print_table(options, HEADER, rules())


def _accuracy(options: argparse.Namespace) -> None:
    cells: Cells = [(n, *b) for n, b in MAX_ULP.items()] + [(n, ulp, "-") for n, ulp in RUNNING_ULP.items()]
    _print_table(options, ("function", *(f"{d}, ULP" for d in Bound._fields)), cells)


def _devices(options: argparse.Namespace) -> None:
    if options.markdown:  # what is present here is no part of the reference
        modules = [(name, importlib.import_module(module)) for name, (module, _) in TARGETS.items()]
        meanings = [(module.__doc__ or "").partition("\n\n")[0].replace("\n", " ") for _, module in modules]
        page = [(name, module.__name__, text) for (name, module), text in zip(modules, meanings, strict=True)]
        _print_table(options, ("device", "module", "meaning"), page)
        return
    header = ("device", "status", "default", "dtypes", "matrix units", "compiler", "driver", "note")
    marks = {Device.default: "yes"}
    cells = [(r.name, r.status, marks.get(r.name, ""), r.dtypes, r.units, r.compiler, r.driver, r.note) for r in rows()]
    _print_table(options, header, [[cell or "-" for cell in row] for row in cells])
    print("Floats of 8 and 16 bits work everywhere; those in () or not named are kept in memory and computed in f32.")
    if COMPILED:
        print("monolect itself: nodes and scheduler compiled by mypyc")


def _where(options: argparse.Namespace) -> None:
    terms = glossary.found(options.word) if options.word else []
    if terms:
        _print_table(options, ("term", "modules", "meaning"), [(t.name, " ".join(t.where), t.meaning) for t in terms])
        print()
    _print_table(options, ("place", "name", "meaning"), places(options.word, bool(terms)))


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
    # A page of the reference holds what is true everywhere, so the value of this process stays out of it.
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


# ---- passes ----------------------------------------------------------------------------------------------------------
def _report(options: argparse.Namespace) -> None:
    if is_report(options.place):
        replay(options.place)
    else:
        report(options.place, options.passed_on, options.output, not options.no_data)


def _explain(options: argparse.Namespace) -> None:
    explain(options.place, options.arguments, options.brief)


def _bisect(options: argparse.Namespace) -> None:
    program = program_at(options.program, options.arguments, options.outputs, options.rtol, options.timeout)
    bisect(program, list(filter(None, options.skip.split(","))), (options.only,) if options.only else KINDS)
