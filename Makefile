# Everything is installed into .venv; that needs Python 3.11 or newer and an index for pip, and no root.
# `make PYTHON=/path/to/python` chooses the Python. Pip's own settings count, such as PIP_EXTRA_INDEX_URL for an
# index that has PyTorch without CUDA.

VENV := .venv
PY := $(VENV)/bin/python
# The name holds the checkout's place: an environment that came along in a copy would run the original's code.
STAMP := $(VENV)/installed-$(shell pwd | cksum | cut -d ' ' -f 1)

# A Python on the PATH need not run: pyenv has a shim for every version that anybody ever installed.
PYTHONS := $(if $(PYTHON),"$(PYTHON)",python3.11 python3 python3.12 python3.13 python3.14)
FIND_PYTHON := for python in $(PYTHONS); do \
    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; python=; done

# Distributions split Python up: Debian's has `venv` without `ensurepip` until python3-venv is installed.
# The Python's own pip, uv and virtualenv do without it.
MAKE_VENV = "$$python" -m venv --clear $(VENV) \
    || { "$$python" -m venv --clear --without-pip $(VENV) && "$$python" -m pip --python $(PY) install pip; } \
    || { rm -rf $(VENV) && uv venv --seed --python "$$python" $(VENV); } \
    || virtualenv --clear --python "$$python" $(VENV)

# TorchCodec, the yardstick in tests and demo, wants FFmpeg's libraries; PyAV brings them.
WITH_FFMPEG = libraries=$$($(PY) scripts/link_ffmpeg.py $(VENV)/ffmpeg) && LD_LIBRARY_PATH=$$libraries

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start Python hundreds of times: without compiled modules each start takes a quarter of a second more.
unexport PYTHONDONTWRITEBYTECODE
# Servers of tests and benchmarks listen on loopback, where a proxy of the network does not get to.
ifeq ($(no_proxy)$(NO_PROXY),)
export no_proxy := 127.0.0.1,localhost
endif

.PHONY: help demo test check fuzz chaos chaos-loader chaos-cluster race sweep bench bench-encodings gpu-check gpu-wheels gpu-ffmpeg image-check nodes-check versions clean

help:
	@echo "make demo    show what shortgop does on small videos made on the spot"
	@echo "make test    lint, check types, run the tests; \`make test TESTS=\` also those that take long, such as clusters"
	@echo "make fuzz    break files in thousands of ways and prepare them: FUZZ=\"--first 0 --cases 5000\""
	@echo "make chaos   kill what belongs to a ClipLoader and to a cluster at random moments: CHAOS=\"--seconds 600 --seed 0\""
	@echo "make race    race two processes for the root of a dataset: RACE=\"--rounds 1000 --where disk lockless s3 flaky\""
	@echo "make sweep   check every case of what the tests check some of: kills at every change, Ray and S3 together"
	@echo "make bench   measure reading against other libraries: ten minutes, with BENCH= some hours"
	@echo "make bench-encodings  measure what GOPs, presets and codecs cost: twenty minutes, with ENCODINGS=--full hours"
	@echo "make check   lint and check types only"
	@echo "make gpu-check  run the checks that need an NVIDIA GPU: at most eight minutes, see docs/gpu.md"
	@echo "make gpu-wheels  collect what a machine with a GPU and no network needs for that"
	@echo "make gpu-ffmpeg  collect the ffmpeg for it, where all that may be copied is small: see docs/gpu.md"
	@echo "make image-check  run the Dockerfile's steps without Docker, as root: IMAGE=\"--target cpu cuda\""
	@echo "make nodes-check  run the script for Slurm and ray up on three machines of namespaces, as root: NODES=\"--only 'slurm: cancelled'\""
	@echo "make versions  read datasets with the oldest and the newest libraries that shortgop installs with"
	@echo "make clean   remove the environment and everything built"

demo: $(STAMP)
	@$(WITH_FFMPEG) $(PY) scripts/demo.py

# `make bench BENCH=` takes the full sizes; the libraries that shortgop is compared with are installed only here.
BENCH := --quick

bench: $(STAMP)-bench
	@$(WITH_FFMPEG) $(PY) benchmarks/run.py $(BENCH)

# Twenty minutes on two cores; with ENCODINGS=--full it is hours.
ENCODINGS :=

bench-encodings: $(STAMP)-bench
	@$(WITH_FFMPEG) $(PY) benchmarks/encoding_study.py $(ENCODINGS)

$(STAMP)-bench: $(STAMP)
	@echo "Installing the libraries to compare with: a minute"
	@$(PY) -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[test,bench]'
	@touch $@

# Many tests wait for other processes: with more of them than cores they may take less time, and more memory. Torch has
# one thread in each, because its threads keep a core busy while they wait for each other.
TEST_PROCESSES := 4

# A process that crashes ends the run with the name of its test. pytest-xdist 3.8 would start another one and that test
# again, and then the run did not end.
XDIST := --dist loadfile --max-worker-restart=0

# `make test TESTS=` runs all tests and all their cases, also what starts clusters, kills processes or does much work,
# and tries more examples of what hypothesis makes up. TESTS=tests/readers/test_frames.py runs some, TESTS="-m long" the long ones
# alone.
TESTS := -m "not long" --hypothesis-profile short

test: check
	@echo "Running the tests on $(TEST_PROCESSES) processes: some 5 minutes on two cores, with TESTS= some 17"
	@$(WITH_FFMPEG) OMP_NUM_THREADS=1 $(PY) -m pytest -n $(TEST_PROCESSES) $(XDIST) --no-loadscope-reorder $(TESTS)

# What a file that fails is called, the run says: FUZZ="--first NUMBER --cases 1" runs it alone.
FUZZ := --first 0 --cases 5000

fuzz: $(STAMP)
	@echo "Breaking files: ten minutes and more on one core"
	@$(WITH_FFMPEG) $(PY) tests/shared/fuzzing.py $(FUZZ)

CHAOS := --seconds 600 --seed 0

chaos: chaos-loader chaos-cluster

# CHAOS="--loaders 1000" makes and drops so many loaders instead.
chaos-loader: $(STAMP)
	@echo "Killing processes of loaders: ten minutes"
	@$(WITH_FFMPEG) $(PY) tests/shared/loader_chaos.py $(CHAOS)

# CHAOS="--seconds 600 --where s3" keeps the datasets in S3, `flaky` in S3 behind a bad network; "--sources s3 flaky" the
# sources.
chaos-cluster: $(STAMP)
	@echo "Killing processes and machines of a Ray cluster: ten minutes"
	@$(WITH_FFMPEG) $(PY) tests/shared/cluster_chaos.py $(CHAOS)

RACE := --rounds 1000 --where disk lockless s3 flaky

race: $(STAMP)
	@echo "Racing for the root of a dataset: some minutes"
	@$(PY) tests/shared/root_race.py $(RACE)

# The tests that have more cases with SHORTGOP_SWEEP=1: see tests/shared/sweep.py.
SWEPT := annotate attempts autoscaler batches changed_sources cluster cluster_chaos cluster_machines collect corpus_life cut_off_machines drop dry_run edits \
    examples far_section_trouble far_sections frames fuzz gpu_placement gpu_prep gpu_sections guessed_memory hanging_looks interrupted_passes interruption killed_edits kinds_of_machines layers_of_a_life lightning loader_failures \
    long_sources long_stretches lost_head lost_roots lost_snapshots lost_tasks moving publish ray ray_entry reading_stores rollback root_race schedule_simulation shared_tables snapshot_layers source_listing \
    soft_gpu status_watch task_memory time_left training_dataset two_jobs unfit_machines unmarked_starts where writers zarr_small

sweep: $(STAMP)
	@echo "Running tests with all their cases: an hour and more"
	@$(WITH_FFMPEG) SHORTGOP_SWEEP=1 $(PY) -m pytest -o faulthandler_timeout=3600 -n 2 $(XDIST) $(SWEPT:%=tests/*/test_%.py)

# Nothing is installed for it: in a checkout without .venv it is the Python that has torch, with the wheels that
# `make gpu-wheels` collected. GPU_CHECK="--only nvdec-caps loader-device" runs some of the checks.
GPU_CHECK :=

gpu-check:
	@"$(or $(PYTHON),$(wildcard $(PY)),python3)" gpu_check/start.py $(GPU_CHECK)

# The version of the Python that has torch there.
GPU_PYTHON := 3.12
# Its processors, as `uname -m` calls them: x86_64 or aarch64, such as Grace Hopper's.
GPU_MACHINE := x86_64

gpu-wheels: $(STAMP)
	@PYTHONPATH=tests/shared:benchmarks $(PY) gpu_check/collect_wheels.py --python $(GPU_PYTHON) --machine $(GPU_MACHINE) gpu_wheels

gpu-ffmpeg: $(STAMP)
	@PYTHONPATH=tests/shared:benchmarks $(PY) gpu_check/collect_wheels.py --ffmpeg gpu_ffmpeg

# IMAGE="--target cpu --build-arg TORCH_INDEX=" takes PyTorch from where pip's own settings find it.
IMAGE := --target cpu

image-check: $(STAMP)
	@echo "Running the steps of the Dockerfile: some minutes, 5 GB of disk"
	@$(PY) scripts/image_root.py $(IMAGE)

nodes-check: $(STAMP)
	@echo "Running jobs on three machines that are namespaces of this one: a quarter of an hour"
	@$(WITH_FFMPEG) $(PY) tests/shared/nodes_check.py $(NODES)

# VERSIONS="--only newest --python /path/to/python3.13" compares one set of them.
versions: $(STAMP)
	@echo "Reading with other versions: ten minutes, 6 GB of disk, where pip brings a PyTorch with CUDA"
	@$(WITH_FFMPEG) $(PY) tests/shared/other_versions.py $(VERSIONS)

check: $(STAMP)
	@echo "Checking style and types: a few seconds, the first time up to a minute"
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy -p shortgop
	@$(PY) -m mypy tests scripts benchmarks examples gpu_check

# Without a stamp the last install never ended, so it starts afresh; with an old one it brings the environment
# up to date. The link is for mypy, see pyproject.toml.
$(STAMP): pyproject.toml constraints.txt
	@$(FIND_PYTHON); \
	test -n "$$python" || { echo "No Python 3.11 or newer that runs: tried $(PYTHONS)" >&2; exit 1; }; \
	echo "Building the environment in $(VENV) with $$python: 1 to 5 minutes, 2 GB of disk"; \
	echo "(6 GB where pip brings a PyTorch with CUDA). Only once; it says nothing meanwhile."; \
	test -f $@ || said=$$({ $(MAKE_VENV); } 2>&1) || { rm -rf $(VENV); \
	    echo "$$said"; echo "No virtual environment with pip can be made with $$python. Install one of:"; \
	    echo "  apt install python3-venv  (Debian, Ubuntu)"; \
	    echo "  uv, or virtualenv"; exit 1; } >&2
	@rm -f $@
	@$(PY) -m pip install --quiet -c constraints.txt setuptools
	@$(PY) -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[test]'
	@mkdir -p $(VENV)/typed && ln -sfn ../.. $(VENV)/typed/shortgop
	@touch $@

clean:
	rm -rf $(VENV) demo gpu_site gpu_wheels gpu_ffmpeg benchmarks/cache build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
