"""Run `monolect export`: write a saved step as a folder of C or WebAssembly."""

from __future__ import annotations

import argparse
import os

from monolect.backend.c.cross_targets import MACHINES, MAX_THREADS
from monolect.base.errors import FileFormatError
from monolect.capture.jit import jit
from monolect.export.write import TARGETS, export


def add_options(parser: argparse.ArgumentParser, title: str) -> None:
    """Add the options of `monolect export` to `parser`. `title` is the command's name, which this module ignores."""
    parser.add_argument("file", help="a saved step, from `step.save`")
    parser.add_argument("-o", dest="folder", required=True, help="the folder to make")
    parser.add_argument("--target", default="c", help=" or ".join(TARGETS))
    known = ", ".join(["native", *filter(None, MACHINES)])
    parser.add_argument("--march", default="", help=f"the processor to compile C for: {known}; default: any")
    parser.add_argument("--threads", type=int, default=1, help=f"threads of the C program, 1 to {MAX_THREADS}")
    parser.add_argument("--weights", default="file", help="file: a separate file; array: a C array")
    parser.add_argument("--name", default="model", help="name of the files and prefix of the functions")
    parser.add_argument("--capture", type=int, help="number of the capture, if the step has several")


def command(options: argparse.Namespace) -> None:
    """Write the folder and print its files."""
    try:
        step = jit.load(options.file, device="cpu")  # a step fits any target, and this one needs no compiler
    except OSError as e:
        raise FileFormatError("cannot read a saved step", expected="a readable file", found=f"{e}") from None
    keys = ("target", "march", "threads", "weights", "name", "capture")
    export(step, options.folder, **{k: getattr(options, k) for k in keys})
    for name in sorted(os.listdir(options.folder)):
        print(f"{name}, {os.path.getsize(os.path.join(options.folder, name))} bytes")


__all__ = ["add_options", "command"]
