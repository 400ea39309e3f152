"""Changed contexts through the model in batches: their size, their order and a shared beginning change nothing."""

import pytest
import torch
from transformers import LlamaConfig

from flashtrace_lib.methods import CLP, Perturbation
from flashtrace_lib.methods.perturbation_base import masked_rows
from flashtrace_lib.model import batched_forward
from flashtrace_lib.model.batched_forward import check_batched, kl_from, log_prob_of, score_rows, whole_distribution
from tests.oracles.contexts import close, long_sample, predictions, watched
from tests.oracles.tiny import COMMON, CONFIGS, FAMILIES, tiny_model


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.mark.parametrize("options", [{}, {"units": "sentence"}])
@pytest.mark.parametrize("method", [Perturbation, CLP])
def test_batch_size_changes_nothing(model, method, options, monkeypatch):
    check_batched(model)  # once; its passes are none of the method's
    sample, sizes = long_sample(), watched(model, monkeypatch, len)
    shared = int(method is Perturbation)  # the pass whose keys and values the others begin with
    whole = method(**options).attribute(model, sample)
    n = whole.metadata["forward_passes"] + shared
    assert sum(sizes) == n > len(sizes)
    sizes.clear()
    monkeypatch.setattr(batched_forward, "model_budget", lambda _: 1)
    single = method(**options).attribute(model, sample)
    assert sizes == [1] * n
    sizes.clear()
    monkeypatch.setattr(batched_forward, "model_budget", lambda _: 250_000)
    some = method(**options).attribute(model, sample)
    assert 1 < max(sizes) < n
    for other in (single, some):
        close(whole.metadata["signed"], other.metadata["signed"])


def test_row_order_changes_nothing(model):
    sample = long_sample()
    rows = [sample.input_ids[start:87] for start in (0, 3, 9, 20, 20, 41)]  # contexts of unequal length
    measure = log_prob_of(sample.input_ids[77:88])
    values = score_rows(model, rows, 11, measure)
    for order in ([5, 4, 3, 2, 1, 0], [2, 0, 4, 5, 1, 3]):
        close(score_rows(model, [rows[i] for i in order], 11, measure), values[order])


@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_rows_are_read_at_their_own_length_where_rotation_depends_on_it(kind, monkeypatch):
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4} if kind == "longrope" else {}
    rope = {"rope_type": kind, "factor": 4.0, "original_max_position_embeddings": 40, "rope_theta": 1e4} | factors
    settings = COMMON | {"max_position_embeddings": 40, "rope_parameters": rope}
    monkeypatch.setitem(CONFIGS, "llama", LlamaConfig(**settings))
    ids = long_sample().input_ids
    rows, measure = [ids[:42], ids[:38]], log_prob_of(ids[36:40])
    with torch.inference_mode():
        alone = [tiny_model()(input_ids=row[None]).logits[0, -4:].log_softmax(-1) for row in rows]
    expected = torch.stack([measure(log_probs, slice(None)) for log_probs in alone])
    for resembling in (None, ids[:42]):
        close(score_rows(tiny_model(), rows, 4, measure, resembling=resembling), expected)


def test_a_model_that_returns_all_logits_is_read_right(model, monkeypatch):
    sample = long_sample()
    expected, forward = CLP().attribute(model, sample).metadata["signed"], type(model).forward
    monkeypatch.setattr(type(model), "forward", lambda self, *, logits_to_keep, **kw: forward(self, **kw))
    close(CLP().attribute(model, sample).metadata["signed"], expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_shared_beginning_is_computed_once_and_changes_nothing(family, monkeypatch):
    model, sample = tiny_model(family), long_sample()
    rows = list(masked_rows(sample, [(i, i + 1) for i in range(3, 57)]))
    measure = log_prob_of(sample.input_ids[77:88])
    rows.insert(5, rows[0][:80])  # a shorter one in between
    expected, computed = score_rows(model, rows, 11, measure), watched(model, monkeypatch, torch.numel)
    close(score_rows(model, rows, 11, measure, resembling=rows[0]), expected, 1e-4)
    windowed = family in ("mistral", "gemma2", "gemma3")  # keep too little to share
    assert sum(computed) > sum(map(len, rows)) if windowed else sum(computed) < 0.8 * sum(map(len, rows))


def test_distances_of_distributions():
    p = torch.tensor([[0.5, 0.5, 0.0]]).log()
    q, part = torch.tensor([[0.25, 0.25, 0.5]]).log(), slice(0, 1)
    assert kl_from(p)(q, part).item() == pytest.approx(torch.tensor(2.0).log().item())
    assert kl_from(p)(p, part).item() == 0


def test_hidden_tokens_in_rows_of_unequal_length(model):
    """Hidden or not, short or long, in one batch, alone, or behind a shared beginning: the same predictions."""
    ids = long_sample().input_ids
    rows, masks = [ids[:87], ids[:87], ids[:84], ids[3:87]], [torch.ones(n, dtype=torch.bool) for n in (87, 87, 84, 84)]
    masks[0][10:31] = masks[2][50:60] = masks[3][0:4] = False
    alone = [score_rows(model, [r], 11, whole_distribution, visible=[m])[0] for r, m in zip(rows, masks, strict=True)]
    close(score_rows(model, rows, 11, whole_distribution, visible=masks), torch.stack(alone), 1e-4)
    shared = score_rows(model, rows, 11, whole_distribution, visible=masks, resembling=ids[:87])
    close(shared, torch.stack(alone), 1e-4)
    close(alone[1], score_rows(model, rows[1:2], 11, whole_distribution)[0], 1e-4)
    assert (alone[0] - alone[1]).abs().max() > 1e-2
    with pytest.raises(ValueError, match="shorter"):
        score_rows(model, rows, 11, whole_distribution, visible=masks[:2])


def test_whole_distribution_in_chunks(model, monkeypatch):
    ids = long_sample().input_ids[:88]
    monkeypatch.setattr("flashtrace_lib.model.batched_forward.CHUNK_BYTES", 4 * 97 * 4)  # four positions of 97 logits
    close(score_rows(model, [ids[:-1]], 11, whole_distribution)[0], predictions(model, ids, 11), 1e-4)
