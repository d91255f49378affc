"""Draw random tensors: Threefry numbers from a counter and a key that are stored on the device.

What it is for: uniform, normal and integer numbers, permutations, choices, and common initial weights. One
`manual_seed` gives the same numbers on every device.
What it is not: it is not cryptographic, and it is not PyTorch's sequence.

The state of a device is one uint64 buffer: (numbers used so far, key). All draws between two realizations share one
copy of it, `base`. Each draw takes the next block of the counter at a constant offset from `base`. `pending` adds the
advanced state to the next batch. So a step builds the same graph each time it runs, and a replayed step continues the
sequence. A tensor that is realized later still has its own numbers.

Invariant: no two elements drawn from one state have the same counter; one Threefry call gives 64 bits.
Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; Box and Muller, 1958.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from math import inf, pi, prod, sqrt
from typing import TYPE_CHECKING, Any, Self, Unpack

from monolect.autograd import graph as g
from monolect.autograd.sharding import replicated
from monolect.backend.registry import maker_of
from monolect.base.dtype import DType, as_dtype, as_python, dtypes
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.base.numpy import np
from monolect.ir.bounds import at_most, size_max
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build
from monolect.runtime.buffer import from_numpy, new_buffer
from monolect.runtime.realize.locks import running
from monolect.runtime.replay.in_progress import changes
from monolect.tensor.base import DeviceLike, DTypeLike, Sizes, TensorBase, as_device, as_sizes, restore_on_failure
from monolect.tensor.guard import guard_methods

_U64 = dtypes.uint64
COUNTERS = 1 << 64  # counters of a key; after the last one the sequence starts again
_PERMUTATION_LIMIT = 1 << 14  # elements of randperm, which compares all pairs; more raise ArgumentError
MAX_CONSTANT_DRAWS = 64  # draws of a batch; later draws read their offset from memory, so that they share one kernel

if TYPE_CHECKING:
    from typing import TypedDict

    class DrawOptions(TypedDict, total=False):
        """Keyword options that methods for initial weights pass on to `uniform` or `normal`."""

        dtype: DTypeLike | None
        device: DeviceLike | None
        requires_grad: bool


# ---- state -----------------------------------------------------------------------------------------------------------
class _State:
    """Track the random numbers that one device has drawn, and hand out the next ones (`draw`).

    `make` is the Tensor class, `key` the seed. `stored` is the Tensor (numbers used, key), uint64. `base` is its copy
    for this batch, or None. Since that copy, `n_draws` draws used `used` numbers.
    """

    def __init__(self, make: Any, device: DeviceLike, key: int) -> None:
        self.stored = make(np.array([0, key], np.uint64), device=device)
        self.home: UOp = self.stored._uop  # the BUFFER, before anything is stored into it
        self.base: Any = None
        self.used = self.n_draws = 0
        self.n_outside = 0  # number of draws outside captures
        self.owners: list[Any] = []  # captures and traces, outermost first, in which pending numbers were drawn

    def is_pending(self) -> bool:
        """Whether numbers were drawn that `stored` does not count yet."""
        return self.base is not None and self.base._uop.op != "BUFFER"

    def draw(self, count: int) -> tuple[UOp, UOp]:
        """Reserve `count` numbers. Return the first counter and the key, both uint64 of shape (1,).

        After MAX_CONSTANT_DRAWS draws the offset is in memory instead of in the code, so all draws of one shape share a
        kernel. The initial weights of a model with thousands of layers are then compiled once.
        """
        if self.is_pending():
            self._note_owner()
        else:
            self.owners = changes.enclosing
            self.home = self.stored._uop
            first = g.where(_is_counter(), 1, g.full((2,), 0, _U64))
            # A new buffer: equal expressions of two batches would be one node, and the batches would share numbers.
            copy = new_buffer((2,), _U64, self.stored.device)
            self.base = self.stored._wrap(build("AFTER", copy, build("STORE", copy, build("ADD", self.home, first))))
            self.used = self.n_draws = 0
        offset = self.used
        self.used = (self.used + count) % COUNTERS
        self.n_draws += 1
        is_constant = self.n_draws <= MAX_CONSTANT_DRAWS
        state = self.base._uop if is_constant else self.home
        counter, key = g.shrink(state, (0,), (1,)), g.shrink(state, (1,), (1,))
        if not is_constant:
            # SUB keeps the order of its operands, so equal draws are equal kernels; ADD sorts them by node age.
            back = from_numpy(np.array([-(1 + offset) % COUNTERS], np.uint64), self.stored.device)
            return build("SUB", counter, back), key
        return (g.e("ADD", counter, offset) if offset else counter), key

    def _note_owner(self) -> None:
        """Mark the captures as disturbed if numbers of this batch are drawn or computed in another outermost capture
        than the first ones, that is, in another thread. The record of a disturbed capture lacks kernels.
        """
        if self.owners[:1] != changes.enclosing[:1]:
            for c in (*self.owners, *changes.enclosing):
                c.is_disturbed = True

    def advance(self) -> list[Any]:
        """Advance `stored` past the numbers drawn; return the Tensors to compute with the next batch.

        The list is empty if no numbers were drawn that `stored` does not count yet.
        """
        if not self.is_pending():
            return []
        self._note_owner()
        # `base` is the state plus one, so the new state is `base` plus `used - 1`.
        step = g.where(_is_counter(), max(self.used, 1) - 1, g.full((2,), 0, _U64))
        self.stored._uop = self.home
        self.stored.assign(self.stored._wrap(build("ADD", self.base._uop, step)))
        return [self.base, self.stored]


def _is_counter() -> UOp:
    """Return the bool mask of shape (2,) that selects the counter of a state."""
    return g.e("CMPLT", g.iota(2, dtypes.int32), 1)


_seed: int = int.from_bytes(os.urandom(8), "little") >> 1
_states: dict[Any, _State] = {}


def manual_seed(seed: int) -> None:
    """Restart the random sequence of every device from `seed` alone.

    Tensors drawn before keep their numbers. Raises ArgumentError where `seed` is not an int.

    >>> manual_seed(7)
    >>> a = Tensor.rand(3).tolist()
    >>> manual_seed(7)
    >>> a == Tensor.rand(3).tolist()
    True
    """
    global _seed
    if not isinstance(seed, int):
        raise ArgumentError("manual_seed: seed", expected="an int", found=repr(seed))
    key = seed & 0xFFFFFFFFFFFFFFFF
    running.wait()
    with running.lock:
        settle()  # tensors drawn before keep their numbers
        with restore_on_failure(tensors()):
            for device, state in _states.items():
                state.base = None
                # Assigned in place, because captured steps read this buffer.
                state.stored.assign(type(state.stored)(np.array([0, key], np.uint64), device=device)).realize()
        _seed = key


def pending() -> list[Any]:
    """Return the random state Tensors to compute with the next batch, so that no number is drawn twice."""
    return [t for state in _states.values() for t in state.advance()] if _states else []


def states_of(tensors: Iterable[Any]) -> list[_State]:
    """Return the random states of the devices whose stored state Tensor is one of `tensors`."""
    given = {*map(id, tensors)}
    return [state for state in _states.values() if id(state.stored) in given]


def settle(states: Iterable[_State] | None = None) -> None:
    """Realize the states (None: of all devices), so that each stored state counts all numbers drawn so far.

    The numbers themselves may be computed later.
    """
    late = [t for state in (_states.values() if states is None else states) for t in state.advance()]
    if late:
        late[0].realize(*late[1:])


def snapshot() -> Callable[[], None]:
    """Return a function that restores all states as they are now, so that numbers drawn since are drawn again.

    The function must be called before any state is realized; if numbers may be realized in between, call `settle`
    before the snapshot. A state from which another thread has drawn since is not restored.
    """
    known = {d: (vars(s).copy(), s.stored._uop) for d, s in _states.items()}
    seed = _seed

    def put_back() -> None:
        global _seed
        _seed = seed
        for device, state in [*_states.items()]:
            before, node = known.get(device, ({"n_outside": 0}, None))
            if state.n_outside != before["n_outside"]:
                continue
            if node is None:
                del _states[device]
            else:
                vars(state).update(before)
                state.stored._uop = node

    return put_back


def names() -> dict[int, str]:
    """Return a name for the state Tensor of each device, by id; names are the same in every process."""
    return {id(state.stored): f"random/{device}" for device, state in _states.items()}


def tensors() -> list[Any]:
    """Return the Tensors that hold the random states, uint64 (numbers used, key), one for each device."""
    return [state.stored for state in _states.values()]


def tensor_named(name: str, make: Any) -> Any:
    """Return the state Tensor of the device that `name` names, such as `random/cpu`; None for another name.

    `make` is the Tensor class that makes a missing state.
    """
    kind, _, device = name.partition("/")
    return _state(make, device).stored if kind == "random" else None


def drawn() -> dict[Any, tuple[int, int]]:
    """Return a value for each device; a later value differs if numbers were drawn from the state in between."""
    return {device: (id(state.base), state.used) for device, state in _states.items()}


def _state(make: Any, device: Any) -> _State:
    if device not in _states:
        _states[device] = _State(make, device, _seed)
    return _states[device]


def _bits(cls: Any, count: Any, device: Any) -> UOp:
    """Return `count` uint64 random numbers, 1-d, on `device` (None: the default device). `cls` is the Tensor class.

    A symbolic count uses as many counters as its largest value. On a tuple of devices all get the same numbers.
    """
    device = as_device(device)
    if isinstance(device, tuple):
        return replicated(_bits(cls, count, maker_of(device)), device)
    running.wait()
    with running.lock:  # not while a batch adds the pending state, nor while another thread makes the state
        state = _state(cls, device)
        state.n_outside += not changes.captures
        counter, key = state.draw(size_max(count))
    return build("THREEFRY", build("ADD", counter, g.iota(count, _U64)), key)


# ---- numbers from bits -----------------------------------------------------------------------------------------------
def _half(bits: UOp, high: bool) -> UOp:
    """Return the low or high 32 bits of uint64 `bits`, as uint32."""
    return g.cast(g.e("SHR", bits, 32) if high else bits, dtypes.uint32)


def _unit(bits: UOp, dtype: DType) -> UOp:
    """Convert random bits to multiples of 2**-p in [0, 1), where p is the precision of `dtype` (24 for float32)."""
    if dtype is dtypes.float64:
        return g.e("MUL", g.cast(g.cast(g.e("SHR", bits, 11), dtypes.int64), dtype), 2.0**-53)
    digits = {"float32": 24, "float16": 11, "bfloat16": 8}[dtype.name]
    whole = g.e("SHR", _half(bits, False), 32 - digits)
    return g.cast(g.e("MUL", g.cast(whole, dtypes.float32), 2.0**-digits), dtype)


def _gaussian(cls: Any, count: Any, dtype: DType, device: Any) -> UOp:
    """Return `count` normal numbers (mean 0, variance 1) by Box-Muller, from one Threefry call each; float64 takes two.

    `cls` is the Tensor class.
    """
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    if wide is dtypes.float64:
        bits = _bits(cls, 2 * count, device)
        radius = g.e("SUB", 1.0, _unit(g.shrink(bits, (0,), (count,)), wide))
        turn = _unit(g.shrink(bits, (count,), (count,)), wide)
    else:
        bits = _bits(cls, count, device)
        # All 32 bits, so that the tail reaches 6.6 standard deviations; in (0, 1], so that the logarithm is finite.
        radius = g.e("MUL", g.e("ADD", g.cast(_half(bits, False), wide), 1.0), 2.0**-32)
        turn = g.e("MUL", g.cast(g.cast(g.e("SHR", _half(bits, True), 8), dtypes.int32), wide), 2.0**-24)
    length = (cls._wrap(radius).log() * -2.0).sqrt()
    return g.cast((length * (cls._wrap(turn) * (2.0 * pi)).sin())._uop, dtype)


def _float(dtype: Any, name: str) -> DType:
    d = dtypes.default_float if dtype is None else as_dtype(dtype)
    if d.name not in ("float64", "float32", "float16", "bfloat16"):
        raise DTypeError(f"{name}: dtype", expected="float64, float32, float16 or bfloat16", found=d.name)
    return d


def _shape(size: tuple, name: str) -> tuple[Any, ...]:
    shape = as_sizes(size)
    if not all(at_most(0, n) for n in shape):
        raise ShapeError(f"{name}: size", expected="sizes of at least 0", found=shape)
    return shape


def _fans(shape: tuple[Any, ...], name: str) -> tuple[int, int]:
    """Return (fan_in, fan_out) of a weight of shape (out, in, *kernel): in and out, each times the kernel's elements.

    Raises ShapeError, which names the method `name`, for fewer than 2 axes or a symbolic size.
    """
    if len(shape) < 2 or any(n.__class__ is not int for n in shape):
        raise ShapeError(f"{name}: size", expected="ints (out, in, ...)", found=shape)
    field = prod(shape[2:])
    return shape[1] * field, shape[0] * field


@guard_methods
class RandomMixin(TensorBase):
    """Define the methods that draw random Tensors lazily; a base class of Tensor.

    Each draw has its own numbers, whenever it is realized.
    """

    __slots__ = ()

    @classmethod
    def manual_seed(cls, seed: int) -> None:
        """Restart the random sequence of every device from `seed` alone. Raises ArgumentError unless it is an int.

        >>> Tensor.manual_seed(7)
        >>> a = Tensor.rand(3).tolist()
        >>> Tensor.manual_seed(7)
        >>> a == Tensor.rand(3).tolist()
        True
        """
        manual_seed(seed)

    @classmethod
    def _drawn(cls, flat: UOp, shape: tuple, requires_grad: bool = False) -> Self:
        t = cls._wrap(g.reshape(flat, shape))
        if requires_grad:
            t.requires_grad = True
        return t

    # ---- numbers -----------------------------------------------------------------------------------------------------
    @classmethod
    def rand(
        cls, *size: Sizes, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
    ) -> Self:
        """Return uniform numbers in [0, 1) of shape `size`, float32 unless `dtype` is given.

        Raises DTypeError for other dtypes than float64, float32, float16 and bfloat16, ShapeError for a negative size.

        >>> x = Tensor.rand(2, 3)
        >>> x.shape, bool(((x >= 0) & (x < 1)).all().item())
        ((2, 3), True)
        """
        d, shape = _float(dtype, "rand"), _shape(size, "rand")
        return cls._drawn(_unit(_bits(cls, count(shape), device), d), shape, requires_grad)

    @classmethod
    def randn(
        cls, *size: Sizes, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
    ) -> Self:
        """Return normal numbers (mean 0, variance 1) of shape `size`, float32 unless `dtype` is given.

        Raises DTypeError for other dtypes than float64, float32, float16 and bfloat16, ShapeError for a negative size.

        >>> Tensor.randn(4).shape
        (4,)
        """
        d, shape = _float(dtype, "randn"), _shape(size, "randn")
        return cls._drawn(_gaussian(cls, count(shape), d, device), shape, requires_grad)

    @classmethod
    def randint(
        cls,
        low: int,
        high: int | None = None,
        size: Sizes | None = None,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
    ) -> Self:
        """Return whole numbers in [low, high) of shape `size`, int64 unless `dtype` is given.

        `randint(high, size)` starts at 0. For n <= 2**32 possible numbers, the relative error of a probability is below
        n * 2**-32. Raises ArgumentError for an empty range, DTypeError for a float `dtype`.

        >>> x = Tensor.randint(3, 5, (4,))
        >>> bool(((x >= 3) & (x < 5)).all().item())
        True
        """
        if isinstance(high, tuple | list):
            low, high, size = 0, low, high
        elif high is None:
            low, high = 0, low
        d = dtypes.int64 if dtype is None else as_dtype(dtype)
        if not d.is_int:
            raise DTypeError("randint: dtype", expected="an integer dtype", found=d.name)
        if not (isinstance(low, int) and isinstance(high, int)) or not d.min <= low < high <= d.max + 1:
            raise ArgumentError("randint: range", expected=f"low < high, both in {d.name}", found=f"[{low}, {high})")
        shape, span = _shape((() if size is None else size,), "randint"), high - low
        bits = _bits(cls, count(shape), device)
        if span <= 1 << 32:
            whole = g.e("SHR", g.e("MUL", g.cast(_half(bits, False), _U64), span), 32)
        else:
            whole = bits if span == 1 << 64 else g.e("MOD", bits, span)
        return cls._drawn(g.e("ADD", g.cast(whole, d), low) if low else g.cast(whole, d), shape)

    @classmethod
    def uniform(
        cls,
        *size: Sizes,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return uniform numbers in [low, high) of shape `size`, float32 unless `dtype` is given.

        Raises ArgumentError where low > high, or where the dtype cannot hold the difference.

        >>> Tensor.uniform(2, 2, low=-1.0, high=1.0).shape
        (2, 2)
        """
        if not isinstance(low, TensorBase) and not isinstance(high, TensorBase):
            d = dtypes.float32 if dtype is None else as_dtype(dtype)
            if not 0 <= as_python(float(high - low), d) < inf:
                expected = f"low <= high, and a difference that {d.name} holds"
                raise ArgumentError("uniform: range", expected=expected, found=(low, high))
        t = cls.rand(*size, dtype=dtype, device=device) * (high - low) + low
        return t.requires_grad_(True) if requires_grad else t

    @classmethod
    def normal(
        cls,
        *size: Sizes,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return normal numbers of this mean and standard deviation, of shape `size`, float32 unless `dtype` is given.

        Raises ArgumentError for a negative `std`.

        >>> Tensor.normal(3, mean=2.0, std=0.1).shape
        (3,)
        """
        if not isinstance(std, TensorBase) and not std >= 0:
            raise ArgumentError("normal: std", expected="at least 0", found=std)
        t = cls.randn(*size, dtype=dtype, device=device) * std + mean
        return t.requires_grad_(True) if requires_grad else t

    def rand_like(self, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Self:
        """Return uniform numbers in [0, 1) of this shape; dtype and device default to this tensor's.

        Raises DTypeError for integers.

        >>> Tensor.zeros(2, 3).rand_like().shape
        (2, 3)
        """
        return self.rand(*self.shape, dtype=self.dtype if dtype is None else dtype, device=device or self.device)

    def randn_like(self, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Self:
        """Return normal numbers (mean 0, variance 1) of this shape; dtype and device default to this tensor's.

        Raises DTypeError for integers.

        >>> Tensor.zeros(2, dtype=dtypes.float64).randn_like().dtype
        dtypes.float64
        """
        return self.randn(*self.shape, dtype=self.dtype if dtype is None else dtype, device=device or self.device)

    def randint_like(
        self, low: int, high: int | None = None, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
    ) -> Self:
        """Return whole numbers in [low, high), or in [0, low) if `high` is None, of this shape; dtype and device
        default to this tensor's.

        Raises ArgumentError for an empty range, DTypeError for a float dtype.

        >>> x = Tensor.zeros(4, dtype=dtypes.int64).randint_like(3, 5)
        >>> set(x.tolist()) <= {3, 4}
        True
        """
        d = self.dtype if dtype is None else dtype
        low, high = (0, low) if high is None else (low, high)
        return self.randint(low, high, self.shape, dtype=d, device=device or self.device)

    # ---- choices -----------------------------------------------------------------------------------------------------
    @classmethod
    def randperm(cls, n: int, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Self:
        """Return the numbers 0..n-1 in random order, int64 of shape (n,) unless `dtype` is given.

        The result is the rank of n random keys and takes n * n comparisons. Raises ArgumentError unless 0 <= n <=
        16384, DTypeError for a `dtype` that does not hold all n numbers.

        >>> sorted(Tensor.randperm(5).tolist())
        [0, 1, 2, 3, 4]
        """
        if not isinstance(n, int) or not 0 <= n <= _PERMUTATION_LIMIT:
            raise ArgumentError("randperm: n", expected=f"an int from 0 to {_PERMUTATION_LIMIT}", found=n)
        d = dtypes.int64 if dtype is None else as_dtype(dtype)
        if any(as_python(k, d) != k for k in range(max(0, n - 2), n)):  # one of the two is odd: a float rounds it first
            raise DTypeError("randperm: dtype", expected=f"one that holds 0..{n - 1}", found=d.name)
        keys = build("CONTIGUOUS", _bits(cls, n, device))
        mine, other = g.reshape(keys, (n, 1)), g.reshape(keys, (1, n))
        tie = g.e("CMPLT", g.iota(n, dtypes.int32, 1, 2), g.iota(n, dtypes.int32, 0, 2))
        equal = g.e("CMPNE", g.e("CMPNE", other, mine), True)
        before = g.e("OR", g.e("CMPLT", other, mine), g.e("AND", equal, tie))
        rank = g.reduce(g.cast(before, dtypes.int32), "ADD", (1,), keep=False)
        return cls._wrap(g.cast(rank, d))

    def bernoulli(self) -> Self:
        """Return 1 with the probability that each element gives, else 0, in this dtype. Raises DTypeError for integers.

        >>> Tensor([0.0, 1.0]).bernoulli().tolist()
        [0.0, 1.0]
        """
        self._check_float("bernoulli")
        return (self.rand(*self.shape, device=self.device) < self.float()).cast(self.dtype)

    def multinomial(self, num_samples: int, replacement: bool = False) -> Self:
        """Draw indices by the weights on the last axis: (classes,) or (n, classes) -> (..., num_samples), int64.

        Weights need not add up to 1. Raises ArgumentError where num_samples is below 1, or above 1 without replacement.
        Raises ShapeError for more than 2 axes, DTypeError for integers.

        >>> Tensor([0.0, 1.0, 0.0]).multinomial(1).tolist()
        [1]
        """
        self._check_float("multinomial")
        if self.ndim not in (1, 2):
            raise ShapeError("multinomial: rank of the weights", expected="1 or 2 axes", found=self.shape)
        if num_samples < 1 or (num_samples > 1 and not replacement):
            expected = "1, or more with replacement=True"
            raise ArgumentError("multinomial: num_samples", expected=expected, found=num_samples)
        ends = self.float().cumsum(-1)
        total = ends[..., -1:]
        shape = (*self.shape[:-1], num_samples)
        spot = self.rand(*shape, device=self.device) * total
        passed = ends.unsqueeze(-2) <= spot.unsqueeze(-1)
        # Rounding must not choose a class after the last one with weight.
        last = (ends < total).cast(dtypes.int64).sum(-1, keepdim=True)
        return passed.cast(dtypes.int64).sum(-1).minimum(last)

    # ---- initial weights ---------------------------------------------------------------------------------------------
    @classmethod
    def kaiming_uniform(cls, *size: Sizes, a: float = 0.0, **options: Unpack[DrawOptions]) -> Self:
        """Return uniform weights (out, in, ...) that preserve the variance of activations of a leaky ReLU of slope `a`.

        The bound is sqrt(6 / ((1 + a * a) * fan_in)), where fan_in is the number of elements of one output's weight.
        `options` are dtype, device and requires_grad. Raises ShapeError for fewer than 2 axes.

        >>> Tensor.kaiming_uniform(4, 6).shape
        (4, 6)
        """
        fan_in, _ = _fans(_shape(size, "kaiming_uniform"), "kaiming_uniform")
        bound = sqrt(6.0 / ((1.0 + a * a) * max(fan_in, 1)))
        return cls.uniform(*size, low=-bound, high=bound, **options)

    @classmethod
    def kaiming_normal(cls, *size: Sizes, a: float = 0.0, **options: Unpack[DrawOptions]) -> Self:
        """Return normal weights (out, in, ...) that preserve the variance of activations of a leaky ReLU of slope `a`.

        The standard deviation is sqrt(2 / ((1 + a * a) * fan_in)), where fan_in is the number of elements of one
        output's weight. `options` are dtype, device and requires_grad. Raises ShapeError for fewer than 2 axes.

        >>> Tensor.kaiming_normal(4, 6).shape
        (4, 6)
        """
        fan_in, _ = _fans(_shape(size, "kaiming_normal"), "kaiming_normal")
        return cls.normal(*size, std=sqrt(2.0 / ((1.0 + a * a) * max(fan_in, 1))), **options)

    @classmethod
    def xavier_uniform(cls, *size: Sizes, gain: float = 1.0, **options: Unpack[DrawOptions]) -> Self:
        """Return uniform weights (out, in, ...) of variance gain**2 * 2 / (fan_in + fan_out), also known as Glorot's.

        `fan_in` and `fan_out` are in and out, each times the elements of the kernel axes. `options` are dtype, device
        and requires_grad. Raises ShapeError for fewer than 2 axes.

        >>> w = Tensor.xavier_uniform(2, 4)  # within sqrt(6 / (2 + 4))
        >>> bool((w.abs() <= 1.0).all().item())
        True
        """
        bound = gain * sqrt(6.0 / max(sum(_fans(_shape(size, "xavier_uniform"), "xavier_uniform")), 1))
        return cls.uniform(*size, low=-bound, high=bound, **options)

    @classmethod
    def xavier_normal(cls, *size: Sizes, gain: float = 1.0, **options: Unpack[DrawOptions]) -> Self:
        """Return normal weights (out, in, ...) of variance gain**2 * 2 / (fan_in + fan_out).

        `fan_in` and `fan_out` are in and out, each times the elements of the kernel axes. `options` are dtype, device
        and requires_grad. Raises ShapeError for fewer than 2 axes.

        >>> Tensor.xavier_normal(4, 6).shape
        (4, 6)
        """
        std = gain * sqrt(2.0 / max(sum(_fans(_shape(size, "xavier_normal"), "xavier_normal")), 1))
        return cls.normal(*size, std=std, **options)


__all__ = [
    "RandomMixin",
    "drawn",
    "manual_seed",
    "names",
    "pending",
    "settle",
    "snapshot",
    "states_of",
    "tensor_named",
    "tensors",
]
