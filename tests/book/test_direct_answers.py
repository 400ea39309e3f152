"""Right answers that a model gives at once: which records are tried, how, and what is kept."""

import json
from dataclasses import replace

import pytest

from flashtrace_book.experiments import direct_answers
from flashtrace_book.experiments.causal_masking import causal_frame
from flashtrace_book.profiles import ReasoningProfile, load_profile
from flashtrace_book.recompute import RECOMPUTE
from flashtrace_book.run import Run
from flashtrace_lib import FlashTrace
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.datasets import synthetic_records
from flashtrace_lib.tasks.responses import Collection
from tests.oracles.planted import Words, causal_sample, planted_model
from tests.oracles.tiny_reasoner import load_tokenizer


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Smoke on records of a folder, which reasons in its own tables and answers at once here."""
    for kind, file in (("morehopqa", "with_human_verification.json"), ("hotpotqa", "train_original_format.json")):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / file).write_text(json.dumps(synthetic_records(kind, 8)))
    monkeypatch.setenv("FLASHTRACE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path / "results"))
    smoke = load_profile("smoke")
    own = {"source": "folder", "shuffle": False, "samples": 3, "max_tries": 9, "modes": {"morehopqa": "step_by_step"}}
    own |= {"unfiltered": ("morehopqa",), "direct": {"morehopqa": 4, "hotpotqa": 2}}
    return Run(replace(smoke, reasoning=replace(smoke.reasoning, **own)))


def test_the_records_are_put_plainly_and_right_answers_alone_are_kept(run, monkeypatch):
    asked = []

    def collect(run, store, examples, model, tokenizer, n, **options):
        asked.append((store, [e.cell for e in examples], n, options))
        return Collection([examples[0].cell])

    monkeypatch.setattr(direct_answers, "collect_stored", collect)
    assert direct_answers.direct_samples(run, None, load_tokenizer()) == ["morehopqa_direct", "hotpotqa_direct"]
    (store, cells, n, options), (_, hotpot, _, _) = asked
    assert (store, n, options["fallback"], options["give_up"]) == ("direct_responses", 4, "none", False)
    assert cells == ["morehopqa_direct"] * 4 and hotpot == ["hotpotqa_direct"] * 2
    assert "mode" not in options and options.get("filtered", True) and options["sealed"]


def test_a_profile_that_asks_for_none_has_none():
    assert direct_answers.direct_collections(Run(load_profile("smoke")), None, None) == {}
    with pytest.raises(ValueError, match="no task 'trivia'"):
        ReasoningProfile(direct={"trivia": 3})
    assert {"direct_answers", "direct_responses"} <= set(RECOMPUTE)


def test_a_stored_causal_check_is_answered_again_and_a_changed_one_is_seen(run, tmp_path):
    """On a model that copies one word of the input: the record is found by its key, and its answers come again."""
    model, sample, store = planted_model(), causal_sample(), Store(tmp_path / "causes")
    hop_0 = FlashTrace(hops=0)
    assert direct_answers.stored_record(run.profile, model, store, sample) is None
    causal_frame(model, Words(), [sample], FlashTrace(hops=1), store, run.profile.seed)
    assert direct_answers.stored_record(run.profile, model, store, sample) is None  # of another method
    causal_frame(model, Words(), [sample], hop_0, store, run.profile.seed)
    record = direct_answers.stored_record(run.profile, model, store, sample)
    *_, agrees = direct_answers.compare(run.profile, model, Words(), sample, record)
    assert agrees
    told = record | {"answers": [*record["answers"][:-1], "another answer"]}
    check, old, new, agrees = direct_answers.compare(run.profile, model, Words(), sample, told)
    assert not agrees and "masked" in check and old["tokens"] == new["tokens"] and old["answers"] != new["answers"]


def test_answers_to_records_of_others_are_stored_sealed_and_audited_all_the_same(run, tmp_path):
    model, sample, store, hop_0 = planted_model(), causal_sample(), Store(tmp_path / "causes"), FlashTrace(hops=0)
    plain = causal_frame(model, Words(), [sample], hop_0, Store(tmp_path / "plain"), run.profile.seed)
    for _ in range(2):  # computed, and read again
        sealed = causal_frame(model, Words(), [sample], hop_0, store, run.profile.seed, sealed=True)
        assert sealed.equals(plain)
    (part,) = store.parts.glob("*.parquet")
    assert not set(store.get(part.stem)["answers"]) & (set(plain["answer"]) - {""})
    record = direct_answers.stored_record(run.profile, model, store, sample)
    assert list(record["answers"]) == plain["answer"].tolist()
    assert direct_answers.compare(run.profile, model, Words(), sample, record)[-1]
