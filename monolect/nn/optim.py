"""Another name of `monolect.optim`: importing this module gives that one."""

import sys
from typing import TYPE_CHECKING

from monolect import optim

if TYPE_CHECKING:  # a type checker sees this module
    from monolect.optim import *  # noqa: F403

sys.modules[__name__] = optim
