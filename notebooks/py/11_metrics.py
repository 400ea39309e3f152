# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What the metrics measure
#
# > **Question.** How much of a ranking of methods comes from a metric's definition, and what besides the explanation do RISE and
# > MAS respond to?
# >
# > **Answer.** Metrics of evidence and LDS order the methods alike (recovery and LDS: 0.87), while RISE hardly agrees with them
# > (recovery: 0.27) and MAS not at all. Among the methods a good RISE goes with the question among the tokens ranked first
# > (−0.49) and with the evidence there (−0.27), not told apart. MAS depends on its definition, and on how the scores are spread:
# > FlashTrace's lead over IFR is gone once the scores of both are made sharper or flatter, which changes no ranking.
# >
# > **n.** RULER, own right answers of the reasoner: 160 samples for rankings, 30 for LDS, 10 for deletion curves, up to ten
# > methods on each. All correlations are over methods within a sample, averaged over samples; effective n is n.
# >
# > **Figure.** `metric_properties`: what RISE and MAS go with, within samples.
#
# <!-- numbers: 0.87 = metric_agreement.csv[first=recovery,second=lds].rho;
# 0.27 = metric_agreement.csv[first=recovery,second=rise].rho;
# −0.49 = metric_properties.csv[rankings=methods alone,first=question,second=rise].rho;
# −0.27 = metric_properties.csv[rankings=methods alone,first=evidence,second=rise].rho -->
#
# Appendix F of the paper defines recovery, RISE and MAS. Where its text, its formulas and the numbers in its tables do not say
# the same, somebody has to choose. This chapter shows the choices on curves made by hand, then the effect of each on the stored
# scores and deletion curves of other chapters, and last what these metrics go with. Nothing is attributed here.
#
# | work | what is scored | denominator | unit | stands in its place |
# |---|---|---|---|---|
# | RISE (Petsiuk et al., BMVC 2018) | probability of a class, area under its curve | none | pixels | grey or blur |
# | MAS (Walker et al., IJCAI 2024) | probability of a class | $s_0 - s_K$, with its sign | pixels | black or blur |
# | CAGE (Walker & Ewetz, 2025) | $\log p$ of the generation | its absolute value | sentences, one a step | end tokens |
# | FlashTrace (2026) | the same | the same | 20 groups of tokens | the padding token |
#
# (From the public code of each.) On the way from images to texts, tokens scattered through a text took the place of patches, a
# special token that of blur, and the likelihood of hundreds of tokens that of one class.

# %% tags=["parameters"]
profile = "book"

# %%
import numpy as np
import pandas as pd

from flashtrace_book import faithfulness, metric_audit, statistics
from flashtrace_book.ablations import grid, label_of, minus, whose
from flashtrace_book.figures import metric_plots, style, tables
from flashtrace_book.paper_numbers import PAPER
from flashtrace_book.results import CURVE, METRICS
from flashtrace_book.run import start

run = start(profile)
style.use_style()
results = {name: run.results(name) for name in ("ruler", "generalisation", "hotpotqa", "math", "morehopqa", "aider")}
ruler, METHODS = results["ruler"], faithfulness.METHODS
answers = whose(ruler)

# %% [markdown]
# ## Curves made by hand
#
# The response $r_k$ starts at 1 (nothing masked) and should fall early; $d_k$ is the attribution mass that is not yet masked.
#
# $$\text{RISE} = \int r,\qquad \text{MAS} = \int \operatorname{minmax}\big(\mathrm{clip}(r + |r - d|, 0, 1)\big),
# \qquad r + |r - d| = \max(d,\ 2r - d).$$
#
# The formula printed in appendix F.2 compares the response with the *rising* share of masked mass, $|f - (1 - d)|$: a perfectly
# aligned straight line is then charged twice.

# %%
curves = metric_audit.hand_made_curves(run.profile.steps)
by_hand = run.table(metric_audit.hand_made_table(run.profile.steps), "metrics_by_hand", "RISE and MAS of curves made by hand")
by_hand

# %%
fig = metric_plots.hand_made_curves(curves, by_hand.frame)
run.figure(fig, "metrics_by_hand", "RISE and MAS of curves made by hand, under both definitions")

# %% [markdown]
# The best RISE is not 0 but the floor of the grid, $1 / 2K$. And MAS depends on how the scores are spread, not on their order
# alone: the second and the third curve have the same ranking and the same response.
#
# ## As printed, or as published?
#
# As printed, MAS is $\frac 1K \sum_k \big(f_k + |f_k - c_k|\big)$ with $c_k$ the share of the mass that is masked. Each term is at
# least $c_k$, and masking the most important tokens first makes $c_k \geq k / K$, so that MAS is at least $(K + 1) / 2K$. RISE by
# trapezoids is at least $1 / 2K$. The paper's tables hold less than either, so they hold neither formula at twenty steps:

# %%
K = run.profile.steps
printed = {metric: min(v for table in PAPER.values() for (_, _, name), v in table.items() if name == metric) for metric in CURVE}
print(f"MAS as printed is at least {(K + 1) / (2 * K):.3f}; the lowest in the paper's tables is {printed['mas']:.3f}")
print(f"RISE is at least {1 / (2 * K):.3f} with {K} steps; the lowest in the paper's tables is {printed['rise']:.3f}")

# %% [markdown]
# "5 % of the remaining tokens" a step, which appendix F.2 says as well, would leave a third of the input unmasked after twenty
# steps. This book takes $K = 20$ equal groups, the log-probability and the falling mass.
#
# ## Where masking raises the likelihood
#
# The published normalisation is $r_k = \mathrm{clip}\big((s_k - s_K)/|s_0 - s_K|, 0, 1\big)$. If masking everything makes the
# response *more* likely, the numerator is negative and is clipped to 0, and RISE is perfect, whatever the scores are. With the
# denominator's sign kept, such a sample gets the worst value and is *flagged*.

# %%
steps = np.linspace(0, 1, K + 1)
raw = {"likelihood falls": -1 - 8 * steps, "likelihood rises": -9 + 8 * steps, "likelihood stays": 0 * steps - 5}
run.table(metric_audit.denominator_table(raw), caption="RISE of three curves under both denominators")

# %% [markdown]
# Does it happen? The stored curves of every chapter:

# %%
stored = {name: found.records(answers=whose(found)) for name, found in results.items()}
run.table(metric_audit.curve_table(stored), "metrics_curves", "Samples that masking does not harm, and curves on the floor of RISE")

# %% [markdown]
# As long as no stored sample is flagged, neither the denominator nor the treatment of flagged samples changes a number of this
# book.
#
# ## The definition and the order of the methods
#
# RULER, the ten samples with curves of every method, own answers. Under the printed definition the response is a probability, and that of a hundred
# tokens underflows.

# %%
records = ruler.records(METHODS, answers=answers)
together = faithfulness.shared_samples(ruler.frame(CURVE, METHODS, answers=answers))["sample"].unique()
records = records[records["sample"].isin(together)]
defined = metric_audit.definition_table(records)
wide = defined.assign(method=defined["method"].map(label_of)).pivot_table(
    index="method", columns=["metric", "definition"], values="mean", sort=False
)
run.table(defined, "metrics_definitions", "RISE and MAS of every method under two definitions", wide=wide)

# %%
for metric, part in defined.groupby("metric", sort=False):
    order = part.pivot(index="method", columns="definition", values="mean").round(6)
    rho = statistics.spearman(order["log_probability"], order["printed"])["rho"]
    said = f"{rho:+.2f}" if rho == rho else "none, one of them is 0 for all"
    print(f"{metric.upper()}: rank correlation of the two definitions over {len(order)} methods: {said}")

# %% [markdown]
# ## Sharper or flatter scores, same ranking
#
# $A \mapsto A^{1/\tau}$ keeps the order, and with it recovery and RISE; $\tau < 1$ sharpens the scores, $\tau > 1$ flattens them.
# MAS charges $\max(d, 2r - d)$ at every step, which is least where $d = r$. Sharpening makes $d$ fall earlier: it lowers MAS where
# the mass falls more slowly than the response, and raises it where it falls faster. The explanation stays what it is.

# %%
heat = metric_audit.temperature_table(records)
wide = heat.assign(method=heat["method"].map(label_of)).pivot_table(index="method", columns="temperature", values="mas", sort=False)
heat = run.table(heat, "metrics_temperature", "MAS of sharpened and flattened scores", wide=wide)
heat

# %% [markdown]
# At the scores as they are, FlashTrace's MAS is below IFR's; with AUROC it is the one metric on RULER in which it leads
# (`05_ruler`). At every other temperature it is above.
#
# ## Ties
#
# Where many tokens share a score, somebody must say which come first. This book takes the *expectation* over their orders. Scores
# tie mostly in the string match and in spans of sentences; there the order of the text and its opposite differ by less than a hundredth.
#
# The order in which tied tokens are masked matters too, and no curve can take an expectation over it: it is random, and fixed by
# the sample. The first 516 curves were measured earlier first, and keep their values.
#
# ## Curves with fewer passes
#
# A deletion curve costs a forward pass a step. By *bisection* both ends are evaluated, and then the middle of the interval on
# which RISE is least certain, until the bounds of all intervals add up to a tolerance; what lies between is interpolated
# (`evaluate(…, tolerance=0.01)`). The table does that to stored curves of which every step is known.

# %%
known = ruler.records(answers=answers)
cheap = metric_audit.bisection_table(known[known["evaluated"].isna()])
named = cheap.assign(method=cheap["method"].map(lambda name: label_of(name) if name in METHODS else name))
run.table(cheap, caption="Passes by bisection, and what it adds to RISE and MAS (mean and largest)", wide=named, digits=4)

# %% [markdown]
# The bound on RISE is kept. A curve that falls at once needs few passes; one that falls evenly needs nearly all of them, so that
# the saving is less than the logarithm of the steps promises. Most of what bisection adds is shared by FlashTrace and IFR.
#
# ## What do RISE and MAS go with?
#
# Now the main question. Four properties of every stored ranking are measured on its top tenth: how much of the **question**,
# which stands behind the haystack, is in it; how much of the **evidence** (recovery); into how many **pieces** it falls; and its
# **sharpness**, the share of the mass on it. Each is correlated with RISE and MAS over the methods within a sample, and the
# correlations are averaged over samples. Below 0: the more of it, the better (lower) the metric.
#
# *Predict first.* With which of the four does a good RISE go most?
#
# <details><summary>Answer</summary>
#
# Among the methods in the mean with the question, though its correlation and that of the evidence are not told apart. A prompt without
# its question destroys any answer, so that a ranking that masks it early gains before it has found anything. A good MAS does not go with
# the evidence at all.
#
# </details>

# %%
looks = metric_audit.ranking_properties(records)
kinds = {"all rankings": looks, "methods alone": looks[~looks["method"].isin(style.CONTROLS)]}
parts = [metric_audit.within_samples(part, metric_audit.PROPERTIES, CURVE).assign(rankings=kind) for kind, part in kinds.items()]
wide = tables.interval_grid(pd.concat(parts), ["rankings", "first"], "second", "rho", "+.2f")
related = run.table(pd.concat(parts, ignore_index=True), "metric_properties", "What RISE and MAS go with, within samples", wide=wide)
related

# %%
names = {"question": "question in it", "evidence": "evidence in it", "pieces": "pieces", "sharpness": "mass on it"}
fig = metric_plots.property_dots(related.frame, names, title="What of the top tenth RISE and MAS go with (below 0: the more, the better)")
run.figure(fig, "metric_properties", "Correlation of RISE and MAS with properties of the ranking", stamp="SmolLM2-135M + adapter, own answers")

# %% [markdown]
# Over all rankings evidence counts as much as the question: *position* puts the question first and has the worst RISE of these, since
# it knows nothing else. Among the methods, which all know something of the evidence, the question counts more in the mean.
#
# ## The same knowledge in another shape
#
# Random tokens and random *sentences* know nothing alike, and FlashTrace over sentences is FlashTrace with its scores shared
# within them. Whatever a random ranking gains or loses by its shape is the shape's.

# %%
shapes = ruler.frame(METRICS, ("flashtrace", "sentence", "random", "random_sentences"), answers=answers)
pairs = [minus(shapes[shapes["method"].isin(pair)], pair[0]) for pair in (("random", "random_sentences"), ("flashtrace", "sentence"))]
shape = pd.concat(pairs, ignore_index=True)
shown = shape[shape["metric"].isin(["recovery", "r_precision_haystack", *CURVE])]
run.table(shape, "metrics_shape", "In sentences minus scattered, on the same samples", wide=grid(shown))

# %% [markdown]
# In sentences FlashTrace recovers more, and its RISE is worse. So is the RISE of the ranking that knows nothing, by more. A
# scattered mask leaves no sentence whole, a block leaves all others as they were.
#
# ## Do metrics agree?
#
# The rank correlation of every two metrics over the methods within a sample, turned so that 1 is the same order from best to
# worst; methods alone, without controls.

# %%
methods = [name for name in METHODS if name not in style.CONTROLS]
agree = metric_audit.metric_agreement(faithfulness.shared_samples(ruler.frame(METRICS, methods, answers=answers)))
agree = run.table(agree, "metric_agreement", "Agreement of metrics over methods, within samples",
                  wide=tables.interval_grid(agree[agree["second"].isin(CURVE)], "first", "second", "rho", "+.2f"))  # fmt: skip
agree

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# The paper defines each metric once, reports RISE and MAS to three digits and shows no effect of a definition, a shape or a
# spread. Its printed formulas cannot give the numbers in its tables.
#
# Here five ranking metrics and LDS, which knows no evidence and ablates sentences at random, put the methods into nearly the same
# order. RISE is another matter. It goes with the evidence and, no less, with masking the question early; and a random ranking
# gets a worse RISE by its shape alone, by three quarters of what parts random tokens from FlashTrace (`05_ruler`). MAS adds how
# the scores are spread: sharper methods have a worse MAS here, whatever they rank first. So a difference in MAS alone is not
# called a better explanation in this book, and RISE stands beside metrics that know the evidence.
#
# The correlations are of eight methods and two controls, some of them close relatives, on ten prompts of one model. They say what the metrics go
# with, not what causes them.
#
# > **What a reader can do.** Compare methods at the same shape: tokens with tokens, sentences with sentences, and a random
# > baseline of the same shape beside them. Say how much of the question a ranking masks early. Read a metric that knows the
# > evidence, or LDS, beside RISE, and MAS only at more than one temperature.
