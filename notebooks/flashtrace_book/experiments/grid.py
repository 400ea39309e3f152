"""The grid beyond copying: texts of facts, asked in every mode of reasoning and with facts off the path (12)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain as chained
from itertools import product, zip_longest
from typing import Any

import torch
from tqdm import tqdm

from flashtrace_lib.bench.measure import hardware_name, measure
from flashtrace_lib.model.generate import is_finished
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import FORCED, GENERATED, Collection, prompt_settings, respond, true_response
from flashtrace_lib.tasks.scoring import is_correct
from flashtrace_lib.text.build_sample import build_sample

from .. import paths
from ..profile import Profile, read
from .facts import CHAINS, MODES, OFF_PATH, as_asked, fact_examples
from .groups import Group, Plan, method_named, model_of, rows_of_group

REACHED = ("tried", "correct", "as asked", "causal")  # each holds the next
_NOT_STORED = ("twin", "notes", "down", "up", "distracting", "answer_pattern")


@dataclass(frozen=True)
class Grid:
    """What is asked, and what is measured on the answers that are kept.

    Parameters
    ----------
    model : str
        Of the profile's ``models``.
    plans : tuple of dict
        See `groups.Plan`; the first samples of a cell hold chains of all lengths.
    modes, off_path, chains : tuple
        Cells are modes times facts off the path.
    samples, tries : int
        Wanted in a cell for each length of chain, and texts asked about for them at most.
    length, max_new_tokens : int
    seed : int
        On top of the profile's.
    forced : bool
        Nothing is asked: the reference reasoning of the first ``samples`` texts stands for the model's, a quick check.
    """

    model: str
    plans: tuple[Mapping[str, Any], ...]
    modes: tuple[str, ...] = MODES
    off_path: tuple[int, ...] = OFF_PATH
    chains: tuple[int, ...] = CHAINS
    samples: int = 8
    tries: int = 24
    length: int = 1024
    max_new_tokens: int = 320
    seed: int = 0
    forced: bool = False


@dataclass
class Cell:
    """What became of the problems of a cell, and the samples kept, by length of chain."""

    counts: Counter = field(default_factory=lambda: Counter(dict.fromkeys((*REACHED, "unfinished"), 0)))
    kept: dict[int, list[Sample]] = field(default_factory=dict)

    def collection(self) -> Collection:
        """Chains of one, two and three facts take turns."""
        turns = chained.from_iterable(zip_longest(*self.kept.values()))
        return Collection([sample for sample in turns if sample is not None], dict(self.counts))


def make(profile: Profile, name: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of all cells of the grid."""
    grid = read(Grid, settings, f"results.{name}.grid")
    plans = [read(Plan, plan, f"results.{name}.grid.plans") for plan in grid.plans]
    cells = {f"{mode}_{k}": cell.collection() for (mode, k), cell in answered(profile, grid).items()}
    store = Store(paths.working_store(profile.name, name))
    return rows_of_group(profile, Group(grid.model, "facts", grid.plans), plans, cells, store)


def make_costs(profile: Profile, name: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of part ``method_cost``: time and memory of ``methods`` on the first ``samples`` of the grid's ``cell``.

    ``sample, method, hardware``, ``steps``, those of T that the method weighted, and what `bench.measure.measure`
    gives; everything in one process, the forward pass beside each method.
    """
    grid = read(Grid, profile.results[name]["grid"], f"results.{name}.grid")
    model, tokenizer = model_of(profile, grid.model)
    cells = {f"{mode}_{k}": cell.collection() for (mode, k), cell in answered(profile, grid).items()}
    samples, rows = cells[settings["cell"]].samples[: settings["samples"]], []
    for sample, label in tqdm(list(product(samples, settings["methods"])), desc="seconds"):
        method = method_named(profile, label, tokenizer)
        steps = method.attribute(model, sample).metadata.get("causal_steps", {}).get("spans", ())
        about = {"part": "method_cost", "sample": sample.id, "method": label, "hardware": hardware_name(None)}
        rows.append(about | {"steps": len(steps)} | measure(model, method, sample))
    return rows


def answered(profile: Profile, grid: Grid) -> dict[tuple[str, int], Cell]:
    """The cells, with all answers that are right, as asked and causal.

    A text is asked about in all cells that want more, in one batch, which reads it once; the twins of the answers
    that are right and as asked make another batch.
    """
    model, tokenizer = model_of(profile, grid.model)
    store = Store(paths.working_store(profile.name, "responses"))
    cells = {key: Cell(kept={chain: [] for chain in grid.chains}) for key in product(grid.modes, grid.off_path)}
    how = {"length": grid.length, "seed": profile.seed + grid.seed}
    for chain in grid.chains:
        asked = {key: fact_examples(tokenizer, grid.tries, *key, chain=chain, **how) for key in cells}
        for i in tqdm(range(grid.tries), desc=f"chains of {chain}"):
            wanting = {key: asked[key][i] for key, cell in cells.items() if len(cell.kept[chain]) < grid.samples}
            if grid.forced:
                for key, example in wanting.items():
                    cells[key].kept[chain].append(sample_of(tokenizer, example, true_response(example), FORCED))
                continue
            answers = _answers(wanting, model, tokenizer, grid, store)
            for key, (_, reached) in answers.items():
                cells[key].counts.update(reached)
            good = {key: twin_of(wanting[key]) for key, (_, reached) in answers.items() if reached["as asked"]}
            for key, (_, reached) in _answers(good, model, tokenizer, grid, store).items():
                if reached["correct"]:
                    cells[key].counts["causal"] += 1
                    cells[key].kept[chain].append(sample_of(tokenizer, wanting[key], answers[key][0]))
    store.compact()
    return cells


def _answers(
    asked: Mapping[tuple[str, int], Example], model: torch.nn.Module, tokenizer: Any, grid: Grid, store: Store
) -> dict[tuple[str, int], tuple[list[int], Counter]]:
    """The response of each cell to its example, and how far it came."""
    if not asked:
        return {}
    responses = respond(model, tokenizer, list(asked.values()), grid.max_new_tokens, store)
    return {
        key: (ids, Counter(_reached(asked[key], ids, model, tokenizer)))
        for key, ids in zip(asked, responses, strict=True)
    }


def _reached(example: Example, response: list[int], model: torch.nn.Module, tokenizer: Any) -> Sequence[str]:
    """Of `REACHED`, all that an answer alone can show."""
    if not is_finished(model, tokenizer, response):
        return ("tried", "unfinished")
    thought, _, answer = tokenizer.decode(response, skip_special_tokens=True).partition("</think>")
    if not is_correct(example, answer):
        return REACHED[:1]
    return REACHED[: 3 if as_asked(example, thought.removeprefix("<think>")) else 2]


def twin_of(example: Example) -> Example:
    """The same question where the first fact has another number, so that the answer is another."""
    twin = example.metadata["twin"]
    moved = example.question + len(twin["prompt"]) - len(example.prompt)
    return replace(
        example, id=f"{example.id}-twin", prompt=twin["prompt"], answers=tuple(twin["answers"]), evidence=(),
        question=moved, haystack=None,
    )  # fmt: skip


def sample_of(tokenizer: Any, example: Example, response: list[int] | str, how: str = GENERATED) -> Sample:
    """The sample; ``metadata["distracting"]`` are the tokens of the facts that do not matter."""
    named = {k: v for k, v in example.metadata.items() if k not in _NOT_STORED}
    named |= {"id": example.id, "task": example.task, "cell": example.cell, "response": how, "score": 1.0}
    places = {"question": example.question, "haystack": example.haystack}
    options = {"places": places, **prompt_settings(tokenizer, example)}
    others = [tuple(span) for span in example.metadata["distracting"]]
    beside = build_sample(tokenizer, example.prompt, response, evidence=others, **options).gold
    named["distracting"] = beside.nonzero()[:, 0].tolist()
    return build_sample(tokenizer, example.prompt, response, evidence=example.evidence, metadata=named, **options)
