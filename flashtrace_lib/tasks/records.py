r"""Records of the data sets as examples: prompt, reference reasoning and answer, evidence.

One function a data set, from the schema in which it is published. Whatever a record cannot give (a chain, marked
evidence) stays empty.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..text.labels import find_boxed
from ..text.offsets import CharSpan
from .example import Example
from .record_files import Record
from .scoring import contains

BOX_REQUEST = "\n\nThink step by step and put the final answer into \\boxed{}."
_MARK = re.compile(r"<<[^>]*>>")  # GSM8K's calculator marks
_TEXTS = ("question", "answer", "problem", "solution")  # fields that are text in every data set
_QA = "Answer the question based on the given documents. Only give me the answer and do not output any other words."
_EDIT = (
    "\n####\n\nUse the above instructions to modify the supplied files: {file}\n"
    "Keep and implement the existing function or class stubs, they will be called from unit tests.\n"
    "Only use standard python libraries, don't suggest installing any packages.\n\n{file}\n```python\n{stub}```"
)


class Unfit(ValueError):
    """A record of HotpotQA gives no example: a sentence that it names is none, or its support is too long."""


def gsm8k_example(record: Record, id: str) -> Example:
    r"""GSM8K: the chain is the written solution without its marks, the output holds ``\boxed{N}``."""
    question, solution = _fields(record, id, "question", "answer")
    chain, mark, answer = solution.rpartition("####")
    if not mark:
        raise ValueError(f"record {id}: answer does not end in '#### N', as GSM8K's do: {solution[-40:]!r}")
    answer = answer.strip().replace(",", "")
    return _boxed_example("gsm8k", id, record, question, _MARK.sub("", chain).strip(), answer)


def math500_example(record: Record, id: str) -> Example:
    r"""MATH-500: the chain is the solution up to the sentence that holds the box."""
    problem, solution, answer = _fields(record, id, "problem", "solution", "answer")
    box = find_boxed(solution)
    if box is None:
        raise ValueError(f"record {id}: the solution holds no complete \\boxed{{…}}")
    before = solution[: box[0]]
    # The sentence of the box goes to the output; where there is no other, the chain is what leads to the box.
    chain = before[: max(before.rfind(". ") + 1, before.rfind(".\n") + 1)].strip() or before.strip()
    return _boxed_example("math500", id, record, problem, chain, answer)


def _boxed_example(task: str, id: str, record: Record, text: str, chain: str, answer: str) -> Example:
    output = f"The answer is $\\boxed{{{answer}}}$."
    # the problem alone is I (appendix E.2)
    return _example(task, id, record, text, answer, chain, output, request=BOX_REQUEST, scorer="boxed")


def morehopqa_example(record: Record, id: str) -> Example:
    """MoreHopQA: each step of the decomposition is a line of the chain, behind the sentence that supports it."""
    question, answer, context, steps = _fields(record, id, "question", "answer", "context", "question_decomposition")
    body = "\n\n".join(f"{title}\n{''.join(sentences).strip()}" for title, sentences in context)
    prompt = f"{body}\n\nQuestion: {question}"
    lines, support = [], []
    for step in steps:
        for title, sentences in context:
            if title == step["paragraph_support_title"]:
                found = next((s.strip() for s in sentences if contains(s, step["answer"])), None)
                support += [found] if found else []
                lines += [found] if found else []
        lines += [f"{part['question']} {part['answer']}" for part in step.get("details", [step])]
    more = {"question": len(body) + 2, "haystack": (0, len(body.rstrip())), "scorer": "qa_match"}
    more["evidence"], output = _places(prompt, dict.fromkeys(support), id), f"The answer is {answer}."
    return _example("morehopqa", id, record, prompt, answer, "\n".join(lines), output, **more)


def hotpotqa_example(record: Record, id: str) -> Example:
    """HotpotQA, hub or original format, in RULER's prompt: the chain quotes the supporting sentences.

    Raises
    ------
    Unfit
        If a supporting fact is a sentence that its paragraph does not have, or a blank one: evidence would be missing.
    """
    question, answer, context, facts = _fields(record, id, "question", "answer", "context", "supporting_facts")
    documents = titled(context, "title", "sentences")
    there = {(title, j) for title, sentences in documents for j, text in enumerate(sentences) if text.strip()}
    for title, j in titled(facts, "title", "sent_id"):
        if (title, j) not in there:
            raise Unfit(
                f"record {id}: its supporting fact is sentence {j} of {title!r}, which no paragraph has: the record is "
                "faulty; leave it out"
            )
    before, support = f"{_QA}\n\nThe following are given documents.\n\n", set(titled(facts, "title", "sent_id"))
    ordered = {title: i for i, (title, _) in enumerate(titled(facts, "title", "sent_id"))}
    evidence: dict[tuple[int, int], CharSpan] = {}
    text = before
    for i, (title, sentences) in enumerate(documents, 1):
        text += f"Document {i}:\n{title}\n"
        for j, sentence in enumerate(sentences):
            if (title, j) in support:
                lead = len(sentence) - len(sentence.lstrip())
                evidence[ordered[title], j] = (len(text) + lead, len(text) + len(sentence.rstrip()))
            text += sentence
        text += "\n\n"
    prompt = f"{text}{_QA}\n\nQuestion: {question}"
    chain = "\n".join(prompt[slice(*span)] for _, span in sorted(evidence.items()))
    places = {"question": len(text) + len(_QA) + 2, "haystack": (len(before), len(text.rstrip()))}
    return _example(
        "hotpotqa", id, record, prompt, answer, chain, answer, evidence=tuple(sorted(evidence.values())),
        answer_prefix=" Answer:", scorer="qa_match", **places,
    )  # fmt: skip


def exercise_example(record: Record, id: str) -> Example:
    """Exercism: instructions and stub in Aider's prompt, the solution file as the output."""
    slug, files = _fields(record, id, "slug", "files")
    name = slug.replace("-", "_") + ".py"
    for path in (".docs/instructions.md", name, ".meta/example.py"):
        if path not in files:
            raise ValueError(f"record {id}: exercise {slug} has no file {path}")
    docs = (".docs/introduction.md", ".docs/instructions.md", ".docs/instructions.append.md")
    told = "\n\n".join(files[path].strip() for path in docs if path in files)
    prompt = f"{told}\n{_EDIT.format(file=name, stub=files[name])}"
    code, hints = files[".meta/example.py"], files.get(".docs/hints.md", "").removeprefix("# Hints").strip()
    output, question = f"{name}\n```python\n{code}```", len(told) + len("\n####\n\n") + 1
    modules = {path: text for path, text in files.items() if path.endswith(".py") and "/" not in path}
    more = {"question": question, "scorer": "unit_tests", "files": modules}
    example = _example("exercism", id, record, prompt, code, hints, output, **more)
    example.metadata["file"] = name
    return example


def _example(
    task: str, id: str, record: Record, prompt: str, answer: str, reasoning: str, output: str, **more: Any
) -> Example:
    """Example of one answer, whose cell is its task; ``metadata`` has what the record tells about its kind."""
    told = {name: record[name] for name in ("subject", "level", "type") if name in record}
    return Example(id, task, task, prompt, (answer,), reasoning=reasoning, output=output, metadata=told, **more)


def _fields(record: Record, id: str, *names: str) -> list[Any]:
    missing = [name for name in names if record.get(name) in (None, "")]
    if missing:
        raise ValueError(f"record {id} lacks {', '.join(missing)}: it has {', '.join(record)}")
    odd = [name for name in names if name in _TEXTS and not isinstance(record[name], str)]
    if odd:
        raise ValueError(f"record {id}: {', '.join(odd)} must be text, got {type(record[odd[0]]).__name__}")
    return [record[name] for name in names]


def titled(pairs: Any, first: str, second: str) -> list[tuple[Any, Any]]:
    """Pairs of the hub format (a dict of two lists) or of the original one (a list of pairs)."""
    if isinstance(pairs, Mapping):
        return list(zip(pairs[first], pairs[second], strict=True))
    return [(a, b) for a, b in pairs]


def _places(prompt: str, passages: Iterable[str], id: str) -> tuple[CharSpan, ...]:
    """Where passages stand in the prompt."""
    spans = []
    for passage in passages:
        start = prompt.find(passage)
        if start < 0:
            raise ValueError(f"record {id}: the evidence {passage[:60]!r} does not stand in the prompt")
        spans.append((start, start + len(passage)))
    return tuple(sorted(spans))
