"""Random tensors: Threefry numbers from a counter and a key that live on the device.

What it is for: uniform, normal and integer numbers, permutations, choices, and the usual initial weights, the same on
every device for one `manual_seed`.
What it is not: not cryptographic, and not PyTorch's sequence.

The state of a device is one uint64 buffer: (numbers used so far, key). What is drawn between two realizations shares
one copy of it, `base`, and each draw takes the next block of the counter as a constant offset from it. `pending` adds
the advanced state to the next batch. So a step builds the same graph each time it runs, a captured step continues the
sequence on replay, and a tensor that was drawn early but realized late still has its own numbers.

Invariant: no two elements drawn from one state have the same counter; one Threefry gives 64 bits.
Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; Box and Muller, 1958.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from math import inf, pi, prod, sqrt
from typing import TYPE_CHECKING, Any

from monolect.autograd import graph as g
from monolect.base.dtype import DType, as_dtype, as_python, dtypes
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.base.numpy import np
from monolect.ir.bounds import at_most, size_max
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build
from monolect.runtime.buffer import from_numpy, new_buffer
from monolect.runtime.realize.execute import running
from monolect.runtime.replay.capture import changes
from monolect.tensor.base import TensorBase, as_before_on_failure, as_device, as_sizes
from monolect.tensor.guard import guard_methods

if TYPE_CHECKING:
    from monolect.tensor.tensor import Tensor

_U64 = dtypes.uint64
COUNTERS = 1 << 64  # number of counters of a key; beyond, the sequence begins again
_PERMUTATION_LIMIT = 1 << 14  # randperm compares all pairs
MOST_IN_CODE = 64  # number of draws of a batch whose offsets are constants in their kernels


# ---- state -----------------------------------------------------------------------------------------------------------
class _State:
    """What a device has drawn: `stored` (used, key); `base`, its copy for this batch; since that copy, `n_draws` draws
    took `used` numbers.
    """

    def __init__(self, make: Any, device: Any, key: int) -> None:
        self.stored = make(np.array([0, key], np.uint64), device=device)
        self.home: UOp = self.stored._uop  # the BUFFER, before anything is stored into it
        self.base: Any = None
        self.used = self.n_draws = 0
        self.n_outside = 0  # draws outside of captures

    def is_pending(self) -> bool:
        """Whether numbers were drawn that the stored state does not count yet."""
        return self.base is not None and self.base._uop.op != "BUFFER"

    def draw(self, count: int) -> tuple[UOp, UOp]:
        """A block of `count` numbers: its first counter and its key, uint64 of shape (1,).

        After MOST_IN_CODE draws the offset of the block is in memory, so that all draws of one shape are the same
        kernel: the initial weights of a model with thousands of layers are compiled once.
        """
        if not self.is_pending():
            self.home = self.stored._uop
            first = g.where(_is_counter(), 1, g.full((2,), 0, _U64))
            # A buffer of its own: equal expressions of two batches are one node, and must not be taken for each other.
            copy = new_buffer((2,), _U64, self.stored.device)
            self.base = self.stored._wrap(build("AFTER", copy, build("STORE", copy, build("ADD", self.home, first))))
            self.used = self.n_draws = 0
        offset = self.used
        self.used = (self.used + count) % COUNTERS
        self.n_draws += 1
        in_code = self.n_draws <= MOST_IN_CODE
        state = self.base._uop if in_code else self.home
        counter, key = g.shrink(state, (0,), (1,)), g.shrink(state, (1,), (1,))
        if not in_code:
            # SUB keeps the order of its operands, so that equal draws are equal kernels; ADD orders them by age.
            back = from_numpy(np.array([-(1 + offset) % COUNTERS], np.uint64), self.stored.device)
            return build("SUB", counter, back), key
        return (g.e("ADD", counter, offset) if offset else counter), key

    def advance(self) -> list[Any]:
        """The tensors that must be computed with the next batch."""
        if not self.is_pending():
            return []
        # `base` counts from the state plus one, so the state has used `used - 1` numbers more than `base` says.
        step = g.where(_is_counter(), max(self.used, 1) - 1, g.full((2,), 0, _U64))
        self.stored._uop = self.home
        self.stored.assign(self.stored._wrap(build("ADD", self.base._uop, step)))
        return [self.base, self.stored]


def _is_counter() -> UOp:
    """Of the two elements of a state, the first."""
    return g.e("CMPLT", g.iota(2, dtypes.int32), 1)


_seed: int = int.from_bytes(os.urandom(8), "little") >> 1
_states: dict[Any, _State] = {}


def manual_seed(seed: int) -> None:
    """Start the random sequence of every device anew, at a place that depends on `seed` alone.

    Tensors that were drawn before keep their numbers. Raises ArgumentError for anything but an integer.

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
        settle()  # what was drawn before keeps its numbers
        with as_before_on_failure(tensors()):
            for device, state in _states.items():
                state.base = None
                # In place: a captured step reads this buffer.
                state.stored.assign(type(state.stored)(np.array([0, key], np.uint64), device=device)).realize()
        _seed = key


def pending() -> list[Any]:
    """The random states that belong to the next batch, so that no number is drawn twice."""
    return [t for state in _states.values() for t in state.advance()] if _states else []


def states_of(tensors: Iterable[Any]) -> list[_State]:
    """Those whose stored state is one of these tensors."""
    given = {*map(id, tensors)}
    return [state for state in _states.values() if id(state.stored) in given]


def settle(states: Iterable[_State] | None = None) -> None:
    """Count what was drawn and is not computed yet, of all devices or of these: what reads a stored state goes on
    behind it. The numbers themselves may be computed later.
    """
    late = [t for state in (_states.values() if states is None else states) for t in state.advance()]
    if late:
        late[0].realize(*late[1:])


def snapshot() -> Callable[[], None]:
    """A function that puts all states back as they are now, once `settle` was called: numbers that were drawn since are
    drawn again. Not where another thread has drawn since.
    """
    known = {d: (s, s.stored._uop, s.n_outside) for d, s in _states.items()}
    seed = _seed

    def put_back() -> None:
        global _seed
        _seed = seed
        for device, state in [*_states.items()]:
            _, node, n_outside = known.get(device, (state, None, 0))
            if state.n_outside != n_outside:
                continue
            if node is None:
                del _states[device]
            else:
                state.base, state.stored._uop = None, node

    return put_back


def names() -> dict[int, str]:
    """A name for each tensor that is the state of a device, by identity: the same in every process."""
    return {id(state.stored): f"random/{device}" for device, state in _states.items()}


def tensors() -> list[Any]:
    """The tensors that are the state of a device."""
    return [state.stored for state in _states.values()]


def tensor_named(name: str, make: Any) -> Any:
    """The tensor, made by `make`, that is the state with that name; None for another name."""
    kind, _, device = name.partition("/")
    return _state(make, device).stored if kind == "random" else None


def drawn() -> dict[Any, tuple[int, int]]:
    """How much of each state was drawn: it differs once a number was."""
    return {device: (id(state.base), state.used) for device, state in _states.items()}


def _state(make: Any, device: Any) -> _State:
    if device not in _states:
        _states[device] = _State(make, device, _seed)
    return _states[device]


def _bits(cls: Any, count: Any, device: Any) -> UOp:
    """`count` uint64 numbers of 64 random bits, 1-d. A symbolic count uses up the numbers of its largest value."""
    device = as_device(device)
    running.wait()
    with running.lock:  # not while a batch takes the pending draws along, nor while another thread makes the state
        state = _state(cls, device)
        state.n_outside += not changes.captures
        counter, key = state.draw(size_max(count))
    return build("THREEFRY", build("ADD", counter, g.iota(count, _U64)), key)


# ---- numbers from bits -----------------------------------------------------------------------------------------------
def _half(bits: UOp, high: bool) -> UOp:
    """The low or high 32 bits, as uint32."""
    return g.cast(g.e("SHR", bits, 32) if high else bits, dtypes.uint32)


def _unit(bits: UOp, dtype: DType) -> UOp:
    """Bits as multiples of 2**-p in [0, 1), p the digits of `dtype` (a float32 has 24)."""
    if dtype is dtypes.float64:
        return g.e("MUL", g.cast(g.cast(g.e("SHR", bits, 11), dtypes.int64), dtype), 2.0**-53)
    digits = {"float32": 24, "float16": 11, "bfloat16": 8}[dtype.name]
    whole = g.e("SHR", _half(bits, False), 32 - digits)
    return g.cast(g.e("MUL", g.cast(whole, dtypes.float32), 2.0**-digits), dtype)


def _gaussian(cls: Any, count: Any, dtype: DType, device: Any) -> UOp:
    """Box-Muller: one Threefry a number, its halves being radius and angle; float64 takes two."""
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    if wide is dtypes.float64:
        bits = _bits(cls, 2 * count, device)
        radius = g.e("SUB", 1.0, _unit(g.shrink(bits, (0,), (count,)), wide))
        turn = _unit(g.shrink(bits, (count,), (count,)), wide)
    else:
        bits = _bits(cls, count, device)
        # All 32 bits, so that the tail reaches 6.6; in (0, 1], so that the logarithm is finite.
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
    """Inputs and outputs of one neuron of a weight (out, in, *kernel)."""
    if len(shape) < 2 or any(n.__class__ is not int for n in shape):
        raise ShapeError(f"{name}: size", expected="ints (out, in, ...)", found=shape)
    field = prod(shape[2:])
    return shape[1] * field, shape[0] * field


@guard_methods
class RandomMixin(TensorBase):
    """Random tensors. Lazy, as all others: each draw has its own numbers, whenever it is realized."""

    __slots__ = ()

    @classmethod
    def manual_seed(cls, seed: int) -> None:
        """Start the random sequence of every device anew. See the function `manual_seed`.

        >>> Tensor.manual_seed(7)
        >>> a = Tensor.rand(3).tolist()
        >>> Tensor.manual_seed(7)
        >>> a == Tensor.rand(3).tolist()
        True
        """
        manual_seed(seed)

    @classmethod
    def _drawn(cls, flat: UOp, shape: tuple, requires_grad: bool = False) -> Tensor:
        t = cls._wrap(g.reshape(flat, shape))
        if requires_grad:
            t.requires_grad = True
        return t

    # ---- numbers -----------------------------------------------------------------------------------------------------
    @classmethod
    def rand(cls, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        """Uniform numbers in [0, 1), float32 unless `dtype` says otherwise.

        >>> x = Tensor.rand(2, 3)
        >>> x.shape, bool(((x >= 0) & (x < 1)).all().item())
        ((2, 3), True)
        """
        d, shape = _float(dtype, "rand"), _shape(size, "rand")
        return cls._drawn(_unit(_bits(cls, count(shape), device), d), shape, requires_grad)

    @classmethod
    def randn(cls, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        """Normal numbers with mean 0 and variance 1.

        >>> Tensor.randn(4).shape
        (4,)
        """
        d, shape = _float(dtype, "randn"), _shape(size, "randn")
        return cls._drawn(_gaussian(cls, count(shape), d, device), shape, requires_grad)

    @classmethod
    def randint(cls, low: int, high: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None) -> Tensor:
        """Whole numbers in [low, high), int64 unless `dtype` says otherwise; `randint(high, size)` starts at 0.

        The bias of ranges up to 2**32 is below their size times 2**-32. Raises ArgumentError for an empty range,
        DTypeError for a `dtype` of floats.

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
        *size: Any,
        low: float = 0.0,
        high: float = 1.0,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:
        """Uniform numbers in [low, high). Raises ArgumentError where that is no range, or wider than the dtype.

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
        *size: Any,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:
        """Normal numbers with the given mean and standard deviation. Raises ArgumentError for a negative `std`.

        >>> Tensor.normal(3, mean=2.0, std=0.1).shape
        (3,)
        """
        if not isinstance(std, TensorBase) and not std >= 0:
            raise ArgumentError("normal: std", expected="at least 0", found=std)
        t = cls.randn(*size, dtype=dtype, device=device) * std + mean
        return t.requires_grad_(True) if requires_grad else t

    def rand_like(self, *, dtype: Any = None, device: Any = None) -> Tensor:
        """Uniform numbers in [0, 1) of this shape, dtype and device. Raises DTypeError for integers.

        >>> Tensor.zeros(2, 3).rand_like().shape
        (2, 3)
        """
        return self.rand(*self.shape, dtype=self.dtype if dtype is None else dtype, device=device or self.device)

    def randn_like(self, *, dtype: Any = None, device: Any = None) -> Tensor:
        """Normal numbers of this shape, dtype and device. Raises DTypeError for integers.

        >>> Tensor.zeros(2, dtype=dtypes.float64).randn_like().dtype
        dtypes.float64
        """
        return self.randn(*self.shape, dtype=self.dtype if dtype is None else dtype, device=device or self.device)

    def randint_like(self, low: int, high: Any = None, *, dtype: Any = None, device: Any = None) -> Tensor:
        """Whole numbers in [low, high) of this shape, dtype and device.

        >>> x = Tensor.zeros(4, dtype=dtypes.int64).randint_like(3, 5)
        >>> set(x.tolist()) <= {3, 4}
        True
        """
        d = self.dtype if dtype is None else dtype
        low, high = (0, low) if high is None else (low, high)
        return self.randint(low, high, self.shape, dtype=d, device=device or self.device)

    # ---- choices -----------------------------------------------------------------------------------------------------
    @classmethod
    def randperm(cls, n: int, *, dtype: Any = None, device: Any = None) -> Tensor:
        """The numbers 0..n-1 in random order: the rank of each of n random keys. Costs n * n comparisons.

        Raises ArgumentError above 16384, DTypeError for a `dtype` that does not hold all of them.

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

    def bernoulli(self) -> Tensor:
        """1 with the probability each element gives, else 0, in this dtype. Raises DTypeError for integers.

        >>> Tensor([0.0, 1.0]).bernoulli().tolist()
        [0.0, 1.0]
        """
        self._check_float("bernoulli")
        return (self.rand(*self.shape, device=self.device) < self.float()).cast(self.dtype)

    def multinomial(self, num_samples: int, replacement: bool = False) -> Tensor:
        """Indices drawn by the weights of the last axis: (..., classes) -> (..., num_samples), int64.

        Without replacement only one sample can be drawn. Weights need not add up to 1. Raises ArgumentError,
        ShapeError for more than 2 axes, DTypeError for integers.

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
        # The last class with weight ends where the total does; rounding must not carry a sample past it.
        last = (ends < total).cast(dtypes.int64).sum(-1, keepdim=True)
        return passed.cast(dtypes.int64).sum(-1).minimum(last)

    # ---- initial weights ---------------------------------------------------------------------------------------------
    @classmethod
    def kaiming_uniform(cls, *size: Any, a: float = 0.0, **options: Any) -> Tensor:
        """Uniform weights (out, in, ...) that keep the variance of activations of a leaky ReLU of slope `a`.

        >>> Tensor.kaiming_uniform(4, 6).shape
        (4, 6)
        """
        fan_in, _ = _fans(_shape(size, "kaiming_uniform"), "kaiming_uniform")
        bound = sqrt(6.0 / ((1.0 + a * a) * max(fan_in, 1)))
        return cls.uniform(*size, low=-bound, high=bound, **options)

    @classmethod
    def kaiming_normal(cls, *size: Any, a: float = 0.0, **options: Any) -> Tensor:
        """Normal weights (out, in, ...) that keep the variance of activations of a leaky ReLU of slope `a`.

        The standard deviation is sqrt(2 / ((1 + a * a) * in)).

        >>> Tensor.kaiming_normal(4, 6).shape
        (4, 6)
        """
        fan_in, _ = _fans(_shape(size, "kaiming_normal"), "kaiming_normal")
        return cls.normal(*size, std=sqrt(2.0 / ((1.0 + a * a) * max(fan_in, 1))), **options)

    @classmethod
    def xavier_uniform(cls, *size: Any, gain: float = 1.0, **options: Any) -> Tensor:
        """Uniform weights (out, in, ...) with variance gain**2 * 2 / (in + out); also known as Glorot's.

        >>> w = Tensor.xavier_uniform(2, 4)  # within sqrt(6 / (2 + 4))
        >>> bool((w.abs() <= 1.0).all().item())
        True
        """
        bound = gain * sqrt(6.0 / max(sum(_fans(_shape(size, "xavier_uniform"), "xavier_uniform")), 1))
        return cls.uniform(*size, low=-bound, high=bound, **options)

    @classmethod
    def xavier_normal(cls, *size: Any, gain: float = 1.0, **options: Any) -> Tensor:
        """Normal weights (out, in, ...) with variance gain**2 * 2 / (in + out).

        >>> Tensor.xavier_normal(4, 6).shape
        (4, 6)
        """
        std = gain * sqrt(2.0 / max(sum(_fans(_shape(size, "xavier_normal"), "xavier_normal")), 1))
        return cls.normal(*size, std=std, **options)
