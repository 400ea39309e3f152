"""What the ablations share: hops one by one, differences turned to one side, mass that moves, what a sum keeps."""

import numpy as np
import pandas as pd
import pytest
import torch

from flashtrace_book import ablations
from flashtrace_book.figures import ablation_plots
from flashtrace_lib import FlashTrace, Sample, Segments, load_model


@pytest.fixture(scope="module")
def explained():
    model, _ = load_model("embedded-shallow")
    sample = Sample(torch.arange(50, 74), Segments((2, 12), (13, 20), (20, 23)), metadata={"id": "a"})
    return model, sample, FlashTrace(hops=3).attribute(model, sample)


def test_the_first_hops_of_a_run_are_the_run_with_fewer(explained):
    model, sample, found = explained
    for k, scores in enumerate(ablations.first_hops(sample, found)):
        assert np.allclose(scores, FlashTrace(hops=k).attribute(model, sample).scores, atol=1e-7)


def test_mass_that_moves_is_signed_as_the_paper_says(explained):
    _, sample, found = explained
    shift = ablations.mass_shift([sample], [found])
    assert shift[shift["quantity"] != "place in T"].groupby("hop")["mean"].sum().to_numpy() == pytest.approx(1)
    at = shift.set_index(["quantity", "hop"])["mean"]
    signed = ablations.shift_signed(shift).set_index("label")["change"]
    assert signed["I gains"] == pytest.approx(at["prompt", 1] - at["prompt", 0])
    assert signed["T loses"] == pytest.approx(at["reasoning", 0] - at["reasoning", 1])
    assert signed["earlier within T"] == pytest.approx(at["place in T", 0] - at["place in T", 1])


def rows(values: dict[str, dict[str, list[float]]]) -> pd.DataFrame:
    return pd.DataFrame(
        [{"sample": f"s{i}", "cell": "c", "model": "m", "method": method, "metric": metric, "value": value,
          "right": i != 0, "cluster": f"s{i}"}
         for metric, of in values.items() for method, found in of.items() for i, value in enumerate(found)]
    )  # fmt: skip


def test_a_contrast_turns_every_metric_to_one_side_and_counts_right_answers_for_gold():
    frame = rows({"recovery": {"a": [9, 2, 3], "b": [0, 1, 1]}, "rise": {"a": [1, 2, 3], "b": [2, 4, 6]}})
    above = ablations.contrast(frame, "a", "b", ("recovery", "rise"), name="x, ").set_index("label")
    assert above.loc["x, recovery", ["difference", "n"]].tolist() == [1.5, 2]  # the wrong answer's 9 is left out
    assert above.loc["x, rise, sign turned", ["difference", "n"]].tolist() == [2, 3]
    below = ablations.contrast(frame, "a", "b", ("rise", "recovery"), above=False)
    assert below["label"].tolist() == ["rise", "recovery, sign turned"] and below["difference"].tolist() == [-2, -1.5]
    assert ablations.contrast(frame, "a", "missing", ("rise",)).empty
    assert ablations.minus(frame, "missing").empty


def test_a_forest_has_a_mark_for_each_difference():
    frame = rows({m: {"flashtrace": [0.1] * 6, "random": [0.2, 0.3] * 3} for m in ("recovery", "rise")})
    table = ablations.minus(frame, "flashtrace")
    figure = ablation_plots.forest(table, ("recovery", "rise"), reference="FlashTrace's")
    assert [c[0].get_xdata()[0] for axes in figure.axes for c in axes.containers] == pytest.approx([0.15, 0.15])
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["Random"]
