"""The order in which dicts were built is no part of the signature of a captured step; results keep their own."""

import collections
import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from monolect import JitError, Tensor, jit


def vector(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


def shuffled(tree: Any, rng: random.Random) -> Any:
    """`tree` with the keys of its plain dicts in another order."""
    if tree.__class__ is dict:
        keys = rng.sample([*tree], len(tree))
        return {k: shuffled(tree[k], rng) for k in keys}
    if tree.__class__ in (list, tuple):
        return tree.__class__([shuffled(x, rng) for x in tree])
    return dataclasses.replace(tree, held=shuffled(tree.held, rng)) if isinstance(tree, Held) else tree


@dataclasses.dataclass
class Held:
    held: dict[str, Any]


def weigh(tree: Any, weight: float = 1.0) -> Any:
    """A sum in which each key and place has a weight of its own, whatever the order."""
    if isinstance(tree, Held):
        return weigh(tree.held, weight * 1.5)
    if isinstance(tree, dict):
        return sum(
            weigh(v, weight * (2 + sum(map(ord, str(k))) % 7))
            for k, v in sorted(tree.items(), key=lambda kv: str(kv[0]))
        )
    if isinstance(tree, list | tuple):
        return sum(weigh(v, weight * (k + 2)) for k, v in enumerate(tree))
    return tree * weight


def random_tree(rng: random.Random, depth: int, leaf: Any) -> Any:
    kind = rng.choice(["dict", "dict", "list", "tuple", "held", "leaf"]) if depth else "leaf"
    if kind == "leaf":
        return leaf()
    parts = [random_tree(rng, depth - 1, leaf) for _ in range(rng.randint(1, 4))]
    if kind == "list" or kind == "tuple":
        return parts if kind == "list" else tuple(parts)
    keys = rng.choice(
        [["b", "a", "d", "c"], [3, 1, 4, 2], [(1, "y"), (0, "z"), (1, "x"), (0, "a")], [1.5, True, -1, 0]]
    )
    found = dict(zip(keys, parts, strict=False))
    return found if kind == "dict" else Held(found)


def numbers(tree: Any) -> Any:
    if isinstance(tree, Held):
        return Held(numbers(tree.held))
    if isinstance(tree, dict):
        return {k: numbers(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return tree.__class__([numbers(v) for v in tree])
    return tree.numpy() if isinstance(tree, Tensor) else tree


def test_random_trees_in_any_order_are_one_capture() -> None:
    for seed in range(60):
        print("seed", seed)
        rng = random.Random(seed)
        leaf = lambda rng=rng: rng.choice([float(rng.randint(1, 9)), vector(rng.randint(1, 9), 1.0)])  # noqa: E731
        tree, x = {"first": random_tree(rng, 3, leaf), "by": random_tree(rng, 2, leaf)}, vector(1.0, 2.0)
        step = jit(lambda x, tree, **more: x + weigh(tree) + weigh(more))
        for _ in range(4):
            given, more = shuffled(tree, rng), shuffled({"u": x, "t": tree["by"]}, rng)
            want = x.numpy() + weigh(numbers(tree)) + weigh(numbers(more))
            np.testing.assert_allclose(step(x, given, **more).numpy(), want, rtol=1e-5)
        assert len(step.captures) == 1


def test_the_function_gets_sorted_keys_and_results_keep_their_order() -> None:
    step = jit(lambda d: {"z": sum(v * 10**k for k, v in enumerate(d.values())), "a": d["a"] * 2})
    for keys in ("abc", "cba", "bca", "acb"):
        got = step({k: vector(ord(k) - 96.0) for k in keys})
        assert got["z"].item() == 321.0 and [*got] == ["z", "a"] and got["a"].item() == 2.0
    assert len(step.captures) == 1


def test_keys_that_cannot_be_compared_and_other_classes_keep_their_order() -> None:
    last = lambda d: [*d.values()][-1] * 1  # noqa: E731
    for make in (collections.OrderedDict, lambda d: {None if k == "a" else k: v for k, v in d.items()}):
        step = jit(last)
        for keys in ("ab", "ba", "ab"):
            d = make({k: vector(ord(k)) for k in keys})
            assert step(d).item() == ord(keys[-1])
        assert len(step.captures) == 2


def test_state_and_donation_in_dicts_of_any_order() -> None:
    @jit(donate="given")
    def step(cache: dict[str, Tensor], given: dict[str, Tensor]) -> Tensor:
        cache["k"].assign(cache["k"] + given["a"])
        cache["v"].assign(cache["v"] * given["b"])
        return (given["a"] - given["b"]) * 1

    cache = {"v": vector(1.0), "k": vector(0.0)}
    for n in range(1, 5):
        given = {"b": vector(2.0), "a": vector(1.0)} if n % 2 else {"a": vector(1.0), "b": vector(2.0)}
        assert step(dict(reversed(cache.items())) if n > 2 else cache, given).item() == -1.0
        assert (cache["k"].item(), cache["v"].item()) == (n, 2.0**n)
        with pytest.raises(JitError, match="donated"):
            given["a"].sum()
    assert len(step.captures) == 1


def test_a_saved_step_takes_either_order(tmp_path) -> None:
    step = jit(lambda d, k: {"y": d["u"] - d["v"], "x": d["u"] * k["n"]})
    u, v, path = vector(5.0), vector(3.0), tmp_path / "order.step"
    step({"v": v, "u": u}, {"n": 2, "m": 1})
    step.save(path)
    loaded = jit.load(path)
    for d, k in (({"u": u, "v": v}, {"m": 1, "n": 2}), ({"v": v, "u": u}, {"n": 2, "m": 1})):
        got = loaded(d, k)
        assert [(name, t.item()) for name, t in got.items()] == [("y", 2.0), ("x", 10.0)]


def test_a_dict_that_holds_itself_is_refused() -> None:
    d: dict[str, Any] = {"b": vector(1.0), "a": 1}
    d["a"] = d
    with pytest.raises(JitError, match="holds itself"):
        jit(lambda d: d["b"])(d)
