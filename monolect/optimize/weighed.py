"""Report the candidates that the heuristic compared for one kernel, and the predicted time, for `explain --why`.

What it is for: a sum of products on a processor, whose register tiles have estimated costs: the best tiles, by how much
the others cost more, and dot products. For other kernels the heuristic estimates no time and follows rules. Then the
page has the bytes of each operand and the smallest cache that holds them. The predicted time and its terms come from
`roofline`, for every kernel.
What it is not: a measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from monolect.base.target import Target
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp
from monolect.optimize.actions.plan import Action, LoopPlan
from monolect.optimize.cpu.dot_products import Dots
from monolect.optimize.cpu.heuristic import Chooser
from monolect.optimize.cpu.tile_cost import RegisterTile
from monolect.optimize.loops.accesses import buffer_bytes
from monolect.optimize.roofline import predict


def weighed(ready: UOp, target: Target, most: int = 6) -> Iterator[str]:
    """Yield lines of text that report what the heuristic compared for a kernel: bytes and caches, at most `most`
    register tiles with their costs, and dot products.

    `ready`: the SINK of the kernel, with no actions chosen yet.
    """
    plan = LoopPlan(ready, target)
    yield from _memory(plan)
    if plan.is_given:
        yield "  nothing: the user fixed the axis types"
        return
    chooser = Chooser(plan)
    strategy = chooser.strategy()
    yield f"  strategy {strategy.name}: {strategy.why}"
    if not chooser.contracted or strategy.name in ("threads", "loops"):
        yield "  no estimated times: the actions follow from rules"
        return
    if strategy.name != "tile":
        yield "  candidates were compared by one cost each, whose terms are not kept"
        return
    if chooser.vectorize_invariant_axis(chooser.contracted):
        yield f"  no estimated times: {chooser.reasons[-1]}"
        return
    product = Dots(chooser, chooser.contracted)
    tiles = [t for c in product.scope for t in product.tiles(c)]
    yield from _tiles(plan, tiles, most)
    yield from _dots(product, min(tiles, key=lambda t: t.cost, default=None))


def predicted(ready: UOp, actions: Sequence[Action], target: Target) -> Iterator[str]:
    """Yield lines of text about the predicted time of a kernel after `actions`, by the rates of `target`.

    `ready`: the SINK of the kernel, with no actions chosen yet.
    """
    prediction = predict(ready, tuple(actions), target)
    if not prediction.terms:
        yield "  no predicted time: the target has workgroups"
        return
    yield f"  {prediction.seconds * 1e6:.1f} us, limited by {prediction.limit.name}"
    for t in prediction.terms:
        yield f"  {'overlapped' if t.is_transfer else '':10} {t.name:8} {t.seconds * 1e6:10.1f} us  {t.why}"
    yield f"  at {target.clock_hz / 1e9:.2f} GHz, {target.dram_bytes_per_second / 1e9:.1f} GB/s of memory"


def _memory(plan: LoopPlan) -> Iterator[str]:
    """Yield one line: the size in bytes of all PARAMs that the kernel accesses and of each of them, and the smallest
    cache that holds all.
    """
    target = plan.target
    caches = (("L1", target.l1_bytes), ("L2", target.l2_bytes), ("L3", target.l3_bytes))
    of = {memory_of(u.src[0]): buffer_bytes(u) for u in (*plan.loads, *plan.stores)}
    of = {b: n for b, n in of.items() if b.op == "PARAM"}
    total = sum(of.values())
    level = next((name for name, n in caches if total <= n), "DRAM") if not target.workgroups else "global memory"
    each = ", ".join(f"p{b.arg.slot} {n}" for b, n in sorted(of.items(), key=lambda x: x[0].arg.slot))
    yield f"  bytes reached: {total} ({each}): {level}"


def _tiles(plan: LoopPlan, tiles: list[RegisterTile], most: int) -> Iterator[str]:
    """Yield a heading and one line for each of the cheapest register tiles of `tiles`, at most `most`: the parts of
    their costs, in thousands of cycles on one thread.

    Of tiles that differ only in their number of rows, only the cheapest is listed.
    """
    cheapest: dict[tuple[object, ...], RegisterTile] = {}
    for t in sorted(tiles, key=lambda t: t.cost):
        cheapest.setdefault((t.c, t.lanes, t.vectors, t.unit, t.streams), t)
    if not cheapest:
        yield "  no register tile fits"
        return
    heads = (
        ("total", 9),
        ("compute+L1", 10),
        ("start", 8),
        ("stores", 8),
        ("packing", 8),
        ("L2+DRAM", 8),
        ("edges", 6),
    )
    columns = " ".join(f"{name:>{w}}" for name, w in heads)
    yield f"  {'tile, k cycles on one thread':38} {columns}  compared with the best"
    best = next(iter(cheapest.values())).cost
    for t in list(cheapest.values())[:most]:
        x = t.terms
        assert x is not None
        kind = t.unit.name if t.unit is not None else "streamed" if t.streams else "registers"
        name = f"r{t.c.arg[0]}: {t.vectors} x {t.lanes}, {t.rows} rows, {kind}"
        parts = (t.cost, x.tiles * x.steps, x.tiles * x.start, x.tiles * x.stores, x.packing, x.memory)
        numbers = " ".join(f"{n / 1e3:{w}.1f}" for n, (_, w) in zip(parts, heads, strict=False))
        numbers += f" {_beyond_edges(plan, t):6.1%}"
        yield f"  {name:38} {numbers}  {'chosen of tiles' if t.cost == best else f'{t.cost / best - 1:+.1%}'}"
    yield f"  {len(tiles)} tiles fit the registers"


def _beyond_edges(plan: LoopPlan, tile: RegisterTile) -> float:
    """Return the work that `tile` wastes on rows and columns beyond the ends of the axes, as a share of the useful
    work. The tile's cost includes this work.
    """
    n, m = plan.size(tile.c), plan.extent(tile.row) if tile.row is not None else 1
    wide = tile.lanes * tile.vectors
    return -(-n // wide) * wide * -(-m // tile.rows) * tile.rows / (n * m) - 1


def _dots(product: Dots, tile: RegisterTile | None) -> Iterator[str]:
    """Yield one line about the cheapest square of dot products for the contraction `product`: its sides, its cost, and
    whether it is better than `tile`.

    `tile`: the cheapest register tile, or None if no tile fits.
    """
    square = product.best_square()
    if square is None:
        yield "  no dot products: no operand is contiguous along the sum"
        return
    sides = " x ".join(str(k) for _, k in square.sides)
    taken = "chosen" if product.better_square(tile) is not None else "not chosen"
    cost = "no estimate" if square.cost == float("inf") else f"{square.cost / 1e3:.1f} k cycles"
    yield f"  dot products along r{square.j.arg[0]}, {sides or 1} at once: {cost}, {taken}"


__all__ = ["predicted", "weighed"]
