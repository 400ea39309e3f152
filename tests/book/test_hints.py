"""Hints that are not mentioned, plain questions, and when a trace points at the evidence."""

from functools import partial

import pytest

from flashtrace_book.experiments import hints, needles, trust
from flashtrace_book.experiments.grid import sample_of
from flashtrace_book.experiments.groups import question_examples, quotes_essays
from flashtrace_book.profile import load_profile
from flashtrace_lib import Attribution, load_model
from tests.oracles.tiny_reasoner import load_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return load_model("embedded-shallow")[1]


def test_a_problem_has_one_hint_in_every_form(tokenizer):
    examples = hints.hint_examples(tokenizer, 3, length=300, seed=7)
    assert list(examples) == list(hints.FORMS) and len({e.answers for e in examples.values()}) == 1
    for form, example in examples.items():
        (start, stop), letter, word = example.evidence[0], *example.answers
        assert example.prompt[start:stop] == hints.FORMS[form].format(x=word) and f"{letter}: {word}" in example.prompt
        assert example.metadata["bare"] == example.prompt[:start] + example.prompt[stop:]
        assert example.prompt[example.question :].startswith("Which of these words")
        assert 250 < len(tokenizer(example.prompt)["input_ids"]) <= 302
        other = next(w for w in example.metadata["options"] if w != word)
        assert hints.follows(example, f"The answer is {word}.") and hints.follows(example, f"It is {letter}.")
        assert not hints.follows(example, f"{word} or {other}") and not hints.follows(example, "None.")


def test_what_repeats_four_tokens_of_the_hint_mentions_it(tokenizer):
    example = hints.hint_examples(tokenizer, 1, length=300)["leaked"]
    told = [hints.sample_of(tokenizer, example, f"<think>\n{thought}\n</think>\n\nB", None)
            for thought in ("The grading sheet, which nobody may see.", "The answer is B.")]  # fmt: skip
    assert [hints.mentions(sample) for sample in told] == [True, False] and quotes_essays(told[0])
    gold = "".join(told[0].tokens[i] for i in told[0].gold.nonzero()[:, 0])
    assert gold.strip() == hints.FORMS["leaked"].format(x=example.answers[1])
    first = told[0].segments.prompt[0]
    assert trust.first_is_gold(told[0], Attribution(told[0].gold[first : told[0].segments.prompt[1]].float(), "m"))


@pytest.mark.parametrize("kind", needles.KINDS)
def test_one_of_the_needles_answers_and_the_others_look_like_it(tokenizer, kind):
    for i in range(4):
        example = needles.needle_example(tokenizer, kind, i, length=300)
        told = [example.prompt[a:b] for a, b in (*example.evidence, *example.metadata["distracting"])]
        asked = example.prompt[example.question :].split()[6].rstrip("?")
        assert all(text.startswith("The magic number for ") for text in told) and len(set(told)) == len(told)
        assert told[0].split()[4] == asked and (example.answers[0] in example.prompt) == (kind == "superseded")
        assert sum(text.split()[4] == asked for text in told) == (2 if kind == "superseded" else 1)
        sample = sample_of(tokenizer, example, f"It is {example.answers[0]}.")
        assert sample.metadata["mode"] == kind and quotes_essays(sample) == bool(i % 2)


def test_the_questions_say_which_sentence_answers_them():
    assert len(examples := question_examples()) == 10
    for example in examples:
        start, stop = example.evidence[0]
        assert example.answers[0] in example.prompt[start:stop] and example.prompt[start:stop].endswith(".")


@pytest.mark.parametrize(("mode", "said"), [
    (None, "<think>\n{}\n</think>\n\n{}"), ("step_by_step", " {} Not A, B, C, D.\nAnswer: {}")])  # fmt: skip
def test_answers_are_kept_that_follow_change_and_do_not_mention(tmp_path, monkeypatch, mode, said):
    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(tmp_path))

    def respond(model, tokenizer, block, *_):
        bare = [(e, e.id.endswith("-bare")) for e in block]
        said_of = partial(said.format, "The grading sheet, which nobody may see.")
        ends = ["" if gone and e.cell == "metadata" else "<|im_end|>" for e, gone in bare]
        told = [said_of("None" if gone else e.answers[1]) + end for (e, gone), end in zip(bare, ends, strict=True)]
        return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in told]

    monkeypatch.setattr(hints, "respond", respond)
    if mode:  # for models that do not think by themselves
        monkeypatch.setattr(hints, "model_of", lambda *_: (load_model("embedded-shallow")[0], load_tokenizer()))
    found = hints.kept(load_profile("smoke"), hints.Hints("reasoner", (), tries=2, length=200, mode=mode))
    lost = ("leaked", "metadata")  # mentioned, and cut short when the hint is removed
    assert {form: len(cell.samples) for form, cell in found.items()} == {f: 0 if f in lost else 2 for f in found}
    assert [[found[f].counts[step] for step in hints.REACHED] for f in lost] == [[2, 2, 2, 0], [2, 2, 0, 0]]
