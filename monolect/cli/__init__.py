"""Run the `monolect` command.

What it is for: COMMANDS maps each command to the module that runs it. That module is imported only for its command, so
`monolect --help` needs no compiler.
What it is not: it holds no facts and no compiler logic.
Invariant: no other layer imports it, and `run` can read the output of any pass.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from monolect import __version__
from monolect.base.errors import MonolectError

# command name -> (module with `add_options(parser, name)` and `command(options)`, help text)
COMMANDS = {
    "explain": ("explain", "run a program and show its kernels: line, formulas, actions and why, loops, IR, code"),
    "run": ("run", "run passes on a file of text IR: a graph, a kernel, a program or a command buffer"),
    "bisect": (
        "bisect",
        "run a program with actions, passes and rules switched off by halves; name the first that changes its result",
    ),
    "report": ("report", "write what a line of a program computes to a file, or run such a file"),
    "export": ("export", "write a saved step as C or WebAssembly that needs no monolect"),
    "where": ("tables", "find code by a word in names, docstrings and the glossary; without a word, list every module"),
    "api": ("api", "every public name, or signature, docstring and examples of one"),
    "surface": (
        "surface.generate",
        "write the sources that follow from the methods of Tensor: in-place forms, functions",
    ),
    "torch-parity": ("surface.parity", "the names of PyTorch: present, or absent and why"),
    "ops": ("tables", "the op table, or all facts about one op"),
    "passes": ("tables", "the passes of the compiler, in order"),
    "rules": ("tables", "every named rule and action, its meaning, and the code that applies it"),
    "actions": ("tables", "the actions on the loops of a kernel, with their arguments"),
    "accuracy": ("tables", "the largest error of each function"),
    "devices": ("tables", "the devices that are present, and what is missing for the others"),
    "settings": ("tables", "every setting, its current value and its meaning"),
    "tuning": ("tables", "every number by which actions are chosen, why it has its value, and where it was measured"),
    "modules": ("tables", "every module and its purpose, from low layers to high ones"),
    "glossary": ("tables", "the field's terms, and the modules that implement them"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status. A MonolectError is printed without a traceback and gives 1."""
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
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has closed it; discard the rest of the output
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    return 0


def _parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of all commands; only the command `name` has its options."""
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
