"""A data set for worker processes, in a module of its own: those that are spawned import it, and no PyTorch."""

from typing import Any

import numpy as np

from monolect.data import Dataset


class Numbers(Dataset):
    """At the top of the module, so that worker processes find it."""

    def __init__(self, n: int = 11):
        self.n = n

    def __getitem__(self, i: int) -> Any:
        if i == 7 and self.n == 10:
            raise KeyError("item seven")
        return {"x": np.full(2, i, np.float32), "y": i, "name": str(i), "pair": (i * 0.5, [i])}

    def __len__(self) -> int:
        return self.n
