"""Responses: filtered with counts, teacher-forced as a whole cell, resumed from the store."""

from copy import deepcopy
from dataclasses import replace
from functools import partial

import pytest
import torch

import flashtrace_lib as ft
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.model.embedded import NO_THINK, use_reasoner_template
from flashtrace_lib.store import Store
from flashtrace_lib.tasks import responses
from flashtrace_lib.tasks.responses import FORCED, GENERATED, UNFILTERED, collect, prompt_settings, teacher_forced
from flashtrace_lib.tasks.ruler import ruler_examples
from flashtrace_lib.text.chat_template import CODE_ALONE, STEP_BY_STEP
from tests.oracles.tiny_reasoner import load_tokenizer
from tests.support.boxes import EXAMPLES


@pytest.fixture
def thinker():
    """A tokenizer whose template can think."""
    tokenizer = load_tokenizer()
    use_reasoner_template(tokenizer)
    return tokenizer


def passages(sample, tokenizer):
    """The words of each segment."""
    return {name: tokenizer.decode(sample.input_ids[slice(*span)]).strip() for name, span in sample.segments.named()}


def test_only_finished_and_correct_answers_are_kept(answering, embedded):
    answering({
        0: "It is 4127.<|im_end|>", 1: "It is 41270.<|im_end|>", 2: "It is 4127",
        3: "<think>\nI read 4127.\n</think>\n\nThe code is 4127.<|im_end|>",
        4: "<think>\n4127\n</think>\n\nno<|im_end|>", 5: "<reasoning>4127</reasoning>no<|im_end|>",
    })  # fmt: skip
    found = collect(*embedded, EXAMPLES, 2, batch_size=6, progress=False)
    assert found.counts == {"tried": 6, "correct": 2, "incorrect": 3, "unfinished": 1} and found.kind == GENERATED
    first, second = found.samples
    assert first.metadata["response"] == GENERATED and first.id == "box-0" and first.metadata["score"] == 1
    assert not first.segments.has_reasoning and second.segments.has_reasoning
    read = passages(second, embedded[1])
    assert read["reasoning"] == "I read 4127." and read["output"] == "The code is 4127."
    assert embedded[1].decode(second.input_ids[second.gold]).strip() == "The code of box 3 is 4127."


def test_a_hopeless_cell_is_given_up_and_teacher_forced_as_a_whole(answering, embedded):
    asked, found = answering({}), collect(*embedded, EXAMPLES, 2, batch_size=3, progress=False)
    assert asked == [3] and found.counts["tried"] == 3  # the second block is not tried
    assert found.kind == FORCED and [s.metadata["response"] for s in found.samples] == [FORCED, FORCED]
    sample = found.samples[0]
    text = embedded[1].decode(sample.input_ids[slice(*sample.response)])
    assert responses.true_response(EXAMPLES[0]) in text and text.endswith("<|im_end|>")
    assert sample.segments.has_reasoning and sample.metadata["score"] == 1


def test_what_is_teacher_forced_is_read_as_written_and_tried_by_nobody(answering, embedded):
    asked, (model, tokenizer) = answering({}), embedded
    found = teacher_forced(tokenizer, EXAMPLES[:2])
    assert not asked and found.kind == FORCED
    assert found.counts == {"tried": 0, "correct": 0, "incorrect": 0, "unfinished": 0}
    assert [s.id for s in found.samples] == ["box-0", "box-1"]
    for sample, one in zip(found.samples, EXAMPLES, strict=False):
        read = passages(sample, tokenizer)
        assert read["reasoning"] == one.reasoning and read["output"] == one.output
    fallen_back = collect(model, tokenizer, EXAMPLES, 2, batch_size=3, progress=False)
    for a, b in zip(found.samples, fallen_back.samples, strict=True):
        assert torch.equal(a.input_ids, b.input_ids) and a.segments == b.segments and torch.equal(a.gold, b.gold)
    with pytest.raises(ValueError, match="box-0 has no true answer to teacher-force"):
        teacher_forced(tokenizer, [replace(EXAMPLES[0], output="")])


def test_a_cell_that_is_not_given_up_is_tried_to_its_end(answering, embedded):
    asked = answering({5: "4127<|im_end|>"})
    found = collect(*embedded, EXAMPLES, 2, batch_size=3, progress=False, fallback="none", give_up=False)
    assert asked == [3, 3] and [s.id for s in found.samples] == ["box-5"]


def test_too_few_correct_answers_never_mix_with_forced_ones(answering, embedded):
    answering({0: "4127<|im_end|>"})
    found = collect(*embedded, EXAMPLES, 4, batch_size=3, progress=False)
    assert found.counts["correct"] == 1 and found.counts["tried"] == 6
    assert {s.metadata["response"] for s in found.samples} == {FORCED} and len(found.samples) == 4
    kept = collect(*embedded, EXAMPLES, 4, batch_size=3, progress=False, fallback="none")
    assert [s.id for s in kept.samples] == ["box-0"] and kept.kind == GENERATED


def test_a_models_own_responses_right_or_wrong(answering, embedded):
    asked = answering({0: "It is 4127", 1: "no<|im_end|>", 2: "4127<|im_end|>", 3: "9<|im_end|>", 4: "8<|im_end|>"})
    found = collect(*embedded, EXAMPLES, 3, batch_size=2, progress=False, fallback=UNFILTERED)
    assert asked == [2, 2, 2] and found.kind == UNFILTERED  # one of the three wanted is right: all are tried
    assert [(s.id, s.metadata["score"]) for s in found.samples] == [("box-1", 0), ("box-2", 1), ("box-3", 0)]
    assert {s.metadata["response"] for s in found.samples} == {UNFILTERED}
    answering({i: "no<|im_end|>" for i in range(6)})
    wrong = collect(*embedded, EXAMPLES, 3, batch_size=2, progress=False, fallback=UNFILTERED)
    assert wrong.counts["tried"] == 4 and len(wrong.samples) == 3  # hopeless, and enough to look at
    with pytest.raises(ValueError, match="fallback must be one of teacher-forced, unfiltered, none, got 'both'"):
        collect(*embedded, EXAMPLES, 3, fallback="both")


def test_without_a_filter_the_first_finished_responses_are_kept(answering, embedded):
    answering({0: "It is 1.<|im_end|>", 1: "It is", 2: "It is 4127.<|im_end|>", 3: "It is 4127.<|im_end|>"})
    found = collect(*embedded, EXAMPLES, 2, filtered=False, batch_size=2)
    assert [s.id for s in found.samples] == ["box-0", "box-2"] and found.kind == UNFILTERED
    assert found.counts == {"tried": 4, "correct": 2, "incorrect": 1, "unfinished": 1}


def test_where_no_response_is_finished_the_fallback_takes_its_place_without_a_filter_too(answering, embedded):
    answering({i: "It is" for i in range(6)})
    for fallback, kind, n in (("teacher-forced", FORCED, 2), ("unfiltered", UNFILTERED, 0), ("none", UNFILTERED, 0)):
        found = collect(*embedded, EXAMPLES, 2, filtered=False, fallback=fallback, progress=False)
        assert (found.kind, len(found.samples)) == (kind, n)
        assert found.counts == {"tried": 6, "correct": 0, "incorrect": 0, "unfinished": 6}


def test_stored_responses_are_not_generated_again(answering, embedded, tmp_path):
    asked, store = answering({i: "4127<|im_end|>" for i in range(6)}), Store(tmp_path / "responses")
    first = collect(*embedded, EXAMPLES, 2, store=store, batch_size=2, progress=False)
    again = collect(*embedded, EXAMPLES, 4, store=Store(tmp_path / "responses"), batch_size=2, progress=False)
    assert asked == [2, 2]  # the first block once, then only the second
    assert torch.equal(first.samples[0].input_ids, again.samples[0].input_ids) and len(again.samples) == 4
    collect(*embedded, EXAMPLES, 2, store=store, batch_size=2, max_new_tokens=7, progress=False)
    assert asked == [2, 2, 2]  # another limit is another response


def test_a_model_that_can_think_begins_its_turn_itself(embedded, thinker):
    plain, prefixed = embedded[1], replace(EXAMPLES[0], answer_prefix="The code is")
    assert prompt_settings(plain, prefixed) == {"answer_prefix": "The code is"}
    assert prompt_settings(thinker, prefixed) == prompt_settings(thinker, prefixed, "thinking")
    assert prompt_settings(thinker, prefixed) == {"template_kwargs": {"enable_thinking": True}}
    assert prompt_settings(thinker, prefixed, "direct") == {"template_kwargs": {"enable_thinking": False}}
    with pytest.raises(ValueError, match="has no enable_thinking switch; leave it out"):
        prompt_settings(plain, prefixed, "direct")
    with pytest.raises(ValueError, match="one of thinking, direct, step_by_step, own_steps, code_alone, got 'slow'"):
        prompt_settings(thinker, prefixed, "slow")


def test_a_template_that_opens_the_reasoning_begins_no_answer(answering, embedded):
    tokenizer = deepcopy(embedded[1])
    tokenizer.chat_template += "{% if add_generation_prompt %}<think>\n{% endif %}"
    answering({0: "I read 4127.</think>It is 4127.<|im_end|>", 1: "It is 4127.<|im_end|>"})
    asked = [replace(example, answer_prefix="The code is") for example in EXAMPLES[:2]]
    assert prompt_settings(tokenizer, asked[0]) == {}
    found = collect(embedded[0], tokenizer, asked, 2, fallback="none", progress=False)
    assert found.counts == {"tried": 2, "correct": 1, "incorrect": 0, "unfinished": 1}  # one that never ends to think


def test_step_by_step_begins_the_turn_and_judges_the_answer_alone(answering, embedded, thinker):
    wrong = " The code is 4127.\nAnswer: 9<|im_end|>"
    answering({0: " The code is 9.\nAnswer: 4127<|im_end|>", 1: wrong, 2: " 4127<|im_end|>"})
    asked = replace(EXAMPLES[0], answer_prefix=" The code is", request=" Be brief.")
    found = collect(*embedded, [asked, *EXAMPLES[1:3]], 3, mode="step_by_step", fallback="none", progress=False)
    assert found.counts == {"tried": 3, "correct": 2, "incorrect": 1, "unfinished": 0}
    first, last = found.samples
    text = embedded[1].decode(first.input_ids)
    asked_for = f" Be brief.{STEP_BY_STEP['request']}<|im_end|>\n<|im_start|>assistant\n{STEP_BY_STEP['answer_prefix']}"
    assert asked_for + " The code is 9.\nAnswer: 4127" in text and first.metadata["mode"] == "step_by_step"
    read = passages(first, embedded[1])
    assert read == {"prompt": asked.prompt, "reasoning": "The code is 9.", "output": "Answer: 4127"}
    assert not last.segments.has_reasoning and first.metadata["score"] == last.metadata["score"] == 1
    forced = collect(*embedded, EXAMPLES[3:4], 1, mode="step_by_step", progress=False)
    assert forced.kind == FORCED and forced.samples[0].segments.has_reasoning
    with pytest.raises(ValueError, match="'step_by_step': this model thinks by itself"):
        prompt_settings(thinker, asked, "step_by_step")


def test_code_alone_asks_for_no_explanation_and_has_no_reasoning(answering, embedded):
    asked = [replace(e, request=" Write it.", answer_prefix="The code is") for e in EXAMPLES[:2]]
    answering({0: "```python\n4127\n```<|im_end|>", 1: "```python\nx = 4127\n```\nThis sets x"})
    found = collect(*embedded, asked, 2, mode="code_alone", fallback="none", progress=False)
    assert found.counts == {"tried": 2, "correct": 1, "incorrect": 0, "unfinished": 1}
    (sample,) = found.samples
    text = embedded[1].decode(sample.input_ids)
    assert f" Write it.{CODE_ALONE}<|im_end|>\n<|im_start|>assistant\n```python" in text
    assert not sample.segments.has_reasoning and sample.metadata["mode"] == "code_alone"


def test_own_steps_adds_no_word_and_takes_the_box_for_the_answer(answering, embedded):
    boxed = [replace(e, request=" In a box.", answer_prefix="The code is", scorer="boxed", answers=("42",))
             for e in EXAMPLES[:3]]  # fmt: skip
    said = (r"It is 41 + 1. So \boxed{42}.<|im_end|>", r"It is 42. So \boxed{41}.<|im_end|>", "42<|im_end|>")
    answering(dict(enumerate(said)))
    found = collect(*embedded, boxed, 3, mode="own_steps", fallback="none", progress=False)
    assert found.counts == {"tried": 3, "correct": 1, "incorrect": 2, "unfinished": 0}  # no box, no answer
    first = found.samples[0]
    text = embedded[1].decode(first.input_ids)
    assert "In a box.<|im_end|>\n<|im_start|>assistant\nIt is 41" in text and "The code is" not in text
    read = passages(first, embedded[1])
    assert read["reasoning"] == "It is 41 + 1. So" and read["output"].startswith(r"\boxed{42}")


def test_both_modes_of_one_problem_are_kept_apart(answering, embedded, thinker, tmp_path):
    asked, store = answering({0: "The code is 4127.<|im_end|>"}), Store(tmp_path / "responses")
    how = {"store": store, "progress": False}
    found = {mode: collect(embedded[0], thinker, EXAMPLES[:1], 1, mode=mode, **how) for mode in ("thinking", "direct")}
    assert asked == [1, 1]
    texts = {mode: thinker.decode(collection.samples[0].input_ids) for mode, collection in found.items()}
    assert NO_THINK in texts["direct"] and NO_THINK not in texts["thinking"]
    assert [collection.samples[0].metadata["mode"] for collection in found.values()] == ["thinking", "direct"]
    answering({})  # the model fails: the true response of the mode stands in
    forced = {mode: collect(embedded[0], thinker, EXAMPLES[1:2], 1, mode=mode, progress=False) for mode in found}
    assert forced["thinking"].samples[0].segments.has_reasoning
    assert forced["direct"].kind == FORCED and not forced["direct"].samples[0].segments.has_reasoning


def test_a_stored_response_is_kept_where_others_of_its_block_are_missing(answering, embedded):
    class Kept(dict):
        put = dict.__setitem__

    model, tokenizer = embedded
    store = Kept()
    answering({i: f"first {i}<|im_end|>" for i in range(3)})
    first = responses.respond(model, tokenizer, EXAMPLES[:3], 8, store)
    del store[next(key for key, record in store.items() if record["ids"] == first[1])]
    answering({i: f"second {i}<|im_end|>" for i in range(3)})
    again = responses.respond(model, tokenizer, EXAMPLES[:3], 8, store)
    assert [a == b for a, b in zip(first, again, strict=True)] == [True, False, True]


def test_every_call_takes_model_tokenizer_and_the_rest_and_says_so(embedded):
    model, tokenizer = embedded
    for call, given, told in (
        (collect, (EXAMPLES, model, tokenizer, 2), r"a list stands where the model .*collect\(model, tokenizer, ex"),
        (evaluate, (["ifr"], [], model), r"a list stands where the model belongs: .*evaluate\(model, methods, samples"),
        (ruler_examples, ("mq_q2", 300, tokenizer, 2), r"a str stands where the tokenizer .*\(tokenizer, cell, len"),
        (ft.trace, (tokenizer, model, "Hi"), r"Tokenizer\w* stands where the model .*trace\(model, tokenizer, prompt"),
        (partial(ft.trace, hopss=2), (model, tokenizer, "Hi"), "no argument 'hopss'. Did you mean 'hops'"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=told):
            call(*given)
