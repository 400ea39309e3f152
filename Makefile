# The whole interface: `make book` regenerates every figure and table, `make test` checks everything.
SHELL   := /bin/bash
PROFILE ?= laptop
EXTRAS  ?= dev
# Processes that share the tests, one thread each.
JOBS    ?= 2
# A CPU build of torch where the package index would send a CUDA one:
# make env TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
VENV    := .venv
PY      := $(VENV)/bin/python
STAMP   := $(VENV)/.installed
TORCH   := $(shell sed -n 's/^ *"\(torch==[^"]*\)",/\1/p' pyproject.toml)

.PHONY: env book html test lab lint reproduce audit
.DELETE_ON_ERROR:

env: $(STAMP)

book: $(STAMP)
	$(PY) -m flashtrace_lib book --profile $(PROFILE)

reproduce: $(STAMP)
	$(PY) -m flashtrace_lib book --profile $(PROFILE) --fresh

# README, the notebooks as they are stored, and the library's reference, as pages; needs no network.
html: $(STAMP)
	$(PY) docs/build_html.py build/html

# Files against the manifest, and a random row of every stored table computed again: make audit K=3
audit: $(STAMP)
	$(PY) -m flashtrace_lib audit --profile $(PROFILE) -k $(or $(K),1)

# The first line unpacks a headless browser where the machine has none; without one a few tests are skipped.
test: $(STAMP)
	@$(PY) scripts/get_chromium.py
	$(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

lint: $(STAMP)
	$(PY) -m ruff check .

# The repository is served, so that links out of the notebooks work and pages under build/ can be opened.
lab: $(STAMP)
	$(PY) -m jupyter lab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks

# torch goes first and pinned: left to the other packages, pip may choose a build with several GB of CUDA.
$(STAMP): pyproject.toml requirements-nodeps.txt scripts/make_venv.sh
	@PYTHON="$(PYTHON)" bash scripts/make_venv.sh $(VENV)
	$(PY) -m pip install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$(TORCH)"
	$(PY) -m pip install -e ".[$(EXTRAS)]"
	$(PY) -m pip install --no-deps -r requirements-nodeps.txt
	@touch $@
