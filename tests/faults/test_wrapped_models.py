"""Models as users have them: wrapped, adapted, packed, offloaded, shared by threads. Right values, or a sentence."""

import threading
from functools import partial

import pytest
import torch
from accelerate import cpu_offload
from peft import LoraConfig, PrefixTuningConfig, PromptEncoderConfig, PromptTuningConfig, get_peft_model
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration

from flashtrace_lib.methods import chosen_method
from flashtrace_lib.model.batched_forward import SharedPrefix, log_prob_of, score_rows
from flashtrace_lib.model.wrapped import in_use
from tests.oracles.tiny import tiny_model, tiny_sample
from tests.oracles.tiny_families import tiny_random_model

GRADIENTS = ("attnlrp", "gim", "ig", "ig_attn")
METHODS = ("flashtrace", "perturbation", "contextcite", "suppression", *GRADIENTS)
close = partial(torch.testing.assert_close, atol=1e-5, rtol=0)


def scores(model, method, seed=0):
    sample = tiny_sample(seed=seed)
    sample.sentences = [(1, 4), (4, 8), (9, 12), (12, 15)]
    return chosen_method(method, None).attribute(model, sample).scores


class Around(nn.Module):
    """What holds a language model under some name, beside a head of its own."""

    def __init__(self, model, name="pretrained_model"):
        super().__init__()
        self.add_module(name, model)
        self.v_head = nn.Linear(32, 1)


class FullyShardedDataParallel(Around):
    pass


def replaced(make, *names):
    """A model whose modules of these names are made anew."""
    model = tiny_model()
    for parent in list(model.modules()):
        for name in {name for name, _ in parent.named_children()} & {*names}:
            setattr(parent, name, make(getattr(parent, name)))
    return model


def compiled(how):
    model = tiny_model()
    model.compile() if how == "in place" else setattr(model, "forward", torch.compile(model.forward))
    return model


def adapted(how, merged):
    torch.manual_seed(0)
    model = get_peft_model(tiny_model(), LoraConfig(r=2, init_lora_weights=False, **how)).eval()
    return model.merge_and_unload() if merged else model


LORAS = {
    "LoRA on the embedding": {"target_modules": ["embed_tokens"]}, "LoRA on the head": {"target_modules": ["lm_head"]},
    "both saved whole": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
    "some tokens": {"target_modules": ["q_proj", "v_proj", "down_proj"], "trainable_token_indices": [3, 4]},
}  # fmt: skip
MODELS = {  # how it is made, and what it has to equal
    "compiled": (lambda: torch.compile(tiny_model()), tiny_model),
    "compiled, parallel": (lambda: nn.DataParallel(torch.compile(tiny_model())), tiny_model),
    "compiled forward": (partial(compiled, "forward"), tiny_model),
    "compiled in place": (partial(compiled, "in place"), tiny_model),
    "compiled parts": (lambda: replaced(torch.compile, "0", "1", "2", "mlp"), tiny_model),
    "value head": (lambda: Around(tiny_model()), tiny_model),
    **{name: (partial(adapted, how, False), partial(adapted, how, True)) for name, how in LORAS.items()},
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("made, plain", MODELS.values(), ids=MODELS)
def test_a_model_in_another_form_has_the_scores_of_the_plain_one(made, plain, method):
    close(scores(made(), method), scores(plain(), method))


@pytest.mark.parametrize("kind", [PromptTuningConfig, PrefixTuningConfig, PromptEncoderConfig])
def test_virtual_tokens_count_where_the_input_is_changed_and_are_named_elsewhere(kind):
    torch.manual_seed(0)
    how = {"encoder_hidden_size": 16} if kind is PromptEncoderConfig else {}
    model = get_peft_model(tiny_model(), kind(task_type="CAUSAL_LM", num_virtual_tokens=3, **how)).eval()
    ids = tiny_sample().input_ids
    rows, targets = [ids[:14], ids.flip(0)[:14], ids[:12]], ids[11:14]
    with torch.no_grad():
        plain = torch.stack([model(row[None]).logits[0, -3:] for row in rows]).log_softmax(-1)  # [3, 3, V]
    expected = plain.gather(-1, targets.expand(3, 3)[..., None])[..., 0]
    close(score_rows(model, rows, 3, log_prob_of(targets), resembling=ids[:14]), expected)
    for method in ("flashtrace", "suppression", *GRADIENTS):
        with pytest.raises(ValueError, match="virtual tokens|positions"):
            scores(model, method)
    with model.disable_adapter():
        close(scores(model, "flashtrace"), scores(tiny_model(), "flashtrace"))


def test_a_batch_that_predicts_something_else_is_refused():
    model = tiny_model()
    forward = model.forward
    model.forward = lambda input_ids, **how: forward(input_ids.flip(-1) if len(input_ids) > 1 else input_ids, **how)
    with pytest.raises(ValueError, match="in a batch of changed contexts its logits are not those of an ordinary pass"):
        scores(model, "perturbation")


class Layer(nn.Module):
    """A layer without gradients: rounds what it reads by a scale that alone has a slope, or leaves the graph."""

    def __init__(self, inner, way):
        super().__init__()
        self.in_features, self.inner, self.way = getattr(inner, "in_features", 32), inner, way

    def forward(self, x):
        scale = (x.abs().amax(-1, keepdim=True) / 127).clamp_min(1e-9)
        return self.inner((x / scale).round() * scale if self.way == "round" else x.detach())


@pytest.mark.parametrize("method", GRADIENTS)
@pytest.mark.parametrize("way, names", [("round", ["q_proj"]), ("round", ["lm_head"]), ("detach", ["mlp"])])
def test_a_layer_without_gradients_is_named(way, names, method):
    model = replaced(lambda inner: Layer(inner, way), *names)
    with pytest.raises(ValueError, match="^Layer .*passes no gradient on.*'perturbation'"):
        scores(model, method)
    assert scores(model, "perturbation").any()


@pytest.mark.parametrize("model, message", [
    (lambda: tiny_model().model, "LlamaModel is no decoder with a head.*AutoModelForCausalLM"),
    (lambda: T5ForConditionalGeneration(T5Config(d_model=8, d_ff=8, num_layers=1)), "T5.* is no decoder"),
    (lambda: Around(tiny_model(), "backbone"), r"Around is no causal language model.*\(\.backbone\)"),
    (lambda: FullyShardedDataParallel(tiny_model(), "module"), "sharded over processes.*load_model"),
    (lambda: "http://localhost:8000/v1", "a served model .*response="),
    (lambda: "gpt2", r"str is no causal language model.*load_model\(name\)"),
])  # fmt: skip
def test_what_is_no_language_model_says_what_to_pass(model, message):
    for method in ("flashtrace", "perturbation", "ig"):
        with pytest.raises(ValueError, match=message):
            scores(model(), method)


def test_offloaded_weights_are_brought_in_or_named():
    model = cpu_offload(tiny_model(), torch.device("cpu"))
    close(scores(model, "perturbation"), scores(tiny_model(), "perturbation"))
    for method in ("flashtrace", *GRADIENTS):
        with pytest.raises(ValueError, match="weights are offloaded.*more GPUs"):
            scores(model, method)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_threads_that_share_a_model_get_what_one_gets(family):
    """Attributions, those of a twin with the same configuration, and a generation of the user's own."""
    model, found, ids = tiny_model(family), {}, tiny_sample().input_ids[None, :6]
    jobs = {(name, seed): partial(scores, model, name, seed) for name in METHODS for seed in (0, 1)}
    twin = type(model)(model.config).eval()
    jobs |= {("twin", k): partial(scores, twin, "flashtrace", k) for k in range(9)}
    jobs["own"] = lambda: torch.cat([model.generate(ids, max_new_tokens=12, do_sample=False) for _ in range(20)])
    expected, names = {name: job() for name, job in jobs.items()}, list(jobs)
    threads = [threading.Thread(target=lambda i=i: found.update({n: jobs[n]() for n in names[i::3]})) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    close(found, expected)


def test_another_arithmetic_around_an_attribution(monkeypatch):
    model = tiny_model()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = scores(model, "flashtrace")
    close(found, scores(model, "flashtrace"))
    own = torch.backends.mkldnn.matmul
    own.fp32_precision = "bf16"  # where the processor can; the general name is an error then
    with in_use(model), in_use(tiny_model("gemma2")):
        assert torch.get_float32_matmul_precision() == "highest" and own.fp32_precision == "ieee"
    assert own.fp32_precision == "bf16"
    own.fp32_precision = "none"
    monkeypatch.setattr(torch, "get_default_dtype", lambda: torch.float64)
    with pytest.raises(ValueError, match="computes in float32: call torch.set_default_dtype"), in_use(model):
        pass


def test_a_pass_of_another_thread_between_attention_and_its_projection_changes_nothing():
    model, owner = tiny_model(), threading.get_ident()
    expected = scores(model, "flashtrace")

    def disturb(module, args):
        if threading.get_ident() == owner:
            other = threading.Thread(target=torch.inference_mode()(lambda: module(torch.randn_like(args[0]))))
            other.start()
            other.join()

    model.model.layers[1].self_attn.o_proj.register_forward_pre_hook(disturb)
    close(scores(model, "flashtrace"), expected)


def test_a_picture_read_before_moves_no_text():
    model = tiny_random_model("glm4v")
    holder = next(module for module in model.modules() if hasattr(module, "rope_deltas"))
    before, holder.rope_deltas = scores(model, "perturbation"), torch.tensor([[-7]])
    close(scores(model, "perturbation"), before)
    assert holder.rope_deltas.tolist() == [[-7]]  # as it was found


def test_layers_that_read_pictures_have_no_keys_of_a_text():
    model = tiny_random_model("mllama")
    shared = SharedPrefix(model, tiny_sample().input_ids)
    assert shared.nbytes == 0 and all(scores(model, one).sum() > 0 for one in ("flashtrace_causal", "perturbation"))
