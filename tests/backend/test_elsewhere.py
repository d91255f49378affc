"""Kernels for other processors: AArch64 and RISC-V under qemu, WebAssembly in node, by the suite of ops.

`make test-llvm-targets` installs what is needed; where a tool is missing, the tests are skipped and say so.
"""

import re
import struct

import numpy as np
import pytest

from monolect import Context, Tensor
from monolect.backend import registry
from monolect.backend.common.llvm import lld
from monolect.backend.cpu import cross_targets as elsewhere
from monolect.base.errors import CompileError
from monolect.pipeline import lower_kernel
from tests.backend import test_ops_suite as suite
from tests.backend.modules_of_ops import (  # noqa: F401
    test_bits,
    test_casts,
    test_corners,
    test_elementwise,
    test_narrow_floats,
    test_reductions,
)
from tests.backend.standin.elsewhere import ROWS, missing
from tests.backend.workgroup_kernels import kernels

MACHINES = tuple(elsewhere.MACHINES)
ELF_MACHINE = {"aarch64": 183, "riscv64": 243}


@pytest.fixture(scope="module", autouse=True)
def standins():
    registry.TARGETS.update(ROWS)
    yield
    for name in ROWS:
        del registry.TARGETS[name]
        if (opened := registry.Device._open.pop(name, None)) is not None:
            opened.folder.cleanup()


@pytest.fixture(params=MACHINES)
def device(request):
    if reason := missing(request.param):
        pytest.skip(f"{request.param}: {reason}")
    return f"standin-{request.param}"


def one(machine: str, f, *arrays) -> list:
    target = elsewhere.target(machine)
    return [(f"k_{i}", lower_kernel(sink, target)) for i, sink in enumerate(kernels(target, f, *arrays))]


# ---- objects: these need no tool -------------------------------------------------------------------------------------
@pytest.mark.parametrize("machine", MACHINES)
def test_objects_are_of_the_machine(machine):
    code = elsewhere.compile_for(machine, one(machine, lambda x: x.softmax(-1), np.ones((16, 256), np.float32)))
    if machine == "wasm32":
        assert code.startswith(b"\0asm\1")
    else:
        assert code.startswith(b"\x7fELF") and struct.unpack_from("<H", code, 18) == (ELF_MACHINE[machine],)
    assert b"k_0" in code


@pytest.mark.parametrize(("machine", "words"), [
    ("aarch64", ("fmla", "ldp\tq", ".4s")),
    ("riscv64", ("vfmacc.v", "vle32.v", "vsetivli")),
    ("wasm32", ("f32x4.mul", "f32x4.add", "v128.load")),
])  # fmt: skip
def test_products_are_vectors(machine, words):
    named = one(machine, lambda a, b: a @ b, np.ones((16, 64), np.float32), np.ones((64, 16), np.float32))
    text = elsewhere.compiler(machine).assembly(elsewhere.render_module(named))
    assert not [w for w in words if w not in text]
    assert not re.search(r"^\s(bl|call|jal)\s", text, re.MULTILINE)  # no function that somebody would have to supply


def test_what_is_told_differs_from_machine_to_machine():
    assert len({elsewhere.compiler(m).key for m in MACHINES}) == len(MACHINES)


def test_without_a_linker_there_is_no_library(monkeypatch):
    monkeypatch.setattr(lld.shutil, "which", lambda name: None)
    with pytest.raises(CompileError, match="no wasm-ld on the PATH; install lld"):
        elsewhere.link_for("wasm32", one("wasm32", lambda x: x + 1, np.ones(4, np.float32)))


# ---- results ---------------------------------------------------------------------------------------------------------
def test_programs_as_one_module(device):
    suite.check_programs_as_one_module(device)


@pytest.mark.parametrize("op", ["ADD", "EXP2", "IDIV", "MAX", "WHERE"])
def test_some_ops(op, device):
    suite.test_elementwise(op, device)


def test_blocked_products_use_local_memory(device):
    a, b = (np.random.default_rng(k).standard_normal((64, 64)).astype(np.float32) for k in (1, 2))
    with Context(NOOPT=0):
        got = (Tensor(a, device=device) @ Tensor(b, device=device)).numpy()
    np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-4)
