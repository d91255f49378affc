"""Functions that are special functions, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from monolect.tensor.base import TensorLike, operand_of
from monolect.tensor.guard import guarded
from monolect.tensor.methods.in_place import into
from monolect.tensor.tensor import Tensor


@guarded
def airy_ai(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the Airy function Ai: the solution of y'' = `input` * y that vanishes at infinity.

    The relative error of a result far from 0, where Ai decays or oscillates, grows with |`input`|^1.5.

    >>> round(special.airy_ai(Tensor(1.0)).item(), 4)
    0.1353
    """
    return into(out, "airy_ai", input.airy_ai())


@guarded
def bessel_j0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the Bessel function of the first kind of order 0.

    >>> round(special.bessel_j0(Tensor(1.0)).item(), 4)
    0.7652
    """
    return into(out, "bessel_j0", input.bessel_j0())


@guarded
def bessel_j1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the Bessel function of the first kind of order 1.

    >>> round(special.bessel_j1(Tensor(1.0)).item(), 4)
    0.4401
    """
    return into(out, "bessel_j1", input.bessel_j1())


@guarded
def bessel_y0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the Bessel function of the second kind of order 0: -infinity at 0, nan below.

    >>> round(special.bessel_y0(Tensor(1.0)).item(), 4)
    0.0883
    """
    return into(out, "bessel_y0", input.bessel_y0())


@guarded
def bessel_y1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the Bessel function of the second kind of order 1: -infinity at 0, nan below.

    >>> round(special.bessel_y1(Tensor(1.0)).item(), 4)
    -0.7812
    """
    return into(out, "bessel_y1", input.bessel_y1())


@guarded
def chebyshev_polynomial_t(x: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the Chebyshev polynomial of the first kind of degree `n`, an int; 0 for a negative degree.

    >>> special.chebyshev_polynomial_t(Tensor(0.5), 2).item()
    -0.5
    """
    return into(out, "chebyshev_polynomial_t", x.chebyshev_polynomial_t(n))


@guarded
def chebyshev_polynomial_u(x: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the Chebyshev polynomial of the second kind of degree `n`, an int; 0 for a negative degree.

    >>> special.chebyshev_polynomial_u(Tensor(0.5), 2).item()
    0.0
    """
    return into(out, "chebyshev_polynomial_u", x.chebyshev_polynomial_u(n))


@guarded
def chebyshev_polynomial_v(x: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the Chebyshev polynomial of the third kind of degree `n`, an int; 0 for a negative degree.

    >>> special.chebyshev_polynomial_v(Tensor(0.5), 2).item()
    -1.0
    """
    return into(out, "chebyshev_polynomial_v", x.chebyshev_polynomial_v(n))


@guarded
def chebyshev_polynomial_w(x: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the Chebyshev polynomial of the fourth kind of degree `n`, an int; 0 for a negative degree.

    >>> special.chebyshev_polynomial_w(Tensor(0.5), 2).item()
    1.0
    """
    return into(out, "chebyshev_polynomial_w", x.chebyshev_polynomial_w(n))


@guarded
def digamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the derivative of `lgamma`; nan at -1, -2, ..., and an infinity at 0.

    >>> round(monolect.digamma(Tensor(1.0)).item(), 4)
    -0.5772
    """
    return into(out, "digamma", input.digamma())


@guarded
def entr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return -`input` * log(`input`): 0 at 0, -infinity below.

    >>> special.entr(Tensor([0.0, -1.0])).tolist()
    [0.0, -inf]
    """
    return into(out, "entr", input.entr())


@guarded
def erfcx(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return exp(`input` ** 2) * erfc(`input`), which neither overflows nor vanishes for positive numbers.

    >>> round(special.erfcx(Tensor(10.0)).item(), 4)
    0.0561
    """
    return into(out, "erfcx", input.erfcx())


@guarded
def erfinv(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the inverse of `erf`: an infinity at -1 and 1, nan outside.

    >>> monolect.erfinv(Tensor([0.0, 1.0])).tolist(), round(monolect.erfinv(Tensor(0.5)).item(), 4)
    ([0.0, inf], 0.4769)
    """
    return into(out, "erfinv", input.erfinv())


@guarded
def hermite_polynomial_h(x: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the Hermite polynomial, of physicists, of degree `n`, an int; 0 for a negative degree.

    >>> special.hermite_polynomial_h(Tensor(0.5), 2).item()
    -1.0
    """
    return into(out, "hermite_polynomial_h", x.hermite_polynomial_h(n))


@guarded
def hermite_polynomial_he(x: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the Hermite polynomial, of the normal distribution, of degree `n`, an int; 0 for a negative degree.

    >>> special.hermite_polynomial_he(Tensor(0.5), 2).item()
    -0.75
    """
    return into(out, "hermite_polynomial_he", x.hermite_polynomial_he(n))


@guarded
def i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the modified Bessel function of the first kind of order 0.

    >>> round(monolect.i0(Tensor(1.0)).item(), 4)
    1.2661
    """
    return into(out, "i0", input.i0())


@guarded
def i0e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return exp(-|`input`|) * i0(`input`), which does not overflow.

    >>> round(special.i0e(Tensor(1.0)).item(), 4)
    0.4658
    """
    return into(out, "i0e", input.i0e())


@guarded
def i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the modified Bessel function of the first kind of order 1.

    >>> round(special.i1(Tensor(1.0)).item(), 4)
    0.5652
    """
    return into(out, "i1", input.i1())


@guarded
def i1e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return exp(-|`input`|) * i1(`input`), which does not overflow.

    >>> round(special.i1e(Tensor(1.0)).item(), 4)
    0.2079
    """
    return into(out, "i1e", input.i1e())


@guarded
def igamma(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the regularized lower incomplete gamma function: the share of a gamma distribution of concentration
    `input` that is below `other`, broadcast.

    It is nan where either one is negative or nan, or both are 0 or infinite. Only `other` has a gradient;
    `backward` to `input` raises GradientError.

    >>> round(monolect.igamma(Tensor(2.0), 3.0).item(), 4)
    0.8009
    """
    return into(out, "igamma", input.igamma(other))


@guarded
def igammac(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the regularized upper incomplete gamma function, 1 - igamma(`input`, other), broadcast; it is accurate
    also where that is tiny.

    It is nan where either one is negative or nan, or both are 0 or infinite. Only `other` has a gradient;
    `backward` to `input` raises GradientError.

    >>> round(monolect.igammac(Tensor(2.0), 3.0).item(), 4)
    0.1991
    """
    return into(out, "igammac", input.igammac(other))


@guarded
def laguerre_polynomial_l(x: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the Laguerre polynomial of degree `n`, an int; 0 for a negative degree.

    >>> special.laguerre_polynomial_l(Tensor(0.5), 2).item()
    0.125
    """
    return into(out, "laguerre_polynomial_l", x.laguerre_polynomial_l(n))


@guarded
def legendre_polynomial_p(x: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the Legendre polynomial of degree `n`, an int; 0 for a negative degree.

    >>> special.legendre_polynomial_p(Tensor(0.5), 2).item()
    -0.125
    """
    return into(out, "legendre_polynomial_p", x.legendre_polynomial_p(n))


@guarded
def lgamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the logarithm of the absolute value of the gamma function; infinity at 0, -1, -2, ...

    >>> monolect.lgamma(Tensor([1.0, 5.0])).exp().round().tolist()
    [1.0, 24.0]
    """
    return into(out, "lgamma", input.lgamma())


@guarded
def log_ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the logarithm of `ndtr`, accurate also where that is tiny.

    >>> round(special.log_ndtr(Tensor(-40.0)).item(), 2)
    -804.61
    """
    return into(out, "log_ndtr", input.log_ndtr())


@guarded
def modified_bessel_i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the modified Bessel function of the first kind of order 0, as `i0`.

    >>> round(special.modified_bessel_i0(Tensor(1.0)).item(), 4)
    1.2661
    """
    return into(out, "modified_bessel_i0", input.modified_bessel_i0())


@guarded
def modified_bessel_i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the modified Bessel function of the first kind of order 1, as `i1`.

    >>> round(special.modified_bessel_i1(Tensor(1.0)).item(), 4)
    0.5652
    """
    return into(out, "modified_bessel_i1", input.modified_bessel_i1())


@guarded
def modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the modified Bessel function of the second kind of order 0: infinity at 0, nan below.

    >>> round(special.modified_bessel_k0(Tensor(1.0)).item(), 4)
    0.421
    """
    return into(out, "modified_bessel_k0", input.modified_bessel_k0())


@guarded
def modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the modified Bessel function of the second kind of order 1: infinity at 0, nan below.

    >>> round(special.modified_bessel_k1(Tensor(1.0)).item(), 4)
    0.6019
    """
    return into(out, "modified_bessel_k1", input.modified_bessel_k1())


@guarded
def mvlgamma(input: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """Return the logarithm of the multivariate gamma function of dimension `p`, for `input` above (p - 1) / 2.

    Raises ArgumentError for `p` outside of 1..1000.

    >>> round(monolect.mvlgamma(Tensor(2.0), 2).item(), 4)
    0.4516
    """
    return into(out, "mvlgamma", input.mvlgamma(p))


@guarded
def ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the area of the standard normal distribution below `input`.

    >>> special.ndtr(Tensor(0.0)).item()
    0.5
    """
    return into(out, "ndtr", input.ndtr())


@guarded
def ndtri(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the inverse of `ndtr`: an infinity at 0 and 1, nan outside.

    >>> round(special.ndtri(Tensor(0.975)).item(), 2)
    1.96
    """
    return into(out, "ndtri", input.ndtri())


@guarded
def polygamma(n: int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the n-th derivative of `digamma`. Raises ArgumentError for n outside of 0..169.

    Above n = 1, arguments below -32 give nan.

    >>> round(monolect.polygamma(1, Tensor(1.0)).item(), 4)
    1.6449
    """
    return into(out, "polygamma", input.polygamma(n))


@guarded
def scaled_modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return exp(`input`) * modified_bessel_k0(`input`), which does not vanish.

    >>> round(special.scaled_modified_bessel_k0(Tensor(1.0)).item(), 4)
    1.1445
    """
    return into(out, "scaled_modified_bessel_k0", input.scaled_modified_bessel_k0())


@guarded
def scaled_modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return exp(`input`) * modified_bessel_k1(`input`), which does not vanish.

    >>> round(special.scaled_modified_bessel_k1(Tensor(1.0)).item(), 4)
    1.6362
    """
    return into(out, "scaled_modified_bessel_k1", input.scaled_modified_bessel_k1())


@guarded
def shifted_chebyshev_polynomial_t(x: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the Chebyshev polynomial of the first kind at 2 * `x` - 1 of degree `n`, an int; 0 for a negative degree.

    >>> special.shifted_chebyshev_polynomial_t(Tensor(0.75), 2).item()
    -0.5
    """
    return into(out, "shifted_chebyshev_polynomial_t", x.shifted_chebyshev_polynomial_t(n))


@guarded
def shifted_chebyshev_polynomial_u(x: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the Chebyshev polynomial of the second kind at 2 * `x` - 1 of degree `n`, an int; 0 for a negative
    degree.

    >>> special.shifted_chebyshev_polynomial_u(Tensor(0.75), 2).item()
    0.0
    """
    return into(out, "shifted_chebyshev_polynomial_u", x.shifted_chebyshev_polynomial_u(n))


@guarded
def shifted_chebyshev_polynomial_v(x: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the Chebyshev polynomial of the third kind at 2 * `x` - 1 of degree `n`, an int; 0 for a negative degree.

    >>> special.shifted_chebyshev_polynomial_v(Tensor(0.75), 2).item()
    -1.0
    """
    return into(out, "shifted_chebyshev_polynomial_v", x.shifted_chebyshev_polynomial_v(n))


@guarded
def shifted_chebyshev_polynomial_w(x: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the Chebyshev polynomial of the fourth kind at 2 * `x` - 1 of degree `n`, an int; 0 for a negative
    degree.

    >>> special.shifted_chebyshev_polynomial_w(Tensor(0.75), 2).item()
    1.0
    """
    return into(out, "shifted_chebyshev_polynomial_w", x.shifted_chebyshev_polynomial_w(n))


@guarded
def spherical_bessel_j0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return sin(`input`) / `input`, and 1 at 0.

    >>> round(special.spherical_bessel_j0(Tensor(1.0)).item(), 4)
    0.8415
    """
    return into(out, "spherical_bessel_j0", input.spherical_bessel_j0())


@guarded
def xlog1py(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input` * log(1 + other), broadcast; 0 where `input` is 0, unless `other` is nan. Integers give float32.

    >>> special.xlog1py(Tensor([0.0, 2.0]), Tensor([-1.0, 0.0])).tolist()
    [0.0, 0.0]
    """
    return into(out, "xlog1py", input.xlog1py(other))


@guarded
def xlogy(input: TensorLike, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input` * log(other), broadcast; 0 where `input` is 0, unless `other` is nan. Integers give float32.

    >>> monolect.xlogy(Tensor([0.0, 2.0]), Tensor([0.0, 1.0])).tolist()
    [0.0, 0.0]
    """
    return into(out, "xlogy", operand_of(input, other).xlogy(other))


@guarded
def zeta(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the Hurwitz zeta function, the sum of 1 / (other + k) ** `input` over k from 0 on, broadcast.

    It is infinity for `input` = 1 or `other` a whole number below 1, and nan for `input` below 1 or another `other`
    below 0. Only `other` has a gradient.

    >>> round(special.zeta(Tensor(2.0), 1.0).item(), 4)
    1.6449
    """
    return into(out, "zeta", input.zeta(other))


__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t", "chebyshev_polynomial_u",
    "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma", "entr", "erfcx", "erfinv", "hermite_polynomial_h",
    "hermite_polynomial_he", "i0", "i0e", "i1", "i1e", "igamma", "igammac", "laguerre_polynomial_l",
    "legendre_polynomial_p", "lgamma", "log_ndtr", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0",
    "modified_bessel_k1", "mvlgamma", "ndtr", "ndtri", "polygamma", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w", "spherical_bessel_j0", "xlog1py", "xlogy",
    "zeta",
]  # fmt: skip
