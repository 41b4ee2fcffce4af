#!/usr/bin/env bash
# A real Apptainer for the tests, in a folder of its own: scripts/get-apptainer.sh PREFIX; then PATH=PREFIX/bin:$PATH
#
# Debian 12 has no package of it. The one of Debian sid is downloaded by apt, which checks its signature, with a temporary
# configuration: the system's own sources stay as they are. It is unpacked below PREFIX, and made to load on glibc 2.36.
# On a cluster use the site's own (`module load`); this is for machines where tests run. Tried: 1.4.5-2 on x86_64.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
prefix=$(realpath -m "${1:?usage: get-apptainer.sh PREFIX}")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/benchhouse-tests/apptainer
instead="install it by other means (https://apptainer.org/docs/admin/main/installation.html) and put it on PATH"

give_up() {
    echo "get-apptainer: $1" >&2
    echo "  $instead" >&2
    exit 1
}

if [ -x "$prefix/bin/apptainer" ] && "$prefix/bin/apptainer" --version >/dev/null 2>&1; then
    "$prefix/bin/apptainer" --version
    exit 0
fi
case $(uname -m) in
    x86_64 | aarch64) ;;
    *) give_up "there is a package for x86_64 and aarch64, and this is $(uname -m)" ;;
esac
for tool in apt-get dpkg-deb python3; do
    command -v "$tool" >/dev/null || give_up "this needs Debian's $tool"
done
[ -r /usr/share/keyrings/debian-archive-keyring.gpg ] || give_up "without debian-archive-keyring nothing can be checked"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"
package=$(find "$cache" -maxdepth 1 -name 'apptainer_*.deb' | sort -V | tail -n 1)
if [ -z "$package" ]; then
    mirror=$(sed -n 's/^URIs: *\(\S*\).*/\1/p; s/^deb \(\[.*\] \)\?\(\S*\) .*/\2/p' \
        /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null | grep -v security | head -n 1 || true)
    mkdir -p "$work"/{parts,lists/partial,cache/archives/partial}
    printf 'Types: deb\nURIs: %s\nSuites: sid\nComponents: main\nSigned-By: %s\n' \
        "${mirror:-http://deb.debian.org/debian}" /usr/share/keyrings/debian-archive-keyring.gpg >"$work/parts/sid.sources"
    options=(-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/parts" -o Dir::State::lists="$work/lists"
        -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root -o Debug::NoLocking=1 -o Acquire::Languages=none)
    apt-get "${options[@]}" -qq update || give_up "the package lists of Debian sid could not be read from ${mirror:-deb.debian.org}"
    (cd "$work" && apt-get "${options[@]}" -qq download apptainer) || give_up "Debian sid has no package 'apptainer' any more"
    package=$(find "$work" -maxdepth 1 -name 'apptainer_*.deb')
    cp "$package" "$cache/.new.$$"
    mv "$cache/.new.$$" "$cache/$(basename "$package")"
fi

dpkg-deb -x "$package" "$work/root"
made=$work/made
mkdir "$made"
cp -a "$work/root/usr/." "$made/"
cp -a "$work/root/etc" "$made/etc"
python3 "$here/patch_glibc.py" "$made"/bin/apptainer "$made"/lib/*/apptainer/bin/starter "$made"/lib/*/apptainer/lib/offsetpreload.so ||
    give_up "$(basename "$package") does not load on this machine's glibc"
# It looks for its settings beside the folder that its starter lies in.
mkdir -p "$made/var/lib/apptainer/mnt/session"
ln -sfn ../etc "$made/lib/etc"
ln -sfn ../var "$made/lib/var"
# Inside a container of another kind root has not all capabilities, and asking for them all fails.
sed -i 's/^root default capabilities = full/root default capabilities = no/' "$made/etc/apptainer/apptainer.conf"
mkdir -p "$(dirname "$prefix")"
rm -rf "$prefix"
mv "$made" "$prefix"
"$prefix/bin/apptainer" --version || give_up "$(basename "$package") was unpacked and does not start"
if [ "$(id -u)" -ne 0 ] && ! [ -w /dev/fuse ]; then
    echo "note: /dev/fuse is not for this user, so that no image can be mounted; as root: chmod 666 /dev/fuse" >&2
fi
