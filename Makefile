# `make help` lists the targets. Works with GNU make 3.81 (macOS) and newer; no target that runs something is a file.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

# The first Python that is new enough: on Ubuntu 22.04, which many machines with GPUs have, python3 is 3.10, and newer
# ones may be installed next to it.
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for each in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$each $(NEW_ENOUGH) 2>/dev/null && echo $$each && exit; done; echo python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
RUN ?= latest
READY := $(VENV)/.ready $(BIN)/muster
READY_DEV := $(VENV)/.ready-dev $(BIN)/muster
# Passed through the environment, so that quotes in ARGS reach muster unchanged.
export HOSTS WORKERS BACKEND SCRIPT FOLDER RESUME ARGS JSON TORCH_INDEX RUN SEED COUNT IN
# Some machines set this to keep Python from writing compiled files. Tests start Python hundreds of times and need them.
unexport PYTHONDONTWRITEBYTECODE
# If the user has set PIP_USER, pip refuses to install into a virtual environment. With CDPATH, cd prints its folder.
export PIP_USER := 0
unexport CDPATH

ifeq ($(origin GROUND),command line)
$(error GROUND=$(GROUND) is called BACKEND=$(GROUND) now)
endif

# The variables that each target takes from the command line. make itself would silently ignore all others.
TAKES_up := WORKERS BACKEND SCRIPT FOLDER RESUME ARGS JSON
TAKES_preflight := HOSTS WORKERS BACKEND JSON
TAKES_runs := JSON
TAKES_report := RUN
TAKES_image := TARGET CPU_BASE GPU_BASE PIP_FIND_LINKS SSL_CERT_FILE UV_DEFAULT_INDEX
TAKES_test := WIDE_RACK
TAKES_test-all := WIDE_RACK IN
TAKES_fuzz := SECONDS SEED COUNT
TAKES_map := IN
TAKES_gpu-check := ARGS
TAKES_rack := RACK NODES STORE JUMP DEBIAN CLOSED_TO
TAKES_rack-down := RACK ALL
$(foreach target,help docs reference dist pins down quick quick-tests lint check bench bench-hosts bench-preflight clean,$(eval TAKES_$(target) :=))
GOALS := $(or $(MAKECMDGOALS),help)
TAKEN := $(foreach goal,$(GOALS),$(TAKES_$(goal)))
GIVEN := $(foreach name,$(.VARIABLES),$(if $(findstring command line,$(origin $(name))),$(name)))
UNKNOWN := $(filter-out PYTHON VENV TORCH_INDEX MUSTER_% $(TAKEN),$(GIVEN))
# For an unknown target, leave the error to make.
ifeq ($(foreach goal,$(GOALS),$(filter undefined,$(origin TAKES_$(goal)))),)
ifneq ($(UNKNOWN),)
$(error make $(GOALS): $(UNKNOWN): not known there. Hint: it takes $(or $(strip $(TAKEN)),nothing)$(if $(filter HOSTS,$(UNKNOWN)),; on hosts: $(BIN)/muster deploy --hosts $(HOSTS) train.py))
endif
endif

UP_OPTIONS = $${WORKERS:+"--workers=$$WORKERS"} $${BACKEND:+"--backend=$$BACKEND"} \
	$${SCRIPT:+"--script=$$SCRIPT"} $${FOLDER:+"--folder=$$FOLDER"} $${RESUME:+"--resume=$$RESUME"} $${ARGS:+"--args=$$ARGS"} $${JSON:+--json}

.PHONY: help docs map reference dist pins up preflight down runs report image test test-all quick quick-tests lint fuzz check gpu-check bench bench-hosts bench-preflight clean rack rack-down

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo '  make up    WORKERS=2   BACKEND=auto|docker|processes   RESUME=latest|PATH   JSON=1'
	@echo '             ARGS="--recipe text --steps 100"   SCRIPT="train.py --epochs 2" FOLDER=~/project (yours)'
	@echo '  make preflight          for `make up`, with its WORKERS and BACKEND; HOSTS=a,b: for muster deploy there'
	@echo '  make rack  NODES=3     STORE=classic|containerd|mixed         JUMP=1 (the last host only through the first)'
	@echo '             DEBIAN=trixie|forky (their Docker: 26.1 or 28.5)'
	@echo '  Where a command fails, make ends with 2; the code of the command is in the last line: `Error 75`'
	@echo '  TORCH_INDEX=URL   an extra package index with builds of torch, for the first install (without it, uv finds the build)'

up: $(READY) ## train on this machine: master and workers, in containers or without
	@$(BIN)/muster up $(UP_OPTIONS)

preflight: $(READY) ## would training start here, or on HOSTS=a,b? if not: the cause, and its fix
	@if [ -n "$$HOSTS" ]; then $(BIN)/muster preflight "--hosts=$$HOSTS" $${JSON:+--json}; \
		else $(BIN)/muster preflight "--backend=$${BACKEND:-auto}" $${WORKERS:+"--workers=$$WORKERS"} $${JSON:+--json}; fi

down: $(READY) ## stop every run of this checkout and clean up
	@$(BIN)/muster down

runs: $(READY) ## list the runs
	@$(BIN)/muster runs $${JSON:+--json}

report: $(READY) ## build the page of RUN=latest again
	@$(BIN)/muster report "--run=$$RUN"

image: ## build the image for local containers
	@images/build.sh

# Three processes keep two cores busy. With four cores or more, a fourth process lets the third rack start without a
# wait.
AT_ONCE := $(shell test "$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" -ge 4 && echo 4 || echo 3)
SIDE_BY_SIDE := -n $(AT_ONCE) --dist loadscope --no-loadscope-reorder

# Of the long tests, `make test` runs those in tests/tiers.py. The laboratory measures delays, so its tests run alone.
test: $(READY_DEV) ## the same tests each day, in about half an hour; what was skipped, failed once, and left to test-all
	@$(BIN)/python -m tests.once_more $(SIDE_BY_SIDE) --daily --ignore tests/lab tests
	@$(BIN)/python -m tests.once_more tests/lab

test-all: $(READY_DEV) ## all tests, in an hour and more; IN=tests/cluster: those of a folder or file
	@if [ -n "$$IN" ]; then $(BIN)/python -m tests.once_more $(SIDE_BY_SIDE) "$$IN"; else \
		$(BIN)/python -m tests.once_more $(SIDE_BY_SIDE) --ignore tests/lab tests && $(BIN)/python -m tests.once_more tests/lab; fi

fuzz: $(READY_DEV) ## answers of hosts made wrong, for SECONDS=120, against every parser of them; SEED=, COUNT= for each
	@$(BIN)/python -m tests.hostile.fuzz --seconds "$(or $(SECONDS),120)" $${SEED:+--seed "$$SEED"} \
		$${COUNT:+--count "$$COUNT"}

quick: $(READY_DEV) ## formatting, lint, types, and the short tests that need neither torch, Docker nor root
	@$(MAKE) --no-print-directory -j 2 lint quick-tests

lint:
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy

# Most of these tests' time is waiting: eight processes keep two cores busy. The longest tests come first.
# The plugin unraisableexception collects garbage five times at the end, which takes four seconds. `make test` uses it.
quick-tests:
	@$(BIN)/python -m pytest -p tests.forks --forks 8 --quick -q --tb=short -p no:unraisableexception tests/lab tests/unit

check: $(READY_DEV) ## formatting, lint, shellcheck, types, the order of the packages, the size rules
	@$(MAKE) --no-print-directory lint
	@$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin -p deploy -p trainer -p muster
	@$(BIN)/shellcheck $$(git ls-files '*.sh' '.ci/*')
	@$(BIN)/python -m pytest -q tests/unit/test_architecture.py

# Uses the Python that has the torch to be tested: nothing is installed, and no .venv is made.
gpu-check: ## what of Muster works on this machine's GPUs, with PYTHON=python3: docs/how-to/check-gpus.md
	@$(PYTHON) -m gpu_check $$ARGS

bench: $(READY_DEV) ## measure the figures of docs/evidence/benchmarks.md
	@$(BIN)/python -m benchmarks

bench-hosts: $(READY_DEV) ## measure the figures of real hosts, on racks of containers: docs/evidence/benchmarks.md
	@$(BIN)/python -m benchmarks hosts

bench-preflight: $(READY_DEV) ## measure preflight in the fault laboratory (root, 20 minutes): lab/scores/preflight-score.md
	@$(BIN)/python -m benchmarks.preflight_truth
	@$(BIN)/python -m benchmarks.preflight

rack: $(READY) ## hosts to rehearse on: containers with sshd and a Docker engine of their own
	@rack/up.sh

rack-down: ## remove the rack, all of it
	@rack/down.sh

map: ## where is it? each file of the code with what it decides and defines; IN=deploy/send: those of a folder
	@python3 tests/reference/map.py $(IN)

reference: $(READY_DEV) ## docs/reference and the tables of figures, from the code and the data
	@$(BIN)/python -m tests.reference

dist: $(READY_DEV) ## wheel, source archive and SBOM into build/dist, built twice and compared
	@$(BIN)/python -m release.dist --check

pins: $(READY_DEV) ## take the newest of everything that is pinned, and say what changed
	@$(PIP) install --require-hashes -r requirements/uv.txt
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m release.renew

docs: .venv-docs/.ready ## the site of docs/, with its links checked: build/docs/site
	@.venv-docs/bin/python docs/site.py build/docs

clean: ## remove .venv and caches (runs/ stays)
	rm -rf $(VENV) .venv-docs .mypy_cache .ruff_cache .pytest_cache build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# If a stamp is older than the lock that it was installed from, the installation runs again.
# Everything but torch is installed by hash (requirements/lock.sh). torch comes last, so that it uses the packages that
# are there already.
$(VENV)/.ready: requirements/control.txt requirements/trainer.txt requirements/torch.txt
	@test -x $(BIN)/python || $(PYTHON) $(NEW_ENOUGH) \
		|| { echo "error: $(PYTHON) is older than Python 3.11, or is not there" >&2; \
		echo "hint: apt install python3.11 python3.11-venv, or: make up PYTHON=/path/to/a/newer/python3" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "error: $(PYTHON) cannot make $(VENV)" >&2; \
		echo "hint: install your distribution's python3-venv package" >&2; exit 1; }
	@echo "installing what is locked in requirements/ into $(VENV) (half a minute, once; torch follows)" >&2
	@$(PIP) install --require-hashes -r requirements/control.txt -r requirements/trainer.txt
	@requirements/torch.sh $(BIN)/python
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready requirements/dev.txt
	@echo "installing the tools for tests and checks into $(VENV)" >&2
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

# Without torch and without Muster: a machine that only builds the site needs only Python.
.venv-docs/.ready: requirements/docs.txt
	@test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	@echo "installing the builder of the site into .venv-docs" >&2
	@.venv-docs/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/docs.txt
	@touch $@

# The command runs the code of the checkout in which it is called: several checkouts may share one .venv by a link, and
# the .venv may outlive them.
$(BIN)/muster: requirements/muster.py | $(VENV)/.ready
	@cp $< $@ && chmod +x $@
