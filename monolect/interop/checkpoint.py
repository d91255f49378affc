"""Save tensors on several devices or processes as safetensors files with an index; load them on any number of either.

Each process writes one file with the parts that it holds; a tensor that is whole on each device is written once. The
index names the file of each tensor (`weight_map`, as other libraries do), and the parts of divided ones.
Invariant: the index is written last and replaced as a whole. Files have new names at each save, so a save that fails
leaves the earlier checkpoint as it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from monolect.backend.registry import Device, is_here, process_of
from monolect.base.disk.files import write_whole
from monolect.base.errors import ArgumentError, DistributedError, FileFormatError
from monolect.base.numpy import np
from monolect.interop.safetensors import safe_load, safe_save
from monolect.ir.layout import box
from monolect.runtime.buffer import parts_of, to_numpy
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

INDEX = "model.safetensors.index.json"  # file of the index in a checkpoint's folder


@guarded
def save_checkpoint(tensors: Mapping[str, Tensor], folder: str | os.PathLike[str]) -> None:
    """Write named tensors to `folder`, which is made if it is missing. All processes that hold parts call it.

    Raises ArgumentError for a value that is no Tensor and for a name that a part has, DistributedError where processes
    save other names, shapes, dtypes or placements, MissingExtraError without the library.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> save_checkpoint({"w": Tensor([1.0, 2.0, 3.0]).shard(("cpu", "cpu:1"))}, folder)
    >>> load_checkpoint(folder)["w"].tolist()
    [1.0, 2.0, 3.0]
    """
    for name, t in tensors.items():
        if not isinstance(t, Tensor):
            raise ArgumentError(f"save_checkpoint: {name}", expected="a Tensor", found=type(t).__name__)
    if tensors:
        first, *others = tensors.values()
        first.realize(*others)
    there = Path(folder)
    there.mkdir(parents=True, exist_ok=True)
    link = _link(tensors.values())
    rank, n = (0, 1) if link is None else (link.rank, link.size)
    token = os.urandom(4) if link is None else _agreed(link, tensors)  # the same for all ranks
    files = [f"model-{k + 1:05}-of-{n:05}-{token.hex()}.safetensors" for k in range(n)]
    own: dict[str, Any] = {}
    index: dict[str, Any] = {"metadata": {"format": "monolect"}, "weight_map": {}, "parts": {}}
    for name, t in tensors.items():
        if t.shard_axis is None:
            owner = process_of(t.device[0] if isinstance(t.device, tuple) else t.device) or 0
            index["weight_map"][name] = files[owner]
            if rank == owner:
                own[name] = t
            continue
        parts = parts_of(t.contiguous().realize().uop)
        boxes = [box(t.shape, t.shard_axis, k, len(parts)) for k in range(len(parts))]
        writers = [
            k for k, b in enumerate(boxes) if b not in boxes[:k]
        ]  # of devices with one part, the first writes it
        keys = [f"{name}/part-{k + 1}-of-{len(writers)}" for k in range(len(writers))]
        if taken := sorted(set(keys) & set(tensors)):
            raise ArgumentError("save_checkpoint: names", expected=f"other names than the parts of {name}", found=taken)
        held = [parts[k] for k in writers]
        own |= {key: to_numpy(p) for key, p in zip(keys, held, strict=True) if is_here(p.arg.device)}
        at = [files[process_of(p.arg.device) or 0] for p in held]
        index["weight_map"] |= dict(zip(keys, at, strict=True))
        offsets = [[start for start, _ in boxes[k]] for k in writers]
        index["parts"][name] = {"shape": list(t.shape), "keys": keys, "offsets": offsets}
    safe_save(own, there / files[rank])
    if link is not None:
        link.gather(b"")  # all files are written
    if rank == 0:
        write_whole(there / INDEX, [json.dumps(index, indent=1).encode()])
        for old in there.glob("model-*-of-*-*.safetensors"):
            if old.name not in files:
                old.unlink()


@guarded
def load_checkpoint(folder: str | os.PathLike[str], device: Any = None) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by name, whole, on `device`; `nn.state.load_state_dict` divides them as the
    model's are.

    Raises FileFormatError for an index that cannot be read, and for a file that is missing, truncated or of another
    save, FileNotFoundError for a folder without an index, MissingExtraError without the library.
    """
    there = Path(folder)
    try:
        index = json.loads((there / INDEX).read_text())
        file_of: dict[str, str] = dict(index["weight_map"])
        divided = {
            n: (tuple(d["shape"]), list(d["keys"]), [tuple(o) for o in d["offsets"]]) for n, d in index["parts"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        expected = "an index that `save_checkpoint` writes"
        raise FileFormatError(f"{there / INDEX} cannot be read", expected=expected, found=repr(e)[:80]) from None
    found: dict[str, Tensor] = {}
    for file in sorted(set(file_of.values())):
        if Path(file).name != file or not (there / file).is_file():
            raise FileFormatError(f"{there}: a part of the checkpoint is missing", expected=file, found="no such file")
        found |= safe_load(there / file, device)
    if missing := sorted(set(file_of) - set(found)):
        raise FileFormatError(f"{there}: a tensor is missing", expected=missing[0], found=f"{len(found)} others")
    out = {name: found[name] for name in file_of if name in found and not _is_part(name, divided)}
    for name, (shape, keys, offsets) in divided.items():
        parts = [found[k].numpy() for k in keys if k in found]
        out[name] = Tensor(_whole(f"{there}: the parts of {name}", shape, parts, offsets), device=device)
    return out


def _whole(what: str, shape: tuple[int, ...], parts: list[np.ndarray], offsets: list[tuple[int, ...]]) -> np.ndarray:
    """Return the array of `shape` whose parts begin at `offsets`. Raises FileFormatError, which begins with `what`,
    unless they fill it.
    """
    boxes = [
        tuple(zip(o, p.shape, strict=False)) if len(o) == p.ndim else () for o, p in zip(offsets, parts, strict=False)
    ]
    filled = np.zeros(shape, bool)
    for b in boxes:
        filled[tuple(slice(max(o, 0), o + m) for o, m in b)] = True
    fits = bool(parts) and len(parts) == len(offsets) and filled.all() and sum(p.size for p in parts) == filled.size
    if not fits or any(len(b) != len(shape) or p.dtype != parts[0].dtype for b, p in zip(boxes, parts, strict=True)):
        raise FileFormatError(f"{what} do not fit", expected=shape, found=[p.shape for p in parts])
    whole = np.empty(shape, parts[0].dtype)
    for b, p in zip(boxes, parts, strict=True):
        whole[tuple(slice(o, o + m) for o, m in b)] = p
    return whole


def _is_part(key: str, divided: Mapping[str, tuple[Any, list[str], Any]]) -> bool:
    """Whether `key` names a part of one of the `divided` tensors."""
    return any(key in keys for _, keys, _ in divided.values())


def _agreed(link: Any, tensors: Mapping[str, Tensor]) -> bytes:
    """Return 4 random bytes, those of rank 0. Raises DistributedError unless all processes save alike `tensors`."""
    outline = repr([(name, t.shape, t.dtype.name, t.device, t.shard_axis) for name, t in tensors.items()])
    found = link.gather(os.urandom(4) + blake2b(outline.encode(errors="surrogatepass"), digest_size=16).digest())
    if other := [rank for rank, x in enumerate(found) if x[4:] != found[link.rank][4:]]:
        what = f"rank {link.rank}: the processes save different checkpoints"
        expected = "equal names, shapes, dtypes and placements on all ranks, in one order"
        raise DistributedError(what, expected=expected, found=f"others on rank {', '.join(map(str, other))}")
    return found[0][:4]


def _link(tensors: Any) -> Any:
    """Return the transport between the processes that hold `tensors`; None if they are in one process."""
    names = [d for t in tensors for d in (t.device if isinstance(t.device, tuple) else (t.device,))]
    return next((Device[d].transport for d in names if process_of(d) is not None), None)


__all__ = ["load_checkpoint", "save_checkpoint"]
