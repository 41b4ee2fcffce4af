# Everything a contributor types. `make` alone says what there is.

# Some machines set it to 1, and then every start of Python compiles all imports anew.
export PYTHONDONTWRITEBYTECODE =
BIN := .venv/bin
# Parallel test workers, and which tests. More than cores: tests of processes and servers wait for a third of their time.
export WORKERS ?= 3
export TESTS ?= tests

.PHONY: help venv venv-demo venv-test demo quick affected test test-deps check fuzz audit lowest mutants docs reference messages bench clean

help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

# One .venv, in three steps: for the demo, for development, for the whole test suite.
venv: $(BIN)/.made-dev ## Python environment in .venv, as locked in uv.lock; `make test` adds what only tests need
venv-demo: $(BIN)/.made-demo
venv-test: $(BIN)/.made-test

$(BIN)/.made-%: uv.lock pyproject.toml scripts/make-venv.sh $(wildcard hatch_build.py src/benchhouse/load/_*.c)
	@scripts/make-venv.sh $*

demo: venv-demo ## compare six vector indexes, about a minute, and look at the report
	@scripts/demo.sh

quick: venv ## pure and in-process tests, in under two minutes
	@mkdir -p .pytest_cache && rm -f .pytest_cache/quick.jsonl
	$(BIN)/pytest -n 2 -m quick --costs .pytest_cache/quick.jsonl tests
	@$(BIN)/python scripts/test_costs.py .pytest_cache/quick.jsonl --quick

affected: venv-test test-deps ## the tests that a change can break, each with the reason; BASE=COMMIT, DRY_RUN=1 only lists them
	@$(BIN)/python scripts/affected_tests.py $(if $(BASE),--base $(BASE)) $(if $(DRY_RUN),,--run)

test-deps:
	@scripts/install-test-deps.sh

test: venv-test test-deps ## the whole test suite
	@scripts/run-tests.sh

check: venv ## style, types, who may import whom, names and sizes
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/house.py

mutants: venv-test ## what share of small changes to the core its tests notice; a sample, or ALL=1; MODULES=plan for a part
	$(BIN)/python scripts/mutants.py $(if $(ALL),--all) $(MODULES)

fuzz: venv ## compare the compiled load engine with its twin in Python, under sanitizers; SECONDS=600, SEED=N
	$(BIN)/python scripts/fuzz.py --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED))

audit: venv ## known vulnerabilities and licenses of the packages in uv.lock, from PyPI; writes docs/reference/licenses.md
	$(BIN)/python scripts/audit_lock.py

lowest: venv ## whether the lower bounds of the dependencies in pyproject.toml work
	scripts/lowest_versions.sh

docs: venv ## the documentation as a site in site/
	$(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

reference: venv ## make the generated pages of docs/reference anew
	$(BIN)/python scripts/make_reference.py

messages: venv ## generate the protobuf messages of src/benchhouse/drivers/kserve.proto anew
	PYTHONPATH=$$(scripts/install-group.sh messages) $(BIN)/python scripts/make_messages.py

bench: venv-test ## the figures of benchmarks/ that need no other product installed
	scripts/figures.sh

clean: ## remove everything that was made here
	rm -rf .venv demo site dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
