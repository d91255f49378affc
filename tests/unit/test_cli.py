"""The `monolect` command: every table prints whole, and mistakes end with status 1 and a message, not a traceback."""

import pytest

from monolect.base.settings import TABLE, Context
from monolect.cli import main
from monolect.ir.ops import ROWS


def test_ops_prints_every_row(capsys):
    assert main(["ops"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["op", *ROWS]


@pytest.mark.parametrize("name", ROWS)
def test_one_op_prints_its_row(capsys, name):
    assert main(["ops", name.lower()]) == 0
    out = capsys.readouterr().out
    assert ROWS[name].prose in out


def test_settings_prints_every_row_and_the_value_now(capsys):
    with Context(BEAM=17):
        assert main(["settings"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["setting", *(row.name for row in TABLE)]
    assert next(line for line in lines if line[0] == "BEAM")[1:3] == ["17", "0"]


@pytest.mark.parametrize("table", ["ops", "settings"])
def test_markdown_is_one_table_with_equal_columns(capsys, table):
    assert main([table, "--markdown"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert len(lines) > 10


def test_markdown_of_settings_does_not_depend_on_the_process(capsys):
    main(["settings", "--markdown"])
    first = capsys.readouterr().out
    with Context(BEAM=17):
        main(["settings", "--markdown"])
    assert capsys.readouterr().out == first


def test_an_unknown_op_is_status_one_without_traceback(capsys):
    assert main(["ops", "ADDD"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("monolect: unknown op ADDD\n  expected: one of PARAM, ")


def test_an_unknown_command_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["opps"])
    assert caught.value.code == 2
    assert "invalid choice" in capsys.readouterr().err
