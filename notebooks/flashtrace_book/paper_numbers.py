"""The numbers printed in the paper, transcribed from its source; fractions, seconds and GiB.

The paper's "MATH" rows are GSM8K items (its released traces show it), and its "recovery rate (%)" is a fraction.
"""

from __future__ import annotations

import math

NIAH_CELLS = ("mq_q2", "mq_q4", "mq_q8", "mv_v2", "mv_v4", "mv_v8")
VT_CELLS = ("h2_c3", "h4_c1", "h6_c1", "h10_c1")
RULER_CELLS = (*NIAH_CELLS, *VT_CELLS, "hotpotqa")

# Table 1: one row a method, columns RULER_CELLS.
_TABLE_1 = {
    "recovery": """
        perturbation 0.391 0.090 0.010 0.255 0.161 0.080 0.060 0.027 0.051 0.011 0.329
        reagent      0.244 0.085 0.005 0.180 0.156 0.074 0.045 0.023 0.050 0.014 0.222
        clp          0.399 0.086 0.008 0.207 0.146 0.073 0.130 0.038 0.063 0.020 0.335
        ifr          0.471 0.328 0.012 0.575 0.452 0.179 0.136 0.253 0.202 0.155 0.268
        attnlrp      0.215 0.204 0.076 0.254 0.243 0.159 0.212 0.229 0.202 0.173 0.189
        flashtrace   0.483 0.413 0.075 0.556 0.516 0.204 0.698 0.755 0.659 0.514 0.384""",
    "rise": """
        perturbation 0.095 0.239 0.499 0.134 0.186 0.351 0.384 0.354 0.458 0.466 0.133
        reagent      0.117 0.260 0.487 0.188 0.211 0.369 0.438 0.397 0.486 0.495 0.145
        clp          0.098 0.253 0.510 0.156 0.217 0.393 0.374 0.328 0.423 0.451 0.101
        ifr          0.075 0.115 0.371 0.069 0.073 0.205 0.161 0.102 0.125 0.153 0.074
        attnlrp      0.196 0.263 0.377 0.140 0.193 0.285 0.319 0.324 0.338 0.357 0.155
        flashtrace   0.068 0.113 0.352 0.069 0.070 0.183 0.132 0.110 0.122 0.143 0.033""",
    "mas": """
        perturbation 0.144 0.327 0.709 0.187 0.244 0.458 0.551 0.517 0.684 0.701 0.220
        reagent      0.197 0.357 0.694 0.276 0.291 0.494 0.668 0.603 0.745 0.741 0.235
        clp          0.166 0.320 0.657 0.216 0.280 0.511 0.490 0.420 0.565 0.597 0.190
        ifr          0.140 0.177 0.460 0.134 0.142 0.275 0.231 0.148 0.173 0.201 0.166
        attnlrp      0.326 0.451 0.602 0.229 0.325 0.475 0.521 0.548 0.572 0.592 0.249
        flashtrace   0.163 0.194 0.427 0.157 0.160 0.248 0.187 0.166 0.179 0.198 0.128""",
}

# Other tables: "cell method" and the values of the metrics named first.
_ROWS = {
    2: (("rise", "mas"), """
        math perturbation 0.380 0.520
        math reagent      0.388 0.536
        math ifr          0.354 0.490
        math attnlrp      0.368 0.524
        math clp          0.362 0.491
        math flashtrace   0.348 0.446
        morehopqa perturbation 0.249 0.347
        morehopqa reagent      0.265 0.368
        morehopqa ifr          0.146 0.228
        morehopqa attnlrp      0.286 0.458
        morehopqa clp          0.249 0.348
        morehopqa flashtrace   0.128 0.205"""),
    3: (("seconds", "rise", "mas"), """
        morehopqa rollout    11.2 0.116 0.193
        morehopqa flashtrace 0.72 0.128 0.205"""),
    4: (("rise", "mas"), """
        aider ifr_last_line 0.710 0.782
        aider ifr           0.707 0.773
        aider flashtrace    0.013 0.173"""),
    5: (("rise", "mas"), """
        ruler ifr        0.206 0.298
        ruler attnlrp    0.398 0.683
        ruler flashtrace 0.171 0.231
        math ifr         0.435 0.603
        math attnlrp     0.473 0.686
        math flashtrace  0.391 0.488"""),
    7: (("rise", "mas"), """
        morehopqa flashtrace_k0 0.127 0.209
        morehopqa flashtrace_k1 0.128 0.205
        morehopqa flashtrace_k2 0.130 0.206
        morehopqa flashtrace_k3 0.133 0.209"""),
    8: (("rise", "mas", "seconds"), """
        hotpotqa_2048 attnlrp    0.383 0.544 1.19
        hotpotqa_2048 ifr        0.059 0.139 5.10
        hotpotqa_2048 flashtrace 0.036 0.118 3.58
        hotpotqa_4096 attnlrp    0.232 0.291 2.63
        hotpotqa_4096 ifr        0.040 0.115 12.71
        hotpotqa_4096 flashtrace 0.025 0.106 9.12"""),
    9: (("seconds", "seconds_sd", "peak_gib"), """
        qwen3_4b_2048 cached    1.98 0.27 35.43
        qwen3_4b_2048 recompute 2.81 0.06 13.43"""),
    10: (("recovery", "rise", "mas"), """
        hotpotqa flashtrace 0.384 0.033 0.128
        hotpotqa last_token 0.161 0.214 0.354"""),
}  # fmt: skip

# Numbers of the running text: what they are, and where they stand.
TEXT = {
    "speedup_5k": (130.0, "abstract, section 5.1: times faster than IFR at a target of 5k tokens, at least"),
    "flashtrace_seconds_5k": (20.0, "section 5.1: seconds at a target of 5k tokens, at most"),
    "ifr_seconds_5k": (38 * 60.0, "section 5.1: seconds at a target of 5k tokens, at least"),
    "mass_on_reasoning_short": (0.80, "Fig. 1a: share of mass on T, before extended reasoning"),
    "mass_on_reasoning_long": (0.90, "Fig. 1a: share of mass on T with extended reasoning, at least"),
    "recovery_direct": (0.26, "Fig. 1b: recovery rate when the model answers directly"),
    "recovery_cot": (0.10, "Fig. 1b: recovery rate when it reasons first, at most"),
    "rollout_time_saved": (0.936, "Table 3: share of the rollout's time that FlashTrace saves"),
    "rollout_rise_loss": (0.102, "Table 3: relative increase of RISE over the rollout"),
    "rollout_mas_loss": (0.064, "Table 3: relative increase of MAS over the rollout"),
    "memory_saved": (0.62, "appendix L: share of peak memory that recomputing attention saves"),
    "latency_added": (0.42, "appendix L: relative increase of latency when attention is recomputed"),
    "samples_a_cell": (100.0, "appendix E.4: samples a dataset"),
    "samples_hotpotqa": (66.0, "appendix E.4: samples of long-context HotpotQA"),
}


def _parsed() -> dict[int, dict[tuple[str, str, str], float]]:
    """Table -> (method, cell, metric) -> value."""
    tables: dict[int, dict[tuple[str, str, str], float]] = {1: {}}
    for metric, block in _TABLE_1.items():
        for method, *values in map(str.split, block.strip().splitlines()):
            cells = zip(RULER_CELLS, values, strict=True)
            tables[1] |= {(method, cell, metric): float(value) for cell, value in cells}
    for number, (metrics, block) in _ROWS.items():
        tables[number] = {
            (method, cell, metric): float(value)
            for cell, method, *values in map(str.split, block.strip().splitlines())
            for metric, value in zip(metrics, values, strict=True)
        }
    return tables


PAPER = _parsed()


def paper_value(table: int, method: str, cell: str, metric: str) -> float:
    """What the paper prints; NaN where its table has no such entry.

    Parameters
    ----------
    table : int
        1–5, 7–10 (Table 6 holds no measurements).
    method, cell, metric : str
        Keys of the book's tables: ``"flashtrace"``, ``"h4_c1"``, ``"recovery"``.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the paper has no such table of numbers.
    """
    if table not in PAPER:
        raise ValueError(f"the paper has no numbers in table {table!r}: choose one of {sorted(PAPER)}")
    return PAPER[table].get((method, cell, metric), math.nan)


def text_value(name: str) -> float:
    """A number of the paper's running text; names and places are in ``TEXT``."""
    if name not in TEXT:
        raise ValueError(f"no number {name!r} transcribed from the text: choose one of {sorted(TEXT)}")
    return TEXT[name][0]
