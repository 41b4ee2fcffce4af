#!/usr/bin/env bash
# Wheels for x86_64 and aarch64 in dist/, both compiled on this machine by zig (from PyPI) against glibc 2.17, so that
# they install on any Linux with that or a newer one; and the source distribution. On other machines pip compiles the
# load engine from the source, or, without a compiler, does without.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=uv
command -v uv >/dev/null || uv=.venv/bin/uv

"$uv" build --quiet --sdist
for machine in x86_64 aarch64; do
    CC="$uv tool run --quiet --from ziglang python-zig cc -target $machine-linux-gnu.2.17 -Wno-unused-command-line-argument" \
        WHEEL_PLATFORM=manylinux_2_17_$machine "$uv" build --quiet --wheel
done
ls dist
