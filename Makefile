.DEFAULT_GOAL := help
.PHONY: help setup demo test check fmt types arrows dead bench drills kube golden lock clean broker

PYTHON ?= python3
BIN := .venv/bin

help: ## what you can make
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: .venv/.ready ## a virtual environment with everything in it, pinned and hashed

.venv/.ready: requirements.lock pyproject.toml .ci/setup
	PYTHON="$(PYTHON)" .ci/setup

demo: setup ## everything over a simulated cluster; Ctrl-C ends it
	$(BIN)/joulie demo

test: setup ## all tests that this machine can run
	$(BIN)/python -m pytest

check: fmt types arrows dead ## what CI runs beside the tests, in the order that fails fastest

fmt: setup ## format and lint
	$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: setup ## mypy and basedpyright, both strict
	$(BIN)/mypy && $(BIN)/basedpyright

arrows: setup ## who may import whom
	$(BIN)/lint-imports

dead: setup ## code that nobody calls, dependencies that nobody uses
	$(BIN)/vulture && $(BIN)/deptry .

bench: setup ## measure; prints ratios, asserts nothing
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

drills: setup ## the long drills: kills, again and again
	$(BIN)/python -m pytest -m drill --timeout 1800

kube: .kube/.ready ## etcd, kube-apiserver and kube-scheduler for tests/cluster; wants Go

.kube/.ready: .ci/kube tests/kit/kube_rules.go
	.ci/kube && touch .kube/.ready

broker: ## build nats-server from upstream's source, compare it with the sums; wants Go
	.ci/broker

golden: setup ## record the golden log anew, when scores or folds change on purpose
	$(BIN)/python tests/audit/renew.py

lock: ## pin every dependency again; no index address ends up in the file
	uv pip compile --quiet --universal --generate-hashes --all-extras --no-header \
	  --no-emit-index-url --no-emit-find-links --python-version 3.11 \
	  pyproject.toml -o requirements.lock

clean: ## remove the virtual environment, and what `make kube` built
	rm -rf .venv .kube
