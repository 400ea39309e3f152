"""Answers that the model writes for a trace; what it wrote is kept where it cannot be explained."""

import math
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from ..files import write_text
from ..text.offsets import decode, tokenise
from .context import longest_context
from .generate import generate, is_finished


class NotExplained(ValueError):
    """Something that the model wrote cannot be explained; its text is kept.

    Parameters
    ----------
    why : str
    text : str
        What the model wrote, special tokens included.
    response_ids : list of int
        Its token ids.
    limit : int
        ``max_new_tokens`` of the call.
    """

    def __init__(self, why: str, text: str, response_ids: list[int], limit: int) -> None:
        self.text, self.response_ids = text, response_ids
        self.path = Path(mkdtemp(prefix="flashtrace-")) / "response.txt"
        write_text(self.path, text)
        kept = f"its text is kept in {self.path} (--response {self.path} explains it without generating it again)"
        wrote = f"The model wrote {len(response_ids)} tokens, max_new_tokens (--max-new-tokens) is {limit}; {kept}"
        super().__init__(f"{why[: 598 - len(wrote)]}. {wrote}")


def generate_answer(model: torch.nn.Module, tokenizer: Any, text: str, max_new_tokens: int) -> list[int]:
    """Ids of the model's answer; NotExplained where it does not end within the model's context."""
    n_prompt = len(tokenise(tokenizer, text)[0])
    room = check_fits(model, n_prompt + 1) + 1
    response = generate(model, tokenizer, [text], int(min(max_new_tokens, room)))[0]
    if room < max_new_tokens and not is_finished(model, tokenizer, response):
        why = f"the answer does not end within the model's context: the prompt has {n_prompt} tokens, {room} are left. "
        why += f"Shorten the prompt, or explain a part of the answer: max_new_tokens (--max-new-tokens) {room} or less"
        raise NotExplained(why, decode(tokenizer, response), response, max_new_tokens)
    return response


def check_fits(model: torch.nn.Module, n_tokens: int) -> float:
    """How many tokens of the model's context are left; ValueError where the text is longer than that."""
    limit = longest_context(model) or math.inf
    if n_tokens > limit:
        raise ValueError(f"prompt and response have {n_tokens} tokens, the model reads {limit} at most: shorten them")
    return limit - n_tokens
