"""ReAGent against a plain loop, its stopping rule, and its proposals."""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForMaskedLM

from flashtrace_lib import Sample, Segments
from flashtrace_lib.methods import ReAGent
from flashtrace_lib.methods.reagent_proposals import DRAWS, CausalProposals, _draw_others, make_proposer
from flashtrace_lib.sample import seeded_generator
from tests.oracles.planted import planted_model, planted_sample
from tests.oracles.tiny import tiny_model, tiny_sample

SENTENCES = [(1, 4), (4, 5), (5, 8), (9, 11), (11, 12), (12, 15)]


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def log_probs_of(model, ids):
    with torch.no_grad():
        return model(input_ids=ids[None]).logits[0].double().log_softmax(-1)  # [N, V]


def naive_reagent(model, sample, spans, *, runs, steps, replace, keep, top_k, distance, seed=0):
    """One forward at a time, loops over runs, targets and units; only the order of the draws is agreed on."""
    ids, n = sample.input_ids, len(spans)
    first, last = sample.segments.output
    pool = pool_of(model, sample, (spans[0][0], spans[-1][1]), seed)
    intact = log_probs_of(model, ids)

    def replaced(context, units, random):
        out, picks = context.clone(), torch.randint(DRAWS, ids.shape, generator=random)
        for u in units:
            for j in range(*spans[u]):
                out[j] = pool[j, picks[j]]
        return out

    def keeps(context):
        log_probs = log_probs_of(model, context)
        return all(int(ids[t]) in log_probs[t - 1].topk(top_k).indices.tolist() for t in range(first, last))

    each, taken, stopped, passes = [], [0] * runs, [False] * runs, 1
    for run in range(runs):
        random = seeded_generator(f"{seed}:{run}", sample)
        z = torch.rand((last - first, n), generator=random, dtype=torch.float64)
        while taken[run] < steps and not stopped[run]:
            taken[run] += 1
            passes += 2
            chosen = set(torch.rand(n, generator=random).argsort().tolist()[: round(replace * n)])
            now = log_probs_of(model, replaced(ids, chosen, random))
            for r, t in enumerate(range(first, last)):
                if distance == "probability":
                    delta = (intact[t - 1, ids[t]].exp() - now[t - 1, ids[t]].exp()).item()
                else:
                    p, q = intact[t - 1].exp(), now[t - 1].exp()
                    delta = (1 - (p * q).sqrt().sum()).clamp_min(0).sqrt().item()
                step = torch.logit(torch.tensor((1 + delta) / 2, dtype=torch.float64)).item()
                for u in range(n):
                    z[r, u] += step if u in chosen else -step
            importance = sum(row.exp() / row.exp().sum() for row in z) / len(z)
            ranked = sorted(range(n), key=lambda u: (-importance[u].item(), u))
            count = max(1, round(keep * n))
            alone = replaced(ids, ranked[count:], random)
            if keeps(alone):
                passes += 1
                stopped[run] = not keeps(replaced(alone, ranked[:count], random))
        each.append(sum(row.exp() / row.exp().sum() for row in z) / len(z))
    return torch.stack(each).mean(0), taken, stopped, passes


def pool_of(model, sample, region, seed=0):
    """The tokens that the causal model may propose at each position, [N, DRAWS]."""
    generator = seeded_generator(f"{seed}:proposals", sample)
    return CausalProposals(model, sample, region, generator)._pool


@pytest.mark.parametrize("distance", ["probability", "hellinger"])
@pytest.mark.parametrize("units", ["token", "sentence"])
@pytest.mark.parametrize("region", ["context", "input"])
def test_equals_the_plain_loop(model, distance, units, region):
    sample = tiny_sample()
    sample.sentences = list(SENTENCES)
    spans = [s for s in (SENTENCES if units == "sentence" else [(i, i + 1) for i in range(16)]) if 1 <= s[0] < 12]
    spans = [s for s in spans if s != (8, 9) and (region == "context" or s[0] < 8)]
    options = dict(distance=distance, runs=4, top_k=60)  # of 97: some runs stop, some do not
    expected, taken, stopped, passes = naive_reagent(model, sample, spans, steps=6, replace=0.4, keep=0.3, **options)
    att = ReAGent(units=units, region=region, max_steps=6, replace_share=0.4, keep_share=0.3, **options).attribute(
        model, sample
    )
    signed = torch.zeros(16, dtype=torch.float64)
    for value, (start, stop) in zip(expected, spans, strict=True):
        signed[start:stop] = value
    on_input = signed[1:8]
    torch.testing.assert_close(att.scores.double(), on_input / on_input.sum(), atol=1e-5, rtol=0)
    assert att.metadata["steps"] == taken and att.metadata["stopped"] == stopped
    assert att.metadata["forward_passes"] == passes + 1  # one for the proposals
    assert att.metadata["n_units"] == len(spans) and att.metadata["units"] == units


def test_stops_when_the_top_units_alone_keep_the_prediction():
    model, sample = planted_model(), planted_sample()
    att = ReAGent(runs=4).attribute(model, sample)
    assert all(att.metadata["stopped"]) and max(att.metadata["steps"]) < 50
    endless = ReAGent(runs=4, top_k=1, keep_share=0.05, region="input", max_steps=3, seed=2).attribute(model, sample)
    assert max(endless.metadata["steps"]) <= 3
    assert att.metadata["proposals"] == "causal model"


def test_goes_on_where_the_top_units_do_not_decide(model):
    """With the whole vocabulary as top k, O is always kept: that says nothing of any unit."""
    att = ReAGent(runs=2, top_k=97, max_steps=4).attribute(model, tiny_sample())
    assert att.metadata["stopped"] == [False, False] and att.metadata["steps"] == [4, 4]
    # a step: the change, the top units alone, and without them; then the intact context and the proposals
    assert att.metadata["forward_passes"] == 3 * 8 + 2


def test_what_a_model_is_sure_of_is_replaced_all_the_same():
    """The most probable proposal is the token that stands there: another one is drawn."""
    model, sample = planted_model(), planted_sample()
    best = log_probs_of(model, sample.input_ids).argmax(-1)
    sample.input_ids[16:18] = best[15]  # T repeats what follows from the evidence
    proposer = CausalProposals(model, sample, (2, 18), seeded_generator(0, sample))
    chosen = torch.zeros(1, len(sample), dtype=torch.bool)
    chosen[0, 2:18] = True
    assert best[15] == sample.input_ids[16]
    for draw in range(20):
        out = proposer(chosen, [torch.Generator().manual_seed(draw)])[0]
        assert not (out == sample.input_ids)[2:18].any()


def test_runs_do_not_depend_on_each_other(model):
    """Two runs are the mean of the first and a second one."""
    sample = tiny_sample()
    options = dict(max_steps=5, region="input")
    one, two, three = (ReAGent(runs=runs, **options).attribute(model, sample) for runs in (1, 2, 3))
    first, both, all_three = (torch.tensor(att.metadata["signed"]) for att in (one, two, three))
    second, third = 2 * both - first, 3 * all_three - 2 * both
    for part in (first, second, third):  # each is a distribution over the units
        assert (part > 0).all() and part.sum().item() == pytest.approx(1)


def test_same_seed_same_result(model):
    sample = tiny_sample()
    a = ReAGent(max_steps=5).attribute(model, sample)
    torch.rand(3)  # the global generator plays no part
    assert torch.equal(a.scores, ReAGent(max_steps=5).attribute(model, sample).scores)
    assert not torch.equal(a.scores, ReAGent(max_steps=5, seed=1).attribute(model, sample).scores)
    small = ReAGent(max_steps=5, max_batch_bytes=1).attribute(model, sample)
    torch.testing.assert_close(a.scores, small.scores, atol=1e-5, rtol=0)


def test_more_runs_average(model):
    """The spread over seeds falls as runs are averaged."""
    sample = tiny_sample()

    def spread(runs):
        scores = [ReAGent(runs=runs, max_steps=3, seed=seed).attribute(model, sample).scores for seed in range(8)]
        return torch.stack(scores).std(0).mean()

    assert spread(8) < 0.7 * spread(1)


# --- proposals


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


# --- bad input


@pytest.mark.parametrize(
    "options, message",
    [
        ({"distance": "kl"}, "probability, hellinger"),
        ({"region": "output"}, "context, input"),
        ({"replace_share": 1.0}, "between 0 and 1"),
        ({"keep_share": 0}, "between 0 and 1"),
        ({"runs": 0}, "at least 1"),
        ({"max_steps": 0}, "at least 1"),
    ],
)
def test_bad_options_say_what_is_allowed(options, message):
    with pytest.raises(ValueError, match=message):
        ReAGent(**options)


def test_missing_proposal_model_says_what_to_do(model, tmp_path):
    sample = written_sample()
    with pytest.raises(ValueError, match="needs tokenizer.*proposals='model'"):
        ReAGent(proposals="roberta-base").attribute(model, sample)
    with pytest.raises(ValueError, match="cannot load masked language model"):
        ReAGent(proposals=str(tmp_path / "none"), tokenizer=word_tokenizer(WORDS)).attribute(model, sample)
    with pytest.raises(ValueError, match="needs Sample.tokens"):
        ReAGent(proposals="roberta-base", tokenizer=word_tokenizer(WORDS)).attribute(model, tiny_sample())
