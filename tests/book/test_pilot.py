"""The pilot study: shares on T, paired change with reasoning, times measured and fitted; who answers what."""

import json

import pandas as pd
import pytest
import torch

from flashtrace_book.experiments import pilot
from flashtrace_book.figures import pilot_plots
from flashtrace_book.profile import load_profile, read
from flashtrace_book.results import Results
from flashtrace_lib.methods import AttnLRP
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import FORCED, GENERATED
from tests.oracles.tiny import tiny_model, tiny_sample


@pytest.fixture
def profile(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(tmp_path))
    return load_profile("smoke")


def settings(profile, **changes):
    return read(pilot.Pilot, profile.results["pilot"]["pilot"] | changes, "pilot")


def results(rows):
    """Samples of ``(key, cell, |T|, {method: [mass of each hop]})``."""
    samples = [{"sample_key": key, "cell": cell, "sample": key, "answers": "own", "cluster": key, "n_reasoning": n,
                "model": "m"} for key, cell, n, _ in rows]  # fmt: skip
    methods = [{"sample_key": key, "method": method, "method_metadata": json.dumps({"mass": hops})}
               for key, _, _, of in rows for method, hops in of.items()]  # fmt: skip
    return Results({"sample": pd.DataFrame(samples), "method": pd.DataFrame(methods)})


def test_the_share_on_reasoning_is_that_of_the_hops():
    hops = [{"prompt": 0.3, "reasoning": 0.1, "output": 0.6}, {"prompt": 0.2, "reasoning": 0.6, "context": 0.2}]
    found = results([("a", "h4", 9, {"ifr": hops[:1], "flashtrace": hops}), ("b", "h4", 0, {"ifr": [{"prompt": 1.0}]})])
    frame = pilot.mass_on_reasoning(found, ["flashtrace", "ifr"], cell="h4")
    assert frame["label"].tolist() == ["FlashTrace hop 0", "FlashTrace hop 1", "IFR", "IFR"]
    assert frame["share"].tolist() == [0.1, 0.6, 0.1, 0]
    assert frame["share_of_both"].tolist() == pytest.approx([0.25, 0.75, 0.25, 0])
    assert pilot.mass_on_reasoning(found, ["ifr"], cell="h5").empty
    assert pilot.mean_shares(frame, ["label"]).set_index("label").loc["IFR", ["share", "n"]].tolist() == [0.05, 2]


def test_a_trend_within_cells_is_free_of_what_differs_between_them():
    of_cells = {"h4": [(10, 0.5), (11, 0.375), (12, 0.25)], "h9": [(50, 0.875), (51, 0.75), (52, 0.625)]}
    rows = [(f"{cell}{n}", cell, n, {"ifr": [{"prompt": 1 - share, "reasoning": share}]})
            for cell, of in of_cells.items() for n, share in of]  # fmt: skip
    frame = pilot.mass_on_reasoning(results(rows), ["ifr"])
    across, within = (pilot.trends(frame, within=within).set_index("share")["rho"] for within in (False, True))
    assert across["share"] > 0.5 and within["share"] == pytest.approx(-1)
    drawn = pilot_plots.mass_against_length(frame.assign(panel="written"), "share", title="t", ylabel="y")
    assert "n = 6" in drawn.axes[0].texts[0].get_text()


def test_the_change_with_reasoning_is_paired():
    values = {"direct": [0.1, 0.5, 0.9, 0.3, 0, 0.2], "thinking": [0.2, 0.6, 1.0, 0.4, 0.1, 0.3]}
    frame = pd.DataFrame([{"method": "ifr", "metric": "recovery", "cell": way, "sample": f"s{i}", "value": v}
                          for way, of in values.items() for i, v in enumerate(of)])  # fmt: skip
    row = pilot.change_with_reasoning(frame).iloc[0]
    assert row["n"] == 6
    assert row[["difference", "low", "high"]].tolist() == pytest.approx([0.1] * 3)  # the level cancels in the pairs


def test_cost_is_measured_up_to_the_limit_then_extrapolated(tmp_path, monkeypatch, profile):
    measured = []

    def seconds(model, methods, sample, runs):
        ((label, _),) = methods.items()
        measured.append((label, sample.segments.reasoning[1] - sample.segments.reasoning[0], len(sample)))
        return {label: [0.5] * runs if label == "flashtrace" else [999.0, 5.0 * (len(sample) - 8), 0.0][:runs]}

    monkeypatch.setattr(pilot, "attribution_seconds", seconds)
    chosen = settings(profile, cost_input=8, cost_reasoning=[2, 4, 8, 16], cost_limit=1, cost_runs=3)
    model, store = tiny_model(), Store(tmp_path / "times")
    rows = pilot.measured_cost(chosen, model, store)
    # the naive way has every generated token in O, FlashTrace the reasoning in T; a fit needs three lengths
    naive = [(label, 0, 24 + n) for label in pilot.NAIVE for n in (2, 4, 8)]
    assert measured == naive + [("flashtrace", n, 24 + n) for n in (2, 4, 8, 16)]
    assert pilot.measured_cost(chosen, model, store) == rows and len(measured) == 10  # from the store
    cost = pilot.cost_table(pd.DataFrame(rows))
    ifr = cost[cost["method"] == "ifr per token"]
    assert ifr["measured"].tolist() == [True, True, True, False]
    assert ifr["seconds"].tolist() == pytest.approx([90, 100, 120, 160])  # the median run, and 5 s a generated token
    growth = pilot.growth_of_factor(cost).set_index("method").loc["ifr per token"]
    assert growth[["shortest", "longest", "factor_shortest", "factor_longest"]].tolist() == [2, 8, 180, 240]
    note, *labels = [text.get_text() for text in pilot_plots.extrapolated_cost(cost).axes[0].texts]
    assert labels == ["AttnLRP per token", "IFR per token", "FlashTrace"] and "hollow: power law" in note


def test_attnlrp_token_by_token_has_the_mean_of_its_vectors():
    model, sample = tiny_model(), tiny_sample()
    by_token, at_once = (method.attribute(model, sample) for method in (pilot.AttnLRPByToken(), AttnLRP()))
    assert torch.allclose(by_token.scores, at_once.scores, atol=1e-5)


def test_what_is_never_right_both_ways_is_teacher_forced_both_ways(profile):
    found = pilot.answered_both_ways(profile, settings(profile, compare_samples=2))
    direct, thinking = found["direct"], found["thinking"]
    assert direct.kind == thinking.kind == FORCED and direct.counts["tried"] == 4
    assert [s.id for s in direct.samples] == [s.id for s in thinking.samples] and len(direct.samples) == 2
    assert not any(s.segments.has_reasoning for s in direct.samples)
    assert all(s.segments.has_reasoning for s in thinking.samples)
    assert {s.metadata["mode"] for s in direct.samples} == {"direct"}


def test_problems_right_in_both_ways_are_paired(profile, monkeypatch):
    forced = pilot.answered_both_ways(profile, settings(profile, compare_samples=2))

    def right(_, group):  # the second problem is wrong when it is answered directly
        kept = forced[group.name].samples[: 1 if group.name == "direct" else 2]
        return {group.name: pilot.Collection(kept, {"tried": 4}, GENERATED)}

    monkeypatch.setattr(pilot, "group_collections", right)
    found = pilot.answered_both_ways(profile, settings(profile, compare_samples=2))
    assert [len(collection.samples) for collection in found.values()] == [1, 1]


def test_long_reasonings_are_read_without_an_attempt(profile):
    chosen = settings(profile, hops=[1, 3], samples=1, length=200, forced_from=3)
    short, long = pilot.growing_reasoning(profile, chosen).values()
    assert short.counts["tried"] == 3 and long.counts["tried"] == 0
    assert long.kind == FORCED and len(long.samples) == 1
