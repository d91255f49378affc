"""Which line of the user's program is running: where an error is theirs to mend, and what made a node.

Frames that are not the user's are this package's, those of the functions it generates (compiled under names that start
with "<monolect"), and Python's own import machinery. "<stdin>" and "<string>" are the user's.
It runs once for every node that a Tensor method makes: about a microsecond, a dictionary look-up a frame.
"""

import os
import sys
from types import FrameType

_NOT_USER = (os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep, "<monolect", "<frozen")
_ours: dict[str, bool] = {}  # code file -> is it not the user's


def provenance() -> tuple[str, int, str]:
    """File and line of the user's call that is running, and the function it entered monolect by.

    The search begins at the caller of the caller. ("", 0, name) when only monolect is running.
    """
    frame: FrameType | None = sys._getframe(2)
    name = ""
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        own = _ours.get(file)
        if own is None:
            own = _ours[file] = file.startswith(_NOT_USER)
        if not own:
            return file, frame.f_lineno, name
        name = code.co_name
        frame = frame.f_back
    return "", 0, name
