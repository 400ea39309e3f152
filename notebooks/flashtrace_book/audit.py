"""Stored rows, chosen at random, computed again from their samples: scores and, if there are any, deletion curves."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from flashtrace_lib.attribution import Method
from flashtrace_lib.fingerprints import sample_fingerprint
from flashtrace_lib.methods import METHODS
from flashtrace_lib.metrics import Scorer, ranks_nothing

from . import paths
from .experiments.code_targets import OnCode
from .profile import load_profile
from .results import METHOD, SAMPLE, Results, rebuilt_sample
from .run import load_profile_model

SCORES, CURVES = 1e-3, 0.02  # largest difference, of the largest score and of the curve's drop (bfloat16 rounds)


@dataclass(frozen=True)
class Check:
    """One stored row against the same computed now; ``agrees`` is None where it could not be computed."""

    row: str
    said: str
    agrees: bool | None


def audit(names: list[str] | None = None, k: int = 1, seed: int = 0) -> list[Check]:
    """Compute ``k`` rows of each file of the book's results again.

    Rows whose prompts hold essays, which are not stored, are passed over, and so are those of a random ranking, which
    is stored as the mean of its draws. A model that is an extra and is not here is said to be missing.

    Parameters
    ----------
    names : list of str, optional
        Files of ``data/results``, without suffix. Default: all that hold methods.
    k : int
        Rows of each.
    seed : int
        Chooses them.

    Raises
    ------
    ValueError
        If ``k`` is not positive, or there is no such file.
    """
    if k < 1:
        raise ValueError(f"-k is {k}: give the number of rows of every file, 1 or more")
    profile, checks, models = load_profile(paths.BOOK), [], {}
    for name in (bar := tqdm(names or list(profile.results), desc="audit")):
        path = paths.results_file(paths.BOOK, name)
        if not path.is_file():
            raise ValueError(f"{path} is missing: restore it from version control")
        results = Results.read(path)
        for row in chosen_rows(results, k, seed).to_dict("records"):
            label = f"{name}: {row['method']} on {row['sample']} ({row['model']})"
            bar.set_postfix_str(label)  # a curve of the larger model takes minutes
            if row["model"] not in models:
                try:
                    models[row["model"]] = load_profile_model(profile, row["model"])[0]
                except (ValueError, OSError) as error:
                    models[row["model"]] = str(error).splitlines()[0]
            model = models[row["model"]]
            checks.append(
                Check(label, model, None) if isinstance(model, str) else _checked(label, model, row, profile.steps)
            )
    return checks


def chosen_rows(results: Results, k: int, seed: int) -> pd.DataFrame:
    """``k`` rows of methods that can be computed again, with their samples."""
    samples = results.part(SAMPLE)
    if "input_ids" not in samples or results.part(METHOD).empty:
        return pd.DataFrame()
    whole = samples[samples["input_ids"].notna()].drop(columns=["key", "device"], errors="ignore")
    rows = results.part(METHOD).drop(columns="model", errors="ignore")
    rows = rows[rows["scores"].notna()].merge(whole, on="sample_key")
    return rows.sample(min(k, len(rows)), random_state=seed)


def method_of(row: dict[str, Any]) -> Method:
    """The method that a row names, with its options."""
    options = json.loads(row["options"])
    if row["method_name"] == OnCode.name:
        inner = METHODS[options["method"]](**_fitting(options["method"], options["options"]))
        return OnCode(inner, options["target"])
    return METHODS[row["method_name"]](**_fitting(row["method_name"], options))


def _fitting(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options that the method takes today; one that was removed stands in the key as a constant."""
    known = METHODS[name].__dataclass_fields__
    return {k: tuple(v) if isinstance(v, list) else v for k, v in options.items() if k in known and known[k].init}


def _checked(label: str, model: Any, row: dict[str, Any], steps: int) -> Check:
    sample = rebuilt_sample(row)
    if sample_fingerprint(sample) != row["sample_key"]:
        return Check(label, "the stored sample is not the one that its key names", False)
    found, stored = method_of(row).attribute(model, sample).scores.numpy(), np.asarray(row["scores"])
    gap = float(np.abs(found - stored).max() / max(np.abs(stored).max(), 1e-12))
    said, agrees = f"scores differ by {gap:.1e} of the largest", gap <= SCORES
    if isinstance(row.get("log_probs"), np.ndarray):
        curve = Scorer(model).curve(sample, _ranked_as_stored(row), steps).log_probs.numpy()
        old, at = np.asarray(row["log_probs"]), row.get("evaluated")
        at = np.asarray(at, int) if isinstance(at, np.ndarray) else slice(None)  # between them it is interpolated
        away = float(np.abs(curve - old)[at].max() / max(abs(old[0] - old[-1]), 1e-12))
        said, agrees = f"{said}, the curve by {away:.1e} of its drop", agrees and away <= CURVES
    return Check(label, said, agrees)


def _ranked_as_stored(row: dict[str, Any]) -> np.ndarray:
    """The row's scores; where its curve is one of those that masked the earlier of tied tokens first, without ties."""
    scores = np.asarray(row["scores"])
    if isinstance(row.get("evaluated"), (list, np.ndarray)) or ranks_nothing(scores):
        return scores
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores), 0, -1)
    return ranks


def report(checks: list[Check]) -> str:
    """A line for each check, and how many agree."""
    marks = {True: "agrees", False: "DIFFERS", None: "not checked"}
    lines = [f"{marks[check.agrees]:12}{check.row}: {check.said}" for check in checks]
    done = [check for check in checks if check.agrees is not None]
    return "\n".join(
        [*lines, f"{sum(c.agrees for c in done)} of {len(done)} agree; {len(checks) - len(done)} not checked"]
    )
