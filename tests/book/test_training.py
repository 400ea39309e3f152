"""The adapter: training resumes bit for bit, merging leaves a plain model, bad adapters are refused."""

import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig

from flashtrace_book.reasoner import adapter, train
from flashtrace_book.reasoner.batches import batches, held_out_examples, step_examples
from flashtrace_book.reasoner.config import TrainingConfig
from flashtrace_book.reasoner.trainer import Trainer
from flashtrace_lib.fingerprints import model_fingerprint
from flashtrace_lib.kernel.decomposition import check_decomposition
from flashtrace_lib.model import embedded
from flashtrace_lib.model.embedded import use_reasoner_template
from tests.environment import ROOT
from tests.oracles.tiny_reasoner import load_tokenizer, tiny

WEIGHTS = {"gsm8k": 1.0, "math500": 1.0}
SMALL = dict(description="", steps=6, warmup=1, tokens_per_step=300, tokens_per_batch=250, weights=WEIGHTS, rank=4,
             eval_every=3, eval_tasks=("gsm8k",), eval_problems=2, checkpoint_every=2, bf16=False)  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = load_tokenizer()
    use_reasoner_template(tokenizer)
    return tokenizer


@pytest.fixture
def build(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHTRACE_BUILD_DIR", str(tmp_path))
    return tmp_path


def weights(folder):
    return (folder / embedded.WEIGHTS).read_bytes()


def test_a_training_may_stop_early_and_another_go_on_from_it(tokenizer, build, monkeypatch):
    monkeypatch.setattr("flashtrace_book.reasoner.trainer.root", lambda: build)
    whole = TrainingConfig("t", **SMALL)
    first = train.train(replace(whole, stop=2), tiny(), tokenizer)
    log = pd.read_csv(first / train.LOG)
    assert log["step"].max() == 2 and "| steps | 2, the beginning of 6 |" in (first / adapter.CARD).read_text()
    following = TrainingConfig("u", **{**SMALL, "start": str(first.relative_to(build)), "steps": 3})
    second = train.train(following, tiny(), tokenizer)
    assert "went on from" in (second / adapter.CARD).read_text()
    fresh = train.train(TrainingConfig("v", **{**SMALL, "steps": 3}), tiny(), tokenizer)
    assert weights(second) != weights(fresh)
    trainer = Trainer(following, tiny(), tokenizer)
    saved = load_file(first / embedded.WEIGHTS)
    state = adapter.adapter_state(trainer.peft_model)
    assert state.keys() == saved.keys() and all(torch.equal(state[name], saved[name].float()) for name in saved)
    trainer.release()
    # More steps of the first run: it goes on from its own checkpoint, as if it had never stopped.
    again = train.train(whole, tiny(), tokenizer)
    alone = train.train(replace(whole, name="w"), tiny(), tokenizer)
    assert weights(again) == weights(alone)
    with pytest.raises(ValueError, match="no adapter in .*nowhere"):
        train.train(replace(following, name="x", start="nowhere"), tiny(), tokenizer)
    with pytest.raises(ValueError, match="give this training its rank"):
        train.train(replace(following, name="y", rank=2), tiny(), tokenizer)
    with pytest.raises(ValueError, match="stop must lie between 1 and the 6 steps"):
        TrainingConfig("z", **SMALL, stop=7)


# --- training examples and batches ----------------------------------------------------------------------------


def test_targets_are_the_response_and_nothing_else(tokenizer):
    config = TrainingConfig("t", **SMALL)
    examples = step_examples(tokenizer, config, config.curriculum(), 0)
    assert sum(len(item.ids) for item in examples) >= 300
    seen = []
    for batch in batches(examples, tokenizer.eos_token_id, 250):
        assert batch.input_ids.numel() <= 250 or len(batch.examples) == 1
        for i, item in enumerate(batch.examples):
            assert batch.targets[batch.rows == i].tolist() == item.ids[item.n_prompt :]
            text = tokenizer.decode(item.ids[item.n_prompt :])
            assert text.endswith("<|im_end|>") and ("</think>" in text) == (item.mode == "thinking")
            seen.append(item)
    assert sorted(seen, key=lambda item: item.ids) == sorted(examples, key=lambda item: item.ids)


def test_padded_prompts_lose_the_user_s_tokens_alone(tokenizer):
    plain = TrainingConfig("t", **SMALL)
    curriculum, padded = plain.curriculum(), TrainingConfig("t", **SMALL, padded=1.0)
    shares = []
    for step in range(4):
        for whole, cut in zip(*(step_examples(tokenizer, c, curriculum, step) for c in (plain, padded)), strict=True):
            changed = [i for i, (a, b) in enumerate(zip(whole.ids, cut.ids, strict=True)) if a != b]
            assert all(cut.ids[i] == tokenizer.pad_token_id for i in changed)
            before = tokenizer.decode(whole.ids[: min(changed, default=whole.n_prompt)])
            assert "<|im_start|>user\n" in before and max(changed, default=0) < whole.n_prompt - 3, "the template stays"
            shares.append(len(changed) / whole.n_prompt)
    assert min(shares) < 0.1 and max(shares) > 0.25, "few here, many there"
    with pytest.raises(ValueError, match="padded is a share of the problems, between 0 and 1, got 1.5"):
        TrainingConfig("t", **SMALL, padded=1.5)


def test_held_out_examples_are_never_trained_on(tokenizer):
    config = TrainingConfig("t", **SMALL)
    held_out = {tuple(item.ids) for item in held_out_examples(tokenizer, config)}
    curriculum = config.curriculum()
    trained = {tuple(item.ids) for step in range(20) for item in step_examples(tokenizer, config, curriculum, step)}
    assert len(held_out) == 2 and held_out.isdisjoint(trained)


# --- training -------------------------------------------------------------------------------------------------


def test_training_lowers_the_loss_and_leaves_the_model(build, tokenizer):
    model = tiny()
    before, names = model_fingerprint(model), list(model.state_dict())
    config = TrainingConfig("learn", **{**SMALL, "steps": 30, "eval_every": 10, "learning_rate": 2e-2, "rank": 8})
    folder = train.train(config, model, tokenizer)
    assert model_fingerprint(model) == before and list(model.state_dict()) == names
    assert all(p.requires_grad for p in model.parameters()) and not model.training
    log = pd.read_csv(folder / train.LOG)
    loss = log[log["split"] == "train"].groupby("step")["loss"].mean()
    assert list(loss.index) == list(range(1, 31)) and loss[-5:].mean() < loss[:5].mean() - 0.05
    held_out = log[log["split"] == "eval"].groupby("step")["loss"].mean()  # the same examples at every test
    assert list(held_out.index) == [10, 20, 30] and held_out.is_monotonic_decreasing
    assert log["token_accuracy"].between(0, 1).all() and log["exact"].between(0, 1).all()
    card = (folder / adapter.CARD).read_text()
    assert "| steps | 30 |" in card and "Not measured yet" in card
    adapter.write_accuracy(folder, pd.DataFrame({"task": ["gsm8k"], "correct": [0.5]}))
    assert "| gsm8k | 0.5 |" in (folder / adapter.CARD).read_text()
    merged = embedded.merge_adapter(tiny(), folder)
    assert model_fingerprint(merged) != before


def test_batches_do_not_shape_the_step(build, tokenizer):
    """The gradient is that of the whole step, however it is cut and padded."""
    runs = []
    for name, tokens in (("one", 10_000), ("many", 1)):
        config = TrainingConfig(name, **{**SMALL, "tokens_per_batch": tokens})
        trainer = Trainer(config, tiny(), tokenizer)
        loss, _ = trainer.take_step(step_examples(tokenizer, config, config.curriculum(), 0))
        runs.append((loss, trainer.rows[0]["grad_norm"]))
    assert runs[0] == pytest.approx(runs[1], rel=1e-4)


KILLED = """
import os, signal, sys
sys.path[:0] = [{tests!r}, {tests!r} + "/notebooks"]
from tests.book.test_training import SMALL
from tests.oracles.tiny_reasoner import load_tokenizer, tiny
from flashtrace_book.reasoner import train
from flashtrace_book.reasoner.config import TrainingConfig
from flashtrace_book.reasoner.trainer import Trainer
step = Trainer.take_step
def dying(self, examples):
    if self.step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, examples)
Trainer.take_step = dying
train.train(TrainingConfig("run", **SMALL), tiny(), load_tokenizer())
"""


def test_a_killed_run_goes_on_bit_for_bit(build, tokenizer, monkeypatch):
    program = KILLED.format(tests=str(ROOT))
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    taken = []
    step = Trainer.take_step

    def counted(trainer, examples):
        taken.append(trainer.step)
        return step(trainer, examples)

    monkeypatch.setattr(Trainer, "take_step", counted)
    resumed = train.train(TrainingConfig("run", **SMALL), tiny(), tokenizer)
    assert taken == [4, 5]  # checkpoint_every=2: step 4, done when the process died, is all that was lost
    uninterrupted = train.train(TrainingConfig("whole", **SMALL), tiny(), tokenizer)
    # The name of a run is one of its settings, and shapes no result.
    assert weights(resumed) == weights(uninterrupted)
    logs = [pd.read_csv(folder / train.LOG).drop(columns="seconds") for folder in (resumed, uninterrupted)]
    pd.testing.assert_frame_equal(*logs)


def test_a_checkpoint_of_another_run_is_refused(build, tokenizer):
    config = TrainingConfig("run", **{**SMALL, "steps": 2, "eval_every": 0})
    first = weights(train.train(config, tiny(), tokenizer))
    with pytest.raises(ValueError, match="other settings or another model"):
        train.train(replace(config, seed=1), tiny(), tokenizer)
    assert weights(train.train(replace(config, seed=1), tiny(), tokenizer, fresh=True)) != first


# --- adapter --------------------------------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path):
    """A model in an adapter that does something, and the adapter on disk."""
    peft_model = adapter.add_adapter(tiny(), rank=4, alpha=8.0, seed=0)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in peft_model.named_parameters():
        if "lora_B" in name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    adapter.save_adapter(peft_model, tmp_path / "adapter", "tiny", dtype=torch.float32)
    return peft_model, tmp_path / "adapter"


def test_merged_equals_unmerged_and_is_a_plain_model(trained):
    peft_model, folder = trained
    base, plain = tiny(), tiny()
    merged = embedded.merge_adapter(base, folder)
    ids = torch.randint(0, 49152, (2, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        unmerged, out, before = (m(ids).logits for m in (peft_model, merged, plain))
    assert merged is base and type(merged) is type(plain)
    assert [type(m) for m in merged.modules()] == [type(m) for m in plain.modules()]
    assert (out - unmerged).abs().max() < 1e-4 < (out - before).abs().max()
    changed = {n for n, p in plain.named_parameters() if not torch.equal(p, dict(merged.named_parameters())[n])}
    assert changed == {n for n, _ in plain.named_parameters() if n.split(".")[-2] in adapter.PROJECTIONS}
    check_decomposition(merged)


def test_peft_reads_what_is_saved(trained):
    from peft import PeftModel

    peft_model, folder = trained
    ids = torch.arange(30)[None]
    with torch.no_grad():
        torch.testing.assert_close(PeftModel.from_pretrained(tiny(), folder)(ids).logits, peft_model(ids).logits)


def test_stored_weights_are_half_precision_and_small(trained, tmp_path):
    peft_model, _ = trained
    folder = adapter.save_adapter(peft_model, tmp_path / "half", "tiny")
    state = load_file(folder / embedded.WEIGHTS)
    assert {t.dtype for t in state.values()} == {torch.float16} and len(state) == 2 * 2 * len(adapter.PROJECTIONS)


def test_bad_adapters_are_refused(trained, tmp_path):
    peft_model, folder = trained
    with pytest.raises(ValueError, match="no adapter in .*adapter_config.json is missing"):
        embedded.merge_adapter(tiny(), tmp_path / "nowhere")
    other = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=50, hidden_size=64, intermediate_size=48,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2))  # fmt: skip
    before = model_fingerprint(other)
    with pytest.raises(ValueError, match="does not fit this model"):
        embedded.merge_adapter(other, folder)
    assert model_fingerprint(other) == before
    config = folder / embedded.CONFIG
    text = config.read_text()
    config.write_text(text.replace('"bias"', '"use_dora": true,\n "bias"'))
    with pytest.raises(ValueError, match="use_dora"):
        embedded.merge_adapter(tiny(), folder)
    config.write_text(text)
    (folder / embedded.WEIGHTS).write_bytes(weights(folder)[:100])
    with pytest.raises(ValueError, match="damaged"):
        embedded.merge_adapter(tiny(), folder)
    next(p for n, p in peft_model.named_parameters() if "lora_B" in n).data.fill_(1e9)
    with pytest.raises(ValueError, match="not finite in torch.float16"):
        adapter.save_adapter(peft_model, tmp_path / "broken", "tiny")
    with pytest.raises(ValueError, match="no card"):
        adapter.write_accuracy(tmp_path, pd.DataFrame())
