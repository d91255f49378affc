"""Running sums, transposition, gather, scatter, sort, topk: programs that move data."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.cpu.case import COMPILERS, Case, Inputs, Target, normal, same

TARGETS = (Target(1.0, COMPILERS),)


def cumsum(n: int, *, name: str = "") -> Case:
    return Case(
        f"cumsum {name or n}",
        "movement",
        lambda rng: [rng.standard_normal(n, dtype=np.float32) * np.float32(0.01)],
        same(lambda _, x: x.cumsum(0), "monolect", "torch", "jax", "numpy", "tinygrad")
        | {"ort": lambda g, x: g.CumSum(x, np.array(0))},
        targets=TARGETS,
    )


def transpose(n: int, m: int, *, quick: bool = False) -> Case:
    return Case(
        f"transpose {n if n == m else f'{n}x{m}'}",
        "movement",
        normal((n, m)),
        same(lambda _, x: x.T.contiguous(), "monolect", "torch", "tinygrad")
        | {
            "jax": lambda _, x: x.T,
            "ort": lambda g, x: g.Transpose(x, perm=[1, 0]),
            "numpy": lambda np, x: np.ascontiguousarray(x.T),
        },
        targets=TARGETS,
        quick=quick,
    )


def table_and_rows(rows: int, width: int, picked: int, added: bool) -> Inputs:
    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        table = rng.standard_normal((rows, width), dtype=np.float32)
        index = rng.integers(0, rows, picked, np.int32)
        return [table, index, *([rng.standard_normal((picked, width), dtype=np.float32)] if added else [])]

    return inputs


def gather(rows: int, width: int, picked: int, *, quick: bool = False) -> Case:
    return Case(
        f"gather {picked} of {rows}x{width}",
        "movement",
        table_and_rows(rows, width, picked, added=False),
        same(lambda _, t, i: t[i], "monolect", "jax", "numpy", "tinygrad")
        | {
            "torch": lambda torch, t, i: torch.index_select(t, 0, i),
            "ort": lambda g, t, i: g.Gather(t, i),
        },
        targets=TARGETS,
        moved=(4 * picked * (width + 1), 4 * picked * width),
        quick=quick,
    )


def scatter_add(rows: int, width: int, picked: int) -> Case:
    def in_numpy(np: Any, t: Any, i: Any, x: Any) -> Any:
        out = t.copy()
        np.add.at(out, i, x)
        return out

    def in_graph(g: Any, t: Any, i: Any, x: Any) -> Any:
        every = g.Expand(g.Unsqueeze(i, np.array([1])), np.array([picked, width]))
        return g.ScatterElements(t, every, x, axis=0, reduction="add")

    return Case(
        f"scatter_add {picked} into {rows}x{width}",
        "movement",
        table_and_rows(rows, width, picked, added=True),
        {
            "monolect": lambda _, t, i, x: t.index_add(0, i, x),
            "torch": lambda _, t, i, x: t.index_add(0, i, x),
            "jax": lambda _, t, i, x: t.at[i].add(x),
            "ort": in_graph,
            "numpy": in_numpy,
        },
        targets=TARGETS,
    )


def sort(n: int, *, name: str = "") -> Case:
    return Case(
        f"sort {name or n}",
        "movement",
        normal((n,)),
        {
            "monolect": lambda _, x: x.sort()[0],
            "torch": lambda _, x: x.sort()[0],
            "jax": lambda jax, x: jax.numpy.sort(x),
            "ort": lambda g, x: g.TopK(x, np.array([n]), largest=0, outputs=2)[0],
            "numpy": lambda np, x: np.sort(x),
        },
        targets=TARGETS,
    )


def topk(n: int, k: int, *, name: str = "") -> Case:
    def in_numpy(np: Any, x: Any) -> Any:
        return -np.sort(np.partition(-x, k)[:k])

    return Case(
        f"topk {k} of {name or n}",
        "movement",
        normal((n,)),
        {
            "monolect": lambda _, x: x.topk(k)[0],
            "torch": lambda _, x: x.topk(k)[0],
            "jax": lambda jax, x: jax.lax.top_k(x, k)[0],
            "ort": lambda g, x: g.TopK(x, np.array([k]), outputs=2)[0],
            "numpy": in_numpy,
        },
        targets=TARGETS,
    )


def random_case(rng: np.random.Generator) -> Case:
    n, m, k = (int(2 ** rng.uniform(2, 11)) + int(rng.integers(-1, 2)) for _ in range(3))
    return [cumsum(n * m), transpose(n, m), gather(n, m, k), scatter_add(n, m, k), sort(n * 16 + k)][rng.integers(5)]


CASES = [
    cumsum(1 << 24, name="16M"),
    transpose(4096, 4096, quick=True),
    gather(50257, 768, 4096, quick=True),
    scatter_add(50257, 768, 4096),
    sort(1 << 20, name="1M"),
    topk(1 << 20, 10, name="1M"),
]
