#!/usr/bin/env bash
# Programs that some tests need: hyperfine and fio to be measured against, Chromium to open reports, librsvg for their charts as PNG, a C compiler for the
# mock server and the fake GPU, Prometheus to scrape runs; strace to make system calls fail; cron to look at its lines; Slurm for a cluster on this
# machine; Apptainer with what makes small images and serves them; Java for Spark; ssh-keygen for signatures. Only what is missing.
# Kubernetes is built in the background, while the other tests run: those that need it come late, and wait for it.
set -euo pipefail
here=$(dirname "$(realpath "$0")")

missing=()
command -v hyperfine >/dev/null || missing+=(hyperfine)
command -v fio >/dev/null || missing+=(fio)
command -v prometheus >/dev/null || missing+=(prometheus)
command -v prometheus-node-exporter >/dev/null || missing+=(prometheus-node-exporter)
command -v prometheus-alertmanager >/dev/null || missing+=(prometheus-alertmanager)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
    missing+=(chromium fonts-dejavu-core)
fi
command -v strace >/dev/null || missing+=(strace)
command -v crontab >/dev/null || missing+=(cron)
command -v rsvg-convert >/dev/null || missing+=(librsvg2-bin)
command -v shellcheck >/dev/null || missing+=(shellcheck)
command -v java >/dev/null || missing+=(default-jre-headless)
command -v mksquashfs >/dev/null || missing+=(squashfs-tools)
command -v squashfuse >/dev/null || missing+=(squashfuse fuse3)
command -v newuidmap >/dev/null || missing+=(uidmap)
command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
command -v docker-registry >/dev/null || missing+=(docker-registry)
command -v ip >/dev/null || missing+=(iproute2)
command -v openssl >/dev/null || missing+=(openssl)
command -v ssh-keygen >/dev/null || missing+=(openssh-client)
command -v slurmctld >/dev/null || missing+=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge)

bring_apptainer() {
    command -v apptainer >/dev/null && return
    "$here/get-apptainer.sh" "${XDG_CACHE_HOME:-$HOME/.cache}/benchhouse-tests/apptainer/prefix" >/dev/null ||
        echo "note: the tests that need Apptainer are skipped" >&2
}
begin_kubernetes() {
    local cache=${BENCH_TEST_CACHE:-$HOME/.cache/benchhouse-tests}
    mkdir -p "$cache"
    setsid --fork nice -n 5 "$here/kubernetes-cluster.sh" install >"$cache/kubernetes.log" 2>&1 </dev/null
}
# The large libraries that few tests need: who needs one earlier installs it, or waits for this.
begin_groups() {
    local cache=${BENCH_TEST_CACHE:-$HOME/.cache/benchhouse-tests}
    # shellcheck disable=SC2016  # expanded by the shell that this starts
    setsid --fork nice -n 5 bash -c 'cd "$1" && ./make-venv.sh test && for group in spark clickhouse kubernetes-schemas polars notebook messages; do
        ./install-group.sh "$group"
    done' begin "$here" >"$cache/groups.log" 2>&1 </dev/null
}
if [ ${#missing[@]} -eq 0 ]; then
    begin_kubernetes
    begin_groups
    bring_apptainer
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
fi
if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
    echo "note: ${missing[*]} not installed, and this user can't install Debian packages here" >&2
    echo "  the tests that need them are skipped; to run them too: sudo apt-get install ${missing[*]}" >&2
    exit 0
fi
quietly() { # what it says is shown where it fails
    local said
    said=$("$@" 2>&1) || {
        local code=$?
        echo "$said" >&2
        return $code
    }
}
echo "installing for the tests, some minutes: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
quietly "${as_root[@]}" apt-get update -qq
# At run level 1 packages do not start the services that they bring: the tests start their own.
quietly "${as_root[@]}" env RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}"
begin_kubernetes
begin_groups
bring_apptainer
