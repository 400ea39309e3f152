"""The benchmark's promise: a ratio to the forward pass, and memory that holds its own rows and nothing quadratic."""

import json
import os
import subprocess
import sys

import pytest
import torch

from flashtrace_lib import FlashTrace
from flashtrace_lib.bench import measure
from flashtrace_lib.bench.memory import peak_memory
from flashtrace_lib.bench.shapes import SHAPES, random_model
from flashtrace_lib.kernel.capture import capture
from tests.environment import ROOT
from tests.oracles.tiny import tiny_model


def kept_bytes(model, n_prompt, n_generated):
    sample = measure.bench_sample(n_prompt, n_generated, 97)
    layers = capture(model, sample.input_ids, sample.segments.generated).layers
    return sum(t.numel() * t.element_size() for a in layers for t in (a.q, a.k, a.v, a.x_in))


def test_what_is_kept_is_linear_in_rows_and_context():
    model = tiny_model()
    config = model.config
    per_token = 2 * config.num_key_value_heads * config.head_dim * 4 * config.num_hidden_layers  # k and v
    per_row = (config.num_attention_heads * config.head_dim + config.hidden_size) * 4 * config.num_hidden_layers
    for n_prompt, n_generated in ((20, 20), (100, 20), (20, 100), (100, 100)):
        expected = per_token * (n_prompt + n_generated) + per_row * n_generated
        assert kept_bytes(model, n_prompt, n_generated) == expected


def test_peak_memory_sees_an_allocation_and_its_release():
    with peak_memory() as peak:
        block = bytearray(64 * 2**20)
        block[:: 2**12] = b"x" * len(block[:: 2**12])  # touch every page
        del block
    assert 60 * 2**20 < peak.over_start < 100 * 2**20


@pytest.mark.parametrize("text, message", [("12", "form I[+]G"), ("a+b", "form I[+]G"), ("0+5", "at least 1")])
def test_bad_sizes_say_what_is_wrong(text, message):
    with pytest.raises(ValueError, match=message):
        measure.parse_size(text)
    with pytest.raises(ValueError, match="no regular file"):  # seen before anything is measured
        measure.main(["--json", "."])


def test_a_failing_worker_becomes_a_row(capsys):
    assert measure.main(["--sizes", "8+4", "--model", "no/such/folder", "--runs", "1"]) == 1
    assert "no such folder" in capsys.readouterr().out


@pytest.mark.slow
def test_cost_of_one_hop_on_the_embedded_model(capsys):
    assert measure.main(["--worker", "--sizes", "512+512", "--runs", "2"]) == 0
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert measured["ratio"] < 1.6  # forward passes; 1.1 to 1.3 on two idle cores


def test_a_shape_has_the_published_size_and_nothing_left_from_memory():
    published = {"qwen3-8b": 8_190_735_360, "qwen3-0.6b": 596_049_920}  # the hub's counts; shared weights once
    assert {name: random_model(name, device="meta").num_parameters() for name in SHAPES} == published
    model = random_model("qwen3-0.6b", layers=1)
    assert model.lm_head.weight is model.model.embed_tokens.weight and model.dtype == torch.bfloat16
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, 1e6 ** (-torch.arange(0, 128, 2) / 128))
    for weight in model.state_dict().values():
        assert (weight == 1).all() if weight.ndim == 1 else 0.019 < float(weight.float().std()) < 0.021


@pytest.mark.slow
def test_the_script_for_a_gpu_goes_on_where_it_stopped(tmp_path):
    command = ["bash", str(ROOT / "scripts" / "gpu_bench.sh"), str(tmp_path / "gpu.json"), "--shape", "qwen3-0.6b"]
    command += "--layers 1 --dtype float32 --device cpu --runs 1 --sizes 20+10 --methods flashtrace".split()
    found = []
    for more in ([], [measure.ONE_BY_ONE]):
        done = subprocess.run([*command, *more], env={**os.environ, "PYTHON": sys.executable}, capture_output=True)
        assert done.returncode == 0, done.stderr
        found.append(json.loads((tmp_path / "gpu.json").read_text()))
    (first,), (kept, added) = found
    assert first == kept and 1 <= added["targets"] <= 10 and first["hardware"] and first["layers"] == 1


@pytest.mark.parametrize("limit, targets", [(0, 1), (1e9, 10)])
def test_one_by_one_goes_as_far_as_its_time(monkeypatch, limit, targets):
    monkeypatch.setattr(measure, "ONE_BY_ONE_RUN", limit)
    sample = measure.bench_sample(20, 10, 97, through_reasoning=False)
    assert measure.measure_one_by_one(tiny_model(), sample)["targets"] == targets


def test_measure_pairs_every_run():
    result = measure.measure(tiny_model(), FlashTrace(), measure.bench_sample(20, 10, 97), runs=2)
    assert result["ratio"] > 0 and result["n"] == 2 and result["peak_gib"] >= 0
    assert len(measure.bench_sample(20, 10, 97, sentence=5).sentences) == 6
    assert measure.measure_spans(tiny_model(), measure.bench_sample(20, 10, 97), runs=1, n=5)["ratio"] > 0


def test_what_is_asked_stands_beside_what_was_measured(capsys, monkeypatch):
    rows = [{"method": "flashtrace", "size": "1024+1024", "ratio": 1.3, "ratio_no_logits": 1.2, "peak_gib": 0.25}]
    monkeypatch.setattr(measure, "run_sizes", lambda *_: rows)
    assert measure.main([]) == 0
    assert "ratio 1.300, ratio_no_logits 1.200 (asked: 1.15), peak_gib 0.250 (asked: 0.20)" in capsys.readouterr().out


def test_a_pass_ends_behind_the_last_attention_and_keeps_the_same():
    model, ids, through = tiny_model(), torch.randint(97, (12,)), []
    handle = model.model.layers[-1].mlp.register_forward_hook(lambda *_: through.append(1))
    short, whole = capture(model, ids, (4, 12)), capture(model, ids, (4, 12), keep_logits=True)
    handle.remove()
    assert len(through) == 1 and whole.logits.shape == (12, 97)
    for one, other in zip(short.layers, whole.layers, strict=True):
        assert all(torch.equal(getattr(one, name), getattr(other, name)) for name in ("q", "k", "v", "x_in"))
    assert torch.equal(model(ids[None]).logits[0], whole.logits)  # the next pass goes to its end


def test_methods_are_timed_in_turn(monkeypatch):
    methods, model = {"a": FlashTrace(hops=0), "b": FlashTrace(hops=1)}, tiny_model()
    order = []
    monkeypatch.setattr(measure, "timed", lambda call: order.append(call.func.__self__.hops) or float(len(order)))
    seconds = measure.attribution_seconds(model, methods, measure.bench_sample(8, 4, 97), runs=2)
    assert order == [0, 1, 0, 1] and seconds == {"a": [1.0, 3.0], "b": [2.0, 4.0]}


def test_rows_of_another_setting_are_measured_and_shown_apart(tmp_path, monkeypatch):
    (tmp_path / "b.json").write_text('[{"model": "m", "sentence": 4, "size": "8+4", "method": "ifr"}]')
    monkeypatch.setattr(measure.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, '{"ratio": 2}'))
    setting = {"model": "m", "sentence": measure.SENTENCE}
    own = measure.run_sizes(["8+4"], ["ifr"], setting, tmp_path / "b.json")
    assert own == [{**setting, "size": "8+4", "method": "ifr", "ratio": 2}]
    assert len(json.loads((tmp_path / "b.json").read_text())) == 2
    (tmp_path / "b.json").write_text("{")
    with pytest.raises(ValueError, match="b.json holds no rows"):
        measure.run_sizes(["8+4"], ["ifr"], setting, tmp_path / "b.json")
