"""Prompt -> T and O by the model itself; only correct answers are kept, and what was dropped is counted (E.4).

Responses are stored block by block, so an interrupted run resumes, and a stored response is never replaced.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from tqdm import tqdm

from ..fingerprints import fingerprint, model_fingerprint
from ..model.generate import answer_text, generate, is_finished
from ..names import check_order
from ..sample import Sample
from ..store import Store
from ..text.build_sample import build_sample
from ..text.chat_template import CODE_ALONE, OPENED, STEP_BY_STEP, render_prompt
from .example import Example
from .scoring import is_correct, score

FALLBACKS, MODES = ("teacher-forced", "unfiltered", "none"), ("thinking", "direct")
STEPS, OWN_STEPS, CODE = "step_by_step", "own_steps", "code_alone"
ALL_MODES = (*MODES, STEPS, OWN_STEPS, CODE)
FORCED, UNFILTERED, NOTHING = FALLBACKS
GENERATED = "generated"


@dataclass
class Collection:
    """Samples of one cell, and what became of every example that was tried.

    Parameters
    ----------
    samples : list of Sample
        Ready to be explained; ``metadata["response"]`` says whether the model wrote the response.
    counts : dict of str to int
        ``tried``, ``correct``, ``incorrect``, ``unfinished`` (no end token within the limit, or no answer).
    kind : {"generated", "teacher-forced", "unfiltered"}
        The model's own correct responses; the reference reasoning, teacher-forced (‡); or its own finished responses,
        right or wrong (§).
    """

    samples: list[Sample]
    counts: dict[str, int] = field(default_factory=dict)
    kind: str = GENERATED


def collect(
    model: torch.nn.Module, tokenizer: Any, examples: Sequence[Example], n: int, *, store: Store | None = None,
    max_new_tokens: int = 192, batch_size: int = 10, fallback: str = FORCED, filtered: bool = True,
    mode: str | None = None, give_up: bool = True, progress: bool = True,
) -> Collection:  # fmt: skip
    """Let the model answer until ``n`` responses are finished and correct.

    A cell in which a whole first block holds no correct answer is given up, and so is one that ends with fewer than
    half of ``n``. Its samples are then what ``fallback`` says; the cell is marked, and never mixes two kinds.

    Parameters
    ----------
    examples : sequence of Example
        Tried in this order, at most all of them.
    n : int
        Samples wanted.
    store : Store, optional
        Where responses are kept.
    batch_size : int
        Examples answered together: one block.
    fallback : {"teacher-forced", "unfiltered", "none"}
        The reference reasoning and answers of the first ``n`` examples, read by the model as if it had written them;
        its own first ``n`` finished responses, right or wrong; or nothing more than what was kept.
    filtered : bool
        False keeps its first ``n`` finished responses, right or wrong, from the start (appendix K.1); where none is
        finished, what ``fallback`` says.
    mode : {"thinking", "direct", "step_by_step", "own_steps", "code_alone"}, optional
        See `prompt_settings`.
    give_up : bool
        False tries every example, however many are answered wrongly.

    Returns
    -------
    Collection
    """
    check_order("collect(model, tokenizer, examples, n)", model=model, tokenizer=tokenizer)
    if fallback not in FALLBACKS:
        raise ValueError(f"fallback must be one of {', '.join(FALLBACKS)}, got {fallback!r}")
    counts: Counter[str] = Counter(tried=0, correct=0, incorrect=0, unfinished=0)
    correct: list[tuple[Example, list[int]]] = []
    finished: list[tuple[Example, list[int]]] = []
    blocks = range(0, len(examples), batch_size)
    for start in tqdm(blocks, desc=f"generate {examples[0].cell}", leave=False, disable=None if progress else True):
        block = examples[start : start + batch_size]
        responses = respond(model, tokenizer, block, max_new_tokens, store, mode)
        for example, response in zip(block, responses, strict=True):
            verdict = _verdict(model, tokenizer, example, response, mode)
            counts["tried"] += 1
            counts[verdict] += 1
            correct += [(example, response)] if verdict == "correct" else []
            finished += [(example, response)] if verdict != "unfinished" else []
        hopeless = give_up and not correct and (fallback != UNFILTERED or len(finished) >= n)
        if len(correct if filtered else finished) >= n or (filtered and hopeless):
            break
    if filtered and (2 * len(correct) >= n or fallback == NOTHING):
        kind, chosen = GENERATED, correct[:n]
    elif fallback != FORCED or (finished and not filtered):
        kind, chosen = UNFILTERED, finished[:n]
    else:
        return replace(teacher_forced(tokenizer, examples[:n], mode), counts=dict(counts))
    return Collection([_sample(tokenizer, *pair, kind, mode) for pair in chosen], dict(counts), kind)


def teacher_forced(tokenizer: Any, examples: Sequence[Example], mode: str | None = None) -> Collection:
    """The reference reasoning and answers of examples, as if the model had written them; none of them was tried."""
    chains = [replace(example, reasoning="") if mode == "direct" else example for example in examples]
    samples = [_sample(tokenizer, example, true_response(example), FORCED, mode) for example in chains]
    return Collection(samples, dict.fromkeys(("tried", "correct", "incorrect", "unfinished"), 0), FORCED)


def true_response(example: Example) -> str:
    """The reference reasoning between thinking marks, then the true answer; ValueError where the task has none."""
    if not example.output:
        raise ValueError(f"example {example.id} has no true answer to teacher-force")
    return f"<think>\n{example.reasoning}\n</think>\n\n{example.output}" if example.reasoning else example.output


def can_think(tokenizer: Any) -> bool:
    """Whether the chat template has Qwen3's switch between thinking and direct answers."""
    return "enable_thinking" in (getattr(tokenizer, "chat_template", None) or "")


def prompt_settings(tokenizer: Any, example: Example, mode: str | None = None) -> dict[str, Any]:
    """How an example goes into the chat template: keyword arguments of `text.render_prompt`.

    Parameters
    ----------
    mode : {"thinking", "direct", "step_by_step", "own_steps", "code_alone"}, optional
        A template with a switch (``enable_thinking``, as Qwen3's) is set to it; thinking where it is not given. Such a
        model begins its turn itself: the benchmark's first words of the answer would stand where it thinks, and in
        direct mode would set it apart from thinking by more than the switch. So does one whose template opens the
        reasoning. Any other template is left alone.
        ``"step_by_step"`` is for those: `chat_template.STEP_BY_STEP` takes the place of the benchmark's first words,
        what it names the output becomes O, and only that is judged. ``"own_steps"`` is for those that work a problem
        out when they are asked for a box: nothing is added, and T and O are told apart in the same way.
        ``"code_alone"`` asks for the code and no explanation, which such a model gives at length behind it: T is empty.

    Raises
    ------
    ValueError
        If the mode is unknown, is asked of a template that has no switch, or begins the turn of one that has.
    """
    if mode not in (None, *ALL_MODES):
        raise ValueError(f"mode must be one of {', '.join(ALL_MODES)}, got {mode!r}")
    request, thinks = ({"request": example.request} if example.request else {}), can_think(tokenizer)
    if mode is not None and thinks != (mode in MODES):
        what = "this model thinks by itself (its template has enable_thinking)"
        raise ValueError(
            f"mode {mode!r}: {what if thinks else 'the chat template has no enable_thinking switch; leave it out'}"
        )
    if thinks:
        return request | {"template_kwargs": {"enable_thinking": mode != "direct"}}
    if mode == STEPS:
        return {"request": example.request + STEP_BY_STEP["request"], "answer_prefix": STEP_BY_STEP["answer_prefix"]}
    if mode == CODE:
        return {"request": example.request + CODE_ALONE}
    begun = mode == OWN_STEPS or OPENED.search(render_prompt(tokenizer, "x").text)  # a template may open the reasoning
    return request if begun else request | {"answer_prefix": example.answer_prefix}


def respond(
    model: torch.nn.Module, tokenizer: Any, block: Sequence[Example], max_new_tokens: int,
    store: Store | None = None, mode: str | None = None,
) -> list[list[int]]:  # fmt: skip
    """Token ids of the responses to one block of examples, from the store where they are there.

    Where some are missing the block is answered as a whole, so that a resumed run batches as an uninterrupted one; a
    stored response is kept all the same.
    """
    texts = [render_prompt(tokenizer, e.prompt, **prompt_settings(tokenizer, e, mode)).text for e in block]
    shaped_by = {"model": model_fingerprint(model), "max_new_tokens": max_new_tokens, "texts": texts}
    keys = [fingerprint({**shaped_by, "index": i}) for i in range(len(block))]
    stored = [None if store is None else store.get(key) for key in keys]
    kept = [None if record is None else [int(t) for t in record["ids"]] for record in stored]
    if all(ids is not None for ids in kept):
        return kept
    begun, responses = time.process_time(), generate(model, tokenizer, texts, max_new_tokens)
    each = (time.process_time() - begun) / len(block)
    if store is None:
        return responses
    for i, (key, example, ids) in enumerate(zip(keys, block, responses, strict=True)):
        if kept[i] is None:
            record = {"ids": ids, "cpu_seconds": each, "example": example.id, "cell": example.cell}
            store.put(key, record | {"text": tokenizer.decode(ids)})
    return [ids if known is None else known for ids, known in zip(responses, kept, strict=True)]


def _verdict(model: torch.nn.Module, tokenizer: Any, example: Example, response: list[int], mode: str | None) -> str:
    """``correct``, ``incorrect`` or ``unfinished``."""
    if not is_finished(model, tokenizer, response):
        return "unfinished"
    answer = _judged(tokenizer, example, response, mode)
    return "unfinished" if not answer.strip() else "correct" if is_correct(example, answer) else "incorrect"


def _judged(tokenizer: Any, example: Example, response: list[int], mode: str | None) -> str:
    """`judged_text` of a response to an example, whose prompt may open the reasoning."""
    rendered = render_prompt(tokenizer, example.prompt, **prompt_settings(tokenizer, example, mode))
    return judged_text(tokenizer, response, mode, rendered.text[rendered.behind :])


def judged_text(tokenizer: Any, response: list[int], mode: str | None, before: str = "") -> str:
    """What is judged of a generated response: its `answer_text`, without the label that step by step asks for."""
    text = answer_text(tokenizer, response, before)
    found = STEP_BY_STEP["output"].search(text) if mode in (STEPS, OWN_STEPS) else None
    return found[1].removeprefix("Answer:").strip() if found else text


def _sample(tokenizer: Any, example: Example, response: list[int] | str, how: str, mode: str | None) -> Sample:
    """Build the Sample of one response."""
    settings = prompt_settings(tokenizer, example, mode)
    if how == FORCED:  # the true response begins with its own words, and has tags
        settings.pop("answer_prefix", None)
    elif mode in (STEPS, OWN_STEPS):
        settings["output"] = STEP_BY_STEP["output"]
    text = response if isinstance(response, str) else _judged(tokenizer, example, response, mode)
    metadata = {
        **example.metadata, "id": example.id, "task": example.task, "cell": example.cell, "response": how,
        "score": score(example, text.rsplit("</think>", 1)[-1]),
    }  # fmt: skip
    if mode is not None:
        metadata["mode"] = mode
    return build_sample(
        tokenizer, example.prompt, response, evidence=example.evidence, metadata=metadata,
        places={"question": example.question, "haystack": example.haystack}, **settings,
    )  # fmt: skip
