"""Methods of Tensor that are imported at their first use."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from monolect.base.names import METHODS


def run(code: str) -> str:
    """Run `code` in a process of its own, where nothing was used before; return what it prints."""
    head = "import sys\nfrom monolect import Tensor\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_first_use_imports_the_family() -> None:
    code = """
late = "monolect.tensor.methods.in_place_forms.arithmetic"
found = late in sys.modules, hasattr(Tensor, "add_"), late in sys.modules
print(*found, Tensor([1]).add_(2).tolist(), Tensor.sub_(Tensor([1]), 2).tolist())
"""
    assert run(code) == "False True True [3] [-1]"


def test_dir_of_a_tensor_has_them_and_a_subclass_may_replace_them() -> None:
    code = """
class Mine(Tensor):
    def cumsum(self, dim=0): return super().cumsum(dim) * 2
print("cumsum" in dir(Tensor), Mine([1, 2]).cumsum().tolist(), Tensor([1, 2]).cumsum(0).tolist())
Tensor.hstack = lambda self, *others: "mine"
print(Tensor([1]).hstack(), Tensor([1]).vstack(Tensor([2])).tolist(), Tensor([1]).hstack())
"""
    assert run(code).split("\n") == ["True [2, 6] [1, 3]", "mine [[1], [2]] mine"]


def test_a_method_that_autocast_changes() -> None:
    code = """
from monolect import autocast
a, b, c = Tensor.ones(2, 2), Tensor.ones(2, 2), Tensor.ones(2, 2)
with autocast("bfloat16"):
    print(c.addmm(a, b).dtype.name, a.bfloat16().erfinv().dtype.name, a.conv2d is not None)
print(c.addmm(a, b).dtype.name)
"""
    assert run(code).split("\n") == ["bfloat16 float32 True", "float32"]


def test_help_and_errors_name_the_method() -> None:
    code = """
import inspect
print(inspect.signature(Tensor.kron), Tensor.kron.__doc__ is not None)
try: Tensor([1]).kron("x")
except Exception as e: print(type(e).__name__, "kron" in str(e))
"""
    assert run(code).split("\n")[1] == "ArgumentError True"


def test_many_threads_use_them_first() -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
names = "cumsum sort kron cdist logcumsumexp add_ erfinv histc".split()
with ThreadPoolExecutor(8) as pool:
    print({callable(f) for f in pool.map(lambda i: getattr(Tensor([1.0]), names[i % 8]), range(64))})
"""
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(run, [code] * 2)] == ["{True}"] * 2


@pytest.mark.sweep
@pytest.mark.parametrize("family", ["methods.in_place_forms", "methods.windows", "methods.pointwise", "neural."])
def test_a_family_is_not_imported_with_tensor(family: str) -> None:
    assert any(family in kind for kind in METHODS)
    assert (
        run(f"print([m for m in sys.modules if 'monolect.tensor.{family}' in m and m[-8:] not in 'autocast families'])")
        == "[]"
    )
