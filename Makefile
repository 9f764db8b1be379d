# make reproduce   Table 3 at smoke scale, from nothing
# make mini        scale mini from a directory of books, on GPUs
# make test        what CI runs
# make help        the rest
PYTHON ?= python3
VENV ?= .venv
STORE ?= store
OUT ?= results
WORKERS ?= 2
BIN = $(VENV)/bin
# A file's tests stay together; --no-loadscope-reorder keeps the order of tests/conftest.py, long work first.
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
STAMP = $(VENV)/.installed
export DO_NOT_TRACK = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help install reproduce mini rehearse books-given test test-all test-faults slurm mutate benchmarks check types format clean

help:
	@echo "make reproduce  Table 3 at smoke scale (CPU, offline after installation) into $(OUT)/"
	@echo "make mini       scale mini on GPUs, BOOKS=DIR (docs/mini.md), into $(OUT)/mini/"
	@echo "make rehearse   scale paper's whole way on one GPU with random weights, three steps, one sample a task, BOOKS=DIR"
	@echo "make install    virtual environment $(VENV) with the pinned versions"
	@echo "make test       tests as CI runs them"
	@echo "make test-all   the longer ones too, with a Slurm of two nodes on this machine"
	@echo "make test-faults  the fault laboratory: kills, damage, races, want, garbage, poison, safety, determinism; its table"
	@echo "make benchmarks the published figures on one GPU, in pieces of ten minutes, BOOKS=DIR MMLU=DIR, and their table"
	@echo "make mutate     changes the weighting room one place at a time; tests must notice (some eight minutes)"
	@echo "make check      ruff and mypy"
	@echo "make clean      remove the virtual environment and caches (never $(STORE) or $(OUT))"

install: $(STAMP)

# Where $(PYTHON) already has torch (GPU images), that torch is kept; else the pinned build comes first.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed; make PYTHON=... install") if sys.version_info < (3, 11) else None'
	@if $(PYTHON) -c 'import torch' 2>/dev/null; then \
		echo "Using the torch that $(PYTHON) provides."; \
		$(PYTHON) -m venv --system-site-packages $(VENV) && \
		$(PYTHON) -c 'import torch; print("torch==" + torch.__version__)' > $(VENV)/constraints.txt && \
		grep -v '^torch==' constraints.txt >> $(VENV)/constraints.txt; \
	else \
		$(PYTHON) -m venv $(VENV) && cp constraints.txt $(VENV)/constraints.txt && \
		$(BIN)/python -m pip install --quiet $$(grep '^torch==' constraints.txt); \
	fi
	$(BIN)/python -m pip install --quiet --constraint $(VENV)/constraints.txt --editable '.[flows,data,dev]'
	@touch $@

reproduce: $(STAMP)
	$(BIN)/tokenweight reproduce table-3 --scale smoke --store $(STORE) --out $(OUT)
	@echo "Table 3: $(abspath $(OUT))/smoke/table-3.md"

# Scale mini's study: whole seeds, one after the other; what is in the store is not made again (docs/mini.md).
GPUS ?= 1
SEEDS ?= 3
mini: books-given $(STAMP)
	$(BIN)/tokenweight reproduce reports/results/mini/study.yaml:$(SEEDS) --scale mini --corpus "$(BOOKS)" \
		--store $(STORE) --out $(OUT) --slots-per-gpu 4 --execution gpus=$(GPUS) --execution compiled=true \
		--execution eval_batch_sequences=32 $(if $(SECONDS),--seconds $(SECONDS)) $(if $(RECORDS),--records "$(RECORDS)")

# Scale paper with nothing left out but size: ZeRO-3 under torchrun, 32k tokens, every evaluation; its numbers say nothing.
EVALUATED = tokenweight/assets/smoke-eval
rehearse: books-given $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint $(VENV)/constraints.txt --editable '.[flows,data,deepspeed]'
	$(BIN)/tokenweight reproduce table-3 --scale paper --base random:llama3.2-1b --processes 1 --corpus "$(BOOKS)" \
		--mmlu $(EVALUATED)/mmlu --longbench $(EVALUATED)/longbench --haystack $(EVALUATED)/ruler/haystack.txt \
		--squad $(EVALUATED)/ruler/squad.json --hotpotqa $(EVALUATED)/ruler/hotpotqa.json \
		--set training.steps=3 --set training.warmup_steps=1 --set training.sequences_per_step=4 \
		--set evaluation.ruler.samples=1 --set evaluation.longbench.samples=1 --set evaluation.mmlu.samples=1 \
		--execution deterministic=true --store $(STORE)-rehearsal --out $(OUT)/rehearsal

books-given:
	@test -n "$(BOOKS)" || { echo "make $(or $(MAKECMDGOALS),mini) BOOKS=DIR: give a directory of books (.txt, .jsonl or .parquet)" >&2; exit 2; }

test: $(STAMP)
	$(BIN)/python -m pytest -m 'not slow' $(PARALLEL)

# All of the laboratory; make test runs a sample of it. FAULTS_KILLS=20 kills fewer whole runs than 100.
test-faults: $(STAMP)
	$(BIN)/python -m pytest tests/faults

# With DeepSpeed, whose first run on a CPU compiles an extension for some minutes (gcc and ninja).
test-all: $(STAMP) slurm
	$(BIN)/python -m pip install --quiet --constraint $(VENV)/constraints.txt --editable '.[flows,data,dev,deepspeed]'
	$(BIN)/python -m pytest -m 'not slow' $(PARALLEL)
	$(BIN)/python -m pytest -m slow

# Debian's packages for tests/cluster, where we may install them; without them those tests skip and say so.
slurm:
	@if PATH="$$PATH:/usr/sbin:/sbin"; command -v slurmctld slurmd munged srun > /dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge; } > /dev/null \
			|| echo "NOT INSTALLED: slurmctld, slurmd, slurm-client, munge; tests of the cluster are skipped"; \
	else echo "NOT INSTALLED: slurmctld, slurmd, slurm-client, munge (needs root and apt-get); tests of the cluster are skipped"; \
	fi

# Again until nothing is left: each piece begins only what ends within SECONDS_A_PIECE.
SECONDS_A_PIECE ?= 600
benchmarks: books-given $(STAMP)
	$(BIN)/python benchmarks/everything.py --books "$(BOOKS)" $(if $(MMLU),--mmlu "$(MMLU)") --seconds $(SECONDS_A_PIECE)

mutate: $(STAMP)
	$(BIN)/python scripts/mutate.py

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory types

types: $(STAMP)
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
