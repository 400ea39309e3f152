"""The summary of the claims in README: the committed one from the committed verdicts, and its marks."""

import json

import pandas as pd
import pytest

from flashtrace_book.claims.judge import OWN
from flashtrace_book.claims.readme import BEGIN, END, HEADLINES, placed, summary
from flashtrace_book.claims.rules import MISSING, VERDICTS
from tests.environment import ROOT


def test_the_readme_shows_the_claims_as_they_are(monkeypatch):
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(ROOT / "figures"))
    judged = json.loads((ROOT / "figures" / "claims.json").read_text())  # which another test computes again
    text = (ROOT / "README.md").read_text()
    assert placed(text, summary(judged)) == text
    shown = text.partition(BEGIN)[2].partition(END)[0]
    assert len(HEADLINES) <= 12 and shown.count("\n| ") == 2 + len(VERDICTS) + 2 + len(HEADLINES)
    assert text.count("\n") <= 150, "what does not fit belongs into a page of docs/"
    for found in judged:
        if found["key"] in HEADLINES:
            assert found["claim"] in shown


def test_a_profile_that_measures_no_headline_has_no_column():
    judged = json.loads((ROOT / "figures" / "claims.json").read_text())
    before = summary(judged)
    for found in judged:
        if OWN not in found["verdicts"]:
            verdict = MISSING if found["key"] in HEADLINES else "undecided"
            found["verdicts"]["new"] = {"verdict": verdict, "missing": "", "findings": []}
    assert summary(judged) == before
    judged[[found["key"] for found in judged].index("one_hop")]["verdicts"]["new"]["verdict"] = "undecided"
    assert "| claim | evidence | laptop | real | new | paper |" in summary(judged)


def test_a_readme_without_its_marks_is_refused(tmp_path):
    for text in ("nothing", BEGIN, f"{END}{BEGIN}",
                 f"{BEGIN}{END}" * 2):  # fmt: skip
        with pytest.raises(ValueError, match="needs one"):
            placed(text, "section")


def test_the_readme_s_numbers_of_the_better_setting_are_those_of_its_table():
    text = " ".join((ROOT / "README.md").read_text().partition("## A better FlashTrace")[2].split())
    table = pd.read_csv(ROOT / "figures" / "evidence" / "better_parts.csv")
    rows = table[table["label"].str.startswith("second candidate")].set_index(["metric", "minus"])
    for metric in ("r_precision_haystack", "recovery"):
        for minus in ("the paper's setting", "IFR"):
            row = rows.loc[(metric, minus)]
            assert f"{row['difference']:.2f} [{row['low']:.2f}, {row['high']:.2f}]" in text, (metric, minus)
    assert set(rows["n"]) == {20} and "twenty right answers" in text
    table = pd.read_csv(ROOT / "figures" / "real" / "better_parts.csv")
    rows = table[table["label"].str.startswith("second candidate") & (table["minus"] == "the paper's setting")]
    for metric, row in rows.set_index("metric").iterrows():
        assert f"{row['difference']:.2f} [{row['low']:.2f}, {row['high']:.2f}] in {metric.partition('_h')[0]}" in (
            text.replace("R-precision", "r_precision")
        )
    assert set(rows["n"]) == {32} and "twelve right answers" in text and "twenty answers" in text
    curves = pd.read_csv(ROOT / "figures" / "evidence" / "ruler_against_flashtrace.csv")
    curves = curves[curves["method"] == "flashtrace_best"].set_index("metric")
    for metric in ("rise", "mas"):
        row = curves.loc[metric]
        assert f"{metric.upper()} by {row['difference']:.2f} [{row['low']:.2f}, {row['high']:.2f}]" in text
        assert row["n"] == 11
    means = pd.read_csv(ROOT / "figures" / "evidence" / "better_means.csv")
    means = means[means["half"] == "pooled"].pivot(index="method", columns="metric", values="mean")
    assert "IFR with all of T and O as its target finds as much there" in text
    assert abs(means.loc["ifr_all", "recovery"] - means.loc["second_candidate", "recovery"]) < 0.01
