# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Recursion: through the reasoning, back to the input
#
# > **Question.** Does a second hop, which explains the reasoning, bring the attribution back to the evidence in the
# > input?
# >
# > **Answer.** Partly (profile laptop). Hop 1 has more mass on the input than hop 0 in 20 of 20 samples, and recovery
# > gains 0.030 with one hop and 0.043 with three. But the mass on the reasoning does not fall, as the paper says it
# > does: hop 1 has less of it than hop 0 in 0 of 20.
# >
# > **n.** One written example, then 20 samples of RULER; below each table stands what it was computed on.
# >
# > **Figure.** `fig3_mass_by_segment`: where the mass of each hop lies.
#
# Section 4.3 of the paper. A reasoning model answers from what it has just written, so the reasoning $\mathbf T$ absorbs
# the attribution and little reaches the input $\mathbf I$. FlashTrace explains the answer first (hop 0), then takes the
# scores that fell on $\mathbf T$ as weights of the next target, and so on for $K$ hops. Figures in the paper count
# panels from 1: its "Hop 1" is hop 0 of the formulas, its "Hop 2" is hop 1. Text and tables here count as the formulas
# do.

# %% tags=["parameters"]
profile = "laptop"

# %%
import pandas as pd
from IPython.display import HTML

from flashtrace_book import run as output
from flashtrace_book.experiments import recursion
from flashtrace_book.figures import graph_plots, mass, plots, style
from flashtrace_book.samples import (
    all_samples,
    brief,
    cell_group,
    cell_of,
    count_table,
    ruler_collections,
    stored_attributions,
)
from flashtrace_lib import FlashTrace
from flashtrace_lib.evaluation import audit, evaluate
from flashtrace_lib.methods import Suppression
from flashtrace_lib.metrics.intervals import interval_text
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import prompt_settings, respond
from flashtrace_lib.text import build_sample
from flashtrace_lib.viewer import figure, html

run = output.start(profile)
run.versions()

# %%
model, tokenizer = run.load_model()
style.use_style()

# %% [markdown]
# ## A real response, errors included
#
# The model is asked, greedily, for the total of two numbers that stand in a short text. Its text between the think tags
# is the reasoning $\mathbf T$; the answer that follows is the output $\mathbf O$.

# %%
text = """The library of Larkford opens at nine. On Monday it lent 14 books to the school. The baker brought bread at \
noon. On Tuesday it lent 23 books to the hospital. It rained on Thursday.

How many books did the library lend in total? Think step by step and put the final answer into \\boxed{}."""
problem = Example("library", "written", "library", text, answers=("37",), scorer="boxed")
response = respond([problem], model, tokenizer, 160, Store(run.store("example_responses")))[0]
print(tokenizer.decode(response, skip_special_tokens=True))

# %% [markdown]
# The text says 37. An attribution explains the answer that the model gave, not the true one. It should lead back to the
# numbers that the model copied, and where a number was made up, show that it came from nowhere in the input.

# %%
settings = prompt_settings(tokenizer, problem)
sample = build_sample(tokenizer, text, response, metadata={"id": "library"}, **settings)
lengths = {name: stop - start for name, (start, stop) in sample.segments.named()}
print("tokens:", lengths)

# %% [markdown]
# ## Hops
#
# Hop 0 gives a distribution $\mathbf w^{(0)}$ over the whole context, with the states $\mathbf y_o$ of $\mathbf O$ as
# its target, $\mathbf Y^{(0)} = \sum_{o \in \mathbf O} \mathbf y_o$. The share $\rho_0$ on the reasoning is explained
# further: hop $k$ targets
#
# $$\mathbf Y^{(k)} = \sum_{t \in \mathbf T} w^{(k-1)}_t\, \mathbf y_t, \qquad
# \rho_k = \sum_{t\in\mathbf T} w_t^{(k)} .$$

# %%
att = FlashTrace(hops=3).attribute(model, sample)
shares = pd.DataFrame(att.metadata["mass"]).rename_axis("hop")
shares["flow ρ"] = att.flow
shares.round(2)

# %% [markdown]
# The result adds up the mass that reaches the input, each hop discounted by the mass that was passed on to it:
#
# $$\mathbf w_{final} = \mathbf w_{\mathbf I}^{(0)} + \sum_{k=1}^{K} \Big(\prod_{j<k} \rho_j\Big)\, \mathbf w_{\mathbf I}^{(k)} .$$
#
# The remainder to 1 stayed on the output, on the template around the text, or is still on its way in $\mathbf T$ after
# the last hop.

# %%
reached = float(att.hops[0].scores[slice(*sample.segments.prompt)].sum())
print(f"mass that reaches the input: {reached:.2f} with hop 0 alone, {float(att.scores.sum()):.2f} with three hops")

# %% [markdown]
# ## The heatmap (Figure 3)
#
# The panels are numbered as in the paper: "Hop 1" explains $\mathbf O$, "Hop 2" explains $\mathbf T$. In the difference,
# teal tokens gain and brown ones lose.

# %%
fig = figure.hops_figure(sample, att)
run.figure(fig, "fig3_heatmap", "Hop 1, hop 2 and their difference on a generated response", n=1)

# %%
HTML(html.hops_heatmap(sample, att))

# %%
top = att.scores.argsort(descending=True, stable=True)[:8]
start = sample.segments.prompt[0]
print("highest input tokens after three hops:", [sample.tokens[start + int(i)] for i in top])

# %% [markdown]
# ## Over many samples
#
# The same on every RULER sample, each with the reasoning that the model wrote before a correct answer. A cell is one
# setting of the task, such as four hops and one chain (`h4_c1`). A cell in which the model fails has the reference
# reasoning instead, teacher-forced: the model reads it as if it had written it. The table counts the samples that were
# tried, kept and dropped.

# %%
collections = ruler_collections(run, model, tokenizer)
samples = [s for s in all_samples(collections) if s.segments.has_reasoning]
Store(run.store("example_responses")).compact()
store = Store(run.store("recursion"))
methods = {"flashtrace_k3": FlashTrace(hops=3)}
evaluate(methods, samples, model, store=store, metrics=("recovery",), steps=run.profile.steps)
store.compact()
attributions = stored_attributions(store, samples, methods["flashtrace_k3"])
counts = count_table(collections)
run.table(counts, "recursion_samples", "Samples behind the hops: tried, kept and dropped. Lengths are median tokens.")
brief(counts)

# %% [markdown]
# Where the mass of each hop lies:

# %%
masses = mass.mass_frame(samples, attributions)
fig = plots.mass_by_segment(masses)
run.figure(fig, "fig3_mass_by_segment", "Share of each hop's mass on I, T, O and context", n=len(samples))

# %%
fig = plots.mass_by_position(mass.position_frame(samples, attributions))
run.figure(fig, "fig3_mass_by_position", "Mass within the reasoning by position, per hop", n=len(samples))

# %%
by_hop = masses.pivot_table(index="hop", columns="segment", values="mass", aggfunc="mean").round(2)
by_hop

# %% [markdown]
# Does recursion find more of the evidence? Recovery is the share of the evidence tokens among the highest tenth of the
# input (`05_ruler`). The first $K$ hops of one run are exactly the run with $K$ hops, so all four come from the same
# attributions; the difference is paired with hop 0 on the same samples.

# %%
recovered = recursion.recovery_by_hops(samples, attributions)
run.table(recovered, "recursion_recovery", "Recovery rate by number of hops K, and the paired gain over K = 0")
recovered.round(3)

# %% [markdown]
# ## What an intervention says
#
# Hops read the flow of one forward pass. *Attention suppression* intervenes (Bogdan et al. 2025): no position may attend
# to one sentence $u$, in any layer. The effect on a later sentence $g$ is the Kullback-Leibler divergence of its
# predictions, $M_{gu} = \frac{1}{|g|}\sum_{t \in g} D_{KL}\big(p_t \,\|\, p_t^{(-u)}\big)$. It takes a pass for every
# sentence of $\mathbf I$ and $\mathbf T$. Where the reasoning quotes the input line by line, each line should depend on
# the line that it quotes.

# %%
tracked = next((s for s in samples if cell_group(cell_of(s)) == "chains"), samples[0])
matrix = Suppression().matrix(model, tracked)
fig = graph_plots.suppression_heatmap(matrix, tracked.tokens)
run.figure(fig, "suppression_matrix", "What later sentences lose when a sentence cannot be attended to, on one response", n=1)

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# The paper says that hop 0 lands mostly on the reasoning, that the next hop shifts mass to the input and, within the
# reasoning, to earlier tokens, and that a single recursive hop is enough. Computed here:

# %%
wide = masses.pivot_table(index=["sample", "hop"], columns="segment", values="mass").reset_index()
hop0, hop1 = (wide[wide["hop"] == k].set_index("sample") for k in (0, 1))
print("hop 0: more mass on T than on I in", int((hop0["reasoning"] > hop0["prompt"]).sum()), "of", len(hop0), "samples")
print("hop 1 has more mass on I than hop 0 in", int((hop1["prompt"] > hop0["prompt"]).sum()), "of", len(hop0))
print("hop 1 has less mass on T than hop 0 in", int((hop1["reasoning"] < hop0["reasoning"]).sum()), "of", len(hop0))
for row in recovered[recovered["K"] > 0].itertuples():
    print(f"K = {row.K}: recovery {row.gain:+.3f} against K = 0, 95 % interval {interval_text(row.gain_low, row.gain_high)}, n = {row.n}")

# %% [markdown]
# The shift to the input and to earlier reasoning is there. Two findings differ: in most samples hop 0 puts no more mass
# on the reasoning than on the input, and hop 1 raises the reasoning's mass. Hop 0 also has $\mathbf O$ itself to land
# on, which hop 1 has not.
#
# Two things set these samples apart from the paper's. The model was taught to quote the evidence word by word, so that
# hop 1 has something exact to follow; and its reasoning is short. With a long and exploratory chain of thought hop 0 has
# more to absorb. Where the evidence is more than a tenth of the input (the gold share above), the recovery of every $K$
# has the same cap.

# %% [markdown]
# ## Audit
#
# Stored attributions, chosen at random, are computed again from scratch and must agree.

# %% tags=["audit"]
checked = audit(methods, samples, model, store, k=2, seed=run.profile.seed, steps=run.profile.steps)
assert checked["agrees"].all(), checked[~checked["agrees"]]
print("all agree:", bool(checked["agrees"].all()))
