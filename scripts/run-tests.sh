#!/usr/bin/env bash
# Run the whole test suite, or the part that TESTS names. A test runs once: what fails is a defect.
#
# Three passes: tests that share the machine, WORKERS at a time; next to them, in a process of their own, tests that load
# client libraries into it (`clients`); and at the end, alone, the tests that measure time (`serial`).
set -uo pipefail
cd "$(dirname "$0")/.." || exit
workers=${WORKERS:-3}
read -ra tests <<<"${TESTS:-tests}"
state=.pytest_cache/run
costs=$state/costs.jsonl
rm -rf "$state"
mkdir -p "$state"
failures=0

# The files that use one of these marks: collecting the whole suite takes half a minute.
files_with_mark() {
    if [ "${tests[*]}" = tests ]; then
        grep -rlw --include='test_*.py' "pytest.mark.$1" tests
    else
        printf '%s\n' "${tests[@]}"
    fi
}

# pass MARKS ARGUMENT...: run the tests with these marks; none is fine.
pass() {
    local marks=$1 code started=$SECONDS
    shift
    .venv/bin/pytest -o "cache_dir=$PWD/.pytest_cache" --costs "$costs" -m "$marks" "$@"
    code=$?
    echo "-- tests marked '$marks': $((SECONDS - started)) s"
    [ $code -eq 5 ] || return $code
}

mapfile -t clients < <(files_with_mark clients)
mapfile -t serial < <(files_with_mark serial)

[ ${#clients[@]} -eq 0 ] || pass 'clients and not serial' "${clients[@]}" >"$state/clients.log" 2>&1 &
pass 'not serial and not clients' -n "$workers" "${tests[@]}" || failures=1
wait $! || failures=1
cat "$state/clients.log"
[ ${#serial[@]} -eq 0 ] || pass 'serial' "${serial[@]}" || failures=1

.venv/bin/python scripts/test_costs.py "$costs" --budgets || failures=1
echo "make test took $((SECONDS / 60)) min $((SECONDS % 60)) s; CPU time of this shell and of its child processes:"
times
exit $failures
