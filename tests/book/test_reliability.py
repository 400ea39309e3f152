"""The card of trust says what the stored tables say."""

import pandas as pd
import pytest

from flashtrace_book.claims.reliability import measured

PAIRED = {"metric": "rise", "difference": -0.1, "low": -0.14, "high": -0.06, "n": 22, "better": "flashtrace"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty checkout."""
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setattr("flashtrace_lib.files.root", lambda: tmp_path)
    (tmp_path / "figures" / "laptop").mkdir(parents=True)
    return tmp_path / "figures" / "laptop"


def write(folder, name, *rows):
    pd.DataFrame(rows).to_csv(folder / f"{name}.csv", index=False)


def test_nothing_stored_nothing_said(folder):
    assert measured("laptop") == []


@pytest.mark.parametrize(("better", "word"), [("flashtrace", "more"), ("random", "less"), ("neither", "no more")])
def test_a_ranking_against_one_by_lot(folder, better, word):
    row = PAIRED | {"method": "flashtrace", "better": better}
    mas = row | {"metric": "mas"}
    write(folder, "ruler_against_random", row, row | {"metric": "recovery", "difference": 0.05}, mas)
    write(folder, "math_against_random", PAIRED | {"method": "ifr"})
    assert measured("laptop") == [
        f"RULER and HotpotQA: deleting its top words hurts the answer {word} than deleting at random "
        "(RISE -0.10 [-0.14, -0.06], n = 22).",
        f"RULER and HotpotQA: its top tenth holds {word} of the evidence than a random tenth "
        "(recovery +0.05 [-0.14, -0.06], n = 22).",
    ]


def test_too_few_samples_say_neither_more_nor_less(folder):
    none = {"low": None, "high": None, "n": 5, "better": "too few samples", "method": "flashtrace"}
    write(folder, "ruler_against_random", PAIRED | none)
    write(folder, "recursion_recovery", {"K": 1, "gain": 0.03, "gain_low": None, "gain_high": None, "n": 5})
    assert measured("laptop") == []
    share = {"mass": 0.42, "low": None, "high": None, "tokens": 0.32, "n": 5}
    write(folder, "math_question_share", share | {"method": "flashtrace"})
    assert measured("laptop") == [
        "mathematics: 42% of the score (no interval) lies on the question, which has 32% of the words (n = 5)."
    ]


def test_hops_and_the_question(folder):
    hop = {"K": 1, "gain": 0.03, "gain_low": 0.02, "gain_high": 0.04, "n": 20}
    write(folder, "recursion_recovery", hop | {"K": 0}, hop)
    share = {"mass": 0.42, "low": 0.37, "high": 0.5, "tokens": 0.32, "n": 20}
    write(folder, "math_question_share", share | {"method": "flashtrace"}, share | {"method": "ifr"})
    assert measured("laptop") == [
        "One hop back through the reasoning finds more of the evidence than none "
        "(recovery +0.03 [0.02, 0.04], n = 20).",
        "mathematics: 42% of the score [37, 50] lies on the question, which has 32% of the words (n = 20).",
    ]
    assert measured("laptop", "ifr") == [measured("laptop")[1]]
    write(folder, "recursion_recovery", hop | {"gain_low": -0.01})
    assert "no more of the evidence" in measured("laptop")[0]


def test_structure_and_the_causal_check(folder):
    row = {"hop": 0, "kind": "punctuation", "mean": 0.052, "low": 0.047, "high": 0.057, "n": 32, "tokens": 0.11}
    write(folder, "appendix_n_structure", row, row | {"hop": 1})
    asked = {"masked": "top", "changed": 0.5, "more": None, "more_low": None, "more_high": None, "n": 6}
    lot = {"masked": "random", "changed": 0.25, "more": 0.25, "more_low": -0.1, "more_high": 0.6}
    write(folder, "questions_causal", asked, asked | lot)
    assert measured("laptop") == [
        "5.2% of the first hop's mass [4.7, 5.7] lies on punctuation, 11.0% of the tokens (n = 32).",
        "The sentence that it ranks first, the question aside, was taken out: 50% of the answers changed. "
        "A random one was taken out: 25% (difference +25 points [-10, 60], n = 6).",
    ]
    assert measured("laptop", "ifr") == []


def test_the_book_has_its_numbers():
    said = measured("laptop")
    assert {text.split(":")[0] for text in said} >= {"RULER and HotpotQA", "mathematics", "MoreHopQA"}
