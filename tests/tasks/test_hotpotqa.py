"""HotpotQA at a chosen length: what must be kept is kept, and nothing else that fits is left out."""

import pytest

from flashtrace_lib.tasks.datasets import synthetic_records
from flashtrace_lib.tasks.hotpotqa import hotpotqa_at_length
from flashtrace_lib.tasks.records import hotpotqa_example

RECORDS = synthetic_records("hotpotqa", 8, seed=3)


def words(text):
    return len(text.split())


def supporting(record):
    sentences = dict(zip(record["context"]["title"], record["context"]["sentences"], strict=True))
    facts = zip(record["supporting_facts"]["title"], record["supporting_facts"]["sent_id"], strict=True)
    return [sentences[title][i].strip() for title, i in facts]


@pytest.mark.parametrize("length", [150, 220, 10_000])
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["id"])
def test_support_is_kept_and_the_budget_is_used(record, length):
    example = hotpotqa_at_length(record, record["id"], length, words)
    assert example.metadata["tokens"] == words(example.prompt) <= length
    marked = [example.prompt[a:b] for a, b in example.evidence]
    assert sorted(marked) == sorted(supporting(record))
    assert example.answers == (record["answer"],) and example.reasoning.split("\n") == supporting(record)
    kept = example.metadata["documents"]
    if length == 10_000:
        assert kept == 10
    elif kept < 10:  # none of those left out would have fitted
        shortest = min(
            words(" ".join([title, *sentences])) for title, sentences in
            zip(record["context"]["title"], record["context"]["sentences"], strict=True) if f"\n{title}\n" not in
            example.prompt
        )  # fmt: skip
        assert words(example.prompt) + shortest + 2 > length


def test_other_records_fill_a_long_prompt_and_titles_stay_unique():
    first, *others = RECORDS
    alone = hotpotqa_at_length(first, "a", 10_000, words)
    filled = hotpotqa_at_length(first, "a", 900, words, others=others + [first])
    assert filled.metadata["documents"] > alone.metadata["documents"] == 10
    titles = [block.split("\n")[1] for block in filled.prompt.split("\n\n") if block.startswith("Document ")]
    assert len(titles) == len(set(titles)) == filled.metadata["documents"]


def test_the_draw_follows_the_seed_and_the_id():
    draws = [hotpotqa_at_length(RECORDS[0], id, 220, words, seed=seed).prompt
             for id, seed in (("a", 0), ("a", 0), ("a", 1), ("b", 0))]  # fmt: skip
    assert draws[0] == draws[1] and len(set(draws)) == 3


def test_whole_paragraphs_as_evidence():
    record = RECORDS[0]
    example = hotpotqa_at_length(record, "a", 300, words, gold="paragraph")
    sentences = dict(zip(record["context"]["title"], record["context"]["sentences"], strict=True))
    expected = {"".join(sentences[title]).strip() for title in record["supporting_facts"]["title"]}
    assert {example.prompt[a:b] for a, b in example.evidence} == expected


def test_both_formats_give_one_prompt():
    record = RECORDS[1]
    original = {
        **record,
        "context": [list(p) for p in zip(*record["context"].values(), strict=True)],
        "supporting_facts": [list(p) for p in zip(*record["supporting_facts"].values(), strict=True)],
    }
    assert hotpotqa_at_length(record, "a", 250, words) == hotpotqa_at_length(original, "a", 250, words)
    assert hotpotqa_example(record, "a") == hotpotqa_example(original, "a")


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"record a: its supporting paragraphs take \d+ tokens, 60 are allowed"):
        hotpotqa_at_length(RECORDS[0], "a", 60, words)
    with pytest.raises(ValueError, match="gold must be one of sentence, paragraph"):
        hotpotqa_at_length(RECORDS[0], "a", 300, words, gold="word")
    lost = {**RECORDS[0], "supporting_facts": {"title": ["Nowhere"], "sent_id": [0]}}
    with pytest.raises(ValueError, match="no paragraph is titled Nowhere"):
        hotpotqa_at_length(lost, "a", 300, words)
