"""Write tensors to files, the devices `disk:path`: results that must outlast the process, or do not fit into memory.

What it is for: `Tensor.to("disk:path")`, and assignments to a tensor that maps a file. `Tensor.from_file` reads.
What it is not: lazy. A write happens at the call. A new file appears as a whole or not at all. An assignment writes
into the file in place, so a process that dies in the middle leaves part of it.
Invariant: a lazy tensor that reads the file has the values from before a later write.
"""

from __future__ import annotations

from typing import Any

from monolect.autograd.graph import broadcast_to, cast
from monolect.backend.registry import DISK_PREFIX
from monolect.base.disk.files import write_whole
from monolect.base.errors import FileFormatError, IndexRangeError, ShapeError
from monolect.base.numpy import np
from monolect.ir.uop import UOp, toposort
from monolect.runtime.buffer import base_of, is_realized, open_disk, to_numpy, with_storage
from monolect.runtime.realize.execute import realize
from monolect.runtime.replay.in_progress import refuse_while_capturing


def written_file(u: UOp, device: str) -> UOp:
    """Write the elements of `u` in row-major order to the file behind `device`, and return the BUFFER that maps the
    file.

    Raises FileFormatError if the file cannot be written, ShapeError for no elements, JitError in a captured step.
    """
    refuse_while_capturing("writing a file", u)
    path = device.removeprefix(DISK_PREFIX)
    if 0 in u.shape:
        raise ShapeError(
            "a tensor without elements cannot be written to a file", expected="one element or more", found=u.shape
        )
    (found,) = realize([u])
    array = to_numpy(found)
    try:
        write_whole(path, [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data])
    except OSError as error:
        raise FileFormatError(f"cannot write {path}: {error}", expected="a path in a writable folder") from None
    return with_storage(array.shape, u.dtype, device, open_disk(device).storage)


def write(target: UOp, value: UOp) -> None:
    """Store `value`, broadcast and converted, into `target`, a view of a mapped file.

    Raises FileFormatError if the file changed its size or cannot be written, IndexRangeError for a slice with steps,
    JitError in a captured step.
    """
    refuse_while_capturing("writing to a file", target)
    base = base_of(target)
    if not is_realized(base):
        raise IndexRangeError("a write to a part of a file needs a view", expected="slices of step 1", found=base.op)
    path = str(base.arg.device).removeprefix(DISK_PREFIX)
    (value,) = realize([broadcast_to(cast(value, target.dtype), target.shape)])
    array = to_numpy(value)
    if base_of(value).arg.device == base.arg.device:  # both are parts of one file and may overlap
        array = array.copy()
    try:
        memory = np.memmap(path, dtype=np.uint8, mode="r+")
    except (OSError, ValueError) as error:
        raise FileFormatError(f"cannot write {path}: {error}", expected="a writable, non-empty file") from None
    if (expected := base.storage.view(np.uint8).size) != memory.size:
        raise FileFormatError(f"{path} changed its size", expected=f"{expected} bytes", found=memory.size)
    to_numpy(target, memory)[...] = array
    memory.flush()


def is_pending(u: UOp, device: Any) -> bool:
    """Whether `u` is not yet computed and reads the file behind `device`."""
    return not is_realized(u) and any(s.op == "BUFFER" and s.arg.device == device for s in toposort(u))


__all__ = ["is_pending", "write", "written_file"]
