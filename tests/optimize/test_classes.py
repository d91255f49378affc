"""The class of each kernel of the corpus that its program tells, and what has no program there."""

import pytest

from monolect import Context, Tensor
from monolect.base.dtype import dtypes
from monolect.ir.ops import KernelInfo, ParamArg
from monolect.ir.uop import UOp, const, idx, node, shape_source
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.classes import MEANINGS, KernelClass, classify
from monolect.optimize.cpu.heuristic import STRATEGIES, Chooser
from tests.optimize.choose import kernels
from tests.optimize.targets import H100, ZEN_5

# the beginning of a kernel's name -> its class
WANTED = {
    "add": "elementwise", "sin": "elementwise", "cat": "elementwise", "pad": "elementwise", "strided": "elementwise",
    "outer": "elementwise", "random": "elementwise", "gelu": "elementwise", "triangle": "elementwise",
    "transpose": "transpose", "permute images": "transpose", "image to float": "transpose",
    "gather": "gather", "take elements": "gather", "scatter #": "scatter", "scatter add": "scatter",
    "embedding gradient": "scatter", "sort rows #1": "sort", "sort #2": "sort", "sort #4": "sort",
    "cumsum": "scan", "cumprod": "scan", "cummax": "scan",
    "sum of rows": "row reduction", "softmax (128": "row reduction", "softmax 4096": "row reduction",
    "layernorm": "row reduction", "rmsnorm": "row reduction", "sum 64M": "row reduction", "argmax": "row reduction",
    "dot": "row reduction", "variance": "row reduction", "sum of columns": "column reduction",
    "sum of middle": "column reduction", "argmin columns": "column reduction", "softmax of columns": "column reduction",
    "max of columns": "column reduction", "symbolic sum": "column reduction",
    "matmul 1024": "gemm", "matmul 8x4096": "gemm", "matmul bf16": "gemm", "matmul int8": "gemm",
    "linear relu": "gemm", "linear gelu": "gemm", "linear residual": "gemm",
    "einsum": "gemm", "batched 12x64": "gemm", "gram": "gemm", "conv 1x1": "gemm", "symbolic matmul": "gemm",
    "matmul 1x4096": "gemv", "gemv": "gemv", "batched 32x1x": "gemv", "bf16 1x": "gemv", "int8 1x": "gemv",
    "conv 3x3": "convolution", "conv 7x7": "convolution", "depthwise": "convolution", "conv1d": "convolution",
    "conv3d": "convolution", "conv bf16": "convolution", "conv dilated": "convolution", "conv groups": "convolution",
    "maxpool": "pooling", "average pool": "pooling",
}  # fmt: skip
ATTENTION = ("attention causal (1,12,1024,64) #1", "GPT-2 prefill 256 #3", "GPT-2 decode #7", "host decode #2")


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return {k.name: str(classify(k.sink)) for k in kernels()}


@pytest.mark.sweep
@pytest.mark.parametrize("start", WANTED)
def test_kernels_of_a_program(found, start):
    mine = {name: c for name, c in found.items() if name.startswith(start)}
    assert mine
    assert {name: c for name, c in mine.items() if c != WANTED[start]} == {}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_one_kernel(found, name):
    assert found[name] == "attention"


def test_each_class_has_a_meaning_and_kernels(found):
    assert [*MEANINGS] == [*KernelClass]
    assert {*KernelClass} - {*found.values()} == {KernelClass.OTHER}


def test_each_strategy_has_kernels_of_its_classes():
    used: dict[str, set[str]] = {}
    for k in kernels():
        for target in [ZEN_5] * ("cpu" in k.flows) + [H100] * ("gpu" in k.flows):
            used.setdefault(Chooser(LoopPlan(k.sink, target)).strategy().name, set()).add(classify(k.sink))
    assert {*used} == {s.name for s in STRATEGIES} - {"loops"}  # of targets without vectors
    assert used["tile"] == {"gemm", "convolution"} and "gemv" in used["vectors"]
    assert used["vectors"].isdisjoint({"gemm"}) and "elementwise" in used["vectors"]


def param(slot: int, n: int) -> UOp:
    return node("PARAM", (shape_source((n,)),), ParamArg(slot, dtypes.float32, "cpu", "GLOBAL"))


def test_axis_types_of_the_user():
    r = node("RANGE", (idx(8),), (0, "THREAD"))
    store = node("STORE", (node("INDEX", (param(0, 8), r)), const(1.0, dtypes.float32)))
    assert classify(node("SINK", (node("END", (store, r)),), KernelInfo())) is KernelClass.OTHER


def test_without_loops():
    store = node("STORE", (node("INDEX", (param(0, 1), idx(0))), const(1.0, dtypes.float32)))
    assert classify(node("SINK", (store,), KernelInfo())) is KernelClass.ELEMENTWISE


def test_debug_names_the_class(capsys):
    with Context(DEBUG=2):
        (Tensor.ones(64, 64).contiguous().realize() @ Tensor.ones(64, 64).contiguous().realize()).realize()
    lines = [line for line in capsys.readouterr().err.splitlines() if " buffers " in line]
    assert " gemm " in lines[-1] and all(" elementwise " in line for line in lines[:-1])
