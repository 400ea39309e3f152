"""A hop weighted by causes: against removing each step by hand, on a model that copies from one, and in odd texts."""

from dataclasses import replace

import pytest
import torch

from flashtrace_lib import FlashTrace, Sample, Segments
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.methods import METHODS, causal_hop
from flashtrace_lib.methods.causal_hop import CausalSteps, causal_steps, reasoning_steps
from tests.oracles.contexts import watched
from tests.oracles.planted import EVIDENCE, planted_model, planted_sample
from tests.oracles.tiny import tiny_model, tiny_sample

CACHED = {"llama": True, "qwen2": True, "granite": True, "gemma2": False, "gemma3": False, "mistral": False}


def sample_of_steps(steps=((10, 13), (13, 15), (15, 22), (22, 26)), **segments):
    """A context of 33 tokens; two steps begin alike, one is longer than what stands before the first."""
    sample = tiny_sample(33, **{"prompt": (1, 9), "reasoning": (10, 26), "output": (28, 32), **segments})
    sample.input_ids[[15, 22]] = int(sample.input_ids[13])
    sample.sentences = list(steps)
    return sample


@torch.no_grad()
def by_hand(model, sample):
    """Falls [S, S + 1], from whole forward passes of one row each."""
    ids, steps = sample.input_ids, sample.sentences

    def log_probs(keep):
        logits = model(ids[keep][None], use_cache=False).logits[0].double().log_softmax(-1)
        return {keep[i + 1]: float(logits[i, ids[keep[i + 1]]]) for i in range(len(keep) - 1)}

    intact = log_probs(list(range(len(ids))))
    falls = torch.zeros(len(steps), len(steps) + 1, dtype=torch.float64)
    for i, (a, b) in enumerate(steps):
        left = log_probs([t for t in range(len(ids)) if not a <= t < b])
        for j, (c, d) in enumerate([*steps[i + 1 :], sample.segments.output], start=i + 1):
            if j < len(steps):
                parted = [t for t in range(c, d) if ids[c : t + 1].tolist() != ids[a : a + t + 1 - c].tolist()]
                c = parted[0] + 1 if parted else d
            falls[i, j] = sum(intact[t] - left[t] for t in range(c, d))
    return falls


@pytest.mark.parametrize("wrong, budget", [(False, 2**30), (False, 1), (False, 200_000), (True, 2**30)])
@pytest.mark.parametrize("family", CACHED)
def test_falls_equal_removal_by_hand(family, wrong, budget, monkeypatch):
    """However many rows share a batch; captured states that are not what the model would cache are not used."""
    model, sample = tiny_model(family), sample_of_steps()
    monkeypatch.setattr(causal_hop, "model_budget", lambda _: budget)
    state = capture(model, sample.input_ids, (10, 32))
    state.layers[-1].v = state.layers[-1].v + float(wrong)
    lengths = watched(model, monkeypatch, lambda ids: ids.shape[1])
    (found,) = causal_steps(model, [sample], state)
    assert (len(sample) in lengths) == (wrong and CACHED[family]) and found.cached == CACHED[family]
    torch.testing.assert_close(found.falls, by_hand(model, sample), atol=1e-5, rtol=1e-5)


def test_many_targets_share_removals_and_equal_one_by_one():
    model, sample, method = tiny_model(), sample_of_steps(), FlashTrace.best(hop_weights="causal")
    spans = [(28, 32), (15, 18), (12, 14), (10, 11)]
    for span, found in zip(spans, method.attribute_many(model, sample, spans), strict=True):
        alone = method.attribute(model, sample.with_output(span))
        torch.testing.assert_close(found.scores, alone.scores, atol=1e-6, rtol=1e-5)
        steps, expected = ({**result.metadata.get("causal_steps", {})} for result in (found, alone))
        assert steps.pop("falls", []) == pytest.approx(expected.pop("falls", []), abs=1e-5)
        assert steps.get("spans") == expected.get("spans")


@pytest.mark.parametrize(
    "falls, weights",
    [
        ([[0, 0, 9], [0, 0, 3]], [3, 1]),  # O rests on both
        ([[0, 20, 0], [0, 0, 5]], [1, 1]),  # on the second, which rests on the first as much as it can
        ([[0, 2, 0, 0], [0, 0, 5, 0], [0, 0, 0, 10]], [0.1, 0.5, 1]),  # along a chain
        ([[0, 9, 0, 0], [0, 0, 0, 0.4], [0, 0, 0, 9]], [0, 0, 1]),  # what rests on too small a step does not count
        ([[0, 9, 0.05], [0, 0, -3]], [0, 0]),  # within noise, or a gain
    ],
)
def test_weights_follow_the_falls(falls, weights):
    falls, weights = torch.tensor(falls, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)
    noise = torch.full((falls.shape[1],), 0.1, dtype=torch.float64)
    found = CausalSteps([(i, i + 1) for i in range(len(falls))], falls, noise, True).weights
    torch.testing.assert_close(found, weights / weights.sum().clamp_min(1e-9))


def planted_in(position):
    """The planted context with its evidence in T, whose three steps are single tokens, or in I."""
    sample = planted_sample(6)
    sample.input_ids[6], sample.gold = 9, None
    sample.input_ids[position] = EVIDENCE[2]
    return replace(sample, sentences=[(15, 16), (16, 17), (17, 18)])


@pytest.mark.parametrize("position", [15, 16, 17])
def test_the_step_that_the_answer_copies_has_all_weight(position):
    result = METHODS["flashtrace_causal"]().attribute(planted_model(), planted_in(position))
    assert result.metadata["causal_steps"]["weights"] == [float(i == position) for i in (15, 16, 17)]
    assert [hop.target for hop in result.hops] == [(19, 22), (15, 18)] and len(result.flow) == 2
    (alone,) = FlashTrace.best(hops=0).attribute_many(planted_model(), planted_in(position), [(position, position + 1)])
    torch.testing.assert_close(result.scores, alone.scores)


@pytest.mark.parametrize("sample", [planted_in(6), tiny_sample(reasoning=(9, 9))], ids=["no step matters", "no T"])
def test_where_no_step_matters_hop_zero_stands_alone(sample):
    model = planted_model() if sample.segments.has_reasoning else tiny_model()
    result = FlashTrace(hop_weights="causal").attribute(model, sample)
    torch.testing.assert_close(result.scores, FlashTrace(hops=0).attribute(model, sample).scores)
    assert len(result.hops) == 1 and not result.metadata.get("causal_steps", {}).get("matter", False)


@pytest.mark.parametrize("text, sentences, steps", [
    ("VAR A = 1\nVAR B = 2\n", False, ["VAR A = 1\n", "VAR B = 2\n"]), ("Q=8  L=2Q=16 ", False, ["Q=8  ", "L=2Q=16 "]),
    ("\n\nif x:\n    y  = 2\n--\nz", False, ["\n\nif x:\n", "    y  = 2\n--\n", "z"]),
    ("One. Two", True, ["One. ", "Two"]), ("One.", False, ["One."]),
])  # fmt: skip
def test_steps_are_sentences_lines_or_what_blanks_part(text, sentences, steps):
    n, cut = len(text), 3 + text.find(". ") + 2
    ids, segments = torch.arange(3, 9 + n), Segments((0, 2), (3, 3 + n), (4 + n, 6 + n))
    known = [(0, 2), (3, cut), (cut, 3 + n), (4 + n, 6 + n)] if sentences else None
    sample = Sample(ids, segments, tokens=[*"ab|", *text, *"|ok"], sentences=known)
    assert ["".join(sample.tokens[a:b]) for a, b in reasoning_steps(sample)] == steps
    assert reasoning_steps(replace(sample, tokens=None)) == (known[1:3] if sentences else [(3, 3 + n)])
