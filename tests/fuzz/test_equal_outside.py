"""Values that a captured step or a `@function` writes while Tensors outside are made alike: one node, two values.

A step is a random expression of its argument, of numbers, and of Tensors made of those or of an array that it reads.
Tensors of equal expressions are held beside it, computed or not, and one of them is changed in place between two calls;
some of them the step reads. At each call the step gives what the plain function gives.
"""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from monolect import Tensor, function, jit

N_SEEDS = 16
PROGRAMS = 6  # of each seed
CALLS = 4

Make = Callable[[Tensor], Tensor]
MADE: dict[str, Make] = {
    "0": lambda a: Tensor(0.0),
    "2": lambda a: Tensor(2.0),
    "zeros": lambda a: Tensor.zeros(3),
    "ones": lambda a: Tensor.ones(3),
    "places": lambda a: Tensor.arange(3).float(),
    "multiple": lambda a: a * 2,
    "sum": lambda a: a.sum(),
    "running sum": lambda a: a.cumsum(0),
    "sum of a multiple": lambda a: (a * 2).sum(),
}
USES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, t: x + t,
    "multiply": lambda x, t: x * t,
    "greater": lambda x, t: (x > t).where(x, t),
    "relu": lambda x, t: x.relu(),
    "padded": lambda x, t: x.pad((1, 1))[1:-1],
    "twice": lambda x, t: x * 2.0,
    "lower": lambda x, t: x.reshape(1, 3).tril(1).reshape(3),
}
CHANGES: dict[str, Callable[[Tensor], object]] = {
    "fill": lambda t: t.fill_(7.0),
    "add": lambda t: t.copy_(t + 5.0),
    "realized": lambda t: t.realize().copy_(t + 5.0).realize(),
    "assign": lambda t: t.assign(t * 3.0 + 1.0),
}


WRAPS: dict[str, Callable] = {
    "jit": jit,
    "function": function,
    "compiled apart": lambda f: function(f, precompile=True),
    "both": lambda f: jit(function(f)),
}


def run(rng: Random, wrap: Callable) -> None:
    a = Tensor(np.array([1.0, -2.0, 3.0], np.float32))
    held = {name: MADE[name](a) for name in rng.sample(sorted(MADE), rng.randint(1, 4))}
    lines = [
        (rng.choice(sorted(USES)), rng.choice(sorted({*held} if rng.random() < 0.7 else MADE)), rng.random() < 0.3)
        for _ in range(rng.randint(1, 4))
    ]
    changed, change, when = rng.choice(sorted(held)), rng.choice(sorted(CHANGES)), rng.randrange(CALLS)
    print(f"held {[*held]}, lines {lines}, {change} of {changed!r} after call {when}")

    def plain(x: Tensor) -> Tensor:
        for use, name, reads in lines:
            x = USES[use](x, held[name] if reads and name in held else MADE[name](a))
        return x

    step = wrap(plain)
    for k in range(CALLS):
        array = np.array([0.5, -1.0, 2.0], np.float32) + k
        np.testing.assert_array_equal(step(Tensor(array)).numpy(), plain(Tensor(array)).numpy(), err_msg=f"call {k}")
        if k >= when:
            CHANGES[change](held[changed])


@pytest.mark.sweep
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_what_a_step_writes_itself_is_not_what_is_held_outside(seed: int, wrap: str) -> None:
    rng = Random(f"{seed} {wrap}")
    for _ in range(PROGRAMS):
        run(rng, WRAPS[wrap])
