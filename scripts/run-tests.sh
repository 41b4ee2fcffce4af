#!/usr/bin/env bash
# The whole test suite, or the part that TESTS names: what may run side by side first, what measures time at the end.
# A machine that others share can starve one test of thousands. What fails is tried once more two seconds later (RERUN),
# and what fails again is tried a last time alone, after everything else of its pass has ended. Both are listed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
pytest=(.venv/bin/pytest -o "cache_dir=$PWD/.pytest_cache" --reruns 1 --reruns-delay 2 -rR --durations 20 --durations-min 5)
workers=${WORKERS:-3}
read -ra tests <<<"${TESTS:-tests}"
few=20 # more than that is no neighbour's load
again=()

# The files in which a test has this mark, of the whole suite: to read all of it takes each worker half a minute.
marked() {
    [ "${tests[*]}" = tests ] || return 0
    mapfile -t tests < <(grep -rlw --include='test_*.py' "pytest.mark.$1" tests)
}

pass() {
    local marks=$1
    shift
    rm -f .pytest_cache/v/cache/lastfailed
    "${pytest[@]}" -m "$marks" "$@" "${tests[@]}"
    local code=$?
    [ $code -eq 5 ] && return 0 # none is marked so
    [ $code -eq 1 ] || return $code
    local failed
    mapfile -t failed < <(.venv/bin/python -c '
import json, pathlib
print(*json.loads(pathlib.Path(".pytest_cache/v/cache/lastfailed").read_text()), sep="\n")')
    [ -n "${failed[0]}" ] && [ ${#failed[@]} -le $few ] || return 1
    echo "tried again, one at a time:"
    printf '  %s\n' "${failed[@]}"
    again+=("${failed[@]}")
    "${pytest[@]}" "${failed[@]}"
}

all=("${tests[@]}")
pass 'not serial and not clients' -n "$workers" || exit
marked clients
pass 'clients and not serial' -n "$workers" || exit
tests=("${all[@]}")
marked serial
pass 'serial' || exit
if [ ${#again[@]} -gt 0 ]; then
    echo "passed only when they ran alone (twice is a defect):"
    printf '  %s\n' "${again[@]}"
fi
