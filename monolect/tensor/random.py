"""Hand out random bits: Threefry numbers from a counter and a key that are stored on the device.

What it is for: the states of devices and of Generators, splittable keys, and `Stream`, from which one call takes its
bits. One `manual_seed` gives the same numbers on every device.
What it is not: it is not cryptographic, and it is not PyTorch's sequence. Distributions are in `tensor/draws/`.

A state is one uint64 buffer: (numbers used so far, key). All draws between two realizations share one copy of it,
`base`. Each draw takes the next block of the counter at a constant offset from `base`. `pending` adds the advanced
state to the next batch. So a step builds the same graph each time it runs, and a replayed step continues the sequence.
A tensor that is realized later still has its own numbers. A key has no state: its bits are a function of it alone.

Invariant: no two elements drawn from one state have the same counter; one Threefry call gives 64 bits.
Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; splitting as in Claessen and Palka,
"Splittable pseudorandom number generators using cryptographic hashing", Haskell 2013; seeds of keys are mixed by the
finalizer of SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from monolect.autograd import graph as g
from monolect.autograd.sharding import replicated
from monolect.backend.registry import maker_of
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.base.numpy import np
from monolect.ir.bounds import size_max
from monolect.ir.uop import UOp, build
from monolect.runtime.buffer import from_numpy, new_buffer
from monolect.runtime.realize.locks import running
from monolect.runtime.replay.in_progress import changes
from monolect.tensor.base import DeviceLike, TensorBase, as_device, as_int, restore_on_failure

_U64 = dtypes.uint64
_MASK = (1 << 64) - 1
COUNTERS = 1 << 64  # counters of a key; after the last one the sequence starts again
MAX_CONSTANT_DRAWS = 64  # draws of a batch; later draws read their offset from memory, so that they share one kernel
SPLIT = 1 << 63  # first counter by which a key is split; the draws of a key count from 1
FOLD = 3 << 62  # first counter by which a number is folded into a key


# ---- state -----------------------------------------------------------------------------------------------------------
class State:
    """Track the random numbers that one device, or one Generator, has drawn, and hand out the next ones (`draw`).

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

    def become(self, used: int, key: int) -> None:
        """Continue after `used` numbers of `key`. Tensors drawn before keep their numbers. Computes the state."""
        running.wait()
        with running.lock:
            settle([self])
            with restore_on_failure([self.stored]):
                self._restart(used, key)

    def _restart(self, used: int, key: int) -> None:
        """Store (`used`, `key`) in place, because captured steps read this buffer."""
        self.base = None
        values = np.array([used, key], np.uint64)
        self.stored.assign(type(self.stored)(values, device=self.stored.device)).realize()


def _is_counter() -> UOp:
    """Return the bool mask of shape (2,) that selects the counter of a state."""
    return g.e("CMPLT", g.iota(2, dtypes.int32), 1)


_states: dict[Any, State] = {}
_generators: list[weakref.ref[State]] = []  # replaced when it changes, so that a thread may iterate over it


def new_seed() -> int:
    """Return a seed from the operating system, from 0 to 2**63 - 1."""
    return int.from_bytes(os.urandom(8), "little") >> 1


_seed: int = new_seed()


def _all() -> list[State]:
    """Return the states of all devices and of all Generators that are alive."""
    return [*_states.values(), *(state for r in _generators if (state := r()) is not None)]


def state_of_generator(make: Any, device: Any, seed: int) -> State:
    """Return a new state for a Generator on `device`. It is advanced with the others as long as it is alive."""
    global _generators
    state = State(make, device, as_seed(seed, "Generator"))
    with running.lock:
        _generators = [r for r in _generators if r() is not None] + [weakref.ref(state)]
    return state


def as_seed(seed: Any, name: str) -> int:
    """Return an int as the uint64 key of a state. Raises ArgumentError, which names the function `name`, for others."""
    if not isinstance(seed, int):
        raise ArgumentError(f"{name}: seed", expected="an int", found=repr(seed))
    return seed & _MASK


def manual_seed(seed: int) -> None:
    """Restart the random sequence of every device from `seed` alone.

    Tensors drawn before keep their numbers; Generators and keys have seeds of their own. Raises ArgumentError where
    `seed` is not an int.

    >>> manual_seed(7)
    >>> a = Tensor.rand(3).tolist()
    >>> manual_seed(7)
    >>> a == Tensor.rand(3).tolist()
    True
    """
    global _seed
    key = as_seed(seed, "manual_seed")
    running.wait()
    with running.lock:
        settle()
        with restore_on_failure(tensors()):
            for state in _states.values():
                state._restart(0, key)
        _seed = key


def pending() -> list[Any]:
    """Return the random state Tensors to compute with the next batch, so that no number is drawn twice."""
    return [t for state in _all() for t in state.advance()] if _states or _generators else []


def states_of(tensors: Iterable[Any]) -> list[State]:
    """Return the random states whose stored state Tensor is one of `tensors`."""
    given = {*map(id, tensors)}
    return [state for state in _all() if id(state.stored) in given]


def settle(states: Iterable[State] | None = None) -> None:
    """Realize the states (None: all), so that each stored state counts all numbers drawn so far.

    The numbers themselves may be computed later.
    """
    late = [t for state in (_all() if states is None else states) for t in state.advance()]
    if late:
        late[0].realize(*late[1:])


def snapshot() -> Callable[[], None]:
    """Return a function that restores all states as they are now, so that numbers drawn since are drawn again.

    The function must be called before any state is realized; if numbers may be realized in between, call `settle`
    before the snapshot. A state from which another thread has drawn since is not restored.
    """
    known = {id(s): (s, vars(s).copy(), s.stored._uop) for s in _all()}
    seed = _seed

    def put_back() -> None:
        global _seed
        _seed = seed
        for device, state in [*_states.items()]:
            if id(state) not in known and not state.n_outside:
                del _states[device]
        for state, before, node in known.values():
            if state.n_outside == before["n_outside"]:
                vars(state).update(before)
                state.stored._uop = node

    return put_back


def names() -> dict[int, str]:
    """Return a name for the state Tensor of each device, by id; names are the same in every process."""
    return {id(state.stored): f"random/{device}" for device, state in _states.items()}


def tensors() -> list[Any]:
    """Return the Tensors that hold the random states, uint64 (numbers used, key): of devices and of Generators."""
    return [state.stored for state in _all()]


def tensor_named(name: str, make: Any) -> Any:
    """Return the state Tensor of the device that `name` names, such as `random/cpu`; None for another name.

    `make` is the Tensor class that makes a missing state.
    """
    kind, _, device = name.partition("/")
    return _state(make, device).stored if kind == "random" else None


def drawn() -> dict[int, tuple[int, int]]:
    """Return a value for each state; a later value differs if numbers were drawn from the state in between."""
    return {id(state): (id(state.base), state.used) for state in _all()}


def _state(make: Any, device: Any) -> State:
    if device not in _states:
        _states[device] = State(make, device, _seed)
    return _states[device]


def state_on(make: Any, device: Any) -> State:
    """Return the state of one device (None: the default device), with the Tensor class `make` if it is new."""
    with running.lock:
        return _state(make, as_device(device))


def initial_seed() -> int:
    """Return the seed of the devices' sequences, that of the last `manual_seed` or of the operating system.

    >>> manual_seed(7)
    >>> initial_seed()
    7
    """
    return _seed


# ---- keys ------------------------------------------------------------------------------------------------------------
def check_key(key: Any) -> UOp:
    """Return the node of a key. Raises ArgumentError for what is no Tensor, DTypeError or ShapeError for another Tensor
    than a uint64 one of shape ().
    """
    if not isinstance(key, TensorBase):
        raise ArgumentError("a random key", expected="a Tensor of random.key or random.split", found=repr(key)[:80])
    if key.dtype is not _U64:
        raise DTypeError("a random key", expected="uint64", found=key.dtype.name)
    if key.shape != ():
        raise ShapeError("a random key", expected="shape (); take one of several keys by its index", found=key.shape)
    return key._uop


def key_of_seed(seed: Any) -> int:
    """Return the bits of the key of an int: a permutation of the uint64 numbers, so that near seeds have nothing in
    common.
    """
    x = (as_seed(seed, "key") + 0x9E3779B97F4A7C15) & _MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


def split_key(key: Any, n: int) -> UOp:
    """Return the node of `n` new keys, uint64 of shape (n,), which is stored, so that no draw splits again."""
    counter = g.e("ADD", g.iota(n, _U64), SPLIT)
    return build("CONTIGUOUS", build("THREEFRY", counter, g.reshape(check_key(key), (1,))))


def folded_key(key: Any, number: Any) -> UOp:
    """Return the node of the key that `key` and `number`, an int or an integer Tensor of shape (), determine."""
    if isinstance(number, TensorBase):
        if not number.dtype.is_int or number.shape != ():
            found = f"{number.dtype.name} of shape {number.shape}"
            raise ArgumentError("fold_in: data", expected="an int, or an integer Tensor of shape ()", found=found)
        counter = g.e("ADD", g.cast(g.cast(number._uop, dtypes.uint32), _U64), FOLD)
    else:
        counter = g.full((), FOLD + (as_int(number, "data") & 0xFFFFFFFF), _U64)
    return build("CONTIGUOUS", build("THREEFRY", counter, check_key(key)))


# ---- bits ------------------------------------------------------------------------------------------------------------
class Stream:
    """Give the random bits of one call: of its key, or the next of its Generator, or of its device.

    `make` is the Tensor class. `device` None means that of the key or of the Generator, else the default device. Bits
    of a Generator or a key on another device are copied to `device`.
    """

    def __init__(self, make: Any, device: Any, generator: Any = None, key: Any = None) -> None:
        self.make, self.used = make, 0
        self.key = self.state = None
        if key is not None:
            if generator is not None:
                raise ArgumentError("a generator and a key", expected="one of the two", found="both")
            self.key = check_key(key)
            self.device = key.device if device is None else as_device(device)
            if self.device != key.device:
                self.key = key.to(self.device)._uop
        elif generator is not None:
            self.state = getattr(generator, "_sequence", None)
            if not isinstance(self.state, State):
                raise ArgumentError("generator", expected="a monolect.Generator", found=repr(generator)[:80])
            self.device = self.state.stored.device if device is None else as_device(device)
        else:
            self.device = as_device(device)

    def bits(self, count: Any) -> UOp:
        """Return the next `count` uint64 random numbers, 1-d, on the device; on several, each has all of them.

        A symbolic count uses as many counters as its largest value.
        """
        if self.key is not None:
            counter = g.e("ADD", g.iota(count, _U64), 1 + self.used)
            self.used += size_max(count)
            return build("THREEFRY", counter, g.reshape(self.key, (1,)))
        if self.state is not None and self.device != self.state.stored.device:
            drawn = self.make._wrap(self._drawn(count, self.state.stored.device))
            moved: UOp = drawn.to(self.device)._uop
            return moved
        if isinstance(self.device, tuple):
            return replicated(self._drawn(count, maker_of(self.device)), self.device)
        return self._drawn(count, self.device)

    def _drawn(self, count: Any, device: Any) -> UOp:
        running.wait()
        with running.lock:  # not while a batch adds the pending state, nor while another thread makes the state
            state = _state(self.make, device) if self.state is None else self.state
            state.n_outside += not changes.captures
            counter, key = state.draw(size_max(count))
        return build("THREEFRY", build("ADD", counter, g.iota(count, _U64)), key)


__all__ = [
    "State",
    "Stream",
    "as_seed",
    "check_key",
    "drawn",
    "folded_key",
    "initial_seed",
    "key_of_seed",
    "manual_seed",
    "names",
    "new_seed",
    "pending",
    "settle",
    "snapshot",
    "split_key",
    "state_of_generator",
    "state_on",
    "states_of",
    "tensor_named",
    "tensors",
]
