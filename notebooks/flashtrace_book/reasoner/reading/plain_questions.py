"""Questions about short texts that were written by hand, for evaluation: no generator has their forms or words."""

from __future__ import annotations

from dataclasses import dataclass

from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.synthetic.template_files import Text, read_templates

from . import TEMPLATES


@dataclass(frozen=True)
class PlainQuestion:
    """A question of the file.

    Parameters
    ----------
    text, question : str
        What is read, and what is asked about it.
    answers : tuple of str
        Each counts as right.
    evidence : str
        The sentence of the text that answers it.
    """

    text: str
    question: str
    answers: tuple[str, ...]
    evidence: str


def plain_questions(file: str = str(TEMPLATES / "plain_questions.yaml")) -> list[Example]:
    """The questions of a file, in its order.

    Parameters
    ----------
    file : str
        Its path: a mapping of names to ``text``, ``question``, ``answers`` and ``evidence``.

    Returns
    -------
    list of Example
        The prompt is the text and, behind a blank, the question.

    Raises
    ------
    ValueError
        With file and line: if the file is malformed, a question has no question mark, the evidence does not stand in
        the text, or an answer stands in neither while being neither yes nor no.
    """
    found: dict[Text, PlainQuestion] = read_templates(file, dict[str, PlainQuestion])
    return [_example(name, question) for name, question in found.items()]


def _example(name: Text, found: PlainQuestion) -> Example:
    _check(found)
    start = found.text.index(found.evidence)
    answer = str(found.answers[0])
    return Example(
        id=f"plain_questions-{name}",
        task="plain_questions",
        cell="plain_questions",
        prompt=f"{found.text} {found.question}",
        answers=tuple(map(str, found.answers)),
        evidence=((start, start + len(found.evidence)),),
        question=len(found.text) + 1,
        haystack=(0, len(found.text)),
        reasoning=f'The text says: "{found.evidence}"',
        output=f"The answer is {answer}.",
        scorer="qa_match",
        metadata={"template": str(name)},
    )


def _check(found: PlainQuestion) -> None:
    if not found.text.endswith("."):
        raise ValueError(f"{found.text.where}: the text must end in a full stop")
    if not found.question.endswith("?"):
        raise ValueError(f"{found.question.where}: the question must end in a question mark")
    if found.evidence not in found.text:
        raise ValueError(f"{found.evidence.where}: the evidence does not stand in the text")
    said = f"{found.text} yes no".lower()
    if not any(answer.lower() in said for answer in found.answers):
        raise ValueError(f"{found.answers[0].where}: no answer stands in the text, and none is yes or no")
