"""Controls that ask no model: the string match against a plain search, and draws of random rankings."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashtrace_book.experiments.groups import random_draws
from flashtrace_lib.evaluation.recorder import record_key
from flashtrace_lib.methods import METHODS, StringMatch
from flashtrace_lib.methods.string_match import longest_runs
from tests.oracles.tiny import tiny_model, tiny_sample


def naive_runs(source, copy):
    """Each run of the source that stands in the copy, and the longest through each token."""
    found = [0] * len(source)
    for start in range(len(source)):
        for stop in range(start + 1, len(source) + 1):
            run = source[start:stop]
            if any(copy[i : i + len(run)] == run for i in range(len(copy) - len(run) + 1)):
                found[start:stop] = [max(score, len(run)) for score in found[start:stop]]
    return found


TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=9)


@given(TOKENS, TOKENS)
def test_the_longest_runs_are_those_of_a_plain_search(source, copy):
    assert longest_runs(torch.tensor(source), torch.tensor(copy)).tolist() == naive_runs(source, copy)


@pytest.mark.parametrize("reasoning", [(9, 12), (9, 9)])
def test_string_match_compares_the_input_with_what_was_generated(reasoning):
    sample = tiny_sample(reasoning=reasoning)
    sample.input_ids[12:15] = sample.input_ids[3:6]  # O quotes I
    att = StringMatch().attribute(tiny_model(), sample)
    start, stop = sample.segments.generated
    expected = naive_runs(sample.prompt_ids.tolist(), sample.input_ids[start:stop].tolist())
    assert att.scores.tolist() == expected and max(expected) == 3 and att.scores.dtype == torch.float32


def test_draws_differ_in_their_seed_and_the_first_is_the_plain_baseline():
    for name in ("random", "random_sentences"):
        drawn = random_draws([name], 20)
        assert list(drawn) == [f"{name}/{i}" for i in range(20)]
        shaped_by = [record_key("model", "sample", method, 20, "auto") for method in drawn.values()]
        assert shaped_by[0] == record_key("model", "sample", METHODS[name](), 20, "auto") and len(set(shaped_by)) == 20


def test_a_random_score_a_sentence_is_what_by_sentence_gives_back():
    model, sample = tiny_model(), tiny_sample()
    first, stop = sample.segments.prompt
    sample.sentences = [(first, first + 2), (first + 2, first + 5), (first + 5, stop)]
    results = [METHODS["random_sentences"](seed).attribute(model, sample) for seed in range(300)]
    for result in results[:20]:
        by_sentence = result.by_sentence()
        assert result.scores.tolist() == pytest.approx(by_sentence.repeat_interleave(torch.tensor([2, 3, 2])).tolist())
        assert len(result.scores.unique()) == 3 and result.scores.sum().item() == pytest.approx(1)
    firsts = np.bincount([int(result.by_sentence().argmax()) for result in results])
    assert (abs(firsts - 100) < 4 * math.sqrt(300 * 2 / 9)).all()  # every sentence leads a third of the time
    with pytest.raises(ValueError, match="needs Sample.sentences"):
        METHODS["random_sentences"]().attribute(model, tiny_sample())
