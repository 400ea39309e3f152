"""Paragraphs first, then the sentences of the best: against a plain loop, and what it equals in special cases."""

import pytest
import torch

from flashtrace_lib.methods import Perturbation
from flashtrace_lib.methods.perturbation import paragraphs
from tests.oracles.contexts import SENTENCES, close, long_sample
from tests.oracles.naive_perturbation import naive_loo, spread
from tests.oracles.tiny import tiny_model

PARAGRAPHS = {"two": ("\n\n", "\n"), "blank with spaces": ("\n \n", " "), "newlines": ("\n", " "), "one": (" ", " ")}


def divided_sample(border, other):
    """Five sentences in three paragraphs, of two, one and two, where ``border`` divides them."""
    sample = long_sample()
    sample.sentences = [(3, 10), (10, 31), (31, 33), (33, 40), (40, 57), *SENTENCES[4:]]
    sample.tokens = [" a"] * len(sample)
    sample.tokens[9] = sample.tokens[39] = other
    sample.tokens[30], sample.tokens[33] = border, border + "a"  # behind a sentence, and at the head of one
    return sample


@pytest.mark.parametrize("kind", PARAGRAPHS)
def test_a_blank_line_divides_paragraphs_else_a_newline(kind):
    sample = divided_sample(*PARAGRAPHS[kind])
    found = paragraphs(sample, sample.sentences[:5])
    assert found == ([[0, 1, 2, 3, 4]] if kind == "one" else [[0, 1], [2], [3, 4]])


@pytest.mark.parametrize("metric", ["nll", "kl", "jsd"])
@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_hierarchy_masks_paragraphs_then_the_sentences_of_the_best(family, keep, metric):
    model, sample = tiny_model(family), divided_sample("\n\n", "\n")
    spans, groups = sample.sentences[:5], [[0, 1], [2], [3, 4]]
    whole = naive_loo(model, sample, [(3, 31), (31, 33), (33, 57)], metric)
    best = sorted(range(3), key=lambda i: -whole[i])[:keep]
    kept = [unit for i in best for unit in groups[i]]
    values = [effect if u in kept else 0.0 for u, effect in enumerate(naive_loo(model, sample, spans, metric))]
    att = Perturbation(hierarchy=keep, metric=metric).attribute(model, sample)
    close(att.metadata["signed"], spread(sample, values, spans))
    assert att.metadata["forward_passes"] == 1 + 3 + 1 + len(kept) and att.metadata["units"] == "sentence"
    assert (att.metadata["n_paragraphs"], att.metadata["n_kept"], att.metadata["n_units"]) == (3, len(kept), 5)


@pytest.mark.parametrize("kind, keep", [("one", 1), ("two", 3), ("two", 9)])
def test_hierarchy_that_keeps_every_paragraph_is_the_plain_method(kind, keep):
    model, sample = tiny_model(), divided_sample(*PARAGRAPHS[kind])
    plain = Perturbation(units="sentence").attribute(model, sample)
    found = Perturbation(hierarchy=keep).attribute(model, sample)
    assert torch.equal(found.scores, plain.scores) and found.metadata["forward_passes"] == 6
    close(found.by_sentence(), plain.by_sentence(), 0)


def test_a_sample_without_display_tokens_is_refused():
    with pytest.raises(ValueError, match="no display tokens"):
        Perturbation(hierarchy=3).attribute(tiny_model(), long_sample())
