# Two commands on a fresh machine: `make train` and `make test`. Everything lives in this folder's .venv.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup train test check format soak peers clean

setup: $(READY)

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "mbpo needs Python 3.11 or newer and $(PYTHON) is older; run: make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[dev]'
	touch $@

# Trains on InvertedPendulum until it balances; fails if the trained agent does not.
train: $(READY)
	rm -rf runs/first
	$(BIN)/mbpo train --task InvertedPendulum --steps 3000 --out runs/first
	$(BIN)/mbpo evaluate runs/first --episodes 10 --at-least 950
	@echo "learning curve: runs/first/curve.png"

test: $(READY)
	$(BIN)/python -m pytest -q -n auto --dist loadfile

# What CI runs.
check: $(READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright
	$(MAKE) test

# Fifty kills and resumes of each algorithm.
soak: $(READY)
	$(BIN)/python -m tests.soak --algorithm sac --kills 50 --log results/soak/sac.log
	$(BIN)/python -m tests.soak --algorithm ppo --kills 50 --log results/soak/ppo.log
	$(BIN)/python -m tests.soak --algorithm mbpo --kills 50 --log results/soak/mbpo.log

# The environment of the code bases that `mbpo bench --peers` measures beside ours; nothing here imports them.
peers: .peers/.ready

.peers/.ready: benchmarks/peers/setup.sh benchmarks/peers/requirements.txt
	PYTHON=$(PYTHON) sh benchmarks/peers/setup.sh

format: $(READY)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean:
	rm -rf .venv .peers build dist
