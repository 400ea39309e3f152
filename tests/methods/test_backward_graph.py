"""Exhaustive rollout and CAGE against plain matrix loops, and what they equal in special cases."""

import pytest
import torch

from flashtrace_lib import FlashTrace
from flashtrace_lib.methods import CAGE, Rollout
from flashtrace_lib.methods.backward_graph import edges, walk_back
from tests.oracles.naive import naive_span
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample

SENTENCES = [(1, 4), (4, 8), (9, 11), (11, 12), (12, 14), (14, 15)]  # tile I, T and O of tiny_sample
METHODS = [Rollout(), CAGE()]


def sample_with_sentences(**spans):
    sample = tiny_sample(**spans)
    sample.sentences = SENTENCES
    return sample


def close(a, b, tolerance=1e-5):
    torch.testing.assert_close(a.double(), b.double(), atol=tolerance, rtol=0)


def normalised(x):
    return x / x.sum()


def naive_rows(model, ids, units):
    """Float64 span row of every unit, keyed by unit."""
    return {(a, b): naive_span(model, ids, list(range(a, b)), [1.0] * (b - a)) for a, b in units}


def naive_rollout(model, sample):
    """Powers of the full N × N matrix of token-to-token transitions, enough of them to stand for all."""
    ids, (first, last), (start, stop) = sample.input_ids, sample.segments.reasoning, sample.segments.output
    through = range(first, last)
    rows = naive_rows(model, ids, [(i, i + 1) for i in {*through, *range(start, stop)}])
    transitions = torch.zeros(len(ids), len(ids), dtype=torch.float64)
    for i in through:
        transitions[i] = rows[i, i + 1]
    hop = sum(rows[i, i + 1] for i in range(start, stop)) / (stop - start)
    total = torch.zeros(len(ids), dtype=torch.float64)
    for _ in range(300):
        total += hop
        hop = hop @ transitions
    return normalised(total[slice(*sample.segments.prompt)])


@pytest.mark.parametrize("family", FAMILIES)
def test_rollout_equals_powers_of_the_transition_matrix(family):
    model, sample = tiny_model(family), tiny_sample()
    close(Rollout().attribute(model, sample).scores, naive_rollout(model, sample))


def test_rollout_is_the_limit_of_flashtrace_with_mean_aggregation():
    """A hop is linear in its rows, so averaging single-token distributions is the rollout, whatever T and O."""
    model, sample = tiny_model("gemma3"), tiny_sample()
    traced = FlashTrace(hops=60, aggregation="mean").attribute(model, sample)
    rolled = Rollout().attribute(model, sample)
    close(rolled.scores, normalised(traced.scores))
    assert rolled.flow[0] == pytest.approx(traced.flow[0], abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_rollout_is_the_limit_of_default_flashtrace_where_no_span_is_aggregated(family):
    model, sample = tiny_model(family), tiny_sample(reasoning=(10, 11), output=(12, 13))
    traced = FlashTrace(hops=60).attribute(model, sample).scores
    close(Rollout().attribute(model, sample).scores, normalised(traced))
    # with several tokens in O, hop 0 aggregates them before the proximity: no longer the same
    sample = tiny_sample(reasoning=(10, 11), output=(12, 15))
    traced = FlashTrace(hops=60).attribute(model, sample).scores
    assert (Rollout().attribute(model, sample).scores - normalised(traced)).abs().max() > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_one_token_of_reasoning_all_hops_are_a_geometric_series(family):
    """Closed form for |T| = 1: hop 0 + ρ_0 / (1 − self) of T's row, the limit of FlashTrace(aggregation="mean")."""
    model, sample = tiny_model(family), tiny_sample(reasoning=(10, 11))
    rows = naive_rows(model, sample.input_ids, [(10, 11), (12, 13), (13, 14), (14, 15)])
    hop0 = sum(rows[i, i + 1] for i in (12, 13, 14)) / 3
    total = hop0 + hop0[10] / (1 - rows[10, 11][10]) * rows[10, 11]
    found = Rollout().attribute(model, sample).scores
    close(found, normalised(total[1:8]))
    close(found, normalised(FlashTrace(hops=60, aggregation="mean").attribute(model, sample).scores))


def naive_cage(model, sample, rows):
    """The walk over a full matrix whose rows are spread over the tokens of their sentence's node."""
    units, w = [s for s in SENTENCES if s[0] >= 9], torch.zeros(len(sample), dtype=torch.float64)
    w[12:15] = 1 / 3
    for a, b in reversed(units):
        row = [max(0.0, float(x)) if j < a else 0.0 for j, x in enumerate(rows[a, b])]
        arrived = float(w[a:b].sum())
        w[a:b] = 0
        for j, x in enumerate(row):
            w[j] += arrived * x / sum(row) if x else 0.0  # nothing speaks for it: its mass is lost
    return normalised(w[1:8])


@pytest.mark.parametrize("family", FAMILIES)
def test_cage_equals_naive_on_every_family(family):
    model, sample = tiny_model(family), sample_with_sentences()
    rows = naive_rows(model, sample.input_ids, [s for s in SENTENCES if s[0] >= 9])
    close(CAGE().attribute(model, sample).scores, naive_cage(model, sample, rows))


def test_cage_takes_a_sample_without_sentences():
    model, sample = tiny_model(), tiny_sample()
    sample.sentences = [(1, 8), (9, 12), (12, 15)]
    whole, plain = CAGE().attribute(model, sample), CAGE().attribute(model, tiny_sample())
    close(whole.scores, plain.scores, 0)
    assert whole.metadata["has_sentences"] and not plain.metadata["has_sentences"]


def test_walk_conserves_mass_and_clears_the_units():
    generator, units = torch.Generator().manual_seed(0), [(4, 6), (6, 7), (8, 10)]
    rows = torch.rand(3, 10, generator=generator) + 0.1
    rows[0, 2] = -5.0  # dropped, not subtracted
    rows[1, :6] = -1.0  # a unit that nothing before it speaks for
    graph = edges(rows, units)
    assert (graph >= 0).all() and graph[0, 2] == 0 and [float(row.sum()) for row in graph] == pytest.approx([1, 0, 1])
    assert all((row[start:] == 0).all() for row, (start, _) in zip(graph, units, strict=True))
    begin = torch.zeros(10, dtype=torch.float64)
    begin[8:] = 0.5
    moved = walk_back(begin, graph, units)
    assert (moved[4:7] == 0).all() and (moved[8:] == 0).all()
    assert float(moved.sum()) == pytest.approx(1 - float(graph[2, 6]))  # what reached the deaf unit is lost
    assert float(begin.sum()) == 1  # the walk works on a copy


def test_empty_reasoning_is_hop_zero():
    model, sample = tiny_model(), tiny_sample(reasoning=(9, 9))
    sample.sentences = [(1, 8), (12, 15)]
    traced = FlashTrace(hops=0).attribute(model, sample).scores
    averaged = FlashTrace(hops=0, aggregation="mean").attribute(model, sample).scores
    close(Rollout().attribute(model, sample).scores, normalised(averaged))
    close(CAGE().attribute(model, sample).scores, normalised(traced))


def test_units_in_small_batches_have_the_same_rows(monkeypatch):
    model, sample = tiny_model("qwen3"), sample_with_sentences()
    wide = [method.attribute(model, sample).scores for method in METHODS]
    monkeypatch.setattr("flashtrace_lib.methods.backward_graph.UNITS_AT_ONCE", 1)
    for method, scores in zip(METHODS, wide, strict=True):
        close(method.attribute(model, sample).scores, scores)


def test_sentences_that_do_not_tile_are_refused():
    sample = tiny_sample()
    sample.sentences = [(1, 8), (9, 11), (12, 15)]
    with pytest.raises(ValueError, match="do not tile"):
        CAGE().attribute(tiny_model(), sample)
