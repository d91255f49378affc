"""Cache byte strings on disk between processes: compiled programs, search results, schedules.

What it is for: a program that was compiled once is loaded by every later process.
What it is not: a database. Every failure is a cache miss: a missing, unreadable, truncated or corrupt entry, a full
disk, a folder that cannot be written. No method raises because of the state of the disk.
Invariant: `get` returns the exact bytes that were put under that key, or None.

Each entry is a file, named by the hash of its key: 8 bytes magic, 8 bytes length, 16 bytes checksum, then the value.
Writers write a temporary file and rename it over the entry, so readers see the old file or the new one, never a part.
Files are not flushed to disk; the checksum rejects an entry that a power failure damaged.

Entries may be machine code that this process runs. The checksum detects damage, but any program can compute it, so an
entry is trusted by its owner. The folder of all caches, the folder of one cache and each entry must belong to the user
who runs the process, and no other user may be able to write to them. The check uses open descriptors, each opened
relative to the previous one, so that no file can be exchanged between check and read. An entry that fails the check is
not read, and a CacheWarning gives the reason. Windows has no such owners and modes; it protects the profile folder of a
user itself.
"""

import os
import stat
import struct
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from monolect.base.disk.hashing import blake2b
from monolect.base.errors import CacheWarning, user_line
from monolect.base.settings import settings

_HEADER = struct.Struct("<8sQ16s")
_MAGIC = b"MONOLECT"
_HAS_OWNERS = hasattr(os, "geteuid") and os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | _NO_LINK  # a pipe is a miss
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_TEMPORARY = ".tmp"
_TOUCH_AFTER_S = 3600.0  # seconds; the last-use time of an entry is updated only if it is older, to save writes
_STALE_TEMPORARY_S = 3600.0  # seconds; an older temporary file belongs to a dead process and is deleted
_BLOCK_BYTES = 4096  # bytes of a disk block; a file occupies a multiple


def cache_dir() -> str | None:
    """Return the path of the folder of all disk caches, without creating it.

    It is MONOLECT_CACHE, XDG_CACHE_HOME/monolect, or the platform's cache folder. Returns None, which switches the
    caches off, if the user has no home folder, or if a relative path is given and the working directory was deleted.
    """
    if settings.MONOLECT_CACHE:
        try:
            return os.path.abspath(os.path.expanduser(settings.MONOLECT_CACHE))
        except FileNotFoundError:
            return None
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification says that relative paths are to be ignored
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA", os.path.expanduser(r"~\AppData\Local"))
        else:
            base = os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    return os.path.join(base, "monolect") if os.path.isabs(base) else None


class Folder(NamedTuple):
    """The open folder of a cache. A file `name` in it is `prefix + name`, relative to `descriptor`."""

    descriptor: int | None  # None if the system cannot open folders
    prefix: str
    path: str


class DiskCache:
    """A cache in the folder `cache_dir()/name`, whose size is kept near `limit_bytes` (default: CACHE_LIMIT_MB).

    The constructor does not access the disk. Threads and processes may share a cache. COMPILE_CACHE=0 switches it off,
    unless its entries are `measured`: a search result stays valid when programs are to be compiled again.
    """

    def __init__(self, name: str, limit_bytes: int | None = None, measured: bool = False) -> None:
        self.name = name
        self.measured = measured
        self._limit_bytes = limit_bytes
        self._root: str | None = None
        self._root_of: str | None = None  # the value of MONOLECT_CACHE that `_root` was made from
        self._until_scan_bytes: float | None = None

    @property
    def limit_bytes(self) -> int:
        """Size limit in bytes; entries may exceed it by a sixteenth for each process that is writing."""
        return self._limit_bytes if self._limit_bytes is not None else int(settings.CACHE_LIMIT_MB) * 1_000_000

    @contextmanager
    def _folder(self, create: bool = False) -> Iterator[Folder]:
        """Open the folder of the entries and check its owner. Raises OSError if it is missing, or _RefusedError."""
        if self._root_of != settings.MONOLECT_CACHE:
            self._root = cache_dir()
            self._root_of = settings.MONOLECT_CACHE
        root = self._root
        if root is None:
            raise FileNotFoundError("there is no folder for caches")
        path = os.path.join(root, self.name, "")
        if create:
            os.makedirs(root, mode=0o700, exist_ok=True)
        if not _HAS_OWNERS:
            if create:
                os.makedirs(path, exist_ok=True)
            yield Folder(None, path, path)
            return
        with _opened(root, _FOLDER_FLAGS) as outer:  # the root itself may be a link to a larger disk
            _own_status(outer, root)
            if create:
                _make_folder(self.name, outer)
            with _opened(self.name, _FOLDER_FLAGS | _NO_LINK, outer) as inner:
                _own_status(inner, path)
                yield Folder(inner, "", path)

    def _is_on(self) -> bool:
        return self.measured or bool(settings.COMPILE_CACHE)

    def get(self, key: str) -> bytes | None:
        """Return the bytes that were last put under `key`, or None. A small entry takes about 20 microseconds."""
        if not self._is_on():
            return None
        digest = _digest(key)
        name = digest.hex()
        try:
            with self._folder() as folder:
                with _opened(folder.prefix + name, _READ_FLAGS, folder.descriptor) as entry:
                    status = _own_status(entry, folder.path + name)
                    data = _read_all(entry, status.st_size) if stat.S_ISREG(status.st_mode) else b""
                    value = _unpack(digest, data)
                    if value is not None and time.time() - status.st_mtime > _TOUCH_AFTER_S:
                        _touch(folder, name)
                if value is None:
                    _delete(folder, name)
                return value
        except _RefusedError as refused:
            refused.warn()
        except OSError:
            pass
        return None

    def put(self, key: str, value: bytes) -> None:
        """Store `value` under `key` if the disk allows; a value larger than the size limit is not stored."""
        if not self._is_on() or len(value) > self.limit_bytes:
            return
        digest = _digest(key)
        name = digest.hex()
        try:
            with self._folder(create=True) as folder:
                _write(folder, name, _pack(digest, value))
        except _RefusedError as refused:
            refused.warn()
        except OSError:
            pass
        else:
            self._count(_occupied_bytes(len(value) + _HEADER.size))

    def _count(self, written_bytes: int) -> None:
        """Count written bytes, and call `evict` after each sixteenth of the size limit.

        The first interval is random, so that processes that each write little also evict with some probability.
        """
        if self._until_scan_bytes is None:
            self._until_scan_bytes = int.from_bytes(os.urandom(4), "little") / 2**32 * self.limit_bytes / 16
        self._until_scan_bytes -= written_bytes
        if self._until_scan_bytes <= 0:
            self._until_scan_bytes = self.limit_bytes / 16
            self.evict()

    def evict(self) -> None:
        """Delete the least recently used entries until the others take at most 15/16 of the size limit; also delete
        stale temporary files.
        """
        try:
            with self._folder() as folder:
                self._evict(folder)
        except _RefusedError as refused:
            refused.warn()
        except OSError:
            pass

    def _evict(self, folder: Folder) -> None:
        entries = _scan(folder)
        total_bytes = sum(size_bytes for _, size_bytes, _ in entries)
        for _, size_bytes, name in sorted(entries):
            if total_bytes <= self.limit_bytes * 15 // 16:
                return
            _delete(folder, name)
            total_bytes -= size_bytes


# ---- ownership -------------------------------------------------------------------------------------------------------
_refused: set[str] = set()  # paths that this process has warned about


class _RefusedError(Exception):
    """A folder or an entry that another user could have written."""

    def __init__(self, path: str, owner: int, mode: int) -> None:
        super().__init__(path, owner, mode)
        self.path, self.owner, self.mode = path, owner, mode

    def warn(self) -> None:
        if self.path in _refused:
            return
        _refused.add(self.path)
        text = (
            f"{self.path} is not used as a cache: code in it could be another user's\n"
            f"  expected: owner {os.geteuid()}, not writable by other users\n"
            f"  found: owner {self.owner}, mode {self.mode:04o}\n"
            f"  to fix it, delete it, or `chmod go-w` it if it is yours, or set MONOLECT_CACHE to a folder of your own"
        )
        warnings.warn_explicit(text, CacheWarning, *user_line())


def _own_status(descriptor: int, path: str) -> os.stat_result:
    """Return the status of an open file. Raises _RefusedError if another user owns it or may write to it."""
    status = os.fstat(descriptor)
    if _HAS_OWNERS and (status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        raise _RefusedError(path.rstrip(os.sep), status.st_uid, stat.S_IMODE(status.st_mode))
    return status


@contextmanager
def _opened(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make_folder(name: str, folder: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        pass


# ---- entries ---------------------------------------------------------------------------------------------------------
def _digest(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=20).digest()


def _checksum(digest: bytes, value: bytes) -> bytes:
    # The checksum includes the key, so that an entry that was copied over another one is rejected.
    state = blake2b(digest, digest_size=16)
    state.update(value)
    return state.digest()


def _pack(digest: bytes, value: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, len(value), _checksum(digest, value)) + value


def _unpack(digest: bytes, data: bytes) -> bytes | None:
    """Return the value in the bytes of an entry, or None if any byte is damaged."""
    if len(data) < _HEADER.size:
        return None
    magic, length, checksum = _HEADER.unpack_from(data)
    value = data[_HEADER.size :]
    if magic != _MAGIC or length != len(value) or checksum != _checksum(digest, value):
        return None
    return value


def _read_all(descriptor: int, size_bytes: int) -> bytes:
    data = os.read(descriptor, size_bytes)
    while len(data) < size_bytes:  # one read returns at most 2 GiB
        more = os.read(descriptor, size_bytes - len(data))
        if not more:
            break
        data += more
    return data


def _write(folder: Folder, name: str, data: bytes) -> None:
    """Write the entry `name` to a temporary file and rename it. Raises OSError, and then leaves no file."""
    temporary = f"{name}.{os.urandom(6).hex()}{_TEMPORARY}"
    at = folder.descriptor
    try:
        descriptor = os.open(folder.prefix + temporary, _WRITE_FLAGS, 0o600, dir_fd=at)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(folder.prefix + temporary, folder.prefix + name, src_dir_fd=at, dst_dir_fd=at)
    except OSError:
        _delete(folder, temporary)
        raise


def _scan(folder: Folder) -> list[tuple[float, int, str]]:
    """Return (time of last use, occupied bytes, name) of each entry; delete stale temporary files."""
    entries = []
    try:
        with os.scandir(folder.path if folder.descriptor is None else folder.descriptor) as found:
            for item in found:
                try:
                    status = item.stat(follow_symlinks=False)
                except OSError:
                    continue  # another process deleted it meanwhile
                if not item.name.endswith(_TEMPORARY):
                    entries.append((status.st_mtime, _occupied_bytes(status.st_size), item.name))
                elif time.time() - status.st_mtime > _STALE_TEMPORARY_S:
                    _delete(folder, item.name)
    except OSError:
        return entries
    return entries


def _occupied_bytes(size_bytes: int) -> int:
    return -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES


def _delete(folder: Folder, name: str) -> None:
    try:
        os.unlink(folder.prefix + name, dir_fd=folder.descriptor)
    except OSError:
        pass


def _touch(folder: Folder, name: str) -> None:
    try:
        os.utime(folder.prefix + name, dir_fd=folder.descriptor)
    except OSError:
        pass


__all__ = ["DiskCache", "Folder", "cache_dir"]
