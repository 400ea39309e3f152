"""Tables and figures of a sweep: growth, limits drawn as limits, factors, the front, and the audit."""

import json
import math

import pandas as pd
import pytest

from flashtrace_book.efficiency import audit, sweep
from flashtrace_book.efficiency.benchmark_runner import SKIPPED
from flashtrace_book.efficiency.supervised_process import OK, OUT_OF_MEMORY, TIME_OUT, Ended
from flashtrace_book.efficiency.worker import measure_attribution, sweep_sample
from flashtrace_book.figures import efficiency_plots, efficiency_tables
from flashtrace_book.figures.style import method_style
from flashtrace_book.methods import build_method
from flashtrace_book.profiles import EfficiencyProfile
from tests.book.test_efficiency import profile, quick, store  # noqa: F401 - fixtures
from tests.oracles.tiny import tiny_model


def sweep_frame(cost, axis="generation", lengths=(10, 20, 40, 80), ends=None):
    """Rows of methods whose seconds at a length are given by a function; `ends` maps (method, length) to an outcome."""
    rows = []
    for method, seconds in cost.items():
        for length in lengths:
            outcome = (ends or {}).get((method, length), OK)
            ran = outcome == OK
            rows.append({
                "axis": axis, "method": method, "n_input": 5 if axis == "generation" else length,
                "n_generated": length if axis == "generation" else 5, "length": length, "outcome": outcome,
                "seconds": seconds(length) if ran else math.nan, "forward_s": 0.5 if ran else math.nan,
                "ratio": seconds(length) / 0.5 if ran else math.nan, "peak_gib": 0.01 * length if ran else math.nan,
                "forward_peak_gib": 0.01 if ran else math.nan, "n": 1 if ran else math.nan,
                "n_peak": 1 if ran else math.nan,
                "forward_passes": 1 if ran else math.nan, "backward_passes": 0 if ran else math.nan,
                "hop_passes": length if ran else math.nan, "runs_s": [seconds(length)] if ran else None,
                "forward_runs_s": [0.5] if ran else None, "detail": "", "time_limit": 20.0, "memory_limit": 2.0,
                "model": "m", "dtype": "float32", "hardware": "a machine",
            })  # fmt: skip
    return pd.DataFrame(rows)


def test_growth_is_fitted_to_what_ran():
    cost = {"ifr_one_by_one": lambda n: n**2 / 100, "flashtrace": lambda n: 1 + n / 1000}
    frame = sweep_frame(cost, ends={("ifr_one_by_one", 80): TIME_OUT})
    table = efficiency_tables.growth(frame).set_index(["method", "quantity"])
    slow, fast = table.loc[("ifr_one_by_one", "time")], table.loc[("flashtrace", "time")]
    assert slow["exponent"] == pytest.approx(2) and slow["points"] == 3 and slow["tail"] == pytest.approx(2)
    assert fast["points"] == 4 and 0 < fast["exponent"] < fast["tail"] < 0.1
    assert table.loc[("flashtrace", "memory"), "exponent"] == pytest.approx(1)


def test_table_6_sets_the_papers_expressions_beside_ours():
    frame = sweep_frame({"perturbation": lambda n: n, "ifr_one_by_one": lambda n: n, "flashtrace": lambda n: n})
    long, wide = efficiency_tables.complexity_table(frame)
    assert set(long["method"]) == {"perturbation", "ifr_one_by_one", "flashtrace"} and len(long) == 6
    shown = wide.set_index("method")
    assert shown.loc["IFR, one by one", "paper: time"] == "O(M·N·D)"
    assert shown.loc["FlashTrace", "paper: memory"] == "O(N + D)" and shown.loc["Perturbation", "paper: time"] == "–"
    assert shown.loc["FlashTrace", "time in T+O"].startswith("1.00 [") and shown.loc["FlashTrace", "time in I"] == "–"
    assert shown.loc["FlashTrace", "passes"] == "1 forward, 80 sweeps"


def test_the_headline_is_taken_where_both_ran_and_bounded_where_one_was_stopped():
    cost = {"ifr_one_by_one": lambda n: n / 2, "ifr": lambda n: n / 10, "flashtrace": lambda n: 1.0,
            "attnlrp": lambda n: 3.0, "clp": lambda n: n}  # fmt: skip
    frame = sweep_frame(cost, ends={("ifr_one_by_one", 40): TIME_OUT, ("ifr_one_by_one", 80): SKIPPED})
    table = efficiency_tables.headline(frame).set_index(["method", "kind"])
    assert table.loc[("ifr_one_by_one", "measured"), ["n_generated", "speedup"]].tolist() == [20, 10.0]
    assert table.loc[("ifr_one_by_one", "at least"), ["n_generated", "speedup"]].tolist() == [40, 20.0]
    assert table.loc[("ifr", "measured"), ["n_generated", "speedup"]].tolist() == [80, 8.0]
    assert table.loc[("attnlrp", "measured"), ["n_generated", "speedup"]].tolist() == [80, 3.0]
    assert table["paper"].dropna().tolist() == [130.0, 130.0] and len(table) == 4
    longer = sweep_frame(cost, axis=sweep.HEADLINE, lengths=(5,)).assign(length=500, n_generated=500)
    table = efficiency_tables.headline(pd.concat([frame, longer])).set_index("method")
    assert table["n_generated"].tolist() == [500] * 3 and set(table["kind"]) == {"measured"}  # no bound beside it
    longer.loc[longer["method"] == "ifr", "hardware"] = "another machine"
    table = efficiency_tables.headline(pd.concat([frame, longer])).set_index("method")
    assert table["n_generated"].to_dict() == {"ifr_one_by_one": 500, "ifr": 80, "attnlrp": 500}


def test_table_9_has_the_papers_rows_and_relative_savings():
    frame = sweep_frame(dict.fromkeys(("flashtrace_cached", "flashtrace_recompute", "flashtrace_fused"), float),
                        axis="attention", lengths=(10, 20))  # fmt: skip
    again = frame["method"] == "flashtrace_recompute"
    frame.loc[again, "peak_gib"] /= 4
    frame.loc[again, "seconds"] *= 1.5
    table = efficiency_tables.attention_table(frame)
    assert table["mode"].tolist() == ["cached", "recompute", "fused"] * 2 + ["cached", "recompute"]
    assert table["tokens"].tolist()[:4] == [15, 15, 15, 25]
    assert table.iloc[-2][["seconds", "peak_gib"]].tolist() == [1.98, 35.43]
    savings = efficiency_tables.attention_savings(frame)
    assert savings["memory_saved"].tolist() == pytest.approx([0.75] * 2)
    assert savings["latency_added"].tolist() == pytest.approx([0.5] * 2)
    assert savings["paper_memory_saved"].tolist() == [0.62] * 2
    frame.loc[frame["method"] == "flashtrace_cached", "outcome"] = OUT_OF_MEMORY
    assert efficiency_tables.attention_savings(frame).empty
    assert efficiency_tables.attention_table(frame)["n"].tolist()[0] == 0


def test_tools_stand_beside_the_nearest_method():
    frame = sweep_frame({"captum_ablation": lambda n: 3.0, "perturbation": lambda n: 2.0}, axis="tools", lengths=(10,))
    row = efficiency_tables.tools_table(frame).iloc[0]
    assert row[["tool", "nearest", "tokens", "outcome"]].tolist() == ["captum_ablation", "perturbation", 15, OK]
    assert row[["ratio", "nearest_ratio", "times"]].tolist() == [6.0, 4.0, 1.5]
    assert efficiency_tables.tools_table(frame[frame["method"] == "perturbation"]).empty


def test_the_front_holds_what_nothing_cheaper_beats():
    cost = {"flashtrace": lambda n: 1.0, "ifr": lambda n: 2.0, "ifr_one_by_one": lambda n: 3.0,
            "perturbation": lambda n: 4.0, "ig": lambda n: 5.0, "clp": lambda n: 6.0}  # fmt: skip
    frame = sweep_frame(cost, axis="input", ends={("clp", 40): TIME_OUT})
    scores = {"flashtrace": 0.5, "ifr": 0.6, "perturbation": 0.2, "clp": 0.1}
    mas = pd.DataFrame([{"method": m, "mean": v, "low": v, "high": v, "n": 7} for m, v in scores.items()])
    table, left_out = efficiency_tables.cost_and_mas(frame, mas, 40)
    assert table["method"].tolist() == ["flashtrace", "ifr", "ifr_one_by_one", "perturbation"]
    assert table["mas"].tolist() == [0.5, 0.6, 0.6, 0.2] and table["front"].tolist() == [True, False, False, True]
    assert sorted(left_out) == ["CLP (time-out)", "IG (no MAS)"]
    figure = efficiency_plots.pareto(table, left_out)
    assert any("IG (no MAS)" in text.get_text() for text in figure.axes[0].texts)
    with pytest.raises(ValueError, match="no input of 41 tokens"):
        efficiency_tables.cost_and_mas(frame, mas, 41)


OOM = efficiency_plots._LIMITS[OUT_OF_MEMORY][0]


def test_the_marks_of_limits_are_no_methods():
    swept = {method_style(name).marker for name in EfficiencyProfile().methods}
    assert not swept & {marker for marker, _, _ in efficiency_plots._LIMITS.values()}


def markers(axes, marker):
    """Points (x, y) drawn with a marker; legend proxies have none."""
    lines = [line for line in axes.lines if line.get_marker() == marker and len(line.get_xdata())]
    return [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in lines]


def test_limits_are_drawn_where_they_are_and_named():
    cost = {"ig": lambda n: n / 10, "clp": lambda n: n / 5, "flashtrace": lambda n: 1.0}
    ends = {("ig", 40): OUT_OF_MEMORY, ("ig", 80): SKIPPED, ("clp", 80): TIME_OUT}
    frame = sweep_frame(cost, ends=ends)
    figure = efficiency_plots.cost_by_length(frame)
    time, memory = (
        next(axes for axes in figure.axes if axes.get_ylabel().startswith(what)) for what in ("time", "peak")
    )
    assert markers(time, "x") == [(80, 20.0)]  # at the limit
    assert markers(time, OOM) == [(40, 2.0)]  # no place on this axis: at the height of the last size that ran
    assert markers(memory, OOM) == [(40, 2.0)] and markers(memory, "x") == [(80, pytest.approx(0.4))]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"time-out (20 s)", "out of memory (2 GiB)", "forward pass"} <= set(names) and len(names) == len(set(names))
    for axes in (time, memory):
        assert [axes.get_xscale(), axes.get_yscale()] == ["log", "log"]


def test_a_sweep_without_limits_names_none_and_one_of_nothing_is_refused():
    frame = sweep_frame({"flashtrace": lambda n: 1.0})
    figure = efficiency_plots.cost_by_length(frame)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["forward pass", "FlashTrace"]
    with pytest.raises(ValueError, match="nothing ran"):
        efficiency_plots.cost_by_length(frame.assign(outcome=TIME_OUT))


def in_this_process(command, on_message, limits):
    """A worker in this process, on a tiny model."""
    job, model = json.loads(command[-1]), tiny_model()
    on_message({"ready": True})
    for size in job["sizes"]:
        on_message({"start": size})
        method, sample = build_method(job["name"], job["options"]), sweep_sample(job["name"], *size, 97)
        on_message({"done": size, **measure_attribution(model, method, sample, job["runs"], 60.0, lambda: None)})
    return Ended(OK)


def test_the_audit_passes_what_was_measured_and_finds_what_was_changed(profile, store, quick):  # noqa: F811
    settings = profile(methods=("ifr_one_by_one", "flashtrace"), inputs=(16,), generations=(8,), runs=2)
    frame = sweep.sweep(settings, store, in_this_process)
    model = tiny_model(seed=1)
    checked = audit.audit(frame, settings, model, k=3)
    assert checked["agrees"].all() and (checked["check"] == "passes").sum() == 3
    assert {"longest run", "median of ratio", "IFR in one batch and one by one"} <= set(checked["check"])
    wrong = {"seconds": 9.0, "ratio": 9.0, "peak_gib": 9.0, "hop_passes": 99, "time_limit": 1e-9}
    for column, value in wrong.items():
        changed = audit.audit(frame.assign(**{column: value}), settings, model, k=1)
        assert not changed["agrees"].all(), column
