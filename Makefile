# `make run` and `make test` each set up .venv on a fresh machine with Python 3.11 or newer.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/ready
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
# Tests start many processes: each would compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run quick test suite stress torches frameworks bench wheel bench-wheel lint clean

run: $(READY)
	$(BIN)/noisin train

# A third of the tests: at least one for each way in which a kernel, a family of noise, a likelihood,
# the trainer or the command line can be broken (90 seconds on two cores).
QUICK := $(addprefix tests/recurrent/,test_modules.py test_gradients.py test_cells.py test_noise.py \
	kernels/test_kernels.py) tests/noise/test_families.py tests/likelihoods tests/regularizers \
	$(addprefix tests/training/,test_config.py test_trainer.py test_record.py test_averaging.py) \
	tests/models $(addprefix tests/cli/,test_train.py test_evaluate.py test_settings.py) \
	tests/paper/test_algorithm_1.py tests/test_package.py
quick: $(READY) lint
	$(PYTEST) -m "not slow" $(QUICK)

# Everything, with tables of all pairs in place of products (6 minutes on two cores). The linters run
# beside the tests: they use one core, and the tests sleep now and then.
test: $(READY)
	$(MAKE) --jobs=2 lint suite

suite: $(READY)
	$(PYTEST)

# Speed and memory against torch's own: prints ratios and bars, exits with 1 where one is missed.
bench: $(READY)
	$(BIN)/python -m benchmarks

# The wheel with the C kernel inside, for the processors that the compiler compiles for (a GCC; for
# others: make wheel CC=aarch64-linux-gnu-gcc). It gets to dist/ after a trial of the kernels that run here.
wheel: $(READY)
	rm -rf build/wheel
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(BIN)/python -m build --wheel --no-isolation --outdir build/wheel
	$(BIN)/python -m tests.wheels build/wheel/*.whl
	mkdir -p dist && cp build/wheel/*.whl dist/

# What `make bench` measures, for those who install that wheel and have no compiler; not recorded.
BENCH ?= layers sampling evaluation steps memory endurance growth
bench-wheel: wheel
	$(PYTHON) -m venv --clear .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build/wheel/*.whl
	env -u CC -u PYTHONPATH PATH=/nonexistent $(CURDIR)/.venv-wheel/bin/python -m benchmarks $(BENCH)

# What `make test` does a few times, many times (about two hours): all combinations of settings, of
# commands and locales, and of shapes and settings of the C kernel under sanitizers; runs and the
# workers of a sweep killed and resumed; damaged records; wrong arguments. Then the core on each
# supported torch.
PRODUCTS := tests/recurrent tests/noise tests/analysis tests/regularizers tests/test_ecosystem.py \
	tests/test_compile.py tests/test_extensions.py \
	tests/cli/test_surroundings.py tests/cli/test_verify.py
stress: $(READY)
	NOISIN_PRODUCTS=all $(PYTEST) $(PRODUCTS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[gpu]"
	NOISIN_PRODUCTS=all $(PYTEST) tests/recurrent/kernels/test_triton.py tests/recurrent/kernels/test_gpu.py
	NOISIN_PRODUCTS=all $(PYTEST) tests/test_benchmarks.py tests/cli/test_sweep.py tests/training/test_distributed.py
	NOISIN_KILLS=20 $(PYTEST) tests/training/test_resume.py -k killed
	NOISIN_DAMAGES=30 $(PYTEST) tests/cli/test_damaged_records.py
	NOISIN_SWEEP_POINTS=24 NOISIN_SWEEP_KILLS=3 $(BIN)/python -m pytest -s tests/cli/test_sweep.py -k workers_are_killed
	NOISIN_FUZZED_CALLS=6000 NOISIN_FUZZED_SEEDS=8 $(PYTEST) tests/calls
	$(MAKE) torches
	$(MAKE) frameworks

# Other people's models with noise, each with the newest version of its package that goes with the
# torch of constraints.txt, in an environment of its own; or some: make frameworks FRAMEWORKS=darts.
FRAMEWORKS ?= lightning pytorch_forecasting gluonts neuralforecast darts skorch huggingface
PACKAGES_lightning := lightning
PACKAGES_pytorch_forecasting := pytorch-forecasting
PACKAGES_gluonts := "gluonts[torch]"
PACKAGES_neuralforecast := neuralforecast
PACKAGES_darts := "darts[torch]"
PACKAGES_skorch := skorch
PACKAGES_huggingface := transformers accelerate
frameworks: $(addprefix framework-,$(FRAMEWORKS))
framework-%: .venv-framework-%/ready
	.venv-framework-$*/bin/python -m pytest -n 0 -W ignore tests/frameworks/test_$*.py
.venv-framework-%/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-framework-$*
	grep '^torch==' constraints.txt > .venv-framework-$*/constraints.txt
	.venv-framework-$*/bin/python -m pip install --quiet --disable-pip-version-check \
		-c .venv-framework-$*/constraints.txt -e . pytest pytest-xdist hypothesis $(PACKAGES_$*)
	touch $@
.PRECIOUS: .venv-framework-%/ready

# The core and the rest of PyTorch on the oldest torch that pyproject.toml accepts and on the one of
# constraints.txt, or on others: make torches TORCH_VERSIONS="2.13.0 2.15.0". Builds with
# CUDA are gigabytes: set TORCH_INDEX to an index of CPU builds.
OLDEST_TORCH := $(shell sed -n 's/.*"torch>=\([0-9.]*\)".*/\1.0/p' pyproject.toml)
TORCH_VERSIONS ?= $(OLDEST_TORCH) $(shell sed -n 's/^torch==//p' constraints.txt)
TORCH_INDEX ?=
CORE := tests/recurrent tests/noise tests/likelihoods tests/test_ecosystem.py tests/test_compile.py \
	tests/test_package.py
torches: $(addprefix torch-,$(sort $(TORCH_VERSIONS)))
torch-%: .venv-torch-%/ready
	.venv-torch-$*/bin/python -m pytest -n 2 --dist worksteal -m "not slow" $(CORE)
.venv-torch-%/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-torch-$*
	grep -v -e '^torch==' -e '^triton==' constraints.txt > .venv-torch-$*/constraints.txt
	.venv-torch-$*/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 \
		--no-deps $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "torch==$*"
	.venv-torch-$*/bin/python -m pip install --quiet --disable-pip-version-check \
		-c .venv-torch-$*/constraints.txt -e ".[dev]"
	touch $@
.PRECIOUS: .venv-torch-%/ready

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

clean:
	rm -rf .venv .venv-torch-* .venv-framework-* .venv-wheel dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
