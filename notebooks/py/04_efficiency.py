# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Efficiency: what an attribution costs
#
# > **Question.** How do the time and the memory of an attribution grow with the length of the input and of the
# > generation, and how much faster is FlashTrace than the baselines?
# >
# > **Answer.** At the paper's longest generation FlashTrace is 18 times as fast as IFR run one target token at a time,
# > where the paper says 130. It is 5.84 times as fast as IFR run in one batch, and 3.33 times as fast as AttnLRP, which is
# > the cheaper baseline. It takes about a forward pass of the same tokens, whose logits it does not need; CAGE, AT2 and, where
# > little is generated, IFR on T ∪ O take about as much. It is on the front of cost and faithfulness, beside IFR on T ∪ O, which
# > has a lower MAS and took a tenth longer, and AT2, whose MAS is much higher.
# >
# > **n.** One to three runs for a time, one to three for a peak of memory; the columns `n` and `n_peak` of
# > `fig4_measurements` have them. MAS: the model's own answers on RULER, about one a cell.
# >
# > **Figure.** `fig4_cost_by_length`: time and memory against both lengths.
#
# <!-- numbers: 18 = efficiency_headline.csv[method=ifr_one_by_one].times; 130 = efficiency_headline.csv[method=ifr_one_by_one].paper; 5.84 = efficiency_headline.csv[method=ifr].times; 3.33 = efficiency_headline.csv[method=attnlrp].times -->
#
# Section 5.1, Figure 4, Tables 6 and 9, and appendices B, C and L of the paper. How do the time and the memory of an
# attribution grow with the length of the input $\mathbf I$, and with the length of the generation, $\mathbf T$ and
# $\mathbf O$? The paper's answer is that FlashTrace explains 5,000 generated tokens in under 20 seconds, that it is over
# 130 times faster than the fastest baseline, and that gradient methods run out of memory on the way.

# %% tags=["parameters"]
profile = "book"

# %%
import pandas as pd
from IPython.display import display

from flashtrace_book import paths
from flashtrace_book.ablations import whose
from flashtrace_book.faithfulness import shared_samples
from flashtrace_book.figures import efficiency_plots, efficiency_tables, style
from flashtrace_book.run import readable, start
from flashtrace_lib.evaluation import summarise

run = start(profile)
style.use_style()
frame = efficiency_tables.by_axis(run.results("efficiency").part("sweep"))

# %% [markdown]
# ## How it is measured
#
# Each method runs in a process of its own, on random tokens: neither time nor memory depends on what they say. A run that
# takes longer than the budget of time is stopped, and so is one that takes more memory over the loaded model than the
# budget of memory. Larger sizes of that row are then *beyond* it and not tried. Every run is paired with one plain forward
# pass of the same tokens, because the *ratio* to it carries over between machines, where seconds do not:
#
# $$\text{ratio} = \frac{\text{seconds of the attribution}}{\text{seconds of one forward pass}}, \qquad
# \text{times} = \frac{\text{seconds of the baseline}}{\text{seconds of FlashTrace}} .$$
#
# The target is everything generated. FlashTrace, CAGE and the rollout explain a short $\mathbf O$ and follow the mass
# through $\mathbf T$. A method that does not recurse gets all of $\mathbf T$ and $\mathbf O$ as its target, or the length
# of the generation would cost it nothing. IFR is there twice. *One by one* goes through the model's activations once for
# every target token, as in the paper. *IFR* forms the same rows in one pass, which is the fair implementation. IG and
# AttnLRP differentiate the sum over the target: by linearity that is the sum over its tokens (appendix D.1), at the price
# of one,
#
# $$\sum_{o \in \mathbf O} \frac{\partial\, \text{logit}_o}{\partial \mathbf e_j}
# = \frac{\partial}{\partial \mathbf e_j} \sum_{o \in \mathbf O} \text{logit}_o .$$
#
# Perturbation, CLP and ReAGent change a sentence at a time (appendix D.2), here at every length, so that a curve shows one
# algorithm. `python -m flashtrace_book.efficiency.worker` measures one method at a size of your own.
#
# All was measured in 64 minutes with the code of commit 9e2966d (fused attention, which did not run rightly there, with that of
# 4308c25), on two cores of one virtual machine that did nothing else and whose speed wavers by a tenth.

# %%
run.table(frame.drop(columns="runs_s"), "fig4_measurements", "What was measured, and where",
          wide=efficiency_tables.overview(frame))  # fmt: skip

# %% [markdown]
# ## Time and memory (Fig. 4 a to d)
#
# Left against the length of the input, right against that of the generation; above seconds, below memory. A cross stands
# where a budget ended a line. IFR one by one reaches it early in (b), so that the curves say little of the paper's own
# comparison, which has a section below.

# %%
both = frame[frame["axis"].isin(["input", "generation"])]
fig = efficiency_plots.cost_by_length(both, title="Cost of one attribution by length")
run.figure(fig, "fig4_cost_by_length", "Time and peak memory of one attribution by length",
           stamp=f"{readable('base')}, random tokens; code of 9e2966d")  # fmt: skip

# %% [markdown]
# In (c), from 128 tokens on, the plain forward pass lies *above* FlashTrace. The pass, as `model(ids)` makes it, returns the
# logits of every position, a number for each of the 49,152 words of the vocabulary. An attribution needs the states of the
# layers and no logits. In (d) the two are near each other, because FlashTrace keeps queries and states of the rows that it
# explains. Beside both stands what the logits alone take.

# %%
ours = frame[(frame["method"] == "flashtrace") & (frame["outcome"] == "ok")]
ours = ours.drop_duplicates(["n_input", "n_generated"]).assign(tokens=ours["n_input"] + ours["n_generated"])
memory = ours.assign(logits_gib=ours["tokens"] * 49152 * 4 / 2**30)
run.table(memory[["n_input", "n_generated", "peak_gib", "forward_peak_gib", "logits_gib", "ratio", "n", "hardware"]],
          caption="FlashTrace with one hop: peak memory beside a forward pass (GiB), and time in forward passes")  # fmt: skip

# %% [markdown]
# The paper calls a hop's cost comparable to that of a forward pass. The column `ratio` holds the pass itself and two sweeps
# over its cache. Fixed costs rule where there are few tokens.

# %%
sizes = ours.assign(value=ours["ratio"], label=[f"{row.n_input} + {row.n_generated} tokens" for row in ours.itertuples()])
timed = {"answers": "", "models": "base"}  # random tokens: nobody's answers
run.claim("hop_is_a_pass", sizes, figure="fig4_measurements", **timed)

# %% [markdown]
# Does FlashTrace scale best? Time and memory of the cheapest other method, over FlashTrace's, at the longest input and the
# longest generation: above 1, FlashTrace is the cheapest.

# %%
next_best = efficiency_tables.next_cheapest(frame)
run.claim("scales_best", next_best, figure="fig4_cost_by_length", **timed)

# %% [markdown]
# ## The headline: how much faster than IFR?
#
# *Predict first.* With 5,000 generated tokens IFR one by one makes 5,000 sweeps over the model's activations, FlashTrace
# two. A forward pass of these tokens takes a quarter of a minute on the processor that measured this. Is FlashTrace ten, a
# hundred or a thousand times as fast?
#
# <details><summary>What was measured</summary>
# Nearer to ten than to a hundred. FlashTrace cannot be faster than the forward pass that it contains, and here that pass is
# most of its time: over it alone, IFR one by one does not reach the paper's factor. On a GPU the pass is cheap beside
# thousands of starts of small kernels.
# </details>
#
# One run each, under a budget of its own.

# %%
headline = run.table(efficiency_tables.headline(frame), "efficiency_headline",
                     "FlashTrace, AttnLRP and IFR at the longest generation (paper: 5,000 tokens)")  # fmt: skip
headline

# %%
found = headline.frame.set_index("method")
about = {"figure": "efficiency_headline", "label": f"{found['n_generated'].max():,} generated tokens", **timed}
for claim, method in {"speed_130": "ifr_one_by_one", "speed_batched": "ifr"}.items():
    if method in found.index:
        run.claim(claim, {"value": found.loc[method, "times"], "n": found.loc[method, "n"]}, **about)
if {"ifr", "attnlrp"} <= set(found.index):
    share = found.loc["ifr", "seconds"] / found.loc["attnlrp", "seconds"]
    run.claim("cheapest_baseline", {"value": share, "n": found.loc["ifr", "n"]}, **about)

# %% [markdown]
# Time does not depend on what weights say. Where `scripts/gpu_bench.sh` was run on a GPU, on random weights of the paper's
# model's size, its rows follow, beside what the authors measured.

# %%
at_size = efficiency_tables.at_paper_size(paths.gpu_file())
if len(at_size):
    display(run.table(at_size, caption="The paper's settings, random weights of Qwen3-8B's size"))

# %% [markdown]
# ## How it grows (Table 6)
#
# With $N$ tokens of context, $M$ of target and $D$ the model's width, a token-level method projects a vector for every
# pair of a target and a source, $\mathcal O(M \cdot N \cdot D)$. The span-wise sum needs the vectors only once for every
# source,
#
# $$\mathcal O\big(K \cdot N \cdot (M + D)\big),$$
#
# because the sum over the target runs over scalars (appendix B). Neither counts the forward pass, which everything here
# contains and which grows faster than $N$ by itself. Beside the paper's expressions stand the exponents $b$ of
# $\text{cost} \propto \text{length}^{\,b}$, fitted by least squares on the logarithms, with the 95 % interval of the
# residuals and the number of sizes. The column `tail` of the file is of the three longest alone.

# %%
growth, wide = efficiency_tables.complexity_table(frame)
run.table(growth, "table6_complexity", "Complexity by the paper, and fitted exponents (paper: Table 6)", wide=wide)

# %% [markdown]
# An exponent below 1 is of lengths at which fixed costs still rule. So compare methods with each other rather than with the
# expression: FlashTrace's exponent in the generated tokens minus IFR's, at the sizes that both ran. One by one decides; the
# batched form, which ran at more sizes, is a check.

# %%
for role, method in {"decides": "ifr_one_by_one", "check": "ifr"}.items():
    slower = efficiency_tables.paired_growth(frame, "flashtrace", method)
    label = f"FlashTrace minus {style.method_style(method).label}"
    noted = run.claim("time_growth", slower, role=role, label=label, figure="table6_complexity", **timed)
    print(noted)

# %% [markdown]
# ## Cached against recomputed attention (Table 9)
#
# Algorithm 1 reads the attention maps of all layers, which is quadratic memory if they are kept. Recomputing them layer by
# layer trades time for it. Here only the rows $\alpha_{ij}$, $i \in S$, of the target are recomputed, in blocks, and only
# their weighted sums $a_{jh} = \sum_{i \in S} w_i\, \alpha^h_{ij}$ are kept. So this is another algorithm than the paper's
# recomputation of whole maps, and its time may fall where the paper's rises. *Fused* takes the same sums by a backward pass
# through a fused kernel, which pays on a GPU and not on a CPU.

# %%
run.table(efficiency_tables.attention_table(frame), "table9_attention",
          "FlashTrace with cached and with recomputed attention (paper: Table 9)")  # fmt: skip

# %%
savings = run.table(efficiency_tables.attention_savings(frame), "table9_savings", "What recomputing attention saves and costs")
savings

# %%
by_size = savings.frame.assign(label=[f"{tokens:,} tokens" for tokens in savings.frame["tokens"]])
saved, added = by_size.assign(value=by_size["memory_saved"]), by_size.assign(value=by_size["time_added"])
for role, part in {"decides": saved.tail(1), "check": saved.iloc[:-1], "beside": added.tail(1)}.items():
    if len(part):
        run.claim("recompute_memory", part, role=role, figure="table9_savings", **timed)

# %% [markdown]
# ## Beside published tools
#
# At the same lengths and under the same budgets: the authors' own package, which keeps all attention maps unless told to
# recompute them; captum's ablation of sentences, the nearest to perturbation; and inseq's gradients, the nearest to
# AttnLRP. The table shows each tool at its longest size that ran, or its first where none did.

# %%
tools = efficiency_tables.tools_table(frame)
ran = tools[tools["outcome"] == "ok"].drop_duplicates("tool", keep="last")
longest = pd.concat([ran, tools[~tools["tool"].isin(ran["tool"])].drop_duplicates("tool")])
run.table(tools, "efficiency_tools", "Published tools beside the nearest method, in forward passes and GiB", wide=longest)

# %% [markdown]
# ## (e) Cost against faithfulness
#
# MAS over all cells of Table 1, on the model's own answers (`05_ruler`), against the cost at 1,024 tokens of input. MAS is
# the area under the deletion curve plus the misalignment of the scores with it; lower is better. It has its interval; the
# cost is a median of one to three runs, without one. A method is on the front where no other is both as cheap and lower in
# MAS, by these medians and means. The cost is drawn in forward passes of the same process.

# %%
length = run.profile.results["efficiency"]["efficiency"]["pareto_input"]
ruler = run.results("ruler")
scores = ruler.frame(["mas", "rise"], tuple(frame["method"].unique()), answers=whose(ruler))
scores = summarise(shared_samples(scores), ("method", "metric"))
points, left_out = efficiency_tables.cost_and_faithfulness(frame, scores[scores["metric"] == "mas"], length)
shown = run.table(points, "fig4e_pareto", f"Cost at {length:,} tokens of input, and MAS on RULER")
shown

# %%
fig = efficiency_plots.pareto(shown.frame, title=f"Cost at {length:,} tokens of input against MAS on RULER")
run.figure(fig, "fig4e_pareto", "Cost against MAS; lower is better in both",
           stamp=f"cost: {readable('base')}; MAS: {readable('reasoner')}, own answers")  # fmt: skip

# %% [markdown]
# Left out: methods that a budget stopped at this length, and those whose MAS is not measured.

# %%
run.table(left_out, caption="Not in the figure: without a MAS, or stopped")

# %%
by_rise, _ = efficiency_tables.cost_and_faithfulness(frame, scores[scores["metric"] == "rise"], length)
unknown = left_out[left_out["ratio"] <= points.set_index("method").loc["flashtrace", "ratio"]]
for role, value, label in (
    ("decides", efficiency_tables.as_cheap_and_better(points), "methods as cheap with a lower MAS"),
    ("check", efficiency_tables.as_cheap_and_better(by_rise), "methods as cheap with a lower RISE"),
    ("beside", len(unknown), ", ".join(["methods as cheap without a MAS", *unknown["method"].map(lambda name: style.method_style(name).label)])),
):
    run.claim("pareto", {"value": value, "n": points["n"].max()}, role=role, label=label, figure="fig4e_pareto", models="base, reasoner")

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# The paper: over 130 times faster than IFR at 5,000 generated tokens; the best scaling in time and memory; IG and IG-Attn
# out of memory on long contexts; and the best place on the front of cost and faithfulness.
#
# **The factor of 130 is not reproduced.** It is one of implementation and machine as much as of method. The paper's IFR goes
# through the whole cache once for every target token; batched, the same rows come from one pass, and most of the factor is
# gone. Appendix B explains what remains: a batch projects as many vectors as it has targets, where the span needs one. On a
# CPU the forward pass, which every method contains, bounds any factor from above.
#
# **IFR is not the cheapest baseline here.** AttnLRP, differentiated once for the whole target, is faster than batched IFR, at a
# multiple of FlashTrace's peak of memory. The authors' file has it slower than IFR: it seems to pay there
# for each target token.
#
# **FlashTrace scales best in the generation, not in the input.** With 1,024 generated tokens it takes the least time and the least
# memory. With 2,048 of input CAGE takes a little less time and IFR a little less memory, by medians of three runs. That time grows
# more slowly with the target than token by token holds against IFR in one batch, and one by one at six sizes.
#
# **FlashTrace is on the front, not alone.** With it stand AT2, which has a much higher MAS, and IFR on T ∪ O, whose MAS is lower
# by the interval of 60 answers (`05_ruler`). At the 32 generated tokens of this figure that one took a tenth longer than FlashTrace
# with one hop, no more than this machine's speed wavers by; an earlier measurement, with slower hops, had the two alike. With 1,024
# generated tokens IFR takes 3.7 passes for as many rows, FlashTrace one. CAGE is about as cheap and has no MAS here.
#
# Other differences: two CPU cores and a model of 135 million parameters, against five A800 and one of 8 billion, so that
# lengths are shorter and budgets lower. FlashTrace keeps no attention map here, so attention maps cannot exhaust memory.
# Gradient methods fall back on recomputing layers when their graph would not fit, which turns the paper's failures into
# time.
