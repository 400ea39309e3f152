"""Evaluation resumes, recomputes nothing, keeps raw data, in one arithmetic."""

import pandas as pd
import pytest
import torch

from flashtrace_lib import metrics
from flashtrace_lib.attribution import Method
from flashtrace_lib.evaluation import evaluate, frame_from_records, summarise
from flashtrace_lib.evaluation.recorder import Recorder
from flashtrace_lib.metrics.deletion import Scorer, deletion_curve
from flashtrace_lib.store import Store
from tests.oracles.embedding import CALLS, METHODS, Embedding
from tests.oracles.tiny import tiny_model, tiny_sample


def run(methods, samples, model, **options):
    return evaluate(model, methods, samples, progress=False, scorer=Scorer(model), **options)


# --- the table


def test_frame_holds_the_metrics_of_the_raw_data(model, samples):
    frame = run(METHODS, samples, model)
    assert len(frame) == 2 * (2 * 3 + 1 * 2)  # no recovery, rather than zero, without gold
    assert set(frame[frame["sample"] == "tiny-2"]["metric"]) == {"rise", "mas"}
    row = frame[(frame["sample"] == "tiny-1") & (frame["method"] == "b")].set_index("metric")
    scores = METHODS["b"].attribute(model, samples[1]).scores
    curve = deletion_curve(model, samples[1], scores)
    response = metrics.normalise_response(curve.log_probs)
    assert row.loc["recovery", "value"] == metrics.recovery_rate(scores, samples[1].gold_in_prompt)
    assert row.loc["rise", "value"] == pytest.approx(metrics.rise(response), abs=1e-3)
    assert row.loc["mas", "value"] == pytest.approx(metrics.mas(response, curve.cumulative), abs=1e-3)
    assert row.loc["rise", "flagged"] == metrics.is_flagged(curve.log_probs)
    assert not row.loc["recovery", "flagged"]
    assert (row["cell"] == "tiny").all() and (row["task"] == "tiny").all() and (row["seconds"] > 0).all()
    assert row[["n_input", "n_reasoning", "n_output", "n_gold"]].iloc[0].tolist() == [40, 6, 6, 2]


def test_a_list_of_methods_takes_their_names_and_a_scorer_is_made(model, samples):
    frame = evaluate(model, [Embedding()], samples[:1], progress=False)
    assert set(frame["method"]) == {"embedding"}
    assert set(frame["curve_dtype"]) <= {"float32", "bfloat16"} and len(frame) == 3


# --- the store


def test_second_run_computes_nothing(model, samples, tmp_path):
    store, scorer = Store(tmp_path / "x"), Scorer(model)
    first = evaluate(model, METHODS, samples, store=store, scorer=scorer, progress=False)
    assert len(CALLS) == 6
    done = scorer.n_contexts
    store.compact()
    again = evaluate(model, METHODS, samples, store=Store(store.path), scorer=scorer, progress=False)
    assert len(CALLS) == 6 and scorer.n_contexts == done
    pd.testing.assert_frame_equal(first, again)


@pytest.mark.parametrize("change", ["options", "model", "sample", "steps", "precision"])
def test_whatever_shapes_a_result_is_part_of_its_key(model, samples, tmp_path, change):
    store = Store(tmp_path / "x")
    run([Embedding()], samples[:1], model, store=store)
    method = Embedding(power=2.0 if change == "options" else 1.0)
    model = tiny_model("llama", seed=1) if change == "model" else model
    samples[0].mask_token_id = int(change == "sample")
    scorer = Scorer(model, precision="auto" if change == "precision" else "model")
    steps = 10 if change == "steps" else 20
    evaluate(model, [method], samples[:1], store=store, steps=steps, scorer=scorer, progress=False)
    assert len(CALLS) == 2 and len(store) == 2


def test_new_labels_find_the_old_records(model, samples, tmp_path):
    store = Store(tmp_path / "x")
    run({"old": Embedding()}, samples[:1], model, store=store)
    samples[0].metadata["cell"] = "renamed"
    frame = run({"new": Embedding()}, samples[:1], model, store=store)
    assert len(CALLS) == 1
    assert set(frame["method"]) == {"new"} and set(frame["cell"]) == {"renamed"}


def test_curve_is_added_later_without_attributing_again(model, samples, tmp_path):
    store, scorer = Store(tmp_path / "x"), Scorer(model)
    options = dict(store=store, scorer=scorer, progress=False)
    frame = evaluate(model, [Embedding()], samples, metrics=("recovery", "r_precision"), **options)
    assert scorer.n_contexts == 0 and set(frame["metric"]) == {"recovery", "r_precision"}
    assert store.records()["log_probs"].isna().all()
    frame = evaluate(model, [Embedding()], samples, **options)
    assert len(CALLS) == 3 and scorer.n_contexts == 63 and len(frame) == 8
    assert store.records()["log_probs"].notna().all() and len(store) == 3


def test_records_are_raw_and_definitions_can_change_without_the_model(model, samples, tmp_path):
    store = Store(tmp_path / "x")
    frame, records = run(METHODS, samples, model, store=store), store.records()
    record = records.iloc[0]
    assert len(record["log_probs"]) == len(record["cumulative"]) == len(record["n_masked"]) == 21
    assert len(record["scores"]) == 40 and [len(hop) for hop in record["hop_scores"]] == [60, 60]
    assert record["flow"] == [0.5, 0.25] and record["mask_token_id"] == 0 and record["curve_dtype"] == "float32"
    assert '"passes": 1' in record["method_metadata"] and '"id": "tiny-' in record["sample_metadata"]
    assert all(record[name] for name in ("code", "versions", "model_key", "sample_key", "device", "model_dtype"))

    def ordered(table):
        return table.sort_values(["key", "metric"]).reset_index(drop=True)

    pd.testing.assert_frame_equal(ordered(frame_from_records(records)), ordered(frame))
    printed = frame_from_records(records, metrics=("rise",), definition="printed")
    expected = metrics.rise(metrics.normalise_response(record["log_probs"], "printed"), "printed")
    assert printed.loc[printed["key"] == record["key"], "value"].item() == expected


def test_summary_groups_in_order_with_intervals(model, samples):
    summary = summarise(run({"z": Embedding(), "a": Embedding(-1.0)}, samples, model))
    assert summary["method"].drop_duplicates().tolist() == ["z", "a"]
    assert list(summary.columns) == ["method", "cell", "metric", "mean", "low", "high", "n", "n_effective", "flagged"]
    assert set(summary["n"]) == {1, 2} and summary[["low", "high"]].isna().all(axis=None)  # too few for an interval
    assert summarise(frame_from_records([])).empty


@pytest.mark.parametrize(
    ("metadata", "answers", "right"),
    [({}, "own", None), ({"score": 1.0}, "own", True), ({"score": 0.5, "response": "teacher-forced"}, "forced", False)],
)
def test_a_table_says_who_wrote_the_answer_and_whether_it_is_right(model, samples, metadata, answers, right):
    samples[0].metadata |= metadata
    row = run([Embedding()], samples[:1], model, metrics=("recovery",)).iloc[0]
    assert row["answers"] == answers and (row["right"] is right or row["right"] == right) and row["model"]


# --- arithmetic


@pytest.fixture
def bfloat16(monkeypatch):
    """A CPU that computes in bfloat16, and samples that decide."""
    monkeypatch.setattr("flashtrace_lib.metrics.deletion._native_bfloat16", lambda: True)
    monkeypatch.setattr("flashtrace_lib.metrics.deletion.is_flagged", lambda curve: False)


@pytest.mark.parametrize(("tolerance", "dtype"), [(-1.0, "float32"), (9.0, "bfloat16")])
def test_one_arithmetic_for_an_evaluation_and_for_what_resumes_it(bfloat16, model, samples, tmp_path, tolerance, dtype):
    store, options = Store(tmp_path / "x"), dict(progress=False)
    scorer = Scorer(model, precision="auto", tolerance=tolerance)
    evaluate(model, [Embedding()], samples[:1], store=store, scorer=scorer, **options)
    again = Scorer(model, precision="auto", tolerance=-tolerance)  # would choose otherwise
    frame = evaluate(model, [Embedding()], samples, store=store, scorer=again, **options)
    assert set(frame["curve_dtype"]) == {dtype} and len(CALLS) == 3
    (note,) = set(store.records()["curve_note"])
    assert note.startswith(f"{dtype}: bfloat16 changes RISE by")


def test_a_dtype_that_was_asked_for_is_part_of_the_key(model, samples):
    keys = [Recorder(model, Scorer(model, dtype=dtype), 4).key(Embedding(), samples[0])
            for dtype in (None, "float32", "bfloat16")]  # fmt: skip
    assert keys[0] == keys[1] != keys[2]


# --- bad input


class Plain(Method):
    name = "plain"

    def __init__(self):
        self.power = 1

    def _attribute(self, model, sample):
        raise AssertionError("it was refused")


class Derived(Embedding):
    def __init__(self):
        super().__init__()
        self.more = 1


def test_bad_input_is_named(model, samples):
    own, other = Scorer(model), Scorer(tiny_model("qwen3"))
    for message, methods, scorer, wanted in (
        ("unknown metrics.*risen", [Embedding()], own, ("risen",)), ("give a tuple", [Embedding()], own, "rise"),
        ("pass a dict label", [Embedding(), Embedding(2.0)], own, ("rise",)),
        ("no dataclass", [Plain()], own, ("rise",)), ("with .'more'", [Derived()], own, ("rise",)),
        ("another model", [Embedding()], other, ("rise",)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            evaluate(model, methods, samples, scorer=scorer, metrics=wanted)
    odd = tiny_sample()
    odd.metadata["bad"] = torch.ones(1)
    with pytest.raises(ValueError, match="metadata of sample tiny-0 is not JSON-ready"):
        run([Embedding()], [odd], model)
    samples[0].mask_token_id = None
    with pytest.raises(ValueError, match="mask_token_id") as caught:
        run([Embedding()], samples, model)
    assert "while evaluating embedding on sample tiny-0" in caught.value.__notes__
