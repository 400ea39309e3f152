"""Samples of a run: generated, counted, marked, and their stored attributions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.attribution import Attribution, Hop
from flashtrace_lib.fingerprints import sample_fingerprint
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.responses import GENERATED, MARKS, Collection, can_think, collect
from flashtrace_lib.tasks.ruler import ruler_examples
from flashtrace_lib.tasks.ruler_problems import Keep
from flashtrace_lib.tasks.synthetic.splits import in_split

from .profiles import Profile
from .run import Run


def ruler_collections(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """Samples of every RULER cell of the profile, answered by the model or, where it cannot, teacher-forced."""
    settings = run.profile.ruler
    store = Store(run.store("ruler_responses"))
    collections = {}
    for cell in tqdm(settings.cells, desc="RULER cells"):
        haystack = None if cell.startswith("h") else settings.haystack  # assignments always stand in noise
        examples = ruler_examples(
            cell, settings.length_of(cell), tokenizer, settings.max_tries, seed=run.profile.seed, haystack=haystack,
            one_shot=settings.one_shot if cell.startswith("h") else "auto", keep=held_out(run),
        )  # fmt: skip
        collections[cell] = collect(
            examples, model, tokenizer, settings.samples, store=store, max_new_tokens=settings.max_new_tokens
        )
    store.compact()
    return collections


def ruler_samples(run: Run, model: torch.nn.Module, tokenizer: Any) -> list[Sample]:
    """Samples of all RULER cells of the profile, see `ruler_collections`."""
    return all_samples(ruler_collections(run, model, tokenizer))


def held_out(run: Run) -> Keep | None:
    """What a problem may be made of: with the embedded model's adapter, only what its training never showed."""
    return partial(in_split, split="eval") if run.model_name == "embedded" else None


def ruler_setting(profile: Profile) -> str:
    """How the profile's samples of Table 1 differ in what the benchmark leaves open; a sentence for captions."""
    shot = {
        True: "with RULER's worked example",
        False: "without RULER's worked example",
        "auto": "with RULER's worked example where the length leaves room for it",
    }[profile.ruler.one_shot]
    return f"Variable tracking {shot}; evidence of HotpotQA: the supporting {profile.hotpotqa.gold}s."


def all_samples(collections: Mapping[str, Collection]) -> list[Sample]:
    """Samples of all cells, in order."""
    return [sample for collection in collections.values() for sample in collection.samples]


def count_table(collections: Mapping[str, Collection]) -> pd.DataFrame:
    """One row a cell: what was tried, kept and dropped, how long the parts are, how much of the input is gold."""
    rows = []
    for cell, collection in collections.items():
        parts = [sample.segments for sample in collection.samples]
        gold = [float(s.gold_in_prompt.float().mean()) for s in collection.samples if s.gold is not None]
        rows.append(
            {"cell": cell, **collection.counts, "kept": len(parts), "responses": _kind(collection),
             "|I|": _median(p.prompt for p in parts), "|T|": _median(p.reasoning for p in parts),
             "|O|": _median(p.output for p in parts), "gold share": round(float(np.mean(gold)), 3) if gold else None}
        )  # fmt: skip
    table = pd.DataFrame(rows)
    refused = table.columns.intersection(["too long", "faulty"])  # counted of documents alone
    return table.assign(**{name: table[name].fillna(0).astype(int) for name in refused})


def _kind(collection: Collection) -> str:
    return "the model's own" if collection.kind == GENERATED else collection.kind + MARKS[collection.kind]


def _median(spans: Iterable[tuple[int, int]]) -> int:
    lengths = [stop - start for start, stop in spans]
    return int(np.median(lengths)) if lengths else 0


def mark_cells(frame: pd.DataFrame, collections: Mapping[str, Collection]) -> pd.DataFrame:
    """Put ‡ behind the name of every cell whose responses are teacher-forced, § behind unfiltered ones, for display."""
    marked = {cell: cell + MARKS[collection.kind] for cell, collection in collections.items()}
    return frame.replace({"cell": marked})


def stored_attributions(store: Store, samples: Iterable[Sample], method: str) -> list[Attribution]:
    """Attributions rebuilt from stored records, in the order of ``samples``; ValueError where one is missing."""
    records = store.records()
    records = records[records["method"] == method].drop_duplicates("sample_key", keep="last").set_index("sample_key")
    rebuilt = []
    for sample in samples:
        if (key := sample_fingerprint(sample)) not in records.index:
            raise ValueError(f"no stored record of {method} for sample {sample.id}: run evaluate with this store first")
        record = records.loc[key]
        hops = [
            Hop(torch.tensor(np.asarray(scores, dtype=np.float32)), tuple(int(x) for x in target), torch.empty(0))
            for scores, target in zip(record["hop_scores"], record["hop_targets"], strict=True)
        ]
        scores = torch.tensor(np.asarray(record["scores"], dtype=np.float32))
        rebuilt.append(Attribution(scores, method, float(record["seconds"]), hops, [float(r) for r in record["flow"]]))
    return rebuilt


def example_sample(run: Run, model: torch.nn.Module, tokenizer: Any, length: int = 256) -> Sample:
    """First short needle sample (two keys) that the model answers without reasoning, or else its true answer.

    In noise rather than in essays: it is printed and drawn, and the essays are their author's.
    """
    examples = ruler_examples(
        "mq_q2", length, tokenizer, 10, seed=run.profile.seed + 1, haystack="noise", keep=held_out(run)
    )
    store = Store(run.store("example_responses"))
    mode = "direct" if can_think(tokenizer) else None
    collection = collect(examples, model, tokenizer, 1, store=store, max_new_tokens=64, batch_size=5, mode=mode)
    store.compact()
    return collection.samples[0]


ALL = "all cells"


def cell_group(cell: str) -> str:
    """Group of a cell of Table 1: ``needles``, ``chains`` or ``documents``."""
    if cell.startswith("hotpotqa"):
        return "documents"
    return "chains" if cell.startswith("h") else "needles"


def in_groups(frame: pd.DataFrame) -> pd.DataFrame:
    """Every row under the name of its cell's group, and again under "all cells"; for summaries over groups.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `evaluation.evaluate`.

    Returns
    -------
    pandas.DataFrame
        With ``cell`` replaced. A group of one cell, which would say nothing new, is left out.
    """
    groups = frame["cell"].map(cell_group)
    wider = frame.groupby(groups)["cell"].nunique() > 1
    return pd.concat([frame.assign(cell=groups)[groups.map(wider)], frame.assign(cell=ALL)], ignore_index=True)
