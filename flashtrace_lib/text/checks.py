"""What can be said about a prompt, a response and the passages in it before a model or its tokenizer is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .chat_template import Messages, checked_messages, conversation_and_response, message_text, split_transcript
from .locate import Locator, find_passage, locate_segments

# Roles that the chat templates of the installed transformers' families know. Others are spelled wrong more often than
# they are meant, and a template that does not know a role writes it down without a word.
ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython", "observation", "document")


def check_conversation(messages: Messages) -> None:
    """Roles that are known, and content in every message that needs one; the last message is explained or answered.

    Raises
    ------
    ValueError
        The message counts from 1.
    """
    for number, message in enumerate(messages, start=1):
        message_text(message)
        role = message["role"]
        if role not in ROLES:
            raise ValueError(f"message {number} has the role {role!r}, which is none of {', '.join(ROLES)}")
        calls = message.get("tool_calls") or message.get("reasoning_content")
        if message.get("content") is None and not calls and number < len(messages):
            raise ValueError(f"message {number} ({role}) has no content: give its words, or drop it")
    checked_messages(split_transcript(messages)[0], whole=True)


def check_passages(
    prompt: str | Messages, response: str | None, input: Locator, reasoning: Locator, output: Locator
) -> None:
    """Refuse passages that neither the prompt nor the given response can hold; token ranges need a tokenizer.

    Raises
    ------
    ValueError
        As `conversation_and_response`, `find_passage` and `locate_segments` say it.
    """
    prompt, response = conversation_and_response(prompt, response)
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    texts = [message_text(message) for message in messages]
    # The template writes calls of tools down in its own way: what stands in them is known later.
    rendered = any(message.get("tool_calls") for message in messages)
    if input is None:
        raise ValueError("input is none: name the passage of the prompt to explain from, or leave it out")
    if _is_text(input) and input != "auto" and not rendered:
        _first_that_holds(lambda text: find_passage(text, input, "input", (0, len(text))), texts)
    if response is not None:
        texts = [response, without_end_tokens(response)]
        _first_that_holds(lambda text: _check_response(text, reasoning, output), texts)


def without_end_tokens(response: str) -> str:
    """The response without what reads like special tokens, and white space, at its end: `build_sample`'s context."""
    text = response.rstrip()
    while text.endswith(">") and "<" in text and not re.search(r"\s", text[(start := text.rindex("<")) :]):
        text = text[:start].rstrip()
    return text


def _check_response(response: str, reasoning: Locator, output: Locator) -> None:
    """Passages of a response, as far as they are texts and patterns."""
    if isinstance(output, tuple):
        if reasoning not in ("auto", None) and _is_text(reasoning):
            find_passage(response, reasoning, "reasoning", (0, len(response)))
        return
    locate_segments(response, None if isinstance(reasoning, tuple) else reasoning, output)


def _is_text(locator: Locator) -> bool:
    return isinstance(locator, str | re.Pattern)


def _first_that_holds(check: Callable[[str], Any], texts: list[str]) -> None:
    """Raise the first error where the check fails on every text."""
    errors = []
    for text in texts:
        try:
            check(text)
            return
        except ValueError as error:
            errors.append(error)
    if errors:
        raise errors[0]
