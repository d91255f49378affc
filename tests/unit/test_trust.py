"""Caches on disk are the user's own, and hide nothing that a setting asks the compiler to look at."""

import os
import shutil
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from monolect import CacheWarning, Context, Tensor, VerifyError, function, jit, pipeline
from monolect.backend.registry import Device
from monolect.base.disk import cache, version
from monolect.base.disk.cache import DiskCache
from monolect.base.settings import settings
from monolect.ir.uop import UOp, build, node, rebuild, toposort
from monolect.runtime.realize import execute

NOBODY = 65534
posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes are notions of POSIX")
root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")


# ---- who wrote a cache -----------------------------------------------------------------------------------------------
@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of all caches, with one entry."""
    monkeypatch.setattr(cache, "_refused", set())
    with Context(MONOLECT_CACHE=str(tmp_path / "all")):
        DiskCache("unit").put("k", b"value")
        yield tmp_path / "all"


def entry_of(place: Path) -> Path:
    return place / "unit" / cache._digest("k").hex()


def writable_by_group(path: Path) -> None:
    path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IWGRP)


def writable_by_all(path: Path) -> None:
    path.chmod(0o777)


def given_away(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY)


FAULTS = [
    writable_by_group,
    writable_by_all,
    pytest.param(given_away, marks=root),
]
LEVELS: dict[str, Callable[[Path], Path]] = {"root": lambda p: p, "cache": lambda p: p / "unit", "entry": entry_of}


@posix
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("level", LEVELS)
def test_what_others_could_have_written_is_not_read(place: Path, fault: Callable, level: str) -> None:
    path = LEVELS[level](place)
    fault(path)
    with pytest.warns(CacheWarning) as told:
        assert DiskCache("unit").get("k") is None
    status = path.stat()
    text = str(told[0].message)
    wanted = (str(path), f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}", f"owner {os.geteuid()}")
    assert all(part in text for part in (*wanted, "MONOLECT_CACHE")) and told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert DiskCache("unit").get("k") is None, "told once"
        if level != "entry":
            before = sorted(place.rglob("*"))
            DiskCache("unit").put("new", b"value")
            DiskCache("unit").evict()
            assert sorted(place.rglob("*")) == before, "nor is it written to"


@posix
def test_a_link_in_place_of_an_entry_or_a_cache_is_not_followed(place: Path) -> None:
    entry = entry_of(place)
    other = place.parent / "elsewhere"
    entry.rename(other)
    entry.symlink_to(other)
    assert DiskCache("unit").get("k") is None
    entry.unlink()
    other.rename(entry)
    assert DiskCache("unit").get("k") == b"value"
    shutil.move(place / "unit", place.parent / "moved")
    (place / "unit").symlink_to(place.parent / "moved")
    assert DiskCache("unit").get("k") is None
    place.rename(place.parent / "disk")
    (place.parent / "disk" / "unit").unlink()
    shutil.move(place.parent / "moved", place.parent / "disk" / "unit")
    place.symlink_to(place.parent / "disk")
    assert DiskCache("unit").get("k") == b"value", "the user may keep all of it on another disk"


@posix
@root
def test_a_folder_exchanged_after_its_check_is_not_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry is opened inside of the folder that was checked, not by a path that leads elsewhere by now."""
    foreign = place.parent / "foreign"
    shutil.copytree(place, foreign)
    (foreign / "unit" / entry_of(place).name).write_bytes(cache._pack(cache._digest("k"), b"forged"))
    os.chown(foreign / "unit", NOBODY, NOBODY)
    check = cache._own_status
    exchanged = []

    def then_exchange(descriptor: int, path: str) -> os.stat_result:
        status = check(descriptor, path)
        if path.rstrip("/").endswith("unit") and not exchanged:
            exchanged.append((place / "unit").rename(place.parent / "aside"))
            shutil.copytree(foreign / "unit", place / "unit")
        return status

    monkeypatch.setattr(cache, "_own_status", then_exchange)
    assert DiskCache("unit").get("k") == b"value" and exchanged


@posix
def test_all_folders_are_private_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Context(MONOLECT_CACHE=str(tmp_path / "a" / "b")):
            DiskCache("unit").put("k", b"value")
            assert DiskCache("unit").get("k") == b"value"
    finally:
        os.umask(before)
    for path in (tmp_path / "a" / "b", tmp_path / "a" / "b" / "unit"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry_of(tmp_path / "a" / "b").stat().st_mode) == 0o600


PROGRAM = """
import numpy as np
from monolect import Tensor
print((Tensor(np.arange(4, dtype=np.float32)) * 3 + 1).tolist())
"""


@posix
@root
def test_forged_machine_code_of_another_user_is_not_run(tmp_path: Path) -> None:
    environment = {**os.environ, "MONOLECT_CACHE": str(tmp_path / "c"), "VERIFY": "0", "CHECK_BOUNDS": "0"}

    def printed() -> tuple[str, str]:
        run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
        return run.stdout.strip(), run.stderr

    honest = "[1.0, 4.0, 7.0, 10.0]"
    assert printed() == (honest, "")
    three, thirty = (np.float32(x).tobytes() for x in (3, 30))
    n_forged = 0
    for path in (p for p in (tmp_path / "c").rglob("*") if p.is_file()):
        value = path.read_bytes()[cache._HEADER.size :]
        n_forged += three in value
        path.write_bytes(cache._pack(bytes.fromhex(path.name), value.replace(three, thirty)))
    assert n_forged and printed()[0] != honest, "the forgery works where it is one's own"
    for path in (tmp_path / "c", *(tmp_path / "c").rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    out, complaints = printed()
    assert out == honest and complaints.count("CacheWarning") == 1


# ---- the name of the compiler ----------------------------------------------------------------------------------------
@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the compiler's source, with caches of its own."""
    source = Path(version.__file__).parents[2]
    shutil.copytree(source, tmp_path / "monolect", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    monkeypatch.setattr(version, "__file__", str(tmp_path / "monolect" / "base" / "disk" / "version.py"))
    with Context(MONOLECT_CACHE=str(tmp_path / "c")):
        yield tmp_path / "monolect"


def test_the_version_follows_contents_not_times(tree: Path) -> None:
    named = version.compiler_version.__wrapped__
    first, file = named(), tree / "ir" / "uop.py"
    os.utime(file, (1, 1))
    assert named() == first
    text, status = file.read_text(), file.stat()
    file.write_text(text.replace("a", "b", 1))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file.stat().st_size == status.st_size and named() != first, "an edit of the same size and time"
    file.write_text(text)
    assert named() == first
    file.rename(tree / "ir" / "uop_2.py")
    assert named() != first


def test_contents_are_read_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, hash_of = [], version._hash_of
    monkeypatch.setattr(version, "_hash_of", lambda *a: reads.append(a) or hash_of(*a))
    first = version.compiler_version.__wrapped__()
    for _ in range(3):
        assert version.compiler_version.__wrapped__() == first and len(reads) == 1
    (tree / "pipeline.py").touch()
    assert version.compiler_version.__wrapped__() == first and len(reads) == 2


# ---- settings that look ----------------------------------------------------------------------------------------------
def one_too_far(linear: UOp) -> UOp:
    """The kernel with each element read from the place behind its own."""
    new: dict[UOp, UOp] = {}
    for u in toposort(linear):
        v = rebuild(u, tuple(new[s] for s in u.src))
        if v.op == "LOAD" and v.src[0].op == "INDEX":
            memory, at = v.src[0].src
            v = rebuild(v, (build("INDEX", memory, at + 1), *v.src[1:]))
        new[u] = v
    return new[linear]


def backwards(linear: UOp) -> UOp:
    """The instructions from the last to the first."""
    return node("LINEAR", linear.src[::-1], linear.arg)


def plant(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[UOp], UOp]) -> None:
    """The pass `name` makes something else from now on."""
    rows = [*pipeline.KERNEL]
    k = [row.name for row in rows].index(name)
    right = rows[k].run
    rows[k] = rows[k]._replace(run=lambda ir, target: change(right(ir, target)))
    monkeypatch.setattr(pipeline, "KERNEL", tuple(rows))


def eager(x: np.ndarray) -> Callable[[], np.ndarray]:
    return lambda: (Tensor(x) * 3).sum(1).numpy()


def of_numbers_that_differed(x: np.ndarray) -> Callable[[], np.ndarray]:
    """As after programs of the same form with other numbers and sizes, so that these are inputs."""
    for k in range(2, 9):
        (Tensor(x[:, :k]) * k).sum(1).realize()
    return eager(x)


def captured(x: np.ndarray) -> Callable[[], np.ndarray]:
    step = jit(lambda t: (t * 3).sum(1))
    return lambda: step(Tensor(x)).numpy()


def traced(x: np.ndarray) -> Callable[[], np.ndarray]:
    graph = function(lambda t: (t * 3).sum(1))
    return lambda: graph(Tensor(x)).numpy()


def of_a_file(x: np.ndarray) -> Callable[[], np.ndarray]:
    """As a process would that finds everything on disk."""

    def run() -> np.ndarray:
        execute.plans.clear()
        Device["cpu"].programs.clear()
        return eager(x)()

    return run


WARM = [eager, of_numbers_that_differed, captured, traced, of_a_file]


@pytest.fixture(params=WARM, ids=lambda f: f.__name__)
def warm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], np.ndarray]]:
    """A program that all caches know, none of whose settings look at the compiler."""
    with Context(VERIFY=0, CHECK_BOUNDS=0, MONOLECT_CACHE=str(tmp_path / "c")):
        run = request.param(np.ones((5, 37), np.float32))
        for _ in range(3):
            assert run().tolist() == [111.0] * 5
        yield run


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("look", "name", "change"),
    [
        ({"VERIFY": 1}, "linearize", backwards),
        ({"VERIFY": 2}, "linearize", backwards),
        ({"CHECK_BOUNDS": 1}, "apply", one_too_far),
    ],
)
def test_a_planted_fault_is_seen_though_caches_are_warm(
    warm: Callable, monkeypatch: pytest.MonkeyPatch, look: dict[str, int], name: str, change: Callable
) -> None:
    with Context(**look):
        assert warm().tolist() == [111.0] * 5
        assert warm().tolist() == [111.0] * 5
    plant(monkeypatch, name, change)
    assert warm().tolist() == [111.0] * 5, "who does not look sees what the caches have"
    for _ in range(2):
        with Context(**look), pytest.raises(VerifyError):
            warm()
    assert warm().tolist() == [111.0] * 5


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("look", "seen"), [({"DEBUG": 3}, "SPLIT"), ({"TRACE": "src"}, "define void"), ({"TRACE": "passes"}, "pass expand")]
)
def test_what_is_to_be_shown_is_shown_each_time(
    warm: Callable, capsys: pytest.CaptureFixture, look: dict[str, int], seen: str
) -> None:
    warm()
    assert capsys.readouterr().err == ""
    for _ in range(2):
        with Context(**look):
            warm()
            assert seen in capsys.readouterr().err
            warm()
            assert warm.__qualname__.startswith("of_a_file") or seen not in capsys.readouterr().err, "once is enough"


@pytest.mark.sweep
def test_a_dump_is_written_though_caches_are_warm(warm: Callable, tmp_path: Path) -> None:
    for name in ("a", "b", "a"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        with Context(DUMP=str(tmp_path / name)):
            warm()
        names = sorted(f.stem.partition("-")[2] for f in (tmp_path / name).iterdir())
        assert names == sorted(row.name for row in pipeline.PIPELINE)


def test_looking_leaves_the_disk_alone_and_what_was_known_before_is_known_after(tmp_path: Path) -> None:
    with Context(VERIFY=0, CHECK_BOUNDS=0, MONOLECT_CACHE=str(tmp_path / "c")):
        run, n = eager(np.ones((5, 187), np.float32)), []
        run()
        files, plans, choices = [*(tmp_path / "c" / "cpu").iterdir()], {*execute.plans}, settings.choices
        with Context(VERIFY=1):
            run(), run()
            n.append({*execute.plans} - plans)  # not how many: there is a most
            with Context(NOOPT=0, DEVICE="cpu"), Context(CHECK_BOUNDS=0, VERIFY=0):
                run()
            run()
            n.append({*execute.plans} - plans)
        run()
        assert n[0] and n == [{*execute.plans} - plans] * 2 and settings.choices == choices
        assert [*(tmp_path / "c" / "cpu").iterdir()] == files
