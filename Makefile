# SPDX-License-Identifier: Apache-2.0
# The commands of the project are `make verify`, `make repro` and `make test`.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

ifeq ($(strip $(HOME)),)
export HOME := $(CURDIR)/build/home
endif
export PATH := $(CURDIR)/.venv/bin:$(PATH)

PYTHON_FILES := collector common evidence execution growth leagues learner notebooks policy pool sagecc schemas scripts tests
C_FILES = $(shell git ls-files '*.c' '*.cc' '*.h')

.PHONY: help
help: ## Print what there is to make
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do printf '  make %-21s %s\n' "$$name" "$$text"; done

.PHONY: setup
setup: ## Install what is needed: apt packages (as root) and the Python environment in .venv (two minutes, 3 GB)
	@scripts/setup

.PHONY: verify
verify: ## Build the kernel, collect, let the policy play, compare with what is published (7 minutes from nothing)
	@scripts/setup --base
	@PATH="$(CURDIR)/build/base-venv/bin:$$PATH" python -m scripts.verify

.PHONY: repro
repro: setup ## Collect, train and play the league (PROFILE=smoke|small|full), then print the table (15 minutes)
	@python -m scripts.repro $(if $(PROFILE),--profile $(PROFILE))

.PHONY: full
full: setup ## Collect the paper's grid, 14,287 episodes, and its pool into datasets/full (docs/guide/collect.md; hours)
	@python -m scripts.repro --full

.PHONY: kicked
kicked: setup ## Collect all that models/sagecc-12 learned from, four times what `make repro` collects, into datasets/kicked (docs/guide/collect.md; 20 minutes)
	@python -m scripts.repro --kicked $(if $(PROFILE),--profile $(PROFILE))

.PHONY: labs
labs: setup ## Train a policy in labs, without a pool, into models/repro-labs (half an hour of one core)
	@python -m scripts.repro --labs $(if $(PROFILE),--profile $(PROFILE))

.PHONY: study
study: setup ## Run the evaluation study and figures of papers, an experiment a stage (docs/guide/study.md; hours)
	@python -m scripts.repro --study

.PHONY: kernel
kernel: setup ## Build or verify the virtual-time kernel (four minutes; later only what changed)
	@sagecc kernel

.PHONY: kernel-profile
kernel-profile: kernel ## Count again which code of the kernel is hot, after a change of the lab's modules (gcc 12; 10 minutes)
	@python -m scripts.kernel_profile

.PHONY: bpf
bpf: ## Compile the BPF scheme after a change of it (clang, llvm, libbpf-dev); the shipped objects need none of them
	@execution/stock/bpf/compile

.PHONY: wheel wheel-test
wheel: kernel ## Build dist/sagecc-*.whl and its source distribution, with the kernel inside
	@python -m scripts.wheel

.PHONY: release dataset-release
release: kernel build/release-venv/.locked ## Make a release in dist/: wheel, sdist, digests, SBOM, notes; the same bytes from one commit
	@python -m scripts.release

dataset-release: setup ## Make the data set's folder for a hub in build/dataset, of the pools that are there
	@python -m scripts.dataset_release

wheel-test: kernel ## Install a wheel into an empty environment elsewhere and use it there (EXTRAS=train,...; VERSIONS=lowest)
	@rm -rf build/dist && python -m scripts.wheel --for-test --out build/dist
	@python -m scripts.try_wheel --wheel build/dist/*.whl $(if $(EXTRAS),--extras $(EXTRAS)) $(if $(VERSIONS),--versions $(VERSIONS))

.PHONY: test
# One process more than cores: some tests wait for timers.
TEST_PROCESSES := $(shell echo $$(( $$(nproc) + 1 )))
# A test starts many processes: that each compiles all of our modules again takes a tenth of its start.
test test-fast test-full: export PYTHONDONTWRITEBYTECODE =

test: kernel build/stores-venv/.locked ## Run the tests, less those that take minutes, in a process for each core and one more
	pytest -n $(TEST_PROCESSES) -m "not slow" $(PYTEST_OPTIONS)

.PHONY: test-fast
test-fast: setup ## Run the tests that need neither the lab's kernel nor TensorFlow: a minute or two
	pytest -n $(TEST_PROCESSES) -m "not kernel and not tensorflow and not heavy and not slow"

.PHONY: test-full
# For the tests of Slurm: apt-get install --no-install-recommends slurmctld slurmd slurm-client munge
test-full: kernel build/stores-venv/.locked ## Run every test, and name the seconds of the slow ones
	pytest -n $(TEST_PROCESSES) --durations=60 --durations-min=10

.PHONY: lint
lint: setup ## Check style and types of Python and C
	ruff check $(PYTHON_FILES)
	ruff format --check $(PYTHON_FILES)
	mypy
	clang-format --dry-run -Werror $(C_FILES)

.PHONY: format
format: setup ## Lay out Python and C as `make lint` wants them
	ruff check --fix $(PYTHON_FILES)
	ruff format $(PYTHON_FILES)
	clang-format -i $(C_FILES)

BENCHMARKS := bench-compare bench-collect bench-kernel bench-kicks bench-pool bench-memory bench-profile bench-feeding bench-execution bench-learner bench-algorithms bench-gymnasium \
	bench-lockstep bench-online bench-growth bench-report bench-flows bench-scale
BEHAVIOUR := bench-jitter bench-bbr2 bench-cellular bench-examples bench-actions bench-outages
PAGES = python -m scripts.pages

.PHONY: bench bench-unseen bench-vetting bench-scores bench-starts $(BENCHMARKS) $(BEHAVIOUR)
bench: $(BENCHMARKS) $(BEHAVIOUR) bench-unseen bench-vetting bench-scores bench-starts ## Measure speed and compare behaviour (evidence/), and fill docs/measured
$(BENCHMARKS): bench-%: kernel
	python -m evidence.speed.$*
	$(PAGES)
$(BEHAVIOUR): bench-%: kernel
	python -m evidence.behaviour.$*
	$(PAGES)
bench-unseen bench-vetting bench-scores bench-starts: bench-%: kernel
	python -m evidence.leagues.$*
	$(PAGES)

.PHONY: bench-heuristics
bench-heuristics: kernel ## Play the heuristics of `sagecc bench` again, after the kernel's bytes changed (15 minutes)
	python -m scripts.bench_plays

.PHONY: bench-distance
bench-distance: kernel ## Measure searches of the full pool for the nearest transition (after `make full`; 23 GB of disk)
	python -m evidence.speed.distance
	$(PAGES)

.PHONY: bench-fidelity
bench-fidelity: kernel ## Hold the lab against this machine's own kernel, in real time (root; 40 minutes)
	python -m evidence.behaviour.fidelity
	$(PAGES)

.PHONY: bench-mahimahi
bench-mahimahi: kernel ## Hold the lab against real Mahimahi, where it is installed (not as root; two minutes)
	python -m evidence.behaviour.mahimahi
	$(PAGES)

.PHONY: bench-chain
bench-chain: ## Measure set-up, kernel and `make repro` in a fresh clone with an empty home (a quarter of an hour)
	python -m evidence.speed.chain
	$(PAGES)

.PHONY: bench-newcomer
bench-newcomer: kernel ## Measure the first commands of an analyst and of somebody who deploys (root; a minute)
	python -m evidence.speed.newcomer
	$(PAGES)

.PHONY: bench-policy-fidelity bench-attach bench-cpu
bench-policy-fidelity: kernel ## Hold a policy in the lab against itself on this machine's own kernel (root; 15 minutes)
	python -m evidence.behaviour.policy_fidelity
	$(PAGES)

bench-attach: setup ## Measure agents in charge of up to 1,000 sockets of this machine's own kernel (root; 10 minutes)
	python -m evidence.speed.attach
	$(PAGES)

bench-cpu: kernel ## Measure the CPU time of a flow, by scheme: on this machine's own kernel, and in the lab (root; 5 minutes)
	python -m evidence.speed.cpu
	$(PAGES)

.PHONY: bench-attach-soak
SOAK ?= --minutes 60 --kills 100
bench-attach-soak: setup ## Measure `sagecc attach` for long, and kill its agent again and again (root; an hour and more, in parts: SOAK=...)
	python -m evidence.speed.attach_soak $(SOAK)
	$(PAGES)

.PHONY: bench-gpu
bench-gpu: ## Measure training on this machine's first GPU (a pool in datasets/pool; 7 minutes)
	python -m evidence.speed.gpu
	$(PAGES)

.PHONY: bench-torture
bench-torture: kernel ## Kill every stage and the agent, damage every kind of input (root; 40 minutes, resumes where it was killed)
	python -m tests.torture
	$(PAGES)

.PHONY: bench-orca
bench-orca: kernel ## Let Orca's published actor play the league of `small` (SAGECC_ORCA=FOLDER of its checkpoint)
	python -m evidence.leagues.orca
	$(PAGES)

.PHONY: bench-offline
bench-offline: kernel ## Hold what a pool says of policies against how they play, after `make kicked` and `make policies`
	python -m evidence.training.offline
	$(PAGES)

.PHONY: bench-rival-leagues
bench-rival-leagues: kernel ## Play the Sage paper's other two leagues (SAGECC_ORCA=FOLDER, SAGECC_SAGE=FOLDER: with these; resumes where it was killed)
	python -m evidence.leagues.rival_leagues
	$(PAGES)

.PHONY: bench-selector
bench-selector: kernel ## Choose one of the 13 heuristics per network, and compare with an oracle and the policies (minutes; resumes where it was killed)
	python -m evidence.leagues.selector
	$(PAGES)

.PHONY: bench-rival-seeds
bench-rival-seeds: kernel ## Play the league of learned schemes with each seed of the best recipes (trains them: hours)
	python -m evidence.leagues.rival_seeds
	$(PAGES)

.PHONY: bench-testbed bench-study
bench-testbed: kernel ## Hold the study's Cubic and Orca against published points (SAGECC_ORCA=FOLDER; resumes where it was killed)
	python -m evidence.leagues.testbed
	$(PAGES)

bench-study: kernel ## Measure the whole evaluation study's time (SAGECC_ORCA=FOLDER; 40 minutes, resumes where it was killed)
	python -m evidence.speed.study
	$(PAGES)

.PHONY: bench-evaluation
bench-evaluation: kernel ## Play the evaluation study with its schemes (SAGECC_ORCA=FOLDER; an hour, resumes where it was killed)
	python -m evidence.leagues.evaluation
	$(PAGES)

.PHONY: bench-figures
bench-figures: kernel ## Play figures of the papers of Sage, Orca and Astraea (SAGECC_ORCA=FOLDER; an hour, resumes where it was killed)
	python -m evidence.leagues.figures
	$(PAGES)

.PHONY: effective-pool
effective-pool: setup ## Derive the pool that the runs `effective` learn from, after `make repro`
	sagecc pool --effective-windows true --out .cache/training/effective

.PHONY: kicked-pools
kicked-pools: kernel ## Collect kicked schemes alone, in `spread` and `small`, for the runs `offline-kicks` and `offline-small` (20 minutes)
	sagecc collect --profile spread --kicks --out .cache/training/kicked-spread/raw
	sagecc pool --raw .cache/training/kicked-spread/raw --out .cache/training/kicked-spread/pool
	sagecc collect --profile small --kicks --out .cache/training/kicked-small/raw
	sagecc pool --raw .cache/training/kicked-small/raw --out .cache/training/kicked-small/pool

KICKS_DOWN := 0.125:0.125:0.25:0.25:0.25
KICKS_rarer := --kicks 28:$(KICKS_DOWN):2
KICKS_more := --kicks 1.75:$(KICKS_DOWN):2
KICKS_down := --kicks 7:$(KICKS_DOWN)
KICKS_jittered := --jitter

.PHONY: kicks-pools
kicks-pools: $(addprefix kicks-pool-,rarer more down jittered) ## Collect schemes kicked in other ways, in `small`, for `make bench-teaching` (half an hour)
kicks-pool-%: kernel
	sagecc collect --profile small $(KICKS_$*) --out .cache/training/kicked-$*/raw
	sagecc pool --raw .cache/training/kicked-$*/raw --out .cache/training/kicked-$*/pool

QUARTER := .cache/training/kicked-quarter
.PHONY: kicked-quarter
kicked-quarter: kernel ## Collect the quarter of `make kicked` that `make repro` learns from, for the runs `sagecc-12-quarter` (5 minutes)
	sagecc collect --profile spread --kicks --share 25% --out $(QUARTER)/raw
	sagecc collect --profile spread --schemes wander --out $(QUARTER)/raw
	for set in together mates; do \
	  sagecc collect --environments $$set --schemes cubic,htcp,illinois,vegas --kicks --share 25% --out $(QUARTER)/raw && \
	  sagecc collect --environments $$set --schemes wander --out $(QUARTER)/raw || exit; \
	done
	sagecc pool --raw $(QUARTER)/raw --out $(QUARTER)/pool

.PHONY: kicked-full
kicked-full: kernel ## Collect kicked schemes and `wander` in all of the paper's grid, for the run `sagecc-12-full` (after `make kicked`; two hours)
	sagecc collect --profile full --kicks --out .cache/training/kicked-full/raw
	sagecc collect --profile full --schemes wander --out .cache/training/kicked-full/raw
	cp -alf datasets/kicked/raw/set=together datasets/kicked/raw/set=mates .cache/training/kicked-full/raw
	sagecc pool --raw .cache/training/kicked-full/raw --out .cache/training/kicked-full/pool

.PHONY: bench-trade
bench-trade: kernel ## Draw what conditions of `sagecc vet` cost in winning rate (after `make kicked`; an hour, resumes where it was killed)
	python -m evidence.leagues.trade
	$(PAGES)

.PHONY: bench-teaching
bench-teaching: kernel ## Clone pools with and without kicks, and draw what they teach (half an hour)
	python -m evidence.leagues.teaching
	$(PAGES)

.PHONY: bench-confusion
bench-confusion: kernel ## Ask critics and policies that learned from a pool in their own states (after `make kicked` and `make kicked-pools`; half an hour)
	python -m evidence.leagues.confusion
	$(PAGES)

.PHONY: policies
policies: kernel $(if $(filter-out effective%,$(ONLY)),,effective-pool) ## Train and judge what evidence/training/runs.yaml lists and is not done (ONLY=NAME: one run)
	python -m evidence.training.run $(if $(ONLY),--only $(ONLY)) && status=0 || status=$$?; \
	$(PAGES); exit $$status

.PHONY: parts
parts: kernel ## Train and judge what evidence/training/parts.yaml lists and is not done (after `make kicked`)
	python -m evidence.training.run --plan evidence/training/parts.yaml

.PHONY: cures
cures: kernel ## Train and judge what evidence/training/cures.yaml lists and is not done (after `make kicked`)
	python -m evidence.training.run --plan evidence/training/cures.yaml

.PHONY: variants
variants: kernel ## Train and judge what evidence/training/variants.yaml lists and is not done (after `make kicked`)
	python -m evidence.training.run --plan evidence/training/variants.yaml

.PHONY: carry
carry: setup ## Keep a training that has not ended in evidence/training/checkpoints, to be committed (ONLY=NAME)
	python -m evidence.training.carry $(ONLY)

.PHONY: paper-figures
paper-figures: kernel ## Make figures of the Sage paper, after `make repro` (FIGURE=fig-12: one; resumes where it was killed)
	python -m evidence.paper $(FIGURE) && status=0 || status=$$?; \
	$(PAGES); exit $$status

.PHONY: grid-league
grid-league: setup ## Rank the 13 heuristics over what `make full` collected
	sagecc league --profile full --raw datasets/full/raw --out .cache/training/full-grid
	cp .cache/training/full-grid/league.json evidence/training/full-grid.json
	$(PAGES)

.PHONY: repro-league
repro-league: ## Keep the league of `make repro` as the one that README.md shows
	cp leagues/results/league.json evidence/training/repro.json
	$(PAGES)

.PHONY: notebooks
notebooks: kernel ## Execute notebooks/ and save them with their outputs
	python -m scripts.notebooks

.PHONY: docs
docs: build/docs-venv/.locked ## Build the documents as a site with search into build/site
	@NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs build --strict --quiet

build/%-venv/.locked: requirements/%.txt
	@rm -rf $(@D) && python3 -m venv $(@D)
	@$(@D)/bin/pip --disable-pip-version-check -q install --require-hashes -r $<
	@touch $@

.PHONY: pages
pages: ## Fill README.md, docs/ and the pool's card with what was measured and what the code says
	@$(PAGES)

.PHONY: golden
golden: kernel ## Pin the bytes of golden runs, after a version was raised (common/versions.py, LAB_VERSION)
	@python -m scripts.golden
	@python -m tests.golden.runs

.PHONY: lock
lock: ## Resolve requirements/*.in into the files with hashes
	scripts/lock

.PHONY: clean
clean: ## Remove builds and caches; what was collected and trained stays
	rm -rf build .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis sagecc.egg-info
	find $(PYTHON_FILES) -name __pycache__ -type d -prune -exec rm -rf {} +
