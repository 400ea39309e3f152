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
# > **Answer.** For copying, chains and short texts, yes: whole answers to held-out problems of 1,024 tokens are right in 0.90
# > of `mq_q4`, 0.50 of `mq_q8`, 0.80 of `h2_c3` and 1.00 of `h4_c1` and `h10_c1`. For arithmetic and questions that cross
# > several documents, no: 0.10 of `documents_qa` and of `long_word_problems`. It answers 0.55 of plain questions, the model
# > without an adapter 0.62, the adapter before it 0.27. Chapters therefore keep right answers, and count them.
# >
# > **n.** 64 plain questions, 10 to 20 held-out problems of each other task.
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
from flashtrace_book.figures.axes import n_range
from flashtrace_book.reasoner.accuracy import BASE_TABLE, TABLE, answer_store, audit_answers, plain_table
from flashtrace_book.reasoner.config import load_training_config
from flashtrace_book.reasoner.curriculum import problems
from flashtrace_book.reasoner.modes import true_response
from flashtrace_book.reasoner.train import LOG, train
from flashtrace_book.run import start
from flashtrace_lib import files, load, load_model
from flashtrace_lib.metrics.intervals import interval_text

run = start(profile)

# %%
folder, short = load.adapter_folder(), files.in_checkout("data/adapter_short")
accuracy = pd.read_csv(folder / TABLE)
dtype = accuracy["dtype"].iloc[0]  # of the weights when the answers were given
model, tokenizer = load_model("embedded", dtype=dtype)
run.record_model(model, f"embedded, {dtype}")
run.versions()
style.use_style()

# %% [markdown]
# ## What it is taught
#
# Eight families of problems, each with the reference reasoning between think tags: RULER's needles and chains, questions
# over several documents, word problems whose sums are written out digit by digit, exercises in code, mathematics, and
# plain questions over short texts. The last are there so that the model goes on reading: what is trained on templates
# alone answers every question with one of them. A chain names the evidence line by line and carries its state along
# (*yes*, *no*), so that every step can be copied or looked up in the lines before it. One problem in ten is asked in
# direct mode: `/no_think` at the end of the user's turn, and the answer alone.

# %%
for task in ("h2_c3", "mq_q2", "long_word_problems", "reading_questions"):
    example = problems(task, 1, seed=1, split="train", tokenizer=tokenizer, length=200)[0]
    print(f"=== {task}: … {(example.prompt + example.request)[-110:].strip()}\n{true_response(example, 'thinking')}\n")

# %% [markdown]
# Training and test share no name, key, number, wording or length: a checksum of the text decides to which of the two it
# belongs. Difficulty grows with the progress of the training: one to ten hops, one to
# three chains, one to eight needles, prompts of up to 1,300 tokens.

# %% [markdown]
# ## How the training went
#
# The committed adapter was trained in two parts from one seed, `python -m flashtrace_book.reasoner.train long` (150 steps at
# a high rate, an hour) and `long_second` (300 more, down to a rate of zero, two hours). The card beside it gives its data
# and its time, and the figure is of the second part.

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
run.figure(fig, "reasoner_accuracy", "Accuracy of the embedded reasoner on held-out problems", n=n_range(accuracy["n"]))

# %%
reached = accuracy.merge(training_plots.TARGETS, on=["task", "mode"], how="left")
reached["reached"] = (reached["score"] >= reached["aim"]).where(reached["aim"].notna(), "")
run.table(reached, "reasoner_accuracy", "Accuracy on held-out problems, and what was aimed at", n=n_range(accuracy["n"]))
aimed = reached[reached["aim"].notna()]
aimed[["task", "n", "correct", "score", "aim", "reached", "unfinished", "tokens"]].round(2)

# %% [markdown]
# Targets that are reached, and those that are not:

# %%
for row in aimed.itertuples():
    within = "reached" if row.reached else "missed, within the interval" if row.score_high >= row.aim else "missed"
    print(f"{row.task:>10}: {row.score:.2f} {interval_text(row.score_low, row.score_high, '.2f')}, aim {row.aim:.2f}: {within}")

# %% [markdown]
# ## Does it still read?
#
# A model that was taught a few forms of reasoning can lose what it could do before. So it answers plain questions over
# short texts, in forms that no training problem has, beside the same model without an adapter and beside the *short*
# adapter, which this book trained before it on ten families without plain questions, in prompts that were mostly shorter
# (`python -m flashtrace_book.reasoner.train short`). The stored results of profile `laptop` are of the short adapter, as their stamps say.

# %%
plain = plain_table({"no adapter": folder / BASE_TABLE, "short adapter": short / TABLE, "embedded reasoner": folder / TABLE})
run.table(plain, "reasoner_plain_questions", "Plain reading questions: right answers without an adapter and with each", n=int(plain["n"].max()))
plain.round(2)

# %% [markdown]
# The short adapter forgot more than half of what the model could read. The present one has most of it back: the intervals of
# the first row and the last overlap, and its answers quote the sentence that they come from, which is what makes them worth
# explaining. What it still does not do is to combine sentences: with two people and two places it takes the nearer sentence
# (`00_quickstart` shows such an answer).
#
# ## What was tried, and what the short adapter does better
#
# Earlier trials. A first one, in which a fourth of the problems were word problems and mathematics, was stopped after
# 150 steps with variable tracking right and arithmetic wrong. A full run of 260 steps on four in ten, with two wordings
# per problem and sums in one step, reached 0.16 on `gsm8k`, 0.08 on `math500` and 0.30 on `morehopqa` (its adapter and
# `accuracy.csv` are in the repository's history, at commit `3f2042f`). The short adapter (480 steps, 82 minutes) writes every
# calculation out by decimal place and has seven wordings per problem; its accuracy on its own tasks stands below. A third
# part of the present training, 200 steps with twice the share of documents and word problems, did not raise them (2 and 1
# of 10 right; its adapter is in the history, at commit `3be170c`).

# %%
before = pd.read_csv(short / TABLE)
run.table(before, "reasoner_accuracy_short", "Accuracy of the short adapter on held-out problems", n=n_range(before["n"]))
before[(before["mode"] == "thinking") & before["task"].isin(aimed["task"])][["task", "n", "correct", "score", "unfinished", "tokens"]].round(2)

# %% [markdown]
# The step to a wording that was never seen is still missing, as the loss of the embedded reasoner (nats per token) on
# problems of the two splits shows:

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
