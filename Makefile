# Each target sets up what it needs; nothing but python3 (3.11 or newer) and make is expected.
PYTHON ?= python3
VENV := .venv
LIGHT := .venv-light
BIN := $(VENV)/bin
# processes of pytest
WORKERS ?= 2
# what tests compare with, but whose own pins are older than ours
PEERS := lifelines==0.30.3 autograd==1.9.1 autograd-gamma==0.5.0 formulaic==1.2.2 interface-meta==2.0.1 wrapt==2.5.2 \
	dp-accounting==0.6.0 absl-py==2.5.1 dm-tree==0.1.10

.PHONY: demo test test-slow test-browser test-flower-next lint bench docs pictures wheel clean

demo: $(LIGHT)/ready
	$(LIGHT)/bin/unpooled demo

test: $(VENV)/ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

# What is long by nature: documents and examples as programs, real networks whose nodes die, expire or flood.
test-slow: $(VENV)/ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow

# Pages and reports in a real browser: needs a Chromium on the PATH (Debian: apt install chromium).
test-browser: $(VENV)/ready
	$(BIN)/pip install -q -c constraints.txt 'playwright>=1.50'
	$(BIN)/python -m pytest tests/pages/test_browser_pages.py -rs

# The tests of the network with the newest Flower of the range; installed without its dependencies, one of which is too new.
FLOWER_NEXT ?= 1.42.0
NEXT := .venv-flower-next

test-flower-next: $(NEXT)/ready
	$(NEXT)/bin/python -m pytest tests/remote tests/flower tests/node tests/contracts

$(NEXT)/ready: $(VENV)/ready
	$(PYTHON) -m venv $(NEXT)
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > $$($(NEXT)/bin/python -c "import site; print(site.getsitepackages()[0])")/main.pth
	$(NEXT)/bin/pip install -q --no-deps flwr==$(FLOWER_NEXT)
	@touch $@

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks

docs: $(VENV)/ready  # the site, in build/site; warnings and dead links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

pictures: $(VENV)/ready  # of the pages, the gallery and the notebooks
	$(BIN)/python docs/make_pictures.py

# The wheel, installed into an environment of its own beside the light core's packages, and used from there.
wheel: $(LIGHT)/ready
	rm -rf dist build/wheel && $(LIGHT)/bin/pip wheel -q --no-deps -w dist .
	$(PYTHON) -m venv build/wheel
	$(LIGHT)/bin/python -c "import site; print(site.getsitepackages()[0])" > $$(build/wheel/bin/python -c "import site; print(site.getsitepackages()[0])")/light.pth
	build/wheel/bin/pip install -q --no-deps dist/*.whl
	cd build && wheel/bin/python -I -c "import unpooled; assert 'wheel' in unpooled.__file__, unpooled.__file__"
	cd build && env -u PYTHONPATH wheel/bin/unpooled doctor && env -u PYTHONPATH wheel/bin/unpooled demo --json

$(LIGHT)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(LIGHT)
	$(LIGHT)/bin/pip install -q -c constraints.txt -e .
	@touch $@

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[all,encoder,dev,docs]'
	$(BIN)/pip install -q --no-deps $(PEERS)
	@touch $@

clean:
	rm -rf $(VENV) $(LIGHT) $(NEXT) build dist demo runs .pytest_cache .mypy_cache .ruff_cache
