"""Define the op table: one row per op of the IR.

A row gives the number of sources, the type of `arg`, the dtype rule, the shape rule, the stages at which the op is
allowed, its traits, its meaning (a function that computes the op on NumPy values) and one line of prose. Building a
node applies the rules. The verifier, the text form, the interpreter, `monolect ops` and the fuzz generators read the
rows. Gradients, decompositions and rendering are not here; each transformation has its own table.

Invariant: every rule either returns, or raises IRError naming op, expected and found.
Source: the single-dialect specification (op tables and derived properties); IOTA and the shaped INDEX are this
project's (docs/adr/0002-iota-and-shaped-index.md).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Flag, auto
from math import prod
from typing import Any, NamedTuple

from monolect.base.dtype import DType, dtypes
from monolect.base.errors import IRError
from monolect.base.numpy import np
from monolect.ir.layout import Layout, is_layout


class Stage(Flag):
    """The stages of the IR, as flags: graph of tensors, kernel with loops (RANGEs), linear program, command buffer.

    The row of each op has the set of stages at which the op is allowed.
    """

    TENSOR = auto()
    KERNEL = auto()
    PROGRAM = auto()
    COMMAND = auto()


T, K, P, C = Stage.TENSOR, Stage.KERNEL, Stage.PROGRAM, Stage.COMMAND
ANY = T | K | P | C


class _Invalid:
    """The class of INVALID, the value that PAD adds. A WHERE or gate must discard it; a STORE of it has no effect."""

    def __repr__(self) -> str:
        return "invalid"

    def __reduce__(self) -> str:
        return "INVALID"


INVALID = _Invalid()


def _shown(arg: Any) -> str:
    """Return the `repr` of a ParamArg, BufferArg or LoadArg without an axis of 0, which has no meaning on one device."""
    names = arg._fields if arg.axis != 0 else arg._fields[:-1]
    return f"{type(arg).__name__}({', '.join([f'{name}={getattr(arg, name)!r}' for name in names])})"


class ParamArg(NamedTuple):
    """Argument of a PARAM: a placeholder for memory or for a symbolic size, which is bound at slot number `slot`.

    The PARAM of a symbolic size (a Variable) also has a `name` and the inclusive bounds `min` and `max`, None for
    memory. `device`, `axis`: as in BufferArg. An `addrspace` of None means GLOBAL, and for a scalar no address space.
    """

    slot: int
    dtype: DType
    device: Any = None
    addrspace: str | None = None
    name: str | None = None
    min: int | None = None
    max: int | None = None
    axis: Layout = 0

    def __repr__(self) -> str:
        return _shown(self)

    @property
    def symbol(self) -> tuple:
        """The key under which the value of a Variable is bound: (name, min, max)."""
        return self.name, self.min, self.max


class BufferArg(NamedTuple):
    """Argument of a BUFFER: a piece of memory with the unique number `slot`.

    If `device` is a tuple, `axis` is the layout of the memory: the axis that the devices divide, None if each device
    holds all of it, or pairs for a mesh of several axes (`ir/layout.py`). `addrspace`: "GLOBAL" memory of the device,
    "LOCAL" memory of a workgroup or thread, or registers ("REG").
    """

    slot: int
    dtype: DType
    device: Any
    addrspace: str = "GLOBAL"
    axis: Layout = 0

    def __repr__(self) -> str:
        return _shown(self)


class LoadArg(NamedTuple):
    """Argument of a LOAD that does more than read an element; the argument of a plain LOAD is None.

    `device`, `addrspace`: copy the memory to this device and address space; to a tuple of devices with the layout
    `axis`, as in BufferArg. `prefetch_bytes`: also prefetch the cache line this many bytes after the address.
    `pipelined`: load one loop iteration ahead of the use, through registers ("registers") or directly to local memory
    ("async"). `rounded`: the LOAD reads a float64 accumulator, whose value may be rounded to the dtype of the terms.
    """

    device: Any = None
    addrspace: str | None = None
    prefetch_bytes: int = 0
    pipelined: str | None = None
    rounded: bool = False
    axis: Layout = 0

    def __repr__(self) -> str:
        return _shown(self)


class TmaCopyArg(NamedTuple):
    """Argument of TMACOPY, a copy by the GPU's tensor memory accelerator (TMA): a tensor map and the shape of a box.

    `strides` (in elements), `sizes` (extents) and `box` (box sizes) have a number per axis, innermost axis first.
    Element `start` of the tensor has coordinate 0 on all axes. Boxes fill `n_buffers` blocks of local memory in turn.
    """

    start: int
    strides: tuple[int, ...]
    sizes: tuple[int, ...]
    box: tuple[int, ...]
    n_buffers: int


class KernelInfo(NamedTuple):
    """Argument of the SINK of a kernel: its name, the optimizer's `actions` (None: not chosen), its number of threads.

    `frozen`: slots of PARAMs whose contents are the same at every run. Packed blocks (rearranged copies) of these
    contents are filled once, by a separate kernel, whose KernelInfo differs only in `fills`. `frames`: whether the
    kernel fills the padding of a buffer whose interior other kernels write. `is_applied`: whether `actions` were
    applied to the loops. `exchange`: (name, group) of the collective that it is a device's share of; else ().
    """

    name: str = "kernel"
    actions: tuple | None = None
    threads: int = 1
    frozen: tuple[int, ...] = ()
    fills: bool = False
    frames: bool = False
    is_applied: bool = False
    exchange: tuple = ()


class ProgramInfo(NamedTuple):
    """Argument of PROGRAM, a compiled kernel: the data that a launch of the kernel needs.

    `key` names its code in the caches of the device. `threads` threads run it in parallel, each with `local_bytes`
    bytes of scratch memory. `operands` has (dtype, number of elements, access) for each operand; access is "read",
    "write" or "update" (both). If the program fills packed blocks, `layouts` has the layout of each block; operand 2k
    is block k, and operand 2k + 1 the memory that block k is copied from.
    """

    name: str
    key: str = ""
    threads: int = 1
    local_bytes: int = 0
    operands: tuple = ()
    layouts: tuple = ()


class StepInfo(NamedTuple):
    """Argument of the FUNCTION of a step: a batch of kernels over memory that the caller binds.

    `roles` gives the role of each PARAM of the step, by slot: "argument"; "old", the previous version of a state that
    gets new memory at each call; "size", a Variable; "result", in fresh memory; "state", updated in place; "read", an
    external tensor that may be bound again; "constant". The TUPLE in the body has `n_results` results, then the new
    versions of the states whose slots are in `moves`, then the states that are updated in place. `reuse`: (slot of a
    result, slot of an argument) pairs; the result may take the memory of that donated argument. `shared`: slots of
    constants that external code may write. `is_replayed`: whether the step runs many times, so that grouping and
    hoisting its kernels pays.
    """

    roles: tuple[str, ...] = ()
    n_results: int = 0
    moves: tuple[int, ...] = ()
    reuse: tuple[tuple[int, int], ...] = ()
    shared: tuple[int, ...] = ()
    is_replayed: bool = False


ROLES = ("argument", "old", "size", "result", "state", "read", "constant")
SPACES = ("GLOBAL", "LOCAL", "REG")
STORE_KINDS = ("distinct", "nontemporal")
AXIS_TYPES = ("GLOBAL", "LOCAL", "WARP", "THREAD", "LOOP", "REDUCE", "GROUP_REDUCE", "UPCAST", "UNROLL", "CONTRACT")


class Row(NamedTuple):
    """A row of the op table: the properties of one op of the IR.
    `node` calls the rules `dtype` and `shape` with (src, arg) whenever a node is built; they return its dtype and
    shape, or raise IRError for wrong sources. `meaning` computes an elementwise op on NumPy arrays; it is None for
    other ops and for CAST.
    """

    name: str
    lo: int  # fewest sources
    hi: int | None  # most sources, None: any number
    arg: str  # description of `arg`, for people and for the text form
    dtype: Callable[[tuple, Any], DType]
    shape: Callable[[tuple, Any], tuple]
    stages: Stage
    traits: frozenset[str]
    meaning: Callable | None  # meaning(dtype, *arrays) -> array
    prose: str


# Rules of FUNCTION and CALL that look into the body. `ir.rewrite.calls` registers them here, because they walk graphs.
# "arguments": (body, arguments) -> None, or raises IRError; "shape": (shape in the body, sources of the call) -> shape.
CALLS: dict[str, Callable] = {}


# ---- dtype rules: (src, arg) -> DType --------------------------------------------------------------------------------
def _fail(what: str, expected: Any, found: Any) -> IRError:
    return IRError(what, expected=str(expected), found=str(found))


def _field(src: tuple, arg: Any) -> DType:
    return arg.dtype


def _first(src: tuple, arg: Any) -> DType:
    return src[0].dtype


def _void(src: tuple, arg: Any) -> DType:
    return dtypes.void


def _loaded(src: tuple, arg: Any) -> DType:
    if len(src) > 1:
        _check_gated(src[0], src[1], src[2:])
    if arg is not None and arg.addrspace is not None and arg.addrspace not in SPACES:
        raise _fail("unknown address space", "one of " + ", ".join(SPACES), repr(arg.addrspace))
    d: DType = src[0].dtype
    return d


def _stored(src: tuple, arg: Any) -> DType:
    if src[1].dtype is not src[0].dtype or len(src) > 2:
        _check_gated(src[0], src[1], src[2:])
    if arg is not None and arg not in STORE_KINDS:
        raise _fail("an unknown kind of store", "one of " + ", ".join(STORE_KINDS), repr(arg))
    return dtypes.void


def _added(src: tuple, arg: Any) -> DType:
    _check_gated(src[0], src[1], src[2:])
    return dtypes.void


def _check_gated(memory: Any, value: Any, gate: tuple) -> None:
    """Check the operands of an access that is masked by a gate (a bool operand; without it every element is accessed).

    `value` must have the dtype of `memory`. `gate` has no or one UOp, which must be a bool. Raises IRError.
    """
    if value.dtype is not memory.dtype:
        raise _fail("a value of another dtype than the memory", memory.dtype.name, value.dtype.name)
    if gate and gate[0].dtype is not dtypes.bool:
        raise _fail("a gate that is no condition", "bool", gate[0].dtype.name)


def _index(src: tuple, arg: Any) -> DType:
    return dtypes.index


def _agree(src: tuple, arg: Any) -> DType:
    d = src[0].dtype
    for s in src:
        if s.dtype is not d:
            raise _fail("operand dtypes differ", d.name, s.dtype.name)
    return d


def _float(src: tuple, arg: Any) -> DType:
    if not (d := _agree(src, arg)).is_float:
        raise _fail("operand must be a float", "a float dtype", d.name)
    return d


def _number(src: tuple, arg: Any) -> DType:
    if (d := _agree(src, arg)).kind in "vs":
        raise _fail("operand must be a number", "a numeric dtype", d.name)
    return d


def _reduced(src: tuple, arg: Any) -> DType:
    return _number(src[:1], arg)


def _signed(src: tuple, arg: Any) -> DType:
    if (d := _number(src, arg)).kind == "b":
        raise _fail("bool has no minus", "an integer or float dtype", d.name)
    return d


def _integer(src: tuple, arg: Any) -> DType:
    if not (d := _agree(src, arg)).is_int:
        raise _fail("operand must be an integer", "an integer dtype", d.name)
    return d


def _bits(src: tuple, arg: Any) -> DType:
    if not (d := _agree(src, arg)).is_int and d is not dtypes.bool:
        raise _fail("operand must be an integer or bool", "an integer dtype or bool", d.name)
    return d


def _compare(src: tuple, arg: Any) -> DType:
    _number(src, arg)
    return dtypes.bool


def _where(src: tuple, arg: Any) -> DType:
    if src[0].dtype is not dtypes.bool:
        raise _fail("condition of WHERE", "bool", src[0].dtype.name)
    return _agree(src[1:], arg)


def _stack_dtype(src: tuple, arg: Any) -> DType:
    return _agree(src, arg) if src else dtypes.index


def _const_dtype(src: tuple, arg: Any) -> DType:
    return arg[1]


def _cast_dtype(src: tuple, arg: Any) -> DType:
    if not isinstance(arg, DType) or arg.kind == "v":
        raise _fail("target of a cast", "a dtype with values", arg)
    return arg


def _iota_dtype(src: tuple, arg: Any) -> DType:
    if not arg.is_int:
        raise _fail("IOTA dtype", "an integer dtype", arg.name)
    return arg


def _called(src: tuple, arg: Any) -> DType:
    # The memory of a step or PROGRAM is untyped; `command.check` compares it with the recorded types.
    if arg.__class__ is not StepInfo and src[0].op != "PROGRAM" and (check := CALLS.get("arguments")) is not None:
        check(src[0], src[1:])
    return src[0].dtype


def _element_dtype(src: tuple, arg: Any) -> DType:
    body = src[0].src[0] if src[0].op == "FUNCTION" or src[0].op == "CALL" else src[0]
    if body.op != "TUPLE":
        raise _fail("GETTUPLE of what packs no values", "a TUPLE, or a FUNCTION or CALL of one", body.op)
    if arg.__class__ is not int or not 0 <= arg < len(body.src):
        raise _fail("GETTUPLE index", f"0..{len(body.src) - 1}", arg)
    return body.src[arg].dtype


def _uint8(src: tuple, arg: Any) -> DType:
    return dtypes.uint8


# ---- shape rules: (src, arg) -> tuple of int | UOp ---------------------------------------------------------------------
def _scalar(src: tuple, arg: Any) -> tuple:
    return ()


def _shape_first(src: tuple, arg: Any) -> tuple:
    return src[0].shape


def broadcast(shapes: list[tuple]) -> tuple:
    """Return the shape to which all of `shapes` broadcast, aligned at the last axis. Raises IRError if two sizes of an
    axis differ and neither is 1.
    """
    rank = max(map(len, shapes))
    out: list[Any] = [1] * rank
    for s in shapes:
        for k, n in enumerate(s, rank - len(s)):
            if n is out[k] or n == out[k] or (n.__class__ is int and n == 1):
                continue
            if out[k].__class__ is int and out[k] == 1:
                out[k] = n
            else:
                raise _fail("shapes do not broadcast", "equal sizes or 1 on each axis", " and ".join(map(str, shapes)))
    return tuple(out)


def _broadcast(src: tuple, arg: Any) -> tuple:
    a = src[0].shape
    for s in src:
        if s.shape != a:
            if not s.shape:
                continue  # fast path: a scalar operand of a tensor
            return broadcast([x.shape for x in src])
    return a


def _memory_shape(src: tuple, arg: Any) -> tuple:
    shape: tuple = src[0].sizes if src else ()
    space, device = arg.addrspace, arg.device
    if space == "GLOBAL" and device.__class__ is str:
        return shape  # fast path
    if space not in SPACES and (space is not None or arg.__class__ is BufferArg):
        raise _fail("unknown address space", "one of " + ", ".join(SPACES), repr(space))
    if device.__class__ is tuple and arg.__class__ is BufferArg and not is_layout(arg.axis, len(device), len(shape)):
        raise _fail("the layout of memory on several devices", f"one for {len(device)} of {shape}", arg.axis)
    return shape


def _stored_shape(src: tuple, arg: Any) -> tuple:
    """Return (), the shape of a STORE with the sources `src`, after checking their shapes.

    The value src[1] and the gate src[2] (if there is one: the condition under which an element is stored) must
    broadcast to the shape of the memory src[0]. Raises IRError.
    """
    target, shape = src[0].shape, src[1].shape
    if (not shape or shape == target) and len(src) == 2:
        return ()  # fast path
    for s in src[1:]:
        if s.shape != target and s.shape and not _is_broadcast(s.shape, target):
            raise _fail("a value of another shape than the memory it is written to", target, s.shape)
    return ()


def _is_broadcast(old: tuple, new: tuple) -> bool:
    """Whether a value of shape `old`, aligned at the last axis, broadcasts to exactly the shape `new`."""
    aligned = zip(reversed(old), reversed(new), strict=False)
    return len(old) <= len(new) and all(a is b or (a.__class__ is int and a in (1, b)) for a, b in aligned)


def _permute(src: tuple, arg: Any) -> tuple:
    s = src[0].shape
    if sorted(arg) != list(range(len(s))):
        raise _fail("PERMUTE order", f"a permutation of {len(s)} axes", arg)
    return tuple([s[i] for i in arg])


def _flip(src: tuple, arg: Any) -> tuple:
    if len(arg) != len(src[0].shape):
        raise _fail("FLIP flags", f"{len(src[0].shape)} bools", arg)
    return src[0].shape


def _reshape(src: tuple, arg: Any) -> tuple:
    old, new = src[0].shape, src[1].sizes
    a, b = prod(old), prod(new)
    if a.__class__ is int and b.__class__ is int and a != b:  # the graph builder compares symbolic sizes
        raise _fail("RESHAPE changes the number of elements", f"{a} elements of {old}", new)
    return new


def _expand(src: tuple, arg: Any) -> tuple:
    old, new = src[0].shape, src[1].sizes
    if len(old) != len(new) or any(a != b and a != 1 for a, b in zip(old, new, strict=True)):
        raise _fail("EXPAND shape", f"{old} with size-1 axes enlarged", new)
    return new


def _pad(src: tuple, arg: Any) -> tuple:
    old, off, new = src[0].shape, src[1].sizes, src[2].sizes
    if not len(old) == len(off) == len(new):
        raise _fail("PAD rank", len(old), (len(off), len(new)))
    for s, o, n in zip(old, off, new, strict=True):
        if isinstance(s, int) and isinstance(o, int) and isinstance(n, int) and (o < 0 or o + s > n):
            raise _fail("PAD puts elements of its source outside the result", f"0 <= offset and offset + {s} <= {n}", o)
    return new


def _shrink(src: tuple, arg: Any) -> tuple:
    old, off, new = src[0].shape, src[1].sizes, src[2].sizes
    if not len(old) == len(off) == len(new):
        raise _fail("SHRINK rank", len(old), (len(off), len(new)))
    for s, o, n in zip(old, off, new, strict=True):
        if isinstance(s, int) and isinstance(o, int) and isinstance(n, int) and (o < 0 or n < 0 or o + n > s):
            raise _fail("SHRINK keeps elements outside the source", f"0 <= offset and offset + size <= {s}", (o, n))
    return new


def _replicated(src: tuple, arg: Any) -> tuple:
    s = src[0].shape
    if arg.__class__ is not int or not 0 <= arg < len(s):
        raise _fail("REPLICATED axis", f"an axis of {s}", arg)
    return s[:arg] + s[arg + 1 :]


def _index_shape(src: tuple, arg: Any) -> tuple:
    base, idx = src[0].shape, src[1:]
    if len(idx) > len(base):
        raise _fail("INDEX has more indices than axes", f"at most {len(base)}", len(idx))
    out: tuple = ()
    for i in idx:
        if not i.dtype.is_int:
            raise _fail("INDEX needs integers", "an integer dtype", i.dtype.name)
        out += i.shape
    return out + base[len(idx) :]


def _stack(src: tuple, arg: Any) -> tuple:
    for s in src:
        if s.shape != src[0].shape:
            raise _fail("STACK shapes differ", src[0].shape, s.shape)
    return (len(src), *src[0].shape) if src else (0,)


def _bitcast(src: tuple, arg: Any) -> tuple:
    old, new, s = src[0].dtype.itemsize, arg.itemsize, src[0].shape
    if old == new:
        return s
    if not s or (isinstance(s[-1], int) and s[-1] * old % new):
        raise _fail("BITCAST preserves total bytes", f"last axis divisible into {arg.name}", s)
    return (*s[:-1], s[-1] * old // new)


def _reduce(src: tuple, arg: Any) -> tuple:
    op, axes = arg
    if op not in ("ADD", "MAX", "MUL"):
        raise _fail("REDUCE op", "ADD, MAX or MUL", op)
    s = src[0].shape
    if not axes:
        return s
    if min(axes) < 0 or max(axes) >= len(s):
        raise _fail("REDUCE axes", f"axes of {s}", axes)
    if len(src) > 1:
        raise _fail("REDUCE along axes and ranges", "one or the other: two REDUCEs", axes)
    return tuple([1 if i in axes else n for i, n in enumerate(s)])


def _scan_shape(src: tuple, arg: Any) -> tuple:
    op, axis = arg
    if op not in ("ADD", "MAX", "MUL") or not 0 <= axis < len(src[0].shape):
        raise _fail("SCAN", f"ADD, MAX or MUL along an axis of {src[0].shape}", arg)
    return src[0].shape


def _iota_shape(src: tuple, arg: Any) -> tuple:
    return (src[0].value if src[0].op == "CONST" else src[0],)


def _element_shape(src: tuple, arg: Any) -> tuple:
    call = src[0]
    if call.op == "TUPLE":
        return call.src[arg].shape
    shape = call.src[0].src[arg].shape
    is_symbolic = any(n.__class__ is not int for n in shape)
    return CALLS["shape"](shape, call.src) if is_symbolic and "shape" in CALLS else shape


def _function_shape(src: tuple, arg: Any) -> tuple:
    return () if src[0].op == "TUPLE" else src[0].shape


def _binary_shape(src: tuple, arg: Any) -> tuple:
    return (len(arg),)


def _wmma_shape(src: tuple, arg: Any) -> tuple:
    return src[2].shape


# ---- meanings: (dtype, *arrays) -> array -------------------------------------------------------------------------------
def _np_idiv(dtype: DType, a: Any, b: Any) -> Any:
    safe = np.where(b == 0, np.ones_like(b), b)
    q = np.floor_divide(a, safe)
    if not dtype.is_unsigned:  # NumPy warns of overflow for min // -1; the dialect wraps
        q = np.where(safe == -1, np.negative(a), q)
    return np.where(b == 0, np.zeros_like(q), q).astype(np.asarray(a).dtype)


def _np_mod(dtype: DType, a: Any, b: Any) -> Any:
    safe = np.where(b == 0, np.ones_like(b), b)
    r = np.remainder(a, safe)
    return np.where(b == 0, np.zeros_like(r), r).astype(np.asarray(a).dtype)


def _np_shift(left: bool) -> Callable:
    def shift(dtype: DType, a: Any, b: Any) -> Any:
        bits = min(dtype.bits, 64)
        a = np.asarray(a)
        far = (b < 0) | (b >= bits) if not dtype.is_unsigned else b >= bits
        amount = np.where(far, 0, b).astype(a.dtype)
        out = np.left_shift(a, amount) if left else np.right_shift(a, amount)
        fill = np.zeros_like(a) if left or dtype.is_unsigned else np.where(a < 0, -1, 0).astype(a.dtype)
        return np.where(far, fill, out).astype(a.dtype)

    return shift


def _np_max(dtype: DType, a: Any, b: Any) -> Any:
    return np.logical_or(a, b) if dtype.kind == "b" else np.maximum(a, b)


def _np_threefry(dtype: DType, counter: Any, key: Any) -> Any:
    """Compute Threefry-2x32, a counter-based random function with 20 rounds, of the uint64 arrays `counter` and `key`.

    A uint64 holds the two 32-bit words. Source: Salmon et al., 2011.
    """
    m = np.uint64(0xFFFFFFFF)
    c, k = np.asarray(counter, np.uint64), np.asarray(key, np.uint64)
    ks = [k & m, k >> np.uint64(32)]
    ks.append(ks[0] ^ ks[1] ^ np.uint64(0x1BD11BDA))
    x0, x1 = ((c & m) + ks[0]) & m, ((c >> np.uint64(32)) + ks[1]) & m
    for i in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x0 = (x0 + x1) & m
            x1 = (((x1 << np.uint64(r)) | (x1 >> np.uint64(32 - r))) & m) ^ x0
        x0 = (x0 + ks[(i + 1) % 3]) & m
        x1 = (x1 + ks[(i + 2) % 3] + np.uint64(i + 1)) & m
    return x0 | (x1 << np.uint64(32))


def _np(name: str) -> Callable:
    """Return a `meaning` for a row of the op table: a function (dtype, *arrays) -> array that calls the NumPy function
    `name`.
    `name`: an attribute of the module `numpy`. The function ignores `dtype`.
    """

    def meaning(dtype: DType, *xs: Any) -> Any:
        return getattr(np, name)(*xs)

    return meaning


def _np_add(dtype: DType, a: Any, b: Any) -> Any:
    return np.logical_or(a, b) if dtype.kind == "b" else np.add(a, b)


def _np_mul(dtype: DType, a: Any, b: Any) -> Any:
    return np.logical_and(a, b) if dtype.kind == "b" else np.multiply(a, b)


def _np_pow(dtype: DType, a: Any, b: Any) -> Any:
    """Compute a ** b of NumPy arrays as IEEE 754 defines it. NumPy takes the square root for a scalar exponent 0.5,
    which differs at -0.0 and -inf.
    """
    root = (b == 0.5) & ((a == 0) | (a == -np.inf))
    return np.where(root, np.abs(a), np.power(a, b)).astype(np.asarray(a).dtype)


def _np_mulacc(dtype: DType, a: Any, b: Any, c: Any) -> Any:
    return np.add(np.multiply(a, b), c)


def _np_ldexp(dtype: DType, a: Any, b: Any) -> Any:
    return np.ldexp(a, np.clip(b, -5000, 5000).astype(np.int32)).astype(np.asarray(a).dtype)


def _np_recip(dtype: DType, a: Any) -> Any:
    return np.divide(np.ones((), np.asarray(a).dtype), a)


# ---- the table ---------------------------------------------------------------------------------------------------------
def _t(*traits: str) -> frozenset[str]:
    return frozenset(traits)


_E, _CE, _N = _t("elementwise"), _t("elementwise", "commutative"), _t()
_V, _D = _t("movement"), _t("elementwise", "decomposed")
_CD = _t("elementwise", "decomposed", "commutative")
_S, _M = _t("effect"), _t("marker")

# fmt: off
_ROWS = [
    # source ops
    Row("PARAM",    0, 1, "ParamArg",   _field, _memory_shape, ANY, _N, None, "Placeholder of shape src[0], which a FUNCTION or CALL replaces by an argument; a scalar with a name and bounds is a symbolic Variable."),
    Row("BUFFER",   1, 1, "BufferArg",  _field, _memory_shape, ANY, _N, None, "Storage of shape src[0] in GLOBAL, LOCAL or REG memory; a tuple of devices divides one axis of it."),
    Row("CONST",    0, 0, "(value, dtype)", _const_dtype, _scalar, ANY, _N, None, "A scalar constant; the value may be invalid."),
    Row("BINARY",   0, 0, "bytes",      _uint8, _binary_shape, ANY, _N, None, "Raw bytes as a uint8 vector; also compiled machine code."),
    Row("IOTA",     1, 1, "dtype",      _iota_dtype, _iota_shape, T, _N, None, "The vector 0, 1, ..., src[0] - 1; becomes a RANGE of a kernel, never a kernel of its own."),
    # movement ops: pure views
    Row("PERMUTE",  1, 1, "axis order", _first, _permute, ANY, _V, None, "Reorder axes."),
    Row("FLIP",     1, 1, "bools",      _first, _flip, T | C, _V, None, "Reverse the flagged axes."),
    Row("RESHAPE",  2, 2, "-",          _first, _reshape, ANY, _V, None, "The elements of src[0] in row-major order as shape src[1]."),
    Row("EXPAND",   2, 2, "-",          _first, _expand, ANY, _V, None, "Broadcast the size-1 axes of src[0] to shape src[1]."),
    Row("PAD",      3, 3, "-",          _first, _pad, T, _V, None, "Copy src[0] to offset src[1] of a result of shape src[2]; all other elements are invalid."),
    Row("SHRINK",   3, 3, "-",          _first, _shrink, ANY, _V, None, "The elements of src[0] from offset src[1], of shape src[2]; inverse of PAD."),
    Row("REPLICATED", 1, 1, "axis",     _first, _replicated, T, _N, None, "Element 0 of an axis whose elements are equal. Along the shard axis each device has one of them, so the result is whole on each device."),
    Row("INDEX",    1, None, "-",       _first, _index_shape, ANY, _V, None, "Index the leading axes of src[0] by src[1:]; an index of shape S replaces its axis by S."),
    Row("STACK",    0, None, "-",       _stack_dtype, _stack, ANY, _N, None, "Stack values of one shape along a new leading axis."),
    Row("BITCAST",  1, 1, "dtype",      _cast_dtype, _bitcast, ANY, _N, None, "Reinterpret the bytes as another dtype; the last axis changes so that the total bytes are the same."),
    # reduce
    Row("REDUCE",   1, None, "(op, axes)", _reduced, _reduce, T | K | P, _N, None, "Reduce along axes (to size 1) or along the ranges in src[1:], not both, with ADD, MAX or MUL."),
    Row("SCAN",     1, 1, "(op, axis)", _number, _scan_shape, K | P, _N, None, "Inclusive scan (running ADD, MAX or MUL) along an axis of a shaped value."),
    # call ops
    Row("FUNCTION", 1, None, "StepInfo, name or -", _called, _function_shape, T | C, _N, None, "The TUPLE body src[0] with PARAM k replaced by argument src[k + 1], of the same dtype and shape; differentiable."),
    Row("CALL",     1, None, "-",       _called, _function_shape, ANY, _S, None, "Run the kernel or custom function src[0] on the arguments src[1:], of the dtypes and sizes of its PARAMs; opaque to rewrites."),
    Row("TUPLE",    0, None, "-",       _void, _scalar, ANY, _N, None, "Several values as one node; the body of a FUNCTION."),
    Row("GETTUPLE", 1, 1, "index",      _element_dtype, _element_shape, ANY, _N, None, "One element of a TUPLE, or of the result of a FUNCTION or CALL whose body is a TUPLE."),
    # load and store
    Row("LOAD",     1, 3, "LoadArg or -", _loaded, _broadcast, ANY, _N, None, "Read memory src[0]; with a gate src[2], read only where it is true and give src[1] elsewhere. The argument may ask for a copy to another device, a prefetch or pipelining."),
    Row("STORE",    2, 3, "'distinct', 'nontemporal' or -", _stored, _stored_shape, ANY, _S, None, "Write src[1], broadcast to the shape of the memory src[0]; with a gate src[2], only where it is true. distinct: no two iterations write the same element, so their order is free. nontemporal: bypass the caches."),
    Row("PREFETCH", 1, 1, "-",          _void, _scalar, K | P, _S, None, "Prefetch the cache line at the address src[0] (INDEX) into L2; the address need not be valid."),
    # ordering
    Row("RANGE",    1, 1, "(id, axis type)", _index, _scalar, K | P | C, _N, None, "Loop variable that counts from 0 to src[0] - 1."),
    Row("END",      1, None, "-",       _void, _scalar, K | P | C, _S, None, "Close the RANGE loops src[1:] around the body src[0]."),
    Row("AFTER",    1, None, "-",       _first, _shape_first, ANY, _N, None, "The value or memory src[0] after the effects src[1:] have happened."),
    Row("GROUP",    0, None, "lanes or -", _void, _scalar, ANY, _S, None, "Effects in any order. lanes: for each thread, the ordered list of (source, part) pairs that it runs."),
    Row("SINK",     0, None, "KernelInfo or -", _void, _scalar, ANY, _S, None, "The root of a graph: its effects or requested values."),
    Row("LINEAR",   0, None, "'once' or -",       _void, _scalar, P | C, _S, None, "Instructions of a program, or items of a command buffer, in execution order. once: items that run again only after a constant changed."),
    # elementwise primitives
    Row("RECIP",    1, 1, "-", _float,   _broadcast, T | K | P, _E, _np_recip, "1 / x."),
    Row("TRUNC",    1, 1, "-", _float,   _broadcast, T | K | P, _E, _np("trunc"), "Round toward zero."),
    Row("CAST",     1, 1, "dtype", _cast_dtype, _broadcast, T | K | P, _E, None, "Convert to another dtype; float to integer saturates and maps nan to 0, integers wrap."),
    Row("ADD",      2, 2, "-", _number,  _broadcast, ANY, _CE, _np_add, "a + b; integers wrap; bool is or."),
    Row("MUL",      2, 2, "-", _number,  _broadcast, ANY, _CE, _np_mul, "a * b; integers wrap; bool is and."),
    Row("MAX",      2, 2, "-", _number,  _broadcast, ANY, _CE, _np_max, "max(a, b); nan if either is nan."),
    Row("MOD",      2, 2, "-", _integer, _broadcast, ANY, _E, _np_mod, "a modulo b with the sign of b; 0 where b is 0."),
    Row("IDIV",     2, 2, "-", _integer, _broadcast, ANY, _E, _np_idiv, "floor(a / b); 0 where b is 0; min // -1 wraps."),
    Row("CMPLT",    2, 2, "-", _compare, _broadcast, ANY, _E, _np("less"), "a < b."),
    Row("CMPNE",    2, 2, "-", _compare, _broadcast, ANY, _CE, _np("not_equal"), "a != b."),
    Row("XOR",      2, 2, "-", _bits,    _broadcast, T | K | P, _CE, _np("bitwise_xor"), "Bitwise exclusive or."),
    Row("OR",       2, 2, "-", _bits,    _broadcast, ANY, _CE, _np("bitwise_or"), "Bitwise or."),
    Row("AND",      2, 2, "-", _bits,    _broadcast, ANY, _CE, _np("bitwise_and"), "Bitwise and."),
    Row("SHR",      2, 2, "-", _integer, _broadcast, T | K | P, _E, _np_shift(False), "Shift right, arithmetic if signed; an amount outside [0, bits) leaves only the sign."),
    Row("SHL",      2, 2, "-", _integer, _broadcast, T | K | P, _E, _np_shift(True), "Shift left; an amount outside [0, bits) gives 0."),
    Row("WHERE",    3, 3, "-", _where,   _broadcast, ANY, _E, _np("where"), "src[1] where the condition src[0] is true, else src[2]."),
    # decomposed elementwise
    Row("NEG",      1, 1, "-", _signed,  _broadcast, T | K | P, _D, _np("negative"), "-x."),
    Row("SUB",      2, 2, "-", _signed,  _broadcast, T | K | P, _D, _np("subtract"), "a - b."),
    Row("DIV",      2, 2, "-", _float,   _broadcast, T | K | P, _D, _np("divide"), "a / b."),
    Row("CMPGT",    2, 2, "-", _compare, _broadcast, T | K | P, _D, _np("greater"), "a > b."),
    Row("CMPGE",    2, 2, "-", _compare, _broadcast, T | K | P, _D, _np("greater_equal"), "a >= b."),
    Row("CMPLE",    2, 2, "-", _compare, _broadcast, T | K | P, _D, _np("less_equal"), "a <= b."),
    Row("CMPEQ",    2, 2, "-", _compare, _broadcast, T | K | P, _CD, _np("equal"), "a == b."),
    Row("NOT",      1, 1, "-", _bits,    _broadcast, T | K | P, _D, _np("invert"), "Bitwise not; logical for bool."),
    Row("EXP2",     1, 1, "-", _float,   _broadcast, T | K | P, _D, _np("exp2"), "2 ** x."),
    Row("LOG2",     1, 1, "-", _float,   _broadcast, T | K | P, _D, _np("log2"), "Base-2 logarithm of x."),
    Row("SIN",      1, 1, "-", _float,   _broadcast, T | K | P, _D, _np("sin"), "Sine of x, in radians."),
    Row("SQRT",     1, 1, "-", _float,   _broadcast, T | K | P, _D, _np("sqrt"), "Square root."),
    Row("POW",      2, 2, "-", _float,   _broadcast, T | K | P, _D, _np_pow, "a ** b."),
    Row("LDEXP",    2, 2, "-", _float,   _broadcast, K | P, _D, _np_ldexp, "a * 2 ** b, rounded once, for a finite integral b."),
    Row("MULACC",   3, 3, "-", _number,  _broadcast, T | K | P, _D, _np_mulacc, "a * b + c."),
    Row("THREEFRY", 2, 2, "-", _integer, _broadcast, T | K | P, _D, _np_threefry, "Random bits: Threefry-2x32 of counter and key, two 32-bit words in a uint64."),
    # markers
    Row("CONTIGUOUS",          1, 1, "-", _first, _shape_first, T, _M, None, "Identity that is stored in a buffer of its own, in row-major order."),
    Row("CONTIGUOUS_BACKWARD", 1, 1, "-", _first, _shape_first, T, _M, None, "Identity; its gradient is made CONTIGUOUS."),
    Row("DETACH",              1, 1, "-", _first, _shape_first, T, _M, None, "Identity; stops the gradient."),
    # codegen
    Row("BARRIER",  0, None, "-",      _void, _scalar, K | P | C, _S, None, "Synchronize the lanes of a workgroup, or the threads of a command buffer."),
    Row("TMACOPY",  5, None, "TmaCopyArg", _void, _scalar, K | P, _S, None, "Asynchronous copy of a box of the tensor src[1] to local memory at src[0] (INDEX), issued by one lane, with zeros outside of the tensor. src[2]: number of the buffer; src[3]: gate; src[4:]: coordinates. Complete after the BARRIER before that buffer is read."),
    Row("SHUFFLE",  1, 1, "bits",      _first, _shape_first, K | P, _N, None, "The value of src[0] in the lane whose number is this lane's number xor the bits; both lanes are in one warp."),
    Row("INS",      0, None, "any",    _void, _scalar, P, _S, None, "One machine instruction."),
    Row("SPECIAL",  1, 1, "name",      _index, _scalar, K | P, _N, None, "Thread or workgroup index: thread0 without workgroups, gidx0..2 and lidx0..2 with them."),
    Row("IF",       1, None, "-",      _void, _scalar, P | C, _S, None, "Begin a conditional block."),
    Row("ENDIF",    1, 1, "-",         _void, _scalar, P | C, _S, None, "End a conditional block."),
    Row("WMMA",     3, None, "(unit, axes summed)", lambda src, arg: src[2].dtype, _wmma_shape, K | P, _N, None, "Tile product on a matrix unit: src[2] plus the sum of src[0] * src[1] over the summed axes, the last ones. src[3:]: RANGEs of elements that a lane of a warp holds, until expand. A unit that reads local memory has the addresses of its operands as src[0] and src[1], and their layouts at the end of its argument."),
    Row("CUSTOM",   0, None, "(format, dtype, inline)", lambda src, arg: arg[1], lambda src, arg: _broadcast(src, arg) if src else (), K | P, _N, None, "Code in the target's language that the user wrote, applied to each element; {0}, {1}... are the operands."),
    Row("ATOMICADD", 2, 3, "-",        _added, _stored_shape, ANY, _S, None, "Atomically add src[1], broadcast, to the memory src[0]; with a gate src[2], only where it is true."),
    Row("CUSTOMFUNCTION", 0, None, "name", _void, _scalar, ANY, _S, None, "A native function that is no kernel; a CALL runs it."),
    Row("PROGRAM",  1, 3, "ProgramInfo", _void, _scalar, P | C, _S, None, "A kernel ready to launch: its SINK or LINEAR, then its SOURCE and BINARY if they are known."),
    Row("SOURCE",   0, 0, "str",       _void, _scalar, P | C, _N, None, "Source code of a program, in the target's language."),
]
# fmt: on

ROWS: dict[str, Row] = {r.name: r for r in _ROWS}


def with_trait(trait: str) -> frozenset[str]:
    """Return the names of the ops whose row in the op table has the trait `trait`, such as "effect".
    The set is empty for an unknown trait.
    """
    return frozenset(r.name for r in _ROWS if trait in r.traits)


ELEMENTWISE = with_trait("elementwise")
COMMUTATIVE = with_trait("commutative")
MOVEMENT = with_trait("movement")
DECOMPOSED = with_trait("decomposed")


__all__ = [
    "AXIS_TYPES",
    "BufferArg",
    "CALLS",
    "COMMUTATIVE",
    "DECOMPOSED",
    "ELEMENTWISE",
    "INVALID",
    "KernelInfo",
    "LoadArg",
    "MOVEMENT",
    "ParamArg",
    "ProgramInfo",
    "ROLES",
    "ROWS",
    "Row",
    "Stage",
    "StepInfo",
    "TmaCopyArg",
    "broadcast",
    "with_trait",
]
