# Each target sets up what it needs; nothing but python3 (3.11 or newer) and make is expected.
PYTHON ?= python3
VENV := .venv
LIGHT := .venv-light
BIN := $(VENV)/bin

.PHONY: demo test lint bench docs clean

demo: $(LIGHT)/ready
	$(LIGHT)/bin/unpooled demo

test: $(VENV)/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks

docs: $(VENV)/ready  # docs/reference.md from the docstrings
	$(BIN)/python docs/make_reference.py

$(LIGHT)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(LIGHT)
	$(LIGHT)/bin/pip install -q -c constraints.txt -e .
	@touch $@

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[all,encoder,dev]'
	@touch $@

clean:
	rm -rf $(VENV) $(LIGHT) demo runs .pytest_cache .mypy_cache .ruff_cache
