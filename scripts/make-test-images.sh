#!/usr/bin/env bash
# Small container images for the tests: scripts/make-test-images.sh prints the folder that they are in.
#   python.sif    Debian 12 with its Python 3.11      plain.sif    one static busybox, no Python
# Made once (about half a minute), kept in the cache by the digest of this script. Needs apptainer, mmdebstrap and root.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/benchhouse-tests
folder=$cache/images/$(sha256sum "$0" | cut -c1-16)
if [ -e "$folder/python.sif" ]; then
    echo "$folder"
    exit 0
fi
PATH=$PATH:$cache/apptainer/prefix/bin
for tool in apptainer mmdebstrap mksquashfs dpkg-deb; do
    command -v "$tool" >/dev/null || {
        echo "make-test-images: there is no $tool; scripts/install-test-deps.sh brings it" >&2
        exit 1
    }
done
[ "$(id -u)" -eq 0 ] || {
    echo "make-test-images: mmdebstrap is called as root here" >&2
    exit 1
}
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
if [ -e "$folder/python.sif" ]; then
    echo "$folder"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
squash=(--mksquashfs-args "-comp zstd -Xcompression-level 1 -all-root") # gzip takes a minute more

# Packages are unpacked, not configured: nothing in them needs it, and it takes half the time.
exclude=()
for path in doc locale man info zoneinfo; do exclude+=("--dpkgopt=path-exclude=/usr/share/$path/*"); done
mmdebstrap --quiet --mode=root --variant=extract --include=python3,base-files,dash,coreutils,busybox-static \
    --aptopt='Apt::Install-Recommends "false"' "${exclude[@]}" bookworm "$work/python" >&2
for file in passwd group; do echo "root:x:0:$([ $file = group ] || echo 0:root:/root:/bin/sh)" >"$work/python/etc/$file"; done
chroot "$work/python" /usr/bin/python3 -m compileall -q -x '/(test|lib2to3|idlelib|ensurepip)/' /usr/lib/python3.11 >&2 || true

rm -rf "$work/python/dev" && mkdir "$work/python/dev" # else nobody without mknod can build upon it; Apptainer mounts its own

mkdir -p "$work/plain"/{bin,dev,etc,proc,sys,tmp,var/tmp}
cp "$work/python/bin/busybox" "$work/plain/bin/"
for name in sh cat env httpd sleep echo id; do ln -s busybox "$work/plain/bin/$name"; done
cp "$work/python/etc/passwd" "$work/python/etc/group" "$work/plain/etc/"

for name in plain python; do # the one that is looked for comes last
    apptainer --silent build "${squash[@]}" "$work/$name.sif" "$work/$name" >&2
    mv "$work/$name.sif" "$folder/.$name"
    mv "$folder/.$name" "$folder/$name.sif"
done
echo "$folder"
