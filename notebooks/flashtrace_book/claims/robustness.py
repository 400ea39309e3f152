"""Does a verdict depend on the metric? The same comparison under other metrics, cells and targets, from stored records.

A claim of ``claims.yaml`` names its comparison under ``checks``. A verdict "reproduced" stands only if no check has the
opposite sign; one that has makes it "depends on the metric".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from flashtrace_lib.evaluation.ablations import records_with_masks
from flashtrace_lib.evaluation.draws import mean_over_draws
from flashtrace_lib.evaluation.results_table import METRICS, clusters, frame_from_records, has_curve
from flashtrace_lib.metrics import HIGHER_IS_BETTER
from flashtrace_lib.metrics.intervals import MIN_SAMPLES
from flashtrace_lib.store import Store

from ..figures.style import method_style
from ..samples import cell_group
from ..statistics import paired_difference
from .evidence import BASELINES, Evidence, in_common
from .rules import Missing

SUBJECT, MATCHED = "flashtrace", "ifr_all"
EQUAL_MASS = "mas_equal_mass"  # MAS of the same ranking with the mass spread evenly: the order alone counts
# What a comparison is repeated under, where it was measured.
REPEATED = {
    "recovery": "recovery", "r_precision": "R-precision", "auroc": "AUROC",
    "r_precision_haystack": "R-precision in the haystack", "auroc_haystack": "AUROC in the haystack",
    "lds_log_prob": "LDS", "rise": "RISE", "mas": "MAS", EQUAL_MASS: "MAS at equal mass",
}  # fmt: skip
SAME, OPEN, OPPOSITE, NOT_MEASURED = "same", "open", "opposite", "not measured"


@dataclass(frozen=True)
class Check:
    """FlashTrace's advantage, or another method's, in one repetition of a comparison; positive favours it.

    Parameters
    ----------
    name : str
        What was changed.
    against : str
        The method that comes closest to FlashTrace, or is furthest ahead of it.
    value, low, high : float
        Mean paired advantage with its 95 % interval; nan where there is none.
    n : int
        Independent differences (`results_table.clusters`).
    """

    name: str
    against: str = ""
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0

    @property
    def sign(self) -> str:
        """``same`` or ``opposite`` as the claim, ``open`` where the interval holds 0 or there are too few samples."""
        if math.isnan(self.value):
            return NOT_MEASURED
        if self.n < MIN_SAMPLES or math.isnan(self.low) or self.low <= 0 <= self.high:
            return OPEN
        return SAME if self.value > 0 else OPPOSITE

    def to_dict(self) -> dict[str, Any]:
        """The fields and the sign, ready for JSON: floats with six significant digits, None for nan."""
        shown = {
            key: (None if math.isnan(value) else float(f"{value:.6g}")) if isinstance(value, float) else value
            for key, value in asdict(self).items()
        }
        return shown | {"sign": self.sign}


def robustness(
    evidence: Evidence,
    store: str | Sequence[str],
    metric: str,
    methods: Sequence[str] = BASELINES,
    group: str | None = None,
    subject: str = SUBJECT,
) -> dict[str, Any]:
    """A comparison of FlashTrace with other methods under other metrics, without each cell, and with matched targets.

    Parameters
    ----------
    evidence : Evidence
    store : str or sequence of str
        Stored records of the comparison, under the profile's results; of several, those that the profile has.
    metric : str
        The claim's own.
    methods : sequence of str
        What FlashTrace is compared with; those without records are left out. Of several, each check shows the one
        with the smallest advantage.
    group : str, optional
        Only cells of this group (`samples.cell_group`).
    subject : str
        The method whose lead the claim is about.

    Returns
    -------
    dict
        ``samples``, ``n`` (independent ones), ``capped`` (share of the samples on which no ranking reaches a
        recovery of 1; None for another metric) and ``checks``, `Check.to_dict` each.

    Raises
    ------
    rules.Missing
        If the profile has no such records.
    """
    stores = _stored(evidence, [store] if isinstance(store, str) else store)
    frame = pd.concat([comparison_frame(path, with_random="random" in methods) for path in stores], ignore_index=True)
    methods = [method for method in methods if method in set(frame["method"])]
    if subject not in set(frame["method"]) or not methods:
        raise Missing(f"records of {subject} beside other methods in {', '.join(path.name for path in stores)}")
    if group is not None:
        frame = frame[frame["cell"].map(cell_group) == group]
    own = frame[(frame["metric"] == metric) & (frame["method"] == subject)]
    checks = [_closest(frame, subject, methods, name, label) for name, label in REPEATED.items() if name != metric]
    checks.append(_without_a_cell(frame, subject, methods, metric))
    if "ifr" in methods:
        checks.append(_closest(frame, subject, [MATCHED], metric, "IFR with the metric's target, T ∪ O"))
    caps = frame[(frame["metric"] == "recovery_cap") & (frame["method"] == subject)]["value"]
    return {
        "samples": int(own["sample"].nunique()),
        "n": int(clusters(own).nunique()),
        "capped": float(f"{(caps < 1).mean():.3g}") if metric == "recovery" and len(caps) else None,
        "checks": [check.to_dict() for check in checks],
    }


def _stored(evidence: Evidence, names: Sequence[str]) -> list[Path]:
    """Files of the stores that the profile has; Missing where it has none of them."""
    found, missing = [], []
    for name in names:
        try:
            found.append(evidence.store(name))
        except Missing as error:
            missing.append(error)
    if not found:
        raise missing[0]
    return found


def summary(found: dict[str, Any]) -> str:
    """The checks in a line: how many have the claim's sign, and the names of those with the opposite one."""
    signs = [check["sign"] for check in found["checks"]]
    opposite = [check["name"] for check in found["checks"] if check["sign"] == OPPOSITE]
    parts = [f"{signs.count(SAME)} of {len(signs) - signs.count(NOT_MEASURED)} checks have the same sign"]
    parts += [f"opposite: {', '.join(opposite)}"] if opposite else []
    parts += [f"{found['n']} of {found['samples']} samples are independent"] if found["n"] < found["samples"] else []
    parts += [f"{found['capped']:.0%} of the samples are capped"] if found["capped"] else []
    return "; ".join(parts)


def depends_on_the_metric(found: dict[str, Any]) -> bool:
    """Whether a check of `robustness` has the opposite sign."""
    return any(check["sign"] == OPPOSITE for check in found["checks"])


def comparison_frame(path: Path, with_random: bool = False) -> pd.DataFrame:
    """Every metric of ``REPEATED``, and the cap of recovery, of the methods in a store.

    Parameters
    ----------
    path : Path
        File of the store.
    with_random : bool
        The random baseline, too, whose draws are most of a store.
    """
    files = (path, path.with_name(f"{path.stem}_masks.parquet"), *sorted(path.with_suffix(".more").glob("*.parquet")))
    stamps = tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.is_file())
    parts = [_frame(path, stamps, random) for random in ((False, True) if with_random else (False,))]
    return pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]


@cache
def _frame(path: Path, stamps: tuple, random: bool) -> pd.DataFrame:
    """The random baseline's part of `comparison_frame`, or the other, kept as long as the files are the same."""
    records = records_with_masks(Store(path))
    methods = records["method"].astype(str)
    wanted = methods.str.match(r"random(/|$)") if random else ~methods.str.startswith("random")
    chosen = records[wanted].to_dict("records")
    frame = frame_from_records(chosen, (*(name for name in REPEATED if name in METRICS), "recovery_cap"))
    if frame.duplicated(["sample", "cell", "method", "metric"]).any():
        raise Missing(f"one record a method and sample in {path.name}, which has several (of other models or settings)")
    even = [record | {"cumulative": _even(record)} for record in chosen if has_curve(record)]
    frames = [frame, frame_from_records(even, ("mas",)).assign(metric=EQUAL_MASS)]
    return mean_over_draws(pd.concat([part for part in frames if len(part)], ignore_index=True))


def _even(record: dict[str, Any]) -> list[float]:
    """Share of the mass that is masked after each step if every token has the same."""
    masked = [float(n) for n in record["n_masked"]]
    return [n / masked[-1] for n in masked]


def _closest(frame: pd.DataFrame, subject: str, methods: Sequence[str], metric: str, label: str) -> Check:
    """The smallest advantage over any of the methods."""
    found = [check for method in methods if (check := _advantage(frame, subject, method, metric, label)) is not None]
    return min(found, key=lambda check: check.value, default=Check(label))


def _advantage(frame: pd.DataFrame, subject: str, method: str, metric: str, label: str) -> Check | None:
    """The subject's mean paired advantage over one method; None where the two share no sample."""
    rows = in_common(frame[(frame["metric"] == metric) & frame["method"].isin([subject, method])])
    if rows["method"].nunique() < 2:
        return None
    row = paired_difference(rows, subject, method).iloc[0]
    low, high = float(row["low"]), float(row["high"])
    name = method_style(method).label
    if HIGHER_IS_BETTER.get(metric, False):
        return Check(label, name, float(row["difference"]), low, high, int(row["n"]))
    return Check(label, name, -float(row["difference"]), -high, -low, int(row["n"]))


def _without_a_cell(frame: pd.DataFrame, subject: str, methods: Sequence[str], metric: str) -> Check:
    """The smallest advantage in the claim's own metric when one cell is left out."""
    label = "without any one cell"
    cells = list(dict.fromkeys(frame["cell"]))
    if len(cells) < 2:
        return Check(label)
    parts = [_closest(frame[frame["cell"] != cell], subject, methods, metric, label) for cell in cells]
    return min(parts, key=lambda check: check.value if not math.isnan(check.value) else math.inf)
