"""The chat template, and the place of the user's own words, or of every message of a conversation, in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from jinja2 import TemplateError

from .locate import THINK_CLOSE, THINK_OPEN
from .offsets import CharSpan

Messages = Sequence[Mapping[str, Any]]
# Arguments of `trace` and `build_sample` that draw reasoning out of a model which, asked to think, answers at once, as
# `qwen` does: its turn is begun for it. The words it is given, the list's first number among them, are context like the
# template around them, since the model did not choose them; T begins with its own first word. O is what follows the
# last "Answer:", that label included, else the last box, else the whole response.
STEP_BY_STEP: Mapping[str, Any] = MappingProxyType(
    {
        "request": '\n\nThink step by step. End with "Answer:" and the answer.',
        "answer_prefix": "Let's think step by step. The facts I need are:\n1.",
        "output": re.compile(r"(?s)(?:.*(?=Answer:)|.*(?=\\boxed\{))?(.+)"),
    }
)
# For models that explain their code at length behind it, so that their turn seldom ends within a few hundred tokens.
CODE_ALONE = "\n\nReply with the complete file in one block of code, without a word of explanation before or after it."
# Roles that the chat templates of the installed transformers' families know. Others are spelled wrong more often than
# they are meant, and a template that does not know a role writes it down without a word.
ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython", "observation", "document")
_MARK = "FLASHTRACE0USER0TEXT"  # takes the place of a message to show where the template puts it


@dataclass(frozen=True)
class Turn:
    """One message of a conversation in the rendered text."""

    role: str  # "system", "user", "assistant", "tool", …
    span: CharSpan  # its words, and its tool calls as the template writes them; empty where it leaves the message out


@dataclass(frozen=True)
class PromptText:
    """The text that the model reads before it answers.

    Parameters
    ----------
    text : str
        The rendered template with everything in it.
    span : (int, int)
        Characters of ``text`` that are the user's own words, or the whole conversation: the segment I.
    trimmed : int
        Characters that the template cut off the start of the user's words.
    turns : tuple of Turn
        Every message, the one given as ``system`` included, where the whole conversation is input.
    """

    text: str
    span: CharSpan
    trimmed: int = 0
    turns: tuple[Turn, ...] = ()


def render_prompt(
    tokenizer: Any,
    prompt: str | Messages,
    *,
    system: str | None = None,
    template: bool = True,
    request: str = "",
    answer_prefix: str = "",
    template_kwargs: Mapping[str, Any] | None = None,
    whole: bool = False,
) -> PromptText:
    """Put the user's words into the chat template and locate them in it.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
        Its chat template is applied where it has one.
    prompt : str or list of messages
        The user's words, or a conversation whose last message is the user's (a tool's, with ``whole``).
    system : str, optional
        System message.
    template : bool
        False: no template, the prompt goes in as it is (behind the tokenizer's start token, if it sets one).
    request : str
        Words behind them in the user's turn, such as the form of the answer: context, no input.
    answer_prefix : str
        Teacher-forced beginning of the model's turn: context to every method.
    template_kwargs : mapping, optional
        Further arguments of the template, for example ``{"enable_thinking": False}``.
    whole : bool
        Every message of ``prompt`` is input, earlier ones of the assistant included: ``span`` runs from the first to
        the last, and ``turns`` has the characters of each. Costs one more rendering per message.

    Raises
    ------
    ValueError
        If the conversation does not end with a message to answer, that message is empty, or the template refuses
        the conversation or changes its words.
    """
    messages = checked_messages(prompt, whole)
    n_given, n_own = len(messages), len(messages[-1]["content"])
    messages[-1]["content"] += request
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    if template and getattr(tokenizer, "chat_template", None):
        rendered = _with_template(tokenizer, messages, n_own, template_kwargs or {}, locate_all=whole)
    else:
        rendered = _without_template(tokenizer, messages, n_own)
    rendered = replace(rendered, text=rendered.text + answer_prefix)
    return _conversation(rendered, n_given) if whole else replace(rendered, turns=())


def _with_template(
    tokenizer: Any, messages: list[dict[str, Any]], n_own: int, template_kwargs: Mapping[str, Any], locate_all: bool
) -> PromptText:
    """Messages in the chat template; the span is that of the first ``n_own`` characters of the last one."""

    def render(turns: list[dict[str, Any]]) -> str:
        try:
            return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **template_kwargs)
        except TemplateError as error:
            raise ValueError(f"the chat template refuses this conversation: {error}") from error

    *earlier, last = messages
    words = last["content"]
    before, mark, after = render([*earlier, {**last, "content": _MARK}]).rpartition(_MARK)
    text, content = render(messages), words
    if mark and text != before + content + after:
        content = words.strip()  # several templates trim the message
    if not mark or text != before + content + after:
        raise ValueError(
            "the chat template changes the user's text, so its tokens cannot be located: "
            "use template=False, or render the prompt yourself"
        )
    trimmed = words.index(content)
    span = (len(before), len(before) + min(len(content), n_own - trimmed))
    if not locate_all:
        return PromptText(text, span, trimmed)
    turns = [Turn(m["role"], _locate_message(render, messages, k, text)) for k, m in enumerate(earlier)]
    return PromptText(text, span, trimmed, (*turns, Turn(last["role"], span)))


def checked_messages(prompt: str | Messages, whole: bool = False) -> list[dict[str, Any]]:
    """Messages with one text each, the last of which is to be answered; with ``whole`` it may be a tool's.

    Raises
    ------
    ValueError
        If one of them is no message with a text and a role that is known (the first is number 1), or the last one is
        empty or not to be answered.
    """
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [_as_text(m) for m in prompt]
    for number, message in enumerate(messages, start=1):
        if message["role"] not in ROLES:
            raise ValueError(f"message {number} has the role {message['role']!r}, which is none of {', '.join(ROLES)}")
    if not messages or not _to_answer(messages[-1], whole):
        ends = "the user's text message" + (", or a tool's" if whole else "")
        raise ValueError(f"prompt must be a text, or a list of messages that ends with {ends}")
    if not messages[-1]["content"].strip():
        what = "the prompt is empty"
        if not isinstance(prompt, str):
            what = f"message {len(messages)} ({messages[-1]['role']}), the one to answer, has no content"
        raise ValueError(f"{what}: there is no input to explain from")
    return messages


def conversation_and_response(prompt: str | Messages, response: Any) -> tuple[str | Messages, Any]:
    """The prompt and the response, which may also be the assistant's message at the end of a transcript.

    Raises
    ------
    ValueError
        If both the transcript and ``response`` have one, or that message holds no words (only a call of a tool, say).
    """
    last = _as_text(prompt[-1]) if prompt and not isinstance(prompt, str) else {"role": ""}
    if last["role"] != "assistant":
        return prompt, response
    if response is not None:
        raise ValueError(
            "the conversation ends with the assistant's message and a response is given as well: drop one of them"
        )
    if not last["content"].strip():
        raise ValueError("the last message of the assistant holds no words to explain: give what it wrote as response")
    thought = last.get("reasoning_content")
    opening = f"{THINK_OPEN}\n{thought}\n{THINK_CLOSE}\n\n" if thought else ""
    return list(prompt[:-1]), opening + last["content"]


def _as_text(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message with one text as its content; ValueError for pictures and the like."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise ValueError(f"a message must be a mapping with role and content, got {message!r:.80}")
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(p, Mapping) and p.get("type") == "text" for p in content):
        content = "".join(str(part.get("text", "")) for part in content)
    if content is not None and not isinstance(content, str):
        raise ValueError(f"the content of a {message['role']} message is no text: only text can be explained")
    return {**message, "content": content or ""}


def _to_answer(message: Mapping[str, Any], whole: bool) -> bool:
    """Whether a conversation may end with this message."""
    return message["role"] not in ("assistant", "system") if whole else message["role"] == "user"


def _locate_message(render: Callable[[list], str], messages: list[dict[str, Any]], k: int, text: str) -> CharSpan:
    """Characters of message ``k`` in ``text``: those that change when it holds a mark and no calls of tools."""
    bare = {name: value for name, value in messages[k].items() if name not in ("tool_calls", "reasoning_content")}
    before, mark, after = render([*messages[:k], {**bare, "content": _MARK}, *messages[k + 1 :]]).rpartition(_MARK)
    fits = text.startswith(before) and text.endswith(after) and len(before) + len(after) <= len(text)
    if not mark or not fits:
        raise ValueError(
            f"message {k} ({messages[k]['role']}) cannot be located: the chat template leaves it out or renders "
            "others differently because of it; use template=False, or drop the message"
        )
    return len(before), len(text) - len(after)


def _without_template(tokenizer: Any, messages: list[dict[str, Any]], n_own: int) -> PromptText:
    """Messages one after the other, blank lines between them, behind the start token if the tokenizer sets one."""
    start_ids = tokenizer("").input_ids
    text = tokenizer.bos_token if start_ids and start_ids[0] == tokenizer.bos_token_id else ""
    turns = []
    for message in messages:
        text += "\n\n" if turns else ""
        turns.append(Turn(message["role"], (len(text), len(text) + len(message["content"]))))
        text += message["content"]
    start = turns[-1].span[0]
    turns[-1] = replace(turns[-1], span=(start, start + n_own))
    return PromptText(text, turns[-1].span, turns=tuple(turns))


def _conversation(prompt: PromptText, n_given: int) -> PromptText:
    """``prompt`` with the last ``n_given`` messages as its span."""
    spans = [turn.span for turn in prompt.turns[-n_given:] if turn.span[0] < turn.span[1]]
    return replace(prompt, span=(spans[0][0], spans[-1][1]))
