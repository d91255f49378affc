"""How pass tests compare: graphs up to the order of commutative operands, and what a kernel leaves in its buffers."""

from typing import Any

import numpy as np

from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.base.target import Target
from monolect.ir.check.arrays import storage
from monolect.ir.check.interp import _Loops, run_kernel
from monolect.ir.ops import COMMUTATIVE
from monolect.ir.text import show
from monolect.ir.uop import UOp, node, toposort


def target(**changes: Any) -> Target:
    fields = {"name": "test", "native": LLVM_NATIVE, "vector_bytes": 64, "n_registers": 32, "n_threads": 2}
    fields["local_bytes"] = 1 << 20
    return Target(**(fields | changes))


def canonical(root: UOp) -> UOp:
    """`root` with commutative operands in the order of their text; nothing else changes."""
    new: dict[UOp, UOp] = {}
    for u in toposort(root):
        src = tuple(new[s] for s in u.src)
        if u.op == "ADD" and u.dtype.kind == "x":  # sums of several terms stand in the order of their nodes
            first, *others = sorted(_terms(*src), key=show)
            new[u] = first
            for term in others:
                new[u] = node("ADD", (new[u], term))
            continue
        if u.op in COMMUTATIVE:
            src = tuple(sorted(src, key=show))
        new[u] = node(u.op, src, u.arg, u.tag)
    return new[root]


def _terms(*us: UOp) -> list[UOp]:
    """What is added up by the sums `us`."""
    return [t for u in us for t in (_terms(*u.src) if u.op == "ADD" else [u])]


def assert_same_graph(got: UOp, want: UOp) -> None:
    """Equal means identical, once written in one order. A LINEAR is compared as its text, which is its order."""
    a, b = canonical(got), canonical(want)
    if got.op == "LINEAR" and a is not b:
        # the place of an instruction may follow the order of operands: compare what is executed
        a, b = node("SINK", tuple(sorted(a.src, key=show))), node("SINK", tuple(sorted(b.src, key=show)))
    assert a is b, f"got\n{show(got)}\nexpected\n{show(want)}"


def buffers(sink: UOp, seed: int = 0, low: int = -4, high: int = 5) -> dict[UOp, Any]:
    """An array of small whole numbers for each PARAM, by slot equal for equal kernels."""
    out = {}
    for p in sorted((u for u in toposort(sink) if u.op == "PARAM"), key=lambda p: p.arg.slot):
        rng = np.random.default_rng((seed, p.arg.slot))
        lo = low if not p.dtype.is_int else 0
        out[p] = rng.integers(lo, high, p.shape).astype(storage(p.dtype))
    return out


def meaning(sink: UOp, seed: int = 0) -> dict[int, np.ndarray]:
    """What each buffer holds after the kernel, by slot. SPECIALs run over all their values."""
    env = buffers(sink, seed)
    written = {u.src[0].src[0] for u in toposort(sink) if u.op == "STORE"}
    if any(u.op == "LOAD" and u.src[0].src[0] in written for u in toposort(sink)):
        _Loops(env).execute(sink, {})  # reads what it wrote before: iterations go one by one
    else:
        run_kernel(sink, env)
    return {p.arg.slot: a for p, a in env.items()}


def assert_same_meaning(a: UOp, b: UOp) -> None:
    for seed in range(3):
        x, y = meaning(a, seed), meaning(b, seed)
        for slot in x.keys() & y.keys():  # a pass may make a buffer needless
            np.testing.assert_array_equal(x[slot], y[slot], err_msg=f"buffer {slot}, seed {seed}")
