"""The objects that tests keep from run to run: those of equal keys are the same, the rest is made again."""

import os
from pathlib import Path

import pytest

from tests.kept_objects import Objects, text_of


def test_an_object_is_made_once_for_its_key(tmp_path: Path) -> None:
    made: list[str] = []

    def get(key: str) -> bytes:
        return Objects(tmp_path).get(key, lambda: (made.append(key), key.encode() * 9)[1])

    assert [get("a"), get("b"), get("a")] == [b"a" * 9, b"b" * 9, b"a" * 9]
    assert made == ["a", "b"]
    for path in tmp_path.glob("*/*"):
        path.write_bytes(path.read_bytes()[:-2])
    assert get("a") == b"a" * 9 and made == ["a", "b", "a"]


def test_what_cannot_be_made_is_not_kept(tmp_path: Path) -> None:
    def fail() -> bytes:
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            Objects(tmp_path).get("a", fail)
    assert [*tmp_path.glob("*/*")] == []


def test_what_was_not_used_is_forgotten_first(tmp_path: Path) -> None:
    objects = Objects(tmp_path)
    for k, key in enumerate("abc"):
        objects.get(key, lambda: b"x" * 100)
        for path in tmp_path.glob("*/*"):
            os.utime(path, (k, k)) if path.stat().st_mtime > 9 else None
    objects.get("a", lambda: b"")  # used now
    (size,) = {p.stat().st_size for p in tmp_path.glob("*/*")}
    objects.trim(2 * size)
    assert objects.get("a", lambda: b"new") == objects.get("c", lambda: b"new") == b"x" * 100
    assert objects.get("b", lambda: b"new") == b"new"


def test_a_compiler_that_is_replaced_has_another_key(tmp_path: Path) -> None:
    file = tmp_path / "cc"
    file.write_text("one")
    before = text_of(file)
    file.write_text("another")
    assert text_of(file) != before
