"""Each method of Tensor at its edges, beside PyTorch: the rows of `edge_rows_of_axes` and `edge_rows_of_values`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Tensor
from monolect.base.names import METHODS
from tests.fuzz import edge_rows_of_axes, edge_rows_of_values
from tests.fuzz.edges import ROWS, Dice, outcome

# tested in tests/unit/test_surface.py
FORMS = {n for kind, names in METHODS.items() if "in_place_forms" in kind for n in names.split()}
FOLDERS = (  # tested in tests/unit: test_surface_*.py, test_windows.py, test_margins.py, test_modules.py
    "arrangement", "pointwise", "products", "selection", "statistics", "windows", "alignment", "distance", "drop",
    "gates", "margins", "tables",
)  # fmt: skip
FAMILIES = {n for kind, names in METHODS.items() if {*kind.split(".")} & {*FOLDERS} for n in names.split()}
MANY = max(3, settings().max_examples // 25)  # cases of each row
assert edge_rows_of_axes and edge_rows_of_values  # imported for their rows
OTHERWISE = {  # tested elsewhere, since PyTorch has no such method, or other numbers, or it computes nothing
    "random": "bernoulli binomial dropout kaiming_normal kaiming_uniform manual_seed multinomial normal poisson rand "
    "rand_like randint randint_like randn randn_like randperm uniform xavier_normal xavier_uniform",
    "random, in place": "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_",
    "of test_views.py": "squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_",
    "attributes": "data device dim dtype element_size grad is_floating_point is_contiguous is_leaf nbytes ndim numel "
    "requires_grad "
    "requires_grad_ shape size stride uop",
    "hooks": "register_hook register_post_accumulate_grad_hook retain_grad retains_grad",
    "several devices": "copy replicate replicated shard shard_axis",
    "memory": "assign backward buffer clone contiguous contiguous_backward cpu detach detach_ empty empty_like "
    "from_dlpack from_file from_numpy item numpy realize to to_device tolist",
    "values alone": "allclose equal full_like ones ones_like zeros zeros_like",
    "of `cast`": "bfloat16 bitcast bool byte char double float half int long short type_as",
    "other names": "absolute arccos arccosh arcsin arcsinh arctan arctan2 arctanh clip concat "
    "concatenate divide fix greater greater_equal less less_equal moveaxis multiply negative "
    "not_equal subtract swapaxes swapdims true_divide type view",
    "of other rows": "broadcast_to clamp_max clamp_min expand_as fma pad_to reshape_as shrink shrink_to swish view_as",
}


def test_every_method_has_a_row() -> None:
    otherwise = {*" ".join(OTHERWISE.values()).split()}
    public = {name for name in dir(Tensor) if not name.startswith("_") and hasattr(Tensor, name)}
    assert public - {*ROWS} - FORMS - FAMILIES == otherwise


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=MANY)
@given(seed=st.integers(0, 2**31))
def test_edges(name: str, seed: int) -> None:
    case = ROWS[name](Dice(seed))
    if case is not None:
        with np.errstate(all="ignore"):
            found = outcome(case)
        assert not found.startswith(("WRONG", "CRASH")), f"{case.text} of {case.operands}: {found}"
