# The whole interface: `make book` regenerates every figure and table, `make test` checks everything.
SHELL   := /bin/bash
PROFILE ?= laptop
EXTRAS  ?= dev
# A CPU build of torch where the package index would send a CUDA one:
# make env TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
VENV    := .venv
PY      := $(VENV)/bin/python
STAMP   := $(VENV)/.installed
TORCH   := $(shell sed -n 's/^ *"\(torch==[^"]*\)",/\1/p' pyproject.toml)

.PHONY: env book test lab lint reproduce audit
.DELETE_ON_ERROR:

env: $(STAMP)

book: $(STAMP)
	$(PY) -m flashtrace_lib book --profile $(PROFILE)

reproduce: $(STAMP)
	$(PY) -m flashtrace_lib book --profile $(PROFILE) --fresh

# Files against the manifest, and a random row of every stored table computed again: make audit K=3
audit: $(STAMP)
	$(PY) -m flashtrace_lib audit --profile $(PROFILE) -k $(or $(K),1)

test: $(STAMP)
	$(PY) -m pytest

lint: $(STAMP)
	$(PY) -m ruff check .

lab: $(STAMP)
	$(PY) -m jupyter lab notebooks

# torch goes first and pinned: left to the other packages, pip may choose a build with several GB of CUDA.
$(STAMP): pyproject.toml requirements-nodeps.txt scripts/make_venv.sh
	@PYTHON="$(PYTHON)" bash scripts/make_venv.sh $(VENV)
	$(PY) -m pip install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$(TORCH)"
	$(PY) -m pip install -e ".[$(EXTRAS)]"
	$(PY) -m pip install --no-deps -r requirements-nodeps.txt
	@touch $@
