# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # RULER: does the attribution find the evidence?
#
# > **Question.** Do attributions rank the evidence first, and does FlashTrace find more of it than IFR, as the paper says?
# >
# > **Answer.** Not more than IFR: FlashTrace minus IFR is −0.014 in recovery. RISE is for IFR and MAS for FlashTrace, both by little
# > (`ruler_paired`). By tokens a string match, which asks no model, recovers 0.229 more of the needles than FlashTrace: this reasoner
# > quotes the evidence before it answers, and **the needles of Table 1 measure mostly copying**. **Of whole sentences it finds no
# > more over all cells**, and where chains stand side by side FlashTrace's R-precision is 0.514 above the string match's.
# >
# > **n.** 160 samples of 1,024 tokens, 16 in each of ten cells, all right answers of the model itself; 10 of them with deletion
# > curves of every method, 60 with those of FlashTrace, IFR and AttnLRP, 30 with ablations (LDS). No two share a record, so that
# > effective n is n. HotpotQA has samples of another model.
# >
# > **Figure.** `table1_recovery_pooled`: recovery by group of cells, beside the paper's.
#
# <!-- numbers: −0.014 = ruler_paired.csv[cell=all cells,metric=recovery].difference;
# 0.229 = ruler_against_string_match.csv[method=flashtrace,cell=needles,metric=recovery].difference;
# 0.514 = ruler_by_sentence_paired.csv[method=flashtrace,cell=h2_c3,by=sums].difference;
# 0.414 = ruler_by_sentence.csv[method=string_match,cell=h2_c3 by sums].mean;
# 0.586 = ruler_by_sentence.csv[method=flashtrace,cell=h2_c3 by tokens].mean;
# 0.928 = ruler_by_sentence.csv[method=flashtrace,cell=h2_c3 by sums].mean;
# 0.615 = ruler_by_sentence.csv[method=flashtrace,cell=needles by tokens].mean;
# 0.957 = ruler_by_sentence.csv[method=string_match,cell=needles by tokens].mean;
# 0.962 = ruler_by_sentence.csv[method=flashtrace,cell=needles by means].mean;
# 0.865 = ruler_by_sentence.csv[method=flashtrace,cell=needles by sums].mean;
# 0.981 = ruler_by_sentence.csv[method=string_match,cell=needles by means].mean;
# 0.967 = ruler_by_sentence.csv[method=string_match,cell=needles by sums].mean -->
#
# Section 5 and Table 1 of the paper. RULER hides *needles* (a fact such as "One of the special magic numbers for big-cat is:
# 1234567.") or *assignments* of variables in a long text, so that the evidence is known to the token. A good attribution ranks
# these tokens first, and masking what it ranks first destroys the answer fastest.
#
# A *cell* is one setting. Six cells ask for needles (`mq_q2` to `mq_q8`: several keys with one value each; `mv_v2` to `mv_v8`:
# one key with several values), four for chains of assignments (`h4_c1`: four hops, one chain; `h2_c3`: two hops, three chains).
# The benchmark puts a solved example of 500 tokens before each chain, which would take half of the haystack: it is left out.

# %% tags=["parameters"]
profile = "book"

# %%
import pandas as pd

from flashtrace_book import faithfulness as f
from flashtrace_book.ablations import contrast, grid, label_of, minus, note, whose
from flashtrace_book.beyond import ON_FEW, grid_frame
from flashtrace_book.figures import method_plots, style, tables
from flashtrace_book.results import CURVE, METRICS, RANKING
from flashtrace_book.run import start
from flashtrace_book.statistics import interval_text
from flashtrace_lib.evaluation import summarise

run = start(profile)
style.use_style()
ruler, documents, mathematics, questions, second = (
    run.results(name) for name in ("ruler", "hotpotqa", "math", "morehopqa", "generalisation")
)
answers = whose(ruler)

# %% [markdown]
# ## The samples
#
# The model (135 million parameters, trained to quote the evidence line by line before it answers) wrote every answer itself.
# A sample is kept where the answer came to its end and holds every value asked for (appendix E.4). Lengths are median tokens.

# %%
run.table(ruler.counts(), caption="RULER: problems tried, answers right, samples kept")

# %% [markdown]
# The beginning of a prompt with a chain of assignments, and its evidence:

# %%
first = ruler.attributions("flashtrace", cell="h4_c1")[0][0]
prompt = "".join(first.tokens[slice(*first.segments.prompt)])
gold = "".join(t if is_gold else "|" for t, is_gold in zip(first.tokens, first.gold.tolist(), strict=True))
print(f"{prompt[:240].strip()} …\n\nevidence:", *(passage.strip() for passage in gold.split("|") if passage.strip()), sep="\n")

# %% [markdown]
# ## The metrics
#
# **Recovery rate** (appendix F.1) is the share of the evidence $S_{gt}$ among the tenth of the input that is ranked highest.
# **R-precision** takes as many tokens as there is evidence, and **AUROC** asks how often a token of the evidence $G$ scores
# higher than another one of $N$:
#
# $$\text{Recovery} = \frac{|S_{top} \cap S_{gt}|}{|S_{gt}|},\quad |S_{top}| = \lfloor 0.1\,|\mathbf I| \rfloor, \qquad
# \text{AUROC} = \frac{1}{|G|\,|N|} \sum_{g \in G} \sum_{n \in N} \big(\mathbb 1[a_g > a_n] + \tfrac12 \mathbb 1[a_g = a_n]\big) .$$
#
# *In the haystack* means without question and instructions. Tied scores count by expectation over their orders.
#
# **RISE** and **MAS** (appendix F.2) mask the input in $K = 20$ steps, the most important tokens first, and follow the
# log-probability $s_k$ of the whole response. With $d_k$ the mass that is still unmasked,
#
# $$r_k = \min_{j \le k} \mathrm{clip}\Big(\frac{s_j - s_K}{s_0 - s_K}, 0, 1\Big), \qquad
# \text{RISE} = \int r, \qquad \text{MAS} = \int \operatorname{minmax}\big(\mathrm{clip}(r + |r - d|, 0, 1)\big) .$$
#
# Lower is better in both. **LDS** ablates half of the sentences at random, 64 times (Park et al. 2023; Cohen-Wang et al. 2024):
# the rank correlation of what the scores predict with $f(m)$, the logit of the response,
#
# $$\text{LDS} = \text{Spearman}_m\Big(\sum_u m_u a_u,\; f(m)\Big), \qquad m_u = 1 \text{ where sentence } u \text{ is kept.}$$
#
# ## How far recovery can go
#
# Where the evidence is longer than a tenth of the input, no ranking recovers all of it: recovery has a *cap*. `share` is the
# share of samples of which this holds. R-precision has no such cap.

# %%
frame = f.shared_samples(ruler.frame(METRICS, f.METHODS, answers=answers))
WIDER = ("flashtrace", "ifr", "ifr_all", "attnlrp")  # methods with deletion curves of more samples
curved = f.shared_samples(ruler.frame(CURVE, WIDER, answers=answers))
run.table(f.caps(frame), caption="Evidence as a share of I, samples where it exceeds a tenth of I, and the highest mean recovery")

# %% [markdown]
# ## HotpotQA
#
# The eleventh column of Table 1 has real questions over two paragraphs among others, answered by Qwen2.5-Coder-0.5B, since the
# reasoner was trained on RULER alone. Recovery is measured on right answers that it gives at once (`_direct`, where $\mathbf T$
# is empty and FlashTrace is a single hop). RISE and MAS are measured on its first finished answers, right or wrong, for which it
# was asked to think first; in those where it answers at once all the same, $\mathbf T$ is empty too.

# %%
run.table(documents.counts(), caption="HotpotQA: questions tried, answers right, samples kept; median tokens")

# %%
theirs = whose(documents)
found = documents.frame(RANKING, f.METHODS, cell="hotpotqa_1024_direct", answers=theirs, right=True)
deleted = {n: f.widely_measured(documents.frame(CURVE, f.METHODS, cell=f"hotpotqa_{n}", answers=theirs)) for n in (1024, 2048)}
hotpotqa = pd.concat([found, deleted[1024]], ignore_index=True).assign(cell="hotpotqa")
for n, part in deleted.items():
    each = part.drop_duplicates("sample")
    print(f"{n} tokens: {len(each)} answers with curves, T empty in {(each['n_reasoning'] == 0).sum()} of them")

# %% [markdown]
# ## Table 1
#
# Mean, 95 % interval, and in round brackets what the paper prints for Qwen3-8B (of a group, the mean over its cells). Bold only
# where the intervals of the best two do not overlap. *IFR on T ∪ O* is IFR with the target that RISE scores; *mean pooling* and
# *last token* are FlashTrace with simpler targets (`10_ablations`); *AT2* is attention with weights that were fitted on this very
# model; `FlashTrace.best()` is ours (`12_better_flashtrace`). The controls ask no model: *string match* scores a token of the
# input by the longest run of tokens through it that recurs in $\mathbf T \cup \mathbf O$, *position* prefers what stands last.
#
# *Predict first.* How will the string match compare with the methods in recovery, and how in RISE?
#
# <details><summary>Answer</summary>
#
# On RULER it is ahead of all of them in recovery, and behind most in RISE. The reasoning quotes the evidence, so that a
# comparison of strings finds it. RISE rewards other things as well, such as masking the question early (`11_metrics`).
#
# </details>

# %%
TABLE = ("recovery", *CURVE)
table = f.table_1(frame[frame["metric"].isin(TABLE)], hotpotqa[hotpotqa["metric"].isin(TABLE)])
panels = {"needles": "needles", "chains": "chains", "all cells": "all ten cells", "hotpotqa": "HotpotQA (qwen)"}
wide = tables.wide_table(table, cells=[cell for cell in panels if cell in set(table["cell"])])
table1 = run.table(table, "table1_ruler", "Attribution quality on RULER and HotpotQA (paper: Table 1)", wide=wide)
table1

# %%
stamp = "RULER: SmolLM2-135M + adapter; HotpotQA: Qwen2.5-Coder-0.5B; own answers; whiskers: 95 % t interval"
fig = method_plots.pooled_dots(table1.frame, "recovery", panels, title="Recovery of the evidence in the top tenth of the input")
run.figure(fig, "table1_recovery_pooled", "Recovery rate on RULER by group, and on HotpotQA, beside the paper's", stamp=stamp)

# %%
fig = method_plots.pooled_dots(table1.frame, "rise", panels, title="RISE: area under the deletion curve")
run.figure(fig, "table1_rise_pooled", "RISE on RULER by group, and on HotpotQA, beside the paper's", stamp=stamp)

# %% [markdown]
# ## Every metric, all ten cells together
#
# Where columns disagree about the order of the methods, a verdict depends on the metric.

# %%
overview = tables.comparison_table(summarise(frame.assign(cell="all cells"), f.BY))
wide = tables.interval_grid(overview.assign(method=overview["method"].map(label_of)), "method", "metric", "mean", ".2f")
overview = run.table(overview, "ruler_metrics", "Every metric on RULER, all ten cells together", wide=wide)
overview

# %%
fig = method_plots.overview_heatmap(overview.frame, title="Every metric on RULER, all ten cells together")
run.figure(fig, "ruler_metrics", "Eight metrics of every method on RULER", stamp="SmolLM2-135M + adapter, own answers")

# %% [markdown]
# ## FlashTrace against IFR, sample by sample
#
# Both see the same samples, so that the paired difference is sharper than two intervals. Above 0 is more evidence (recovery,
# R-precision, AUROC, LDS) or a *worse* deletion score (RISE, MAS).

# %%
SHOWN = ["recovery", "r_precision_haystack", "lds", *CURVE]
pooled = f.in_groups(frame)
two = f.in_groups(pd.concat([frame[~frame["metric"].isin(CURVE)], curved]))
paired = f.minus_by_cell(two[two["method"].isin(["flashtrace", "ifr"])], "ifr")
wide = grid(paired[paired["metric"].isin(SHOWN)], index="cell")
run.table(paired, "ruler_paired", "FlashTrace minus IFR on the same samples", wide=wide)

# %% [markdown]
# ## Every method against the string match
#
# The needles and chains of this reasoner are quoted in its reasoning. Below 0 a method finds less than comparing strings does.

# %%
copying = f.minus_by_cell(pooled[pooled["cell"].isin(f.GROUPS)], "string_match")
wide = grid(copying[copying["metric"].isin(SHOWN) & (copying["cell"] != "all cells")], index=["cell", "label"])
run.table(copying, "ruler_against_string_match", "Every method minus the string match on the same samples", wide=wide)

# %% [markdown]
# No method recovers more of the needles than the string match does: **for this reasoner the needles of Table 1 measure mostly
# copying.** On chains `FlashTrace.best()` is ahead of it in R-precision within the haystack, and IFR on T ∪ O not behind. In RISE and MAS most
# methods are better than the string match. It ranks the question lower than they do, since the reasoning does not quote it, and a
# good RISE goes with the question ranked first as well as with the evidence (`11_metrics`). The second model answers at once and
# quotes values alone; there the string match finds less than FlashTrace (`09_generalisation`).

# %% [markdown]
# ## By tokens or by sentences
#
# The evidence is sentences whole, and so is what a string match finds in a reasoning that quotes them. A method that looks inside the model
# gives most of a sentence's score to a few of its words, the number or the name, and loses R-precision for each of the others. A reader
# who is shown sentences loses nothing by that. So once more, with whole sentences ranked, for every method alike: by the *mean* of their
# tokens' scores, and by the *sum*, which `Trace.top(by="sentence")` shows. By the sum a long sentence of many small scores can pass a
# short one. *The evidence* is a ranking that knows it: less than 1 where a sentence ends in a line break that is none. This was looked at
# when all runs were done, and stands beside the claim.
#
# *Predict first.* Which methods gain most, and does the string match stay ahead?
#
# <details><summary>Answer</summary>
#
# AttnLRP, IFR and FlashTrace, which score single words, gain most. Of needles the string match stays ahead, by little with means; where
# several chains stand side by side it stays at 0.414, and FlashTrace goes from 0.586 to 0.928.
#
# </details>

# %%
units = f.by_unit(ruler, answers)
level = f.in_order(f.in_groups(units)).assign(cell=lambda rows: rows["cell"] + " by " + rows["unit"])
level = tables.comparison_table(summarise(level, f.BY))
panels = {f"needles by {unit}": f"needles,\nby {unit}" for unit in f.UNITS} | {"h2_c3 by sums": "three chains,\nby sums"}
drawn = level[level["cell"].isin([*panels, "h2_c3 by tokens", "h2_c3 by means"])]
wide = tables.interval_grid(drawn.assign(method=drawn["method"].map(label_of)), "method", "cell", "mean", ".3f")
by_unit = run.table(level, "ruler_by_sentence", "R-precision within the haystack: tokens, and sentences by mean and by sum", wide=wide)
by_unit

# %%
shown = by_unit.frame[by_unit.frame["method"] != "evidence"]
title = "R-precision within the haystack of tokens, and of sentences by mean and by sum"
fig = method_plots.pooled_dots(shown, "r_precision_haystack", panels, title=title)
whiskers = "SmolLM2-135M + adapter, own answers; whiskers: 95 % t interval"
run.figure(fig, "ruler_by_sentence", "What the unit of a ranking does to R-precision on RULER", stamp=whiskers)

# %%
sentences = units[(units["unit"] != "tokens") & (units["method"] != "evidence")]
copying = {how: f.minus_by_cell(f.in_groups(part), "string_match") for how, part in sentences.groupby("unit", sort=False)}
copying = pd.concat([part.assign(by=how) for how, part in copying.items()], ignore_index=True)
picked = copying[copying["cell"].isin(["needles", "h2_c3", "all cells"])]
wide = grid(picked.assign(column=picked["cell"] + ", " + picked["by"]), "column")
run.table(copying, "ruler_by_sentence_paired", "By sentences: every method minus the string match on the same samples", wide=wide)

# %% [markdown]
# **Over all cells the string match's lead is gone.** By means FlashTrace and IFR are above it by the interval, by sums not told from it;
# `FlashTrace.best()` is above it by both. It stays ahead on needles, where FlashTrace goes from 0.615 to 0.962 by means and 0.865 by sums,
# and the string match from 0.957 to 0.981 and 0.967. On single chains all of these are as good as the evidence itself. Where three chains
# stand side by side IFR and FlashTrace are that too, 0.928, while the string match, IFR on T ∪ O and AT2 mark all three.
#
# So the recovery rate by tokens, which Table 1 reports, rewards scores that lie evenly on a sentence, and much of what sets the methods
# apart there is not whether they find the evidence. By sentences single chains do not tell good methods apart, and needles by what is
# small; chains side by side do, and so does the grid at the end of this chapter.

# %% [markdown]
# ## Every method against chance, and against FlashTrace
#
# A method that does not beat a random ranking on the same samples says nothing there.

# %%
chance = minus(frame, "random")
run.table(chance, "ruler_against_random", "Every method minus the random ranking", wide=grid(chance[chance["metric"].isin(SHOWN)]))

# %%
every_curve = ruler.frame(CURVE, f.METHODS, answers=answers)  # n differs by method, and the table says it
rivals = minus(pd.concat([frame[~frame["metric"].isin(CURVE)], every_curve]), "flashtrace")
run.table(rivals, "ruler_against_flashtrace", "Every method minus FlashTrace", wide=grid(rivals[rivals["metric"].isin(SHOWN)]))

# %% [markdown]
# ## Costly methods, and others on one sample a cell
#
# Most take a pass for every unit, or several, and all stand on the first sample of each cell alone, without deletion curves; each
# minus FlashTrace on these samples. Perturbation and CLP change one sentence at a time, ReAGent many (one run of it). The
# rollout goes back through the reasoning until nothing is left on it, CAGE sentence by sentence. Attention suppression measures
# what each sentence loses when an earlier one cannot be attended to. ContextCite fits 32 ablations.

# %%
dear = f.shared_samples(ruler.frame((*RANKING, "lds"), ("flashtrace", "ifr", "string_match", *f.COSTLY), answers=answers))
costly = minus(dear, "flashtrace")
wide = grid(costly[costly["metric"].isin(["recovery", "r_precision_haystack", "auroc_haystack", "lds"])])
run.table(costly, "ruler_costly", f"Costly methods minus FlashTrace, n = {costly['n'].max()}", wide=wide)

# %% [markdown]
# ## The claims
#
# Own answers decide: right ones for recovery and its kind, all for RISE, MAS and LDS. Other metrics of the same question are
# checks, turned so that they point the same way; so are IFR on T ∪ O and the string match.

# %%
about = {"models": "reasoner", "figure": "ruler_paired"}
parts = {group: frame[frame["cell"].isin(cells)] for group, cells in f.GROUPS.items()}
everything = {"RULER": parts.pop("all cells")}
others = [f.leads(parts, ["ifr"], METRICS[1:]), f.leads(parts, ["ifr_all", "string_match"], ["recovery"])]
note(run, "ruler_recovery", pd.concat(others), answers, "check", **about)
note(run, "ruler_recovery", f.leads(parts, ["ifr"], ["recovery"]), answers, **about)

# %% [markdown]
# Three times what IFR recovers cannot be reached where IFR recovers more than a third. R-precision has no cap by the length of
# the evidence, but IFR's is above a third as well; so the check asks for once as much.

# %%
chains = parts["chains"]
tripled = chains.assign(value=chains["value"].where(chains["method"] != "ifr", 3 * chains["value"]))
once = contrast(chains, "flashtrace", "ifr", ["r_precision_haystack"], name="minus once IFR's, ")
note(run, "chains_three_times", once, answers, "check", **about)
thrice = contrast(tripled, "flashtrace", "ifr", ["r_precision_haystack"], name="minus three times IFR's, ")
note(run, "chains_three_times", thrice, answers, **about)

# %%
every = {"RULER": pd.concat([frame, dear]).drop_duplicates(["sample", "cell", "method", "metric"])}
about = {"models": "reasoner", "figure": "ruler_against_flashtrace"}
others = [f.leads(every, f.BASELINES, ["r_precision", "r_precision_haystack"]), f.leads(every, ["string_match"], ["recovery"])]
note(run, "ruler_recovery_all", pd.concat(others), answers, "check", **about)
note(run, "ruler_recovery_all", f.leads(every, f.BASELINES, ["recovery"]), answers, **about)

# %%
for metric in CURVE:
    beside = [name for name in ("lds", *CURVE) if name != metric]
    whole = {"RULER": pd.concat([curved, everything["RULER"].query("metric == 'lds'")])}
    groups = {name: curved[curved["cell"].isin(part["cell"])] for name, part in parts.items()}
    others = [f.leads(whole, ["ifr", "attnlrp"], beside, above=False), f.leads(groups, ["ifr", "attnlrp"], [metric], above=False)]
    note(run, f"ruler_{metric}", pd.concat(others), answers, "check", **about)
    note(run, f"ruler_{metric}", f.leads(whole, ["ifr", "attnlrp"], [metric], above=False), answers, **about)

# %%
about = {"models": "qwen", "figure": "table1_ruler"}
of_qwen = second.frame(METRICS, f.METHODS, cell=list(f.GROUPS["all cells"]), answers=whose(second))
others = [f.leads({"HotpotQA 2048": deleted[2048]}, ["ifr"], CURVE, above=False), f.margin_beyond(deleted[1024], of_qwen, CURVE)]
others += [f.leads({"HotpotQA 1024": found}, ["ifr"], ["recovery", "r_precision"], above=False)]
note(run, "hotpotqa_margin", pd.concat(others), theirs, "check", **about)
note(run, "hotpotqa_margin", f.leads({"HotpotQA 1024": deleted[1024]}, ["ifr"], CURVE, above=False), theirs, **about)

# %%
sums = mathematics.frame(CURVE, f.METHODS, answers=whose(mathematics))
real = {"mathematics": sums, "MoreHopQA": questions.frame(CURVE, f.METHODS, answers=whose(questions))}
about = {"models": "reasoner, qwen", "figure": "ruler_against_random"}
others = [f.leads(everything, ["random"], ["r_precision", "auroc_haystack", "lds"]), f.leads({"HotpotQA": hotpotqa}, ["random"], TABLE)]
others += [f.leads({cell: part}, ["random"], CURVE) for cell, part in sums.groupby("cell", sort=False)]
note(run, "beats_random", pd.concat(others), answers, "check", **about)
note(run, "beats_random", pd.concat([f.leads(everything, ["random"], TABLE), f.leads(real, ["random"], CURVE)]), answers, **about)

# %%
IN_HAYSTACK = ["recovery_haystack", "r_precision_haystack"]
about = {"models": "reasoner, qwen", "figure": "ruler_against_string_match"}
both = {"reasoner": everything["RULER"], "qwen": of_qwen}
others = [f.leads(both, ["string_match"], ["auroc_haystack"]), f.leads(parts | {"HotpotQA": hotpotqa}, ["string_match"], IN_HAYSTACK)]
named = {f"by sentences' {how}": part for how, part in sentences.groupby("unit", sort=False)}
note(run, "beats_copying", f.leads(named, ["string_match"], ["r_precision_haystack"]), answers, "beside", **about)
note(run, "beats_copying", pd.concat(others), answers, "check", **about)
note(run, "beats_copying", f.leads(both, ["string_match"], IN_HAYSTACK), answers, **about)

# %% [markdown]
# ## The same on problems that separate copying from reading
#
# In the grid of `12_better_flashtrace` a dozen facts of one form stand in the haystack, of which one to three matter. Its cell of
# reasoning that *quotes* only what is needed is Table 1 again. In *notation* the same problems are reasoned about without a word
# of the evidence. R-precision within the haystack, and AUROC among the facts, where the distractors look like the evidence:

# %%
reasoned = grid_frame(run.results("beyond"))
alike = reasoned[(reasoned["off_path"] == 0) & reasoned["metric"].isin(("r_precision_haystack", "auroc_facts"))]
alike = alike[~alike["method"].isin(ON_FEW)]  # which are on some of the answers (12)
alike = alike.assign(label=alike["method"].map(label_of), column=alike["reasoning"] + ", " + alike["metric"])
run.table(alike.pivot_table(index="label", columns="column", values="value", sort=False).round(3).reset_index(),
          caption="Quoted and not quoted, no facts off the path: means")  # fmt: skip

# %% [markdown]
# Where the reasoning quotes, the string match has more of the evidence than most fast methods; where it does not, it is at chance, and the
# methods that look inside the model lose little in AUROC, and at most about a quarter of their R-precision. So its lead on Table 1 says what this reasoner
# writes, not what attribution cannot see.

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# The paper reports that FlashTrace recovers more evidence than IFR in nine of ten cells, and three to five times as much on
# chains, with a lower RISE in eight of ten. Here:

# %%
for row in paired[(paired["cell"] == "all cells") & paired["metric"].isin(TABLE)].itertuples():
    print(f"{row.metric}: FlashTrace minus IFR {row.difference:+.3f} {interval_text(row.low, row.high)}, n = {row.n}, better: {row.better}")
cells = paired[~paired["cell"].isin(f.GROUPS)].pivot(index="cell", columns="metric", values="difference")
print(f"means of single cells: more recovered than IFR in {(cells['recovery'] > 0).sum()} of {len(cells)}, "
      f"lower RISE in {(cells['rise'] < 0).sum()}, lower MAS in {(cells['mas'] < 0).sum()}")

# %% [markdown]
# On HotpotQA, where the paper calls its margin over IFR especially pronounced, FlashTrace's RISE and MAS are lower in the mean of eight
# answers at either length: MAS by intervals that exclude 0 at both, RISE at 2,048 tokens alone. Of the evidence it finds no more
# than IFR, and the string match, within the haystack, less: nothing is quoted there.
#
# On the ten cells of own answers FlashTrace's RISE is about .004 *higher* than IFR's, which is worse, and its recovery lower. It is
# ahead in MAS (by the interval in six cells, six samples each; in RISE in none, and behind in three), and on chains in AUROC in the
# haystack. LDS tells the two not apart. What explains $\mathbf T$ together with
# $\mathbf O$ finds far more than either: IFR on T ∪ O, AT2, and of the costly methods attention suppression and the rollout.
# `FlashTrace.best()` finds more than the paper's setting, and its RISE is worse: to find the evidence and to lower the
# likelihood fastest are two things (`11_metrics`). The last token alone recovers less than a random ranking.
#
# FlashTrace beats a random ranking on RULER, on HotpotQA and on MoreHopQA. On mathematics it does not: in MAS the random ranking is ahead (`06_math`).
#
# Reasons why these numbers need not agree with the paper's, in the order in which we think they matter:
#
# * **The model.** 135 million parameters instead of eight billion, taught to quote the evidence before it answers. Its reasoning
#   is short and names every fact; the paper's is long and exploratory. That is why a string match does so well.
# * **Little mass on the reasoning.** Hop 0 leaves a fifth of its mass on $\mathbf T$, where the paper reports four fifths
#   (`01_pilot_study`), and a hop can add only what reaches the reasoning.
# * **Few deletion curves**: six a cell, of most methods one. The paper has a hundred samples a cell.
# * **AttnLRP on Qwen3.** Its authors warn that there it is "skewed toward first token" (README of their library, LXT). The
#   reasoner is of the Llama family.
# * **One masking rule for all.** The paper scores FlashTrace with a rule that spares punctuation and the baselines without it.
