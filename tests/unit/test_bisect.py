"""`monolect bisect` names the fault that a program plants in the compiler, whatever its kind; and what it compares."""

import numpy as np
import pytest

from monolect import Context
from monolect.base.errors import SettingError
from monolect.cli import main
from monolect.cli.bisect import KINDS, Program, Result, _array_difference, _same_line, bisect, candidates, program_at
from monolect.pipeline import needed
from tests.strategies import often

PROGRAM = """
import sys
import numpy as np
from monolect import Tensor, pipeline
from monolect.ir.rewrite.named_rules import is_on
from monolect.ir.uop import SIMPLIFIERS, build, node, rebuild, toposort
from monolect.optimize.actions.plan import row_name
from monolect.rules.algebra import ALGEBRA

KERNEL = {row.name: row for row in pipeline.KERNEL}


def negated(ir):
    new = {}
    for u in toposort(ir):
        v = rebuild(u, tuple(new[s] for s in u.src))
        new[u] = node("STORE", (v.src[0], build("NEG", v.src[1])), v.arg) if v.op == "STORE" else v
    return new[ir]


def plant(name, wrong):
    right = KERNEL[name].run
    KERNEL[name] = KERNEL[name]._replace(run=lambda ir, target: wrong(right(ir, target)))
    pipeline.KERNEL = tuple(KERNEL.values())


def is_cut(ir):
    return any(row_name(action) == "SPLIT_UPCAST" for action in ir.arg.actions)


times = SIMPLIFIERS["MUL"]
match sys.argv[1]:
    case "identity":
        SIMPLIFIERS["MUL"] = lambda src, arg: (
            build("NEG", src[0]) if src[0].dtype.is_float and src[1].arg == (1, src[1].dtype) and is_on("mul_one")
            else times(src, arg)
        )
    case "rule":
        next(r for r in ALGEBRA if r.name == "div_power_of_two").replacement = lambda x, c: x * c
    case "pass":
        plant("merge_ranges", negated)
    case "action":
        plant("apply", lambda ir: negated(ir) if is_cut(ir) else ir)
x = Tensor(np.arange(192, dtype=np.float32).reshape(6, 32)) * 1.0
y = (x / 8).sum(0).numpy()
print("the sums are", y.tolist())
print(len(y), "of them")
if len(sys.argv) > 2:
    np.savez(sys.argv[2], y=y, n=len(y))
sys.exit(int(sys.argv[1] == "status" and is_on("SPLIT_UPCAST")))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    file = tmp_path_factory.mktemp("bisect") / "program.py"
    file.write_text(PROGRAM)
    return str(file)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("planted", "kind", "name"),
    [
        ("identity", "rule", "mul_one"),
        ("rule", "rule", "div_power_of_two"),
        # `test_arrays_that_a_program_saves_are_compared_instead_of_what_it_prints` finds this one, too
        pytest.param("pass", "pass", "merge_ranges", marks=pytest.mark.slow),
        ("action", "action", "SPLIT_UPCAST"),
        # the case before finds an action, too, and `test_results_with_other_lines_or_arrays_differ` compares statuses
        pytest.param("status", "action", "SPLIT_UPCAST", marks=pytest.mark.slow),
    ],
)
def test_a_planted_fault_is_named(planted, kind, name, program, capsys, monkeypatch):
    """A fault of a rule is one of every device; the device python starts and compiles sooner than others."""
    if kind == "rule":
        monkeypatch.setenv("DEVICE", "python")
    is_whole = planted == "action" and often(0, 1)  # all kinds, in `make test-all`: each run is a process
    only = [] if is_whole else ["--only", kind]
    assert main(["bisect", *only, program, planted]) == 0
    out = capsys.readouterr().out
    first, *others = [line for line in out.splitlines() if line.startswith(("found", "also"))]
    assert first.startswith(f"found: {kind} {name}: ") and "monolect/" in first and "together" not in first
    assert not others or is_whole  # without some rules loops are others, and cut otherwise
    assert out.startswith("with all, or with ")
    assert ("exit status 1 or 0" if planted == "status" else "line 1: 'the sums are [") in out
    assert f"DISABLE={name} switches it off" in out


def test_a_program_without_a_fault(program, capsys):
    assert main(["bisect", program, "none"]) == 0
    assert capsys.readouterr().out.startswith("the result is the same with all ")


def test_arrays_that_a_program_saves_are_compared_instead_of_what_it_prints(program, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DEVICE", "python")  # which starts sooner than others
    saved = str(tmp_path / "y.npz")
    assert main(["bisect", "--only", "pass", "--outputs", saved, program, "pass", saved]) == 0
    out = capsys.readouterr().out
    assert f"{saved} y: differs by up to " in out and "found: pass merge_ranges: " in out


class Pretended(Program):
    """A program that prints a function of what is off, without a process."""

    def __init__(self, printed):
        super().__init__("", [], [], 1e-4, 1)
        self.printed = printed

    def run(self, names):
        self.runs += 1
        return Result(0, self.printed(set(names.split(","))), {}, "")


def test_a_fault_that_two_names_cause(capsys):
    """Each of two of one kind is enough for it: neither alone switches it off."""
    bisect(Pretended(lambda off: str({"PADTO", "SPLIT_LOCAL"} <= off)))
    *_, found, last = capsys.readouterr().out.splitlines()
    assert found.startswith("found: action SPLIT_LOCAL: ") and found.endswith(", together with others before it")
    off = last.partition("DISABLE=")[2].split()[0].split(",")
    assert "PADTO" in off and off[-1] == "SPLIT_LOCAL"


def test_a_fault_that_names_of_two_kinds_cause(capsys):
    bisect(Pretended(lambda off: str({"merge_ranges", "SPLIT_LOCAL"} <= off)))
    *_, found, last = capsys.readouterr().out.splitlines()
    assert found.startswith("found: pass merge_ranges: ") and "SPLIT_LOCAL" in last


def test_each_name_is_found_in_few_runs(capsys):
    for c in candidates():
        program = Pretended(lambda off, name=c.name: str(name in off))
        bisect(program)
        (found,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("found", "also"))]
        assert found.startswith(f"found: {c.kind} {c.name}: ") and program.runs <= 16


def test_a_third_result_is_not_the_second(capsys):
    """An action that only changes the wrong result is not the one that causes it."""
    bisect(Pretended(lambda off: "right" if "fold_sums" in off else f"wrong {'SWAP' in off}"))
    (found,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("found", "also"))]
    assert found.startswith("found: pass fold_sums")


def test_a_name_that_is_skipped_stays_on(capsys):
    program = Pretended(lambda off: str("merge_ranges" in off))
    bisect(program, ["merge_ranges"])
    assert "the result is the same with all " in capsys.readouterr().out
    with Context(DISABLE="merge_ranges"):
        bisect(Pretended(program.printed))
    assert "the result is the same with all " in capsys.readouterr().out


def test_errors(program, tmp_path, capsys):
    """Each ends with status 1 and says what was expected."""
    other = tmp_path / "other.py"
    other.write_text("import random\nprint('drawn', random.random())")
    slow = tmp_path / "slow.py"
    slow.write_text("import time\ntime.sleep(60)")
    cases = {
        ("absent.py",): "no such program",
        (str(other),): "two runs of the program differ",
        ("--timeout", "0.5", str(slow)): "the program runs too long",
        ("--outputs", "absent.npy", program, "none"): "a file that each run writes",
        ("--skip", "merge_range", program): "merge_ranges (did you mean that?)",
        ("--skip", "expand", program): "cannot be switched off: no other pass does its lowering",
    }
    for arguments, text in cases.items():
        assert main(["bisect", *arguments]) == 1
        assert text in capsys.readouterr().err


def test_all_that_is_optional_is_a_candidate_and_nothing_else():
    found = candidates()
    assert {c.name for c in found} == {name for name, why in needed().items() if not why}
    assert [c.kind for c in found] == sorted((c.kind for c in found), key=KINDS.index)
    assert all(c.text and c.where for c in found)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("loss 1.00000 after 3", "loss 1.00001 after 3", True),
        ("loss 1.00000 after 3", "loss 1.00001 after 4", False),
        ("loss 1.0", "loss 1.1", False),
        ("[1e+20, 0.5]", "[1e+20, -0.5]", True),  # far below the largest of the line
        ("nan", "nan", True),
        ("inf", "-inf", False),
        ("1.5e-3 ok", "1.5e-3 bad", False),
    ],
)
def test_lines_that_are_the_same(a, b, same):
    assert _same_line(a, b, 1e-4) is same


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (np.float32([1, np.nan]), np.float32([1.00001, np.nan]), ""),
        (np.float32([1, np.nan]), np.float32([1.001, np.nan]), "differs by up to 0.001"),
        (np.float32([1, np.inf]), np.float32([1, 2]), "or in what is finite"),
        (np.int32([1, 2]), np.int32([1, 3]), "1 elements differ"),
        (np.int32([1, 2]), np.int64([1, 2]), "int32[2] or int64[2]"),
    ],
)
def test_arrays_that_are_the_same(a, b, text):
    assert text in _array_difference(a, b, 1e-4) and bool(text) == bool(_array_difference(a, b, 1e-4))


def test_results_with_other_lines_or_arrays_differ(program):
    p = program_at(program, [], [], 1e-4, 10)
    usual = Result(0, "a\nb\n", {}, "")
    assert p.difference(usual, usual) == ""
    assert p.difference(usual, Result(0, "a\n", {}, "")) == "2 or 1 lines"
    assert p.difference(usual, Result(2, "a\nb\n", {}, "E: x")) == "exit status 0 or 2 (E: x)"
    assert p.difference(usual, Result(0, "", {"x": np.zeros(1)}, "")) == "arrays [] or ['x']"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("mul_ane", "mul_one (did you mean that?)"),
        ("SPLIT_UPCASTS", "SPLIT_UPCAST (did you mean that?)"),
        ("merge_range", "merge_ranges (did you mean that?)"),
        ("mul_one,xyzzy", "a name that `monolect rules` or `monolect passes` prints"),
        ("lower_reduce", "cannot be switched off: no other pass does its lowering"),
        ("index_numbers", "cannot be switched off: sizes of shapes and loops are numbers"),
    ],
)
def test_names_are_checked_when_they_are_set(names, text):
    with pytest.raises(SettingError) as caught:
        Context(DISABLE=names)
    assert text in str(caught.value)
