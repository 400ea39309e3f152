"""Verdicts on the paper's claims: the committed page from the committed results, and changed results on it."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from flashtrace_book import cli
from flashtrace_book.claims import judge, rules
from flashtrace_book.claims.claim import CLAIMS
from flashtrace_book.claims.evidence import (
    COLUMNS,
    PAIRS,
    Evidence,
)
from flashtrace_book.claims.readme import BEGIN, END
from flashtrace_book.claims.rules import FAILED, MISSING, PARTLY, REPRODUCED, UNDECIDED, UNTESTABLE, Missing
from tests.environment import ROOT


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A folder of figures with a copy of the committed laptop tables."""
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(tmp_path))
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path / "results"))
    (tmp_path / "copy").mkdir()
    for path in (ROOT / "figures" / "laptop").glob("*.csv"):
        shutil.copy(path, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def records(tables, tmp_path):
    """The folder of results of that copy, with the records of code, the smallest of them."""
    folder = tmp_path / "results" / "copy"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "data" / "results" / "laptop" / "aider.parquet", folder)
    return folder


def verdict(key, profile="copy"):
    return judge.judge(next(claim for claim in CLAIMS if claim.key == key), profile)


def change(path, where, **values):
    frame = pd.read_csv(path)
    rows = np.logical_and.reduce([frame[column] == value for column, value in where.items()])
    assert rows.any()
    for column, value in values.items():
        frame.loc[rows, column] = value
    frame.to_csv(path, index=False)


def test_the_committed_page_follows_from_the_committed_tables(monkeypatch):
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(ROOT / "figures"))
    judged = judge.judge_all()
    assert json.loads((ROOT / "figures" / "claims.json").read_text()) == json.loads(json.dumps(judged))
    assert (ROOT / "figures" / "claims.md").read_text() == judge.markdown(judged)


def test_a_changed_number_changes_the_verdict(tables):
    assert verdict("ruler_recovery")["verdict"] == REPRODUCED
    change(tables / "ruler_paired_groups.csv", {"metric": "recovery", "cell": "chains"}, low=-0.01)
    assert verdict("ruler_recovery")["verdict"] == PARTLY
    change(tables / "ruler_paired_groups.csv", {"metric": "recovery", "cell": "needles"}, low=-0.01)
    assert verdict("ruler_recovery")["verdict"] == UNDECIDED
    for cell in ("needles", "chains"):
        change(tables / "ruler_paired_groups.csv", {"metric": "recovery", "cell": cell}, low=-0.02, high=-0.01)
    assert verdict("ruler_recovery")["verdict"] == FAILED
    change(tables / "ruler_paired_groups.csv", {"metric": "recovery"}, n=5)
    assert verdict("ruler_recovery")["verdict"] == UNTESTABLE


def test_a_changed_record_changes_the_verdict(records):
    """Differences come from the records; where these no longer give the printed table, nothing is concluded."""
    before = verdict("aider")
    assert before["verdict"] not in (MISSING, UNTESTABLE) and before["findings"]
    path = records / "aider.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    for row in rows:
        if row["method"] == "flashtrace":
            row["log_probs"] = row["log_probs"][:1] + row["log_probs"][:0:-1]
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), path)
    assert verdict("aider")["verdict"] == MISSING
    path.unlink()
    after = verdict("aider")
    assert after["verdict"] == MISSING and "aider.parquet" in after["missing"]


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
    pd.DataFrame([row | {"n_generated": 5000, "kind": "at least"}]).to_csv(tables / "efficiency_headline.csv")
    assert verdict("speedup")["verdict"] == UNDECIDED  # a run that was cut short bounds the factor from below alone
    assert "[50, ∞]" in judge.entry(verdict("speedup")["findings"][0])
    assert verdict("speedup_batched")["verdict"] == MISSING  # the table has no row of the batched IFR
    pair = {"cell": "ruler", "against": "ifr", "metric": "rise", "difference": -0.1, "low": -0.2, "high": -0.05, "n": 9}
    pd.DataFrame([pair, pair | {"metric": "mas", "high": 0.1}]).to_csv(tables / "table5_paired.csv")
    assert verdict("second_model")["verdict"] == PARTLY


def test_the_gain_of_a_hop_is_that_of_05_where_03_was_not_run(tables):
    row = {"K": 1, "recovery": 0.5, "low": 0.4, "high": 0.6, "gain": 0.2, "gain_low": 0.1, "gain_high": 0.3, "n": 8}
    pd.DataFrame([row]).to_csv(tables / "recursion_recovery.csv")
    pd.DataFrame([row | {"gain": -0.2, "gain_low": -0.3, "gain_high": -0.1}]).to_csv(tables / "ruler_hops.csv")
    assert verdict("one_hop")["verdict"] == REPRODUCED
    (tables / "recursion_recovery.csv").unlink()
    assert verdict("one_hop")["verdict"] == FAILED
    (tables / "ruler_hops.csv").unlink()
    assert verdict("one_hop")["missing"] == "ruler_hops.csv"


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
            {"method": "flashtrace", "exponent": 0.95, "low": 0.9, "high": 1.0, **shared, "axis": "input"}]  # fmt: skip
    pd.DataFrame(fits).to_csv(tables / "table6_complexity.csv")
    assert verdict("growth")["verdict"] == REPRODUCED and verdict("linear")["verdict"] == REPRODUCED
    change(tables / "table6_complexity.csv", {"axis": "input"}, exponent=0.6, low=0.5)
    assert verdict("linear")["verdict"] == UNDECIDED  # fixed costs beside those that grow show no linearity
    pd.DataFrame([{"tokens": 2048, "memory_saved": 0.7, "latency_added": 0.5}]).to_csv(tables / "table9_savings.csv")
    assert verdict("memory_saved")["verdict"] == REPRODUCED and verdict("latency_added")["verdict"] == FAILED
    points = [{"method": "flashtrace", "ratio": 1.2, "mas": 0.5, "low": 0.4, "high": 0.6},
              {"method": "ifr", "ratio": 2.0, "mas": 0.3, "low": 0.2, "high": 0.4},
              {"method": "attnlrp", "ratio": 1.1, "mas": 0.9, "low": 0.7, "high": 1.0}]  # fmt: skip
    pd.DataFrame(points).assign(n=9).to_csv(tables / "fig4e_pareto.csv")
    assert verdict("pareto")["verdict"] == REPRODUCED
    change(tables / "fig4e_pareto.csv", {"method": "attnlrp"}, low=0.6)  # its interval reaches FlashTrace's
    assert verdict("pareto")["verdict"] == FAILED
    pd.DataFrame(points).assign(n=5, low=np.nan, high=np.nan).to_csv(tables / "fig4e_pareto.csv")
    assert verdict("pareto")["verdict"] == UNTESTABLE  # without an interval the faster method may be as faithful
    change(tables / "fig4e_pareto.csv", {"method": "attnlrp"}, ratio=1.3)
    assert verdict("pareto")["verdict"] == REPRODUCED  # nothing is as fast, whatever its MAS


def test_the_time_that_the_rollout_takes_is_compared_sample_by_sample(tables):
    row = {"quantity": "time saved", "mean": 0.94, "low": 0.936, "high": 0.95, "n": 9}
    pd.DataFrame([row, row | {"quantity": "rho"}]).to_csv(tables / "table3_agreement.csv", index=False)
    assert verdict("rollout_time")["verdict"] == REPRODUCED
    pd.DataFrame([row | {"low": 0.9}]).to_csv(tables / "table3_agreement.csv", index=False)
    assert verdict("rollout_time")["verdict"] == UNDECIDED
    pd.DataFrame([row | {"low": np.nan, "high": np.nan, "n": 5}]).to_csv(tables / "table3_agreement.csv", index=False)
    assert verdict("rollout_time")["verdict"] == UNTESTABLE


def test_a_bin_with_a_method_without_interval_is_not_judged(tables):
    row = {"metric": "mas", "mean": 0.5, "low": 0.45, "high": 0.55, "n": 6, "length": 30}
    bins = [
        row | {"method": "flashtrace"},
        row | {"method": "ifr", "mean": 0.7, "low": 0.6, "high": 0.8},
        row | {"method": "clp", "mean": 0.8, "low": np.nan, "high": np.nan},
    ]  # six values of fewer records
    pd.DataFrame(bins[:2]).to_csv(tables / "fig5_by_length.csv", index=False)
    assert verdict("length_ahead")["verdict"] == REPRODUCED
    pd.DataFrame(bins).to_csv(tables / "fig5_by_length.csv", index=False)
    assert verdict("length_ahead")["verdict"] == UNTESTABLE


def test_the_ablations_and_questions_are_taken_up(tables):
    rows = [{"data": data, "quantity": quantity, "hop": hop, "mean": mean, "low": mean - 0.05, "high": mean + 0.05,
             "change": change, "change_low": change - 0.02, "change_high": change + 0.02, "n": 9}
            for data in ("RULER", "MoreHopQA")
            for quantity, hop, mean, change in (
                ("reasoning", 0, 0.5, 0), ("prompt", 0, 0.3, 0), ("reasoning", 1, 0.6, 0.1), ("prompt", 1, 0.4, 0.1),
                ("place in T", 1, 0.4, -0.1))]  # fmt: skip
    pd.DataFrame(rows).to_csv(tables / "fig7_mass_shift.csv", index=False)
    found = [verdict(key)["verdict"] for key in ("hop0_on_t", "hop1_leaves_t", "hop1_to_input", "hop1_earlier")]
    assert found == [REPRODUCED, FAILED, REPRODUCED, REPRODUCED]
    change(tables / "fig7_mass_shift.csv", {"quantity": "prompt", "hop": 0, "data": "RULER"}, high=0.5)
    assert verdict("hop0_on_t")["verdict"] == PARTLY  # 0.45 to 0.55 against 0.25 to 0.5
    pair = {"metric": "rise", "difference": -0.1, "low": -0.2, "high": -0.05, "n": 11}
    hops = [pair | {"cell": cell, "metric": metric} for cell in ("all cells", "chains") for metric in ("rise", "mas")]
    pd.DataFrame(hops).to_csv(tables / "table7_ruler.csv", index=False)
    assert verdict("one_hop_ruler")["verdict"] == REPRODUCED and len(verdict("one_hop_ruler")["findings"]) == 2
    ways = [pair | {"method": m, "metric": metric} for m in ("sentence", "rising") for metric in ("rise", "mas")]
    pd.DataFrame(ways).to_csv(tables / "appendix_m_paired.csv", index=False)
    assert verdict("sentences")["verdict"] == REPRODUCED and len(verdict("sentences")["findings"]) == 2
    recovery = pair | {"metric": "recovery"}
    readings = [recovery | {"choice": "sink"}, recovery | {"choice": "bias", "high": 0.1}]
    pd.DataFrame(readings).to_csv(tables / "questions_ranked.csv", index=False)
    assert verdict("choices")["verdict"] == PARTLY
    pd.DataFrame([recovery]).to_csv(tables / "questions_best.csv", index=False)
    assert verdict("best")["verdict"] == FAILED
    masked = {"masked": "random", "more": 0.5, "more_low": 0.2, "more_high": 0.8, "n": 6}
    pd.DataFrame([masked, masked | {"masked": "lowest"}]).to_csv(tables / "questions_causal.csv", index=False)
    assert verdict("causal")["verdict"] == REPRODUCED
    pd.DataFrame([masked | {"more_low": -0.1, "n": 21}]).to_csv(tables / "direct_causal.csv", index=False)
    both = verdict("causal")  # two checks, of samples and of questions answered at once
    assert both["verdict"] == PARTLY and [finding["n"] for finding in both["findings"]] == [6, 21]
    (tables / "questions_causal.csv").unlink()
    assert [finding["n"] for finding in verdict("causal")["findings"]] == [21]
    (tables / "direct_causal.csv").unlink()
    assert "questions_causal.csv" in verdict("causal")["missing"]


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
    folder = ROOT / "notebooks" / "flashtrace_book" / "claims"
    sources = [folder / "claims.yaml", folder / "numbers.py", folder / "efficiency_numbers.py"]
    read = set(re.findall(r"\w+", " ".join(path.read_text() for path in sources)))
    assert set(COLUMNS) - {PAIRS} <= read


def test_the_page_reads_well(tables):
    page = judge.markdown(judge.judge_all(["copy"]))
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    assert max(map(len, lines)) < 800
    assert "](../notebooks/05_ruler.ipynb)" in page and "## Profile copy" in page and "nan" not in page
    assert "| | claim | verdict | paper | ours | notebook |" in page.replace("|  |", "| |")
    shown = judge.verdict_table(judge.judge_all(["copy"]), "copy")
    left = int((shown["verdict"] == rules.MISSING).sum())
    own = page.split("## Profile copy")[1].split("\n## ")[0]
    assert sum(line.startswith("| ") for line in own.splitlines()) - 2 == len(shown) - left
    assert (f"Not measured in this profile: {left} of {len(shown)} claims." in own) == (left > 0)
    assert list(shown)[:2] == ["claim", "verdict"]
    assert set(shown["verdict"]) <= set(rules.VERDICTS) and len(shown) == sum(not c.of_the_paper for c in CLAIMS)


def test_numbers_stand_on_the_right():
    rows = [(1, "a claim", "[05](../notebooks/05_ruler.ipynb)", ""), (27, "2 of them", "[10](x.ipynb)", "0.5")]
    assert judge.table(["", "claim", "notebook", "value"], rows).splitlines()[1] == "| ---: | --- | ---: | ---: |"


def test_the_command_line_writes_page_and_readme(tables, records, tmp_path, monkeypatch, capsys):
    tables.rename(tmp_path / "laptop")  # a profile of this name is judged
    records.rename(tmp_path / "results" / "laptop")
    monkeypatch.setenv("FLASHTRACE_ROOT", str(tmp_path / "checkout"))
    (tmp_path / "checkout").mkdir()
    readme = tmp_path / "checkout" / "README.md"
    readme.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    assert cli.main(["claims"]) == 0
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and rules.FAILED in text
    assert (tmp_path / "claims.md").is_file() and json.loads((tmp_path / "claims.json").read_text())
    assert "written:" in capsys.readouterr().out
