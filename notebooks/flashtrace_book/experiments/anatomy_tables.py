"""Tables of the chapter on RISE, from the curves of `rise_anatomy` and from the evaluation of the RULER chapter."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import pandas as pd

from flashtrace_lib.evaluation.results_table import clusters

from ..statistics import TOO_FEW, mean_row, paired_difference, rank_correlation
from .anatomy_curves import MASKS
from .rise_anatomy import EVIDENCE, SCORED

SHAPES = ("tokens", "3 tokens", "7 tokens", "sentences")
MAIN = ("flashtrace", EVIDENCE, "random", "random_sentences")


def without_draws(frame: pd.DataFrame) -> pd.DataFrame:
    """The curves of `rise_anatomy.measure` with the draws of a random ranking averaged within each sample."""
    names = frame["ranking"].str.replace(r"^(random(?:_sentences)?) \d+", r"\1", regex=True)
    keys = [column for column in frame if column != "rise"]
    return frame.assign(ranking=names).groupby(keys, sort=False)["rise"].mean().reset_index()


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Curves as the paper's: padding token, question masked too, T ∪ O scored, to the end."""
    return frame[
        (frame["mask"] == "pad") & ~frame["keeps_question"] & (frame["scored"] == "T ∪ O") & (frame["cut"] == 1)
    ]


def _means(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Mean RISE with its interval over samples: the columns ``by``, then ``mean, low, high, n``."""
    rows = [
        dict(zip(by, keys, strict=True)) | mean_row(part["rise"], clusters=clusters(part))
        for keys, part in frame.groupby(by, sort=False)
    ]
    return pd.DataFrame(rows, columns=[*by, "mean", "low", "high", "n"])


def target_table(frame: pd.DataFrame) -> pd.DataFrame:
    """RISE of FlashTrace and IFR by the span they explain and the span that is scored.

    Returns
    -------
    pandas.DataFrame
        ``group, method, explained, scored, mean, low, high, n``.
    """
    part = frame[(frame["mask"] == "pad") & ~frame["keeps_question"] & (frame["cut"] == 1)]
    name = part["ranking"].str.extract(r"^(flashtrace|ifr)(?: on (.+))?$")
    part = part.assign(method=name[0], explained=name[1].fillna("O"))[name[0].notna()]
    return _means(part, ["group", "method", "explained", "scored"])


def mask_table(frame: pd.DataFrame) -> pd.DataFrame:
    """RISE of the main rankings by mask: ``group, mask, ranking, mean, low, high, n``."""
    part = frame[~frame["keeps_question"] & (frame["scored"] == SCORED[0]) & (frame["cut"] == 1)]
    return _means(part[part["ranking"].isin(MAIN)], ["group", "mask", "ranking"])


def swap_table(frame: pd.DataFrame) -> pd.DataFrame:
    """RISE by mask over the tokens that can be swapped, and its distance to random tokens'.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `swap_mask.measure`.

    Returns
    -------
    pandas.DataFrame
        ``group, mask, ranking, mean, low, high, n`` and ``behind, behind_low, behind_high``: random tokens minus the
        ranking, on the same samples.
    """
    part = frame.assign(ranking=frame["ranking"].str.replace(r" \d+$", "", regex=True))
    part = part.groupby(["group", "mask", "ranking", "sample"], sort=False)["rise"].mean().reset_index()
    rows = []
    for (group, mask), own in part.groupby(["group", "mask"], sort=False):
        wide = own.pivot(index="sample", columns="ranking", values="rise")
        for ranking in (name for name in MAIN if name in wide):
            behind = mean_row((wide["random"] - wide[ranking]).dropna(), "behind", "behind_")
            del behind["n"]
            rows.append({"group": group, "mask": mask, "ranking": ranking, **mean_row(wide[ranking]), **behind})
    return pd.DataFrame(rows)


def mask_agreement(table: pd.DataFrame) -> pd.DataFrame:
    """Rank correlation of the rankings' order under each mask with that under the padding token, by group."""
    rows = []
    for group, part in table.groupby("group", sort=False):
        wide = part.pivot(index="ranking", columns="mask", values="mean").dropna()
        rows += [
            {
                "group": group,
                "mask": MASKS[mask],
                "rho": rank_correlation(wide[mask], wide["pad"]),
                "rankings": len(wide),
            }
            for mask in MASKS
            if mask != "pad" and mask in wide and len(wide) > 2
        ]
    return pd.DataFrame(rows, columns=["group", "mask", "rho", "rankings"])


def shape_table(frame: pd.DataFrame) -> pd.DataFrame:
    """RISE of FlashTrace and of a random ranking in growing blocks, and the change that the blocks bring.

    Returns
    -------
    pandas.DataFrame
        ``group, ranking, shape, mean, low, high, n`` and ``change, change_low, change_high``, the same samples in
        this shape minus in scattered tokens.
    """
    part = _plain(frame)
    name = part["ranking"].str.extract(r"^(flashtrace|random)(?:, (.+))?$")
    part = part.assign(ranking=name[0], shape=name[1].fillna(SHAPES[0]))[name[0].notna()]
    rows = []
    for (group, ranking), own in part.groupby(["group", "ranking"], sort=False):
        wide = own.pivot(index="sample", columns="shape", values="rise")
        cluster_of = clusters(own).groupby(own["sample"]).first()
        for shape in (shape for shape in SHAPES if shape in wide):
            change, here = (wide[shape] - wide[SHAPES[0]]).dropna(), wide[shape].dropna()
            row = mean_row(change, "change", "change_", cluster_of[change.index])
            del row["n"]
            row |= mean_row(here, clusters=cluster_of[here.index])
            rows.append({"group": group, "ranking": ranking, "shape": shape, **row})
    return pd.DataFrame(rows)


def question_table(frame: pd.DataFrame) -> pd.DataFrame:
    """RISE of the main rankings with the question masked like the rest or kept, to the end and to half.

    Returns
    -------
    pandas.DataFrame
        ``group, question, cut, ranking, mean, low, high, n``; ``question`` is ``masked`` or ``kept``.
    """
    return _means(_main_with_padding(frame), ["group", "question", "cut", "ranking"])


def _main_with_padding(frame: pd.DataFrame) -> pd.DataFrame:
    """Curves of the main rankings with the padding token, T ∪ O scored, and their ``question``: masked or kept."""
    part = frame[(frame["mask"] == "pad") & (frame["scored"] == SCORED[0]) & frame["ranking"].isin(MAIN)]
    return part.assign(question=part["keeps_question"].map({False: "masked", True: "kept"}))


def padded_table(own: pd.DataFrame, padded: pd.DataFrame) -> pd.DataFrame:
    """RISE of the main rankings by a model and by the same one after training on masked prompts.

    Parameters
    ----------
    own, padded : pandas.DataFrame
        From `without_draws`, of the same samples.

    Returns
    -------
    pandas.DataFrame
        ``group, question, ranking``, ``mean, low, high, n`` of each ``model``: ``as it is`` and ``used to masks``.
    """
    both = [frame.assign(model=name) for name, frame in (("as it is", own), ("used to masks", padded))]
    part = _main_with_padding(pd.concat(both, ignore_index=True))
    return _means(part[part["cut"] == 1], ["group", "question", "model", "ranking"])


def distinguished(values: pd.DataFrame, metrics: Iterable[str]) -> pd.DataFrame:
    """How many pairs of methods each metric distinguishes: those whose paired 95 % interval leaves out zero.

    Parameters
    ----------
    values : pandas.DataFrame
        From an evaluation of several methods on the same samples.

    Returns
    -------
    pandas.DataFrame
        ``metric, apart, pairs, share, n``; pairs without an interval are left out.
    """
    rows = []
    for metric in metrics:
        part = values[values["metric"] == metric].dropna(subset="value")
        pairs = list(combinations(dict.fromkeys(part["method"]), 2))
        found = (
            pd.concat([paired_difference(part, a, b) for a, b in pairs]) if pairs else pd.DataFrame(columns=["better"])
        )
        found = found[found["better"] != TOO_FEW]
        apart = int((found["better"] != "neither").sum())
        rows.append({"metric": metric, "apart": apart, "pairs": len(found),
                     "share": apart / len(found) if len(found) else float("nan"),
                     "n": int(found["n"].max()) if len(found) else 0})  # fmt: skip
    return pd.DataFrame(rows)
