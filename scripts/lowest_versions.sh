#!/usr/bin/env bash
# Check the lower bounds of the dependencies in pyproject.toml: install the package with the lowest version of each into a virtual environment that is
# removed afterwards, run a scenario, and run the quick tests of the folders in FOLDERS (by default those that need no extra). PYTHON_VERSION is the oldest Python by default.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cached-venv.sh
version=${PYTHON_VERSION:-3.11}
folders=${FOLDERS:-schema documents plan analysis results}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$uv" pip compile --quiet pyproject.toml --resolution lowest-direct --python-version "$version" --no-annotate --no-header -o "$folder/lowest.txt"
cat "$folder/lowest.txt"
"$uv" venv --quiet --python "$version" "$folder/venv"
tests=(pytest pytest-timeout pytest-xdist hypothesis packaging jsonschema)
"$uv" pip install --quiet --python "$folder/venv/bin/python" -r "$folder/lowest.txt" -c "$folder/lowest.txt" "${tests[@]}" .

mkdir "$folder/workspace"
cat >"$folder/workspace/scenario.yaml" <<'SCENARIO'
scenario: lowest
experiment: command
workload: {argv: ["true"], executions: 2}
repetitions: 2
SCENARIO
(
    cd "$folder/workspace"
    export PATH=$folder/venv/bin:$PATH
    bench run scenario.yaml
    bench compare @last @last >/dev/null
    bench report @last >/dev/null
    bench query "SELECT count(*) FROM trial_fact" >/dev/null
    bench verify @last
)
# A folder at a time, each in the environment of the installed package, not of this checkout.
for name in $folders; do
    echo "tests/$name"
    PATH=$folder/venv/bin:$PATH "$folder/venv/bin/python" -m pytest -q -m quick -k "not that_ado_gives" -p no:cacheprovider --basetemp "$folder/pytest" "tests/$name"
done
