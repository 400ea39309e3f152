"""Figures: what they draw, what they say of n, and what they refuse."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from flashtrace_book.figures import axes, marks, method_plots, overview, plots, style
from flashtrace_book.figures.mass import mass_frame, position_frame
from flashtrace_book.figures.tables import (
    comparison_table,
    wide_table,
)
from flashtrace_lib import FlashTrace, Segments
from flashtrace_lib.attribution import Attribution
from flashtrace_lib.evaluation.results_table import summarise
from flashtrace_lib.metrics import mean_interval
from tests.book.test_tables import ROWS, summary
from tests.oracles.tiny import tiny_model, tiny_sample
from tests.support.whiskers import drawn


def texts(figure):
    figure.canvas.draw()
    first = figure.axes[0]
    shown = [text for axes in figure.axes for text in axes.texts] + list(figure.texts)
    shown += first.get_legend().get_texts() if first.get_legend() else []
    return [text.get_text() for text in shown] + [first.get_title(loc="left"), first.get_title()]


# --- style ----------------------------------------------------------------------------------------------------


def test_methods_of_one_figure_look_different():
    hops = {f"flashtrace_k{k}" for k in range(4)}
    targets = {"sentence", "rising", "falling"}  # drawn beside these alone:
    together = [set(style.METHOD_STYLES) - hops - targets, hops, targets | {"flashtrace", "last_token", "mean_pooling"}]
    for names in together:
        looks = [(s.colour, s.marker, str(s.line)) for s in map(style.METHOD_STYLES.get, names)]
        for part in zip(*looks, strict=True):
            assert len(set(part)) == len(looks)  # colour, marker and line each tell all methods apart
    assert len({s.marker for s in style.METHOD_STYLES.values()}) == len(style.METHOD_STYLES)
    assert style.method_style("mine") == style.method_style("mine")
    assert style.method_style("mine").label == "mine"


def test_order_of_methods_is_the_paper_s():
    names = ["random", "flashtrace", "zzz", "ifr", "perturbation", "ifr"]
    assert style.method_order(names) == ["perturbation", "ifr", "random", "flashtrace", "zzz"]


def test_use_style_sets_and_pdf_embeds_fonts():
    import matplotlib as mpl

    with mpl.rc_context():
        style.use_style()
        assert mpl.rcParams["pdf.fonttype"] == 42 and mpl.rcParams["svg.hashsalt"] == "flashtrace"


def test_the_range_of_n():
    assert axes.n_range(pd.Series([8, 6, 7])) == "6–8" and axes.n_range(pd.Series([6, 8]), to=" to ") == "6 to 8"
    assert axes.n_range(pd.Series([6.0, 6.0])) == "6"


def test_whiskers_reach_the_ends_of_the_interval():
    six = pd.DataFrame({"x": np.arange(6.0), "cluster": list("abcdef")})
    mean, spread = marks.means_of([six, six.head(5)], "x")  # five values have no interval
    low, high = mean_interval(np.arange(6.0))
    assert mean.tolist() == [2.5, 2.0] and np.isnan(spread[:, 1]).all()
    assert spread[:, 0] == pytest.approx([2.5 - low, high - 2.5])
    assert marks.means_of([six.drop(columns="cluster")], "x")[1][:, 0] == pytest.approx(spread[:, 0])
    _, shared = marks.means_of([six.assign(cluster=list("aabbcc"))], "x")  # and neither have six of three templates
    assert np.isnan(shared).all()


# --- mass -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traced():
    model = tiny_model("llama")
    samples = [tiny_sample(n=40, prompt=(1, 15), reasoning=(16, 30), output=(31, 39), seed=s) for s in range(3)]
    return samples, [FlashTrace(hops=2).attribute(model, s) for s in samples]


def test_mass_frame_agrees_with_the_flow(traced):
    samples, attributions = traced
    frame = mass_frame(samples, attributions)
    assert frame.groupby(["sample", "hop"])["mass"].sum().to_numpy() == pytest.approx(1)
    for sample, attribution in zip(*traced, strict=True):
        on_reasoning = frame[(frame["sample"] == sample.id) & (frame["segment"] == "reasoning")].sort_values("hop")
        assert on_reasoning["mass"].to_numpy() == pytest.approx(attribution.flow, abs=1e-5)


def test_position_frame_cuts_t_into_equal_parts(traced):
    samples, attributions = traced
    frame = position_frame(samples, attributions, bins=7)  # T has 14 tokens: two a part
    scores = attributions[1].hops[1].scores[16:30].double()
    parts = frame[(frame["sample"] == samples[1].id) & (frame["hop"] == 1)].sort_values("position")
    assert parts["mass"].to_numpy() == pytest.approx((scores.reshape(7, 2).sum(1) / scores.sum()).numpy())
    assert parts["position"].to_numpy() == pytest.approx((np.arange(7) + 0.5) / 7)


def test_mass_needs_hops(traced):
    samples, _ = traced
    with pytest.raises(ValueError, match="no hops"):
        mass_frame(samples[:1], [Attribution(torch.ones(14), "ifr")])


# --- plots ----------------------------------------------------------------------------------------------------


def test_mass_plots_state_n_and_show_the_means(traced):
    samples, attributions = traced
    frame = mass_frame(samples, attributions)
    figure = plots.mass_by_segment(frame, seed=1)
    assert any("n = 3 samples" in text for text in texts(figure))
    heights = [patch.get_height() for patch in figure.axes[0].patches]
    expected = frame.groupby(["segment", "hop"])["mass"].mean()
    assert sorted(heights) == pytest.approx(sorted(expected))
    assert {"Input I", "Reasoning T", "Output O", "Context"} <= set(texts(figure))
    figure = plots.mass_by_position(position_frame(samples, attributions, bins=4))
    assert len(figure.axes[0].get_legend_handles_labels()[1]) == 3 + 1  # a line a hop, and the even spread
    assert "position" in figure.axes[0].get_xlabel() and "fraction" in figure.axes[0].get_ylabel()


def test_jitter_is_seeded(traced):
    frame = mass_frame(*traced)

    def dots(seed):
        return np.concatenate(
            [c.get_offsets() for c in plots.mass_by_segment(frame, seed=seed).axes[0].collections[1::2]]
        )

    assert (dots(0) == dots(0)).all() and (dots(0) != dots(1)).any()


def test_cost_curve_fits_the_exponent_and_marks_failures():
    sizes = [10, 100, 1000]
    rows = [("flashtrace", n, 0.01 * n, r) for n in sizes for r in range(2)]
    rows += [("ifr", n, 0.01 * n**2 if n < 1000 else math.nan, 0) for n in sizes]
    frame = pd.DataFrame(rows, columns=["method", "tokens", "seconds", "run"])
    figure = plots.cost_curve(frame, "tokens", "seconds", xlabel="target (tokens)", ylabel="time (s)")
    legend = [text for text in texts(figure) if "size" in text]
    assert legend == ["IFR: ∝ size$^{2.00}$", "FlashTrace: ∝ size$^{1.00}$"]
    assert figure.axes[0].get_xscale() == figure.axes[0].get_yscale() == "log"
    assert any("n = 1–2 runs" in text and "out of memory" in text for text in texts(figure))
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[1000]]
    with pytest.raises(ValueError, match="positive"):
        plots.cost_curve(frame.assign(seconds=0.0), "tokens", "seconds")


def test_metric_bars_show_means_and_the_paper_s_values():
    long = comparison_table(summary(ROWS), 1, profile="p", model="m")
    figure = plots.metric_bars(long, "recovery")
    heights = [patch.get_height() for patch in figure.axes[0].patches]
    assert sorted(h for h in heights if not math.isnan(h)) == [0.1, 0.4, 0.45, 0.5, 0.7]
    diamonds = [y for line in figure.axes[0].lines if line.get_marker() == "D" for y in line.get_ydata()]
    assert {0.483, 0.698, 0.471, 0.136} <= set(diamonds)
    assert any("n = 8–10 samples" in text and "higher is better" in text for text in texts(figure))
    with pytest.raises(ValueError, match="no rows of metric 'mas'"):
        plots.metric_bars(long, "mas")


def test_below_six_samples_no_interval_is_drawn_or_printed_and_nothing_is_bold():
    rng = np.random.default_rng(0)

    def frame(n):
        rows = [{"sample": i, "cell": "c", "metric": "recovery", "method": method, "flagged": False,
                 "value": level + 0.01 * rng.normal()}
                for i in range(n) for method, level in (("ifr", 0.1), ("flashtrace", 0.8))]  # fmt: skip
        return comparison_table(summarise(pd.DataFrame(rows)), profile="p", model="m")

    few, enough = frame(5), frame(6)
    assert "**" in wide_table(enough).to_string() and wide_table(enough).to_string().count("[") == 2
    assert "**" not in wide_table(few).to_string() and "[" not in wide_table(few).to_string()
    assert len(drawn(plots.metric_bars(enough, "recovery"))) == 2 and not drawn(plots.metric_bars(few, "recovery"))
    assert any("n = 5" in text and "none below 6 samples" in text for text in texts(plots.metric_bars(few, "recovery")))
    runs = pd.DataFrame({"method": "ifr", "size": [1, 1, 2, 2], "seconds": [1.0, 1.1, 2.0, 2.1]})
    assert not drawn(plots.cost_curve(runs, "size", "seconds"))
    assert len(drawn(plots.cost_curve(pd.concat([runs] * 3), "size", "seconds"))) == 2
    spread = pd.DataFrame([{"sample": i, "hop": 0, "segment": "prompt", "mass": 0.5 + 0.01 * i} for i in range(6)])
    assert len(drawn(plots.mass_by_segment(spread))) == 1 and not drawn(plots.mass_by_segment(spread[:5]))


@pytest.mark.parametrize("draw", [plots.mass_by_segment, plots.mass_by_position])
def test_plots_name_missing_columns(draw):
    with pytest.raises(ValueError, match="lacks the columns"):
        draw(pd.DataFrame({"sample": [1], "hop": [0]}))
    with pytest.raises(ValueError, match="is empty"):
        draw(pd.DataFrame(columns=["sample", "hop", "segment", "position", "mass"]))


# --- the overview ---------------------------------------------------------------------------------------------


def overview_arrays(m=4, n=40):
    rng = np.random.default_rng(0)
    attention, weights = rng.dirichlet(np.ones(n), size=m), rng.random(m)
    return attention, weights, rng.random(n), [f"t{i}" for i in range(n)], Segments((2, 20), (22, 32), (34, 38))


def test_span_overview_draws_what_it_is_given():
    attention, weights, proximity, tokens, segments = overview_arrays()
    figure = overview.span_overview(
        torch.tensor(attention), weights @ attention, proximity, tokens, segments, weights=weights, top=3, title="T"
    )
    assert isinstance(figure, Figure) and len(figure.axes) == 4
    matrix = figure.axes[0].images[0].get_array()
    assert np.allclose(matrix, attention)
    lower = [axes for axes in figure.axes if "L1" in axes.get_ylabel()][0]
    bars = [patch.get_height() for patch in lower.patches if patch.get_width() == 1.0][:40]
    assert bars == pytest.approx(list(proximity))
    shown = texts(figure)
    assert f"t{proximity.argmax()}" in shown and "4 rows → 1 row" in shown and "Input I" in shown


def test_span_overview_checks_its_arrays():
    attention, weights, proximity, tokens, segments = overview_arrays()
    with pytest.raises(ValueError, match="must be \\[4, 40\\]"):
        overview.span_overview(attention[:3], weights @ attention, proximity, tokens, segments)
    with pytest.raises(ValueError, match="not Σ_i w_i"):
        overview.span_overview(attention, weights @ attention, proximity, tokens, segments)  # weights left out


def test_the_overview_colours_each_metric_from_its_worst_to_its_best():
    rows = [("ifr", "rise", 0.4), ("random", "rise", 0.6), ("ifr", "drop5", 104.2), ("random", "drop5", 87.0)]
    frame = pd.DataFrame([{"method": m, "metric": x, "mean": v, "n": 6} for m, x, v in rows])
    axes = method_plots.overview_heatmap(frame, title="t").axes[0]
    shades = axes.collections[0].get_array().reshape(2, 2)  # [metric, method]
    assert shades.tolist() == [[1.0, 0.0], [1.0, 0.0]]  # a lower RISE and a larger drop are better
    assert [text.get_text() for text in axes.texts[:4]] == ["0.40", "0.60", "104", "87"]


def test_pooled_dots_have_the_paper_s_mean_where_it_prints_every_cell():
    rows = [("ifr", "a", 0.1, 0.3), ("ifr", "b", 0.2, 0.5), ("gim", "a", 0.3, None), ("gim", "b", 0.4, None)]
    rows += [("ifr", "both", 0.15, None), ("gim", "both", 0.35, None)]
    frame = pd.DataFrame(rows, columns=["method", "cell", "mean", "paper"]).astype({"paper": float})
    frame = frame.assign(metric="recovery", low=frame["mean"] - 0.05, high=frame["mean"] + 0.05, n=6)
    axes = method_plots.pooled_dots(frame, "recovery", {"both": ["a", "b"]}, title="t").axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["IFR", "GIM"]
    assert [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 1][::3] == [0.15, 0.35]
    drawn = axes.collections[-1].get_offsets()
    assert drawn[0].tolist() == [0.4, 0.0] and np.ma.is_masked(drawn[1])
    assert any(text.get_text() == "n = 6; 95 % interval" for text in axes.texts)
    few = frame.assign(low=np.nan, high=np.nan, n=2)
    axes = method_plots.pooled_dots(few, "recovery", {"both": ["a", "b"]}, title="t").axes[0]
    assert any(text.get_text() == "n = 2; too few for intervals" for text in axes.texts)


def test_methods_on_fewer_samples_have_a_star_and_their_n():
    rows = [(m, "all", "recovery", 0.3, 16 if m != "clp" else 6) for m in ("ifr", "flashtrace", "clp")]
    rows += [(m, "all", "rise", 0.3, 6) for m in ("ifr", "flashtrace")]
    frame = pd.DataFrame(rows, columns=["method", "cell", "metric", "mean", "n"])
    frame = frame.assign(low=0.2, high=0.4, paper=float("nan"))
    overview = method_plots.overview_heatmap(frame, title="t").axes[0]
    cells = method_plots.metric_heatmap(frame, "recovery", title="t").axes[0]
    dots = method_plots.pooled_dots(frame, "recovery", {"all": []}, title="t").axes[0]
    for labels in (overview.get_xticklabels(), cells.get_yticklabels(), dots.get_yticklabels()):
        assert [label.get_text() for label in labels] == ["CLP*", "IFR", "FlashTrace"]
    assert any("n = 6–16 (* 6) samples" in text.get_text() for text in overview.texts)
    assert all(any("n = 16 (* 6)" in text.get_text() for text in drawn.texts) for drawn in (cells, dots))
    alone = method_plots.pooled_dots(frame, "rise", {"all": []}, title="t").axes[0]
    assert [label.get_text() for label in alone.get_yticklabels()] == ["IFR", "FlashTrace"]


def test_a_heatmap_has_a_mean_over_cells_only_where_there_are_several():
    rows = [(m, c, "recovery", 0.3, 0.2, 0.4, 1) for m in ("ifr", "flashtrace") for c in ("a", "b")]
    frame = pd.DataFrame(rows, columns=["method", "cell", "metric", "mean", "low", "high", "n"])
    for part, columns in ((frame, ["a", "b", "mean"]), (frame[frame["cell"] == "a"], ["a"])):
        axes = method_plots.metric_heatmap(part, "recovery", title="t").axes[0]
        assert [label.get_text() for label in axes.get_xticklabels()] == columns
        assert any("n = 1 sample a cell" in text.get_text() for text in axes.texts)
