"""Exhaustive rollout and CAGE against plain matrix loops, and what they equal in special cases."""

import copy

import pytest
import torch

from flashtrace_lib import FlashTrace
from flashtrace_lib.methods import CAGE, Rollout
from flashtrace_lib.methods.backward_graph import edges, walk_back
from tests.oracles.naive import naive_span
from tests.oracles.tiny import FAMILIES, tiny_model, tiny_sample

SENTENCES = [(1, 4), (4, 8), (9, 11), (11, 12), (12, 14), (14, 15)]  # tile I, T and O of tiny_sample
METHODS = [Rollout(), Rollout(hops=2), CAGE(), CAGE(base="ifr"), CAGE(base="perturbation")]


def sample_with_sentences(**spans):
    sample = tiny_sample(**spans)
    sample.sentences = SENTENCES
    return sample


def close(a, b, tolerance=1e-5):
    torch.testing.assert_close(a.double(), b.double(), atol=tolerance, rtol=0)


def normalised(x):
    return x / x.sum()


def naive_rows(model, ids, units, shift=0):
    """Float64 span row of every unit, keyed by unit."""
    return {(a, b): naive_span(model, ids, [i - shift for i in range(a, b)], [1.0] * (b - a)) for a, b in units}


def naive_rollout(model, sample, hops, shift=0, recursion="reasoning"):
    """Powers of the full N × N matrix of token-to-token transitions; ``hops`` large enough stands for all."""
    ids, (first, last), (start, stop) = sample.input_ids, sample.segments.reasoning, sample.segments.output
    through = range(first, last if recursion == "reasoning" else stop)
    rows = naive_rows(model, ids, [(i, i + 1) for i in {*through, *range(start, stop)}], shift)
    transitions = torch.zeros(len(ids), len(ids), dtype=torch.float64)
    for i in through:
        transitions[i] = rows[i, i + 1]
    hop = sum(rows[i, i + 1] for i in range(start, stop)) / (stop - start)
    total = torch.zeros(len(ids), dtype=torch.float64)
    for _ in range(hops + 1):
        total += hop
        hop = hop @ transitions
    return normalised(total[slice(*sample.segments.prompt)])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("hops", [2, None])
def test_rollout_equals_powers_of_the_transition_matrix(family, hops):
    model, sample = tiny_model(family), tiny_sample()
    close(
        Rollout(hops=hops).attribute(model, sample).scores, naive_rollout(model, sample, 300 if hops is None else hops)
    )


@pytest.mark.parametrize("options", [{"recursion": "generation"}, {"target_state": "predictor"}], ids=str)
@pytest.mark.parametrize("hops", [1, None])
def test_rollout_options_equal_naive(options, hops):
    model, sample = tiny_model("qwen3"), tiny_sample()
    expected = naive_rollout(
        model,
        sample,
        300 if hops is None else hops,
        shift=int("target_state" in options),
        recursion=options.get("recursion", "reasoning"),
    )
    close(Rollout(hops=hops, **options).attribute(model, sample).scores, expected)


@pytest.mark.parametrize("options", [{}, {"target_state": "predictor"}], ids=str)
@pytest.mark.parametrize("hops", [0, 1, 3])
def test_rollout_is_flashtrace_with_mean_aggregation(hops, options):
    """A hop is linear in its rows, so averaging single-token distributions is the rollout, whatever T and O."""
    model, sample = tiny_model("gemma3"), tiny_sample()
    traced = FlashTrace(hops=hops, aggregation="mean", **options).attribute(model, sample)
    rolled = Rollout(hops=hops, **options).attribute(model, sample)
    close(rolled.scores, normalised(traced.scores))
    assert rolled.flow[0] == pytest.approx(traced.flow[0], abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("hops", [1, 4])
def test_rollout_is_default_flashtrace_where_no_span_is_aggregated(family, hops):
    model, sample = tiny_model(family), tiny_sample(reasoning=(10, 11), output=(12, 13))
    traced = FlashTrace(hops=hops).attribute(model, sample).scores
    close(Rollout(hops=hops).attribute(model, sample).scores, normalised(traced))
    # with several tokens in O, hop 0 aggregates them before the proximity: no longer the same
    sample = tiny_sample(reasoning=(10, 11), output=(12, 15))
    traced = FlashTrace(hops=hops).attribute(model, sample).scores
    assert (Rollout(hops=hops).attribute(model, sample).scores - normalised(traced)).abs().max() > 1e-4


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
    units = [s for s in SENTENCES if s[0] >= 9]
    w = torch.zeros(len(sample), dtype=torch.float64)
    w[12:15] = 1 / 3
    for a, b in reversed(units):
        row = [max(0.0, float(x)) if j < a else 0.0 for j, x in enumerate(rows[a, b])]
        arrived = float(w[a:b].sum())
        w[a:b] = 0
        for j, x in enumerate(row):
            w[j] += arrived * x / sum(row) if x else 0.0  # nothing speaks for it: its mass is lost
    return normalised(w[1:8])


@pytest.mark.parametrize("base", ["flashtrace", "ifr"])
@pytest.mark.parametrize("family", FAMILIES)
def test_cage_equals_naive_on_every_family(family, base):
    model, sample = tiny_model(family), sample_with_sentences()
    units = [s for s in SENTENCES if s[0] >= 9]
    rows = naive_rows(model, sample.input_ids, units)
    if base == "ifr":
        tokens = naive_rows(model, sample.input_ids, [(i, i + 1) for i in range(9, 15)])
        rows = {(a, b): sum(tokens[i, i + 1] for i in range(a, b)) / (b - a) for a, b in units}
    close(CAGE(base=base).attribute(model, sample).scores, naive_cage(model, sample, rows))


def test_cage_on_log_probability_drops_equals_one_pass_for_each_mask():
    model, sample = tiny_model("qwen3"), sample_with_sentences()

    def log_p(ids, a, b):
        with torch.no_grad():
            log_probs = model(ids[None]).logits[0].double().log_softmax(-1)
        return float(sum(log_probs[i - 1, sample.input_ids[i]] for i in range(a, b)))

    rows = {}
    for a, b in (s for s in SENTENCES if s[0] >= 9):
        rows[a, b] = torch.zeros(len(sample), dtype=torch.float64)
        for first, last in (s for s in SENTENCES if s[1] <= a):
            masked = sample.input_ids.clone()
            masked[first:last] = sample.mask_token_id
            rows[a, b][first:last] = (log_p(sample.input_ids, a, b) - log_p(masked, a, b)) / (last - first)
    att = CAGE(base="perturbation").attribute(model, sample)
    close(att.scores, naive_cage(model, sample, rows))
    assert att.metadata["forward_passes"] == 1 + len(SENTENCES)


def test_cage_on_tokens_is_the_rollout_through_all_that_was_generated():
    """Both leave a token's loop out in the limit; the walks differ in how they begin, not in where they end."""
    model, sample = tiny_model("gemma2"), tiny_sample()
    close(
        CAGE(units="token").attribute(model, sample).scores,
        Rollout(recursion="generation").attribute(model, sample).scores,
    )


def test_cage_takes_a_sample_without_sentences():
    model, sample = tiny_model(), tiny_sample()
    sample.sentences = [(1, 8), (9, 12), (12, 15)]
    whole = CAGE().attribute(model, sample)
    plain = CAGE().attribute(model, tiny_sample())
    close(whole.scores, plain.scores, 0)
    assert whole.metadata["has_sentences"] and not plain.metadata["has_sentences"]


def test_walk_conserves_mass_and_clears_the_units():
    generator = torch.Generator().manual_seed(0)
    units = [(4, 6), (6, 7), (8, 10)]
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


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_memory_budget_does_not_change_the_result(method):
    model, sample = tiny_model("qwen3"), sample_with_sentences()
    narrow = type(method)(**{**method.options(), "max_batch_bytes": 1}).attribute(model, sample)
    wide = method.attribute(model, sample)
    close(wide.scores, narrow.scores)
    assert wide.metadata["options"] == narrow.metadata["options"]


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("family", FAMILIES)
def test_model_is_bit_identical_afterwards(family, method):
    model, sample = tiny_model(family), sample_with_sentences()
    state, implementation = copy.deepcopy(model.state_dict()), model.config._attn_implementation
    with torch.no_grad():
        before = model(sample.input_ids[None]).logits
    meta = method.attribute(model, sample).metadata
    with torch.no_grad():
        assert torch.equal(before, model(sample.input_ids[None]).logits)
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in state.items())
    assert model.config._attn_implementation == implementation
    assert meta["forward_passes"] >= 1 and meta["backward_passes"] == 0 and len(meta["signed"]) == 7
    assert all(sum(shares.values()) == pytest.approx(1, abs=1e-6) for shares in meta["mass"])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Rollout(hops=-1), "at least 0"),
        (lambda: Rollout(recursion="input"), "reasoning, generation"),
        (lambda: CAGE(base="clp"), "flashtrace, ifr, perturbation"),
        (lambda: CAGE(units="paragraph"), "sentence, token"),
        (lambda: CAGE(base="perturbation", target_state="predictor"), "hidden state"),
        (lambda: CAGE(max_batch_bytes=-1), "must be positive"),
    ],
)
def test_bad_options_say_what_is_allowed(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_sentences_that_do_not_tile_are_refused():
    sample = tiny_sample()
    sample.sentences = [(1, 8), (9, 11), (12, 15)]
    with pytest.raises(ValueError, match="do not tile"):
        CAGE().attribute(tiny_model(), sample)
