"""AttnLRP, GIM, integrated gradients and IG on attention maps against float64 references, and their own identities."""

import copy

import pytest
import torch
from torch import nn

from flashtrace_lib.methods import GIM, AttnLRP, IGAttention, IntegratedGradients, gradient_base, ig_attn
from flashtrace_lib.methods.attnlrp import target_logits
from flashtrace_lib.methods.gradient_base import embed, log_probs, target_of
from flashtrace_lib.methods.lrp_rules import ATTNLRP, capped, linearised, lrp_rules, scale_gradient
from tests.oracles.naive_gradients import Naive, naive_ig, naive_ig_attn, naive_lrp
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample
from tests.oracles.tiny_families import tiny_random_model

METHODS = [AttnLRP(), GIM(), IntegratedGradients(), IGAttention()]


@pytest.fixture
def no_memory(monkeypatch):
    """A machine with one byte: contexts one at a time, recomputed layer by layer."""
    monkeypatch.setattr(gradient_base, "model_budget", lambda model: 1)
    monkeypatch.setattr(ig_attn, "model_budget", lambda model: 1)


def on_input(vector, sample):
    return vector[slice(*sample.segments.prompt)]


def assert_signed(att, expected, sample, tolerance=1e-4):
    """Signed scores of I equal the reference to a share of its largest entry."""
    expected, found = on_input(expected, sample), torch.tensor(att.metadata["signed"], dtype=torch.float64)
    torch.testing.assert_close(found, expected.double(), atol=tolerance * float(expected.abs().max()), rtol=0)
    positive = expected.clamp_min(0)
    torch.testing.assert_close(att.scores.double(), positive / positive.sum(), atol=tolerance, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_naive_forward_is_the_model(family):
    model, ids = tiny_model(family, torch.float64), tiny_sample().input_ids
    naive = Naive(model)
    with torch.no_grad():
        torch.testing.assert_close(naive.logits(naive.embed(ids)), model(ids[None]).logits[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rule", ["attnlrp", "cp_lrp"])
@pytest.mark.parametrize("family", FAMILIES)
def test_attnlrp_equals_naive_on_every_family(family, rule):
    model, sample = tiny_model(family), tiny_sample()
    rows, logits = naive_lrp(model, sample, rule)
    att = AttnLRP(rule=rule).attribute(model, sample)
    assert_signed(att, rows.mean(0), sample)
    assert att.metadata["logit"] == pytest.approx(float(logits.sum()), abs=1e-4)
    assert att.metadata["relevance"] == pytest.approx(float(rows.sum()), abs=1e-4)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ("llama_bias", "qwen2")])
def test_relevance_is_conserved_without_biases(family):
    """CP-LRP: every rule but the softmax is exact, and the softmax is held. Biases would keep their own part."""
    meta = AttnLRP(rule="cp_lrp").attribute(tiny_model(family, torch.float64), tiny_sample()).metadata
    assert meta["relevance"] == pytest.approx(meta["logit"], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    "family", "chameleon cohere gpt2 gpt_neox jais2 nemotron olmo opt persimmon phi phi3 stablelm starcoder2".split()
)
def test_relevance_is_conserved_through_other_norms_and_mlps(family):
    """LayerNorm, MLPs without a gate or with gate and up in one matrix, parallel layers; no biases, no positions."""
    model = tiny_random_model(family)
    for name, weight in model.named_parameters():
        if name.endswith("bias") or "wpe" in name or "embed_positions" in name:
            weight.data.zero_()
    meta = AttnLRP(rule="cp_lrp").attribute(model.double(), tiny_sample()).metadata
    assert meta["relevance"] == pytest.approx(meta["logit"], rel=1e-4, abs=1e-5)


def test_only_the_softmax_keeps_relevance_back_in_attnlrp():
    model = tiny_model("llama", torch.float64)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()  # nothing flows through attention: what is left is conserved
    meta = AttnLRP().attribute(model, tiny_sample()).metadata
    assert meta["relevance"] == pytest.approx(meta["logit"], rel=1e-5)
    model = tiny_model("llama", torch.float64)
    whole = AttnLRP().attribute(model, tiny_sample()).metadata
    assert whole["relevance"] != pytest.approx(whole["logit"], rel=1e-2)


def test_slopes_change_and_values_do_not():
    x = torch.linspace(-2, 2, 9, requires_grad=True)
    (slope,) = torch.autograd.grad(capped(x, 1.5).sum(), x)
    value = 1.5 * torch.tanh(x.detach() / 1.5)
    torch.testing.assert_close(slope * x.detach(), value)  # all relevance of f(x) arrives at x
    assert slope[4] == 1  # the limit at 0
    (gradient,) = torch.autograd.grad(scale_gradient(x, 0.25).sum(), x)
    assert (gradient == 0.25).all() and torch.equal(scale_gradient(x, 0.25), x)
    (gradient,) = torch.autograd.grad(linearised(x, value, x.detach()).sum(), x)
    assert torch.equal(gradient, x.detach())


@pytest.mark.parametrize("rules", [ATTNLRP, GIM()._rules], ids=["attnlrp", "gim"])
@pytest.mark.parametrize("family", FAMILIES)
def test_rules_leave_values_alone_and_vanish(family, rules):
    model, sample = tiny_model(family), tiny_sample()
    target = target_of(model, sample)
    with torch.no_grad():
        plain = model(sample.input_ids[None]).logits
        expected = plain[0, range(*target.rows), target.ids]
        with lrp_rules(model, rules):
            inside = target_logits(model, embed(model, target.context), target, rules.cap)
            with_rules = model(sample.input_ids[None]).logits
    torch.testing.assert_close(inside, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(with_rules, plain, atol=1e-5, rtol=1e-5)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("family", FAMILIES)
def test_ig_equals_a_plain_loop(family):
    model, sample = tiny_model(family), tiny_sample()
    expected, values = naive_ig(model, sample, steps=24, start=0.25)
    att = IntegratedGradients(steps=24, start=0.25).attribute(model, sample)
    assert_signed(att, expected / 3, sample, 1e-3)
    meta = att.metadata
    assert meta["log_prob"]["start"] == pytest.approx(values[0], abs=1e-4)
    assert meta["log_prob"]["input"] == pytest.approx(values[-1], abs=1e-4)
    gap = values[-1] - values[0] - float(expected.sum())
    assert meta["gap_on_path"] == pytest.approx(gap, abs=1e-3 * float(expected.abs().sum()))
    with torch.no_grad():
        zero = log_probs(model, torch.zeros(1, 14, 32), target_of(model, sample)).sum()
    assert meta["log_prob"]["zero"] == pytest.approx(float(zero), abs=1e-5)
    assert meta["gap"] - meta["gap_on_path"] == pytest.approx(values[0] - float(zero), abs=1e-3)


def test_ig_is_complete_as_the_steps_grow():
    model, sample = tiny_model(), tiny_sample()
    both = (IntegratedGradients(steps=n, start=0.5).attribute(model, sample).metadata for n in (20, 200))
    gaps = [abs(meta["gap_on_path"]) for meta in both]
    assert gaps[1] < gaps[0] / 20 and gaps[1] < 1e-3  # the trapezoid's error falls with the square of the steps


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_ig_attn_equals_naive(family):
    model, sample = tiny_model(family), tiny_sample()
    assert_signed(IGAttention().attribute(model, sample), naive_ig_attn(model, sample, 20, "maps", "token"), sample)


def test_ig_attn_may_find_nothing_that_speaks_for_the_answer():
    samples = [tiny_sample(n=30, prompt=(5, 6), reasoning=(10, 20), output=(25, 26), seed=seed) for seed in range(12)]
    assert not all(IGAttention().attribute(tiny_model(), sample).scores.any() for sample in samples)


def test_ig_on_maps_is_complete_as_the_steps_grow():
    model, sample = tiny_model(), tiny_sample()
    with torch.no_grad():
        model.lm_head.weight.mul_(30)  # far from linear, so that there is an error to fall
    gaps = [abs(IGAttention(steps=n).attribute(model, sample).metadata["gap"]) for n in (20, 400)]
    assert 1e-3 < gaps[0] and gaps[1] < gaps[0] / 50


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_little_memory_does_not_change_the_result(family, method, request):
    model, sample = tiny_model(family), tiny_sample()
    wide = method.attribute(model, sample).scores
    request.getfixturevalue("no_memory")
    torch.testing.assert_close(wide, method.attribute(model, sample).scores, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_model_is_restored_after_an_error(method, monkeypatch):
    model, sample = tiny_model(), tiny_sample()
    wanted = [p.requires_grad for p in model.parameters()]

    def fail(*args, **kwargs):
        raise RuntimeError("no more")

    monkeypatch.setattr(torch.autograd, "grad", fail)
    with pytest.raises(RuntimeError, match="no more"):
        method.attribute(model, sample)
    assert wanted == [p.requires_grad for p in model.parameters()]
    assert model.config._attn_implementation == "sdpa"
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_works_inside_inference_mode_and_in_bfloat16(method):
    model, sample = tiny_model("llama"), tiny_sample()
    expected = method.attribute(model, sample).scores
    with torch.inference_mode():
        torch.testing.assert_close(method.attribute(model, sample).scores, expected, atol=1e-5, rtol=0)
    rounded = method.attribute(copy.deepcopy(model).bfloat16(), sample)
    assert rounded.scores.dtype == torch.float32 and float(rounded.scores.sum()) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("make, message", [
    (lambda: IntegratedGradients(steps=19), "at least 20"), (lambda: IntegratedGradients(start=1.0), r"\[0, 1\)"),
    (lambda: IGAttention(steps=20.0), "whole number"), (lambda: AttnLRP(rule="epsilon"), "attnlrp, cp_lrp"),
    (lambda: GIM(temperature=0), "positive and finite"),
    (lambda: GIM(temperature=float("inf")), "positive and finite"),
])  # fmt: skip
def test_bad_options_say_what_is_allowed(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_attnlrp_refuses_what_no_rule_covers():
    model = tiny_model()
    model.model.norm.forward = torch.tanh
    with pytest.raises(ValueError, match="no rule for LlamaRMSNorm"):
        AttnLRP().attribute(model, tiny_sample())
    model = tiny_model()
    model.model.layers[1].mlp = nn.Sequential(nn.Linear(32, 32))
    with pytest.raises(ValueError, match="MLP of layer 1"):
        AttnLRP().attribute(model, tiny_sample())
