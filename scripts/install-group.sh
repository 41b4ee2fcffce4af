#!/usr/bin/env bash
# Large libraries that few tests need: scripts/install-group.sh GROUP installs a dependency group of pyproject.toml in the versions of uv.lock, without
# what .venv has for `make test` anyway. It prints the folder of the packages, in a virtual environment outside the repository, made once and kept:
# $BENCH_TEST_CACHE/group-GROUP, else ~/.cache/benchhouse-tests/group-GROUP.
set -euo pipefail
cd "$(dirname "$0")/.."
group=${1:?usage: install-group.sh GROUP}
. scripts/cached-venv.sh

locked() {
    "$uv" export --quiet --frozen --no-emit-project --no-hashes --no-annotate --no-header "$@" | sort
}
mapfile -t packages < <(comm -23 <(locked --only-group "$group") <(locked --only-group test))
[ ${#packages[@]} -gt 0 ] || {
    echo "error: pyproject.toml has no packages of its own in a group $group" >&2
    exit 2
}
options+=(--no-deps --no-compile-bytecode) # tests compile what they import
cached_venv "group-$group" "${packages[@]}"
echo "$cache/group-$group"/lib/python3*/site-packages
