"""IFR on O, and on T and O, against the naive rows; the mass of the segments by hand."""

import pytest
import torch

from flashtrace_lib import IFR, FlashTrace
from flashtrace_lib.methods import IFRAll
from flashtrace_lib.methods.hops import mass_by_segment
from tests.oracles.naive import naive_span
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample


def close(a, b, tolerance=1e-5):
    torch.testing.assert_close(a.double(), b.double(), atol=tolerance, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_ifr_is_the_mean_of_single_token_rows(family):
    model, sample = tiny_model(family), tiny_sample()
    rows = torch.stack([naive_span(model, sample.input_ids, [i], [1.0]) for i in range(*sample.segments.output)])
    expected = rows.mean(0)[slice(*sample.segments.prompt)]
    close(IFR().attribute(model, sample).scores, expected / expected.sum())


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2"])
def test_ifr_all_is_the_mean_over_the_tokens_of_reasoning_and_output_alone(family):
    model, sample = tiny_model(family), tiny_sample(reasoning=(9, 11), output=(13, 15))  # 11 and 12 are template
    rows = torch.stack([naive_span(model, sample.input_ids, [i], [1.0]) for i in (9, 10, 13, 14)])
    on_input = rows.mean(0)[slice(*sample.segments.prompt)]
    for method in (IFRAll(), IFRAll(batch_size=1)):
        att = method.attribute(model, sample)
        close(att.scores, on_input / on_input.sum())
        assert att.metadata["mass"][0]["prompt"] == pytest.approx(float(on_input.sum()), abs=1e-5)
        assert att.metadata["hop_passes"] == (4 if method.batch_size else 2)  # one for T, one for O


def test_ifr_all_without_reasoning_is_ifr():
    model, sample = tiny_model(), tiny_sample(reasoning=(9, 9))
    assert torch.equal(IFRAll().attribute(model, sample).scores, IFR().attribute(model, sample).scores)


def test_mass_is_shared_among_the_segments_and_the_template():
    sample, scores = tiny_sample(n=16, prompt=(1, 8), reasoning=(9, 12), output=(12, 15)), torch.arange(16.0)
    shares = mass_by_segment(scores, sample)
    assert shares == pytest.approx(
        {"prompt": 28 / 120, "reasoning": 30 / 120, "output": 39 / 120, "context": (0 + 8 + 15) / 120}
    )
    assert mass_by_segment(1e-3 * scores, sample) == pytest.approx(shares)
    assert mass_by_segment(0 * scores, sample)["context"] == 1
    assert "reasoning" not in mass_by_segment(scores, tiny_sample(reasoning=(9, 9)))


def test_span_of_one_token_is_its_ifr_row():
    model, sample = tiny_model("qwen2"), tiny_sample(output=(12, 13))
    hop0 = FlashTrace(hops=0).attribute(model, sample).scores
    close(hop0 / hop0.sum(), IFR().attribute(model, sample).scores, 1e-6)


def test_ifr_batches_do_not_change_the_result():
    model, sample = tiny_model(), tiny_sample()
    close(IFR().attribute(model, sample).scores, IFR(batch_size=1).attribute(model, sample).scores, 1e-6)
