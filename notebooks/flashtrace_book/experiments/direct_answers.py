"""Questions that a model answers rightly at once: T is empty, and hop 0 is all there is to explain.

Beside the reasoned answers to the same records they show what the way through the reasoning adds; the two sets are
never mixed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from flashtrace_lib.methods import FlashTrace
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.datasets import task_examples
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import NOTHING, Collection

from ..profiles import Profile
from ..run import Run
from ..samples import all_samples, collect_stored
from . import causal_masking
from .reasoning_tasks import hotpotqa_examples, records_from

STORE = "direct_responses"
MAX_NEW_TOKENS = 48  # an answer that is given at once is short


def direct_collections(run: Run, model: torch.nn.Module, tokenizer: Any) -> dict[str, Collection]:
    """Right answers to the tasks of the profile's ``reasoning.direct``, by cell ``<task>_direct``.

    No word asks for reasoning; of the answers the right ones are kept, all of them. A cell may be empty: then its
    counts alone say what was tried.
    """
    sealed = run.profile.reasoning.is_real
    options = {"max_new_tokens": MAX_NEW_TOKENS, "fallback": NOTHING, "give_up": False, "sealed": sealed}
    found = {}
    for kind, tries in run.profile.reasoning.direct.items():
        examples = [replace(example, cell=f"{kind}_direct") for example in _examples(run, kind, tokenizer, tries)]
        found[f"{kind}_direct"] = collect_stored(run, STORE, examples, model, tokenizer, len(examples), **options)
    return found


def direct_samples(run: Run, model: torch.nn.Module, tokenizer: Any) -> list[Sample]:
    """Samples of all cells, see `direct_collections`."""
    return all_samples(direct_collections(run, model, tokenizer))


def _examples(run: Run, kind: str, tokenizer: Any, tries: int) -> list[Example]:
    """The records of a task that are tried, in their order."""
    if kind == "hotpotqa":
        return hotpotqa_examples(run, tokenizer, tries, run.profile.hotpotqa.length)[0]
    return task_examples(kind, tries, **records_from(run, kind))


def stored_record(profile: Profile, model: torch.nn.Module, store: Store, sample: Sample) -> dict[str, Any] | None:
    """The sample's record in the store ``direct_causes``; None where there is none."""
    return causal_masking.stored_record(profile, model, store, sample, FlashTrace(hops=0))


def compare(
    profile: Profile, model: torch.nn.Module, tokenizer: Any, sample: Sample, stored: dict[str, Any]
) -> tuple[str, Any, Any, bool]:
    """Let the model answer again, see `causal_masking.compare`."""
    return causal_masking.compare(profile, model, tokenizer, sample, stored, FlashTrace(hops=0))
