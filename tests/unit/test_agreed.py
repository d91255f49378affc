"""The processes of a job divide the kernels that they lack."""

from hypothesis import given
from hypothesis import strategies as st

from monolect.runtime.agreed import _share

MISSING = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), min_size=1, max_size=5)


@given(MISSING)
def test_each_missing_kernel_is_compiled_once_by_a_process_that_lacks_it(missing: list[list[str]]) -> None:
    mine = _share(missing)
    assert sorted(key for keys in mine for key in keys) == sorted({key for keys in missing for key in keys})
    assert all({*keys} <= {*lacked} for keys, lacked in zip(mine, missing, strict=True))


@given(st.integers(1, 6), st.integers(0, 30))
def test_equal_processes_compile_equally_many(n: int, n_kernels: int) -> None:
    counts = [len(keys) for keys in _share([[f"k{k}" for k in range(n_kernels)]] * n)]
    assert max(counts) - min(counts) <= 1
