"""Two models: the same problems, and the agreement of ranks against a plain loop."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from flashtrace_book import samples
from flashtrace_book.experiments import second_model
from flashtrace_book.figures import model_plots
from flashtrace_book.methods import profile_methods
from flashtrace_book.paper_numbers import paper_value
from flashtrace_book.profiles import load_profile
from flashtrace_book.run import Run
from flashtrace_lib import FlashTrace
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.methods import IFR
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import FORCED, GENERATED
from flashtrace_lib.text import build_sample
from tests.oracles.tiny import tiny_model, tiny_sample
from tests.oracles.tiny_chat import make_tokenizer
from tests.oracles.tiny_reasoner import load_tokenizer, tiny


def scored(seed, methods="abcde", cells=("x", "y", "z"), n=4, level=()):
    """A frame of `evaluate`: random values, with a level for each method."""
    rng, levels = np.random.default_rng(seed), dict(zip(methods, level, strict=False))
    return pd.DataFrame(
        {"method": m, "cell": c, "metric": "rise", "sample": f"{c}{i}", "value": levels.get(m, 0) + rng.uniform(),
         "flagged": False}
        for c in cells for i in range(n) for m in methods
    )  # fmt: skip


def spearman(x, y):
    """By its definition on ranks without ties."""
    ranks = [[sum(v < w for v in values) for w in values] for values in (x, y)]
    n = len(x)
    return 1 - 6 * sum((a - b) ** 2 for a, b in zip(*ranks, strict=True)) / (n * (n**2 - 1))


def test_agreement_equals_spearman_by_its_definition():
    frames = scored(1), scored(2)
    table = second_model.rank_agreement(*frames).set_index("over")
    means = [frame.groupby(["cell", "method"])["value"].mean().to_numpy() for frame in frames]
    assert table.loc["methods and cells", "rho"] == pytest.approx(spearman(*means))
    cells = [spearman(*(m.reshape(3, 5)[i] for m in means)) for i in range(3)]  # equal cells: their mean
    assert table.loc["methods within cells", "rho"] == pytest.approx(np.mean(cells))
    assert set(table["methods"]) == {5} and set(table["cells"]) == {3}


def test_a_hard_cell_alone_makes_models_agree_and_the_order_within_cells_sees_it():
    frames = [scored(seed) for seed in (3, 4)]
    for frame in frames:
        frame["value"] += frame["cell"].map({"x": 0, "y": 10, "z": 20})
    table = second_model.rank_agreement(*frames).set_index("over")["rho"]
    assert table["methods and cells"] > 0.8
    assert abs(table["methods within cells"]) < 0.6


def test_a_plain_order_is_found_and_its_reverse():
    clear = second_model.rank_agreement(*(scored(s, level=(0, 2, 4, 6, 8)) for s in (5, 6))).iloc[1]
    assert clear["rho"] == pytest.approx(1) and clear["n"] == 4 and "low" not in clear
    reversed_ = second_model.rank_agreement(scored(5, level=(0, 2, 4, 6, 8)), scored(6, level=(8, 6, 4, 2, 0)))
    assert reversed_.iloc[1]["rho"] == pytest.approx(-1)
    fewer = second_model.rank_agreement(scored(7), scored(8, n=3))
    assert set(fewer["n"]) == {3}


def test_only_what_both_have_is_compared():
    table = second_model.rank_agreement(scored(1), scored(2, methods="abz", cells=("y", "w")))
    assert set(table["methods"]) == {2} and set(table["cells"]) == {1}
    with pytest.raises(ValueError, match="rise: ranks need two methods"):
        second_model.rank_agreement(scored(1), scored(2, methods="a"))
    both = second_model.both_models({"first": scored(1), "second": scored(2, methods="ab", cells=("y",), n=3)})
    assert list(both["cell"]) == ["y", "y"] and set(both["n_first"]) == {4} and set(both["n_second"]) == {3}
    only = scored(1).query("method == 'a' and cell == 'y'")
    assert both.query("method == 'a'")["first"].item() == pytest.approx(only["value"].mean())


def test_the_papers_two_models_order_their_methods_alike():
    table = second_model.paper_agreement().set_index(["metric", "over"])["rho"]
    assert paper_value(2, "ifr", "math", "rise") < paper_value(2, "attnlrp", "math", "rise")
    assert table["rise", "methods within cells"] == pytest.approx(1)
    assert 0 < table["mas", "methods and cells"] <= 1


def test_pooled_rows_are_the_ruler_cells_and_no_task():
    frame = scored(1, cells=("mq_q2", "gsm8k"))
    more = second_model.pooled(frame, ["gsm8k"])
    assert more["cell"].value_counts().to_dict() == {"mq_q2": 20, "gsm8k": 20, "ruler": 20}


def test_names_of_files_tell_another_model_from_the_profiles():
    run = Run(load_profile("laptop"))
    assert second_model.second_name(run) == "embedded-base" and second_model.suffix(run, "embedded-base") == ""
    assert second_model.suffix(run, "google/Gemma-3-270M") == "_google_gemma_3_270m"
    with pytest.raises(ValueError, match="the second model is the profile's own, 'data/adapter_short'"):
        second_model.second_name(run, "data/adapter_short")


def test_both_models_get_the_same_problems_and_the_first_ones_are_its_own_tables(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_RESULTS_DIR", str(tmp_path))
    run, model, tokenizer = Run(load_profile("smoke")), tiny(), load_tokenizer()
    first = second_model.first_collections(run, model, tokenizer)
    second = second_model.second_collections(run, model, tokenizer)
    assert list(first) == list(second) == ["mq_q2", "h4_c1", "gsm8k"]
    full = samples.ruler_collections(run, model, tokenizer)
    for cell, collection in first.items():
        assert len(collection.samples) == len(second[cell].samples) == 1
        a, b = (part.samples[0] for part in (collection, second[cell]))
        assert a.id == b.id and a.prompt_ids.tolist() == b.prompt_ids.tolist()
        if cell in full:
            assert full[cell].samples[0].input_ids.tolist() == a.input_ids.tolist()
    methods = profile_methods(run, ["random", "position"])
    frame = second_model.evaluate_first(run, methods, first, model)
    assert (
        set(frame["cell"]) == set(first) and len(Store(run.store("ruler"))) == 4 and len(Store(run.store("math"))) == 2
    )


def test_step_by_step_cells_hold_right_answers_alone(monkeypatch):
    asked = {}

    def answered(run, store, examples, model, tokenizer, n, **options):
        asked[examples[0].cell] = (len(examples), n, options)
        return second_model.Collection([], {"tried": len(examples)})

    monkeypatch.setattr(second_model, "collect_stored", answered)
    smoke = load_profile("smoke")
    settings = replace(smoke.generalisation, ruler_samples=2, max_tries=3, step_tokens=77)
    run = Run(replace(smoke, generalisation=settings))
    found = second_model.step_by_step_collections(run, tiny(), load_tokenizer())
    assert list(found) == ["mq_q2_steps"] and list(asked) == ["mq_q2_steps"]
    expected = {"mode": "step_by_step", "fallback": "none", "max_new_tokens": 77}
    assert asked["mq_q2_steps"] == (3, 2, expected)


def test_cells_of_the_second_model_may_take_longer_to_answer(monkeypatch):
    limits = {}
    monkeypatch.setattr(
        samples, "collect", lambda examples, *_, **how: limits.update({examples[0].cell: how["max_new_tokens"]})
    )
    smoke = load_profile("smoke")
    settings = replace(smoke.generalisation, tasks=(), max_new_tokens=5, new_tokens={"h4_c1": 9})
    run = Run(replace(smoke, generalisation=settings))
    second_model.second_collections(run, None, load_tokenizer())
    assert limits == {"mq_q2": 5, "h4_c1": 9}


def test_either_models_curves_are_counted_by_the_comparison_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(second_model, "evaluate_with_curves", lambda run, *_: asked.append(run.profile.evaluation))
    laptop = load_profile("laptop")
    counts = {"generalisation": replace(laptop.generalisation, curve_samples=3)}
    counts["evaluation"] = replace(laptop.evaluation, curve_samples=5, curves={"mq_q2": 7})
    second_model.evaluate_samples(Run(replace(laptop, **counts)), [], [], None, None, None)
    assert asked[0].curves_of("mq_q2") == asked[0].curves_of("h4_c1") == 3


def test_curves_and_masks_are_of_the_first_samples_of_a_cell(tmp_path):
    model, run = tiny_model(), Run(load_profile("smoke"))
    samples = [tiny_sample(seed=i) for i in range(5)]
    for sample, cell in zip(samples, "aaabb", strict=True):
        sample.metadata["cell"], sample.sentences = cell, [(1, 4), (4, 6), (6, 8)]
    methods, scorer = [IFR(), FlashTrace(hops=1)], Scorer(model)
    how = (run, methods, samples, model, Store(tmp_path / "s"), scorer)
    frame = second_model.evaluate_samples(*how, curves=2, masks=1)
    counts = frame.groupby(["metric", "method"])["sample"].nunique().unstack()
    assert (counts["ifr"] == counts["flashtrace"]).all()
    assert counts["ifr"].to_dict() == dict.fromkeys(("recovery", "r_precision", "auroc"), 5) | {
        "rise": 4, "mas": 4, "lds": 2, "lds_log_prob": 2, "lds_output": 2
    }  # fmt: skip
    again = evaluate(methods, samples[:1], model, metrics=("lds",), masks=run.profile.evaluation.masks)
    mine = frame[(frame["metric"] == "lds") & (frame["sample"] == samples[0].id)]
    assert mine["value"].tolist() == pytest.approx(again["value"].tolist(), nan_ok=True)
    alone = second_model.evaluate_samples(*how, curves=0)
    assert set(alone["metric"]) == {"recovery", "r_precision", "auroc"} and alone["sample"].nunique() == 5
    for sample in samples:
        sample.metadata["response"] = FORCED if sample.metadata["cell"] == "a" else GENERATED
    own = second_model.evaluate_samples(*how, curves=0, masks=1)
    assert set(own[own["metric"] == "lds"]["sample"]) == {samples[3].id}
    forced = second_model.evaluate_samples(run, methods, samples[:3], *how[3:], curves=0, masks=1)
    assert set(forced["metric"]) == set(alone["metric"])


def test_the_scatter_has_a_panel_a_metric_and_a_point_a_cell():
    both = second_model.both_models({"A": scored(1), "B": scored(2)})
    figure = model_plots.model_scatter(both, ["rise"], first="A", second="B")
    (axes,) = figure.axes
    points = [line for line in axes.lines if line.get_linestyle() == "None"]
    assert len(points) == 5 and all(len(line.get_xdata()) == 3 for line in points)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("A", "B")
    with pytest.raises(ValueError, match="no rows of metric 'mas'"):
        model_plots.model_scatter(both, ["mas"], first="A", second="B")


def test_the_papers_second_model_is_the_papers():
    settings = load_profile("paper").generalisation
    assert settings.model == "meta-llama/Llama-3.1-8B-Instruct" and settings.ruler_samples == 100
    assert {"ifr", "attnlrp", "flashtrace"} <= set(settings.methods) and settings.cells is None


def test_a_token_across_prompt_and_response_is_the_responses():
    tokenizer = make_tokenizer(template=None)
    tokenizer.add_tokens(["?<"])  # as in Gemma's vocabulary, where a pretrained model has no template either
    sample = build_sample(tokenizer, "What is the number?", "<think>\nSo it is.\n</think>\nIt is 7261.")
    crossing = sample.input_ids.tolist().index(tokenizer.convert_tokens_to_ids("?<"))
    assert sample.segments.prompt[1] == sample.response[0] == crossing < sample.segments.reasoning[0]
