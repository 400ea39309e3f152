"""Perturbation: leave one unit out (Liu et al. 2024; appendices D and D.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch

from ..attribution import Attribution
from ..sample import Sample, Span
from .perturbation_base import METRICS, UnitMethod, check_choice, masked_rows

_BLANK_LINE, _NEWLINE = re.compile(r"\n[^\S\n]*\n"), re.compile(r"\n")


@dataclass
class Perturbation(UnitMethod):
    """How much worse O is predicted when a unit of I is masked in place, mean over the tokens of O.

    a_u = (1/|O|) Σ_t m_t(context with the tokens of u replaced by the mask token) − m_t(context), where m is the
    metric. Positions stay as they are; deleting a unit and tokenising again would be another baseline. Units of T and
    O need no passes: they are dropped anyway (appendix D.1) and do not change the scores of I.

    Costs one forward pass for each unit and one for the intact context; what stands before the unit is computed once,
    which halves a pass on average.

    Parameters
    ----------
    metric : {"nll", "kl", "jsd"}
        −log p(o_t | ·), so that a_u is the drop in log-probability; D_KL(p(· | context) ‖ p(· | u masked)); or the
        Jensen-Shannon divergence of the two, ARC-JSD's measure (which sums over tokens, and deletes the sentence).
        Nats per token of O.
    hierarchy : int
        0: each unit by itself. h > 0: AttriBoT's hierarchical attribution. First each paragraph of I is masked as a
        whole; then each sentence of the h paragraphs with the largest effect (AttriBoT keeps 3). All other sentences
        are pruned: their score is 0. Costs a pass a paragraph, a pass a sentence of those kept, and two. Where no
        more than h paragraphs are found, it is the method without hierarchy. A paragraph ends behind a sentence that
        a blank line follows; in an input without blank lines, a newline.

    The other parameters: see `UnitMethod`; ``hierarchy`` makes ``units="auto"`` sentences.

    References
    ----------
    Liu et al., "AttriBoT", 2024 (arXiv 2411.15102); Li et al., "Attributing Response to Context: A Jensen-Shannon
    Divergence Driven Mechanistic Study of Context Attribution in Retrieval-Augmented Generation", 2025
    (arXiv 2505.16415); FlashTrace, appendix D.
    """

    metric: str = "nll"
    hierarchy: int = 0

    name: ClassVar[str] = "perturbation"
    added_after_v1: ClassVar[tuple[str, ...]] = ("metric", "hierarchy")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("metric", self.metric, METRICS)
        if self.hierarchy < 0:
            raise ValueError(f"hierarchy must be 0 (none) or a number of paragraphs to keep, got {self.hierarchy}")
        if self.hierarchy and self.units == "token":
            raise ValueError('hierarchy goes from paragraphs to sentences: it needs units="sentence" or "auto"')

    def _units(self, sample: Sample) -> str:
        return "sentence" if self.hierarchy else super()._units(sample)

    def _attribute(self, model, sample: Sample) -> Attribution:
        spans = self._spans(sample)
        groups = paragraphs(sample, spans) if self.hierarchy else []  # of indices of units
        if len(groups) <= self.hierarchy:
            return self._attribution(sample, self._effects(model, sample, spans), len(spans) + 1)
        whole = [(spans[group[0]][0], spans[group[-1]][1]) for group in groups]
        by_paragraph = self._effects(model, sample, whole)  # [P]
        best = by_paragraph.argsort(descending=True, stable=True)[: self.hierarchy].tolist()
        kept = [unit for paragraph in sorted(best) for unit in groups[paragraph]]
        values = torch.zeros(len(spans), dtype=torch.float64)  # [U]
        values[kept] = self._effects(model, sample, [spans[unit] for unit in kept])
        passes = len(groups) + len(kept) + 2
        return self._attribution(sample, values, passes, n_paragraphs=len(groups), n_kept=len(kept))

    def _effects(self, model, sample: Sample, spans: list[Span]) -> torch.Tensor:
        """What masking each span does to the prediction of O, nats per token, float64 [len(spans)]."""
        m = self._divergences(model, sample, masked_rows(sample, spans), len(spans) + 1, self.metric)
        return m[1:] - m[0]


def paragraphs(sample: Sample, spans: list[Span]) -> list[list[int]]:
    """Indices of the sentences of each paragraph of I, in the order of the text.

    Parameters
    ----------
    sample : Sample
        With display tokens.
    spans : list of (int, int)
        Its sentences, token ranges that tile I.

    Raises
    ------
    ValueError
        If the sample has no display tokens.
    """
    if sample.tokens is None:
        raise ValueError(f"sample {sample.id} has no display tokens to find paragraphs in: use text.build_sample")
    texts = ["".join(sample.tokens[start:stop]) for start, stop in spans]
    gaps = [_space_at_end(a) + _space_at_start(b) for a, b in pairwise(texts)]
    border = _BLANK_LINE if any(map(_BLANK_LINE.search, gaps)) else _NEWLINE
    groups = [[0]]
    for i, gap in enumerate(gaps, 1):
        groups.append([i]) if border.search(gap) else groups[-1].append(i)
    return groups


def _space_at_end(text: str) -> str:
    return text[len(text.rstrip()) :]


def _space_at_start(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]
