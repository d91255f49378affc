"""Byte strings kept on disk between processes: compiled programs, search results, schedules.

What it is for: what was compiled once is loaded by every later process.
What it is not: it is no database and promises nothing. Every failure is a miss: a missing, unreadable, truncated or
corrupt entry, a full disk, a folder that cannot be written. No method raises for the state of the disk.
Invariant: `get` returns the exact bytes that were put under that key, or None.

One file an entry, named by the hash of its key: 8 bytes magic, 8 bytes length, 16 bytes checksum, then the value.
Writers write a temporary file and rename it over the entry, so readers see the old file or the new one, never half of
one. Nothing is flushed to the platter: what a power cut tears, the checksum rejects. Folders and files are
private to the user, because what is loaded from them is run.
"""

import os
import struct
import sys
import time

from monolect.base.hashing import blake2b
from monolect.base.settings import settings

_HEADER = struct.Struct("<8sQ16s")
_MAGIC = b"MONOLECT"
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe in its place is a miss
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_TEMPORARY = ".tmp"
_TOUCH_AFTER_S = 3600.0  # an entry read again within this time is not marked as used again: marking costs a write
_STALE_TEMPORARY_S = 3600.0  # a temporary file this old belongs to a process that died
_BLOCK_BYTES = 4096  # what a file occupies at least, and in steps of


def cache_dir() -> str | None:
    """Folder of all disk caches, not created: MONOLECT_CACHE, XDG_CACHE_HOME/monolect, or the platform's place.

    None when the user has no home folder, or a relative place is in a folder that is gone: the caches are then off.
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


class DiskCache:
    """A folder of entries under `cache_dir()/name`, held near `limit_bytes` (default: CACHE_LIMIT_MB).

    Making one touches no disk. It may be shared by threads and by processes. COMPILE_CACHE=0 turns it off, unless its
    entries are `measured`: who wants a program compiled anew does not want its search repeated.
    """

    def __init__(self, name: str, limit_bytes: int | None = None, measured: bool = False) -> None:
        self.name = name
        self.measured = measured
        self._limit_bytes = limit_bytes
        self._folder: str | None = None
        self._folder_of: str | None = None  # the value of MONOLECT_CACHE that `_folder` was made from
        self._until_scan_bytes: float | None = None

    @property
    def limit_bytes(self) -> int:
        """The size bound; the sum of the entries may exceed it by a sixteenth for each process that writes at once."""
        return self._limit_bytes if self._limit_bytes is not None else int(settings.CACHE_LIMIT_MB) * 1_000_000

    def folder(self) -> str | None:
        """The folder that holds the entries now, with a trailing separator; None when there is no place for one."""
        if self._folder_of != settings.MONOLECT_CACHE:
            base = cache_dir()
            self._folder = None if base is None else os.path.join(base, self.name, "")
            self._folder_of = settings.MONOLECT_CACHE
        return self._folder

    def _is_on(self) -> bool:
        return self.measured or bool(settings.COMPILE_CACHE)

    def get(self, key: str) -> bytes | None:
        """The bytes last put under `key`, or None. A small entry costs some 20 microseconds."""
        folder = self.folder()
        if folder is None or not self._is_on():
            return None
        digest = _digest(key)
        path = folder + digest.hex()
        try:
            descriptor = os.open(path, _READ_FLAGS)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            data = _read_all(descriptor, status.st_size)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        value = _unpack(digest, data)
        if value is None:
            _delete(path)
        elif time.time() - status.st_mtime > _TOUCH_AFTER_S:
            _touch(path)
        return value

    def put(self, key: str, value: bytes) -> None:
        """Keep `value` under `key` if the disk allows; a value larger than the whole cache is not kept."""
        folder = self.folder()
        if folder is None or not self._is_on() or len(value) > self.limit_bytes:
            return
        digest = _digest(key)
        path = folder + digest.hex()
        temporary = f"{path}.{os.urandom(6).hex()}{_TEMPORARY}"
        try:
            _write_new(folder, temporary, _pack(digest, value))
            os.replace(temporary, path)
        except OSError:
            _delete(temporary)
            return
        self._count(_occupied_bytes(len(value) + _HEADER.size))

    def _count(self, written_bytes: int) -> None:
        """Scan for eviction once in a sixteenth of the limit written, over all processes on average.

        The first count starts at a random point, so that many processes that each write little do scan at times.
        """
        if self._until_scan_bytes is None:
            self._until_scan_bytes = int.from_bytes(os.urandom(4), "little") / 2**32 * self.limit_bytes / 16
        self._until_scan_bytes -= written_bytes
        if self._until_scan_bytes <= 0:
            self._until_scan_bytes = self.limit_bytes / 16
            self.evict()

    def evict(self) -> None:
        """Delete the entries unused for longest until the rest is below 15/16 of the limit, and dead temporaries."""
        folder = self.folder()
        entries = [] if folder is None else _scan(folder)
        total_bytes = sum(size_bytes for _, size_bytes, _ in entries)
        for _, size_bytes, path in sorted(entries):
            if total_bytes <= self.limit_bytes * 15 // 16:
                return
            _delete(path)
            total_bytes -= size_bytes


def _digest(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=20).digest()


def _checksum(digest: bytes, value: bytes) -> bytes:
    # The key is part of it: an entry that was copied over another one is not that other one.
    state = blake2b(digest, digest_size=16)
    state.update(value)
    return state.digest()


def _pack(digest: bytes, value: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, len(value), _checksum(digest, value)) + value


def _unpack(digest: bytes, data: bytes) -> bytes | None:
    """The value inside an entry's bytes; None when any byte of it is not what was written."""
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


def _write_new(folder: str, path: str, data: bytes) -> None:
    """Create `path`, and its folder when it is missing, with `data`. Raises OSError."""
    try:
        descriptor = os.open(path, _WRITE_FLAGS, 0o600)
    except FileNotFoundError:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        descriptor = os.open(path, _WRITE_FLAGS, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _scan(folder: str) -> list[tuple[float, int, str]]:
    """(last use, bytes occupied, path) of each entry; deletes temporaries whose writer died."""
    entries = []
    try:
        with os.scandir(folder) as found:
            for item in found:
                try:
                    status = item.stat(follow_symlinks=False)
                except OSError:
                    continue  # another process deleted it since
                if not item.name.endswith(_TEMPORARY):
                    entries.append((status.st_mtime, _occupied_bytes(status.st_size), item.path))
                elif time.time() - status.st_mtime > _STALE_TEMPORARY_S:
                    _delete(item.path)
    except OSError:
        return entries
    return entries


def _occupied_bytes(size_bytes: int) -> int:
    return -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES


def _delete(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _touch(path: str) -> None:
    try:
        os.utime(path)
    except OSError:
        pass
