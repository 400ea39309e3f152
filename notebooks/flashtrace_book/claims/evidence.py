"""The evidence on the paper's claims: the stored tables of a profile, and paired differences of its stored records."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from flashtrace_lib.evaluation.draws import mean_over_draws
from flashtrace_lib.evaluation.results_table import frame_from_records, summarise
from flashtrace_lib.store import Store

from .. import paths
from ..profiles import load_profile, profile_names
from ..samples import in_groups
from ..statistics import against, on_fewer_samples
from .rules import Finding, Missing

BASELINES = ("perturbation", "reagent", "clp", "ifr", "attnlrp")  # of Table 1
LONG = ("method", "cell", "metric", "mean", "low", "high", "n")
PAIRED = ("metric", "difference", "low", "high", "n")
CAUSAL = ("masked", "more", "more_low", "more_high", "n")
PAIRS = "claims_paired"  # computed from the stored records each time (`paired_with_all`), not read from its file
# The columns of every table that a claim reads; its file is figures/<profile>/<name>.csv. Claims whose table does not
# exist yet are "not measured".
COLUMNS: dict[str, tuple[str, ...]] = {
    "fig1a_trend": ("method", "hop", "rho", "n", "share"),
    "fig1b_change": ("method", *PAIRED),
    "fig1c_cost": ("method", "n_reasoning", "seconds", "measured"),
    "recursion_recovery": ("K", "recovery", "low", "high", "gain", "gain_low", "gain_high", "n"),
    "ruler_hops": ("K", "recovery", "low", "high", "gain", "gain_low", "gain_high", "n"),
    "table1_ruler": LONG,
    "ruler_paired": ("cell", *PAIRED),
    "ruler_paired_groups": ("cell", *PAIRED),
    "ruler_against_random": ("method", *PAIRED),
    "math_against_random": ("method", *PAIRED),
    "morehopqa_against_random": ("method", *PAIRED),
    "fig5_by_length": ("method", "metric", "mean", "low", "high", "n", "length"),
    "table2_math": LONG,
    "table2_morehopqa": LONG,
    "table3_rollout": LONG,
    "table3_agreement": ("quantity", "mean", "low", "high", "n"),  # the rollout and FlashTrace, sample by sample
    "table4_aider": LONG,
    "table8_unfiltered": LONG,
    PAIRS: ("table", "cell", "method", *PAIRED),
    # Time and memory (`efficiency_tables`)
    "fig4_measurements": ("axis", "method", "length", "n_input", "n_generated", "outcome", "ratio", "peak_gib"),
    "table6_complexity": ("method", "axis", "quantity", "exponent", "low", "high", "points"),
    "table9_savings": ("tokens", "memory_saved", "latency_added"),
    "fig4_headline": ("method", "n_generated", "outcome", "ratio"),
    "efficiency_headline": ("method", "n_generated", "speedup", "kind"),
    "fig4e_pareto": ("method", "ratio", "mas", "low", "high", "n"),
    # The second model, the ablations and the open questions
    "table5_paired": ("cell", "against", *PAIRED),  # FlashTrace minus the method under "against"
    "table7_hops": LONG,
    "table7_ruler": ("cell", *PAIRED),  # FlashTrace minus its own hop 0
    "table10_last_token": LONG,
    "fig7_mass_shift": ("data", "quantity", "hop", "mean", "low", "high", "change", "change_low", "change_high", "n"),
    "appendix_m_paired": ("method", *PAIRED),  # other ways to aggregate the target minus the sum
    "questions_ranked": ("choice", *PAIRED),  # the other reading of an open choice minus the paper's
    "questions_best": PAIRED,  # the chosen combination minus the paper's setting, on samples that did not choose it
    "better_candidate": PAIRED,  # the candidate minus the paper's setting, on cells that it was not picked on
    "better_second": PAIRED,  # the same of the second candidate
    "questions_causal": CAUSAL,
    "direct_causal": CAUSAL,  # on questions that are answered rightly at once
    **dict.fromkeys(
        (
            "pilot_samples", "pilot_modes", "recursion_samples", "ruler_samples", "math_samples", "morehopqa_samples",
            "aider_samples", "table5_samples", "hops_samples", "table8_samples", "better_samples",
        ),
        ("cell", "kept", "responses"),  # of `samples.count_table`
    ),
}  # fmt: skip


def read_table(profile: str, name: str) -> pd.DataFrame:
    """Read a table of ``COLUMNS``.

    Raises
    ------
    Missing
        If its file does not exist.
    ValueError
        If no claim knows such a table, or the file is damaged, lacks a column or has no rows.
    """
    if name not in COLUMNS:
        raise ValueError(f"no table {name!r} is read for a claim; known are {', '.join(COLUMNS)}")
    path = paths.stored_table(profile, name)
    if path is None:
        raise Missing(f"{name}.csv")
    try:
        frame = pd.read_csv(path, keep_default_na=False, na_values=[""])
    except ValueError as error:  # no text, no table, empty
        raise ValueError(f"{path} is damaged ({error}): run the notebook that writes it again") from error
    lacking = [column for column in COLUMNS[name] if column not in frame]
    if lacking:
        raise ValueError(f"{path} lacks the columns {lacking}: run the notebook that writes it again")
    if frame.empty:
        raise ValueError(f"{path} has no rows: run the notebook that writes it again")
    return frame


@dataclass
class Evidence:
    """The tables of one profile, read once each.

    Parameters
    ----------
    profile : str
        Folder under the root of the figures.
    """

    profile: str
    _tables: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)

    def table(self, name: str) -> pd.DataFrame:
        """A table of ``COLUMNS``, with the errors of `read_table`; ``PAIRS`` is computed from the stored records."""
        if name not in self._tables:
            self._tables[name] = self._pairs() if name == PAIRS else read_table(self.profile, name)
        return self._tables[name]

    def store(self, name: str) -> Path:
        """File of a store of the profile's records; Missing where there is none."""
        path = paths.results_dir(self.profile) / f"{name}.parquet"
        if not path.is_file():
            raise Missing(f"records in {path.name}")
        return path

    def _pairs(self) -> pd.DataFrame:
        table, left_out = paired_with_all(self.profile)
        if table.empty:
            raise Missing("; ".join(left_out))
        return table

    def setting(self, method: str) -> str:
        """Options of a method that the profile changes, as ``name value``; empty for an unknown profile."""
        if self.profile not in profile_names():
            return ""
        options = load_profile(self.profile).method_options.get(method, {})
        return ", ".join(f"{name} {value}" for name, value in options.items())

    def rows(self, name: str, **where: object) -> pd.DataFrame:
        """Rows of a table whose columns have these values; ValueError for a column that it lacks."""
        frame = self.table(name)
        for column, value in where.items():
            if column not in frame:
                raise ValueError(f"table {name} has no column {column!r}; it has {', '.join(frame.columns)}")
            frame = frame[frame[column] == value]
        return frame

    def row(self, name: str, **where: object) -> pd.Series:
        """The one row with these values; Missing where there is none, ValueError where there are several."""
        frame = self.rows(name, **where)
        condition = ", ".join(f"{column} {value}" for column, value in where.items())
        if frame.empty:
            raise Missing(f"{name}.csv has no row with {condition}")
        if len(frame) > 1:
            raise ValueError(f"table {name} has {len(frame)} rows with {condition}: it should have one")
        return frame.iloc[0]

    def difference(self, label: str, name: str, *, paper: float = math.nan, **where: object) -> Finding:
        """A paired difference."""
        *numbers, n = _floats(name, self.row(name, **where), ("difference", "low", "high", "n"))
        return Finding(label, *numbers, int(n), paper)

    def mean(self, label: str, name: str, *, paper: float = math.nan, **where: object) -> Finding:
        """A mean with its interval."""
        *numbers, n = _floats(name, self.row(name, **where), ("mean", "low", "high", "n"))
        return Finding(label, *numbers, int(n), paper)

    def number(self, name: str, column: str, **where: object) -> float:
        """One number of the one row with these values."""
        return _floats(name, self.row(name, **where), (column,))[0]


def _floats(name: str, row: pd.Series, columns: tuple[str, ...]) -> list[float]:
    """Columns of a row as floats; ValueError that names the table if one is no number, or n no whole number."""
    try:
        numbers = [float(row[column]) for column in columns]
    except (TypeError, ValueError):
        raise ValueError(f"table {name}: {[row[column] for column in columns]} are not numbers") from None
    if "n" in columns and not numbers[columns.index("n")].is_integer():
        raise ValueError(f"table {name}: n is {row['n']}, no number of samples")
    return numbers


# --- Paired differences of the stored records -----------------------------------------------------------------

METRICS = ("recovery", "r_precision", "rise", "mas")
# Stores of raw records, each with a table made of it, which tells the records that count.
RECORDS = (
    ("ruler", "table1_ruler"), ("math", "table2_math"), ("morehopqa", "table2_morehopqa"), ("aider", "table4_aider"),
    ("morehopqa", "table3_rollout"), ("morehopqa", "table7_hops"), ("ruler", "table10_last_token"),
    ("hotpotqa_long", "table8_unfiltered"),
)  # fmt: skip
GROUPED = ("table1_ruler", "table8_unfiltered", "table10_last_token")  # they also have groups of cells
SAME = {"flashtrace_k1": "flashtrace"}  # one result under two names
_AGREE = 1e-5  # relative: the tables keep six digits
_DIFFERENCES = ["table", "cell", "method", "metric", "difference", "low", "high", "n"]


def paired_with_all(profile: str) -> tuple[pd.DataFrame, list[str]]:
    """FlashTrace minus every other method on the same samples, in each cell and group of cells of the main tables.

    A cell, or a group of cells that the table prints, counts only if the means and numbers of samples of its records
    are those of the table. Groups that the table does not print count if all of its cells do.

    Parameters
    ----------
    profile : str

    Returns
    -------
    table : pandas.DataFrame
        ``table, cell, method, metric, difference, low, high, n``: positive if FlashTrace's number is higher.
    left_out : list of str
        Each part that is not in the table, with the reason.
    """
    parts, left_out, frames = [], [], {}
    for store, name in RECORDS:
        try:
            printed = read_table(profile, name).replace({"method": SAME})
        except Missing:
            left_out.append(f"{name}, which this profile has not generated")
            continue
        path = paths.results_dir(profile) / f"{store}.parquet"
        if not path.is_file():
            left_out.append(f"{name}, whose records in {path.name} are not there")
            continue
        if path not in frames:  # several tables may be made of one store
            frames[path] = mean_over_draws(frame_from_records(Store(path).records(), METRICS))
        records = frames[path]
        records = in_common(
            records[records["method"].isin(printed["method"])], set(printed.loc[on_fewer_samples(printed), "method"])
        )
        groups = in_groups(records) if name in GROUPED else records.head(0)
        rows = pd.concat([records, groups], ignore_index=True)
        agreeing = matching_cells(rows, printed)
        differing = set(rows["cell"]) & set(printed["cell"]) - agreeing
        left_out += [f"{name}: records of {cell} are not those of the table" for cell in sorted(differing)]
        if agreeing >= set(records["cell"]):
            agreeing |= set(groups["cell"])
        if agreeing:
            parts.append(_differences(rows[rows["cell"].isin(agreeing)], name))
    table = pd.concat(parts)[_DIFFERENCES].reset_index(drop=True) if parts else pd.DataFrame(columns=_DIFFERENCES)
    return table, left_out


def in_common(frame: pd.DataFrame, few: Collection[str] = ()) -> pd.DataFrame:
    """Rows of the samples for which every method of their cell, those of ``few`` aside, has a value of the metric."""
    compared = ~frame["method"].isin(few).to_numpy()
    many = frame[compared]
    of_cell = many.groupby(["cell", "metric"])["method"].transform("nunique")
    of_sample = many.groupby(["cell", "metric", "sample"])["method"].transform("nunique")
    place = pd.MultiIndex.from_frame(frame[["cell", "metric", "sample"]])
    return frame[place.isin(place[compared][(of_sample == of_cell).to_numpy()])]


def matching_cells(frame: pd.DataFrame, printed: pd.DataFrame) -> set[str]:
    """Cells whose stored records give the printed means and numbers of samples for every method and metric.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `results_table.frame_from_records`.
    printed : pandas.DataFrame
        The long table: ``method, cell, metric, mean, n``.
    """
    key = ["method", "cell", "metric"]
    stored = summarise(frame)[[*key, "mean", "n"]]
    both = printed.merge(stored, on=key, suffixes=("", "_stored"))
    agree = (both["n"] == both["n_stored"]) & np.isclose(both["mean"], both["mean_stored"], rtol=_AGREE, atol=_AGREE)
    return {cell for cell, part in agree.groupby(both["cell"]) if part.all()}


def _differences(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """FlashTrace minus each other method, in each cell and group of cells."""
    table = against(frame, "flashtrace", by=("metric", "cell"))  # the others minus FlashTrace
    table = table.assign(difference=-table["difference"], low=-table["high"], high=-table["low"], table=name)
    return table[table["n"] > 0]
