"""Paired differences of the stored records, which the claims about every method are judged by."""

import numpy as np
import pandas as pd
import pytest

from flashtrace_book.claims.evidence import in_common, matching_cells, paired_with_all
from tests.environment import ROOT


def test_cells_with_other_records_than_the_table_are_left_out():
    rows = [{"sample": s, "cell": c, "method": m, "metric": "rise", "value": v, "flagged": False}
            for c in ("a", "b", "c") for s, v in (("1", 0.2), ("2", 0.4)) for m in ("flashtrace", "ifr")]  # fmt: skip
    frame = pd.DataFrame(rows)
    more = pd.concat([frame, frame.iloc[:1].assign(sample="3", value=9.0)])  # a sample of one method alone
    pd.testing.assert_frame_equal(in_common(more), frame)
    few = pd.concat([frame, frame.iloc[:1].assign(method="clp"), more.tail(1).assign(method="clp")], ignore_index=True)
    assert len(in_common(few)) < len(frame)  # what one method lacks, all lose, unless it is known to have few
    pd.testing.assert_frame_equal(in_common(few, {"clp"}), few.iloc[:-1])
    printed = pd.DataFrame([{"method": m, "cell": c, "metric": "rise", "mean": mean, "n": n}
                            for c, mean, n in (("a", 0.3, 2), ("b", 0.3, 3), ("c", 0.31, 2))
                            for m in ("flashtrace", "ifr")])  # fmt: skip
    assert matching_cells(frame, printed) == {"a"}


def test_the_committed_differences_are_those_of_the_stored_records(monkeypatch):
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(ROOT / "figures"))
    folder = ROOT / "figures" / "laptop"
    found, _ = paired_with_all("laptop")
    stored = pd.read_csv(folder / "claims_paired.csv")
    pd.testing.assert_frame_equal(found, stored[found.columns], rtol=1e-5, atol=1e-7, check_dtype=False)
    groups = pd.read_csv(folder / "ruler_paired_groups.csv")  # 05_ruler computes FlashTrace minus IFR by itself
    mine = found[(found["table"] == "table1_ruler") & (found["method"] == "ifr") & found["cell"].isin(groups["cell"])]
    both = groups.merge(mine, on=["metric", "cell"], suffixes=("", "_mine"))
    assert len(both) >= 9 and np.allclose(both[["difference", "low", "high"]], both[["difference_mine", "low_mine", "high_mine"]], atol=2e-3)  # fmt: skip # noqa: E501


def test_a_table_of_groups_alone_is_compared_by_its_groups(monkeypatch):
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(ROOT / "figures"))
    found, left_out = paired_with_all("laptop")
    assert left_out == []  # nothing is printed about cells that the table does not show
    mine = found[(found["table"] == "table10_last_token") & (found["metric"] == "rise")].set_index("cell")
    printed = pd.read_csv(ROOT / "figures" / "laptop" / "table10_last_token.csv")
    printed = printed.set_index(["method", "cell", "metric"])
    assert set(mine.index) == set(printed.index.get_level_values("cell"))
    for cell, row in mine.iterrows():
        ours, theirs = (printed.loc[(method, cell, "rise")] for method in ("flashtrace", "last_token"))
        if cell == "all cells":  # HotpotQA's two samples are of one template: one cluster, of half their weight
            assert row["n"] == ours["n"] - 1
        else:
            assert row["difference"] == pytest.approx(ours["mean"] - theirs["mean"], abs=2e-6)
            assert row["n"] == ours["n"] - (cell == "hotpotqa")
