"""Verdicts on the paper's claims: each rule on cases made by hand, and the committed page from the committed tables."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from flashtrace_lib.report import claim_paper, claim_rules, claim_tables, claims
from flashtrace_lib.report.claim_evidence import FILES, Evidence
from flashtrace_lib.report.claim_list import CLAIMS
from flashtrace_lib.report.claim_rules import FAILED, MISSING, PARTLY, REPRODUCED, UNTESTABLE, Finding, Missing

ROOT = Path(__file__).resolve().parent.parent
NAN = math.nan


def f(value, low=NAN, high=NAN, n=10, **more):
    return Finding("x", value, low, high, n, **more)


CASES = [
    (claim_rules.above_zero(), [f(1, 0.5, 2), f(2, 0.1, 3)], REPRODUCED),
    (claim_rules.above_zero(), [f(1, 0.5, 2), f(2, -0.1, 3)], PARTLY),
    (claim_rules.above_zero(), [f(2, -0.1, 3)], FAILED),
    (claim_rules.above_zero(), [f(-2, -3, -1)], FAILED),
    (claim_rules.above_zero(), [f(1, 0.5, 2, n=3)], UNTESTABLE),
    (claim_rules.above_zero(), [f(1, 0.5, 2, n=3), f(-1, -2, 0.5, n=4)], FAILED),
    (claim_rules.above_zero(), [f(1, 0.5, 2, n=None)], REPRODUCED),
    (claim_rules.above_zero(), [], MISSING),
    (claim_rules.below_zero(), [f(-1, -2, -0.1)], REPRODUCED),
    (claim_rules.below_zero(), [f(-1, -2, 0)], FAILED),
    (claim_rules.holds_zero(), [f(0.1, -0.1, 0.3)], REPRODUCED),
    (claim_rules.holds_zero(), [f(0.2, 0.1, 0.3)], FAILED),
    (claim_rules.at_least(3), [f(3)], REPRODUCED),
    (claim_rules.at_least(3), [f(3.5, 2.9, 4)], FAILED),
    (claim_rules.at_least(3, scale=100), [f(2, scale=99)], UNTESTABLE),
    (claim_rules.at_least(3, scale=100), [f(2, scale=100)], FAILED),
    (claim_rules.at_least(3, scale=100), [f(4, scale=10)], REPRODUCED),
    (claim_rules.at_most(3), [f(3)], REPRODUCED),
    (claim_rules.at_most(3), [f(2.5, 2, 3.1)], FAILED),
    (claim_rules.reaches_down_to(1, "e"), [f(1.2, 0.9, 1.5)], REPRODUCED),
    (claim_rules.reaches_down_to(1, "e"), [f(1.2, 1.1, 1.3)], FAILED),
    (claim_rules.at_least_the_papers(), [f(2, paper=2)], REPRODUCED),
    (claim_rules.at_least_the_papers(), [f(2, paper=2.1)], FAILED),
    (claim_rules.at_least_the_papers(), [f(2)], FAILED),  # the paper prints none: nothing is shown
    (claim_rules.at_most_the_papers(), [f(2, paper=2)], REPRODUCED),
    (claim_rules.at_most_the_papers(), [f(2, paper=1.9), f(1, paper=1.9)], PARTLY),
    (claim_rules.equals_the_papers(), [f(100, paper=100)], REPRODUCED),
    (claim_rules.equals_the_papers(), [f(0, paper=100)], FAILED),
    (claim_rules.rising(), [f(1), f(2), f(3)], REPRODUCED),
    (claim_rules.rising(), [f(1), f(0), f(3)], PARTLY),
    (claim_rules.rising(), [f(1), f(2), f(1)], FAILED),
    (claim_rules.rising(), [f(1), f(2, n=3)], UNTESTABLE),
    (claim_rules.rising(), [f(1)], UNTESTABLE),
    (claim_rules.falling(), [f(3), f(2), f(1)], REPRODUCED),
    (claim_rules.falling(), [f(3), f(4), f(1)], PARTLY),
    (claim_rules.falling(), [f(1), f(1)], FAILED),
    (claim_rules.level(), [f(1, 0, 2), f(2, 1, 3), f(1.5, 1.2, 1.9)], REPRODUCED),
    (claim_rules.level(), [f(1, 0, 2), f(2, 1, 3), f(4, 2.1, 5)], FAILED),
    (claim_rules.untestable("no"), [], UNTESTABLE),
]


@pytest.mark.parametrize(("rule", "findings", "verdict"), CASES)
def test_a_rule_on_a_case_made_by_hand(rule, findings, verdict):
    assert rule.verdict(findings) == verdict


def test_every_rule_has_a_case():
    made = {getattr(rule.holds or rule.series, "__qualname__", "untestable").split(".")[0] for rule, *_ in CASES}
    used = {getattr(c.rule.holds or c.rule.series, "__qualname__", "untestable").split(".")[0] for c in CLAIMS}
    assert used <= made


def test_what_is_no_number_gets_no_verdict():
    with pytest.raises(Missing, match="not defined"):
        f(NAN)
    with pytest.raises(ValueError, match="no interval"):
        f(1, 3, 2)
    with pytest.raises(ValueError, match="no interval"):
        f(1, 3)


def test_the_papers_own_bounds():
    """The floor of the printed MAS, by search: no curve and no scores in descending order come below it."""
    rng = np.random.default_rng(0)
    steps = claim_paper.STEPS
    for _ in range(300):
        scores = np.sort(rng.exponential(size=steps) ** rng.uniform(0, 3))[::-1]
        curve = np.minimum.accumulate(rng.uniform(size=steps) ** rng.uniform(0, 9))
        printed = curve.mean() + np.abs(curve - np.cumsum(scores) / scores.sum()).mean()
        assert printed >= claim_paper.least_printed_mas() - 1e-12
    even = np.arange(1, steps + 1) / steps
    assert np.abs(0 - even).mean() == pytest.approx(claim_paper.least_printed_mas())
    assert claim_paper.least_rise() == 0.025 and claim_paper.masked_of_remaining() == pytest.approx(0.6415, abs=1e-4)


def test_the_list_of_claims_is_sound():
    assert len({claim.key for claim in CLAIMS}) == len(CLAIMS) >= 25
    books = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} | {"04_efficiency", "09_generalisation"}
    assert {claim.notebook for claim in CLAIMS} <= books
    assert all(claim.where and claim.paper for claim in CLAIMS)


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A folder of figures with a copy of the committed laptop tables."""
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(tmp_path))
    (tmp_path / "copy").mkdir()
    for path in (ROOT / "figures" / "laptop").glob("*.csv"):
        shutil.copy(path, tmp_path / "copy")
    return tmp_path / "copy"


def verdict(key, profile="copy"):
    return claims.judge(next(claim for claim in CLAIMS if claim.key == key), profile)


def change(path, where, **values):
    frame = pd.read_csv(path)
    rows = np.logical_and.reduce([frame[column] == value for column, value in where.items()])
    assert rows.any()
    for column, value in values.items():
        frame.loc[rows, column] = value
    frame.to_csv(path, index=False)


def test_the_committed_page_follows_from_the_committed_tables(monkeypatch):
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(ROOT / "figures"))
    judged = claims.judge_all()
    assert json.loads((ROOT / "figures" / "claims.json").read_text()) == json.loads(json.dumps(judged))
    assert (ROOT / "figures" / "claims.md").read_text() == claims.markdown(judged)


def test_a_changed_number_changes_the_verdict(tables):
    assert verdict("ruler_recovery")["verdict"] == REPRODUCED
    change(tables / "ruler_paired_groups.csv", {"metric": "recovery", "cell": "chains"}, low=-0.01)
    assert verdict("ruler_recovery")["verdict"] == PARTLY
    change(tables / "ruler_paired_groups.csv", {"metric": "recovery", "cell": "needles"}, low=-0.01)
    assert verdict("ruler_recovery")["verdict"] == FAILED


def test_a_result_that_is_not_there_yet_is_picked_up_once_it_is(tables):
    for name in ("efficiency_headline", "table5_paired"):
        (tables / f"{name}.csv").unlink(missing_ok=True)
    assert verdict("speedup")["verdict"] == MISSING
    assert verdict("speedup")["missing"] == "efficiency_headline.csv"
    row = {"method": "ifr_one_by_one", "n_generated": 1024, "seconds": 50, "flashtrace_seconds": 1, "speedup": 50.0,
           "kind": "measured", "paper": 130}  # fmt: skip
    for n, speedup, expected in ((1024, 50, UNTESTABLE), (5000, 50, FAILED), (1024, 140, REPRODUCED)):
        pd.DataFrame([row | {"n_generated": n, "speedup": speedup}]).to_csv(tables / "efficiency_headline.csv")
        assert verdict("speedup")["verdict"] == expected
    assert verdict("speedup_batched")["verdict"] == MISSING  # the table has no row of the batched IFR
    pair = {"cell": "ruler", "against": "ifr", "metric": "rise", "difference": -0.1, "low": -0.2, "high": -0.05, "n": 9}
    pd.DataFrame([pair, pair | {"metric": "mas", "high": 0.1}]).to_csv(tables / "table5_paired.csv")
    assert verdict("second_model")["verdict"] == PARTLY


def test_efficiency_claims_read_the_tables_of_a_sweep(tables):
    rows = [{"axis": axis, "method": method, "length": 64, "n_input": 64, "n_generated": 16, "outcome": "ok",
             "ratio": ratio, "peak_gib": 0.1 * ratio}
            for axis in ("input", "generation") for method, ratio in (("flashtrace", 1.2), ("ifr", 1.5))]  # fmt: skip
    pd.DataFrame(rows).to_csv(tables / "fig4_measurements.csv")
    assert verdict("one_pass")["verdict"] == REPRODUCED and verdict("cheapest")["verdict"] == REPRODUCED
    change(tables / "fig4_measurements.csv", {"method": "ifr", "axis": "input"}, ratio=1.1)
    assert verdict("cheapest")["verdict"] == PARTLY
    shared = {"axis": "generation", "quantity": "time", "points": 5}
    fits = [{"method": "flashtrace", "exponent": 0.2, "low": 0.1, "high": 0.3, **shared},
            {"method": "ifr_one_by_one", "exponent": 1.0, "low": 0.8, "high": 1.2, **shared},
            {"method": "flashtrace", "exponent": 0.9, "low": 0.8, "high": 1.0, **shared, "axis": "input"}]  # fmt: skip
    pd.DataFrame(fits).to_csv(tables / "table6_complexity.csv")
    assert verdict("growth")["verdict"] == REPRODUCED and verdict("linear")["verdict"] == REPRODUCED
    pd.DataFrame([{"tokens": 2048, "memory_saved": 0.7, "latency_added": 0.5}]).to_csv(tables / "table9_savings.csv")
    assert verdict("memory_saved")["verdict"] == REPRODUCED and verdict("latency_added")["verdict"] == FAILED
    pd.DataFrame([{"method": "flashtrace", "front": True}]).to_csv(tables / "fig4e_pareto.csv")
    assert verdict("pareto")["verdict"] == REPRODUCED


def test_what_cannot_be_read_is_said_clearly(tables):
    evidence = Evidence("copy")
    with pytest.raises(ValueError, match="no table 'table99'"):
        evidence.table("table99")
    with pytest.raises(ValueError, match="has no column 'colour'"):
        evidence.rows("fig1a_trend", colour="red")
    with pytest.raises(Missing, match="no row with method lime"):
        evidence.row("fig1b_change", method="lime")
    with pytest.raises(ValueError, match="2 rows with method ifr"):
        evidence.row("fig1b_change", method="ifr")
    frame = pd.read_csv(tables / "fig1b_change.csv")
    frame.drop(columns="low").to_csv(tables / "fig1b_change.csv", index=False)
    with pytest.raises(ValueError, match=r"fig1b_change.csv lacks the columns \['low'\]"):
        Evidence("copy").table("fig1b_change")
    frame.assign(low="little").to_csv(tables / "fig1b_change.csv", index=False)
    with pytest.raises(ValueError, match="are not numbers"):
        verdict("recovery_falls")
    frame.head(0).to_csv(tables / "fig1b_change.csv", index=False)
    with pytest.raises(ValueError, match="has no rows"):
        Evidence("copy").table("fig1b_change")
    with pytest.raises(Missing, match="fig1a_trend.csv"):
        Evidence("nowhere").table("fig1a_trend")


def test_every_table_of_the_list_is_read_by_a_claim():
    source = "".join(path.read_text() for path in (ROOT / "flashtrace_lib" / "report").glob("claim_*.py")
                     if path.stem != "claim_evidence")  # fmt: skip
    assert [name for name in FILES if f'"{name}"' not in source] == []


def test_cells_with_other_records_than_the_table_are_left_out():
    rows = [{"sample": s, "cell": c, "method": m, "metric": "rise", "value": v, "flagged": False}
            for c in ("a", "b", "c") for s, v in (("1", 0.2), ("2", 0.4)) for m in ("flashtrace", "ifr")]  # fmt: skip
    frame = pd.DataFrame(rows)
    more = pd.concat([frame, frame.iloc[:1].assign(sample="3", value=9.0)])  # a sample of one method alone
    pd.testing.assert_frame_equal(claim_tables.in_common(more), frame)
    printed = pd.DataFrame([{"method": m, "cell": c, "metric": "rise", "mean": mean, "n": n}
                            for c, mean, n in (("a", 0.3, 2), ("b", 0.3, 3), ("c", 0.31, 2))
                            for m in ("flashtrace", "ifr")])  # fmt: skip
    assert claim_tables.matching_cells(frame, printed) == {"a"}


def test_the_committed_differences_are_those_of_the_stored_records(monkeypatch):
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(ROOT / "figures"))
    folder = ROOT / "figures" / "laptop"
    found, _ = claim_tables.paired_with_all("laptop")
    stored = pd.read_csv(folder / "claims_paired.csv")
    pd.testing.assert_frame_equal(found, stored[found.columns], rtol=1e-5, atol=1e-7, check_dtype=False)
    groups = pd.read_csv(folder / "ruler_paired_groups.csv")  # 05_ruler computes FlashTrace minus IFR by itself
    mine = found[(found["table"] == "table1_ruler") & (found["method"] == "ifr") & found["cell"].isin(groups["cell"])]
    both = groups.merge(mine, on=["metric", "cell"], suffixes=("", "_mine"))
    assert len(both) >= 9 and np.allclose(both[["difference", "low", "high"]], both[["difference_mine", "low_mine", "high_mine"]], atol=2e-3)  # fmt: skip # noqa: E501
    mass = claim_tables.mass_shift("laptop")
    pd.testing.assert_frame_equal(mass, pd.read_csv(folder / "claims_mass.csv")[mass.columns], rtol=1e-5, atol=1e-7,
                                  check_dtype=False)  # fmt: skip


def test_mass_moves_as_its_hops_say():
    record = {
        "hop_scores": [[0.1, 0.0, 0.0, 0.6, 0.3], [0.5, 0.2, 0.2, 0.1, 0.0]], "hop_targets": [[4, 5], [1, 4]],
        "n_reasoning": 3,
        "method_metadata": json.dumps({"mass": [{"reasoning": 0.6, "prompt": 0.1}, {"reasoning": 0.5, "prompt": 0.5}]}),
    }  # fmt: skip
    shift = claim_tables._shift(record)
    assert shift["reasoning"] == pytest.approx(-0.1) and shift["input"] == pytest.approx(0.4)
    assert shift["reasoning over input"] == pytest.approx(0.5)
    assert shift["place"] == pytest.approx((0.2 * 0 + 0.2 * 0.5 + 0.1 * 1) / 0.5 - 1)
    assert claim_tables._shift(record | {"n_reasoning": 0}) == {}


def test_the_page_reads_well(tables):
    page = claims.markdown(claims.judge_all(["copy"]))
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(lines) >= len(CLAIMS) and max(map(len, lines)) < 700
    assert "](../notebooks/05_ruler.ipynb)" in page and "## Profile copy" in page and "nan" not in page
    shown = claims.verdict_table(claims.judge_all(["copy"]), "copy")
    assert set(shown["verdict"]) <= set(claim_rules.VERDICTS) and len(shown) == len(CLAIMS) - 8
