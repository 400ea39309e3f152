"""The claims of the paper, from its abstract to its appendix: what is claimed, what is measured, which rule decides."""

from __future__ import annotations

import math

from flashtrace_lib.metrics import HIGHER_IS_BETTER

from ..figures.style import method_style
from ..paper_numbers import NIAH_CELLS, RULER_CELLS, VT_CELLS, paper_value
from ..samples import ALL
from . import numbers, rules
from .claim import Claim
from .efficiency_numbers import BEYOND, EFFICIENCY
from .in_the_paper import IN_THE_PAPER
from .numbers import BASELINES


def _ahead(metric: str, cells: tuple[str, ...] = RULER_CELLS, methods: tuple[str, ...] = BASELINES) -> str:
    """In how many cells of the paper's Table 1 FlashTrace is ahead of these methods, or level with them."""
    sign = 1 if HIGHER_IS_BETTER[metric] else -1
    ahead = [
        all(sign * paper_value(1, "flashtrace", c, metric) >= sign * paper_value(1, m, c, metric) for m in methods)
        for c in cells
    ]
    return f"{sum(ahead)} of {len(ahead)} cells"


PILOT = (
    Claim("mass_grows", "The share of the mass on the reasoning grows with its length", "3.2, Fig. 1a",
          "“grows proportionally”", "01_pilot_study", rules.at_least(0.9, "the rank correlation"), numbers.trend),
    Claim("mass_levels", "The reasoning takes over 90 % of the mass, 80 % when it is short", "Fig. 1a", "80 % → > 90 %",
          "01_pilot_study", rules.untestable("the paper gives no lengths for its two shares")),
    Claim("recovery_falls", "Reasoning makes standard methods recover less of the evidence", "3.2, Fig. 1b",
          "26 % → < 10 %", "01_pilot_study", rules.below_zero("the paired change"),
          lambda e: [e.difference(f"recovery, {method_style(m).label}", "fig1b_change", method=m, metric="recovery",
                                  paper=-0.16 if m == "perturbation" else math.nan)
                     for m in ("perturbation", "ifr", "attnlrp")]),
)  # fmt: skip

MAIN = (
    Claim("ruler_recovery", "FlashTrace recovers more evidence than IFR, on needles and on chains", "5.1, Table 1",
          _ahead("recovery", NIAH_CELLS + VT_CELLS, ("ifr",)), "05_ruler",
          rules.above_zero(), numbers.groups("recovery")),
    Claim("ruler_recovery_all", "FlashTrace recovers more evidence than every baseline", "5.1, Table 1",
          _ahead("recovery"), "05_ruler", rules.above_zero(), numbers.against("table1_ruler", ALL, ("recovery",))),
    Claim("chains_ratio", "On chains FlashTrace recovers three times what IFR does, or more", "Table 1", "3.0 to 5.1 ×",
          "05_ruler", rules.at_least_the_papers("the ratio"), numbers.chains_ratio),
    Claim("ruler_rise", "RISE of FlashTrace is below that of every baseline on RULER", "5.1, Table 1",
          _ahead("rise"), "05_ruler", rules.below_zero(), numbers.against("table1_ruler", ALL, ("rise",))),
    Claim("ruler_mas", "MAS of FlashTrace is below that of every baseline on RULER", "5.1, Table 1", _ahead("mas"),
          "05_ruler", rules.below_zero(), numbers.against("table1_ruler", ALL, ("mas",))),
    Claim("hotpotqa_margin", "FlashTrace is below IFR on HotpotQA, where the margin is most pronounced", "5.1, Table 1",
          "RISE 0.033 / 0.074", "05_ruler", rules.below_zero(),
          numbers.paired("ruler_paired", ("rise", "mas"), ("hotpotqa",))),
    Claim("math", "FlashTrace has the lowest RISE and MAS on its row MATH (problems of GSM8K)", "5.1, Table 2",
          "0.348, 0.446", "06_math", rules.below_zero(), numbers.against("table2_math", "gsm8k", ("rise", "mas"))),
    Claim("morehopqa", "FlashTrace has the lowest RISE and MAS on MoreHopQA", "5.1, Table 2", "0.128, 0.205",
          "07_morehopqa", rules.below_zero(), numbers.against("table2_morehopqa", "morehopqa", ("rise", "mas"))),
    Claim("length_level", "MAS of FlashTrace is stable across lengths of the reasoning", "5.1, Fig. 5", "–", "06_math",
          rules.level(), numbers.series("fig5_by_length", "length", "|T| = ", metric="mas", method="flashtrace")),
    Claim("length_ahead", "FlashTrace has the lowest MAS at every length of the reasoning", "5.1, Fig. 5", "–",
          "06_math", rules.at_least(0, "the margin over the best baseline"), numbers.bins),
    Claim("rollout_matched", "FlashTrace matches the exhaustive rollout", "5.2, Table 3", "RISE +0.012, MAS +0.012",
          "07_morehopqa", rules.at_most_the_papers("the difference"), numbers.rollout,
          note="to match is to lose no more than the paper's FlashTrace does"),
    Claim("rollout_time", "FlashTrace saves most of the rollout's time", "Table 3", "93.6 %", "07_morehopqa",
          rules.at_least_the_papers("the share of time saved"), numbers.rollout_time),
    Claim("aider", "On generated code FlashTrace is below IFR on the last line and on all tokens", "5.2, Table 4",
          "0.013 / 0.71", "08_aider", rules.below_zero(),
          numbers.against("table4_aider", "exercism", ("rise", "mas"), ("ifr_last_line", "ifr"))),
    Claim("second_model", "The gains hold for a second model", "5.2, Table 5", "RISE 0.171 / 0.206",
          "09_generalisation", rules.below_zero(), numbers.all_rows("table5_paired", ("rise", "mas")),
          note="the paper's is of another family; where both models are the embedded one's, this is none"),
)  # fmt: skip

RECURSION = (
    Claim("hop0_on_t", "Hop 0 puts more mass on the reasoning than on the input", "4.3, Fig. 3", "–", "10_ablations",
          rules.above_zero("mass on T minus mass on I"), numbers.mass_at_first),
    Claim("hop1_leaves_t", "From hop 0 to hop 1 the mass on the reasoning decreases", "H, Fig. 7", "–", "10_ablations",
          rules.below_zero("the paired change"), numbers.mass("reasoning")),
    Claim("hop1_to_input", "From hop 0 to hop 1 mass shifts to the input", "H, Fig. 7", "–", "10_ablations",
          rules.above_zero("the paired change"), numbers.mass("prompt")),
    Claim("hop1_earlier", "Within the reasoning the mass shifts to earlier tokens", "H", "–", "10_ablations",
          rules.below_zero("the paired change of the mean place in T"), numbers.mass("place in T")),
    Claim("one_hop", "A single recursive hop improves faithfulness", "abstract, 5", "–", "03_recursion",
          rules.above_zero("the paired gain"), numbers.gain),
    Claim("one_hop_ruler", "One hop lowers RISE and MAS on RULER", "abstract, 5", "–", "10_ablations",
          rules.below_zero("K = 1 minus K = 0"), numbers.paired("table7_ruler", ("rise", "mas"), (ALL,))),
    Claim("hops_metrics", "One hop lowers RISE and MAS on MoreHopQA", "H, Table 7", "+0.001, −0.004", "10_ablations",
          rules.below_zero("K = 1 minus K = 0"),
          numbers.against("table7_hops", "morehopqa", ("rise", "mas"), ("flashtrace_k0",))),
    Claim("hops_stable", "Further hops change little", "H, Table 7", "RISE 0.128 to 0.133", "10_ablations",
          rules.within(what="K = 1 minus more hops"),
          numbers.against("table7_hops", "morehopqa", ("rise", "mas"), ("flashtrace_k2", "flashtrace_k3"))),
)  # fmt: skip

APPENDIX = (
    Claim("unfiltered", "The lead over IFR does not need the filter of correct answers", "K.1, Table 8",
          "0.036 / 0.059", "10_ablations", rules.below_zero(),
          numbers.against("table8_unfiltered", ALL, ("rise", "mas"), ("ifr",)),
          note="all lengths together"),
    Claim("longer", "RISE of FlashTrace falls as the context grows", "K.2, Table 8", "0.036 → 0.025", "10_ablations",
          rules.falling(), numbers.series("table8_unfiltered", "cell", method="flashtrace", metric="rise")),
    Claim("last_token", "The last token alone is a worse target, on HotpotQA", "M.1, Table 10", "RISE 0.033 / 0.214",
          "10_ablations", rules.below_zero(),
          numbers.against("table10_last_token", "hotpotqa", ("rise", "mas"), ("last_token",))),
    Claim("last_token_ruler", "The last token alone is a worse target, on all cells of Table 1", "M.1", "–", "05_ruler",
          rules.below_zero(), numbers.against("table1_ruler", ALL, ("rise", "mas"), ("last_token",))),
    Claim("mean_pooling", "Averaging the rows of single tokens recovers fewer evidence tokens", "M.1", "see Table 1",
          "05_ruler", rules.above_zero(), numbers.against("table1_ruler", ALL, ("recovery",), ("mean_pooling",))),
    Claim("sentences", "Spans of sentences are at least as faithful as spans of tokens", "M.2", "not measured",
          "10_ablations", rules.at_most(0, "sentences minus tokens"),
          numbers.all_rows("appendix_m_paired", ("rise", "mas"), method="sentence")),
    Claim("failures", "Diffuse evidence and structural tokens are where it fails", "N", "not measured", "10_ablations",
          rules.untestable("the paper describes them and defines no measurement")),
)  # fmt: skip

_LEAD = rules.above_zero("the lead (RISE and MAS turned round: above 0 is better)")
CONTROLS = (
    Claim("r_precision", "The lead in recovery does not hang on the cut at a tenth of the input", BEYOND, "–",
          "05_ruler", rules.above_zero(), numbers.groups("r_precision")),
    Claim("chance_ruler", "FlashTrace beats a ranking by lot on RULER", BEYOND, "–", "05_ruler",
          _LEAD, numbers.chance("ruler_against_random", ("recovery", "rise", "mas"))),
    Claim("chance_math", "FlashTrace beats a ranking by lot on mathematics", BEYOND, "–", "06_math",
          _LEAD, numbers.chance("math_against_random", ("rise", "mas"))),
    Claim("chance_morehopqa", "FlashTrace beats a ranking by lot on MoreHopQA", BEYOND, "–", "07_morehopqa",
          _LEAD, numbers.chance("morehopqa_against_random", ("recovery", "rise", "mas"))),
    Claim("choices", "No other reading of what the paper leaves open recovers more evidence than its own", BEYOND, "–",
          "12_open_questions", rules.at_most(0, "the other reading minus the paper's"), numbers.choices),
    Claim("best", "The setting that did best on half of the samples beats the paper's on the other half", BEYOND, "–",
          "12_open_questions", rules.above_zero(), numbers.paired("questions_best", ("recovery",))),
    Claim("causal", "Masking the sentence ranked first changes more answers than one drawn by lot", BEYOND, "–",
          "12_open_questions", rules.above_zero(), numbers.causal),
)  # fmt: skip

CLAIMS: tuple[Claim, ...] = (*EFFICIENCY, *PILOT, *MAIN, *RECURSION, *APPENDIX, *CONTROLS, *IN_THE_PAPER)
