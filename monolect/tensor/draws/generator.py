"""Define Generator, a random sequence with a seed and a state of its own, as PyTorch's `torch.Generator`."""

from __future__ import annotations

from itertools import count
from typing import Any

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, DeviceError
from monolect.runtime.realize.locks import running
from monolect.tensor.base import DeviceLike, TensorBase, as_device
from monolect.tensor.random import State, as_seed, new_seed, settle, state_of_generator

_numbers = count()
FIRST_SEED = 67280421310721  # seed of a new Generator, as in PyTorch


class Generator:
    """A random sequence that depends on its seed and on its own draws alone; functions that draw take `generator=`.

    Its state is on one `device`. Numbers for another device, or for several, are drawn there and copied. A captured
    step that draws from a Generator continues its sequence at each call. Raises DeviceError for several devices.

    >>> g = Generator().manual_seed(3)
    >>> a = Tensor.rand(2, generator=g).tolist()
    >>> b = Tensor.rand(2, generator=g).tolist()
    >>> _ = g.manual_seed(3)
    >>> Tensor.rand(2, generator=g).tolist() == a, a == b
    (True, False)
    """

    make: Any = None  # the class Tensor; the module that defines it sets this
    # Attributes that are no reason for another capture of a step; it knows the Generator by its number.
    unread = ("_sequence", "_initial_seed")

    def __init__(self, device: DeviceLike | None = None) -> None:
        name = as_device(device)
        if isinstance(name, tuple):
            raise DeviceError("Generator: device", expected="one device", found=name)
        self._initial_seed = FIRST_SEED
        self._sequence: State = state_of_generator(self.make, name, FIRST_SEED)
        self._number = next(_numbers)

    @property
    def device(self) -> str:
        """The name of the device of the state.

        >>> Generator("cpu").device
        'cpu'
        """
        return str(self._sequence.stored.device)

    def manual_seed(self, seed: int) -> Generator:
        """Restart the sequence from `seed` and return the Generator. Raises ArgumentError where it is no int.

        >>> Generator().manual_seed(5).initial_seed()
        5
        """
        self._sequence.become(0, as_seed(seed, "manual_seed"))
        self._initial_seed = seed
        return self

    def seed(self) -> int:
        """Restart the sequence from a seed of the operating system, and return that seed.

        >>> g = Generator()
        >>> g.seed() == g.initial_seed()
        True
        """
        self.manual_seed(new_seed())
        return self._initial_seed

    def initial_seed(self) -> int:
        """Return the seed from which the sequence started.

        >>> Generator().initial_seed()
        67280421310721
        """
        return self._initial_seed

    def get_state(self) -> Any:
        """Return the state, a uint64 Tensor (numbers used, key): a copy that later draws do not change.

        >>> g = Generator().manual_seed(1)
        >>> _ = Tensor.rand(4, generator=g).realize()
        >>> g.get_state().tolist()
        [4, 1]
        """
        return state_copy(self._sequence)

    def set_state(self, new_state: TensorBase) -> Generator:
        """Continue from a state that `get_state` returned, and return the Generator. Raises ArgumentError for other
        values.

        >>> g = Generator()
        >>> before = g.get_state()
        >>> a = Tensor.rand(2, generator=g).tolist()
        >>> a == Tensor.rand(2, generator=g.set_state(before)).tolist()
        True
        """
        restore_state(self._sequence, new_state)
        return self

    def __repr__(self) -> str:
        return f"Generator(device={self.device!r})"

    def __reduce__(self) -> Any:
        return _restored, (self.device, self._initial_seed, self.get_state().tolist())


def _restored(device: str, seed: int, state: list[int]) -> Generator:
    """Return a Generator from what a copy or a pickle of one holds."""
    g = Generator(device)
    g._initial_seed = seed
    g._sequence.become(*state)
    return g


def state_copy(state: State) -> Any:
    """Return a computed copy of a state: a uint64 Tensor (numbers used, key)."""
    running.wait()
    with running.lock:
        settle([state])
        return state.stored.clone().realize()


def restore_state(state: State, values: Any) -> None:
    """Continue `state` from `values`, a Tensor that `state_copy` returned. Raises ArgumentError for other values."""
    if not isinstance(values, TensorBase) or values.dtype is not dtypes.uint64 or values.shape != (2,):
        found = f"{values.dtype.name} of shape {values.shape}" if isinstance(values, TensorBase) else repr(values)[:80]
        raise ArgumentError("a random state", expected="a uint64 Tensor of shape (2,)", found=found)
    used, key = values.tolist()  # type: ignore[attr-defined]
    state.become(used, key)


__all__ = ["Generator", "restore_state", "state_copy"]
