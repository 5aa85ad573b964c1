# `make help` lists what there is. PYTHON names the environment's interpreter.
PYTHON ?= python
RUN := $(PYTHON) -m
.DEFAULT_GOAL := help
.PHONY: help install test fast lint format types docs serve golden figures picture primitives bench ci

help:  ## List the targets
	@sed -nE 's/^([a-z]+):.*## (.*)$$/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

install:  ## Install the checkout in place, with all that development takes
	$(RUN) pip install -r requirements-dev.txt

fast:  ## Run the fast tests
	$(RUN) pytest -n 2 -m "not slow"

test:  ## Run all tests
	$(RUN) pytest -n 2

lint:  ## Look for faults of style and for likely mistakes
	$(RUN) ruff check .
	$(RUN) ruff format --check .

format:  ## Format the sources, and mend what can be mended
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

types:  ## Check types
	$(RUN) pyright

docs:  ## Build the site into site/
	$(RUN) mkdocs build --strict

serve:  ## Show the site at http://localhost:8000, built anew at each change
	$(RUN) mkdocs serve

golden:  ## Write the golden files of emitted C anew
	MORELLO_UPDATE_GOLDEN=1 $(RUN) pytest -q tests/codegen/test_golden.py plugins/reference_c/tests/test_emitter.py

figures:  ## Draw the pictures of the README and of docs/bounds.md anew
	$(PYTHON) docs/figures.py --measure

picture:  ## Take the README's picture of a terminal anew, on a machine that does nothing else
	$(PYTHON) docs/picture.py

primitives:  ## Write docs/primitives.md anew
	$(RUN) tools.primitives

bench:  ## Measure search: minutes, on a machine that does nothing else
	$(PYTHON) benchmarks/synthesis.py

ci:  ## Run all that must hold before a change goes in, in a fresh environment
	.ci/run
