# `make run` and `make test` each set up .venv on a fresh machine with Python 3.11 or newer.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/ready
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
# Pip's own progress on a terminal, nothing but warnings elsewhere.
QUIETLY := $(shell test -t 2 || echo --quiet)
INSTALL := -m pip install $(QUIETLY) --disable-pip-version-check
# Tests start many processes: each would compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run quick test suite long stress trackers s3 torches frameworks bench wheel bench-wheel docs lint clean

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
	$(PYTEST) -m "not slow and not long" $(QUICK)

# All but the longest tests, with tables of all pairs in place of products (six minutes on two cores). The
# linters run beside the tests: they use one core, and the tests sleep now and then.
test: $(READY)
	$(MAKE) --jobs=2 lint suite

suite: $(READY)
	$(PYTEST) -m "not long"

# The others, which continuous integration runs as well (five minutes): tests that compile, kill or draw a lot.
long: $(READY)
	$(PYTEST) -m long

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
	.venv-wheel/bin/python $(INSTALL) -c constraints.txt \
		"$$(ls build/wheel/*.whl)[train]"
	env -u CC -u PYTHONPATH PATH=/nonexistent $(CURDIR)/.venv-wheel/bin/python -m benchmarks $(BENCH)

# What `make test` does a few times, many times (about two hours): all combinations of settings, of
# commands and locales, and of shapes and settings of the C kernel under sanitizers; runs, the
# workers of a sweep and the nodes of a Ray cluster killed and resumed; damaged records; wrong
# arguments. Then the core on each supported torch.
PRODUCTS := tests/recurrent tests/noise tests/analysis tests/regularizers tests/test_ecosystem.py \
	tests/test_compile.py tests/test_extensions.py \
	tests/cli/test_surroundings.py tests/cli/test_verify.py
stress: $(READY)
	NOISIN_PRODUCTS=all $(PYTEST) $(PRODUCTS)
	$(BIN)/python $(INSTALL) -c constraints.txt -e ".[gpu,parquet]"
	$(PYTEST) tests/data/test_parquet.py
	NOISIN_PRODUCTS=all $(PYTEST) tests/recurrent/kernels/test_triton.py tests/recurrent/kernels/test_gpu.py
	NOISIN_PRODUCTS=all $(PYTEST) tests/test_benchmarks.py tests/cli/test_sweep.py tests/training/test_distributed.py
	$(BIN)/python $(INSTALL) -c constraints.txt -e ".[ray]"
	NOISIN_PRODUCTS=all $(BIN)/python -m pytest -s tests/cli/test_ray.py
	NOISIN_KILLS=20 $(PYTEST) tests/training/test_resume.py -k killed
	NOISIN_PRODUCTS=all NOISIN_DAMAGES=30 $(PYTEST) tests/cli/test_damaged_records.py tests/cli/test_fuzz.py
	NOISIN_SWEEP_POINTS=24 NOISIN_SWEEP_KILLS=3 $(BIN)/python -m pytest -s tests/cli/test_sweep.py -k workers_are_killed
	NOISIN_PRODUCTS=all $(BIN)/python -m pytest -s tests/cli/test_cluster.py
	$(MAKE) s3
	NOISIN_FUZZED_CALLS=6000 NOISIN_FUZZED_SEEDS=8 $(PYTEST) tests/calls
	$(MAKE) trackers
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
	.venv-framework-$*/bin/python $(INSTALL) \
		-c .venv-framework-$*/constraints.txt -e . pytest pytest-xdist hypothesis scipy $(PACKAGES_$*)
	touch $@
.PRECIOUS: .venv-framework-%/ready

# MLflow and W&B (offline) as a run finds them, in an environment of their own. Aim needs older versions of
# what both use: its test is skipped here, and runs where it is installed.
trackers: $(READY)
	$(PYTHON) -m venv --clear .venv-trackers
	.venv-trackers/bin/python $(INSTALL) -c constraints.txt \
		-e ".[dev,tensorboard,mlflow,wandb]" sqlalchemy alembic
	NOISIN_TRACKERS=1 .venv-trackers/bin/python -m pytest -n 0 tests/training/test_tracking.py \
		tests/training/test_trainer.py -k "mlflow or wandb or aim or tensorboard"

# Sweeps with --out s3://... on moto's server, on loopback. s3fs, moto and their versions of botocore
# and dateutil have an environment of their own; what it lacks comes from .venv.
S3 := "moto[server]==5.2.5" "s3fs==2026.9.0" "boto3==1.43.117"
s3: .venv-s3/ready
	.venv-s3/bin/python -m pytest tests/experiments/sweep/test_s3.py
.venv-s3/ready: $(READY)
	$(PYTHON) -m venv --clear .venv-s3
	.venv-s3/bin/python $(INSTALL) $(S3)
	$(BIN)/python -c "import sysconfig as s; print('import site; site.addsitedir(%r)' % s.get_path('purelib'))" \
		> "$$(.venv-s3/bin/python -c "import sysconfig as s; print(s.get_path('purelib'))")/zz-noisin.pth"
	touch $@

# The core and the rest of PyTorch on the oldest torch that pyproject.toml accepts, the one of
# constraints.txt and the newest, with each Python of PYTHONS that is installed; or on others: make
# torches TORCH_VERSIONS=2.15.0 PYTHONS=3.13. Builds with CUDA are gigabytes: set TORCH_INDEX to an
# index of CPU builds.
OLDEST_TORCH := $(shell sed -n 's/.*"torch>=\([0-9.]*\)".*/\1.0/p' pyproject.toml)
NEWEST_TORCH := 2.15.0
TORCH_VERSIONS ?= $(OLDEST_TORCH) $(shell sed -n 's/^torch==//p' constraints.txt) $(NEWEST_TORCH)
PYTHONS ?= 3.11 3.13 3.14
TORCH_INDEX ?=
CORE := tests/recurrent tests/noise tests/likelihoods tests/test_ecosystem.py tests/test_compile.py \
	tests/test_package.py
torches: $(foreach torch,$(sort $(TORCH_VERSIONS)),$(PYTHONS:%=torch-$(torch)-python-%))
torch-%: PYTHON_OF = python$(lastword $(subst -python-, ,$*))
torch-%:
	@if $(PYTHON_OF) --version > /dev/null 2>&1; then \
		$(MAKE) .venv-torch-$*/ready && \
		.venv-torch-$*/bin/python -m pytest -n 2 --dist worksteal -m "not slow" $(CORE); \
	else echo "torch-$*: skipped, because $(PYTHON_OF) is not installed"; fi
.venv-torch-%/ready: TORCH_OF = $(firstword $(subst -python-, ,$*))
.venv-torch-%/ready: PYTHON_OF = python$(lastword $(subst -python-, ,$*))
.venv-torch-%/ready: pyproject.toml constraints.txt
	$(PYTHON_OF) -m venv .venv-torch-$*
	grep -v -e '^torch==' -e '^triton==' constraints.txt > .venv-torch-$*/constraints.txt
	.venv-torch-$*/bin/python $(INSTALL) --retries 1 \
		$(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "torch==$(TORCH_OF)"
	.venv-torch-$*/bin/python $(INSTALL) \
		-c .venv-torch-$*/constraints.txt -e ".[dev]"
	touch $@
.PRECIOUS: .venv-torch-%/ready

# The documentation site, with executed tutorials, into build/docs. A warning is an error.
docs: $(READY)
	$(BIN)/python $(INSTALL) -c constraints.txt -e ".[docs]"
	$(BIN)/python -m sphinx -W --keep-going -q -c docs . build/docs
	@echo "open build/docs/docs/index.html"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) -c constraints.txt -e ".[dev]"
	touch $(READY)

clean:
	rm -rf .venv .venv-* dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
