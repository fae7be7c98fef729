# Build, test and demonstrate avo_ops. A fresh machine needs Linux on x86-64, Python >= 3.11, g++ >= 11 and a package
# index for pip; everything else goes into .venv.
#
#     make demo       semantic search with a real sentence model, before and after the replacement of its modules
#     make test       build, lint, every test; one is that the generated sources are fresh
#     make build      the libraries and CUDA kernels, in the source tree; rebuilds what changed
#     make bench      times beside torch and, on a GPU, beside every kernel package that is installed; tables and pictures
#
# On a machine whose Python already has torch (a GPU box, perhaps without a package index), use that one and install
# nothing. ninja and pytest are needed; missing linters and plugins of pytest are done without:
#
#     make test VENV=none PYTHON=/path/to/python3
#
# Variables: PYTHON, VENV, PIP_FLAGS (such as an --extra-index-url with CPU builds of torch), PYTEST_FLAGS, WORKERS,
# MAX_JOBS, AVO_OPS_ARCHS ("sm_90,sm_100", "release" or "none"; default: the GPUs present, or sm_90), AVO_OPS_VARIANTS ("all":
# kernels of rare dtypes and cases too, which are else compiled when first called); BENCH (a folder), BENCH_SECONDS,
# BENCH_FLAGS (of python -m benchmarks run); COVERAGE (1: of generator/ and registry/, which takes a fifth longer);
# AVO_OPS_EMULATOR ("all": every norm's kernels in the emulator, not one's).

SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
PIP_FLAGS ?=
PYTEST_FLAGS ?=
# Two workers fill two cores; more of them compete with the threads of torch.
WORKERS ?= $(shell n=$$(nproc); echo $$((n > 4 ? 4 : n)))

ifeq ($(VENV),none)
PY := $(PYTHON)
TOOLS :=
DEMO_TOOLS :=
CLANG_FORMAT := $(shell command -v clang-format)
have = $(shell $(PYTHON) -c "import importlib.util as u; print(*[n for n in '$(1)'.split() if u.find_spec(n)])")
else
PY := $(VENV)/bin/python
TOOLS := $(VENV)/.tools
DEMO_TOOLS := $(VENV)/.demo
CLANG_FORMAT := $(VENV)/bin/clang-format
have = $(1)
endif

BENCH ?= build/bench
BENCH_SECONDS ?= 540
# All of it takes ten minutes of a GPU, and an hour of two CPU cores: there, a part.
BENCH_FLAGS ?= $(shell $(PY) -c "import torch; print('' if torch.cuda.is_available() else \
  '--shapes 1x4096,64x768,2048x1024 --implementations avo,eager')")

LINTED := avo_ops tests tools examples benchmarks setup.py
PIP := $(PY) -m pip install --disable-pip-version-check -q $(PIP_FLAGS)
# Named empty: avo_ops then registers no operator, for it may be this command that makes them.
GENERATE := AVO_OPS_GENERATED= $(PY) -m avo_ops generate

.PHONY: build bench demo test check lint generate check-generated clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

build: $(TOOLS)
	$(PY) setup.py -q build_ext --inplace

demo: build $(DEMO_TOOLS)
	PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" $(PY) examples/semantic_search.py

test: build lint check

check: build $(DEMO_TOOLS)
	AVO_OPS_CACHE="$${AVO_OPS_CACHE:-$(CURDIR)/build/cache}" $(PY) -m pytest $(PYTEST_PLUGINS) $(PYTEST_FLAGS)

PYTEST_PLUGINS = $(if $(call have,xdist),-n $(WORKERS) --dist loadgroup) \
  $(if $(COVERAGE),$(if $(call have,pytest_cov),--cov --cov-report=term))

bench: build
	$(PY) -m benchmarks run --out $(BENCH)/results.jsonl --seconds $(BENCH_SECONDS) $(BENCH_FLAGS)
	$(PY) -m benchmarks report $(BENCH)/results.jsonl --out $(BENCH)
	@echo "$$BENCH_HELP"

define BENCH_HELP

Given again, this goes on where it stopped: what $(BENCH)/results.jsonl has is not measured again. BENCH=folder begins anew.
  BENCH_FLAGS="--ops layer_norm --dtypes float32"    a part; $(PY) -m benchmarks run --help lists the flags
  pip install liger-kernel quack-kernels matplotlib  more peers on a GPU, and the pictures of the report
  $(PY) -m benchmarks compare BEFORE AFTER  regressions beyond the spread between two results.jsonl
  $(PY) -m benchmarks calls | accuracy      CPU time of small calls; errors against float64
  $(PY) -m benchmarks tune --help           the search behind the schedules
endef
export BENCH_HELP

lint: $(TOOLS)
ifneq ($(call have,ruff),)
	$(PY) -m ruff check $(wildcard $(LINTED))
	$(PY) -m ruff format --check $(wildcard $(LINTED))
endif
ifneq ($(call have,mypy),)
	$(PY) -m mypy
endif
ifneq ($(CLANG_FORMAT),)
	$(CLANG_FORMAT) --dry-run -Werror $(wildcard avo_ops/csrc/*/*)
endif

generate: $(TOOLS)
	$(GENERATE) --out generated

check-generated: $(TOOLS)
	$(GENERATE) --check --out generated

clean:
	rm -rf build dist *.egg-info avo_ops/lib avo_ops/_generated generated/kernels .coverage .coverage.*

ifneq ($(VENV),none)
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("avo_ops needs Python 3.11 or later" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(TOOLS): requirements-dev.txt | $(VENV)/bin/python
	$(PIP) -r requirements-dev.txt
	touch $@

# Together with the tools' pins, so that the model's packages take the torch that is there.
$(DEMO_TOOLS): examples/requirements.txt $(TOOLS)
	$(PIP) -r requirements-dev.txt -r examples/requirements.txt
	touch $@
endif
