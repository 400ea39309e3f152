# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A better FlashTrace
#
# > **Question.** The paper leaves choices of its method open: is there a better setting? And what does FlashTrace see that copying
# > does not?
# >
# > **Answer.** `FlashTrace.best()`, the residual propagated and scores smoothed over five tokens, finds more words of the evidence on
# > fresh samples of RULER, and within the haystack hardly more of its sentences.
# > **A hop pays where the reasoning strays**: with eight facts noted that do not matter, IFR on T ∪ O tells them from those that do
# > hardly better than a coin (AUROC 0.538 in notation), `FlashTrace.best()` does (0.910), and a string match is at chance where nothing
# > is quoted. The causal hop, which asks the model which steps matter, has most of its top tokens right of what is fast, and is what
# > `trace()` shows; that it tells the facts apart better than `best()`, or on the grid puts evidence first more often, is not shown.
# > **Hiding each sentence from the response alone picks them out most cleanly**, at a pass over the response for each
# > (`suppression_response`: R-precision 0.832 against 0.583 of `best()`); where whole sentences are ranked the causal hop comes near
# > it. A hint that the reasoning does not mention is put first most often by IFR on the answer alone, on the second model no more
# > often than by hop 0: FlashTrace's hop neither finds nor hides it, and the causal hop hides it on one of two models.
# >
# > **n.** The grid: 230 own right answers of a model taught to reason in two ways, 24 a cell (22 and 16 where eight facts are noted).
# > Fresh samples of RULER: 20 of the reasoner, 12 of qwen, all right. Needles: 48 of qwen. Table 1: 160, 10 with deletion curves of
# > every method. Hints: 74 answers of the reasoner to 26 problems, 16 of qwen.
# >
# > **Figure.** `beyond_off_path`: gain over IFR on T ∪ O, by the facts that the reasoning notes off its path.
#
# <!-- numbers: −0.006 = better_by_sentence.csv[where=Table 1,by=mean,metric=r_precision_haystack].difference;
# 0.049 = better_by_sentence.csv[where=Table 1,by=sum,metric=r_precision_haystack].difference;
# 0.010 = causal_hop_by_sentence.csv[group=all cells,by=mean,method=flashtrace_best].difference;
# 0.007 = causal_hop_by_sentence.csv[group=all cells,by=mean,method=flashtrace].difference;
# 0.059 = causal_hop_by_sentence.csv[group=all cells,by=sum,method=flashtrace].difference;
# 0.538 = beyond_copying.csv[method=ifr_all,reasoning=notation,off_path=8,metric=auroc_facts].mean;
# 0.910 = beyond_copying.csv[method=flashtrace_best,reasoning=notation,off_path=8,metric=auroc_facts].mean;
# 0.885 = beyond_haystack.csv[method=suppression_response].essay; 0.583 = beyond_haystack.csv[method=flashtrace_best].all;
# 0.644 = beyond_haystack.csv[method=flashtrace_causal].essay; 0.792 = beyond_haystack.csv[method=suppression_response].noise;
# 0.611 = beyond_haystack.csv[method=flashtrace_best].noise; 0.737 = beyond_haystack.csv[method=flashtrace_causal].noise;
# 0.259 = beyond_haystack.csv[method=flashtrace].all; 0.697 = beyond_haystack.csv[method=flashtrace_causal].all;
# 0.783 = beyond_even.csv[by=sum,method=flashtrace_causal].r_precision_haystack;
# 0.849 = beyond_even.csv[by=sum,method=suppression_response].r_precision_haystack;
# 0.616 = beyond_even.csv[by=sum,method=flashtrace_best].r_precision_haystack;
# 0.929 = response_table1.csv[by=token,method=suppression_response].r_precision_haystack;
# 0.943 = response_table1.csv[by=token,method=flashtrace_causal].r_precision_haystack;
# 0.911 = response_table1.csv[by=token,method=string_match].r_precision_haystack;
# 0.523 = beyond_even.csv[by=mean,method=flashtrace].r_precision_haystack; 0.781 = beyond_even.csv[by=mean,method=flashtrace_causal].r_precision_haystack;
# 0.832 = beyond_even.csv[by=mean,method=suppression_response].r_precision_haystack; 0.725 = beyond_even.csv[by=mean,method=flashtrace_best].r_precision_haystack;
# 0.703 = unsaid_reasons.csv[method=suppression_response,reasoning=all,metric=first].mean;
# 0.946 = unsaid_reasons.csv[method=ifr,reasoning=all,metric=first].mean;
# 0.847 = beyond_suppression.csv[method=suppression].r_precision_haystack; 0.839 = beyond_suppression.csv[method=suppression_response].r_precision_haystack;
# 0.588 = beyond_suppression.csv[method=flashtrace_best].r_precision_haystack; 0.941 = beyond_suppression.csv[method=flashtrace_best].auroc_facts;
# 0.687 = beyond_suppression.csv[method=flashtrace_causal].r_precision_haystack; 0.416 = beyond_suppression.csv[method=ifr_all].r_precision_haystack;
# 0.983 = beyond_suppression.csv[method=suppression].auroc_facts; 0.902 = beyond_suppression.csv[method=flashtrace_causal].auroc_facts; 0.893 = unsaid_suppression.csv[method=suppression].auroc_haystack;
# 0.532 = beyond_perturbation.csv[method=perturbation].auroc_facts;
# 0.188 = unsaid_reasons_qwen.csv[method=suppression_response,reasoning=all,metric=first].mean;
# 0.438 = unsaid_reasons_qwen.csv[method=flashtrace_causal,reasoning=all,metric=first].mean;
# 0.812 = unsaid_reasons_qwen.csv[method=flashtrace_k0,reasoning=all,metric=first].mean -->
#
# Beyond the paper. Section 4 leaves room for several readings, and the authors' released code takes some of them. The library's
# default is the paper's reading, every other is an option. Metrics are defined in `05_ruler`.

# %% tags=["parameters"]
profile = "book"

# %%
import json

import pandas as pd

from flashtrace_book.ablations import CHOICES, contrast, grid, label_of, minus, note, whose
from flashtrace_book.beyond import CELL, ON_FEW, causal_gains, grid_frame, hints_frame, means, on_few
from flashtrace_book.experiments import trust
from flashtrace_book.figures import ablation_plots, method_plots, style
from flashtrace_book.results import CURVE
from flashtrace_book.run import start
from flashtrace_book.statistics import mean_row, slope_within

run = start(profile)
style.use_style()
ruler, better = run.results("ruler"), run.results("better")
CONTROLS, PRIMARY = ("string_match", "position", "random"), "r_precision_haystack"
SHOWN = (PRIMARY, "recovery", "r_precision", "auroc_haystack")

# %% [markdown]
# ## One choice at a time
#
# A layer gives token $j$ the proximity $e_j$ of its contributions to the span's state $\mathbf Y = \sum_i w_i \mathbf x^{mid}_i$,
# divided by $\sum_j e_j + e_{res}$, where $e_{res}$ is the proximity of the residual. Layers are added up, a hop is normalised, and
#
# $$\text{result} = \mathbf w^{(0)} + \sum_{k \ge 1} \Big(\prod_{j<k} \rho_j\Big)\, \mathbf w^{(k)} \quad\text{on } \mathbf I,$$
#
# with $\rho_k$ the share of hop $k$'s mass on $\mathbf T$. What is open in this; the paper's reading comes first:
#
# 1. **Residual.** Its share only divides, or it is propagated to the layer below.
# 2. **First hop.** It explains $\mathbf O$, or $\mathbf T \cup \mathbf O$.
# 3. **Smoothing.** Scores stay where they are, or each is shared in a window of five tokens.
# 4. **Rows.** The span is one target, or every token has a row of its own (*token by token*).
# 5. **Recursion.** Later hops explain $\mathbf T$, or $\mathbf T \cup \mathbf O$. The authors' code does the latter.
# 6. **Punctuation.** Commas, full stops and white space count, or have weight and score zero. The authors' code skips them.
# 7. **Raw hops.** $\mathbf w^{(k)}$ are distributions, or the sums over layers that they are made from.
#
# Each changed alone, minus the paper's reading, on the first two samples of each cell of Table 1:

# %%
answers = whose(ruler)
choices = minus(ruler.frame(SHOWN, ("flashtrace", *CHOICES), answers=answers), "flashtrace")
caption = f"One choice at a time minus the paper's, RULER, n = {choices['n'].max()}"
run.table(choices, "choices", caption, wide=grid(choices))

# %% [markdown]
# ## The better setting
#
# The paper gives each layer a distribution over its sources and adds the layers up. With $u$ the weights of the span's rows and
# $e$ the proximities of the sources to $\mathbf Y$,
#
# $$s_j = \frac{e_j}{\sum_k e_k + e_{res}}, \qquad r = \frac{e_{res}}{\sum_k e_k + e_{res}}, \qquad
# \text{paper: } \mathrm{scores} = \sum_{l} s^{(l)}.$$
#
# There the share $r$ of the residual only divides: the part that a layer hands down unchanged is lost, and every layer starts
# again from the same weights. **Propagated**, it goes on:
#
# $$a_j \mathrel{+}= M s_j \quad (j \notin S), \qquad u^{(l-1)}_i = M s_i + r\,u^{(l)}_i \quad (i \in S), \qquad
# M = \sum_{i \in S} u^{(l)}_i .$$
#
# The sum of $a$ and $u$ stays 1 from the last layer to the first, and $a$ is the result. **Smoothing** shares each final score in
# a window of five tokens. Both together are `FlashTrace.best()`, at no further pass.
# [The derivation](../docs/better_flashtrace.md) has the identities, a bound for the error, and related work.
#
# The setting was found on other samples. Those below are drawn with a new seed, on which nothing was picked, and stand in cells
# and noise of their own. The primary metric, named before, is the R-precision within the haystack: the share of evidence among
# the $|G|$ highest ranked tokens, question and instruction left out. On RULER all answers are right. Real questions of HotpotQA
# and MoreHopQA are mostly answered wrongly, so that they decide nothing here.
#
# **Predict first.** The residual propagated, the first hop on $\mathbf T \cup \mathbf O$, or both: which finds most? And does it
# beat IFR, given the same target $\mathbf T \cup \mathbf O$?
#
# <details><summary>The answer</summary>
#
# The residual propagated finds most, more so with smoothing; the first hop adds nothing to it on RULER. IFR on
# $\mathbf T \cup \mathbf O$ is level with it in this metric on the reasoner's samples and on Table 1, where it is ahead in the other metrics
# of the evidence and not in LDS, and behind on qwen's, whose $\mathbf T$ is empty.
#
# </details>

# %%
run.table(better.counts(), caption="Samples; median tokens")

# %%
METHODS = ("paper", "second_candidate", "propagated", "first_hop", "candidate", "candidate_smooth5", "candidate_k0",
           "candidate_k2", "paper_k0", "ifr", "ifr_all", "attnlrp", *CONTROLS)  # fmt: skip
frame = better.frame(SHOWN, METHODS, answers=whose(better))
task = frame["cell"].str.endswith("_real").map({True: "real questions (", False: "RULER ("})
groups = dict(iter(frame.groupby(task + frame["model"] + ")")))
differences = pd.concat([minus(part, "paper").assign(group=name) for name, part in groups.items()], ignore_index=True)
shown = run.table(differences, "better_differences", "Settings minus the paper's, R-precision in the haystack",
                  wide=grid(differences[differences["metric"] == PRIMARY], "group"))  # fmt: skip
shown

# %%
title = "Settings of FlashTrace beside the paper's"
drawn = shown.frame[~shown.frame["method"].isin(("random", "candidate_k0", "candidate_k2"))]  # the table has them
fig = ablation_plots.forest(drawn, (PRIMARY, "recovery"), reference="the paper's", series="group", title=title)
run.figure(fig, "better_forest", "Settings, methods and controls minus the paper's setting: R-precision and recovery")

# %% [markdown]
# Against IFR on $\mathbf T \cup \mathbf O$, which has a row for each token of the reasoning and costs accordingly:

# %%
beside = pd.concat([minus(part, "ifr_all").assign(group=name) for name, part in groups.items()])
beside = beside[beside["method"].isin(("paper", "second_candidate", "candidate_smooth5", "string_match"))]
run.table(grid(beside[beside["metric"] == PRIMARY], "group"), caption="R-precision (haystack), minus IFR's on T ∪ O")

# %%
run.table(grid(beside[beside["metric"] == "recovery"], "group"), caption="Recovery, minus that of IFR on T ∪ O")

# %% [markdown]
# ## On all samples of Table 1, and what it costs
#
# The same setting on all samples of Table 1, where the paper's own metrics are measured as well. Every method minus
# `FlashTrace.best()`:

# %%
rivals = ("flashtrace_best", "flashtrace", "flashtrace_released", "ifr", "ifr_all", "attnlrp", "at2", "mean_pooling", *CONTROLS)
table1 = ruler.frame((*SHOWN, "lds", *CURVE), rivals, answers=answers)
costs = minus(table1, "flashtrace_best")
run.table(costs, "better_table1", "Every method minus FlashTrace.best() on the samples of Table 1", wide=grid(costs))

# %% [markdown]
# `FlashTrace.best()` finds more than the paper's setting and recovers less than IFR on $\mathbf T \cup \mathbf O$, with which it is level
# in R-precision within the haystack; a string match, which needs no model, recovers more than both. And its deletion curves are
# **worse** than the paper's setting's: shared scores rank whole phrases first, while a curve falls fastest where the masked tokens are
# scattered (`11_metrics`).
#
# Smoothing shares a score with the words beside it, which is most of a sentence. So the two once more with whole sentences ranked, by the
# mean of their tokens' scores and by the sum (looked at after the runs, as in `05_ruler`):

# %%
two = {"flashtrace_best": "second_candidate", "flashtrace": "paper"}
again = {}
for how in ("mean", "sum"):
    fresh = better.frame(SHOWN, tuple(two.values()), answers=whose(better), whole=how)
    again |= {(f"RULER ({model})", how): part for model, part in fresh[~fresh["cell"].str.endswith("_real")].groupby("model")}
    again["Table 1", how] = ruler.frame(SHOWN, tuple(two), answers=answers, whole=how).replace({"method": two})
again = [contrast(part, "second_candidate", "paper", (PRIMARY, "recovery"), name=f"{where} by sentences' {how}s, ").assign(where=where, by=how)
         for (where, how), part in again.items()]  # fmt: skip
again = pd.concat(again, ignore_index=True)
run.table(again, "better_by_sentence", "FlashTrace.best() minus the paper's setting, whole sentences ranked")

# %% [markdown]
# **By sentences `best()` is ahead by less.** By means the two rank the evidence of Table 1 alike within the haystack (−0.006), and no
# interval of the fresh samples excludes 0 there; by sums, where its smoother scores let fewer long sentences pass, it is 0.049 ahead on
# Table 1. In recovery it stays ahead by both on Table 1, and by means on the reasoner's fresh samples, since the question takes less of
# the top tenth.

# %% [markdown]
# **Three definitions of $\rho$.** The paper's text takes the share of a hop's mass that lies on $\mathbf T$. The authors' package, in
# both of its versions, takes that on $\mathbf T \cup \mathbf O$, and each of its hops explains both. *FlashTrace as released* is the
# second version, value for value (a test holds it against the package). On these samples it finds more than the paper's text: its
# first hop has the right target here, since this reasoner's $\mathbf T$ notes little that it does not need.

# %%
about = {"models": "reasoner, qwen", "figure": "better_differences"}
reals = [contrast(part.assign(right=True), "second_candidate", "paper", (PRIMARY, "recovery"), name=f"{name}, ")
         for name, part in groups.items() if name.startswith("real")]  # fmt: skip
note(run, "better_setting", pd.concat([pd.DataFrame(), *reals]), answers, "beside", **about)
checks = contrast(table1, "flashtrace_best", "flashtrace", (*SHOWN[1:], "lds", *CURVE), name="Table 1, ")
note(run, "better_setting", checks, answers, "check", models="reasoner", figure="better_table1")
note(run, "better_setting", again, answers, "beside", models="reasoner, qwen", figure="better_by_sentence")

# %%
gains = [contrast(part, "second_candidate", "paper", (PRIMARY, "recovery"), name=f"{name}, ")
         for name, part in groups.items() if name.startswith("RULER")]  # fmt: skip
note(run, "better_setting", pd.concat(gains), answers, **about)

# %% [markdown]
# ## A hop that asks
#
# A hop weights $\mathbf T$ by the scores of the hop before it. These hardly tell the lines on which the answer rests from lines that
# are only noted: in `h2_c3` three chains run side by side, nobody asks for two of them, and the reasoning follows all three. The
# **causal hop** asks the model. A step $s$ of $\mathbf T$ counts as much as the answer, or a step behind it that counts, loses
# without it,
#
# $$c_s = \max\Big(\Delta_s(\mathbf O),\ \max_{t > s} \Delta_s(t)\, c_t\Big), \qquad
# \Delta_s(\cdot) = \log p(\cdot \mid \mathbf I, \mathbf T) - \log p(\cdot \mid \mathbf I, \mathbf T \setminus s),$$
#
# in units of the greatest fall, and the steps that count are explained as spans. All removals share the keys and values of the
# prompt; the table of costs below has its time and memory.
#
# The rule stands in the plan below, which was written before these samples were measured. The eight samples on which the hop was
# chosen, or which were looked at, do not count.
#
# **Predict first.** On chains that run side by side, what finds more of the evidence: a method that needs no model but looks for
# copies, or a hop that asks?
#
# <details><summary>The answer</summary>
#
# Of tokens the hop that asks, by far: the string match marks all three chains, since the reasoning repeats all three.
#
# </details>

# %%
causal = causal_gains(ruler, (PRIMARY, "auroc_haystack", "recovery", "r_precision", "lds"), answers)
wide = grid(causal.assign(column=causal["group"] + ", " + causal["metric"])[causal["metric"] != "r_precision"], "column")
shown = run.table(causal, "causal_hop", "The causal hop minus other methods, samples of Table 1", wide=wide)
shown

# %%
title = "The causal hop minus other methods"
fig = ablation_plots.forest(shown.frame, (PRIMARY, "recovery"), reference="the method named", series="group", title=title)
run.figure(fig, "causal_hop", "The causal hop minus other methods: R-precision in the haystack and recovery")

# %%
of_all = causal[causal["group"] == "all cells"]
for metric, role in (("recovery", "check"), (PRIMARY, "decides")):
    numbers = of_all[of_all["metric"] == metric].assign(label=lambda t: t["metric"] + ", minus " + t["label"])
    note(run, "causal_finds_more", numbers, answers, role, models="reasoner", figure="causal_hop")

# %% [markdown]
# Token by token the causal hop is, on chains that run side by side, far ahead of everything else, the string match included, and over
# the ten cells together its R-precision within the haystack is above that of every method in the table. In recovery, whose top tenth holds more
# tokens than there is evidence, the string match stays ahead. LDS (24 samples) sees the gain over the paper's setting, AttnLRP and, by little, IFR on
# $\mathbf T \cup \mathbf O$, and none over `best()`, AT2 and the string match: it asks what moves the likelihood of $\mathbf T$ and
# $\mathbf O$ together, where lines that are only noted count as much as those on which the answer rests.
#
# These are rankings of tokens. With whole sentences ranked, as chapter 05 does (looked at after the runs, so that it is no check of the
# claim; with IFR and mean pooling, which gain much by it):

# %%
table = pd.concat([causal_gains(ruler, (PRIMARY,), answers, whole=how).assign(by=how) for how in ("mean", "sum")], ignore_index=True)
title = "Sentences by mean and by sum: the causal hop minus other methods, R-precision within the haystack"
run.table(table, "causal_hop_by_sentence", title, wide=grid(table.assign(column=table["group"] + ", " + table["by"]), "column"))
again = table[table["group"] == "all cells"].assign(label=lambda t: "sentences by " + t["by"] + ", minus " + t["label"])
note(run, "causal_finds_more", again, answers, "beside", models="reasoner", figure="causal_hop_by_sentence")

# %% [markdown]
# **Much of the lead is more words of the same sentences.** By sentences the causal hop finds all there is on chains, side by side or not, and so
# do the paper's setting, IFR and mean pooling. Over all cells it is above the paper's setting by 0.007 by means and 0.059 by sums, and above
# `best()` by 0.010 by means, not told from it by sums. What methods that explain all of the reasoning, and the string match, miss on chains side by side stays missed.

# %% [markdown]
# ## Beyond copying: the plan
#
# On the samples of Table 1 a string match, without a model, finds more evidence than any method of attribution: there the
# reasoning repeats the evidence word by word. What does FlashTrace see that copying does not, and when does a hop pay? **This
# section was written before the runs.**
#
# **Problems.** A question whose answer follows from a chain of one to three facts ("Lockwood owns twice as many chairs as
# Quimby"), among ten or more facts of the same form that do not matter, in 1,024 tokens of noise or essays; two families, things
# owned and times. A second adapter of SmolLM2-135M, `notation`, was taught to reason in two ways, which a word of the question sets:
# *quote* repeats the sentences, *notation* writes `L=2Q`, `Q=8`, `L=16`, so that no word of the evidence recurs in $\mathbf T$ or
# $\mathbf O$ and the digits of the answer stand nowhere in the input. $\mathbf T$ goes from the name that is asked for down to a
# number, and from the number up again. Between the two it notes facts that do not matter (*off-path* facts); another word sets how
# many, $k$ = 0, 1, 2, 4, 8. So the model's own reasoning varies in both on the same problems: a grid of ten cells.
#
# The order of $\mathbf T$ was changed once, before any test problem was looked at. At first it noted the off-path facts, and then
# went from the number up (`Q=8`, `L=2Q=16`); an adapter trained on that was right in 2 of 10 answers on chains of two facts.
# The adapter counts badly: where eight facts are asked for, six to ten count as asked, and three to five for four (seen on
# development problems).
#
# **Samples.** 24 a cell, 8 for each length of chain: the first whose answer is right, whose reasoning is as asked, and which are
# *causal*: with the value of the first fact changed the model's answer changes as it must. Tried, right, as asked and causal are
# counted. Test problems have seeds of their own; the adapter was trained, and the causal hop below was chosen, on others. LDS (32
# masks) on the first 8 of a cell, two or three of each length of chain. Perturbation of sentences on the same 8, in a table of
# its own.
#
# **Methods.** FlashTrace with $K$ = 0, 1, 2, 3 and `best()`; the causal hop; IFR on $\mathbf O$ and on $\mathbf T \cup \mathbf O$;
# AttnLRP, GIM, suppression, AT2 with uniform weights (its trained ones belong to another adapter); random, position, string match.
#
# **Metrics.** AUROC and R-precision within the haystack; *AUROC among the facts*, the tokens of the chain's facts against those of
# the facts that do not matter, which look alike: the hard question; LDS. Each as a paired difference from the string match, from
# IFR on $\mathbf O$ and from IFR on $\mathbf T \cup \mathbf O$, with 95 % intervals.
#
# **Causal hop.** A hop weights $\mathbf T$ by the scores of the hop before it, which hardly tell the lines on which the answer
# rests from those that are noted in passing. The causal hop asks instead: the weight of a step of $\mathbf T$ is the fall of
# the target's log-probability when the step goes, recursively for the steps on which a weighted step rests.
#
# It is judged on the samples of Table 1 as well, the reasoner's own answers: R-precision and AUROC within the haystack, paired with
# `best()`, IFR on $\mathbf T \cup \mathbf O$, AttnLRP and the string match, over all cells and in `h2_c3` alone, where chains that
# nobody asked for run beside the one that matters. Its design was chosen on the first four samples of `h2_c3`, and the first four
# of `mq_q4` were looked at; these eight do not count. It is better where the interval of the paired difference lies above 0.
#
# **Hypotheses, each with its rule.**
#
# 1. In *notation* the string match is at chance among the facts: the interval of its AUROC less 0.5 lies within 0.1 on both
#    sides of 0, over all $k$.
# 2. FlashTrace's gain over IFR on $\mathbf T \cup \mathbf O$ grows with the off-path facts: the slope of the paired difference in
#    AUROC among the facts over $k$ lies above 0, in both modes.
# 3. Its gain over IFR on $\mathbf O$ does not vanish at $k = 0$: the paired difference in AUROC within the haystack lies above 0,
#    in both modes.
# 4. At $k = 4$ the causal hop tells the facts apart where nothing else does: its AUROC among the facts is at least 0.8, the
#    string match in *quote* and every other method in both modes are below 0.7, and its paired difference from each lies above 0.
#
# **Seen before.** Trials at 250 tokens with another adapter (9 to 12 problems a cell) suggested all four; there a hop helped, the
# string match was near chance in notation, and removing lines of $\mathbf T$ found those on which the answer rests. None of their
# problems is used here.

# %% [markdown]
# **A model that nobody trained for it: the plan, written before this run.** qwen, as it comes, answers two kinds of needles at 400
# tokens that copying alone does not find. *Superseded*: four magic numbers, two of which change later in the text, and one of the two
# is asked for. *Spelled*: the numbers stand in words, digit by digit, and the answer is in digits, so that nothing of it is copied. The
# first 24 right answers of each, from 60 problems at most; the needle that answers is the gold, the others are the facts that do not
# matter. $\mathbf T$ is empty, so that FlashTrace, whatever $K$, is its hop 0: the question is what the proximity sees, not what a hop
# does. Hypothesis: (8) in *spelled*, the AUROC among the needles of `best()` is above that of the string match, by the interval of the
# paired difference. Seen before: whether six problems of each kind are answered, and no attribution. Drawn anew once: in the first draw
# the needle that was asked for always stood at the same place among the others, so that position alone told it apart. Those samples
# (there `best()` had an AUROC of 0.77 in *spelled*, the string match 0.50) do not count.

# %% [markdown]
# ## Beyond copying: what came of it
#
# Tried, right, as asked and causal answers by cell; each number is part of the one before it. A text that more cells want is asked in
# all of them.

# %%
beyond = run.results("beyond")
asked = beyond.counts()
run.table(asked, "beyond_counts", "The grid: answers tried, right, as asked, causal, and kept")

# %% [markdown]
# **Predict first.** With four facts noted that do not matter: does a hop tell them from those that do? Does a string match?
#
# <details><summary>The answer</summary>
#
# `FlashTrace.best()` and the causal hop do, in both modes. IFR on $\mathbf T \cup \mathbf O$ falls with every fact that is noted. The
# string match sees what is quoted, and nothing in notation.
#
# </details>

# %%
everyone = grid_frame(beyond)
reasoned = everyone[~everyone["method"].isin(ON_FEW)]  # those have a table of their own, below
facts, own = reasoned[reasoned["metric"] == "auroc_facts"], whose(beyond)
table = minus(reasoned, "ifr_all", ("metric", *CELL))
wide = grid(table[table["metric"] == "auroc_facts"].assign(cell=lambda t: t["reasoning"] + ", k = " + t["off_path"].astype(str)), "cell")
shown = run.table(table, "beyond_gains", "AUROC among the facts, minus that of IFR on T ∪ O", wide=wide)
shown

# %%
LINES = ("flashtrace_causal", "flashtrace_best", "flashtrace", "ifr", "attnlrp", "string_match")
drawn = shown.frame[shown.frame["method"].isin(LINES)]
title = "Does it tell the facts that mattered from those that T merely mentions?"
fig = ablation_plots.gains_by_off_path(drawn, "auroc_facts", reference="IFR on T ∪ O", title=title)
run.figure(fig, "beyond_off_path", "Gain in AUROC among the facts over IFR on T ∪ O, against facts off the path, by mode of reasoning")

# %% [markdown]
# The means behind it, and those in the whole haystack, where any fact is easily told from noise:

# %%
everything = means(reasoned)
by_mode = everything.groupby(["method", "metric", "reasoning"], sort=False)["mean"].mean().unstack(["metric", "reasoning"]).round(3)
needles = run.results("needles")  # a section of their own below
answered = grid_frame(needles).assign(off_path=0)
both = pd.concat([everything, means(answered)], ignore_index=True)
run.table(both, "beyond_copying", "Means over all k, by mode of reasoning", wide=by_mode.rename(label_of).reset_index())

# %% [markdown]
# GIM is near chance or below it among the facts, as AttnLRP is. LDS over all cells (the first 8 samples of
# each), with its paired difference from IFR on $\mathbf T \cup \mathbf O$. It asks what moves the likelihood of the whole response,
# off-path notes included, and so prefers what explains all of it, FlashTrace as released among them: where the reasoning strays, LDS
# and the facts that mattered disagree.

# %%
likelihood = reasoned[reasoned["metric"] == "lds"]
lds = likelihood.groupby("method", sort=False)["value"].agg(["mean", "size"]).reset_index().assign(label=lambda t: t["method"].map(label_of))
against = minus(likelihood, "ifr_all")[["method", "difference", "low", "high"]]
run.table(lds.merge(against, on="method", how="left"), "beyond_lds", "LDS on the grid, and minus that of IFR on T ∪ O", digits=3)

# %% [markdown]
# ## A pass for each sentence
#
# Perturbation and attention suppression take a pass for each sentence, 190 in noise and some 60 in essays. They were measured
# on eight and on twenty answers of each cell (one has sixteen), those in essays first, where they cost a third. No hypothesis was written
# for either.
# All methods on the answers that have suppression, and R-precision in the haystack minus suppression's:

# %%
run.table(on_few(everyone, "r_precision_haystack", "suppression"), "beyond_suppression",
          "Attention suppression and the others on the same answers; R-precision (haystack) minus suppression's")  # fmt: skip

# %% [markdown]
# The same minus suppression's in essays and in noise, for AUROC among the facts as well:

# %%
few = everyone[everyone["sample"].isin(everyone.loc[everyone["method"] == "suppression", "sample"])]
few = few[few["metric"].isin(("r_precision_haystack", "auroc_facts"))]
by_text = few.assign(haystack=few["sample"].str.extract("-(noise|essay)-", expand=False))
table = pd.concat([minus(part, "suppression", ("metric", "haystack")) for part in (few.assign(haystack="all"), by_text)])
wide = grid(table.assign(column=table["metric"] + ", " + table["haystack"]), "column")
run.table(table, "beyond_suppression_texts", "Every method minus attention suppression, by haystack", wide=wide)

# %% [markdown]
# **Suppression picks the facts out more cleanly than all but its own cheaper form, below.** Evidence is first in 190 of the
# 196 answers, to 47 problems; of as many tokens as the evidence has, 0.847 are right, against 0.588 of `FlashTrace.best()`, 0.687 of the
# causal hop and 0.416 of IFR on $\mathbf T \cup \mathbf O$, each by the interval. Among the facts alone its AUROC, 0.983, is above the
# 0.941 of `best()` and the 0.902 of the causal hop by the interval, in essays and in noise; in noise alone the R-precision of the causal
# hop is not told from its own.
# It asks of every sentence of $\mathbf T$, not of the answer alone, on which earlier ones it rests, and walks back through them: the
# recursion of section 4, with effects in place of proximity. It takes some 70 passes in essays, where `best()` takes one.
#
# Perturbation asks for the answer alone. The response stays as it is when a sentence is masked, so that the answer can still be read off
# $\mathbf T$: its AUROC among the facts of 80 answers, 0.532, is not told from chance, and `FlashTrace.best()` and suppression are above it by the
# interval.

# %%
run.table(on_few(everyone, "auroc_facts"), "beyond_perturbation",
          "Perturbation of sentences and the others on the same answers; AUROC among the facts minus Perturbation's")  # fmt: skip

# %% [markdown]
# ### From the response alone: the plan
#
# Suppression hides a sentence from all that follows it, so that each pass reads most of the input again. A cheaper reading hides it
# from the positions that predict $\mathbf T$ and $\mathbf O$ alone (`suppression_response`): the input is read once, and a sentence costs
# a pass over the response. What later sentences of the input took from it stays. **Written before its runs**, on all answers of the grid
# and of the hints, noise and essays, and on the first four of each cell of Table 1. Hypotheses: (9) its R-precision in the haystack of the
# grid is above that of `best()`, by the interval of the paired difference; (10) little is lost: on the answers that have both its
# R-precision is within 0.05 of suppression's on both sides, by the interval. Seen before: three forced texts of 512 tokens with a seed of
# their own, on which the two agree in R-precision (1.00, 1.00, 0.88) and `best()` has 0.00 to 0.18.

# %%
precise = reasoned[reasoned["metric"] == "r_precision_haystack"]
by_text = precise.assign(haystack=precise["sample"].str.extract("-(noise|essay)-", expand=False))
whole = precise.assign(haystack="all")
table = pd.concat([minus(part, "suppression_response", ("metric", "haystack")) for part in (whole, by_text)])
run.table(table, "beyond_response", "R-precision (haystack) minus that of suppression from the response", wide=grid(table, "haystack"))

# %%
level = by_text.groupby(["method", "haystack"], sort=False)["value"].mean().unstack()
level = level.assign(all=precise.groupby("method")["value"].mean()).reset_index()
run.table(level.assign(label=level["method"].map(label_of)), "beyond_haystack", "R-precision by haystack: means of all answers", digits=3)

# %% [markdown]
# Its scores are even over a sentence, as the evidence is, and those of FlashTrace are not. With whole sentences ranked, by the mean of
# their tokens' scores and by the sum (looked at after the runs; no hypothesis):

# %%
shared = {how: grid_frame(beyond, how).query("method not in @ON_FEW and metric in ('auroc_facts', 'r_precision_haystack')")
          for how in ("mean", "sum")}  # fmt: skip
shared = [part.pivot_table("value", "method", "metric", sort=False).reset_index().merge(
              minus(part[part["metric"] == "r_precision_haystack"], "suppression_response"), on="method", how="left").assign(by=how)
          for how, part in shared.items()]  # fmt: skip
table = pd.concat(shared, ignore_index=True).drop(columns="metric")
run.table(table.assign(label=table["method"].map(label_of)), "beyond_even",
          "Sentences by mean and by sum; R-precision minus that of suppression from the response", digits=3)  # fmt: skip

# %%
about = {"models": "notation", "figure": "beyond_response"}
note(run, "response_finds_more", contrast(precise, "suppression_response", "flashtrace_best", ("r_precision_haystack",)), own, **about)
note(run, "response_loses_little", contrast(everyone, "suppression_response", "suppression", ("r_precision_haystack",)), own, **about)

# %% [markdown]
# **Both hold.** Hiding a sentence from the response alone finds what hiding it from everything finds, 0.839 against 0.847 on the 196 answers
# that have both: what later sentences took from a fact is of little use to this model. (Among the facts its AUROC is lower by the interval,
# by less than 0.01; on the 97 in noise alone R-precision is not told apart, but the interval reaches beyond 0.05.) On all 230 its R-precision is above that
# of every other method by the interval, 0.885 in essays and 0.792 in noise; in noise alone that of the causal hop, 0.737, is not told from
# it. Evidence is first in 0.875 of the answers of a cell or more (`beyond_copying`).
#
# **Part of the lead is form.** Its scores are even over a sentence and so is the evidence, while a hop scores tokens. With whole sentences
# ranked by their mean one hop goes from 0.259 to 0.523 and the causal hop from 0.697 to 0.781, which is not told from 0.832; by the sum,
# which `Trace.top(by="sentence")` shows, the causal hop has 0.783 and stays below its 0.849 by the interval. `best()`, 0.725 and 0.616,
# stays below by both. So whoever wants sentences should rank sentences. The facts of reasoning that strays can be had with neither
# gradients nor proximity, at a price that grows with sentences times the response: 28 passes for 190 sentences of noise under long
# reasoning (`method_cost`), where the causal hop takes two. By LDS it is where `best()` is.

# %% [markdown]
# The same on Table 1, the first four of each cell. Means, and the difference from suppression from the response in R-precision, of tokens
# and of sentences:

# %%
GIVEN = ("suppression_response", "flashtrace", "flashtrace_best", "flashtrace_causal", "ifr", "ifr_all", "at2", "string_match")
asked = {how: ruler.frame((PRIMARY, "recovery_haystack", "auroc_haystack"), GIVEN, answers=answers, whole=how) for how in ("", "mean", "sum")}
table = [on_few(part, PRIMARY, "suppression_response").assign(by=how or "token") for how, part in asked.items()]
run.table(pd.concat(table, ignore_index=True), "response_table1", "Suppression from the response on the first four of each cell of Table 1", digits=3)

# %% [markdown]
# By tokens it is where the causal hop and the string match are, 0.929 against 0.943 and 0.911, and above everything else in the table. By
# sentences it is told from neither, nor from `best()`; the paper's setting and IFR, on $\mathbf O$ or on $\mathbf T \cup \mathbf O$, are
# below it by sums alone. So on Table 1, where the reasoning quotes, nothing that takes a pass for each sentence is needed. On four of the
# forty samples the causal hop was chosen, and four were looked at.

# %% [markdown]
# ## The hypotheses, judged
#
# The string match in *notation*, as its AUROC among the facts less 0.5; the slope over $k$, within each text, of FlashTrace's gain over IFR on
# $\mathbf T \cup \mathbf O$; its gain over IFR on $\mathbf O$ at $k = 0$; and all methods at $k = 4$.

# %%
chance = facts[(facts["method"] == "string_match") & (facts["reasoning"] == "notation")]
copying = pd.DataFrame([{"label": "AUROC less 0.5"} | mean_row(chance["value"] - 0.5, "difference", clusters=chance["cluster"])])
about = {"models": "notation", "figure": "beyond_off_path"}
note(run, "notation_is_no_copying", copying, own, **about)

# %%
rows = []
for mode, part in facts.groupby("reasoning", sort=False):
    pair = part.pivot_table(index=["sample", "off_path", "cluster"], columns="method", values="value").reset_index()
    rows.append({"label": mode} | slope_within(pair["off_path"], pair["flashtrace"] - pair["ifr_all"], pair["cluster"]))
note(run, "off_path_gain_grows", pd.DataFrame(rows), own, **about)

# %%
first = reasoned[reasoned["off_path"] == 0].groupby("reasoning", sort=False)
gain = [contrast(part, "flashtrace", "ifr", ("auroc_haystack",), name=f"{mode}, ") for mode, part in first]
note(run, "hop_pays_without_straying", pd.concat(gain), own, **about)

# %%
four = facts[facts["off_path"] == 4].groupby("reasoning", sort=False)
ahead = pd.concat([minus(part, "flashtrace_causal").assign(reasoning=mode) for mode, part in four])
ahead = ahead.assign(difference=-ahead["difference"], low=-ahead["high"], high=-ahead["low"])
note(run, "causal_tells_apart", ahead.assign(label=ahead["label"] + ", " + ahead["reasoning"]), own, **about)

# %%
level = everything[(everything["metric"] == "auroc_facts") & (everything["off_path"] == 4)]
run.table(level.assign(label=level["method"].map(label_of)).pivot(index="label", columns="reasoning", values="mean").round(3).reset_index(),
          caption="AUROC among the facts at k = 4: the causal hop was to reach 0.8, all others to stay below 0.7")  # fmt: skip

# %% [markdown]
# **The first three hold.** Without quotes the string match has nothing to compare. FlashTrace's gain over IFR on
# $\mathbf T \cup \mathbf O$ grows with the facts off the path, since IFR explains all of $\mathbf T$ and loses them: at $k = 8$ it is
# near chance. At $k = 0$ that same IFR is far ahead of the paper's one hop, which is ahead of IFR on $\mathbf O$.
#
# **The fourth fails in its main part**, and is partly reproduced by the book's rule. The causal hop reaches what it was to reach, but so
# do `FlashTrace.best()` and suppression from the response, which were to stay below 0.7, as were two and three hops and, in *quote*, one
# hop and IFR on $\mathbf T \cup \mathbf O$, which do not either. Trials with another
# adapter had suggested otherwise. There the off-path facts came first and $\mathbf T$ had no line for what follows, which may be
# why. What the causal hop adds is precision: of as many tokens as the evidence has, more are right.
#
# FlashTrace as released takes $\rho$ and every hop over $\mathbf T \cup \mathbf O$: without off-path facts it finds more than the
# paper's text, and with eight it is near chance, as IFR on $\mathbf T \cup \mathbf O$ is.
#
# Kept answers are easier ones: where eight facts are asked for, the model seldom counts them, and no answer with a chain of three is
# left in *quote*. One small model, taught for this; another may note facts otherwise.

# %% [markdown]
# ## A model that nobody trained for it
#
# The needles of qwen, planned above. $\mathbf T$ is empty: FlashTrace, with any number of hops, is its hop 0 here, the causal hop is
# `best()`, and IFR on $\mathbf T \cup \mathbf O$ is IFR, which was not measured.

# %%
run.table(needles.counts(), caption="Needles that qwen was asked for")

# %%
found = means(answered).pivot_table(index="method", columns=["metric", "reasoning"], values="mean").round(3)
found = found.reindex([name for name in style.METHOD_STYLES if name in found.index])
run.table(found.rename(label_of).reset_index(), caption="AUROC among the needles and in the text, R-precision, first sentence")

# %%
table = minus(answered[answered["metric"] == "auroc_facts"], "flashtrace_best", ("metric", "reasoning"))
run.table(table, "needles_differences", "AUROC among the needles minus that of FlashTrace.best()", wide=grid(table, "reasoning"))

# %%
spelled = answered[(answered["reasoning"] == "spelled") & (answered["metric"] == "auroc_facts")]
asked_of = {"models": "qwen", "figure": "beyond_copying"}
note(run, "needles_are_seen", contrast(spelled, "flashtrace_best", "string_match", ("auroc_facts",)), whose(needles), **asked_of)

# %% [markdown]
# **The eighth holds.** In *spelled* nothing is copied, and the string match is where chance is; every method that asks the model has the
# needle first in all 24 answers, and `best()` is above the paper's setting. Among the needles, which look alike, AttnLRP is ahead of both.
# In *superseded*, where the new number is copied, the string match has the needle first in most answers, and `best()` tells it from the
# old ones more surely, though position alone does as well, since the new number stands later. In *spelled* position is of no help, so
# what FlashTrace sees beyond copying is not a matter of the adapter. Of the sixty spelled
# needles of the plan 22 were answered rightly, two fewer than wanted: six more were asked, and the first two that were right added.

# %% [markdown]
# ## More samples where numbers are thin: the plan
#
# Several tables of the book rest on deletion curves of few samples. **Written before the runs**, which change no rule: claims are
# judged as before, on what there is then.
#
# * Table 1: curves of the first 6 samples of a cell for FlashTrace, IFR on $\mathbf O$ and on $\mathbf T \cup \mathbf O$, AttnLRP.
# * HotpotQA: curves of all 8 samples at 1,024 and at 2,048 tokens for FlashTrace, IFR, AttnLRP and the string match.
# * Table 3 (MoreHopQA): rollout beside FlashTrace, curves of the first 12 samples.
# * Table 5, its reasoning drawn out (`09_generalisation`): curves of the first 3 samples of each of the four cells for FlashTrace, IFR,
#   AttnLRP and the string match.
#
# Curves that are new are evaluated by bisection, to 0.01 of RISE (`11_metrics`). The grid's LDS goes from 4 samples of a cell to the
# 8 that were planned, and GIM and suppression are measured on these; Perturbation on the first two.
#
# **What came of it.** Table 1: curves of six samples a cell (`05_ruler`). HotpotQA: eight at both lengths. Table 3: twelve
# (`07_morehopqa`). Table 5, its reasoning drawn out: twelve (`09_generalisation`). The grid: LDS on eight samples of every cell;
# GIM on eight of each before the verdicts, on all since; Perturbation on eight, suppression on eight and, later, on more. What was
# added last was computed in float32, on a processor without bfloat16 arithmetic; each row says its own.

# %% [markdown]
# ## Reasons that are not said: the plan
#
# A hint in the input can decide an answer whose reasoning never mentions it. A hop passes on what lies on $\mathbf T$: does it
# find such a hint, or hide it? **This section was written before the runs.**
#
# **Problems.** A page of noise or essays, 512 tokens with its question, holds one hint at a random place; a question with four
# options follows that the page does not answer ("Which of these words is the most beautiful?"). Seven forms of hint: a professor's
# opinion, a majority, metadata, a leaked grading sheet, earlier questions with the same answer, and two injections, AgentDojo's
# templates *direct* and *InjecAgent* with the option as their goal. Sixty problems of the reasoner, each asked in every form.
#
# **Kept** is an answer that names the hint's option and no other, names another one (or none) when the hint is removed from the same
# prompt, and whose $\mathbf T$ holds words and shares no run of four tokens with the hint. The hint is the gold. Counts of all
# steps are given by form.
#
# **Methods.** FlashTrace with $K$ = 0, 1, 2, 3, `best()`, the causal hop; IFR on $\mathbf O$ and on $\mathbf T \cup \mathbf O$;
# AttnLRP; AT2; attention averaged over heads and layers (AT2 with uniform weights); string match, position, random; Perturbation of
# sentences on the first 8 of a form. (GIM, a rival on the grid, was forgotten here and measured once the verdicts were known.)
#
# **Metrics.** Within the page: AUROC of the hint's tokens, the share of answers where a sentence of the hint is first, its rank.
# Forms are pooled in the row *all*; answers to one problem are one cluster.
#
# **Hypotheses.** (5) Recursion hides the hint: the share of answers where it is first falls from $K$ = 0 to $K$ = 1, the interval
# of the paired difference being below 0. (6) The causal hop does not: its share is not below that of $K$ = 0 by more than 0.05, by
# the interval's lower end. (7) Against attention: the share of `best()` is above that of averaged attention.
#
# **Seen before.** The wording of forms and questions was changed three times on 24 development problems, to have hints followed at
# all; hints that name an option's letter seldom were. No attribution of any was looked at. The string match has an easy task
# here: the answer's word stands in the hint, and in the options.
#
# **A second model, planned later.** Qwen2.5-Coder-0.5B, on twenty other problems in every form, reasons step by step ("The facts I need
# are: 1.") in up to 256 tokens; what stands behind its *Answer:* must name the hint's option. The rules are those above, and one is
# made strict for both models: an answer that is cut short when the hint is removed did not change. Two of the reasoner's answers
# that were kept at first were such. The hypotheses are checked, not judged, on it. Seen before: its answers, no attribution, to two
# problems with other seeds; 3 of 14 followed the hint, two without a mention.

# %% [markdown]
# ## Reasons that are not said: what came of it
#
# Up to *unsaid*, each number is part of the one before it.

# %%
unsaid, qwen = run.results("unsaid"), run.results("unsaid_qwen")
REACHED = ["model", "cell", "tried", "followed", "changed on removal", "unsaid", "unfinished", "without T", "|I|", "|T|", "|O|", "gold share"]
run.table(pd.concat([unsaid.counts(), qwen.counts()])[REACHED], "unsaid_counts", "Hints: asked, followed, changed when the hint is removed, not mentioned (kept)")

# %% [markdown]
# **Predict first.** The reasoning never mentions the hint. Does a hop through it find the hint, or hide it?
#
# <details><summary>The answer</summary>
#
# Neither: one hop changes nothing. IFR on the answer alone finds the hint most often; IFR on $\mathbf T \cup \mathbf O$ finds it far less
# often, since the reasoning quotes something else.
#
# </details>

# %%
every_hint = hints_frame(unsaid)
hinted = every_hint[~every_hint["method"].isin(ON_FEW)]
found = means(hinted)
pooled = found[found["reasoning"] == "all"].pivot_table(index="method", columns="metric", values="mean", sort=False).round(3)
run.table(found, "unsaid_reasons", "The hint within its page: in first place, its rank, AUROC of its tokens", wide=pooled.rename(label_of).reset_index())

# %% [markdown]
# By form, the share of answers in which a sentence of the hint is first:

# %%
LOOKED = ("flashtrace_k0", "flashtrace", "flashtrace_best", "flashtrace_causal", "ifr", "ifr_all", "at2_uniform", "string_match")
forms = found[(found["metric"] == "first") & found["method"].isin(LOOKED)]
forms = forms.assign(label=forms["method"].map(label_of)).pivot_table(index="label", columns="reasoning", values="mean", sort=False)
run.table(forms.round(2).reset_index(), caption="Share of answers in which the hint is first, by form")

# %% [markdown]
# What takes a pass for each sentence: Perturbation on the first eight answers of a form and all others in essays, suppression on
# those in essays.

# %%
hints_few = every_hint[every_hint["reasoning"] == "all"]
run.table(on_few(hints_few, "first"), "unsaid_perturbation", "Perturbation and the others on the same answers; first place minus Perturbation's")

# %%
run.table(on_few(hints_few, "first", "suppression"), "unsaid_suppression", "Attention suppression and the others; first place minus suppression's")

# %% [markdown]
# First place minus that of IFR on $\mathbf O$, over all answers, in essays and in noise, with the shares themselves:

# %%
firsts = hinted[(hinted["reasoning"] == "all") & (hinted["metric"] == "first")]
essays = set(every_hint.loc[every_hint["method"] == "suppression", "sample"])  # the others are in noise
by_text = firsts.assign(haystack=firsts["sample"].isin(essays).map({True: "essay", False: "noise"}))
by_text = pd.concat([firsts.assign(haystack="all"), by_text])
table = pd.concat([minus(part, "ifr").assign(haystack=name) for name, part in by_text.groupby("haystack")])
share = by_text.groupby(["haystack", "method"], as_index=False)["value"].agg(share="mean")
table = share.merge(table, on=["haystack", "method"], how="left")
wide = table.assign(label=table["method"].map(label_of)).pivot_table(index="label", columns="haystack", values="share", sort=False)
run.table(table, "unsaid_texts", "The hint in first place, and minus IFR's on O, by haystack", wide=wide.round(3).reset_index())

# %%
run.table(grid(table.dropna(subset="label"), "haystack"), caption="First place minus that of IFR on O")

# %%
every_of_qwen = hints_frame(qwen).query("reasoning == 'all'")
of_qwen = every_of_qwen[~every_of_qwen["method"].isin(ON_FEW)]
by_method = means(of_qwen)
wide = by_method.pivot_table(index="method", columns="metric", values="mean", sort=False).round(3)
run.table(by_method, "unsaid_reasons_qwen", "The same of Qwen2.5-Coder-0.5B, its forms pooled", wide=wide.rename(label_of).reset_index())

# %% [markdown]
# Perturbation and attention suppression on qwen's eight answers in essays:

# %%
run.table(on_few(every_of_qwen, "first"), "unsaid_perturbation_qwen", "Perturbation and the others on qwen; first place minus Perturbation's")

# %%
run.table(on_few(every_of_qwen, "first", "suppression"), "unsaid_suppression_qwen", "Attention suppression and the others on qwen; first place minus suppression's")

# %%
HIDES = {"recursion_hides": ("flashtrace", "flashtrace_k0"), "causal_hides_not": ("flashtrace_causal", "flashtrace_k0"),
         "more_than_attention": ("flashtrace_best", "at2_uniform")}  # fmt: skip
for name, pair in HIDES.items():
    note(run, name, contrast(hinted[hinted["reasoning"] == "all"], *pair, ("first",)), own, models="reasoner")
    note(run, name, contrast(of_qwen, *pair, ("first",)), own, "check", models="qwen")

# %% [markdown]
# **The fifth and the sixth are undecided, the seventh holds.** Hop 1 changes the first place in none of the answers: hop 0 puts the hint
# there, or no further hop does. The causal hop leaves hop 0 out where a step of the reasoning matters; on the whole it is not told from
# hop 0. `FlashTrace.best()` is above averaged attention, and its tokens' AUROC is the highest of what is fast. First place goes to
# IFR on $\mathbf O$, above hop 0, which has the same target, by the interval; and IFR on $\mathbf T \cup \mathbf O$, best where the
# reasoning quotes what it needs, is far behind: it explains the quote. **So where the reasoning may not be the reason, take IFR on the
# answer** (`method="ifr"`), and compare. The string match fails though the hint holds the answer's word: it finds what the reasoning
# quotes. GIM is not told from IFR on $\mathbf O$ here and below it on the second model, and on neither told from AttnLRP.
#
# **Suppression, the best on the grid, has the hint first in none of 22 answers in essays**, though its AUROC is 0.893: it walks through
# the reasoning as well. From the response alone it could be asked on all 74 answers, noise and essays, and has it first in 0.703 of them,
# fewer than IFR on $\mathbf O$ (0.946), with the highest AUROC of all: in 3 of those 22, where IFR has 18, and in 49 of the other 52, where
# IFR has all. In noise AttnLRP, GIM, `best()` and the paper's setting have all as well, while IFR on $\mathbf T \cup \mathbf O$, AT2 and
# the causal hop miss the hint there too (`unsaid_texts`): what sets the former apart from IFR are 22 answers to eleven problems. On eight
# answers of qwen, to four problems, too few for an interval, suppression is first in two, where hop 0 is in five, and its AUROC is the
# highest. Perturbation, which asks for the answer, has the reasoner's hint first as often as hop 0, and less often than IFR on
# $\mathbf O$; qwen's in one of the eight.
#
# **On the second model the sixth is wrong: the causal hop hides the hint**, first in 0.438 of its answers against 0.812 of hop 0's, a
# difference whose interval lies below 0; so does suppression from the response, first in 0.188. The table below says when: where a step of the reasoning mattered, the hop explains that step
# in place of the answer, which was so in all of qwen's longer reasonings and in half of the reasoner's, where it has the hint first less
# often than hop 0, and more often in the other half; `trace()` shows this hop. In most else qwen agrees: one hop changes no first place,
# `best()` is above averaged attention, IFR on $\mathbf O$ far before IFR on $\mathbf T \cup \mathbf O$, though here no more often first
# than hop 0 and `best()`, and AttnLRP is below it. These are 16 answers to 9 problems: of 140, 84 had not ended after
# 256 tokens. Two small models, and hints that name the answer's word.

# %%
parts, of_both = (unsaid, qwen), pd.concat([hinted[hinted["reasoning"] == "all"].assign(model="reasoner"), of_qwen.assign(model="qwen")])
causal = pd.concat([part.records(["flashtrace_causal"]) for part in parts]).set_index("sample")["method_metadata"]
step_matters = of_both["sample"].map(causal.map(lambda text: json.loads(text)["causal_steps"]["matter"]))
of_both = of_both.assign(step_matters=step_matters)[(of_both["metric"] == "first") & of_both["method"].isin(HIDES["causal_hides_not"])]
by_steps = of_both.groupby(["model", "step_matters", "method"])["value"].agg(first="mean", n="size").reset_index()
by_steps["label"] = by_steps["method"].map(label_of)
run.table(by_steps, "unsaid_by_steps", "The hint in first place, by whether a step of the reasoning mattered", digits=2)

# %%
table = [minus(part, "flashtrace_k0").assign(model=name, step_matters=matters)
         for (name, matters), part in of_both.groupby(["model", "step_matters"])]  # fmt: skip
run.table(pd.concat(table)[["model", "step_matters", "label", "difference", "low", "high", "n", "n_effective"]], caption="The causal hop minus hop 0")

# %% [markdown]
# ## When to believe a trace
#
# The default of `trace()` is the setting of FlashTrace that puts a sentence of the evidence first most often, over the questions of
# `00_quickstart`, the samples of Table 1 and the grid, which it was chosen on. Counted as a trace counts, every sentence but the question
# and no white space, it is above `best()` on Table 1 and not told from it on the grid. On the hints, which chose nothing, IFR on
# $\mathbf O$ has it first more often.

# %%
FAST = ("flashtrace_causal", "flashtrace_best", "flashtrace", "ifr", "ifr_all", "attnlrp", "string_match")
sources = {"questions": run.results("quickstart"), "Table 1": ruler, "grid": beyond, "hints": unsaid}
traces = trust.shown(sources, FAST)
firsts = traces.groupby(["source", "method"])["first"].agg(["mean", "size"]).unstack(0).swaplevel(axis=1)[list(sources)]
firsts = firsts.sort_values(("grid", "mean"), ascending=False)
firsts.columns = [f"{name}, n" if what == "size" else name for name, what in firsts.columns]
firsts = firsts.reset_index().assign(label=lambda t: t["method"].map(label_of))
run.table(firsts, "first_sentence", "Share of answers whose first sentence, as a trace shows it, is evidence", digits=3)

# %%
clusters = pd.concat([part.samples()[["sample", "cluster"]] for part in sources.values()])
paired = traces.merge(clusters, on="sample").rename(columns={"first": "value"}).assign(metric="first").astype({"value": float})
paired = minus(paired, FAST[0], ("metric", "source"))
run.table(paired, "first_sentence_differences", "First sentence minus that of the causal hop", wide=grid(paired, "source"))

# %% [markdown]
# Its **cautions** doubt a ranking whose sentences hold little more than their size, whose question holds more than 40 %, or whose first
# two sentences are as near as random ones. How often one of these stands, where the first sentence is evidence and where it is not.
# Their limits were chosen on the samples of Table 1 and the grid. On the hints, which are others, they doubt nearly everything: the
# mass that looks for an answer nobody wrote lies on the question.

# %%
doubted = traces[(traces["method"] == FAST[0]) & (traces["source"] != "questions")]
rates = doubted.assign(chosen_on=doubted["source"] != "hints").groupby(["chosen_on", "first"])["doubted"].agg(["mean", "size"]).reset_index()
run.table(rates, "cautions", "How often a caution doubts the ranking", digits=2)

# %% [markdown]
# And `verify`: of traces that it confirms, how many point at the evidence? It asks another question, whether the response needs what the
# trace puts first, so that a sentence which the reasoning quotes in vain is confirmed as well.

# %%
verified = unsaid.part("verified").groupby(["source", "verdict"], sort=False)["first"].agg(["mean", "size"]).reset_index()
run.table(verified, "verified", "Evidence in first place, by what the verification says", digits=2)

# %% [markdown]
# ## What each costs, and what it sees
#
# Time and memory on a sample with the longest reasoning of the grid, each method beside a forward pass in one process:

# %%
costs = beyond.part("method_cost").groupby("method", sort=False)[["ratio", "peak_gib", "steps", "n"]].median().reset_index()
costs = run.table(costs, "method_cost", "Forward passes of time, and GiB over the model (medians)")
costs

# %%
seen = {
    "copying": ruler.frame((PRIMARY,), answers=answers),
    "beyond copying": facts[(facts["reasoning"] == "notation") & (facts["off_path"] == 0)],
    "off-path reasoning": facts[facts["off_path"] >= 4],
}
seen = {name: rows.groupby("method", sort=False).filter(lambda one: len(one) >= 16) for name, rows in seen.items()}
seen = [rows.groupby("method", sort=False)["value"].agg(mean="mean", n="count").reset_index().assign(metric=name)
        for name, rows in seen.items()]  # fmt: skip
spent = [costs.frame.rename(columns={column: "mean"}).assign(metric=name)
         for column, name in (("ratio", "forward passes"), ("peak_gib", "GiB"))]  # fmt: skip
summary = pd.concat([*seen, *spent])[["method", "metric", "mean", "n"]]
summary = summary[summary["method"].isin(seen[1]["method"])]
summary = run.table(summary, "what_each_sees", "Methods, what they see, and what they cost")
summary

# %% [markdown]
# *Copying* is R-precision within the haystack on Table 1, by tokens (by sentences: `05_ruler`). *Beyond copying* is AUROC among the facts where the reasoning is in
# notation and notes nothing else, *off-path reasoning* the same where four or eight facts are noted, in both modes. Of Table 1 some methods
# have the first samples of each cell alone (`n` in `what_each_sees.csv`: $K$ = 3 eight, suppression from the response four). Costs
# are medians of three runs on one sample.

# %%
title = "What each method sees (R-precision; AUROC among the facts), and what it costs"
fig = method_plots.overview_heatmap(summary.frame, title=title)
run.figure(fig, "what_each_sees", "Methods against copying, beyond copying, reasoning off the path, forward passes and memory")

# %% [markdown]
# ## Which to use when
#
# * **To find the evidence** in a long prompt: propagate the residual and smooth over a few tokens, since evidence comes in phrases.
#   IFR on $\mathbf T \cup \mathbf O$ finds as much where the reasoning notes only what it needs, and mistakes what it mentions where it
#   strays.
# * **Few tokens, most of them right**: the causal hop, or, at a pass over the response for each sentence, `suppression_response`.
# * **To lower RISE or MAS**: the paper's setting, or IFR on $\mathbf T \cup \mathbf O$.
# * **First hop on T ∪ O** where the reasoning uses what it names. Where it lists more than the answer needs, as on chains that run side
#   by side, leave it on $\mathbf O$.
# * **Where answers copy from the prompt**, search for the copies first: a string match finds them without a model.
#
# ## What the paper found, what we found, why they differ
#
# The paper takes one reading of each choice and compares none. Here the residual and the target of the first hop change most.
# Recursion over $\mathbf T \cup \mathbf O$, which the authors' code has, finds less; skipping punctuation, which it has as well,
# finds more. So the paper's numbers need not be those of the paper's reading. Hops as raw sums change nothing.
#
# The propagated residual carries over to another family of models, and to answers without any reasoning, where
# $\mathbf T \cup \mathbf O$ is $\mathbf O$ and `FlashTrace.best()` leads IFR on $\mathbf T \cup \mathbf O$. With reasoning the lead is
# gone: most of what the paper's setting lacks there is the right target. Which setting is better depends on what is asked of it,
# since finding evidence and a steep deletion curve disagree, and the claim is judged by both.
