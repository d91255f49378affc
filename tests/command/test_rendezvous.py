"""Items of several devices in each device's own order: times, and devices that wait for each other."""

import pytest

from monolect import DistributedError
from monolect.command.rendezvous import Part, ends


def alone(key: int, device: str, seconds: float, *needs: int) -> Part:
    return Part(key, frozenset((device,)), seconds, frozenset(needs))


def together(key: int, seconds: float, *devices: str) -> Part:
    return Part(key, frozenset(devices), seconds)


def test_a_message_starts_when_all_have_come_to_it() -> None:
    m = together(1, 2, "a", "b")
    a = [alone(0, "a", 5), m, alone(2, "a", 1)]
    assert ends({"a": a, "b": [alone(3, "b", 1), m, alone(4, "b", 10)]}) == {
        "a": 7,
        "b": 11,
    }  # in parallel with the message
    assert ends({"a": a, "b": [alone(3, "b", 1), m, alone(4, "b", 10, 1)]}) == {"a": 7, "b": 17}  # after it


def test_messages_of_a_device_follow_each_other() -> None:
    m, other = together(1, 2, "a", "b"), together(2, 3, "a", "c")
    assert ends({"a": [m, other], "b": [m], "c": [other]}) == {"a": 5, "b": 2, "c": 5}


def test_a_pipeline_of_two_stages_overlaps_its_micro_batches() -> None:
    n = 4
    messages = [together(100 + k, 0, "a", "b") for k in range(n)]
    first = [x for k in range(n) for x in (alone(k, "a", 1), messages[k])]
    second = [x for k in range(n) for x in (messages[k], alone(10 + k, "b", 1, 100 + k))]
    assert ends({"a": first, "b": second}) == {"a": n, "b": n + 1}


def test_devices_that_wait_for_each_other_are_named() -> None:
    x, y = together(1, 1, "a", "b"), together(2, 1, "a", "b")
    with pytest.raises(DistributedError, match="wait for each other") as error:
        ends({"a": [x, y], "b": [y, x]})
    assert "a -> b -> a" in str(error.value)
    p, q, r = together(1, 1, "a", "b"), together(2, 1, "b", "c"), together(3, 1, "c", "a")
    with pytest.raises(DistributedError, match="a -> b -> c -> a"):
        ends({"a": [p, r], "b": [q, p], "c": [r, q]})


def test_a_message_that_another_never_comes_to_is_named() -> None:
    with pytest.raises(DistributedError, match="a -> b"):
        ends({"a": [together(1, 1, "a", "b")], "b": []})


def test_kernels_that_wait_for_late_messages_are_named() -> None:
    with pytest.raises(DistributedError, match="a -> b"):  # a kernel needs a message that its sender comes to later
        x, y = together(1, 1, "a", "b"), together(2, 1, "a", "b")
        ends({"a": [x, alone(3, "a", 1, 2), y], "b": [y, alone(4, "b", 1, 2), x]})


def test_no_items_take_no_time_at_all() -> None:
    assert ends({}) == {} and ends({"a": []}) == {"a": 0}
