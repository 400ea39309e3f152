"""HotpotQA at a chosen length: what must be kept is kept, and nothing else that fits is left out."""

import json
import warnings
from pathlib import Path

import pytest

from flashtrace_book.experiments.documents import documents_examples, hotpotqa_at_length
from flashtrace_lib.tasks import task_examples
from flashtrace_lib.tasks.datasets import folder_records
from flashtrace_lib.tasks.records import hotpotqa_example

FOLDER = Path(__file__).parents[1] / "records"
PATH, RECORDS = folder_records("hotpotqa", FOLDER)


def words(text):
    return len(text.split())


def supporting(record):
    sentences = dict(zip(record["context"]["title"], record["context"]["sentences"], strict=True))
    facts = zip(record["supporting_facts"]["title"], record["supporting_facts"]["sent_id"], strict=True)
    return [sentences[title][i].strip() for title, i in facts]


@pytest.mark.parametrize("length", [300, 600, 10_000])
@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["question"][:20])
def test_support_is_kept_and_the_budget_is_used(record, length):
    example = hotpotqa_at_length(record, "a", length, words)
    assert example.metadata["tokens"] == words(example.prompt) <= length
    assert sorted([example.prompt[a:b] for a, b in example.evidence]) == sorted(supporting(record))
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
    filled = hotpotqa_at_length(first, "a", 2_000, words, others=others + [first])
    assert filled.metadata["documents"] > alone.metadata["documents"] == 10
    titles = [block.split("\n")[1] for block in filled.prompt.split("\n\n") if block.startswith("Document ")]
    assert len(titles) == len(set(titles)) == filled.metadata["documents"]


def test_the_draw_follows_the_seed_and_the_id():
    draws = [hotpotqa_at_length(RECORDS[0], id, 500, words, seed=seed).prompt
             for id, seed in (("a", 0), ("a", 0), ("a", 1), ("b", 0))]  # fmt: skip
    assert draws[0] == draws[1] and len(set(draws)) == 3


def test_both_formats_give_one_prompt():
    record = RECORDS[1]
    original = {
        **record, "context": [list(p) for p in zip(*record["context"].values(), strict=True)],
        "supporting_facts": [list(p) for p in zip(*record["supporting_facts"].values(), strict=True)],
    }  # fmt: skip
    assert hotpotqa_at_length(record, "a", 500, words) == hotpotqa_at_length(original, "a", 500, words)
    assert hotpotqa_example(record, "a") == hotpotqa_example(original, "a")


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"record a: its supporting paragraphs take \d+ tokens, 60 are allowed"):
        hotpotqa_at_length(RECORDS[0], "a", 60, words)
    lost = {**RECORDS[0], "supporting_facts": {"title": ["Nowhere"], "sent_id": [0]}}
    with pytest.raises(ValueError, match="no paragraph is titled Nowhere"):
        hotpotqa_at_length(lost, "a", 500, words)


def test_records_are_drawn_as_for_the_task_and_those_that_do_not_fit_are_told(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = documents_examples(3, 700, words, source="folder", folder=FOLDER, seed=1)
    assert [e.id for e in drawn] == [e.id for e in task_examples("hotpotqa", 3, folder=FOLDER, seed=1)]
    assert all(600 < e.metadata["tokens"] <= 700 for e in drawn)
    with pytest.warns(UserWarning, match="supporting paragraphs take") as told:
        few = documents_examples(3, 240, words, source="folder", folder=FOLDER, seed=1)
    assert few and len(told) == 3 - len(few)
    records, title = json.loads(Path(PATH).read_text()), RECORDS[2]["supporting_facts"]["title"][0]
    records[2]["supporting_facts"]["sent_id"][0] = 99
    (tmp_path / "hotpotqa").mkdir()
    (tmp_path / "hotpotqa" / Path(PATH).name).write_text(json.dumps(records))
    with pytest.warns(UserWarning, match=f"supporting fact is sentence 99 of '{title}'"):
        assert len(documents_examples(3, 700, words, source="folder", folder=tmp_path, seed=None)) == 2
