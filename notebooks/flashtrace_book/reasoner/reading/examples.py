"""The example that a text, a question and the sentences that answer it make; the reasoning quotes those sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flashtrace_lib.tasks.example import Example


def reading_example(
    task: str,
    id: str,
    told: Sequence[tuple[str, bool]],
    question: str,
    answers: Sequence[str],
    conclusion: str,
    metadata: dict[str, Any],
    *,
    gaps: Sequence[str] = (),
    asked_first: bool = False,
) -> Example:
    """A question about a text.

    Parameters
    ----------
    task, id : str
        Of the example; the task is its cell too.
    told : sequence of (str, bool)
        The sentences of the text, each with whether it is evidence.
    question : str
        What is asked.
    answers : sequence of str
        Each counts as right; the output gives the first.
    conclusion : str
        What the reasoning says behind the sentences that it quotes; may be empty.
    metadata : dict
        Handed on.
    gaps : sequence of str, optional
        What stands behind each sentence; a blank where it is not given. The last one stands between text and question.
    asked_first : bool, optional
        Whether the question stands before the text.
    """
    gaps = gaps or [" "] * len(told)
    lead = question + gaps[-1] if asked_first else ""
    text, evidence = lead, []
    for (sentence, gold), gap in zip(told, gaps, strict=True):
        evidence += [(len(text), len(text) + len(sentence))] if gold else []
        text += sentence + gap
    stop = len(text) - len(gaps[-1])
    quoted = " ".join(text[slice(*span)] for span in evidence)
    return Example(
        id=id,
        task=task,
        cell=task,
        prompt=text[:stop] if asked_first else text + question,
        answers=tuple(answers),
        evidence=tuple(evidence),
        question=0 if asked_first else len(text),
        haystack=(len(lead), stop),
        reasoning=f'The text says: "{quoted}" {conclusion}'.rstrip(),
        output=f"The answer is {answers[0]}.",
        scorer="qa_match",
        metadata=metadata,
    )
