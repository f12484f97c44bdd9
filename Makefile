# make demo: set everything up and run the main job.   make test: set everything up and pass the tests.

PYTHON ?= python3
VENV ?= .venv

.PHONY: demo test lint setup clean

demo: setup
	$(VENV)/bin/fanin demo

test: setup lint
	$(VENV)/bin/python -c 'from fanin.shell_environment import set_up; set_up()'
	$(VENV)/bin/pytest

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml system-packages.sh
	./system-packages.sh $(PYTHON)
	test -x $(VENV)/bin/pip || $(PYTHON) -m venv --clear $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .venv-p4runtime-shell build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
