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

# %% tags=["parameters"]
profile = "laptop"

# %%
from flashtrace_book.claims import reliability
from flashtrace_book.run import start
from flashtrace_lib import FlashTrace, Trace, files, load_model, trace

run = start(profile)
run.versions()

# %%
model, tokenizer = load_model(run.profile.model, dtype=run.profile.dtype, device_map=run.profile.device_map)
run.record_model(model)

# %% [markdown]
# Write your own text here. The model answers; what it says between `<think>` and `</think>` is its reasoning
# $\mathbf T$, what stands behind that is the output $\mathbf O$ to be explained.

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
# $$\mathbf s = \mathbf w^{(0)}_{\mathbf I} + \rho_0\, \mathbf w^{(1)}_{\mathbf I},$$
#
# where $\mathbf w^{(k)}$ is the distribution of hop $k + 1$ over the whole context, and $\rho_0$ the share of the first
# hop that lies on the reasoning.

# %%
t

# %% [markdown]
# The same in numbers: the highest scores, then whose they are. A column `hop k` is the whole mass of a hop, template
# included; `share` is the input's alone.

# %%
t.top(5).round(3)

# %%
t.shares().round(2)

# %% [markdown]
# What should make you look twice at this very heatmap:

# %%
print(*t.cautions() or ["nothing stands out"], sep="\n")

# %% [markdown]
# ## Take it with you
#
# One page to click through: choose a sentence of the response, see what it came from, hop by hop. It needs no network,
# and holds every number; so does the JSON, which reads back as the same trace.

# %%
folder = files.build_root() / "quickstart"
page, stored = t.to_html(folder / "trace.html"), t.to_json(folder / "trace.json")
print(page.name, stored.name, "| sentences to choose from:", len(t.targets))

# %% [markdown]
# A conversation is a list of messages, `[{"role": "user", "content": "…"}, …]`, tools and earlier answers included; if
# it ends with the assistant's message, that is the answer to explain. `response="…"` explains an answer that you have,
# and `output="7"` one passage of it. From the shell:
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
# | a strong passage, one weak word in it | the model often gathers a phrase at its last word, or at the full stop behind it: read the passage |
# | a strong question | every answer draws on the words that asked for it: look at what is strong besides |
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
# `t.cautions()` checks the first three for the text at hand. How often heatmaps of this model pass harder tests was
# measured in the chapters on the tasks; their stored tables say (empty until the book has run once):

# %%
print(*reliability.measured(run.profile.name), sep="\n")

# %% [markdown]
# So where a ranking is no better than a random one, its heatmap shows where the model's states come from and no more:
# deleting the strong words would not change the answer more than deleting others.

# %% [markdown]
# ## Audit
#
# The answer is explained again by another route, with all attention maps kept (algorithm 1 as printed) and no other
# sentence beside it, and must agree; so must what was written to the file.

# %% tags=["audit"]
again = FlashTrace(hops=1, attention="cached").attribute(model, t.sample)
agree = again.scores.allclose(t.attribution.scores, atol=1e-5) and Trace.from_json(stored).to_dict() == t.to_dict()
assert agree
print("recomputed and read back, all agree:", agree)
