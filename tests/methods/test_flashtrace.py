"""FlashTrace against the naive reference, identities, and invariances."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashtrace_lib import FlashTrace, Sample, Segments
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.kernel.proximity import layer_scores, span_rollout, span_scores
from tests.oracles.naive import naive_flashtrace
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample

OPTIONS = [
    {"hops": 0}, {"hops": 3}, {"recursion": "generation", "hops": 2}, {"granularity": "sentence"},
    {"aggregation": "mean"}, {"aggregation": "last"}, {"recursion": "generation", "aggregation": "mean", "hops": 2},
    {"residual": "propagated", "hops": 2}, {"residual": "propagated", "aggregation": "mean"},
    {"hop_scale": "raw", "hops": 2}, {"hop_scale": "raw", "aggregation": "mean", "granularity": "sentence"},
    {"first_hop": "generation", "hops": 0}, {"first_hop": "generation", "recursion": "generation"},
    {"flow": "generation", "hops": 2}, {"hop_scale": "raw", "residual": "propagated", "first_hop": "generation"},
]  # fmt: skip


def with_sentences(sample: Sample) -> Sample:
    sample.sentences = [(1, 4), (4, 8), (9, 11), (11, 12), (12, 15)]
    return sample


def close(a, b, tolerance=1e-5):
    torch.testing.assert_close(a.double(), b.double(), atol=tolerance, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_default_equals_naive_on_every_family(family):
    model, sample = tiny_model(family), tiny_sample()
    final, hops, flow = naive_flashtrace(model, sample)
    att = FlashTrace().attribute(model, sample)
    close(att.scores, final)
    assert att.flow == pytest.approx(flow, abs=1e-5)
    for hop, expected in zip(att.hops, hops, strict=True):
        close(hop.scores, expected)


@pytest.mark.parametrize("family", ["qwen3", "gemma2"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_equals_naive(family, options):
    model, sample = tiny_model(family), with_sentences(tiny_sample())
    final, hops, _ = naive_flashtrace(model, sample, **options)
    att = FlashTrace(**options).attribute(model, sample)
    assert len(att.hops) == len(hops)
    close(att.scores, final)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_the_rollout_by_token_is_the_product_of_the_layers_matrices(family):
    model, sample = tiny_model(family), tiny_sample()
    n, span = len(sample), slice(9, 15)
    activations, product = capture(model, sample.input_ids, (0, n)), torch.eye(n, dtype=torch.float64)
    for layer in activations.layers:  # the first layer acts last on the mass that comes down
        scores = layer_scores(layer, torch.eye(n), (0, n), 0).double()
        matrix = torch.eye(n, dtype=torch.float64)
        matrix[span] = (scores + torch.diag(1 - scores.sum(-1)))[span]
        product = matrix @ product
    weights = torch.rand(2, 6, generator=torch.Generator().manual_seed(0))
    expected = (weights / weights.sum(-1, keepdim=True)).double() @ product[span]
    own = torch.ones(2, 6, dtype=torch.bool)
    close(span_rollout(activations, weights, own, (9, 15), each=True), expected)
    close(span_rollout(activations, weights, own, (9, 15)).sum(-1), torch.ones(2))


def test_a_propagated_span_of_one_token_needs_no_aggregation():
    model, sample = tiny_model(), tiny_sample(reasoning=(9, 9), output=(12, 13))
    a = FlashTrace(residual="propagated").attribute(model, sample).scores
    close(a, FlashTrace(residual="propagated", aggregation="mean").attribute(model, sample).scores)
    assert float((a - FlashTrace().attribute(model, sample).scores).abs().max()) > 1e-3


def test_later_options_are_in_the_key_only_where_they_differ():
    assert set(FlashTrace().options()) == {
        "hops", "heads", "target_state", "recursion", "skip_tokens", "granularity", "aggregation", "attention",
    }  # fmt: skip
    others = {"residual": "propagated", "hop_scale": "raw", "first_hop": "generation", "flow": "generation",
              "smoothing": 3, "hop_weights": "causal"}  # fmt: skip
    assert set(others) == set(FlashTrace.added_after_v1)
    for name, other in others.items():
        assert FlashTrace(**{name: other}).options() == FlashTrace().options() | {name: other}


def test_skip_tokens_equals_naive():
    model, sample = tiny_model(), tiny_sample()
    skip = tuple(int(sample.input_ids[i]) for i in (2, 9, 13))
    final, _, _ = naive_flashtrace(model, sample, hops=2, skip_tokens=skip)
    att = FlashTrace(hops=2, skip_tokens=skip).attribute(model, sample)
    close(att.scores, final)
    assert att.scores[1] == 0  # position 2 of the context, 1 of the prompt


@pytest.mark.parametrize("family", FAMILIES)
def test_cached_equals_recompute(family):
    model, sample = tiny_model(family), tiny_sample()
    a = FlashTrace(hops=2).attribute(model, sample)
    close(a.scores, FlashTrace(hops=2, attention="cached").attribute(model, sample).scores, 1e-6)


@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 50))
@settings(max_examples=20, deadline=None)
def test_scores_do_not_depend_on_the_scale_of_w(scale, seed):
    model, sample = tiny_model(), tiny_sample(seed=seed)
    activations = capture(model, sample.input_ids, (9, 15))
    weights = torch.rand(2, 6, generator=torch.Generator().manual_seed(seed)) + 0.01
    a = span_scores(activations, weights, (9, 15))
    close(a, span_scores(activations, scale * weights, (9, 15)))
    close(a.sum(-1), torch.ones(2))


@st.composite
def segmentations(draw):
    n = draw(st.integers(6, 24))
    cuts = sorted(draw(st.lists(st.integers(0, n), min_size=6, max_size=6)))
    prompt, reasoning, output = (cuts[0], cuts[1]), (cuts[2], cuts[3]), (cuts[4], cuts[5])
    return n, prompt, reasoning, output


@given(segmentations(), st.integers(0, 3), st.sampled_from(FAMILIES))
@settings(max_examples=60, deadline=None)
def test_any_segmentation_conserves_mass(parts, hops, family):
    n, prompt, reasoning, output = parts
    ids = torch.arange(3, 3 + n)
    if prompt[0] == prompt[1] or output[0] == output[1]:
        with pytest.raises(ValueError, match="is empty"):
            Segments(prompt, reasoning, output)
        return
    att = FlashTrace(hops=hops).attribute(tiny_model(family), Sample(ids, Segments(prompt, reasoning, output)))
    assert len(att.hops) == (hops + 1 if reasoning[0] < reasoning[1] else 1)
    assert (att.scores >= 0).all() and att.scores.shape == (prompt[1] - prompt[0],)
    for hop, rho, mass in zip(att.hops, att.flow, att.metadata["mass"], strict=True):
        assert float(hop.scores.sum()) == pytest.approx(1, abs=1e-5)
        assert (hop.scores[hop.target[1] :] == 0).all()  # causal: nothing behind the target
        assert sum(mass.values()) == pytest.approx(1, abs=1e-5)
        assert rho == pytest.approx(mass.get("reasoning", 0.0), abs=1e-6)
    # what is lost is what flows to O, to context and into T of the last hop: the total never exceeds 1
    assert float(att.scores.sum()) <= 1 + 1e-5


def test_no_hops_and_empty_reasoning_are_hop_zero_alone():
    model = tiny_model()
    a = FlashTrace(hops=0).attribute(model, tiny_sample())
    b = FlashTrace(hops=3).attribute(model, tiny_sample(reasoning=(9, 9)))
    assert len(a.hops) == len(b.hops) == 1 and b.flow == [0.0]
    close(a.scores, b.scores, 1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_model_is_close_to_float32(family):
    sample, rounded = tiny_sample(), tiny_model(family, torch.bfloat16)
    exact = FlashTrace().attribute(copy.deepcopy(rounded).float(), sample).scores  # the same, rounded weights
    half = FlashTrace().attribute(rounded, sample).scores
    assert half.dtype == torch.float32
    assert float((exact - half).abs().sum() / exact.sum()) < 0.05


def test_a_failing_forward_leaves_no_hooks(monkeypatch):
    model, sample = tiny_model(), tiny_sample()
    FlashTrace().attribute(model, sample)
    with monkeypatch.context() as broken:
        broken.setattr(model.model.layers[1].mlp, "forward", lambda x: x[10**6])  # the last one is not run
        with pytest.raises(IndexError):
            FlashTrace().attribute(model, sample)
    assert model.config._attn_implementation == "sdpa"
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_training_mode_is_restored_and_does_not_change_scores():
    model, sample = tiny_model(), tiny_sample()
    expected = FlashTrace().attribute(model, sample).scores
    model.train()
    close(FlashTrace().attribute(model, sample).scores, expected, 0)
    assert all(m.training for m in model.modules())


@pytest.mark.parametrize("options, message", [
    ({"hops": -1}, "at least 0"), ({"hops": 1.5}, "whole number"), ({"recursion": "both"}, "reasoning, generation"),
    ({"attention": "flash"}, "recompute, cached"), ({"smoothing": 4}, "odd number of tokens"),
    ({"smoothing": -1}, "odd number of tokens"),
])  # fmt: skip
def test_bad_options_say_what_is_allowed(options, message):
    with pytest.raises(ValueError, match=message):
        FlashTrace(**options)


def test_sentence_granularity_needs_sentences():
    with pytest.raises(ValueError, match="needs Sample.sentences"):
        FlashTrace(granularity="sentence").attribute(tiny_model(), tiny_sample())


def test_skipping_the_whole_target_is_an_error():
    sample = tiny_sample()
    with pytest.raises(ValueError, match="nothing is left to explain"):
        FlashTrace(skip_tokens=tuple(sample.input_ids[12:15].tolist())).attribute(tiny_model(), sample)
