#!/usr/bin/env bash
# Programs that some tests need: hyperfine and fio to be measured against, Chromium to open reports, a C compiler for the
# mock server and the fake GPU, Prometheus to scrape runs. Only what is missing.
set -euo pipefail

missing=()
command -v hyperfine >/dev/null || missing+=(hyperfine)
command -v fio >/dev/null || missing+=(fio)
command -v prometheus >/dev/null || missing+=(prometheus)
command -v prometheus-node-exporter >/dev/null || missing+=(prometheus-node-exporter)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
    missing+=(chromium fonts-dejavu-core)
fi
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
fi
if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
    echo "note: ${missing[*]} not installed, and this user can't install Debian packages here" >&2
    echo "  the tests that need them are skipped; to run them too: sudo apt-get install ${missing[*]}" >&2
    exit 0
fi
echo "installing for the tests: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
# At run level 1 packages do not start the services that they bring: the tests start their own.
"${as_root[@]}" env RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
