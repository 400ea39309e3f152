"""Exercises of more than a line: the reference solutions pass their tests, and other code does not."""

import ast

import pytest

from flashtrace_lib.tasks.scoring import is_correct
from flashtrace_lib.tasks.synthetic.long_exercises import EXERCISES, long_exercises


def one_of_each(split):
    return long_exercises(len(EXERCISES), seed=4, split=split)


@pytest.mark.parametrize("split", ("train", "eval"))
def test_solutions_pass_in_the_sandbox_and_stubs_fail(split):
    examples = one_of_each(split)
    assert {example.metadata["template"].partition("/")[0] for example in examples} == set(EXERCISES)
    for example in examples:
        assert example.scorer == "unit_tests" and is_correct(example, example.output)
        assert not is_correct(example, example.prompt)  # its last block of code is the stub


def test_another_constant_is_another_function():
    """The tests of an exercise tell its constants apart, or a wrong answer would pass."""
    for example in one_of_each("train"):
        number = next(n for n in example.metadata["numbers"] if n.isdigit())
        assert not is_correct(example, example.output.replace(number, str(int(number) + 40))), example.output


def test_functions_have_five_lines_and_words_to_explain_them():
    for example in [*long_exercises(60, split="train"), *long_exercises(60, split="eval")]:
        (code,) = example.answers
        (function,) = ast.parse(code).body
        assert len(code.strip().split("\n")) >= 6 and any(
            isinstance(n, (ast.For, ast.While)) for n in ast.walk(function)
        )
        told = example.prompt[slice(*example.haystack)]
        gold = " ".join(example.prompt[a:b] for a, b in example.evidence)
        assert gold in told and gold in example.reasoning and len(told) > len(gold) + 20  # something is not needed
        assert all(number in gold for number in example.metadata["numbers"])
        assert all(number in example.reasoning.partition("\n")[2] for number in example.metadata["numbers"])
