"""A method that is fast and notes its calls: what an evaluation computes, and what it takes from its store."""

from dataclasses import dataclass

import torch

from flashtrace_lib.attribution import Attribution, Hop, Method

CALLS = []


@dataclass
class Embedding(Method):
    """Scores a token by the size of its embedding: fast, and a function of model and sample."""

    power: float = 1.0
    name = "embedding"

    def _attribute(self, model, sample):
        CALLS.append((self.power, sample.id))
        size = model.get_input_embeddings().weight.detach()[sample.input_ids].norm(dim=-1) ** self.power
        scores = size[slice(*sample.segments.prompt)]
        hop = Hop(size / size.sum(), sample.segments.output, torch.ones(3))
        return Attribution(scores, self.name, hops=[hop, hop], flow=[0.5, 0.25], metadata={"passes": 1})


METHODS = {"a": Embedding(), "b": Embedding(power=-1.0)}
