.DEFAULT_GOAL := help
.PHONY: help setup demo test long postgres quick pythons shuffled check format lint typecheck mypy basedpyright pagecheck imports deadcode vulture deptry docs bench costs figures drills mutants simulate three moves
.PHONY: kube apiservers golden lock clean
.PHONY: broker cluster cluster-two cluster-ha dist release krew image image-archive sbom wheels chart page restarts

PYTHON ?= python3
BIN := .venv/bin
# Tests wait for processes much of their time, so there are more workers than cores.
CORES := $(shell getconf _NPROCESSORS_ONLN)
WORKERS ?= $(shell echo $$(($(CORES) > 2 ? 8 : 3 * $(CORES))))
PARALLEL := -n $(WORKERS) --dist worksteal -o tmp_path_retention_policy=failed
# Tests wait for thousands of syncs of files, which cost nothing in memory.
SHM := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 {print "TMPDIR=/dev/shm"}')
TESTS := $(SHM) $(BIN)/python -m pytest $(PARALLEL)
SLOWEST := --durations=25
SHORT := not drill and not long and not postgres
# Tests start hundreds of processes; compiled modules that are kept save much of each start.
export PYTHONDONTWRITEBYTECODE :=

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: .venv/.ready ## a virtual environment with everything in it, pinned and hashed

.venv/.ready: requirements.lock pyproject.toml .ci/setup
	PYTHON="$(PYTHON)" .ci/setup

# Only tests need it; the demo and the checks do not.
.venv/.browser: .venv/.ready .ci/browser
	.ci/browser

# Each worker imports all tests. What is compiled before is not compiled once more by each of them.
.venv/.compiled: .venv/.ready
	@find tests -name 'test_*.py' | sort | xargs -n 150 -P $(CORES) \
	  $(BIN)/python -m pytest --collect-only -qq -p no:xdist >/dev/null 2>&1 || true
	@touch $@

# A server with the API of S3, for the tests that wait for processes.
.s3/.ready: .venv/.ready .ci/s3 .ci/s3.lock
	.ci/s3

# Without linters, type checkers and browsers, unless they are there already.
.venv/.demo: requirements.lock pyproject.toml .ci/setup
	PYTHON="$(PYTHON)" .ci/setup demo

# Ctrl-C is how it ends: that is no error of make. The shell gets it, too, and waits for the demo.
demo: .venv/.demo ## everything over a simulated cluster; Ctrl-C ends it
	@trap : INT; $(BIN)/joulie demo || test $$? -eq 130

quick: .venv/.compiled ## the tests that wait for no process, in about a minute
	$(TESTS) -q -m "$(SHORT) and not slow" --hypothesis-profile=quick

test: .venv/.compiled .s3/.ready ## all tests that this machine can run, but the long ones
	$(TESTS) $(SLOWEST) -m "$(SHORT)"

long: .venv/.browser .venv/.compiled .s3/.ready ## the tests that compute or wait for long, which CI runs beside `make test`
	$(TESTS) $(SLOWEST) -m "long and not drill and not postgres" --timeout 300

postgres: .venv/.compiled .s3/.ready ## the tests that run on two databases, on PostgreSQL
	$(TESTS) $(SLOWEST) -m "postgres and not drill" --timeout 300

# The seed is printed; SEED=... repeats an order.
shuffled: .venv/.browser .venv/.compiled .s3/.ready ## all tests in a random order
	$(TESTS) --random-order $(if $(SEED),--random-order-seed=$(SEED))

pythons: ## `make quick` with each supported Python that this machine has
	.ci/pythons

check: lint typecheck imports deadcode ## what CI runs beside the tests; -j runs it beside each other

format: setup ## format the code, and repair what the linter can repair
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .
	$(BIN)/deno fmt --quiet

lint: setup ## compare the format, and lint
	$(BIN)/ruff format --check . && $(BIN)/ruff check .
	$(BIN)/deno fmt --quiet --check && $(BIN)/deno lint --quiet

typecheck: mypy basedpyright pagecheck ## mypy and basedpyright, both strict; the page's JavaScript

mypy: setup
	$(BIN)/mypy

basedpyright: setup
	$(BIN)/basedpyright

pagecheck: setup
	$(BIN)/deno check --quiet console/joulie_console/page/*.js

imports: setup ## check which package imports which
	$(BIN)/lint-imports

deadcode: vulture deptry ## find unused code and unused dependencies

vulture: setup
	$(BIN)/vulture

deptry: setup
	$(BIN)/deptry .

docs: setup ## build the documentation as a site, into docs/_build
	$(BIN)/sphinx-build -q -W --keep-going docs docs/_build

# NAME=scheduler is one of the benchmarks; ARGS="--rounds 3" are options of it, of which
# ARGS=--help shows all; KEPT=... is the name of its file in benchmarks/results, for another run of it.
bench: setup ## measure: NAME=scheduler runs a benchmark and keeps its figures
	$(BIN)/python benchmarks/run.py $(NAME) $(if $(NAME),--keep $(or $(KEPT),$(NAME))) $(ARGS)

# BECAUSE="..." is the reason for numbers that grew; without one, only smaller numbers are kept.
costs: setup ## count anew what a pod costs, when it costs less, or more on purpose
	PYTHONHASHSEED=0 PYTHONPATH="$(shell echo $(KIT) tests/kit/cost | tr ' ' ':')" \
	  $(BIN)/python tests/kit/cost/ratchet.py $(if $(BECAUSE),--because "$(BECAUSE)")

figures: setup ## renew the figures of the pages from benchmarks/results
	$(BIN)/python docs/figures.py

mutants: setup ## changes in the code that decides, which a test has to notice; takes hours
	$(BIN)/python tests/mutants/mutate.py

KIT := tests/kit tests/kit/broker tests/kit/kube tests/kit/whole
# HOURS=8 adds so many quiet hours to each seed. BUGS=all puts each known bug into the product, and
# prints a seed of each of three blocks of 200 that notices it; BUGS="a bug" tries one.
simulate: setup ## the whole in one process, from SEED=...; SEEDS=1000 for a thousand of them
	@PYTHONPATH="$(shell echo $(KIT) | tr ' ' ':')" $(BIN)/python $(if $(BUGS),\
	  -m noticed --bugs "$(BUGS)",\
	  -m simulate --seed $(or $(SEED),1) --seeds $(or $(SEEDS),1) $(if $(HOURS),--hours $(HOURS)))

# FAULTS_FOR=60 for another time than 600 seconds, FAULTS_SEED=2 for other faults;
# STANDBYS=asynchronous for failovers of PostgreSQL that take commits back.
three: setup ## three brokers, databases and extenders, kills and cut links; needs root, PostgreSQL
	.ci/in-a-network $(BIN)/python -m pytest -m drill -s --timeout 1800 \
	  tests/cli/test_three_of_everything.py

# HISTORY=500000 for more facts before the streams get more copies.
moves: setup ## moves of log and streams while pods are placed; needs PostgreSQL
	$(BIN)/python -m pytest -m drill -s --timeout 1800 tests/cli/test_moves_under_load.py
	$(BIN)/python -m pytest -m drill -s --timeout 1800 -k more_copies \
	  tests/cli/test_three_of_everything.py

drills: .venv/.browser ## the long drills: kills, again and again
	$(BIN)/python -m pytest -m drill --timeout 1800

# VERSION=1.37.2 on the command line is another version of Kubernetes, beside the usual one.
ifeq ($(origin VERSION),command line)
KUBE_READY := .kube/bin-$(VERSION)/.ready
kube cluster cluster-two cluster-ha: export KUBERNETES := $(VERSION)
cluster cluster-two cluster-ha: export KUBE_BIN := .kube/bin-$(VERSION)
else
KUBE_READY := .kube/.ready
endif
kube: $(KUBE_READY) ## etcd, kube-apiserver, kube-scheduler, helm and kubectl for the tests; needs Go

$(KUBE_READY): .ci/kube .ci/kubernetes tests/kit/kube/kube_rules.go
	.ci/kube && touch $@

# The oldest and the newest minor versions that the tests know, beside that of `make kube`.
APISERVERS ?= 1.32.13 1.33.13
apiservers: kube ## kube-apiserver of older Kubernetes versions for tests/deploy; needs Go
	for version in $(APISERVERS); do \
	  .ci/kubernetes $$version .kube/apiservers/$$version kube-apiserver || exit 1; done

cluster: setup ## the chart on a real cluster of this machine, from its installation to its end
	.ci/cluster
	.ci/in-a-network $(BIN)/python -m pytest -m drill -s tests/kubelet/test_installation.py
	.ci/in-a-network $(BIN)/python -m pytest -m drill -s tests/kubelet/test_webhook.py
	.ci/in-a-network $(BIN)/python -m pytest -m drill -s tests/kubelet/test_caps.py
	.ci/in-a-network $(BIN)/python -m pytest -m drill -s -k three_of_everything tests/kubelet/test_values.py
	.ci/in-a-network $(BIN)/python -m pytest -m drill -s -k of_yours tests/kubelet/test_values.py

cluster-two: .venv/.browser ## the README's commands on two nodes; drains, and a kubelet that freezes
	.ci/cluster
	.ci/in-a-network $(BIN)/python -m pytest -m drill -s tests/kubelet/test_readme_commands.py
	.ci/in-a-network $(BIN)/python -m pytest -m drill -s tests/kubelet/test_two_nodes.py

cluster-ha: setup ## parts die while pods arrive on 1,000 nodes; HA_MINUTES=1 for less than 10
	.ci/cluster kwok
	.ci/in-a-network $(BIN)/python -m pytest -m drill -s tests/kubelet/test_high_availability.py
	.ci/in-a-network $(BIN)/python -m pytest -m drill -s tests/kubelet/test_pod_events.py

broker: ## build nats-server from upstream's source, compare it with the sums; needs Go
	.ci/broker

golden: setup ## record the golden log and plans anew, when scores, folds or plans change on purpose
	$(BIN)/python tests/audit/renew.py
	$(BIN)/python tests/kit/random_clusters.py

lock: setup ## pin every dependency again; no index address ends up in the file
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --all-extras --no-header \
	  --no-emit-index-url --no-emit-find-links --python-version 3.11 \
	  pyproject.toml -o requirements.lock

dist: setup ## wheel and sdist into dist/, for pip
	.ci/tag && rm -rf dist && $(BIN)/hatchling build -d dist

# URL=... is where the archive will be, HOMEPAGE=... the page of the project.
krew: dist ## kubectl joulie for krew into dist/: an archive and its manifest
	@test -n "$(URL)" -a -n "$(HOMEPAGE)" || { \
	  echo "Name where the release will be: make krew URL=https://... HOMEPAGE=https://..." >&2; \
	  exit 1; }
	$(BIN)/python deploy/krew/package.py dist $(URL) $(HOMEPAGE)

# BASE=... is another base image; IMAGE=... another name; BUILD=... more options of the tool.
# ARCH=arm64 or amd64 is the machine of the image. For another one than this, BUILD_BASE=... is a
# base of this machine, if the name BASE does not stand for both.
# The fixed time of all files makes two builds of one commit equal.
VERSION_HERE := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
IMAGE ?= joulie:$(VERSION_HERE)
BUILD_ARCH := $(patsubst aarch64,arm64,$(patsubst x86_64,amd64,$(shell uname -m)))
image: ## the image of all components, with buildah or podman
	@.ci/tag
	@tool=$$(command -v buildah || command -v podman) || { \
	  echo "An image is built with buildah or podman, and neither is here." >&2; exit 1; }; \
	$$tool build --file deploy/Containerfile --ignorefile deploy/Containerfile.dockerignore \
	  --build-arg BUILD_ARCH=$(BUILD_ARCH) $(if $(ARCH),--build-arg ARCH=$(ARCH)) \
	  $(if $(BASE),--build-arg BASE=$(BASE)) $(if $(BUILD_BASE),--build-arg BUILD_BASE=$(BUILD_BASE)) \
	  --timestamp 1704067200 $(BUILD) --tag $(IMAGE) .

# A kubelet looks for joulie:VERSION under this longer name.
NAME_IN_ARCHIVE = $(if $(findstring /,$(IMAGE)),,docker.io/library/)$(IMAGE)
ARCHIVE_OF_IMAGE = dist/joulie-$(VERSION_HERE)-image-$(or $(ARCH),$(BUILD_ARCH)).tar
image-archive: image ## the same as a file in dist/, to load into nodes without a registry
	mkdir -p dist && rm -f $(ARCHIVE_OF_IMAGE)
	$$(command -v buildah || command -v podman) push --quiet $(IMAGE) \
	  oci-archive:$(ARCHIVE_OF_IMAGE):$(NAME_IN_ARCHIVE)
	python3 deploy/release/repack.py $(ARCHIVE_OF_IMAGE)

# IMAGES=none, amd64 or arm64 instead of both; UNTAGGED=yes tries it without a tag; URL and HOMEPAGE
# add the archive of krew; SOURCE=https://... is the repository and BUILDER=... the builder in the
# provenance. The options of `make image` hold for its images.
release: export IMAGES := $(IMAGES)
release: setup ## all that is published, into dist/, from the tag of this commit
	URL="$(URL)" HOMEPAGE="$(HOMEPAGE)" SOURCE="$(SOURCE)" BUILDER="$(BUILDER)" \
	  UNTAGGED="$(UNTAGGED)" HELM="$(HELM)" .ci/release

sbom: ## what the image installs, as CycloneDX, into dist/joulie.cdx.json; asks no index
	mkdir -p dist && python3 deploy/image/sbom.py >dist/joulie.cdx.json

# 3.11 is the oldest Python, and the other one that of the default base.
wheels: setup ## check that the lock has wheels of the image for amd64 and arm64; asks the index
	for python in 3.11 3.13; do for machine in x86_64 aarch64; do \
	  $(BIN)/python deploy/image/wheels.py $$python $$machine || exit 1; done; done

presets: setup ## renew the files of the shipped presets
	PYTHONPATH=tests/kit $(BIN)/python tests/kit/shipped_presets.py

page: setup ## renew what the console's page takes from the code
	$(BIN)/python tests/kit/page_vocabulary.py

chart: setup ## renew what the chart takes from the code: version, settings, users of the broker
	$(BIN)/python deploy/chart_from_code.py

restarts: setup ## renew docs/restarts.md: what restarts when a value of the chart changes; needs helm
	PYTHONPATH=tests/kit:tests/kit/chart:tests/kit/kube:tests/kit/process $(BIN)/python tests/kit/chart/chart_restarts.py

clean: ## remove the virtual environment, and what `make kube` built
	rm -rf .venv .kube
