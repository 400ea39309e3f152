"""What RISE responds to: one ranking under other masks, other cuts and shapes, and scored on T, on O, or on both.

A deletion curve masks the tokens of I in the order of a ranking and follows a log-likelihood s_k. Here the order, the
thing that stands in a token's place, and the tokens whose likelihood is followed change one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.attribution import Method, sentence_scores, sentences_of_input
from flashtrace_lib.evaluation.results_table import clusters_of
from flashtrace_lib.fingerprints import fingerprint, model_fingerprint, sample_fingerprint
from flashtrace_lib.load import load_model
from flashtrace_lib.methods import IFR, FlashTrace, Random, RandomSentences
from flashtrace_lib.metrics import Scorer, normalise_response, rise, smooth
from flashtrace_lib.metrics.arithmetic import without_emulation
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store

from ..evaluations import first_of_cells
from ..methods import revisions
from ..paths import model_path
from ..profiles import Profile
from ..run import Run
from ..samples import all_samples, cell_of, ruler_collections
from .anatomy_curves import MASKS, curve_sums, masked_order
from .reasoning_tasks import task_samples

SCORED = ("T ∪ O", "T", "O")
EVIDENCE = "evidence first"
RANKED = (FlashTrace, IFR, Random, RandomSentences)  # the methods of `rankings`
_WIDTHS = (3, 7)
TOLERANCE = 0.05  # of a curve's range, between arithmetics
Scores = torch.Tensor


class Curve(NamedTuple):
    """One deletion curve of the plan.

    Parameters
    ----------
    ranking : str
        Name of the ranking, of `rankings`.
    mask : str
        Of `MASKS`.
    keeps_question : bool
        Tokens outside the haystack are never masked.
    """

    ranking: str
    mask: str = "pad"
    keeps_question: bool = False


def explained(sample: Sample) -> dict[str, Sample]:
    """The sample with each of `SCORED` as the span to explain; T and the union only where there is reasoning."""
    spans = {"O": sample.segments.output}
    if sample.segments.has_reasoning:
        spans |= {"T": sample.segments.reasoning, "T ∪ O": sample.segments.generated}
    return {name: sample if name == "O" else sample.with_output(span) for name, span in spans.items()}


def rankings(model: torch.nn.Module, sample: Sample, draws: int) -> dict[str, Scores]:
    """Scores [|I|] of every ranking of the plan on one sample, by name.

    FlashTrace and IFR explaining O, T and both; both in other shapes; random tokens and sentences, ``draws`` of each;
    and the evidence before everything else, in random order.
    """
    found: dict[str, Scores] = {}
    for target, one in explained(sample).items():
        for name, method in (("flashtrace", FlashTrace()), ("ifr", IFR())):
            if target == "O" or method.name == "ifr":
                found[_named(name, target)] = method.attribute(model, one).scores
            else:  # the recursion starts from the reasoning itself
                found[_named(name, target)] = FlashTrace(hops=0).attribute(model, one).scores
    found["flashtrace_best"] = FlashTrace.best().attribute(model, sample).scores
    controls: dict[str, Callable[[int], Method]] = {"random": Random, "random_sentences": RandomSentences}
    for name, control in controls.items():
        found |= {f"{name} {i}": control(i).attribute(model, sample).scores for i in range(draws)}
    shaped = {"flashtrace": found["flashtrace"]} | {f"random {i}": found[f"random {i}"] for i in range(draws)}
    for name, scores in shaped.items():
        found |= {f"{name}, {width} tokens": smooth(scores, width) for width in _WIDTHS}
        found[f"{name}, sentences"] = _by_sentence(sample, scores)
    if sample.gold is not None and sample.gold.any():
        found[EVIDENCE] = sample.gold_in_prompt.double() + 0.5 * found["random 0"].double()
    return found


def _named(method: str, target: str) -> str:
    return method if target == "O" else f"{method} on {target}"


def _by_sentence(sample: Sample, scores: Scores) -> Scores:
    """Each token's score is the mean of its sentence's."""
    spans = sentences_of_input(sample)
    spread = scores.double().clone()
    for (start, stop), mean in zip(spans, sentence_scores(scores.double(), spans, copies=True), strict=True):
        spread[start:stop] = mean
    return spread


def plan(names: Sequence[str], brief: bool = False) -> list[Curve]:
    """Every ranking with the padding token; four of them under each mask, and with the question kept.

    A ``brief`` plan has these four with the padding token alone, the question masked and kept.
    """
    main = [name for name in names if name in ("flashtrace", EVIDENCE, "random 0", "random_sentences 0")]
    if brief:
        return [Curve(name, keeps_question=kept) for kept in (False, True) for name in main]
    return [
        *(Curve(name) for name in names),
        *(Curve(name, mask) for mask in MASKS if mask != "pad" for name in main),
        *(Curve(name, keeps_question=True) for name in main),
    ]


# --- all curves -----------------------------------------------------------------------------------------------


def plan_samples(run: Run, model: torch.nn.Module, tokenizer: Any) -> list[Sample]:
    """The first RULER samples of each cell, and the first word problems."""
    settings = run.profile.rise_anatomy
    cells = {k: v for k, v in ruler_collections(run, model, tokenizer).items() if k in settings.cells}
    problems = task_samples(run, model, tokenizer, "gsm8k")[: settings.word_problems]
    return [*first_of_cells(all_samples(cells), settings.samples), *problems]


def load_padded(run: Run, model: torch.nn.Module) -> torch.nn.Module:
    """The model that the profile trained on masked prompts; ValueError where it does not read the samples' tokens."""
    name = run.profile.rise_anatomy.padded_model
    padded, _ = load_model(model_path(name), dtype=run.profile.dtype)
    sizes = model.config.vocab_size, padded.config.vocab_size
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"rise_anatomy.padded_model {name!r} has a vocabulary of {sizes[1]} tokens, the profile's model "
            f"{run.profile.model!r} one of {sizes[0]}: name a model that was trained on from the profile's"
        )
    return padded


def measured(
    profile: Profile, model: torch.nn.Module, tokenizer: Any, sample: Sample, brief: bool = False
) -> dict[str, Any]:
    """The sample's record: name, mask and question of each curve, and the three sums of each [curves, steps + 1]."""
    settings = profile.rise_anatomy
    dtype = without_emulation("bfloat16", model)
    network = Scorer(model, dtype=dtype).network
    scores = rankings(model, sample, settings.draws)
    curves = plan(list(scores), brief)
    record: dict[str, Any] = {"sample": sample.id, "dtype": dtype, **{name: [] for name in (*Curve._fields, *SCORED)}}
    known: dict = {}
    for curve in tqdm(curves, desc=sample.id, leave=False):
        order = masked_order(sample, scores[curve.ranking], curve.keeps_question)
        sums = curve_sums(network, sample, order, curve.mask, settings.steps, tokenizer, known)
        for name, value in (curve._asdict() | sums).items():
            record[name].append(value)
    return record


def record_key(profile: Profile, model: torch.nn.Module, sample: Sample, brief: bool = False) -> str:
    """Key of a sample's record."""
    settings = profile.rise_anatomy
    return fingerprint({"model": model_fingerprint(model), "sample": sample_fingerprint(sample),
                        "plan": "brief" if brief else 1, "draws": settings.draws, "steps": settings.steps,
                        **revisions(*RANKED)})  # fmt: skip


def stored_record(profile: Profile, model: torch.nn.Module, store: Store, sample: Sample) -> dict[str, Any] | None:
    """The sample's record in the store ``rise_anatomy``; None where there is none."""
    return store.get(record_key(profile, model, sample))


def compare(
    profile: Profile, model: torch.nn.Module, tokenizer: Any, sample: Sample, stored: Mapping[str, Any]
) -> tuple[str, Any, Any, bool]:
    """Compute the sample's first curve again: name of the check, stored and found sums, and whether they agree."""
    curve = Curve(stored["ranking"][0], stored["mask"][0], bool(stored["keeps_question"][0]))
    scores = rankings(model, sample, profile.rise_anatomy.draws)[curve.ranking]
    network = Scorer(model, dtype=without_emulation(str(stored["dtype"]), model)).network
    order = masked_order(sample, scores, curve.keeps_question)
    new = np.array(curve_sums(network, sample, order, curve.mask, profile.rise_anatomy.steps, tokenizer)["T ∪ O"])
    old = np.asarray(stored["T ∪ O"][0], dtype=float)
    agrees = old.shape == new.shape and bool(np.abs(old - new).max() <= TOLERANCE * np.ptp(old))
    return f"log p of {curve.ranking} under {curve.mask}", old.round(2).tolist(), new.round(2).tolist(), agrees


def measure(
    run: Run, model: torch.nn.Module, tokenizer: Any, samples: Sequence[Sample], brief: bool = False
) -> pd.DataFrame:
    """RISE of every curve, scored on each of `SCORED`, to the end and to half; measured once and stored.

    With ``brief``, of the curves of a brief `plan` alone.

    Returns
    -------
    pandas.DataFrame
        ``sample, cluster, cell, group`` (RULER or word problems), ``ranking, mask, keeps_question, scored, cut`` (1 or
        0.5) and ``rise``.
    """
    store, rows, cluster_of = Store(run.store("rise_anatomy")), [], clusters_of(samples)
    for sample in tqdm(samples, desc="curves"):
        key = record_key(run.profile, model, sample, brief)
        record = store.cached(key, partial(measured, run.profile, model, tokenizer, sample, brief))
        group = "RULER" if sample.metadata.get("task") == "ruler" else "word problems"
        about = {"sample": sample.id, "cluster": cluster_of[sample.id], "cell": cell_of(sample), "group": group}
        for i, name in enumerate(record["ranking"]):
            curve = {"ranking": name, "mask": record["mask"][i], "keeps_question": bool(record["keeps_question"][i])}
            for scored in SCORED:
                response = normalise_response(np.asarray(record[scored][i], dtype=float))
                for cut in (1.0, 0.5):
                    rows.append({**about, **curve, "scored": scored, "cut": cut, "rise": area_to(response, cut)})
    store.compact()
    return pd.DataFrame(rows)


def area_to(response: torch.Tensor, cut: float) -> float:
    """Mean height of a normalised response [steps + 1] up to a share ``cut`` of its steps; `rise` where that is 1."""
    return rise(response[: round(cut * (len(response) - 1)) + 1])
