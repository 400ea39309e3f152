# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Quickstart: what does an answer depend on?
#
# > **Question.** To which words of a prompt is the model's answer attributed, directly and through its reasoning, and is it so?
# >
# > **Answer.** A heatmap, a ranking of sentences and a page say so for any text; cautions and `verify` say when not to believe them.
# > Of ten plain questions the default puts the right sentence first in six, as every fast method does; four of ten answers are wrong.
# >
# > **n.** Ten questions, chosen before any score of them was seen. The other chapters measure.
# >
# > **Figure.** The table of ten questions, and the heatmap of one of them.
#
# The embedded model needs no network and no GPU. Any other model that transformers can load takes its place:
# `load_model("Qwen/Qwen3-8B", device_map="auto")`.

# %% tags=["parameters"]
profile = "book"

# %%
import json

from flashtrace_book import ablations
from flashtrace_book.experiments import trust
from flashtrace_book.figures import overview
from flashtrace_book.run import start
from flashtrace_lib import files, load_model, trace

run = start(profile)

# %%
model, tokenizer = load_model("embedded")

# %% [markdown]
# Write your own text here. The model answers. Its text between `<think>` and `</think>` is the reasoning $\mathbf T$; the
# text that follows is the output $\mathbf O$ to be explained.

# %%
questions = json.loads((files.root() / "data" / "questions.json").read_text(encoding="utf-8"))
text = "{content}\n\n{question}".format(**questions[2])
t = trace(model, tokenizer, text)
print(text, t.response, sep="\n\n")

# %% [markdown]
# Sentences are for reading; their scores are the sums of their words'. The question is usually first, since every answer draws
# on it; read the sentence behind it.

# %%
t.top(3, by="sentence").round(2)

# %% [markdown]
# **Is it so?** `verify` removes the sentences that matter most (a third of those before the question, one to three), and as many
# random ones of about the same length, up to ten times. *Confirmed*: the answer and its reasoning become less likely than without any of
# the random ones. *No more than chance*: they do not. *Rather the question*: they do not, and the question stands above all.

# %%
print(t.verify())

# %% [markdown]
# Reasons for doubt, of this text and this ranking:

# %%
print(*t.cautions() or ["nothing stands out"], sep="\n")

# %% [markdown]
# The heatmap of words is for looking closely:

# %%
t

# %% [markdown]
# What you see is the setting that was right most often in `12_better_flashtrace`: the residual's share goes on to the
# layer below, and a step of the reasoning weighs as much as the answer loses without it. Its name stands above the heatmap.
# **The paper's setting** is one word away: `hops=1`, or `method="flashtrace"`. With it the heatmap shows
#
# $$\mathbf s = \mathbf w^{(0)}_{\mathbf I} + \rho_0\, \mathbf w^{(1)}_{\mathbf I}, \qquad
# \rho_0 = \sum_{t \in \mathbf T} w^{(0)}_t .$$
#
# $\mathbf w^{(0)}$ is the distribution of hop 0, which explains $\mathbf O$, over the whole context. $\mathbf w^{(1)}$ is that
# of hop 1, which explains $\mathbf T$. $\rho_0$ is the share of hop 0 that lies on the reasoning. `02_span_aggregation` derives a
# hop, `03_recursion` the sum. Several methods side by side, as shares of the sentences:

# %%
t.compare("flashtrace", "ifr", "ifr_all", "at2").round(2)

# %% [markdown]
# **Which step used what**: a row explains a sentence of the response, a column is a sentence that stands before it.

# %%
steps = t.matrix()
fig = overview.steps_heatmap(steps, title="Which sentence of the response drew on what")
run.figure(fig, "quickstart_steps", "Shares of each response sentence's mass on the sentences before it", live=steps.fillna(0).reset_index(names="explained"))

# %% [markdown]
# The same as a page to click through: choose a sentence of the response, switch between words and sentences, save the
# scores. It runs in this frame and needs no network.

# %%
t.page()

# %% [markdown]
# ## One that goes wrong
#
# A heatmap of a wrong answer is as clear as one of a right answer. Here the model takes the wrong sentence, and the scores name
# the one that it took, hardly above the others: the question is above all of them.

# %%
wrong = trace(model, tokenizer, "{content}\n\n{question}".format(**questions[9]))
print(wrong.response, wrong.verify(), sep="\n\n")
wrong.top(3, by="sentence").round(2)

# %%
print(*wrong.cautions(), sep="\n")

# %% [markdown]
# ## Ten questions
#
# *Predict first.* Ten questions of two to five sentences, each answered by one of them. In how many does FlashTrace put that
# sentence first?
#
# <details><summary>The answer</summary>
#
# The model answers six of them rightly. Every method of the table finds the sentence in six of the ten: the paper's setting, IFR,
# AttnLRP and a string match in the six with right answers, the default in five of these and one of the others.
#
# </details>
#
# *First*: the share of questions in which the right sentence stands before all others (the question left out); *right answers*: the
# same among the six that the model answers rightly.

# %%
METHODS = ("flashtrace_causal", "flashtrace_best", "flashtrace", "ifr", "ifr_all", "at2", "attnlrp", "string_match")
asked = run.results("quickstart")
found = trust.shown({"questions": asked}, METHODS).merge(asked.samples()[["sample", "right"]])
every = found.groupby("method", sort=False)["first"].mean()
right = found[found["right"]].groupby("method", sort=False)["first"].mean()
ten = every.to_frame("first").assign(right_answers=right).reset_index()
ten = ten.assign(label=ten["method"].map(ablations.label_of)).sort_values("first", ascending=False)
run.table(ten, "quickstart_questions", "Ten plain questions: how often the right sentence is first", digits=2)

# %% [markdown]
# ## Take it with you
#
# One page to click through: choose a sentence of the response and see, hop by hop, where it came from. The page needs no
# network and holds every number. So does the JSON, which reads back as the same trace.

# %%
folder = files.build_root() / "quickstart"
page, stored = t.to_html(folder / "trace.html"), t.to_json(folder / "trace.json")
print(page.name, stored.name, "| sentences to choose from:", len(t.targets))

# %% [markdown]
# A conversation is a list of messages, `[{"role": "user", "content": "…"}, …]`, tools and earlier answers included. If
# it ends with the assistant's message, that message is the answer to explain. `response="…"` explains an answer that you
# have, and `output="7"` one span of it; `contrast="8"` why this and not that. From the shell:
#
# ```sh
# .venv/bin/flashtrace trace --prompt question.txt --verify --html trace.html
# ```
#
# ## How to read a heatmap
#
# | you see | it means |
# |---|---|
# | a strong word | the states that make up the answer were built from this word's states more than from others' |
# | a strong sentence, one weak word in it | the model often gathers a phrase at its last word, or at the following full stop: read the sentence |
# | a strong question | every answer draws on the words that asked for it: look at what else is strong |
# | strong reasoning in hop 0, pale input | the answer was copied from the reasoning; hop 1 says where that came from |
# | everything pale and even | no word stands out: do not read a story into the largest of many small scores |
#
# ## When not to trust it
#
# * **Mass on punctuation.** A full stop or a line break collects what was said before it. Read the sentence
#   around a strong mark, or trace with `method=FlashTrace(granularity="sentence")`.
# * **The first token.** Models park attention on the first token when they need nothing from it. A first word that is
#   strong for every question is such a sink.
# * **The template.** Special tokens and role names take mass as well. They are never ranked, but their mass is missing
#   from the input; `shares()` shows how much.
# * **A right heatmap of a wrong answer.** Scores say which tokens the answer was made of, not that it is true.
# * **A cause.** Scores do not say that the answer would change without the word; `verify` asks.
# * **Nothing stands out**, or the question stands above all: the order of the other sentences says little.
#
# `t.cautions()` checks all but the fourth for the text at hand, the fifth once `verify` has run. The chapters 05 to 08 measure how
# often rankings of these models find the evidence, and what a ranking without any model finds.
#
# ## What the paper found, what we found, why they differ
#
# The paper's Figure 3 shows a first hop that lands mostly on the reasoning and a second one that shifts mass to earlier
# reasoning and to the input. Whether that is so here, `10_ablations` says for many prompts. The paper explains a model of 8
# billion parameters, the book one of 135 million, and ten questions prove little.
