# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Pilot study: what reasoning does to attribution
#
# > **Question.** Does a model's reasoning hide the input from attribution methods, and what would it cost to follow the
# > reasoning token by token?
# >
# > **Answer.** Partly. In chains that the model wrote, the share on the reasoning grows with its length (IFR: Spearman
# > 0.875), but by little, and together with the number of assignments. After reasoning recovery changes by −0.199 for
# > AttnLRP and by −0.051 for IFR, while a string match, which needs no model, then finds all of the evidence. Within the haystack
# > IFR and FlashTrace lose none of its sentences. IFR token by token takes 38.6 times FlashTrace's time at the longest reasoning
# > measured for it.
# >
# > **n.** 48 written and 16 read reasonings for (a); 8 problems answered both ways for (b); medians of three runs for (c).
# > Each problem is its own cluster, so that effective n is n. The answers of (b) are the model's own and right.
# >
# > **Figure.** `fig1b_recovery`: recovery with and without reasoning, method by method.
#
# <!-- numbers: 0.875 = fig1a_trend.csv[samples=written,label=IFR,share=share].rho;
# −0.199 = fig1b_change.csv[method=attnlrp,metric=recovery].difference;
# −0.051 = fig1b_change.csv[method=ifr,metric=recovery].difference;
# −0.508 = fig1b_change_by_sentence.csv[method=ifr,by=mean,metric=recovery].difference;
# −0.207 = fig1b_change_by_sentence.csv[method=attnlrp,by=mean,metric=r_precision_haystack].difference;
# 38.6 = fig1c_factor.csv[method=ifr per token].factor_longest -->
#
# Section 3.2, Figure 1 and appendix I of the paper. A reasoning model reads an input $\mathbf I$, writes a reasoning
# $\mathbf T$ and then an output $\mathbf O$. An attribution of $\mathbf O$ is shared among everything before it. The
# paper's pilot makes three points on one example of variable tracking: the reasoning absorbs the mass (a), the input's
# evidence is then found less well than without reasoning (b), and following the reasoning token by token is too
# expensive (c).

# %% tags=["parameters"]
profile = "book"

# %%
import pandas as pd

from flashtrace_book import ablations
from flashtrace_book.experiments import pilot
from flashtrace_book.figures import pilot_plots, plots, style, tables
from flashtrace_book.results import RANKING
from flashtrace_book.run import start
from flashtrace_lib.evaluation import summarise

run = start(profile)
style.use_style()
results = run.results("pilot")

# %% [markdown]
# ## The samples
#
# One chain of assignments is hidden in noise, `h4_c1` having four of them: `VAR A = 12345`, `VAR B = VAR A`, and so on. The
# more assignments, the longer the reasoning, which names them one by one. The model (135 million parameters) wrote the
# answers to four assignments itself. With sixteen it fails; from thirty-two on it was not asked and reads the reference reasoning as if it had
# written it: *forced*. The last two rows are the same problems, answered directly and after reasoning.

# %%
run.table(results.counts(), caption="Samples of the pilot study; lengths are median tokens")

# %% [markdown]
# ## (a) How much stays on the reasoning
#
# Three methods explain $\mathbf O$. **IFR** gives each token $o$ of $\mathbf O$ a row of proximities, and **AttnLRP**
# gives it the relevance of the embedding $\mathbf e_j$ of every earlier token, by a backward pass with modified rules;
# both are averaged over $\mathbf O$. **FlashTrace** sums the states of $\mathbf O$ first and follows the mass on
# $\mathbf T$ in further hops:
#
# $$a^{\text{IFR}}_j = \frac{1}{|\mathbf O|} \sum_{o \in \mathbf O} w_j(\mathbf x_o), \qquad
# a^{\text{AttnLRP}}_j = \frac{1}{|\mathbf O|} \sum_{o \in \mathbf O} \Big\langle \mathbf e_j,
# \frac{\tilde\partial\, \text{logit}_o}{\partial \mathbf e_j} \Big\rangle, \qquad
# w^{(0)}_j = w_j\Big(\sum_{o \in \mathbf O} \mathbf x_o\Big), \quad
# w^{(1)}_j = w_j\Big(\sum_{t \in \mathbf T} w^{(0)}_t \mathbf x_t\Big),$$
#
# with $w_j(\cdot)$ the distribution that `02_span_aggregation` derives. The share of the mass on $\mathbf T$ can be taken
# of the whole context, or of $\mathbf I$ and $\mathbf T$ alone. The paper does not say which it means, so both are shown:
#
# $$\text{share} = \frac{\sum_{t \in \mathbf T} \max(0, a_t)}{\sum_{j} \max(0, a_j)}, \qquad
# \text{share of both} = \frac{\sum_{t \in \mathbf T} \max(0, a_t)}{\sum_{j \in \mathbf I \cup \mathbf T} \max(0, a_j)} .$$
#
# The pilot's four own answers have one length, and cannot show a trend. So the chains of `05_ruler` join in, all of which the
# model wrote itself, in prompts of one length: four, six and ten assignments. Written and read reasonings are not pooled.

# %%
METHODS = ["flashtrace", "ifr", "attnlrp"]
chains = [cell for cell in results.samples()["cell"].unique() if cell not in pilot.WAYS]
written = pilot.mass_on_reasoning(run.results("ruler"), METHODS, cell=["h4_c1", "h6_c1", "h10_c1"], answers="own")
longer = pilot.mass_on_reasoning(results, METHODS, cell=chains, answers="own")
read = pilot.mass_on_reasoning(results, METHODS, cell=chains, answers="forced")
panels = {"written by the model": written, "written, longer prompt": longer, "read (forced)": read}
shares = pd.concat([frame.assign(panel=panel) for panel, frame in panels.items()], ignore_index=True)
shares = shares[shares["hop"] < 2]

# %%
drawn = shares[shares["panel"] != "written, longer prompt"]
stamp = "SmolLM2-135M + adapter; lines join the means of the cells; whiskers: 95 % t interval, none below six samples"
fig = pilot_plots.mass_against_length(
    drawn, "share", title="Share of the attribution that stays on the reasoning", ylabel="share of the mass on T"
)
run.figure(fig, "fig1a_mass_on_reasoning", "Share of the mass on T against its length", stamp=stamp)

# %% [markdown]
# Much of the mass lies on $\mathbf O$ itself and on the template. Of the mass on $\mathbf I$ and $\mathbf T$ alone:

# %%
fig = pilot_plots.mass_against_length(
    drawn, "share_of_both", title="Reasoning against input", ylabel="share on T of the mass on I and T"
)
run.figure(fig, "fig1a_reasoning_against_input", "Mass on T, of the mass on I and T, against its length", stamp=stamp)

# %%
means = pilot.mean_shares(shares, ["panel", "label", "cell"])
wide = means.assign(tokens=means["n_reasoning"].round().astype(int)).pivot_table(
    index="label", columns=["panel", "tokens"], values="share_of_both", sort=False
)
run.table(means, "fig1a_shares", "Mean share on T of the mass on I and T, by the mean length of T", wide=wide, digits=2)

# %% [markdown]
# Does the share grow *with the length*? This evidence is confounded: a longer reasoning also has more assignments, and its
# answer lists more variables. Across cells the three cannot be told apart. Among problems with the *same assignments* the
# reasonings still differ a little in length, since names take one token or two; there both length and share are taken as
# deviations from the cell's mean. The numbers are Spearman's $\rho$.

# %%
kinds = {"written": (written, False), "same assignments": (written, True), "read": (read, False)}
parts = [pilot.trends(f[f["hop"] < 2], within=w).assign(samples=k) for k, (f, w) in kinds.items() if len(f)]
trend = pd.concat(parts, ignore_index=True)
grid = tables.interval_grid(trend, ["samples", "share"], "label", "rho", "+.2f")
run.table(trend, "fig1a_trend", "Spearman's correlation of the share on T with the length of T", wide=grid)

# %% [markdown]
# What the model wrote decides the claim, both across cells and with the assignments fixed, by the share of all mass; the
# share of $\mathbf I$ and $\mathbf T$ checks it. What it read stands beside.

# %%
first = trend[trend["hop"] == 0].assign(label=trend["label"] + " " + trend["samples"] + " " + trend["share"])
of_all, own = first["share"] == "share", first["samples"] != "read"
ablations.note(run, "mass_grows", first[~own], "forced", figure="fig1a_trend")
ablations.note(run, "mass_grows", first[own & ~of_all], "own", "check", figure="fig1a_trend")
ablations.note(run, "mass_grows", first[own & of_all], "own", figure="fig1a_trend")

# %% [markdown]
# ## (b) Recovery with and without reasoning
#
# The same problems, answered directly and after reasoning; a problem counts only where both answers are right. Recovery is
# the share of the evidence tokens $S_{gt}$ among the highest tenth of the input, $S_{top}$; R-precision takes the
# $|S_{gt}|$ highest instead:
#
# $$\text{Recovery} = \frac{|S_{top} \cap S_{gt}|}{|S_{gt}|}, \qquad |S_{top}| = \lfloor 0.1\, |\mathbf I| \rfloor .$$
#
# Three controls need no model. *String match* scores a token of the input by the longest run of tokens through it that
# recurs in $\mathbf T \cup \mathbf O$; *position* prefers what stands last; *random* is the mean of random rankings.
#
# *Predict first.* When the model reasons first, which loses more: AttnLRP, IFR or FlashTrace? And what becomes of the
# string match?
#
# <details><summary>Answer</summary>
#
# AttnLRP loses most, and all three lose. The string match gains: the reasoning copies the evidence word by word, so that
# it is not hidden from a method that compares strings. What a method loses here it loses although the evidence stands
# once more in the reasoning.
#
# </details>

# %%
pairs = results.frame(RANKING, [*METHODS, "string_match", "position", "random"], cell=list(pilot.WAYS))
recovery = tables.comparison_table(summarise(pairs))
shown = recovery[recovery["metric"].isin(["recovery", "r_precision"])]
wide = tables.wide_table(shown, cells=pilot.WAYS)
run.table(recovery, "fig1b_recovery", "Evidence found without and with reasoning", wide=wide)

# %%
title = "Recovery of the evidence, without and with reasoning"
fig = plots.metric_bars(recovery, "recovery", cells=pilot.WAYS, title=title)
run.figure(fig, "fig1b_recovery", title, stamp="SmolLM2-135M + adapter, own answers, all right")

# %% [markdown]
# The difference, problem by problem (after reasoning minus direct):

# %%
change = pilot.change_with_reasoning(pairs)
grid = tables.interval_grid(change, "method", "metric")
run.table(change, "fig1b_change", "Evidence found after reasoning minus that of the direct answer", wide=grid)

# %% [markdown]
# Is that evidence lost, or words of sentences that still stand first? With whole sentences ranked, by the mean of their tokens' scores and
# by the sum, as `05_ruler` does (looked at after the runs):

# %%
ranked = {how: results.frame(RANKING, [*METHODS, "string_match"], cell=list(pilot.WAYS), whole=how) for how in ("mean", "sum")}
whole = pd.concat([pilot.change_with_reasoning(part).assign(by=how) for how, part in ranked.items()], ignore_index=True)
grid = tables.interval_grid(whole.assign(method=whole["method"] + ", " + whole["by"]), "method", "metric")
run.table(whole, "fig1b_change_by_sentence", "The same by sentences", wide=grid)

# %%
level = pd.concat([part.assign(by=how) for how, part in ranked.items()]).query("metric == 'recovery_haystack'")
level = level.pivot_table("value", ["method", "by"], "cell", sort=False).reset_index()
run.table(level, "fig1b_level_by_sentence", "Recovery within the haystack by sentences, means", digits=3)

# %% [markdown]
# **By sentences IFR and FlashTrace lose nothing within the haystack**, whichever way they are combined: with reasoning and without it its top
# tenth holds all of the evidence. AttnLRP's R-precision changes by −0.207 by means, and by sums not at all.
# **Over the whole input all three lose, and IFR and FlashTrace more than by tokens**: −0.508 of recovery by means. What is no part
# of the haystack, question and instruction, takes the top tenth.

# %% [markdown]
# The claim is of standard methods, IFR and AttnLRP here. FlashTrace and the string match stand beside them.

# %%
answers = ablations.whose(results)
standard, main = change["method"].isin(["ifr", "attnlrp"]), change["metric"] == "recovery"
beside = change["method"].isin(["flashtrace", "string_match"]) & main
by_sentence = whole[whole["method"].isin(["ifr", "attnlrp"]) & whole["metric"].isin(["recovery", "recovery_haystack"])]
by_sentence = by_sentence.assign(label=by_sentence["metric"] + ", " + by_sentence["method"] + ", sentences by " + by_sentence["by"])
ablations.note(run, "reasoning_hurts", by_sentence, answers, "beside", figure="fig1b_change_by_sentence")  # looked at after the runs
ablations.note(run, "reasoning_hurts", change[beside], answers, "beside", figure="fig1b_change")
ablations.note(run, "reasoning_hurts", change[standard & ~main], answers, "check", figure="fig1b_change")
ablations.note(run, "reasoning_hurts", change[standard & main], answers, figure="fig1b_change")

# %% [markdown]
# ## (c) What following the reasoning token by token costs
#
# A naive multi-hop attribution needs one vector for every token of $\mathbf T$ and $\mathbf O$, so that its cost grows
# like $|\mathbf T| \cdot N$ in a context of $N$ tokens. FlashTrace takes one pass per hop whatever the length. Two naive
# ways are measured: AttnLRP with a backward pass for every token over one common forward pass, and IFR with one pass
# over the stored activations for every token. Once a method takes longer than the limit, longer reasonings are
# extrapolated along the power law through its last three lengths.

# %%
cost = pilot.cost_table(results.part("cost"))
grid = cost.pivot_table(index=["method", "measured"], columns="n_reasoning", values="seconds", sort=False)
cost = run.table(cost, "fig1c_cost", "Seconds of one multi-hop attribution, by the length of T", wide=grid, digits=1)
cost

# %%
fig = pilot_plots.extrapolated_cost(cost.frame)
run.figure(fig, "fig1c_cost", "Cost of following T", stamp="SmolLM2-135M, two CPU cores; taken with earlier code")

# %% [markdown]
# How many times as slow as FlashTrace, at the shortest and at the longest reasoning that was measured:

# %%
factor = pilot.growth_of_factor(cost.frame)
run.claim("naive_cost", factor, answers="", figure="fig1c_factor")
run.table(factor, "fig1c_factor", "Factor over FlashTrace; `value` says how many times it grows", digits=1)

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# **(a)** The paper reports that the share on $\mathbf T$ grows with its length, from about 80 % to over 90 %. In what the
# model wrote it grows for every method, but by little. With the assignments fixed, the growth is shown for every method of
# the mass on $\mathbf I$ and $\mathbf T$; of all mass it is shown for FlashTrace alone. In the long reasonings that the model
# read, $\mathbf O$ grows too and takes much of the mass: there IFR's and AttnLRP's share of all mass *falls*, and of
# $\mathbf I$ and $\mathbf T$ it stays where it was in the shortest of them. Only FlashTrace's hop 1, whose target is
# $\mathbf T$ itself, comes near the paper's lower number. The paper gives no lengths and does not say of which total its share is.
#
# **(b)** Every method recovers less after reasoning, as in the paper, but within the haystack these are, for IFR and FlashTrace, words of
# sentences that they still rank first; over the whole input, whole sentences ranked, they lose more to the question. By recovery IFR loses as little as FlashTrace; by every
# other metric it loses more. Where the model answers directly, FlashTrace finds no more than IFR. The string match shows
# what kind of problem this is: after reasoning, each piece of evidence stands in $\mathbf T$ word by word, and comparing
# strings finds it all. Token by token no method does as well.
#
# **(c)** The factor over FlashTrace grows with the length for both naive ways. At thousands of tokens they would take hours
# here too, by extrapolation. The times are of two CPU cores that did other work as well, so that only orders of magnitude
# count. Section 3.2 names AttnLRP as the paper's method, appendix I perturbation for (b), which this pilot leaves out.
#
# The model has 135 million parameters, was taught to quote the evidence line by line, and writes short reasonings that name
# every fact. The paper shows one example of a model of 8 billion parameters.
