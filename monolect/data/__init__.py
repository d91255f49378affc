"""Provide data sets, samplers and DataLoader, by the names of torch.utils.data, and image sets in local files.

>>> from monolect import Tensor
>>> data = TensorDataset(Tensor([[1.0], [2.0], [3.0]]), Tensor([0, 1, 0]))
>>> [(x.shape, y.tolist()) for x, y in DataLoader(data, batch_size=2)]
[((2, 1), [0, 1]), ((1, 1), [0])]
"""

from monolect.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from monolect.data.images import CIFAR10, CIFAR100, MNIST, FashionMNIST
from monolect.data.loader import DataLoader, default_collate, default_convert, get_worker_info
from monolect.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler", "CIFAR10", "CIFAR100", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "FashionMNIST",
    "IterableDataset", "MNIST", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "default_collate", "default_convert",
    "get_worker_info", "random_split",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
