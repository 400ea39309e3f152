# The whole interface: `make book` regenerates every figure and table, `make test` checks everything.
SHELL   := /bin/bash
PROFILE ?= laptop
EXTRAS  ?= dev
# Processes that share the tests, one thread each.
JOBS    ?= 2
# A CPU build of torch where the package index would send a CUDA one:
# make env TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
# Such as --ServerApp.ip=0.0.0.0 in a container.
LAB_OPTIONS ?=
VENV    := .venv
PY      := $(VENV)/bin/python
STAMP   := $(VENV)/.installed
TORCH   := $(shell sed -n 's/^ *"\(torch==[^"]*\)",/\1/p' pyproject.toml)
PYTEST  := -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help env book reproduce reproduce-part reproduced html test test-fast lint links audit claims claims-unchanged \
	lab wheel next
.DELETE_ON_ERROR:

# A target is listed by what stands behind its two hashes.
help:  ## this list
	@echo "make TARGET, with NAME=VALUE to change a setting:"
	@sed -n 's/^\([a-z][a-z-]*\):.*  ## \(.*\)$$/\1|\2/p' $(firstword $(MAKEFILE_LIST)) \
		| while IFS='|' read -r name text; do printf '  %-17s %s\n' "$$name" "$$text"; done

env: $(STAMP)  ## .venv with every pinned package (PYTHON=, EXTRAS=, TORCH_INDEX= choose)

book: $(STAMP)  ## every figure and table, from stored results where there are any (PROFILE=laptop)
	$(PY) -m flashtrace_lib book --profile $(PROFILE)

reproduce: $(STAMP)  ## the same from scratch: hours (PROFILE=laptop)
	$(PY) -m flashtrace_lib book --profile $(PROFILE) --fresh

# For machines that stop a job after some hours: to be called until it says that it has finished.
reproduce-part: $(STAMP)  ## HOURS=5 of `make reproduce`; at its end figures and a diff of claims in build/reproduced
	bash scripts/reproduce_part.sh $(PY) $(PROFILE) $(or $(HOURS),5)

reproduced:  ## fail unless `make reproduce-part` has finished
	@test -f build/reproduced/finished || { echo "not finished: run make reproduce-part again" >&2; exit 1; }

# README, the notebooks as they are stored, and the library's reference, as pages; needs no network.
html: $(STAMP)  ## the book as pages, in build/html
	$(PY) docs/build_html.py build/html

# The first lines unpack a headless browser and a checker of workflows where the machine has none; without them a few
# tests are skipped.
test: $(STAMP)  ## every test, the notebooks against their outputs, the book from scratch (JOBS=2)
	@$(PY) -m scripts.get_chromium
	@$(PY) -m scripts.get_actionlint
	$(PY) $(PYTEST)

test-fast: $(STAMP)  ## the tests of a few seconds each, without the notebooks
	@$(PY) -m scripts.get_chromium
	@$(PY) -m scripts.get_actionlint
	$(PY) $(PYTEST) tests -m "not slow"

lint: $(STAMP)  ## ruff
	$(PY) -m ruff check .

# Any Python will do, with no package.
links:  ## every link of README, docs and notebooks, over the network
	$(or $(PYTHON),python3) -m scripts.check_links --online

# Files against the manifest, and a random row of every stored table computed again: make audit K=3
audit: $(STAMP)  ## figures against the manifest, random stored results against new ones (K=1 rows of each table)
	$(PY) -m flashtrace_lib audit --profile $(PROFILE) -k $(or $(K),1)

claims: $(STAMP)  ## judge the paper's claims by the stored results again
	$(PY) -m flashtrace_lib claims

claims-unchanged: claims  ## and fail where that changes what is committed
	git diff --exit-code -- README.md figures/claims.md figures/claims.json figures/badges

# The repository is served, so that links out of the notebooks work and pages under build/ can be opened.
lab: $(STAMP)  ## the notebooks in JupyterLab
	$(PY) -m jupyter lab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks $(LAB_OPTIONS)

# What an earlier build left would go into the wheel again.
wheel: $(STAMP)  ## the library as a wheel, in build/wheel
	rm -rf build/lib build/bdist.* build/wheel
	$(PY) -m pip wheel --no-deps --wheel-dir build/wheel .
	rm -rf build/lib build/bdist.*

# In an environment of its own. The tests of the pins and of stored outputs are about other versions.
next:  ## the fast tests with the newest transformers and torch, whatever is pinned
	$(MAKE) env VENV=.venv-next
	.venv-next/bin/python -m pip install --upgrade $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch transformers
	.venv-next/bin/python $(PYTEST) tests -m "not slow" --deselect tests/test_environment.py

# torch goes first and pinned: left to the other packages, pip may choose a build with several GB of CUDA.
$(STAMP): pyproject.toml requirements-nodeps.txt scripts/make_venv.sh
	@PYTHON="$(PYTHON)" bash scripts/make_venv.sh $(VENV)
	$(PY) -m pip install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$(TORCH)"
	$(PY) -m pip install -e ".[$(EXTRAS)]"
	$(PY) -m pip install --no-deps -r requirements-nodeps.txt
	@touch $@
