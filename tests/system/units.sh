#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# units.sh BUILD: installs into an empty folder and has systemd-analyze look at the units
# there: that they are right, and that the service is exposed less than 2.5 (of 10), with GPUs less
# than 3.5. Exit status 77 (skip) where there is no systemd-analyze, or one that cannot.
set -euo pipefail
build=$1

if ! command -v systemd-analyze >/dev/null; then
    echo "skipped: there is no systemd-analyze (Debian: systemd)"
    exit 77
fi
if ! systemd-analyze --help | grep -q -- --offline; then
    echo "skipped: this systemd-analyze is older than 250"
    exit 77
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
DESTDIR=$root cmake --install "$build" --component systemd >/dev/null
units=$(dirname "$(find "$root" -name f8gatherd.service)")
installed=(f8gatherd.service f8gatherd.socket f8gatherd.service.d/gpu.conf.example)
for file in "${installed[@]}"; do
    [[ -s $units/$file ]] || { echo "$file is not installed"; exit 1; }
done
for folder in sysusers.d tmpfiles.d; do
    [[ -s $units/../../$folder/f8gatherd.conf ]] || { echo "$folder has nothing"; exit 1; }
done

# The program is not at its place in this test, so the build's stands in for it.
sed "s|^ExecStart=.*|ExecStart=$build/bin/f8gatherd|; /^Documentation/d" \
    "$units/f8gatherd.service" >"$root/f8gatherd.service"
cp "$units/f8gatherd.socket" "$root"

verify() {
    local words
    words=$(systemd-analyze verify --man=no "$@" 2>&1) || { echo "$words"; exit 1; }
    # What it warns of in our units; other units of the host may have faults of their own.
    if grep -E "f8gatherd|gpu\.conf" <<<"$words"; then
        exit 1
    fi
}

check() {
    echo "exposure of $1, to be at most $2 tenths:"
    systemd-analyze security --offline=true --threshold="$2" "$1" | tail -n 1
}

verify "$root/f8gatherd.service" "$root/f8gatherd.socket"
check "$root/f8gatherd.service" 25

mkdir "$root/f8gatherd.service.d"
cp "$units/f8gatherd.service.d/gpu.conf.example" "$root/f8gatherd.service.d/gpu.conf"
verify "$root/f8gatherd.service"
grep -v '^#' "$root/f8gatherd.service.d/gpu.conf" | cat "$root/f8gatherd.service" - \
    >"$root/f8gatherd-gpu.service"
check "$root/f8gatherd-gpu.service" 35

# A fault must be found, or the above says nothing.
sed 's/^Type=.*/Type=nonsense/' "$root/f8gatherd.service" >"$root/f8planted.service"
if ! systemd-analyze verify --man=no "$root/f8planted.service" 2>&1 | grep -q nonsense; then
    echo "systemd-analyze verify does not see a planted fault"
    exit 1
fi
