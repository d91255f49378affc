"""Special functions beside references of 40 digits and PyTorch: few units in the last place, gradients, edges."""

from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from scipy import special as scipy_special

import monolect
from monolect import ArgumentError, DTypeError, GradientError, Tensor, dtypes
from tests.unit.rows_of_torch import check, tensors, wide

mpmath.mp.dps = 60
NAN, INF = float("nan"), float("inf")
RNG = np.random.default_rng(0)
ANY = np.concatenate([RNG.uniform(-6, 12, 60), 10 ** RNG.uniform(-9, 2, 40), [0.5, 1.0, 2.0, 8.0, 10.0]])
ABOVE = abs(ANY)
INSIDE = np.concatenate([RNG.uniform(-1, 1, 60), 1 - 10 ** RNG.uniform(-15, -1, 20), 10 ** RNG.uniform(-18, -1, 20)])
SHARE = np.concatenate([RNG.uniform(0, 1, 60), 10 ** RNG.uniform(-300, -1, 20)])
LOW = np.concatenate([ANY, -(10 ** RNG.uniform(0, 4, 20))])
mp: Any = mpmath

# name -> (reference, arguments, floor): an error is relative to the value, or to `floor` where the value is smaller
EXACT: dict[str, Any] = {
    "lgamma": (lambda x: mp.log(abs(mp.gamma(x))) if x != 0 else INF, ABOVE, 0.0),
    "digamma": (mp.digamma, ABOVE, 0.1),
    "erfinv": (mp.erfinv, INSIDE, 0.0),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), ANY[ANY < 20], 0.0),
    "log_ndtr": (lambda x: mp.log(mp.ncdf(x)) if x < 3 else mp.log1p(-mp.ncdf(-x)), LOW[LOW > -30], 0.0),
    "ndtri": (lambda p: -mp.sqrt(2) * _erfcinv(2 * p), SHARE[SHARE > 1e-30], 1e-3),
    "i0": (lambda x: mp.besseli(0, x), ANY, 0.0),
    "i0e": (lambda x: mp.exp(-abs(x)) * mp.besseli(0, x), ANY, 0.0),
    "i1": (lambda x: mp.besseli(1, x), ANY, 0.0),
    "i1e": (lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), ANY, 0.0),
    "modified_bessel_i0": (lambda x: mp.besseli(0, x), ANY, 0.0),
    "modified_bessel_i1": (lambda x: mp.besseli(1, x), ANY, 0.0),
    "modified_bessel_k0": (lambda x: mp.besselk(0, x), ABOVE[::5], 0.0),
    "modified_bessel_k1": (lambda x: mp.besselk(1, x), ABOVE[::5], 0.0),
    "scaled_modified_bessel_k0": (lambda x: mp.exp(x) * mp.besselk(0, x), ABOVE[::5], 0.0),
    "scaled_modified_bessel_k1": (lambda x: mp.exp(x) * mp.besselk(1, x), ABOVE[::5], 0.0),
    "bessel_j0": (lambda x: mp.besselj(0, x), ANY, 0.2),
    "bessel_j1": (lambda x: mp.besselj(1, x), ANY, 0.2),
    "bessel_y0": (lambda x: mp.bessely(0, x), ABOVE, 0.2),
    "bessel_y1": (lambda x: mp.bessely(1, x), ABOVE, 0.2),
    "airy_ai": (lambda x: mp.airyai(x), np.concatenate([ANY[ANY < 40], -ABOVE[ABOVE < 40]]), 0.2),
    "spherical_bessel_j0": (lambda x: mp.sin(x) / x, ANY, 0.1),
    "entr": (lambda x: -x * mp.log(x), ABOVE, 0.0),
    "trigamma": (lambda x: mp.psi(1, x), ABOVE, 0.0),
    "trigamma below 0": (lambda x: mp.psi(1, x), -ABOVE[:40] - 0.013, 0.0),
}
MOST_ULP = 24  # of float64, beside 40 digits; sums of series round a few times, far phases lose with the argument


def _own(xs: np.ndarray, name: str) -> Tensor:
    """PyTorch's trigamma errs by 1e-9, so it is compared with forty digits only."""
    return Tensor(xs).polygamma(1) if name.startswith("trigamma") else getattr(Tensor(xs), name)()


def _erfcinv(q: Any) -> Any:
    return mp.erfinv(1 - q) if q > 1e-12 else mp.findroot(lambda y: mp.log(mp.erfc(y)) - mp.log(q), mp.sqrt(-mp.log(q)))


@pytest.mark.sweep
@pytest.mark.parametrize("name", EXACT)
def test_values_beside_forty_digits(name: str) -> None:
    reference, xs, floor = EXACT[name]
    want = [reference(mp.mpf(float(x))) for x in xs]
    got = _own(xs, name).numpy()
    for x, g, w in zip(xs, got, want, strict=True):
        scale = max(abs(float(w)), floor, 1e-300)
        assert abs(mp.mpf(float(g)) - w) <= MOST_ULP * 2.2e-16 * scale * max(
            1.0, abs(x) / 8, x * x / 8 if name in ("log_ndtr", "airy_ai") else 0.0
        ), (x, g, float(w))
    narrow = xs.astype(np.float32)
    want32 = np.array([float(reference(mp.mpf(float(x)))) for x in narrow])
    got32 = _own(narrow, name).numpy()
    assert got32.dtype == np.float32
    is_normal = abs(want32) > 1e-37
    np.testing.assert_allclose(got32[is_normal], want32[is_normal], rtol=3e-7, atol=3e-7 * floor)


X = np.array([0.3, 1.7, 2.5, 4.25, 9.5, 15.0, 0.9, 1.4])
Y = np.array([0.6, 2.5, 0.25, 1.5, 3.0, 0.125, 0.5, 4.0])
BOTH: dict[str, Any] = {
    **{name: (lambda x, name=name: getattr(x, name)(), (X,)) for name in ("lgamma", "digamma", "i0")},
    **{
        name: (lambda x, name=name: _special(x, name), (X,))
        for name in ("i0e", "i1", "i1e", "log_ndtr", "erfcx", "entr", "ndtr")
    },
    "lgamma below 0": (lambda x: x.lgamma(), (-X - 0.15,)),
    "digamma below 0": (lambda x: x.digamma(), (-X - 0.15,)),
    "i1e below 0": (lambda x: _special(x, "i1e"), (-X,)),
    "erfinv": (lambda x: x.erfinv(), (X / 20,)),
    "ndtri": (lambda x: _special(x, "ndtri"), (X / 16,)),
    "polygamma 3": (lambda x: x.polygamma(3), (X,)),
    "mvlgamma": (lambda x: x.mvlgamma(3), (X + 2,)),
    "xlogy": (lambda x, y: x.xlogy(y), (X, Y)),
    "xlogy by a number": (lambda x: x.xlogy(2.0), (X,)),
    "xlog1py": (lambda x, y: _special(x, "xlog1py", y), (X, Y)),
    "igamma": (lambda x, y: x.detach().igamma(y), (X, Y)),
    "igammac": (lambda x, y: x.detach().igammac(y), (X, Y)),
    "zeta": (lambda x, y: _special(x.detach() + 1.1, "zeta", y.detach()), (X, Y)),
    "logaddexp2": (lambda x, y: x.logaddexp2(y), (X, Y)),
    "fmax": (lambda x, y: x.fmax(y), (X, Y)),
    "fmin": (lambda x, y: x.fmin(y), (X, Y)),
    "ldexp": (lambda x, n: x.ldexp(n), (X, np.array([1, 2, 0, 3, 5, 7, 2, 1]))),
    "frexp": (lambda x: x.detach().frexp(), (X,)),
    "nextafter": (lambda x, y: x.detach().nextafter(y.detach()), (X, Y)),
    "angle": (lambda x: x.angle(), (X - 2,)),
    "gcd": (lambda x, y: x.gcd(y), (np.array([12, -8, 0, 7]), np.array([18, 12, 5, 0]))),
    "lcm": (lambda x, y: x.lcm(y), (np.array([12, -8, 0, 7]), np.array([18, 12, 5, 0]))),
}
DEGREES = (-1, 0, 1, 2, 5)
POLYNOMIALS = [
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
]  # fmt: skip


def _special(x: Any, name: str, *args: Any) -> Any:
    return getattr(x, name)(*args) if isinstance(x, Tensor) else getattr(torch.special, name)(x, *args)


@pytest.mark.sweep
@pytest.mark.parametrize("name", BOTH)
def test_values_and_gradients_beside_pytorch(name: str) -> None:
    f, arrays = BOTH[name]
    check(f, arrays, tolerance=2e-13)
    if arrays[0].dtype.kind == "f":
        check(f, arrays, "float32", 4e-6)
        if name not in ("frexp", "nextafter", "erfcx", "zeta", "ndtri", "log_ndtr") and not name.startswith("poly"):
            check(f, arrays, "bfloat16")


@pytest.mark.sweep
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name: str) -> None:
    x = np.array([-0.9, -0.25, 0.1, 0.75])
    x = (x + 1) / 2 if name.startswith("shifted") else x
    for n in DEGREES:
        check(lambda t, n=n: _special(t.detach(), name, n), (x,), tolerance=1e-11)
    with pytest.raises(ArgumentError):
        getattr(Tensor(x), name)(10**6)


EDGES: dict[str, list[float]] = {
    "lgamma": [0.0, -1.0, -2.0, INF, -INF, NAN, 1.0, 2.0],
    "digamma": [0.0, -0.0, -1.0, INF, NAN],
    "erfinv": [1.0, -1.0, 1.5, 0.0, NAN],
    "i0": [INF, NAN, 0.0],
    "i0e": [NAN, 0.0],
    "i1": [INF, -INF, NAN, 0.0],
    "ndtri": [0.0, 1.0, -0.5, 2.0, NAN],
    "log_ndtr": [INF, -INF, NAN],
    "entr": [0.0, -1.0, INF, NAN],
    "erfcx": [INF, NAN],
    "modified_bessel_k0": [0.0, -1.0, NAN],
    "bessel_y0": [0.0, -1.0, NAN],
    "isposinf": [INF, -INF, NAN, 0.0],
    "isneginf": [INF, -INF, NAN, 0.0],
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str) -> None:
    x = np.array(EDGES[name])
    theirs = getattr(torch, name, None) or getattr(torch.special, name)
    np.testing.assert_array_equal(getattr(Tensor(x), name)().numpy(), theirs(torch.tensor(x)).numpy())


# ---- incomplete gamma functions --------------------------------------------------------------------------------------
SHAPES = np.concatenate([10 ** RNG.uniform(-6, 3.5, 160), [1.0, 1.0, 0.5, 10.0, 10.0, 2.0]])
AT = SHAPES * np.exp(RNG.normal(size=SHAPES.size) * np.minimum(2, 3 / np.sqrt(SHAPES)))
AT[-6:] = [1.0, 1.1, 1.0, 10.0, 9.9, 0.0625]
MOST_OF_GAMMA = {np.float64: 60, np.float32: 1.1}  # ULP of the dtype


def _shares(a: float, x: float) -> tuple[Any, Any]:
    """Return the lower and the upper incomplete gamma function with 60 digits of the smaller one."""
    with mp.workdps(120):
        a, x = mp.mpf(a), mp.mpf(x)
        below = x**a * mp.exp(-x) * mp.hyp1f1(1, a + 1, x, maxterms=10**6) / mp.gamma(a + 1)
        return below, 1 - below


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_incomplete_gamma_functions_beside_forty_digits(dtype: Any) -> None:
    a, x = SHAPES.astype(dtype), AT.astype(dtype)
    want = [_shares(float(p), float(q)) for p, q in zip(a, x, strict=True)]
    for k, name in enumerate(("igamma", "igammac")):
        got = getattr(Tensor(a), name)(Tensor(x)).numpy()
        assert got.dtype == dtype
        for p, q, g, w in zip(a, x, got, [w[k] for w in want], strict=True):
            error = abs(mp.mpf(float(g)) - w) / mp.mpf(float(max(np.finfo(dtype).tiny, abs(w))))
            assert error <= MOST_OF_GAMMA[dtype] * np.finfo(dtype).eps, (name, p, q, g, float(w))


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_edges_of_incomplete_gamma_functions(name: str) -> None:
    values = [0.0, -0.0, 0.5, 1.0, 30.0, 1e300, -1.0, INF, -INF]
    a, x = (t.ravel() for t in np.meshgrid(values, values, indexing="ij"))
    theirs = getattr(torch, name)(torch.tensor(a), torch.tensor(x)).numpy()
    huge = (a == 1e300) & (x == 1e300)  # 0.5; PyTorch's has 0 and 1
    got = getattr(Tensor(a), name)(Tensor(x)).numpy()
    np.testing.assert_allclose(got[~huge], theirs[~huge], rtol=1e-8)  # PyTorch's errs by 1e-9 at (30, 30)
    np.testing.assert_allclose(got[huge], 0.5)
    least = Tensor([5e-324, 5e-324, 1.0], dtype="float64")  # PyTorch's is 0 at the first two
    got = getattr(least, name)(Tensor([0.5, 5e-324, 5e-324], dtype="float64")).numpy()
    np.testing.assert_allclose(got, [1.0, 1.0, 5e-324] if name == "igamma" else [0.0, 0.0, 1.0], atol=1e-320)
    mixed = getattr(Tensor([NAN, NAN, NAN, INF, 1.0]), name)(Tensor([0.0, 1.0, INF, NAN, NAN]))
    assert mixed.isnan().all().item()  # PyTorch's has 0 or 1 where the other one is 0 or infinite
    own = getattr(monolect.special, {"igamma": "gammainc", "igammac": "gammaincc"}[name])
    assert own(Tensor([2.0]), Tensor([3.0])).tolist() == getattr(Tensor([2.0]), name)(3.0).tolist()
    assert getattr(Tensor([2]), name)(Tensor([3])).dtype is dtypes.float32
    changed = Tensor([2.0])
    assert getattr(changed, f"{name}_")(3.0) is changed and changed.item() == getattr(Tensor(2.0), name)(3.0).item()


def test_incomplete_gamma_functions_have_a_gradient_by_the_second_argument_alone() -> None:
    for name, sign in (("igamma", 1.0), ("igammac", -1.0)):
        a, x = Tensor([1.0, 1.0, 2.5, 300.0], requires_grad=True), Tensor([0.0, INF, 0.0, 310.0], requires_grad=True)
        with pytest.raises(GradientError, match=f"{name} by its first argument has no derivative"):
            getattr(a, name)(x).sum().backward()
        x.grad = None
        getattr(a.detach(), name)(x).sum().backward()
        density = float(mp.exp(299 * mp.log(310) - 310 - mp.loggamma(300)))
        np.testing.assert_allclose(x.grad.numpy(), np.array([1.0, 0.0, 0.0, density]) * sign, rtol=1e-6)
        row, column = Tensor([[1.0, 2.0, 3.0]], requires_grad=True), Tensor([[0.5], [4.0]])
        getattr(column, name)(row).sum().backward()
        theirs = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
        getattr(torch, name)(torch.tensor([[0.5], [4.0]]), theirs).sum().backward()
        np.testing.assert_allclose(row.grad.numpy(), theirs.grad.numpy(), rtol=1e-6)


def test_zeros_and_nan_of_products() -> None:
    x, y = [0.0, 0.0, 0.0, 2.0, NAN], [0.0, NAN, INF, -1.0, 1.0]
    want = torch.tensor(x).xlogy(torch.tensor(y)).numpy()
    np.testing.assert_array_equal(Tensor(x).xlogy(Tensor(y)).numpy(), want)
    a, b = [1.0, NAN, NAN, -0.0], [NAN, 2.0, NAN, 0.0]
    for name in ("fmax", "fmin"):
        want = getattr(torch.tensor(a), name)(torch.tensor(b)).numpy()
        np.testing.assert_array_equal(getattr(Tensor(a), name)(Tensor(b)).numpy(), want)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_parts_of_numbers(kind: str) -> None:
    tiny = np.finfo(kind).smallest_subnormal
    x = np.array([0.0, -0.0, 1.0, -3.5, tiny, -tiny, np.finfo(kind).max, INF, -INF, NAN], kind)
    found, want = Tensor(x).frexp(), torch.tensor(x).frexp()
    np.testing.assert_array_equal(found.mantissa.numpy(), want.mantissa.numpy())
    finite = np.isfinite(x)
    np.testing.assert_array_equal(found.exponent.numpy()[finite], want.exponent.numpy()[finite])
    for other in (0.0, 5.0, -5.0, INF):
        got = Tensor(x).nextafter(Tensor(np.full(len(x), other, kind))).numpy()
        with np.errstate(over="ignore", under="ignore"):
            np.testing.assert_array_equal(got, np.nextafter(x, np.array(other, kind)))


def test_real_numbers_have_the_queries_of_complex_ones() -> None:
    x = Tensor([1.0, -2.0])
    assert x.conj() is x and x.real is x and x.conj_physical() is x and x.positive() is x
    assert x.isreal().tolist() == [True, True] and not x.is_complex()
    with pytest.raises(DTypeError):
        Tensor([True]).positive()


def test_namespaces_and_integers() -> None:
    assert monolect.special.gammaln(Tensor(4.0)).item() == pytest.approx(np.log(6), rel=1e-7)
    assert monolect.special.polygamma(1, Tensor(1.0)).item() == pytest.approx(np.pi**2 / 6, rel=1e-7)
    assert monolect.polygamma(1, Tensor(1.0)).shape == () and monolect.special.psi(Tensor(1.0)).shape == ()
    for name in ("lgamma", "digamma", "i0", "erfinv", "entr", "ndtr", "xlogy"):
        got = getattr(Tensor([1, 0]), name)(*([2] if name == "xlogy" else []))
        assert got.dtype is dtypes.float32
    assert len(tensors(Tensor([1.5]).frexp())) == 2 and wide(Tensor([2]).lgamma()).shape == (1,)
    with pytest.raises(ArgumentError, match="polygamma"):
        Tensor([1.0]).polygamma(-1)
    with pytest.raises(DTypeError, match="gcd needs integers"):
        Tensor([1.0]).gcd(2)


@pytest.mark.sweep
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_derivatives_of_digamma_vanish_at_infinity(n: int) -> None:
    x = Tensor([INF, 3.0], requires_grad=True)
    assert x.polygamma(n + 1).tolist()[0] == 0.0
    _ = x.polygamma(n).sum().backward()
    assert x.grad.tolist()[0] == 0.0


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_a_product_with_a_logarithm_has_a_gradient_where_self_is_0(name: str) -> None:
    values = np.array([0.0, -0.0, 0.0, 0.0, 2.0], np.float32), np.array([0.5, 3.0, 1e30, -3.0, 0.5], np.float32)
    ours = [Tensor(v, requires_grad=True) for v in values]
    theirs = [torch.tensor(v, requires_grad=True) for v in values]
    y, wanted = getattr(ours[0], name)(ours[1]), getattr(torch.special, name)(*theirs)
    _ = y.sum().backward()
    wanted.sum().backward()
    np.testing.assert_allclose(y.numpy(), wanted.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(ours[0].grad.numpy(), theirs[0].grad.numpy(), rtol=1e-6)
    at = slice(0, 3)  # of the others PyTorch has nan or 0 for `other`
    np.testing.assert_allclose(ours[1].grad.numpy()[at], theirs[1].grad.numpy()[at], rtol=1e-6)


def test_polynomials_and_powers_at_infinity() -> None:
    for x in (float("inf"), float("nan")):
        assert Tensor([x]).vander(3).tolist()[0][2] == 1.0
        for name, n in (("legendre_polynomial_p", 0), ("hermite_polynomial_h", 2), ("chebyshev_polynomial_t", 0)):
            ours = getattr(monolect.special, name)(Tensor([x], dtype="float64"), n)
            theirs = getattr(torch.special, name)(torch.tensor([x], dtype=torch.float64), n)
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_an_operand_by_its_name_has_a_part_in_the_dtype() -> None:
    x, y = Tensor([2.0, 3.0]), Tensor([0.5, 1.5], dtype="float64")
    for named, given in ((x.zeta(other=y), x.zeta(y)), (x.xlogy(other=y), x.xlogy(y))):
        assert named.dtype is given.dtype and named.tolist() == given.tolist()


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_a_common_divisor_with_the_smallest_number_is_not_negative(dtype: Any) -> None:
    least = np.iinfo(dtype).min
    a = np.array([6, -9, 5, least, least // 2, least], dtype)
    b = np.array([least, least, least, 6, least, 0], dtype)
    assert Tensor(a).gcd(Tensor(b)).tolist() == [2, 1, 1, 2, -(least // 2), least]


def test_airy_function_beside_scipy() -> None:
    x = np.concatenate([np.linspace(-20, 100, 481), [0.0, -0.0, 1.0, -5.0, 1 + 1e-15, -5 - 1e-14, 300.0, -100.0]])
    value, slope, *_ = scipy_special.airy(x)
    ours = Tensor(x, requires_grad=True)
    got = monolect.special.airy_ai(ours)
    got.sum().backward()
    np.testing.assert_allclose(got.numpy(), value, rtol=2e-13, atol=1e-14)
    assert ours.grad is not None
    np.testing.assert_allclose(ours.grad.numpy(), slope, rtol=5e-13, atol=1e-12)
    np.testing.assert_allclose(got.numpy()[x > 1], value[x > 1], rtol=3e-13, atol=1e-307)
    check(lambda t: _special(t.detach(), "airy_ai"), (x[abs(x) < 10],), tolerance=1e-4)  # PyTorch errs by 2e-5
    narrow = Tensor(x.astype(np.float32)).airy_ai()
    assert narrow.dtype is dtypes.float32 and Tensor([1]).airy_ai().dtype is dtypes.float32
    np.testing.assert_allclose(
        narrow.numpy(), scipy_special.airy(x.astype(np.float32).astype(np.float64))[0], atol=3e-8
    )
    ends = Tensor(np.array([INF, -INF, NAN]), requires_grad=True)
    y = ends.airy_ai()
    y.sum().backward()
    assert y.tolist()[:2] == [0.0, 0.0] and np.isnan(y[2].item())
    assert ends.grad is not None and ends.grad.tolist()[:2] == [0.0, 0.0]
    assert Tensor.zeros(0, 3).airy_ai().shape == (0, 3) and Tensor(0.0).airy_ai().shape == ()


def test_real_is_the_tensor_itself() -> None:
    x = Tensor([1.5, -2.0], requires_grad=True)
    assert x.real is x and monolect.real(x) is x and monolect.real(Tensor([1])).dtype is dtypes.int64
    assert torch.real(torch.tensor([1.5])).tolist() == monolect.real(Tensor([1.5])).tolist()
