"""What tests of tasks share."""

import pytest

from flashtrace_lib.tasks import responses


@pytest.fixture
def answering(monkeypatch, embedded):
    """Answer with given texts in the place of the model; returns the sizes of the batches asked for."""
    model, tokenizer = embedded
    asked = []

    def set_answers(answers: dict[int, str]):
        def fake(_, __, texts, max_new_tokens):
            asked.append(len(texts))
            numbers = [next(i for i in range(99) if f"Note {i}." in text) for text in texts]
            return [tokenizer(answers.get(i, "no idea<|im_end|>"), add_special_tokens=False).input_ids for i in numbers]

        monkeypatch.setattr(responses, "generate", fake)
        return asked

    return set_answers
