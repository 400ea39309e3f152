"""A deletion curve whose masked tokens are those of another valid problem: the generator's swap as a mask.

The generator of RULER's problems can say of each needle, assignment and sentence of the haystack what could stand there
instead (`flashtrace_lib.tasks.example_swaps`). Where the other statement has as many tokens, a masked token becomes the
one at its place in the other statement. The end of such a curve is a whole problem with another answer, and nothing on
the way is a token that no text has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.fingerprints import fingerprint, model_fingerprint, sample_fingerprint
from flashtrace_lib.metrics import Scorer, normalise_response, ranking
from flashtrace_lib.metrics.arithmetic import without_emulation
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks import ruler_swaps
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.swap_effects import swapped_prompts, tokens_of_swaps
from flashtrace_lib.text.offsets import tokenise

from ..methods import revisions
from ..profiles import Profile
from ..run import Run
from ..samples import cell_of, ruler_cell_examples
from .anatomy_curves import curve_sums
from .rise_anatomy import RANKED, TOLERANCE, area_to, plan, rankings

MASKS = {"pad": "padding", "swap": "another valid statement"}
_EVERY = 10**6  # sentences of the haystack: all of them


def swapped_tokens(
    tokenizer: Any, sample: Sample, example: Example, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which tokens of the context another valid statement can replace one by one, and what they become.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
    sample : Sample
        Of `responses.collect`, with ``example`` as its problem.
    example : Example
        From `ruler_examples`.
    seed : int
        Another seed gives other statements.

    Returns
    -------
    replaced : torch.BoolTensor, shape [N]
        Tokens of the statements and sentences whose swap leaves every other token where it is.
    ids : torch.LongTensor, shape [N]
        The context with all of these swaps made; elsewhere the sample's own tokens.
    """
    ids = sample.input_ids.cpu()
    replaced, swapped = torch.zeros(len(ids), dtype=torch.bool), ids.clone()
    swaps = ruler_swaps(example, tokenizer, seed, haystack=_EVERY)
    prompts = swapped_prompts(tokenizer, sample, example, swaps)[1:]
    for prompt, of_swap in zip(prompts, tokens_of_swaps(tokenizer, sample, example, swaps), strict=True):
        new = torch.tensor(tokenise(tokenizer, prompt)[0])
        changed = new != ids[: len(new)] if len(new) == sample.response[0] else None
        if changed is not None and not (changed & ~of_swap[: len(new)]).any():
            swapped[: len(new)] = torch.where(changed, new, swapped[: len(new)])
            replaced |= of_swap
    return replaced, swapped


def measured(
    profile: Profile, model: torch.nn.Module, tokenizer: Any, sample: Sample, example: Example
) -> dict[str, Any]:
    """The sample's record: each curve's ranking and mask, log p(T ∪ O) [curves, steps + 1], share of tokens swapped."""
    settings = profile.rise_anatomy
    replaced, swapped = swapped_tokens(tokenizer, sample, example, profile.seed)
    inside = replaced[slice(*sample.segments.prompt)]  # [|I|]
    start, stop = sample.haystack
    dtype = without_emulation("bfloat16", model)
    network = Scorer(model, dtype=dtype).network
    scores = rankings(model, sample, settings.draws)
    record: dict[str, Any] = {"sample": sample.id, "dtype": dtype, "share": float(inside.sum()) / (stop - start)}
    record |= {"ranking": [], "mask": [], "log_probs": []}
    known: dict = {}
    for name in dict.fromkeys(curve.ranking for curve in plan(list(scores), brief=True)):
        order = ranking(scores[name])
        for mask, stands_in in (("pad", "pad"), ("swap", swapped)):
            sums = curve_sums(network, sample, order[inside[order]], stands_in, settings.steps, tokenizer, known)
            for column, value in (("ranking", name), ("mask", mask), ("log_probs", sums["T ∪ O"])):
                record[column].append(value)
    return record


def measure(run: Run, model: torch.nn.Module, tokenizer: Any, samples: Sequence[Sample]) -> pd.DataFrame:
    """RISE of the main rankings over the tokens that can be swapped, under both `MASKS`; measured once and stored.

    Parameters
    ----------
    samples : sequence of Sample
        Those that are not RULER's are left out: their generators swap single facts, not every sentence.

    Returns
    -------
    pandas.DataFrame
        ``sample, cell, group, share`` (of the haystack that can be swapped), ``ranking, mask, rise``, and ``fall``, the
        nats that the log-likelihood falls from the first step to the last.
    """
    store, rows = Store(run.store("rise_swaps")), []
    ruler = [sample for sample in samples if sample.metadata.get("task") == "ruler"]
    examples = _examples(run, ruler, tokenizer)
    for sample in tqdm(ruler, desc="curves of swaps"):
        one = partial(measured, run.profile, model, tokenizer, sample, examples[sample.id])
        record = store.cached(record_key(run.profile, model, sample), one)
        about = {"sample": sample.id, "cell": cell_of(sample), "group": "RULER", "share": record["share"]}
        for name, mask, values in zip(record["ranking"], record["mask"], record["log_probs"], strict=True):
            sums = np.asarray(values, dtype=float)
            area = area_to(normalise_response(sums), 1.0)
            rows.append({**about, "ranking": name, "mask": mask, "rise": area, "fall": float(sums[0] - sums[-1])})
    store.compact()
    return pd.DataFrame(rows)


def _examples(run: Run, samples: Sequence[Sample], tokenizer: Any) -> dict[str, Example]:
    """The problems of the samples' cells, by id."""
    cells = dict.fromkeys(map(cell_of, samples))
    return {example.id: example for cell in cells for example in ruler_cell_examples(run, cell, tokenizer)}


def record_key(profile: Profile, model: torch.nn.Module, sample: Sample) -> str:
    """Key of a sample's record."""
    settings = profile.rise_anatomy
    return fingerprint({"model": model_fingerprint(model), "sample": sample_fingerprint(sample), "seed": profile.seed,
                        "draws": settings.draws, "steps": settings.steps,
                        **revisions(*RANKED)})  # fmt: skip


def stored_record(profile: Profile, model: torch.nn.Module, store: Store, sample: Sample) -> dict[str, Any] | None:
    """The sample's record in the store ``rise_swaps``; None where there is none."""
    return store.get(record_key(profile, model, sample))


def compare(
    profile: Profile, model: torch.nn.Module, tokenizer: Any, sample: Sample, stored: Mapping[str, Any]
) -> tuple[str, Any, Any, bool]:
    """Compute the sample's first curve of swaps again: name of the check, stored and found sums, whether they agree."""
    place = list(stored["mask"]).index("swap")
    example = _examples(Run(profile), [sample], tokenizer)[sample.id]
    replaced, swapped = swapped_tokens(tokenizer, sample, example, profile.seed)
    order = ranking(rankings(model, sample, profile.rise_anatomy.draws)[stored["ranking"][place]])
    order = order[replaced[slice(*sample.segments.prompt)][order]]
    network = Scorer(model, dtype=without_emulation(str(stored["dtype"]), model)).network
    new = np.array(curve_sums(network, sample, order, swapped, profile.rise_anatomy.steps, tokenizer)["T ∪ O"])
    old = np.asarray(stored["log_probs"][place], dtype=float)
    agrees = old.shape == new.shape and bool(np.abs(old - new).max() <= TOLERANCE * np.ptp(old))
    return f"log p of {stored['ranking'][place]} under swaps", old.round(2).tolist(), new.round(2).tolist(), agrees
