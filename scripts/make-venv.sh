#!/usr/bin/env bash
# Make .venv exactly as uv.lock says. Needs Python 3.11 or newer; uv is used when present, else it is put into .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=${PATH//"$PWD/.venv/bin:"/} # an activated .venv can't make itself

usable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for name in "${PYTHON:-}" python3.13 python3.12 python3.11 python3 python; do
        if [ -n "$name" ] && usable "$name"; then
            "$name" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    echo "error: no Python 3.11 or newer found" >&2
    echo "  install one (for example: apt install python3 python3-venv), or say where: make venv PYTHON=/path/to/python" >&2
    exit 2
}

python=$(find_python)
if [ -x .venv/bin/python ] && ! usable .venv/bin/python; then
    rm -rf .venv
fi
if command -v uv >/dev/null; then
    uv=uv
else
    if [ ! -x .venv/bin/uv ]; then
        if [ ! -x .venv/bin/python ]; then
            "$python" -m venv .venv || {
                echo "error: $python can't make a virtual environment" >&2
                echo "  Debian and Ubuntu keep that apart: apt install python3-venv; or install uv" >&2
                exit 2
            }
        fi
        pip=(.venv/bin/python -m pip)
        if ! .venv/bin/python -c 'import pip' 2>/dev/null; then  # a venv that uv made has none
            pip=("$python" -m pip --python .venv/bin/python)
        fi
        "${pip[@]}" install -qq --disable-pip-version-check 'uv>=0.5'
    fi
    uv=.venv/bin/uv
fi
echo "installing about 200 packages into .venv, as uv.lock says, and compiling them: about a minute, on a busy machine several" >&2
asked=(--frozen --inexact --compile-bytecode --extra faiss) # inexact leaves alone what was added by hand, uv itself among it
if [ ! -x .venv/bin/python ]; then
    asked+=(--python "$python")
fi
"$uv" sync --quiet "${asked[@]}" || { # quiet: not a line a package; what went wrong it says all the same
    code=$?
    echo "error: .venv could not be made, for the reason above" >&2
    echo "  mend that, then do the same again; a mirror is named by UV_DEFAULT_INDEX=URL" >&2
    exit $code
}
echo ".venv is made: $SECONDS s" >&2
