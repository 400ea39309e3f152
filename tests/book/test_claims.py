"""Claims: what a chapter notes, how it is judged, and what is written."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from flashtrace_book import claims, claims_page
from tests.environment import ROOT

HOLDS = {"value": 0.5, "low": 0.2, "high": 0.8, "n": 10}
OPEN = {"value": 0.1, "low": -0.2, "high": 0.4, "n": 10}
FAILS = {"value": -0.5, "low": -0.8, "high": -0.2, "n": 10}
FEW = {"value": 0.5, "low": np.nan, "high": np.nan, "n": 3}


def verdict_of(folder, numbers, checks=(), name="ruler_recovery"):
    claims.note(folder, name, pd.DataFrame([{"label": f"a{i}", **row} for i, row in enumerate(numbers)]))
    if checks:
        rows = [{"label": f"check {i}", **row} for i, row in enumerate(checks)]
        claims.note(folder, name, pd.DataFrame(rows), role="check")
    return next(claim for claim in claims.judge(folder) if claim["id"] == name)


@pytest.mark.parametrize(
    ("numbers", "checks", "verdict"),
    [
        ([HOLDS, HOLDS], [], "reproduced"), ([HOLDS, OPEN], [], "partly reproduced"), ([HOLDS], [OPEN], "reproduced"),
        ([HOLDS], [FAILS], "partly reproduced"), ([FAILS, OPEN], [HOLDS], "not reproduced"),
        ([OPEN], [], "undecided"), ([FEW], [], "not testable here"), ([HOLDS, FEW], [], "reproduced"),
    ],
)  # fmt: skip
def test_verdicts(tmp_path, numbers, checks, verdict):
    claim = verdict_of(tmp_path, numbers, checks)
    assert claim["verdict"] == verdict
    if checks and verdict.startswith("partly"):
        assert "check 0" in claim["why"]


@pytest.mark.parametrize(
    ("rule", "bound", "row", "state"),
    [
        ("below", 0, FAILS, "holds"), ("below", 0, HOLDS, "fails"), ("below", 0, OPEN, "open"),
        ("below", 0.9, HOLDS, "holds"), ("above", 0.9, HOLDS, "fails"), ("within", 1, HOLDS, "holds"),
        ("within", 0.1, HOLDS, "fails"), ("within", 0.3, OPEN, "open"), ("at_least", 0.5, FEW, "holds"),
        ("at_most", 0.4, FEW, "fails"), ("above", 0, FEW, "too few"),
    ],
)  # fmt: skip
def test_state_of_a_number(rule, bound, row, state):
    row = {key: None if np.isnan(value) else value for key, value in row.items()}
    assert claims.state(row, rule, bound) == state


def test_noting_again_replaces_the_numbers_of_one_role(tmp_path):
    verdict_of(tmp_path, [HOLDS], [FAILS])
    claim = verdict_of(tmp_path, [OPEN])
    assert [number["value"] for number in claim["numbers"]] == [0.1] and len(claim["checks"]) == 1
    with pytest.raises(ValueError, match="no claim 'nothing'"):
        claims.note(tmp_path, "nothing", HOLDS)
    with pytest.raises(ValueError, match="role must be one of"):
        claims.note(tmp_path, "ruler_recovery", HOLDS, role="other")


def test_p_values_are_those_of_the_t_test(tmp_path):
    values = np.random.default_rng(0).normal(0.3, 1, 12)
    found = ttest_1samp(values, 0)
    low, high = found.confidence_interval()
    claim = verdict_of(tmp_path, [{"value": values.mean(), "low": low, "high": high, "n": 12}])
    assert claim["p"] == pytest.approx(found.pvalue, rel=1e-3)


def test_corrections_by_hand():
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert claims.holm_corrected(p).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert claims.benjamini_hochberg(p).tolist() == pytest.approx([0.02, 0.04, 0.04, 0.02])


def test_the_list_of_claims():
    listed, chapters = claims.claim_list(), {path.stem for path in (ROOT / "notebooks" / "py").glob("*.py")}
    assert len([claim for claim in listed if not claim.get("beyond")]) <= 40
    assert set(claims_page.chapter_seconds()["seconds"]) == chapters >= {claim["chapter"] for claim in listed}
    for claim in listed:
        if claim["rule"] == "stated":
            assert claim["verdict"] in claims.VERDICTS and claim["reason"]
    assert set(claims_page.HEADLINES) <= {claim["id"] for claim in listed if not claim.get("beyond")}
    assert len(claims_page.HEADLINES) <= 12


def test_the_committed_page_follows_from_the_committed_numbers(tmp_path):
    judged = claims.judge(ROOT / "figures")
    assert (ROOT / "figures" / "claims.json").read_text(encoding="utf-8") == claims.to_json(judged)
    assert (ROOT / "figures" / "claims.md").read_text(encoding="utf-8") == claims_page.page(judged)
    assert claims_page.headline_table(judged) in (ROOT / "README.md").read_text(encoding="utf-8")
    assert sum(line.endswith(" s |") for line in claims_page.page(judged).splitlines()) == len(judged)  # seconds


def test_claims_json_has_what_a_reader_asks_for():
    for claim in json.loads((ROOT / "figures" / "claims.json").read_text(encoding="utf-8")):
        assert isinstance(claim["verdict"], str) and {
            "paper", "value", "low", "high", "n", "n_effective", "models", "answers", "p_holm", "figure",
        } <= claim.keys()  # fmt: skip
        source = (ROOT / "notebooks" / "py" / f"{claim['chapter']}.py").read_text(encoding="utf-8")
        assert not claim["figure"] or f'"{claim["figure"]}"' in source, f"make figure draws no {claim['figure']}"
        if claim["rule"] != "stated" and claim["verdict"] != "not testable here":
            assert claim["numbers"], claim["id"]
        if claim["verdict"] == "reproduced" and not claim["beyond"]:
            assert claim["checks"] or len(claim["numbers"]) > 1 or claim["no_checks"], f"{claim['id']}: without a check"
        for number in claim["numbers"]:
            assert number["answers"] in ("own", ""), f"{claim['id']}: only own answers decide"
