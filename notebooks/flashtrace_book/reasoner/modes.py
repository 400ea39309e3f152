r"""Two ways to answer, as Qwen3 has them: thinking first, or directly.

Thinking, the response reads ``<think>\n…\n</think>\n\nanswer``. With ``enable_thinking=False`` the template puts
``/no_think`` at the end of the user's turn, and the response is the answer alone. The switch belongs to the template:
it is context, never part of the input I.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flashtrace_lib.tasks import responses
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import MODES
from flashtrace_lib.text.chat_template import PromptText, render_prompt
from flashtrace_lib.text.locate import find_thinking


def template_kwargs(mode: str) -> dict[str, bool]:
    """Arguments of the chat template for a mode; ValueError where it is unknown."""
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    return {"enable_thinking": mode == "thinking"}


def prompt_text(tokenizer: Any, example: Example, mode: str) -> PromptText:
    """The prompt that the model reads, without the benchmark's answer prefix: thinking comes first."""
    return render_prompt(tokenizer, example.prompt, request=example.request, template_kwargs=template_kwargs(mode))


def true_response(example: Example, mode: str) -> str:
    """The reference response that the model is trained on.

    Raises
    ------
    ValueError
        If the example has no reference output, or, in thinking mode, no reference reasoning.
    """
    template_kwargs(mode)  # checks the mode
    needed = ("output", "reasoning") if mode == "thinking" else ("output",)
    missing = [name for name in needed if not getattr(example, name)]
    if missing:
        raise ValueError(f"example {example.id} has no true {' and '.join(missing)}: nothing to teach in mode {mode!r}")
    return responses.true_response(example if mode == "thinking" else replace(example, reasoning=""))


def final_answer(response: str) -> str:
    """The answer that follows the thinking of a response; empty where the thinking does not end."""
    try:
        marks = find_thinking(response)
    except ValueError:
        return ""
    return response[marks[1] if marks else 0 :].strip()
