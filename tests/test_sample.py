"""Bad input gets a message that says what is wrong and what to do."""

import pytest
import torch

from flashtrace_lib import Sample, Segments

GOOD = Segments((0, 4), (5, 8), (8, 10))


@pytest.mark.parametrize(
    "prompt, reasoning, output, message",
    [
        ((4, 8), (0, 4), (8, 9), "out of order"), ((0, 5), (4, 8), (8, 9), "overlap"),
        ((0, 0), (4, 8), (8, 9), "prompt span .* is empty"), ((0, 4), (4, 8), (8, 8), "output span .* is empty"),
        ((-1, 4), (4, 8), (8, 9), "not a half-open range"), ((3, 1), (4, 8), (8, 9), "not a half-open range"),
        (None, (4, 8), (8, 9), "not a pair"), ((0, 4), (4, 8, 9), (9, 10), "not a pair"),
    ],
)  # fmt: skip
def test_bad_segments(prompt, reasoning, output, message):
    with pytest.raises(ValueError, match=message):
        Segments(prompt, reasoning, output)


@pytest.mark.parametrize("ids", [torch.zeros(1, 10).long(), torch.zeros(10), [1] * 10, torch.zeros(10).int()])
def test_ids_must_be_a_flat_long_tensor(ids):
    with pytest.raises(ValueError, match="1-D LongTensor"):
        Sample(ids, GOOD)


def test_spans_must_lie_in_the_sample():
    with pytest.raises(ValueError, match=r"output span \(8, 10\) is out of range: the sample has 9 tokens"):
        Sample(torch.arange(9), GOOD)


def test_gold_must_lie_in_the_prompt():
    gold = torch.zeros(10, dtype=torch.bool)
    gold[9] = True
    with pytest.raises(ValueError, match="outside the prompt"):
        Sample(torch.arange(10), GOOD, gold=gold)
    with pytest.raises(ValueError, match="BoolTensor of shape"):
        Sample(torch.arange(10), GOOD, gold=torch.zeros(9, dtype=torch.bool))


def test_response_must_hold_reasoning_and_output():
    assert Sample(torch.arange(12), GOOD).response == (5, 12)
    with pytest.raises(ValueError, match="must hold the reasoning and the output"):
        Sample(torch.arange(12), GOOD, response=(6, 12))
    with pytest.raises(ValueError, match="overlaps the prompt"):
        Sample(torch.arange(12), GOOD, response=(3, 12))


def test_empty_reasoning_may_stand_anywhere():
    segments = Segments((2, 4), (0, 0), (8, 10))
    assert not segments.has_reasoning and segments.generated == (8, 10)
    assert segments.labels(11) == ["context"] * 2 + ["prompt"] * 2 + ["context"] * 4 + ["output"] * 2 + ["context"]


def test_tokens_and_sentences_must_fit():
    for options, message in (({"tokens": ["a"]}, "one display string"), ({"sentences": [(4, 11)]}, "sentence span")):
        with pytest.raises(ValueError, match=message):
            Sample(torch.arange(10), GOOD, **options)
    with pytest.raises(ValueError, match="no gold evidence"):
        _ = Sample(torch.arange(10), GOOD).gold_in_prompt


def test_the_haystack_is_what_the_task_marked_else_what_stands_before_the_question():
    ids, segments = torch.arange(12), Segments((1, 8), (8, 8), (8, 11))
    assert Sample(ids, segments).haystack == (1, 8)
    assert Sample(ids, segments, metadata={"question_start": 6}).haystack == (1, 6)
    assert Sample(ids, segments, metadata={"question_start": 1}).haystack == (1, 8)  # all of it asks
    marked = Sample(ids, segments, metadata={"question_start": 6, "haystack_span": [2, 5]}, sentences=[(1, 3), (3, 8)])
    assert marked.haystack == (2, 5)
    assert marked.sources == [(2, 3), (3, 5)]  # cut to it
    with pytest.raises(ValueError, match="does not lie in its prompt"):
        Sample(ids, segments, metadata={"haystack_span": (0, 5)}).haystack  # noqa: B018
    with pytest.raises(ValueError, match="no sentences in its haystack"):
        Sample(ids, segments).sources  # noqa: B018
