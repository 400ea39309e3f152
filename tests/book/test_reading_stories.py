"""Questions about short stories: each answer stands in its evidence, and the splits share nothing."""

import re
from collections import Counter

import pytest

from flashtrace_book.reasoner.reading import TEMPLATES
from flashtrace_book.reasoner.reading.plain_questions import plain_questions
from flashtrace_book.reasoner.reading.stories import reading_stories
from flashtrace_book.reasoner.reading.story_texts import STORIES, kind_of, numeric, parse_question, read_stories
from flashtrace_lib.tasks.scoring import contains, is_correct
from flashtrace_lib.tasks.synthetic import template_files
from flashtrace_lib.tasks.synthetic.splits import SPLITS

DRAWN = {split: reading_stories(2000, seed=3, split=split) for split in SPLITS}
EXAMPLES = [example for examples in DRAWN.values() for example in examples]


def text_of(example):
    return example.prompt[slice(*example.haystack)]


def question_of(example):
    start = example.question
    return example.prompt[start:] if start else example.prompt[: example.haystack[0]].strip()


def story_of(example):
    return example.metadata["template"].partition("/")[0]


@pytest.mark.parametrize("split", SPLITS)
def test_an_example_does_not_depend_on_how_many_are_drawn(split):
    assert reading_stories(50, 7, split)[:20] == reading_stories(20, 7, split)
    assert reading_stories(20, 8, split) != reading_stories(20, 7, split)


def test_there_are_many_stories_with_several_questions_and_each_is_drawn():
    assert len(STORIES.stories) >= 88 and len(STORIES.held_out) >= 22
    for split, examples in DRAWN.items():
        stories = STORIES.of(split)
        expected = {f"{name}/{split}-{i}" for name, story in stories.items() for i in range(len(story.questions))}
        assert {e.metadata["template"] for e in examples} == expected
        assert all(3 <= len(story.questions) <= 5 for story in stories.values())
        rounds = Counter(story_of(e) for e in examples[: 3 * len(stories)])
        assert {*rounds.values()} == {3}


def test_the_splits_share_no_story_no_name_and_no_numbers():
    known = {split: set() for split in SPLITS}
    for split, examples in DRAWN.items():
        for example in examples:
            facts = example.metadata["facts"]
            named = {str(facts[n]) for n in facts if kind_of(n) in ("woman", "man", "last", "town")}
            numbers = tuple(facts[n] for n in numeric({*facts}))
            known[split] |= {story_of(example), *named, *([numbers] if numbers else [])}
    assert not known["train"] & known["eval"]
    assert not {s.text for s in STORIES.stories.values()} & {s.text for s in STORIES.held_out.values()}


def test_the_answer_stands_in_the_evidence_and_the_reasoning_quotes_it():
    for example in EXAMPLES:
        gold = " ".join(example.prompt[a:b] for a, b in example.evidence)
        (answer, *_), asked = example.answers, question_of(example)
        assert gold and example.reasoning.startswith(f'The text says: "{gold}"')
        assert example.output == f"The answer is {answer}."
        assert answer in ("yes", "no") or contains(gold, answer) or (" or " in asked and contains(asked, answer)), gold
        assert is_correct(example, example.output) and not is_correct(example, "Nobody knows.")
        assert all(example.haystack[0] <= a < b <= example.haystack[1] for a, b in example.evidence)
        assert not any("\n" in example.prompt[a:b] for a, b in example.evidence)


def test_texts_and_questions_are_whole_sentences_without_placeholders():
    for example in EXAMPLES:
        asked = question_of(example)
        assert asked[-1] in "?." and asked[0].isupper()
        assert not re.search(r"[<>{}|]", example.prompt + example.reasoning + example.output)
        assert not re.search(r"\b[Aa] [aeio]|  | [.,?]", example.prompt), example.prompt
        assert all(not sentence[0].islower() for sentence in template_files.sentences(text_of(example)))


def test_a_fact_of_a_kind_stands_once_and_a_story_is_another_each_time():
    for example in EXAMPLES:
        facts = example.metadata["facts"]
        assert len({*facts.values()}) == len(facts)
    texts = [text_of(e) for e in DRAWN["train"]]
    assert len({*texts}) > 0.99 * len(texts)


@pytest.mark.parametrize("split", SPLITS)
def test_yes_and_no_are_balanced(split):
    said = Counter(e.answers[0] for e in DRAWN[split])
    assert 0.35 < said["yes"] / (said["yes"] + said["no"]) < 0.65
    assert 0.05 < (said["yes"] + said["no"]) / len(DRAWN[split]) < 0.25


def test_some_prompts_hold_several_stories_and_in_some_the_question_comes_first():
    many = [e for e in EXAMPLES if "\n\n" in text_of(e)]
    assert 0.28 < len(many) / len(EXAMPLES) < 0.39
    assert 0.12 < sum(e.question == 0 for e in EXAMPLES) / len(EXAMPLES) < 0.21
    places = Counter()
    for example in many:
        paragraphs = text_of(example).split("\n\n")
        assert 2 <= len(paragraphs) <= 3 and 45 <= len(text_of(example).split()) <= 165
        start = example.evidence[0][0] - example.haystack[0]
        places[text_of(example)[:start].count("\n\n")] += 1
    assert min(places[0], places[1]) > 0.3 * len(many)


def test_no_story_is_one_of_the_questions_by_hand():
    def pieces(text, size=5):
        found = re.findall(r"<\w+>|\w+", text.lower())
        return {tuple(found[i : i + size]) for i in range(len(found) - size + 1)}

    known = {piece for example in plain_questions() for piece in pieces(example.prompt)}
    for name, story in (*STORIES.stories.items(), *STORIES.held_out.items()):
        asked = [parse_question(line, side).question for line in story.questions for side in range(6)]
        for text in (story.text, *asked):
            assert not pieces(text) & known, (name, pieces(text) & known)
    for example in EXAMPLES:
        assert not pieces(example.prompt) & known, pieces(example.prompt) & known


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("does <woman> stand at the market? | <day> | 1", "does <woman> stand there? | <day>", "'question | answer"),
        ("stand at the market? | <day> | 1", "stand at the market | <day> | 1", "must end in a question mark"),
        ("stand at the market? | <day> | 1", "stand at the market? | <day> | 9", "sentence 9 is asked for"),
        ("stand at the market? | <day> | 1", "stand at the market? | <day> | 3", "stands neither in its sentences"),
        ("stand at the market? | <day> | 1", "stand at the market? | <day3> | 1", "<day3> does not stand in the text"),
        ("stand at the market? | <day> | 1", "stand at the {market? | <day> | 1", "choices are written"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(tmp_path, old, new, message):
    text = (TEMPLATES / "reading_stories.yaml").read_text(encoding="utf-8")
    before, found, after = text.partition(old)
    assert found
    (tmp_path / "mine.yaml").write_text(before + new + after, encoding="utf-8")
    with pytest.raises(ValueError) as error:
        read_stories(str(tmp_path / "mine.yaml"))
    line, _, said = str(error.value).removeprefix("mine.yaml, line ").partition(": ")
    assert message in said and int(line) == before.count("\n") + 1


@pytest.mark.parametrize(
    "old, new, message",
    [
        (
            "    text: >-\n      <woman> sells <fruit> at",
            "    text: >-\n      <woman> sells <fruits> at",
            "unknown placeholder <fruits>",
        ),
        ("cat, dog, rabbit", "emu, dog, rabbit", "'a <pet>', but 'emu' begins with a vowel"),
        ("  rental_skis:", "  laundry_mix:", "the held-out story 'laundry_mix' is one of training too"),
        (
            "<n2_5> euros. A kilo of <vegetable> costs <n6_9>",
            "<n2_2> euros. A kilo of <vegetable> costs <n6_9>",
            "fewer than two",
        ),
        ("reports. Best wishes, <woman>.", "reports. Best wishes, <woman>", "must end in a full stop"),
    ],
)
def test_a_mistake_in_a_story_is_told(tmp_path, old, new, message):
    text = (TEMPLATES / "reading_stories.yaml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "mine.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=r"mine.yaml, line \d+: .*" + re.escape(message)):
        read_stories(str(tmp_path / "mine.yaml"))


def test_bad_arguments():
    with pytest.raises(ValueError, match="split must be one of"):
        reading_stories(1, split="test")
    with pytest.raises(ValueError, match="n must be a whole number"):
        reading_stories(-1)
