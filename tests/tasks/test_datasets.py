"""Records from a folder and from the hub: their examples, and errors that name the place."""

import json
import sys
import types
from pathlib import Path

import pytest

from flashtrace_lib.tasks import score
from flashtrace_lib.tasks.datasets import folder_records, task_examples
from flashtrace_lib.tasks.records import hotpotqa_example
from flashtrace_lib.tasks.registry import TASKS
from tests.book.test_documents import supporting

RECORDS = Path(__file__).parents[1] / "records"  # three of each data set, as published


def records_of(kind):
    return [dict(record) for record in folder_records(kind, RECORDS)[1]]


@pytest.mark.parametrize("kind", TASKS)
def test_published_records_become_examples_whose_own_answer_is_right(kind):
    in_order = task_examples(kind, None, folder=RECORDS, seed=None)
    assert len(in_order) == 3 and len({e.id for e in in_order}) == 3
    for example in in_order:
        assert example.task == example.cell == kind and score(example, example.output) == 1.0
        assert example.reasoning or kind == "exercism"
    drawn = [task_examples(kind, 2, folder=RECORDS, seed=seed) for seed in (1, 1, 2, 3, 4)]
    assert drawn[0] == drawn[1] and all(len(one) == 2 and set(map(id, one)) for one in drawn)
    assert len({tuple(e.id for e in one) for one in drawn}) > 1


@pytest.mark.parametrize("kind", ["gsm8k", "math500"])
def test_how_to_answer_is_no_part_of_the_problem(kind):
    for example in task_examples(kind, 3, folder=RECORDS):
        assert "boxed" in example.request and "boxed" not in example.prompt


def test_evidence_of_the_questions_with_documents_is_marked_in_their_prompts():
    examples = task_examples("hotpotqa", 3, folder=RECORDS, seed=None)
    for record, example in zip(records_of("hotpotqa"), examples, strict=True):
        assert sorted(example.prompt[a:b] for a, b in example.evidence) == sorted(supporting(record))
    for example in task_examples("morehopqa", 3, folder=RECORDS):
        a, b = example.haystack
        assert example.evidence and all(a <= start < stop <= b for start, stop in example.evidence)
        assert example.prompt[example.question :].startswith("Question: ")


def test_a_prompt_that_occurs_twice_is_taken_once(tmp_path):
    path = tmp_path / "gsm8k" / "test.jsonl"
    path.parent.mkdir()
    lines = (RECORDS / "gsm8k" / "test.jsonl").read_text().replace(". ", ".\u2028").split("\n")
    path.write_text("\n".join(lines + lines))
    assert len(task_examples("gsm8k", None, folder=tmp_path)) == 3


def test_a_clone_of_the_exercises_is_read(tmp_path):
    record = records_of("exercism")[0]
    for name, text in record["files"].items():
        path = tmp_path / "exercises" / "practice" / record["slug"] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (found,) = task_examples("exercism", None, folder=tmp_path)
    written = task_examples("exercism", 1, folder=RECORDS, seed=None)[0]
    assert (found.prompt, found.answers, found.id) == (written.prompt, written.answers, record["slug"])


@pytest.mark.parametrize("kind", ("math500", "gsm8k", "hotpotqa"))
def test_the_hub_is_asked_for_the_right_set(kind, monkeypatch):
    asked = []

    def load_dataset(*names, split):
        asked.append((*names, split))
        return records_of(kind)

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    found = task_examples(kind, 2, source="hub")
    assert len(found) == 2 and asked == [(TASKS[kind].hub, TASKS[kind].config, TASKS[kind].split)]


def test_morehopqa_is_downloaded_as_a_file(monkeypatch):
    hub = types.SimpleNamespace(hf_hub_download=lambda id, file, repo_type: RECORDS / TASKS["morehopqa"].files[0])
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert len(task_examples("morehopqa", None, source="hub")) == 3

    def offline(id, file, repo_type):
        raise OSError("no network\nat all")

    monkeypatch.setattr(hub, "hf_hub_download", offline)
    with pytest.raises(ValueError, match=r"cannot load morehopqa \(alabnii/morehopqa\) from the hub: no network. With"):
        task_examples("morehopqa", 1, source="hub")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"question": "Why?"}', r"gsm8k/test.jsonl, record 0 \(gsm8k-0\): record gsm8k-0 lacks answer"),
        ('{"question": "Why?",', r"test.jsonl, line 1 is no JSON"), ("[1]", "must hold a list of records"),
        ("", "holds no records"), ('{"question": "Why?", "answer": "4"}', "does not end in '#### N'"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_named(text, message, tmp_path):
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "test.jsonl").write_text(text)
    with pytest.raises(ValueError, match=message):
        task_examples("gsm8k", None, folder=tmp_path)


def test_bad_requests_are_refused(tmp_path):
    for name, options, message in (
        ("squad", {}, "unknown task 'squad'"), ("gsm8k", {}, "set FLASHTRACE_DATA_DIR"),
        ("gsm8k", {"source": "web"}, "source must be one of folder, hub, got 'web'"),
        ("gsm8k", {"folder": tmp_path}, "holds no gsm8k: looked for gsm8k/test.jsonl"),
        ("exercism", {"source": "hub"}, "clone https://github.com/exercism/python"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            task_examples(name, 1, **options)


def test_a_faulty_record_of_hotpotqa_is_named(tmp_path):
    records = records_of("hotpotqa")
    title = records[2]["supporting_facts"]["title"][0]
    records[2]["supporting_facts"]["sent_id"][0] = 99
    with pytest.raises(ValueError, match=f"supporting fact is sentence 99 of '{title}'"):
        hotpotqa_example(records[2], "x")
    records[0]["context"] = {"title": ["A"]}
    path = tmp_path / TASKS["hotpotqa"].files[0]
    path.parent.mkdir()
    path.write_text(json.dumps(records))
    with pytest.raises(ValueError, match=r"hub_format.json, record 0 \(hotpotqa-0\): KeyError at 'sentences'"):
        task_examples("hotpotqa", None, folder=tmp_path)
