"""Examples of generated names whose methods show another name, or numbers that the in-place form cannot hold."""

# form or method -> (expression, what it prints)
_ROWS = {
    "real": ("monolect.real(Tensor([1.0])).tolist()", "[1.0]"),
    "add_": ("Tensor([1, 2]).add_(Tensor([10, 20]), alpha=2).tolist()", "[21, 42]"),
    "eq_": ("Tensor([1, 2, 3]).eq_(2).tolist()", "[0, 1, 0]"),
    "ne_": ("Tensor([1, 2, 3]).ne_(2).tolist()", "[1, 0, 1]"),
    "lt_": ("Tensor([1, 2, 3]).lt_(2).tolist()", "[1, 0, 0]"),
    "le_": ("Tensor([1, 2, 3]).le_(2).tolist()", "[1, 1, 0]"),
    "gt_": ("Tensor([1, 2, 3]).gt_(2).tolist()", "[0, 0, 1]"),
    "ge_": ("Tensor([1, 2, 3]).ge_(2).tolist()", "[0, 1, 1]"),
    "float_power_": ("Tensor([2.0, 4.0], dtype=dtypes.float64).float_power_(-1).tolist()", "[0.5, 0.25]"),
    "logical_and_": ("Tensor([0, 1, 2]).logical_and_(Tensor([1, 0, 3])).tolist()", "[0, 0, 1]"),
    "logical_not_": ("Tensor([0, 2]).logical_not_().tolist()", "[1, 0]"),
    "logical_or_": ("Tensor([0, 0, 2]).logical_or_(Tensor([1, 0, 3])).tolist()", "[1, 0, 1]"),
    "logical_xor_": ("Tensor([0, 0, 2]).logical_xor_(Tensor([1, 0, 3])).tolist()", "[1, 0, 0]"),
    "mul_": ("Tensor([1.0, 2.0]).mul_(Tensor([2.0, 0.5])).tolist()", "[2.0, 1.0]"),
    "reciprocal_": ("Tensor([2.0, 4.0]).reciprocal_().tolist()", "[0.5, 0.25]"),
    "hypot_": ("Tensor([3.0, 30.0]).hypot_(Tensor([4.0, 40.0])).tolist()", "[5.0, 50.0]"),
    "bitwise_and": ("Tensor([12, 10]).bitwise_and(6).tolist()", "[4, 2]"),
    "bitwise_or": ("Tensor([12, 10]).bitwise_or(6).tolist()", "[14, 14]"),
    "bitwise_xor": ("Tensor([12, 10]).bitwise_xor(6).tolist()", "[10, 12]"),
    "bitwise_not": ("Tensor([0, 5]).bitwise_not().tolist()", "[-1, -6]"),
    "bitwise_left_shift": ("Tensor([1, 5]).bitwise_left_shift(2).tolist()", "[4, 20]"),
    "bitwise_right_shift": ("Tensor([20, -5]).bitwise_right_shift(2).tolist()", "[5, -2]"),
}
EXAMPLES: dict[str, str] = {name: f">>> {source}\n{prints}\n" for name, (source, prints) in _ROWS.items()}

__all__ = ["EXAMPLES"]
