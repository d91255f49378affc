"""Find the line of the user's program that is running, for error messages and for the origin of nodes.

Frames of this package, of functions that it generates (compiled under names that start with "<monolect") and of
Python's import machinery are skipped. Frames of "<stdin>" and "<string>" count as the user's.
The search runs once for every node that a Tensor method makes. It takes about 1 microsecond, with a dictionary look-up
for each frame.
"""

import os
import sys
from types import FrameType, TracebackType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep  # Python's standard library; libraries may be installed in it
_NOT_USER = (_PACKAGE, "<monolect", "<frozen")
_ours: dict[str, bool] = {}  # code file -> whether its frames are skipped


def is_own(file: str) -> bool:
    """Return whether `provenance` skips the frames of the code file `file`."""
    own = _ours.get(file)
    if own is None:
        own = _ours[file] = file.startswith(_NOT_USER)
    return own


def provenance() -> tuple[str, int, str]:
    """Return file and line of the user's running call, and the name of the monolect function that it called.

    The search begins at the caller of the caller. Returns ("", 0, name) if only monolect is running.
    """
    frame: FrameType | None = sys._getframe(2)
    name = ""
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        own = _ours.get(file)
        if own is None:
            own = is_own(file)
        if not own:
            return file, frame.f_lineno, name
        name = code.co_name
        frame = frame.f_back
    return "", 0, name


def is_from_user(trace: TracebackType | None) -> bool:
    """Return whether an error passed through code of the user's: not of this package, of Python or of an installed
    library.
    """
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((*_NOT_USER, _STANDARD)) and "site-packages" not in file:
            return True
        trace = trace.tb_next
    return False


def innermost_folder(trace: TracebackType | None) -> str:
    """Return the folder of this package whose code runs innermost in a traceback; "" if none does."""
    folder = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(_PACKAGE):
            folder = file[len(_PACKAGE) :].partition(os.sep)[0]
        trace = trace.tb_next
    return folder


__all__ = ["innermost_folder", "is_from_user", "is_own", "provenance"]
