"""Define DataLoader: batches of a data set, made ahead of time by worker threads or processes.

What it is for: reading and preparing the next batches while a step computes.
What it is not: workers that are processes get a copy of the data set, and send arrays; Tensors are made here.
Invariant: batches come in the order of the sampler, whatever the number of workers. An iteration that ends, fails or is
dropped leaves no thread and no process, unless `persistent_workers`.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np

from monolect.base.errors import ArgumentError
from monolect.data.dataset import IterableDataset
from monolect.data.sampler import BatchSampler, Generator, RandomSampler, SequentialSampler
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor

PREFETCH = 2  # batches that are made ahead for each worker, as in PyTorch


class WorkerInfo(NamedTuple):
    """The worker that runs: its number `id`, the number of workers, and the data set."""

    id: int
    num_workers: int
    dataset: Any


_here = threading.local()


def get_worker_info() -> WorkerInfo | None:
    """Return the worker that runs this code; None outside of workers.

    >>> get_worker_info() is None
    True
    """
    found: WorkerInfo | None = getattr(_here, "info", None)
    return found


# ---- batches of items ------------------------------------------------------------------------------------------------
def _collated(items: list[Any]) -> Any:
    """Return a batch of `items` of one kind as nested containers of arrays, or of Tensors where the items have them."""
    first = items[0]
    if isinstance(first, Tensor):
        return first.stack(*items[1:])
    if isinstance(first, np.ndarray | np.generic):
        return np.stack(items)
    if isinstance(first, bool | int | float):
        return np.array(items)
    if isinstance(first, str | bytes):
        return items
    if isinstance(first, Mapping):
        return {k: _collated([item[k] for item in items]) for k in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*map(_collated, map(list, zip(*items, strict=True))))
    if isinstance(first, list | tuple):
        if len({*map(len, items)}) != 1:
            raise ArgumentError("a batch", expected="items of one length", found=[len(item) for item in items])
        return [_collated(list(parts)) for parts in zip(*items, strict=True)]
    expected = "arrays, Tensors, numbers, texts, or dicts, lists and tuples of them"
    raise ArgumentError("a batch: an item", expected=expected, found=type(first).__name__)


def default_convert(data: Any) -> Any:
    """Return `data` with each array in it, also in dicts, lists and tuples, replaced by a Tensor.

    >>> default_convert({"x": np.array([1.0])})["x"].tolist()
    [1.0]
    """
    if isinstance(data, np.ndarray | np.generic):
        return Tensor(np.asarray(data)) if np.asarray(data).dtype.kind not in "USO" else data
    if isinstance(data, Mapping):
        return {k: default_convert(v) for k, v in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, list | tuple):
        return [default_convert(x) for x in data] if isinstance(data, list) else tuple(map(default_convert, data))
    return data


def default_collate(batch: list[Any]) -> Any:
    """Return a batch of items of one kind: arrays, Tensors and numbers are stacked, containers are batched inside.

    Raises ArgumentError for items of other kinds, or of different lengths.

    >>> x, y = default_collate([(np.zeros(2), 1), (np.ones(2), 2)])
    >>> x.shape, y.tolist()
    ((2, 2), [1, 2])
    """
    return default_convert(_collated(batch))


# ---- work of a worker ------------------------------------------------------------------------------------------------
class _Fetch(NamedTuple):
    """The work of a worker: items of `dataset` by index, then `collate`, or the items as they are."""

    dataset: Any
    collate: Callable[[list[Any]], Any] | None
    is_batched: bool

    def __call__(self, indices: Any) -> Any:
        data = self.dataset
        if not self.is_batched:
            return data[indices] if self.collate is None else self.collate(data[indices])
        if self.collate is None:
            if hasattr(data, "take"):
                return data.take(indices)
            return _collated(_items(data, indices))
        return self.collate(_items(data, indices))


def _items(data: Any, indices: list[Any]) -> list[Any]:
    return list(data.__getitems__(indices)) if hasattr(data, "__getitems__") else [data[i] for i in indices]


_process: _Fetch | None = None  # the work of this process, if it is a worker


def _start(number: int, n: int, fetch: _Fetch, init: Callable[[int], None] | None) -> None:
    _here.info = WorkerInfo(number, n, fetch.dataset)
    if init is not None:
        init(number)


def _start_thread(numbers: Iterator[int], n: int, fetch: _Fetch, init: Callable[[int], None] | None) -> None:
    _start(next(numbers), n, fetch, init)


def _start_process(numbers: Any, n: int, fetch: _Fetch, init: Callable[[int], None] | None) -> None:
    global _process
    _process = fetch
    with numbers.get_lock():
        number, numbers.value = numbers.value, numbers.value + 1
    _start(number, n, fetch, init)


def _fetch_here(indices: Any) -> Any:
    assert _process is not None
    return _plain(_process(indices))


def _plain(data: Any) -> Any:
    """Return `data` with each Tensor replaced by an array, to send it to another process."""
    if isinstance(data, Tensor):
        return data.numpy()
    if isinstance(data, Mapping):
        return {k: _plain(v) for k, v in data.items()}
    if isinstance(data, list | tuple):
        parts = map(_plain, data)
        return type(data)(*parts) if hasattr(data, "_fields") else type(data)(parts)
    return data


@guard_methods
class DataLoader:
    """Batches of `dataset`, in order or with `shuffle`, made ahead by `num_workers` workers.

    `dataset` has items by index and a length, or is an IterableDataset. `batch_size` None gives single items. The last
    batch may be shorter, unless `drop_last`. `sampler` gives indices, `batch_sampler` lists of them. `collate_fn` makes
    a batch of a list of items, by default `default_collate`. `generator`, a Generator, a NumPy generator or a seed,
    draws the order; by default it depends on `Tensor.manual_seed`.

    Workers are threads; with `multiprocessing_context` ("spawn", "forkserver" or "fork") they are processes. Each makes
    `prefetch_factor` batches ahead and runs `worker_init_fn(number)` once. An IterableDataset is read ahead by one
    thread. An error in a worker is raised here, with the worker's traceback; a batch that takes more than `timeout`
    seconds raises TimeoutError. `persistent_workers` are kept until the loader is freed. `pin_memory` and
    `pin_memory_device` are not used. Raises ArgumentError for arguments that do not go together.

    >>> loader = DataLoader(range(5), batch_size=2, num_workers=2)
    >>> len(loader), [batch.tolist() for batch in loader]
    (3, [[0, 1], [2, 3], [4]])
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | None = None,
        generator: Generator = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
    ):
        is_iterable = isinstance(dataset, IterableDataset)
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            expected = "no batch_size, shuffle, sampler or drop_last besides batch_sampler"
            raise ArgumentError("DataLoader: batch_sampler", expected=expected, found="another of them")
        if (sampler is not None and shuffle) or (batch_size is None and drop_last):
            expected = "a sampler or shuffle, and drop_last only with a batch_size"
            raise ArgumentError("DataLoader", expected=expected, found=(sampler, shuffle, batch_size, drop_last))
        if is_iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ArgumentError(
                "DataLoader: an IterableDataset", expected="its own order", found="shuffle or a sampler"
            )
        if (
            num_workers < 0
            or timeout < 0
            or (prefetch_factor is not None and (num_workers == 0 or prefetch_factor < 1))
        ):
            expected = "numbers of at least 0, and prefetch_factor of at least 1 with workers"
            raise ArgumentError("DataLoader: workers", expected=expected, found=(num_workers, timeout, prefetch_factor))
        self.dataset, self.batch_size, self.drop_last, self.collate_fn = dataset, batch_size, drop_last, collate_fn
        self.num_workers, self.timeout, self.worker_init_fn = num_workers, timeout, worker_init_fn
        self.multiprocessing_context, self.generator = multiprocessing_context, generator
        self.prefetch_factor, self.persistent_workers = prefetch_factor or PREFETCH, persistent_workers
        self.sampler: Any = sampler
        if sampler is None and not is_iterable and batch_sampler is None:
            self.sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self.batch_sampler: Any = batch_sampler
        if batch_sampler is None and batch_size is not None and not is_iterable:
            self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        self._workers: Executor | None = None

    @property
    def _index_source(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __len__(self) -> int:
        if not isinstance(self.dataset, IterableDataset):
            return len(self._index_source)
        dataset: Any = self.dataset
        n = len(dataset)
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            batches = self._read()
            return self._read_ahead(batches) if self.num_workers else batches
        if self.num_workers:
            return self._with_workers()
        return (self._finished(self._fetch(i)) for i in self._index_source)  # a StopIteration of an item is an error

    @property
    def _fetch(self) -> _Fetch:
        return _Fetch(self.dataset, self.collate_fn, self.batch_sampler is not None)

    def _finished(self, batch: Any) -> Any:
        """Return what a worker made as the caller gets it: Tensors, unless `collate_fn` decides."""
        return batch if self.collate_fn is not None else default_convert(batch)

    def _read(self) -> Iterator[Any]:
        """Yield the batches of an IterableDataset."""
        items, collate = iter(self.dataset), self.collate_fn or default_collate
        if self.batch_size is None:
            yield from map(self.collate_fn or default_convert, items)
            return
        while batch := list(islice(items, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield collate(batch)

    def _read_ahead(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield `batches`, which one thread makes ahead."""
        end = object()
        with ThreadPoolExecutor(1, "monolect-data", _start, (0, 1, self._fetch, self.worker_init_fn)) as workers:
            yield from self._in_order(workers, iter(lambda: workers.submit(next, batches, end), None), end)

    def _with_workers(self) -> Iterator[Any]:
        """Yield batches that workers make ahead."""
        workers = self._workers or self._start_workers()
        if self.persistent_workers:
            self._workers = workers
        work: Any = self._fetch if isinstance(workers, ThreadPoolExecutor) else _fetch_here
        try:
            for batch in self._in_order(workers, (workers.submit(work, i) for i in self._index_source), None):
                yield self._finished(batch)
        finally:
            if not self.persistent_workers:
                workers.shutdown(wait=True, cancel_futures=True)

    def _start_workers(self) -> Executor:
        n, rest = self.num_workers, (self.num_workers, self._fetch, self.worker_init_fn)
        if self.multiprocessing_context is None:
            return ThreadPoolExecutor(n, "monolect-data", _start_thread, (count(), *rest))
        context = multiprocessing.get_context(self.multiprocessing_context)
        return ProcessPoolExecutor(n, context, _start_process, (context.Value("i", 0), *rest))

    def _in_order(self, workers: Executor, futures: Iterator[Future], end: Any) -> Iterator[Any]:
        """Yield the results of `futures` in order, with some of them in progress, until one is `end`."""
        ahead: deque[Future] = deque(islice(futures, self.num_workers * self.prefetch_factor))
        try:
            while ahead:
                found = ahead.popleft().result(self.timeout or None)
                if end is not None and found is end:
                    return
                ahead.extend(islice(futures, 1))
                yield found
        finally:
            for f in ahead:
                f.cancel()

    def __del__(self) -> None:
        workers = getattr(self, "_workers", None)
        if workers is not None:
            workers.shutdown(wait=False, cancel_futures=True)


__all__ = ["DataLoader", "WorkerInfo", "default_collate", "default_convert", "get_worker_info"]
