"""What the verdicts on the paper's claims rest on: numbers of the stored tables of one profile."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from flashtrace_lib import files
from flashtrace_lib.evaluation.results_table import frame_from_records, summarise
from flashtrace_lib.store import Store

from .. import paths
from ..profiles import load_profile, profile_names
from ..samples import in_groups
from ..statistics import against
from .rules import Finding, Missing

LONG = ("method", "cell", "metric", "mean", "low", "high", "n")
PAIRED = ("metric", "difference", "low", "high", "n")
PAIRS = "claims_paired"  # made of the stored records each time (`evidence.paired_with_all`), not read from its file
# Every table that a claim reads: its file is figures/<profile>/<name>.csv. One that does not exist yet makes the claims
# that need it read "not measured"; they are judged as soon as it is there.
FILES: dict[str, tuple[str, ...]] = {
    "fig1a_trend": ("method", "hop", "rho", "n", "share"),
    "fig1b_change": ("method", *PAIRED),
    "fig1c_cost": ("method", "n_reasoning", "seconds", "measured"),
    "recursion_recovery": ("K", "recovery", "low", "high", "gain", "gain_low", "gain_high", "n"),
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
    "table3_agreement": ("quantity", "mean", "low", "high", "n"),  # of the rollout and FlashTrace, sample by sample
    "table4_aider": LONG,
    "table8_unfiltered": LONG,
    PAIRS: ("table", "cell", "method", *PAIRED),
    # The sweep of time and memory (`efficiency_tables`)
    "fig4_measurements": ("axis", "method", "length", "n_input", "n_generated", "outcome", "ratio", "peak_gib"),
    "table6_complexity": ("method", "axis", "quantity", "exponent", "low", "high", "points"),
    "table9_savings": ("tokens", "memory_saved", "latency_added"),
    "efficiency_headline": ("method", "n_generated", "speedup", "kind"),
    "fig4e_pareto": ("method", "ratio", "mas", "low", "high", "n"),
    # The second model, the ablations and the open questions
    "table5_paired": ("cell", "against", *PAIRED),  # FlashTrace minus the method of the column against
    "table7_hops": LONG,
    "table7_ruler": ("cell", *PAIRED),  # FlashTrace minus its own hop 0
    "table10_last_token": LONG,
    "fig7_mass_shift": ("data", "quantity", "hop", "mean", "low", "high", "change", "change_low", "change_high", "n"),
    "appendix_m_paired": ("method", *PAIRED),  # other ways to make the target minus the sum
    "questions_ranked": ("choice", *PAIRED),  # the other reading of an open choice minus the paper's
    "questions_best": PAIRED,  # FlashTrace.best() minus the paper's setting, on samples that did not choose it
    "questions_causal": ("masked", "more", "more_low", "more_high", "n"),
}


@dataclass
class Evidence:
    """The stored tables of one profile, read once each.

    Parameters
    ----------
    profile : str
        Folder under the root of the figures.
    """

    profile: str
    _read: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)

    def table(self, name: str) -> pd.DataFrame:
        """The table called ``name``.

        Raises
        ------
        Missing
            If its file does not exist.
        ValueError
            If no claim knows such a table, or the file lacks a column or has no rows.
        """
        if name not in FILES:
            raise ValueError(f"no table {name!r} is read for a claim; known are {', '.join(FILES)}")
        if name == PAIRS and name not in self._read:
            self._read[name] = self._pairs()
        if name not in self._read:
            # Where the figures are sent elsewhere, as by the tests, the checkout's own stand in.
            folders = (paths.figures_dir(self.profile), files.root() / "figures" / self.profile)
            path = next((f / f"{name}.csv" for f in folders if (f / f"{name}.csv").is_file()), None)
            if path is None:
                raise Missing(f"{name}.csv")
            try:
                frame = pd.read_csv(path, keep_default_na=False, na_values=[""])
            except ValueError as error:  # no text, no table, empty
                raise ValueError(f"{path} is damaged ({error}): run the notebook that writes it again") from error
            lacking = [column for column in FILES[name] if column not in frame]
            if lacking:
                raise ValueError(f"{path} lacks the columns {lacking}: run the notebook that writes it again")
            if frame.empty:
                raise ValueError(f"{path} has no rows: run the notebook that writes it again")
            self._read[name] = frame
        return self._read[name]

    def setting(self, method: str) -> str:
        """Options of a method that the profile changes, as ``name value``; empty for a profile that is not known."""
        if self.profile not in profile_names():
            return ""
        options = load_profile(self.profile).method_options.get(method, {})
        return ", ".join(f"{name} {value}" for name, value in options.items())

    def _pairs(self) -> pd.DataFrame:
        from .evidence import paired_with_all  # here, because it reads the printed tables by this class

        table, left_out = paired_with_all(self.profile)
        if table.empty:
            raise Missing("; ".join(left_out))
        return table

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
        said = ", ".join(f"{column} {value}" for column, value in where.items())
        if frame.empty:
            raise Missing(f"{name}.csv has no row with {said}")
        if len(frame) > 1:
            raise ValueError(f"table {name} has {len(frame)} rows with {said}: it should have one")
        return frame.iloc[0]

    def difference(self, label: str, name: str, *, paper: float = math.nan, **where: object) -> Finding:
        """A paired difference."""
        *numbers, n = _numbers(name, self.row(name, **where), ("difference", "low", "high", "n"))
        return Finding(label, *numbers, int(n), paper)

    def mean(self, label: str, name: str, *, paper: float = math.nan, **where: object) -> Finding:
        """A mean with its interval."""
        *numbers, n = _numbers(name, self.row(name, **where), ("mean", "low", "high", "n"))
        return Finding(label, *numbers, int(n), paper)

    def number(self, name: str, column: str, **where: object) -> float:
        """One number of the one row with these values."""
        return _numbers(name, self.row(name, **where), (column,))[0]


def _numbers(name: str, row: pd.Series, columns: tuple[str, ...]) -> list[float]:
    """Columns of a row as floats; ValueError that names the table where one is no number, or n is none."""
    try:
        numbers = [float(row[column]) for column in columns]
    except (TypeError, ValueError):
        raise ValueError(f"table {name}: {[row[column] for column in columns]} are not numbers") from None
    if "n" in columns and not numbers[columns.index("n")].is_integer():
        raise ValueError(f"table {name}: n is {row['n']}, no number of samples")
    return numbers


METRICS = ("recovery", "r_precision", "rise", "mas")
# Store of raw records -> the table made of it, which says which records count.
TABLES = {"ruler": "table1_ruler", "math": "table2_math", "morehopqa": "table2_morehopqa", "aider": "table4_aider"}
# Further tables of those stores, and of one that is grouped over its lengths.
MORE = (("morehopqa", "table3_rollout"), ("morehopqa", "table7_hops"), ("ruler", "table10_last_token"),
        ("hotpotqa_long", "table8_unfiltered"))  # fmt: skip
GROUPED = ("table1_ruler", "table8_unfiltered", "table10_last_token")
SAME = {"flashtrace_k1": "flashtrace"}  # one result under two names
_AGREE = 1e-5  # relative: the tables keep six digits


def paired_with_all(profile: str) -> tuple[pd.DataFrame, list[str]]:
    """FlashTrace minus every other method on the same samples, for each cell of Tables 1 to 4 and groups of them.

    A cell, or a group of cells that the table prints, counts only where the means and numbers of samples of its records
    are those of the table; the groups of a table all of whose cells count do so too.

    Parameters
    ----------
    profile : str

    Returns
    -------
    table : pandas.DataFrame
        ``table, cell, method, metric, difference, low, high, n``: positive where FlashTrace's number is higher.
    left_out : list of str
        What is not in it, with the reason.
    """
    parts, left_out = [], []
    for store, name in [*TABLES.items(), *MORE]:
        path = paths.results_dir(profile) / f"{store}.parquet"
        try:
            printed = Evidence(profile).table(name).replace({"method": SAME})
        except Missing:
            left_out.append(f"{name}, which this profile has not generated")
            continue
        if not path.is_file():
            left_out.append(f"{name}, whose records in {path.name} are not there")
            continue
        frame = frame_from_records(Store(path).records(), METRICS)
        frame = in_common(frame[frame["method"].isin(printed["method"])])
        groups = in_groups(frame) if name in GROUPED else frame.head(0)
        both = pd.concat([frame, groups], ignore_index=True)
        kept = matching_cells(both, printed)
        left_out += [
            f"{name}: records of {cell} are not those of the table"
            for cell in sorted(set(both["cell"]) & set(printed["cell"]) - kept)
        ]
        kept |= set(groups["cell"]) if kept >= set(frame["cell"]) else set()
        if kept:
            parts.append(_differences(both[both["cell"].isin(kept)], name))
    columns = ["table", "cell", "method", "metric", "difference", "low", "high", "n"]
    return (pd.concat(parts)[columns].reset_index(drop=True) if parts else pd.DataFrame(columns=columns)), left_out


def in_common(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the samples that every method of their cell has a value of the metric for."""
    methods = frame.groupby(["cell", "metric"])["method"].transform("nunique")
    mine = frame.groupby(["cell", "metric", "sample"])["method"].transform("nunique")
    return frame[mine == methods]


def matching_cells(frame: pd.DataFrame, printed: pd.DataFrame) -> set[str]:
    """Cells whose stored records give the printed means and numbers of samples, for every method and metric.

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
