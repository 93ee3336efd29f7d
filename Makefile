# Two commands do everything on a bare Debian or Ubuntu with Python 3.11 or newer: `make run`, `make test`.
# Each is safe to repeat and works as root. CONTRIBUTING.md names the others.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PORT   ?= 8501

.PHONY: run test test-all check format gpu-test setup setup-dev browser clean

run: setup
	$(BIN)/mkevolve app --port $(PORT)

test: setup-dev browser
	$(BIN)/python -m pytest -m "not slow and not gpu and not browser" -q -n 2 --dist loadscope
	$(BIN)/python -m pytest -m "browser and not slow" -q

test-all: setup-dev browser
	$(BIN)/python -m pytest -m "not gpu and not browser" -q -n 2 --dist loadscope
	$(BIN)/python -m pytest -m browser -q

gpu-test:
	$(PYTHON) -m pytest -m gpu -q -o filterwarnings=default

check: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(VENV)/.installed
setup-dev: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml constraints.txt scripts/setup.sh
	PYTHON=$(PYTHON) scripts/setup.sh $(VENV)
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	PYTHON=$(PYTHON) scripts/setup.sh $(VENV) dev
	touch $@

browser:
	scripts/browser.sh

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
