# `make help` lists what there is. PYTHON names the environment's interpreter.
PYTHON ?= python
RUN := $(PYTHON) -m
.DEFAULT_GOAL := help
.PHONY: help install test fast lint format types docs serve golden figures picture primitives bench ci

help:  ## List the targets
	@sed -nE 's/^([a-z]+):.*## (.*)$$/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

install:  ## Install the checkout in place, with the tools for development
	$(RUN) pip install -r requirements-dev.txt

fast:  ## Run the fast tests
	$(RUN) pytest -n 2 -m "not slow"

test:  ## Run all tests
	$(RUN) pytest -n 2

lint:  ## Check style and likely mistakes
	$(RUN) ruff check .
	$(RUN) ruff format --check .

format:  ## Format the sources, and apply fixes
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

types:  ## Check types
	$(RUN) pyright

docs:  ## Build the site into site/
	$(RUN) mkdocs build --strict

serve:  ## Show the site at http://localhost:8000, rebuilt at each change
	$(RUN) mkdocs serve

golden:  ## Update the golden files of emitted C
	MORELLO_UPDATE_GOLDEN=1 $(RUN) pytest -q tests/codegen/test_golden.py plugins/reference_c/tests/test_emitter.py

figures:  ## Redraw the pictures of docs/
	$(PYTHON) docs/figures.py --measure

picture:  ## Redraw docs/images/run.svg, on an idle machine
	$(PYTHON) docs/picture.py

primitives:  ## Update docs/primitives.md
	$(RUN) tools.primitives

bench:  ## Measure search: minutes, on an idle machine
	$(PYTHON) benchmarks/synthesis.py

ci:  ## Run the checks of a change in a fresh environment
	.ci/run
