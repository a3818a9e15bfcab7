# `make run` and `make test` each set up .venv on a fresh machine with Python 3.11 or newer.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/ready

.PHONY: run test stress bench lint clean

run: $(READY)
	$(BIN)/noisin train

test: $(READY) lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Speed and memory against torch's own: prints ratios and bars, exits with 1 where one is missed.
bench: $(READY)
	$(BIN)/python -m benchmarks

# Kill and resume runs, and the workers of a sweep, damage records, and call the library with wrong
# arguments, many times; `make test` does so a few times. Then every command in an ASCII and in a
# Latin-1 locale, and the C kernel under sanitizers over all combinations of shapes and settings
# (about an hour).
stress: $(READY)
	NOISIN_KILLS=20 $(BIN)/python -m pytest -n 2 tests/training/test_resume.py -k killed
	NOISIN_DAMAGES=30 $(BIN)/python -m pytest -n 2 tests/cli/test_damaged_records.py
	NOISIN_SWEEP_POINTS=24 NOISIN_SWEEP_KILLS=3 $(BIN)/python -m pytest -s tests/cli/test_sweep.py -k workers_are_killed
	NOISIN_LOCALES=all $(BIN)/python -m pytest tests/cli/test_surroundings.py -k every_locale
	NOISIN_FUZZED_CALLS=6000 NOISIN_FUZZED_SEEDS=8 $(BIN)/python -m pytest -n 2 tests/calls
	NOISIN_SHAPES=product $(BIN)/python -m pytest -n 2 tests/recurrent/kernels/test_sanitized.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

clean:
	rm -rf .venv dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
