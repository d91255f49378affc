"""Another name of `monolect.optim`: importing this module gives that one."""

import sys

from monolect import optim
from monolect.optim import *  # noqa: F403  # for type checkers, which see this module

sys.modules[__name__] = optim
