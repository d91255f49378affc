"""The disk cache: what is put comes back exactly or not at all, whatever happens to the disk."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect.base.disk import cache as module
from monolect.base.disk.cache import DiskCache, cache_dir
from monolect.base.settings import Context

IS_POSIX = os.name == "posix"


@pytest.fixture
def folder(tmp_path):
    with Context(MONOLECT_CACHE=str(tmp_path / "c")):
        yield tmp_path / "c" / "unit"


def entry_of(folder: Path) -> Path:
    (entry,) = folder.iterdir()
    return entry


def test_round_trip_replace_and_miss(folder):
    cache = DiskCache("unit")
    assert cache.get("k") is None
    cache.put("k", b"one")
    cache.put("other", b"")
    assert cache.get("k") == b"one"
    assert cache.get("other") == b""
    cache.put("k", b"two")
    assert DiskCache("unit").get("k") == b"two"
    assert cache.get("K") is None


@given(key=st.text(), value=st.binary(max_size=5000))
def test_any_key_and_value(key, value):
    cache = DiskCache("any")
    cache.put(key, value)
    assert cache.get(key) == value


def test_making_and_missing_touch_no_disk(folder):
    assert DiskCache("unit").get("k") is None
    assert not folder.parent.exists()


def test_truncated_entries_are_misses_and_deleted(folder):
    cache = DiskCache("unit")
    cache.put("k", b"0123456789" * 10)
    whole = entry_of(folder).read_bytes()
    for length in range(len(whole)):
        (folder / module._digest("k").hex()).write_bytes(whole[:length])
        assert cache.get("k") is None, length
        assert list(folder.iterdir()) == []
    cache.put("k", b"again")
    assert cache.get("k") == b"again"


def test_grown_entries_are_misses(folder):
    cache = DiskCache("unit")
    cache.put("k", b"value")
    with entry_of(folder).open("ab") as file:
        file.write(b"\0")
    assert cache.get("k") is None


def test_every_flipped_bit_is_a_miss(folder):
    cache = DiskCache("unit")
    cache.put("k", b"value")
    path = entry_of(folder)
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        torn = bytearray(whole)
        torn[bit // 8] ^= 1 << bit % 8
        path.write_bytes(torn)
        assert cache.get("k") is None, bit


def test_an_entry_under_a_foreign_name_is_a_miss(folder):
    cache = DiskCache("unit")
    cache.put("a", b"value of a")
    entry_of(folder).rename(folder / module._digest("b").hex())
    assert cache.get("b") is None


def test_a_folder_in_place_of_an_entry_is_a_miss(folder):
    (folder / module._digest("k").hex()).mkdir(parents=True)
    cache = DiskCache("unit")
    cache.put("k", b"value")
    assert cache.get("k") is None
    assert [p.name for p in folder.iterdir()] == [module._digest("k").hex()]


@pytest.mark.skipif(not IS_POSIX, reason="pipes and devices have no names elsewhere")
@pytest.mark.parametrize("what", ["pipe", "device", "itself", "nothing"])
def test_what_is_no_file_in_place_of_an_entry_is_a_miss(folder, what):
    folder.mkdir(parents=True)
    path = folder / module._digest("k").hex()
    os.mkfifo(path) if what == "pipe" else path.symlink_to(
        {"device": "/dev/zero", "itself": path}.get(what, "/nowhere")
    )
    cache = DiskCache("unit")
    assert cache.get("k") is None
    cache.put("k", b"value")
    assert cache.get("k") == b"value"


def test_a_file_in_place_of_the_folder_is_silent(folder):
    folder.parent.write_bytes(b"in the way")
    cache = DiskCache("unit")
    cache.put("k", b"value")
    assert cache.get("k") is None
    cache.evict()


@pytest.mark.skipif(not IS_POSIX, reason="file modes are a notion of POSIX")
def test_a_read_only_folder_is_silent_and_still_read(folder):
    cache = DiskCache("unit")
    cache.put("k", b"value")
    folder.chmod(0o500)
    try:
        cache.put("new", b"value")
        if os.geteuid() != 0:  # the superuser may write into read-only folders
            assert cache.get("new") is None
        assert cache.get("k") == b"value"
    finally:
        folder.chmod(0o700)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is where even the superuser of Linux cannot make folders")
def test_a_place_where_nobody_can_write_is_silent():
    with Context(MONOLECT_CACHE="/proc/monolect"):
        cache = DiskCache("unit")
        cache.put("k", b"value")
        assert cache.get("k") is None
        cache.evict()


@pytest.mark.parametrize("broken", ["open", "replace", "makedirs"])
def test_a_disk_that_fails_is_silent_and_leaves_nothing(folder, monkeypatch, broken):
    def fail(*args, **kwargs):
        raise PermissionError(13, "planted")

    cache = DiskCache("unit")
    if broken != "makedirs":
        folder.mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(module.os, broken, fail)
        cache.put("k", b"value")
        cache.evict()
        assert cache.get("k") is None
    assert not folder.exists() or list(folder.iterdir()) == []


@pytest.mark.skipif(not IS_POSIX, reason="file modes are a notion of POSIX")
def test_entries_are_private(folder):
    DiskCache("unit").put("k", b"code that will be run")
    assert folder.stat().st_mode & 0o077 == 0
    assert entry_of(folder).stat().st_mode & 0o077 == 0


def test_size_stays_bounded_and_the_unused_go_first(folder):
    limit = 64 * 4096
    cache = DiskCache("unit", limit)
    for i in range(400):
        cache.put(str(i), bytes(3000))
        path = folder / module._digest(str(i)).hex()
        os.utime(path, (i + 1, i + 1))
        assert sum(4096 for _ in folder.iterdir()) <= limit
    kept = [i for i in range(400) if cache.get(str(i)) is not None]
    assert len(kept) >= 55
    assert kept == list(range(400 - len(kept), 400))


def test_reading_counts_as_use(folder):
    cache = DiskCache("unit", 16 * 4096)
    for i in range(15):
        cache.put(str(i), b"x")
        os.utime(folder / module._digest(str(i)).hex(), (1000 + i, 1000 + i))
    assert cache.get("0") == b"x"
    cache.put("new", b"x")
    cache.evict()
    assert cache.get("0") == b"x"
    assert cache.get("1") is None


def test_reading_marks_use_at_most_once_an_hour(folder):
    cache = DiskCache("unit")
    cache.put("k", b"x")
    recent = time.time() - 600
    os.utime(entry_of(folder), (recent, recent))
    cache.get("k")
    assert entry_of(folder).stat().st_mtime == pytest.approx(recent, abs=1)


def test_puts_do_not_scan_every_time(folder, monkeypatch):
    scans = []
    monkeypatch.setattr(module, "_scan", lambda folder: scans.append(folder) or [])
    cache = DiskCache("unit", 1024 * 4096)
    for i in range(640):
        cache.put(str(i % 8), bytes(3000))
    assert 9 <= len(scans) <= 11


def test_a_value_larger_than_the_cache_is_not_kept(folder):
    cache = DiskCache("unit", 1000)
    cache.put("k", bytes(1001))
    assert cache.get("k") is None


def test_default_limit_is_the_setting():
    with Context(CACHE_LIMIT_MB=3):
        assert DiskCache("unit").limit_bytes == 3_000_000


def test_temporaries_of_dead_processes_are_swept_and_those_of_live_ones_kept(folder):
    cache = DiskCache("unit")
    cache.put("k", b"x")
    dead, live = folder / "dead.tmp", folder / "live.tmp"
    for path in (dead, live):
        path.write_bytes(b"half")
    os.utime(dead, (1, 1))
    cache.evict()
    assert not dead.exists() and live.exists()
    assert cache.get("k") == b"x"


def test_the_setting_turns_it_off(folder):
    cache = DiskCache("unit")
    cache.put("k", b"x")
    with Context(COMPILE_CACHE=0):
        assert cache.get("k") is None
        cache.put("other", b"x")
    assert cache.get("k") == b"x"
    assert cache.get("other") is None


def _value(key: int, version: int) -> bytes:
    return random.Random(key * 1000 + version).randbytes(2000 + 37 * version)


def _work(folder: str, seed: int, failures) -> None:
    """Read and write shared keys; every value that is seen must be one that somebody wrote under that key."""
    rng = random.Random(seed)
    valid = {key: {_value(key, version) for version in range(8)} for key in range(10)}
    with Context(MONOLECT_CACHE=folder):
        cache = DiskCache("shared", 8 * 4096)
        for _ in range(200):
            key = rng.randrange(10)
            if rng.random() < 0.5:
                cache.put(str(key), _value(key, rng.randrange(8)))
            else:
                seen = cache.get(str(key))
                if seen is not None and seen not in valid[key]:
                    failures.put((seed, key))


def test_eight_processes_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    workers = [context.Process(target=_work, args=(str(tmp_path), seed, failures)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    assert failures.empty()
    assert not list((tmp_path / "shared").glob("*.tmp"))


WRITER = """
import random, sys
from monolect.base.disk.cache import DiskCache
cache = DiskCache("shared", 1 << 30)
print("ready", flush=True)
for version in range(1 << 30):
    for key in range(4):
        cache.put(str(key), bytes([key, version % 251]) * 400_000)
"""


@pytest.mark.skipif(not IS_POSIX, reason="kill -9 is a notion of POSIX")
def test_processes_killed_in_mid_write_leave_whole_entries_or_none(tmp_path):
    environment = {**os.environ, "MONOLECT_CACHE": str(tmp_path)}
    for k in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER], env=environment, stdout=subprocess.PIPE)
        writer.stdout.readline()
        time.sleep(0.02 + 0.013 * k)
        writer.kill()
        assert writer.wait() == -signal.SIGKILL
        writer.stdout.close()
        with Context(MONOLECT_CACHE=str(tmp_path)):
            cache = DiskCache("shared", 1 << 20)
            for key in range(4):
                value = cache.get(str(key))
                assert value is None or value == bytes([key, value[1]]) * 400_000
            cache.put("after", b"works")
            assert cache.get("after") == b"works"
    for left in (tmp_path / "shared").glob("*.tmp"):
        os.utime(left, (0, 0))  # of a process that died long ago
    with Context(MONOLECT_CACHE=str(tmp_path)):
        cache.evict()
    assert not list((tmp_path / "shared").glob("*.tmp"))
    assert sum(p.stat().st_size for p in (tmp_path / "shared").iterdir()) <= 1 << 20


def test_threads_share_one_cache(folder):
    cache = DiskCache("unit")
    seen = []

    def work(n: int) -> None:
        for i in range(50):
            cache.put(str(i), str(i).encode())
            seen.append(cache.get(str(i)) == str(i).encode())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(seen) and len(seen) == 200


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps the folder that a process works in")
def test_a_relative_place_in_a_folder_that_is_gone_is_silent(monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with Context(MONOLECT_CACHE="here"):
        cache = DiskCache("unit")
        cache.put("k", b"x")
        assert cache_dir() is None and cache.get("k") is None


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the XDG places are those of Linux and its kin")
def test_places(monkeypatch, tmp_path):
    with Context(MONOLECT_CACHE=str(tmp_path)):
        assert cache_dir() == str(tmp_path)
    with Context(MONOLECT_CACHE="~/here"):
        assert cache_dir() == os.path.expanduser("~/here")
    with Context(MONOLECT_CACHE=""):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache_dir() == str(tmp_path / "monolect")
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        assert cache_dir() == os.path.expanduser("~/.cache/monolect")
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(module.os.path, "expanduser", lambda path: path)  # a user without a home folder
        assert cache_dir() is None
        cache = DiskCache("unit")
        cache.put("k", b"x")
        assert cache.get("k") is None
        cache.evict()
