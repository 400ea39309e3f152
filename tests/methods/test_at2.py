"""AT2 against eager attention maps, one head's attention, and the refusal of weights that are not the model's."""

import json

import pytest
import torch

from flashtrace_lib.methods import AT2
from flashtrace_lib.methods import at2 as module
from flashtrace_lib.methods.at2 import head_attention, is_of, probe
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample


def eager_maps(model, sample):
    """Attention maps [L, H, N, N] of the model's own eager implementation."""
    model.config._attn_implementation = "eager"
    with torch.no_grad():
        maps = model(sample.input_ids[None], output_attentions=True).attentions
    model.config._attn_implementation = "sdpa"
    return torch.cat(maps)


def naive(maps, sample, target):
    """Mean over target tokens of the row before each, [L, H, N]."""
    spans = [sample.segments.output] if target == "output" else [sample.segments.reasoning, sample.segments.output]
    return torch.stack([maps[:, :, i - 1] for start, stop in spans for i in range(start, stop)]).mean(0)


def weights_file(tmp_path, model, weights, **more):
    path = tmp_path / "weights.json"
    path.write_text(json.dumps({"weights": weights, "probe": probe(model), **more}))
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_by_head_is_that_of_the_eager_maps(family):
    # a token of the template stands between T and O: it lies between the targets and is none
    model, sample = tiny_model(family), tiny_sample(20, reasoning=(9, 12), output=(14, 18))
    found = torch.stack(head_attention(model, sample))
    torch.testing.assert_close(found, naive(eager_maps(model, sample), sample, "generation"), atol=1e-6, rtol=1e-5)


def test_without_reasoning_the_target_is_the_output():
    model, sample = tiny_model(), tiny_sample(reasoning=(9, 9))
    found = torch.stack(head_attention(model, sample))
    torch.testing.assert_close(found, naive(eager_maps(model, sample), sample, "output"), atol=1e-6, rtol=1e-5)


def test_blocks_of_rows_add_up_to_the_whole(monkeypatch):
    model, sample = tiny_model(), tiny_sample()
    whole = torch.stack(head_attention(model, sample))
    monkeypatch.setattr("flashtrace_lib.kernel.attention.BLOCK_BYTES", 1)  # a row at a time
    torch.testing.assert_close(torch.stack(head_attention(model, sample)), whole, atol=1e-6, rtol=1e-5)


def test_one_head_of_weight_one_is_the_attention_of_that_head(tmp_path):
    model, sample = tiny_model(), tiny_sample()
    weights = torch.zeros(3, 4)
    weights[2, 1] = 1
    att = AT2(weights_file(tmp_path, model, weights.tolist())).attribute(model, sample)
    alone = naive(eager_maps(model, sample), sample, "generation")[2, 1, slice(*sample.segments.prompt)]
    torch.testing.assert_close(torch.tensor(att.metadata["signed"]), alone, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(att.scores, alone / alone.sum(), atol=1e-6, rtol=1e-5)
    assert att.metadata["forward_passes"] == 1 and att.metadata["backward_passes"] == 0


def test_a_head_that_counts_against_gives_no_negative_score(tmp_path):
    model, sample = tiny_model(), tiny_sample()
    weights = torch.linspace(-1, 1, 12).view(3, 4)
    att = AT2(weights_file(tmp_path, model, weights.tolist())).attribute(model, sample)
    maps = naive(eager_maps(model, sample), sample, "generation")[..., slice(*sample.segments.prompt)]
    signed = (weights[..., None] * maps).sum((0, 1))
    torch.testing.assert_close(torch.tensor(att.metadata["signed"]), signed, atol=1e-6, rtol=1e-5)
    assert (signed < 0).any() and (att.scores >= 0).all() and att.scores.sum().item() == pytest.approx(1)


def test_uniform_is_the_mean_over_all_heads():
    model, sample = tiny_model(), tiny_sample()
    att = AT2(weights="uniform").attribute(model, sample)
    mean = naive(eager_maps(model, sample), sample, "generation").mean((0, 1))[slice(*sample.segments.prompt)]
    torch.testing.assert_close(torch.tensor(att.metadata["signed"]), mean, atol=1e-6, rtol=1e-5)


def test_committed_weights_are_found_for_their_model_alone(tmp_path, monkeypatch):
    model, other, sample = tiny_model(), tiny_model(seed=1), tiny_sample()
    path = weights_file(tmp_path, model, torch.rand(3, 4).tolist())
    monkeypatch.setattr(module, "committed", lambda: [path])
    for dtype in (torch.float32, torch.bfloat16):
        found = AT2().attribute(tiny_model(dtype=dtype), sample)
        torch.testing.assert_close(found.scores, AT2(path).attribute(model, sample).scores, atol=0.02, rtol=0)
    with pytest.raises(ValueError, match="no weights under data/at2 were learned from this model"):
        AT2().attribute(other, sample)
    assert not is_of({"weights": [[1.0]]}, model)


def test_other_weights_have_another_key(tmp_path):
    model = tiny_model()
    ones, ramp = torch.ones(3, 4).tolist(), torch.rand(3, 4).tolist()
    first = AT2(weights_file(tmp_path, model, ones)).options()
    again = AT2(weights_file(tmp_path, model, ones, card={"loss": 1})).options()  # what the training says of itself
    assert first == again
    path = weights_file(tmp_path, model, ramp)
    assert AT2(path).options()["content"] != first["content"]
    with pytest.raises(ValueError, match="are not those of"):
        AT2(path, content=first["content"])


@pytest.mark.parametrize("text, message", [
    (None, "there is no file"), ("{", "is damaged"), ("{}", "holds no weights"),
    ('{"weights": [1, 2]}', "holds no weights"), ('{"weights": [["a"]]}', "holds no weights"),
])  # fmt: skip
def test_a_file_without_weights_is_refused(tmp_path, text, message):
    path = tmp_path / "weights.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=message):
        AT2(path)


def test_weights_of_another_shape_are_refused(tmp_path):
    model = tiny_model()
    with pytest.raises(ValueError, match="for 2 layers of 4 heads, the model has 3 of 4"):
        AT2(weights_file(tmp_path, model, torch.ones(2, 4).tolist())).attribute(model, tiny_sample())


def test_installed_without_its_files_nothing_is_committed(monkeypatch):
    def nowhere(name):
        raise ValueError("no checkout")

    monkeypatch.setattr(module, "data_folder", nowhere)
    assert module.committed() == [] and AT2().options()["weights"] is None
