#!/bin/sh
# Builds .peers, the environment of the other code bases that `mbpo bench --peers` measures beside ours.
# Run from the top of the checkout. PYTHON chooses the interpreter.
set -eu

"${PYTHON:-python3}" -m venv .peers
.peers/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/peers/requirements.txt
# Its pinned dependencies exist for no Python that is supported any more; it runs without them.
.peers/bin/python -m pip install --quiet --disable-pip-version-check --no-deps mbrl==0.2.0
touch .peers/.ready
