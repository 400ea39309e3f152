"""Greedy continuations of prompts, as one padded batch; a long beginning that they share is read once."""

import copy
import math
import os
from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from ..text.offsets import decode_with_offsets, tokenise
from ..text.reading import own_tokens, read_reply
from .batched_forward import SharedPrefix
from .context import longest_context, steady_length
from .state import evaluating, input_device
from .wrapped import has_virtual_tokens, in_use, unwrap, without_peft


def generate(model: torch.nn.Module, tokenizer: Any, texts: Sequence[str], max_new_tokens: int) -> list[list[int]]:
    """Greedy continuations of rendered prompts, as one batch, padded on the left or behind what all of them share.

    Greedily whatever the model's generation config asks for (penalties, beams, forbidden tokens): each token is the
    most probable one. Of the config only the end tokens count.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase
    texts : sequence of str
        Prompts as the model reads them (`text.render_prompt`).
    max_new_tokens : int
        Longest response, tokens; less where the model's context ends.

    Returns
    -------
    list of list of int
        New token ids; the end token is the last one where the model came to an end.

    Raises
    ------
    ValueError
        If no token may be generated, or a prompt fills the model's context.
    """
    if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be a whole number of at least 1, got {max_new_tokens!r}")
    prompts, model = [tokenise(tokenizer, text)[0] for text in texts], unwrap(model)
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    length, ends = max(map(len, prompts)), _end_tokens(model, tokenizer)
    room = (longest_context(model) or math.inf) - length
    if room < 1:
        raise ValueError(f"a prompt has {length} tokens, and with one more the model's context is exceeded: shorten it")
    how = {"max_new_tokens": int(min(max_new_tokens, room)), "do_sample": False, "pad_token_id": pad}
    with torch.inference_mode(), in_use(model), evaluating(model):
        n, past = _shared(model, prompts)
        rows = [(p[:n], [pad] * (length - len(p)), p[n:]) for p in prompts]
        ids = [[*start, *gap, *rest] for start, gap, rest in rows]  # [B, length]
        mask = [[1] * n + [0] * len(gap) + [1] * len(rest) for _, gap, rest in rows]
        given = {"input_ids": ids, "attention_mask": mask}
        given = {name: torch.tensor(value, device=input_device(model)) for name, value in given.items()}
        out = _greedy(model, ends).generate(**given, **how, **past)  # [B, length + new]
    return [_until_end(row, ends) for row in out[:, length:].tolist()]


def _shared(model: torch.nn.Module, prompts: list[list[int]]) -> tuple[int, dict[str, Any]]:
    """How many leading tokens the prompts share, if that is half of the longest, and the cache that holds them."""
    n = len(os.path.commonprefix([prompt[:-1] for prompt in prompts])) if len(prompts) > 1 else 0
    longest = max(map(len, prompts))
    if 2 * n < longest or longest > steady_length(model) or has_virtual_tokens(model):
        return 0, {}
    prefix = SharedPrefix(model, torch.tensor(prompts[0][:n]))
    cache = prefix.cache(n, len(prompts)) if prefix.usable else None
    return (n, {"past_key_values": cache}) if cache else (0, {})


def _greedy(model: torch.nn.Module, ends: set[int]) -> torch.nn.Module:
    """The model with a plain generation config, whose values fill in what a call leaves open; the rest is shared."""
    inner = copy.copy(without_peft(model))
    inner.generation_config = GenerationConfig(eos_token_id=sorted(ends) or None)
    if not has_virtual_tokens(model):
        return inner
    outer = copy.copy(model)  # of peft, which puts virtual tokens before the text
    outer._modules = {**model._modules, "base_model": inner}
    return outer


def is_finished(model: torch.nn.Module, tokenizer: Any, response: Sequence[int]) -> bool:
    """Whether a response ends with an end token, and not because no more could be generated."""
    return bool(response) and response[-1] in _end_tokens(model, tokenizer)


def answer_text(tokenizer: Any, response: list[int], before: str = "") -> str:
    """What is scored: the words behind the reasoning, all where nothing marks it, none where it never ends.

    ``before`` is what the prompt has behind the user's words, as in `read_reply`.
    """
    words = tokenizer.decode(response, skip_special_tokens=True)
    if "</think>" in words:
        return words.rsplit("</think>", 1)[-1]
    text, spans = decode_with_offsets(tokenizer, response)
    found = read_reply(text, before, own_tokens(tokenizer, response, spans))
    return text[slice(*found.output or (0, 0))] if found.format else words


def _end_tokens(model: torch.nn.Module, tokenizer: Any) -> set[int]:
    """Ids that end a response, by the generation config or the tokenizer."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    ends = torch.as_tensor([] if ends is None else ends).flatten().tolist()
    return {*map(int, ends), tokenizer.eos_token_id} - {None}


def _until_end(row: list[int], ends: set[int]) -> list[int]:
    """Cut a row of the batch behind its first end token: what follows is padding."""
    for position, token in enumerate(row):
        if token in ends:
            return row[: position + 1]
    return row
