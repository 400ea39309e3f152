"""Masking one sentence at a time: what it does to the answer, and when the claim about it is decided."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from flashtrace_book.claims.claim import CLAIMS
from flashtrace_book.claims.judge import judge
from flashtrace_book.claims.rules import FAILED, REPRODUCED, UNDECIDED
from flashtrace_book.experiments import causal_masking
from flashtrace_book.figures.question_plots import changed_answers
from flashtrace_lib import FlashTrace
from flashtrace_lib.methods import CLP
from flashtrace_lib.store import Store
from tests.oracles.planted import ANSWER, Words, causal_sample, planted_model
from tests.support.whiskers import drawn


@pytest.mark.parametrize("position", [3, 6, 9])
def test_masking_the_evidence_changes_the_answer_and_nothing_else_does(tmp_path, position):
    model, store = planted_model(), Store(tmp_path / "s")
    frame = causal_masking.causal_frame(model, Words(), [causal_sample(position)], FlashTrace(), store)
    assert frame["masked"].tolist() == list(causal_masking.MASKED)
    assert frame.set_index("masked")["changed"].to_dict() == {
        "nothing": False, "top": True, "random": False, "lowest": False, "question": False,
    }  # fmt: skip
    assert frame["gold"].tolist() == [0, 1, 0, 0, 0] and frame["tokens"].tolist() == [0, 3, 3, 3, 3]
    assert str(ANSWER[2]) in frame["answer"][0].split() and str(ANSWER[2]) not in frame["answer"][1].split()
    again = causal_masking.causal_frame(model, Words(), [causal_sample(position)], FlashTrace(), store)
    pd.testing.assert_frame_equal(frame, again)
    assert len(store) == 1
    causal_masking.causal_frame(model, Words(), [causal_sample(position)], CLP(), store)
    assert len(store) == 2  # another method masks other sentences


def test_sentences_before_the_question_are_ranked_by_their_mean_and_differ():
    sample, scores = causal_sample(), torch.tensor([0, 0, 9, 1, 1, 1, 4, 4, 4, 9, 9, 9.0])
    found = causal_masking.maskings(sample, scores)
    assert found == {"top": (8, 11), "random": (2, 5), "lowest": (5, 8), "question": (11, 14)}
    sample.sentences = [(2, 4), (4, 6), (6, 9), (9, 12), (12, 14)]
    with pytest.raises(ValueError, match="2 sentences .* needs three"):
        causal_masking.maskings(sample, scores)


def test_one_of_the_sentences_between_is_drawn_by_the_seed():
    sample = causal_sample()
    sample.sentences = [(0, 3), (3, 6), (6, 9), (9, 12), (12, 14)]
    sample.segments = replace(sample.segments, prompt=(0, 14))
    scores = torch.tensor([5, 5, 5, 1, 1, 1, 2, 2, 2, 0, 0, 0, 9, 9.0])
    assert {causal_masking.maskings(sample, scores, seed)["random"] for seed in range(20)} == {(3, 6), (6, 9)}


def test_the_table_of_changed_answers():
    rows = [
        {"sample": s, "masked": m, "changed": c, "tokens": 3, "gold": int(m == "top")}
        for s, changes in enumerate([(0, 1, 0, 0, 1), (0, 1, 1, 0, 1), (0, 0, 0, 0, 1), (0, 1, 0, 1, 1)])
        for m, c in zip(causal_masking.MASKED, map(bool, changes), strict=True)
    ]
    table = causal_masking.changed_table(pd.DataFrame(rows)).set_index("masked")
    assert table["changed"].tolist() == [0.75, 0.25, 0.25, 1] and table["evidence"].tolist() == [1, 0, 0, 0]
    assert table["more"].tolist()[1:] == [0.5, 0.5, -0.25] and np.isnan(table.loc["top", "more"])
    assert table[["low", "more_low"]].isna().all(axis=None) and table.loc["random", "p"] == 0.5
    figure = changed_answers(table.reset_index())
    assert not drawn(figure)  # four samples have no interval
    assert "n = 4" in figure.axes[0].texts[0].get_text()


@pytest.mark.parametrize(
    ("top", "drawn", "verdict"),
    [(0, 2, UNDECIDED), (2, 0, UNDECIDED), (5, 0, UNDECIDED), (6, 0, REPRODUCED), (0, 6, FAILED)],
)
def test_the_causal_claim_is_decided_by_the_exact_test(top, drawn, verdict, tmp_path, monkeypatch):
    """Of six answers ``top`` change with the sentence ranked first, ``drawn`` with the random one, none with both."""
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(tmp_path))
    changed = {"top": range(top), "random": range(6 - drawn, 6)}
    rows = [{"sample": s, "masked": m, "changed": s in changed.get(m, ()), "tokens": 3, "gold": 0}
            for s in range(6) for m in causal_masking.MASKED]  # fmt: skip
    table = causal_masking.changed_table(pd.DataFrame(rows))
    row = table.set_index("masked").loc["random"]
    assert row["p"] == pytest.approx(min(1, 2 * 0.5 ** (top + drawn)))
    assert row["more"] == pytest.approx((top - drawn) / 6)
    (tmp_path / "made").mkdir()
    table.to_csv(tmp_path / "made" / "questions_causal.csv", index=False)
    claim = next(claim for claim in CLAIMS if claim.key == "causal")
    assert judge(claim, "made")["verdict"] == verdict
