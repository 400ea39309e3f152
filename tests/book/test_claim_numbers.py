"""Numbers behind claims, from made tables whose values are known; and whose responses they rest on."""

import math

import pandas as pd
import pytest

from flashtrace_book.claims import numbers, printed_numbers, table_numbers
from flashtrace_book.claims.efficiency_numbers import naive_over_flashtrace, speedup
from flashtrace_book.claims.evidence import Evidence
from flashtrace_book.claims.responses import mark_of, marked
from flashtrace_book.claims.rules import Missing
from flashtrace_book.paper_numbers import PAPER, VT_CELLS, paper_value
from flashtrace_lib.metrics.intervals import rank_correlation_interval


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Write a table of the profile ``made`` and return its evidence."""
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(tmp_path))
    (tmp_path / "made").mkdir()

    def _made(name, rows):
        pd.DataFrame(rows).to_csv(tmp_path / "made" / f"{name}.csv", index=False)
        return Evidence("made")

    return _made


def long(**values):
    return {"low": math.nan, "high": math.nan, "n": 10} | values


def test_the_ratio_on_chains_has_the_widest_bounds(made):
    rows = [
        long(method="flashtrace", cell="chains", metric="recovery", mean=0.6, low=0.5, high=0.7, n=9),
        long(method="ifr", cell="chains", metric="recovery", mean=0.2, low=0.1, high=0.4),
    ]
    [found] = numbers.chains_ratio(made("table1_ruler", rows))
    assert (found.value, found.low, found.high, found.n) == pytest.approx((3.0, 0.5 / 0.4, 0.7 / 0.1, 9))
    ratios = [paper_value(1, "flashtrace", c, "recovery") / paper_value(1, "ifr", c, "recovery") for c in VT_CELLS]
    assert found.paper == pytest.approx(min(ratios)) and round(found.paper, 1) == 3.0
    with pytest.raises(Missing, match="differs from 0"):
        numbers.chains_ratio(made("table1_ruler", [rows[0], rows[1] | {"low": 0.0}]))


def test_the_trend_of_the_mass_has_fishers_interval(made):
    evidence = made("fig1a_trend", [{"method": "attnlrp", "hop": 0, "rho": 0.5, "n": 20, "share": "share"}])
    [found] = numbers.mass_trend(evidence)
    assert (found.value, found.n) == (0.5, 20)
    assert (found.low, found.high) == pytest.approx(rank_correlation_interval(0.5, 20))


def test_what_was_not_run_with_reasoning_is_absent(made):
    rows = [{"method": "ifr", "metric": "recovery", "difference": -0.1, "low": -0.2, "high": -0.05, "n": 8}]
    found = numbers.recovery_with_reasoning(made("fig1b_change", rows), ["perturbation", "ifr"])
    assert [(f.name, f.absent) for f in found] == [("recovery, IFR", False), ("recovery, Perturbation", True)]
    with pytest.raises(Missing, match="no row of perturbation"):
        numbers.recovery_with_reasoning(made("fig1b_change", rows), ["perturbation"])


def test_means_stand_in_the_order_of_their_lengths(made):
    rows = [long(method="flashtrace", cell=f"hotpotqa_{n}", metric="rise", mean=n / 1e4) for n in (2048, 512, 1024)]
    found = table_numbers.means_in_order(
        made("table8_unfiltered", rows), "table8_unfiltered", "cell", {"metric": "rise"}
    )
    assert [f.value for f in found] == pytest.approx([0.0512, 0.1024, 0.2048])


def test_the_lead_over_chance_is_positive_where_it_is_good(made):
    rows = [
        {"method": "flashtrace", "metric": metric, "difference": value, "low": value - 0.1, "high": value + 0.2, "n": 9}
        for metric, value in (("recovery", 0.3), ("rise", -0.4))
    ]
    found = table_numbers.against_random(made("math_against_random", rows), "math_against_random", ["recovery", "rise"])
    assert [(f.value, f.low, f.high) for f in found] == [
        pytest.approx((0.3, 0.2, 0.5)), pytest.approx((0.4, 0.2, 0.5))
    ]  # fmt: skip


def test_a_setting_is_not_judged_by_the_samples_that_chose_it():
    for profile, refused in (("laptop", True), ("evidence", False)):
        call = (table_numbers.held_out_differences, Evidence(profile), "better_second", ["recovery"], 1)
        if refused:
            with pytest.raises(Missing, match="samples that did not choose"):
                call[0](*call[1:])
        else:
            assert len(call[0](*call[1:])) == 1


def test_speed_is_told_in_seconds_and_in_forward_passes(made):
    row = {"method": "ifr_one_by_one", "n_generated": 5000, "speedup": 30.0, "kind": "measured"}
    made("efficiency_headline", [row | {"n_generated": 1000, "speedup": 9.0}, row])
    timed = [("flashtrace", 1.25), ("ifr_one_by_one", 50.0)]
    rows = [{"method": method, "n_generated": 5000, "outcome": "ok", "ratio": ratio} for method, ratio in timed]
    [found] = speedup(made("fig4_headline", rows), "ifr_one_by_one")
    assert found.value == 30 and found.name.endswith("at 5000 generated tokens (40.0 in forward passes)")


def test_the_naive_way_is_compared_where_both_were_measured(made):
    rows = [
        {"method": method, "n_reasoning": n, "seconds": seconds, "measured": measured}
        for method, n, seconds, measured in (
            ("flashtrace", 16, 1.0, True), ("ifr per token", 16, 6.0, True), ("flashtrace", 64, 2.0, True),
            ("ifr per token", 64, 40.0, True), ("flashtrace", 256, 4.0, True), ("ifr per token", 256, 900.0, False),
        )
    ]  # fmt: skip
    assert [f.value for f in naive_over_flashtrace(made("fig1c_cost", rows))] == [6, 20]


def test_printed_numbers_are_those_of_the_papers_tables():
    every = {
        m: [v for rows in PAPER.values() for (_, _, name), v in rows.items() if name == m] for m in ("rise", "mas")
    }
    for metric, values in every.items():
        assert printed_numbers.lowest_printed(metric)[0].value == min(values)
    assert (min(every["mas"]), max(every["mas"])) == (0.106, 0.782) and min(every["rise"]) == 0.013
    [rise, mas] = printed_numbers.one_hop_minus_none()
    assert (rise.value, mas.value) == pytest.approx((0.001, -0.004))


def test_responses_that_are_no_right_answers_mark_a_claim(made):
    own, forced, unfiltered = "the model's own", "teacher-forced ‡", "unfiltered §"
    rows = [("mq_q2", 3, own), ("mv_v2", 0, forced), ("h4_c1", 2, forced), ("hotpotqa", 5, unfiltered)]
    evidence = made("ruler_samples", [dict(zip(("cell", "kept", "responses"), row, strict=True)) for row in rows])
    found = marked(evidence, ["ruler_samples", "math_samples"])
    assert found == {"‡": ["h4_c1"], "§": ["hotpotqa"]} and mark_of(found) == " ‡ §"
    assert marked(evidence, ["ruler_samples/needles"]) == {} == marked(evidence, ["math_samples"])
    assert marked(evidence, ["ruler_samples/chains"]) == {"‡": ["h4_c1"]}
