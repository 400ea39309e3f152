"""ReAGent's proposals: tokens drawn from the causal model, or from a masked language model."""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForMaskedLM

from flashtrace_lib import Sample, Segments
from flashtrace_lib.methods import ReAGent
from flashtrace_lib.methods.reagent_proposals import DRAWS, CausalProposals, _draw_others, make_proposer
from flashtrace_lib.sample import seeded_generator
from tests.oracles.naive_reagent import log_probs_of
from tests.oracles.tiny import tiny_model, tiny_sample


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def test_the_models_own_proposals(model):
    sample = tiny_sample()
    proposer = CausalProposals(model, sample, (1, 12), seeded_generator(0, sample))
    chosen = torch.zeros(2, 16, dtype=torch.bool)
    chosen[0, 3], chosen[1, [5, 11]] = True, True
    out = proposer(chosen, [torch.Generator().manual_seed(row) for row in range(2)])
    assert torch.equal(out[~chosen], sample.input_ids.repeat(2, 1)[~chosen])
    assert (out[chosen] != sample.input_ids.repeat(2, 1)[chosen]).all()
    for row in range(2):  # a row depends on its own generator alone
        alone = proposer(chosen[row : row + 1], [torch.Generator().manual_seed(row)])
        assert torch.equal(alone[0], out[row])
    assert proposer.forward_passes == 1


def test_proposals_are_drawn_as_the_model_predicts_them(model):
    """Their shares are the probabilities without the original and the special tokens (chi-square, four deviations)."""
    log_probs = log_probs_of(model, tiny_sample().input_ids)[4].repeat(400, 1)  # [400, V]
    original, special = torch.full((400,), log_probs[0].argmax().item()), [0, 1, 2]
    uniform = torch.rand(400, DRAWS, generator=torch.Generator().manual_seed(0)).double()
    counts = torch.bincount(_draw_others(log_probs, original, special, uniform).flatten(), minlength=97).double()
    probability = log_probs[0].exp()
    probability[[*special, original[0].item()]] = 0
    assert (counts[probability == 0] == 0).all()
    expected = 400 * DRAWS * probability / probability.sum()
    counts, expected = counts[probability > 0], expected[probability > 0]
    free = len(counts) - 1
    assert expected.min() > 5 and abs(((counts - expected) ** 2 / expected).sum() - free) < 4 * (2 * free) ** 0.5


def test_the_models_own_proposals_piece_by_piece(model):
    sample = tiny_sample(n=220, prompt=(1, 200), reasoning=(200, 200), output=(210, 215))
    chosen = torch.ones(1, 220, dtype=torch.bool)
    whole, pieces = (CausalProposals(model, sample, (1, 200), torch.Generator().manual_seed(0), b) for b in (None, 1))
    drawn = [proposer(chosen, [torch.Generator().manual_seed(1)]) for proposer in (whole, pieces)]
    assert pieces.forward_passes == 4 and torch.equal(*drawn)


def test_a_first_token_without_context_follows_a_mask_token(model):
    sample = Sample(tiny_sample().input_ids, Segments((0, 8), (9, 12), (12, 15)), mask_token_id=0)
    pool = CausalProposals(model, sample, (0, 8), torch.Generator().manual_seed(0))._pool
    led = log_probs_of(model, torch.cat([torch.tensor([0]), sample.input_ids]))[:8]  # [8, V]
    uniform = torch.rand(16, DRAWS, generator=torch.Generator().manual_seed(0)).double()[:8]
    assert torch.equal(pool[:8], _draw_others(led, sample.input_ids[:8], [0, 1, 2], uniform))
    assert torch.equal(pool[8:], sample.input_ids[8:, None].repeat(1, DRAWS))


def word_tokenizer(words):
    vocabulary = {word: i for i, word in enumerate(["<s>", "</s>", "<unk>", "<pad>", "<mask>", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = dict(bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **names, unk_token="<unk>", pad_token="<pad>", mask_token="<mask>"
    )


WORDS = [f"w{i}" for i in range(92)]


@pytest.fixture(scope="module")
def masked_folder(tmp_path_factory):
    """A tiny masked language model whose vocabulary holds the causal model's words in reverse order."""
    folder = tmp_path_factory.mktemp("masked")
    torch.manual_seed(3)
    config = RobertaConfig(
        vocab_size=97,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
        pad_token_id=3,
        initializer_range=0.5,
    )
    masked = RobertaForMaskedLM(config).eval()
    with torch.no_grad():
        masked.lm_head.bias[:5] = 100  # it would predict special tokens if it were let
    masked.save_pretrained(folder)
    word_tokenizer(WORDS[::-1]).save_pretrained(folder)
    return folder, masked


def written_sample():
    sample = tiny_sample()
    ids = sample.input_ids.clone().clamp_min(5)
    tokens = [f" w{i - 5}" for i in ids.tolist()]
    return Sample(ids, sample.segments, tokens=tokens, mask_token_id=3)


def test_proposals_of_a_masked_language_model(model, masked_folder):
    folder, masked = masked_folder
    sample, causal = written_sample(), word_tokenizer(WORDS)
    chosen = torch.zeros(2, 16, dtype=torch.bool)
    chosen[0, [2, 7]], chosen[1, [1, 11]] = True, True
    # the most probable word at one position, as the masked model sees it, is the one that stands there
    out = make_proposer(str(folder), model, sample, (1, 12), torch.Generator(), causal)(chosen, [])
    assert (out[chosen] != sample.input_ids.repeat(2, 1)[chosen]).all()
    assert torch.equal(out[~chosen], sample.input_ids.repeat(2, 1)[~chosen])
    for row, marks in enumerate(chosen):
        # the 12 tokens before O, in pieces of 16 - 4 - 2 = 10, each between <s> and </s>
        text = [4 if mark else 96 - (int(i) - 5) for i, mark in zip(sample.input_ids[:12], marks, strict=False)]
        for at in (0, 10):
            piece = text[at : at + 10]
            with torch.no_grad():
                logits = masked(torch.tensor([[0, *piece, 1]])).logits[0, 1:-1]
            for i, token in enumerate(piece):
                if token == 4:
                    ranked = (5 + logits[i, 5:].argsort(descending=True)).tolist()  # its ordinary words
                    words = [5 + (96 - word) for word in ranked]
                    assert out[row, at + i] == next(word for word in words if word != sample.input_ids[at + i])


def test_reagent_with_a_masked_language_model(model, masked_folder):
    method = ReAGent(proposals=str(masked_folder[0]), tokenizer=word_tokenizer(WORDS), max_steps=3)
    att = method.attribute(model, written_sample())
    assert att.scores.sum().item() == pytest.approx(1)
    assert att.metadata["proposals"] == f"masked language model {masked_folder[0]}"
    assert "tokenizer" not in att.metadata["options"] and att.metadata["options"]["proposals"] == str(masked_folder[0])
    # no pass of the explained model for the proposals; a third one at the end of a run
    assert att.metadata["forward_passes"] == 2 * sum(att.metadata["steps"]) + sum(att.metadata["stopped"]) + 1


def test_missing_proposal_model_says_what_to_do(model, tmp_path):
    sample = written_sample()
    with pytest.raises(ValueError, match="needs tokenizer.*proposals='model'"):
        ReAGent(proposals="roberta-base").attribute(model, sample)
    with pytest.raises(ValueError, match="cannot load masked language model"):
        ReAGent(proposals=str(tmp_path / "none"), tokenizer=word_tokenizer(WORDS)).attribute(model, sample)
    with pytest.raises(ValueError, match="needs Sample.tokens"):
        ReAGent(proposals="roberta-base", tokenizer=word_tokenizer(WORDS)).attribute(model, tiny_sample())
