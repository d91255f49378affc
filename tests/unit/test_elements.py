"""Elements of realised tensors: numbers read from memory without a node, and tensors like any other."""

import copy
import threading

import numpy as np
import pytest

from monolect import Tensor, dtypes, jit
from monolect.base.errors import IndexRangeError, JitError
from monolect.runtime import profile
from monolect.tensor.base import TensorBase
from monolect.tensor.view import is_alone

SLOT = vars(TensorBase)["_uop"]


def has_node(t: Tensor) -> bool:
    try:
        SLOT.__get__(t)
    except AttributeError:
        return False
    return True


def made(call) -> int:
    """Nodes made meanwhile."""
    before = Tensor([0]).uop.serial
    call()
    return Tensor([0]).uop.serial - before


A = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("key", [(0, 0), (2, 3), (-1, 1), (-3, -4)])
def test_reading_an_element_makes_no_node_and_runs_nothing(key):
    t = Tensor(A).realize()
    none = made(lambda: None)
    with profile.Recorder() as kernels:
        assert made(lambda: t[key].item()) == none
        assert t[key].item() == A[key]
    assert not kernels
    x = t[key]
    assert float(x) == A[key] and not has_node(x)


def test_every_key_gives_what_numpy_gives():
    v = Tensor(A[0]).realize()
    for i in range(-4, 4):
        assert v[i].item() == A[0][i] and v[i].numpy() == A[0][i] and v[i].shape == ()
    assert Tensor([5]).realize()[0].item() == Tensor([5]).realize()[-1].item() == 5
    t = Tensor(A).realize()
    assert t[np.int64(1), 2].item() == 6.0 and t[1][2].item() == 6.0 and t[1, ...].tolist() == A[1].tolist()


@pytest.mark.parametrize("key", [4, -5, (0, 4), (3, 0), (-4, 0), (0, 0, 0)])
def test_outside_is_an_error_at_once(key):
    t = Tensor(A if isinstance(key, tuple) else A[0]).realize()
    with pytest.raises(IndexRangeError):
        t[key]


@pytest.mark.parametrize(
    "dtype", [dtypes.bool, dtypes.int8, dtypes.uint64, dtypes.float16, dtypes.bfloat16, dtypes.float64]
)
def test_element_types(dtype):
    t = Tensor([0, 1, 1]).cast(dtype).realize()
    got = t[1].item()
    assert got == t.tolist()[1] and type(got) is type(t.tolist()[1])


def test_an_element_is_a_tensor():
    t = Tensor(A[0]).realize()
    x = t[2]
    assert x.dtype is dtypes.float32 and x.device == t.device and x.ndim == 0 and x.numel() == 1
    assert (x + 1).item() == 3.0 and (t[1] * t[3]).item() == 3.0
    assert repr(t[2]) == repr(x) and copy.copy(t[3]).item() == 3.0
    one, other = t[1].uop, t[-3].uop
    assert one is other
    assert [y.item() for y in t] == A[0].tolist()
    assert t[2].uop.origin[0] == __file__


def test_what_a_tensor_does_not_have_is_an_attribute_error():
    t = Tensor(A[0]).realize()
    for x in (t, t[0]):
        assert not hasattr(x, "nothing_of_the_kind")
        with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'itme'.*item|'itme'"):
            x.itme  # noqa: B018
    with pytest.raises(AttributeError):
        Tensor.__new__(Tensor).shape  # noqa: B018


def test_a_subclass_gives_elements_of_its_own():
    class Mine(Tensor):
        pass

    x = Mine(A[0]).realize()[1]
    assert isinstance(x, Mine) and not has_node(x)
    assert x.shape == () and isinstance(x + 1, Mine) and type(x + 1) is Mine


def test_an_element_is_of_the_version_it_was_taken_from():
    def taken(force):
        t = Tensor(A[0].copy()).realize()
        x = t[1]
        if force:
            assert x.shape == ()
        t += 10
        t.realize()
        t[1] = 50.0
        t.realize()
        return x.item(), t[1].item()

    assert taken(force=False) == taken(force=True)


def test_an_assigned_element_is_what_was_assigned():
    t = Tensor(A[0]).realize()
    x = t[1]
    x += 5
    assert x.item() == 6.0 and t[1].item() == 6.0
    y = t[2]
    y.uop = t[3].uop
    assert y.item() == 3.0


def test_an_element_shows_a_state_updated_in_place():
    state = Tensor(A[0].copy()).realize()

    @jit
    def step(x):
        state.assign(state + x)
        return state.sum()

    one = Tensor(np.ones(4, np.float32)).realize()
    for _ in range(3):
        step(one)
    x = state[1]
    for _ in range(3):
        step(one)
    assert x.item() == 7.0 and state[1].item() == 7.0


def test_values_are_not_read_while_a_step_is_captured():
    t = Tensor(A[0]).realize()
    with pytest.raises(JitError):
        jit(lambda x: x + t[1].item())(t)
    with pytest.raises(JitError):
        jit(lambda x: x[1].item())(t)
    f = jit(lambda x: x[1] * 2)
    assert [f(Tensor(A[k]).realize()).item() for k in range(3)] == [2.0, 10.0, 18.0]


def test_an_element_that_nobody_else_holds_is_a_tensor_of_its_own_once_it_is_used():
    x = Tensor(A[0].copy()).realize()[1]
    assert x.shape == () and is_alone(x)
    t = Tensor(A[0].copy()).realize()
    assert not is_alone(t[1])


def test_gradients_go_through_elements():
    t = Tensor(A[0]).realize().requires_grad_()
    (t[1] * t[2]).backward()
    assert t.grad.tolist() == [0.0, 2.0, 1.0, 0.0]


def test_elements_from_several_threads():
    t = Tensor(A[0]).realize()
    for _ in range(50):
        x, found, start = t[3], [], threading.Barrier(4)

        def read(x=x, found=found, start=start):
            start.wait()
            found.append((x + 0).uop)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found)) == 1


def test_no_element_of_a_file_or_a_pending_value_is_read_from_memory():
    t = Tensor(A[0]) * 2
    assert t[1].item() == 2.0
    p = Tensor(A[0], device="python").realize()
    assert p[1].item() == 1.0
