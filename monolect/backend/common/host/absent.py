"""Define memory that is not there: of another process, or of a device of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from monolect.base.errors import MonolectError


class AbsentMemory:
    """Memory that has a size here, and no bytes. Reading it raises the error that `error` returns."""

    def __init__(self, n_bytes: int, error: Callable[[], MonolectError]) -> None:
        self.address, self.n_bytes, self.n_views, self.error = 0, n_bytes, 0, error

    def view(self, dtype: Any) -> NoReturn:
        """Raise the error."""
        raise self.error()

    def is_lent(self) -> bool:
        """Return False: code of this process cannot write to it."""
        return False


__all__ = ["AbsentMemory"]
