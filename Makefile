# Everything runs in .venv, which is made on first use and brought up to date when pyproject.toml changes.
# ARGS goes to the program: make test ARGS="-k schema", make demo ARGS="--events 10000".
# CUDA names the extra that test-gpu installs: make test-gpu CUDA=gpu12. SECONDS is how long test-long compares.
# SPARKS are further versions of PySpark: make test-sparks SPARKS=4.2.0.
.POSIX:

PYTHON = python3
BIN = .venv/bin
ARGS =
SIM_ARGS = $(ARGS)
CUDA = gpu13
SECONDS = 3600
SPARKS = 4.0.4 4.2.0 4.3.0

# Bytecode is kept even where the environment says otherwise, as in many containers: compiling all that it imports takes
# a process 3 to 5 seconds, and tests start many.
export PYTHONDONTWRITEBYTECODE =

# numba reads the variable once, when it is imported: hence a process of its own. Status 5: ARGS select no test.
SIMULATED = NUMBA_ENABLE_CUDASIM=1 $(BIN)/python -m pytest tests/sim $(SIM_ARGS)
OTHERS = tests/cli tests/differential tests/expr tests/matcher tests/routing tests/store tests/workloads tests/test_smallest.py

.PHONY: demo demo-stream test test-ci lanes test-sim test-long test-sparks test-gpu lint bench clean

demo: .venv/.run
	$(BIN)/gpumatch demo $(ARGS)

demo-stream: .venv/.run
	$(BIN)/gpumatch demo --stream $(ARGS)

# What a newcomer waits for: all but what takes long, with few examples for each property.
test: .venv/.test
	$(BIN)/gpumatch warm-up
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} $(MAKE) lanes CHOSEN="-m 'not long'"

# What takes long: for every change, after make test, which .ci/run runs with all examples.
test-ci: .venv/.test
	$(MAKE) lanes CHOSEN="-m long"

# Two lanes at once, each on a core of its own; the output of the second, simulator and others, follows. Kernels must
# be compiled, else each lane does it.
lanes:
	@log=$$(mktemp); status=0; \
	( ( $(SIMULATED) $(CHOSEN) || [ $$? -eq 5 ] ) && \
	  ( $(BIN)/python -m pytest $(OTHERS) $(CHOSEN) $(ARGS) || [ $$? -eq 5 ] ) ) > "$$log" 2>&1 & second=$$!; \
	$(BIN)/python -m pytest $(OTHERS:%=--ignore=%) $(CHOSEN) $(ARGS) || [ $$? -eq 5 ] || status=1; \
	wait $$second || status=1; cat "$$log"; rm -f "$$log"; exit $$status

# Kernels for CUDA in numba's simulation of a device; what kernels call is compiled for the CPU in the same process.
test-sim: .venv/.test
	$(SIMULATED) || [ $$? -eq 5 ]

# All repetitions of what test-ci does a tenth of; further versions of PySpark; then the same subscriptions in DuckDB,
# with another seed each time, until the time is up.
test-long: .venv/.test
	GPUMATCH_ALL=1 $(BIN)/python -m pytest tests/store tests/spark/test_killed.py tests/spark/test_kafka.py tests/spark/test_lakes.py -m long
	$(MAKE) test-sparks ARGS=
	$(BIN)/python -m tests.differential --seconds $(SECONDS) $(ARGS)

# Each in a folder that is thrown away, and that Python searches before the environment.
test-sparks: .venv/.test
	@status=0; for version in $(SPARKS); do \
	  echo "PySpark $$version"; folder=$$(mktemp -d); \
	  $(BIN)/python -m pip install --quiet --target "$$folder" "pyspark==$$version" && \
	  PYTHONPATH="$$folder" $(BIN)/python -m pytest tests/spark $(ARGS) || status=1; \
	  rm -rf "$$folder"; \
	done; exit $$status

# The same suite and more on a device.
test-gpu: .venv/.gpu
	$(BIN)/python -c 'import sys; from gpumatch.device.discovery import why_not; sys.exit(why_not() or 0)'
	$(BIN)/python -m pytest tests/gpu $(ARGS)

# mypy does not see that kernels/ and spark_plugin/ install as gpumatch.kernels and gpumatch.spark: it reads an
# installed copy. setuptools would put stale modules from build/ into that copy, hence the rm.
lint: .venv/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build
	$(BIN)/python -m pip install --quiet --no-deps --target build/tree .
	cd build/tree && ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache -p gpumatch

bench: .venv/.run
	$(BIN)/python bench/run.py $(ARGS)

clean:
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis gpumatch.egg-info

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'gpumatch needs Python 3.11 or newer as $(PYTHON); or name one: make PYTHON=/path/to/python3.11'; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

# Bytecode is made of what is imported, which is a fraction.
.venv/.test: .venv/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[test,spark]'
	@touch $@

.venv/.lint: .venv/.test
	$(BIN)/python -m pip install --quiet --editable '.[lint]'
	@touch $@

# Without the extra "test", which brings the compiler of CUDA 13.
.venv/.gpu: .venv/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[$(CUDA)]' hypothesis pandas polars pytest
	@touch $@

.venv/.run: .venv/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[spark,bench]'
	@touch $@
