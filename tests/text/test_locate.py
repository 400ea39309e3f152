import pytest

from flashtrace_lib.text.labels import find_boxed
from flashtrace_lib.text.locate import locate_segments, sentence_spans


def test_boxed_braces():
    text = r"\boxed{1} then \boxed{\{1, 2\} \frac{a}{b}} and \boxed{open"
    start, stop = find_boxed(text)
    assert text[start:stop] == r"\boxed{\{1, 2\} \frac{a}{b}}"
    assert find_boxed(r"boxed{1}") is None


def test_reasoning_is_looked_for_before_the_output():
    text = "one two one"
    found = locate_segments(text, "one", "two")
    assert found.reasoning == (0, 3) and found.output == (4, 7)


@pytest.mark.parametrize(
    "text", ["", "  \n", "x" * 9000, "A b. C d! E? " * 900, "\n\nOne.\n\n\tTwo (e.g. this).\n", "日本。東京。"]
)
def test_sentences_tile_any_text(text):
    spans = sentence_spans(text)
    assert "".join(text[a:b] for a, b in spans) == text
    assert all(a < b for a, b in spans)


def test_windows_do_not_cut_sentences():
    sentence = "The grass is green and the sky over it is blue. "
    assert [b - a for a, b in sentence_spans(sentence * 300)] == [len(sentence)] * 300
