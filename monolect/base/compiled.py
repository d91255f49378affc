"""What the source says to mypyc, which may compile part of the compiler when monolect is installed (`setup.py`).

What it is not: needed. In plain Python, where mypyc and its package are absent, its marks do nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**options):
        """A mark on a class: `native_class=False` leaves it an ordinary Python class in compiled code."""
        return lambda cls: cls
