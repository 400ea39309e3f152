"""Records from a folder, from the hub and synthetic ones: the same examples, and errors that name the place."""

import json
import sys
import types

import pytest

from flashtrace_book.paths import data_dir
from flashtrace_lib.tasks import datasets
from flashtrace_lib.tasks.datasets import documents_examples, synthetic_examples, synthetic_records, task_examples
from flashtrace_lib.tasks.records import hotpotqa_example
from flashtrace_lib.tasks.registry import TASKS
from tests.support.record_folders import write_records

KINDS = tuple(TASKS)


def as_pairs(examples):
    return {(e.id, e.prompt, e.reasoning, e.output) for e in examples}


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_gives_the_examples_that_were_written_there(kind, tmp_path):
    write_records(tmp_path, 6)
    found = task_examples(kind, None, source="folder", folder=tmp_path)
    written = synthetic_examples(kind, 6)
    assert {e.prompt for e in found} == {e.prompt for e in written}
    assert {e.answers for e in found} == {e.answers for e in written}
    in_order = task_examples(kind, 4, source="folder", folder=tmp_path, seed=None)
    assert [e.prompt for e in in_order] == [e.prompt for e in written[:4]]
    drawn = [task_examples(kind, 4, source="folder", folder=tmp_path, seed=seed) for seed in (1, 1, 2)]
    assert as_pairs(drawn[0]) == as_pairs(drawn[1]) and len(drawn[2]) == 4
    assert [e.prompt for e in drawn[0]] != [e.prompt for e in in_order] or drawn[2] != in_order
    everything = task_examples(kind, 99, source="folder", folder=tmp_path)
    assert len(everything) == len({e.prompt for e in written})  # a prompt that occurs twice is taken once


def test_both_formats_of_hotpotqa_are_read(tmp_path):
    record = synthetic_records("hotpotqa", 1)[0]
    original = {**record, "_id": record["id"],
                "context": list(zip(record["context"]["title"], record["context"]["sentences"], strict=True)),
                "supporting_facts": list(zip(record["supporting_facts"]["title"], record["supporting_facts"]["sent_id"],
                                             strict=True))}  # fmt: skip
    (tmp_path / "hotpotqa").mkdir()
    (tmp_path / TASKS["hotpotqa"].files[1]).write_text(json.dumps([original]))
    (found,) = task_examples("hotpotqa", None, source="folder", folder=tmp_path)
    (written,) = synthetic_examples("hotpotqa", 1)
    assert (found.prompt, found.evidence, found.reasoning) == (written.prompt, written.evidence, written.reasoning)


def test_a_clone_of_the_exercises_is_read(tmp_path):
    record = synthetic_records("exercism", 1)[0]
    for name, text in record["files"].items():
        path = tmp_path / "exercises" / "practice" / record["slug"] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (found,) = task_examples("exercism", None, source="folder", folder=tmp_path)
    (written,) = synthetic_examples("exercism", 1)
    assert (found.prompt, found.answers, found.id) == (written.prompt, written.answers, record["slug"])


@pytest.mark.parametrize("kind", ("math500", "gsm8k", "hotpotqa"))
def test_the_hub_is_asked_for_the_right_set(kind, monkeypatch):
    asked = []

    def load_dataset(*names, split):
        asked.append((*names, split))
        return synthetic_records(kind, 3)

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    found = task_examples(kind, 2, source="hub")
    assert len(found) == 2 and asked == [(TASKS[kind].hub.id, TASKS[kind].hub.config, TASKS[kind].hub.split)]


def test_morehopqa_is_downloaded_as_a_file(monkeypatch, tmp_path):
    path = tmp_path / "records.json"
    path.write_text(json.dumps(synthetic_records("morehopqa", 3)))
    hub = types.SimpleNamespace(hf_hub_download=lambda id, file, repo_type: path)
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
        ('{"question": "Why?",', r"test.jsonl, line 1 is no JSON"),
        ("[1]", "must hold a list of records"),
        ("", "holds no records"),
        ('{"question": "Why?", "answer": "4"}', "does not end in '#### N'"),
    ],
)
def test_a_file_that_does_not_fit_is_named(text, message, tmp_path):
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "test.jsonl").write_text(text)
    with pytest.raises(ValueError, match=message):
        task_examples("gsm8k", None, source="folder", folder=tmp_path)


def test_a_record_of_the_wrong_shape_is_named(tmp_path):
    record = {**synthetic_records("hotpotqa", 1)[0], "context": {"title": ["A"]}}
    (tmp_path / "hotpotqa").mkdir()
    (tmp_path / TASKS["hotpotqa"].files[0]).write_text(json.dumps([record]))
    with pytest.raises(ValueError, match=r"hub_format.json, record 0 \(hotpotqa-eval-s0-0\): KeyError at 'sentences'"):
        task_examples("hotpotqa", None, source="folder", folder=tmp_path)


def test_bad_requests_are_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown task 'squad'"):
        task_examples("squad", 1)
    with pytest.raises(ValueError, match="source must be one of standin, synthetic, folder, hub"):
        task_examples("gsm8k", 1, source="web")
    with pytest.raises(ValueError, match="say how many"):
        task_examples("gsm8k", None)
    with pytest.raises(ValueError, match="set FLASHTRACE_DATA_DIR"):
        task_examples("gsm8k", 1, source="folder")
    with pytest.raises(ValueError, match="holds no gsm8k: looked for gsm8k/test.jsonl"):
        task_examples("gsm8k", 1, source="folder", folder=tmp_path)
    with pytest.raises(ValueError, match="clone https://github.com/exercism/python"):
        task_examples("exercism", 1, source="hub")
    assert as_pairs(task_examples("gsm8k", 2)) == as_pairs(synthetic_examples("gsm8k", 2))


@pytest.mark.skipif(data_dir() is None, reason="FLASHTRACE_DATA_DIR names no folder of real records")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "math"])  # MATH-500 stands for it
def test_real_records_load(kind):
    found = task_examples(kind, None, source="folder", folder=data_dir())
    assert len(found) >= 8 and len({e.id for e in found}) == len(found)
    assert datasets.folder_records(kind, data_dir())[0].endswith(TASKS[kind].files[0])


@pytest.mark.parametrize("kind", KINDS)
def test_no_synthetic_problem_is_handed_out_twice(kind):
    found = task_examples(kind, 40)
    assert len({example.prompt for example in found}) == len(found) == 40
    written = synthetic_examples(kind, 160)
    places = [next(i for i, other in enumerate(written) if other.prompt == example.prompt) for example in found]
    assert places == sorted(places) and [example.id for example in found] == [written[i].id for i in places]


@pytest.mark.parametrize("kind", ["gsm8k", "math500"])
def test_how_to_answer_is_no_part_of_the_problem(kind):
    for example in task_examples(kind, 5):
        assert "boxed" in example.request and "boxed" not in example.prompt


def _support_alone(record, words):
    """Words of the prompt with nothing but the supporting paragraphs."""
    context, wanted = record["context"], record["supporting_facts"]["title"]
    kept = [(t, s) for t, s in zip(context["title"], context["sentences"], strict=True) if t in wanted]
    return words(hotpotqa_example({**record, "context": kept}, "x").prompt)


def test_documents_fill_a_length_and_what_does_not_fit_is_counted(tmp_path):
    def words(text):
        return len(text.split())

    drawn, refused = documents_examples(5, 400, words, seed=1)
    assert refused == {"too long": 0} and [e.id for e in drawn] == [e.id for e in task_examples("hotpotqa", 5, seed=1)]
    assert all(350 < e.metadata["tokens"] <= 400 for e in drawn)
    write_records(tmp_path, 6)
    from_folder, _ = documents_examples(6, 400, words, source="folder", folder=tmp_path, seed=2)
    same = task_examples("hotpotqa", 6, source="folder", folder=tmp_path, seed=2)
    assert [e.id for e in from_folder] == [e.id for e in same]
    least = sorted(_support_alone(record, words) for record in synthetic_records("hotpotqa", 5, 1))
    few, left_out = documents_examples(5, least[2], words, seed=1)
    assert few and left_out["too long"] == 5 - len(few) > 0
    record = json.loads((tmp_path / TASKS["hotpotqa"].files[0]).read_text())
    record[0]["supporting_facts"]["title"][0] = "Nowhere"
    (tmp_path / TASKS["hotpotqa"].files[0]).write_text(json.dumps(record))
    with pytest.raises(ValueError, match="no paragraph is titled Nowhere"):
        documents_examples(6, 400, words, source="folder", folder=tmp_path)


@pytest.mark.parametrize("index", [99, -1])
def test_a_record_whose_supporting_sentence_does_not_exist_is_refused_and_counted(tmp_path, index):
    records = synthetic_records("hotpotqa", 6)
    title = records[2]["supporting_facts"]["title"][1]
    records[2]["supporting_facts"]["sent_id"][1] = index
    message = rf"record {records[2]['id']}: its supporting fact is sentence {index} of '{title}'"
    with pytest.raises(ValueError, match=message):
        hotpotqa_example(records[2], records[2]["id"])
    path = tmp_path / TASKS["hotpotqa"].files[0]
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(records))
    with pytest.warns(UserWarning, match=message):
        made, refused = documents_examples(6, 400, lambda text: len(text.split()), source="folder", folder=tmp_path)
    assert refused == {"too long": 0, "faulty": 1} and len(made) == 5
    assert records[2]["id"] not in {example.id for example in made} and all(len(e.evidence) >= 2 for e in made)


def test_the_whole_of_math_is_read_in_its_authors_layout_and_from_the_hub(tmp_path, monkeypatch):
    records = synthetic_records("math", 4)
    assert all("answer" not in record and record["level"].startswith("Level ") for record in records)
    for i, record in enumerate(records):
        path = tmp_path / "MATH" / "test" / "algebra" / f"{i}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({name: record[name] for name in ("problem", "level", "type", "solution")}))
    found = task_examples("math", None, source="folder", folder=tmp_path, seed=None)
    written = {e.prompt: e for e in synthetic_examples("math", 4)}
    assert {e.prompt: e.answers for e in found} == {p: e.answers for p, e in written.items()}
    assert found[0].id == "algebra/0" and found[0].task == found[0].cell == "math" and found[0].scorer == "boxed"
    (tmp_path / "MATH" / "test" / "algebra" / "9.json").write_text("[]")
    with pytest.raises(ValueError, match=r"9\.json must hold one problem"):
        task_examples("math", None, source="folder", folder=tmp_path)
    asked = []

    def load_dataset(name, config, split):
        asked.append((name, config, split))
        return records

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    assert task_examples("math", 2, source="hub")
    assert (
        asked == [("EleutherAI/hendrycks_math", config, "test") for config in TASKS["math"].hub.config]
        and len(asked) == 7
    )
