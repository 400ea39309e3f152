"""The experiment on the propagated residual: its plan, a small run that resumes, its tables and its figure."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from flashtrace_book.experiments import better_flashtrace as bf
from flashtrace_book.experiments import better_plan as bp
from flashtrace_book.experiments import better_tables as bt
from flashtrace_book.experiments.open_questions import HELD_OUT, TUNING
from flashtrace_book.figures.question_plots import forest_by_half
from flashtrace_book.profiles import BetterProfile, load_profile
from flashtrace_book.run import Run
from flashtrace_lib import FlashTrace
from flashtrace_lib.evaluation.results_table import METRICS
from flashtrace_lib.metrics import mean_interval
from flashtrace_lib.tasks.datasets import synthetic_examples, synthetic_records
from flashtrace_lib.tasks.ruler import CELLS as RULER_CELLS
from tests.oracles.tiny_reasoner import load_tokenizer, tiny
from tests.support.whiskers import drawn

SMALL = BetterProfile(
    length=320, samples=2, tries=2, mask_samples=1, masks=4, drop_samples=1, draws=2, drop_draws=1, max_new_tokens=4,
    fallback="teacher-forced",
)  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer()


# --- plan -----------------------------------------------------------------------------------------------------


def test_the_plan_is_about_what_there_is(tokenizer):
    assert {cell.half for cell in bp.CELLS.values()} == {TUNING, HELD_OUT}
    assert BetterProfile().held_out_seed not in (
        0,
        1,
    )  # the seeds of what was looked at before each candidate was chosen
    for cell in bp.CELLS.values():
        assert cell.source in RULER_CELLS or synthetic_examples(cell.source, 1)
    assert {*bp.RANKING, *bp.MASKED, *bp.DROPPED} <= set(METRICS) and bp.PRIMARY in bp.RANKING
    methods = bp.compared(tokenizer, 2)
    assert {*bp.MAIN, *bp.BASELINES} <= set(methods)
    assert {name for name in methods if not name.startswith("random/")} | {"random"} == set(bp.LABELS)
    assert len(set(bp.LABELS.values())) == len(bp.LABELS)


def test_every_variant_is_a_setting_of_its_own_and_one_factor_from_its_base(tokenizer):
    variants = bp.variants(tokenizer)
    assert len({str(method.options()) for method in variants.values()}) == len(variants)
    assert variants[bp.PAPER] == FlashTrace() and variants[bp.BEST_BEFORE] == FlashTrace(
        heads="sum", first_hop="generation", sink="removed"
    )
    assert variants[bp.CANDIDATE] == FlashTrace(residual="propagated", first_hop="generation", hops=1)
    for base in bp.BASES:
        for name in bp.FACTORS:
            changed = [
                field
                for field, value in vars(variants[f"{base}_{name}"]).items()
                if value != getattr(variants[base], field)
            ]
            assert len(changed) == 1, (base, name)


def test_the_halves_share_no_sample(tokenizer):
    run, plan = Run(load_profile("smoke")), replace(SMALL, tries=3)
    of_half = {TUNING: set(), HELD_OUT: set()}
    for name in ("mq_q2", "h4_c1", "mq_q4", "mq_q2_noise", "hotpotqa"):
        examples = bf.cell_examples(run, name, tokenizer, plan)
        assert {example.cell for example in examples} == {name}
        of_half[bp.CELLS[name].half] |= {example.prompt for example in examples}
    assert all(of_half.values()) and not of_half[TUNING] & of_half[HELD_OUT]


def test_real_questions_are_taken_in_order_and_only_where_the_profile_has_them(tokenizer, tmp_path, monkeypatch):
    records = synthetic_records("morehopqa", 12)
    (tmp_path / "morehopqa").mkdir()
    (tmp_path / "morehopqa" / "with_human_verification.json").write_text(json.dumps(records))
    monkeypatch.setenv("FLASHTRACE_DATA_DIR", str(tmp_path))
    smoke, plan = load_profile("smoke"), replace(SMALL, question_samples=2)
    reasoning = {"modes": {"morehopqa": "step_by_step"}, "unfiltered": ("morehopqa",), "shuffle": False}
    run = Run(replace(smoke, reasoning=replace(smoke.reasoning, source="folder", **reasoning)))
    examples = bf.cell_examples(run, "morehopqa_real", tokenizer, plan)
    assert [example.id for example in examples] == [record["_id"] for record in records[:4]]
    how = {}
    monkeypatch.setattr(bf, "collect_stored", lambda run, store, *given, **options: how.update(options, store=store))
    bf.cell_collection(run, "morehopqa_real", None, tokenizer, plan)
    assert (how["store"], how["mode"], how["filtered"]) == ("question_responses", "step_by_step", False)
    assert not {name for name in bf.planned_cells(BetterProfile()) if name.endswith("_real")}
    for source, cell in (("standin", "morehopqa_real"), ("folder", "morehopqa")):
        run = Run(replace(smoke, reasoning=replace(smoke.reasoning, source=source)))
        with pytest.raises(ValueError, match="does not go with reasoning.source"):
            bf.cell_examples(run, cell, tokenizer, plan)


# --- a small run ----------------------------------------------------------------------------------------------


def test_a_small_run_measures_everything_and_resumes(tmp_path, monkeypatch, tokenizer):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    run, model, cells = Run(load_profile("smoke")), tiny(), ("mq_q2", "mq_q2_noise")
    frame = bf.measure(run, model, tokenizer, SMALL, cells)
    assert dict(frame.groupby("cell")["half"].first()) == {"mq_q2": TUNING, "mq_q2_noise": HELD_OUT}
    of_primary = frame[frame["metric"] == bp.PRIMARY]
    assert set(of_primary["method"]) == set(bp.LABELS) and (of_primary.groupby("method").size() == 4).all()
    n = frame.groupby("metric")["method"].nunique()
    assert n["lds"] == len(bp.LABELS) and n["drop3"] == len(bp.MAIN) + len(bp.BASELINES) + 1
    assert frame[frame["metric"] == "lds"].groupby("method").size().max() == 2  # one sample a cell

    def fail(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(FlashTrace, "_attribute", fail)
    again = bf.measure(run, model, tokenizer, SMALL, cells)
    pd.testing.assert_frame_equal(again, frame)
    one = bf.measure(run, model, tokenizer, SMALL, ["mq_q2"])
    assert set(one["cell"]) == {"mq_q2"}


def test_a_model_that_is_never_right_and_unknown_cells_are_refused(tmp_path, monkeypatch, tokenizer):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    run = Run(load_profile("smoke"))
    with pytest.raises(ValueError, match="answers no problem of mq_q2 rightly"):
        bf.measure(run, tiny(), tokenizer, replace(SMALL, fallback="none"), ["mq_q2"])
    with pytest.raises(ValueError, match="unknown cells mq_q3: known are mq_q2"):
        bf.check_cells(["mq_q2", "mq_q3"])
    with pytest.raises(ValueError, match="none given"):
        bf.check_cells([])


# --- tables and figure ----------------------------------------------------------------------------------------


def made(effects, n=8, metrics=(bp.PRIMARY, "lds")):
    """Values of a frame of `measure`: noise that methods share, an effect for each, and a little noise of their own."""
    rng, rows = np.random.default_rng(0), []
    for cell in ("mq_q2", "h4_c1", "mq_q4", "h2_c3"):
        for i in range(n):
            for metric in metrics:
                shared = rng.uniform()
                for method, effect in effects.items():
                    value = shared + effect + 0.01 * rng.standard_normal()
                    rows.append((f"{cell}-{i}", "ruler", cell, method, metric, value, False))
    columns = ["sample", "task", "cell", "method", "metric", "value", "flagged"]
    return bf.with_halves(pd.DataFrame(rows, columns=columns))


EFFECTS = {bp.PAPER: 0.0, bp.CANDIDATE: 0.2, "ifr": -0.1, "paper_k0": 0.0}


def test_differences_by_half_and_pooled_equal_a_plain_loop():
    frame = made(EFFECTS)
    table = bt.differences(frame).set_index(["half", "method", "metric"])
    assert set(table.index.get_level_values("half")) == {TUNING, HELD_OUT, bp.POOLED}
    assert bp.PAPER not in table.index.get_level_values("method")
    cells = {TUNING: ("mq_q2", "h4_c1"), HELD_OUT: ("mq_q4", "h2_c3"), bp.POOLED: ("mq_q2", "h4_c1", "mq_q4", "h2_c3")}
    for half, names in cells.items():
        part = frame[frame["cell"].isin(names) & (frame["metric"] == bp.PRIMARY)].set_index("sample")
        value = {method: part[part["method"] == method]["value"] for method in EFFECTS}
        paired = [value[bp.CANDIDATE][sample] - value[bp.PAPER][sample] for sample in value[bp.PAPER].index]
        row = table.loc[(half, bp.CANDIDATE, bp.PRIMARY)]
        assert row["difference"] == pytest.approx(np.mean(paired)) and row["n"] == len(paired) == 8 * len(names)
        assert (row["low"], row["high"]) == pytest.approx(mean_interval(paired))
        assert row["better"] == bp.CANDIDATE and row["label"] == bp.LABELS[bp.CANDIDATE]
    against_ifr = bt.differences(frame, "ifr").set_index(["half", "method", "metric"])
    assert against_ifr.loc[(HELD_OUT, bp.PAPER, "lds"), "difference"] == pytest.approx(0.1, abs=0.02)


def test_differences_by_group_of_the_held_out_cells():
    frame = made(EFFECTS)
    held_out = frame[frame["half"] == HELD_OUT]
    table = bt.differences(held_out, by="group").set_index(["group", "method", "metric"])
    assert set(table.index.get_level_values("group")) == {"needles", "chains", bp.POOLED}
    alone = bt.differences(held_out[held_out["cell"] == "mq_q4"]).set_index(["half", "method", "metric"])
    group, cell = table.loc[("needles", "ifr", "lds")], alone.loc[(HELD_OUT, "ifr", "lds")]
    assert group["difference"] == cell["difference"] and group["n"] == cell["n"] == 8


def test_methods_without_a_metric_have_no_row_of_it():
    frame = made(EFFECTS)
    frame = frame[~((frame["method"] == "ifr") & (frame["metric"] == "lds"))]
    table = bt.differences(frame)
    assert not len(table[(table["method"] == "ifr") & (table["metric"] == "lds")])
    with pytest.raises(ValueError, match="no method 'gim'"):
        bt.differences(frame, "gim")


def test_means_and_text():
    frame = made(EFFECTS)
    table = bt.means(frame).set_index(["half", "method", "metric"])
    part = frame[(frame["half"] == TUNING) & (frame["method"] == "ifr") & (frame["metric"] == "lds")]
    assert table.loc[(TUNING, "ifr", "lds"), "mean"] == pytest.approx(part["value"].mean())
    lines = bt.readable(bt.differences(frame)).splitlines()
    assert lines[2].startswith(bp.LABELS[bp.CANDIDATE]) and lines[-1].startswith("IFR")  # best of held-out first


def test_the_samples_where_the_candidate_loses_come_first():
    frame = made(EFFECTS)
    table = bt.losses(frame)
    assert len(table) == 32 and table["difference"].is_monotonic_increasing
    row = table.iloc[0]
    values = frame[(frame["sample"] == row["sample"]) & (frame["metric"] == bp.PRIMARY)].set_index("method")["value"]
    assert row["difference"] == pytest.approx(values[bp.CANDIDATE] - values[bp.PAPER])
    assert row[bp.PAPER] == values[bp.PAPER] and row["half"] in (TUNING, HELD_OUT)


def test_the_forest_shows_both_halves_of_every_method():
    table = bt.differences(made(EFFECTS))
    figure = forest_by_half(table, bp.PRIMARY, reference="the paper's setting", title="T")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()][0] == bp.LABELS[bp.CANDIDATE]
    assert len(axes.get_yticklabels()) == 3
    part = table[(table["metric"] == bp.PRIMARY) & (table["half"] != bp.POOLED)]
    marks = [line for line in axes.lines if line.get_marker() in "oD" and len(line.get_xdata()) == 1]
    assert sorted(float(line.get_xdata()[0]) for line in marks) == pytest.approx(sorted(part["difference"]))
    ends = sorted(float(x) for pair in drawn(figure) for x in pair[:, 0])
    assert ends == pytest.approx(sorted([*part["low"], *part["high"]]))
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {TUNING, HELD_OUT}
    with pytest.raises(ValueError, match="no rows of metric 'rise'"):
        forest_by_half(table, "rise", reference="x")


# --- cost -----------------------------------------------------------------------------------------------------


def test_the_cost_counts_every_pass():
    plan = BetterProfile(samples=2, mask_samples=1, masks=10, drop_samples=1, drop_draws=1)
    run = Run(load_profile("laptop"))
    (row,) = bf.cost_table(run, plan, ["mq_q2"], rate=1e9).to_dict("records")
    by_token = 4
    flashtrace = 1 + (len(bp.settings()) - by_token) * 0.2 + by_token * 1.5  # one pass for all
    attributions = flashtrace + 1.2 + 2 + 3  # IFR, IFR of all, AttnLRP
    assert row["passes"] == round(2 * attributions + 12 + 6 * (len(bp.MAIN) + 3 + 1) + 2)
    exact = 2 * attributions + 12 + 6 * (len(bp.MAIN) + 3 + 1) + 2
    assert row["core_hours"] == pytest.approx(exact * 2 * 134.5e6 * 1324 / 1e9 / 3600)


def test_a_profile_may_measure_a_few_of_the_methods(tokenizer):
    few = BetterProfile(samples=1, mask_samples=0, drop_samples=0, methods=("paper", "candidate", "ifr"))
    run = Run(load_profile("laptop"))
    (row,) = bf.cost_table(run, few, ["mq_q2"]).to_dict("records")
    assert row["passes"] == round(1 + 2 * 0.2 + 1.2)
    assert bf.planned_methods(BetterProfile()) == [name for name in bp.LABELS if name != "random"]
    assert bf.planned_methods(load_profile("laptop").better_flashtrace)
    with pytest.raises(ValueError, match="unknown methods papers; known are paper, "):
        bf.planned_methods(BetterProfile(methods=("paper", "papers")))
    with pytest.raises(ValueError, match="lack 'paper'"):
        bf.planned_methods(BetterProfile(methods=("candidate",)))


def test_the_command_says_what_it_costs(capsys):
    assert bf.main(["--profile", "smoke", "--cells", "mq_q2", "--estimate"]) == 0
    assert "core-hours from scratch" in capsys.readouterr().out
    assert bf.main(["--cells", "mq_q3"]) == 2 and "unknown cells" in capsys.readouterr().err


def test_differences_stand_side_by_side_as_text():
    rows = [
        ("a", "x", "p", 0.1, 0.05, 0.15),
        ("b", "x", "p", -0.2, float("nan"), float("nan")),
        ("a", "y", "p", 0, -1, 1),
    ]
    table = pd.DataFrame(rows, columns=["label", "metric", "minus", "difference", "low", "high"])
    wide = bt.pivoted(table, ["metric", "minus"])
    assert list(wide.index) == ["a", "b"] and list(wide.columns) == ["x minus p", "y minus p"]
    assert wide.loc["a", "x minus p"] == "+0.100 [+0.050, +0.150]" and wide.loc["b", "y minus p"] == "–"
    assert "no interval" in wide.loc["b", "x minus p"]
