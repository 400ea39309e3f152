# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Quickstart: what does an answer depend on?
#
# > **Question.** To which words of a prompt is the model's answer attributed, directly and through its reasoning?
# >
# > **Answer.** A heatmap and a table say so for any text. In the example the strongest words are those of the question, which
# > every answer draws on; read the sentence that stands behind it, and the cautions.
# >
# > **n.** One prompt, chosen for its plainness. It proves nothing; the other chapters measure.
# >
# > **Figure.** The heatmap under its formula, a few cells down.
#
# Five code cells lead from a model to a heatmap of your own text; the others read it, and say how far to trust it. The embedded model
# needs no network and no GPU. Any other model that transformers can load takes its place:
# `load_model("Qwen/Qwen3-8B", device_map="auto")`.

# %% tags=["parameters"]
profile = "book"

# %%
from flashtrace_book.run import start
from flashtrace_lib import FlashTrace, files, load_model, trace

run = start(profile)

# %%
model, tokenizer = load_model("embedded")

# %% [markdown]
# Write your own text here. The model answers. Its text between `<think>` and `</think>` is the reasoning $\mathbf T$; the
# text that follows is the output $\mathbf O$ to be explained. With `<|im_end|>` it ends its turn.

# %%
text = """The train to Lyon leaves from platform 4 at 9:30. The train to Nice leaves from platform 7 at 10:15.
The bus leaves at noon.

From which platform does the train to Nice leave?"""
t = trace(model, tokenizer, text, hops=1)
print(t.response)

# %% [markdown]
# The heatmap. Colour says how much each word of the input $\mathbf I$ matters for the answer, directly and through the
# reasoning:
#
# $$\mathbf s = \mathbf w^{(0)}_{\mathbf I} + \rho_0\, \mathbf w^{(1)}_{\mathbf I}, \qquad
# \rho_0 = \sum_{t \in \mathbf T} w^{(0)}_t .$$
#
# $\mathbf w^{(0)}$ is the distribution of the first hop, which explains $\mathbf O$, over the whole context.
# $\mathbf w^{(1)}$ is that of the second hop, which explains $\mathbf T$. $\rho_0$ is the share of the first hop that
# lies on the reasoning. `02_span_aggregation` derives a hop, `03_recursion` the sum.

# %%
t

# %% [markdown]
# A heatmap of words is for looking closely. For reading, sentences are better: their scores are the sums of their tokens'.
# The question is usually first, since every answer draws on it; what matters is the sentence behind it.

# %%
t.top(3, by="sentence").round(2)

# %% [markdown]
# `FlashTrace.best()` is a setting that found more of the evidence in `12_better_flashtrace`; the default is the paper's:

# %%
better = trace(model, tokenizer, text, response=t.response, method=FlashTrace.best())
better.top(3, by="sentence").round(2)

# %% [markdown]
# The same as a page to click through: choose a sentence of the response, switch between words and sentences, save the
# scores. It runs in this frame and needs no network.

# %%
better.page()

# %% [markdown]
# The first heatmap in numbers: the highest scores, then each speaker's share. The columns `hop 0` and `hop 1` hold the whole mass
# of $\mathbf w^{(0)}$ and $\mathbf w^{(1)}$, template included; `share` is the input's alone. A token that looks empty
# is a space or a line break.

# %%
t.top(5).round(2)

# %%
t.shares().round(2).astype(object).fillna("–")

# %% [markdown]
# Reasons for caution with this heatmap:

# %%
print(*t.cautions() or ["nothing stands out"], sep="\n")

# %% [markdown]
# ## One that goes wrong
#
# A heatmap of a wrong answer is as clear as one of a right answer. It says where the answer came from, and that is how
# the mistake is found:

# %%
hours = """The library opens at nine. The museum opens at ten. The pool opens at noon.

When does the museum open?"""
wrong = trace(model, tokenizer, hours, method=FlashTrace.best())
print(wrong.response)
wrong.top(3, by="sentence").round(2)

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
# have, and `output="7"` one span of it. From the shell:
#
# ```sh
# python -m flashtrace_lib trace --prompt question.txt --html trace.html
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
# * **A cause.** Scores do not say that the answer would change without the word. Delete it and ask again.
#
# `t.cautions()` checks the first three for the text at hand. The chapters 05 to 08 measure how often rankings of these
# models find the evidence, and what a ranking without any model finds.
#
# ## What the paper found, what we found, why they differ
#
# The paper's Figure 3 shows a first hop that lands mostly on the reasoning and a second one that shifts mass to earlier
# reasoning and to the input. Whether that is so here, the rows *reasoning* and *user* of the shares above say for this
# prompt, and `10_ablations` for many. The paper explains a model of 8 billion parameters, the book one of 135 million, and
# one prompt proves nothing.
