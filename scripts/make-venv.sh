#!/usr/bin/env bash
# Make .venv as uv.lock says: scripts/make-venv.sh demo|dev|test, each with what those before it have; dev where none is named.
# Any order and any number of calls are safe, also at the same time: a call adds what is missing, and removes nothing.
# Needs Python 3.11 or newer; uv is used when present, else it is put into .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=${PATH//"$PWD/.venv/bin:"/} # an activated .venv can't make itself

level=${1:-dev}
groups=()
case $level in
    demo) levels=(demo) count='20 packages, 400 MB' ;;
    dev) levels=(demo dev) count='100 packages, 650 MB' groups=(--group dev) ;;
    test) levels=(demo dev test) count='230 packages, 1.8 GB' groups=(--group dev --group test) ;;
    *)
        echo "usage: make-venv.sh demo|dev|test" >&2
        exit 2
        ;;
esac

if command -v flock >/dev/null; then
    exec 9<"$PWD"
    flock 9
fi
up_to_date() {
    local source
    for source in uv.lock pyproject.toml scripts/make-venv.sh hatch_build.py src/benchhouse/load/_*.c; do
        [ ! "$source" -nt ".venv/bin/.made-$level" ] || return 1
    done
}
if up_to_date; then
    exit 0 # another call has just made it
fi

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
echo "installing into .venv, as uv.lock says: $count" >&2
asked=(--frozen --inexact --no-default-groups --extra faiss ${groups[@]+"${groups[@]}"}) # inexact leaves alone what was added by hand, uv itself among it
if [ ! -x .venv/bin/python ]; then
    asked+=(--python "$python")
fi
"$uv" sync --quiet "${asked[@]}" || { # quiet: not a line a package; what went wrong it says all the same
    code=$?
    echo "error: .venv could not be made, for the reason above" >&2
    echo "  mend that, then do the same again; a mirror is named by UV_DEFAULT_INDEX=URL" >&2
    exit $code
}
touch "${levels[@]/#/.venv/bin/.made-}"
echo ".venv is made: $SECONDS s" >&2
