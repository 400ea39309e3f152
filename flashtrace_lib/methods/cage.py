"""CAGE: context attribution via graph explanations (Walker & Ewetz 2025)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from ..attribution import Attribution, Method
from ..kernel.capture import capture
from ..kernel.decomposition import check_decomposition
from ..sample import Sample
from .backward_graph import graph_units, unit_rows, walked_from_output


@dataclass
class CAGE(Method):
    """Graph of sentences: every generated sentence is attributed to all before it, and mass walks along the edges.

    Row g of the graph holds the span scores (section 4.2) of generated sentence g over the tokens before it, clamped at
    0 and normalised; one forward pass serves all. The walk begins with every token of O weighing 1/|O| and takes the
    generated sentences in reverse: w += w[g] A[g, :], w[g] = 0. What arrives on I is the result; template tokens keep
    what they get (they count in the normalisation of the rows, and are dropped in the end).

    A sample without sentences has T and O as one unit each.

    References
    ----------
    Walker & Ewetz, "Explaining the Reasoning of Large Language Models Using Attribution Graphs", 2025.
    """

    name: ClassVar[str] = "cage"
    removed: ClassVar[dict] = {"base": "flashtrace", "units": "sentence", "target_state": "token"}

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        check_decomposition(model)
        nodes = [n for part in (sample.segments.reasoning, sample.segments.output) for n in graph_units(sample, part)]
        activations = capture(model, sample.input_ids, sample.segments.generated)
        rows = unit_rows(activations, nodes, label=f"{self.name} {sample.id}")  # [G, N]
        return walked_from_output(self.name, sample, rows, nodes, forward_passes=1)
