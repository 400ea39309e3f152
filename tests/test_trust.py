"""When to doubt a ranking, what a trace takes, several methods side by side, and methods on a task."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from flashtrace_lib import METHODS, trace
from flashtrace_lib.__main__ import main
from flashtrace_lib.bench.measure import bench_sample
from flashtrace_lib.estimate import estimate, needed_gib, warn_if_short
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.methods import DEFAULT, causal_hop
from flashtrace_lib.names import did_you_mean
from flashtrace_lib.viewer.cautions import doubts, evenness
from flashtrace_lib.viewer.message_shares import without_end
from tests.oracles.tiny import tiny_model
from tests.oracles.tiny_families import tiny_random_model

TEXT = "The red fox ran off. The blue cow sat down. The old man had tea. It was late by then.\n\nWho sat down?"
REPLY = "<think>\nA cow is blue. It sat.\n</think>\n\nThe cow."


def doubted(traced, *shares):
    """Doubts on the sentences' shares, each spread evenly over its words; the last is the question's."""
    scores, first = torch.zeros_like(traced.attribution.scores), traced.sample.segments.prompt[0]
    words = [i for i, token in enumerate(traced.sample.tokens) if not token.isspace()]
    for row, share in zip(traced.to_frame("sentence").itertuples(), shares, strict=True):
        own = [i - first for i in words if row.start <= i < row.stop]
        scores[own] = share / len(own)
    return doubts(traced.sample, replace(traced.attribution, scores=scores))


def test_a_ranking_is_doubted_where_nothing_stands_out(model, tok):
    traced = trace(model, tok, TEXT, REPLY)
    assert doubted(traced, 0.05, 0.7, 0.05, 0.05, 0.15) == []
    assert any("49% of the score lies on the question" in n for n in doubted(traced, 0.05, 0.31, 0.08, 0.07, 0.49))
    assert not any("on the question" in n for n in doubted(traced, 0.1, 0.3, 0.13, 0.12, 0.35))
    even = doubted(traced, 0.2, 0.2, 0.2, 0.2, 0.2)
    assert "no better than even" in even[0] and any("near tie" in note for note in even)
    assert without_end(["It ", "ends.", "<|end|>", "<eos>"]) == "It ends." and without_end(["a</b", ">"]) == "a</b>"
    assert without_end(["a", "</row>", "<eos>"], 2) == "a</row>"  # of the answer, not of the template
    pairs = (([3.0, 1.0], [3, 1]), ([1.0, 0.0], [1, 3]))
    assert [evenness(np.array(a), np.array(b)) for a, b in pairs] == pytest.approx([1, 0.25])


@pytest.mark.parametrize("method", [None, "flashtrace", "ifr", "flashtrace_best"])
@pytest.mark.parametrize("seed", range(3))
def test_a_random_model_is_always_doubted(tok, seed, method):
    torch.manual_seed(seed)
    model = tiny_model(seed=seed)
    model.resize_token_embeddings(len(tok), mean_resizing=False)
    assert any("even" in note or "tie" in note for note in trace(model, tok, TEXT, REPLY, method=method).cautions())


def test_the_default_is_named_and_the_paper_s_is_one_word_away(model, tok):
    assert trace(model, tok, TEXT, REPLY).attribution.method == DEFAULT
    for asked in ({"hops": 1}, {"method": "flashtrace"}, {"contrast": "The fox."}):
        assert trace(model, tok, TEXT, REPLY, **asked).attribution.method == "flashtrace"


def test_many_steps_are_weighted_by_scores(model, tok, monkeypatch):
    monkeypatch.setattr(causal_hop, "MOST_STEPS", 1)
    traced = trace(model, tok, TEXT, REPLY)
    best = METHODS["flashtrace_best"]().attribute(model, traced.sample)
    torch.testing.assert_close(traced.attribution.scores, best.scores)
    assert any("too many steps" in note for note in traced.cautions())


def test_shares_of_several_methods_side_by_side(model, tok):
    table = trace(model, tok, TEXT, REPLY).compare("ifr", METHODS["position"]())
    assert list(table) == ["text", "flashtrace_causal", "ifr", "position"] and len(table) == 5
    assert table.iloc[:, 1:].sum().tolist() == pytest.approx([1, 1, 1])


def test_an_estimate_is_near_what_is_measured_and_a_lack_is_told(capsys, tok, model, monkeypatch):
    large, sample = tiny_model(), bench_sample(150, 50, 64)
    layers = capture(large, sample.input_ids, sample.segments.generated).layers
    kept = sum(x.nbytes for layer in layers for x in (layer.q, layer.k, layer.v, layer.x_in)) / 2**30
    assert kept < needed_gib(large, sample) < 5 * kept
    assert needed_gib(tiny_random_model("gemma4_text"), sample) > 0  # whose layers differ
    deep, shallow = (tiny_random_model("gpt2") for _ in range(2))  # which names its layers otherwise
    assert needed_gib(deep, sample) > (shallow.config.update({"n_layer": 1}) or needed_gib(shallow, sample))
    assert "GiB over the model" in estimate(large, sample, METHODS["ifr"]())
    trace(model, tok, TEXT, REPLY, estimated=True)
    assert capsys.readouterr().err.startswith("estimate for flashtrace_causal: ")
    monkeypatch.setattr("flashtrace_lib.estimate.free_gib", lambda _: 0.0)
    with pytest.warns(RuntimeWarning, match="0 are free: .*bfloat16"):
        warn_if_short(large, sample)


def test_misspelt_names_are_guessed(capsys):
    assert did_you_mean("Flashtrce", METHODS) == " Did you mean 'flashtrace'?" and did_you_mean("xyz", METHODS) == ""
    assert main(["evaluate", "mq_q3", "--model", "embedded-shallow"]) == 2
    assert "Did you mean 'mq_q" in capsys.readouterr().err
    assert main(["evaluate", "mq_q2", "--store", "/proc/a.parquet"]) == 2 and "cannot write" in capsys.readouterr().err


def test_methods_on_a_task_from_the_shell(capsys, tmp_path):
    asked = ["evaluate", "mq_q2", "--length", "128", "--samples", "1", "--tries", "3", "--store", str(tmp_path / "s")]
    assert main([*asked, "--methods", "string_match,position", "--metrics", "recovery,first"]) == 0
    printed = capsys.readouterr().out
    assert "mq_q2, embedded: {'tried': " in printed and printed.count("string_match") == 2
    assert (tmp_path / "s.jsonl").is_file()
