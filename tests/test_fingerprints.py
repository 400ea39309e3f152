"""Fingerprints see what shapes a result, and only that."""

import copy

import numpy as np
import pytest
import torch

from flashtrace_lib import Segments, fingerprints
from flashtrace_lib.fingerprints import code_fingerprint, fingerprint, model_fingerprint, sample_fingerprint
from tests.oracles.tiny import CONFIGS, tiny_model, tiny_sample

VALUE = {"b": [1, 2.5, None, True], "a": ("x", {"y": "ü"})}


def test_fingerprint_ignores_the_order_of_keys_and_knows_its_own_past():
    assert fingerprint(VALUE) == fingerprint(dict(reversed(VALUE.items())))
    assert fingerprint(VALUE) == "a31356e5d74a2303d5dc"  # a change here orphans every stored result


def test_fingerprint_tells_unlike_values_apart():
    values = [
        None, True, 1, 1.0, "1", [1], [[1]], {"1": 1}, {1: 1}, [], {}, "", ["a", "b"], ["ab", ""], ["a,b"],
        torch.tensor([1]), torch.tensor([1.0]), torch.tensor([[1]]), torch.tensor(1),
        torch.ones(1, dtype=torch.bfloat16), Segments((0, 1), (1, 1), (1, 2)),
    ]  # fmt: skip
    assert len({fingerprint(value) for value in values}) == len(values)
    assert fingerprint((1, 2)) == fingerprint([1, 2])
    assert fingerprint(np.float64(0.5)) == fingerprint(0.5)
    assert fingerprint(np.array([1.0])) == fingerprint(torch.tensor([1.0], dtype=torch.float64))
    with pytest.raises(ValueError, match="function has no stable hash"):
        fingerprint({"f": fingerprint})


def test_model_fingerprint_follows_the_weights(tmp_path, monkeypatch):
    monkeypatch.setitem(CONFIGS, "llama", copy.deepcopy(CONFIGS["llama"]))  # models share it, and it is changed below
    model = tiny_model("llama")
    key = model_fingerprint(model)
    assert key == model_fingerprint(tiny_model("llama"))
    assert key != model_fingerprint(tiny_model("llama", seed=1))
    assert key != model_fingerprint(tiny_model("llama", dtype=torch.bfloat16))
    model.set_attn_implementation("eager")  # another kernel is no other model
    assert model_fingerprint(model) == key
    model.save_pretrained(tmp_path)
    assert model_fingerprint(type(model).from_pretrained(tmp_path, dtype=torch.float32)) == key
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight.mul_(1.001)  # trained in place
    assert model_fingerprint(model) != key
    other = tiny_model("llama")
    other.config.rms_norm_eps = 0.1
    assert model_fingerprint(other) != key


def test_model_fingerprint_sees_a_head_or_a_neuron_that_is_taken_out():
    for shape in ((512, 512), (576, 1536), (1024, 256)):
        layer = torch.nn.Linear(*shape, bias=False)
        keys = [model_fingerprint(layer)]
        with torch.no_grad():
            layer.weight[:, 64:128] = 0
            keys.append(model_fingerprint(layer))
            layer.weight[-16:] = 0
        assert len({*keys, model_fingerprint(layer)}) == 3


def test_sample_fingerprint_sees_what_shapes_a_result():
    sample = tiny_sample()
    sample.tokens = ["y"] * 16
    keys = {sample_fingerprint(sample)}
    changes = {"tokens": None, "mask_token_id": 1, "gold": None, "response": (9, 15), "sentences": [(1, 8)],
               "input_ids": sample.input_ids + 1, "segments": Segments((1, 8), (9, 11), (12, 15))}  # fmt: skip
    for name, value in changes.items():
        changed = copy.copy(sample)
        setattr(changed, name, value)
        keys.add(sample_fingerprint(changed))
    assert len(keys) == 8
    named = copy.copy(sample)
    named.metadata, named.tokens = {"id": "other"}, ["x"] * 16
    assert sample_fingerprint(named) in keys


def test_code_fingerprint_sees_every_file(tmp_path, monkeypatch):
    assert code_fingerprint() == code_fingerprint() and len(code_fingerprint()) == 20
    monkeypatch.setattr(fingerprints, "__file__", str(tmp_path / "fingerprints.py"))
    seen = set()
    for name, text in (("module.py", "x = 1"), ("module.py", "x = 2"), ("words.yaml", "words: [one]")):
        (tmp_path / name).write_text(text)
        code_fingerprint.cache_clear()
        seen.add(code_fingerprint())
    code_fingerprint.cache_clear()
    assert len(seen) == 3
