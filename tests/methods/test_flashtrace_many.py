"""Many target spans from one forward pass: each equal to an attribution of its own."""

from dataclasses import replace
from threading import get_ident

import pytest
import torch

from flashtrace_lib import FlashTrace, methods
from flashtrace_lib.kernel import proximity
from tests.oracles.naive import naive_flashtrace
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample

SPANS = [(9, 11), (11, 12), (12, 15), (10, 14), (9, 10), (13, 15)]  # in T, in O, across, overlapping, out of order
OPTIONS = [
    {"hops": 0}, {"hops": 3}, {"residual": "propagated"}, {"hop_scale": "raw", "hops": 2}, {"first_hop": "generation"},
    {"recursion": "generation", "hops": 2}, {"flow": "generation", "hops": 2}, {"granularity": "sentence"},
    {"aggregation": "mean"}, {"aggregation": "last"}, {"attention": "fused", "hops": 2}, {"attention": "cached"},
]  # fmt: skip


def sample_with_sentences():
    sample = tiny_sample()
    sample.sentences = [(1, 4), (4, 8), (9, 11), (11, 12), (12, 15)]
    return sample


def check(method, model, sample, spans=SPANS):
    many = method.attribute_many(model, sample, spans)
    assert len(many) == len(spans)
    for span, found in zip(spans, many, strict=True):
        alone = method.attribute(model, sample.with_output(span))
        torch.testing.assert_close(found.scores, alone.scores, atol=1e-6, rtol=1e-5)
        assert found.flow == pytest.approx(alone.flow, abs=1e-6) and found.metadata["mass"] == [
            pytest.approx(shares, abs=1e-6) for shares in alone.metadata["mass"]
        ]
        assert [hop.target for hop in found.hops] == [hop.target for hop in alone.hops]
        for a, b in zip(found.hops, alone.hops, strict=True):
            torch.testing.assert_close(a.scores, b.scores, atol=1e-6, rtol=1e-5)
            torch.testing.assert_close(a.weights, b.weights, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_many_equal_one_by_one_on_every_family(family):
    check(FlashTrace(), tiny_model(family), tiny_sample())


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_many_equal_one_by_one_with_every_option(options):
    check(FlashTrace(**options), tiny_model("qwen3"), sample_with_sentences())


def test_many_equal_naive():
    model, sample = tiny_model("gemma3"), tiny_sample()
    for span, found in zip(SPANS, FlashTrace(hops=2).attribute_many(model, sample, SPANS), strict=True):
        expected, _, flow = naive_flashtrace(model, sample.with_output(span), hops=2)
        torch.testing.assert_close(found.scores.double(), expected, atol=1e-5, rtol=0)
        assert found.flow == pytest.approx(flow, abs=1e-5)


def test_what_stands_behind_a_span_changes_nothing():
    """The target is the span; T is the reasoning before it, and only that."""
    model, sample = tiny_model(), tiny_sample()
    other = replace(sample, input_ids=torch.cat([sample.input_ids[:11], sample.input_ids[11:].flip(0)]))
    a, b = (FlashTrace(hops=2).attribute_many(model, s, [(10, 11)])[0] for s in (sample, other))
    torch.testing.assert_close(a.scores, b.scores, atol=1e-6, rtol=1e-5)
    assert a.hops[1].target == (9, 10)
    assert (sample.with_output((13, 15)).segments.reasoning, sample.with_output((9, 10)).segments.reasoning) == (
        (9, 12), (9, 9),
    )  # fmt: skip


def test_one_forward_pass_serves_all_spans_also_in_batches(monkeypatch):
    model, sample = tiny_model(), tiny_sample()
    calls = []
    handle = model.register_forward_pre_hook(lambda *_: calls.append(1))
    monkeypatch.setattr(methods.flashtrace, "spans_at_once", lambda activations: 4)
    FlashTrace().attribute(model, sample)  # checks the decomposition, once
    calls.clear()
    check_against = FlashTrace().attribute_many(model, sample, SPANS)
    handle.remove()
    assert len(calls) == 1
    monkeypatch.undo()
    for a, b in zip(check_against, FlashTrace().attribute_many(model, sample, SPANS), strict=True):
        torch.testing.assert_close(a.scores, b.scores, atol=1e-6, rtol=1e-5)
        assert a.seconds > 0 and a.metadata["options"] == FlashTrace().options()


def test_layers_side_by_side_give_the_same_numbers(monkeypatch):
    model, sample, threads = tiny_model(), tiny_sample(), torch.get_num_threads()
    found, fused, seen = [], proximity.fused_column_sums, set()
    monkeypatch.setattr(proximity, "fused_column_sums", lambda *given: seen.add(get_ident()) or fused(*given))
    try:
        for n in (1, 3):
            torch.set_num_threads(n)
            ways = [FlashTrace(attention=how) for how in ("recompute", "fused")]
            found.append(torch.cat([one.scores for way in ways for one in way.attribute_many(model, sample, SPANS)]))
            assert torch.get_num_threads() == n
        model.model.layers[1].self_attn.o_proj.weight.data.fill_(float("nan"))
        with pytest.raises(ValueError, match="layer 1"):
            FlashTrace().attribute(model, sample)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(*found, atol=0, rtol=0)
    assert seen == {get_ident()}  # which kernels may be taken is one setting of the whole process


@pytest.mark.parametrize("span", [(8, 9), (3, 5), (12, 12), (14, 17)])
def test_spans_outside_the_response_are_refused(span):
    with pytest.raises(ValueError, match="does not lie in the response"):
        FlashTrace().attribute_many(tiny_model(), tiny_sample(), [(12, 15), span])


def test_no_spans_are_refused():
    with pytest.raises(ValueError, match="at least one"):
        FlashTrace().attribute_many(tiny_model(), tiny_sample(), [])


@pytest.mark.parametrize("residual", ["denominator", "propagated"])
def test_averaged_rows_are_taken_in_parts_that_fit(monkeypatch, residual):
    model, sample, how = tiny_model(), tiny_sample(), {"aggregation": "mean", "residual": residual}
    whole = methods.FlashTrace(**how).attribute(model, sample).scores
    for module in (methods.flashtrace, proximity):
        monkeypatch.setattr(module, "spans_at_once", lambda activations: 2)
    torch.testing.assert_close(methods.FlashTrace(**how).attribute(model, sample).scores, whole, atol=1e-6, rtol=0)


@pytest.mark.parametrize("first_hop", ["output", "generation"])
def test_a_place_weighs_in_the_first_hop_alone(first_hop):
    sample = tiny_sample()
    found = methods.Positional(hops=1, first_hop=first_hop).attribute(tiny_model(), sample)
    first, after = found.hops[0].weights, found.hops[0].scores[slice(*sample.segments.reasoning)]
    torch.testing.assert_close(first, (ramp := torch.arange(1.0, len(first) + 1)) / ramp.sum())
    torch.testing.assert_close(found.hops[1].weights, after / after.sum())
