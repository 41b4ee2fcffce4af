# shellcheck shell=bash
# Read by the install scripts: virtual environments outside the repository, made once from a list of requirements and kept.

cache=${BENCH_TEST_CACHE:-$HOME/.cache/benchhouse-tests}
options=()

uv=$(PATH="$PWD/.venv/bin:$PATH" command -v uv) || {
    echo "error: uv not found" >&2
    echo "  run make venv first" >&2
    exit 2
}
python=$(PATH="$PWD/.venv/bin:$PATH" command -v python3)

# Take a CPU build of torch: PyPI's for x86-64 brings gigabytes of CUDA. Sets $torch.
# shellcheck disable=SC2034  # the caller reads it
cpu_torch() {
    local version=$1 folder tag
    tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
    torch=torch==$version
    for folder in ${UV_FIND_LINKS:-} ${PIP_FIND_LINKS:-}; do # uv itself doesn't look at pip's settings
        if compgen -G "$folder/torch-$version+cpu-$tag-*_$(uname -m).whl" >/dev/null; then
            torch=torch==$version+cpu
            options+=(--find-links "$folder")
            return
        fi
    done
    options+=(--torch-backend cpu)
}

# Leave these out, although something asks for them.
without() {
    local name
    overrides=$(mktemp)
    trap 'rm -f "$overrides"' EXIT
    for name in "$@"; do
        echo "$name; sys_platform == 'none'"
    done >"$overrides"
    options+=(--override "$overrides")
}

# cached_venv NAME REQUIREMENT...: $cache/NAME holds them when this returns, and `after_install FOLDER` has been called, where
# there is such a function. Two callers at once wait for each other.
cached_venv() {
    local name=$1
    local folder=$cache/$name wanted
    shift
    wanted="$* $("$python" -V)"
    mkdir -p "$(dirname "$folder")"
    exec 9>"$folder.lock"
    flock 9
    if [ "$(cat "$folder/.made" 2>/dev/null)" != "$wanted" ]; then
        rm -rf "$folder"
        "$uv" venv --quiet --python "$python" "$folder"
        # Compiled now: the first start is not to pay for it, nor any start where PYTHONDONTWRITEBYTECODE is set.
        # From another folder than the repository, whose pyproject.toml overrides requirements of its own environment.
        "$uv" pip install --quiet --compile-bytecode --directory "$(dirname "$folder")" --python "$folder/bin/python" \
            ${options[@]+"${options[@]}"} "$@"
        if declare -F after_install >/dev/null; then
            after_install "$folder"
        fi
        echo "$wanted" >"$folder/.made"
    fi
    flock -u 9
    options=()
}
