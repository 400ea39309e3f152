"""Records of a batch: names of files, kinds of input, and ids that occur twice."""

import re

import pytest

from flashtrace_lib.batch import read_records
from flashtrace_lib.batch.records import Record, Refused, as_records, file_name


@pytest.mark.parametrize(
    "identifier", ["../../x", "/etc/passwd", "a/b", "..", ".", "a\\b", "a\0b", "x" * 300, "日本", "~", " ", "a\nb"]
)
def test_no_id_is_a_path(identifier):
    name = file_name(identifier)
    assert re.fullmatch(r"[A-Za-z0-9-]+~[0-9a-f]{16}", name) and len(name) < 80
    assert file_name(name) != name and file_name(identifier + "x") != name  # no id can claim the name of another


def test_records_may_be_patterns_and_ranges():
    found = as_records([{"prompt": "a b", "response": "c 7", "output": re.compile(r"\d"), "input": (3, 4)}])
    assert isinstance(found[0], Record) and found[0].input == (3, 4)
    texts = as_records(
        [{"prompt": "a", "response": "(3, 4)", "output": name} for name in ("text:(3, 4)", "tokens:3:4")]
    )
    assert texts[0].content() != texts[1].content()
    assert isinstance(as_records(["a"])[0], Refused) and isinstance(
        as_records([{"prompt": "a", "output": 3}])[0], Refused
    )


def test_long_lists_of_twins_are_cut_short(tmp_path):
    (tmp_path / "r.jsonl").write_text('{"id": "a", "prompt": "x"}\n' * 20, encoding="utf-8")
    with pytest.raises(ValueError, match=r"lines 1, 2, 3, 4, 5, 6, 7, 8, 9 and … have the id 'a'"):
        read_records(tmp_path / "r.jsonl")
