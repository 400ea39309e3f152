# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Quickstart: what does an answer rest on?
#
# Five cells, from a model to a heatmap of your own text. The embedded model needs no network and no GPU; any other that
# transformers can load takes its place: `load_model("Qwen/Qwen3-8B", device_map="auto")`.

# %%
from flashtrace_lib import load_model, trace

model, tokenizer = load_model("embedded")

# %% [markdown]
# Write your own text here. The model answers; what it says between `<think>` and `</think>` is its reasoning
# $\mathbf T$, what stands behind that is the output $\mathbf O$ to be explained.

# %%
text = """The red key opens the cellar. The blue key opens the attic. The green key opens the garage.

Which key opens the attic?"""
t = trace(model, tokenizer, text, hops=1)
print(t.response)

# %% [markdown]
# The heatmap. Colour and underline say how much each word of the input $\mathbf I$ matters for the answer, directly and
# through the reasoning:
#
# $$\mathbf s = \mathbf w^{(0)}_{\mathbf I} + \rho_0\, \mathbf w^{(1)}_{\mathbf I},$$
#
# where $\rho_0$ is the share of the first hop that lies on the reasoning.

# %%
t

# %% [markdown]
# The same in numbers: the highest scores, then whose they are. A column `hop k` is the whole mass of a hop, template
# included; `share` is the input's alone.

# %%
t.top(5).round(4)

# %%
print(*t.cautions() or ["nothing stands out"], sep="\n")
t.shares().round(3)

# %% [markdown]
# ## Take it with you
#
# ```python
# t.to_html("trace.html")    # one file: click a sentence of the response, see what it came from, hop by hop
# t.to_json("trace.json")    # every number; Trace.from_json reads it back
# ```
#
# A conversation is a list of messages, `[{"role": "user", "content": "…"}, …]`, tools and earlier answers included; if it
# ends with the assistant's message, that is the answer to explain. `output="Paris"` explains one passage of it. From the
# shell: `python -m flashtrace_lib trace --prompt question.txt --html trace.html`.
#
# ## How to read a heatmap
#
# | you see | it means |
# |---|---|
# | a strong word | the states that make up the answer were built from this word's states more than from others' |
# | a strong passage, one weak word in it | the model often gathers a phrase at its last word, or at the full stop behind it: read the passage |
# | strong reasoning in hop 1, pale input | the answer was copied from the reasoning; hop 2 says where that came from |
# | everything pale and even | no word stands out: do not read a story into the largest of many small scores |
#
# ## When not to trust it
#
# * **Mass on punctuation.** A full stop or a line break collects what was said before it. Read the sentence
#   around a strong mark, or trace with `method=FlashTrace(granularity="sentence")`.
# * **The first token.** Models park attention on the first token when they need nothing from it. A first word that is
#   strong for every question is such a sink.
# * **The template.** Special tokens and role names take mass as well. They are never ranked, but what they take is
#   missing from the input; `shares()` shows how much.
# * **A right heatmap of a wrong answer.** Scores say what the answer was made of, not that it is true.
# * **A cause.** Scores do not say that the answer would change without the word. Delete it and ask again.
#
# `t.cautions()`, printed above the shares, checks the first three for the text at hand.
