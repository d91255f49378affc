"""Choose the actions of kernels with scratch values: one block of rows passes through several loops, as in attention.

The products of such a kernel share a row axis, one of the loops around all scratch values. Its rows are the rows of
each product's register tile and of the scratch buffers. Each product has its own lanes and vectors, and all share one
number of rows: the number for which their tiles cost least together. The other scratch values and the reductions along
a row are vectorized along the row. A loop around the rows along which a panel moves, such as a batch, becomes a block
loop of single iterations, as every block of rows reads the panel again. In that loop a panel is packed if it is not
contiguous along the lanes, or has gaps between its rows.
"""

from __future__ import annotations

from math import prod

from monolect.ir.bounds import ranges
from monolect.ir.uop import UOp
from monolect.optimize.actions.bound import mask_limit
from monolect.optimize.choices import Choices
from monolect.optimize.cost import StridedAccess
from monolect.optimize.cpu.contraction import Contraction
from monolect.optimize.cpu.tile_cost import RegisterTile
from monolect.optimize.tuning import (
    MAX_TILE_ROWS,
    MIN_REDUCTION_LENGTH,
    MIN_VECTOR_LENGTH,
    ROWS_PER_SHARED_VECTOR,
    SCRATCH_FRACTION,
    VECTOR_COUNTS,
)

# cycles, row, how many rows, the tile of each product
Choice = tuple[float, UOp | None, int, list[RegisterTile | None]]


class Staged:
    """Choose and perform the actions of one kernel with scratch values (such as attention), through `chooser.act`."""

    def __init__(self, chooser: Choices):
        self.chooser, self.plan, self.profile = chooser, chooser.plan, chooser.profile
        nests: dict[frozenset[UOp], list[UOp]] = {}
        for j in self.plan.reduced:
            nests.setdefault(self.profile.scope(j), []).append(j)
        fills = map(ranges, self.plan.scratch.fills.values())
        around = [rs for rs in fills if rs]  # constant scratch values have no loops around and are filled first
        self.around = [r for r in self.plan.outputs if around and all(r in rs for rs in around)]
        self.products: list[Contraction] = []  # products that get a register tile
        self.others: list[UOp] = []  # reductions along rows, and products without operand reuse
        for js in nests.values():
            contracted = [j for j in js if self.profile.reuses(j)]
            if contracted:
                self.products.append(Contraction(chooser, contracted))
            self.others += [j for j in js if j not in contracted]

    def run(self) -> None:
        """Choose one row axis and number of rows for all products of the kernel, and a register tile for each product;
        then perform all actions.
        """
        rows = [x for x in self.around if self.plan.extent(x) > 1 and self.is_shared_row_axis(x)]
        choices = [c for x in [*rows, None] if self.products and (c := self.best(x)) is not None]
        nothing: Choice = (0, None, 1, [None] * len(self.products))
        _, row, k, tiles = min(choices, key=lambda c: c[0], default=nothing)
        self.shape_axes(row, k, tiles)
        limit = mask_limit(self.plan)
        self.chooser.threads_over(self.around, limit.steps if limit is not None else ())
        panels = [self.panel(p, t) for p, t in zip(self.products, tiles, strict=True)]
        for x in self.around:
            if x is not row and any(x in a.steps for p in panels for a in p):
                self.cut(x)
        for p in self.products:
            p.unroll(row)
        self.bound()
        for p, t, loads in zip(self.products, tiles, panels, strict=True):
            if t is not None:
                for a in loads:
                    if a.step(t.c) != 1 or (p.reuse(t, loads) > 1 and self.has_gaps(p, t, a)):
                        why = "the panel in one piece, in the order it is read"
                        self.chooser.act("PACK", self.plan.loads.index(a.uop), None, why)

    def is_shared_row_axis(self, x: UOp) -> bool:
        """Whether the RANGE x can be the row axis of all products: each product has a load that does not move along x,
        so that all rows along x share a panel.
        """
        return all(any(x not in a.steps for a in p.inside) for p in self.products)

    def best(self, row: UOp | None) -> Choice | None:
        """Return the cheapest choice with the rows of all tiles along the RANGE `row`, or None if none fits: (cycles,
        `row`, number of rows, register tile of each product).

        All products have the same number of rows. If `row` is None, tiles have one row, and the tile of a product is
        None where no tile fits: it is computed by dot products.
        """
        options: list[dict[int, RegisterTile]] = []
        for p in self.products:
            mine: dict[int, RegisterTile] = {}
            for c in p.scope:
                for t in p.tiles(c) if c not in self.around else ():
                    if (t.row is row or t.row is None) and (t.rows not in mine or t.cost < mine[t.rows].cost):
                        mine[t.rows] = t
            options.append(mine)
        found = []
        for k in range(1, MAX_TILE_ROWS + 1):
            tiles = [mine.get(k) for mine in options]
            if (row is None and k > 1) or not self.fits(k) or (row is not None and None in tiles):
                continue
            if all(t is None for t in tiles):
                continue
            costs = [
                t.cost if t is not None else self.cost_of_dots(p) for p, t in zip(self.products, tiles, strict=True)
            ]
            found.append((sum(costs), row, k, tiles))
        return min(found, key=lambda f: f[0], default=None)

    def fits(self, rows: int) -> bool:
        """Whether the scratch buffers for `rows` rows at once take at most local memory / SCRATCH_FRACTION; True for
        one row.
        """
        n = sum(prod(b.shape) * b.dtype.itemsize for b in self.plan.scratch.fills)
        return rows == 1 or n * rows * SCRATCH_FRACTION <= self.plan.target.local_bytes

    def cost_of_dots(self, product: Contraction) -> float:
        """Cycles of `product` if it is computed by dot products, which load every operand for each multiply-add."""
        n = prod(self.plan.extent(x) for x in (*product.scope, *product.contracted))
        return n / self.chooser.lanes

    # ---- the actions -------------------------------------------------------------------------------------------------
    def shape_axes(self, row: UOp | None, k: int, tiles: list[RegisterTile | None]) -> None:
        """Make the vector lanes and tile rows of all products and of the other loops, by SPLITs.

        `tiles`: the register tile of each product; None: dot products. Scratch values and other reductions get vector
        lanes along a row. Last, `k` rows of the RANGE `row`, which all products share, are computed at once (None: no
        shared rows).
        """
        act, axis, size = self.chooser.act, self.plan.axis_of, self.plan.size
        shaped = {t.c for t in tiles if t is not None}
        for t in tiles:
            if t is None:
                continue
            wide = t.lanes * t.vectors
            if size(t.c) % wide:
                act("PADTO", axis(t.c), wide, "a masked vector holds the tail")
            why = f"vector of {t.lanes}, about {t.cost / 1e3:.0f} k cycles"
            act("SPLIT", axis(t.c), (t.lanes, "UPCAST", False), why)
            if t.vectors > 1:
                act("SPLIT", axis(t.c, "LOOP"), (t.vectors, "UPCAST", False), f"{t.vectors} vectors in flight")
        dots = [j for p, t in zip(self.products, tiles, strict=True) if t is None for j in p.contracted]
        for j in (*dots, *self.others):
            self.along(j, shaped)
        for e in self.plan.scratch.fills.values():
            inner = e.src[-1]
            if inner not in shaped and self.plan.extent(inner) >= MIN_VECTOR_LENGTH:
                self.chooser.split_vector(inner, "UPCAST", "a scratch value along its row", ())
        if not self.products:
            for x in self.plan.outputs[::-1]:
                if x not in self.around and x not in self.plan.scratch.own and self.plan.extent(x) >= MIN_VECTOR_LENGTH:
                    self.chooser.split_vector(x, "UPCAST", "contiguous in the output")
        if row is not None and k > 1:
            if self.plan.divisor(row) % k:
                act("PADTO", axis(row), k, "rows beyond the end repeat the last")
            act("SPLIT", axis(row), (k, "UPCAST", False), "rows that share the vectors, in every loop")

    def along(self, j: UOp, vectorized: set[UOp]) -> None:
        """Make vector lanes along the reduction RANGE j if its operands are contiguous along j, else along the
        innermost output loop around it if they are contiguous along that.

        `vectorized`: the output RANGEs that need no vector lanes any more; the function adds the loop that it
        vectorizes, or, if that is j, the output loops around j that are not around all scratch values.
        """
        inside = self.profile.inside(j)
        own = [x for x in self.plan.outputs if x in self.profile.scope(j) and x not in self.around]
        if (
            self.profile.is_contiguous(j, inside)
            and self.plan.extent(j) >= MIN_REDUCTION_LENGTH
            and not self.chooser.contains_reduction(j)
        ):
            self.chooser.split_vector(
                j, "GROUP_REDUCE", "contiguous in the reduction", () if self.products else VECTOR_COUNTS
            )
            vectorized.update(own)
            for x in own[-1:]:
                if self.plan.divisor(x) % ROWS_PER_SHARED_VECTOR == 0:
                    why = "dot products that share operands"
                    self.chooser.act("SPLIT", self.plan.axis_of(x), (ROWS_PER_SHARED_VECTOR, "UPCAST", False), why)
            return
        for x in own[-1:]:
            if (
                x not in vectorized
                and self.profile.is_contiguous(x, inside)
                and self.plan.extent(x) >= MIN_VECTOR_LENGTH
            ):
                vectorized.add(x)
                self.chooser.split_vector(x, "UPCAST", "contiguous in what is read")

    def bound(self) -> None:
        """Perform BOUND, if the kernel is a masked softmax: end its loops at the edge of the mask, so that scores
        hidden from all rows of a tile are not computed.
        """
        for e in self.plan.scratch.fills.values():
            if self.chooser.act("BOUND", self.plan.axis_of(e.src[-1]), None, "the mask hides all later iterations"):
                return

    @staticmethod
    def panel(product: Contraction, tile: RegisterTile | None) -> list[StridedAccess]:
        """The loads of `product` that move along the vector lanes of `tile`; none if `tile` is None."""
        return [] if tile is None else [a for a in product.inside if tile.c in a.steps]

    def has_gaps(self, product: Contraction, tile: RegisterTile, a: StridedAccess) -> bool:
        """Whether the load `a` of `product`'s panel may be packed and reads rows with gaps between them: their starts
        are further apart in memory than the length of a row along the tile's vector axis `tile.c`.
        """
        steps = [s for j in product.contracted if (s := a.step(j))]
        return bool(steps) and min(abs(s) for s in steps) > self.plan.size(tile.c) and product.packable(a)

    def cut(self, x: UOp) -> None:
        """Make the remaining loop of the RANGE x a block loop of single iterations, so that the panels of one iteration
        stay in cache.
        """
        mine = (i for i, p in enumerate(self.plan.axes) if p.root is x and p.type == "LOOP" and not p.is_block)
        i = next((i for i in mine if self.plan.axes[i].size > 1), None)
        if i is not None:
            self.chooser.act("SPLIT", i, (self.plan.axes[i].size, "LOOP", True), "one panel at a time")


__all__ = ["Staged"]
