"""Plausible replacements for tokens, as ReAGent needs them: from a masked language model or from the model itself.

A proposer is called with the tokens to replace, [B, N] bool, and returns as many contexts [B, N] in which each of
them is another token than the one that stood there: a replacement that changes nothing would measure nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol

import torch

from ..model.batched_forward import score_rows
from ..model.state import evaluating, model_budget
from ..sample import Sample, Span

MODEL = "model"  # the causal model's own next-token distribution
DRAWS = 32  # proposals drawn for a position; every replacement takes one of them at random


class Proposer(Protocol):
    """Replaces chosen tokens by plausible other ones.

    Attributes
    ----------
    ids : torch.LongTensor, shape [N]
        The intact context, on the CPU.
    source : str
        What proposes, for tables and metadata.
    forward_passes : int
        Passes of the explained model it took.
    """

    ids: torch.Tensor
    source: str
    forward_passes: int

    def __call__(self, chosen: torch.Tensor, generators: Sequence[torch.Generator]) -> torch.Tensor:
        """Contexts [B, N] with the chosen tokens [B, N] replaced; row b draws from its own generator."""


def make_proposer(
    name: str,
    model,
    sample: Sample,
    region: Span,
    generator: torch.Generator,
    tokenizer: Any = None,
    max_batch_bytes: int | None = None,
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
    generator : torch.Generator
        Fixes what the causal model proposes.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        The causal model's tokenizer; a masked language model needs it.
    max_batch_bytes : int, optional
        See `batched_forward.score_rows`.

    Raises
    ------
    ValueError
        If the masked language model cannot be loaded, or a tokenizer or the sample's token texts are missing.
    """
    if name == MODEL:
        return CausalProposals(model, sample, region, generator, max_batch_bytes)
    return MaskedProposals(name, tokenizer, sample, model.get_input_embeddings().weight.device)


class CausalProposals:
    """Draws from the causal model's next-token distribution given the intact context to the left.

    The token that stood there and the model's special tokens are left out of the distribution. It looks one way only,
    where a masked language model looks both ways. Takes one forward pass (several for a long context with a large
    vocabulary, each within the budget); the draws do not depend on how many.
    """

    source = "causal model"

    def __init__(
        self, model, sample: Sample, region: Span, generator: torch.Generator, max_batch_bytes: int | None = None
    ) -> None:
        self.ids = sample.input_ids.cpu()
        self._pool = self.ids[:, None].repeat(1, DRAWS)  # [N, DRAWS]
        self.forward_passes = 0
        start, stop = region
        shift = 0 if start else 1  # nothing stands before the first token: let it follow a mask token
        if shift and sample.mask_token_id is None:
            raise ValueError(f"sample {sample.id} has no mask_token_id to predict its first token from")
        context = torch.cat([torch.tensor([sample.mask_token_id]), self.ids]) if shift else self.ids
        special = _special_ids(model)
        uniform = torch.rand(self._pool.shape, generator=generator).double()  # of float32: stays below 1
        budget = max_batch_bytes or model_budget(model)
        window = max(64, budget // (8 * model.config.get_text_config().vocab_size))  # positions whose logits are formed
        for end in range(stop, start, -window):
            first = max(start, end - window)

            def draw(log_probs: torch.Tensor, part: slice, first: int = first) -> torch.Tensor:
                at = slice(first + part.start, first + part.start + len(log_probs))
                return _draw_others(log_probs, self.ids[at], special, uniform[at])

            row = context[: end - 1 + shift]
            self._pool[first:end] = score_rows(model, [row], end - first, draw)[0]
            self.forward_passes += 1

    def __call__(self, chosen: torch.Tensor, generators: Sequence[torch.Generator]) -> torch.Tensor:
        """Contexts [B, N] with the chosen tokens [B, N] replaced."""
        picks = torch.stack([torch.randint(DRAWS, self.ids.shape, generator=g) for g in generators])  # [B, N]
        return torch.where(chosen, self._pool.gather(1, picks.T).T, self.ids)


def _draw_others(
    log_probs: torch.Tensor, original: torch.Tensor, special: list[int], uniform: torch.Tensor
) -> torch.Tensor:
    """Tokens [r, DRAWS] from log-probabilities [r, V] without the original [r] and special ones, by inversion."""
    log_probs = log_probs.to("cpu", torch.float64, copy=True)
    log_probs[:, special] = -torch.inf
    log_probs.scatter_(1, original[:, None], -torch.inf)
    below = log_probs.softmax(-1).cumsum(-1)  # [r, V]
    # the first token whose sum exceeds the draw: one of probability zero leaves the sum as it was, and is never it
    return torch.searchsorted(below, uniform * below[:, -1:], right=True)


def _special_ids(model) -> list[int]:
    """Ids of the marks that begin, end and pad a text, as far as the model's configuration names them."""
    config, found = model.config.get_text_config(), set()
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = getattr(config, name, None)
        found.update(value if isinstance(value, (list, tuple)) else [] if value is None else [value])
    return sorted(token for token in found if 0 <= token < config.vocab_size)


class MaskedProposals:
    """A masked language model's most probable other token at each chosen position, all of them masked at once.

    The two models cut text differently: each chosen token of the causal model becomes one mask in the text up to O,
    and the first token of what is predicted there replaces it. Contexts longer than the masked language model reads
    are cut into pieces that are filled one by one.
    """

    source = "masked language model"
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
        self.source = f"{self.source} {name}"
        masked_model, self._masked_tokenizer = _load(name)
        self._masked_model = masked_model.to(device)
        self._causal = _translation(name, tokenizer).to(device)  # [V of the masked model]

    def __call__(self, chosen: torch.Tensor, generators: Sequence[torch.Generator] = ()) -> torch.Tensor:
        """Contexts [B, N] with the chosen tokens [B, N] replaced."""
        return torch.stack([self._replace(row) for row in chosen])

    def _replace(self, chosen: torch.Tensor) -> torch.Tensor:
        """One context [N] with its chosen tokens [N] replaced."""
        replaced = self.ids.clone()
        replaced[chosen] = torch.tensor(self._fill(chosen.tolist()), dtype=torch.long)
        return replaced

    def _fill(self, chosen: list[bool]) -> list[int]:
        """Replacements (the causal model's ids) at the chosen positions, in order."""
        mask, ids, run = self._masked_tokenizer.mask_token_id, [], ""
        for word, is_chosen in zip(self._words, chosen, strict=False):
            if is_chosen:
                ids += [*self._read(run), mask]
            run = "" if is_chosen else run + word
        ids += self._read(run)
        size = self._piece_length()
        pieces = [piece for at in range(0, len(ids), size) if mask in (piece := ids[at : at + size])]
        originals = iter(self.ids[: len(chosen)][torch.tensor(chosen)].tolist())
        return [token for piece in pieces for token in self._fill_piece(piece, originals)]

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
    def _fill_piece(self, piece: list[int], originals: Iterator[int]) -> list[int]:
        """At each mask of one piece the most probable word that is not the original; originals are taken in order."""
        tokenizer = self._masked_tokenizer
        begin = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
        end = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
        ids = torch.tensor([[begin, *piece, end]], device=self._masked_model.device)  # [1, L]
        with evaluating(self._masked_model):
            logits = self._masked_model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0].float()  # [L, V]
        logits = logits[ids[0] == tokenizer.mask_token_id]  # [masks, V]
        original = torch.tensor(list(islice(originals, len(logits))), device=logits.device)  # [masks]
        logits = logits[:, : len(self._causal)]  # an output layer may be padded beyond its vocabulary
        logits[(self._causal < 0) | (self._causal == original[:, None])] = -torch.inf
        return self._causal[logits.argmax(-1)].tolist()


@lru_cache(maxsize=1)
def _translation(name: str, tokenizer: Any) -> torch.Tensor:
    """First token of the causal model for each of the masked model's [V]; -1 for special ones and those of no text."""
    masked = _load(name)[1]
    texts = [masked.decode([token], clean_up_tokenization_spaces=False) for token in range(len(masked))]
    firsts = [ids[0] if ids else -1 for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
    table = torch.tensor(firsts)
    table[masked.all_special_ids] = -1
    return table


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
