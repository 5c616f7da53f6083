# make train: set up, run the default comparison, print its table.   make test: set up, run the tests.
# make docs: set up, build the documentation; open site/index.html.
# make bench: set up, measure, renew the tables of benchmarks/README.md; 10 minutes without peers.
#   Against others too, which are no dependencies: make bench NANOGPT=FOLDER TEXT=FILE PEER_PYTHON=... DNNLPY=...
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

PEERS := $(if $(NANOGPT),--nanogpt $(NANOGPT)) $(if $(PEER_PYTHON),--peer-python $(PEER_PYTHON))
bench: $(INSTALLED)
	for name in roofline head overhead data start sweeps growth; do $(BIN)/python -m benchmarks.$$name || exit; done
	$(BIN)/python -m benchmarks.peers $(PEERS) $(if $(DNNLPY),--dnnlpy $(DNNLPY))
	$(if $(TEXT),$(BIN)/python -m benchmarks.quality --text $(TEXT) $(PEERS))
	$(BIN)/python -m benchmarks.tables

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit("Python 3.11 to 3.13 is needed, %s is %d.%d; try: make PYTHON=python3.11" % (sys.executable, *v))'
	@echo "installing the pinned packages into .venv: 2 GB, some minutes"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv
