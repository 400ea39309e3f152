"""A model spread over devices: each layer is read where it lies. The meta device, which computes no values but refuses
tensors of another device, stands in for a second GPU."""

from types import SimpleNamespace

import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from torch import nn

from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.kernel.decomposition import check_decomposition
from flashtrace_lib.kernel.proximity import aggregate
from flashtrace_lib.methods.gradient_base import Target, log_probs
from flashtrace_lib.methods.lrp_rules import lrp_rules
from flashtrace_lib.model import state
from flashtrace_lib.model.batched_forward import log_prob_of, score_rows
from flashtrace_lib.model.state import model_budget
from tests.oracles.tiny import FAMILIES, tiny_model

IDS, META = torch.arange(3, 19), torch.device("meta")


def spread(family, first_away=1):
    """Layers from ``first_away`` on, and all behind them, on a second device, as ``device_map="auto"`` does it."""
    model = tiny_model(family)
    for module in (*model.model.layers[first_away:], model.model.norm, model.lm_head):
        module.to(META)
        add_hook_to_module(module, AlignDevicesHook(META))
    return model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", ["recompute", "cached"])
def test_each_layer_is_aggregated_where_it_lies(family, attention, monkeypatch):
    # The check of each call reads the mask's values, which the meta device does not have.
    monkeypatch.setattr("flashtrace_lib.kernel.interception.check_call", lambda *_: None)
    activations = capture(spread(family), IDS, (9, 15), attention=attention, keep_mid=True)
    assert [layer.k.device.type for layer in activations.layers] == ["cpu", "meta", "meta"]
    for layer in activations.layers:
        kept = (layer.x_in, layer.x_mid, layer.v, layer.q, layer.mask, layer.row_scale, layer.maps)
        assert {x.device for x in kept if x is not None} == {layer.parts.device}
        sums, *states = aggregate(layer, torch.ones(1, 6), (9, 15), 9)
        assert {x.device for x in (*sums, *states)} == {layer.parts.device}


def test_offloaded_layers_are_refused():
    with pytest.raises(ValueError, match=r"layers\.2\..* are offloaded.*more GPUs"):
        check_decomposition(spread("llama", first_away=2))


def test_lrp_takes_a_norm_on_another_device_than_the_last_layer():
    model = spread("llama", first_away=3)
    embeddings = model.get_input_embeddings()(IDS[None]).detach().requires_grad_()
    with lrp_rules(model):
        assert model.base_model(inputs_embeds=embeddings, use_cache=False).last_hidden_state.device == META


class OnTwoDevices(nn.Module):
    """Embeds on the second device and predicts on the first; keeps the logits it is asked for, as transformers does."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(97, 8, device=META)
        self.config = SimpleNamespace(hidden_size=8, vocab_size=97, get_text_config=lambda: self.config)

    def get_input_embeddings(self):
        return self.embedding

    def forward(self, input_ids=None, inputs_embeds=None, use_cache=False, logits_to_keep=slice(None)):
        given = input_ids if inputs_embeds is None else inputs_embeds
        assert given.device == META
        return SimpleNamespace(logits=torch.zeros(given.shape[0], given.shape[1], 97)[:, logits_to_keep])


def test_logits_are_picked_on_whatever_device_they_are():
    model = OnTwoDevices()
    rows = score_rows(model, [IDS[:-1]] * 2, 3, log_prob_of(IDS[-3:]))
    assert rows.shape == (2, 3) and torch.allclose(rows, -torch.tensor(97.0).log())
    target = Target(IDS[:-1], IDS[-3:], (12, 15))
    assert log_probs(model, model.embedding(IDS[None, :-1].to(META)), target).shape == (1, 3)


def test_fullest_device_sets_the_budget(monkeypatch):
    monkeypatch.setattr(state, "default_budget", lambda device: {"cpu": 700, "meta": 30}[device.type])
    assert model_budget(spread("llama")) == 30 and model_budget(tiny_model("llama")) == 700
