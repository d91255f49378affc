"""List the public names of the library: `monolect api`, `monolect api Tensor.sum`, `monolect api tensor --markdown`.

What it is for: `public()` enumerates the public names once, for the command, for the pages of the reference and for the
test that each name has an executed example. A page is made from the docstrings, so it cannot be out of date.
What it is not: it parses no source. Operators (`__add__` and others) are methods of Python, not names of a reference.
"""

import argparse
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import monolect
import monolect.array_api
import monolect.func
import monolect.functions
import monolect.linalg
import monolect.nn.functional
import monolect.special
from monolect import Tensor, nn, optim, random
from monolect.base.errors import ArgumentError
from monolect.capture.jit import Jit
from monolect.interop import safetensors

OF_A_LAYER = ("forward", "extra_repr")  # methods of a layer that the docstring of its class describes
PAGES = (
    "monolect",
    "tensor",
    "functions",
    "nn",
    "optim",
    "data",
    "random",
    "array_api",
    "errors",
)  # docs/reference/api/; the site adds `page(name)` to each
TOPICS = {
    "tensor": "The class", "backward": "Gradients", "hooks": "Hooks of gradients",
    "creation": "Creation",
    "signals": "Windows of signals", "conversions": "Conversions and dtypes",
    "copies": "Copies and devices", "devices": "Several devices",
    "methods": "Random numbers", "elementwise": "Operators", "functions": "Functions of elements", "casts": "Casts",
    "movement": "Shapes", "index": "Indexing", "reduce": "Reductions", "scan": "Running reductions",
    "sort": "Sorting", "linalg": "Products", "in_place": "In place", "in_place_forms": "In place, of methods",
    "selection": "Selection by values", "arrangement": "Splits and joins", "pointwise": "Special functions",
    "statistics": "Statistics", "products": "Norms and added products", "exchange": "Other libraries",
    "conv": "Convolution", "pool": "Pooling", "norm": "Normalisation", "loss": "Losses",
    "adaptive": "Adaptive pooling", "unpool": "Other pools", "interpolate": "Resizing", "grid": "Samples of a grid",
    "fold": "Folds and shuffles", "margins": "Losses of margins", "alignment": "Losses of alignments",
    "distance": "Distances", "tables": "Embeddings", "gates": "Gates", "drop": "Dropout of channels",
}  # module of a method of Tensor -> its section; in the order of the page  # fmt: skip


SPACES = (
    ("optim", optim), ("optim", optim.lr_scheduler), ("nn", optim.swa_utils), ("optim", monolect.amp), ("nn", nn.utils),
    ("monolect", monolect.func), ("nn", nn.utils.rnn), ("nn", nn.utils.stateless),
    ("nn", nn.utils.parametrize), ("optim", nn.utils.prune), ("nn", nn.utils.fusion),
    ("nn", nn.utils.parametrizations), ("nn", nn.utils.checkpoint),
    ("nn", nn.init), ("data", monolect.data), ("data", nn.state), ("data", nn.datasets), ("data", safetensors),
    ("random", random), ("array_api", monolect.array_api),
    ("array_api", monolect.array_api.linalg),
)  # namespaces of functions and classes: (page, module)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A public name: its page, its section there, its object, and the class of a method or property."""

    page: str
    section: str
    name: str
    value: Any
    owner: type | None = None

    @property
    def text(self) -> str:
        """Return the docstring."""
        return inspect.getdoc(self.value) or ""

    @property
    def inherited(self) -> bool:
        """Return whether a base class of the owner has an entry of its own for this method."""
        bases = self.owner.__mro__[1:] if self.owner else ()
        of_it = self.name.rpartition(".")[2]
        return any(base in (nn.Module, optim.Optimizer) and hasattr(base, of_it) for base in bases)

    @property
    def signature(self) -> str:
        """Return the name with its parameters, without types; a property and a namespace have none."""
        static = inspect.getattr_static(self.owner, self.name.rpartition(".")[2]) if self.owner else None
        if isinstance(static, property):
            return self.name
        if isinstance(self.value, type):  # Device is the one instance of its class, dtypes a class of constants
            is_instance = self.value.__name__ != self.name
            if is_instance or inspect.getattr_static(self.value, "__init__") is object.__init__:
                return self.name
        try:
            of = inspect.signature(self.value)
        except ValueError:  # a warning: its parameters are those of Python's Warning
            return self.name
        given = [p.replace(annotation=p.empty) for p in of.parameters.values()]
        if self.owner and not isinstance(static, staticmethod):
            given = given[1:]
        return f"{self.name}{of.replace(parameters=given, return_annotation=of.empty)}"


def public() -> Iterator[Entry]:
    """Generate all that a program reaches by name: functions, classes, their methods and properties."""
    yield from _entries("tensor", "tensor", "Tensor", Tensor)
    for name in monolect.__all__:
        value = getattr(monolect, name)
        if isinstance(value, type) and issubclass(value, Exception):
            yield Entry("errors", "", name, value)
        elif value is not Tensor:
            yield from _entries("monolect", "", name, value)
    yield from _entries("monolect", "", "Jit", Jit)
    yield Entry("monolect", "", "autograd.grad", monolect.autograd.grad)
    of_tensors: tuple[ModuleType, ...] = (monolect.functions, nn.functional, monolect.special, monolect.linalg)
    for module in of_tensors:
        prefix = module.__name__.removeprefix("monolect.").replace("functions", "monolect")
        for name in module.__all__:
            yield Entry("functions", prefix, f"{prefix}.{name}", getattr(module, name))
    for name in sorted(nn.__all__, key=lambda name: (name != "Module", name)):
        yield from _entries("nn", "", name, getattr(nn, name))
    for page, space in SPACES:
        members = {name: getattr(space, name) for name in [*vars(space), *getattr(space, "__all__", ())]}
        for name, value in sorted(members.items(), key=lambda item: item[0] != "Optimizer"):
            if name[0] != "_" and isinstance(value, type | FunctionType) and _is_of(space.__name__, value.__module__):
                yield from _entries(page, space.__name__, name, value)


def _is_described_by_base(cls: type, of_it: str) -> bool:
    """Return whether the docstring of a class, or that of the base of schedules, describes the method `of_it`."""
    schedule = optim.lr_scheduler.LRScheduler
    if issubclass(cls, schedule):
        return cls is not schedule and hasattr(schedule, of_it)
    return issubclass(cls, nn.Module) and of_it in OF_A_LAYER


def _is_of(space: str, module: str) -> bool:
    return f"{module}.".startswith(f"{space}.")


def _entries(page: str, section: str, name: str, value: Any) -> Iterator[Entry]:
    if isinstance(value, ModuleType):
        if callable(value):  # the package `tensor`, which is also a function
            yield Entry(page, section, name, value.__call__)
        return
    if inspect.isfunction(value):
        yield Entry(page, section, name, value)
        return
    cls = value if isinstance(value, type) else type(value)
    yield Entry(page, section, name, value if callable(value) else cls)
    for of_it in sorted(x for x in dir(cls) if x[0] != "_"):
        getattr(cls, of_it, None)  # imports a late method
        member = inspect.getattr_static(cls, of_it)
        member = getattr(member, "__func__", getattr(member, "fget", member))
        if inspect.isfunction(member) and not _is_described_by_base(cls, of_it):
            folder, topic = member.__module__.split(".")[-2:]
            topic = section if cls is not Tensor else folder if folder in TOPICS else topic
            yield Entry(page, topic, f"{name}.{of_it}", member, cls)


def page(name: str) -> str:
    """Return the Markdown of a page of the reference, without its title: each name with signature and docstring."""
    entries = [e for e in public() if e.page == name and not e.inherited]
    if name == "tensor":
        entries.sort(key=lambda e: (e.owner is not None, [*TOPICS].index(e.section), e.name))
    lines, section = [], ""
    for e in entries:
        if e.section != section:
            section = e.section
            lines += [f"## {TOPICS.get(section, section)}", ""]
        lines += [f"### {e.name}", "", "```python", e.signature, "```", "", markdown(e.text), ""]
    return "\n".join(lines)


def markdown(text: str) -> str:
    """Return a docstring as Markdown: examples and indented blocks become code blocks, other text is as it is."""
    out = []
    for part in re.split(r"\n{2,}", text):
        words, mark, example = part.partition(">>> ")
        if not mark and part.startswith("    "):
            out.append(f"```text\n{textwrap.dedent(part)}\n```")
            continue
        if words.strip():
            out.append(_escaped(words.rstrip()))
        if mark:
            out.append(f"```pycon\n{textwrap.dedent(mark + example)}\n```")
    return "\n\n".join(out)


def _escaped(text: str) -> str:
    """Return text whose `*` and `<` outside of backticks are no Markdown."""
    parts = text.split("`")
    return "`".join(x if k % 2 else x.replace("*", r"\*").replace("<", "&lt;") for k, x in enumerate(parts))


def add_options(parser: argparse.ArgumentParser, title: str) -> None:
    """Add the options of `monolect api`."""
    parser.add_argument("name", nargs="?", help="a name, such as Tensor.sum or Linear; or a page, such as tensor")
    parser.add_argument("--markdown", action="store_true", help=f"print a page of the reference: {', '.join(PAGES)}")


def command(options: argparse.Namespace) -> None:
    """Print a page, the entries of a name, or one line for each name. Raises ArgumentError for an unknown name."""
    if options.markdown:
        if options.name not in PAGES:
            raise ArgumentError("api --markdown: unknown page", expected=", ".join(PAGES), found=options.name)
        print(page(options.name))
        return
    entries = list(public())
    if options.name is None:
        entries = [e for e in entries if not e.inherited]
        width = max(len(e.name) for e in entries)
        for e in entries:
            print(f"{e.name:{width}}  {' '.join(e.text.partition(chr(10) * 2)[0].split())}")
        return
    found = [e for e in entries if e.name == options.name]
    found = found or [e for e in entries if e.name.endswith("." + options.name) and not e.inherited]
    if not found:
        near = [e.name for e in entries if options.name.lower() in e.name.lower()]
        raise ArgumentError(
            "unknown name", expected=", ".join(near[:8]) or "`monolect api` lists all", found=options.name
        )
    for e in found:
        print(f"{e.signature}\n\n{textwrap.indent(e.text, '    ')}\n")


__all__ = ["Entry", "PAGES", "add_options", "command", "markdown", "page", "public"]
