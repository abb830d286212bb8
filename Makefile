# Needs make and Python 3.11 or newer, nothing else. `make` lists the targets.
# PYTHON=python3.12 chooses the interpreter; VENV=folder puts the environment elsewhere.

VENV := .venv
BIN := $(VENV)/bin
# The system's first: a Python that a version manager has compiled is often a fifth slower.
PYTHONS := $(or $(PYTHON),$(addprefix /usr/bin/,python3.13 python3.12 python3.11) python3.13 python3.12 python3.11 python3 python)

.DEFAULT_GOAL := help
.PHONY: help install demo quick test soak check bench pollock screenshots schema cli-docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## create the virtual environment and install the pinned dependencies

demo: install ## load sample exports into an embedded Postgres and show the result
	@$(BIN)/weighbridge demo

quick: install ## the tests of the inner loop: no browser, no killed processes
	@$(BIN)/python -m pytest tests/model tests/formats tests/providers tests/slots tests/pipelines tests/intake $(ARGS)

test: install ## run the whole test suite (make test ARGS="-k lease -n 0")
	@$(BIN)/python -m tests.console.chromium
	@$(BIN)/python -m tests.engine.pgbouncer
	@$(BIN)/python -m pytest --durations=15 $(ARGS)

soak: install ## kill tests at every commit, and long property tests; half an hour or more
	@HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest tests/proof tests/engine/test_claim_cost.py tests/engine/test_other_workspaces.py tests/slots/test_model.py tests/deliver/test_model.py tests/rules/test_pollution.py tests/rules/test_values.py tests/keywords tests/judgments/test_dedupe_key.py tests/projects/test_determinism.py tests/intake/test_recognise.py $(ARGS)

check: install ## lint, formatting, types, import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.bench ## compare with psql and dlt (make bench ARGS="--rows 50000")
	@$(BIN)/python -m bench $(ARGS)

pollock: install ## load the polluted files of the Pollock benchmark (make pollock FOLDER=path/to/Pollock)
	@$(BIN)/python -m bench.pollock $(FOLDER) $(ARGS)

screenshots: install ## screenshot every page of the console, light and dark, into docs/screenshots
	@$(BIN)/python -m tests.console.screenshots docs/screenshots

schema: install ## print the schema of a new database
	@$(BIN)/python -m weighbridge.postgres.schema

cli-docs: install ## write docs/cli.md from the commands and their help texts
	@$(BIN)/python -m weighbridge.cli.reference > docs/cli.md

# --no-header and the two --no-emit flags: these files name no registry and no path of one machine.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-emit-find-links
lock: $(VENV)/.installed ## pin the newest dependencies again (make lock ARGS="--upgrade-package duckdb")
	$(COMPILE) $(or $(ARGS),--upgrade) pyproject.toml -o requirements/runtime.txt
	$(COMPILE) $(or $(ARGS),--upgrade) pyproject.toml requirements/dev.in -c requirements/runtime.txt -o requirements/dev.txt
	$(COMPILE) $(or $(ARGS),--upgrade) requirements/bench.in -o requirements/bench.txt
	$(COMPILE) $(or $(ARGS),--upgrade) requirements/uv.in -o requirements/uv.txt

clean: ## remove the virtual environment and all generated files
	rm -rf $(VENV) build dist bench/results .coverage .hypothesis .schemathesis
	rm -rf .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# uv installs five times faster than pip, but does not read pip's configuration: where it cannot do it,
# pip does the work. Both check every hash.
install_with = $(BIN)/uv pip install --quiet --python $(BIN)/python $(1) || $(PIP) $(1)
PIP = $(BIN)/python -m pip install -qq --disable-pip-version-check

$(VENV)/.installed: requirements/dev.txt requirements/uv.txt pyproject.toml | $(BIN)/pip
	@echo "installing requirements/dev.txt"
	@$(PIP) --require-hashes -r requirements/uv.txt
	@$(call install_with,--require-hashes -r requirements/dev.txt)
	@$(call install_with,--no-deps --no-build-isolation -e .)
	@touch $@

$(VENV)/.bench: requirements/bench.txt $(VENV)/.installed
	@echo "installing requirements/bench.txt"
	@$(call install_with,--require-hashes -r requirements/bench.txt)
	@touch $@

$(BIN)/pip:
	@for python in $(PYTHONS); do \
		"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
		old_enough=$$python; \
		"$$python" -c 'import ensurepip, venv' 2>/dev/null || continue; \
		echo "creating $(VENV) with $$("$$python" --version)"; \
		exec "$$python" -m venv --clear $(VENV); \
	done; \
	if [ -n "$$old_enough" ]; then \
		echo "$$old_enough has no venv module. On Debian and Ubuntu: apt install python3-venv" >&2; \
	else \
		echo "Python 3.11 or newer is required; not found among: $(PYTHONS)." >&2; \
		echo "Install it, or name its path: make install PYTHON=/path/to/python3" >&2; \
	fi; exit 1
