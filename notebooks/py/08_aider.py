# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Aider: attribution of generated code
#
# > **Question.** Does explaining the whole span of generated code beat explaining its last line, or each token in turn?
# >
# > **Answer.** The span is better than the last line, as the paper says, but by hundredths; against IFR on every token of the code
# > the two cannot be distinguished. All targets beat the random ranking.
# >
# > **n.** Own answers to exercises of Exercism, right or wrong; the table of samples says how many pass their tests.
# >
# > **Figure.** `table4_aider`: RISE of the targets, beside the controls.
#
# Section 5.2 and Table 4 of the paper. The model gets the instructions of a programming exercise and a file with a stub, and
# writes the function. To which parts of the instructions is the code attributed? Three ways to ask: explain the *last line*
# alone, every *token* of the code with the rows averaged (both IFR), or the whole *span* of code at once (FlashTrace). The
# exercises are those of the Python track of Exercism (MIT); Qwen2.5-Coder-0.5B is asked for the code alone, so $\mathbf T$ is empty.

# %% tags=["parameters"]
profile = "book"

# %%
import pandas as pd
from IPython.display import HTML

from flashtrace_book import reasoning, statistics
from flashtrace_book.figures import plots, style, tables
from flashtrace_book.results import CURVE
from flashtrace_book.run import start
from flashtrace_lib.evaluation import summarise
from flashtrace_lib.viewer import html

run = start(profile)
style.use_style()
results = run.results("aider")
PAPER_NAMES = {"code_flashtrace": "flashtrace", "code_ifr": "ifr", "line_ifr": "ifr_last_line"}

# %% [markdown]
# ## The samples
#
# The shortest exercise and the model's answer. An answer is right where its code passes the exercise's own tests, which run in a
# process of their own with limits on time, memory, files and network.

# %%
sample, attribution = reasoning.shortest(results, "code_flashtrace")
print(reasoning.text_of(sample, sample.segments.prompt).strip(), "\n")
print(reasoning.text_of(sample, sample.segments.output).strip())

# %% [markdown]
# All answers that pass were taken, and beside them the first finished ones, right or wrong: right answers are over-represented.

# %%
run.table(results.counts(), "aider_samples", "Exercises: what was tried, right and kept; median tokens")

# %% [markdown]
# ## Table 4
#
# $\mathbf O$ is the last line $L$, with the code before it as $\mathbf T$; or all of the code, $C$. With $\mathbf w(\cdot)$ the
# distribution of a state over its sources (`02_span_aggregation`), hop 0 of the three targets is
#
# $$\text{last line: } \frac{1}{|L|} \sum_{i \in L} \mathbf w(\mathbf x_i), \qquad
# \text{every token: } \frac{1}{|C|} \sum_{i \in C} \mathbf w(\mathbf x_i), \qquad
# \text{span: } \mathbf w\Big(\sum_{i \in C} \mathbf x_i\Big) .$$
#
# In every row the same is scored: the log-probability of the whole response while the instructions are masked (`05_ruler`);
# lower is better. *Predict first*: can RISE, with twenty steps, be 0.013, as the paper prints for FlashTrace?
#
# <details><summary>The answer</summary>Not where masking lowers the likelihood: the grid cannot go below 1/40. It can where
# masking raises it, which the published formula scores as perfect (`11_metrics`).</details>

# %%
deletion = results.frame(CURVE)
summary = summarise(deletion.assign(cell="aider"))
table = tables.comparison_table(summary.replace({"method": PAPER_NAMES}), paper=4)
table["method"] = table["method"].replace({v: k for k, v in PAPER_NAMES.items()})
shown = run.table(table, "table4_aider", "Generated code (paper: Table 4)", wide=tables.wide_table(table))
shown

# %%
fig = plots.metric_bars(shown.frame, "rise", title="RISE of targets in generated code")
run.figure(fig, "table4_aider", "RISE of FlashTrace and IFR on all code and on the last line, and of the controls", stamp="Qwen2.5-Coder-0.5B, own answers")

# %% [markdown]
# Every target minus FlashTrace on all of the code, on the same samples:

# %%
rivals = statistics.against(deletion, "code_flashtrace")
run.table(rivals, "aider_against_flashtrace", "Every target minus FlashTrace on all of the code",
          wide=tables.interval_grid(rivals, "method", "metric").reset_index())

# %%
paired = pd.concat([statistics.paired_difference(deletion, "code_flashtrace", name).assign(method=label)
                    for name, label in (("line_ifr", "IFR on the last line"), ("code_ifr", "IFR on all tokens"))])  # fmt: skip
run.claim("code_targets", paired.assign(label=paired["metric"].str.upper() + " minus " + paired["method"]), models="qwen",
          figure="table4_aider")

# %% [markdown]
# The right answers alone:

# %%
right = results.frame(CURVE, right=True)
tables.interval_grid(statistics.against(right, "code_flashtrace"), "method", "metric")

# %% [markdown]
# ## To which instructions the code is attributed

# %%
HTML(html.hops_heatmap(sample, attribution)) if attribution.hops else None

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# The paper reports a RISE of 0.71 for IFR on the last line and on all tokens, and 0.013 for FlashTrace. Our values lie between,
# close to each other, and the differences are hundredths. A RISE of 0.013 lies below the floor of a grid of twenty steps: the
# mean can only be that low where masking *raises* the likelihood in about half of the samples. Here such samples get the worst
# value from every method and are counted (†).
#
# Differences from the paper: a model of 494 million parameters that passes the tests of one exercise in ten, functions of a few
# lines, and no reasoning before the code.
