# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Claims: what the paper says, and what was found
#
# > **Question.** Which claims of the paper hold here?
# >
# > **Answer.** Of the paper's claims 9 are reproduced, 11 partly, and 11 are not; 3 are undecided, and the rest cannot be tested here.
# > Every verdict follows from a rule that is written beside it.
# >
# > **n.** Each claim prints its own n and, where samples share a record, the number of independent ones.
# >
# > **Figure.** None; the counts, and all verdicts, are tables.
#
# <!-- numbers: 9 = claims_counts.csv[verdict=reproduced].of the paper;
# 11 = claims_counts.csv[verdict=partly reproduced].of the paper;
# 11 = claims_counts.csv[verdict=not reproduced].of the paper;
# 3 = claims_counts.csv[verdict=undecided].of the paper -->
#
# A claim is judged on the strongest evidence there is: prompts of the paper's length, and answers that the model wrote
# itself. Metrics against the evidence take the right answers, metrics by deletion take all finished ones. Teacher-forced
# answers are printed beside them and decide nothing.

# %% tags=["parameters"]
profile = "book"

# %%
from flashtrace_book import claims, claims_page, paths
from flashtrace_book.run import start

run = start(profile)
judged = claims.judge(paths.figures_dir(run.profile.name))

# %% [markdown]
# *Predict first.* The paper has some thirty claims that can be put to a number. How many hold for models of 135 and 494
# million parameters?

# %%
run.table(claims.counts(judged), "claims_counts", "Claims by verdict")

# %% [markdown]
# ## How sure is that?
#
# Many tests were made, and some intervals leave out their bound by chance. Holm's correction keeps the chance of a single
# false one below 5 %; Benjamini and Hochberg's keeps the share of false ones below 5 %:
#
# $$p^{\text{Holm}}_{(i)} = \max_{j \le i} (m - j + 1)\, p_{(j)}, \qquad p^{\text{BH}}_{(i)} = \min_{j \ge i} \tfrac{m}{j}\, p_{(j)} .$$

# %%
run.table(claims.survival(judged), "claims_tests", "Tests that decide a claim, and those that survive a correction")

# %% [markdown]
# ## All of them
#
# The page `figures/claims.md` has each claim's numbers, checks and rule. Here the verdicts alone:

# %%
run.table(claims_page.short_table(judged), caption="Claims and verdicts")

# %% [markdown]
# ## What the paper found, what we found, why they differ
#
# The models here are small, and one of them was taught to quote the evidence before it answers. A claim that is not
# reproduced speaks of them, and of the paper only where its own numbers are judged. What carries over, and what does not,
# is said in each chapter.
