# fastlock. `make` alone lists the targets.
#
# The release build lives in the tree itself. The debug, sanitizer and mutant builds live in copies of it
# under build/, so that no build ever overwrites another one's extensions.

PYTHON ?= python3
CC_SANITIZE ?= gcc
JOBS ?= auto
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 1
SEEDS ?= 1000
KILLS ?= 1000
BASE ?= 1
ARGS ?=
ONLY ?=

VENV := .venv
PY := $(VENV)/bin/python
ROOT_PY := $(CURDIR)/$(PY)
INSTALLED := $(VENV)/.installed
RELEASE := build/release.stamp

# What a compiled build depends on, and what a copy of the tree consists of.
COMPILED_FROM := setup.py $(shell find fastlock \( -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.h' \) 2>/dev/null)
# A module that Python cannot call anything in has no stub.
STUBBED_MODULES := $(subst /,.,$(patsubst %.pyi,%,$(wildcard $(patsubst %.pyx,%.pyi,$(filter %.pyx,$(COMPILED_FROM))))))
TREE := $(wildcard .ci fastlock tests bench loadtest tools docs *.md setup.py pyproject.toml LICENSE Makefile MANIFEST.in)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help build run test lint format schema fuzz bench figures sim crash mutants debug sanitize test-debug test-sanitize clean distclean

help: ## list the targets
	@echo "fastlock: make <target>"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "variables:"
	@echo "  PYTHON=$(PYTHON) (3.11 or newer)  JOBS=$(JOBS) (test processes)  ARGS= (more arguments for pytest)"
	@echo "  SEEDS=$(SEEDS)  BASE=$(BASE)  KILLS=$(KILLS)  FUZZ_SECONDS=$(FUZZ_SECONDS)  FUZZ_SEED=$(FUZZ_SEED)"

# The environment and the release build

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "fastlock needs Python 3.11 or newer, and $(PYTHON) is not. Try: make build PYTHON=python3.12" >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { \
		echo "$(PYTHON) cannot create virtual environments; on Debian: apt install python3-venv" >&2; exit 1; }
	@command -v $$($(PY) -c 'import sysconfig; print((sysconfig.get_config_var("CC") or "cc").split()[0])') >/dev/null || { \
		echo "No C compiler found; on Debian: apt install build-essential" >&2; exit 1; }
	@echo "installing fastlock and its tools into $(VENV)"
	@$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
		> $(VENV)/build-requires.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --requirement $(VENV)/build-requires.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[dev]'
	@touch $@

$(RELEASE): $(INSTALLED) $(COMPILED_FROM)
	@mkdir -p build
	@echo "building the extensions"
	@$(PY) setup.py --quiet build_ext --inplace
	@touch $@

build: $(RELEASE) ## create .venv, install everything, build the extensions in place

run: $(RELEASE) ## run a cluster of three nodes on this machine until Ctrl-C (ARGS= for fastlock up)
	@$(VENV)/bin/fastlock up $(ARGS)

test: $(RELEASE) ## run every test that decides
	$(PY) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

lint: $(RELEASE) ## ruff, cython-lint, mypy, and stubtest on the compiled modules
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/cython-lint --no-pycodestyle --max-line-length=120 fastlock
	$(PY) -m mypy
	$(PY) -m mypy.stubtest --concise --mypy-config-file pyproject.toml --allowlist tools/stubtest-allowlist.txt \
		--ignore-unused-allowlist --ignore-disjoint-bases $(STUBBED_MODULES)

schema: $(INSTALLED) ## rewrite the field offsets after a change of fastlock/schema/
	$(PY) tools/generate_layout.py

format: $(INSTALLED) ## let ruff rewrite what it can
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(RELEASE) ## run the benchmarks in bench/ and print their figures
	@cd bench && $(ROOT_PY) setup.py --quiet build_ext --inplace
	$(PY) -m pytest bench --benchmark-only --benchmark-disable-gc $(ARGS)

figures: $(INSTALLED) ## put the figures of the last make bench into the README
	$(PY) tools/readme_figures.py

sim: $(RELEASE) ## run the simulator over SEEDS seeds, from BASE on
	$(PY) -m fastlock.testing.simulate --seeds $(SEEDS) --base $(BASE)

crash: $(RELEASE) ## kill -9 nodes of a real cluster KILLS times under load, and judge what its clients saw
	$(PY) -m tests.cluster.crash --kills $(KILLS)

# Other builds, each in its own copy of the tree

# tar keeps modification times, so an unchanged source is not compiled again. Sources that left the
# tree leave the copy too; what was compiled there stays.
define copy_tree
	@mkdir -p $(1)
	@find $(1) -mindepth 1 -type f ! -name '*.so' ! -name '*.c' ! -name '*.o' ! -name '*.stamp' -delete
	@tar --exclude='*.so' --exclude='fastlock/*.c' --exclude='bench/*.c' --exclude=__pycache__ -cf - $(TREE) | tar -xf - -C $(1)
endef

debug: $(INSTALLED) ## build with expensive invariants asserted and line tracing, in build/debug
	$(call copy_tree,build/debug)
	@echo "building the extensions with FASTLOCK_DEBUG=1"
	@cd build/debug && FASTLOCK_DEBUG=1 $(ROOT_PY) setup.py --quiet build_ext --inplace

sanitize: $(INSTALLED) ## build with AddressSanitizer and UBSan, in build/sanitize
	@case "$$($(CC_SANITIZE) -print-file-name=libasan.so)" in /*) ;; *) \
		echo "$(CC_SANITIZE) has no libasan; on Debian: apt install libgcc-12-dev (the version of your gcc)" >&2; exit 1;; esac
	$(call copy_tree,build/sanitize)
	@echo "building the extensions with FASTLOCK_SANITIZE=1"
	@cd build/sanitize && CC=$(CC_SANITIZE) FASTLOCK_SANITIZE=1 $(ROOT_PY) setup.py --quiet build_ext --inplace

# Nothing of a planted bug exists outside this copy.
mutants: SEEDS = 2000
mutants: BASE = 1 100000 700000
mutants: $(INSTALLED) ## plant every known bug, one at a time, and see that the simulator finds it (ONLY=name)
	$(call copy_tree,build/mutants)
	@$(PY) -m fastlock.testing.mutants.plant build/mutants
	@echo "building the extensions with all planted bugs, each switched off"
	@cd build/mutants && $(ROOT_PY) setup.py --quiet build_ext --inplace
	cd build/mutants && $(ROOT_PY) -m fastlock.testing.mutants.hunt \
		--seeds $(SEEDS) --base $(BASE) --jobs $(JOBS) --only $(ONLY)

test-debug: debug ## run the tests on the debug build
	cd build/debug && $(ROOT_PY) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

# libasan comes first in the process, then libstdc++, because pycapnp throws C++ exceptions that
# AddressSanitizer has to see. With PYTHONMALLOC=malloc every bytes object has its own red zones. A small
# quarantine keeps the fuzzers' own memory checks meaningful.
SANITIZED = cd build/sanitize && \
	LD_PRELOAD="$$($(CC_SANITIZE) -print-file-name=libasan.so) $$($(CC_SANITIZE) -print-file-name=libstdc++.so.6)" \
	ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:quarantine_size_mb=16 \
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 PYTHONMALLOC=malloc

test-sanitize: sanitize ## run the tests on the sanitizer build
	$(SANITIZED) $(ROOT_PY) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

fuzz: sanitize ## run the fuzzers for FUZZ_SECONDS each on the sanitizer build
	$(SANITIZED) FASTLOCK_FUZZ_SECONDS=$(FUZZ_SECONDS) FASTLOCK_FUZZ_SEED=$(FUZZ_SEED) \
		$(ROOT_PY) -m pytest -s -m fuzz --timeout=0 $(ARGS)

clean: ## remove everything built, keep .venv
	rm -rf build dist fastlock.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find fastlock bench -type f \( -name '*.so' -o -name '*.c' -o -name '*.html' \) -delete
	find . -name .venv -prune -o -type d -name __pycache__ -print | xargs rm -rf

distclean: clean ## remove .venv as well
	rm -rf $(VENV)
