"""The pilot study: shares on T, paired change with reasoning, fitted cost; its figures."""

import pandas as pd
import pytest

from flashtrace_book.experiments import pilot
from flashtrace_book.figures import pilot_plots
from flashtrace_book.profiles import PilotProfile
from flashtrace_book.run import start
from flashtrace_lib import FlashTrace
from flashtrace_lib.bench import measure
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.methods import IFR, AttnLRP
from flashtrace_lib.model.embedded import use_reasoner_template
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import FORCED
from tests.oracles.tiny import tiny_model, tiny_sample
from tests.oracles.tiny_reasoner import load_tokenizer, tiny


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path / "results"))
    monkeypatch.setenv("FLASHTRACE_FIGURES_DIR", str(tmp_path / "figures"))
    made = start("smoke")
    object.__setattr__(made.profile, "pilot", PilotProfile(cost_input=8, cost_reasoning=(2, 4, 8, 16)))
    return made


def test_the_share_on_reasoning_is_that_of_the_hops(tmp_path):
    model, samples = tiny_model(), [tiny_sample(seed=i) for i in range(3)]
    methods = {"flashtrace": FlashTrace(hops=2), "ifr": IFR(), "attnlrp": AttnLRP()}
    store = Store(tmp_path / "s")
    evaluate(methods, samples, model, store=store, metrics=("recovery",), progress=False)
    evaluate({"flashtrace": FlashTrace(hops=1)}, samples, model, store=store, metrics=("recovery",), progress=False)
    evaluate(methods, [tiny_sample(seed=7)], model, store=store, metrics=("recovery",), progress=False)
    evaluate(methods, samples, tiny_model(seed=1), store=store, metrics=("recovery",), progress=False)

    frame = pilot.mass_on_reasoning(store, samples, model, methods)
    assert frame.groupby(["method", "hop"]).size().to_dict() == {
        ("attnlrp", 0): 3, ("flashtrace", 0): 3, ("flashtrace", 1): 3, ("flashtrace", 2): 3, ("ifr", 0): 3
    }  # fmt: skip
    for sample in samples:
        attribution = methods["flashtrace"].attribute(model, sample)
        mine = frame[(frame["sample"] == sample.id) & (frame["method"] == "flashtrace")].sort_values("hop")
        assert mine["share"].tolist() == pytest.approx(attribution.flow[:3], abs=1e-5)
        hops = [hop.scores for hop in attribution.hops]
        both = [float(w[9:12].sum() / (w[9:12].sum() + w[1:8].sum())) for w in hops]  # T and I of a tiny sample
        assert mine["share_of_both"].tolist() == pytest.approx(both, abs=1e-5)
    assert pilot.mass_on_reasoning(store, samples, model, ["ifr"])["method"].unique().tolist() == ["ifr"]


@pytest.mark.parametrize("switch", [True, False])
def test_what_is_never_right_both_ways_is_teacher_forced_both_ways(run, switch):
    settings = PilotProfile(compare_hops=1, compare_samples=2, compare_length=192, max_new_tokens=3)
    object.__setattr__(run.profile, "pilot", settings)
    tokenizer = load_tokenizer()
    if switch:
        use_reasoner_template(tokenizer)
    pairs = pilot.answered_both_ways(run, tiny(), tokenizer)
    direct, thinking = pairs["direct"], pairs["thinking"]
    assert direct.kind == thinking.kind == FORCED and direct.counts["tried"] == 4 and direct.counts["correct"] == 0
    assert [s.id for s in direct.samples] == [s.id for s in thinking.samples] and len(direct.samples) == 2
    assert not any(s.segments.has_reasoning for s in direct.samples)
    assert all(s.segments.has_reasoning for s in thinking.samples)
    asked = {way: {s.metadata.get("mode") for s in of_way.samples} for way, of_way in pairs.items()}
    expected = ("direct", "thinking") if switch else (None, "step_by_step")
    assert asked == {"direct": {expected[0]}, "thinking": {expected[1]}}


def test_mean_shares_by_hand():
    rows = [("a", "h1", 10, 0.2, 0.4), ("b", "h1", 20, 0.4, 0.6), ("c", "h2", 5, 0.5, 0.5)]
    frame = pd.DataFrame(rows, columns=["sample", "cell", "n_reasoning", "share", "share_of_both"])
    frame = frame.assign(method="ifr", hop=0)
    shares = pilot.mean_shares(frame)
    assert shares["cell"].tolist() == ["h2", "h1"] and shares["n"].tolist() == [1, 2]
    assert shares.loc[1, ["n_reasoning", "share", "share_of_both"]].tolist() == pytest.approx([15, 0.3, 0.5])


def test_rank_correlation_sees_a_monotone_trend():
    frame = pd.DataFrame({"method": "ifr", "hop": 0, "n_reasoning": [1, 10, 100, 1000], "share": [0.1, 0.2, 0.3, 0.9]})
    assert pilot.rank_correlations(frame).to_dict("records") == [
        {"method": "ifr", "hop": 0, "rho": pytest.approx(1), "n": 4}
    ]


def test_the_change_with_reasoning_is_paired():
    def frame(values):
        return pd.DataFrame(
            [{"method": "ifr", "metric": "recovery", "sample": f"s{i}", "value": v} for i, v in enumerate(values)]
        )

    frames = {"direct": frame([0.1, 0.5, 0.9, 0.3, 0, 0.2]), "thinking": frame([0.2, 0.6, 1.0, 0.4, 0.1, 0.3])}
    row = pilot.change_with_reasoning(frames).iloc[0]
    assert row["difference"] == pytest.approx(0.1) and row["n"] == 6
    assert row["low"] == pytest.approx(0.1) and row["high"] == pytest.approx(0.1)  # the level cancels in the pairs


def test_cost_is_measured_up_to_the_limit_then_extrapolated(run, monkeypatch):
    measured = []

    def seconds(attribute):
        method, (_, sample) = attribute.func.__self__, attribute.args
        measured.append((method.name, sample.segments.reasoning[1] - sample.segments.reasoning[0], len(sample)))
        n_generated = len(sample) - 8
        return 5.0 * n_generated if method.name == "ifr" else 0.5

    monkeypatch.setattr(measure, "timed", seconds)
    model = tiny_model()
    methods = {"ifr per token": IFR(batch_size=1), "flashtrace": FlashTrace()}
    object.__setattr__(run.profile.pilot, "cost_limit", 1)  # over it from the first on, but a fit needs three
    cost = pilot.cost_of_hops(run, model, methods, naive=("ifr per token",))
    naive = cost[cost["method"] == "ifr per token"]
    assert naive["measured"].tolist() == [True, True, True, False]
    assert naive["seconds"].tolist() == pytest.approx([90, 100, 120, 160])
    assert cost[cost["method"] == "flashtrace"]["measured"].all()
    # the naive way has every generated token in O, FlashTrace the reasoning in T
    naive_ones, all_sizes = [("ifr", 0, 24 + n) for n in (2, 4, 8)], [("flashtrace", n, 24 + n) for n in (2, 4, 8, 16)]
    assert measured == naive_ones + all_sizes
    again = pilot.cost_of_hops(run, model, methods, naive=("ifr per token",))
    assert len(measured) == 7 and again.equals(cost)  # from the store
    figure = pilot_plots.extrapolated_cost(cost)
    note, *labels = [text.get_text() for text in figure.axes[0].texts]
    assert labels == ["IFR per token", "FlashTrace"] and "hollow: power law" in note


def test_the_cost_of_several_runs_is_their_median(run, monkeypatch):
    times = iter([3.0, 1.0, 2.0] * 4)
    monkeypatch.setattr(measure, "timed", lambda attribute: next(times))
    object.__setattr__(run.profile, "pilot", PilotProfile(cost_input=8, cost_reasoning=(2, 4, 8), cost_runs=3))
    cost = pilot.cost_of_hops(run, tiny_model(), {"flashtrace": FlashTrace()}, naive=())
    assert cost["seconds"].tolist() == [2, 2, 2] and len(list(times)) == 3  # three runs of three lengths
    note = pilot_plots.extrapolated_cost(cost, runs=3).axes[0].texts[0].get_text()
    assert "median of n = 3 runs a point" in note


def test_long_reasonings_are_read_without_an_attempt(run, monkeypatch):
    tried = []
    collect = pilot.collect
    monkeypatch.setattr(
        pilot, "collect", lambda examples, *a, **how: tried.append(len(examples)) or collect(examples, *a, **how)
    )
    settings = {"hops": (1, 3), "samples": 2, "length": 200, "max_new_tokens": 4}
    object.__setattr__(run.profile, "pilot", PilotProfile(forced_from=3, **settings))
    model, tokenizer = tiny(), load_tokenizer()
    short, long = pilot.growing_reasoning(run, model, tokenizer).values()
    assert tried == [6] and short.counts["tried"] == 6 and long.counts["tried"] == 0
    assert long.kind == "teacher-forced" and len(long.samples) == 2
    attempted = PilotProfile(forced_from=None, **settings)  # which this model fails: what is read is the same
    object.__setattr__(run.profile, "pilot", attempted)
    _, after = pilot.growing_reasoning(run, model, tokenizer).values()
    assert after.kind == "teacher-forced" and after.counts["tried"] == 6
    for read, forced in zip(long.samples, after.samples, strict=True):
        assert read.id == forced.id and read.input_ids.tolist() == forced.input_ids.tolist()


def test_mass_figure_has_a_line_for_every_hop():
    rows = [
        {"sample": f"{cell}{i}", "cell": cell, "method": method, "hop": hop, "n_reasoning": n + i, "share": 0.5}
        for cell, n in (("h1", 20), ("h2", 60)) for i in range(2)
        for method, hops in (("ifr", 1), ("flashtrace", 2)) for hop in range(hops)
    ]  # fmt: skip
    figure = pilot_plots.mass_against_length(pd.DataFrame(rows))
    note, *labels = [text.get_text() for text in figure.axes[0].texts]
    assert labels == ["IFR", "FlashTrace, hop 0", "FlashTrace, hop 1"]
    assert "n = 4 samples" in note
    with pytest.raises(ValueError, match="lacks the columns"):
        pilot_plots.mass_against_length(pd.DataFrame({"sample": [1]}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hops": [2, 1]}, r"pilot.hops must ascend, got \[2, 1\]"),
        ({"hops": []}, "pilot.hops must be a list of one or more whole numbers"),
        ({"cost_reasoning": [0]}, "a number of pilot.cost_reasoning must be a whole number of at least 1"),
        ({"methods": ["ifr", "ifr"]}, "pilot.methods names something twice"),
        ({"length": 0}, "pilot.length must be a whole number of at least 1"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        PilotProfile(**changes)
