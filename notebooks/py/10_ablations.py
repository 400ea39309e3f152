# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Ablations: hops, context, target, and failures
#
# > **Question.** Which parts of FlashTrace matter, do longer contexts or wrong answers change that, and when does it fail?
# >
# > **Answer.** The first hop recovers 0.057 more of the evidence than none; further ones add less, and the second lowers RISE and MAS a
# > little, which of the third is not shown. The last token alone recovers 0.485 less, as the paper says, but averaging single tokens
# > recovers 0.063 *more* than the sum, which it does not say. Where least of the reachable evidence is found, the question takes 0.224
# > of the top tenth of the input, nearly twice as much as elsewhere, and is nearly twice as long. On eight real questions of 2,048
# > tokens, right or wrong, FlashTrace's RISE is a little below IFR's.
# >
# > **n.** RULER: 160 samples of the reasoner, 80 for depth and most targets, 10 for deletion curves. MoreHopQA: 15 answers of
# > qwen, 10 with curves. HotpotQA: 8 answers of qwen at each length. All are the models' own.
# >
# > **Figure.** `appendix_m_ablations`: every change beside FlashTrace with one hop.
#
# <!-- numbers: 0.057 = hops_ruler.csv[method=flashtrace_k1,metric=recovery].difference;
# 0.485 = appendix_m_ablations.csv[method=last_token,metric=recovery].difference;
# 0.063 = appendix_m_ablations.csv[method=mean_pooling,metric=recovery].difference;
# 0.224 = appendix_n_places.csv[group=worst quarter,kind=question].places -->
#
# Appendices H, K, M and N of the paper: Tables 7, 8 and 10, Figure 7. Metrics are defined in `05_ruler`. Recovery and R-precision
# (evidence found) are better higher. RISE, the area under the deletion curve of the whole response, and MAS, RISE with the
# misalignment of the scores, are better lower. All answers here are the models' own.

# %% tags=["parameters"]
profile = "book"

# %%
import pandas as pd

from flashtrace_book.ablations import by_hops, contrast, grid, mass_shift, minus, note, shift_signed, whose
from flashtrace_book.experiments import failures
from flashtrace_book.faithfulness import shared_samples
from flashtrace_book.figures import ablation_plots, mass, plots, style, tables
from flashtrace_book.results import CURVE, RANKING
from flashtrace_book.run import start
from flashtrace_book.statistics import correlations
from flashtrace_lib.evaluation import summarise

run = start(profile)
style.use_style()
ruler, questions, documents = (run.results(name) for name in ("ruler", "morehopqa", "hotpotqa"))
answers, BY = whose(ruler), ("method", "cell", "metric", "model", "answers")
CONTROLS = ("string_match", "position", "random")

# %% [markdown]
# ## How many hops (Table 7)
#
# $K = 0$ explains the answer alone. Each further hop explains the reasoning with the scores of the hop before:
#
# $$\mathbf w_{final} = \mathbf w_{\mathbf I}^{(0)} + \sum_{k=1}^{K} \Big(\prod_{j<k} \rho_j\Big)\, \mathbf w_{\mathbf I}^{(k)}, \qquad
# \rho_j = \sum_{t \in \mathbf T} w^{(j)}_t .$$
#
# On RULER the evidence is known to the token. The first $K$ hops of one run are the run with $K$ hops, so one run with three
# gives all. $K$ hops minus none, on the same samples:

# %%
deep = by_hops(ruler, answers=answers)
gains = minus(deep, "flashtrace_k0")
run.table(gains, "hops_ruler", f"K hops minus none on RULER, n = {gains['n'].max()}", wide=grid(gains))

# %% [markdown]
# The paper compares depths on MoreHopQA by RISE and MAS. Here these are real questions that Qwen2.5-Coder-0.5B answers in its
# own words, mostly wrongly:

# %%
depths = ("flashtrace_k0", "flashtrace", "flashtrace_k2", "flashtrace_k3", *CONTROLS)
asked = shared_samples(questions.frame(CURVE, depths, answers=whose(questions))).replace({"method": {"flashtrace": "flashtrace_k1"}})
table7 = tables.comparison_table(summarise(asked, BY), paper=7)
wide = tables.wide_table(table7, digits=3)
run.table(table7, "table7_hops", "Number of hops on MoreHopQA (paper: Table 7)", wide=wide)

# %%
run.table(grid(minus(asked, "flashtrace_k0")), caption="The same minus no hop, on the same samples")

# %%
shallow = ruler.frame(CURVE, ("flashtrace", "flashtrace_k0"), answers=answers)
about = {"models": "reasoner, qwen", "figure": "table7_hops"}
metrics = ("r_precision", "auroc_haystack")
others = contrast(deep, "flashtrace_k1", "flashtrace_k0", metrics, name="RULER, ")
note(run, "one_hop", others, answers, "check", **about)
whole = {f"RULER by sentences' {how}s, ": by_hops(ruler, whole=how, answers=answers) for how in ("mean", "sum")}
whole = [contrast(part, "flashtrace_k1", "flashtrace_k0", ("recovery", *metrics), name=name) for name, part in whole.items()]
note(run, "one_hop", pd.concat(whole), answers, "beside", **about)  # looked at after the runs
gained = [
    contrast(deep, "flashtrace_k1", "flashtrace_k0", ("recovery",), name="RULER, "),
    contrast(shallow, "flashtrace", "flashtrace_k0", CURVE, name="RULER, "),
    contrast(asked, "flashtrace_k1", "flashtrace_k0", CURVE, name="MoreHopQA, "),
]
note(run, "one_hop", pd.concat(gained), answers, **about)

# %%
more = [("flashtrace_k2", "K = 2, "), ("flashtrace_k3", "K = 3, ")]
others = [contrast(deep, k, "flashtrace_k1", ("recovery", "r_precision"), name=f"RULER, {name}") for k, name in more]
note(run, "more_hops", pd.concat(others), answers, "check", models="reasoner", figure="hops_ruler")
further = [contrast(asked, k, "flashtrace_k1", CURVE, above=False, name=name) for k, name in more]
note(run, "more_hops", pd.concat(further), answers, models="qwen", figure="table7_hops")

# %% [markdown]
# ## Where the mass goes (Figure 7)
#
# The share of each hop's mass on the input, the reasoning, the output and the template, on MoreHopQA as in the paper. The *place*
# of mass within $\mathbf T$ is 0 at its first token and 1 at its last.

# %%
samples, deepest = questions.attributions("flashtrace_k3", answers=whose(questions))
fig = plots.mass_by_segment(mass.mass_frame(samples, deepest).round(6), title="Where each hop's mass lies (MoreHopQA)")
run.figure(fig, "fig7_mass_shift", "Share of each hop's mass on I, T, O and context (paper: Fig. 7)")

# %%
shift = mass_shift(samples, deepest)
wide = shift.pivot_table(index="hop", columns="quantity", values="mean", sort=False).reset_index()
run.table(shift, "fig7_mass_shift", f"Mean share of each hop's mass, n = {len(samples)}", wide=wide, digits=2)

# %%
on_needles = mass_shift(*ruler.attributions("flashtrace_k3", answers=answers))
about = {"models": "reasoner, qwen", "figure": "fig7_mass_shift"}
note(run, "mass_shift", shift_signed(on_needles, "RULER, "), answers, "check", **about)
note(run, "mass_shift", shift_signed(shift, "MoreHopQA, "), answers, **about)

# %% [markdown]
# ## Longer contexts, right answers or wrong (Table 8)
#
# The other tables of the paper keep right answers alone (appendix E.4). Does that filter favour a method? And does faithfulness
# last as the context grows? Table 8 takes the first finished answers to HotpotQA, right or wrong, with distracting paragraphs up
# to each length. Recovery means little where a model did not use the evidence, so RISE and MAS alone.

# %%
run.table(documents.counts(), caption="HotpotQA: answered by Qwen2.5-Coder-0.5B; median tokens")

# %%
cells = list(documents.part("cell")["cell"])
finished, direct = ([cell for cell in cells if cell.endswith("_direct") == at_once] for at_once in (False, True))
METHODS = ("flashtrace", "flashtrace_best", "ifr", "ifr_all", "attnlrp", *CONTROLS)
unfiltered = documents.frame(CURVE, METHODS, cell=finished, answers=whose(documents))
table8 = tables.comparison_table(summarise(unfiltered, BY), paper=8)
table8 = table8[2 * table8["n"] > table8.groupby(["cell", "metric"])["n"].transform("max")]  # others are on too few
wide = tables.wide_table(table8)
shown = run.table(table8, "table8_unfiltered", "HotpotQA without a filter (paper: Table 8)", wide=wide)
shown

# %%
fig = plots.metric_bars(shown.frame, "rise", title="RISE on HotpotQA without a filter, by length of the prompt")
run.figure(fig, "table8_rise", "RISE on HotpotQA without a filter, by length of the prompt")

# %%
leads = [(cell, unfiltered[unfiltered["cell"] == cell]) for cell in finished]
for role, metrics in (("check", ("mas",)), ("decides", ("rise",))):
    lead = [contrast(part, "flashtrace", "ifr", metrics, above=False, name=f"{cell}, ") for cell, part in leads]
    noted = note(run, "unfiltered_lead", pd.concat(lead), answers, role, models="qwen", figure="table8_unfiltered")
noted

# %%
lengths = unfiltered[unfiltered["method"] == "flashtrace"]
lengths = lengths.assign(method=lengths["cell"], cell="hotpotqa")
for role, metrics in (("check", ("mas",)), ("decides", ("rise",))):
    change = contrast(lengths, finished[-1], finished[0], metrics, above=False)
    noted = note(run, "longer_contexts", change, answers, role, models="qwen", figure="table8_unfiltered")
noted

# %% [markdown]
# **Is the evidence still found?** The same data set asked for the answer at once, right answers alone, so that $\mathbf T$ is
# empty. Every method minus FlashTrace in recovery:

# %%
found = documents.frame(RANKING, METHODS, cell=direct, answers=whose(documents), right=True)
compared = minus(found[found["metric"] == "recovery"], "flashtrace", ("metric", "cell"))
run.table(grid(compared, "cell"), caption="Recovery minus FlashTrace's, right answers")

# %% [markdown]
# ## One target out of many tokens (appendix M)
#
# A span becomes one target by a sum. The paper discusses other ways and measures one. With $\mathbf w(\cdot)$ the distribution of
# a state over its sources, hop 0 is
#
# $$\text{sum (the paper): } \mathbf w\Big(\sum_i \mathbf y_i\Big), \qquad
# \text{mean pooling: } \frac{1}{|\mathbf O|} \sum_i \mathbf w(\mathbf y_i), \qquad
# \text{last token: } \mathbf w(\mathbf y_{|\mathbf O|}), \qquad
# \text{weights: } \mathbf w\Big(\sum_i w_i\, \mathbf y_i\Big) .$$
#
# * *mean pooling* averages the distributions of single tokens in every hop;
# * *rising* and *falling* weights are $w_i = i$ and $w_i = |\mathbf O| + 1 - i$, in hop 0;
# * *sentence* spans share each hop's mass equally within every sentence. Appendix M.2 builds the *target* from sentences;
#   sharing the *source* mass is our reading of it.
#
# **Predict first.** Which finds more of the evidence: the sum, or the mean of the single tokens' distributions? And what does the
# last token alone find?
#
# <details><summary>The answer</summary>
#
# Mean pooling finds more than the sum, in every metric of evidence. The last token alone finds next to nothing: it is a full stop
# or a closing word, which says little about what stands before it.
#
# </details>

# %%
evidence = ("recovery", "r_precision", "auroc_haystack")
TARGETS = ("last_token", "mean_pooling", "rising", "falling", "sentence", *CONTROLS)
ranked = ruler.frame((*RANKING, "lds"), ("flashtrace", *TARGETS), answers=answers)
curves = shared_samples(ruler.frame(CURVE, ("flashtrace", "flashtrace_k0", *TARGETS), answers=answers))
ways = pd.concat([ranked, curves, deep[deep["method"] != "flashtrace_k1"]], ignore_index=True)
against = minus(ways, "flashtrace")
wide = grid(against[against["metric"].isin((*evidence, *CURVE))])
shown = run.table(against, "appendix_m_ablations", "Minus FlashTrace with one hop, RULER", wide=wide)
shown

# %%
title = "What each change does to FlashTrace (RULER, 1,024 tokens)"
fig = ablation_plots.forest(shown.frame, ("recovery", *CURVE), reference="FlashTrace's", title=title)
run.figure(fig, "appendix_m_ablations", "Changes and controls minus FlashTrace with one hop (paper: H, M)")

# %% [markdown]
# Table 10 of the paper has the last token on HotpotQA; these are the samples of RULER, with the paper's numbers in brackets:

# %%
ends = ways[ways["method"].isin(["flashtrace", "last_token", *CONTROLS]) & ways["metric"].isin(["recovery", *CURVE])]
table10 = tables.comparison_table(summarise(ends.assign(cell="RULER"), BY), paper=10, cells={"RULER": "hotpotqa"})
wide = tables.wide_table(table10)
run.table(table10, "table10_last_token", "The last token, or all of O (paper: Table 10)", wide=wide)

# %%
about = {"models": "reasoner", "figure": "appendix_m_ablations"}
note(run, "last_token", contrast(ways, "flashtrace", "last_token", evidence, above=False), answers, "check", **about)
note(run, "last_token", contrast(ways, "flashtrace", "last_token", CURVE, above=False), answers, **about)

# %%
pooled = contrast(ways, "flashtrace", "mean_pooling", (*evidence[1:], *CURVE))
note(run, "mean_pooling", pooled, answers, "check", **about)
note(run, "mean_pooling", contrast(ways, "flashtrace", "mean_pooling", evidence[:1]), answers, **about)

# %%
note(run, "sentences", contrast(ways, "sentence", "flashtrace", evidence, above=False), answers, "check", **about)
note(run, "sentences", contrast(ways, "sentence", "flashtrace", CURVE, above=False), answers, **about)

# %% [markdown]
# ## When it fails (appendix N)
#
# The paper names two failures and shows no numbers for them: *diffuse evidence*, over which the mass is spread thinly, and
# *structural tokens* that take more mass than they mean. Here failures are searched for: the quarter of the samples in which the
# least of the reachable evidence stands in the top tenth of the input, against the others. Who takes the places?

# %%
properties, places = ruler.part("properties"), ruler.part("places")
least = failures.worst_samples(properties, max(1, len(properties) // 4))
worst = least["sample"]
places = places.assign(group=places["sample"].isin(worst).map({True: "worst quarter", False: "others"}))
taken = places.groupby(["group", "kind"], sort=False, as_index=False)[["places", "expected"]].mean()
run.table(taken, "appendix_n_places", "Share of the top tenth of I, and of I, by kind of token")

# %%
run.table(least["cell"].value_counts().rename("samples").reset_index(), caption="Cells of the worst quarter")

# %% [markdown]
# What goes with failing, over all samples. Of the evidence: its share of $\mathbf I$, its pieces, how evenly the mass lies on it. Of
# the mass: how evenly it is *spread*, and its shares on the evidence, the question and structural tokens.

# %%
suspects = (*failures.DIFFUSE, *failures.MASS)
goes_with = correlations(properties, suspects, ["reached", "r_precision"])
run.table(grid(goes_with, "outcome", "property", "rho"), caption="Rank correlations")

# %%
structure = failures.structure_table(ruler.part("kinds"))
run.table(structure, caption="Share of each hop's whole mass on structural tokens, and of the tokens", digits=2)

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# **Hops.** The paper finds RISE between 0.127 and 0.133 at every depth, and MAS lowest with one hop. Here the first hop helps in
# every metric, and each further one a little more of the evidence of RULER; on real questions the second lowers RISE and MAS, which of
# the third is not shown. What it adds to recovery are in part further words
# of sentences that stood first before it (`03_recursion`). The input gains mass and, within the
# reasoning, mass moves to earlier tokens, as the paper says. But **the reasoning gains, too**. Hop 0 can land on $\mathbf O$
# itself, hop 1 cannot, and most of what leaves $\mathbf O$ goes to the reasoning's own tokens.
#
# **Contexts.** The paper prints the lowest RISE for FlashTrace at both of its lengths, 0.036 at 2,048 tokens and 0.025 at 4,096. A grid of twenty steps cannot give
# less than $1/2K = 0.025$ (`11_metrics`), so its last number says only that the first step took everything.
# Here FlashTrace leads IFR at 2,048 tokens; at 1,024 the interval of RISE holds 0. Its RISE is lower at the greater length in the
# mean of the six questions that both share, as the paper says, by an interval that holds 0. The model is
# small and seldom right, and at both lengths a string match, which asks no model, has a lower RISE than either, in the mean.
#
# **Targets.** The last token alone is far worse, as in the paper. Mean pooling finds more than the sum, which contradicts it. The
# paper's mean pooling is IFR without hops and ours FlashTrace with its hops, so that its comparison mixes two changes. Sentences
# recover more, since one that holds a needle enters the top tenth as a whole, but the likelihood falls later: RISE and MAS are
# worse.
#
# **Failures.** The paper's two failures are descriptions. *Diffuse evidence* is seen in recovery: where the mass is spread
# evenly, less of what can be found stands in the top tenth. R-precision, which looks at as many tokens as are gold, says the
# opposite, so that the verdict depends on where the ranking is cut. *Structural tokens* together take no more in the worst samples. What
# takes the places there is the question, which stands last, is read by every token of the answer, and is twice as much of the input as
# elsewhere: of places beyond its share it has no more. The worst samples are
# long lists of needles, whose properties go together: a correlation over cells is no cause.
#
# **Copying.** A string match, which needs no model, recovers more of the evidence of RULER than any change here; within the haystack spans
# of sentences find as much. For this reasoner the needles measure mostly copying, and a gain in recovery alone proves little.
