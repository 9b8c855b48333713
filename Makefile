# make demo: solve CartPole and score the result.  make test: the whole suite.  make lint: ruff, mypy and the linters of workflows.
# make sanitize: the native core under the address, undefined-behaviour and thread sanitizers.
# make test-long: tests of more than four seconds, soaks, further variants, commands of pages, and the documentation site.
# make test-oldest: the tests of test-fast, and some of processes, with the oldest versions that pyproject.toml allows.
# make check-wheel: builds sdist and wheel, and uses the wheel in an environment without compiler.
# make test-fast: what tests need no training and no processes, in less than a minute.
# make browser: Chromium, axe-core and onnxruntime-web, with which `make test` tests pages; without them it skips tests.
# make docs: the documentation site, into docs/_build/html.  make docs-serve: the same, shown at http://127.0.0.1:8000.
# make bench-pendulum: seconds until TD3, SAC and DDPG have learned Pendulum, table and plot.
# Needs only Python 3.11 or newer and a C++ compiler; all else is installed into .venv, again only after a change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Three processes for two cores, because tests wait for processes that they start. Files stay whole: they share fixtures.
SHARED := -n 3 --dist loadfile --no-loadscope-reorder
BUILT_FROM := pyproject.toml CMakeLists.txt $(wildcard src/* src/*/*)
# Of make test-oldest: the extras, tests of processes, and tests of what other extras and the extra dev have.
EXTRAS := atari,dashboard,plot,tune,video
PROCESSES := tests/engine/test_serial.py tests/engine/test_local.py tests/engine/test_policy.py tests/engine/test_video.py
OTHERS := tests/export tests/exchange tests/test_publishing.py

.PHONY: demo test test-fast test-long test-oldest lint sanitize check-wheel browser docs docs-serve bench-pendulum

demo: $(VENV)/.installed
	$(BIN)/penstock train appo --env CartPole-v1 --target-return 475
	$(BIN)/penstock eval "$$(ls -td runs/*/ | head -n 1)" --episodes 100

test: $(VENV)/.installed-dev browser
	$(BIN)/python -m pytest $(SHARED) --durations=30 -m "not long"

test-fast: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(SHARED) -m "not slow and not long"

test-long: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(SHARED) -m long

test-oldest:
	$(PYTHON) -m venv build/oldest
	build/oldest/bin/python -m pip install --quiet uv
	build/oldest/bin/uv pip install --quiet --python build/oldest --resolution lowest-direct --editable '.[$(EXTRAS)]'
	build/oldest/bin/uv pip install --quiet --python build/oldest pytest pytest-timeout pytest-xdist hypothesis psutil pygame-ce
	build/oldest/bin/uv pip list --python build/oldest
	build/oldest/bin/python -m pytest $(SHARED) -m "not slow and not long" $(OTHERS:%=--ignore %)
	build/oldest/bin/python -m pytest $(SHARED) -m "not long" $(PROCESSES)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	@sh tools/release/lint_workflows.sh $(VENV)

sanitize: $(VENV)/.installed-dev
	@sh tests/native/sanitize.sh $(CURDIR)/$(BIN)/python

check-wheel:
	PYTHON=$(PYTHON) tools/release/check_wheel.sh

browser: $(VENV)/.installed-dev
	@sh tests/dashboard/set_up_browser.sh $(VENV)

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --builder html docs docs/_build/html

docs-serve: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory docs/_build/html 8000

bench-pendulum: $(VENV)/.installed-dev
	$(BIN)/python bench/learning.py pendulum-td3 pendulum-sac pendulum-ddpg --plot docs/images/pendulum.svg

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Penstock needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BUILT_FROM) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: $(BUILT_FROM) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(BUILT_FROM) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@
