"""Write the sources that follow from the methods of Tensor: `monolect surface`.

What it is for: a method is written once. Its in-place form (`add_`), its function (`monolect.add`), and its name in
`nn.functional`, `special` and `linalg` are generated from its signature and its docstring, for the names that PyTorch
has there. The generated files are part of the repository, so that readers and type checkers see them.
What it is not: it has no semantics. A form or a function calls the method.
Invariant: the files in the repository are those that `files()` makes (a test compares them).
"""

import argparse
import ast
import doctest
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_overloads

import monolect
from monolect import Tensor
from monolect.cli.surface.examples import EXAMPLES
from monolect.cli.surface.torch_names import NAMES, TAKES_OUT
from monolect.tensor.base import TensorBase
from monolect.tensor.methods.in_place import InPlaceMixin

PACKAGE = Path(monolect.__file__).parent
WIDTH = 120  # characters of a line of source
OF_EACH_CLASS = frozenset("__module__ __qualname__ __doc__ __slots__ __annotations__ _kind".split())  # are no methods
LATE = ("tensor/methods/families.py", "tensor/neural/families.py")  # modules with classes that are imported late
# Modules of methods, by the last part of their name -> module of functions.
FAMILIES = {
    **dict.fromkeys("creation random conversions copies tensor casts".split(), "creation"),
    "elementwise": "arithmetic",
    "functions": "elements",
    **dict.fromkeys("movement arrangement joins".split(), "shapes"),
    **dict.fromkeys("index selection".split(), "indexing"),
    **dict.fromkeys("reduce scan".split(), "reductions"),
    **dict.fromkeys("sort statistics numbers".split(), "statistics"),
    **dict.fromkeys("linalg products".split(), "products"),
    "pointwise": "special_functions",
    **dict.fromkeys("loss margins alignment distance".split(), "losses"),
    **dict.fromkeys("pool windows".split(), "windows"),
    "neural": "layers",
}
DOCS = {
    "creation": "that make tensors, convert to them and ask about dtypes, and random numbers",
    "arithmetic": "for arithmetic, comparisons, logic and bits",
    "elements": "of each element",
    "shapes": "that move, join and split axes, and reshape",
    "indexing": "that read and write parts of tensors, and count",
    "reductions": "that reduce axes, and running reductions",
    "statistics": "for statistics, orders, and relations of numbers",
    "products": "for products of matrices and vectors, norms and distances",
    "special_functions": "that are special functions",
    "layers": "for layers of networks, and activations",
    "losses": "that are losses",
    "windows": "that move windows over axes",
}
ACTIVATIONS = frozenset(
    "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish prelu relu relu6 selu silu"
    " softplus softshrink softsign swish tanhshrink threshold".split()
)
# Names of types in signatures -> module that they are imported from.
TYPES = {
    **dict.fromkeys("FloatLimits IntLimits".split(), "monolect.tensor.methods.arrangement.conversions"),
    "Frexp": "monolect.tensor.methods.pointwise.numbers",
    "Histogram": "monolect.tensor.methods.selection.counts",
    "MinMax": "monolect.tensor.methods.statistics.samples",
    "Any": "typing",
    "Lengths": "monolect.tensor.neural.alignment",
    "Parts": "monolect.tensor.methods.windows.adaptive",
    "Literal": "typing",
    "Unpack": "typing",
    "Callable": "collections.abc",
    "Iterable": "collections.abc",
    "Sequence": "collections.abc",
    "np": "monolect.base.numpy",
    "DType": "monolect.base.dtype",
    "DrawOptions": "monolect.tensor.random",
    "Generator": "monolect.tensor.draws.generator",
    "OneOrMore": "monolect.tensor.methods.movement",
    "ValuesIndices": "monolect.tensor.methods.reduce",
    **dict.fromkeys(
        "Axes DTypeLike Data DeviceLike Number PerAxis Shared Size Sizes TensorLike".split(), "monolect.tensor.base"
    ),
}
MODULES = {"os", "builtins"}
# Forms that are drawn, or that are written by hand, as those that change the shape.
NOT_IN_PLACE = frozenset(
    "squeeze_ unsqueeze_ transpose_ t_ swapaxes_ swapdims_ bernoulli_ cauchy_ exponential_ geometric_ log_normal_"
    " normal_ random_ uniform_ copy_ fill_ zero_ requires_grad_ dropout_".split()
)
PROPERTIES = frozenset(("real",))  # properties of Tensor that PyTorch also has as functions
# Names of functions that mean something else as methods, or that are no functions of tensors.
NOT_FUNCTIONS = frozenset("grad save load".split())
SPACES = ("monolect", "nn.functional", "special", "linalg")  # namespaces with generated functions
# namespace -> name of a function there -> name of its method
RENAMED = {
    "special": {
        "expit": "sigmoid",
        "gammainc": "igamma",
        "gammaincc": "igammac",
        "gammaln": "lgamma",
        "multigammaln": "mvlgamma",
        "psi": "digamma",
    },
    "linalg": {  # functions that have other defaults than the methods of their names
        "multi_dot": "chain_matmul",
        **{n: f"linalg_{n}" for n in ("cross", "diagonal", "norm", "vander")},
    },
    "nn.functional": {"unfold": "im2col"},
}
# namespace -> functions there that no method of Tensor makes -> their module
BY_HAND = {"nn.functional": {"multi_head_attention_forward": "monolect.nn.attention"}}
FIRST = {  # method -> PyTorch's name of the first parameter of the function
    "cat": "tensors",
    "stack": "tensors",
    "meshgrid": "tensors",
    "where": "condition",
    "searchsorted": "sorted_sequence",
    **dict.fromkeys(
        "concat concatenate hstack"
        " vstack row_stack dstack column_stack block_diag cartesian_prod broadcast_tensors atleast_1d atleast_2d"
        " atleast_3d chain_matmul".split(),
        "tensors",
    ),
    "unravel_index": "indices",
    "binomial": "count",
    "vander": "x",
    "isin": "elements",
    "trapezoid": "y",
    "cumulative_trapezoid": "y",
    "cdist": "x1",
    **dict.fromkeys("cosine_similarity pairwise_distance".split(), "x1"),
    **dict.fromkeys("bilinear cosine_embedding_loss margin_ranking_loss".split(), "input1"),
    **dict.fromkeys("triplet_margin_loss triplet_margin_with_distance_loss".split(), "anchor"),
    **dict.fromkeys("vecdot vector_norm".split(), "x"),
    **dict.fromkeys((n for n in NAMES["special"] if "polynomial" in n), "x"),
    "linalg_diagonal": "A",
    "linalg_vander": "x",
    "affine_grid": "theta",
    "ctc_loss": "log_probs",
    "gumbel_softmax": "logits",
    **dict.fromkeys("split result_type".split(), "tensor"),
    "tensordot": "a",
}
# Functions whose last parameter is `inplace`.
INPLACE = frozenset(
    "alpha_dropout celu dropout dropout1d dropout2d dropout3d elu feature_alpha_dropout hardsigmoid hardswish hardtanh"
    " leaky_relu mish relu relu6 rrelu selu silu threshold".split()
)
# Functions of two operands whose first may be a number, if the second is a tensor.
NUMBER_FIRST = frozenset(
    "pow float_power remainder xlogy bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift".split()
)
SWAPPED = frozenset(("polygamma",))  # the first two parameters of the function are in the other order
SHADOWED = frozenset("abs all any max min pow round sum".split())  # functions that Python has, too


# ---- text ------------------------------------------------------------------------------------------------------------
def _laid_out(head: str, items: list[str], tail: str, indent: int) -> str:
    """Return `head(items)tail` as the formatter would: on one line, items on one line, or an item a line."""
    pad = " " * indent
    line = f"{pad}{head}({', '.join(items)}){tail}"
    if len(line) <= WIDTH:
        return line
    inner = f"{pad}    {', '.join(items)}"
    if len(inner) <= WIDTH:
        return f"{pad}{head}(\n{inner}\n{pad}){tail}"
    rows = "".join(f"{pad}    {item},\n" for item in items)
    return f"{pad}{head}(\n{rows}{pad}){tail}"


def _docstring(text: str, indent: int) -> str:
    """Return `text`, whose paragraphs may be wrapped, as a docstring; examples are kept as they are."""
    pad, parts = " " * indent, []
    for part in text.strip().split("\n\n"):
        is_example = ">>> " in part
        parts.append(part if is_example else textwrap.fill(" ".join(part.split()), WIDTH - indent - 4))
    body = textwrap.indent("\n\n".join(parts), pad).lstrip()
    quote = 'r"""' if "\\" in body else '"""'
    if "\n" not in body and indent + len(body) + 6 <= WIDTH:
        return f'{pad}{quote}{body}"""'
    return f'{pad}{quote}{body}\n{pad}"""'


def _type(annotation: Any, own: str) -> str:
    """Return the text of a type, with `own` for the class of the tensor."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    text = text.replace("builtins.", "")
    return re.sub(r"\b(Self|AnyTensor)\b", own, text)


def _parameters(f: Callable[..., Any], own: str) -> list[inspect.Parameter]:
    """Return the parameters of a method without `self` or `cls`, with types as texts."""
    found = [*inspect.signature(f).parameters.values()][1:]
    return [p.replace(annotation=_type(p.annotation, own)) for p in found]


def _declared(parameters: list[inspect.Parameter]) -> list[str]:
    """Return the parameters as texts of a declaration, with the bare `*` where it is needed."""
    out: list[str] = []
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not any(x.startswith("*") for x in out):
            out.append("*")
        stars = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        default = "" if p.default is p.empty else f" = {_literal(p.default)}"
        out.append(f"{stars}{p.name}: {p.annotation}{default}")
    return out


def _literal(value: Any) -> str:
    """Return a default as the formatter writes it."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _passed(parameters: list[inspect.Parameter]) -> list[str]:
    """Return the arguments of a call that passes all parameters on."""
    forms = {"VAR_POSITIONAL": "*{0}", "VAR_KEYWORD": "**{0}", "KEYWORD_ONLY": "{0}={0}"}
    return [forms.get(p.kind.name, "{0}").format(p.name) for p in parameters]


# ---- methods ---------------------------------------------------------------------------------------------------------
def _method(name: str) -> Any:
    """Return the public method `name` of Tensor, or the getter of one of PROPERTIES, as a function, or None."""
    getattr(Tensor, name, None)  # imports a late method
    found = inspect.getattr_static(Tensor, name, None)
    found = found.fget if name in PROPERTIES and isinstance(found, property) else found
    found = getattr(found, "__func__", found)
    return found if inspect.isfunction(found) and not name.startswith("_") else None


def _is_alias(name: str) -> bool:
    """Whether the method was defined under another name than `name`."""
    f = _method(name)
    return f is not None and bool(inspect.unwrap(f).__name__ != name)


def _is_of_class(name: str) -> bool:
    """Whether the method is called on the class: a classmethod or a staticmethod."""
    return isinstance(inspect.getattr_static(Tensor, name), classmethod | staticmethod)


def _examples(name: str, f: Any) -> str:
    """Return the example of a method, as in its docstring or, if it shows another name, as in EXAMPLES."""
    if name in EXAMPLES:
        return EXAMPLES[name]
    found = doctest.DocTestParser().get_examples(inspect.getdoc(f) or "")
    return "".join(f">>> {_continued(e.source)}{e.want}" for e in found)


def _continued(source: str) -> str:
    return source.rstrip("\n").replace("\n", "\n... ") + "\n"


def _public_name(name: str) -> str:
    """Return the name by which a program reaches the function of the method `name`."""
    for space in SPACES:
        own = {there: here for here, there in RENAMED.get(space, {}).items()}.get(name, name)
        if own in NAMES[space]:
            return f"{space}.{own}"
    raise KeyError(name)


def _as_function(source: str, name: str) -> str:
    """Return a line of an example with calls of the method `name` as calls of the function."""
    public = _public_name(name)
    while True:
        calls = [
            n
            for n in ast.walk(ast.parse(source))
            if isinstance(n, ast.Call)
            and isinstance(n.func, ast.Attribute)
            and n.func.attr == name
            and ast.unparse(n.func) != public
        ]
        if not calls or "\n" in source.strip():
            return source
        call = max(calls, key=lambda n: (n.col_offset, -(n.end_col_offset or 0)))
        assert isinstance(call.func, ast.Attribute)
        owner = source[call.func.value.col_offset : call.func.value.end_col_offset]
        rest = source[call.func.end_col_offset : call.end_col_offset].removeprefix("(").removesuffix(")")
        first = [] if owner == "Tensor" else [owner]
        if name in SWAPPED:
            first.insert(0, rest)
            rest = ""
        given = ", ".join([*first, *([rest] if rest else [])])
        source = f"{source[: call.col_offset]}{public}({given}){source[call.end_col_offset :]}"


# ---- in-place forms --------------------------------------------------------------------------------------------------
def _forms() -> Iterator[tuple[str, str, str]]:
    """Generate (family, name of the form, its source) for PyTorch's in-place forms of methods."""
    seen: dict[Any, str] = {}
    for form in sorted(NAMES["Tensor in place"], key=lambda n: (_is_alias(n.removesuffix("_")), n)):
        name = form.removesuffix("_")
        f = _method(name)
        if f is None or form in NOT_IN_PLACE or _is_of_class(name):
            continue
        if (first := seen.get(inspect.unwrap(f))) is not None:
            yield _family(f), form, f"    {form} = {first}"
            continue
        seen[inspect.unwrap(f)] = form
        parameters = _parameters(f, "Self")
        head = _laid_out(f"def {form}", ["self", *_declared(parameters)], " -> Self:", 4)
        example = _examples(form, f) if form in EXAMPLES else _examples(name, f).replace(f".{name}(", f".{form}(")
        text = _docstring(f"Write the result of `{name}` to self and return self.\n\n{example}", 8)
        body = _laid_out("return self._written", [f'"{name}"', *_passed(parameters)], "", 8)
        yield _family(f), form, f"{head}\n{text}\n{body}"


def _family(f: Any) -> str:
    """Return the family of functions of the method `f`."""
    if f.__name__ in ACTIVATIONS:
        return "layers"
    parts = inspect.unwrap(f).__module__.split(".")
    return next((FAMILIES[p] for p in reversed(parts) if p in FAMILIES), parts[-1])


def _in_place_module(family: str, rows: list[tuple[str, str]]) -> str:
    text = "\n\n".join(source for _, source in rows)
    imports = {*_imports(text), "from typing import Self", "from monolect.tensor.methods.in_place import InPlaceMixin"}
    title = f"{family.title().replace('_', '')}Forms"
    return _module(
        f"Forms that write to self, of the methods {DOCS.get(family, 'of ' + family)}; written by `make surface`.\n\n"
        "Invariant: a form writes what its method returns to self, as an augmented assignment does: shape, dtype stay.",
        imports,
        f'\nclass {title}(InPlaceMixin):\n    """Forms of methods that write to self. A base class of Tensor."""\n\n'
        f"    __slots__ = ()\n\n{text}\n",
        [title],
    )


def _late_classes() -> Iterator[type]:
    """Yield the classes of methods that are imported at their first use: those that MethodsMixin and NeuralMixin import
    for type checkers alone, and bases of those.
    """
    for path in LATE:
        tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
        guarded = [line for branch in tree.body if isinstance(branch, ast.If) for line in branch.body]
        for line in guarded:
            if isinstance(line, ast.ImportFrom):
                kind = getattr(import_module(line.module or ""), line.names[0].name)
                yield from (k for k in kind.__mro__[: kind.__mro__.index(TensorBase)] if k is not InPlaceMixin)


def _late_methods() -> dict[str, str]:
    """Return "module.Class" -> names of methods, for each class of methods that is imported at its first use.

    A method that METHODS does not name yet is given to Tensor, so that its function is generated in the same run.
    """
    out = {}
    for kind in _late_classes():
        names = {n for n in vars(kind) if n not in OF_EACH_CLASS}
        out[f"{kind.__module__}.{kind.__name__}"] = " ".join(sorted(names))
        for name in names - {*dir(Tensor)}:
            setattr(Tensor, name, vars(kind)[name])
    return dict(sorted(out.items()))


# ---- functions -------------------------------------------------------------------------------------------------------
def _takes_out(name: str) -> bool:
    """Whether the function of the method `name` has `out`: under one of its names PyTorch's has it, and it takes a
    tensor.
    """
    own = inspect.unwrap(_method(name))
    found = (_method(RENAMED.get(s, {}).get(n, n)) for s in TAKES_OUT for n in TAKES_OUT[s])
    return not _is_of_class(name) and any(inspect.unwrap(g) is own for g in found if g is not None)


def _with_out(declared: list[inspect.Parameter], returned: str) -> list[inspect.Parameter]:
    """Return the parameters with `out` after them: a tensor, or a tuple of them where the result may be one."""
    kind = "Tensor | None" if returned == "Tensor" else "Tensor | tuple[Tensor, ...] | None"
    out = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
    return [*declared, out]


def _function(name: str) -> str | None:
    """Return the source of the function of the method `name`, or None if there is none."""
    f = _method(name)
    if f is None or name in NOT_FUNCTIONS:
        return None
    parameters = _parameters(f, "Tensor")
    called, declared = "Tensor", parameters
    if not _is_of_class(name):
        first = next(iter(inspect.signature(f).parameters.values()))
        named = FIRST.get(name, "input")
        own = _type(first.annotation, "Tensor") if "OneOrMore" in str(first.annotation) else "Tensor"
        own = "TensorLike" if name in NUMBER_FIRST else own
        self_ = inspect.Parameter(named, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=own)
        declared = [parameters[0], self_, *parameters[1:]] if name in SWAPPED else [self_, *parameters]
        called = f"operand_of({named}, {parameters[0].name})" if name in NUMBER_FIRST else named
        if own != "Tensor" and name not in NUMBER_FIRST:
            called, parameters = "Tensor", declared
    declared = [p.replace(annotation=re.sub(r"\bTensorBase\b", "Tensor", p.annotation)) for p in declared]
    returned = _type(inspect.signature(f).return_annotation, "Tensor").replace("TensorBase", "Tensor")
    takes_out = _takes_out(name)
    if takes_out:
        declared = _with_out(declared, returned)
    if name in INPLACE:
        declared = _with_inplace(declared)
    out = []
    for o in get_overloads(inspect.unwrap(f)):
        signature = [
            p.replace(annotation=re.sub(r"\bTensorBase\b", "Tensor", p.annotation)) for p in _parameters(o, "Tensor")
        ]
        out.append("@overload")
        result = _type(inspect.signature(o).return_annotation, "Tensor")
        signature = [declared[0], *signature]
        signature = _with_out(signature, result) if takes_out else signature
        out.append(_laid_out(f"def {name}", _declared(signature), f" -> {result}: ...", 0))
    out.append("@guarded")
    out.append(_laid_out(f"def {name}", _declared(declared), f" -> {returned}:", 0))
    words = (inspect.getdoc(f) or "").partition(">>> ")[0].strip()
    named = FIRST.get(name, "input")
    words = re.sub(r"`([^`]*)`", lambda m: "`" + re.sub(r"\bself\b", named, m[1]) + "`", words)
    words = re.sub(r"\bself\b", f"`{named}`", words).replace("``", "`")
    found = doctest.DocTestParser().get_examples(_examples(name, f))
    example = "".join(f">>> {_continued(_as_function(e.source, name))}{e.want}" for e in found)
    out.append(_docstring(f"{words}\n\n{example}", 4))
    method = f"{called}.{name}"
    if get_overloads(inspect.unwrap(f)):  # the overloads that callers see do not cover a union
        out.append(f"    method: Any = {method}")
        method = "method"
    if name in PROPERTIES:
        return "\n".join([*out, f"    return {method}"])
    target = "out" if takes_out else f"{called} if inplace else None" if name in INPLACE else ""
    out.append(_call(name, method, _passed(parameters), returned, target))
    return "\n".join(out)


def _with_inplace(declared: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters with `inplace` after those that may be positional."""
    at = sum(p.kind is not inspect.Parameter.KEYWORD_ONLY for p in declared)
    last = inspect.Parameter("inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False, annotation="bool")
    return [*declared[:at], last, *declared[at:]]


def _call(name: str, method: str, passed: list[str], returned: str, target: str) -> str:
    """Return the last lines of the function `name`, which call `method` and write the result to `target`, if any."""
    if not target:
        return _laid_out(f"{'' if returned == 'None' else 'return '}{method}", passed, "", 4)
    line = f'    return into({target}, "{name}", {method}({", ".join(passed)}))'
    if len(line) <= WIDTH:
        return line
    return _laid_out(f"result = {method}", passed, "", 4) + f'\n    return into({target}, "{name}", result)'


def _imports(text: str) -> set[str]:
    """Return the import lines for the types in declarations of `text`. Raises KeyError for an unknown type."""
    code = re.sub(r'r?"""[\s\S]*?"""', "", text)
    words = {*re.findall(r"(?<![.\w\"'])[A-Z]\w+\b", code)} | ({"np"} if "np." in code else set())
    known = {w for w in words if w in TYPES}
    unknown = words - known - {"Tensor", "Self", "TensorBase", "None", "False", "True", "JitError"}
    if unknown:
        raise KeyError(f"add to TYPES: {sorted(unknown)}")
    lines = {f"from {TYPES[w]} import {w}" for w in known}
    lines |= {f"import {m}" for m in MODULES if f"{m}." in code}
    if "TensorBase" in words:
        lines.add("from monolect.tensor.base import TensorBase")
    return lines


def _module(doc: str, imports: set[str], body: str, names: list[str]) -> str:
    """Return the source of a module."""
    by_module: dict[str, set[str]] = {}
    plain = []
    for line in imports:
        if line.startswith("import "):
            plain.append(line)
        else:
            module, _, name = line.removeprefix("from ").partition(" import ")
            by_module.setdefault(module, set()).add(name)

    def block(own: bool) -> str:
        rows = [] if own else sorted(plain)
        for module in sorted(by_module):
            if module.startswith("monolect") is own:
                renamed = sorted(n for n in by_module[module] if " as " in n)
                found = sorted(by_module[module].difference(renamed), key=_sorting)
                rows += [f"from {module} import {n}" for n in renamed] if not found else []
                if not found:
                    continue
                line = f"from {module} import {', '.join(found)}"
                if len(line) > WIDTH:
                    line = f"from {module} import (\n" + "".join(f"    {n},\n" for n in found) + ")"
                lines = [(found[0], line), *((n, f"from {module} import {n}") for n in renamed)]
                rows += [text for _, text in sorted(lines, key=lambda row: _sorting(row[0].partition(" as ")[0]))]
        return "\n".join(rows)

    late = [n for n in ("Shared",) if n in by_module.get("monolect.tensor.base", ())]
    for name in late:
        by_module["monolect.tensor.base"].discard(name)
        by_module.setdefault("typing", set()).add("TYPE_CHECKING")
    blocks = [b for b in (block(False), block(True)) if b]
    blocks += [f"if TYPE_CHECKING:\n    from monolect.tensor.base import {name}" for name in late]
    listed = f"__all__ = [\n{''.join(f'    {_literal(n)},{chr(10)}' for n in names)}]\n"
    if len(names) > 40:
        rows = textwrap.wrap(", ".join(map(_literal, names)), WIDTH - 4, break_long_words=False)
        listed = "__all__ = [\n" + "".join(f"    {row}\n" for row in rows)[:-1] + ",\n]  # fmt: skip\n"
    elif len(one := f"__all__ = [{', '.join(map(_literal, names))}]\n") <= WIDTH:
        listed = one
    parts = [_docstring(doc, 0), "from __future__ import annotations", *blocks]
    return "\n\n".join(parts) + f"\n\n{body}\n\n{listed}" if body else "\n\n".join(parts) + f"\n\n{listed}"


def _sorting(name: str) -> tuple[int, list[tuple[int, str]]]:
    """Return the key by which the linter sorts imported names: constants, classes, functions; numbers as numbers."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, [(int(x), "") if x.isdigit() else (0, x) for x in re.split(r"(\d+)", name.lower())]


_HINTS = """if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(hint("{space}", name))
"""


def _reexports(doc: str, space: str, rows: list[tuple[str, str, str]]) -> str:
    """Return a module that exports functions of other modules: rows are (name, module, name there)."""
    imports = {
        f"from {module} import {there}" + ("" if there == name else f" as {name}") for name, module, there in rows
    }
    if space == "monolect":
        return _module(doc, imports, "", sorted(name for name, *_ in rows))
    imports |= {
        "from typing import TYPE_CHECKING",
        "from typing import NoReturn",
        "from monolect.base.absent import hint",
    }
    return _module(doc, imports, _HINTS.format(space=space), sorted(name for name, *_ in rows))


def _wrapped(names: str, indent: int) -> str:
    """Return lines of `names`, indented by `indent` spaces."""
    return textwrap.indent(textwrap.fill(names, WIDTH - indent, break_on_hyphens=False), " " * indent)


# ---- files -----------------------------------------------------------------------------------------------------------
def files() -> dict[str, str]:
    """Return the generated files: path below the package -> source."""
    late = _late_methods()
    out: dict[str, str] = {}
    forms: dict[str, list[tuple[str, str]]] = {}
    for family, form, source in _forms():
        forms.setdefault(family, []).append((form, source))
    for family, rows in forms.items():
        out[f"tensor/methods/in_place_forms/{family}.py"] = _in_place_module(family, rows)
    doc = "Forms of methods that write to self, such as `add_`; written by `make surface`."
    out["tensor/methods/in_place_forms/__init__.py"] = f'"""{doc}"""\n'
    out |= _functions(late)
    return dict(sorted(out.items()))


def _functions(late: dict[str, str]) -> dict[str, str]:
    """Return the modules of functions, those that export them under other names, and `base/names`.

    `late` has the names of methods of classes that are imported late.
    """
    wanted = {(s, n): RENAMED.get(s, {}).get(n, n) for s in SPACES for n in NAMES[s]}
    sources: dict[str, list[tuple[str, str]]] = {}
    where: dict[str, str] = {}
    of: dict[Any, str] = {}
    for name in sorted({*wanted.values()}, key=lambda n: (_is_alias(n), n)):
        f = _method(name)
        first = None if f is None else of.get(inspect.unwrap(f))  # an earlier function of the same method
        text = _function(name) if first is None else f"{name} = {first}"
        if text is None:
            continue
        of.setdefault(inspect.unwrap(f), name)
        where[name] = _family(f)
        sources.setdefault(where[name], []).append((name, text))
    out = {}
    for family, rows in sources.items():
        text = "\n\n\n".join(t for _, t in rows)
        imports = _imports("\n".join(t for _, t in rows)) | {"from monolect.tensor.tensor import Tensor"}
        imports |= {"from monolect.tensor.guard import guarded"} if "@guarded" in text else set()
        imports |= {"from monolect.tensor.methods.in_place import into"} if " into(" in text else set()
        imports |= {"from monolect.tensor.base import operand_of"} if "operand_of(" in text else set()
        imports |= {"from typing import overload"} if "@overload" in text else set()
        doc = (
            f"Functions {DOCS.get(family, 'of ' + family)}, made from the methods of Tensor; written by `make surface`."
        )
        names = sorted(n for n, _ in rows)
        out[f"functions/{family}.py"] = _module(doc, imports, f"\n{text.strip()}\n", names)
    exported = {
        s: [(n, f"monolect.functions.{where[m]}", m) for (t, n), m in wanted.items() if t == s and m in where]
        for s in SPACES
    }
    for space, by_hand in BY_HAND.items():
        exported[space] += [(name, module, name) for name, module in by_hand.items()]
    docs = {
        "monolect": "Functions of tensors, as `monolect.add(x, y)`; written by `make surface`.\n\n"
        "Each calls the method of Tensor of the same name. `out=`, where PyTorch's function has it, is a tensor to\n"
        "which the result is written and that is returned: its views see it, its dtype and shape stay (`into`).",
        "nn.functional": "Functions for networks, by PyTorch's names; written by `make surface`.",
        "special": "Special functions, by the names of torch.special; written by `make surface`.",
        "linalg": "Functions of linear algebra, by the names of torch.linalg; written by `make surface`.",
    }
    paths = {
        "monolect": "functions/__init__",
        "nn.functional": "nn/functional",
        "special": "special",
        "linalg": "linalg",
    }
    text = " ".join(n for n, *_ in exported["monolect"])
    table = "".join(f'    "{kind}": """\n{_wrapped(names, 8)}\n    """,\n' for kind, names in late.items())
    out["base/names.py"] = _module(
        "Names of functions and methods that are imported at their first use; written by `make surface`.",
        set(),
        f'FUNCTIONS = frozenset(\n    """\n{_wrapped(text, 4)}\n    """.split()\n)\n\n'
        f"METHODS = {{  # class of methods -> names, separated by spaces\n{table}}}\n",
        ["FUNCTIONS", "METHODS"],
    ).replace("from __future__ import annotations\n\n", "")
    for space, found in exported.items():
        out[f"{paths[space]}.py"] = _reexports(docs[space], space, found)
    return out


def add_options(parser: argparse.ArgumentParser, title: str) -> None:
    """Add the options of `monolect surface`."""
    parser.add_argument("--check", action="store_true", help="write nothing; name the files that differ")


def command(options: argparse.Namespace) -> None:
    """Write the generated files that differ, and print their names."""
    for path, text in files().items():
        file = PACKAGE / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            print(path)
            if not options.check:
                file.parent.mkdir(exist_ok=True)
                file.write_text(text, encoding="utf-8")


__all__ = ["add_options", "command", "files"]
