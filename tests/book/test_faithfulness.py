"""What chapters 05 and 09 share: groups of cells, one n for all methods, caps, margins, and two models' order."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from flashtrace_book import faithfulness as f
from flashtrace_book.results import by_sentence


def frame(values, metric="recovery", cells=("mq_q2", "h4_c1"), n=6):
    """``values``: method -> mean; samples differ by a pattern that all methods share."""
    rows = [
        {"sample": f"{cell}-{i}", "cell": cell, "model": "m", "answers": "own", "right": True, "method": method,
         "metric": metric, "value": value + 0.01 * i, "flagged": False, "n_input": 100,
         "n_gold": 15 if cell[0] == "h" else 5}
        for cell in cells for i in range(n) for method, value in values.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_a_cell_counts_in_its_group_and_in_all_cells():
    pooled = f.in_groups(frame({"ifr": 0.5}))
    counted = {"all cells": 12, "mq_q2": 6, "h4_c1": 6, "needles": 6, "chains": 6}
    assert pooled["cell"].value_counts().to_dict() == counted
    assert list(f.in_order(pooled)["cell"].unique()) == ["mq_q2", "h4_c1", "needles", "chains", "all cells"]
    assert set(f.in_groups(frame({"ifr": 0.5}, cells=("mq_q2",)))["cell"]) == {"mq_q2", "needles", "all cells"}


def test_means_are_of_samples_that_all_methods_have():
    whole = frame({"flashtrace": 0.5, "ifr": 0.4})
    lacking = whole.drop(index=whole[(whole["method"] == "ifr") & (whole["sample"] == "mq_q2-3")].index)
    assert len(f.shared_samples(whole)) == 24 and "mq_q2-3" not in set(f.shared_samples(lacking)["sample"])


def test_by_sentences_a_word_counts_for_its_sentence():
    row = {"sample": "a", "cell": "h2_c3", "model": "m", "method": "ifr", "n_input": 7, "right": True}
    row |= {"scores": np.array([9, 7, 0, 0, 1, 1, 0]), "gold": np.array([0, 1, 1, 1, 0, 0, 0], dtype=bool)}
    row |= {"sentences": [[1, 4], [4, 7]], "haystack": [1, 7], "words": np.ones(7, dtype=bool)}
    results = SimpleNamespace(records=lambda methods, answers: pd.DataFrame([row]))
    found = f.by_unit(results, "own").set_index(["method", "unit"])["value"]
    assert found["ifr", "tokens"] == pytest.approx(1 / 3) and found["ifr", "means"] == found["ifr", "sums"] == 1
    assert (found["evidence"] == 1).all()
    assert by_sentence([row], "sum")[0]["scores"].tolist() == [9, 7, 7, 7, 2, 2, 2]
    row["words"][[1, 2, 4, 5, 6]] = False  # white space
    assert by_sentence([row], "mean")[0]["scores"].tolist() == [9, 0, 0, 0, 0, 0, 0]


def test_table_1_holds_the_mean_of_the_papers_cells_for_a_group():
    table = f.table_1(frame({"flashtrace": 0.5}), frame({"flashtrace": 0.2}, cells=("hotpotqa",))).set_index("cell")
    printed = [f.paper_value(1, "flashtrace", cell, "recovery") for cell in f.GROUPS["needles"]]
    assert table.loc["needles", "paper"] == pytest.approx(np.mean(printed))
    assert table.loc["hotpotqa", "n"] == 6 and table.loc["mq_q2", "paper"] == printed[0]


def test_caps_are_where_the_evidence_exceeds_a_tenth_of_the_input():
    table = f.caps(frame({"ifr": 0.5, "flashtrace": 0.4})).set_index("cell")
    assert table.loc["mq_q2", ["share", "cap", "n"]].tolist() == [0, 1, 6]
    assert table.loc["h4_c1", ["share", "cap"]].tolist() == pytest.approx([1, 10 / 15])
    assert table.loc["all cells", "share"] == 0.5


def test_leads_point_one_way_and_leave_out_what_was_not_measured():
    both = pd.concat([frame({"flashtrace": 0.5, "ifr": 0.4}), frame({"flashtrace": 0.5, "ifr": 0.4}, "rise")])
    up = f.leads({"all": both}, ["ifr", "clp"], ["recovery", "rise"])
    assert up["difference"].tolist() == pytest.approx([0.1, -0.1])  # a high RISE is bad
    assert up["label"].tolist() == ["all against IFR, recovery", "all against IFR, rise, sign turned"]
    assert f.leads({"all": both}, ["clp"], ["recovery"]).empty


def test_a_margin_beyond_another_is_the_difference_of_differences():
    first, second = frame({"flashtrace": 0.5, "ifr": 0.4}, "rise"), frame({"flashtrace": 0.5, "ifr": 0.2}, "rise", n=3)
    row = f.margin_beyond(first, second, ["rise", "mas"])
    assert row["difference"].tolist() == pytest.approx([-0.2]) and row["n"].tolist() == [6]


def test_two_models_agree_where_their_methods_stand_in_one_order():
    order = {"flashtrace": 0.5, "ifr": 0.4, "attnlrp": 0.3, "random": 0.1}
    turned = {"flashtrace": 0.3, "ifr": 0.4, "attnlrp": 0.5, "random": 0.1, "at2": 0.9}
    same = f.rank_agreement(frame(order), frame(order, cells=("mq_q2", "mv_v2")))
    assert same[["methods", "rho", "within", "n"]].to_numpy().tolist() == [[4, 1, 1, 1], [3, 1, 1, 1]]
    other = f.rank_agreement(frame(order), frame(turned)).set_index("rankings")
    assert other.loc["methods alone", "rho"] == pytest.approx(-1) and other.loc["with controls", "rho"] > -1
