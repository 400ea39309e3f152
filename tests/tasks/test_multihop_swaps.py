"""Swaps in questions over paragraphs: a solver that knows the held-out wording alone finds the answers they say."""

import dataclasses
import re

import pytest

from flashtrace_lib.tasks import example_swaps, task_examples
from flashtrace_lib.tasks.datasets import documents_examples, synthetic_examples
from flashtrace_lib.tasks.synthetic.multihop_swaps import _read, multihop_swaps
from tests.tasks.test_ruler import WORDS

PERSON = re.compile(
    r"(\w+ \w+), a collector of clocks, was born in (\d+)\. The birthplace was (\w+)\. \w+ and a cousin brought up "
    r"(\d+) children\."
)
WORK = re.compile(r"(The \w+ \w+), a [\w ]+, appeared in \d+\. [^.]+\. The \w+ of \1 was (\w+ \w+)\.")


def solve(prompt, template):
    """The answer to the question at the end of the prompt, from its paragraphs; None where they do not say it."""
    text, _, question = prompt.rpartition("Question: ")
    people = {name: (int(born), town, int(count)) for name, born, town, count in PERSON.findall(text)}
    if template == "earlier":
        pair = [name for name in people if name in question]
        return min(pair, key=lambda name: people[name])
    person = next(maker for work, maker in WORK.findall(text) if work in question)
    if template == "initials":
        return "".join(name[0] for name in person.split())
    if person not in people:
        return None
    born, town, count = people[person]
    k = int((re.findall(r"\d+", question) or [0])[0])
    by_template = {
        "years_later": born + k, "years_before": born - k, "times": count * k, "first_letter": town[0],
        "town": town, "born": born,
    }  # fmt: skip
    return str(by_template[template])


EXAMPLES = {
    "morehopqa": task_examples("morehopqa", 40),
    "hotpotqa": task_examples("hotpotqa", 15),
    "at length": documents_examples(5, 700, lambda text: len(WORDS(text).input_ids))[0],
}


@pytest.mark.parametrize("source", EXAMPLES)
def test_a_swapped_prompt_has_the_answer_that_the_swap_says(source):
    templates = set()
    for example in EXAMPLES[source]:
        template = example.metadata["template"].partition("/")[0]
        templates.add(template)
        assert solve(example.prompt, template) == example.answers[0]
        swaps = example_swaps(example, WORDS, seed=1)
        for swap in swaps:
            assert swap.apply(example.prompt) != example.prompt
            assert (solve(swap.apply(example.prompt), template),) == swap.answers
            assert (swap.answers != example.answers) == (swap.kind == "gold")
            inside = any(a <= swap.span[0] and swap.span[1] <= b for a, b in example.evidence)
            assert inside or swap.kind != "gold"
        kinds = [swap.kind for swap in swaps]
        assert kinds == sorted(kinds, key=("gold", "distractor", "haystack").index)
        # With one pair of paragraphs there is no other maker to name, unless only the name is asked for.
        both = template == "earlier" or source != "morehopqa"
        assert kinds.count("gold") == (2 if both else 1) and "haystack" in kinds
        assert kinds.count("distractor") == 3 or source == "morehopqa"
    assert len(templates) == (5 if source == "morehopqa" else 3) or source == "at length"


@pytest.mark.parametrize("split", ["train", "eval"])
@pytest.mark.parametrize("kind", ["morehopqa", "hotpotqa"])
def test_every_wording_is_read_back(kind, split):
    seen = set()
    for example in synthetic_examples(kind, 150, 3, split):
        facts = _read(example.prompt)
        names = example.metadata["names"]
        assert set(facts.people) <= set(names) and set(facts.makers) <= set(names)
        assert set(facts.people) == set(facts.makers.values())
        assert len(facts.people) == (1 if kind == "morehopqa" else 5)
        seen.add(tuple(example.metadata.get("paragraph_templates", ())))
        assert multihop_swaps(example, WORDS)
    assert len(seen) > 20 or split == "eval" or kind == "hotpotqa"


def test_a_seed_gives_the_same_swaps_twice():
    example = EXAMPLES["hotpotqa"][0]
    assert multihop_swaps(example, WORDS, 3) == multihop_swaps(example, WORDS, 3) != multihop_swaps(example, WORDS, 4)
    few = [swap.kind for swap in multihop_swaps(example, WORDS, distractors=1, haystack=0)]
    assert few.count("distractor") == 1 and "haystack" not in few


def test_what_holds_no_facts_is_named():
    example = EXAMPLES["morehopqa"][0]
    for other in (dataclasses.replace(example, answers=("wrong",)), dataclasses.replace(example, metadata={})):
        with pytest.raises(ValueError, match="do not hold the facts of a synthetic question"):
            multihop_swaps(other, WORDS)
    with pytest.raises(ValueError, match="task gsm8k has no swaps: .* ruler, morehopqa, hotpotqa"):
        example_swaps(task_examples("gsm8k", 1)[0], WORDS)
