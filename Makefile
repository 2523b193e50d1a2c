# make table1   set up, run FedSLS's quick table 1, print it
# make report   set up, run all of config.yaml's study and scale, write results/report.html
# make verdicts   set up, write which claims of the papers hold: results/verdicts.html; no training
# make docs     set up, build the documentation from docs/: results/docs/index.html
# make rulegraph   draw the graph of the rules again, for the documentation; needs Graphviz
# make test     set up, run the tests that are fast: some minutes on two cores
# make test-long   set up, run the tests that are slow: whole workflows, kills, full disks
# make test-all   both, with more random cases; not those of SLURM, and of many cases each kind once
# make test-lowest   the fast tests with the lowest versions that pyproject.toml allows
# make test-slurm   as root on Debian: bring up a SLURM cluster, run the workflow there, disturb it
# make test-slurm-short   the same with one disturbance
# make bench    set up, and Flower and pfl-research beside it; time the engine against them
# make lint     set up, check style and the workflow
# make sizes    measure the memory of the models of all studies again, after an edit of a model
# make lock     pin the newest packages that pyproject.toml allows, and the lowest ones, with hashes

PYTHON ?= python3
VENV := .venv
LOWEST := .venv-lowest
PEERS := .venv-peers
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PYTHONPATH := $(CURDIR)/workflow
unexport PYTHONDONTWRITEBYTECODE

# Snakemake needs a folder for its cache: one of the project if that of the user cannot be written.
ifneq ($(shell $(PYTHON) -c 'import os; at = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"); \
	os.makedirs(f"{at}/snakemake", exist_ok=True); print(os.access(f"{at}/snakemake", os.W_OK))' 2>/dev/null),True)
export XDG_CACHE_HOME := $(CURDIR)/.snakemake/cache
endif

.PHONY: table1 report verdicts docs rulegraph test test-long test-all test-lowest test-slurm \
	test-slurm-short bench lint sizes lock clean

# Checkouts with the same SNAKEMAKE_OUTPUT_CACHE share partitions, pretraining and saliency.
SNAKEMAKE := snakemake --workflow-profile workflow/profiles/default \
	$(if $(SNAKEMAKE_OUTPUT_CACHE),--cache)

table1: $(VENV)/ready
	$(SNAKEMAKE) --cores all --config study=fedsls scale=quick -- results/table1.csv results/table1.tex

report: $(VENV)/ready
	$(SNAKEMAKE) --cores all
	$(SNAKEMAKE) --report results/report.html
	@echo "open results/report.html"

verdicts: $(VENV)/ready
	python -m fedgrid verdicts --out results/verdicts.html
	@echo "open results/verdicts.html"

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/ready
	@drawable=$$(python docs/drawable.py) && echo "$$drawable" | while read study files; do \
		$(SNAKEMAKE) --cores all --config study=$$study scale=small -- \
			$$(printf "results/studies/$$study/small/%s " $$files) </dev/null || exit 1; done
	mkdocs build --strict --quiet
	@echo "open results/docs/index.html"

rulegraph: $(VENV)/ready
	graph=$$(snakemake --rulegraph dot --config scale=paper kept=false -- \
		results/table1.csv results/figure3.csv results/claims.csv) && \
		echo "$$graph" | dot -Tsvg -o docs/reference/rulegraph.svg

# Two processes; the tests of a file share what takes long to make, and so one process.
PYTEST := pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(VENV)/ready
	$(PYTEST) --durations=10

test-long: $(VENV)/ready
	$(PYTEST) -m "slow and not slurm and not exhaustive" --durations=30

test-all: export FEDGRID_EXAMPLES := 50
test-all: test test-long

test-lowest: $(LOWEST)/ready
	. $(LOWEST)/bin/activate && $(PYTEST)

test-slurm: $(VENV)/ready
	pytest -m slurm -rs tests/slurm

test-slurm-short: $(VENV)/ready
	pytest -m "slurm and not slow" -rs tests/slurm

bench: $(VENV)/ready $(PEERS)/ready
	python -m tests.benchmarks

# The peers have their own dependencies, and use this environment's torch through a .pth file.
$(PEERS)/ready: tests/benchmarks/peers.txt | $(VENV)/ready
	python -m venv --clear $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	python -c 'import site; print(site.getsitepackages()[0])' \
		> "$$($(PEERS)/bin/python -c 'import site; print(site.getsitepackages()[0])')/project.pth"
	@touch $@

lint: $(VENV)/ready
	ruff check
	ruff format --check
	snakefmt --check Snakefile workflow/rules workflow/template/Snakefile
	lint-imports
	mypy
	snakemake --lint

# uv, itself pinned, installs the pinned packages in about half a minute, plus their download, and
# this folder as the package fedgrid, with its command. The import at the end writes bytecode, which
# halves the start time of every job.
$(VENV)/ready: envs/uv.txt envs/requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedgrid needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	python -m pip install --quiet --disable-pip-version-check --require-hashes -r envs/uv.txt
	uv pip sync --quiet --python $(VENV)/bin/python --require-hashes envs/requirements.txt
	uv pip install --quiet --python $(VENV)/bin/python --no-deps --no-build-isolation --editable .
	python -c "import snakemake.cli, torch, torchvision, pandas, sklearn.datasets, skimage"
	@touch $@

$(LOWEST)/ready: envs/lowest.txt | $(VENV)/ready
	python -m venv --clear $(LOWEST)
	uv pip sync --quiet --python $(LOWEST)/bin/python --require-hashes envs/lowest.txt
	uv pip install --quiet --python $(LOWEST)/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-annotate --no-emit-index-url

sizes: $(VENV)/ready
	python -m fedgrid.checking.model

lock: $(VENV)/ready
	python -m pip install --quiet --disable-pip-version-check --require-hashes -r envs/uv.txt
	$(COMPILE) --upgrade --group dev pyproject.toml -o envs/requirements.txt
	lowest=$$(mktemp) && $(COMPILE) --no-deps --resolution lowest-direct pyproject.toml -o $$lowest && \
		$(COMPILE) --upgrade --group dev --constraint $$lowest pyproject.toml -o envs/lowest.txt
	echo uv | $(COMPILE) --upgrade - -o envs/uv.txt

clean:
	rm -rf $(VENV) $(LOWEST) $(PEERS)
