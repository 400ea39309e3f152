"""A page on one sample: switch between methods, mask what they rank first, and watch the likelihood fall.

Everything it shows is stored: scores and raw deletion curves of an evaluation. The page needs no network and no kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import torch

from flashtrace_lib.attribution import Method
from flashtrace_lib.evaluation.recorder import Recorder
from flashtrace_lib.metrics import Scorer, normalise_response, ranking, rise
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.viewer.page import EmbeddedPage, fill_page, shared_style
from flashtrace_lib.viewer.tokens import visible

from .style import method_style


def curves_page(
    methods: Iterable[Method],
    sample: Sample,
    model: torch.nn.Module,
    store: Store,
    *,
    steps: int,
    scorer: Scorer,
    height: int = 620,
) -> EmbeddedPage:
    """The page of those methods whose deletion curve of the sample is stored.

    Parameters
    ----------
    methods, model, store, steps, scorer
        As given to `evaluation.evaluate`.
    sample : Sample
        With display tokens.
    height : int
        Pixels.

    Raises
    ------
    ValueError
        If no curve of the sample is stored, or the sample has no display tokens.
    """
    recorder = Recorder(model, scorer, steps)
    ordered = sorted(methods, key=lambda method: method.name != "flashtrace")  # the one that is shown first
    found = {method.name: store.get(recorder.key(method, sample)) for method in ordered}
    curves = {name: record for name, record in found.items() if record is not None and _is_given(record["log_probs"])}
    if not curves:
        raise ValueError(
            f"no deletion curve of {sample.id} is stored in {store.path}: evaluate its methods by RISE first"
        )
    title = f"{sample.id}: what is masked, and what is left of the answer"
    about = f"{len(sample.prompt_ids)} tokens of input, {len(curves)} methods, {steps} steps"
    page = fill_page(
        _read("curves_page.html"),
        shared_style() + _read("curves_page.css"),
        _read("curves_page.js"),
        payload(sample, curves),
        title=title,
        about=about,
    )
    return EmbeddedPage(page, title, height)


def payload(sample: Sample, curves: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Data of the script; curves_page.js describes its fields.

    Parameters
    ----------
    curves : mapping of str to mapping
        Method to its stored record: ``scores`` [|I|], ``log_probs`` and ``n_masked`` [steps + 1].
    """
    if sample.tokens is None:
        raise ValueError(f"sample {sample.id} has no display tokens: build it with text.build_sample, or set tokens")
    start, stop = sample.segments.prompt
    gold = torch.zeros(stop - start) if sample.gold is None else sample.gold_in_prompt
    return {
        "tokens": [visible(token) for token in sample.tokens[start:stop]],
        "gold": [int(is_gold) for is_gold in gold.tolist()],
        "methods": [_curve(name, record) for name, record in curves.items()],
    }


def _curve(name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    scores = torch.as_tensor(record["scores"])
    response = normalise_response(record["log_probs"])
    return {
        "label": method_style(name).label,
        "scores": [float(f"{score:.3g}") for score in scores.tolist()],
        "order": ranking(scores).tolist(),
        "masked": [int(n) for n in record["n_masked"]],
        "logProbs": [round(float(value), 4) for value in record["log_probs"]],
        "response": [round(value, 4) for value in response.tolist()],
        "rise": round(rise(response), 4),
    }


def _is_given(column: Any) -> bool:
    return column is not None and len(column) > 0


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
