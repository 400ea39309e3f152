"""Plausible replacements for tokens, as ReAGent needs them: from a masked language model or from the model itself.

A proposer is called with the tokens to replace, [B, N] bool, and returns as many contexts [B, N] in which each of
them is the most probable token (Zhao & Shan 2024, section 3). It may well be the token that stood there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import torch

from .sample import Sample, Span
from .scoring_model import evaluating, model_budget, score_rows

MODEL = "model"  # the causal model's own next-token distribution


class Proposer(Protocol):
    """Replaces chosen tokens by plausible ones.

    Attributes
    ----------
    ids : torch.LongTensor, shape [N]
        The intact context, on the CPU.
    forward_passes : int
        Passes of the explained model it took.
    """

    ids: torch.Tensor
    forward_passes: int

    def __call__(self, chosen: torch.Tensor) -> torch.Tensor:
        """Contexts [B, N] with the chosen tokens [B, N] replaced."""


def make_proposer(
    name: str, model, sample: Sample, region: Span, tokenizer: Any = None, max_batch_bytes: int | None = None
) -> Proposer:
    """Proposer by name.

    Parameters
    ----------
    name : str
        ``"model"``, or a hub id or folder of a masked language model.
    model : transformers.PreTrainedModel
        The causal model that is explained.
    sample : Sample
    region : (int, int)
        Where tokens may be chosen.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        The causal model's tokenizer; a masked language model needs it.
    max_batch_bytes : int, optional
        See `scoring_model.score_rows`.

    Raises
    ------
    ValueError
        If the masked language model cannot be loaded, or a tokenizer or the sample's token texts are missing.
    """
    if name == MODEL:
        return CausalProposals(model, sample, region, max_batch_bytes)
    return MaskedProposals(name, tokenizer, sample, model.get_input_embeddings().weight.device)


class CausalProposals:
    """The causal model's own most probable next token, given the intact context to the left.

    Looks one way only, where a masked language model looks both ways. One forward pass (several for a long context
    with a large vocabulary, each within the budget), then no more.
    """

    def __init__(self, model, sample: Sample, region: Span, max_batch_bytes: int | None = None) -> None:
        self.ids = sample.input_ids.cpu()
        self._best = self.ids.clone()  # [N]
        self.forward_passes = 0
        start, stop = region
        shift = 0 if start else 1  # nothing stands before the first token: let it follow a mask token
        if shift and sample.mask_token_id is None:
            raise ValueError(f"sample {sample.id} has no mask_token_id to predict its first token from")
        context = torch.cat([torch.tensor([sample.mask_token_id]), self.ids]) if shift else self.ids
        budget = max_batch_bytes or model_budget(model)
        window = max(64, budget // (8 * model.config.get_text_config().vocab_size))  # positions whose logits are formed
        for end in range(stop, start, -window):
            n = min(window, end - start)
            best = score_rows(model, [context[: end - 1 + shift]], n, lambda log_probs, _: log_probs.argmax(-1))
            self._best[end - n : end] = best[0]
            self.forward_passes += 1

    def __call__(self, chosen: torch.Tensor) -> torch.Tensor:
        """Contexts [B, N] with the chosen tokens [B, N] replaced."""
        return torch.where(chosen, self._best, self.ids)


class MaskedProposals:
    """A masked language model's most probable token at each chosen position, all of them masked at once.

    The two models cut text differently: each chosen token of the causal model becomes one mask in the text up to O,
    and the first token of what is predicted there replaces it. Contexts longer than the masked language model reads
    are cut into pieces that are filled one by one.
    """

    forward_passes = 0  # none of the explained model

    def __init__(self, name: str, tokenizer: Any, sample: Sample, device: torch.device) -> None:
        if tokenizer is None or sample.tokens is None:
            missing = "tokenizer, the causal model's" if tokenizer is None else "Sample.tokens"
            raise ValueError(
                f"proposals={name!r} reads text and needs {missing}; give it, or use proposals='{MODEL}' to take the "
                "causal model's own predictions"
            )
        self.ids = sample.input_ids.cpu()
        self._words, self._tokenizer = sample.tokens[: sample.segments.output[0]], tokenizer
        masked_model, self._masked_tokenizer = _load(name)
        self._masked_model = masked_model.to(device)
        self._causal: dict[int, int | None] = {}  # masked model's token id -> causal model's

    def __call__(self, chosen: torch.Tensor) -> torch.Tensor:
        """Contexts [B, N] with the chosen tokens [B, N] replaced."""
        return torch.stack([self._replace(row) for row in chosen])

    def _replace(self, chosen: torch.Tensor) -> torch.Tensor:
        """One context [N] with its chosen tokens [N] replaced."""
        replaced = self.ids.clone()
        positions = chosen.nonzero().flatten().tolist()
        for position, predicted in zip(positions, self._fill(chosen.tolist()), strict=True):
            causal = self._translate(predicted)
            if causal is not None:
                replaced[position] = causal
        return replaced

    def _fill(self, chosen: list[bool]) -> list[int]:
        """Predicted ids (the masked model's) at the chosen positions, in order."""
        mask, ids, run = self._masked_tokenizer.mask_token_id, [], ""
        for word, is_chosen in zip(self._words, chosen, strict=False):
            if is_chosen:
                ids += [*self._read(run), mask]
            run = "" if is_chosen else run + word
        ids += self._read(run)
        size = self._piece_length()
        pieces = [ids[at : at + size] for at in range(0, len(ids), size)]
        return [token for piece in pieces if mask in piece for token in self._fill_piece(piece)]

    def _read(self, text: str) -> list[int]:
        """The masked model's ids of an unchanged piece of text, without any mask that the text itself spells out."""
        ids = self._masked_tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] if text else []
        return [token for token in ids if token != self._masked_tokenizer.mask_token_id]

    def _piece_length(self) -> int:
        """Tokens the masked language model reads at a time, its special tokens left out."""
        # RoBERTa numbers its positions from behind the padding id on
        longest = self._masked_model.config.max_position_embeddings - (self._masked_tokenizer.pad_token_id or 0) - 1
        return min(longest, self._masked_tokenizer.model_max_length) - 2

    @torch.inference_mode()
    def _fill_piece(self, piece: list[int]) -> list[int]:
        """Most probable ordinary token at each mask of one piece."""
        tokenizer = self._masked_tokenizer
        begin = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
        end = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
        ids = torch.tensor([[begin, *piece, end]], device=self._masked_model.device)  # [1, L]
        with evaluating(self._masked_model):
            logits = self._masked_model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0].float()  # [L, V]
        logits[:, tokenizer.all_special_ids] = -torch.inf
        return logits[ids[0] == tokenizer.mask_token_id].argmax(-1).tolist()

    def _translate(self, predicted: int) -> int | None:
        """First token of the causal model for a token of the masked model; None where it has no text."""
        if predicted not in self._causal:
            text = self._masked_tokenizer.decode([predicted], clean_up_tokenization_spaces=False)
            ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
            self._causal[predicted] = ids[0] if ids else None
        return self._causal[predicted]


@lru_cache(maxsize=1)
def _load(name: str) -> tuple[Any, Any]:
    """Masked language model and its tokenizer; the last one used stays loaded."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    try:
        return AutoModelForMaskedLM.from_pretrained(name).eval(), AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"cannot load masked language model {name!r} ({str(error).splitlines()[0]}); give a folder or a hub id "
            f"that can be reached, or proposals='{MODEL}' to take the causal model's own predictions"
        ) from error
