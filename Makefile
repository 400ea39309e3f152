# The whole interface: `make book` regenerates every figure and table, `make test` checks everything.
SHELL   := /bin/bash
PROFILE ?= book
EXTRAS  ?= book,dev
# Processes that share the tests, one thread each.
JOBS    ?= 2
# `all` writes PDF, LaTeX and Markdown to build/figures as well.
FORMATS ?=
# A CPU build of torch where the package index would send a CUDA one:
# make env TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
# Such as --ServerApp.ip=0.0.0.0 in a container.
LAB_OPTIONS ?=
VENV    := .venv
PY      := $(VENV)/bin/python
STAMP   := $(VENV)/.installed
TORCH   := $(shell sed -n 's/^ *"\(torch==[^"]*\)",/\1/p' pyproject.toml)
PYTEST  := -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations 10

.DEFAULT_GOAL := help
.PHONY: help env book figure reproduce html test test-fast lint audit claims unchanged lab wheel
.DELETE_ON_ERROR:

# A target is listed by what stands behind its two hashes.
help:  ## this list
	@echo "make TARGET, with NAME=VALUE to change a setting:"
	@sed -n 's/^\([a-z][a-z-]*\):.*  ## \(.*\)$$/\1|\2/p' $(firstword $(MAKEFILE_LIST)) \
		| while IFS='|' read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done

env: $(STAMP)  ## .venv with every pinned package (PYTHON=, EXTRAS=, TORCH_INDEX= choose)

book: $(STAMP)  ## every figure and table, from stored results (PROFILE=book, FORMATS=all)
	FLASHTRACE_FORMATS=$(FORMATS) $(PY) -m flashtrace_lib book --profile $(PROFILE)

# The chapter whose code names the figure or table is run; it writes its other ones as well.
figure: $(STAMP)  ## one figure or table again, with its chapter (NAME=table1_ruler), in the seconds that figures/claims.md says
	@chapter=$$(grep -lE '"$(NAME)"' notebooks/py/*.py | head -n 1); \
	test -n "$(NAME)" -a -n "$$chapter" || { echo "no chapter makes '$(NAME)': figures/ lists the names"; exit 2; }; \
	$(PY) -m flashtrace_lib book "$$(basename "$$chapter" .py)" --profile $(PROFILE)

reproduce: $(STAMP)  ## profile smoke from nothing, and some stored rows of the book computed again
	rm -rf build/results/smoke build/working/smoke build/figures/smoke
	$(PY) -m flashtrace_lib book --profile smoke
	$(PY) -m flashtrace_lib audit -k $(or $(K),1)

html: $(STAMP)  ## the book as pages, in build/html
	$(PY) docs/build_html.py build/html

# The first line unpacks a headless browser where the machine has none; without it a few tests are skipped.
test: $(STAMP)  ## every test, and the notebooks against their stored outputs (JOBS=2)
	@$(PY) -m scripts.get_chromium
	$(PY) $(PYTEST)

test-fast: $(STAMP)  ## the tests of a few seconds each, without the notebooks
	$(PY) $(PYTEST) tests -m "not slow"

lint: $(STAMP)  ## ruff
	$(PY) -m ruff check .

audit: $(STAMP)  ## stored rows, chosen at random, computed again (K=1 of each file)
	$(PY) -m flashtrace_lib audit -k $(or $(K),1)

claims: $(STAMP)  ## judge the paper's claims by the numbers that the chapters noted
	$(PY) -m flashtrace_lib claims

unchanged:  ## fail where a run of the book has changed what is committed
	@git status --porcelain; test -z "$$(git status --porcelain)"

# The repository is served, so that links out of the notebooks work and pages under build/ can be opened.
# Trusted, the book's own notebooks show their pages at once.
lab: $(STAMP)  ## the notebooks in JupyterLab
	$(PY) -m jupyter trust notebooks/*.ipynb
	$(PY) -m jupyter labextension disable --level=sys_prefix @jupyterlab/apputils-extension:announcements
	$(PY) -m jupyter lab --LabApp.news_url=None --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks $(LAB_OPTIONS)

# What an earlier build left would go into the wheel again.
wheel: $(STAMP)  ## the library as a wheel, in build/wheel
	rm -rf build/lib build/bdist.* build/wheel
	$(PY) -m pip wheel --no-deps --wheel-dir build/wheel .
	rm -rf build/lib build/bdist.*

# torch goes first and pinned: left to the other packages, pip may choose a build with several GB of CUDA.
$(STAMP): pyproject.toml requirements-nodeps.txt scripts/make_venv.sh
	@PYTHON="$(PYTHON)" bash scripts/make_venv.sh $(VENV)
	$(PY) -m pip install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$(TORCH)"
	$(PY) -m pip install -e ".[$(EXTRAS)]"
	$(PY) -m pip install --no-deps -r requirements-nodeps.txt
	@touch $@
