"""The calibrated RISE, and the search for the best order against all orders in plain loops."""

import math
from itertools import permutations

import pytest
import torch

from flashtrace_lib import metrics as m
from flashtrace_lib.metrics import calibration
from flashtrace_lib.metrics.deletion import Scorer
from tests.oracles.tiny import tiny_model, tiny_sample

SENTENCES = [(3, 6), (6, 7), (7, 13), (13, 18), (18, 20)]


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def sample_of(sentences=SENTENCES, seed=0):
    prompt = (sentences[0][0], sentences[-1][1])
    n = prompt[1]
    sample = tiny_sample(n=n + 12, prompt=prompt, reasoning=(n + 1, n + 5), output=(n + 6, n + 10), seed=seed)
    sample.sentences = [*sentences, (n + 1, n + 5), (n + 6, n + 10)]
    return sample


def falling_sample(model, sentences=SENTENCES):
    """The first sample whose likelihood masking lowers."""
    return next(s for s in map(lambda i: sample_of(sentences, i), range(50)) if not m.is_flagged(ends(model, s)))


def log_prob(model, sample, masked):
    """One forward pass of one context, token by token."""
    ids = sample.input_ids.clone()
    ids[sorted(masked)] = sample.mask_token_id
    with torch.no_grad():
        log_probs = model(input_ids=ids[None]).logits[0].double().log_softmax(-1)
    return sum(log_probs[t - 1, ids[t]].item() for t in range(*sample.response))


def ends(model, sample):
    return [log_prob(model, sample, ()), log_prob(model, sample, range(*sample.segments.prompt))]


def naive_areas(model, sample, spans):
    """Area of every order: trapezoids between the points after each span, and to the end of I."""
    start, end = ends(model, sample)
    n, known = len(sample.prompt_ids), {}

    def response(units):
        if units not in known:
            masked = [t for unit in units for t in range(*spans[unit])]
            known[units] = min(1.0, max(0.0, (log_prob(model, sample, masked) - end) / (start - end)))
        return known[units]

    areas = {}
    for order in permutations(range(len(spans))):
        x, y = [0.0], [1.0]
        for k in range(1, len(order) + 1):
            x.append(x[-1] + (spans[order[k - 1]][1] - spans[order[k - 1]][0]) / n)
            y.append(min(y[-1], response(frozenset(order[:k]))))
        x, y = [*x, 1.0], [*y, 0.0]
        areas[order] = sum((x[k + 1] - x[k]) * (y[k + 1] + y[k]) / 2 for k in range(len(x) - 1))
    return areas


@pytest.mark.parametrize("spans", [None, SENTENCES[:4]], ids=["input", "without the question"])
def test_a_wide_beam_finds_the_best_of_all_orders(model, spans):
    sample = falling_sample(model)
    areas = naive_areas(model, sample, spans or SENTENCES)
    found = m.best_order(Scorer(model), sample, beam=200, spans=spans)
    assert found.area == pytest.approx(min(areas.values()), abs=1e-4)
    assert areas[tuple(found.order)] == pytest.approx(found.area, abs=1e-4)
    assert found.area < sorted(areas.values())[len(areas) // 2] - 0.01  # most orders are worse, by more than rounding


def test_a_narrow_beam_is_little_worse_and_the_area_is_its_orders_own(model):
    sample = falling_sample(model)
    areas, scorer = naive_areas(model, sample, SENTENCES), Scorer(model)
    gaps = {}
    for beam in (1, 5):
        found = m.best_order(scorer, sample, beam=beam)
        assert areas[tuple(found.order)] == pytest.approx(found.area, abs=1e-4)
        gaps[beam] = found.area - min(areas.values())
    assert gaps[5] <= 0.02 and gaps[5] <= gaps[1] + 1e-9


def test_the_order_ranks_the_tokens_and_rise_is_measured_on_the_usual_grid(model):
    sample, scorer = falling_sample(model), Scorer(model)
    found = m.best_order(scorer, sample, spans=SENTENCES[:4])
    values = [found.scores[start - 3 : stop - 3] for start, stop in SENTENCES]
    assert [v.unique().item() for v in values] == [4 - found.order.index(i) if i < 4 else 0 for i in range(5)]
    assert found.rise == m.rise(m.normalise_response(scorer.curve(sample, found.scores).log_probs))


def test_a_set_of_sentences_is_scored_once(model):
    sample = falling_sample(model)
    found = m.best_order(Scorer(model), sample, beam=10_000)
    on_grid = len(set(m.masked_counts(17, 20).tolist())) - 2  # the ends again are the curve's own
    assert found.contexts == 2**5 + on_grid + 2


def test_only_what_can_end_no_better_is_pruned():
    """Of the same spans in another order a smaller area may come with a higher response, and then both stay."""
    small_area = calibration._Beginning((0, 1), 0.5, low=0.8, area=0.30)
    low_response = calibration._Beginning((1, 0), 0.5, low=0.5, area=0.46)
    worse = calibration._Beginning((1, 0), 0.5, low=0.8, area=0.47)
    other_spans = calibration._Beginning((2, 1), 0.5, low=0.9, area=0.48)
    kept = calibration._best([other_spans, worse, low_response, small_area], beam=10)
    assert kept == [small_area, low_response, other_spans]
    assert calibration._best([low_response, small_area], beam=1) == [small_area]


def test_a_flagged_sample_costs_the_ends_and_has_the_worst_rise(model):
    sample = next(s for s in map(lambda i: sample_of(seed=i), range(50)) if m.is_flagged(ends(model, s)))
    found = m.best_order(Scorer(model), sample)
    assert found.order == [0, 1, 2, 3, 4] and found.area == pytest.approx(1) and found.rise == 1
    assert math.isnan(m.calibrated(1.0, 1.0, found.rise))


def test_masks_are_scored_as_single_contexts_are(model):
    sample, scorer = sample_of(), Scorer(model)
    masks = torch.rand(6, 17, generator=torch.Generator().manual_seed(0)) < 0.4
    one_by_one = [log_prob(model, sample, (3 + mask.nonzero().flatten()).tolist()) for mask in masks]
    assert scorer.log_probs(sample, masks).tolist() == pytest.approx(one_by_one, abs=1e-3)
    assert scorer.n_contexts == 6
    for wrong in (masks.float(), masks[:, 1:], masks[0], masks[:0]):
        with pytest.raises(ValueError, match=r"BoolTensor \[B, 17\]"):
            scorer.log_probs(sample, wrong)


# --- the scale


def test_calibrated_is_the_share_of_the_way_from_random_to_best():
    assert m.calibrated(0.5, 0.5, 0.1) == 0 and m.calibrated(0.1, 0.5, 0.1) == 1
    assert m.calibrated(0.2, 0.5, 0.1) == pytest.approx(0.75) and m.calibrated(0.7, 0.5, 0.1) == pytest.approx(-0.5)
    assert m.calibrated(0.025, 0.4) == 1 and m.calibrated(0.4, 0.4) == 0  # the floor of 20 steps
    assert math.isnan(m.calibrated(0.3, 0.2, 0.2)) and math.isnan(m.calibrated(0.3, 0.1, 0.2))


def test_no_curve_has_a_rise_below_the_floor():
    for steps in (1, 5, 20):
        curve = torch.full((steps + 1,), -9.0)
        curve[0] = 0
        assert m.rise(m.normalise_response(curve)) == pytest.approx(m.rise_floor(steps))


# --- bad input


def test_bad_input_is_named(model):
    scorer, sample = Scorer(model), sample_of()
    many = sample_of([(i, i + 1) for i in range(1, 14)])
    with pytest.raises(ValueError, match="13 sentences, more than the 12.*rise_floor"):
        m.best_order(scorer, many)
    assert len(m.best_order(scorer, many, spans=many.sentences[:12], beam=1).order) == calibration.MOST_SENTENCES
    with pytest.raises(ValueError, match="1 or more"):
        m.best_order(scorer, sample, beam=0)
    with pytest.raises(ValueError, match="at least one step"):
        m.rise_floor(0)
    for spans in ([(3, 6), (5, 8)], [(3, 3)], [(2, 5)], [(18, 21)]):
        with pytest.raises(ValueError, match="empty, overlap or leave"):
            m.best_order(scorer, sample, spans=spans)
    sample.sentences = None
    with pytest.raises(ValueError, match="no sentences in its input"):
        m.best_order(scorer, sample)
    sample.sentences, sample.mask_token_id = SENTENCES, None
    with pytest.raises(ValueError, match="mask_token_id"):
        m.best_order(scorer, sample)
