#!/usr/bin/env bash
# A real Triton Inference Server for tests and benchmarks, without root or containers: the wheel nvidia-pytriton carries
# the server and its Python backend; tritonclient, the vendor's client, and onnxruntime come beside it. They go into a
# folder outside the repository, once (about 400 MB, from PyPI); prints that folder. x86_64 and aarch64.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/cached-venv.sh
. scripts/cached-venv.sh

packages=(nvidia-pytriton==0.7.0 tritonclient==2.73.0 aiohttp geventhttpclient grpcio onnx 'onnxruntime>=1.20')
cached_venv triton "${packages[@]}" >&2
folder=$cache/triton
if [ ! -e "$folder/backends/.made" ]; then
    version=$("$folder/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    server=$folder/lib/python$version/site-packages/pytriton/tritonserver
    stub=$server/python_backend_stubs/$version/triton_python_backend_stub
    if [ ! -x "$stub" ]; then
        echo "error: nvidia-pytriton has no backend for Python $version, only for those of $server/python_backend_stubs" >&2
        exit 1
    fi
    mkdir -p "$folder/backends"
    cp -r "$server/backends/python" "$folder/backends/" # two at once copy the same
    cp "$stub" "$folder/backends/python/"
    touch "$folder/backends/.made"
fi
echo "$folder"
