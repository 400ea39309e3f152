"""Claims of the paper: their numbers, noted where they are made, and one verdict each by a stated rule.

A chapter notes numbers (`note`) in ``figures/claims.csv``. ``claims.yaml`` says what is claimed and by which rule it is
judged; `judge` puts both together, and `write` makes ``claims.json``, ``claims.md`` and the badge.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy.stats import t as student

from flashtrace_lib import files

REPRODUCED, PARTLY, NOT, UNDECIDED, UNTESTABLE = VERDICTS = (
    "reproduced", "partly reproduced", "not reproduced", "undecided", "not testable here",
)  # fmt: skip
RULES = {
    "above": "the 95 % interval of every number lies above the bound",
    "below": "the 95 % interval of every number lies below the bound",
    "within": "the 95 % interval of every number lies within the bound on both sides of 0",
    "at_least": "every number, which has no interval, is at least the bound",
    "at_most": "every number, which has no interval, is at most the bound",
    "stated": "the verdict follows from what the paper or its authors published, or from the reason given",
}
DECIDES, CHECK, BESIDE = ROLES = ("decides", "check", "beside")
COLUMNS = ("claim", "role", "label", "value", "low", "high", "n", "n_effective", "answers", "models", "figure")
_VALUES = ("value", "difference", "mean", "change", "gain", "rho", "slope", "share")
_KEYS = ("id", "text", "where", "paper", "chapter", "rule", "bound", "verdict", "reason", "note", "beyond", "no_checks")


def note(
    folder: Path, name: str, numbers: pd.DataFrame | Mapping[str, Any], *, answers: str = "own",
    models: str = "reasoner", figure: str = "", role: str = DECIDES,
    label: str | Sequence[str] = ("metric", "cell", "method"),
) -> pd.DataFrame:  # fmt: skip
    """Write the numbers of a claim to ``claims.csv``, in place of those that it had in this role.

    Parameters
    ----------
    folder : Path
        Of the figures.
    name : str
        ``id`` of the claim.
    numbers : DataFrame or dict
        One row a number: its value under ``value``, ``difference``, ``mean``, …, with ``low, high, n`` and
        ``n_effective`` where there are any.
    answers : str
        Whose answers were explained: ``own``, ``forced``, ``unfinished``; empty where none were.
    models : str
        Names of the models, with commas.
    figure : str
        Figure or table that shows the numbers.
    role : {"decides", "check", "beside"}
        The numbers decide the claim; are other metrics or cells of the same question, which have to agree; or are
        printed beside it.
    label : str or sequence of str
        Name of the number, or the columns that name the rows.

    Returns
    -------
    pandas.DataFrame
        The rows that were written.
    """
    if role not in ROLES:
        raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
    frame = pd.DataFrame([numbers]) if isinstance(numbers, Mapping) else numbers
    value = next((column for column in _VALUES if column in frame), None)
    if value is None or frame.empty:
        raise ValueError(f"claim {name}: the numbers need a row and one of the columns {', '.join(_VALUES)}")
    rows = []
    for row in frame.to_dict("records"):
        named = label if isinstance(label, str) else ", ".join(str(row[c]) for c in label if c in row)
        n = row.get("n", np.nan)
        rows.append((name, role, row.get("label", named), row[value], row.get("low"), row.get("high"), n,
                     row.get("n_effective", n), answers, models, figure))  # fmt: skip
    fresh = pd.DataFrame(rows, columns=list(COLUMNS)).astype(
        dict.fromkeys(("value", "low", "high", "n", "n_effective"), float)
    )
    path, old = folder / "claims.csv", noted(folder)
    old = old[(old["claim"] != name) | (old["role"] != role)]
    known = {claim["id"]: i for i, claim in enumerate(claim_list())}
    if name not in known:
        raise ValueError(f"claims.yaml has no claim {name!r}: known are {', '.join(known)}")
    both = pd.concat([old, fresh], ignore_index=True) if len(old) else fresh
    place = both["claim"].map(known).fillna(len(known)) * len(ROLES) + both["role"].map(ROLES.index)
    both = both.iloc[np.argsort(place.to_numpy(), kind="stable")]
    files.write_text(path, both.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
    return fresh.drop(columns=["claim"])


def noted(folder: Path) -> pd.DataFrame:
    """All numbers that chapters have noted."""
    path = folder / "claims.csv"
    if not path.is_file():
        return pd.DataFrame(columns=list(COLUMNS))
    texts = ("claim", "role", "label", "answers", "models", "figure")
    return pd.read_csv(path, dtype=dict.fromkeys(texts, str)).fillna(dict.fromkeys(texts, ""))


def claim_list() -> list[dict[str, Any]]:
    """The claims of ``claims.yaml``; ValueError where one has an unknown key or rule, or an id twice."""
    claims = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text(encoding="utf-8"))
    ids = [claim["id"] for claim in claims]
    for claim in claims:
        unknown = [key for key in claim if key not in _KEYS]
        if unknown or claim.get("rule") not in RULES or ids.count(claim["id"]) > 1:
            raise ValueError(f"claims.yaml, {claim['id']}: unknown key {unknown}, unknown rule, or an id twice")
    return claims


def judge(folder: Path) -> list[dict[str, Any]]:
    """Every claim with its numbers and its verdict, and the p-values of its primary number.

    Returns
    -------
    list of dict
        ``id, text, where, paper, chapter, rule, bound, beyond, verdict, why, value, low, high, n, n_effective, models,
        answers, figure, p, p_holm, p_bh`` and, each a list of rows, ``numbers, checks, beside``. The value is that of
        the first number; ``p_holm`` and ``p_bh`` are corrected over all tests that `tests` counts.
    """
    table = noted(folder)
    judged = [_judged(claim, table[table["claim"] == claim["id"]]) for claim in claim_list()]
    p = tests(judged)
    holm, bh = holm_corrected(p), benjamini_hochberg(p)
    for claim in judged:
        first = next(
            (i for i, number in enumerate(_tested(judged)) if claim["numbers"] and number is claim["numbers"][0]), None
        )
        claim |= {"p": None, "p_holm": None, "p_bh": None} if first is None else {
            "p": _six(p[first]), "p_holm": _six(holm[first]), "p_bh": _six(bh[first])}  # fmt: skip
    return judged


def _judged(claim: dict[str, Any], rows: pd.DataFrame) -> dict[str, Any]:
    parts, bound = {role: _records(rows[rows["role"] == role]) for role in ROLES}, float(claim.get("bound", 0))
    for number in (*parts[DECIDES], *parts[CHECK]):
        number["state"] = state(number, claim["rule"], bound)
    verdict, why = _verdict(claim, parts)
    first = parts[DECIDES][0] if parts[DECIDES] else {}
    return {
        **{key: claim.get(key) for key in ("id", "text", "where", "paper", "chapter", "rule", "note", "no_checks")},
        "bound": bound, "beyond": bool(claim.get("beyond")), "verdict": verdict, "why": why,
        **{key: first.get(key) for key in ("value", "low", "high", "n", "n_effective", "models", "answers", "figure")},
        "numbers": parts[DECIDES], "checks": parts[CHECK], "beside": parts[BESIDE],
    }  # fmt: skip


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    kept = rows.drop(columns=["claim", "role"]).to_dict("records")
    return [{k: None if isinstance(v, float) and np.isnan(v) else v for k, v in row.items()} for row in kept]


def state(number: Mapping[str, Any], rule: str, bound: float) -> str:
    """``holds``, ``fails``, ``open`` (the interval holds the bound) or ``too few`` (there is none)."""
    value, low, high = (number[name] for name in ("value", "low", "high"))
    if rule in ("at_least", "at_most"):
        return "holds" if (value >= bound if rule == "at_least" else value <= bound) else "fails"
    if low is None or high is None:
        return "too few"
    if rule == "within":
        return "holds" if -bound <= low and high <= bound else "fails" if low > bound or high < -bound else "open"
    if rule == "below":
        low, high, bound = -high, -low, -bound
    return "holds" if low > bound else "fails" if high < bound else "open"


def _verdict(claim: Mapping[str, Any], parts: Mapping[str, list[dict[str, Any]]]) -> tuple[str, str]:
    """The verdict, and in words what made it other than plain."""
    if claim["rule"] == "stated":
        return claim["verdict"], claim.get("reason", "")
    states = [number["state"] for number in parts[DECIDES]]
    judged = [found for found in states if found != "too few"]
    if not judged:
        return UNTESTABLE, claim.get("reason", "fewer than six samples" if states else "not measured")
    against = [number["label"] for number in parts[CHECK] if number["state"] == "fails"]
    if set(judged) == {"holds"}:
        if against:
            return PARTLY, f"the opposite holds for {', '.join(against)}"
        return REPRODUCED, ""
    if "holds" in judged:
        others = [n["label"] for n in parts[DECIDES] if n["state"] not in ("holds", "too few")]
        return PARTLY, f"not for {', '.join(others)}"
    if "fails" in judged:
        agree = [number["label"] for number in parts[CHECK] if number["state"] == "holds"]
        return NOT, f"though {', '.join(agree)} {'holds' if len(agree) == 1 else 'hold'}" if agree else ""
    return UNDECIDED, "the intervals hold the bound"


def _tested(judged: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Numbers with an interval that decide a claim against a bound."""
    with_bound = [claim for claim in judged if claim["rule"] in ("above", "below")]
    return [n for claim in with_bound for n in claim["numbers"] if n["low"] is not None and n["high"] is not None]


def tests(judged: list[dict[str, Any]]) -> np.ndarray:
    """Two-sided p-values of the numbers that decide: Student's t, from interval and effective n; shape [tests]."""
    bounds, values = {id(n): claim["bound"] for claim in judged for n in claim["numbers"]}, []
    for number in _tested(judged):
        free = max(int(number["n_effective"]) - 1, 1)
        error = (number["high"] - number["low"]) / 2 / student.ppf(0.975, free)
        away = abs(number["value"] - bounds[id(number)])
        values.append(float(2 * student.sf(away / error, free)) if error > 0 else float(away == 0))
    return np.array(values)


def holm_corrected(p: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values (1979): step down, each times the number of those not smaller; shape of ``p``."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)) if len(p) else p
    out = np.empty(len(p))
    out[order] = np.minimum(stepped, 1)
    return out


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """Benjamini and Hochberg's adjusted p-values (1995), step up; shape of ``p``."""
    order = np.argsort(p, kind="stable")[::-1]
    stepped = np.minimum.accumulate(p[order] * len(p) / np.arange(len(p), 0, -1)) if len(p) else p
    out = np.empty(len(p))
    out[order] = np.minimum(stepped, 1)
    return out


def _six(value: float) -> float:
    return float(f"{value:.6g}")


def counts(judged: list[dict[str, Any]]) -> pd.DataFrame:
    """How many claims of the paper, and how many beyond it, have each verdict."""
    rows = [{"verdict": v, "of the paper": sum(c["verdict"] == v and not c["beyond"] for c in judged),
             "beyond the paper": sum(c["verdict"] == v and c["beyond"] for c in judged)} for v in VERDICTS]  # fmt: skip
    return pd.DataFrame(rows)


def to_json(judged: list[dict[str, Any]]) -> str:
    """The text of ``claims.json``."""
    return json.dumps(judged, ensure_ascii=False, indent=1) + "\n"


def survival(judged: list[dict[str, Any]]) -> pd.DataFrame:
    """How many tests there are, and how many are below 5 % as they are, by Holm's and by Benjamini and Hochberg's."""
    p = tests(judged)
    kinds = {"as it is": p, "Holm": holm_corrected(p), "Benjamini and Hochberg": benjamini_hochberg(p)}
    return pd.DataFrame(
        [{"correction": k, "tests": len(p), "below 5 %": int((v < 0.05).sum())} for k, v in kinds.items()]
    )
