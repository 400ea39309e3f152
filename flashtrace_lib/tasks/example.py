"""What a task hands to generation: a prompt, its true answer, and where the evidence stands."""

from dataclasses import dataclass, field
from typing import Any

from ..text.offsets import CharSpan


@dataclass(frozen=True)
class Example:
    """One problem of a task, before a model has seen it.

    Parameters
    ----------
    id : str
        Unique within the task and stable over runs, for example ``"mq_q2-512-essay-s0-noshot-7"``.
    task, cell : str
        Task family (``"ruler"``) and table cell (``"mq_q2"``).
    prompt : str
        The user's own text: becomes the segment I token for token.
    answers : tuple of str
        What a correct response must contain (or equal, see ``scorer``).
    evidence : tuple of (int, int)
        Character ranges of ``prompt`` that hold the ground-truth evidence.
    question : int, optional
        Character of ``prompt`` at which it begins to ask; what stands before is what the answer is to be found in. None
        where the task does not mark it (a word problem): `sentences.question_in` then looks for it.
    haystack : (int, int), optional
        Characters of ``prompt`` in which the answer is to be found, question and instructions left out. None: all that
        stands before the question.
    request : str
        What the user says behind it, such as how to put the answer: part of the turn, not of the segment I.
    answer_prefix : str
        Words that the benchmark puts into the model's mouth before the answer; may be empty.
    reasoning, output : str
        The reference reasoning and the reference final sentence, for teacher forcing.
    scorer : str
        Name of the scoring function in ``tasks.scoring``.
    files : dict of str to str
        What running an answer needs (unit tests), text by path; never stored.
    metadata : dict
        Seed, requested length, difficulty, provenance; JSON-ready.
    """

    id: str
    task: str
    cell: str
    prompt: str
    answers: tuple[str, ...]
    evidence: tuple[CharSpan, ...] = ()
    question: int | None = None
    haystack: CharSpan | None = None
    request: str = ""
    answer_prefix: str = ""
    reasoning: str = ""
    output: str = ""
    scorer: str = "substring_recall"
    files: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.prompt:
            raise ValueError(f"example {self.id}: the prompt is empty")
        places = [("evidence", *span) for span in self.evidence]
        places += [] if self.haystack is None else [("haystack", *self.haystack)]
        places += [] if self.question is None else [("question", self.question, len(self.prompt))]
        for name, start, stop in places:
            if not 0 <= start < stop <= len(self.prompt):
                raise ValueError(
                    f"example {self.id}: {name} range ({start}, {stop}) does not lie in the prompt of "
                    f"{len(self.prompt)} characters"
                )
