# `make` lists the targets. Each sets up what it needs, in .venv (test-newest: .venv-newest; example: .venv-examples).

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt
PYTHONS := python3 python3.13 python3.12 python3.11
INPUTS := pyproject.toml constraints.txt
ALL := $(VENV)/.installed-all
TEST := $(VENV)/.installed-test
DEV := $(VENV)/.installed-dev
NEWEST := .venv-newest
NAMES := $(sort $(notdir $(patsubst %/main.py,%,$(wildcard docs/examples/*/main.py))))
CASES := 200000
MINUTES := 60
EXAMPLES := 1000
RESULTS := 50000
SEEDS := 1000
ROUNDS := 10
LIVES := 1000
REQUESTS := 10000
BEGAN := $(shell date +%s)
# Tests of our own rules against our own code, in virtual time: no library's version changes them.
OURS_ALONE := --ignore=tests/simulation --ignore=tests/benchmarks
# In the order of conftest: the files that take longest begin, whatever the number of their tests.
BY_FILE := --dist loadfile --no-loadscope-reorder
TOPOLOGY := $(if $(SENTINEL),sentinel,$(if $(CLUSTER),cluster,plain))

# Compiled modules are kept, or each process compiles them again, and stay out of the source folders.
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo example shell test test-newest test-system test-adapters test-clients test-fast lint docs check soak soak-memory soak-llm soak-attacks soak-oracle soak-tables soak-results soak-properties soak-ha soak-slots soak-containers soak-failovers soak-lives soak-serve simulate simulate-mutants mutants cost bench-fleet bench-routed dist up down clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name line; \
	do printf '  make %-12s %s\n' "$$name" "$$line"; done

demo: $(ALL) ## watch three schedulers rule on a small agent, on one screen
	@$(BIN)/toolgate demo

example: $(BIN)/python ## run an example of docs/examples: NAME=langgraph
	@[ -f "docs/examples/$(NAME)/main.py" ] || { echo "make example NAME=…: one of $(NAMES)" >&2; exit 2; }
	@$(MAKE) -s --no-print-directory .venv-examples/$(NAME)/.installed
	@.venv-examples/$(NAME)/bin/python docs/examples/$(NAME)/main.py

shell: $(ALL) ## a shell in which `toolgate` is found
	@PATH="$(CURDIR)/$(BIN):$$PATH" VIRTUAL_ENV="$(CURDIR)/$(VENV)" $${SHELL:-/bin/sh} -i

test: $(TEST) ## run the tests, on an embedded server
	@$(BIN)/python tests/stages.py $(BEGAN)

test-newest: $(BIN)/python ## the pure tests on the newest versions that are allowed
	@find $(NEWEST) -maxdepth 1 -name .installed -mmin +1440 -delete 2>/dev/null || true
	@$(MAKE) --no-print-directory $(NEWEST)/.installed
	@TOOLGATE_EXAMPLES=30 $(NEWEST)/bin/python -m pytest -q -m "pure and not system" -n 3 $(OURS_ALONE)

test-system: $(DEV) ## those with Prometheus, a browser, own environments
	@$(BIN)/python -m pytest -q -m system -n 3 $(BY_FILE)

test-adapters: $(DEV) ## adapters on their frameworks' newest releases; KEEP=1
	@$(BIN)/python tests/adapters/frameworks.py $(if $(KEEP),--keep) $(FRAMEWORKS)

soak: $(DEV) ## storm a fleet that spends, for minutes, and audit its books
	@$(BIN)/python -m pytest tests/soak_budgets.py -s

soak-memory: $(DEV) ## memory of a fleet for MINUTES (60) at 250 decisions a second
	@$(BIN)/python tests/soak_memory.py --minutes $(MINUTES)

soak-llm: $(DEV) ## 200 agents think on 100 USD while their parts are killed
	@$(BIN)/python -m pytest tests/soak_llm.py -s

soak-attacks: $(DEV) ## dress up CASES calls (200000) that policies deny
	@$(BIN)/python tests/soak_attacks.py --cases $(CASES)

soak-oracle: $(DEV) ## try CASES (200000) of rules and values
	@$(BIN)/python tests/oracle/run.py --cases $(CASES) --jobs 2

soak-tables: $(DEV) ## hold CASES (200000) answers of local tables against others
	@$(BIN)/python tests/oracle/tables.py --cases $(CASES) --jobs 2

soak-results: $(DEV) ## mask and withhold RESULTS (50000) generated results
	@$(BIN)/python tests/soak_results.py --cases $(RESULTS)

soak-properties: $(DEV) ## property tests on EXAMPLES (1000) new examples each
	@TOOLGATE_RANDOM=1 TOOLGATE_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -q -m "pure and not system" -n auto

soak-slots: $(DEV) ## histories of who has slots, against a model
	@$(BIN)/python tests/soak_slots.py

soak-ha: $(DEV) ## a fleet on sentinels that fail over for half an hour
	@$(BIN)/python tests/soak_ha.py

soak-failovers: $(DEV) ## ROUNDS (10) faults of each kind on sentinels and clusters
	@TOOLGATE_HA_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -q -s tests/ha/test_sentinel.py tests/ha/test_cluster.py \
	  tests/ha/test_fleet_failover.py tests/ha/test_fleet_cluster.py tests/ha/test_moved_address.py

soak-lives: $(DEV) ## LIVES (1000) schedulers killed, and what they leave behind
	@TOOLGATE_LIVES=$(LIVES) $(BIN)/python -m pytest -q -s tests/acceptance/fleet/test_keys_expire.py

soak-serve: $(DEV) ## REQUESTS (10000) of every kind at a sidecar, all at once
	@TOOLGATE_STORM_REQUESTS=$(REQUESTS) $(BIN)/python -m pytest -q -s tests/acceptance/sidecar/test_serve_storm.py

soak-containers: $(DEV) ## fleets in containers: kills, restarts, rotation, scale
	@$(BIN)/python -m pytest tests/deploy/containers/soak_containers.py -s

test-clients: $(DEV) ## hooks in coding agents' own programs, newest releases
	@$(BIN)/python tests/clients/programs.py $(CLIENTS)

test-fast: $(DEV) ## run the pure part of the tests: no server, a few seconds
	@$(BIN)/python -m pytest -q -m "pure and not session and not system" -n auto

lint: $(DEV) ## check format, style, types, imports, names and documents
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy & types=$$!; $(BIN)/python -m pytest -q -m source -n 2; tests=$$?; wait $$types && exit $$tests

docs: $(DEV) ## build the documents as a site; broken links are errors
	@$(BIN)/python docs/build.py

check: lint docs test test-newest test-system ## lint, the documents, all tests: what CI runs

simulate: $(DEV) ## SEEDS (1000) simulated worlds full of faults
	@$(BIN)/python tests/simulation/simulate.py --seeds $(SEEDS) $(if $(INTO),--into $(INTO))
	@$(BIN)/python tests/simulation/simulate.py --seeds $(SEEDS) --tables
	@$(BIN)/python tests/simulation/score_worlds.py --seeds $(SEEDS)

simulate-mutants: $(DEV) ## bugs planted for it, and how soon each is found
	@$(BIN)/python tests/mutants.py simulation

mutants: $(DEV) ## break the code on purpose and see the tests go red
	@$(BIN)/python tests/mutants.py

cost: $(DEV) ## a decision beside another version: AGAINST=v0.1.0
	@$(BIN)/python tests/benchmarks/cost.py $(AGAINST)

bench-fleet: $(DEV) ## what scheduling saves a fleet, beside bounds; SEEDS=3
	@$(BIN)/python tests/benchmarks/fleet/benefit.py $(if $(filter command line,$(origin SEEDS)),--seeds $(SEEDS)) $(if $(PICTURE),--picture $(PICTURE))

bench-routed: $(DEV) ## the score beside published routers; DATA=a clone of RouteLLM
	@[ -n "$(DATA)" ] || { echo "make bench-routed DATA=PATH: a clone of https://github.com/lm-sys/RouteLLM" >&2; exit 2; }
	@$(BIN)/python tests/benchmarks/routed_requests.py $(DATA) $(if $(filter command line,$(origin SEEDS)),--seeds $(SEEDS))

dist: $(DEV) ## build sdist and wheel, try them in bare environments
	@$(BIN)/python tests/distribution/build.py $(EXTRAS)

up: ## run a fleet in containers (or SENTINEL=1, CLUSTER=1)
	@python3 deploy/up.py $(TOPOLOGY)

down: ## end that fleet; its data stay (docker volume ls)
	@docker compose --project-name $${COMPOSE_PROJECT_NAME:-toolgate} down --remove-orphans

clean: ## remove the virtual environment and all caches
	@rm -rf $(VENV) $(NEWEST) .venv-examples dist build .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find bus orchestrator schedulers tests -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@for python in $(PYTHONS); do \
	  if $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Making $(VENV) with $$($$python --version) …"; \
	    $$python -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }; exit 0; \
	  fi; \
	done; \
	echo "No Python 3.11 or newer with its venv module found (looked for: $(PYTHONS))." >&2; \
	echo "Install one, or name it: make PYTHONS=/path/to/python3" >&2; exit 1

$(ALL): $(INPUTS) | $(BIN)/python
	@echo "Installing Toolgate into $(VENV) …"
	@$(PIP) -e '.[all]'
	@touch $@

$(TEST): $(INPUTS) | $(BIN)/python
	@echo "Installing Toolgate and what its tests need into $(VENV) …"
	@$(PIP) -e '.[test]'
	@touch $(ALL) $@

$(DEV): $(INPUTS) | $(BIN)/python
	@echo "Installing Toolgate and its development tools into $(VENV) …"
	@$(PIP) -e '.[dev]'
	@touch $(ALL) $(TEST) $@

# Without constraints.txt; renewed when it is a day old.
$(NEWEST)/.installed: pyproject.toml | $(BIN)/python
	@echo "Installing the newest versions of all packages into $(NEWEST) …"
	@[ -x $(NEWEST)/bin/python ] || $(BIN)/python -m venv $(NEWEST)
	@$(NEWEST)/bin/python -m pip install -q --disable-pip-version-check --upgrade --upgrade-strategy eager -e '.[test]'
	@touch $@

# An environment for each example; paths in its requirements are those of the clone.
.venv-examples/%/.installed: docs/examples/%/requirements.txt pyproject.toml | $(BIN)/python
	@echo "Installing Toolgate and what the example $* needs into $(@D) …"
	@[ -x $(@D)/bin/python ] || $(BIN)/python -m venv $(@D)
	@$(@D)/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@
