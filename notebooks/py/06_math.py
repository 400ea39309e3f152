# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Mathematics: attribution through a calculation
#
# > **Question.** Is FlashTrace the most faithful method on word problems, and does its MAS stay level as the reasoning grows?
# >
# > **Answer.** In part: on right answers to GSM8K FlashTrace's MAS is lower than IFR's, as the paper says; on MATH-500 the two
# > cannot be distinguished. But on GSM8K no method is shown to beat a random ranking. That MAS changes with the length of the
# > reasoning is not shown, nor that it stays level.
# >
# > **n.** 20 problems with deletion curves, 10 of each set, all answered by the model itself; those of GSM8K are right, those of
# > MATH-500 mostly wrong.
# >
# > **Figure.** `table2_math`: every method beside the controls.
#
# Section 5.1 of the paper: Table 2 (MATH), Figures 5 and 6. A model solves a word problem step by step. To which words of the
# problem is the final answer attributed? No ground truth says so, hence RISE and MAS alone.
#
# **Which data set?** The paper's text says MATH. The traces published with it are 100 problems of GSM8K, and the RISE and MAS
# computed from them are the numbers of its MATH row. So its numbers stand beside GSM8K here, and MATH-500 is reported as well.
# The records are those of the published sets (both MIT), the model is Qwen2.5-Coder-0.5B, which was not trained here.

# %% tags=["parameters"]
profile = "book"

# %%
import pandas as pd
from IPython.display import HTML

from flashtrace_book import reasoning, statistics
from flashtrace_book.figures import method_plots, style, tables
from flashtrace_book.results import CURVE
from flashtrace_book.run import start
from flashtrace_lib.evaluation import summarise
from flashtrace_lib.metrics.intervals import MIN_SAMPLES
from flashtrace_lib.viewer import figure, html

run = start(profile)
style.use_style()
results = run.results("math")
RIVALS = [name for name in ("ifr", "attnlrp", "perturbation", "clp", "reagent") if name in set(results.part("method")["method"])]

# %% [markdown]
# ## The samples
#
# The first problem of GSM8K whose answer is explained. $\mathbf I$ is the problem alone (appendix E.2); the words behind it
# that ask for a box are context, as the template is.

# %%
sample, attribution = reasoning.shortest(results, cell="gsm8k")
print(reasoning.text_of(sample, sample.segments.prompt).strip(), "\n")
print(reasoning.text_of(sample, sample.segments.generated).strip())

# %% [markdown]
# Of GSM8K right answers are kept; on MATH-500 the model is right too rarely, so that its first finished answers are explained,
# right or wrong. Lengths are median tokens.

# %%
run.table(results.counts(), "math_samples", "Mathematics: what was tried, right and kept")

# %% [markdown]
# ## Table 2, the columns of MATH
#
# **RISE** is the area under the normalised log-probability of $\mathbf T \cup \mathbf O$ as the problem is masked, most important
# tokens first; **MAS** adds its gap to the attribution mass that is still unmasked (`05_ruler` has the formulas). Lower is
# better. Mean, 95 % interval, and in round brackets the paper's number for Qwen3-8B.
#
# *Predict first.* A string match between problem and answer asks no model. Will masking what it ranks first destroy the answer
# sooner or later than masking what FlashTrace ranks first?
#
# <details><summary>The answer</summary>Sooner, in RISE: the answer repeats the problem's numbers, and a string match finds
# them.</details>

# %%
deletion = results.frame(CURVE)
table = tables.comparison_table(summarise(deletion), paper=2, cells={"gsm8k": "math"})
shown = run.table(table, "table2_math", "Faithfulness on mathematics (paper: Table 2, MATH)", wide=tables.wide_table(table))
shown

# %%
fig = method_plots.metric_heatmap(shown.frame, "mas", title="MAS on mathematics")
run.figure(fig, "table2_math", "MAS of every method on GSM8K and MATH-500, controls last", stamp="Qwen2.5-Coder-0.5B, own answers")

# %% [markdown]
# ## Better than chance? Better than copying?
#
# Each method minus the random ranking on the same samples, set by set, then FlashTrace minus each other method.

# %%
control = statistics.against(deletion, "random", by=("metric", "cell"))
tables.interval_grid(control, ["cell", "method"], "metric")

# %%
rivals = statistics.against(deletion, "flashtrace", by=("metric", "cell"))
run.table(rivals, "math_against_flashtrace", "Every method minus FlashTrace on the same problems",
          wide=tables.interval_grid(rivals, ["cell", "method"], "metric").reset_index())

# %%
paired = pd.concat([statistics.paired_difference(deletion, "flashtrace", rival, by=("metric", "cell")).assign(method=rival)
                    for rival in RIVALS])  # fmt: skip
on_row = paired[paired["cell"] == "gsm8k"]
on_row = on_row.assign(label=on_row["metric"].str.upper() + " minus " + on_row["method"])
beside = paired[paired["cell"] != "gsm8k"]
run.claim("math_lowest", on_row, models="qwen", figure="table2_math")

# %%
checks = beside.assign(label=beside["metric"].str.upper() + " minus " + beside["method"] + ", MATH-500")
run.claim("math_lowest", checks, models="qwen", figure="table2_math", role="check") if len(checks) else None

# %% [markdown]
# ## Where the rankings look
#
# How much of each method's mass on $\mathbf I$ lies on the sentences that ask? Beside it the question's share of the tokens, the
# value of a random ranking.

# %%
run.table(reasoning.question_share(results, ["flashtrace", *RIVALS]), caption="Share of the mass on I that lies on the question")

# %% [markdown]
# ## MAS and the length of the reasoning (Figure 5)
#
# The samples of both sets in bins of equal size by the length of $\mathbf T$: four, or as many as have six samples each. A line
# through the samples says by how much a metric changes with each hundred tokens of reasoning; 0 is level.

# %%
bins = min(4, max(1, deletion["sample"].nunique() // MIN_SAMPLES))
lengths = run.table(reasoning.by_length(deletion, bins), "fig5_by_length", "RISE and MAS by length of the reasoning, tokens")
fig = method_plots.metric_by_length(lengths.frame, "mas", title="MAS by length of the reasoning")
run.figure(fig, "fig5_mas_by_length", "MAS by length of the reasoning, a line for each method", stamp="Qwen2.5-Coder-0.5B, own answers")

# %%
slopes = reasoning.length_slopes(deletion)
tables.interval_grid(slopes, "method", "metric", value="slope")

# %%
stable = slopes[(slopes["metric"] == "mas") & (slopes["method"] == "flashtrace")].assign(label="change of MAS per 100 tokens")
run.claim("math_stable", stable, models="qwen", figure="fig5_by_length")

# %%
run.claim("math_all_lengths", reasoning.margin_by_length(deletion, RIVALS, bins=bins), models="qwen", figure="fig5_by_length")

# %% [markdown]
# ## A heatmap (Figure 6)
#
# The sample above, from its stored scores. Hop 0 (the paper's "Hop 1") explains $\mathbf O$, hop 1 ("Hop 2") the mass that hop 0
# left on $\mathbf T$.

# %%
fig = figure.hops_figure(sample, attribution)
run.figure(fig, "fig6_heatmap", "Hop 0, hop 1 and their difference on a problem of GSM8K", stamp="Qwen2.5-Coder-0.5B")

# %%
HTML(html.hops_heatmap(sample, attribution))

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# The paper reports the lowest RISE and MAS for FlashTrace, ahead of IFR by 0.006 and 0.044, and a MAS that stays level as the
# reasoning grows. Here FlashTrace's MAS on GSM8K is below IFR's by about as much, and RISE by little. On MATH-500 the two cannot
# be distinguished.
#
# No method beats a random ranking on GSM8K in either metric, and in MAS every one is worse than it. A problem of sixty tokens
# repeats its numbers in every line of the reasoning, so that masking any of them harms, whatever the ranking. A string match
# lowers the likelihood sooner than any method.
#
# Every slope's interval holds zero and reaches far to both sides: twenty samples show neither a change nor a level line.
#
# Differences from the paper: a model of 494 million parameters, which is right on about a fifth of GSM8K; its own reasoning, where
# the paper's was written by a larger model than the one that is explained; and one masking rule for all methods.
