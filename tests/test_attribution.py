"""Attribution by sentence."""

import pytest
import torch

from flashtrace_lib.attribution import Attribution


def test_a_sentence_has_the_sum_of_its_tokens_or_the_score_they_copy():
    scores = torch.tensor([0.1, 0.2, 0.4, 0.3])
    assert torch.allclose(Attribution(scores, "m", sentences=[(0, 3), (3, 4)]).by_sentence(), torch.tensor([0.7, 0.3]))
    copied, metadata = torch.tensor([0.2, 0.2, 0.2, 0.4]), {"units": "sentence", "options": {"spread": "copy"}}
    result = Attribution(copied, "m", sentences=[(0, 3), (3, 4)], metadata=metadata).by_sentence()
    assert torch.allclose(result, torch.tensor([0.2, 0.4]))
    with pytest.raises(ValueError, match="no sentences"):
        Attribution(scores, "m").by_sentence()
