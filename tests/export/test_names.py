"""Names of C from names and texts of the user's: identifiers, each once, whatever they are made of."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect.export.names import KEYWORDS, Names, comment, identifier

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@pytest.mark.parametrize(("text", "name"), [
    ("image", "image"),
    ("conv1.weight", "conv1_weight"),
    ("größe", "gr_e"),
    ("été", "t"),
    ("数", "x"),
    ("0", "x_0"),
    ("3d", "x_3d"),
    ("int", "int_"),
    ("class", "class_"),
    ("NULL", "NULL_"),
    ("X", "X_"),
    ("__init__", "init"),
    ("_x", "x"),
    ("f32", "f32_"),
    ("int32_t", "int32_t_"),
    ("x; system(\"rm\")", "x_system_rm"),
    ("$(shell rm)", "shell_rm"),
    ("a/* */b", "a_b"),
    ("", "x"),
])  # fmt: skip
def test_a_text_as_a_name(text, name):
    assert identifier(text) == name


@given(st.lists(st.text(), max_size=8))
def test_names_are_identifiers_and_each_is_another(texts):
    names = Names(["weights"])
    made = [names.new(text, "arg") for text in texts]
    assert len({*made, "weights"}) == len(made) + 1
    for name in made:
        assert IDENTIFIER.fullmatch(name) and name not in KEYWORDS and "__" not in name


@given(st.text())
def test_a_comment_stays_one(text):
    made = comment(text)
    assert made.isascii() and not re.search(r"\*/|/\*|[\n\r\\?]", made)
    assert not made.endswith("/") or "*" not in made[-2:-1]


@pytest.mark.parametrize("text", ["*/ int x; /*", "**//", "a\n#include <x>", "??/", "//**/*/", "/*/"])
def test_a_comment_is_not_ended(text):
    assert not re.search(r"\*/|/\*|[\n\\?]", comment(text))
