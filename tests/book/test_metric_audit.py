"""The metric audit: hand-made curves against values worked out by hand, stored curves under other definitions."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from flashtrace_book import metric_audit as audit
from flashtrace_book import paths
from flashtrace_book.figures import method_plots, metric_plots
from flashtrace_book.profile import load_profile
from flashtrace_book.results import Results
from flashtrace_lib import metrics as m
from flashtrace_lib.evaluation.results_table import frame_from_records

STEPS = 20


def record(method, sample, scores, log_probs, cell="c", gold=(0, 1)):
    marks = np.array([i in gold for i in range(len(scores))])
    return {"method": method, "sample": sample, "cell": cell, "task": "t", "scores": np.asarray(scores, dtype=float),
            "log_probs": list(log_probs), "cumulative": m.cumulative(scores, len(log_probs) - 1).tolist(),
            "gold": marks, "seconds": 1.0, "haystack": [0, len(scores) - 4]}  # fmt: skip


def ends_between_ties(row):
    """Whether one of a stored curve's steps ends between tied tokens, so that their order shapes the curve."""
    ranked, ends = np.sort(row["scores"])[::-1], np.asarray(row["n_masked"])[1:-1]
    return bool((ranked[ends - 1] == ranked[ends])[ends > 0].any())


def test_limits_say_how_many_stored_curves_have_ties_that_matter():
    results = [Results.read(paths.results_file(paths.BOOK, name)) for name in load_profile(paths.BOOK).results]
    rows = [result.part("method") for result in results if len(result.part("method"))]
    curves = pd.concat(part for part in rows if "log_probs" in part).dropna(subset=["log_probs", "scores"])
    told = f"in {curves.apply(ends_between_ties, axis=1).sum()} of {len(curves)} a step ends between tied tokens"
    assert told in (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")


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


def test_bisection_keeps_its_bound_and_pairs_the_methods(records):
    table = audit.bisection_table(records, (0.0, 0.02)).set_index(["tolerance", "method"])
    assert (table.loc[0.0, "rise_worst"] < 1e-12).all() and table.loc[(0.0, "ifr"), "passes"] == STEPS + 1
    cheap = table.loc[0.02]
    assert cheap.loc["all", "n"] == 24 and 2 < cheap.loc["ifr", "passes"] < STEPS + 1
    assert 0 < cheap.loc["all", "rise_worst"] < 0.03 and cheap.loc["all", "mas_worst"] < 0.06
    gap, paired = cheap.loc["flashtrace"] - cheap.loc["ifr"], cheap.loc["flashtrace - ifr"]
    assert paired["rise"] == pytest.approx(gap["rise"]) and paired["n"] == 8


def test_definitions_are_the_frames_under_each(records):
    drawn = {"method": "random_sentences", "sample": "s0", "log_probs": None, "scores": None, "values": '{"rise": 0.5}'}
    table = audit.definition_table(pd.concat([records, pd.DataFrame([drawn])]))  # averaged draws have no curve
    assert set(table["definition"]) == set(m.DEFINITIONS) and set(table["n"]) == {8}
    for definition in m.DEFINITIONS:
        expected = frame_from_records(records, ("mas",), definition).groupby("method")["value"].mean()
        mine = table[(table["metric"] == "mas") & (table["definition"] == definition)].set_index("method")["mean"]
        assert mine.to_dict() == pytest.approx(expected.to_dict())
    rise = table[(table["metric"] == "rise") & (table["definition"] == "log_probability")].set_index("method")
    assert rise["rank"].to_dict() == {"flashtrace": 1, "ifr": 2, "random": 3}


def test_temperature_moves_mas_and_nothing_else(records):
    table = audit.temperature_table(records)
    assert set(table["temperature"]) == set(audit.TEMPERATURES) and set(table["n"]) == {8}
    default = frame_from_records(records, ("mas",)).groupby("method")["value"].mean()
    assert table[table["temperature"] == 1].set_index("method")["mas"].to_dict() == pytest.approx(default.to_dict())
    cliff = pd.DataFrame([record("x", "s", np.arange(60.0), [-1.0] + [-9.0] * 20)])
    sharper = audit.temperature_table(cliff).set_index("temperature")["mas"]
    assert sharper[0.25] < sharper[1] < sharper[4]  # same ranking, same response, better score


def test_flags_and_floor_are_counted(records):
    cliff = pd.DataFrame([record("x", "s", [1.0, 0.5], [-1.0] + [-9.0] * 20)])
    table = audit.curve_table({"many": records, "cliff": cliff, "none": records.drop(columns="log_probs")})
    table = table.set_index("records")
    assert table.loc["many"].to_dict() == {"samples": 8, "flagged": 2, "curves": 24, "on the floor": 0}
    assert table.loc["cliff"].to_dict() == {"samples": 1, "flagged": 0, "curves": 1, "on the floor": 1}


def test_properties_of_a_ranking_by_hand():
    scores = np.zeros(40)
    scores[[3, 4, 20, 38]] = (4.0, 3.0, 2.0, 1.0)  # the top tenth; the last four tokens stand behind the haystack
    frame = pd.DataFrame([record("x", "s", scores, np.linspace(-1, -9, 21), gold=(3, 9))])
    row = audit.ranking_properties(frame).iloc[0]
    assert row["question"] == 0.25 and row["evidence"] == 0.5 and row["sharpness"] == pytest.approx(1)
    assert row["pieces"] == 3 / 4  # 3–4, 20, 38


def test_agreement_is_over_methods_within_samples():
    rows = [
        {"sample": f"s{i}", "method": f"m{j}", "metric": metric, "value": value + 100 * i}
        for i in range(6) for j in range(4) for metric, value in (("recovery", j), ("rise", -j), ("mas", (j - 1) ** 2))
    ]  # fmt: skip
    table = audit.metric_agreement(pd.DataFrame(rows)).set_index(["first", "second"])
    assert table.loc[("recovery", "rise"), "rho"] == 1  # a low RISE is good: the same order
    assert table.loc[("rise", "recovery"), "n"] == 6
    by_hand = -m.intervals.rank_correlation([0, 1, 2, 3], [1, 0, 1, 4])
    assert table.loc[("recovery", "mas"), "rho"] == pytest.approx(by_hand)


def naive_rise_and_mas(record):
    """RISE and MAS by loops from the formulas alone, sharing no code with `metrics`."""
    s, scores = [float(x) for x in record["log_probs"]], [float(x) for x in record["scores"]]
    steps, n = len(s) - 1, len(scores)
    order = sorted(range(n), key=lambda i: (-scores[i], i))  # ties in the order of the text
    total, lowest, response, remaining = sum(map(abs, scores)), s[0], [], []
    for k in range(steps + 1):
        lowest, drop = min(lowest, s[k]), s[0] - s[steps]
        response.append(1.0 if drop == 0 else min(1.0, max(0.0, (lowest - s[steps]) / drop)))
        masked = order[: k * n // steps]
        remaining.append(1 - (sum(abs(scores[i]) for i in masked) / total if total else len(masked) / n))
    penalised = [min(1.0, max(0.0, r + abs(r - d))) for r, d in zip(response, remaining, strict=True)]
    low, high = min(penalised), max(penalised)
    scaled = [(p - low) / (high - low) for p in penalised] if high > low else penalised
    return tuple(sum((a + b) / 2 for a, b in zip(x, x[1:], strict=False)) / steps for x in (response, scaled))


def test_the_naive_derivation_agrees_with_the_library(records):
    for row in records.to_dict("records"):
        response = m.normalise_response(row["log_probs"])
        assert naive_rise_and_mas(row) == pytest.approx((m.rise(response), m.mas(response, row["cumulative"])))
    zero = record("x", "s", np.zeros(30), np.linspace(-1, -9, 21))
    assert naive_rise_and_mas(zero)[1] == pytest.approx(m.mas(m.normalise_response(zero["log_probs"]),
                                                                    zero["cumulative"]))  # fmt: skip


def test_the_figures_show_what_they_are_given(records):
    curves = audit.hand_made_curves()
    figure = metric_plots.hand_made_curves(curves, audit.hand_made_table())
    assert all(name in [axes.get_title(loc="left").replace("\n", " ") for axes in figure.axes] for name in curves)
    looks = audit.ranking_properties(records)
    twice = pd.concat([looks, looks.assign(method=looks["method"] + "2")])
    related = audit.within_samples(twice, audit.PROPERTIES, ("rise", "mas"))
    figure = metric_plots.property_dots(related.assign(rankings="all"), {"sharpness": "mass on it", "pieces": "pieces"})
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["mass on it", "pieces"]


def test_a_dot_stands_for_what_was_measured_and_a_hatched_row_for_what_was_not():
    needles = [(method, "needles") for method in ("flashtrace", "ifr", "string_match")]
    rows = [
        {"method": method, "cell": cell, "metric": "recovery", "mean": 0.5, "low": 0.4, "high": 0.6, "n": 6,
         "paper": 0.4}
        for method, cell in (*needles, ("flashtrace", "chains"))
    ]  # fmt: skip
    titles = {"needles": "needles", "chains": "chains", "other": "not measured"}
    figure = method_plots.pooled_dots(pd.DataFrame(rows), "recovery", titles)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(figure.axes) == 2 and labels == ["FlashTrace", "IFR", "String match"]
    assert [sum(patch.get_hatch() == "////" for patch in axes.patches) for axes in figure.axes] == [0, 2]
    wide = method_plots.overview_heatmap(pd.DataFrame(rows).assign(metric=["rise", "rise", "mas", "mas"]))
    assert sum(patch.get_hatch() == "////" for patch in wide.axes[0].patches) == 2
