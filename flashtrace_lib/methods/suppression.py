"""Attention suppression: what later sentences lose when one sentence cannot be attended to (Bogdan et al. 2025)."""

import inspect
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import ClassVar

import torch
from torch import nn

from ..attribution import Attribution, Method
from ..model.architecture import family
from ..model.batched_forward import SharedPrefix, kl_from, score_rows, whole_distribution
from ..model.checks import check_ids, check_once
from ..model.context import check_context
from ..model.state import evaluating, input_device
from ..model.wrapped import has_virtual_tokens, in_use, without_peft
from ..sample import Sample, Span
from .backward_graph import graph_units, walked_from_output
from .perturbation_base import unit_spans

TOLERANCE = 1e-3  # of the logits of a suppressed pass, relative to their spread at a position; in float32
_ATTENDS = {"full_attention", "sliding_attention", "chunked_attention"}  # kinds of layers that read keys and values


@dataclass
class SuppressionMatrix:
    """Effect of suppressing each sentence on each later one.

    Parameters
    ----------
    values : torch.FloatTensor, shape [G, U]
        Nats; 0 where the column does not stand before the row.
    rows : list of (int, int)
        Token ranges of the sentences of T and O whose predictions are compared.
    columns : list of (int, int)
        Token ranges of the sentences of I and T that are suppressed.
    """

    values: torch.Tensor
    rows: list[Span]
    columns: list[Span]


@dataclass
class Suppression(Method):
    """Sentences suppressed one at a time, and the mass of O walked back along what that does to later sentences.

    When sentence u of I or T is suppressed, no position behind it attends to its tokens, in any layer and head; ids
    and positions stay. Its effect on a later sentence g of T or O is

        M[g, u] = (1/|g|) Σ_{t in g} D_KL(p_t(· | intact) ‖ p_t(· | u suppressed)),

    the sentence-by-sentence matrix of the source, here with I in its columns and O in its rows (`matrix`). A token
    right behind u is predicted at the last token of u, which still sees u: it adds 0.

    The walk to I is that of `CAGE`: a row, each effect shared equally by the tokens of its sentence, is normalised;
    every token of O begins with 1/|O|; generated sentences pass on what they have, the last one first. O's own
    sentences are not suppressed. A sample without sentences has T and O as one unit each, and I token by token.

    Costs one forward pass for each sentence of I and T and one for the intact context; what stands before the
    sentence is computed once, but for models with a sliding window. The intact predictions, |T ∪ O| times the
    vocabulary in float32, are kept meanwhile.

    References
    ----------
    Bogdan, Macar, Nanda & Conmy, "Thought Anchors: Which LLM Reasoning Steps Matter?", 2025 (arXiv 2506.19143).
    """

    name: ClassVar[str] = "suppression"
    late: ClassVar[bool] = False  # hidden from the response alone

    def _attribute(self, model: nn.Module, sample: Sample) -> Attribution:
        effects = self.matrix(model, sample)
        rows = torch.zeros(len(effects.rows), len(sample))  # [G, N]: a sentence's tokens share its effect equally
        for effect, (start, stop) in zip(effects.values.T, effects.columns, strict=True):
            rows[:, start:stop] = effect[:, None] / (stop - start)
        return walked_from_output(self.name, sample, rows, effects.rows, 1 + len(effects.columns))

    def matrix(self, model: nn.Module, sample: Sample) -> SuppressionMatrix:
        """Effect of each sentence of I and T on each later one of T and O.

        Parameters
        ----------
        model : transformers.PreTrainedModel
            A causal language model; left exactly as it was.
        sample : Sample
            The context, its segments and its sentences.

        Returns
        -------
        SuppressionMatrix
            Values in nats per token, float32 of shape [G, U] on the CPU.

        Raises
        ------
        ValueError
            If attention of the model cannot be suppressed, the model cannot read the context, or the sentences do
            not tile I, T and O.
        """
        with in_use(model) as model:
            check_context(model, sample)
            check_suppressible(model)
            reasoning = graph_units(sample, sample.segments.reasoning)
            columns = unit_spans(sample, sample.segments.prompt, "sentence" if sample.sentences else "token")
            columns += reasoning
            divergences = self._divergences(model, sample, columns)  # [U, R]
        rows = reasoning + graph_units(sample, sample.segments.output)
        start, stop = sample.segments.generated
        effects = [divergences[:, a - start : b - start].mean(1) for a, b in rows]
        return SuppressionMatrix(torch.stack(effects), rows, columns)

    def _divergences(self, model: nn.Module, sample: Sample, columns: list[Span]) -> torch.Tensor:
        """Divergence (nats) at every token from T's first to O's last when each column is suppressed, [U, R]."""
        start, stop = sample.segments.generated
        n, ids = stop - start, sample.input_ids[: stop - 1].cpu()
        with evaluating(model), torch.inference_mode():
            how = {"resembling": SharedPrefix(model, ids)}
        intact = score_rows(model, [ids], n, whole_distribution, **how)[0]  # [R, V]
        how |= {"progress": f"{self.name} {sample.id}", "total": len(columns), "late": self.late}
        how["visible"] = (_all_but(span, len(ids)) for span in columns)
        changed = score_rows(model, repeat(ids, len(columns)), n, kl_from(intact), **how)  # [U, R]
        ends = torch.tensor([end for _, end in columns])
        unchanged = torch.arange(start, stop) <= ends[:, None]  # [U, R]: predicted before or within the column
        return changed.masked_fill(unchanged, 0).clamp_min(0)  # a divergence below 0 is rounding


@dataclass
class ResponseSuppression(Suppression):
    """As `Suppression`, but a sentence of I is hidden from the positions alone that predict T and O.

    What later sentences of I took from it stays, so that I is read once, and a sentence costs the positions of T and O
    alone. Sentences of T are hidden from all that follows, as there.

    Needs a model whose keys and values of I can be kept: not one with a sliding window.

    References
    ----------
    As `Suppression`, whose source has sentences of T alone, for which the two are the same.
    """

    name: ClassVar[str] = "suppression_response"
    late: ClassVar[bool] = True


def _all_but(span: Span, n_tokens: int) -> torch.Tensor:
    """False at the tokens of the span, [N]."""
    visible = torch.ones(n_tokens, dtype=torch.bool)
    visible[span[0] : span[1]] = False
    return visible


def check_suppressible(model: nn.Module) -> None:
    """Refuse a model whose attention to some tokens cannot be suppressed and all else left as it is.

    On a short input, suppressing two tokens has to equal a context without them whose other tokens keep their
    positions, and which ends earlier. Checked again when weights or modules of the model changed.

    Parameters
    ----------
    model : transformers.PreTrainedModel

    Raises
    ------
    ValueError
        If the model has layers that are no attention to all of its keys and values, biases attention by the distance
        in the mask, takes no positions, ignores an attention mask, or looks ahead; the message names its family.
    """
    check_once(model, "suppression", partial(_check_suppressible, model))


def _check_suppressible(model: nn.Module) -> None:
    config, fault = model.config.get_text_config(), None
    others = set(getattr(config, "layer_types", None) or ()) - _ATTENDS
    if getattr(model, "_is_stateful", False) or others:
        fault = f"has layers other than full or sliding attention ({', '.join(sorted(others)) or 'a recurrent state'})"
    elif (
        has_virtual_tokens(model)
        or getattr(config, "alibi", False)
        or ("position_ids" not in inspect.signature(without_peft(model).forward).parameters)
    ):
        fault = "counts its positions itself, so that those behind a suppressed sentence would move"
    elif not _equals_deletion(model):
        fault = "does not leave out of its attention what an attention mask hides, or looks ahead"
    if fault:
        raise ValueError(f"{family(model)} {fault}: attention suppression needs another model, or use 'perturbation'")


@torch.inference_mode()
def _equals_deletion(model: nn.Module) -> bool:
    """Whether of six tokens, two of them suppressed, two predict as with what they see alone, at its own positions.

    And with nothing suppressed, whether a mask and positions that are given change nothing.
    """
    ids = check_ids(model)[1:7]  # not a vocabulary's first tokens: those of no use are untrained, and magnify rounding
    shown = (_all_but((1, 1), 6), _all_but((1, 3), 6))
    plain = score_rows(model, [ids], 3, whole_distribution)[0]  # [3, V]
    given, masked = score_rows(model, [ids, ids], 3, whole_distribution, visible=shown)  # [3, V] each
    left, device = torch.tensor([[0, 3, 4]]), input_device(model)
    with evaluating(model):
        known = {"position_ids": left.to(device), "attention_mask": torch.ones_like(left).to(device)}
        logits = model(input_ids=ids[left].to(device), use_cache=False, **known).logits[0, 1:]  # [2, V]
    deleted = logits.float().log_softmax(-1).cpu()
    allowed = max(TOLERANCE, 16 * torch.finfo(logits.dtype).eps) * plain.std(-1)  # [3]
    gaps = ((given - plain).abs().amax(-1), (deleted - masked[:2]).abs().amax(-1))
    return all(bool((gap <= allowed[: len(gap)]).all()) for gap in gaps)
