"""Reasoning that uses the evidence, and wordings that stand for no more than a quarter of a cell."""

import pytest

from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.grounding import is_grounded, no_wording_too_often, uses
from flashtrace_lib.tasks.responses import true_response
from flashtrace_lib.tasks.synthetic.by_task import GENERATORS, generated_examples


@pytest.mark.parametrize(
    "reasoning, passage, expected",
    [
        ("11 boxes with 11 eggs each hold 121 eggs.", "Philip fills 11 boxes with 11 eggs each.", True),
        ("12 boxes hold 121 eggs.", "Philip fills 11 boxes with 11 eggs each.", False),
        ("110 boxes hold 121 eggs.", "Philip fills 11 boxes.", False),  # a number within another is none
        ("The bus, it says, was red. So red.", "The bus was red.", True),
        ("So it was red.", "The bus of the old school was red.", False),
        ("THE BUS WAS RED", "The bus was red.", True),
    ],
)
def test_what_quotes_or_restates_a_passage(reasoning, passage, expected):
    assert uses(reasoning, passage) is expected


def test_all_of_the_evidence_must_be_used_before_the_answer():
    prompt = "A is 12. B is 15. C is 9. What is A + B?"
    example = Example("x", "t", "t", prompt, ("27",), ((0, 8), (9, 17)))
    assert is_grounded(example, "<think>\nA is 12, B is 15.\n</think>\n\n27")
    assert not is_grounded(example, "<think>\nA is 12.\n</think>\n\nB is 15, so 27")
    assert not is_grounded(example, "<think>\nA is 12, B is 15")  # it does not end
    assert not is_grounded(example, "A is 12, B is 15: 27")  # no reasoning
    assert not is_grounded(Example("x", "t", "t", prompt, ("27",)), "<think>\nA is 12, B is 15.\n</think>\n\n27")


@pytest.mark.parametrize("kind", GENERATORS)
def test_reference_reasoning_is_grounded_and_another_problems_is_not(kind):
    examples = generated_examples(kind, 12)
    assert all(is_grounded(example, true_response(example)) for example in examples)
    others = [is_grounded(a, true_response(b)) for a, b in zip(examples, examples[1:], strict=False)]
    assert sum(others) <= 1  # of code, the general part of an instruction may be alike


@pytest.mark.parametrize("kind", GENERATORS)
def test_generated_examples_carry_the_data_sets_name_and_do_not_depend_on_their_number(kind):
    few, many = generated_examples(kind, 3, seed=4), generated_examples(kind, 6, seed=4)
    assert few == many[:3] and {e.task for e in many} == {e.cell for e in many} == {kind}
    assert len({e.id for e in many}) == 6 and all(e.id.startswith(f"{kind}-eval-s4-") for e in many)
    assert generated_examples(kind, 3, seed=5) != few


def test_unknown_generators_are_refused():
    with pytest.raises(ValueError, match="no generator stands for 'math500': choose one of gsm8k"):
        generated_examples("math500", 1)


def test_no_wording_has_more_than_a_quarter():
    items = [(i, "a" if i < 6 else "bcde"[i % 4]) for i in range(16)]
    kept = no_wording_too_often(items, 8, lambda item: item[1])
    assert [i for i, _ in kept] == [0, 1, 6, 7, 8, 9, 10, 11]
    assert no_wording_too_often(items, 5, lambda item: None) == items[:5]
    assert no_wording_too_often(items[:6], 8, lambda item: item[1]) == items[:2]  # rather fewer than more of one
