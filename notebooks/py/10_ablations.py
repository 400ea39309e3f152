# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Ablations
#
# > **Question.** Do the results depend on the number of hops, on the length and the filter of the samples, and on the
# > way a span becomes a target? And when does the method fail?
# >
# > **Answer.** (Profile laptop.) *Hops:* on RULER one hop recovers 0.027 more than none and three 0.039 more; on
# > MoreHopQA there are too few templates to say. *Length:* too few samples to say. *Target:* the last token alone is far
# > worse (−0.114 in recovery); mean pooling has the higher R-precision (+0.065), the sum the higher recovery and the
# > lower MAS. *Failures:* where little evidence is found, the question takes its place (40% of the top tenth in the
# > worst samples).
# >
# > **n.** Each table has its own: 22 samples of RULER and HotpotQA for the hops, n = 21 independent ones for the
# > targets, n = 32 for the failures; n = 3 templates of MoreHopQA.
# >
# > **Figure.** `fig7_mass_shift` for the hops, `appendix_m_r_precision` for the targets, `appendix_n_places` for the
# > failures.
#
# The results of the other notebooks depend on **the number of hops** (appendix H, Table 7, Figure 7), on **longer
# contexts and the filter** (appendix K, Table 8), and on **the target that is made of a span** (appendix M, Table 10).
# The last part asks **when the method fails** (appendix N). The samples are those of `05_ruler` and `07_morehopqa`.
# Metrics are defined in `05_ruler`: recovery and R-precision are better higher; RISE, the area under the deletion curve
# of the whole response, and MAS, RISE with the misalignment of the scores, are better lower.

# %% tags=["parameters"]
profile = "laptop"

# %%
import pandas as pd

from flashtrace_book import statistics
from flashtrace_book.efficiency import timing
from flashtrace_book.experiments import ablations, cancellation, failures, reasoning_tasks
from flashtrace_book.experiments.recursion import recovery_by_hops
from flashtrace_book.figures import ablation_plots, mass, plots, style, tables
from flashtrace_book.methods import profile_methods
from flashtrace_book.run import start
from flashtrace_book.samples import (
    all_samples,
    count_table,
    in_groups,
    mark_cells,
    ruler_collections,
    stored_attributions,
)
from flashtrace_book.statistics import TOO_FEW
from flashtrace_lib import FlashTrace
from flashtrace_lib.evaluation import audit, evaluate, summarise
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.metrics.intervals import interval_text
from flashtrace_lib.store import Store

run = start(profile)
run.versions()

# %%
model, tokenizer = run.load_model()
style.use_style()
scorer = Scorer(model, precision="auto")

# %% [markdown]
# ## How many hops (Table 7)
#
# $K = 0$ explains the answer alone; each further hop explains the reasoning with the scores of the hop before:
#
# $$\mathbf w_{final} = \mathbf w_{\mathbf I}^{(0)} + \sum_{k=1}^{K} \Big(\prod_{j<k} \rho_j\Big)\, \mathbf w_{\mathbf I}^{(k)}, \qquad
# \rho_j = \sum_{t \in \mathbf T} w^{(j)}_t .$$
#
# The paper compares $K = 0 \dots 3$ on MoreHopQA by RISE and MAS. The recovery rate is an addition.

# %%
questions = reasoning_tasks.task_collection(run, model, tokenizer, "morehopqa")
asked = questions.samples[: run.profile.ablations.hop_samples]
default, by_hops = {"flashtrace": FlashTrace(hops=run.profile.hops)}, ablations.hop_methods(run)
hop_store, metrics = Store(run.store("morehopqa")), ("recovery", "r_precision", "rise", "mas")
settings = {"steps": run.profile.steps, "scorer": scorer}
evaluate(default, asked, model, store=hop_store, metrics=metrics, **settings)  # Table 2's results, under their name there
hops = evaluate(by_hops, asked, model, store=hop_store, metrics=metrics, **settings)
run.note_curves(hops)
hop_store.compact()
print(len(hops), "values of", hops["method"].nunique(), "numbers of hops on", hops["sample"].nunique(), "samples")

# %%
table7 = tables.comparison_table(summarise(hops), paper=7, profile=run.profile.name, model=run.model_name)
wide7 = tables.wide_table(mark_cells(table7, {"morehopqa": questions}), digits=3)
run.table(table7, "table7_hops", "Effect of the number of recursive hops on MoreHopQA (paper: Table 7)", wide=wide7)
tables.styled(wide7, "table7")

# %% [markdown]
# On the samples of RULER, where the evidence is known to the token (hop by hop, the first $K$ hops of one run being the run
# with $K$ hops); and RISE and MAS on the first samples of each cell:

# %%
cells = ruler_collections(run, model, tokenizer)
cells["hotpotqa"] = reasoning_tasks.hotpotqa_collection(run, model, tokenizer)
samples = all_samples(cells)
few = ablations.first_of_each(cells, run.profile.ablations.curve_samples)
thought = [sample for sample in samples if sample.segments.has_reasoning]
deep, recursion = {"flashtrace_k3": FlashTrace(hops=3)}, Store(run.store("recursion"))
evaluate(deep, thought, model, store=recursion, metrics=("recovery",), **settings)
recursion.compact()
deepest = stored_attributions(recursion, thought, "flashtrace_k3")
recovered = recovery_by_hops(thought, deepest)
run.table(recovered, "table7_recovery", "Recovery on the samples of Table 1 by number of hops, and the paired gain over K = 0")
recovered.round(3)

# %%
store = Store(run.store("ruler"))
depths = default | {"flashtrace_k0": FlashTrace(hops=0)}
shallow = evaluate(depths, few, model, store=store, metrics=("rise", "mas"), **settings)
store.compact()
recursed = statistics.paired_difference(in_groups(shallow), "flashtrace", "flashtrace_k0", by=("metric", "cell"))
run.table(recursed, "table7_ruler", "FlashTrace minus its own hop 0 on the samples of Table 1")
recursed.round(3)

# %% [markdown]
# ## The mass shift (Figure 7)
#
# Where the mass of each hop lies, on MoreHopQA as in the paper. The *place* of mass within $\mathbf T$ is 0 at its first
# token and 1 at its last:

# %%
evaluate(deep, asked, model, store=hop_store, metrics=("recovery",), **settings)
hop_store.compact()
attributions = stored_attributions(hop_store, asked, "flashtrace_k3")
fig = plots.mass_by_segment(mass.mass_frame(asked, attributions), title="Where each hop's mass lies (MoreHopQA)")
run.figure(fig, "fig7_mass_shift", "Share of each hop's mass on I, T, O and context (paper: Fig. 7)", n=len(asked))

# %%
fig = plots.mass_by_position(mass.position_frame(asked, attributions))
run.figure(fig, "fig7_mass_by_position", "Mass within the reasoning by position, per hop", n=len(asked))

# %%
groups = {"MoreHopQA": (asked, attributions), "RULER": (thought, deepest)}
shift = pd.concat([ablations.mass_shift(*group).assign(data=name) for name, group in groups.items()], ignore_index=True)
run.table(shift, "fig7_mass_shift", "Share of each hop's mass, and mean place of it within T; the change is against hop 0")
shift.pivot_table(index=["data", "hop"], columns="quantity", values="mean", sort=False).round(2)

# %% [markdown]
# ### What the paper found, what we found, why they differ
#
# The paper finds RISE between 0.127 and 0.133 for every $K$, MAS lowest at $K = 1$, and that from hop 0 to hop 1 mass leaves
# the reasoning for the input and, within the reasoning, moves to earlier tokens. Computed here:

# %%
for name in list(by_hops)[1:]:
    for row in statistics.paired_difference(hops, name, "flashtrace_k0").itertuples():
        print(f"MoreHopQA, {name} minus K = 0: {row.metric} {row.difference:+.3f} {interval_text(row.low, row.high)}, "
              f"n = {row.n}")
for row in recovered[recovered["K"] > 0].itertuples():
    print(f"RULER, K = {row.K} minus K = 0: recovery {row.gain:+.3f} {interval_text(row.gain_low, row.gain_high)}, n = {row.n}")
for row in recursed.itertuples():
    print(f"RULER, {row.cell}, K = {run.profile.hops} minus K = 0: {row.metric} {row.difference:+.3f} "
          f"{interval_text(row.low, row.high)}, n = {row.n}")

# %%
first_step = shift[(shift["hop"] == 1) & shift["quantity"].isin(["prompt", "reasoning", "place in T"])]
for row in first_step.itertuples():
    print(f"{row.data}, hop 1 minus hop 0: {row.quantity} {row.change:+.3f} {interval_text(row.change_low, row.change_high)}, "
          f"n = {row.n}")

# %% [markdown]
# A change whose interval holds zero shows no shift, and one without an interval has too few samples to show any. In the
# default profile the input gains and, within the reasoning, mass moves to earlier tokens, as the paper says. But **the
# reasoning's share rises** from hop 0 to hop 1, which it does not say. Hop 0 can land on $\mathbf O$ itself, hop 1
# cannot, and most of the mass that leaves $\mathbf O$ goes to the reasoning's own tokens. **On MoreHopQA no depth can be
# distinguished from another**; on RULER each further hop recovers a little more, the first one most.
#
# Differences from the paper: the reasoning is short and quotes the lines that it uses, so that a second or third hop
# has little to cross between the quotation and its source. On MoreHopQA no method is shown to beat a random ranking here
# (`07_morehopqa`), so that a difference between depths is one between rankings that say little. RULER, where hop 0 finds
# part of the evidence, is the better test of depth in this profile.

# %% [markdown]
# ## Longer contexts, right answers or wrong (Table 8)
#
# The other tables keep only right answers (appendix E.4). Does that filter favour a method? And does faithfulness last
# as the context grows? HotpotQA again, filled with distracting paragraphs up to each length, with the model's first
# finished responses, right or wrong (§). Recovery has no meaning where the model did not use the evidence, so RISE and
# MAS alone.

# %%
lengths = run.profile.hotpotqa.long_lengths
long_cells = {
    f"hotpotqa_{length}": reasoning_tasks.hotpotqa_collection(run, model, tokenizer, length, filtered=False) for length in lengths
}
long_samples = all_samples(long_cells)
counts = count_table(long_cells)
run.table(counts, "table8_samples", f"HotpotQA ({run.profile.reasoning.source}) without a filter: what was answered")
counts

# %%
methods = profile_methods(run, run.profile.hotpotqa.long_methods, tokenizer)
long_store = Store(run.store("hotpotqa_long"))
frame = evaluate(methods, long_samples, model, store=long_store, metrics=("rise", "mas"), **settings)
long_store.compact()
print(len(frame), "values of", frame["method"].nunique(), "methods on", len(long_samples), "samples")

# %%
table8 = tables.comparison_table(summarise(frame), paper=8, profile=run.profile.name, model=run.model_name)
wide = tables.wide_table(mark_cells(table8, long_cells))
run.table(table8, "table8_unfiltered", "HotpotQA without a filter, at growing lengths (paper: Table 8)", wide=wide)
tables.styled(wide, "table8")

# %%
fig = plots.metric_bars(table8, "rise", title="RISE on HotpotQA without a filter, by length of the prompt, tokens")
run.figure(fig, "table8_rise", "RISE on HotpotQA without a filter", n=len(long_samples))

# %% [markdown]
# Seconds of one attribution on the machine that stored them (median and quartiles of three samples per length, methods
# in turn):

# %%
timed = {method.name: method for method in methods if method.name != "random"}
three = [sample for collection in long_cells.values() for sample in collection.samples[:3]]
each = timing.paired_seconds(run, model, timed, three, "hotpotqa_long_cost", runs=1)
seconds = pd.concat([reasoning_tasks.median_seconds(part).assign(cell=cell) for cell, part in each.groupby("cell", sort=False)])
run.table(seconds, "table8_seconds", "Seconds of one attribution, by length of the prompt")
seconds.pivot_table(index="method", columns="cell", values="median", sort=False).round(2)

# %% [markdown]
# ### What the paper found, what we found, why they differ
#
# The paper prints RISE and MAS at 2048 and 4096 tokens, the lowest for FlashTrace at both: RISE 0.036 and 0.025, against
# 0.059 and 0.040 for IFR. A grid of twenty steps cannot give less than $1/2K = 0.025$ (`11_metric_audit`), so its last
# number says only that the first step already took everything. Computed here:

# %%
paired = statistics.paired_difference(frame, "flashtrace", "ifr", by=("metric", "cell"))
run.table(paired, "table8_paired", "FlashTrace minus IFR on the same samples, without a filter")
for row in paired.itertuples():
    print(f"{row.metric.upper()}, {row.cell}: FlashTrace minus IFR {row.difference:+.3f} {interval_text(row.low, row.high)}, "
          f"n = {row.n}, better: {row.better}")
means = summarise(frame[frame["metric"] == "rise"]).pivot_table(index="method", columns="cell", values="mean", sort=False)
for method in means.index:
    print(f"RISE of {method} from the shortest to the longest context:", [round(x, 2) for x in means.loc[method]])

# %% [markdown]
# Differences from the paper: the model is small and seldom right here (the table of samples says how often), its responses quote the
# documents before they answer, and in the default profile the contexts are shorter than the paper's and the documents
# are synthetic problems.

# %% [markdown]
# ## The last token, or the whole span (Table 10)
#
# Appendix M.1: what if hop 0 explains only the last token of $\mathbf O$, $\mathbf Y^{(0)} = \mathbf y_{|\mathbf O|}$,
# instead of $\mathbf Y^{(0)} = \sum_i \mathbf y_i$? The paper compares the two on HotpotQA; its "attribution coverage"
# has the value of its recovery rate in Table 1, so that is used here. The groups of cells take the samples of Table 1
# together: HotpotQA alone has few in the default profile.

# %%
targets = ablations.target_methods(run)
ends = {name: targets[name] for name in ("flashtrace", "last_token")}
last = evaluate(ends, samples, model, store=store, metrics=("recovery", "rise", "mas"), **settings)
alone = summarise(last[last["cell"] == "hotpotqa"])
both = pd.concat([alone, summarise(in_groups(last))]) if len(cells) > 1 else alone
table10 = tables.comparison_table(both, paper=10, profile=run.profile.name, model=run.model_name)
wide10 = tables.wide_table(mark_cells(table10, cells), digits=3)
run.table(table10, "table10_last_token", "The last token of O, or all of it, as the target (paper: Table 10)", wide=wide10)
tables.styled(wide10, "table10")

# %% [markdown]
# ## Other ways to make one target of a span (appendix M)
#
# The paper discusses these and measures one. All of them here, each a change of one thing. With $\mathbf w(\cdot)$ the
# distribution of a state over its sources, hop 0 is
#
# $$\text{sum (the paper): } \mathbf w\Big(\sum_i \mathbf y_i\Big), \qquad
# \text{mean pooling: } \frac{1}{|\mathbf O|} \sum_i \mathbf w(\mathbf y_i), \qquad
# \text{last token: } \mathbf w(\mathbf y_{|\mathbf O|}), \qquad
# \text{weights: } \mathbf w\Big(\sum_i w_i\, \mathbf y_i\Big) .$$
#
# * *mean pooling* averages the distributions of single tokens, in every hop, instead of summing the states first;
# * *last token*, as above;
# * *rising* and *falling* weights: $w_i = i$ or $w_i = |\mathbf O| + 1 - i$ for the $i$-th token of $\mathbf O$ in
#   hop 0. The paper leaves positional weights to future work, since nothing says in general which tokens matter;
# * *sentence* spans: every hop's mass is shared equally within each sentence $g$ of the context,
#   $w_j \leftarrow \frac{1}{|g|} \sum_{i \in g} w_i$ for $j \in g$. Appendix M.2 builds the *target* from sentences;
#   sharing the *source* mass is our reading of it.
#
# Recovery on all samples; RISE and MAS, which cost a deletion curve each, on the first of each cell.

# %%
exact = evaluate(targets, samples, model, store=store, metrics=("recovery", "r_precision"), **settings)
curves = evaluate(targets, few, model, store=store, metrics=("rise", "mas"), **settings)
store.compact()
ways = pd.concat([exact, curves], ignore_index=True)
pooled = pd.concat([summarise(in_groups(ways)), summarise(ways[ways["cell"] == "hotpotqa"])])
spans = tables.comparison_table(pooled, profile=run.profile.name, model=run.model_name)
wide_spans = tables.wide_table(spans)
run.table(spans, "appendix_m_aggregation", "Ways to make one target of a span (appendix M)", wide=wide_spans)
tables.styled(wide_spans, "appendixm")

# %%
fig = plots.metric_bars(spans, "r_precision", title="R-precision by the way the target is made")
run.figure(fig, "appendix_m_r_precision", "R-precision by the way the target is made", n=len(samples))

# %% [markdown]
# Each minus the paper's own sum, on the same samples of all cells:

# %%
against = statistics.against(ways, "flashtrace")
run.table(against, "appendix_m_paired", "Other ways to make the target minus the sum, on the same samples")
against.round(3)

# %% [markdown]
# ### Does the sum cancel?
#
# Appendix M names a caveat: states of opposite meaning could cancel before the proximity is taken. The share of the
# states that is left in the sum,
#
# $$c = \frac{\big\|\sum_i w_i\, \mathbf y_i\big\|_1}{\sum_i w_i \|\mathbf y_i\|_1},$$
#
# is 1 where all states point the same way. States of independent directions leave about $1/\sqrt m$ of $m$ tokens. Per
# layer, for the two sums that FlashTrace takes:

# %%
everything = [*samples, *asked]
kept = cancellation.cancellation(run, model, everything)
fig = ablation_plots.kept_by_layer(kept)
run.figure(fig, "appendix_m_cancellation", "What the sum over a span keeps of its states, by layer", n=len(everything))

# %%
summary = kept.groupby(["hop", "layer"], as_index=False)[["kept", "independent", "n_target"]].mean()
run.table(summary, "appendix_m_cancellation", "Share of the states that the sum keeps, by hop and layer", n=len(everything))
summary.groupby("hop")["kept"].agg(["min", "mean", "max"]).round(2)

# %% [markdown]
# If cancellation did harm, faithfulness would fall where $c$ is low, and mean pooling, which sums nothing before the
# proximity, would gain there. Rank correlations over the samples of Table 1, with the length of $\mathbf O$ beside, on
# which $c$ itself depends:

# %%
summed = {name: targets[name] for name in ("flashtrace", "mean_pooling")}
wide_ways = evaluate(summed, samples, model, store=store, metrics=metrics, **settings)
per_sample = wide_ways.pivot_table(index="sample", columns=["metric", "method"], values="value")
outcomes = pd.DataFrame({metric: per_sample[metric, "flashtrace"] for metric in metrics})
outcomes["gain of the sum"] = per_sample["r_precision", "flashtrace"] - per_sample["r_precision", "mean_pooling"]
related = cancellation.by_sample(kept).merge(outcomes.reset_index(), on="sample")
properties = [name for name in related if name.startswith(("kept_", "n_target_"))]
cancelled = statistics.correlations(related, properties, outcomes.columns)
run.table(cancelled, "appendix_m_correlations", "Rank correlation of what the sum keeps with faithfulness, over samples")
cancelled.round(2)

# %% [markdown]
# ### What the paper found, what we found, why they differ
#
# The paper finds that the last token alone recovers less than half as much (0.161 against 0.384) with far worse RISE and
# MAS, and that mean pooling recovers less than the sum. It expects sentences to be at least as good as tokens, and sees
# no harm from cancellation. Computed here:

# %%
for row in against.itertuples():
    verdict = {"neither": "no difference shown", TOO_FEW: TOO_FEW}.get(row.better, f"better: {row.better}")
    print(f"{row.method} minus the sum: {row.metric} {row.difference:+.3f} {interval_text(row.low, row.high)}, n = {row.n}, "
          f"{verdict}")

# %%
level = kept.groupby("hop")[["kept", "independent"]].mean()
for hop, row in level.iterrows():
    print(f"hop {hop}: the sum keeps {row['kept']:.2f} of the states in the mean over layers and samples; of independent "
          f"directions it would keep {row['independent']:.2f}")
clear = cancelled[(cancelled["low"] > 0) | (cancelled["high"] < 0)]
print("correlations whose interval leaves out zero:", len(clear), "of", int(cancelled["rho"].notna().sum()))
for row in clear.itertuples():
    print(f"  {row.property} with {row.outcome}: {row.rho:+.2f} {interval_text(row.low, row.high, '+.2f')}, n = {row.n}")

# %% [markdown]
# In the default profile the last token does far worse, as in the paper. The rest does not follow it: **mean pooling has
# the higher R-precision** (the sum the higher recovery rate and the lower MAS), **sentences are worse than tokens** in
# recovery, RISE and MAS, and weights that rise towards the end of $\mathbf O$ recover more than the even sum without
# being shown to differ in the other metrics. Nothing here comes from cancellation: the sum keeps more than half of the
# states, and $c$ correlates with no outcome.
#
# The last token of a chat model's answer is often a full stop or a closing word, which is why it explains little. Mean
# pooling here is FlashTrace with its hops, the paper's is IFR without them, so that the paper's comparison mixes two
# changes. A sentence that holds the evidence gets all its tokens into the top tenth at once, or none of them: with few
# sentences the recovery rate jumps. A correlation over cells of different tasks is no cause; the length of the answer,
# which differs from cell to cell, stands beside it for that reason.

# %% [markdown]
# ## When it fails (appendix N)
#
# The paper names two failures: *diffuse evidence*, over which the mass is spread thinly, and *structural tokens* that
# take more mass than they mean. Here we search for failures systematically. First, the share of the mass on structural
# tokens, over all samples of Table 1 and of MoreHopQA, beside the share of the tokens that are of the kind:

# %%
found = [*stored_attributions(store, samples, "flashtrace"),
         *stored_attributions(hop_store, asked, "flashtrace")]
structure = failures.structure_table(failures.mass_by_kind(everything, found))
run.table(structure, "appendix_n_structure", "Share of each hop's whole mass on structural tokens, and of the tokens")
structure.round(3)

# %% [markdown]
# Then the samples in which the least of the reachable evidence is found (recovery over its cap; ties by R-precision and
# by the mass on the evidence). In the columns, *reached* is that ratio, *gold share* and *gold mass* are the evidence's
# share of the tokens and of the mass, *question* is the question's share of the mass, and *spread* says how evenly the
# mass lies:

# %%
table = failures.sample_properties(everything, found)
worst = failures.worst_samples(table, run.profile.ablations.worst)
run.table(worst, "appendix_n_worst", "The samples of the lowest recovery", n=len(table))
worst[["sample", "cell", "reached", "r_precision", "gold_share", "gold_mass", "question", "spread", "first_token"]].round(2)

# %% [markdown]
# Properties that the worst samples share, against all others:

# %%
shared = failures.contrast(table, worst["sample"])
run.table(shared, "appendix_n_contrast", "Properties of the worst samples and of the others", n=len(table))
shared.round(2)

# %% [markdown]
# Which tokens displace the evidence in the top tenth of the input:

# %%
places = failures.top_places(everything, found)
places["group"] = places["sample"].isin(worst["sample"]).map({True: "worst", False: "others"})
fig = ablation_plots.places_by_kind(places)
run.figure(fig, "appendix_n_places", "Who takes the top tenth of the input, in the worst samples and the others", n=len(table))

# %%
taken = places.groupby(["group", "kind"], sort=False)[["places", "tokens"]].mean()
run.table(taken, "appendix_n_places", "Share of the top tenth of I, and of I, by kind of token", n=len(table))
taken.round(2)

# %% [markdown]
# Correlates of evidence recovery, over all samples and within the samples of Table 1 alone, since tasks differ in more
# than one thing:

# %%
inside = table[table["sample"].isin([sample.id for sample in samples])]
suspects = (*failures.DIFFUSE, *failures.MASS)
goes_with = pd.concat(
    [statistics.correlations(part, suspects, ["reached", "r_precision"]).assign(samples=name)
     for name, part in (("all", table), ("Table 1", inside))], ignore_index=True,
)
run.table(goes_with, "appendix_n_correlations", "Rank correlation of properties of a sample with how much evidence is found")
fig = ablation_plots.correlation_points(
    goes_with[goes_with["outcome"] == "reached"], title="What goes with the share of evidence found", label="samples"
)
run.figure(fig, "appendix_n_correlations", "Rank correlation of properties with the recovery reached", n=len(table))

# %% [markdown]
# ### What the paper found, what we found, why they differ
#
# The paper describes both failures and shows no numbers for them. Computed here:

# %%
print("worst samples by cell:", worst["cell"].value_counts().to_dict())
differ = shared[(shared["low"] > 0) | (shared["high"] < 0)]
for row in differ.itertuples():
    print(f"{row.property}: {row.worst:.2f} in the worst, {row.others:.2f} in the others, {row.difference:+.2f} "
          f"{interval_text(row.low, row.high, '+.2f')}")
top = taken["places"].unstack(0)
ahead = top["worst"].idxmax()
print(f"in the worst samples most places go to: {ahead} ({top.loc[ahead, 'worst']:.0%} of the top tenth)")

# %%
kinds = {"diffuse evidence": failures.DIFFUSE, "structure": ("punctuation", "connective", "first_token", "template"),
         "question": ("question",)}
for label, names in kinds.items():
    part = goes_with[goes_with["property"].isin(names) & (goes_with["outcome"] == "reached")]
    harmful = part[part["high"] < 0]
    print(f"{label}: {len(harmful)} of {int(part['rho'].notna().sum())} correlations with recovery clearly negative")
    for row in harmful.itertuples():
        print(f"  {row.property} ({row.samples}): {row.rho:+.2f} {interval_text(row.low, row.high, '+.2f')}, n = {row.n}")

# %% [markdown]
# The paper's two failures are descriptions; a clear negative correlation above supports one, and where there is none
# this book does not see it. A third shows in the tokens that displace the evidence: the mass on $\mathbf I$ goes to the
# question, which stands last and is read by every token of the answer (`07_morehopqa` measures it), and within the
# samples of Table 1 it is the question's share that correlates with little evidence found. Over all samples the
# properties of a task go together (where the worst samples are of one task, as above, their common properties may be the
# task's), so a correlation that is seen over all and not within Table 1 proves little; and few samples leave wide
# intervals.

# %% [markdown]
# ## Audit
#
# Stored results, chosen at random, are computed again from scratch and must agree.

# %% tags=["audit"]
shortest = min(few, key=len)
checks = [(targets, [shortest], store), (by_hops, asked, hop_store)]
checked = pd.concat([audit(*what, model, where, k=1, seed=run.profile.seed, **settings) for *what, where in checks])
assert checked["agrees"].all(), checked[~checked["agrees"]]
again = FlashTrace(hops=run.profile.hops).attribute(model, shortest).hops
states = pd.DataFrame(cancellation.kept_shares(model, shortest, again)).stack().to_numpy()
stored = kept[kept["sample"] == shortest.id].sort_values(["hop", "layer"])["kept"].to_numpy()
assert abs(states - stored).max() < 1e-3, abs(states - stored).max()
print("all agree:", bool(checked["agrees"].all()))
