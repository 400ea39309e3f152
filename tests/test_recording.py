"""Attribution from the passes that generated a response equals attribution of a fresh pass over it."""

from dataclasses import replace

import pytest
import torch

from flashtrace_lib import FlashTrace, Sample, Segments
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.recording import recording
from tests.oracles.tiny import FAMILIES, tiny_model

PROMPT, NEW = 10, 12


def generated(model, new=NEW, first_row=None, n=PROMPT, **options):
    """The recording and the sample of a sampled response with reasoning and output."""
    torch.manual_seed(1)
    ids = torch.randint(3, 97, (1, n))
    with recording(model, first_row) as recorded:
        out = model.generate(ids, max_new_tokens=new, min_new_tokens=new, do_sample=True, **options)[0]
    assert len(out) == n + new
    return recorded, Sample(out, Segments((1, 9), (n, n + new - 5), (n + new - 5, n + new)))


def close(a, b, tolerance=1e-5):
    torch.testing.assert_close(a.double(), b.double(), atol=tolerance, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", [{}, {"target_state": "predictor", "hops": 2}, {"attention": "fused"}], ids=str)
def test_from_cache_equals_attribute(family, options):
    """Sliding windows of 6 and 7 tokens are left far behind by 22."""
    model = tiny_model(family)
    recorded, sample = generated(model)
    method = FlashTrace(**options)
    found, expected = method.from_cache(recorded, sample), method.attribute(model, sample)
    close(found.scores, expected.scores)
    for a, b in zip(found.hops, expected.hops, strict=True):
        close(a.scores, b.scores)
    assert found.flow == pytest.approx(expected.flow, abs=1e-5)
    assert found.metadata["forward_passes"] == 0 and found.metadata["options"] == expected.metadata["options"]


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_activations_equal_captured_ones(family):
    model = tiny_model(family)
    recorded, sample = generated(model)
    rows = (PROMPT - 1, len(sample))
    a, b = recorded.activations(sample.input_ids, rows), capture(model, sample.input_ids, rows)
    assert (a.rows, a.n_tokens) == (b.rows, b.n_tokens)
    for x, y in zip(a.layers, b.layers, strict=True):
        for name in ("k", "v", "q", "x_in", "row_scale"):
            if getattr(y, name) is None:
                assert getattr(x, name) is None
            else:
                torch.testing.assert_close(getattr(x, name), getattr(y, name), atol=1e-4, rtol=1e-4)
        if y.mask is None:
            assert x.mask is None
        else:
            assert torch.equal(x.mask, y.mask)


def test_only_the_unread_last_token_is_read_afterwards():
    model, read = tiny_model(), []

    def note(_, args, kwargs):
        read.append((args[0] if args else kwargs["input_ids"]).shape[1])

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    FlashTrace().attribute(model, generated(model)[1])  # checks the decomposition, once for a model with this hook
    recorded, sample = generated(model)
    read.clear()
    FlashTrace().from_cache(recorded, sample)
    FlashTrace(hops=3).from_cache(recorded, sample)
    handle.remove()
    assert read == [1]


def test_keys_and_values_are_those_of_the_cache():
    model = tiny_model()
    torch.manual_seed(1)
    with recording(model) as recorded:
        out = model.generate(torch.randint(3, 97, (1, 8)), max_new_tokens=6, min_new_tokens=6, do_sample=False,
                             return_dict_in_generate=True)  # fmt: skip
    layers = recorded.activations(out.sequences[0, :-1], (8, 13)).layers
    for layer, cached in zip(layers, out.past_key_values.layers, strict=True):
        assert layer.k.data_ptr() == cached.keys.data_ptr() and layer.v.data_ptr() == cached.values.data_ptr()


def test_many_spans_from_one_recording():
    model = tiny_model("qwen3")
    recorded, sample = generated(model)
    spans = [(10, 13), (13, 17), (17, 22)]
    for a, b in zip(
        FlashTrace().attribute_many(model, sample, spans, recorded),
        FlashTrace().attribute_many(model, sample, spans),
        strict=True,
    ):
        close(a.scores, b.scores)


def test_targets_before_the_response_need_first_row():
    model = tiny_model()
    recorded, sample = generated(model)
    early = Sample(sample.input_ids, Segments((1, 5), (6, 17), (17, 22)))
    with pytest.raises(ValueError, match="pass first_row=6"):
        FlashTrace().from_cache(recorded, early)
    recorded, sample = generated(model, first_row=6)
    close(FlashTrace().from_cache(recorded, early).scores, FlashTrace().attribute(model, early).scores)


def test_generation_and_model_are_left_as_they_were():
    model = tiny_model("mistral")
    implementation = model.config._attn_implementation
    _, sample = generated(model)
    torch.manual_seed(1)
    ids = torch.randint(3, 97, (1, PROMPT))
    plain = model.generate(ids, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=True)[0]
    assert torch.equal(plain, sample.input_ids)
    assert model.config._attn_implementation == implementation
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_what_cannot_be_recorded_is_refused():
    model = tiny_model()
    ids = torch.randint(3, 97, (1, 8))
    with pytest.raises(ValueError, match="one response can be recorded"), recording(model):
        model.generate(ids.repeat(2, 1), max_new_tokens=3)
    with pytest.raises(ValueError, match="record one response"), recording(model):
        model.generate(ids, max_new_tokens=3)
        model.generate(ids, max_new_tokens=3)
    with pytest.raises(ValueError, match="use_cache=True"), recording(model):
        model.generate(ids, max_new_tokens=3, min_new_tokens=3, use_cache=False)
    with pytest.raises(ValueError, match="default dynamic cache"), recording(model):
        model.generate(ids, max_new_tokens=3, min_new_tokens=3, cache_implementation="static")
    recorded, sample = generated(model)
    with pytest.raises(ValueError, match="is running"), recorded.running():
        FlashTrace().attribute(model, sample)
    with pytest.raises(ValueError, match="not the .* recorded"):
        FlashTrace().from_cache(recorded, replace(sample, input_ids=sample.input_ids.flip(0)))
    with pytest.raises(ValueError, match="maps are not recorded"):
        FlashTrace(attention="cached").from_cache(recorded, sample)
