"""Matrix units of GPUs: every row of every table against its vendor's manual, run lane by lane, and as source."""

from functools import partialmethod

import numpy as np
import pytest

from monolect import Context, Tensor
from monolect.backend import registry
from monolect.backend.base import launching
from monolect.backend.cuda import ptx
from monolect.backend.cuda import render as cuda
from monolect.backend.python.interpret import Kernel
from monolect.backend.python.runtime import GPU
from monolect.backend.python.values import Exchange, MemoryExchange
from monolect.base.dtype import to_numpy
from monolect.base.errors import ActionError, InternalError
from monolect.base.matrix_units import BY_NAME, Cores, n_elements, position, runs
from monolect.base.target import MatrixUnit, Target
from monolect.ir.check.verify import verify
from monolect.ir.digest import digest
from monolect.ir.ops import Stage
from monolect.ir.uop import UOp
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.apply import apply_actions
from monolect.optimize.search.moves import legal_moves
from monolect.pipeline import lower_kernel
from tests.backend.standin.device import STANDINS, Hip, missing
from tests.backend.standin.fragments import of_vendor
from tests.backend.workgroup_kernels import kernel, split

# a unit of four warps has as many rows of the table as sizes: all of one type, two of the others
UNITS = [name for name, u in BY_NAME.items() if not u.from_memory or u.n in (16, 128) or u.a.name == "float16"]
F16 = BY_NAME["mma_m16n8k16_f16"]


def tiles(u: MatrixUnit) -> tuple:
    """Two tiles of rows a warp, two warps along the columns, two workgroups along the rows."""
    columns = 1 + sum(r.axis == 0 for r in runs(u.maps[2]))  # the axis, after those of the rows
    packed = (("PACK", 0, None), ("PACK", 1, None)) if u.from_memory else ()
    return split(0, 2, "UPCAST"), split(columns + 1, 2, "LOCAL"), split(0, 2, "GLOBAL", True), *packed


def numbers(d, *shape, seed=0):
    low = 0 if d.is_unsigned else -4
    return np.random.default_rng(seed).integers(low, 5, shape).astype(to_numpy(d))


class Product:
    """A product of matrices of four tiles by two by two, with an epilogue, as one kernel under a plan."""

    def __init__(self, unit: MatrixUnit, target: Target, layout: str = "NN", more: tuple = (), tail: int = 0):
        self.unit, self.target = unit, target
        m, n, k = 4 * unit.m - tail, 2 * unit.n - tail, 2 * unit.k - tail
        a, b = numbers(unit.a, m, k), numbers(unit.b, k, n, seed=1)
        acc = unit.acc
        x, y = (v if o == "N" else v.T.copy() for v, o in zip((a, b), layout, strict=True))
        turn = [(lambda t: t) if o == "N" else (lambda t: t.T) for o in layout]
        sink, arguments = kernel(target, lambda x, y: turn[0](x).cast(acc) @ turn[1](y).cast(acc) * 2, x, y)
        self.sink = lower_kernel(sink, target, last="merge_ranges")
        pads = tuple(("PADTO", i, n) for i, n in enumerate((unit.m * 4, unit.n * 2, unit.k * 2)) if tail)
        self.actions = (*pads, ("TC", 2, (unit.name, 0, 1)), *(more or tiles(unit)))
        self.operands = [x, y]
        self.arrays = [np.zeros((m, n), to_numpy(acc)), *arguments]
        self.want = (a.astype(np.float64) @ b.astype(np.float64) * 2).astype(to_numpy(acc))

    def linear(self) -> UOp:
        planned = apply_actions(self.sink, self.actions, self.target)
        return lower_kernel(planned, self.target, first="device_axes")

    def run(self, backwards: bool = False) -> np.ndarray:
        arrays = [x.copy() for x in self.arrays]
        Kernel(self.linear(), "test", backwards).run([x.ctypes.data for x in arrays])
        return arrays[0]


def model(unit: MatrixUnit) -> Target:
    return GPU._replace(units=(unit,), warp=32 if unit.from_memory else unit.threads, local_bytes=64 << 10)


# ---- the tables ------------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("name", UNITS)
def test_a_row_says_what_the_manual_says(name):
    u = BY_NAME[name]
    for k, operand in enumerate("abc"):
        for lane in range(0 if u.from_memory and operand != "c" else u.threads):
            for i in range(n_elements(u.maps[k])):
                at = of_vendor(u, operand, lane, i)
                assert position(u.maps[k], lane, i) == (at[::-1] if operand == "b" else at), (operand, lane, i)


@pytest.mark.sweep
@pytest.mark.parametrize("name", UNITS)
def test_a_row_covers_its_tiles(name):
    u = BY_NAME[name]
    for words, sides in list(zip(u.maps, ((u.m, u.k), (u.n, u.k), (u.m, u.n)), strict=True))[2 * u.from_memory :]:
        n = n_elements(words)
        found = {position(words, lane, i) for lane in range(u.threads) for i in range(n)}
        assert found == {(x, y) for x in range(sides[0]) for y in range(sides[1])}
    assert n_elements(u.maps[2]) * u.threads == u.m * u.n  # each element of the sum once
    assert sorted(r.first for r in runs(u.maps[2]) if r.is_lane)[0] == 0


# ---- lane by lane ----------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("name", UNITS)
def test_a_product_in_warps(name):
    u = BY_NAME[name]
    product = Product(u, model(u))
    linear = product.linear()
    verify(linear, Stage.PROGRAM)
    assert any(x.op == "WMMA" and x.arg[0] == name for x in linear.src)
    assert not any(x.op in ("MUL", "MULACC") and x.dtype is u.acc and x.shape != () and x.src[0].op == "CAST"
                   for x in linear.src)  # fmt: skip
    for backwards in (False, True):
        np.testing.assert_array_equal(product.run(backwards), product.want)


@pytest.mark.sweep
@pytest.mark.parametrize("layout", ["NT", "TN", "TT"])
@pytest.mark.parametrize("name", [
    "mma_m16n8k16_f16", "mma_m16n8k8_tf32", "wgmma_m64n32k16_bf16", "wgmma_m64n16k32_e4m3", "wgmma_m64n8k32_s8_u8",
])  # fmt: skip
def test_products_of_turned_operands(name, layout):
    u = BY_NAME[name]
    product = Product(u, model(u), layout)
    np.testing.assert_array_equal(product.run(), product.want)


@pytest.mark.sweep
@pytest.mark.parametrize("name", [
    "mma_m16n8k16_bf16", "mma_m16n8k32_s8", "wgmma_m64n16k16_f16", "wgmma_m64n8k32_u8", "wgmma_m64n16k32_e5m2",
])  # fmt: skip
def test_tiles_beyond_the_edges(name):
    """Rows, columns and steps that no tile divides are masked, or read again and not stored."""
    u = BY_NAME[name]
    product = Product(u, model(u), tail=3)
    np.testing.assert_array_equal(product.run(), product.want)


def test_operands_through_local_memory():
    u = F16
    more = (*tiles(u), ("PACK", 0, None), ("PACK", 1, None))
    product = Product(u, model(u), more=more)
    linear = product.linear()
    assert any(x.op == "BARRIER" for x in linear.src)
    np.testing.assert_array_equal(product.run(), product.want)
    np.testing.assert_array_equal(product.run(True), product.want)


def test_steps_without_a_loop():
    u = F16
    product = Product(u, model(u), more=(split(6, 2, "UNROLL"),))
    linear = product.linear()
    assert sum(x.op == "WMMA" for x in linear.src) == 2
    np.testing.assert_array_equal(product.run(), product.want)


# an operand's elements along the steps: how many there are, and where in its memory each lies
SPREADS = {"the same for all": lambda k: np.zeros(k, int), "pairs": lambda k: np.arange(k) // 2,
           "fours": lambda k: np.arange(k) // 4, "twice": lambda k: np.arange(k) % (k // 2),
           "eight times": lambda k: np.arange(k) % (k // 8)}  # fmt: skip


class Spread(Product):
    """The same of an operand (`side`) that has one element for several steps."""

    def __init__(self, unit: MatrixUnit, target: Target, spread: str, side: int, more: tuple = ()):
        super().__init__(unit, target, "NT", more)
        at = SPREADS[spread](self.operands[0].shape[1])
        n = at.max() + 1
        small = self.operands[side][:, :n].copy()

        def whole(t: Tensor) -> Tensor:
            if at[1] or n == 1:
                return t.reshape(-1, 1, n).expand(-1, len(at) // n, n).reshape(-1, len(at))
            return t.reshape(-1, n, 1).expand(-1, n, len(at) // n).reshape(-1, len(at))

        def product(x: Tensor, y: Tensor) -> Tensor:
            x, y = (whole(t) if k == side else t for k, t in enumerate((x, y)))
            return x.cast(unit.acc) @ y.T.cast(unit.acc) * 2

        self.operands[side] = small
        sink, arguments = kernel(target, product, *self.operands)
        self.sink = lower_kernel(sink, target, last="simplify_loops")  # one loop, also where merge_ranges makes two
        wide = [x.astype(np.float64) for x in self.operands]
        wide[side] = wide[side][:, at]
        self.want = (wide[0] @ wide[1].T * 2).astype(self.want.dtype)
        self.arrays = [self.arrays[0], *arguments]
        self.small = next(k for k, x in enumerate(arguments) if x is small)


@pytest.mark.sweep
@pytest.mark.parametrize("side", [0, 1], ids=["left", "right"])
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("name", ["mma_m16n8k16_f16", "mma_m16n8k8_tf32", "mma_m16n8k32_s8_u8", "mfma_32x32x8_f16",
                                  "wmma3_16x16x16_bf16", "wmma4_16x16x16_s8", "simdgroup_8x8x8_f32"])  # fmt: skip
def test_an_operand_with_one_element_for_several_steps(name, spread, side):
    """A lane holds it once for each of them: an operand that is expanded or repeated along the sum."""
    u = BY_NAME[name]
    product = Spread(u, model(u), spread, side)
    np.testing.assert_array_equal(product.run(), product.want)
    packed = [i for i in (0, 1) if i != product.small or spread == "the same for all"]  # others are not linear
    product.actions += tuple(("PACK", i, None) for i in packed)
    np.testing.assert_array_equal(product.run(), product.want)


@pytest.mark.parametrize("side", [0, 1], ids=["left", "right"])
@pytest.mark.parametrize("spread", SPREADS)
def test_a_unit_that_reads_memory_is_refused_where_steps_share_elements(spread, side):
    with pytest.raises(ActionError):
        Spread(WGMMA, model(WGMMA), spread, side).linear()


@pytest.mark.sweep
@pytest.mark.parametrize("name", [F16.name, "wgmma_m64n8k16_f16"])
def test_each_pass_keeps_the_meaning(name):
    product = Product(BY_NAME[name], model(BY_NAME[name]), tail=3)
    with Context(VERIFY=2, CHECK_BOUNDS=1):
        product.linear()


def test_a_search_finds_the_unit():
    sink = Product(F16, model(F16)).sink
    assert (("TC", 2, (F16.name, 0, 1)),) in legal_moves(sink, model(F16), kind="TC")
    # columns of eight lie along either side of the matrix; rows and columns may change places, and so the operands
    assert (("TC", 2, (F16.name, 1, 0)),) in legal_moves(sink, model(F16), kind="TC")


def test_tf32_rounds_its_operands():
    u = BY_NAME["mma_m16n8k8_tf32"]
    product = Product(u, model(u))
    product.arrays[1][:] = 1 + 2.0**-11  # between two neighbours: away from zero
    product.arrays[2][:] = 1 - 2.0**-13
    np.testing.assert_array_equal(product.run(), np.full(product.want.shape, 2 * 2 * u.k * (1 + 2.0**-10), np.float32))


# ---- what is refused -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("actions", "expected"), [
    ((("TC", 2, ("no such unit", 0, 1)),), "mma_m16n8k16_f16"),
    ((("TC", 2, F16.name),), "the axes of rows and of columns"),
    ((("TC", 2, (F16.name, 0, 7)),), "the axes of rows and of columns"),
    ((("TC", 1, (F16.name, 0, 1)),), "a multiple of 16 steps"),
    ((split(0, 2, "LOCAL"), ("TC", 3, (F16.name, 0, 2))), "no lanes and no vectors"),
    ((("TC", 2, (F16.name, 0, 0)),), "a load along the rows"),
    ((("TC", 2, (F16.name, 0, 1)), ("TC", 4, (F16.name, 0, 1))), "once"),
    ((("TC", 2, (F16.name, 0, 1)), split(6, 2, "GROUP_REDUCE")), "lanes that add separately"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(actions, expected):
    plan = LoopPlan(Product(F16, model(F16)).sink, model(F16))
    with pytest.raises(ActionError, match=expected):
        for a in actions:
            plan.act(a)


def test_types_and_sizes_that_do_not_fit_are_refused():
    sink = Product(BY_NAME["mma_m16n8k16_bf16"], model(BY_NAME["mma_m16n8k16_bf16"])).sink
    with pytest.raises(ActionError, match=r"float16 \* float16"):
        LoopPlan(sink, model(F16)).act(("TC", 2, (F16.name, 0, 1)))
    small = Product(F16, model(F16), tail=3).sink
    with pytest.raises(ActionError, match="multiple of 16"):
        LoopPlan(small, model(F16)).act(("TC", 2, (F16.name, 0, 1)))
    with pytest.raises(ActionError, match="sum of products in int32"):
        u = BY_NAME["mma_m16n8k16_s8"]
        LoopPlan(Product(F16, model(F16)).sink, model(u)).act(("TC", 2, (u.name, 0, 1)))


def test_a_warp_that_is_not_full_is_an_error(monkeypatch):
    product = Product(F16, model(F16))
    monkeypatch.setattr(Exchange, "__init__", partialmethod(wide, Exchange.__init__))
    with pytest.raises(InternalError, match="a warp is not full"):
        product.run()


# ---- a unit that reads local memory ----------------------------------------------------------------------------------
WGMMA = BY_NAME["wgmma_m64n16k16_f16"]


def test_core_matrices_are_lines_of_16_bytes():
    """Eight lines side by side; `lead` along the steps, `stride` along the rows, as the manual's figures have them."""
    plain, turned = Cores(100, 1000, False), Cores(100, 1000, True)
    assert [plain.offset(r, k, 2) for r, k in ((0, 7), (1, 0), (0, 8), (8, 0), (9, 17))] == [7, 8, 100, 1000, 1209]
    assert [turned.offset(r, k, 2) for r, k in ((7, 0), (0, 1), (0, 8), (8, 0), (17, 9))] == [7, 8, 100, 1000, 2109]
    assert [plain.offset(r, k, 1) for r, k in ((1, 15), (0, 16))] == [31, 100]


@pytest.mark.parametrize(("layout", "turned"), [("NN", (False, True)), ("NT", (False, False)), ("TN", (True, True))])
def test_operands_lie_in_lines_of_what_is_side_by_side_in_memory(layout, turned):
    linear = Product(WGMMA, model(WGMMA), layout).linear()
    (wmma,) = (u for u in linear.src if u.op == "WMMA")
    assert tuple(Cores(*x).transposed for x in wmma.arg[2:]) == turned
    assert all(s.op == "INDEX" for s in wmma.src[:2])  # places, no values of a lane
    stores = [u for u in linear.src if u.op == "STORE" and u.src[1].op == "LOAD"]
    assert stores and all(u.src[1].shape == (8,) for u in stores)  # 16 bytes of a lane at once


def test_operands_that_are_read_elsewhere_are_wrong(monkeypatch):
    """The emulation reads what the layout says: another distance of core matrices gives other numbers."""
    product = Product(WGMMA, model(WGMMA), "NT")
    offset_ = Cores.offset
    monkeypatch.setattr(Cores, "offset", lambda self, row, step, n: offset_(self, row, step, n) + row % 8)
    with pytest.raises(InternalError, match="not in core matrices"):
        product.linear()
    monkeypatch.undo()
    linear = product.linear()
    monkeypatch.setattr(product, "linear", lambda: linear)
    monkeypatch.setattr(Cores, "offset", lambda self, row, step, n: offset_(self, row ^ 8, step, n))
    assert not np.array_equal(product.run(), product.want)


def test_operands_that_are_not_in_local_memory_are_refused():
    packed = tiles(WGMMA)
    with pytest.raises(ActionError, match=r"operands in local memory \(PACK\)"):
        Product(WGMMA, model(WGMMA), more=packed[:-1]).linear()
    for target in (cuda.target(80), cuda.target(100), ptx.target(90), GPU):
        assert not any(u.from_memory for u in target.units)
        with pytest.raises(ActionError, match="one of mma_"):
            LoopPlan(Product(WGMMA, model(WGMMA)).sink, target).act(("TC", 2, (WGMMA.name, 0, 1)))


def test_lanes_that_bring_other_places_are_an_error(monkeypatch):
    product = Product(WGMMA, model(WGMMA))
    bring = MemoryExchange.__call__
    monkeypatch.setattr(MemoryExchange, "__call__", lambda self, lanes: bring(self, [moved(lanes[0]), *lanes[1:]]))
    with pytest.raises(InternalError, match="the same start position differ"):
        product.run()


def moved(lane):
    (access, memory, at), *rest = lane
    return (access, memory, at + 8), *rest


def wide(self, init, u):
    init(self, u)
    self.threads = 96


# ---- as source, on this processor ------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.skipif(bool(missing()), reason=missing() or "-")
@pytest.mark.parametrize(
    "name", ["standin-cuda", "standin-llvm", "standin-metal", "gfx90a", "gfx942", "gfx1100", "gfx1201"]
)
def test_every_unit_of_a_language(name):
    device = STANDINS[name](name) if name in STANDINS else Hip.of(name)
    units = device.dialect.units if name == "standin-llvm" else device.language.units
    assert units.keys() == {u.name for u in device.target.units} != set()
    mine = [BY_NAME[u] for u in units if u in UNITS and BY_NAME[u].n <= 16]
    products = [Product(u, device.target) for u in mine]
    spread = [(s, side) for s in ("the same for all", "pairs") for side in (0, 1)]
    products += [Spread(u, device.target, *s) for u in mine if not u.from_memory for s in spread]
    linears = [p.linear() for p in products]
    programs = device.compile([("test", digest(lin), lin) for lin in linears])
    for product, program in zip(products, programs, strict=True):
        arrays = [registry.Device["python"].from_array(x) for x in product.arrays]
        commands = device.encode(*launching((program, (0, 1, 2))))
        for k, x in enumerate(arrays):
            commands.bind(k, x.address)
        commands.launch()
        out = arrays[0].view(product.want.dtype)[: product.want.size].reshape(product.want.shape)
        np.testing.assert_array_equal(out, product.want, err_msg=product.unit.name)
