"""Samples of a run: generation, counts, groups of cells, and stored attributions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.attribution import Attribution, Hop, Method
from flashtrace_lib.evaluation.recorder import to_json
from flashtrace_lib.fingerprints import sample_fingerprint
from flashtrace_lib.sample import Sample, Span
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import GENERATED, MARKS, Collection, can_think, collect
from flashtrace_lib.tasks.ruler import ruler_examples
from flashtrace_lib.tasks.ruler_problems import Keep
from flashtrace_lib.tasks.synthetic.splits import in_split

from . import paths
from .profiles import Profile
from .run import Run


def ruler_collections(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """Samples of every RULER cell of the profile, answered by the model or, where it cannot, teacher-forced."""
    settings = run.profile.ruler
    store = Store(run.store("ruler_responses"))
    collections = {}
    for cell in tqdm(settings.cells, desc="RULER cells"):
        examples = ruler_cell_examples(run, cell, tokenizer)
        collections[cell] = collect(
            examples, model, tokenizer, settings.samples, store=store, max_new_tokens=settings.new_tokens_of(cell)
        )
    store.compact()
    return collections


def ruler_cell_examples(run: Run, cell: str, tokenizer: Any) -> list[Example]:
    """Problems of one RULER cell of the profile, in the order in which they are tried."""
    settings = run.profile.ruler
    tracks_variables = cell.startswith("h")
    return ruler_examples(
        cell,
        settings.length_of(cell),
        tokenizer,
        settings.max_tries,
        seed=run.profile.seed,
        haystack=None if tracks_variables else settings.haystack,  # assignments always stand in noise
        one_shot=settings.one_shot if tracks_variables else "auto",
        keep=held_out(run),
    )


def collect_stored(
    run: Run, store: str, examples: list[Example], model: torch.nn.Module, tokenizer: Any, n: int, **options: Any
) -> Collection:
    """Collection of ``n`` samples (`responses.collect`, with its options); responses are kept in a store of the run."""
    responses = Store(run.store(store))
    collection = collect(examples, model, tokenizer, n, store=responses, **options)
    responses.compact()
    return collection


def ruler_samples(run: Run, model: torch.nn.Module, tokenizer: Any) -> list[Sample]:
    """Samples of all RULER cells of the profile, see `ruler_collections`."""
    return all_samples(ruler_collections(run, model, tokenizer))


def held_out(run: Run) -> Keep | None:
    """Filter of the parts of problems: for a model of our own training, those that it left out; else None."""
    is_ours = run.model_name in ("embedded", "embedded-shallow") or paths.is_adapter(run.model_name)
    return partial(in_split, split="eval") if is_ours else None


def ruler_setting(profile: Profile) -> str:
    """Settings of the profile that the benchmark of Table 1 leaves open, as a sentence for captions."""
    worked_example = {
        True: "with RULER's worked example",
        False: "without RULER's worked example",
        "auto": "with RULER's worked example where the length leaves room for it",
    }[profile.ruler.one_shot]
    return f"Variable tracking {worked_example}; evidence of HotpotQA: the supporting {profile.hotpotqa.gold}s."


def all_samples(collections: Mapping[str, Collection]) -> list[Sample]:
    """Samples of all cells, in order."""
    return [sample for collection in collections.values() for sample in collection.samples]


def cell_of(sample: Sample) -> str:
    """Cell (task configuration) of a sample; empty where it has none."""
    return str(sample.metadata.get("cell", ""))


def count_table(collections: Mapping[str, Collection]) -> pd.DataFrame:
    """One row per cell: counts of problems, source of the responses, median lengths (tokens), share of gold in I."""
    rows = []
    for cell, collection in collections.items():
        segments = [sample.segments for sample in collection.samples]
        gold = [float(s.gold_in_prompt.float().mean()) for s in collection.samples if s.gold is not None]
        rows.append(
            {
                "cell": cell,
                **collection.counts,
                "kept": len(segments),
                "responses": _source_of_responses(collection),
                "|I|": _median_length(s.prompt for s in segments),
                "|T|": _median_length(s.reasoning for s in segments),
                "|O|": _median_length(s.output for s in segments),
                "gold share": round(float(np.mean(gold)), 3) if gold else None,
            }
        )
    table = pd.DataFrame(rows)
    refused = table.columns.intersection(["too long", "faulty"])  # only documents have these counts
    return table.assign(**{name: table[name].fillna(0).astype(int) for name in refused})


def brief(counts: pd.DataFrame) -> pd.DataFrame:
    """The columns of a `count_table` that a page has room for; the rest stands in its CSV."""
    columns = ["tried", "correct", "kept", "responses", "|I|", "|T|", "|O|", "gold share"]
    return counts.set_index("cell")[columns].rename_axis(index=None)


def _source_of_responses(collection: Collection) -> str:
    return "the model's own" if collection.kind == GENERATED else collection.kind + MARKS[collection.kind]


def _median_length(spans: Iterable[Span]) -> int:
    lengths = [stop - start for start, stop in spans]
    return int(np.median(lengths)) if lengths else 0


def mark_cells(frame: pd.DataFrame, collections: Mapping[str, Collection]) -> pd.DataFrame:
    """Mark the names of cells for display: ‡ for teacher-forced responses, § for unfiltered ones."""
    marked = {cell: cell + MARKS[collection.kind] for cell, collection in collections.items()}
    return frame.replace({"cell": marked})


def stored_attributions(store: Store, samples: Iterable[Sample], method: Method) -> list[Attribution]:
    """Attributions of a method rebuilt from stored records, in the order of ``samples``.

    Records are found by the method and its options, whatever label they were stored under.

    Raises
    ------
    ValueError
        If the store has no record of the method for a sample, or records of several models.
    """
    samples, options = list(samples), to_json(method.options(), f"options of {method.name}")
    keys, records = [sample_fingerprint(sample) for sample in samples], store.records()
    if len(records):
        records = records[(records["method_name"] == method.name) & (records["options"] == options)]
        models = records[records["sample_key"].isin(keys)].groupby("sample_key")["model_key"].nunique()
        if (models > 1).any():
            raise ValueError(
                f"{store.path} has records of {method} by several models for {int((models > 1).sum())} samples: remove "
                "what is no longer used (`python -m flashtrace_lib stale --remove`), or give each model its own store"
            )
        records = records.drop_duplicates("sample_key", keep="last").set_index("sample_key")
    attributions = []
    for sample, key in zip(samples, keys, strict=True):
        if key not in records.index:
            raise ValueError(f"no stored record of {method} for sample {sample.id}: run evaluate with this store first")
        attributions.append(_rebuilt(records.loc[key], method.name))
    return attributions


def _rebuilt(record: pd.Series, method: str) -> Attribution:
    """The attribution of a stored record; the weights of its hops are not stored."""
    hops = []
    for scores, (start, stop) in zip(record["hop_scores"], record["hop_targets"], strict=True):
        hops.append(Hop(_float32(scores), (int(start), int(stop)), torch.empty(0)))
    flow = [float(rho) for rho in record["flow"]]
    return Attribution(_float32(record["scores"]), method, float(record["seconds"]), hops, flow)


def _float32(values: Iterable[float]) -> torch.Tensor:
    return torch.tensor(np.asarray(values, dtype=np.float32))


def example_sample(run: Run, model: torch.nn.Module, tokenizer: Any, length: int = 256) -> Sample:
    """First short needle sample (two keys) that the model answers without reasoning, or else its reference answer.

    Its haystack is noise and not essays: it is printed and drawn, and the essays are their author's.
    """
    examples = ruler_examples(
        "mq_q2", length, tokenizer, 10, seed=run.profile.seed + 1, haystack="noise", keep=held_out(run)
    )
    options = {"max_new_tokens": 64, "batch_size": 5, "mode": "direct" if can_think(tokenizer) else None}
    return collect_stored(run, "example_responses", examples, model, tokenizer, 1, **options).samples[0]


ALL = "all cells"


def cell_group(cell: str) -> str:
    """Group of a cell of Table 1: ``needles``, ``chains`` or ``documents``."""
    if cell.startswith("hotpotqa"):
        return "documents"
    return "chains" if cell.startswith("h") else "needles"


def in_groups(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of `evaluation.evaluate` with the group in place of the cell, and once more as "all cells".

    A group of one cell is left out: its numbers would be those of the cell.
    """
    groups = frame["cell"].map(cell_group)
    has_cells = frame.groupby(groups)["cell"].nunique() > 1
    return pd.concat([frame.assign(cell=groups)[groups.map(has_cells)], frame.assign(cell=ALL)], ignore_index=True)


def pooled_cells(cells: Iterable[str]) -> dict[str, list[str]]:
    """What `in_groups` pools: each group of more than one cell, and all cells, with the cells of each."""
    cells = list(cells)
    groups = {group: [cell for cell in cells if cell_group(cell) == group] for group in map(cell_group, cells)}
    return {group: members for group, members in groups.items() if len(members) > 1} | {ALL: cells}
