# `make demo` and `make test` work on a machine that has only Python 3.11+ and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test lint types layers browser unit clean bench bench-env gallery docs coverage fuzz soak mutants matrix audit release

demo: $(STAMP)
	$(BIN)/whence explain "it 's a charming and often affecting journey ." --model sentiment --top 5

test: lint types layers browser unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

# Chromium for the tests of pages: installed where that is allowed (root and apt); elsewhere these tests skip with a notice
browser:
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing Chromium for the tests of pages"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 \
	    || echo "NOTICE: Chromium could not be installed: tests in a browser will be skipped."; \
	else echo "NOTICE: no Chromium, and no right to install it: tests in a browser will be skipped."; fi

unit: $(STAMP)
	$(BIN)/pytest -n auto

# a look at everything in small; `python -m bench` measures (docs/speed.md)
bench: $(STAMP)
	$(BIN)/python -m bench --quick

gallery: $(STAMP)
	$(BIN)/python docs/gallery/make.py

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# the libraries that benchmarks compare with, each in an environment of its own; one that does not install is reported
bench-env: $(STAMP)
	$(BIN)/python -m bench.peers.install

# line coverage of src; the Triton kernels run on a GPU only (`python -m bench kernels` checks them)
coverage: $(STAMP)
	$(BIN)/pytest -n auto --cov=whence --cov-report=term-missing:skip-covered --cov-fail-under=92

# fuzzing of everything that is read: new random cases by hypothesis, then coverage-guided, SECONDS for each target
SECONDS ?= 60
FUZZED := text row data-jsonl data-csv data-tsv data-parquet rows-jsonl rows-csv rows-tsv rows-parquet manifest recipe mask conllu conllu-gz stored-explanation
fuzz: $(STAMP)
	WHENCE_FUZZ=10 $(BIN)/pytest -n auto tests/fuzz
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target build/atheris atheris
	for target in $(FUZZED); do \
	  PYTHONPATH=build/atheris $(BIN)/python -m bench.fuzz $$target -max_total_time=$(SECONDS) -artifact_prefix=build/$$target- || exit 1; \
	done

soak: $(STAMP)
	$(BIN)/python -m bench.soak --explains 20000

# how many changes of a line of methods/, evaluate/metrics/ and relevance/rules.py the tests notice: a seeded sample
SEED ?= 0
SAMPLE ?= 300
mutants: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target build/mutmut mutmut libcst
	PYTHONPATH=build/mutmut $(BIN)/python -m bench.mutants.make --seed $(SEED) --sample $(SAMPLE) --output build/mutants.json
	PYTHONPATH=build/mutmut $(BIN)/python -m bench.mutants.cover --output build/cover.json
	$(BIN)/python -m bench.mutants.run build/mutants.json build/cover.json --output build/mutants-report.jsonl --logs build/mutants

# the core of the suite with other versions of what whence runs on; those that do not install are said to
matrix: $(STAMP)
	$(BIN)/python -m bench.matrix

# known vulnerabilities of the development set; needs the advisory database, so a network: fails where anything was not audited
audit: $(STAMP)
	$(BIN)/python -m bench.audit

# sdist and wheel, checked and tried in empty environments, with a bill of materials. What writes that bill brings rfc3987-syntax,
# with which `import ray` takes a second more in each of Ray's seven processes: it stays out of $(VENV)
release: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --constraint constraints.txt --target build/cyclonedx cyclonedx-bom
	$(BIN)/python -m bench.release

# torch comes first and pinned: an open range would fetch gigabytes of CUDA
$(STAMP): pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .bench-env build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
