# The habits: make fmt lint test bench demo. Everything is installed on first use (tools/setup.sh).
BIN := .venv/bin
PY := $(BIN)/python
PYTEST_ARGS ?=
# Tests wait more than they compute: three files at a time, on two processors too. WORKERS=0 runs them one by one in one process.
WORKERS ?= 3

.PHONY: help demo test lint fmt bench bench-broker bench-link interop setup clean fuzz soak chaos chaos-links chaos-mirrors

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

setup: ## install what development needs
	@tools/setup.sh dev

demo: ## lose a datacenter, fail over, audit, back up, restore: about 3 minutes
	@tools/setup.sh demo
	@exec $(BIN)/isthmus demo

test: ## all tests (random order, warnings are errors)
	@tools/setup.sh dev
	$(PY) -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

lint: ## ruff, mypy strict, import contracts
	@tools/setup.sh dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: ## format and repair what can be repaired
	@tools/setup.sh dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: ## broker, link and log figures, beside Apache Kafka where it can be had
	@tools/setup.sh dev
	$(PY) -m bench

bench-broker: ## the broker beside Apache Kafka, every row; BENCH_ARGS="--only fetch --mb 200 --quick --list"
	@tools/setup.sh dev
	$(PY) -m bench.broker $(BENCH_ARGS)

bench-link: ## a link beside MirrorMaker 2, every row; BENCH_ARGS="--only catch-up --mb 300 --no-mm2 --list"
	@tools/setup.sh dev
	$(PY) -m bench.link $(BENCH_ARGS)

interop: ## suites, clients and tools that nobody here wrote; SUITES="librdkafka …" for some
	@tools/setup.sh dev
	$(PY) -m tests.interop $(SUITES)

fuzz: ## coverage-guided fuzzing of frames, batches, log directories and a live broker; MINUTES=4
	@tools/setup.sh fuzz
	$(PY) -m tests.fuzz --minutes $(or $(MINUTES),4)

chaos: ## faults against a replicated cluster, two at once, and a check of what clients saw; MINUTES=60 SEED=7
	@tools/setup.sh dev
	$(PY) -m tests.chaos --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

chaos-links: ## faults against links between two clusters, and an audit of what arrived; MINUTES=60 SEED=7
	@tools/setup.sh dev
	$(PY) -m tests.chaos.links --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(CHAOS_ARGS)

chaos-mirrors: ## roles of mirrors change under faults, and an audit of what is left; MINUTES=60 SEED=7
	@tools/setup.sh dev
	$(PY) -m tests.chaos.mirrors --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(CHAOS_ARGS)

soak: ## mixed load with bad connections; memory stays flat, nothing is lost; MINUTES=10
	@tools/setup.sh dev
	$(PY) -m tests.soak --minutes $(or $(MINUTES),10)

clean: ## remove what was built (not the virtual environment)
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
