#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# packages.sh SOURCE WORK: makes the packages in the folder WORK, has lintian look at them, installs
# them into a new system of this Debian's release (in_chroot.sh) and uses them there. As a user, or
# where debootstrap finds no mirror, they are only unpacked into an empty folder and used from there,
# which the output tells. Exit status 77 (skip) where they cannot be built.
set -euo pipefail
source=$1
work=$2
here=$(realpath "$(dirname "$0")")

skip() {
    echo "skipped: $1"
    exit 77
}

fail() {
    echo "NOT OK: $1"
    exit 1
}

# The mirror that apt takes this release from.
mirror_of() {
    # shellcheck disable=SC2016 # these are apt-get's to expand
    apt-get indextargets --format '$(CODENAME) $(ORIGIN) $(REPO_URI)' 'Created-By: Packages' |
        sed -n "s/^$1 Debian //p" | head -n 1
}

# Makes a new system; fails where it cannot.
make_system() {
    local root=$1 release mirror
    release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    mirror=$(mirror_of "$release")
    [[ $EUID -eq 0 ]] || { echo "not root"; return 1; }
    command -v debootstrap >/dev/null || { echo "there is no debootstrap"; return 1; }
    [[ -n $mirror ]] || { echo "apt knows no mirror of $release"; return 1; }
    timeout 300 debootstrap --variant=minbase "$release" "$root" "$mirror" >"$work/debootstrap" 2>&1 || {
        tail -n 3 "$work/debootstrap"
        return 1
    }
}

for program in dpkg-buildpackage dpkg-checkbuilddeps dh lintian; do
    command -v "$program" >/dev/null || skip "there is no $program (see ./dev deps)"
done
missing=$(cd "$source" && dpkg-checkbuilddeps 2>&1) || skip "$missing"

"$source/dev" package "$work/packages" || fail "./dev package"
version=$(sed -n 's/^project(f8gather VERSION \([^ ]*\).*/\1/p' "$source/CMakeLists.txt")
packages=()
for package in f8gatherd f8gather-tools libf8client0 libf8client-dev; do
    [[ -s $(echo "$work/packages/${package}_${version}"_*.deb) ]] ||
        fail "no $package of version $version: do CMakeLists.txt and debian/changelog differ?"
done
mapfile -t packages < <(find "$work/packages" -maxdepth 1 -name '*.deb')

root=$(mktemp -d)
chmod 755 "$root" # it becomes /, for the daemon's user too
trap 'rm -rf "$root"' EXIT
if why=$(make_system "$root"); then
    mkdir "$root/f8test"
    cp "${packages[@]}" "$here/use_installed.sh" "$here/in_chroot.sh" "$root/f8test"
    # What is mounted and started there ends with its namespaces.
    unshare --mount --pid --fork --kill-child --mount-proc="$root/proc" \
        chroot "$root" /bin/bash /f8test/in_chroot.sh || fail "in a new system"
else
    echo "not installed into a new system, only unpacked: $why"
    for package in "${packages[@]}"; do
        dpkg -x "$package" "$root"
    done
    bash "$here/use_installed.sh" "$root" "$root/usr/share/doc/libf8client-dev/examples/trainer.c"
fi
