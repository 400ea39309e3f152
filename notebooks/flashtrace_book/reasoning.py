"""What the chapters on mathematics, questions over several hops and code share, from stored results (06 to 08)."""

import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from flashtrace_lib.attribution import Attribution
from flashtrace_lib.evaluation import summarise
from flashtrace_lib.evaluation.results_table import clusters
from flashtrace_lib.metrics.intervals import MIN_SAMPLES
from flashtrace_lib.sample import Sample

from .figures.style import method_style
from .figures.tables import comparison_table
from .results import CURVE, METHOD, Results
from .statistics import line_slope, mean_row, paired_difference

BASELINES = ("perturbation", "reagent", "ifr", "attnlrp", "clp")  # of the paper's Table 2
CONTROLS = ("string_match", "position", "random")
TABLE2 = ("flashtrace", "flashtrace_best", *BASELINES, *CONTROLS)
TABLE4 = {"code_flashtrace": "flashtrace", "code_ifr": "ifr", "line_ifr": "ifr_last_line"}  # label -> in the paper
PAPER_LOSS = {"rise": 0.102, "mas": 0.064}  # FlashTrace's to the rollout, as Table 3 prints it
_ENTRY = ("model", "answers", "method", "cell", "metric")


def counts(results: Results, curves: pd.DataFrame) -> pd.DataFrame:
    """`Results.counts`, and how many samples of each cell have deletion curves, and how many of these are right."""
    table = results.counts()
    right = curves.drop_duplicates(["cell", "sample"]).groupby("cell")["right"].agg(["size", "sum"]).astype(int)
    right = right.reindex(table["cell"], fill_value=0).set_index(table.index)
    return table.assign(**{"with curves": right["size"], "of these right": right["sum"]})


def means_table(frame: pd.DataFrame, paper: int, cells: dict[str, str] | None = None) -> pd.DataFrame:
    """Means with intervals beside those of one of the paper's tables (`tables.comparison_table`)."""
    return comparison_table(summarise(frame, _ENTRY), paper, cells=cells)


def code_table(frame: pd.DataFrame) -> pd.DataFrame:
    """`means_table` beside Table 4, whose methods have other names."""
    table = means_table(frame.replace({"method": TABLE4}), 4, {"exercism": "aider"})
    return table.replace({"method": {name: label for label, name in TABLE4.items()}})


def leads(frame: pd.DataFrame, first: str, others: Iterable[str]) -> pd.DataFrame:
    """``first`` minus each of the others that the frame has, on the same samples; ``label`` names the row."""
    known = [other for other in others if other in set(frame["method"])]
    parts = [paired_difference(frame, first, other, ("cell", "metric")).assign(other=other) for other in known]
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["cell", "metric", "other"])
    order = list(dict.fromkeys(frame["metric"]))
    rows = rows.sort_values("metric", key=lambda names: names.map(order.index), kind="stable", ignore_index=True)
    against = [method_style(other).label for other in rows["other"]]
    return rows.assign(
        label=rows["metric"].str.upper() + " on " + rows["cell"] + " against " + np.array(against, object)
    )


def example(results: Results, method: str, **where: Any) -> tuple[Sample, Attribution]:
    """The shortest sample that was answered rightly, or of all where none was, and what a method said of it."""
    samples, known = results.samples(**where), results.part(METHOD).query("method == @method")["sample_key"]
    samples = samples[samples["sample_key"].isin(known)].sort_values(["right", "n_tokens"], ascending=[False, True])
    found, attributions = results.attributions(method, sample_key=samples["sample_key"].iloc[0])
    return found[0], attributions[0]


def text_from_input(sample: Sample) -> str:
    """What the model read from the first token of I on, marks of the chat template included, and what it wrote."""
    return "".join(sample.tokens[sample.segments.prompt[0] :])


def length_bins(frame: pd.DataFrame, bins: int) -> pd.DataFrame:
    """The frame with the bin of each sample by the length of its reasoning: ``length`` (median, tokens).

    Bins are quantiles, fewer where many samples are equally long.
    """
    lengths = frame.drop_duplicates("sample").set_index("sample")["n_reasoning"].astype(int)
    bin_of = pd.qcut(lengths, min(bins, lengths.nunique()), labels=False, duplicates="drop")
    return frame.assign(length=frame["sample"].map(bin_of).map(lengths.groupby(bin_of).median()))


def by_length(frame: pd.DataFrame) -> pd.DataFrame:
    """Means of every metric in the bins of `length_bins` (Fig. 5): ``method, metric, length, mean, low, high, n``."""
    table = summarise(frame, ("method", "metric", "length"))
    return table.sort_values(["metric", "method", "length"], ignore_index=True)


def lead_by_length(frame: pd.DataFrame, others: Iterable[str], metric: str = "mas") -> pd.DataFrame:
    """FlashTrace minus the other method with the lowest mean of each bin of `length_bins`, on the same samples."""
    rows = []
    for length, part in frame[frame["metric"] == metric].groupby("length"):
        best = str(part[part["method"].isin(list(others))].groupby("method")["value"].mean().idxmin())
        row = paired_difference(part, "flashtrace", best).iloc[0].to_dict()
        label = f"{metric.upper()} around {length:.0f} tokens, against {method_style(best).label}"
        rows.append({"length": length, "best other": best, **row, "label": label})
    return pd.DataFrame(rows)


def length_slopes(frame: pd.DataFrame, per: int = 100) -> pd.DataFrame:
    """Change of every metric with each ``per`` further tokens of reasoning: one slope, a level for each cell.

    Two data sets differ in more than their length, and so the level of each is its own.

    Returns
    -------
    pandas.DataFrame
        ``metric, method, slope, low, high, n``, with the 95 % t interval that the residuals give; samples of one record
        (`results_table.clusters`) are averaged first, so that n counts independent points.
    """
    rows = []
    for (metric, method), part in frame.groupby(["metric", "method"], sort=False):
        points = part.groupby([part["cell"], clusters(part)], sort=False)[["n_reasoning", "value"]].mean()
        x, y = ((points - points.groupby(level=0).transform("mean"))[name] for name in ("n_reasoning", "value"))
        line = line_slope(x / per, y)
        n, free = line.pop("points"), len(points) - points.index.get_level_values(0).nunique() - 1
        # `line_slope` counts one level: as many as there are cells leave fewer degrees of freedom.
        enough = n >= MIN_SAMPLES and free > 0
        wider = stdtrit(free, 0.975) / stdtrit(n - 2, 0.975) * math.sqrt((n - 2) / free) if enough else math.nan
        slope, half = line["slope"], (line["high"] - line["slope"]) * wider
        interval = {"low": slope - half, "high": slope + half}
        rows.append({"metric": metric, "method": method, "slope": slope, **interval, "n": n})
    return pd.DataFrame(rows)


def question_share(results: Results, methods: Iterable[str] = TABLE2, **where: Any) -> pd.DataFrame:
    """Share of each method's mass on I that lies on the question (``metadata["question_start"]``), by cell.

    Returns
    -------
    pandas.DataFrame
        ``cell, method, mass, low, high, n, n_effective`` and ``tokens``, the question's share of I's tokens, which is
        what a random ranking gives it. Samples that a method gives no mass are left out.
    """
    starts = {
        row["sample_key"]: json.loads(row["metadata"])["question_start"] - row["prompt"][0]
        for row in results.samples(**where).to_dict("records")
    }
    rows = []
    for record in results.records(methods, **where).to_dict("records"):
        scores, start = record["scores"], int(starts[record["sample_key"]])
        if isinstance(scores, np.ndarray) and (scores := scores.clip(min=0)).any():  # of random draws none are stored
            about = {name: record[name] for name in ("method", "cell", "sample")}
            rows.append({**about, "share": scores[start:].sum() / scores.sum(), "part": 1 - start / len(scores)})
    frame = pd.DataFrame(rows, columns=["method", "cell", "sample", "share", "part"])
    groups = frame.groupby(["method", "cell"], sort=False)
    table = pd.DataFrame([
        {"cell": cell, "method": method, **mean_row(part["share"], "mass", clusters=clusters(part)),
         "tokens": part["part"].mean()}
        for (method, cell), part in groups
    ])  # fmt: skip
    return table.sort_values("cell", kind="stable", ignore_index=True)


def rollout_frame(results: Results, methods: Iterable[str], **where: Any) -> pd.DataFrame:
    """RISE, MAS and seconds on the samples whose curve the rollout has (Table 3), as `summarise` takes them.

    ``seconds`` are medians of runs one after the other; ``time saved`` is FlashTrace's share of the rollout's time.
    """
    timed = results.part("rollout_cost")
    timed = timed.assign(value=[float(np.median(runs)) for runs in timed["run_seconds"]])
    wide = timed.pivot(index="sample", columns="method", values="value")
    saved = (1 - wide["flashtrace"] / wide["rollout"]).rename("value").reset_index()
    times = [timed[["sample", "method", "value"]].assign(metric="seconds"),
             saved.assign(method="flashtrace", metric="time saved")]  # fmt: skip
    curves = results.frame(CURVE, methods, **where)
    curves = curves[curves["sample"].isin(curves.loc[curves["method"] == "rollout", "sample"])]
    about = curves[["sample", "model", "answers", "cell", "cluster"]].drop_duplicates()
    times = pd.concat(times, ignore_index=True).merge(about, on="sample").assign(flagged=False)
    return pd.concat([curves, times], ignore_index=True)


def rollout_loss(frame: pd.DataFrame) -> pd.DataFrame:
    """FlashTrace minus the rollout with the loss that the paper prints, sample by sample: below 0, it loses less."""
    rows = []
    for metric, loss in PAPER_LOSS.items():
        part = frame[(frame["metric"] == metric) & frame["method"].isin(["rollout", "flashtrace"])]
        wide = part.pivot(index="sample", columns="method", values="value").dropna()
        if len(wide):
            shared = clusters(part).groupby(part["sample"]).first()[wide.index]
            row = mean_row(wide["flashtrace"] - (1 + loss) * wide["rollout"], "difference", clusters=shared)
            label = f"{metric.upper()} minus {1 + loss:.3f} times the rollout's"
            rows.append({"metric": metric, **row, "label": label})
    return pd.DataFrame(rows)
