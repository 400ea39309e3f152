"""The chat template, and where the user's own words stand in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .locate import CharSpan

Messages = Sequence[Mapping[str, str]]
_MARK = "FLASHTRACE0USER0TEXT"  # stands for the user's words while the template is measured


@dataclass(frozen=True)
class PromptText:
    """What the model reads before it answers.

    Parameters
    ----------
    text : str
        The rendered template with everything in it.
    span : (int, int)
        Characters of ``text`` that are the user's own words: the segment I.
    trimmed : int
        Characters that the template cut off the start of the user's words.
    """

    text: str
    span: CharSpan
    trimmed: int = 0


def render_prompt(
    tokenizer: Any,
    prompt: str | Messages,
    *,
    system: str | None = None,
    template: bool = True,
    request: str = "",
    answer_prefix: str = "",
    template_kwargs: Mapping[str, Any] | None = None,
) -> PromptText:
    """Put the user's words into the chat template and say where they stand in it.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        Its chat template is applied where it has one.
    prompt : str or list of messages
        The user's words, or a conversation whose last message is the user's.
    system : str, optional
        System message.
    template : bool
        False: no template, the prompt goes in as it is (behind the tokenizer's start token, if it sets one).
    request : str
        What the user's turn says behind these words, such as how to put the answer: context, no input.
    answer_prefix : str
        Words put into the model's mouth: the beginning of its turn, context to every method.
    template_kwargs : mapping, optional
        Further arguments of the template, for example ``{"enable_thinking": False}``.

    Raises
    ------
    ValueError
        If the conversation does not end with a user's message, that message is empty, or the template
        changes it.
    """
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
    if not messages or messages[-1].get("role") != "user" or not isinstance(messages[-1].get("content"), str):
        raise ValueError("prompt must be a text, or a list of messages that ends with the user's text message")
    own = messages[-1]["content"]
    if not own.strip():
        raise ValueError("the prompt is empty: there is no input to explain from")
    words = messages[-1]["content"] = own + request
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    if not (template and getattr(tokenizer, "chat_template", None)):
        start = tokenizer("").input_ids
        before = tokenizer.bos_token if start and start[0] == tokenizer.bos_token_id else ""
        before += "".join(f"{m['content']}\n\n" for m in messages[:-1])
        return PromptText(before + words + answer_prefix, (len(before), len(before + own)))

    def render(content: str) -> str:
        turns = [*messages[:-1], {"role": "user", "content": content}]
        return tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, **(template_kwargs or {})
        )

    before, mark, after = render(_MARK).rpartition(_MARK)
    rendered, kept = render(words), words
    if mark and rendered != before + kept + after:
        kept = words.strip()  # several templates trim the message
    if not mark or rendered != before + kept + after:
        raise ValueError(
            "the chat template changes the user's text, so its tokens cannot be located: "
            "use template=False, or render the prompt yourself"
        )
    trimmed = words.index(kept)
    span = (len(before), len(before) + min(len(kept), len(own) - trimmed))
    return PromptText(rendered + answer_prefix, span, trimmed)
