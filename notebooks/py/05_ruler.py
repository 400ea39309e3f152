# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # RULER: does the attribution find the evidence?
#
# > **Question.** Do attributions rank the evidence first, and does FlashTrace find more of it than IFR, as the paper
# > says?
# >
# > **Answer.** Not more than IFR. At the paper's length (profile evidence) FlashTrace minus IFR is −0.009 in recovery and
# > −0.012 in R-precision, both for IFR; in RISE, +0.002, the two cannot be distinguished, and FlashTrace's MAS is lower
# > by 0.017. The sum of the target's states finds less than the mean of single rows (mean pooling +0.058), and the hop
# > wins back as much. What explains $\mathbf T$ together with $\mathbf O$ finds far more: IFR on T ∪ O +0.210 in recovery;
# > of the costly methods attention suppression (+0.263) and the exhaustive rollout (+0.140) find more, CLP less (−0.268),
# > Perturbation about as much. In the short prompts of profile laptop FlashTrace leads in recovery, +0.047, and IFR in
# > R-precision, −0.037: there the evidence is longer than a tenth of most inputs, which caps recovery.
# >
# > **n.** Profile evidence: 176 samples of 1024 tokens, 16 in each of 11 cells, ablations on 33 of them, deletion curves and
# > costly methods on 11. Profile laptop: 22 samples, two per cell; n = 21 independent ones pooled.
# >
# > **Figure.** `table1_recovery_pooled`: recovery by group of cells, beside the paper's.
#
# Section 5 and Table 1 of the paper. RULER hides *needles* (a fact such as "One of the special magic numbers for
# big-cat is: 1234567.") or *variable assignments* in a long text, so that the evidence is known to the token. A good
# attribution ranks these tokens first, and masking the tokens that it ranks first destroys the answer fastest.
#
# A *cell* is one setting of the task. Six cells ask for needles (`mq q2 … q8`: several keys with one value each;
# `mv v2 … v8`: one key with several values), four for chains of assignments (`h4 c1`: four hops, one chain; `h2 c3`: two
# hops, three chains). The last cell is HotpotQA in RULER's form: a question over two paragraphs among others, as many as
# the length allows. Its evidence is the sentences that support the answer; the profile `paper` takes their whole
# paragraphs, which is the paper's definition (appendix E.1). In profiles without real records its records are synthetic.
#
# The benchmark puts a solved example of about 500 tokens in front of each chain of assignments. At 1,024 tokens it would
# take half of the haystack, at the lengths of `smoke` and `laptop` all of it, so that every profile but `paper` goes without it
# (`one_shot: false`); `paper` has it where it leaves room.

# %% tags=["parameters"]
profile = "laptop"

# %%
import pandas as pd

from flashtrace_book import statistics
from flashtrace_book.evaluations import CURVE, evaluate_all
from flashtrace_book.experiments import reasoning_tasks
from flashtrace_book.experiments.recursion import recovery_by_hops
from flashtrace_book.figures import method_plots, style, tables
from flashtrace_book.figures.curves_page import curves_page
from flashtrace_book.figures.mass import mass_frame
from flashtrace_book.methods import profile_methods
from flashtrace_book.profiles import load_profile
from flashtrace_book.run import start
from flashtrace_book.samples import (
    ALL,
    all_samples,
    brief,
    cell_group,
    count_table,
    in_groups,
    mark_cells,
    pooled_cells,
    ruler_collections,
    ruler_setting,
    stored_attributions,
)
from flashtrace_lib import FlashTrace
from flashtrace_lib.evaluation import audit, summarise
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.metrics.intervals import interval_text
from flashtrace_lib.store import Store

run = start(profile)
run.versions()

# %%
model, tokenizer = run.load_model()
style.use_style()

# %% [markdown]
# ## The samples
#
# The model answers every prompt itself, greedily. A sample is kept when the response came to its end and holds every
# value asked for (appendix E.4). Where the model fails a cell — none right among the first ten, or fewer than half of
# the samples wanted among all that were tried — the reference reasoning and answer are *teacher-forced*: the model reads
# them as if it had written them. These cells are marked ‡ wherever they appear: there the attribution explains why the
# model would give an answer that it did not find by itself. On real records the model's own responses are used, right or
# wrong (§).

# %%
cells = ruler_collections(run, model, tokenizer)
cells["hotpotqa"] = reasoning_tasks.hotpotqa_collection(run, model, tokenizer)
samples = all_samples(cells)
counts = count_table(cells)
setting = ruler_setting(run.profile)
run.table(counts, "ruler_samples", f"RULER samples: what was tried, kept and dropped. Lengths are median tokens. {setting}")
print(setting)
brief(counts)

# %% [markdown]
# The beginning of one prompt with a chain of assignments, and its evidence, one line per assignment:

# %%
first = next((sample for sample in samples if cell_group(sample.metadata["cell"]) == "chains"), samples[0])
prompt = "".join(first.tokens[slice(*first.segments.prompt)])
gold = "".join(t if is_gold else "|" for t, is_gold in zip(first.tokens, first.gold.tolist(), strict=True))
print(f"{prompt[:240].strip()} …\n\nevidence:", *(passage.strip() for passage in gold.split("|") if passage.strip()), sep="\n")

# %% [markdown]
# ## The methods and the metrics
#
# **FlashTrace** explains $\mathbf O$ (hop 0), then the mass $\rho_0$ that hop 0 left on the reasoning (hop 1):
# $\mathbf s = \mathbf w^{(0)}_{\mathbf I} + \rho_0 \mathbf w^{(1)}_{\mathbf I}$ (`03_recursion`). **IFR** averages the
# single-token rows of $\mathbf O$; **AttnLRP** is the relevance
# $\langle \mathbf e_j, \partial\,\text{logit} / \partial \mathbf e_j \rangle$ by a backward pass with modified rules
# (`01_pilot_study`), and **GIM** is relevance with other rules, above all with the slope of the softmax taken at
# temperature 2. **AT2** is attention, weighted by head $h$ and layer $l$ with weights $\theta$ that were fitted once for
# this model, $a_j = \sum_{l,h} \theta_{lh}\, \text{mean}_i\, \alpha^{lh}_{ij}$, with the mean over the positions $i$ that
# predict a token of $\mathbf T \cup \mathbf O$.
#
# **Recovery rate** (appendix F.1) is the share of the evidence tokens among the tenth of the input that is ranked
# highest:
#
# $$\text{Recovery} = \frac{|S_{top} \cap S_{gt}|}{|S_{gt}|},\qquad |S_{top}| = \lfloor 0.1\,|\mathbf I| \rfloor .$$
#
# Where the evidence is longer than a tenth of the input no ranking reaches 1; the *cap* is the highest value that can be
# reached. **R-precision** (the top $|S_{gt}|$ tokens) has no cap.
#
# **RISE** and **MAS** (appendix F.2) mask the input in $K = 20$ steps, most important tokens first, and follow the
# log-probability $s_k$ of the whole response:
#
# $$r_k = \min_{j \le k} \mathrm{clip}\Big(\frac{s_j - s_K}{s_0 - s_K}, 0, 1\Big), \qquad
# \text{RISE} = \int r, \qquad \text{MAS} = \int \operatorname{minmax}\big(\mathrm{clip}(r + |r - d|, 0, 1)\big),$$
#
# where $d_k$ is the attribution mass that is still unmasked. RISE is the area under the response; MAS adds its gap to
# the mass. Lower is better. A sample whose likelihood masking does not lower is *flagged* and gets the worst value, 1,
# from every method. Where all scores of a method are equal they rank nothing: the sample is flagged for this method, and
# gets the value of a random ranking (of recovery and R-precision the expected one).
#
# None of these says whether the *order* of the evidence is right beyond one cut, and a tenth of a short input is mostly
# question. So more stand beside them. Without a forward pass, with $a$ the scores, $G$ the gold tokens and $N$ the
# others:
#
# $$\text{AUROC} = \frac{1}{|G|\,|N|} \sum_{g \in G} \sum_{n \in N} \big(\mathbb 1[a_g > a_n] + \tfrac12 \mathbb 1[a_g = a_n]\big),$$
#
# $$\text{AP} = \frac{1}{|G|} \sum_{g \in G} \text{precision down to } g, \qquad
# \text{MRR} = \frac{1}{\text{rank of the first gold sentence}},$$
#
# the share of evidence sentences on top (**sentence hit**), and whether the highest token is evidence (**pointing**);
# each also over the haystack alone, the question and the instructions left out. With forward passes that all methods
# share: **LDS**, the rank correlation over 64 random ablations of half of the sentences (Park et al. 2023; Cohen-Wang et
# al. 2024),
#
# $$\text{LDS} = \text{Spearman}_m\Big(\sum_u m_u a_u,\; f(m)\Big), \qquad m_u \in \{0, 1\},$$
#
# where $m_u = 1$ keeps sentence $u$, $a_u$ is its score and $f(m)$ the logit-scaled probability of the response. With a
# few passes of each method's own: the **top-k drop** $f(\text{all}) - f(\text{all but the } k \text{ highest})$ and
# **keep-k** $f(\text{the } k \text{ highest}) - f(\text{none})$, here with $f$ the log-probability in nats. The random
# baselines are means over draws, of tokens and of whole sentences, and **calibrated RISE** is
#
# $$\frac{\text{RISE}_{\text{random}} - \text{RISE}}{\text{RISE}_{\text{random}} - 1/2K} :$$
#
# 0 at a random ranking, 1 at the least that the grid allows. Metrics with forward passes of their own get fewer draws;
# with one draw, the 0 is one ranking's.

# %%
methods = profile_methods(run, tokenizer=tokenizer)
store = Store(run.store("ruler"))
scorer = Scorer(model, precision="auto")
frame = evaluate_all(run, samples, model, store, methods=methods, tokenizer=tokenizer, scorer=scorer)
run.note_curves(frame)
store.compact()
drawn = run.profile.evaluation
print(f"random baselines: {drawn.draws} draws, {drawn.curve_draws} for deletion curves and top-k drop")
print(len(frame), "values of", frame["method"].nunique(), "methods on", frame["sample"].nunique(), "samples")

# %% [markdown]
# The profile says which methods are compared. Those that take a pass per unit need minutes for a sample of this length:
# profile `laptop` compares them in `06_math` and `07_morehopqa` alone, `evidence` and `smoke` here on the first sample of
# each cell, `full` and `paper` on all.
# Perturbation, ReAGent and CLP change a sentence at a time, and each of its tokens gets the sentence's score (appendix
# D.2); where the input has fewer than 200 tokens they change a token at a time (the limit is ours). Perturbation and CLP
# take a pass for every unit. ReAGent takes two passes for every step: it replaces a random 30 % of the units by other
# tokens, drawn from the causal model, where its authors ask a masked language model. Every table and figure that holds
# it says how many steps the profile gives it. Everything else takes one or two passes. `06_math` has their formulas.

# %% [markdown]
# ## Every metric, all cells together
#
# The darker, the better within a row. Where rows disagree about the order of the methods, a verdict depends on the
# metric. RISE scores $\mathbf T \cup \mathbf O$: *IFR on T ∪ O* has that target, the paper's FlashTrace and IFR begin at
# $\mathbf O$ alone. AT2 was fitted on sentence ablations of this very model, which is also what LDS measures.

# %%
overview = summarise(frame[frame["metric"] != "recovery_cap"].assign(cell=ALL))
run.table(overview, "ruler_metrics", "Every metric on RULER, all cells together")
fig = method_plots.overview_heatmap(overview, title="Every metric on RULER, all cells together")
run.figure(fig, "ruler_metrics", "Every metric on RULER, all cells together", n=frame["sample"].nunique())

# %% [markdown]
# ## Table 1
#
# Mean, 95 % interval (Student's t), and in round brackets the number that the paper prints for Qwen3-8B at 1024 tokens.
# Bold only where the intervals of the best and the second best method do not overlap. Fewer than six samples get no
# interval, and so no bold and no winner: shown are the columns that pool the needle cells, the chain cells and all cells,
# and the file has each cell too. Cells are fixed and their samples drawn apart, so differences between cells make a pooled interval wider, not
# narrower. A record that stands in two cells counts as one.

# %%
deletion = frame[frame["metric"].isin(["recovery", *CURVE])]
summary = summarise(deletion)
pooled = summarise(in_groups(deletion))
table = tables.comparison_table(pd.concat([summary, pooled]), paper=1, profile=run.profile.name, model=run.model_name)
wide = tables.wide_table(mark_cells(table, cells))
run.table(table, "table1_ruler", f"Attribution quality on RULER (paper: Table 1). ‡ teacher-forced. {setting}", wide=wide)
tables.by_metric(wide, "table1", pooled_cells(cells))
with_curves = deletion.loc[deletion["metric"].isin(CURVE), "sample"].nunique()

# %% [markdown]
# The pooled columns as a picture, one for each metric: mean and interval, and as a hollow diamond the mean of the numbers
# that the paper prints for these cells.

# %%
groups = pooled_cells(cells)
fig = method_plots.pooled_dots(table, "recovery", groups, title="Recovery of the evidence in the top 10 % of the input")
run.figure(fig, "table1_recovery_pooled", "Recovery rate on RULER, pooled, beside the paper's", n=frame["sample"].nunique())

# %%
fig = method_plots.pooled_dots(table, "rise", groups, title="RISE: area under the deletion curve")
run.figure(fig, "table1_rise_pooled", "RISE on RULER, pooled, beside the paper's", n=with_curves)

# %%
fig = method_plots.pooled_dots(table, "mas", groups, title="MAS: RISE plus misalignment of the magnitudes")
run.figure(fig, "table1_mas_pooled", "MAS on RULER, pooled, beside the paper's", n=with_curves)

# %% [markdown]
# Cell by cell. In profile laptop a cell has two samples, which show no more than an example.

# %%
shown = mark_cells(table[table["cell"].isin(list(cells))], cells)
fig = method_plots.metric_heatmap(shown, "recovery", title="Recovery of the evidence in the top 10 % of the input")
run.figure(fig, "table1_recovery", "Recovery rate by RULER cell", n=frame["sample"].nunique())

# %%
fig = method_plots.metric_heatmap(shown, "rise", title="RISE: area under the deletion curve")
run.figure(fig, "table1_rise", "RISE by RULER cell", n=with_curves)

# %%
fig = method_plots.metric_heatmap(shown, "mas", title="MAS: RISE plus misalignment of the magnitudes")
run.figure(fig, "table1_mas", "MAS by RULER cell", n=with_curves)

# %% [markdown]
# ## Better than chance?
#
# *Random* ranks the tokens at random, *position* by position (later first); neither looks at the model. A method that
# does not beat them on the same samples is uninformative there. *Last token* and *mean pooling* are FlashTrace with a
# simpler target (appendix M.1; formulas in `10c_targets`).

# %%
control = statistics.against(deletion, "random")
run.table(control, "ruler_against_random", "Every method minus the random ranking, on the same samples, all cells")
print(*statistics.not_better(control, "a random ranking"), sep="\n")

# %% [markdown]
# How much of the recovery cannot be reached (the cap), and the same samples by R-precision:

# %%
caps = summarise(frame[frame["metric"].isin(["recovery_cap", "r_precision"])])
caps = caps[(caps["metric"] == "r_precision") | (caps["method"] == "flashtrace")]  # the cap is the samples', not a method's
caps = caps.pivot_table(index="cell", columns=["metric", "method"], values="mean", sort=False).round(2)
run.table(caps, "ruler_caps", "Highest reachable recovery, and R-precision, by cell")
shown = ["ifr", "ifr_all", "attnlrp", "at2", "flashtrace", "position", "random"]
caps.loc[:, caps.columns.isin(shown, level="method")]

# %% [markdown]
# ## FlashTrace against IFR, sample by sample
#
# Both methods see the same samples, so the paired difference is sharper than two separate intervals. Positive is more
# recovered evidence (recovery, R-precision) or a worse deletion score (RISE, MAS).

# %%
chosen = frame[frame["metric"].isin(["recovery", "r_precision", *CURVE])]
paired = statistics.paired_difference(chosen, "flashtrace", "ifr", by=("metric", "cell"))
run.table(paired, "ruler_paired", "FlashTrace minus IFR on the same samples, by cell")
overall = statistics.paired_difference(in_groups(chosen), "flashtrace", "ifr", by=("metric", "cell"))
run.table(overall, "ruler_paired_groups", "FlashTrace minus IFR on the same samples, by group of cells")
overall.round(3)

# %% [markdown]
# ## Every method against FlashTrace
#
# Each method minus FlashTrace on the same samples, all cells. Higher is better, except in RISE; the file has AUROC and
# MAS as well.

# %%
RIVALRY = ["recovery", "r_precision_haystack", "lds", "rise"]
rivals = statistics.against(frame[frame["metric"].isin([*RIVALRY, "auroc_haystack", "mas"])], "flashtrace")
run.table(rivals, "ruler_against_flashtrace", "Every method minus FlashTrace on the same samples, all cells")
tables.interval_grid(rivals[rivals["metric"].isin(RIVALRY)], "method", "metric")

# %% [markdown]
# ## What the hop adds, and to what
#
# FlashTrace changes two things at once: it sums the states of $\mathbf O$ before the proximity, where IFR averages the
# rows of single tokens, and it goes back through $\mathbf T$. The first $K$ hops of a run are the run with $K$ hops, so
# the two come apart: the row $K = 0$ is the sum alone, to be held against IFR, and the gain is the hop's.

# %%
explained = stored_attributions(store, samples, FlashTrace(hops=run.profile.hops))
by_hops = recovery_by_hops(samples, explained)
run.table(by_hops, "ruler_hops", "FlashTrace's recovery by number of hops, and the paired gain over the sum alone (K = 0)")
by_hops.round(3)

# %% [markdown]
# The hop can add only what reaches the reasoning: hop 1 is weighted by $\rho_0$, the share of hop 0's mass on
# $\mathbf T$. The shares, in the mean over the samples:

# %%
shares = mass_frame(samples, explained).groupby(["hop", "segment"], sort=False)["mass"].mean().unstack()
run.table(shares.reset_index(), "ruler_hop_mass", "Share of each hop's mass on I, T, O and the rest", n=len(samples))
shares.round(3)

# %% [markdown]
# ## At the paper's length
#
# Profile `evidence` runs this chapter on prompts of 1,024 tokens, as long as the paper's, with the reasoner that was
# trained for them. Its tables and figures lie in `figures/evidence`. Read from there, FlashTrace minus IFR, and its hops:

# %%
long_pairs = tables.stored("evidence", "ruler_paired_groups")
tables.interval_grid(long_pairs, "metric", "cell")

# %%
tables.stored("evidence", "ruler_hops")[by_hops.columns].round(3)

# %%
tables.stored("evidence", "ruler_hop_mass").drop(columns=["profile", "model"]).round(3)

# %% [markdown]
# Every method minus FlashTrace:

# %%
long_rivals = tables.stored("evidence", "ruler_against_flashtrace")
long_rivals = long_rivals[long_rivals["metric"].isin(RIVALRY)]
dear = long_rivals["method"].isin(load_profile("evidence").evaluation.few_methods)
print("independent samples:", long_rivals.groupby("metric")["n"].max().to_dict())
tables.interval_grid(long_rivals[~dear], "method", "metric")

# %% [markdown]
# Those that take a pass for every unit, and GIM, on the first sample of each cell, without deletion curves:

# %%
few = long_rivals[dear & long_rivals["difference"].notna()]
print("independent samples:", few["n"].max())
tables.interval_grid(few, "method", "metric")

# %% [markdown]
# The ten cells of RULER are right answers of the model itself; in HotpotQA's it is seldom right, so that they are
# teacher-forced. With 176 samples the lead in recovery that the short prompts show is gone in the pool, and cells
# disagree: FlashTrace recovers more in `mq_q8`, `mv_v8` and HotpotQA, IFR in `mv_v4`, `h10_c1`, `h6_c1` and `mq_q2`. The
# sum alone ($K = 0$) stays behind IFR, which averages single rows, and the hop makes up for it; it cannot do more, since
# hop 0 leaves a fifth of its mass on $\mathbf T$, where the paper reports four fifths and more (`01_pilot_study`). Mean
# pooling, FlashTrace with rows averaged in every hop, finds more than the sum in recovery, R-precision, AUROC and LDS, at a
# lower RISE. The last token alone recovers less than a random ranking. The methods that find most read the reasoning's own
# rows: IFR on T ∪ O, and AT2, which is fitted on this model. `FlashTrace.best()` finds more than the paper's setting, too, but
# its RISE is worse, and so is AT2's: finding the evidence and lowering the likelihood fastest are two things
# (`05b_what_rise_measures`).
#
# On one sample a cell the exhaustive rollout, which goes back through the reasoning until nothing is left on it, and
# CAGE, which goes back sentence by sentence, find more than FlashTrace's single hop, and GIM less. Attention suppression
# finds most: it measures what each sentence of $\mathbf T$ and $\mathbf O$ loses when an earlier one cannot be attended
# to, and goes back through these losses; it takes a forward pass for every sentence. Perturbation and CLP change one
# sentence at a time and ask what becomes of $\mathbf O$, which the reasoning before it still spells out, and find no more:
# Perturbation cannot be distinguished from FlashTrace in recovery, CLP recovers less, and both predict the effect of
# random ablations far worse (LDS). So does ReAGent, which replaces many sentences at once and recovers less, too; it has one
# run of up to fifty steps, which took three to twelve minutes for a sample. ContextCite has 32 ablations for many more
# sentences, and finds least.

# %% [markdown]
# ## One sample, method by method
#
# Choose a method, then move the slider: the tokens that it ranks highest are masked, and the curve says how much of the
# likelihood's fall is left. Grey are the other methods' curves. A curve that falls at once has not found more of the
# evidence: watch what it masks. The page holds stored scores and curves, and needs no kernel.

# %%
curves_page(methods, first, model, store, steps=run.profile.steps, scorer=scorer)

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# The paper reports that FlashTrace recovers more evidence than IFR in nine of ten cells, and three to five times as
# much in the variable-tracking cells, with lower RISE in eight of ten. The verdict here is computed:

# %%
for row in overall[overall["metric"] != "r_precision"].itertuples():
    print(f"{row.metric:>8}, {row.cell}: FlashTrace minus IFR {row.difference:+.3f} {interval_text(row.low, row.high)}, "
          f"n = {row.n}, better: {row.better}")
means = summary.pivot_table(index="cell", columns=["metric", "method"], values="mean", sort=False)
ahead = (means["recovery", "flashtrace"] > means["recovery", "ifr"]).sum()
lower = (means["rise", "flashtrace"] < means["rise", "ifr"]).sum()
print(f"means by cell, without an interval: more recovered than IFR in {ahead} of {len(means)}, lower RISE in {lower} of {len(means)}")
flags = summary[summary["metric"] == "rise"].groupby("method")["flagged"].sum()
print("flagged samples:", flags.to_dict(), "of", frame["sample"].nunique())

# %% [markdown]
# In the short prompts the lead in recovery is not a lead in R-precision, where IFR is ahead on the same samples: a tenth
# of the input is a few dozen tokens, many of them the question's, and the question alone can fill it. At 1024 tokens
# IFR is ahead in both, by little.
#
# Reasons why these numbers need not agree with the paper's, in the order in which we think they matter:
#
# * **The model.** 135 million parameters instead of eight billion, taught to quote the evidence line by line before it
#   answers (`14_embedded_reasoner`). Its reasoning is short and names every fact; the paper's is long and exploratory.
# * **Little mass on the reasoning.** It has about a tenth of the tokens, and takes a fifth of hop 0's mass; the paper's
#   hop works on what the reasoning absorbs.
# * **Shorter contexts** in the default profile: 256 or 384 tokens, the paper's 1024. There the evidence is more than a
#   tenth of the input in most cells, so that the recovery rate is capped (see the caps above); R-precision is not.
# * **Few samples.** The intervals say what they show, and below six there is none. The profile `full` has a hundred per
#   cell.
# * **AttnLRP on Qwen3.** Its authors warn that there it is "skewed toward first token" (README of their library, LXT,
#   August 2026). The paper's numbers are of Qwen3-8B; here the model is of the Llama family.
# * **One metric for all.** The paper scores FlashTrace with a masking rule that spares punctuation and the baselines
#   without it. Here every method is scored on the same tokens.

# %% [markdown]
# ## Audit
#
# A stored result, chosen at random, is computed again from scratch and must agree.

# %% tags=["audit"]
checked = audit(methods, samples, model, store, k=1, seed=run.profile.seed, steps=run.profile.steps, scorer=scorer)
assert checked["agrees"].all(), checked[~checked["agrees"]]
print("all agree:", bool(checked["agrees"].all()))
