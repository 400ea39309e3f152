"""Core-hours that the evaluations of a profile take, said before a run begins; `estimate` counts the passes."""

from __future__ import annotations

import re
import time
from collections.abc import Collection

import pandas as pd
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from .. import paths
from ..profiles import Profile
from .estimate import estimate

# Floating-point operations a second of one core: 1024 tokens of the embedded model in 1.5 s on two cores, float32.
DEFAULT_RATE = 9e10
PARAMETERS = {
    "embedded": 134.5e6, "embedded-base": 134.5e6, "embedded-shallow": 49.6e6, "gemma3-270m": 268e6, "qwen": 494e6,
}  # fmt: skip
_IN_NAME = re.compile(r"(\d+(?:\.\d+)?)([BM])(?![a-z])")  # "Qwen/Qwen3-8B"
_PROBE = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
_PROBE_TOKENS = 512


def parameters_of(model: str) -> float | None:
    """Parameters of a model by its name; None where the name does not tell.

    Parameters
    ----------
    model : str
        As ``load_model`` takes it.
    """
    if model in PARAMETERS:
        return PARAMETERS[model]
    if paths.is_adapter(model):
        return PARAMETERS["embedded"]
    found = _IN_NAME.search(model)
    return float(found[1]) * {"B": 1e9, "M": 1e6}[found[2]] if found else None


@torch.inference_mode()
def measured_rate(runs: int = 3) -> float:
    """Floating-point operations a second and core that a forward pass reaches now, on this machine, in float32.

    Two random layers of the embedded model's width are run, so that no model is loaded. Seconds are those that the
    cores spent on it, so that other work on the machine does not count; the fastest run is taken.

    Parameters
    ----------
    runs : int
        Forward passes that are timed, after one that is not.
    """
    generator = torch.random.get_rng_state()  # what the chapters draw does not depend on the measurement
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, num_hidden_layers=2, **_PROBE)).eval()
    torch.random.set_rng_state(generator)
    ids = torch.zeros(1, _PROBE_TOKENS, dtype=torch.long)
    model(ids)
    seconds = []
    for _ in range(runs):
        start = time.process_time()
        model(ids)
        seconds.append(time.process_time() - start)
    operations = 2 * sum(p.numel() for p in model.parameters()) * _PROBE_TOKENS
    return operations / min(seconds)


def core_hours(profile: Profile, rate: float = DEFAULT_RATE, chapters: Collection[str] | None = None) -> pd.DataFrame:
    """Passes and core-hours of the evaluations of every chapter.

    Parameters
    ----------
    profile : Profile
    rate : float
        Floating-point operations a second of one core.
    chapters : collection of str, optional
        Names of notebooks. Default: those of the profile, all where it names none.

    Returns
    -------
    pandas.DataFrame
        ``chapter, passes, core_hours``, in reading order; attributions, deletion curves, shared masks and random draws
        of all samples. Hours are NaN where a model's name does not say its size.
    """
    table = estimate(profile, 1.0, rate)
    table["chapter"] = table["notebook"].str.partition(",")[0]
    wanted = chapters if chapters is not None else profile.notebooks
    if wanted is not None:
        table = table[[any(chapter.startswith(name) for name in wanted) for chapter in table["chapter"]]]
    models = {"01_pilot_study": profile.pilot.model, "09_generalisation": profile.generalisation.model}
    sizes = [parameters_of(models.get(chapter, profile.model)) or float("nan") for chapter in table["chapter"]]
    table = table.assign(core_hours=table["hours"] * sizes, passes=table["passes"] * table["samples"])
    return table.groupby("chapter")[["passes", "core_hours"]].agg(lambda part: part.sum(skipna=False)).reset_index()


def forecast(profile: Profile, chapters: Collection[str] | None = None, rate: float | None = None) -> list[str]:
    """Lines that say what a run will take: one a chapter, and the total.

    Parameters
    ----------
    profile : Profile
    chapters : collection of str, optional
        See `core_hours`.
    rate : float, optional
        Floating-point operations a second of one core. Default: `measured_rate`, but `DEFAULT_RATE` for the quick
        profile ``smoke`` and for one that names devices, whose speed this machine's cores do not tell.

    Returns
    -------
    list of str
        Empty where no chapter is estimated.
    """
    if core_hours(profile, 1.0, chapters).empty:
        return []
    how = "given"
    if rate is None:
        quick = profile.name == "smoke" or profile.device_map is not None
        rate, how = (DEFAULT_RATE, "the default") if quick else (measured_rate(), "measured now")
    table = core_hours(profile, rate, chapters)
    rows = [
        *table.itertuples(index=False, name=None),
        ("total", table["passes"].sum(), table["core_hours"].sum(skipna=False)),
    ]
    width = max(len(name) for name, _, _ in rows)
    head = (
        f"evaluations of profile {profile.name}, from scratch, at {rate / 1e9:.0f} GFLOP/s a core ({how}); "
        "stored results are not computed again, responses and timings come on top:"
    )
    return [head, *(f"  {name:{width}}  {count:9.0f} passes  {_hours(hours)}" for name, count, hours in rows)]


def _hours(hours: float) -> str:
    return "? core-hours (the size of its model is not known)" if hours != hours else f"{hours:8.2f} core-hours"
