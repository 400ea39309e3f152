# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Span aggregation: many target tokens, one pass
#
# > **Question.** Can one pass attribute an answer of many tokens, where token-by-token methods need a pass for each?
# >
# > **Answer.** Yes, exactly: the sum over the answer's tokens can be taken before the proximity is measured, and the fast
# > kernel equals the literal loop. It is another quantity than the average of single-token rows, though on the example both
# > rank the tokens almost alike. Over spans from 4 to 64 tokens the time of IFR, one token at a time, grows 6.6 times, and
# > that of FlashTrace 1.3 times.
# >
# > **n.** One sample, which proves nothing beyond the identity; three runs a point for the time.
# >
# > **Figure.** `fig2_overview`: from the rows of attention to the scores.
#
# <!-- numbers: 6.6 = fig2_cost.csv[method=ifr_one_by_one].growth; 1.3 = fig2_cost.csv[method=flashtrace].growth -->
#
# Sections 4.1 and 4.2 of the paper, built up from its equations on one example: to which tokens of the input is an answer
# of several tokens attributed? Explaining the answer token by token costs one pass for each of them. FlashTrace sums the
# states of the answer *before* it measures proximity, and needs one pass for all.

# %% tags=["parameters"]
profile = "book"

# %%
import pandas as pd
import torch

from flashtrace_book.experiments import naive_layer
from flashtrace_book.figures import overview, plots, style
from flashtrace_book.run import start
from flashtrace_book.statistics import spearman
from flashtrace_lib import IFR, FlashTrace
from flashtrace_lib.kernel.capture import capture
from flashtrace_lib.kernel.decomposition import decomposition_gaps
from flashtrace_lib.kernel.proximity import aggregate, layer_scores, span_scores
from flashtrace_lib.viewer import figure

run = start(profile)
style.use_style()
model, tokenizer = run.load_model("reasoner")

# %% [markdown]
# ## One example
#
# A short needle-in-a-haystack prompt, answered by the model. The context $\mathbf S = \mathbf I \circ \mathbf T \circ
# \mathbf O$ has an input and an output; the model answers directly, so there is no reasoning $\mathbf T$ here.

# %%
sample = naive_layer.example_sample(run.profile, model, tokenizer)
prompt, target = sample.segments.prompt, sample.segments.output
print("question:", "".join(sample.tokens[slice(*prompt)])[-120:].strip())
print("answer:", "".join(sample.tokens[slice(*target)]).strip())

# %% [markdown]
# ## A layer is a sum (equations 1 to 3)
#
# The state after the attention block of a layer is the state that entered it plus the contribution of every source token
# $j$ through every head $h$:
#
# $$\mathbf x^{mid}_i = \mathbf x^{in}_i + \sum_h \sum_j \underbrace{\alpha^h_{ij}\,\mathbf v_{jh} W_O^h}_{\mathbf z_{j \to i}}
# \;(+\,\mathbf b_O).$$
#
# All that follows depends on this identity, so it is checked on every model that is loaded. The largest gap over all rows
# of this example and all layers, relative to the attention's addition to the row:

# %%
gaps = decomposition_gaps(model, sample.input_ids)
print("layers:", len(gaps), "| largest relative gap below 1e-4:", max(gaps) < 1e-4)

# %% [markdown]
# ## Proximity (equation 4)
#
# How much shorter, in the L1 norm, would the target be without a contribution?
#
# $$\text{Prox}(\mathbf z, \mathbf y) = \max(0,\; \|\mathbf y\|_1 - \|\mathbf y - \mathbf z\|_1).$$
#
# ## Sum the target first (equations 5 to 8)
#
# For a span $S$ with weights $w_i$ the target is $\mathbf Y_S = \sum_{i\in S} w_i \mathbf x^{mid}_i$. Because
# $\mathbf v_{jh}W_O^h$ does not depend on $i$, the contribution of source $j$ needs the attention weights only in sum,
# and the residual is the sum of the states that entered the layer:
#
# $$\mathbf Z_{jh} = \mathbf v_{jh} W_O^h \cdot \underbrace{\textstyle\sum_{i \in S} w_i\, \alpha^h_{ij}}_{a_{jh}}, \qquad
# \mathbf R_S = \sum_{i \in S} w_i\, \mathbf x^{in}_i .$$
#
# One forward pass keeps keys, values, and the queries and states of the target rows. The aggregated target equals the sum
# of the states that the model computed:

# %%
activations = capture(model, sample.input_ids, target, keep_mid=True)
weights = torch.ones(1, target[1] - target[0])
layer = activations.layers[len(activations.layers) // 2]
_, _, y = aggregate(layer, weights, target, target[0])
expected = layer.x_mid.float().sum(0)
gap = float((y[0] - expected).norm() / expected.norm())
print("Y equals the summed states, relative gap below 1e-4:", gap < 1e-4)

# %% [markdown]
# ## The fast kernel equals the loop
#
# Per layer, the score of a token is its proximity, summed over heads, as a share of all proximities and the residual's:
#
# $$s_j = \frac{e_j}{\sum_k e_k + e_{res}}, \qquad e_j = \sum_h \text{Prox}(\mathbf Z_{jh}, \mathbf Y_S), \qquad
# e_{res} = \text{Prox}(\mathbf R_S, \mathbf Y_S) .$$
#
# The literal version loops over source tokens, heads and target tokens. Both on this very example, in the middle layer:

# %%
fast = layer_scores(layer, weights, target, target[0])[0]
slow = naive_layer.naive_layer_scores(layer, weights[0], target, target[0], layer.x_mid)
print("largest difference below 1e-5:", float((fast - slow).abs().max()) < 1e-5)
print("sum of the tokens' scores:", round(float(fast.sum()), 1), "(the rest is the residual's)")

# %% [markdown]
# ## The picture (Figure 2)
#
# *Predict first.* The answer has some forty tokens, each with a row of attention. After their sum, and after the
# proximity, which tokens of the input stand out: those of the question, the needles, or the first token of all?
#
# <details><summary>Answer</summary>
#
# By attention the first token leads: heads park attention on it. The proximity takes it away, since the value behind it is
# short and moves the target nowhere. The needles and the question's keys are left. The head drawn here is the one that moves
# most evidence in this layer; others look different.
#
# </details>

# %%
panel = naive_layer.overview_panel(layer, sample, weights[0], target)
title = f"Span-wise aggregation: layer {layer.parts.index}, head {panel.head}, one sample of RULER mq q2"
drawn = (panel.attention, panel.aggregated, panel.proximity)
fig = overview.span_overview(*drawn, sample.tokens, sample.segments, title=title)
numbers = pd.DataFrame({"position": range(len(sample)), "attention": panel.aggregated, "proximity": panel.proximity})
run.figure(fig, "fig2_overview", "Span-wise aggregation, drawn from data", live=numbers)

# %% [markdown]
# ## All layers: the attribution
#
# The scores of all layers are added and normalised to a distribution over the whole context,
#
# $$w_j = \frac{\sum_l s^{(l)}_j}{\sum_{j'} \sum_l s^{(l)}_{j'}} .$$
#
# The gold evidence is the two needle sentences.

# %%
att = FlashTrace(hops=0).attribute(model, sample)
gold_share = float(att.scores[sample.gold_in_prompt].sum() / att.scores.sum())
gold_tokens = float(sample.gold_in_prompt.float().mean())
print(f"share of the input's mass on the evidence: {gold_share:.1f}, of the input's tokens: {gold_tokens:.1f}")

# %%
scores, labels = att.hops[0].scores, sample.segments.labels(len(sample))
fig = figure.heatmap_figure(sample.tokens, scores, labels=labels, title="Hop 0: what the answer is attributed to")
numbers = pd.DataFrame({"position": range(len(sample)), "score": scores})
run.figure(fig, "fig2_heatmap", "Attribution of a two-number answer, one pass", live=numbers)

# %% [markdown]
# ## A span of one token is a single-token row
#
# With one target token the span attribution is an Information Flow Route (IFR), $w_j(\mathbf x_i)$. IFR on an output of
# many tokens averages these rows, $\frac{1}{|\mathbf O|} \sum_{i \in \mathbf O} w_j(\mathbf x_i)$. Summing the states
# before the proximity is not the same as averaging the rows after it. The rank correlation says how far the two orders
# of the input tokens agree here.

# %%
one = span_scores(activations, torch.ones(1, 1), (target[0], target[0] + 1))[0]
print("a span of one token equals its row:", torch.allclose(one, IFR().rows(activations)[0], atol=1e-6))
agreement = spearman(att.scores, IFR().attribute(model, sample).scores)["rho"]
print("rank correlation of sum before and mean after, above 0.95:", agreement > 0.95)

# %% [markdown]
# ## What it costs
#
# Time against the length of the answer, the input fixed: FlashTrace (one pass for the span), IFR with all target tokens
# in one pass, and IFR one target token at a time, which is how the paper runs its baselines. Random tokens, two CPU cores.

# %%
spans = run.results("efficiency").part("span_cost").explode("run_seconds").rename(columns={"run_seconds": "seconds"})
spans = spans.astype({"seconds": float, "n_output": int})[["method", "n_input", "n_output", "seconds"]]
fig = plots.cost_curve(
    spans, "n_output", "seconds", title=f"Time to attribute a span, {spans['n_input'].iloc[0]} input tokens",
    xlabel="target span |O|, tokens", ylabel="time, s",
)  # fmt: skip
run.figure(fig, "fig2_cost", "Cost against span length", stamp="SmolLM2-135M, two CPU cores; code of 9e2966d")

# %%
medians = spans.groupby(["method", "n_output"])["seconds"].median().unstack()
medians.columns = [f"{n} tokens" for n in medians]
times = medians.assign(growth=medians.iloc[:, -1] / medians.iloc[:, 0]).reset_index()
run.table(times, "fig2_cost", "Median seconds by the length of the span, and how many times as long the longest takes")

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# The paper's claim is one of arithmetic: the sum over the span can be taken before the proximity, so one pass serves the
# whole span. That holds exactly (the identity and the loop above). Its claim of speed is measured against IFR run one
# target token at a time. IFR with all target tokens in one pass is a fairer rival, so both stand in the figure: it grows
# more slowly than one by one, and more than FlashTrace. `04_efficiency` measures longer spans.
#
# The summation can lose contributions that cancel between target tokens. What finds more, the sum or mean pooling, is measured in
# `10_ablations`.
