"""Define the image sets MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100 of local files; nothing is downloaded.

Invariant: an image is a float32 array in [0, 1] of the shape (channels, height, width), a label an int; an incomplete
file raises FileFormatError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from monolect.base.errors import FileFormatError
from monolect.data.dataset import Dataset
from monolect.nn.datasets import mnist_from_folder
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor

Path = str | os.PathLike[str]
CIFAR_BYTES = 3 * 32 * 32  # bytes of an image


class Images(Dataset[tuple[Any, Any]]):
    """Images (N, C, H, W) and labels (N,) as items (image, label), each after `transform` and `target_transform`.

    >>> data = Images(np.zeros((2, 1, 4, 4), np.float32), np.array([7, 3]))
    >>> data[1][0].shape, data[1][1], [t.shape for t in data.take([0, 1])]
    ((1, 4, 4), 3, [(2, 1, 4, 4), (2,)])
    """

    def __init__(
        self,
        data: np.ndarray,
        targets: np.ndarray,
        transform: Callable[[np.ndarray], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
    ):
        self.data, self.targets, self.transform, self.target_transform = data, targets, transform, target_transform
        if transform is None and target_transform is None:
            self.take = self._take

    def _take(self, indices: Sequence[int]) -> list[Tensor]:
        at = np.asarray(indices)
        return [Tensor(self.data[at]), Tensor(self.targets[at])]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, label = self.data[index], int(self.targets[index])
        return (
            image if self.transform is None else self.transform(image),
            label if self.target_transform is None else self.target_transform(label),
        )

    def __len__(self) -> int:
        return len(self.targets)


@guard_methods
class MNIST(Images):
    """MNIST in the folder `root`, or in `root`/MNIST/raw: idx files under their own names, gzip or not.

    Items are (image (1, 28, 28), label). Raises FileNotFoundError for a missing file, FileFormatError for a damaged
    one.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with open(os.path.join(folder, "train-images-idx3-ubyte"), "wb") as f:
    ...     _ = f.write(bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28]) + bytes(28 * 28))
    >>> with open(os.path.join(folder, "train-labels-idx1-ubyte"), "wb") as f:
    ...     _ = f.write(bytes([0, 0, 8, 1, 0, 0, 0, 1, 7]))
    >>> image, label = MNIST(folder)[0]
    >>> image.shape, label
    ((1, 28, 28), 7)
    """

    def __init__(
        self,
        root: Path,
        train: bool = True,
        transform: Callable[[np.ndarray], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
    ):
        inside = os.path.join(root, type(self).__name__, "raw")
        folder = inside if os.path.isdir(inside) else root
        images, labels = mnist_from_folder(folder, "train" if train else "test")
        super().__init__(images, labels, transform, target_transform)


@guard_methods
class FashionMNIST(MNIST):
    """Fashion-MNIST in the folder `root`, or in `root`/FashionMNIST/raw. See MNIST.

    >>> issubclass(FashionMNIST, MNIST)
    True
    """


class _Cifar(Images):
    folder = ""
    train_files: tuple[str, ...] = ()
    test_files: tuple[str, ...] = ()
    label_bytes = 1  # the last of them is the label

    def __init__(
        self,
        root: Path,
        train: bool = True,
        transform: Callable[[np.ndarray], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
    ):
        inside = os.path.join(root, self.folder)
        folder = inside if os.path.isdir(inside) else root
        rows = [self._rows(os.path.join(folder, name)) for name in (self.train_files if train else self.test_files)]
        table = np.concatenate(rows)
        images = table[:, self.label_bytes :].reshape(-1, 3, 32, 32).astype(np.float32) / 255.0
        super().__init__(images, table[:, self.label_bytes - 1].astype(np.int64), transform, target_transform)

    def _rows(self, path: str) -> np.ndarray:
        data, width = np.fromfile(path, np.uint8), self.label_bytes + CIFAR_BYTES
        if data.size == 0 or data.size % width:
            raise FileFormatError(f"{path} is not whole", expected=f"a multiple of {width} bytes", found=data.size)
        return data.reshape(-1, width)


@guard_methods
class CIFAR10(_Cifar):
    """CIFAR-10 in the folder `root`, or in `root`/cifar-10-batches-bin: the files of the binary version.

    Items are (image (3, 32, 32), label). Raises FileNotFoundError for a missing file, FileFormatError for a damaged
    one.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> np.zeros((2, 3073), np.uint8).tofile(os.path.join(folder, "test_batch.bin"))
    >>> data = CIFAR10(folder, train=False)
    >>> len(data), data[0][0].shape
    (2, (3, 32, 32))
    """

    folder = "cifar-10-batches-bin"
    train_files = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
    test_files = ("test_batch.bin",)


@guard_methods
class CIFAR100(_Cifar):
    """CIFAR-100 in the folder `root`, or in `root`/cifar-100-binary: the files of the binary version. See CIFAR10.

    The label is the fine one, of 100.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> np.full((2, 3074), 9, np.uint8).tofile(os.path.join(folder, "test.bin"))
    >>> CIFAR100(folder, train=False)[0][1]
    9
    """

    folder = "cifar-100-binary"
    train_files = ("train.bin",)
    test_files = ("test.bin",)
    label_bytes = 2


__all__ = ["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "Images"]
