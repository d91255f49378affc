"""Turn numbers that differ from run to run into inputs of a plan, so that one plan serves all their values.

What it is for: a number of the user's is a constant in the kernels, which is fastest while it does not change. One that
changes would need another plan each time: a decaying learning rate, the offset of a slice in a loop over rows, the
length of a sequence. After MIN_PLANS different sets of numbers of one program, those that differed become inputs:

    float constants   BUFFERs of one element
    offsets           of SHRINK and PAD: Variables with the bounds that the shapes give; also those that are arguments
                      of a FUNCTION, with the bounds of its PARAM
    sizes             Variables, if all that differ are a * n + b of one size n, and the program is small

A small program whose float constants were equal MIN_REPEATS times gets a plan with these constants, MAX_OWN times at
most: `x * 0.9` and `x * 0.99` are one program, and numbers that recur are fastest as constants.

The mask of a PAD follows from its offsets and sizes, so it is built from those of the PAD with inputs.

What it is not: it does not treat integers in values, such as `x * 3`, and axes or other args of ops.

Invariant: a batch with inputs for numbers computes the same operations on the same values; each value of an affine size
is checked at each run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from monolect.base.dtype import dtypes
from monolect.base.errors import InternalError, MonolectError
from monolect.base.settings import settings
from monolect.ir.collective import is_of_a_process
from monolect.ir.ops import ParamArg
from monolect.ir.placement import device, placement
from monolect.ir.rewrite.calls import argument_bound
from monolect.ir.rewrite.normal import may_be_input
from monolect.ir.rewrite.padding import pad_mask
from monolect.ir.uop import UOp, node, rebuild, shape_source, toposort
from monolect.runtime.buffer import from_number, is_realized, with_storage
from monolect.schedule.callify import resolve_functions, structure

MIN_PLANS = 3  # sets of numbers of one program; from this one on, numbers that differ become inputs
MAX_PROGRAMS = 256  # programs in `_programs`; beyond it the least recently used one is dropped
MAX_SAMPLES = 8  # sets of integers that the relations between sizes are found from
MAX_VARIABLES = 128  # Variables of one program; kernels take each as an argument
MIN_REPEATS = 32  # runs with equal floats, from which on these are constants of a plan of their own
MAX_OWN = 8  # sets of floats of one program that have such plans
MAX_OWN_KEY = 64  # items of the key of a program with such plans: a larger one takes longer to compile than it gains
MAX_COUNTED = 64  # sets of floats of one program whose runs are counted; beyond it counting begins again
MAX_SYMBOLIC_SIZE = 1 << 18  # elements of the largest node of a program whose sizes may become symbolic: compiling it
# takes longer than running it, also by the slower kernels of symbolic sizes
_WRITES = frozenset(("AFTER", "STORE", "ATOMICADD", "LOAD"))
_OFFSETS = frozenset(("SHRINK", "PAD"))  # ops whose source 1 has offsets; the last source has sizes
_CALLS = frozenset(("FUNCTION", "CALL"))
_SHAPED = _OFFSETS | {"RESHAPE", "EXPAND"}
_programs: OrderedDict[tuple, _Program] = OrderedDict()  # by the key of a batch without the numbers that may vary
_varying: set[tuple[int, int, str]] = (
    set()
)  # number of roots, height of the first and device of batches that had inputs


class _Reading(NamedTuple):
    """A batch as a program and its numbers. Two batches with equal keys are one program: they share all but their
    numbers and BUFFERs.

    `floats`: (node, source) of each use of a float constant; a number is a part of the node that uses it, as two uses
    of equal numbers are one node. `shapes`: (node, source) of each shape whose integers are numbers, and not in the
    key; also of each index that is an argument of a call. `inspected`: nodes that may have to be stored besides the
    roots (`callify.structure`).
    """

    key: tuple
    floats: list[tuple[UOp, int]]
    shapes: list[tuple[UOp, int]]
    buffers: list[UOp]
    inspected: list[UOp]

    def home(self, i: int, dev: str) -> str:
        """Return the device of the node that uses float `i`; `dev` for a node on none."""
        d = device(self.floats[i][0])
        return d if isinstance(d, str) else dev

    def input(self, i: int, dev: str) -> UOp:
        """Return a BUFFER of one element that holds float `i`, on the device of the node that uses it."""
        u, k = self.floats[i]
        return from_number(u.src[k].value, u.src[k].dtype, self.home(i, dev))

    def integers(self) -> Iterator[_Integer]:
        """Yield the integers in `shapes`: offsets, and sizes."""
        for u, k in self.shapes:
            is_offset = u.op in _OFFSETS and k == 1
            for i, c in enumerate(_items(u.src[k])):
                if c.op == "CONST":
                    bound = argument_bound(u.src[0], k - 1) if u.op in _CALLS else _bound(u, i) if is_offset else None
                    yield _Integer(u, k, i, c.value, bound)


class _Integer(NamedTuple):
    """An integer in a shape of a batch, or an index given to a call: source `k` of the node `user`, item `i`. `value`:
    its value. `bound`: for an offset the largest that is legal; None for a size.
    """

    user: UOp
    k: int
    i: int
    value: int
    bound: int | None


class Inputs(NamedTuple):
    """A batch with inputs for numbers: its key and BUFFERs (`structure`), the values of its Variables, and its program.

    `built` returns the batch, which is not built yet if an earlier run of the program had the same key. `inspected`:
    nodes of the batch with its numbers that may have to be stored besides the roots.
    """

    built: Callable[[], list[UOp]]
    key: Any
    buffers: list[UOp]
    sizes: dict[UOp, int]
    program: _Program
    inspected: list[UOp]


class _Form(NamedTuple):
    """Describe a batch with inputs for numbers, from which those of later runs follow without building them.

    `numbers`: which numbers are inputs. `key`: that of `structure`. `sources`: for each BUFFER its number among those
    of the walk, or -1 - i for float i. `offsets`: (Variable, number of the integer) pairs.
    """

    numbers: tuple[Any, ...]
    key: Any
    sources: list[int]
    offsets: list[tuple[UOp, int]]


class _Program:
    """The numbers of one program, one for each use. `floats`: the last ones; `samples`: sets of integers.

    `varied` and `varied_floats`: indices of those that have differed so far. `n`: how many sets of numbers were seen.
    `label`: equal for floats that were one constant in each run, so that they become one input. `refused`: the settings
    (`settings.choices`) under which the compiler refused the batch with inputs. `form`: that of the last run, if no
    size differs. `counts`: how often sets of floats were seen; `own`: those that have plans of their own.
    """

    __slots__ = ("counts", "floats", "form", "label", "n", "own", "refused", "samples", "varied", "varied_floats")

    def __init__(self, floats: list[UOp], integers: list[int]) -> None:
        self.floats, self.samples, self.n = floats, [integers], 1
        self.varied, self.varied_floats = set[int](), set[int]()
        self.label: list[Any] = [*map(id, floats)]
        self.refused = set[tuple]()
        self.form: _Form | None = None
        self.counts = dict[tuple[UOp, ...], int]()
        self.own = set[tuple[UOp, ...]]()

    def inputs(self) -> tuple[Any, ...]:
        """Return which numbers are inputs, and which floats are one input."""
        return self.varied.copy(), self.varied_floats.copy(), self.label

    def see(self, floats: list[UOp], integers: list[int]) -> None:
        """Note the numbers of another run."""
        more_floats = {i for i, (a, b) in enumerate(zip(self.floats, floats, strict=True)) if a is not b}
        more = {i for i, (a, b) in enumerate(zip(self.samples[-1], integers, strict=True)) if a != b}
        self.n += bool(more or more_floats)
        self.varied |= more
        self.varied_floats |= more_floats
        numbers: dict[tuple, int] = {}
        self.label = [numbers.setdefault(p, len(numbers)) for p in zip(self.label, map(id, floats), strict=True)]
        self.floats = floats
        if integers not in self.samples:
            self.samples = [*self.samples[1 - MAX_SAMPLES :], integers]

    def recurs(self, floats: tuple[UOp, ...]) -> bool:
        """Count a run with `floats`, and return whether these have a plan of their own from now on."""
        if floats in self.own:
            return True
        if len(self.own) >= MAX_OWN:
            return False
        n = self.counts[floats] = self.counts.get(floats, 0) + 1
        if n >= MIN_REPEATS:
            self.own.add(floats)
        elif len(self.counts) > MAX_COUNTED:
            self.counts.clear()
        return n >= MIN_REPEATS


def is_likely(batch: list[UOp], dev: str) -> bool:
    """Return whether a batch of this size had inputs for numbers: its own numbers probably differ from all before."""
    return _size(batch, dev) in _varying


def note_inputs(batch: list[UOp], dev: str, are_found: bool) -> None:
    """Note whether `batch` had inputs for numbers, for `is_likely`."""
    if not are_found:
        _varying.discard(_size(batch, dev))
    elif len(_varying) < MAX_PROGRAMS:
        _varying.add(_size(batch, dev))


def _size(batch: list[UOp], dev: str) -> tuple[int, int, str]:
    return len(batch), batch[0].height, dev


def with_inputs(batch: list[UOp], dev: str, may_know: bool = True) -> Inputs | None:
    """Return `batch`, which has no plan and no calls, with inputs for the numbers that differ between runs; None if it
    stays as it is.

    `may_know`: whether the batch with inputs may be left out if its key is known.
    """
    found = _read(batch)
    if any([_is_of_a_process(u) for u in found.buffers]):
        # The parts of several processes differ in offsets and sizes, and all processes must make the same plans.
        found = _read(batch, may_have_other_shapes=False)
    numbers = [u.src[k] for u, k in found.floats]
    values = [c.arg[0] for u, k in found.shapes for c in _items(u.src[k]) if c.op == "CONST"]
    if not numbers and not values:
        return None
    key = (dev, found.key)
    program = _programs.get(key)
    if program is None:
        _programs[key] = _Program(numbers, values)
        if len(_programs) > MAX_PROGRAMS:
            _programs.popitem(last=False)
        return None
    if len(_programs) > MAX_PROGRAMS // 2:  # before, none is dropped soon; hashing a key again is slow
        _programs.move_to_end(key)
    program.see(numbers, values)
    if settings.choices in program.refused or program.n < MIN_PLANS or not (program.varied or program.varied_floats):
        return None
    if may_know and not program.varied and len(found.key) <= MAX_OWN_KEY and program.recurs(tuple(numbers)):
        return None
    form = program.form
    if may_know and form is not None and form.numbers == program.inputs():
        given = [found.buffers[i] if i >= 0 else found.input(-1 - i, dev) for i in form.sources]
        sizes = {v: values[i] for v, i in form.offsets}
        return Inputs(lambda: _build_again(batch, dev), form.key, given, sizes, program, found.inspected)
    if any(b.arg.device != dev for b in found.buffers) and any(
        device(found.floats[i][0]) is None for i in program.varied_floats
    ):
        return None  # it is not known on which of several devices the number is used
    order, masked = _walk(batch)
    integers = [*found.integers()]
    symbolic = _symbolic(program, integers, order) if program.varied else ({}, {})
    if symbolic is None:
        return None
    sizes, new = symbolic
    made: dict[tuple[int, str], UOp] = {}
    inputs: dict[tuple[UOp, int], UOp] = {}
    for i in sorted(program.varied_floats):
        there = program.label[i], found.home(i, dev)
        inputs[found.floats[i]] = made[there] = made.get(there) or found.input(i, dev)
    try:
        general = resolve_functions(_rebuilt(batch, order, masked, inputs, new))
    except MonolectError:  # a symbolic size where an op needs a number
        return None
    if any(is_realized(u) for u in general):
        return None
    general_key, given, *_ = structure(general)
    program.form = None
    if general_key is not None and all(integers[i].bound is not None for i in program.varied):
        number = {u: i for i, u in enumerate(found.buffers)}
        number |= {made[program.label[i], found.home(i, dev)]: -1 - i for i in program.varied_floats}
        offsets = list(zip(sizes, sorted(program.varied), strict=True))
        program.form = _Form(program.inputs(), general_key, [number[b] for b in given], offsets)
    return Inputs(lambda: general, general_key, given, sizes, program, found.inspected)


def _build_again(batch: list[UOp], dev: str) -> list[UOp]:
    general = with_inputs(batch, dev, may_know=False)
    if general is None:
        raise InternalError("a batch with inputs cannot be built again", found=batch)
    return general.built()


def _symbolic(
    program: _Program, integers: Sequence[_Integer], order: Sequence[UOp]
) -> tuple[dict[UOp, int], dict[tuple[UOp, int], dict[int, Any]]] | None:
    """Return the values of Variables, and for (node, source) the items that become symbolic; None if that is not
    possible.
    """
    values: dict[UOp, int] = {}
    new: dict[tuple[UOp, int], dict[int, Any]] = {}
    varied = [integers[p] for p in sorted(program.varied)]
    sizes = [p for p in sorted(program.varied) if integers[p].bound is None]
    if len(varied) - len(sizes) >= MAX_VARIABLES:
        return None
    if sizes:
        if not _may_be_symbolic(order):
            return None
        n = max(integers[sizes[0]].value, 1)
        power = 1 << (n - 1).bit_length()  # the smallest power of two that is at least n
        size = _variable("n", power // 2 + 1, power)
        values[size] = n
        for p in sizes:
            x = integers[p]
            line = _line(program.samples, sizes[0], p)
            if line is None or line[0] * n + line[1] != x.value:
                return None
            new.setdefault((x.user, x.k), {})[x.i] = size * line[0] + line[1]
    for number, x in enumerate(v for v in varied if v.bound is not None):
        assert x.bound is not None
        limit = 1 << x.bound.bit_length() if sizes else x.bound  # with sizes, one for all between two powers of two
        offset = _variable(f"offset{number}", 0, max(limit, 1))
        values[offset] = x.value
        new.setdefault((x.user, x.k), {})[x.i] = offset
    return values, new


def _variable(name: str, low: int, high: int) -> UOp:
    """Return the node of a Variable; no Variable of a user has such a name."""
    return node("PARAM", (), ParamArg(0, dtypes.index, None, None, f"varied__{name}", low, high))


def _line(samples: Sequence[list[int]], base: int, p: int) -> tuple[int, int] | None:
    """Return (a, b) with item `p` = a * item `base` + b in all samples; None if there are no such integers."""
    first = samples[0]
    other = next((s for s in samples if s[base] != first[base]), None)
    if other is None or (other[p] - first[p]) % (other[base] - first[base]):
        return None
    a = (other[p] - first[p]) // (other[base] - first[base])
    b = first[p] - a * first[base]
    return (a, b) if all(s[p] == a * s[base] + b for s in samples) else None


def _may_be_symbolic(order: Sequence[UOp]) -> bool:
    """Whether the nodes are so few and small that symbolic sizes are worth their slower kernels; writes to memory of a
    symbolic size are not treated, and a BUFFER without memory, such as a placeholder, has no other of that size.
    """
    for u in order:
        if u.op == "BUFFER" and u.storage is None:
            return False
        if u.op in _WRITES or not all(n.__class__ is int for n in u.shape) or prod(u.shape) > MAX_SYMBOLIC_SIZE:
            return False
    return True


def _rebuilt(
    batch: Sequence[UOp],
    order: Sequence[UOp],
    masked: Collection[UOp],
    inputs: dict[tuple[UOp, int], UOp],
    new: dict[tuple[UOp, int], dict[int, Any]],
) -> list[UOp]:
    """Return `batch` with its float constants replaced by `inputs`, and items of shapes by `new`; the keys of both are
    (node, source). The masks of the nodes `masked` are built again.
    """
    done: dict[UOp, UOp] = {}
    for u in order:
        src = [inputs.get((u, k)) or done.get(s, s) for k, s in enumerate(u.src)]
        for k in range(len(src)):
            if items := new.get((u, k)):
                given = [items.get(i, c.value) for i, c in enumerate(_items(u.src[k]))]
                src[k] = given[0] if u.op in _CALLS else shape_source(given)
        if u.op == "BUFFER":
            done[u] = u if src[0] is u.src[0] else with_storage(_sizes(src[0]), u.dtype, u.arg.device, u.storage)
        else:
            if u in masked:
                src[0] = _mask_of(src[1])
            done[u] = rebuild(u, tuple(src))
    return [done[u] for u in batch]


def _walk(batch: Sequence[UOp]) -> tuple[list[UOp], set[UOp]]:
    """Return the nodes of `batch`, sources first, without bodies and what is below a BUFFER, a shape, or the mask of a
    PAD; and those nodes whose source 0 is such a mask.
    """
    masked: set[UOp] = set()

    def sources(u: UOp) -> tuple[UOp, ...]:
        if u.op == "WHERE" and u.src[1].op == "PAD" and u.src[0] is _mask_of(u.src[1]):
            masked.add(u)
            return u.src[1:]
        return u.src[1:] if u.op in _CALLS else u.src

    return toposort(*batch, stop=_is_leaf, sources=sources), masked


def _mask_of(pad: UOp) -> UOp:
    return _mask(pad.src[1], pad.src[0].shape, pad.shape)


@lru_cache(maxsize=1024)
def _mask(offsets: UOp, sizes: tuple[Any, ...], shape: tuple[Any, ...]) -> UOp:
    return pad_mask(offsets.sizes, sizes, shape)


def _is_of_a_process(u: UOp) -> bool:
    return u.op == "BUFFER" and u.arg.device.__class__ is str and is_of_a_process(u.arg.device)


def _read(batch: Sequence[UOp], may_have_other_shapes: bool = True) -> _Reading:
    """Read a batch. The integers of shapes are in the key unless batches of the program may have other shapes.

    The key spells the batch out as that of `structure` does. A shape or number is a part of the node that uses it.
    """
    key: list[Any] = []
    floats: list[tuple[UOp, int]] = []
    shapes: list[tuple[UOp, int]] = []
    buffers: list[UOp] = []
    inspected: list[UOp] = []
    number: dict[UOp, int] = {}
    stack = [*reversed(batch)]
    while stack:
        u = stack.pop()
        op, src = u.op, u.src
        if not src:
            key.append(u)
            continue
        if (n := number.get(u)) is not None:
            key.append(n)
            continue
        number[u] = len(number)
        if op == "BUFFER":
            buffers.append(u)
            if u.recomputed:
                inspected.append(u)
            sizes: tuple[Any, ...] = src[0].src
            if may_have_other_shapes:
                shapes.append((u, 0))
                sizes = tuple([None if c.op == "CONST" else c for c in sizes])
            key += (op, sizes, u.dtype, placement(u))
            continue
        if u.holder is not None:
            inspected.append(u)
        first = 0
        if op in _CALLS:  # the numbers of a body are a part of it; its arg may hold a derivative of the user's
            key += (op, src[0], len(src))
            first = 1
        elif op == "WHERE" and src[1].op == "PAD" and src[0] is _mask_of(src[1]):
            first = 1
            key += ("PADDED", u.arg, u.tag, len(src))
        else:
            key += (op, u.arg, u.tag, len(src))
        below: list[UOp] = []
        for k in range(first, len(src)):
            s = src[k]
            if s.op == "CONST":
                if may_be_input(s):
                    key.append(s.dtype)
                    floats.append((u, k))
                elif op in _CALLS and s.dtype is dtypes.index:
                    key.append(s.dtype)
                    shapes.append((u, k))
                else:
                    key.append(s)
                continue
            if k and may_have_other_shapes and op in _SHAPED and s.op == "STACK":
                shapes.append((u, k))
                if _is_shape(s):
                    key.append(len(s.src))
                    continue
            key.append(None)
            below.append(s)
        stack += reversed(below)
    return _Reading(tuple(key), floats, shapes, buffers, inspected)


def _items(s: UOp) -> tuple[UOp, ...]:
    """Return the items of the shape `s`, or the argument `s` of a call itself."""
    return s.src or (s,)


def _sizes(shape: UOp) -> tuple[Any, ...]:
    return tuple([s.value if s.op == "CONST" else s for s in shape.src])


def _bound(u: UOp, i: int) -> int | None:
    """Return the largest offset along axis `i` of a SHRINK or PAD; None if it depends on a symbolic size."""
    large, small = (u.src[0].shape[i], u.shape[i]) if u.op == "SHRINK" else (u.shape[i], u.src[0].shape[i])
    return large - small if large.__class__ is small.__class__ is int else None


def _is_leaf(u: UOp) -> bool:
    """Whether the walk does not look below the node: a BUFFER, or a shape."""
    return u.op == "BUFFER" or _is_shape(u)


def _is_shape(u: UOp) -> bool:
    return u.op == "STACK" and u.dtype is dtypes.index and _has_constants(u)


@lru_cache(maxsize=4096)  # of nodes that hold no memory
def _has_constants(shape: UOp) -> bool:
    return all([s.op == "CONST" for s in shape.src])


__all__ = ["MIN_PLANS", "MIN_REPEATS", "Inputs", "is_likely", "note_inputs", "with_inputs"]
