"""Data sets, samplers and loaders: batches are PyTorch's; workers keep the order, show errors and end."""

import gc
import os
import pickle
import struct
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as theirs

import monolect.data as ours
from monolect import ArgumentError, FileFormatError, Generator, ShapeError, Tensor
from tests.unit.numbers_of_data import Numbers


class Stream(ours.IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(7))

    def __len__(self) -> int:
        return 7


def as_plain(x: Any) -> Any:
    if isinstance(x, Tensor | torch.Tensor):
        return (str(x.dtype).partition(".")[2], x.tolist())
    if isinstance(x, dict):
        return {k: as_plain(v) for k, v in x.items()}
    return [as_plain(v) for v in x] if isinstance(x, list | tuple) else x


def running() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("monolect-data")]


@pytest.mark.parametrize("options", [
    {"batch_size": 3}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}, {"batch_size": 20},
    {"sampler": [3, 1, 2], "batch_size": 2}, {"batch_sampler": [[0, 5], [1]]},
    {"batch_size": 2, "collate_fn": len},
])  # fmt: skip
@pytest.mark.parametrize("workers", [0, 3])
def test_batches_are_those_of_pytorch(options: dict, workers: int) -> None:
    mine = ours.DataLoader(Numbers(), num_workers=workers, **options)
    other = theirs.DataLoader(Numbers(), **options)
    for _ in range(2):
        assert [as_plain(b) for b in mine] == [as_plain(b) for b in other]
    assert len(mine) == len(other) and running() == []


@pytest.mark.sweep
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_processes_make_the_same_batches_and_show_their_errors(context: str) -> None:
    options = {"batch_size": 3, "num_workers": 2, "multiprocessing_context": context}
    plain = [as_plain(b) for b in ours.DataLoader(Numbers(9), batch_size=3)]
    assert [as_plain(b) for b in ours.DataLoader(Numbers(9), **options)] == plain
    with pytest.raises(KeyError, match="item seven") as e:
        list(ours.DataLoader(Numbers(10), **options))
    assert 'raise KeyError("item seven")' in str(e.value.__cause__)


def test_an_error_in_a_thread_shows_its_traceback() -> None:
    loader = iter(ours.DataLoader(Numbers(10), batch_size=4, num_workers=2))
    assert as_plain(next(loader))["y"][1] == [0, 1, 2, 3]
    with pytest.raises(KeyError, match="item seven") as e:
        list(loader)
    assert "__getitem__" in [f.name for f in e.traceback] and running() == []


@pytest.mark.parametrize("workers", [0, 2])
def test_a_set_that_is_read_in_order(workers: int) -> None:
    for options, wanted in (
        ({"batch_size": 3}, [[0, 1, 2], [3, 4, 5], [6]]),
        ({"batch_size": 3, "drop_last": True}, [[0, 1, 2], [3, 4, 5]]),
        ({"batch_size": None}, [*range(7)]),
    ):
        loader = ours.DataLoader(Stream(), num_workers=workers, **options)
        assert [b.tolist() if isinstance(b, Tensor) else b for b in loader] == wanted and len(loader) == len(wanted)
    assert running() == []


def test_a_dropped_iteration_leaves_no_worker() -> None:
    made = []

    class Slow(Numbers):
        def __getitem__(self, i: int) -> Any:
            made.append(i)
            time.sleep(0.01)
            return i

    batches = iter(ours.DataLoader(Slow(1000), batch_size=2, num_workers=2))
    next(batches)
    del batches
    gc.collect()
    assert running() == [] and len(made) < 40
    loader = ours.DataLoader(Slow(20), batch_size=2, num_workers=2, persistent_workers=True)
    assert [b.tolist() for b in loader] == [b.tolist() for b in loader] and len(running()) == 2
    del loader
    gc.collect()
    for _ in range(100):
        if not running():
            break
        time.sleep(0.02)
    assert running() == []


def test_workers_know_their_number_and_a_late_batch_is_an_error() -> None:
    seen: set = set()

    class Known(Numbers):
        def __getitem__(self, i: int) -> int:
            info = ours.get_worker_info()
            assert info is not None and info.num_workers == 2 and info.dataset is data
            time.sleep(0.3 if i == 5 else 0.0)
            return info.id

    data = Known(6)
    loader = ours.DataLoader(data, batch_size=1, num_workers=2, worker_init_fn=seen.add)
    assert {b.item() for b in loader} <= {0, 1} and seen <= {0, 1} and ours.get_worker_info() is None
    with pytest.raises(TimeoutError):
        list(ours.DataLoader(data, num_workers=2, timeout=0.05))


def test_an_order_is_drawn_again_and_repeats_with_its_seed() -> None:
    def orders(**options: Any) -> list[list[int]]:
        loader = ours.DataLoader(range(20), batch_size=6, shuffle=True, **options)
        return [[i for b in loader for i in b.tolist()] for _ in range(2)]

    for options in ({"generator": 3}, {"generator": 3, "num_workers": 2}):
        first, second = orders(**options)
        assert first != second and sorted(first) == sorted(second) == list(range(20))
        assert orders(**options) == [first, second] == orders(generator=np.random.default_rng(3))
    Tensor.manual_seed(5)
    first = orders()
    Tensor.manual_seed(5)
    assert orders() == first
    g = Generator()
    first = orders(generator=g.manual_seed(3))
    Tensor.rand(3).realize()
    assert first[0] != first[1] and orders(generator=g.manual_seed(3), num_workers=2) == first
    parts = [list(ours.random_split(range(9), [4, 5], g.manual_seed(2))[0].indices) for _ in range(2)]
    assert parts[0] == parts[1]


@pytest.mark.parametrize("generator", ["a", 1.5, -1, True, torch.Generator()])
def test_a_generator_is_of_a_kind_that_draws(generator: Any) -> None:
    for make in (
        ours.RandomSampler,
        ours.SubsetRandomSampler,
        lambda x, generator: ours.random_split(x, [3], generator),
    ):
        with pytest.raises(ArgumentError, match="generator"):
            make([1, 2, 3], generator=generator)


def test_samplers() -> None:
    assert sorted(ours.RandomSampler("abcd", generator=1)) == [0, 1, 2, 3]
    drawn = list(ours.RandomSampler("abcd", num_samples=10, generator=1))
    assert len(drawn) == 10 and sorted(drawn[:4]) == sorted(drawn[4:8]) == [0, 1, 2, 3]
    assert set(ours.RandomSampler("ab", replacement=True, num_samples=50, generator=1)) == {0, 1}
    weighted = ours.WeightedRandomSampler([0.0, 3.0, 1.0], 400, generator=0)
    counts = np.bincount(list(weighted), minlength=3)
    assert counts[0] == 0 and 250 < counts[1] < 350 and len(weighted) == 400
    assert sorted(ours.WeightedRandomSampler([1.0, 0.0, 2.0], 2, replacement=False)) == [0, 2]
    for drop in (False, True):
        assert list(ours.BatchSampler(range(7), 3, drop)) == list(theirs.BatchSampler(range(7), 3, drop))
        assert len(ours.BatchSampler(range(7), 3, drop)) == len(theirs.BatchSampler(range(7), 3, drop))


def test_sets_of_sets_are_those_of_pytorch() -> None:
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6)
    mine, other = ours.TensorDataset(Tensor(x), Tensor(y)), theirs.TensorDataset(torch.tensor(x), torch.tensor(y))
    for part in ([4, 0, 5], [1]):
        a, b = ours.Subset(mine, part), theirs.Subset(other, part)
        assert [as_plain(i) for i in (a[k] for k in range(len(a)))] == [as_plain(b[k]) for k in range(len(b))]
        both = ours.ConcatDataset([a, mine]), theirs.ConcatDataset([b, other])
        assert [as_plain(b) for b in ours.DataLoader(both[0], 4)] == [
            as_plain(b) for b in theirs.DataLoader(both[1], 4)
        ]
        assert as_plain((a + mine)[-1]) == as_plain((b + other)[-1])
    assert [as_plain(b) for b in ours.DataLoader(mine, 4)] == [as_plain(b) for b in theirs.DataLoader(other, 4)]
    stacked = ours.StackDataset(a=range(3), b="xyz"), theirs.StackDataset(a=range(3), b="xyz")
    assert [stacked[0][i] for i in range(3)] == [stacked[1][i] for i in range(3)]
    for lengths in ([0.5, 0.25, 0.25], [3, 4], [0.3, 0.7]):
        parts = ours.random_split(range(7), lengths, generator=1)
        assert [len(p) for p in parts] == [len(p) for p in theirs.random_split(range(7), lengths)]
        assert sorted(p[i] for p in parts for i in range(len(p))) == list(range(7))


def test_a_loader_feeds_a_training_step() -> None:
    from monolect import jit, nn, optim

    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 3)).astype(np.float32)
    data = ours.TensorDataset(Tensor(x), Tensor((x @ np.float32([1, -2, 3]))[:, None]))
    model = nn.Linear(3, 1)
    optimizer = optim.Adam(model.parameters(), lr=0.1)

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(25):
        for a, b in ours.DataLoader(data, batch_size=16, shuffle=True, generator=0, num_workers=2):
            loss = step(a, b)
    assert loss.item() < 1e-2 and len(step.captures) == 1


def test_what_does_not_fit_is_refused() -> None:
    data = Numbers()
    for call in (
        lambda: ours.DataLoader(data, batch_size=0),
        lambda: ours.DataLoader(data, batch_sampler=[[1]], batch_size=2),
        lambda: ours.DataLoader(data, sampler=[1], shuffle=True),
        lambda: ours.DataLoader(data, batch_size=None, drop_last=True),
        lambda: ours.DataLoader(Stream(), shuffle=True),
        lambda: ours.DataLoader(data, num_workers=-1),
        lambda: ours.DataLoader(data, prefetch_factor=2),
        lambda: ours.default_collate([object()]),
        lambda: ours.default_collate([[1], [1, 2]]),
        lambda: ours.RandomSampler(data, num_samples=0),
        lambda: ours.WeightedRandomSampler([1.0, -1.0], 1),
        lambda: ours.WeightedRandomSampler([1.0, 0.0], 2, replacement=False),
        lambda: ours.ConcatDataset([]),
        lambda: ours.ConcatDataset([data])[11],
        lambda: ours.StackDataset([1], [1, 2]),
        lambda: ours.random_split(data, [5, 5]),
    ):
        with pytest.raises(ArgumentError):
            call()
    for tensors in ((Tensor([1.0]), Tensor([1.0, 2.0])), (Tensor(1.0),), ()):
        with pytest.raises(ShapeError, match="TensorDataset"):
            ours.TensorDataset(*tensors)


# ---- files -----------------------------------------------------------------------------------------------------------
def write_idx(path: str, array: np.ndarray) -> None:
    with open(path, "wb") as f:
        f.write(struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes())


@pytest.mark.parametrize("kind", [ours.MNIST, ours.FashionMNIST])
def test_mnist_of_files(kind: Any, tmp_path: Any) -> None:
    rng, raw = np.random.default_rng(0), tmp_path / kind.__name__ / "raw"
    raw.mkdir(parents=True)
    images, labels = rng.integers(0, 256, (5, 28, 28), np.uint8), np.arange(5, dtype=np.uint8)
    for name in ("train", "t10k"):
        write_idx(os.path.join(raw, f"{name}-images-idx3-ubyte"), images)
        write_idx(os.path.join(raw, f"{name}-labels-idx1-ubyte"), labels)
    data = kind(tmp_path, train=False)
    x, y = next(iter(ours.DataLoader(data, batch_size=5)))
    np.testing.assert_array_equal(x.numpy(), images[:, None].astype(np.float32) / 255.0)
    assert y.tolist() == [0, 1, 2, 3, 4] and data[2][0].shape == (1, 28, 28)
    changed = kind(raw, transform=lambda image: image.sum(), target_transform=str)
    x, y = next(iter(ours.DataLoader(changed, batch_size=2)))
    assert x.shape == (2,) and y == ["0", "1"]
    with pytest.raises(FileNotFoundError):
        kind(tmp_path / "nowhere")


@pytest.mark.parametrize(("kind", "width"), [(ours.CIFAR10, 1), (ours.CIFAR100, 2)])
def test_cifar_of_files(kind: Any, width: int, tmp_path: Any) -> None:
    rng, folder = np.random.default_rng(0), tmp_path / kind.folder
    folder.mkdir()
    rows = rng.integers(0, 10, (4, width + 3072), np.uint8)
    for name in (*kind.train_files, *kind.test_files):
        rows.tofile(folder / name)
    data = kind(tmp_path)
    assert len(data) == 4 * len(kind.train_files) and len(kind(folder, train=False)) == 4
    image, label = data[1]
    np.testing.assert_array_equal(image, rows[1, width:].reshape(3, 32, 32).astype(np.float32) / 255.0)
    assert label == rows[1, width - 1]
    (folder / kind.test_files[0]).write_bytes(b"short")
    with pytest.raises(FileFormatError, match="not whole"):
        kind(tmp_path, train=False)


def test_a_part_of_a_set_is_pickled_and_follows_its_indices() -> None:
    whole = ours.TensorDataset(Tensor(np.arange(6.0)))
    part = pickle.loads(pickle.dumps(ours.Subset(whole, [4, 1])))
    assert [float(part[k][0].item()) for k in range(2)] == [4.0, 1.0]
    part.indices = [5, 3]
    assert [b[0].tolist() for b in ours.DataLoader(part, batch_size=2)] == [[5.0, 3.0]]
    assert hasattr(part, "take") and not hasattr(ours.Subset("abc", [0]), "take")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_stop_iteration_of_an_item_does_not_end_the_data(num_workers: int) -> None:
    class Ends(ours.Dataset):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> int:
            return index if index < 3 else next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(ours.DataLoader(Ends(), batch_size=2, num_workers=num_workers))
