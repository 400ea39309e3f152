"""HotpotQA at a chosen length: the supporting paragraphs, and as many distractors as fit (appendix E.1)."""

import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from flashtrace_lib.tasks.datasets import drawn_records, example_of
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.record_files import Record
from flashtrace_lib.tasks.records import Unfit, hotpotqa_example, titled

Paragraph = tuple[str, Sequence[str]]
_MISSES = 20  # paragraphs in a row that do not fit: what is left is not worth filling
_POOL = 40  # further records whose paragraphs fill long prompts: about 55,000 tokens


def documents_examples(
    n: int, length: int, count: Callable[[str], int], *, source: str, folder: Path | str | None, seed: int | None
) -> list[Example]:
    """Examples of HotpotQA whose prompts are filled up to a length; a warning names each record that gives none.

    Parameters
    ----------
    n : int
        Records looked at. The paragraphs of up to ``_POOL`` further ones are distractors.
    length, count
        See `hotpotqa_at_length`.
    source, folder, seed
        As in `tasks.task_examples`.
    """
    drawn = list(islice(drawn_records("hotpotqa", source, folder, seed), n + _POOL))

    def at_length(record: Record, name: str) -> Example | None:
        try:
            return hotpotqa_at_length(record, name, length, count, others=[r for r, *_ in drawn], seed=seed or 0)
        except Unfit as error:
            warnings.warn(str(error), stacklevel=2)

    return [made for record in drawn[:n] if (made := example_of(*record, at_length)) is not None]


def hotpotqa_at_length(
    record: Record, id: str, length: int, count: Callable[[str], int], *, others: Iterable[Record] = (), seed: int = 0
) -> Example:
    """A record of HotpotQA as a prompt of at most ``length`` tokens.

    Parameters
    ----------
    record : mapping
        Of the hub's format or of the original one.
    id : str
        The example's; with the seed it decides which distractors are drawn and where every paragraph stands.
    length : int
        Tokens of the prompt, special tokens not counted.
    count : callable
        Tokens of a text.
    others : iterable of mapping
        Records whose paragraphs are further distractors, after the record's own.
    seed : int

    Returns
    -------
    Example
        ``metadata`` gives ``length``, ``tokens``, ``documents`` and ``gold``.

    Raises
    ------
    Unfit
        If the supporting paragraphs alone are longer. A ValueError.
    ValueError
        If a supporting paragraph is missing.
    """
    rng, own = random.Random(f"{id}|{seed}"), titled(record["context"], "title", "sentences")
    wanted = {title for title, _ in titled(record["supporting_facts"], "title", "sent_id")}
    support = [paragraph for paragraph in own if paragraph[0] in wanted]
    if missing := wanted - {title for title, _ in support}:
        raise ValueError(f"record {id}: no paragraph is titled {', '.join(sorted(missing))}, which it names as support")
    least = count(hotpotqa_example(_with(record, support), id).prompt)
    if least > length:
        raise Unfit(f"record {id}: its supporting paragraphs take {least} tokens, {length} are allowed")
    chosen = _fill(record, id, length, count, support, _distractors(own, wanted, others, rng))
    rng.shuffle(chosen)
    example = hotpotqa_example(_with(record, chosen), id)
    told = {"length": length, "tokens": count(example.prompt), "documents": len(chosen), "gold": "sentence"}
    return replace(example, metadata={**example.metadata, **told})


def _distractors(own: Sequence[Paragraph], wanted: set[str], others: Iterable[Record], rng: random.Random) -> list:
    """Paragraphs that support nothing, each title once: the record's own in random order, then those of others."""
    first = [paragraph for paragraph in own if paragraph[0] not in wanted]
    taken, further = {title for title, _ in own}, []
    for other in others:
        for title, sentences in titled(other["context"], "title", "sentences"):
            if title not in taken:
                taken.add(title)
                further.append((title, sentences))
    rng.shuffle(first)
    rng.shuffle(further)
    return first + further


def _fill(
    record: Record, id: str, length: int, count: Callable[[str], int], chosen: list[Paragraph], candidates: list
) -> list[Paragraph]:
    """Add every candidate with which the prompt still fits, until many in a row do not."""
    chosen, misses = list(chosen), 0
    for candidate in candidates:
        fits = count(hotpotqa_example(_with(record, [*chosen, candidate]), id).prompt) <= length
        chosen += [candidate] if fits else []
        misses = 0 if fits else misses + 1
        if misses == _MISSES:
            break
    return chosen


def _with(record: Record, paragraphs: Sequence[Paragraph]) -> dict[str, Any]:
    """The record with other paragraphs."""
    return {**record, "context": [[title, list(sentences)] for title, sentences in paragraphs]}
