"""The open questions: what is compared with what, what is chosen from it, and the value biases."""

import json
from collections import Counter

import pandas as pd
import pytest

from flashtrace_book.experiments import better_plan, value_bias
from flashtrace_book.experiments import open_questions as oq
from flashtrace_book.experiments.choices import CHOICES, CHOSEN, choice_options, punctuation_tokens
from flashtrace_book.figures.question_plots import effect_forest
from flashtrace_book.profiles import load_profile
from flashtrace_book.run import Run
from flashtrace_lib import FlashTrace, files
from flashtrace_lib.evaluation.recorder import RECORD_VERSION, Recorder
from flashtrace_lib.evaluation.results_table import frame_from_records
from flashtrace_lib.fingerprints import fingerprint
from flashtrace_lib.methods import LastToken
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.store import Store
from tests.oracles.tiny import tiny_model, tiny_sample

STORED = files.root() / "data" / "results" / "laptop"


@pytest.fixture(scope="module")
def tokenizer(embedded_tokenizer):
    return embedded_tokenizer


# --- options and keys -----------------------------------------------------------------------------------------


def test_keys_of_stored_default_results_are_those_of_today():
    """Fields that came later are in no key of a result that was stored before them."""
    records = Store(STORED / "ruler").records()
    for method in (FlashTrace(), LastToken()):
        part = records[records["method"] == method.name]
        assert len(part) > 20
        for row in part.to_dict("records"):
            assert json.loads(row["options"]) == json.loads(json.dumps(method.options()))
            parts = {
                "version": RECORD_VERSION, "model": row["model_key"], "sample": row["sample_key"],
                "method": [type(method).__qualname__, method.name, method.options()], "steps": int(row["steps"]),
                "precision": "auto",
            }  # fmt: skip
            assert fingerprint(parts) == row["key"]


def test_every_choice_is_a_result_of_its_own(tokenizer):
    model, sample, profile = tiny_model("qwen2"), tiny_sample(), load_profile("smoke")
    recorder = Recorder(model, Scorer(model), 4)
    methods = oq.choice_methods(profile, tokenizer, model)
    assert list(methods) == [oq.DEFAULT, *CHOICES] and methods[oq.DEFAULT] == FlashTrace()
    assert len({recorder.key(method, sample) for method in methods.values()}) == len(methods)
    without = oq.choice_methods(profile, tokenizer, tiny_model("llama"))
    assert set(methods) - set(without) == {"value_bias"}


def test_punctuation_is_commas_full_stops_and_white_space(tokenizer):
    skipped = punctuation_tokens(tokenizer)
    texts = [tokenizer.decode([i]) for i in skipped]
    assert {",", ".", "\n", " "} <= set(texts) and not {":", "a", "=", "7"} & set(texts)
    assert not set(skipped) & set(tokenizer.all_special_ids)
    assert FlashTrace(**choice_options(["punctuation"], tokenizer)).skip_tokens == skipped


def test_choices_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="unknown choice 'sinks'"):
        choice_options(["sinks"])
    with pytest.raises(ValueError, match="pass the model's tokenizer"):
        choice_options(["sink", "punctuation"])


def test_best_is_what_the_chapter_on_it_judges_and_takes_options(tokenizer):
    best = FlashTrace.best(tokenizer, hops=2)
    assert best.options() == FlashTrace(**better_plan.settings()[better_plan.SECOND]).options() | {"hops": 2}
    assert best.name == "flashtrace"


# --- halves ---------------------------------------------------------------------------------------------------


def pairs(cells=4, each=2):
    return [(f"cell{c}", f"cell{c}-{i}") for c in range(cells) for i in range(each)]


def test_halves_are_even_within_cells_and_do_not_depend_on_order():
    where = oq.halves(pairs())
    assert where == oq.halves([*reversed(pairs()), *pairs()])
    for cell in range(4):
        assert Counter(where[f"cell{cell}-{i}"] for i in range(2)) == {oq.TUNING: 1, oq.HELD_OUT: 1}
    odd = Counter(oq.halves(pairs(cells=4, each=3)).values())
    assert odd[oq.TUNING] == odd[oq.HELD_OUT] == 6


def test_the_halves_of_samples_are_disjoint_and_the_shortest_come_first():
    samples = [tiny_sample(n=15 + seed, seed=seed) for seed in range(6)]
    tuning, held = oq.in_half(samples, oq.TUNING), oq.in_half(samples, oq.HELD_OUT)
    assert {s.id for s in tuning} | {s.id for s in held} == {s.id for s in samples} and len(tuning) == len(held) == 3
    assert oq.in_half(samples, oq.TUNING, 2) == sorted(tuning, key=len)[:2]


# --- ranking and choosing -------------------------------------------------------------------------------------

SAMPLES = [f"cell{c}-{i}" for c in range(8) for i in range(2)]


def made_frame(effects, extra=(), rise=None):
    """A frame whose settings differ from the default by a constant on the tuning half, and badly on the other."""
    where, rows = oq.halves(pairs(cells=8)), []
    for method, effect in {oq.DEFAULT: 0.0, **dict.fromkeys(CHOICES, 0.0), **effects, **dict(extra)}.items():
        for i, sample in enumerate(SAMPLES):
            sign = 1 if where[sample] == oq.TUNING else -1
            row = {"sample": sample, "cell": sample.split("-")[0], "method": method, "half": where[sample]}
            rows.append(row | {"metric": "recovery", "value": 0.4 + 0.01 * i + sign * effect})
            rows.append(row | {"metric": "rise", "value": 0.3 - 0.01 * i + sign * (rise or {}).get(method, 0.0)})
    return pd.DataFrame(rows)


def test_choices_are_ranked_by_their_paired_effect():
    frame = made_frame({"sink": 0.1, "raw_hops": -0.2}, rise={"sink": 0.05, "heads_summed": -0.1})
    table = oq.rank_choices(frame[frame["half"] == oq.TUNING])
    recovery = table[table["metric"] == "recovery"].set_index("choice")
    assert recovery["rank"].min() == recovery.loc["sink", "rank"] == 1 and recovery["rank"].max() == len(CHOICES)
    assert recovery.loc["sink", "difference"] == pytest.approx(0.1) and recovery.loc["sink", "n"] == 8
    assert recovery["better"].to_dict() == dict.fromkeys(CHOICES, "neither") | {
        "sink": "the other", "raw_hops": "the paper's",
    }  # fmt: skip
    rise = table[table["metric"] == "rise"].set_index("choice")
    assert rise.loc["heads_summed", "rank"] == 1 and rise.loc["heads_summed", "better"] == "the other"
    assert rise.loc["sink", "rank"] == len(CHOICES) and rise.loc["sink", "better"] == "the paper's"


def test_the_exact_rollout_is_ranked_against_its_own_partner():
    frame = made_frame({}, extra={oq.EXACT_PARTNER: 0.3, oq.EXACT: 0.2})
    row = oq.rank_choices(frame[frame["half"] == oq.TUNING]).set_index(["metric", "choice"]).loc["recovery", oq.EXACT]
    assert row["difference"] == pytest.approx(-0.1) and row["better"] == "the paper's"


def test_candidates_are_what_helps_both_metrics_in_order_of_gain():
    frame = made_frame({"sink": 0.1, "residual": 0.2, "recursion": 0.3, "predictor": -0.1}, rise={"recursion": 0.01})
    assert oq.candidates(frame) == [(), ("residual",), ("residual", "sink")]


def test_the_best_candidate_is_chosen_on_the_tuning_half_alone():
    effects = {"sink": 0.1, "residual": 0.2}
    with pytest.raises(ValueError, match="residual\\+sink were not measured"):
        oq.chosen(made_frame(effects))
    assert oq.chosen(made_frame(effects, {"residual+sink": 0.25})) == ("residual", "sink")
    assert oq.chosen(made_frame(effects, {"residual+sink": 0.2})) == ("residual",)  # of equal ones the smaller
    assert oq.chosen(made_frame({})) == ()  # nothing helps: the paper's setting
    assert len(oq.candidate_table(made_frame(effects, {"residual+sink": 0.25}))) == 2


def test_the_held_out_table_sees_the_held_out_half_alone():
    table = oq.held_out_table(made_frame({}, {oq.CHOSEN_LABEL: 0.1})).set_index("metric")
    assert table.loc["recovery", "difference"] == pytest.approx(-0.1) and table.loc["recovery", "n"] == 8
    assert table.loc["recovery", "better"] == oq.DEFAULT


def test_best_is_what_the_stored_tuning_results_say():
    """The chosen combination is decided by code from the stored results of profile laptop; this decides it again."""
    store = Store(STORED / "open_questions")
    if not store.path.exists():
        assert CHOSEN == ()  # without results there is no other setting than the paper's
        return
    frame = frame_from_records(store.records(), (*oq.RECOVERY, *oq.DELETION))
    assert oq.chosen(oq.with_half(frame)) == CHOSEN


def test_measure_gives_recovery_everywhere_and_curves_where_the_profile_asks(tmp_path, tokenizer):
    run, model = Run(load_profile("smoke")), tiny_model()
    samples = [tiny_sample(seed=seed) for seed in range(4)]
    methods = {oq.DEFAULT: FlashTrace(), "sink": FlashTrace(sink="removed")}
    store, scorer = Store(tmp_path / "s"), Scorer(model)
    frame = oq.with_half(oq.measure(run, model, methods, samples, store, scorer))
    counts = frame.groupby(["method", "half", "metric"]).size().unstack()
    assert (counts[["recovery", "r_precision"]] == 2).all(axis=None)
    assert (counts[["rise", "mas"]] == run.profile.open_questions.deletion_samples).all(axis=None)
    assert len(store) == 8
    tuning = oq.measure(run, model, methods, samples, store, scorer, parts=(oq.TUNING,))
    assert set(tuning["sample"]) == {s.id for s in oq.in_half(samples, oq.TUNING)} and len(store) == 8


def test_settings_of_the_profile_are_checked():
    with pytest.raises(ValueError, match="open_questions.steps"):
        type(load_profile("smoke").open_questions)(steps=0)
    assert load_profile("smoke").open_questions.steps < load_profile("laptop").open_questions.steps


# --- value biases ---------------------------------------------------------------------------------------------


def test_figures_say_each_reading_in_words_of_its_own():
    words = oq.readings([*CHOICES, oq.EXACT])
    assert len(set(words)) == len(words) and not any("_" in text or text in CHOICES for text in words)


def test_value_biases_matter_where_there_are_any():
    model = tiny_model("llama")
    models = {"none": (model, [tiny_sample()]), "some": (value_bias.biased_model(), value_bias.random_samples(6))}
    table = value_bias.value_bias_table(models).set_index("model")
    assert table.loc["none", ["biased", "moved"]].tolist() == [0, 0]
    assert table.loc["some", "biased"] == table.loc["some", "layers"] == 3 and table.loc["some", "moved"] > 0.01
    assert table.loc["some", "low"] <= table.loc["some", "moved"] <= table.loc["some", "high"]


# --- the figure -----------------------------------------------------------------------------------------------


def test_the_forest_marks_better_worse_and_open_effects():
    frame = made_frame({"sink": 0.1, "raw_hops": -0.2}, rise={"sink": 0.05})
    table = oq.rank_choices(frame[frame["half"] == oq.TUNING])
    figure = effect_forest(table, "choice", title="Effects")
    recovery, rise = figure.axes
    names = [label.get_text() for label in recovery.get_yticklabels()]
    assert names[0] == "sink" and names[-1] == "raw_hops" and len(names) == len(CHOICES)
    markers = [bar.lines[0].get_marker() for bar in recovery.containers]
    assert markers == ["o", *["D"] * (len(CHOICES) - 2), "s"]
    assert [bar.lines[0].get_marker() for bar in rise.containers][0] == "s"  # more RISE is worse
    assert "n = 8" in recovery.texts[0].get_text() and "→ better" in recovery.get_xlabel()
    with pytest.raises(ValueError, match="no rows of metric 'mas'"):
        effect_forest(table, "choice", ("mas",))
