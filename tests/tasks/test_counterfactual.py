"""Swaps: a swapped prompt is a problem whose answer a solver finds, and the likelihood falls as it does naively."""

import dataclasses
import hashlib
import re

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from flashtrace_lib.metrics import swap_agreement
from flashtrace_lib.store import Store
from flashtrace_lib.tasks import Swap, example_swaps, ruler_examples, ruler_swaps, swap_effects
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import FORCED, _sample, respond, true_response
from flashtrace_lib.tasks.ruler import CELLS
from flashtrace_lib.text import build_sample, render_prompt
from tests.oracles import planted
from tests.oracles.tiny_chat import make_chat_model, make_tokenizer
from tests.tasks.test_ruler import WORDS, solve_niah
from tests.tasks.test_ruler import tokenizer as smollm  # noqa: F401 - a fixture

# Of the prompts, answers and true chains of every cell: stored responses are found by the prompt's text.
PROMPTS = "0efb7198b5ff1b8e"


def solve_vt(prompt, asked):
    """Variables that hold ``asked`` once the assignments of the last problem have run in order."""
    text = prompt[prompt.rindex("Memorize and track") :]
    known = {}
    for name, source, number in re.findall(r"VAR ([A-Z]+) = (?:VAR ([A-Z]+)|(\d{5}))\b", text):
        known[name] = number or known[source]  # KeyError: used before it is assigned
    return {name for name, value in known.items() if value == asked}


def test_prompts_are_those_that_were_always_drawn():
    digest = hashlib.sha256()
    for cell in CELLS:
        for haystack in ("essay", "noise"):
            for e in ruler_examples(cell, 400, WORDS, 3, seed=2, haystack=haystack):
                digest.update(repr((e.id, e.prompt, e.answers, e.evidence, e.reasoning, e.output)).encode())
    assert digest.hexdigest()[:16] == PROMPTS


@pytest.mark.parametrize("haystack", ("essay", "noise"))
@pytest.mark.parametrize("cell", CELLS)
def test_a_swapped_prompt_is_a_problem_with_the_answer_that_the_swap_says(cell, haystack):
    for example in ruler_examples(cell, 500, WORDS, 2, seed=1, haystack=haystack):
        swaps = ruler_swaps(example, WORDS, seed=3)
        counts = [sum(swap.kind == kind for swap in swaps) for kind in ("gold", "distractor", "haystack")]
        statements = len(example.metadata["statements"])
        assert counts == [len(example.evidence), statements - len(example.evidence), 3]
        assert {swap.span for swap in swaps if swap.kind == "gold"} == set(example.evidence)
        for swap in swaps:
            prompt = swap.apply(example.prompt)
            assert prompt != example.prompt
            fewer = len(WORDS(example.prompt).input_ids) - len(WORDS(prompt).input_ids)
            lost = (
                "VAR" in example.prompt[slice(*swap.span)].partition("=")[2]
                and "VAR" not in swap.text.partition("=")[2]
            )
            assert fewer == int(lost) or swap.kind == "haystack"  # a number is one word, VAR and a name are two
            if example.metadata["kind"] == "vt":
                asked = re.search(r"value (\d{5}) in the text above", example.prompt)[1]
                solved = solve_vt(prompt, asked)
            else:
                solved = set(solve_niah(prompt)[1])
            assert solved == set(swap.answers)
            assert (solved != set(example.answers)) == (swap.kind == "gold")


def test_a_seed_gives_the_same_swaps_twice():
    (example,) = ruler_examples("h2_c3", 300, WORDS, 1)
    assert ruler_swaps(example, WORDS, 3) == ruler_swaps(example, WORDS, 3) != ruler_swaps(example, WORDS, 4)
    assert [swap.kind for swap in ruler_swaps(example, WORDS, haystack=0)].count("haystack") == 0


def test_a_link_is_moved_to_another_chain_where_there_is_one():
    links = [
        (example.prompt[slice(*swap.span)], swap)
        for example in ruler_examples("h2_c3", 500, WORDS, 5)
        for swap in ruler_swaps(example, WORDS)
        if "= VAR" in example.prompt[slice(*swap.span)]
    ]
    moved = [swap for old, swap in links if re.search(r"= VAR", swap.text)]
    assert len(links) == 5 * 6 and len(moved) > 15  # the others stand before every variable of other chains
    for old, swap in links:
        assert old.partition("=")[0] == swap.text.partition("=")[0]


def test_haystack_sentences_are_whole_and_of_the_same_length(smollm):  # noqa: F811
    def count(text):
        return len(smollm(text).input_ids)

    changes = []
    for example in ruler_examples("mq_q2", 1024, smollm, 4):
        for swap in ruler_swaps(example, smollm, haystack=5):
            changes.append(abs(count(swap.apply(example.prompt)) - count(example.prompt)))
            if swap.kind == "haystack":
                a, b = swap.span
                assert (
                    example.prompt[a - 1].isspace() and example.prompt[b].isspace() and swap.text not in example.prompt
                )
    assert len(changes) == 4 * 7 and sorted(changes)[-3] == 0 and max(changes) <= 2


def test_what_cannot_be_swapped_is_named():
    (example,) = ruler_examples("mq_q2", 300, WORDS, 1)
    bare = dataclasses.replace(example, metadata={})
    with pytest.raises(ValueError, match="does not say where its statements stand"):
        ruler_swaps(bare, WORDS)
    with pytest.raises(ValueError, match="task poem has no swaps: .* ruler"):
        example_swaps(dataclasses.replace(example, task="poem"), WORDS)
    with pytest.raises(ValueError, match="kind must be one of gold"):
        Swap((0, 1), "a", "golden", ())
    assert example_swaps(example, WORDS) == ruler_swaps(example, WORDS)


# --- effects


@pytest.fixture(scope="module")
def chat():
    """A tiny random model, its tokenizer, an example, its teacher-forced sample and swaps."""
    tokenizer = make_tokenizer()
    model = make_chat_model(tokenizer, max_position_embeddings=2048)
    (example,) = ruler_examples("h2_c3", 500, tokenizer, 1)
    return model, tokenizer, example, _sample(tokenizer, example, true_response(example), FORCED, None)


def naive_drops(model, tokenizer, sample, example, swaps):
    """Each swapped context in one plain forward, the tokens of T and O added up one by one in float64."""
    start, stop = sample.response

    def total(prompt):
        ids = tokenizer(render_prompt(tokenizer, prompt).text, add_special_tokens=False).input_ids
        row = torch.tensor([*ids, *sample.input_ids[start:stop].tolist()])
        with torch.no_grad():
            log_probs = model(row[None]).logits[0].double().log_softmax(-1)
        shift = len(ids) - start
        wanted = [*range(*sample.segments.reasoning), *range(*sample.segments.output)]
        return sum(log_probs[i + shift - 1, row[i + shift]].item() for i in wanted)

    whole = total(example.prompt)
    return [whole - total(swap.apply(example.prompt)) for swap in swaps]


@pytest.mark.parametrize("budget", (None, 1))
def test_drops_are_those_of_plain_forwards(chat, budget):
    model, tokenizer, example, sample = chat
    swaps = ruler_swaps(example, tokenizer)
    longer = dataclasses.replace(swaps[0], text=swaps[0].text + " and much more than stood there before.")
    shorter = dataclasses.replace(swaps[-1], text="No.")
    swaps = [*swaps[:3], longer, shorter, swaps[-2]]
    effects = swap_effects(model, tokenizer, sample, example, swaps, max_batch_bytes=budget)
    expected = naive_drops(model, tokenizer, sample, example, swaps)
    assert effects["drop"].tolist() == pytest.approx(expected, abs=2e-3) and max(map(abs, expected)) > 0.1
    assert effects["kind"].tolist() == [swap.kind for swap in swaps]


def test_a_swap_belongs_to_the_sentence_that_holds_it(chat):
    model, tokenizer, example, sample = chat
    swaps = ruler_swaps(example, tokenizer)
    effects = swap_effects(model, tokenizer, sample, example, swaps)
    first, stop = sample.segments.prompt
    sentences = [span for span in sorted(sample.sentences) if first <= span[0] and span[1] <= stop]
    for swap, index in zip(swaps, effects["sentence"], strict=True):
        text = "".join(sample.tokens[slice(*sentences[index])])
        assert example.prompt[slice(*swap.span)] in text
    sample.sentences, kept = None, sample.sentences
    assert set(swap_effects(model, tokenizer, sample, example, swaps)["sentence"]) == {-1}
    sample.sentences = kept


def test_effects_are_stored_once(chat, tmp_path, monkeypatch):
    model, tokenizer, example, sample = chat
    swaps, store = ruler_swaps(example, tokenizer), Store(tmp_path / "swaps")
    first = swap_effects(model, tokenizer, sample, example, swaps, store=store)
    calls = []
    monkeypatch.setattr(type(model), "forward", lambda *args, **kwargs: calls.append(1))
    assert swap_effects(model, tokenizer, sample, example, swaps, store=store).equals(first) and not calls
    monkeypatch.undo()
    assert len(swap_effects(model, tokenizer, sample, example, swaps[:2], store=store)) == 2 and len(store) == 2


def test_a_swap_is_one_forward_pass(chat, monkeypatch):
    model, tokenizer, example, sample = chat
    swaps, rows = ruler_swaps(example, tokenizer), []
    forward = type(model).forward
    monkeypatch.setattr(
        type(model), "forward", lambda self, input_ids, **kw: rows.append(input_ids) or forward(self, input_ids, **kw)
    )
    swap_effects(model, tokenizer, sample, example, swaps)
    assert sum(map(len, rows)) == len(swaps) + 2  # each, the unchanged context, and the one whose states they share
    assert sum(ids.numel() for ids in rows) < 0.9 * (len(swaps) + 2) * len(sample)


def test_regenerated_answers(chat):
    model, tokenizer, example, sample = chat
    swaps = ruler_swaps(example, tokenizer)
    effects = swap_effects(model, tokenizer, sample, example, swaps, regenerate=True, max_new_tokens=4)
    bare = dataclasses.replace(example, answer_prefix="")  # as the teacher-forced sample was rendered
    swapped = [dataclasses.replace(bare, prompt=swap.apply(bare.prompt), question=None, haystack=None, evidence=())
               for swap in swaps]  # fmt: skip
    before, *after = (respond([one], model, tokenizer, 4)[0] for one in (bare, *swapped))
    same = [tokenizer.decode(ids, skip_special_tokens=True) for ids in (before, *after)]
    assert effects["changes_response"].tolist() == [text.strip() != same[0].strip() for text in same[1:]]


def test_another_example_is_refused(chat):
    model, tokenizer, example, sample = chat
    other = ruler_examples("h2_c3", 500, tokenizer, 2)[1]
    with pytest.raises(ValueError, match="does not give its ids"):
        swap_effects(model, tokenizer, sample, other, ruler_swaps(other, tokenizer))
    with pytest.raises(ValueError, match="no swaps are given"):
        swap_effects(model, tokenizer, sample, example, [])


# --- the planted model, which copies its answer from one token


def planted_case():
    """Sentences of two words, the third of which holds the evidence: model, tokenizer, example, sample."""
    names = [f"Zq{i}." if i >= 3 else f"<{i}>" for i in range(planted.VOCABULARY)]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<0>")),
        pad_token="<0>", eos_token="<2>",
    )  # fmt: skip
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = [names[i] for i in (5, 9, planted.EVIDENCE[2], 11, 7)]
    prompt = " ".join(words)
    example = Example("planted", "planted", "planted", prompt, (names[planted.ANSWER[2]],))
    response = [planted.ANSWER[2], 6, planted.ANSWER[2], planted.END]
    sample = build_sample(tokenizer, prompt, response)
    places = [(prompt.index(word), prompt.index(word) + len(word)) for word in words]
    new = [names[12], names[13], names[planted.EVIDENCE[0]], names[14], names[15]]
    gold = (names[planted.ANSWER[0]],)
    swaps = [
        Swap(place, text, "gold" if i == 2 else "haystack", gold if i == 2 else example.answers)
        for i, (place, text) in enumerate(zip(places, new, strict=True))
    ]
    return planted.planted_model(), tokenizer, example, sample, swaps


def test_only_the_swap_of_the_planted_evidence_lowers_the_likelihood():
    model, tokenizer, example, sample, swaps = planted_case()
    effects = swap_effects(model, tokenizer, sample, example, swaps)
    assert effects["changes_answer"].tolist() == [False, False, True, False, False]
    assert effects["drop"][2] > 1
    assert effects["drop"].drop(2).abs().max() < 1e-5
    assert effects["sentence"].is_unique
    scores = torch.zeros(int(effects["sentence"].max()) + 1)
    scores[int(effects["sentence"][2])] = 1
    assert swap_agreement(scores, effects)["swap_auroc"] == 1


@pytest.mark.slow
def test_gold_swaps_weigh_more_than_haystack_swaps_on_the_embedded_model(embedded):
    model, tokenizer = embedded
    (example,) = ruler_examples("mq_q2", 256, tokenizer, 1)
    sample = _sample(tokenizer, example, true_response(example), FORCED, None)
    effects = swap_effects(model, tokenizer, sample, example, ruler_swaps(example, tokenizer))
    by_kind = effects.groupby("kind")["drop"]
    assert by_kind.min()["gold"] > by_kind.max()["haystack"] + 5
