# make train: set up, run the default comparison, print its table.   make test: set up, run the tests.
# make docs: set up, build the documentation; open site/index.html.
# make bench: measure, and renew the tables of benchmarks/README.md, in 20 minutes; against others as well with
#   make bench NANOGPT=FOLDER PEER_PYTHON=PYTHON TEXT=FILE; what these are: benchmarks/README.md.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: train test setup check docs bench clean
.DELETE_ON_ERROR:

train: $(INSTALLED)
	$(BIN)/python train.py -m model.tied=true,false

test: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(INSTALLED)
	@echo placeholder

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit("Python 3.11 to 3.13 is needed, %s is %d.%d; try: make PYTHON=python3.11" % (sys.executable, *v))'
	@echo "installing the pinned packages into .venv: 2 GB, some minutes"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv
