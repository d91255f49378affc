"""Annotate source code for mypyc, which may compile part of the compiler when monolect is installed (`setup.py`).

Plain Python needs no mypyc: the annotations then do nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**options):
        """Return a class decorator; `native_class=False` keeps an ordinary Python class in compiled code."""
        return lambda cls: cls


__all__ = ["mypyc_attr"]
