"""What becomes of a node that nobody holds: it is forgotten at once, in C, and no equal node is ever another one."""

import gc
import itertools
import threading
import weakref
from types import MethodType

import pytest

from monolect.base.dtype import dtypes
from monolect.ir import uop
from monolect.ir.uop import live_nodes, node

_fresh = itertools.count(10**9)


def key():
    """Fields of a CONST that nobody made yet."""
    return "CONST", (), (next(_fresh), dtypes.int64)


def test_a_node_is_forgotten_at_once():
    fields = key()
    before = live_nodes()
    u = node(*fields)
    assert node(*fields) is u and live_nodes() == before + 1
    del u
    assert live_nodes() == before


def test_no_code_of_pythons_runs_when_a_node_is_forgotten():
    """An interrupt that arrived in it would be dropped."""
    u = node(*key())
    callback = uop._table[u.op, u.src, u.arg, u.tag].__callback__
    assert isinstance(callback, MethodType) and callback.__func__ == uop._table.pop


@pytest.mark.parametrize("first", [True, False])
def test_an_equal_node_that_is_made_while_a_cycle_is_forgotten(first):
    class Thing:
        pass

    for _ in range(8):
        fields, made = key(), []
        thing = Thing()
        u = node(*fields) if first else None
        watch = weakref.ref(thing, lambda _, made=made, fields=fields: made.append(node(*fields)))
        thing.me, thing.node = thing, u or node(*fields)
        del u, thing
        gc.collect()
        assert made and watch() is None
        assert node(*fields) is made[0]
        assert node(*fields) is node(*fields)


def test_an_entry_whose_callback_is_still_to_come(monkeypatch):
    fields = key()
    u = node(*fields)
    dead = uop._table[(*fields, None)]
    pending = dead.__callback__
    del u
    uop._table[(*fields, None)] = dead  # as it is before its callback ran
    new = node(*fields)
    pending(dead)
    assert node(*fields) is new
    uop._staying.clear()


def test_threads_that_make_the_same_node_have_one():
    for _ in range(50):
        fields, made, start = key(), [], threading.Barrier(4)

        def make(fields=fields, made=made, start=start):
            start.wait()
            made.append(node(*fields))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert all(u is made[0] for u in made) and node(*fields) is made[0]
