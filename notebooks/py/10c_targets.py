# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # One target out of many tokens
#
# > **Question.** A span becomes one target by a sum. Do other ways find more, and does the sum cancel anything?
# >
# > **Answer.** At the paper's length (profile evidence) the last token alone is far worse (−0.450 in recovery), as the paper
# > says. Mean pooling finds more than the sum (recovery +0.056, R-precision +0.048, RISE −0.014), which it does not say.
# > Sharing within sentences recovers more (+0.138) at a worse RISE (+0.093). No harm comes from cancellation.
# >
# > **n.** Profile evidence: 88 samples, deletion curves on 11. Profile laptop: 22 samples of RULER and HotpotQA, n = 21
# > independent ones.
# >
# > **Figure.** `appendix_m_r_precision`.
#
# Appendix M of the paper, and Table 10. The samples are those of `05_ruler` and `07_morehopqa`.
# Metrics are defined in `05_ruler`: recovery and R-precision are better higher; RISE, the area under the deletion curve
# of the whole response, and MAS, RISE with the misalignment of the scores, are better lower.

# %% tags=["parameters"]
profile = "laptop"

# %%
import pandas as pd

from flashtrace_book import statistics
from flashtrace_book.evaluations import CURVE, evaluate_with_curves
from flashtrace_book.experiments import ablations, cancellation
from flashtrace_book.figures import ablation_plots, plots, style, tables
from flashtrace_book.run import start
from flashtrace_book.samples import all_samples, in_groups, mark_cells
from flashtrace_book.statistics import TOO_FEW
from flashtrace_lib import FlashTrace
from flashtrace_lib.evaluation import audit, evaluate, summarise
from flashtrace_lib.evaluation.results_table import clusters_of
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.metrics.intervals import interval_text
from flashtrace_lib.store import Store

run = start(profile)
run.versions()

# %%
model, tokenizer = run.load_model()
style.use_style()
scorer = Scorer(model, precision="auto")
settings = {"steps": run.profile.steps, "scorer": scorer}

# %% [markdown]
# ## The last token, or the whole span (Table 10)
#
# Appendix M.1: what if hop 0 explains only the last token of $\mathbf O$, $\mathbf Y^{(0)} = \mathbf y_{|\mathbf O|}$,
# instead of $\mathbf Y^{(0)} = \sum_i \mathbf y_i$? The paper compares the two on HotpotQA; its "attribution coverage"
# has the value of its recovery rate in Table 1, so that is used here. The groups of cells take the samples of Table 1
# together: HotpotQA alone has few in the default profile.

# %%
cells = ablations.table1_collections(run, model, tokenizer)
samples = all_samples(cells)
few = ablations.first_of_each(cells, run.profile.ablations.curve_samples)
store = Store(run.store("ruler"))
targets = ablations.target_methods(run)
ends = {name: targets[name] for name in ("flashtrace", "last_token")}
last = evaluate_with_curves(run, ends, samples, model, store, scorer, ranking=("recovery",))
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
curves = evaluate(targets, few, model, store=store, metrics=CURVE, **settings)
store.compact()
ways = pd.concat([exact, curves], ignore_index=True)
pooled = pd.concat([summarise(in_groups(ways)), summarise(ways[ways["cell"] == "hotpotqa"])])
spans = tables.comparison_table(pooled, profile=run.profile.name, model=run.model_name)
wide_spans = tables.wide_table(spans)
run.table(spans, "appendix_m_aggregation", "Ways to make one target of a span (appendix M)", wide=wide_spans)
tables.by_metric(wide_spans, "appendixm")

# %%
fig = plots.metric_bars(spans, "r_precision", title="R-precision by the way the target is made")
run.figure(fig, "appendix_m_r_precision", "R-precision by the way the target is made", n=len(samples))

# %% [markdown]
# Each minus the paper's own sum, on the same samples of all cells:

# %%
against = statistics.against(ways, "flashtrace")
run.table(against, "appendix_m_paired", "Other ways to make the target minus the sum, on the same samples")
tables.interval_grid(against, "method", "metric")

# %% [markdown]
# At the paper's length (profile `evidence`: prompts of 1,024 tokens, eight samples per cell, deletion curves on one of each):

# %%
long_ways = tables.stored("evidence", "appendix_m_paired")
print("independent samples:", long_ways.groupby("metric")["n"].max().to_dict())
tables.interval_grid(long_ways, "method", "metric")

# %% [markdown]
# ## Does the sum cancel?
#
# Appendix M names a caveat: states of opposite meaning could cancel before the proximity is taken. The share of the
# states that is left in the sum,
#
# $$c = \frac{\big\|\sum_i w_i\, \mathbf y_i\big\|_1}{\sum_i w_i \|\mathbf y_i\|_1},$$
#
# is 1 where all states point the same way. States of independent directions leave about $1/\sqrt m$ of $m$ tokens. Per
# layer, for the two sums that FlashTrace takes:

# %%
asked = ablations.asked_samples(run, model, tokenizer)
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
wide_ways = evaluate_with_curves(run, summed, samples, model, store, scorer)
per_sample = wide_ways.pivot_table(index="sample", columns=["metric", "method"], values="value")
outcomes = pd.DataFrame({metric: per_sample[metric, "flashtrace"] for metric in ("recovery", "r_precision", *CURVE)})
outcomes["gain of the sum"] = per_sample["r_precision", "flashtrace"] - per_sample["r_precision", "mean_pooling"]
related = cancellation.by_sample(kept).merge(outcomes.reset_index(), on="sample")
related["cluster"] = related["sample"].map(clusters_of(samples))
properties = [name for name in related if name.startswith(("kept_", "n_target_"))]
cancelled = statistics.correlations(related, properties, outcomes.columns)
run.table(cancelled, "appendix_m_correlations", "Rank correlation of what the sum keeps with faithfulness, over samples")
tables.interval_grid(cancelled, "property", "outcome", "rho", "+.2f")

# %% [markdown]
# The same in profile `evidence`:

# %%
tables.interval_grid(tables.stored("evidence", "appendix_m_correlations"), "property", "outcome", "rho", "+.2f")

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# The paper finds that the last token alone recovers less than half as much (0.161 against 0.384) with far worse RISE and
# MAS, and that mean pooling recovers less than the sum. It expects sentences to be at least as good as tokens, and sees
# no harm from cancellation. Computed here:

# %%
for metric, rows in against.groupby("metric"):
    verdicts = rows["better"].replace({"neither": "no difference shown", "flashtrace": "worse"})
    verdicts = verdicts.where(verdicts.isin(["no difference shown", "worse", TOO_FEW]), "better")
    found = rows["method"].groupby(verdicts).agg(", ".join)
    print(f"{metric} against the sum (n = {rows['n'].max()}): " + "; ".join(f"{verdict}: {methods}" for verdict, methods in found.items()))

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
# At the paper's length the last token is worse still, and **mean pooling finds more than the sum in recovery, R-precision
# and RISE**. Sentences recover more there, since a sentence that holds a needle enters the top tenth as a whole, but the
# likelihood falls later. Weights by position help in no way that is shown in more than one metric. Cancellation shows no harm: where
# the sum keeps less of the states, recovery is higher ($\rho = -0.50$), RISE lower, and the sum's R-precision gains on mean
# pooling's, all against the direction that harm would take; the length of $\mathbf O$ varies with both.
#
# The last token of a chat model's answer is often a full stop or a closing word, which is why it explains little. Mean
# pooling here is FlashTrace with its hops, the paper's is IFR without them, so that the paper's comparison mixes two
# changes. A sentence that holds the evidence gets all its tokens into the top tenth at once, or none of them: with few
# sentences the recovery rate jumps. A correlation over cells of different tasks is no cause; the length of the answer,
# which differs from cell to cell, stands beside it for that reason.

# %% [markdown]
# ## Audit
#
# Stored results, chosen at random, are computed again from scratch and must agree.

# %% tags=["audit"]
shortest = min(few, key=len)
checked = audit(targets, [shortest], model, store, k=1, seed=run.profile.seed, **settings)
assert checked["agrees"].all(), checked[~checked["agrees"]]
again = FlashTrace(hops=run.profile.hops).attribute(model, shortest).hops
states = pd.DataFrame(cancellation.kept_shares(model, shortest, again)).stack().to_numpy()
stored = kept[kept["sample"] == shortest.id].sort_values(["hop", "layer"])["kept"].to_numpy()
assert abs(states - stored).max() < 1e-3, abs(states - stored).max()
print("all agree:", bool(checked["agrees"].all()))
