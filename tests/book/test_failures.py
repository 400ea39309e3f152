"""Failure analysis: kinds of token, properties of samples and the search for the worst, by hand."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from flashtrace_book.experiments import failures
from flashtrace_lib import Sample, Segments
from flashtrace_lib.attribution import Attribution, Hop

TEXT = ["<s>", "user", *("The", " key", " is", " 42", ".", "\n"), *("What", " is", " it", "?"), "<e>", " 42", "!", "so"]
TEXT += ["</s>"]


def made(scores=(0, 1, 0, 2, 3, 0, 2, 0, 0, 2), name="a") -> tuple[Sample, Attribution]:
    """Sixteen tokens: I = 2…11 with the evidence " key is 42", the question from 8, T = 13…14, O = 15."""
    ids = torch.arange(100, 117)
    ids[13] = ids[5]  # T repeats the number
    gold = torch.zeros(17, dtype=torch.bool)
    gold[3:6] = True
    sample = Sample(
        ids, Segments((2, 12), (13, 15), (15, 16)), gold=gold, tokens=TEXT,
        sentences=[(2, 8), (8, 12), (13, 15), (15, 16)], metadata={"id": name, "cell": "c"},
    )  # fmt: skip
    whole = torch.zeros(17)
    whole[[0, 1, 6, 7, 4, 8, 12, 13]] = torch.tensor([0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.2])
    return sample, Attribution(torch.tensor(scores).float(), "made", hops=[Hop(whole, (15, 16), torch.ones(1))])


def test_every_token_has_the_kind_that_it_reads_as():
    kinds = failures.token_kinds(made()[0])
    assert kinds[:2] == ["first token", "template"] and kinds[12] == kinds[16] == "template"
    assert kinds[2:8] == ["connective", "other words", "connective", "other words", "punctuation", "punctuation"]
    assert kinds[8:12] == ["question", "connective", "connective", "punctuation"]
    assert kinds[13:16] == ["reasoning", "reasoning", "output"]
    bare = made()[0]
    bare.tokens = None
    with pytest.raises(ValueError, match="sample a has no display tokens or sentences"):
        failures.token_kinds(bare)


def test_mass_by_kind_is_a_partition():
    shares = failures.mass_by_kind(*zip(made(), strict=True)).set_index("kind")
    expected = {"first token": 0.2, "template": 0.2, "punctuation": 0.2, "connective": 0.1, "question": 0.1,
                "other words": 0.0, "reasoning": 0.2, "output": 0.0}  # fmt: skip
    assert shares["mass"].to_dict() == pytest.approx(expected)
    assert shares["expected"].sum() == pytest.approx(1)
    assert shares.loc["punctuation", "expected"] == pytest.approx(3 / 17)
    both = failures.mass_by_kind(*zip(made(), made(name="b"), strict=True))
    table = failures.structure_table(both).set_index("kind")
    assert list(table.index) == list(failures.STRUCTURE)
    found = table.loc["first token", ["mean", "low", "high", "n"]].tolist()
    assert found == pytest.approx([0.2, math.nan, math.nan, 2], nan_ok=True)
    six = [made(name=name) for name in "abcdef"]
    table = failures.structure_table(failures.mass_by_kind(*zip(*six, strict=True))).set_index("kind")
    assert table.loc["first token", ["mean", "low", "high", "n"]].tolist() == pytest.approx([0.2, 0.2, 0.2, 6])


def test_samples_of_one_template_are_no_independent_evidence():
    six = [made(name=name) for name in "abcdef"]
    for i, (sample, _) in enumerate(six):
        sample.metadata |= {"task": "made", "template": i // 2}  # three templates of two samples each
    samples, attributions = zip(*six, strict=True)
    row = failures.structure_table(failures.mass_by_kind(samples, attributions)).iloc[0]
    assert row["n"] == 6 and math.isnan(row["low"])
    assert failures.sample_properties(samples, attributions)["cluster"].nunique() == 3
    assert failures.top_places(samples, attributions)["cluster"].nunique() == 3


def test_properties_by_hand():
    row = failures.sample_properties(*zip(made(), strict=True)).iloc[0]
    assert (row["sample"], row["cell"], row["gold_pieces"]) == ("a", "c", 1)
    # |I| = 10, so one token is the top tenth: ". " with 3, which is no evidence; two of the top 3 are of a tie at 2,
    # and of its three tokens one is evidence.
    assert row["recovery"] == 0 and row["r_precision"] == pytest.approx(2 / 3 / 3)
    assert row["gold_share"] == pytest.approx(0.3) and row["gold_mass"] == pytest.approx(3 / 10)
    assert row["punctuation"] == pytest.approx(5 / 10) and row["question"] == pytest.approx(2 / 10)
    assert row["connective"] == 0 and row["quoted"] == pytest.approx(1 / 3)
    assert row["first_token"] == pytest.approx(0.2) and row["template"] == pytest.approx(0.2)
    assert row["gold_evenness"] == pytest.approx(math.exp(-(1 / 3 * math.log(1 / 3) + 2 / 3 * math.log(2 / 3))) / 3)
    found = failures.sample_properties(*zip(made(scores=(0, 0, 0, 9, 0, 0, 0, 0, 0, 0)), strict=True)).iloc[0]
    assert found["recovery"] == pytest.approx(1 / 3) and found["reached"] == 1 and found["spread"] == pytest.approx(0.1)
    blank, attribution = made()
    blank.gold = None
    assert failures.sample_properties([blank], [attribution]).empty
    assert failures.evenness(np.ones(7)) == pytest.approx(1) and np.isnan(failures.evenness(np.zeros(3)))


def test_the_search_finds_the_worst():
    table = pd.DataFrame(
        {"sample": [f"s{i}" for i in range(20)], "reached": [0.0] * 6 + [0.5] * 14, "r_precision": 0.1,
         "gold_mass": 0.2}
    )  # fmt: skip
    table.loc[3, "gold_mass"] = 0.1  # of those that reached nothing, the one with the least mass on the evidence
    worst = failures.worst_samples(table.sample(frac=1, random_state=1), 6)
    assert set(worst["sample"]) == {f"s{i}" for i in range(6)} and worst["sample"].iloc[0] == "s3"


def test_places_in_the_top_tenth():
    frame = failures.top_places(*zip(made(), strict=True))
    places, expected = frame.set_index("kind")["places"], frame.set_index("kind")["expected"]
    assert places.to_dict() == {"evidence": 0, "punctuation": 1, "connective": 0, "question": 0, "other words": 0}
    assert expected.sum() == pytest.approx(1) and expected["evidence"] == pytest.approx(0.3)
    assert expected["connective"] == pytest.approx(0.3)  # "The", "is", "it"; the "is" of the evidence is evidence
