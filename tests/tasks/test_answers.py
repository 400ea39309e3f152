"""Answers as mathematics and in words: what counts as the same."""

import threading
import time

import pytest

from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.scoring import is_correct, normalised, score


def example(*answers, scorer):
    return Example("x-0", "math500", "math500", "prompt", answers, scorer=scorer)


@pytest.mark.parametrize(
    ("answer", "box", "right"),
    [
        ("12", "12", True), ("12", "12.0", True), ("0.5", r"\frac12", True), (r"\frac{3}{4}", "3/4", True),
        ("1000", "1{,}000", True), ("1000", "1,000", True), (r"\text{Evelyn}", "Evelyn", True),
        (r"\{1, 2\}", r"\{2, 1\}", True), ("(1, 2)", "(2, 1)", False), ("x^2+2x+1", "(x+1)^2", True),
        ("12", "13", False), ("12", "", False), ("12", "apples", False),
    ],
)  # fmt: skip
def test_a_box_is_read_as_mathematics(answer, box, right):
    assert is_correct(example(answer, scorer="boxed"), rf"So it is $\boxed{{{box}}}$.") is right


def test_an_endless_comparison_is_a_wrong_answer(caplog):
    start = time.perf_counter()
    assert score(example("12", scorer="boxed"), r"\boxed{9^{9^{9^{9^9}}}}") == 0.0
    assert time.perf_counter() - start < 20
    assert not caplog.records


def test_boxes_are_compared_outside_the_main_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(score(example("0.5", scorer="boxed"), r"\boxed{\frac12}")))
    thread.start()
    thread.join()
    assert found == [1.0]


@pytest.mark.parametrize(
    ("answer", "text", "right"),
    [
        ("Matt Flynn", "The answer is matt flynn.", True), ("Matt Flynn", "Flynn, Matt", False),
        ("3,677 seated", "It has 3677 seated places", True), ("324.0", "324", True), ("116", "1160", False),
        ("116", "It is 116.", True), ("1982-05-22", "It was May 22, 1982.", True), ("22 May 1982", "1982-05-22", True),
        ("March 3rd, 2012", "on the 3rd of March 2012", True), ("two", "There are 2.", True),
        ("a", "The answer is a.", True),  # a letter that was asked for, not an article
        ("a", "It is a letter of the word.", False),
        ("Serie A", "Roma plays in Serie A, the top league.", True),  # articles count in both or in neither
        ("Serie A", "Roma plays in Serie B, a league.", False),
        ("Vitamin A", "It is a vitamin, the second one.", False), ("an apple a day", "He ate an apple a day.", True),
        ("the North Atlantic Conference", "North Atlantic Conference", True), ("yes", "The answer is yes.", True),
        ("yes", "yes and no", False), ("no", "No, they are not.", True), ("no", "nobody knows", False),
        ("-5", "minus: -5", True), ("5", "-5", False),
        ("2013", "It ran from 1986-2013.", True),  # a range, no minus sign
    ],
)  # fmt: skip
def test_answers_in_words(answer, text, right):
    assert is_correct(example(answer, scorer="qa_match"), text) is right


def test_normal_form():
    assert normalised("The  1,234,567 seats, on 1 January 2000!") == ["1234567", "seats", "on", "2000-01-01"]
    assert normalised("1,2") == ["1", "2"]
