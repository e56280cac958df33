# Two commands matter: `make demo` (see it work) and `make test` (exactly what CI runs).
# Each target creates .venv and installs what it needs; uv is used when it can be had, pip otherwise.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
WORKERS ?= auto
TESTERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)  # some tests wait for a clock or a disk
NATIVE := $(wildcard src/native/*.[ch])  # compiled when tokenloom is installed

# modules are compiled once, not by each of the processes that tests and benchmarks start
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo quick test test-slow browser peers sanitize lint types docs bench science clean

demo: $(VENV)/.demo
	$(BIN)/python -m examples.demo

# for people who edit, under a minute: required behavior, laws over a few random runs, killed builds;
# `make test` adds the slowest chapters (LEFT) and the tests of the laws themselves
LEFT := mission/test_be_benchmarks mission/test_tr_training mission/test_foreign_in_buckets \
        mission/test_tokenizers laws/test_controls laws/test_tiny_limits
quick: $(VENV)/.test
	TOKENLOOM_HYPOTHESIS=quick $(BIN)/python -m pytest -n $(TESTERS) -q -m "not slow" \
	  $(LEFT:%=--ignore tests/%.py) tests/mission tests/laws tests/fault/test_killed_builds.py

test: $(VENV)/.test browser peers lint types
	$(BIN)/python -m pytest -n $(TESTERS) -q -m "not slow"

test-slow: $(VENV)/.test $(VENV)/.node browser
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -q -m slow

# pages are tested in a real browser, with letters of every script; without one, those tests are
# skipped, and pytest says so
BROWSER := chromium fonts-noto-core fonts-noto-mono fonts-noto-cjk
browser:
	@dpkg -s $(BROWSER) >/dev/null 2>&1 || { \
	  echo "installing $(BROWSER), for tests of pages"; \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	    && apt-get update -qq && apt-get install -y -qq --no-install-recommends $(BROWSER) >/dev/null; \
	} || echo "tests of pages are skipped: sudo apt-get install --no-install-recommends $(BROWSER)"

# the libraries that exports are opened with, each in an environment of its own below $(VENV)/peers;
# the tests of one that cannot be installed are skipped, and pytest says so
peers: $(VENV)/.test
	-@$(BIN)/python tests/exchange/peers.py

# the compiled loops under ASAN and UBSAN: their tests, and a minute of fuzzing; needs gcc
sanitize: $(VENV)/.test
	$(BIN)/python tests/native/sanitize.py --seconds 60

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo

types: $(VENV)/.test
	$(BIN)/mypy

# every warning is an error; then open site/index.html
docs: $(VENV)/.test
	$(BIN)/python docs/site/build.py --out site

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

# 199 small trainings, half an hour on two cores; what has a result is skipped, so it resumes
science: $(VENV)/.test
	$(BIN)/python -m science

clean:
	rm -rf $(VENV) build dist demo-out site src/*.egg-info src/tokenloom/*.so

# install EXTRA, with uv when pip can bring it, else with pip itself
install = if $(BIN)/python -m uv --version >/dev/null 2>&1 || $(BIN)/pip install -q uv >/dev/null 2>&1; \
	  then $(BIN)/python -m uv pip install -q --python $(BIN)/python $(1) || $(BIN)/pip install -q $(1); \
	  else $(BIN)/pip install -q $(1); fi

$(BIN)/python:
	@echo "creating $(VENV)"
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"tokenloom needs Python 3.11 or newer; $(PYTHON) is {v.major}.{v.minor}. Set PYTHON=/path/to/python3.11.")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml $(NATIVE) | $(BIN)/python
	@echo "installing tokenloom with the demo extras"
	@$(call install,-e '.[demo]')
	@touch $@

$(VENV)/.test: pyproject.toml $(NATIVE) | $(BIN)/python
	@echo "installing tokenloom with the test extras"
	@$(BIN)/pip install -q torch==2.13.0
	@$(call install,-e '.[test]')
	@touch $@

# the servers of others that remote stores are tested on; needs npm
$(VENV)/.node: | $(BIN)/python
	@echo "installing s3rver and azurite"
	@npm install --silent --no-fund --no-audit --prefix $(VENV)/node s3rver@3.7.1 azurite@3.35.0
	@touch $@

# torch is named so that no peer can ask for another one
$(VENV)/.bench: $(VENV)/.test
	@echo "installing the loaders to compare with"
	@$(call install,-e '.[bench]' torch==2.13.0)
	@$(call install,--no-deps 'litdata>=0.2.76' 'trl>=1.16')
	@touch $@
