"""The chat template, and the place of the user's own words, or of every message of a conversation, in it."""

import re
import warnings
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import commonprefix
from types import MappingProxyType
from typing import Any

from jinja2 import TemplateError

from ..sample import bounding_span
from .messages import REASONING, ROLES, Messages, checked_messages, text_message
from .offsets import CharSpan

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
_MARK = "FLASHTRACE0USER0TEXT"  # takes the place of a message to show where the template puts it
_THOUGHT, _UNREAD = "FLASHTRACE0THOUGHT", "FLASHTRACE0UNREAD"  # of its reasoning; of what no template should write
# Roles whose messages get a list of parts as content in place of a text, and whether the reasoning is one of the parts,
# in the order in which they are tried.
_FORMS = ((), (*ROLES, "thinking"), ROLES, ("user",))
# A tag at the end of a prompt that opens the reasoning for the model.
OPENED = re.compile(r"([<\[◁])([\w:]*(?:think|thought|reason)[\w:]*)([>\]▷])\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class Turn:
    """One message of a conversation in the rendered text."""

    role: str  # "system", "user", "assistant", "tool", …
    span: CharSpan  # its words, and its tool calls as the template writes them; empty where it leaves the message out
    left_out: str = ""  # beginning of what the template cuts off, such as the reasoning of earlier messages


@dataclass(frozen=True)
class PromptText:
    """The text that the model reads before it answers.

    Parameters
    ----------
    text : str
        The rendered template with everything in it.
    span : (int, int)
        Characters of ``text`` that are the user's own words, or the whole conversation: the segment I.
    trimmed : int or None
        Characters that the template cut off the start of the last message's words; None where it wrote them
        otherwise, such as a tool's as JSON.
    turns : tuple of Turn
        Every message, the one given as ``system`` included, where the whole conversation is input.
    behind : int
        Character of ``text`` behind the last message, the request included: what follows is the template's.
    """

    text: str
    span: CharSpan
    trimmed: int | None = 0
    turns: tuple[Turn, ...] = ()
    behind: int = 0


def render_prompt(
    tokenizer: Any, prompt: str | Messages, *, system: str | None = None, template: bool = True,
    request: str = "", answer_prefix: str = "", template_kwargs: Mapping[str, Any] | None = None,
    whole: bool = False,
) -> PromptText:  # fmt: skip
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
        the conversation or changes its words; if tools are given, and no template is applied.
    """
    messages = checked_messages(prompt, whole)
    n_given, n_own = len(messages), len(messages[-1]["content"])
    messages[-1]["content"] += request
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    if template and getattr(tokenizer, "chat_template", None):
        rendered = _with_template(tokenizer, messages, n_own, template_kwargs or {}, locate_all=whole)
    elif (template_kwargs or {}).get("tools"):
        raise ValueError("a chat template shows the model its tools, and none is applied: leave them out of the prompt")
    else:
        rendered = _located(_joined(tokenizer), messages, n_own, locate_all=whole)
    stop, asked = rendered.span[1], request.rstrip()
    behind = stop + len(asked) * rendered.text.startswith(asked, stop)
    rendered = replace(rendered, text=rendered.text + answer_prefix, behind=behind)
    if not whole:
        return rendered
    spans = [turn.span for turn in rendered.turns[-n_given:] if turn.span[0] < turn.span[1]]
    return replace(rendered, span=bounding_span(spans))  # a template may put the system's words into a later turn


def _with_template(
    tokenizer: Any, messages: list[dict[str, Any]], n_own: int, template_kwargs: Mapping[str, Any], locate_all: bool
) -> PromptText:
    """Messages in the chat template, in the form that leaves out none of their words; else in the first that fits."""
    found, errors = [], []
    for roles in _FORMS:
        try:
            found.append(_located(_renderer(tokenizer, template_kwargs, roles), messages, n_own, locate_all))
            if not any(turn.left_out for turn in found[-1].turns):
                return found[-1]
        except ValueError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found[0]


def _renderer(tokenizer: Any, template_kwargs: Mapping[str, Any], roles: Sequence[str]) -> Callable[..., str]:
    """Function that renders messages, those of ``roles`` as lists of parts; its errors say what to do."""

    def render(messages: list[dict[str, Any]], answered: bool = False) -> str:
        given = [_in_parts(m, "thinking" in roles) if m["role"] in roles else m for m in messages]
        options = {"tokenize": False, "add_generation_prompt": not answered}
        try:
            text = tokenizer.apply_chat_template(given, **options, **template_kwargs)
        except Exception as error:  # a template may raise whatever Python does
            why = str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"
            system = any(message["role"] in ("system", "developer") for message in messages)
            words = "if it takes no system message, put its words into the user's turn; else " if system else ""
            remedy = f"{words}change the messages to what it takes, or use template=False (--no-template)"
            raise ValueError(f"the chat template refuses this conversation: {why[:300]}; {remedy}") from error
        if _UNREAD in text:
            raise ValueError("the chat template writes parts of a message as they are")
        return text

    return render


def _in_parts(message: dict[str, Any], with_reasoning: bool) -> dict[str, Any]:
    """A message whose content is a list of parts, as some templates want it."""
    thought = message.get(REASONING[0]) if with_reasoning else None
    parts = [{"type": "thinking", "thinking": thought}] if thought else []
    return {**message, "content": [*parts, {"type": "text", "text": message["content"], _UNREAD: ""}]}


def _located(render: Callable[..., str], messages: list[dict[str, Any]], n_own: int, locate_all: bool) -> PromptText:
    """The rendered messages; the span is that of the first ``n_own`` characters of the last one."""
    *earlier, last = messages
    words, text = last["content"], render(messages)
    start, stop = _locate_message(render, messages, len(earlier), text)
    content = text[start:stop]
    trimmed = words.index(content) if content.strip() == words.strip() and content in words else None
    if trimmed is None and last["role"] == "user":
        raise ValueError("the chat template changes the user's text, which cannot be located then: use template=False")
    if trimmed is not None:
        stop = start + min(len(content), n_own - trimmed)
    elif n_own < len(words):  # a request stands behind them
        stop = render([*earlier, {**last, "content": words[:n_own] + _MARK + words[n_own:]}]).rfind(_MARK)
    span = (start, stop)
    if not locate_all:
        return PromptText(text, span, trimmed)
    turns = [_turn(m, _locate_message(render, messages, k, text), text) for k, m in enumerate(earlier)]
    return PromptText(text, span, trimmed, (*turns, Turn(last["role"], span)))


def _turn(message: Mapping[str, Any], span: CharSpan, text: str) -> Turn:
    """A message that stands at ``span``; of the assistant's, the reasoning or the beginning that is missing there."""
    if message["role"] != "assistant":
        return Turn(message["role"], span)
    read, thought, words = _bare(text[slice(*span)]), message.get(REASONING[0], ""), message["content"]
    kept = bisect_left(range(len(words)), True, key=lambda i: _bare(words[i:]) in read)
    cut = ((thought if _bare(thought) not in read else "") + words[:kept]).strip()
    return Turn(message["role"], span, cut if len(cut) <= 80 else f"{cut[:60]}… ({len(cut)} characters)")


def _bare(text: str) -> str:
    """Without white space, which templates take away and add."""
    return "".join(text.split())


def conversation_and_response(
    prompt: str | Messages, response: Any, tokenizer: Any = None, **rendering: Any
) -> tuple[str | Messages, Any]:
    """The prompt and the response, which may also be the assistant's message at the end of a transcript.

    Its reasoning stands before its words as the tokenizer's template puts it there, with options as of `render_prompt`;
    between think tags where the template shows none.

    Raises
    ------
    ValueError
        If both the transcript and ``response`` have one, or that message holds no words (only a call of a tool, say).
    """
    last = text_message(prompt[-1]) if prompt and not isinstance(prompt, str) else {"role": ""}
    if last["role"] != "assistant":
        return prompt, response
    if response is not None:
        raise ValueError("the conversation ends with the assistant's message beside a given response: drop one of them")
    if not last["content"].strip():
        raise ValueError("the last message of the assistant holds no words to explain: give what it wrote as response")
    if last.get("tool_calls"):
        said = "the assistant's last message calls a tool behind its words, which are explained without the call"
        warnings.warn(f"{said}: to explain that too, give all that it wrote as response", RuntimeWarning, 3)
    thought = last.get(REASONING[0], "").strip("\n")
    if not thought:
        return list(prompt[:-1]), last["content"]
    opening, closing = _around_reasoning(tokenizer, checked_messages(prompt[:-1], whole=True), rendering)
    return list(prompt[:-1]), opening + thought + closing + last["content"].lstrip("\n")


def _around_reasoning(tokenizer: Any, messages: list[dict[str, Any]], rendering: Mapping[str, Any]) -> tuple[str, str]:
    """What the template writes before and behind the reasoning of a last message; think tags where it shows neither."""
    asked = {"role": "assistant", "content": _MARK, **dict.fromkeys(REASONING, _THOUGHT)}
    start = prefix = rendering.get("answer_prefix", "")
    for roles in _FORMS if rendering.get("template", True) and getattr(tokenizer, "chat_template", None) else ():
        render = _renderer(tokenizer, rendering.get("template_kwargs") or {}, roles)
        try:
            start = render(messages) + prefix
            opening, _, rest = render([*messages, asked], answered=True).partition(_THOUGHT)
        except ValueError:
            continue
        closing, shown, _ = rest.partition(_MARK)
        stem = start.rstrip()
        if shown and closing.strip() and opening.startswith(stem):
            return opening[len(stem) :].removeprefix(start[len(stem) :]), closing
    if tag := OPENED.search(start):
        return "", f"\n{tag[1]}/{tag[2]}{tag[3]}\n\n"
    return "<think>\n", "\n</think>\n\n"


def _locate_message(render: Callable[..., str], messages: list[dict[str, Any]], k: int, text: str) -> CharSpan:
    """Characters of message ``k`` in ``text``: those that change when it holds a mark and no calls of tools."""
    bare = {name: value for name, value in messages[k].items() if name not in ("tool_calls", *REASONING)}
    calls = messages[k].get("tool_calls")
    try:
        before, mark, after = render([*messages[:k], {**bare, "content": _MARK}, *messages[k + 1 :]]).rpartition(_MARK)
    except ValueError:
        if not calls:
            raise
        # no result of a tool without its call, some templates say: the call stays, its name is the mark
        marked = render([*messages[:k], {**messages[k], "tool_calls": [*map(_marked, calls)]}, *messages[k + 1 :]])
        before, mark, after = marked.partition(_MARK)[0], _MARK in marked, marked.rpartition(_MARK)[2]
    if calls:  # a call of a tool may lack the blank that stands before words
        before, after = commonprefix([before, text]), commonprefix([after[::-1], text[::-1]])[::-1]
    fits = text.startswith(before) and text.endswith(after) and len(before) + len(after) <= len(text)
    if not mark or not fits:
        why = "the chat template leaves it out or renders others differently because of it"
        remedy = "use template=False, or put its words into another turn"
        raise ValueError(f"message {k + 1} ({messages[k]['role']}) cannot be located: {why}; {remedy}")
    return len(before), len(text) - len(after)


def _marked(call: Mapping[str, Any]) -> dict[str, Any]:
    """A call of a tool, with the mark for its name and no arguments."""
    called = call.get("function", call)
    named = {**called, "name": _MARK, "arguments": "{}" if isinstance(called.get("arguments"), str) else {}}
    return {**call, "function": named} if "function" in call else named


def _joined(tokenizer: Any) -> Callable[..., str]:
    """Function that writes messages with blank lines between them, behind the start token if the tokenizer sets one."""
    start_ids = tokenizer("").input_ids
    start = tokenizer.bos_token if start_ids and start_ids[0] == tokenizer.bos_token_id else ""
    return lambda messages: start + "\n\n".join(message["content"] for message in messages)
