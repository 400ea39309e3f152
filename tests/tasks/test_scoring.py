"""Answer scoring: whole words, fractions, exact sets, the registry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.scoring import SCORERS, contains, is_correct, score


def example(*answers, scorer="substring_recall", **metadata):
    return Example("x-0", "ruler", "h2_c1", "prompt", answers, scorer=scorer, metadata=metadata)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("12345", True), ("it is 12345.", True), ("(12345)", True), ("**12345**, 7", True), ("123456", False),
        ("012345", False), ("x12345", False), ("12345x", False), ("", False), ("123456 and 12345", True),
    ],
)  # fmt: skip
def test_answers_are_whole_words(text, found):
    assert contains(text, "12345") is found
    assert score(example("12345"), text) == float(found)


def test_letter_case_and_pattern_characters():
    assert contains("the variable abcde", "ABCDE")
    assert contains("costs $5.00 (net)", "$5.00")
    assert not contains("costs $5x00", "$5.00")


@given(st.lists(st.integers(10**6, 10**7 - 1), min_size=1, max_size=8, unique=True), st.data())
def test_recall_is_the_fraction_of_answers_given(values, data):
    given_back = data.draw(st.lists(st.sampled_from(values), unique=True))
    text, ex = "They are " + ", ".join(map(str, given_back)) + ".", example(*map(str, values))
    assert score(ex, text) == pytest.approx(len(given_back) / len(values))
    assert is_correct(ex, text) is (len(given_back) == len(values))


@pytest.mark.parametrize(("text", "recall", "exact"), [
    ("The variables are: ABCDE, FGHIJ.", 1.0, 1.0), ("FGHIJ ABCDE FGHIJ", 1.0, 1.0), ("ABCDE, FGHIJ, KLMNO", 1.0, 0.0),
    ("ABCDE", 0.5, 0.0), ("none", 0.0, 0.0),
])  # fmt: skip
def test_exact_set_wants_nothing_else(text, recall, exact):
    ex = example("ABCDE", "FGHIJ", answer_pattern=r"\b[A-Z]{5}\b")
    assert score(ex, text) == recall
    assert score(ex, text, "exact_set") == exact
    assert is_correct(ex, text, scorer="exact_set") is (exact == 1.0)
    assert score(example("ABCDE", "FGHIJ", scorer="exact_set", answer_pattern=r"\b[A-Z]{5}\b"), text) == exact


def test_a_registered_scorer_is_used(monkeypatch):
    monkeypatch.setitem(SCORERS, "half", lambda ex, text: 0.5)
    assert score(example("a", scorer="half"), "a") == 0.5
    assert not is_correct(example("a", scorer="half"), "a")


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="unknown scorer 'nope': choose one of substring_recall"):
        score(example("a", scorer="nope"), "a")
    with pytest.raises(ValueError, match="x-0 has no answers"):
        score(example(), "a")
    with pytest.raises(ValueError, match="needs metadata\\['answer_pattern'\\]"):
        score(example("a"), "a", "exact_set")
