"""The programs whose kernels are in the frozen corpus: the rows of the benchmarks, and more by family.

`PROGRAMS[name]()` computes values on the default device. The corpus needs kernels, not values, so inputs are zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cpu.families import cases
from benchmarks.cpu.peers import Monolect
from benchmarks.export.models import LARGE
from benchmarks.gpu.rows import rows
from benchmarks.host.steps import X, Y, ours_decode, ours_train
from examples.gpt2 import GPT2, Writer
from monolect import Tensor, Variable, dtypes, jit, nn

Program = Callable[[], Any]
CALLS = 3  # calls of a jitted step: one runs, one is captured, one replays


def zeros(*shape: int, dtype: Any = np.float32) -> Tensor:
    """An input."""
    return Tensor(np.zeros(shape, dtype)).realize()


def indices(*shape: int) -> Tensor:
    """An input of indices."""
    return zeros(*shape, dtype=np.int32)


class Zeros(np.random.Generator):
    """A generator of zeros, for inputs that benchmarks draw."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        return np.zeros(size, dtype)


# ---- rows of the benchmarks ------------------------------------------------------------------------------------------
def call_of_case(name: str) -> Program:
    """A call of a row of `benchmarks.cpu`."""
    case = cases()[name]
    return Monolect("monolect").prepare(case, case.inputs(Zeros()))


def of_case(name: str) -> Program:
    """The program of a row of `benchmarks.cpu`."""

    def program() -> None:
        call = call_of_case(name)
        for _ in range(CALLS):
            call()

    return program


def of_row(row: Any) -> Program:
    """The program of a row of `benchmarks.gpu`."""
    return lambda: row.ours(*(zeros(*s).cast(row.dtype).realize() for s in row.shapes)).realize()


def of_model(case: Any) -> Program:
    """The step of a model in `benchmarks.export`."""

    def program() -> None:
        step = case.make("cpu")
        for n in range(CALLS):
            case.call(step, n, "cpu")

    return program


def host_train() -> None:
    """The training step of `benchmarks.host`."""
    step = jit(ours_train())
    for _ in range(CALLS):
        step(Tensor(X), Tensor(Y))


def host_decode() -> None:
    """The decoding step of `benchmarks.host`."""
    call, _ = ours_decode()
    for n in range(CALLS):
        call(zeros(8, 1, 64), n)


def gpt2_generate() -> None:
    """Prefill and decoding of one layer of GPT-2's size, as in `benchmarks.generate`."""
    size = {"n_layer": 1, "n_head": 12, "n_embd": 768, "n_positions": 1024, "vocab_size": 50257}
    for temperature in (0.0, 0.8):
        list(Writer(GPT2(size), 1024, temperature=temperature).write([*range(11)], 4))


# ---- more of each family ---------------------------------------------------------------------------------------------
def trained(make: Callable[[], Any], *shape: int, classes: int = 10, adam: bool = False) -> Program:
    """A training step of a model on inputs of that shape."""

    def program() -> None:
        model = make()
        optimizer = (nn.optim.Adam if adam else nn.optim.SGD)(model.parameters(), lr=0.01)
        x, y = zeros(*shape), indices(shape[0])

        @jit
        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(x).cross_entropy(y)
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(CALLS):
            step(x, y)

    return program


def forward(f: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = np.float32) -> Program:
    """`f` of inputs of these shapes."""

    def program() -> None:
        out = f(*(zeros(*s, dtype=dtype) for s in shapes))
        first, *rest = out if isinstance(out, tuple | list) else [out]
        first.realize(*rest)

    return program


def backward(f: Callable[..., Tensor], *shapes: tuple[int, ...]) -> Program:
    """The gradients of `f` of inputs of these shapes."""

    def program() -> None:
        inputs = [Tensor(np.zeros(s, np.float32), requires_grad=True) for s in shapes]
        f(*inputs).square().sum().backward()
        inputs[0].grad.realize(*(x.grad for x in inputs[1:]))

    return program


def narrow(f: Callable[..., Tensor], dtype: Any, *shapes: tuple[int, ...]) -> Program:
    """`f` of inputs of a type that NumPy may lack."""

    def program() -> None:
        f(*(zeros(*s).cast(dtype).realize() for s in shapes)).realize()

    return program


def symbolic(f: Callable[..., Tensor], name: str, most: int, *shapes: tuple[int, ...]) -> Program:
    """`f(n, ...)` with a size `n` that is known at run time."""

    def program() -> None:
        n = Variable(name, 1, most)
        inputs = [zeros(*s) for s in shapes]
        with n.bind(max(1, most // 2)):
            f(n, *inputs).realize()

    return program


def int8_product(a: Tensor, b: Tensor) -> Tensor:
    return a.cast(dtypes.int32) @ b.cast(dtypes.int32)


def attend(**options: Any) -> Callable[..., Tensor]:
    return lambda q, k, v: q.scaled_dot_product_attention(k, v, **options)


def small_cnn() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), Tensor.relu, lambda x: x.max_pool2d(2),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), Tensor.relu,
        lambda x: x.mean((2, 3)), nn.Linear(32, 10),
    )  # fmt: skip


def lstm_sequence(x: Tensor, w: Tensor, u: Tensor) -> Tensor:
    h = c = x[0, :, : u.shape[0]] * 0
    for t in range(x.shape[0]):
        i, f, g, o = (x[t] @ w + h @ u).split(u.shape[0], dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return h


ELEMENTWISE: dict[str, Program] = {
    "add": forward(lambda a, b: a + b, (1000, 1000), (1000, 1000)),
    "add odd": forward(lambda a, b: a + b, (7, 1001), (7, 1001)),
    "add tiny": forward(lambda a, b: a + b, (5,), (5,)),
    "add large": forward(lambda a, b: a + b, (1 << 24,), (1 << 24,)),
    "add row": forward(lambda a, b: a + b, (512, 300), (300,)),
    "add column": forward(lambda a, b: a + b, (512, 300), (512, 1)),
    "outer": forward(lambda a, b: a.reshape(-1, 1) * b, (700,), (900,)),
    "sin": forward(lambda a: a.sin(), (300, 300)),
    "exp log": forward(lambda a: (a.exp() + 1).log(), (1 << 16,)),
    "erf": forward(lambda a: a.erf(), (1 << 16,)),
    "where": forward(lambda a, b: (a > b).where(a, b), (640, 480), (640, 480)),
    "cast to bf16": narrow(lambda a: a.cast(dtypes.bfloat16), dtypes.float32, (1 << 16,)),
    "cast of bf16": narrow(lambda a: a.cast(dtypes.float32) * 2, dtypes.bfloat16, (1 << 16,)),
    "half sum": narrow(lambda a, b: a + b, dtypes.float16, (1 << 16,), (1 << 16,)),
    "float64": narrow(lambda a: a * a + 1, dtypes.float64, (1 << 16,)),
    "uint8": narrow(lambda a: a // 3, dtypes.uint8, (1 << 16,)),
    "int64": narrow(lambda a: a % 7, dtypes.int64, (1 << 16,)),
    "image to float": narrow(lambda a: a.cast(dtypes.float32).permute(0, 3, 1, 2) / 255, dtypes.uint8, (8, 64, 64, 3)),
    "random": lambda: Tensor.rand(1000, 1000).realize(),
    "normal": lambda: Tensor.randn(333, 77).realize(),
    "arange": lambda: Tensor.arange(1 << 20).realize(),
    "full": lambda: Tensor.full((64, 64), 3.0).contiguous().realize(),
    "symbolic": symbolic(lambda n, a: a[:n] * 2 + 1, "n_rows", 4096, (4096, 64)),
}  # fmt: skip
MOVEMENT: dict[str, Program] = {
    "transpose": forward(lambda a: a.T.contiguous(), (1024, 777)),
    "transpose small": forward(lambda a: a.T.contiguous(), (5, 3)),
    "transpose thin": forward(lambda a: a.T.contiguous(), (100000, 3)),
    "transpose wide": forward(lambda a: a.T.contiguous(), (4, 100000)),
    "permute heads": forward(lambda a: a.permute(0, 2, 1, 3).contiguous(), (4, 256, 12, 64)),
    "permute images": forward(lambda a: a.permute(0, 2, 3, 1).contiguous(), (8, 64, 28, 28)),
    "transpose add": forward(lambda a, b: a.T + b, (640, 480), (480, 640)),
    "transpose bytes": forward(lambda a: a.T.contiguous(), (512, 512), dtype=np.uint8),
    "flip": forward(lambda a: a.flip(1), (300, 1000)),
    "pad": forward(lambda a: a.pad(((1, 1), (1, 1))), (30, 30)),
    "pad large": forward(lambda a: a.pad(((0, 0), (3, 5))), (1000, 1000)),
    "cat": forward(lambda a, b: a.cat(b, dim=1), (300, 64), (300, 100)),
    "cat rows": forward(lambda a, b: a.cat(b, dim=0), (300, 64), (100, 64)),
    "stack": forward(lambda a, b, c: Tensor.stack([a, b, c], dim=-1), (500, 50), (500, 50), (500, 50)),
    "strided": forward(lambda a: a[:, ::3].contiguous(), (300, 3000)),
    "repeat": forward(lambda a: a.repeat(3, 4), (100, 50)),
    "roll": forward(lambda a: a.roll(5, 0), (1000,)),
    "gather rows": forward(lambda t, i: t[i.cast(dtypes.int32)], (5000, 96), (300,)),
    "gather 1": forward(lambda t, i: t.gather(1, i.cast(dtypes.int32)), (64, 1000), (64, 1)),
    "gather many": forward(lambda t, i: t.gather(0, i.cast(dtypes.int32)), (1000, 64), (500, 64)),
    "take elements": forward(lambda t, i: t[i.cast(dtypes.int32)], (1 << 20,), (1 << 16,)),
    "embedding gradient": backward(lambda t: t[Tensor(np.zeros(64, np.int32))], (1000, 96)),
    "scatter": forward(lambda t, i, x: t.scatter(0, i.cast(dtypes.int32), x), (1000, 64), (500, 64), (500, 64)),
    "scatter add": forward(lambda t, i, x: t.scatter_add(0, i.cast(dtypes.int32), x), (9000,), (5000,), (5000,)),
    "one hot": forward(lambda i: i.cast(dtypes.int32).one_hot(1000), (128,)),
    "masked fill": forward(lambda a: a.masked_fill(a > 0, -1.0), (400, 400)),
    "triangle": forward(lambda a: a.tril(), (500, 500)),
}  # fmt: skip
ROWS_OF_LOOPS: dict[str, Program] = {
    **{f"{m} of rows {s}": forward(lambda a, m=m: getattr(a, m)(-1), s)
       for m in ("sum", "max", "mean") for s in ((1000, 1000), (64, 7), (3, 100000), (100000, 4))},
    **{f"{m} of columns {s}": forward(lambda a, m=m: getattr(a, m)(0), s)
       for m in ("sum", "max") for s in ((1000, 1000), (7, 64), (100000, 3), (4, 100000), (4096, 4096))},
    "sum of all": forward(lambda a: a.sum(), (1000, 1000)),
    "sum of middle": forward(lambda a: a.sum(1), (32, 100, 64)),
    "sum of ends": forward(lambda a: a.sum((0, 2)), (32, 100, 64)),
    "sum of bf16": narrow(lambda a: a.sum(-1), dtypes.bfloat16, (512, 1024)),
    "sum of bytes": narrow(lambda a: a.sum(-1), dtypes.uint8, (512, 1024)),
    "product": forward(lambda a: a.prod(-1), (100, 200)),
    "argmax rows": forward(lambda a: a.argmax(-1), (300, 1000)),
    "argmin columns": forward(lambda a: a.argmin(0), (300, 1000)),
    "any": forward(lambda a: (a > 0).any(-1), (300, 1000)),
    "variance": forward(lambda a: a.var(-1), (300, 1000)),
    "norm": forward(lambda a: a.square().sum(-1).sqrt(), (300, 768)),
    "logsumexp": forward(lambda a: a.logsumexp(-1), (300, 1000)),
    "cross entropy": forward(lambda a, i: a.cross_entropy(i.cast(dtypes.int32)), (128, 1000), (128,)),
    "cross entropy gradient": backward(lambda a: a.cross_entropy(Tensor(np.zeros(128, np.int32))), (128, 1000)),
    **{f"softmax {s}": forward(lambda a: a.softmax(-1), s)
       for s in ((128, 1000), (10000, 16), (10000, 4), (8, 100000), (1, 50257), (12, 64, 64))},
    "softmax of columns": forward(lambda a: a.softmax(0), (1000, 128)),
    "softmax gradient": backward(lambda a: a.softmax(-1), (128, 1000)),
    "softmax bf16": narrow(lambda a: a.softmax(-1), dtypes.bfloat16, (128, 1024)),
    "log softmax": forward(lambda a: a.log_softmax(-1), (128, 1000)),
    "layer norm": forward(lambda a, w, b: a.layer_norm((768,), w, b), (256, 768), (768,), (768,)),
    "layer norm gradient": backward(lambda a, w, b: a.layer_norm((768,), w, b), (64, 768), (768,), (768,)),
    "rms norm": forward(lambda a, w: a.rms_norm((768,), w), (256, 768), (768,)),
    "batch norm": forward(
        lambda a, w, b: a.batch_norm(None, None, w, b, training=True), (16, 32, 14, 14), (32,), (32,)),
    "batch norm gradient": backward(
        lambda a, w, b: a.batch_norm(None, None, w, b, training=True), (16, 32, 14, 14), (32,), (32,)),
    "cumsum rows": forward(lambda a: a.cumsum(-1), (300, 1000)),
    "cumsum columns": forward(lambda a: a.cumsum(0), (300, 1000)),
    "cumsum of few": forward(lambda a: a.cumsum(-1), (10000, 9)),
    "cumprod": forward(lambda a: a.cumprod(-1), (30, 1000)),
    "cummax": forward(lambda a: a.cummax(-1)[0], (30, 1000)),
    "linear recurrence": forward(lambda a, b: lstm_sequence(a, b, Tensor.zeros(32, 128)), (4, 8, 64), (64, 128)),
    "symbolic softmax": symbolic(lambda n, a: a[:, :n].softmax(-1), "n_columns", 1024, (64, 1024)),
    "symbolic sum": symbolic(lambda n, a: a[:n].sum(0), "n_summed", 4096, (4096, 64)),
}  # fmt: skip
SORTS: dict[str, Program] = {
    "sort rows": forward(lambda a: a.sort(-1)[0], (100, 64)),
    "sort": forward(lambda a: a.sort(-1)[0], (100000,)),
    "argsort": forward(lambda a: a.argsort(-1), (20, 1000)),
    "topk": forward(lambda a: a.topk(5)[0], (64, 1000)),
}  # fmt: skip
PRODUCTS: dict[str, Program] = {
    **{f"matmul {m}x{k}x{n}": forward(lambda a, b: a @ b, (m, k), (k, n)) for m, k, n in (
        (3, 3, 3), (64, 64, 64), (100, 200, 300), (127, 129, 131), (256, 256, 256), (2048, 32, 2048), (32, 2048, 32),
        (16, 4096, 16), (4, 512, 2048), (16, 768, 3072), (128, 784, 512), (1000, 10, 1000), (512, 512, 3),
        (3000, 3000, 1))},
    **{f"matmul {m}x{k}x{n} A·Bᵀ": forward(lambda a, b: a @ b.T, (m, k), (n, k)) for m, k, n in (
        (100, 200, 300), (1, 768, 50257), (16, 768, 3072), (128, 512, 10), (256, 256, 256), (5, 7, 9))},
    **{f"matmul {m}x{k}x{n} Aᵀ·B": forward(lambda a, b: a.T @ b, (k, m), (k, n)) for m, k, n in (
        (100, 200, 300), (512, 128, 784), (256, 256, 256))},
    **{f"batched {b}x{m}x{k}x{n}": forward(lambda a, b: a @ b, (b, m, k), (b, k, n)) for b, m, k, n in (
        (12, 64, 64, 64), (100, 8, 8, 8), (4, 300, 64, 300), (32, 1, 128, 64))},
    "gemv": forward(lambda a, x: a @ x, (2000, 3000), (3000,)),
    "gemv transposed": forward(lambda a, x: x @ a, (3000, 2000), (3000,)),
    "gemv small": forward(lambda a, x: a @ x, (100, 50), (50,)),
    "dot": forward(lambda a, b: (a * b).sum(), (1 << 20,), (1 << 20,)),
    "linear relu": forward(lambda x, w, b: (x @ w.T + b).relu(), (64, 784), (512, 784), (512,)),
    "linear gelu": forward(lambda x, w, b: (x @ w.T + b).gelu(), (256, 768), (3072, 768), (3072,)),
    "linear residual": forward(lambda x, w, y: x @ w + y, (256, 3072), (3072, 768), (256, 768)),
    "matmul gradient": backward(lambda a, b: a @ b, (128, 256), (256, 512)),
    "einsum": forward(lambda a, b: Tensor.einsum("bij,bkj->bik", a, b), (8, 40, 50), (8, 60, 50)),
    "einsum chain": forward(lambda a, b: Tensor.einsum("ijk,kl->ijl", a, b), (20, 30, 40), (40, 50)),
    "gram": forward(lambda a: a.T @ a, (1000, 64)),
    "distances": forward(lambda a, b: (a.unsqueeze(1) - b.unsqueeze(0)).square().sum(-1), (200, 16), (300, 16)),
    **{f"bf16 {m}x{k}x{n}": narrow(lambda a, b: a @ b, dtypes.bfloat16, (m, k), (k, n)) for m, k, n in (
        (256, 256, 256), (1, 1024, 1024), (8, 1024, 4096), (100, 200, 300))},
    **{f"f16 {m}x{k}x{n}": narrow(lambda a, b: a @ b, dtypes.float16, (m, k), (k, n)) for m, k, n in (
        (256, 256, 256), (1, 1024, 1024), (4096, 4096, 4096))},
    "bf16 A·Bᵀ": narrow(lambda a, b: a @ b.T, dtypes.bfloat16, (256, 512), (384, 512)),
    "bf16 to f32": narrow(lambda a, b: a.cast(dtypes.float32) @ b.cast(dtypes.float32), dtypes.bfloat16,
                          (256, 512), (512, 384)),
    **{f"int8 {m}x{k}x{n}": narrow(int8_product, dtypes.int8, (m, k), (k, n)) for m, k, n in (
        (256, 256, 256), (1, 1024, 1024), (100, 200, 300))},
    "uint8 by int8": lambda: int8_product(
        zeros(256, 512).cast(dtypes.uint8).realize(), zeros(512, 256).cast(dtypes.int8).realize()).realize(),
    "f64 matmul": narrow(lambda a, b: a @ b, dtypes.float64, (300, 300), (300, 300)),
    "int32 matmul": narrow(lambda a, b: a @ b, dtypes.int32, (300, 300), (300, 300)),
    "symbolic matmul": symbolic(lambda n, a, b: a[:n] @ b, "n_products", 512, (512, 256), (256, 384)),
    "symbolic depth": symbolic(lambda n, a, b: a[:, :n] @ b[:n], "n_depth", 512, (64, 512), (512, 384)),
}  # fmt: skip
CONVOLUTIONS: dict[str, Program] = {
    **{f"conv {x} {w} /{s}": forward(
        lambda x, w, s=s: x.conv2d(w, stride=s, padding=w.shape[-1] // 2), x, w) for x, w, s in (
        ((1, 3, 32, 32), (8, 3, 3, 3), 1), ((1, 3, 224, 224), (64, 3, 7, 7), 2), ((1, 512, 7, 7), (512, 512, 3, 3), 1),
        ((16, 64, 28, 28), (64, 64, 3, 3), 2), ((4, 32, 15, 17), (48, 32, 5, 5), 1),
        ((2, 64, 56, 56), (128, 64, 1, 1), 2))},
    "conv winograd": forward(lambda x, w: x.conv2d(w, padding=1), (8, 64, 28, 28), (64, 64, 3, 3)),
    "conv bias relu": forward(lambda x, w, b: x.conv2d(w, b, padding=1).relu(), (4, 16, 28, 28), (32, 16, 3, 3), (32,)),
    "conv depthwise": forward(lambda x, w: x.conv2d(w, padding=1, groups=32), (4, 32, 28, 28), (32, 1, 3, 3)),
    "conv groups": forward(lambda x, w: x.conv2d(w, padding=1, groups=4), (4, 32, 28, 28), (64, 8, 3, 3)),
    "conv dilated": forward(lambda x, w: x.conv2d(w, padding=2, dilation=2), (4, 16, 28, 28), (16, 16, 3, 3)),
    "conv1d": forward(lambda x, w: x.conv1d(w, padding=2), (8, 32, 500), (64, 32, 5)),
    "conv3d": forward(lambda x, w: x.conv3d(w, padding=1), (2, 8, 10, 10, 10), (16, 8, 3, 3, 3)),
    "conv transposed": forward(lambda x, w: x.conv_transpose2d(w, stride=2), (4, 32, 14, 14), (32, 16, 3, 3)),
    "conv bf16": narrow(lambda x, w: x.conv2d(w, padding=1), dtypes.bfloat16, (4, 64, 14, 14), (64, 64, 3, 3)),
    "conv gradient": backward(lambda x, w: x.conv2d(w, padding=1), (4, 16, 28, 28), (32, 16, 3, 3)),
    "conv gradient strided": backward(lambda x, w: x.conv2d(w, stride=2, padding=1), (4, 16, 28, 28), (32, 16, 3, 3)),
    "conv gradient 1x1": backward(lambda x, w: x.conv2d(w), (4, 64, 14, 14), (32, 64, 1, 1)),
    "conv gradient depthwise": backward(lambda x, w: x.conv2d(w, padding=1, groups=16), (4, 16, 28, 28), (16, 1, 3, 3)),
    "max pool": forward(lambda x: x.max_pool2d(2), (8, 32, 28, 28)),
    "average pool": forward(lambda x: x.avg_pool2d(3, 2, 1), (8, 32, 28, 28)),
    "max pool gradient": backward(lambda x: x.max_pool2d(2), (8, 32, 28, 28)),
}  # fmt: skip
ATTENTION: dict[str, Program] = {
    **{f"attention {q} {k}{' causal' if c else ''}": forward(attend(is_causal=c), q, k, k) for q, k, c in (
        ((1, 12, 128, 64), (1, 12, 128, 64), False), ((1, 12, 128, 64), (1, 12, 128, 64), True),
        ((2, 4, 50, 32), (2, 4, 70, 32), False), ((1, 8, 1, 64), (1, 8, 512, 64), False),
        ((8, 6, 197, 64), (8, 6, 197, 64), False), ((1, 1, 2048, 128), (1, 1, 2048, 128), True))},
    "attention mask": forward(
        lambda q, k, v, m: q.scaled_dot_product_attention(k, v, attn_mask=m), *[(2, 4, 64, 32)] * 3, (64, 64)),
    "attention bf16": narrow(attend(is_causal=True), dtypes.bfloat16, *[(1, 12, 256, 64)] * 3),
    "attention gradient": backward(attend(is_causal=True), *[(2, 4, 64, 32)] * 3),
    "attention by hand": forward(
        lambda q, k, v: (q @ k.transpose(-1, -2) * 0.1).softmax(-1) @ v, *[(2, 4, 64, 32)] * 3),
}  # fmt: skip
TRAINING: dict[str, Program] = {
    "train mlp": trained(
        lambda: nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)), 64, 784, adam=True),
    "train cnn": trained(small_cnn, 16, 3, 32, 32),
    "train layer norm": trained(
        lambda: nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 10)), 32, 64, adam=True),
}  # fmt: skip

PROGRAMS: dict[str, Program] = {
    **{name: of_case(name) for name in cases()},
    **{f"gpu {row.name}": of_row(row) for row in rows()},
    **{case.name: of_model(case) for case in LARGE},
    "host train": host_train,
    "host decode": host_decode,
    "generate": gpt2_generate,
    **ELEMENTWISE, **MOVEMENT, **ROWS_OF_LOOPS, **SORTS, **PRODUCTS, **CONVOLUTIONS, **ATTENTION, **TRAINING,
}  # fmt: skip

__all__ = ["CALLS", "PROGRAMS", "Program", "call_of_case"]
