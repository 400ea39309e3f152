"""Recurrent models, whose state cannot be cut at a position: baselines against single plain forward passes."""

import pytest
import torch
from transformers import AutoModelForCausalLM, FalconMambaConfig, MambaConfig, RecurrentGemmaConfig, RwkvConfig

from flashtrace_lib.methods import CLP, IntegratedGradients, Perturbation
from flashtrace_lib.metrics.deletion import deletion_curve
from tests.oracles.contexts import close, predictions
from tests.oracles.tiny import tiny_sample

COMMON = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
CONFIGS = {
    "mamba": MambaConfig(**COMMON, state_size=4),
    "falcon_mamba": FalconMambaConfig(**COMMON, state_size=4),
    "rwkv": RwkvConfig(**COMMON, attention_hidden_size=32, context_length=128),
    "recurrent_gemma": RecurrentGemmaConfig(
        **COMMON | {"num_hidden_layers": 3},  # the third is the attention
        intermediate_size=48,
        num_attention_heads=4,
        lru_width=32,
        attention_window_size=8,
    ),
}


@pytest.fixture(scope="module", params=CONFIGS)
def model(request):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[request.param]).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and "embed" not in name:
                parameter.mul_(4)  # so that the context matters
    return model


@pytest.fixture
def sample():
    return tiny_sample(n=40, prompt=(1, 20), reasoning=(22, 30), output=(31, 38))


def naive_nll(model, sample, ids):
    """Mean NLL of O behind a context that ends with it, one plain forward."""
    n = sample.segments.output[1] - sample.segments.output[0]
    targets = sample.input_ids[slice(*sample.segments.output)]
    return -predictions(model, ids, n)[torch.arange(n), targets].mean().item()


def test_perturbation_equals_single_passes(model, sample):
    ids = sample.input_ids[:38]
    intact, expected = naive_nll(model, sample, ids), []
    for position in range(1, 20):
        changed = ids.clone()
        changed[position] = sample.mask_token_id
        expected.append(naive_nll(model, sample, changed) - intact)
    close(Perturbation().attribute(model, sample).metadata["signed"], expected)
    assert max(map(abs, expected)) > 1e-3  # the comparison says something


def test_probing_equals_single_passes(model, sample):
    ids = sample.input_ids[:38]
    nll = [naive_nll(model, sample, torch.cat([ids[:1], ids[start:]])) for start in range(1, 21)]
    close(CLP().attribute(model, sample).metadata["signed"], torch.tensor(nll).diff())


def test_deletion_curve_equals_single_passes(model, sample):
    scores = torch.randn(19, generator=torch.Generator().manual_seed(0))
    curve = deletion_curve(model, sample, scores, steps=19)
    ids, expected = sample.input_ids.clone(), []
    for position in [None, *scores.argsort(descending=True).tolist()]:
        if position is not None:
            ids[1 + position] = sample.mask_token_id
        start, stop = sample.response
        log_probs = predictions(model, ids[:stop], stop - start)
        expected.append(log_probs[torch.arange(stop - start), sample.input_ids[start:stop]].sum().item())
    close(curve.log_probs, expected, 1e-4)


def test_integrated_gradients_add_up_to_the_gain_over_their_path(model, sample):
    metadata = IntegratedGradients(steps=300).attribute(model, sample).metadata
    gain = metadata["log_prob"]["input"] - metadata["log_prob"]["start"]
    assert abs(metadata["gap_on_path"]) < 0.05 * abs(gain) and abs(gain) > 0.01
