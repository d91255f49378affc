"""The `monolect` command.

What it is for: COMMANDS names each command and the module that runs it. That module is imported when its command is
asked for, so `monolect --help` needs no compiler.
What it is not: it holds no facts and no compiler logic.
Invariant: nothing imports it, and `run` reads what it printed after any pass.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from monolect import __version__
from monolect.base.errors import MonolectError

# name: the module that has `add_options(parser, name)` and `command(options)`, and what the command does
COMMANDS = {
    "explain": ("explain", "run a program and show its kernels: line, formulas, actions and why, loops, IR, code"),
    "run": ("run", "run passes on a file of text IR: a graph, a kernel, a program or a command buffer"),
    "bisect": (
        "bisect",
        "run a program with actions, passes and rules switched off by halves; name the first that changes its result",
    ),
    "report": ("report", "write what a line of a program computes to a file, or run such a file"),
    "export": ("export", "write a saved step as C or WebAssembly that needs no monolect"),
    "where": ("tables", "the code about a word; without one, every module, class and function with a docstring"),
    "ops": ("tables", "the op table, or all about one op"),
    "passes": ("tables", "the passes of the compiler, in order"),
    "rules": ("tables", "every named rule and action: what it says, which code applies it"),
    "accuracy": ("tables", "the largest error of each function"),
    "devices": ("tables", "the devices that are here, and what the others miss"),
    "settings": ("tables", "every setting, its value now and its meaning"),
    "modules": ("tables", "every module and what it is for, from low layers to high ones"),
    "glossary": ("tables", "the field's terms, and the modules that do what they name"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status. Errors of monolect's own tree are printed, without a traceback."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    own = given.index("--") if given[:1] == ["report"] and "--" in given else len(given)
    try:
        options = _parser(given[0] if given else "").parse_args(given[:own])
        options.passed_on = given[own + 1 :]  # argparse takes no options between two groups of positional arguments
        options.command(options)
        sys.stdout.flush()
    except MonolectError as error:
        print(f"monolect: {error.describe()}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough; nothing is left to say at exit
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    return 0


def _parser(name: str) -> argparse.ArgumentParser:
    """The parser of all commands, with the options of the command `name`."""
    text = "Explain programs, run passes on text IR, and print the tables that the compiler is made of."
    parser = argparse.ArgumentParser(prog="monolect", description=text)
    parser.add_argument("--version", action="version", version=f"monolect {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    for title, (module, text) in COMMANDS.items():
        one = commands.add_parser(title, help=text, description=text)
        if title == name:
            found = import_module(f"monolect.cli.{module}")
            found.add_options(one, title)
            one.set_defaults(command=found.command, title=title)
    return parser


__all__ = ["COMMANDS", "main"]
