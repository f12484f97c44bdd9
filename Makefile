# make help: this list.
# make setup: create the environment in .venv.
# make demo: set everything up and run the main job.
# make test: set everything up and pass the tests.
# make test-fast: all but live networks and what takes long.
# make test-long: in full size what make test runs in small.
# make test-torch: the tests of the PyTorch backend, with PyTorch in an environment of their own.
# make test-bmv2: the demo on BMv2, and the tests that need BMv2 or p4c (docs/reference/bmv2.md).
# make test-vm: the demo and the live tests in a virtual machine with another kernel (docs/measurements/machines.md).
# make test-arm64: the tests that need no network, translated from ARM's instructions by qemu-user.
# make test-vagrant: vagrant up, the demo, vagrant provision, vagrant destroy, with a box made here.
# make lint: style, types, imports between packages, and the prose of documents and docstrings (docs/prose.py).
# make release-check: build the distributions, check their metadata, and test the wheel made of the sdist.
# make docs: the documentation as a site, in build/site; `python3 -m http.server -d build/site` serves it, with its search.
# make clean: remove the environments and all that was built.

PYTHON ?= python3
VENV ?= .venv
KERNEL ?= 6.1
DISTRIBUTION ?= bookworm
VM ?=
# Exact versions of the Python packages, as CI installs them: LOCK=requirements.lock
LOCK ?=
# Which optional dependencies of pyproject.toml.
EXTRAS = test

# Some containers keep no bytecode: hundreds of processes would compile the same modules again.
export PYTHONDONTWRITEBYTECODE =

# Of pip's many lines the latest, in one place, on a terminal; in a log none, except its errors.
SHELL = bash
.SHELLFLAGS = -o pipefail -c
LATEST = while read -r line; do [ ! -t 1 ] || printf '\r\033[K%.70s' "$$line"; done; [ ! -t 1 ] || printf '\r\033[K'

# A process for each core, and two for tests that mostly wait: those of live networks and of jobs (tests/conftest.py).
# Some of make test-fast wait, too, for processes that they start.
# Linear algebra in one thread: those of hundreds of processes would wait for one another.
WAITING = 2
PYTEST = OPENBLAS_NUM_THREADS=1 $(VENV)/bin/pytest -n $(shell expr $$(nproc) + $(WAITING)) --dist loadgroup --no-loadscope-reorder

.PHONY: help demo test test-fast test-long test-torch test-bmv2 test-vm test-arm64 test-vagrant lint docs release-check setup clean

help:
	@sed -n 's/^# \(make [a-z0-9-]*: .*\)/\1/p' Makefile

demo: setup
	$(VENV)/bin/fanin demo

# Lint at the same time as tests, which leave a core idle at times. What it prints comes after them.
beside_lint = @report=$$(mktemp); trap 'rm -f "$$report"' EXIT; \
	outcome() { [ $$1 = 0 ] && echo passed || echo failed; }; \
	nice $(MAKE) --no-print-directory lint >"$$report" 2>&1 & linting=$$!; \
	$(1); tested=$$?; \
	wait $$linting; linted=$$?; \
	printf '\nmake lint\n'; cat "$$report"; \
	printf '\n%s\n' "lint: $$(outcome $$linted), tests: $$(outcome $$tested)"; \
	exit $$((linted | tested))

test: setup $(VENV)/bytecode
	$(VENV)/bin/python -c 'from fanin.shell_environment import set_up; set_up()'
	$(call beside_lint,$(PYTEST) --durations 20)

test-fast: setup $(VENV)/bytecode
	$(call beside_lint,$(PYTEST) -m 'not live and not slow')

test-long: setup
	FANIN_FULL_SIZE=1 $(PYTEST) -m 'long or few or hypothesis' --durations 20

test-torch:
	$(MAKE) setup VENV=$(VENV)-torch EXTRAS=test,torch,torch-test
	$(VENV)-torch/bin/pytest -m torch -rfsx

# The demo comes first: without BMv2 it lists what to install.
test-bmv2: setup
	$(VENV)/bin/fanin demo --switch bmv2
	$(PYTEST) -m 'p4c or bmv2' -rs

test-vm: setup
	vm/test-vm.sh $(DISTRIBUTION) $(KERNEL) $(abspath $(VENV))/bin/pip $(VM)

test-arm64: setup
	vm/test-arm64.sh $(abspath $(VENV))/bin/pip

test-vagrant: setup
	vm/test-vagrant.sh $(DISTRIBUTION) $(KERNEL) $(abspath $(VENV))/bin/pip

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python docs/prose.py
	$(VENV)/bin/codespell *.md $(filter-out tests/ build/ results/,$(sort $(wildcard */)))

# -W: a link that leads nowhere, or a document that no menu lists, is an error.
docs: setup
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(VENV)/bin/sphinx-build -W --keep-going -q docs build/site

release-check: setup
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[release]'
	rm -rf build/dist
	$(VENV)/bin/python -m build --outdir build/dist
	$(VENV)/bin/twine check --strict build/dist/*
	$(VENV)/bin/pytest -q tests/test_wheel.py tests/fanin/test_release.py

setup: $(VENV)/installed
	$(if $(filter setup,$(MAKECMDGOALS)),@echo "fanin is installed. Now type: . $(VENV)/bin/activate && fanin doctor")

# Bytecode of all modules and tests, made once in a new clone; otherwise each process of pytest makes all of it.
$(VENV)/bytecode: $(VENV)/installed
	@$(VENV)/bin/pytest --collect-only -qq >/dev/null 2>&1 || true
	@touch $@

$(VENV)/installed: pyproject.toml system-packages.sh $(LOCK)
	./system-packages.sh $(PYTHON)
	test -x $(VENV)/bin/pip || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing Python packages into $(VENV), which takes a minute or more"
	@$(VENV)/bin/pip install --progress-bar off --disable-pip-version-check \
		$(if $(LOCK),--constraint $(LOCK)) --editable '.[$(EXTRAS)]' | { $(LATEST); }
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-torch build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
