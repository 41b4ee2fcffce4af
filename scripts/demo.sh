#!/usr/bin/env bash
# From a scenario file to a traced number, in demo/. Safe to repeat: each time is a new run beside the earlier ones.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH" BENCH_CACHE_DIR="$PWD/demo/cache"

bold='' plain=''
if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\033[1m' plain=$'\033[0m'
fi
say() { printf '\n%s$ %s%s\n' "$bold" "$*" "$plain" >&2; }
show() { say "bench -C demo $*"; bench -C demo "$@"; }

mkdir -p demo
show run examples/quickstart.yaml
show compare @last:name=flat @last:name=hnsw-ef48
show report @last
page=demo/reports/quickstart/index.html
# One number of that report: the queries a second of exact search.
ref=$(python - <<'PYTHON'
import json

report = json.load(open("demo/reports/quickstart/report.json"))
flat = next(point for point in report["report"]["points"] if point["target_name"] == "flat")["instance_digest"]
cells = [cell for cell in report["cells"] if cell["key"]["instance_digest"] == flat]
print(next(cell["ref"] for cell in cells if cell["key"]["metric"] == "qps"))
PYTHON
)
show trace "$ref"

cat <<END

The report:  $page   (one file, opens offline)
In a browser, with logs and evidence:  cd demo && ../.venv/bin/bench serve
Next: open it; change examples/quickstart.yaml and 'make demo' again; or read docs/quickstart.md
END
