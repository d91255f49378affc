"""Special functions, by the names of torch.special; written by `make surface`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from monolect.base.absent import hint
from monolect.functions.elements import erf, erfc, exp2, expm1, log1p, logit, round, sinc
from monolect.functions.elements import sigmoid as expit
from monolect.functions.reductions import log_softmax, logsumexp, softmax

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(hint("special", name))


__all__ = [
    "erf",
    "erfc",
    "exp2",
    "expit",
    "expm1",
    "log1p",
    "log_softmax",
    "logit",
    "logsumexp",
    "round",
    "sinc",
    "softmax",
]
