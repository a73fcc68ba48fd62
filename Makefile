# make setup | demo | check | test | lint | bench | soak | fuzz; `make help` says more.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
STAMP := .venv/.stamp
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)

PYTHON_FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))

.DEFAULT_GOAL := help
.PHONY: help setup demo check test lint bench soak fuzz java

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile
	@echo '  variables: PYTHON=python3.12 (which Python makes .venv), ARGS="-k codec -x" and WORKERS=1 (for make test),'
	@echo '    SECONDS_OF_SOAK=3600, HISTORIES=100 and HISTORIES_ON_KAFKA=10 (at most so many on Spark, for make soak)'

setup: $(STAMP) ## make .venv with anew in it; again only when the pins have changed

# What is compiled lies among the sources: a tree that was cleaned needs it again, however new the environment is.
ifneq (3,$(words $(wildcard src/anew/core/_hashing.so src/anew/storage/_rocks.so src/anew/log/kafka/_kafka.so)))
.PHONY: $(STAMP)
endif

$(STAMP): pyproject.toml constraints.txt build-constraints.txt hatch_build.py src/anew/core/hashing.c src/anew/storage/rocks.c src/anew/log/kafka/kafka.c
	@set -eu; \
	if ! $(BIN)/python -c '$(PYTHON_FITS)' 2>/dev/null; then \
	  found=; \
	  for candidate in '$(PYTHON)' python3.13 python3.12 python3.11; do \
	    if command -v "$$candidate" >/dev/null && "$$candidate" -c '$(PYTHON_FITS)'; then found=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "setup: no fitting Python; found: $$('$(PYTHON)' --version 2>&1 || true); expected: 3.11, 3.12 or 3.13;" \
	      "hint: install one and name it, as in 'make setup PYTHON=/path/to/python3.12'" >&2; exit 1; \
	  fi; \
	  echo "setup: .venv from $$found"; \
	  "$$found" -m venv --clear .venv || { \
	    echo "setup: this Python cannot make environments; hint: on Debian and Ubuntu install python3-venv" >&2; exit 1; }; \
	fi
	@command -v "$${CC:-cc}" >/dev/null || { \
	  echo "setup: there is no C compiler; hint: Debian, Ubuntu: apt-get install gcc libc6-dev" >&2; exit 1; }
	@echo 'setup: installing the pinned packages into .venv'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --build-constraint build-constraints.txt --editable '.[dev,demo]'
	@# Where Python may not write bytecode beside the sources each process would compile all of them again.
	@$(BIN)/python -m compileall -q src tests
	@touch $(STAMP)

java:
	@found=$$('$(JAVA)' -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1); \
	if [ "$${found:-0}" -lt 17 ]; then \
	  echo "java: Spark needs Java 17 or newer; found: $${found:-none};" \
	    "hint: install a Java 17 runtime (Debian, Ubuntu: openjdk-17-jre-headless) or set JAVA_HOME" >&2; exit 1; \
	fi

demo: java setup ## a guided tour: repush a store and roll back; refresh a table's segments; reprocess a stream's history
	@$(BIN)/anew demo stores
	@$(BIN)/anew demo tables
	@$(BIN)/anew demo streams

WORKERS ?= 3

# A worker takes whole files, in the order of tests/conftest.py: what a file's tests share is made once.
test: java setup ## all tests, the cheap tiers first
	@$(BIN)/python -m tests.once
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=30 $(ARGS)

# By markers alone, so that a new test is in it or not by where it lies and what it says of itself.
QUICK := (unit or property or tidy or component) and not processes

check: lint ## lint, and all tests that need no process beside their own: minutes, for while one works
	@$(BIN)/python -m pytest -n logical --dist loadfile --no-loadscope-reorder -m '$(QUICK)' $(ARGS)

lint: setup ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

SECONDS_OF_SOAK ?= 3600

HISTORIES ?= 100
HISTORIES_ON_KAFKA ?= 10

# An hour has room for a hundred histories on Spark; in less time fewer are begun, and the last line says how many.
soak: java setup ## fresh seeds for as long as told: the simulation, 100 histories of stream jobs on Spark, 10 on Kafka: make soak SECONDS_OF_SOAK=600
	@$(BIN)/python -m tests.once
	@$(BIN)/python -m tests.simulation --jobs --seconds $$(($(SECONDS_OF_SOAK) / 8)) --seed $$(date +%s)
	@$(BIN)/python -m tests.simulation --seconds $$(($(SECONDS_OF_SOAK) * 2 / 8)) --seed $$(date +%s)
	@$(BIN)/python -m tests.crash.jobs --histories $(HISTORIES) --seconds $$(($(SECONDS_OF_SOAK) * 4 / 8)) --seed $$(date +%s)
	@$(BIN)/python -m tests.crash.jobs --histories $(HISTORIES_ON_KAFKA) --kafka --seconds $$(($(SECONDS_OF_SOAK) / 8)) --seed $$(date +%s)

SECONDS_OF_FUZZ ?= 60

fuzz: setup ## each parser of bytes from outside, fed by atheris: make fuzz SECONDS_OF_FUZZ=600
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS_OF_FUZZ) --seed $$(date +%s)

bench: java setup ## all benchmarks, both sides of each in one run; one alone: python -m bench NAME
	$(BIN)/python -m bench all
