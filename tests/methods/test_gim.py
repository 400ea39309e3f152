"""GIM against a float64 reference, and its softmax against differences and the softmax's own gradient."""

import pytest
import torch

from flashtrace_lib.methods import GIM
from flashtrace_lib.methods.attnlrp import target_logits
from flashtrace_lib.methods.gradient_base import differentiable, embed, target_of
from flashtrace_lib.methods.lrp_rules import ATTNLRP, Rules, lrp_rules, tempered
from tests.methods.test_gradients import assert_signed
from tests.oracles.naive_gradients import naive_lrp
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample


@pytest.mark.parametrize("temperature", [2.0, 0.7])
@pytest.mark.parametrize("family", FAMILIES)
def test_gim_equals_naive_on_every_family(family, temperature):
    model, sample = tiny_model(family), tiny_sample()
    rows, logits = naive_lrp(model, sample, "gim", temperature)
    att = GIM(temperature=temperature).attribute(model, sample)
    assert_signed(att, rows.mean(0), sample)
    assert att.metadata["logit"] == pytest.approx(float(logits.sum()), abs=1e-4)
    assert (att.metadata["forward_passes"], att.metadata["backward_passes"]) == (1, 1)


def test_a_tempered_softmax_has_its_own_values_and_the_slopes_of_another():
    z = torch.tensor([[0.3, -1.2, 2.0, -torch.inf], [1.0, 1.0, 0.0, 4.0]], dtype=torch.float64)
    g = torch.tensor([[1.0, -0.5, 0.25, 3.0], [0.0, 2.0, -1.0, 0.5]], dtype=torch.float64)
    seen, step = z.isfinite(), 1e-6
    for temperature in (0.5, 1.0, 2.0, 7.0):
        leaf = z.clone().requires_grad_()
        value = tempered(leaf, temperature)
        assert torch.equal(value, z.softmax(-1))
        (gradient,) = torch.autograd.grad(value, leaf, g)
        slopes = torch.zeros_like(z)
        for place in seen.nonzero():  # ∂ Σ g·softmax(y) / ∂y at y = z / τ, by differences
            moved = torch.zeros_like(z)
            moved[tuple(place)] = step
            up, down = (((z / temperature + sign * moved).softmax(-1) * g).sum() for sign in (1, -1))
            slopes[tuple(place)] = (up - down) / (2 * step)
        torch.testing.assert_close(gradient, slopes, atol=1e-8, rtol=0)


def test_temperature_one_under_the_rules_of_attnlrp_is_attnlrp():
    model, target = tiny_model("gemma2", torch.float64), target_of(tiny_model("gemma2"), tiny_sample())
    gradients = []
    for rules in (ATTNLRP, Rules(temperature=1.0), Rules(temperature=2.0)):
        with differentiable(model), lrp_rules(model, rules):
            embeddings = embed(model, target.context).requires_grad_()
            logits = target_logits(model, embeddings, target, rules.cap)
            gradients.append(torch.autograd.grad(logits.sum(), embeddings)[0])
    torch.testing.assert_close(gradients[0], gradients[1])
    assert not torch.allclose(gradients[0], gradients[2], rtol=1e-2)
