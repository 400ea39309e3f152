"""What every registered method must do, whatever it is."""

import copy

import pytest
import torch

from flashtrace_lib.methods import METHODS
from tests.oracles.planted import ANSWER, planted_model, planted_sample
from tests.oracles.tiny import tiny_model, tiny_sample

BLIND = ("random", "random_sentences", "position", "string_match")  # controls that never ask the model
NEEDED = {"at2": {"weights": "uniform"}}  # its own weights are learned from one model


def made(name):
    """A registered method with its own options, or those without which it does not run on any model."""
    return METHODS[name](**NEEDED.get(name, {}))


def sample_with_sentences(**spans):
    sample = tiny_sample(**spans)
    sample.sentences = [(1, 4), (4, 8), (9, 11), (11, 12), (12, 14), (14, 15)]
    return sample


@pytest.fixture(scope="module")
def planted():
    return planted_model()


def test_the_planted_model_copies_from_the_evidence(planted):
    for position, kind in [(2, 0), (6, 2), (13, 3)]:
        sample = planted_sample(position, kind)
        with torch.no_grad():
            log_probs = planted(sample.input_ids[None]).logits[0].log_softmax(-1)
            masked = sample.input_ids.clone()
            masked[position] = sample.mask_token_id
            without = planted(masked[None]).logits[0].log_softmax(-1)
        predictors = slice(sample.segments.output[0] - 1, sample.segments.output[1] - 1)
        assert (log_probs[predictors].argmax(-1) == ANSWER[kind]).all()
        assert (log_probs[predictors, ANSWER[kind]] - without[predictors, ANSWER[kind]] > 2).all()


@pytest.mark.parametrize("position, kind", [(2, 0), (6, 2), (13, 3)])
@pytest.mark.parametrize("name", [name for name in METHODS if name not in BLIND])
def test_faithful_methods_rank_the_planted_evidence_first(planted, name, position, kind):
    sample, method = planted_sample(position, kind), made(name)
    scores = method.attribute(planted, sample).scores
    reach = getattr(method, "smoothing", 1) // 2  # a method that shares scores among neighbours finds the place
    gold, near = int(sample.gold_in_prompt.nonzero()), torch.zeros(len(scores), dtype=torch.bool)
    near[max(gold - reach, 0) : gold + reach + 1] = True
    assert scores[near].max().item() > scores[~near].max().item()


@pytest.mark.parametrize("name", BLIND)
def test_blind_controls_do_not_find_it(planted, name):
    sample = planted_sample()
    scores = made(name).attribute(planted, sample).scores
    assert scores[sample.gold_in_prompt].item() < scores.max().item() or not scores.any()  # nothing is copied


@pytest.mark.parametrize("name", METHODS)
def test_model_is_bit_identical_afterwards(name):
    model, sample = tiny_model("llama"), sample_with_sentences()
    model.model.layers[1].train()
    state, flags = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    wanted, implementation = [p.requires_grad for p in model.parameters()], model.config._attn_implementation
    with torch.no_grad():
        before = model(sample.input_ids[None]).logits
    made(name).attribute(model, sample)
    with torch.no_grad():
        assert torch.equal(before, model(sample.input_ids[None]).logits)
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in state.items())
    assert flags == [module.training for module in model.modules()]
    assert wanted == [p.requires_grad for p in model.parameters()]
    assert all(p.grad is None for p in model.parameters())
    assert model.config._attn_implementation == implementation
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("reasoning", [(9, 12), (9, 9)], ids=["reasoning", "direct"])
@pytest.mark.parametrize("name", METHODS)
def test_result_has_the_common_form(name, reasoning):
    model, sample = tiny_model("llama"), sample_with_sentences(reasoning=reasoning)
    att = made(name).attribute(model, sample)
    assert att.method == name and att.scores.shape == (7,) and att.scores.dtype == torch.float32
    assert torch.isfinite(att.scores).all()
    assert att.metadata["forward_passes"] >= 0 and att.metadata["backward_passes"] >= 0
    assert (att.metadata["forward_passes"] > 0) == (name not in BLIND)
    torch.testing.assert_close(att.scores, made(name).attribute(model, sample).scores, atol=1e-6, rtol=0)
