"""When to trust a trace: its cautions and its verification, beside where the evidence stands (00, 12)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.attribution import Attribution
from flashtrace_lib.methods import DEFAULT, METHODS
from flashtrace_lib.sample import Sample
from flashtrace_lib.verification import verify
from flashtrace_lib.viewer.cautions import doubts
from flashtrace_lib.viewer.message_shares import sentence_importance

from ..ablations import first_hops
from ..profile import Profile, read
from ..results import Results


def make(profile: Profile, name: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of part ``verified``: the default's trace of the first answers, verified by removal.

    ``settings`` has the answers wanted of ``hints`` (of each form) and of the ``grid`` (of each cell).
    """
    from . import grid, hints  # here: a chapter that reads the part needs no task
    from .groups import first_of_cells, model_of

    asked = read(hints.Hints, profile.results["unsaid"]["hints"], "hints")
    cells = read(grid.Grid, profile.results["beyond"]["grid"], "grid")
    kept = [cell.collection() for cell in grid.answered(profile, cells).values()]
    sources = {
        "hints": (asked.model, [s for form in hints.kept(profile, asked).values() for s in form.samples]),
        "grid": (cells.model, [s for cell in kept for s in cell.samples]),
    }
    rows = []
    for source, n in settings.items():
        model, _ = model_of(profile, sources[source][0])
        for sample in tqdm(first_of_cells(sources[source][1], n), desc=f"verify {source}"):
            found = METHODS[DEFAULT]().attribute(model, sample)
            verdict = verify(model, sample, sentence_importance(sample, found))
            about = {"sample": sample.id, "source": source, "first": first_is_gold(sample, found)}
            rows.append({"part": "verified", **about, "verdict": verdict.verdict, "passes": verdict.forward_passes})
    return rows


def first_is_gold(sample: Sample, attribution: Attribution) -> bool:
    """Whether the first sentence outside the question, as a trace shows them, holds evidence."""
    content = [item for item in sentence_importance(sample, attribution) if sample.is_content(item[0])]
    return bool(sample.gold[slice(*max(content, key=lambda item: item[1])[0])].any())


def shown(results: Mapping[str, Results], methods: Sequence[str] = (DEFAULT,)) -> pd.DataFrame:
    """``source, method, sample, first, doubted``: whether the first sentence is evidence, and a caution doubts it."""
    rows = []
    for (source, stored), method in product(results.items(), methods):
        samples, found = stored.attributions(method, answers="own")
        if not found and method == "flashtrace":  # one hop is part of the run with three
            samples, found = stored.attributions("flashtrace_k3", answers="own")
            one_hop = (torch.from_numpy(first_hops(*pair)[:2][-1]) for pair in zip(samples, found, strict=True))
            found = [replace(a, scores=scores) for a, scores in zip(found, one_hop, strict=True)]
        about = ((s.id, first_is_gold(s, a), bool(doubts(s, a))) for s, a in zip(samples, found, strict=True))
        rows += [(source, method, *said) for said in about]
    return pd.DataFrame(rows, columns=["source", "method", "sample", "first", "doubted"])
