"""Perturbation, context length probing and the controls against plain loops of single forward passes."""

import pytest
import torch

from flashtrace_book.efficiency.other_tools import build
from flashtrace_lib import FlashTrace
from flashtrace_lib.kernel.decomposition import plain_logits
from flashtrace_lib.methods import CLP, LastToken, MeanPooling, Perturbation, Position, Random, ReAGent
from flashtrace_lib.methods.perturbation_base import renormalise, unit_spans
from tests.oracles.contexts import SENTENCES, close, long_sample
from tests.oracles.naive_perturbation import naive_loo, naive_metric, spread
from tests.oracles.planted import planted_model, planted_sample
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def naive_probing(model, sample, spans):
    ids, first = sample.input_ids[: sample.segments.output[1]], sample.segments.prompt[0]

    def m(c):  # the last c units of I
        start = spans[len(spans) - c][0] if c else spans[-1][1]
        return naive_metric(model, sample, torch.cat([ids[:first], ids[start:]]), "nll")

    return [m(len(spans) - i - 1) - m(len(spans) - i) for i in range(len(spans))]


def distribution(signed):
    positive = signed.clamp_min(0)
    return positive / positive.sum()


# --- oracles


NAIVE = {Perturbation: naive_loo, CLP: naive_probing}


@pytest.mark.parametrize("method", NAIVE)
@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_equal_the_plain_loop(family, method):
    model, sample = tiny_model(family), tiny_sample()
    spans = [(i, i + 1) for i in range(1, 8)]
    signed, att = spread(sample, NAIVE[method](model, sample, spans), spans), method().attribute(model, sample)
    close(att.metadata["signed"], signed)
    close(att.scores, distribution(signed), 1e-4)
    assert att.metadata["forward_passes"] == 8 and att.metadata["backward_passes"] == 0


@pytest.mark.parametrize("method", NAIVE)
def test_sentences_are_changed_as_one_and_their_tokens_get_a_copy(model, method):
    sample = long_sample()
    signed = spread(sample, NAIVE[method](model, sample, SENTENCES[:4]), SENTENCES[:4])
    att = method(units="sentence").attribute(model, sample)
    close(att.metadata["signed"], signed)
    assert att.metadata["forward_passes"] == 5 and att.metadata["n_units"] == 4
    if method is Perturbation:  # captum sums the tokens of O where ours averages them: the same shares
        close(build("captum_ablation", {}, None).attribute(model, sample).scores, att.scores, 1e-4)


@pytest.mark.parametrize("n_input, units", [(199, "token"), (200, "sentence")])
def test_a_short_input_is_changed_a_token_at_a_time(model, n_input, units):
    end = 1 + n_input
    sample = tiny_sample(n=end + 11, prompt=(1, end), reasoning=(end, end), output=(end + 3, end + 7))
    sample.sentences = [(1, 41), (41, end), (end + 3, end + 7)]
    auto, named = (CLP(**options).attribute(model, sample) for options in ({}, {"units": units}))
    assert torch.equal(auto.scores, named.scores) and auto.metadata["units"] == units
    assert auto.metadata["n_units"] == (n_input if units == "token" else 2)


def test_former_settings_keep_their_keys():
    """Options are part of a stored key: where results are the same, they are found."""
    assert Perturbation().options() == {"units": "auto", "spread": "copy"}
    assert Perturbation(units="token").options() == {"units": "token", "spread": "share"}  # as the default once was
    assert CLP().options() == {"units": "auto", "spread": "copy", "metric": "nll", "variant": "probing"}
    assert ReAGent(units="sentence").options()["revision"] == 2  # its results are not the former ones


# --- identities and invariances


def test_probing_scores_add_up_to_what_the_whole_input_does(model):
    sample = long_sample()
    total, ids = sum(CLP().attribute(model, sample).metadata["signed"]), sample.input_ids[:88]
    none, full = (naive_metric(model, sample, row, "nll") for row in (torch.cat([ids[:3], ids[57:]]), ids))
    assert total == pytest.approx(none - full, abs=1e-4)


@pytest.mark.parametrize("method", [Perturbation(), CLP()])
def test_tokens_out_of_the_models_sight_get_nothing(method):
    model = tiny_model("mistral")  # three layers, each sees itself and six tokens back
    sample = tiny_sample(n=60, prompt=(1, 45), reasoning=(45, 45), output=(50, 55))
    signed = torch.tensor(method.attribute(model, sample).metadata["signed"])
    seen = 49 - 3 * 6  # first position that the predictor of O's first token can know of
    assert signed[: seen - 1].abs().max() < 1e-5
    assert signed[seen - 1 :].abs().max() > 1e-2


def test_masking_what_is_ignored_gives_exactly_zero():
    sample = planted_sample()
    att = Perturbation().attribute(planted_model(), sample)
    signed = torch.tensor(att.metadata["signed"])
    assert (signed[~sample.gold_in_prompt] == 0).all() and signed[sample.gold_in_prompt].item() > 1
    assert att.scores[sample.gold_in_prompt].item() == 1


def test_renormalised_scores_are_a_distribution_of_evidence():
    scores = renormalise(torch.tensor([1.0, -5.0, 3.0]))
    assert scores.tolist() == [0.25, 0, 0.75] and scores.dtype == torch.float32
    assert renormalise(torch.tensor([-1.0, 0.0])).tolist() == [0, 0]


# --- controls


def test_random_depends_on_seed_and_sample_alone(model):
    a = Random().attribute(model, tiny_sample())
    torch.rand(7)  # the global generator plays no part
    assert torch.equal(a.scores, Random().attribute(tiny_model("qwen2"), tiny_sample()).scores)
    assert not torch.equal(a.scores, Random(seed=1).attribute(model, tiny_sample()).scores)
    assert not torch.equal(a.scores, Random().attribute(model, tiny_sample(seed=1)).scores)
    assert a.scores.sum().item() == pytest.approx(1) and a.scores.min() >= 0
    assert a.metadata["forward_passes"] == 0


def test_position_is_linear(model):
    close(Position().attribute(model, tiny_sample()).scores, torch.arange(1, 8) / 28, 1e-7)


@pytest.mark.parametrize("control, aggregation", [(LastToken, "last"), (MeanPooling, "mean")])
def test_named_aggregations_are_flashtrace_options(model, control, aggregation):
    named, option = control(hops=2), FlashTrace(hops=2, aggregation=aggregation)
    a, b = named.attribute(model, tiny_sample()), option.attribute(model, tiny_sample())
    assert torch.equal(a.scores, b.scores) and a.method == control.name
    assert named.options()["aggregation"] == aggregation
    with pytest.raises(TypeError):
        control(aggregation="sum")


# --- bad input


def test_bad_options_say_what_is_allowed():
    with pytest.raises(ValueError, match="token, sentence"):
        Perturbation(units="word")


def test_bad_samples_are_named(model):
    sample = tiny_sample()
    with pytest.raises(ValueError, match="do not tile"):
        Perturbation(units="sentence").attribute(model, sample)
    for sample.sentences in ([(1, 4), (5, 8)], [(0, 4), (4, 8)]):  # token 4 is in no sentence; one reaches out of I
        with pytest.raises(ValueError, match="do not tile"):
            unit_spans(sample, (1, 8), "sentence")
    sample.mask_token_id = None
    with pytest.raises(ValueError, match="pad token id"):
        Perturbation().attribute(model, sample)


def test_the_first_token_of_o_follows_a_mask_token_where_nothing_is_left(model):
    sample = tiny_sample(n=9, prompt=(0, 6), reasoning=(6, 6), output=(6, 9))
    rows = [sample.input_ids[u:] for u in range(6)] + [torch.cat([torch.tensor([0]), sample.input_ids[6:]])]
    plain = []
    for row in rows:
        log_probs = plain_logits(model, row)[-4:-1].log_softmax(-1)  # [3, V]: what predicts the three tokens of O
        plain.append(-log_probs.gather(-1, sample.input_ids[6:, None]).double().mean())
    m, found = torch.stack(plain), CLP(units="token").attribute(model, sample).scores.double()
    assert torch.allclose(found, distribution(m[1:] - m[:-1]), atol=1e-5)
