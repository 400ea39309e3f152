"""A value replaced in the prompt, and the model asked again."""

import pytest

from flashtrace_lib.tasks import answers_after_swap, swaps
from flashtrace_lib.tasks.responses import teacher_forced
from tests.support.boxes import EXAMPLES


def test_the_model_reads_the_prompt_with_the_value_replaced_and_nothing_else(embedded, monkeypatch):
    model, tokenizer = embedded
    (sample,) = teacher_forced(EXAMPLES[:1], tokenizer).samples
    read = []

    def fake(_, __, texts, max_new_tokens):
        read.extend(texts)
        return [tokenizer(f"<think>\n1\n</think>\n\n{said}<|im_end|>").input_ids for said in ("4127.", "5038.")]

    monkeypatch.setattr(swaps, "generate", fake)
    assert answers_after_swap(model, tokenizer, sample, "4127", "5038") == ("4127.", "5038.")
    start = sample.response[0]
    assert read[0] == tokenizer.decode(sample.input_ids[:start]) and read[1] == read[0].replace("4127", "5038")
    with pytest.raises(ValueError, match="box-0: '412' does not stand in its input"):  # a part of a number is no value
        answers_after_swap(model, tokenizer, sample, "412", "5")
