"""The `monolect` command: every table prints whole, and mistakes end with status 1 and a message, not a traceback."""

import itertools
import re
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest

from monolect import Tensor
from monolect.backend.cuda import render as cuda
from monolect.backend.python.runtime import PythonDevice
from monolect.backend.registry import TARGETS, Device
from monolect.base.errors import CompileError
from monolect.base.settings import TABLE, Context
from monolect.cli import COMMANDS, devices, main
from monolect.cli.glossary import TERMS, found
from monolect.cli.where import ROOT, find
from monolect.command.forms import calls_in, items_of, program_of
from monolect.ir.ops import ROWS
from monolect.ir.text import parse, show
from monolect.ir.uop import node
from monolect.pipeline import COMMAND, FAMILIES, GRAPH, MACHINE, PIPELINE
from monolect.pipeline import KERNEL as KERNEL_ROWS
from monolect.runtime.realize import varied
from monolect.runtime.realize.execute import plans
from tests.passes.conftest import assert_same_graph

KERNEL = """\
%0 = CONST idx[] (8, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[8] %1 ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
%3 = PARAM f32[8] %1 ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
%4 = RANGE idx[] %0 (0, "LOOP")
%5 = INDEX f32[] %2 %4
%6 = INDEX f32[] %3 %4
%7 = LOAD f32[] %6
%8 = CONST f32[] (1.0, f32)
%9 = ADD f32[] %7 %8
%10 = STORE void[] %5 %9
%11 = END void[] %10 %4
%12 = SINK void[] %11 KernelInfo(name="add_one")
"""


def test_ops_prints_every_row(capsys):
    assert main(["ops"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["op", *ROWS]


@pytest.mark.sweep
@pytest.mark.parametrize("name", ROWS)
def test_one_op_prints_its_row(capsys, name):
    assert main(["ops", name.lower()]) == 0
    out = capsys.readouterr().out
    assert ROWS[name].prose in out


def test_settings_prints_every_row_and_the_value_now(capsys):
    with Context(THREADS=17):
        assert main(["settings"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["setting", *(row.name for row in TABLE)]
    assert next(line for line in lines if line[0] == "THREADS")[1:3] == ["17", "0"]


@pytest.mark.parametrize("table", ["ops", "passes", "rules", "accuracy", "devices", "settings", "tuning"])
def test_markdown_is_one_table_with_equal_columns(capsys, table):
    assert main([table, "--markdown"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert len(lines) >= 2 + len(TARGETS)


def test_markdown_of_settings_does_not_depend_on_the_process(capsys):
    main(["settings", "--markdown"])
    first = capsys.readouterr().out
    with Context(THREADS=17):
        main(["settings", "--markdown"])
    assert capsys.readouterr().out == first


def test_an_unknown_op_is_status_one_without_traceback(capsys):
    assert main(["ops", "ADDD"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("monolect: unknown op\n  expected: one of PARAM, ")
    assert captured.err.endswith("  found: ADDD\n")


def test_an_unknown_command_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["opps"])
    assert caught.value.code == 2
    assert "invalid choice" in capsys.readouterr().err


def test_passes_prints_every_row_in_order(capsys):
    assert main(["passes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["pass", *(row.name for row in PIPELINE)]
    assert all(row.why in line for row, line in zip(PIPELINE, lines[1:], strict=True))


def test_rules_prints_names(capsys):
    assert main(["rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("decompose") and "threefry_as_rounds" in line for line in lines)
    names = [line.split()[1] for line in lines[1:]]
    assert names == [row.name for family in FAMILIES for row in family.rows.values()]
    assert all("monolect/" in line for line in lines[1:])


def test_devices_names_every_target_and_the_default(capsys):
    with Context(DEVICE="python"):
        assert main(["devices"]) == 0
    head, *rest = capsys.readouterr().out.splitlines()
    assert head.split() == "device status default dtypes matrix units compiler driver note".split()
    lines = {line.split()[0]: line.split() for line in rest if not line.startswith("Floats")}
    assert set(lines) - {"monolect"} == set(TARGETS)  # of a compiled build there is a line, too
    assert [name for name, cells in lines.items() if cells[2] == "yes"] == ["python"]


def test_devices_names_what_matrix_units_multiply(capsys, monkeypatch):
    monkeypatch.setattr(PythonDevice, "__init__", lambda self, name: setattr(self, "target", cuda.target(80)))
    monkeypatch.setattr(Device, "_open", {})
    assert main(["devices"]) == 0
    (line,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith("python"))
    assert " f16 bf16 i8 u8 i8*u8 u8*i8 f32 " in line and "f8" not in line


def test_devices_says_what_ran_what_was_compiled_and_why_not(monkeypatch):
    def found():
        return {row.name: row for row in devices.rows()}

    rows = found()
    assert rows["cpu"].status == rows["python"].status == "ran" and "llvmlite" in rows["cpu"].compiler
    assert "f64" in rows["cpu"].dtypes and rows["disk"].status == "opens"
    for name in ("cuda", "hip"):  # LLVM compiles for them everywhere
        assert rows[name].status in ("ran", "compiled") and rows[name].compiler
    assert rows["metal"].status == "rendered"
    with Context(CC="no-such-compiler"):
        absent = found()["c"]
    assert absent.status == "no" and "no-such-compiler is not on the PATH" in absent.note and "set CC" in absent.text

    def refused(source):
        raise CompileError("does not compile")

    monkeypatch.setattr(Device["cpu"], "compiler", SimpleNamespace(compile=refused))
    monkeypatch.setattr(Device["cpu"], "programs", {})
    plans.clear()
    with Context(COMPILE_CACHE=0):
        broken = found()["cpu"]
    assert broken.status == "no" and "does not compile" in broken.note


@pytest.fixture
def kernel(tmp_path):
    file = tmp_path / "kernel.ir"
    file.write_text(KERNEL)
    return str(file)


def texts_after(out: str) -> dict[str, str]:
    parts = out.split("# after ")[1:]
    return {part.partition(":")[0]: part.partition("\n")[2] for part in parts}


def test_run_prints_text_that_parses_after_each_pass(capsys, kernel):
    assert main(["run", kernel]) == 0
    after = texts_after(capsys.readouterr().out)
    assert list(after) == [row.name for row in (*KERNEL_ROWS, *MACHINE)]
    for text in after.values():
        assert show(parse(text)).strip() == text.strip()
    assert parse(after["linearize"]).op == "LINEAR"
    program = parse(after["compile"])
    assert [u.op for u in program.src] == ["LINEAR", "SOURCE", "BINARY"] and "define void @kernel" in program.src[1].arg
    assert program.src[2].arg.startswith(b"\x7fELF")


def test_run_takes_a_graph_to_a_command_buffer(capsys, tmp_path):
    """From text to text, in one go and from any pass on."""
    x, w = (Tensor(np.ones(s, np.float32)).realize() for s in ((4, 8), (8, 3)))
    graph = tmp_path / "graph.ir"
    graph.write_text(show(node("TUPLE", ((x @ w).relu().softmax(-1).uop, (x @ w).sum().uop))))
    assert main(["run", str(graph)]) == 0
    whole = texts_after(capsys.readouterr().out)
    assert list(whole) == [row.name for row in (*GRAPH, *COMMAND)]
    step = parse(whole["dependencies"])
    assert step.op == "FUNCTION" and {c.src[0].op for c in calls_in(items_of(program_of(step)))} == {"PROGRAM"}
    for stop, row in [(a.name, b.name) for a, b in zip((*GRAPH, *COMMAND)[1:], (*GRAPH, *COMMAND)[2:], strict=False)]:
        half = tmp_path / "half.ir"
        half.write_text(whole[stop])
        assert main(["run", str(half), "--from", row]) == 0
        assert_same_graph(parse(texts_after(capsys.readouterr().out)["dependencies"]), step)
    assert main(["run", str(graph), "--kernels", "--to", "lower"]) == 0
    assert "# kernel 0 after compile" in capsys.readouterr().out


def test_run_resumes_where_it_stopped(capsys, kernel, tmp_path):
    assert main(["run", kernel]) == 0
    whole = texts_after(capsys.readouterr().out)
    assert main(["run", kernel, "--to", "expand"]) == 0
    first = texts_after(capsys.readouterr().out)
    assert list(first)[-1] == "expand"
    half = tmp_path / "half.ir"
    half.write_text(first["expand"])
    assert main(["run", str(half), "--from", "peel_last"]) == 0
    second = texts_after(capsys.readouterr().out)
    resumed = {**first, **second}
    assert list(resumed) == list(whole)
    for name, text in whole.items():
        assert_same_graph(parse(resumed[name]), parse(text))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "no_pass"], "not a pass\n  expected: one of "),
        (["--from", "callify"], "stage TENSOR"),
        (["--from", "linearize", "--to", "expand"], "--from is later than --to"),
        (["--device", "cpuu"], "did you mean"),
    ],
)
def test_run_refuses_what_makes_no_sense(capsys, kernel, arguments, message):
    assert main(["run", kernel, *arguments]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read text IR"),
        (b"\xff", "not text IR"),
        (b"%0 = ADDD f32[]", "line 1"),
        (b"%0 = CONST idx[] (8, idx)\n%1 = IOTA i32[8] %0 i32", "IOTA"),
    ],
)
def test_run_refuses_bad_files(capsys, tmp_path, text, message):
    file = tmp_path / "bad.ir"
    if text is not None:
        file.write_bytes(text)
    assert main(["run", str(file)]) == 1
    assert message in capsys.readouterr().err


PROGRAM = """\
import sys
from monolect import Tensor
x = Tensor([1.0] * SIZE)
double = (x * 2).realize()
total = (double + 1).sum().item()
print("total", total, sys.argv[1:])
if __name__ == "__main__":
    sys.exit(0)
"""


SIZES = itertools.count()


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.py"
    # Equal kernels of one process are one kernel, from the line that was first: each test has a size of its own, which
    # no other file has. Numbers that differed in other tests would be inputs here.
    varied._programs.clear()
    file.write_text(PROGRAM.replace("SIZE", str(4507 + next(SIZES))))
    return str(file)


def test_explain_shows_each_kernel_from_line_to_code(capsys, program):
    assert main(["explain", program, "--fast"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("total ") and "['--fast']" in out.splitlines()[0]
    assert "program.py:4" in out and "program.py:5" in out
    for heading in ("buffers", "computes", "actions", "loops", "kernel IR", "generated code"):
        assert out.count(f"\n{heading}\n") == 2, heading
    assert "\n  4: double = (x * 2).realize()\n" in out
    assert "p0[r0] = p1[r0] * 2.0\n" in out or "p0[r0] = p1[r0] + p1[r0]\n" in out
    assert out.count("\nclass  ") == 2
    assert "2 kernels, " in out  # the table before the pages
    assert "define void" in out and "(loaded from the cache)" not in out


def test_explain_of_a_line_shows_its_kernels_only(capsys, program):
    assert main(["explain", f"{program}:4"]) == 0
    out = capsys.readouterr().out
    assert "program.py:4" in out and "program.py:5" not in out


def test_why_shows_the_candidates_and_what_rules_chose(capsys, tmp_path):
    file = tmp_path / "product.py"
    file.write_text(
        "from monolect import Tensor\n"
        "x = Tensor.zeros(96, 80).contiguous().realize()\n"
        "y = (x @ x.T.contiguous().realize()).realize()\n"
        "z = (x + 1).realize()\n"
    )
    assert main(["explain", "--brief", "--why", f"{file}:3"]) == 0
    page = capsys.readouterr().out.partition("class  gemm")[2].partition("\nweighed\n")[2]
    assert "bytes reached: 98304 (p0 36864, p1 30720, p2 30720): L" in page
    assert "chosen of tiles" in page and "tiles fit the registers" in page and "dot products" in page
    totals = [line.split() for line in page.splitlines() if " rows, " in line]
    for line in totals:
        at = next(k for k, word in enumerate(line) if word.endswith("rows,")) + 2
        total, *parts = map(float, line[at : at + 6])
        assert total == pytest.approx(sum(parts), rel=0.02, abs=0.4)
    assert main(["explain", "--brief", "--why", f"{file}:4"]) == 0
    assert "no estimated times: the actions follow from rules" in capsys.readouterr().out
    assert main(["explain", "--brief", f"{file}:4"]) == 0
    assert "weighed" not in capsys.readouterr().out


def test_a_brief_page_leaves_out_what_is_long(capsys, program):
    assert main(["explain", "--brief", f"{program}:5"]) == 0
    out = capsys.readouterr().out
    assert "sum(r1000 < " in out and "\nloops\n" in out
    assert "kernel IR" not in out and "generated code" not in out


@pytest.mark.parametrize(
    ("line", "message"), [(":3", "no kernel came from there"), ("x", "no such program\n  expected: FILE.py")]
)
def test_explain_refuses_what_is_not_there(capsys, program, line, message):
    assert main(["explain", program + line]) == 1
    assert message in capsys.readouterr().err


def test_where_finds_code_by_words(capsys):
    assert main(["where", "winograd"]) == 0
    out = capsys.readouterr().out
    assert "monolect/graphs/winograd.py:1" in out
    assert main(["where", "RowThatNobodyWrote"]) == 1
    assert "no name and no docstring has that word\n  expected: a word" in capsys.readouterr().err


@pytest.mark.sweep
@pytest.mark.parametrize(
    "word", ["prefetch", "gemv", "epilogue", "double buffer", "im2col", "roofline", "CSE", "peephole"]
)
def test_where_knows_the_terms_of_the_field(word, capsys):
    assert main(["where", word]) == 0
    assert "term " in capsys.readouterr().out.splitlines()[0]


def test_terms_name_modules_that_are_there():
    names = [t.name for t in TERMS]
    assert names == sorted(set(names)) and len(names) > 70
    assert [w for t in TERMS for w in t.where if not (ROOT / w).is_file()] == []
    assert all(t.meaning.endswith(".") and t.where for t in TERMS)
    assert found("spill")[0].name == "spill" and found("AMX")[0].name == "matrix unit" and found("nonesuch") == []


def test_names_come_before_what_only_mentions_them():
    found = find("lower_reduce")
    assert found[0][:2] == (f"monolect/lower/reduce.py:{found[0][0].rpartition(':')[2]}", "lower_reduce")
    assert all("lower_reduce" not in name for _, name, _ in found[1:])


def test_where_without_a_word_lists_every_module_with_a_sentence():
    found = find()
    names = [name for _, name, _ in found]
    assert "monolect.ir.uop" in names and len(names) == len(set(names)) > 200
    assert all(text for _, _, text in found)


def test_help_imports_no_compiler() -> None:
    code = "import sys\ntry: __import__('monolect.cli').cli.main(['--help'])\nfinally: print(*sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    text, _, loaded = run.stdout.rstrip().rpartition("\n")
    assert all(f"\n    {name}" in text for name in COMMANDS)
    assert not [m for m in loaded.split() if m in ("numpy", "rich") or m.startswith(("monolect.ir", "monolect.tensor"))]


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]
    run = subprocess.run([sys.executable, "-m", "monolect", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"monolect {project['version']}\n"


@pytest.mark.sweep
@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("table", ["passes", "settings", "modules", "glossary", "devices"])
def test_tables_fit_the_terminal(
    table: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([table]) == 0
    words = sorted(capsys.readouterr().out.split())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert main([table]) == 0
    text = capsys.readouterr().out
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(map(len, lines)) <= width
    if width == 200 and table in ("settings", "glossary"):  # no word is cut
        assert set(words) <= {*"\n".join(lines).split()}
    assert "\x1b[3" not in text, "NO_COLOR means no color"
