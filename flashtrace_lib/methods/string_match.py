"""What copying alone finds: no model is asked, the input is compared with the response."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from ..attribution import Attribution, Method
from ..sample import Sample


@dataclass
class StringMatch(Method):
    """Length of the longest run of tokens through each input token that recurs in T ∪ O; no model is asked.

    The control for tasks whose answer quotes its evidence: a method that finds no more than this one shows copying.
    Runs lie within I and within the range from the first token of T (of O where T is empty) to the last of O.
    """

    name: ClassVar[str] = "string_match"

    def _attribute(self, model, sample: Sample) -> Attribution:
        source, copy = sample.prompt_ids.cpu(), sample.input_ids[slice(*sample.segments.generated)].cpu()
        scores = longest_runs(source, copy).double()
        return Attribution(scores, self.name, metadata={"forward_passes": 0, "backward_passes": 0})


def longest_runs(source: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
    """Length of the longest run of ``source`` [n] through each of its tokens that stands in ``copy`` [m]; int64 [n].

    Row by row: the longest run that ends at token i is one longer than the one that ends before it, in the same place
    of ``copy``. Each run then covers the tokens it is made of. Time O(n · m), memory O(n + m).
    """
    scores = torch.zeros(len(source), dtype=torch.long)
    ending = torch.zeros(len(copy) + 1, dtype=torch.long)  # [1 + m]: run of source that ends here, by place in copy
    for i, token in enumerate(source):
        ending[1:] = torch.where(copy == token, ending[:-1] + 1, 0)
        length = int(ending.max())
        scores[i + 1 - length : i + 1].clamp_(min=length)
    return scores
