"""Write a step as a C program: source, header, weights, Makefile, and a `main` that reads files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from monolect.backend.c import cross_targets
from monolect.base.errors import ExportError
from monolect.capture.step import Jit
from monolect.command.forms import buffer_bytes
from monolect.export.c_source import TEMPLATES, Source
from monolect.export.data import array_text, head_of, identity, segment_data
from monolect.export.layout import Model, plan
from monolect.export.names import Names
from monolect.export.sizes import bytes_text
from monolect.export.step import read
from monolect.tensor.tensor import Tensor

MAX_ARRAY_BYTES = 64 << 20  # bytes of weights as a C array, which compilers read slowly; more must go into a file
RESERVED = (
    "weights raw free states prepared arena scratch is_ready call parallel thread memcpy fopen fread fgetc fclose"
    " aligned_alloc size_t local file head whole weights_file taken madvise"
).split()


def c_files(
    jit: Jit, name: str, tensors: Mapping[str, Tensor], capture: int | None, march: str, n_threads: int, is_array: bool
) -> dict[str, Iterable[Any]]:
    """Return the contents of each file of the C program, in parts, by file name. Raises ExportError for a step that
    cannot be exported, and for weights that are too large for an array.
    """
    target, has_half = cross_targets.target(march, n_threads)
    names = Names([*RESERVED, *(f"{name}_{f}" for f in ("init", "step", "error", "weights", "h"))])
    model = plan(read(jit, capture, names, target, tensors), target, names)
    n_bytes = model.stored_bytes
    if is_array and n_bytes > MAX_ARRAY_BYTES:
        expected = f"at most {MAX_ARRAY_BYTES} bytes of weights, or --weights file"
        raise ExportError("weights that are too large for an array in C", expected=expected, found=f"{n_bytes} bytes")
    data = segment_data(model)
    number = identity(model, data)
    source = Source(model, target, has_half, name, names, number, is_array)
    text = source.source()
    files: dict[str, Iterable[Any]] = {f"{name}.h": [source.header().encode()], f"{name}.c": [text.encode()]}
    if is_array and n_bytes:
        files[f"{name}_weights.c"] = [array_text(name, data).encode()]
    elif n_bytes:
        files[f"{name}.weights"] = [head_of(model, number), *data]
    return files | program_files(model, source, march)


def program_files(model: Model, source: Source, march: str) -> dict[str, list[bytes]]:
    """Return the contents of Makefile and main.c, by file name."""
    return {"Makefile": [makefile(source, march).encode()], "main.c": [main(model, source).encode()]}


def filled(template: str, **texts: str) -> str:
    """Return the text of the template file `template` with each `@WORD@` replaced by `texts[WORD]`."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for word, x in texts.items():
        text = text.replace(f"@{word}@", x)
    return text


def makefile(source: Source, march: str) -> str:
    """Return the text of the Makefile."""
    has_array = source.is_array and source.has_data
    objects = f"{source.name}.o" + (f" {source.name}_weights.o" if has_array else "")
    pthread = " -pthread" if source.n_threads > 1 else ""
    return filled(
        "Makefile", NAME=source.name, MARCH=f" -march={march}" if march else "", PTHREAD=pthread, OBJECTS=objects
    )


def main(model: Model, source: Source) -> str:
    """Return the text of `main.c`, a program that reads the arguments of the step from files and calls it."""
    rows, resize, args, usage = [], [], [], ""
    sizes = [(k, p) for k, p in enumerate(model.parameters) if p.kind == "size"]
    names = {u: f"values[{k}].number" for k, p in sizes for u in [p.name]}
    symbols = {}
    for symbol, text in source.sizes.items():
        for name, new in names.items():
            text = new if text == name else text.replace(f"({name} /", f"({new} /")
        symbols[symbol] = text
    for k, p in enumerate(model.parameters):
        u = model.params[p.slot]
        most = 0 if p.kind == "size" else buffer_bytes(u)
        text = "0" if p.kind == "size" else bytes_text(u, symbols)
        if text.isdecimal():
            rows.append(f'  {{"{p.name}", {p.kind.upper()}, {most}u, {text}u, NULL, NULL, NULL, 0}},')
        else:
            rows.append(f'  {{"{p.name}", {p.kind.upper()}, {most}u, 0, NULL, NULL, NULL, 0}},')
            resize.append(f"  values[{k}].bytes = {text};")
        args.append(f"values[{k}].{'number' if p.kind == 'size' else 'data'}")
        usage += f" {p.name}={'NUMBER' if p.kind == 'size' else 'FILE'}"
    return filled(
        "main.c",
        NAME=source.name,
        USAGE=usage,
        VALUES="\n".join(rows) or '  {"-", OUTPUT, 1, 1, NULL, NULL, NULL, 0},',
        RESIZE="\n".join(resize) or "  /* all sizes are fixed */",
        CALL=f"{source.name}_step({', '.join(args)})",
        INIT=f"{source.name}_init({'weights' if source.has_file else ''})",
    )


__all__ = ["c_files", "filled", "program_files"]
