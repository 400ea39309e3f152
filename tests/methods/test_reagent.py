"""ReAGent against a plain loop, its stopping rule, and its proposals."""

import pytest
import torch

from flashtrace_lib import Sample, Segments
from flashtrace_lib.methods import ReAGent, reagent
from flashtrace_lib.methods.reagent import DRAWS, CausalProposals, _draw_others
from flashtrace_lib.sample import seeded_generator
from tests.oracles.naive_reagent import log_probs_of, naive_reagent
from tests.oracles.planted import planted_model, planted_sample
from tests.oracles.tiny import tiny_model, tiny_sample

SENTENCES = [(1, 4), (4, 5), (5, 8), (9, 11), (11, 12), (12, 15)]


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.mark.parametrize("units", ["token", "sentence"])
def test_equals_the_plain_loop(model, units, monkeypatch):
    monkeypatch.setattr(reagent, "REPLACE_SHARE", 0.4)
    monkeypatch.setattr(reagent, "KEEP_SHARE", 0.3)
    sample = tiny_sample()
    sample.sentences = list(SENTENCES)
    spans = [s for s in (SENTENCES if units == "sentence" else [(i, i + 1) for i in range(16)]) if 1 <= s[0] < 12]
    spans = [s for s in spans if s != (8, 9)]
    options = dict(runs=4, top_k=60)  # of 97: some runs stop, some do not
    expected, taken, stopped, passes = naive_reagent(
        model, sample, spans, steps=6, replace=0.4, keep=0.3, distance="probability", **options
    )
    att = ReAGent(units=units, max_steps=6, **options).attribute(model, sample)
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
    assert max(ReAGent(runs=4, top_k=1, max_steps=3, seed=2).attribute(model, sample).metadata["steps"]) <= 3
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
        assert not (proposer(chosen, [torch.Generator().manual_seed(draw)])[0] == sample.input_ids)[2:18].any()


def test_runs_do_not_depend_on_each_other(model):
    """Two runs are the mean of the first and a second one."""
    sample = tiny_sample(reasoning=(9, 9))
    one, two, three = (ReAGent(runs=runs, max_steps=5).attribute(model, sample) for runs in (1, 2, 3))
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
        assert torch.equal(proposer(chosen[row : row + 1], [torch.Generator().manual_seed(row)])[0], out[row])
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


def test_the_models_own_proposals_piece_by_piece(model, monkeypatch):
    sample = tiny_sample(n=220, prompt=(1, 200), reasoning=(200, 200), output=(210, 215))
    chosen = torch.ones(1, 220, dtype=torch.bool)
    whole = CausalProposals(model, sample, (1, 200), torch.Generator().manual_seed(0))
    monkeypatch.setattr(reagent, "model_budget", lambda model: 1)
    pieces = CausalProposals(model, sample, (1, 200), torch.Generator().manual_seed(0))
    drawn = [proposer(chosen, [torch.Generator().manual_seed(1)]) for proposer in (whole, pieces)]
    assert pieces.forward_passes == 4 and torch.equal(*drawn)


def test_a_first_token_without_context_follows_a_mask_token(model):
    sample = Sample(tiny_sample().input_ids, Segments((0, 8), (9, 12), (12, 15)), mask_token_id=0)
    pool = CausalProposals(model, sample, (0, 8), torch.Generator().manual_seed(0))._pool
    led = log_probs_of(model, torch.cat([torch.tensor([0]), sample.input_ids]))[:8]  # [8, V]
    uniform = torch.rand(16, DRAWS, generator=torch.Generator().manual_seed(0)).double()[:8]
    assert torch.equal(pool[:8], _draw_others(led, sample.input_ids[:8], [0, 1, 2], uniform))
    assert torch.equal(pool[8:], sample.input_ids[8:, None].repeat(1, DRAWS))


# --- bad input


@pytest.mark.parametrize("option", ["runs", "max_steps"])
def test_bad_options_say_what_is_allowed(option):
    with pytest.raises(ValueError, match="at least 1"):
        ReAGent(**{option: 0})
