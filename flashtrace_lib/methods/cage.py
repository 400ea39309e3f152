"""CAGE: context attribution via graph explanations (Walker & Ewetz 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from ..attribution import Attribution
from ..kernel.capture import capture
from ..kernel.decomposition import check_decomposition
from ..model.batched_forward import log_prob_of, score_rows
from ..sample import Sample, Span
from .backward_graph import ablated_units, graph_units, spread_over_tokens, unit_rows, walked_from_output
from .budgeted import BudgetedMethod
from .perturbation_base import check_choice, masked_rows


@dataclass
class CAGE(BudgetedMethod):
    """Graph of sentences: every generated sentence is attributed to all before it, and mass walks along the edges.

    Row g of the graph holds the base attribution of generated sentence g to the tokens before it, clamped at 0 and
    normalised. The walk begins with every token of O weighing 1/|O| and takes the generated sentences in reverse:
    w += w[g] A[g, :], w[g] = 0. What arrives on I is the result; template tokens keep what they get (they count in
    the normalisation of the rows, and are dropped in the end).

    A sample without sentences has T and O as one unit each (and, for ``base="perturbation"``, I token by token).

    Parameters
    ----------
    base : {"flashtrace", "ifr", "perturbation"}
        Span scores of the sentence (section 4.2), the mean of its tokens' IFR rows, or the drop of its
        log-probability when a unit before it is masked. The first two take one forward pass for all sentences, the
        third one for each unit of I, T and O.
    units : {"sentence", "token"}
        What a node of the graph is.
    target_state : {"token", "predictor"}
        For the first two bases: explain the states at the tokens, or those before them, that predict them.
    max_batch_bytes : int, optional
        Memory budget of one pass; does not change the result.

    References
    ----------
    Walker & Ewetz, "Explaining the Reasoning of Large Language Models Using Attribution Graphs", 2025.
    """

    base: str = "flashtrace"
    units: str = "sentence"
    target_state: str = "token"

    name: ClassVar[str] = "cage"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("base", self.base, ("flashtrace", "ifr", "perturbation"))
        check_choice("units", self.units, ("sentence", "token"))
        check_choice("target_state", self.target_state, ("token", "predictor"))
        if self.base == "perturbation" and self.target_state != "token":
            raise ValueError('target_state chooses a hidden state: it needs base="flashtrace" or "ifr"')

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        generated = (sample.segments.reasoning, sample.segments.output)
        nodes = [node for segment in generated for node in graph_units(sample, segment, self.units)]
        if self.base == "perturbation":
            rows, passes = self._log_prob_drops(model, sample, nodes)
        else:
            rows, passes = self._proximity_rows(model, sample, nodes), 1
        return walked_from_output(self.name, sample, rows, nodes, passes)

    def _proximity_rows(self, model: nn.Module, sample: Sample, nodes: list[Span]) -> torch.Tensor:
        """Span scores, or mean IFR rows, of every node from one captured forward, shape [G, N]."""
        check_decomposition(model)
        shift = int(self.target_state == "predictor")
        start, stop = sample.segments.generated
        activations = capture(model, sample.input_ids, (start - shift, stop - shift))
        how = {"shift": shift, "max_batch_bytes": self.max_batch_bytes, "label": f"{self.name} {sample.id}"}
        if self.base == "flashtrace":
            return unit_rows(activations, nodes, **how)
        tokens = [(i, i + 1) for node in nodes for i in range(*node)]
        each = unit_rows(activations, tokens, **how)  # [tokens, N]
        return torch.stack([part.mean(0) for part in each.split([stop - start for start, stop in nodes])])

    def _log_prob_drops(self, model: nn.Module, sample: Sample, nodes: list[Span]) -> tuple[torch.Tensor, int]:
        """Drop in each node's log-probability (nats) when a unit is masked in place, and the passes it took.

        A mask changes only what stands behind it, so one pass for each unit serves all nodes.

        Returns
        -------
        (torch.FloatTensor of shape [G, N], int)
            A unit's drop is shared equally among its tokens.
        """
        masked = ablated_units(sample, self.units) + nodes
        start, stop = sample.segments.generated
        scored = score_rows(
            model,
            masked_rows(sample, masked),
            stop - start,
            log_prob_of(sample.input_ids[start:stop].cpu()),
            max_batch_bytes=self.max_batch_bytes,
            resembling=sample.input_ids[: stop - 1],
            progress=f"{self.name} {sample.id}",
            total=len(masked) + 1,
        )  # [U + 1, R]
        drops = scored[:1] - scored[1:]  # [U, R]
        effects = torch.stack([drops[:, a - start : b - start].sum(-1) for a, b in nodes])  # [G, U]
        return spread_over_tokens(effects, masked, len(sample)), len(scored)
