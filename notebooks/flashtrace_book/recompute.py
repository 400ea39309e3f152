"""How each store of the book is audited: `RECOMPUTE` names them all.

The experiments supply the parts, beside the code that stores: the samples that the records of a store are about, and
the comparison of one record with what is computed now.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import pandas as pd
import torch

from flashtrace_lib.attribution import Method
from flashtrace_lib.evaluation import audit, audit_masks
from flashtrace_lib.fingerprints import model_fingerprint
from flashtrace_lib.methods import METHODS
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store

from .efficiency import audit as efficiency_audit
from .efficiency import sweep, timing
from .experiments import (
    better_flashtrace,
    cancellation,
    causal_masking,
    counterfactual,
    direct_answers,
    pilot,
    reasoning_tasks,
    rise_anatomy,
    swap_mask,
)
from .experiments.code_targets import OnCode
from .manifest import read_models
from .methods import build_method
from .profiles import Profile
from .run import Run
from .samples import ruler_samples

RESULTS, RESPONSES, TIMES = "results", "responses", "times"  # parts of the report


class Check(NamedTuple):
    """One row of an audit: part of the report, file or record, what is checked, both values, and the verdict."""

    part: str
    name: str
    check: str
    stored: Any
    found: Any
    agrees: bool


@dataclass(frozen=True)
class Source:
    """Samples of the chapters, and the store of the responses that they are built from."""

    responses: str  # without this store the samples are left out: an audit generates no response
    build: Callable[[Run, torch.nn.Module, Any], list[Sample]]  # takes run, model and tokenizer


@dataclass(frozen=True)
class Subject:
    """A store under audit, with everything that its records are computed from."""

    store: Store
    profile: Profile
    model: torch.nn.Module
    tokenizer: Any
    samples: Mapping[str, Sample]  # of the records, by fingerprints.sample_fingerprint
    k: int  # number of records to compute again
    rng: random.Random  # draws the records

    @property
    def name(self) -> str:
        """Name of the store."""
        return self.store.path.stem

    def draw(self, items: Sequence[Any]) -> list[Any]:
        """``k`` of the items at random, or all where there are fewer."""
        return self.rng.sample(items, min(self.k, len(items)))

    def draw_records(self) -> list[dict[str, Any]]:
        """``k`` of the store's records at random."""
        return self.draw(self.store.records().to_dict("records"))


@dataclass(frozen=True)
class Audited:
    """How a store is audited: the function that checks it, and the samples of its records."""

    check: Callable[[Subject], list[Check]]
    sources: tuple[Source, ...] = ()


def check_results(subject: Subject) -> list[Check]:
    """Compute attributions and curves again where model and sample are available; count the other records."""
    available, checks = _available(subject)
    scorer = Scorer(subject.model, precision="auto")
    for record in subject.draw(available):
        checks += _check_result(subject, record, scorer)
    return checks


def _available(subject: Subject) -> tuple[list[dict[str, Any]], list[Check]]:
    """Records whose model and sample are at hand, and a check that counts the others where there are any."""
    records = subject.store.records()
    of_model = records[records["model_key"] == model_fingerprint(subject.model)]
    available = of_model[of_model["sample_key"].isin(list(subject.samples))]
    left_out = [_check_left_out(subject, records, of_model, available)] if len(available) < len(records) else []
    return available.to_dict("records"), left_out


def _check_left_out(subject: Subject, records: pd.DataFrame, of_model: pd.DataFrame, available: pd.DataFrame) -> Check:
    """Count the records that cannot be computed again: they must be of models that models.json lists."""
    known = read_models(subject.profile.name)
    listed = {facts["fingerprint"] for facts in known.values()}
    own = known.get(subject.profile.model, {}).get("fingerprint", model_fingerprint(subject.model))
    unlisted = int((~records["model_key"].isin([*listed, model_fingerprint(subject.model)])).sum())
    rest = (
        f"{len(records) - len(of_model)} of {len(records)} are of another model ({unlisted} of one that "
        f"models.json does not list), {len(of_model) - len(available)} of samples that are not built here"
    )
    if own != model_fingerprint(subject.model):
        rest += f"; {subject.profile.model} is another model here than models.json has under this name"
    agrees = not unlisted and own == model_fingerprint(subject.model) and (len(available) > 0 or of_model.empty)
    return Check(RESULTS, subject.name, "rebuilt", len(records), rest, agrees)


def _check_result(subject: Subject, record: Mapping[str, Any], scorer: Scorer) -> list[Check]:
    """One check for each quantity of an attribution that disagrees, or one for all."""
    label = f"{subject.name}: {record['method']} on {record['sample']}"
    try:
        method = rebuild_method(record["method_name"], json.loads(record["options"]), subject.tokenizer)
        compared = audit(
            {record["method"]: method},
            [subject.samples[record["sample_key"]]],
            subject.model,
            subject.store,
            k=1,
            steps=int(record["steps"]),
            scorer=scorer,
        )
    except ValueError as error:
        return [Check(RESULTS, label, "computed again", "", str(error), False)]
    return _checks_of(compared, label)


def check_masks(subject: Subject) -> list[Check]:
    """Draw the masks of samples again, and compute the likelihoods under them, where model and sample are available."""
    available, checks = _available(subject)
    scorer = Scorer(subject.model, precision="auto")
    for record in subject.draw(available):
        seed = subject.rng.randrange(2**32)
        compared = audit_masks(record, subject.samples[record["sample_key"]], subject.model, scorer, seed)
        checks += _checks_of(compared, f"{subject.name}: {record['sample']}")
    return checks


def _checks_of(compared: pd.DataFrame, label: str) -> list[Check]:
    """One check for each quantity that disagrees, or one for all."""
    differing = compared[~compared["agrees"]].itertuples()
    checks = [Check(RESULTS, label, row.quantity, row.stored, row.recomputed, False) for row in differing]
    return checks or [Check(RESULTS, label, f"{len(compared)} quantities", "", "agree", True)]


def rebuild_method(name: str, options: dict[str, Any], tokenizer: Any = None) -> Method:
    """The method of a stored record, from its name and its options.

    Raises
    ------
    ValueError
        If there is no such method, it has no such option, or its algorithm has another revision.
    """
    if name == OnCode.name:
        return OnCode(rebuild_method(options["method"], options["options"], tokenizer), options["target"])
    if name not in METHODS:
        raise ValueError(f"no method {name!r} here; known are {', '.join(sorted(METHODS))}, {OnCode.name}")
    revision = options.get("revision", 1)
    if revision != METHODS[name].revision:
        raise ValueError(f"method {name} is of revision {METHODS[name].revision} here, the record of {revision}")
    # A subclass stores the options that it fixes, and does not take them as arguments.
    fixed = {f.name: f.default for f in fields(METHODS[name]) if not f.init} | {"revision": revision}
    arguments = {key: value for key, value in options.items() if key not in fixed or fixed[key] != value}
    return build_method(name, arguments, tokenizer)


def check_samples(subject: Subject, experiment: ModuleType) -> list[Check]:
    """Measure samples again; a store without a record of any available sample does not agree.

    The experiment has the functions ``stored_record`` and ``compare``, see `cancellation`.
    """
    profile, model = subject.profile, subject.model
    available = []
    for sample in subject.samples.values():
        record = experiment.stored_record(profile, model, subject.store, sample)
        if record is not None:
            available.append((sample, record))
    if not available:
        return [Check(RESULTS, subject.name, "samples are at hand", len(subject.store), 0, False)]
    checks = []
    for sample, record in subject.draw(available):
        compared = experiment.compare(profile, model, subject.tokenizer, sample, record)
        checks.append(Check(RESULTS, f"{subject.name}: {sample.id}", *compared))
    return checks


def check_responses(subject: Subject) -> list[Check]:
    """Check that responses are the text of their tokens; sealed ones have no text, and are checked as they are read."""
    checks = []
    for record in subject.draw_records():
        if isinstance(record.get("sealed"), str):
            continue
        agrees = subject.tokenizer.decode(list(record["ids"])) == record["text"]
        checks.append(Check(RESPONSES, f"{subject.name}: {record['example']}", "text of its tokens", "", "", agrees))
    return checks


def check_seconds(subject: Subject) -> list[Check]:
    """Check that times are positive."""
    return [
        Check(TIMES, f"{subject.name}: {record['method']}", *timing.positive_seconds(record))
        for record in subject.draw_records()
    ]


def check_rollout_cost(subject: Subject) -> list[Check]:
    """Check that times are positive, and compute the medians of Table 3 again."""
    medians = reasoning_tasks.printed_medians(subject.store.records(), subject.profile.name)
    return [*check_seconds(subject), *(Check(TIMES, *median) for median in medians)]


def check_sweep(subject: Subject) -> list[Check]:
    """Compute counts and medians of a sweep of time and memory again."""
    compared = efficiency_audit.audit(sweep.load_sweep(subject.store), subject.profile, subject.model, subject.k)
    differing = compared[~compared["agrees"]].itertuples()
    checks = [
        Check(TIMES, f"{subject.name}: {row.method} at {row.size}", row.check, row.stored, row.recomputed, False)
        for row in differing
    ]
    return checks or [Check(TIMES, subject.name, f"{len(compared)} counts and medians", "", "agree", True)]


# --- the stores of the book -----------------------------------------------------------------------------------

RULER = Source("ruler_responses", ruler_samples)
HOTPOTQA = Source("hotpotqa_responses", reasoning_tasks.hotpotqa_samples)
LONG_HOTPOTQA = Source("hotpotqa_responses", reasoning_tasks.long_hotpotqa_samples)
RIGHT_LONG_HOTPOTQA = Source("hotpotqa_responses", reasoning_tasks.right_long_hotpotqa_samples)
PILOT = Source("pilot_responses", pilot.pilot_samples)
GSM8K, MATH500, MOREHOPQA, EXERCISM = (
    Source(f"{kind}_responses", partial(reasoning_tasks.task_samples, kind=kind))
    for kind in ("gsm8k", "math500", "morehopqa", "exercism")
)
BETTER = Source(better_flashtrace.STORE, better_flashtrace.plan_samples)
DIRECT = Source(direct_answers.STORE, direct_answers.direct_samples)
QUESTIONS = Source(better_flashtrace.QUESTION_STORE, partial(better_flashtrace.plan_samples, real=True))

RECOMPUTE: dict[str, Audited] = {
    # responses
    "ruler_responses": Audited(check_responses),
    "hotpotqa_responses": Audited(check_responses),
    "pilot_responses": Audited(check_responses),
    "gsm8k_responses": Audited(check_responses),
    "math500_responses": Audited(check_responses),
    "morehopqa_responses": Audited(check_responses),
    "exercism_responses": Audited(check_responses),
    "example_responses": Audited(check_responses),
    better_flashtrace.STORE: Audited(check_responses),
    better_flashtrace.QUESTION_STORE: Audited(check_responses),
    direct_answers.STORE: Audited(check_responses),
    # attributions and deletion curves
    "ruler": Audited(check_results, (RULER, HOTPOTQA)),
    "recursion": Audited(check_results, (RULER, HOTPOTQA)),
    "open_questions": Audited(check_results, (RULER,)),
    "pilot": Audited(check_results, (PILOT,)),
    "math": Audited(check_results, (GSM8K, MATH500)),
    "morehopqa": Audited(check_results, (MOREHOPQA,)),
    "direct_answers": Audited(check_results, (DIRECT,)),
    "aider": Audited(check_results, (EXERCISM,)),
    "hotpotqa_long": Audited(check_results, (LONG_HOTPOTQA,)),
    "hotpotqa_long_recovery": Audited(check_results, (RIGHT_LONG_HOTPOTQA,)),
    "better_flashtrace": Audited(check_results, (BETTER, QUESTIONS)),
    "generalisation": Audited(check_results),  # of the second model: counted only
    # other measurements of samples
    "cancellation": Audited(partial(check_samples, experiment=cancellation), (RULER, HOTPOTQA, MOREHOPQA)),
    "direct_causes": Audited(partial(check_samples, experiment=direct_answers), (DIRECT,)),
    "open_questions_answers": Audited(partial(check_samples, experiment=causal_masking), (RULER,)),
    "ruler_swaps": Audited(partial(check_samples, experiment=counterfactual), (RULER,)),
    "rise_anatomy": Audited(partial(check_samples, experiment=rise_anatomy), (RULER, GSM8K)),
    "rise_swaps": Audited(partial(check_samples, experiment=swap_mask), (RULER,)),
    # times
    "span_cost": Audited(check_seconds),
    "pilot_cost": Audited(check_seconds),
    "hotpotqa_long_cost": Audited(check_seconds),
    "rollout_cost": Audited(check_rollout_cost),
    "efficiency": Audited(check_sweep),
}


def how_audited(store: str) -> Audited | None:
    """How a store is audited; None where nobody says. ``<name>_masks`` belongs to the attributions in ``<name>``."""
    owner = RECOMPUTE.get(store.removesuffix("_masks"))
    if store not in RECOMPUTE and owner is not None and owner.check is check_results:
        return Audited(check_masks, owner.sources)
    return RECOMPUTE.get(store)
