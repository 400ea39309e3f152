# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The embedded reasoner
#
# > **Question.** Can a model of 135 million parameters be taught to reason well enough that its responses can be
# > explained?
# >
# > **Answer.** For copying and chains, yes: held-out accuracy is 1.00 on `mq_q2`, 0.82 on `h2_c3` and 0.94 on `h4_c1`.
# > For arithmetic and multi-hop questions, in part: 0.52 on `math500`, 0.36 on `gsm8k` and 0.38 on `morehopqa`, all
# > below the 0.70 that was the target. Every chapter therefore keeps right answers only, and counts them.
# >
# > **n.** 50 held-out problems per task and mode.
# >
# > **Figure.** `reasoner_accuracy`: accuracy by task, with reasoning and without.
#
# The paper explains reasoning models. The embedded model, SmolLM2-135M-Instruct, comes with the book and runs on any
# laptop, but it cannot follow a chain of steps. This notebook gives it a small adapter that can: a low-rank update
# (LoRA) of its projections,
#
# $$W' = W + \tfrac{\alpha}{r}\, B A,\qquad A \in \mathbb{R}^{r \times d_{in}},\; B \in \mathbb{R}^{d_{out} \times r},$$
#
# trained on generated problems alone, by the mean cross-entropy of the tokens of the response,
# $-\frac{1}{|\mathbf T \cup \mathbf O|} \sum_t \log p(y_t \mid y_{<t})$. Merged into the weights it leaves a plain Llama
# model, so that nothing in the rest of the book needs to know of it.

# %% tags=["parameters"]
profile = "laptop"

# %%
import pandas as pd

from flashtrace_book.figures import style, training_plots
from flashtrace_book.reasoner.accuracy import answer_store, audit_answers
from flashtrace_book.reasoner.config import load_training_config
from flashtrace_book.reasoner.curriculum import problems
from flashtrace_book.reasoner.modes import true_response
from flashtrace_book.reasoner.train import LOG, train
from flashtrace_book.run import start
from flashtrace_lib import load, load_model
from flashtrace_lib.metrics.intervals import interval_text

run = start(profile)
run.versions()

# %%
folder = load.adapter_folder()
accuracy = pd.read_csv(folder / "accuracy.csv")
dtype = accuracy["dtype"].iloc[0]  # of the weights when the answers were given
model, tokenizer = load_model("embedded", dtype=dtype)
run.record_model(model, f"embedded, {dtype}")
style.use_style()

# %% [markdown]
# ## What it is taught
#
# Ten families of problems, each with the reference reasoning between think tags. A chain names the evidence line by line
# and carries its state along (*yes*, *no*), so that every step can be copied or looked up in the lines before it.
# One problem in ten is asked in direct mode: `/no_think` at the end of the user's turn, and the answer alone.

# %%
for task in ("h2_c3", "mq_q2", "morehopqa", "gsm8k"):
    example = problems(task, 1, seed=1, split="train", tokenizer=tokenizer, length=200)[0]
    print(f"=== {task}: … {(example.prompt + example.request)[-110:].strip()}\n{true_response(example, 'thinking')}\n")

# %% [markdown]
# Training and test share no name, key, number, wording or length: a checksum of the text decides to which of the two it
# belongs. Difficulty grows with the progress of the training: one to ten hops, one to
# three chains, one to eight needles, prompts of 128 to 1024 tokens.

# %% [markdown]
# ## How the training went
#
# The committed adapter was trained by `python -m flashtrace_book.reasoner.train laptop` from one seed; the card beside
# it gives its data and its time.

# %%
print((folder / "README.md").read_text().split("## ")[0])

# %%
log = pd.read_csv(folder / LOG)
fig = training_plots.learning_curves(log)
run.figure(fig, "reasoner_training", "Loss and accuracy over the training of the adapter", n=1)

# %% [markdown]
# ## How often it is right
#
# Greedy answers to held-out problems. The score of the needle cells is the share of values recalled; everywhere else an
# answer is right or wrong, and variable tracking is right only if all variables are named and no other. Intervals of
# right or wrong answers are Wilson's, with $\hat p$ the share of right ones and $z = 1.96$, those of shares are
# Student's t:
#
# $$\frac{\hat p + z^2/2n \pm z \sqrt{\hat p (1 - \hat p)/n + z^2/4n^2}}{1 + z^2/n} .$$

# %%
fig = training_plots.accuracy_bars(accuracy)
n_range = "–".join(str(n) for n in sorted({accuracy["n"].min(), accuracy["n"].max()}))
run.figure(fig, "reasoner_accuracy", "Accuracy of the embedded reasoner on held-out problems", n=n_range)

# %%
reached = accuracy.merge(training_plots.TARGETS, on=["task", "mode"], how="left")
reached["reached"] = (reached["score"] >= reached["aim"]).where(reached["aim"].notna(), "")
run.table(reached, "reasoner_accuracy", "Accuracy on held-out problems, and what was aimed at", n=n_range)
reached[["task", "mode", "n", "correct", "score", "aim", "reached", "unfinished", "tokens"]].round(2)

# %% [markdown]
# Targets that are reached, and those that are not:

# %%
aimed = reached[reached["aim"].notna()]
for row in aimed.itertuples():
    within = "reached" if row.reached else "missed, within the interval" if row.score_high >= row.aim else "missed"
    print(f"{row.task:>10}: {row.score:.2f} {interval_text(row.score_low, row.score_high, '.2f')}, aim {row.aim:.2f}: {within}")

# %% [markdown]
# Copying and following chains is learned, several chains at once included. Arithmetic and multi-hop questions are
# learned in part: the chains are well formed, but single digits still slip (88 − 9 = 87), and a problem in a wording
# that training never showed is sometimes solved by the operation of another one.
#
# Earlier trials. A first one, in which a fourth of the problems were word problems and mathematics, was stopped after
# 150 steps with variable tracking right and arithmetic wrong. A full run of 260 steps on four in ten, with two wordings
# per problem and sums in one step, reached 0.16 on `gsm8k`, 0.08 on `math500` and 0.30 on `morehopqa` (its adapter and
# `accuracy.csv` are in the repository's history, at commit `3f2042f`). This run writes every calculation out by decimal
# place, has seven wordings per problem and such problems for more than half of its share, and takes 480 smaller steps,
# as many as ninety minutes on two cores allow. The needles paid for it (`mq_q8` fell from 0.78). The step to a wording
# that was never seen is still missing, as the loss (nats per token) on problems of the two splits shows:

# %%
end = log[(log["step"] > 0.8 * log["step"].max()) & (log["mode"] == "thinking")]
end.groupby(["task", "split"])["loss"].mean().unstack().dropna().round(3)

# %% [markdown]
# All results on these tasks use correct responses only; the counts are given beside them.
#
# ## What the paper found, what we found, why they differ
#
# The paper trains no model: it explains Qwen3-8B, which reasons as it comes. Here a small model had to be taught, and
# that shapes the results of the other chapters: its reasoning is short, quotes its evidence, and follows a few fixed
# forms. A finding about long and exploratory reasoning cannot be made with it.

# %% [markdown]
# ## From scratch
#
# The same code, on the profile's training configuration, from a new adapter. Two steps show that training runs; they
# do not teach anything.

# %%
config = load_training_config(run.profile.training)
fresh = train(config, fresh=True)
retrained = pd.read_csv(fresh / LOG)
loss = retrained[retrained["split"] == "train"].groupby("step")["loss"].mean()
print(f"{config.name}: {len(loss)} steps, every loss finite: {bool(loss.notna().all())}")

# %% [markdown]
# ## Audit
#
# A few of the committed answers, chosen at random, are generated again from the committed adapter and must agree.

# %% tags=["audit"]
checked = audit_answers(model, tokenizer, answer_store(folder), k=3, seed=run.profile.seed)
assert checked["agrees"].all(), checked[~checked["agrees"]]
print("all agree:", bool(checked["agrees"].all()))
