"""Word problems of many steps: formulas written down here give the same answers, and every equation holds."""

import re

import pytest

from flashtrace_lib.tasks.scoring import is_correct
from flashtrace_lib.tasks.synthetic.calculations import solve
from flashtrace_lib.tasks.synthetic.long_word_problems import PROBLEMS, long_word_problems
from tests.tasks.test_ruler import count, tokenizer  # noqa: F401 - the fixture is asked for by its name

FORMULAS = {
    "stock": lambda v: (v["a"] * v["b"] + v["c"] - v["d"]) * v["e"],
    "wages": lambda v: v["a"] * v["b"] * v["c"] - v["d"] - v["e"],
    "harvest": lambda v: (v["a"] * v["b"] + v["c"] * v["d"] - v["e"]) / v["k"],
    "journey": lambda v: v["b"] + v["d"] + (v["e"] - v["a"] * v["b"] - v["c"] * v["d"]) / v["k"],
}
EQUATION = re.compile(r"\d[\d +*/=-]*=[\d +*/=-]*\d")
EXAMPLES = [e for split in ("train", "eval") for e in long_word_problems(120, seed=2, split=split)]


def numbers(text):
    return sorted(map(int, re.findall(r"\d+", text)))


def kind_of(example):
    return example.metadata["template"].partition("/")[0]


def test_the_answer_follows_from_the_numbers_of_the_evidence():
    for example in EXAMPLES:
        given = example.metadata["numbers"]
        assert numbers(" ".join(example.prompt[a:b] for a, b in example.evidence)) == sorted(given.values())
        assert float(example.answers[0]) == FORMULAS[kind_of(example)](given) > 0
        assert is_correct(example, example.output) and not is_correct(example, "\\boxed{0}")


def test_every_equation_of_the_reasoning_holds_and_the_numbers_are_positive():
    for example in EXAMPLES:
        lines = example.reasoning.split("\n")
        assert 4 <= len(lines) <= 7 and len(lines) == len(example.metadata["steps"])
        for line in lines:
            found = EQUATION.search(line)[0]
            assert line.count("=") == found.count("="), line
            assert len({eval(side) for side in found.split("=")}) == 1
            assert min(numbers(line)) > 0
        assert all(re.search(rf"\b{n}\b", example.reasoning) for n in example.metadata["numbers"].values())


def test_one_or_two_numbers_are_not_needed():
    for example in EXAMPLES:
        extra, given = example.metadata["irrelevant"], example.metadata["numbers"]
        assert 1 <= len(extra) <= 2
        assert numbers(example.prompt) == sorted([*extra, *given.values()])
        assert not set(extra) & set(solve(PROBLEMS[kind_of(example)], given, 999).values())
        assert not any(re.search(rf"\b{number}\b", example.reasoning) for number in extra if number > 100)


def test_prompts_and_reasoning_have_their_lengths(tokenizer):  # noqa: F811
    for example in EXAMPLES:
        assert 60 <= count(tokenizer, example.prompt) <= 150, example.prompt
        assert count(tokenizer, example.reasoning) >= 100


def test_a_kind_can_be_asked_for():
    assert {kind_of(e) for e in long_word_problems(6, kinds=["wages", "stock"])} == {"wages", "stock"}
    with pytest.raises(ValueError, match=r"unknown kind \(\)"):
        long_word_problems(1, kinds=[])
