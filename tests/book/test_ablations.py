"""Ablations: weights by place, the shift of mass, cancellation, rank correlations; each against plain arithmetic."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from flashtrace_book import profiles, statistics
from flashtrace_book import run as output
from flashtrace_book.experiments import ablations, cancellation
from flashtrace_book.figures import ablation_plots
from flashtrace_lib import FlashTrace
from flashtrace_lib.attribution import Attribution, Hop
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.evaluation.recorder import Recorder
from flashtrace_lib.methods import LastToken, Positional
from flashtrace_lib.metrics.intervals import rank_correlation_interval
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import Collection
from tests.oracles.naive import _states, naive_span
from tests.oracles.tiny import tiny_model, tiny_sample


@pytest.mark.parametrize("weighting, ramp", [("rising", [1.0, 2.0, 3.0]), ("falling", [3.0, 2.0, 1.0])])
@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_weights_by_place_are_those_of_a_weighted_span(family, weighting, ramp):
    model, sample = tiny_model(family), tiny_sample()
    att = Positional(hops=1, weighting=weighting).attribute(model, sample)
    first = naive_span(model, sample.input_ids, range(12, 15), ramp)
    torch.testing.assert_close(att.hops[0].scores.double(), first.double(), atol=1e-5, rtol=0)
    assert att.hops[0].weights.tolist() == pytest.approx([w / 6 for w in ramp])
    second = naive_span(model, sample.input_ids, range(9, 12), att.hops[0].scores[9:12].tolist())  # no ramp there
    torch.testing.assert_close(att.hops[1].scores.double(), second.double(), atol=1e-5, rtol=0)


def test_weights_by_place_have_keys_of_their_own_and_leave_the_others():
    model, sample = tiny_model(), tiny_sample()
    recorder = Recorder(model, None, 5)
    methods = [FlashTrace(), Positional(weighting="rising"), Positional(weighting="falling"), LastToken()]
    assert len({recorder.key(method, sample) for method in methods}) == 4
    assert "weighting" not in FlashTrace().options()
    with pytest.raises(ValueError, match="weighting must be one of rising, falling"):
        Positional(weighting="steep")


def test_methods_and_samples_of_the_ablations():
    run = output.start("smoke")
    assert [m.hops for m in ablations.hop_methods(run).values()] == [0, 1, 2]
    assert list(ablations.hop_methods(run)) == ["flashtrace_k0", "flashtrace_k1", "flashtrace_k2"]
    targets = ablations.target_methods(run)
    assert targets["flashtrace"] == FlashTrace(hops=run.profile.hops)
    options = [tuple(sorted((type(m).__name__, *map(str, m.options().items())))) for m in targets.values()]
    assert len(set(options)) == len(targets) == 6
    cells = {"a": Collection([tiny_sample(seed=i) for i in range(3)], {}), "b": Collection([tiny_sample(seed=3)], {})}
    assert [s.id for s in ablations.first_of_each(cells, 2)] == ["tiny-0", "tiny-1", "tiny-3"]


def made(*hops, prompt=(0, 2), reasoning=(2, 5), output=(5, 6)):
    """A sample of six tokens and an attribution with these hops."""
    sample = tiny_sample(n=6, prompt=prompt, reasoning=reasoning, output=output, seed=len(hops))
    hops = [Hop(torch.tensor(scores), sample.segments.output, torch.ones(1)) for scores in hops]
    return sample, Attribution(torch.zeros(2), "made", hops=hops)


def test_mass_shift_by_hand():
    a = made([0.1, 0.1, 0.0, 0.2, 0.2, 0.4], [0.5, 0.1, 0.3, 0.1, 0.0, 0.0])
    b = made([0.2, 0.2, 0.1, 0.1, 0.2, 0.2], [0.3, 0.3, 0.2, 0.0, 0.0, 0.2])
    b[0].metadata["id"] = "other"
    table = ablations.mass_shift(*zip(a, b, strict=True)).set_index(["quantity", "hop"])
    assert table.loc[("prompt", 0), "mean"] == pytest.approx((0.2 + 0.4) / 2)
    assert table.loc[("prompt", 1), "mean"] == pytest.approx((0.6 + 0.6) / 2)
    assert table.loc[("prompt", 1), "change"] == pytest.approx((0.4 + 0.2) / 2)
    assert np.isnan(table.loc[("prompt", 1), "change_low"]) and table.loc[("prompt", 0), "change"] == 0
    assert table.loc[("reasoning", 1), "change"] == pytest.approx((0.0 - 0.2) / 2)
    place = [(0.1 + 0.2) / 0.4, (0.05 + 0.2) / 0.4]  # hop 0: tokens of T at 0, 1/2, 1
    assert table.loc[("place in T", 0), "mean"] == pytest.approx(np.mean(place))
    assert table.loc[("place in T", 1), "mean"] == pytest.approx((0.05 / 0.4 + 0.0) / 2)
    assert set(table["n"]) == {2}
    more = [made(*(a[1].hops[k].scores.tolist() for k in (0, 1))) for _ in range(6)]
    for i, (sample, _) in enumerate(more):
        sample.metadata["id"] = f"made-{i}"
    same = ablations.mass_shift(*zip(*more, strict=True)).set_index(["quantity", "hop"]).loc[("prompt", 1)]
    assert same[["change", "change_low", "change_high", "n"]].tolist() == pytest.approx([0.4, 0.4, 0.4, 6])


def test_kept_share_by_hand():
    states = torch.tensor([[1.0, -2.0, 0.0], [3.0, 2.0, -1.0]])
    assert cancellation.kept_share(states, torch.tensor([1.0, 1.0])) == pytest.approx((4 + 0 + 1) / (3 + 6))
    assert cancellation.kept_share(states, torch.tensor([2.0, 1.0])) == pytest.approx((5 + 2 + 1) / (6 + 6))
    assert cancellation.kept_share(states[:1], torch.tensor([0.3])) == pytest.approx(1)
    opposed = torch.stack([states[0], -states[0]])
    assert cancellation.kept_share(opposed, torch.ones(2)) == pytest.approx(0)
    assert cancellation.independent_share(torch.full((16,), 0.2)) == pytest.approx(1 / 4)


@pytest.mark.parametrize("family", ["llama", "olmo2"])
def test_kept_shares_are_of_the_states_that_the_model_computes(family, tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    model, sample, run = tiny_model(family), tiny_sample(), output.start("smoke")
    frame = cancellation.cancellation(run, model, [sample])
    hops = FlashTrace(hops=1).attribute(model, sample).hops
    for layer, state in enumerate(_states(model, sample.input_ids)):
        for k, hop in enumerate(hops):
            mid = state["x_mid"][slice(*hop.target)]
            weighted = [float(w) * y for w, y in zip(hop.weights, mid, strict=True)]
            expected = float(sum(weighted).abs().sum()) / sum(float(y.abs().sum()) for y in weighted)
            row = frame[(frame["layer"] == layer) & (frame["hop"] == k)]
            assert row["kept"].item() == pytest.approx(expected, abs=1e-5)
    assert frame["kept"].between(0, 1).all() and set(frame["n_target"]) == {3}
    monkeypatch.setattr(cancellation, "kept_shares", None)  # what is stored is not measured again
    pd.testing.assert_frame_equal(cancellation.cancellation(run, model, [sample]), frame)
    means = cancellation.by_sample(frame).iloc[0]
    assert means["kept_hop1"] == pytest.approx(frame[frame["hop"] == 1]["kept"].mean())
    fig = ablation_plots.kept_by_layer(frame)
    assert "n = 1 samples" in fig.axes[0].texts[0].get_text() and len(fig.axes[0].get_legend_handles_labels()[1]) == 4


def test_spearman_by_hand():
    found = statistics.spearman([1, 2, 3, 4, 5], [2, 1, 4, 3, 5])
    assert found["rho"] == pytest.approx(1 - 6 * 4 / (5 * 24)) and found["n"] == 5
    assert np.isnan(found["low"]) and np.isnan(found["high"])  # five pairs
    more = statistics.spearman([1, 2, 3, 4, 5, 6], [2, 1, 4, 3, 5, 6])
    assert (more["low"], more["high"]) == rank_correlation_interval(more["rho"], 6)
    tied = statistics.spearman([1, 1, 2, 3], [4, 5, 6, 9])
    assert tied["rho"] == pytest.approx(np.corrcoef([1.5, 1.5, 3, 4], [1, 2, 3, 4])[0, 1])
    assert statistics.spearman([1, 2, 3, np.nan], [30, 20, 10, 99])["rho"] == pytest.approx(-1)
    assert np.isnan(statistics.spearman([1, 1, 1, 1], [1, 2, 3, 4])["rho"])
    assert np.isnan(statistics.spearman([1, 2], [1, 2])["low"])


def test_the_interval_of_a_correlation_covers_it():
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(300):  # x and y share half of their variance; Spearman's of a Gaussian pair is 6/π asin(ρ/2)
        x, noise = rng.normal(size=(2, 40))
        found = statistics.spearman(x, x + noise)
        inside += found["low"] <= 6 / np.pi * np.arcsin(np.sqrt(0.5) / 2) <= found["high"]
    assert 0.92 <= inside / 300 <= 0.98
    frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": [1, 1, 1, 1], "up": [1, 2, 3, 5], "down": [4, 3, 2, 1]})
    table = statistics.correlations(frame, ["a", "b"], ["up", "down"]).set_index(["property", "outcome"])
    assert table.loc[("a", "up"), "rho"] == 1 and table.loc[("a", "down"), "rho"] == -1
    assert np.isnan(table.loc[("b", "up"), "rho"])
    fig = ablation_plots.correlation_points(table.reset_index(), title="t")
    assert [text.get_text() for text in fig.axes[0].get_yticklabels()] == ["a", "b"]


def test_every_profile_has_ablations_that_can_be_run():
    for name in profiles.profile_names():
        settings = profiles.load_profile(name).ablations
        assert settings.hops >= 2 and settings.worst >= 2
    with pytest.raises(ValueError, match=r"ablations\.worst must be a whole number of at least 1"):
        dataclasses.replace(settings, worst=0)


def test_stored_results_of_the_default_are_found_under_every_label(tmp_path):
    """Table 7's one hop is Table 2's FlashTrace: computed once."""
    model, sample, store = tiny_model(), tiny_sample(), Store(tmp_path / "s")
    recorder = Recorder(model, None, 5)
    evaluate([FlashTrace(hops=1)], [sample], model, store=store, metrics=("recovery",), steps=5, progress=False)
    run = output.start("smoke")
    assert recorder.key(ablations.hop_methods(run)["flashtrace_k1"], sample) in store
    assert recorder.key(ablations.target_methods(run)["flashtrace"], sample) in store
