# The same few verbs for people and for CI. Every target depends on `install`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install serve test check bench docs clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Roost needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --editable '.[embedded,keystone,client]'
	@touch $@

serve: install
	$(BIN)/roost serve

test: install
	$(BIN)/python -m pytest -n 2 --dist loadgroup

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: install
	$(BIN)/python -m bench

docs: install
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .venv-* .roost build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov
