"""Messages of a conversation as public interfaces write them, and each with one text as its content."""

from collections.abc import Mapping, Sequence
from typing import Any

Messages = Sequence[Mapping[str, Any]]
# Roles that the chat templates of the installed transformers' families know. Others are spelled wrong more often than
# they are meant, and a template that does not know a role writes it down without a word.
ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython", "observation", "document")
# Names under which servers and templates keep the reasoning of a message.
REASONING = ("reasoning_content", "reasoning", "thinking")
# Types of the parts of a content that hold words, as public interfaces name them.
_WORDS = "text input_text output_text summary_text reasoning_text thinking reasoning refusal".split()


def checked_messages(prompt: str | Messages, whole: bool = False) -> list[dict[str, Any]]:
    """Messages with one text each, the last of which is to be answered; with ``whole`` it may be a tool's.

    Raises
    ------
    ValueError
        If one of them is no message with a text and a role that is known (the first is number 1), or the last one is
        empty or not to be answered.
    """
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [text_message(m) for m in prompt]
    for number, message in enumerate(messages, start=1):
        if message["role"] not in ROLES:
            raise ValueError(f"message {number} has the role {message['role']!r}, which is none of {', '.join(ROLES)}")
    last = messages[-1]["role"] if messages else "system"
    if last in ("assistant", "system") or (last != "user" and not whole):
        ends = "the user's text message" + (", or a tool's" if whole else "")
        raise ValueError(f"prompt must be a text, or a list of messages that ends with {ends}")
    if not messages[-1]["content"].strip():
        what = "the prompt" if isinstance(prompt, str) else f"message {len(messages)} ({last}), the one to answer,"
        raise ValueError(f"{what} is empty: there is no input to explain from")
    return messages


def text_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message with one text as its content, and its reasoning under each of its names; ValueError for pictures."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise ValueError(f"a message must be a mapping with role and content, got {message!r:.80}")
    message = {name: value for name, value in message.items() if value is not None}  # as servers write what is missing
    role, content = message["role"], message.get("content")
    if role != "assistant":
        return {**message, "content": _words(content, role)}
    parts = content if isinstance(content, list) else [content]
    thinking = [isinstance(part, Mapping) and part.get("type") in ("thinking", "reasoning") for part in parts]
    given = [[part for part, thought in zip(parts, thinking, strict=True) if thought], *map(message.get, REASONING)]
    thoughts = {thought.strip(): thought for value in given if (thought := _words(value, role)).strip()}
    if len(thoughts) > 1:
        raise ValueError(f"a message of the assistant has two reasonings: keep one of its parts and {REASONING}")
    said = _words([part for part, thought in zip(parts, thinking, strict=True) if not thought], role)
    return {**message, "content": said, **dict.fromkeys(REASONING if thoughts else (), *thoughts.values())}


def _words(value: Any, role: str) -> str:
    """Text of a message's field: a text, a part such as ``{"type": "text", "text": …}``, or a list of such."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list | tuple):
        return "".join(_words(part, role) for part in value)
    kind = value.get("type", "text") if isinstance(value, Mapping) else type(value).__name__
    if kind not in _WORDS:
        raise ValueError(f"the content of a {role} message is no text but {kind}: only text can be explained")
    held = [value[name] for name in ("text", "value", *REASONING, "content", "summary", "refusal") if value.get(name)]
    return _words(held[0], role) if held else ""
