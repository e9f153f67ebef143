PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

RELEASE := build/release
FOOLBOX18 := build/foolbox18
FOOLBOX18_PYTHON ?= python3.11

.PHONY: help quickstart reproduce test check bench fidelity kills soak release-check clean
.NOTPARALLEL: # two installs into one environment must not meet
.DELETE_ON_ERROR:

help:
	@echo "make quickstart   the main job on embedded data: train, protect, check, report; three minutes at most"
	@echo "make reproduce    the paper in small on the same data: all detectors, all tests; about ten minutes"
	@echo "make test         all tests"
	@echo "make check        ruff, mypy, import-linter"
	@echo "make bench        speed and memory; writes docs/speed.md"
	@echo "make soak         ten minutes of load, broken requests, reloads and kills against one service"
	@echo "make fidelity     our attacks beside those of Foolbox 1.8.0, in an environment of its own; ten minutes"
	@echo "make kills        100 kills of five verbs, each resumed and compared; an hour"
	@echo "make release-check   builds wheel and sources, installs each into a fresh environment, tries it"
	@echo "make clean        removes the environment and what tools leave behind"
	@echo "Each verb first installs what it needs into $(VENV). PYTHON=... picks the interpreter."

quickstart: $(VENV)/quickstart.stamp
	@$(BIN)/benfourier quickstart --out quickstart

# Two processes, as stated on the pages, whatever the number of cores.
reproduce: $(VENV)/quickstart.stamp
	@$(BIN)/benfourier evaluate experiments/reproduce.toml --ledger reproduce/reproduce.jsonl --workers 2
	@$(BIN)/benfourier report reproduce/reproduce.jsonl --out reproduce/report.html

# Two processes of one thread each take half as long as one process of two threads.
test: $(VENV)/test.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

check: $(VENV)/check.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The page is written even when a limit is broken, so that docs/speed.md always shows the last results.
bench: $(VENV)/bench.stamp
	status=0; $(BIN)/python -m benchmarks || status=$$?; $(BIN)/python -m tools.docs && exit $$status

soak: $(VENV)/bench.stamp
	$(BIN)/python -m benchmarks.soak

fidelity: $(VENV)/bench.stamp $(FOOLBOX18)/stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.fidelity $(FOOLBOX18)/bin/python

kills: $(VENV)/bench.stamp
	$(BIN)/python -m benchmarks.kills

# Foolbox 1.8.0 needs NumPy 1.23, whose last wheels are for Python 3.11. torch is ours, so that networks round alike.
$(FOOLBOX18)/stamp: constraints.txt
	$(FOOLBOX18_PYTHON) -m venv $(FOOLBOX18)
	$(FOOLBOX18)/bin/python -m pip install -qq --disable-pip-version-check setuptools wheel numpy==1.23.5 scipy==1.10.1 \
		requests GitPython $$(grep '^torch==' constraints.txt)
	$(FOOLBOX18)/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation foolbox==1.8.0
	@touch $@

# Wheels of all that is needed are fetched once, for both environments. Nothing of this folder is on their path.
release-check:
	rm -rf $(RELEASE) dist
	$(PYTHON) -m venv $(RELEASE)/builder
	$(RELEASE)/builder/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt hatchling
	$(RELEASE)/builder/bin/python -m hatchling build -d dist
	$(RELEASE)/builder/bin/python -m pip wheel -qq --disable-pip-version-check -c constraints.txt -w $(RELEASE)/wheels torch
	$(RELEASE)/builder/bin/python -m pip wheel -qq --disable-pip-version-check -c constraints.txt -w $(RELEASE)/wheels \
		-f $(RELEASE)/wheels hatchling dist/*.whl
	set -e; version=$$($(RELEASE)/builder/bin/python -m hatchling version); for file in dist/*.whl dist/*.tar.gz; do \
		place=$(RELEASE)/try-$${file##*.}; $(PYTHON) -m venv $$place; \
		rm -f $(RELEASE)/wheels/benfourier-*.whl; \
		$$place/bin/python -m pip install -qq --disable-pip-version-check --no-index -f $(RELEASE)/wheels $$file; \
		(cd $$place && env -u PYTHONPATH bin/python ../../../tools/smoke.py $$version); \
		echo "$$file: installed and tried"; \
	done

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

# torch comes first and by itself: its tested version decides which of its many builds is fetched.
$(VENV)/torch.stamp: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	@touch $@

$(VENV)/quickstart.stamp $(VENV)/test.stamp $(VENV)/check.stamp $(VENV)/bench.stamp: $(VENV)/%.stamp: $(VENV)/torch.stamp pyproject.toml
	$(INSTALL) -e '.[$*]'
	@touch $@
