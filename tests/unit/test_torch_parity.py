"""The page of PyTorch's names: what it calls present is there, and a test has it."""

import re

import pytest

from monolect.cli import main
from monolect.cli.surface.parity import NOT_YET, UNNAMED, page, rows
from monolect.cli.surface.torch_names import NAMES


@pytest.mark.parametrize("space", ["Tensor", "Tensor in place", "special", "linalg"])
def test_each_name_is_present_and_tested_or_has_a_reason(space: str) -> None:
    found = rows(space)
    assert [name for name, is_present, text in found if is_present and text == UNNAMED] == []
    assert [name for name, is_present, text in found if not is_present and text == NOT_YET] == []


def test_the_page_counts_its_names() -> None:
    text = page()
    for space, names in NAMES.items():
        present, absent = map(int, re.search(rf"^\| {re.escape(space)} \| (\d+) \| (\d+) \|$", text, re.M).groups())  # type: ignore[union-attr]
        assert present + absent == len(names)


def test_the_command_prints_a_line_for_each_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["torch-parity"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == sum(map(len, NAMES.values()))
