"""YAML with lines: where a value stands, in later documents and by merge keys too; what cannot be read."""

from itertools import pairwise

import pytest

from protocol.yaml_text import YamlTextError, line_of, parse_yaml, plain

TEXT = """\
base: &base
  x: 1
made:
  <<: *base
  w: [a, b]
---
second: {deep: 5}
"""


@pytest.mark.parametrize(
    ("number", "path", "line"),
    [
        (0, ("made", "w", 1), 5),
        (0, ("made", "w", 7), 5),
        (0, ("made", "x"), 3),  # it comes from elsewhere: that of what takes it in
        (0, ("nothing",), 1),
        (1, ("second", "deep"), 7),
    ],
)
def test_a_path_leads_to_a_line(number, path, line):
    assert line_of(parse_yaml(TEXT)[number], path) == line


def test_a_document_without_its_marks():
    first, second = (plain(document) for document in parse_yaml(TEXT))
    assert first["made"] == {"x": 1, "w": ["a", "b"]}
    assert second == {"second": {"deep": 5}}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\nb: [", 2, "not valid YAML"),
        ("a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
            f"{here}: &{here} [{','.join([f'*{there}'] * 10)}]\n" for there, here in pairwise("abcdefg")
        ), 1, "aliases"),
        ("[" * 5000, 1, "nested too deeply"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_costs_an_error(text, line, said):
    with pytest.raises(YamlTextError, match=said) as raised:
        parse_yaml(text)
    assert raised.value.line == line
