"""Attention suppression against naive loops in float64, identities, and models that are refused."""

import copy

import pytest
import torch
from transformers import BertConfig, BertLMHeadModel, BloomConfig, BloomForCausalLM, MambaConfig, MambaForCausalLM

from flashtrace_lib import load_model
from flashtrace_lib.methods import ResponseSuppression, Suppression
from flashtrace_lib.methods.suppression import check_suppressible
from flashtrace_lib.model.batched_forward import score_rows, whole_distribution
from tests.oracles.contexts import SENTENCES, close, long_sample, watched
from tests.oracles.naive_suppression import naive_matrix
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample
from tests.oracles.tiny_families import tiny_random_model

SHORT = [(1, 4), (4, 8), (9, 11), (11, 12), (12, 14), (14, 15)]  # tile I, T and O of tiny_sample


def short_sample(**options):
    sample = tiny_sample(**options)
    sample.sentences = SHORT
    return sample


def sample_from_the_start():
    """Its first sentence begins at the first token, and the second is longer than any window here."""
    sample = tiny_sample(n=28, prompt=(0, 14), reasoning=(15, 21), output=(21, 27))
    sample.sentences = [(0, 3), (3, 12), (12, 14), (15, 18), (18, 21), (21, 24), (24, 27)]
    return sample


def walked(sample, matrix, rows, columns):
    """Walk over a full token-by-token matrix, every effect shared by the tokens of its sentence."""
    w = torch.zeros(len(sample), dtype=torch.float64)
    start, stop = sample.segments.output
    w[start:stop] = 1 / (stop - start)
    for (a, b), effects in reversed(list(zip(rows, matrix, strict=True))):
        arrived, total = w[a:b].sum(), effects.sum()
        w[a:b] = 0
        for (first, last), effect in zip(columns, effects, strict=True):
            w[first:last] += arrived * effect / total / (last - first)
    on_input = w[slice(*sample.segments.prompt)]
    return on_input / on_input.sum()


# --- oracles


@pytest.mark.parametrize("make", [short_sample, sample_from_the_start])
@pytest.mark.parametrize("family", FAMILIES)
def test_matrix_and_scores_equal_naive_on_every_family(family, make):
    model, sample = tiny_model(family), make()
    found = Suppression().matrix(model, sample)
    inside = [s for s in sample.sentences if s[1] <= sample.segments.prompt[1]]
    reasoning = [s for s in sample.sentences if sample.segments.reasoning[0] <= s[0] < sample.segments.reasoning[1]]
    output = [s for s in sample.sentences if s[0] >= sample.segments.output[0]]
    assert found.columns == inside + reasoning and found.rows == reasoning + output
    expected = naive_matrix(model, sample, found.rows, found.columns)
    assert expected.max() > 1e-3  # far above the tolerance
    close(found.values, expected)
    att = Suppression().attribute(model, sample)
    close(att.scores, walked(sample, expected, found.rows, found.columns))
    assert att.metadata["forward_passes"] == 1 + len(found.columns) and att.metadata["backward_passes"] == 0


@pytest.mark.parametrize("make", [short_sample, sample_from_the_start, long_sample])
@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_from_the_response_alone_equals_naive_or_is_refused(family, make):
    model, sample, method = tiny_model(family), make(), ResponseSuppression()
    if getattr(model.config, "sliding_window", None):
        with pytest.raises(ValueError, match=f"{model.config.model_type}.* hidden from the response alone"):
            method.matrix(model, sample)
        return
    found, everywhere = method.matrix(model, sample), Suppression().matrix(model, sample)
    first = sample.segments.generated[0] - 1
    expected = naive_matrix(model, sample, found.rows, found.columns, first)
    close(found.values, expected)
    close(method.attribute(model, sample).scores, walked(sample, expected, found.rows, found.columns))
    of_reasoning = [start >= first for start, _ in found.columns]
    close(found.values[:, of_reasoning], everywhere.values[:, of_reasoning])
    assert (found.values - everywhere.values).abs().max() > 1e-3


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_matrix_equals_an_additive_mask_of_four_dimensions(implementation):
    """A second derivation, by the model's own eager attention: −∞ on the suppressed keys of later queries."""
    model, sample = tiny_model("qwen3"), long_sample()
    model.set_attn_implementation(implementation)
    found, exact = Suppression().matrix(model, sample), copy.deepcopy(model).double()
    exact.set_attn_implementation("eager")
    n = len(sample)

    def log_probs(start=0, stop=0):
        mask = torch.full((n, n), -torch.inf, dtype=torch.float64).triu(1)
        mask[stop:, start:stop] = -torch.inf
        with torch.no_grad():
            return exact(input_ids=sample.input_ids[None], attention_mask=mask[None, None]).logits[0].log_softmax(-1)

    intact = log_probs()
    for k, (start, stop) in enumerate(found.columns):
        divergence = (intact.exp() * (intact - log_probs(start, stop))).sum(-1)  # [N]
        for g, (a, b) in enumerate(found.rows):
            close(found.values[g, k], divergence[a - 1 : b - 1].mean() if a >= stop else 0.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_suppressed_does_not_matter(family):
    """Whatever the ids of hidden tokens are, the predictions behind them are the same."""
    model, sample = tiny_model(family), long_sample()
    hidden, visible = slice(*SENTENCES[3]), torch.ones(87, dtype=torch.bool)
    visible[hidden] = False
    other = sample.input_ids[:87].clone()
    other[hidden] = 5
    rows = [sample.input_ids[:87], other]
    suppressed = score_rows(model, rows, 28, whole_distribution, visible=[visible, visible])
    close(*suppressed)
    plain = score_rows(model, rows, 28, whole_distribution)
    assert (plain[0] - plain[1]).abs().max() > 1e-2 < (plain[0] - suppressed[0]).abs().max()


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
def test_batches_and_a_shared_beginning_change_nothing(family, monkeypatch):
    model, sample = tiny_model(family), long_sample()
    whole, computed = Suppression().matrix(model, sample).values, watched(model, monkeypatch, torch.numel)
    monkeypatch.setattr("flashtrace_lib.model.batched_forward.model_budget", lambda model: 1)
    close(Suppression().matrix(model, sample).values, whole)
    assert sum(computed) < (6 if family == "llama" else 8) * 87  # 5 columns, the intact context, the shared beginning
    if family == "llama":
        computed.clear()
        ResponseSuppression().matrix(model, sample)
        assert sum(computed) <= 87 + 6 * 28  # the context, and of each column and intact what predicts T and O


def test_a_sample_without_sentences_has_units_of_its_own():
    model, sample = tiny_model(), tiny_sample()
    att, matrix = Suppression().attribute(model, sample), Suppression().matrix(model, sample)
    assert matrix.columns == [(i, i + 1) for i in range(1, 8)] + [(9, 12)] and matrix.rows == [(9, 12), (12, 15)]
    assert not att.metadata["has_sentences"] and att.scores.sum().item() == pytest.approx(1)


# --- what is refused


class Deaf(type(tiny_model("llama"))):
    """A model that ignores its attention mask."""

    def forward(self, input_ids, attention_mask=None, position_ids=None, **kwargs):
        return super().forward(input_ids, position_ids=position_ids, **kwargs)


def refused():
    sizes = dict(vocab_size=97, hidden_size=16, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(0)
    yield "bloom counts its positions", BloomForCausalLM(BloomConfig(**sizes, n_layer=2, n_head=2))
    yield "mamba has layers other than", MambaForCausalLM(MambaConfig(**sizes, num_hidden_layers=2))
    yield (
        "bert does not .* or looks ahead",
        BertLMHeadModel(BertConfig(**sizes, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)),
    )
    deaf = Deaf(tiny_model("llama").config)
    deaf.load_state_dict(tiny_model("llama").state_dict())
    yield "llama does not leave out", deaf


@pytest.mark.parametrize("message, model", list(refused()), ids=["bloom", "mamba", "bert", "deaf"])
def test_models_that_cannot_be_suppressed_are_refused_by_name(message, model):
    with pytest.raises(ValueError, match=message):
        Suppression().matrix(model.eval(), short_sample())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_families_of_the_tests_are_not_refused(family):
    check_suppressible(tiny_model(family))
    check_suppressible(tiny_model(family, torch.bfloat16))


@pytest.mark.parametrize("family", ["opt", "gpt2", "falcon", "deepseek_v3", "llama4_text", "gpt_oss"])
def test_other_families_are_not_refused(family):
    """Positions that are learned and counted from the mask (OPT), latent attention, chunks, sinks."""
    check_suppressible(tiny_random_model(family))


@pytest.mark.parametrize("name", ["embedded", "embedded-base"])
def test_the_books_models_are_not_refused(name):
    """The first tokens of their vocabulary are untrained: there, rounding alone is larger than what is allowed."""
    check_suppressible(load_model(name)[0])


def test_sentences_that_do_not_tile_are_refused():
    sample = tiny_sample()
    sample.sentences = [(1, 8), (9, 11), (12, 15)]
    with pytest.raises(ValueError, match="do not tile"):
        Suppression().matrix(tiny_model(), sample)
