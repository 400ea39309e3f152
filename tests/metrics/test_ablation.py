"""Sentence ablations against plain loops: masks, effects by full softmax, LDS by counting ranks."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from flashtrace_lib.metrics import Scorer, draw_masks, lds, sentence_effects
from flashtrace_lib.model import ablations
from flashtrace_lib.model.batched_forward import log_odds_of
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample

SENTENCES = [(3, 9), (9, 14), (14, 30), (30, 41), (41, 50), (50, 57), (60, 75), (77, 88)]


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def haystack_sample(**changes):
    """Six sentences in I, of which the last asks."""
    sample = tiny_sample(**{"n": 90, "prompt": (3, 57), "reasoning": (60, 75), "output": (77, 88)} | changes)
    sample.sentences = SENTENCES
    sample.metadata["question_start"] = 50
    return sample


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# --- masks


def test_masks_are_drawn_without_repeats_at_their_rate():
    for n_sources, keep in [(7, 0.5), (7, 0.9), (30, 0.5), (30, 0.2)]:
        masks = draw_masks(n_sources, 64, keep, generator())
        assert masks.shape == (64, n_sources) and masks.dtype == torch.bool
        assert len({tuple(mask) for mask in masks.tolist()}) == 64
        assert torch.equal(masks, draw_masks(n_sources, 64, keep, generator()))
        assert not torch.equal(masks, draw_masks(n_sources, 64, keep, generator(1)))
    kept = draw_masks(30, 2000, 0.2, generator()).double()
    assert kept.mean().item() == pytest.approx(0.2, abs=0.01)
    assert (kept.mean(0) - 0.2).abs().max() < 0.04


def test_few_sources_have_all_their_masks():
    masks = draw_masks(3, 64, 0.5, generator())
    assert sorted(map(tuple, masks.tolist())) == sorted(itertools.product([False, True], repeat=3))
    assert len(draw_masks(1, 64, generator=generator())) == 2


def test_the_first_mask_follows_bernoulli():
    """Listed and drawn: the chance of a mask is Π keep^m (1 − keep)^(1 − m)."""
    shared, n = generator(), 4000
    for n_sources in (2, 13):  # 13: more than are listed
        first = torch.cat([draw_masks(n_sources, 1, 0.8, shared) for _ in range(n)])[:, :2].double()
        for mask, chance in {(1, 1): 0.64, (1, 0): 0.16, (0, 1): 0.16, (0, 0): 0.04}.items():
            share = (first == torch.tensor(mask)).all(1).double().mean().item()
            assert share == pytest.approx(chance, abs=4 * math.sqrt(chance * (1 - chance) / n))


# --- effects


def naive_effects(model, sample, masks, sources, spans):
    """One whole float64 softmax a mask; the odds of a token are p against the sum of all the others' p."""
    log_prob, log_odds = [], []
    for mask in masks.tolist():
        ids = sample.input_ids.tolist()
        for (start, stop), kept in zip(sources, mask, strict=True):
            for i in range(start, stop):
                ids[i] = ids[i] if kept else sample.mask_token_id
        with torch.no_grad():
            p = model(torch.tensor([ids])).logits[0].double().softmax(-1)
        rows = []
        for start, stop in spans:
            of_targets = [(p[t - 1, ids[t]], p[t - 1].sum() - p[t - 1, ids[t]]) for t in range(start, stop)]
            rows.append((sum(a.log() for a, _ in of_targets), sum((a / b).log() for a, b in of_targets)))
        log_prob.append([float(a) for a, _ in rows])
        log_odds.append([float(b) for _, b in rows])
    return torch.tensor(log_prob, dtype=torch.float64), torch.tensor(log_odds, dtype=torch.float64)


@pytest.mark.parametrize("family", FAMILIES)
def test_effects_equal_the_plain_loop(family):
    model, sample = tiny_model(family), haystack_sample()
    masks = draw_masks(5, 9, generator=generator())
    found, spans = sentence_effects(model, sample, masks), [(60, 75), (77, 88), (60, 90)]
    for one, other in zip(found, naive_effects(model.double(), sample, masks, SENTENCES[:5], spans), strict=True):
        assert one.shape == (9, 3) and one.dtype == torch.float64
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-5)


def test_sources_and_spans_can_be_given_and_may_be_empty(model):
    sample, masks = haystack_sample(reasoning=(60, 60)), draw_masks(2, 4, generator=generator())
    sources, spans = [(30, 41), (50, 57)], [(60, 60), (80, 83)]
    found = sentence_effects(model, sample, masks, sources, spans)
    expected = naive_effects(tiny_model("llama").double(), sample, masks, sources, spans)
    torch.testing.assert_close(found.log_prob, expected[0], atol=1e-4, rtol=1e-5)
    assert (found.log_prob[:, 0] == 0).all() and (found.log_odds[:, 0] == 0).all()


def test_odds_keep_their_precision_where_p_rounds_to_one():
    logits = torch.tensor([[40.0, 0.0, 1.0], [0.0, -60.0, 3.0]])
    found = log_odds_of(torch.tensor([0, 1]))(logits.log_softmax(-1), slice(0, 2))
    expected = [40 - math.log(1 + math.e), -60 - math.log(1 + math.exp(3))]
    assert found.tolist() == pytest.approx(expected, rel=1e-6)  # 1 − p is 0 in float32
    for p in (0.3, 1e-30, 1 - 1e-9):
        found = ablations.logit(torch.tensor(math.log(p))).item()
        assert found == pytest.approx(math.log(p) - math.log1p(-p), rel=1e-6)


# --- LDS


def naive_lds(scores, masks, effects):
    """Correlation of mean ranks, found by counting."""
    sums = [sum(s for s, kept in zip(scores, mask, strict=True) if kept) for mask in masks]

    def ranks(values):
        return [sum(b < a - 1e-6 for b in values) + sum(abs(b - a) <= 1e-6 for b in values) / 2 for a in values]

    a, b = ranks(sums), ranks(effects)
    a, b = [x - sum(a) / len(a) for x in a], [x - sum(b) / len(b) for x in b]
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def test_lds_of_the_true_effects_of_an_additive_function_is_one():
    true, masks = torch.tensor([0.5, -1.25, 3.0, 0.1, 0.0]), draw_masks(5, 20, generator=generator())
    effects = masks.double() @ true.double() + 7
    assert lds(true, masks, effects) == pytest.approx(1)
    assert lds(true, masks, effects.exp()) == pytest.approx(1)  # the order alone counts
    assert lds(-true, masks, effects) == pytest.approx(-1) and lds([1.0] * 5, masks, effects) < 1


@pytest.mark.parametrize("seed", range(5))
def test_lds_equals_the_counted_ranks(seed):
    shared = generator(seed)
    scores = torch.randint(0, 4, (6,), generator=shared) / 10  # ties: 0.1 + 0.2 and 0.3 among them
    masks, effects = draw_masks(6, 40, generator=shared), torch.randint(0, 9, (40,), generator=shared) / 1.0
    expected = naive_lds(scores.tolist(), masks.tolist(), effects.tolist())
    assert lds(scores, masks, effects) == pytest.approx(expected, abs=1e-9)


def test_equal_sums_of_other_scores_are_ties():
    """0.1 + 0.2 is not 0.3 in binary; of the two masks with that sum neither ranks before the other."""
    masks = [[True, True, False], [False, False, True], [True, False, True]]
    assert 0.1 + 0.2 != 0.3 and lds([0.1, 0.2, 0.3], masks, [0.0, 1.0, 2.0]) == pytest.approx(math.sqrt(3) / 2)


def test_equal_scores_and_equal_effects_have_no_correlation():
    masks = draw_masks(4, 8, generator=generator())
    assert lds([0.0] * 4, masks, torch.arange(8.0)) == 0 == lds(torch.arange(4.0), masks, torch.zeros(8))


def test_a_scorer_counts_the_masks_it_scores(model):
    sample, scorer = haystack_sample(), Scorer(model)
    masks = draw_masks(5, 20, generator=generator())
    torch.testing.assert_close(scorer.effects(sample, masks).log_odds, sentence_effects(model, sample, masks).log_odds)
    assert scorer.n_contexts == 20


# --- bad input


def test_bad_input_is_named(model):
    sample, ones = haystack_sample(), torch.ones(2, 5, dtype=torch.bool)
    unmasked = replace(sample, mask_token_id=None)
    for message, call in (
        ("at least one source", lambda: draw_masks(0)), (r"in \[0.1, 0.9\], got 1.0", lambda: draw_masks(3, keep=1.0)),
        (r"BoolTensor \[n, 5\]", lambda: sentence_effects(model, sample, ones[:, :4])),
        (r"BoolTensor \[n, 5\]", lambda: sentence_effects(model, sample, ones.float())),
        ("hold no token", lambda: sentence_effects(model, sample, ones, spans=[(60, 60)])),
        ("one row for each effect", lambda: lds([1.0, 2.0], torch.ones(3, 3), [1.0, 2.0, 3.0])),
        ("no mask_token_id", lambda: sentence_effects(model, unmasked, ones)),
        ("no sentences in its", lambda: sentence_effects(model, replace(unmasked, sentences=None), ones)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()
