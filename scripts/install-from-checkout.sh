#!/usr/bin/env bash
# Install Benchhouse from this checkout into the environment of python3, for the actions of GitHub. Whoever pins the commit of the action pins all
# that is installed: dependencies have the versions of uv.lock, and pip refuses a file whose hash differs.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -m pip install --quiet --require-hashes --only-binary :all: -r scripts/locked-requirements.txt
python3 -m pip install --quiet --no-deps --no-build-isolation .
