"""Tables: their schema, what is bold, what a page shows of them."""

import math

import pandas as pd
import pytest

from flashtrace_book.figures.tables import (
    LONG_COLUMNS,
    by_metric,
    comparison_table,
    distinct_best,
    interval_grid,
    metrics_beside,
    stored,
    styled,
    wide_table,
)


def summary(rows):
    return pd.DataFrame(rows, columns=["method", "cell", "metric", "mean", "low", "high", "n", "flagged"])


ROWS = [
    ("flashtrace", "mq_q2", "recovery", 0.70, 0.60, 0.80, 10, 0),
    ("ifr", "mq_q2", "recovery", 0.40, 0.30, 0.50, 10, 0),
    ("random", "mq_q2", "recovery", 0.10, 0.05, 0.15, 10, 0),
    ("flashtrace", "h2_c3", "recovery", 0.50, 0.40, 0.60, 8, 0),
    ("ifr", "h2_c3", "recovery", 0.45, 0.35, 0.55, 8, 0),
    ("flashtrace", "mq_q2", "rise", 0.30, 0.25, 0.35, 10, 3),
    ("ifr", "mq_q2", "rise", 0.20, 0.15, 0.24, 10, 3),
]


def test_long_table_follows_the_schema():
    long = comparison_table(summary(ROWS), 1, profile="smoke", model="tiny")
    assert tuple(long.columns) == LONG_COLUMNS and len(long) == len(ROWS)
    row = long[(long["method"] == "flashtrace") & (long["cell"] == "h2_c3")].iloc[0]
    assert row["paper"] == 0.698 and row["mean"] == 0.5 and row["n"] == 8
    assert math.isnan(long[long["method"] == "random"]["paper"].iloc[0])
    assert set(long["profile"]) == {"smoke"} and set(long["model"]) == {"tiny"}
    assert list(long[long["metric"] == "recovery"]["method"]) == ["ifr", "ifr", "random", "flashtrace", "flashtrace"]
    assert comparison_table(summary(ROWS), profile="smoke", model="tiny")["paper"].isna().all()


def test_only_a_distinct_best_is_bold():
    best = distinct_best(comparison_table(summary(ROWS), 1, profile="p", model="m"))
    assert best == {("mq_q2", "recovery"): "flashtrace", ("mq_q2", "rise"): "ifr"}  # h2_c3 overlaps
    alone = summary([(*ROWS[0][:4], math.nan, math.nan, 1, 0), (*ROWS[1][:4], math.nan, math.nan, 1, 0)])
    assert distinct_best(comparison_table(alone, profile="p", model="m")) == {}


def test_wide_table_reads_as_promised():
    wide = wide_table(comparison_table(summary(ROWS), 1, profile="p", model="m"))
    assert list(wide.columns) == ["metric", "method", "mq q2", "h2 c3"]
    row = wide[(wide["method"] == "FlashTrace") & wide["metric"].str.contains("recovery")].iloc[0]
    assert row["mq q2"] == "**0.70** [0.60, 0.80] (0.48)" and row["h2 c3"] == "0.50 [0.40, 0.60] (0.70)"
    rise = wide[(wide["method"] == "FlashTrace") & wide["metric"].str.contains("RISE")].iloc[0]
    assert rise["mq q2"] == "0.30 [0.25, 0.35] (0.07) †3" and rise["h2 c3"] == "–"
    random = wide[wide["method"] == "Random"].iloc[0]
    assert random["mq q2"] == "0.10 [0.05, 0.15]"
    assert wide["metric"].str.endswith(("↑", "↓")).all()


def test_a_notebook_shows_bold_where_the_file_has_its_mark():
    wide = wide_table(comparison_table(summary(ROWS), 1, profile="p", model="m"))
    assert "**0.70** [0.60, 0.80] (0.48)" in wide["mq q2"].tolist()  # as the .md has it
    page = styled(wide, "table1").to_html()
    assert "><b>0.70</b> [0.60, 0.80] (0.48)</td>" in page and "*" not in page and 'id="T_table1"' in page


def test_a_page_shows_a_metric_at_a_time():
    wide = wide_table(comparison_table(summary(ROWS), 1, profile="p", model="m"))
    page = by_metric(wide, "t", ["h2 c3", "not there"]).data
    names = list(dict.fromkeys(wide["metric"]))
    assert [f"<caption>{name}</caption>" in page for name in names] == [True] * len(names)
    assert page.count("<table") == len(names) and "mq q2" not in page and 'id="T_t_0"' in page
    assert page.count("<td") == 2 * len(wide)


def test_a_page_shows_metrics_beside_each_other():
    wide = wide_table(comparison_table(summary(ROWS), 1, profile="p", model="m"))
    beside = metrics_beside(wide, "t").data.set_index("method")
    for row in wide.itertuples(index=False):
        found = beside.loc[row.method, row.metric]
        assert found.tolist() == [row[2], row[3]]
    assert beside.size >= 2 * len(wide) and not beside.isna().any(axis=None)
    one = metrics_beside(wide.drop(columns="h2 c3"), "t").data
    assert list(one) == ["method", *dict.fromkeys(wide["metric"])] and one["method"].is_unique


def test_a_page_shows_values_with_their_intervals():
    long = pd.DataFrame(
        [("b", "rise", 0.1, 0.05, 0.15), ("b", "mas", -0.2, math.nan, math.nan), ("a", "rise", 0.3, 0.2, 0.4)],
        columns=["method", "metric", "difference", "low", "high"],
    )
    grid = interval_grid(long, "method", "metric")
    assert list(grid.index) == ["b", "a"] and list(grid) == ["rise", "mas"]
    assert grid.loc["b"].tolist() == ["+0.100 [+0.050, +0.150]", "-0.200 (no interval)"]
    assert grid.loc["a"].tolist() == ["+0.300 [+0.200, +0.400]", "–"]
    with pytest.raises(ValueError, match="twice"):
        interval_grid(pd.concat([long, long]), "method", "metric")


def test_a_styled_table_is_the_same_in_every_run():
    frame = pd.DataFrame({"a": [1.23456, math.nan], "b": ["<x>", "y"], "n": [3, 4]})
    shown = styled(frame, "t", digits=2)
    assert repr(shown) == repr(styled(frame, "t")) and shown.to_html() == styled(frame, "t", digits=2).to_html()
    assert ">1.23</td>" in shown.to_html() and ">–</td>" in shown.to_html() and ">3</td>" in shown.to_html()
    assert "&lt;x&gt;" in shown.to_html()


def test_cells_of_a_styled_table_are_text():
    frame = pd.DataFrame({"text": ["<script>1</script> & 2 < 3", "**a** * b, *c*<br>d"], "n": [1, 2]})
    page = styled(frame, "x", prose=True).to_html()
    assert ">&lt;script&gt;1&lt;/script&gt; &amp; 2 &lt; 3</td>" in page
    assert "><b>a</b> * b, <i>c</i><br>d</td>" in page and ">2</td>" in page
    assert "white-space: normal" in page and "white-space" not in styled(frame, "x").to_html()


def test_bad_summaries():
    with pytest.raises(ValueError, match="lacks the columns"):
        comparison_table(summary(ROWS).drop(columns="low"), 1, profile="p", model="m")
    with pytest.raises(ValueError, match="twice"):
        comparison_table(summary([*ROWS, ROWS[0]]), 1, profile="p", model="m")
    with pytest.raises(ValueError, match="no numbers in table 99"):
        comparison_table(summary(ROWS), 99, profile="p", model="m")


def test_a_table_of_another_profile_is_read_or_its_run_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(tmp_path / "figures"))
    folder = tmp_path / "figures" / "long"
    folder.mkdir(parents=True)
    (folder / "means.csv").write_text("method,mean\nifr,0.25\n")
    assert stored("long", "means").to_dict("records") == [{"method": "ifr", "mean": 0.25}]
    with pytest.raises(FileNotFoundError, match="figures/long/other.csv is not there: run the book with"):
        stored("long", "other")
