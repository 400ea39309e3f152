"""The metric audit: hand-made curves against values worked out by hand, stored curves under other definitions."""

import numpy as np
import pandas as pd
import pytest

from flashtrace_book.experiments import metric_audit as audit
from flashtrace_book.figures import method_plots, metric_audit_plots
from flashtrace_lib import metrics as m
from flashtrace_lib.evaluation.results_table import frame_from_records
from flashtrace_lib.store import Store

STEPS = 20


def record(method, sample, scores, log_probs, cell="c", gold=(0, 1)):
    marks = [i in gold for i in range(len(scores))]
    return {"method": method, "sample": sample, "cell": cell, "task": "t", "scores": np.asarray(scores, dtype=float),
            "log_probs": list(log_probs), "cumulative": m.cumulative(scores, len(log_probs) - 1).tolist(),
            "gold": marks, "seconds": 1.0, "key": f"{method}-{sample}"}  # fmt: skip


@pytest.fixture(scope="module")
def records():
    """Three methods on eight samples, two of them flagged."""
    rng, rows = np.random.default_rng(0), []
    for i in range(8):
        ends = (-1.0, -30.0) if i < 6 else (-20.0, -5.0)
        for name, speed in (("flashtrace", 3.0), ("ifr", 1.5), ("random", 0.8)):
            fall = np.linspace(0, 1, STEPS + 1) ** (1 / speed)
            log_probs = ends[0] + (ends[1] - ends[0]) * fall + np.r_[0, rng.normal(0, 0.2, STEPS - 1), 0]
            rows.append(record(name, f"s{i}", rng.exponential(size=60), log_probs, cell="ab"[i % 2]))
    return pd.DataFrame(rows)


def test_hand_made_curves_have_the_scores_worked_out_by_hand():
    table = audit.hand_made_table(STEPS).set_index("curve")
    line = table.loc["straight line, even mass"]
    assert line["rise"] == pytest.approx(0.5) and line["mas"] == pytest.approx(0.5)
    # as printed: the mean of f_k is (K - 1) / 2K, that of |f_k - k / K| is 1/2 at even K
    assert line["printed_mas"] == pytest.approx(0.475 + np.abs(np.arange(1, 21) / 20 * 2 - 1).mean())
    perfect = table.loc["cliff at the first step, all mass there"]
    assert perfect["rise"] == perfect["mas"] == pytest.approx(1 / (2 * STEPS))  # the floor of the grid
    flat = table.loc["cliff at the first step, even mass"]
    assert flat["rise"] == perfect["rise"] and flat["mas"] == pytest.approx(0.5)  # max(d, 2r - d) = d
    late = table.loc["cliff at the last step, even mass"]
    assert late["rise"] == pytest.approx(1 - 1 / (2 * STEPS)) and late["mas"] > 0.95
    assert table.loc["no drop at all, even mass", "rise"] == 1


def test_an_absolute_denominator_makes_a_rising_likelihood_perfect():
    table = audit.denominator_table({"falls": np.linspace(-1, -9, 21), "rises": np.linspace(-9, -1, 21)})
    assert table["flagged"].tolist() == [False, True]
    assert table["signed"].tolist() == pytest.approx([0.5, 1.0])
    assert table["absolute"].tolist() == pytest.approx([0.5, 0.0])


def test_variants_are_the_frames_under_other_definitions(records):
    table = audit.variant_table(records)
    assert set(table["variant"]) == set(audit.VARIANTS) and set(table["metric"]) == {"rise", "mas"}
    default = frame_from_records(records, ("rise",)).groupby("method")["value"].mean()
    mine = table[(table["metric"] == "rise") & (table["variant"] == "signed denominator")].set_index("method")
    assert mine["mean"].to_dict() == pytest.approx(default.to_dict())
    assert mine["rank"].to_dict() == {"flashtrace": 1, "ifr": 2, "random": 3}
    left_out = table[table["variant"] == "flagged samples left out"]
    assert set(left_out["n"]) == {6} and set(mine["n"]) == {8}
    wide = table[table["metric"] == "rise"].pivot(index="method", columns="variant", values="mean")
    assert (wide["absolute denominator"] < wide["signed denominator"]).all()  # flagged samples turn from 1 to 0
    agreement = audit.agreement_with_default(table)
    assert len(agreement) == 6 and agreement["rho"].between(-1, 1).all()


def test_records_bear_the_names_of_the_evaluation_that_asked(records, tmp_path):
    store = Store(tmp_path / "records")
    stored = records.assign(method=records["method"].replace("random", "random/0"))
    for row in stored.to_dict("records"):
        store.put(row["key"], row)
    frame = frame_from_records(records[records["sample"] != "s7"], ("rise", "mas"))  # two rows a record
    found = audit.records_of(frame, store)
    assert len(found) == 21 and set(found["method"]) == {"flashtrace", "ifr", "random"}
    assert (found["key"].str.split("-").str[0] == found["method"]).all()


def test_temperature_moves_mas_and_nothing_else(records):
    table = audit.temperature_table(records)
    assert set(table["temperature"]) == set(audit.TEMPERATURES) and set(table["n"]) == {8}
    default = frame_from_records(records, ("mas",)).groupby("method")["value"].mean()
    at_one = table[table["temperature"] == 1].set_index("method")["mas"]
    assert at_one.to_dict() == pytest.approx(default.to_dict())
    cliff = pd.DataFrame([record("x", "s", np.arange(60.0), [-1.0] + [-9.0] * 20)])
    sharper = audit.temperature_table(cliff).set_index("temperature")["mas"]
    assert sharper[0.25] < sharper[1] < sharper[4]  # same ranking, same response, better score


def test_recovery_choices_by_hand():
    scores = [1.0, 1.0, 1.0, 0.5] + [0.0] * 21  # K is 2 rounded down, 3 rounded up
    frame = pd.DataFrame([record("x", "s", scores, np.linspace(-1, -9, 21), gold=(0, 2, 3))])
    row = audit.recovery_table(frame).iloc[0]
    assert row["floor"] == pytest.approx(1 / 3)  # tokens 0 and 1
    assert row["later_first"] == pytest.approx(1 / 3)  # tokens 2 and 1
    assert row["ceil"] == pytest.approx(2 / 3) and row["tied"] == pytest.approx(24 / 25)
    frame.at[0, "gold"] = [i in (1, 2) for i in range(25)]
    row = audit.recovery_table(frame).iloc[0]
    assert (row["floor"], row["later_first"]) == (0.5, 1.0)


def test_flags_and_floor_are_counted(records):
    frame = frame_from_records(records, ("recovery", "rise", "mas"))
    flags = audit.flag_table(frame).set_index("cell")
    assert flags["flagged"].to_dict() == {"a": 1, "b": 1} and set(flags["n"]) == {4}
    cliff = pd.DataFrame([record("x", "s", [1.0, 0.5], [-1.0] + [-9.0] * 20)])
    floor = audit.floor_table(cliff).iloc[0]
    assert (floor["floor"], floor["at_floor"], floor["n"]) == (0.025, 1, 1)


def test_the_naive_derivation_agrees_with_the_library(records):
    for row in records.to_dict("records"):
        response = m.normalise_response(row["log_probs"])
        expected = (m.rise(response), m.mas(response, row["cumulative"]))
        assert audit.naive_rise_and_mas(row) == pytest.approx(expected)
    zero = record("x", "s", np.zeros(30), np.linspace(-1, -9, 21))
    assert audit.naive_rise_and_mas(zero)[1] == pytest.approx(m.mas(m.normalise_response(zero["log_probs"]),
                                                                    zero["cumulative"]))  # fmt: skip


def test_the_figures_show_what_they_are_given(records):
    curves = audit.hand_made_curves()
    figure = metric_audit_plots.hand_made_curves(curves, audit.hand_made_table())
    titles = [axes.get_title(loc="left").replace("\n", " ") for axes in figure.axes]
    assert all(name in titles for name in curves)
    figure = metric_audit_plots.mas_by_temperature(audit.temperature_table(records))
    assert [line.get_label() for line in figure.axes[0].lines[:3]] == ["IFR", "Random", "FlashTrace"]
    table = audit.variant_table(records)
    figure = metric_audit_plots.ranks_by_variant(table, "rise")
    assert figure.axes[0].yaxis_inverted() and "n = 6–8" in figure.axes[0].texts[0].get_text()


def test_a_heatmap_of_methods_holds_every_mean_and_marks_the_best():
    rows = [
        {"method": method, "cell": cell, "metric": "rise", "mean": mean, "low": mean - 0.01, "high": mean + 0.01,
         "n": 5}
        for method, mean in (("flashtrace", 0.10), ("ifr", 0.30), ("random", 0.50)) for cell in ("mq_q2", "h4_c1 ‡")
    ]  # fmt: skip
    figure = method_plots.metric_heatmap(pd.DataFrame(rows), "rise", title="RISE")
    axes = figure.axes[0]
    texts = [(t.get_text(), t.get_weight()) for t in axes.texts if t.get_text().startswith("0.")]
    assert len(texts) == 9 and texts.count(("0.10", "bold")) == 2 and texts.count(("0.10", "normal")) == 1
    image = axes.collections[0].get_array().reshape(3, 3)  # seaborn draws a mesh
    assert image[list_of_labels(axes).index("FlashTrace")].max() > image[list_of_labels(axes).index("Random")].max()
    with pytest.raises(ValueError, match="no rows of metric 'mas'"):
        method_plots.metric_heatmap(pd.DataFrame(rows), "mas")


def list_of_labels(axes):
    return [label.get_text() for label in axes.get_yticklabels()]
