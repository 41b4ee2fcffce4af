#!/usr/bin/env bash
# The figures of benchmarks/, one after another; a figure whose other product is not installed says so and is passed over.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

failed=()
for script in benchmarks/*.py; do
    name=$(basename "$script" .py)
    case "$name" in
        ours | peers | machine | cluster | lockstep) continue ;;  # no figures, but what several of them share
        command_overhead) command -v hyperfine >/dev/null || { echo "-- $name: needs hyperfine, passed over"; continue; } ;;
    esac
    echo "-- $name"
    python "$script"
    case $? in
        0) ;;
        2) echo "-- $name: what it needs is not installed, passed over" ;;
        *) failed+=("$name") ;;
    esac
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "outside their bars: ${failed[*]}" >&2
    exit 1
fi
