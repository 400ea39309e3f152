"""Checks of a verdict: the same comparison under other metrics, without each cell, and with the metric's target."""

import json
import math
import shutil

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from flashtrace_book.claims import claim, judge, robustness
from flashtrace_book.claims.evidence import Evidence
from flashtrace_book.claims.rules import DEPENDS, REPRODUCED, Missing
from tests.environment import ROOT

RULER = ROOT / "data" / "results" / "laptop" / "ruler.parquet"
CELLS = ("a", "b")


def frame(advantages, n=8):
    """Values of three methods: FlashTrace is ahead of IFR, metric by metric and cell by cell, by these amounts."""
    rng = np.random.default_rng(0)
    rows = []
    for (metric, cell), ahead in advantages.items():
        for i in range(n):
            base = rng.random()
            values = {"flashtrace": base + ahead + 0.01 * rng.standard_normal(), "ifr": base, "ifr_all": base + 1}
            rows += [
                {"sample": f"{cell}-{i}", "cell": cell, "method": m, "metric": metric, "value": v, "cluster": None}
                for m, v in values.items()
            ]
    return pd.DataFrame(rows)


@pytest.fixture
def checked(monkeypatch):
    """`robustness` of a hand-made comparison."""

    def found(advantages, metric="recovery", methods=("ifr",), **options):
        monkeypatch.setattr(Evidence, "store", lambda self, name: name)
        monkeypatch.setattr(robustness, "comparison_frame", lambda path, with_random: frame(advantages))
        result = robustness.robustness(Evidence("x"), "ruler", metric, methods, **options)
        return result | {"by_name": {check["name"]: check for check in result["checks"]}}

    return found


def test_signs_are_those_of_the_advantage(checked):
    metrics = {"recovery": 0.5, "auroc": 0.5, "rise": 0.5, "r_precision": 0.0}  # a higher RISE is worse
    found = checked({(metric, cell): ahead for metric, ahead in metrics.items() for cell in CELLS})
    signs = {name: check["sign"] for name, check in found["by_name"].items()}
    assert signs["AUROC"] == "same" and signs["RISE"] == "opposite" and signs["R-precision"] == "open"
    assert signs["LDS"] == "not measured" and found["by_name"]["LDS"]["value"] is None
    assert signs["IFR with the metric's target, T ∪ O"] == "opposite"
    assert found["by_name"]["AUROC"]["value"] == pytest.approx(0.5, abs=0.02)
    assert (found["samples"], found["n"]) == (16, 16) and robustness.depends_on_the_metric(found)
    assert "opposite: RISE" in robustness.summary(found)
    assert json.loads(json.dumps(found)) == found


def test_a_lead_of_one_cell_is_found_out(checked):
    even = checked({("recovery", "a"): 0.5, ("recovery", "b"): 0.5})
    assert even["by_name"]["without any one cell"]["sign"] == "same"
    one = checked({("recovery", "a"): 3.0, ("recovery", "b"): -0.5})
    assert one["by_name"]["without any one cell"]["value"] == pytest.approx(-0.5, abs=0.02)
    assert one["by_name"]["without any one cell"]["sign"] == "opposite"


def test_of_several_methods_the_closest_counts(checked):
    ahead = {(metric, cell): 0.5 for metric in ("recovery", "auroc") for cell in CELLS}
    found = checked(ahead, methods=("ifr", "ifr_all"))
    assert found["by_name"]["AUROC"]["against"] == "IFR on T ∪ O" and found["by_name"]["AUROC"]["sign"] == "opposite"


def test_a_profile_without_records_has_no_checks(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    with pytest.raises(Missing, match=r"records in ruler\.parquet"):
        robustness.robustness(Evidence("laptop"), "ruler", "recovery")


def test_equal_mass_depends_on_the_order_alone(tmp_path):
    found = robustness.comparison_frame(RULER)
    equal = found[(found["metric"] == robustness.EQUAL_MASS) & (found["method"] == "ifr")].set_index("sample")["value"]
    record = pq.read_table(RULER, filters=[("method", "=", "ifr")]).to_pylist()[0]
    curve = np.array(record["log_probs"], dtype=float)
    r = np.minimum.accumulate(np.clip((curve - curve[-1]) / (curve[0] - curve[-1]), 0, 1))
    even = np.array(record["n_masked"]) / record["n_masked"][-1]
    # By the definition: what the fall of the curve and the mass that is still there have between them.
    gap = np.abs(r - (1 - even))
    corrected = r + gap
    corrected = (corrected - corrected.min()) / (corrected.max() - corrected.min())
    area = ((corrected[1:] + corrected[:-1]) / 2 * np.diff(np.linspace(0, 1, len(corrected)))).sum()
    assert equal[record["sample"]] == pytest.approx(area, abs=0.02)


def test_a_changed_record_changes_a_verdict_that_depends_on_the_metric(tmp_path, monkeypatch):
    """FlashTrace's scores with the evidence on top: no check is opposite any more."""
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    folder = tmp_path / "laptop"
    folder.mkdir()
    key = {c.key: c for c in claim.CLAIMS}["ruler_recovery"]
    shutil.copy(RULER, folder)
    assert judge.judge(key, "laptop")["verdict"] == DEPENDS
    table = pq.read_table(RULER)
    rows = table.to_pylist()
    for row in rows:
        if row["method"] == "flashtrace" and row["gold"] is not None:
            top = max(row["scores"]) + 1
            row["scores"] = [top if gold else score for score, gold in zip(row["scores"], row["gold"], strict=True)]
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), folder / RULER.name)
    after = judge.judge(key, "laptop")
    assert after["verdict"] == REPRODUCED
    by_name = {check["name"]: check for check in after["checked"]["checks"]}
    assert by_name["R-precision"]["sign"] == "same" and not math.isnan(by_name["R-precision"]["value"])
