# Every target works as the first command on a fresh machine: the environment is made when it is missing.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
EXTRAS ?= dev

.PHONY: install demo test test-all fuzz profile ratios loading check packages lowest extras pythons environments pictures docs news clean
.DEFAULT_GOAL := install

install: $(VENV)/.installed

$(VENV)/.installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	touch $@

# Trains ResNet-18 under the profiler on all GPUs, or on two CPU ranks, and reports where the time went.
demo: install
	$(BIN)/tracer record -o traces/demo --force

# The first tier of tests, which every change pays; with MOST_CPU_S=440 it fails where it took more CPU seconds.
PYTEST = $(BIN)/python -m pytest -q -n auto --dist loadfile --cpu
test: install
	$(BIN)/python -m tests.support.cpu_seconds $(PYTEST)

# All tests: the first tier, and then the rest, with the runs in ../shared, where there are some.
test-all: test
	$(PYTEST) --tier rest

# Damaged files of each kind, CASES of each, from a new seed unless SEED is given; each failure with what makes it again.
CASES ?= 20000
fuzz: install
	$(BIN)/python -m benchmarks.fuzzing --cases $(CASES) $(if $(SEED),--seed $(SEED))

# Where the time of one report goes, phase by phase; of RUN, or of a trace of 100 MB that is made for it.
profile: install
	$(BIN)/python benchmarks/report_profile.py $(RUN)

# What a change did to the cost of each phase of a report, to a file of 402 MB and to 64 ranks: the tree against a commit
# before it, as ratios. ROUNDS=1 takes a seventh of its hour and says less.
AGAINST ?= HEAD~1
ROUNDS ?= 7
ratios: install
	$(BIN)/python benchmarks/ratios.py --against $(AGAINST) --rounds $(ROUNDS) --file-mb 402 --ranks 64

# What reading costs against other readers, by one process and by two, and how it grows with the file; in an environment
# of its own, for HTA 0.5.0.
loading:
	$(MAKE) install VENV=build/benchmarks EXTRAS=benchmarks
	build/benchmarks/bin/python benchmarks/loading.py --mb 25,100,400,800

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The wheel and the source distribution, each installed where there is nothing else, a report made with it, and its types
# seen by somebody else's mypy.
TYPED = import analyzers; reveal_type(analyzers.load('run'))
LOADED = Revealed type is "analyzers.run.loading.Run"
packages: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build --quiet --outdir build/dist .
	for kind in whl tar.gz; do \
	    rm -rf build/$$kind && $(PYTHON) -m venv build/$$kind && \
	    build/$$kind/bin/python -m pip install --quiet --disable-pip-version-check build/dist/*.$$kind && \
	    (cd build && $$kind/bin/tracer report ../traces/resnet18-ddp4 --html $$kind.html --force --no-cache > /dev/null) && \
	    (cd build && ../$(BIN)/mypy --config-file= --python-executable $$kind/bin/python -c "$(TYPED)" | grep '$(LOADED)') || exit 1; \
	done

# The least versions that setup.cfg allows, on the oldest Python, and what needs neither torch nor an extra.
OLDEST ?= python3.11
lowest:
	rm -rf build/lowest && $(OLDEST) -m venv build/lowest
	$(OLDEST) -m tests.support.lowest > build/lowest.txt
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check . pytest hypothesis --constraint build/lowest.txt
	build/lowest/bin/python -m pytest -q -p no:cacheprovider --tier all tests/run tests/comparison tests/test_packages.py

# Each extra alone, with the least versions of what it names: it is imported, and does its job.
TRIED = record perfetto tensorboard parquet hta mcp browser cluster remote offline isal
extras:
	for extra in $(TRIED); do \
	    rm -rf build/extra && $(OLDEST) -m venv build/extra && \
	    $(OLDEST) -m tests.support.lowest $$extra > build/extra.txt && \
	    build/extra/bin/python -m pip install --quiet --disable-pip-version-check ".[$$extra]" --constraint build/extra.txt && \
	    (cd build && PYTHONPATH=.. extra/bin/python -m tests.support.lowest $$extra --try) && \
	    echo "$$extra: $$(tr '\n' ' ' < build/extra.txt)" || exit 1; \
	done

# Reading and reporting on every Python that setup.cfg allows and that is here, the same bytes on each.
PYTHONS = 3.11 3.12 3.13 3.14
pythons:
	mkdir -p build && rm -f build/report-*.json
	for version in $(PYTHONS); do \
	    if ! python$$version -c 'import venv, ensurepip' 2> /dev/null; then echo "Python $$version is not here"; continue; fi; \
	    rm -rf build/python && python$$version -m venv build/python && \
	    build/python/bin/python -m pip install --quiet --disable-pip-version-check . && \
	    build/python/bin/tracer report traces/resnet18-ddp4 --json --no-cache > build/report-$$version.json && \
	    for other in build/report-*.json; do cmp $$other build/report-$$version.json || exit 1; done && \
	    echo "Python $$version reads and reports" || exit 1; \
	done

# The table of environments in docs/installing.md: each with its torch and old numpy, pandas and protobuf, recorded in;
# TORCH=2.8.0 makes one row anew.
environments:
	$(OLDEST) -m tests.support.environments $(TORCH)

# The pictures in the README, drawn anew from a sample run.
pictures: install
	for kind in breakdown timeline bandwidth; do \
	    $(BIN)/tracer plot traces/resnet50-ddp4-bf16 --kind $$kind -o docs/$$kind.png --force || exit 1; \
	done

# Options of commands into the pages of docs/commands, frames, keys, and what examples print; tests compare them.
docs: install
	$(BIN)/python -m tests.support.docs

# What users notice of this version: the files of docs/news into CHANGELOG.md, instead of them.
news: install
	$(BIN)/towncrier build --yes --version "$$($(BIN)/python -c 'from tracer.version import VERSION; print(VERSION)')"

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
